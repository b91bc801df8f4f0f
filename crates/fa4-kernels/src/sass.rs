//! Machine code as text: `nvdisasm` run on a cubin, its lines taken apart far enough to count opcodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::Toolchain;

/// The code of one function.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Its instructions in address order.
    pub instructions: Vec<Instruction>,
    /// Where its labels stand: the address of the instruction that follows.
    pub labels: BTreeMap<String, u32>,
}

/// One machine instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Byte offset in the function.
    pub address: u32,
    /// Opcode with its modifiers, predicate left out: `UTCHMMA.2CTA`.
    pub opcode: String,
    /// The whole instruction, predicate and operands included.
    pub text: String,
}

impl Instruction {
    /// The opcode before its first dot.
    pub fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Whether a predicate guards it.
    pub fn is_guarded(&self) -> bool {
        self.text.starts_with('@')
    }

    /// What stands behind the opcode.
    pub fn operands(&self) -> &str {
        self.text.split_once(self.opcode.as_str()).map_or("", |(_, rest)| rest.trim())
    }
}

impl Function {
    /// How many instructions have `opcode` before the first dot: `count("LDL")` counts `LDL` and `LDL.64`.
    pub fn count(&self, opcode: &str) -> usize {
        self.instructions.iter().filter(|i| i.base() == opcode).count()
    }

    /// Number of instructions by opcode with modifiers.
    pub fn histogram(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for instruction in &self.instructions {
            *counts.entry(instruction.opcode.as_str()).or_default() += 1;
        }
        counts
    }

    /// Number of instructions that touch local memory.
    pub fn local_memory_count(&self) -> usize {
        self.count("LDL") + self.count("STL")
    }
}

/// Why a cubin could not be disassembled.
#[derive(Debug, thiserror::Error)]
pub enum SassError {
    /// `nvdisasm` could not be started.
    #[error("cannot run {}: {source}; run `cargo xtask setup`", tool.display())]
    Start {
        /// The tool.
        tool: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `nvdisasm` refused the file.
    #[error("nvdisasm refused {}: {message}", cubin.display())]
    Refused {
        /// The file.
        cubin: PathBuf,
        /// What nvdisasm said.
        message: String,
    },
}

/// Disassembles the cubin at `cubin`.
///
/// # Errors
/// [`SassError`].
pub fn disassemble(toolchain: &Toolchain, cubin: &Path) -> Result<Vec<Function>, SassError> {
    let tool = toolchain.nvdisasm();
    let output = Command::new(tool)
        .arg("-c")
        .arg(cubin)
        .output()
        .map_err(|source| SassError::Start { tool: tool.to_owned(), source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(SassError::Refused { cubin: cubin.to_owned(), message });
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads `nvdisasm -c` output: `.text.NAME:` labels and `/*0010*/  @P0 BRA …;` lines.
fn parse(text: &str) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
            functions.push(Function { name: name.to_owned(), ..Function::default() });
            pending.clear();
        } else if let Some(label) = line.strip_suffix(':') {
            pending.push(label.to_owned());
        } else if let (Some(function), Some(instruction)) = (functions.last_mut(), instruction(line)) {
            let address = instruction.address;
            function.labels.extend(pending.drain(..).map(|label| (label, address)));
            function.instructions.push(instruction);
        }
    }
    functions
}

fn instruction(line: &str) -> Option<Instruction> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let address = u32::from_str_radix(address, 16).ok()?;
    let text = rest.trim().split_once(';')?.0.trim();
    let opcode = text.split_whitespace().find(|word| !word.starts_with('@'))?;
    Some(Instruction { address, opcode: opcode.to_owned(), text: text.to_owned() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The only function of a listing.
    pub(crate) fn function(text: &str) -> Function {
        let functions = parse(text);
        assert_eq!(functions.len(), 1);
        functions.into_iter().next().unwrap()
    }

    #[test]
    fn lines_are_taken_apart() {
        let text = "\
.section .text.k
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 LDL.64 R2, [R1+0x8] ;
.L_x_0:
        /*0020*/               @P1 BRA `(.L_x_0);
";
        let functions = parse(text);
        assert_eq!(functions.len(), 1);
        let function = &functions[0];
        assert_eq!(function.name, "k");
        assert_eq!(function.instructions.len(), 3);
        assert_eq!(function.instructions[1].address, 0x10);
        assert_eq!(function.instructions[1].opcode, "LDL.64");
        assert_eq!(function.local_memory_count(), 1);
        assert_eq!(function.count("LD"), 0);
        assert_eq!(function.histogram()["BRA"], 1);
        assert_eq!(function.labels[".L_x_0"], 0x20);
        assert!(function.instructions[2].is_guarded());
        assert_eq!(function.instructions[2].operands(), "`(.L_x_0)");
    }
}
