//! Which transfer starts next: orders come in as they are decided, leave in the order the user asked for, and each
//! takes one of the job's transfer permits. Small files inside a copy domain leave in batches.

use crate::transfer::{FileTransfer, server::BATCH_BYTES};
use haul_core::{
    job::{OrderBy, TransferOrder as Field},
    key::parent,
};
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

/// Decided transfers that may wait where their order matters. rclone's `--max-backlog` has the same value; at some 300 bytes
/// each this is 3 MB.
const BACKLOG: usize = 10_000;

/// Decided transfers that may wait where they start as they come: two of the batches that a disk takes, for each of its threads.
const AHEAD: usize = 2_000;

/// [`AHEAD`] in a run that may be paused: waiting files are finished first, and others may be waiting for that.
const AHEAD_OF_A_PAUSE: usize = 200;

/// Orders that may be on their way here.
pub const COMING: usize = 500;

/// [`COMING`] in a run that may be paused.
pub const COMING_BEFORE_A_PAUSE: usize = 50;

/// From this many files on, a batch ends with the directory: two threads in one directory wait for each other's locks.
const WORTH_A_THREAD: usize = 32;

/// Orders waiting to start.
pub struct Queue {
    coming: Receiver<FileTransfer>,
    waiting: Waiting,
    /// Take everything in before giving anything out (`--check-first`).
    hold: bool,
    /// Most files of a batch.
    files: usize,
    /// Most orders that wait where they start as they come.
    ahead: usize,
}

enum Waiting {
    Fifo(VecDeque<FileTransfer>),
    Sorted { by: OrderBy, orders: BTreeMap<(SortKey, u64), FileTransfer>, seq: u64, taken: u64 },
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Number(i128),
    Name(haul_core::Key),
}

impl Queue {
    /// A queue over a channel of orders, with batches of at most `files` files.
    pub fn new(coming: Receiver<FileTransfer>, order_by: Option<OrderBy>, check_first: bool, files: usize) -> Self {
        let waiting = match order_by {
            None => Waiting::Fifo(VecDeque::new()),
            Some(by) => Waiting::Sorted { by, orders: BTreeMap::new(), seq: 0, taken: 0 },
        };
        Queue { coming, waiting, hold: check_first, files, ahead: AHEAD }
    }

    /// This queue, short enough that a pause is soon reached.
    pub fn before_a_pause(self) -> Self {
        Queue { ahead: AHEAD_OF_A_PAUSE, ..self }
    }

    /// The next order; `None` when there are no more and there will be no more.
    pub async fn next(&mut self) -> Option<FileTransfer> {
        if self.hold {
            while let Some(order) = self.coming.recv().await {
                self.waiting.push(order);
            }
            self.hold = false;
        }
        self.take_in();
        if let Some(order) = self.waiting.pop() {
            return Some(order);
        }
        let first = self.coming.recv().await?;
        self.waiting.push(first);
        self.take_in();
        self.waiting.pop()
    }

    /// Further orders for a batch inside a copy domain: those that are here now and fit.
    pub fn fill(&mut self, batch: &mut Vec<FileTransfer>) {
        self.fill_with(batch, (self.files, BATCH_BYTES), |_| true);
    }

    /// Further orders for a batch of at most `files` files and `most` bytes: those that have come, fit, and go `with` it.
    pub fn fill_with(
        &mut self,
        batch: &mut Vec<FileTransfer>,
        (files, most): (usize, u64),
        with: impl Fn(&FileTransfer) -> bool,
    ) {
        let mut bytes: u64 = batch.iter().map(|o| o.src.size).sum();
        while batch.len() < files && bytes < most {
            self.take_in();
            let Some(order) = self.waiting.pop() else { return };
            let elsewhere = batch.last().is_some_and(|last| parent(last.to.as_bytes()) != parent(order.to.as_bytes()));
            if bytes + order.src.size > most || elsewhere && batch.len() >= WORTH_A_THREAD || !with(&order) {
                self.waiting.put_back(order);
                return;
            }
            bytes += order.src.size;
            batch.push(order);
        }
    }

    fn take_in(&mut self) {
        let most = if matches!(self.waiting, Waiting::Fifo(_)) { self.ahead } else { BACKLOG };
        while self.waiting.len() < most {
            match self.coming.try_recv() {
                Ok(order) => self.waiting.push(order),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }
}

impl Waiting {
    fn len(&self) -> usize {
        match self {
            Waiting::Fifo(orders) => orders.len(),
            Waiting::Sorted { orders, .. } => orders.len(),
        }
    }

    fn push(&mut self, order: FileTransfer) {
        match self {
            Waiting::Fifo(orders) => orders.push_back(order),
            Waiting::Sorted { by, orders, seq, .. } => {
                let key = match by.by {
                    Field::Size => SortKey::Number(i128::from(order.src.size)),
                    Field::Mtime => SortKey::Number(order.src.mtime.map_or(0, |t| t.0)),
                    Field::Name => SortKey::Name(order.src.key.clone()),
                };
                orders.insert((key, *seq), order);
                *seq += 1;
            }
        }
    }

    fn put_back(&mut self, order: FileTransfer) {
        match self {
            Waiting::Fifo(orders) => orders.push_front(order),
            sorted => sorted.push(order),
        }
    }

    fn pop(&mut self) -> Option<FileTransfer> {
        match self {
            Waiting::Fifo(orders) => orders.pop_front(),
            Waiting::Sorted { by, orders, taken, .. } => {
                // `mixed,25`: of every hundred starts, 25 come from the other end, spread evenly.
                let share = u64::from(by.mixed.unwrap_or(0).min(100));
                let other_end = (*taken + 1) * share / 100 > *taken * share / 100;
                *taken += 1;
                let popped = if by.descending != other_end { orders.pop_last() } else { orders.pop_first() };
                popped.map(|(_, order)| order)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Entry, Key};

    fn order(key: &str, size: u64) -> FileTransfer {
        FileTransfer::new(0, Entry::file(Key::new(key), size), Key::new(key), None)
    }

    async fn sizes(order_by: Option<OrderBy>, check_first: bool) -> Vec<u64> {
        let (send, receive) = tokio::sync::mpsc::channel(100);
        for (key, size) in [("b", 3), ("a", 1), ("d", 4), ("c", 2)] {
            send.send(order(key, size)).await.unwrap();
        }
        drop(send);
        let mut queue = Queue::new(receive, order_by, check_first, 256);
        let mut out = Vec::new();
        while let Some(order) = queue.next().await {
            out.push(order.src.size);
        }
        out
    }

    #[tokio::test]
    async fn leaves_in_the_order_asked_for() {
        let by = |by, descending, mixed| Some(OrderBy { by, descending, mixed });
        assert_eq!(sizes(None, false).await, [3, 1, 4, 2]);
        assert_eq!(sizes(None, true).await, [3, 1, 4, 2]);
        assert_eq!(sizes(by(Field::Size, false, None), false).await, [1, 2, 3, 4]);
        assert_eq!(sizes(by(Field::Size, true, None), false).await, [4, 3, 2, 1]);
        assert_eq!(sizes(by(Field::Name, false, None), true).await, [1, 3, 2, 4]);
        assert_eq!(sizes(by(Field::Size, true, Some(50)), false).await, [4, 1, 3, 2]);
    }

    #[tokio::test]
    async fn a_batch_that_is_worth_a_thread_ends_with_its_directory() {
        let (send, receive) = tokio::sync::mpsc::channel(200);
        let small = WORTH_A_THREAD / 2;
        for dir in ["a", "b", "c", "d"] {
            for number in 0..small {
                send.send(order(&format!("{dir}/{number}"), 1)).await.unwrap();
            }
        }
        let mut queue = Queue::new(receive, None, false, 256);
        let mut batch = vec![queue.next().await.unwrap()];
        queue.fill(&mut batch);
        assert_eq!(batch.len(), 2 * small);
        assert_eq!(queue.next().await.unwrap().to, Key::new("c/0"));
    }

    #[tokio::test]
    async fn a_batch_takes_what_is_there_and_fits() {
        let (send, receive) = tokio::sync::mpsc::channel(100);
        for size in [10, 20, BATCH_BYTES, 30] {
            send.send(order("k", size)).await.unwrap();
        }
        let mut queue = Queue::new(receive, None, false, 256);
        let mut batch = vec![queue.next().await.unwrap()];
        queue.fill(&mut batch);
        assert_eq!(batch.len(), 2);
        let mut batch = vec![queue.next().await.unwrap()];
        assert_eq!(batch[0].src.size, BATCH_BYTES);
        queue.fill(&mut batch);
        assert_eq!(batch.len(), 1);
    }

    #[tokio::test]
    async fn a_batch_has_no_more_files_than_a_store_likes() {
        let (send, receive) = tokio::sync::mpsc::channel(100);
        for number in 0..40 {
            send.send(order(&format!("one/{number}"), 1)).await.unwrap();
        }
        drop(send);
        let (mut queue, mut batches) = (Queue::new(receive, None, false, 16), Vec::new());
        while let Some(first) = queue.next().await {
            let mut batch = vec![first];
            queue.fill(&mut batch);
            batches.push(batch.len());
        }
        assert_eq!(batches, [16, 16, 8]);
    }
}
