//! Logins: a person, or a service account.

use crate::{
    drive_choice,
    options::{AUTH_URL, Config, TOKEN_URL, addresses},
};
use haul_core::Result;
use haul_oauth::{Login, Provider, Revoke, Tokens, google};
use haul_store::OpenRequest;
use std::sync::Arc;

/// The log-in of a person.
pub static PROVIDER: Provider = Provider {
    kind: "drive",
    title: "Google",
    auth_url: AUTH_URL,
    token_url: TOKEN_URL,
    scopes: &["https://www.googleapis.com/auth/drive"],
    adapt: Some(addresses),
    extra: &[("access_type", "offline"), ("prompt", "consent")],
    redirect: "http://127.0.0.1:53682/",
    shows_code: false,
    device_url: "",
    pkce: true,
    rotates: false,
    revoke: Revoke::Form(google::REVOKE),
    further: Some(drive_choice::FURTHER),
    own_id: "at console.cloud.google.com, as a desktop application, with the Google Drive API enabled",
};

/// The source of tokens.
///
/// Errors: those of [`Login::open`].
pub fn tokens(config: &Config, request: &OpenRequest) -> Result<Arc<dyn Tokens>> {
    match &config.identity {
        Some(identity) => Ok(identity.clone()),
        None => Ok(Login::open(&PROVIDER, request)?),
    }
}
