//! The options of a section `type = drive`. Names and meanings are rclone's.

use crate::formats::{Format, formats};
use haul_core::{
    Error, ErrorKind, Result,
    encoding::Encoding,
    units::{Size, parse_size},
};
use haul_oauth::{Addresses, ServiceAccount, google};
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use std::{collections::BTreeMap, sync::Arc};

pub const AUTH_URL: &str = "https://accounts.google.com/o/oauth2/auth";
pub const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
const ENDPOINT: &str = "https://www.googleapis.com";
const CHUNK: u64 = 8 << 20;
/// As rclone has it.
const EXPORTS: &str = "docx,xlsx,pptx,svg";

/// Where a person logs in, and what for.
pub fn addresses(options: &BTreeMap<String, String>) -> Addresses {
    let scope = scopes(options.get("scope").map_or("", |scope| scope));
    Addresses { auth_url: AUTH_URL.to_owned(), token_url: TOKEN_URL.to_owned(), device_url: String::new(), scope }
}

/// The requested scopes, separated by spaces.
fn scopes(typed: &str) -> String {
    let typed = if typed.trim().is_empty() { "drive" } else { typed };
    let each = typed.split(',').map(|scope| format!("https://www.googleapis.com/auth/{}", scope.trim()));
    each.collect::<Vec<_>>().join(" ")
}

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[],
};

const fn text(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, ..BASE }
}

const fn flag(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default: "false", kind: OptionKind::Bool, ..BASE }
}

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &[
    haul_oauth::OPTIONS[0],
    haul_oauth::OPTIONS[1],
    haul_oauth::OPTIONS[2],
    haul_oauth::OPTIONS[3],
    haul_oauth::OPTIONS[4],
    OptionSpec {
        name: "scope",
        help: "What the login may do, separated by commas.",
        default: "drive",
        advanced: false,
        examples: &[
            ("drive", "All files"),
            ("drive.readonly", "Read all files"),
            ("drive.file", "Only files that were created with this client id"),
        ],
        ..BASE
    },
    OptionSpec {
        advanced: false,
        ..text("service_account_file", "File with the key of a service account, as issued by Google.")
    },
    OptionSpec { secret: true, ..text("service_account_credentials", "The contents of such a file.") },
    flag(
        "env_auth",
        "Log in as Google's own tools would here: by GOOGLE_APPLICATION_CREDENTIALS, by what gcloud auth application-default login wrote, else by the machine's service account.",
    ),
    text("impersonate", "The user that the service account acts for (domain-wide delegation)."),
    text("team_drive", "Id of the shared drive to use."),
    text("root_folder_id", "Id of the folder that is the root of the remote. Unset: My Drive, or the shared drive."),
    flag("shared_with_me", "In the root, show items that others have shared with you."),
    OptionSpec { default: "true", ..flag("use_trash", "Deleted files go to the trash instead of being removed.") },
    OptionSpec {
        default: EXPORTS,
        ..text(
            "export_formats",
            "Formats for Google's own documents in listings and downloads: the first that Google can export a document to. Empty: they are left out.",
        )
    },
    text("import_formats", "Not supported: uploads are never converted to Google documents."),
    flag("skip_gdocs", "Leave Google's own documents out."),
    flag("starred_only", "In the root, show starred items."),
    flag("trashed_only", "Show only items in the trash, in their original folders. Read-only."),
    flag("skip_shortcuts", "Leave shortcuts out instead of following them."),
    flag(
        "skip_dangling_shortcuts",
        "Leave out shortcuts to items that no longer exist, instead of reporting them as errors.",
    ),
    flag("acknowledge_abuse", "Also read files that Google considers malware or spam."),
    flag("stop_on_upload_limit", "Stop at Google's daily upload limit (750 GB) instead of retrying."),
    flag("keep_revision_forever", "Keep new revisions forever."),
    OptionSpec {
        default: "100ms",
        ..text(
            "pacer_min_sleep",
            "No effect; accepted for compatibility with rclone: haul goes as fast as Google allows.",
        )
    },
    OptionSpec {
        default: "100",
        kind: OptionKind::Int,
        ..text("pacer_burst", "No effect; accepted for compatibility with rclone: haul goes as fast as Google allows.")
    },
    text("resource_key", "Resource key of root_folder_id, where a link to it has one."),
    OptionSpec {
        name: "list_chunk",
        help: "Items per page of a listing, 100 to 1000.",
        default: "1000",
        kind: OptionKind::Int,
        ..BASE
    },
    OptionSpec {
        name: "chunk_size",
        help: "Size of the pieces of larger uploads, rounded up to a multiple of 256Ki.",
        default: "8Mi",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec {
        name: "upload_cutoff",
        help: "Larger files are sent in pieces.",
        default: "8Mi",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec { name: "encoding", help: "Characters to replace in names.", default: "InvalidUtf8", ..BASE },
    text("endpoint", "Address of the service, where it isn't https://www.googleapis.com."),
];

/// The options, read.
pub struct Config {
    /// The address of the service, without a slash at its end.
    pub endpoint: String,
    pub team_drive: String,
    /// The id of the remote's root, or `root`.
    pub start: String,
    /// That is the root of My Drive or of a shared drive.
    pub is_whole: bool,
    pub resource_key: String,
    pub shared_with_me: bool,
    pub use_trash: bool,
    /// As what documents are shown; none when they are left out.
    pub exports: Vec<&'static Format>,
    pub skip_gdocs: bool,
    pub starred_only: bool,
    pub trashed_only: bool,
    pub skip_shortcuts: bool,
    pub skip_dangling_shortcuts: bool,
    pub acknowledge_abuse: bool,
    pub stop_on_upload_limit: bool,
    pub keep_revision_forever: bool,
    pub list_chunk: u64,
    pub chunk_size: u64,
    pub chunk_size_chosen: bool,
    pub upload_cutoff: u64,
    pub encoding: Encoding,
    /// Tells accounts apart.
    pub who: String,
    pub identity: Option<Arc<ServiceAccount>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest may hold secrets.
        write!(f, "Config({})", self.endpoint)
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "open", message)
}

/// Address of the service.
pub fn endpoint(options: &BTreeMap<String, String>) -> Result<String> {
    let endpoint = match options.get("endpoint").map(|url| url.trim().trim_end_matches('/')) {
        None | Some("") => ENDPOINT,
        Some(url) => url,
    };
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(invalid(format!("endpoint = {endpoint:?}: write https://HOST")));
    }
    Ok(endpoint.to_owned())
}

impl Config {
    /// Reads the options.
    ///
    /// Errors: `Invalid`, naming the option that is wrong.
    pub fn read(request: &OpenRequest) -> Result<Config> {
        let option = |name: &str| request.options.get(name).map(|value| value.trim().to_owned()).unwrap_or_default();
        let is = |name: &str| option(name) == "true";
        let endpoint = endpoint(&request.options)?;
        let size = |name: &str| match option(name) {
            none if none.is_empty() => Ok(CHUNK),
            text => match parse_size(&text) {
                Ok(Size::Bytes(size)) => Ok(size),
                _ => Err(invalid(format!("{name} = {text:?}: use a size such as 8Mi"))),
            },
        };
        let list_chunk = match option("list_chunk") {
            none if none.is_empty() => 1000,
            text => text
                .parse()
                .ok()
                .filter(|n| (100..=1000).contains(n))
                .ok_or_else(|| invalid(format!("list_chunk = {text:?}: use a number from 100 to 1000")))?,
        };
        let id = |name: &str| {
            let id = option(name);
            let fits = id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            if fits { Ok(id) } else { Err(invalid(format!("{name} = {id:?}: this is no id of Google Drive's"))) }
        };
        let (team_drive, root) = (id("team_drive")?, id("root_folder_id")?);
        let is_whole = root.is_empty();
        let start = [root, team_drive.clone()].into_iter().find(|id| !id.is_empty()).unwrap_or_else(|| "root".into());
        let scope = scopes(&option("scope"));
        let subject = Some(option("impersonate")).filter(|subject| !subject.is_empty());
        let (credentials, path) = (option("service_account_credentials"), option("service_account_file"));
        let identity = if !credentials.is_empty() {
            Some(ServiceAccount::from_file(&credentials, &scope, subject.clone())?)
        } else if !path.is_empty() {
            Some(google::account_of_file(&path, &scope, subject.clone())?)
        } else if is("env_auth") {
            Some(google::account_of_environment(&scope, subject.clone())?)
        } else {
            None
        };
        let email = identity.as_ref().and_then(|identity| identity.email().map(str::to_owned));
        if !option("import_formats").is_empty() {
            let message = "import_formats: haul makes no documents of Google's out of files; leave it out, and files are stored as they are";
            return Err(Error::new(ErrorKind::Unsupported, "open", message));
        }
        let exports = match request.options.get("export_formats") {
            _ if is("skip_gdocs") => Vec::new(),
            typed => formats(typed.map_or(EXPORTS, String::as_str))?,
        };
        let encoding = request.options.get("encoding").map_or("InvalidUtf8", String::as_str);
        Ok(Config {
            endpoint,
            team_drive,
            start,
            is_whole,
            resource_key: id("resource_key")?,
            shared_with_me: is("shared_with_me"),
            use_trash: option("use_trash") != "false",
            exports,
            skip_gdocs: is("skip_gdocs"),
            starred_only: is("starred_only"),
            trashed_only: is("trashed_only"),
            skip_shortcuts: is("skip_shortcuts"),
            skip_dangling_shortcuts: is("skip_dangling_shortcuts"),
            acknowledge_abuse: is("acknowledge_abuse"),
            stop_on_upload_limit: is("stop_on_upload_limit"),
            keep_revision_forever: is("keep_revision_forever"),
            list_chunk,
            chunk_size: size("chunk_size")?.max(1).next_multiple_of(google::GRANULE),
            chunk_size_chosen: !option("chunk_size").is_empty(),
            upload_cutoff: size("upload_cutoff")?.max(google::GRANULE),
            encoding: Encoding::parse(encoding)?,
            who: subject.or(email).unwrap_or_else(|| request.remote.clone()),
            identity: identity.map(Arc::new),
        })
    }

    /// Host and port of the service.
    pub fn host(&self) -> String {
        self.endpoint.split('/').nth(2).unwrap_or_default().to_owned()
    }
}
