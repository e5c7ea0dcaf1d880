//! Making a version of a folder: look at it, find out which of its content is missing from the remote, send that, then the lists, and
//! last the record. Whatever is cut short before the record leaves content that the next push finds, and no version.

use crate::{
    list::List,
    marks::{self, Mark, MarkKind, Marks, RENEWED},
    name::{self, Version},
    record::Record,
    renaming_sink::{RenamingSink, is_change},
    scan::{Scan, scan},
    tree::Tree,
    versions,
    view::{ContentSource, FewKeys, KeyList, View},
};
use futures::future::LocalBoxFuture;
use haul::{Cx, Report, index::Settings};
use haul_cas::{
    address::{Address, Layout},
    remote::{EarlyQueries, History, Proof, look},
    state::State,
    transfer::for_content,
    wanted::{Dir, WantedContent},
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Mtime, Result, Retry,
    event::Event,
    job::{Fsync, Job, Verb},
};
use haul_store::Store;
use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// How often a folder is looked at because files changed or went before they were sent. Each time less is left to be sent, so that a
/// folder in which files come and go all the time becomes still enough.
const ROUNDS: usize = 8;
/// How often it is looked at because names went while it was looked at.
const LOOKS: usize = 3;
/// Between two versions of one snapshot, so that the one made later is the newer one also where clocks differ.
const TICK: i128 = 1_000_000;
/// Prefix of index folders that are valid since a gc.
const SINCE: &str = "since-";
/// How often a push that waits for a gc looks whether that is done.
const LOOK: Duration = Duration::from_secs(2);

/// Result of a push.
#[derive(Debug, Default)]
pub enum PushOutcome {
    /// A version was made.
    Made(Version, Record),
    /// The newest version is this folder; what the remote had lost of it is there again.
    Unchanged(Version, Record),
    /// None was made: a dry run, or something went wrong, which the report says.
    #[default]
    None,
}

/// Counts of a push.
#[derive(Debug, Default)]
pub struct PushResult {
    /// Of the engine's jobs together.
    pub report: Report,
    /// The version.
    pub outcome: PushOutcome,
    /// Content of earlier versions that the remote had lost.
    pub lost: u64,
    /// Devices, FIFOs and sockets, which no version keeps.
    pub left_out: u64,
}

/// How to push.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// The snapshot.
    pub name: String,
    /// The time.
    pub now: Mtime,
    /// How sure to be of what the remote has.
    pub proof: Proof,
    /// The machine and process, for whoever finds the push's mark.
    pub by: String,
}

/// Makes a version of `cx.src` at `cx.dst`. A folder that is as in the newest version makes none. Goes by the remote's index if
/// `cx.known` has one. Hashes are kept as soon as there are any, whatever becomes of the rest.
///
/// Errors: the remote can't be asked. What fails of the folder or on the way is in the report, and then no version is made.
pub fn push<'a>(
    cx: &'a Cx,
    job: &'a Job,
    how: &'a PushOptions,
    state: &'a State,
) -> LocalBoxFuture<'a, Result<PushResult>> {
    Box::pin(async move {
        // One that is inside the other would be part of its own content.
        haul::overlap::check(cx, Verb::Copy)?;
        let beside = PushMark::new(cx, job, how)?;
        let pushed = tokio::select! {
            pushed = rounds(cx, job, how, state, &beside) => pushed,
            never = beside.renew() => match never {},
        };
        beside.leave().await;
        if let Some(settings) = cx.known.index.clone() {
            let tidied = haul_store::disk::run(move || {
                tidy(&settings);
                Ok(())
            });
            tidied.await.ok();
        }
        pushed
    })
}

/// Looks at the folder and sends it until nothing changed meanwhile.
async fn rounds(cx: &Cx, job: &Job, how: &PushOptions, state: &State, beside: &PushMark) -> Result<PushResult> {
    // The remote is asked while the folder is looked at.
    let scanning = async { Ok(scan(cx, job, state).await) };
    let both = futures::try_join!(newest(&cx.dst, how), scanning);
    state.save();
    let (mut newest, first) = both?;
    let mut how = how.clone();
    let (mut first, mut pushed) = (Some(first), PushResult::default());
    for round in 1..=ROUNDS {
        let again = round < ROUNDS;
        let before = std::mem::take(&mut pushed.report);
        pushed.report.totals = before.totals;
        let scanned = match first.take() {
            Some(first) => first,
            None => {
                let scanned = scan(cx, job, state).await;
                state.save();
                scanned
            }
        };
        match scanned {
            Ok(scan) if round < LOOKS && !scan.vanished.is_empty() => {
                tracing::info!("{} names went while the directory was looked at: looking again", scan.vanished.len());
            }
            Ok(scan) => {
                let made = std::mem::take(&mut pushed.outcome);
                let whole = one(cx, job, &how, &scan, newest.as_ref(), again, beside, &mut pushed).await?;
                if matches!(made, PushOutcome::Made(..)) && matches!(pushed.outcome, PushOutcome::Unchanged(..)) {
                    pushed.outcome = made;
                }
                if let PushOutcome::Made(version, record) = &pushed.outcome
                    && beside.freed_meanwhile().await?
                {
                    if !again {
                        let message =
                            "a version was made, but content was freed meanwhile: run this again with --verify";
                        report_error(cx, &mut pushed.report, Arc::new(Error::new(ErrorKind::Changed, "push", message)));
                        return Ok(pushed);
                    }
                    tracing::info!("content was freed meanwhile: looking for all of it");
                    newest = Some((version.clone(), Some(record.clone())));
                    how.proof = Proof::Full;
                    continue;
                }
                if whole || !(again && changed_only(&pushed.report)) {
                    tell_vanished(cx, &scan, &mut pushed);
                    return Ok(pushed);
                }
            }
            Err(errors) => {
                let changes = errors.iter().all(|e| e.kind() == ErrorKind::Changed);
                if again && changes {
                    continue;
                }
                for error in errors {
                    report_error(cx, &mut pushed.report, error);
                }
                return Ok(pushed);
            }
        }
    }
    Ok(pushed)
}

/// The newest version, with its record if that can be read: its time counts in any case.
async fn newest(dst: &Arc<dyn Store>, how: &PushOptions) -> Result<Option<(Version, Option<Record>)>> {
    let all = versions::versions(dst, Some(&how.name)).await?.remove(&how.name).unwrap_or_default();
    let Some(version) = all.last() else { return Ok(None) };
    match versions::record(dst, &how.name, version).await {
        Ok(record) => Ok(Some((version.clone(), Some(record)))),
        Err(error) => {
            // It only saves requests.
            tracing::warn!("the newest version of {}: {error}", how.name);
            Ok(Some((version.clone(), None)))
        }
    }
}

/// True when nothing failed but what changed meanwhile.
fn changed_only(report: &Report) -> bool {
    let all_kept = report.errors.len() as u64 == report.error_count;
    let stopped = report.stopped.is_some() || report.time_limit || report.transfer_limit;
    all_kept && !stopped && report.errors.iter().all(|error| is_change(error))
}

/// A version is made also of a folder in which files come and go all the time; that one which was renamed may be missing is
/// for the user to know.
fn tell_vanished(cx: &Cx, scan: &Scan, pushed: &mut PushResult) {
    if scan.vanished.is_empty() || matches!(pushed.outcome, PushOutcome::None) {
        return;
    }
    for key in &scan.vanished {
        let message = "it went while the directory was looked at".into();
        cx.sink.emit(&Event::Notice { key: Some(key.clone()), message });
    }
    let message = format!(
        "the version is made, but {} of the directory's names went while it was looked at, again and again: what was \
         renamed may be missing. Run this again, or leave out with a filter what comes and goes",
        scan.vanished.len()
    );
    let error = Error::new(ErrorKind::Changed, "push", message).with_retry(Retry::Backoff);
    report_error(cx, &mut pushed.report, Arc::new(error));
}

fn report_error(cx: &Cx, report: &mut Report, error: Arc<Error>) {
    if error.kind() == ErrorKind::Cancelled {
        report.stopped.get_or_insert(ErrorKind::Cancelled);
        return;
    }
    cx.sink.emit(&Event::Error(error.clone()));
    report.error(error);
}

/// A push's relation to a gc.
struct PushMark {
    dst: Arc<dyn Store>,
    /// `None` in a dry run, which changes nothing.
    mark: Option<tokio::sync::Mutex<Mark>>,
    /// Set while a mark stands; what was freed by then.
    entered: tokio::sync::Mutex<Option<Option<String>>>,
}

impl PushMark {
    fn new(cx: &Cx, job: &Job, how: &PushOptions) -> Result<PushMark> {
        let mark = (!job.dry_run).then(|| Mark::new(&cx.dst, MarkKind::Push, how.now, &how.by)).transpose()?;
        Ok(PushMark { dst: cx.dst.clone(), mark: mark.map(tokio::sync::Mutex::new), entered: Default::default() })
    }

    /// Sets the push's mark, and waits while a gc is at work; gives what was freed so far. From here on what is there stays there.
    ///
    /// Errors: the remote can't be asked; the push was stopped.
    async fn enter(&self, cx: &Cx, dvc: &Address) -> Result<Option<String>> {
        let Some(mark) = &self.mark else { return Ok(Marks::at(&self.dst).await?.freed()) };
        loop {
            let mark = {
                let mut mark = mark.lock().await;
                mark.add(dvc);
                mark.set().await?;
                mark.clone()
            };
            let mut entered = self.entered.lock().await;
            let (seen, others) = marks::beside(&self.dst, &mark.key).await?;
            let Some(gc) = others.gcs.first() else {
                // One that only slept finds that its mark is gone, and stops.
                let dead = others.dead.into_iter().filter(|key| !seen.all_pushes().any(|push| push == key)).collect();
                marks::remove(&self.dst, dead).await?;
                *entered = Some(seen.freed());
                return Ok(seen.freed());
            };
            *entered = None;
            mark.clear().await?;
            let message = format!(
                "haul snapshot gc is at work at the remote: waiting until it is done (its mark is {gc}; delete that if it was killed)"
            );
            cx.sink.emit(&Event::Notice { key: None, message });
            self.wait(cx).await?;
        }
    }

    /// Waits until no gc's mark is there, or long enough to tell again whether it is a dead one's.
    async fn wait(&self, cx: &Cx) -> Result<()> {
        let begun = std::time::Instant::now();
        while begun.elapsed() < RENEWED {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = cx.cancel.cancelled() => return Err(Error::new(ErrorKind::Cancelled, "push", "stopped")),
            }
            if !Marks::at(&self.dst).await?.has_gc() {
                break;
            }
        }
        Ok(())
    }

    /// True when a gc may have deleted since the mark was set: it took this push for dead.
    async fn freed_meanwhile(&self) -> Result<bool> {
        let Some(before) = self.entered.lock().await.clone() else { return Ok(false) };
        let seen = Marks::at(&self.dst).await?;
        Ok(seen.has_gc() || seen.freed() != before)
    }

    /// Sets the mark anew again and again. A failure costs nothing as long as the next one arrives.
    async fn renew(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(RENEWED).await;
            let entered = self.entered.lock().await;
            if let (Some(mark), Some(_)) = (&self.mark, &*entered)
                && let Err(error) = mark.lock().await.set().await
            {
                tracing::debug!("the push's mark wasn't set anew: {error}");
            }
        }
    }

    async fn leave(&self) {
        let entered = self.entered.lock().await.take();
        if let (Some(mark), Some(_)) = (&self.mark, entered)
            && let Err(error) = mark.lock().await.clear().await
        {
            tracing::info!("the push's mark stays for an hour, and gc waits for it: {error}");
        }
    }
}

/// The index that holds since the last gc: what was remembered before counts no more, so each has a folder of its own.
fn index_since(settings: &Settings, freed: Option<&String>) -> Settings {
    let folder = freed.map_or(settings.folder.clone(), |freed| settings.folder.join(format!("{SINCE}{freed}")));
    Settings { folder, ..settings.clone() }
}

/// Removes indexes from before a gc, once there is one from after it. What can't be removed costs space only.
#[allow(clippy::disallowed_methods, reason = "these folders are this module's own")]
fn tidy(settings: &Settings) {
    let folders = |of: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(of).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let is_since = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(SINCE.as_bytes()));
    let mut since: Vec<(SystemTime, PathBuf)> = folders(&settings.folder)
        .into_iter()
        .filter(is_since)
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    since.sort();
    for (n, (_, older)) in since.iter().enumerate() {
        let newer = &since[n + 1..];
        for file in folders(older) {
            // An index is called by its remote: the same remote's newer one is in a newer folder.
            let replaced = file.file_name().is_some_and(|name| newer.iter().any(|(_, dir)| dir.join(name).exists()));
            if replaced {
                std::fs::remove_file(&file).ok();
            }
        }
        std::fs::remove_dir(older).ok();
    }
}

/// One try; true when all is at the remote.
#[allow(clippy::too_many_arguments, reason = "each is another thing")]
async fn one(
    cx: &Cx,
    job: &Job,
    how: &PushOptions,
    scan: &Scan,
    newest: Option<&(Version, Option<Record>)>,
    again: bool,
    beside: &PushMark,
    pushed: &mut PushResult,
) -> Result<bool> {
    let lists = [Arc::new(List::own(&scan.tree)), Arc::new(List::dvc(&scan.tree))];
    let [own, dvc] = &lists;
    let freed = beside.enter(cx, &dvc.address).await?;
    let mut cx = cx.clone();
    cx.known.index = cx.known.index.as_ref().map(|settings| index_since(settings, freed.as_ref()));
    let cx = &cx;
    let readable = newest.and_then(|(version, record)| Some((version, record.as_ref()?)));
    // The content it promises exists as long as it does.
    let readable = match readable {
        Some((version, _)) if !stands(&cx.dst, &how.name, version).await? => None,
        readable => readable,
    };
    // The same files pushed in another way are another version.
    let filtered = !cx.filter.is_all() || job.listing.max_depth.is_some();
    let same = readable.filter(|(_, record)| record.tree == own.address.md5 && record.filtered == filtered);
    let content = match Content::of(&scan.tree) {
        Ok(content) => content,
        Err(error) => {
            report_error(cx, &mut pushed.report, Arc::new(error));
            return Ok(false);
        }
    };
    let (files, late) = {
        let wanted = wanted(&content, &lists, &how.name);
        let newest = readable.iter().flat_map(|(_, record)| [record.tree_address(), record.dir_address()]);
        let requested = lists.iter().map(|list| list.address).chain(newest);
        let index = cx.known.index.as_ref().map(|settings| (settings, &cx.sink));
        let ahead = EarlyQueries::ask(&cx.dst, requested, content.count() as u64, how.proof, index).await?;
        let earlier = readable.map(|(_, record)| record).filter(|_| same.is_none());
        let found = look(&cx.dst, &wanted, promises(&cx.dst, earlier), how.proof, ahead).await?;
        pushed.lost = found.lost.len() as u64;
        let late: Vec<Arc<List>> = lists.iter().filter(|list| !found.there.contains(&list.address)).cloned().collect();
        // Content of both a file and a list goes with the lists.
        let is_list = |address: &Address| lists.iter().any(|list| list.address == *address);
        (content.only(|address| !found.there.contains(address) && !is_list(address)), late)
    };
    pushed.left_out = scan.left_out;
    let expected = files.count();
    let arrived = run_job(cx, job, Arc::new(files), again, &mut pushed.report).await;
    if job.dry_run || !pushed.report.is_ok() {
        return Ok(pushed.report.is_ok());
    }
    if arrived != expected {
        let message = "not all content is at the remote, so no version was made: run this again";
        report_error(cx, &mut pushed.report, Arc::new(Error::new(ErrorKind::Io, "push", message)));
        return Ok(false);
    }
    if !send_lists(cx, job, &late, &how.name, &mut pushed.report).await {
        return Ok(false);
    }
    pushed.outcome = match same {
        Some((version, record)) => PushOutcome::Unchanged(version.clone(), record.clone()),
        None => {
            let time = newest.map_or(how.now, |(version, _)| how.now.max(Mtime(version.time().0 + TICK)));
            let (tree, dir, tree_size) = (own.address.md5, dvc.address.md5, own.size());
            let totals = scan.tree.totals();
            let record = Record { name: how.name.clone(), time, tree, tree_size, dir, totals, filtered };
            PushOutcome::Made(versions::make(&cx.dst, &record, job.write.fsync != Fsync::None).await?, record)
        }
    };
    Ok(true)
}

/// Is a version still there?
async fn stands(dst: &Arc<dyn Store>, name: &str, version: &Version) -> Result<bool> {
    let key = name::key(name, version);
    match dst.stat(&key).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error.with_key(&key)),
    }
}

/// The folder's content, each once: what the engine sends.
#[derive(Debug)]
struct Content {
    tree: Arc<Tree>,
    /// The first file of each content, in order of MD5s.
    places: Vec<u32>,
}

impl Content {
    /// Errors: files of two sizes have one MD5, so a store said of one what isn't so, and its bytes would never be sent.
    fn of(tree: &Arc<Tree>) -> Result<Content> {
        let mut places = tree.by_content();
        let sizes_differ = |two: &&[u32]| {
            let (a, b) = (tree.content(two[0]), tree.content(two[1]));
            a.1 == b.1 && a.0 != b.0
        };
        if let Some(two) = places.windows(2).find(sizes_differ) {
            let [a, b] = [two[0], two[1]].map(|place| tree.node(place as usize));
            let message = format!("the store says the same MD5 of {:?}, which has another size", a.shown());
            return Err(Error::new(ErrorKind::Corrupt, "push", message).with_key(&b.key()));
        }
        places.dedup_by_key(|place| tree.content(*place).1);
        places.shrink_to_fit();
        Ok(Content { tree: tree.clone(), places })
    }

    fn only(mut self, is: impl Fn(&Address) -> bool) -> Content {
        let tree = &self.tree;
        self.places.retain(|place| is(&Address::file(Layout::V3, tree.content(*place).1)));
        self
    }

    fn address(&self, number: usize) -> Address {
        Address::file(Layout::V3, self.tree.content(self.places[number]).1)
    }
}

impl KeyList for Content {
    fn count(&self) -> usize {
        self.places.len()
    }

    fn nth(&self, n: usize) -> usize {
        n
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let address = Address::of_key(key.as_bytes())?;
        let number = self.places.binary_search_by_key(&address.md5, |place| self.tree.content(*place).1).ok()?;
        (self.address(number) == address).then_some(number)
    }

    fn key(&self, number: usize) -> Key {
        self.address(number).key()
    }

    fn entry(&self, number: usize) -> Entry {
        let place = self.places[number];
        let (size, md5) = self.tree.content(place);
        let hashes = Hashes::default().with(Algo::Md5, md5);
        Entry { hashes, version: self.tree.pin(place as usize), ..Entry::file(self.key(number), size) }
    }

    fn from(&self, number: usize) -> ContentSource {
        ContentSource::Live(self.shown(number))
    }

    fn shown(&self, number: usize) -> Key {
        self.tree.node(self.places[number] as usize).key()
    }
}

fn wanted(content: &Content, lists: &[Arc<List>; 2], name: &str) -> WantedContent {
    let files = (0..content.count()).map(|number| {
        let (size, _) = content.tree.content(content.places[number]);
        (content.address(number), Some(size))
    });
    let [own, dvc] = lists;
    let lists = [own, dvc].map(|list| (list.address, Some(list.size())));
    let children = Some(content.tree.children());
    let mut wanted = WantedContent::new(files.chain(lists).collect());
    wanted.dirs.push(Dir { address: dvc.address, file: name.into(), children, part: false });
    wanted
}

/// Content that another version promises: it existed before its lists did.
async fn promises(dst: &Arc<dyn Store>, earlier: Option<&Record>) -> History {
    let Some(record) = earlier else { return History::new() };
    match versions::tree(dst, record).await {
        Ok(tree) => vec![(record.dir_address(), tree.children())],
        Err(error) => {
            tracing::debug!("the newest version can't be compared with: {error}");
            History::new()
        }
    }
}

/// Sends lists; true when all arrived.
async fn send_lists(cx: &Cx, job: &Job, lists: &[Arc<List>], name: &str, report: &mut Report) -> bool {
    let all = lists.iter().map(|list| {
        let hashes = Hashes::default().with(Algo::Md5, list.address.md5);
        let entry = Entry { hashes, ..Entry::file(list.address.key(), list.size()) };
        let what = if list.address.dir { " (list for DVC)" } else { " (list)" };
        (entry, ContentSource::List(list.clone()), Key::new(format!("{name}{what}")))
    });
    // A journal is of one job.
    let cx = Cx { journal: None, ..cx.clone() };
    let arrived = run_job(&cx, job, Arc::new(FewKeys::new(all.collect())), false, report).await;
    arrived == lists.len() && report.is_ok()
}

/// One job of the engine; gives how many arrived.
async fn run_job(cx: &Cx, job: &Job, all: Arc<dyn KeyList>, again: bool, report: &mut Report) -> usize {
    if all.count() == 0 {
        return 0;
    }
    let shown = Arc::new(RenamingSink::new(cx.sink.clone(), all.clone(), again));
    let locator = format!("{} as content", cx.src.locator());
    let cx = Cx {
        src: Arc::new(View::new(cx.src.clone(), locator, all, cx.src.caps().cheap_reads)),
        dst: cx.dst.clone(),
        backup: None,
        compare_dest: Vec::new(),
        copy_dest: Vec::new(),
        filter: Arc::default(),
        sink: shown.clone(),
        confirm: None,
        ..cx.clone()
    };
    let mut came = haul::run(for_content(job, cx.dst.caps().files), cx).await;
    came.errors = came.errors.iter().map(|error| shown.error(error)).collect();
    report.add(came);
    shown.arrived()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // A test makes its own files.

    use super::*;
    use crate::tree::{EntryKind, Node, TreeBuilder};
    use haul_core::event::Sink;
    use haul_mem::MemStore;
    use haul_store::Links;
    use haul_testkit::faults::{Fault, Faulty, Op};

    struct Notices(std::sync::Mutex<Vec<String>>);

    impl Sink for Notices {
        fn emit(&self, event: &Event) {
            if let Event::Notice { key, message } = event {
                let key = key.as_ref().map(Key::to_string).unwrap_or_default();
                self.0.lock().unwrap().push(format!("{key}: {message}"));
            }
        }
    }

    /// A file that goes under a push may have been renamed to a name that was passed by: so it is looked again, and if that is so
    /// each time, the version is made and the user told.
    #[tokio::test]
    async fn what_goes_while_it_is_looked_at_is_looked_for_again_or_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("a"), "a").unwrap();
        for (goes, files) in [(0, 1), (1, 1), (2, 1), (3, 0)] {
            let mut src = Faulty::new(haul_testkit::disk::open(dir.path(), Links::Keep));
            for nth in 1..=goes {
                src = src.on(Op::Read, nth, Fault::Fail(ErrorKind::NotFound, Retry::Never));
            }
            let notices = Arc::new(Notices(Default::default()));
            let cx = Cx {
                src: Arc::new(src),
                dst: Arc::new(MemStore::new()),
                backup: None,
                compare_dest: Vec::new(),
                copy_dest: Vec::new(),
                filter: Arc::default(),
                sink: notices.clone(),
                meters: Arc::default(),
                cancel: Default::default(),
                confirm: None,
                journal: None,
                known: Default::default(),
            };
            let how = PushOptions { name: "s".into(), now: Mtime(1), proof: Proof::Full, by: "test".into() };
            let pushed = push(&cx, &Job::default(), &how, &State::default()).await.unwrap();
            let PushOutcome::Made(_, record) = &pushed.outcome else { panic!("{goes}: {:?}", pushed.report.errors) };
            assert_eq!(record.totals.files, files, "{goes}");
            let errors: Vec<String> = pushed.report.errors.iter().map(|error| error.to_string()).collect();
            let reported = notices.0.lock().unwrap();
            if files == 1 {
                assert!(errors.is_empty() && reported.is_empty(), "{goes}: {errors:?} {reported:?}");
                continue;
            }
            let message = "push: the version is made, but 1 of the directory's names went while it was looked at, \
                           again and again: what was renamed may be missing. Run this again, or leave out with a \
                           filter what comes and goes";
            assert_eq!(errors, [message]);
            assert_eq!(*reported, ["a: it went while the directory was looked at"]);
        }
    }

    /// A store's word for an MD5 (an ETag, metadata that a copy took along) can be wrong.
    #[test]
    fn one_md5_of_two_sizes_is_no_content() {
        let of = |sizes: &[u64]| {
            let mut gathered = TreeBuilder::default();
            for (n, size) in sizes.iter().enumerate() {
                let (path, what) = (format!("{n}"), EntryKind::File(*size, [7; 16]));
                gathered.add(Node { path: path.as_bytes(), what, mode: None, mtime: None }, None).unwrap();
            }
            Content::of(&Arc::new(gathered.tree().unwrap()))
        };
        assert_eq!(of(&[5, 5, 5]).unwrap().places, [0]);
        let error = of(&[5, 5, 6]).unwrap_err();
        assert_eq!(error.to_string(), "2: push: the store says the same MD5 of \"1\", which has another size");
    }
}
