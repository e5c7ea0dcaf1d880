//! The login of a person, and the questions after it.

use crate::{
    drive_choice,
    options::{SCOPES, adapt},
};
use haul_oauth::{Provider, Revoke};

/// The log-in.
pub const PROVIDER: Provider = Provider {
    kind: "onedrive",
    title: "Microsoft",
    auth_url: "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
    token_url: "https://login.microsoftonline.com/common/oauth2/v2.0/token",
    scopes: &[SCOPES],
    adapt: Some(adapt),
    extra: &[],
    redirect: "http://localhost:53682/",
    shows_code: false,
    device_url: "https://login.microsoftonline.com/common/oauth2/v2.0/devicecode",
    pkce: false,
    rotates: true,
    revoke: Revoke::Nowhere,
    further: Some(drive_choice::FURTHER),
    own_id: "https://entra.microsoft.com, App registrations",
};
