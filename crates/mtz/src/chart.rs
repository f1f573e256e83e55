//! Line charts, and bars where there is no line to draw, as SVG: small, self-contained, readable in light and dark, with every number in a tooltip.

use std::fmt::Write;

/// A curve.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// Where it goes, by x.
    pub points: Vec<Point>,
    /// A broken line, in the colour of the series behind it: the same thing seen in another way.
    pub dashed: bool,
}

/// A point of a curve, with the lowest and highest of the values it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical axis.
    pub y: f64,
    /// From where to where values spread.
    pub spread: Option<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Above the chart.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// Powers of ten on the vertical axis.
    pub logarithmic: bool,
    /// A horizontal line at a value that matters, and what it means.
    pub mark: Option<(f64, String)>,
    /// What stands at 0, 1, 2 and so on along the horizontal axis, for who points at it; empty if it is a plain number.
    pub places: Vec<String>,
    /// The places are things of their own, not steps of one way: they are named below the axis, and every series has a bar at each.
    pub apart: bool,
    /// The curves.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 640.0;
/// Without the lines of the legend below the first.
const HEIGHT: f64 = 380.0;
const LEGEND_LINE: f64 = 18.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 84.0;
/// Distinct for colour-blind eyes too (Okabe and Ito), and with markers of their own.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Chart {
    /// The chart as an SVG document. Two charts of the same data are the same text.
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let values = || points().flat_map(|p| [p.y, p.spread.map_or(p.y, |s| s.0), p.spread.map_or(p.y, |s| s.1)]);
        let marked = self.mark.iter().map(|m| m.0);
        let x = if self.apart { Axis::of_places(self.places.len()) } else { Axis::new(points().map(|p| p.x), false) };
        let y = Axis::new(values().chain(marked), self.logarithmic);
        let across = |v: f64| LEFT + x.at(v) * (WIDTH - LEFT - RIGHT);
        let up = |v: f64| HEIGHT - BOTTOM - y.at(v) * (HEIGHT - TOP - BOTTOM);
        let legend = self.legend();
        let height = HEIGHT + LEGEND_LINE * legend.last().map_or(0.0, |(_, line)| *line);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <style>.mtz-ink{{fill:#222}}.mtz-grid{{stroke:#8886}}.mtz-back{{fill:#fff}}\
             @media (prefers-color-scheme:dark){{.mtz-ink{{fill:#ddd}}.mtz-back{{fill:#181818}}}}</style>\n\
             <title>{title}</title><rect class=\"mtz-back\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"mtz-ink\" x=\"{LEFT}\" y=\"20\" font-size=\"14\" font-weight=\"600\">{title}</text>\n",
            title = escape(&self.title),
        );
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y.ticks() {
            let (at, label) = (up(tick), short(tick));
            let _ = writeln!(
                svg,
                "<line class=\"mtz-grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        let named = || self.places.iter().enumerate().map(|(i, name)| (i as f64, escape(name)));
        let plain = || x.ticks().into_iter().map(|tick| (tick, short(tick)));
        let ticks: Vec<(f64, String)> = if self.apart { named().collect() } else { plain().collect() };
        for (tick, label) in ticks {
            let at = across(tick);
            let _ = writeln!(
                svg,
                "<line class=\"mtz-grid\" x1=\"{at:.1}\" y1=\"{floor}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"mtz-ink\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                floor + 4.0,
                floor + 17.0
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"mtz-ink\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            floor + 36.0,
            escape(&self.x_label),
            (TOP + floor) / 2.0,
            escape(&self.y_label)
        );
        if let Some((value, meaning)) = &self.mark {
            // Below the line, unless the numbers of the axis stand there.
            let below = up(*value) + 14.0;
            let _ = writeln!(
                svg,
                "<line stroke=\"#888\" stroke-dasharray=\"5 4\" x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{right}\" y2=\"{0:.1}\"/>\
                 <text class=\"mtz-ink\" x=\"{3:.1}\" y=\"{1:.1}\" opacity=\"0.7\">{2}</text>",
                up(*value),
                if below > floor { below - 19.0 } else { below },
                escape(meaning),
                LEFT + 6.0
            );
        }
        // Bars of one place stand side by side, with a gap to the next place.
        let bar = 0.8 / self.series.len().max(1) as f64;
        for (number, ((series, colour), (left, line))) in self.series.iter().zip(self.colours()).zip(legend).enumerate()
        {
            let aside = if self.apart { bar * (number as f64 + 0.5) - 0.4 } else { 0.0 };
            let dashes = if series.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            if !self.apart {
                let path: Vec<String> =
                    series.points.iter().map(|p| format!("{:.1},{:.1}", across(p.x), up(p.y))).collect();
                let _ = writeln!(
                    svg,
                    "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes} points=\"{}\"/>",
                    path.join(" ")
                );
            }
            // A wide border that cannot be seen can be pointed at.
            let _ = writeln!(svg, "<g fill=\"{colour}\" stroke=\"#0000\" stroke-width=\"12\">");
            for p in &series.points {
                let (cx, cy) = (across(p.x + aside), up(p.y));
                let place = (p.x.fract() == 0.0).then(|| self.places.get(p.x.max(0.0) as usize)).flatten();
                let place = place.cloned().unwrap_or_else(|| short(p.x));
                let mut text = format!("{}: {} at {place}", series.name, short(p.y));
                if let Some((low, high)) = p.spread {
                    let _ = write!(text, " ({} to {})", short(low), short(high));
                    let (from, to) = (up(low), up(high));
                    let _ = write!(
                        svg,
                        "<line stroke=\"{colour}\" stroke-width=\"1\" opacity=\"0.5\" x1=\"{cx:.1}\" x2=\"{cx:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>"
                    );
                }
                let text = escape(&text);
                let _ = if self.apart {
                    let (wide, ground) = (across(bar) - across(0.0) - 1.0, up(y.low.max(0.0)));
                    writeln!(
                        svg,
                        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"><title>{text}</title></rect>",
                        cx - wide / 2.0,
                        cy.min(ground),
                        (cy - ground).abs().max(1.0)
                    )
                } else {
                    writeln!(svg, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"><title>{text}</title></circle>")
                };
            }
            svg.push_str("</g>\n");
            let bottom = HEIGHT - 14.0 + LEGEND_LINE * line;
            let _ = writeln!(
                svg,
                "<line stroke=\"{colour}\" stroke-width=\"3\"{dashes} x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"mtz-ink\" x=\"{:.1}\" y=\"{bottom:.1}\">{}</text>",
                left + 18.0,
                bottom - 4.0,
                bottom - 4.0,
                left + 24.0,
                escape(&series.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

impl Chart {
    fn colours(&self) -> Vec<&'static str> {
        let solid = |i: usize| self.series.iter().take(i).filter(|s| !s.dashed).count();
        (0..self.series.len()).map(|i| COLOURS[solid(i) % COLOURS.len()]).collect()
    }

    /// Where the name of each series stands: how far to the right, and in which line.
    fn legend(&self) -> Vec<(f64, f64)> {
        let (mut left, mut line) = (LEFT, 0.0);
        let mut places = Vec::new();
        for series in &self.series {
            let width = 44.0 + 6.6 * series.name.chars().count() as f64;
            if left > LEFT && left + width > WIDTH {
                (left, line) = (LEFT, line + 1.0);
            }
            places.push((left, line));
            left += width;
        }
        places
    }
}

/// From values to 0..1.
struct Axis {
    low: f64,
    high: f64,
    /// From one tick to the next.
    step: f64,
    logarithmic: bool,
}

impl Axis {
    /// Half a step beside the first place and the last.
    fn of_places(count: usize) -> Self {
        Self { low: -0.5, high: count.max(1) as f64 - 0.5, step: 1.0, logarithmic: false }
    }

    fn new(values: impl Iterator<Item = f64>, logarithmic: bool) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && (!logarithmic || *v > 0.0)).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if values.is_empty() {
            return Self { low: 0.0, high: 1.0, step: 0.2, logarithmic: false };
        }
        if logarithmic {
            return Self { low: low * 0.9, high: high * 1.1, step: 1.0, logarithmic };
        }
        // There is no layer two and a half.
        let whole = values.iter().all(|v| v.fract() == 0.0);
        let step = if whole { Self::step(low, high).max(1.0) } else { Self::step(low, high) };
        Self { low: (low / step).floor() * step, high: (high / step).ceil() * step, step, logarithmic }
    }

    /// 1, 2 or 5 times a power of ten, some five to ten times between the ends.
    fn step(low: f64, high: f64) -> f64 {
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let power = 10f64.powf((span / 5.0).log10().floor());
        let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|t| span / (t * power) <= 7.0).unwrap_or(10.0);
        times * power
    }

    fn at(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.logarithmic { v.max(self.low).ln() } else { v };
        let span = scale(self.high) - scale(self.low);
        if span > 0.0 { (scale(value) - scale(self.low)) / span } else { 0.5 }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let all = (first..=last).flat_map(|p| [1.0, 2.0, 5.0].map(|t| t * 10f64.powi(p)));
            return all.filter(|t| *t >= self.low && *t <= self.high).collect();
        }
        let count = ((self.high - self.low) / self.step).round() as usize;
        (0..=count.min(20)).map(|i| self.low + self.step * i as f64).collect()
    }
}

/// A number without needless digits.
fn short(x: f64) -> String {
    let digits = if x.abs() >= 100.0 {
        0
    } else if x.abs() >= 10.0 {
        1
    } else {
        3
    };
    let text = format!("{x:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Text as it may stand in XML and HTML.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Control characters are not allowed in XML.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_axes_are_round_and_points_lie_inside() {
        let point = |x: f64, y: f64| Point { x, y, spread: Some((y - 0.1, y + 0.1)) };
        let series = Series { name: "a < b".into(), points: vec![point(0.0, 1.52), point(300.0, 2.43)], dashed: true };
        let svg = Chart { title: "t".into(), series: vec![series], ..Chart::default() }.to_svg();
        assert!(svg.contains("a &lt; b: 2.43 at 300 (2.33 to 2.53)"), "{svg}");
        assert!(svg.contains(">1.4<") && svg.contains(">2.6<"), "{svg}");
        let axis = Axis::new([1.5, 60.0].into_iter(), true);
        assert_eq!(axis.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0]);
        let axis = Axis::new([-0.1, 6.4].into_iter(), false);
        assert_eq!(axis.ticks(), [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn places_apart_have_names_and_bars_from_nothing() {
        let series = |name: &str, values: [f64; 2]| Series {
            name: name.into(),
            points: values.into_iter().enumerate().map(|(i, y)| Point { x: i as f64, y, spread: None }).collect(),
            dashed: false,
        };
        let series = vec![series("a", [1.0, -0.5]), series("b", [0.25, 2.0])];
        let places = vec!["cats".into(), "dogs & co".into()];
        let svg = Chart { series, places, apart: true, ..Chart::default() }.to_svg();
        assert!(svg.contains(">cats<") && svg.contains(">dogs &amp; co<") && !svg.contains("<polyline"), "{svg}");
        let bars: Vec<Vec<f64>> = svg
            .lines()
            .filter(|l| l.starts_with("<rect x="))
            .map(|l| l.split('"').skip(1).step_by(2).take(4).map(|n| n.parse().unwrap()).collect())
            .collect();
        // x, y, width, height: what is above nothing ends where what is below begins, and none cover each other.
        let [a, b, c, d] = &bars[..] else { panic!("{svg}") };
        assert!((a[1] + a[3] - b[1]).abs() < 0.11 && (c[1] + c[3] - d[1] - d[3]).abs() < 0.11, "{bars:?}");
        assert!(a[0] + a[2] <= c[0] && c[0] + c[2] < b[0] && b[0] + b[2] <= d[0], "{bars:?}");
    }

    #[test]
    fn nothing_and_one_value_are_charts_too() {
        assert!(Chart::default().to_svg().ends_with("</svg>\n"));
        let one = Series { name: "x".into(), points: vec![Point { x: 3.0, y: 3.0, spread: None }], dashed: false };
        assert!(!Chart { series: vec![one], ..Chart::default() }.to_svg().contains("NaN"));
    }
}
