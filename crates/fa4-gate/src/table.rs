//! The verdict for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use crate::coverage::Coverage;
use crate::rows::{Row, Status};

/// One line per case where all its runs pass, one per run elsewhere; cases that nothing serves are not in it.
pub fn verdicts(rows: &[Row]) -> String {
    let mut builder = Builder::default();
    builder.push_record(["kernel", "case", "schedule", "status", "O", "LSE", "evidence", "scale", "seconds"]);
    for group in groups(rows.iter().filter(|row| row.kernel != "none")) {
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
    for column in [4, 5, 8] {
        table.modify(Columns::one(column), Alignment::right());
    }
    table.to_string()
}

/// Neighbours with the same kernel and case.
fn groups<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if group[0].kernel == row.kernel && group[0].case == row.case => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    groups
}

fn record(group: &[&Row], schedule: String) -> [String; 9] {
    let worst = |ratio: fn(&Row) -> Option<f64>| {
        let worst = group.iter().filter_map(|row| ratio(row)).reduce(f64::max);
        worst.map_or("-".to_string(), |x| format!("{x:.3}"))
    };
    let row = group[0];
    [
        row.kernel.clone(),
        row.case.clone(),
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
    for row in rows.iter().filter(|row| row.status == Status::Unsupported) {
        by_reason.entry(row.reason.as_deref().unwrap_or("")).or_default().push(&row.case);
    }
    let mut text = String::new();
    for (reason, cases) in by_reason {
        let _ = writeln!(text, "  {reason} — {} cases:", cases.len());
        for case in cases {
            let _ = writeln!(text, "    {case}");
        }
    }
    text
}

/// What went wrong, in full for the first few, so that the verdict stays readable.
pub fn failures(rows: &[Row]) -> String {
    const IN_FULL: usize = 8;
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.status.is_wrong()).collect();
    let mut text = String::new();
    for row in wrong.iter().take(IN_FULL) {
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
        let _ = writeln!(
            text,
            "    replay: cargo xtask gate --filter '/{}$' --schedule {schedule} --seed {}",
            row.case, row.seed
        );
    }
    if wrong.len() > IN_FULL {
        let _ = writeln!(text, "… and {} more; --json FILE has every reason", wrong.len() - IN_FULL);
    }
    text
}

/// Markers of each kernel with how often they were passed.
pub fn coverage(coverage: &BTreeMap<String, Coverage>) -> String {
    let mut builder = Builder::default();
    builder.push_record(["kernel", "marker", "times"]);
    for (kernel, coverage) in coverage {
        for (marker, count) in &coverage.markers {
            builder.push_record([kernel.clone(), marker.clone(), count.to_string()]);
        }
        builder.push_record([kernel.clone(), "(passing runs)".to_string(), coverage.passes.to_string()]);
    }
    let mut table = builder.build();
    table.with(Style::sharp()).modify(Columns::one(2), Alignment::right());
    table.to_string()
}

/// One line: counts by status, and the worst ratios to the bounds.
pub fn summary(rows: &[Row]) -> String {
    let count = |status: Status| rows.iter().filter(|row| row.status == status).count();
    let mut parts = Vec::new();
    for status in [Status::Pass, Status::Fail, Status::Fault, Status::Timeout, Status::Unsupported] {
        if count(status) > 0 || status == Status::Pass {
            parts.push(format!("{} {}", count(status), status.name()));
        }
    }
    let worst = |ratio: fn(&Row) -> Option<f64>| {
        let passing = rows.iter().filter(|row| row.status == Status::Pass);
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
