//! The options of a section `type = onedrive`. Names and meanings are rclone's.

use haul_core::{
    Algo, Error, ErrorKind, Result,
    encoding::Encoding,
    units::{Size, parse_size},
};
use haul_oauth::Addresses;
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use std::collections::BTreeMap;

/// Upload sessions take multiples of this, but for the last bytes.
pub const GRANULE: u64 = 320 << 10;
/// The largest multiple of it that is below 60 MiB, which no request may reach.
pub const LARGEST: u64 = (60 << 20) / GRANULE * GRANULE - GRANULE;
pub const SCOPES: &str = "Files.Read Files.ReadWrite Files.Read.All Files.ReadWrite.All Sites.Read.All offline_access";
const ENCODING: &str = "Slash,LtGt,DoubleQuote,Colon,Question,Asterisk,Pipe,BackSlash,Del,Ctl,LeftSpace,LeftTilde,RightSpace,RightPeriod,InvalidUtf8,Dot";

/// Clouds of their own: name, Graph, log-in.
const REGIONS: [(&str, &str, &str); 4] = [
    ("global", "https://graph.microsoft.com", "https://login.microsoftonline.com"),
    ("us", "https://graph.microsoft.us", "https://login.microsoftonline.us"),
    ("de", "https://graph.microsoft.de", "https://login.microsoftonline.de"),
    ("cn", "https://microsoftgraph.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
];

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[],
};

const fn text(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, ..BASE }
}

const fn flag(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind: OptionKind::Bool, ..BASE }
}

const OWN: [OptionSpec; 22] = [
    OptionSpec {
        advanced: false,
        examples: &[
            ("global", "Microsoft Cloud Global"),
            ("us", "US Government"),
            ("de", "Germany, now deprecated"),
            ("cn", "China, operated by Vnet Group"),
        ],
        ..text("region", "global", "The cloud that the account is in.")
    },
    OptionSpec {
        advanced: false,
        ..text("tenant", "", "Id of the tenant (directory), for client_credentials or an application of one tenant.")
    },
    text(
        "tenant_url",
        "",
        "Address of the tenant's own service, https://TENANT.sharepoint.com/_api, instead of Graph.",
    ),
    text("drive_id", "", "Id of the drive. Empty for the one of the person who logged in."),
    OptionSpec {
        examples: &[("personal", "OneDrive"), ("business", "OneDrive for Business"), ("documentLibrary", "SharePoint")],
        ..text("drive_type", "", "What kind of drive it is.")
    },
    text("root_folder_id", "", "Id of the folder that is the root, instead of the drive's root."),
    text("access_scopes", SCOPES, "Scopes to request at login, separated by spaces."),
    flag("disable_site_permission", "false", "Don't ask for Sites.Read.All, which some administrators refuse."),
    OptionSpec {
        kind: OptionKind::Size,
        ..text(
            "chunk_size",
            "10Mi",
            "Bytes of each request of a large upload: a multiple of 320 KiB. The service takes less than 60 MiB at once.",
        )
    },
    OptionSpec {
        kind: OptionKind::Size,
        ..text(
            "upload_cutoff",
            "off",
            "Upload larger files in chunks. At most chunk_size, which is also used when this is off.",
        )
    },
    OptionSpec { kind: OptionKind::Int, ..text("list_chunk", "1000", "Items per page of a listing.") },
    flag(
        "delta",
        "true",
        "List the drive's root recursively by pages of the whole drive, instead of folder by folder.",
    ),
    flag("expose_onenote_files", "false", "List OneNote notebooks as files, which can't be read or written."),
    flag("no_versions", "false", "Delete the earlier versions of a file after writing it."),
    flag("hard_delete", "false", "Delete permanently instead of moving to the recycle bin. Not on personal drives."),
    flag("av_override", "false", "Also read files that the service considers infected."),
    OptionSpec {
        examples: &[("auto", "QuickXorHash"), ("quickxor", ""), ("sha1", ""), ("sha256", ""), ("none", "")],
        ..text("hash_type", "auto", "The hash by which files are compared.")
    },
    OptionSpec {
        examples: &[("anonymous", "Anybody"), ("organization", "Members of the organization")],
        ..text("link_scope", "anonymous", "Who can open links.")
    },
    OptionSpec {
        examples: &[("view", ""), ("edit", ""), ("embed", "")],
        ..text("link_type", "view", "What links allow.")
    },
    OptionSpec { secret: true, ..text("link_password", "", "A password for links. Personal drives only.") },
    text("encoding", ENCODING, "Characters to replace in names, by rclone's names for them."),
    text("description", "", "Description of the remote."),
];

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &ALL;

const ALL: [OptionSpec; OWN.len() + haul_oauth::OPTIONS.len()] = {
    let mut all = [BASE; OWN.len() + haul_oauth::OPTIONS.len()];
    let mut at = 0;
    while at < all.len() {
        let shared = haul_oauth::OPTIONS.len();
        all[at] = if at < shared { haul_oauth::OPTIONS[at] } else { OWN[at - shared] };
        at += 1;
    }
    all
};

fn of<'a>(options: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    options.get(name).map(|value| value.trim()).unwrap_or_default()
}

fn region(options: &BTreeMap<String, String>) -> Option<(&'static str, &'static str)> {
    let name = of(options, "region");
    let name = if name.is_empty() { "global" } else { name };
    REGIONS.iter().find(|(known, ..)| *known == name).map(|(_, graph, login)| (*graph, *login))
}

pub fn adapt(options: &BTreeMap<String, String>) -> Addresses {
    let (graph, login) = region(options).unwrap_or((REGIONS[0].1, REGIONS[0].2));
    let tenant = Some(of(options, "tenant")).filter(|tenant| !tenant.is_empty()).unwrap_or("common");
    let address = |last: &str| format!("{login}/{tenant}/oauth2/v2.0/{last}");
    let mut scope = Some(of(options, "access_scopes")).filter(|scopes| !scopes.is_empty()).unwrap_or(SCOPES).to_owned();
    if of(options, "disable_site_permission") == "true" {
        scope = scope.split_whitespace().filter(|scope| *scope != "Sites.Read.All").collect::<Vec<_>>().join(" ");
    }
    if of(options, "client_credentials") == "true" {
        scope = format!("{graph}/.default");
    }
    Addresses { auth_url: address("authorize"), token_url: address("token"), device_url: address("devicecode"), scope }
}

/// Settings of a config section.
#[derive(Debug)]
pub struct Config {
    /// `https://graph.microsoft.com/v1.0`.
    pub endpoint: String,
    /// The drive below it: `drives/ID`, or `me/drive`.
    pub drive: String,
    pub root_folder_id: String,
    pub is_personal: bool,
    /// Items have names only as children of a folder, not paths: so in China's cloud.
    pub by_child: bool,
    pub chunk_size: u64,
    pub chunk_size_chosen: bool,
    /// A file up to this size is sent in one request.
    pub single: u64,
    pub list_chunk: u64,
    pub delta: bool,
    pub onenote: bool,
    pub no_versions: bool,
    pub hard_delete: bool,
    pub av_override: bool,
    pub hash: Option<Algo>,
    pub link: [String; 3],
    pub encoding: Encoding,
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, "open", message))
}

/// Address of Graph, or of the tenant's own service.
pub fn endpoint(options: &BTreeMap<String, String>) -> Result<String> {
    let Some((graph, _)) = region(options) else {
        return invalid(format!("region = {:?}: use global, us, de or cn", of(options, "region")));
    };
    Ok(match of(options, "tenant_url") {
        "" => format!("{graph}/v1.0"),
        url => format!("{}/v2.0", url.trim_end_matches('/')),
    })
}

/// The drive of the logged-in user.
pub const MINE: &str = "me/drive";

impl Config {
    /// Errors: `Invalid`, naming the option that is wrong.
    pub fn read(request: &OpenRequest) -> Result<Config> {
        let options = &request.options;
        let option = |name: &str| of(options, name);
        let is = |name: &str| option(name) == "true";
        let endpoint = endpoint(options)?;
        let drive = match option("drive_id") {
            "" if is("client_credentials") => {
                return invalid("drive_id must be set with client_credentials: an application has no drive".into());
            }
            "" => MINE.into(),
            id => format!("drives/{}", haul_store::web::encoded(id.as_bytes())),
        };
        if !matches!(option("drive_type"), "" | "personal" | "business" | "documentLibrary") {
            let typed = option("drive_type");
            return invalid(format!("drive_type = {typed:?}: use personal, business or documentLibrary"));
        }
        let (chunk_size, chunk_size_chosen) = (chunk_size(option("chunk_size"))?, !option("chunk_size").is_empty());
        let single = match option("upload_cutoff") {
            "" | "off" => chunk_size,
            typed => match parse_size(typed) {
                Ok(Size::Bytes(size)) => size.min(chunk_size),
                _ => return invalid(format!("upload_cutoff = {typed:?}: use a size such as 4Mi, or off")),
            },
        };
        let list_chunk = match option("list_chunk") {
            "" => 1000,
            typed => match typed.parse() {
                Ok(number @ 1..=1000) => number,
                _ => return invalid(format!("list_chunk = {typed:?}: use a number from 1 to 1000")),
            },
        };
        let hash = match option("hash_type") {
            "" | "auto" | "quickxor" => Some(Algo::QuickXor),
            "sha1" => Some(Algo::Sha1),
            "sha256" => Some(Algo::Sha256),
            "none" => None,
            typed => return invalid(format!("hash_type = {typed:?}: use auto, quickxor, sha1, sha256 or none")),
        };
        let or = |name: &str, default: &str| Some(option(name)).filter(|v| !v.is_empty()).unwrap_or(default).to_owned();
        Ok(Config {
            endpoint,
            drive,
            root_folder_id: option("root_folder_id").to_owned(),
            is_personal: option("drive_type") == "personal",
            by_child: option("region") == "cn",
            chunk_size,
            chunk_size_chosen,
            single,
            list_chunk,
            delta: option("delta") != "false",
            onenote: is("expose_onenote_files"),
            no_versions: is("no_versions"),
            hard_delete: is("hard_delete"),
            av_override: is("av_override"),
            hash,
            link: [or("link_type", "view"), or("link_scope", "anonymous"), or("link_password", "")],
            encoding: Encoding::parse(&or("encoding", ENCODING))?,
        })
    }
}

fn chunk_size(typed: &str) -> Result<u64> {
    let size = match typed {
        "" => Ok(Size::Bytes(10 << 20)),
        typed => parse_size(typed),
    };
    match size {
        Ok(Size::Bytes(size)) if size >= GRANULE && size.is_multiple_of(GRANULE) && size <= 250 << 20 => {
            Ok(size.min(LARGEST))
        }
        _ => invalid(format!("chunk_size = {typed:?}: use a multiple of 320Ki up to 250Mi, such as 10Mi")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::PROVIDER;

    #[test]
    fn addresses_of_clouds_and_tenants() {
        let of = |pairs: &[(&str, &str)]| adapt(&pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect());
        assert_eq!(of(&[]).token_url, PROVIDER.token_url);
        assert_eq!((&*of(&[]).scope, &*of(&[]).device_url), (SCOPES, PROVIDER.device_url));
        let us = of(&[("region", "us"), ("tenant", "t"), ("client_credentials", "true")]);
        assert_eq!(us.token_url, "https://login.microsoftonline.us/t/oauth2/v2.0/token");
        // A tenant that allows only its own applications gives no codes at common.
        assert_eq!(us.device_url, "https://login.microsoftonline.us/t/oauth2/v2.0/devicecode");
        assert_eq!(us.scope, "https://graph.microsoft.us/.default");
        let cn = of(&[("region", "cn")]);
        assert_eq!(cn.auth_url, "https://login.chinacloudapi.cn/common/oauth2/v2.0/authorize");
        let options = [("region".to_owned(), "cn".to_owned())].into();
        assert_eq!(endpoint(&options).unwrap(), "https://microsoftgraph.chinacloudapi.cn/v1.0");
        assert!(!of(&[("disable_site_permission", "true")]).scope.contains("Sites"));
    }

    #[test]
    fn sizes_of_chunks() {
        assert_eq!(chunk_size("").unwrap(), 10 << 20);
        assert_eq!(chunk_size("320Ki").unwrap(), GRANULE);
        assert_eq!(chunk_size("100Mi").unwrap(), LARGEST);
        assert!(LARGEST.is_multiple_of(GRANULE) && LARGEST < 60 << 20);
        for bad in ["0", "1Mi", "off", "x", "500Mi"] {
            assert!(chunk_size(bad).is_err(), "{bad}");
        }
    }
}
