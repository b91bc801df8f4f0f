//! The fixed part of the mutants of each kernel: all noticed, or justified. `cargo xtask mutate KERNEL` runs them all.

use std::path::Path;
use std::process::Command;

fn toolchain_present() -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fa4_kernels::toolchain::Toolchain::locate(&root).is_ok()
}

fn mutate(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fa4-gate")).arg("mutate").args(args).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn the_subset_leaves_no_hole() {
    // Without a compiler there is nothing to break.
    if !toolchain_present() {
        return;
    }
    for kernel in ["fwd_sm100", "fwd_sm90"] {
        let (code, text) = mutate(&[kernel, "--subset", "--quiet", "--seeds", "1..2"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(" mutants: ") && text.contains(", 0 holes"), "{text}");
    }
}

#[test]
fn bad_input_is_explained() {
    let (code, text) = mutate(&["fwd_sm80"]);
    assert!(code == Some(2) && text.contains("fwd_sm100, fwd_sm90"), "{text}");
    let (code, text) = mutate(&["fwd_sm100", "--seeds", "4..4"]);
    assert!(code == Some(2) && text.contains("A..B"), "{text}");
    let (code, text) = mutate(&["fwd_sm100", "--filter", "("]);
    assert!(code == Some(2) && text.contains("regular expression"), "{text}");
    if toolchain_present() {
        let (code, text) = mutate(&["fwd_sm100", "--filter", "no such mutant"]);
        assert!(code == Some(2) && text.contains("--list"), "{text}");
    }
}
