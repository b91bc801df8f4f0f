//! The committed record of a whole run: which kernels, made by what, how far from the truth, and what was remarked.
//!
//! The kernels themselves are other people's and are not committed; hashes say which they were. Whoever installs the same
//! versions gets the same file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::capture::{Captured, hex, key};
use super::catalog::{ARCH, Fa4Case};
use super::run::{Job, Outcome};
use super::{Error, FOLDER, read, write};
use crate::evidence::opcodes;
use crate::foreign::findings::{Class, Triage};
use crate::rows::Status;

const FILE: &str = "evidence.json";

/// The whole record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// SHA-256 of the scripts, the pinned versions and the cases.
    pub made_from: String,
    /// Package versions.
    pub versions: BTreeMap<String, String>,
    /// Architecture that the kernels were compiled for.
    pub arch: String,
    /// Schedules, with the seed of the random one.
    pub schedules: Vec<String>,
    /// One entry per case.
    pub cases: Vec<CaseRecord>,
    /// What was remarked, by code: class, and how many runs.
    pub findings: BTreeMap<String, FindingRecord>,
    /// Every opcode of the kernels whose cases all pass.
    pub opcodes: BTreeSet<String>,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseRecord {
    /// Family of kernels.
    pub kernel: String,
    /// Sizes: batch, seqlen_q, seqlen_k, heads of Q and of K.
    pub case: String,
    /// SHA-256 of the PTX that served it.
    pub ptx_sha256: String,
    /// CTAs in the grid.
    pub grid: [u32; 3],
    /// CTAs in a cluster.
    pub cluster: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// `pass`, or the worst of its runs.
    pub status: String,
    /// Runs, one per schedule; all gave the same bits where they passed.
    pub runs: usize,
    /// Worst error of O over its bound.
    pub o_ratio: Option<f64>,
    /// Worst error of the LSE over its bound.
    pub lse_ratio: Option<f64>,
    /// Warp instructions of the first run.
    pub warp_instructions: u64,
    /// Matrix instructions of the first run.
    pub matrix_instructions: u64,
}

/// Remarks of one code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingRecord {
    /// What they are; none for what nothing explains.
    pub class: Option<Class>,
    /// Runs with at least one.
    pub runs: usize,
}

impl Evidence {
    /// The record of a run over `cases`.
    ///
    /// # Errors
    /// Where the scripts cannot be read.
    pub fn of(
        root: &Path,
        cases: &[Fa4Case],
        captured: &Captured,
        jobs: &[Job],
        outcomes: &[Outcome],
        triage: &Triage,
    ) -> Result<Self, Error> {
        let mut schedules = BTreeSet::new();
        let mut findings: BTreeMap<String, FindingRecord> = BTreeMap::new();
        for outcome in outcomes {
            schedules.insert(match outcome.row.schedule {
                Some("random") => format!("random {}", outcome.row.seed),
                other => other.unwrap_or("-").to_string(),
            });
            for code in outcome.findings.iter().map(|f| f.code).collect::<BTreeSet<_>>() {
                let explained =
                    outcome.findings.iter().filter(|f| f.code == code).find_map(|f| triage.explain(f));
                let class = explained.and_then(|n| triage.entries().nth(n)).map(|entry| entry.class);
                let record = findings.entry(code.to_string());
                record.or_insert(FindingRecord { class, runs: 0 }).runs += 1;
            }
        }
        let records: Vec<CaseRecord> = jobs.iter().map(|job| record(job, outcomes)).collect();
        let mut proven = BTreeSet::new();
        for job in jobs {
            let mut of_kernel = records.iter().filter(|r| r.kernel == job.case.kernel);
            if of_kernel.all(|r| r.status == Status::Pass.name()) {
                proven.extend(opcodes(&job.ptx).into_iter().map(str::to_string));
            }
        }
        Ok(Self {
            made_from: key(root, cases)?,
            versions: captured.versions.clone(),
            arch: ARCH.to_string(),
            schedules: schedules.into_iter().collect(),
            cases: records,
            findings,
            opcodes: proven,
        })
    }

    /// Reads the committed record.
    ///
    /// # Errors
    /// Where it is missing or not what it should be.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let path = root.join(FOLDER).join(FILE);
        let evidence = serde_json::from_str(&read(path.clone())?);
        evidence.map_err(|e| Error::Content { path, what: e.to_string() })
    }

    /// Writes it, one case a line.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self, root: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("plain data has a JSON form");
        write(root.join(FOLDER).join(FILE), &(text + "\n"))
    }
}

fn record(job: &Job, outcomes: &[Outcome]) -> CaseRecord {
    let is_ours = |o: &&Outcome| {
        o.row.case == job.case.case.id
            && o.row.kernel.split_once('/').is_some_and(|(_, k)| k == job.case.kernel)
    };
    let ours: Vec<&Outcome> = outcomes.iter().filter(is_ours).collect();
    let failing = ours.iter().find(|o| o.row.status != Status::Pass);
    let thousandths = |x: f64| (x * 1000.0).round() / 1000.0;
    let worst = |ratio: fn(&Outcome) -> Option<f64>| {
        ours.iter().filter_map(|o| ratio(o)).reduce(f64::max).map(thousandths)
    };
    let counters = ours.first().and_then(|o| o.counters.as_ref());
    CaseRecord {
        kernel: job.case.kernel.to_string(),
        case: job.case.case.id.clone(),
        ptx_sha256: hex(&Sha256::digest(&job.ptx)),
        grid: job.launch.grid,
        cluster: job.launch.cluster,
        block: job.launch.block,
        shared_bytes: job.launch.shared_bytes,
        status: failing.map_or(Status::Pass, |o| o.row.status).name().to_string(),
        runs: ours.len(),
        o_ratio: worst(|o| o.row.o_ratio),
        lse_ratio: worst(|o| o.row.lse_ratio),
        warp_instructions: counters.map_or(0, |c| c.steps),
        matrix_instructions: counters.map_or(0, |c| c.mmas),
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalog::cases;
    use super::*;
    use crate::kernels::workspace;

    /// Whoever changes a script, a version or a case runs `cargo xtask foreign fa4 --evidence` again.
    #[test]
    fn the_committed_record_is_of_these_scripts_and_cases() {
        let (root, cases) = (workspace(), cases(1));
        let evidence = Evidence::open(&root).unwrap();
        assert_eq!(evidence.made_from, key(&root, &cases).unwrap());
        let recorded: Vec<_> = evidence.cases.iter().map(|c| (c.kernel.clone(), c.case.clone())).collect();
        let catalogued: Vec<_> = cases.iter().map(|c| (c.kernel.to_string(), c.case.id.clone())).collect();
        assert_eq!(recorded, catalogued);
    }

    #[test]
    fn the_committed_record_has_no_failure_and_nothing_unexplained() {
        let evidence = Evidence::open(&workspace()).unwrap();
        for case in &evidence.cases {
            assert!(["pass", "unsupported"].contains(&case.status.as_str()), "{case:?}");
            let ratios = [case.o_ratio, case.lse_ratio];
            assert!(case.status != "pass" || ratios.iter().all(|r| r.is_some_and(|r| r <= 1.0)), "{case:?}");
        }
        assert!(evidence.findings.values().all(|finding| finding.class.is_some()), "{:?}", evidence.findings);
        assert!(evidence.cases.iter().any(|case| case.status == "pass"));
    }

    /// The versions that were installed are the ones that are asked for.
    #[test]
    fn the_recorded_versions_are_the_pinned_ones() {
        let root = workspace();
        let pinned = read(root.join(FOLDER).join("requirements.txt")).unwrap();
        for (name, version) in Evidence::open(&root).unwrap().versions {
            assert!(pinned.lines().any(|line| line == format!("{name}=={version}")), "{name} {version}");
        }
    }
}
