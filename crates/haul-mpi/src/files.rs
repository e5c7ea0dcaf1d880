//! Deals with files of one lease: copies them in a batch of the store's, sets attributes of those that are there, compares, links.

use crate::{
    link_dest, pieces,
    shared::{HeldLease, Shared, Sides},
    work::{LeaseResult, Raw, SourceEntry, Task, Verb},
};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Mtime};
use haul_store::{AttributesBatch, AttributesItem, CopyBatch, CopyHow, CopyItem, StoredFacts, Watch};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How often a file is begun anew that changes while it is copied.
const TRIES: usize = 3;
/// Between two looks whether the lease is still this rank's.
const TRUST: Duration = Duration::from_millis(20);
/// Between leaving a batch and saying so.
const LEFT: Duration = Duration::from_millis(100);

/// Deals with files.
pub async fn deal(shared: &HeldLease, root: u16, items: &[SourceEntry]) -> LeaseResult {
    let mut done = LeaseResult::default();
    let sides = &shared.sides[usize::from(root)];
    let mut copy: Vec<(u32, SourceEntry)> = Vec::new();
    let mut touch: Vec<(u32, &SourceEntry)> = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let number = number as u32;
        match item.task {
            Task::Copy => copy.push((number, item.clone())),
            Task::Attributes => touch.push((number, item)),
            Task::Compare => match pieces::same(shared, root, item).await {
                Ok(true) if shared.job.verb == Verb::Check => {
                    done.totals.files += 1;
                    done.totals.bytes += item.size;
                }
                Ok(true) => touch.push((number, item)),
                Ok(false) if shared.job.verb == Verb::Check => {
                    done.totals.differ += 1;
                    done.lines.push(format!("differs: {}", shared.path(root, &item.key)));
                }
                Ok(false) => copy.push((number, item.clone())),
                Err(error) if error.kind() == ErrorKind::Cancelled => {
                    return LeaseResult { undone: true, ..LeaseResult::default() };
                }
                Err(error) => fail(shared, root, item, number, &error, &mut done),
            },
        }
    }
    if link_dest::link(shared, (root, sides), &mut copy, &mut touch, &mut done).await.is_err() {
        return LeaseResult { undone: true, ..LeaseResult::default() };
    }
    if shared.job.dry_run {
        set_attributes(shared, (root, sides), &touch, &mut done).await;
        for (_, item) in &copy {
            done.lines.push(format!("would be copied: {}", shared.path(root, &item.key)));
            count(item, &mut done);
        }
        return done;
    }
    set_attributes(shared, (root, sides), &touch, &mut done).await;
    for round in 0..TRIES {
        if copy.is_empty() {
            break;
        }
        let batch: Vec<CopyItem> = copy.iter().map(|(_, item)| copy_item(shared, sides, item)).collect();
        let answers = send(shared, sides, batch).await;
        let full = answers.iter().any(is_full);
        let mut again = Vec::new();
        for ((number, item), answer) in copy.into_iter().zip(answers) {
            match answer {
                Ok(stored) => arrived(shared, root, &item, &stored, &mut done),
                Err(error) if error.kind() == ErrorKind::Cancelled && !shared.is_trusted() => done.undone = true,
                // Not begun any more: the file that found no room is the error.
                Err(error) if error.kind() == ErrorKind::Cancelled && full => done.failed.push(number),
                Err(error) if error.kind() == ErrorKind::Changed && round + 1 < TRIES => {
                    match sides.src.stat(&item.key()).await {
                        Ok(now) => again.push((number, changed(&item, &now))),
                        Err(error) => fail(shared, root, &item, number, &error, &mut done),
                    }
                }
                // A directory in its place is deleted with all else that goes.
                Err(error) if makes_way(shared, sides, &item, &error).await => done.blocked.push(item),
                Err(error) => fail(shared, root, &item, number, &error, &mut done),
            }
        }
        copy = again;
    }
    done
}

fn is_full(answer: &Result<StoredFacts, Error>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace)
}

fn changed(item: &SourceEntry, now: &Entry) -> SourceEntry {
    // Any version will do: the copy proves that it is one and the same from its first byte to its last.
    let mtime = now.mtime.map_or(item.mtime, |time| (time.secs(), time.nanos()));
    SourceEntry { size: now.size, mtime, pin: None, ..item.clone() }
}

fn copy_item(shared: &Shared, sides: &Sides, item: &SourceEntry) -> CopyItem {
    let key = item.key();
    let how = if item.kind == Kind::Special { CopyHow::Special } else { CopyHow::Copy };
    let (to, want) = (sides.to(&key), item.version(sides.device));
    CopyItem { from: key, want, size: item.size, to, spec: shared.spec(), how }
}

async fn send(shared: &HeldLease, sides: &Sides, items: Vec<CopyItem>) -> Vec<Result<StoredFacts, Error>> {
    let (held, left) = (shared.clone(), Arc::new(AtomicBool::new(false)));
    let gone = left.clone();
    let watch = Watch::new(move |_, bytes| {
        held.moved(bytes);
        // A thread that wakes up in the middle of a batch drops the rest of it.
        while !held.is_trusted() && !gone.load(Ordering::Relaxed) {
            std::thread::sleep(TRUST);
        }
    });
    let count = items.len();
    let given = || (0..count).map(|_| Err(Error::new(ErrorKind::Cancelled, "copy", "was given to others"))).collect();
    if shared.check().is_err() {
        return given();
    }
    let batch = CopyBatch { from: sides.place(), items, links: shared.links() };
    let trusted = async {
        while shared.is_trusted() {
            tokio::time::sleep(TRUST).await;
        }
    };
    // Dropped work stays as it was; others have it by now.
    let answers = tokio::select! {
        biased;
        answers = sides.dst.copy(batch, watch) => Some(answers),
        () = trusted => None,
    };
    left.store(true, Ordering::Relaxed);
    if let Some(answers) = answers {
        return answers;
    }
    // The file that is under way may still appear: not after it is said that this lease is left.
    tokio::time::sleep(LEFT).await;
    given()
}

fn count(item: &SourceEntry, done: &mut LeaseResult) {
    match item.kind {
        Kind::Symlink => done.totals.links += 1,
        _ => {
            done.totals.files += 1;
            done.totals.bytes += item.size;
        }
    }
}

fn arrived(shared: &Shared, root: u16, item: &SourceEntry, stored: &StoredFacts, done: &mut LeaseResult) {
    count(item, done);
    done.totals.unpreserved += u64::from(!stored.unpreserved.is_empty());
    shared.log("copied", root, &item.key, item.size, None);
    if shared.job.verbose {
        done.lines.push(shared.path(root, &item.key));
    }
}

fn fail(shared: &Shared, root: u16, item: &SourceEntry, number: u32, error: &Error, done: &mut LeaseResult) {
    done.failed.push(number);
    done.problems.push(shared.problem(root, &item.key, error));
}

async fn set_attributes(
    shared: &HeldLease,
    (root, sides): (u16, &Sides),
    items: &[(u32, &SourceEntry)],
    done: &mut LeaseResult,
) {
    let Some(inodes) = sides.dst.inodes().filter(|_| !items.is_empty()) else { return };
    if shared.check().is_err() {
        done.undone = true;
        return;
    }
    let batch = items.iter().map(|(_, item)| {
        let key = item.key();
        let mtime = Some(Mtime::new(item.mtime.0, item.mtime.1));
        AttributesItem {
            to: sides.to(&key),
            from: key,
            mtime,
            meta: None,
            carried: None,
            keep: shared.keep.clone(),
            new: false,
        }
    });
    let set = !shared.job.dry_run;
    let batch = AttributesBatch { from: sides.place(), items: batch.collect(), links: shared.links(), set };
    for ((number, item), answer) in items.iter().zip(inodes.attributes(batch).await) {
        match answer {
            Ok(answer) => {
                done.totals.same += 1;
                done.totals.unpreserved += u64::from(!answer.unpreserved.is_empty());
                if !set && answer.differs.any() {
                    done.lines.push(format!("attributes would be set: {}", shared.path(root, &item.key)));
                }
            }
            Err(error) => fail(shared, root, item, *number, &error, done),
        }
    }
}

/// Gives files that are there further names.
pub async fn link(shared: &HeldLease, root: u16, names: &[(u32, Raw, SourceEntry)]) -> LeaseResult {
    let mut done = LeaseResult::default();
    let sides = &shared.sides[usize::from(root)];
    let mut batch: Vec<(u32, CopyItem)> = Vec::new();
    for (number, (_, first, item)) in names.iter().enumerate() {
        let (first, name) = (Key::new(first), item.key());
        // Linked already, by an earlier run.
        if item.task != Task::Copy && is_one(sides, &first, &name).await {
            done.totals.same += 1;
            continue;
        }
        let spec = haul_store::WriteSpec::default();
        let how = CopyHow::Link;
        batch.push((number as u32, CopyItem { from: first, want: None, size: item.size, to: name, spec, how }));
    }
    let (numbers, items): (Vec<u32>, Vec<CopyItem>) = batch.into_iter().unzip();
    if shared.check().is_err() {
        done.undone = true;
        return done;
    }
    let links = Default::default();
    let batch = CopyBatch { from: sides.own_place(), items, links };
    let answers = sides.dst.copy(batch, Watch::default()).await;
    let full = answers.iter().any(is_full);
    for (number, answer) in numbers.into_iter().zip(answers) {
        let (_, _, item) = &names[number as usize];
        match answer {
            Ok(_) => {
                done.totals.names += 1;
                shared.log("linked", root, &item.key, 0, None);
            }
            // Where there are no hard links, it becomes a file.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                done.totals.unpreserved += 1;
                done.failed.push(number);
            }
            Err(error) if makes_way(shared, sides, item, &error).await => done.blocked.push(item.clone()),
            // Others of its batch found no room. It is left as it was, and the job ends.
            Err(error) if error.kind() == ErrorKind::Cancelled && full => {}
            Err(error) => done.problems.push(shared.problem(root, &item.key, &error)),
        }
    }
    done
}

/// Is a directory in its place that a sync deletes?
async fn makes_way(shared: &Shared, sides: &Sides, item: &SourceEntry, error: &Error) -> bool {
    shared.job.delete && error.kind() == ErrorKind::Exists && sides.is_blocked(&sides.to(&item.key())).await
}

async fn is_one(sides: &Sides, a: &Key, b: &Key) -> bool {
    let inode = async |key: &Key| {
        let entry = sides.dst.stat(key).await.ok()?;
        let inode = haul_core::entry::Inode::of(&entry.version?)?;
        Some((inode.dev, inode.ino))
    };
    matches!((inode(a).await, inode(b).await), (Some(a), Some(b)) if a == b)
}
