//! The engine between two local folders: what a job leaves behind, and what it must never touch.

use haul::{Cancel, Cx, Report};
use haul_core::{
    ErrorKind, Key, Meta,
    event::{Event, NoSink, Sink},
    filter::{Filter, FilterSpec},
    job::{CompareBy, Cutoff, DeleteWhen, Job, Lookup, OrderBy, Publish, RenameBy, Verb},
};
use haul_store::{Links, Meters, Store};
use haul_testkit::disk;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

struct Bench {
    root: TempDir,
    job: Job,
    filter: FilterSpec,
    events: Arc<Recorder>,
    more: Vec<fn(&Bench, &mut Cx)>,
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Event>>);

impl Sink for Recorder {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

fn open(path: &Path) -> Arc<dyn Store> {
    disk::open(path, Links::Skip)
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("src")).unwrap();
        Bench { root, job: Job::default(), filter: FilterSpec::default(), events: Arc::default(), more: vec![] }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Writes a file with a modification time of so many seconds.
    fn file(&self, path: &str, text: &str, secs: u64) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        self
    }

    fn cx(&self) -> Cx {
        let mut cx = Cx {
            src: open(&self.path("src")),
            dst: open(&self.path("dst")),
            backup: None,
            compare_dest: vec![],
            copy_dest: vec![],
            filter: Arc::new(Filter::new(self.filter.clone()).unwrap()),
            sink: self.events.clone(),
            meters: Arc::new(Meters::default()),
            cancel: Cancel::default(),
            confirm: None,
            journal: None,
            known: haul::index::EarlierKnowledge::default(),
        };
        self.more.iter().for_each(|change| change(self, &mut cx));
        cx
    }

    async fn run(&self, verb: Verb) -> Report {
        haul::run(self.job.clone().with(|job| job.verb = verb), self.cx()).await
    }

    /// Every path below `at`, directories with a slash, files with their text.
    fn tree(&self, at: &str) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, out: &mut Vec<String>) {
            let Ok(read) = fs::read_dir(dir) else { return };
            for entry in read {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                if path.is_dir() {
                    out.push(format!("{name}/"));
                    walk(&path, root, out);
                } else {
                    out.push(format!("{name}={}", fs::read_to_string(&path).unwrap()));
                }
            }
        }
        let (mut out, root) = (vec![], self.path(at));
        walk(&root, &root, &mut out);
        out.sort();
        out
    }

    fn mtime(&self, path: &str) -> u64 {
        let modified = fs::metadata(self.path(path)).unwrap().modified().unwrap();
        modified.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_brings_files_and_their_times_and_a_second_run_does_nothing() {
    let b = Bench::new();
    b.file("src/a.txt", "a", 1_000).file("src/d/e/f", "fff", 2_000).file("src/d/.hidden", "", 3_000);
    fs::create_dir(b.path("src/empty")).unwrap();
    let report = b.run(Verb::Copy).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!((report.totals.transfers, report.totals.bytes), (3, 4));
    assert_eq!(b.tree("dst"), ["a.txt=a", "d/", "d/.hidden=", "d/e/", "d/e/f=fff"]);
    assert_eq!((b.mtime("dst/a.txt"), b.mtime("dst/d/e/f")), (1_000, 2_000));
    assert_eq!(b.mtime("dst/d"), b.mtime("src/d"));
    let again = b.run(Verb::Copy).await;
    assert_eq!((again.totals.transfers, again.totals.unchanged, again.totals.checks), (0, 3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_makes_the_destination_equal() {
    for when in [DeleteWhen::Before, DeleteWhen::During, DeleteWhen::After] {
        let mut b = Bench::new();
        b.job.deletes.when = when;
        b.job.dirs.create_empty = true;
        b.file("src/keep", "same", 5).file("src/new/x", "x", 5).file("dst/keep", "same", 5);
        b.file("dst/old/deep/y", "y", 5).file("dst/z", "z", 5);
        fs::create_dir(b.path("src/empty")).unwrap();
        let report = b.run(Verb::Sync).await;
        assert!(report.is_ok(), "{when:?}: {report:?}");
        assert_eq!(b.tree("dst"), ["empty/", "keep=same", "new/", "new/x=x"], "{when:?}");
        assert_eq!((report.totals.deletes, report.totals.dirs_deleted), (2, 2), "{when:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_source_empties_nothing_unless_the_user_says_so() {
    let mut b = Bench::new();
    b.file("dst/precious", "p", 5);
    let report = b.run(Verb::Sync).await;
    assert_eq!(report.stopped, Some(ErrorKind::Limit));
    assert!(report.errors[0].to_string().contains("is empty"), "{:?}", report.errors);
    assert_eq!(b.tree("dst"), ["precious=p"]);
    b.job.deletes.allow_empty_source = true;
    assert!(b.run(Verb::Sync).await.is_ok());
    assert!(b.tree("dst").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_source_is_an_error_and_leaves_no_empty_folder() {
    let b = Bench::new();
    fs::remove_dir(b.path("src")).unwrap();
    let report = b.run(Verb::Sync).await;
    assert_eq!(report.errors[0].kind(), ErrorKind::DirNotFound, "{:?}", report.errors);
    assert!(!b.path("dst").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn more_deletions_than_allowed_means_none() {
    let mut b = Bench::new();
    b.job.deletes.max = Some(1);
    b.file("src/a", "a", 5).file("dst/x", "x", 5).file("dst/y", "y", 5);
    let report = b.run(Verb::Sync).await;
    assert_eq!(report.stopped, Some(ErrorKind::Limit));
    assert_eq!(b.tree("dst"), ["a=a", "x=x", "y=y"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_anywhere_keeps_everything() {
    let b = Bench::new();
    // A directory where a file must go: that file can't be written.
    b.file("src/a", "a", 5).file("dst/a/inside", "i", 5).file("dst/extra", "x", 5);
    let report = b.run(Verb::Sync).await;
    assert!(report.error_count >= 2, "{report:?}");
    assert_eq!(b.tree("dst"), ["a/", "a/inside=i", "extra=x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_hold_on_both_sides() {
    let mut b = Bench::new();
    b.filter.rules = vec!["- *.tmp".into(), "- /cache/**".into()];
    b.file("src/a", "a", 5).file("src/b.tmp", "b", 5).file("src/cache/c", "c", 5);
    b.file("dst/d.tmp", "d", 5).file("dst/cache/e", "e", 5).file("dst/f", "f", 5);
    assert!(b.run(Verb::Sync).await.is_ok());
    assert_eq!(b.tree("dst"), ["a=a", "cache/", "cache/e=e", "d.tmp=d"]);
    b.job.deletes.excluded = true;
    assert!(b.run(Verb::Sync).await.is_ok());
    assert_eq!(b.tree("dst"), ["a=a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn move_takes_the_source_away_also_of_what_was_there_already() {
    let mut b = Bench::new();
    b.job.dirs.delete_empty_sources = true;
    b.file("src/d/a", "a", 5).file("src/b", "b", 6).file("dst/b", "b", 6);
    let report = b.run(Verb::Move).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(b.tree("dst"), ["b=b", "d/", "d/a=a"]);
    assert!(b.tree("src").is_empty());
    assert_eq!((report.totals.transfers, report.totals.deletes), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_says_what_it_would_do() {
    let mut b = Bench::new();
    b.job.dry_run = true;
    b.file("src/a", "aa", 5).file("dst/x", "x", 5);
    let report = b.run(Verb::Sync).await;
    assert!(report.is_ok());
    assert_eq!((report.totals.transfers, report.totals.bytes, report.totals.deletes), (1, 2, 1));
    assert_eq!(b.tree("dst"), ["x=x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_that_decide_what_is_copied() {
    let case = |change: fn(&mut Job)| async move {
        let mut b = Bench::new();
        change(&mut b.job);
        b.file("src/new", "n", 5).file("src/both", "source", 10).file("dst/both", "target", 20);
        let report = b.run(Verb::Copy).await;
        (b.tree("dst"), report.error_count)
    };
    assert_eq!(case(|_| ()).await.0, ["both=source", "new=n"]);
    assert_eq!(case(|p| p.existing.ignore = true).await.0, ["both=target", "new=n"]);
    assert_eq!(case(|p| p.existing.only = true).await.0, ["both=source"]);
    assert_eq!(case(|p| p.existing.update = true).await.0, ["both=target", "new=n"]);
    assert_eq!(case(|p| p.compare.by = CompareBy::SizeOnly).await.0, ["both=target", "new=n"]);
    assert_eq!(case(|p| p.compare.by = CompareBy::Checksum).await.0, ["both=source", "new=n"]);
    assert_eq!(case(|p| p.listing.lookup = Lookup::Never).await.0, ["both=source", "new=n"]);
    assert_eq!(case(|p| p.listing.no_traverse = true).await.0, ["both=source", "new=n"]);
    assert_eq!(case(|p| p.existing.immutable = true).await, (vec!["both=target".to_owned(), "new=n".to_owned()], 1));
    assert_eq!(case(|p| p.write.publish = Publish::InPlace).await.0, ["both=source", "new=n"]);
    assert_eq!(case(|p| p.write.verify_read = true).await.0, ["both=source", "new=n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_bytes_with_another_time_get_the_time_only() {
    let b = Bench::new();
    b.file("src/a", "same", 10).file("dst/a", "same", 20);
    let report = b.run(Verb::Copy).await;
    assert_eq!((report.totals.touched, report.totals.transfers), (1, 0));
    assert_eq!(b.mtime("dst/a"), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_and_deleted_files_go_to_the_backup() {
    let mut b = Bench::new();
    b.more.push(|b, cx| cx.backup = Some(open(&b.path("old"))));
    b.file("src/d/a", "new", 10).file("dst/d/a", "old!", 20).file("dst/gone", "g", 5);
    let report = b.run(Verb::Sync).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(b.tree("dst"), ["d/", "d/a=new"]);
    assert_eq!(b.tree("old"), ["d/", "d/a=old!", "gone=g"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suffix_keeps_what_is_replaced() {
    let mut b = Bench::new();
    b.job.existing.backup_suffix = Some(".bak".into());
    b.file("src/a", "new", 10).file("dst/a", "old!", 20);
    assert!(b.run(Verb::Copy).await.is_ok());
    assert_eq!(b.tree("dst"), ["a.bak=old!", "a=new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_elsewhere_is_not_sent() {
    let mut b = Bench::new();
    b.file("src/a", "a", 10).file("src/b", "b", 10).file("full/a", "a", 10);
    b.more.push(|b, cx| cx.compare_dest = vec![open(&b.path("full"))]);
    assert_eq!(b.run(Verb::Copy).await.totals.transfers, 1);
    assert_eq!(b.tree("dst"), ["b=b"]);
    b.more = vec![|b, cx| cx.copy_dest = vec![open(&b.path("full"))]];
    assert!(b.run(Verb::Copy).await.is_ok());
    assert_eq!(b.tree("dst"), ["a=a", "b=b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_files_are_renamed_there() {
    let mut b = Bench::new();
    b.job.elsewhere.renamed = Some(RenameBy { hash: true, mtime: false, leaf: false });
    b.file("src/new/name", "content", 10).file("src/other", "other", 10);
    b.file("dst/old", "content", 10).file("dst/same-size", "CONTENT", 10);
    b.job.dry_run = true;
    let totals = b.run(Verb::Sync).await.totals;
    assert_eq!((totals.renames, totals.transfers, totals.deletes), (1, 1, 1));
    assert_eq!(b.tree("dst"), ["old=content", "same-size=CONTENT"]);
    b.job.dry_run = false;
    let report = b.run(Verb::Sync).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!((report.totals.renames, report.totals.transfers, report.totals.deletes), (1, 1, 1));
    assert_eq!(b.tree("dst"), ["new/", "new/name=content", "other=other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_stop_the_job_and_are_reported() {
    for cutoff in [Cutoff::Soft, Cutoff::Cautious] {
        let mut b = Bench::new();
        (b.job.limits.transfer, b.job.limits.cutoff, b.job.pace.transfers) = (Some(10), cutoff, Some(1));
        // One batch is one start: several files too large to share one.
        b.job.compare.by = CompareBy::Never;
        for i in 0..4 {
            b.file(&format!("src/{i}"), &"x".repeat(5 << 20), 5);
        }
        let report = b.run(Verb::Copy).await;
        assert!(report.transfer_limit, "{cutoff:?}");
        let want = if cutoff == Cutoff::Soft { 1 } else { 0 };
        assert_eq!(report.totals.transfers, want, "{cutoff:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roots_that_would_eat_themselves_are_refused() {
    let b = Bench::new();
    b.file("src/a", "a", 5);
    let refused = |dst: &'static str, verb| {
        let cx = Cx { dst: open(&b.path(dst)), ..b.cx() };
        async move { haul::run(Job::new(verb), cx).await.errors.first().map(|e| e.to_string()) }
    };
    assert!(refused("src", Verb::Sync).await.unwrap().contains("are the same"));
    assert!(refused("src/in", Verb::Copy).await.unwrap().contains("is inside the source"));
    assert!(refused("", Verb::Sync).await.unwrap().contains("is inside the destination"));
    assert_eq!(b.tree("src"), ["a=a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_goes_under_a_name_of_its_own() {
    let b = Bench::new();
    b.file("src/a", "a", 7);
    let to = Key::new("deep/b");
    let report = haul::run_one(Job::new(Verb::Copy), b.cx(), &Key::new("a"), &to).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(b.tree("dst"), ["deep/", "deep/b=a"]);
    let report = haul::run_one(Job::new(Verb::Copy), b.cx(), &Key::new("nope"), &to).await;
    assert_eq!(report.errors[0].kind(), ErrorKind::NotFound);
    let report = haul::run_one(Job::new(Verb::Move), b.cx(), &Key::new("a"), &to).await;
    assert_eq!((report.totals.unchanged, b.tree("src").len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_start_in_the_order_asked_for() {
    let mut b = Bench::new();
    b.job.pace.transfers = Some(1);
    b.job.pace.check_first = true;
    b.job.write.publish = Publish::InPlace; // one at a time, not in batches
    b.job.pace.order_by = Some(OrderBy { by: haul_core::job::TransferOrder::Size, descending: true, mixed: None });
    b.file("src/s", "1", 5).file("src/l", "333", 5).file("src/m", "22", 5);
    assert!(b.run(Verb::Copy).await.is_ok());
    let events = b.events.0.lock().unwrap();
    let begun = events.iter().filter_map(|e| match e {
        Event::Begun { key, .. } => Some(key.to_string()),
        _ => None,
    });
    assert_eq!(begun.collect::<Vec<_>>(), ["l", "m", "s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_starts_nothing() {
    let mut b = Bench::new();
    b.more.push(|_, cx| cx.cancel.cancel());
    b.file("src/a", "a", 5);
    let report = b.run(Verb::Copy).await;
    assert_eq!(report.stopped, Some(ErrorKind::Cancelled));
    assert!(b.tree("dst").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_goes_along_when_asked() {
    use std::os::unix::fs::PermissionsExt;
    let mut b = Bench::new();
    b.file("src/run.sh", "#!", 5);
    fs::set_permissions(b.path("src/run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    b.job.attributes.metadata = true;
    b.job.attributes.metadata_set = Meta::default().into_iter().collect();
    assert!(b.run(Verb::Copy).await.is_ok());
    assert_eq!(fs::metadata(b.path("dst/run.sh")).unwrap().permissions().mode() & 0o7777, 0o750);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_files_in_many_directories() {
    let b = Bench::new();
    for i in 0..10_000 {
        b.file(&format!("src/d{:03}/f{i}", i % 100), "x", 5);
    }
    let report = haul::run(Job::new(Verb::Sync), Cx { sink: Arc::new(NoSink), ..b.cx() }).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.totals.transfers, 10_000);
    assert_eq!(b.tree("src"), b.tree("dst"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_and_counts_what_a_run_does_and_does_nothing() {
    let mut b = Bench::new();
    b.file("src/new/a", "1", 5).file("src/other", "22", 5).file("dst/other", "1", 5).file("src/one", "linked", 5);
    b.file("src/same", "x", 5).file("dst/same", "x", 5).file("src/time", "x", 5).file("dst/time", "x", 6);
    b.file("dst/gone/b", "1", 5).file("dst/gone/deep/c", "1", 5);
    fs::hard_link(b.path("src/one"), b.path("src/two")).unwrap();
    b.job.attributes.keep.perms = true;
    b.job.attributes.keep.hard_links = true;
    b.job.tell.details = true;
    let mut runs = Vec::new();
    for dry_run in [true, false] {
        let before = b.tree("dst");
        b.job.dry_run = dry_run;
        let report = b.run(Verb::Sync).await;
        assert!(report.is_ok(), "{report:?}");
        assert_eq!(b.tree("dst") == before, dry_run);
        let mut actions = Vec::new();
        for event in std::mem::take(&mut *b.events.0.lock().unwrap()) {
            match event {
                Event::Decided { key, action, why, size, dry_run: told_dry, .. } => {
                    assert_eq!(told_dry, dry_run);
                    actions.push(format!("{key} {action:?} {why:?} {size}"));
                }
                Event::DirExtra { key, deleted, .. } => actions.push(format!("{key} {deleted}")),
                Event::Linked { key, to } => actions.push(format!("{key} {to}")),
                _ => {}
            }
        }
        actions.sort();
        let totals = report.totals;
        let changes = [totals.transfers, totals.bytes, totals.touched, totals.links];
        runs.push((actions, changes, totals.deletes, totals.dirs_deleted));
    }
    assert_eq!(runs[0], runs[1]);
    let (told, changes, deletes, dirs) = &runs[0];
    assert_eq!((told.len(), changes, *deletes, *dirs), (11, &[3, 9, 1, 1], 2, 2), "{told:?}");
}

/// More than a batch of them wait at once.
#[tokio::test(flavor = "multi_thread")]
async fn every_unchanged_file_is_looked_at() {
    let mut b = Bench::new();
    (0..3000).for_each(|i| _ = b.file(&format!("src/{i}"), "", 5));
    b.job.attributes.keep.perms = true;
    b.job.attributes.keep.xattrs = true;
    assert_eq!(b.run(Verb::Copy).await.totals.transfers, 3000);
    for dry_run in [true, false] {
        b.job.dry_run = dry_run;
        let report = b.run(Verb::Copy).await;
        assert_eq!((report.totals.unchanged, report.totals.transfers), (3000, 0), "dry run: {dry_run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_circle_is_one_error_and_the_rest_is_copied() {
    let mut b = Bench::new();
    b.file("src/a/f", "f", 5).file("src/z", "z", 5);
    std::os::unix::fs::symlink("..", b.path("src/a/loop")).unwrap();
    b.more.push(|b, cx| cx.src = disk::open(&b.path("src"), Links::Follow));
    let report = b.run(Verb::Copy).await;
    assert_eq!(report.error_count, 1, "{report:?}");
    assert_eq!(b.tree("dst"), ["a/", "a/f=f", "z=z"]);
}
