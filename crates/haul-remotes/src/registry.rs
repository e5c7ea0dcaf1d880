//! The kinds of stores that exist, one line each. The command line makes flags, prompts and `config providers` from their
//! options; nothing else knows a store by name.

#[cfg(feature = "ssh")]
use crate::far_host;
use haul_core::{Error, ErrorKind, Result};
use haul_oauth::Provider;
use haul_store::StoreKind;
use std::collections::BTreeMap;

/// Every kind of store.
pub fn kinds() -> &'static [StoreKind] {
    &[
        haul_fs::KIND,
        #[cfg(feature = "s3")]
        haul_s3::KIND,
        #[cfg(feature = "azure")]
        haul_azure::KIND,
        #[cfg(feature = "box")]
        haul_box::KIND,
        #[cfg(feature = "drive")]
        haul_drive::KIND,
        #[cfg(feature = "dropbox")]
        haul_dropbox::KIND,
        #[cfg(feature = "gcs")]
        haul_gcs::KIND,
        #[cfg(feature = "onedrive")]
        haul_onedrive::KIND,
        #[cfg(feature = "http")]
        haul_http::KIND,
        #[cfg(feature = "ssh")]
        far_host::SFTP,
        #[cfg(feature = "ssh")]
        far_host::FAR,
        #[cfg(feature = "webdav")]
        haul_webdav::KIND,
        #[cfg(feature = "crypt")]
        haul_crypt::KIND,
        #[cfg(feature = "mem")]
        haul_mem::KIND,
        #[cfg(feature = "pack")]
        haul_pack::KIND,
    ]
}

/// Kinds whose log-ins people do.
const LOGINS: &[&Provider] = &[
    #[cfg(feature = "box")]
    &haul_box::PROVIDER,
    #[cfg(feature = "drive")]
    &haul_drive::PROVIDER,
    #[cfg(feature = "dropbox")]
    &haul_dropbox::PROVIDER,
    #[cfg(feature = "gcs")]
    &haul_gcs::PROVIDER,
    #[cfg(feature = "onedrive")]
    &haul_onedrive::PROVIDER,
];

/// rclone's name for a kind that has a shorter name too, which it reads as well.
const OTHER_NAMES: [(&str, &str); 1] = [("google cloud storage", "gcs")];

/// The kind of this name.
///
/// Errors: `Unsupported`, naming the kinds that exist.
pub fn kind(name: &str) -> Result<&'static StoreKind> {
    let name = OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, own)| own);
    kinds().iter().find(|k| k.name == name).ok_or_else(|| {
        let names: Vec<_> = kinds().iter().map(|k| k.name).collect();
        let message = format!("unknown type of store {name:?}; haul has {}", names.join(", "));
        Error::new(ErrorKind::Unsupported, "open", message)
    })
}

/// The type of store and the options for a host that people reach without configuring it; see `far_host`.
pub fn far_host(name: &str) -> Option<(String, BTreeMap<String, String>)> {
    #[cfg(feature = "ssh")]
    {
        far_host::unconfigured(name)
    }
    #[cfg(not(feature = "ssh"))]
    {
        let _ = name;
        None
    }
}

/// The log-in of a kind; `None` where nobody logs in.
pub fn login(name: &str) -> Option<&'static Provider> {
    let kind = kind(name).ok()?;
    LOGINS.iter().copied().find(|login| login.kind == kind.name)
}
