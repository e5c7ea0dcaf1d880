//! The options of a section `type = box`. Names and meanings are rclone's, but for `hard_delete` and `endpoint`.

use haul_core::{
    Error, ErrorKind, Result,
    encoding::Encoding,
    units::{Size, parse_size},
};
use haul_oauth::{App, Login, Provider, Revoke, ServiceAccount, Tokens, text_of};
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The service takes no smaller file in parts.
pub const LEAST: u64 = 20_000_000;
/// Largest upload in one request.
pub const SINGLE: u64 = 50 << 20;
const ENCODING: &str = "Slash,BackSlash,Del,Ctl,RightSpace,InvalidUtf8,Dot";
const TOKEN_URL: &str = "https://api.box.com/oauth2/token";
/// A claim is good for a minute at most.
const CLAIM_LASTS: i64 = 45;

/// The log-in of a person.
pub static PROVIDER: Provider = Provider {
    kind: "box",
    title: "Box",
    auth_url: "https://account.box.com/api/oauth2/authorize",
    token_url: TOKEN_URL,
    scopes: &[],
    adapt: None,
    extra: &[],
    redirect: "http://127.0.0.1:53682/",
    shows_code: false,
    device_url: "",
    pkce: false,
    rotates: true,
    revoke: Revoke::FormOfClient("https://api.box.com/oauth2/revoke"),
    further: None,
    own_id: "at app.box.com/developers/console",
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

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &[
    haul_oauth::OPTIONS[0],
    haul_oauth::OPTIONS[1],
    haul_oauth::OPTIONS[2],
    haul_oauth::OPTIONS[3],
    haul_oauth::OPTIONS[4],
    haul_oauth::OPTIONS[5],
    OptionSpec { name: "root_folder_id", help: "Id of the folder that is the root.", default: "0", ..BASE },
    OptionSpec {
        name: "box_config_file",
        help: "File that Box issues for an application with its own key (JWT); ~/ is the home directory.",
        advanced: false,
        ..BASE
    },
    OptionSpec { name: "config_credentials", help: "The contents of such a file.", secret: true, ..BASE },
    OptionSpec {
        name: "access_token",
        help: "A token to use as it is, without renewing it.",
        advanced: false,
        secret: true,
        ..BASE
    },
    OptionSpec {
        name: "box_sub_type",
        help: "Whom such an application acts for.",
        default: "user",
        advanced: false,
        examples: &[("user", "A user"), ("enterprise", "A service account")],
        ..BASE
    },
    OptionSpec {
        name: "box_subject_id",
        help: "With client_credentials: the id of the enterprise or user that the application acts for (box_sub_type).",
        ..BASE
    },
    OptionSpec {
        name: "upload_cutoff",
        help: "Upload larger files in parts, several at once. From 20M, Box's minimum for parts, to 50Mi, its maximum for one request.",
        default: "50Mi",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec {
        name: "commit_retries",
        help: "How many times to ask Box whether it has assembled the parts of a file.",
        default: "100",
        kind: OptionKind::Int,
        ..BASE
    },
    OptionSpec {
        name: "list_chunk",
        help: "Items per page of a listing, at most 1000.",
        default: "1000",
        kind: OptionKind::Int,
        ..BASE
    },
    OptionSpec { name: "owned_by", help: "List only items owned by the person with this e-mail address.", ..BASE },
    OptionSpec { name: "impersonate", help: "Act as the user with this id, if the application is allowed to.", ..BASE },
    OptionSpec {
        name: "hard_delete",
        help: "Delete permanently instead of moving to the trash.",
        default: "false",
        kind: OptionKind::Bool,
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
    /// `https://api.box.com/2.0`.
    pub api: String,
    /// `https://upload.box.com/api/2.0`.
    pub upload: String,
    pub root_folder_id: String,
    pub upload_cutoff: u64,
    pub commit_retries: u64,
    pub list_chunk: u64,
    pub owned_by: String,
    pub impersonate: String,
    pub hard_delete: bool,
    pub encoding: Encoding,
}

/// The file of an application with a key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    box_app_settings: Settings,
    #[serde(default, rename = "enterpriseID")]
    enterprise_id: String,
    #[serde(default, rename = "userID")]
    user_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    #[serde(rename = "clientID")]
    client_id: String,
    client_secret: String,
    app_auth: Auth,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Auth {
    #[serde(rename = "publicKeyID")]
    public_key_id: String,
    private_key: String,
    #[serde(default)]
    passphrase: String,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "open", message)
}

fn of(request: &OpenRequest, name: &str) -> String {
    request.options.get(name).map(|value| value.trim().to_owned()).unwrap_or_default()
}

impl Config {
    /// Reads the options.
    ///
    /// Errors: `Invalid`, naming the option that is wrong.
    pub fn read(request: &OpenRequest) -> Result<Config> {
        let option = |name: &str| of(request, name);
        let or = |name: &str, default: &str| Some(option(name)).filter(|v| !v.is_empty()).unwrap_or(default.to_owned());
        let upload_cutoff = match &*option("upload_cutoff") {
            "" => SINGLE,
            typed => match parse_size(typed) {
                Ok(Size::Bytes(size)) if size >= LEAST => size.min(SINGLE),
                _ => return Err(invalid(format!("upload_cutoff = {typed:?}: use a size from 20M to 50Mi"))),
            },
        };
        let number = |name: &str, default: &str, most: u64| {
            let typed = or(name, default);
            let number = typed.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| invalid(format!("{name} = {typed:?}: use a number from 1 to {most}")))
        };
        let id = or("root_folder_id", "0");
        if !id.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid(format!("root_folder_id = {id:?}: an id is a number, the last of a folder's address")));
        }
        let endpoint = option("endpoint").trim_end_matches('/').to_owned();
        if !endpoint.is_empty() && !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(invalid(format!("endpoint = {endpoint:?}: write https://HOST")));
        }
        let host = |own: &str| if endpoint.is_empty() { own.to_owned() } else { endpoint.clone() };
        Ok(Config {
            api: format!("{}/2.0", host("https://api.box.com")),
            upload: format!("{}/api/2.0", host("https://upload.box.com")),
            root_folder_id: id,
            upload_cutoff,
            commit_retries: number("commit_retries", "100", 100_000)?,
            list_chunk: number("list_chunk", "1000", 1000)?,
            owned_by: option("owned_by"),
            impersonate: option("impersonate"),
            hard_delete: option("hard_delete") == "true",
            encoding: Encoding::parse(&or("encoding", ENCODING))?,
        })
    }

    /// Host and port of the service.
    pub fn host(&self) -> String {
        self.api.split('/').nth(2).unwrap_or_default().to_owned()
    }

    /// The credentials.
    ///
    /// Errors: `Invalid` for a file that isn't an application's; those of [`Login::open`].
    pub fn tokens(&self, request: &OpenRequest) -> Result<Arc<dyn Tokens>> {
        let given = of(request, "access_token");
        if !given.is_empty() {
            return Ok(Arc::new(ServiceAccount::with_token(&given).at(PROVIDER.title)));
        }
        if of(request, "client_credentials") == "true" {
            return by_client(request);
        }
        let (path, text) = (of(request, "box_config_file"), of(request, "config_credentials"));
        let text = match (text.is_empty(), path.is_empty()) {
            (false, _) => text,
            (true, false) => text_of(&path, "the application's file")?,
            (true, true) => return Ok(Login::open(&PROVIDER, request)?),
        };
        let (kind, token_url) = (subject(request, "user")?, token_url(request));
        // All stores of one application have one token.
        let name = format!("box application\n{kind}\n{token_url}\n{text}");
        Ok(request.shared.get(&name, || ServiceAccount::of_app(app(&text, &kind, token_url)?))?)
    }
}

/// For whom an application acts.
fn subject(request: &OpenRequest, default: &str) -> Result<String> {
    match &*of(request, "box_sub_type") {
        "" => Ok(default.to_owned()),
        kind if kind == "user" || kind == "enterprise" => Ok(kind.to_owned()),
        typed => Err(invalid(format!("box_sub_type = {typed:?}: use user or enterprise"))),
    }
}

fn token_url(request: &OpenRequest) -> String {
    Some(of(request, "token_url")).filter(|url| !url.is_empty()).unwrap_or(TOKEN_URL.to_owned())
}

/// An application by its id and secret alone, for a service account or a user.
fn by_client(request: &OpenRequest) -> Result<Arc<dyn Tokens>> {
    let [id, secret, subject_id] = ["client_id", "client_secret", "box_subject_id"].map(|name| of(request, name));
    for (name, value) in [("client_id", &id), ("client_secret", &secret), ("box_subject_id", &subject_id)] {
        if value.is_empty() {
            return Err(invalid(format!("client_credentials: {name} must be set, too")));
        }
    }
    let (kind, token_url) = (subject(request, "enterprise")?, token_url(request));
    let form = vec![
        ("grant_type", "client_credentials".to_owned()),
        ("client_id", id),
        ("client_secret", secret),
        ("box_subject_type", kind),
        ("box_subject_id", subject_id),
    ];
    let name = format!("box client\n{token_url}\n{form:?}");
    Ok(request.shared.get(&name, || Ok(ServiceAccount::of_client(PROVIDER.title, token_url, form)))?)
}

fn app(text: &str, kind: &str, token_url: String) -> Result<App> {
    let broken = |_| invalid("box_config_file isn't the JSON that Box gives out for an application with a key");
    let File { box_app_settings: settings, enterprise_id, user_id } = serde_json::from_str(text).map_err(broken)?;
    let subject = if kind == "user" && !user_id.is_empty() { user_id } else { enterprise_id };
    let claims = json!({ "iss": settings.client_id, "sub": subject, "box_sub_type": kind, "aud": TOKEN_URL });
    Ok(App {
        service: PROVIDER.title,
        token_url,
        claims,
        lasts: CLAIM_LASTS,
        key_id: settings.app_auth.public_key_id,
        key: settings.app_auth.private_key,
        passphrase: settings.app_auth.passphrase,
        client_id: settings.client_id,
        client_secret: settings.client_secret,
    })
}
