//! A Box of our own, written from the service's documents (<https://developer.box.com/reference>): items by id, names that fold case, a
//! trash, forms, upload sessions that say how long their parts are, commits that take their time, refresh tokens that are good once,
//! applications with keys. It counts requests by name and fails as it is told. Real rclone, and Box's own SDK for Python, are held
//! against it in the tests of the store.

mod answer;
mod auth;
mod drive;
mod sessions;

pub use drive::FileView;

use crate::serve::{Body, Server};
use auth::Auth;
use bytes::Bytes;
use drive::Drive;
use http_body_util::BodyExt as _;
use hyper::{Request, Response, body::Incoming};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How it answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What an answer takes.
    pub latency: Duration,
    /// Requests a second that are answered; the others are told to come back.
    pub rate: Option<f64>,
    /// `Retry-After` of throttled requests, in seconds.
    pub retry_after: u64,
    /// Most items of a page, whatever is asked for.
    pub page: usize,
    /// Bytes of each part of an upload session but the last.
    pub part: u64,
    /// Commits are answered with 202 so often before they are done.
    pub commits: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { latency: Duration::ZERO, rate: None, retry_after: 1, page: 1000, part: 8 << 20, commits: 0 }
    }
}

/// What it does instead of answering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status and code; nothing is done.
    Refuse(u16, &'static str),
    /// It does what is asked and closes the connection without an answer.
    Lose,
}

/// A running service.
#[derive(Debug)]
pub struct BoxSim {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    drive: Drive,
    auth: Auth,
    sessions: sessions::Sessions,
    counts: BTreeMap<&'static str, usize>,
    sent: u64,
    throttled: usize,
    /// What kind of request, how many are spared first, how many fail, and how.
    faults: Vec<(String, usize, usize, Fault)>,
    budget: (f64, Instant),
    penalty: Option<Instant>,
    /// Whom requests were made for, by the header `As-User`.
    users: Vec<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoxSim {
    /// Starts one with an empty account.
    ///
    /// Errors: no thread or port to be had.
    pub fn start(settings: Settings) -> io::Result<BoxSim> {
        let budget = (settings.rate.unwrap_or_default(), Instant::now());
        let state = State {
            settings,
            drive: Drive::new(),
            auth: Auth::default(),
            sessions: Default::default(),
            counts: BTreeMap::new(),
            sent: 0,
            throttled: 0,
            faults: Vec::new(),
            budget,
            penalty: None,
            users: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        let of_server = shared.clone();
        let start = move || {
            Server::start(move |request, _| {
                let shared = of_server.clone();
                async move { serve(&shared, request).await }
            })
        };
        // It has a runtime of its own, which no test's may start.
        let server = thread::spawn(start).join().map_err(|_| io::Error::other("it panicked"))??;
        Ok(BoxSim { server, shared })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// `http://127.0.0.1:PORT`, for both hosts of the service and for tokens.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// A token as a config file has it. Its refresh token is good once.
    pub fn token(&self) -> String {
        let number = self.state().auth.number();
        json!({
            "access_token": format!("access-{number}"), "token_type": "bearer",
            "refresh_token": format!("refresh-{number}"), "expiry": "2999-01-01T00:00:00Z",
        })
        .to_string()
    }

    /// A config section of that name for somebody who has logged in.
    pub fn section(&self, name: &str) -> String {
        let at = self.endpoint();
        format!(
            "[{name}]\ntype = box\nclient_id = app\nclient_secret = secret\ntoken_url = {at}/oauth2/token\ntoken = {}\n",
            self.token()
        )
    }

    /// The file of an application with a key, which is encrypted by this passphrase where one is given. `None` after saying that the
    /// test is skipped, where there is no openssl for that.
    pub fn application(&self, lab: &crate::lab::Lab, cipher: Option<&str>, passphrase: &str) -> Option<String> {
        self.state().auth.application(lab, cipher, passphrase)
    }

    /// From here on no access token is good that was given out before.
    pub fn expire(&self) {
        self.state().auth.expire();
    }

    /// Tokens that were given out.
    pub fn renewals(&self) -> usize {
        self.state().auth.renewals
    }

    /// Of the requests of this kind `after` are spared and the next `times` fail.
    pub fn fail(&self, kind: &str, after: usize, times: usize, fault: Fault) {
        self.state().faults.push((kind.to_owned(), after, times, fault));
    }

    /// Requests by kind since the last call.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut self.state().counts)
    }

    /// Bytes of content that came since the last call.
    pub fn sent(&self) -> u64 {
        std::mem::take(&mut self.state().sent)
    }

    /// Requests that were told to come back.
    pub fn throttled(&self) -> usize {
        self.state().throttled
    }

    /// Whom requests were made for.
    pub fn users(&self) -> Vec<String> {
        self.state().users.clone()
    }

    /// Another way to answer.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.state().settings);
    }

    /// Upload sessions that are open.
    pub fn sessions(&self) -> usize {
        self.state().sessions.len()
    }

    /// Items in the trash.
    pub fn trashed(&self) -> usize {
        self.state().drive.trashed()
    }

    /// Files and folders, by path.
    pub fn shown(&self) -> BTreeMap<String, FileView> {
        self.state().drive.shown()
    }

    /// Puts a file there by itself, with the folders above it.
    pub fn put(&self, path: &str, content: &[u8]) {
        self.state().drive.put(path, Bytes::copy_from_slice(content));
    }

    /// The next this many contents are stored with one byte changed.
    pub fn spoil(&self, times: usize) {
        self.state().drive.spoils.0 = times;
    }

    /// What a file holds.
    pub fn content(&self, path: &str) -> Option<Bytes> {
        self.state().drive.at(path)
    }

    /// Puts a bookmark into the topmost folder.
    pub fn bookmark(&self, name: &str) {
        self.state().drive.bookmark(name);
    }
}

async fn serve(shared: &Shared, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let latency = shared.state().settings.latency;
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let requested = answer::SimRequest::new(&head);
    let (fault, wait) = {
        let mut state = shared.state();
        *state.counts.entry(requested.kind).or_default() += 1;
        (state.fault(requested.kind), state.throttle(requested.kind))
    };
    // Bytes of an upload that is cut off later count, too.
    let took = |bytes: usize| {
        if requested.carries() {
            shared.state().sent += bytes as u64;
        }
    };
    let mut body = body;
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(io::Error::other("the request was cut")) };
        if let Ok(data) = frame.into_data() {
            took(data.len());
            pieces.push(data);
        }
    }
    if let Some(Fault::Refuse(status, code)) = fault {
        return answer::refused(status, code, Value::Null, shared.state().settings.retry_after);
    }
    if let Some(wait) = wait {
        return answer::refused(429, "rate_limit_exceeded", Value::Null, wait);
    }
    let body = match pieces.len() {
        1 => pieces.swap_remove(0),
        _ => pieces.concat().into(),
    };
    // Hashing takes time: not while others wait for the state.
    let requested = requested.with(body);
    let answer = shared.state().answer(&requested);
    if fault == Some(Fault::Lose) {
        return Err(io::Error::other("told to lose the answer"));
    }
    answer
}

impl State {
    fn fault(&mut self, kind: &str) -> Option<Fault> {
        let at = self.faults.iter().position(|(of, ..)| of == kind)?;
        let (_, after, times, fault) = &mut self.faults[at];
        if *after > 0 {
            *after -= 1;
            return None;
        }
        *times -= 1;
        let fault = *fault;
        if self.faults[at].2 == 0 {
            self.faults.remove(at);
        }
        Some(fault)
    }

    /// Seconds to wait, for who comes too often.
    fn throttle(&mut self, kind: &str) -> Option<u64> {
        let rate = self.settings.rate.filter(|_| !matches!(kind, "Token" | "Revoke" | "Download"))?;
        let now = Instant::now();
        let (left, at) = self.budget;
        let left = (left + now.duration_since(at).as_secs_f64() * rate).min(rate);
        self.budget = (left, now);
        if left < 1.0 && self.penalty.is_none_or(|until| until <= now) {
            self.penalty = Some(now + Duration::from_secs(self.settings.retry_after));
        }
        if self.penalty.is_some_and(|until| until > now) {
            self.throttled += 1;
            return Some(self.settings.retry_after);
        }
        self.budget.0 -= 1.0;
        None
    }
}
