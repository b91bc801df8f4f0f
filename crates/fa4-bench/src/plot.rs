//! Plots as SVG: rates by length in a panel per group, ratios by length, and a roofline.

use std::collections::BTreeMap;

use svg::Document;
use svg::node::element::{Circle, Line, Polyline, Rectangle, Text};

use crate::record::RunRow;
use crate::render::{is_memory_bound, reference_ids, us_of};
use crate::results::report::group;
use crate::stats::geomean;

/// Colours that colour-blind readers tell apart (Okabe and Ito, "Color Universal Design", 2008); ours is the first.
const COLOURS: [&str; 8] =
    ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"];
const INK: &str = "#444444";
const FAINT: &str = "#dddddd";

/// Dense bf16 TFLOP/s and TB/s of memory by NVIDIA's data sheets, by a word of the GPU's name.
const ROOFS: [(&str, f64, f64); 4] =
    [("H200", 989.0, 4.8), ("H100", 989.0, 3.35), ("B200", 2250.0, 8.0), ("B300", 2250.0, 8.0)];

/// Size of a panel, and the space around its axes.
const PANEL: (f64, f64) = (340.0, 240.0);
/// Size of a panel that is alone.
const WIDE: (f64, f64) = (640.0, 300.0);
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 34.0;

/// Every plot that the rows have points for: file name and SVG.
pub fn all(rows: &[RunRow]) -> Vec<(String, String)> {
    let timed: Vec<&RunRow> = rows.iter().filter(|row| row.ours_us().is_some()).collect();
    if timed.is_empty() {
        return Vec::new();
    }
    let ids = reference_ids(rows);
    let mut plots =
        vec![("rate.svg".to_string(), rates(&timed, &ids)), ("roofline.svg".into(), roofline(&timed))];
    if timed.iter().any(|row| row.verdict.as_ref().is_some_and(|v| v.ratio.is_some())) {
        plots.insert(1, ("ratio.svg".into(), ratios(&timed)));
    }
    plots
}

/// A linear or logarithmic axis from data to pixels.
struct Axis {
    from: f64,
    to: f64,
    log: bool,
    pixels: (f64, f64),
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let map = |x: f64| if self.log { x.max(1e-9).ln() } else { x };
        let span = (map(self.to) - map(self.from)).max(1e-9);
        self.pixels.0 + (map(value) - map(self.from)) / span * (self.pixels.1 - self.pixels.0)
    }

    /// Where to put numbers: round ones, or powers of two or ten.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let base: f64 = if self.to / self.from > 300.0 { 10.0 } else { 2.0 };
            let first = self.from.log(base).ceil() as i32;
            return (first..).map(|n| base.powi(n)).take_while(|x| *x <= self.to * 1.001).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|x| *x <= self.to * 1.0001).collect()
    }
}

fn number(x: f64) -> String {
    match x {
        x if x >= 1024.0 && x % 1024.0 == 0.0 => format!("{}k", x / 1024.0),
        x if x >= 10.0 || x.fract() == 0.0 => format!("{x:.0}"),
        x => format!("{x:.2}"),
    }
}

fn text(x: f64, y: f64, size: f64, anchor: &str, words: &str) -> Text {
    Text::new(words)
        .set("x", x)
        .set("y", y)
        .set("font-size", size)
        .set("font-family", "sans-serif")
        .set("text-anchor", anchor)
        .set("fill", INK)
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str, width: f64) -> Line {
    Line::new()
        .set("x1", from.0)
        .set("y1", from.1)
        .set("x2", to.0)
        .set("y2", to.1)
        .set("stroke", colour)
        .set("stroke-width", width)
}

fn dot(at: (f64, f64), colour: &str, title: &str) -> Circle {
    let title = svg::node::element::Title::new(title);
    Circle::new().set("cx", at.0).set("cy", at.1).set("r", 2.6).set("fill", colour).add(title)
}

/// The frame with its numbers of a panel of `size` at (x, y), and its axes.
fn frame(
    doc: Document,
    ((x, y), size): ((f64, f64), (f64, f64)),
    title: &str,
    across: (f64, f64, bool),
    up: (f64, f64, bool),
) -> (Document, Axis, Axis) {
    let (x0, x1, y0, y1) = (x + LEFT, x + size.0 - RIGHT, y + size.1 - BOTTOM, y + TOP);
    let horizontal = Axis { from: across.0, to: across.1, log: across.2, pixels: (x0, x1) };
    let vertical = Axis { from: up.0, to: up.1, log: up.2, pixels: (y0, y1) };
    let mut doc = doc.add(text((x0 + x1) / 2.0, y + 16.0, 12.0, "middle", title));
    for tick in vertical.ticks() {
        let at = vertical.at(tick);
        doc = doc.add(line((x0, at), (x1, at), FAINT, 1.0)).add(text(
            x0 - 5.0,
            at + 3.0,
            9.0,
            "end",
            &number(tick),
        ));
    }
    for tick in horizontal.ticks() {
        let at = horizontal.at(tick);
        doc = doc.add(line((at, y0), (at, y0 + 3.0), INK, 1.0)).add(text(
            at,
            y0 + 13.0,
            9.0,
            "middle",
            &number(tick),
        ));
    }
    (doc.add(line((x0, y0), (x1, y0), INK, 1.0)), horizontal, vertical)
}

fn canvas(width: f64, height: f64) -> Document {
    Document::new()
        .set("viewBox", (0.0, 0.0, width, height))
        .set("width", width)
        .set("height", height)
        .add(Rectangle::new().set("width", width).set("height", height).set("fill", "white"))
}

fn legend(mut doc: Document, names: &[&str], y: f64) -> Document {
    let mut x = LEFT;
    for (at, name) in names.iter().enumerate() {
        doc = doc.add(dot((x, y - 3.0), COLOURS[at % COLOURS.len()], name)).add(text(
            x + 7.0,
            y,
            10.0,
            "start",
            name,
        ));
        x += 26.0 + 6.2 * name.len() as f64;
    }
    doc
}

/// Lengths on the horizontal axis, with room at either end.
fn lengths<'a>(rows: impl Iterator<Item = &'a &'a RunRow>) -> (f64, f64, bool) {
    let all: Vec<f64> = rows.map(|row| row.problem.seqlen_k.max(1) as f64).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(1.0, f64::max);
    (least / 1.3, most * 1.3, true)
}

fn rates(rows: &[&RunRow], ids: &[&str]) -> String {
    let mut groups: BTreeMap<String, Vec<&RunRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(group(row)).or_default().push(row);
    }
    let columns = groups.len().min(3);
    let names: Vec<&str> = std::iter::once("ours").chain(ids.iter().copied()).collect();
    let lines = groups.len().div_ceil(columns) as f64;
    let mut doc = canvas(columns as f64 * PANEL.0, lines * PANEL.1 + 26.0);
    for (at, (name, rows)) in groups.iter().enumerate() {
        let memory = rows.iter().all(|row| is_memory_bound(row));
        let rate = |row: &RunRow, us: f64| {
            row.counts.map_or(0.0, |c| if memory { c.gbps(us) } else { c.tflops(us) })
        };
        // Per series: points, and their geometric mean at each length.
        let series: Vec<Vec<(f64, f64, &str)>> = names
            .iter()
            .enumerate()
            .map(|(which, id)| {
                let point = |row: &&RunRow| {
                    let us = match which {
                        0 => row.ours_us(),
                        _ => row.references.iter().find(|e| e.id == **id).and_then(us_of),
                    };
                    us.map(|us| (row.problem.seqlen_k.max(1) as f64, rate(row, us)))
                };
                rows.iter().filter_map(|row| point(row).map(|(x, y)| (x, y, row.case.as_str()))).collect()
            })
            .collect();
        let most = series.iter().flatten().map(|p| p.1).fold(1.0, f64::max);
        let place = ((at % columns) as f64 * PANEL.0, (at / columns) as f64 * PANEL.1);
        let unit = if memory { "GB/s" } else { "TFLOP/s" };
        let (framed, x, y) = frame(
            doc,
            (place, PANEL),
            &format!("{name}, {unit}"),
            lengths(rows.iter()),
            (0.0, most * 1.08, false),
        );
        doc = framed;
        for (which, points) in series.iter().enumerate().rev() {
            let colour = COLOURS[which % COLOURS.len()];
            let mut by_length: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            points.iter().for_each(|p| by_length.entry(p.0 as u64).or_default().push(p.1));
            let path: Vec<String> = by_length
                .iter()
                .map(|(length, ys)| format!("{:.1},{:.1}", x.at(*length as f64), y.at(geomean(ys))))
                .collect();
            let curve =
                Polyline::new().set("points", path.join(" ")).set("fill", "none").set("stroke", colour);
            doc = doc.add(curve.set("stroke-width", if which == 0 { 2.0 } else { 1.2 }));
            for (px, py, case) in points {
                doc = doc.add(dot(
                    (x.at(*px), y.at(*py)),
                    colour,
                    &format!("{} {case}: {py:.0} {unit}", names[which]),
                ));
            }
        }
    }
    legend(doc, &names, lines * PANEL.1 + 16.0).to_string()
}

fn ratios(rows: &[&RunRow]) -> String {
    let points: Vec<(String, f64, f64, &str)> = rows
        .iter()
        .filter_map(|row| {
            let ratio = row.verdict.as_ref()?.ratio?;
            Some((group(row), row.problem.seqlen_k.max(1) as f64, ratio, row.case.as_str()))
        })
        .collect();
    let mut names: Vec<&str> = points.iter().map(|p| p.0.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let least = points.iter().map(|p| p.2).fold(0.95, f64::min);
    let most = points.iter().map(|p| p.2).fold(1.05, f64::max);
    let title = "fastest right reference's time over ours (above 1: ahead), by seqlen_k";
    let (mut doc, x, y) = frame(
        canvas(WIDE.0, WIDE.1 + 18.0 * names.len().div_ceil(2) as f64 + 10.0),
        ((0.0, 0.0), WIDE),
        title,
        lengths(rows.iter()),
        (least * 0.98, most * 1.02, false),
    );
    doc = doc.add(line((x.pixels.0, y.at(1.0)), (x.pixels.1, y.at(1.0)), INK, 1.5));
    for (at, name) in names.iter().enumerate() {
        // Through the mean of the group at each length.
        let mut by_length: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let own = points.iter().filter(|p| p.0 == *name);
        own.for_each(|p| by_length.entry(p.1 as u64).or_default().push(p.2));
        let path = by_length.iter().map(|(px, all)| (x.at(*px as f64), y.at(geomean(all))));
        let path: Vec<String> = path.map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
        let colour = COLOURS[at % COLOURS.len()];
        let curve = Polyline::new().set("points", path.join(" ")).set("fill", "none").set("stroke", colour);
        doc = doc.add(curve.set("stroke-width", 1.2));
    }
    for (name, px, py, case) in &points {
        let which = names.iter().position(|n| n == name).unwrap_or_default();
        doc =
            doc.add(dot((x.at(*px), y.at(*py)), COLOURS[which % COLOURS.len()], &format!("{case}: {py:.3}")));
    }
    for (at, name) in names.iter().enumerate() {
        let below = WIDE.1 + 14.0 + 18.0 * (at / 2) as f64;
        let left = LEFT + (at % 2) as f64 * WIDE.0 / 2.0;
        doc = doc.add(dot((left, below - 3.0), COLOURS[at % COLOURS.len()], name)).add(text(
            left + 8.0,
            below,
            10.0,
            "start",
            name,
        ));
    }
    doc.to_string()
}

fn roofline(rows: &[&RunRow]) -> String {
    let gpu = rows.iter().find_map(|row| row.gpu.clone()).unwrap_or_default();
    let roof = ROOFS.iter().find(|(word, _, _)| gpu.contains(word));
    let points: Vec<(f64, f64, &str)> = rows
        .iter()
        .filter_map(|row| {
            let (us, counts) = row.ours_us().zip(row.counts)?;
            Some((counts.intensity().max(0.1), counts.tflops(us).max(1e-3), row.case.as_str()))
        })
        .collect();
    // Room around the points, and the ridge of the roof in view.
    let ridge = roof.map_or(100.0, |r| r.1 / r.2);
    let (mut left, mut right) = (ridge / 4.0, ridge * 4.0);
    let (mut low, mut high) = (100.0f64, roof.map_or(10.0, |r| r.1 * 1.3));
    for (x, y, _) in &points {
        (left, right) = (left.min(x / 1.5), right.max(x * 1.5));
        (low, high) = (low.min(y / 1.5), high.max(y * 1.5));
    }
    let title = match roof {
        Some((_, tflops, tbps)) => {
            format!("TFLOP/s by FLOPs per byte; {gpu}: {tflops:.0} TFLOP/s, {tbps} TB/s (data sheet)")
        }
        None => format!("TFLOP/s by FLOPs per byte; {gpu}: no data sheet known"),
    };
    let (mut doc, x, y) = frame(
        canvas(WIDE.0, WIDE.1 + 6.0),
        ((0.0, 0.0), WIDE),
        &title,
        (left, right, true),
        (low, high, true),
    );
    if let Some((_, tflops, tbps)) = roof {
        let start = left.max(low / tbps);
        let roof: Vec<String> = [(start, start * tbps), (ridge, *tflops), (right.max(ridge), *tflops)]
            .iter()
            .map(|(px, py)| format!("{:.1},{:.1}", x.at(*px), y.at(*py)))
            .collect();
        doc = doc.add(
            Polyline::new()
                .set("points", roof.join(" "))
                .set("fill", "none")
                .set("stroke", INK)
                .set("stroke-width", 1.5),
        );
    }
    for (px, py, case) in &points {
        doc = doc.add(dot(
            (x.at(*px), y.at(*py)),
            COLOURS[0],
            &format!("{case}: {py:.0} TFLOP/s at {px:.0} FLOP/B"),
        ));
    }
    doc.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_map_and_tick() {
        let linear = Axis { from: 0.0, to: 700.0, log: false, pixels: (200.0, 0.0) };
        assert_eq!(linear.ticks(), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!(linear.at(350.0), 100.0);
        let lengths = Axis { from: 512.0, to: 16384.0, log: true, pixels: (0.0, 100.0) };
        assert_eq!(lengths.ticks().len(), 6);
        assert!((lengths.at(2048.0) - 40.0).abs() < 1e-9);
        assert_eq!((number(16384.0), number(0.95)), ("16k".into(), "0.95".into()));
    }
}
