//! `fa4-gpu`: which GPUs there are, and whether the launcher works on them.
//!
//! Exit codes: 0 all right; 1 something was wrong; 2 usage; 3 environment (no driver, no GPU, no toolchain).

#[cfg(feature = "cuda")]
mod probes;

use std::process::ExitCode;

const USAGE: &str = "\
usage: fa4-gpu list                    the GPUs that this process sees
       fa4-gpu selftest [N]            copies, clusters, graphs and error messages on GPU N (default 0)
       fa4-gpu break KIND [N]          a kernel that fails on purpose; KIND: illegal-address, trap, hang";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: Option<&&str>| text.map_or(Some(0), |text| text.parse::<u32>().ok());
    let result = match words.as_slice() {
        ["list"] => probes::list(),
        ["selftest", rest @ ..] if rest.len() < 2 && number(rest.first()).is_some() => {
            probes::selftest(number(rest.first()).unwrap_or(0))
        }
        ["break", kind, rest @ ..] if rest.len() < 2 && number(rest.first()).is_some() => {
            match probes::Broken::parse(kind) {
                Some(kind) => probes::break_on_purpose(kind, number(rest.first()).unwrap_or(0)),
                None => return usage(),
            }
        }
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// What went wrong, with the exit code.
struct Failure {
    text: String,
    code: u8,
}

#[cfg(not(feature = "cuda"))]
mod probes {
    use super::Failure;

    pub enum Broken {}

    impl Broken {
        pub fn parse(_: &str) -> Option<Self> {
            None
        }
    }

    fn none() -> Result<(), Failure> {
        Err(Failure { text: "no GPU: this program was built without the feature `cuda`".into(), code: 3 })
    }

    pub fn list() -> Result<(), Failure> {
        none()
    }

    pub fn selftest(_: u32) -> Result<(), Failure> {
        none()
    }

    pub fn break_on_purpose(kind: Broken, _: u32) -> Result<(), Failure> {
        match kind {}
    }
}
