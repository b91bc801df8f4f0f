//! `fa4-gate`: `cargo xtask gate` runs it.

use std::process::ExitCode;

use clap::Parser;
use fa4_gate::cli::end_quietly_when_nobody_reads;
use fa4_gate::cli::{Cli, Task};
use fa4_gate::error::{GateError, exit};
use fa4_gate::foreign::command;
use fa4_gate::{gate, kernels, mutate, plan, probes, twins};
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::Builder;

fn main() -> ExitCode {
    end_quietly_when_nobody_reads();
    let cli = Cli::parse();
    let stop = gate::stop_on_interrupt();
    let result = match &cli.task {
        None => gate::gate(&cli.gate, &stop),
        Some(Task::Foreign { task }) => command::run(task, &stop),
        Some(Task::Mutate(args)) => mutate::run(args, &stop),
        Some(Task::Prebuild { arch }) => prebuild(*arch),
        Some(Task::Twins { filter, quiet }) => twins::run(filter.as_deref(), *quiet, &stop),
        Some(Task::Plan(args)) => plan::run(args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn prebuild(arch: Arch) -> Result<u8, GateError> {
    let root = kernels::workspace();
    let count = probes::prebuild(&root, &Builder::open(&root)?, arch)?;
    println!("{count} probes are compiled for {arch}");
    Ok(exit::OK)
}
