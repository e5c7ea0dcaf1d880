//! Ending a log-in at the service itself: whoever has a copy of the token can do nothing with it any more.

use crate::{
    ConsentRequest, Provider, Revoke, Token,
    requests::{post, post_as},
    setup::RemoteOptions,
};
use haul_core::{Error, ErrorKind, Result};
use haul_net::{Fault, Http};
use haul_store::body::Pieces;
use jiff::Timestamp;

/// Revokes the login of a remote with these options; false if the service has no request for it, or its address is unknown. A
/// token that is invalid already counts as revoked.
///
/// Errors: of the service, with its own message.
pub async fn revoke(provider: &'static Provider, options: &RemoteOptions, http: &Http<Pieces>) -> Result<bool> {
    let option = |name: &str| options.get(name).map_or("", |value| value.trim());
    let url = match (provider.revoke, option("revoke_url")) {
        (Revoke::Nowhere, _) => return Ok(false),
        (_, own) if !own.is_empty() => own,
        // Tokens of another service than the usual one mean nothing to that.
        _ if !option("token_url").is_empty() => return Ok(false),
        (Revoke::Form(url) | Revoke::FormOfClient(url) | Revoke::Bearer(url), _) => url,
    };
    let token = Token::parse(option("token"))?;
    let refresh = if token.refresh_token.is_empty() { &token.access_token } else { &token.refresh_token };
    let client = [("client_id", option("client_id")), ("client_secret", option("client_secret"))];
    let answered = match provider.revoke {
        Revoke::Form(_) => post(http, url, &[("token", refresh)]).await,
        // Of rclone's own application nobody else knows the secret.
        Revoke::FormOfClient(_) if client[0].1.is_empty() => return Ok(false),
        Revoke::FormOfClient(_) => post(http, url, &[&client[..], &[("token", refresh)]].concat()).await,
        Revoke::Bearer(_) => {
            let good = match token.is_good(Timestamp::now()) {
                true => Ok(token),
                false if client[0].1.is_empty() || token.refresh_token.is_empty() => return Ok(false),
                false => ConsentRequest::new(provider, options)?.renewed(http, &token.refresh_token).await,
            };
            match good {
                Ok(token) => {
                    let unsent = || Error::new(ErrorKind::Invalid, "config", "the token can't be sent");
                    post_as(http, url, token.header().ok_or_else(unsent)?).await
                }
                Err(fault) => Err(fault),
            }
        }
        Revoke::Nowhere => return Ok(false),
    };
    match answered {
        Err(fault) if is_ended(&fault) => Ok(true),
        answered => answered.map(|_| true).map_err(|fault| fault.error("config")),
    }
}

/// The service says that the token is good no more.
fn is_ended(fault: &Fault) -> bool {
    let words = ["invalid_token", "invalid_grant", "invalid_access_token"];
    matches!(fault.status, 400 | 401) && words.iter().any(|word| fault.message.contains(word))
}
