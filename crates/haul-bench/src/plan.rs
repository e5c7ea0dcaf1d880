//! How much a bench may send: file sizes, files of each, and how many of them one measurement takes. Pure.

use haul_store::{Caps, PartLimits};
use std::time::Duration;

/// Limits set by the user.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Bytes in all, both directions together.
    pub max_bytes: u64,
    /// Time in all, without the removal at the end.
    pub max_time: Duration,
    /// Transfers at once at most.
    pub max_at_once: usize,
    /// File sizes in bytes; `None` for the usual ones.
    pub sizes: Option<Vec<u64>>,
}

/// Files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Bytes of each.
    pub size: u64,
    /// One file in parts at a time.
    pub in_parts: bool,
    /// Files in each direction at most.
    pub files: u64,
    /// Its share of the time, in percent.
    pub time_share: u32,
    /// Files that one thread takes in one turn: more than one only between disks, where small files are copied in batches.
    pub batch: u64,
}

impl Class {
    /// The name of its folder.
    pub fn folder(&self) -> String {
        self.size.to_string()
    }

    /// Files under way at `at_once` copies at once.
    pub fn lanes(&self, at_once: usize) -> usize {
        at_once * self.batch as usize
    }
}

/// Upper bounds of a bench's transfers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Limits set by the user.
    pub bounds: Bounds,
    /// By size.
    pub classes: Vec<Class>,
    /// Bytes of a part, where a file goes in parts.
    pub part: u64,
}

/// Highest cost of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes sent to the store.
    pub up: u64,
    /// Bytes that come back.
    pub down: u64,
    /// Files written, or parts of them, with the requests that begin and end a file in parts.
    pub writes: u64,
    /// Files read, or parts of them.
    pub reads: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Requests that delete.
    pub deletes: u64,
}

/// A small file: latency and the request rate decide. In bytes.
const SMALL: u64 = 100_000;
/// The file of the HPC comparison (1,000 × 1 MB). In bytes.
const MEDIUM: u64 = 1_000_000;
/// Between folders, a small file: the file system's work for each decides. In bytes.
const TINY: u64 = 10_000;
/// Between folders, file data: each is a turn of its own, however many wait. In bytes.
const DATA: u64 = 4 << 20;
/// Between folders, bytes that one turn takes; see `BATCH_BYTES` of the engine.
const TURN: u64 = 4 << 20;
/// Between folders, files of a directory: the engine's turn ends with it.
pub const DIR_FILES: u64 = 32;
/// Between folders, turns of small files for each lane of the last measurement: those before it take as many again.
const TURNS: u64 = 8;
/// A file from this size on is sent in parts, one at a time. In bytes.
pub const IN_PARTS_FROM: u64 = 16 << 20;
/// A part: the smallest that S3 takes, so that a file of moderate size has many. In bytes.
const PART: u64 = 5 << 20;
/// Fewer files than this say nothing: four levels of concurrency would not fit.
const FEWEST: u64 = 40;
/// Of each size's files, this share (one in this many) is kept for the last run, with nothing fixed.
const FOR_AUTO: u64 = 6;
/// How often each lane is used in one measurement: the first time and the last don't count.
const WAVES: u64 = 4;
/// The least of that.
const FEWEST_WAVES: u64 = 3;
/// With this many lanes the least is enough: many files count all the same.
const MANY_LANES: usize = 16;
/// A measurement lasts about so long where the files reach, in seconds: a shorter one is mostly noise.
const LONG_ENOUGH: f64 = 1.0;
/// But to be that long it takes no more than one in this many of the files that are left.
const SHARE: u64 = 6;
/// A sweep is taken to have as many measurements as this when time is shared out: 1 to 64 at once, and the last run.
const MEASUREMENTS: u32 = 8;

impl Plan {
    /// A plan within `bounds` for a store of these abilities.
    ///
    /// Errors: one line, when the bounds leave too little to measure anything.
    pub fn new(bounds: Bounds, caps: &Caps) -> Result<Plan, String> {
        let part = caps.parts.map(|limits| part(&limits));
        let each_way = bounds.max_bytes / 2;
        let classes = match &bounds.sizes {
            Some(sizes) => chosen(sizes, each_way, part, bounds.max_at_once, |_| 1)?,
            None => usual(each_way, part, bounds.max_at_once),
        };
        if classes.is_empty() {
            let least = (FEWEST * SMALL * 2).div_ceil(1 << 20);
            return Err(format!("--max-bytes is too little to measure anything: allow at least {least}M"));
        }
        Ok(Plan { bounds, classes, part: part.unwrap_or(PART) })
    }

    /// A plan within `bounds` for copies between two folders, of which one turn takes at most `turn` files.
    ///
    /// Errors: one line, when the bounds leave too little to measure anything.
    pub fn between(bounds: Bounds, turn: usize) -> Result<Plan, String> {
        let each_way = bounds.max_bytes / 2;
        let batch = |size: u64| (TURN / size.max(1)).clamp(1, DIR_FILES.min(turn.max(1) as u64));
        let classes = match &bounds.sizes {
            Some(sizes) => chosen(sizes, each_way, None, bounds.max_at_once, batch)?,
            None => data(each_way, bounds.max_at_once, batch),
        };
        if classes.is_empty() {
            let least = (2 * FEWEST * (batch(TINY) * TINY * 4)).div_ceil(1 << 20);
            return Err(format!("--max-bytes is too little to measure anything: allow at least {least}M"));
        }
        Ok(Plan { bounds, classes, part: PART })
    }

    /// Its highest cost on a store of these abilities.
    pub fn cost(&self, caps: &Caps) -> Cost {
        let mut cost = Cost::default();
        let mut keys = 0;
        for class in &self.classes {
            let bytes = class.files * class.size;
            cost.up += bytes;
            cost.down += bytes;
            let requests = if class.in_parts { class.size.div_ceil(self.part) + 2 } else { 1 };
            cost.writes += class.files * requests;
            cost.reads += class.files * requests;
            // Each way back lists its folder; a page holds a thousand keys.
            let runs = u64::from(self.bounds.max_at_once.next_power_of_two().ilog2()) + 4;
            cost.lists += runs.min(class.files) * class.files.div_ceil(1000);
            keys += class.files;
        }
        cost.lists += 3;
        cost.deletes = keys.div_ceil(caps.delete_batch.max(1) as u64);
        cost
    }
}

fn part(limits: &PartLimits) -> u64 {
    PART.clamp(limits.min, limits.max)
}

/// A small, a medium and a large size, as far as the bytes reach.
fn usual(each_way: u64, part: Option<u64>, most: usize) -> Vec<Class> {
    let large = part.and_then(|part| large(each_way / 5 * 2, part, most));
    let left = each_way - large.map_or(0, |class| class.files * class.size);
    let medium = left / 6 * 5 / MEDIUM;
    let whole = |size, files, time_share| Class { size, in_parts: false, files, time_share, batch: 1 };
    let medium = (medium >= FEWEST).then(|| whole(MEDIUM, medium, 40));
    let left = left - medium.map_or(0, |class| class.files * class.size);
    let small = left / SMALL;
    let small = (small >= FEWEST).then(|| whole(SMALL, small, 30));
    [small, medium, large].into_iter().flatten().collect()
}

/// Between folders: small files, of which more than a sweep uses say nothing, and file data of what is left.
fn data(each_way: u64, most: usize, batch: impl Fn(u64) -> u64) -> Vec<Class> {
    let class = |size: u64, files: u64, time_share| {
        let batch = batch(size);
        (files >= FEWEST * batch).then_some(Class { size, in_parts: false, files, time_share, batch })
    };
    let small = class(TINY, (each_way / 4 / TINY).min(TURNS * most as u64 * batch(TINY)), 50);
    let left = each_way - small.map_or(0, |class| class.files * class.size);
    let large = class(DATA, left / DATA, 50);
    [small, large].into_iter().flatten().collect()
}

/// As many levels of concurrency as have enough parts: each level sends the file once, and so does the last run.
fn large(bytes: u64, part: u64, most: usize) -> Option<Class> {
    let levels = most.checked_ilog2().unwrap_or(0) + 1;
    (3..=levels).rev().find_map(|levels| {
        let files = u64::from(levels) + 1;
        let size = bytes / files / part * part;
        let enough = size / part >= 1 << (levels - 1) && size >= IN_PARTS_FROM;
        enough.then_some(Class { size, in_parts: true, files, time_share: 30, batch: 1 })
    })
}

/// The sizes that the user wants, each with the same share of the bytes.
fn chosen(
    sizes: &[u64],
    each_way: u64,
    part: Option<u64>,
    most: usize,
    batch: impl Fn(u64) -> u64,
) -> Result<Vec<Class>, String> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let time_share = 100 / sizes.len().max(1) as u32;
    let class = |size: u64| {
        let share = each_way / sizes.len() as u64;
        let in_parts = size >= IN_PARTS_FROM && part.is_some();
        let levels = u64::from(most.checked_ilog2().unwrap_or(0)) + 1;
        let (files, fewest) = match in_parts {
            // Each level once, one to refine, and the last run.
            true => ((share / size).min(levels + 2), 3),
            false => (share / size.max(1), FEWEST.min(4 * most as u64 + 1) * batch(size)),
        };
        if size == 0 || files < fewest {
            let needed = (fewest * size * 2 * sizes.len() as u64).div_ceil(1 << 20);
            return Err(match size {
                0 => "--sizes: a file must have at least one byte".to_owned(),
                _ => format!("--max-bytes is too little for files of {size} bytes: allow at least {needed}M"),
            });
        }
        Ok(Class { size, in_parts, files, time_share, batch: batch(size) })
    };
    sizes.iter().map(|size| class(*size)).collect()
}

/// Remaining files and time of a size when a measurement is planned.
#[derive(Clone, Copy, Debug)]
pub struct Remaining {
    /// Files of the size in one direction, in all.
    pub all: u64,
    /// Of these, not yet used.
    pub files: u64,
    /// Time for both directions of the size.
    pub time: Duration,
    /// Files a second at the last measurement.
    pub rate: f64,
}

/// Why a measurement can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Too few files left.
    Files,
    /// Too little time left.
    Time,
}

/// Files of a measurement at this concurrency, those included that don't count: as many for each lane, fewer on a slow
/// store, but always three a lane.
pub fn files_at(at_once: usize, left: Remaining, in_parts: bool) -> Result<u64, Shortage> {
    let reserve = if in_parts { 1 } else { left.all / FOR_AUTO };
    let unreserved = left.files.saturating_sub(reserve);
    let long = ((left.rate * LONG_ENOUGH) as u64).min(unreserved / SHARE);
    let (least, wanted) = match in_parts {
        true => (1, 1),
        false => {
            let waves = if at_once < MANY_LANES { WAVES } else { FEWEST_WAVES };
            (FEWEST_WAVES * at_once as u64, (waves * at_once as u64).max(long))
        }
    };
    // Pessimistic: as if more at once brought nothing.
    let in_time = |time: Duration| (left.rate * time.as_secs_f64()) as u64;
    if in_time(left.time / 2) < least {
        return Err(Shortage::Time);
    }
    let files = wanted.min(in_time(left.time / (2 * MEASUREMENTS))).max(least);
    if unreserved < least {
        return Err(Shortage::Files);
    }
    let files = files.min(unreserved);
    // A last turn that not all lanes take would look as if they idled.
    Ok(if in_parts { files } else { files - files % at_once as u64 })
}

/// Files of the last run, with nothing fixed, when `suits` at once were best; `None` when too few are left.
pub fn files_of_auto(suits: usize, left: Remaining, in_parts: bool) -> Option<u64> {
    if in_parts {
        return (left.files > 0).then_some(1);
    }
    let in_time = (left.rate * left.time.as_secs_f64() / 4.0) as u64;
    let files = (WAVES * suits as u64).min(left.files).min(in_time.max(FEWEST_WAVES * suits as u64));
    (files >= suits as u64).then_some(files)
}

/// True if the run with nothing fixed, of `auto` files, is to come before a measurement of `files`: after both the time of
/// this direction would be over. Pessimistic, as if more at once were no faster.
pub fn is_auto_next(files: Result<u64, Shortage>, auto: u64, left: Remaining) -> bool {
    match files {
        Ok(files) => (files + auto) as f64 > left.rate * left.time.as_secs_f64() / 2.0,
        Err(short) => short == Shortage::Time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> PartLimits {
        PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, single: 200 << 20, ..PartLimits::FILE }
    }

    fn sizes(max_bytes: u64) -> Vec<(u64, u64)> {
        usual(max_bytes / 2, Some(part(&limits())), 64).iter().map(|c| (c.size, c.files)).collect()
    }

    #[test]
    fn sizes_fit_into_the_bytes() {
        assert_eq!(sizes(1 << 30), [(SMALL, 551), (MEDIUM, 272), (40 << 20, 5)]);
        // Too little for a large file in parts, then for medium ones, then for any.
        assert_eq!(sizes(200 << 20), [(SMALL, 178), (MEDIUM, 87)]);
        assert_eq!(sizes(60 << 20), [(SMALL, 314)]);
        assert_eq!(sizes(4 << 20), []);
        // The more bytes, the more parts at once can be tried.
        assert_eq!(sizes(20 << 30).last(), Some(&(102 * PART, 8)));
    }

    #[test]
    fn a_plan_never_sends_more_than_its_bytes() {
        for shift in 20..40 {
            for odd in [0, 12_345_678] {
                let max = (1u64 << shift) + odd;
                for most in [1, 4, 64, 500] {
                    let classes = usual(max / 2, Some(PART), most);
                    let bytes: u64 = classes.iter().map(|c| 2 * c.files * c.size).sum();
                    assert!(bytes <= max, "{max} {most} {classes:?}");
                }
            }
        }
    }

    #[test]
    fn chosen_sizes_share_the_bytes() {
        let of = |sizes: &[u64], each_way| chosen(sizes, each_way, Some(PART), 16, |_| 1);
        let classes = of(&[32 << 20, 1000, 1000], 400 << 20).unwrap();
        let got: Vec<_> = classes.iter().map(|c| (c.size, c.in_parts, c.files)).collect();
        assert_eq!(got, [(1000, false, (200 << 20) / 1000), (32 << 20, true, 6)]);
        assert_eq!(of(&[0], 1 << 30).unwrap_err(), "--sizes: a file must have at least one byte");
        assert_eq!(
            of(&[1 << 20], 10 << 20).unwrap_err(),
            "--max-bytes is too little for files of 1048576 bytes: allow at least 80M"
        );
    }

    #[test]
    fn between_folders_small_files_take_turns_and_all_of_it_fits_into_the_bytes() {
        let plan = |max_bytes, sizes, turn| {
            let bounds = Bounds { max_bytes, max_time: Duration::from_secs(300), max_at_once: 64, sizes };
            Plan::between(bounds, turn)
        };
        let of = |max_bytes, sizes, turn| {
            let classes = plan(max_bytes, sizes, turn).unwrap().classes;
            classes.iter().map(|class| (class.size, class.files, class.batch)).collect::<Vec<_>>()
        };
        assert_eq!(of(4 << 30, None, 256), [(TINY, 8 * 64 * 32, 32), (DATA, 472, 1)]);
        // A file system that asks a server takes fewer in a turn.
        assert_eq!(of(4 << 30, None, 16), [(TINY, 8 * 64 * 16, 16), (DATA, 492, 1)]);
        assert_eq!(of(400 << 20, None, 256), [(TINY, 5242, 32)]);
        assert_eq!(of(4 << 30, Some(vec![1_000_000, 8 << 20]), 256), [(1_000_000, 1073, 4), (8 << 20, 128, 1)]);
        assert_eq!(
            plan(20 << 20, None, 256).unwrap_err(),
            "--max-bytes is too little to measure anything: allow at least 98M"
        );
        assert_eq!(of(98 << 20, None, 256), [(TINY, 1284, 32)]);
    }

    #[test]
    fn a_measurement_takes_what_is_left_and_fits_the_time() {
        let left = |files, secs, rate| Remaining { all: 320, files, time: Duration::from_secs(secs), rate };
        for (at_once, left, files) in [
            // Quick: a share of what is left, or four a lane.
            (1, left(320, 100, 1000.0), Ok(44)),
            (1, left(320, 100, 20.0), Ok(20)),
            (8, left(300, 100, 1000.0), Ok(40)),
            (64, left(300, 100, 1000.0), Ok(192)),
            // Slow: what fits into the time, but three a lane.
            (1, left(320, 100, 1.0), Ok(4)),
            (8, left(320, 100, 1.0), Ok(24)),
            (64, left(320, 100, 1.0), Err(Shortage::Time)),
            // The reserve for the last run stays.
            (8, left(77, 100, 1000.0), Ok(24)),
            (8, left(76, 100, 1000.0), Err(Shortage::Files)),
        ] {
            assert_eq!(files_at(at_once, left, false), files, "{at_once} {left:?}");
        }
        let left = |files| Remaining { all: 5, files, time: Duration::from_secs(10), rate: 10.0 };
        assert_eq!(files_at(4, left(5), true), Ok(1));
        assert_eq!(files_at(4, left(1), true), Err(Shortage::Files));
        assert_eq!(files_of_auto(8, left(1), true), Some(1));
    }

    #[test]
    fn the_run_with_nothing_fixed_comes_before_the_time_is_over() {
        let left = |seconds, rate| Remaining { all: 178, files: 170, time: Duration::from_secs(seconds), rate };
        for (left, files, auto, first) in [
            // Plenty of time.
            (left(300, 100.0), Ok(44), 256, false),
            // A file takes more than a second: six files at two at once, and 24 alone, need more than half of 25 s.
            (left(25, 0.7), Ok(6), 24, true),
            (left(100, 0.7), Ok(6), 24, false),
            // No time even for the measurement.
            (left(5, 0.7), Err(Shortage::Time), 24, true),
            (left(5, 0.7), Err(Shortage::Files), 24, false),
            // Nothing was measured yet.
            (left(5, f64::INFINITY), Ok(1), 1, false),
        ] {
            assert_eq!(is_auto_next(files, auto, left), first, "{left:?}");
        }
    }

    #[test]
    fn a_cost_counts_every_request() {
        let bounds = Bounds { max_bytes: 1 << 30, max_time: Duration::from_secs(300), max_at_once: 64, sizes: None };
        let class = |size, in_parts, files| Class { size, in_parts, files, time_share: 50, batch: 1 };
        let classes = vec![class(1000, false, 1500), class(10 * PART, true, 5)];
        let plan = Plan { bounds, classes, part: PART };
        let store = crate::synthetic::TestContent::new(1).sink();
        let mut caps = haul_store::Store::caps(&store).clone();
        caps.delete_batch = 1000;
        let want = Cost {
            up: 1_500_000 + 50 * PART,
            down: 1_500_000 + 50 * PART,
            writes: 1500 + 5 * 12,
            reads: 1500 + 5 * 12,
            lists: 10 * 2 + 5 + 3,
            deletes: 2,
        };
        assert_eq!(plan.cost(&caps), want);
    }
}
