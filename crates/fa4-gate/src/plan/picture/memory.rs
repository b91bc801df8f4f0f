//! Shared memory and tensor memory, to scale.

use fa4_kernels::kernel_info::KernelInfo;

use super::{FILLS, Picture};
use crate::plan::{SMEM_BYTES, TMEM_COLS};

const WIDTH: f64 = 960.0;
const BAR: f64 = 40.0;
/// A segment narrower than this has no name inside.
const NAMED: f64 = 34.0;

pub(super) fn draw(info: &KernelInfo, kernel: &str) -> Picture {
    let scale = WIDTH / f64::from(SMEM_BYTES);
    let small: Vec<_> = info.smem.iter().filter(|r| f64::from(r.bytes) * scale < NAMED).collect();
    let small_lines = small.len().div_ceil(2);
    let tmem_top = 96.0 + 16.0 * small_lines as f64 + 24.0;
    let height =
        if info.tmem.is_empty() { tmem_top - 24.0 } else { tmem_top + 34.0 + 2.0 * (BAR + 4.0) + 14.0 };
    let mut picture = Picture::new(WIDTH as u32, height as u32);
    let bytes = info.smem_bytes();
    picture.write(0.0, 12.0, "title", &format!("{kernel}: shared memory, {bytes} of {SMEM_BYTES} bytes"));
    picture.rect("box", (0.0, 26.0), (WIDTH, BAR), "free");
    for (index, region) in info.smem.iter().enumerate() {
        for stage in 0..region.stages {
            let offset = region.offset + stage * region.bytes;
            let (x, width) = (f64::from(offset) * scale, f64::from(region.bytes) * scale);
            let name = match region.stages {
                1 => region.name.clone(),
                _ => format!("{}[{stage}]", region.name),
            };
            let note = format!("{name}: {} bytes at {offset}", region.bytes);
            picture.rect(&format!("c{} edge", 2 * index % FILLS), (x, 26.0), (width, BAR), &note);
            if width >= NAMED {
                picture.write_centred(x + width / 2.0, 44.0, "", &name);
                picture.write_centred(x + width / 2.0, 59.0, "dim", &region.bytes.to_string());
            }
        }
    }
    picture.write(0.0, 80.0, "dim", "0");
    picture.write_centred(WIDTH - 20.0, 80.0, "dim", &SMEM_BYTES.to_string());
    for (index, region) in small.iter().enumerate() {
        let (x, y) = (WIDTH / 2.0 * (index % 2) as f64, 100.0 + 16.0 * (index / 2) as f64);
        let stages = if region.stages == 1 { String::new() } else { format!("{} × ", region.stages) };
        let text = format!("{} at {}: {stages}{} bytes", region.name, region.offset, region.bytes);
        picture.write(x, y, "dim", &text);
    }
    if !info.tmem.is_empty() {
        tensor_memory(&mut picture, info, tmem_top);
    }
    picture
}

/// Columns; what reuses columns of another region stands in the row below it.
fn tensor_memory(picture: &mut Picture, info: &KernelInfo, top: f64) {
    let scale = WIDTH / f64::from(TMEM_COLS);
    let used = info.tmem.iter().map(|r| r.col + r.cols).max().unwrap_or(0);
    let title =
        format!("tensor memory, {used} of {TMEM_COLS} columns of 128 lanes; below: what reuses columns");
    picture.write(0.0, top + 12.0, "title", &title);
    let rows = [top + 24.0, top + 24.0 + BAR + 4.0];
    picture.rect("box", (0.0, rows[0]), (WIDTH, BAR), "free");
    for (index, region) in info.tmem.iter().enumerate() {
        let y = rows[usize::from(region.alias.is_some())];
        let (x, width) = (f64::from(region.col) * scale, f64::from(region.cols) * scale);
        let last = region.col + region.cols - 1;
        let reuses = region.alias.as_ref().map_or(String::new(), |alias| format!(", columns of {alias}"));
        let note = format!(
            "{}: columns {}–{last}, {}, written by {}, read by {}{reuses}",
            region.name,
            region.col,
            region.dtype,
            region.written_by.join(" and "),
            region.read_by.join(" and ")
        );
        picture.rect(&format!("c{} edge", index % FILLS), (x, y), (width, BAR), &note);
        picture.write_centred(x + width / 2.0, y + 18.0, "", &format!("{} {}", region.name, region.dtype));
        picture.write_centred(x + width / 2.0, y + 33.0, "dim", &format!("{}–{last}", region.col));
    }
}
