//! The engine: lists both sides, decides, schedules, transfers, verifies, finishes. Also haul's public library.
//!
//! Knows stores only by their contract; never a terminal, arguments, the environment or a home folder.

mod attribute_reads;
mod attributes;
mod backup;
mod budget;
pub mod check;
mod consent;
mod cx;
mod decide;
mod destination_index;
mod dry_run;
mod execute;
mod extra_dirs;
mod hard_links;
pub mod hash;
pub mod index;
pub mod io;
pub mod journal;
mod ledger;
mod list;
pub mod move_dir;
pub mod names;
mod namesakes;
mod omitted;
pub mod overlap;
mod pairs;
pub mod part;
pub mod pipe;
mod plan;
pub mod presence;
mod recipes;
mod rename;
pub mod report;
mod run;
#[cfg(test)]
mod samples;
mod schedule;
mod spool;
mod transfer;

pub use budget::{STREAMS, questions};
pub use cx::{Answer, Cancel, Confirm, Cx};
pub use list::{ListOptions, list};
pub use namesakes::target as link_target;
pub use plan::{Steps, plan};
pub use report::{Report, Totals};
pub use run::{run, run_one, run_part};
pub use transfer::shared;
