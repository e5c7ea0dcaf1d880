//! Azurite as it would be with what the service has since: listings that begin at a name (`startFrom`), a look at the CRC-64 of blocks,
//! blocks that are copied from other blobs, and accounts with directories of their own. Microsoft's own client passes on it.

use crate::{
    proxy::pass,
    serve::{Body, Server, answer},
};
use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use haul_core::{Algo, hash::hash_bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, body::Incoming, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// The first version whose listings begin at a name.
const BEGINS: &str = "2026-02-06";
const CRC64: &str = "x-ms-content-crc64";

/// A running one.
#[derive(Debug)]
pub struct NewerAzure {
    server: Server,
    counts: Arc<Counts>,
}

/// Uses of the newer features.
#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    checked: AtomicUsize,
    copied: AtomicUsize,
    /// So many more are copied before one isn't.
    spared: AtomicUsize,
    /// The account has a hierarchical namespace.
    hierarchical: bool,
}

impl NewerAzure {
    /// Starts one before an Azurite.
    ///
    /// Panics if there is no port to be had.
    pub fn start(azurite: SocketAddr) -> NewerAzure {
        NewerAzure::with(azurite, false)
    }

    /// The same, whose account has a hierarchical namespace: directories are blobs without content, there for each that has something
    /// in it, and deleted only when they are empty.
    pub fn hierarchical(azurite: SocketAddr) -> NewerAzure {
        NewerAzure::with(azurite, true)
    }

    fn with(azurite: SocketAddr, hierarchical: bool) -> NewerAzure {
        let counts = Arc::new(Counts { spared: usize::MAX.into(), hierarchical, ..Counts::default() });
        let own = counts.clone();
        // It has a runtime of its own, which no test's may start.
        let start = move || Server::start(move |request, _| serve(own.clone(), azurite, request));
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        NewerAzure { server, counts }
    }

    /// The address of the account that Azurite has.
    pub fn account(&self) -> String {
        format!("{}/devstoreaccount1", self.server.endpoint())
    }

    /// Pages of listings that were to begin at a name.
    pub fn begun(&self) -> usize {
        self.counts.begun.load(SeqCst)
    }

    /// Blocks that were copied from another blob.
    pub fn copied(&self) -> usize {
        self.counts.copied.load(SeqCst)
    }

    /// So many more blocks are copied, then one is refused.
    pub fn spare(&self, count: usize) {
        self.counts.spared.store(count, SeqCst);
    }

    /// Blocks that came with the right CRC-64.
    pub fn checked(&self) -> usize {
        self.counts.checked.load(SeqCst)
    }
}

/// A signature for Azurite's account, as its owner makes it.
pub fn signature() -> String {
    // Azurite's own key.
    const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    let (rights, until, protocols, version) = ("rwdlacup", "2099-01-01T00:00:00Z", "https,http", "2019-12-12");
    let text = format!("devstoreaccount1\n{rights}\nb\nsco\n\n{until}\n\n{protocols}\n{version}\n");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &B64.decode(KEY).expect("a key"));
    let sig = B64.encode(hmac::sign(&key, text.as_bytes())).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("sv={version}&ss=b&srt=sco&sp={rights}&se={until}&spr={protocols}&sig={sig}")
}

/// What Azurite has of a source: it sees for itself whether it may be read.
async fn source(azurite: SocketAddr, headers: &HeaderMap) -> io::Result<Result<Bytes, Response<Body>>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let target = text("x-ms-copy-source").splitn(4, '/').nth(3).unwrap_or_default();
    let mut get = Request::builder().method(Method::GET).uri(format!("/{target}")).header("x-ms-version", "2021-12-02");
    get = get.header(header::HOST, azurite.to_string());
    for (theirs, ours) in [("x-ms-source-range", "x-ms-range"), ("x-ms-source-if-match", "if-match")] {
        if !text(theirs).is_empty() {
            get = get.header(ours, text(theirs));
        }
    }
    let response = pass(get.body(Full::default()).map_err(io::Error::other)?, azurite).await?;
    match response.status() {
        status if status.is_success() => {
            Ok(Ok(response.into_body().collect().await.map_err(io::Error::other)?.to_bytes()))
        }
        StatusCode::PRECONDITION_FAILED => refuse(StatusCode::PRECONDITION_FAILED, "SourceConditionNotMet").map(Err),
        status => refuse(status, "CannotVerifyCopySource").map(Err),
    }
}

fn refuse(status: StatusCode, code: &'static str) -> io::Result<Response<Body>> {
    let mut response = answer(status, format!("<Error><Code>{code}</Code><Message>A refusal.</Message></Error>"))?;
    response.headers_mut().insert("x-ms-error-code", header::HeaderValue::from_static(code));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/xml"));
    Ok(response)
}

/// The name of a blob, encoded, and the address of its container.
fn named(path: &str) -> Option<(&str, &str)> {
    let (at, _) = path.match_indices('/').nth(2)?;
    Some((&path[..at], &path[at + 1..]))
}

/// Asks Azurite something of the account.
async fn ask(azurite: SocketAddr, method: Method, target: String, folder: bool) -> io::Result<Response<Body>> {
    let mut request = Request::builder().method(method).uri(format!("{target}&{}", signature()));
    request = request.header("x-ms-version", "2021-12-02").header(header::CONTENT_LENGTH, 0);
    request = request.header(header::HOST, azurite.to_string());
    if folder {
        request = request.header("x-ms-blob-type", "BlockBlob").header("x-ms-meta-hdi_isfolder", "true");
        request = request.header(header::IF_NONE_MATCH, "*");
    }
    pass(request.body(Full::default()).map_err(io::Error::other)?, azurite).await
}

/// Whether a directory has something in it.
async fn is_full(azurite: SocketAddr, container: &str, name: &str) -> io::Result<bool> {
    let target = format!("{container}?restype=container&comp=list&maxresults=1&prefix={name}%2F");
    let listed =
        ask(azurite, Method::GET, target, false).await?.into_body().collect().await.map_err(io::Error::other)?;
    Ok(String::from_utf8_lossy(&listed.to_bytes()).contains("<Blob>"))
}

async fn serve(counts: Arc<Counts>, azurite: SocketAddr, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let mut body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let from = query.split('&').find_map(|pair| pair.strip_prefix("startFrom="));
    if let Some(from) = from {
        let version = parts.headers.get("x-ms-version").and_then(|version| version.to_str().ok()).unwrap_or_default();
        if version < BEGINS {
            return refuse(StatusCode::BAD_REQUEST, "InvalidQueryParameterValue");
        }
        counts.begun.fetch_add(1, SeqCst);
        let query = translated(&query, from);
        let target = format!("{}?{query}", parts.uri.path());
        parts.uri = target.parse().map_err(io::Error::other)?;
    }
    let mut changed = false;
    if parts.headers.contains_key("x-ms-copy-source") && query.split('&').any(|pair| pair == "comp=block") {
        if counts.spared.fetch_sub(1, SeqCst) == 0 {
            return refuse(StatusCode::BAD_REQUEST, "ToldToFail");
        }
        body = match source(azurite, &parts.headers).await? {
            Ok(body) => body,
            Err(refusal) => return Ok(refusal),
        };
        counts.copied.fetch_add(1, SeqCst);
        let theirs: Vec<_> = parts.headers.keys().filter(|name| name.as_str().contains("-source")).cloned().collect();
        for name in theirs.into_iter().chain([header::CONTENT_LENGTH]) {
            parts.headers.remove(name);
        }
        parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
        changed = true;
    }
    // Azurite refuses it.
    let reported = parts.headers.remove(CRC64);
    // What was signed is another request now.
    if (changed || reported.is_some()) && parts.headers.remove(header::AUTHORIZATION).is_some() {
        let target = format!("{}?{query}&{}", parts.uri.path(), signature());
        parts.uri = target.parse().map_err(io::Error::other)?;
    }
    if let Some(reported) = &reported {
        let crc = hash_bytes(&[Algo::Crc64Nvme], &body);
        let crc: Vec<u8> = crc.get(Algo::Crc64Nvme).into_iter().flatten().rev().copied().collect();
        if reported.as_bytes() != B64.encode(crc).as_bytes() {
            return refuse(StatusCode::BAD_REQUEST, "Crc64Mismatch");
        }
        counts.checked.fetch_add(1, SeqCst);
    }
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let blob = named(&path).filter(|_| counts.hierarchical);
    if let Some((container, name)) = blob.filter(|_| method == Method::DELETE)
        && is_full(azurite, container, name).await?
    {
        return refuse(StatusCode::CONFLICT, "DirectoryIsNotEmpty");
    }
    let mut response = pass(Request::from_parts(parts, Full::new(body)), azurite).await?;
    if let Some((container, name)) = blob.filter(|_| method == Method::PUT && response.status().is_success()) {
        for (at, _) in name.match_indices('/') {
            ask(azurite, Method::PUT, format!("{container}/{}?", &name[..at]), true).await?;
        }
    }
    if counts.hierarchical && response.headers().contains_key("x-ms-is-hns-enabled") {
        response.headers_mut().insert("x-ms-is-hns-enabled", header::HeaderValue::from_static("true"));
    }
    if let Some(reported) = reported.filter(|_| response.status().is_success()) {
        response.headers_mut().insert(CRC64, reported);
    }
    Ok(response)
}

/// The query as Azurite knows it: its markers are names, after which a page begins. Names are of ASCII here.
fn translated(query: &str, from: &str) -> String {
    let kept = query.split('&').filter(|pair| !pair.starts_with("startFrom="));
    let mut pairs: Vec<String> = kept.map(str::to_owned).collect();
    if !pairs.iter().any(|pair| pair.starts_with("marker=")) {
        let mut name = percent_decode_str(from).decode_utf8_lossy().into_owned();
        if let Some(last) = name.pop() {
            name.extend([(last as u8 - 1) as char, '\u{7f}']);
        }
        pairs.push(format!("marker={}", utf8_percent_encode(&name, NON_ALPHANUMERIC)));
    }
    pairs.join("&")
}
