//! A dry run: takes the steps of a job, and reports and counts an executor's work. It holds no store, so it can't do it.

use crate::{
    attribute_reads::{DueLook, FileLooks},
    attributes::Attributes,
    consent::Consent,
    cx::Cx,
    execute::pending_deletes::{DeletionState, refusal},
    extra_dirs::ExtraDirs,
    hard_links::HardLinks,
    ledger::Ledger,
    plan::{Ahead, Outlet, Planner, StepSink, forbidden, told_of},
};
use haul_core::{
    Key,
    compare::Reason,
    event::Event,
    job::Job,
    plan::{Action, AlternateFile, Step, UseAs},
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};
use tokio::{sync::mpsc, task::JoinHandle};

/// Tells what the steps of a job would do.
pub(crate) struct DryRun {
    job: Arc<Job>,
    ledger: Arc<Ledger>,
    planner: Arc<Planner>,
    /// Asks the stores; it only reads.
    ahead: Ahead,
    links: Arc<HardLinks>,
    consent: Consent,
    /// The source as messages name it.
    source: String,
    /// Files that would be deleted, and their bytes.
    deletes: Mutex<(u64, u64)>,
    extra: ExtraDirs,
    /// Files that are looked at together.
    batch: usize,
}

/// Steps that are reported as they come.
#[derive(Clone)]
pub(crate) struct ReportedSteps {
    dry_run: Arc<DryRun>,
    /// Files to be looked at; received by [`FileLooks`], closed when the last outlet is dropped.
    looks: mpsc::Sender<DueLook>,
}

impl Outlet for ReportedSteps {
    async fn take(&self, step: Step) {
        self.dry_run.take(step, &self.looks).await;
    }
}

impl StepSink for DryRun {
    type Out = ReportedSteps;
    type Working = JoinHandle<()>;

    fn start_working(self: &Arc<Self>) -> (ReportedSteps, JoinHandle<()>) {
        let (run, ledger) = (self.clone(), self.ledger.clone());
        let looks = FileLooks { size: self.batch, at_once: self.planner.listings.checkers(), ledger };
        let (looks, looking) = looks.start(move |files| {
            let run = run.clone();
            async move { run.look(files).await }
        });
        (ReportedSteps { dry_run: self.clone(), looks }, looking)
    }

    async fn finish_working(&self, looking: JoinHandle<()>) {
        self.ledger.joined("set attributes", looking.await);
    }
}

impl DryRun {
    /// A dry run of `job` between the ends of `cx`, that has heard of nothing yet.
    pub fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        attributes: &Arc<Attributes>,
        planner: &Arc<Planner>,
    ) -> DryRun {
        DryRun {
            ahead: Ahead::new((job, cx), attributes),
            job: job.clone(),
            ledger: ledger.clone(),
            planner: planner.clone(),
            links: planner.links().clone(),
            consent: Consent::new(cx, ledger),
            source: cx.src.locator().to_owned(),
            deletes: Mutex::default(),
            extra: ExtraDirs::default(),
            batch: cx.copy_batch(),
        }
    }

    async fn take(&self, step: Step, looks: &mpsc::Sender<DueLook>) {
        match step.action {
            _ if step.is_dir() => self.directory(step),
            Action::Delete => self.delete(&step),
            Action::Rename => self.rename(&step),
            Action::Link => self.link(&step),
            _ => self.file(step, looks).await,
        }
    }

    /// Remembers directories of the destination that would go.
    fn directory(&self, step: Step) {
        match (step.action, step.src, step.dst) {
            (Action::Keep, None, Some(dst)) if step.why == Reason::NotSeen => self.extra.spare(&dst.key),
            (Action::Delete, _, Some(dst)) => self.extra.push(dst.key),
            _ => {}
        }
    }

    async fn file(&self, mut step: Step, looks: &mpsc::Sender<DueLook>) {
        if let Some(found) = step.elsewhere.take()
            && self.takes(&step, &found)
        {
            return;
        }
        let (Some(src), Some(to)) = (&step.src, step.key()) else { return self.ledger.decided(&step) };
        if !self.consent.to_action(step.action, to) {
            return;
        }
        self.links.will_be(&step);
        if step.look {
            let due = DueLook { src: src.clone(), to: to.clone(), why: step.why, decided: false };
            // Fails only when the job is stopping.
            let _ = looks.send(due).await;
            return;
        }
        self.ledger.decided(&step);
        match step.action {
            Action::Keep => self.ledger.report().totals.unchanged += 1,
            Action::Touch => self.ledger.report().totals.touched += 1,
            Action::Refuse => self.ledger.error(forbidden(to)),
            Action::Copy => {
                let mut report = self.ledger.report();
                report.totals.transfers += 1;
                report.totals.bytes += src.size;
            }
            Action::MakeDir | Action::Delete | Action::Rename | Action::Link | Action::Reuse => {}
        }
    }

    /// True, and reported, if the alternate destination's file would be used. A copy from there is not reported here: it counts as copied.
    fn takes(&self, step: &Step, found: &AlternateFile) -> bool {
        let exact = self.job.elsewhere.exact;
        let (Some(src), Some(to)) = (&step.src, step.key()) else { return false };
        match found.use_as {
            UseAs::Instead => self.ledger.report().totals.unchanged += 1,
            UseAs::Taken { link, copy } if exact && (link || copy) => self.links.there(src, None),
            UseAs::Taken { .. } => return false,
        }
        if exact {
            let (decision, differs) = told_of(src, step.why, found, exact);
            self.ledger.decided_of(src, to, decision, differs);
        }
        true
    }

    async fn look(&self, files: Vec<DueLook>) {
        let answers = self.ahead.compare_attributes(&files).await;
        for (due, answer) in files.into_iter().zip(answers) {
            match answer {
                Ok(answer) => {
                    self.ledger.count_unpreserved(answer.unpreserved);
                    due.tell(answer.differs, &self.ledger);
                    let mut report = self.ledger.report();
                    report.totals.touched += u64::from(answer.differs.any());
                    report.totals.unchanged += 1;
                }
                Err(error) => due.failed(error, &self.ledger),
            }
        }
    }

    fn delete(&self, step: &Step) {
        if self.ledger.is_beyond_max_delete(&self.job.deletes) {
            return;
        }
        self.ledger.decided(step);
        let Some(dst) = &step.dst else { return };
        self.ledger.report().totals.deletes += 1;
        let mut deletes = self.deletes.lock().unwrap_or_else(|e| e.into_inner());
        *deletes = (deletes.0 + 1, deletes.1 + dst.size);
    }

    /// Tells what the run itself would refuse, and fails as it would.
    pub fn tell_refused(&self) {
        let (waiting, bytes) = *self.deletes.lock().unwrap_or_else(|e| e.into_inner());
        if waiting == 0 || self.ledger.cut_short() {
            return;
        }
        let grounds = DeletionState::of(&self.ledger, &self.source);
        if let Some(refused) = refusal(&self.job.deletes, waiting, (waiting, bytes), &grounds) {
            refused.tell(&self.ledger);
        }
    }

    fn rename(&self, step: &Step) {
        let (Some(src), Some(old)) = (&step.src, &step.dst) else { return };
        self.ledger.report().totals.renames += 1;
        self.ledger.notice(Some(&old.key), format!("Skipped rename to {} as --dry-run is set", src.key));
    }

    fn link(&self, step: &Step) {
        self.ledger.decided(step);
        self.ledger.report().totals.links += 1;
        if let (true, Some(key), Some(to)) = (self.job.tell.details, step.key(), &step.link_to) {
            self.ledger.tell(Event::Linked { key: key.clone(), to: to.clone() });
        }
    }

    /// Tells of names that would be linked to the first of their file.
    pub async fn settle_links(self: &Arc<Self>) {
        let (out, looking) = self.start_working();
        self.planner.settle_links(&out).await;
        drop(out);
        self.finish_working(looking).await;
    }

    /// Tells which directories would be deleted, to sinks that hear details: one that would still hold something stays.
    pub async fn tell_extra_dirs(&self) {
        if !self.job.tell.details {
            return;
        }
        let mut stay: HashSet<Key> = HashSet::new();
        for key in self.extra.take() {
            let deleted = !stay.contains(&key) && self.ahead.may_go_whole(&key).await;
            if deleted && self.ledger.is_beyond_max_delete(&self.job.deletes) {
                stay.insert(key.parent());
                continue;
            }
            match deleted {
                true => self.ledger.report().totals.dirs_deleted += 1,
                false => _ = stay.insert(key.parent()),
            }
            self.ledger.tell(Event::DirExtra { key, deleted, dry_run: true });
        }
    }
}
