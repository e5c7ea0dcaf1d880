//! Measures a store by haul's own engine: made files go up and come back at growing concurrency, until more at once
//! brings nothing or the bounds are reached. Or two folders: files are made in one and copied to the other. The command line
//! shows it; nothing here prints or asks.
//!
//! `plan` says how much may be sent (pure), `sweep` runs it, `point` runs one measurement as an ordinary job, `made` is the
//! other end of every transfer, `judge` reads the figures (pure), `clear` removes what was sent. `report` puts it all in words.

mod clear;
pub mod judge;
mod made;
pub mod plan;
mod point;
pub mod report;
mod sweep;

pub use judge::{Choice, Finding, Knee, Limit};
pub use plan::{Bounds, Class, Cost, Plan};
pub use sweep::run;

use haul::Cancel;
use haul_core::job::Job;
use haul_store::{Meters, Store};
use std::{sync::Arc, time::Duration};

/// Everything that a bench touches and that isn't data.
pub struct Bench {
    /// The one folder of the measured store that is this bench's own: new, and removed at the end.
    pub root: Arc<dyn Store>,
    /// A folder in it for each class of the plan, in the plan's order, named as [`Class::folder`] says.
    pub folders: Vec<Arc<dyn Store>>,
    /// Where files are copied from, if it is two folders that are measured.
    pub source: Option<Source>,
    /// The rules of its jobs; concurrency, parts and limits are set for each measurement.
    pub job: Job,
    /// Counts the requests of the measured store.
    pub meters: Arc<Meters>,
    /// Stops it; what was sent is removed all the same.
    pub cancel: Cancel,
    /// CPU time that this process has used so far.
    pub cpu_time: fn() -> Duration,
    /// Processors that it may use.
    pub cores: usize,
    /// What the made bytes depend on: another seed, other bytes.
    pub seed: u64,
    /// Told of each step as it is reached. Must not block.
    pub watch: Box<dyn Fn(&Step) + Send + Sync>,
}

/// The other folder of a bench between two: as those of the measured store.
pub struct Source {
    /// The bench's own folder in it: new, and removed at the end.
    pub root: Arc<dyn Store>,
    /// A folder for each class of the plan.
    pub folders: Vec<Arc<dyn Store>>,
    /// Copies at once that haul makes by itself between the two, and that a rank of haul-mpi makes on such a machine.
    pub alone: usize,
}

/// How far a bench is.
#[derive(Clone, Debug)]
pub enum Step {
    /// Files are being made, which isn't measured.
    Making {
        /// Bytes of each file.
        size: u64,
        /// How many files.
        files: u64,
    },
    /// A measurement begins.
    Begun {
        /// Which way.
        direction: Direction,
        /// Bytes of each file.
        size: u64,
        /// How many files.
        files: u64,
        /// Transfers (or parts) at once; `None` leaves it to the engine.
        at_once: Option<usize>,
    },
    /// A measurement ended.
    Measured(Point),
    /// What was sent is being removed.
    Clearing,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the store.
    Up,
    /// From the store.
    Down,
    /// From one folder to the other.
    Across,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Point {
    /// Which way.
    pub direction: Direction,
    /// Bytes of each file.
    pub size: u64,
    /// One file in parts: `at_once` counts its parts, not files.
    pub in_parts: bool,
    /// Transfers (or parts) at once; `None` for the engine's own choice.
    pub at_once: Option<usize>,
    /// Requests at once that the engine came to by itself, where it chose and the store can tell.
    pub found: Option<usize>,
    /// Files that count. The first and the last of each lane don't: one opens a connection, the other leaves it idle.
    pub files: u64,
    /// How long these took, as if they had come one upon the other.
    pub elapsed: Duration,
    /// Processors kept busy by this process meanwhile, as a number of them.
    pub cores: f64,
    /// Requests of the whole measurement, uncounted files and retries included; 0 where the store counts none.
    pub requests: u64,
    /// Answers that asked to slow down.
    pub throttled: u64,
}

impl Point {
    /// Bytes of the files that count.
    pub fn bytes(&self) -> u64 {
        self.files * self.size
    }

    /// Files a second.
    pub fn files_per_second(&self) -> f64 {
        // A clock that shows no progress at all gives a large number, not an infinite one.
        self.files as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    /// Bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.files_per_second() * self.size as f64
    }
}

/// All measurements of one file size in one direction.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Which way.
    pub direction: Direction,
    /// Bytes of each file.
    pub size: u64,
    /// One file in parts at a time.
    pub in_parts: bool,
    /// From the least to the most at once.
    pub points: Vec<Point>,
    /// With nothing fixed: the engine's own choice.
    pub auto: Option<Point>,
    /// Why it went no further.
    pub ended: Ended,
}

/// Why a sweep went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// More at once brought no more, twice in a row.
    Flat,
    /// The bytes that may be sent were used up.
    Bytes,
    /// The time was used up.
    Time,
    /// As many at once as were asked for.
    Most,
    /// The file has no more parts.
    Parts,
    /// The store refused so many requests that files failed.
    Refused,
}

/// What came of a bench.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// By size, up before down.
    pub sweeps: Vec<Sweep>,
    /// Those that ended before their first measurement.
    pub unmeasured: Vec<Sweep>,
    /// Bytes sent to the store; between two folders those that were made.
    pub sent: u64,
    /// Bytes that came back, each compared with what was sent; none between two folders.
    pub verified: u64,
    /// How long all of it took, without the removal.
    pub elapsed: Duration,
    /// Answers that asked to slow down.
    pub throttled: u64,
}
