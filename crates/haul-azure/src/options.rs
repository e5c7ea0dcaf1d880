//! The options of a section `type = azureblob`. Names and meanings are rclone's.

use crate::{certificate::Certificate, token::Identity};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use haul_core::{
    Error, ErrorKind, Result,
    encoding::Encoding,
    units::{Size, parse_size},
};
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use serde::Deserialize;
use std::sync::Arc;
use url::Url;

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[],
};

const fn basic(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, advanced: false, ..BASE }
}

const fn flag(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default: "false", kind: OptionKind::Bool, ..BASE }
}

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &[
    basic("account", "Name of the storage account. Without a key and a SAS URL only public containers can be read."),
    OptionSpec { secret: true, ..basic("key", "The account's key (Shared Key).") },
    OptionSpec {
        secret: true,
        ..basic("sas_url", "URL with a shared access signature, of the account or of one container.")
    },
    OptionSpec {
        secret: true,
        ..basic("connection_string", "The account's connection string, instead of account, key, endpoint and sas_url.")
    },
    flag(
        "env_auth",
        "Log in as Azure's own tools would here: by AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, AZURE_CLIENT_CERTIFICATE_PATH or AZURE_FEDERATED_TOKEN_FILE, else by the machine's identity.",
    ),
    basic("tenant", "Tenant of the service principal."),
    basic("client_id", "Client id of the service principal."),
    OptionSpec { secret: true, ..basic("client_secret", "Secret of the service principal.") },
    basic(
        "client_certificate_path",
        "PEM file with the service principal's certificate and its private key, instead of a secret.",
    ),
    OptionSpec {
        secret: true,
        kind: OptionKind::Obscured,
        ..basic("client_certificate_password", "Password of the certificate's private key, where it has one.")
    },
    flag(
        "client_send_certificate_chain",
        "Also send the certificate chain, for a certificate that is trusted by its issuer.",
    ),
    OptionSpec {
        name: "service_principal_file",
        help: "File with tenant, id and secret of the service principal, as az ad sp create-for-rbac writes it.",
        ..BASE
    },
    flag("use_msi", "Log in by the identity of the machine (managed identity)."),
    OptionSpec { name: "msi_object_id", help: "Object id of the machine's identity, where it has several.", ..BASE },
    OptionSpec { name: "msi_client_id", help: "Client id of the machine's identity, where it has several.", ..BASE },
    OptionSpec { name: "msi_mi_res_id", help: "Resource id of the machine's identity, where it has several.", ..BASE },
    flag("use_az", "Use the login of Azure's command line: az must be installed."),
    OptionSpec { advanced: true, ..flag("use_emulator", "Use Azurite on this machine, with its own account and key.") },
    OptionSpec {
        name: "endpoint",
        help: "Address of the service, where it isn't https://ACCOUNT.blob.core.windows.net.",
        ..BASE
    },
    OptionSpec {
        name: "encoding",
        help: "Characters to replace in names, by rclone's names for them; rclone's own choice is Slash,BackSlash,Del,Ctl,RightPeriod,InvalidUtf8. Raw: names stay as they are. With any other value a container is listed directory by directory.",
        default: "Raw",
        ..BASE
    },
    OptionSpec {
        name: "chunk_size",
        help: "Size of the blocks of larger uploads, at most 4000Mi. Smaller files are sent by one request.",
        default: "8Mi",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec {
        name: "copy_cutoff",
        help: "Copy larger blobs inside the account in parts, at most 4000Mi. Others are copied by one request.",
        default: "256Mi",
        kind: OptionKind::Size,
        ..BASE
    },
    OptionSpec {
        name: "list_chunk",
        help: "Blobs per listing request, at most 5000.",
        default: "5000",
        kind: OptionKind::Int,
        ..BASE
    },
    OptionSpec {
        name: "access_tier",
        help: "Access tier of uploaded blobs. Unset: the account's.",
        examples: &[
            ("Hot", "For frequently used data"),
            ("Cool", "For data kept for 30 days or longer"),
            ("Cold", "For data kept for 90 days or longer"),
            ("Archive", "Must be rehydrated before it can be read"),
        ],
        ..BASE
    },
    flag("no_check_container", "Never create a container, nor look for it, before writing."),
    OptionSpec {
        name: "delete_snapshots",
        help: "What to do with the snapshots of a blob that is deleted. Unset: such a blob isn't deleted.",
        examples: &[("include", "Delete them with it"), ("only", "Delete only the snapshots")],
        ..BASE
    },
];

/// Azurite's account, …
const EMULATOR: &str = "devstoreaccount1";
/// … its key, which is no secret, …
const EMULATOR_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// … and its address.
const EMULATOR_URL: &str = "http://127.0.0.1:10000/devstoreaccount1";
/// The service's limits: bytes of a block …
pub const LARGEST: u64 = 4000 << 20;
/// … and blocks of a blob.
pub const BLOCKS: u64 = 50_000;

/// Credentials of requests.
#[derive(Clone)]
pub enum Auth {
    /// The account's key.
    Key(Vec<u8>),
    /// The query of a URL with a signature, without `?`.
    Sas(String),
    /// By a token.
    Token(Identity),
    /// Not at all.
    Anonymous,
}

/// The options, read.
pub struct Config {
    pub account: String,
    pub auth: Auth,
    /// Without a slash at its end.
    pub endpoint: Url,
    /// For a signature limited to one container, its name.
    pub container: Option<String>,
    pub chunk_size: u64,
    pub chunk_size_chosen: bool,
    /// A larger blob is copied in parts.
    pub copy_cutoff: u64,
    pub list_chunk: usize,
    /// None where names stay as they are.
    pub encoding: Option<Encoding>,
    pub access_tier: String,
    pub no_check_container: bool,
    /// It is Azurite.
    pub emulator: bool,
    pub delete_snapshots: String,
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
        let mut given = AccountOptions {
            account: option("account"),
            key: option("key"),
            endpoint: option("endpoint"),
            sas: String::new(),
            container: None,
            emulator: false,
        };
        let identity = identity(&option, &is)?;
        // In rclone's order.
        if is("env_auth") {
            given.key.clear();
        } else if is("use_emulator") {
            given.emulate();
        } else if given.key.is_empty() {
            match (option("sas_url"), option("connection_string")) {
                (sas, _) if !sas.is_empty() => given.sas_url(&sas)?,
                (_, connection) if !connection.is_empty() => given.connection(&connection)?,
                _ => {}
            }
        }
        let (account, endpoint, container) = (given.account()?, given.endpoint()?, given.container.clone());
        let size = |name: &str, default: &str, max: u64| match option(name) {
            text if text.is_empty() => read_size(name, default, max),
            text => read_size(name, &text, max),
        };
        let list_chunk = match option("list_chunk") {
            text if text.is_empty() => 5000,
            text => text
                .parse()
                .ok()
                .filter(|n| (1..=5000).contains(n))
                .ok_or_else(|| invalid(format!("list_chunk = {text:?}: use a whole number from 1 to 5000")))?,
        };
        let delete_snapshots = option("delete_snapshots");
        if !matches!(&*delete_snapshots, "" | "include" | "only") {
            return Err(invalid(format!(
                "delete_snapshots = {delete_snapshots:?}: use include or only, or leave it unset"
            )));
        }
        Ok(Config {
            auth: match (given.auth()?, identity) {
                (Auth::Anonymous, Some(identity)) => Auth::Token(identity),
                (auth, _) => auth,
            },
            account,
            endpoint,
            container,
            chunk_size: size("chunk_size", "8Mi", LARGEST)?,
            copy_cutoff: size("copy_cutoff", "256Mi", LARGEST)?,
            chunk_size_chosen: !option("chunk_size").is_empty(),
            list_chunk,
            encoding: Encoding::chosen(&option("encoding"))?,
            access_tier: option("access_tier"),
            no_check_container: is("no_check_container"),
            emulator: given.emulator,
            delete_snapshots,
        })
    }
}

/// Output of `az ad sp create-for-rbac`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServicePrincipal {
    app_id: String,
    password: String,
    tenant: String,
}

/// The service principal that the options name.
fn principal(option: &dyn Fn(&str) -> String, is: &dyn Fn(&str) -> bool) -> Result<Option<Identity>> {
    let (tenant, client_id, secret) = (option("tenant"), option("client_id"), option("client_secret"));
    let (certificate, file) = (option("client_certificate_path"), option("service_principal_file"));
    let given = [&tenant, &client_id, &secret, &certificate].map(|value| !value.is_empty());
    match given {
        [true, true, true, false] => Ok(Some(Identity::Principal { tenant, client_id, secret })),
        [true, true, false, true] => {
            let (password, shown) = (option("client_certificate_password"), is("client_send_certificate_chain"));
            let certificate = Arc::new(Certificate::read(&certificate, &password, shown)?);
            Ok(Some(Identity::Certified { tenant, client_id, certificate }))
        }
        [false, false, false, false] if file.is_empty() => Ok(None),
        [false, false, false, false] => {
            let text = haul_oauth::text_of(&file, "service_principal_file")?;
            let written: ServicePrincipal = serde_json::from_str(&text).map_err(|_| {
                invalid(format!("service_principal_file {file}: it has no appId, password and tenant in JSON"))
            })?;
            let ServicePrincipal { app_id, password, tenant } = written;
            Ok(Some(Identity::Principal { tenant, client_id: app_id, secret: password }))
        }
        _ => Err(invalid(
            "set tenant and client_id with either client_secret or client_certificate_path, or none of them",
        )),
    }
}

/// Whose token is wanted, if one is.
fn identity(option: &dyn Fn(&str) -> String, is: &dyn Fn(&str) -> bool) -> Result<Option<Identity>> {
    if is("env_auth") {
        return Identity::of_environment().map(Some);
    }
    if let Some(identity) = principal(option, is)? {
        return Ok(Some(identity));
    }
    let names = [("msi_object_id", "object_id"), ("msi_client_id", "client_id"), ("msi_mi_res_id", "msi_res_id")];
    let mut which = names
        .map(|(name, theirs)| Some((theirs, option(name))).filter(|(_, value)| !value.is_empty()))
        .into_iter()
        .flatten();
    match (is("use_msi"), which.next(), which.next()) {
        (_, Some(_), Some(_)) => Err(invalid("set only one of msi_object_id, msi_client_id and msi_mi_res_id")),
        (true, first, _) => Ok(Some(Identity::Machine(first))),
        _ => Ok(is("use_az").then_some(Identity::CommandLine)),
    }
}

fn read_size(name: &str, text: &str, max: u64) -> Result<u64> {
    match parse_size(text) {
        Ok(Size::Bytes(size)) if (1..=max).contains(&size) => Ok(size),
        _ => Err(invalid(format!("{name} = {text:?}: use a size up to {}Mi", max >> 20))),
    }
}

/// Account, key and address as the options give them.
struct AccountOptions {
    account: String,
    key: String,
    endpoint: String,
    sas: String,
    container: Option<String>,
    emulator: bool,
}

impl AccountOptions {
    fn emulate(&mut self) {
        self.emulator = true;
        for (value, default) in
            [(&mut self.account, EMULATOR), (&mut self.key, EMULATOR_KEY), (&mut self.endpoint, EMULATOR_URL)]
        {
            if value.is_empty() {
                default.clone_into(value);
            }
        }
    }

    fn sas_url(&mut self, text: &str) -> Result<()> {
        let bad =
            || invalid("sas_url isn't a URL with a signature: copy it as the portal shows it, with all behind the ?");
        let mut url = Url::parse(text).map_err(|_| bad())?;
        self.sas = url.query().filter(|query| query.contains("sig=")).ok_or_else(bad)?.to_owned();
        url.set_query(None);
        // Limited to one container, if its path has one component more than the account's.
        let in_path = !url.host_str().is_some_and(|host| host.contains(".blob."));
        let parts: Vec<&str> = url.path().split('/').filter(|part| !part.is_empty()).collect();
        let (above, container) = match (in_path, &parts[..]) {
            (false, [container]) => (String::new(), Some((*container).to_owned())),
            (true, [account, container]) => (format!("/{account}"), Some((*container).to_owned())),
            (true, [account]) => (format!("/{account}"), None),
            (false, []) => (String::new(), None),
            _ => return Err(bad()),
        };
        url.set_path(&above);
        (self.endpoint, self.container) = (url.to_string(), container);
        Ok(())
    }

    fn connection(&mut self, text: &str) -> Result<()> {
        let mut fields = text.split(';').filter_map(|field| field.trim().split_once('='));
        let get = |name: &str| {
            fields.clone().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        if get("UseDevelopmentStorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            self.emulate();
            return Ok(());
        }
        self.account = get("AccountName").unwrap_or_default();
        self.key = get("AccountKey").unwrap_or_default();
        self.sas = get("SharedAccessSignature").map(|sas| sas.trim_start_matches('?').to_owned()).unwrap_or_default();
        self.endpoint = get("BlobEndpoint").unwrap_or_else(|| {
            let scheme = get("DefaultEndpointsProtocol").unwrap_or_else(|| "https".into());
            let suffix = get("EndpointSuffix").unwrap_or_else(|| "core.windows.net".into());
            format!("{scheme}://{}.blob.{suffix}", self.account)
        });
        match fields.next() {
            Some(_) => Ok(()),
            None => Err(invalid("connection_string: write AccountName=NAME;AccountKey=KEY, as the portal shows it")),
        }
    }

    fn account(&mut self) -> Result<String> {
        if self.account.is_empty() {
            // The first part of the host, or of the path.
            let url = Url::parse(&self.endpoint).ok();
            let host =
                url.as_ref().and_then(Url::host_str).and_then(|host| Some(host.split_once(".blob.")?.0.to_owned()));
            let path = || url.as_ref().map(|url| url.path().trim_matches('/').to_owned());
            self.account = host.or_else(path).unwrap_or_default();
        }
        match self.account.is_empty() {
            false => Ok(self.account.clone()),
            true => {
                Err(invalid("no account is set: set account and key, sas_url or connection_string with haul config"))
            }
        }
    }

    fn endpoint(&self) -> Result<Url> {
        let text = match &*self.endpoint {
            "" => format!("https://{}.blob.core.windows.net", self.account),
            text if text.contains("://") => text.to_owned(),
            suffix => format!("https://{}.{suffix}", self.account),
        };
        let url = Url::parse(text.trim_end_matches('/')).ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| invalid(format!("endpoint {text:?} isn't an address: write https://HOST")))
    }

    fn auth(&self) -> Result<Auth> {
        Ok(match (&*self.key, &*self.sas) {
            ("", "") => Auth::Anonymous,
            ("", sas) => Auth::Sas(sas.to_owned()),
            (key, _) => {
                Auth::Key(B64.decode(key).map_err(|_| invalid("key: not base64: copy it as the portal shows it"))?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read(options: &[(&str, &str)]) -> Result<Config> {
        Config::read(&OpenRequest {
            remote: "r".into(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..OpenRequest::default()
        })
    }

    fn place(options: &[(&str, &str)]) -> (String, String, Option<String>, &'static str) {
        let config = read(options).unwrap();
        let auth = match config.auth {
            Auth::Key(_) => "key",
            Auth::Sas(_) => "sas",
            Auth::Token(Identity::Principal { .. } | Identity::Certified { .. }) => "principal",
            Auth::Token(Identity::Workload { .. }) => "workload",
            Auth::Token(Identity::Machine(_)) => "machine",
            Auth::Token(Identity::CommandLine) => "az",
            Auth::Anonymous => "",
        };
        (config.account, config.endpoint.to_string(), config.container, auth)
    }

    #[test]
    fn who_and_where() {
        let acct = |url: &str, auth| ("a".to_owned(), url.to_owned(), None, auth);
        assert_eq!(place(&[("account", "a"), ("key", "aaaa")]), acct("https://a.blob.core.windows.net/", "key"));
        assert_eq!(place(&[("account", "a")]), acct("https://a.blob.core.windows.net/", ""));
        assert_eq!(place(&[("account", "a"), ("endpoint", "blob.core.cn")]), acct("https://a.blob.core.cn/", ""));
        let sas = "https://a.blob.core.windows.net/?sv=1&sig=x";
        assert_eq!(place(&[("sas_url", sas)]), acct("https://a.blob.core.windows.net/", "sas"));
        let sas = "https://a.blob.core.windows.net/box?sv=1&sig=x";
        assert_eq!(place(&[("sas_url", sas)]).2.as_deref(), Some("box"));
        let sas = place(&[("sas_url", "http://127.0.0.1:1/a/box?sig=x")]);
        assert_eq!(sas, ("a".into(), "http://127.0.0.1:1/a".into(), Some("box".into()), "sas"));
        let string = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=aaaa;EndpointSuffix=core.windows.net";
        assert_eq!(place(&[("connection_string", string)]), acct("https://a.blob.core.windows.net/", "key"));
        let string = "BlobEndpoint=http://127.0.0.1:1/a;SharedAccessSignature=sv=1&sig=x";
        assert_eq!(place(&[("connection_string", string)]), acct("http://127.0.0.1:1/a", "sas"));
        let principal = [("account", "a"), ("tenant", "t"), ("client_id", "c"), ("client_secret", "s")];
        assert_eq!(place(&principal), acct("https://a.blob.core.windows.net/", "principal"));
        assert_eq!(
            place(&[("account", "a"), ("use_msi", "true")]),
            acct("https://a.blob.core.windows.net/", "machine")
        );
        assert_eq!(place(&[("account", "a"), ("use_az", "true")]).3, "az");
        assert_eq!(place(&[("account", "a"), ("use_msi", "true"), ("key", "aaaa")]).3, "key");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(br#"{"appId": "c", "displayName": "x", "password": "s", "tenant": "t"}"#).unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(place(&[("account", "a"), ("service_principal_file", path)]).3, "principal");
        let emulator = place(&[("use_emulator", "true")]);
        assert_eq!((&*emulator.0, &*emulator.1, emulator.3), (EMULATOR, EMULATOR_URL, "key"));
    }

    #[test]
    fn bad_values_name_the_option() {
        for (options, message) in [
            (vec![], "open: no account is set: set account and key, sas_url or connection_string with haul config"),
            (vec![("account", "a"), ("key", "%")], "open: key: not base64: copy it as the portal shows it"),
            (
                vec![("account", "a"), ("tenant", "t")],
                "open: set tenant and client_id with either client_secret or client_certificate_path, or none of them",
            ),
            (
                vec![("account", "a"), ("chunk_size", "5000Mi")],
                "open: chunk_size = \"5000Mi\": use a size up to 4000Mi",
            ),
            (
                vec![("account", "a"), ("list_chunk", "0")],
                "open: list_chunk = \"0\": use a whole number from 1 to 5000",
            ),
            (
                vec![("sas_url", "https://a.blob.core.windows.net/")],
                "open: sas_url isn't a URL with a signature: copy it as the portal shows it, with all behind the ?",
            ),
        ] {
            assert_eq!(read(&options).unwrap_err().to_string(), message);
        }
    }
}
