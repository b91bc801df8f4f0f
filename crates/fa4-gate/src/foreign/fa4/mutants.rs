//! FlashAttention's kernels with one instruction of their synchronisation changed: does the emulator notice in code that
//! nobody wrote for it?
//!
//! The mutations are those of `cargo xtask mutate`. Nobody triages the survivors here: many waits are redundant on a given path
//! of a kernel that we do not own. The figures say what a clean verdict on such a kernel is worth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use ptx_emu::mutation::{self, Mutation, Sizes};
use tabled::builder::Builder;
use tabled::settings::Style;

use super::run::{Job, Outcome, run_module};
use crate::cli::Run;
use crate::error::{GateError, exit};
use crate::foreign::command::{ForeignArgs, progress};
use crate::pool;
use crate::rows::Status;

/// A K tile of 128 keys of 128 16-bit elements, and the half of it that one copy brings.
const SIZES: Sizes = Sizes { slot_bytes: 32768, box_bytes: 16384 };
/// A mutant that takes so many times the instructions of the original hangs.
const PATIENCE: u64 = 8;

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Fault,
    Wrong,
    Hang,
    Strict,
    Refused,
    Survived,
}

impl Fate {
    const ALL: [Fate; 6] =
        [Fate::Fault, Fate::Wrong, Fate::Hang, Fate::Strict, Fate::Refused, Fate::Survived];

    const fn word(self) -> &'static str {
        match self {
            Fate::Fault => "fault",
            Fate::Wrong => "wrong result",
            Fate::Hang => "hang reported",
            Fate::Strict => "strict only",
            Fate::Refused => "refused",
            Fate::Survived => "survived",
        }
    }
}

/// The unbroken kernel on one case.
struct Scene<'a> {
    job: &'a Job,
    original: Outcome,
    codes: BTreeSet<&'static str>,
    step_limit: u64,
}

/// Mutates the first kernel among `jobs`, on all of its cases that share its PTX, the smallest first.
///
/// # Errors
/// [`GateError::Findings`] where the unbroken kernel does not pass.
pub fn run(jobs: &[Job], runs: &[Run], args: &ForeignArgs, stop: &AtomicBool) -> Result<u8, GateError> {
    let Some(first) = jobs.first() else { return Ok(exit::USAGE) };
    let scenes: Vec<Scene<'_>> = jobs
        .iter()
        .filter(|job| job.case.kernel == first.case.kernel && job.ptx == first.ptx)
        .map(|job| Scene::new(job, runs[0]))
        .collect::<Result<_, _>>()?;
    let function = first.module.functions.iter().position(|f| f.name == first.launch.entry);
    let function = function.expect("the launch was checked against the module");
    let mutations = mutation::sites(&first.module, &first.module.functions[function], SIZES);
    let bar = progress(args, mutations.len());
    let fates = pool::run(&mutations, pool::cores(), stop, |mutation| {
        let fate = fate(&scenes, function, mutation, runs);
        bar.inc(1);
        fate
    });
    bar.finish_and_clear();
    let interrupted = fates.iter().any(Option::is_none);
    print(&format!("fa4/{}", first.case.kernel), &mutations, &fates, args.quiet);
    Ok(if interrupted { exit::INTERRUPTED } else { exit::OK })
}

impl<'a> Scene<'a> {
    fn new(job: &'a Job, how: Run) -> Result<Self, GateError> {
        let original = super::run::run(job, how);
        if original.row.status != Status::Pass {
            let reason = original.row.reason.unwrap_or_default();
            return Err(GateError::Findings(format!("{} does not pass unbroken: {reason}", job.case.name())));
        }
        let codes = original.findings.iter().map(|finding| finding.code).collect();
        let step_limit = original.counters.as_ref().map_or(u64::MAX, |c| c.steps.saturating_mul(PATIENCE));
        Ok(Self { job, original, codes, step_limit })
    }

    fn fate(&self, mutant: &ptx_emu::Module, how: Run) -> Fate {
        let outcome = run_module(self.job, mutant, how, self.step_limit);
        match outcome.row.status {
            Status::Unsupported => Fate::Refused,
            Status::Timeout => Fate::Hang,
            Status::Fault if outcome.findings.iter().any(|f| f.code == "deadlock") => Fate::Hang,
            Status::Fault => Fate::Fault,
            Status::Fail => Fate::Wrong,
            // The arithmetic is fixed by the program: other bits are another result, however near.
            Status::Pass if outcome.output != self.original.output => Fate::Wrong,
            Status::Pass if outcome.findings.iter().any(|f| !self.codes.contains(f.code)) => Fate::Strict,
            Status::Pass => Fate::Survived,
        }
    }
}

/// The first fate that notices; strict remarks give way to anything stronger.
fn fate(scenes: &[Scene<'_>], function: usize, mutation: &Mutation, runs: &[Run]) -> Fate {
    let mut last = Fate::Survived;
    for scene in scenes {
        let Some(mutant) = mutation::apply(&scene.job.module, function, mutation) else {
            return Fate::Refused;
        };
        for how in runs {
            match scene.fate(&mutant, *how) {
                Fate::Survived => {}
                Fate::Strict => last = Fate::Strict,
                noticed => return noticed,
            }
        }
    }
    last
}

fn print(kernel: &str, mutations: &[Mutation], fates: &[Option<Fate>], quiet: bool) {
    let mut by_class: BTreeMap<&str, BTreeMap<Fate, usize>> = BTreeMap::new();
    for (mutation, fate) in mutations.iter().zip(fates) {
        if let Some(fate) = fate {
            *by_class.entry(mutation.class.as_str()).or_default().entry(*fate).or_default() += 1;
        }
    }
    let mut table = Builder::default();
    table.push_record(["class"].into_iter().chain(Fate::ALL.map(Fate::word)));
    let mut all: BTreeMap<Fate, usize> = BTreeMap::new();
    for (class, counts) in &by_class {
        let cells = Fate::ALL.map(|fate| counts.get(&fate).copied().unwrap_or(0));
        table.push_record([class.to_string()].into_iter().chain(cells.map(|n| n.to_string())));
        for (fate, n) in counts {
            *all.entry(*fate).or_default() += n;
        }
    }
    let cells = Fate::ALL.map(|fate| all.get(&fate).copied().unwrap_or(0));
    table.push_record(["all".to_string()].into_iter().chain(cells.map(|n| n.to_string())));
    println!("{kernel}\n{}", table.build().with(Style::sharp()));
    if quiet {
        return;
    }
    for (mutation, fate) in mutations.iter().zip(fates) {
        if matches!(fate, Some(Fate::Survived)) {
            println!("survived: {} {} at instruction {}", mutation.instruction, mutation.change, mutation.at);
        }
    }
}
