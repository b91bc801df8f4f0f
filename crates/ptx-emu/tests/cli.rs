//! The command line: exit codes, outputs and what is printed.

use ptx_emu::npy;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli").join(name).display().to_string()
}

/// A fresh folder for the files of one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn emu(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ptx-emu")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A launch of `scale` over `n` of 200 elements.
fn launch(folder: &Path, n: u32, init: &str) -> String {
    let path = folder.join("launch.toml");
    let text = format!(
        "ptx = '{}'\ngrid = [2]\nblock = [128]\n\
         [[param]]\nkind = 'buffer'\nname = 'in'\ndtype = 'f32'\nshape = [200]\ninit = {init}\n\
         [[param]]\nkind = 'buffer'\nname = 'out'\ndtype = 'f32'\nshape = [200]\noutput = 'out.npy'\n\
         [[param]]\nkind = 'scalar'\ntype = 'u32'\nvalue = {n}\n",
        data("scale.ptx")
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn clean_run_writes_outputs_reports_and_traces() {
    let folder = folder("clean");
    let launch = launch(&folder, 200, "'iota'");
    let (json, trace) = (folder.join("report.json"), folder.join("trace.json"));
    let output = emu(&[
        "run",
        &launch,
        "--schedule",
        "all",
        "--seeds",
        "1..4",
        "--json",
        json.to_str().unwrap(),
        "--trace",
        trace.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let array = npy::read(&std::fs::read(folder.join("out.npy")).unwrap()).unwrap();
    let expected: Vec<u8> = (0..200).flat_map(|i| (2.0 * i as f32).to_le_bytes()).collect();
    assert_eq!((array.shape, array.data), (vec![200], expected));
    let reports: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    // eager, late-lifo and late-tma once each; random for each of the seeds 1, 2, 3.
    assert_eq!(reports.as_array().unwrap().len(), 6);
    assert_eq!(reports[0]["verdict"], "clean");
    assert_eq!(reports[5]["seed"], 3);
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].is_array());
}

#[test]
fn output_left_undefined_is_a_fault() {
    let folder = folder("undefined");
    let output = emu(&["run", &launch(&folder, 199, "'iota'")]);
    assert_eq!(output.status.code(), Some(10), "{}", text(&output));
    assert!(text(&output).contains("fault[uninit.output]"), "{}", text(&output));
    assert!(text(&output).contains("replay: ptx-emu run"), "{}", text(&output));
    assert!(!folder.join("out.npy").exists());
}

#[test]
fn out_of_bounds_names_the_ptx_line() {
    let folder = folder("bounds");
    let output = emu(&["run", &launch(&folder, 201, "'zeros'")]);
    assert_eq!(output.status.code(), Some(10), "{}", text(&output));
    let text = text(&output);
    assert!(text.contains("fault[bounds.global]"), "{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal: {text}");
    assert!(text.contains("scale.ptx:24") && text.contains("| ld.global.f32 x, [a];"), "{text}");
}

#[test]
fn step_limit() {
    let folder = folder("steps");
    let output = emu(&["run", &launch(&folder, 200, "'zeros'"), "--step-limit", "20"]);
    assert_eq!(output.status.code(), Some(12), "{}", text(&output));
}

#[test]
fn unsupported_opcode_is_named_and_not_blamed_on_the_kernel() {
    let folder = folder("unsupported");
    let launch = launch(&folder, 200, "'zeros'");
    let ptx =
        std::fs::read_to_string(data("scale.ptx")).unwrap().replace("add.rn.f32 x, x, x", "frob.f32 x, x");
    let path = folder.join("frob.ptx");
    std::fs::write(&path, ptx).unwrap();
    let changed = std::fs::read_to_string(&launch).unwrap().replace(&data("scale.ptx"), "frob.ptx");
    std::fs::write(&launch, changed).unwrap();
    let output = emu(&["run", &launch]);
    assert_eq!(output.status.code(), Some(11), "{}", text(&output));
    assert!(text(&output).contains("frob.f32"), "{}", text(&output));
    assert!(text(&output).contains("says nothing about the kernel"), "{}", text(&output));
    let output = emu(&["coverage", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(11), "{}", text(&output));
    assert!(text(&output).contains("1 of them unsupported"), "{}", text(&output));
}

#[test]
fn bad_input() {
    let folder = folder("bad");
    let launch = launch(&folder, 200, "'zeros'");
    for arguments in [
        &["run"][..],
        &["run", "no such file"],
        &["run", &launch, "--schedule", "lazy"],
        &["run", &launch, "--seeds", "5..1"],
        &["run", &launch, "--seeds", "5..5"],
        &["run", &launch, "--check", "everything"],
        &["parse", &launch],
        &["explain", "lease.nothing"],
    ] {
        let output = emu(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
    }
}

/// What cannot be written is said before the run, which then has no verdict.
#[test]
fn unwritable_paths_are_refused_before_the_run() {
    let folder = folder("unwritable");
    let launch = launch(&folder, 200, "'iota'");
    for flag in ["--json", "--trace"] {
        let output = emu(&["run", &launch, flag, "no/such/folder/x.json"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("no/such/folder/x.json: cannot be written"), "{}", text(&output));
        assert!(!text(&output).contains("clean"), "{}", text(&output));
    }
    assert!(!folder.join("out.npy").exists());
}

/// `… | head -1` ends quietly, as programs do that SIGPIPE ends.
#[test]
fn a_closed_pipe_is_no_bug() {
    use std::process::Stdio;
    // Closed before the program starts: it cannot fill the pipe first.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = Command::new(env!("CARGO_BIN_EXE_ptx-emu"))
        .args(["parse", "--print", &data("scale.ptx")])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{}", text(&output));
    assert!(output.stderr.is_empty(), "{}", text(&output));
}

#[test]
fn every_code_is_explained() {
    let list = text(&emu(&["explain"]));
    for line in list.lines() {
        let code = line.split_whitespace().next().unwrap();
        let output = emu(&["explain", code]);
        assert_eq!(output.status.code(), Some(0), "{code}");
        for heading in ["Cause\n", "Example (", "Fix\n"] {
            assert!(text(&output).contains(heading), "{code}: no {heading}");
        }
    }
}

#[test]
fn printed_normal_form_parses() {
    let output = emu(&["parse", "--print", &data("scale.ptx")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).contains("// cover: in-range"));
    assert!(ptx_emu::syntax::parse("printed", &text(&output)).is_ok());
}

/// Another compiler's kernel, a launch file written by hand, outputs as `.npy`, f64 as the judge.
#[test]
fn triton_softmax_by_a_launch_file() {
    let folder = folder("triton_softmax");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("tests/launch/triton_softmax.toml")).unwrap();
    let ptx = root.join("../../foreign/triton/sm_100a/softmax_rows.ptx");
    let path = folder.join("launch.toml");
    // Outputs are written beside the launch file, so it moves to a folder of its own.
    let moved = text.replace("../../../../foreign/triton/sm_100a/softmax_rows.ptx", ptx.to_str().unwrap());
    std::fs::write(&path, moved).unwrap();
    let output = emu(&["run", path.to_str().unwrap(), "--schedule", "all"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::text(&output));
    let read = |name: &str| -> Vec<f32> {
        let array = npy::read(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        assert_eq!(array.shape, [6, 1024]);
        array.data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let (x, y) = (read("x.npy"), read("y.npy"));
    for (x, y) in x.chunks(1024).zip(y.chunks(1024)) {
        let max = x[..1000].iter().fold(f64::MIN, |m, &v| m.max(f64::from(v)));
        let e: Vec<f64> = x[..1000].iter().map(|&v| (f64::from(v) - max).exp()).collect();
        let sum: f64 = e.iter().sum();
        for (got, want) in y.iter().zip(e.iter().map(|e| e / sum)) {
            assert!((f64::from(*got) - want).abs() <= 4e-6 * want, "{got} instead of {want}");
        }
        assert!(y[1000..].iter().all(|&v| v == 0.0), "columns past the row were written");
    }
}
