//! Tokens without a person: for a Google service account, or an application at another service, by its key (RFC 7523), from the machine
//! that this runs on, or one that was given.

use crate::{
    Key, Token, Tokens,
    credentials::invalid,
    federation::{External, IAM, Impersonation, secure},
    requests::post,
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{ErrorKind, Result, Retry};
use haul_net::{Fault, FaultResult, Http};
use haul_store::{Payload, body::Pieces};
use http::{HeaderValue, Request};
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use tokio::sync::Mutex;

/// Where a machine of Google's asks who it is, unless `GCE_METADATA_HOST` says it.
const MACHINE: &str = "http://metadata.google.internal";
/// A claim is good for so long, in seconds: the most that Google takes.
const LASTS: i64 = 3600;

/// An application that a service knows by its key.
pub struct App {
    /// The service, as people call it.
    pub service: &'static str,
    /// Where tokens come from.
    pub token_url: String,
    /// The claims: `iss`, `sub` and `aud`, and those that the service requires.
    pub claims: Value,
    /// For so long a claim is good, in seconds.
    pub lasts: i64,
    /// The number of the key at the service.
    pub key_id: String,
    /// The key in PEM (PKCS #8), and the passphrase where it is encrypted.
    pub key: String,
    /// See [`App::key`].
    pub passphrase: String,
    /// The client ID sent with each claim.
    pub client_id: String,
    /// See [`App::client_id`].
    pub client_secret: String,
}

/// Identity that requests tokens.
enum Identity {
    /// An application, and its key.
    App(Box<App>, Key),
    /// An application by its id and secret: what it says of itself.
    Client(Vec<(&'static str, String)>),
    /// A service account.
    Key { email: String, key_id: String, key: Key, subject: Option<String> },
    /// A person who logged in with Google's own tools.
    Person { client_id: String, client_secret: String, refresh_token: String },
    /// A token of another identity provider, which is exchanged.
    External(Box<External>),
    /// A service account, and who may get its tokens.
    Impersonated(Impersonation, Box<ServiceAccount>),
    /// The machine.
    Machine,
    /// A token that can't be renewed.
    Given,
}

/// Gives out tokens of one identity, and renews them.
pub struct ServiceAccount {
    service: &'static str,
    identity: Identity,
    token_url: String,
    scope: String,
    token: Mutex<Option<Token>>,
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceAccount")
    }
}

/// A credentials file of Google's.
#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    token_uri: String,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    client_secret: String,
    #[serde(default)]
    refresh_token: String,
    #[serde(default)]
    token_url: String,
    #[serde(default)]
    service_account_impersonation_url: String,
}

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const GOOGLE: &str = "Google";
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// Where tokens of other providers are exchanged.
const EXCHANGE_URL: &str = "https://sts.googleapis.com/v1/token";

impl ServiceAccount {
    /// Of an application.
    ///
    /// Errors: `Invalid` for a key that can't be read.
    pub fn of_app(app: App) -> Result<ServiceAccount> {
        let unread =
            || invalid(format!("the private key of the {} application can't be read with its passphrase", app.service));
        let key = Key::from_pem(&app.key, &app.passphrase).ok_or_else(unread)?;
        let (service, token_url) = (app.service, app.token_url.clone());
        let identity = Identity::App(Box::new(app), key);
        Ok(ServiceAccount { service, identity, token_url, scope: String::new(), token: Mutex::default() })
    }

    /// This account at another service, by its name for people.
    pub fn at(self, service: &'static str) -> ServiceAccount {
        ServiceAccount { service, ..self }
    }

    /// From the text of a credentials file: a service account's key, what `gcloud auth application-default login` wrote, or the
    /// configuration of a workload that another provider knows; `subject` is whom a service account acts for.
    ///
    /// Errors: `Invalid` for any other text, and for a subject where there is no key of a service account.
    pub fn from_file(text: &str, scope: &str, subject: Option<String>) -> Result<ServiceAccount> {
        let broken = |_| invalid("the service account's credentials aren't the JSON that Google gives out");
        ServiceAccount::from_json(&serde_json::from_str(text).map_err(broken)?, scope, subject)
    }

    fn from_json(text: &Value, scope: &str, subject: Option<String>) -> Result<ServiceAccount> {
        let broken = |_| invalid("the service account's credentials aren't the JSON that Google gives out");
        let file = File::deserialize(text).map_err(broken)?;
        let account = |identity, token_url: String| ServiceAccount {
            service: GOOGLE,
            identity,
            token_url,
            scope: scope.to_owned(),
            token: Mutex::default(),
        };
        let token_url = if file.token_uri.is_empty() { TOKEN_URL.to_owned() } else { file.token_uri };
        if let Some(subject) = subject.as_ref().filter(|_| file.client_email.is_empty()) {
            let message =
                format!("credentials of the type {:?} can't act for {subject}: use a service account's key", file.kind);
            return Err(invalid(message));
        }
        match &*file.kind {
            "authorized_user" => {
                let File { client_id, client_secret, refresh_token, .. } = file;
                Ok(account(Identity::Person { client_id, client_secret, refresh_token }, token_url))
            }
            "external_account" => {
                let identity = Identity::External(Box::new(External::parse(text)?));
                let url = secure(if file.token_url.is_empty() { EXCHANGE_URL } else { &file.token_url })?.to_owned();
                if file.service_account_impersonation_url.is_empty() {
                    return Ok(account(identity, url));
                }
                let source = Box::new(ServiceAccount { scope: IAM.to_owned(), ..account(identity, url) });
                let url = secure(&file.service_account_impersonation_url)?.to_owned();
                Ok(account(Identity::Impersonated(Impersonation::parse(text), source), url))
            }
            "impersonated_service_account" => {
                let source = &text["source_credentials"];
                if source["type"] == file.kind {
                    return Err(invalid(
                        "the credentials impersonate an account by way of another: name that as a delegate",
                    ));
                }
                let source = Box::new(ServiceAccount::from_json(source, IAM, None)?);
                let url = secure(&file.service_account_impersonation_url)?.to_owned();
                Ok(account(Identity::Impersonated(Impersonation::parse(text), source), url))
            }
            _ if !file.client_email.is_empty() => {
                let refused = || invalid("the service account's private_key is no RSA key, or damaged");
                let key = Key::from_pem(&file.private_key, "").ok_or_else(refused)?;
                let (email, key_id) = (file.client_email, file.private_key_id);
                Ok(account(Identity::Key { email, key_id, key, subject }, token_url))
            }
            other => Err(invalid(format!("credentials of the type {other:?} can't be used: use a service account's"))),
        }
    }

    /// The one of the machine; `host` is where it is asked, if not at the usual place.
    pub fn of_machine(host: Option<String>, scope: &str) -> ServiceAccount {
        let host = host.map_or_else(|| MACHINE.to_owned(), |host| format!("http://{host}"));
        let token_url = format!("{host}/computeMetadata/v1/instance/service-accounts/default/token");
        ServiceAccount {
            service: GOOGLE,
            identity: Identity::Machine,
            token_url,
            scope: scope.to_owned(),
            token: Mutex::default(),
        }
    }

    /// An application that asks for a token by this form (RFC 6749, section 4.4).
    pub fn of_client(service: &'static str, token_url: String, form: Vec<(&'static str, String)>) -> ServiceAccount {
        let (identity, scope, token) = (Identity::Client(form), String::new(), Mutex::default());
        ServiceAccount { service, identity, token_url, scope, token }
    }

    /// An account with a given token, while it lasts.
    pub fn with_token(access_token: &str) -> ServiceAccount {
        let token = Token {
            access_token: access_token.to_owned(),
            token_type: "Bearer".into(),
            refresh_token: String::new(),
            expiry: String::new(),
        };
        let token = Mutex::new(Some(token));
        ServiceAccount {
            service: GOOGLE,
            identity: Identity::Given,
            token_url: String::new(),
            scope: String::new(),
            token,
        }
    }

    /// The account's address; `None` for others.
    pub fn email(&self) -> Option<&str> {
        match &self.identity {
            Identity::Key { email, .. } => Some(email),
            _ => None,
        }
    }

    async fn renew(&self, http: &Http<Pieces>) -> FaultResult<Token> {
        let asked_at = Zoned::now();
        let (body, hint) = match &self.identity {
            Identity::Given => return Err(self.denied("the access_token has expired or isn't good")),
            Identity::App(app, key) => {
                let assertion = self.signed(&app.key_id, key, app.claims.clone(), app.lasts)?;
                let form = [
                    ("grant_type", GRANT),
                    ("assertion", &*assertion),
                    ("client_id", &*app.client_id),
                    ("client_secret", &*app.client_secret),
                ];
                (post(http, &self.token_url, &form).await, "check the application's file, and this machine's clock")
            }
            Identity::Client(form) => {
                let form: Vec<_> = form.iter().map(|(name, value)| (*name, &**value)).collect();
                (
                    post(http, &self.token_url, &form).await,
                    "check the application's id and secret, and for whom it acts",
                )
            }
            Identity::Key { email, key_id, key, subject } => {
                let assertion = self.assertion(email, key_id, key, subject.as_deref())?;
                let form = [("grant_type", GRANT), ("assertion", &*assertion)];
                (post(http, &self.token_url, &form).await, "check the service account's key, and this machine's clock")
            }
            Identity::Person { client_id, client_secret, refresh_token } => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("refresh_token", &**refresh_token),
                    ("client_id", client_id),
                    ("client_secret", client_secret),
                ];
                (post(http, &self.token_url, &form).await, "log in again with gcloud auth application-default login")
            }
            Identity::External(external) => {
                let told = external.exchanged(http, &self.token_url, &self.scope).await;
                (told, "check the other provider's token, and what the workload identity pool takes")
            }
            Identity::Impersonated(how, source) => {
                let asks = source.header(http).await?;
                let mut token = how.token(http, &self.token_url, &self.scope, asks.clone()).await;
                // A token that was revoked meanwhile says nothing of the next.
                if token.as_ref().is_err_and(|fault| fault.status == 401) {
                    source.refused(&asks).await;
                    let asks = source.header(http).await?;
                    token = how.token(http, &self.token_url, &self.scope, asks).await;
                }
                return token.map_err(|fault| self.explained(fault, "check who may create tokens of the account"));
            }
            Identity::Machine => (self.of_the_machine(http).await, "this machine has no service account of Google's"),
        };
        let body = body.map_err(|fault| self.explained(fault, hint))?;
        Token::answered(&body, &asked_at, None).ok_or_else(|| self.denied(hint))
    }

    /// A failure that stays, with what to do.
    fn explained(&self, fault: Box<Fault>, hint: &str) -> Box<Fault> {
        match (fault.retry, fault.kind) {
            (Retry::Never, _) | (_, ErrorKind::Unreachable) => self.denied(&format!("{hint} ({})", fault.message)),
            _ => fault,
        }
    }

    async fn of_the_machine(&self, http: &Http<Pieces>) -> FaultResult<bytes::Bytes> {
        let request = Request::builder()
            .uri(format!("{}?scopes={}", self.token_url, self.scope))
            .header("metadata-flavor", "Google")
            .body(Pieces::new(Payload::default()));
        let bad = |_| Fault::new(ErrorKind::Invalid, Retry::Never, "no such address for tokens");
        let reply = http.send(request.map_err(bad)?).await?;
        let (status, headers) = (reply.status, reply.headers.clone());
        let body = reply.bytes().await?;
        if status.is_success() { Ok(body) } else { Err(Fault::answer(status, &headers, None)) }
    }

    /// A claim of who we are, signed.
    fn assertion(&self, email: &str, key_id: &str, key: &Key, subject: Option<&str>) -> FaultResult<String> {
        let mut claims = serde_json::json!({ "iss": email, "scope": self.scope, "aud": self.token_url });
        if let Some(subject) = subject {
            claims["sub"] = subject.into();
        }
        self.signed(key_id, key, claims, LASTS)
    }

    fn signed(&self, key_id: &str, key: &Key, claims: Value, lasts: i64) -> FaultResult<String> {
        let head = serde_json::json!({ "alg": "RS256", "kid": key_id });
        key.signed(head, claims, lasts).ok_or_else(|| self.denied("this machine gives no random numbers"))
    }

    fn denied(&self, why: &str) -> Box<Fault> {
        Fault::new(ErrorKind::Unauthenticated, Retry::Never, format!("{} gave no token: {why}", self.service))
    }
}

impl Tokens for ServiceAccount {
    fn header<'a>(&'a self, http: &'a Http<Pieces>) -> BoxFuture<'a, FaultResult<HeaderValue>> {
        async move {
            let mut token = self.token.lock().await;
            let header = |token: &Token| token.header().ok_or_else(|| self.denied("the token can't be sent"));
            if let Some(good) = token.as_ref().filter(|token| token.is_good(Timestamp::now())) {
                return header(good);
            }
            let next = self.renew(http).await?;
            header(token.insert(next))
        }
        .boxed()
    }

    fn refused<'a>(&'a self, header: &'a HeaderValue) -> BoxFuture<'a, ()> {
        async move {
            let mut token = self.token.lock().await;
            if token.as_ref().and_then(Token::header).as_ref() == Some(header) {
                *token = None;
            }
        }
        .boxed()
    }
}
