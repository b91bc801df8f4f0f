//! `fa4-gate`: `cargo xtask gate` runs it.

use std::process::ExitCode;

use clap::Parser;
use fa4_gate::cli::{Cli, Task};
use fa4_gate::foreign::command;
use fa4_gate::{gate, twins};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let stop = gate::stop_on_interrupt();
    let result = match &cli.task {
        None => gate::gate(&cli.gate, &stop),
        Some(Task::Foreign { task }) => command::run(task, &stop),
        Some(Task::Twins { filter, quiet }) => twins::run(filter.as_deref(), *quiet, &stop),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
