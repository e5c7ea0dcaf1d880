//! Threads for blocking work on disks (and for hashing): one pool for names (listing, statx), one for bytes and changes,
//! so that a few huge copies never hold up a listing. Shared by the whole process. No job ever waits for another one: what a job asks
//! for itself is done at once, on its thread.

use crossbeam_channel::{Receiver, Sender, unbounded};
use haul_core::{Error, ErrorKind, Key, Result};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::oneshot};

/// A job for a thread.
enum Job {
    /// It may take long, and sends its own answer.
    Long(Box<dyn FnOnce() + Send>),
    /// It takes microseconds where the kernel has what it asks for; its answer is given with those of others.
    Short(Box<dyn FnOnce() -> Deliver + Send>),
}

/// Delivers a job's answer to its waiter.
type Deliver = Box<dyn FnOnce() + Send>;

/// Answers of short jobs that a thread delivers at once at most: waking a waiter costs more than many a job.
const ANSWERS: usize = 16;

/// And how long it keeps the first of them while more short jobs are waiting.
const KEPT: Duration = Duration::from_micros(200);

/// Runs `job` on a thread that may block, and waits for it.
///
/// Errors: the job's; `Io` when its thread was lost.
pub async fn run<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    bytes().run("run", job).await
}

/// Like [`run`], but starts `job` now: a caller that awaits it later finds it done.
///
/// Errors: as [`run`].
pub fn begin<T: Send + 'static>(
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send + 'static {
    let pending = bytes().submit(job);
    async move { pending.await.unwrap_or_else(|_| Err(lost("run"))) }
}

/// Waits until no job is waiting or running, at most `within`: an abandoned job still has to remove its
/// remains, which it can't after the process has ended.
pub async fn at_rest(within: Duration) {
    let end = Instant::now() + within;
    while BUSY.load(Ordering::Acquire) > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Jobs that wait or run, in all pools.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// A pool of threads with one queue. The callers' numbers of requests in flight bound the queue.
pub struct Pool {
    name: &'static str,
    jobs: Sender<Job>,
    /// Queue that the threads take jobs from; `None` when no thread could be started, so every job answers with an error.
    queue: Option<Receiver<Job>>,
    threads: Mutex<usize>,
}

/// Runs what consists of several jobs on one thread that may block, one after the other: handing each of them over takes longer than
/// a small file does.
///
/// Errors: as [`run`].
pub async fn together<T: Send + 'static>(jobs: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let runtime = Handle::current();
    run(move || runtime.block_on(jobs)).await
}

thread_local! {
    /// True on a thread of a pool.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The pool that lists directories.
pub fn names() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::start("haul-list"))
}

/// The pool that moves bytes and changes things.
pub fn bytes() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::start("haul-disk"))
}

/// Most threads of a pool: beyond this the kernel's own locks cost more than they give.
const MOST: usize = 32;

/// How many threads a pool has for disks of this machine, which like more requests in flight than there are cores.
fn threads() -> usize {
    thread::available_parallelism().map_or(4, |n| (2 * n.get()).clamp(4, MOST))
}

/// Minimum number of jobs at once, as requested; 0 for none.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Lets stores opened from now on run at least `at_once` jobs at once: for measuring how many a file system takes.
pub fn widen(at_once: usize) {
    ASKED.fetch_max(at_once, Ordering::AcqRel);
}

/// How many jobs run at once on a disk of this machine, or (`far`) on a file system that asks a server, where a thread does little
/// but wait for answers. Grows the thread pools to this size if need be.
pub fn at_once(far: bool) -> usize {
    let asking = ASKED.load(Ordering::Acquire);
    if !far && asking == 0 {
        return threads();
    }
    let most = asking.max(if far { MOST } else { threads() });
    for pool in [names(), bytes()] {
        pool.grow(most);
    }
    most
}

impl Pool {
    fn start(name: &'static str) -> Self {
        let (jobs, queue) = unbounded::<Job>();
        let mut pool = Pool { name, jobs, queue: Some(queue), threads: Mutex::new(0) };
        pool.grow(threads());
        if pool.threads() == 0 {
            pool.queue = None;
        }
        pool
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts threads until there are `most`.
    fn grow(&self, most: usize) {
        let Some(queue) = &self.queue else { return };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while *threads < most {
            let queue = queue.clone();
            if let Err(error) = thread::Builder::new().name(self.name.into()).spawn(move || work(&queue)) {
                return tracing::warn!(%error, "can't start a disk thread");
            }
            *threads += 1;
        }
    }

    /// Queues `job`; the answer arrives through the receiver. A job whose receiver was dropped isn't
    /// begun.
    pub fn submit<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        let (answer, pending) = oneshot::channel();
        if INSIDE.get() {
            let _ = answer.send(job());
            return pending;
        }
        self.queue(Job::Long(Box::new(move || {
            if !answer.is_closed() {
                // The caller may have stopped waiting; the answer is dropped then.
                let _ = answer.send(job());
            }
        })));
        pending
    }

    fn submit_short<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        let (answer, pending) = oneshot::channel();
        if INSIDE.get() {
            let _ = answer.send(job());
            return pending;
        }
        self.queue(Job::Short(Box::new(move || {
            let found = (!answer.is_closed()).then(job);
            Box::new(move || {
                if let Some(found) = found {
                    let _ = answer.send(found);
                }
            })
        })));
        pending
    }

    /// Queues a job that sends its own answer; false when there is no thread for it.
    pub fn begin(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.queue(Job::Long(Box::new(job)))
    }

    fn queue(&self, job: Job) -> bool {
        BUSY.fetch_add(1, Ordering::AcqRel);
        let queued = self.jobs.send(job).is_ok();
        if !queued {
            BUSY.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("no disk thread is running");
        }
        queued
    }

    /// Runs `job` on the pool.
    pub async fn run<T: Send + 'static>(
        &self,
        op: &'static str,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit(job).await.unwrap_or_else(|_| Err(lost(op)))
    }

    /// Runs a short `job` on the pool: before long ones.
    pub async fn run_short<T: Send + 'static>(
        &self,
        op: &'static str,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit_short(job).await.unwrap_or_else(|_| Err(lost(op)))
    }
}

/// The answer when a job died or could not be queued.
pub fn lost(op: &'static str) -> Error {
    Error::new(ErrorKind::Io, op, "a disk thread could not finish: the process may be out of threads or memory")
}

fn work(queue: &Receiver<Job>) {
    INSIDE.set(true);
    let mut answers: Vec<Deliver> = Vec::with_capacity(ANSWERS);
    let mut since = Instant::now();
    loop {
        let waiting = if answers.is_empty() { None } else { queue.try_recv().ok() };
        let job = match waiting {
            Some(job) => job,
            None => {
                give(&mut answers);
                let Ok(job) = queue.recv() else { return };
                job
            }
        };
        match job {
            Job::Long(job) => {
                give(&mut answers);
                caught(job);
            }
            Job::Short(job) => {
                if answers.is_empty() {
                    since = Instant::now();
                }
                answers.extend(caught(job));
            }
        }
        BUSY.fetch_sub(1, Ordering::AcqRel);
        if answers.len() >= ANSWERS || (!answers.is_empty() && since.elapsed() >= KEPT) {
            give(&mut answers);
        }
    }
}

fn give(answers: &mut Vec<Deliver>) {
    for answer in answers.drain(..) {
        answer();
    }
}

/// A panic costs its own job (whose answer is then never sent), not the thread.
fn caught<T>(job: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(job));
    if done.is_err() {
        tracing::error!("a disk job panicked");
    }
    done.ok()
}

/// When dropped, informs a running job that nobody waits for it any more.
#[derive(Default)]
pub struct JobWaiter(Arc<AtomicBool>);

/// The job's side of [`JobWaiter`].
#[derive(Clone)]
pub struct Abandoned(Arc<AtomicBool>);

impl JobWaiter {
    /// For the job.
    pub fn watch(&self) -> Abandoned {
        Abandoned(self.0.clone())
    }
}

impl Drop for JobWaiter {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Abandoned {
    /// True once nobody waits.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Errors: `Cancelled` once nobody waits.
    pub fn check(&self, op: &'static str, key: &Key) -> Result<()> {
        match self.get() {
            true => Err(Error::new(ErrorKind::Cancelled, op, "stopped").with_key(key)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn pool() -> (Pool, Receiver<Job>) {
        let (send, receive) = unbounded();
        (Pool { name: "test", jobs: send, queue: None, threads: Mutex::new(0) }, receive)
    }

    #[test]
    fn a_pool_that_grows_runs_so_many_jobs_at_once() {
        let pool = Pool::start("test");
        pool.grow(MOST);
        assert_eq!(pool.threads(), MOST);
        // None ends before all have begun.
        let meet = Arc::new(std::sync::Barrier::new(MOST));
        let meets = std::iter::repeat_n(meet, MOST);
        let jobs: Vec<_> = meets.map(|meet| pool.submit(move || meet.wait().is_leader())).collect();
        let leaders = jobs.into_iter().map(oneshot::Receiver::blocking_recv).filter(|led| *led == Ok(true));
        assert_eq!(leaders.count(), 1);
    }

    #[test]
    fn who_measures_gets_more_at_once_than_suits() {
        widen(MOST + 8);
        assert_eq!([at_once(false), at_once(true)], [MOST + 8; 2]);
        assert_eq!(bytes().threads(), MOST + 8);
        widen(1);
        assert_eq!(at_once(false), MOST + 8, "it is never narrower again");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn jobs_together_run_on_one_thread_however_many_there_are() {
        let here = async || run(|| Ok(thread::current().id())).await;
        // More than there are threads: were one to wait for another, none would end.
        let all = (0..4 * threads()).map(|_| together(async move { Ok((here().await?, here().await?)) }));
        for threads in futures::future::try_join_all(all).await.unwrap() {
            assert_eq!(threads.0, threads.1);
        }
    }

    #[test]
    fn answers_of_short_jobs_are_given_before_a_long_one_begins() {
        let (pool, queue) = pool();
        let (a, b) = (pool.submit_short(|| 1), pool.submit_short(|| 2));
        let (told, tell) = mpsc::channel();
        // It ends only when both answers were had; were they kept until its end, it would wait in vain.
        let long = pool.submit(move || tell.recv_timeout(Duration::from_secs(60)).is_ok());
        drop(pool);
        let thread = thread::spawn(move || work(&queue));
        assert_eq!((a.blocking_recv(), b.blocking_recv()), (Ok(1), Ok(2)));
        told.send(()).unwrap();
        assert_eq!(long.blocking_recv(), Ok(true));
        thread.join().unwrap();
    }

    #[test]
    fn every_short_job_is_answered_also_after_one_that_panics() {
        let (pool, queue) = pool();
        let first: Vec<_> = (0..3 * ANSWERS).map(|n| pool.submit_short(move || n)).collect();
        let bad = pool.submit_short(|| -> usize { panic!("as the test wants") });
        let abandoned = pool.submit_short(|| unreachable!("nobody waits for it"));
        let last = pool.submit_short(|| 7);
        drop::<oneshot::Receiver<()>>(abandoned);
        drop(pool);
        work(&queue);
        for (n, pending) in first.into_iter().enumerate() {
            assert_eq!(pending.blocking_recv(), Ok(n));
        }
        assert!(bad.blocking_recv().is_err());
        assert_eq!(last.blocking_recv(), Ok(7));
    }
}
