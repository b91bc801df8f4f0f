//! What was said about a mutant, for whoever judges the reports: the text as a person sees it, and its parts.

use std::path::Path;

use fa4_kernels::compile::CUDA_FOLDER;
use ptx_emu::render::Context;
use ptx_emu::syntax::ast::{Function, Module};
use ptx_emu::syntax::{Place, places};
use ptx_emu::{Fault, Site};
use serde::{Deserialize, Serialize};

/// A report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Case, schedule and seed of the run.
    pub run: String,
    /// The whole text: a finding as the emulator prints it, or what was wrong with the numbers.
    pub text: String,
    /// Its parts, where it is a finding of the emulator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

/// The parts of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable code.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The operation that found it.
    pub at: Option<Operation>,
    /// The earlier one that it collides with.
    pub earlier: Option<Operation>,
    /// The edge that is missing between the two.
    pub missing: Option<String>,
    /// What to do.
    pub help: Option<String>,
    /// Further lines, such as the blocked parties of a deadlock.
    pub notes: Vec<String>,
}

/// One of the two operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// CTA.
    pub cta: [u32; 3],
    /// Role of the warp.
    pub role: Option<String>,
    /// Warp in the CTA.
    pub warp: u32,
    /// Lanes; 0: the warp.
    pub lanes: u32,
    /// Machine step.
    pub step: u64,
    /// What it did.
    pub what: String,
    /// Line of the mutated PTX.
    pub ptx_line: Option<u32>,
    /// Its lines in the CUDA source, the innermost first.
    pub source: Vec<Line>,
}

/// A line of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// File, from `cuda/`.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Its text.
    pub text: String,
}

impl Evidence {
    /// Of words only.
    pub fn words(run: String, text: impl Into<String>) -> Self {
        Evidence { run, text: text.into(), finding: None }
    }

    /// Of a finding about the kernel `entry` of `module`, with lines read below the workspace `root`.
    pub fn finding(run: String, fault: &Fault, module: &Module, entry: &str, root: &Path) -> Self {
        let folder = root.join(CUDA_FOLDER);
        let read = |file: &str, line: u32| {
            let text = std::fs::read_to_string(folder.join(file)).ok()?;
            text.lines().nth((line as usize).checked_sub(1)?).map(|l| l.trim().to_string())
        };
        let context = Context { source_line: Some(&read), ..Context::of(module, entry) };
        let at = |site: &Option<Site>| {
            site.as_ref().map(|site| Operation::of(site, module, context.kernel, &read))
        };
        let finding = Finding {
            code: fault.code.as_str().to_string(),
            message: fault.message.clone(),
            at: at(&fault.site),
            earlier: at(&fault.earlier),
            missing: fault.missing.clone(),
            help: fault.help.clone(),
            notes: fault.notes.clone(),
        };
        Evidence { run, text: context.fault(fault).trim_end().to_string(), finding: Some(finding) }
    }
}

impl Operation {
    fn of(
        site: &Site,
        module: &Module,
        kernel: Option<&Function>,
        read: &dyn Fn(&str, u32) -> Option<String>,
    ) -> Self {
        let span = kernel.and_then(|k| k.body.get(site.pc as usize)).map(|i| i.span);
        let line = |place: &Place<'_>| {
            let file = place.file.unwrap_or_default().to_string();
            let text = read(&file, place.line).unwrap_or_default();
            Line { file, line: place.line, text }
        };
        Operation {
            cta: site.cta,
            role: site.role.clone(),
            warp: site.warp,
            lanes: site.lanes,
            step: site.step,
            what: site.what.clone(),
            ptx_line: span.map(|s| s.line),
            source: span.map_or_else(Vec::new, |s| places(module, s).iter().map(line).collect()),
        }
    }
}
