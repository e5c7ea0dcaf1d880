//! A Dropbox of our own, written from the service's documents: folders that fold case, cursors, upload sessions of both kinds, batches,
//! jobs, its refusals. It counts requests by name and fails as it is told.

mod files;
mod sessions;

use crate::serve::{Body, Server, answer, pairs};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use files::Tree;
use haul_core::{
    Algo,
    hash::{hash_bytes, to_hex},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How it answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What an answer takes.
    pub latency: Duration,
    /// Entries of a page at most, whatever is asked for.
    pub page: usize,
    /// Deletes in batches are jobs that are asked about so often before they are done.
    pub job_checks: usize,
    /// The account is one of a team, which has a space of its own.
    pub team: bool,
    /// Requests a second that may change a namespace, and so many at once before that counts; the others are told to come back.
    pub writes: Option<f64>,
    /// `Retry-After` of throttled requests, in seconds.
    pub retry_after: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { latency: Duration::ZERO, page: 2000, job_checks: 1, team: false, writes: None, retry_after: 1 }
    }
}

/// What it does instead of answering a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// 429 for this reason, to be tried again after so many seconds.
    Throttle(&'static str, u64),
    /// An error of the server.
    Status(u16),
    /// 409 with this summary (`reset`, `path/not_found`).
    Refuse(&'static str),
    /// It does what is asked and closes the connection without an answer.
    Lose,
    /// This many entries of a batch fail for too many writes, one each time.
    Crowded,
}

/// A running service.
#[derive(Debug)]
pub struct Dropbox {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    state: Mutex<State>,
    /// One commit of an account at a time.
    commits: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Changes that are allowed now, as of then.
    allowed: Option<(f64, Instant)>,
    throttled: u64,
    /// That of the namespace which the request is in.
    tree: Tree,
    /// That of the others: the team's, or while a request is in that, the person's.
    elsewhere: Tree,
    shared: Vec<SharedFolder>,
    sessions: sessions::Sessions,
    counts: BTreeMap<String, u64>,
    sent: u64,
    faults: Vec<(String, usize, Fault)>,
    token: u64,
    /// The log-in was ended: its refresh token is good no more.
    revoked: bool,
    /// Codes that the page of the service showed, each with the challenge that it was shown for.
    codes: Vec<(String, String)>,
    jobs: BTreeMap<String, (usize, Value)>,
    arguments: Vec<(String, Value)>,
    headers: Vec<String>,
}

/// The person's namespace …
const HOME: &str = "1";
/// … and the team's.
const TEAM: &str = "2";

/// A folder that somebody else shares.
#[derive(Debug)]
struct SharedFolder {
    name: String,
    mounted: bool,
    files: Vec<(String, Bytes)>,
}

impl SharedFolder {
    fn value(&self, id: usize) -> Value {
        let policy = |tag: &str| json!({".tag": tag});
        let mut value = json!({
            "name": self.name, "shared_folder_id": format!("{}", 100 + id), "access_type": policy("editor"),
            "is_inside_team_folder": false, "is_team_folder": false, "preview_url": "https://www.dropbox.com/scl/x",
            "time_invited": "2020-01-01T00:00:00Z", "access_inheritance": policy("inherit"),
            "policy": {"acl_update_policy": policy("owner"), "shared_link_policy": policy("anyone")},
        });
        if self.mounted {
            value["path_lower"] = format!("/{}", self.name.to_lowercase()).into();
        }
        value
    }
}

/// What is wrong with a request: the tags of its error.
type Refusal = &'static str;

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dropbox {
    /// Starts one with an empty account.
    ///
    /// Errors: no thread or port to be had.
    pub fn start(settings: Settings) -> io::Result<Dropbox> {
        let shared = Arc::new(Shared { settings, state: Mutex::default(), commits: tokio::sync::Mutex::default() });
        let of_server = shared.clone();
        let start = move || {
            Server::start(move |request, line| {
                let shared = of_server.clone();
                async move {
                    let _line = line;
                    serve(&shared, request).await
                }
            })
        };
        // It has a runtime of its own, which no test's may start.
        let server = thread::spawn(start).join().map_err(|_| io::Error::other("it panicked"))??;
        Ok(Dropbox { server, shared })
    }

    /// `http://127.0.0.1:PORT`, for both hosts of the service and for tokens.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Where it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.address
    }

    /// A token as a config file has it, good until [`Dropbox::expire`].
    pub fn token(&self) -> String {
        let access = access(self.shared.state().token);
        json!({"access_token": access, "token_type": "bearer", "refresh_token": "again", "expiry": "2999-01-01T00:00:00Z"})
            .to_string()
    }

    /// From here on no token is good that was given out before.
    pub fn expire(&self) {
        self.shared.state().token += 1;
    }

    /// The next `times` requests of this name (`files/upload`) fail.
    pub fn fail(&self, name: &str, times: usize, fault: Fault) {
        self.shared.state().faults.push((name.to_owned(), times, fault));
    }

    /// Requests by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.state().counts.clone()
    }

    /// Requests that were told to come back.
    pub fn throttled(&self) -> u64 {
        self.shared.state().throttled
    }

    /// Forgets what was counted.
    pub fn reset_counts(&self) {
        let mut state = self.shared.state();
        state.counts.clear();
        (state.throttled, state.sent) = (0, 0);
    }

    /// Bytes of content that were sent to it.
    pub fn sent(&self) -> u64 {
        self.shared.state().sent
    }

    /// Requests of this name and what they asked for.
    pub fn requests_of(&self, name: &str) -> Vec<Value> {
        let state = self.shared.state();
        state.arguments.iter().filter(|(of, _)| of == name).map(|(_, value)| value.clone()).collect()
    }

    /// Headers of Dropbox's own that came, one a line.
    pub fn headers(&self) -> Vec<String> {
        self.shared.state().headers.clone()
    }

    /// The next this many contents are stored with one byte changed.
    pub fn spoil(&self, times: usize) {
        self.shared.state().tree.spoils.0 = times;
    }

    /// Puts a file there.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let mut state = self.shared.state();
        let done = state.tree.commit(&json!({"path": path, "mode": "overwrite"}), Bytes::copy_from_slice(bytes));
        done.expect("a path");
    }

    /// Puts a file into the team's space.
    pub fn put_in_team(&self, path: &str, bytes: &[u8]) {
        let mut state = self.shared.state();
        let done = state.elsewhere.commit(&json!({"path": path, "mode": "overwrite"}), Bytes::copy_from_slice(bytes));
        done.expect("a path");
    }

    /// The same as [`Dropbox::all`] of the team's space.
    pub fn all_of_team(&self) -> BTreeMap<String, Option<Bytes>> {
        self.shared.state().elsewhere.all()
    }

    /// Somebody shares a folder with these files, by their paths in it. It isn't mounted.
    pub fn share(&self, name: &str, files: &[(&str, &[u8])]) {
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), Bytes::copy_from_slice(bytes))).collect();
        self.shared.state().shared.push(SharedFolder { name: name.to_owned(), mounted: false, files });
    }

    /// The names of all that is there, as they were written, with what files hold.
    pub fn all(&self) -> BTreeMap<String, Option<Bytes>> {
        self.shared.state().tree.all()
    }
}

fn access(number: u64) -> String {
    format!("access-{number}")
}

/// The hash that the service has of content.
fn content_hash(bytes: &[u8]) -> String {
    to_hex(hash_bytes(&[Algo::Dropbox], bytes).get(Algo::Dropbox).unwrap_or_default())
}

/// An error as the service writes it: each tag in the one before it. `of` is the request's name, `end` where the session that it is about
/// goes on.
fn refusal(of: &str, summary: &str, end: Option<u64>) -> Value {
    let mut tags = summary.split('/').rev();
    let mut value = json!({".tag": tags.next().unwrap_or_default()});
    if value[".tag"] == "incorrect_offset" {
        value["correct_offset"] = end.into();
    }
    for tag in tags {
        value = match (of, tag) {
            ("files/upload", "path") => {
                json!({".tag": tag, "reason": value, "upload_session_id": "pid_upload_session:x"})
            }
            _ => json!({".tag": tag, tag: value}),
        };
    }
    value
}

fn refuse(status: StatusCode, summary: &str) -> io::Result<Response<Body>> {
    answer_json(status, &json!({"error_summary": format!("{summary}/.."), "error": refusal("", summary, None)}))
}

fn answer_json(status: StatusCode, value: &Value) -> io::Result<Response<Body>> {
    let mut response = answer(status, value.to_string())?;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// It is to be tried again after so many seconds.
fn throttle(reason: &str, seconds: u64) -> io::Result<Response<Body>> {
    let error = json!({"reason": {".tag": reason}, "retry_after": seconds});
    let body = json!({"error_summary": format!("{reason}/.."), "error": error});
    let mut response = answer_json(StatusCode::TOO_MANY_REQUESTS, &body)?;
    response.headers_mut().insert("retry-after", seconds.into());
    Ok(response)
}

/// Requests that change a namespace, one at a time.
const CHANGES: [&str; 7] = [
    "files/upload",
    "files/upload_session/finish",
    "files/upload_session/finish_batch_v2",
    "files/delete_v2",
    "files/move_v2",
    "files/copy_v2",
    "files/create_folder_v2",
];

/// What came with a request.
struct SimRequest {
    name: String,
    argument: Value,
    body: Bytes,
    range: Option<String>,
}

impl State {
    /// The page on which everybody says yes; it shows a code, as it does for who names no address to come back to.
    fn page(&mut self, query: &BTreeMap<String, String>) -> io::Result<Response<Body>> {
        let of = |name: &str| query.get(name).map_or("", String::as_str);
        let known = of("client_id") == "app" && of("response_type") == "code" && of("token_access_type") == "offline";
        if !known || of("code_challenge_method") != "S256" || query.contains_key("redirect_uri") {
            return answer(StatusCode::BAD_REQUEST, "Invalid parameters".into());
        }
        let code = format!("code-{}", self.codes.len());
        self.codes.push((code.clone(), of("code_challenge").to_owned()));
        answer(StatusCode::OK, code)
    }

    /// A token, for a refresh token, or for a code and what proves who asked for it.
    fn grant(&mut self, form: &BTreeMap<String, String>) -> io::Result<Response<Body>> {
        let of = |name: &str| form.get(name).map_or("", String::as_str);
        *self.counts.entry("oauth2/token".into()).or_default() += 1;
        let mut token = json!({"access_token": access(self.token), "token_type": "bearer", "expires_in": 14400});
        let good = match of("grant_type") {
            "refresh_token" => of("refresh_token") == "again" && !self.revoked,
            "authorization_code" => {
                let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, of("code_verifier").as_bytes()));
                let shown = self.codes.iter().position(|(code, _)| code == of("code"));
                // A code is good once.
                let (_, asked) = shown.map(|at| self.codes.swap_remove(at)).unwrap_or_default();
                token["refresh_token"] = "again".into();
                asked == challenge && of("client_id") == "app" && !form.contains_key("redirect_uri")
            }
            _ => false,
        };
        if !good {
            return answer_json(StatusCode::BAD_REQUEST, &json!({"error": "invalid_grant"}));
        }
        if of("grant_type") == "authorization_code" {
            self.revoked = false;
        }
        answer_json(StatusCode::OK, &token)
    }
}

async fn serve(shared: &Shared, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    tokio::time::sleep(shared.settings.latency).await;
    let path = parts.uri.path();
    if path == "/oauth2/authorize" {
        return shared.state().page(&pairs(parts.uri.query().unwrap_or_default()));
    }
    if path == "/oauth2/token" {
        return shared.state().grant(&pairs(&String::from_utf8_lossy(&body)));
    }
    let Some(name) = path.strip_prefix("/2/") else { return answer(StatusCode::NOT_FOUND, String::new()) };
    let content = matches!(name, "files/upload" | "files/download")
        || matches!(
            name,
            "files/upload_session/start"
                | "files/upload_session/append_v2"
                | "files/upload_session/append_batch"
                | "files/upload_session/finish"
        );
    let argument = match (content, header("dropbox-api-arg")) {
        (true, Some(text)) => serde_json::from_str(&text).unwrap_or_default(),
        (false, _) if body.is_empty() => Value::Null,
        (false, _) => serde_json::from_slice(&body).unwrap_or_default(),
        (true, None) => Value::Null,
    };
    let body = if content { body } else { Bytes::new() };
    let fault = {
        let mut state = shared.state();
        *state.counts.entry(name.to_owned()).or_default() += 1;
        if !content || body.len() < 1 << 16 {
            state.arguments.push((name.to_owned(), argument.clone()));
        }
        for own in ["dropbox-api-path-root", "dropbox-api-select-user", "dropbox-api-select-admin"] {
            if let Some(value) = header(own) {
                state.headers.push(format!("{own}: {value}"));
            }
        }
        state.sent += body.len() as u64;
        if header("authorization") != Some(format!("Bearer {}", access(state.token))) {
            let why = if state.revoked { "invalid_access_token" } else { "expired_access_token" };
            return refuse(StatusCode::UNAUTHORIZED, why);
        }
        if name == "auth/token/revoke" {
            state.token += 1;
            state.revoked = true;
            return answer_json(StatusCode::OK, &Value::Null);
        }
        let at = state.faults.iter().position(|(of, times, _)| of == name && *times > 0);
        at.map(|at| {
            state.faults[at].1 -= 1;
            state.faults[at].2.clone()
        })
    };
    if (content && argument.is_null()) || (!content && parts.method != "POST") {
        return answer(StatusCode::BAD_REQUEST, format!("Error in call to API function \"{name}\""));
    }
    match &fault {
        Some(Fault::Throttle(reason, seconds)) => return throttle(reason, *seconds),
        Some(Fault::Status(status)) => {
            return answer(StatusCode::from_u16(*status).map_err(io::Error::other)?, String::new());
        }
        Some(Fault::Refuse(summary)) => return refuse(StatusCode::CONFLICT, summary),
        _ => {}
    }
    let commits = CHANGES.contains(&name);
    if commits && shared.state().is_crowded(&shared.settings) {
        return throttle("too_many_write_operations", shared.settings.retry_after);
    }
    let alone = match commits {
        true => {
            let alone = shared.commits.lock().await;
            tokio::time::sleep(shared.settings.latency).await;
            Some(alone)
        }
        false => None,
    };
    let sim_request = SimRequest { name: name.to_owned(), argument, body, range: header("range") };
    let crowded = matches!(fault, Some(Fault::Crowded));
    // Hashing takes time: not while others wait for the state.
    let hash = (!sim_request.body.is_empty() && sim_request.argument.get("content_hash").is_some())
        .then(|| content_hash(&sim_request.body));
    let answered = match (sim_request.argument.get("content_hash").and_then(Value::as_str), &hash) {
        (Some(said), Some(hash)) if said != hash => Err("content_hash_mismatch"),
        _ => {
            let mut state = shared.state();
            let root: Value =
                header("dropbox-api-path-root").and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            match root["namespace_id"].as_str().filter(|_| shared.settings.team).unwrap_or(HOME) {
                HOME => state.act(&shared.settings, &sim_request, crowded),
                TEAM => state.act_elsewhere(&shared.settings, &sim_request, crowded),
                _ => {
                    let error = json!({".tag": "no_permission"});
                    drop(state);
                    let refusal = json!({"error_summary": "no_permission/..", "error": error});
                    return answer_json(StatusCode::UNPROCESSABLE_ENTITY, &refusal);
                }
            }
        }
    };
    let answered = answered.map_err(|summary| {
        let end = shared.state().sessions.end(&sim_request.argument);
        (summary, refusal(&sim_request.name, summary, end))
    });
    drop(alone);
    if matches!(fault, Some(Fault::Lose)) {
        return Err(io::Error::other("lost"));
    }
    match answered {
        Ok(Answered::Json(value)) => answer_json(StatusCode::OK, &value),
        Ok(Answered::Content(facts, bytes)) => content_of(&sim_request, &facts, bytes),
        Err(("malformed", _)) => answer(
            StatusCode::BAD_REQUEST,
            format!(
                "Error in call to API function \"{}\": request body: path: did not match pattern",
                sim_request.name
            ),
        ),
        Err((summary, error)) => {
            answer_json(StatusCode::CONFLICT, &json!({"error_summary": format!("{summary}/.."), "error": error}))
        }
    }
}

enum Answered {
    Json(Value),
    Content(Value, Bytes),
}

fn content_of(sim_request: &SimRequest, facts: &Value, bytes: Bytes) -> io::Result<Response<Body>> {
    let whole = bytes.len();
    let range = sim_request.range.as_deref().and_then(|range| {
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        let from: usize = from.parse().ok()?;
        Some((from, to.parse::<usize>().map_or(whole, |to| to + 1).min(whole)))
    });
    let (status, bytes, span) = match range {
        Some((from, _)) if from >= whole => return answer(StatusCode::RANGE_NOT_SATISFIABLE, String::new()),
        Some((from, to)) => {
            (StatusCode::PARTIAL_CONTENT, bytes.slice(from..to), Some(format!("bytes {from}-{}/{whole}", to - 1)))
        }
        None => (StatusCode::OK, bytes, None),
    };
    let mut response = Response::new(Full::new(bytes).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // In a header all is ASCII.
    let mut text = String::new();
    for unit in facts.to_string().chars() {
        match unit.is_ascii() {
            true => text.push(unit),
            false => unit.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    headers.insert("dropbox-api-result", text.parse().map_err(io::Error::other)?);
    if let Some(span) = span {
        headers.insert("content-range", span.parse().map_err(io::Error::other)?);
    }
    Ok(response)
}

impl State {
    /// More changes came than are allowed.
    fn is_crowded(&mut self, settings: &Settings) -> bool {
        let Some(rate) = settings.writes else { return false };
        let now = Instant::now();
        let (left, at) = self.allowed.unwrap_or((rate, now));
        let left = (left + now.duration_since(at).as_secs_f64() * rate).min(rate.max(1.0));
        let crowded = left < 1.0;
        self.allowed = Some((if crowded { left } else { left - 1.0 }, now));
        self.throttled += u64::from(crowded);
        crowded
    }

    /// In the team's namespace.
    fn act_elsewhere(
        &mut self,
        settings: &Settings,
        sim_request: &SimRequest,
        crowded: bool,
    ) -> Result<Answered, Refusal> {
        std::mem::swap(&mut self.tree, &mut self.elsewhere);
        let answered = self.act(settings, sim_request, crowded);
        std::mem::swap(&mut self.tree, &mut self.elsewhere);
        answered
    }

    /// A page of the shared folders from this one on.
    fn shared_from(&self, from: usize, limit: usize) -> Value {
        let mut entries: Vec<Value> = self.shared.iter().enumerate().map(|(id, folder)| folder.value(id)).collect();
        let rest = entries.split_off(from.min(entries.len()));
        let mut page = json!({"entries": rest.iter().take(limit).collect::<Vec<_>>()});
        if rest.len() > limit {
            page["cursor"] = format!("{}-{limit}", from + limit).into();
        }
        page
    }

    fn mount(&mut self, id: &str) -> Result<Value, Refusal> {
        let at = id.parse::<usize>().ok().and_then(|id| id.checked_sub(100)).ok_or("access_error/invalid_id")?;
        let folder = self.shared.get_mut(at).ok_or("access_error/invalid_id")?;
        if std::mem::replace(&mut folder.mounted, true) {
            return Err("already_mounted");
        }
        self.tree.create_folder(&format!("/{}", folder.name))?;
        for (path, bytes) in std::mem::take(&mut folder.files) {
            self.tree.commit(&json!({"path": format!("/{}/{path}", folder.name)}), bytes)?;
        }
        Ok(folder.value(at))
    }

    /// Contents that stand one after another.
    fn append_many(&mut self, argument: &Value, body: &Bytes) -> Result<Value, Refusal> {
        let entries = argument["entries"].as_array().cloned().unwrap_or_default();
        let length = |entry: &Value| entry["length"].as_u64().unwrap_or(0) as usize;
        if entries.len() > 1000 {
            return Err("malformed");
        }
        if entries.iter().map(length).sum::<usize>() != body.len() {
            return Err("length_mismatch");
        }
        let mut at = 0;
        let each = entries.iter().map(|entry| {
            let piece = body.slice(at..at + length(entry));
            at += piece.len();
            match self.sessions.append(entry, piece) {
                Ok(_) => json!({".tag": "success"}),
                Err(summary) => {
                    let end = self.sessions.end(entry);
                    json!({".tag": "failure", "failure": refusal("", summary, end)})
                }
            }
        });
        Ok(json!({"entries": each.collect::<Vec<_>>()}))
    }

    fn act(&mut self, settings: &Settings, sim_request: &SimRequest, crowded: bool) -> Result<Answered, Refusal> {
        let argument = &sim_request.argument;
        let path = |name: &str| argument[name].as_str().unwrap_or_default().to_owned();
        let json = match sim_request.name.as_str() {
            "files/list_folder" => {
                let recursive = argument["recursive"].as_bool() == Some(true);
                let limit = argument["limit"].as_u64().map_or(500, |limit| limit as usize).min(settings.page);
                self.tree.list(&path("path"), recursive, limit)?
            }
            "files/list_folder/continue" => self.tree.go_on(&path("cursor"))?,
            "files/get_metadata" => self.tree.facts(&path("path")).ok_or("path/not_found")??,
            "files/download" => {
                let (facts, bytes) = self.tree.content(&path("path"))?;
                return Ok(Answered::Content(facts, bytes));
            }
            "files/upload" => {
                let facts = self.tree.commit(argument, sim_request.body.clone())?;
                untagged(facts)
            }
            "files/upload_session/start" => self.sessions.start(argument, sim_request.body.clone())?,
            "files/upload_session/append_v2" => self.sessions.append(argument, sim_request.body.clone())?,
            "files/upload_session/append_batch" => self.append_many(argument, &sim_request.body)?,
            "files/upload_session/start_batch" => {
                let count = argument["num_sessions"].as_u64().unwrap_or(0);
                let ids: Vec<Value> = (0..count)
                    .map(|_| Ok(self.sessions.start(&json!({"session_type": argument["session_type"]}), Bytes::new())?["session_id"].clone()))
                    .collect::<Result<_, Refusal>>()?;
                json!({"session_ids": ids})
            }
            "files/upload_session/finish" => {
                let bytes = self.sessions.finish(argument, sim_request.body.clone(), false)?;
                untagged(self.tree.commit(&argument["commit"], bytes)?)
            }
            "files/upload_session/finish_batch_v2" => {
                let entries = argument["entries"].as_array().cloned().unwrap_or_default();
                if entries.len() > 1000 {
                    return Err("too_many_entries");
                }
                let last = entries.len().saturating_sub(1);
                let each = entries.iter().enumerate().map(|(number, entry)| {
                    let done = match crowded && number == last {
                        true => Err("too_many_write_operations"),
                        false => self
                            .sessions
                            .finish(entry, Bytes::new(), true)
                            .and_then(|bytes| self.tree.commit(&entry["commit"], bytes)),
                    };
                    match done {
                        Ok(mut facts) => {
                            facts[".tag"] = "success".into();
                            facts
                        }
                        Err(summary) => {
                            json!({".tag": "failure", "failure": refusal(&sim_request.name, summary, None)})
                        }
                    }
                });
                json!({"entries": each.collect::<Vec<_>>()})
            }
            "files/create_folder_v2" => {
                let facts = self.tree.create_folder(&path("path"))?;
                json!({"metadata": untagged(facts)})
            }
            "files/delete_v2" => json!({"metadata": self.tree.delete(&path("path"), argument["parent_rev"].as_str())?}),
            "files/delete_batch" => {
                let entries = argument["entries"].as_array().cloned().unwrap_or_default();
                let each = entries.iter().map(|entry| {
                    let path = entry["path"].as_str().unwrap_or_default();
                    match self.tree.delete(path, entry["parent_rev"].as_str()) {
                        Ok(facts) => json!({".tag": "success", "metadata": facts}),
                        Err(summary) => {
                            json!({".tag": "failure", "failure": refusal(&sim_request.name, summary, None)})
                        }
                    }
                });
                let done = json!({".tag": "complete", "entries": each.collect::<Vec<_>>()});
                let id = format!("job-{}", self.jobs.len());
                if settings.job_checks == 0 {
                    return Ok(Answered::Json(done));
                }
                self.jobs.insert(id.clone(), (settings.job_checks, done));
                json!({".tag": "async_job_id", "async_job_id": id})
            }
            "files/delete_batch/check" => {
                let (left, done) = self.jobs.get_mut(&path("async_job_id")).ok_or("invalid_async_job_id")?;
                *left = left.saturating_sub(1);
                if *left > 0 { json!({".tag": "in_progress"}) } else { done.clone() }
            }
            "files/copy_v2" => json!({"metadata": self.tree.relocate(&path("from_path"), &path("to_path"), false)?}),
            "files/move_v2" => json!({"metadata": self.tree.relocate(&path("from_path"), &path("to_path"), true)?}),
            "users/get_space_usage" => json!({
                "used": self.tree.used(),
                "allocation": {".tag": "individual", "allocated": 1u64 << 40},
            }),
            "users/get_current_account" => json!({
                "account_id": "dbid:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                "name": {"given_name": "A", "surname": "B", "familiar_name": "A", "display_name": "A B", "abbreviated_name": "AB"},
                "email": "a@example.com", "email_verified": true, "disabled": false, "locale": "en",
                "referral_link": "https://db.tt/x", "is_paired": false, "account_type": {".tag": "basic"},
                "root_info": match settings.team {
                    true => json!({".tag": "team", "root_namespace_id": TEAM, "home_namespace_id": HOME, "home_path": "/A B"}),
                    false => json!({".tag": "user", "root_namespace_id": HOME, "home_namespace_id": HOME}),
                },
            }),
            "sharing/list_folders" => {
                let limit = argument["limit"].as_u64().map_or(1000, |limit| limit as usize).min(settings.page);
                self.shared_from(0, limit)
            }
            "sharing/list_folders/continue" => {
                let cursor = path("cursor");
                let (from, limit) = cursor.split_once('-').ok_or("invalid_cursor")?;
                let number = |text: &str| text.parse::<usize>().map_err(|_| "invalid_cursor");
                self.shared_from(number(from)?, number(limit)?)
            }
            "sharing/mount_folder" => self.mount(&path("shared_folder_id"))?,
            _ => return Err("malformed"),
        };
        Ok(Answered::Json(json))
    }
}

/// Facts of what can only be a file, or only a folder.
fn untagged(mut facts: Value) -> Value {
    if let Some(facts) = facts.as_object_mut() {
        facts.remove(".tag");
    }
    facts
}
