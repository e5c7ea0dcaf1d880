//! Reads the figures of a bench: speed-up and efficiency, the knee of each sweep, what limits it, and which settings suit.
//! Pure.

use crate::{Direction, Point, Sweep, SweepEnd};
use std::time::Duration;

/// A concurrency this close to the best speed is as good as the best.
const AS_GOOD: f64 = 0.95;
/// [`AS_GOOD`] if the store asked to slow down at the best speed: it lets a burst through before it does, which makes a
/// short measurement look better than a long one would.
const AS_GOOD_THROTTLED: f64 = 0.80;
/// More at once that brings less than this factor brings nothing.
const GAIN: f64 = 1.10;
/// The engine's own choice is so much faster than the best number that was tried that none is to be set.
const CLEARLY_FASTER: f64 = 1.5;
/// Two speeds within this factor are taken for the same one: a measurement is short and a network noisy.
const ALIKE: f64 = 1.5;
/// A step up that brings this share of what it could has not reached the knee.
const STILL_RISING: f64 = 0.8;
/// This share of all processors busy is all of them, as far as one program can tell.
const BUSY: f64 = 0.85;
/// In the order of the report.
const DIRECTIONS: [Direction; 3] = [Direction::Up, Direction::Down, Direction::Across];
/// One connection limits a large file when several carry it this many times as fast.
const CARRIES_MORE: f64 = 1.5;

/// The least concurrency that is as good as the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// Transfers (or parts) at once.
    pub at_once: usize,
    /// Bytes a second there.
    pub bytes_per_second: f64,
    /// Speed-up there, against one at once.
    pub speed_up: f64,
    /// The last doubling still brought more: the true knee is higher.
    pub rising: bool,
}

/// The limit of a sweep's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Nothing yet: more at once would bring more.
    NotReached,
    /// This machine's processors: `busy` of `cores` busy.
    Cpu {
        /// Processors that the process kept busy.
        busy: f64,
        /// Processors that it may use.
        cores: usize,
    },
    /// Requests a second, whatever their size.
    RequestRate {
        /// Files a second.
        files_per_second: f64,
        /// Answers that asked to slow down.
        throttled: u64,
    },
    /// Bytes a second in all.
    TotalBandwidth {
        /// Bytes a second.
        bytes_per_second: f64,
    },
    /// It looks like requests, but another measurement of this direction had clearly more files a second.
    Unclear {
        /// The most files a second of another measurement.
        files_per_second: f64,
    },
}

/// Result of one sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepResult {
    /// Which way.
    pub direction: Direction,
    /// Bytes of each file.
    pub size: u64,
    /// One file in parts.
    pub in_parts: bool,
    /// Where more at once stops to help.
    pub knee: Knee,
    /// The limit there.
    pub limit: Limit,
    /// The speed of the engine's own choice, as a share of the best; `None` when it wasn't measured.
    pub auto_share: Option<f64>,
    /// Requests at once that the engine came to by itself; `None` where it can't be told.
    pub auto_found: Option<usize>,
    /// Why the sweep went no further.
    pub ended: SweepEnd,
}

/// The settings that suit one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestSettings {
    /// Which way.
    pub direction: Direction,
    /// Files at once; `None` when no sweep of whole files was measured, one was still getting faster at its end, or the
    /// engine's own choice was clearly faster.
    pub transfers: Option<usize>,
    /// Parts of a large file at once; `None` likewise.
    pub streams: Option<usize>,
    /// A sweep was still getting faster at its end, so its number isn't known.
    pub rising: bool,
}

/// Speed of one connection by itself in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleConnection {
    /// Which way.
    pub direction: Direction,
    /// Time that a file costs whatever its size: round trips, and the store's own work.
    pub per_file: Option<Duration>,
    /// Bytes a second of one connection, where several carry clearly more.
    pub stream: Option<f64>,
}

/// How many times as fast as one at once; `None` without that measurement.
pub fn speed_up(sweep: &Sweep, point: &Point) -> Option<f64> {
    let one = sweep.points.iter().find(|p| p.at_once == Some(1))?;
    Some(point.bytes_per_second() / one.bytes_per_second())
}

/// Speed-up for each of those at once: 1 is perfect. `None` for the engine's own choice.
pub fn efficiency(sweep: &Sweep, point: &Point) -> Option<f64> {
    Some(speed_up(sweep, point)? / point.at_once? as f64)
}

fn best(sweep: &Sweep) -> f64 {
    sweep.points.iter().map(Point::bytes_per_second).fold(0.0, f64::max)
}

/// The knee of a sweep; `None` when nothing was measured.
pub fn knee(sweep: &Sweep) -> Option<Knee> {
    let best = sweep.points.iter().max_by(|a, b| a.bytes_per_second().total_cmp(&b.bytes_per_second()))?;
    let as_good = best.bytes_per_second() * if best.throttled > 0 { AS_GOOD_THROTTLED } else { AS_GOOD };
    let at = sweep.points.iter().find(|p| p.bytes_per_second() >= as_good)?;
    Some(Knee {
        at_once: at.at_once?,
        bytes_per_second: at.bytes_per_second(),
        speed_up: speed_up(sweep, at).unwrap_or(1.0),
        rising: rising(sweep),
    })
}

/// Did the last step up in concurrency bring about as much more as it could? A single measurement says nothing of more at
/// once.
fn rising(sweep: &Sweep) -> bool {
    let Some((last, below)) = sweep.points.split_last() else { return false };
    let Some(before) = below.last() else { return true };
    let fastest = below.iter().map(Point::bytes_per_second).fold(0.0, f64::max);
    let (Some(n), Some(m)) = (last.at_once, before.at_once) else { return false };
    let ideal = before.bytes_per_second() * n as f64 / m as f64;
    last.bytes_per_second() >= fastest * GAIN && last.bytes_per_second() >= ideal * STILL_RISING
}

/// A concurrency between two measured ones, where the knee should be: a straight line up from the lower one meets the best
/// speed there. `None` when nothing lies between, or the knee wasn't reached.
pub fn refine(sweep: &Sweep) -> Option<usize> {
    let knee = knee(sweep).filter(|knee| !knee.rising)?;
    let at = sweep.points.iter().position(|p| p.at_once == Some(knee.at_once))?;
    let below = sweep.points.get(at.checked_sub(1)?)?;
    let lower = below.at_once?;
    let slope = below.bytes_per_second() / lower as f64;
    let meets = (best(sweep) / slope).ceil() as usize;
    (meets > lower && meets < knee.at_once).then_some(meets)
}

/// Results of all sweeps, in their order.
pub fn findings(sweeps: &[Sweep], cores: usize) -> Vec<SweepResult> {
    let finding = |sweep: &Sweep| {
        let knee = knee(sweep)?;
        Some(SweepResult {
            direction: sweep.direction,
            size: sweep.size,
            in_parts: sweep.in_parts,
            knee,
            limit: limit(sweep, &knee, sweeps, cores),
            auto_share: sweep.auto.as_ref().map(|point| point.bytes_per_second() / best(sweep)),
            auto_found: sweep.auto.as_ref().and_then(|point| point.found),
            ended: sweep.ended,
        })
    };
    sweeps.iter().filter_map(finding).collect()
}

fn limit(sweep: &Sweep, knee: &Knee, sweeps: &[Sweep], cores: usize) -> Limit {
    let from_knee = || sweep.points.iter().filter(|p| p.at_once >= Some(knee.at_once));
    let throttled: u64 = from_knee().map(|p| p.throttled).sum();
    // The most at once last the longest, so a burst that the store lets through counts least there.
    let files_per_second = sweep.points.last().map_or(0.0, Point::files_per_second);
    let of_requests = || match most_files(sweep, sweeps) {
        most if most > files_per_second * ALIKE => Limit::Unclear { files_per_second: most },
        _ => Limit::RequestRate { files_per_second, throttled },
    };
    if throttled > 0 {
        return of_requests();
    }
    let busy = from_knee().map(|p| p.cores).fold(0.0, f64::max);
    if busy >= cores as f64 * BUSY {
        return Limit::Cpu { busy, cores };
    }
    if knee.rising {
        return Limit::NotReached;
    }
    let bytes_per_second = best(sweep);
    // Other sizes tell a limit of requests from one of bytes: the same number of files, or the same number of bytes.
    let others = sweeps.iter().filter(|s| s.direction == sweep.direction && s.size != sweep.size);
    let most = others.map(best).fold(0.0, f64::max);
    match most > bytes_per_second * ALIKE {
        true => of_requests(),
        false => Limit::TotalBandwidth { bytes_per_second },
    }
}

/// The most files a second that other sweeps of the same direction reached, or the engine by itself in this one.
fn most_files(sweep: &Sweep, sweeps: &[Sweep]) -> f64 {
    let others = sweeps.iter().filter(|s| s.direction == sweep.direction);
    let others = others.filter(|s| (s.size, s.in_parts) != (sweep.size, sweep.in_parts));
    let points = others.flat_map(|s| s.points.iter().chain(&s.auto)).chain(&sweep.auto);
    points.map(Point::files_per_second).fold(0.0, f64::max)
}

/// Speed of one connection by itself, for each direction that was measured.
pub fn lone(sweeps: &[Sweep]) -> Vec<SingleConnection> {
    let of = |direction| {
        let mine: Vec<&Sweep> = sweeps.iter().filter(|s| s.direction == direction).collect();
        let stream = mine.iter().filter(|s| s.in_parts).find_map(|sweep| {
            let one = sweep.points.iter().find(|p| p.at_once == Some(1))?.bytes_per_second();
            (best(sweep) >= one * CARRIES_MORE).then_some(one)
        });
        let seconds = |sweep: &&Sweep| {
            let one = sweep.points.iter().find(|p| p.at_once == Some(1))?;
            Some((sweep.size as f64, 1.0 / one.files_per_second()))
        };
        let mut whole = mine.iter().filter(|s| !s.in_parts).filter_map(seconds);
        let per_file = whole.next().zip(whole.next_back()).map(|(small, large)| {
            // A straight line through both: time = per file + size / speed.
            let per_byte = ((large.1 - small.1) / (large.0 - small.0)).max(0.0);
            Duration::from_secs_f64((small.1 - per_byte * small.0).max(0.0))
        });
        (!mine.is_empty()).then_some(SingleConnection { direction, per_file, stream })
    };
    DIRECTIONS.into_iter().filter_map(of).collect()
}

/// The settings that suit each direction: the least concurrency that is as good as the best, for whole files of any
/// measured size, and for the parts of a large one. None where a sweep was still getting faster at its end, or the engine's
/// own choice was clearly faster than any of them.
pub fn choices(sweeps: &[Sweep]) -> Vec<BestSettings> {
    let of = |direction| {
        let mine = |in_parts| sweeps.iter().filter(move |s| s.direction == direction && s.in_parts == in_parts);
        let beaten = |sweep: &Sweep| {
            sweep.auto.as_ref().is_some_and(|auto| auto.bytes_per_second() >= best(sweep) * CLEARLY_FASTER)
        };
        let is_rising = |in_parts| mine(in_parts).filter_map(knee).any(|knee| knee.rising);
        let knees = |in_parts| {
            let knees = mine(in_parts).filter_map(knee).map(|knee| knee.at_once).max();
            knees.filter(|_| !is_rising(in_parts) && !mine(in_parts).any(beaten))
        };
        let is_measured = mine(false).chain(mine(true)).any(|sweep| knee(sweep).is_some());
        let rising = is_rising(false) || is_rising(true);
        is_measured.then(|| BestSettings { direction, transfers: knees(false), streams: knees(true), rising })
    };
    DIRECTIONS.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: u64 = 1000;
    const MB: u64 = 1_000_000;

    /// A sweep at 1, 2, 4, … at once with these speeds in megabytes a second.
    fn sweep(direction: Direction, size: u64, speeds: &[f64]) -> Sweep {
        let point = |(n, speed): (usize, &f64)| Point {
            found: None,
            direction,
            size,
            in_parts: size >= 16 * MB,
            at_once: Some(1 << n),
            files: 1000,
            elapsed: Duration::from_secs_f64(1000.0 * size as f64 / (speed * 1e6)),
            cores: 0.1,
            requests: 0,
            throttled: 0,
        };
        let points = speeds.iter().enumerate().map(point).collect();
        Sweep { direction, size, in_parts: size >= 16 * MB, points, auto: None, ended: SweepEnd::Flat }
    }

    fn up(size: u64, speeds: &[f64]) -> Sweep {
        sweep(Direction::Up, size, speeds)
    }

    /// 1,000 × 1 MB up in 1,293 s at one transfer, 664 at two, … 199 at eight, and no better after: the HPC text.
    fn hpc() -> Sweep {
        up(MB, &[1293.0, 664.0, 330.0, 199.0, 195.0, 192.0].map(|seconds| 1000.0 / seconds))
    }

    #[test]
    fn speed_up_and_efficiency_of_the_hpc_text() {
        let sweep = hpc();
        let percent: Vec<_> =
            sweep.points.iter().map(|p| (100.0 * efficiency(&sweep, p).unwrap()).round() as u32).collect();
        assert_eq!(percent, [100, 97, 98, 81, 41, 21]);
        assert!((speed_up(&sweep, &sweep.points[3]).unwrap() - 6.5).abs() < 0.01);
        let knee = knee(&sweep).unwrap();
        assert_eq!((knee.at_once, knee.rising), (8, false));
        assert_eq!(refine(&sweep), Some(7));
    }

    #[test]
    fn knees() {
        for (speeds, at_once, rising, between) in [
            (&[25.0][..], 1, true, None),
            (&[25.0, 50.0], 2, true, None),
            (&[25.0, 50.0, 100.0, 200.0, 250.0, 250.0], 16, false, Some(10)),
            (&[25.0, 50.0, 100.0, 200.0, 400.0], 16, true, None),
            (&[100.0, 101.0, 99.0], 1, false, None),
            (&[25.0, 50.0, 51.0, 20.0], 2, false, None),
            // Nearly twice as fast again: 31 is no knee.
            (&[6.5, 10.6, 27.1, 49.6, 100.3, 192.2], 32, true, None),
            // The knee is between the last two.
            (&[15.0, 30.0, 60.0, 120.0, 240.0, 264.0], 32, false, Some(18)),
            // Slower and slower.
            (&[25.0, 12.0, 6.0], 1, false, None),
        ] {
            let sweep = up(MB, speeds);
            let knee = knee(&sweep).unwrap();
            assert_eq!((knee.at_once, knee.rising, refine(&sweep)), (at_once, rising, between), "{speeds:?}");
        }
        assert_eq!(knee(&up(MB, &[])), None);
    }

    #[test]
    fn a_burst_before_a_store_says_stop_moves_no_knee() {
        // 20 requests a second, and 4 that come through at once; see the speeds of 4, 8 and 16 at once.
        let mut sweep = up(MB, &[5.0, 9.9, 19.8, 21.5, 23.6]);
        assert_eq!(knee(&sweep).unwrap().at_once, 16);
        sweep.points[4].throttled = 60;
        assert_eq!(knee(&sweep).unwrap().at_once, 4);
    }

    fn limits(sweeps: &[Sweep]) -> Vec<Limit> {
        findings(sweeps, 4).iter().map(|f| f.limit).collect()
    }

    fn names(sweeps: &[Sweep]) -> Vec<&'static str> {
        let name = |limit: Limit| match limit {
            Limit::NotReached => "not reached",
            Limit::Cpu { .. } => "cpu",
            Limit::RequestRate { .. } => "requests",
            Limit::TotalBandwidth { .. } => "bandwidth",
            Limit::Unclear { .. } => "unclear",
        };
        limits(sweeps).into_iter().map(name).collect()
    }

    #[test]
    fn what_limits_is_told_by_comparing_sizes() {
        // Equal bytes whatever the size.
        let same_bytes = [up(100 * KB, &[1.0, 2.0, 4.0, 4.0]), up(MB, &[4.0, 4.5, 4.4])];
        assert_eq!(names(&same_bytes), ["bandwidth", "bandwidth"]);
        // Equal files whatever the size: three a second.
        let same_files = [up(100 * KB, &[0.1, 0.2, 0.3, 0.3]), up(MB, &[1.0, 2.0, 3.0, 3.0])];
        assert_eq!(names(&same_files)[0], "requests");
        // The other direction says nothing of this one.
        let apart = [up(100 * KB, &[1.0, 2.0, 2.0]), sweep(Direction::Down, MB, &[50.0, 50.0, 50.0])];
        assert_eq!(names(&apart), ["bandwidth", "bandwidth"]);
        assert_eq!(names(&[up(MB, &[1.0, 2.0, 4.0])]), ["not reached"]);

        let mut throttled = up(MB, &[1.0, 2.0, 3.0, 3.0]);
        throttled.points[3].throttled = 5;
        let Limit::RequestRate { files_per_second, throttled: 5 } = limits(&[throttled])[0] else { unreachable!() };
        assert!((files_per_second - 3.0).abs() < 1e-9);
        // Throttled before the knee only: a burst.
        let mut once = up(MB, &[1.0, 2.0, 3.0, 3.0]);
        once.points[0].throttled = 5;
        assert_eq!(names(&[once]), ["bandwidth"]);
        let mut busy = up(MB, &[1.0, 2.0, 3.0, 3.0]);
        busy.points[2].cores = 3.9;
        assert_eq!(limits(&[busy])[0], Limit::Cpu { busy: 3.9, cores: 4 });
    }

    #[test]
    fn no_limit_of_requests_where_more_files_went_through() {
        // 1.3 files a second of 100 kB, and 2.9 of 1 MB.
        let small = up(100 * KB, &[0.12, 0.13]);
        assert_eq!(names(&[small.clone(), up(MB, &[0.7, 1.4, 2.9])]), ["unclear", "not reached"]);
        // As many files a second at 1 MB, but the engine alone was faster with the small ones.
        let mut sweeps = [small.clone(), up(MB, &[0.7, 1.3, 1.3])];
        assert_eq!(names(&sweeps)[0], "requests");
        sweeps[0].auto = Some(Point { at_once: None, elapsed: small.points[1].elapsed / 4, ..small.points[1].clone() });
        let Limit::Unclear { files_per_second } = limits(&sweeps)[0] else { unreachable!() };
        assert!((files_per_second - 5.2).abs() < 1e-9);
        // A store that asked to slow down is no better proof.
        sweeps[0].points[1].throttled = 3;
        assert_eq!(names(&sweeps)[0], "unclear");
        sweeps[0].auto = None;
        assert_eq!(names(&sweeps)[0], "requests");
    }

    #[test]
    fn one_connection_by_itself() {
        // 80 ms a file, 25 MB/s.
        let time = |size: u64| 0.08 + size as f64 / 25e6;
        let speed = |size: u64| size as f64 / time(size) / 1e6;
        let sweeps = [
            up(100 * KB, &[speed(100 * KB)]),
            up(MB, &[speed(MB)]),
            up(40 * MB, &[24.0, 48.0, 96.0]),
            sweep(Direction::Down, 40 * MB, &[24.0, 25.0, 25.0]),
        ];
        let lone = lone(&sweeps);
        assert_eq!(lone[0].per_file.unwrap().as_millis(), 80);
        assert_eq!(lone[0].stream.map(f64::round), Some(24e6));
        assert_eq!((lone[1].per_file, lone[1].stream), (None, None));
    }

    #[test]
    fn the_choice_is_the_least_that_is_as_good_as_the_best() {
        let sweeps = [up(100 * KB, &[1.0, 2.0, 4.0, 4.1]), hpc(), up(40 * MB, &[24.0, 47.0, 48.0])];
        let choice = BestSettings { direction: Direction::Up, transfers: Some(8), streams: Some(2), rising: false };
        assert_eq!(choices(&sweeps), [choice]);
        assert_eq!(choices(&[]), []);
        // One of them ended too early to tell.
        let early = [up(100 * KB, &[1.0, 2.0, 4.0]), sweeps[1].clone(), sweeps[2].clone()];
        assert_eq!(choices(&early), [BestSettings { transfers: None, rising: true, ..choice }]);
        // The engine alone was faster with whole files.
        let mut sweeps = sweeps;
        sweeps[0].auto = Some(Point { at_once: None, elapsed: sweeps[0].points[3].elapsed / 2, ..sweeps[0].points[3] });
        let choice = BestSettings { transfers: None, ..choice };
        assert_eq!(choices(&sweeps), [choice]);
    }

    #[test]
    fn the_own_choice_is_compared_with_the_best() {
        let mut sweep = hpc();
        sweep.auto = Some(Point { at_once: None, ..sweep.points[2].clone() });
        let share = findings(&[sweep], 4)[0].auto_share.unwrap();
        assert!((share - 192.0 / 330.0).abs() < 1e-9);
    }
}
