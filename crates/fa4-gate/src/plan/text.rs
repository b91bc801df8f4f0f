//! A plan for a terminal.

use std::fmt::Write as _;

use fa4_kernels::kernel_info::KernelInfo;
use ptx_emu::machine::inst::OpClass;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use super::figures::{BLOCKS, Figures, RoleCounts};
use super::{Plan, REGISTERS, SMEM_BYTES, TMEM_COLS};

/// Characters of a bar or chart.
const COLUMNS: usize = 96;

/// The classes that tell what a role is for, with the word for each.
const WORK: [(&[OpClass], &str); 7] = [
    (&[OpClass::Bulk], "TMA"),
    (&[OpClass::Mma], "matrix"),
    (&[OpClass::Mufu], "exponentials"),
    (&[OpClass::Packed, OpClass::Fp32], "f32"),
    (&[OpClass::TmemMove], "TMEM moves"),
    (&[OpClass::Memory], "memory"),
    (&[OpClass::Barrier], "barriers"),
];

/// The whole plan.
pub fn plan(plan: &Plan) -> String {
    let archs: Vec<&str> = plan.archs.iter().map(|arch| arch.name()).collect();
    let mut text = format!("{} ({})\n\n", plan.kernel, archs.join(", "));
    let launch = &plan.launch;
    let _ = writeln!(
        text,
        "launch: grid {}, {} threads, {} B of dynamic shared memory\n",
        launch.grid, launch.block, launch.smem_bytes
    );
    let counts = plan.figures.as_ref().map_or(&[][..], |figures| &figures.roles);
    let mut section = |title: &str, body: String| {
        let _ = writeln!(text, "{title}\n{body}");
    };
    section("roles", roles(&plan.info, counts));
    section("barriers (arrivals and bytes of a phase, for each stage)", barriers(&plan.info));
    section("shared memory", smem(&plan.info));
    if !plan.info.tmem.is_empty() {
        section("tensor memory", tmem(&plan.info));
    }
    match &plan.figures {
        Some(figures) => section("predicted, not measured", prediction(figures)),
        None => {
            section("no prediction", "the emulator does not run this kernel clean: see the gate\n".into())
        }
    }
    text
}

/// Rows under a head; columns from `right` on are numbers unless they are the last.
fn table(head: &[&str], rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut builder = Builder::default();
    builder.push_record(head.iter().copied());
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table.with(Style::sharp());
    for column in right {
        table.modify(Columns::one(*column), Alignment::right());
    }
    format!("{table}\n")
}

/// What a role issues for each K/V block, or, where that is nothing, what at its start or end.
pub fn work(counts: &RoleCounts) -> String {
    let words = WORK.iter().filter(|(classes, _)| counts.by_warp(classes) > 0.0).map(|(_, word)| *word);
    let words: Vec<_> = words.collect();
    match counts.whole.contains_key(&OpClass::Bulk) && words.is_empty() {
        true => "TMA, once".to_owned(),
        false => words.join(", "),
    }
}

fn roles(info: &KernelInfo, counts: &[RoleCounts]) -> String {
    let rows = info.roles.iter().map(|role| {
        let last = role.first_warp + role.warps - 1;
        let warps = if role.warps == 1 { last.to_string() } else { format!("{}–{last}", role.first_warp) };
        let registers = role.regs * role.warps * 32;
        let work = counts.iter().find(|c| c.role == role.name).map_or(String::new(), work);
        vec![role.name.clone(), warps, role.regs.to_string(), registers.to_string(), work]
    });
    let head = ["role", "warps", "registers a thread", "in all", "issues, for each K/V block"];
    let mut text = table(&head, rows.collect(), &[2, 3]);
    let sum: u32 = info.roles.iter().map(|role| role.regs * role.warps * 32).sum();
    let _ = writeln!(text, "{sum} of the {REGISTERS} registers of an SM");
    text
}

fn barriers(info: &KernelInfo) -> String {
    let rows = info.barriers.iter().map(|b| {
        let bytes = if b.tx_bytes == 0 { "–".to_owned() } else { b.tx_bytes.to_string() };
        vec![
            b.name.clone(),
            b.stages.to_string(),
            b.arrivals.to_string(),
            bytes,
            format!("{} → {}", b.arriver.join(" + "), b.waiter.join(" + ")),
            b.meaning.clone(),
        ]
    });
    let head = ["barrier", "stages", "arrivals", "bytes", "arrives → waits", "what becomes true"];
    table(&head, rows.collect(), &[1, 2, 3])
}

fn smem(info: &KernelInfo) -> String {
    let rows = info.smem.iter().map(|r| {
        let stages = if r.stages == 1 { String::new() } else { format!("{} × ", r.stages) };
        let end = r.offset + r.bytes * r.stages;
        vec![
            r.name.clone(),
            r.offset.to_string(),
            end.to_string(),
            format!("{stages}{}", r.bytes),
            r.align.to_string(),
        ]
    });
    let mut text = table(&["region", "from", "to", "bytes", "alignment"], rows.collect(), &[1, 2, 3, 4]);
    let spans = info.smem.iter().flat_map(|r| {
        (0..r.stages)
            .map(|stage| (r.name.as_str(), r.offset + stage * r.bytes, r.offset + (stage + 1) * r.bytes))
    });
    text.push_str(&bar(spans, SMEM_BYTES));
    let bytes = info.smem_bytes();
    let _ = writeln!(
        text,
        "{bytes} of the {SMEM_BYTES} bytes that a CTA may have, {} left",
        SMEM_BYTES - bytes.min(SMEM_BYTES)
    );
    text
}

fn tmem(info: &KernelInfo) -> String {
    let rows = info.tmem.iter().map(|r| {
        vec![
            r.name.clone(),
            format!("{}–{}", r.col, r.col + r.cols - 1),
            r.dtype.clone(),
            r.written_by.join(" "),
            r.read_by.join(" "),
            r.alias.as_ref().map_or(String::new(), |alias| format!("columns of {alias}")),
        ]
    });
    let head = ["region", "columns", "element", "written by", "read by", "reuses"];
    let mut text = table(&head, rows.collect(), &[1]);
    for aliases in [false, true] {
        let regions = info.tmem.iter().filter(|r| r.alias.is_some() == aliases);
        text.push_str(&bar(regions.map(|r| (r.name.as_str(), r.col, r.col + r.cols)), TMEM_COLS));
    }
    let used = info.tmem.iter().map(|r| r.col + r.cols).max().unwrap_or(0);
    let _ = writeln!(text, "{used} of {TMEM_COLS} columns");
    text
}

/// Named ranges as one line of characters: `|Q─────|Q─────|KV────`.
fn bar<'a>(spans: impl Iterator<Item = (&'a str, u32, u32)>, whole: u32) -> String {
    let mut cells = vec![' '; COLUMNS];
    let at = |value: u32| (u64::from(value) * COLUMNS as u64 / u64::from(whole)) as usize;
    for (name, begin, end) in spans {
        let range = at(begin).min(COLUMNS)..at(end).min(COLUMNS);
        // What is thinner than a character is in the table only.
        let label = std::iter::once('|').chain(name.chars()).chain(std::iter::repeat('─'));
        for (cell, c) in range.zip(label) {
            cells[cell] = c;
        }
    }
    let line: String = cells.into_iter().collect();
    format!("{}\n", line.trim_end())
}

fn prediction(figures: &Figures) -> String {
    let mut text = format!("one CTA of {} query rows, K/V blocks of {} keys\n", figures.rows, figures.keys);
    let bound = figures.bound().name;
    let rows = figures.units.iter().map(|unit| {
        let mark = if unit.name == bound { "bounds" } else { "" };
        vec![
            unit.name.into(),
            unit.amount.to_string(),
            unit.of.into(),
            format!("{:.0}", unit.cycles),
            mark.into(),
        ]
    });
    text.push_str(&table(&["unit, for each K/V block", "does", "", "cycles", ""], rows.collect(), &[1, 3]));
    let _ = writeln!(text, "{} bytes by TMA for each K/V block", figures.loaded_bytes);
    match figures.distance() {
        Some(distance) => {
            let _ = writeln!(
                text,
                "steady state: {:.0} cycles a block, {distance:.3} × the bound; {BLOCKS} blocks from start to end: {} cycles, \
                 {:.3} × the busier unit",
                figures.block_cycles,
                figures.short.cycles,
                figures.short.ratio()
            );
        }
        None => text.push_str(
            "the emulator's model has no cost for wgmma: the schedule below shows exponentials only\n",
        ),
    }
    let _ = writeln!(text, "\n{}", figures.timeline.chart(COLUMNS));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_to_scale() {
        let line = bar([("Q", 0, 64), ("KV", 64, 128), ("tiny", 128, 129), ("O", 192, 256)].into_iter(), 256);
        assert_eq!(line.chars().count(), COLUMNS + 1);
        assert!(line.starts_with("|Q──") && line.chars().nth(24) == Some('|'), "{line}");
        assert!(!line.contains("tiny") && line.contains(" |O─"), "{line}");
    }
}
