//! Symlinks under rsync's habits: those that lead out of what is transferred (`--safe-links`), and those at the destination
//! that stand for directories (`--keep-dirlinks`).

use super::{Run, rsync::bare};
use futures::TryStreamExt;
use haul_core::{Entry, ErrorKind, Key, LINK, Result, compare::Difference, event::Event, join::Pair, links};
use haul_store::{Body, WriteSpec};

/// Where a symlink to a directory at the destination leads.
#[derive(Clone, Copy)]
pub(super) enum Behind {
    /// To a directory below the destination.
    Inside,
    /// Elsewhere: nothing is written there.
    Outside,
}

impl Run {
    /// True for a pair that [`Run::by_habits`] may have something to say of.
    pub(super) fn has_habits_of(&self, pair: &Pair) -> bool {
        let (Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src)) = pair else { return false };
        let habits = self.policy.rsync.as_ref();
        habits
            .is_some_and(|habits| habits.keep_dirlinks || src.is_dir() || src.is_link() && habits.safe_links.is_some())
    }

    /// What becomes of a pair by these habits; `None` when nothing does.
    pub(super) async fn by_habits(&self, pair: Pair) -> Option<Pair> {
        let Some(habits) = &self.policy.rsync else { return Some(pair) };
        if let Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) = &pair
            && let Some(depth) = habits.safe_links
            && src.is_link()
            && self.leads_out(src, depth).await
        {
            return None;
        }
        if let Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) = &pair
            && src.is_dir()
            && self.cx.filter.is_on_the_way(&src.key)
        {
            return None;
        }
        match pair {
            Pair::SrcOnly(src) => match self.dirlink_above(&src.key) {
                None => Some(Pair::SrcOnly(src)),
                Some(Behind::Inside) => Some(self.look_behind(src).await),
                Some(Behind::Outside) => None,
            },
            pair => Some(pair),
        }
    }

    /// True for a link that is left out, which is told; `depth` directories are above the root.
    async fn leads_out(&self, src: &Entry, depth: usize) -> bool {
        let target = match self.link_target(&src.key).await {
            Ok(Some(target)) => target,
            Ok(None) => return false,
            Err(error) => {
                self.error(error.with_key(&src.key));
                return true;
            }
        };
        let slashes = src.key.as_bytes().iter().filter(|b| **b == b'/').count();
        let out = links::leads_out(&target, depth + slashes);
        if out {
            let target = String::from_utf8_lossy(&target).into_owned();
            self.cx.sink.emit(&Event::UnsafeLink { key: src.key.clone(), target });
        }
        out
    }

    /// What a translated link holds; `None` for a file that only has such a name.
    async fn link_target(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let Body::Stream(pieces) = self.cx.src.read(key, None, None).await?.body else { return Ok(None) };
        let target = pieces.try_fold(Vec::new(), |mut target, piece| async move {
            target.extend_from_slice(&piece);
            Ok(target)
        });
        target.await.map(Some)
    }

    /// True when the destination has a symlink to a directory where the source has the directory `key`, and it is to stay:
    /// what is in the source's directory goes where it leads. Where that is outside of the destination, that is an error.
    pub(super) async fn keeps_dirlink(&self, key: &Key) -> bool {
        if !self.policy.rsync.as_ref().is_some_and(|habits| habits.keep_dirlinks) {
            return false;
        }
        let name = bare(key.as_bytes());
        let mut there = false;
        for other in [[name, LINK].concat(), name.to_vec()] {
            there |= self.cx.dst.stat(&Key::new(other)).await.is_ok_and(|entry| !entry.is_dir());
        }
        if !there {
            return false;
        }
        // Where a link to a directory is there is nothing to make, and where a file or another link is nothing can be made.
        let behind = match self.cx.dst.make_dir(key, &WriteSpec::default()).await {
            Ok(()) => Behind::Inside,
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.error(error.with_key(key));
                Behind::Outside
            }
            Err(_) => return false,
        };
        self.kept_links.lock().unwrap_or_else(|e| e.into_inner()).push((key.clone(), behind));
        self.cx.sink.emit(&Event::DirSeen { key: key.clone(), differs: Difference::of_dir(), elsewhere: false });
        true
    }

    fn dirlink_above(&self, key: &Key) -> Option<Behind> {
        let kept = self.kept_links.lock().unwrap_or_else(|e| e.into_inner());
        kept.iter().find(|(dir, _)| key.as_bytes().starts_with(dir.as_bytes())).map(|(_, behind)| *behind)
    }

    /// The destination's listing doesn't go through links: ask.
    async fn look_behind(&self, src: Entry) -> Pair {
        match self.cx.dst.stat(&src.key).await {
            Ok(dst) => Pair::Both(src, dst),
            Err(error) if error.kind() == ErrorKind::NotFound => Pair::SrcOnly(src),
            Err(_) => Pair::SrcUnknown(src),
        }
    }
}
