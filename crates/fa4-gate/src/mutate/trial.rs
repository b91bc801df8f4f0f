//! One mutant: under every schedule, then under seeds, until something notices.

use std::collections::BTreeSet;
use std::ops::Range;

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_host::error::DeviceError;
use fa4_spec::Case;
use ptx_emu::launch::{Options, Schedule};
use ptx_emu::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};

use crate::judge::{Output, Prepared, Verdict, run_edited};
use crate::kernels::Kernel;
use crate::mutate::target::Target;

/// How a mutant ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "by")]
pub enum Outcome {
    /// The emulator found a fault; its code.
    Fault(String),
    /// It ran to its end with another result.
    Wrong(String),
    /// It does not end, and that is reported: `deadlock` or `step limit`.
    Hang(String),
    /// Only a strict finding that the kernel has not; its code.
    Strict(String),
    /// The emulator cannot run it, and says so.
    Refused(String),
    /// Nothing noticed.
    Survived,
}

impl Outcome {
    /// The word in tables and files.
    pub const fn word(&self) -> &'static str {
        match self {
            Outcome::Fault(_) => "fault",
            Outcome::Wrong(_) => "wrong result",
            Outcome::Hang(_) => "hang reported",
            Outcome::Strict(_) => "strict only",
            Outcome::Refused(_) => "refused",
            Outcome::Survived => "survived",
        }
    }

    /// What noticed it: a code.
    pub fn by(&self) -> &str {
        match self {
            Outcome::Fault(by)
            | Outcome::Wrong(by)
            | Outcome::Hang(by)
            | Outcome::Strict(by)
            | Outcome::Refused(by) => by,
            Outcome::Survived => "",
        }
    }
}

/// A kernel with its case, its unbroken output and what a trial needs besides.
pub struct Stage<'a> {
    target: &'a Target,
    kernel: &'a Kernel<EmuModule>,
    function: usize,
    case: &'a Case,
    data: &'a Prepared,
    output: Output,
    strict: BTreeSet<String>,
    step_limit: u64,
    runs: Vec<(Schedule, u64)>,
}

impl<'a> Stage<'a> {
    /// Runs the unbroken kernel once.
    ///
    /// # Errors
    /// Why it does not pass.
    pub fn new(
        target: &'a Target,
        kernel: &'a Kernel<EmuModule>,
        case: &'a Case,
        data: &'a Prepared,
        seeds: Range<u64>,
    ) -> Result<Self, String> {
        let function = kernel.module.tree().functions.iter().position(|f| f.name == kernel.row.entry);
        let function = function.ok_or_else(|| format!("no function `{}`", kernel.row.entry))?;
        let mut device = EmuDevice::new(Options::default());
        let outcome = run_edited(kernel, case, data, &mut device, |plan| {
            plan.grid = target.grid.map_or(plan.grid, |ctas| [ctas, 1, 1]);
        });
        let output = match outcome.verdict {
            Verdict::Pass(_) => outcome.output.ok_or("it left no output")?,
            Verdict::Wrong(wrong) => return Err(wrong.to_string()),
            Verdict::Device(error) => return Err(error.to_string()),
            Verdict::Host(error) => return Err(error.to_string()),
        };
        let steps = device.report().map_or(0, |report| report.counters.steps);
        let first = seeds.start;
        let plain = Schedule::ALL.into_iter().filter(|s| *s != Schedule::Random).map(|s| (s, first));
        let runs = plain.chain(seeds.map(|seed| (Schedule::Random, seed))).collect();
        // A mutant that loops longer than this does not end: waits do not spin in the emulator.
        let step_limit = 4 * steps + 100_000;
        Ok(Stage { target, kernel, function, case, data, output, strict: strict(&device), step_limit, runs })
    }

    /// The mutant's fate.
    pub fn trial(&self, mutation: &Mutation) -> Outcome {
        let Some(module) = mutation::apply(self.kernel.module.tree(), self.function, mutation) else {
            return Outcome::Refused("the operand cannot be changed".to_string());
        };
        let kernel = Kernel {
            row: self.kernel.row,
            name: self.kernel.name.clone(),
            module: EmuModule::of(module),
            info: self.kernel.info.clone(),
            markers: Vec::new(),
            ptx: String::new(),
        };
        let mut last = Outcome::Survived;
        for &(schedule, seed) in &self.runs {
            match self.one(&kernel, schedule, seed) {
                Outcome::Survived => {}
                // A schedule that finds more may follow.
                Outcome::Strict(code) => last = Outcome::Strict(code),
                caught => return caught,
            }
        }
        last
    }

    fn one(&self, kernel: &Kernel<EmuModule>, schedule: Schedule, seed: u64) -> Outcome {
        let options = Options { schedule, seed, step_limit: self.step_limit, ..Options::default() };
        let mut device = EmuDevice::new(options);
        let outcome = run_edited(kernel, self.case, self.data, &mut device, |plan| {
            plan.grid = self.target.grid.map_or(plan.grid, |ctas| [ctas, 1, 1]);
        });
        match outcome.verdict {
            Verdict::Device(DeviceError::Fault { code, .. }) if code == "deadlock" => Outcome::Hang(code),
            Verdict::Device(DeviceError::Fault { code, .. }) => Outcome::Fault(code),
            Verdict::Device(DeviceError::Timeout(_)) => Outcome::Hang("step limit".to_string()),
            Verdict::Device(DeviceError::Undefined(_)) => Outcome::Fault("uninit.output".to_string()),
            Verdict::Device(error) => Outcome::Refused(error.to_string()),
            Verdict::Host(error) => Outcome::Refused(error.to_string()),
            Verdict::Wrong(_) => Outcome::Wrong("bounds".to_string()),
            // A kernel's arithmetic is fixed by its program: other bits are another result, however near.
            Verdict::Pass(_) if outcome.output.as_ref().is_none_or(|o| !o.same_bits(&self.output)) => {
                Outcome::Wrong("bits".to_string())
            }
            Verdict::Pass(_) => match strict(&device).difference(&self.strict).next() {
                Some(code) => Outcome::Strict(code.clone()),
                None => Outcome::Survived,
            },
        }
    }
}

/// Codes of strict findings.
fn strict(device: &EmuDevice) -> BTreeSet<String> {
    let findings = device.report().map_or(&[][..], |report| &report.strict);
    findings.iter().map(|fault| fault.code.as_str().to_string()).collect()
}
