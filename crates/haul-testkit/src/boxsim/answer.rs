//! Requests and their answers.

use super::{
    State,
    drive::{self, No, Problem, second},
    sessions::UploadTarget,
};
use crate::serve::{Body, pairs};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use haul_core::hash::from_hex;
use http_body_util::{BodyExt as _, Full};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::{collections::BTreeMap, io};

/// The most that comes as one form.
const SINGLE: usize = 50 << 20;
const BAD: No = (400, "bad_request");

/// A request.
pub struct SimRequest {
    pub kind: &'static str,
    /// Behind the version, in pieces.
    path: Vec<String>,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Bytes,
    /// The SHA-1 of a part.
    sha1: String,
    form: Option<(Value, Bytes, String)>,
}

fn kind(method: &str, path: &[&str]) -> &'static str {
    match (method, path) {
        ("POST", ["oauth2", "token"]) => "Token",
        ("POST", ["oauth2", "revoke"]) => "Revoke",
        ("GET", ["dl", ..]) => "Download",
        ("GET", ["folders", _, "items"]) => "ListItems",
        ("GET", ["folders", _]) => "GetFolder",
        ("POST", ["folders"]) => "CreateFolder",
        ("PUT", ["folders", _]) => "UpdateFolder",
        ("DELETE", ["folders", _]) => "DeleteFolder",
        ("DELETE", [_, _, "trash"]) => "DeleteForGood",
        ("OPTIONS", ["files", "content"]) => "Preflight",
        ("POST", ["files", "content"]) => "Upload",
        ("POST", ["files", _, "content"]) => "UploadVersion",
        ("GET", ["files", _, "content"]) => "Content",
        ("POST", ["files", "upload_sessions"] | ["files", _, "upload_sessions"]) => "CreateSession",
        ("PUT", ["files", "upload_sessions", _]) => "UploadPart",
        ("GET", ["files", "upload_sessions", _]) => "GetSession",
        ("GET", ["files", "upload_sessions", _, "parts"]) => "ListParts",
        ("POST", ["files", "upload_sessions", _, "commit"]) => "Commit",
        ("DELETE", ["files", "upload_sessions", _]) => "AbortSession",
        ("GET", ["files", _, "versions"]) => "ListVersions",
        ("POST", ["files", _, "versions", "current"]) => "Promote",
        ("GET", ["files", _]) => "GetFile",
        ("PUT", ["files", _]) => "UpdateFile",
        ("DELETE", ["files", _]) => "DeleteFile",
        ("POST", ["files", _, "copy"]) => "Copy",
        ("GET", ["users", "me"]) => "Me",
        _ => "Unknown",
    }
}

/// Attributes, content and file name of a form, in which the attributes must come first.
fn form(kind: &str, body: &Bytes) -> Option<(Value, Bytes, String)> {
    let line = kind.split("boundary=").nth(1)?.trim_matches('"');
    let between = format!("\r\n--{line}");
    let find = |from: usize, what: &[u8]| {
        (from..body.len().saturating_sub(what.len() - 1)).find(|at| body[*at..].starts_with(what))
    };
    // The first line has no line before it.
    let mut at = format!("--{line}\r\n").len();
    if !body.starts_with(format!("--{line}\r\n").as_bytes()) {
        return None;
    }
    let part = |at: &mut usize, last: bool| -> Option<(String, Bytes)> {
        let end_of_head = find(*at, b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&body[*at..end_of_head]).into_owned();
        let end = match last {
            // Content may be long: its end is the form's.
            true => body.len().checked_sub(between.len() + 2 + 2)?,
            false => find(end_of_head, between.as_bytes())?,
        };
        let end = if last && !body[end..].starts_with(between.as_bytes()) {
            // No line end comes after the last line.
            end + 2
        } else {
            end
        };
        body[end..].starts_with(between.as_bytes()).then_some(())?;
        let content = body.slice(end_of_head..end);
        *at = end + between.len() + 2;
        Some((head, content))
    };
    let (head, attributes) = part(&mut at, false)?;
    if !head.contains("name=\"attributes\"") {
        return None;
    }
    let (head, content) = part(&mut at, true)?;
    let name = head.split("filename=\"").nth(1)?.split('"').next()?.to_owned();
    Some((serde_json::from_slice(&attributes).ok()?, content, name))
}

impl SimRequest {
    pub fn new(head: &hyper::http::request::Parts) -> SimRequest {
        let all = head.uri.path().trim_matches('/').split('/').filter(|part| !part.is_empty());
        let mut path: Vec<&str> = all.collect();
        if path.first() == Some(&"api") {
            path.remove(0);
        }
        if path.first() == Some(&"2.0") {
            path.remove(0);
        }
        let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        SimRequest {
            kind: kind(head.method.as_str(), &path),
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            query: pairs(head.uri.query().unwrap_or_default()),
            headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: Bytes::new(),
            sha1: String::new(),
            form: None,
        }
    }

    /// Content comes with it.
    pub fn carries(&self) -> bool {
        matches!(self.kind, "Upload" | "UploadVersion" | "UploadPart")
    }

    pub fn with(mut self, body: Bytes) -> SimRequest {
        match self.kind {
            "UploadPart" => self.sha1 = drive::sha1(&body),
            "Upload" | "UploadVersion" => self.form = form(self.header("content-type"), &body),
            _ => {}
        }
        self.body = body;
        self
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn tag(&self) -> Option<&str> {
        self.headers.get("if-match").map(String::as_str)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn id(&self) -> &str {
        self.path.get(1).map_or("", String::as_str)
    }

    fn number(&self, name: &str, default: usize) -> usize {
        self.query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }
}

fn whole(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

/// A refusal as the service writes it.
pub fn refused(status: u16, code: &str, context: Value, wait: u64) -> io::Result<Response<Body>> {
    let body = json!({
        "type": "error", "status": status, "code": code, "message": code, "context_info": context,
        "help_url": "https://developer.box.com/guides/api-calls/permissions-and-errors/common-errors/", "request_id": "1",
    });
    let mut response = whole(status, body.to_string());
    if matches!(status, 202 | 429 | 503) {
        response.headers_mut().insert("retry-after", wait.into());
    }
    Ok(response)
}

impl State {
    pub fn answer(&mut self, request: &SimRequest) -> io::Result<Response<Body>> {
        if request.kind == "Revoke" {
            return match self.auth.revoke(&pairs(&String::from_utf8_lossy(&request.body))) {
                Ok(()) => Ok(whole(200, "")),
                Err(error) => {
                    let why = "The client credentials are not valid";
                    Ok(whole(400, json!({"error": error, "error_description": why}).to_string()))
                }
            };
        }
        if request.kind == "Token" {
            let form = pairs(&String::from_utf8_lossy(&request.body));
            return Ok(match self.auth.grant(&form) {
                Ok(token) => whole(200, token.to_string()),
                Err(error) => whole(400, json!({"error": error, "error_description": "told so"}).to_string()),
            });
        }
        if request.kind == "Download" {
            return self.download(request);
        }
        if !self.auth.is_good(request.header("authorization")) {
            let mut response = whole(401, Bytes::new());
            let why = "Bearer realm=\"Service\", error=\"invalid_token\", error_description=\"The access token provided is invalid.\"";
            response.headers_mut().insert("www-authenticate", why.parse().map_err(io::Error::other)?);
            return Ok(response);
        }
        if let Some(user) = request.headers.get("as-user") {
            self.users.push(user.clone());
        }
        match self.done(request) {
            Ok(response) => Ok(response),
            Err(Problem { no: (status, code), context }) => refused(status, code, context, self.settings.retry_after),
        }
    }

    fn download(&self, request: &SimRequest) -> io::Result<Response<Body>> {
        // The documents: who is sent there brings no token.
        if request.headers.contains_key("authorization") && request.header("user-agent").starts_with("haul") {
            return refused(400, "no_token_belongs_here", Value::Null, 0);
        }
        let Ok(bytes) = self.drive.content(request.id()) else { return refused(404, "not_found", Value::Null, 0) };
        let all = bytes.len();
        let range = request.headers.get("range").and_then(|range| {
            let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
            let to = to.parse::<usize>().map_or(all, |to| to + 1).min(all);
            Some((from.parse::<usize>().ok()?, to))
        });
        let mut response = match range {
            Some((from, _)) if from >= all => return refused(416, "range_invalid", Value::Null, 0),
            Some((from, to)) => {
                let mut response = whole(206, bytes.slice(from..to));
                let span = format!("bytes {from}-{}/{all}", to - 1);
                response.headers_mut().insert("content-range", span.parse().map_err(io::Error::other)?);
                response
            }
            None => whole(200, bytes),
        };
        let plain = hyper::header::HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert("content-type", plain);
        Ok(response)
    }

    fn done(&mut self, request: &SimRequest) -> Result<Response<Body>, Problem> {
        let id = request.id().to_owned();
        let json = request.json();
        let json_answer = |value: Value| Ok(whole(200, value.to_string()));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match request.kind {
            "ListItems" => {
                let limit = request.number("limit", 100).min(1000).min(self.settings.page);
                let by_marker = request.query.get("usemarker").is_some_and(|on| on.eq_ignore_ascii_case("true"));
                let from = request.number(if by_marker { "marker" } else { "offset" }, 0);
                let (entries, all) = self.drive.children(&id, from, limit)?;
                let end = from + entries.len();
                let mut page = json!({"entries": entries, "limit": limit});
                if by_marker {
                    page["next_marker"] = if end < all { end.to_string().into() } else { Value::Null };
                } else {
                    (page["total_count"], page["offset"]) = (all.into(), from.into());
                }
                json_answer(page)
            }
            "ListVersions" => {
                let entries = self.drive.earlier(&id)?;
                json_answer(json!({"total_count": entries.len(), "limit": 100, "offset": 0, "entries": entries}))
            }
            "Promote" => Ok(whole(201, self.drive.promote(&id, &text(&json["id"]))?.to_string())),
            "GetFolder" => json_answer(self.drive.value(&id, true)?),
            "GetFile" => json_answer(self.drive.value(&id, false)?),
            "CreateFolder" => {
                let id = self.drive.create_folder(&text(&json["parent"]["id"]), &text(&json["name"]))?;
                Ok(whole(201, self.drive.value(&id, true)?.to_string()))
            }
            "UpdateFolder" | "UpdateFile" => {
                let folder = request.kind == "UpdateFolder";
                self.drive.value(&id, folder)?;
                self.drive.update(&id, &json, request.tag())?;
                let mut value = self.drive.value(&id, folder)?;
                if json.get("shared_link").is_some() {
                    value["shared_link"] = json!({"url": format!("https://app.box.com/s/{id}"), "access": "open"});
                }
                json_answer(value)
            }
            "DeleteFolder" => {
                self.drive.value(&id, true)?;
                let recursive = request.query.get("recursive").is_some_and(|on| on.eq_ignore_ascii_case("true"));
                self.drive.remove(&id, recursive, request.tag())?;
                Ok(whole(204, Bytes::new()))
            }
            "DeleteFile" => {
                self.drive.value(&id, false)?;
                self.drive.remove(&id, false, request.tag())?;
                Ok(whole(204, Bytes::new()))
            }
            "DeleteForGood" => {
                self.drive.remove_for_good(&id)?;
                Ok(whole(204, Bytes::new()))
            }
            "Preflight" => {
                self.drive.free(&text(&json["parent"]["id"]), &text(&json["name"]), None, false)?;
                json_answer(json!({"upload_url": "https://upload.box.com/api/2.0/files/content", "upload_token": null}))
            }
            "Upload" | "UploadVersion" => self.upload(request),
            "Content" => {
                self.drive.value(&id, false)?;
                let host = request.header("host");
                let scheme = if host.starts_with("127.") { "http" } else { "https" };
                let mut response = whole(302, Bytes::new());
                let to = format!("{scheme}://{host}/dl/{id}");
                response.headers_mut().insert("location", to.parse().map_err(|_| BAD)?);
                Ok(response)
            }
            "Copy" => {
                let id = self.drive.copy(&id, &text(&json["parent"]["id"]), json["name"].as_str())?;
                Ok(whole(201, self.drive.value(&id, false)?.to_string()))
            }
            "Me" => json_answer(json!({
                "type": "user", "id": "7", "name": "A B", "login": "a@example.com", "space_amount": 1.0e12,
                "space_used": self.drive.used() as f64, "max_upload_size": 5.0e9, "status": "active",
                "created_at": "2012-12-12T10:53:43-08:00", "modified_at": "2012-12-12T10:53:43-08:00",
            })),
            _ => self.session(request, &json),
        }
    }

    fn upload(&mut self, request: &SimRequest) -> Result<Response<Body>, Problem> {
        let (facts, content, name) = request.form.clone().ok_or((400, "metadata_after_file_contents"))?;
        if content.len() > SINGLE {
            return Err((413, "file_size_limit_exceeded").into());
        }
        let sent_digest = request.header("content-md5");
        if !sent_digest.is_empty() && sent_digest != drive::sha1(&content) {
            return Err((400, "bad_digest").into());
        }
        let mtime = facts["content_modified_at"].as_str().and_then(second);
        let id = match request.kind {
            "Upload" => {
                let name = facts["name"].as_str().unwrap_or(&name);
                self.drive.create_file(facts["parent"]["id"].as_str().unwrap_or_default(), name, content, mtime)?
            }
            _ => self.drive.new_version(request.id(), content, mtime, request.tag())?,
        };
        let entries = [self.drive.value(&id, false)?];
        Ok(whole(201, json!({"total_count": 1, "entries": entries}).to_string()))
    }

    fn session(&mut self, request: &SimRequest, json: &Value) -> Result<Response<Body>, Problem> {
        let host = request.header("host");
        let base = match host.starts_with("127.") {
            true => format!("http://{host}/api/2.0"),
            false => format!("https://{host}/api/2.0"),
        };
        let id = request.path.get(2).cloned().unwrap_or_default();
        match request.kind {
            "CreateSession" => {
                let place = match request.path.len() {
                    2 => {
                        let parent = json["folder_id"].as_str().unwrap_or_default().to_owned();
                        let name = json["file_name"].as_str().unwrap_or_default().to_owned();
                        self.drive.free(&parent, &name, None, false)?;
                        UploadTarget::New { parent, name }
                    }
                    _ => {
                        self.drive.value(request.id(), false)?;
                        UploadTarget::Version(request.id().to_owned())
                    }
                };
                let total = json["file_size"].as_u64().ok_or(BAD)?;
                let id = self.sessions.create(place, total, self.settings.part)?;
                Ok(whole(201, self.sessions.value(&id, &base)?.to_string()))
            }
            "GetSession" => Ok(whole(200, self.sessions.value(&id, &base)?.to_string())),
            "UploadPart" => {
                let session = self.sessions.get(&id)?;
                let hash = B64.encode(from_hex(&request.sha1).unwrap_or_default());
                let body = request.body.clone();
                let part = session.take(
                    request.header("content-range"),
                    request.header("digest"),
                    body,
                    &request.sha1,
                    &hash,
                )?;
                Ok(whole(200, part.to_string()))
            }
            "ListParts" => {
                let (offset, limit) =
                    (request.number("offset", 0), request.number("limit", 1000).min(self.settings.page));
                Ok(whole(200, self.sessions.get(&id)?.parts(offset, limit).to_string()))
            }
            "AbortSession" => {
                self.sessions.remove(&id)?;
                Ok(whole(204, Bytes::new()))
            }
            "Commit" => self.commit(request, &id, json),
            _ => Err((404, "not_found").into()),
        }
    }

    fn commit(&mut self, request: &SimRequest, id: &str, json: &Value) -> Result<Response<Body>, Problem> {
        let waits = self.settings.commits;
        let session = self.sessions.get(id)?;
        let content = session.whole(&json["parts"])?;
        if session.commits < waits {
            session.commits += 1;
            let mut response = whole(202, Bytes::new());
            response.headers_mut().insert("retry-after", 1.into());
            return Ok(response);
        }
        let hash = B64.encode(from_hex(&drive::sha1(&content)).unwrap_or_default());
        if request.header("digest") != format!("sha={hash}") {
            return Err((400, "bad_digest").into());
        }
        let mtime = json["attributes"]["content_modified_at"].as_str().and_then(second);
        let id = match session.place.clone() {
            UploadTarget::New { parent, name } => self.drive.create_file(&parent, &name, content, mtime)?,
            // What has these bytes already gets no other version.
            UploadTarget::Version(file) if self.drive.content(&file)? == content => {
                return Ok(whole(202, Bytes::new()));
            }
            UploadTarget::Version(file) => self.drive.new_version(&file, content, mtime, request.tag())?,
        };
        self.sessions.remove(request.path.get(2).map_or("", String::as_str))?;
        let entries = [self.drive.value(&id, false)?];
        Ok(whole(201, json!({"total_count": 1, "entries": entries}).to_string()))
    }
}
