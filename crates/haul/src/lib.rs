//! The engine: lists both sides, decides, schedules, transfers, verifies, finishes. Also haul's public library.
//!
//! Knows stores only by their contract; never a terminal, arguments, the environment or a home folder.

mod attributes;
mod backup;
pub mod bench;
mod budget;
pub mod check;
mod cx;
mod decide;
mod elsewhere;
mod finish;
mod hard_links;
pub mod hash;
pub mod index;
mod job;
pub mod journal;
pub mod list;
pub mod overlap;
mod pairs;
pub mod pipe;
pub mod presence;
mod rename;
pub mod report;
mod schedule;
mod spool;
mod transfer;

pub use budget::{STREAMS, questions};
pub use cx::{Cancel, Confirm, Cx};
pub use job::{run, run_one};
pub use list::{ListOptions, list};
pub use report::{Report, Totals};
