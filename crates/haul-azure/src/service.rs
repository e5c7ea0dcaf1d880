//! One place that builds, signs, sends and counts requests; and where keys are.

use crate::{
    error::{ServiceError, plain, refused},
    options::{Auth, Config},
    sign,
    token::Source,
};
use bytes::Bytes;
use haul_core::{ErrorKind, Key, Result, Retry};
use haul_net::{Fault, FaultResult, Http, Reply, reach};
use haul_store::{
    Caps, Direction, Lanes, Meters, Net, Payload, batch,
    body::Pieces,
    bucket::{Root, ServiceWords},
    web::authority,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
};
use tokio::sync::OnceCell;

/// The version of the service that is spoken, …
const VERSION: &str = "2021-12-02";
/// … and one that can begin a listing at a name.
pub const RANGES: &str = "2026-02-06";
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// Azure's names for things in messages.
pub const WORDS: ServiceWords =
    ServiceWords { service: "Azure", bucket: "container", encoding: "--azureblob-encoding" };

/// A blob in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobAddress {
    pub container: String,
    /// Empty for the container itself.
    pub blob: Vec<u8>,
}

/// Where a key is. In a root of all containers its first part is the container.
///
/// Errors: `Invalid` for a name that the service can't have, or would take for another: it reads `\` as `/` and leaves out dots at
/// the end of a part.
pub fn place(root: &Root, key: &Key) -> Result<BlobAddress> {
    let (container, blob) = root.place(key)?;
    // An encoding would replace odd characters, but not a wrong name.
    let odd = |why| Err(root.refused_as_it_is(key, why));
    let Ok(text) = std::str::from_utf8(&blob) else { return odd("it isn't UTF-8") };
    if text.contains('\\') || text.chars().any(char::is_control) {
        return odd("it has a backslash or a control character");
    }
    if text.split('/').any(|part| part.ends_with('.')) {
        return odd("a part of it ends in a dot");
    }
    if text.chars().count() > 1024 {
        return Err(root.refused(key, "it is longer than 1024 characters"));
    }
    Ok(BlobAddress { container, blob })
}

/// Whether an account has real directories (a hierarchical namespace), which then set the order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    Flat,
    Hierarchical,
    /// The account doesn't say.
    Untold,
}

/// Everything that requests need, shared by the store and its uploads and listings.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    pub root: Root,
    pub caps: Caps,
    pub locator: String,
    pub http: Http<Pieces>,
    /// Where requests go with a token.
    pub token: Option<Source>,
    pub net: Net,
    pub meters: Arc<Meters>,
    pub lanes: Arc<Lanes>,
    /// The service looks at the CRC-64 of a block; unset before the first.
    pub crc64: OnceCell<bool>,
    /// It can't begin a listing at a name.
    pub whole_listings: AtomicBool,
    /// The kind of the account's namespace.
    pub namespace: OnceCell<Namespace>,
    /// It doesn't copy parts.
    pub whole_copies: AtomicBool,
    /// Containers that were missing and have been made.
    pub made: tokio::sync::Mutex<BTreeSet<String>>,
}

/// One request to come.
#[derive(Clone)]
pub struct Call {
    kind: &'static str,
    direction: Direction,
    method: Method,
    /// Below the service's address, encoded: `/container/blob`.
    path: String,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Payload,
    /// None where the request that it is a part of says it.
    version: Option<&'static str>,
}

impl Call {
    /// A request to the service itself; `kind` is Azure's name of it.
    pub fn service(kind: &'static str, method: Method) -> Call {
        let (direction, headers, body) = (Direction::Meta, HeaderMap::new(), Payload::default());
        let (path, query, version) = ("/".into(), Vec::new(), Some(VERSION));
        Call { kind, direction, method, path, query, headers, body, version }
    }

    /// A request to a container.
    pub fn container(kind: &'static str, method: Method, container: &str) -> Call {
        let path = format!("/{}", percent_encode(container.as_bytes(), PATH));
        Call { path, ..Call::service(kind, method) }.query("restype", "container")
    }

    /// A request to a blob.
    pub fn blob(kind: &'static str, method: Method, place: &BlobAddress) -> Call {
        Call { path: path(place), ..Call::service(kind, method) }
    }

    /// With a query parameter.
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// With a header whose value is known to be legal (left out otherwise).
    pub fn header(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// Of this version of the service.
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = Some(version);
        self
    }

    /// With more headers.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// With a body.
    pub fn body(mut self, direction: Direction, body: Payload) -> Self {
        (self.direction, self.body) = (direction, body);
        self
    }

    /// Of this direction.
    pub fn going(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }
}

fn path(place: &BlobAddress) -> String {
    format!("/{}/{}", percent_encode(place.container.as_bytes(), PATH), percent_encode(&place.blob, PATH))
}

impl Service {
    /// Where `key` is.
    ///
    /// Errors: `Invalid`, as [`place()`].
    pub fn place(&self, key: &Key) -> Result<BlobAddress> {
        place(&self.root, key)
    }

    /// The address of a blob, with a signature where we have no key: to copy from.
    pub fn source(&self, place: &BlobAddress) -> String {
        let sas = match &self.config.auth {
            Auth::Sas(sas) => format!("?{sas}"),
            _ => String::new(),
        };
        format!("{}{}{sas}", self.config.endpoint.as_str().trim_end_matches('/'), path(place))
    }

    /// Headers that name a blob to copy a part of: the service wants to see for itself that we may read it.
    pub async fn signed_source(&self, place: &BlobAddress) -> Result<HeaderMap, ServiceError> {
        let mut headers = HeaderMap::new();
        let mut source = self.source(place);
        if let Auth::Key(key) = &self.config.auth {
            let until = jiff::Timestamp::now() + sign::LASTS;
            let blob = String::from_utf8_lossy(&place.blob);
            source = format!("{source}?{}", sign::sas(&self.config.account, key, &place.container, &blob, until));
        }
        headers.insert("x-ms-copy-source", HeaderValue::from_str(&source).map_err(|e| bad(e.into()))?);
        if let Some(token) = &self.token {
            headers.insert("x-ms-copy-source-authorization", token.get(&self.http).await?);
        }
        Ok(headers)
    }

    /// Sends a request; any answer but success is a refusal.
    pub async fn call(&self, call: &Call) -> Result<Reply, ServiceError> {
        let bearer = match &self.token {
            Some(token) => Some(token.get(&self.http).await?),
            None => None,
        };
        self.net.gate.pass().await;
        let pass = self.lanes.lane(call.direction).enter().await;
        self.meters.request(call.kind);
        let request = self.request(call, bearer)?;
        let moves = request.body().progress();
        let begun = tokio::time::Instant::now();
        let result = self.http.send(request).await;
        let status = result.as_ref().map_or(0, |reply| reply.status.as_u16());
        tracing::debug!(request = call.kind, path = %call.path, status, ms = begun.elapsed().as_millis() as u64);
        let mut reply = match result {
            Ok(reply) => reply,
            Err(fault) => {
                pass.end(fault.outcome());
                return Err(fault.into());
            }
        };
        if self.net.dump_headers {
            tracing::info!(status, headers = ?reply.headers, "answer to {}", call.kind);
        }
        if reply.status.is_success() {
            pass.moved(call.body.len());
            reply.keep(pass);
            return Ok(reply);
        }
        let (status, headers) = (reply.status, reply.headers.clone());
        let body = reply.refusal().await.unwrap_or_default();
        // It was refused, and may be sent again: on this connection no more of it.
        moves.give_up();
        if self.config.endpoint.scheme() == "http" && reach::wants_tls(status, &body) {
            return Err(reach::needs_tls(&authority(&self.config.endpoint)).into());
        }
        let refused = refused(status, &headers, &body);
        pass.end(refused.fault.outcome());
        if refused.fault.kind == ErrorKind::Busy {
            self.meters.throttled();
        }
        Err(refused)
    }

    /// Sends requests without bodies as one; gives their answers, in their order.
    pub async fn ask_several(
        &self,
        container: &str,
        calls: &[Call],
    ) -> Result<Vec<batch::BatchResponse>, ServiceError> {
        let bearer = match &self.token {
            Some(token) => Some(token.get(&self.http).await?),
            None => None,
        };
        let mut requests = Vec::with_capacity(calls.len());
        for call in calls {
            requests.push(self.signed(&Call { version: None, ..call.clone() }, bearer.clone())?);
        }
        let whole = Call::container("Batch", Method::POST, container)
            .query("comp", "batch")
            .header("content-type", batch::TYPE)
            .body(Direction::Meta, batch::deletes(requests).into());
        let (headers, body) = self.ask(&whole).await?;
        let broken = || Fault::broken("the service doesn't say what became of each of several deletes");
        Ok(batch::answers(&headers, &body, calls.len()).ok_or_else(broken)?)
    }

    /// Finds out the account's kind, once, by a request to this container.
    pub async fn namespace(&self, container: &str) -> Namespace {
        let ask = async {
            let mut call = Call::service("GetAccountInformation", Method::GET);
            if self.config.container.is_some() {
                // A signature for one container can ask by way of that.
                call.path = format!("/{}", percent_encode(container.as_bytes(), PATH));
            }
            let answer = self.ask(&call.query("restype", "account").query("comp", "properties")).await;
            match answer.as_ref().ok().and_then(|(headers, _)| headers.get("x-ms-is-hns-enabled")?.to_str().ok()) {
                Some("false") => Namespace::Flat,
                Some("true") => Namespace::Hierarchical,
                _ => Namespace::Untold,
            }
        };
        *self.namespace.get_or_init(|| ask).await
    }

    /// Sends a request and reads its (small) answer.
    pub async fn ask(&self, call: &Call) -> Result<(HeaderMap, Bytes), ServiceError> {
        let reply = self.call(call).await?;
        let headers = reply.headers.clone();
        Ok((headers, reply.bytes().await?))
    }

    /// Sends a request that writes into a container, which is created if it is missing.
    pub async fn ask_in(&self, container: &str, call: &Call) -> Result<(HeaderMap, Bytes), ServiceError> {
        match self.ask(call).await {
            Err(refused) if refused.code == "ContainerNotFound" && !self.config.no_check_container => {
                let mut made = self.made.lock().await;
                if !made.contains(container) {
                    self.create(container).await?;
                    made.insert(container.to_owned());
                }
                drop(made);
                self.ask(call).await
            }
            other => other,
        }
    }

    /// Creates a container; already being there is success.
    pub async fn create(&self, container: &str) -> FaultResult<()> {
        match self.ask(&Call::container("CreateContainer", Method::PUT, container)).await {
            Err(refused) if refused.code == "ContainerAlreadyExists" => Ok(()),
            other => plain(other).map(|_| ()),
        }
    }

    /// Path and query of a request, and its headers including credentials.
    fn signed(&self, call: &Call, bearer: Option<HeaderValue>) -> FaultResult<(String, HeaderMap)> {
        let mut headers = call.headers.clone();
        let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        headers.insert("x-ms-date", HeaderValue::from_str(&date).map_err(|e| bad(e.into()))?);
        if let Some(version) = call.version {
            headers.insert("x-ms-version", HeaderValue::from_static(version));
        }
        // An empty PUT or POST must say so.
        if matches!(call.method, Method::PUT | Method::POST) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(call.body.len()));
        }
        let base = self.config.endpoint.path().trim_end_matches('/');
        let path = format!("{base}{}", call.path);
        let encode = |(name, value): &(&str, String)| format!("{name}={}", percent_encode(value.as_bytes(), QUERY));
        let mut query: Vec<String> = call.query.iter().map(encode).collect();
        match &self.config.auth {
            Auth::Key(key) => {
                let account = &self.config.account;
                let text = sign::text(&call.method, &headers, account, &path, &call.query);
                let value = HeaderValue::from_str(&sign::authorization(account, key, &text));
                let mut value = value.map_err(|e| bad(e.into()))?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
            Auth::Sas(sas) => query.push(sas.clone()),
            Auth::Token(_) | Auth::Anonymous => {
                bearer.into_iter().for_each(|bearer| drop(headers.insert(header::AUTHORIZATION, bearer)));
            }
        }
        let question = if query.is_empty() { "" } else { "?" };
        Ok((format!("{path}{question}{}", query.join("&")), headers))
    }

    fn request(&self, call: &Call, bearer: Option<HeaderValue>) -> FaultResult<Request<Pieces>> {
        let mut call = call.clone();
        self.net.headers.add(call.direction, &mut call.headers);
        if let Ok(agent) = HeaderValue::from_str(&self.net.user_agent) {
            call.headers.insert(header::USER_AGENT, agent);
        }
        let (target, headers) = self.signed(&call, bearer)?;
        if self.net.dump_headers {
            let shown: Vec<_> = headers
                .iter()
                .filter(|(name, _)| *name != header::AUTHORIZATION && !name.as_str().starts_with("x-ms-copy-source"))
                .collect();
            // The query string may be a secret.
            let path = target.split('?').next();
            tracing::info!(method = %call.method, path, headers = ?shown, "request {}", call.kind);
        }
        let origin = format!("{}://{}", self.config.endpoint.scheme(), authority(&self.config.endpoint));
        let uri = format!("{origin}{target}");
        let request = Request::builder().method(call.method.clone()).uri(uri).body(Pieces::new(call.body.clone()));
        let mut request = request.map_err(bad)?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

fn bad(e: http::Error) -> Box<Fault> {
    Fault::new(ErrorKind::Invalid, Retry::Never, format!("no such request: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::encoding::Encoding;

    #[test]
    fn names_that_would_be_taken_for_others_are_refused() {
        let root = Root::parse(&WORDS, b"/box/d").unwrap();
        assert_eq!(
            place(&root, &Key::new("a b")).unwrap(),
            BlobAddress { container: "box".into(), blob: b"d/a b".to_vec() }
        );
        for bad in ["a\\b", "a.", "d./x", "..", "x/./y", "a\nb"] {
            assert_eq!(place(&root, &Key::new(bad)).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
        let all = Root::parse(&WORDS, b"").unwrap();
        assert_eq!(
            place(&all, &Key::new("box/x")).unwrap(),
            BlobAddress { container: "box".into(), blob: b"x".to_vec() }
        );
    }

    #[test]
    fn names_are_encoded_below_the_container() {
        let encoding = Encoding::chosen("Slash,BackSlash,Del,Ctl,RightPeriod,InvalidUtf8").unwrap();
        let root = Root::parse(&WORDS, b"/box/d.").unwrap().encoded(encoding).unwrap();
        let blob = |key: &[u8]| place(&root, &Key::new(key)).map(|place| String::from_utf8(place.blob).unwrap());
        assert_eq!(blob(b"a\\b./c\td\xff").unwrap(), "d．/a＼b．/c␉d‛FF");
        assert_eq!(blob(b"").unwrap(), "d．/");
        for (bad, why) in [
            (&b"a//b"[..], "a part of it is empty"),
            (b"x/./y", "with this encoding it would come back as another"),
            ("a\u{85}b".as_bytes(), "it has a backslash or a control character"),
        ] {
            let message = blob(bad).unwrap_err().message().to_owned();
            assert_eq!(message, format!("Azure can't hold this name: {why}; rename it"));
        }
        let all = Root::parse(&WORDS, b"").unwrap().encoded(encoding).unwrap();
        assert_eq!(place(&all, &Key::new("box/a.")).unwrap().blob, "a．".as_bytes());
        let raw = place(&Root::parse(&WORDS, b"box").unwrap(), &Key::new("a.")).unwrap_err().message().to_owned();
        let wanted =
            "a part of it ends in a dot; rename it, or replace characters as rclone does (--azureblob-encoding)";
        assert_eq!(raw, format!("Azure can't hold this name: {wanted}"));
    }
}
