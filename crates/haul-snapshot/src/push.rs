//! Making a version of a folder: look at it, find out what of its content the remote lacks, send that, then the lists, and
//! last the record. Whatever is cut short before the record leaves content that the next push finds, and no version.

use crate::{
    list::List,
    name::Version,
    record::Record,
    scan::{Scan, scan},
    shown::{Shown, is_change},
    tree::Tree,
    versions,
    view::{Few, From, Shows, View},
};
use haul::{Cx, Report};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Mtime, Result, Retry,
    event::Event,
    policy::{Fsync, Mode, Policy},
};
use haul_dvc::{
    address::{Address, Layout},
    bring::for_content,
    remote::{Ahead, History, Proof, look},
    state::State,
    wanted::{Dir, Wanted},
};
use haul_store::Store;
use std::sync::Arc;

/// How often a folder is looked at because files changed or went before they were sent. Each time less is left to be sent, so that a
/// folder in which files come and go all the time becomes still enough.
const ROUNDS: usize = 8;
/// How often it is looked at because names went while it was looked at.
const LOOKS: usize = 3;
/// Between two versions of one snapshot, so that the one made later is the newer one also where clocks differ.
const TICK: i128 = 1_000_000;

/// What came of a push.
#[derive(Debug, Default)]
pub enum Outcome {
    /// A version was made.
    Made(Version, Record),
    /// The newest version is this folder; what the remote had lost of it is there again.
    Unchanged(Version, Record),
    /// None was made: a dry run, or something went wrong, which the report says.
    #[default]
    None,
}

/// What a push did.
#[derive(Debug, Default)]
pub struct Pushed {
    /// Of the engine's jobs together.
    pub report: Report,
    /// The version.
    pub outcome: Outcome,
    /// Content of earlier versions that the remote had lost.
    pub lost: u64,
    /// Devices, FIFOs and sockets, which no version keeps.
    pub left_out: u64,
}

/// How to push.
#[derive(Clone, Debug)]
pub struct How {
    /// The snapshot.
    pub name: String,
    /// The time.
    pub now: Mtime,
    /// How sure to be of what the remote has.
    pub proof: Proof,
}

/// Makes a version of `cx.src` at `cx.dst`. A folder that is as in the newest version makes none. Goes by the remote's index if
/// `cx.known` has one. Hashes are kept as soon as there are any, whatever becomes of the rest.
///
/// Errors: the remote can't be asked. What fails of the folder or on the way is in the report, and then no version is made.
pub async fn push(cx: &Cx, policy: &Policy, how: &How, state: &State) -> Result<Pushed> {
    // One that is inside the other would be part of its own content.
    haul::overlap::check(cx, Mode::Copy)?;
    // The remote is asked while the folder is looked at.
    let scanning = async { Ok(scan(cx, policy, state).await) };
    let both = futures::try_join!(newest(&cx.dst, how), scanning);
    state.save();
    let (newest, first) = both?;
    let (mut first, mut pushed) = (Some(first), Pushed::default());
    for round in 1..=ROUNDS {
        let again = round < ROUNDS;
        let before = std::mem::take(&mut pushed.report);
        pushed.report.totals = before.totals;
        let scanned = match first.take() {
            Some(first) => first,
            None => {
                let scanned = scan(cx, policy, state).await;
                state.save();
                scanned
            }
        };
        match scanned {
            Ok(scan) if round < LOOKS && !scan.gone.is_empty() => {
                tracing::info!("{} names went while the folder was looked at: looking again", scan.gone.len());
            }
            Ok(scan) => {
                let whole = one(cx, policy, how, &scan, newest.as_ref(), again, &mut pushed).await?;
                if whole || !(again && changed_only(&pushed.report)) {
                    tell_gone(cx, &scan, &mut pushed);
                    return Ok(pushed);
                }
            }
            Err(errors) => {
                let changes = errors.iter().all(|e| e.kind() == ErrorKind::Changed);
                if again && changes {
                    continue;
                }
                for error in errors {
                    tell(cx, &mut pushed.report, error);
                }
                return Ok(pushed);
            }
        }
    }
    Ok(pushed)
}

/// The newest version, with its record if that can be read: its time counts in any case.
async fn newest(dst: &Arc<dyn Store>, how: &How) -> Result<Option<(Version, Option<Record>)>> {
    let all = versions::versions(dst, Some(&how.name)).await?.remove(&how.name).unwrap_or_default();
    let Some(version) = all.last() else { return Ok(None) };
    match versions::record(dst, &how.name, version).await {
        Ok(record) => Ok(Some((version.clone(), Some(record)))),
        Err(error) => {
            // What it says saves questions and no more.
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
fn tell_gone(cx: &Cx, scan: &Scan, pushed: &mut Pushed) {
    if scan.gone.is_empty() || matches!(pushed.outcome, Outcome::None) {
        return;
    }
    for key in &scan.gone {
        let message = "it went while the folder was looked at".into();
        cx.sink.emit(&Event::Notice { key: Some(key.clone()), message });
    }
    let message = format!(
        "the version is made, but {} of the folder's names went while it was looked at, again and again: what was renamed may be \
         missing. Run this again, or leave out with a filter what comes and goes",
        scan.gone.len()
    );
    let error = Error::new(ErrorKind::Changed, "push", message).with_retry(Retry::Backoff);
    tell(cx, &mut pushed.report, Arc::new(error));
}

fn tell(cx: &Cx, report: &mut Report, error: Arc<Error>) {
    if error.kind() == ErrorKind::Cancelled {
        report.stopped.get_or_insert(ErrorKind::Cancelled);
        return;
    }
    cx.sink.emit(&Event::Error(error.clone()));
    report.error(error);
}

/// One try; true when all is at the remote.
async fn one(
    cx: &Cx,
    policy: &Policy,
    how: &How,
    scan: &Scan,
    newest: Option<&(Version, Option<Record>)>,
    again: bool,
    pushed: &mut Pushed,
) -> Result<bool> {
    let lists = [Arc::new(List::own(&scan.tree)), Arc::new(List::dvc(&scan.tree))];
    let [own, dvc] = &lists;
    let readable = newest.and_then(|(version, record)| Some((version, record.as_ref()?)));
    // The same files pushed otherwise are another version.
    let filtered = !cx.filter.is_all() || policy.max_depth.is_some();
    let same = readable.filter(|(_, record)| record.tree == own.address.md5 && record.filtered == filtered);
    let content = match Content::of(&scan.tree) {
        Ok(content) => content,
        Err(error) => {
            tell(cx, &mut pushed.report, Arc::new(error));
            return Ok(false);
        }
    };
    let (files, late) = {
        let wanted = wanted(&content, &lists, &how.name);
        let newest = readable.iter().flat_map(|(_, record)| [record.tree_address(), record.dir_address()]);
        let asked = lists.iter().map(|list| list.address).chain(newest);
        let index = cx.known.index.as_ref().map(|settings| (settings, &cx.sink));
        let ahead = Ahead::ask(&cx.dst, asked, content.count() as u64, how.proof, index).await?;
        let earlier = readable.map(|(_, record)| record).filter(|_| same.is_none());
        let found = look(&cx.dst, &wanted, promises(&cx.dst, earlier), how.proof, ahead).await?;
        pushed.lost = found.lost.len() as u64;
        let late: Vec<Arc<List>> = lists.iter().filter(|list| !found.there.contains(&list.address)).cloned().collect();
        // What is a file's and a list's too goes with the lists.
        let is_list = |address: &Address| lists.iter().any(|list| list.address == *address);
        (content.only(|address| !found.there.contains(address) && !is_list(address)), late)
    };
    pushed.left_out = scan.left_out;
    let expected = files.count();
    let arrived = job(cx, policy, Arc::new(files), again, &mut pushed.report).await;
    if policy.dry_run || !pushed.report.is_ok() {
        return Ok(pushed.report.is_ok());
    }
    if arrived != expected {
        let message = "not all content is at the remote, so no version was made: run this again";
        tell(cx, &mut pushed.report, Arc::new(Error::new(ErrorKind::Io, "push", message)));
        return Ok(false);
    }
    if !send_lists(cx, policy, &late, &how.name, &mut pushed.report).await {
        return Ok(false);
    }
    pushed.outcome = match same {
        Some((version, record)) => Outcome::Unchanged(version.clone(), record.clone()),
        None => {
            let time = newest.map_or(how.now, |(version, _)| how.now.max(Mtime(version.time().0 + TICK)));
            let (tree, dir, tree_size) = (own.address.md5, dvc.address.md5, own.size());
            let totals = scan.tree.totals();
            let record = Record { name: how.name.clone(), time, tree, tree_size, dir, totals, filtered };
            Outcome::Made(versions::make(&cx.dst, &record, policy.fsync != Fsync::None).await?, record)
        }
    };
    Ok(true)
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

impl Shows for Content {
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

    fn from(&self, number: usize) -> From {
        From::Live(self.shown(number))
    }

    fn shown(&self, number: usize) -> Key {
        self.tree.node(self.places[number] as usize).key()
    }
}

fn wanted(content: &Content, lists: &[Arc<List>; 2], name: &str) -> Wanted {
    let files = (0..content.count()).map(|number| {
        let (size, _) = content.tree.content(content.places[number]);
        (content.address(number), Some(size))
    });
    let [own, dvc] = lists;
    let lists = [own, dvc].map(|list| (list.address, Some(list.size())));
    let children = Some(content.tree.children());
    let mut wanted = Wanted::new(files.chain(lists).collect());
    wanted.dirs.push(Dir { address: dvc.address, file: name.into(), children, part: false });
    wanted
}

/// What another version promises: its content was there before its lists were.
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
async fn send_lists(cx: &Cx, policy: &Policy, lists: &[Arc<List>], name: &str, report: &mut Report) -> bool {
    let all = lists.iter().map(|list| {
        let hashes = Hashes::default().with(Algo::Md5, list.address.md5);
        let entry = Entry { hashes, ..Entry::file(list.address.key(), list.size()) };
        let what = if list.address.dir { " (list for DVC)" } else { " (list)" };
        (entry, From::List(list.clone()), Key::new(format!("{name}{what}")))
    });
    // A journal is of one job.
    let cx = Cx { journal: None, ..cx.clone() };
    let arrived = job(&cx, policy, Arc::new(Few::new(all.collect())), false, report).await;
    arrived == lists.len() && report.is_ok()
}

/// One job of the engine; gives how many arrived.
async fn job(cx: &Cx, policy: &Policy, all: Arc<dyn Shows>, again: bool, report: &mut Report) -> usize {
    if all.count() == 0 {
        return 0;
    }
    let shown = Arc::new(Shown::new(cx.sink.clone(), all.clone(), again));
    let locator = format!("{} as content", cx.src.locator());
    let job = Cx {
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
    let mut came = haul::run(Mode::Copy, for_content(policy, cx.dst.caps().files), job).await;
    came.errors = came.errors.iter().map(|error| shown.error(error)).collect();
    report.add(came);
    shown.arrived()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // A test makes its own files.

    use super::*;
    use crate::tree::{Gathered, Node, What};
    use haul_core::event::Sink;
    use haul_store::{Links, mem::MemStore};
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
            let how = How { name: "s".into(), now: Mtime(1), proof: Proof::Full };
            let pushed = push(&cx, &Policy::default(), &how, &State::default()).await.unwrap();
            let Outcome::Made(_, record) = &pushed.outcome else { panic!("{goes}: {:?}", pushed.report.errors) };
            assert_eq!(record.totals.files, files, "{goes}");
            let errors: Vec<String> = pushed.report.errors.iter().map(|error| error.to_string()).collect();
            let told = notices.0.lock().unwrap();
            if files == 1 {
                assert!(errors.is_empty() && told.is_empty(), "{goes}: {errors:?} {told:?}");
                continue;
            }
            let message = "push: the version is made, but 1 of the folder's names went while it was looked at, again and again: \
                           what was renamed may be missing. Run this again, or leave out with a filter what comes and goes";
            assert_eq!(errors, [message]);
            assert_eq!(*told, ["a: it went while the folder was looked at"]);
        }
    }

    /// A store's word for an MD5 (an ETag, metadata that a copy took along) can be wrong.
    #[test]
    fn one_md5_of_two_sizes_is_no_content() {
        let of = |sizes: &[u64]| {
            let mut gathered = Gathered::default();
            for (n, size) in sizes.iter().enumerate() {
                let (path, what) = (format!("{n}"), What::File(*size, [7; 16]));
                gathered.add(Node { path: path.as_bytes(), what, mode: None, mtime: None }, None).unwrap();
            }
            Content::of(&Arc::new(gathered.tree().unwrap()))
        };
        assert_eq!(of(&[5, 5, 5]).unwrap().places, [0]);
        let error = of(&[5, 5, 6]).unwrap_err();
        assert_eq!(error.to_string(), "2: push: the store says the same MD5 of \"1\", which has another size");
    }
}
