//! Deciding about one pair: the pure comparison, and the questions to the stores that it asks for.

use crate::{Cx, hash, recipes};
use haul_core::{
    Algo, Entry, Mtime, Result,
    compare::{self, HashAnswer, Need, Reason, Rules, Verdict},
    job::{CompareBy, Job},
};
use haul_store::{ChangedMeaning, Store};
use std::{sync::Arc, time::Duration};

/// Clocks of a machine and of a store may differ by this much, and listings round to a second, before "stored after
/// it changed" counts. Amazon and MinIO refuse requests whose clock is off by 15 minutes, but machines that keep
/// time (NTP) are within milliseconds; two seconds cover rounding on both sides.
const CLOCK_MARGIN: Duration = Duration::from_secs(2);

/// Up to this many bytes, hashing a local file is taken to be cheaper than a request to the store.
const HASH_RATHER_THAN_ASK: u64 = 8 << 20;

/// The rules for comparing the files of `src` and `dst`.
///
/// That a key was stored after the file last changed makes it very likely, but doesn't prove, that it was made from that
/// file: enough to leave it as it is, not enough to delete the source of a move.
pub fn rules(job: &Job, src: &Arc<dyn Store>, dst: &Arc<dyn Store>) -> Rules {
    let (a, b) = (src.caps(), dst.caps());
    let nanos = |d: Option<Duration>| d.map(|d| d.as_nanos().max(1));
    let mut rules = Rules::new(job, nanos(a.mtime), nanos(b.mtime));
    if !job.moves() && goes_by_when_stored(src, dst) {
        rules.stored_after = Some(CLOCK_MARGIN.as_nanos());
    }
    let tells = a.mtime.is_some() || a.changed == ChangedMeaning::Stored;
    let only_when_stored = tells && b.mtime.is_none() && b.changed == ChangedMeaning::Stored;
    rules.stored_before = (only_when_stored && !job.moves()).then_some(CLOCK_MARGIN.as_nanos());
    // Elsewhere each costs a request or two, which only a move is worth.
    rules.reads_links |= a.files && (b.files || !b.hashes_listed.is_empty());
    // No time that is set there would count.
    rules.no_touch |= job.compare.server_mtime && b.changed == ChangedMeaning::Stored;
    rules
}

/// True if the store can show that a key was stored after a file changed: from a disk to a bucket.
pub fn goes_by_when_stored(src: &Arc<dyn Store>, dst: &Arc<dyn Store>) -> bool {
    src.caps().changed == ChangedMeaning::Inode && dst.caps().changed == ChangedMeaning::Stored
}

/// The time for `--use-server-modtime`: when the file was stored, if the store reports that.
pub fn server_time(job: &Job, store: &Arc<dyn Store>, entry: &Entry) -> Option<Mtime> {
    entry.changed.filter(|_| job.compare.server_mtime && store.caps().changed == ChangedMeaning::Stored)
}

fn server_times(job: &Job, store: &Arc<dyn Store>, entry: &mut Entry) {
    entry.mtime = server_time(job, store, entry).or(entry.mtime);
}

/// Compares two files of one name, asking the stores what the pure comparison needs. Fresh facts learned on the way
/// replace the listed ones.
///
/// Errors: `stat` or a read fails, with the key.
pub async fn verdict(cx: &Cx, job: &Job, rules: &Rules, src: &mut Entry, dst: &mut Entry) -> Result<Verdict> {
    server_times(job, &cx.src, src);
    server_times(job, &cx.dst, dst);
    let (mut times_requested, mut answer) = (false, HashAnswer::NotAsked);
    loop {
        match compare::compare(src, dst, rules, times_requested, answer) {
            Verdict::Ask(Need::Mtime) => {
                if let Some(algo) = same_by_cheap_hash(cx, job, rules, src, dst).await? {
                    return Ok(Verdict::Same(Reason::Hash(algo)));
                }
                futures::try_join!(ask_mtime(job, &cx.src, src), ask_mtime(job, &cx.dst, dst))?;
                times_requested = true;
            }
            Verdict::Ask(Need::Hash) => {
                answer = match recipes::compare(&cx.known.recipes, job, (&cx.src, src), (&cx.dst, dst)).await {
                    Some(answer) => answer,
                    None => hash::compare(cx.known.hashes.as_deref(), (&cx.src, src), (&cx.dst, dst)).await?,
                };
            }
            verdict => return Ok(verdict),
        }
    }
}

/// True if the times of storing on both sides come from one clock: that of a service that copies between them.
pub fn is_one_clock(src: &dyn Store, dst: &dyn Store) -> bool {
    let (a, b) = (src.caps(), dst.caps());
    let one = a.domain.as_ref().zip(b.domain.as_ref()).is_some_and(|(a, b)| a.name == b.name);
    one && a.changed == ChangedMeaning::Stored && b.changed == ChangedMeaning::Stored
}

/// The rules where the clock that says when something was stored may be so far ahead of the one that says when a file changed.
pub fn by_the_clock(rules: &Rules, ahead: Duration) -> Rules {
    Rules { stored_after: rules.stored_after.map(|margin| margin + ahead.as_nanos()), ..*rules }
}

async fn ask_mtime(job: &Job, store: &Arc<dyn Store>, entry: &mut Entry) -> Result<()> {
    if entry.mtime.is_none() {
        *entry = store.stat(&entry.key).await.map_err(|e| e.with_key(&entry.key))?;
        server_times(job, store, entry);
    }
    Ok(())
}

/// A small local file that changed just before the key was stored (it was just uploaded, say): with clocks that may be
/// off this proves little, but hashing the file and comparing with the listed hash costs no request. A file that
/// changed after the key was stored may have another time than the stored one, which only the store can tell.
async fn same_by_cheap_hash(cx: &Cx, job: &Job, rules: &Rules, src: &Entry, dst: &Entry) -> Result<Option<Algo>> {
    let (Some(margin), Some(changed), Some(stored)) = (rules.stored_after, src.changed, dst.changed) else {
        return Ok(None);
    };
    // A listing in whole seconds rounds down: a file that changed within that second may have changed after the key was
    // stored.
    let before = changed <= stored && stored.distance(changed) <= margin.saturating_mul(2);
    let just_stored = before && job.compare.by == CompareBy::SizeAndTime;
    if !just_stored || dst.mtime.is_some() || src.size != dst.size || src.size > HASH_RATHER_THAN_ASK {
        return Ok(None);
    }
    let Some((algo, _)) = dst.hashes.iter().next() else { return Ok(None) };
    let computed = hash::known_or_read(cx.known.hashes.as_deref(), &cx.src, src, &[algo]).await?;
    Ok(computed.agree(&dst.hashes).filter(|(_, same)| *same).map(|(algo, _)| algo))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u128 = 1_000_000_000;
    use haul_core::job::Verb;
    use haul_mem::MemStore;

    #[test]
    fn where_a_servers_clock_is_ahead_what_it_stored_later_proves_nothing() {
        let rules = Rules { stored_after: Some(2 * SECOND), ..Rules::new(&Job::default(), Some(1), Some(1)) };
        let entry = |seconds: i128| Entry {
            changed: Some(haul_core::Mtime(seconds * SECOND as i128)),
            mtime: (seconds == 0).then_some(haul_core::Mtime(0)),
            ..Entry::file("f".into(), 3)
        };
        let verdict_of = |stored, ahead| {
            let rules = by_the_clock(&rules, Duration::from_secs(ahead));
            compare::compare(&entry(0), &entry(stored), &rules, false, HashAnswer::NotAsked)
        };
        assert_eq!(verdict_of(300, 0), Verdict::Same(Reason::StoredAfterChange));
        assert_eq!(verdict_of(300, 600), Verdict::Ask(Need::Mtime));
        assert_eq!(verdict_of(700, 600), Verdict::Same(Reason::StoredAfterChange));
    }

    #[test]
    fn a_move_does_not_go_by_when_a_key_was_stored() {
        let src: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.changed = ChangedMeaning::Inode));
        let dst: Arc<dyn Store> = Arc::new(MemStore::new());
        let stored_after = |verb| rules(&Job::new(verb), &src, &dst).stored_after;
        assert!(stored_after(Verb::Sync).is_some());
        assert_eq!(stored_after(Verb::Move), None);
    }
}
