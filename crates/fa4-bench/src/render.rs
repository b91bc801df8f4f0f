//! Rows for people: a line as each is finished, a table and a summary at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use crate::record::{Entry, RunRow, Status};
use crate::stats::geomean;
use crate::verdict::Class;

/// One finished row, in a line.
pub fn line(row: &RunRow) -> String {
    let mut text = format!("{:11} {}", row.status.name(), row.case);
    let Some((us, counts)) = row.ours_us().zip(row.counts) else {
        let reason = row.reason.as_deref().unwrap_or("");
        let first = reason.lines().next().unwrap_or_default();
        let more = if reason.lines().count() > 1 { " …" } else { "" };
        let _ = write!(text, ": {first}{more}");
        return text;
    };
    let _ = write!(text, "  {us:.1} us, {}", rate(row, us, counts));
    if let Some(verdict) = &row.verdict {
        if let (Some(ratio), Some(against)) = (verdict.ratio, &verdict.against) {
            let _ = write!(text, ", {ratio:.3} against {against}");
        }
        let _ = write!(text, ": {}", verdict.class.words());
    }
    for entry in row.references.iter().filter(|e| e.status.is_wrong()) {
        let reason = entry.reason.as_deref().unwrap_or_default();
        let _ = write!(text, "\n            {} {}: {}", entry.status.name(), entry.id, first_line(reason));
    }
    text
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// TFLOP/s where a kernel computes, GB/s where it waits for memory: the roofs of current GPUs meet at some hundred FLOPs a
/// byte.
pub fn rate(row: &RunRow, us: f64, counts: crate::record::Counts) -> String {
    match is_memory_bound(row) {
        true => format!("{:.0} GB/s", counts.gbps(us)),
        false => format!("{:.0} TFLOP/s", counts.tflops(us)),
    }
}

/// Whether a row's rate is told in GB/s.
pub fn is_memory_bound(row: &RunRow) -> bool {
    row.counts.is_some_and(|counts| counts.intensity() < 100.0)
}

/// A reference's burst time.
pub fn us_of(entry: &Entry) -> Option<f64> {
    Some(entry.timing.as_ref()?.burst.as_ref()?.us)
}

/// The names of the references that any row has, in the rows' order.
pub fn reference_ids(rows: &[RunRow]) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for entry in rows.iter().flat_map(|row| &row.references) {
        if !ids.contains(&entry.id.as_str()) {
            ids.push(&entry.id);
        }
    }
    ids
}

/// A table of the rows that were timed.
pub fn table(rows: &[RunRow]) -> String {
    let ids = reference_ids(rows);
    let mut builder = Builder::default();
    let mut header = vec!["row".to_string(), "us".into(), "rate".into()];
    header.extend(ids.iter().map(|id| id.to_string()));
    header.extend(["ratio", "sustained", "verdict", "caveats"].map(String::from));
    builder.push_record(header);
    for row in rows {
        let Some((us, counts)) = row.ours_us().zip(row.counts) else { continue };
        let number = |x: Option<f64>, digits: usize| x.map_or("-".into(), |x| format!("{x:.digits$}"));
        let mut record = vec![row.case.clone(), format!("{us:.1}"), rate(row, us, counts)];
        for id in &ids {
            let entry = row.references.iter().find(|e| e.id == *id);
            record.push(match entry {
                Some(entry) if entry.status == Status::Pass => number(us_of(entry), 1),
                Some(entry) if entry.status != Status::Unsupported => entry.status.name().into(),
                _ => "-".into(),
            });
        }
        let verdict = row.verdict.as_ref();
        record.push(number(verdict.and_then(|v| v.ratio), 3));
        record.push(number(verdict.and_then(|v| v.sustained_ratio), 3));
        record.push(verdict.map_or("-".into(), |v| v.class.words().into()));
        record.push(row.caveats.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        builder.push_record(record);
    }
    let mut table = builder.build();
    table.with(Style::sharp());
    for column in 1..ids.len() + 5 {
        table.modify(Columns::one(column), Alignment::right());
    }
    format!(
        "{table}\nus: median time of a launch, burst. ratio: the fastest right reference's time over ours, above 1 is ahead; \
         FLOPs: {}.",
        FLOP_RULE
    )
}

/// How FLOPs are counted, in a line.
pub const FLOP_RULE: &str =
    "2·(head_dim_qk + head_dim_v) for each (query, key) pair that the mask leaves, counted exactly";

/// One line: counts by status and by class, geometric mean of the ratios.
pub fn summary(rows: &[RunRow]) -> String {
    let mut parts = Vec::new();
    for status in Status::ALL {
        let count = rows.iter().filter(|row| row.status == status).count();
        if count > 0 {
            parts.push(format!("{count} {}", status.name()));
        }
    }
    let mut classes: BTreeMap<Class, usize> = BTreeMap::new();
    for verdict in rows.iter().filter_map(|row| row.verdict.as_ref()) {
        *classes.entry(verdict.class).or_default() += 1;
    }
    let classes: Vec<String> = classes.iter().map(|(class, n)| format!("{n} {}", class.words())).collect();
    let ratios: Vec<f64> = rows.iter().filter_map(|row| row.verdict.as_ref()?.ratio).collect();
    let mut text = if parts.is_empty() { "nothing was run".to_string() } else { parts.join(", ") };
    if !classes.is_empty() {
        let _ = write!(text, "; {}", classes.join(", "));
    }
    if !ratios.is_empty() {
        let _ = write!(text, "; geometric mean of {} ratios {:.3}", ratios.len(), geomean(&ratios));
    }
    text
}
