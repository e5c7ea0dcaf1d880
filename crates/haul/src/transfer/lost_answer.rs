//! Writes that may replace nothing, and lost answers: what refuses the next attempt may be what the first one stored.

use super::{ArrivedFile, FileTransfer, Mover, VERIFY};
use crate::namesakes::lists_beside;
use haul_core::{Algo, Entry, Error, ErrorKind, Key, plan::Replace};
use haul_store::StoredFacts;

impl Mover {
    /// Notes that a write under a condition may have been done although this is its answer.
    pub fn note_lost(&self, order: &mut FileTransfer, error: &Error) {
        let may_be_done = matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unreachable | ErrorKind::Io);
        order.unsure |= may_be_done && self.replaces(order) == Replace::Absent;
    }

    /// After a refusal because the destination has an entry of the file's name: that entry, if a hash proves it to be the source's content
    /// and it has exactly this name. `None` for anything else, and if that is unknown.
    pub async fn stored_before(&self, order: &FileTransfer, src: &Entry) -> Option<ArrivedFile> {
        let there = self.cx.dst.stat(&order.to).await.ok()?;
        if there.kind != src.kind || there.size != src.size || !self.is_listed(&order.to).await {
            return None;
        }
        let proved = self.equal_by(src, &there).await?;
        let Entry { version, size, hashes, .. } = there;
        let stored = StoredFacts { version, size, hashes, unpreserved: Default::default() };
        Some(ArrivedFile { proved: Some(proved), ..self.arrived_as(order, src.clone(), size, stored) })
    }

    /// The hash by which two files are equal: one that both stores state, else one computed from reads on both sides.
    async fn equal_by(&self, src: &Entry, there: &Entry) -> Option<Algo> {
        if let Some((algo, same)) = src.hashes.agree(&there.hashes) {
            return same.then_some(algo);
        }
        let (src, there) = tokio::join!(
            crate::hash::read_and_hash(&self.cx.src, src, &[VERIFY]),
            crate::hash::read_and_hash(&self.cx.dst, there, &[VERIFY])
        );
        src.ok()?.agree(&there.ok()?).and_then(|(algo, same)| same.then_some(algo))
    }

    /// True when the destination lists exactly this name, not only one that it takes for the same.
    async fn is_listed(&self, key: &Key) -> bool {
        let caps = self.cx.dst.caps();
        if !caps.dirs && !caps.case_insensitive {
            return true;
        }
        lists_beside(&self.cx.dst, key, |entry| entry.key == *key).await
    }
}
