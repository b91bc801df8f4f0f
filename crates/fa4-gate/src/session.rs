//! Every (case, run) on every core. Expensive cases first, so that no core ends with the longest one alone; data and
//! truth of a case are made once and dropped after its last run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fa4_host::error::{DeviceError, HostError};
use fa4_spec::tolerance::{Mismatch, Wrong};
use indicatif::ProgressBar;

use crate::cli::Run;
use crate::coverage::Coverage;
use crate::judge::{GateDevice, Outcome, Output, Prepared, Verdict, prepare, run};
use crate::kernels::Kernel;
use crate::pool::{self, lock};
use crate::rows::{Row, Status};
use crate::select::Routed;

/// What all runs gave.
#[derive(Debug, Default)]
pub struct Session {
    /// One per run, in the order of the cases and runs given.
    pub rows: Vec<Row>,
    /// Coverage by kernel name.
    pub coverage: BTreeMap<String, Coverage>,
    /// Strict findings, each with how many runs had it.
    pub strict: BTreeMap<String, u64>,
    /// Some runs were not made because of an interrupt.
    pub interrupted: bool,
}

impl Session {
    /// Adds what another device gave. Coverage of a kernel that ran on both is the one with markers, the emulator's.
    pub fn merge(&mut self, other: Session) {
        self.rows.extend(other.rows);
        self.interrupted |= other.interrupted;
        for (finding, runs) in other.strict {
            *self.strict.entry(finding).or_default() += runs;
        }
        for (kernel, coverage) in other.coverage {
            match self.coverage.get_mut(&kernel) {
                Some(known) if known.markers.is_empty() == coverage.markers.is_empty() => {
                    known.join(coverage)
                }
                Some(known) if !known.markers.is_empty() => {}
                _ => drop(self.coverage.insert(kernel, coverage)),
            }
        }
    }
}

/// How a session runs.
pub struct Setup<'a> {
    /// Runs of each case.
    pub runs: &'a [Run],
    /// Word for the device in rows.
    pub device: &'static str,
    /// Threads.
    pub threads: usize,
    /// Strict findings fail a run.
    pub strict: bool,
    /// Set from outside to stop after the runs in progress.
    pub stop: &'a AtomicBool,
    /// Advances by a case's cost after each run.
    pub progress: &'a ProgressBar,
}

/// Shared state of a case's runs.
#[derive(Default)]
struct Shared {
    data: Mutex<Option<Arc<Prepared>>>,
    done: AtomicUsize,
    first: Mutex<Option<(String, Output)>>,
}

/// A kernel with its row's evidence.
pub type Judged<'a, M> = (&'a Kernel<M>, &'static str);

/// Judges every case on its kernel, each once per run. `device` makes a fresh device for a run; a case without a kernel
/// in `kernels` is reported as unsupported.
pub fn judge_all<D: GateDevice>(
    kernels: &[Judged<'_, D::Module>],
    cases: &[Routed],
    setup: &Setup<'_>,
    device: impl Fn(Run) -> D + Sync,
) -> Session
where
    D::Module: Sync,
{
    let mut session = Session::default();
    for (kernel, _) in kernels {
        let coverage = Coverage::of_markers(kernel.markers.iter().cloned());
        session.coverage.insert(kernel.name.clone(), coverage);
    }
    let kernel_of = |case: &Routed| kernels.iter().find(|(k, _)| k.row.entry == case.kernel.entry);
    let mut order: Vec<usize> = (0..cases.len()).filter(|&i| kernel_of(&cases[i]).is_some()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(cases[i].case.cost()));
    let jobs: Vec<(usize, usize)> =
        order.iter().flat_map(|&case| (0..setup.runs.len()).map(move |run| (case, run))).collect();
    let shared: Vec<Shared> = cases.iter().map(|_| Shared::default()).collect();
    let results = pool::run(&jobs, setup.threads, setup.stop, |&(i, r)| {
        let &(kernel, evidence) = kernel_of(&cases[i])?;
        let result = one(kernel, evidence, &cases[i], setup.runs[r], &shared[i], setup, &device);
        setup.progress.inc(cases[i].case.cost() + 1);
        Some((&kernel.name, result))
    });
    session.interrupted = results.iter().any(Option::is_none);
    let mut results: Vec<_> =
        jobs.iter().zip(results).filter_map(|(job, result)| Some((*job, result??))).collect();
    // Back into the order of the cases.
    results.sort_by_key(|(job, _)| *job);
    for (_, (kernel, result)) in results {
        if let Some(coverage) = session.coverage.get_mut(kernel) {
            match result.row.status {
                Status::Pass => coverage.add(&result.covers),
                _ => coverage.add_failing(&result.covers),
            }
        }
        for finding in result.strict {
            *session.strict.entry(finding).or_default() += 1;
        }
        session.rows.push(result.row);
    }
    for case in cases.iter().filter(|case| kernel_of(case).is_none()) {
        let reason = format!("the candidate defines no entry function `{}`", case.kernel.entry);
        session.rows.push(Row::unsupported(&case.case.id, case.case.seed, reason));
    }
    session
}

/// A run with what it adds to the counts.
struct RunResult {
    row: Row,
    covers: BTreeMap<String, u64>,
    strict: Vec<String>,
}

fn one<D: GateDevice>(
    kernel: &Kernel<D::Module>,
    evidence: &'static str,
    routed: &Routed,
    how: Run,
    shared: &Shared,
    setup: &Setup<'_>,
    device: &(impl Fn(Run) -> D + Sync),
) -> RunResult {
    let (case, start) = (&routed.case, Instant::now());
    let mut row = Row {
        kernel: kernel.name.clone(),
        schedule: Some(how.schedule.as_str()),
        seed: how.seed,
        device: Some(setup.device),
        evidence: Some(evidence),
        scale: case.scale.clone(),
        ..Row::unsupported(&case.id, how.seed, String::new())
    };
    let data = {
        let mut slot = lock(&shared.data);
        match &*slot {
            Some(data) => Ok(Arc::clone(data)),
            None => prepare(case).map(|data| Arc::clone(slot.insert(Arc::new(data)))),
        }
    };
    let data = match data {
        Ok(data) => data,
        Err(error) => {
            row.reason = Some(error.to_string());
            return RunResult { row, covers: BTreeMap::new(), strict: Vec::new() };
        }
    };
    let mut device = device(how);
    if !device.has_schedules() {
        row.schedule = None;
    }
    let outcome = run(kernel, case, &data, &mut device);
    if shared.done.fetch_add(1, Ordering::Relaxed) + 1 == setup.runs.len() {
        *lock(&shared.data) = None;
    }
    let strict = device.strict_findings();
    (row.status, row.reason) = status(&outcome.verdict);
    if let Verdict::Pass(judgement) = outcome.verdict {
        (row.o_ratio, row.lse_ratio) = (Some(judgement.o.ratio), Some(judgement.lse.ratio));
        if setup.strict
            && let Some(finding) = strict.first()
        {
            (row.status, row.reason) = (Status::Fault, Some(format!("strict: {finding}")));
        }
    }
    if let Verdict::Wrong(wrong) = &outcome.verdict {
        set_ratios(&mut row, wrong);
    }
    row.digest = outcome.output.as_ref().map(Output::digest);
    compare_bits(&mut row, outcome, how, &shared.first);
    row.seconds = start.elapsed().as_secs_f64();
    RunResult { row, covers: device.covers(), strict }
}

/// The status word and the reason of a verdict.
pub fn status(verdict: &Verdict) -> (Status, Option<String>) {
    match verdict {
        Verdict::Pass(judgement) if judgement.wide => {
            let note = "logits too large for T2: finiteness, winning key and T1 judged";
            (Status::Pass, Some(note.to_string()))
        }
        Verdict::Pass(_) => (Status::Pass, None),
        Verdict::Wrong(mismatch) => (Status::Fail, Some(mismatch.to_string())),
        Verdict::Device(error) => {
            let status = match error {
                DeviceError::Timeout(_) => Status::Timeout,
                DeviceError::OutOfMemory { .. } => Status::Unsupported,
                _ => Status::Fault,
            };
            (status, Some(error.to_string()))
        }
        Verdict::Host(error @ HostError::Unsupported { .. }) => {
            (Status::Unsupported, Some(error.to_string()))
        }
        Verdict::Host(error) => (Status::Fail, Some(error.to_string())),
    }
}

fn set_ratios(row: &mut Row, wrong: &Wrong) {
    for mismatch in &wrong.0 {
        match mismatch {
            Mismatch::OutOfBounds { which: "O", worst, .. } => row.o_ratio = Some(worst.ratio),
            Mismatch::OutOfBounds { worst, .. } => row.lse_ratio = Some(worst.ratio),
            _ => {}
        }
    }
}

/// The arithmetic of a kernel is fixed by its program: two schedules that give different bits have a race, even where both
/// are within bounds. Runs that failed by themselves take no part.
fn compare_bits(row: &mut Row, outcome: Outcome, how: Run, first: &Mutex<Option<(String, Output)>>) {
    let Some(output) = outcome.output.filter(|_| row.status == Status::Pass) else { return };
    let mut first = lock(first);
    match &*first {
        None => {
            let name = row.schedule.map_or("in an earlier run".to_string(), |schedule| {
                format!("under schedule {schedule} (seed {})", how.seed)
            });
            *first = Some((name, output));
        }
        Some((_, bits)) if bits.same_bits(&output) => {}
        Some((other, _)) => {
            row.status = Status::Fail;
            row.reason = Some(format!("other bits than {other}, though both are within bounds: a race"));
        }
    }
}
