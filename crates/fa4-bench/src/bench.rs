//! `bench` from flags to exit code.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fa4_gate::error::exit;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::BenchArgs;
use crate::env::{Env, Settings};
use crate::error::BenchError;
use crate::folder::{self, Folder};
use crate::paths;
use crate::plan::cases_csv;
use crate::queue::{self, News, Work};
use crate::record::RunRow;
use crate::runner::GpuRecord;
use crate::worker::{Config, mock_spec, workspace};
use crate::{gpu, mock, render, results, rows};

/// Runs the task and answers with its exit code.
///
/// # Errors
/// Where nothing could be run.
pub fn bench(args: &BenchArgs, stop: &AtomicBool) -> Result<u8, BenchError> {
    args.check()?;
    let start = Instant::now();
    let root = match &args.root {
        Some(root) => root.canonicalize().map_err(BenchError::file(root))?,
        None => workspace(),
    };
    let Begun { mut folder, done, env, settings } = match &args.resume {
        Some(folder) => resume(args, &root, folder.as_deref())?,
        None => begin(args, &root)?,
    };
    let all = folder::cases(folder.path())?;
    let shard = env.settings.shard;
    let mine: Vec<usize> = (0..all.len()).filter(|&i| shard.is_none_or(|s| s.has(i))).collect();
    if let Some(row) = done.iter().find(|row| {
        !mine.contains(&row.index) || all.get(row.index).is_none_or(|planned| planned.id != row.case)
    }) {
        let what =
            format!("its raw.jsonl has `{}` as row {}, which its cases.csv has not", row.case, row.index + 1);
        let value = folder.path().display().to_string();
        return Err(BenchError::Flag { flag: "--resume", value, what });
    }
    let left: Vec<usize> = mine.iter().copied().filter(|i| done.iter().all(|row| row.index != *i)).collect();
    if !args.quiet {
        let gpus: Vec<String> = env.gpus.iter().map(|g| format!("GPU {}: {}", g.ordinal, g.name)).collect();
        println!(
            "{}; {} of {} rows to run, into {}",
            gpus.join(", "),
            left.len(),
            mine.len(),
            folder.path().display()
        );
    }
    let configs: Vec<Config> = env
        .gpus
        .iter()
        .take(left.len().max(1))
        .map(|gpu| Config {
            cases: folder.path().join(folder::CASES),
            ordinal: gpu.ordinal,
            root: root.clone(),
            settings: settings.clone(),
        })
        .collect();
    let work = Work {
        rows: &all,
        queue: Mutex::new(left.iter().copied().collect()),
        stop,
        limit: Duration::from_secs_f64(env.settings.timeout_s),
        program: std::env::current_exe().map_err(BenchError::file("this program"))?,
    };
    let progress = progress_bar(args.quiet, left.len() as u64);
    let mut doing: BTreeMap<u32, String> = BTreeMap::new();
    let mut unfit: Vec<BenchError> = Vec::new();
    let (mut finished, mut failed): (Vec<RunRow>, usize) = (done, 0);
    let ran = queue::run(&work, &configs, |news| {
        match news {
            News::Doing(gpu, what) => drop(doing.insert(gpu, what)),
            News::Unfit(error) => unfit.push(error),
            News::Row(row) => {
                folder.append(&row)?;
                doing.remove(&row.ordinal.unwrap_or_default());
                failed += usize::from(row.status.is_wrong());
                progress.inc(1);
                if !args.quiet {
                    progress.suspend(|| println!("{}", render::line(&row)));
                }
                finished.push(*row);
            }
        }
        let wrong = if failed > 0 { format!("{failed} wrong  ") } else { String::new() };
        progress.set_message(format!("{wrong}{}", queue::doing_line(&doing)));
        Ok(())
    });
    progress.finish_and_clear();
    ran?;
    finished.sort_by_key(|row| row.index);
    if finished.is_empty()
        && let Some(error) = unfit.pop()
    {
        return Err(error);
    }
    for error in &unfit {
        eprintln!("note: {error}");
    }
    let missing = mine.len() - finished.len();
    results::report::write(folder.path())?;
    if let Some(path) = &args.json {
        rows::write_json(path, &finished)?;
    }
    if !args.quiet {
        println!("{}", render::table(&finished));
    }
    println!("{} [{:.1} s]", render::summary(&finished), start.elapsed().as_secs_f64());
    println!("results: {}", folder.path().display());
    if missing > 0 {
        let why = if stop.load(Ordering::Relaxed) { "interrupted" } else { "no GPU left to run on" };
        println!(
            "{why}: {missing} rows are left; `cargo xtask bench --resume {}` runs them",
            folder.path().display()
        );
    }
    Ok(match (finished.iter().any(|row| row.status.is_wrong()), missing) {
        (true, _) => exit::WRONG,
        (false, 0) => exit::OK,
        (false, _) if stop.load(Ordering::Relaxed) => exit::INTERRUPTED,
        (false, _) => exit::ENVIRONMENT,
    })
}

/// A run that can go on.
struct Begun {
    folder: Folder,
    done: Vec<RunRow>,
    env: Env,
    /// With the paths of this machine, unlike those of `env`.
    settings: Settings,
}

/// Interpreter where none is named.
const PYTHON: &str = "python3";

fn begin(args: &BenchArgs, root: &Path) -> Result<Begun, BenchError> {
    let pattern = args.pattern()?;
    let files = match &args.configs {
        Some(path) => vec![path.clone()],
        None => args.set.files(root),
    };
    let cases = cases_csv(&files, pattern.as_ref())?;
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(BenchError::file(path));
    let settings = Settings {
        topic: match &args.configs {
            Some(path) => path.file_stem().map_or("rows".into(), |s| s.to_string_lossy().into_owned()),
            None => args.set.name().into(),
        },
        filter: args.filter.clone(),
        budget_s: args.budget,
        timeout_s: args.timeout,
        seed: args.seed,
        refs: args.references(),
        shard: args.shard,
        mock: args.mock.clone(),
        candidate: match (&args.cand, &args.namespace) {
            (Some(path), Some(name)) => Some((absolute(path)?, name.clone())),
            _ => None,
        },
        artifacts: args.artifacts.as_ref().map(absolute).transpose()?,
        python: args.refs_python.clone().unwrap_or_else(|| PYTHON.into()),
        refs_program: args.refs_program.clone(),
        scratch: args.scratch.clone().unwrap_or_else(ram_disk),
    };
    let gpus = machines(args, &settings)?;
    let build = gpu::build(root, &settings)?;
    let env = Env::now(root, settings.clone(), gpus, build);
    let path = match &args.out {
        Some(path) => path.clone(),
        None => unused(&root.join("results"), &env),
    };
    Ok(Begun { folder: Folder::create(&path, &env, &cases)?, done: Vec::new(), env, settings })
}

fn resume(args: &BenchArgs, root: &Path, folder: Option<&Path>) -> Result<Begun, BenchError> {
    let path = match folder {
        Some(path) => path.to_path_buf(),
        None => results::newest_unfinished(&root.join("results"))?,
    };
    let mut env = folder::env(&path)?;
    let settings = settings_of(&env, args, root)?;
    let (folder, done) = Folder::resume(&path)?;
    // The rows must come from the same kind of GPU; how many there are does not matter.
    let gpus = machines(args, &settings)?;
    if let (Some(then), Some(now)) = (env.gpus.first(), gpus.first())
        && then.name != now.name
    {
        let what =
            format!("was begun on {}, here is {}; take it up on the same kind of GPU", then.name, now.name);
        return Err(BenchError::folder(path, what));
    }
    let build = gpu::build(root, &settings)?;
    let now = Env::now(root, settings.clone(), gpus.clone(), build);
    if let Some(what) = env.differs(&now) {
        return Err(BenchError::folder(
            path,
            format!("cannot be taken up by this build: {what}; begin a new run"),
        ));
    }
    env.gpus = gpus;
    Ok(Begun { folder, done, env, settings })
}

/// The settings of an earlier run, its files found again: below the checkout, or where a flag says.
fn settings_of(env: &Env, args: &BenchArgs, root: &Path) -> Result<Settings, BenchError> {
    let then = &env.settings;
    let lost = |flag: &'static str, shown: &str| {
        let what = "lay outside the checkout when the run was begun; name it again".to_string();
        BenchError::Flag { flag, value: shown.into(), what }
    };
    let find = |flag: &'static str, given: Option<&PathBuf>, shown: &PathBuf| {
        let words = shown.to_string_lossy();
        match given {
            Some(path) => std::path::absolute(path).map_err(BenchError::file(path)),
            None if paths::is_left_out(&words) => Err(lost(flag, &words)),
            None => Ok(root.join(shown)),
        }
    };
    let candidate = match &then.candidate {
        Some((path, name)) => Some((find("--cand", args.cand.as_ref(), path)?, name.clone())),
        None if args.cand.is_some() => {
            let (flag, what) = ("--cand", "the run to take up is not one of a candidate".to_string());
            return Err(BenchError::Flag { flag, value: String::new(), what });
        }
        None => None,
    };
    let artifacts = args.artifacts.as_ref().or(then.artifacts.as_ref());
    let artifacts = artifacts.map(|shown| find("--artifacts", args.artifacts.as_ref(), shown)).transpose()?;
    // A bare name is looked for on the PATH.
    let is_name = then.python.components().count() == 1;
    let python = match &args.refs_python {
        None if !is_name => find("--refs-python", None, &then.python)?,
        given => given.clone().unwrap_or_else(|| then.python.clone()),
    };
    let refs_program = match (&then.refs_program, &args.refs_program) {
        (Some(shown), None) if paths::is_left_out(shown) => return Err(lost("--refs-program", shown)),
        (then, given) => given.clone().or_else(|| then.clone()),
    };
    let scratch = args.scratch.clone().unwrap_or_else(ram_disk);
    Ok(Settings { candidate, artifacts, python, refs_program, scratch, ..then.clone() })
}

/// Linux's RAM disk where there is one, else the folder for temporary files.
fn ram_disk() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}

/// The GPUs to use.
fn machines(args: &BenchArgs, settings: &Settings) -> Result<Vec<GpuRecord>, BenchError> {
    let all = match &settings.mock {
        Some(spec) => (0..mock_spec(spec)?.gpus).map(mock::record).collect(),
        None => gpu::machines().map_err(BenchError::NoGpu)?,
    };
    let Some(wanted) = args.ordinals()? else { return Ok(all) };
    let find = |ordinal: &u32| {
        all.iter().find(|gpu| gpu.ordinal == *ordinal).cloned().ok_or_else(|| {
            let there: Vec<String> = all.iter().map(|gpu| gpu.ordinal.to_string()).collect();
            let what =
                format!("there is no GPU {ordinal} that our kernels run on; there are {}", there.join(", "));
            BenchError::Flag { flag: "--gpus", value: args.gpus.clone().unwrap_or_default(), what }
        })
    };
    wanted.iter().map(find).collect()
}

/// `results/<date>-<gpu>-<topic>`, with a number behind it where that is taken.
fn unused(results: &Path, env: &Env) -> PathBuf {
    let gpu = env.gpu_name().to_lowercase().replace("nvidia", "");
    let gpu: Vec<&str> = gpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let shard = env.settings.shard.map_or(String::new(), |s| format!("-{}of{}", s.k, s.n));
    let name = format!("{}-{}-{}{shard}", env.date(), gpu.join("-"), env.settings.topic);
    let numbered = (2..).map(|n| results.join(format!("{name}-{n}")));
    std::iter::once(results.join(&name))
        .chain(numbered)
        .find(|path| !path.exists())
        .expect("numbers do not end")
}

/// A bar with ETA on a terminal, nothing elsewhere.
fn progress_bar(quiet: bool, rows: u64) -> ProgressBar {
    let bar = ProgressBar::new(rows);
    if quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return bar;
    }
    let template = "{bar:30} {pos}/{len}  {elapsed} elapsed, {eta} to go  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Makes the first Ctrl-C finish the rows in hand and the second one end at once; either way the run can be taken up.
pub fn stop_on_interrupt() -> std::sync::Arc<AtomicBool> {
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&stop);
    // Without a handler (already set by an embedding program) Ctrl-C simply ends the process.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
        eprintln!("stopping after the rows in hand; press Ctrl-C again to stop at once");
    });
    stop
}
