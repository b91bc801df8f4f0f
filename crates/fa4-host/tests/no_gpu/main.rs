//! What the GPU commands say where there is no GPU, or a broken one: one clear line, the documented exit code, never a
//! panic. The driver is a fake (`fake_driver.c`) that fails where it is told to.
#![cfg(all(feature = "cuda", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the fake driver under the name that is looked for first.
fn fake_driver(folder: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/no_gpu/fake_driver.c");
    // The linker that Rust itself needs is this compiler.
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join("libcuda.so")).arg(source).args(flags);
    assert!(cc.status().expect("cc starts").success(), "the fake driver does not compile");
    folder
}

struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Answer {
    /// The command ended with `code` and one line that contains `text`.
    fn is(&self, code: i32, text: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(text), "{}", self.stderr);
    }
}

fn fa4_gpu(driver: Option<&Path>, words: &[&str], environment: &[(&str, &str)]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa4-gpu"));
    command.args(words).env_remove("CUDA_VISIBLE_DEVICES").envs(environment.iter().copied());
    if let Some(folder) = driver {
        command.env("LD_LIBRARY_PATH", folder);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Kernels can only be compiled where the toolchain is.
fn toolchain_present() -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fa4_kernels::compile::Builder::open(&root).is_ok()
}

/// Whatever this machine is, every command ends with a result or one clear line.
#[test]
fn this_machine_gets_a_clear_answer() {
    let list = fa4_gpu(None, &["list"], &[]);
    match list.code {
        Some(0) => assert!(list.stdout.starts_with("GPU 0: "), "{}", list.stdout),
        _ => {
            list.is(3, "no GPU: ");
            println!("{}", list.stderr.trim_end());
            for words in [&["selftest"][..], &["selftest", "1"], &["break", "trap"], &["break", "hang", "0"]]
            {
                fa4_gpu(None, words, &[]).is(3, "no GPU: ");
            }
        }
    }
    for words in
        [&[][..], &["lists"], &["selftest", "x"], &["break"], &["break", "everything"], &["list", "0"]]
    {
        let answer = fa4_gpu(None, words, &[]);
        assert_eq!(answer.code, Some(2));
        assert!(answer.stderr.starts_with("usage: "), "{}", answer.stderr);
    }
}

#[test]
fn a_machine_without_a_usable_gpu_says_why() {
    let driver = fake_driver("fake", &[]);
    let list = |environment: &[(&str, &str)]| fa4_gpu(Some(&driver), &["list"], environment);
    let gpu = list(&[]);
    assert_eq!(gpu.code, Some(0), "{}", gpu.stderr);
    assert!(gpu.stdout.contains("Fake 0, compute capability 9.0 (sm_90a)"), "{}", gpu.stdout);
    assert!(list(&[("FAKE_CC", "103")]).stdout.contains("10.3 (sm_103a)"));
    assert!(list(&[("FAKE_CC", "86")]).stdout.contains("8.6 (no kernels)"));
    assert_eq!(list(&[("FAKE_COUNT", "3")]).stdout.lines().count(), 3);
    list(&[("FAKE_CUDA", "cuInit=100")]).is(3, "no GPU: cuInit: CUDA_ERROR_NO_DEVICE (as told)");
    list(&[("FAKE_CUDA", "cuInit=34567")]).is(3, "cuInit: CUDA_ERROR 34567 (no explanation)");
    list(&[("FAKE_COUNT", "0")]).is(3, "shows no device to this process");
    let text =
        "no GPU: the installed NVIDIA driver is of CUDA 12.8; CUDA 13.0 (driver 580) or newer is needed";
    list(&[("FAKE_VERSION", "12080")]).is(3, text);
    list(&[("FAKE_CUDA", "cuDeviceGetName=999")]).is(1, "cuDeviceGetName: CUDA_ERROR_UNKNOWN");
    let old = fake_driver("old", &["-DLACK"]);
    fa4_gpu(Some(&old), &["list"], &[]).is(3, "lacks cuLaunchKernelEx");
    fa4_gpu(Some(&driver), &["selftest", "7"], &[]).is(3, "there is no GPU 7; the driver shows 1 (0 to 0)");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("text");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libcuda.so"), "no library").unwrap();
    let answer = fa4_gpu(Some(&folder), &["list"], &[]);
    assert!(answer.code == Some(0) || answer.stderr.contains("libcuda.so.1"), "{}", answer.stderr);
}

#[test]
fn failures_keep_the_drivers_own_names() {
    if !toolchain_present() {
        return;
    }
    let driver = fake_driver("broken", &[]);
    let trap = |told: &str| fa4_gpu(Some(&driver), &["break", "trap"], &[("FAKE_CUDA", told)]);
    assert_eq!(trap("").code, Some(0), "{}", trap("").stderr);
    trap("cuModuleLoadData=209").is(1, "cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU");
    trap("cuMemAlloc_v2=2").is(
        1,
        "flag: 4 bytes do not fit into the GPU's memory, 4096 bytes are free (CUDA_ERROR_OUT_OF_MEMORY)",
    );
    trap("cuLaunchKernelEx=1").is(1, "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE");
    for (status, name) in [(700, "CUDA_ERROR_ILLEGAL_ADDRESS"), (719, "CUDA_ERROR_LAUNCH_FAILED")] {
        let answer = trap(&format!("cuStreamQuery={status}"));
        answer.is(1, &format!("cuStreamQuery: {name} (as told)"));
        let then = format!("then: not run: an earlier kernel broke the GPU's context (cuStreamQuery: {name}");
        assert!(answer.stdout.starts_with(&then), "{}", answer.stdout);
    }
    trap("cuStreamQuery=600").is(1, "gave up: the kernel was still running after 2.0 s");
    let other = fa4_gpu(Some(&driver), &["break", "trap"], &[("FAKE_CC", "86")]);
    other.is(3, "Fake 0 (compute capability 8.6) runs none of sm_90a, sm_100a, sm_103a; the kernel was compiled for sm_90a");
    fa4_gpu(Some(&driver), &["selftest"], &[]).is(1, "probe_copy takes 0 parameters");
}

/// Whichever call fails, the command ends with one line and no panic (exit code 101).
#[test]
fn no_failure_is_a_panic() {
    if !toolchain_present() {
        return;
    }
    let driver = fake_driver("each", &[]);
    let source = include_str!("fake_driver.c");
    let names = source.split("\nDRIVER(").skip(1).filter_map(|rest| rest.split(',').next());
    let mut failing = 0;
    for name in names {
        let told = format!("{name}=999");
        let answer = fa4_gpu(Some(&driver), &["break", "trap"], &[("FAKE_CUDA", &told)]);
        match answer.code {
            Some(0) => {}
            Some(1) => answer.is(1, "CUDA_ERROR_UNKNOWN"),
            _ => answer.is(3, "CUDA_ERROR_UNKNOWN"),
        }
        failing += i32::from(answer.code != Some(0));
    }
    // The calls on this command's way; the others are not reached, or free something.
    assert!(failing >= 14, "{failing}");
}
