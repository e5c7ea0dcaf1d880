//! The measurements as rows: for the terminal, and as cells for the page. Pure.

use super::sentences;
use crate::{Point, Sweep, analysis};

/// The columns.
pub const HEAD: [&str; 8] =
    ["files x size", "direction", "at once", "seconds", "MB/s", "files/s", "speed-up", "efficiency"];

/// One row for each measurement, the engine's own choice last in each sweep.
pub fn rows(sweeps: &[Sweep]) -> Vec<[String; 8]> {
    let all = |sweep: &Sweep| -> Vec<[String; 8]> {
        sweep.points.iter().chain(&sweep.auto).map(|point| row(sweep, point)).collect()
    };
    sweeps.iter().flat_map(all).collect()
}

fn row(sweep: &Sweep, point: &Point) -> [String; 8] {
    let number = |value: f64| format!("{value:.*}", if value < 10.0 { 2 } else { 1 });
    [
        format!("{} x {}", point.files, sentences::size(point.size)),
        sentences::direction(point.direction).into(),
        point.at_once.map_or("auto".into(), |n| if point.in_parts { sentences::parts(n) } else { n.to_string() }),
        format!("{:.2}", point.elapsed.as_secs_f64()),
        number(point.bytes_per_second() / 1e6),
        number(point.files_per_second()),
        analysis::speed_up(sweep, point).map_or("-".into(), |x| format!("{x:.2}")),
        analysis::efficiency(sweep, point).map_or("-".into(), |x| format!("{:.0} %", x * 100.0)),
    ]
}

/// The table: words to the left, numbers to the right, an empty line between two sweeps.
pub fn text(sweeps: &[Sweep]) -> String {
    let blocks: Vec<Vec<[String; 8]>> = sweeps.iter().map(|sweep| rows(std::slice::from_ref(sweep))).collect();
    let head = HEAD.map(str::to_owned);
    let all = || blocks.iter().flatten().chain([&head]);
    let widths: [usize; 8] = std::array::from_fn(|at| all().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 8]| {
        let cell = |(at, text): (usize, &String)| match at {
            1 => format!("{text:<width$}", width = widths[at]),
            _ => format!("{text:>width$}", width = widths[at]),
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ") + "\n"
    };
    let blocks: Vec<String> = blocks.iter().map(|rows| rows.iter().map(line).collect()).collect();
    line(&head) + &blocks.join("\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Direction, SweepEnd};
    use std::time::Duration;

    /// 1,000 × 1 MB up: the figures of the HPC text.
    pub fn hpc() -> Sweep {
        let point = |at_once: Option<usize>, seconds: u64| Point {
            found: None,
            direction: Direction::Up,
            size: 1_000_000,
            in_parts: false,
            at_once,
            files: 1000,
            elapsed: Duration::from_secs(seconds),
            cores: 0.1,
            requests: 1000,
            throttled: 0,
        };
        Sweep {
            direction: Direction::Up,
            size: 1_000_000,
            in_parts: false,
            points: vec![point(Some(1), 1293), point(Some(2), 664), point(Some(8), 199)],
            auto: Some(point(None, 200)),
            ended: SweepEnd::Flat,
        }
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            text(&[hpc()]),
            "files x size  direction  at once  seconds  MB/s  files/s  speed-up  efficiency\n\
             1000 x 1 MB  up               1  1293.00  0.77     0.77      1.00       100 %\n\
             1000 x 1 MB  up               2   664.00  1.51     1.51      1.95        97 %\n\
             1000 x 1 MB  up               8   199.00  5.03     5.03      6.50        81 %\n\
             1000 x 1 MB  up            auto   200.00  5.00     5.00      6.46           -\n"
                .replace("\n1000", "\n 1000")
        );
    }
}
