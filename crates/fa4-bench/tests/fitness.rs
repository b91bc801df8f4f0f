//! `fitness` from its flags to its JSON line, on a mock GPU and, without one, in the emulator.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file that is there: the mock does not look at it.
fn kernel() -> PathBuf {
    root().join("crates/fa4-kernels/cuda/kernels/fwd_sm100.cu")
}

fn fitness(file: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fa4-bench")).arg("fitness").arg(file).args(args).output().unwrap()
}

/// The exit code and the one line of standard output.
fn judged(file: &Path, args: &[&str]) -> (i32, Value) {
    let output = fitness(file, args);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}\n{errors}");
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
}

const ROWS: &str = "^tail_prefill_b1_q1_k1_h4kv2_d64_n?c$";

fn on_mock(mock: &str, more: &[&str]) -> (i32, Value) {
    let mut args =
        vec!["--set", "edge", "--filter", ROWS, "--budget", "0.05", "--rounds", "1", "--mock", mock];
    args.extend(more);
    judged(&kernel(), &args)
}

#[test]
fn a_right_file_is_worth_its_speed() {
    // The mock gives the parent the same times; the reference takes a quarter longer.
    let (code, found) = on_mock("gpus=1;refs=other:1.25", &[]);
    assert_eq!((code, &found["status"]), (0, &Value::from("pass")), "{found}");
    let near = |key: &str, value: f64| (found[key].as_f64().unwrap() - value).abs() < 0.05;
    assert!(
        near("fitness", 1.0) && near("against_parent", 1.0) && near("against_reference", 1.25),
        "{found}"
    );
    assert_eq!(found["predicted"], Value::from(false));
    assert!(found["reason"].is_null());
}

#[test]
fn what_is_not_right_is_worth_nothing() {
    for (fault, status) in [("wrong", "wrong"), ("nan", "wrong"), ("crash", "wrong"), ("hang", "hung")] {
        let mock = format!("gpus=1;fault={fault}@_nc");
        let (code, found) = on_mock(&mock, &["--timeout", "3"]);
        assert_eq!((code, found["fitness"].as_f64()), (1, Some(0.0)), "{fault}: {found}");
        assert_eq!(found["status"], Value::from(status), "{fault}: {found}");
        assert!(found["reason"].as_str().unwrap().contains("tail_prefill"), "{found}");
    }
}

#[test]
fn bad_flags_are_said_on_standard_error() {
    for args in
        [&["--budget", "0"][..], &["--rounds", "0"], &["--set", "none"], &["--parent", "no-such-file.cu"]]
    {
        let output = fitness(&kernel(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    let missing = fitness(Path::new("no-such-file.cu"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-file.cu"));
}

/// Whether this machine can compile and has no GPU, as the rest needs.
fn emulated() -> bool {
    fa4_kernels::compile::Builder::open(&root()).is_ok() && fa4_bench::gpu::machines().is_err()
}

#[test]
fn what_does_not_compile_is_worth_nothing() {
    if !emulated() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken.cu");
    std::fs::write(&file, "extern \"C\" __global__ void fwd_sm100_hd128_bf16_full() { not_a_function(); }\n")
        .unwrap();
    let (code, found) = judged(&file, &["--filter", "product_b2_q1_k130_h2kv2"]);
    assert_eq!((code, &found["status"], found["fitness"].as_f64()), (1, &"uncompilable".into(), Some(0.0)));
    assert!(found["reason"].as_str().unwrap().contains("not_a_function"), "{found}");
    std::fs::write(&file, "extern \"C\" __global__ void something_else() {}\n").unwrap();
    let (code, found) = judged(&file, &["--filter", "product_b2_q1_k130_h2kv2"]);
    assert_eq!((code, &found["status"]), (1, &Value::from("uncompilable")), "{found}");
    assert!(found["reason"].as_str().unwrap().contains("something_else"), "{found}");
}
