//! The words of statistics: the block that rclone's users know, a line for each file on its way, and at the end what only
//! haul counts. Pure: takes numbers, gives text.

use haul::Report;
use haul_core::concurrency::{ControllerState, Limit};
use haul_core::text::{columns, cut};
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
    /// Of the bytes moved, those that an earlier run left at the destination: they are no speed of this one.
    pub resumed: u64,
    /// Bytes that were moved and then not counted any more, as their file failed.
    pub taken_back: u64,
    /// Nothing is done, so nothing has a speed.
    pub dry_run: bool,
    /// The job has ended: nothing is awaited any more.
    pub over: bool,
    /// Speeds are shown in bits (`--stats-unit`).
    pub bits: bool,
    /// Bytes a second lately; `None` for the average.
    pub speed: Option<f64>,
    /// Measured request limits of each endpoint.
    pub lanes: Vec<LaneCount>,
}

/// Measurements of one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneCount {
    /// The endpoint, where there are several.
    pub endpoint: Option<String>,
    /// Direction of its requests.
    pub direction: Direction,
    /// Requests at once, and what limits them.
    pub limit: usize,
    /// The limiting factor.
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
            let ControllerState { limit, by, rate, .. } = lane.shown();
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
        (Limit::Rate, Some(rate)) => return format!("{from}{what} {rate:.1} a second (throttled by server)"),
        (Limit::Rate, None) => "throttled by server",
        (Limit::Demand, _) => "no more were needed",
        (Limit::Searching, _) => "still growing",
        (Limit::Knee, _) => "more don't help",
        (Limit::Processors, _) => "the processors here are busy",
        (Limit::Pinned, _) => "as set",
        (Limit::Max, _) => "haul's maximum",
    };
    format!("{from}{what} {} at once ({why})", count.limit)
}

/// A file on its way.
#[derive(Clone, Debug)]
pub struct ActiveTransfer {
    /// Its key.
    pub name: String,
    /// Bytes in all.
    pub size: u64,
    /// Bytes moved.
    pub done: u64,
    /// Bytes a second.
    pub speed: f64,
}

impl ActiveTransfer {
    /// Time until all of it is moved; `None` where it stands still.
    fn left(&self) -> Option<Duration> {
        let bytes = self.size.saturating_sub(self.done) as f64;
        (self.speed >= 1.0).then(|| Duration::from_secs((bytes / self.speed) as u64))
    }
}

impl Counts {
    /// A decision; in a dry run what would be done counts as done.
    pub fn decide(&mut self, action: Action, why: Reason, size: u64, dry_run: bool) {
        let is_extra = action == Action::Keep && why == Reason::Extra;
        if why != Reason::Missing && !is_extra {
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
        // This run or an earlier one moved the kept bytes of files that were partly sent.
        self.bytes += report.half_sent_bytes;
        self.resumed += report.half_sent_bytes.saturating_sub(self.taken_back);
        self.speed = None;
    }

    fn speed(&self, elapsed: Duration) -> f64 {
        let secs = elapsed.as_secs_f64();
        let moved = self.bytes.saturating_sub(self.resumed);
        self.speed.unwrap_or(if secs > 0.0 { moved as f64 / secs } else { 0.0 })
    }

    /// Time until everything known of is moved; `None` where nothing is left or nothing moves any more.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let left = self.total_bytes.saturating_sub(self.bytes);
        let speed = self.speed(elapsed);
        (left > 0 && speed >= 1.0 && !self.over).then(|| Duration::from_secs((left as f64 / speed) as u64))
    }
}

fn percent(done: u64, of: u64) -> String {
    if of == 0 { "-".into() } else { format!("{:.0}%", (done as f64 / of as f64 * 100.0).min(100.0)) }
}

fn eta(left: Option<Duration>) -> String {
    left.map_or_else(|| "-".into(), duration_short)
}

fn transferred(counts: &Counts, elapsed: Duration) -> String {
    format!(
        "{:>13} / {}, {}, {}, ETA {}",
        size_text(counts.bytes),
        size_text(counts.total_bytes.max(counts.bytes)),
        percent(counts.bytes, counts.total_bytes),
        speed(counts.speed(elapsed), counts.bits, size_text),
        eta(counts.left(elapsed))
    )
}

/// A speed as `text` has sizes: `1.500 KiB/s`, or in bits `12 Kibit/s`.
fn speed(bytes: f64, bits: bool, text: impl Fn(u64) -> String) -> String {
    if !bits {
        return format!("{}/s", text(bytes as u64));
    }
    let text = text((bytes * 8.0) as u64);
    format!("{}bit/s", text.strip_suffix('B').unwrap_or(&text))
}

/// Transferred counts for a narrow terminal: the most wanted ones first, and as many of the rest as fit.
fn transferred_briefly(counts: &Counts, elapsed: Duration, width: usize) -> String {
    let first = format!(
        "{} {} ETA {}",
        percent(counts.bytes, counts.total_bytes),
        speed(counts.speed(elapsed), counts.bits, brief),
        eta(counts.left(elapsed)),
    );
    let (done, all) = (brief(counts.bytes), brief(counts.total_bytes.max(counts.bytes)));
    let rest = [format!(", {done} of {all}"), format!(", {done}")];
    let fits = |rest: &&String| columns(&first) + columns(rest) <= width;
    format!("{first}{}", rest.iter().find(fits).map_or("", String::as_str))
}

/// A size in at most eight characters: `512 B`, `12.3 MiB`, `1023 MiB`.
fn brief(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (bytes.max(1).ilog2() / 10) as usize;
    let number = bytes as f64 / 1024f64.powi(step as i32);
    match step {
        0 => format!("{bytes} B"),
        _ if number < 99.95 => format!("{number:.1} {}", UNITS[step]),
        _ => format!("{number:.0} {}", UNITS[step]),
    }
}

/// The statistics, as rclone prints them.
pub fn stats(counts: &Counts, elapsed: Duration, one_line: bool) -> String {
    if one_line && counts.dry_run {
        return would_transfer(counts);
    }
    if one_line {
        let files = match counts.total_transfers {
            0 => String::new(),
            total => format!(" (xfr#{}/{total})", counts.transfers),
        };
        return format!("{}{files}", transferred(counts, elapsed));
    }
    lines(counts, elapsed).join("\n")
}

fn would_transfer(counts: &Counts) -> String {
    let files = if counts.transfers == 1 { "1 file" } else { &format!("{} files", counts.transfers) };
    format!("Would transfer: {files}, {}", size_text(counts.bytes))
}

fn lines(counts: &Counts, elapsed: Duration) -> Vec<String> {
    let mut lines = match counts.dry_run {
        true => vec![would_transfer(counts)],
        false => vec![format!("Transferred:   \t{}", transferred(counts, elapsed))],
    };
    if counts.errors > 0 {
        lines.push(format!("Errors:        {:>10}", counts.errors));
    }
    if counts.checks > 0 || counts.listed > 0 {
        lines.push(format!("Checks:        {:>10} / {}, 100%, Listed {}", counts.checks, counts.checks, counts.listed));
    }
    if counts.deletes > 0 || counts.dirs_deleted > 0 {
        let freed = size_text(counts.deleted_bytes);
        lines.push(match counts.dry_run {
            true => {
                let file = if counts.deletes == 1 { "file" } else { "files" };
                let directory = if counts.dirs_deleted == 1 { "directory" } else { "directories" };
                format!("Would delete:   {} {file}, {} {directory}, {freed}", counts.deletes, counts.dirs_deleted)
            }
            false => format!(
                "Deleted:       {:>10} (files), {} (dirs), {freed} (freed)",
                counts.deletes, counts.dirs_deleted
            ),
        });
    }
    if counts.renames > 0 {
        lines.push(format!("Renamed:       {:>10}", counts.renames));
    }
    if counts.total_transfers > 0 && !counts.dry_run {
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

/// Terminals of fewer columns get the brief first line.
const WIDE: usize = 80;
/// Size that a terminal needs for a bar, and the bar's width then.
const BARS: [(usize, usize); 2] = [(120, 20), (WIDE, 10)];
/// The name's least width: below that there is none.
const NAME: usize = 4;

/// The display for a terminal of this many columns and lines: the statistics and as many of the files on their way as fit. Names are
/// shortened in the middle to `names` characters (0: as far as the terminal is wide), so that percent, speed and time left are seen.
pub fn live(
    counts: &Counts,
    elapsed: Duration,
    moving: &[ActiveTransfer],
    one_line: bool,
    names: usize,
    (width, height): (usize, usize),
) -> Vec<String> {
    // The last column stays free: some terminals wrap when it is written.
    let width = width.saturating_sub(1);
    let is_narrow = width < WIDE - 1;
    if one_line {
        return vec![if is_narrow {
            transferred_briefly(counts, elapsed, width)
        } else {
            stats(counts, elapsed, true)
        }];
    }
    let mut all = lines(counts, elapsed);
    if let Some(first) = all.first_mut().filter(|_| !counts.dry_run) {
        // A tab would leave what was drawn in its place before.
        *first = if is_narrow { transferred_briefly(counts, elapsed, width) } else { first.replace('\t', " ") };
    }
    for line in all.iter_mut().filter(|line| columns(line) > width) {
        *line = cut(line.chars(), width.saturating_sub(1)).chain(['…']).collect();
    }
    if !moving.is_empty() {
        all.push("Transferring:".into());
    }
    let room = height.saturating_sub(1).saturating_sub(all.len());
    let shown = if moving.len() > room { room.saturating_sub(1) } else { moving.len() };
    // Where not all have a row, those that move have one.
    let mut first: Vec<&ActiveTransfer> = moving.iter().collect();
    first.sort_by_key(|file| file.speed < 1.0);
    all.extend(rows(&first[..shown], counts.bits, names, width));
    if moving.len() > shown {
        all.push(format!(" … and {} more", moving.len() - shown));
    }
    all
}

/// A row for each file, in columns: name, percent, speed, time left, and where there is room a bar and the size.
fn rows(moving: &[&ActiveTransfer], bits: bool, names: usize, width: usize) -> Vec<String> {
    let bar = BARS.iter().find(|(least, _)| width + 1 >= *least).map_or(0, |(_, bar)| *bar);
    let tails: Vec<String> = moving.iter().map(|file| tail(file, bits, bar)).collect();
    let longest = tails.iter().map(|tail| columns(tail)).max().unwrap_or(0);
    let room = width.saturating_sub(longest + " *  ".len());
    let most = if names == 0 { room } else { names.min(room) };
    let names: Vec<String> =
        moving.iter().map(|file| if most < NAME { String::new() } else { short(&file.name, most) }).collect();
    let column = names.iter().map(|name| columns(name)).max().unwrap_or(0);
    let row = |(name, tail): (&String, &String)| {
        let pad = " ".repeat(column - columns(name));
        format!(" * {name}{pad} {tail}")
    };
    names.iter().zip(&tails).map(row).collect()
}

fn tail(file: &ActiveTransfer, bits: bool, bar: usize) -> String {
    let column = if bits { 12 } else { 10 };
    let tail = format!(
        "{:>4} {:>column$} {:>6}",
        percent(file.done, file.size),
        speed(file.speed, bits, brief),
        eta(file.left())
    );
    if bar == 0 {
        return tail;
    }
    let full = match file.size {
        0 => bar,
        size => (file.done.min(size) as u128 * bar as u128 / u128::from(size)) as usize,
    };
    format!("{tail} [{}{}] {:>8}", "█".repeat(full), "░".repeat(bar - full), brief(file.size))
}

/// The name's ends, with `…` for what is left out between them.
fn short(name: &str, longest: usize) -> String {
    let name = crate::error::one_line(name);
    if columns(&name) <= longest {
        return name;
    }
    let room = longest.saturating_sub(1);
    let (head, tail) = (room / 2, room - room / 2);
    let mut tail: Vec<char> = cut(name.chars().rev(), tail).collect();
    tail.reverse();
    cut(name.chars(), head).chain(['…']).chain(tail).collect()
}

/// The statistics as an object of the JSON log, with rclone's names.
pub fn json(counts: &Counts, elapsed: Duration, moving: &[ActiveTransfer], stopped: bool) -> serde_json::Value {
    let seconds = |left: Option<Duration>| left.map(|left| left.as_secs());
    let transferring: Vec<_> = moving
        .iter()
        .map(|file| {
            serde_json::json!({
                "name": file.name,
                "size": file.size,
                "bytes": file.done,
                "percentage": (file.done * 100).checked_div(file.size).unwrap_or(100).min(100),
                "speed": file.speed,
                "speedAvg": file.speed,
                "eta": seconds(file.left()),
            })
        })
        .collect();
    let mut object = serde_json::json!({
        "bytes": counts.bytes,
        "checks": counts.checks,
        "deletedDirs": counts.dirs_deleted,
        "deletes": counts.deletes,
        "elapsedTime": elapsed.as_secs_f64(),
        "errors": counts.errors,
        "eta": seconds(counts.left(elapsed)),
        "fatalError": stopped,
        "listed": counts.listed,
        "renames": counts.renames,
        "retryError": counts.errors > 0,
        "speed": counts.speed(elapsed),
        "totalBytes": counts.total_bytes.max(counts.bytes),
        "totalChecks": counts.checks,
        "totalTransfers": counts.total_transfers,
        "transferTime": elapsed.as_secs_f64(),
        "transfers": counts.transfers,
    });
    if !transferring.is_empty() {
        object["transferring"] = transferring.into();
    }
    object
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
        row("Not proved:", format!("{} resumed from an earlier run; --verify=read proves them", totals.unproved));
    }
    if totals.server_copies > 0 {
        row("Copied inside:", format!("{} by the file system or the service itself", totals.server_copies));
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
        let bits = Counts { bits: true, ..counts() };
        assert_eq!(
            stats(&bits, Duration::from_secs(3), true),
            "    1.500 KiB / 6 KiB, 25%, 4 Kibit/s, ETA 9s (xfr#1/3)"
        );
        assert_eq!(speed(40.0, true, size_text), "320 bit/s");
        assert_eq!(speed(334.0 * 1048576.0, true, brief), "2.6 Gibit/s");
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
                "Copied inside: 1 by the file system or the service itself",
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
                "Requests:      host:9000 down 48 at once (more don't help), up 5.0 a second (throttled by server), \
                 copies 64 at once (still growing)"
            )
        );
    }

    fn files() -> Vec<ActiveTransfer> {
        let file = |name: &str, size: u64, done, speed| ActiveTransfer { name: name.into(), size, done, speed };
        vec![
            file("project/run-0042/output/temperature-field.h5", 250 << 30, 100 << 30, 350e6),
            file("a.txt", 1000, 500, 100.0),
            file("empty", 0, 0, 0.0),
        ]
    }

    fn drawn(width: usize, height: usize) -> Vec<String> {
        live(&counts(), Duration::from_secs(3), &files(), false, 45, (width, height))
    }

    #[test]
    fn percent_speed_and_time_left_are_seen_at_every_width() {
        assert_eq!(
            drawn(40, 24)[6..],
            [
                "Transferring:",
                " * projec…eld.h5  40%  334 MiB/s  7m40s",
                " * a.txt          50%    100 B/s     5s",
                " * empty            -      0 B/s      -",
            ]
        );
        assert_eq!(
            drawn(80, 24)[6..],
            [
                "Transferring:",
                " * project/run-004…rature-field.h5  40%  334 MiB/s  7m40s [████░░░░░░]  250 GiB",
                " * a.txt                            50%    100 B/s     5s [█████░░░░░]   1000 B",
                " * empty                              -      0 B/s      - [██████████]      0 B",
            ]
        );
        for (width, name) in [
            (120, "project/run-0042/output/temperature-field.h5"),
            (200, "project/run-0042/output/temperature-field.h5"),
        ] {
            let row = format!(" * {name}  40%  334 MiB/s  7m40s [████████░░░░░░░░░░░░]  250 GiB");
            assert_eq!(drawn(width, 24)[7], row);
        }
        for width in [20, 40, 60, 80, 120, 200] {
            let lines = drawn(width, 24);
            assert!(width < 40 || lines[6..].iter().all(|line| columns(line) < width), "{width}: {lines:#?}");
            assert!(lines.iter().all(|line| !line.contains('\t')));
        }
    }

    #[test]
    fn the_first_line_of_a_narrow_terminal_begins_with_what_matters() {
        assert_eq!(drawn(40, 24)[0], "25% 512 B/s ETA 9s, 1.5 KiB of 6.0 KiB");
        assert_eq!(drawn(80, 24)[0], "Transferred:        1.500 KiB / 6 KiB, 25%, 512 B/s, ETA 9s");
        let one = |width| live(&counts(), Duration::from_secs(3), &files(), true, 45, (width, 24));
        assert_eq!(one(40), ["25% 512 B/s ETA 9s, 1.5 KiB of 6.0 KiB"]);
        assert_eq!(one(38), ["25% 512 B/s ETA 9s, 1.5 KiB"]);
        assert_eq!(one(20), ["25% 512 B/s ETA 9s"]);
        assert_eq!(drawn(30, 24)[2], "Checks:                 2 / …");
        assert_eq!(one(80), ["    1.500 KiB / 6 KiB, 25%, 512 B/s, ETA 9s (xfr#1/3)"]);
    }

    #[test]
    fn files_that_find_no_row_are_counted() {
        let lines = drawn(80, 10);
        assert_eq!((lines.len(), lines[8].as_str()), (9, " … and 2 more"));
        let mut waiting = files();
        waiting.reverse();
        let lines = live(&counts(), Duration::from_secs(3), &waiting, false, 45, (80, 10));
        assert!(lines[7].starts_with(" * a.txt "), "what moves is shown first: {lines:#?}");
        assert_eq!(drawn(80, 3).last().map(String::as_str), Some(" … and 3 more"));
    }

    #[test]
    fn a_name_is_shortened_in_its_middle_by_columns() {
        assert_eq!(short("abcdefghij", 5), "ab…ij");
        assert_eq!(short("a\nb", 9), "a\u{FFFD}b");
        assert_eq!(short("日本語日本語", 7), "日…語");
        assert_eq!((brief(0), brief(1023), brief(1 << 20), brief(1023 << 20)).3, "1023 MiB");
    }

    #[test]
    fn what_an_earlier_run_sent_is_no_speed_of_this_one() {
        let counts = Counts { bytes: 1000, resumed: 900, total_bytes: 1100, ..Counts::default() };
        let line = stats(&counts, Duration::from_secs(10), true);
        assert_eq!(line, "       1000 B / 1.074 KiB, 91%, 10 B/s, ETA 10s");
    }

    #[test]
    fn what_is_kept_of_a_file_that_was_stopped_was_moved() {
        let mut counts = Counts { taken_back: 200, total_bytes: 2000, ..Counts::default() };
        // 300 of these an earlier run had sent.
        counts.take(&Report { half_sent: 1, half_sent_bytes: 500, ..Report::default() });
        counts.over = true;
        assert_eq!(stats(&counts, Duration::from_secs(10), true), "        500 B / 1.953 KiB, 25%, 20 B/s, ETA -");
    }

    #[test]
    fn a_dry_run_has_no_speed() {
        let counts = Counts {
            dry_run: true,
            bytes: 12 << 20,
            transfers: 2,
            total_transfers: 2,
            deletes: 1,
            ..Counts::default()
        };
        let text = stats(&counts, Duration::from_secs(1), false);
        assert_eq!(
            text,
            "Would transfer: 2 files, 12 MiB\nWould delete:   1 file, 0 directories, 0 B\nElapsed time:         1.0s"
        );
        assert_eq!(stats(&counts, Duration::from_secs(1), true), "Would transfer: 2 files, 12 MiB");
    }

    #[test]
    fn the_json_log_has_rclones_statistics() {
        let mut counts = counts();
        counts.renames = 2;
        let object = json(&counts, Duration::from_secs(3), &files()[1..2], false);
        let want = serde_json::json!({
            "bytes": 1536, "checks": 2, "deletedDirs": 0, "deletes": 1, "elapsedTime": 3.0, "errors": 1, "eta": 9,
            "fatalError": false, "listed": 5, "renames": 2, "retryError": true, "speed": 512.0, "totalBytes": 6144,
            "totalChecks": 2, "totalTransfers": 3, "transferTime": 3.0, "transfers": 1,
            "transferring": [{
                "name": "a.txt", "size": 1000, "bytes": 500, "percentage": 50, "speed": 100.0, "speedAvg": 100.0, "eta": 5
            }],
        });
        assert_eq!(object, want);
        assert_eq!(json(&counts, Duration::from_secs(3), &[], false).get("transferring"), None);
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
