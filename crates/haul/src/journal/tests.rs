#![allow(clippy::disallowed_methods)] // A test makes and reads its own files.

use super::*;
use haul_core::{Mtime, Version};
use haul_mem::MemStore;
use haul_store::Part;
use std::{fs, os::unix::fs::PermissionsExt};

fn job() -> JobInfo {
    JobInfo {
        mode: "copy".into(),
        src: "/src".into(),
        dst: "r:b".into(),
        argv: vec![b"copy".to_vec(), b"/src".to_vec(), b"r:b".to_vec()],
        complete: true,
        folder: b"/".to_vec(),
        names_file: false,
        begun: Mtime(7),
        host: String::new(),
    }
}

fn opened(to: &str) -> StartedWrite {
    StartedWrite {
        from: Key::new(to),
        version: Version::new("v"),
        size: 100,
        to: Key::new(to),
        part_size: 10,
        token: to.into(),
    }
}

fn sent(index: u64) -> SentPart {
    SentPart { part: Part { index, size: 10, tag: b"t".to_vec() }, offset: index * 10, crc64: 1 }
}

fn id() -> JobId {
    JobId("0011223344556677".into())
}

fn open(folder: &Path) -> Result<Journal> {
    Journal::open(folder, &id(), job())
}

/// Leaves what a dead process leaves: the file, without a final record.
async fn killed(journal: Journal) {
    let barrier = journal.state().writer.as_ref().map(Writer::barrier);
    if let Some(barrier) = barrier {
        barrier.await.unwrap();
    }
    let path = journal.0.path.clone();
    drop(journal);
    // The writer's thread lets go of the file when it notices.
    while file::look(&path).is_ok_and(|(_, running)| running) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_made_before_a_large_file_begins() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("state/jobs");
    let journal = open(&folder).unwrap();
    assert_eq!((journal.half_done().0, journal.take(&Key::new("x")).len()), (0, 0));
    journal.end().await.unwrap();
    assert!(!folder.exists());
    assert!(unfinished(&folder).unwrap().0.is_empty());
}

#[tokio::test]
async fn a_job_that_ends_well_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let journal = open(temp.path()).unwrap();
    let write = journal.opened(opened("x")).await.unwrap().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&journal.0.path), 0o600);
    journal.part(write, sent(0));
    journal.closed(write);
    journal.end().await.unwrap();
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_next_run_finds_what_a_killed_one_did() {
    let temp = tempfile::tempdir().unwrap();
    let journal = open(temp.path()).unwrap();
    let x = journal.opened(opened("x")).await.unwrap().unwrap();
    let y = journal.opened(opened("y")).await.unwrap().unwrap();
    let z = journal.opened(opened("z")).await.unwrap().unwrap();
    journal.part(x, sent(3));
    journal.part(x, sent(1));
    journal.part(y, sent(0));
    journal.closed(z);
    killed(journal).await;

    let (jobs, unreadable) = unfinished(temp.path()).unwrap();
    assert!(unreadable.is_empty());
    assert_eq!((jobs.len(), &jobs[0].id, &jobs[0].job), (1, &id(), &job()));
    assert_eq!(jobs[0].halves.iter().map(UnfinishedWrite::bytes).collect::<Vec<_>>(), [20, 10]);
    assert!(!jobs[0].running && !jobs[0].ended);

    let journal = open(temp.path()).unwrap();
    assert_eq!(journal.half_done().0, 2);
    let [half] = &journal.take(&Key::new("x"))[..] else { panic!("one was left") };
    assert_eq!((half.write, &half.opened, &half.sent[..]), (x, &opened("x"), &[sent(1), sent(3)][..]));
    journal.part(x, sent(2));
    // A run that is stopped says so; what it had no time for stays known.
    journal.end().await.unwrap();
    drop(journal);
    let (jobs, _) = unfinished(temp.path()).unwrap();
    assert!(jobs[0].ended);
    assert_eq!(jobs[0].halves.iter().map(UnfinishedWrite::bytes).collect::<Vec<_>>(), [30, 10]);

    let journal = open(temp.path()).unwrap();
    journal.closed(journal.take(&Key::new("x"))[0].write);
    let rest = journal.take_rest();
    assert_eq!(rest.iter().map(|half| half.opened.to.clone()).collect::<Vec<_>>(), [Key::new("y")]);
    journal.closed(rest[0].write);
    let new = journal.opened(opened("new")).await.unwrap().unwrap();
    assert!(new > z, "numbers aren't used twice");
    journal.closed(new);
    journal.end().await.unwrap();
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn one_process_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let (first, second) = (open(temp.path()).unwrap(), open(temp.path()).unwrap());
    let write = first.opened(opened("x")).await.unwrap().unwrap();
    assert_eq!(open(temp.path()).unwrap_err().kind(), ErrorKind::Busy);
    assert!(unfinished(temp.path()).unwrap().0[0].running);
    // Both saw that there was none; only one made it.
    assert_eq!(second.opened(opened("x")).await.unwrap_err().kind(), ErrorKind::Busy);
    second.end().await.unwrap();
    first.part(write, sent(0));
    killed(first).await;
    assert_eq!(open(temp.path()).unwrap().take(&Key::new("x"))[0].sent, [sent(0)]);
}

#[tokio::test]
async fn a_torn_end_is_cut_off_and_written_over() {
    let temp = tempfile::tempdir().unwrap();
    let journal = open(temp.path()).unwrap();
    let path = journal.0.path.clone();
    let write = journal.opened(opened("x")).await.unwrap().unwrap();
    journal.part(write, sent(0));
    journal.part(write, sent(1));
    killed(journal).await;
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let journal = open(temp.path()).unwrap();
    assert_eq!(journal.take(&Key::new("x"))[0].sent, [sent(0)]);
    journal.part(write, sent(5));
    killed(journal).await;
    assert_eq!(open(temp.path()).unwrap().take(&Key::new("x"))[0].sent, [sent(0), sent(5)]);
}

#[tokio::test]
async fn a_damaged_beginning_begins_anew() {
    let temp = tempfile::tempdir().unwrap();
    let path = path(temp.path(), &id());
    for damaged in [&b""[..], b"HAULJRNL", &record::header(), b"something else altogether"] {
        fs::write(&path, damaged).unwrap();
        let (jobs, unreadable) = unfinished(temp.path()).unwrap();
        let kinds: Vec<ErrorKind> = unreadable.iter().map(|error| error.kind()).collect();
        // In an empty one nothing was noted, so nothing is lost.
        let expected = if damaged.is_empty() { &[][..] } else { &[ErrorKind::Corrupt] };
        assert_eq!((jobs.len(), &kinds[..]), (0, expected));
        let journal = open(temp.path()).unwrap();
        assert_eq!(journal.half_done(), (0, 0));
        killed(journal).await;
        assert_eq!(unfinished(temp.path()).unwrap().0[0].job, job());
    }
}

#[tokio::test]
async fn a_journal_of_another_format_is_refused_and_kept() {
    let temp = tempfile::tempdir().unwrap();
    let path = path(temp.path(), &id());
    let mut bytes = b"HAULJRNL\x02\0\0\0".to_vec();
    let crc = haul_core::hash::hash_bytes(&[Algo::Crc32c], &bytes);
    bytes.extend(crc.get(Algo::Crc32c).unwrap().iter().rev());
    fs::write(&path, &bytes).unwrap();
    let error = open(temp.path()).unwrap_err();
    let want = format!("{} is of format 2, and this haul reads format 1: use the haul that wrote it", path.display());
    assert_eq!((error.kind(), error.message()), (ErrorKind::Unsupported, &want[..]));
    assert_eq!(unfinished(temp.path()).unwrap().1.len(), 1);
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn dead_weight_is_dropped_when_it_is_opened_again() {
    let temp = tempfile::tempdir().unwrap();
    let journal = open(temp.path()).unwrap();
    let path = journal.0.path.clone();
    let x = journal.opened(opened("x")).await.unwrap().unwrap();
    for _ in 0..4000 {
        journal.part(x, sent(0));
    }
    killed(journal).await;
    let before = fs::metadata(&path).unwrap().len();
    let journal = open(temp.path()).unwrap();
    assert!(before > 200_000 && fs::metadata(&path).unwrap().len() < 1000);
    assert_eq!(open(temp.path()).unwrap_err().kind(), ErrorKind::Busy, "the new file is locked as the old one was");
    journal.part(x, sent(1));
    killed(journal).await;
    assert_eq!(open(temp.path()).unwrap().take(&Key::new("x"))[0].sent, [sent(0), sent(1)]);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_that_cant_be_made_is_told() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("file"), "").unwrap();
    let journal = open(&temp.path().join("file/state"));
    let error = match journal {
        Ok(journal) => journal.opened(opened("x")).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(error.message().contains("file/state"), "{error}");
}

#[test]
fn a_name_is_of_what_is_done_and_where() {
    let (a, b): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(MemStore::new()), Arc::new(MemStore::new()));
    let name = |mode, src: &Arc<dyn Store>, dst: &Arc<dyn Store>, filter: &FilterSpec, one| {
        JobId::new(mode, &**src, &**dst, filter, one).to_string()
    };
    let none = FilterSpec::default();
    let first = name(Verb::Copy, &a, &b, &none, None);
    assert_eq!((first.len(), &first), (16, &name(Verb::Copy, &a, &b, &none, None)));
    let aged = FilterSpec { newer_than: Some(Mtime(5)), ..FilterSpec::default() };
    assert_eq!(name(Verb::Copy, &a, &b, &aged, None), first);
    let ruled = FilterSpec { rules: vec!["- x".into()], ..FilterSpec::default() };
    let (x, y) = (Key::new("x"), Key::new("y"));
    for other in [
        name(Verb::Sync, &a, &b, &none, None),
        name(Verb::Copy, &b, &a, &none, None),
        name(Verb::Copy, &a, &b, &ruled, None),
        name(Verb::Copy, &a, &b, &none, Some((&x, &y))),
    ] {
        assert_ne!(other, first);
    }
}
