//! A person's consent: the page to open, the code that comes back (to a port of this machine, to the screen, or to a second device), and
//! the first token for it.

use crate::{Addresses, Provider, Token, requests::post};
use aws_lc_rs::{digest, rand};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use haul_core::{Error, ErrorKind, Result, Retry};
use haul_net::{Fault, FaultResult, Http};
use haul_store::body::Pieces;
use jiff::Zoned;
use serde::Deserialize;
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use url::{Url, form_urlencoded};

/// Where a browser brings the code: the port that people register with services for rclone.
const PORT: u16 = 53682;
/// A port that is taken is tried again so often, …
const TRIES: usize = 20;
/// … with so long between.
const PAUSE: Duration = Duration::from_millis(100);
/// No head of a request that a browser sends here is longer.
const MOST: usize = 64 << 10;
/// A browser that opens a connection ahead and says nothing doesn't hold up the others so long.
const SILENCE: Duration = Duration::from_secs(10);

/// A request for a person's consent.
#[derive(Clone, Debug)]
pub struct ConsentRequest {
    provider: &'static Provider,
    auth_url: String,
    token_url: String,
    device_url: String,
    client_id: String,
    client_secret: String,
    scope: String,
    state: String,
    verifier: String,
}

/// A random word of 43 letters.
fn word() -> Result<String> {
    let mut bytes = [0; 32];
    let failed = |_| Error::new(ErrorKind::Io, "config", "the system gives no random numbers");
    rand::fill(&mut bytes).map_err(failed)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

impl ConsentRequest {
    /// A question by the options of a remote.
    ///
    /// Errors: no random numbers are to be had.
    pub fn new(provider: &'static Provider, options: &BTreeMap<String, String>) -> Result<ConsentRequest> {
        let Addresses { auth_url, token_url, device_url, scope } = provider.addresses(options);
        let option = |name: &str| options.get(name).map(|value| value.trim().to_owned()).unwrap_or_default();
        let own = |name: &str, otherwise: String| Some(option(name)).filter(|url| !url.is_empty()).unwrap_or(otherwise);
        Ok(ConsentRequest {
            provider,
            auth_url: own("auth_url", auth_url),
            token_url: own("token_url", token_url),
            device_url: own("device_url", device_url),
            client_id: option("client_id"),
            client_secret: option("client_secret"),
            scope,
            state: word()?,
            verifier: word()?,
        })
    }

    /// The PKCE code verifier, which proves that the same client asked and brings the code: another process that continues the login needs
    /// it.
    pub fn verifier(&self) -> &str {
        &self.verifier
    }

    /// The same request, as another process made it.
    pub fn asked_with(self, verifier: &str) -> ConsentRequest {
        ConsentRequest { verifier: verifier.to_owned(), ..self }
    }

    fn redirect(&self, comes_back: bool) -> Option<&'static str> {
        comes_back.then_some(self.provider.redirect)
    }

    /// The page to open; `comes_back` to this machine, else it shows a code.
    pub fn page(&self, comes_back: bool) -> Result<Url> {
        let bad = |_| Error::new(ErrorKind::Invalid, "config", format!("auth_url {:?} is no address", self.auth_url));
        let mut page = Url::parse(&self.auth_url).map_err(bad)?;
        {
            let mut query = page.query_pairs_mut();
            query.append_pair("client_id", &self.client_id).append_pair("response_type", "code");
            if !self.scope.is_empty() {
                query.append_pair("scope", &self.scope);
            }
            query.append_pair("state", &self.state);
            if let Some(to) = self.redirect(comes_back) {
                query.append_pair("redirect_uri", to);
            }
            for (name, value) in self.provider.extra {
                query.append_pair(name, value);
            }
            if self.provider.pkce {
                let digest = digest::digest(&digest::SHA256, self.verifier.as_bytes());
                query.append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(digest));
                query.append_pair("code_challenge_method", "S256");
            }
        }
        Ok(page)
    }

    /// The token for a code.
    pub async fn exchange(&self, http: &Http<Pieces>, code: &str, comes_back: bool) -> FaultResult<Token> {
        let mut form = vec![("grant_type", "authorization_code"), ("code", code.trim())];
        form.extend(self.redirect(comes_back).map(|to| ("redirect_uri", to)));
        if self.provider.pkce {
            form.push(("code_verifier", &self.verifier));
        }
        self.ask(http, form).await
    }

    /// The token of the application itself.
    pub async fn own(&self, http: &Http<Pieces>) -> FaultResult<Token> {
        self.ask(http, vec![("grant_type", "client_credentials"), ("scope", &self.scope)]).await
    }

    /// The next token, for the one that renews it.
    pub async fn renewed(&self, http: &Http<Pieces>, refresh_token: &str) -> FaultResult<Token> {
        self.ask(http, vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)]).await
    }

    async fn ask(&self, http: &Http<Pieces>, mut form: Vec<(&str, &str)>) -> FaultResult<Token> {
        form.push(("client_id", &self.client_id));
        if !self.client_secret.is_empty() {
            form.push(("client_secret", &self.client_secret));
        }
        let asked_at = Zoned::now();
        let refused = |mut fault: Box<Fault>| {
            fault.message = format!("{} gave no token: {}", self.provider.title, fault.message);
            fault
        };
        let body = post(http, &self.token_url, &form).await.map_err(refused)?;
        let none = || refused(Fault::new(ErrorKind::Unauthenticated, Retry::Never, "its answer holds none"));
        Token::answered(&body, &asked_at, None).ok_or_else(none)
    }

    /// The service gives codes to type in elsewhere.
    pub fn has_device_codes(&self) -> bool {
        !self.device_url.is_empty()
    }

    /// Asks for a code that a person types in on any device.
    pub async fn device(&self, http: &Http<Pieces>) -> FaultResult<DeviceCode> {
        let form = [("client_id", &*self.client_id), ("scope", &self.scope)];
        let body = post(http, &self.device_url, &form).await?;
        serde_json::from_slice(&body).map_err(|e| Fault::broken(format!("no code to type in was given: {e}")))
    }

    /// Waits until the person has typed it in, and gives back the token.
    ///
    /// Errors: `Unauthenticated` when the person says no, or takes too long.
    pub async fn wait_for_device(&self, http: &Http<Pieces>, code: &DeviceCode) -> FaultResult<Token> {
        let end = Instant::now() + Duration::from_secs(code.expires_in.unwrap_or(900));
        let mut pause = Duration::from_secs(code.interval.unwrap_or(5));
        loop {
            tokio::time::sleep(pause).await;
            let form = vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", &*code.device_code),
            ];
            match self.ask(http, form).await {
                Err(fault) if fault.message.contains("authorization_pending") && Instant::now() < end => {}
                Err(fault) if fault.message.contains("slow_down") && Instant::now() < end => {
                    pause += Duration::from_secs(5);
                }
                other => return other,
            }
        }
    }
}

/// A code to type in (RFC 8628, section 3.2).
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceCode {
    device_code: String,
    /// The code that the person types in …
    pub user_code: String,
    /// … on this page.
    #[serde(alias = "verification_url")]
    pub verification_uri: String,
    expires_in: Option<u64>,
    interval: Option<u64>,
}

/// Waits for a browser of this machine.
pub struct Browser {
    listener: TcpListener,
    consent: ConsentRequest,
}

impl Browser {
    /// Listens for it.
    ///
    /// Errors: the port is taken.
    pub async fn expect(consent: ConsentRequest) -> Result<Browser> {
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await {
                Ok(listener) => break listener,
                // The system gives such ports to connections, too, for a while.
                Err(_) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(e) => {
                    let message =
                        format!("can't wait for the browser on port {PORT}: {e}; is another log-in under way?");
                    return Err(Error::new(ErrorKind::Io, "log in", message));
                }
            }
        };
        Ok(Browser { listener, consent })
    }

    /// A short address that leads to the page to open.
    pub fn link(&self) -> String {
        format!("http://127.0.0.1:{PORT}/auth?state={}", self.consent.state)
    }

    /// The code that the browser brings, and who asked for it.
    ///
    /// Errors: `Unauthenticated` when the person or the service says no.
    pub async fn code(self) -> Result<(String, ConsentRequest)> {
        let page = self.consent.page(true)?;
        loop {
            // A connection that breaks is the browser's affair: it comes again.
            let Ok((mut stream, _)) = self.listener.accept().await else { continue };
            let received = tokio::time::timeout(SILENCE, target(&mut stream)).await;
            let Ok(Some(received)) = received else { continue };
            let fields: BTreeMap<String, String> = form_urlencoded::parse(received.query().unwrap_or("").as_bytes())
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect();
            let field = |name: &str| fields.get(name).map_or("", |value| value);
            let ours = field("state") == self.consent.state;
            match received.path() {
                "/auth" if ours => {
                    answer(&mut stream, "307 Temporary Redirect", &format!("Location: {page}\r\n"), "").await;
                }
                "/auth" => answer(&mut stream, "403 Forbidden", "", "This link is of another log-in.").await,
                // Any program of this machine can come here: only who knows the state ends the wait.
                "/" if ours && (!field("error").is_empty() || field("code").is_empty()) => {
                    let why = [field("error"), field("error_description")].join(" ");
                    let why = if why.trim().is_empty() { "no code came" } else { why.trim() };
                    answer(&mut stream, "400 Bad Request", "", "It was refused. See the terminal.").await;
                    let message = format!("{} refused: {why}", self.consent.provider.title);
                    return Err(Error::new(ErrorKind::Unauthenticated, "log in", message));
                }
                "/" if ours => {
                    answer(&mut stream, "200 OK", "", "Done. Go back to the terminal.").await;
                    return Ok((field("code").to_owned(), self.consent));
                }
                "/" => answer(&mut stream, "400 Bad Request", "", "This answer is to another question.").await,
                _ => answer(&mut stream, "404 Not Found", "", "").await,
            }
        }
    }
}

/// The URL that a browser requests; `None` if it sent no valid request.
async fn target(stream: &mut TcpStream) -> Option<Url> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MOST || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next()?).into_owned();
    let mut words = line.split(' ');
    let path = words.next().filter(|method| *method == "GET").and(words.next())?;
    Url::parse("http://127.0.0.1/").ok()?.join(path).ok()
}

async fn answer(stream: &mut TcpStream, status: &str, headers: &str, text: &str) {
    let page = format!("<!doctype html><title>haul</title><p>{text}</p>\n");
    let length = page.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // A browser that disconnected needs no answer.
    let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
    let _ = stream.shutdown().await;
}
