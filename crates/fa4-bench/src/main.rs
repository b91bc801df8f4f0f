//! `fa4-bench`: timing, results, publishing. Parse, then one match.

use std::process::ExitCode;

use clap::Parser;
use fa4_bench::cli::{Cli, Task};
use fa4_bench::error::BenchError;
use fa4_bench::publish::{self, Patience, PublishArgs, TOKEN_VARIABLE};
use fa4_bench::{bench, fitness, gpu, refs, results, worker};
use fa4_gate::cli::{GateArgs, end_quietly_when_nobody_reads};
use fa4_gate::error::{GateError, exit};
use fa4_gate::gate;

fn main() -> ExitCode {
    end_quietly_when_nobody_reads();
    let result = match &Cli::parse().task {
        Task::Bench(args) => bench::bench(args, &bench::stop_on_interrupt()),
        Task::Results(task) => results::run(task),
        Task::Refs(args) => refs::list(args),
        Task::Fitness(args) => fitness::fitness(args),
        Task::Judge(args) => judge(args),
        Task::Publish(args) => publish(args),
        Task::Pack(args) => gpu::pack(args),
        Task::Worker => Ok(worker::work()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn publish(args: &PublishArgs) -> Result<u8, BenchError> {
    let token = || std::env::var(TOKEN_VARIABLE).ok();
    let args = &args.with_origin(&worker::workspace());
    Ok(publish::publish(args, token, &Patience::default(), &mut std::io::stdout())?)
}

/// The gate; what is the file's own fault before anything runs has an exit code of its own.
fn judge(args: &GateArgs) -> Result<u8, BenchError> {
    match gate::gate(args, &gate::stop_on_interrupt()) {
        Err(error @ (GateError::Build(_) | GateError::NoEntry { .. }))
            if error.exit_code() == exit::USAGE =>
        {
            eprintln!("error: {error}");
            Ok(fitness::UNCOMPILABLE)
        }
        done => Ok(done?),
    }
}
