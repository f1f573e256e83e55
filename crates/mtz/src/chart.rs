//! Line charts, and bars where there is no line to draw, as SVG: small, self-contained, readable in light and dark,
//! with every number in a tooltip.
//!
//! A chart has a width in pixels and letters of one size, so that it can be drawn for a phone, too: shrunk, a chart for
//! a desk could not be read there.

use std::fmt::Write;

/// A curve.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// Where it goes, by x. A point that is not finite interrupts the line.
    pub points: Vec<Point>,
    /// A broken line, in the colour of the next solid series: the same thing seen in another way.
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

/// Numbers beyond this have no place in a chart: differences between them would overflow.
const HUGE: f64 = 1e15;

impl Point {
    fn is_drawn(&self) -> bool {
        self.x.abs() < HUGE && self.y.abs() < HUGE
    }

    fn ends(&self) -> [f64; 2] {
        self.spread.map_or([self.y; 2], |(low, high)| [low, high])
    }
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
    /// The vertical axis begins at 0.
    pub from_zero: bool,
    /// A horizontal line at a value that matters, and what it means.
    pub mark: Option<(f64, String)>,
    /// A vertical line at a place that matters, and what it means.
    pub place_mark: Option<(f64, String)>,
    /// What stands at 0, 1, 2 and so on along the horizontal axis; empty if that is a plain number.
    pub places: Vec<String>,
    /// The places are things of their own, not steps of one way: every series has a bar at each.
    pub categories: bool,
    /// The last value of every solid curve is written beside its end.
    pub final_values: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// The usual width of a chart.
pub const WIDTH: f64 = 640.0;
/// From the top to the horizontal axis, without a title.
const PLOT: f64 = 260.0;
const LEGEND_LINE: f64 = 18.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// What a letter takes, in the usual font of 12 pixels.
const LETTER: f64 = 6.6;
/// Distinct for colour-blind eyes too (Okabe and Ito), and with markers of their own.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Chart {
    /// The chart as an SVG document. Two charts of the same data are the same text.
    pub fn to_svg(&self) -> String {
        self.to_svg_of_width(WIDTH)
    }

    /// The same in so many pixels of width, with letters of the same size: a phone has 360.
    pub fn to_svg_of_width(&self, width: f64) -> String {
        let layout = Layout::new(self, width.max(200.0));
        let mut svg = layout.opening();
        layout.vertical_axis(&mut svg);
        layout.horizontal_axis(&mut svg);
        layout.labels(&mut svg);
        layout.marks(&mut svg);
        let series = self.series.iter().zip(self.colours()).zip(layout.legend());
        for (number, ((series, colour), entry)) in series.enumerate() {
            layout.curve(&mut svg, number, series, colour);
            layout.legend_entry(&mut svg, series, colour, &entry);
        }
        layout.final_values(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn colours(&self) -> Vec<&'static str> {
        let mut solid = 0;
        let colour = |series: &Series| {
            let colour = COLOURS.get(solid % COLOURS.len()).copied().unwrap_or("#0072b2");
            solid += usize::from(!series.dashed);
            colour
        };
        self.series.iter().map(colour).collect()
    }

    /// The curves whose ends are worth a number, with their colours: solid ones, if there are any.
    fn ends(&self) -> Vec<(&'static str, Point)> {
        let end = |s: &Series| s.points.iter().rev().find(|p| p.is_drawn()).copied();
        let solid = self.series.iter().any(|s| !s.dashed && end(s).is_some());
        let all = self.series.iter().zip(self.colours()).filter(|(s, _)| self.final_values && !(solid && s.dashed));
        all.filter_map(|(s, colour)| Some((colour, end(s)?))).collect()
    }
}

/// Where everything stands.
struct Layout<'c> {
    chart: &'c Chart,
    width: f64,
    left: f64,
    right: f64,
    top: f64,
    /// The horizontal axis.
    floor: f64,
    /// What the names below the axis take.
    below: f64,
    x: Axis,
    y: Axis,
}

/// A name in the legend: where it stands, and as much of it as there is room for.
struct LegendEntry {
    left: f64,
    line: f64,
    name: String,
}

impl<'c> Layout<'c> {
    fn new(chart: &'c Chart, width: f64) -> Self {
        let points = || chart.series.iter().flat_map(|s| &s.points).filter(|p| p.is_drawn());
        let across = points().map(|p| p.x).chain(chart.place_mark.iter().map(|m| m.0));
        let x = match (chart.places.len(), chart.categories) {
            (places, true) => Axis::of_places(places),
            (0, false) if chart.final_values => Axis::of_data(across),
            (0, false) => Axis::new(across, false),
            (places, false) => Axis::between(places),
        };
        let zero = Some(0.0).filter(|_| chart.from_zero);
        let up = points().flat_map(|p| [p.y].into_iter().chain(p.ends())).chain(chart.mark.iter().map(|m| m.0));
        let y = Axis::new(up.chain(zero), chart.logarithmic);
        let top = if chart.title.is_empty() { 12.0 } else { 36.0 };
        let digits = chart.ends().iter().map(|(_, end)| y.value_text(end.y).len()).max().unwrap_or(0);
        let right = if digits > 0 { 26.0 + LETTER * digits as f64 } else { RIGHT };
        let ticks = y.ticks().into_iter().map(|tick| y.tick_text(tick).len()).max().unwrap_or(0);
        let left = (30.0 + LETTER * ticks as f64).max(if width < WIDTH { 0.0 } else { LEFT });
        let mut layout = Self { chart, width, left, right: width - right, top, floor: top + PLOT, below: 19.0, x, y };
        if layout.are_names_turned() {
            let longest = layout.names().iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
            // At 45 degrees a name goes as far down as to the left.
            layout.below = 14.0 + 0.71 * LETTER * longest as f64;
            let first = layout.names().first().map_or(0, |(_, name)| name.chars().count());
            layout.left = layout.left.max(0.71 * LETTER * first as f64);
        }
        layout
    }

    fn across(&self, x: f64) -> f64 {
        self.left + self.x.at(x) * (self.right - self.left)
    }

    fn up(&self, y: f64) -> f64 {
        self.floor - self.y.at(y) * (self.floor - self.top)
    }

    /// Pixels from one place to the next.
    fn place_width(&self) -> f64 {
        self.across(1.0) - self.across(0.0)
    }

    /// Whether names stand side by side or, for want of room, at an angle.
    fn are_names_turned(&self) -> bool {
        if self.chart.places.len() < 2 {
            return false;
        }
        let longest = self.chart.places.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        LETTER * longest as f64 + 8.0 > self.place_width()
    }

    /// What stands below the horizontal axis: where, and what. Of too many names only some are there, the last among
    /// them.
    fn names(&self) -> Vec<(f64, String)> {
        /// Letters of a name that stands at an angle.
        const MOST: usize = 16;
        /// Pixels that a line of text takes.
        const LINE: f64 = 15.0;
        if self.chart.places.is_empty() {
            let ticks = self.x.ticks().into_iter().map(|tick| (tick, short(tick))).collect::<Vec<_>>();
            let room = ticks.iter().map(|(_, text)| LETTER * text.len() as f64 + 10.0).sum::<f64>();
            let every = (room / (self.right - self.left)).ceil().max(1.0) as usize;
            return ticks.into_iter().step_by(every).collect();
        }
        let every = (LINE / self.place_width().max(0.1)).ceil().max(1.0) as usize;
        let last = self.chart.places.len().saturating_sub(1);
        let named = self.chart.places.iter().enumerate().rev().step_by(every.clamp(1, last.max(1)));
        let most = if self.are_names_turned() { MOST } else { usize::MAX };
        let mut names: Vec<_> = named.map(|(i, name)| (i as f64, ending(name, most))).collect();
        names.reverse();
        names
    }

    fn opening(&self) -> String {
        let Self { chart, width, left, .. } = self;
        let lines = self.legend().last().map_or(0.0, |entry| entry.line);
        let height = self.floor + self.below + 39.0 + LEGEND_LINE * (lines + 1.0);
        let label = if chart.title.is_empty() {
            format!("{} by {}", chart.y_label, chart.x_label)
        } else {
            chart.title.clone()
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" \
             role=\"img\" \
             aria-label=\"{}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <style>.mtz-ink{{fill:#222}}.mtz-grid{{stroke:#8886}}.mtz-back{{fill:#fff}}\
             @media (prefers-color-scheme:dark){{.mtz-ink{{fill:#ddd}}.mtz-back{{fill:#181818}}}}</style>\n\
             <rect class=\"mtz-back\" width=\"{width}\" height=\"{height:.0}\"/>\n",
            escape(&label)
        );
        if !chart.title.is_empty() {
            let _ = writeln!(
                svg,
                "<text class=\"mtz-ink\" x=\"{left}\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}</text>",
                escape(&chart.title)
            );
        }
        svg
    }

    fn vertical_axis(&self, svg: &mut String) {
        let Self { left, right, .. } = self;
        for tick in self.y.ticks() {
            let at = self.up(tick);
            let _ = writeln!(
                svg,
                "<line class=\"mtz-grid\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                at + 4.0,
                self.y.tick_text(tick)
            );
        }
    }

    fn horizontal_axis(&self, svg: &mut String) {
        let (floor, turned) = (self.floor, self.are_names_turned());
        for (place, name) in self.names() {
            let at = self.across(place);
            let name = escape(&name);
            let text = if turned {
                format!("transform=\"translate({:.1} {:.1}) rotate(-45)\" text-anchor=\"end\"", at + 4.0, floor + 14.0)
            } else {
                format!("x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\"", floor + 19.0)
            };
            let _ = writeln!(
                svg,
                "<line class=\"mtz-grid\" x1=\"{at:.1}\" y1=\"{floor}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"mtz-ink\" {text}>{name}</text>",
                floor + 4.0
            );
        }
    }

    fn labels(&self, svg: &mut String) {
        let Self { chart, left, right, top, floor, .. } = self;
        let _ = writeln!(
            svg,
            "<text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"mtz-ink\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (left + right) / 2.0,
            floor + self.below + 19.0,
            escape(&chart.x_label),
            (top + floor) / 2.0,
            escape(&chart.y_label)
        );
    }

    fn marks(&self, svg: &mut String) {
        const STYLE: &str = "stroke=\"#888\" stroke-dasharray=\"5 4\"";
        let Self { chart, left, right, top, floor, .. } = self;
        if let Some((value, meaning)) = chart.mark.as_ref().filter(|mark| mark.0.abs() < HUGE) {
            let at = self.up(*value);
            // Below the line, unless the numbers of the axis stand there.
            let below = at + 14.0;
            let _ = writeln!(
                svg,
                "<line {STYLE} x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" opacity=\"0.7\">{}</text>",
                left + 6.0,
                if below > *floor { at - 5.0 } else { below },
                escape(meaning)
            );
        }
        if let Some((place, meaning)) = chart.place_mark.as_ref().filter(|mark| mark.0.abs() < HUGE) {
            let at = self.across(*place);
            let (aside, anchor) = if at > (left + right) / 2.0 { (-5.0, "end") } else { (5.0, "start") };
            let _ = writeln!(
                svg,
                "<line {STYLE} x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{floor}\"/>\
                 <text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" opacity=\"0.7\">{}</text>",
                at + aside,
                top + 12.0,
                escape(meaning)
            );
        }
    }

    /// A line with its points, or bars.
    fn curve(&self, svg: &mut String, number: usize, series: &Series, colour: &str) {
        // Bars of one place stand side by side, with a gap to the next place.
        let bar = 0.8 / self.chart.series.len().max(1) as f64;
        let aside = if self.chart.categories { bar * (number as f64 + 0.5) - 0.4 } else { 0.0 };
        if !self.chart.categories {
            for part in series.points.split(|p| !p.is_drawn()).filter(|part| part.len() > 1) {
                let path: Vec<String> =
                    part.iter().map(|p| format!("{:.1},{:.1}", self.across(p.x), self.up(p.y))).collect();
                let _ = writeln!(
                    svg,
                    "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{} points=\"{}\"/>",
                    dashes(series),
                    path.join(" ")
                );
            }
        }
        // A wide border that cannot be seen can be pointed at.
        let _ = writeln!(svg, "<g fill=\"{colour}\" stroke=\"#0000\" stroke-width=\"12\">");
        for p in series.points.iter().filter(|p| p.is_drawn()) {
            let (x, y) = (self.across(p.x + aside), self.up(p.y));
            let mut text = format!("{}: {} at {}", series.name, short(p.y), self.place_of(p.x));
            if let Some((low, high)) = p.spread {
                let _ = write!(text, " ({} to {})", short(low), short(high));
                let _ = write!(
                    svg,
                    "<line stroke=\"{colour}\" stroke-width=\"1\" opacity=\"0.5\" \
                     x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    self.up(low),
                    self.up(high)
                );
            }
            let text = escape(&text);
            let _ = if self.chart.categories {
                let (wide, ground) = (self.across(bar) - self.across(0.0) - 1.0, self.up(self.y.low.max(0.0)));
                writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"><title>{text}</title></rect>",
                    x - wide / 2.0,
                    y.min(ground),
                    (y - ground).abs().max(1.0)
                )
            } else {
                // Many points are a line; a dot for each would hide it.
                let radius = if series.points.len() > 30 { 1.0 } else { 3.0 };
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{text}</title></circle>")
            };
        }
        svg.push_str("</g>\n");
    }

    /// The name of a place, or the number.
    fn place_of(&self, x: f64) -> String {
        let place = self.chart.places.iter().enumerate().find(|(i, _)| *i as f64 == x);
        place.map_or_else(|| short(x), |(_, name)| name.clone())
    }

    /// Where the name of each series stands. Long names lose their middle, so that each fits on a line.
    fn legend(&self) -> Vec<LegendEntry> {
        let (mut left, mut line) = (self.left, 0.0);
        let most = ((self.width - self.left - 44.0) / LETTER).max(8.0) as usize;
        let mut entries = Vec::new();
        for series in &self.chart.series {
            let name = without_middle(&series.name, most);
            let width = 44.0 + LETTER * name.chars().count() as f64;
            if left > self.left && left + width > self.width {
                (left, line) = (self.left, line + 1.0);
            }
            entries.push(LegendEntry { left, line, name });
            left += width;
        }
        entries
    }

    fn legend_entry(&self, svg: &mut String, series: &Series, colour: &str, entry: &LegendEntry) {
        let base = self.floor + self.below + 42.0 + LEGEND_LINE * entry.line;
        let LegendEntry { left, name, .. } = entry;
        let (middle, end, beside) = (base - 4.0, left + 18.0, left + 24.0);
        let _ = writeln!(
            svg,
            "<line stroke=\"{colour}\" stroke-width=\"3\"{} \
             x1=\"{left:.1}\" x2=\"{end:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
             <text class=\"mtz-ink\" x=\"{beside:.1}\" y=\"{base:.1}\">{}</text>",
            dashes(series),
            escape(name)
        );
    }

    /// The last value of each curve beside its end, with a dot of its colour; moved apart where they would overlap.
    fn final_values(&self, svg: &mut String) {
        /// Pixels from one number to the next.
        const APART: f64 = 14.0;
        let mut ends: Vec<(&str, Point, f64)> =
            self.chart.ends().into_iter().map(|(colour, end)| (colour, end, self.up(end.y))).collect();
        ends.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut least = f64::NEG_INFINITY;
        for (_, _, at) in &mut ends {
            *at = at.max(least);
            least = *at + APART;
        }
        let mut most = self.floor;
        for (_, _, at) in ends.iter_mut().rev() {
            *at = at.min(most);
            most = *at - APART;
        }
        for (colour, end, at) in ends {
            let (x, y, beside) = (self.across(end.x), self.up(end.y), self.right + 12.0);
            let _ = writeln!(
                svg,
                "<line stroke=\"{colour}\" opacity=\"0.5\" \
                 x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{beside:.1}\" y2=\"{at:.1}\"/>\
                 <circle fill=\"{colour}\" cx=\"{beside:.1}\" cy=\"{at:.1}\" r=\"3.5\"/>\
                 <text class=\"mtz-ink\" x=\"{:.1}\" y=\"{:.1}\" font-weight=\"600\">{}</text>",
                beside + 7.0,
                at + 4.0,
                self.y.value_text(end.y)
            );
        }
    }
}

fn dashes(series: &Series) -> &'static str {
    if series.dashed { " stroke-dasharray=\"6 4\"" } else { "" }
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
    /// From the first place to the last.
    fn between(count: usize) -> Self {
        Self { low: 0.0, high: count.saturating_sub(1) as f64, step: 1.0, logarithmic: false }
    }

    /// Half a step beside the first place and the last.
    fn of_places(count: usize) -> Self {
        Self { low: -0.5, high: count.max(1) as f64 - 0.5, step: 1.0, logarithmic: false }
    }

    /// From the first value to the last, where a curve ends, not to the next round number.
    fn of_data(values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.clone().filter(|v| v.abs() < HUGE);
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let axis = Self::new(values, false);
        if low < high { Self { low, high, ..axis } } else { axis }
    }

    fn new(values: impl Iterator<Item = f64>, logarithmic: bool) -> Self {
        let values: Vec<f64> = values.filter(|v| v.abs() < HUGE && (!logarithmic || *v > 0.0)).collect();
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

    /// Decimals that tell one tick from the next.
    fn decimals(&self) -> usize {
        (-self.step.log10()).ceil().clamp(0.0, 6.0) as usize
    }

    /// A tick, with as many decimals as all of them need.
    fn tick_text(&self, tick: f64) -> String {
        if self.logarithmic || self.step > 1e6 || self.step < 1e-6 {
            return short(tick);
        }
        let text = format!("{tick:.*}", self.decimals());
        if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') { "0".to_owned() } else { text }
    }

    /// A value that is to be read: to a tenth of the distance between ticks, but no finer than hundredths without need.
    fn value_text(&self, value: f64) -> String {
        if self.logarithmic || self.step > 1e6 || self.step < 1e-6 {
            return short(value);
        }
        let ticks = self.decimals();
        let decimals = if self.step < 20.0 { (ticks + 1).min(ticks.max(2)) } else { 0 };
        format!("{value:.decimals$}")
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let all = (first..=last).flat_map(|p| [1.0, 2.0, 5.0].map(|t| t * 10f64.powi(p)));
            return all.filter(|t| *t >= self.low && *t <= self.high).collect();
        }
        let first = (self.low / self.step - 1e-6).ceil() * self.step;
        let count = ((self.high - first) / self.step + 1e-6).floor().max(0.0) as usize;
        (0..=count.min(20)).map(|i| first + self.step * i as f64).collect()
    }
}

/// A number without needless digits.
fn short(x: f64) -> String {
    let size = x.abs();
    if size >= 1e7 || (size > 0.0 && size < 5e-4) {
        return format!("{x:.1e}");
    }
    let digits = if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 0.01 || size == 0.0 {
        3
    } else {
        4
    };
    let text = format!("{x:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A name without its middle, if it is longer than `most`.
pub(crate) fn without_middle(name: &str, most: usize) -> String {
    let excess = name.chars().count().saturating_sub(most.max(3));
    if excess == 0 {
        return name.to_owned();
    }
    let head: String = name.chars().take(most / 2).collect();
    let tail: String = name.chars().skip(most / 2 + excess + 1).collect();
    format!("{head}\u{2026}{tail}")
}

/// The end of a name that is longer than `most`: names of layers differ there.
fn ending(name: &str, most: usize) -> String {
    let excess = name.chars().count().saturating_sub(most);
    if excess == 0 {
        return name.to_owned();
    }
    format!("\u{2026}{}", name.chars().skip(excess + 1).collect::<String>())
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
        let svg = Chart { series, places, categories: true, ..Chart::default() }.to_svg();
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
