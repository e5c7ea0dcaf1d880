//! Tokens of a remote: given out while they are good, renewed in time, and written back where they came from.

use crate::{Provider, Token, requests::post, token::EARLY};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Algo, Error, ErrorKind, Result, Retry, hash::hash_bytes};
use haul_net::{Fault, FaultResult, Http};
use haul_store::{Locked, OpenRequest, Section, body::Pieces};
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp, Zoned};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// Gives out what a request proves its right by.
pub trait Tokens: fmt::Debug + Send + Sync {
    /// The header `Authorization` that is good now. One asks for a new one, the others wait for its answer.
    ///
    /// Errors: `Unauthenticated` when there is none to be had.
    fn header<'a>(&'a self, http: &'a Http<Pieces>) -> BoxFuture<'a, FaultResult<HeaderValue>>;

    /// A service refused this one: it isn't given out again.
    fn refused<'a>(&'a self, header: &'a HeaderValue) -> BoxFuture<'a, ()>;
}

/// rclone renews its own token 10 seconds before it expires, and no sooner: it is asked when this many seconds are left.
const RCLONES: SignedDuration = SignedDuration::from_secs(8);
/// After a refusal the section is read again, after so long each time: another program may have renewed the token just before.
const AGAIN: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

/// The tokens of one remote.
pub struct Login(Arc<Account>);

struct Account {
    provider: &'static Provider,
    remote: String,
    client_id: String,
    client_secret: String,
    token_url: String,
    scope: String,
    /// The application itself logs in.
    own: bool,
    section: Option<Arc<dyn Section>>,
    token: Arc<Mutex<Option<Token>>>,
    /// The access tokens in exchange for which others came: one for each renewal.
    spent: std::sync::Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("kind", &self.0.provider.kind).finish_non_exhaustive()
    }
}

/// Tells accounts apart where no option names them: by the remote, and where no section describes it by what its token is renewed with,
/// which stays the same then.
pub fn account(request: &OpenRequest) -> String {
    let text = request.options.get("token").filter(|_| request.section.is_none());
    let Some(token) = text.and_then(|text| Token::parse(text).ok()) else { return request.remote.clone() };
    let stays = if token.refresh_token.is_empty() { &token.access_token } else { &token.refresh_token };
    let hashes = hash_bytes(&[Algo::Blake3], stays.as_bytes());
    let digest = hashes.get(Algo::Blake3).unwrap_or_default().iter().take(8).map(|byte| format!("{byte:02x}"));
    format!("{}:{}", request.remote, digest.collect::<String>())
}

impl Login {
    /// The log-in that the options of a remote describe. Sends nothing.
    ///
    /// Errors: `Invalid` for a token that can't be read; `Unauthenticated` where nobody has logged in yet.
    pub fn open(provider: &'static Provider, request: &OpenRequest) -> Result<Arc<Login>> {
        let addresses = provider.addresses(&request.options);
        let token_url = match request.options.get("token_url").map(|url| url.trim()) {
            None | Some("") => &addresses.token_url,
            Some(url) => url,
        };
        // All stores of one log-in have one token: it may be renewed once only.
        let of = |name: &str| request.options.get(name).map_or("", |value| value);
        let words = [provider.kind, &request.remote, of("client_id"), of("token"), of("client_credentials"), token_url];
        request.shared.get(&words.join("\n"), || Login::new(provider, token_url, &addresses.scope, request))
    }

    fn new(provider: &'static Provider, token_url: &str, scope: &str, request: &OpenRequest) -> Result<Login> {
        let option = |name: &str| request.options.get(name).map(|value| value.trim().to_owned()).unwrap_or_default();
        let own = option("client_credentials") == "true";
        let token = match option("token") {
            none if none.is_empty() => None,
            text => Some(Token::parse(&text)?),
        };
        if token.is_none() && !own {
            let message = match section(&request.remote) {
                None => format!("nobody has logged in to {}: make a remote with haul config", provider.title),
                Some(name) => format!("nobody has logged in to {}: haul config reconnect {name}:", provider.title),
            };
            return Err(Error::new(ErrorKind::Unauthenticated, "open", message));
        }
        let client_id = option("client_id");
        if client_id.is_empty() && !own && request.shared.tells(&format!("{} on rclone's client id", request.remote)) {
            let (remote, title, own_id) = (&request.remote, provider.title, provider.own_id);
            tracing::warn!(
                "{remote}: the log-in is by rclone's application at {title}, whose limits all its users share and whose token rclone alone can renew; better make a client id of your own ({own_id})"
            );
        }
        Ok(Login(Arc::new(Account {
            provider,
            remote: request.remote.clone(),
            client_id,
            client_secret: option("client_secret"),
            token_url: token_url.to_owned(),
            scope: scope.to_owned(),
            own,
            section: request.section.clone(),
            token: Arc::new(Mutex::new(token)),
            spent: std::sync::Mutex::default(),
        })))
    }
}

/// The section of the configuration that a remote is; `None` for one that is typed whole.
fn section(remote: &str) -> Option<&str> {
    (!remote.is_empty() && !remote.starts_with(':')).then_some(remote)
}

impl Account {
    fn again(&self) -> String {
        match section(&self.remote) {
            None => "log in again".into(),
            Some(name) => format!("log in again with haul config reconnect {name}:"),
        }
    }

    fn denied(&self, why: &str) -> Box<Fault> {
        let message = format!("{} gave no new token: {why}; {}", self.provider.title, self.again());
        Fault::new(ErrorKind::Unauthenticated, Retry::Never, message)
    }

    /// Gets the next token. What another process got meanwhile is found in the section; what comes is kept there before anybody else
    /// may ask.
    async fn renew(&self, http: &Http<Pieces>, before: Option<&Token>) -> FaultResult<Token> {
        let mut locked = self.lock().await?;
        // The token that ours was exchanged for is worthless: nobody has kept ours, or somebody wrote an old one over it.
        let is_spent = |kept: &Token| {
            let spent = self.spent.lock().unwrap_or_else(|e| e.into_inner());
            spent.contains(&kept.access_token)
        };
        let kept = kept(locked.as_deref()).filter(|kept| before.is_none() || !is_spent(kept));
        let is_new = |kept: &Token| before.is_none_or(|before| kept.access_token != before.access_token);
        if let Some(kept) = kept.clone().filter(|kept| is_new(kept) && self.is_good(kept)) {
            return Ok(kept);
        }
        let last = kept.or_else(|| before.cloned());
        if self.is_rclones() {
            return self.by_rclone(locked).await;
        }
        let form = match (&last, self.own) {
            (_, true) => {
                vec![("grant_type", "client_credentials"), ("scope", &self.scope)]
            }
            (Some(last), _) if !last.refresh_token.is_empty() => {
                vec![("grant_type", "refresh_token"), ("refresh_token", &last.refresh_token)]
            }
            _ => return Err(self.denied("the one that there is has expired, and none to renew it came with it")),
        };
        let next = match self.ask(http, form, last.as_ref()).await {
            Err(fault) if fault.kind == ErrorKind::Unauthenticated && !self.own => {
                drop(locked);
                return self.by_others(last.as_ref()).await.ok_or(fault);
            }
            next => next?,
        };
        self.spent.lock().unwrap_or_else(|e| e.into_inner()).extend(last.map(|last| last.access_token));
        match &mut locked {
            Some(locked) if !self.own => {
                if let Err(error) = locked.set("token", &next.text()) {
                    let cost = if self.provider.rotates { "; the next run will have to log in again" } else { "" };
                    tracing::warn!(remote = self.remote, "the new token can't be kept: {}{cost}", error.message());
                }
            }
            None if self.provider.rotates && !self.own => {
                tracing::warn!(
                    "{} gave a new token, which can't be kept: the remote has no section in a config file",
                    self.provider.title
                );
            }
            _ => {}
        }
        Ok(next)
    }

    async fn lock(&self) -> FaultResult<Option<Box<dyn Locked>>> {
        match &self.section {
            Some(section) => Ok(Some(section.lock().await.map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?)),
            None => Ok(None),
        }
    }

    fn is_rclones(&self) -> bool {
        self.client_id.is_empty() && !self.own
    }

    /// True while a token needn't be renewed.
    fn is_good(&self, token: &Token) -> bool {
        token.lasts(Timestamp::now(), if self.is_rclones() { RCLONES } else { EARLY })
    }

    /// The token that another program got for the one that was refused: rclone takes no lock, and writes it some moments after the
    /// service gave it out. `None` when none comes.
    async fn by_others(&self, refused: Option<&Token>) -> Option<Token> {
        for wait in AGAIN {
            tokio::time::sleep(wait).await;
            let kept = kept(self.lock().await.ok()?.as_deref());
            let is_new = |kept: &Token| refused.is_none_or(|refused| kept.access_token != refused.access_token);
            if let Some(kept) = kept.filter(|kept| is_new(kept) && self.is_good(kept)) {
                return Some(kept);
            }
        }
        None
    }

    fn header(&self, token: &Token) -> FaultResult<HeaderValue> {
        token.header().ok_or_else(|| self.denied("the one that there is can't be sent"))
    }

    /// The token of rclone's own application can be renewed by rclone alone, which writes it into its file.
    async fn by_rclone(&self, locked: Option<Box<dyn Locked>>) -> FaultResult<Token> {
        let Some(mut locked) = locked else { return Err(self.denied("it was made for rclone")) };
        let done = locked.by_rclone().await;
        // Whatever rclone thought of it: one that hasn't expired is good.
        let found = kept(Some(&*locked)).filter(|kept| kept.lasts(Timestamp::now(), SignedDuration::ZERO));
        found.ok_or_else(|| {
            let why = done.err().map(|e| e.message().to_owned()).unwrap_or_else(|| "rclone gave none".into());
            let own = self.provider.own_id;
            let message = format!(
                "the token was made for rclone, which alone can renew it: {why}. Either install rclone, or make a client id of your own ({own}), set client_id and client_secret, and {}",
                self.again()
            );
            Fault::new(ErrorKind::Unauthenticated, Retry::Never, message)
        })
    }

    async fn ask(&self, http: &Http<Pieces>, mut form: Vec<(&str, &str)>, last: Option<&Token>) -> FaultResult<Token> {
        form.push(("client_id", &self.client_id));
        if !self.client_secret.is_empty() {
            form.push(("client_secret", &self.client_secret));
        }
        let asked_at = Zoned::now();
        let body = post(http, &self.token_url, &form).await.map_err(|fault| match fault.retry {
            Retry::Never => self.denied(&fault.message),
            _ => fault,
        })?;
        Token::answered(&body, &asked_at, last).ok_or_else(|| self.denied("its answer holds none"))
    }
}

fn kept(locked: Option<&dyn Locked>) -> Option<Token> {
    Token::parse(&locked?.get("token")?).ok()
}

impl Tokens for Login {
    fn header<'a>(&'a self, http: &'a Http<Pieces>) -> BoxFuture<'a, FaultResult<HeaderValue>> {
        async move {
            let mut token = self.0.token.clone().lock_owned().await;
            if let Some(token) = token.as_ref().filter(|token| self.0.is_good(token)) {
                return self.0.header(token);
            }
            let (account, http) = (self.0.clone(), http.clone());
            // A refresh token may be good once only: whoever asked may be stopped, but what came for it is kept all the same.
            let renewal = tokio::spawn(async move {
                let next = account.renew(&http, token.as_ref()).await?;
                account.header(token.insert(next))
            });
            let stopped = |_| Err(Fault::new(ErrorKind::Cancelled, Retry::Never, "stopped"));
            renewal.await.unwrap_or_else(stopped)
        }
        .boxed()
    }

    fn refused<'a>(&'a self, header: &'a HeaderValue) -> BoxFuture<'a, ()> {
        async move {
            if let Some(token) = &mut *self.0.token.lock().await
                && token.header().as_ref() == Some(header)
            {
                token.expiry = "1970-01-01T00:00:00Z".into();
            }
        }
        .boxed()
    }
}
