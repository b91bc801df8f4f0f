//! Writes the Chrome/Perfetto trace of the pipelining problem (one head, eight K/V blocks) of a kernel:
//! `cargo run --release -p fa4-gate --example pipeline_trace -- [ENTRY] [OUT.json] [SCHEDULE]`.
//!
//! ENTRY is an entry function such as `fwd_sm100_hd64_bf16_causal`. The schedule is `timed` (predicted cycles) if none is
//! given; under another a microsecond stands for a step of the emulator.

use std::path::Path;
use std::process::ExitCode;

use fa4_gate::kernels::{compile, workspace};
use fa4_gate::pipeline;
use fa4_kernels::compile::Builder;
use fa4_kernels::manifest::ROWS;
use ptx_emu::launch::Schedule;

/// Used where none is given.
const ENTRY: &str = "fwd_sm100_hd128_bf16_full";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let entry = args.next().unwrap_or_else(|| ENTRY.into());
    let out = args.next().unwrap_or_else(|| "trace.json".into());
    let schedule = args.next().unwrap_or_else(|| Schedule::Timed.as_str().into());
    match write(&entry, Path::new(&out), &schedule) {
        Ok(events) => {
            println!("{out}: {events} events; open it at ui.perfetto.dev or chrome://tracing");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Writes the trace of a kernel's entry function; the number of its events.
pub fn write(entry: &str, out: &Path, schedule: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let row = ROWS.iter().find(|row| row.entry == entry).ok_or_else(|| {
        let all: Vec<&str> = ROWS.iter().map(|row| row.entry).collect();
        format!("no kernel has the entry `{entry}`; allowed are:\n  {}", all.join("\n  "))
    })?;
    let schedule = Schedule::parse(schedule).ok_or_else(|| {
        format!("`{schedule}` is no schedule; allowed are eager, late-lifo, late-tma, random, timed")
    })?;
    let root = workspace();
    let kernels = compile(&Builder::open(&root)?, &root, None, |r| r == row)?;
    let kernel = kernels.first().ok_or("the compiler gave no kernel")?;
    let trace = pipeline::trace(kernel, schedule)?;
    std::fs::write(out, serde_json::to_string(&ptx_emu::render::chrome(&trace))?)
        .map_err(|e| format!("{}: {e}", out.display()))?;
    Ok(trace.events.len())
}
