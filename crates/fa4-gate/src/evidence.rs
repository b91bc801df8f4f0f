//! What the emulator's word is worth for a kernel, computed from the opcodes that its PTX really contains.

use std::collections::BTreeSet;

/// Where the emulator's knowledge of an instruction comes from, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// Compared with silicon.
    Silicon,
    /// A stranger's kernel that uses it runs right.
    Foreign,
    /// The assembler accepts it.
    Ptxas,
    /// The manual's words alone.
    Manual,
}

impl Evidence {
    /// The word in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Evidence::Silicon => "silicon",
            Evidence::Foreign => "foreign",
            Evidence::Ptxas => "ptxas",
            Evidence::Manual => "manual",
        }
    }
}

/// The opcodes (with their modifiers) of PTX text.
pub fn opcodes(ptx: &str) -> BTreeSet<&str> {
    let statements =
        ptx.lines().map(|line| line.split("//").next().unwrap_or("")).flat_map(|line| line.split(';'));
    statements.filter_map(opcode).collect()
}

/// The opcode of one statement; directives, labels and braces have none.
fn opcode(statement: &str) -> Option<&str> {
    let text = statement.trim().trim_start_matches(['{', '}']).trim();
    let text = match text.strip_prefix('@') {
        Some(guarded) => guarded.split_once(char::is_whitespace)?.1.trim(),
        None => text,
    };
    let word = text.split(|c: char| c.is_whitespace() || c == ',').next()?;
    let is_opcode = word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.ends_with(':');
    let is_opcode = is_opcode && word.chars().all(|c| c.is_ascii_alphanumeric() || "._:".contains(c));
    is_opcode.then_some(word)
}

/// The weakest evidence among the opcodes of `ptx`, and which opcodes have no better. `foreign` holds the opcodes of
/// strangers' kernels that run right in the emulator.
pub fn of<'a>(ptx: &'a str, foreign: &BTreeSet<&str>) -> (Evidence, Vec<&'a str>) {
    let level = |opcode: &str| match opcode {
        op if foreign.contains(op) => Evidence::Foreign,
        op if op.starts_with("tcgen05.") => Evidence::Manual,
        _ => Evidence::Ptxas,
    };
    let all = opcodes(ptx);
    let weakest = all.iter().map(|op| level(op)).max().unwrap_or(Evidence::Manual);
    (weakest, all.into_iter().filter(|op| level(op) == weakest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.8
.visible .entry k(.param .b64 p)
{
\t.reg .b32 %r<4>;
$L__BB0_1:
\tmov.u32 %r1, %tid.x; // mov.bad
\t@%p1 bra $L__BB0_1;
\t{ tcgen05.wait::ld.sync.aligned; }
\tret;
}
";

    #[test]
    fn opcodes_are_found_behind_guards_and_braces() {
        let found: Vec<_> = opcodes(PTX).into_iter().collect();
        assert_eq!(found, ["bra", "mov.u32", "ret", "tcgen05.wait::ld.sync.aligned"]);
    }

    #[test]
    fn the_weakest_opcode_decides() {
        let (level, which) = of(PTX, &BTreeSet::new());
        assert_eq!((level, which), (Evidence::Manual, vec!["tcgen05.wait::ld.sync.aligned"]));
        let foreign = BTreeSet::from(["tcgen05.wait::ld.sync.aligned", "bra", "ret"]);
        assert_eq!(of(PTX, &foreign), (Evidence::Ptxas, vec!["mov.u32"]));
    }
}
