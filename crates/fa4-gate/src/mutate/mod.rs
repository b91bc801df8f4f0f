//! `cargo xtask mutate KERNEL`: breaks a kernel's synchronisation one instruction at a time and asks whether the emulator
//! notices. A mutant that survives is either harmless, and `mutants/KERNEL.toml` says why, or a hole in the emulator.
//!
//! [`target`]: which variants on which cases; [`name`]: what a mutant is called; [`trial`]: one mutant under every schedule
//! until it is caught; [`evidence`]: what was said about it; [`allow`]: the justified survivors; [`state`]: what a run before
//! had found; [`report`]: the verdict.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fa4_host::emu::EmuModule;
use fa4_kernels::compile::Builder;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ptx_emu::mutation::{self, Sizes};

use crate::cli::{MutateArgs, filter};
use crate::error::{GateError, exit};
use crate::kernels::{Kernel, compile, workspace};
use crate::pool;

pub mod allow;
pub mod evidence;
pub mod name;
pub mod report;
pub mod state;
pub mod target;
pub mod trial;

use allow::AllowList;
use name::{Mutant, Sources};
use report::Row;
use state::State;
use target::Target;
use trial::Stage;

/// In the subset: one mutant of this many of each class, at least one.
const SUBSET: usize = 24;

/// Runs the mutants and answers with the exit code: 1 if one survives without a reason.
///
/// # Errors
/// [`GateError`]: flags, a kernel that does not compile or does not pass unbroken, files.
pub fn run(args: &MutateArgs, stop: &AtomicBool) -> Result<u8, GateError> {
    let start = Instant::now();
    let pattern = filter(args.filter.as_deref())?;
    let case_pattern = filter(args.case.as_deref())?;
    let seeds = args.seeds()?;
    let root = workspace();
    let mut targets = target::of(&args.kernel)?;
    targets.retain(|t| case_pattern.as_ref().is_none_or(|p| p.is_match(&t.name())));
    let allowed = AllowList::read(&root, &args.kernel)?;
    let builder = Builder::open(&root)?;
    let sources = Sources::new(&root);
    let kernels = compile(&builder, &root, None, |row| targets.iter().any(|t| t.row == row))?;
    let part = args.subset || pattern.is_some() || case_pattern.is_some();
    let mut state = if args.list { None } else { Some(State::open(&root, &args.kernel, part, args.resume)?) };
    let mut rows = Vec::new();
    let mut interrupted = false;
    for target in &targets {
        let kernel = kernels.iter().find(|k| k.row == target.row);
        let kernel = kernel.ok_or_else(|| broken(target, "it was not compiled"))?;
        let mut mutants = mutants_of(kernel, &sources)?;
        if args.subset {
            mutants = subset(mutants);
        }
        mutants.retain(|m| pattern.as_ref().is_none_or(|p| p.is_match(&listed(target, m))));
        let Some(state) = &mut state else {
            mutants.iter().for_each(|m| println!("{}", listed(target, m)));
            continue;
        };
        let (found, complete) = judge(target, kernel, &mutants, args, &seeds, (state, &root), stop)?;
        interrupted |= !complete;
        rows.extend(found);
        if interrupted {
            break;
        }
    }
    if args.list {
        return Ok(exit::OK);
    }
    if rows.is_empty() && !interrupted {
        return Err(GateError::Flag {
            flag: "--filter",
            value: args.filter.clone().unwrap_or_default(),
            what: "no mutant matches; --list prints all of them".to_string(),
        });
    }
    for row in &mut rows {
        row.justified = allowed.reason(row).map(str::to_string);
    }
    if let Some(path) = &args.json {
        report::write_json(path, &rows)?;
    }
    let complete = !interrupted && !part;
    print(args, &rows, &allowed, complete, interrupted, start.elapsed());
    if let Some(path) = args.doc.as_ref().filter(|_| complete) {
        report::write_doc(path, &args.kernel, &rows)?;
    }
    let holes = rows.iter().any(Row::is_hole);
    let stale = complete && allowed.stale(&rows).next().is_some();
    Ok(match (holes || stale, interrupted) {
        (true, _) => exit::WRONG,
        (false, true) => exit::INTERRUPTED,
        (false, false) => exit::OK,
    })
}

/// A mutant's name as `--list` prints it and `--filter` matches it.
fn listed(target: &Target, mutant: &Mutant) -> String {
    format!("{} {}", target.name(), mutant.id)
}

fn broken(target: &Target, what: &str) -> GateError {
    GateError::Load { kernel: target.name(), what: what.to_string() }
}

/// Every mutant of a kernel, named.
///
/// # Errors
/// [`GateError::File`] where a source line cannot be read.
pub fn mutants_of(kernel: &Kernel<EmuModule>, sources: &Sources) -> Result<Vec<Mutant>, GateError> {
    let module = kernel.module.tree();
    let function = module.functions.iter().find(|f| f.name == kernel.row.entry);
    let Some(function) = function else { return Ok(Vec::new()) };
    let slot = kernel.info.smem.iter().find(|region| region.name == "KV").map_or(0, |region| region.bytes);
    // A box is a panel of 64 columns: 128 bytes of each of 128 rows.
    let sizes = Sizes { slot_bytes: slot.max(16), box_bytes: slot.clamp(16, 16384) };
    let all = mutation::sites(module, function, sizes);
    name::name_all(module, function, all, sources, kernel.row.source)
}

/// Every so many of each class and change: the same ones each time.
fn subset(mutants: Vec<Mutant>) -> Vec<Mutant> {
    let mut seen = std::collections::BTreeMap::<_, usize>::new();
    let keep = |mutant: &Mutant| {
        let number = seen.entry((mutant.mutation.class, mutant.mutation.instruction)).or_default();
        *number += 1;
        *number % SUBSET == 1
    };
    let mut keep = keep;
    mutants.into_iter().filter(|m| keep(m)).collect()
}

/// Rows of the mutants, in their order, and whether all were run.
fn judge(
    target: &Target,
    kernel: &Kernel<EmuModule>,
    mutants: &[Mutant],
    args: &MutateArgs,
    seeds: &std::ops::Range<u64>,
    (state, root): (&mut State, &Path),
    stop: &AtomicBool,
) -> Result<(Vec<Row>, bool), GateError> {
    let stage = Stage::new(target, kernel, seeds.clone(), root)
        .map_err(|what| broken(target, &format!("the kernel fails before it is broken: {what}")))?;
    let fingerprint = state::fingerprint(&kernel.ptx, target, seeds);
    let bar = progress_bar(args.quiet, mutants.len() as u64, &target.name());
    let state = Mutex::new(state);
    let failed: Mutex<Option<GateError>> = Mutex::new(None);
    let outcomes = pool::run(mutants, args.jobs.map_or_else(pool::cores, usize::from), stop, |mutant| {
        let known = pool::lock(&state).get(&fingerprint, &mutant.id);
        let found = known.unwrap_or_else(|| {
            let found = stage.trial(&mutant.mutation);
            if let Err(error) = pool::lock(&state).add(&fingerprint, &mutant.id, &found) {
                pool::lock(&failed).get_or_insert(error);
            }
            found
        });
        bar.inc(1);
        if !found.outcome.is_noticed() && !args.quiet {
            bar.suspend(|| eprintln!("{}: {}", found.outcome.word(), listed(target, mutant)));
        }
        found
    });
    bar.finish_and_clear();
    if let Some(error) = pool::lock(&failed).take() {
        return Err(error);
    }
    let complete = outcomes.iter().all(Option::is_some);
    let rows =
        mutants.iter().zip(outcomes).filter_map(|(mutant, outcome)| Some(Row::new(target, mutant, outcome?)));
    Ok((rows.collect(), complete))
}

fn print(
    args: &MutateArgs,
    rows: &[Row],
    allowed: &AllowList,
    complete: bool,
    interrupted: bool,
    took: Duration,
) {
    if !args.quiet {
        println!("{}", report::table(rows));
    }
    for row in rows.iter().filter(|row| row.is_hole()) {
        println!("hole: {} {} {}", row.target, row.id, row.outcome.word());
        println!(
            "    {}{}",
            row.at,
            if row.via.is_empty() { String::new() } else { format!("  <-  {}", row.via) }
        );
    }
    if complete {
        for entry in allowed.stale(rows) {
            println!(
                "stale: {} allows `{}` of `{}`, which no survivor is",
                args.kernel, entry.mutation, entry.at
            );
        }
    }
    if interrupted {
        println!("interrupted: what had finished is above; --resume goes on from here");
    }
    println!("{} [{:.1} s]", report::summary(rows), took.as_secs_f64());
}

fn progress_bar(quiet: bool, length: u64, name: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return bar;
    }
    let template = "{msg} {bar:30} {pos}/{len}  {elapsed} elapsed, {eta} to go";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_string());
    bar
}

/// Where the justified survivors of a kernel are listed.
pub fn allow_path(root: &Path, kernel: &str) -> std::path::PathBuf {
    root.join("crates/fa4-gate/mutants").join(format!("{kernel}.toml"))
}

#[cfg(test)]
mod tests;
