//! Results of files: each is counted and reported, and its consequences are noted: for directories, further names and the sources
//! of a move.

use super::{delayed_files::WaitingFiles, destination_full::DestinationFull, dir_work::Dirs, moved::MovedSources};
use crate::{
    consent::Consent,
    cx::{Cx, cancelled},
    destination_index::Index,
    hard_links::HardLinks,
    ledger::Ledger,
    spool::PendingDelete,
    transfer::{ArrivedFile, FileTransfer},
};
use haul_core::{
    Entry, ErrorKind, Key, Result,
    attributes::{Attribute, Differs},
    compare::Reason,
    event::Event,
    job::Job,
};
use std::sync::Arc;

/// The account of a job's files.
pub(super) struct Results {
    job: Arc<Job>,
    ledger: Arc<Ledger>,
    index: Arc<Index>,
    consent: Consent,
    dirs: Arc<Dirs>,
    links: Arc<HardLinks>,
    /// Files that arrived, and wait for their names.
    pub waiting: Arc<WaitingFiles>,
    /// The message for a full destination.
    pub full: DestinationFull,
    /// Source files that a move deletes.
    pub moved: MovedSources,
    /// Attributes are kept, so the directory of a file that fails may have been opened for it.
    opens_dirs: bool,
}

impl Results {
    /// No file has a result yet.
    pub fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        (index, dirs, links): (&Arc<Index>, &Arc<Dirs>, &Arc<HardLinks>),
        opens_dirs: bool,
    ) -> Results {
        Results {
            consent: Consent::new(cx, ledger),
            full: DestinationFull::new(&cx.dst, ledger),
            moved: MovedSources::new(job, cx, ledger),
            waiting: Arc::default(),
            job: job.clone(),
            ledger: ledger.clone(),
            index: index.clone(),
            dirs: dirs.clone(),
            links: links.clone(),
            opens_dirs,
        }
    }

    /// Records the result of an order.
    pub fn ended(&self, order: &FileTransfer, result: Result<ArrivedFile>) {
        match result {
            Ok(arrived) if !order.is_file() && could_not_be(&arrived) => {
                self.ledger.count_unpreserved(arrived.unpreserved);
                self.ledger.tell(Event::Skipped { step: order.step });
            }
            Ok(arrived) => {
                if let Some(arrived) = self.waiting.keep(order, arrived) {
                    self.arrived(order, arrived);
                }
            }
            Err(error) => {
                if self.opens_dirs {
                    // Its directory may have been opened for it.
                    self.dirs.written(&order.to);
                }
                // Every further file would fail the same way, after filling the little space that is left: reported once, at the end.
                let error = if error.kind() == ErrorKind::NoSpace { self.full.no_room(error) } else { error };
                let again = self.ledger.met_limit(&error) || self.ledger.was_hopeless(error.kind());
                let error = if again { cancelled() } else { error };
                let kind = error.kind();
                let error = Arc::new(error);
                self.ledger.tell(Event::Failed { step: order.step, error: error.clone() });
                if kind != ErrorKind::Cancelled {
                    self.ledger.report().error(error);
                }
            }
        }
    }

    /// Counts a file that arrived and reports it to the sink.
    pub fn arrived(&self, order: &FileTransfer, arrived: ArrivedFile) {
        if let Some(stored) = &arrived.stored {
            self.index.note_present(stored);
        }
        {
            let mut report = self.ledger.report();
            let totals = &mut report.totals;
            totals.transfers += 1;
            totals.bytes += arrived.size;
            totals.server_copies += u64::from(arrived.by_server);
            if let Some(algo) = arrived.proved {
                *totals.proved.entry(algo).or_default() += 1;
            }
            totals.unproved += u64::from(arrived.unproved.is_some());
        }
        if let Some(algo) = arrived.unproved {
            let message = format!(
                "it was resumed after an interruption, so its {algo} is not proved: haul check compares, and \
                 --verify=read reads what was sent before again"
            );
            self.ledger.tell(Event::Notice { key: Some(order.to.clone()), message });
        }
        self.ledger.count_unpreserved(arrived.unpreserved);
        self.links.there(&order.src, None);
        self.full.arrived(order.src.size);
        self.dirs.written(&order.to);
        self.ledger.tell(Event::Done {
            step: order.step,
            key: order.to.clone(),
            size: arrived.size,
            replaced: order.replaced.is_some(),
            proved: arrived.proved,
        });
        if self.job.moves() && arrived.renamed {
            self.moved.renamed(&order.src.key, order.src.size);
        } else if self.job.moves() {
            let gone = PendingDelete { key: order.src.key.clone(), size: arrived.size, version: arrived.version };
            match &order.replaced {
                Some(_) => self.moved.found(gone, &order.to),
                None => self.moved.push(gone),
            }
        }
    }

    /// Counts an unchanged file. A move still deletes its source.
    pub async fn kept(&self, src: &Entry, to: &Key, why: Reason) {
        self.ledger.report().totals.unchanged += 1;
        if !self.job.moves() || why.is_left_alone() {
            return;
        }
        if self.consent.to("delete", &src.key) {
            self.moved.found(src.clone().into(), to);
            self.moved.delete_many().await;
        }
    }

    /// Counts a file whose time or attributes were set.
    pub fn touched(&self, key: Key, differs: Differs) {
        self.ledger.report().totals.touched += 1;
        self.ledger.tell(Event::Touched { key, differs });
    }

    /// Counts a further name that was linked to `leader`, and reports it.
    pub fn linked(&self, leader: &Key, src: &Entry) {
        self.ledger.report().totals.links += 1;
        self.dirs.written(&src.key);
        self.ledger.tell(Event::Linked { key: src.key.clone(), to: leader.clone() });
        if self.job.moves() {
            self.moved.push(PendingDelete { size: 0, ..src.clone().into() });
        }
    }
}

/// True when a device, FIFO or socket couldn't be made.
fn could_not_be(arrived: &ArrivedFile) -> bool {
    arrived.unpreserved.holds(Attribute::Device) || arrived.unpreserved.holds(Attribute::Special)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::{Answer, Confirm};
    use haul_core::{Error, event::Sink, job::Verb};
    use haul_mem::MemStore;
    use haul_store::{LateFacts, Payload, Store, WriteSpec};
    use std::sync::Mutex;

    #[derive(Default)]
    struct Heard(Mutex<Vec<&'static str>>);

    impl Sink for Heard {
        fn emit(&self, event: &Event) {
            self.0.lock().unwrap().push(match event {
                Event::Done { .. } => "done",
                Event::Failed { .. } => "failed",
                Event::Linked { .. } => "linked",
                Event::Touched { .. } => "touched",
                Event::Deleted { .. } => "deleted",
                Event::Notice { .. } => "notice",
                _ => "other",
            });
        }
    }

    struct No;

    impl Confirm for No {
        fn ask(&self, _: &str, _: &Key) -> Answer {
            Answer::No
        }
    }

    fn results(verb: Verb, change: impl FnOnce(&mut Cx)) -> (Results, Arc<Heard>, Arc<dyn Store>) {
        let heard = Arc::<Heard>::default();
        let mut cx = Cx::between(Arc::new(MemStore::new()), Arc::new(MemStore::new()));
        cx.sink = heard.clone();
        change(&mut cx);
        let ledger = Arc::new(Ledger::new(cx.sink.clone(), cx.cancel.clone(), cx.filter.clone(), false));
        let job = Arc::new(Job { verb, ..Job::default() });
        (Results::new((&job, &cx, &ledger), (&Arc::default(), &Arc::default(), &Arc::default()), false), heard, cx.src)
    }

    fn order(results: &Results, key: &str) -> FileTransfer {
        FileTransfer::new(results.ledger.next_step(), Entry::file(Key::new(key), 3), Key::new(key), None)
    }

    fn arrived() -> ArrivedFile {
        ArrivedFile { size: 3, ..ArrivedFile::default() }
    }

    #[tokio::test]
    async fn what_arrives_is_counted_and_what_fails_is_no_transfer() {
        let (results, heard, _) = results(Verb::Copy, |_| ());
        results.ended(&order(&results, "a"), Ok(arrived()));
        let denied = || Error::new(ErrorKind::Denied, "write", "no");
        results.ended(&order(&results, "b"), Err(denied()));
        // A file that was only given up is not reported.
        results.ended(&order(&results, "c"), Err(cancelled()));
        results.touched(Key::new("d"), Differs::default());
        results.kept(&Entry::file(Key::new("e"), 3), &Key::new("e"), Reason::Size).await;
        let report = results.ledger.report();
        let totals = &report.totals;
        assert_eq!((totals.transfers, totals.bytes, totals.touched, totals.unchanged), (1, 3, 1, 1));
        assert_eq!((report.error_count, report.errors[0].kind()), (1, ErrorKind::Denied));
        assert_eq!(*heard.0.lock().unwrap(), ["done", "failed", "failed", "touched"]);
    }

    #[tokio::test]
    async fn a_copy_has_no_sources_to_delete_and_a_move_has_those_that_are_there() {
        for (verb, gone) in [(Verb::Copy, 0), (Verb::Move, 3)] {
            let (results, _, src) = results(verb, |_| ());
            for key in ["brought", "linked", "found"] {
                put(&src, key).await;
            }
            results.ended(&order(&results, "brought"), Ok(arrived()));
            results.ended(&order(&results, "failed"), Err(Error::new(ErrorKind::Io, "read", "no")));
            results.linked(&Key::new("brought"), &Entry::file(Key::new("linked"), 3));
            results.kept(&Entry::file(Key::new("found"), 3), &Key::new("found"), Reason::Size).await;
            // It is left as it is, which says nothing of the destination's.
            results.kept(&Entry::file(Key::new("newer"), 3), &Key::new("newer"), Reason::Newer).await;
            results.moved.delete(true).await;
            assert_eq!(results.ledger.report().totals.deletes, gone, "{verb:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_found_there_is_deleted_with_consent_alone() {
        let (results, _, src) = results(Verb::Move, |cx| cx.confirm = Some(Arc::new(No)));
        put(&src, "found").await;
        results.kept(&Entry::file(Key::new("found"), 3), &Key::new("found"), Reason::Size).await;
        results.moved.delete(true).await;
        let totals = results.ledger.report().totals.clone();
        assert_eq!((totals.unchanged, totals.deletes), (1, 0));
    }

    async fn put(store: &Arc<dyn Store>, key: &str) {
        let upload = store.write(&Key::new(key), WriteSpec::default()).await.unwrap();
        let part = upload.part(0, 0, Payload::from(bytes::Bytes::from("abc"))).await.unwrap();
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
    }
}
