//! A gate's verdict as a result folder: `run.json` (what was judged, where, how long it took), `rows.csv` (a line per kernel,
//! case and device), and made from these `README.md` and the table between the markers of another document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Instant, SystemTime};

use clap::{Args, FromArgMatches};
use fa4_gate::cli::GateArgs;
use fa4_gate::gate;
use fa4_kernels::manifest::by_entry;
use serde::{Deserialize, Serialize};

use super::report::between;
use crate::env::{self, Machine};
use crate::error::BenchError;
use crate::folder::write_atomically;
use crate::worker::workspace;
use crate::{gpu, paths};

/// What was judged; a folder with it is a gate's.
pub const RUN: &str = "run.json";
/// The verdicts.
const ROWS: &str = "rows.csv";
/// Around the table in a document.
const MARKERS: (&str, &str) = ("<!-- begin generated: gate -->\n", "<!-- end generated: gate -->");

/// `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Run {
    /// Version of this form.
    schema: u32,
    /// The gate's flags.
    flags: Vec<String>,
    /// UTC.
    started: String,
    /// Wall seconds, compiling included.
    seconds: f64,
    /// The gate's exit code.
    exit_code: u8,
    /// The checkout's commit.
    commit: String,
    machine: Machine,
    /// Names of the GPUs that judged.
    gpus: Vec<String>,
}

/// One run of the gate's JSON.
#[derive(Debug, Clone, Deserialize)]
struct Judged {
    kernel: String,
    case: String,
    status: String,
    device: Option<String>,
    scale: Option<String>,
    o_ratio: Option<f64>,
    lse_ratio: Option<f64>,
    reason: Option<String>,
}

/// A line of `rows.csv`: all runs of a case by a kernel on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    kernel: String,
    case: String,
    /// `emu`, `cuda`, or nothing where no kernel serves the case.
    device: String,
    /// Runs: schedules of the emulator, launches on a GPU.
    runs: u32,
    passed: u32,
    /// Worst of the runs.
    o_ratio: Option<f64>,
    lse_ratio: Option<f64>,
    scale: Option<String>,
    /// Why the first run that did not pass did not.
    reason: Option<String>,
}

/// Runs the gate with `flags` and keeps its verdict in `out`; the gate's exit code.
///
/// # Errors
/// Flags that the gate does not know, what keeps it from judging, a folder that is taken.
pub fn judge(flags: &[String], out: &Path) -> Result<u8, BenchError> {
    let wrong = |error: clap::Error| BenchError::Flag {
        flag: "--",
        value: flags.join(" "),
        what: error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").into(),
    };
    let words = std::iter::once("gate").chain(flags.iter().map(String::as_str));
    let parsed = GateArgs::augment_args(clap::Command::new("gate")).try_get_matches_from(words);
    let mut args = parsed.and_then(|found| GateArgs::from_arg_matches(&found)).map_err(wrong)?;
    if out.join(RUN).exists() {
        return Err(BenchError::folder(out, "holds a gate's verdict already; name another folder"));
    }
    std::fs::create_dir_all(out).map_err(BenchError::file(out))?;
    let scratch = tempfile::tempdir().map_err(BenchError::file("a folder for temporary files"))?;
    let json = args.json.get_or_insert_with(|| scratch.path().join("gate.json")).clone();
    let (started, clock) = (env::timestamp(SystemTime::now()), Instant::now());
    let exit_code = gate::gate(&args, &gate::stop_on_interrupt())?;
    let seconds = clock.elapsed().as_secs_f64();
    let text = std::fs::read_to_string(&json).map_err(BenchError::file(&json))?;
    let judged: Vec<Judged> = serde_json::from_str(&text)
        .map_err(|e| BenchError::folder(&json, format!("not the gate's JSON: {e}")))?;
    let on_gpu = judged.iter().any(|run| run.device.as_deref() == Some("cuda"));
    let gpus = if on_gpu { gpu::machines().unwrap_or_default() } else { Vec::new() };
    let root = workspace();
    let run = Run {
        schema: 1,
        flags: flags.iter().map(|word| paths::shown_word(word, &root)).collect(),
        started,
        seconds: seconds.round(),
        exit_code,
        commit: env::commit(&root),
        machine: env::machine(),
        gpus: gpus.into_iter().map(|gpu| gpu.name).collect(),
    };
    put(out, &run, &lines(judged))?;
    write(out)?;
    println!("results: {}", out.display());
    Ok(exit_code)
}

fn put(out: &Path, run: &Run, lines: &[Line]) -> Result<(), BenchError> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for line in lines {
        csv.serialize(line).expect("plain data has a CSV form");
    }
    let bytes = csv.into_inner().expect("memory takes everything");
    write_atomically(&out.join(ROWS), &bytes)?;
    let json = serde_json::to_string_pretty(run).expect("plain data has a JSON form") + "\n";
    write_atomically(&out.join(RUN), json.as_bytes())
}

/// Runs of one case, kernel and device in one line, in the order of their first.
fn lines(judged: Vec<Judged>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut known: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let worst = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    for run in judged {
        let device = run.device.unwrap_or_default();
        let key = (run.kernel.clone(), run.case.clone(), device.clone());
        let at = *known.entry(key).or_insert(lines.len());
        if at == lines.len() {
            let (kernel, case, scale) = (run.kernel, run.case, run.scale);
            let (o_ratio, lse_ratio, reason) = (None, None, None);
            lines.push(Line { kernel, case, device, runs: 0, passed: 0, o_ratio, lse_ratio, scale, reason });
        }
        let line = &mut lines[at];
        let passed = run.status == "pass";
        line.runs += 1;
        line.passed += u32::from(passed);
        (line.o_ratio, line.lse_ratio) =
            (worst(line.o_ratio, run.o_ratio), worst(line.lse_ratio, run.lse_ratio));
        if !passed && line.reason.is_none() {
            let why = run.reason.unwrap_or_default();
            line.reason = Some(format!("{}: {}", run.status, why.lines().next().unwrap_or_default()));
        }
    }
    // Four digits, as in tables: more would differ from machine to machine.
    let short = |x: Option<f64>| x.map(|x| (x * 1e4).round() / 1e4);
    lines.iter_mut().for_each(|l| (l.o_ratio, l.lse_ratio) = (short(l.o_ratio), short(l.lse_ratio)));
    lines
}

fn read(folder: &Path) -> Result<(Run, Vec<Line>), BenchError> {
    let path = folder.join(RUN);
    let text = std::fs::read_to_string(&path).map_err(BenchError::file(&path))?;
    let run = serde_json::from_str(&text)
        .map_err(|e| BenchError::folder(&path, format!("not a gate's run: {e}")))?;
    let path = folder.join(ROWS);
    let broken = |e: csv::Error| BenchError::Csv { path: path.clone(), what: e.to_string() };
    let mut reader = csv::Reader::from_path(&path).map_err(broken)?;
    let lines = reader.deserialize().collect::<Result<_, _>>().map_err(broken)?;
    Ok((run, lines))
}

/// Writes a gate's `README.md` anew.
///
/// # Errors
/// What is wrong with the folder.
pub fn write(folder: &Path) -> Result<(), BenchError> {
    let (run, lines) = read(folder)?;
    let mut text = format!("# `cargo xtask gate`, {}\n\n{}\n", date(&run), said(&run, &lines));
    text.push_str(&table(&run, &lines));
    let wrong: Vec<&Line> = lines.iter().filter(|l| !l.device.is_empty() && l.passed < l.runs).collect();
    if !wrong.is_empty() {
        text.push_str("\n## Not right\n\n");
        for line in wrong {
            let why = line.reason.as_deref().unwrap_or_default();
            let _ =
                writeln!(text, "- `{}` {} on {}: {why}", line.kernel, line.case, device(&run, &line.device));
        }
    }
    let _ = writeln!(
        text,
        "\n`rows.csv` has a line per kernel, case and device. fa4 at {}; {}, {} cores, {}.",
        run.commit, run.machine.cpu, run.machine.cores, run.machine.os
    );
    write_atomically(&folder.join("README.md"), text.as_bytes())
}

/// Puts the table of `folder` between the markers of `file`.
///
/// # Errors
/// A file without the markers.
pub fn into(folder: &Path, file: &Path) -> Result<(), BenchError> {
    let (run, lines) = read(folder)?;
    let name = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let more = format!("\n[Every case](results/{name}/README.md).\n");
    between(MARKERS, file, &format!("{}\n{}{more}", said(&run, &lines), table(&run, &lines)))
}

fn date(run: &Run) -> &str {
    run.started.split('T').next().unwrap_or_default()
}

fn device(run: &Run, word: &str) -> String {
    match word {
        "emu" => "emulator".into(),
        _ => run.gpus.first().cloned().unwrap_or_else(|| "GPU".into()),
    }
}

/// What ran and how it ended, in a sentence or two.
fn said(run: &Run, lines: &[Line]) -> String {
    let judged: Vec<&Line> = lines.iter().filter(|line| !line.device.is_empty()).collect();
    let (runs, passed): (u32, u32) =
        (judged.iter().map(|l| l.runs).sum(), judged.iter().map(|l| l.passed).sum());
    let wrong = if runs == passed { "none fails".to_string() } else { format!("{} not", runs - passed) };
    let flags: Vec<String> = run
        .flags
        .iter()
        .map(|word| match word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c)) {
            true => word.clone(),
            false => format!("'{word}'"),
        })
        .collect();
    let command = ["cargo xtask gate"].into_iter().chain(flags.iter().map(String::as_str));
    let gpu = if run.gpus.is_empty() { "no GPU".into() } else { run.gpus.join(", ") };
    format!(
        "`{}` on {}, {} cores and {gpu}, {:.0} s: {passed} runs pass, {wrong}, exit code {}. A run is one case under one \
         schedule of the emulator, or one launch on a GPU, judged against an f64 oracle; 1 would be the error bound.\n",
        command.collect::<Vec<_>>().join(" "),
        date(run),
        run.machine.cores,
        run.seconds,
        run.exit_code
    )
}

/// A line per kernel, head dim and element type, and per device.
fn table(run: &Run, lines: &[Line]) -> String {
    let mut groups: Vec<(String, Vec<&Line>)> = Vec::new();
    for line in lines.iter().filter(|line| !line.device.is_empty()) {
        let name = format!("{} | {}", group(&line.kernel), device(run, &line.device));
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(line),
            None => groups.push((name, vec![line])),
        }
    }
    let mut text = String::from(
        "| kernel | judged on | cases | runs passed | worst O error / bound | worst LSE error / bound |\n\
         |---|---|---|---|---|---|\n",
    );
    for (name, members) in &groups {
        let worst = |of: fn(&Line) -> Option<f64>| {
            let worst = members.iter().filter_map(|line| of(line)).reduce(f64::max);
            worst.map_or("–".to_string(), |x| format!("{x:.3}"))
        };
        let (runs, passed): (u32, u32) =
            (members.iter().map(|l| l.runs).sum(), members.iter().map(|l| l.passed).sum());
        let passed = if runs == passed { passed.to_string() } else { format!("**{passed} of {runs}**") };
        let (o, lse) = (worst(|l| l.o_ratio), worst(|l| l.lse_ratio));
        let _ = writeln!(text, "| {name} | {} | {passed} | {o} | {lse} |", members.len());
    }
    text
}

/// What a line of the table is about.
fn group(kernel: &str) -> String {
    if let Some(row) = by_entry(kernel) {
        let p = &row.problem;
        let dims = match p.head_dim_qk == p.head_dim_v {
            true => p.head_dim_qk.to_string(),
            false => format!("{}/{}", p.head_dim_qk, p.head_dim_v),
        };
        let dtype = row.entry.split('_').find(|word| ["bf16", "fp16"].contains(word)).unwrap_or_default();
        return format!("`{}` hd{dims} {dtype}", row.kernel);
    }
    match kernel.split('/').collect::<Vec<_>>()[..] {
        ["triton", arch, ..] => format!("Triton's {arch} kernels"),
        ["probe", ..] => "instruction probes, against recorded silicon".into(),
        [space, ..] => format!("`{space}`"),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"[
{"kernel":"fwd_sm90_hd64_bf16_full","case":"a","status":"pass","schedule":"eager","seed":1,"device":"emu","evidence":"ptxas","scale":null,"o_ratio":0.5,"lse_ratio":0.01,"reason":null,"seconds":1.0},
{"kernel":"fwd_sm90_hd64_bf16_full","case":"a","status":"pass","schedule":"random","seed":1,"device":"emu","evidence":"ptxas","scale":null,"o_ratio":0.61237,"lse_ratio":0.01,"reason":null,"seconds":1.0},
{"kernel":"fwd_sm90_hd64_bf16_full","case":"a","status":"pass","schedule":null,"seed":1,"device":"cuda","evidence":"silicon","scale":null,"o_ratio":0.6,"lse_ratio":0.01,"reason":null,"seconds":1.0},
{"kernel":"fwd_sm90_hd64_bf16_causal","case":"b","status":"fault","schedule":"eager","seed":1,"device":"emu","evidence":"ptxas","scale":"b 4 to 2","o_ratio":null,"lse_ratio":null,"reason":"a race\nmore","seconds":1.0},
{"kernel":"triton/sm_100a/softmax_rows","case":"c","status":"pass","schedule":"eager","seed":1,"device":"emu","evidence":"foreign","scale":null,"o_ratio":1.0,"lse_ratio":null,"reason":null,"seconds":1.0},
{"kernel":"none","case":"d","status":"unsupported","schedule":null,"seed":1,"device":null,"evidence":null,"scale":null,"o_ratio":null,"lse_ratio":null,"reason":"paged","seconds":0.0}]"#;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let run = Run {
            schema: 1,
            flags: ["--device", "both", "--filter", "fwd_sm90|triton/"].map(String::from).to_vec(),
            started: "2026-12-05T14:03:00Z".into(),
            seconds: 51.0,
            exit_code: 1,
            commit: "abc".into(),
            machine: Machine { os: "Linux".into(), cpu: "a processor".into(), cores: 16 },
            gpus: vec!["NVIDIA H200".into()],
        };
        put(dir.path(), &run, &lines(serde_json::from_str(JSON).unwrap())).unwrap();
        dir
    }

    #[test]
    fn runs_are_added_up_by_case_and_by_kernel() {
        let dir = folder();
        write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("README.md")).unwrap();
        for line in [
            "`cargo xtask gate --device both --filter 'fwd_sm90|triton/'` on 2026-12-05, 16 cores and NVIDIA H200, 51 s: \
             4 runs pass, 1 not, exit code 1.",
            "| `fwd_sm90` hd64 bf16 | emulator | 2 | **2 of 3** | 0.612 | 0.010 |",
            "| `fwd_sm90` hd64 bf16 | NVIDIA H200 | 1 | 1 | 0.600 | 0.010 |",
            "| Triton's sm_100a kernels | emulator | 1 | 1 | 1.000 | – |",
            "- `fwd_sm90_hd64_bf16_causal` b on emulator: fault: a race\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let (_, lines) = read(dir.path()).unwrap();
        assert_eq!((lines.len(), lines[0].runs, lines[0].o_ratio), (5, 2, Some(0.6124)));
        assert_eq!(lines[4].device, "");
    }

    #[test]
    fn the_table_goes_between_markers() {
        let dir = folder();
        let file = dir.path().join("DOC.md");
        std::fs::write(&file, format!("a\n{}old\n{}\nz\n", MARKERS.0, MARKERS.1)).unwrap();
        into(dir.path(), &file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("a\n<!-- begin") && text.ends_with("<!-- end generated: gate -->\nz\n"));
        assert!(text.contains("| emulator | 2 |") && !text.contains("old"));
        std::fs::write(&file, "no markers").unwrap();
        assert_eq!(into(dir.path(), &file).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn flags_are_the_gates() {
        let dir = tempfile::tempdir().unwrap();
        let error = judge(&["--devise".into(), "emu".into()], dir.path()).unwrap_err();
        assert!(error.to_string().contains("--devise") && error.exit_code() == 2, "{error}");
        let error = judge(&[], folder().path()).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
    }
}
