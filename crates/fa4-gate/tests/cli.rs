//! The binary on bad input: a located, helpful message and the documented exit code, never a panic.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn gate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fa4-gate")).args(args).output().unwrap()
}

#[track_caller]
fn refused(args: &[&str], code: i32, words: &[&str]) -> String {
    let output = gate(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{args:?} lacks `{word}`: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// A file in a folder of this test's own.
fn file(name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fa4-gate-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Exit code of a candidate's trouble: without a toolchain the machine is at fault.
fn toolchain_present() -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fa4_kernels::toolchain::Toolchain::locate(&root).is_ok()
}

#[track_caller]
fn candidate_refused(path: &Path, words: &[&str]) {
    let args = ["--smoke", "--cand", path.to_str().unwrap(), "--namespace", "mine", "-q"];
    match toolchain_present() {
        true => refused(&args, 2, words),
        false => refused(&args, 3, &["cargo xtask setup"]),
    };
}

#[test]
fn a_filter_that_leaves_no_twin_is_refused() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_fa4-gate"))
        .args(["twins", "--filter", "no-such-twin"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn usage() {
    refused(&["--no-such-flag"], 2, &["--no-such-flag"]);
    refused(&["--schedule", "eager,lazy"], 2, &["`lazy`", "eager, late-lifo, late-tma, random"]);
    refused(&["--seeds", "9"], 2, &["A..B"]);
    refused(&["--filter", "("], 2, &["--filter (", "regular expression"]);
    refused(&["--cand", "x.cu"], 2, &["--namespace"]);
    refused(&["--device", "tpu"], 2, &["emu"]);
    refused(&["plan", "fwd_sm80"], 2, &["fwd_sm80", "fwd_sm100, fwd_sm90"]);
    refused(&["plan", "fwd_sm100", "--variant", "hd32"], 2, &["hd32", "hd128_bf16_full, "]);
}

#[test]
fn no_cuda_backend_yet() {
    // Where there is a GPU these would judge everything on it.
    if fa4_host::cuda::gpus().is_err() {
        for device in ["cuda", "both"] {
            let text = refused(&["--device", device], 3, &["no GPU: ", "--device emu needs none"]);
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
}

#[test]
fn scenario_files() {
    refused(&["--configs", "/no/such.csv"], 2, &["/no/such.csv", "sets/README.md"]);
    let header = fa4_spec::sets::HEADER.join(",");
    let bad = file(
        "bad.csv",
        format!("{header}\nx,s,f,prefill,1,4,4,4,3,128,128,1,-1,-1,0,0,bf16,bf16,dense,0,,randn,match,,\n"),
    );
    refused(&["--configs", bad.to_str().unwrap()], 2, &["bad.csv:2:", "must divide num_heads_q"]);
    let binary = file("binary.csv", [0xff, 0, 0xfe, b'\n', b'"']);
    refused(&["--configs", binary.to_str().unwrap()], 2, &["binary.csv"]);
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sets/published.csv");
    refused(&["--configs", published.to_str().unwrap()], 2, &["published.csv:1:1:", "expected `id`"]);
}

#[test]
fn candidates() {
    candidate_refused(Path::new("/no/such.cu"), &["/no/such.cu"]);
    candidate_refused(&file("broken.cu", "int x = ;\n"), &["broken.cu:1", "error"]);
    candidate_refused(
        &file("other.cu", "extern \"C\" __global__ void other() {}\n"),
        &["other.cu", "other", "fwd_sm100_hd128_bf16_full"],
    );
}

/// A row that no kernel serves is listed with the reason and fails nothing.
#[test]
fn unsupported_rows_are_listed() {
    if !toolchain_present() {
        return;
    }
    let header = fa4_spec::sets::HEADER.join(",");
    let row = "odd,s,f,prefill,1,4,4,4,2,48,48,1,-1,-1,0,0,fp16,fp16,dense,0,,randn,match,,";
    let path = file("odd.csv", format!("{header}\n{row}\n"));
    let json = path.with_extension("json");
    let output = gate(&["--configs", path.to_str().unwrap(), "--json", json.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("head_dim_qk is 48") && text.contains("odd"), "{text}");
    let rows: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(rows[0]["status"], "unsupported");
    assert_eq!(rows[0]["case"], "odd");
}

/// A stranger's broken kernel: exit code 1, and the report names the fault, the line of the `.cu` file and how to repeat it.
#[test]
fn a_broken_candidate_is_explained() {
    if !toolchain_present() {
        return;
    }
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fa4-kernels/cuda/kernels/fwd_sm100.cu");
    let text = std::fs::read_to_string(kernel).unwrap();
    let broken = text.replace("tcgen05_commit(ctx.bar(S_full, t));", "mbarrier_arrive(ctx.bar(S_full, t));");
    assert_ne!(text, broken);
    let path = file("early.cu", broken);
    let args =
        ["--smoke", "--schedule", "eager", "--cand", path.to_str().unwrap(), "--namespace", "mine", "-q"];
    let output = gate(&args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in ["mine/fwd_sm100_hd128_bf16_causal", "lease.tmem", "early.cu:", "replay:", "--namespace mine"]
    {
        assert!(text.contains(word), "lacks `{word}`: {text}");
    }
}

/// `… | head -1` ends quietly, as programs do that SIGPIPE ends.
#[test]
fn a_closed_pipe_is_no_bug() {
    use std::process::Stdio;
    // A selection that nothing matches but the probes: no compiler needed to print a table.
    let mut child = Command::new(env!("CARGO_BIN_EXE_fa4-gate"))
        .args(["--device", "emu", "--filter", "^probe/shfl_up$"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let expected = if toolchain_present() { 141 } else { 3 };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
