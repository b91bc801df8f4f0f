//! A plan as pictures: barriers, memory maps, schedule.
//!
//! A picture paints its own background and follows the reader's colour scheme, so that it can be read in light and dark
//! wherever it is embedded.

mod barriers;
mod memory;
mod schedule;

use svg::Document;
use svg::node::element::{Group, Line, Polygon, Rectangle, Style, Text, Title};

use super::Plan;

/// A drawing of a known size.
pub struct Picture {
    width: u32,
    height: u32,
    body: Group,
}

/// Space around a drawing.
const MARGIN: u32 = 16;
/// Fill classes `c0` … .
const FILLS: usize = 8;

const STYLE: &str = "\
.bg{fill:#fff;stroke:#d0d7de}\
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}\
.title{font-weight:600;font-size:14px}.dim{fill:#59636e;font-size:11px}.small{font-size:10.5px}\
.line{stroke:#59636e;stroke-width:1.4}.thin{stroke:#d0d7de}.head{fill:#59636e}.box{fill:#f6f8fa;stroke:#8c959f}\
.c0{fill:#a5d0ff}.c1{fill:#d3e8ff}.c2{fill:#ffd29e}.c3{fill:#ffe9cc}.c4{fill:#b4eebd}.c5{fill:#d9ccff}.c6{fill:#ffcaca}\
.c7{fill:#dfe3e8}.edge{stroke:#8c959f;stroke-width:.6}\
@media(prefers-color-scheme:dark){.bg{fill:#0d1117;stroke:#30363d}text{fill:#e6edf3}.dim{fill:#9198a1}\
.line{stroke:#9198a1}.thin{stroke:#30363d}.head{fill:#9198a1}.box{fill:#161b22;stroke:#59636e}\
.c0{fill:#1c4f86}.c1{fill:#2f6ea8}.c2{fill:#8a5316}.c3{fill:#a8732f}.c4{fill:#22672f}.c5{fill:#55449a}.c6{fill:#8b3434}\
.c7{fill:#3d444d}.edge{stroke:#59636e}}";

impl Picture {
    fn new(width: u32, height: u32) -> Picture {
        Picture { width, height, body: Group::new() }
    }

    /// The SVG file.
    pub fn text(self) -> String {
        let (width, height) = (self.width + 2 * MARGIN, self.height + 2 * MARGIN);
        let background = Rectangle::new()
            .set("class", "bg")
            .set("x", 0.5)
            .set("y", 0.5)
            .set("width", width - 1)
            .set("height", height - 1)
            .set("rx", 6);
        let document = Document::new()
            .set("viewBox", (0, 0, width, height))
            .set("width", width)
            .set("height", height)
            .add(Style::new(STYLE))
            .add(background)
            .add(self.body.set("transform", format!("translate({MARGIN} {MARGIN})")));
        format!("{document}\n")
    }

    fn add(&mut self, node: impl svg::Node) {
        let body = std::mem::replace(&mut self.body, Group::new());
        self.body = body.add(node);
    }

    fn write(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.add(Text::new(text).set("class", class).set("x", round(x)).set("y", round(y)));
    }

    fn write_centred(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = Text::new(text).set("class", class).set("x", round(x)).set("y", round(y));
        self.add(text.set("text-anchor", "middle"));
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let line = Line::new().set("class", class).set("x1", round(from.0)).set("y1", round(from.1));
        self.add(line.set("x2", round(to.0)).set("y2", round(to.1)));
    }

    /// A rectangle with a note that shows under the pointer.
    fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), note: &str) {
        let rect = Rectangle::new()
            .set("class", class)
            .set("x", round(x))
            .set("y", round(y))
            .set("width", round(width))
            .set("height", round(height));
        if note.is_empty() { self.add(rect) } else { self.add(rect.add(Title::new(note))) }
    }

    /// An arrow along a row.
    fn arrow(&mut self, from: f64, to: f64, y: f64) {
        let back = if to > from { -7.0 } else { 7.0 };
        self.line("line", (from, y), (to + back, y));
        let points = [(to, y), (to + back, y - 4.0), (to + back, y + 4.0)];
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", round(*x), round(*y))).collect();
        self.add(Polygon::new().set("class", "head").set("points", points.join(" ")));
    }
}

/// Tenths of a unit are enough for any screen, and keep files readable.
fn round(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

/// The pictures of a plan, by name.
pub fn all(plan: &Plan) -> Vec<(&'static str, Picture)> {
    let mut pictures = vec![
        ("barriers", barriers::draw(&plan.info, &plan.kernel)),
        ("memory", memory::draw(&plan.info, &plan.kernel)),
    ];
    let figures = plan.figures.as_ref().filter(|figures| figures.times_matrix);
    pictures.extend(figures.map(|figures| ("schedule", schedule::draw(figures, &plan.kernel))));
    pictures
}

/// Several pictures as one, below each other.
pub fn stacked(pictures: Vec<(&'static str, Picture)>) -> Picture {
    let width = pictures.iter().map(|(_, picture)| picture.width).max().unwrap_or(0);
    let mut whole = Picture::new(width, 0);
    for (_, picture) in pictures {
        whole.add(picture.body.set("transform", format!("translate(0 {})", whole.height)));
        whole.height += picture.height + 2 * MARGIN;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_the_same_each_time_and_paints_its_ground() {
        let draw = || {
            let mut picture = Picture::new(100, 50);
            picture.arrow(10.0, 90.04, 20.0);
            picture.write(1.0, 2.0, "dim", "S < P & O");
            picture.text()
        };
        let text = draw();
        assert_eq!(text, draw());
        assert!(text.contains("viewBox=\"0 0 132 82\"") && text.contains("class=\"bg\""), "{text}");
        assert!(text.contains("prefers-color-scheme:dark") && text.contains("S &lt; P &amp; O"), "{text}");
    }

    #[test]
    fn stacked_pictures_are_as_high_as_all_of_them() {
        let two = stacked(vec![("a", Picture::new(100, 50)), ("b", Picture::new(200, 70))]);
        assert_eq!((two.width, two.height), (200, 50 + 70 + 4 * MARGIN));
    }
}
