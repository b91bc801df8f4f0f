//! The foreign kernels as a section of the gate: the same runs, rows and exit code as our own kernels.

use std::sync::{Mutex, atomic::AtomicBool};
use std::time::Instant;

use indicatif::ProgressBar;
use ptx_emu::launch::Options;
use regex::Regex;

use crate::cli::Run;
use crate::foreign::findings::Finding;
use crate::foreign::{self, Case, Emulator, Error, Fault, Kernel, Setup};
use crate::pool;
use crate::rows::{Row, Status};

/// Namespace of the foreign kernels in tables.
pub const NAMESPACE: &str = "triton";

/// A foreign kernel's case and its data, made by the first of its runs.
pub struct Job {
    kernel: usize,
    case: Case,
    setup: Mutex<Option<std::sync::Arc<Setup>>>,
}

/// What the section runs.
pub struct Section {
    kernels: Vec<Kernel>,
    jobs: Vec<Job>,
}

impl Section {
    /// The committed kernels with the cases that `filter` leaves.
    pub fn open(filter: Option<&Regex>) -> Result<Self, Error> {
        let kernels = foreign::kernels()?;
        let mut jobs = Vec::new();
        for (kernel, k) in kernels.iter().enumerate() {
            for case in foreign::cases(k) {
                let name = format!("{NAMESPACE}/{}/{}", k.id(), case.problem);
                if filter.is_none_or(|f| f.is_match(&name)) {
                    jobs.push(Job { kernel, case, setup: Mutex::new(None) });
                }
            }
        }
        Ok(Section { kernels, jobs })
    }

    /// PTX of every kernel.
    pub fn ptx(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.ptx)
    }

    /// Cases that are run.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether nothing is run.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// One row per case and run; fewer where `stop` was set. `progress` advances by `cost` per row.
    pub fn judge(
        &self,
        runs: &[Run],
        strict: bool,
        stop: &AtomicBool,
        progress: &ProgressBar,
        cost: u64,
    ) -> (Vec<Row>, bool) {
        let (results, interrupted) = self.judge_and_remark(runs, strict, stop, progress, cost);
        (results.into_iter().map(|(row, _)| row).collect(), interrupted)
    }

    /// The same, with what the emulator remarked on each run.
    pub fn judge_and_remark(
        &self,
        runs: &[Run],
        strict: bool,
        stop: &AtomicBool,
        progress: &ProgressBar,
        cost: u64,
    ) -> (Vec<(Row, Vec<Finding>)>, bool) {
        let jobs: Vec<(&Job, Run)> =
            self.jobs.iter().flat_map(|job| runs.iter().map(move |run| (job, *run))).collect();
        let rows = pool::run(&jobs, pool::cores(), stop, |(job, run)| {
            let row = self.one(job, *run, strict);
            progress.inc(cost);
            row
        });
        let interrupted = rows.iter().any(Option::is_none);
        (rows.into_iter().flatten().collect(), interrupted)
    }

    fn one(&self, job: &Job, how: Run, strict: bool) -> (Row, Vec<Finding>) {
        let (kernel, start) = (&self.kernels[job.kernel], Instant::now());
        let setup = {
            let mut slot = pool::lock(&job.setup);
            slot.get_or_insert_with(|| foreign::setup(&job.case).into()).clone()
        };
        let options = Options { schedule: how.schedule, seed: how.seed, strict, ..Options::default() };
        let mut device = Emulator::new(options);
        let (status, ratio, reason) = match foreign::run(kernel, &setup, &mut device) {
            Err(Error::Fault(Fault::Timeout(what))) => (Status::Timeout, None, Some(what)),
            Err(error) => (Status::Fault, None, Some(error.to_string())),
            Ok(outputs) => {
                let ratio = outputs.iter().map(|output| output.ratio).fold(0.0, f64::max);
                let wrong: Vec<String> =
                    outputs.iter().filter(|o| !o.passed()).map(ToString::to_string).collect();
                match wrong.is_empty() {
                    true => (Status::Pass, Some(ratio), None),
                    false => (Status::Fail, Some(ratio), Some(wrong.join("; "))),
                }
            }
        };
        let name = format!("{NAMESPACE}/{}", kernel.id());
        let findings = device.report().map(|report| Finding::all(&name, report)).unwrap_or_default();
        let row = Row {
            kernel: name,
            case: job.case.problem.to_string(),
            status,
            schedule: Some(how.schedule.as_str()),
            seed: how.seed,
            device: Some("emu"),
            evidence: Some("foreign"),
            scale: None,
            o_ratio: ratio,
            lse_ratio: None,
            reason,
            seconds: start.elapsed().as_secs_f64(),
            digest: None,
        };
        (row, findings)
    }
}
