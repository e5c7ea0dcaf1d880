//! cloudsim: an S3 endpoint on this machine that behaves like a cloud. Latency, bandwidth, request rates and faults
//! are settings; content is kept in memory, or only its size and checksum; buckets of any number of keys are computed.
//! It counts what it is asked. Not for keeping data: everything is gone when it ends. docs/cloudsim.md tells the rest.
//!
//! In a test: [`Cloudsim::start`], then [`Cloudsim::endpoint`] for the program under test. As a program:
//! `cargo run -p haul-testkit --bin cloudsim -- --help`.
//!
//! How it is built: each thread has a runtime of its own, and a connection stays on one thread. A request goes through
//! `serve` (limits, faults, delays), then `objects` or `uploads`, which know nothing of time; `body` paces what comes
//! and goes.

mod admin;
mod answer;
mod auth;
mod body;
mod checksum;
mod clock;
mod cloud;
mod computed_keys;
pub mod delay;
pub mod etag;
mod exchange;
pub mod faults;
pub mod limits;
mod listing;
mod objects;
pub mod operation;
pub mod pattern;
mod presets;
pub mod price;
pub mod quirks;
pub mod report;
mod request;
mod rules;
mod serve;
pub mod settings;
pub mod space;
pub mod sum;
pub mod synthetic;
mod units;
mod uploads;
mod xml;

pub use computed_keys::ObjectSpec;
pub use report::Report;
pub use settings::Settings;

use clock::Clock;
use cloud::Cloud;
use hyper::HeaderMap;
use space::{Piece, Stored};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
};
use synthetic::SyntheticContent;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::{mpsc, watch},
};

/// A running simulator. It ends when this is dropped; [`Cloudsim::stop`] waits until it has.
#[derive(Debug)]
pub struct Cloudsim {
    cloud: Arc<Cloud>,
    address: SocketAddr,
    /// Dropped to end the threads.
    ends: watch::Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

/// What a key holds, for tests.
#[derive(Clone, Debug)]
pub struct StoredKey {
    /// The bytes; of content that isn't kept, what reading it would give.
    pub bytes: Vec<u8>,
    /// Metadata headers.
    pub meta: HeaderMap,
    /// The ETag, without quotes.
    pub etag: String,
    /// CRC-64/NVME of what was stored; `None` when it can't be known.
    pub crc: Option<u64>,
}

impl Cloudsim {
    /// Starts one.
    ///
    /// Errors: no thread, or the port is taken.
    pub fn start(settings: Settings) -> io::Result<Cloudsim> {
        let (count, listen) = (settings.threads.max(1), settings.listen);
        let (clock, ticks) = Clock::new();
        let cloud = Arc::new(Cloud::new(settings, clock));
        let (ends, ended) = watch::channel(());
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut queues = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count + 2);
        threads.push(spawn("cloudsim-clock".into(), ticks)?);
        for number in 0..count {
            let (sender, sockets) = mpsc::unbounded_channel();
            queues.push(sender);
            let (cloud, ended) = (cloud.clone(), ended.clone());
            threads.push(spawn(format!("cloudsim-{number}"), move || serve_all(&cloud, sockets, ended))?);
        }
        threads.push(spawn("cloudsim-accept".into(), move || accept_all(listener, &queues, ended))?);
        Ok(Cloudsim { cloud, address, ends, threads })
    }

    /// Starts one with everything at its default, but for these settings by name.
    ///
    /// Panics if it can't be started or a setting is wrong: for tests.
    #[track_caller]
    pub fn with(pairs: &[(&str, &str)]) -> Cloudsim {
        Cloudsim::start(Settings::default().with(pairs)).unwrap_or_else(|e| panic!("cloudsim: {e}"))
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happened since the start or the last reset.
    pub fn report(&self) -> Report {
        self.cloud.report()
    }

    /// Zeroes the counters and empties the log.
    pub fn reset(&self) {
        self.cloud.counters.reset();
    }

    /// The log of requests: empty unless the settings ask for one.
    pub fn log(&self) -> Vec<report::Line> {
        self.cloud.counters.logged()
    }

    /// Changes settings by name, of all buckets or one, from the next request on.
    ///
    /// Errors: a setting is unknown, wrong, or can't be changed now; then none is changed.
    pub fn set(&self, bucket: Option<&str>, pairs: &[(&str, &str)]) -> Result<(), String> {
        let changes: Vec<_> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.cloud.set(bucket, &changes)
    }

    /// Makes a bucket, or makes it anew, without keys or with computed ones.
    pub fn bucket(&self, name: &str, made: Option<SyntheticContent>) {
        self.cloud.replace(name, made);
    }

    /// Drops a bucket with all that it holds.
    pub fn drop_bucket(&self, name: &str) {
        self.cloud.drop_bucket(name);
    }

    /// The stored keys of a bucket in bytewise order; computed ones are not among them. Empty if there is no bucket.
    pub fn keys(&self, bucket: &str) -> Vec<Vec<u8>> {
        let bucket = self.cloud.bucket(bucket);
        bucket.map(|b| b.space().stored().map(|(key, _)| key.to_vec()).collect()).unwrap_or_default()
    }

    /// What a key holds.
    pub fn get(&self, bucket: &str, key: &[u8]) -> Option<StoredKey> {
        let stored = self.cloud.bucket(bucket)?.space().get(key)?;
        let mut bytes = Vec::with_capacity(stored.size as usize);
        for piece in &stored.pieces {
            match piece {
                Piece::Bytes(piece) => bytes.extend_from_slice(piece),
                Piece::Pattern { seed, start, len } => bytes.extend(pattern::bytes(*seed, *start, *len)),
                Piece::Lost { range, .. } => bytes.extend(pattern::bytes(0, range.0, range.1 - range.0)),
            }
        }
        let meta = stored.meta.iter().cloned().collect();
        Some(StoredKey { bytes, meta, etag: stored.tag.text(), crc: stored.crc })
    }

    /// Stores bytes under a key, with metadata headers. Makes the bucket if need be. Counts as no request.
    pub fn put(&self, bucket: &str, key: &[u8], bytes: impl Into<bytes::Bytes>, meta: &[(&'static str, &str)]) {
        let piece = Piece::Bytes(bytes.into());
        let (size, crc) = (piece.len(), piece.crc());
        let pairs = meta.iter().filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?)));
        self.cloud.create(bucket);
        let stored = Stored {
            size,
            crc,
            tag: etag::Tag::cheap(crc.unwrap_or(0), size, 1),
            modified: report::now_ms(),
            listed: 0,
            meta: pairs.collect(),
            sum: None,
            pieces: vec![piece],
        };
        if let Some(bucket) = self.cloud.bucket(bucket) {
            bucket.change().put(key, stored);
        }
    }

    /// Makes a key whose content is computed. Makes the bucket if need be. Counts as no request.
    pub fn make(&self, bucket: &str, key: &[u8], wanted: &ObjectSpec) {
        self.cloud.create(bucket);
        if let Some(bucket) = self.cloud.bucket(bucket) {
            bucket.change().put(key, computed_keys::stored(wanted));
        }
    }

    /// Ends it and waits until no thread of it runs.
    pub fn stop(self) {
        let Cloudsim { ends, threads, cloud, .. } = self;
        drop(ends);
        // The clock's thread ends when the last of the others, which hold it, has.
        drop(cloud);
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run)
}

/// Hands connections out to the threads in turn, so that few of them are spread evenly too.
fn accept_all(
    listener: std::net::TcpListener,
    queues: &[mpsc::UnboundedSender<std::net::TcpStream>],
    mut ended: watch::Receiver<()>,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_io().build() else { return };
    runtime.block_on(async {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        for queue in queues.iter().cycle() {
            let socket = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ended.changed() => return,
            };
            // Without a socket (the client is gone again; too many files are open) the next one may come.
            if let Ok(socket) = socket.and_then(|(socket, _)| socket.into_std())
                && queue.send(socket).is_err()
            {
                return;
            }
        }
    });
}

fn serve_all(
    cloud: &Arc<Cloud>,
    mut sockets: mpsc::UnboundedReceiver<std::net::TcpStream>,
    mut ended: watch::Receiver<()>,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_io().build() else { return };
    runtime.block_on(async {
        loop {
            let socket = tokio::select! {
                socket = sockets.recv() => socket,
                _ = ended.changed() => return,
            };
            match socket.map(TcpStream::from_std) {
                Some(Ok(socket)) => drop(tokio::spawn(serve::connection(cloud.clone(), socket))),
                Some(Err(_)) => {}
                None => return,
            }
        }
    });
    // Answers that are held up on purpose must not hold up the end of a test.
    runtime.shutdown_background();
}
