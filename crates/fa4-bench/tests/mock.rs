//! The whole pipeline without a GPU: `fa4-bench bench --mock` in processes of its own, as a user starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fa4_bench::folder;
use fa4_bench::record::{RunRow, Status};
use fa4_bench::verdict::Class;

const HEADER: &str = "id,set,family,phase,b,sq,sk,hq,hkv,d,dv,causal,win_left,win_right,sink,softcap,q_dtype,kv_dtype,\
                      layout,page,batch_spec,qdist,expect,note,src";

/// A scratch folder with `rows` small rows in `rows.csv`.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new(rows: usize) -> Self {
        let scratch = Scratch(tempfile::tempdir().unwrap());
        let mut text = format!("{HEADER}\n");
        for i in 0..rows {
            let (sq, sk, causal) = (1 + 7 * i % 40, 1 + 11 * i % 60, i % 2);
            text.push_str(&format!(
                "row{i:02},test,tiny,prefill,1,{sq},{sk},2,1,16,16,{causal},-1,-1,0,0,bf16,bf16,dense,0,,randn,match,,\n"
            ));
        }
        std::fs::write(scratch.path("rows.csv"), text).unwrap();
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `bench` with this scratch folder's rows.
    fn bench(&self, out: &str, mock: &str) -> Command {
        let mut command = fa4_bench();
        command
            .arg("bench")
            .arg("--configs")
            .arg(self.path("rows.csv"))
            .args(["--mock", mock, "--budget", "0.5"]);
        command.arg("--out").arg(self.path(out));
        command
    }
}

fn fa4_bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa4-bench"));
    command.stdin(Stdio::null());
    command
}

#[track_caller]
fn run(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    output
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Rows without what differs from run to run on any machine.
fn rows(folder: &Path) -> Vec<RunRow> {
    folder::rows(folder).unwrap().iter().map(RunRow::without_clock).collect()
}

const FIELD: &str = "refs=fa3:0.9,cudnn:1.2";

/// Every fault is a row with a status and a message, and the rows after it are as if nothing had happened.
#[test]
fn every_fault_of_ours_is_a_row() {
    let scratch = Scratch::new(10);
    let faults = [
        ("row01", "wrong", Status::Fail, "is "),
        ("row02", "nan", Status::Fail, "non-finite"),
        ("row03", "flaky", Status::Fail, "after being timed"),
        ("row04", "hang", Status::Timeout, "no result within 2 s (--timeout); the worker was killed"),
        ("row05", "crash", Status::Error, "exit code 77; its standard error: mock: dying, on request"),
        ("row06", "fault", Status::Fault, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("row07", "unsupported", Status::Unsupported, "does not serve"),
    ];
    let spec: Vec<String> = faults.iter().map(|(row, fault, ..)| format!("fault={fault}@{row}")).collect();
    let mock = format!("{FIELD};{}", spec.join(";"));
    let output = run(scratch.bench("out", &mock).args(["--timeout", "2"]), 1);
    let found = rows(&scratch.path("out"));
    assert_eq!(found.len(), 10);
    for (case, _, status, words) in faults {
        let row = found.iter().find(|row| row.case == case).unwrap();
        assert_eq!(row.status, status, "{case}");
        assert!(row.reason.as_ref().unwrap().contains(words), "{case}: {:?}", row.reason);
        assert!(row.ours.is_none() && row.verdict.is_none(), "{case}: a wrong kernel has no times");
        assert!(
            text(&output).contains(&format!("{:11} {case}", status.name())),
            "{case} is not on the screen"
        );
    }
    run(&mut scratch.bench("clean", FIELD), 0);
    let clean = rows(&scratch.path("clean"));
    for row in found.iter().filter(|row| row.status == Status::Pass) {
        assert_eq!(Some(row), clean.iter().find(|other| other.case == row.case));
    }
    assert!(clean.iter().all(|row| row.verdict.as_ref().is_some_and(|v| v.class != Class::Alone)));
}

/// A reference's fault is its own: no winner, no harm to our row.
#[test]
fn every_fault_of_a_reference_is_an_entry() {
    let scratch = Scratch::new(7);
    let faults = [
        ("row01", "wrong", Status::Fail, "is "),
        ("row02", "crash", Status::Error, "died"),
        ("row03", "protocol", Status::Error, "broke the protocol"),
        ("row04", "unsupported", Status::Unsupported, "does not take this"),
        ("row05", "flaky", Status::Fail, "after being timed"),
    ];
    let spec: Vec<String> =
        faults.iter().map(|(row, fault, ..)| format!("fault=fa3:{fault}@{row}")).collect();
    run(&mut scratch.bench("out", &format!("{FIELD};{}", spec.join(";"))), 0);
    let found = rows(&scratch.path("out"));
    for (case, _, status, words) in faults {
        let row = found.iter().find(|row| row.case == case).unwrap();
        let entry = row.references.iter().find(|e| e.id == "fa3").unwrap();
        assert_eq!((row.status, entry.status), (Status::Pass, status), "{case}");
        assert!(entry.reason.as_ref().unwrap().contains(words), "{case}: {:?}", entry.reason);
        // The quickest of all was wrong: the other one is what ours is held against.
        let verdict = row.verdict.as_ref().unwrap();
        assert_eq!((verdict.against.as_deref(), entry.timing.is_none()), (Some("cudnn"), true), "{case}");
    }
    assert_eq!(found[0].verdict.as_ref().unwrap().against.as_deref(), Some("fa3"));
}

/// The same through real children: the program `fa4-fake-ref` behind the references' protocol.
#[test]
fn children_that_misbehave_are_entries() {
    // Of another package, so that cargo does not say where it is; tests of the whole workspace have built it.
    let fake = Path::new(env!("CARGO_BIN_EXE_fa4-bench")).with_file_name("fa4-fake-ref");
    assert!(fake.exists(), "first `cargo build --release -p fa4-refs`");
    let scratch = Scratch::new(3);
    let personas = "right wrong:wrong crashes:crash garbles:garbage@time";
    let mut command = scratch.bench("out", "gpus=1");
    command.args(["--refs", "right,wrong,crashes,garbles,stranger"]);
    command.arg("--refs-program").arg(format!("{} {personas}", fake.display()));
    run(&mut command, 0);
    for row in rows(&scratch.path("out")) {
        let entry = |id: &str| row.references.iter().find(|e| e.id == id).unwrap();
        assert_eq!(entry("right").status, Status::Pass, "{:?}", entry("right").reason);
        assert!(entry("right").timing.is_some() && entry("right").route.is_some());
        // It leaves a key out, which a row with one key does not have.
        let wrong = if row.problem.seqlen_k > 1 { Status::Fail } else { Status::Pass };
        assert_eq!(entry("wrong").status, wrong);
        assert_eq!(entry("crashes").status, Status::Error);
        assert_eq!(entry("garbles").status, Status::Error, "{:?}", entry("garbles").reason);
        assert_eq!(entry("stranger").status, Status::Unsupported);
        assert!(row.verdict.unwrap().against.is_some());
    }
}

#[test]
fn noise_and_throttling_are_caveats() {
    let scratch = Scratch::new(2);
    run(&mut scratch.bench("out", "refs=a;fault=noisy@row00;fault=throttled@row01"), 0);
    let found = rows(&scratch.path("out"));
    let said = |row: &RunRow| row.caveats.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    assert!(said(&found[0]).contains("ours spreads by"), "{}", said(&found[0]));
    assert!(said(&found[1]).contains("throttled (power cap)"), "{}", said(&found[1]));
    let summary = std::fs::read_to_string(scratch.path("out/summary.md")).unwrap();
    assert!(summary.contains("## Caveats and what to do") && summary.contains("raise its power limit"));
}

/// Killed at any moment and taken up again, a run has every row once, with the same figures.
#[test]
fn a_killed_run_is_taken_up() {
    let scratch = Scratch::new(12);
    let mock = format!("{FIELD};row_ms=40;gpus=2");
    run(&mut scratch.bench("whole", &mock), 0);
    let whole = rows(&scratch.path("whole"));
    for wait_ms in [60, 130, 210] {
        let name = format!("killed{wait_ms}");
        let out = scratch.path(&name);
        let mut child =
            scratch.bench(&name, &mock).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while std::fs::metadata(out.join(folder::RAW)).map_or(0, |m| m.len()) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "no row after a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        // The system may cut the last line short, too.
        let raw = std::fs::read(out.join(folder::RAW)).unwrap();
        std::fs::write(out.join(folder::RAW), &raw[..raw.len() - 9]).unwrap();
        let before = raw.iter().filter(|b| **b == b'\n').count() - 1;
        assert!(before < whole.len());
        let output = run(fa4_bench().arg("bench").arg("--resume").arg(&out), 0);
        assert!(text(&output).contains(&format!("{} of 12 rows to run", 12 - before)), "{}", text(&output));
        assert_eq!(rows(&out), whole);
        // Nothing is left to do: no row is there twice after a third time.
        run(fa4_bench().arg("bench").arg("--resume").arg(&out), 0);
        assert_eq!(rows(&out), whole);
    }
}

/// Ctrl-C finishes the rows in hand, says how to go on and exits with 4.
#[test]
fn an_interrupt_keeps_what_is_done() {
    let scratch = Scratch::new(12);
    let mut command = scratch.bench("out", &format!("{FIELD};row_ms=60"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while std::fs::metadata(scratch.path("out").join(folder::RAW)).map_or(0, |m| m.len()) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no row after a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains("--resume"), "{}", text(&output));
    let found = rows(&scratch.path("out"));
    assert!(!found.is_empty() && found.len() < 12 && found.iter().all(|row| row.status == Status::Pass));
    run(fa4_bench().arg("bench").arg("--resume").arg(scratch.path("out")), 0);
    assert_eq!(rows(&scratch.path("out")).len(), 12);
}

#[test]
fn two_shards_merged_equal_one_run() {
    let scratch = Scratch::new(9);
    run(&mut scratch.bench("whole", FIELD), 0);
    for k in ["1/2", "2/2"] {
        let name = format!("shard{}", &k[..1]);
        run(scratch.bench(&name, FIELD).args(["--shard", k]), 0);
    }
    let merge = |parts: &[&str], out: &str| {
        let mut command = fa4_bench();
        command.args(["results", "merge"]).args(parts.iter().map(|p| scratch.path(p)));
        command.arg("--out").arg(scratch.path(out));
        command
    };
    run(&mut merge(&["shard2", "shard1"], "merged"), 0);
    assert_eq!(rows(&scratch.path("merged")), rows(&scratch.path("whole")));
    // Rendered alike, too.
    for file in ["rows.csv", "summary.md", "rate.svg", "ratio.svg", "roofline.svg"] {
        let read = |folder: &str| std::fs::read_to_string(scratch.path(folder).join(file)).unwrap();
        assert_eq!(read("merged"), read("whole"), "{file}");
    }
    // A part is missing; a row twice; settings that differ.
    run(&mut merge(&["shard1"], "part"), 4);
    let twice = run(&mut merge(&["shard1", "whole"], "twice"), 2);
    assert!(text(&twice).contains("merge parts of one run"), "{}", text(&twice));
    run(scratch.bench("other", FIELD).args(["--shard", "2/2", "--seed", "2"]), 0);
    let mixed = run(&mut merge(&["shard1", "other"], "mixed"), 2);
    assert!(text(&mixed).contains("settings is"), "{}", text(&mixed));
}

/// Two GPUs give the rows of one, in half the time.
#[test]
fn two_gpus_equal_one_and_halve_the_time() {
    let scratch = Scratch::new(16);
    let seconds = |name: &str, gpus: u32| {
        let mock = format!("{FIELD};row_ms=250;gpus={gpus}");
        let output = run(scratch.bench(name, &mock).arg("-q"), 0);
        let text = text(&output);
        let (_, rest) = text.split_once(" [").unwrap();
        rest.split_once(" s]").unwrap().0.parse::<f64>().unwrap()
    };
    let (one, two) = (seconds("one", 1), seconds("two", 2));
    let normal = |name: &str| {
        // What a row says of the machine's number of GPUs is nothing but the ordinal, which is left out.
        rows(&scratch.path(name))
    };
    assert_eq!(normal("one"), normal("two"));
    let both: Vec<Option<u32>> =
        folder::rows(&scratch.path("two")).unwrap().iter().map(|row| row.ordinal).collect();
    assert!(both.contains(&Some(0)) && both.contains(&Some(1)));
    assert!(two < one / 2.0 * 1.15, "{one} s on one GPU, {two} s on two");
}

#[test]
fn without_a_gpu_it_says_so_in_one_line() {
    // Where there is a GPU this asks for one that is not there.
    let output = fa4_bench()
        .args(["bench", "--set", "edge", "--gpus", "4711", "--out"])
        .arg("/nonexistent/x")
        .output()
        .unwrap();
    let text = text(&output);
    assert!(matches!(output.status.code(), Some(2 | 3)), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    if output.status.code() == Some(3) {
        assert!(text.contains("no GPU to time on") && text.contains("cargo xtask gate"), "{text}");
    }
}

#[test]
fn bad_input_is_answered_with_what_is_allowed() {
    let scratch = Scratch::new(2);
    let said = |command: &mut Command| text(&run(command, 2));
    assert!(said(&mut scratch.bench("a", "gpus=x")).contains("not a number"));
    assert!(
        said(scratch.bench("a", FIELD).args(["--filter", "nothing like this"])).contains("no row matches")
    );
    assert!(said(scratch.bench("a", FIELD).args(["--filter", "("])).contains("--filter"));
    assert!(said(scratch.bench("a", FIELD).args(["--gpus", "3"])).contains("there are 0"));
    assert!(said(scratch.bench("a", FIELD).args(["--timeout", "0"])).contains("above 0"));
    run(&mut scratch.bench("a", FIELD), 0);
    assert!(said(&mut scratch.bench("a", FIELD)).contains("holds a run already"));
    assert!(said(fa4_bench().arg("bench").arg("--resume").arg(scratch.path("none"))).contains("none"));
    assert!(said(fa4_bench().args(["results", "merge", "nowhere", "--out", "x"])).contains("nowhere"));
    // With a GPU or without one: what is wrong with the flags is said first.
    for (flags, says) in [
        (["--refs", "fa3,nope"], "there are torch-cudnn"),
        (["--gpus", "zz"], "numbers separated by commas"),
        (["--filter", "("], "regular expression"),
        (["--shard", "9/2"], "1 ≤ K ≤ N"),
        (["--artifacts", "nowhere"], "no such folder"),
    ] {
        assert!(said(fa4_bench().arg("bench").args(flags)).contains(says), "{flags:?}");
    }
    for (task, says) in [("bench", "4 interrupted"), ("fitness", "worth nothing"), ("publish", "3 no token")]
    {
        let help = text(&run(fa4_bench().args([task, "--help"]), 0));
        assert!(help.contains("Exit codes:") && help.contains(says), "{task}: {help}");
    }
}

#[test]
fn json_and_documents_are_made_from_the_rows() {
    let scratch = Scratch::new(3);
    run(scratch.bench("out", FIELD).arg("--json").arg(scratch.path("rows.json")), 0);
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(scratch.path("rows.json")).unwrap()).unwrap();
    for key in [
        "kernel",
        "case",
        "status",
        "schedule",
        "seed",
        "device",
        "evidence",
        "scale",
        "o_ratio",
        "lse_ratio",
        "reason",
        "seconds",
        "us",
        "ratio",
    ] {
        assert!(json[0].get(key).is_some(), "{key}");
    }
    let document = scratch.path("DOC.md");
    std::fs::write(&document, "a\n<!-- begin generated: bench -->\nold\n<!-- end generated: bench -->\nz\n")
        .unwrap();
    let report = |into: &Path| {
        let mut command = fa4_bench();
        command.args(["results", "report"]).arg(scratch.path("out")).arg("--into").arg(into);
        command
    };
    run(&mut report(&document), 0);
    let text_of = std::fs::read_to_string(&document).unwrap();
    assert!(text_of.starts_with("a\n<!-- begin") && text_of.ends_with("<!-- end generated: bench -->\nz\n"));
    assert!(text_of.contains("prefill hd16 bf16 causal") && !text_of.contains("old"));
    std::fs::write(&document, "no markers").unwrap();
    assert!(text(&run(&mut report(&document), 2)).contains("to put the table between"));
    run(fa4_bench().args(["results", "index", "--results"]).arg(scratch.0.path()), 0);
    let index = std::fs::read_to_string(scratch.path("INDEX.md")).unwrap();
    assert!(index.contains("[out](out/README.md) | Mock GPU"), "{index}");
}

/// What flashinfer-bench's validators ask of statuses, and that every line names a file that is there.
#[test]
fn exports_keep_the_other_formats_rules() {
    let scratch = Scratch::new(5);
    let mock = format!("{FIELD};fault=wrong@row01;fault=fault@row02;fault=unsupported@row03");
    run(&mut scratch.bench("out", &mock), 1);
    let mut export = fa4_bench();
    export.args(["results", "export", "--format", "flashinfer"]).arg(scratch.path("out"));
    let output = run(export.arg("--out").arg(scratch.path("export")), 0);
    assert!(text(&output).contains("2 definitions, 5 workloads, 2 solutions, 4 traces"), "{}", text(&output));
    let (mut statuses, mut solutions) = (Vec::new(), std::collections::BTreeSet::new());
    for name in ["gqa_dense_full_h2_kv1_d16", "gqa_dense_causal_h2_kv1_d16"] {
        let read = |path: String| std::fs::read_to_string(scratch.path("export").join(path)).unwrap();
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(json(&read(format!("definitions/gqa_dense/{name}.json")))["name"], name);
        for trace in read(format!("traces/gqa_dense/{name}.jsonl")).lines().map(json) {
            let solution = trace["solution"].as_str().unwrap();
            let solution = json(&read(format!("solutions/gqa_dense/{name}/{solution}.json")));
            // One name below two definitions, and the package refuses the whole data set.
            solutions.insert(solution["name"].as_str().unwrap().to_string());
            let entry = solution["spec"]["entry_point"].as_str().unwrap().split_once("::").unwrap().0;
            assert!(solution["sources"].as_array().unwrap().iter().any(|file| file["path"] == entry));
            let evaluation = &trace["evaluation"];
            let has = |what: &str| !evaluation[what].is_null();
            let status = evaluation["status"].as_str().unwrap().to_string();
            match status.as_str() {
                "PASSED" => assert!(has("correctness") && has("performance")),
                "INCORRECT_NUMERICAL" => assert!(has("correctness") && !has("performance")),
                _ => assert!(!has("correctness") && !has("performance")),
            }
            statuses.push(status);
        }
    }
    assert_eq!(solutions.len(), 2, "{solutions:?}");
    statuses.sort();
    assert_eq!(statuses, ["INCORRECT_NUMERICAL", "PASSED", "PASSED", "RUNTIME_ERROR"]);
}
