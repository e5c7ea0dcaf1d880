//! One direction of a bandwidth limit: which bytes may pass next, and when. Files take turns. Knows nothing of stores.

use crate::layers::clock::Clock;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// A request that moves more waits for its turn before it begins, so that those begun before it end first: what has arrived can
/// be sent on while the rest is still coming.
const LARGE: u64 = 256 << 10;

/// So long before those begun earlier will have moved all their bytes the next one begins: a request's wait for its answer
/// mustn't leave the line idle.
const LEAD: Duration = Duration::from_millis(250);

/// Time that went by unused, because a timer rang late, is made up for up to this much.
const SLACK: Duration = Duration::from_millis(20);

/// Share of the limit that is used, so that catching up doesn't exceed it.
const SHARE: f64 = 0.995;

/// One direction: a line for the bytes as they pass, and one for large requests before they begin.
#[derive(Debug, Default)]
pub(super) struct Lane {
    bytes: Line,
    requests: Line,
    /// Limit for each single file.
    pub(super) each: Each,
}

impl Lane {
    pub(super) fn set(&self, limit: Option<u64>) {
        self.bytes.lock().limit = limit;
        self.requests.lock().limit = limit;
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.bytes.lock().limit
    }

    /// Bytes that pass at once: few milliseconds' worth, so that files take turns often.
    pub(super) fn piece(&self) -> usize {
        let limits = [self.limit(), self.each.lock().limit];
        limits.into_iter().flatten().min().map_or(LARGE, |limit| (limit / 64).clamp(4 << 10, LARGE)) as usize
    }

    /// Waits until a request for `bytes` bytes of a file may begin.
    pub(super) async fn begin(&self, file: u64, bytes: u64, clock: &dyn Clock) {
        if bytes > LARGE {
            self.requests.turn(file, bytes, LEAD, clock).await;
        }
    }

    /// Waits until `bytes` bytes of a file may have passed.
    pub(super) async fn pass(&self, file: u64, bytes: u64, clock: &dyn Clock) {
        let own = self.each.lock().wait(file, bytes, clock.now());
        if !own.is_zero() {
            clock.sleep(own).await;
        }
        let wait = self.bytes.turn(file, bytes, Duration::ZERO, clock).await;
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
    }
}

/// Limits of single files, which don't wait for each other.
#[derive(Debug, Default)]
pub(super) struct Each(Mutex<Paid>);

#[derive(Debug, Default)]
pub(super) struct Paid {
    pub(super) limit: Option<u64>,
    /// When the last byte of each file that was let through is paid for.
    files: HashMap<u64, Instant>,
}

impl Each {
    pub(super) fn lock(&self) -> MutexGuard<'_, Paid> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Paid {
    /// How long until `bytes` bytes of a file are paid for.
    fn wait(&mut self, file: u64, bytes: u64, now: Instant) -> Duration {
        let Some(limit) = self.limit else { return Duration::ZERO };
        if self.files.len() >= REMEMBERED {
            self.files.retain(|_, paid| *paid > now);
        }
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let from = self.files.get(&file).map_or(now, |paid| (*paid).max(earliest));
        let paid = from + Duration::from_secs_f64(bytes as f64 / (limit as f64 * SHARE));
        self.files.insert(file, paid);
        paid.saturating_duration_since(now)
    }
}

/// A line in which every byte has its time, and in which files take turns.
#[derive(Debug, Default)]
struct Line(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limit: Option<u64>,
    /// When the last byte let through is paid for.
    paid: Option<Instant>,
    turns: Turns,
}

/// Who is next: whoever would be done first if all files shared alike (self-clocked fair queueing, Golestani 1994). A small file
/// needn't wait for all of a large one, nor a large one for all small ones. Bytes stand for time.
#[derive(Debug, Default)]
struct Turns {
    /// The end of the last one let through.
    now: u64,
    /// The end of the last one of each file.
    files: HashMap<u64, u64>,
    /// By their ends, then in the order in which they came.
    waiting: BTreeMap<(u64, u64), Arc<Notify>>,
    came: u64,
}

/// Files whose ends are remembered before those that don't matter any more are forgotten.
const REMEMBERED: usize = 4096;

impl Turns {
    fn enter(&mut self, file: u64, bytes: u64, wake: &Arc<Notify>) -> (u64, u64) {
        if self.files.len() >= REMEMBERED {
            let now = self.now;
            self.files.retain(|_, end| *end > now);
        }
        let end = self.files.get(&file).map_or(self.now, |end| self.now.max(*end)) + bytes;
        self.files.insert(file, end);
        self.came += 1;
        self.waiting.insert((end, self.came), wake.clone());
        (end, self.came)
    }

    fn is_first(&self, at: (u64, u64)) -> bool {
        self.waiting.first_key_value().is_none_or(|(first, _)| *first >= at)
    }

    /// Takes it out of the line and wakes the next.
    fn leave(&mut self, at: (u64, u64)) {
        self.waiting.remove(&at);
        if let Some((_, next)) = self.waiting.first_key_value() {
            next.notify_one();
        }
    }
}

/// A place in a line; given up as it is dropped.
struct InLine<'a> {
    line: &'a Line,
    at: (u64, u64),
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.line.lock().turns.leave(self.at);
    }
}

enum Look {
    /// It is let through, and paid for after this long.
    Go(Duration),
    /// It is the next, after this long.
    Wait(Duration),
    /// Others are before it.
    Behind,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until what was let through before is paid for, or `lead` sooner, and it is the turn of these bytes. Says how long
    /// it takes then until they are paid for.
    async fn turn(&self, file: u64, bytes: u64, lead: Duration, clock: &dyn Clock) -> Duration {
        let wake = Arc::new(Notify::new());
        let place = {
            let mut state = self.lock();
            if state.limit.is_none() {
                state.paid = None;
                return Duration::ZERO;
            }
            InLine { line: self, at: state.turns.enter(file, bytes, &wake) }
        };
        loop {
            let look = self.lock().look(place.at, bytes, lead, clock.now());
            match look {
                Look::Go(paid) => return paid,
                Look::Wait(time) => clock.sleep(time).await,
                Look::Behind => wake.notified().await,
            }
        }
    }
}

impl State {
    fn look(&mut self, at: (u64, u64), bytes: u64, lead: Duration, now: Instant) -> Look {
        let Some(limit) = self.limit else {
            self.turns.leave(at);
            return Look::Go(Duration::ZERO);
        };
        if !self.turns.is_first(at) {
            return Look::Behind;
        }
        let wait = self.paid.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        if wait > lead {
            return Look::Wait(wait - lead);
        }
        let from = self.paid.map_or(now, |paid| paid.max(now.checked_sub(SLACK).unwrap_or(now)));
        let paid = from + Duration::from_secs_f64(bytes as f64 / (limit as f64 * SHARE));
        self.paid = Some(paid);
        self.turns.now = self.turns.now.max(at.0);
        self.turns.leave(at);
        Look::Go(paid.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Rate, *};
    use futures::future::BoxFuture;
    use std::{
        pin::pin,
        sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        task::{Context, Poll, Wake, Waker},
    };

    /// A clock that advances when nothing else can run.
    struct Virtual {
        begun: Instant,
        now: Mutex<Instant>,
        /// Ends of sleeps and their wakers; numbered, as several may end together.
        sleeping: Mutex<BTreeMap<(Instant, u64), Waker>>,
        slept: AtomicU64,
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    impl Virtual {
        fn new() -> Arc<Virtual> {
            let begun = Instant::now();
            let (now, sleeping, slept) = (Mutex::new(begun), Mutex::default(), AtomicU64::new(0));
            Arc::new(Virtual { begun, now, sleeping, slept })
        }

        fn elapsed(&self) -> f64 {
            (*self.now.lock().unwrap() - self.begun).as_secs_f64()
        }

        fn run<T>(&self, work: impl Future<Output = T>) -> T {
            let mut work = pin!(work);
            let woken = Arc::new(Woken(AtomicBool::new(true)));
            let waker = Waker::from(woken.clone());
            loop {
                while woken.0.swap(false, Relaxed) {
                    if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return done;
                    }
                }
                let ((next, _), sleeper) = self.sleeping.lock().unwrap().pop_first().expect("somebody sleeps");
                *self.now.lock().unwrap() = next;
                sleeper.wake();
            }
        }
    }

    impl Clock for Arc<Virtual> {
        fn now(&self) -> Instant {
            *self.now.lock().unwrap()
        }

        fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
            let (clock, end, number) = (self.clone(), self.now() + wait, self.slept.fetch_add(1, Relaxed));
            Box::pin(std::future::poll_fn(move |cx| {
                if clock.now() >= end {
                    return Poll::Ready(());
                }
                clock.sleeping.lock().unwrap().insert((end, number), cx.waker().clone());
                Poll::Pending
            }))
        }

        fn chance(&self) -> f64 {
            0.0
        }
    }

    const MI: u64 = 1 << 20;

    /// Time from the beginning, and bytes that have passed then.
    type Passed = Arc<Mutex<Vec<(f64, u64)>>>;

    async fn move_bytes(lane: &Lane, file: u64, bytes: u64, clock: &Arc<Virtual>, passed: &Passed) {
        lane.begin(file, bytes, clock).await;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(lane.piece() as u64);
            lane.pass(file, piece, clock).await;
            passed.lock().unwrap().push((clock.elapsed(), piece));
            left -= piece;
        }
    }

    /// The most bytes of any ten seconds.
    fn most(passed: &Passed) -> u64 {
        let passed = passed.lock().unwrap();
        let within = |from: f64| passed.iter().filter(move |(at, _)| (from..=from + 10.0).contains(at));
        passed.iter().step_by(16).map(|(from, _)| within(*from).map(|(_, bytes)| bytes).sum()).max().unwrap_or(0)
    }

    #[test]
    fn what_comes_is_sent_on_while_the_rest_is_still_coming() {
        let (limit, clock) = (40 * MI, Virtual::new());
        let rate = Rate::new(Some(limit), Some(limit));
        let (down, up) = (Passed::default(), Passed::default());
        let chunk = async |file: u64| {
            move_bytes(&rate.down, file, 8 * MI, &clock, &down).await;
            move_bytes(&rate.up, file, 8 * MI, &clock, &up).await;
        };
        let chunks = 80;
        clock.run(futures::future::join_all((0..chunks).map(|n| chunk(n % 5))));
        let (took, best) = (clock.elapsed(), (chunks * 8 * MI) as f64 / limit as f64);
        assert!(took >= best && took < best / 0.9, "{took} s where {best} would do");
        assert!(most(&down) <= 10 * limit && most(&up) <= 10 * limit, "{} {}", most(&down), most(&up));
    }

    #[test]
    fn large_and_small_files_share_the_bandwidth_fairly() {
        let (limit, clock) = (12 * MI, Virtual::new());
        let rate = Rate::new(Some(limit), None);
        let ends = async |file: u64, sizes: Vec<u64>| {
            let all = Passed::default();
            let parts = sizes.into_iter().map(|size| move_bytes(&rate.up, file, size, &clock, &all));
            futures::future::join_all(parts).await;
            clock.elapsed()
        };
        let small = futures::future::join_all((1..=200).map(|n| ends(n, vec![64 << 10])));
        let (large, small) = clock.run(async { futures::join!(ends(0, vec![8 * MI; 12]), small) });
        let last = small.into_iter().fold(0.0, f64::max);
        // 12.5 MiB of small files would take 1 s alone, and the large one 8 s.
        assert!(last < 2.5, "the last small file took {last} s");
        assert!(large > 9.0 && large < 10.0, "{large}");
    }

    #[test]
    fn a_cancelled_wait_delays_no_other() {
        let clock = Virtual::new();
        let rate = Rate::new(Some(1000), None);
        clock.run(async {
            rate.up.pass(0, 1000, &clock).await;
            let mut first = Box::pin(rate.up.pass(1, 1000, &clock));
            let second = rate.up.pass(2, 1000, &clock);
            assert!(futures::poll!(&mut first).is_pending());
            drop(first);
            second.await;
        });
        assert!(clock.elapsed() < 3.1);
    }

    #[test]
    fn a_limit_can_be_changed_and_taken_away() {
        let clock = Virtual::new();
        let rate = Rate::new(None, Some(10));
        let passes = |lane: &Lane, bytes: u64| {
            clock.run(lane.pass(0, bytes, &clock));
            clock.elapsed().round()
        };
        assert!(rate.is_set());
        assert_eq!(passes(&rate.up, 1 << 40), 0.0);
        assert_eq!(passes(&rate.down, 10), 1.0);
        rate.set(None, Some(20));
        assert_eq!(passes(&rate.down, 20), 2.0);
        rate.set(None, Some(0));
        assert_eq!(passes(&rate.down, 1 << 40), 2.0);
        assert!(!rate.is_set());
    }

    #[test]
    fn each_file_is_paid_for_by_itself() {
        let now = Instant::now();
        let mut paid = Paid { limit: Some(1000), ..Paid::default() };
        let seconds = |wait: Duration| (wait.as_secs_f64() * 10.0).round() / 10.0;
        assert_eq!(seconds(paid.wait(1, 1000, now)), 1.0);
        assert_eq!(seconds(paid.wait(1, 1000, now)), 2.0);
        assert_eq!(seconds(paid.wait(2, 500, now)), 0.5);
        // Only a little unused time is made up for.
        assert_eq!(seconds(paid.wait(1, 1000, now + Duration::from_secs(60))), 1.0);
        paid.limit = None;
        assert_eq!(paid.wait(1, 1000, now), Duration::ZERO);
    }
}
