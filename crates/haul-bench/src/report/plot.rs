//! A line plot as inline SVG: concurrency to the right in powers of two, colours from the page's style sheet. Pure.

use std::fmt::Write as _;

/// Width and height of the whole, and the margins around the axes, in SVG units.
const SIZE: (f64, f64) = (560.0, 340.0);
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
/// Room right of the axis for what haul reaches when it is left alone, and half the size of its marks.
const AUTO: f64 = 44.0;
const MARK: f64 = 4.5;

/// One line.
pub struct Line {
    /// Its name in the legend and in tooltips.
    pub name: String,
    /// Which of the style sheet's colours.
    pub colour: usize,
    /// Dashed instead of solid.
    pub dashed: bool,
    /// Concurrency and value, in order.
    pub points: Vec<(f64, f64)>,
    /// Speed that haul reached by itself, without a fixed concurrency: a mark beside the axis.
    pub auto: Option<f64>,
}

/// How values are laid out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Powers of ten.
    Log10,
    /// Powers of two.
    Log2,
    /// From 0 to at least 1, in percent.
    Percent,
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Scale::Log10 => value.max(1e-9).log10(),
            Scale::Log2 => value.max(1e-9).log2(),
            Scale::Percent => value,
        }
    }

    /// Where ticks stand between two values, and what they say.
    fn ticks(self, low: f64, high: f64) -> Vec<(f64, String)> {
        match self {
            Scale::Log10 => (low.floor() as i32..=high.ceil() as i32)
                .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
                .map(|value| (value.log10(), number(value)))
                .filter(|(at, _)| (low..=high).contains(at))
                .collect(),
            Scale::Log2 => (low.floor() as i32..=high.ceil() as i32)
                .map(|power| (f64::from(power), number(2f64.powi(power))))
                .filter(|(at, _)| (low..=high).contains(at))
                .collect(),
            Scale::Percent => {
                let step = if high > 2.0 { 1.0 } else { 0.25 };
                let count = (high / step).floor() as u32;
                (0..=count).map(|n| f64::from(n) * step).map(|at| (at, format!("{:.0} %", at * 100.0))).collect()
            }
        }
    }

    /// The range that shows all of these values.
    fn range(self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.map(|value| self.of(value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        match self {
            Scale::Percent => (0.0, high.max(1.0) * 1.05),
            _ if !low.is_finite() => (0.0, 1.0),
            Scale::Log10 => (low - 0.1, high + 0.1),
            Scale::Log2 => (low.floor(), (high + 0.01).ceil()),
        }
    }
}

/// A number without needless zeros.
fn number(value: f64) -> String {
    let text = if value >= 1.0 { format!("{value:.0}") } else { format!("{value:.4}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Labels around the lines.
pub struct Frame<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Name of the values.
    pub values: &'a str,
    /// How they are laid out.
    pub scale: Scale,
    /// A line to compare with: its value at a concurrency.
    pub ideal: Option<fn(f64) -> f64>,
}

/// The plot; empty when there is nothing to draw.
pub fn svg(frame: &Frame<'_>, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    if all().next().is_none() {
        return String::new();
    }
    let most = all().map(|point| point.0).fold(1.0, f64::max);
    let across = (0.0, most.log2().max(1.0));
    let ideal: Vec<(f64, f64)> = match frame.ideal {
        Some(ideal) => vec![(1.0, ideal(1.0)), (most, ideal(most))],
        None => Vec::new(),
    };
    let autos = || lines.iter().filter_map(|line| line.auto);
    let up = frame.scale.range(all().chain(&ideal).map(|point| point.1).chain(autos()));
    let end = SIZE.0 - RIGHT - if autos().next().is_some() { AUTO } else { 0.0 };
    let x = |value: f64| LEFT + (value.log2() - across.0) / (across.1 - across.0) * (end - LEFT);
    let y_of = |scaled: f64| SIZE.1 - BOTTOM - (scaled - up.0) / (up.1 - up.0) * (SIZE.1 - TOP - BOTTOM);
    let y = |value: f64| y_of(frame.scale.of(value));

    let mut out = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text class=\"title\" x=\"{LEFT}\" y=\"18\">{}</text>\n",
        SIZE.0, SIZE.1, frame.title, frame.title
    );
    for (at, text) in frame.scale.ticks(up.0, up.1) {
        let (y, right) = (y_of(at), SIZE.0 - RIGHT);
        let _ = writeln!(out, "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>");
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (at, text) in Scale::Log2.ticks(across.0, across.1) {
        let (x, bottom) = (x(at.exp2()), SIZE.1 - BOTTOM);
        let _ = writeln!(out, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>");
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            bottom + 16.0
        );
    }
    let beside = SIZE.0 - RIGHT - AUTO / 2.0;
    if autos().next().is_some() {
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{beside:.1}\" y=\"{}\" text-anchor=\"middle\">auto</text>",
            SIZE.1 - BOTTOM + 16.0
        );
    }
    let middle = (LEFT + end) / 2.0;
    let _ = writeln!(
        out,
        "<text class=\"name\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">at once</text>",
        SIZE.1 - 8.0
    );
    let half = (TOP + SIZE.1 - BOTTOM) / 2.0;
    let _ = writeln!(
        out,
        "<text class=\"name\" transform=\"translate(13 {half}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        frame.values
    );
    let path = |points: &[(f64, f64)]| {
        points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect::<Vec<_>>().join(" ")
    };
    if !ideal.is_empty() {
        let _ = writeln!(out, "<polyline class=\"ideal\" points=\"{}\"/>", path(&ideal));
    }
    for line in lines {
        let dashed = if line.dashed { " dashed" } else { "" };
        let _ = writeln!(out, "<g class=\"c{}{dashed}\"><polyline points=\"{}\"/>", line.colour, path(&line.points));
        let text = |b: f64| match frame.scale {
            Scale::Percent => format!("{:.0} %", b * 100.0),
            _ => format!("{b:.2}"),
        };
        if let Some(b) = line.auto {
            let (y, value) = (y(b), text(b));
            let _ = writeln!(
                out,
                "<polygon points=\"{:.1},{y:.1} {beside:.1},{:.1} {:.1},{y:.1} {beside:.1},{:.1}\"><title>{}: auto: {value}</title></polygon>",
                beside - MARK,
                y - MARK,
                beside + MARK,
                y + MARK,
                line.name
            );
        }
        for (a, b) in &line.points {
            let value = text(*b);
            let (x, y) = (x(*a), y(*b));
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}: {a} at once: {value}</title></circle>",
                line.name
            );
        }
        out.push_str("</g>\n");
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { name: "up, 1 MB".into(), colour: 1, dashed: true, points: points.to_vec(), auto: None }
    }

    const FRAME: Frame<'_> = Frame { title: "T", values: "V", scale: Scale::Log2, ideal: Some(|n| n) };

    #[test]
    fn every_point_is_inside_the_axes() {
        for scale in [Scale::Log10, Scale::Log2, Scale::Percent] {
            let svg = svg(&Frame { scale, ..FRAME }, &[line(&[(1.0, 0.3), (2.0, 1.9), (64.0, 40.0)])]);
            let values = |name: &str| -> Vec<f64> {
                svg.split(&format!("{name}=\""))
                    .skip(1)
                    .map(|s| s.split('"').next().unwrap().parse().unwrap())
                    .collect()
            };
            let (xs, ys) = (values("cx"), values("cy"));
            assert_eq!(xs.len(), 3);
            assert!(xs.iter().all(|x| (LEFT..=SIZE.0 - RIGHT).contains(x)), "{xs:?}");
            assert!(ys.iter().all(|y| (TOP..=SIZE.1 - BOTTOM).contains(y)), "{ys:?}");
            assert!(svg.contains("class=\"c1 dashed\"") && svg.contains("class=\"ideal\""));
        }
    }

    #[test]
    fn what_haul_reaches_alone_is_a_mark_beside_the_axis() {
        let points = [(1.0, 1.0), (8.0, 6.0)];
        let with = Line { auto: Some(12.0), ..line(&points) };
        let svg = svg(&FRAME, &[with, line(&points)]);
        assert_eq!(svg.matches("<polygon").count(), 1);
        assert!(svg.contains(">auto</text>") && svg.contains("up, 1 MB: auto: 12.00"), "{svg}");
        let mark = svg.split("<polygon points=\"").nth(1).unwrap().split('"').next().unwrap();
        let inside = |at: &str| {
            let (x, y) = at.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            (SIZE.0 - RIGHT - AUTO..=SIZE.0 - RIGHT).contains(&x) && (TOP - MARK..=SIZE.1 - BOTTOM + MARK).contains(&y)
        };
        assert!(mark.split(' ').all(inside), "{mark}");
        // Every line ends left of it.
        let xs = svg.split("cx=\"").skip(1).map(|s| s.split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(xs.into_iter().all(|x| x <= SIZE.0 - RIGHT - AUTO));
        assert!(!super::svg(&FRAME, &[line(&points)]).contains("auto"));
    }

    #[test]
    fn nothing_measured_draws_nothing() {
        assert_eq!(svg(&FRAME, &[line(&[])]), "");
        // One point alone has no width of its own.
        assert!(!svg(&FRAME, &[line(&[(1.0, 1.0)])]).contains("NaN"));
    }

    #[test]
    fn ticks_are_round() {
        let text =
            |scale: Scale, low, high| scale.ticks(low, high).into_iter().map(|t| t.1).collect::<Vec<_>>().join(" ");
        assert_eq!(text(Scale::Log10, 0.0, 2.0), "1 2 5 10 20 50 100");
        assert_eq!(text(Scale::Log10, -1.0, 0.0), "0.1 0.2 0.5 1");
        assert_eq!(text(Scale::Log2, 0.0, 4.0), "1 2 4 8 16");
        assert_eq!(text(Scale::Percent, 0.0, 1.05), "0 % 25 % 50 % 75 % 100 %");
    }
}
