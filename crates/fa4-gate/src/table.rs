//! The verdict for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use crate::coverage::Coverage;
use crate::foreign_section::NAMESPACE;
use crate::probes;
use crate::rows::{Row, Status};

/// One line per case where all its runs pass, one per run elsewhere; cases that nothing serves are not in it.
pub fn verdicts<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut builder = Builder::default();
    builder.push_record([
        "kernel", "case", "device", "schedule", "status", "O", "LSE", "evidence", "scale", "seconds",
    ]);
    for group in groups(rows.filter(|row| row.kernel != "none")) {
        if group.iter().all(|row| row.status == Status::Pass) {
            let schedules = match group.as_slice() {
                [one] => one.schedule.unwrap_or("-").to_string(),
                many => format!("all {}", many.len()),
            };
            builder.push_record(record(&group, schedules));
        } else {
            for row in &group {
                let seed =
                    if row.schedule == Some("random") { format!(" {}", row.seed) } else { String::new() };
                builder.push_record(record(&[*row], format!("{}{seed}", row.schedule.unwrap_or("-"))));
            }
        }
    }
    let mut table = builder.build();
    table.with(Style::sharp());
    for column in [5, 6, 9] {
        table.modify(Columns::one(column), Alignment::right());
    }
    table.to_string()
}

/// Whether a row is of the foreign section.
pub fn is_foreign(row: &Row) -> bool {
    row.kernel.starts_with(NAMESPACE) && row.kernel[NAMESPACE.len()..].starts_with('/')
}

/// Whether a row is an instruction probe.
pub fn is_probe(row: &Row) -> bool {
    row.kernel.starts_with(probes::NAMESPACE) && row.kernel[probes::NAMESPACE.len()..].starts_with('/')
}

/// Whether a row is a kernel's of ours or a candidate's.
pub fn is_ours(row: &Row) -> bool {
    !is_foreign(row) && !is_probe(row)
}

/// One line per file of probes, and one per probe that did not simply pass.
pub fn probes(rows: &[Row]) -> String {
    let mut builder = Builder::default();
    builder.push_record(["probes", "device", "status", "number", "evidence", "remark"]);
    let probes: Vec<&Row> = rows.iter().filter(|row| is_probe(row)).collect();
    for file in probes.chunk_by(|a, b| a.case == b.case) {
        let (plain, others): (Vec<&Row>, Vec<&Row>) =
            file.iter().partition(|row| row.status == Status::Pass && row.reason.is_none());
        let line = |name: &str, row: &Row, number: usize| {
            [
                name.to_string(),
                row.device.unwrap_or("-").to_string(),
                row.status.name().to_string(),
                number.to_string(),
                row.evidence.unwrap_or("-").to_string(),
                row.reason.clone().unwrap_or_default(),
            ]
        };
        if let Some(first) = plain.first() {
            builder.push_record(line(&first.case, first, plain.len()));
        }
        for row in others {
            builder.push_record(line(&row.kernel, row, 1));
        }
    }
    let mut table = builder.build();
    table.with(Style::sharp()).modify(Columns::one(3), Alignment::right());
    table.to_string()
}

/// Neighbours with the same kernel and case.
fn groups<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group)
                if group[0].kernel == row.kernel
                    && group[0].case == row.case
                    && group[0].device == row.device =>
            {
                group.push(row);
            }
            _ => groups.push(vec![row]),
        }
    }
    groups
}

fn record(group: &[&Row], schedule: String) -> [String; 10] {
    let worst = |ratio: fn(&Row) -> Option<f64>| {
        let worst = group.iter().filter_map(|row| ratio(row)).reduce(f64::max);
        worst.map_or("-".to_string(), |x| format!("{x:.3}"))
    };
    let row = group[0];
    [
        row.kernel.clone(),
        row.case.clone(),
        row.device.unwrap_or("-").to_string(),
        schedule,
        row.status.name().to_string(),
        worst(|row| row.o_ratio),
        worst(|row| row.lse_ratio),
        row.evidence.unwrap_or("-").to_string(),
        row.scale.clone().unwrap_or_default(),
        format!("{:.2}", group.iter().map(|row| row.seconds).sum::<f64>()),
    ]
}

/// Cases that nothing serves, by reason.
pub fn unsupported(rows: &[Row]) -> String {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.status == Status::Unsupported && !is_probe(row)) {
        by_reason.entry(row.reason.as_deref().unwrap_or("")).or_default().push(&row.case);
    }
    let mut text = String::new();
    for (reason, cases) in by_reason {
        let _ =
            writeln!(text, "  {reason} — {} case{}:", cases.len(), if cases.len() == 1 { "" } else { "s" });
        for case in cases {
            let _ = writeln!(text, "    {case}");
        }
    }
    text
}

/// Every failure with its report and the command that repeats it. Runs that failed alike (the same finding at the same
/// place) are told once: one mistake fails many cases.
pub fn failures(rows: &[Row], flags: &str) -> String {
    const IN_FULL: usize = 4;
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.status.is_wrong()).collect();
    let mut text = String::new();
    let mut kinds: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &wrong {
        let kind = alike(row);
        match kinds.iter_mut().find(|k| k.0 == kind) {
            Some(known) => known.1.push(row),
            None => kinds.push((kind, vec![row])),
        }
    }
    for (_, rows) in kinds.iter().take(IN_FULL) {
        let row = rows[0];
        let reason = row.reason.as_deref().unwrap_or("").replace('\n', "\n    ");
        let schedule = row.schedule.unwrap_or("-");
        let _ = writeln!(
            text,
            "{}: {} {} [{schedule}, seed {}]",
            row.status.name(),
            row.kernel,
            row.case,
            row.seed
        );
        let _ = writeln!(text, "    {reason}");
        if rows.len() > 1 {
            let _ = writeln!(text, "    the same in {} more runs, such as {}", rows.len() - 1, rows[1].case);
        }
        let _ = writeln!(text, "    replay: {}", replay(row, flags));
    }
    let rest: usize = kinds.iter().skip(IN_FULL).map(|k| k.1.len()).sum();
    if rest > 0 {
        let _ = writeln!(text, "… and {rest} more; --json FILE has every reason");
    }
    text
}

/// What runs have in common that failed by the same mistake: the code of the finding and its place in the source, or the
/// case where there is no such place.
fn alike(row: &Row) -> String {
    let reason = row.reason.as_deref().unwrap_or("");
    let code = reason.split_once("]:").map(|(code, _)| code);
    // A deadlock has no place; what is missing stands for it.
    let is_place = |l: &&str| ["-->", "inlined at", "= missing:"].iter().any(|word| l.starts_with(word));
    let places: Vec<&str> = reason.lines().map(str::trim).filter(is_place).collect();
    match code {
        Some(code) if !places.is_empty() => format!("{code} {}", places.join(" ")),
        _ => format!("{} {} {}", row.kernel, row.case, reason.lines().next().unwrap_or("")),
    }
}

/// The command that repeats a run.
fn replay(row: &Row, flags: &str) -> String {
    if is_probe(row) {
        let device = row.device.unwrap_or("emu");
        return format!("cargo xtask gate --filter '^{}$' --device {device}", row.kernel);
    }
    let case = regex::escape(&row.case);
    let how = match row.schedule {
        Some(schedule) => format!("--schedule {schedule}"),
        None => format!("--device {}", row.device.unwrap_or("auto")),
    };
    format!("cargo xtask gate --filter '/{case}$' {how} --seed {}{flags}", row.seed)
}

/// How far GPU and emulator agree on the cases that both ran: verdicts, and bits. Different bits within the bounds are no
/// failure: the emulator's matrix products and exponentials are models.
pub fn agreement(rows: &[Row]) -> String {
    let of = |device: &str| {
        let rows = rows.iter().filter(|row| row.device == Some(device));
        // Runs of one device on one case have the same bits, or were failed for it.
        rows.map(|row| ((row.kernel.as_str(), row.case.as_str()), row)).collect::<BTreeMap<_, _>>()
    };
    let (gpu, emulator) = (of("cuda"), of("emu"));
    let both: Vec<_> = gpu.iter().filter_map(|(key, row)| Some((*row, *emulator.get(key)?))).collect();
    let equal = both.iter().filter(|(a, b)| a.digest.is_some() && a.digest == b.digest).count();
    let mut text = format!(
        "GPU and emulator: {} cases ran on both, {equal} with the same bits in every element of O and LSE",
        both.len()
    );
    for (a, b) in both.iter().filter(|(a, b)| a.status != b.status) {
        let _ = write!(
            text,
            "\n  {} {}: {} on the GPU, {} in the emulator",
            a.kernel,
            a.case,
            a.status.name(),
            b.status.name()
        );
    }
    text
}

/// Markers of each kernel that ran, with how often they were passed.
pub fn coverage(coverage: &BTreeMap<String, Coverage>) -> String {
    let mut builder = Builder::default();
    builder.push_record(["kernel", "marker", "times"]);
    for (kernel, coverage) in coverage.iter().filter(|(_, coverage)| coverage.passes > 0) {
        for (marker, count) in &coverage.markers {
            builder.push_record([kernel.clone(), marker.clone(), count.to_string()]);
        }
        builder.push_record([kernel.clone(), "(passing runs)".to_string(), coverage.passes.to_string()]);
    }
    let mut table = builder.build();
    table.with(Style::sharp()).modify(Columns::one(2), Alignment::right());
    table.to_string()
}

/// One line: counts by status, and the worst ratios to the bounds. Foreign kernels count, but their bounds are others.
pub fn summary(rows: &[Row]) -> String {
    let count = |status: Status| rows.iter().filter(|row| row.status == status).count();
    let mut parts = Vec::new();
    for status in [Status::Pass, Status::Fail, Status::Fault, Status::Timeout, Status::Unsupported] {
        if count(status) > 0 || status == Status::Pass {
            parts.push(format!("{} {}", count(status), status.name()));
        }
    }
    let worst = |ratio: fn(&Row) -> Option<f64>| {
        let passing = rows.iter().filter(|row| row.status == Status::Pass && is_ours(row));
        let all = passing.filter_map(|row| ratio(row).map(|x| (x, &row.case)));
        all.max_by(|a, b| a.0.total_cmp(&b.0)).map_or("-".to_string(), |(x, case)| format!("{x:.3} ({case})"))
    };
    format!(
        "{}; worst error over bound: O {}, LSE {}",
        parts.join(", "),
        worst(|row| row.o_ratio),
        worst(|row| row.lse_ratio)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, case: &str, schedule: &'static str, status: Status) -> Row {
        Row {
            kernel: kernel.into(),
            status,
            schedule: Some(schedule),
            o_ratio: Some(0.25),
            reason: (status != Status::Pass).then(|| "because".to_string()),
            ..Row::unsupported(case, 1, String::new())
        }
    }

    #[test]
    fn passing_runs_are_folded_and_others_are_not() {
        let rows = [
            row("k", "good", "eager", Status::Pass),
            row("k", "good", "random", Status::Pass),
            row("k", "bad", "eager", Status::Pass),
            row("k", "bad", "random", Status::Fail),
        ];
        let table = verdicts(rows.iter());
        assert_eq!(table.lines().filter(|line| line.contains("good")).count(), 1);
        assert!(table.contains("all 2") && table.contains("0.250"));
        assert_eq!(table.lines().filter(|line| line.contains("bad")).count(), 2);
        assert!(failures(&rows, " -x").contains("--filter '/bad$' --schedule random --seed 1 -x"));
    }

    #[test]
    fn agreement_counts_cases_and_names_disagreements() {
        let on = |device, case: &str, status, digest| Row {
            device: Some(device),
            digest: Some(digest),
            ..row("k", case, "eager", status)
        };
        let rows = [
            on("cuda", "a", Status::Pass, 1),
            on("cuda", "a", Status::Pass, 1),
            on("cuda", "b", Status::Pass, 2),
            on("cuda", "gpu only", Status::Pass, 3),
            on("emu", "a", Status::Pass, 1),
            on("emu", "b", Status::Fault, 5),
        ];
        let text = agreement(&rows);
        assert!(text.starts_with("GPU and emulator: 2 cases ran on both, 1 with the same bits"), "{text}");
        assert!(text.ends_with("k b: pass on the GPU, fault in the emulator"), "{text}");
        // A row per device.
        assert_eq!(verdicts(rows.iter()).lines().filter(|line| line.contains("│ a ")).count(), 2);
    }

    #[test]
    fn probes_are_folded_by_file_and_others_are_named() {
        let probe =
            |name: &str, status| Row { device: Some("both"), ..row(name, "warp.ptx", "eager", status) };
        let rows = [
            probe("probe/a", Status::Pass),
            probe("probe/b", Status::Pass),
            probe("probe/c", Status::Fail),
            row("k", "case", "eager", Status::Pass),
        ];
        let table = probes(&rows);
        assert!(
            table.lines().any(|l| l.contains("warp.ptx") && l.contains("pass") && l.contains(" 2 ")),
            "{table}"
        );
        assert!(table.lines().any(|l| l.contains("probe/c") && l.contains("because")), "{table}");
        assert_eq!(rows.iter().filter(|row| is_ours(row)).count(), 1);
    }

    #[test]
    fn the_summary_counts() {
        let rows = [
            row("k", "a", "eager", Status::Pass),
            Row { o_ratio: Some(0.9), ..row("triton/x", "b", "eager", Status::Pass) },
            Row::unsupported("c", 1, "why".into()),
        ];
        let text = summary(&rows);
        assert!(
            text.starts_with("2 pass, 1 unsupported; worst error over bound: O 0.250 (a), LSE -"),
            "{text}"
        );
        assert!(unsupported(&rows).contains("why — 1 case:\n    c\n"));
    }
}
