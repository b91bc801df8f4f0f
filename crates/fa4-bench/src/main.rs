//! `fa4-bench`: timing, results, publishing. Parse, then one match.

use std::process::ExitCode;

use clap::Parser;
use fa4_bench::cli::{Cli, Task};
use fa4_bench::error::BenchError;
use fa4_bench::publish::{self, Patience, PublishArgs, TOKEN_VARIABLE};
use fa4_bench::{bench, gpu, refs, results, worker};

fn main() -> ExitCode {
    let result = match &Cli::parse().task {
        Task::Bench(args) => bench::bench(args, &bench::stop_on_interrupt()),
        Task::Results(task) => results::run(task),
        Task::Refs(args) => refs::list(args),
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
    Ok(publish::publish(args, token, &Patience::default(), &mut std::io::stdout())?)
}
