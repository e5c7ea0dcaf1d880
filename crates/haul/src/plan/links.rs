//! Symlinks with rules of their own: those that point out of the transferred tree (`--safe-links`), and those of the destination
//! that stand for directories (`--keep-dirlinks`); and the targets that are reported.

use super::Planner;
use crate::namesakes::{of_any_kind, of_name, target, whole};
use haul_core::{
    Entry, Error, ErrorKind, Key,
    compare::Difference,
    event::{Event, Facts},
    job::Targets,
    join::Pair,
    key::path,
    links,
    plan::Action,
};
use haul_store::{Body, WriteSpec};

/// How many symlinks the kernel follows on the way to a directory (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Where a symlink to a directory at the destination leads.
#[derive(Clone)]
pub(super) enum Behind {
    /// To a directory below the destination, with its own key if that could be read.
    Inside(Option<Key>),
    /// Elsewhere, or to something that isn't a directory: nothing is written there.
    Outside,
}

impl Planner {
    /// True for a symlink that is read before the decision: because `--safe-links` may leave it out, or because its target is
    /// reported.
    pub(super) fn reads_link(&self, src: &Entry, action: Action) -> bool {
        src.is_symlink() && (self.job.links.safe.is_some() || self.tells_target(action))
    }

    fn tells_target(&self, action: Action) -> bool {
        match self.job.tell.targets {
            Targets::None => false,
            Targets::OfChanges => action != Action::Keep,
            Targets::OfAll => true,
        }
    }

    /// Reads the target of a symlink if it is reported. Only of symlinks on a disk, which cost no request.
    pub(crate) async fn read_link(&self, src: &mut Entry, action: Action) {
        if !src.is_symlink() || !self.tells_target(action) {
            return;
        }
        if let Some(posix) = src.posix.as_mut().filter(|posix| posix.target.is_none()) {
            // If it can't be read, the error comes when it is copied.
            posix.target = target(&self.cx.src, &src.key).await.ok().flatten().map(Vec::into_boxed_slice);
        }
    }

    /// True for a pair that [`Planner::before_comparing`] may change.
    pub(super) fn must_be_looked_at(&self, pair: &Pair) -> bool {
        let (Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src)) = pair else { return false };
        let (existing, links) = (&self.job.existing, &self.job.links);
        let closed = links.keep_dirlinks || existing.ignore && existing.other_kinds.are_replaced();
        closed || src.is_dir() && self.cx.filter.has_unlisted_parents() || src.is_symlink() && links.safe.is_some()
    }

    /// The pair after these rules; `None` when it is left out.
    pub(super) async fn before_comparing(&self, pair: Pair) -> Option<Pair> {
        if let Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) = &pair
            && self.is_unsafe_link(src).await
        {
            return None;
        }
        if let Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) = &pair
            && src.is_dir()
            && self.cx.filter.is_unlisted_parent(&src.key)
        {
            return None;
        }
        match pair {
            Pair::SrcOnly(src) => match self.dirlink_above(&src.key) {
                None => Some(Pair::SrcOnly(src)),
                Some((_, Behind::Outside)) => None,
                Some((link, Behind::Inside(real))) => match self.other_way(&src, &link, real).await {
                    Some(other) => {
                        self.ledger.error(two_ways(&src.key, &other));
                        None
                    }
                    None => Some(self.look_behind(src).await),
                },
            },
            pair => Some(pair),
        }
    }

    /// True for a symlink that `--safe-links` leaves out, after reporting it.
    pub(super) async fn is_unsafe_link(&self, src: &Entry) -> bool {
        match self.job.links.safe {
            Some(depth) if src.is_symlink() => self.leads_out(src, depth).await,
            _ => false,
        }
    }

    /// True for a symlink that points out of the tree, after reporting it; `depth` directories of the tree are above the root.
    async fn leads_out(&self, src: &Entry, depth: usize) -> bool {
        let target = match target(&self.cx.src, &src.key).await {
            Ok(Some(target)) => target,
            Ok(None) => return false,
            Err(error) => {
                self.ledger.error(error.with_key(&src.key));
                return true;
            }
        };
        let slashes = src.key.as_bytes().iter().filter(|b| **b == b'/').count();
        let out = links::leads_out(&target, depth + slashes);
        if out {
            let target = String::from_utf8_lossy(&target).into_owned();
            self.ledger.tell(Event::UnsafeLink { key: src.key.clone(), target });
        }
        out
    }

    /// True when the destination has a symlink to a directory where the source has the directory `src`, and the symlink stays: the
    /// contents of the source's directory are written to where it leads. If that is outside of the destination, it is an error.
    pub(super) async fn keeps_dirlink(&self, src: &Entry) -> bool {
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
            Ok(()) => Behind::Inside(self.real(key).await),
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.ledger.error(error.with_key(key));
                Behind::Outside
            }
            Err(_) => return false,
        };
        self.kept_links.lock().unwrap_or_else(|e| e.into_inner()).push((key.clone(), behind));
        let (differs, facts) = (Difference::of_dir(), Facts::of(src));
        self.ledger.tell(Event::DirSeen { key: key.clone(), differs, elsewhere: false, facts });
        true
    }

    /// Reports that a directory of the source can't be written, because something else at the destination has its name and stays.
    pub(super) fn close(&self, dir: &Key) {
        self.kept_links.lock().unwrap_or_else(|e| e.into_inner()).push((dir.clone(), Behind::Outside));
        let message = "the destination has something else than a directory here, and existing files aren't replaced";
        self.ledger.error(Error::new(ErrorKind::Exists, "mkdir", message).with_key(dir));
    }

    /// The innermost symlink above `key` that stays.
    fn dirlink_above(&self, key: &Key) -> Option<(Key, Behind)> {
        let kept = self.kept_links.lock().unwrap_or_else(|e| e.into_inner());
        kept.iter().rev().find(|(dir, _)| key.as_bytes().starts_with(dir.as_bytes())).cloned()
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
        let same = |(other, behind): &(Key, Behind)| match behind {
            Behind::Inside(Some(led)) if other != link => {
                let rest = real.as_bytes().strip_prefix(led.as_bytes())?;
                Some(Key::new([other.as_bytes(), rest].concat()))
            }
            _ => None,
        };
        let kept: Vec<Key> = {
            let kept = self.kept_links.lock().unwrap_or_else(|e| e.into_inner());
            kept.iter().filter_map(same).collect()
        };
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

fn two_ways(key: &Key, other: &Key) -> Error {
    let message =
        format!("a symbolic link of the destination leads to where {:?} of the source goes too", other.display());
    Error::new(ErrorKind::Exists, "write", message).with_key(key)
}
