//! `fa4-fake-ref`: references without Python or GPU. Computes with the f64 oracle, invents its timings, and misbehaves on
//! demand, so that every path of whoever uses references can be tested.
//!
//!     fa4-fake-ref right slow*1.5 hangs:hang@time crashes:crash@output
//!
//! serves four references over the protocol of `fa4_refs::protocol`.

mod attention;
mod behaviour;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fa4_refs::files::Description;
use fa4_refs::protocol::{
    ErrorKind, ErrorReply, Hello, Op, PROTOCOL, PrepareReply, Reply, Request, Route, TimeRequest, Timing,
    VersionsReply,
};
use fa4_spec::AttnProblem;
use serde_json::{Value, json};

use behaviour::{Fault, Persona};

/// References that compute with the oracle, invent timings and misbehave on demand.
#[derive(Parser)]
struct Args {
    /// `NAME[:FAULT[@OP]][*FACTOR]`: a reference, how it misbehaves in which operation (else in the one that shows it
    /// best), and a factor on its timings. A fault `help` lists all faults.
    #[arg(required = true)]
    personas: Vec<Persona>,
    /// Misbehave only once: the first time, this file is made; while it exists, all behave.
    #[arg(long, value_name = "FILE")]
    once: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut server = Server { args, prepared: HashMap::new() };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return ExitCode::FAILURE };
        let request: Request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("fa4-fake-ref: not a request: {error}: {line}");
                return ExitCode::from(2);
            }
        };
        let reply = server.answer(request);
        say(&serde_json::to_string(&reply).expect("replies are plain data"));
    }
    ExitCode::SUCCESS
}

/// Writes a line to whoever asks.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: the next read ends this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Job {
    persona: Persona,
    problem: AttnProblem,
    inputs: Description,
}

struct Server {
    args: Args,
    prepared: HashMap<u64, Job>,
}

type Answer = Result<Value, ErrorReply>;

fn refuse<T>(kind: ErrorKind, message: impl Into<String>) -> Result<T, ErrorReply> {
    Err(ErrorReply { kind, message: message.into() })
}

fn value(answer: impl serde::Serialize) -> Answer {
    Ok(serde_json::to_value(answer).expect("answers are plain data"))
}

impl Server {
    fn answer(&mut self, request: Request) -> Reply {
        let persona = self.persona(&request.op);
        let fault = persona.as_ref().and_then(|p| p.strikes(request.op.name())).filter(|_| self.not_yet());
        let mut id = request.id;
        if let Some(odd_id) = fault.and_then(|fault| fault.before_answer(id)) {
            id = odd_id;
        }
        match self.perform(request.op, fault) {
            Ok(ok) => Reply { id, ok: Some(fault.map_or(ok.clone(), |f| f.change(ok))), error: None },
            Err(error) => Reply { id, ok: None, error: Some(error) },
        }
    }

    /// Whether `--once` still allows a fault.
    fn not_yet(&self) -> bool {
        match &self.args.once {
            None => true,
            Some(path) => std::fs::File::create_new(path).is_ok(),
        }
    }

    /// Who is asked. `hello` concerns all: the first that misbehaves there speaks for them.
    fn persona(&self, op: &Op) -> Option<Persona> {
        let named = |name: &str| self.args.personas.iter().find(|p| p.name == name).cloned();
        match op {
            Op::Hello => self.args.personas.iter().find(|p| p.strikes("hello").is_some()).cloned(),
            Op::Versions { reference } | Op::Supports { reference, .. } | Op::Prepare { reference, .. } => {
                named(reference)
            }
            Op::Output { handle, .. }
            | Op::Route { handle }
            | Op::Time { handle, .. }
            | Op::Release { handle } => self.prepared.get(handle).map(|job| job.persona.clone()),
        }
    }

    fn perform(&mut self, op: Op, fault: Option<Fault>) -> Answer {
        if let Some(refusal) = fault.and_then(Fault::refusal) {
            return Err(refusal);
        }
        match op {
            Op::Hello => value(Hello {
                protocol: PROTOCOL,
                references: self.args.personas.iter().map(|p| p.name.clone()).collect(),
            }),
            Op::Versions { .. } => value(VersionsReply {
                versions: [("fake".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
            }),
            Op::Supports { .. } => Ok(json!({})),
            Op::Prepare { reference, handle, problem, inputs } => {
                let Some(persona) = self.args.personas.iter().find(|p| p.name == reference).cloned() else {
                    return refuse(ErrorKind::Unavailable, format!("`{reference}` is not served here"));
                };
                self.prepared.insert(handle, Job { persona, problem, inputs });
                value(PrepareReply { notes: vec!["timings are invented".into()] })
            }
            Op::Output { handle, o, lse, rows } => {
                let job = self.job(handle)?;
                let wrote = attention::write(&job.problem, &job.inputs, fault, (&o, &lse), rows.as_deref());
                match wrote {
                    Ok(reply) => value(reply),
                    Err(error) => refuse(ErrorKind::Failed, error.to_string()),
                }
            }
            Op::Route { handle } => {
                let job = self.job(handle)?;
                let lies = fault == Some(Fault::OtherRoute);
                let kernel = if lies { "some_fallback_kernel" } else { "fa4_fake_attention" };
                value(Route {
                    called: format!("{}()", job.persona.name),
                    kernels: vec![kernel.into()],
                    proven: Some(!lies),
                    note: String::new(),
                })
            }
            Op::Time { handle, request } => value(self.job(handle)?.time(&request)),
            Op::Release { handle } => {
                self.prepared.remove(&handle);
                Ok(json!({}))
            }
        }
    }

    fn job(&self, handle: u64) -> Result<&Job, ErrorReply> {
        match self.prepared.get(&handle) {
            Some(job) => Ok(job),
            None => refuse(ErrorKind::Failed, format!("nothing was prepared as {handle}")),
        }
    }
}

/// What the invented machine computes in a microsecond.
const FLOPS_PER_US: f64 = 500e6;
/// Its time for nothing at all.
const LAUNCH_US: f64 = 5.0;

impl Job {
    /// A time by the problem's size, with a ripple of 1 % so that percentiles differ.
    fn time(&self, request: &TimeRequest) -> Timing {
        let p = &self.problem;
        let pairs = p.batch * p.num_heads_q * p.seqlen_q * p.seqlen_k;
        let flops = 2.0 * pairs as f64 * (p.head_dim_qk + p.head_dim_v) as f64;
        let mean = (LAUNCH_US + flops / FLOPS_PER_US) * self.persona.factor;
        let ripple = |i: u32| 1.0 + 0.01 * (f64::from(i % 7) - 3.0) / 3.0;
        Timing {
            us: (0..request.times() as u32).map(|i| mean * ripple(i)).collect(),
            host_us: LAUNCH_US,
            buffers: request.buffers,
        }
    }
}
