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

fn main() -> ExitCode {
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
        Command::Emu(args) => spawn::emulator(&args.args),
        Command::Test(args) => test::run(args),
        Command::Tidy => tidy::run(),
        Command::Bless(args) => bless::run(args),
    }
}
