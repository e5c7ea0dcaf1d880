//! The options of a section `type = google cloud storage`. Names and meanings are rclone's.

use haul_core::{
    Error, ErrorKind, Result,
    encoding::Encoding,
    units::{Size, parse_size},
};
use haul_oauth::{Login, Provider, Revoke, ServiceAccount, Tokens, google};
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use std::sync::Arc;

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// The log-in of a person.
pub static PROVIDER: Provider = Provider {
    kind: "gcs",
    title: "Google",
    auth_url: "https://accounts.google.com/o/oauth2/auth",
    token_url: "https://oauth2.googleapis.com/token",
    scopes: &[SCOPE],
    adapt: None,
    extra: &[("access_type", "offline"), ("prompt", "consent")],
    redirect: "http://127.0.0.1:53682/",
    shows_code: false,
    device_url: "",
    pkce: true,
    rotates: false,
    revoke: Revoke::Form(google::REVOKE),
    further: None,
    own_id: "at console.cloud.google.com, as a desktop application",
};

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
        advanced: false,
        ..text("project_number", "Number or id of the project, to list and create buckets.")
    },
    text("user_project", "Project to charge for requests to requester-pays buckets."),
    OptionSpec {
        advanced: false,
        ..text("service_account_file", "File with the key of a service account, as issued by Google.")
    },
    OptionSpec { secret: true, ..text("service_account_credentials", "The contents of such a file.") },
    OptionSpec {
        secret: true,
        ..text("access_token", "An access token, which is never renewed (gcloud auth print-access-token).")
    },
    OptionSpec { advanced: false, ..flag("anonymous", "Read public buckets without logging in.") },
    OptionSpec {
        advanced: false,
        ..flag(
            "env_auth",
            "Log in as Google's own tools would here: by GOOGLE_APPLICATION_CREDENTIALS, by what gcloud auth application-default login wrote, else by the machine's service account.",
        )
    },
    OptionSpec {
        name: "object_acl",
        help: "Who may read uploaded objects, unless the bucket decides it. Unset: the bucket's default.",
        examples: &[
            ("private", "Only the owner"),
            ("publicRead", "Everybody"),
            ("authenticatedRead", "Everybody with a Google account"),
            ("bucketOwnerFullControl", "The owner and the bucket's owner"),
        ],
        ..BASE
    },
    flag("bucket_policy_only", "Only buckets decide who may read: object_acl isn't sent."),
    text("location", "Where new buckets are created: a region such as europe-west4, or EU."),
    text(
        "storage_class",
        "Storage class of uploaded objects: STANDARD, NEARLINE, COLDLINE, ARCHIVE. Unset: the bucket's.",
    ),
    flag("no_check_bucket", "Never create a bucket before writing."),
    flag("directory_markers", "Store empty directories as empty objects whose names end with /."),
    OptionSpec {
        name: "chunk_size",
        help: "Size of the parts of larger uploads, rounded up to a multiple of 256Ki. Smaller files are sent by one request. Parts of less than 5Mi are sent one after the other.",
        default: "16Mi",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec {
        default: "Raw",
        ..text(
            "encoding",
            "Characters to replace in names, by rclone's names for them; rclone's own choice is Slash,CrLf,InvalidUtf8,Dot. Raw: names stay as they are. With any other value a bucket is listed directory by directory.",
        )
    },
    text("endpoint", "Address of the service, where it isn't https://storage.googleapis.com."),
];

/// The options, read.
pub struct Config {
    /// The address of the service, without a slash at its end.
    pub endpoint: String,
    pub project: String,
    pub user_project: String,
    pub object_acl: String,
    pub location: String,
    pub storage_class: String,
    pub no_check_bucket: bool,
    pub directory_markers: bool,
    pub chunk_size: u64,
    pub chunk_size_chosen: bool,
    /// None where names stay as they are.
    pub encoding: Option<Encoding>,
    /// Tells accounts apart.
    pub who: String,
    identity: Option<Arc<ServiceAccount>>,
    anonymous: bool,
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

impl Config {
    /// Reads the options.
    ///
    /// Errors: `Invalid`, naming the option that is wrong.
    pub fn read(request: &OpenRequest) -> Result<Config> {
        let option = |name: &str| request.options.get(name).map(|value| value.trim().to_owned()).unwrap_or_default();
        let is = |name: &str| option(name) == "true";
        let endpoint = match option("endpoint") {
            none if none.is_empty() => "https://storage.googleapis.com".to_owned(),
            // As rclone has it, with the path of the interface.
            url => url.trim_end_matches('/').trim_end_matches("/storage/v1").to_owned(),
        };
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(invalid(format!("endpoint = {endpoint:?}: write https://HOST")));
        }
        let chunk_size = match option("chunk_size") {
            none if none.is_empty() => 16 << 20,
            text => match parse_size(&text) {
                Ok(Size::Bytes(size)) if size > 0 => size.next_multiple_of(google::GRANULE),
                _ => return Err(invalid(format!("chunk_size = {text:?}: use a size such as 16Mi"))),
            },
        };
        let anonymous = is("anonymous");
        let (credentials, path, given) =
            (option("service_account_credentials"), option("service_account_file"), option("access_token"));
        // In rclone's order; without anything else Google's own ways are tried.
        let identity = if anonymous {
            None
        } else if !credentials.is_empty() {
            Some(ServiceAccount::from_file(&credentials, SCOPE, None)?)
        } else if !path.is_empty() {
            Some(google::account_of_file(&path, SCOPE, None)?)
        } else if is("env_auth") {
            Some(google::account_of_environment(SCOPE, None)?)
        } else if !given.is_empty() {
            Some(ServiceAccount::with_token(&given))
        } else if option("token").is_empty() {
            Some(google::account_of_environment(SCOPE, None)?)
        } else {
            None
        };
        let email = identity.as_ref().and_then(|identity| identity.email().map(str::to_owned));
        Ok(Config {
            endpoint,
            project: option("project_number"),
            user_project: option("user_project"),
            object_acl: if is("bucket_policy_only") { String::new() } else { option("object_acl") },
            location: option("location"),
            storage_class: option("storage_class"),
            no_check_bucket: is("no_check_bucket"),
            directory_markers: is("directory_markers"),
            chunk_size,
            chunk_size_chosen: !option("chunk_size").is_empty(),
            encoding: Encoding::chosen(&option("encoding"))?,
            who: email.unwrap_or_else(|| request.remote.clone()),
            identity: identity.map(Arc::new),
            anonymous,
        })
    }

    /// Host and port of the service.
    pub fn host(&self) -> String {
        self.endpoint.split('/').nth(2).unwrap_or_default().to_owned()
    }

    /// The source of tokens; none for anonymous access.
    pub fn tokens(&self, request: &OpenRequest) -> Result<Option<Arc<dyn Tokens>>> {
        if self.anonymous {
            return Ok(None);
        }
        match &self.identity {
            Some(identity) => Ok(Some(identity.clone())),
            None => Ok(Some(Login::open(&PROVIDER, request)?)),
        }
    }
}
