//! Resources that a job may use at once: bytes in memory, chunks under way, open files. One budget for the whole job, whatever
//! the mix of files; an endpoint's lanes find out how many requests it takes, and the budget follows them.

use haul_core::job::Job;
use haul_store::{Buffers, Direction, Lanes, Store};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Memory is counted in units of this many bytes, so that a semaphore's 32-bit permits reach far enough (16 TiB), and
/// that thousands of tiny files that wait for one publish fit into the least budget.
const UNIT: u64 = 4 << 10;

/// Parts of one file in flight where `--transfers` pins the files but nothing pins the parts. rclone uses 4; with
/// 8 MiB parts 8 keep 640 Mbit/s busy over 100 ms.
pub const STREAMS: usize = 8;

/// Chunks beyond what the lanes take: those that are read from disk and hashed while all requests are under way, so that a
/// request that ends never waits for a disk. A chunk is read in about 1 ms and sent in 50; several are hashed side by side.
const AHEAD: usize = 12;

/// Chunks beyond what the lanes take that have arrived and are being written to a disk. On a busy machine writing takes as long as
/// the request did; with fewer, only half as many requests were under way as the lane takes, which then doesn't look for more.
const BEHIND: usize = 32;

/// Measured speed of the road to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRate {
    /// Bytes that one stream could move while it waits for an answer: its bandwidth-delay product.
    pub delay: u64,
    /// Parts under way at once.
    pub width: u64,
}

impl EndpointRate {
    /// The size of parts of a file of `size` bytes with which it arrives first. A stream loses `delay / part` of its time to
    /// waiting; and while the last parts go, half the streams are idle on average, which is `part * width / (2 * size)` of the
    /// whole. Their sum is least where both are equal.
    pub fn best(&self, size: u64) -> f64 {
        (2.0 * self.delay as f64 * size as f64 / self.width.max(1) as f64).sqrt()
    }
}

/// Assumed speed of a road before the first measurement: 25 MB/s for each of 16 streams and 50 ms, as seen with many
/// providers.
const UNSEEN: EndpointRate = EndpointRate { delay: 1_250_000, width: 16 };

/// The most questions at once that a lane finds out to suit.
const QUESTIONS: usize = 128;

/// Questions to a disk at once: many more than it has threads, as these answer several at a time where more are waiting.
const DISK_QUESTIONS: usize = 64;

/// Shared by all transfers of a job.
#[derive(Clone)]
pub struct Budget {
    memory: Arc<Semaphore>,
    units: u64,
    /// Files transferred at once, where the user pinned them.
    pub transfers: Option<Arc<Semaphore>>,
    /// Parts of one file in flight at most, where the user pinned them.
    streams: Option<usize>,
    /// Metadata requests at once.
    pub checkers: usize,
    src: End,
    dst: End,
    /// Small files that wait for their publish together, where the destination gathers them.
    gathered: Option<Arc<Semaphore>>,
    /// Both ends are one copy domain: chunks go inside it.
    domain: bool,
    claimed: Arc<Claimed>,
    /// Memory to read into.
    pub buffers: Buffers,
}

/// One end: how many requests it takes.
#[derive(Clone)]
struct End {
    files: bool,
    fixed: usize,
    lanes: Option<Arc<Lanes>>,
}

/// Remaining chunks of the files under way, as far as they count.
#[derive(Default)]
struct Claimed {
    chunks: AtomicUsize,
    lowered: Notify,
}

/// A file's share of the chunks under way; given back as it is dropped.
pub struct Claim {
    claimed: Arc<Claimed>,
    chunks: AtomicUsize,
    /// One of `--transfers`.
    pinned: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Budget {
    /// The budget that `job` asks for between two stores.
    pub fn new(job: &Job, src: &dyn Store, dst: &dyn Store) -> Self {
        let units = (job.limits.memory / UNIT).clamp(1, Semaphore::MAX_PERMITS as u64);
        let end = |store: &dyn Store| End {
            files: store.caps().files,
            fixed: store.caps().concurrency,
            lanes: store.lanes().cloned(),
        };
        let questions = questions(src).max(questions(dst));
        Budget {
            memory: Arc::new(Semaphore::new(units as usize)),
            units,
            transfers: job.pace.transfers.map(|files| Arc::new(Semaphore::new(files.max(1)))),
            streams: job.pace.streams.or(job.pace.transfers.map(|_| STREAMS)).map(|n| n.max(1)),
            checkers: job.pace.checkers.unwrap_or(questions).max(1),
            src: end(src),
            dst: end(dst),
            gathered: (dst.caps().gathers > 0).then(|| Arc::new(Semaphore::new(dst.caps().gathers))),
            domain: matches!((&src.caps().domain, &dst.caps().domain), (Some(a), Some(b)) if a.name == b.name),
            claimed: Arc::default(),
            buffers: Buffers::keeping(usize::try_from(job.limits.memory / 4).unwrap_or(usize::MAX)),
        }
    }

    /// Waits until `bytes` may be held in memory; more than the whole budget counts as the whole budget.
    pub async fn memory(&self, bytes: u64) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(UNIT).clamp(1, self.units).min(u64::from(u32::MAX)) as u32;
        match self.memory.clone().acquire_many_owned(units).await {
            Ok(permit) => permit,
            Err(_) => unreachable!("this semaphore is never closed"),
        }
    }

    /// False when the user wants one stream for each file.
    pub fn parts(&self) -> bool {
        self.streams.is_none_or(|n| n > 1)
    }

    /// Chunks of one file that may be read at once now.
    pub fn reads(&self) -> usize {
        let reads = if self.src.lanes.is_some() { self.src.takes(Direction::Down) } else { AHEAD };
        self.streams.unwrap_or(reads)
    }

    /// True when another request that reads would have to wait for its turn.
    pub fn reads_are_full(&self) -> bool {
        self.src.lanes.as_ref().is_some_and(|lanes| lanes.lane(Direction::Down).is_full())
    }

    /// Chunks of one file that may be written at once now.
    pub fn writes(&self) -> usize {
        let writes = if self.dst.lanes.is_some() { self.dst.takes(Direction::Up) } else { self.dst.fixed.max(AHEAD) };
        self.streams.unwrap_or(writes)
    }

    /// Chunks of all files that keep both ends busy now.
    fn width(&self) -> usize {
        if self.domain {
            // Between disks the one whose answers take longest says how many wait at once.
            let reads = if self.src.files { self.src.takes(Direction::Copy) } else { 0 };
            return self.dst.takes(Direction::Copy).max(reads);
        }
        match (self.src.files, self.dst.files) {
            // A disk's number of threads says nothing of how many requests a network end takes.
            (true, false) => self.dst.takes(Direction::Up) + AHEAD,
            (false, true) => self.src.takes(Direction::Down) + BEHIND,
            _ => self.src.takes(Direction::Down) + self.dst.takes(Direction::Up),
        }
    }

    /// Measured speed of the road between a disk and a store, along which parts are never whole in memory; `None` for
    /// other pairs.
    pub fn road(&self) -> Option<EndpointRate> {
        let (end, direction) = match (self.src.files, self.dst.files) {
            (true, false) => (&self.dst, Direction::Up),
            (false, true) => (&self.src, Direction::Down),
            _ => return None,
        };
        let lanes = end.lanes.as_ref()?;
        let (data, questions) = (lanes.lane(direction).shown(), lanes.lane(Direction::Meta).shown());
        let stream = data.bytes_per_second / data.in_flight.max(1) as f64;
        let delay = questions.base.map_or(0, |base| (stream * base.as_secs_f64()) as u64);
        Some(if delay > 0 { EndpointRate { delay, width: data.limit as u64 } } else { UNSEEN })
    }

    /// Waits until there is room for another file's chunks.
    pub async fn room(&self) {
        loop {
            let lowered = self.claimed.lowered.notified();
            if self.claimed.chunks.load(Ordering::Acquire) < self.width() {
                return;
            }
            lowered.await;
        }
    }

    /// Called when all bytes of a file are with a destination that gathers files: then it only waits for its publish, and
    /// others may take its place. Waits until one more may wait; what comes back is for as long as it does.
    pub async fn gather(&self, claim: &Claim) -> Option<OwnedSemaphorePermit> {
        let permit = self.gathered.clone()?.acquire_owned().await.ok();
        claim.left(0);
        claim.pinned.lock().unwrap_or_else(|e| e.into_inner()).take();
        permit
    }

    /// Admits a file of `chunks` chunks, with its one of `--transfers`. However many it has, it leaves a quarter of the width to others, so
    /// that small files keep flowing beside it; without others it may use all.
    pub fn claim(&self, chunks: u64, pinned: Option<OwnedSemaphorePermit>) -> Claim {
        let most = (self.width() * 3 / 4).max(1);
        let chunks = usize::try_from(chunks).unwrap_or(most).clamp(1, most);
        self.claimed.chunks.fetch_add(chunks, Ordering::AcqRel);
        Claim { claimed: self.claimed.clone(), chunks: AtomicUsize::new(chunks), pinned: Mutex::new(pinned) }
    }
}

/// Questions that a store may be asked at once where the user doesn't say: as many as its lanes ever let pass, which then do
/// the limiting.
pub fn questions(store: &dyn Store) -> usize {
    let caps = store.caps();
    match store.lanes() {
        Some(_) => QUESTIONS,
        None if caps.files => DISK_QUESTIONS.max(caps.concurrency),
        None => caps.concurrency,
    }
}

impl End {
    fn takes(&self, direction: Direction) -> usize {
        self.lanes.as_ref().map_or(self.fixed, |lanes| lanes.lane(direction).limit()).max(1)
    }
}

impl Claim {
    /// A chunk has arrived and `chunks` are left: the unneeded share is free for others.
    pub fn left(&self, chunks: u64) {
        let before = self.chunks.load(Ordering::Acquire);
        let now = usize::try_from(chunks).unwrap_or(usize::MAX).min(before);
        self.chunks.store(now, Ordering::Release);
        self.claimed.chunks.fetch_sub(before - now, Ordering::AcqRel);
        // Also when nothing was given back: the width may have grown.
        self.claimed.lowered.notify_one();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.left(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(memory: u64, width: usize) -> Budget {
        let job = Job::default().with(|job| job.limits.memory = memory);
        let end = End { files: false, fixed: width, lanes: None };
        Budget {
            memory: Arc::new(Semaphore::new((job.limits.memory / UNIT) as usize)),
            units: job.limits.memory / UNIT,
            transfers: None,
            streams: None,
            checkers: 1,
            gathered: None,
            src: end.clone(),
            dst: end,
            domain: true,
            claimed: Arc::default(),
            buffers: Buffers::default(),
        }
    }

    #[tokio::test]
    async fn more_than_everything_is_everything() {
        let budget = budget(1 << 20, 1);
        let all = budget.memory(1 << 40).await;
        assert_eq!(budget.memory.available_permits(), 0);
        drop(all);
        let _one = budget.memory(1).await;
        assert_eq!(budget.memory.available_permits(), 255);
    }

    #[test]
    fn between_disks_the_one_that_waits_longer_says_how_many_are_copied_at_once() {
        for (from, to) in [(4, 32), (32, 4)] {
            let mut budget = budget(1 << 20, 4);
            (budget.src.files, budget.src.fixed) = (true, from);
            (budget.dst.files, budget.dst.fixed) = (true, to);
            assert_eq!(budget.width(), 32);
        }
    }

    #[tokio::test]
    async fn what_is_being_written_keeps_nobody_from_the_lane() {
        let mut budget = budget(1 << 20, 1);
        let lanes = Lanes::new("here", Default::default());
        lanes.pin(Some(8));
        budget.src.lanes = Some(Arc::new(lanes));
        (budget.dst.files, budget.domain) = (true, false);
        let written: Vec<Claim> = (0..BEHIND).map(|_| budget.claim(1, None)).collect();
        let requests: Vec<Claim> = (0..7).map(|_| budget.claim(1, None)).collect();
        budget.room().await;
        let last = budget.claim(1, None);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), budget.room()).await.is_err());
        drop((written, requests, last));
    }

    #[tokio::test]
    async fn a_large_file_leaves_room_for_small_ones_and_gives_back_what_it_no_longer_needs() {
        let budget = budget(1 << 20, 8);
        let large = budget.claim(1000, None);
        let small: Vec<Claim> = (0..2).map(|_| budget.claim(1, None)).collect();
        let full = |budget: &Budget| budget.claimed.chunks.load(Ordering::Relaxed) >= 8;
        assert!(full(&budget));
        large.left(900);
        assert!(full(&budget));
        large.left(5);
        assert!(!full(&budget));
        budget.room().await;
        drop((large, small));
        assert_eq!(budget.claimed.chunks.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_file_that_only_waits_for_its_publish_leaves_its_place_to_others() {
        let mut budget = budget(1 << 20, 1);
        assert!(budget.gather(&budget.claim(1, None)).await.is_none(), "nothing is gathered here");
        budget.gathered = Some(Arc::new(Semaphore::new(2)));
        let pinned = Arc::new(Semaphore::new(1));
        let claim = budget.claim(1, pinned.clone().acquire_owned().await.ok());
        let waiting = budget.gather(&claim).await;
        budget.room().await;
        assert_eq!(pinned.available_permits(), 1);
        let second = budget.gather(&budget.claim(1, None)).await;
        let claim = budget.claim(1, None);
        let third = budget.gather(&claim);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), third).await.is_err());
        assert_eq!(budget.claimed.chunks.load(Ordering::Relaxed), 1, "the one that may not wait yet keeps its place");
        drop((waiting, second));
        assert!(budget.gather(&claim).await.is_some());
    }

    #[tokio::test]
    async fn whoever_waits_for_room_is_woken() {
        let budget = budget(1 << 20, 1);
        let claim = budget.claim(1, None);
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.room().await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        assert!(!waiting.is_finished());
        drop(claim);
        waiting.await.unwrap();
    }
}
