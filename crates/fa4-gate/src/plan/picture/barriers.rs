//! Who arrives on which barrier for whom: a column for each role, a row for each barrier.

use fa4_kernels::kernel_info::{Barrier, KernelInfo};
use svg::node::element::Circle;

use super::{Picture, round};
use crate::plan::{families, family_of};

const NAMES: f64 = 172.0;
const LANE: f64 = 96.0;
const MEANING: f64 = 330.0;
const TOP: f64 = 66.0;
const ROW: f64 = 38.0;

pub(super) fn draw(info: &KernelInfo, kernel: &str) -> Picture {
    let families = families(info);
    // Roles that meet nobody have no column.
    let takes_part = |barrier: &Barrier, index: usize| {
        barrier.arriver.iter().chain(&barrier.waiter).any(|word| family_of(&families, word) == Some(index))
    };
    let columns: Vec<usize> =
        (0..families.len()).filter(|i| info.barriers.iter().any(|b| takes_part(b, *i))).collect();
    let x = |word: &str| {
        let family = family_of(&families, word)?;
        let column = columns.iter().position(|c| *c == family)?;
        Some(NAMES + LANE * (column as f64 + 0.5))
    };
    let right = NAMES + LANE * columns.len() as f64;
    let height = TOP + ROW * info.barriers.len() as f64;
    let mut picture = Picture::new((right + MEANING) as u32, height as u32);
    picture.write(0.0, 12.0, "title", &format!("{kernel}: barriers"));
    picture.write(0.0, 44.0, "dim", "arrivals and bytes of a phase");
    picture.write(right + 12.0, 44.0, "dim", "what a completed phase says");
    for (column, family) in columns.iter().enumerate() {
        let left = NAMES + LANE * column as f64;
        let centre = left + LANE / 2.0;
        picture.line("thin", (centre, TOP - 14.0), (centre, height));
        picture.rect("box", (left + 3.0, 30.0), (LANE - 6.0, 22.0), "");
        picture.write_centred(centre, 45.0, "", &families[*family].label());
    }
    for (row, barrier) in info.barriers.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let name = match barrier.stages {
            1 => barrier.name.clone(),
            stages => format!("{} × {stages}", barrier.name),
        };
        picture.write(0.0, y - 2.0, "", &name);
        let bytes = match barrier.tx_bytes {
            0 => String::new(),
            bytes => format!(" + {bytes} B"),
        };
        picture.write(0.0, y + 12.0, "dim", &format!("{}{bytes}", barrier.arrivals));
        picture.write(right + 12.0, y + 4.0, "", &barrier.meaning);
        for from in barrier.arriver.iter().filter_map(|word| x(word)) {
            for to in barrier.waiter.iter().filter_map(|word| x(word)) {
                picture.arrow(from, to, y);
            }
            let dot = Circle::new().set("class", "head").set("cx", round(from)).set("cy", round(y));
            picture.add(dot.set("r", 3.5));
        }
    }
    picture
}
