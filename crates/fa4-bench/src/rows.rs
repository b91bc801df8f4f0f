//! `--json`: the rows in the form that every judging command writes, with the figures of a timing beside it.

use std::path::Path;

use serde::Serialize;

use crate::error::BenchError;
use crate::record::RunRow;

/// One object of the array.
#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    kernel: &'a str,
    case: &'a str,
    status: &'static str,
    schedule: Option<&'static str>,
    seed: u64,
    device: &'static str,
    evidence: &'static str,
    scale: Option<&'static str>,
    o_ratio: Option<f64>,
    lse_ratio: Option<f64>,
    reason: Option<&'a str>,
    seconds: f64,
    us: Option<f64>,
    tflops: Option<f64>,
    gbps: Option<f64>,
    ratio: Option<f64>,
    against: Option<&'a str>,
    class: Option<crate::verdict::Class>,
}

/// Writes the rows as a JSON array, one object a line.
///
/// # Errors
/// The system's words.
pub fn write_json(path: &Path, rows: &[RunRow]) -> Result<(), BenchError> {
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let (us, verdict) = (row.ours_us(), row.verdict.as_ref());
            let json = JsonRow {
                kernel: row.kernel.as_deref().unwrap_or("none"),
                case: &row.case,
                status: row.status.name(),
                schedule: None,
                seed: row.seed,
                device: "cuda",
                evidence: "silicon",
                scale: None,
                o_ratio: row.judged.map(|j| j.o_ratio),
                lse_ratio: row.judged.and_then(|j| j.lse_ratio),
                reason: row.reason.as_deref(),
                seconds: row.seconds,
                us,
                tflops: us.zip(row.counts).map(|(us, counts)| counts.tflops(us)),
                gbps: us.zip(row.counts).map(|(us, counts)| counts.gbps(us)),
                ratio: verdict.and_then(|v| v.ratio),
                against: verdict.and_then(|v| v.against.as_deref()),
                class: verdict.map(|v| v.class),
            };
            serde_json::to_string(&json).expect("plain data has a JSON form")
        })
        .collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(path, text).map_err(BenchError::file(path))
}
