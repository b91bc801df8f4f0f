//! The verdict does not depend on how many threads judge.

use std::sync::atomic::AtomicBool;

use fa4_gate::cli::Run;
use fa4_gate::kernels::{Kernel, compile, workspace};
use fa4_gate::rows::Row;
use fa4_gate::select::{Source, select};
use fa4_gate::session::{Setup, judge_all};
use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_kernels::compile::Builder;
use indicatif::ProgressBar;
use ptx_emu::launch::{Options, Schedule};

fn rows(kernels: &[Kernel<EmuModule>], threads: usize) -> (Vec<Row>, String) {
    let cases = select(Source::Smoke, None, 1, 5).unwrap().routed;
    let runs = Schedule::ALL.map(|schedule| Run { schedule, seed: 1 });
    let (stop, progress) = (AtomicBool::new(false), ProgressBar::hidden());
    let setup =
        Setup { runs: &runs, device: "emu", threads, strict: false, stop: &stop, progress: &progress };
    let judged: Vec<_> = kernels.iter().map(|kernel| (kernel, "manual")).collect();
    let session = judge_all(&judged, &cases, &setup, |run| {
        EmuDevice::new(Options { schedule: run.schedule, seed: run.seed, ..Options::default() })
    });
    let counts = format!("{:?} {:?}", session.coverage, session.strict);
    (session.rows.into_iter().map(|row| Row { seconds: 0.0, ..row }).collect(), counts)
}

#[test]
fn one_and_four_threads_agree() {
    let root = workspace();
    // Without a toolchain there is no kernel to judge; the gate itself then answers with exit code 3 (tests/cli.rs).
    let Ok(builder) = Builder::open(&root) else { return };
    let kernels = compile(&builder, &root, None).unwrap();
    assert_eq!(rows(&kernels, 1), rows(&kernels, 4));
}
