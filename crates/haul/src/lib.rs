//! The engine: lists both sides, decides, schedules, transfers, verifies, finishes. Also haul's public library.
//!
//! Knows stores only by their contract; never a terminal, arguments, the environment or a home folder.

mod cx;
pub mod list;
pub mod report;

pub use cx::{Cancel, Confirm, Cx};
pub use list::{ListOptions, list};
pub use report::{Report, Totals};
