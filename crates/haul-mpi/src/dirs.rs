//! Looks at one directory on both sides, decides about each file, and has the first of them dealt with at once; what is more goes to
//! other ranks. Gives directories their attributes when all in them is done.

use crate::{
    files,
    large::is_large,
    shared::{HeldLease, Sides},
    work::{DirFindings, LeaseResult, Problem, RankMessage, Raw, Root, SelectedNames, SourceEntry, Task, Totals, Verb},
};
use futures::{StreamExt as _, stream::BoxStream};
use haul_core::{
    Entry, ErrorKind, Key, Kind, Listed, attributes,
    join::{Join, Pair},
    listing::Side,
};
use haul_store::{AttributesBatch, AttributesItem, ListRequest, Store};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::{collections::HashSet, mem};

/// Files and bytes of one lease: some milliseconds' work, and few enough that a directory of a million is shared by all.
const FILES: usize = 256;
const BYTES: u64 = 64 << 20;
/// Directories, names to delete, or lines that are reported at once.
const NAMES: usize = 1024;

/// One look, gathered.
struct Look<'a> {
    shared: &'a HeldLease,
    sides: &'a Sides,
    root: u16,
    fresh: bool,
    found: DirFindings,
    bytes: u64,
    /// Findings were reported already, so that others work here too.
    told: bool,
    done: LeaseResult,
}

/// Looks at a directory, or at some names in it.
pub async fn look(
    shared: &HeldLease,
    root: u16,
    key: &Key,
    fresh: bool,
    after: Option<Key>,
    only: Option<SelectedNames>,
) -> LeaseResult {
    let sides = &shared.sides[usize::from(root)];
    let fresh = fresh || (key.is_root() && shared.job.dry_run && is_missing(sides).await);
    let listed_in_part = after.is_some() || only.as_ref().is_some_and(|only| only.more);
    let mut look = Look::new(shared, root, fresh, listed_in_part);
    if sides.one.is_some() {
        if !listed_in_part {
            look.one().await;
        }
        return look.end(key).await;
    }
    if let Err(error) = look.make(key).await {
        look.done.problems.push(shared.problem(root, key.as_bytes(), &error));
        return look.done;
    }
    match only {
        Some(SelectedNames { names, .. }) => look.named(&names).await,
        None => look.walk(key, after).await,
    }
    look.end(key).await
}

/// Looks at more names of a directory.
pub async fn look_at(shared: &HeldLease, root: u16, key: &Key, fresh: bool, names: &[Raw]) -> LeaseResult {
    let only = SelectedNames { names: names.to_vec(), more: true };
    let done = look(shared, root, key, fresh, None, Some(only)).await;
    // The rank with the first names counts it.
    LeaseResult { totals: Totals { dirs: 0, ..done.totals }, ..done }
}

/// The source's entry under a name of a list, of any kind; with a slash at its end, a directory.
async fn named(src: &dyn Store, name: &[u8], follow: bool) -> haul_core::Result<Entry> {
    match src.stat(&Key::new(name)).await {
        Ok(entry) if entry.kind == Kind::Special && !follow => src.stat(&Key::symlink(name)).await.or(Ok(entry)),
        Err(error) if error.kind() == ErrorKind::NotFound && !name.ends_with(b"/") => {
            src.stat(&Key::new(name).with_suffix("/")).await.or(Err(error))
        }
        answer => answer,
    }
}

/// Nobody makes the destination's folder where nothing is changed.
async fn is_missing(sides: &Sides) -> bool {
    sides.dst.stat(&Key::new("")).await.is_err_and(|error| is_nowhere(&error))
}

fn is_nowhere(error: &haul_core::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound)
}

/// Special files are the same if they are of one type and, if devices, of one number.
fn is_one_special(src: &Entry, dst: &Entry) -> bool {
    /// The type among the bits of a mode.
    const TYPE: u32 = 0o170_000;
    match (&src.posix, &dst.posix) {
        (Some(src), Some(dst)) => (src.mode & TYPE, src.rdev) == (dst.mode & TYPE, dst.rdev),
        _ => false,
    }
}

impl<'a> Look<'a> {
    fn new(shared: &'a HeldLease, root: u16, fresh: bool, told: bool) -> Look<'a> {
        let sides = &shared.sides[usize::from(root)];
        Look { shared, sides, root, fresh, found: DirFindings::default(), bytes: 0, told, done: LeaseResult::default() }
    }

    /// Makes the directory, also where it turns out to be empty. In a sync that deletes, something else of its name makes way.
    async fn make(&mut self, key: &Key) -> haul_core::Result<()> {
        if !self.fresh || !self.shared.changes() || key.is_root() {
            return Ok(());
        }
        let (dst, spec) = (self.sides.dst.clone(), self.shared.spec());
        // A link to a directory would be taken for this one, and what it leads to written over.
        let link = Key::symlink(key.path());
        if dst.stat(&link).await.is_ok_and(|there| there.is_symlink()) {
            if !self.shared.job.delete {
                let message = "a symbolic link has the place of this directory: remove it, or use sync --delete";
                return Err(haul_core::Error::new(ErrorKind::Exists, "mkdir", message).with_key(key));
            }
            dst.delete(vec![(link, None)]).await.into_iter().collect::<haul_core::Result<()>>()?;
            self.made_way(key);
        }
        match dst.make_dir(key, &spec).await {
            Err(error) if self.shared.job.delete && matches!(error.kind(), ErrorKind::Exists | ErrorKind::Io) => {
                let path = key.path();
                let names = vec![(Key::new(path), None), (Key::symlink(path), None)];
                dst.delete(names).await;
                dst.make_dir(key, &spec).await?;
                self.made_way(key);
                Ok(())
            }
            answer => answer,
        }
    }

    /// Something that wasn't a directory is deleted.
    fn made_way(&mut self, key: &Key) {
        self.done.totals.deleted += 1;
        self.shared.log("deleted", self.root, key.path(), 0, None);
        if self.shared.job.verbose {
            self.done.lines.push(format!("deleted: {}", self.shared.dst_path(self.root, key.path())));
        }
    }

    fn listing(&self, side: Side, key: &Key, after: &Option<Key>) -> BoxStream<'static, Listed> {
        let store = match side {
            Side::Src => &self.sides.src,
            Side::Dst => &self.sides.dst,
        };
        let sweep = side == Side::Dst && self.shared.changes();
        store.list(ListRequest { posix: true, sweep, after: after.clone(), ..ListRequest::dir(key.as_bytes()) })
    }

    async fn walk(&mut self, key: &Key, after: Option<Key>) {
        let mut src = self.listing(Side::Src, key, &after);
        let mut dst = match self.fresh {
            true => futures::stream::iter([Listed::End]).boxed(),
            false => self.listing(Side::Dst, key, &after),
        };
        let mut join = Join::new();
        loop {
            if !self.shared.is_trusted() {
                self.done.undone = true;
                return;
            }
            while let Some(side) = join.starved() {
                let listing = match side {
                    Side::Src => &mut src,
                    Side::Dst => &mut dst,
                };
                let next = listing.next().await;
                self.shared.pulse.step();
                match next {
                    None => join.stop(side),
                    Some(listed) => {
                        self.note(side, key, &listed);
                        if let Err(error) = join.push(side, listed) {
                            let line = format!("{}: {error}", self.shared.path(self.root, key.as_bytes()));
                            self.done.problems.push(Problem { line, full: false, vanished: false });
                            return;
                        }
                    }
                }
            }
            match join.next_pair() {
                None => return,
                Some(Pair::Both(src, dst)) => self.pair(src, Some(dst)),
                Some(Pair::SrcOnly(src)) => self.pair(src, None),
                // A write shows whether the destination has it.
                Some(Pair::SrcUnknown(src)) => self.pair(src, None),
                Some(Pair::DstOnly(dst)) => self.extra(dst),
                // It isn't known whether the source has it, so it stays.
                Some(Pair::DstUnknown(_)) => {}
            }
            self.report_if_many();
        }
    }

    /// Notes the facts of a listing beside names.
    fn note(&mut self, side: Side, key: &Key, listed: &Listed) {
        match listed {
            Listed::Failed { error, .. } => {
                self.done.problems.push(self.shared.problem(self.root, key.as_bytes(), error));
            }
            Listed::Vanished(name) => {
                self.found.unsure = true;
                if self.shared.job.verb == Verb::Check {
                    let root = &self.shared.job.roots[usize::from(self.root)];
                    let top = if side == Side::Src { &root.src } else { &root.dst };
                    let [top, name] = [&top[..], name.path()].map(|path| String::from_utf8_lossy(path).into_owned());
                    let top = top.trim_end_matches('/');
                    let line = format!("{top}/{name}: vanished while its directory was listed, and was not compared");
                    self.done.problems.push(Problem { line, full: false, vanished: true });
                }
            }
            Listed::Batch(_) | Listed::End => {}
        }
    }

    /// Names of a list.
    async fn named(&mut self, names: &[Raw]) {
        for name in names {
            if !self.shared.is_trusted() {
                self.done.undone = true;
                return;
            }
            self.shared.pulse.step();
            match named(&*self.sides.src, name, self.shared.job.follow).await {
                Ok(src) => {
                    // Of files it matters where an earlier run may have brought them.
                    let asks = !self.fresh && (src.is_dir() || self.shared.job.resuming);
                    let dst = if asks { self.sides.dst.stat(&src.key).await.ok() } else { None };
                    self.pair(src, dst);
                }
                Err(error) => self.done.problems.push(self.shared.problem(self.root, name, &error)),
            }
            self.found.last = Some(name.clone());
            self.report_if_many();
        }
    }

    /// The one file of the job.
    async fn one(&mut self) {
        let Some((from, to)) = &self.sides.one else { return };
        match self.sides.src.stat(from).await {
            Ok(src) => {
                let dst = self.sides.dst.stat(to).await.ok();
                // A stat gives no facts of inodes where a listing would.
                self.pair(src, dst);
            }
            Err(error) => self.done.problems.push(self.shared.problem(self.root, from.as_bytes(), &error)),
        }
    }

    fn names(&self) -> usize {
        let shown = self.done.lines.len() + self.done.problems.len();
        self.names_of(&self.found) + shown
    }

    fn pair(&mut self, src: Entry, dst: Option<Entry>) {
        self.found.last = Some(Raw::from(src.key.as_bytes()));
        if src.is_dir() {
            self.in_check(dst.is_none(), &src.key);
            if self.shared.job.verb != Verb::Check || dst.is_some() {
                self.found.dirs.push((Raw::from(src.key.as_bytes()), dst.is_none()));
            }
            return;
        }
        if !src.has_bytes() && src.kind != Kind::Special {
            return;
        }
        self.found.files_seen += 1;
        self.found.bytes_seen += src.size;
        let Some(task) = self.decide(&src, dst.as_ref()) else { return };
        let item = SourceEntry::of(&src, self.sides.device, task);
        let keeps_links = self.shared.keep.as_ref().is_some_and(|keep| keep.hard_links) && self.shared.changes();
        if item.linked.is_some() && keeps_links {
            self.found.linked.push(item);
        } else if is_large(&item) && self.in_pieces(task) {
            self.found.large.push(SourceEntry { linked: None, ..item });
        } else {
            self.bytes += item.size;
            self.found.files.push(SourceEntry { linked: None, ..item });
        }
    }

    /// A dry run compares, and copies nothing.
    fn in_pieces(&self, task: Task) -> bool {
        task == Task::Compare || !self.shared.job.dry_run
    }

    fn in_check(&mut self, only_src: bool, key: &Key) {
        if self.shared.job.verb == Verb::Check && only_src {
            self.done.totals.only_src += 1;
            self.line("only in the source", key);
        }
    }

    fn line(&mut self, what: &str, key: &Key) {
        self.done.lines.push(format!("{what}: {}", self.shared.path(self.root, key.as_bytes())));
    }

    /// The task for a file; `None` for no task.
    fn decide(&mut self, src: &Entry, dst: Option<&Entry>) -> Option<Task> {
        let job = self.shared.job.clone();
        let Some(dst) = dst else {
            self.in_check(true, &src.key);
            return (job.verb != Verb::Check).then_some(Task::Copy);
        };
        let close = self.sides.is_one_time(src.mtime, dst.mtime);
        let alike = src.kind == dst.kind && src.size == dst.size;
        let alike = alike && (src.kind != Kind::Special || is_one_special(src, dst));
        if job.verb == Verb::Check {
            let same = alike && (job.contents || close);
            if !same {
                self.done.totals.differ += 1;
                self.line("differs", &src.key);
                return None;
            }
            if job.contents && src.has_bytes() {
                return Some(Task::Compare);
            }
            self.done.totals.same += 1;
            return None;
        }
        let goes_on = job.verb == Verb::Sync || job.resuming && self.is_new(dst);
        if !goes_on || !alike || !close {
            return Some(Task::Copy);
        }
        // Another target of the same length shows in nothing but itself.
        if job.verb == Verb::Sync && (job.contents && src.kind == Kind::File || src.is_symlink()) {
            return Some(Task::Compare);
        }
        let several = src.posix.as_ref().is_some_and(|posix| posix.nlink > 1);
        // Also what is the same may become a link to what another folder has.
        let may_be_link = self.sides.link_dest.is_some() && src.kind == Kind::File;
        if self.differ(src, dst) || several || may_be_link {
            return Some(Task::Attributes);
        }
        self.done.totals.same += 1;
        None
    }

    /// Was it made since the earlier run of this job began? What was there before may look like the source's file, and be another. A change
    /// time says too little: it moves where another name of the file is replaced. Where the file system doesn't tell, it was not.
    fn is_new(&self, dst: &Entry) -> bool {
        let root = usize::from(self.root);
        let since = self.shared.job.since.get(root).copied().flatten();
        let (Some(since), Some(Root { dst: folder, .. })) = (since, self.shared.job.roots.get(root)) else {
            return false;
        };
        let path = [&folder[..], b"/", dst.key.path()].concat();
        let there = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME);
        there.is_ok_and(|st| {
            let made = (st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
            StatxFlags::from_bits_retain(st.stx_mask).contains(StatxFlags::BTIME) && made > since
        })
    }

    fn differ(&self, src: &Entry, dst: &Entry) -> bool {
        let Some(keep) = &self.shared.keep else { return false };
        match (&src.posix, &dst.posix) {
            (Some(src), Some(dst)) => {
                keep.looks_inside() || attributes::differs(src, dst, keep, &self.shared.rights).0.any()
            }
            _ => true,
        }
    }

    fn extra(&mut self, dst: Entry) {
        self.found.last = Some(Raw::from(dst.key.as_bytes()));
        match self.shared.job.verb {
            Verb::Check => {
                self.done.totals.only_dst += 1;
                self.line("only in the destination", &dst.key);
            }
            Verb::Sync if self.shared.job.delete => self.found.extra.push(Raw::from(dst.key.as_bytes())),
            _ => {}
        }
    }

    fn report_if_many(&mut self) {
        if self.found.files.len() >= FILES || self.bytes >= BYTES || self.names() >= NAMES {
            self.tell();
        }
    }

    /// Tells the coordinator what there is so far.
    fn tell(&mut self) {
        self.told = true;
        self.bytes = 0;
        let found = self.gathered();
        self.shared.say(RankMessage::Found(self.shared.lease, found));
    }

    /// The findings to report, with the counts and problems so far: another rank that takes over doesn't repeat them.
    fn gathered(&mut self) -> DirFindings {
        let LeaseResult { totals, problems, lines, .. } = mem::take(&mut self.done);
        let mut found = DirFindings { totals, problems, lines, ..mem::take(&mut self.found) };
        if !self.shared.changes() {
            return found;
        }
        // An entry that a directory of its name replaces is deleted when that is created.
        let dirs: HashSet<&[u8]> = found.dirs.iter().map(|(key, _)| key.strip_suffix(b"/").unwrap_or(key)).collect();
        found.extra.retain(|key| !dirs.contains(Key::new(key).path()));
        found
    }

    /// The last files are dealt with here; where they are all, so is the directory.
    async fn end(mut self, key: &Key) -> LeaseResult {
        if self.done.undone {
            return self.done;
        }
        let alone = self.names_of(&self.found) == 0 && !self.told;
        let files = match alone {
            // The next holder looks at all of it.
            true => {
                let DirFindings { files, files_seen, bytes_seen, .. } = mem::take(&mut self.found);
                if files_seen > 0 {
                    self.shared.say(RankMessage::Found(
                        self.shared.lease,
                        DirFindings { files_seen, bytes_seen, ..DirFindings::default() },
                    ));
                }
                files
            }
            false => {
                let mut found = self.gathered();
                found.own = mem::take(&mut found.files);
                let files = found.own.clone();
                if found != DirFindings::default() {
                    self.shared.say(RankMessage::Found(self.shared.lease, found));
                }
                files
            }
        };
        self.done.totals.dirs += u64::from(self.sides.one.is_none());
        let more = files::deal(self.shared, self.root, &files).await;
        if more.undone {
            return more;
        }
        self.done.totals += more.totals;
        self.done.problems.extend(more.problems);
        self.done.lines.extend(more.lines);
        let waits = !more.blocked.is_empty();
        self.done.blocked = more.blocked;
        if alone && !waits && self.sides.one.is_none() && self.shared.changes() {
            let finished = finish(self.shared, &[(self.root, key.clone(), self.fresh)]).await;
            if finished.undone {
                return finished;
            }
            self.done.totals += finished.totals;
            self.done.problems.extend(finished.problems);
            self.done.finished = true;
        }
        self.done
    }

    fn names_of(&self, found: &DirFindings) -> usize {
        found.dirs.len() + found.linked.len() + found.large.len() + found.extra.len()
    }
}

/// Gives directories the source's attributes and times. Where nothing is changed, tells which are to get others.
pub async fn finish(shared: &HeldLease, dirs: &[(u16, Key, bool)]) -> LeaseResult {
    let mut done = LeaseResult::default();
    let set = shared.changes();
    for (root, key, new) in dirs.iter().filter(|(.., new)| set || !new) {
        if shared.check().is_err() {
            done.undone = true;
            return done;
        }
        let sides = &shared.sides[usize::from(*root)];
        let mtime = match sides.src.stat(key).await {
            Ok(src) => src.mtime.filter(|_| shared.job.preserve),
            Err(error) => {
                done.problems.push(shared.problem(*root, key.as_bytes(), &error));
                continue;
            }
        };
        let keep = shared.keep.clone();
        let item =
            AttributesItem { from: key.clone(), to: key.clone(), mtime, meta: None, carried: None, keep, new: *new };
        let batch = AttributesBatch { from: sides.place(), items: vec![item], links: shared.links(), set };
        let Some(inodes) = sides.dst.inodes() else { continue };
        for answer in inodes.attributes(batch).await {
            match answer {
                Ok(answer) if set => done.totals.unpreserved += u64::from(!answer.unpreserved.is_empty()),
                Ok(answer) if answer.differs.any() => {
                    done.lines.push(format!("attributes would be set: {}", shared.path(*root, key.as_bytes())));
                }
                Ok(_) => {}
                // The destination's folder isn't there yet.
                Err(error) if !set && is_nowhere(&error) => {}
                Err(error) => done.problems.push(shared.problem(*root, key.as_bytes(), &error)),
            }
        }
        if set {
            shared.log("directory", *root, key.as_bytes(), 0, None);
        }
    }
    done
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use crate::{
        shared::tests::{job, rank},
        work::Job,
    };
    use std::path::Path;

    async fn looked(job: Job) -> (LeaseResult, Vec<DirFindings>) {
        let (shared, said) = rank(job).await;
        let done = look(&HeldLease::new(&shared, 7), 0, &Key::new(""), false, None, None).await;
        let sent_messages = said.try_iter().map(|said| match said {
            RankMessage::Found(7, found) => found,
            other => panic!("{other:?}"),
        });
        (done, sent_messages.collect())
    }

    fn folders(temp: &tempfile::TempDir) -> (std::path::PathBuf, std::path::PathBuf) {
        let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
        std::fs::create_dir_all(&src).unwrap();
        (src, dst)
    }

    fn write(dir: &Path, name: &str) {
        std::fs::write(dir.join(name), name).unwrap();
    }

    #[tokio::test]
    async fn unchanged_files_are_reported_before_later_ones_are_looked_at() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        (0..FILES + 5).for_each(|n| write(&src, &format!("{n:04}")));
        std::fs::create_dir(src.join("below")).unwrap();
        let (done, told) = looked(job(Verb::Dcp, &src, &dst)).await;
        let names = |items: &[SourceEntry]| items.iter().map(|item| item.key.clone()).collect::<Vec<_>>();
        let all = |range: std::ops::Range<usize>| range.map(|n| Raw::from(format!("{n:04}"))).collect::<Vec<_>>();
        assert_eq!(names(&told[0].files), all(0..FILES));
        assert_eq!((names(&told[1].own), told[1].files.len()), (all(FILES..FILES + 5), 0));
        assert_eq!(
            told.iter().map(|found| found.last.clone()).collect::<Vec<_>>(),
            [Some(Raw::from(format!("{:04}", FILES - 1))), Some(Raw::from("below/"))]
        );
        assert_eq!((done.totals.files, done.finished, told.len()), (5, false, 2));
    }

    #[tokio::test]
    async fn a_directory_of_few_files_is_looked_at_anew_as_a_whole() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        write(&src, "file");
        let (done, told) = looked(job(Verb::Dcp, &src, &dst)).await;
        assert_eq!(told, [DirFindings { files_seen: 1, bytes_seen: 4, ..DirFindings::default() }]);
        assert!(done.finished && dst.join("file").exists());
    }

    #[tokio::test]
    async fn names_of_a_list_are_all_that_is_dealt_with() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        ["a", "b", "c"].iter().for_each(|name| write(&src, name));
        std::fs::create_dir_all(src.join("dir/below")).unwrap();
        std::os::unix::fs::symlink("dir", src.join("link")).unwrap();
        let (shared, said) = rank(job(Verb::Dcp, &src, &dst)).await;
        let look = async |names: &[&str], more| {
            let names = names.iter().map(|name| Raw::from(*name)).collect();
            let held = HeldLease::new(&shared, 7);
            let done = look(&held, 0, &Key::new(""), false, None, Some(SelectedNames { names, more })).await;
            (done, said.try_iter().collect::<Vec<_>>())
        };
        let (done, told) = look(&["a", "dir", "link"], false).await;
        let [RankMessage::Found(7, found)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (found.dirs.clone(), found.last.clone()),
            (vec![(Raw::from("dir/"), true)], Some(Raw::from("link")))
        );
        assert_eq!((done.totals.files, done.totals.links, done.problems), (1, 1, vec![]));
        assert!(dst.join("a").exists() && dst.join("link").is_symlink() && !dst.join("b").exists());
        // A missing entry, and one that isn't a directory, is an error.
        let (done, _) = look(&["gone", "link/"], false).await;
        let lines: Vec<&str> = done.problems.iter().map(|problem| &problem.line[..]).collect();
        let at = |name: &str| src.join(name).display().to_string();
        assert!(lines[0].starts_with(&format!("{}: ", at("gone"))) && done.problems[0].vanished, "{lines:?}");
        assert_eq!(lines[1..], [format!("{}: is not a directory", at("link"))]);
        // A directory that others work in isn't finished here.
        assert!(look(&["b"], false).await.0.finished && !look(&["c"], true).await.0.finished);
    }

    #[tokio::test]
    async fn a_dry_run_shows_what_would_go_to_a_folder_that_is_not_there_yet() {
        let temp = tempfile::tempdir().unwrap();
        let (src, _) = folders(&temp);
        write(&src, "file");
        let (dst, path) = (temp.path().join("new/deep"), src.join("file").display().to_string());
        let (shared, _said) = rank(Job { dry_run: true, ..job(Verb::Sync, &src, &dst) }).await;
        let done = look(&HeldLease::new(&shared, 7), 0, &Key::new(""), false, None, None).await;
        assert_eq!((done.lines, done.problems), (vec![format!("would be copied: {path}")], vec![]));
        assert!(!temp.path().join("new").exists());
    }

    #[tokio::test]
    async fn special_files_of_other_types_differ() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        std::fs::create_dir(&dst).unwrap();
        let make = |path: &Path, kind| {
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::from(0o600), 0).unwrap();
        };
        for (name, there) in [("fifo", rustix::fs::FileType::Fifo), ("other", rustix::fs::FileType::Socket)] {
            make(&src.join(name), rustix::fs::FileType::Fifo);
            make(&dst.join(name), there);
        }
        let check = Job { contents: true, ..job(Verb::Check, &src, &dst) };
        let (done, _) = looked(check).await;
        let line = format!("differs: {}", src.join("other").display());
        assert_eq!((done.lines, done.totals.same, done.totals.differ), (vec![line], 1, 1));
    }

    #[tokio::test]
    async fn a_check_tells_of_names_that_it_could_not_compare() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        std::fs::create_dir(&dst).unwrap();
        for verb in [Verb::Check, Verb::Sync] {
            let (shared, _said) = rank(job(verb, &src, &dst)).await;
            let held = HeldLease::new(&shared, 7);
            let mut look = Look::new(&held, 0, false, false);
            for side in [Side::Src, Side::Dst] {
                look.note(side, &Key::new("d/"), &Listed::Vanished(Key::new("d/name")));
            }
            let line = |top: &Path| {
                let path = top.join("d/name");
                format!("{}: vanished while its directory was listed, and was not compared", path.display())
            };
            let lines = if verb == Verb::Check { vec![line(&src), line(&dst)] } else { vec![] };
            assert_eq!(look.done.problems.into_iter().map(|problem| problem.line).collect::<Vec<_>>(), lines);
            assert!(look.found.unsure);
        }
    }

    #[tokio::test]
    async fn what_a_check_finds_is_told_in_pieces() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        std::fs::create_dir(&dst).unwrap();
        (0..2 * NAMES + 5).for_each(|n| write(&src, &format!("{n:05}")));
        let (done, told) = looked(job(Verb::Check, &src, &dst)).await;
        assert_eq!(told.iter().map(|found| found.lines.len()).collect::<Vec<_>>(), [NAMES, NAMES, 5]);
        assert_eq!(told.iter().map(|found| found.totals.only_src as usize).sum::<usize>(), 2 * NAMES + 5);
        assert_eq!((done.lines.len(), done.totals.only_src), (0, 0));
    }

    fn as_old_as(file: &Path, other: &Path) {
        let time = other.metadata().unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
    }

    #[tokio::test]
    async fn what_is_unchanged_since_a_dcp_began_is_not_taken_for_done() {
        use std::os::unix::fs::MetadataExt as _;
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        std::fs::create_dir(&dst).unwrap();
        let mut since = None;
        for name in ["before", "after"] {
            write(&src, name);
            // The existing file has the size and time of the source's file, and other bytes.
            std::fs::write(dst.join(name), name.to_uppercase()).unwrap();
            as_old_as(&dst.join(name), &src.join(name));
            let there = dst.join(name).metadata().unwrap();
            since.get_or_insert((there.ctime(), there.ctime_nsec() as u32));
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        let read = |name: &str| std::fs::read_to_string(dst.join(name)).unwrap();
        let goes_on = |since| Job { resuming: true, since: vec![since], ..job(Verb::Dcp, &src, &dst) };
        let (done, _) = looked(goes_on(since)).await;
        assert_eq!((read("before"), read("after")), ("before".into(), "AFTER".into()));
        assert_eq!((done.totals.files, done.totals.same), (1, 1));
        // Where it isn't known when the job began all is copied.
        looked(goes_on(None)).await;
        assert_eq!(read("after"), "after");
    }

    #[tokio::test]
    async fn a_link_with_another_target_of_the_same_length_is_replaced() {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        std::fs::create_dir(&dst).unwrap();
        for (dir, target) in [(&src, "aaaa"), (&dst, "bbbb")] {
            let time = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
            let times = Timestamps { last_access: time, last_modification: time };
            std::os::unix::fs::symlink(target, dir.join("link")).unwrap();
            utimensat(CWD, dir.join("link"), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        let dry_run = Job { dry_run: true, ..job(Verb::Sync, &src, &dst) };
        let line = format!("would be copied: {}", src.join("link").display());
        assert_eq!(looked(dry_run).await.0.lines, [line]);
        for (links, same) in [(1, 0), (0, 1)] {
            let (done, _) = looked(job(Verb::Sync, &src, &dst)).await;
            assert_eq!((done.totals.links, done.totals.same, done.problems), (links, same, vec![]));
            assert_eq!(std::fs::read_link(dst.join("link")).unwrap(), Path::new("aaaa"));
        }
    }

    #[tokio::test]
    async fn a_dry_run_shows_whose_attributes_would_be_set() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = folders(&temp);
        ["same", "other"].iter().for_each(|name| write(&src, name));
        std::fs::create_dir_all(src.join("below")).unwrap();
        let all = [Key::new(""), Key::new("below/")].map(|key| (0, key, false));
        for (dry_run, changed) in [(false, false), (true, true), (true, false)] {
            let (shared, _said) = rank(Job { dry_run, ..job(Verb::Sync, &src, &dst) }).await;
            let held = HeldLease::new(&shared, 7);
            if changed {
                for name in ["other", "below"] {
                    std::fs::set_permissions(dst.join(name), std::fs::Permissions::from_mode(0o700)).unwrap();
                }
            } else {
                std::fs::create_dir_all(dst.join("below")).unwrap();
            }
            let mut done = look(&held, 0, &Key::new(""), false, None, None).await;
            done.lines.extend(finish(&held, &all).await.lines);
            let line = |name: &str| format!("attributes would be set: {}", src.join(name).display());
            assert_eq!(done.lines, if changed { vec![line("other"), line("below")] } else { vec![] }, "{dry_run}");
            if changed {
                looked(job(Verb::Sync, &src, &dst)).await;
                finish(&HeldLease::new(&rank(job(Verb::Sync, &src, &dst)).await.0, 7), &all).await;
            }
        }
    }
}
