//! Tokens of Microsoft Entra ID: of a service principal by its secret, or of the machine that this runs on (managed identity). Kept until
//! shortly before they expire.

// Azure's own tools find the machine's identity and other clouds by these variables.
#![allow(clippy::disallowed_methods)]

use haul_core::{Error, ErrorKind, Result, Retry};
use haul_net::{Fault, Http, Tried};
use haul_store::{Payload, body::Pieces};
use http::{HeaderValue, Method, Request, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::{env, fmt, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// What the token is for.
const SCOPE: &str = "https://storage.azure.com/.default";
const RESOURCE: &str = "https://storage.azure.com";
/// Where service principals log in, but in other clouds.
const AUTHORITY: &str = "https://login.microsoftonline.com";
/// Where a virtual machine asks who it is.
const MACHINE: &str = "http://169.254.169.254";
/// A token is asked for anew so long before it expires.
const EARLY: Duration = Duration::from_secs(300);

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Identity {
    /// A service principal.
    Principal { tenant: String, client_id: String, secret: String },
    /// The machine's own, or the one of this name and value, such as `client_id`.
    Machine(Option<(&'static str, String)>),
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Identity::Principal { .. } => "Principal",
            Identity::Machine(_) => "Machine",
        })
    }
}

impl Identity {
    /// What Azure's tools would use here (`env_auth`).
    pub fn of_environment() -> Identity {
        let get = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        match (get("AZURE_TENANT_ID"), get("AZURE_CLIENT_ID"), get("AZURE_CLIENT_SECRET")) {
            (Some(tenant), Some(client_id), Some(secret)) => Identity::Principal { tenant, client_id, secret },
            (_, client_id, _) => Identity::Machine(client_id.map(|id| ("client_id", id))),
        }
    }
}

/// Gives out tokens.
#[derive(Debug)]
pub struct Source {
    identity: Identity,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    token: HeaderValue,
    until: Instant,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    /// Seconds; some services write a number, others text.
    expires_in: Option<serde_json::Value>,
}

#[derive(Deserialize, Default)]
struct Refusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Source {
    /// A source that has asked nobody yet.
    pub fn new(identity: Identity) -> Source {
        Source { identity, kept: Mutex::default() }
    }

    /// The header `Authorization` that is good now. One asks, the others wait for its answer.
    ///
    /// Errors: `Unauthenticated` when none is given.
    pub async fn get(&self, http: &Http<Pieces>) -> Tried<HeaderValue> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return Ok(kept.token.clone());
        }
        let (request, hint) = self.question().map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
        let asked = Instant::now();
        let reply = http.send(request).await?;
        let (status, headers) = (reply.status, reply.headers.clone());
        let body = reply.bytes().await?;
        if !status.is_success() {
            let said: Refusal = serde_json::from_slice(&body).unwrap_or_default();
            let mut fault = Fault::answer(status, &headers, None);
            if fault.retry == Retry::Never {
                fault.kind = ErrorKind::Unauthenticated;
            }
            let why = said.error_description.lines().next().filter(|line| !line.is_empty()).unwrap_or(&said.error);
            fault.message = format!("no token was given: {hint} ({}: {why})", status.as_u16());
            return Err(fault);
        }
        let broken = || Fault::new(ErrorKind::Unauthenticated, Retry::Never, format!("no token was given: {hint}"));
        let answer: Answer = serde_json::from_slice(&body).map_err(|_| broken())?;
        let mut token = HeaderValue::from_str(&format!("Bearer {}", answer.access_token)).map_err(|_| broken())?;
        token.set_sensitive(true);
        let lasts = match answer.expires_in {
            Some(serde_json::Value::Number(secs)) => secs.as_u64(),
            Some(serde_json::Value::String(secs)) => secs.parse().ok(),
            _ => None,
        };
        let lasts = Duration::from_secs(lasts.unwrap_or(0)).saturating_sub(EARLY);
        *kept = Some(Kept { token: token.clone(), until: asked + lasts });
        Ok(token)
    }

    /// The request for a token, and what to look at if it is refused.
    fn question(&self) -> Result<(Request<Pieces>, &'static str)> {
        let get = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let bad = |_| Error::new(ErrorKind::Invalid, "open", "no such address for tokens");
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        match &self.identity {
            Identity::Principal { tenant, client_id, secret } => {
                let authority = get("AZURE_AUTHORITY_HOST").unwrap_or_else(|| AUTHORITY.into());
                let url = format!("{}/{}/oauth2/v2.0/token", authority.trim_end_matches('/'), encoded(tenant));
                let form = [("client_id", &**client_id), ("client_secret", secret), ("scope", SCOPE)];
                let form: String = form.iter().map(|(name, value)| format!("&{name}={}", encoded(value))).collect();
                let body = Payload::from(bytes::Bytes::from(format!("grant_type=client_credentials{form}")));
                let request = Request::builder()
                    .method(Method::POST)
                    .uri(url)
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .header(header::CONTENT_LENGTH, body.len());
                Ok((request.body(Pieces::new(body)).map_err(bad)?, "check tenant, client_id and client_secret"))
            }
            Identity::Machine(which) => {
                let which =
                    which.as_ref().map(|(name, value)| format!("&{name}={}", encoded(value))).unwrap_or_default();
                let resource = encoded(RESOURCE);
                // An app service has an address of its own.
                let request = match (get("IDENTITY_ENDPOINT"), get("IDENTITY_HEADER")) {
                    (Some(endpoint), Some(header)) => {
                        let url = format!("{endpoint}?api-version=2019-08-01&resource={resource}{which}");
                        Request::builder().uri(url).header("x-identity-header", header)
                    }
                    _ => {
                        let host = get("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or_else(|| MACHINE.into());
                        let path = "metadata/identity/oauth2/token?api-version=2018-02-01";
                        let url = format!("{}/{path}&resource={resource}{which}", host.trim_end_matches('/'));
                        Request::builder().uri(url).header("metadata", "true")
                    }
                };
                let hint = "this machine has no managed identity, or none of that name";
                Ok((request.body(Pieces::new(Payload::default())).map_err(bad)?, hint))
            }
        }
    }
}
