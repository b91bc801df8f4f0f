//! One mutant: under every schedule, then under seeds, until something notices.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_host::error::DeviceError;
use fa4_spec::Case;
use ptx_emu::Fault;
use ptx_emu::launch::{Options, Schedule};
use ptx_emu::mutation::{self, Mutation};
use ptx_emu::syntax::ast::Module;
use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::state::Found;
use crate::judge::{Output, Prepared, Verdict, prepare, run_edited};
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
    /// No case gets to the instruction.
    NotReached,
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
            Outcome::NotReached => "not reached",
        }
    }

    /// Whether anything noticed.
    pub const fn is_noticed(&self) -> bool {
        !matches!(self, Outcome::Survived | Outcome::NotReached | Outcome::Refused(_))
    }

    /// What noticed it: a code.
    pub fn by(&self) -> &str {
        match self {
            Outcome::Fault(by)
            | Outcome::Wrong(by)
            | Outcome::Hang(by)
            | Outcome::Strict(by)
            | Outcome::Refused(by) => by,
            Outcome::Survived | Outcome::NotReached => "",
        }
    }
}

/// A kernel with its cases and what a trial needs besides.
pub struct Stage<'a> {
    target: &'a Target,
    kernel: &'a Kernel<EmuModule>,
    function: usize,
    scenes: Vec<Scene>,
    runs: Vec<(Schedule, u64)>,
    root: &'a Path,
}

/// A case with what the unbroken kernel makes of it.
struct Scene {
    case: Case,
    data: Prepared,
    output: Output,
    strict: BTreeSet<&'static str>,
    step_limit: u64,
}

impl<'a> Stage<'a> {
    /// Runs the unbroken kernel once on each case.
    ///
    /// # Errors
    /// Why it does not pass.
    pub fn new(
        target: &'a Target,
        kernel: &'a Kernel<EmuModule>,
        seeds: Range<u64>,
        root: &'a Path,
    ) -> Result<Self, String> {
        let function = kernel.module.tree().functions.iter().position(|f| f.name == kernel.row.entry);
        let function = function.ok_or_else(|| format!("no function `{}`", kernel.row.entry))?;
        let scenes = target.cases().into_iter().map(|case| Scene::new(target, kernel, case));
        let first = seeds.start;
        let plain = Schedule::ALL.into_iter().filter(|s| *s != Schedule::Random).map(|s| (s, first));
        let runs = plain.chain(seeds.map(|seed| (Schedule::Random, seed))).collect();
        Ok(Stage { target, kernel, function, scenes: scenes.collect::<Result<_, _>>()?, runs, root })
    }

    /// The mutant's fate, what was said about it, and how long that took.
    pub fn trial(&self, mutation: &Mutation) -> Found {
        let start = Instant::now();
        let (outcome, report) = self.fate(mutation);
        Found { outcome, report, seconds: start.elapsed().as_secs_f64() }
    }

    fn fate(&self, mutation: &Mutation) -> (Outcome, Option<Evidence>) {
        let tree = self.kernel.module.tree();
        let Some(module) = mutation::apply(tree, self.function, mutation) else {
            return (Outcome::Refused("the operand cannot be changed".to_string()), None);
        };
        let mutant = self.with(module);
        let mut last = (Outcome::Survived, None);
        for scene in &self.scenes {
            for &(schedule, seed) in &self.runs {
                match self.one(scene, &mutant, schedule, seed) {
                    (Outcome::Survived, _) => {}
                    // A run that finds more may follow.
                    (Outcome::Strict(code), report) => last = (Outcome::Strict(code), report),
                    caught => return caught,
                }
            }
        }
        if last.0 == Outcome::Survived {
            let trap = self.with(mutation::trap_at(tree, self.function, mutation.at));
            let reached = |scene| self.one(scene, &trap, Schedule::Eager, 0).0 != Outcome::Survived;
            if !self.scenes.iter().any(reached) {
                return (Outcome::NotReached, None);
            }
        }
        last
    }

    fn with(&self, module: Module) -> Kernel<EmuModule> {
        Kernel {
            row: self.kernel.row,
            name: self.kernel.name.clone(),
            module: EmuModule::of(module),
            info: self.kernel.info.clone(),
            markers: Vec::new(),
            ptx: String::new(),
        }
    }

    fn one(
        &self,
        scene: &Scene,
        kernel: &Kernel<EmuModule>,
        schedule: Schedule,
        seed: u64,
    ) -> (Outcome, Option<Evidence>) {
        let options = Options { schedule, seed, step_limit: scene.step_limit, ..Options::default() };
        let mut device = EmuDevice::new(options);
        let outcome = run_edited(kernel, &scene.case, &scene.data, &mut device, |plan| {
            plan.grid = self.target.grid.map_or(plan.grid, |ctas| [ctas, 1, 1]);
        });
        let run = || format!("{} --schedule {} --seed {seed}", scene.case.id, schedule.as_str());
        let said = |fault: &Fault| {
            Some(Evidence::finding(run(), fault, kernel.module.tree(), kernel.row.entry, self.root))
        };
        let words = |text: String| Some(Evidence::words(run(), text));
        let report = device.report();
        let fault = report.and_then(|r| match &r.verdict {
            ptx_emu::Verdict::Fault(fault) => Some(&**fault),
            _ => None,
        });
        match outcome.verdict {
            Verdict::Device(DeviceError::Fault { code, .. }) if code == "deadlock" => {
                (Outcome::Hang(code), fault.and_then(said))
            }
            Verdict::Device(DeviceError::Fault { code, .. }) => (Outcome::Fault(code), fault.and_then(said)),
            Verdict::Device(error @ DeviceError::Timeout(_)) => {
                (Outcome::Hang("step limit".to_string()), words(error.to_string()))
            }
            Verdict::Device(error @ DeviceError::Undefined(_)) => {
                (Outcome::Fault("uninit.output".to_string()), words(error.to_string()))
            }
            Verdict::Device(error) => (Outcome::Refused(error.to_string()), None),
            Verdict::Host(error) => (Outcome::Refused(error.to_string()), None),
            Verdict::Wrong(wrong) => (Outcome::Wrong("bounds".to_string()), words(wrong.to_string())),
            // A kernel's arithmetic is fixed by its program: other bits are another result, however near.
            Verdict::Pass(_) if outcome.output.as_ref().is_none_or(|o| !o.same_bits(&scene.output)) => {
                let text = "within the bounds, but not the bits of the unbroken kernel";
                (Outcome::Wrong("bits".to_string()), words(text.to_string()))
            }
            Verdict::Pass(_) => {
                let new = |f: &&Fault| !scene.strict.contains(f.code.as_str());
                match report.and_then(|r| r.strict.iter().find(new)) {
                    Some(f) => (Outcome::Strict(f.code.as_str().to_string()), said(f)),
                    None => (Outcome::Survived, None),
                }
            }
        }
    }
}

impl Scene {
    fn new(target: &Target, kernel: &Kernel<EmuModule>, case: Case) -> Result<Self, String> {
        let data = prepare(&case).map_err(|e| e.to_string())?;
        let mut device = EmuDevice::new(Options::default());
        let outcome = run_edited(kernel, &case, &data, &mut device, |plan| {
            plan.grid = target.grid.map_or(plan.grid, |ctas| [ctas, 1, 1]);
        });
        let output = match outcome.verdict {
            Verdict::Pass(_) => outcome.output.ok_or("it left no output")?,
            Verdict::Wrong(wrong) => return Err(wrong.to_string()),
            Verdict::Device(error) => return Err(error.to_string()),
            Verdict::Host(error) => return Err(error.to_string()),
        };
        let steps = device.report().map_or(0, |report| report.counters.steps);
        // A mutant that loops longer than this does not end: waits do not spin in the emulator.
        let step_limit = 4 * steps + 100_000;
        Ok(Scene { case, data, output, strict: strict(&device), step_limit })
    }
}

/// Codes of strict findings.
fn strict(device: &EmuDevice) -> BTreeSet<&'static str> {
    let findings = device.report().map_or(&[][..], |report| &report.strict);
    findings.iter().map(|fault| fault.code.as_str()).collect()
}
