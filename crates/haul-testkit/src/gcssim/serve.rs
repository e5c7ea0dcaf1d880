//! Requests and answers.

use super::{Fault, State, batch, lock};
use crate::{
    drivesim::{fields::Fields, serve::pairs},
    serve::Body,
};
use bytes::Bytes;
use futures::stream;
use haul_core::{Algo, Hashes, hash::hash_bytes};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

/// An answer to be.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The body, piece by piece.
    pub body: Vec<Bytes>,
}

/// The answer to what isn't done.
pub type Refusal = Box<Reply>;

impl Reply {
    /// Without a body.
    pub fn empty(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Vec::new() }
    }

    /// With text of this type.
    pub fn text(status: u16, kind: &str, text: String) -> Reply {
        Reply { body: vec![text.into()], ..Reply::empty(status).with("content-type", kind) }
    }

    /// Success, with facts.
    pub fn json(value: &Value) -> Reply {
        Reply::text(200, "application/json; charset=UTF-8", value.to_string())
    }

    /// With a header more.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Reply {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn build(self) -> Response<Body> {
        let length: usize = self.body.iter().map(Bytes::len).sum();
        let frames = self.body.into_iter().map(|piece| Ok::<_, io::Error>(Frame::data(piece)));
        let mut response = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = self.headers.into_iter().chain([("content-length".to_owned(), length.to_string())]);
        for (name, value) in headers {
            if let (Ok(name), Ok(value)) = (http::HeaderName::from_bytes(name.as_bytes()), value.parse()) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// A refusal as the JSON interface words it.
pub fn refuse(status: u16, reason: &str, message: &str) -> Refusal {
    let error = json!({ "error": { "code": status, "message": message, "errors": [
        { "domain": "global", "reason": reason, "message": message }
    ] } });
    Box::new(Reply { status, ..Reply::json(&error) })
}

/// A request, read whole.
#[derive(Debug)]
pub struct SimRequest {
    /// How.
    pub method: Method,
    /// The parts of its path, decoded.
    pub path: Vec<String>,
    /// Its query.
    pub query: BTreeMap<String, String>,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Where a request leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// JSON: requests about buckets and objects.
    Json,
    /// JSON: content that comes.
    Upload,
    /// Several requests in one.
    Batch,
    /// XML: `/BUCKET/OBJECT`.
    Xml,
}

impl SimRequest {
    /// A request of these parts.
    pub fn new(method: Method, target: &str, headers: HeaderMap, body: Bytes) -> SimRequest {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let path = path.trim_start_matches('/').split('/').map(decoded).collect();
        SimRequest { method, path, query: pairs(query), headers, body }
    }

    /// A parameter; empty when it isn't there.
    pub fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The host that was asked.
    pub fn host(&self) -> &str {
        self.header("host").unwrap_or("127.0.0.1")
    }

    /// The body as facts.
    ///
    /// Errors: it isn't JSON.
    pub fn facts(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(json!({}));
        }
        serde_json::from_slice(&self.body).map_err(|_| refuse(400, "parseError", "Parse Error"))
    }

    /// An answer, of which the parameter `fields` may choose.
    ///
    /// Errors: the choice can't be read.
    pub fn json_reply(&self, answer: &Value) -> Result<Reply, Refusal> {
        let fields = Fields::parse(if self.param("fields").is_empty() { "*" } else { self.param("fields") });
        let fields = fields.map_err(|why| refuse(400, "invalidParameter", &why))?;
        Ok(Reply::json(&fields.of(answer)))
    }

    /// Which interface is asked, and the parts of the path below it.
    pub fn place(&self) -> (Interface, &[String]) {
        let parts: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match &parts[..] {
            ["storage", "v1", ..] => (Interface::Json, &self.path[2..]),
            ["download" | "resumable", "storage", "v1", ..] => (Interface::Json, &self.path[3..]),
            ["upload", "storage", "v1", ..] => (Interface::Upload, &self.path[3..]),
            ["batch", "storage", "v1"] => (Interface::Batch, &[]),
            _ => (Interface::Xml, &self.path),
        }
    }

    /// What it is, for counts.
    fn kind(&self) -> &'static str {
        let (interface, below) = self.place();
        let has = |name: &str| self.query.contains_key(name);
        match (interface, &self.method) {
            (Interface::Batch, _) => "batch",
            (Interface::Upload, &Method::DELETE) => "session.cancel",
            (Interface::Upload, _) if has("upload_id") => {
                match self.header("content-range").is_some_and(|range| range.starts_with("bytes */")) {
                    true => "session.state",
                    false => "session.piece",
                }
            }
            (Interface::Upload, _) if self.param("uploadType") == "resumable" => "session.begin",
            (Interface::Upload, _) => "insert",
            (Interface::Xml, &Method::POST) if has("uploads") => "parts.begin",
            (Interface::Xml, &Method::GET) if has("uploads") => "parts.uploads",
            (Interface::Xml, &Method::POST) if has("uploadId") => "parts.complete",
            (Interface::Xml, &Method::PUT) if has("uploadId") => "parts.put",
            (Interface::Xml, &Method::GET) if has("uploadId") => "parts.list",
            (Interface::Xml, &Method::DELETE) if has("uploadId") => "parts.abort",
            (Interface::Xml, _) => "other",
            (Interface::Json, method) => {
                let words: Vec<&str> = below.iter().map(String::as_str).collect();
                match (method, &words[..]) {
                    (&Method::GET, ["b"]) => "buckets",
                    (&Method::POST, ["b"]) => "bucket.create",
                    (&Method::DELETE, ["b", _]) => "bucket.delete",
                    (&Method::GET, ["b", _]) => "bucket.get",
                    (&Method::GET, ["b", _, "o"]) => "list",
                    (&Method::GET, ["b", _, "o", _]) if self.param("alt") == "media" => "media",
                    (&Method::GET, ["b", _, "o", _]) => "get",
                    (&Method::PATCH, ["b", _, "o", _]) => "patch",
                    (&Method::PUT, ["b", _, "o", _]) => "update",
                    (&Method::DELETE, ["b", _, "o", _]) => "delete",
                    (&Method::POST, ["b", _, "o", _, "rewriteTo", "b", _, "o", _]) => "rewrite",
                    (&Method::POST, ["b", _, "o", _, "copyTo", "b", _, "o", _]) => "copy",
                    _ => "other",
                }
            }
        }
    }
}

/// Answers a request.
///
/// Errors: the connection ends.
pub async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let mut sim_request = SimRequest::new(parts.method, &target, parts.headers, Bytes::new());
    let part = sim_request.kind() == "parts.put";
    if part {
        let receiving = &mut lock(&state).receiving;
        receiving.0 += 1;
        receiving.1 = receiving.1.max(receiving.0);
    }
    let body = body.collect().await;
    let latency = lock(&state).settings.latency;
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    if part {
        lock(&state).receiving.0 -= 1;
    }
    sim_request.body = body.map_err(io::Error::other)?.to_bytes();
    // Not while others wait for the state.
    let hashes = if part { hash_bytes(&[Algo::Md5, Algo::Crc32c], &sim_request.body) } else { Hashes::default() };
    lock(&state).meet(sim_request, hashes).map(Reply::build).ok_or_else(|| io::Error::other("lost by the test"))
}

impl State {
    fn meet(&mut self, mut sim_request: SimRequest, mut hashes: Hashes) -> Option<Reply> {
        let kind = sim_request.kind();
        *self.counts.entry(kind).or_default() += 1;
        let mut fault = None;
        self.faults.retain_mut(|(of, after, what)| {
            if *of != kind || fault.is_some() {
                return true;
            }
            if *after > 0 {
                *after -= 1;
                return true;
            }
            fault = Some(*what);
            false
        });
        match fault {
            Some(Fault::Refused(status, reason)) => {
                return Some(*refuse(status, reason, &format!("Refused: {reason}")));
            }
            Some(Fault::Damaged) => {
                let mut bytes = sim_request.body.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                sim_request.body = bytes.into();
                hashes = hash_bytes(&[Algo::Md5, Algo::Crc32c], &sim_request.body);
            }
            _ => {}
        }
        let reply = self.reply(kind, &sim_request, hashes);
        (fault != Some(Fault::Lost)).then_some(reply)
    }

    /// The answer to one request, alone or of a batch.
    pub fn reply(&mut self, kind: &'static str, sim_request: &SimRequest, hashes: Hashes) -> Reply {
        let token = &self.settings.token;
        let known = token.is_empty() || sim_request.header("authorization") == Some(&format!("Bearer {token}"));
        // The address of a session is good by itself.
        if !known && !matches!(kind, "session.piece" | "session.state" | "session.cancel") {
            return *refuse(401, "authError", "Invalid Credentials");
        }
        let done = match sim_request.place().0 {
            Interface::Batch => batch::answer(self, sim_request),
            Interface::Json => self.json(kind, sim_request),
            Interface::Upload => self.upload(kind, sim_request),
            Interface::Xml => self.xml(kind, sim_request, hashes),
        };
        done.unwrap_or_else(|refusal| *refusal)
    }

    /// The answer to one request of a batch.
    pub fn one_of_batch(&mut self, sim_request: &SimRequest) -> Reply {
        let kind = sim_request.kind();
        *self.counts.entry("in a batch").or_default() += 1;
        match sim_request.place().0 {
            Interface::Json if kind != "media" => self.reply(kind, sim_request, Hashes::default()),
            _ => *refuse(400, "invalid", "This can't be in a batch"),
        }
    }
}
