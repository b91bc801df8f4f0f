//! `cargo xtask foreign fa4`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::Error;
use super::NAMESPACE;
use super::capture::Captured;
use super::catalog::{Fa4Case, cases};
use super::evidence::Evidence;
use super::mutants;
use super::package::Package;
use super::run::{Job, Outcome, run as run_one};
use crate::cli::{Run, filter};
use crate::error::GateError;
use crate::foreign::command::{ForeignArgs, nothing_matches, progress, verdict};
use crate::foreign::findings::Triage;
use crate::judge::prepare;
use crate::kernels::workspace;
use crate::pool;
use crate::rows::{Row, Status};

/// What is wanted besides a verdict.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Install the package where it is missing.
    pub setup: bool,
    /// Write the record.
    pub evidence: bool,
    /// Break the kernels in place of judging them.
    pub mutate: bool,
}

/// What is prepared, in words.
pub fn state(root: &Path) -> Result<String, GateError> {
    let cases = cases(1);
    let captured = match Captured::cached(root, &cases)? {
        Some(captured) => format!("captured in {}", captured.folder.display()),
        None => "not captured yet".to_string(),
    };
    let package = match Package::open(root) {
        Ok(_) => "installed".to_string(),
        Err(error) => error.to_string(),
    };
    Ok(format!("{} cases, {captured}; package {package}", cases.len()))
}

/// Prepares what is missing, runs the cases that are wanted, judges and triages.
pub fn run(args: &ForeignArgs, task: Task, stop: &AtomicBool) -> Result<u8, GateError> {
    let Task { setup, evidence, mutate } = task;
    let root = workspace();
    let runs = args.runs()?;
    let pattern = filter(args.filter.as_deref())?;
    let triage = Triage::open(&root).map_err(GateError::Findings)?;
    let say = |what: &str| {
        if !args.quiet {
            eprintln!("{what}");
        }
    };
    // Always all of them: what is captured does not depend on what is asked for today.
    let all = cases(args.seed);
    let captured = match Captured::cached(&root, &all)? {
        Some(captured) if !setup => captured,
        _ => {
            let package = if setup { Package::set_up(&root, say)? } else { Package::open(&root)? };
            Captured::of(&root, &all, &package, say)?
        }
    };
    let wanted: Vec<&Fa4Case> = all
        .iter()
        .filter(|case| {
            let name = format!("{NAMESPACE}/{}/{}", case.kernel, case.case.id);
            pattern.as_ref().is_none_or(|p| p.is_match(&name))
        })
        .collect();
    if wanted.is_empty() {
        return Ok(nothing_matches());
    }
    let mut jobs = Vec::new();
    for case in wanted {
        jobs.push(job(case, &captured)?);
    }
    if mutate {
        return mutants::run(&jobs, &runs, args, stop);
    }
    let order: Vec<(&Job, Run)> =
        jobs.iter().flat_map(|job| runs.iter().map(move |run| (job, *run))).collect();
    let progress = progress(args, order.len());
    let outcomes = pool::run(&order, pool::cores(), stop, |(job, how)| {
        let outcome = run_one(job, *how);
        progress.inc(1);
        outcome
    });
    progress.finish_and_clear();
    let interrupted = outcomes.iter().any(Option::is_none);
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    compare_bits(&mut outcomes);
    let sorted = triage.sort(outcomes.iter().map(|outcome| outcome.findings.as_slice()));
    if evidence && !interrupted {
        Evidence::of(&root, &all, &captured, &jobs, &outcomes, &triage)?.write(&root)?;
    }
    let rows: Vec<Row> = outcomes.into_iter().map(|outcome| outcome.row).collect();
    Ok(verdict(NAMESPACE, args, &rows, &triage, &sorted, interrupted))
}

fn job(case: &Fa4Case, captured: &Captured) -> Result<Job, GateError> {
    let launch = captured.launch(case)?;
    let ptx = captured.ptx(&launch.ptx)?;
    let module = ptx_emu::syntax::parse(&case.name(), &ptx)
        .map_err(|e| Error::Content { path: captured.folder.join(&launch.ptx), what: e.to_string() })?;
    let data = prepare(&case.case).expect("the catalog asks for data that can be made");
    Ok(Job { case: case.clone(), launch, ptx, module, data })
}

/// The arithmetic of a kernel is fixed by its program: two schedules that give different bits have a race, even where both
/// are within bounds.
fn compare_bits(outcomes: &mut [Outcome]) {
    let mut first: BTreeMap<(String, String), usize> = BTreeMap::new();
    for i in 0..outcomes.len() {
        if outcomes[i].row.status != Status::Pass {
            continue;
        }
        let name = (outcomes[i].row.kernel.clone(), outcomes[i].row.case.clone());
        let j = *first.entry(name).or_insert(i);
        if outcomes[i].output != outcomes[j].output {
            let other = outcomes[j].row.schedule.unwrap_or("-");
            let reason = format!("other bits than under {other}, though both are within bounds: a race");
            (outcomes[i].row.status, outcomes[i].row.reason) = (Status::Fail, Some(reason));
        }
    }
}
