//! What a job must never do to the only copy of something: each test is a way in which data could be lost.

use bytes::Bytes;
use futures::FutureExt as _;
use haul::{Answer, Cancel, Confirm, Cx, Report};
use haul_core::{
    Algo, ErrorKind, Key, Mtime, Retry,
    event::{Event, Sink},
    filter::{Filter, FilterSpec},
    hash::hash_bytes,
    job::{CompareBy, Cutoff, DeleteWhen, Job, Verb},
    plan::Action,
};
use haul_mem::MemStore;
use haul_store::{LateFacts, Links, Meters, Payload, Store, WriteSpec};
use haul_testkit::{
    disk,
    faults::{Fault, Faulty, Op},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// Does something when an event comes.
struct On<F>(F);

impl<F: Fn(&Event) + Send + Sync> Sink for On<F> {
    fn emit(&self, event: &Event) {
        (self.0)(event);
    }
}

fn open(path: &Path) -> Arc<dyn Store> {
    disk::open(path, Links::Skip)
}

/// Stores in memory that don't copy between themselves, as two clouds.
fn apart() -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| caps.domain = None))
}

pub async fn put(store: &Arc<dyn Store>, key: &str, text: &'static str, secs: i64) {
    let mtime = Some(Mtime::new(secs, 0));
    let spec = WriteSpec { size: Some(text.len() as u64), mtime, ..WriteSpec::default() };
    let upload = store.write(&Key::new(key), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(text.as_bytes()))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

async fn has(store: &Arc<dyn Store>, key: &str) -> bool {
    store.stat(&Key::new(key)).await.is_ok()
}

/// Surroundings with nothing special.
pub fn cx(src: Arc<dyn Store>, dst: Arc<dyn Store>) -> Cx {
    Cx {
        src,
        dst,
        backup: None,
        compare_dest: vec![],
        copy_dest: vec![],
        filter: Arc::new(Filter::default()),
        sink: Arc::new(On(|_: &Event| ())),
        meters: Arc::new(Meters::default()),
        cancel: Cancel::default(),
        confirm: None,
        journal: None,
        known: haul::index::EarlierKnowledge::default(),
    }
}

/// A folder with files to work on.
struct Disk(TempDir);

impl Disk {
    fn new() -> Self {
        Disk(tempfile::tempdir().unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, text: &str, secs: u64) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        self
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn store(&self, path: &str) -> Arc<dyn Store> {
        open(&self.path(path))
    }

    fn cx(&self, src: &str, dst: &str) -> Cx {
        cx(self.store(src), self.store(dst))
    }
}

fn filter(change: impl FnOnce(&mut FilterSpec)) -> Arc<Filter> {
    let mut spec = FilterSpec::default();
    change(&mut spec);
    Arc::new(Filter::new(spec).unwrap())
}

fn kinds(report: &Report) -> Vec<ErrorKind> {
    report.errors.iter().map(|e| e.kind()).collect()
}

#[tokio::test]
async fn a_folder_is_the_same_by_whatever_way_it_is_reached() {
    let disk = Disk::new();
    disk.file("src/a", "only copy", 1).file("other/x", "x", 1);
    std::os::unix::fs::symlink("src", disk.path("link")).unwrap();
    for (src, dst) in
        [("src", "link"), ("link", "src"), ("src", "other/../src"), ("src", "src/."), ("src", "new/../src")]
    {
        let report = haul::run(Job::new(Verb::Move), disk.cx(src, dst)).await;
        assert_eq!((kinds(&report), report.totals.transfers), (Vec::new(), 0), "{src} to {dst}");
        assert_eq!(disk.text("src/a").as_deref(), Some("only copy"), "{src} to {dst}");
    }
    let report = haul::run(Job::new(Verb::Sync), disk.cx("src", "link")).await;
    assert_eq!(kinds(&report), [ErrorKind::Invalid]);
    let (from, to) = (Key::new("a"), Key::new("a"));
    let report = haul::run_one(Job::new(Verb::Move), disk.cx("src", "link"), &from, &to).await;
    assert_eq!((report.error_count, report.totals.transfers), (0, 0));
    assert_eq!(disk.text("src/a").as_deref(), Some("only copy"));
}

#[tokio::test]
async fn two_names_of_one_file_are_not_moved_onto_each_other() {
    // What a bind mount looks like from here: one inode under two paths.
    let disk = Disk::new();
    disk.file("src/a", "only copy", 1).file("dst/b", "b", 1);
    fs::hard_link(disk.path("src/a"), disk.path("dst/a")).unwrap();
    let report = haul::run(Job::new(Verb::Move), disk.cx("src", "dst")).await;
    assert_eq!(disk.text("src/a").as_deref(), Some("only copy"));
    assert_eq!(report.error_count, 1);
}

#[tokio::test]
async fn a_move_into_a_folder_above_the_source_is_refused() {
    let disk = Disk::new();
    disk.file("top/in/x", "x", 1).file("top/in/in/x", "inner", 1);
    let report = haul::run(Job::new(Verb::Move), disk.cx("top/in", "top")).await;
    assert_eq!(kinds(&report), [ErrorKind::Invalid]);
    assert_eq!(disk.text("top/in/x").as_deref(), Some("x"));
    assert_eq!(disk.text("top/in/in/x").as_deref(), Some("inner"));
}

#[tokio::test]
async fn a_backup_inside_what_is_synced_is_refused() {
    for backup in ["dst", "dst/old", "src", "src/old"] {
        let disk = Disk::new();
        disk.file("src/a", "new", 2).file("dst/a", "old", 1).file("dst/b", "extra", 1);
        let mut cx = disk.cx("src", "dst");
        cx.backup = Some(disk.store(backup));
        let report = haul::run(Job::new(Verb::Sync), cx).await;
        assert_eq!(kinds(&report), [ErrorKind::Invalid], "{backup}");
        assert_eq!(disk.text("dst/a").as_deref(), Some("old"), "{backup}");
        assert_eq!(disk.text("dst/b").as_deref(), Some("extra"), "{backup}");
    }
    let disk = Disk::new();
    disk.file("src/a", "new", 2).file("dst/a", "old", 1);
    let mut cx = disk.cx("src", "dst");
    cx.backup = Some(disk.store("dst/old"));
    cx.filter = filter(|spec| spec.rules = vec!["- /old/**".into()]);
    let report = haul::run(Job::new(Verb::Sync), cx).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!(disk.text("dst/old/a").as_deref(), Some("old"));
}

#[tokio::test]
async fn a_source_that_changed_after_it_was_copied_is_not_deleted() {
    let disk = Disk::new();
    disk.file("src/a", "before", 1).file("src/b", "b", 1);
    let path = disk.path("src/a");
    let mut cx = cx(disk.store("src"), apart());
    cx.sink = Arc::new(On(move |event: &Event| {
        if matches!(event, Event::Done { key, .. } if *key == Key::new("a")) {
            fs::write(&path, "written since").unwrap();
        }
    }));
    let report = haul::run(Job::new(Verb::Move), cx).await;
    assert_eq!(disk.text("src/a").as_deref(), Some("written since"));
    assert_eq!(disk.text("src/b"), None);
    assert_eq!(kinds(&report), [ErrorKind::Changed]);
}

#[tokio::test]
async fn what_was_written_at_the_destination_since_it_was_listed_is_not_deleted() {
    let disk = Disk::new();
    disk.file("src/a", "a", 1).file("dst/gone", "old", 1).file("dst/kept", "old", 1);
    let path = disk.path("dst/kept");
    let mut cx = disk.cx("src", "dst");
    cx.sink = Arc::new(On(move |event: &Event| {
        if matches!(event, Event::Decided { key, action: Action::Delete, .. } if *key == Key::new("kept")) {
            fs::write(&path, "written since").unwrap();
        }
    }));
    let report = haul::run(Job::new(Verb::Sync), cx).await;
    assert_eq!(disk.text("dst/kept").as_deref(), Some("written since"));
    assert_eq!(disk.text("dst/gone"), None);
    assert_eq!(kinds(&report), [ErrorKind::Changed]);
}

#[tokio::test]
async fn names_of_one_file_can_all_be_deleted() {
    let disk = Disk::new();
    disk.file("src/z", "z", 1).file("dst/a", "old", 1);
    fs::hard_link(disk.path("dst/a"), disk.path("dst/b")).unwrap();
    let report = haul::run(Job::new(Verb::Sync), disk.cx("src", "dst")).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!((disk.text("dst/a"), disk.text("dst/b")), (None, None));
}

#[tokio::test]
async fn what_came_to_the_destination_since_it_was_listed_is_not_overwritten_by_a_move() {
    let disk = Disk::new();
    disk.file("src/a", "mine", 1);
    fs::create_dir(disk.path("dst")).unwrap();
    let path = disk.path("dst/a");
    let mut cx = disk.cx("src", "dst");
    cx.sink = Arc::new(On(move |event: &Event| {
        if matches!(event, Event::Begun { .. }) {
            fs::write(&path, "theirs").unwrap();
        }
    }));
    let report = haul::run(Job::new(Verb::Move), cx).await;
    assert_eq!(disk.text("src/a").as_deref(), Some("mine"));
    assert_eq!(disk.text("dst/a").as_deref(), Some("theirs"));
    assert_eq!(kinds(&report), [ErrorKind::Exists]);
}

#[tokio::test]
async fn a_run_that_was_cut_short_deletes_nothing() {
    for cutoff in [Cutoff::Soft, Cutoff::Cautious, Cutoff::Hard] {
        let disk = Disk::new();
        let big = "x".repeat(5 << 20);
        // Renamed at the source: the old name must stay until the new one has arrived.
        disk.file("src/a", &big, 1).file("src/b-new-name", &big, 1).file("dst/b-old-name", &big, 1);
        fs::create_dir(disk.path("dst/empty")).unwrap();
        let job = Job::new(Verb::Sync).with(|job| {
            job.limits.transfer = Some(6 << 20);
            job.limits.cutoff = cutoff;
            job.pace.transfers = Some(1);
        });
        let job = if cutoff == Cutoff::Cautious { job } else { job.with(|job| job.limits.transfer = Some(1)) };
        let report = haul::run(job, disk.cx("src", "dst")).await;
        assert!(report.transfer_limit, "{cutoff:?}");
        assert!(disk.path("dst/b-old-name").exists(), "{cutoff:?}");
        assert!(disk.path("dst/empty").exists(), "{cutoff:?}");
    }
}

#[tokio::test]
async fn moveto_with_a_copy_dest_deletes_only_what_it_moved() {
    let disk = Disk::new();
    disk.file("src/x", "moved", 1).file("src/y", "another file", 1).file("seed/y", "moved", 1);
    fs::create_dir(disk.path("dst")).unwrap();
    let mut cx = disk.cx("src", "dst");
    cx.copy_dest = vec![disk.store("seed")];
    let report = haul::run_one(Job::new(Verb::Move), cx, &Key::new("x"), &Key::new("y")).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!(disk.text("src/y").as_deref(), Some("another file"));
    assert_eq!(disk.text("src/x"), None);
    assert_eq!(disk.text("dst/y").as_deref(), Some("moved"));
}

#[tokio::test]
async fn what_compare_dest_has_is_left_out_also_beside_a_copy_dest() {
    let disk = Disk::new();
    disk.file("src/x", "there", 1).file("src/y", "seeded", 1).file("ref/x", "there", 1).file("seed/y", "seeded", 1);
    fs::create_dir(disk.path("dst")).unwrap();
    let mut cx = disk.cx("src", "dst");
    (cx.compare_dest, cx.copy_dest) = (vec![disk.store("ref")], vec![disk.store("seed")]);
    let report = haul::run(Job::new(Verb::Copy), cx).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!((disk.text("dst/x"), disk.text("dst/y").as_deref()), (None, Some("seeded")));
}

#[tokio::test]
async fn where_one_copy_dest_fails_the_next_is_tried() {
    let disk = Disk::new();
    disk.file("seed/a", "same", 1).file("other/a", "same", 1);
    fs::create_dir(disk.path("dst")).unwrap();
    let memory = apart();
    put(&memory, "a", "same", 1).await;
    let fails = Fault::Fail(ErrorKind::Denied, Retry::Never);
    let mut cx = cx(memory, Arc::new(Faulty::new(disk.store("dst")).on(Op::Copy, 1, fails)));
    cx.copy_dest = vec![disk.store("seed"), disk.store("other")];
    let report = haul::run(Job::new(Verb::Copy), cx).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!(disk.text("dst/a").as_deref(), Some("same"));
    assert_eq!((report.totals.transfers, report.totals.server_copies), (1, 1), "it didn't come from the source");
}

#[tokio::test]
async fn a_backup_is_made_once_however_often_the_transfer_is_tried() {
    let io = (ErrorKind::Io, Retry::Backoff);
    for (op, fault) in [
        (Op::Publish, Fault::Fail(io.0, io.1)),
        (Op::Publish, Fault::LoseAnswer(io.0, io.1)),
        (Op::Copy, Fault::Fail(ErrorKind::Unsupported, Retry::Never)),
    ] {
        let disk = Disk::new();
        disk.file("src/a", "new", 2).file("dst/a", "the old one", 1);
        let memory = apart();
        put(&memory, "a", "new", 2).await;
        let dst: Arc<dyn Store> = Arc::new(Faulty::new(disk.store("dst")).on(op, 1, fault.clone()));
        let mut cx = cx(if op == Op::Copy { disk.store("src") } else { memory }, dst);
        cx.backup = Some(disk.store("backup"));
        let report = haul::run(Job::new(Verb::Sync), cx).await;
        assert!(report.is_ok(), "{fault:?}: {:?}", report.errors);
        assert_eq!(disk.text("dst/a").as_deref(), Some("new"), "{fault:?}");
        assert_eq!(disk.text("backup/a").as_deref(), Some("the old one"), "{fault:?}");
    }
}

/// What refuses the second try of a write that may replace nothing is what the first one stored, or another's.
#[tokio::test]
async fn a_lost_answer_is_told_from_another_file() {
    let io = (ErrorKind::Io, Retry::Backoff);
    for (verb, others) in [(Verb::Copy, None), (Verb::Move, None), (Verb::Copy, Some("two")), (Verb::Move, Some("two"))]
    {
        let (src, there) = (apart(), apart());
        put(&src, "a", "one", 1).await;
        let fault = if others.is_some() { Fault::Fail(io.0, io.1) } else { Fault::LoseAnswer(io.0, io.1) };
        let mut cx = cx(src.clone(), Arc::new(Faulty::new(there.clone()).on(Op::Publish, 1, fault)));
        let dst = there.clone();
        cx.sink = Arc::new(On(move |event: &Event| {
            if let (Event::Retried { .. }, Some(text)) = (event, others) {
                put(&dst, "a", text, 1).now_or_never().expect("memory answers at once");
            }
        }));
        let job = Job::new(verb).with(|job| match verb {
            Verb::Move => job.existing.ignore = true,
            _ => job.existing.immutable = true,
        });
        let report = haul::run(job, cx).await;
        assert_eq!(report.is_ok(), others.is_none(), "{verb:?}, {others:?}: {:?}", report.errors);
        assert_eq!(report.totals.transfers, u64::from(others.is_none()), "{verb:?}, {others:?}");
        assert_eq!(has(&src, "a").await, verb == Verb::Copy || others.is_some(), "{verb:?}, {others:?}");
        let entry = there.stat(&Key::new("a")).await.unwrap();
        let read = haul::hash::read_and_hash(&there, &entry, &[Algo::Md5]).await.unwrap();
        let expected = hash_bytes(&[Algo::Md5], others.unwrap_or("one").as_bytes());
        assert!(read.agree(&expected).unwrap().1, "{verb:?}, {others:?}");
    }
}

#[tokio::test]
async fn what_only_a_size_or_an_age_leaves_out_of_the_source_is_not_absent() {
    let limits: [fn(&mut FilterSpec); 3] = [
        |spec| spec.max_size = Some(5),
        |spec| spec.older_than = Some(Mtime::new(50, 0)),
        |spec| spec.exclude_if_present = vec![".skip".into()],
    ];
    for (number, limit) in limits.into_iter().enumerate() {
        let disk = Disk::new();
        // Grew and is newer at the source, so that the limit takes it for left out there but not here.
        disk.file("src/d/f", "grown since", 100).file("dst/d/f", "old", 1);
        disk.file("src/a", "a", 1).file("dst/extra", "old", 1).file("src/d/.skip", "", 1);
        let mut cx = disk.cx("src", "dst");
        cx.filter = filter(limit);
        let report = haul::run(Job::new(Verb::Sync), cx.clone()).await;
        assert!(report.is_ok(), "{number}: {:?}", report.errors);
        assert_eq!(disk.text("dst/d/f").as_deref(), Some("old"), "{number}");
        assert_eq!(disk.text("dst/extra"), None, "{number}");
        // Asked for, it is deleted.
        let job = Job::new(Verb::Sync).with(|job| job.deletes.excluded = true);
        let report = haul::run(job, cx).await;
        assert!(report.is_ok(), "{number}: {:?}", report.errors);
        assert_eq!(disk.text("dst/d/f"), None, "{number}");
    }
}

#[tokio::test]
async fn what_only_a_limit_leaves_out_at_the_destination_is_still_compared() {
    let disk = Disk::new();
    disk.file("src/f", "new", 2).file("dst/f", "long and old", 1);
    let mut cx = disk.cx("src", "dst");
    cx.filter = filter(|spec| spec.max_size = Some(5));
    let job = Job::new(Verb::Copy).with(|job| job.existing.ignore = true);
    let report = haul::run(job, cx).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!(disk.text("dst/f").as_deref(), Some("long and old"));
}

#[tokio::test]
async fn what_is_proved_corrupt_is_not_left_to_be_taken_for_the_file() {
    let (src, dst) = (apart(), apart());
    put(&src, "a", "the content", 1).await;
    let faulty = (1..=3).fold(Faulty::new(dst.clone()), |f, n| f.on(Op::Publish, n, Fault::WrongHash));
    let report = haul::run(Job::new(Verb::Move), cx(src.clone(), Arc::new(faulty))).await;
    assert_eq!(kinds(&report), [ErrorKind::Corrupt]);
    assert!(has(&src, "a").await);
    assert!(!has(&dst, "a").await);
}

#[tokio::test]
async fn what_is_no_file_is_never_the_same_as_one() {
    let disk = Disk::new();
    disk.file("src/a", "", 1).file("target", "x", 1);
    fs::create_dir(disk.path("dst")).unwrap();
    // A link has no size, as the empty file.
    std::os::unix::fs::symlink("nothing", disk.path("dst/a")).unwrap();
    let job = Job::new(Verb::Move).with(|job| job.compare.by = CompareBy::SizeOnly);
    let report = haul::run(job, disk.cx("src", "dst")).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!(disk.text("dst/a").as_deref(), Some(""));
}

#[tokio::test]
async fn a_task_that_died_is_an_error_and_deletes_nothing() {
    let disk = Disk::new();
    for n in 0..3 {
        disk.file(&format!("src/{n}"), "x", 1);
    }
    // Same size, other time: compared on a task of its own.
    disk.file("dst/2", "y", 2).file("dst/extra", "old", 1);
    for begun in [true, false] {
        let mut cx = disk.cx("src", "dst");
        cx.sink = Arc::new(On(move |event: &Event| match event {
            Event::Begun { key, .. } if begun && *key == Key::new("0") => panic!("wanted by the test"),
            Event::Decided { key, .. } if !begun && *key == Key::new("2") => panic!("wanted by the test"),
            _ => {}
        }));
        let report = haul::run(Job::new(Verb::Sync), cx).await;
        assert!(report.error_count > 0);
        assert!(disk.path("dst/extra").exists());
        if begun {
            fs::write(disk.path("dst/2"), "z").unwrap();
        }
    }
}

struct No;

impl Confirm for No {
    fn ask(&self, _: &str, _: &Key) -> Answer {
        Answer::No
    }
}

/// Says yes to one question and quits at the next.
struct One(AtomicBool);

impl Confirm for One {
    fn ask(&self, _: &str, _: &Key) -> Answer {
        if self.0.swap(false, Ordering::Relaxed) { Answer::Yes } else { Answer::Quit }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_agreed_to_is_done_after_quitting() {
    for delete in [DeleteWhen::Before, DeleteWhen::During, DeleteWhen::After] {
        let disk = Disk::new();
        for number in 0..9 {
            disk.file(&format!("src/{number}"), "new", 1).file(&format!("dst/x{number}"), "extra", 1);
        }
        let mut cx = disk.cx("src", "dst");
        cx.confirm = Some(Arc::new(One(AtomicBool::new(true))));
        let mut job = Job::new(Verb::Sync);
        job.deletes.when = delete;
        let report = haul::run(job, cx).await;
        assert_eq!((report.stopped, report.error_count), (Some(ErrorKind::Cancelled), 0), "{delete:?}");
        // Deletions come first, or never after a run that was cut short.
        let (deleted, copied) = if delete == DeleteWhen::Before { (1, 0) } else { (0, 1) };
        assert_eq!((report.totals.deletes, report.totals.transfers), (deleted, copied), "{delete:?}");
        let there = fs::read_dir(disk.path("dst")).unwrap().count();
        assert_eq!(there as u64, 9 - deleted + copied, "{delete:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_asks_before_it_deletes_what_is_there_already() {
    let disk = Disk::new();
    disk.file("src/a", "a", 1).file("dst/a", "a", 1);
    let mut cx = disk.cx("src", "dst");
    cx.confirm = Some(Arc::new(No));
    let report = haul::run(Job::new(Verb::Move), cx).await;
    assert!(report.is_ok(), "{:?}", report.errors);
    assert_eq!(disk.text("src/a").as_deref(), Some("a"));
}
