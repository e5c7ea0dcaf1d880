//! Runs a plan: for each size, up and back, or across, at 1, 2, 4, … at once, until more brings nothing or the bounds are
//! reached; then where the knee should be, and once with nothing fixed, which comes earlier where the time is short.

use crate::{
    Bench, BenchResult, Direction, Progress, Sweep, SweepEnd, analysis,
    cleanup::{clear, fresh},
    measurement::{MeasurementResult, PlannedMeasurement, measure},
    plan::{Class, DIR_FILES, Plan, Remaining, Shortage, files_at, files_of_auto, is_auto_next},
    synthetic::TestContent,
};
use futures::future::LocalBoxFuture;
use haul_core::{Error, Key, Result};
use haul_store::Store;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Files that tell about the speed before anything is planned.
const PROBE: usize = 2;
/// More at once that brings less than this factor brings nothing. Wide enough for the noise of a network.
const GAIN: f64 = 1.10;
/// From this many at once on, one measurement without a gain ends a sweep; before, it takes two in a row.
const SURE: usize = 16;

/// A folder that could not be removed, or not all of it, and why.
pub type LeftoverFolder = (String, Error);

/// Measures, then removes what was sent, also after an error and when it was stopped. Gives what could not be removed too.
pub fn run<'a>(bench: &'a Bench, plan: &'a Plan) -> LocalBoxFuture<'a, (Result<BenchResult>, Vec<LeftoverFolder>)> {
    Box::pin(async move {
        let mut run = Run {
            bench,
            plan,
            made: TestContent::new(bench.seed),
            began: Instant::now(),
            written: Vec::new(),
            measured: BenchResult::default(),
        };
        let source = bench.source.as_ref().map(|source| &source.root);
        for root in source.into_iter().chain([&bench.root]) {
            if let Err(error) = fresh(root).await {
                return (Err(error), Vec::new());
            }
        }
        let throttles = bench.meters.throttles();
        let result = run.all().await;
        let (made, mut measured) = (run.made, run.measured);
        measured.elapsed = run.began.elapsed();
        measured.verified = made.verified();
        measured.throttled = bench.meters.throttles() - throttles;
        (bench.watch)(&Progress::Clearing);
        let (mut written, mut uncleared) = (run.written, Vec::new());
        // The first of them has the generated files. A listing finds the copies.
        for root in source.into_iter().chain([&bench.root]) {
            if let Err(error) = clear(root, std::mem::take(&mut written)).await {
                uncleared.push((root.locator().to_owned(), error));
            }
        }
        (result.map(|()| measured), uncleared)
    })
}

struct Run<'a> {
    bench: &'a Bench,
    plan: &'a Plan,
    made: TestContent,
    began: Instant,
    /// Every key that a measurement was told to write, below the bench's folder.
    written: Vec<Key>,
    measured: BenchResult,
}

/// One direction of one size.
struct Lane {
    sweep: Sweep,
    /// Why it ended, once it has.
    ended: Option<SweepEnd>,
    /// Files a second at the last measurement.
    rate: f64,
    /// Files that it may still use.
    files: u64,
    /// Measurements in a row that brought nothing.
    flat: u32,
}

/// State that all measurements of a size share.
struct SizeState<'a> {
    class: &'a Class,
    store: &'a Arc<dyn Store>,
    from: Option<&'a Arc<dyn Store>>,
    deadline: Instant,
    /// Files that are there.
    there: Vec<Key>,
    /// The next of them to read.
    next: usize,
}

impl Run<'_> {
    async fn all(&mut self) -> Result<()> {
        let end = self.began + self.plan.bounds.max_time;
        for (number, (class, store)) in self.plan.classes.iter().zip(&self.bench.folders).enumerate() {
            let shares: u32 = self.plan.classes[number..].iter().map(|class| class.time_share).sum();
            let left = end.saturating_duration_since(Instant::now());
            let deadline = Instant::now() + left * class.time_share / shares.max(1);
            let from = self.bench.source.as_ref().and_then(|source| source.folders.get(number));
            self.class(SizeState { class, store, from, deadline, there: Vec::new(), next: 0 }).await?;
        }
        Ok(())
    }

    async fn class(&mut self, mut place: SizeState<'_>) -> Result<()> {
        let ways: &[Direction] =
            if place.from.is_some() { &[Direction::Across] } else { &[Direction::Up, Direction::Down] };
        let mut lanes: Vec<Lane> = ways.iter().map(|way| Lane::new(*way, place.class)).collect();
        for lane in &mut lanes {
            self.probe(lane, &mut place).await?;
        }
        let most = self.plan.bounds.max_at_once.max(1);
        let mut at_once = 1;
        while lanes.iter().any(|lane| lane.ended.is_none()) {
            for lane in lanes.iter_mut().filter(|lane| lane.ended.is_none()) {
                if self.is_auto_next(lane, &place, at_once) {
                    self.auto(lane, &mut place).await?;
                }
                let left = lane.left(&place);
                self.level(lane, &mut place, at_once, left).await?;
            }
            let next = (at_once * 2).min(most);
            if next == at_once {
                lanes.iter_mut().for_each(|lane| lane.end(SweepEnd::Most));
            }
            at_once = next;
        }
        for lane in &mut lanes {
            // Between two measured ones, where the figures say that the knee is.
            if let Some(at_once) = analysis::refine(&lane.sweep) {
                // Files kept for the last run may be used: that one can do with less.
                let left = Remaining { all: 0, ..lane.left(&place) };
                self.level(lane, &mut place, at_once, left).await?;
                lane.sweep.points.sort_by_key(|point| point.at_once);
            }
            if lane.sweep.auto.is_none() {
                self.auto(lane, &mut place).await?;
            }
        }
        let (empty, measured) =
            lanes.into_iter().map(Lane::into_sweep).partition(|sweep: &Sweep| sweep.points.is_empty());
        self.measured.unmeasured.extend::<Vec<_>>(empty);
        self.measured.sweeps.extend::<Vec<_>>(measured);
        Ok(())
    }

    /// A few files, one after another, that only tell the speed. A file in parts is too large for that.
    async fn probe(&mut self, lane: &mut Lane, place: &mut SizeState<'_>) -> Result<()> {
        if place.class.in_parts {
            return Ok(());
        }
        if place.there.is_empty() && lane.sweep.direction == Direction::Down {
            lane.end(SweepEnd::Time);
            return Ok(());
        }
        match self.measure(lane, place, Some(1), PROBE * place.class.batch as usize, 0).await? {
            MeasurementResult::Measured(point) => lane.rate = point.files_per_second(),
            MeasurementResult::Late => lane.end(SweepEnd::Time),
            MeasurementResult::Refused => lane.end(SweepEnd::Refused),
        }
        Ok(())
    }

    /// One measurement, or the reason why there are no more.
    async fn level(
        &mut self,
        lane: &mut Lane,
        place: &mut SizeState<'_>,
        at_once: usize,
        left: Remaining,
    ) -> Result<()> {
        let class = place.class;
        if class.in_parts && at_once as u64 > class.size.div_ceil(self.plan.part) {
            lane.end(SweepEnd::Parts);
            return Ok(());
        }
        let files = match files_at(class.lanes(at_once), left, class.in_parts) {
            Ok(files) => files as usize,
            Err(short) => {
                lane.end(if short == Shortage::Files { SweepEnd::Bytes } else { SweepEnd::Time });
                return Ok(());
            }
        };
        let lanes = if class.in_parts { 0 } else { class.lanes(at_once) };
        match self.measure(lane, place, Some(at_once), files, lanes).await? {
            MeasurementResult::Measured(point) => lane.take(point),
            MeasurementResult::Late => lane.end(SweepEnd::Time),
            MeasurementResult::Refused => lane.end(SweepEnd::Refused),
        }
        Ok(())
    }

    /// True if the run with nothing fixed must come before this measurement, or there would be no time for it.
    fn is_auto_next(&self, lane: &Lane, place: &SizeState<'_>, at_once: usize) -> bool {
        let Some((suits, _)) = self.lanes_of_auto(lane, place).filter(|_| lane.sweep.auto.is_none()) else {
            return false;
        };
        let (class, left) = (place.class, lane.left(place));
        let auto = files_of_auto(suits, left, class.in_parts).unwrap_or_default();
        is_auto_next(files_at(class.lanes(at_once), left, class.in_parts), auto, left)
    }

    /// Files under way that suit the run with nothing fixed, and those that the sweep found to be enough.
    fn lanes_of_auto(&self, lane: &Lane, place: &SizeState<'_>) -> Option<(usize, usize)> {
        let knee = analysis::knee(&lane.sweep)?;
        let alone = self.bench.source.as_ref().map_or(place.store.caps().concurrency, |source| source.alone);
        Some((place.class.lanes(knee.at_once.max(alone)), place.class.lanes(knee.at_once)))
    }

    /// Once with nothing fixed.
    async fn auto(&mut self, lane: &mut Lane, place: &mut SizeState<'_>) -> Result<()> {
        // As many files as a search from the engine's first guess needs; all lanes count as busy once as many run as the
        // sweep found to be enough.
        let Some((suits, chosen)) = self.lanes_of_auto(lane, place) else { return Ok(()) };
        let in_parts = place.class.in_parts;
        let Some(files) = files_of_auto(suits, lane.left(place), in_parts) else { return Ok(()) };
        // With few files for this many lanes hardly any would be left: then all count.
        let lanes = if in_parts || files < 3 * suits as u64 { 0 } else { chosen };
        if let MeasurementResult::Measured(point) = self.measure(lane, place, None, files as usize, lanes).await? {
            lane.sweep.auto = Some(point);
        }
        Ok(())
    }

    async fn measure(
        &mut self,
        lane: &mut Lane,
        place: &mut SizeState<'_>,
        at_once: Option<usize>,
        files: usize,
        lanes: usize,
    ) -> Result<MeasurementResult> {
        let class = place.class;
        let direction = lane.sweep.direction;
        let keys = match direction {
            Direction::Up | Direction::Across => self.new_keys(place, files),
            Direction::Down => place.next_files(files),
        };
        // A sweep back may have come further than the way up left files for.
        if keys.len() < 3 * lanes || keys.is_empty() {
            return Ok(MeasurementResult::Late);
        }
        lane.files = lane.files.saturating_sub(keys.len() as u64);
        if direction != Direction::Down {
            self.measured.sent += keys.len() as u64 * class.size;
        }
        let (part, deadline) = (self.plan.part, place.deadline);
        if let Some(folder) = place.from {
            (self.bench.watch)(&Progress::Making { size: class.size, files: keys.len() as u64 });
            let (direction, at_once, lanes) = (Direction::Up, None, 0);
            let order =
                PlannedMeasurement { direction, from: None, class, at_once, lanes, keys: keys.clone(), part, deadline };
            match measure(self.bench, &self.made, folder, order).await? {
                MeasurementResult::Measured(_) if Instant::now() < deadline => {}
                MeasurementResult::Measured(_) | MeasurementResult::Late => return Ok(MeasurementResult::Late),
                MeasurementResult::Refused => return Ok(MeasurementResult::Refused),
            }
        }
        (self.bench.watch)(&Progress::Begun { direction, size: class.size, files: keys.len() as u64, at_once });
        let order = PlannedMeasurement {
            direction,
            from: place.from,
            class,
            at_once,
            lanes,
            keys: keys.clone(),
            part,
            deadline,
        };
        let ran = measure(self.bench, &self.made, place.store, order).await?;
        if let MeasurementResult::Measured(point) = &ran {
            (self.bench.watch)(&Progress::Measured(point.clone()));
        }
        if direction == Direction::Up && matches!(ran, MeasurementResult::Measured(_)) && Instant::now() < deadline {
            place.there.extend(keys);
        }
        Ok(ran)
    }

    fn new_keys(&mut self, place: &SizeState<'_>, files: usize) -> Vec<Key> {
        let first = self.written.len();
        let name = |n: usize| match place.from {
            Some(_) => format!("{:05}/{n:07}", n / DIR_FILES as usize),
            None => format!("{n:07}"),
        };
        let keys: Vec<Key> = (first..first + files).map(|n| Key::new(name(n))).collect();
        let dir = place.class.folder() + "/";
        self.written.extend(keys.iter().map(|key| key.below(dir.as_bytes())));
        keys
    }
}

impl SizeState<'_> {
    /// The next files in turn, so that no file is read again while others weren't.
    fn next_files(&mut self, files: usize) -> Vec<Key> {
        let files = files.min(self.there.len());
        let keys = (0..files).map(|n| self.there[(self.next + n) % self.there.len()].clone()).collect();
        self.next += files;
        keys
    }
}

impl Lane {
    fn new(direction: Direction, class: &Class) -> Lane {
        let sweep = Sweep {
            direction,
            size: class.size,
            in_parts: class.in_parts,
            points: Vec::new(),
            auto: None,
            ended: SweepEnd::Flat,
        };
        Lane { sweep, ended: None, rate: f64::INFINITY, files: class.files, flat: 0 }
    }

    fn left(&self, place: &SizeState<'_>) -> Remaining {
        let time: Duration = place.deadline.saturating_duration_since(Instant::now());
        // Nothing is kept for the last run once that is done.
        let all = if self.sweep.auto.is_some() { 0 } else { place.class.files };
        Remaining { all, files: self.files, time, rate: self.rate }
    }

    /// Ends the sweep, unless it has ended for another reason.
    fn end(&mut self, ended: SweepEnd) {
        self.ended.get_or_insert(ended);
    }

    fn take(&mut self, point: crate::Point) {
        let best = self.sweep.points.iter().map(|p| p.bytes_per_second()).fold(0.0, f64::max);
        let gained = point.bytes_per_second() >= best * GAIN;
        self.flat = if gained { 0 } else { self.flat + 1 };
        if self.flat >= 2 || self.flat == 1 && point.at_once.is_some_and(|n| n >= SURE) {
            self.end(SweepEnd::Flat);
        }
        self.rate = point.files_per_second();
        self.sweep.points.push(point);
    }

    /// The measurements, and why they went no further.
    fn into_sweep(self) -> Sweep {
        Sweep { ended: self.ended.unwrap_or(SweepEnd::Most), ..self.sweep }
    }
}
