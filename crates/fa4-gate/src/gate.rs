//! The gate from flags to exit code.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Builder, CUDA_FOLDER};
use fa4_kernels::manifest::{ROWS, Row as KernelRow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ptx_emu::launch::{Options, Schedule};
use ptx_emu::render;

use crate::cli::{DeviceKind, GateArgs, Run, filter};
use crate::error::{GateError, exit};
use crate::evidence::Evidence;
use crate::foreign::fa4;
use crate::foreign_section::Section;
use crate::gpu::{GpuRun, Places};
use crate::kernels::{Candidate, Kernel, compile, compile_for_gpu, ring_depth, takes_candidates, workspace};
use crate::rows::{Row, Status, check_writable, write_json};
use crate::select::{Routed, Source, left_to_others, select, select_full, thinned};
use crate::session::{Session, Setup, judge_all};
use crate::{evidence, gpu, pipeline, pool, probes, table};

/// Cost of a foreign case in the unit of [`fa4_spec::Case::cost`], roughly.
const FOREIGN_COST: u64 = 10;

/// Runs the gate and answers with its exit code.
pub fn gate(args: &GateArgs, stop: &AtomicBool) -> Result<u8, GateError> {
    let start = Instant::now();
    // Everything that can be wrong with the flags and the machine is said before anything is compiled.
    let runs = args.runs()?;
    let pattern = filter(args.filter.as_deref())?;
    args.json.iter().try_for_each(|path| check_writable(path))?;
    let root = workspace();
    let source = match &args.configs {
        Some(path) => Source::File(path),
        None if args.smoke => Source::Smoke,
        None => Source::Full(&root),
    };
    let mut routed = select(source, pattern.as_ref(), args.seed, |_| 1)?.routed;
    let places = Places::open(args.device)?;
    let candidate = args.cand.as_deref().zip(args.namespace.as_deref());
    let candidate = candidate.map(|(path, namespace)| Candidate { path, namespace });
    // For the whole set every variant is compiled: one that no case needs is a gap in coverage.
    let whole = pattern.is_none() && args.configs.is_none() && !args.smoke;
    let brief = whole && args.device == DeviceKind::Auto;
    routed.retain(|r| !(brief && places.on_emulator(r.kernel) && left_to_others(r)));
    let wanted = |row: &KernelRow| match brief && thinned(row.kernel) && places.on_emulator(row) {
        true => routed.iter().any(|r| r.kernel == row),
        false => whole || routed.iter().any(|r| r.kernel == row),
    };
    let builder = Builder::open(&root)?;
    let emulated = |row: &KernelRow| wanted(row) && places.on_emulator(row);
    let kernels = compile(&builder, &root, candidate, emulated)?;
    let mut on_gpus = Vec::new();
    for place in places.gpus() {
        let here = |row: &KernelRow| wanted(row) && places.gpu_arch(row) == Some(place.0);
        on_gpus.push((place, compile_for_gpu(&builder, &root, candidate, here, place)?));
    }
    let compiled = start.elapsed();

    let depth = |row: &KernelRow| {
        let emulated = kernels.iter().find(|k| k.row == row).map(|k| &k.info);
        let on_gpu =
            || on_gpus.iter().find_map(|(_, all)| all.iter().find(|k| k.row == row).map(|k| &k.info));
        emulated.or_else(on_gpu).map_or(1, ring_depth)
    };
    let least_blocks = |row: &KernelRow| depth(row) + 2;
    let mut selection = select(source, pattern.as_ref(), args.seed, least_blocks)?;
    // A candidate stands for the kernel of one architecture only.
    selection.routed.retain(|r| candidate.is_none() || takes_candidates(r.kernel));
    // Compared with the emulator, the GPU gets the emulator's sizes; alone it gets the full ones.
    let for_gpus = match args.device {
        DeviceKind::Both => selection.routed.clone(),
        _ => select_full(source, pattern.as_ref(), args.seed, least_blocks)?.routed,
    };
    let on_emulator: Vec<Routed> =
        selection.routed.iter().filter(|r| places.on_emulator(r.kernel)).cloned().collect();
    let on_emulator: Vec<Routed> =
        on_emulator.into_iter().filter(|r| !(brief && left_to_others(r))).collect();
    let progress = progress_bar(args.quiet);
    let cost = |cases: &[Routed]| cases.iter().map(|r| r.case.cost() + 1).sum::<u64>();
    // The foreign kernels prove the emulator and need no candidate, no file and no smoke.
    let with_foreign =
        candidate.is_none() && args.configs.is_none() && !args.smoke && args.device != DeviceKind::Cuda;
    let foreign = Section::open(pattern.as_ref())?;
    // So do the instruction probes, wherever the emulator is what is asked about.
    let with_probes = with_foreign && matches!(args.device, DeviceKind::Emu | DeviceKind::Both);
    let probes = with_probes.then(|| probes::Section::open(&root, pattern.as_ref())).transpose()?;
    let probes = probes.filter(|probes| !probes.is_empty());
    let probed = places.gpus().first().filter(|_| probes.is_some());
    let probe_code =
        probes.as_ref().zip(probed).map(|(section, gpu)| section.compile(&builder, gpu)).transpose()?;
    let foreign_cases = if with_foreign { foreign.len() as u64 } else { 0 };
    if selection.routed.is_empty()
        && selection.unsupported.is_empty()
        && foreign_cases == 0
        && probes.is_none()
    {
        eprintln!(
            "error: nothing to judge: no case matches; a filter is matched against KERNEL_ENTRY/CASE_ID"
        );
        return Ok(exit::USAGE);
    }
    progress.set_length((cost(&on_emulator) + foreign_cases * FOREIGN_COST) * runs.len() as u64);

    let mut session = Session::default();
    let gpu_runs = vec![Run { schedule: Schedule::Eager, seed: args.seed }; gpu::RUNS];
    for ((arch, gpu), kernels) in &on_gpus {
        let here = |r: &&Routed| places.gpu_arch(r.kernel) == Some(*arch);
        let cases: Vec<Routed> = for_gpus.iter().filter(here).cloned().collect();
        progress.inc_length(cost(&cases) * gpu_runs.len() as u64);
        let setup = Setup {
            runs: &gpu_runs,
            device: "cuda",
            threads: gpu::THREADS.min(pool::cores()),
            strict: false,
            stop,
            progress: &progress,
        };
        let judged: Vec<_> = kernels.iter().map(|kernel| (kernel, Evidence::Silicon.name())).collect();
        let judge =
            |cases: &[Routed], setup: &Setup<'_>| judge_all(&judged, cases, setup, |_| GpuRun::new(gpu));
        let mut first = judge(&cases, &setup);
        // What did not fit beside the others gets the GPU alone.
        let is_crowded = |row: &Row, r: &Routed| {
            row.status == Status::Unsupported && row.case == r.case.id && row.kernel != "none"
        };
        let crowded: Vec<Routed> =
            cases.iter().filter(|r| first.rows.iter().any(|row| is_crowded(row, r))).cloned().collect();
        if !crowded.is_empty() {
            first.rows.retain(|row| !crowded.iter().any(|r| r.case.id == row.case));
            first.merge(judge(&crowded, &Setup { threads: 1, ..setup }));
        }
        session.merge(first);
    }
    let of_fa4 = fa4::evidence::Evidence::open(&root)?.opcodes;
    let proven: BTreeSet<&str> =
        foreign.ptx().flat_map(evidence::opcodes).chain(of_fa4.iter().map(String::as_str)).collect();
    let judged: Vec<(&Kernel<EmuModule>, &'static str)> =
        kernels.iter().map(|kernel| (kernel, evidence::of(&kernel.ptx, &proven).0.name())).collect();
    let setup = Setup {
        runs: &runs,
        device: "emu",
        threads: pool::cores(),
        strict: args.strict,
        stop,
        progress: &progress,
    };
    session.merge(judge_all(&judged, &on_emulator, &setup, |run: Run| {
        let options =
            Options { schedule: run.schedule, seed: run.seed, strict: args.strict, ..Options::default() };
        EmuDevice::new(options).with_sources(root.join(CUDA_FOLDER))
    }));
    if with_foreign {
        let (rows, interrupted) = foreign.judge(&runs, args.strict, stop, &progress, FOREIGN_COST);
        session.rows.extend(rows);
        session.interrupted |= interrupted;
    }
    if let Some(probes) = &probes {
        let gpu = probed.zip(probe_code.as_ref()).map(|((_, gpu), code)| (gpu, code));
        let (rows, interrupted) = probes.judge(gpu, stop)?;
        session.rows.extend(rows);
        session.interrupted |= interrupted;
    }
    progress.finish_and_clear();
    let homeless = selection
        .routed
        .iter()
        .filter(|r| !places.on_emulator(r.kernel) && places.gpu_arch(r.kernel).is_none())
        .map(|r| {
            let archs: Vec<_> = r.kernel.archs.iter().map(|arch| arch.name()).collect();
            let reason = format!("{} needs a GPU of {}", r.kernel.kernel, archs.join(" or "));
            Row::unsupported(&r.case.id, args.seed, reason)
        });
    session.rows.extend(homeless);
    session.rows.extend(selection.unsupported);
    if let Some(path) = &args.json {
        write_json(path, &session.rows)?;
    }
    let complete = args.filter.is_none() && args.configs.is_none() && !args.smoke && !session.interrupted;
    // Kernels of which only the smoke cases ran owe no coverage.
    let owes = |name: &str| complete && !(brief && name.starts_with("fwd_sm90"));
    let code = verdict(&session, owes);
    for (_, gpu) in places.gpus().iter().filter(|_| !args.quiet) {
        println!("{}", gpu.info);
    }
    print(args, &session, owes, (compiled, start.elapsed()));
    if brief && !args.quiet && ROWS.iter().any(|r| thinned(r.kernel) && places.on_emulator(r)) {
        println!(
            "note: fwd_sm90 ran its smoke cases only and fp16 windows were left out; --device emu runs everything"
        );
    }
    if !args.quiet {
        for kernel in &kernels {
            let (level, opcodes) = evidence::of(&kernel.ptx, &proven);
            println!("evidence of {} is `{}` because of {}", kernel.name, level.name(), opcodes.join(", "));
        }
    }
    if args.device == DeviceKind::Both {
        println!("{}", table::agreement(&session.rows));
    }
    Ok(if complete { code.max(pipelined(&kernels, args.quiet)) } else { code })
}

/// Prints how well each kernel is predicted to be pipelined; the exit code where one is not.
fn pipelined(kernels: &[Kernel<EmuModule>], quiet: bool) -> u8 {
    let mut code = exit::OK;
    // The condition speaks of the matrix pipe of sm_100: of two tiles whose products it alternates between.
    let kernels = kernels.iter().filter(|kernel| kernel.row.archs.contains(&Arch::Sm100a));
    for row in kernels.filter_map(pipeline::predict) {
        match row.holds() {
            true if quiet => {}
            true => println!("prediction (emulator, not measured): {row}"),
            false => {
                println!("fail: {row}");
                code = exit::WRONG;
            }
        }
    }
    code
}

/// The exit code. Gaps in coverage count where the whole set was run.
fn verdict(session: &Session, owes: impl Fn(&str) -> bool) -> u8 {
    let wrong = session.rows.iter().any(|row| row.status.is_wrong());
    let gaps = session.coverage.iter().any(|(kernel, c)| owes(kernel) && !c.gaps().is_empty());
    match (wrong || gaps, session.interrupted) {
        (true, _) => exit::WRONG,
        (false, true) => exit::INTERRUPTED,
        (false, false) => exit::OK,
    }
}

fn print(
    args: &GateArgs,
    session: &Session,
    owes: impl Fn(&str) -> bool,
    (compiled, total): (Duration, Duration),
) {
    let rows: &[Row] = &session.rows;
    if !args.quiet {
        if rows.iter().any(table::is_ours) {
            println!("{}", table::verdicts(rows.iter().filter(|row| table::is_ours(row))));
        }
        if rows.iter().any(table::is_foreign) {
            println!("Foreign kernels, the evidence for the emulator:");
            println!("{}", table::verdicts(rows.iter().filter(|row| table::is_foreign(row))));
        }
        if rows.iter().any(table::is_probe) {
            println!("Instruction probes, word by word:");
            println!("{}", table::probes(rows));
        }
        println!("O and LSE: worst error over its bound; at most 1 passes.\n");
        if rows.iter().any(|row| row.kernel == "none") {
            println!("Not served:\n{}", table::unsupported(rows));
        }
        if session.coverage.values().any(|c| c.passes > 0) {
            println!("{}", table::coverage(&session.coverage));
        }
        for (finding, runs) in &session.strict {
            println!("strict ({runs} runs): {finding}");
        }
    }
    let failures = table::failures(rows, &args.replay_flags());
    print!("{}", if render::colour_wanted() { render::colour(&failures) } else { failures });
    for (kernel, coverage) in &session.coverage {
        for gap in coverage.gaps() {
            match owes(kernel) {
                true => println!("fail: {kernel}: {gap}"),
                false if !args.quiet => println!("note: {kernel}: {gap} in this selection"),
                false => {}
            }
        }
    }
    if session.interrupted {
        println!("interrupted: what had finished is above");
    }
    println!(
        "{} [{:.1} s, {:.1} s of it until kernels were compiled]",
        table::summary(rows),
        total.as_secs_f64(),
        compiled.as_secs_f64()
    );
}

/// A bar with ETA on a terminal, nothing elsewhere.
pub fn progress_bar(quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return bar;
    }
    let template = "{bar:40} {percent:>3} %  {elapsed} elapsed, {eta} to go";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Makes the first Ctrl-C stop after the runs in progress and the second one at once.
pub fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Without a handler (already set by an embedding program) Ctrl-C simply ends the process.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
        eprintln!("stopping after the runs in progress; press Ctrl-C again to stop at once");
    });
    stop
}
