//! What a mutant is called: the line of the kernel that leads to the instruction (and the line that calls the helper which it
//! stands in), the instruction, the barrier that the line speaks of, the change, and a number where lines lead to several.
//!
//! Instructions stand in one-instruction functions of `cuda/ptx/`, inlined through `cuda/prim/` and the kernel's own
//! helpers; the line that matters is the one in the kernel's file, innermost first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fa4_kernels::compile::CUDA_FOLDER;
use ptx_emu::mutation::Mutation;
use ptx_emu::syntax::ast::{Function, Module};

use crate::error::GateError;

/// A mutation with its name.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The name, unique in its kernel and the same from run to run.
    pub id: String,
    /// The source line's text.
    pub at: String,
    /// The text of the line that calls the helper which `at` stands in; empty where it is no helper's.
    pub via: String,
    /// The text of the lines before `at` and before `via`.
    pub after: [String; 2],
    /// Instruction and change, as the allow-list spells them.
    pub what: String,
    /// The mutation.
    pub mutation: Mutation,
}

/// Source files, read once.
pub struct Sources {
    folder: PathBuf,
    files: RefCell<BTreeMap<String, Vec<String>>>,
}

impl Sources {
    /// Sources of the workspace `root`.
    pub fn new(root: &Path) -> Self {
        Sources { folder: root.join(CUDA_FOLDER), files: RefCell::default() }
    }

    /// A line, without what surrounds it.
    fn line(&self, file: &str, line: u32) -> Result<String, GateError> {
        let mut files = self.files.borrow_mut();
        if !files.contains_key(file) {
            let path = self.folder.join(file);
            let text = std::fs::read_to_string(&path).map_err(|source| GateError::File { path, source })?;
            files.insert(file.to_string(), text.lines().map(|l| l.trim().to_string()).collect());
        }
        let at = (line as usize).wrapping_sub(1);
        Ok(files[file].get(at).cloned().unwrap_or_default())
    }
}

/// Names all mutations of a kernel whose file is `source` (below `cuda/`).
///
/// # Errors
/// [`GateError::File`] where the source cannot be read.
pub fn name_all(
    module: &Module,
    function: &Function,
    mutations: Vec<Mutation>,
    sources: &Sources,
    source: &str,
) -> Result<Vec<Mutant>, GateError> {
    let file_name = source.rsplit('/').next().unwrap_or(source);
    let mut numbers = BTreeMap::<String, usize>::new();
    let mut all = Vec::new();
    for mutation in mutations {
        let lines = in_file(module, function, mutation.at, source);
        let text = |line: Option<u32>| line.map_or(Ok(String::new()), |line| sources.line(source, line));
        let (line, caller) = (lines.first().copied(), lines.get(1).copied());
        let before = |line: Option<u32>| line.and_then(|line| line.checked_sub(1));
        let (at, via) = (text(line)?, text(caller)?);
        let after = [text(before(line))?, text(before(caller))?];
        let number = |line: Option<u32>| line.map_or("?".to_string(), |line| line.to_string());
        let line = match caller {
            None => number(line),
            Some(_) => format!("{}<{}", number(line), number(caller)),
        };
        let barrier = barrier_of(&at).map_or(String::new(), |name| format!("({name})"));
        let what = format!("{} {}", mutation.instruction, mutation.change);
        let base = format!("{file_name}:{line} {}{barrier} {}", mutation.instruction, mutation.change);
        let number = numbers.entry(base.clone()).or_default();
        *number += 1;
        let id = if *number == 1 { base } else { format!("{base} #{number}") };
        all.push(Mutant { id, at, via, after, what, mutation });
    }
    Ok(all)
}

/// The lines of `source` that an instruction was inlined into, innermost first.
fn in_file(module: &Module, function: &Function, at: usize, source: &str) -> Vec<u32> {
    let mut lines = Vec::new();
    let mut loc = function.body[at].span.loc;
    while loc != 0 {
        let Some(here) = module.locs.get(loc as usize - 1) else { break };
        let file = module.files.iter().find(|(number, _)| *number == here.file);
        if file.is_some_and(|(_, path)| path.ends_with(source)) {
            lines.push(here.line);
        }
        loc = here.inlined_at;
    }
    lines
}

/// The barrier that a line speaks of: `ctx.bar(NAME, …)`.
fn barrier_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("bar(")?;
    let name = rest.split([',', ')']).next()?.trim();
    (!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_read_off_the_line() {
        let line = "if (has_v) wait_full(ctx.bar(KV_full, v_slot.stage), v_slot.phase);";
        assert_eq!(barrier_of(line), Some("KV_full"));
        assert_eq!(barrier_of("tcgen05_wait_ld();"), None);
        assert_eq!(barrier_of("bar(1 + 2)"), None);
    }
}
