//! A Google Drive on loopback, after Google's documentation of its API (v3): files by id, search, uploads, trash, shared drives, tokens,
//! and what goes wrong with it: rate limits, queries of several folders that find nothing, lost answers, sessions that are gone.

mod auth;
pub(crate) mod fields;
mod query;
mod reply;
pub(crate) mod serve;
mod space;
#[cfg(test)]
mod tests;
pub(crate) mod uploads;

use crate::serve::Server;
use auth::Auth;
use bytes::Bytes;
use space::{Content, DOCUMENT, File, Space, WORD};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use uploads::Sessions;

pub use space::{FOLDER, ROOT, SHORTCUT};

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status and reason; nothing is done.
    Refused(u16, &'static str),
    /// It is done, and the connection ends before its answer.
    Lost,
    /// It is done, but what is kept isn't what came.
    Garbled,
}

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Each request takes so long.
    pub latency: Duration,
    /// Files created a second, and how many at once before that counts; `None` for any.
    pub creations: Option<(f64, f64)>,
    /// Every n-th query of several folders finds nothing.
    pub hole: Option<u64>,
    /// In what isn't the user's own queries of several folders find the eldest file of each only: the others are too new, or were
    /// never opened by him.
    pub late: bool,
    /// Listings say that they are incomplete.
    pub incomplete: bool,
    /// Bytes that are taken in a day.
    pub uploads_a_day: u64,
    /// Access tokens last so long.
    pub token_lasts: Duration,
    /// Longer exports come by a document's own link only.
    pub export_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            latency: Duration::ZERO,
            creations: None,
            hole: None,
            late: false,
            incomplete: false,
            uploads_a_day: 750 << 30,
            token_lasts: Duration::from_secs(3600),
            export_limit: 10_000_000,
        }
    }
}

/// A running one.
#[derive(Debug)]
pub struct DriveSim {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    space: Space,
    sessions: Sessions,
    auth: Auth,
    counts: BTreeMap<&'static str, u64>,
    throttled: u64,
    /// Requests of a kind: those to come before it, what happens.
    faults: Vec<(&'static str, u64, Fault)>,
    /// Creations that are allowed now, as of then.
    allowed: (f64, Instant),
    uploaded: u64,
    /// Bytes that were taken today.
    today: u64,
    /// Listings that are being answered, and the most that were at once.
    listing: (u64, u64),
    several: u64,
    /// Content is stored damaged.
    garbles: bool,
}

impl State {
    /// Whether so many bytes more are taken today. What isn't counts as throttled.
    fn takes(&mut self, bytes: u64) -> bool {
        let takes = self.today + bytes <= self.settings.uploads_a_day;
        self.today += if takes { bytes } else { 0 };
        self.throttled += u64::from(!takes);
        takes
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DriveSim {
    /// Starts one with an empty root.
    ///
    /// Panics if there is no port to be had.
    pub fn start(settings: Settings) -> DriveSim {
        let allowed = (settings.creations.map_or(0.0, |(_, burst)| burst), Instant::now());
        let state = Arc::new(Mutex::new(State {
            settings,
            space: Space::new(),
            sessions: Sessions::default(),
            auth: Auth::default(),
            counts: BTreeMap::new(),
            throttled: 0,
            faults: Vec::new(),
            allowed,
            uploaded: 0,
            today: 0,
            listing: (0, 0),
            several: 0,
            garbles: false,
        }));
        let own = state.clone();
        // It has a runtime of its own, which no test's may start.
        let start = move || Server::start(move |request, _| serve::answer(own.clone(), request));
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        DriveSim { server, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// A log-in as rclone writes it, whose access token is good from now on.
    pub fn token(&self) -> String {
        let mut state = lock(&self.state);
        let lasts = state.settings.token_lasts;
        let access = state.auth.issue(lasts);
        let expiry = jiff::Timestamp::now() + jiff::SignedDuration::try_from(lasts).expect("a time");
        format!(
            "{{\"access_token\":\"{access}\",\"token_type\":\"Bearer\",\"refresh_token\":\"{}\",\"expiry\":\"{expiry}\"}}",
            auth::REFRESH
        )
    }

    /// Access tokens that were given out are good no more.
    pub fn forget_tokens(&self) {
        lock(&self.state).auth.forget();
    }

    /// The key of a service account, as Google gives it out, good from now on.
    pub fn service_account(&self) -> String {
        lock(&self.state).auth.service_account(&self.endpoint())
    }

    /// Changes how it behaves.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        let mut state = lock(&self.state);
        change(&mut state.settings);
        state.allowed = (state.settings.creations.map_or(0.0, |(_, burst)| burst), Instant::now());
    }

    /// Spoils a request of this kind, after so many more of them.
    pub fn spoil(&self, kind: &'static str, after: u64, fault: Fault) {
        lock(&self.state).faults.push((kind, after, fault));
    }

    /// All sessions are gone.
    pub fn forget_sessions(&self) {
        lock(&self.state).sessions.clear();
    }

    /// Requests by kind.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }

    /// Requests that were throttled.
    pub fn throttled(&self) -> u64 {
        lock(&self.state).throttled
    }

    /// The next day begins: as many bytes are taken again.
    pub fn next_day(&self) {
        lock(&self.state).today = 0;
    }

    /// Bytes of content that came.
    pub fn uploaded(&self) -> u64 {
        lock(&self.state).uploaded
    }

    /// The most listings that were answered at once.
    pub fn lists_at_once(&self) -> u64 {
        lock(&self.state).listing.1
    }

    /// Forgets what was counted.
    pub fn reset_counts(&self) {
        let mut state = lock(&self.state);
        state.counts.clear();
        (state.throttled, state.uploaded, state.listing) = (0, 0, (0, 0));
    }

    fn add(&self, parent: &str, name: &str, mime: &str, change: impl FnOnce(&mut Space, &mut File)) -> String {
        let mut state = lock(&self.state);
        let space = &mut state.space;
        let parent = space.real(parent).to_owned();
        let mut file = File::new(space.id(), name, mime, Some(parent.clone()));
        file.drive = space.files.get(&parent).and_then(|parent| parent.drive.clone());
        change(space, &mut file);
        let id = file.id.clone();
        space.put(file);
        id
    }

    /// Adds a folder; gives its id.
    pub fn add_folder(&self, parent: &str, name: &str) -> String {
        self.add(parent, name, FOLDER, |_, _| {})
    }

    /// Adds a file; gives its id.
    pub fn add_file(&self, parent: &str, name: &str, bytes: &[u8]) -> String {
        self.add(parent, name, "application/octet-stream", |space, file| {
            let revision = space.count();
            file.content = Some(Content::new(Bytes::copy_from_slice(bytes), revision));
        })
    }

    /// Adds a document of Google's; gives its id.
    pub fn add_document(&self, parent: &str, name: &str) -> String {
        self.add_document_of(parent, name, &[(WORD, b"as Word has it")])
    }

    /// Adds a document of which Google makes these files, by type; gives its id.
    pub fn add_document_of(&self, parent: &str, name: &str, exports: &[(&str, &[u8])]) -> String {
        self.add(parent, name, DOCUMENT, |_, file| {
            let of = |(mime, bytes): &(&str, &[u8])| ((*mime).to_owned(), Bytes::copy_from_slice(bytes));
            file.exports = exports.iter().map(of).collect();
        })
    }

    /// Somebody edits a document: this is made of it now.
    pub fn edit(&self, id: &str, mime: &str, bytes: &[u8]) {
        self.change(id, |file| {
            file.modified += Duration::from_secs(1);
            file.exports = vec![(mime.to_owned(), Bytes::copy_from_slice(bytes))];
        });
    }

    /// A document's owner no longer lets others download it: no export links are told of it.
    pub fn withhold(&self, id: &str) {
        self.change(id, |file| file.exports.clear());
    }

    /// Sets when a file was modified, in seconds since the epoch.
    pub fn date(&self, id: &str, seconds: i64) {
        self.change(id, |file| file.modified = jiff::Timestamp::from_second(seconds).expect("a time"));
    }

    /// All that a folder holds and that isn't in the trash, as `path=content`, in order; folders end in `/`.
    pub fn tree(&self, id: &str) -> Vec<String> {
        let state = lock(&self.state);
        let (mut all, mut left) = (Vec::new(), vec![(id.to_owned(), String::new())]);
        while let Some((id, path)) = left.pop() {
            for file in state.space.children(&id).filter_map(|id| state.space.files.get(id)) {
                let path = format!("{path}{}", file.name);
                match &file.content {
                    _ if state.space.is_trashed(file) => {}
                    Some(content) => all.push(format!("{path}={}", String::from_utf8_lossy(&content.bytes))),
                    None => {
                        all.push(format!("{path}/"));
                        left.push((file.id.clone(), format!("{path}/")));
                    }
                }
            }
        }
        all.sort();
        all
    }

    /// Bytes of the files that a folder holds by their paths, without what is in the trash.
    pub fn sizes(&self, id: &str) -> BTreeMap<String, u64> {
        let state = lock(&self.state);
        let (mut all, mut left) = (BTreeMap::new(), vec![(state.space.real(id).to_owned(), String::new())]);
        while let Some((id, path)) = left.pop() {
            for file in state.space.children(&id).filter_map(|id| state.space.files.get(id)) {
                let path = format!("{path}{}", file.name);
                match &file.content {
                    _ if state.space.is_trashed(file) => {}
                    Some(content) => drop(all.insert(path, content.bytes.len() as u64)),
                    None => left.push((file.id.clone(), format!("{path}/"))),
                }
            }
        }
        all
    }

    /// Links to documents lead here, not to Google.
    pub fn link_here(&self) {
        lock(&self.state).space.documents_at = self.endpoint();
    }

    /// Gives a file a star.
    pub fn star(&self, id: &str) {
        self.change(id, |file| file.starred = true);
    }

    /// Gives a file another name.
    pub fn rename(&self, id: &str, name: &str) {
        self.change(id, |file| name.clone_into(&mut file.name));
    }

    /// The id of what has this name in a folder and isn't in the trash.
    pub fn find(&self, parent: &str, name: &str) -> Option<String> {
        let state = lock(&self.state);
        let children = state.space.children(parent).filter_map(|id| state.space.files.get(id));
        let mut named = children.filter(|file| file.name == name && !state.space.is_trashed(file));
        named.next().map(|file| file.id.clone())
    }

    /// Puts a file into the trash.
    pub fn trash(&self, id: &str) {
        self.change(id, |file| file.trashed = true);
    }

    /// Adds a shortcut; gives its id.
    pub fn add_shortcut(&self, parent: &str, name: &str, target: &str) -> String {
        self.add(parent, name, SHORTCUT, |space, file| {
            let mime = space.files.get(target).map_or_else(String::new, |file| file.mime.clone());
            file.target = Some((target.to_owned(), mime));
        })
    }

    /// Adds a shared drive; gives its id, which is that of its root too.
    pub fn add_drive(&self, name: &str) -> String {
        let mut state = lock(&self.state);
        let id = format!("0Adrive{}PVA", state.space.count());
        let mut root = File::new(id.clone(), name, FOLDER, None);
        root.drive = Some(id.clone());
        state.space.put(root);
        state.space.drives.insert(id.clone(), name.to_owned());
        id
    }

    /// Makes a file one that somebody else shares with this user.
    pub fn share(&self, id: &str) {
        self.change(id, |file| {
            file.shared_with_me = true;
            file.parents.clear();
        });
    }

    /// Makes Google take a file for harmful.
    pub fn suspect(&self, id: &str) {
        self.change(id, |file| file.abusive = true);
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut File)) {
        let mut state = lock(&self.state);
        let mut file = state.space.files.get(id).cloned().expect("such a file");
        change(&mut file);
        state.space.put(file);
    }

    /// Files and folders that aren't in the trash, with the root; and those that are.
    pub fn held(&self) -> (usize, usize) {
        let state = lock(&self.state);
        let trashed = state.space.files.values().filter(|file| state.space.is_trashed(file)).count();
        (state.space.files.len() - trashed, trashed)
    }
}
