//! Symlinks of the destination that stand for directories and stay (`--keep-dirlinks`): what is written through them, and what isn't.

use crate::{
    Cx,
    ledger::Ledger,
    namesakes::{of_any_kind, of_name, whole},
};
use haul_core::{
    Entry, Error, ErrorKind, Key,
    compare::Difference,
    event::{Event, Facts},
    job::Job,
    join::Pair,
    key::path,
};
use haul_store::{Body, WriteSpec};
use std::sync::{Arc, Mutex, MutexGuard};

/// How many symlinks the kernel follows on the way to a directory (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Where a symlink to a directory at the destination leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DirlinkTarget {
    /// To a directory below the destination, with its own key if that could be read.
    Inside(Option<Key>),
    /// Elsewhere, or to something that isn't a directory: nothing is written there.
    Outside,
}

/// The symlinks that stay.
pub(super) struct Dirlinks {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    /// In the order of the walk: of nested ones the inner comes later.
    kept: Mutex<Vec<(Key, DirlinkTarget)>>,
}

impl Dirlinks {
    /// None was found yet.
    pub fn new((job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>)) -> Dirlinks {
        Dirlinks { job: job.clone(), cx: cx.clone(), ledger: ledger.clone(), kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Key, DirlinkTarget)>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What only the source has by the listings, as a pair with what is behind the innermost symlink above it; `None` when it is left
    /// out, which is reported unless it was before.
    pub async fn pair(&self, src: Entry) -> Option<Pair> {
        match self.above(&src.key) {
            None => Some(Pair::SrcOnly(src)),
            Some((_, DirlinkTarget::Outside)) => None,
            Some((link, DirlinkTarget::Inside(real))) => match self.other_way(&src, &link, real).await {
                Some(other) => {
                    self.ledger.error(two_ways(&src.key, &other));
                    None
                }
                None => Some(self.look_behind(src).await),
            },
        }
    }

    /// True when the destination has a symlink to a directory where the source has the directory `src`, and the symlink stays: the
    /// contents of the source's directory are written to where it leads. If that is outside of the destination, it is an error.
    pub async fn keeps(&self, src: &Entry) -> bool {
        let key = &src.key;
        if !self.job.links.keep_dirlinks {
            return false;
        }
        let mut there = false;
        for other in of_name(&self.cx.dst, key.path()) {
            there |= self.cx.dst.stat(&other).await.is_ok_and(|entry| !entry.is_dir());
        }
        if !there {
            return false;
        }
        // A symlink to a directory already is one; where a file or another symlink is, creating the directory fails.
        let behind = match self.cx.dst.make_dir(key, &WriteSpec::default()).await {
            Ok(()) => DirlinkTarget::Inside(self.real(key).await),
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.ledger.error(error.with_key(key));
                DirlinkTarget::Outside
            }
            Err(_) => return false,
        };
        self.kept().push((key.clone(), behind));
        let (differs, facts) = (Difference::of_dir(), Facts::of(src));
        self.ledger.tell(Event::DirSeen { key: key.clone(), differs, elsewhere: false, facts });
        true
    }

    /// Reports that a directory of the source can't be written, because something else at the destination has its name and stays.
    pub fn close(&self, dir: &Key) {
        self.kept().push((dir.clone(), DirlinkTarget::Outside));
        let message = "the destination has something else than a directory here, and existing files aren't replaced";
        self.ledger.error(Error::new(ErrorKind::Exists, "mkdir", message).with_key(dir));
    }

    /// The innermost symlink above `key` that stays.
    fn above(&self, key: &Key) -> Option<(Key, DirlinkTarget)> {
        self.kept().iter().rev().find(|(dir, _)| key.as_bytes().starts_with(dir.as_bytes())).cloned()
    }

    /// The directory `key` of the destination with all symlinks resolved; `None` if that can't be found out.
    async fn real(&self, key: &Key) -> Option<Key> {
        let part = |part: &[u8]| part.to_vec();
        let mut ahead: Vec<Vec<u8>> = key.path().rsplit(|b| *b == b'/').map(part).collect();
        let (mut real, mut links) = (Vec::new(), 0);
        while let Some(name) = ahead.pop() {
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    real.pop()?;
                    continue;
                }
                _ => real.push(name),
            }
            if !self.cx.dst.caps().symlinks {
                continue;
            }
            let link = Key::symlink(real.join(&b'/'));
            let Ok(read) = self.cx.dst.read(&link, None, None).await else { continue };
            let Body::Stream(pieces) = read.body else { continue };
            let target = whole(pieces).await.ok()?;
            links += 1;
            if links > MOST_LINKS || target.starts_with(b"/") {
                return None;
            }
            real.pop();
            ahead.extend(target.rsplit(|b| *b == b'/').map(part));
        }
        Some(Key::new([&real.join(&b'/'), &b"/"[..]].concat()))
    }

    /// Another name of a source that comes to the place at the destination to which `src` comes through the symlink `link`, which
    /// leads to the directory `real`. Directories may meet, nothing else.
    async fn other_way(&self, src: &Entry, link: &Key, real: Option<Key>) -> Option<Key> {
        let below = &src.key.as_bytes()[link.as_bytes().len()..];
        let real = real?;
        let kept = others(&self.kept(), link, &real);
        for dir in std::iter::once(real).chain(kept) {
            let key = Key::new([dir.as_bytes(), path(below)].concat());
            if key.as_bytes() != src.key.path() && self.source_shows(&key, !src.is_dir()).await {
                return Some(key);
            }
        }
        None
    }

    /// True when this source or another one has something under a name; directories count only with `dirs`.
    async fn source_shows(&self, name: &Key, dirs: bool) -> bool {
        for key in of_any_kind(&self.cx.src, name.as_bytes()) {
            if key.is_dir() && !dirs {
                continue;
            }
            if let Ok(entry) = self.cx.src.stat(&key).await
                && entry.is_dir() == key.is_dir()
                && self.cx.filter.wants_name(&Entry { key, ..entry })
            {
                return true;
            }
        }
        dirs && self.cx.filter.shown_by_another_source(name)
    }

    /// Asks the destination, whose listing doesn't follow symlinks.
    async fn look_behind(&self, src: Entry) -> Pair {
        match self.cx.dst.stat(&src.key).await {
            Ok(dst) => Pair::Both(src, dst),
            Err(error) if error.kind() == ErrorKind::NotFound => Pair::SrcOnly(src),
            Err(_) => Pair::SrcUnknown(src),
        }
    }
}

/// Names that the directory `real` of the destination has by other symlinks than `link`.
fn others(kept: &[(Key, DirlinkTarget)], link: &Key, real: &Key) -> Vec<Key> {
    let same = |(other, behind): &(Key, DirlinkTarget)| match behind {
        DirlinkTarget::Inside(Some(led)) if other != link => {
            let rest = real.as_bytes().strip_prefix(led.as_bytes())?;
            Some(Key::new([other.as_bytes(), rest].concat()))
        }
        _ => None,
    };
    kept.iter().filter_map(same).collect()
}

fn two_ways(key: &Key, other: &Key) -> Error {
    let message =
        format!("a symbolic link of the destination leads to where {:?} of the source goes too", other.display());
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, dir, disk, file, job, put};
    use haul_core::job::Verb;
    use haul_mem::MemStore;

    fn inside(real: &str) -> DirlinkTarget {
        DirlinkTarget::Inside(Some(Key::new(real)))
    }

    fn sample(src: MemStore, dst: MemStore) -> Sample {
        Sample::new(job(Verb::Copy, |job| job.links.keep_dirlinks = true), src, dst)
    }

    #[test]
    fn of_nested_symlinks_the_inner_counts() {
        let dirlinks = Dirlinks::new(sample(disk(), disk()).parts());
        for (key, behind) in [("a-b/", DirlinkTarget::Outside), ("a/", inside("x/")), ("a/b/", inside("y/"))] {
            dirlinks.kept().push((Key::new(key), behind));
        }
        let above = |key: &str| dirlinks.above(&Key::new(key)).map(|(link, _)| link);
        assert_eq!(above("a/b/c"), Some(Key::new("a/b/")));
        assert_eq!(above("a/bc"), Some(Key::new("a/")));
        assert_eq!(above("a-b/c"), Some(Key::new("a-b/")));
        assert_eq!((above("a-c"), above("ab/c")), (None, None));
    }

    #[test]
    fn a_directory_has_other_names_by_symlinks_to_it_or_above_it() {
        let (link, real) = (Key::new("l/"), Key::new("x/y/"));
        let kept = [
            (link.clone(), inside("x/y/")),
            (Key::new("m/"), inside("x/")),
            (Key::new("n/"), inside("x/y/")),
            (Key::new("o/"), inside("x/y/z/")),
            (Key::new("p/"), DirlinkTarget::Inside(None)),
            (Key::new("q/"), DirlinkTarget::Outside),
        ];
        assert_eq!(others(&kept, &link, &real), [Key::new("m/y/"), Key::new("n/")]);
    }

    #[tokio::test]
    async fn what_is_behind_a_symlink_is_a_pair_with_what_is_there() {
        let dst = disk();
        put(&dst, "a/b").await;
        let sample = sample(disk(), dst);
        let dirlinks = Dirlinks::new(sample.parts());
        assert!(matches!(dirlinks.pair(file("a/b")).await, Some(Pair::SrcOnly(_))), "no symlink is known");
        dirlinks.kept().push((Key::new("a/"), inside("x/")));
        assert!(matches!(dirlinks.pair(file("a/b")).await, Some(Pair::Both(..))));
        assert!(matches!(dirlinks.pair(file("a/c")).await, Some(Pair::SrcOnly(_))));
        assert_eq!(sample.errors(), 0);
    }

    #[tokio::test]
    async fn two_names_of_one_place_are_an_error_unless_both_are_directories() {
        let src = disk();
        for key in ["x/f", "x/d/g"] {
            put(&src, key).await;
        }
        let sample = sample(src, disk());
        let dirlinks = Dirlinks::new(sample.parts());
        dirlinks.kept().push((Key::new("a/"), inside("x/")));
        assert!(dirlinks.pair(file("a/f")).await.is_none());
        assert_eq!(sample.errors(), 1);
        assert!(dirlinks.pair(dir("a/d/")).await.is_some());
        assert_eq!(sample.errors(), 1);
    }

    #[tokio::test]
    async fn nothing_is_written_below_a_closed_name() {
        let sample = sample(disk(), disk());
        let dirlinks = Dirlinks::new(sample.parts());
        dirlinks.close(&Key::new("a/"));
        assert_eq!(sample.errors(), 1);
        assert!(dirlinks.pair(file("a/b")).await.is_none());
        assert!(dirlinks.pair(file("a-b")).await.is_some());
        assert_eq!(sample.errors(), 1, "it is reported once");
    }
}
