//! Which results of earlier runs a job may rely on, and which it must not.

use bytes::Bytes;
use haul::{
    Cancel, Cx, Report, hash,
    index::{EarlierKnowledge, FileHashes, IndexScope, RemoteIndex, Settings},
};
use haul_core::{
    Algo, Error, ErrorKind, Key, Mtime, Retry,
    event::{Event, Sink},
    filter::{Filter, FilterSpec},
    job::{CompareBy, Job, Verb},
    plan::Action,
};
use haul_mem::MemStore;
use haul_store::{LateFacts, Links, Meters, Payload, Store, WriteSpec, layers::with_links};
use haul_testkit::{
    disk,
    faults::{Fault, Faulty, Op},
    folder,
};
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;

#[tokio::test]
async fn a_file_is_read_once_and_again_when_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    folder::write(&path, b"one", 1_600_000_000_000_000_000);
    let disk = Arc::new(Faulty::new(disk::open(dir.path(), Links::Skip)));
    let store: Arc<dyn Store> = disk.clone();
    // Beyond the time in which another change could go unseen.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let kept = FileHashes::default();
    let md5 = async |kept: Option<&FileHashes>| {
        let entry = store.stat(&Key::new("f")).await.unwrap();
        let known = hash::known_or_read(kept, &store, &entry, &[Algo::Md5]).await.unwrap();
        (known.hex(Algo::Md5).unwrap()[..4].to_string(), disk.calls(Op::Read))
    };
    assert_eq!(md5(Some(&kept)).await, ("f97c".into(), 1));
    assert_eq!(md5(Some(&kept)).await, ("f97c".into(), 1));
    assert_eq!(md5(None).await, ("f97c".into(), 2), "not believed unasked");
    // The same size and time: the change time alone tells. What changed just now isn't remembered; where the machine was so slow
    // that it changed long ago by now, it is written once more.
    let young = loop {
        let (written, reads) = (Instant::now(), disk.calls(Op::Read));
        folder::write(&path, b"two", 1_600_000_000_000_000_000);
        assert_eq!(md5(Some(&kept)).await, ("b8a9".into(), reads + 1));
        let again = md5(Some(&kept)).await;
        if written.elapsed() < Duration::from_millis(100) {
            break (again, ("b8a9".into(), reads + 2));
        }
    };
    assert_eq!(young.0, young.1);
    fs::remove_file(&path).unwrap();
    let entry = haul_core::Entry::file(Key::new("f"), 3);
    let gone: Error = hash::known_or_read(Some(&kept), &store, &entry, &[Algo::Md5]).await.unwrap_err();
    assert_eq!((gone.kind(), gone.retry()), (ErrorKind::NotFound, Retry::Never));
}

/// Keys of a page of the destination's listing.
const PAGE: usize = 10;
/// Pages that are audited.
const PAGES: usize = 16;

/// Two stores in memory and a folder for indexes. The destination lists in pages; all destinations have one name.
struct Pair {
    src: Arc<dyn Store>,
    dst: Arc<Faulty>,
    state: TempDir,
    settings: Settings,
    notices: Arc<Said>,
}

#[derive(Default)]
struct Said {
    notices: Mutex<Vec<String>>,
    /// Where marks of changes are; what is decided then must find one.
    marks: Mutex<Option<PathBuf>>,
    unmarked: Mutex<Vec<Key>>,
}

impl Sink for Said {
    fn emit(&self, event: &Event) {
        if let Event::Notice { message, .. } = event {
            self.notices.lock().unwrap().push(message.clone());
        }
        if let (Event::Decided { key, action: Action::Copy, .. }, Some(folder)) = (event, &*self.marks.lock().unwrap())
        {
            let mut all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            if !all.any(|path| path.extension().is_some_and(|e| e == "changing")) {
                self.unmarked.lock().unwrap().push(key.clone());
            }
        }
    }
}

impl Said {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap())
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| (caps.domain, caps.page) = (None, Some(PAGE))))
}

async fn put(store: &Arc<dyn Store>, key: &str, content: u32, secs: i64) {
    let mtime = Some(Mtime::new(secs, 0));
    let spec = WriteSpec { size: Some(4), mtime, ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let bytes = Bytes::from(content.to_be_bytes().to_vec());
    let part = upload.part(0, 0, Payload::from(bytes)).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

async fn remove(store: &Arc<dyn Store>, key: &str) {
    store.delete(vec![(Key::new(key), None)]).await.remove(0).unwrap();
}

/// What a store holds: key, MD5.
async fn held(store: &Arc<dyn Store>) -> BTreeMap<String, String> {
    let mut steps = haul::list(store, &Arc::new(Filter::default()), haul::ListOptions::default());
    let mut all = BTreeMap::new();
    while let Some(step) = futures::StreamExt::next(&mut steps).await {
        if let haul_core::Listed::Batch(entries) = step {
            all.extend(entries.into_iter().map(|e| (e.key.display().to_string(), e.hashes.hex(Algo::Md5).unwrap())));
        }
    }
    all
}

fn name(n: usize) -> String {
    format!("d{}/{:05}", n % 7, n * 7919 % 100_003)
}

impl Pair {
    async fn new(files: usize) -> Pair {
        let pair = Pair::empty();
        for n in 0..files {
            put(&pair.src, &name(n), n as u32, 1_000).await;
        }
        pair
    }

    fn empty() -> Pair {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("index");
        let settings = Settings { folder, verify: false, content: false, seed: Some(1), minute: Some(30_000_000) };
        Pair { src: memory(), dst: Arc::new(Faulty::new(memory())), state, settings, notices: Arc::default() }
    }

    fn there(&self) -> Arc<dyn Store> {
        self.dst.clone()
    }

    async fn run(&self, verb: Verb) -> Report {
        self.run_with(verb, Job::default()).await
    }

    async fn run_with(&self, verb: Verb, job: Job) -> Report {
        self.run_as(verb, job, Filter::default()).await
    }

    async fn run_filtered(&self, verb: Verb, filter: Filter) -> Report {
        self.run_as(verb, Job::default(), filter).await
    }

    async fn run_as(&self, verb: Verb, job: Job, filter: Filter) -> Report {
        self.run_between(self.src.clone(), self.there(), verb, job, filter).await
    }

    async fn run_between(
        &self,
        src: Arc<dyn Store>,
        dst: Arc<dyn Store>,
        verb: Verb,
        job: Job,
        filter: Filter,
    ) -> Report {
        let cx = Cx {
            src,
            dst,
            backup: None,
            compare_dest: vec![],
            copy_dest: vec![],
            filter: Arc::new(filter),
            sink: self.notices.clone(),
            meters: Arc::new(Meters::default()),
            cancel: Cancel::default(),
            confirm: None,
            journal: None,
            known: EarlierKnowledge { index: Some(self.settings.clone()), ..EarlierKnowledge::default() },
        };
        haul::run(job.with(|job| job.verb = verb), cx).await
    }

    async fn open(&self, uses: IndexScope) -> Arc<RemoteIndex> {
        let sink: Arc<dyn Sink> = self.notices.clone();
        RemoteIndex::open(&self.settings, &self.there(), &sink, uses).await.unwrap()
    }

    /// The requests of a run: pages and questions.
    async fn count(&self, verb: Verb) -> (u64, u64, Report) {
        let before = (self.dst.calls(Op::List), self.dst.calls(Op::Stat));
        let report = self.run(verb).await;
        (self.dst.calls(Op::List) - before.0, self.dst.calls(Op::Stat) - before.1, report)
    }

    fn file(&self) -> PathBuf {
        let mut all = fs::read_dir(&self.settings.folder).unwrap().map(|entry| entry.unwrap().path());
        all.find(|path| path.extension().is_some_and(|e| e == "index")).unwrap()
    }

    #[track_caller]
    fn assert_equal(&self, src: &BTreeMap<String, String>, dst: &BTreeMap<String, String>, what: &str) {
        let differ: Vec<_> = src.iter().filter(|pair| dst.get(pair.0) != Some(pair.1)).collect();
        let extra: Vec<_> = dst.keys().filter(|key| !src.contains_key(*key)).collect();
        assert!(src == dst, "{what}: {differ:?} differ, {extra:?} are extra: {:?}", self.notices.take());
    }
}

#[tokio::test]
async fn a_second_run_asks_for_what_changed() {
    let pair = Pair::new(2_000).await;
    for verb in [Verb::Sync, Verb::Copy] {
        assert!(pair.run(verb).await.is_ok());
        let (pages, questions, report) = pair.count(verb).await;
        assert_eq!((pages, questions, report.totals.unchanged), (PAGES as u64, 0, 2_000), "{verb:?}");
        put(&pair.src, &name(77), 1, 2_000).await;
        put(&pair.src, "new/one", 1, 2_000).await;
        let (pages, questions, report) = pair.count(verb).await;
        assert_eq!(report.totals.transfers, if verb == Verb::Sync { 2 } else { 0 });
        assert!(pages + questions <= PAGES as u64 + 2, "{pages} {questions}");
        remove(&pair.src, &name(78)).await;
        let (pages, questions, report) = pair.count(verb).await;
        assert!(pages + questions <= PAGES as u64 + 2, "{pages} {questions}");
        assert_eq!(report.totals.deletes, u64::from(verb == Verb::Sync));
        let (src, dst) = (held(&pair.src).await, held(&pair.there()).await);
        pair.assert_equal(&src, &dst, "in the end");
    }
    assert_eq!(pair.notices.take(), Vec::<String>::new());
}

/// As without an index: what was seen under neither name may have been renamed.
#[tokio::test]
async fn what_vanished_from_the_source_is_not_deleted() {
    let pair = Pair::new(200).await;
    assert!(pair.run(Verb::Sync).await.is_ok());
    for gone in [name(17), name(18)] {
        let src = Faulty::new(pair.src.clone()).on(Op::List, 1, Fault::Vanish(Key::new(&gone)));
        let report = pair.run_between(Arc::new(src), pair.there(), Verb::Sync, Job::default(), Filter::default()).await;
        assert_eq!((report.totals.deletes, report.is_ok()), (0, true));
        assert!(held(&pair.there()).await.contains_key(&gone));
        remove(&pair.src, &gone).await;
        assert_eq!(pair.run(Verb::Sync).await.totals.deletes, 1);
    }
}

/// It has the names that the store has, so it tells of symlinks and, without the layer in which they are, of their files.
#[tokio::test]
async fn runs_that_keep_symlinks_share_the_index_of_those_that_do_not() {
    let pair = Pair::new(2_000).await;
    let link = |n: usize| format!("d{}/link{n}.rclonelink", n % 7);
    for n in 0..200 {
        put(&pair.src, &link(n), n as u32, 1_000).await;
    }
    assert!(pair.run(Verb::Sync).await.is_ok());
    let keeping = async || {
        let before = (pair.dst.calls(Op::List), pair.dst.calls(Op::Stat));
        let (src, dst) = (with_links(pair.src.clone(), Links::Keep), with_links(pair.there(), Links::Keep));
        let report = pair.run_between(src, dst, Verb::Sync, Job::default(), Filter::default()).await;
        (pair.dst.calls(Op::List) - before.0, pair.dst.calls(Op::Stat) - before.1, report)
    };
    let plain = pair.count(Verb::Sync).await;
    let (pages, questions, report) = keeping().await;
    assert_eq!((pages, questions, report.totals.unchanged), (plain.0, plain.1, 2_200));
    assert_eq!((report.totals.transfers, report.totals.deletes), (0, 0));
    // What one of them changes the other knows.
    remove(&pair.src, &link(3)).await;
    put(&pair.src, &link(4), 4_000, 2_000).await;
    put(&pair.src, &link(200), 200, 1_000).await;
    let (.., report) = keeping().await;
    assert_eq!((report.totals.transfers, report.totals.deletes, report.is_ok()), (2, 1, true));
    let (pages, questions, report) = pair.count(Verb::Sync).await;
    assert_eq!((pages, questions, report.totals.unchanged), (plain.0, plain.1, 2_200));
    let (src, dst) = (held(&pair.src).await, held(&pair.there()).await);
    pair.assert_equal(&src, &dst, "in the end");
    assert_eq!(pair.notices.take(), Vec::<String>::new());
}

/// A small index is audited completely, so a sync is right whatever other writers do.
#[tokio::test]
async fn a_small_index_is_never_wrong() {
    let pair = Pair::new(60).await;
    let there = pair.there();
    let mut random = 1u64;
    let mut dice = |sides: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % sides
    };
    for round in 0..150u32 {
        let (before, mut added) = (held(&there).await, Vec::new());
        for _ in 0..dice(4) {
            let key = name(dice(80) as usize);
            match dice(6) {
                0 => remove(&pair.src, &key).await,
                // The same size: only the time tells.
                1 => put(&pair.src, &key, round, 5_000 + i64::from(round)).await,
                2 | 3 => remove(&there, &key).await,
                4 => {
                    put(&there, &key, 1_000 + round, 9_000 + i64::from(round)).await;
                    added.extend(Some(key).filter(|key| !before.contains_key(key)));
                }
                _ => put(&there, &format!("others/{}", dice(3)), round, 1_000).await,
            }
        }
        assert!(pair.run(Verb::Sync).await.is_ok(), "{round}");
        let src = held(&pair.src).await;
        let mut dst = held(&there).await;
        // What others added is known from the audit, and deleted by the next run; what lies beyond the last key may stay.
        dst.retain(|key, _| !key.starts_with("others/") && (src.contains_key(key) || !added.contains(key)));
        pair.assert_equal(&src, &dst, &format!("round {round}"));
    }
}

/// Of 800 keys some are gone. A run finds it with the probability that its 160 audited keys give, within four standard deviations.
#[tokio::test]
async fn a_loss_is_found_as_often_as_promised() {
    let (keys, runs) = (800usize, 40u64);
    for lost in [2usize, 8] {
        let mut pair = Pair::new(keys).await;
        assert!(pair.run(Verb::Sync).await.is_ok());
        let whole = fs::read(pair.file()).unwrap();
        let (there, mut found) = (pair.there(), 0);
        let gone: Vec<usize> = (0..lost).map(|n| (n * 97 + 13) % keys).collect();
        let job = Job::default().with(|job| job.dry_run = true);
        for n in &gone {
            remove(&there, &name(*n)).await;
        }
        for seed in 0..runs {
            fs::write(pair.file(), &whole).unwrap();
            pair.settings.seed = Some(seed);
            let report = pair.run_with(Verb::Copy, job.clone()).await;
            let notices = pair.notices.take();
            found += u64::from(!notices.is_empty());
            // Which is more than the one that was found: all of the folder, or of everything, is looked at again.
            assert!(notices.is_empty() || report.totals.transfers > 0, "{notices:?}");
        }
        let shown = (PAGES * PAGE) as i32;
        let promised = 1.0 - (1.0 - lost as f64 / keys as f64).powi(shown);
        let deviation = (promised * (1.0 - promised) * runs as f64).sqrt();
        let wanted = promised * runs as f64;
        assert!(
            (found as f64 - wanted).abs() <= 4.0 * deviation + 1.0,
            "{lost} lost: {found} of {runs}, not {wanted:.0}"
        );
    }
}

/// A loss of what lies together in a sixteenth is always found, and repaired in the same run, all of it.
#[tokio::test]
async fn a_lost_folder_comes_back() {
    for seed in 0..12 {
        let mut pair = Pair::new(3_000).await;
        pair.settings.seed = Some(seed);
        assert!(pair.run(Verb::Copy).await.is_ok());
        let all = held(&pair.there()).await;
        for key in all.keys().filter(|key| key.starts_with("d3/")) {
            remove(&pair.there(), key).await;
        }
        let report = pair.run(Verb::Copy).await;
        assert!(report.is_ok());
        assert_eq!(held(&pair.there()).await.len(), 3_000, "seed {seed}: {:?}", pair.notices.take());
        let notices = pair.notices.take();
        assert!(notices[0].ends_with("is gone: all below d3/ is looked at again"), "{notices:?}");
    }
}

/// A key that is asked for anyway turns out to be gone: what was believed beside it is looked at again in the same run.
#[tokio::test]
async fn a_contradiction_after_the_audit_is_looked_into() {
    let mut pair = Pair::new(3_000).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    let in_order: Vec<String> = held(&pair.src).await.into_keys().collect();
    let mut hit = 0;
    for seed in 0..10 {
        pair.settings.seed = Some(seed);
        // Two that follow each other, which a page seldom shows; the source has the second one anew.
        let at = 700 + 31 * seed as usize;
        remove(&pair.there(), &in_order[at]).await;
        remove(&pair.there(), &in_order[at + 1]).await;
        put(&pair.src, &in_order[at + 1], seed as u32, 5_000 + seed as i64).await;
        let report = pair.run(Verb::Copy).await;
        assert!(
            report.is_ok() && report.totals.transfers == 2,
            "{} of 2: {:?}",
            report.totals.transfers,
            pair.notices.take()
        );
        hit += usize::from(!pair.notices.take().is_empty());
        let (src, dst) = (held(&pair.src).await, held(&pair.there()).await);
        pair.assert_equal(&src, &dst, "in the end");
    }
    assert_eq!(hit, 10, "each was said");
}

#[tokio::test]
async fn a_damaged_file_and_another_stores_are_not_believed() {
    let pair = Pair::new(300).await;
    assert!(pair.run(Verb::Sync).await.is_ok());
    put(&pair.src, &name(5), 9, 9_000).await;
    assert!(pair.run(Verb::Sync).await.is_ok());
    let whole = fs::read(pair.file()).unwrap();
    let file = pair.file();
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        for damaged in [&bytes, &whole[..at]] {
            fs::write(&file, damaged).unwrap();
            remove(&pair.there(), &name(7)).await;
            assert!(pair.run(Verb::Sync).await.is_ok());
            let (src, dst) = (held(&pair.src).await, held(&pair.there()).await);
            pair.assert_equal(&src, &dst, &format!("byte {at}"));
            assert!(fs::read(&file).unwrap().len() > 1_000, "it is made anew");
        }
    }
    // Another store's, under this one's name: what tells whose it is isn't right.
    let mut bytes = whole.clone();
    bytes[8..40].rotate_left(1);
    fs::write(&file, bytes).unwrap();
    let (pages, _, _) = pair.count(Verb::Sync).await;
    assert!(pages > PAGES as u64, "listed anew: {pages}");
}

/// The bucket was deleted, and there is another one of the same name.
#[tokio::test]
async fn another_bucket_of_the_same_name_is_filled() {
    for files in [40, 2_000] {
        let mut pair = Pair::new(files).await;
        assert!(pair.run(Verb::Copy).await.is_ok());
        pair.dst = Arc::new(Faulty::new(memory()));
        let report = pair.run(Verb::Copy).await;
        assert_eq!((report.totals.transfers, report.is_ok()), (files as u64, true));
        assert!(pair.notices.take()[0].contains("everything is looked at again"));
        let (pages, questions, _) = pair.count(Verb::Copy).await;
        assert!(pages + questions <= PAGES as u64, "{pages} {questions}");
    }
}

/// One process saw a key, the other deleted it: whoever ends last, it isn't taken to be there.
#[tokio::test]
async fn two_processes_never_leave_a_deleted_key_behind() {
    for seer_ends_last in [true, false] {
        for many in [false, true] {
            let pair = Pair::new(2_000).await;
            assert!(pair.run(Verb::Copy).await.is_ok());
            let there = pair.there();
            let (seer, deleter) = (pair.open(IndexScope::Nothing).await, pair.open(IndexScope::Nothing).await);
            let keys: Vec<String> = (0..if many { 1_500 } else { 3 }).map(name).collect();
            for key in &keys {
                seer.note_present(&there.stat(&Key::new(key)).await.unwrap());
                deleter.will_change(&Key::new(key)).await;
                remove(&there, key).await;
            }
            let (first, last) = if seer_ends_last { (deleter, seer) } else { (seer, deleter) };
            first.end().await;
            last.end().await;
            // The audit would find it too: none here.
            let index = pair.open(IndexScope::Nothing).await;
            for key in &keys {
                assert!(!index.has(&Key::new(key)).unwrap(), "{seer_ends_last} {many} {key}");
            }
            assert!(index.has(&Key::new(name(1_999))).unwrap());
        }
    }
}

#[tokio::test]
async fn a_run_that_was_killed_while_it_changed_something_costs_the_index() {
    let pair = Pair::new(500).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    let index = pair.open(IndexScope::Nothing).await;
    index.will_change(&Key::new(name(3))).await;
    // It is changing it: nobody believes the index meanwhile.
    let (pages, _, _) = pair.count(Verb::Copy).await;
    assert!(pages > PAGES as u64, "{pages}");
    for n in 3..203 {
        remove(&pair.there(), &name(n)).await;
    }
    // As a kill does, this ends without a word.
    drop(index);
    let (pages, _, report) = pair.count(Verb::Copy).await;
    assert!(pages > PAGES as u64, "{pages}");
    assert_eq!(report.totals.transfers, 200, "all that is gone comes back, whatever an audit would have shown");
    let notices = pair.notices.take();
    assert!(notices[0].contains("an earlier run was killed while it changed the destination"), "{notices:?}");
    let (pages, _, _) = pair.count(Verb::Copy).await;
    assert_eq!(pages, PAGES as u64, "and then it is believed again");
}

#[tokio::test]
async fn what_is_old_or_of_the_future_is_not_believed() {
    const DAY: u32 = 24 * 60;
    for (later, believed) in [(0, true), (6, true), (8, false), (-1i64, false)] {
        let mut pair = Pair::new(2_000).await;
        assert!(pair.run(Verb::Copy).await.is_ok());
        pair.settings.minute = Some(30_000_000u32.wrapping_add_signed(later as i32 * DAY as i32));
        // One that the audit of this seed doesn't show.
        let (pages, _, report) = pair.count(Verb::Copy).await;
        assert!(report.is_ok());
        assert_eq!(pages == PAGES as u64, believed, "{later} days: {pages} pages");
        let (pages, _, _) = pair.count(Verb::Copy).await;
        assert_eq!(pages, PAGES as u64, "{later} days: what was seen now is believed");
    }
}

/// The index has hashes, so it can decide a `--checksum` without a request. That refreshes no record.
#[tokio::test]
async fn what_only_the_index_says_grows_old() {
    let mut pair = Pair::new(3_000).await;
    let remote =
        MemStore::new().with_caps(|caps| (caps.domain, caps.page, caps.cheap_reads) = (None, Some(PAGE), false));
    pair.dst = Arc::new(Faulty::new(Arc::new(remote)));
    let job = Job::default().with(|job| job.compare.by = CompareBy::Checksum);
    assert!(pair.run_with(Verb::Copy, job.clone()).await.is_ok());
    // One that the audits of this seed don't show.
    remove(&pair.there(), &name(1)).await;
    for (day, transfers) in [(3, 0), (6, 0), (9, 1)] {
        pair.settings.minute = Some(30_000_000 + day * 24 * 60);
        let report = pair.run_with(Verb::Copy, job.clone()).await;
        assert_eq!(
            (report.totals.transfers, report.is_ok()),
            (transfers, true),
            "day {day}: {:?}",
            pair.notices.take()
        );
    }
}

#[tokio::test]
async fn verifying_says_what_is_wrong_and_makes_it_right() {
    let mut pair = Pair::new(2_000).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    remove(&pair.there(), &name(1)).await;
    put(&pair.there(), &name(2), 12_345, 9).await;
    pair.settings.verify = true;
    let report = pair.run(Verb::Copy).await;
    assert_eq!(report.totals.transfers, 2);
    let wanted = ":memory:: the index is right about 1998 keys, 1 are gone, 1 were changed by others";
    assert_eq!(pair.notices.take(), [wanted]);
    pair.settings.verify = false;
    let (pages, questions, _) = pair.count(Verb::Copy).await;
    assert_eq!((pages, questions), (PAGES as u64, 0));
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_costs_a_word() {
    let mut pair = Pair::new(20).await;
    let file = pair.state.path().join("file");
    fs::write(&file, b"").unwrap();
    pair.settings.folder = file;
    let report = pair.run(Verb::Sync).await;
    assert_eq!((report.is_ok(), report.totals.transfers), (true, 20));
    let notices = pair.notices.take();
    assert!(notices.len() == 1 && notices[0].starts_with("No index of :memory:: "), "{notices:?}");
}

/// A move deletes its source, so it believes only the store.
#[tokio::test]
async fn a_move_asks() {
    let pair = Pair::new(300).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    for n in 0..100 {
        remove(&pair.there(), &name(n)).await;
    }
    assert!(pair.run(Verb::Move).await.is_ok());
    assert_eq!((held(&pair.src).await.len(), held(&pair.there()).await.len()), (0, 300));
}

/// The store says that a key is gone, and it can't be sent again: the index must not go on saying that it is there, nor would it if the
/// run had been killed.
#[tokio::test]
async fn what_a_move_found_gone_is_not_there_for_the_next_copy() {
    let pair = Pair::new(3_000).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    let (src, there) = (&pair.src, pair.there());
    for n in 5..3_000 {
        remove(src, &name(n)).await;
    }
    remove(&there, &name(3)).await;
    let next = pair.dst.calls(Op::Publish) + 1;
    let fails = Fault::Fail(ErrorKind::Denied, Retry::Never);
    let _shared = (*pair.dst).clone().on(Op::Publish, next, fails);
    *pair.notices.marks.lock().unwrap() = Some(pair.settings.folder.clone());
    let before = pair.dst.calls(Op::Stat);
    let report = pair.run(Verb::Move).await;
    assert_eq!((report.error_count, held(src).await.len()), (1, 1));
    assert!(pair.dst.calls(Op::Stat) > before, "it asked, and didn't list all");
    assert_eq!(*pair.notices.unmarked.lock().unwrap(), Vec::<Key>::new());
    let index = pair.open(IndexScope::Nothing).await;
    assert!(!index.has(&Key::new(name(3))).unwrap() && index.has(&Key::new(name(4))).unwrap());
    let report = pair.run(Verb::Copy).await;
    assert_eq!((report.totals.transfers, report.totals.unchanged), (1, 0), "{:?}", pair.notices.take());
}

/// A copy tells the index of what the source has, not of all that is there; nor does a listing that leaves something out.
#[tokio::test]
async fn a_sync_goes_by_an_index_that_has_everything_only() {
    let pair = Pair::new(200).await;
    let there = pair.there();
    for n in 0..3_000 {
        put(&there, &format!("others/{n:05}"), n, 1_000).await;
    }
    assert!(pair.run(Verb::Copy).await.is_ok());
    let other = Key::new("others/02000");
    assert!(!pair.open(IndexScope::Nothing).await.has(&other).unwrap(), "it asked, and didn't list all");
    assert!(pair.run(Verb::Sync).await.is_ok());
    let (src, dst) = (held(&pair.src).await, held(&there).await);
    pair.assert_equal(&src, &dst, "after a copy");
    // A filtered listing makes the index anew, of what the filter lets through.
    for n in 0..3_000 {
        put(&there, &format!("others/{n:05}"), n, 1_000).await;
    }
    fs::remove_file(pair.file()).unwrap();
    let rules = FilterSpec { rules: vec!["- /others/**".into()], ..FilterSpec::default() };
    assert!(pair.run_filtered(Verb::Sync, Filter::new(rules.clone()).unwrap()).await.is_ok());
    let before = pair.dst.calls(Op::List);
    assert!(pair.run_filtered(Verb::Sync, Filter::new(rules).unwrap()).await.is_ok());
    assert!(pair.dst.calls(Op::List) - before <= PAGES as u64, "of the same filter it has everything");
    assert!(pair.run(Verb::Sync).await.is_ok());
    let (src, dst) = (held(&pair.src).await, held(&there).await);
    pair.assert_equal(&src, &dst, "after a filtered sync");
    // After a failed publish the old content may still exist, but the index no longer has it: the next sync looks.
    put(&pair.src, &name(3), 9, 9_000).await;
    let fails = Fault::Fail(ErrorKind::Denied, Retry::Never);
    let _shared = (*pair.dst).clone().on(Op::Publish, pair.dst.calls(Op::Publish) + 1, fails);
    assert_eq!(pair.run(Verb::Sync).await.error_count, 1);
    remove(&pair.src, &name(3)).await;
    assert!(pair.run(Verb::Sync).await.is_ok());
    let (src, dst) = (held(&pair.src).await, held(&there).await);
    pair.assert_equal(&src, &dst, "after an error");
}

/// `--suffix` moves a replaced file to another key, which the index then doesn't know.
#[tokio::test]
async fn a_backup_in_the_destination_is_no_secret() {
    let mut pair = Pair::empty();
    pair.dst = Arc::new(Faulty::new(Arc::new(MemStore::new().with_caps(|caps| caps.page = Some(PAGE)))));
    for n in 0..3_000 {
        put(&pair.src, &name(n), n as u32, 1_000).await;
    }
    let old = format!("{}.old", name(3));
    put(&pair.src, &old, 77, 3_000).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    put(&pair.src, &name(3), 8, 2_000).await;
    // Where the source has a file of that name, the backup gets another.
    remove(&pair.src, &old).await;
    let suffix = Job::default().with(|job| job.existing.backup_suffix = Some(".old".into()));
    let report = pair.run_with(Verb::Copy, suffix).await;
    assert_eq!((report.totals.transfers, report.is_ok()), (1, true), "{:?}", report.errors);
    assert!(!pair.open(IndexScope::Nothing).await.has(&Key::new(&old)).unwrap());
    put(&pair.src, &old, 77, 3_000).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    let (src, dst) = (held(&pair.src).await, held(&pair.there()).await);
    pair.assert_equal(&src, &dst, "in the end");
}

/// One began with an index, which was then dropped; the other without. What the one deletes the other may have seen before.
#[tokio::test]
async fn an_index_that_was_dropped_meanwhile_costs_what_others_saw() {
    let pair = Pair::new(300).await;
    assert!(pair.run(Verb::Copy).await.is_ok());
    let (there, key) = (pair.there(), Key::new(name(3)));
    let deleter = pair.open(IndexScope::Nothing).await;
    fs::remove_file(pair.file()).unwrap();
    let seer = pair.open(IndexScope::Nothing).await;
    seer.note_present(&there.stat(&key).await.unwrap());
    deleter.will_change(&key).await;
    remove(&there, &name(3)).await;
    deleter.note_missing(&key);
    deleter.end().await;
    seer.end().await;
    assert!(!pair.open(IndexScope::Nothing).await.has(&key).unwrap());
}
