//! Tokens of Microsoft Entra ID: for a service principal by its secret or certificate, for a workload by its cluster's token,
//! for the machine (managed identity), or for the user logged in with `az`. Cached until shortly before they expire.

// Azure's own tools find the machine's identity and other clouds by these variables, and a workload's token in a file.
#![allow(clippy::disallowed_methods)]

use crate::certificate::Certificate;
use haul_core::{Error, ErrorKind, Result, Retry};
use haul_net::{Fault, FaultResult, Http};
use haul_store::{Payload, body::Pieces, disk};
use http::{HeaderValue, Method, Request, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::{env, fmt, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// Scope of the token.
const SCOPE: &str = "https://storage.azure.com/.default";
const RESOURCE: &str = "https://storage.azure.com";
/// Where service principals log in, but in other clouds.
const AUTHORITY: &str = "https://login.microsoftonline.com";
/// Metadata service of virtual machines, which supplies their tokens.
const MACHINE: &str = "http://169.254.169.254";
/// A token is asked for anew so long before it expires.
const EARLY: Duration = Duration::from_secs(300);

/// Who asks.
#[derive(Clone)]
pub enum Identity {
    /// A service principal.
    Principal { tenant: String, client_id: String, secret: String },
    /// One that has a certificate instead of a secret.
    Certified { tenant: String, client_id: String, certificate: Arc<Certificate> },
    /// A workload of a cluster, whose token is in this file. It is written anew from time to time.
    Workload { tenant: String, client_id: String, file: String },
    /// The machine's own, or the one of this name and value, such as `client_id`.
    Machine(Option<(&'static str, String)>),
    /// Whoever is logged in with Azure's command line, `az`.
    CommandLine,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Identity::Principal { .. } => "Principal",
            Identity::Certified { .. } => "Certified",
            Identity::Workload { .. } => "Workload",
            Identity::Machine(_) => "Machine",
            Identity::CommandLine => "CommandLine",
        })
    }
}

impl Identity {
    /// The identity that Azure's own tools would use here (`env_auth`).
    ///
    /// Errors: `Invalid` for a certificate that can't be used.
    pub fn of_environment() -> Result<Identity> {
        Identity::of(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(get: impl Fn(&str) -> Option<String>) -> Result<Identity> {
        let client_id = get("AZURE_CLIENT_ID");
        let (Some(tenant), Some(client_id)) = (get("AZURE_TENANT_ID"), client_id.clone()) else {
            return Ok(Identity::Machine(client_id.map(|id| ("client_id", id))));
        };
        if let Some(secret) = get("AZURE_CLIENT_SECRET") {
            return Ok(Identity::Principal { tenant, client_id, secret });
        }
        if let Some(path) = get("AZURE_CLIENT_CERTIFICATE_PATH") {
            let password = get("AZURE_CLIENT_CERTIFICATE_PASSWORD").unwrap_or_default();
            let shown = get("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN").is_some_and(|set| matches!(&*set, "true" | "1"));
            let certificate = Arc::new(Certificate::read(&path, &password, shown)?);
            return Ok(Identity::Certified { tenant, client_id, certificate });
        }
        Ok(match get("AZURE_FEDERATED_TOKEN_FILE") {
            Some(file) => Identity::Workload { tenant, client_id, file },
            None => Identity::Machine(Some(("client_id", client_id))),
        })
    }
}

/// Gives out tokens.
#[derive(Debug)]
pub struct Source {
    identity: Identity,
    kept: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    token: HeaderValue,
    until: Instant,
}

impl fmt::Debug for CachedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// Seconds; some services write a number, others text.
    expires_in: Option<serde_json::Value>,
}

/// How to come to a token.
enum TokenSource {
    /// By this request, and what to look at if it is refused.
    Service(Box<Request<Pieces>>, &'static str),
    /// By running `az`.
    CommandLine,
}

/// Output of `az account get-access-token`.
#[derive(Deserialize)]
struct OfCommandLine {
    #[serde(rename = "accessToken")]
    access_token: String,
    /// Seconds since 1970.
    expires_on: Option<u64>,
}

#[derive(Deserialize, Default)]
struct TokenError {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Source {
    /// A source that hasn't requested a token yet.
    pub fn new(identity: Identity) -> Source {
        Source { identity, kept: Mutex::default() }
    }

    /// The header `Authorization` that is good now. One asks, the others wait for its answer.
    ///
    /// Errors: `Unauthenticated` when none is given.
    pub async fn get(&self, http: &Http<Pieces>) -> FaultResult<HeaderValue> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return Ok(kept.token.clone());
        }
        let asked_at = Instant::now();
        let (token, lasts) = match self.question().await.map_err(fault)? {
            TokenSource::Service(request, hint) => ask(http, *request, hint).await?,
            TokenSource::CommandLine => disk::run(ask_az).await.map_err(fault)?,
        };
        let mut token = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Fault::new(ErrorKind::Unauthenticated, Retry::Never, "the token that was given is none"))?;
        token.set_sensitive(true);
        *kept = Some(CachedToken { token: token.clone(), until: asked_at + lasts.saturating_sub(EARLY) });
        Ok(token)
    }

    /// How to come to a token.
    async fn question(&self) -> Result<TokenSource> {
        let get = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let bad = |_| Error::new(ErrorKind::Invalid, "open", "no such address for tokens");
        let authority = || get("AZURE_AUTHORITY_HOST").unwrap_or_else(|| AUTHORITY.into());
        let address =
            |tenant: &str| format!("{}/{}/oauth2/v2.0/token", authority().trim_end_matches('/'), encoded(tenant));
        let post = |tenant: &str, form: String| {
            let body = Payload::from(bytes::Bytes::from(form));
            let request = Request::builder()
                .method(Method::POST)
                .uri(address(tenant))
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .header(header::CONTENT_LENGTH, body.len());
            request.body(Pieces::new(body)).map_err(bad)
        };
        match &self.identity {
            Identity::Principal { tenant, client_id, secret } => {
                let form = form(&[("client_id", client_id), ("client_secret", secret), ("scope", SCOPE)]);
                Ok(TokenSource::Service(Box::new(post(tenant, form)?), "check tenant, client_id and client_secret"))
            }
            Identity::Certified { tenant, client_id, certificate } => {
                let form = form(&claiming(client_id, &certificate.claim(client_id, &address(tenant))?));
                let hint = "check tenant, client_id and client_certificate_path, and this machine's clock";
                Ok(TokenSource::Service(Box::new(post(tenant, form)?), hint))
            }
            Identity::Workload { tenant, client_id, file } => {
                let form = form(&claiming(client_id, &token_of(file).await?));
                let hint = "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE";
                Ok(TokenSource::Service(Box::new(post(tenant, form)?), hint))
            }
            Identity::Machine(which) => {
                let which =
                    which.as_ref().map(|(name, value)| format!("&{name}={}", encoded(value))).unwrap_or_default();
                let resource = encoded(RESOURCE);
                // App Service has its own endpoint.
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
                let request = request.body(Pieces::new(Payload::default())).map_err(bad)?;
                Ok(TokenSource::Service(Box::new(request), hint))
            }
            Identity::CommandLine => Ok(TokenSource::CommandLine),
        }
    }
}

/// A token from the service that gives it out, and how long it is good.
async fn ask(http: &Http<Pieces>, request: Request<Pieces>, hint: &str) -> FaultResult<(String, Duration)> {
    let reply = http.send(request).await?;
    let (status, headers) = (reply.status, reply.headers.clone());
    let body = reply.bytes().await?;
    if !status.is_success() {
        let output: TokenError = serde_json::from_slice(&body).unwrap_or_default();
        let mut fault = Fault::answer(status, &headers, None);
        if fault.retry == Retry::Never {
            fault.kind = ErrorKind::Unauthenticated;
        }
        let why = output.error_description.lines().next().filter(|line| !line.is_empty()).unwrap_or(&output.error);
        fault.message = format!("no token was given: {hint} ({}: {why})", status.as_u16());
        return Err(fault);
    }
    let answer: TokenResponse = serde_json::from_slice(&body)
        .map_err(|_| Fault::new(ErrorKind::Unauthenticated, Retry::Never, format!("no token was given: {hint}")))?;
    let lasts = match answer.expires_in {
        Some(serde_json::Value::Number(secs)) => secs.as_u64(),
        Some(serde_json::Value::String(secs)) => secs.parse().ok(),
        _ => None,
    };
    Ok((answer.access_token, Duration::from_secs(lasts.unwrap_or(0))))
}

fn fault(error: Error) -> Box<Fault> {
    Fault::new(error.kind(), error.retry(), error.message())
}

/// A token of the `az` login, and its lifetime.
///
/// Errors: `Unauthenticated` where `az` isn't installed, nobody is logged in, or its output isn't a token.
fn ask_az() -> Result<(String, Duration)> {
    let refused = |why: &str| Error::new(ErrorKind::Unauthenticated, "open", format!("no token was given: {why}"));
    let output = std::process::Command::new("az")
        .args(["account", "get-access-token", "--output", "json", "--resource", RESOURCE])
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| refused(&format!("can't run az, Azure's command line: {e}")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing");
        return Err(refused(&format!("log in with az login (az: {})", reason.trim_start_matches("ERROR: "))));
    }
    let given: OfCommandLine =
        serde_json::from_slice(&output.stdout).map_err(|_| refused("az wrote something else than a token in JSON"))?;
    // Versions before 2.54 give the expiry only in local time: after a minute az is asked again, which renews tokens that expire within
    // five.
    let now = jiff::Timestamp::now().as_second().cast_unsigned();
    let lasts = given.expires_on.map(|until| Duration::from_secs(until.saturating_sub(now)));
    Ok((given.access_token, lasts.unwrap_or(EARLY + Duration::from_secs(60))))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn form(fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!("&{name}={}", encoded(value))).collect();
    format!("grant_type=client_credentials{fields}")
}

/// Form fields of a token request with a client assertion: a certificate's claim, or a cluster's token.
fn claiming<'a>(client_id: &'a str, token: &'a str) -> [(&'static str, &'a str); 4] {
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    [("client_id", client_id), ("client_assertion_type", kind), ("client_assertion", token), ("scope", SCOPE)]
}

async fn token_of(file: &str) -> Result<String> {
    let path = file.to_owned();
    let text = disk::run(move || {
        std::fs::read_to_string(&path).map_err(|e| {
            let message = format!("can't read the workload's token {path}: {e}");
            Error::new(ErrorKind::Unauthenticated, "open", message)
        })
    });
    Ok(text.await?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[tokio::test]
    async fn a_workload_proves_itself_by_the_token_of_its_cluster() {
        let with = |names: &'static [&str]| {
            Identity::of(|name| names.contains(&name).then(|| name.to_lowercase())).expect("one")
        };
        let is_workload = |names| matches!(with(names), Identity::Workload { .. });
        assert!(is_workload(&["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"]));
        assert!(!is_workload(&[
            "AZURE_TENANT_ID",
            "AZURE_CLIENT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_FEDERATED_TOKEN_FILE"
        ]));
        assert!(matches!(with(&["AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"]), Identity::Machine(Some(_))));
        let mut held = tempfile::NamedTempFile::new().unwrap();
        held.write_all(b"e30.e30.x\n").unwrap();
        let file = held.path().to_str().unwrap().to_owned();
        let token = token_of(&file).await.unwrap();
        assert_eq!(
            form(&claiming("app", &token)),
            "grant_type=client_credentials&client_id=app&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient%2Dassertion%2Dtype%3Ajwt%2Dbearer\
             &client_assertion=e30%2Ee30%2Ex&scope=https%3A%2F%2Fstorage%2Eazure%2Ecom%2F%2Edefault"
        );
        let source = Source::new(Identity::Workload { tenant: "t".into(), client_id: "app".into(), file });
        let Ok(TokenSource::Service(request, _)) = source.question().await else { panic!("a request") };
        assert!(request.uri().path() == "/t/oauth2/v2.0/token" && request.method() == Method::POST);
        drop(held);
        let error = source.question().await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    }
}
