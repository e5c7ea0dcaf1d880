//! The words of statistics: the block that rclone's users know, a line for each file on its way, and at the end what only
//! haul counts. Pure: takes numbers, gives text.

use haul::Report;
use haul_core::concurrency::{Limit, Shown};
use haul_core::{
    compare::Reason,
    plan::Action,
    units::{duration_short, size_text},
};
use haul_store::{Direction, Lanes, Meters};
use std::time::Duration;

/// The numbers of a job so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes known to be moved, those included.
    pub total_bytes: u64,
    /// Files transferred.
    pub transfers: u64,
    /// Files known to be transferred, those included.
    pub total_transfers: u64,
    /// Files compared.
    pub checks: u64,
    /// Files listed, on both sides.
    pub listed: u64,
    /// Files deleted.
    pub deletes: u64,
    /// Bytes of those.
    pub deleted_bytes: u64,
    /// Directories deleted.
    pub dirs_deleted: u64,
    /// Files renamed.
    pub renames: u64,
    /// Errors.
    pub errors: u64,
    /// Bytes a second lately; `None` for the average.
    pub speed: Option<f64>,
    /// What was found out of how many requests each endpoint takes.
    pub lanes: Vec<LaneCount>,
}

/// What was found out of one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneCount {
    /// The endpoint, where there are several.
    pub endpoint: Option<String>,
    /// What its requests do.
    pub direction: Direction,
    /// Requests at once, and what limits them.
    pub limit: usize,
    /// What limits them.
    pub by: Limit,
    /// Requests a second, where the other side throttles.
    pub rate: Option<f64>,
}

/// The lanes that were used, of all endpoints. Questions are shown only where something limits them: they are few.
pub fn lanes(all: &[std::sync::Arc<Lanes>]) -> Vec<LaneCount> {
    use Direction::{Copy, Down, Meta, Up};
    let mut counts = Vec::new();
    for lanes in all {
        for direction in [Down, Up, Copy, Meta] {
            let lane = lanes.lane(direction);
            let Shown { limit, by, rate, .. } = lane.shown();
            let shown = lane.requests() > 1 && (direction != Meta || by == Limit::Rate);
            if shown {
                let endpoint = (all.len() > 1).then(|| lanes.label().to_owned());
                counts.push(LaneCount { endpoint, direction, limit, by, rate });
            }
        }
    }
    counts
}

fn lane(count: &LaneCount) -> String {
    let what = match count.direction {
        Direction::Down => "down",
        Direction::Up => "up",
        Direction::Copy => "copies",
        Direction::Meta => "questions",
    };
    let from = count.endpoint.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    let why = match (count.by, count.rate) {
        (Limit::Rate, Some(rate)) => return format!("{from}{what} {rate:.1} a second (the other side throttles)"),
        (Limit::Rate, None) => "the other side throttles",
        (Limit::Demand, _) => "no more were needed",
        (Limit::Searching, _) => "still growing",
        (Limit::Knee, _) => "more don't help",
        (Limit::Processors, _) => "the processors here are busy",
        (Limit::Pinned, _) => "as set",
        (Limit::Max, _) => "haul's most",
    };
    format!("{from}{what} {} at once ({why})", count.limit)
}

/// A file on its way.
#[derive(Clone, Debug)]
pub struct Moving {
    /// Its key.
    pub name: String,
    /// Bytes in all.
    pub size: u64,
    /// Bytes moved.
    pub done: u64,
    /// Bytes a second.
    pub speed: f64,
}

impl Counts {
    /// A decision; in a dry run what would be done counts as done.
    pub fn decide(&mut self, action: Action, why: Reason, size: u64, dry_run: bool) {
        if !matches!(why, Reason::Missing) {
            self.checks += 1;
        }
        match action {
            Action::Copy | Action::Reuse => {
                self.total_transfers += 1;
                self.total_bytes += size;
                if dry_run {
                    self.transfers += 1;
                    self.bytes += size;
                }
            }
            Action::Delete if dry_run => {
                self.deletes += 1;
                self.deleted_bytes += size;
            }
            _ => {}
        }
    }

    /// The final numbers, as far as the report has them.
    pub fn take(&mut self, report: &Report) {
        self.dirs_deleted = report.totals.dirs_deleted;
        self.checks = self.checks.max(report.totals.checks);
        self.errors = self.errors.max(report.error_count);
        self.speed = None;
    }

    fn speed(&self, elapsed: Duration) -> f64 {
        let secs = elapsed.as_secs_f64();
        self.speed.unwrap_or(if secs > 0.0 { self.bytes as f64 / secs } else { 0.0 })
    }
}

fn percent(done: u64, of: u64) -> String {
    if of == 0 { "-".into() } else { format!("{:.0}%", (done as f64 / of as f64 * 100.0).min(100.0)) }
}

fn eta(counts: &Counts, elapsed: Duration) -> String {
    let left = counts.total_bytes.saturating_sub(counts.bytes);
    let speed = counts.speed(elapsed);
    if left == 0 || speed < 1.0 {
        return "-".into();
    }
    duration_short(Duration::from_secs((left as f64 / speed) as u64))
}

fn transferred(counts: &Counts, elapsed: Duration) -> String {
    format!(
        "{:>13} / {}, {}, {}/s, ETA {}",
        size_text(counts.bytes),
        size_text(counts.total_bytes.max(counts.bytes)),
        percent(counts.bytes, counts.total_bytes),
        size_text(counts.speed(elapsed) as u64),
        eta(counts, elapsed)
    )
}

/// The statistics, as rclone prints them.
pub fn stats(counts: &Counts, elapsed: Duration, one_line: bool) -> String {
    if one_line {
        let files = match counts.total_transfers {
            0 => String::new(),
            total => format!(" (xfr#{}/{total})", counts.transfers),
        };
        return format!("{}{files}", transferred(counts, elapsed));
    }
    lines(counts, elapsed).join("\n")
}

fn lines(counts: &Counts, elapsed: Duration) -> Vec<String> {
    let mut lines = vec![format!("Transferred:   \t{}", transferred(counts, elapsed))];
    if counts.errors > 0 {
        lines.push(format!("Errors:        {:>10}", counts.errors));
    }
    if counts.checks > 0 || counts.listed > 0 {
        lines.push(format!("Checks:        {:>10} / {}, 100%, Listed {}", counts.checks, counts.checks, counts.listed));
    }
    if counts.deletes > 0 || counts.dirs_deleted > 0 {
        let freed = size_text(counts.deleted_bytes);
        lines.push(format!(
            "Deleted:       {:>10} (files), {} (dirs), {freed} (freed)",
            counts.deletes, counts.dirs_deleted
        ));
    }
    if counts.renames > 0 {
        lines.push(format!("Renamed:       {:>10}", counts.renames));
    }
    if counts.total_transfers > 0 {
        let share = percent(counts.transfers, counts.total_transfers);
        lines.push(format!("Transferred:   {:>10} / {}, {share}", counts.transfers, counts.total_transfers));
    }
    if !counts.lanes.is_empty() {
        let each = counts.lanes.iter().map(lane).collect::<Vec<_>>().join(", ");
        lines.push(format!("{:<14} {each}", "Requests:"));
    }
    lines.push(format!("Elapsed time:  {:>10}s", format!("{:.1}", elapsed.as_secs_f64())));
    lines
}

/// Width of a file's bar, in characters.
const BAR: usize = 20;

/// The display: the statistics and the files on their way. Names are cut to `names` characters (0: not at all).
pub fn live(counts: &Counts, elapsed: Duration, moving: &[Moving], one_line: bool, names: usize) -> Vec<String> {
    if one_line {
        return vec![stats(counts, elapsed, true)];
    }
    let mut all = lines(counts, elapsed);
    if !moving.is_empty() {
        all.push("Transferring:".into());
    }
    let shown: Vec<String> = moving.iter().map(|m| short(&m.name, names)).collect();
    let width = shown.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    all.extend(moving.iter().zip(&shown).map(|(m, name)| file(m, name, width)));
    all
}

fn file(moving: &Moving, name: &str, width: usize) -> String {
    let full =
        if moving.size == 0 { BAR } else { (moving.done.min(moving.size) as usize * BAR) / moving.size as usize };
    let left = moving.size.saturating_sub(moving.done) as f64 / moving.speed.max(1.0);
    format!(
        " * {name:<width$} [{}{}] {:>4} of {}, {}/s, {}",
        "█".repeat(full),
        "░".repeat(BAR - full),
        percent(moving.done, moving.size),
        size_text(moving.size),
        size_text(moving.speed as u64),
        if moving.speed < 1.0 { "-".into() } else { duration_short(Duration::from_secs(left as u64)) },
    )
}

/// The name's ends, with `…` for what is left out between them.
fn short(name: &str, longest: usize) -> String {
    let name = crate::error::one_line(name);
    let letters: Vec<char> = name.chars().collect();
    if longest == 0 || letters.len() <= longest {
        return name;
    }
    let head = (longest - 1) / 2;
    let tail = longest - 1 - head;
    let (head, tail) = (&letters[..head], &letters[letters.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// The summary of a finished job.
pub fn last(counts: &Counts, elapsed: Duration, report: &Report, meters: &Meters, one_line: bool) -> String {
    if one_line {
        return stats(counts, elapsed, true);
    }
    let mut all = lines(counts, elapsed);
    let totals = &report.totals;
    let mut row = |name: &str, text: String| all.push(format!("{name:<14} {text}"));
    if !totals.proved.is_empty() {
        let proved = totals.proved.iter().map(|(algo, n)| format!("{n} by {algo}"));
        row("Proved equal:", proved.collect::<Vec<_>>().join(", "));
    }
    if totals.unproved > 0 {
        row("Not proved:", format!("{} that went on from an earlier run; --verify=read proves them", totals.unproved));
    }
    if totals.server_copies > 0 {
        row("Server-side:", format!("{} copied without passing through haul", totals.server_copies));
    }
    if totals.touched > 0 {
        row("Attributes:", format!("{} set on unchanged files, times included", totals.touched));
    }
    if totals.links > 0 {
        row("Hard links:", totals.links.to_string());
    }
    if totals.protected > 0 {
        row("Protected:", format!("{} not deleted: the source's listing did not prove them gone", totals.protected));
    }
    let retries = meters.retries();
    if retries > 0 || meters.throttles() > 0 {
        row("Retries:", format!("{retries}, asked to slow down {} times", meters.throttles()));
    }
    let requests = meters.requests();
    if !requests.is_empty() {
        let sum: u64 = requests.values().sum();
        let each = requests.iter().map(|(kind, n)| format!("{kind} {n}")).collect::<Vec<_>>().join(", ");
        row("API calls:", format!("{sum} ({each})"));
    }
    all.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Algo;

    fn counts() -> Counts {
        Counts {
            bytes: 1536,
            total_bytes: 6144,
            transfers: 1,
            total_transfers: 3,
            checks: 2,
            listed: 5,
            deletes: 1,
            deleted_bytes: 4,
            errors: 1,
            ..Default::default()
        }
    }

    #[test]
    fn statistics_read_as_rclones() {
        assert_eq!(
            stats(&counts(), Duration::from_secs(3), false),
            "Transferred:   \t    1.500 KiB / 6 KiB, 25%, 512 B/s, ETA 9s\n\
             Errors:                 1\n\
             Checks:                 2 / 2, 100%, Listed 5\n\
             Deleted:                1 (files), 0 (dirs), 4 B (freed)\n\
             Transferred:            1 / 3, 33%\n\
             Elapsed time:         3.0s"
        );
        assert_eq!(
            stats(&counts(), Duration::from_secs(3), true),
            "    1.500 KiB / 6 KiB, 25%, 512 B/s, ETA 9s (xfr#1/3)"
        );
        assert_eq!(stats(&Counts::default(), Duration::ZERO, true), "          0 B / 0 B, -, 0 B/s, ETA -");
    }

    #[test]
    fn a_summary_adds_what_haul_counts() {
        let mut report = Report::default();
        report.totals.proved.insert(Algo::Md5, 2);
        report.totals.server_copies = 1;
        report.totals.protected = 4;
        let meters = Meters::default();
        meters.request("PutObject");
        meters.request("PutObject");
        meters.request("ListObjectsV2");
        meters.retry();
        let text = last(&Counts::default(), Duration::from_secs(1), &report, &meters, false);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "Proved equal:  2 by md5",
                "Server-side:   1 copied without passing through haul",
                "Protected:     4 not deleted: the source's listing did not prove them gone",
                "Retries:       1, asked to slow down 0 times",
                "API calls:     3 (ListObjectsV2 1, PutObject 2)",
            ]
        );
    }

    #[test]
    fn the_concurrency_found_is_shown_with_what_limits_it() {
        let count = |direction, limit, by, rate| LaneCount { endpoint: None, direction, limit, by, rate };
        let mut lanes = vec![
            count(Direction::Down, 48, Limit::Knee, None),
            count(Direction::Up, 7, Limit::Rate, Some(5.04)),
            count(Direction::Copy, 64, Limit::Searching, None),
        ];
        lanes[0].endpoint = Some("host:9000".into());
        let counts = Counts { lanes, ..Counts::default() };
        let text = stats(&counts, Duration::from_secs(1), false);
        assert_eq!(
            text.lines().nth(1),
            Some(
                "Requests:      host:9000 down 48 at once (more don't help), up 5.0 a second (the other side \
                 throttles), copies 64 at once (still growing)"
            )
        );
    }

    #[test]
    fn each_file_on_its_way_has_a_bar() {
        let moving = Moving { name: "dir/file".into(), size: 1000, done: 500, speed: 100.0 };
        let lines = live(&counts(), Duration::from_secs(3), &[moving], false, 10);
        assert_eq!(lines[6], "Transferring:");
        assert_eq!(lines[7], " * dir/file [██████████░░░░░░░░░░]  50% of 1000 B, 100 B/s, 5s");
        assert_eq!(short("abcdefghij", 5), "ab…ij");
        assert_eq!(short("a\nb", 0), "a\u{FFFD}b");
    }

    #[test]
    fn a_dry_run_counts_what_it_would_do() {
        let mut counts = Counts::default();
        counts.decide(Action::Copy, Reason::Missing, 5, true);
        counts.decide(Action::Delete, Reason::Extra, 7, true);
        counts.decide(Action::Keep, Reason::Mtime, 9, true);
        let want = Counts {
            bytes: 5,
            total_bytes: 5,
            transfers: 1,
            total_transfers: 1,
            checks: 2,
            deletes: 1,
            deleted_bytes: 7,
            ..Default::default()
        };
        assert_eq!(counts, want);
    }
}
