//! The options of a section `type = webdav`, and what servers of a make can do. Names and meanings are rclone's.

use haul_core::{
    Algo, Error, ErrorKind, Result,
    units::{Size, parse_size},
};
use haul_store::{OpenRequest, OptionKind, OptionSpec};

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: false,
    secret: false,
    examples: &[],
};

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "url",
        help: "Address of the directory, such as https://cloud.example.com/remote.php/dav/files/USER.",
        ..BASE
    },
    OptionSpec {
        name: "vendor",
        help: "Type of the server, which decides how times and checksums are kept.",
        default: "other",
        examples: &[
            ("nextcloud", "Nextcloud"),
            ("owncloud", "ownCloud 10"),
            ("infinitescale", "ownCloud Infinite Scale"),
            ("fastmail", "Fastmail Files"),
            ("rclone", "rclone serve webdav"),
            ("other", "Any other: nginx, Apache, a NAS"),
        ],
        ..BASE
    },
    OptionSpec { name: "user", help: "User name.", ..BASE },
    OptionSpec {
        name: "pass",
        help: "Password, or an app password.",
        kind: OptionKind::Obscured,
        secret: true,
        ..BASE
    },
    OptionSpec { name: "bearer_token", help: "Token to send instead of user and password.", secret: true, ..BASE },
    OptionSpec {
        name: "bearer_token_command",
        help: "Command that prints such a token, such as oidc-token ACCOUNT. It is run again when the server refuses the token.",
        advanced: true,
        ..BASE
    },
    OptionSpec {
        name: "nextcloud_chunk_size",
        help: "Nextcloud: upload larger files in chunks of this size, several at once, and resume them after an \
               interruption. Decrease it if a proxy refuses larger requests. 0: upload files whole.",
        default: "10Mi",
        kind: OptionKind::Size,
        advanced: true,
        ..BASE
    },
    OptionSpec {
        name: "encoding",
        help: "Characters to replace in names, by rclone's names for them, such as Slash,Colon,Question,InvalidUtf8. Raw: names stay as they are.",
        default: "Raw",
        advanced: true,
        ..BASE
    },
    OptionSpec {
        name: "headers",
        help: "Headers for each request, alternating names and values: \"Cookie\",\"name=value\".",
        advanced: true,
        secret: true,
        ..BASE
    },
];

/// Abilities of a server product beyond the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Its name in the config file.
    pub name: &'static str,
    /// It takes a file's time with its content, in `X-OC-Mtime`.
    pub oc_mtime: bool,
    /// It takes a file's time later, as the property `lastmodified`.
    pub prop_mtime: bool,
    /// It takes a directory's time so too.
    pub dir_mtime: bool,
    /// Hashes that it may tell.
    pub hashes: &'static [Algo],
    /// It hashes the content that it takes, if it is asked to.
    pub hashes_bodies: bool,
    /// It takes large files in chunks.
    pub chunks: bool,
}

const PLAIN: Vendor = Vendor {
    name: "other",
    oc_mtime: false,
    prop_mtime: false,
    dir_mtime: false,
    hashes: &[],
    hashes_bodies: false,
    chunks: false,
};

const BOTH: &[Algo] = &[Algo::Sha1, Algo::Md5];

const VENDORS: [Vendor; 6] = [
    Vendor {
        name: "nextcloud",
        oc_mtime: true,
        prop_mtime: true,
        dir_mtime: true,
        hashes: &[Algo::Sha1],
        hashes_bodies: true,
        chunks: true,
    },
    Vendor { name: "owncloud", oc_mtime: true, prop_mtime: true, dir_mtime: true, hashes: BOTH, ..PLAIN },
    Vendor { name: "infinitescale", oc_mtime: true, hashes: BOTH, ..PLAIN },
    Vendor { name: "fastmail", oc_mtime: true, prop_mtime: true, ..PLAIN },
    // It refuses the time of a directory.
    Vendor { name: "rclone", oc_mtime: true, prop_mtime: true, hashes: BOTH, ..PLAIN },
    PLAIN,
];

/// The size of chunks; `None` when files go as a whole.
///
/// Errors: `Invalid`.
pub fn chunk_size(request: &OpenRequest) -> Result<Option<u64>> {
    const NAME: &str = "nextcloud_chunk_size";
    let typed = request.options.get(NAME).map_or("10Mi", String::as_str);
    match parse_size(typed) {
        Ok(Size::Bytes(0)) => Ok(None),
        Ok(Size::Bytes(size)) => Ok(Some(size)),
        Ok(Size::Off) | Err(_) => {
            let message = format!("{NAME} = {typed:?}: use a size such as 10Mi, or 0");
            Err(Error::new(ErrorKind::Invalid, "open", message))
        }
    }
}

/// The vendor that the options name.
///
/// Errors: `Unsupported` for one that haul doesn't know.
pub fn vendor(request: &OpenRequest) -> Result<&'static Vendor> {
    let name = request.options.get("vendor").map(String::as_str).filter(|name| !name.is_empty()).unwrap_or("other");
    VENDORS.iter().find(|vendor| vendor.name == name).ok_or_else(|| {
        let names: Vec<_> = VENDORS.iter().map(|vendor| vendor.name).collect();
        let message = format!("webdav: haul knows no vendor {name:?}: set one of {}", names.join(", "));
        Error::new(ErrorKind::Unsupported, "open", message)
    })
}
