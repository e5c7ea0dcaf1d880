//! Requests to stores that are folders at a URL (`http`, `webdav`): counted, in lanes, with the user's headers and ours; and what
//! such servers say of a file in their headers.

use crate::{
    Caps, ChangedMeaning, Direction, Lanes, Meters, OpenRequest, Payload, body::Pieces, token_command::TokenCommand,
    tree,
};
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Key, Mtime, Result, Retry, Version,
    encoding::{Encoding, name_of},
};
use haul_net::{Fault, FaultResult, Header, Http, Net, Reply, reach};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use std::{ops::Range, sync::Arc, time::Duration};
use url::Url;

/// Redirects that one request follows at most, as in Go.
const MAX_REDIRECTS: usize = 10;

/// A folder at a URL, and the client to ask it.
#[derive(Debug)]
pub struct Web {
    /// The root: it ends in `/`.
    pub root: Url,
    http: Http<Pieces>,
    net: Net,
    meters: Arc<Meters>,
    /// Places for requests.
    pub lanes: Arc<Lanes>,
    /// Headers of every request to this host.
    headers: HeaderMap,
    /// Gives out the token that stands in for user and password.
    token: Option<TokenCommand>,
    /// How keys are names; `None` where they are.
    pub encoding: Option<Encoding>,
}

/// One request.
pub struct Call {
    /// Its name for counts.
    pub kind: &'static str,
    /// Its direction, which picks the concurrency limit.
    pub direction: Direction,
    /// Its method.
    pub method: Method,
    /// Where to.
    pub url: Url,
    /// Its own headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Payload,
}

/// An answer, and the place that gave it: another one than was asked where the server pointed there.
pub struct WebResponse {
    /// The place.
    pub url: Url,
    /// The answer.
    pub reply: Reply,
}

impl Call {
    /// A request without a body.
    pub fn new(kind: &'static str, direction: Direction, method: Method, url: Url) -> Call {
        Call { kind, direction, method, url, headers: HeaderMap::new(), body: Payload::default() }
    }

    /// With a header whose value is known to be legal (left out otherwise).
    pub fn header(mut self, name: HeaderName, value: impl AsRef<str>) -> Call {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }
}

impl Web {
    /// The folder at the option `url` and, below it, the path; `headers` go with each request.
    ///
    /// Errors: `Invalid` for what isn't a URL, or a header.
    pub fn open(request: &OpenRequest, kind: &str, headers: HeaderMap) -> Result<Web> {
        let bad = |message: String| Error::new(ErrorKind::Invalid, "open", message);
        let typed = request.options.get("url").map(|url| url.trim()).unwrap_or_default();
        if typed.is_empty() {
            return Err(bad(format!("{}: no url is set: set one with haul config, or --{kind}-url", request.remote)));
        }
        let named = if typed.contains("://") { typed.to_owned() } else { format!("https://{typed}") };
        let root = Url::parse(&named).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let mut root =
            root.ok_or_else(|| bad(format!("url {typed:?} isn't a directory's address: write https://HOST/PATH")))?;
        root.set_query(None);
        root.set_fragment(None);
        let mut own = headers;
        if let Some(auth) = basic(&decoded(root.username()), &decoded(root.password().unwrap_or_default())) {
            // A password in a URL would be shown in messages.
            own.entry(header::AUTHORIZATION).or_insert(auth);
            let _ = (root.set_username(""), root.set_password(None));
        }
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", root.path()));
        }
        let below = request.path.strip_prefix(b"/").unwrap_or(&request.path);
        let encoding = Encoding::chosen(request.options.get("encoding").map(String::as_str).unwrap_or_default())?;
        if !below.is_empty() {
            let below = name_of(encoding, below)
                .map_err(|why| bad(format!("{}: no path on this server: {why}", String::from_utf8_lossy(below))))?;
            let below = if below.ends_with(b"/") { below } else { [&below[..], b"/"].concat() };
            if below[..below.len() - 1].split(|b| *b == b'/').any(tree::is_odd) {
                return Err(bad(format!("{}: can't be a path on this server", String::from_utf8_lossy(&below))));
            }
            root.set_path(&format!("{}{}", root.path(), encoded(&below)));
        }
        let http = Http::new(&request.net, root.scheme() == "https")?;
        let host = authority(&root);
        let lanes = request.net.roads.to(&format!("{kind}:{}://{host}", root.scheme()), &host);
        let token = request.options.get("bearer_token_command").and_then(|typed| TokenCommand::new(typed));
        let (net, meters) = (request.net.clone(), request.meters.clone());
        Ok(Web { root, http, net, meters, lanes, headers: own, token, encoding })
    }

    /// Where `key` is.
    ///
    /// Errors: `Invalid` for a name that such a server can't have.
    pub fn url(&self, key: &Key) -> Result<Url> {
        below(&self.root, &self.named(key)?)
    }

    /// The key as the server's names have it.
    ///
    /// Errors: `Invalid` for one that would come back as another.
    pub fn named(&self, key: &Key) -> Result<Key> {
        let wrong =
            |why| Error::new(ErrorKind::Invalid, "name", format!("this can't be a name there: {why}")).with_key(key);
        name_of(self.encoding, key.as_bytes()).map(Key::new).map_err(wrong)
    }

    /// Sends a request; any answer but success is a fault. It is not sent on elsewhere.
    pub async fn ask(&self, call: Call) -> FaultResult<Reply> {
        let (mut reply, pass) = self.send(&call, true).await?;
        if reply.status.is_success() {
            pass.moved(call.body.len());
            reply.keep(pass);
            return Ok(reply);
        }
        let (status, headers) = (reply.status, reply.headers.clone());
        let body = reply.bytes().await.unwrap_or_default();
        if call.url.scheme() == "http" && reach::wants_tls(status, &body) {
            return Err(reach::needs_tls(&authority(&call.url)));
        }
        let fault = Fault::answer(status, &headers, None);
        pass.end(fault.outcome());
        if fault.kind == ErrorKind::Busy && !fault.is_locked() {
            self.meters.throttled();
        }
        Err(fault)
    }

    /// Sends a GET or HEAD and follows redirects. Credentials aren't sent to another host.
    pub async fn follow(&self, mut call: Call) -> FaultResult<WebResponse> {
        for _ in 0..=MAX_REDIRECTS {
            let own = same_host(&call.url, &self.root);
            let (mut reply, pass) = self.send(&call, own).await?;
            let to = reply.status.is_redirection().then(|| reply.header("location")).flatten();
            if let Some(to) =
                to.and_then(|to| call.url.join(to).ok()).filter(|to| matches!(to.scheme(), "http" | "https"))
            {
                let _ = reply.bytes().await;
                pass.end(haul_core::concurrency::RequestResult::Done);
                call.url = to;
                continue;
            }
            if reply.status.is_success() {
                reply.keep(pass);
                return Ok(WebResponse { url: call.url, reply });
            }
            let (status, headers) = (reply.status, reply.headers.clone());
            let body = reply.bytes().await.unwrap_or_default();
            if call.url.scheme() == "http" && reach::wants_tls(status, &body) {
                return Err(reach::needs_tls(&authority(&call.url)));
            }
            let fault = Fault::answer(status, &headers, None);
            pass.end(fault.outcome());
            if fault.kind == ErrorKind::Busy && !fault.is_locked() {
                self.meters.throttled();
            }
            return Err(fault);
        }
        Err(Fault::new(ErrorKind::Invalid, Retry::Never, "the server points from one place to another without an end"))
    }

    /// Sends a request, and once more with another token if the command gives one.
    async fn send(&self, call: &Call, own: bool) -> FaultResult<(Reply, crate::lanes::LanePermit)> {
        let Some(command) = self.token.as_ref().filter(|_| own) else { return self.send_once(call, own, None).await };
        let fault_of = |error: Error| Fault::new(error.kind(), error.retry(), error.message());
        let token = command.get(None).await.map_err(fault_of)?;
        let (reply, pass) = self.send_once(call, own, Some(token.clone())).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok((reply, pass));
        }
        let fresh = command.get(Some(&token)).await.map_err(fault_of)?;
        if fresh == token {
            return Ok((reply, pass));
        }
        let _ = reply.bytes().await;
        pass.end(haul_core::concurrency::RequestResult::Done);
        self.send_once(call, own, Some(fresh)).await
    }

    async fn send_once(
        &self,
        call: &Call,
        own: bool,
        token: Option<HeaderValue>,
    ) -> FaultResult<(Reply, crate::lanes::LanePermit)> {
        self.net.gate.pass().await;
        let pass = self.lanes.lane(call.direction).enter().await;
        self.meters.request(call.kind);
        let mut headers = if own { self.headers.clone() } else { HeaderMap::new() };
        headers.extend(call.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        if let Ok(agent) = HeaderValue::from_str(&self.net.user_agent) {
            headers.insert(header::USER_AGENT, agent);
        }
        if own {
            self.net.headers.add(call.direction, &mut headers);
        }
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, token);
        }
        if self.net.dump_headers {
            let shown: Vec<_> = headers.iter().filter(|(name, _)| *name != header::AUTHORIZATION).collect();
            tracing::info!(method = %call.method, url = %call.url, headers = ?shown, "request {}", call.kind);
        }
        let body = Pieces::new(call.body.clone());
        let moves = body.progress();
        let request = Request::builder().method(call.method.clone()).uri(call.url.as_str()).body(body);
        let mut request =
            request.map_err(|e| Fault::new(ErrorKind::Invalid, Retry::Never, format!("no such request: {e}")))?;
        *request.headers_mut() = headers;
        if call.method == Method::PUT {
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(call.body.len()));
        }
        let begun = tokio::time::Instant::now();
        let result = self.http.send(request).await;
        let status = result.as_ref().map_or(0, |reply| reply.status.as_u16());
        // The query string may hold a signature or a token.
        let url = call.url.as_str().split('?').next().unwrap_or_default();
        tracing::debug!(request = call.kind, url, status, ms = begun.elapsed().as_millis() as u64);
        match result {
            Ok(reply) => {
                if self.net.dump_headers {
                    tracing::info!(status, headers = ?reply.headers, "answer to {}", call.kind);
                }
                if !reply.status.is_success() {
                    // It was refused: on this connection no more of it.
                    moves.give_up();
                }
                Ok((reply, pass))
            }
            Err(fault) => {
                pass.end(fault.outcome());
                Err(fault)
            }
        }
    }
}

/// Where `key` is below `root`.
///
/// Errors: `Invalid` for a name that such a server can't have.
pub fn below(root: &Url, key: &Key) -> Result<Url> {
    let bytes = key.as_bytes();
    let plain = bytes.strip_suffix(b"/").unwrap_or(bytes);
    if !bytes.is_empty() && plain.split(|b| *b == b'/').any(tree::is_odd) {
        return Err(Error::new(ErrorKind::Invalid, "name", "this can't be a name on a web server").with_key(key));
    }
    let mut url = root.clone();
    url.set_path(&format!("{}{}", root.path(), encoded(bytes)));
    Ok(url)
}

/// Caps of a read-only folder at a URL.
pub fn caps() -> Caps {
    Caps {
        mtime: Some(Duration::from_secs(1)),
        set_mtime: false,
        set_dir_mtime: false,
        mtime_listed: true,
        changed: ChangedMeaning::Stored,
        dirs: true,
        symlinks: false,
        keeps_empty_dirs: true,
        hashes_listed: Vec::new(),
        hashes_stored: Vec::new(),
        cheap_reads: false,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: None,
        relays: false,
        domain: None,
        place: None,
        renames: true,
        renames_dirs: false,
        delete_batch: 1,
        copy_batch: 1,
        conditional: false,
        deletes_version: false,
        page: None,
        case_insensitive: false,
        meta: false,
        attributes: None,
        modes: false,
        concurrency: 32,
        gathers: 0,
        rests_on: Vec::new(),
    }
}

/// A user and a password as a header; `None` where there is neither.
pub fn basic(user: &[u8], password: &[u8]) -> Option<HeaderValue> {
    use base64::{Engine, engine::general_purpose::STANDARD as B64};
    if user.is_empty() && password.is_empty() {
        return None;
    }
    let value = format!("Basic {}", B64.encode([user, b":", password].concat()));
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// rclone's option `headers`: names and values by turns, in one line of CSV.
///
/// Errors: `Invalid`.
pub fn headers(text: &str) -> Result<HeaderMap> {
    let fields = haul_core::text::csv(text);
    let bad = || {
        let message = "headers must be names and values by turns, separated by commas: \"Name\",\"value\"";
        Error::new(ErrorKind::Invalid, "open", message)
    };
    let fields: Vec<&str> = fields.iter().map(|field| field.trim()).filter(|field| !field.is_empty()).collect();
    if !fields.len().is_multiple_of(2) {
        return Err(bad());
    }
    let mut map = HeaderMap::new();
    for pair in fields.chunks(2) {
        let header = Header::new(pair[0], pair[1]).ok_or_else(bad)?;
        header.insert_into(&mut map);
    }
    Ok(map)
}

/// Bytes of a path as they stand in a URL.
pub fn encoded(path: &[u8]) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    percent_encode(path, KEPT).to_string()
}

/// Bytes that stand in a URL.
pub fn decoded(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

/// Host and port.
pub fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// True when both are of one scheme, host and port.
pub fn same_host(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme() && a.host_str() == b.host_str() && a.port_or_known_default() == b.port_or_known_default()
}

/// What a server reports about a version of a file, in an answer or a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the whole.
    pub size: u64,
    /// When it was changed.
    pub modified: Option<Mtime>,
    /// Its ETag, without the mark of a weak one: servers call one weak while it is new.
    pub etag: Option<String>,
}

impl Facts {
    /// From an answer's headers, of which the size was found out already.
    pub fn of(headers: &HeaderMap, size: u64) -> Facts {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        Facts { size, modified: text(header::LAST_MODIFIED).and_then(date), etag: text(header::ETAG).and_then(etag) }
    }

    /// As a file's entry.
    pub fn entry(&self, key: Key) -> Entry {
        Entry { mtime: self.modified, changed: self.modified, version: self.version(), ..Entry::file(key, self.size) }
    }

    /// The version that pins it; `None` where the server sends neither an ETag nor a time.
    pub fn version(&self) -> Option<Version> {
        if self.etag.is_none() && self.modified.is_none() {
            return None;
        }
        let modified = self.modified.map(|time| time.secs().to_string()).unwrap_or_default();
        Some(Version::new(format!("{}\n{modified}\n{}", self.size, self.etag.as_deref().unwrap_or_default())))
    }

    /// Whether it may be the version that was seen earlier: by its ETag where both have one, else by size and time.
    pub fn may_be(&self, earlier: &Version) -> bool {
        let Some(earlier) = Facts::read(earlier) else { return false };
        match (&self.etag, &earlier.etag) {
            (Some(now), Some(then)) => now == then && self.size == earlier.size,
            _ => {
                let times = self.modified.zip(earlier.modified);
                self.size == earlier.size && times.is_none_or(|(now, then)| now == then)
            }
        }
    }

    /// These facts with the time of the version seen earlier, where the answer has no time: Go's servers omit a Last-Modified in the first
    /// second of 1970.
    #[must_use]
    pub fn dated_as(self, earlier: &Version) -> Facts {
        let modified = self.modified.or_else(|| Facts::read(earlier)?.modified);
        Facts { modified, ..self }
    }

    /// The ETag in a version, as a condition names it.
    pub fn etag_of(version: &Version) -> Option<String> {
        Facts::read(version)?.etag.filter(|etag| etag.len() > 1 && etag.starts_with('"') && etag.ends_with('"'))
    }

    fn read(version: &Version) -> Option<Facts> {
        let text = std::str::from_utf8(&version.0).ok()?;
        let mut lines = text.splitn(3, '\n');
        let size = lines.next()?.parse().ok()?;
        let modified = lines.next()?.parse().ok().map(|secs| Mtime::new(secs, 0));
        let etag = lines.next().filter(|etag| !etag.is_empty()).map(str::to_owned);
        Some(Facts { size, modified, etag })
    }
}

/// A time as HTTP writes it.
pub fn date(text: &str) -> Option<Mtime> {
    let time = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    Some(Mtime::new(time.timestamp().as_second(), 0))
}

/// An ETag without the mark of a weak one.
pub fn etag(text: &str) -> Option<String> {
    let text = text.trim();
    Some(text.strip_prefix("W/").unwrap_or(text).to_owned()).filter(|etag| !etag.is_empty())
}

/// The bytes of `range`, of an answer that [`carried`] `length`.
pub fn content(reply: Reply, range: Option<&Range<u64>>, length: u64, key: &Key) -> BoxStream<'static, Result<Bytes>> {
    let ignored =
        range.filter(|range| reply.status == StatusCode::OK && length > range.end - range.start.min(range.end));
    let (key, part) = (key.clone(), ignored.cloned());
    let pieces = reply.stream(length).map(move |piece| piece.map_err(|e| e.with_key(&key)));
    let Some(part) = part else { return pieces.boxed() };
    let cut = pieces.scan(0, move |at, piece| {
        let piece = piece.map(|mut piece| {
            let from = *at;
            *at += piece.len() as u64;
            let begin = part.start.saturating_sub(from).min(piece.len() as u64) as usize;
            let end = part.end.saturating_sub(from).min(piece.len() as u64) as usize;
            if begin < end { piece.split_to(end).split_off(begin) } else { Bytes::new() }
        });
        // The end of the answer after the part isn't waited for.
        let over = *at >= part.end && piece.as_ref().is_ok_and(Bytes::is_empty);
        std::future::ready((!over).then_some(piece))
    });
    cut.filter(|piece| std::future::ready(!piece.as_ref().is_ok_and(Bytes::is_empty))).boxed()
}

/// Content length of an answer to a GET of `range`, and the size of the whole.
///
/// Errors: the server sent something other than requested, or less than all of the part.
pub fn carried(reply: &Reply, range: Option<&Range<u64>>) -> FaultResult<(u64, u64)> {
    let encoded = reply.header("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"));
    if encoded {
        return Err(Fault::new(
            ErrorKind::Unsupported,
            Retry::Never,
            "the server sends the content in another encoding",
        ));
    }
    carried_as_stored(reply, range)
}

/// As [`carried`], where a content encoding is the one that the content is stored in, so that the bytes are the stored ones.
///
/// Errors: as [`carried`].
pub fn carried_as_stored(reply: &Reply, range: Option<&Range<u64>>) -> FaultResult<(u64, u64)> {
    let length = reply.header("content-length").and_then(|v| v.trim().parse::<u64>().ok());
    let length = length.ok_or_else(|| {
        Fault::new(ErrorKind::Unsupported, Retry::Never, "the server doesn't say how long the content is")
    })?;
    match (range, reply.status) {
        (None, StatusCode::OK) => Ok((length, length)),
        (Some(range), StatusCode::PARTIAL_CONTENT) => {
            let whole = reply.header("content-range").and_then(|header| part_of(header, range, length));
            let whole = whole.ok_or_else(|| Fault::broken("the server sent another range than was asked for"))?;
            Ok((length, whole))
        }
        // A server may ignore a range that covers everything.
        (Some(range), StatusCode::OK) if range.start == 0 && length <= range.end => Ok((length, length)),
        // Others send all of it, of which the part is then cut out.
        (Some(_), StatusCode::OK) => Ok((length, length)),
        (_, status) => Err(Fault::broken(format!("the server answered {} to a read", status.as_u16()))),
    }
}

/// The longest file that is believed, in bytes: more than any service takes, and what every program can read in JSON. Of longer ones no two
/// could be added up.
const LONGEST: u64 = 1 << 53;

/// A size as a service tells it; `None` for what can't be one.
pub fn believed(size: u64) -> Option<u64> {
    Some(size).filter(|size| *size <= LONGEST)
}

/// The size of the whole from `bytes 0-9/100`, which must start where we asked.
fn part_of(header: &str, range: &Range<u64>, length: u64) -> Option<u64> {
    let (span, whole) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last, whole) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, whole.parse::<u64>().ok()?);
    let right = first == range.start && last < range.end && last.checked_sub(first)? + 1 == length;
    // Less than was asked for only at the end.
    (right && (last + 1 == range.end || last + 1 == whole)).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_by_its_etag_else_by_size_and_time() {
        let facts = |size, secs: Option<i64>, etag: Option<&str>| Facts {
            size,
            modified: secs.map(|secs| Mtime::new(secs, 0)),
            etag: etag.map(str::to_owned),
        };
        assert_eq!(facts(5, None, None).version(), None);
        let then = facts(5, Some(7), Some("\"a\"")).version().unwrap();
        assert!(facts(5, Some(9), Some("\"a\"")).may_be(&then));
        assert!(!facts(5, Some(7), Some("\"b\"")).may_be(&then));
        assert!(facts(5, Some(7), None).may_be(&then) && !facts(5, Some(8), None).may_be(&then));
        assert!(!facts(6, Some(7), None).may_be(&then));
        assert!(!facts(5, Some(7), None).may_be(&Version::new("never was")));
        assert_eq!(etag("W/\"a\""), etag("\"a\""));
    }

    #[test]
    fn a_part_must_be_the_range_asked_for() {
        assert_eq!(part_of("bytes 5-9/100", &(5..10), 5), Some(100));
        assert_eq!(part_of("bytes 5-7/8", &(5..10), 3), Some(8));
        for bad in ["bytes 0-4/100", "bytes 5-9/*", "bytes 5-11/100", "bytes 5-7/100", "bytes 9-5/100"] {
            assert_eq!(part_of(bad, &(5..10), 5), None, "{bad}");
        }
    }

    #[test]
    fn times_before_1970_too() {
        assert_eq!(date("Wed, 31 Dec 1969 23:59:55 GMT"), Some(Mtime::new(-5, 0)));
        assert_eq!(date(" Tue, 02 Jan 2024 03:04:05 GMT "), Some(Mtime::new(1_704_164_645, 0)));
        assert_eq!(date("soon"), None);
    }

    #[test]
    fn headers_of_the_config_file() {
        let map = headers("\"Cookie\",\"a=b; c=d\",X-Y,z").unwrap();
        assert_eq!((map["cookie"].as_bytes(), map["x-y"].as_bytes()), (&b"a=b; c=d"[..], &b"z"[..]));
        assert!(headers("").unwrap().is_empty());
        assert!(headers("a,b,c").is_err());
    }

    #[test]
    fn an_answer_without_a_time_has_the_one_that_was_seen() {
        let seen = Facts { size: 3, modified: Some(Mtime::new(0, 0)), etag: None };
        let (now, other) = (Facts { modified: None, ..seen.clone() }, Some(Mtime::new(9, 0)));
        assert_eq!(now.dated_as(&seen.version().unwrap()).modified, seen.modified);
        assert_eq!(Facts { modified: other, ..seen.clone() }.dated_as(&seen.version().unwrap()).modified, other);
    }
}
