//! `--track-renames`: a file that only the source has and one that only the destination has may be the same file
//! under another name. Then the destination's is renamed instead of the bytes sent again.

use crate::{Cx, hash};
use haul_core::{
    Algo, Entry, Error, Result,
    compare::{HashAnswer, Rules, within},
    job::RenameBy,
};
use haul_store::Store;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Collects both kinds until the listings end. Holds every such file: the price of the flag.
pub struct Renames {
    by: RenameBy,
    missing: Mutex<Vec<Entry>>,
    extra: Mutex<Vec<Entry>>,
}

/// Found renames.
#[derive(Default)]
pub struct FoundRenames {
    /// Source file, and the destination's file that holds the same under another name.
    pub renamed: Vec<(Entry, Entry)>,
    /// To be copied.
    pub missing: Vec<Entry>,
    /// To be deleted.
    pub extra: Vec<Entry>,
    /// Files that could not be compared; they count as missing and extra.
    pub errors: Vec<Error>,
}

impl Renames {
    /// Recognises files by the facts of `by`, and their size.
    pub fn new(by: RenameBy) -> Self {
        Renames { by, missing: Mutex::default(), extra: Mutex::default() }
    }

    /// A file that only the source has.
    pub fn src_only(&self, entry: Entry) {
        self.missing.lock().unwrap_or_else(|e| e.into_inner()).push(entry);
    }

    /// A file that only the destination has.
    pub fn dst_only(&self, entry: Entry) {
        self.extra.lock().unwrap_or_else(|e| e.into_inner()).push(entry);
    }

    /// Pairs them up, each destination file at most once.
    pub async fn settle(&self, cx: &Cx, rules: &Rules) -> FoundRenames {
        let missing = std::mem::take(&mut *self.missing.lock().unwrap_or_else(|e| e.into_inner()));
        let extra = std::mem::take(&mut *self.extra.lock().unwrap_or_else(|e| e.into_inner()));
        let mut by_size: HashMap<u64, Vec<Candidate>> = HashMap::new();
        for entry in extra {
            by_size.entry(entry.size).or_default().push(Candidate::new(entry));
        }
        let mut settled = FoundRenames::default();
        for src in missing {
            if cx.cancel.is_cancelled() {
                settled.missing.push(src);
                continue;
            }
            let candidates = by_size.get_mut(&src.size).filter(|_| src.size > 0);
            match self.pick(cx, rules, &src, candidates).await {
                Ok(Some(old)) => settled.renamed.push((src, old)),
                Ok(None) => settled.missing.push(src),
                Err(error) => {
                    settled.errors.push(error);
                    settled.missing.push(src);
                }
            }
        }
        settled.extra = by_size.into_values().flatten().map(|candidate| candidate.entry).collect();
        settled.extra.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        settled
    }

    async fn pick(
        &self,
        cx: &Cx,
        rules: &Rules,
        src: &Entry,
        from: Option<&mut Vec<Candidate>>,
    ) -> Result<Option<Entry>> {
        let Some(from) = from else { return Ok(None) };
        let mut src = Candidate::new(src.clone());
        for at in 0..from.len() {
            if self.may_be_same(rules, &src.entry, &from[at].entry)
                && (!self.by.hash || same_content(cx, &mut src, &mut from[at]).await?)
            {
                return Ok(Some(from.swap_remove(at).entry));
            }
        }
        Ok(None)
    }

    /// All but the content agrees.
    fn may_be_same(&self, rules: &Rules, src: &Entry, old: &Entry) -> bool {
        if src.damaged || old.damaged {
            return false;
        }
        if self.by.leaf && src.key.leaf() != old.key.leaf() {
            return false;
        }
        if !self.by.mtime {
            return true;
        }
        let (Some(a), Some(b), Some(window)) = (src.mtime, old.mtime, rules.window) else { return false };
        within(a, b, window)
    }
}

/// A file, and the known facts of its content: requested once, however many others it is compared with.
struct Candidate {
    entry: Entry,
    /// The store was asked for the hashes that it keeps.
    hashes_requested: bool,
}

impl Candidate {
    fn new(entry: Entry) -> Candidate {
        Candidate { entry, hashes_requested: false }
    }

    /// Learns what the store keeps.
    async fn ask(&mut self, store: &Arc<dyn Store>) -> Result<()> {
        if !std::mem::replace(&mut self.hashes_requested, true) {
            self.entry.hashes = hash::known(store, &self.entry).await?;
        }
        Ok(())
    }

    /// Learns a hash where reading is cheap.
    async fn read(&mut self, cx: &Cx, store: &Arc<dyn Store>, algo: Algo) -> Result<()> {
        if self.entry.hashes.get(algo).is_none() {
            let hashes = hash::known_or_read(cx.known.hashes.as_deref(), store, &self.entry, &[algo]).await?;
            self.entry.hashes.merge(&hashes);
        }
        Ok(())
    }
}

/// As [`hash::compare`] says it.
async fn same_content(cx: &Cx, src: &mut Candidate, old: &mut Candidate) -> Result<bool> {
    let links = src.entry.is_symlink() && old.entry.is_symlink();
    match (cx.src.caps().cheap_reads, cx.dst.caps().cheap_reads) {
        _ if links => {}
        (true, true) => {
            src.read(cx, &cx.src, Algo::Blake3).await?;
            old.read(cx, &cx.dst, Algo::Blake3).await?;
        }
        (true, false) => {
            old.ask(&cx.dst).await?;
            if let Some(algo) = old.entry.hashes.iter().next().map(|(algo, _)| algo) {
                src.read(cx, &cx.src, algo).await?;
            }
        }
        (false, true) => {
            src.ask(&cx.src).await?;
            if let Some(algo) = src.entry.hashes.iter().next().map(|(algo, _)| algo) {
                old.read(cx, &cx.dst, algo).await?;
            }
        }
        (false, false) if src.entry.hashes.agree(&old.entry.hashes).is_none() => {
            src.ask(&cx.src).await?;
            old.ask(&cx.dst).await?;
        }
        (false, false) => {}
    }
    let answer = match src.entry.hashes.agree(&old.entry.hashes) {
        Some((algo, same)) => HashAnswer::Known(algo, same),
        None => hash::compare(cx.known.hashes.as_deref(), (&cx.src, &src.entry), (&cx.dst, &old.entry)).await?,
    };
    Ok(matches!(answer, HashAnswer::Known(algo, true) if algo != Algo::Crc32))
}
