//! A rank's hands: threads that do leases, one at a time each, through the stores.

use crate::{
    dirs, files, pieces, remove,
    shared::{HeldLease, LONGEST, Shared},
    work::{LeaseResult, RankMessage, Raw, Work},
};
use haul_core::Key;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Threads that wait for leases.
pub struct Crew {
    /// State that the threads share.
    pub shared: Arc<Shared>,
    work: Option<Sender<(HeldLease, Work)>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts `slots` threads.
    pub fn start(shared: Shared, slots: usize, runtime: &tokio::runtime::Handle) -> Crew {
        let shared = Arc::new(shared);
        let (work, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = (0..slots).map(|_| {
            let (shared, waiting, runtime) = (shared.clone(), waiting.clone(), runtime.clone());
            std::thread::spawn(move || hand(&shared, &waiting, &runtime))
        });
        let threads = threads.collect();
        Crew { shared, work: Some(work), threads }
    }

    /// Gives them a lease.
    pub fn give(&self, lease: u64, work: Work) {
        if let Some(to) = &self.work {
            let _ = to.send((HeldLease::new(&self.shared, lease), work));
        }
    }

    /// Leases that hang in a file system since the last look.
    pub fn hung(&self) -> Vec<(u64, bool)> {
        self.shared.hung(self.threads.len())
    }

    /// Waits until what they have is done; false if one still hangs in a file system after so long.
    pub fn end(mut self, patience: Duration) -> bool {
        self.work = None;
        let until = Instant::now() + patience;
        while Instant::now() < until && !self.threads.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(LONGEST);
        }
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

fn hand(shared: &Arc<Shared>, waiting: &Mutex<Receiver<(HeldLease, Work)>>, runtime: &tokio::runtime::Handle) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((held, work)) = next else { return };
        held.begin();
        let done = match held.may_go_on() {
            false => LeaseResult { undone: true, ..LeaseResult::default() },
            true => runtime.block_on(one(&held, work)),
        };
        let lease = held.lease;
        held.end();
        shared.say(RankMessage::Done(lease, done));
    }
}

async fn one(shared: &HeldLease, work: Work) -> LeaseResult {
    match work {
        Work::Dir { root, key, fresh, after, only, .. } => {
            let after = after.map(|after| Key::new(&after));
            dirs::look(shared, root, &Key::new(&key), fresh, after, only).await
        }
        Work::Named { root, key, fresh, names, .. } => {
            dirs::look_at(shared, root, &Key::new(&key), fresh, &names).await
        }
        Work::Files { root, items, .. } => files::deal(shared, root, &items).await,
        Work::Links { root, names } => files::link(shared, root, &names).await,
        Work::Begin { root, item, left, .. } => pieces::begin(shared, root, &item, left).await,
        Work::Piece { root, item, token, offset, len, crc, .. } => {
            pieces::piece(shared, root, &item, &token, offset..offset + len, crc).await
        }
        Work::Publish { root, item, token, .. } => pieces::publish(shared, root, &item, &token).await,
        Work::Discard { root, key, token, .. } => pieces::discard(shared, root, &key, &token).await,
        Work::Finish { dirs } => {
            let dirs: Vec<(u16, Key, bool)> =
                dirs.into_iter().map(|(r, _, key, new)| (r, Key::new(&key), new)).collect();
            dirs::finish(shared, &dirs).await
        }
        Work::Remove { root, key, .. } => remove::look(shared, root, &Key::new(&key)).await,
        Work::Delete { root, keys, .. } => remove::delete(shared, root, &keys).await,
        Work::Rmdir { dirs } => {
            let mut done = LeaseResult::default();
            for (root, _, key, _) in dirs {
                let more = remove::delete(shared, root, &[Raw::from(key.to_vec())]).await;
                done.totals += more.totals;
                done.problems.extend(more.problems);
                done.lines.extend(more.lines);
                done.undone |= more.undone;
            }
            done
        }
    }
}
