//! What is asked and what is answered.

use super::{
    State, Tokens, USER_CODE,
    drive::{self, BAD, CHANGED, Drive, ID, Item, MISSING, No, ROOT},
    names::decoded,
    whole,
};
use crate::serve::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{Response, body::Incoming, header, http::request::Parts};
use serde_json::{Value, json};
use std::io;

/// A request, taken apart.
#[derive(Debug)]
pub struct SimRequest {
    pub kind: &'static str,
    method: String,
    /// Decoded, without the service's own beginning.
    path: String,
    query: Vec<(String, String)>,
    /// Host of content and upload sessions: another one than the service's, for clients that use names.
    base: String,
    /// What stands before a next page's query.
    here: String,
    condition: Option<String>,
    range: Option<String>,
    content_range: Option<String>,
    /// By a path, not as the child of a folder.
    by_path: bool,
}

impl SimRequest {
    pub fn new(head: &Parts) -> SimRequest {
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let host = header("host").unwrap_or_default();
        let raw = head.uri.path();
        let path = decoded(raw.strip_prefix("/_api/v2.0").or_else(|| raw.strip_prefix("/v1.0")).unwrap_or(raw));
        let query = head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = query.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(&value.replace('+', " ")))
        });
        let query: Vec<(String, String)> = query.collect();
        let by_path = path.contains(":/");
        let path = of_child(&path, &query).unwrap_or(path);
        let method = head.method.as_str().to_owned();
        SimRequest {
            kind: kind(&method, &path),
            method,
            here: format!("http://{host}{raw}"),
            path,
            query,
            by_path,
            base: format!("http://{}", host.replace("localhost", "127.0.0.1")),
            condition: header("if-match"),
            range: header("range"),
            content_range: header("content-range"),
        }
    }

    /// Its body is content.
    pub fn carries(&self) -> bool {
        matches!(self.kind, "range" | "put")
    }

    fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// The id of the one site: of the host, of the collection, of the site.
const SITE: &str = "x.example,1,2";

fn kind(method: &str, path: &str) -> &'static str {
    let verb = verb(path);
    match (method, path) {
        (_, path) if path.starts_with("/token") => "token",
        ("POST", "/devicecode") => "devicecode",
        (_, path) if path.starts_with("/dl/") => "download",
        (_, path) if path.starts_with("/monitor/") => "monitor",
        ("PUT", path) if path.starts_with("/up/") => "range",
        ("GET", path) if path.starts_with("/up/") => "status",
        ("POST", path) if path.starts_with("/up/") => "commit",
        ("DELETE", path) if path.starts_with("/up/") => "cancel",
        ("GET", "/me/drives") => "drives",
        ("GET", path) if path.starts_with("/sites/") && path.ends_with("/drives") => "drives",
        ("GET", path) if path.starts_with("/sites") => "site",
        _ => match (method, verb) {
            ("GET", "children") => "children",
            ("POST", "children") => "mkdir",
            ("PUT", "content") => "put",
            ("GET", "content") => "content",
            ("POST", "createUploadSession") => "session",
            ("POST", "copy") => "copy",
            ("POST", "createLink") => "createLink",
            ("POST", "permanentDelete") => "permanentDelete",
            ("GET", "delta") => "delta",
            (_, "versions") => "versions",
            ("PATCH", "") => "patch",
            ("DELETE", "") => "delete",
            ("GET", "drive") => "drive",
            ("GET", "") => "item",
            _ => "other",
        },
    }
}

/// The path of an item that is named as a child of a folder: `children('NAME')`, or by a parameter for that
/// (<https://docs.oasis-open.org/odata/odata/v4.01/odata-v4.01-part2-url-conventions.html>).
fn of_child(path: &str, query: &[(String, String)]) -> Option<String> {
    let (folder, rest) = path.split_once("/children('")?;
    let rest = rest.replace("''", "\0");
    let (name, verb) = rest.split_once("')")?;
    let name = match name.starts_with('@') {
        true => {
            let value = query.iter().find(|(known, _)| known == name).map(|(_, value)| value)?;
            value.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'")
        }
        false => name.replace('\0', "'"),
    };
    Some(format!("{folder}:/{name}:{verb}"))
}

/// The drive's id, the base item's id, the path below it, and what is asked of that.
fn parts(path: &str) -> Option<(String, String, String, String)> {
    let (drive, rest) = match path.strip_prefix("/me/drive") {
        Some(rest) => (ID, rest),
        None => path.strip_prefix("/drives/")?.split_once('/')?,
    };
    let rest = rest.trim_start_matches('/');
    let (base, rest) = match rest.strip_prefix("items/") {
        Some(rest) => {
            let end = rest.find(['/', ':']).unwrap_or(rest.len());
            let (id, rest) = rest.split_at(end);
            (if id == "root" { Drive::root(drive) } else { id }, rest)
        }
        None => (Drive::root(drive), rest.strip_prefix("root")?),
    };
    let (below, verb) = match rest.strip_prefix(':') {
        Some(rest) => rest.split_once(':').unwrap_or((rest, "")),
        None => ("", rest),
    };
    // A function may be called with its parentheses: `delta()`.
    let verb = verb.trim_matches('/').trim_end_matches("()");
    Some((drive.into(), base.into(), below.trim_matches('/').into(), verb.into()))
}

fn verb(path: &str) -> &str {
    let is_drive = path == "/me/drive" || path.strip_prefix("/drives/").is_some_and(|rest| !rest.contains('/'));
    if is_drive {
        return "drive";
    }
    let of = |name: &str| parts(path).is_some_and(|(.., verb)| verb == name || verb.starts_with(&format!("{name}/")));
    let verbs =
        ["children", "content", "createUploadSession", "copy", "createLink", "permanentDelete", "delta", "versions"];
    match verbs.into_iter().find(|verb| of(verb)) {
        Some(verb) => verb,
        None if parts(path).is_some_and(|(.., verb)| verb.is_empty()) => "",
        None => "other",
    }
}

/// The body's pieces, and whether it came whole; `took` is told of each as it comes.
pub async fn read(mut body: Incoming, took: impl Fn(usize)) -> (Vec<Bytes>, bool) {
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => {
                took(data.len());
                pieces.push(data);
            }
            Ok(Err(_)) => {}
            Err(_) => return (pieces, false),
        }
    }
    (pieces, true)
}

/// A refusal, with `Retry-After` where it is one that passes.
pub fn refused(status: u16, code: &str, message: &str, retry_after: u64) -> io::Result<Response<Body>> {
    let body = json!({"error": {"code": code, "message": message, "innerError": {"code": code}}});
    let mut response = whole(status, body.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if matches!(status, 429 | 503) {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(retry_after));
    }
    Ok(response)
}

fn json_reply(status: u16, value: &Value) -> Response<Body> {
    let mut response = whole(status, value.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn to(status: u16, address: &str) -> Response<Body> {
    let mut response = whole(status, Bytes::new());
    if let Ok(value) = header::HeaderValue::from_str(address) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

/// How a device asks (RFC 8628, section 3.4).
const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A field of a form.
fn field(body: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(body);
    let pair = text.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    decoded(pair.unwrap_or_default())
}

impl Tokens {
    /// A code for a device, whose person is somewhere else.
    fn device(&mut self, body: &[u8]) -> Response<Body> {
        let scope = field(body, "scope");
        // Without the last one there is no refresh token.
        if field(body, "client_id") != "app" || !scope.split(' ').any(|scope| scope == "offline_access") {
            return whole(400, "{\"error\":\"invalid_request\"}");
        }
        self.device = Some(false);
        let told = json!({
            "device_code": "device", "user_code": USER_CODE, "verification_uri": "https://microsoft.com/devicelogin",
            "expires_in": 900, "interval": 1, "message": "To sign in, open the page and enter the code.",
        });
        whole(200, told.to_string())
    }

    /// The answer to a device that asks whether the code was typed in.
    fn typed(&mut self, code: &str) -> Result<String, &'static str> {
        match self.device {
            Some(true) if code == "device" => {
                self.device = None;
                Ok(self.next())
            }
            Some(false) if code == "device" => Err("authorization_pending"),
            _ => Err("expired_token"),
        }
    }
}

impl State {
    pub fn answer(&mut self, request: &SimRequest, pieces: Vec<Bytes>, is_whole: bool) -> io::Result<Response<Body>> {
        if !is_whole && request.kind != "range" {
            return Err(io::Error::other("cut"));
        }
        match self.work(request, pieces, is_whole) {
            Ok(response) => Ok(response),
            Err((0, _)) => Err(io::Error::other("cut")),
            Err((status, code)) => refused(status, code, code, self.settings.retry_after),
        }
    }

    fn work(&mut self, request: &SimRequest, pieces: Vec<Bytes>, is_whole: bool) -> Result<Response<Body>, No> {
        match request.kind {
            "token" => return Ok(self.token(&pieces.concat())),
            "devicecode" => return Ok(self.tokens.device(&pieces.concat())),
            "download" => return self.download(request),
            "monitor" => {
                let id = request.path.trim_start_matches("/monitor/");
                let percent = json!({"status": "completed", "percentageComplete": 100.0, "resourceId": id});
                return Ok(json_reply(200, &percent));
            }
            "drive" => return Ok(json_reply(200, &self.drive_json())),
            "drives" => return Ok(json_reply(200, &json!({"value": [self.drive_json()]}))),
            "site" => return self.site(request),
            "range" => return self.range(request, pieces, is_whole),
            "status" | "commit" | "cancel" => return self.session(request),
            _ => {}
        }
        let (drive, base, path, verb) = parts(&request.path).ok_or(BAD)?;
        if request.by_path && self.settings.by_child {
            return Err(BAD);
        }
        // Another drive's ids are none here.
        if self.drive.drive_of(&base) != drive {
            return Err(MISSING);
        }
        let body: Value = match request.kind {
            "put" => Value::Null,
            _ => serde_json::from_slice(&pieces.concat()).unwrap_or(Value::Null),
        };
        let conflict = |default: &str| {
            let item = body.get("item").unwrap_or(&body);
            let own = item.get("@microsoft.graph.conflictBehavior").or_else(|| item.get("@name.conflictBehavior"));
            let own = own.and_then(Value::as_str).or_else(|| request.query("@microsoft.graph.conflictBehavior"));
            own.or_else(|| request.query("@name.conflictBehavior")).unwrap_or(default).to_owned()
        };
        let mtime = |value: &Value| value["fileSystemInfo"]["lastModifiedDateTime"].as_str().and_then(drive::second);
        match request.kind {
            "session" | "put" => {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
                let (parent, name) = match path.is_empty() {
                    // Of an item by its id.
                    true => {
                        let item = self.drive.items.get(&base).ok_or(MISSING)?;
                        (item.parent.clone(), item.name.clone())
                    }
                    false => (self.drive.folders(&base, above)?, name.to_owned()),
                };
                let conflict = conflict("replace");
                self.drive.may_store(&parent, &name, &conflict, request.condition.as_deref())?;
                if request.kind == "put" {
                    let at = format!("{}/{name}", self.drive.path(&parent));
                    let before = self.drive.count;
                    let id = self.drive.put(at.trim_start_matches('/'), pieces.concat().into(), None, &conflict)?;
                    return Ok(self.item(
                        &id,
                        request,
                        if self.drive.items[&id].versions == 1 && before > 0 { 201 } else { 200 },
                    ));
                }
                let item = body.get("item").cloned().unwrap_or(Value::Null);
                let defer = body["deferCommit"].as_bool().unwrap_or(false);
                let id = self.drive.open(parent, name, conflict, mtime(&item), defer);
                Ok(json_reply(
                    200,
                    &json!({
                        "uploadUrl": format!("{}/up/{id}?tempauth=secret", request.base),
                        "expirationDateTime": "2099-01-01T00:00:00Z",
                        "nextExpectedRanges": ["0-"],
                    }),
                ))
            }
            "mkdir" => {
                let parent = self.drive.find(&base, &path)?;
                if parent.target.is_some() {
                    return Err(MISSING);
                }
                let parent = parent.id.clone();
                let name = body["name"].as_str().ok_or(BAD)?.to_owned();
                let id = self.drive.make_folder(&parent, &name, &conflict("fail"), mtime(&body))?;
                Ok(self.item(&id, request, 201))
            }
            "children" => {
                let item = self.drive.find(&base, &path)?;
                if item.target.is_some() {
                    return Err(MISSING);
                }
                let children: Vec<&Item> = self.drive.children(&item.id).collect();
                let top = request.query("$top").and_then(|top| top.parse().ok()).unwrap_or(200);
                let from = request.query("$skiptoken").and_then(|from| from.parse().ok()).unwrap_or(0);
                let page = top.min(self.settings.page).max(1);
                let values: Vec<Value> = children
                    .iter()
                    .skip(from)
                    .take(page)
                    .map(|item| self.drive.json(item, &request.base, false))
                    .collect();
                let mut answer = json!({"value": values});
                if from + page < children.len() {
                    answer["@odata.nextLink"] =
                        json!(format!("{}?$top={top}&$skiptoken={}", request.here, from + page));
                }
                Ok(json_reply(200, &answer))
            }
            "delta" => self.delta(request),
            "item" => {
                let id = self.drive.find(&base, &path)?.id.clone();
                Ok(self.item(&id, request, 200))
            }
            "content" => Ok(to(302, &drive::download(&request.base, self.drive.find(&base, &path)?))),
            "patch" => {
                let item = self.drive.find(&base, &path)?;
                condition(request, item)?;
                let id = item.id.clone();
                let parent = match &body["parentReference"] {
                    Value::Null => None,
                    to => Some(to["id"].as_str().map(str::to_owned).ok_or(BAD)?),
                };
                let name = body["name"].as_str();
                self.drive.patch(&id, name, parent.as_deref(), mtime(&body))?;
                Ok(self.item(&id, request, 200))
            }
            "delete" | "permanentDelete" => {
                let item = self.drive.find(&base, &path)?;
                condition(request, item)?;
                let id = item.id.clone();
                self.drive.remove(&id, request.kind == "permanentDelete")?;
                Ok(whole(204, Bytes::new()))
            }
            "copy" => {
                let id = self.drive.find(&base, &path)?.id.clone();
                let parent = body["parentReference"]["id"].as_str().ok_or(BAD)?.to_owned();
                if self.drive.drive_of(&parent) != body["parentReference"]["driveId"].as_str().unwrap_or(&drive) {
                    return Err(MISSING);
                }
                let own = self.drive.items[&id].name.clone();
                let name = body["name"].as_str().unwrap_or(&own).to_owned();
                let made = self.drive.copy(&id, &parent, &name, &conflict("fail"))?;
                Ok(to(202, &format!("{}/monitor/{made}", request.base)))
            }
            "createLink" => {
                let item = self.drive.find(&base, &path)?;
                let link = json!({"type": body["type"], "scope": body["scope"], "webUrl": format!("{}/s/{}", request.base, item.id)});
                Ok(json_reply(201, &json!({"id": "1", "link": link})))
            }
            "versions" => {
                let id = self.drive.find(&base, &path)?.id.clone();
                let number = |id: &str| id.strip_suffix(".0")?.parse::<usize>().ok();
                if let Some(version) =
                    verb.strip_prefix("versions/").and_then(|rest| rest.strip_suffix("/restoreVersion"))
                {
                    self.drive.restore(&id, number(version).ok_or(MISSING)?)?;
                    return Ok(whole(204, Bytes::new()));
                }
                let item = self.drive.items.get_mut(&id).ok_or(MISSING)?;
                match verb.strip_prefix("versions/") {
                    Some(version) if request.method == "DELETE" => {
                        let at = number(version).and_then(|number| number.checked_sub(1)).ok_or(MISSING)?;
                        if at < item.history.len() {
                            item.history.remove(at);
                        }
                        item.versions -= 1;
                        Ok(whole(204, Bytes::new()))
                    }
                    _ => {
                        let versions: Vec<Value> =
                            (1..=item.versions).rev().map(|n| json!({"id": format!("{n}.0"), "size": 0})).collect();
                        Ok(json_reply(200, &json!({"value": versions})))
                    }
                }
            }
            _ => Err(BAD),
        }
    }

    fn token(&mut self, body: &[u8]) -> Response<Body> {
        let of = |name: &str| field(body, name);
        let (device, answer) = match &*of("grant_type") {
            DEVICE => (true, self.tokens.typed(&of("device_code"))),
            _ => (false, self.tokens.renew(&of("refresh_token")).ok_or("invalid_grant")),
        };
        match answer {
            Ok(answer) => whole(200, answer),
            Err(error) => {
                let why = if device { "AADSTS70016: see the error" } else { "AADSTS70000: it was used before" };
                whole(400, json!({"error": error, "error_description": why}).to_string())
            }
        }
    }

    fn drive_json(&self) -> Value {
        let (total, used) = (1u64 << 40, self.drive.used());
        json!({
            "id": ID,
            "name": "OneDrive",
            "driveType": self.settings.drive_type,
            "owner": {"user": {"id": "u1", "displayName": "A B", "email": "a@example.com"}},
            "quota": {"total": total, "used": used, "remaining": total - used, "deleted": 0, "state": "normal"},
        })
    }

    /// One site, by a search for part of its name, by its path, or by its id.
    fn site(&self, request: &SimRequest) -> Result<Response<Body>, No> {
        let site = json!({"id": SITE, "name": "team", "displayName": "Team", "webUrl": "https://x.example/sites/team"});
        match (request.query("search"), request.path.trim_start_matches("/sites/")) {
            (Some(word), _) if !word.is_empty() && "team".contains(word) => {
                Ok(json_reply(200, &json!({"value": [site]})))
            }
            (Some(_), _) => Ok(json_reply(200, &json!({"value": []}))),
            (None, SITE | "root:/sites/team" | "x.example:/sites/team") => Ok(json_reply(200, &site)),
            _ => Err(MISSING),
        }
    }

    fn item(&self, id: &str, request: &SimRequest, status: u16) -> Response<Body> {
        json_reply(status, &self.drive.json(&self.drive.items[id], &request.base, false))
    }

    fn download(&self, request: &SimRequest) -> Result<Response<Body>, No> {
        let item = self.drive.items.get(request.path.trim_start_matches("/dl/")).ok_or(MISSING)?;
        let content = item.file.as_ref().ok_or(MISSING)?;
        if content.bytes.len() as u64 != content.size {
            return Err((507, "forgotten"));
        }
        let size = content.size;
        let asked_for = request.range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let mut response = match asked_for {
            None => whole(200, content.bytes.clone()),
            Some((from, end)) => {
                let from = from.parse::<u64>().map_err(|_| BAD)?;
                let end = end.parse::<u64>().map_or(size, |end| (end + 1).min(size));
                if from >= size {
                    return Err((416, "invalidRange"));
                }
                let mut response = whole(206, content.bytes.slice(from as usize..end as usize));
                let range = format!("bytes {from}-{}/{size}", end - 1);
                if let Ok(value) = header::HeaderValue::from_str(&range) {
                    response.headers_mut().insert(header::CONTENT_RANGE, value);
                }
                response
            }
        };
        if let Ok(value) = header::HeaderValue::from_str(&item.etag()) {
            response.headers_mut().insert(header::ETAG, value);
        }
        Ok(response)
    }

    fn range(&mut self, request: &SimRequest, pieces: Vec<Bytes>, is_whole: bool) -> Result<Response<Body>, No> {
        let id = request.path.trim_start_matches("/up/");
        let text = request.content_range.as_deref().and_then(|text| text.strip_prefix("bytes ")).ok_or(BAD)?;
        let (range, total) = text.split_once('/').ok_or(BAD)?;
        let (from, end) = range.split_once('-').ok_or(BAD)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| BAD);
        let (from, end, total) = (number(from)?, number(end)?, number(total)?);
        let came: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if !is_whole {
            // A range that was cut isn't kept.
            return Err((0, "cut"));
        }
        if came != (end + 1).saturating_sub(from) {
            return Err(BAD);
        }
        match self.drive.append(id, from, total, &pieces)? {
            Some(id) => {
                let status = if self.drive.items[&id].versions == 1 { 201 } else { 200 };
                Ok(self.item(&id, request, status))
            }
            None => Ok(json_reply(202, &self.expected(id)?)),
        }
    }

    fn expected(&self, id: &str) -> Result<Value, No> {
        let session = self.drive.sessions.get(id).ok_or(MISSING)?;
        let ranges: Vec<String> = match session.total {
            Some(total) if session.has == total => Vec::new(),
            Some(total) => vec![format!("{}-{}", session.has, total - 1)],
            None => vec![format!("{}-", session.has)],
        };
        Ok(json!({"expirationDateTime": "2099-01-01T00:00:00Z", "nextExpectedRanges": ranges}))
    }

    fn session(&mut self, request: &SimRequest) -> Result<Response<Body>, No> {
        let id = request.path.trim_start_matches("/up/");
        match request.kind {
            "commit" => {
                let made = self.drive.commit(id)?;
                Ok(self.item(&made, request, 201))
            }
            "cancel" => {
                self.drive.sessions.remove(id).ok_or(MISSING)?;
                Ok(whole(204, Bytes::new()))
            }
            _ => Ok(json_reply(200, &self.expected(id)?)),
        }
    }

    /// All items, or those changed since the token; parents need not come first.
    fn delta(&mut self, request: &SimRequest) -> Result<Response<Body>, No> {
        let token = request.query("token").unwrap_or_default();
        let (since, from) = token.split_once('.').unwrap_or((token, "0"));
        let number =
            |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u64>().map_err(|_| (410, "resyncRequired")) };
        let (since, from) = (number(since)?, number(from)? as usize);
        let mut changed: Vec<&Item> = self.drive.items.values().filter(|item| item.change > since).collect();
        changed.retain(|item| self.drive.drive_of(&item.id) == ID);
        // A complete listing shows folders before their contents.
        let depth = |item: &Item| if since == 0 { self.drive.path(&item.id).split('/').count() } else { 0 };
        changed.sort_by_key(|item| (item.id != ROOT, depth(item), item.change));
        let mut values: Vec<Value> = changed.iter().map(|item| self.drive.json(item, &request.base, true)).collect();
        let gone = self.drive.deleted.iter().filter(|(_, at)| since > 0 && **at > since);
        values.extend(gone.map(|(id, _)| json!({"id": id, "deleted": {"state": "deleted"}})));
        // The service may tell an item twice.
        if let Some(twice) = values.get(1).cloned() {
            values.push(twice);
        }
        let top = request.query("$top").and_then(|top| top.parse().ok()).unwrap_or(200);
        let page = top.min(self.settings.page).max(1);
        let next = from + page;
        let mut answer = json!({"value": values.iter().skip(from).take(page).collect::<Vec<_>>()});
        match next < values.len() {
            true => answer["@odata.nextLink"] = json!(format!("{}?$top={top}&token={since}.{next}", request.here)),
            false => answer["@odata.deltaLink"] = json!(format!("{}?token={}", request.here, self.drive.count)),
        }
        Ok(json_reply(200, &answer))
    }
}

fn condition(request: &SimRequest, item: &Item) -> Result<(), No> {
    match &request.condition {
        Some(tag) if !item.is(tag) => Err(CHANGED),
        _ => Ok(()),
    }
}
