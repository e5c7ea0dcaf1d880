//! Large files: begun under a hidden name by one rank, written by many, published by one. And comparing bytes.

use crate::{
    contents::{BLOCK, compare_with, file, shorter, stopped},
    shared::{HeldLease, Shared, Sides},
    work::{LargeFileStart, LeaseResult, RankMessage, Raw, SourceEntry, Task, UnfinishedFile, Verb},
};
use bytes::BytesMut;
use haul_core::{Algo, Error, ErrorKind, Hasher, Key, Mtime, Result};
use haul_store::{AttributesBatch, AttributesItem, LateFacts, Part, Payload, ResumedWrite, Upload, WriteSpec};
use rustix::{fs::SeekFrom, io::Errno};
use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often progress within a piece is reported, so that little is written twice when ranks are killed: less often
/// the longer the job runs, of which this share may be lost, since the journal keeps all reports.
const TOLD_SOONEST: Duration = Duration::from_millis(250);
const TOLD_LATEST: Duration = Duration::from_secs(10);
/// As soon as that where it has to be forced out first.
const TOLD_FORCED: Duration = Duration::from_secs(3);
const TOLD_SHARE: u32 = 64;

fn spec(shared: &Shared, item: &SourceEntry) -> WriteSpec {
    // An unwritten range is a hole; the publish sets the size.
    let mtime = Some(Mtime::new(item.mtime.0, item.mtime.1));
    WriteSpec { size: Some(item.size), sparse: true, resumable: true, mtime, ..shared.spec() }
}

fn io(op: &'static str, key: &Key) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::from_io(op, error).with_key(key)
}

/// The source's bytes, of the version that was listed.
async fn source(sides: &Sides, item: &SourceEntry, range: Range<u64>) -> Result<Arc<File>> {
    let key = item.key();
    let read = sides.src.read(&key, item.version(sides.device).as_ref(), Some(range)).await?;
    file(read.body, &key)
}

async fn resume(sides: &Sides, to: &Key, token: &[u8], spec: WriteSpec) -> Result<Box<dyn Upload>> {
    let resumable = haul_store::offered(sides.dst.resumable(), "write")?;
    let (upload, _): ResumedWrite = resumable.resume(to, token, Vec::new(), spec).await?;
    Ok(upload)
}

/// Begins a file, or finds what an earlier run left of it.
pub async fn begin(shared: &HeldLease, root: u16, item: &SourceEntry, left: Option<UnfinishedFile>) -> LeaseResult {
    let mut done = LeaseResult::default();
    match begin_one(shared, root, item, left, &mut done).await {
        Ok(began) => LeaseResult { began: Some(began), ..done },
        Err(error) if error.kind() == ErrorKind::Cancelled => LeaseResult { undone: true, ..LeaseResult::default() },
        Err(error) => LeaseResult { problems: vec![shared.problem(root, &item.key, &error)], ..LeaseResult::default() },
    }
}

async fn begin_one(
    shared: &HeldLease,
    root: u16,
    item: &SourceEntry,
    left: Option<UnfinishedFile>,
    done: &mut LeaseResult,
) -> Result<LargeFileStart> {
    let sides = &shared.sides[usize::from(root)];
    let to = sides.to(&item.key());
    shared.check()?;
    if shared.job.delete && sides.is_blocked(&to).await {
        return Ok(LargeFileStart::Blocked);
    }
    let linked = crate::link_dest::link_new(shared, root, item, done).await?;
    if let Some(left) = left {
        let same = item.pin == Some(left.pin) && left.key == item.key;
        if same && !linked && resume(sides, &to, &left.token, spec(shared, item)).await.is_ok() {
            return Ok(LargeFileStart::Found(left.token));
        }
        // Of another version, or under a name that comes later this time.
        if let Some(resumable) = sides.dst.resumable() {
            let _ = resumable.discard(&sides.to(&Key::new(&left.key)), &left.token).await;
        }
    }
    if linked {
        return Ok(LargeFileStart::Linked);
    }
    let source = source(sides, item, 0..item.size).await?;
    let st = rustix::fs::fstat(&*source).map_err(|e| io("read", &to)(e.into()))?;
    let dense = u64::try_from(st.st_blocks).unwrap_or(0) * 512 >= item.size && !shared.job.sparse;
    // A dense file has its space reserved.
    let upload = sides.dst.write(&to, WriteSpec { sparse: !dense, ..spec(shared, item) }).await?;
    let began = begun(&*upload, &source, &to).await;
    match &began {
        Ok(LargeFileStart::Whole(_)) => shared.moved(item.size),
        Ok(_) => {}
        Err(_) => _ = upload.abort().await,
    }
    began
}

/// Under which hidden name, and whether its bytes are there already.
async fn begun(upload: &dyn Upload, source: &File, to: &Key) -> Result<LargeFileStart> {
    let token = upload.token().await?;
    let token = Raw::from(token.ok_or_else(|| Error::new(ErrorKind::Unsupported, "write", "it has no hidden name"))?);
    let target = file(upload.read_back(0..0).await?, to)?;
    // Where file systems share blocks nothing need be copied.
    match rustix::fs::ioctl_ficlone(&*target, source) {
        Ok(()) => Ok(LargeFileStart::Whole(token)),
        Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => Err(io("write", to)(errno.into())),
        Err(_) => Ok(LargeFileStart::Anew(token)),
    }
}

/// Removes what was written of a file.
pub async fn discard(shared: &HeldLease, root: u16, key: &[u8], token: &[u8]) -> LeaseResult {
    let sides = &shared.sides[usize::from(root)];
    let to = sides.to(&Key::new(key));
    let removed = match sides.dst.resumable() {
        Some(resumable) => resumable.discard(&to, token).await,
        None => Ok(false),
    };
    let mut done = LeaseResult::default();
    match removed {
        // With its directory, too.
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {
            done.problems.push(shared.problem(root, key, &error));
        }
        _ => {}
    }
    done
}

/// Brings a range over, or compares it. Where an earlier run brought it, looks whether it is there.
pub async fn piece(
    shared: &HeldLease,
    root: u16,
    item: &SourceEntry,
    token: &[u8],
    range: Range<u64>,
    crc: Option<u64>,
) -> LeaseResult {
    let result = match item.task {
        Task::Compare => compare(shared, root, item, range.clone()).await.map(|same| (None, same)),
        _ => bring(shared, root, item, token, range.clone(), crc).await.map(|crc| (Some(crc), true)),
    };
    let mut done = LeaseResult::default();
    match result {
        Ok((crc, same)) => {
            done.crc = crc;
            done.totals.differ = u64::from(!same);
            // What a sync compares is not its data, which it copies.
            if item.task != Task::Compare || shared.job.verb == Verb::Check {
                done.totals.bytes = range.end - range.start;
            }
        }
        Err(error) if error.kind() == ErrorKind::Cancelled => done.undone = true,
        Err(error) => done.problems.push(shared.problem(root, &item.key, &error)),
    }
    done
}

async fn bring(
    shared: &HeldLease,
    root: u16,
    item: &SourceEntry,
    token: &[u8],
    range: Range<u64>,
    crc: Option<u64>,
) -> Result<u64> {
    let sides = &shared.sides[usize::from(root)];
    let key = item.key();
    let to = sides.to(&key);
    let source = source(sides, item, range.clone()).await?;
    let upload = resume(sides, &to, token, spec(shared, item)).await?;
    let target = file(upload.read_back(0..0).await?, &to)?;
    if let Some(crc) = crc
        && sum(shared, &source, &target, range.clone())? == Some(crc)
    {
        shared.moved(range.end - range.start);
        settle(shared, &target, &to)?;
        return Ok(crc);
    }
    let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
    let mut buffer = BytesMut::zeroed(BLOCK as usize);
    let mut at = range.start;
    let (mut told, mut told_at) = (at, Instant::now());
    let soonest = if shared.several_nodes { TOLD_FORCED } else { TOLD_SOONEST };
    let tell_every = (shared.began.elapsed() / TOLD_SHARE).clamp(soonest, TOLD_LATEST);
    for run in runs(&source, range.clone(), &key)? {
        shared.moved(run.start - at);
        at = run.start;
        while at < run.end {
            if !shared.may_go_on() {
                return Err(stopped());
            }
            let len = (run.end - at).min(BLOCK) as usize;
            buffer.resize(len, 0);
            source.read_exact_at(&mut buffer, at).map_err(|error| shorter(error, &key))?;
            hasher.update(&buffer);
            let block = buffer.freeze();
            upload.part(at, at, Payload::new(vec![block.clone()])).await?;
            buffer = block.try_into_mut().unwrap_or_else(|_| BytesMut::zeroed(BLOCK as usize));
            at += len as u64;
            shared.moved(len as u64);
            if told_at.elapsed() >= tell_every && at < range.end {
                settle(shared, &target, &to)?;
                let crc = std::mem::replace(&mut hasher, Hasher::new(&[Algo::Crc64Nvme])).finish().crc64();
                shared.say(RankMessage::Part(shared.lease, at - told, crc.unwrap_or_default()));
                (told, told_at) = (at, Instant::now());
            }
        }
    }
    shared.moved(range.end - at);
    settle(shared, &target, &to)?;
    Ok(hasher.finish().crc64().unwrap_or_default())
}

/// Flushes written data to the disk before it counts as done. A rank gets errors of its own writes alone.
fn settle(shared: &HeldLease, target: &File, to: &Key) -> Result<()> {
    let failed = |errno: Errno| io("write", to)(errno.into());
    // If this node fails with bytes in its memory, a file would have its name, size and time, and zeros in it: the next run would take
    // it for done.
    if shared.several_nodes {
        rustix::fs::fdatasync(target).map_err(failed)?;
    }
    shared.late.ask(target).map_err(failed)
}

/// CRC-64 of what the target has where the source has data; `None` where it has less.
fn sum(shared: &HeldLease, source: &File, target: &File, range: Range<u64>) -> Result<Option<u64>> {
    let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
    let mut buffer = vec![0; BLOCK as usize];
    for run in runs(source, range, &Key::new(""))? {
        let mut at = run.start;
        while at < run.end {
            let len = (run.end - at).min(BLOCK) as usize;
            if target.read_exact_at(&mut buffer[..len], at).is_err() {
                return Ok(None);
            }
            hasher.update(&buffer[..len]);
            at += len as u64;
            shared.pulse.step();
        }
    }
    Ok(hasher.finish().crc64())
}

/// The parts of a range that hold data; the whole where the file system doesn't tell.
fn runs(file: &File, range: Range<u64>, key: &Key) -> Result<Vec<Range<u64>>> {
    let mut runs = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < range.end => data,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(_) => {
                runs.push(at..range.end);
                break;
            }
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data)).map_err(|errno| io("read", key)(errno.into()))?;
        let end = hole.clamp(data + 1, range.end);
        runs.push(data..end);
        at = end;
    }
    Ok(runs)
}

/// Gives a file that is whole its attributes and its name.
pub async fn publish(shared: &HeldLease, root: u16, item: &SourceEntry, token: &[u8]) -> LeaseResult {
    let mut done = LeaseResult::default();
    match publish_one(shared, root, item, token).await {
        Ok(unpreserved) => {
            done.totals.unpreserved += u64::from(unpreserved);
            shared.log("copied", root, &item.key, item.size, None);
            if shared.job.verbose {
                done.lines.push(shared.path(root, &item.key));
            }
        }
        Err(error) if error.kind() == ErrorKind::Cancelled => done.undone = true,
        Err(error) => done.problems.push(shared.problem(root, &item.key, &error)),
    }
    done
}

async fn publish_one(shared: &HeldLease, root: u16, item: &SourceEntry, token: &[u8]) -> Result<bool> {
    let sides = &shared.sides[usize::from(root)];
    let key = item.key();
    let to = sides.to(&key);
    shared.check()?;
    let now = sides.src.stat(&key).await?;
    if !item.is_still(&now) {
        return Err(Error::new(ErrorKind::Changed, "copy", "changed while it was copied").with_key(&key));
    }
    let upload = match resume(sides, &to, token, spec(shared, item)).await {
        Ok(upload) => upload,
        // Another rank published it, and was given up before it could say so.
        Err(error) if error.kind() == ErrorKind::NotFound && is_published(shared, root, item).await? => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let mut unpreserved = false;
    if let (Some(keep), Some(inodes)) = (&shared.keep, sides.dst.inodes()) {
        let mtime = Some(Mtime::new(item.mtime.0, item.mtime.1));
        let hidden = Key::new(token);
        let attributes = AttributesItem {
            from: key.clone(),
            to: hidden,
            mtime,
            meta: None,
            carried: None,
            keep: Some(keep.clone()),
            new: true,
        };
        let links = shared.links();
        let batch = AttributesBatch { from: sides.place(), items: vec![attributes], links, set: true };
        for answer in inodes.attributes(batch).await {
            unpreserved |= !answer?.unpreserved.is_empty();
        }
    }
    shared.check()?;
    let whole = Part { index: 0, size: item.size, tag: Vec::new() };
    upload.publish(vec![whole], LateFacts::default()).await?;
    Ok(unpreserved)
}

/// Has a large file its name? What was there before may have had its size and time too, unless a sync that goes by these began it: else
/// the bytes tell.
///
/// Errors: they can't be read; `Cancelled` where the rank was stopped, or others have the lease by now.
async fn is_published(shared: &HeldLease, root: u16, item: &SourceEntry) -> Result<bool> {
    let sides = &shared.sides[usize::from(root)];
    let there = sides.dst.stat(&sides.to(&item.key())).await;
    let mtime = Some(Mtime::new(item.mtime.0, item.mtime.1));
    if !there.is_ok_and(|there| there.size == item.size && there.mtime == mtime) {
        return Ok(false);
    }
    let differed = shared.job.verb == Verb::Sync && !shared.job.contents;
    Ok(differed || same(shared, root, item).await?)
}

/// Compares a whole file with what is there.
pub async fn same(shared: &HeldLease, root: u16, item: &SourceEntry) -> Result<bool> {
    compare(shared, root, item, 0..item.size).await
}

async fn compare(shared: &HeldLease, root: u16, item: &SourceEntry, range: Range<u64>) -> Result<bool> {
    compare_with(shared, root, item, range, &shared.sides[usize::from(root)].dst).await
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use crate::{
        large::LARGE,
        shared::tests::{job, rank},
        work::Job,
    };
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    /// Copies a large file of a device that is mounted below the source, with this done to it in between; what went wrong.
    async fn copied(meanwhile: impl FnOnce(&std::path::Path)) -> (tempfile::TempDir, Vec<String>) {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
        std::fs::create_dir(&src).unwrap();
        File::create(src.join("large")).unwrap().set_len(LARGE).unwrap();
        let (mut shared, _said) = rank(job(Verb::Dcp, &src, &dst)).await;
        // As if its root were on another.
        Arc::get_mut(&mut shared).unwrap().sides[0].device += 1;
        let entry = shared.sides[0].src.stat(&Key::new("large")).await.unwrap();
        let item = SourceEntry::of(&entry, shared.sides[0].device, Task::Copy);
        assert_eq!((item.version(shared.sides[0].device), item.linked), (None, None));
        let held = HeldLease::new(&shared, 1);
        let Some(crate::work::LargeFileStart::Anew(token) | crate::work::LargeFileStart::Whole(token)) =
            begin(&held, 0, &item, None).await.began
        else {
            panic!("not begun");
        };
        meanwhile(&src.join("large"));
        let mut problems = piece(&held, 0, &item, &token, 0..LARGE, None).await.problems;
        problems.extend(publish(&held, 0, &item, &token).await.problems);
        (temp, problems.into_iter().map(|problem| problem.line).collect())
    }

    #[tokio::test]
    async fn a_file_on_a_device_below_the_source_is_one_version_too() {
        let (temp, problems) = copied(|_| {}).await;
        assert_eq!(problems, [""; 0]);
        assert_eq!(std::fs::metadata(temp.path().join("dst/large")).unwrap().len(), LARGE);
        let (temp, problems) = copied(|large| {
            let file = File::options().write(true).open(large).unwrap();
            file.write_all_at(b"other", 5).unwrap();
        })
        .await;
        let line = format!("{}: changed while it was copied", temp.path().join("src/large").display());
        assert_eq!(problems, [line]);
        assert!(!temp.path().join("dst/large").exists());
    }

    #[tokio::test]
    async fn the_old_file_is_not_taken_for_a_published_one() {
        for (verb, contents) in [(Verb::Sync, true), (Verb::Dcp, false)] {
            let temp = tempfile::tempdir().unwrap();
            let [src, dst] = ["src", "dst"].map(|name| temp.path().join(name));
            let make = |dir: &std::path::Path| {
                std::fs::create_dir(dir).unwrap();
                let file = File::create(dir.join("large")).unwrap();
                file.set_len(LARGE).unwrap();
                file
            };
            let time = make(&src).metadata().unwrap().modified().unwrap();
            let old = make(&dst);
            let write = |bytes: &[u8]| {
                old.write_all_at(bytes, LARGE - 3).unwrap();
                old.set_modified(time).unwrap();
            };
            write(b"old");
            let (shared, _said) = rank(Job { contents, ..job(verb, &src, &dst) }).await;
            let held = HeldLease::new(&shared, 1);
            let entry = shared.sides[0].src.stat(&Key::new("large")).await.unwrap();
            let item = SourceEntry::of(&entry, shared.sides[0].device, Task::Copy);
            let began = begin(&held, 0, &item, None).await.began;
            let Some(LargeFileStart::Anew(token) | LargeFileStart::Whole(token)) = began else { panic!("not begun") };
            std::fs::remove_file(dst.join(OsStr::from_bytes(&token))).unwrap();
            let problems = publish(&held, 0, &item, &token).await.problems;
            assert_eq!(problems.len(), 1, "{verb:?}: its hidden file is gone, and the old one is there");
            // What another rank published has the source's bytes.
            write(&[0; 3]);
            assert_eq!(publish(&held, 0, &item, &token).await.problems, [], "{verb:?}");
        }
    }
}
