//! Files with equal bytes whose attributes are read beside the walk, in batches, since no listing has all of them.

use crate::ledger::Ledger;
use haul_core::{
    Entry, Error, Key,
    attributes::Differs,
    compare::{Difference, Reason},
    plan,
};
use std::sync::Arc;
use tokio::{
    sync::{Semaphore, mpsc},
    task::{JoinHandle, JoinSet},
};

/// Files that may wait to be looked at.
const BACKLOG: usize = 4096;

/// A file at the destination whose attributes are to be looked at.
pub(crate) struct DueLook {
    /// The source.
    pub src: Entry,
    /// Its key at the destination.
    pub to: Key,
    /// Why the bytes are the same, or why attributes are to be set.
    pub why: Reason,
    /// It was decided, and reported, that they are to be set.
    pub decided: bool,
}

impl DueLook {
    /// Tells what is decided about it, unless that was told, now that it is found in which attributes it differs.
    pub fn tell(&self, found: Differs, ledger: &Ledger) {
        if !self.decided {
            ledger.decided_of(&self.src, &self.to, plan::looked(self.why, found), Difference::of(&self.src, found));
        }
    }

    /// Counts and reports that it could not be looked at.
    pub fn failed(&self, error: Error, ledger: &Ledger) {
        ledger.error(if error.key().is_some() { error } else { error.with_key(&self.to) });
    }
}

/// How files are looked at.
pub(crate) struct FileLooks {
    /// Files of a batch at most.
    pub size: usize,
    /// Batches at once.
    pub at_once: usize,
    /// Hears of a batch that died.
    pub ledger: Arc<Ledger>,
}

impl FileLooks {
    /// Starts to `look` at received files. Ends when the sender and its clones are dropped and all files are looked at.
    pub fn start<F>(self, look: impl Fn(Vec<DueLook>) -> F + Send + 'static) -> (mpsc::Sender<DueLook>, JoinHandle<()>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (files, due) = mpsc::channel(BACKLOG);
        (files, tokio::spawn(self.each(due, look)))
    }

    async fn each<F>(self, mut due: mpsc::Receiver<DueLook>, look: impl Fn(Vec<DueLook>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let permits = Arc::new(Semaphore::new(self.at_once));
        let mut running = JoinSet::new();
        while let Some(first) = due.recv().await {
            let mut batch = vec![first];
            while batch.len() < self.size
                && let Ok(next) = due.try_recv()
            {
                batch.push(next);
            }
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let looked = look(batch);
            running.spawn(async move {
                looked.await;
                drop(permit);
            });
            while let Some(ended) = running.try_join_next() {
                self.ledger.joined("set attributes", ended);
            }
        }
        while let Some(ended) = running.join_next().await {
            self.ledger.joined("set attributes", ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use haul_core::event::{Event, NoSink, Sink};
    use std::sync::Mutex;

    fn looks(sink: Arc<dyn Sink>) -> FileLooks {
        let ledger = Ledger::new(sink, Cancel::default(), Arc::default(), true);
        FileLooks { size: 3, at_once: 2, ledger: Arc::new(ledger) }
    }

    fn due(key: &str, decided: bool) -> DueLook {
        let key = Key::new(key);
        DueLook { src: Entry::file(key.clone(), 1), to: key, why: Reason::Mtime, decided }
    }

    #[tokio::test]
    async fn each_is_looked_at_once_in_batches_that_are_not_too_large() {
        let seen = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let heard = seen.clone();
        let (files, looking) = looks(Arc::new(NoSink)).start(move |batch| {
            heard.lock().unwrap().push(batch.iter().map(|due| due.to.to_string()).collect());
            std::future::ready(())
        });
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            assert!(files.send(due(key, false)).await.is_ok());
        }
        drop(files);
        looking.await.unwrap();
        let seen = seen.lock().unwrap();
        assert!(seen.iter().all(|batch| (1..=3).contains(&batch.len())));
        assert_eq!(seen.concat(), ["a", "b", "c", "d", "e", "f", "g"]);
    }

    #[tokio::test]
    async fn a_batch_that_dies_is_an_error_and_ends_no_other() {
        let looks = FileLooks { size: 1, ..looks(Arc::new(NoSink)) };
        let ledger = looks.ledger.clone();
        let (files, looking) =
            looks.start(|batch| async move { assert_eq!(batch[0].to, Key::new("good"), "wanted by the test") });
        for key in ["bad", "good"] {
            assert!(files.send(due(key, false)).await.is_ok());
        }
        drop(files);
        looking.await.unwrap();
        assert_eq!(ledger.report().error_count, 1);
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<Event>>);

    impl Sink for Heard {
        fn emit(&self, event: &Event) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    #[test]
    fn attributes_decide_where_the_comparison_left_it_open() {
        let heard = Arc::<Heard>::default();
        let ledger = looks(heard.clone()).ledger;
        let found = Differs { acls: true, ..Differs::default() };
        due("a", false).tell(found, &ledger);
        due("b", false).tell(Differs::default(), &ledger);
        due("c", true).tell(found, &ledger);
        let events = heard.0.lock().unwrap();
        let (Event::Decided { key: a, why: set, dry_run, .. }, Event::Decided { key: b, why: same, .. }) =
            (&events[0], &events[1])
        else {
            panic!("{events:?}")
        };
        assert_eq!((a, *set, *dry_run), (&Key::new("a"), Reason::Attributes(found), true));
        assert_eq!((b, *same, events.len()), (&Key::new("b"), Reason::Mtime, 2));
    }
}
