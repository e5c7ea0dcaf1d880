//! Azurite as it would be with what the service has since: listings that begin at a name (`startFrom`), and a look at the CRC-64 of blocks.
//! Microsoft's own client passes on it.

use crate::{
    proxy::pass,
    serve::{Body, Server, answer},
};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use haul_core::{Algo, hash::hash_bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming};
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

/// What came.
#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    checked: AtomicUsize,
}

impl NewerAzure {
    /// Starts one before an Azurite.
    ///
    /// Panics if there is no port to be had.
    pub fn start(azurite: SocketAddr) -> NewerAzure {
        let counts = Arc::<Counts>::default();
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

    /// Blocks that came with the right CRC-64.
    pub fn checked(&self) -> usize {
        self.counts.checked.load(SeqCst)
    }
}

async fn serve(counts: Arc<Counts>, azurite: SocketAddr, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let from = query.split('&').find_map(|pair| pair.strip_prefix("startFrom="));
    if let Some(from) = from {
        let version = parts.headers.get("x-ms-version").and_then(|version| version.to_str().ok()).unwrap_or_default();
        if version < BEGINS {
            return answer(StatusCode::BAD_REQUEST, "<Error><Code>InvalidQueryParameterValue</Code></Error>".into());
        }
        counts.begun.fetch_add(1, SeqCst);
        let query = translated(&query, from);
        let target = format!("{}?{query}", parts.uri.path());
        parts.uri = target.parse().map_err(io::Error::other)?;
    }
    // Azurite refuses it.
    let told = parts.headers.remove(CRC64);
    if let Some(told) = &told {
        let crc = hash_bytes(&[Algo::Crc64Nvme], &body);
        let crc: Vec<u8> = crc.get(Algo::Crc64Nvme).into_iter().flatten().rev().copied().collect();
        if told.as_bytes() != B64.encode(crc).as_bytes() {
            return answer(StatusCode::BAD_REQUEST, "<Error><Code>Crc64Mismatch</Code></Error>".into());
        }
        counts.checked.fetch_add(1, SeqCst);
    }
    let mut response = pass(Request::from_parts(parts, Full::new(body)), azurite).await?;
    if let Some(told) = told.filter(|_| response.status().is_success()) {
        response.headers_mut().insert(CRC64, told);
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
