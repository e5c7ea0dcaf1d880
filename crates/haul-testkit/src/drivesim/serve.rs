//! Requests and answers.

use super::{
    Fault, State,
    fields::Fields,
    lock,
    query::Query,
    reply::{Reply, refuse},
    space::{Content, DOCUMENT, FOLDER, File, ROOT, WORD, read_time},
    uploads::{self, DAY, Goal},
};
use crate::serve::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, Method, Request, Response, body::Incoming};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex},
    time::Instant,
};

const FILES: &str = "/drive/v3/files";
const UPLOAD: &str = "/upload/drive/v3/files";
const FILE_FIELDS: &str = "kind,id,name,mimeType";
const LIST_FIELDS: &str = "kind,incompleteSearch,nextPageToken,files(kind,id,name,mimeType)";

fn missing(id: &str) -> Reply {
    refuse(404, "notFound", &format!("File not found: {id}."))
}

/// A request, read whole.
struct SimRequest {
    method: Method,
    path: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
    body: Bytes,
}

impl SimRequest {
    fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn facts(&self) -> Result<Value, Reply> {
        facts_of(&self.body)
    }

    fn with_fields(&self, usual: &str, answer: &Value) -> Reply {
        with_fields(&self.query, usual, answer).map_or_else(|reply| reply, Reply::json)
    }

    /// What it is, for counts.
    fn kind(&self) -> &'static str {
        let below = self.path.strip_prefix(FILES).map(|rest| rest.trim_start_matches('/'));
        let upload = self.path.strip_prefix(UPLOAD).map(|rest| rest.trim_start_matches('/'));
        match (&self.method, below, upload) {
            (&Method::POST, None, None) if self.path.ends_with("/token") => "token",
            (_, None, Some(_)) if self.query.contains_key("upload_id") => match &self.method {
                &Method::DELETE => "upload.cancel",
                _ if self.header("content-range").is_some_and(|range| range.starts_with("bytes */")) => "upload.state",
                _ => "upload.piece",
            },
            (_, None, Some(_)) if self.param("uploadType") == "resumable" => "upload.begin",
            (&Method::POST, None, Some(_)) => "upload.create",
            (_, None, Some(_)) => "upload.replace",
            (&Method::GET, Some(""), _) => "list",
            (&Method::POST, Some(""), _) => "create",
            (&Method::GET, Some("generateIds"), _) => "generateIds",
            (&Method::DELETE, Some("trash"), _) => "emptyTrash",
            (&Method::GET, Some(id), _) if id.ends_with("/export") => "export",
            (&Method::GET, Some(_), _) if self.param("alt") == "media" => "media",
            (&Method::GET, None, None) if self.path == "/export/link" => "exportLink",
            (&Method::GET, None, None) if self.path == "/export/content" => "exportContent",
            (&Method::GET, Some(_), _) => "get",
            (&Method::POST, Some(id), _) if id.ends_with("/copy") => "copy",
            (&Method::PATCH, Some(_), _) => "update",
            (&Method::DELETE, Some(_), _) => "delete",
            _ => "other",
        }
    }
}

fn facts_of(body: &[u8]) -> Result<Value, Reply> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(body).map_err(|_| refuse(400, "parseError", "Parse Error"))
}

fn with_fields(query: &BTreeMap<String, String>, usual: &str, answer: &Value) -> Result<Value, Reply> {
    // rclone names none where it needs none.
    let fields = query.get("fields").map(String::as_str).filter(|fields| !fields.is_empty()).unwrap_or(usual);
    let fields = Fields::parse(fields).map_err(|why| refuse(400, "invalidParameter", &why))?;
    Ok(fields.of(answer))
}

pub(crate) fn pairs(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(a, b)| (decode(a), decode(b))).collect()
}

/// Answers a request.
///
/// Errors: the connection ends.
pub(super) async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let sim_request = SimRequest {
        method: parts.method,
        path: percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned(),
        query: pairs(parts.uri.query().unwrap_or_default()),
        headers: parts.headers,
        body,
    };
    let latency = lock(&state).settings.latency;
    let lists = sim_request.kind() == "list";
    if lists {
        let mut state = lock(&state);
        state.listing.0 += 1;
        state.listing.1 = state.listing.1.max(state.listing.0);
    }
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    if lists {
        let mut state = lock(&state);
        state.listing.0 = state.listing.0.saturating_sub(1);
    }
    lock(&state).meet(&sim_request).map(Reply::build).ok_or_else(|| io::Error::other("lost by the test"))
}

impl State {
    fn meet(&mut self, sim_request: &SimRequest) -> Option<Reply> {
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
        if let Some(Fault::Refused(status, reason)) = fault {
            self.throttled += u64::from(reason.ends_with("RateLimitExceeded") || reason == "rateLimitExceeded");
            return Some(refuse(status, reason, &format!("Refused: {reason}")));
        }
        self.garbles = fault == Some(Fault::Garbled);
        let reply = self.reply(kind, sim_request);
        (fault != Some(Fault::Lost)).then_some(reply)
    }

    fn reply(&mut self, kind: &'static str, sim_request: &SimRequest) -> Reply {
        if kind == "token" {
            let granted =
                self.auth.grant(&pairs(&String::from_utf8_lossy(&sim_request.body)), self.settings.token_lasts);
            return granted.map_or_else(
                |error| Reply {
                    status: 400,
                    ..Reply::json(json!({ "error": error, "error_description": "Bad Request" }))
                },
                Reply::json,
            );
        }
        // The address of a session is good by itself; so is where a link leads.
        if !matches!(kind, "upload.piece" | "upload.state" | "upload.cancel" | "exportContent")
            && !self.auth.knows(sim_request.header("authorization"))
        {
            return refuse(401, "authError", "Invalid Credentials");
        }
        let creates = matches!(kind, "create" | "copy" | "upload.create")
            || kind == "upload.begin" && sim_request.method == Method::POST;
        if creates && let Err(reply) = self.may_create() {
            return reply;
        }
        let id = sim_request
            .path
            .split('/')
            .nth(if sim_request.path.starts_with("/upload") { 5 } else { 4 })
            .unwrap_or_default();
        let id = if id == "root" { ROOT } else { id };
        let done = match kind {
            "list" => self.list(sim_request),
            "get" => {
                self.visible(sim_request, id).map(|file| sim_request.with_fields(FILE_FIELDS, &self.space.facts(file)))
            }
            "media" => self.media(sim_request, id),
            "export" => self.export(sim_request, id, Some(self.settings.export_limit)),
            "exportLink" => {
                let to = format!("/export/content?id={}&mime={}", sim_request.param("id"), sim_request.param("mime"));
                Ok(Reply { headers: vec![("location", to)], ..Reply::empty(302) })
            }
            "exportContent" => self.export(sim_request, sim_request.param("id"), None),
            "create" => sim_request.facts().and_then(|facts| self.create(&facts, None)).map(|file| {
                let facts = self.space.facts(&file);
                self.space.put(file);
                sim_request.with_fields(FILE_FIELDS, &facts)
            }),
            "update" => self.update(sim_request, id),
            "copy" => self.copy(sim_request, id),
            "delete" => self.visible(sim_request, id).map(|_| ()).map(|()| {
                self.space.remove(id);
                Reply::empty(204)
            }),
            "emptyTrash" => {
                let drive = Some(sim_request.param("driveId")).filter(|id| !id.is_empty());
                let trashed = self.space.files.values().filter(|file| file.trashed && file.drive.as_deref() == drive);
                for id in trashed.map(|file| file.id.clone()).collect::<Vec<_>>() {
                    self.space.remove(&id);
                }
                Ok(Reply::empty(204))
            }
            "generateIds" => {
                let count: u64 = sim_request.param("count").parse().unwrap_or(10);
                let ids: Vec<_> = (0..count.min(1000)).map(|_| self.space.id()).collect();
                self.space.given.extend(ids.iter().cloned());
                Ok(Reply::json(json!({ "kind": "drive#generatedIds", "space": "drive", "ids": ids })))
            }
            "upload.begin" => self.begin_upload(sim_request, id),
            "upload.create" | "upload.replace" => self.upload(sim_request, id),
            "upload.piece" | "upload.state" => Ok(uploads::put(
                self,
                sim_request.param("upload_id"),
                sim_request.header("content-range"),
                sim_request.body.clone(),
            )),
            "upload.cancel" => {
                let there = self.sessions.cancel(sim_request.param("upload_id"));
                Ok(if there { Reply::empty(499) } else { refuse(404, "notFound", "Upload session not found") })
            }
            _ => self.others(sim_request),
        };
        done.unwrap_or_else(|refusal| refusal)
    }

    fn may_create(&mut self) -> Result<(), Reply> {
        let Some((rate, burst)) = self.settings.creations else { return Ok(()) };
        let (allowed, then) = self.allowed;
        let now = Instant::now();
        let allowed = (allowed + now.duration_since(then).as_secs_f64() * rate).min(burst);
        if allowed < 1.0 {
            self.allowed = (allowed, now);
            self.throttled += 1;
            let message = "User Rate Limit Exceeded. Rate of requests for user exceed configured project quota, you may consider re-evaluating expected per-user traffic to the API and adjust project quota limits accordingly.";
            return Err(refuse(403, "userRateLimitExceeded", message));
        }
        self.allowed = (allowed - 1.0, now);
        Ok(())
    }

    fn visible(&self, sim_request: &SimRequest, id: &str) -> Result<&File, Reply> {
        let file = self.space.files.get(id);
        let shown = |file: &&File| file.drive.is_none() || sim_request.param("supportsAllDrives") == "true";
        file.filter(shown).ok_or_else(|| missing(id))
    }

    fn list(&mut self, sim_request: &SimRequest) -> Result<Reply, Reply> {
        let bad = |why: &str| refuse(400, "invalid", why);
        let query = Query::parse(sim_request.param("q")).map_err(|why| bad(&why))?;
        let size = match sim_request.param("pageSize") {
            "" => 100,
            text => {
                text.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or_else(|| bad("Invalid Value: pageSize"))?
            }
        };
        let (drive, all) = (sim_request.param("driveId"), sim_request.param("includeItemsFromAllDrives") == "true");
        if (sim_request.param("corpora") == "drive") == drive.is_empty() || !drive.is_empty() && !all {
            return Err(bad("The driveId and corpora parameters must be given together"));
        }
        let parents = query.parents();
        if let Some(id) = parents.iter().flatten().find(|id| !self.space.files.contains_key(self.space.real(id))) {
            return Err(missing(id));
        }
        let several = parents.as_ref().is_some_and(|parents| parents.len() > 1);
        self.several += u64::from(several);
        let lost = several && self.settings.hole.is_some_and(|nth| self.several.is_multiple_of(nth));
        let candidates: BTreeSet<&str> = match &parents {
            Some(parents) => parents.iter().flat_map(|id| self.space.children(id)).collect(),
            None => {
                let is_root = |id: &str| id == ROOT || self.space.drives.contains_key(id);
                self.space.files.keys().map(String::as_str).filter(|id| !is_root(id)).collect()
            }
        };
        let after = sim_request.param("pageToken").strip_prefix("~!!~").unwrap_or_default();
        let mut files = Vec::new();
        let mut next = None;
        for id in candidates.into_iter().filter(|id| *id > after && !lost) {
            let Some(file) = self.space.files.get(id) else { continue };
            let seen = match &file.drive {
                Some(own) => all && (drive.is_empty() || drive == own),
                None => drive.is_empty(),
            };
            let late = several && self.settings.late && self.space.is_somebodys(file) && !self.space.is_eldest(file);
            if !seen || late || !query.holds(&self.space, file) {
                continue;
            }
            if files.len() == size {
                next = files.last().and_then(|last: &Value| last["id"].as_str()).map(|id| format!("~!!~{id}"));
                break;
            }
            files.push(self.space.facts(file));
        }
        let mut answer =
            json!({ "kind": "drive#fileList", "incompleteSearch": self.settings.incomplete, "files": files });
        if let Some(next) = next {
            answer["nextPageToken"] = next.into();
        }
        Ok(sim_request.with_fields(LIST_FIELDS, &answer))
    }

    fn media(&self, sim_request: &SimRequest, id: &str) -> Result<Reply, Reply> {
        let file = self.visible(sim_request, id)?;
        let Some(content) = &file.content else {
            let message = "Only files with binary content can be downloaded. Use Export with Docs Editors files.";
            return Err(refuse(403, "fileNotDownloadable", message));
        };
        if file.abusive && sim_request.param("acknowledgeAbuse") != "true" {
            let message = "This file has been identified as malware or spam and cannot be downloaded.";
            return Err(refuse(403, "cannotDownloadAbusiveFile", message));
        }
        let size = content.bytes.len();
        let mut reply = Reply { body: content.bytes.clone(), ..Reply::empty(200) };
        reply.headers.push(("content-type", file.mime.clone()));
        let range = sim_request.header("range").and_then(|range| range.strip_prefix("bytes="));
        if let Some((first, last)) = range.and_then(|range| range.split_once('-')) {
            let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), last) => (first, last.unwrap_or(size).min(size.saturating_sub(1))),
                (Err(_), Ok(tail)) => (size.saturating_sub(tail), size.saturating_sub(1)),
                _ => return Err(refuse(400, "invalid", "Range")),
            };
            if first >= size {
                return Ok(Reply { headers: vec![("content-range", format!("bytes */{size}"))], ..Reply::empty(416) });
            }
            reply.status = 206;
            reply.body = content.bytes.slice(first..last + 1);
            reply.headers.push(("content-range", format!("bytes {first}-{last}/{size}")));
        }
        Ok(reply)
    }

    fn export(&self, sim_request: &SimRequest, id: &str, limit: Option<usize>) -> Result<Reply, Reply> {
        let file = self.space.files.get(id).ok_or_else(|| missing(id))?;
        if !file.is_document() {
            return Err(refuse(403, "fileNotExportable", "Export only supports Docs Editors files."));
        }
        let mime = if limit.is_some() { sim_request.param("mimeType") } else { sim_request.param("mime") };
        let made = file.exports.iter().find(|(known, _)| known == mime);
        let (mime, bytes) =
            made.ok_or_else(|| refuse(400, "badRequest", "The requested conversion is not supported."))?;
        if limit.is_some_and(|limit| bytes.len() > limit) {
            let message = "This file is too large to be exported.";
            return Err(refuse(403, "exportSizeLimitExceeded", message));
        }
        Ok(Reply { headers: vec![("content-type", mime.clone())], body: bytes.clone(), ..Reply::empty(200) })
    }

    /// A file with these facts; it isn't there yet.
    fn create(&mut self, facts: &Value, mime: Option<&str>) -> Result<File, Reply> {
        let text = |name: &str| facts[name].as_str().map(str::to_owned);
        let parents: Vec<String> =
            facts["parents"].as_array().into_iter().flatten().filter_map(|id| Some(id.as_str()?.to_owned())).collect();
        if parents.len() > 1 {
            return Err(refuse(403, "multipleParentsNotAllowed", "A file can have one parent."));
        }
        let parent = parents.first().map_or(ROOT, |id| self.space.real(id)).to_owned();
        let drive = match self.space.files.get(&parent) {
            Some(folder) if folder.mime == FOLDER => folder.drive.clone(),
            Some(_) => return Err(refuse(403, "parentNotAFolder", "The specified parent is not a folder.")),
            None => return Err(missing(&parent)),
        };
        let id = match text("id") {
            None => self.space.id(),
            Some(id) if self.space.files.contains_key(&id) => {
                return Err(refuse(409, "fileIdInUse", "A file already exists with the provided ID."));
            }
            Some(id) if self.space.given.contains(&id) => id,
            Some(_) => return Err(refuse(400, "invalid", "The provided file ID is not usable.")),
        };
        let name = text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| "Untitled".into());
        let mime = text("mimeType").or(mime.map(str::to_owned)).unwrap_or_else(|| "application/octet-stream".into());
        let is_document = mime.starts_with("application/vnd.google-apps.") && mime != FOLDER;
        if is_document && facts["id"].is_string() {
            let message = "Generated IDs are not supported for Docs Editors formats.";
            return Err(refuse(400, "invalid", message));
        }
        let mut file = File::new(id, &name, &mime, Some(parent));
        (file.drive, file.created) = (drive, self.space.now());
        file.came_late = self.space.any_trashed(&file.parents);
        if let Some(time) = text("modifiedTime") {
            file.modified =
                read_time(&time).ok_or_else(|| refuse(400, "invalid", "Invalid value for: modifiedTime"))?;
        }
        if let Some(target) = facts["shortcutDetails"]["targetId"].as_str() {
            let mime = self.space.files.get(target).ok_or_else(|| missing(target))?.mime.clone();
            file.target = Some((target.to_owned(), mime));
        }
        Ok(file)
    }

    fn changed(&self, id: &str, facts: &Value) -> Result<File, Reply> {
        let mut file = self.space.files.get(id).cloned().ok_or_else(|| missing(id))?;
        if !facts["parents"].is_null() || !facts["id"].is_null() {
            let message = "The field is not directly writable in update requests.";
            return Err(refuse(403, "fieldNotWritable", message));
        }
        if let Some(name) = facts["name"].as_str() {
            file.name = name.to_owned();
        }
        if let Some(mime) = facts["mimeType"].as_str() {
            file.mime = mime.to_owned();
        }
        if let Some(trashed) = facts["trashed"].as_bool() {
            file.trashed = trashed;
        }
        if let Some(time) = facts["modifiedTime"].as_str() {
            file.modified = read_time(time).ok_or_else(|| refuse(400, "invalid", "Invalid value for: modifiedTime"))?;
        }
        file.version += 1;
        Ok(file)
    }

    fn update(&mut self, sim_request: &SimRequest, id: &str) -> Result<Reply, Reply> {
        self.visible(sim_request, id)?;
        let mut file = self.changed(id, &sim_request.facts()?)?;
        let list = |name: &str| -> Vec<String> {
            sim_request
                .param(name)
                .split(',')
                .filter(|id| !id.is_empty())
                .map(|id| self.space.real(id).to_owned())
                .collect()
        };
        let (add, remove) = (list("addParents"), list("removeParents"));
        for parent in &remove {
            file.parents.retain(|own| own != parent);
        }
        for parent in add {
            if !self.space.files.contains_key(&parent) {
                return Err(missing(&parent));
            }
            file.parents = vec![parent];
            file.came_late = self.space.any_trashed(&file.parents);
        }
        if file.parents.is_empty() && !remove.is_empty() {
            return Err(refuse(403, "cannotRemoveParent", "A file must have a parent."));
        }
        let facts = self.space.facts(&file);
        self.space.put(file);
        Ok(sim_request.with_fields(FILE_FIELDS, &facts))
    }

    /// What becomes of bytes.
    fn kept(&self, bytes: Bytes) -> Bytes {
        if self.garbles { bytes.iter().map(|byte| byte ^ 1).collect() } else { bytes }
    }

    fn copy(&mut self, sim_request: &SimRequest, id: &str) -> Result<Reply, Reply> {
        let source = self.visible(sim_request, id)?.clone();
        if source.mime == FOLDER {
            return Err(refuse(403, "cannotCopyFile", "This file cannot be copied by the user."));
        }
        let mut facts = sim_request.facts()?;
        if facts["name"].is_null() {
            facts["name"] = source.name.as_str().into();
        }
        if facts["parents"].is_null() {
            facts["parents"] = json!(source.parents);
        }
        let mut file = self.create(&facts, Some(&source.mime))?;
        let revision = self.space.count();
        file.exports = source.exports;
        file.content = source.content.map(|content| Content::new(self.kept(content.bytes), revision));
        let facts = self.space.facts(&file);
        self.space.put(file);
        Ok(sim_request.with_fields(FILE_FIELDS, &facts))
    }

    fn begin_upload(&mut self, sim_request: &SimRequest, id: &str) -> Result<Reply, Reply> {
        let facts = sim_request.facts()?;
        let id = (sim_request.method == Method::PATCH).then(|| id.to_owned());
        match &id {
            Some(id) => drop(self.visible(sim_request, id)?),
            // What can't be created is refused at once.
            None => drop(self.create(&facts, None)?),
        }
        let mime = sim_request.header("x-upload-content-type").unwrap_or("application/octet-stream").to_owned();
        let number = self.space.count();
        let session = self.sessions.begin(number, Goal { id, facts, query: sim_request.query.clone(), mime });
        let host = sim_request.header("host").unwrap_or_default();
        // Clients that use a host name reach the simulator through TLS.
        let scheme = if host.starts_with("127.") { "http" } else { "https" };
        let mut reply = Reply::empty(200);
        let location = format!("{scheme}://{host}{UPLOAD}?uploadType=resumable&upload_id={session}");
        reply.headers.push(("location", location));
        Ok(reply)
    }

    fn upload(&mut self, sim_request: &SimRequest, id: &str) -> Result<Reply, Reply> {
        let kind = sim_request.header("content-type").unwrap_or_default().to_owned();
        let id = (sim_request.method == Method::PATCH).then(|| id.to_owned());
        if let Some(id) = &id {
            self.visible(sim_request, id)?;
        }
        let (facts, mime, bytes) = match sim_request.param("uploadType") {
            "multipart" => related(&kind, &sim_request.body)
                .ok_or_else(|| refuse(400, "badContent", "Malformed multipart body."))
                .and_then(|(facts, mime, bytes)| Ok((facts_of(&facts)?, mime, bytes)))?,
            "media" => (json!({}), kind, sim_request.body.clone()),
            _ => return Err(refuse(400, "badContent", "Unknown uploadType")),
        };
        if !self.takes(bytes.len() as u64) {
            return Err(refuse(403, "userRateLimitExceeded", DAY));
        }
        self.uploaded += bytes.len() as u64;
        self.finish_upload(&Goal { id, facts, query: sim_request.query.clone(), mime }, bytes).map(Reply::json)
    }

    /// All bytes of an upload are there.
    ///
    /// Errors: the refusal.
    pub fn finish_upload(&mut self, goal: &Goal, bytes: Bytes) -> Result<Value, Reply> {
        let mut file = match &goal.id {
            Some(id) => {
                let mut file = self.changed(id, &goal.facts)?;
                if goal.facts["modifiedTime"].is_null() {
                    file.modified = jiff::Timestamp::now();
                }
                file
            }
            None => self.create(&goal.facts, Some(&goal.mime))?,
        };
        let revision = self.space.count();
        file.content = Some(Content::new(self.kept(bytes), revision));
        let facts = self.space.facts(&file);
        self.space.put(file);
        with_fields(&goal.query, FILE_FIELDS, &facts)
    }

    fn others(&mut self, sim_request: &SimRequest) -> Result<Reply, Reply> {
        let drive = |(id, name): (&String, &String)| json!({ "kind": "drive#drive", "id": id, "name": name });
        match (&sim_request.method, sim_request.path.strip_prefix("/drive/v3/").unwrap_or_default()) {
            (&Method::GET, "about") if sim_request.param("fields").is_empty() => {
                Err(refuse(400, "required", "The 'fields' parameter is required for this method."))
            }
            (&Method::GET, "about") => {
                let used: usize =
                    self.space.files.values().filter_map(|file| Some(file.content.as_ref()?.bytes.len())).sum();
                let about = json!({
                    "kind": "drive#about",
                    "user": { "displayName": "User", "emailAddress": "user@example.com" },
                    "storageQuota": {
                        "limit": (15_u64 << 30).to_string(), "usage": used.to_string(), "usageInDrive": used.to_string(),
                        "usageInDriveTrash": "0",
                    },
                    "exportFormats": { DOCUMENT: [WORD, "application/pdf", "text/plain"] },
                    "importFormats": {},
                });
                Ok(sim_request.with_fields("*", &about))
            }
            (&Method::GET, "drives") => {
                let drives: Vec<_> = self.space.drives.iter().map(drive).collect();
                Ok(sim_request.with_fields("*", &json!({ "kind": "drive#driveList", "drives": drives })))
            }
            (&Method::GET, path) if path.starts_with("drives/") => {
                let found = self.space.drives.get_key_value(&path["drives/".len()..]);
                found.map(|found| sim_request.with_fields("*", &drive(found))).ok_or_else(|| missing(path))
            }
            (method, path) => Err(refuse(404, "notFound", &format!("no such method here: {method} {path}"))),
        }
    }
}

/// The parts of a body of type `multipart/related`: facts, the content's type, content. Google's own client ends its lines without CR.
pub(crate) fn related(kind: &str, body: &Bytes) -> Option<(Bytes, String, Bytes)> {
    let boundary = kind.split("boundary=").nth(1)?.split(';').next()?.trim().trim_matches('"');
    let line = format!("--{boundary}");
    let find = |from: usize, what: &[u8]| {
        body.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let first = find(0, line.as_bytes())?;
    let end = if body.get(first + line.len()) == Some(&b'\r') { "\r\n" } else { "\n" };
    let head = |from: usize| find(from, end.repeat(2).as_bytes()).map(|at| at + 2 * end.len());
    let next = format!("{end}{line}");
    let facts = head(first)?;
    let second = find(facts, next.as_bytes())?;
    let content = head(second + end.len())?;
    let mime = String::from_utf8_lossy(&body[second..content]).to_lowercase();
    let mime = mime.lines().find_map(|line| line.strip_prefix("content-type:")).unwrap_or("").trim().to_owned();
    // The content may hold anything, so its end is looked for from behind.
    let end = body.windows(next.len()).rposition(|window| window == next.as_bytes())?;
    (end >= content).then(|| (body.slice(facts..second), mime, body.slice(content..end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_body_are_found() {
        let body = "--x\r\nContent-Type: application/json\r\n\r\n{}\r\n--x\r\nContent-Type: text/plain\r\n\r\na\r\n--y\r\n--x--\r\n";
        let (facts, mime, content) = related("multipart/related; boundary=x", &Bytes::from(body)).unwrap();
        assert_eq!((&facts[..], &*mime, &content[..]), (&b"{}"[..], "text/plain", &b"a\r\n--y"[..]));
        assert!(related("multipart/related; boundary=z", &Bytes::from(body)).is_none());
        let body = "--x\nContent-Type: application/json\n\n{}\n--x\nContent-Type: text/plain\n\na\r\n\n--x--";
        let (facts, mime, content) = related("multipart/related; boundary=\"x\"", &Bytes::from(body)).unwrap();
        assert_eq!((&facts[..], &*mime, &content[..]), (&b"{}"[..], "text/plain", &b"a\r\n"[..]));
    }
}
