//! State that all threads of a rank share: the job, both sides of its trees, the attributes to keep, whether to go on, and the report of
//! problems.

use crate::work::{Job, Problem, RankMessage, Root, Verb};
use haul_core::{
    Error, ErrorKind, Key, Mtime, Result, attributes::Rights, chmod::Chmod, keep::Keep, links::SourceLinks,
};
use haul_store::{Links, OpenRequest, Store, StoreKind, WriteSpec, late_errors};
use std::{
    collections::HashMap,
    fs::File,
    io::Write as _,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::SyncSender,
    },
    time::{Duration, Instant},
};

/// Waits for messages and threads are at most so long: a lease is milliseconds' work.
pub const LONGEST: Duration = Duration::from_millis(1);

/// Local disks.
const LOCAL: StoreKind = haul_fs::KIND;
/// Between two looks at leases passes at most so much: a process that was suspended has waited for nothing.
const LOOK: Duration = Duration::from_secs(1);

/// A tree as this rank sees it.
pub struct Sides {
    /// Where data comes from.
    pub src: Arc<dyn Store>,
    /// Where it goes.
    pub dst: Arc<dyn Store>,
    /// Where files may be that are hard links at the destination (`--link-dest`).
    pub link_dest: Option<Arc<dyn Store>>,
    /// The device that the source's root is on here.
    pub device: u64,
    /// Files go from this key to that one alone.
    pub one: Option<(Key, Key)>,
}

impl Sides {
    /// The destination's key of a source's.
    pub fn to(&self, key: &Key) -> Key {
        match &self.one {
            Some((from, to)) if from == key => to.clone(),
            _ => key.clone(),
        }
    }

    /// Is a directory at the destination where this is to be?
    pub async fn is_blocked(&self, to: &Key) -> bool {
        let (link, dir) = (Key::symlink(to.path()), Key::new(to.path()).with_suffix("/"));
        let is_link = self.dst.stat(&link).await.is_ok_and(|there| there.is_symlink());
        !is_link && self.dst.stat(&dir).await.is_ok_and(|there| there.is_dir())
    }

    /// How the source's place is named in copies.
    pub fn place(&self) -> Arc<[u8]> {
        place(&*self.src)
    }

    /// How the destination's place is.
    pub fn own_place(&self) -> Arc<[u8]> {
        place(&*self.dst)
    }

    /// Are two times of modification one, as exactly as the destination keeps them?
    pub fn is_one_time(&self, a: Option<Mtime>, b: Option<Mtime>) -> bool {
        let window = self.dst.caps().mtime.map_or(1, |precision| precision.as_nanos());
        matches!((a, b), (Some(a), Some(b)) if a.distance(b) < window.max(1))
    }
}

/// How a store's place is named in copies.
pub fn place(store: &dyn Store) -> Arc<[u8]> {
    store.caps().domain.as_ref().map_or_else(|| Arc::from([]), |domain| domain.place.clone())
}

/// State that all threads of a rank share.
pub struct Shared {
    /// The job.
    pub job: Arc<Job>,
    /// Its trees.
    pub sides: Vec<Sides>,
    /// Attributes to keep of files.
    pub keep: Option<Arc<Keep>>,
    /// This user's rights over files.
    pub rights: Rights,
    /// Where errors come late.
    pub late: late_errors::Mounts,
    /// Other ranks go on without this node if it fails: what it wrote of a file that they publish has to be out of its memory.
    pub several_nodes: bool,
    /// Bytes moved by this rank.
    pub moved: Arc<AtomicU64>,
    /// Nothing new is begun, and pieces are left.
    pub stop: AtomicBool,
    /// Until then the coordinator counts on this rank, in milliseconds since `began`.
    trusted: AtomicU64,
    /// How often it may have ceased to: leases from before were given to others.
    epoch: AtomicU64,
    /// Leases that this rank has, by number.
    held: Mutex<Leases>,
    /// When it began, by its own clock.
    pub began: Instant,
    /// Lines of JSON.
    log: Option<Mutex<File>>,
    says: SyncSender<RankMessage>,
}

/// Opens a folder.
///
/// Errors: it isn't one.
pub fn open(path: &[u8], follow: bool) -> Result<Arc<dyn Store>> {
    let links = if follow { Links::Follow } else { Links::Keep };
    (LOCAL.open)(OpenRequest { path: path.to_vec(), links, ..OpenRequest::default() })
}

/// The path of what is under a key in a folder, as people see it.
pub fn below(folder: &[u8], key: &[u8]) -> String {
    let (folder, key) = (String::from_utf8_lossy(folder), Key::new(key));
    match key.path() {
        b"" => folder.into_owned(),
        path => format!("{}/{}", folder.trim_end_matches('/'), String::from_utf8_lossy(path)),
    }
}

/// Attributes that a job keeps. Without `--preserve` new files have the source's permissions as far as the umask allows.
pub fn keep(job: &Job) -> Option<Arc<Keep>> {
    let unchanged = Chmod { dirs: true, files: true, clear: 0, set: 0, exec_if_any: 0, copied: None };
    Some(Arc::new(match job.preserve {
        true => Keep { acls: true, xattrs: job.xattrs, hard_links: true, ..Keep::archive() },
        false => Keep { xattrs: job.xattrs, chmod: vec![unchanged], ..Keep::default() },
    }))
}

impl Shared {
    /// Opens everything.
    ///
    /// Errors: one line.
    pub async fn open(
        job: Job,
        rank: usize,
        several_nodes: bool,
        says: SyncSender<RankMessage>,
    ) -> std::result::Result<Shared, String> {
        let keep = keep(&job);
        let mut sides = Vec::new();
        let mut rights = Rights::default();
        for Root { src, dst, one } in &job.roots {
            let shown = String::from_utf8_lossy(src).into_owned();
            let src = open(src, job.follow).map_err(|e| e.message().to_owned())?;
            let dst = open(dst, false).map_err(|e| e.message().to_owned())?;
            let top = src.stat(&Key::new("")).await.map_err(|e| format!("{shown}: {}", e.message()))?;
            let device = top.posix.as_ref().map_or(0, |posix| u64::from(posix.dev.0) << 32 | u64::from(posix.dev.1));
            rights = dst.caps().attributes.clone().unwrap_or_default();
            let one = one.as_ref().map(|(from, to)| (Key::new(from), Key::new(to)));
            let link_dest = job.link_dest.as_ref().map(|dir| open(dir, false)).transpose();
            let link_dest = link_dest.map_err(|e| e.message().to_owned())?;
            sides.push(Sides { src, dst, link_dest, device, one });
        }
        let log = match &job.log {
            None => None,
            Some(path) => {
                let path = format!("{path}.{rank}");
                let file = File::options().create(true).append(true).open(&path);
                Some(Mutex::new(file.map_err(|e| format!("{path}: {e}"))?))
            }
        };
        let shared = Shared {
            sides,
            keep,
            rights,
            late: late_errors::Mounts::default(),
            several_nodes,
            moved: Arc::default(),
            stop: AtomicBool::new(false),
            trusted: AtomicU64::new(u64::MAX),
            epoch: AtomicU64::new(0),
            held: Mutex::new(Leases { looked: Instant::now(), held: HashMap::new() }),
            began: Instant::now(),
            log,
            says,
            job: Arc::new(job),
        };
        Ok(shared)
    }

    /// Has directories that are made from now on be closed to others until they have their own permissions. The coordinator has
    /// made the destination's folder before.
    pub async fn prepare(&self) {
        if self.changes() && self.job.verb != Verb::Delete {
            for sides in self.sides.iter().filter(|sides| sides.one.is_none()) {
                let _ = sides.dst.make_dir(&Key::new(""), &self.spec()).await;
            }
        }
    }

    /// True if the job changes anything.
    pub fn changes(&self) -> bool {
        !self.job.dry_run && self.job.verb != Verb::Check
    }

    /// How a file is written.
    pub fn spec(&self) -> WriteSpec {
        let (sparse, drop_cache) = (self.job.sparse, self.job.direct);
        WriteSpec { keep: self.keep.clone(), sparse, drop_cache, ..WriteSpec::default() }
    }

    /// How many requests the slower side takes at once.
    pub fn concurrency(&self) -> usize {
        let of = |sides: &Sides| sides.src.caps().concurrency.max(sides.dst.caps().concurrency);
        self.sides.iter().map(of).max().unwrap_or(1)
    }

    /// The coordinator heard this rank at `at`: it waits for `patience` from then on before it gives the work to others.
    pub fn trust(&self, at: Instant, patience: Duration) {
        let until = at.saturating_duration_since(self.began) + patience * 2 / 3;
        // Leases that this rank had while it wasn't heard aren't its own any more.
        if !self.is_heard(self.trusted.load(Ordering::Acquire)) {
            self.epoch.fetch_add(1, Ordering::Release);
        }
        self.trusted.store(until.as_millis() as u64, Ordering::Release);
    }

    fn is_heard(&self, until: u64) -> bool {
        (self.began.elapsed().as_millis() as u64) < until
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases of which nothing has moved for too long, told once each, and whether a thread has begun them. This rank doesn't go on
    /// with them. Those that wait count too where all `slots` threads hang.
    pub fn hung(&self, slots: usize) -> Vec<(u64, bool)> {
        let too_long = Duration::from_secs(self.job.hang);
        let mut leases = self.leases();
        let passed = leases.looked.elapsed().min(LOOK);
        leases.looked = Instant::now();
        let mut hanging = 0;
        for held in leases.held.values_mut().filter(|held| held.pulse.begun.load(Ordering::Relaxed)) {
            let steps = held.pulse.steps.load(Ordering::Relaxed);
            held.silent = if steps == held.steps { held.silent + passed } else { Duration::ZERO };
            held.steps = steps;
            hanging += usize::from(held.silent > too_long);
        }
        let mut hung = Vec::new();
        for (number, held) in &leases.held {
            let begun = held.pulse.begun.load(Ordering::Relaxed);
            let hangs = if begun { held.silent > too_long } else { hanging >= slots };
            if hangs && !held.pulse.given_up.swap(true, Ordering::Release) {
                hung.push((*number, begun));
            }
        }
        hung
    }

    /// How the source shows its links.
    pub fn links(&self) -> SourceLinks {
        SourceLinks { follow_dirs: self.job.follow, follow_files: self.job.follow, ..SourceLinks::default() }
    }

    /// Tells the coordinator.
    pub fn say(&self, said: RankMessage) {
        // Nobody listens when all is over.
        let _ = self.says.send(said);
    }

    /// Writes a line about a file to the log, if there is one.
    pub fn log(&self, event: &str, root: u16, key: &[u8], size: u64, error: Option<&str>) {
        let Some(log) = &self.log else { return };
        let path = self.path(root, key);
        let time = jiff::Timestamp::now().to_string();
        let mut line = serde_json::json!({ "time": time, "event": event, "path": path, "size": size });
        if let Some(error) = error {
            line["error"] = error.into();
        }
        let _ = writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
    }

    /// A source's path as people see it.
    pub fn path(&self, root: u16, key: &[u8]) -> String {
        below(&self.job.roots[usize::from(root)].src, key)
    }

    /// A destination's path as people see it.
    pub fn dst_path(&self, root: u16, key: &[u8]) -> String {
        below(&self.job.roots[usize::from(root)].dst, key)
    }

    /// An error as a line.
    pub fn problem(&self, root: u16, key: &[u8], error: &Error) -> Problem {
        self.log("error", root, key, 0, Some(error.message()));
        let full = error.kind() == ErrorKind::NoSpace;
        let path = match full {
            // Where there is no room is at the destination.
            true => self.dst_path(root, self.sides[usize::from(root)].to(&Key::new(key)).as_bytes()),
            false => self.path(root, key),
        };
        let line = format!("{path}: {}", error.message()).replace('\n', " ");
        let vanished = error.kind() == ErrorKind::NotFound && matches!(error.op(), "read" | "copy" | "stat");
        Problem { line, full, vanished }
    }
}

/// Leases as the main thread looks at them.
struct Leases {
    looked: Instant,
    held: HashMap<u64, Seen>,
}

/// Its facts of one.
struct Seen {
    pulse: Arc<Pulse>,
    steps: u64,
    silent: Duration,
}

/// Signs of life of a lease.
#[derive(Debug, Default)]
pub struct Pulse {
    begun: AtomicBool,
    steps: AtomicU64,
    /// Others have it.
    given_up: AtomicBool,
}

impl Pulse {
    /// Something moved.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// A lease that this rank has, with all that its threads share.
#[derive(Clone)]
pub struct HeldLease {
    shared: Arc<Shared>,
    /// Its number.
    pub lease: u64,
    /// That of its rank when it came.
    epoch: u64,
    /// Its signs of life.
    pub pulse: Arc<Pulse>,
}

impl Deref for HeldLease {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl HeldLease {
    /// A lease that came just now.
    pub fn new(shared: &Arc<Shared>, lease: u64) -> HeldLease {
        let (pulse, epoch) = (Arc::<Pulse>::default(), shared.epoch.load(Ordering::Acquire));
        let seen = Seen { pulse: pulse.clone(), steps: 0, silent: Duration::ZERO };
        shared.leases().held.insert(lease, seen);
        HeldLease { shared: shared.clone(), lease, epoch, pulse }
    }

    /// A thread has it now.
    pub fn begin(&self) {
        self.pulse.begun.store(true, Ordering::Relaxed);
    }

    /// Nobody has it now.
    pub fn end(self) {
        self.shared.leases().held.remove(&self.lease);
    }

    /// Does the coordinator still count on this rank for it? It may have given it to others.
    pub fn is_trusted(&self) -> bool {
        // In this order: who sees the time up to which the rank is trusted again sees its new epoch, too.
        let heard = self.is_heard(self.trusted.load(Ordering::Acquire));
        heard && self.shared.epoch.load(Ordering::Acquire) == self.epoch && !self.pulse.given_up.load(Ordering::Acquire)
    }

    /// May it be gone on with? Not after a stop, nor where others have it.
    pub fn may_go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.is_trusted()
    }

    /// That nothing more is done, if others have it.
    ///
    /// Errors: `Cancelled`.
    pub fn check(&self) -> Result<()> {
        self.pulse.step();
        match self.is_trusted() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Cancelled, "copy", "was given to others")),
        }
    }

    /// Counts bytes.
    pub fn moved(&self, bytes: u64) {
        self.pulse.step();
        self.shared.moved.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
pub(crate) mod tests {
    use super::*;
    use std::{
        path::Path,
        sync::mpsc::{Receiver, sync_channel},
    };

    /// A job of a tree on this machine.
    pub fn job(verb: Verb, src: &Path, dst: &Path) -> Job {
        use std::os::unix::ffi::OsStrExt as _;
        let raw = |path: &Path| crate::work::Raw::from(path.as_os_str().as_bytes());
        Job {
            verb,
            roots: vec![Root { src: raw(src), dst: raw(dst), one: None }],
            preserve: true,
            xattrs: false,
            sparse: false,
            direct: false,
            follow: false,
            delete: false,
            allow_empty_source: false,
            contents: false,
            input: None,
            typed_src: None,
            link_dest: None,
            dry_run: false,
            verbose: false,
            quiet: false,
            progress: None,
            resuming: false,
            since: Vec::new(),
            patience: 60,
            hang: 600,
            log: None,
        }
    }

    /// Shared state of a rank that does this job, and its messages.
    pub async fn rank(job: Job) -> (Arc<Shared>, Receiver<RankMessage>) {
        let (says, said) = sync_channel(crate::rank::SAID);
        let shared = Shared::open(job, 1, false, says).await.unwrap();
        shared.prepare().await;
        (Arc::new(shared), said)
    }

    async fn some(hang: u64) -> (tempfile::TempDir, Arc<Shared>) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("src")).unwrap();
        let (shared, _) =
            rank(Job { hang, ..job(Verb::Dcp, &temp.path().join("src"), &temp.path().join("dst")) }).await;
        (temp, shared)
    }

    #[tokio::test]
    async fn a_rank_that_was_not_heard_has_lost_what_it_had() {
        let (_temp, shared) = some(600).await;
        let patience = Duration::from_secs(600);
        shared.trust(Instant::now(), patience);
        let before = HeldLease::new(&shared, 1);
        assert!(before.may_go_on() && before.check().is_ok());
        shared.trust(Instant::now(), Duration::ZERO);
        let during = HeldLease::new(&shared, 2);
        assert!(!before.is_trusted() && !during.is_trusted());
        shared.trust(Instant::now(), patience);
        let after = HeldLease::new(&shared, 3);
        assert!(!before.is_trusted() && !during.is_trusted() && after.is_trusted());
        assert_eq!(before.check().unwrap_err().kind(), ErrorKind::Cancelled);
        shared.trust(Instant::now(), patience);
        assert!(after.is_trusted(), "it was heard all the time");
    }

    #[tokio::test]
    async fn a_lease_of_which_nothing_moves_hangs() {
        let (_temp, shared) = some(0).await;
        let leases: Vec<HeldLease> = (1..=3).map(|number| HeldLease::new(&shared, number)).collect();
        leases[0].begin();
        leases[1].begin();
        let look = |moves: &[usize]| {
            moves.iter().for_each(|at| leases[*at].pulse.step());
            std::thread::sleep(Duration::from_millis(1));
            let mut hung = shared.hung(2);
            hung.sort_unstable();
            hung
        };
        assert_eq!(look(&[0, 1]), []);
        assert_eq!([look(&[1]), look(&[1])].concat(), [(1, true)], "told once");
        assert!(!leases[0].is_trusted() && leases[1].is_trusted() && leases[2].is_trusted());
        // No thread is left for the one that waits.
        assert_eq!([look(&[]), look(&[])].concat(), [(2, true), (3, false)]);
        leases.into_iter().for_each(HeldLease::end);
        assert!(shared.leases().held.is_empty());
    }
}
