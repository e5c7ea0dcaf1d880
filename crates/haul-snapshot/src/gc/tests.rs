#![allow(clippy::disallowed_methods)] // A test makes its own files.

use super::*;
use crate::{
    name::Version,
    push::{PushOptions as PushHow, PushOutcome, push},
};
use futures::{future::BoxFuture, stream::BoxStream};
use haul::Cx;
use haul_cas::{remote::Proof, state::State};
use haul_core::{
    Algo, Entry, Listed, Meta, Retry, Version as Pinned,
    event::{Event, Sink},
    hash::hash_bytes,
    job::Job,
};
use haul_mem::MemStore;
use haul_store::{
    Admin, Caps, CopyBatch, Encrypted, Hashing, Inodes, Lanes, Links, Read, Resumable, StoredFacts, Upload, Watch,
    WriteSpec,
};
use haul_testkit::faults::{Fault, Faulty, Op};
use std::{ops::Range, path::Path};

struct Nowhere;

impl Sink for Nowhere {
    fn emit(&self, _: &Event) {}
}

fn how() -> GcOptions {
    GcOptions { by: "test".into(), now: Mtime(2), settle: None, despite_dvc: false, ignore_marks: false }
}

async fn pushed(folder: &Path, dst: &Arc<dyn Store>) -> Version {
    let cx = Cx {
        src: haul_testkit::disk::open(folder, Links::Keep),
        dst: dst.clone(),
        backup: None,
        compare_dest: Vec::new(),
        copy_dest: Vec::new(),
        filter: Arc::default(),
        sink: Arc::new(Nowhere),
        meters: Arc::default(),
        cancel: Cancel::default(),
        confirm: None,
        journal: None,
        known: Default::default(),
    };
    let how = PushHow { name: "s".into(), now: Mtime(1), proof: Proof::Sampled, by: "test".into() };
    let pushed = push(&cx, &Job::default(), &how, &State::default()).await.unwrap();
    match pushed.outcome {
        PushOutcome::Made(version, _) | PushOutcome::Unchanged(version, _) => version,
        PushOutcome::None => panic!("{:?}", pushed.report.errors),
    }
}

/// A remote whose first version, of `a` and `both`, was removed; the second is of `b` and `both`.
async fn remote(folder: &Path) -> Arc<dyn Store> {
    let dst: Arc<dyn Store> = Arc::new(MemStore::new());
    std::fs::write(folder.join("a"), "a").unwrap();
    std::fs::write(folder.join("both"), "both").unwrap();
    let first = pushed(folder, &dst).await;
    std::fs::remove_file(folder.join("a")).unwrap();
    std::fs::write(folder.join("b"), "b").unwrap();
    let second = pushed(folder, &dst).await;
    assert_ne!(first, second);
    versions::remove(&dst, "s", &first).await.unwrap();
    dst
}

async fn keys(store: &Arc<dyn Store>) -> Vec<String> {
    all_of(store, ListRequest::all()).await.unwrap().iter().map(|entry| entry.key.to_string()).collect()
}

async fn content(store: &Arc<dyn Store>) -> Vec<String> {
    keys(store).await.into_iter().filter(|key| key.starts_with(CONTENT)).collect()
}

fn of(text: &str) -> String {
    let md5 = hash_bytes(&[Algo::Md5], text.as_bytes()).hex(Algo::Md5).unwrap();
    format!("{CONTENT}{}/{}", &md5[..2], &md5[2..])
}

/// All versions are whole.
async fn whole(store: &Arc<dyn Store>) {
    let mut known = crate::check::CheckedContent::default();
    for (name, versions) in versions::versions(store, None).await.unwrap() {
        for version in versions {
            let opened = crate::pull::open(store, &name, Some(&version.to_string())).await.unwrap();
            let checked = crate::check::check(store, &opened, true, &mut known).await.unwrap();
            assert!(checked.wrong.is_empty(), "{:?}", checked.wrong);
        }
    }
}

#[tokio::test]
async fn what_no_version_has_goes_and_the_rest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    assert_eq!(content(&store).await.len(), 7);
    let planned = plan(&store).await.unwrap();
    assert_eq!((planned.dirs.len(), planned.files.len(), planned.versions), (1, 2, 1));
    assert_eq!(planned.used.0, 4);
    let freed = collect(&store, &how(), &Cancel::default()).await.unwrap();
    assert!(freed.error.is_none() && freed.deleted == 3, "{freed:?}");
    let left = content(&store).await;
    assert!(left.len() == 4 && !left.contains(&of("a")) && left.contains(&of("both")), "{left:?}");
    whole(&store).await;
    // Only records and freed content are reported.
    let others: Vec<String> = keys(&store).await.into_iter().filter(|key| !key.starts_with(CONTENT)).collect();
    assert!(others.len() == 2 && others.iter().any(|key| key.starts_with("snapshots.marks/freed-")), "{others:?}");
    let again = collect(&store, &how(), &Cancel::default()).await.unwrap();
    assert!(again.error.is_none() && again.deleted == 0);
    // The folder as it was can be pushed again.
    std::fs::write(dir.path().join("a"), "a").unwrap();
    pushed(dir.path(), &store).await;
    assert!(content(&store).await.contains(&of("a")));
    whole(&store).await;
}

/// For every listing and read: an error, an early end, or a key that is missing from a listing.
#[tokio::test]
async fn any_error_before_the_first_deletion_means_that_nothing_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    let before = content(&store).await;
    let record = keys(&store).await.into_iter().find(|key| key.starts_with("snapshots/")).unwrap();
    let faults = [
        (Op::List, Fault::Fail(ErrorKind::Io, Retry::Never)),
        (Op::List, Fault::Cut(0)),
        (Op::List, Fault::Cut(1)),
        (Op::List, Fault::Break(1)),
        (Op::List, Fault::Omit(Key::new(&record))),
        (Op::Read, Fault::Fail(ErrorKind::Io, Retry::Never)),
        (Op::Read, Fault::Fail(ErrorKind::NotFound, Retry::Never)),
        (Op::Read, Fault::Break(3)),
        (Op::Read, Fault::Cut(3)),
        (Op::Publish, Fault::Fail(ErrorKind::Denied, Retry::Never)),
    ];
    for (op, fault) in faults {
        let mut harmless = 0;
        for nth in 1.. {
            let faulty = Faulty::new(store.clone()).on(op, nth, fault.clone());
            // A deletion would change what the next turn sees, so none is done here.
            let denied = Fault::Fail(ErrorKind::Denied, Retry::Never);
            let faulty = faulty.on(Op::Delete, 1, denied);
            let store_with_faults: Arc<dyn Store> = Arc::new(faulty.clone());
            let ended = collect(&store_with_faults, &how(), &Cancel::default()).await;
            if faulty.calls(op) < nth {
                break;
            }
            // This far: it would have deleted.
            harmless += usize::from(ended.is_ok());
            assert_eq!(content(&store).await, before, "{op:?} {nth} {fault:?}");
            let marks = keys(&store).await.into_iter().filter(|key| key.starts_with("snapshots.marks/"));
            let keys = marks.map(Key::new).collect();
            marks::remove(&store, keys).await.unwrap();
        }
        // A listing that is shorter than the cut isn't cut, and not every listing has the record.
        let spoils = op != Op::List || matches!(fault, Fault::Fail(..));
        assert!(!spoils || harmless == 0, "{op:?} {fault:?}: {harmless} runs would have deleted");
    }
}

#[tokio::test]
async fn a_version_that_can_not_be_read_or_is_not_known_means_that_nothing_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    let before = content(&store).await;
    let record = keys(&store).await.into_iter().find(|key| key.starts_with("snapshots/")).unwrap();
    for damage in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let store = remote(dir.path()).await;
        let opened = crate::pull::open(&store, "s", None).await.unwrap();
        let (key, line) = match damage {
            0 => (Key::new("snapshots/s/of-a-later-haul"), "?"),
            1 => (name::key("s", &opened.version), "{}"),
            _ => (opened.record.tree_address().key(), "{\"haul_tree\":1}\n"),
        };
        marks::write(&store, &key, line.into()).await.unwrap();
        let error = collect(&store, &how(), &Cancel::default()).await.unwrap_err();
        assert!(!error.message().is_empty());
        assert_eq!(content(&store).await.len(), before.len(), "{key}");
    }
    // All records lost: that isn't taken for all content unused.
    marks::remove(&store, vec![Key::new(&record)]).await.unwrap();
    let error = collect(&store, &how(), &Cancel::default()).await.unwrap_err();
    assert!(error.message().starts_with("Refused to delete: no version is at "), "{error}");
    assert_eq!(content(&store).await, before);
}

#[tokio::test]
async fn signs_of_dvc_stop_it() {
    for sign in ["files/md5/ab/0123456789abcdef0123456789abcd.dir", "ab/0123456789abcdef0123456789abcd", "runs/ab/x"] {
        let dir = tempfile::tempdir().unwrap();
        let store = remote(dir.path()).await;
        marks::write(&store, &Key::new(sign), b"[]".to_vec()).await.unwrap();
        let before = content(&store).await;
        let error = collect(&store, &how(), &Cancel::default()).await.unwrap_err();
        assert!(error.message().starts_with("Refused to delete: DVC seems to keep content here too: "), "{error}");
        assert_eq!(content(&store).await, before, "{sign}");
        let freed = collect(&store, &GcOptions { despite_dvc: true, ..how() }, &Cancel::default()).await.unwrap();
        assert!(freed.error.is_none() && freed.deleted >= 3, "{freed:?}");
        whole(&store).await;
    }
}

/// Lists go first, and all of them: where one is, its files are.
#[tokio::test]
async fn a_deletion_that_fails_ends_it_and_the_next_run_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    for nth in 1..=2 {
        let fault = Fault::FailItems(vec![0], ErrorKind::Denied, Retry::Never);
        let faulty: Arc<dyn Store> = Arc::new(Faulty::new(store.clone()).on(Op::Delete, nth, fault));
        let before = content(&store).await.len();
        let freed = collect(&faulty, &how(), &Cancel::default()).await.unwrap();
        assert_eq!(freed.error.as_ref().map(Error::kind), Some(ErrorKind::Denied));
        assert_eq!(before as u64 - freed.deleted, content(&store).await.len() as u64);
        assert!(nth > 1 || freed.deleted == 0, "files went before their list");
        whole(&store).await;
    }
    let freed = collect(&store, &how(), &Cancel::default()).await.unwrap();
    assert!(freed.error.is_none(), "{:?}", freed.error);
    assert_eq!(content(&store).await.len(), 4);
    whole(&store).await;
}

#[tokio::test]
async fn a_push_that_runs_stops_it_until_it_is_told_that_the_push_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    let mut mark = Mark::new(&store, MarkKind::Push, Mtime(1), "there, process 7").unwrap();
    // It had stored a list already.
    let list = Address { layout: Layout::V3, md5: [7; 16], dir: true };
    mark.add(&list);
    mark.set().await.unwrap();
    marks::write(&store, &list.key(), b"[]".to_vec()).await.unwrap();
    let error = collect(&store, &how(), &Cancel::default()).await.unwrap_err();
    let message = format!(
        "Refused to delete: a push is running (there, process 7): run this again when it is done. If it was killed, its mark {} counts for an hour, or until --ignore-marks",
        mark.key
    );
    assert_eq!(error.message(), message);
    assert_eq!(content(&store).await.len(), 8);
    // Its list isn't taken for DVC's.
    let freed = collect(&store, &GcOptions { ignore_marks: true, ..how() }, &Cancel::default()).await.unwrap();
    assert!(freed.error.is_none() && freed.deleted == 4, "{freed:?}");
    assert!(!keys(&store).await.contains(&mark.key.to_string()));
    whole(&store).await;
}

#[tokio::test]
async fn a_push_waits_for_a_gc() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    let mark = Mark::new(&store, MarkKind::Gc, Mtime(1), "there").unwrap();
    mark.set().await.unwrap();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("a"), "a").unwrap();
    let push = pushed(other.path(), &store);
    tokio::pin!(push);
    tokio::select! {
        _ = &mut push => panic!("it didn't wait"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    // Its own mark is withdrawn meanwhile, so that the gc goes on: and deletes what the push needs.
    let withdrawn = async {
        while keys(&store).await.iter().any(|key| key.starts_with("snapshots.marks/push-")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = &mut push => panic!("it didn't wait"),
        done = tokio::time::timeout(Duration::from_secs(60), withdrawn) => done.expect("its mark is withdrawn"),
    }
    marks::remove(&store, vec![Key::new(of("a"))]).await.unwrap();
    mark.clear().await.unwrap();
    push.await;
    assert!(content(&store).await.contains(&of("a")));
    whole(&store).await;
}

/// A store in which a gc that takes every mark for a dead one's runs right before a record is written.
#[derive(Debug)]
struct Sleepy(Arc<dyn Store>);

impl Store for Sleepy {
    fn locator(&self) -> &str {
        self.0.locator()
    }

    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        self.0.list(request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        self.0.stat(key)
    }

    fn read(&self, key: &Key, want: Option<&Pinned>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        self.0.read(key, want, range)
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let key = key.clone();
        Box::pin(async move {
            if key.as_bytes().starts_with(name::RECORDS.as_bytes()) {
                let how = GcOptions { ignore_marks: true, ..how() };
                let freed = collect(&self.0, &how, &Cancel::default()).await.unwrap();
                assert!(freed.error.is_none() && freed.deleted > 0, "{freed:?}");
            }
            self.0.write(&key, spec).await
        })
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.0.make_dir(key, spec)
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        self.0.copy(batch, watch)
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        self.0.set_meta(key, mtime, meta)
    }

    fn delete(&self, keys: Vec<(Key, Option<Pinned>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.0.delete(keys)
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.0.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.0.resumable()
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.0.inodes()
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.0.hashing()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.0.admin()
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.0.encrypted()
    }
}

/// It slept so long that it was taken for dead, and content that it had found there was freed: it finds that out, and sends it.
#[tokio::test]
async fn a_push_that_was_taken_for_dead_sends_what_was_freed() {
    let dir = tempfile::tempdir().unwrap();
    let store = remote(dir.path()).await;
    // `a` is there still, and no version has it.
    std::fs::write(dir.path().join("a"), "a").unwrap();
    let sleepy: Arc<dyn Store> = Arc::new(Sleepy(store.clone()));
    let version = pushed(dir.path(), &sleepy).await;
    let all = versions::versions(&store, None).await.unwrap();
    assert_eq!(all["s"].last(), Some(&version));
    assert!(content(&store).await.contains(&of("a")));
    whole(&store).await;
    assert!(!keys(&store).await.iter().any(|key| key.starts_with("snapshots.marks/push-")));
}

#[tokio::test]
async fn a_mark_that_is_listed_late_is_waited_for() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let mark = Mark::new(&store, MarkKind::Push, Mtime(1), "test").unwrap();
    mark.set().await.unwrap();
    let late: Arc<dyn Store> = Arc::new(Faulty::new(store).on(Op::List, 1, Fault::Omit(mark.key.clone())));
    let (_, others) = marks::beside(&late, &mark.key).await.unwrap();
    assert!(others.pushes.is_empty() && others.gcs.is_empty());
    mark.clear().await.unwrap();
    let error = marks::beside(&late, &mark.key).await.unwrap_err();
    assert_eq!(error.message(), "this run's own mark isn't listed at the remote any more");
}
