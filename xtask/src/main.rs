//! `cargo xtask …`: every command of the workspace. Parse, then one match; the work is done elsewhere.

mod bless;
mod cli;
mod doctor;
mod outcome;
mod setup;
mod spawn;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use outcome::Outcome;

/// Makes a closed standard output (`… | head`) end the program quietly, with the code that a shell shows for SIGPIPE:
/// `println!` would panic, and exit code 101 means a bug in fa4.
fn end_quietly_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(141);
        }
        usual(panic);
    }));
}

fn main() -> ExitCode {
    end_quietly_when_nobody_reads();
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                eprintln!("error: {text}");
            }
            failure.exit_code()
        }
    }
}

fn run(command: &Command) -> Outcome {
    match command {
        Command::Setup(args) => setup::run(args),
        Command::Doctor => doctor::run(),
        Command::Build(args) => spawn::build(&args.args),
        Command::Gate(args) => spawn::gate(&args.to_args()),
        Command::Twins(args) => spawn::gate_task("twins", &args.args),
        Command::Plan(args) => spawn::gate_task("plan", &args.args),
        Command::Mutate(args) => spawn::gate_task("mutate", &args.args),
        Command::Foreign(args) => spawn::gate_task("foreign", &args.args),
        Command::Bench(args) => spawn::bench_task("bench", &args.args),
        Command::Fitness(args) => spawn::bench_task("fitness", &args.args),
        Command::Results(args) => spawn::bench_task("results", &args.args),
        Command::Publish(args) => spawn::bench_task("publish", &args.args),
        Command::Refs(args) => spawn::bench_task("refs", &args.args),
        Command::Gpu(args) => spawn::run("fa4-host", "fa4-gpu", &args.args),
        Command::Emu(args) => spawn::emulator(&args.args),
        Command::Test(args) => test::run(args),
        Command::Tidy => tidy::run(),
        Command::Bless(args) => bless::run(args),
    }
}
