//! A finding as a good compiler would print it: what is wrong, the `.cu` line and the way it was inlined, the PTX
//! line, who did it, what it collides with, the edge that is missing, what to do.

use crate::fault::{Fault, Level, Site};
use crate::launch::Verdict;
use crate::syntax::ast::{Function, Module, Span};
use crate::syntax::places;
use std::fmt::{self, Write};

/// Call sites shown of an inlining chain.
const MOST_PLACES: usize = 6;

/// Reads a line of a source file, by path and 1-based number.
pub type ReadLine<'a> = dyn Fn(&str, u32) -> Option<String> + 'a;

/// What turns an instruction index back into text.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// The PTX.
    pub module: Option<&'a Module>,
    /// The kernel that ran.
    pub kernel: Option<&'a Function>,
    /// Text of the PTX, to quote lines from.
    pub ptx: Option<&'a str>,
    /// Line of a source file, where it can be read.
    pub source_line: Option<&'a ReadLine<'a>>,
    /// A command that repeats the run.
    pub replay: Option<&'a str>,
}

impl<'a> Context<'a> {
    /// The context of a kernel: the one called `entry`, or the only one.
    pub fn of(module: &'a Module, entry: &str) -> Context<'a> {
        let mut kernels = module.functions.iter().filter(|f| f.is_entry);
        let kernel = if entry.is_empty() { kernels.next() } else { kernels.find(|f| f.name == entry) };
        Context { module: Some(module), kernel, ..Context::default() }
    }

    /// The text of a finding; ends with a line feed.
    pub fn fault(&self, fault: &Fault) -> String {
        let mut o = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_fault(&mut o, fault);
        o
    }

    fn write_fault(&self, o: &mut String, fault: &Fault) -> fmt::Result {
        let level = match fault.code.level() {
            Level::Fault => "fault",
            Level::Strict => "strict",
        };
        writeln!(o, "{level}[{}]: {}", fault.code.as_str(), fault.message)?;
        if let Some(site) = &fault.site {
            self.write_site(o, site)?;
        }
        if let Some(earlier) = &fault.earlier {
            writeln!(o, "  collides with")?;
            self.write_site(o, earlier)?;
        }
        for note in &fault.notes {
            writeln!(o, "  = note: {note}")?;
        }
        if let Some(missing) = &fault.missing {
            writeln!(o, "  = missing: {missing}")?;
        }
        if let Some(help) = &fault.help {
            writeln!(o, "  = help: {help}")?;
        }
        writeln!(o, "  = explain: ptx-emu explain {}", fault.code.as_str())?;
        if let Some(replay) = self.replay {
            writeln!(o, "  = replay: {replay}")?;
        }
        Ok(())
    }

    fn write_site(&self, o: &mut String, site: &Site) -> fmt::Result {
        let span = self.kernel.and_then(|k| k.body.get(site.pc as usize)).map(|i| i.span);
        if let Some(span) = span {
            self.write_place(o, span)?;
        }
        let [x, y, z] = site.cta;
        write!(o, "   | CTA ({x}, {y}, {z}), ")?;
        if let Some(role) = &site.role {
            write!(o, "{role}, ")?;
        }
        write!(o, "warp {}, ", site.warp)?;
        match site.lanes {
            0 | u32::MAX => {}
            lanes if lanes.count_ones() == 1 => write!(o, "lane {}, ", lanes.trailing_zeros())?,
            lanes => write!(o, "lanes {lanes:#010x}, ")?,
        }
        write!(o, "step {}", site.step)?;
        if span.is_none() {
            write!(o, ", instruction {}", site.pc)?;
        }
        if !site.what.is_empty() {
            write!(o, ": {}", site.what)?;
        }
        writeln!(o)
    }

    /// The `.cu` place, the chain of call sites, and the PTX line.
    fn write_place(&self, o: &mut String, span: Span) -> fmt::Result {
        let Some(module) = self.module else { return Ok(()) };
        let places = places(module, span);
        for (i, place) in places.iter().take(MOST_PLACES).enumerate() {
            writeln!(o, "  {} {place}", if i == 0 { "-->" } else { "inlined at" })?;
            let file = place.file.unwrap_or_default();
            if let Some(line) = self.source_line.and_then(|read| read(file, place.line)) {
                writeln!(o, "   | {}", line.trim())?;
            }
        }
        if places.len() > MOST_PLACES {
            writeln!(o, "  ... and {} more call sites", places.len() - MOST_PLACES)?;
        }
        let arrow = if places.is_empty() { "-->" } else { "PTX" };
        writeln!(o, "  {arrow} {}:{}", module.name, span.line)?;
        if let Some(line) = self.ptx.and_then(|t| t.lines().nth((span.line as usize).saturating_sub(1))) {
            writeln!(o, "   | {}", line.trim())?;
        }
        Ok(())
    }
}

/// A verdict as text; ends with a line feed.
pub fn verdict(verdict: &Verdict, context: &Context<'_>) -> String {
    match verdict {
        Verdict::Clean => "clean\n".to_string(),
        Verdict::Fault(fault) => context.fault(fault),
        Verdict::Unsupported { what, opcode, line } => {
            let mut o = format!("unsupported: {what}\n");
            if let (Some(module), true) = (context.module, *line > 0) {
                let _ = writeln!(o, "  --> {}:{line}", module.name);
                if let Some(text) = context.ptx.and_then(|t| t.lines().nth(*line as usize - 1)) {
                    let _ = writeln!(o, "   | {}", text.trim());
                }
            }
            if !opcode.is_empty() && !what.contains(opcode.as_str()) {
                let _ = writeln!(o, "  = opcode: {opcode}");
            }
            o.push_str("  = note: the emulator cannot run this; that says nothing about the kernel\n");
            o
        }
        Verdict::StepLimit => {
            "step limit: the kernel did not end; raise --step-limit if it should run longer\n".to_string()
        }
    }
}
