//! Output for people: lines of progress and the summary in dcp's format, errors, the exit code. Pure.

use crate::{
    coordinator::Coordinator,
    work::{Job, Verb},
};
use haul_core::units::size_decimal;
use jiff::Zoned;
use std::time::Duration;

fn now() -> String {
    Zoned::now().strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// A line of progress.
pub fn progress(job: &Job, state: &Coordinator, moved: u64, took: Duration, ranks: usize) -> String {
    let secs = took.as_secs_f64();
    let (files, bytes) = state.seen;
    let totals = &state.totals;
    let done = totals.files + totals.links + totals.names + totals.linked + totals.same;
    let rate = size_decimal(moved as f64 / secs.max(0.001));
    let what = match job.verb {
        Verb::Delete => {
            return format!("[{}] Removed {} items in {secs:.3} secs on {ranks} ranks", now(), totals.deleted);
        }
        Verb::Check => "Compared",
        _ => "Copied",
    };
    let share = (moved * 100).checked_div(bytes).unwrap_or(0).min(100);
    format!(
        "[{}] {what} {} ({share}%) in {secs:.3} secs ({rate}/s), {done} of {files} files found so far, {ranks} ranks",
        now(),
        size_decimal(moved as f64)
    )
}

/// The end.
pub fn summary(job: &Job, state: &Coordinator, took: Duration, began: &Zoned, ranks: usize) -> String {
    let secs = took.as_secs_f64();
    let totals = &state.totals;
    let items = totals.dirs + totals.files + totals.links + totals.names + totals.linked + totals.same;
    let day = |at: &Zoned| at.strftime("%b-%d-%Y,%H:%M:%S").to_string();
    let rate = size_decimal(totals.bytes as f64 / secs.max(0.001));
    let mut lines = vec![
        format!("Started: {}", day(began)),
        format!("Completed: {}", day(&Zoned::now())),
        format!("Seconds: {secs:.3} on {ranks} ranks"),
    ];
    match job.verb {
        Verb::Delete => lines.push(format!("Removed: {} items", totals.deleted)),
        Verb::Check => {
            lines.push(format!(
                "Number of items that exist in both directories: {}",
                totals.files + totals.same + totals.differ
            ));
            lines.push(format!(
                "Number of items that exist only in one directory: {}",
                totals.only_src + totals.only_dst
            ));
            lines.push(format!("Number of items that have different data: {}", totals.differ));
            lines.push(format!("Rate: {rate}/s ({} bytes in {secs:.3} seconds)", totals.bytes));
        }
        _ => {
            lines.insert(
                0,
                format!("Walked {items} items in {secs:.3} secs ({:.3} items/sec)", items as f64 / secs.max(0.001)),
            );
            lines.push(format!("Items: {items}"));
            lines.push(format!("  Directories: {}", totals.dirs));
            lines.push(format!("  Files: {}", totals.files));
            lines.push(format!("  Links: {}", totals.links));
            lines.push(format!("  Hard links: {}", totals.names));
            if job.link_dest.is_some() {
                lines.push(format!("  Linked to files of --link-dest: {}", totals.linked));
            }
            lines.push(format!("  Unchanged: {}", totals.same));
            if job.delete {
                lines.push(format!("  Deleted: {}", totals.deleted));
            }
            if totals.unpreserved > 0 {
                lines.push(format!("  Of which not all attributes could be kept: {}", totals.unpreserved));
            }
            lines.push(format!("Data: {} ({} bytes)", size_decimal(totals.bytes as f64), totals.bytes));
            lines.push(format!("Rate: {rate}/s ({} bytes in {secs:.3} seconds)", totals.bytes));
        }
    }
    lines.iter().map(|line| format!("[{}] {line}", now())).collect::<Vec<_>>().join("\n")
}

/// rsync's exit code where no room is left.
const NO_SPACE: u8 = 11;

/// The exit code of a job that can't begin, because no room is left or for another reason.
pub fn code_of_refusal(verb: Verb, full: bool) -> u8 {
    if full && verb == Verb::Sync { NO_SPACE } else { 1 }
}

/// The exit code: rsync's for a sync, else 1 after anything; 20 for all that was stopped by a signal.
pub fn code(job: &Job, state: &Coordinator) -> u8 {
    let totals = &state.totals;
    let differ = totals.differ + totals.only_src + totals.only_dst;
    match job.verb {
        _ if state.stopping => 20,
        Verb::Sync if state.full || state.broken.is_some() => NO_SPACE,
        Verb::Sync if state.errors > state.vanished => 23,
        Verb::Sync if state.vanished > 0 => 24,
        Verb::Check if differ > 0 => 1,
        _ => u8::from(state.errors > 0 || state.broken.is_some()),
    }
}
