//! The engine: lists both sides, decides, schedules, transfers, verifies, finishes. Also haul's public library.
//!
//! Knows stores only by their contract; never a terminal, arguments, the environment or a home folder.

mod cx;
pub mod report;

pub use cx::{Cancel, Cx};
pub use report::{Report, Totals};
