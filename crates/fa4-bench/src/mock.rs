//! A machine for tests: right answers from the oracle, times from a formula, and every fault on demand. Its figures are
//! the same on every run and mean nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fa4_refs::RowAt;
use fa4_spec::qdist::Inputs;
use fa4_spec::tensor::{decode, encode};
use fa4_spec::{AttnProblem, Case, oracle};
use regex::Regex;

use crate::counts::counts;
use crate::env::Settings;
use crate::record::Status;
use crate::refs::RefField;
use crate::runner::{Answer, Contestant, Effort, Failure, Field, GpuRecord, Job, Lap, Mode, Runner};
use crate::telemetry::{Reading, Telemetry};
use crate::verify;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One element of O is wrong.
    Wrong,
    /// One element of O is NaN.
    Nan,
    /// Right once, wrong after having been timed.
    Flaky,
    /// Does not return.
    Hang,
    /// The process ends with a message on its standard error.
    Crash,
    /// The device stops the kernel.
    Fault,
    /// Is not served.
    Unsupported,
    /// Its process talks nonsense.
    Protocol,
    /// Times scatter.
    Noisy,
    /// Ten times slower.
    Slow,
    /// The clock is held back.
    Throttled,
}

const FAULTS: [(&str, Fault); 11] = [
    ("wrong", Fault::Wrong),
    ("nan", Fault::Nan),
    ("flaky", Fault::Flaky),
    ("hang", Fault::Hang),
    ("crash", Fault::Crash),
    ("fault", Fault::Fault),
    ("unsupported", Fault::Unsupported),
    ("protocol", Fault::Protocol),
    ("noisy", Fault::Noisy),
    ("slow", Fault::Slow),
    ("throttled", Fault::Throttled),
];

/// What the mock is like: `key=value` pairs between semicolons.
///
/// - `gpus=N`: how many there are; `row_ms=N`: how long a row takes.
/// - `ours=F`: factor on our times; `refs=ID:F,ID:F`: the references with theirs.
/// - `fault=KIND@REGEX`, `fault=ID:KIND@REGEX`: what happens to us or to a reference in rows whose id matches; any number.
#[derive(Debug, Clone)]
pub struct MockSpec {
    /// GPUs.
    pub gpus: u32,
    row: Duration,
    ours: f64,
    references: Vec<(String, f64)>,
    faults: Vec<(Option<String>, Fault, Regex)>,
}

impl FromStr for MockSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec =
            MockSpec { gpus: 1, row: Duration::ZERO, ours: 1.0, references: Vec::new(), faults: Vec::new() };
        let number = |value: &str| value.parse::<f64>().map_err(|_| format!("`{value}` is not a number"));
        for pair in text.split(';').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.trim().split_once('=').ok_or(format!("`{pair}` is not KEY=VALUE"))?;
            match key {
                "gpus" => spec.gpus = number(value)? as u32,
                "row_ms" => spec.row = Duration::from_secs_f64(number(value)?.max(0.0) / 1e3),
                "ours" => spec.ours = number(value)?,
                "refs" => {
                    for one in value.split(',').filter(|one| !one.is_empty()) {
                        let (id, factor) = one.split_once(':').unwrap_or((one, "1"));
                        spec.references.push((id.to_string(), number(factor)?));
                    }
                }
                "fault" => spec.faults.push(fault(value)?),
                _ => return Err(format!("`{key}` is unknown; known: gpus, row_ms, ours, refs, fault")),
            }
        }
        Ok(spec)
    }
}

fn fault(value: &str) -> Result<(Option<String>, Fault, Regex), String> {
    let (who, pattern) = value.split_once('@').unwrap_or((value, ""));
    let (id, kind) = match who.split_once(':') {
        Some((id, kind)) => (Some(id.to_string()), kind),
        None => (None, who),
    };
    let known = || FAULTS.map(|(word, _)| word).join(", ");
    let found = FAULTS.iter().find(|(word, _)| *word == kind);
    let (_, fault) = found.ok_or_else(|| format!("fault `{kind}` is unknown; known: {}", known()))?;
    let pattern = Regex::new(pattern).map_err(|e| format!("`{pattern}` is not a regular expression: {e}"))?;
    Ok((id, *fault, pattern))
}

impl MockSpec {
    fn fault_of(&self, id: &str, case: &str) -> Option<Fault> {
        let of = |who: &Option<String>| who.as_deref().unwrap_or("ours") == id;
        let found = self.faults.iter().find(|(who, _, pattern)| of(who) && pattern.is_match(case));
        found.map(|(_, fault, _)| *fault)
    }
}

/// The mock as a runner.
pub struct MockRunner {
    spec: MockSpec,
    ordinal: u32,
    budget_s: f64,
    references: Option<Vec<String>>,
    /// Real children, where a program is named.
    bridged: Option<RefField>,
    telemetry: Arc<Telemetry>,
}

impl MockRunner {
    /// Mock GPU `ordinal`.
    pub fn new(spec: MockSpec, ordinal: u32, root: &Path, settings: &Settings) -> Self {
        let throttled = spec.faults.iter().any(|(_, fault, _)| *fault == Fault::Throttled);
        let telemetry = Telemetry::fixed(Reading {
            clock_mhz: Some(1500),
            power_w: Some(400.0),
            temperature_c: Some(50),
            throttled: if throttled { vec!["power cap".into()] } else { Vec::new() },
        });
        let bridged = settings.refs_program.as_ref().map(|_| RefField::new(root, settings, None));
        let (budget_s, references) = (settings.budget_s, settings.refs.clone());
        MockRunner { spec, ordinal, budget_s, references, bridged, telemetry: Arc::new(telemetry) }
    }
}

/// What mock GPU `ordinal` says about itself.
pub fn record(ordinal: u32) -> GpuRecord {
    GpuRecord {
        ordinal,
        name: "Mock GPU".into(),
        sms: 1,
        memory_bytes: 1 << 30,
        l2_bytes: 1 << 16,
        max_clock_mhz: 1500,
        driver: "mock".into(),
        power_limit_w: Some(400.0),
    }
}

impl Runner for MockRunner {
    fn gpu(&self) -> GpuRecord {
        record(self.ordinal)
    }

    fn route(&self, case: &Case) -> Result<String, Failure> {
        match self.spec.fault_of("ours", &case.id) {
            Some(Fault::Unsupported) => {
                Err(Failure::unsupported("the mock does not serve this row, on request"))
            }
            _ => Ok("mock_fwd".into()),
        }
    }

    fn artifact(&mut self, _: &str) -> Option<String> {
        Some("0000000000000000".into())
    }

    fn field<'a>(&'a mut self, job: &Job<'a>) -> Result<Field<'a>, Failure> {
        std::thread::sleep(self.spec.row);
        let (p, spec) = (&job.case.problem, &self.spec);
        let right = job.stages.time("load", || right(p, job.inputs));
        let make = |id: &str, factor: f64| {
            Box::new(Mock {
                id: id.into(),
                fault: spec.fault_of(id, &job.case.id),
                us: factor * (3.0 + counts(p).flops / 1e6),
                problem: p.clone(),
                right: right.clone(),
                rows: job.rows,
                timed: false,
                count: id.bytes().chain(job.case.id.bytes()).map(u64::from).sum(),
            }) as Box<dyn Contestant + 'a>
        };
        let wanted = |id: &String| self.references.as_ref().is_none_or(|list| list.contains(id));
        let references = spec.references.iter().filter(|(id, _)| wanted(id)).map(|(id, factor)| {
            let entrant = match spec.fault_of(id, &job.case.id) {
                Some(Fault::Unsupported) => {
                    Err(Failure::unsupported(format!("{id} does not take this, on request")))
                }
                Some(Fault::Protocol) => {
                    Err(Failure::new(Status::Error, format!("{id} broke the protocol, on request")))
                }
                _ => Ok(make(id, *factor)),
            };
            (id.clone(), entrant)
        });
        let mut references: Vec<_> = references.collect();
        let ours = vec![make("ours", spec.ours)];
        references.extend(self.bridged.iter_mut().flat_map(|bridged| bridged.ready(job)));
        Ok(Field { ours, references })
    }

    fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    fn effort(&self) -> Effort {
        Effort { rest: Duration::ZERO, ..Effort::within(self.budget_s) }
    }

    fn memory_share(&self) -> u64 {
        1 << 28
    }
}

/// The oracle's answer, rounded.
fn right(p: &AttnProblem, inputs: &Inputs) -> Answer {
    let sinks: Option<Vec<f64>> = inputs.sinks.as_ref().map(|s| s.iter().map(|&x| f64::from(x)).collect());
    let truth = oracle::attention(p, &inputs.q.tensor, &inputs.k.tensor, &inputs.v.tensor, sinks.as_deref());
    Answer {
        o: truth.o.iter().map(|&x| encode(p.q_dtype, x)).collect(),
        lse: truth.lse.iter().map(|&x| x as f32).collect(),
        not_finite: None,
    }
}

struct Mock<'a> {
    id: String,
    fault: Option<Fault>,
    us: f64,
    problem: AttnProblem,
    right: Answer,
    rows: Option<&'a [RowAt]>,
    timed: bool,
    count: u64,
}

impl Mock<'_> {
    fn answer(&mut self) -> Result<Answer, Failure> {
        let mut output = self.right.clone();
        match self.fault {
            Some(Fault::Wrong) => output.o[0] ^= 0x4000,
            Some(Fault::Nan) => output.o[0] = 0x7fff,
            Some(Fault::Flaky) if self.timed => output.o[0] ^= 0x4000,
            Some(Fault::Hang) => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            Some(Fault::Crash) if self.id == "ours" => {
                eprintln!("mock: dying, on request");
                std::process::exit(77);
            }
            Some(Fault::Crash) => {
                return Err(Failure::new(Status::Error, format!("{} died, on request", self.id)));
            }
            Some(Fault::Fault) => {
                return Err(Failure::new(Status::Fault, "CUDA_ERROR_ILLEGAL_ADDRESS, on request"));
            }
            _ => {}
        }
        if let Some(rows) = self.rows {
            let is_odd = |bits: &u16| !decode(self.problem.q_dtype, *bits).is_finite();
            output.not_finite = output.o.iter().position(is_odd).map(|at| at as u64);
            output.o = verify::gather(&self.problem, &output.o, rows);
        }
        Ok(output)
    }

    /// A number from −1 to 1 that depends on how often it was asked.
    fn noise(&mut self) -> f64 {
        self.count = self.count.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.count >> 40) as f64 / f64::from(1 << 23) - 1.0
    }
}

impl Contestant for Mock<'_> {
    fn id(&self) -> &str {
        &self.id
    }

    fn route(&self) -> Option<String> {
        Some(format!("mock of {}", self.id))
    }

    fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("mock".into(), "1".into())])
    }

    fn run_once(&mut self) -> Result<Answer, Failure> {
        self.answer()
    }

    fn leftover(&mut self) -> Result<Answer, Failure> {
        self.answer()
    }

    fn time(&mut self, launches: u32, mode: Mode) -> Result<Lap, Failure> {
        self.timed = true;
        let slow = if self.fault == Some(Fault::Slow) { 10.0 } else { 1.0 };
        let scatter = if self.fault == Some(Fault::Noisy) { 0.2 } else { 0.001 };
        let gap = if mode == Mode::Stream { 0.5 } else { 0.0 };
        let us = (0..launches.min(64)).map(|_| (self.us * slow + gap) * (1.0 + scatter * self.noise()));
        Ok(Lap { us: us.collect(), host_us: Some(2.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_say_what_is_wrong_with_them() {
        let spec: MockSpec =
            "gpus=2; row_ms=5;refs=fa3:0.9,x;fault=wrong@q1_;fault=fa3:hang@.".parse().unwrap();
        assert_eq!((spec.gpus, spec.references.len()), (2, 2));
        assert_eq!(spec.fault_of("ours", "a_q1_b"), Some(Fault::Wrong));
        assert_eq!(spec.fault_of("ours", "a_q2_b"), None);
        assert_eq!(spec.fault_of("fa3", "anything"), Some(Fault::Hang));
        let no = |text: &str| text.parse::<MockSpec>().unwrap_err();
        assert!(no("gpus").contains("KEY=VALUE"));
        assert!(no("speed=1").contains("known: gpus"));
        assert!(no("fault=odd@x").contains("known: wrong, nan"));
        assert!(no("fault=wrong@(").contains("regular expression"));
        assert!(no("gpus=many").contains("not a number"));
    }
}
