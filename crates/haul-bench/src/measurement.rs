//! One measurement: an ordinary copy of made files to the store, or back, or from one folder to the other, with its concurrency
//! fixed or left alone.

use crate::{Bench, Direction, Point, plan::Class, synthetic::TestContent};
use haul::{Cancel, Cx, index::EarlierKnowledge};
use haul_core::{
    Error, ErrorKind, Key, Result,
    event::{Event, Sink, StepId},
    filter::{Filter, FilterSpec},
    job::{Fsync, Job, Lookup},
};
use haul_store::Store;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A measurement to make.
pub struct PlannedMeasurement<'a> {
    pub direction: Direction,
    /// Where the files are, if they go across.
    pub from: Option<&'a Arc<dyn Store>>,
    pub class: &'a Class,
    pub at_once: Option<usize>,
    /// Lanes whose first and last turn don't count; 0 when everything counts.
    pub lanes: usize,
    pub keys: Vec<Key>,
    /// Bytes of a part.
    pub part: u64,
    pub deadline: Instant,
}

/// How a measurement ended.
pub enum MeasurementResult {
    /// To its end, or for so long that what was done until the deadline counts.
    Measured(Point),
    /// The deadline came too early.
    Late,
    /// The store refused so much that files failed.
    Refused,
}

/// Notes when each transfer began and when each ended.
#[derive(Default)]
struct Stopwatch(Mutex<Times>);

#[derive(Default)]
struct Times(BTreeMap<StepId, (Instant, Option<Instant>)>);

impl Sink for Stopwatch {
    fn emit(&self, event: &Event) {
        let mut times = self.0.lock().unwrap_or_else(|e| e.into_inner());
        match event {
            Event::Begun { step, .. } => {
                times.0.insert(*step, (Instant::now(), None));
            }
            Event::Done { step, .. } => {
                if let Some((_, done)) = times.0.get_mut(step) {
                    *done = Some(Instant::now());
                }
            }
            _ => {}
        }
    }
}

/// Runs one measurement against `store`, the folder of its size.
///
/// Errors: the job's first, unless the deadline or the store's refusal explains it; `Cancelled` when the user stopped it.
pub async fn measure(
    bench: &Bench,
    made: &TestContent,
    store: &Arc<dyn Store>,
    order: PlannedMeasurement<'_>,
) -> Result<MeasurementResult> {
    let size = order.class.size;
    let watch = Arc::new(Stopwatch::default());
    let stop = Cancel::default();
    let cx = surroundings(bench, made, store, &order, watch.clone(), stop.clone())?;

    let late = Arc::new(AtomicBool::new(false));
    let guard = tokio::spawn({
        let (user, late, deadline) = (bench.cancel.clone(), late.clone(), order.deadline);
        async move {
            tokio::select! {
                () = user.cancelled() => {}
                () = tokio::time::sleep_until(deadline.into()) => late.store(true, Ordering::SeqCst),
            }
            stop.cancel();
        }
    });
    let lanes = store.lanes();
    if let Some(lanes) = lanes {
        // Each measurement begins as a run of its own would.
        lanes.pin(order.at_once);
    }
    let (cpu, throttled, requests) = ((bench.cpu_time)(), bench.meters.throttles(), all_requests(bench));
    let started = Instant::now();
    let report = haul::run(job_for(bench, &order), cx).await;
    let wall = started.elapsed();
    guard.abort();

    if bench.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, "bench", "stopped"));
    }
    let late = late.load(Ordering::SeqCst);
    if let Some(error) = report.errors.first().filter(|_| !late) {
        let refused = report.errors.iter().all(|error| error.kind() == ErrorKind::Busy);
        return if refused { Ok(MeasurementResult::Refused) } else { Err(error.to_report()) };
    }
    let times = watch.0.lock().unwrap_or_else(|e| e.into_inner());
    // Files that are published together may end at one moment: then there is no time in which all lanes are busy, and everything counts.
    let gathered = order.direction == Direction::Up && store.caps().gathers > 0;
    let apart = counted(&times, order.lanes).or_else(|| counted(&times, 0).filter(|_| gathered));
    let Some((counted, elapsed)) = apart else { return Ok(MeasurementResult::Late) };
    if late && counted < order.at_once.unwrap_or(1) {
        return Ok(MeasurementResult::Late);
    }
    Ok(MeasurementResult::Measured(Point {
        direction: order.direction,
        size,
        in_parts: order.class.in_parts,
        at_once: order.at_once,
        found: lanes.filter(|_| order.at_once.is_none()).map(|lanes| {
            let direction = match order.direction {
                Direction::Up => haul_store::Direction::Up,
                Direction::Down => haul_store::Direction::Down,
                Direction::Across => haul_store::Direction::Copy,
            };
            lanes.lane(direction).limit()
        }),
        files: counted as u64,
        elapsed,
        cores: ((bench.cpu_time)() - cpu).as_secs_f64() / wall.as_secs_f64().max(1e-6),
        requests: all_requests(bench) - requests,
        throttled: bench.meters.throttles() - throttled,
    }))
}

/// Files that count, and how long they took.
///
/// The counted span is from when every lane has ended its first file, which opened its connection, to when the last file
/// begins, after which lanes run dry: between the two all lanes are busy, so that few files show the speed of many. A file
/// that reaches over an edge counts with the share of its time that is inside.
fn counted(times: &Times, lanes: usize) -> Option<(usize, Duration)> {
    let files: Vec<(Instant, Instant)> =
        times.0.values().filter_map(|(began, done)| Some((*began, (*done)?))).collect();
    let first = files.iter().map(|file| file.0).min()?;
    let Some(last) = lanes.checked_sub(1) else {
        return Some((files.len(), files.iter().map(|file| file.1).max()?.duration_since(first)));
    };
    let mut ends: Vec<Instant> = files.iter().map(|file| file.1).collect();
    ends.sort_unstable();
    let (from, to) = (*ends.get(last)?, files.iter().map(|file| file.0).max()?);
    let inside = |(began, done): &(Instant, Instant)| {
        let inside = (*done).min(to).saturating_duration_since((*began).max(from));
        inside.as_secs_f64() / done.duration_since(*began).as_secs_f64().max(1e-9)
    };
    let shares: f64 = files.iter().map(inside).sum();
    let whole = shares.round();
    let took = to.checked_duration_since(from)?.as_secs_f64() * whole / shares;
    (whole >= 1.0).then(|| (whole as usize, Duration::from_secs_f64(took)))
}

fn all_requests(bench: &Bench) -> u64 {
    bench.meters.requests().values().sum()
}

fn job_for(bench: &Bench, order: &PlannedMeasurement<'_>) -> Job {
    // The keys are new: to ask for them at the destination would measure something else.
    let base = bench.job.clone().with(|job| job.listing.lookup = Lookup::Never);
    // New files would come from memory, and copies would soon fill it: the measurement is of folders.
    let base = match &bench.source {
        Some(_) => base.with(|job| {
            job.write.drop_cache = true;
            job.write.fsync = if order.direction == Direction::Up { Fsync::File } else { job.write.fsync };
        }),
        None => base,
    };
    // Folders were opened for more at once than suits, so what suits is said.
    let alone = bench.source.as_ref().map(|source| source.alone);
    let Some(at_once) = order.at_once.or(alone) else { return base };
    match order.class.in_parts {
        false => base.with(|job| {
            job.pace.transfers = Some(at_once);
            job.pace.checkers = Some(at_once);
        }),
        true => base.with(|job| {
            let (streams, part_size) = (Some(at_once), Some(order.part));
            (job.pace.transfers, job.pace.checkers, job.pace.streams) = (Some(1), Some(1), streams);
            (job.pace.parts_cutoff, job.pace.part_size) = (Some(1), part_size);
        }),
    }
}

fn surroundings(
    bench: &Bench,
    made: &TestContent,
    store: &Arc<dyn Store>,
    order: &PlannedMeasurement<'_>,
    sink: Arc<Stopwatch>,
    cancel: Cancel,
) -> Result<Cx> {
    let (src, dst, filter): (Arc<dyn Store>, Arc<dyn Store>, Filter) = match order.direction {
        Direction::Up => {
            (Arc::new(made.source(order.keys.clone(), order.class.size)), store.clone(), Filter::default())
        }
        Direction::Down => (store.clone(), Arc::new(made.sink()), only(&order.keys)?),
        Direction::Across => (order.from.unwrap_or(store).clone(), store.clone(), only(&order.keys)?),
    };
    Ok(Cx {
        src,
        dst,
        backup: None,
        compare_dest: Vec::new(),
        copy_dest: Vec::new(),
        filter: Arc::new(filter),
        sink,
        meters: bench.meters.clone(),
        cancel,
        confirm: None,
        journal: None,
        known: EarlierKnowledge::default(),
    })
}

/// Lets these files through alone.
fn only(keys: &[Key]) -> Result<Filter> {
    let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    let filter = Filter::new(FilterSpec { files_from: Some(keys), ..FilterSpec::default() });
    filter.map_err(|why| Error::new(ErrorKind::Invalid, "bench", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_turn_of_each_lane_do_not_count() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let times = |files: &[(u64, u64)]| {
            Times(files.iter().map(|(began, done)| (at(*began), Some(at(*done)))).enumerate().map(numbered).collect())
        };
        let of = |times: &Times, lanes| counted(times, lanes).map(|(files, time)| (files, time.as_millis()));
        // Two lanes, four files each: the first takes two seconds, since it connects, each further one takes one.
        let even = [(0, 2000), (0, 2000), (2000, 3000), (2000, 3000), (3000, 4000), (3000, 4000), (4000, 5000)];
        let even = times(&even);
        for (lanes, want) in [(0, Some((7, 5000))), (2, Some((4, 2000))), (7, None), (9, None)] {
            assert_eq!(of(&even, lanes), want, "{lanes}");
        }
        // The second lane is half a file behind: what is cut at both edges makes up whole files.
        let odd =
            [(0, 2000), (0, 1500), (2000, 3000), (1500, 2500), (3000, 4000), (2500, 3500), (3500, 4500), (4000, 5000)];
        assert_eq!(of(&times(&odd), 2), Some((4, 2000)));
        assert_eq!(of(&Times::default(), 0), None);
    }

    fn numbered(file: (usize, (Instant, Option<Instant>))) -> (StepId, (Instant, Option<Instant>)) {
        (file.0 as StepId, file.1)
    }
}
