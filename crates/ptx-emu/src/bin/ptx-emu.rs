//! The command line of the emulator.

use clap::{Parser, Subcommand};
use ptx_emu::coverage;
use ptx_emu::launch_file::{self, ResolvedLaunch, read_back};
use ptx_emu::render::{self, Context};
use ptx_emu::syntax;
use ptx_emu::{Checks, Code, GlobalMemory, Module, Options, Report, Schedule, Verdict, npy};
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs PTX kernels on a CPU and finds the waits they forgot.
///
/// Exit codes: 0 clean, 10 fault, 11 unsupported, 12 step limit, 2 usage or bad input, 101 bug of the emulator.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run what a launch file describes.
    Run(Run),
    /// Read PTX files and say what is in them.
    Parse {
        /// PTX files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print the normal form instead.
        #[arg(long)]
        print: bool,
    },
    /// List the opcodes of PTX files, most used first, and which of them the machine cannot run.
    Coverage {
        /// PTX files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Say what a fault code means and what to do; without a code list them all.
    Explain {
        /// A code such as lease.tmem.
        code: Option<String>,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Launch file (TOML).
    launch: PathBuf,
    /// Schedules, separated by commas: eager, late-lifo, late-tma, random, all (of these four), or timed, which predicts
    /// and does not judge.
    #[arg(long, value_delimiter = ',', default_value = "eager", value_parser = schedules)]
    schedule: Vec<Schedules>,
    /// Seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seeds")]
    seed: u64,
    /// Runs the random schedule once for each seed: A..B without B, A..=B with it.
    #[arg(long, value_name = "A..B", value_parser = ptx_emu::launch::parse_seeds)]
    seeds: Option<Range<u64>>,
    /// Checks: all, none, or a list of lease, race, uninit, roles.
    #[arg(long, default_value = "all", value_parser = checks)]
    check: Checks,
    /// Fail on strict findings too.
    #[arg(long)]
    strict: bool,
    /// Warp instructions after which a run is given up.
    #[arg(long, default_value_t = Options::default().step_limit)]
    step_limit: u64,
    /// Write a trace of the last run: JSON lines if the name ends in .jsonl, else the Chrome format for Perfetto.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Write all reports as a JSON array.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print verdicts only.
    #[arg(short, long)]
    quiet: bool,
}

/// What one word stands for: a schedule, or all of them.
type Schedules = std::sync::Arc<[Schedule]>;

fn schedules(word: &str) -> Result<Schedules, String> {
    if word == "all" {
        return Ok(Schedule::ALL.into());
    }
    Schedule::parse(word).map(|s| [s].into()).ok_or_else(|| {
        let names: Vec<_> = Schedule::ALL.iter().map(|s| s.as_str()).collect();
        format!("allowed are {}, all, timed", names.join(", "))
    })
}

fn checks(text: &str) -> Result<Checks, String> {
    let mut checks = Checks::NONE;
    for word in text.split(',') {
        match word {
            "all" => checks = Checks::ALL,
            "none" => checks = Checks::NONE,
            "lease" => checks.lease = true,
            "race" => checks.race = true,
            "uninit" => checks.uninit = true,
            "roles" => checks.roles = true,
            _ => {
                return Err(format!(
                    "unknown check `{word}`; allowed are all, none, lease, race, uninit, roles"
                ));
            }
        }
    }
    Ok(checks)
}

/// Usage or bad input.
const BAD_INPUT: u8 = 2;

/// A message for people who gave bad input.
type Failure = String;

/// Makes a closed standard output (`… | head`) end the program quietly, with the code that a shell shows for SIGPIPE:
/// `println!` would panic, and exit code 101 means a bug of the emulator.
fn end_quietly_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(141);
        }
        usual(panic);
    }));
}

fn main() -> ExitCode {
    end_quietly_when_nobody_reads();
    let result = match Arguments::parse().command {
        Command::Run(run) => self::run(&run),
        Command::Parse { files, print } => parse(&files, print),
        Command::Coverage { files } => list_coverage(&files),
        Command::Explain { code } => explain(code.as_deref()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            let prefix = if message.starts_with("error:") { "" } else { "error: " };
            eprintln!("{prefix}{message}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn load(path: &Path) -> Result<(Module, String), Failure> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let module = syntax::parse_bytes(&path.to_string_lossy(), &bytes).map_err(|e| e.to_string())?;
    // The parser took it, so it is text.
    Ok((module, String::from_utf8_lossy(&bytes).into_owned()))
}

fn write(path: &Path, data: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, data).map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether a file can be written, without touching what it holds. A file that was not there is not left behind.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let existed = path.exists();
    let open = std::fs::OpenOptions::new().append(true).create(true).open(path);
    open.map_err(|e| format!("{}: cannot be written: {e}", path.display()))?;
    if !existed {
        // Best effort: an empty file is no harm.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn run(arguments: &Run) -> Result<u8, Failure> {
    let launch = launch_file::read(&arguments.launch).map_err(|e| e.to_string())?;
    let (module, text) = load(&launch.ptx)?;
    let kernel = launch.kernel(&module).map_err(|e| e.to_string())?;
    let folder = launch.ptx.parent().unwrap_or(Path::new("")).to_path_buf();
    let source_line = move |file: &str, line: u32| -> Option<String> {
        let text = std::fs::read_to_string(folder.join(file)).ok()?;
        text.lines().nth(line.checked_sub(1)? as usize).map(str::to_string)
    };
    let context =
        Context { ptx: Some(&text), source_line: Some(&source_line), ..Context::of(&module, &kernel.name) };

    // A run may take minutes: what cannot be written is said before it.
    let outputs = launch.buffers.iter().filter_map(|b| b.output.as_ref());
    for path in arguments.json.iter().chain(&arguments.trace).chain(outputs) {
        check_writable(path)?;
    }
    let seeds = arguments.seeds.clone().unwrap_or(arguments.seed..arguments.seed.saturating_add(1));
    let mut reports: Vec<Report> = Vec::new();
    let mut outputs: Option<(String, Vec<npy::Array>)> = None;
    for &schedule in arguments.schedule.iter().flat_map(|s| s.iter()) {
        // Only the random schedule depends on the seed.
        let seeds = if schedule == Schedule::Random { seeds.clone() } else { seeds.start..seeds.start + 1 };
        for seed in seeds {
            let options = Options {
                schedule,
                seed,
                checks: arguments.check,
                strict: arguments.strict,
                step_limit: arguments.step_limit,
                trace: arguments.trace.is_some(),
                ..Options::default()
            };
            let (report, arrays) = one_run(&launch, &module, &options)?;
            let name = format!("{} seed {seed}", schedule.as_str());
            let replay = format!(
                "ptx-emu run {} --schedule {} --seed {seed}",
                arguments.launch.display(),
                schedule.as_str()
            );
            let shown = render::verdict(&report.verdict, &Context { replay: Some(&replay), ..context });
            println!("{name}: {}", if report.is_clean() { "clean" } else { "not clean" });
            if !report.is_clean() {
                print!("{}", on_terminal(shown));
            }
            if !arguments.quiet {
                print_findings(&report, &context);
            }
            if report.is_clean() {
                match &outputs {
                    Some((first, expected)) if *expected != arrays => {
                        println!(
                            "note: {name} and {first} give different bits; only unordered floating-point atomics may"
                        );
                    }
                    Some(_) => {}
                    None => outputs = Some((name, arrays)),
                }
            }
            reports.push(report);
        }
    }

    if let Some((_, arrays)) = outputs {
        let paths = launch.buffers.iter().filter_map(|b| b.output.as_ref());
        for (path, array) in paths.zip(arrays) {
            write(path, &npy::write(&array))?;
        }
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&reports).map_err(|e| e.to_string())?;
        write(path, (text + "\n").as_bytes())?;
    }
    if let (Some(path), Some(trace)) = (&arguments.trace, reports.last().and_then(|r| r.trace.as_ref())) {
        let lines = path.extension().is_some_and(|e| e == "jsonl");
        let text = if lines { render::json_lines(trace) } else { render::chrome(trace).to_string() };
        write(path, text.as_bytes())?;
    }
    // A fault says more than what could not be run.
    let worst = [10, 11, 12].into_iter().find(|&c| reports.iter().any(|r| r.exit_code() == c));
    Ok(worst.unwrap_or(0) as u8)
}

/// A run in fresh memory; the output buffers after it, in order.
fn one_run(
    launch: &ResolvedLaunch,
    module: &Module,
    options: &Options,
) -> Result<(Report, Vec<npy::Array>), Failure> {
    let mut memory = GlobalMemory::new();
    let addresses = launch.allocate(&mut memory).map_err(|e| e.to_string())?;
    let ready = launch.launch(module, &addresses).map_err(|e| e.to_string())?;
    let report = ptx_emu::run(&ready, &mut memory, options);
    let mut arrays = Vec::new();
    for (buffer, &address) in launch.buffers.iter().zip(&addresses).filter(|(b, _)| b.output.is_some()) {
        arrays.push(read_back(&memory, buffer, address).map_err(|e| e.to_string())?);
    }
    Ok((report, arrays))
}

/// A report as standard output should show it.
fn on_terminal(report: String) -> String {
    if render::colour_wanted() { render::colour(&report) } else { report }
}

fn print_findings(report: &Report, context: &Context<'_>) {
    for finding in &report.strict {
        print!("{}", on_terminal(context.fault(finding)));
    }
    let c = &report.counters;
    println!(
        "  {} warp instructions, {} matrix instructions, {} bytes loaded and {} stored by copies, {} TMEM columns",
        c.steps, c.mmas, c.bytes_loaded, c.bytes_stored, c.tmem_columns
    );
    for (name, count) in c.covers.iter().filter(|(_, count)| **count == 0) {
        println!("  cover {name}: {count} (never reached)");
    }
    if matches!(report.verdict, Verdict::Clean) && !report.strict.is_empty() {
        println!("  {} strict findings; --strict makes them fail", report.strict.len());
    }
}

fn parse(files: &[PathBuf], print: bool) -> Result<u8, Failure> {
    for path in files {
        let (m, _) = load(path)?;
        if print {
            print!("{}", syntax::print(&m));
            continue;
        }
        println!(
            "{}: PTX {}.{} for {}, {} opcodes, {} variables",
            m.name,
            m.version.0,
            m.version.1,
            m.target.join(", "),
            m.opcodes.len(),
            m.vars.len()
        );
        for f in &m.functions {
            let kind = if f.is_entry { "kernel" } else { "function" };
            let (instructions, registers) = (f.body.len(), f.regs.len());
            println!("  {kind} {}: {instructions} instructions, {registers} registers", f.name);
            for p in &f.params {
                println!(
                    "    parameter {} at {}: {} bytes, aligned to {}",
                    p.name, p.offset, p.size, p.align
                );
            }
        }
    }
    Ok(0)
}

fn list_coverage(files: &[PathBuf]) -> Result<u8, Failure> {
    let mut opcodes = BTreeMap::new();
    for path in files {
        coverage::add(&mut opcodes, &load(path)?.0);
    }
    let mut opcodes: Vec<_> = opcodes.into_iter().collect();
    opcodes.sort_by(|(a, m), (b, n)| n.uses.cmp(&m.uses).then_with(|| a.cmp(b)));
    for (name, opcode) in &opcodes {
        let reason = opcode.unsupported.as_ref().map_or(String::new(), |r| format!("  (unsupported: {r})"));
        println!("{:>8}  {name}{reason}", opcode.uses);
    }
    let unsupported = opcodes.iter().filter(|(_, opcode)| opcode.unsupported.is_some()).count();
    println!("{:>8}  opcodes, {unsupported} of them unsupported", opcodes.len());
    Ok(if unsupported > 0 { 11 } else { 0 })
}

fn explain(code: Option<&str>) -> Result<u8, Failure> {
    let Some(text) = code else {
        for code in Code::ALL {
            println!("{:<24} {}", code.as_str(), json!(code.level()).as_str().unwrap_or_default());
        }
        return Ok(0);
    };
    let Some(code) = Code::parse(text) else {
        return Err(format!("unknown code `{text}`; `ptx-emu explain` lists them all"));
    };
    print!("{}", ptx_emu::explain::explain(code));
    Ok(0)
}
