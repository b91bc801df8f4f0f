//! The verdict for machines: one object per (case, kernel, schedule).

use std::path::Path;

use serde::Serialize;

use crate::error::GateError;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Within every bound.
    Pass,
    /// A wrong number.
    Fail,
    /// The machine found the kernel at fault.
    Fault,
    /// No kernel serves the case, or the machine cannot run the kernel.
    Unsupported,
    /// Given up.
    Timeout,
}

impl Status {
    /// The word in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Fail => "fail",
            Status::Fault => "fault",
            Status::Unsupported => "unsupported",
            Status::Timeout => "timeout",
        }
    }

    /// Whether the gate's exit code must be 1. A case that no kernel serves is listed and no failure; a kernel that was
    /// routed a case and could not be run is one.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Status::Fail | Status::Fault | Status::Timeout)
    }
}

/// One row of the verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Entry function, a candidate's behind its namespace; `none` where no kernel serves the case.
    pub kernel: String,
    /// The case's name.
    pub case: String,
    /// How it ended.
    pub status: Status,
    /// Schedule of the emulator.
    pub schedule: Option<&'static str>,
    /// Seed of that schedule.
    pub seed: u64,
    /// Where it ran.
    pub device: Option<&'static str>,
    /// What the device's word is worth for this kernel.
    pub evidence: Option<&'static str>,
    /// How the case was reduced.
    pub scale: Option<String>,
    /// Worst error of O over its bound.
    pub o_ratio: Option<f64>,
    /// Worst error of the LSE over its bound.
    pub lse_ratio: Option<f64>,
    /// Why it did not pass, or what was judged less strictly.
    pub reason: Option<String>,
    /// Wall time of this run.
    pub seconds: f64,
    /// Digest of the output's bits; not part of the JSON form.
    #[serde(skip)]
    pub digest: Option<u64>,
}

impl Row {
    /// A case that nothing runs.
    pub fn unsupported(case: &str, seed: u64, reason: String) -> Self {
        Row {
            kernel: "none".to_string(),
            case: case.to_string(),
            status: Status::Unsupported,
            schedule: None,
            seed,
            device: None,
            evidence: None,
            scale: None,
            o_ratio: None,
            lse_ratio: None,
            reason: Some(reason),
            seconds: 0.0,
            digest: None,
        }
    }
}

/// Says before a long run that a file cannot be written. What it holds stays, and no new file is left behind.
///
/// # Errors
/// [`GateError::File`].
pub fn check_writable(path: &Path) -> Result<(), GateError> {
    let existed = path.exists();
    let open = std::fs::OpenOptions::new().append(true).create(true).open(path);
    open.map_err(|source| GateError::File { path: path.to_path_buf(), source })?;
    if !existed {
        // An empty file would do no harm.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes the rows as a JSON array, one object a line.
pub fn write_json(path: &Path, rows: &[Row]) -> Result<(), GateError> {
    let lines: Vec<String> =
        rows.iter().map(|row| serde_json::to_string(row).expect("plain data has a JSON form")).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(path, text).map_err(|source| GateError::File { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_documented_keys() {
        let row = Row::unsupported("x", 3, "why".into());
        let value = serde_json::to_value(&row).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut documented = [
            "kernel",
            "case",
            "status",
            "schedule",
            "seed",
            "device",
            "evidence",
            "scale",
            "o_ratio",
            "lse_ratio",
            "reason",
            "seconds",
        ];
        documented.sort_unstable();
        assert_eq!(keys, documented);
        assert_eq!(value["status"], "unsupported");
        assert!(value["scale"].is_null());
    }

    #[test]
    fn an_unwritable_file_is_named() {
        let error = write_json(Path::new("/no/such/folder/x.json"), &[]).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder/x.json"));
        assert_eq!(error.exit_code(), crate::error::exit::USAGE);
    }
}
