//! The options of a section `type = dropbox`. Names and meanings are rclone's.

use haul_core::{
    Error, ErrorKind, Result,
    encoding::Encoding,
    units::{Size, parse_size},
};
use haul_oauth::{Provider, Revoke};
use haul_store::{OpenRequest, OptionKind, OptionSpec};

/// The log-in of a person.
pub static PROVIDER: Provider = Provider {
    kind: "dropbox",
    title: "Dropbox",
    auth_url: "https://www.dropbox.com/oauth2/authorize",
    token_url: "https://api.dropboxapi.com/oauth2/token",
    scopes: &[
        "account_info.read",
        "files.metadata.write",
        "files.content.write",
        "files.content.read",
        "sharing.write",
    ],
    adapt: None,
    extra: &[("token_access_type", "offline")],
    redirect: "http://localhost:53682/",
    shows_code: true,
    device_url: "",
    pkce: true,
    rotates: false,
    revoke: Revoke::Bearer("https://api.dropboxapi.com/2/auth/token/revoke"),
    further: None,
    own_id: "at www.dropbox.com/developers/apps",
};

/// Pieces have multiples of this, in bytes; all but the end. Hashes are of blocks of it too.
pub const BLOCK: u64 = 4 << 20;
const ENCODING: &str = "Slash,BackSlash,Del,RightSpace,InvalidUtf8,Dot";
/// The service takes 150 MB at once.
const MOST: u64 = 144 << 20;

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[],
};

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &[
    haul_oauth::OPTIONS[0],
    haul_oauth::OPTIONS[1],
    haul_oauth::OPTIONS[2],
    haul_oauth::OPTIONS[3],
    haul_oauth::OPTIONS[4],
    OptionSpec {
        name: "chunk_size",
        help: "Upload larger files in parts of this size, several at once: a multiple of 4Mi, at most 144Mi. Empty: haul chooses.",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec {
        name: "impersonate",
        help: "For a team's application: act as the member with this id (dbmid:…).",
        ..BASE
    },
    OptionSpec {
        name: "root_namespace",
        help: "The id of the namespace that is the root: a team's space or a shared folder.",
        ..BASE
    },
    OptionSpec {
        name: "shared_folders",
        help: "Show the folders that others share with the account; the first part of a path names one of them, which is mounted.",
        default: "false",
        kind: OptionKind::Bool,
        ..BASE
    },
    OptionSpec {
        name: "batch_mode",
        help: "Accepted for compatibility with rclone: haul always publishes small files together, and waits for the answer.",
        default: "sync",
        ..BASE
    },
    OptionSpec {
        name: "batch_size",
        help: "Maximum number of files to publish together; 0 means 1000, the service's limit.",
        default: "0",
        kind: OptionKind::Int,
        ..BASE
    },
    OptionSpec {
        name: "batch_timeout",
        help: "Accepted for compatibility with rclone: haul waits at most half a second.",
        kind: OptionKind::Duration,
        ..BASE
    },
    OptionSpec {
        name: "encoding",
        help: "Characters to replace in names, as rclone's option of this name says.",
        default: ENCODING,
        ..BASE
    },
    OptionSpec { name: "endpoint", help: "Address of another service of this kind, for tests.", ..BASE },
];

/// Settings of a config section.
#[derive(Debug)]
pub struct Config {
    pub api: String,
    pub content: String,
    pub chunk_size: Option<u64>,
    pub impersonate: String,
    pub root_namespace: String,
    pub shared_folders: bool,
    pub batch_size: usize,
    pub encoding: Encoding,
}

impl Config {
    /// Reads the options.
    ///
    /// Errors: `Invalid`, naming the option that is wrong.
    pub fn read(request: &OpenRequest) -> Result<Config> {
        let option = |name: &str| request.options.get(name).map(|value| value.trim().to_owned()).unwrap_or_default();
        let invalid = |message: String| Error::new(ErrorKind::Invalid, "open", message);
        let chunk_size = match option("chunk_size") {
            none if none.is_empty() => None,
            text => match parse_size(&text) {
                Ok(Size::Bytes(size)) if size > 0 => Some(size.next_multiple_of(BLOCK).min(MOST)),
                _ => return Err(invalid(format!("chunk_size = {text:?}: use a size such as 48Mi"))),
            },
        };
        let batch_size = match option("batch_size").parse().unwrap_or(0) {
            0 => 1000,
            size => usize::min(size, 1000),
        };
        let encoding = match option("encoding") {
            none if none.is_empty() => ENCODING.to_owned(),
            text => text,
        };
        let endpoint = option("endpoint").trim_end_matches('/').to_owned();
        if !endpoint.is_empty() && !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(invalid(format!("endpoint = {endpoint:?}: write https://HOST")));
        }
        let host = |own: &str| if endpoint.is_empty() { own.to_owned() } else { endpoint.clone() };
        Ok(Config {
            api: host("https://api.dropboxapi.com"),
            content: host("https://content.dropboxapi.com"),
            chunk_size,
            impersonate: option("impersonate"),
            root_namespace: option("root_namespace"),
            shared_folders: option("shared_folders") == "true",
            batch_size,
            encoding: Encoding::parse(&encoding)?,
        })
    }

    /// Host and port of the service.
    pub fn host(&self) -> String {
        self.api.split('/').nth(2).unwrap_or_default().to_owned()
    }
}
