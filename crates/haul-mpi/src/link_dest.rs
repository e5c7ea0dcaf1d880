//! `--link-dest`: files that another folder has already, with all that is kept of them, become hard links to those. A link shares
//! owner, permissions and times with them too, so that one which differs in any of these is copied: nothing changes in that folder.

use crate::{
    contents,
    shared::{HeldLease, Sides, place},
    work::{LeaseResult, SourceEntry},
};
use haul_core::{Entry, ErrorKind, Inode, Key, Kind, Mtime, Result, Version};
use haul_store::{AttributesBatch, AttributesItem, CopyBatch, CopyHow, CopyItem, Store, Watch, WriteSpec};
use std::{mem, sync::Arc};

/// The folder's entry of a file.
enum LinkDestMatch {
    /// Nothing that would do.
    No,
    /// A file that differs in what is kept; at the destination is another name of it.
    Differs { is_there: bool },
    /// A file that has all; at the destination is another name of it.
    Same { version: Option<Version>, is_there: bool },
}

/// Makes links of what the folder has of these files: of those that are to be copied, and of those that are there and only to have
/// their attributes set. What is left in both lists is dealt with as without the folder, but a file that shares its inode with the
/// folder's gets its own copy before its attributes change.
///
/// Errors: `Cancelled` where others have the lease by now.
pub async fn link(
    shared: &HeldLease,
    (root, sides): (u16, &Sides),
    copy: &mut Vec<(u32, SourceEntry)>,
    touch: &mut Vec<(u32, &SourceEntry)>,
    done: &mut LeaseResult,
) -> Result<()> {
    let Some(other) = &sides.link_dest else { return Ok(()) };
    let items: Vec<&SourceEntry> =
        copy.iter().map(|(_, item)| item).chain(touch.iter().map(|(_, item)| *item)).collect();
    let found = look(shared, root, other, &items).await?;
    let mut links = Vec::new();
    for (number, (item, found)) in items.iter().zip(&found).enumerate() {
        let to_copy = number < copy.len();
        if let LinkDestMatch::Same { version, is_there } = found
            && (to_copy || !is_there)
        {
            links.push((number, *item, version.clone()));
        }
    }
    let mut linked = vec![false; items.len()];
    for ((number, ..), made) in links.iter().zip(make(shared, (root, sides), other, &links, done).await?) {
        linked[*number] = made;
    }
    let rest = linked.split_off(copy.len());
    let of_rest = found.into_iter().skip(linked.len());
    let mut linked = linked.into_iter();
    copy.retain(|_| linked.next() != Some(true));
    for ((number, item), (linked, found)) in mem::take(touch).into_iter().zip(rest.into_iter().zip(of_rest)) {
        match found {
            _ if linked => {}
            LinkDestMatch::Differs { is_there: true } => copy.push((number, item.clone())),
            _ => touch.push((number, item)),
        }
    }
    Ok(())
}

/// Makes a link of a large file that is to be copied. False where it has to be.
///
/// Errors: `Cancelled` where others have the lease by now.
pub async fn link_new(shared: &HeldLease, root: u16, item: &SourceEntry, done: &mut LeaseResult) -> Result<bool> {
    let mut copy = vec![(0, item.clone())];
    link(shared, (root, &shared.sides[usize::from(root)]), &mut copy, &mut Vec::new(), done).await?;
    Ok(copy.is_empty())
}

async fn look(
    shared: &HeldLease,
    root: u16,
    other: &Arc<dyn Store>,
    items: &[&SourceEntry],
) -> Result<Vec<LinkDestMatch>> {
    let sides = &shared.sides[usize::from(root)];
    let (mut found, mut asked): (Vec<LinkDestMatch>, Vec<(usize, Entry)>) = (Vec::new(), Vec::new());
    for (number, item) in items.iter().enumerate() {
        shared.check()?;
        found.push(LinkDestMatch::No);
        if let Some(entry) = alike(shared, root, other, item).await? {
            asked.push((number, entry));
        }
    }
    if asked.is_empty() {
        return Ok(found);
    }
    let batch = asked.iter().map(|(number, _)| attributes(shared, sides, items[*number])).collect();
    let batch = AttributesBatch { from: sides.place(), items: batch, links: shared.links(), set: false };
    let answers = match other.inodes() {
        Some(inodes) => inodes.attributes(batch).await,
        None => return Ok(found),
    };
    for ((number, entry), answer) in asked.into_iter().zip(answers) {
        let Ok(answer) = answer else { continue };
        let there = sides.dst.stat(&sides.to(&items[number].key())).await.ok();
        let is_there = there.is_some_and(|there| inode(&there).is_some() && inode(&there) == inode(&entry));
        found[number] = match answer.differs.any() {
            true => LinkDestMatch::Differs { is_there },
            false => LinkDestMatch::Same { version: entry.version, is_there },
        };
    }
    Ok(found)
}

/// The folder's file of this name, if it has the size and time of the source's; with `--contents`, its bytes too.
async fn alike(shared: &HeldLease, root: u16, other: &Arc<dyn Store>, item: &SourceEntry) -> Result<Option<Entry>> {
    let sides = &shared.sides[usize::from(root)];
    if item.kind != Kind::File {
        return Ok(None);
    }
    let Ok(entry) = other.stat(&sides.to(&item.key())).await else { return Ok(None) };
    let mtime = Some(time(item));
    if entry.kind != Kind::File || entry.size != item.size || !sides.is_one_time(entry.mtime, mtime) {
        return Ok(None);
    }
    if !shared.job.contents {
        return Ok(Some(entry));
    }
    match contents::compare_with(shared, root, item, 0..item.size, other).await {
        Ok(same) => Ok(Some(entry).filter(|_| same)),
        Err(error) if error.kind() == ErrorKind::Cancelled => Err(error),
        // The rank that copies it reports the source's error.
        Err(_) => Ok(None),
    }
}

fn time(item: &SourceEntry) -> Mtime {
    Mtime::new(item.mtime.0, item.mtime.1)
}

fn inode(entry: &Entry) -> Option<(u64, u64)> {
    entry.version.as_ref().and_then(Inode::of).map(|inode| (inode.dev, inode.ino))
}

fn attributes(shared: &HeldLease, sides: &Sides, item: &SourceEntry) -> AttributesItem {
    let from = item.key();
    let (to, mtime, keep) = (sides.to(&from), Some(time(item)), shared.keep.clone());
    AttributesItem { from, to, mtime, meta: None, carried: None, keep, new: false }
}

/// Makes links; which of them are there.
async fn make(
    shared: &HeldLease,
    (root, sides): (u16, &Sides),
    other: &Arc<dyn Store>,
    links: &[(usize, &SourceEntry, Option<Version>)],
    done: &mut LeaseResult,
) -> Result<Vec<bool>> {
    if links.is_empty() {
        return Ok(Vec::new());
    }
    shared.check()?;
    if shared.job.dry_run {
        done.totals.linked += links.len() as u64;
        done.lines
            .extend(links.iter().map(|(_, item, _)| format!("would be linked: {}", shared.path(root, &item.key))));
        return Ok(vec![true; links.len()]);
    }
    let items = links.iter().map(|(_, item, version)| {
        let to: Key = sides.to(&item.key());
        let (want, spec, how) = (version.clone(), WriteSpec::default(), CopyHow::Link);
        CopyItem { from: to.clone(), want, size: item.size, to, spec, how }
    });
    let batch = CopyBatch { from: place(&**other), items: items.collect(), links: Default::default() };
    let mut made = Vec::new();
    for ((_, item, _), answer) in links.iter().zip(sides.dst.copy(batch, Watch::default()).await) {
        // Where no link can be made it is copied, which tells what is wrong.
        made.push(answer.is_ok());
        if answer.is_ok() {
            done.totals.linked += 1;
            shared.log("linked", root, &item.key, 0, None);
            if shared.job.verbose {
                done.lines.push(shared.path(root, &item.key));
            }
        }
    }
    Ok(made)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use crate::{
        dirs,
        shared::tests::{job, rank},
        work::{Job, LargeFileStart, Raw, Task, Verb},
    };
    use std::{
        fs,
        os::unix::{
            ffi::OsStrExt as _,
            fs::{MetadataExt as _, PermissionsExt as _},
        },
        path::{Path, PathBuf},
        time::{Duration, SystemTime},
    };

    struct Folders {
        temp: tempfile::TempDir,
    }

    impl Folders {
        fn new() -> Folders {
            let temp = tempfile::tempdir().unwrap();
            for name in ["src", "old", "dst"] {
                fs::create_dir(temp.path().join(name)).unwrap();
            }
            Folders { temp }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.temp.path().join(path)
        }

        fn write(&self, path: &str, content: &str, mode: u32) {
            let path = self.at(path);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
        }

        fn job(&self) -> Job {
            let raw = |path: &Path| Raw::from(path.as_os_str().as_bytes());
            Job { link_dest: Some(raw(&self.at("old"))), ..job(Verb::Sync, &self.at("src"), &self.at("dst")) }
        }

        async fn sync(&self, job: Job) -> LeaseResult {
            let (shared, _said) = rank(job).await;
            dirs::look(&HeldLease::new(&shared, 1), 0, &Key::new(""), false, None, None).await
        }

        fn is_linked(&self, name: &str) -> bool {
            let ino = |dir: &str| fs::metadata(self.at(dir).join(name)).unwrap().ino();
            ino("old") == ino("dst")
        }
    }

    #[tokio::test]
    async fn what_is_the_same_becomes_a_link_and_nothing_else_does() {
        let at = Folders::new();
        for name in ["same", "there", "mode", "touched", "bytes"] {
            at.write(&format!("src/{name}"), "x", 0o640);
            at.write(&format!("old/{name}"), if name == "bytes" { "y" } else { "x" }, 0o640);
        }
        at.write("src/mode", "x", 0o600);
        at.write("old/size", "longer", 0o640);
        at.write("src/size", "x", 0o640);
        // A copy of an earlier run, and a link of one before the source got other permissions.
        at.write("dst/there", "x", 0o640);
        fs::hard_link(at.at("old/touched"), at.at("dst/touched")).unwrap();
        at.write("src/touched", "x", 0o600);
        let done = at.sync(at.job()).await;
        assert_eq!(done.problems, []);
        for (name, linked) in
            [("same", true), ("there", true), ("bytes", true), ("mode", false), ("touched", false), ("size", false)]
        {
            assert_eq!(at.is_linked(name), linked, "{name}");
        }
        assert_eq!(fs::metadata(at.at("old/touched")).unwrap().mode() & 0o777, 0o640, "it is not ours");
        assert_eq!(fs::metadata(at.at("dst/touched")).unwrap().mode() & 0o777, 0o600);
        assert_eq!((done.totals.linked, done.totals.files, done.totals.same), (3, 3, 0));
        // Once more: nothing is left to do.
        let done = at.sync(at.job()).await;
        assert_eq!((done.totals.linked, done.totals.files, done.totals.same), (0, 0, 6));
    }

    #[tokio::test]
    async fn bytes_are_compared_where_contents_are() {
        let at = Folders::new();
        for (name, content) in [("same", "x"), ("bytes", "y")] {
            at.write(&format!("src/{name}"), "x", 0o640);
            at.write(&format!("old/{name}"), content, 0o640);
        }
        let dry = at.sync(Job { contents: true, dry_run: true, ..at.job() }).await;
        let line = |what: &str, name: &str| format!("would be {what}: {}", at.at(name).display());
        assert_eq!(dry.lines, [line("linked", "src/same"), line("copied", "src/bytes")]);
        let done = at.sync(Job { contents: true, ..at.job() }).await;
        assert_eq!((at.is_linked("same"), at.is_linked("bytes"), done.totals.linked), (true, false, 1));
    }

    #[tokio::test]
    async fn a_large_file_is_linked_before_it_is_begun() {
        let at = Folders::new();
        at.write("src/large", "x", 0o640);
        at.write("old/large", "x", 0o640);
        let (shared, _said) = rank(at.job()).await;
        let entry = shared.sides[0].src.stat(&Key::new("large")).await.unwrap();
        let item = SourceEntry::of(&entry, shared.sides[0].device, Task::Copy);
        let done = crate::pieces::begin(&HeldLease::new(&shared, 1), 0, &item, None).await;
        assert_eq!((done.began, done.totals.linked), (Some(LargeFileStart::Linked), 1));
        assert!(at.is_linked("large"));
    }
}
