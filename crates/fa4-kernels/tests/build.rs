//! The compiler as it is used: needs the toolchain that `cargo xtask setup` prepares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{BuildError, Builder, Job};
use fa4_kernels::manifest::ROWS;
use fa4_kernels::{kernel_info, sass};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn builder() -> Builder {
    Builder::open(&workspace()).unwrap_or_else(|error| panic!("{error}"))
}

/// A job for `text` in a file of its own, removed with the guard.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> (Self, Job) {
        let folder = std::env::temp_dir().join(format!("fa4-build-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let source = folder.join("k.cu");
        fs::write(&source, text).unwrap();
        let job = Job {
            name: name.into(),
            source,
            defines: vec![("VALUE".into(), "3".into())],
            entries: vec!["k".into()],
            archs: vec![Arch::Sm100a],
        };
        (Self(folder), job)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_row_compiles_without_local_memory() {
    let builder = builder();
    for row in ROWS {
        let artifact = builder.build_row(row).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(artifact.images.len(), row.archs.len());
        for image in &artifact.images {
            assert!(image.ptx.contains(&format!(".target {}", image.arch)), "{}", row.name());
            assert!(!image.ptx.contains("ld.local") && !image.ptx.contains("st.local"), "{}", row.name());
            let functions = sass::disassemble(builder.toolchain(), &image.cubin_path()).unwrap();
            assert!(
                functions
                    .iter()
                    .any(|function| function.name == row.entry && function.instructions.len() > 100)
            );
            assert!(functions.iter().all(|function| function.local_memory_count() == 0), "{}", row.name());
            kernel_info::parse(&image.ptx).unwrap_or_else(|error| panic!("{}: {error}", row.name()));
        }
    }
}

/// cuobjdump reads the same figures out of the cubin that we read out of the assembler's log.
#[test]
fn usage_agrees_with_cuobjdump() {
    let builder = builder();
    for row in ROWS {
        for image in builder.build_row(row).unwrap().images {
            let output = Command::new(builder.toolchain().cuobjdump())
                .arg("-res-usage")
                .arg(image.cubin_path())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().skip_while(|line| !line.contains(row.entry)).nth(1).unwrap().to_owned();
            let usage = &image.usage[row.entry];
            assert!(line.contains(&format!("REG:{} ", usage.registers)), "{line}");
            assert!(line.contains("STACK:0 ") && line.contains("LOCAL:0 "), "{line}");
            assert!(usage.sass_bytes > 1000, "{usage:?}");
        }
    }
}

#[test]
fn the_cache_answers_the_second_time_and_forgets_nothing() {
    let text = format!(
        "extern \"C\" __global__ void k(int *p) {{ *p = VALUE; }} // {:?}\n",
        std::time::SystemTime::now()
    );
    let (_scratch, job) = Scratch::new("cache", &text);
    let builder = builder();
    let [first, second] = [(); 2].map(|()| builder.build(&job).unwrap().images.remove(0));
    assert!(!first.cached && second.cached);
    assert_eq!((&first.ptx, &first.cubin, &first.usage), (&second.ptx, &second.cubin, &second.usage));
    // An edit in memory, as twins are made, is another artifact.
    let mut source = builder.source(&job).unwrap();
    let name = source.name.clone();
    let edited = source.file_mut(&name).unwrap();
    *edited = edited.replace("VALUE", "VALUE + 1");
    let twin = builder.build_source(&job, &source).unwrap().images.remove(0);
    assert_ne!(twin.ptx, first.ptx);
    for image in [first, twin] {
        fs::remove_dir_all(image.folder).unwrap();
    }
}

#[test]
fn compiler_errors_name_the_line() {
    let (_scratch, job) =
        Scratch::new("compiler", "extern \"C\" __global__ void k(int *p) {\n    *p = nothing;\n}\n");
    let error = builder().build(&job).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, BuildError::Compile { .. }), "{text}");
    assert!(text.contains("k.cu:2: error: identifier \"nothing\" is undefined"), "{text}");
}

#[test]
fn assembler_errors_name_the_line() {
    let text = "extern \"C\" __global__ void k(int *p) {\n    int r;\n    asm volatile(\"mul.lo.s37 %0, 1, 2;\" : \"=r\"(r));\n    *p = r;\n}\n";
    let (_scratch, job) = Scratch::new("assembler", text);
    let message = builder().build(&job).unwrap_err().to_string();
    assert!(message.contains("k.cu:3: ") && message.contains("'.s37'"), "{message}");
}

/// The assembler finds registers for the array after all; the emulator, which reads PTX, would not.
#[test]
fn arrays_in_local_memory_are_errors() {
    let text = "extern \"C\" __global__ void k(int *p) {\n    int a[64];\n    for (int i = 0; i < 64; ++i) a[i] = p[i];\n    p[0] = a[p[1] & 63];\n}\n";
    let (_scratch, job) = Scratch::new("array", text);
    let error = builder().build(&job).unwrap_err();
    assert!(matches!(&error, BuildError::LocalArray { at, .. } if at.ends_with("k.cu:3")), "{error}");
}

#[test]
fn spills_are_errors() {
    let text = "extern \"C\" __global__ void __launch_bounds__(1024) k(float *p, int n) {\n    float a[100];\n#pragma unroll\n    for (int i = 0; i < 100; ++i) a[i] = p[i * 1024 + threadIdx.x];\n    for (int j = 0; j < n; ++j)\n#pragma unroll\n        for (int i = 0; i < 100; ++i) a[i] = a[i] * a[(i + 7) % 100] + p[j];\n#pragma unroll\n    for (int i = 0; i < 100; ++i) p[i * 1024 + threadIdx.x] = a[i];\n}\n";
    let (_scratch, job) = Scratch::new("spill", text);
    let error = builder().build(&job).unwrap_err();
    let BuildError::LocalMemory { function, usage, .. } = &error else { panic!("{error}") };
    assert!(function == "k" && usage.spill_store_bytes > 0 && usage.spill_load_bytes > 0, "{error}");
}

#[test]
fn a_missing_entry_or_file_is_said() {
    let (_scratch, mut job) = Scratch::new("entry", "extern \"C\" __global__ void other() {}\n");
    let text = builder().build(&job).unwrap_err().to_string();
    assert!(text.contains("no entry function `k`; the file defines `other`"), "{text}");
    job.source.set_file_name("nowhere.cu");
    let text = builder().build(&job).unwrap_err().to_string();
    assert!(text.contains("cannot read") && text.contains("nowhere.cu"), "{text}");
}
