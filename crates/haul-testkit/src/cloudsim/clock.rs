//! Waiting to a tenth of a millisecond. The runtime's own timers are a millisecond late, which is more than many a
//! delay that is to be imitated; so a thread waits, and wakes who asked.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// Whom to wake; replaced when the one who waits moves to another task.
type Slot = Arc<Mutex<Option<Waker>>>;

/// The thread's end that others hold. The thread ends when all of them are dropped.
#[derive(Clone, Debug)]
pub struct Clock(
    /// Sent by those who wait, received by the thread.
    Sender<(Instant, Slot)>,
);

impl Clock {
    /// A clock, and what its thread is to run.
    pub fn new() -> (Clock, impl FnOnce() + Send + 'static) {
        let (sender, receiver) = channel();
        (Clock(sender), move || run(&receiver))
    }

    /// Waits until a moment.
    pub fn until(&self, moment: Instant) -> Wait {
        Wait { clock: self.clone(), moment, slot: None }
    }

    /// Waits so long.
    pub fn wait(&self, time: Duration) -> Wait {
        self.until(Instant::now() + time)
    }
}

/// Ends at its moment.
#[derive(Debug)]
pub struct Wait {
    clock: Clock,
    moment: Instant,
    slot: Option<Slot>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.moment <= Instant::now() {
            return Poll::Ready(());
        }
        match &self.slot {
            Some(slot) => *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone()),
            None => {
                let slot: Slot = Arc::new(Mutex::new(Some(cx.waker().clone())));
                self.slot = Some(slot.clone());
                if self.clock.0.send((self.moment, slot)).is_err() {
                    // The thread is gone, so the simulator is ending: nobody waits for the answer.
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    }
}

fn run(asked: &Receiver<(Instant, Slot)>) {
    let mut waiting: BTreeMap<(Instant, u64), Slot> = BTreeMap::new();
    let mut number = 0;
    loop {
        let next = waiting.first_key_value().map(|((moment, _), _)| *moment);
        let came = match next {
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(moment) => asked.recv_timeout(moment.saturating_duration_since(Instant::now())),
        };
        match came {
            Ok((moment, slot)) => {
                number += 1;
                waiting.insert((moment, number), slot);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        while let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) {
            let waker = first.remove().lock().unwrap_or_else(PoisonError::into_inner).take();
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_wait_ends_and_none_before_its_moment() {
        let (clock, thread) = Clock::new();
        let thread = std::thread::spawn(thread);
        let start = Instant::now();
        let waits = [30, 1, 0, 12, 12].map(|ms| {
            let wait = clock.until(start + Duration::from_millis(ms));
            async move {
                wait.await;
                (ms, start.elapsed())
            }
        });
        let ended = futures::future::join_all(waits).await;
        assert!(ended.iter().all(|(ms, at)| *at >= Duration::from_millis(*ms)), "{ended:?}");
        drop(clock);
        thread.join().unwrap();
    }
}
