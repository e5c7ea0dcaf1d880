//! A Google Cloud Storage on loopback, after Google's documentation: the JSON interface with its uploads, batches and rewrites, and of the
//! XML interface the uploads in parts, which no server that one can install has. `serve` has the requests, `space` what is held.

mod batch;
mod json;
mod parts;
mod serve;
mod sessions;
mod space;

use crate::serve::Server;
use bytes::Bytes;
use parts::Uploads;
use sessions::Sessions;
use space::{Object, Space};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status and reason; nothing is done.
    Refused(u16, &'static str),
    /// It is done, and the connection ends before its answer.
    Lost,
    /// The bytes that came are damaged before they are kept.
    Damaged,
}

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Each request takes so long.
    pub latency: Duration,
    /// The access token that it takes; empty where anybody is let in.
    pub token: String,
    /// Bytes that one request of a rewrite copies.
    pub rewrites: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { latency: Duration::ZERO, token: String::new(), rewrites: 1 << 40 }
    }
}

/// A running one.
#[derive(Debug)]
pub struct GcsSim {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    space: Space,
    sessions: Sessions,
    uploads: Uploads,
    counts: BTreeMap<&'static str, u64>,
    /// Requests of a kind: those to come before it, what happens.
    faults: Vec<(&'static str, u64, Fault)>,
    /// Bytes of content that came.
    came: u64,
    /// Parts that are being received, and the most that were at once.
    receiving: (u64, u64),
    /// Rewrites that aren't done: bytes copied, by token.
    rewriting: BTreeMap<String, u64>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GcsSim {
    /// Starts one without buckets.
    ///
    /// Panics if there is no port to be had.
    pub fn start(settings: Settings) -> GcsSim {
        let state = Arc::new(Mutex::new(State {
            settings,
            space: Space::default(),
            sessions: Sessions::default(),
            uploads: Uploads::default(),
            counts: BTreeMap::new(),
            faults: Vec::new(),
            came: 0,
            receiving: (0, 0),
            rewriting: BTreeMap::new(),
        }));
        let own = state.clone();
        // It has a runtime of its own, which no test's may start.
        let start = move || Server::start(move |request, _| serve::answer(own.clone(), request));
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        GcsSim { server, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Changes how it behaves.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut lock(&self.state).settings);
    }

    /// Spoils a request of this kind, after so many more of them.
    pub fn spoil(&self, kind: &'static str, after: u64, fault: Fault) {
        lock(&self.state).faults.push((kind, after, fault));
    }

    /// Requests by kind.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }

    /// Bytes of content that came.
    pub fn came(&self) -> u64 {
        lock(&self.state).came
    }

    /// The most parts that were received at once.
    pub fn parts_at_once(&self) -> u64 {
        lock(&self.state).receiving.1
    }

    /// Forgets what was counted.
    pub fn reset_counts(&self) {
        let mut state = lock(&self.state);
        state.counts.clear();
        (state.came, state.receiving) = (0, (0, 0));
    }

    /// Uploads in parts that are neither completed nor given up.
    pub fn unfinished(&self) -> usize {
        lock(&self.state).uploads.count()
    }

    /// Makes a bucket of so many empty objects, `00/000001` and on, a thousand a folder.
    pub fn fill(&self, bucket: &str, objects: u64) {
        let mut state = lock(&self.state);
        state.space.create(bucket);
        for number in 0..objects {
            let object = Object::new(vec![Bytes::new()], true);
            let name = format!("{:04}/{number:09}", number / 1000);
            // The bucket was made.
            let _ = state.space.put(bucket, &name, object);
        }
    }

    /// Removes an object behind the clients' backs.
    pub fn remove(&self, bucket: &str, object: &str) {
        lock(&self.state).space.remove(bucket, object);
    }

    /// The names of a bucket's objects; empty where there is none.
    pub fn names(&self, bucket: &str) -> Vec<String> {
        let state = lock(&self.state);
        state.space.buckets.get(bucket).into_iter().flat_map(|bucket| bucket.objects.keys().cloned()).collect()
    }
}
