//! One measurement: an ordinary copy of made files to the store, or back, with its concurrency fixed or left alone.

use super::{Bench, Direction, Point, Step, made::Made, plan::Class};
use crate::{Cancel, Cx, job};
use haul_core::{
    Error, ErrorKind, Key, Result,
    event::{Event, Sink},
    filter::{Filter, FilterSpec},
    policy::{Mode, Policy},
};
use haul_store::Store;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// What to measure.
pub struct Order<'a> {
    pub direction: Direction,
    pub class: &'a Class,
    pub at_once: Option<usize>,
    /// Files that open the lanes' connections and don't count.
    pub uncounted: usize,
    pub keys: Vec<Key>,
    /// Bytes of a part.
    pub part: u64,
    pub deadline: Instant,
}

/// How a measurement ended.
pub enum Ran {
    /// To its end, or for so long that what was done until the deadline counts.
    Measured(Point),
    /// The deadline came too early.
    Late,
    /// The store refused so much that files failed.
    Refused,
}

/// Notes when the first transfer began and when each ended.
#[derive(Default)]
struct Stopwatch(Mutex<Times>);

#[derive(Default)]
struct Times {
    began: Option<Instant>,
    done: Vec<Instant>,
}

impl Sink for Stopwatch {
    fn emit(&self, event: &Event) {
        let mut times = self.0.lock().unwrap_or_else(|e| e.into_inner());
        match event {
            Event::Begun { .. } => {
                times.began.get_or_insert_with(Instant::now);
            }
            Event::Done { .. } => times.done.push(Instant::now()),
            _ => {}
        }
    }
}

/// Runs one measurement against `store`, the folder of its size.
///
/// Errors: the job's first, unless the deadline or the store's refusal explains it; `Cancelled` when the user stopped it.
pub async fn measure(bench: &Bench, made: &Made, store: &Arc<dyn Store>, order: Order<'_>) -> Result<Ran> {
    let size = order.class.size;
    let files = order.keys.len() as u64;
    (bench.watch)(&Step::Begun { direction: order.direction, size, files, at_once: order.at_once });
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
    let (cpu, throttled, requests) = ((bench.cpu_time)(), bench.meters.throttles(), all_requests(bench));
    let started = Instant::now();
    let report = job::run(Mode::Copy, policy(bench, &order), cx).await;
    let wall = started.elapsed();
    guard.abort();

    if bench.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, "bench", "stopped"));
    }
    let late = late.load(Ordering::SeqCst);
    if let Some(error) = report.errors.first().filter(|_| !late) {
        let refused = report.errors.iter().all(|error| error.kind() == ErrorKind::Busy);
        return if refused { Ok(Ran::Refused) } else { Err(error.to_report()) };
    }
    let times = watch.0.lock().unwrap_or_else(|e| e.into_inner());
    let Some((counted, elapsed)) = counted(&times, order.uncounted) else { return Ok(Ran::Late) };
    if late && counted < order.at_once.unwrap_or(1) {
        return Ok(Ran::Late);
    }
    let point = Point {
        direction: order.direction,
        size,
        in_parts: order.class.in_parts,
        at_once: order.at_once,
        files: counted as u64,
        elapsed,
        cores: ((bench.cpu_time)() - cpu).as_secs_f64() / wall.as_secs_f64().max(1e-6),
        requests: all_requests(bench) - requests,
        throttled: bench.meters.throttles() - throttled,
    };
    (bench.watch)(&Step::Measured(point.clone()));
    Ok(Ran::Measured(point))
}

/// Files after the uncounted ones, and the time from the end of the last uncounted one to the end of the last.
fn counted(times: &Times, uncounted: usize) -> Option<(usize, std::time::Duration)> {
    let from = match uncounted.checked_sub(1) {
        Some(last) => *times.done.get(last)?,
        None => times.began?,
    };
    let files = times.done.len().checked_sub(uncounted).filter(|n| *n > 0)?;
    Some((files, times.done.last()?.duration_since(from)))
}

fn all_requests(bench: &Bench) -> u64 {
    bench.meters.requests().values().sum()
}

fn policy(bench: &Bench, order: &Order<'_>) -> Policy {
    // The keys are new: to ask for them at the destination would measure something else.
    let base = Policy { no_check_dest: true, ..bench.policy.clone() };
    let Some(at_once) = order.at_once else { return base };
    match order.class.in_parts {
        false => Policy { transfers: Some(at_once), checkers: Some(at_once), ..base },
        true => Policy {
            transfers: Some(1),
            checkers: Some(1),
            streams: Some(at_once),
            parts_cutoff: Some(1),
            part_size: Some(order.part),
            ..base
        },
    }
}

fn surroundings(
    bench: &Bench,
    made: &Made,
    store: &Arc<dyn Store>,
    order: &Order<'_>,
    sink: Arc<Stopwatch>,
    cancel: Cancel,
) -> Result<Cx> {
    let (src, dst, filter): (Arc<dyn Store>, Arc<dyn Store>, Filter) = match order.direction {
        Direction::Up => {
            (Arc::new(made.source(order.keys.clone(), order.class.size)), store.clone(), Filter::default())
        }
        Direction::Down => {
            let keys = order.keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            let filter = Filter::new(FilterSpec { files_from: Some(keys), ..FilterSpec::default() });
            let filter = filter.map_err(|why| Error::new(ErrorKind::Invalid, "bench", why))?;
            (store.clone(), Arc::new(made.sink()), filter)
        }
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_first_file_of_each_lane_does_not_count() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let times = Times { began: Some(at(0)), done: vec![at(5), at(6), at(7), at(9)] };
        for (uncounted, want) in [(0, Some((4, 9))), (1, Some((3, 4))), (2, Some((2, 3))), (4, None), (5, None)] {
            let got = counted(&times, uncounted).map(|(files, time)| (files, time.as_secs()));
            assert_eq!(got, want, "{uncounted}");
        }
        assert!(counted(&Times::default(), 0).is_none());
    }
}
