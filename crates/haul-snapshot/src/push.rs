//! Making a version of a folder: look at it, find out what of its content the remote lacks, send that, then the lists, and
//! last the record. Whatever is cut short before the record leaves content that the next push finds, and no version.

use crate::{
    name::Version,
    record::Record,
    scan::{Scan, scan},
    shown::{Shown, is_change},
    tree::Tree,
    versions,
    view::{From, View},
};
use bytes::Bytes;
use haul::{Cx, Report};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Mtime, Result,
    event::Event,
    policy::{Compare, Fsync, Mode, Policy},
};
use haul_dvc::{
    address::{Address, Layout, Md5},
    manifest,
    remote::{History, Proof, look},
    state::State,
    wanted::{Dir, Wanted},
};
use haul_store::Store;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// How often a folder is looked at anew because files in it changed.
const ROUNDS: usize = 3;
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

/// Makes a version of `cx.src` at `cx.dst`. A folder that is as in the newest version makes none.
///
/// Errors: the remote can't be asked. What fails of the folder or on the way is in the report, and then no version is made.
pub async fn push(cx: &Cx, policy: &Policy, how: &How, state: &mut State) -> Result<Pushed> {
    // One that is inside the other would be part of its own content.
    haul::overlap::check(cx, Mode::Copy)?;
    let newest = newest(&cx.dst, how).await?;
    let mut pushed = Pushed::default();
    for round in 1..=ROUNDS {
        let again = round < ROUNDS;
        let before = std::mem::take(&mut pushed.report);
        pushed.report.totals = before.totals;
        match scan(cx, policy, state).await {
            Ok(scan) => {
                let whole = one(cx, policy, how, &scan, newest.as_ref(), again, &mut pushed).await?;
                if whole || !(again && changed_only(&pushed.report)) {
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

fn tell(cx: &Cx, report: &mut Report, error: Arc<Error>) {
    if error.kind() == ErrorKind::Cancelled {
        report.stopped.get_or_insert(ErrorKind::Cancelled);
        return;
    }
    cx.sink.emit(&Event::Error(error.clone()));
    report.error(error);
}

/// The lists of a folder, and where they go.
struct Lists {
    tree: (Address, Bytes),
    dir: (Address, Bytes),
    children: Vec<Md5>,
}

impl Lists {
    fn of(tree: &Tree) -> Lists {
        let bytes = tree.write();
        let mut children = tree.children();
        let dir = manifest::write(&mut children);
        let mut md5s: Vec<Md5> = children.into_iter().map(|child| child.md5).collect();
        md5s.sort_unstable();
        md5s.dedup();
        Lists {
            tree: (Address::file(Layout::V3, manifest::md5(&bytes)), bytes.into()),
            dir: (manifest::address(Layout::V3, &dir), dir.into()),
            children: md5s,
        }
    }
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
    let lists = Lists::of(&scan.tree);
    let wanted = wanted(scan, &lists, &how.name);
    let readable = newest.and_then(|(version, record)| Some((version, record.as_ref()?)));
    // The same files pushed otherwise are another version.
    let filtered = !cx.filter.is_all() || policy.max_depth.is_some();
    let same = readable.filter(|(_, record)| record.tree == lists.tree.0.md5 && record.filtered == filtered);
    let history = match readable.filter(|_| same.is_none() && how.proof == Proof::Sampled) {
        Some((_, record)) => earlier(&cx.dst, record).await,
        None => History::new(),
    };
    let found = look(&cx.dst, &wanted, &history, how.proof).await?;
    pushed.lost = found.lost.len() as u64;
    pushed.left_out = scan.left_out;
    let lacking = |a: &Address| !found.there.contains(a);
    let files: HashSet<Address> = wanted.names.keys().copied().filter(lacking).collect();
    let both = [&lists.tree, &lists.dir];
    let late: Vec<&(Address, Bytes)> = both.into_iter().filter(|(address, _)| files.contains(address)).collect();
    let is_list = |address: &Address| both.iter().any(|(list, _)| list == address);
    let expected = files.iter().filter(|a| !is_list(a)).count();
    let arrived = send_files(cx, policy, scan, &files, &is_list, again, &mut pushed.report).await;
    if policy.dry_run || !pushed.report.is_ok() {
        return Ok(pushed.report.is_ok());
    }
    if arrived != expected {
        let message = "not all content is at the remote, so no version was made: run this again";
        tell(cx, &mut pushed.report, Arc::new(Error::new(ErrorKind::Io, "push", message)));
        return Ok(false);
    }
    let expected = late.len();
    if send_lists(cx, policy, &late, &how.name, &mut pushed.report).await != expected || !pushed.report.is_ok() {
        return Ok(false);
    }
    pushed.outcome = match same {
        Some((version, record)) => Outcome::Unchanged(version.clone(), record.clone()),
        None => {
            let time = newest.map_or(how.now, |(version, _)| how.now.max(Mtime(version.time().0 + TICK)));
            let (tree, dir) = (lists.tree.0.md5, lists.dir.0.md5);
            let (tree_size, totals) = (lists.tree.1.len() as u64, scan.tree.totals());
            let record = Record { name: how.name.clone(), time, tree, tree_size, dir, totals, filtered };
            Outcome::Made(versions::make(&cx.dst, &record, policy.fsync != Fsync::None).await?, record)
        }
    };
    Ok(true)
}

fn wanted(scan: &Scan, lists: &Lists, name: &str) -> Wanted {
    // Nobody is told these names, and a million paths take room.
    let files = scan.files.iter().map(|file| Address::file(Layout::V3, file.md5));
    let both = [&lists.tree, &lists.dir];
    let names: BTreeMap<Address, String> =
        files.chain(both.map(|list| list.0)).map(|address| (address, String::new())).collect();
    let sizes = scan.files.iter().map(|file| (Address::file(Layout::V3, file.md5), file.size));
    let sizes = sizes.chain(both.map(|(address, bytes)| (*address, bytes.len() as u64))).collect();
    let dir = Dir { address: lists.dir.0, file: name.into(), children: Some(lists.children.clone()), part: false };
    Wanted { names, dirs: vec![dir], sizes }
}

/// What the newest version promises: its content was there before its lists were.
async fn earlier(dst: &Arc<dyn Store>, record: &Record) -> History {
    match versions::tree(dst, record).await {
        Ok(tree) => {
            let mut md5s: Vec<Md5> = tree.children().into_iter().map(|child| child.md5).collect();
            md5s.sort_unstable();
            md5s.dedup();
            vec![(record.dir_address(), md5s)]
        }
        Err(error) => {
            tracing::debug!("the newest version can't be compared with: {error}");
            History::new()
        }
    }
}

/// Sends content; gives how much of it arrived.
async fn send_files(
    cx: &Cx,
    policy: &Policy,
    scan: &Scan,
    lacking: &HashSet<Address>,
    is_list: &impl Fn(&Address) -> bool,
    again: bool,
    report: &mut Report,
) -> usize {
    let mut sent: HashSet<Address> = HashSet::new();
    let (mut entries, mut paths) = (Vec::new(), HashMap::new());
    for file in &scan.files {
        let address = Address::file(Layout::V3, file.md5);
        if lacking.contains(&address) && !is_list(&address) && sent.insert(address) {
            let key = address.key();
            paths.insert(key.clone(), file.key.clone());
            let hashes = Hashes::default().with(Algo::Md5, file.md5);
            let entry = Entry { hashes, version: file.version.clone(), ..Entry::file(key, file.size) };
            entries.push((entry, From::Live(file.key.clone())));
        }
    }
    job(cx, policy, entries, paths, again, report).await
}

async fn send_lists(cx: &Cx, policy: &Policy, lists: &[&(Address, Bytes)], name: &str, report: &mut Report) -> usize {
    let (mut entries, mut paths) = (Vec::new(), HashMap::new());
    for (address, bytes) in lists {
        let hashes = Hashes::default().with(Algo::Md5, address.md5);
        let entry = Entry { hashes, ..Entry::file(address.key(), bytes.len() as u64) };
        let what = if address.dir { " (list for DVC)" } else { " (list)" };
        paths.insert(address.key(), Key::new(format!("{name}{what}")));
        entries.push((entry, From::Bytes(bytes.clone())));
    }
    // A journal is of one job.
    let cx = Cx { journal: None, ..cx.clone() };
    job(&cx, policy, entries, paths, false, report).await
}

/// One job of the engine; gives how many arrived.
async fn job(
    cx: &Cx,
    policy: &Policy,
    entries: Vec<(Entry, From)>,
    paths: HashMap<Key, Key>,
    again: bool,
    report: &mut Report,
) -> usize {
    if entries.is_empty() {
        return 0;
    }
    let shown = Arc::new(Shown::new(cx.sink.clone(), paths, again));
    let locator = format!("{} as content", cx.src.locator());
    let job = Cx {
        src: Arc::new(View::new(cx.src.clone(), locator, entries, cx.src.caps().cheap_reads)),
        dst: cx.dst.clone(),
        backup: None,
        compare_dest: Vec::new(),
        copy_dest: Vec::new(),
        filter: Arc::default(),
        sink: shown.clone(),
        confirm: None,
        ..cx.clone()
    };
    let mut came = haul::run(Mode::Copy, of_content(policy, cx.dst.caps().files), job).await;
    came.errors = came.errors.iter().map(|error| shown.error(error)).collect();
    report.add(came);
    shown.arrived().len()
}

/// A policy for content: what the remote lacks was found out already, and nothing arrives unproved, whatever the user wants
/// of files.
fn of_content(policy: &Policy, disk: bool) -> Policy {
    Policy {
        compare: Compare::default(),
        ignore_size: false,
        ignore_existing: false,
        existing_only: false,
        update: false,
        immutable: false,
        ignore_checksum: false,
        no_traverse: false,
        list_all: false,
        no_check_dest: true,
        track_renames: None,
        create_empty_dirs: false,
        metadata: false,
        // As DVC marks what is known to be right.
        metadata_set: if disk { vec![("mode".into(), "100444".into())] } else { Vec::new() },
        inplace: false,
        sparse: false,
        backup_suffix: None,
        max_depth: None,
        ..policy.clone()
    }
}
