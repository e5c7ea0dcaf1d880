//! A plan as a stream of steps: what a job would do, told without doing it, and the same as what it does.

use futures::StreamExt;
use haul::Cx;
use haul_core::{
    Key,
    event::NoSink,
    job::{Job, RenameBy, Verb},
    plan::{Action, Step},
};
use haul_store::Links;
use haul_testkit::disk;
use std::{fs, path::Path, sync::Arc};
use tempfile::TempDir;

fn trees(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for dir in ["src", "dst"] {
        fs::create_dir(root.path().join(dir)).unwrap();
    }
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn cx(root: &Path) -> Cx {
    let [src, dst] = ["src", "dst"].map(|side| disk::open(&root.join(side), Links::Skip));
    super::part::cx(&src, &dst, Arc::new(NoSink))
}

async fn planned(job: Job, root: &Path) -> Vec<(Action, String)> {
    let mut steps = haul::plan(job, cx(root));
    let mut steps_seen: Vec<(Action, String)> = Vec::new();
    while let Some(step) = steps.next().await {
        steps_seen.push((step.action, step.key().unwrap().display().to_string()));
    }
    assert!(steps.report().is_ok(), "{:?}", steps.report().errors);
    steps_seen.sort_by(|a, b| a.1.cmp(&b.1));
    steps_seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_tells_each_key_and_changes_nothing() {
    let files = [("src/new/a", "1"), ("src/other", "22"), ("dst/other", "1"), ("dst/gone/b", "1"), ("dst/gone/c", "1")];
    let root = trees(&files);
    fs::write(root.path().join("src/same"), "1").unwrap();
    fs::copy(root.path().join("src/same"), root.path().join("dst/same")).unwrap();
    let time = fs::metadata(root.path().join("src/same")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(root.path().join("dst/same")).unwrap().set_modified(time).unwrap();
    let step = |action, key: &str| (action, key.to_owned());
    let expected = [
        step(Action::Delete, "gone/"),
        step(Action::Delete, "gone/b"),
        step(Action::Delete, "gone/c"),
        step(Action::MakeDir, "new/"),
        step(Action::Copy, "new/a"),
        step(Action::Copy, "other"),
        step(Action::Keep, "same"),
    ];
    assert_eq!(planned(Job::new(Verb::Sync), root.path()).await, expected);
    assert!(root.path().join("dst/gone/b").exists() && !root.path().join("dst/new").exists());
    let report = haul::run(Job::new(Verb::Sync), cx(root.path())).await;
    assert_eq!((report.totals.transfers, report.totals.deletes, report.totals.dirs_deleted), (2, 2, 1));
    assert_eq!(report.totals.unchanged, 1);
    let unchanged = ["new/", "new/a", "other", "same"].map(|key| step(Action::Keep, key));
    assert_eq!(planned(Job::new(Verb::Sync), root.path()).await, unchanged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_file_and_further_names_come_at_the_end() {
    let root = trees(&[("src/b", "the same"), ("dst/a", "the same"), ("src/one", "linked")]);
    fs::hard_link(root.path().join("src/one"), root.path().join("src/two")).unwrap();
    let job = Job::new(Verb::Sync).with(|job| {
        job.elsewhere.renamed = Some(RenameBy { hash: true, mtime: false, leaf: false });
        job.attributes.keep.hard_links = true;
    });
    let mut steps = haul::plan(job, cx(root.path()));
    let mut all: Vec<Step> = Vec::new();
    while let Some(step) = steps.next().await {
        all.push(step);
    }
    let renamed = all.iter().find(|step| step.action == Action::Rename).unwrap();
    assert_eq!(
        (renamed.src.as_ref().unwrap().key.clone(), renamed.dst.as_ref().unwrap().key.clone()),
        (Key::new("b"), Key::new("a"))
    );
    let last = all.last().unwrap();
    assert_eq!((last.action, last.key().cloned()), (Action::Link, Some(Key::new("two"))));
    assert_eq!(last.link_to, Some(Key::new("one")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_name_gets_a_step_where_the_first_is_not_copied() {
    let root = trees(&[("src/one", "linked"), ("dst/one", "other")]);
    for name in ["two", "three"] {
        fs::hard_link(root.path().join("src/one"), root.path().join("src").join(name)).unwrap();
    }
    let job = Job::new(Verb::Copy).with(|job| {
        job.existing.immutable = true;
        job.attributes.keep.hard_links = true;
    });
    let step = |action, key: &str| (action, key.to_owned());
    let expected = [step(Action::Refuse, "one"), step(Action::Copy, "three"), step(Action::Link, "two")];
    assert_eq!(planned(job, root.path()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_dropped_ends() {
    let root = trees(&[]);
    for at in 0..3000 {
        fs::write(root.path().join(format!("src/{at}")), "x").unwrap();
    }
    let context = cx(root.path());
    let store = Arc::downgrade(&context.src);
    let mut steps = haul::plan(Job::new(Verb::Copy), context);
    assert!(steps.next().await.is_some());
    drop(steps);
    // The walk held it.
    while store.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}
