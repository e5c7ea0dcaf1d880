//! `--track-renames`: a file that only the source has and one that only the destination has may be the same file
//! under another name. Then the destination's is renamed instead of the bytes sent again.

use crate::{Cx, hash};
use haul_core::{
    Algo, Entry, Error, Result,
    compare::{HashAnswer, Rules, within},
    job::RenameBy,
};
use std::{collections::HashMap, sync::Mutex};

/// Collects both kinds until the listings end. Holds every such file: the price of the flag.
pub struct Renames {
    by: RenameBy,
    missing: Mutex<Vec<Entry>>,
    extra: Mutex<Vec<Entry>>,
}

/// What was found.
#[derive(Default)]
pub struct Settled {
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
    /// Recognises files by what `by` says, and their size.
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
    pub async fn settle(&self, cx: &Cx, rules: &Rules) -> Settled {
        let missing = std::mem::take(&mut *self.missing.lock().unwrap_or_else(|e| e.into_inner()));
        let extra = std::mem::take(&mut *self.extra.lock().unwrap_or_else(|e| e.into_inner()));
        let mut by_size: HashMap<u64, Vec<Entry>> = HashMap::new();
        for entry in extra {
            by_size.entry(entry.size).or_default().push(entry);
        }
        let mut settled = Settled::default();
        for src in missing {
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
        settled.extra = by_size.into_values().flatten().collect();
        settled.extra.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        settled
    }

    async fn pick(&self, cx: &Cx, rules: &Rules, src: &Entry, from: Option<&mut Vec<Entry>>) -> Result<Option<Entry>> {
        let Some(from) = from else { return Ok(None) };
        for at in 0..from.len() {
            if self.same(cx, rules, src, &from[at]).await? {
                return Ok(Some(from.swap_remove(at)));
            }
        }
        Ok(None)
    }

    async fn same(&self, cx: &Cx, rules: &Rules, src: &Entry, old: &Entry) -> Result<bool> {
        if src.damaged || old.damaged {
            return Ok(false);
        }
        if self.by.leaf && src.key.leaf() != old.key.leaf() {
            return Ok(false);
        }
        if self.by.mtime {
            let (Some(a), Some(b), Some(window)) = (src.mtime, old.mtime, rules.window) else { return Ok(false) };
            if !within(a, b, window) {
                return Ok(false);
            }
        }
        if !self.by.hash {
            return Ok(true);
        }
        let answer = hash::compare(cx.known.hashes.as_deref(), (&cx.src, src), (&cx.dst, old)).await?;
        Ok(matches!(answer, HashAnswer::Known(algo, true) if algo != Algo::Crc32))
    }
}
