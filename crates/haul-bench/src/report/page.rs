//! A bench as one HTML page: plots, table, sentences, light and dark. It loads nothing from elsewhere.

use super::{
    Findings,
    plot::{Frame, Line, Scale, svg},
    sentences, table,
};
use crate::{Direction, Point, Sweep, analysis};

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --faint: #d8dee4; --soft: #59636e;
  --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --faint: #2a313a; --soft: #9198a1;
  --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #f778ba; --c5: #d29922; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.plots { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
svg { width: 100%; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .title { font-weight: 600; font-size: 13px; } svg .tick, svg .name { fill: var(--soft); }
svg .grid { stroke: var(--faint); } svg polyline { fill: none; stroke-width: 2; }
svg .ideal { stroke: var(--soft); stroke-dasharray: 2 4; stroke-width: 1.5; }
svg .dashed polyline { stroke-dasharray: 6 4; }
.c0 { stroke: var(--c0); color: var(--c0); } .c1 { stroke: var(--c1); color: var(--c1); }
.c2 { stroke: var(--c2); color: var(--c2); } .c3 { stroke: var(--c3); color: var(--c3); }
.c4 { stroke: var(--c4); color: var(--c4); } .c5 { stroke: var(--c5); color: var(--c5); }
svg circle { fill: currentColor; stroke: none; } svg polygon { fill: none; stroke-width: 2; }
.legend span { display: inline-block; margin-right: 1.5rem; } .legend i { font-style: normal; font-weight: 700; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--faint); padding: .2rem .9rem; text-align: right; white-space: nowrap; }
th:nth-child(2), td:nth-child(2) { text-align: left; } footer { color: var(--soft); margin-top: 2rem; }
";

/// Colours in the style sheet.
const COLOURS: usize = 6;
/// Bytes to which the plot of times is scaled, since not every measurement moved the same number.
const SHOWN_BYTES: f64 = 1e9;

/// The page.
pub fn html(found: &Findings) -> String {
    let remote = escape(&match &found.across {
        Some(across) => format!("{} {}", found.remote, across.to),
        None => found.remote.clone(),
    });
    let verified = match &found.across {
        Some(_) => String::new(),
        None => format!(", {} came back and compared", sentences::amount(found.measured.verified)),
    };
    let sent = if found.across.is_some() { "made and copied" } else { "sent" };
    let sentences: String = sentences::sentences(found).iter().map(|s| format!("<li>{}</li>\n", escape(s))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>haul bench {remote}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>haul bench {remote}</h1>\n\
         <ul>\n{sentences}</ul>\n<p class=\"legend\">{}</p>\n<div class=\"plots\">\n{}</div>\n\
         <h2>Measurements</h2>\n<div class=\"scroll\"><table>\n{}</table></div>\n\
         <footer>{}; {} {sent}{verified}; {:.0} s; {} processors; haul {}. \
         The first and the last file of each lane aren't counted: one opens a connection, after the other it idles.</footer>\n</body>\n</html>\n",
        legend(&found.measured.sweeps),
        plots(&found.measured.sweeps),
        rows(&found.measured.sweeps),
        escape(&found.at),
        sentences::amount(found.measured.sent),
        found.measured.elapsed.as_secs_f64(),
        found.cores,
        env!("CARGO_PKG_VERSION"),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn name(sweep: &Sweep) -> String {
    let parts = if sweep.in_parts { " in parts" } else { "" };
    format!("{}, {}{parts}", sentences::direction(sweep.direction), sentences::size(sweep.size))
}

/// A colour for each size; the way back is dashed.
fn colour(sweep: &Sweep, sweeps: &[Sweep]) -> usize {
    let mut sizes: Vec<u64> = sweeps.iter().map(|s| s.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.binary_search(&sweep.size).unwrap_or(0) % COLOURS
}

fn lines(sweeps: &[Sweep], value: impl Fn(&Sweep, &Point) -> Option<f64>) -> Vec<Line> {
    let line = |sweep: &Sweep| Line {
        name: name(sweep),
        colour: colour(sweep, sweeps),
        dashed: sweep.direction == Direction::Down,
        points: sweep.points.iter().filter_map(|p| Some((p.at_once? as f64, value(sweep, p)?))).collect(),
        auto: sweep.auto.as_ref().and_then(|p| value(sweep, p)),
    };
    sweeps.iter().map(line).collect()
}

fn plots(sweeps: &[Sweep]) -> String {
    let time = Frame { title: "Time for 1 GB", values: "seconds", scale: Scale::Log10, ideal: None };
    let speed_up = Frame {
        title: "Speed-up (dotted: ideal)",
        values: "times as fast as one",
        scale: Scale::Log2,
        ideal: Some(|at_once| at_once),
    };
    let efficiency =
        Frame { title: "Efficiency", values: "speed-up for each at once", scale: Scale::Percent, ideal: Some(|_| 1.0) };
    [
        svg(&time, &lines(sweeps, |_, point| Some(SHOWN_BYTES / point.bytes_per_second()))),
        svg(&speed_up, &lines(sweeps, analysis::speed_up)),
        svg(&efficiency, &lines(sweeps, analysis::efficiency)),
    ]
    .concat()
}

fn legend(sweeps: &[Sweep]) -> String {
    let entry = |sweep: &Sweep| {
        let mark = if sweep.direction == Direction::Down { "╌╌" } else { "━━" };
        format!("<span><i class=\"c{}\">{mark}</i> {}</span>", colour(sweep, sweeps), name(sweep))
    };
    sweeps.iter().map(entry).collect()
}

fn rows(sweeps: &[Sweep]) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = row(&table::HEAD.map(str::to_owned), "th");
    head + &table::rows(sweeps).iter().map(|cells| row(cells, "td")).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BenchResult;

    fn found(remote: &str) -> Findings {
        let mut sweep = table::tests::hpc();
        // No faster than eight at once, so that eight is the knee.
        let flat = Point { at_once: Some(16), ..sweep.points[2].clone() };
        sweep.points.push(flat);
        let sweeps = vec![sweep];
        Findings {
            remote: remote.into(),
            across: None,
            folder: "haul-bench-x".into(),
            findings: analysis::findings(&sweeps, 2),
            lone: analysis::lone(&sweeps),
            choices: analysis::choices(&sweeps),
            measured: BenchResult { sweeps, ..BenchResult::default() },
            cores: 2,
            at: "2026-01-02 03:04 UTC".into(),
        }
    }

    #[test]
    fn the_page_is_self_contained_and_complete() {
        let page = html(&found("r:b"));
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<tr>").count(), 6);
        // haul's own speed is in the plots of time and speed-up; it has no efficiency.
        assert_eq!(page.matches(">auto</text>").count(), 2);
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("--transfers 8"));
    }

    #[test]
    fn a_name_is_text_in_the_page() {
        let page = html(&found("r:<b>&\"x"));
        assert!(page.contains("r:&lt;b&gt;&amp;&quot;x") && !page.contains("<b>"));
    }

    #[test]
    fn the_same_is_there_as_json() {
        let value = super::super::json::value(&found("r:b"));
        assert_eq!(value["sweeps"][0]["knee"], 8);
        assert_eq!(value["sweeps"][0]["points"][1]["at_once"], 2);
        assert_eq!(value["settings"][0]["transfers"], 8);
        assert_eq!(value["sweeps"][0]["auto"]["at_once"], serde_json::Value::Null);
    }
}
