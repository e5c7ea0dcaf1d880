//! When are two files of one name the same? Pure: takes facts, returns a verdict or the fact that it needs first.
//!
//! The one place that may say "same". The engine asks the stores for a [`Need`] and calls again.

mod difference;

pub use difference::{Difference, FileType};

use crate::{
    Algo, Entry, Mtime,
    attributes::Differs,
    job::{CompareBy, Job, Times},
};
use serde::{Deserialize, Serialize};

/// Why a verdict is what it is; shown with `-v`, in dry runs and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Only the source has it.
    Missing,
    /// Only the destination has it.
    Extra,
    /// One is a file, the other a link, device or the like.
    Kind,
    /// Sizes decide.
    Size,
    /// Modification times decide.
    Mtime,
    /// The destination was stored after the file last changed, at the same size.
    StoredAfterChange,
    /// This hash decides.
    Hash(Algo),
    /// It exists and `--ignore-existing` is on.
    Existing,
    /// It is new and `--existing` is on.
    NotExisting,
    /// The destination is newer and `--update` is on.
    Newer,
    /// The user asked for it whatever the comparison says.
    Forced,
    /// The other side's listing did not reach this key.
    NotSeen,
    /// The bytes are the same, these attributes differ.
    Attributes(Differs),
    /// The content of one of them is lost or truncated, as its store reports.
    Damaged,
    /// Only the size could be compared, which isn't enough to delete the source of a move.
    Unproved,
    /// It is one file with another name at the source, and not (or with the wrong one) at the destination.
    Linked,
}

impl Reason {
    /// True where a file is left alone whether or not it is the same: the destination may differ from the source.
    pub fn is_left_alone(self) -> bool {
        matches!(self, Reason::Existing | Reason::NotExisting | Reason::Newer)
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Same(Reason),
    /// Transfer it.
    Differ(Reason),
    /// Same bytes, other modification time: set the time.
    Touch,
    /// Same bytes and time, other attributes: set those. Returned by [`crate::refine::refine`] only.
    Attributes(Differs),
    /// Undecided before this fact is known.
    Ask(Need),
}

/// Fact to find out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The stored modification time of a side that listed none.
    Mtime,
    /// Hashes by an algorithm that both sides have.
    Hash,
}

/// Result of asking for hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAnswer {
    /// Not asked yet.
    NotAsked,
    /// The two share no algorithm.
    NoneInCommon,
    /// By this algorithm they are equal (`true`) or not.
    Known(Algo, bool),
}

/// Everything that the comparison depends on besides the two entries.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How to compare.
    pub compare: CompareBy,
    /// `--ignore-size`.
    pub ignore_size: bool,
    /// `--ignore-existing`.
    pub ignore_existing: bool,
    /// `--update`.
    pub update: bool,
    /// Times this close (nanoseconds) are equal; `None`: one side can't keep times.
    pub window: Option<u128>,
    /// Set when the source's `changed` is an inode's ctime and the destination's is the store's time of
    /// writing: then an object stored more than this many nanoseconds after the file's last change has that file's content.
    pub stored_after: Option<u128>,
    /// Set when the destination keeps no mtimes, but reports when a file was stored: one stored more than this many nanoseconds before
    /// the source's mtime is another file.
    pub stored_before: Option<u128>,
    /// Set when the storage times of both sides come from one clock: a destination file stored after this moment was stored by the job
    /// itself.
    pub made: Option<Mtime>,
    /// `--no-update-modtime`, or the destination can't set times.
    pub no_touch: bool,
    /// Role of modification times.
    pub times: Times,
    /// Only files that are shorter at the destination are transferred.
    pub append: bool,
    /// Times of symlinks don't count.
    pub omit_link_times: bool,
    /// Symlinks of equal size and time are the same only if their targets are equal.
    pub reads_links: bool,
    /// Files of one size that share no hash count as the same bytes.
    pub refresh_times: bool,
    /// The source of equal files is deleted: equal sizes aren't enough for that, unless the user says so, and the
    /// mtime must not be lost.
    pub moves: bool,
}

impl Rules {
    /// The rules of `job` for two stores of these mtime precisions (`None`: can't keep one), in nanoseconds.
    pub fn new(job: &Job, src_precision: Option<u128>, dst_precision: Option<u128>) -> Self {
        let window = match (src_precision, dst_precision) {
            // This window includes its end, as rsync's does.
            (Some(_), Some(_)) if job.compare.times != Times::Evidence => {
                Some(job.compare.window.map_or(0, |w| w.as_nanos()) + 1)
            }
            (Some(a), Some(b)) => Some(job.compare.window.map_or(a.max(b), |w| w.as_nanos().max(1))),
            _ => None,
        };
        Rules {
            compare: job.compare.by,
            // Different sizes prove that a move would lose data.
            ignore_size: job.compare.ignore_size && !job.moves(),
            ignore_existing: job.existing.ignore,
            update: job.existing.update,
            window,
            stored_after: None,
            stored_before: None,
            made: None,
            no_touch: job.attributes.no_update_mtime,
            times: job.compare.times,
            append: job.existing.append.is_some(),
            omit_link_times: job.attributes.omit_link_times.is_some(),
            reads_links: job.moves(),
            refresh_times: job.compare.refresh_times,
            moves: job.moves(),
        }
    }

    /// Verdict on files of which only the size could be compared.
    fn by_size(&self, hash: HashAnswer) -> Verdict {
        match self.moves {
            true => by_hash(hash, Verdict::Differ(Reason::Unproved)),
            false => Verdict::Same(Reason::Size),
        }
    }

    /// As [`Rules::by_size`], for files without a common hash too.
    fn by_size_alone(&self) -> Verdict {
        self.by_size(HashAnswer::NoneInCommon)
    }

    /// True when the modification times of two directories (the destination's is `None` where it is missing) count as equal,
    /// by the rules for files.
    pub fn dir_times_agree(&self, src: Option<Mtime>, dst: Option<Mtime>) -> bool {
        match (src, dst) {
            (Some(src), Some(dst)) => {
                let seconds = self.times != Times::Evidence && self.whole_seconds();
                within(whole(src, seconds), whole(dst, seconds), self.window.unwrap_or(1))
            }
            (src, dst) => src == dst,
        }
    }

    /// These rules for comparing content alone, without the options that keep a destination file that differs (`--ignore-existing`,
    /// `--update`, `--append`).
    pub fn for_content(self) -> Self {
        Rules { ignore_existing: false, update: false, append: false, ..self }
    }

    /// True where times are compared in whole seconds.
    fn whole_seconds(&self) -> bool {
        !matches!(self.times, Times::Attribute { nanoseconds: true, .. })
    }
}

/// Compares two files of one name. `times_requested`: missing modification times were asked for already.
pub fn compare(src: &Entry, dst: &Entry, rules: &Rules, times_requested: bool, hash: HashAnswer) -> Verdict {
    if rules.ignore_existing {
        return Verdict::Same(Reason::Existing);
    }
    if src.kind != dst.kind {
        return Verdict::Differ(Reason::Kind);
    }
    if src.damaged || dst.damaged {
        return Verdict::Differ(Reason::Damaged);
    }
    if let Times::Attribute { decide, .. } = rules.times {
        return compare_with_times(src, dst, rules, decide, times_requested, hash);
    }
    if rules.compare == CompareBy::Never {
        return Verdict::Differ(Reason::Forced);
    }
    if rules.update {
        return compare_update(src, dst, rules, times_requested, hash);
    }
    if !rules.ignore_size && src.size_differs(dst) {
        return Verdict::Differ(Reason::Size);
    }
    match rules.compare {
        CompareBy::SizeOnly => Verdict::Same(Reason::Size),
        CompareBy::Checksum => by_hash(hash, rules.by_size_alone()),
        _ => by_target(by_time(src, dst, rules, times_requested, hash), src, rules, hash),
    }
}

/// Where a symlink leads is all that it holds, in a few bytes; many are made at one time, and their targets are often of one length.
fn by_target(verdict: Verdict, src: &Entry, rules: &Rules, hash: HashAnswer) -> Verdict {
    match verdict {
        Verdict::Same(Reason::Mtime | Reason::Size) if src.is_symlink() && rules.reads_links => by_hash(hash, verdict),
        verdict => verdict,
    }
}

fn by_hash(hash: HashAnswer, none_in_common: Verdict) -> Verdict {
    match hash {
        HashAnswer::NotAsked => Verdict::Ask(Need::Hash),
        HashAnswer::NoneInCommon => none_in_common,
        HashAnswer::Known(algo, true) => Verdict::Same(Reason::Hash(algo)),
        HashAnswer::Known(algo, false) => Verdict::Differ(Reason::Hash(algo)),
    }
}

/// A move deletes the source: bytes whose hashes are known on both sides and differ aren't the same, whatever their times. (A copy trusts
/// the times: some services report as a hash what isn't one.)
fn known_to_differ(src: &Entry, dst: &Entry, rules: &Rules) -> Option<Verdict> {
    match src.hashes.agree(&dst.hashes) {
        Some((algo, false)) if rules.moves => Some(Verdict::Differ(Reason::Hash(algo))),
        _ => None,
    }
}

fn by_time(src: &Entry, dst: &Entry, rules: &Rules, times_requested: bool, hash: HashAnswer) -> Verdict {
    if let Some(differ) = known_to_differ(src, dst, rules) {
        return differ;
    }
    if let Some((algo, true)) = src.hashes.agree(&dst.hashes) {
        // Equal hashes at no cost (two ETags, say) prove equal bytes; the time alone isn't worth a request, unless it is lost with the
        // source.
        let known = !rules.moves || times_requested || rules.window.is_none();
        if known && (src.mtime.is_none() || dst.mtime.is_none()) {
            return Verdict::Same(Reason::Hash(algo));
        }
    }
    if dst.mtime.is_none() && stored_after_change(src, dst, rules) || stored_by_job(src, dst, rules) {
        return Verdict::Same(Reason::StoredAfterChange);
    }
    let Some(window) = rules.window else {
        return if stored_before_change(src, dst, rules) {
            Verdict::Differ(Reason::Mtime)
        } else {
            rules.by_size(hash)
        };
    };
    let (Some(a), Some(b)) = (src.mtime, dst.mtime) else {
        return if times_requested { rules.by_size(hash) } else { Verdict::Ask(Need::Mtime) };
    };
    if within(a, b, window) {
        return by_equal_times((a, b), Reason::Mtime, rules, hash);
    }
    same_bytes_other_time(rules, hash)
}

/// Times that are equal within the coarser side's precision: a file written twice within it has changed, and a move deletes
/// the source.
fn by_equal_times((a, b): (Mtime, Mtime), why: Reason, rules: &Rules, hash: HashAnswer) -> Verdict {
    match rules.moves && a != b {
        true => by_hash(hash, Verdict::Same(why)),
        false => Verdict::Same(why),
    }
}

fn same_bytes_other_time(rules: &Rules, hash: HashAnswer) -> Verdict {
    let unknown = match rules.refresh_times {
        true => Verdict::Same(Reason::Size),
        false => Verdict::Differ(Reason::Mtime),
    };
    match by_hash(hash, unknown) {
        Verdict::Same(_) if !rules.no_touch => Verdict::Touch,
        other => other,
    }
}

/// `--update` as rclone has it: newer at the destination is skipped, older is compared by hash, and about the
/// same age by size (or hash with `--checksum`).
fn compare_update(src: &Entry, dst: &Entry, rules: &Rules, times_requested: bool, hash: HashAnswer) -> Verdict {
    let sizes_differ = !rules.ignore_size && src.size_differs(dst);
    let Some(window) = rules.window else {
        return match sizes_differ {
            true => Verdict::Differ(Reason::Size),
            false if stored_before_change(src, dst, rules) => Verdict::Differ(Reason::Mtime),
            false => rules.by_size(hash),
        };
    };
    if !sizes_differ && dst.mtime.is_none() && stored_after_change(src, dst, rules) {
        return Verdict::Same(Reason::StoredAfterChange);
    }
    let (Some(a), Some(b)) = (src.mtime, dst.mtime) else {
        if !times_requested {
            return Verdict::Ask(Need::Mtime);
        }
        return if sizes_differ { Verdict::Differ(Reason::Size) } else { rules.by_size(hash) };
    };
    if !within(a, b, window) && b > a {
        return Verdict::Same(Reason::Newer);
    }
    if sizes_differ {
        return Verdict::Differ(Reason::Size);
    }
    if rules.compare == CompareBy::SizeOnly {
        return Verdict::Same(Reason::Size);
    }
    if within(a, b, window) {
        return match rules.compare {
            CompareBy::Checksum => by_hash(hash, rules.by_size_alone()),
            _ => {
                let same = known_to_differ(src, dst, rules);
                let same = same.unwrap_or_else(|| by_equal_times((a, b), Reason::Size, rules, hash));
                by_target(same, src, rules, hash)
            }
        };
    }
    same_bytes_other_time(rules, hash)
}

/// True where `--update` leaves the destination alone: it is newer or, as rsync has it with a window, not older by more than the window.
fn is_newer(dst: &Entry, src: &Entry, rules: &Rules, apart: bool) -> bool {
    let (Some(there), Some(here)) = (dst.mtime, src.mtime) else { return false };
    match rules.window.unwrap_or(1).saturating_sub(1) as i128 {
        0 => apart && there > here,
        window => {
            let seconds = rules.whole_seconds();
            whole(here, seconds).0 < whole(there, seconds).0 + window
        }
    }
}

/// The comparison where times are attributes ([`Times::Attribute`]): `--update` skips newer files, a symlink is compared by its
/// target, and files that are the same without a look at their time may still need the time.
fn compare_with_times(
    src: &Entry,
    dst: &Entry,
    rules: &Rules,
    decide: bool,
    times_requested: bool,
    hash: HashAnswer,
) -> Verdict {
    let stored_after = dst.mtime.is_none() && stored_after_change(src, dst, rules);
    if (src.mtime.is_none() || dst.mtime.is_none()) && rules.window.is_some() && !times_requested && !stored_after {
        return Verdict::Ask(Need::Mtime);
    }
    let apart = times_apart(src, dst, rules);
    let timed = |verdict| match verdict {
        Verdict::Same(_) if apart && !stored_after && !rules.no_touch => Verdict::Touch,
        other => other,
    };
    if src.is_symlink() {
        return timed(if src.size == dst.size {
            by_hash(hash, Verdict::Differ(Reason::Mtime))
        } else {
            Verdict::Differ(Reason::Size)
        });
    }
    if rules.update && is_newer(dst, src, rules, apart) {
        return Verdict::Same(Reason::Newer);
    }
    let verdict = compare_bytes(src, dst, rules, decide, (apart, stored_after), hash);
    match verdict {
        Verdict::Differ(_) if rules.append && dst.size >= src.size => Verdict::Same(Reason::Existing),
        verdict => timed(verdict),
    }
}

/// The part of [`compare_with_times`] that is about regular files' bytes.
fn compare_bytes(
    src: &Entry,
    dst: &Entry,
    rules: &Rules,
    decide: bool,
    (apart, stored_after): (bool, bool),
    hash: HashAnswer,
) -> Verdict {
    if rules.compare == CompareBy::Never {
        return Verdict::Differ(Reason::Forced);
    }
    if src.size_differs(dst) {
        return Verdict::Differ(Reason::Size);
    }
    match rules.compare {
        CompareBy::SizeOnly => Verdict::Same(Reason::Size),
        CompareBy::Checksum => by_hash(hash, rules.by_size_alone()),
        _ if stored_after => Verdict::Same(Reason::StoredAfterChange),
        _ if let Some(differ) = known_to_differ(src, dst, rules) => differ,
        _ if rules.moves && !times_known(src, dst, rules) => rules.by_size(hash),
        _ if !apart => Verdict::Same(Reason::Mtime),
        _ if decide => Verdict::Differ(Reason::Mtime),
        _ => same_bytes_other_time(rules, hash),
    }
}

/// True when both times are known and comparable.
fn times_known(src: &Entry, dst: &Entry, rules: &Rules) -> bool {
    src.mtime.is_some() && dst.mtime.is_some() && rules.window.is_some()
}

/// True when both times are known and differ.
fn times_apart(src: &Entry, dst: &Entry, rules: &Rules) -> bool {
    if rules.omit_link_times && src.is_symlink() {
        return false;
    }
    let (Some(a), Some(b), Some(window)) = (src.mtime, dst.mtime, rules.window) else { return false };
    let seconds = rules.whole_seconds();
    !within(whole(a, seconds), whole(b, seconds), window)
}

fn whole(time: Mtime, seconds: bool) -> Mtime {
    if seconds { Mtime::new(time.secs(), 0) } else { time }
}

/// The rule that spares a HEAD for each unchanged file: a key stored clearly after both the file's mtime and its
/// ctime, at the same size, was made from this state of the file. An inode's ctime can't be set back by a user.
fn stored_after_change(src: &Entry, dst: &Entry, rules: &Rules) -> bool {
    let Some(margin) = rules.stored_after else { return false };
    let (Some(mtime), Some(ctime), Some(stored)) = (src.mtime, src.changed, dst.changed) else { return false };
    !rules.ignore_size && src.size == dst.size && stored.0 > mtime.max(ctime).0.saturating_add(margin as i128)
}

/// True where a store that keeps no modification times stored this file before its source was modified.
fn stored_before_change(src: &Entry, dst: &Entry, rules: &Rules) -> bool {
    // A listing of a bucket says when an object was stored, and not what time it has.
    let modified = src.mtime.or(src.changed);
    let (Some(margin), Some(modified), Some(stored)) = (rules.stored_before, modified, dst.changed) else {
        return false;
    };
    // Nothing was stored in 1970.
    stored.0 > 0 && modified.0 > stored.0.saturating_add(margin as i128)
}

/// True where the job itself wrote the destination's file, from a source that had changed before the job was created, and only the
/// time shows that it is a copy: a server-side copy of an object without a stored time has none either, and seems to be newer.
fn stored_by_job(src: &Entry, dst: &Entry, rules: &Rules) -> bool {
    let (Some(made), Some(changed), Some(stored)) = (rules.made, src.changed, dst.changed) else { return false };
    let keeps_no_time = dst.mtime.is_none_or(|mtime| mtime == stored);
    let differs =
        rules.ignore_size || src.size != dst.size || src.hashes.agree(&dst.hashes).is_some_and(|(_, same)| !same);
    // Somebody else may have stored it meanwhile: no reason to delete a source.
    !rules.moves && keeps_no_time && !differs && changed < made && stored > made
}

/// True when two times are equal within `window` nanoseconds (exclusive, as rclone's).
pub fn within(a: Mtime, b: Mtime, window: u128) -> bool {
    a == b || a.distance(b) < window
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hashes, Key, Kind, job::Verb};

    const SEC: i128 = 1_000_000_000;

    fn at(size: u64, secs: Option<i128>) -> Entry {
        Entry { mtime: secs.map(|s| Mtime(s * SEC)), ..Entry::file(Key::new("k"), size) }
    }

    fn rules(job: &Job) -> Rules {
        Rules::new(job, Some(1), Some(1))
    }

    fn say(job: &Job, src: &Entry, dst: &Entry, hash: HashAnswer) -> Verdict {
        compare(src, dst, &rules(job), false, hash)
    }

    #[test]
    fn a_damaged_file_differs_from_every_file() {
        let job = |by, times| Job::default().with(|job| (job.compare.by, job.compare.times) = (by, times));
        let attribute = Times::Attribute { decide: false, nanoseconds: false };
        let (whole, broken) = (at(1, Some(1)), Entry { damaged: true, ..at(1, Some(1)) });
        let differ = Verdict::Differ(Reason::Damaged);
        for by in [CompareBy::SizeAndTime, CompareBy::SizeOnly, CompareBy::Checksum] {
            for job in [job(by, Times::Evidence), job(by, attribute)] {
                assert_eq!(say(&job, &whole, &broken, HashAnswer::Known(Algo::Md5, true)), differ);
                assert_eq!(say(&job, &broken, &whole, HashAnswer::NotAsked), differ);
            }
        }
        let keep = Job::default().with(|job| job.existing.ignore = true);
        assert_eq!(say(&keep, &whole, &broken, HashAnswer::NotAsked), Verdict::Same(Reason::Existing));
    }

    #[test]
    fn the_size_alone_moves_nothing() {
        use HashAnswer::*;
        let job = Job::new(Verb::Move);
        let (unproved, hash) = (Verdict::Differ(Reason::Unproved), Verdict::Ask(Need::Hash));
        let equal = Verdict::Same(Reason::Hash(Algo::Md5));
        // Stores that keep no times, or one without this file's time.
        let timeless = Rules::new(&job, Some(1), None);
        let answers = [(NotAsked, hash), (NoneInCommon, unproved), (Known(Algo::Md5, true), equal)];
        let checksum = Job::new(Verb::Move).with(|job| job.compare.by = CompareBy::Checksum);
        let update = Job::new(Verb::Move).with(|job| job.existing.update = true);
        let rsync = |by| {
            let times = Times::Attribute { decide: true, nanoseconds: true };
            Job::default().with(|job| (job.compare.by, job.compare.times, job.deletes.sources) = (by, times, true))
        };
        for (answer, verdict) in answers {
            let here = at(1, Some(1));
            assert_eq!(compare(&here, &at(1, None), &timeless, false, answer), verdict);
            assert_eq!(compare(&here, &at(1, None), &rules(&job), true, answer), verdict);
            assert_eq!(compare(&here, &at(1, Some(1)), &rules(&checksum), false, answer), verdict);
            assert_eq!(compare(&here, &at(1, None), &Rules::new(&update, Some(1), None), false, answer), verdict);
            let by_times = rsync(CompareBy::SizeAndTime);
            assert_eq!(compare(&here, &at(1, None), &Rules::new(&by_times, Some(1), None), false, answer), verdict);
            assert_eq!(compare(&here, &at(1, Some(1)), &rules(&rsync(CompareBy::Checksum)), false, answer), verdict);
        }
        // Equal hashes at no cost: the time is asked for all the same, where one is kept.
        let hashed = |secs| Entry { hashes: Hashes::default().with(Algo::Md5, [1; 16]), ..at(1, secs) };
        let (here, there) = (hashed(None), hashed(None));
        assert_eq!(compare(&here, &there, &rules(&job), false, NotAsked), Verdict::Ask(Need::Mtime));
        assert_eq!(compare(&here, &there, &rules(&job), true, NotAsked), equal);
        assert_eq!(compare(&here, &there, &timeless, false, NotAsked), equal);
        assert_eq!(say(&Job::default(), &here, &there, NotAsked), equal);
        // A copy leaves the source, and the user may say that the size is enough.
        assert_eq!(
            compare(&at(1, Some(1)), &at(1, None), &Rules::new(&Job::default(), Some(1), None), false, NotAsked),
            Verdict::Same(Reason::Size)
        );
        let sizes = Job::new(Verb::Move).with(|job| job.compare.by = CompareBy::SizeOnly);
        assert_eq!(say(&sizes, &at(1, Some(1)), &at(1, None), NotAsked), Verdict::Same(Reason::Size));
        assert_eq!(say(&job, &at(1, Some(1)), &at(1, Some(1)), NotAsked), Verdict::Same(Reason::Mtime));
    }

    #[test]
    fn size_then_time_then_hash() {
        let p = Job::default();
        use HashAnswer::*;
        assert_eq!(say(&p, &at(1, Some(1)), &at(2, Some(1)), NotAsked), Verdict::Differ(Reason::Size));
        assert_eq!(say(&p, &at(1, Some(1)), &at(1, Some(1)), NotAsked), Verdict::Same(Reason::Mtime));
        assert_eq!(say(&p, &at(1, Some(1)), &at(1, Some(2)), NotAsked), Verdict::Ask(Need::Hash));
        assert_eq!(say(&p, &at(1, Some(1)), &at(1, Some(2)), NoneInCommon), Verdict::Differ(Reason::Mtime));
        assert_eq!(say(&p, &at(1, Some(1)), &at(1, Some(2)), Known(Algo::Md5, true)), Verdict::Touch);
        assert_eq!(
            say(&p, &at(1, Some(1)), &at(1, Some(2)), Known(Algo::Md5, false)),
            Verdict::Differ(Reason::Hash(Algo::Md5))
        );
        assert_eq!(say(&p, &at(1, Some(1)), &at(1, None), NotAsked), Verdict::Ask(Need::Mtime));
        // Sizes are trusted only where the user says so and no hash can tell.
        let refresh = Job::default().with(|job| job.compare.refresh_times = true);
        assert_eq!(say(&refresh, &at(1, Some(1)), &at(1, Some(2)), NoneInCommon), Verdict::Touch);
        assert_eq!(say(&refresh, &at(1, Some(1)), &at(1, Some(2)), NotAsked), Verdict::Ask(Need::Hash));
        assert_eq!(say(&refresh, &at(1, Some(1)), &at(2, Some(2)), NoneInCommon), Verdict::Differ(Reason::Size));
        let other = say(&refresh, &at(1, Some(1)), &at(1, Some(2)), Known(Algo::Md5, false));
        assert_eq!(other, Verdict::Differ(Reason::Hash(Algo::Md5)));
        let quiet = Job::default().with(|job| job.attributes.no_update_mtime = true);
        assert_eq!(
            say(&quiet, &at(1, Some(1)), &at(1, Some(2)), Known(Algo::Md5, true)),
            Verdict::Same(Reason::Hash(Algo::Md5))
        );
    }

    #[test]
    fn times_of_directories_are_compared_as_those_of_files() {
        let agree =
            |job: &Job, a: Option<i128>, b: Option<i128>| rules(job).dir_times_agree(a.map(Mtime), b.map(Mtime));
        let plain = Job::default();
        let window = Job::default().with(|job| job.compare.window = Some(std::time::Duration::from_secs(1)));
        let whole = Times::Attribute { nanoseconds: false, decide: false };
        let attribute = Job::default().with(|job| job.compare.times = whole);
        assert!(agree(&plain, Some(SEC), Some(SEC)) && !agree(&plain, Some(SEC), Some(SEC + 1)));
        assert!(agree(&window, Some(2 * SEC - 1), Some(SEC)) && !agree(&window, Some(2 * SEC), Some(SEC)));
        assert!(
            agree(&attribute, Some(2 * SEC - 1), Some(SEC)) && !agree(&attribute, Some(2 * SEC), Some(2 * SEC - 1))
        );
        assert!(!agree(&window, Some(SEC), None) && agree(&window, None, None));
    }

    #[test]
    fn flags_decide_before_facts() {
        use HashAnswer::*;
        let p = |f: fn(&mut Job)| {
            let mut p = Job::default();
            f(&mut p);
            p
        };
        let (a, b) = (at(1, Some(1)), at(2, Some(2)));
        assert_eq!(say(&p(|p| p.existing.ignore = true), &a, &b, NotAsked), Verdict::Same(Reason::Existing));
        assert_eq!(say(&p(|p| p.compare.by = CompareBy::Never), &a, &a, NotAsked), Verdict::Differ(Reason::Forced));
        assert_eq!(
            say(&p(|p| p.compare.by = CompareBy::SizeOnly), &at(1, Some(1)), &at(1, Some(9)), NotAsked),
            Verdict::Same(Reason::Size)
        );
        assert_eq!(say(&p(|p| p.compare.by = CompareBy::Checksum), &a, &a, NotAsked), Verdict::Ask(Need::Hash));
        assert_eq!(
            say(&p(|p| p.compare.by = CompareBy::Checksum), &a, &at(1, Some(5)), Known(Algo::Md5, true)),
            Verdict::Same(Reason::Hash(Algo::Md5))
        );
        assert_eq!(
            say(&p(|p| p.compare.ignore_size = true), &a, &at(7, Some(1)), NotAsked),
            Verdict::Same(Reason::Mtime)
        );
    }

    #[test]
    fn a_link_is_never_the_same_as_a_file() {
        let special = Entry { kind: crate::Kind::Special, ..at(1, Some(1)) };
        let p = Job::default().with(|job| job.compare.by = CompareBy::SizeOnly);
        assert_eq!(say(&p, &at(1, Some(1)), &special, HashAnswer::NotAsked), Verdict::Differ(Reason::Kind));
    }

    #[test]
    fn update_skips_what_is_newer_there() {
        use HashAnswer::*;
        let p = Job::default().with(|job| job.existing.update = true);
        assert_eq!(say(&p, &at(1, Some(1)), &at(2, Some(2)), NotAsked), Verdict::Same(Reason::Newer));
        assert_eq!(say(&p, &at(1, Some(2)), &at(2, Some(1)), NotAsked), Verdict::Differ(Reason::Size));
        assert_eq!(say(&p, &at(1, Some(2)), &at(1, Some(1)), NotAsked), Verdict::Ask(Need::Hash));
        assert_eq!(say(&p, &at(1, Some(2)), &at(1, Some(1)), Known(Algo::Md5, true)), Verdict::Touch);
        assert_eq!(say(&p, &at(1, Some(1)), &at(1, Some(1)), NotAsked), Verdict::Same(Reason::Size));
        let p = p.with(|job| job.compare.by = CompareBy::SizeOnly);
        assert_eq!(say(&p, &at(1, Some(2)), &at(1, Some(1)), NotAsked), Verdict::Same(Reason::Size));
        assert_eq!(say(&p, &at(1, Some(2)), &at(2, Some(1)), NotAsked), Verdict::Differ(Reason::Size));
        // As in rsync with --modify-window=2: newer by less doesn't count as newer.
        let p = Job::default().with(|job| {
            (job.existing.update, job.compare.window) = (true, Some(std::time::Duration::from_secs(2)));
            job.compare.times = Times::Attribute { nanoseconds: false, decide: true };
        });
        for (src, newer) in [(1, true), (2, true), (3, true), (4, false)] {
            let verdict = if newer { Verdict::Same(Reason::Newer) } else { Verdict::Differ(Reason::Size) };
            assert_eq!(say(&p, &at(1, Some(src)), &at(2, Some(2)), NotAsked), verdict, "{src}");
        }
    }

    #[test]
    fn what_the_job_itself_stored_is_done() {
        let made = |seconds: i128| Rules { made: Some(Mtime(seconds * SEC)), ..rules(&Job::default()) };
        let stored = |secs: i128, size| Entry { changed: Some(Mtime(secs * SEC)), ..at(size, None) };
        let say = |src: &Entry, dst: &Entry, rules: &Rules| compare(src, dst, rules, false, HashAnswer::NotAsked);
        let done = Verdict::Same(Reason::StoredAfterChange);
        let (src, dst) = (stored(10, 1), stored(30, 1));
        assert_eq!(say(&src, &dst, &made(20)), done);
        assert_eq!(
            say(&src, &Entry { mtime: dst.changed, ..dst.clone() }, &made(20)),
            done,
            "a store that lists its own time"
        );
        let asks = Verdict::Ask(Need::Mtime);
        assert_eq!(say(&src, &dst, &rules(&Job::default())), asks);
        assert_eq!(say(&src, &dst, &made(30)), asks, "it may have been there before");
        assert_eq!(say(&stored(20, 1), &dst, &made(20)), asks, "the source has changed since");
        assert_eq!(say(&stored(10, 2), &dst, &made(20)), Verdict::Differ(Reason::Size));
        let hash = |n: u8| {
            let mut hashes = Hashes::default();
            hashes.set(Algo::Md5, vec![n; 16]);
            hashes
        };
        let moves = Rules { moves: true, ..made(20) };
        assert_eq!(say(&src, &dst, &moves), asks, "the source of a move is its only copy");
        let (a, b) = (Entry { hashes: hash(1), ..src }, Entry { hashes: hash(2), ..dst });
        assert_eq!(say(&a, &b, &made(20)), asks, "hashes that differ are believed");
    }

    #[test]
    fn a_move_believes_times_only_as_far_as_they_are_kept() {
        for update in [false, true] {
            let mut job = Job::new(Verb::Move);
            job.existing.update = update;
            let r = Rules::new(&job, Some(1), Some(SEC as u128));
            let fraction = Entry { mtime: Some(Mtime(10 * SEC + 5)), ..at(3, None) };
            let say = |src: &Entry, r: &Rules, hash| compare(src, &at(3, Some(10)), r, true, hash);
            assert_eq!(say(&fraction, &r, HashAnswer::NotAsked), Verdict::Ask(Need::Hash));
            let known = |same| HashAnswer::Known(Algo::Blake3, same);
            assert_eq!(say(&fraction, &r, known(false)), Verdict::Differ(Reason::Hash(Algo::Blake3)));
            assert!(matches!(say(&fraction, &r, HashAnswer::NoneInCommon), Verdict::Same(_)));
            assert!(matches!(say(&at(3, Some(10)), &r, HashAnswer::NotAsked), Verdict::Same(_)));
            let copies = Rules { moves: false, ..r };
            assert!(matches!(say(&fraction, &copies, HashAnswer::NotAsked), Verdict::Same(_)));
        }
    }

    #[test]
    fn symlinks_are_the_same_if_they_lead_to_the_same() {
        let link = |secs| Entry { kind: Kind::Symlink, ..at(3, Some(secs)) };
        for update in [false, true] {
            let mut job = Job::new(Verb::Move);
            job.existing.update = update;
            let mut r = rules(&job);
            let say = |r: &Rules, hash| compare(&link(10), &link(10), r, true, hash);
            assert_eq!(say(&r, HashAnswer::NotAsked), Verdict::Ask(Need::Hash));
            let known = |same| HashAnswer::Known(Algo::Blake3, same);
            assert_eq!(say(&r, known(false)), Verdict::Differ(Reason::Hash(Algo::Blake3)));
            assert_eq!(say(&r, known(true)), Verdict::Same(Reason::Hash(Algo::Blake3)));
            r.reads_links = false;
            assert!(matches!(say(&r, HashAnswer::NotAsked), Verdict::Same(_)));
            r = Rules { reads_links: true, compare: CompareBy::SizeOnly, ..r };
            assert_eq!(say(&r, HashAnswer::NotAsked), Verdict::Same(Reason::Size));
        }
    }

    #[test]
    fn a_key_stored_after_the_last_change_needs_no_request() {
        let mut r = rules(&Job::default());
        r.stored_after = Some(SEC as u128);
        let src = Entry { changed: Some(Mtime(10 * SEC)), ..at(1, Some(5)) };
        let stored = |s: i128, size| Entry { changed: Some(Mtime(s)), ..at(size, None) };
        let say = |d: &Entry, r: &Rules| compare(&src, d, r, false, HashAnswer::NotAsked);
        assert_eq!(say(&stored(11 * SEC + 1, 1), &r), Verdict::Same(Reason::StoredAfterChange));
        assert_eq!(say(&stored(11 * SEC, 1), &r), Verdict::Ask(Need::Mtime));
        assert_eq!(say(&stored(12 * SEC, 2), &r), Verdict::Differ(Reason::Size));
        r.ignore_size = true;
        assert_eq!(say(&stored(12 * SEC, 1), &r), Verdict::Ask(Need::Mtime));
        r = rules(&Job::default());
        assert_eq!(say(&stored(12 * SEC, 1), &r), Verdict::Ask(Need::Mtime));
    }

    #[test]
    fn equal_listed_hashes_need_no_request() {
        let with = |h: u8| Entry { hashes: Hashes::default().with(Algo::Md5, [h]), ..at(1, None) };
        let say = |a: &Entry, b: &Entry| compare(a, b, &rules(&Job::default()), false, HashAnswer::NotAsked);
        assert_eq!(say(&with(1), &with(1)), Verdict::Same(Reason::Hash(Algo::Md5)));
        assert_eq!(say(&with(1), &with(2)), Verdict::Ask(Need::Mtime));
        // The source of a move is its only copy, also where the times are equal.
        let timed = |h: u8| Entry { mtime: Some(Mtime(0)), ..with(h) };
        let job = |update, keep_times| {
            let mut rules = Rules { moves: true, update, ..rules(&Job::default()) };
            if keep_times {
                rules.times = Times::Attribute { decide: true, nanoseconds: true };
            }
            rules
        };
        for rules in [job(false, false), job(true, false), job(false, true)] {
            let say = |a: &Entry, b: &Entry| compare(a, b, &rules, false, HashAnswer::NotAsked);
            assert_eq!(say(&timed(1), &timed(2)), Verdict::Differ(Reason::Hash(Algo::Md5)));
            assert!(matches!(say(&timed(1), &timed(1)), Verdict::Same(_)));
            let copies = Rules { moves: false, ..rules };
            assert!(matches!(compare(&timed(1), &timed(2), &copies, false, HashAnswer::NotAsked), Verdict::Same(_)));
        }
    }

    #[test]
    fn a_store_without_times_goes_by_size() {
        let r = Rules::new(&Job::default(), Some(1), None);
        let v = compare(&at(1, Some(1)), &at(1, None), &r, false, HashAnswer::NotAsked);
        assert_eq!(v, Verdict::Same(Reason::Size));
    }

    #[test]
    fn what_a_store_without_times_stored_before_the_last_change_is_another() {
        let rules = Rules { stored_before: Some(5), ..Rules::new(&Job::default(), Some(1), None) };
        let dst = Entry { changed: Some(Mtime(100)), ..at(1, None) };
        for (modified, verdict) in [
            (Some(105), Verdict::Same(Reason::Size)),
            (Some(106), Verdict::Differ(Reason::Mtime)),
            (None, Verdict::Same(Reason::Size)),
        ] {
            let src = Entry { mtime: modified.map(Mtime), ..at(1, None) };
            for update in [false, true] {
                let rules = Rules { update, ..rules };
                assert_eq!(compare(&src, &dst, &rules, false, HashAnswer::NotAsked), verdict, "{modified:?} {update}");
            }
        }
        // In a bucket, after it.
        let src = Entry { changed: Some(Mtime(106)), ..at(1, None) };
        let verdict = compare(&src, &dst, &rules, false, HashAnswer::NotAsked);
        assert_eq!(verdict, Verdict::Differ(Reason::Mtime));
        let never = Entry { changed: Some(Mtime(0)), ..at(1, None) };
        assert_eq!(compare(&src, &never, &rules, false, HashAnswer::NotAsked), Verdict::Same(Reason::Size));
        let untold = compare(&at(1, Some(106)), &at(1, None), &rules, false, HashAnswer::NotAsked);
        assert_eq!(untold, Verdict::Same(Reason::Size));
    }
}
