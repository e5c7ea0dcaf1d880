//! One large file by several processes: whoever comes second, loses an answer or wakes up late does no harm.

use super::part::cx;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::ready};
use haul::{
    part::LargeFile,
    shared::{Fence, RangeResult, SharedFile, Sharing},
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Key, Mtime, Retry, Version,
    event::NoSink,
    job::{Job, Verb},
};
use haul_mem::MemStore;
use haul_store::{Body, LateFacts, PartLimits, Payload, Store, WriteSpec};
use haul_testkit::faults::{Fault, Faulty, Op};
use std::sync::Arc;

/// Bytes of a part; the file has three and a bit.
const PART: usize = 1 << 20;

fn memory() -> Arc<dyn Store> {
    memory_with(vec![Algo::Crc64Nvme], false)
}

/// A store that has these hashes of its files; it may say that it is a disk.
fn memory_with(hashes: Vec<Algo>, files: bool) -> Arc<dyn Store> {
    Arc::new(MemStore::new().with_caps(|caps| {
        (caps.domain, caps.hashes_listed, caps.hashes_stored, caps.files) = (None, vec![], hashes, files);
        caps.parts = Some(PartLimits { preferred: PART as u64, ..PartLimits::FILE });
    }))
}

fn content(first: u8) -> Vec<u8> {
    (0..3 * PART + 5).map(|n| first.wrapping_add((n / 1009) as u8)).collect()
}

fn large() -> Key {
    Key::new("large")
}

async fn put(store: &Arc<dyn Store>, first: u8) {
    let spec = WriteSpec { mtime: Some(Mtime::new(9, 1)), ..WriteSpec::default() };
    let upload = store.write(&large(), spec).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from(content(first)))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
}

async fn get(store: &Arc<dyn Store>) -> Vec<u8> {
    let Body::Stream(body) = store.read(&large(), None, None).await.unwrap().body else { panic!("a stream") };
    body.map(Result::unwrap).collect::<Vec<Bytes>>().await.concat()
}

fn sharing(src: &Arc<dyn Store>, dst: &Arc<dyn Store>) -> Sharing {
    Sharing::new(Job::new(Verb::Copy), cx(src, dst, Arc::new(NoSink)))
}

fn open() -> Fence {
    Arc::new(|| ready(Ok(())).boxed())
}

/// A file that is begun, and two processes for it.
async fn begun(src: &Arc<dyn Store>, dst: &Arc<dyn Store>) -> (SharedFile, [Sharing; 2]) {
    let replaced = dst.stat(&large()).await.ok();
    begun_over(src, dst, replaced).await
}

/// The same where this was seen at the destination.
async fn begun_over(src: &Arc<dyn Store>, dst: &Arc<dyn Store>, replaced: Option<Entry>) -> (SharedFile, [Sharing; 2]) {
    put(src, 1).await;
    let two = [sharing(src, dst), sharing(src, dst)];
    let wanted = LargeFile { src: src.stat(&large()).await.unwrap(), replaced };
    let file = two[0].begin(&wanted).await.unwrap().expect("it can be split");
    assert_eq!((file.parts(), file.key(), file.size()), (4, &large(), 3 * PART as u64 + 5));
    (file, two)
}

/// All ranges, each by one of the two.
async fn sent(file: &SharedFile, [one, two]: &[Sharing; 2]) -> Vec<RangeResult> {
    let (last, first) = futures::join!(one.send(file, 2..4, open()), two.send(file, 0..2, open()));
    vec![last.unwrap(), first.unwrap()]
}

fn kind<T>(answer: Result<T, Error>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

#[tokio::test]
async fn a_second_finish_finds_the_file_published() {
    let (src, dst) = (memory(), memory());
    let (file, two) = begun(&src, &dst).await;
    let ranges = sent(&file, &two).await;
    assert_eq!(kind(two[0].finish(&file, ranges[..1].to_vec()).await), Some(ErrorKind::Corrupt), "half of it");
    assert_eq!(two[1].finish(&file, ranges.clone()).await.unwrap(), file.size());
    let stored = dst.stat(&large()).await.unwrap();
    // Taken for dead, they wake up.
    assert_eq!(kind(two[0].send(&file, 2..4, open()).await), Some(ErrorKind::NotFound));
    assert_eq!(two[0].finish(&file, ranges.clone()).await.unwrap(), file.size());
    two[0].discard(&file).await.unwrap();
    assert!(dst.stat(&large()).await.unwrap() == stored && get(&dst).await == content(1));
    assert_eq!(stored.mtime, Some(Mtime::new(9, 1)));
    // Its source may have been replaced by then.
    put(&src, 2).await;
    assert_eq!(two[0].finish(&file, ranges).await.unwrap(), file.size());
    assert!(get(&dst).await == content(1));
}

#[tokio::test]
async fn an_answer_to_the_publish_that_is_lost_is_asked_about() {
    for (fault, publishes) in [
        (Fault::LoseAnswer(ErrorKind::Io, Retry::Backoff), 1),
        (Fault::LoseAnswer(ErrorKind::Timeout, Retry::Never), 1),
        (Fault::Fail(ErrorKind::Busy, Retry::Backoff), 2),
    ] {
        let faulty = Faulty::new(memory()).on(Op::Publish, 1, fault.clone());
        let (src, dst): (_, Arc<dyn Store>) = (memory(), Arc::new(faulty.clone()));
        let (file, two) = begun(&src, &dst).await;
        let ranges = sent(&file, &two).await;
        assert_eq!(two[0].finish(&file, ranges).await.unwrap(), file.size(), "{fault:?}");
        assert!(faulty.calls(Op::Publish) == publishes && get(&dst).await == content(1), "{fault:?}");
    }
}

#[tokio::test]
async fn what_was_there_before_is_not_taken_for_what_was_lost() {
    let (src, dst) = (memory(), memory());
    put(&dst, 7).await;
    let (file, two) = begun(&src, &dst).await;
    let ranges = sent(&file, &two).await;
    two[1].discard(&file).await.unwrap();
    assert_eq!(kind(two[0].finish(&file, ranges).await), Some(ErrorKind::NotFound));
    assert!(get(&dst).await == content(7), "of the same size and time, and another file");
}

#[tokio::test]
async fn a_publish_that_the_store_calls_wrong_is_never_done() {
    // What is visible then is wrong or unproved, whatever its size and time.
    for (wrong, retry) in [
        (ErrorKind::Corrupt, Retry::Backoff),
        (ErrorKind::Unsupported, Retry::Never),
        (ErrorKind::Denied, Retry::Never),
    ] {
        let faulty = Faulty::new(memory()).on(Op::Publish, 1, Fault::LoseAnswer(wrong, retry));
        let (src, dst): (_, Arc<dyn Store>) = (memory(), Arc::new(faulty.clone()));
        let (file, two) = begun(&src, &dst).await;
        let ranges = sent(&file, &two).await;
        assert_eq!((kind(two[0].finish(&file, ranges).await), faulty.calls(Op::Publish)), (Some(wrong), 1));
    }
}

#[tokio::test]
async fn only_a_hash_proves_that_a_lost_publish_was_done() {
    let lost = Fault::LoseAnswer(ErrorKind::NotFound, Retry::Never);
    for (hashes, done) in [
        (vec![Algo::Crc64Nvme], None),
        (vec![Algo::Crc32c], None),
        (vec![], Some(ErrorKind::NotFound)),
        (vec![Algo::Md5], Some(ErrorKind::NotFound)),
    ] {
        let faulty = Faulty::new(memory_with(hashes.clone(), false)).on(Op::Publish, 1, lost.clone());
        let (src, dst): (_, Arc<dyn Store>) = (memory(), Arc::new(faulty));
        let (file, two) = begun(&src, &dst).await;
        let ranges = sent(&file, &two).await;
        let finished = two[0].finish(&file, ranges).await;
        assert_eq!(finished.as_ref().err().map(Error::kind), done, "{hashes:?} {finished:?}");
    }
}

#[tokio::test]
async fn a_name_proves_a_whole_file_on_disks_only() {
    for (files, done) in [(true, None), (false, Some(ErrorKind::NotFound))] {
        let (src, dst) = (memory(), memory_with(vec![], files));
        let (file, two) = begun(&src, &dst).await;
        let ranges = sent(&file, &two).await;
        two[1].discard(&file).await.unwrap();
        put(&dst, 1).await;
        assert_eq!(kind(two[0].finish(&file, ranges).await), done, "{files}");
    }
}

#[tokio::test]
async fn an_old_file_of_the_same_size_and_time_is_no_new_one_on_a_disk() {
    let (src, dst) = (memory(), memory_with(vec![], true));
    put(&dst, 7).await;
    // Its mode was changed since, or the machine that looked numbers the disk differently.
    let seen = Entry { version: Some(Version::new("as it was seen")), ..dst.stat(&large()).await.unwrap() };
    let (file, two) = begun_over(&src, &dst, Some(seen)).await;
    let ranges = sent(&file, &two).await;
    two[1].discard(&file).await.unwrap();
    assert_eq!(kind(two[0].finish(&file, ranges).await), Some(ErrorKind::NotFound));
    assert!(get(&dst).await == content(7));
}

#[tokio::test]
async fn a_file_has_no_other_parts_than_its_own() {
    let (src, dst) = (memory(), memory());
    let (file, two) = begun(&src, &dst).await;
    for parts in [0..5, 4..4, 7..u64::MAX] {
        assert_eq!(kind(two[0].send(&file, parts, open()).await), Some(ErrorKind::Invalid));
    }
}

#[tokio::test]
async fn no_part_passes_a_closed_fence() {
    let faulty = Faulty::new(memory());
    let (src, dst): (_, Arc<dyn Store>) = (memory(), Arc::new(faulty.clone()));
    let (file, [one, _]) = begun(&src, &dst).await;
    let closed: Fence = Arc::new(|| ready(Err(Error::new(ErrorKind::Cancelled, "test", "lost"))).boxed());
    assert_eq!(kind(one.send(&file, 0..4, closed).await), Some(ErrorKind::Cancelled));
    assert_eq!(faulty.calls(Op::Part), 0);
}

#[tokio::test]
async fn a_changed_source_is_neither_sent_nor_published() {
    let (src, dst) = (memory(), memory());
    let (file, two) = begun(&src, &dst).await;
    let ranges = sent(&file, &two).await;
    put(&src, 2).await;
    assert_eq!(kind(two[0].send(&file, 0..1, open()).await), Some(ErrorKind::Changed));
    assert_eq!(kind(two[0].finish(&file, ranges).await), Some(ErrorKind::Changed));
    assert_eq!(kind(dst.stat(&large()).await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn a_part_that_could_not_be_sent_is_sent_again() {
    let faulty = Faulty::new(memory()).on(Op::Part, 2, Fault::Fail(ErrorKind::Io, Retry::Backoff));
    let (src, dst): (_, Arc<dyn Store>) = (memory(), Arc::new(faulty.clone()));
    let (file, two) = begun(&src, &dst).await;
    let ranges = sent(&file, &two).await;
    assert!(faulty.calls(Op::Part) > 4);
    two[1].finish(&file, ranges).await.unwrap();
    assert!(get(&dst).await == content(1));
}
