//! OneDrive and SharePoint on this machine: a drive as Microsoft Graph shows it, written from Microsoft's documentation
//! (<https://learn.microsoft.com/graph/api/resources/onedrive>). Real rclone is held against it in the tests of the binary.

mod answer;
mod drive;
mod names;

pub use drive::FileView;

use crate::serve::{Body, Server};
use bytes::Bytes;
use drive::Drive;
use http_body_util::BodyExt as _;
use hyper::{Request, Response, StatusCode, body::Incoming};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `personal`, `business` or `documentLibrary`.
    pub drive_type: &'static str,
    /// Before each answer.
    pub latency: Duration,
    /// Requests a second that are answered; the others are told to come back.
    pub rate: Option<f64>,
    /// `Retry-After` of throttled requests, in seconds.
    pub retry_after: u64,
    /// Most items of a page, whatever is asked for.
    pub page: usize,
    /// A content longer than this is hashed and then forgotten.
    pub keep: u64,
    /// SharePoint writes something of its own into Office files.
    pub rewrites: bool,
    /// Items have names only as children of a folder, not paths: China's cloud, as rclone knows it.
    pub by_child: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            drive_type: "business",
            latency: Duration::ZERO,
            rate: None,
            retry_after: 1,
            page: 1000,
            keep: 64 << 20,
            rewrites: false,
            by_child: false,
        }
    }
}

/// What goes wrong with requests of a kind.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind, as in [`OneDrive::counts`].
    pub kind: &'static str,
    /// So many of them are spared first.
    pub after: usize,
    /// So many of them fail.
    pub times: usize,
    /// Which way.
    pub how: FailureMode,
}

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// This status; nothing is done.
    Status(u16),
    /// It is done, and the connection closed without an answer.
    Lost,
}

/// A running simulator.
#[derive(Debug)]
pub struct OneDrive {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    drive: Drive,
    counts: BTreeMap<&'static str, usize>,
    /// Bytes of content that came.
    received: u64,
    throttled: usize,
    faults: Vec<Fault>,
    /// Before the next request of a kind somebody puts a file there.
    meanwhile: Option<(&'static str, String)>,
    /// Requests that may still be answered, and when that was counted.
    budget: (f64, Instant),
    /// Nobody is answered before.
    penalty: Option<Instant>,
    tokens: Tokens,
}

/// One access token is good at a time; each refresh token is good once.
#[derive(Debug, Default)]
struct Tokens {
    number: usize,
    revoked: bool,
    /// A device waits for its code to be typed in; whether it was.
    device: Option<bool>,
}

/// What a person is to type in for a device.
pub const USER_CODE: &str = "ABCD1234";

impl Tokens {
    fn is_good(&self, header: &str) -> bool {
        !self.revoked && header == format!("Bearer access-{}", self.number)
    }

    /// The answer to who brings the refresh token.
    fn renew(&mut self, refresh: &str) -> Option<String> {
        if refresh != format!("refresh-{}", self.number) {
            return None;
        }
        Some(self.next())
    }

    /// The next token; the one before is good no more.
    fn next(&mut self) -> String {
        self.number += 1;
        self.revoked = false;
        format!(
            "{{\"token_type\":\"Bearer\",\"access_token\":\"access-{0}\",\"refresh_token\":\"refresh-{0}\",\"expires_in\":3600}}",
            self.number
        )
    }
}

impl OneDrive {
    /// Starts one whose drive is empty.
    ///
    /// Errors: no port to be had.
    pub fn start(settings: Settings) -> io::Result<OneDrive> {
        let budget = (settings.rate.unwrap_or_default(), Instant::now());
        let drive = Drive::new(settings.drive_type, settings.rewrites, settings.keep);
        let state = Arc::new(Mutex::new(State {
            settings,
            drive,
            counts: BTreeMap::new(),
            received: 0,
            throttled: 0,
            faults: Vec::new(),
            meanwhile: None,
            budget,
            penalty: None,
            tokens: Tokens::default(),
        }));
        let own = state.clone();
        let server = Server::start(move |request, _| serve(own.clone(), request))?;
        Ok(OneDrive { server, state })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Options by which haul and rclone reach it, as in a config section. `through` is where it is reached: its own
    /// [`OneDrive::endpoint`], or that of what stands before it.
    pub fn options(&self, through: &str) -> Vec<(&'static str, String)> {
        let number = self.state().tokens.number;
        let token = format!(
            "{{\"access_token\":\"access-{number}\",\"token_type\":\"Bearer\",\"refresh_token\":\"refresh-{number}\",\"expiry\":\"2099-01-01T00:00:00Z\"}}"
        );
        vec![
            ("client_id", "app".into()),
            ("client_secret", "secret".into()),
            ("tenant_url", format!("{through}/_api")),
            ("auth_url", format!("{through}/authorize")),
            ("token_url", format!("{through}/token")),
            ("drive_id", drive::ID.into()),
            ("drive_type", self.state().settings.drive_type.into()),
            ("token", token),
        ]
    }

    /// A config section of that name.
    pub fn section(&self, name: &str) -> String {
        let options = self.options(&self.endpoint());
        let lines: String = options.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        format!("[{name}]\ntype = onedrive\n{lines}")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests by kind since the last call.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut self.state().counts)
    }

    /// Requests that were told to come back.
    pub fn throttled(&self) -> usize {
        self.state().throttled
    }

    /// Bytes of content that came since the last call.
    pub fn received(&self) -> u64 {
        std::mem::take(&mut self.state().received)
    }

    /// Lets requests fail.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Right before the next request of a kind is answered, somebody else puts a file there.
    pub fn meanwhile(&self, kind: &'static str, path: &str) {
        self.state().meanwhile = Some((kind, path.to_owned()));
    }

    /// The next this many contents are stored with one byte changed.
    pub fn spoil(&self, times: usize) {
        self.state().drive.spoils.0 = times;
    }

    /// What a file holds.
    pub fn content(&self, path: &str) -> Option<Bytes> {
        let state = self.state();
        state.drive.find(drive::ROOT, path).ok()?.file.as_ref().map(|content| content.bytes.clone())
    }

    /// The access token is no longer good.
    pub fn revoke(&self) {
        self.state().tokens.revoked = true;
    }

    /// A person types in the code that a device shows; false if none waits for that.
    pub fn type_in(&self, code: &str) -> bool {
        let mut state = self.state();
        let waits = state.tokens.device == Some(false) && code == USER_CODE;
        if waits {
            state.tokens.device = Some(true);
        }
        waits
    }

    /// Tokens given out so far.
    pub fn renewals(&self) -> usize {
        self.state().tokens.number
    }

    /// Another pace.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        let mut state = self.state();
        change(&mut state.settings);
        state.drive.rewrites = state.settings.rewrites;
    }

    /// All upload sessions are gone.
    pub fn forget_sessions(&self) {
        self.state().drive.sessions.clear();
    }

    /// Upload sessions that are open.
    pub fn sessions(&self) -> usize {
        self.state().drive.sessions.len()
    }

    /// Files and folders, by path.
    pub fn shown(&self) -> BTreeMap<String, FileView> {
        self.state().drive.shown(drive::ID)
    }

    /// The same of somebody else's drive.
    pub fn shown_there(&self) -> BTreeMap<String, FileView> {
        self.state().drive.shown(drive::OTHER)
    }

    /// The id of somebody else's drive, and of the folder or file at a path there.
    pub fn there(&self, path: &str) -> (&'static str, String) {
        let state = self.state();
        let item = state.drive.find(Drive::root(drive::OTHER), path).expect("it is there");
        (drive::OTHER, item.id.clone())
    }

    /// Shows what is at a path of somebody else's drive, which was shared, under a name in this one.
    pub fn share(&self, path: &str, name: &str) {
        let shared = self.state().drive.share(path, name);
        assert!(shared.is_ok(), "{path}");
    }

    /// Puts a file into somebody else's drive.
    pub fn put_there(&self, path: &str, content: &[u8]) {
        let (root, bytes) = (Drive::root(drive::OTHER), Bytes::copy_from_slice(content));
        let put = self.state().drive.put_below(root, path, bytes, None, "replace");
        assert!(put.is_ok(), "{path}");
    }

    /// Items in the recycle bin.
    pub fn recycled(&self) -> usize {
        self.state().drive.recycled
    }

    /// Puts a file there by itself; the folder must exist.
    pub fn put(&self, path: &str, content: &[u8]) {
        let mut state = self.state();
        let put = state.drive.put(path, Bytes::copy_from_slice(content), None, "replace");
        assert!(put.is_ok(), "{path}");
    }
}

/// Kinds that need no token.
const OPEN: [&str; 9] = ["token", "devicecode", "download", "range", "status", "commit", "cancel", "monitor", "link"];

async fn serve(state: Arc<Mutex<State>>, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let (head, body) = request.into_parts();
    let latency = lock().settings.latency;
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let sim_request = answer::SimRequest::new(&head);
    let failing = {
        let mut state = lock();
        *state.counts.entry(sim_request.kind).or_default() += 1;
        state.fault(sim_request.kind)
    };
    if let Some(FailureMode::Status(status)) = failing {
        // The rest of the body is read, so that the client sees the answer.
        drop(body.collect().await);
        return answer::refused(status, "generalException", "told to fail", lock().settings.retry_after);
    }
    let wait = lock().throttle(sim_request.kind);
    if let Some(wait) = wait {
        drop(body.collect().await);
        return answer::refused(429, "activityLimitReached", "too many requests", wait);
    }
    let token = head.headers.get("authorization").and_then(|header| header.to_str().ok());
    if OPEN.contains(&sim_request.kind) {
        // The documentation of upload sessions: a token there may be refused.
        if token.is_some() && sim_request.kind != "token" {
            drop(body.collect().await);
            return answer::refused(401, "unauthenticated", "no token belongs here", 0);
        }
    } else if !lock().tokens.is_good(token.unwrap_or_default()) {
        drop(body.collect().await);
        return answer::refused(401, "InvalidAuthenticationToken", "Access token has expired.", 0);
    }
    // Also what is cut later came.
    let carries = sim_request.carries();
    let took = |bytes: usize| lock().received += if carries { bytes as u64 } else { 0 };
    let (pieces, whole) = answer::read(body, took).await;
    let mut state = lock();
    if let Some((_, path)) = state.meanwhile.take_if(|(kind, _)| *kind == sim_request.kind) {
        let put = state.drive.put(&path, Bytes::from_static(b"meanwhile"), None, "replace");
        put.map_err(|_| io::Error::other("no such folder"))?;
    }
    let answer = state.answer(&sim_request, pieces, whole);
    if failing == Some(FailureMode::Lost) {
        return Err(io::Error::other("told to lose the answer"));
    }
    answer
}

impl State {
    fn fault(&mut self, kind: &str) -> Option<FailureMode> {
        let at = self.faults.iter().position(|fault| fault.kind == kind)?;
        let fault = &mut self.faults[at];
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        let how = fault.how;
        if fault.times == 0 {
            self.faults.remove(at);
        }
        Some(how)
    }

    /// Seconds to wait, for who comes too often.
    fn throttle(&mut self, kind: &str) -> Option<u64> {
        let rate = self.settings.rate?;
        if kind == "token" {
            return None;
        }
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

/// A whole answer.
fn whole(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let body = http_body_util::Full::new(body.into()).map_err(|e| match e {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
