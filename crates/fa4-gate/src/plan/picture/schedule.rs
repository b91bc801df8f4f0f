//! The predicted schedule: the matrix pipe and each role over cycles.

use super::{FILLS, Picture};
use crate::plan::figures::{BLOCKS, Figures};

const NAMES: f64 = 96.0;
const WIDTH: f64 = 960.0;
const TOP: f64 = 64.0;
const ROW: f64 = 26.0;
const BAR: f64 = 18.0;
/// The fill of a role that computes, and of one that waits.
const RUN: &str = "c4 edge";

pub(super) fn draw(figures: &Figures, kernel: &str) -> Picture {
    let timeline = &figures.timeline;
    let bottom = TOP + ROW * timeline.lanes.len() as f64;
    let mut picture = Picture::new(WIDTH as u32, bottom as u32 + 30);
    let title = format!(
        "{kernel}: schedule of one CTA, {} queries × {} keys in {BLOCKS} blocks",
        figures.rows,
        figures.keys * BLOCKS
    );
    picture.write(0.0, 12.0, "title", &title);
    let subtitle = format!(
        "a prediction under unit costs, not a measurement: {} cycles, {:.3} × the busier unit",
        figures.short.cycles,
        figures.short.ratio()
    );
    picture.write(0.0, 30.0, "dim", &subtitle);
    let scale = (WIDTH - NAMES) / timeline.cycles.max(1) as f64;
    let x = |cycle: u64| NAMES + cycle as f64 * scale;
    let step = tick(timeline.cycles);
    for cycle in (0..=timeline.cycles).step_by(step as usize) {
        picture.line("thin", (x(cycle), TOP - 8.0), (x(cycle), bottom));
        picture.write_centred(x(cycle), TOP - 12.0, "dim", &cycle.to_string());
    }
    let accumulators = timeline.accumulators();
    let fill = |what: &str| match accumulators.iter().position(|name| *name == what) {
        Some(index) => format!("c{} edge", index % FILLS),
        None => RUN.to_owned(),
    };
    for (row, lane) in timeline.lanes.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        picture.write(0.0, y + 14.0, "", &lane.name);
        picture.line("thin", (NAMES, y + BAR / 2.0 + 1.0), (WIDTH, y + BAR / 2.0 + 1.0));
        for span in &lane.busy {
            let (left, width) = (x(span.begin), (span.end - span.begin) as f64 * scale);
            let note = format!("{}: {} to {}", span.what, span.begin, span.end);
            picture.rect(&fill(&span.what), (left, y + 1.0), (width, BAR), &note);
            if width > 22.0 && span.what != "run" {
                picture.write_centred(left + width / 2.0, y + 14.0, "small", &span.what);
            }
        }
        // What a role does in no time: a stroke where its wait ends.
        for span in lane.waits.iter().filter(|span| !lane.computes_at(span.end)) {
            let note = format!("waited for {} from {} to {}", span.what, span.begin, span.end);
            picture.rect("head", (x(span.end) - 1.0, y + 3.0), (2.0, BAR - 4.0), &note);
        }
    }
    let y = bottom + 14.0;
    picture.rect(RUN, (NAMES, y), (14.0, 12.0), "");
    picture.write(NAMES + 20.0, y + 10.0, "dim", "computes exponentials");
    picture.rect("head", (NAMES + 166.0, y), (2.0, 12.0), "");
    let text = "a wait ends and the role does what costs nothing in the model";
    picture.write(NAMES + 176.0, y + 10.0, "dim", text);
    picture.write(NAMES + 560.0, y + 10.0, "dim", "matrix pipe: what it adds to");
    picture
}

/// A power of two that divides the time into at most ten.
fn tick(cycles: u64) -> u64 {
    (cycles / 10).max(1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::tick;

    #[test]
    fn ticks_are_few() {
        assert_eq!(tick(16592), 2048);
        assert_eq!(tick(0), 1);
    }
}
