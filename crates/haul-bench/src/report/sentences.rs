//! A bench in plain sentences: what it will cost, how far it is, what was found. Pure.

use super::Findings;
use crate::{
    Cost, Direction, Plan, Progress, Sweep, SweepEnd,
    analysis::{Limit, SingleConnection, SweepResult},
    plan::Class,
};
use haul_core::units::{duration_short, duration_text};
use std::time::Duration;

/// A size of files as people write it: `100 kB`, `1 MB`, `40 MiB`.
pub fn size(bytes: u64) -> String {
    for (unit, name) in
        [(1 << 30, "GiB"), (1 << 20, "MiB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1 << 10, "KiB"), (1000, "kB")]
    {
        if bytes > 0 && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

/// An amount of bytes: `537.1 MB`.
pub fn amount(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Bytes a second, in the table's unit: `25.0 MB/s`.
pub fn speed(bytes_per_second: f64) -> String {
    let digits = if bytes_per_second < 1e6 { 2 } else { 1 };
    format!("{:.digits$} MB/s", bytes_per_second / 1e6)
}

/// Parts at once: `1 part`, `8 parts`.
pub fn parts(count: usize) -> String {
    format!("{count} part{}", if count == 1 { "" } else { "s" })
}

/// `up`, `down` or `across`.
pub fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
        Direction::Across => "across",
    }
}

/// The direction at the beginning of a sentence.
fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "Up",
        Direction::Down => "Down",
        Direction::Across => "Across",
    }
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        0 if time < Duration::from_millis(2) => format!("{} µs", time.as_micros()),
        0..60 => format!("{:.0} ms", time.as_secs_f64() * 1e3),
        _ => duration_text(time),
    }
}

/// The files of a plan.
fn classes(plan: &Plan) -> String {
    let class = |class: &Class| {
        let parts = if class.in_parts { " in parts" } else { "" };
        format!("{} x {}{parts}", class.files, size(class.size))
    };
    plan.classes.iter().map(class).collect::<Vec<_>>().join(", ")
}

/// Most files and bytes that will be created in one folder and copied to the other.
pub fn cost_across(plan: &Plan, [from, to]: [&str; 2], [source, target]: [&str; 2]) -> String {
    let each = amount(plan.classes.iter().map(|class| class.files * class.size).sum());
    let time = duration_short(plan.bounds.max_time);
    format!(
        "haul bench makes a directory {source} in {from} and {target} in {to}, measures for at most {time}, and removes \
         both. At most:\n  \
         {each:>10}  made in the first: {}\n  \
         {each:>10}  copied from there to the second",
        classes(plan),
    )
}

/// Most that will be spent.
pub fn cost(plan: &Plan, cost: &Cost, path: &str, folder: &str) -> String {
    let classes = classes(plan);
    let time = duration_short(plan.bounds.max_time);
    format!(
        "haul bench makes a directory {folder} in {path}, measures in it for at most {time}, and removes it. At most:\n  \
         up    {:>10}  about {} writes (PUT): {classes}\n  \
         down  {:>10}  about {} reads (GET), each compared with what was sent\n  \
         and about {} listings (LIST) and {} deletes (DELETE)",
        amount(cost.up),
        cost.writes,
        amount(cost.down),
        cost.reads,
        cost.lists,
        cost.deletes,
    )
}

/// How far it is, in one line.
pub fn step(step: &Progress) -> String {
    match step {
        Progress::Making { size: bytes, files } => format!("making {files} x {} …", size(*bytes)),
        Progress::Begun { direction: way, size: bytes, files, at_once } => {
            let at_once = at_once.map_or("haul's own choice".into(), |n| format!("{n} at once"));
            format!("{}: {files} x {}, {at_once} …", direction(*way), size(*bytes))
        }
        Progress::Measured(point) => {
            let at_once = point.at_once.map_or("haul's own choice".into(), |n| format!("{n} at once"));
            let (way, speed) = (direction(point.direction), speed(point.bytes_per_second()));
            format!("{way}: {} x {}, {at_once}: {speed}", point.files, size(point.size))
        }
        Progress::Clearing => "removing what was sent …".into(),
    }
}

/// All that was found, a sentence or two a line.
pub fn sentences(found: &Findings) -> Vec<String> {
    let mut lines: Vec<String> = found.findings.iter().map(finding).collect();
    lines.extend(unmeasured(&found.measured.unmeasured));
    for lone in &found.lone {
        lines.extend(connection(lone));
    }
    for choice in &found.choices {
        let way = match choice.direction {
            Direction::Up => "to",
            Direction::Down | Direction::Across => "from",
        };
        let transfers = choice.transfers.map(|n| format!("--transfers {n}"));
        let streams = choice.streams.map(|n| format!("--multi-thread-streams {n}"));
        let flags = [transfers, streams].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let to = found.across.as_ref().map(|across| format!(" to {}", across.to)).unwrap_or_default();
        let place = format!("{way} {}{to}", found.remote);
        lines.push(match (flags.is_empty(), &found.across) {
            (false, _) => format!("Settings that suit copying {place}: {flags}"),
            (true, Some(across)) => {
                format!("Copying {place}: set nothing; haul makes {} copies at once by itself.", across.alone)
            }
            (true, None) if choice.rising => {
                format!("Copying {place}: set nothing yet; the speed was still rising at the most that was tried.")
            }
            (true, None) => {
                format!("Copying {place}: set nothing; haul's own choice was faster than any fixed number.")
            }
        });
    }
    lines.extend(own_choice(&found.findings));
    if found.measured.throttled > 0 {
        lines.push(format!("The store asked to slow down {} times in all.", found.measured.throttled));
    }
    lines.push(match &found.across {
        Some(_) => {
            "The files were written out and dropped from this machine's memory before they were copied, where the file \
                    system allows that; what was copied may still be in memory when it counts, as after any copy."
                .into()
        }
        None => format!(
            "On this side no disk was involved: the files were made in memory, and every byte that came back ({}) was \
             compared there.",
            amount(found.measured.verified)
        ),
    });
    lines.extend(ranks(found));
    lines
}

/// How many ranks of haul-mpi are worth it between two folders.
fn ranks(found: &Findings) -> Option<String> {
    let alone = found.across.as_ref()?.alone;
    let most = found.findings.iter().max_by_key(|f| f.knee.at_once)?;
    let (at_once, nodes) = (most.knee.at_once, most.knee.at_once.div_ceil(alone));
    let copies = |n: usize| if n == 1 { "1 copy".to_owned() } else { format!("{n} copies") };
    let is = |what: fn(&Limit) -> bool| found.findings.iter().any(|f| what(&f.limit));
    let head = format!(
        "These folders take {} at once. haul makes {alone} on this machine, and so does each rank of haul-mpi with a node \
         like this one to itself:",
        copies(at_once)
    );
    let ranks = match nodes {
        1 => "one rank is enough".to_owned(),
        n => format!("{n} ranks"),
    };
    Some(if is(|limit| matches!(limit, Limit::Cpu { .. })) {
        format!("{head} {ranks}, but this node's processors are the limit, so more nodes are likely to be faster.")
    } else if is(|limit| matches!(limit, Limit::NotReached)) {
        format!(
            "{head} at least {ranks}, as the speed was still rising.",
            ranks = ranks.replace("one rank is enough", "1 rank")
        )
    } else {
        format!(
            "{head} {ranks}. More nodes are faster only if this node's network was the limit: compare a run on two."
        )
    })
}

fn finding(f: &SweepResult) -> String {
    let what = if f.in_parts { "one file of" } else { "files of" };
    let at_once = if f.in_parts { parts(f.knee.at_once) } else { f.knee.at_once.to_string() };
    let times = match f.knee.at_once {
        1 => String::new(),
        _ => format!(", {:.1} times as fast as one", f.knee.speed_up),
    };
    let head = format!(
        "{}, {what} {}: {at_once} at once: {}{times}.",
        way(f.direction),
        size(f.size),
        speed(f.knee.bytes_per_second),
    );
    format!("{head} {}", limit(f))
}

/// The limit there.
fn limit(f: &SweepResult) -> String {
    match f.limit {
        Limit::NotReached => format!("Still rising at {}{}.", f.knee.at_once, ended(f.ended)),
        Limit::Cpu { busy, cores } => {
            format!("More doesn't help: this machine's processors are the limit ({busy:.1} of {cores} busy).")
        }
        Limit::RequestRate { files_per_second, throttled: 0 } if f.direction == Direction::Across => format!(
            "More doesn't help: the number of files is the limit ({files_per_second:.1} a second, while larger files \
             move more bytes)."
        ),
        Limit::RequestRate { files_per_second, throttled: 0 } => format!(
            "More doesn't help: the request rate is the limit ({files_per_second:.1} files a second, while larger \
             files move more bytes)."
        ),
        Limit::RequestRate { files_per_second, throttled } => format!(
            "More doesn't help: the request rate is the limit ({files_per_second:.1} files a second; the store asked \
             to slow down {throttled} times)."
        ),
        Limit::Unclear { files_per_second } => format!(
            "More didn't help here, but another measurement reached {files_per_second:.1} files a second: measure longer to \
             know the limit (--max-time, --max-bytes)."
        ),
        Limit::TotalBandwidth { bytes_per_second } => {
            format!("More doesn't help: the total bandwidth is the limit ({}).", speed(bytes_per_second))
        }
    }
}

/// Why a sweep that was still getting faster went no further.
fn ended(ended: SweepEnd) -> &'static str {
    match ended {
        SweepEnd::Flat => " when the sweep ended",
        SweepEnd::Bytes => " when the byte budget ran out; raise --max-bytes",
        SweepEnd::Time => " when the time ran out; raise --max-time",
        SweepEnd::Most => ", the most that was tried; raise --max-concurrency",
        SweepEnd::Parts => ", as the file has no more parts; raise --max-bytes or --sizes",
        SweepEnd::Refused => " when the store refused so many requests that files failed",
    }
}

/// Why there is no figure for a size. The way back has none where the way up has none: that is said once.
fn unmeasured(sweeps: &[Sweep]) -> Vec<String> {
    let is_up = |sweep: &Sweep| sweep.direction == Direction::Up;
    let shown = sweeps.iter().filter(|sweep| {
        sweep.direction != Direction::Down
            || !sweeps.iter().any(|up| is_up(up) && (up.size, up.in_parts) == (sweep.size, sweep.in_parts))
    });
    let line = |sweep: &Sweep| {
        let way = way(sweep.direction);
        let what = if sweep.in_parts { "one file of" } else { "files of" };
        let why = match sweep.ended {
            SweepEnd::Bytes => "the byte budget is too small for a store this fast; raise --max-bytes",
            SweepEnd::Time => "the time is too short for one measurement; raise --max-time",
            SweepEnd::Refused => "the store refused so many requests that files failed",
            SweepEnd::Parts => "the file has too few parts; raise --sizes",
            SweepEnd::Flat | SweepEnd::Most => "it ended before the first measurement",
        };
        format!("{way}, {what} {}: not measured: {why}.", size(sweep.size))
    };
    shown.map(line).collect()
}

fn connection(lone: &SingleConnection) -> Option<String> {
    let per_file = lone.per_file.filter(|time| time.as_micros() > 0).map(|time| {
        let what = if lone.direction == Direction::Across { "file system" } else { "store" };
        format!("a file costs {} whatever its size (latency: round trips and the {what}'s own work)", span(time))
    });
    let stream =
        lone.stream.map(|one| format!("one connection carries {} of a large file, several carry more", speed(one)));
    let both = [per_file, stream].into_iter().flatten().collect::<Vec<_>>().join("; ");
    let way = way(lone.direction);
    (!both.is_empty()).then(|| format!("{way}, one at a time: {both}."))
}

fn own_choice(findings: &[SweepResult]) -> Option<String> {
    let share = |f: &SweepResult| {
        let found = f.auto_found.map(|n| format!("; {n} at once")).unwrap_or_default();
        Some((f.auto_share? * 100.0, format!("({}, {}{found})", direction(f.direction), size(f.size))))
    };
    let shares: Vec<(f64, String)> = findings.iter().filter_map(share).collect();
    match (shares.split_first(), findings.is_empty()) {
        (Some(((share, of), rest)), _) => {
            let rest: String = rest.iter().map(|(share, of)| format!(", {share:.0} % {of}")).collect();
            Some(format!("Left alone, haul ran at {share:.0} % of the best fixed setting {of}{rest}."))
        }
        (None, false) => Some(
            "How fast haul is left alone wasn't measured: too few bytes or too little time were left for that. Raise --max-bytes or \
             --max-time before you set any of these."
                .into(),
        ),
        (None, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BestSettings, analysis::Knee, report::BetweenFolders};

    #[test]
    fn sizes_read_as_people_write_them() {
        for (bytes, text) in [
            (100_000, "100 kB"),
            (1_000_000, "1 MB"),
            (40 << 20, "40 MiB"),
            (1 << 20, "1 MiB"),
            (6500, "6500 B"),
            (2 << 30, "2 GiB"),
            (5_000_000_000, "5 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!((amount(537_100_000), amount(5_000)), ("537.1 MB".into(), "5.0 kB".into()));
        assert_eq!((speed(25e6), speed(1e5)), ("25.0 MB/s".into(), "0.10 MB/s".into()));
    }

    #[test]
    fn whether_haul_was_measured_left_alone_is_told() {
        let one = |auto_share| SweepResult {
            direction: Direction::Up,
            size: 1_000_000,
            in_parts: false,
            knee: Knee { at_once: 10, bytes_per_second: 250e6, speed_up: 10.0, rising: false },
            limit: Limit::NotReached,
            auto_share,
            auto_found: Some(12),
            ended: SweepEnd::Flat,
        };
        let sentence = "Left alone, haul ran at 97 % of the best fixed setting (up, 1 MB; 12 at once)";
        assert_eq!(own_choice(&[one(Some(0.97)), one(None)]), Some(format!("{sentence}.")));
        let down = SweepResult { direction: Direction::Down, auto_found: None, ..one(Some(1.564)) };
        assert_eq!(own_choice(&[one(Some(0.97)), down]), Some(format!("{sentence}, 156 % (down, 1 MB).")));
        assert!(own_choice(&[one(None)]).is_some_and(|text| text.contains("wasn't measured")));
        assert_eq!(own_choice(&[]), None);
    }

    fn of(limit: Limit, ended: SweepEnd) -> String {
        let knee = Knee { at_once: 10, bytes_per_second: 250e6, speed_up: 10.0, rising: limit == Limit::NotReached };
        let (direction, size) = (Direction::Up, 1_000_000);
        finding(&SweepResult {
            direction,
            size,
            in_parts: false,
            knee,
            limit,
            auto_share: Some(0.97),
            auto_found: Some(12),
            ended,
        })
    }

    #[test]
    fn what_limits_is_said_in_a_sentence() {
        let head = "Up, files of 1 MB: 10 at once: 250.0 MB/s, 10.0 times as fast as one.";
        for (limit, ended, text) in [
            (
                Limit::TotalBandwidth { bytes_per_second: 251e6 },
                SweepEnd::Flat,
                "More doesn't help: the total bandwidth is the limit (251.0 MB/s).",
            ),
            (
                Limit::RequestRate { files_per_second: 3.08, throttled: 12 },
                SweepEnd::Flat,
                "More doesn't help: the request rate is the limit (3.1 files a second; the store asked to slow down \
                 12 times).",
            ),
            (
                Limit::RequestRate { files_per_second: 3.08, throttled: 0 },
                SweepEnd::Flat,
                "More doesn't help: the request rate is the limit (3.1 files a second, while larger files move more \
                 bytes).",
            ),
            (
                Limit::Cpu { busy: 1.94, cores: 2 },
                SweepEnd::Flat,
                "More doesn't help: this machine's processors are the limit (1.9 of 2 busy).",
            ),
            (
                Limit::Unclear { files_per_second: 4.54 },
                SweepEnd::Time,
                "More didn't help here, but another measurement reached 4.5 files a second: measure longer to know the \
                 limit (--max-time, --max-bytes).",
            ),
            (Limit::NotReached, SweepEnd::Bytes, "Still rising at 10 when the byte budget ran out; raise --max-bytes."),
        ] {
            assert_eq!(of(limit, ended), format!("{head} {text}"));
        }
    }

    #[test]
    fn what_to_set_is_said_in_a_line() {
        let text_of = |transfers, rising| {
            let found = Findings::new("r:b".into(), "x".into(), crate::BenchResult::default(), 2, "now".into());
            let choice = BestSettings { direction: Direction::Down, transfers, streams: None, rising };
            sentences(&Findings { choices: vec![choice], ..found }).swap_remove(0)
        };
        assert_eq!(text_of(Some(8), false), "Settings that suit copying from r:b: --transfers 8");
        assert_eq!(
            text_of(None, false),
            "Copying from r:b: set nothing; haul's own choice was faster than any fixed number."
        );
        assert_eq!(
            text_of(None, true),
            "Copying from r:b: set nothing yet; the speed was still rising at the most that was tried."
        );
    }

    #[test]
    fn how_many_ranks_are_worth_it() {
        let text_of = |at_once, limit| {
            let knee = Knee { at_once, bytes_per_second: 250e6, speed_up: 10.0, rising: limit == Limit::NotReached };
            let finding = SweepResult {
                direction: Direction::Across,
                size: 10_000,
                in_parts: false,
                knee,
                limit,
                auto_share: None,
                auto_found: None,
                ended: SweepEnd::Flat,
            };
            let found = Findings::new("/a".into(), "x".into(), crate::BenchResult::default(), 2, "now".into());
            let choice =
                BestSettings { direction: Direction::Across, transfers: Some(at_once), streams: None, rising: false };
            let found = Findings { findings: vec![finding], choices: vec![choice], ..found };
            let lines = sentences(&found.clone().between(BetweenFolders { to: "/b".into(), alone: 32 }));
            let set = format!("Settings that suit copying from /a to /b: --transfers {at_once}");
            let all = "Copying from /a to /b: set nothing; haul makes 32 copies at once by itself.";
            let line = if at_once < 32 { &*set } else { all };
            assert!(lines.iter().any(|told| told == line), "{lines:?}");
            ranks(&found.between(BetweenFolders { to: "/b".into(), alone: 32 })).unwrap()
        };
        let bandwidth = Limit::TotalBandwidth { bytes_per_second: 250e6 };
        let head = |copies: &str| {
            format!(
                "These folders take {copies} at once. haul makes 32 on this machine, and so does each rank of haul-mpi with \
                 a node like this one to itself: "
            )
        };
        for (at_once, limit, copies, ranks) in [
            (
                8,
                bandwidth,
                "8 copies",
                "one rank is enough. More nodes are faster only if this node's network was the limit: compare a run on two.",
            ),
            (
                64,
                bandwidth,
                "64 copies",
                "2 ranks. More nodes are faster only if this node's network was the limit: compare a run on two.",
            ),
            (128, Limit::NotReached, "128 copies", "at least 4 ranks, as the speed was still rising."),
            (
                1,
                Limit::Cpu { busy: 2.0, cores: 2 },
                "1 copy",
                "one rank is enough, but this node's processors are the limit, so more nodes are likely to be faster.",
            ),
        ] {
            assert_eq!(text_of(at_once, limit), head(copies) + ranks);
        }
    }

    #[test]
    fn what_was_not_measured_is_said_once_a_size() {
        let sweep =
            |direction, size, ended| Sweep { direction, size, in_parts: false, points: vec![], auto: None, ended };
        let sweeps = [
            sweep(Direction::Up, 100_000, SweepEnd::Bytes),
            sweep(Direction::Down, 100_000, SweepEnd::Time),
            sweep(Direction::Down, 1_000_000, SweepEnd::Time),
        ];
        assert_eq!(
            unmeasured(&sweeps),
            [
                "Up, files of 100 kB: not measured: the byte budget is too small for a store this fast; raise --max-bytes.",
                "Down, files of 1 MB: not measured: the time is too short for one measurement; raise --max-time.",
            ]
        );
    }

    #[test]
    fn one_connection_is_said_in_a_sentence() {
        let lone = SingleConnection {
            direction: Direction::Down,
            per_file: Some(Duration::from_millis(80)),
            stream: Some(25e6),
        };
        assert_eq!(
            connection(&lone).unwrap(),
            "Down, one at a time: a file costs 80 ms whatever its size (latency: round trips and the store's own work); one \
             connection carries 25.0 MB/s of a large file, several carry more."
        );
        let quick =
            SingleConnection { direction: Direction::Across, per_file: Some(Duration::from_micros(150)), stream: None };
        assert_eq!(
            connection(&quick).unwrap(),
            "Across, one at a time: a file costs 150 µs whatever its size (latency: round trips and the file system's own work)."
        );
        assert_eq!(connection(&SingleConnection { per_file: None, stream: None, ..lone }), None);
    }
}
