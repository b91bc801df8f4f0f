//! What a softmax step costs in machine instructions: the instruction mix of a kernel's softmax loop.
//!
//! The softmax loop is found by what it does, so that any cubin can be asked: it is an innermost loop that computes
//! exponentials (`MUFU.EX2`) of scores and packs them to 16 bits. Counts are of the ordinary pass through it: every
//! conversion and every arrival on a barrier, and otherwise the fewest instructions, so that masks, a softcap, a taken
//! rescale and the second try of a wait are left out. They are scaled to 128 scores a thread.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sass::{Function, Instruction};
use crate::sass_loops::{Graph, Loop};

/// Scores that counts are scaled to: a thread's share of a block of 128 keys.
pub const SCORES: usize = 128;

/// Groups of instructions, in the order of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Exponentials.
    #[serde(rename = "MUFU.EX2")]
    Ex2,
    /// Other functions of the multi-function unit.
    #[serde(rename = "MUFU, other")]
    Mufu,
    /// Packed f32 multiply-add.
    #[serde(rename = "FFMA2")]
    Ffma2,
    /// Packed f32 addition.
    #[serde(rename = "FADD2")]
    Fadd2,
    /// Packed f32 product.
    #[serde(rename = "FMUL2")]
    Fmul2,
    /// Maximum of three.
    #[serde(rename = "FMNMX3")]
    Fmnmx3,
    /// Maximum of two.
    #[serde(rename = "FMNMX")]
    Fmnmx,
    /// Two f32 packed to 16 bits each.
    #[serde(rename = "F2FP")]
    F2fp,
    /// Load from tensor memory.
    #[serde(rename = "LDTM")]
    Ldtm,
    /// Store to tensor memory.
    #[serde(rename = "STTM")]
    Sttm,
    /// Other float arithmetic.
    #[serde(rename = "FFMA, FADD, FMUL")]
    Float,
    /// Comparisons and selections.
    #[serde(rename = "FSETP, ISETP, FSEL, SEL")]
    Select,
    /// Integer arithmetic and logic.
    #[serde(rename = "integer")]
    Integer,
    /// Moves between registers, spelled as `IMAD` or not.
    #[serde(rename = "moves")]
    Move,
    /// mbarriers, fences, votes, named barriers.
    #[serde(rename = "SYNCS, fences, votes")]
    Sync,
    /// Loads and stores outside tensor memory.
    #[serde(rename = "LDS, STS, LDC, …")]
    Memory,
    /// The uniform datapath.
    #[serde(rename = "uniform datapath")]
    Uniform,
    /// Jumps.
    #[serde(rename = "branches")]
    Branch,
    /// Everything else, NOPs among them.
    #[serde(rename = "NOP, other")]
    Other,
}

impl Class {
    /// All classes, in the order of tables.
    pub const ALL: [Class; 19] = [
        Class::Ex2,
        Class::Mufu,
        Class::Ffma2,
        Class::Fadd2,
        Class::Fmul2,
        Class::Fmnmx3,
        Class::Fmnmx,
        Class::F2fp,
        Class::Ldtm,
        Class::Sttm,
        Class::Float,
        Class::Select,
        Class::Integer,
        Class::Move,
        Class::Sync,
        Class::Memory,
        Class::Uniform,
        Class::Branch,
        Class::Other,
    ];

    /// The class of an instruction.
    pub fn of(instruction: &Instruction) -> Class {
        match instruction.base() {
            "MUFU" if instruction.opcode.starts_with("MUFU.EX2") => Class::Ex2,
            "MUFU" => Class::Mufu,
            "FFMA2" => Class::Ffma2,
            "FADD2" => Class::Fadd2,
            "FMUL2" => Class::Fmul2,
            "FMNMX3" => Class::Fmnmx3,
            "FMNMX" => Class::Fmnmx,
            "F2FP" => Class::F2fp,
            "LDTM" => Class::Ldtm,
            "STTM" => Class::Sttm,
            "FFMA" | "FADD" | "FMUL" | "HADD2" | "HFMA2" | "HMUL2" => match is_move(instruction) {
                true => Class::Move,
                false => Class::Float,
            },
            "FSETP" | "ISETP" | "FSEL" | "SEL" | "FSET" | "PLOP3" | "VIMNMX" | "VIMNMX3" => Class::Select,
            "MOV" | "PRMT" | "R2UR" | "CS2R" | "S2R" | "S2UR" => Class::Move,
            "IMAD" if is_move(instruction) => Class::Move,
            "IMAD" | "IADD3" | "IADD" | "VIADD" | "LEA" | "LOP3" | "SHF" | "I2F" | "F2I" | "POPC" | "FLO"
            | "I2FP" | "IMNMX" | "IABS" | "BMSK" | "SGXT" | "LOP" | "SHL" | "SHR" => Class::Integer,
            "SYNCS" | "FENCE" | "WARPSYNC" | "VOTE" | "VOTEU" | "BAR" | "MEMBAR" | "BSSY" | "BSYNC"
            | "DEPBAR" | "ELECT" | "ERRBAR" | "CCTL" | "NANOSLEEP" | "YIELD" | "SHFL" | "REDUX"
            | "CREDUX" => Class::Sync,
            "LDS" | "STS" | "LDC" | "LDCU" | "LDG" | "STG" | "LD" | "ST" | "LDL" | "STL" | "ATOMS"
            | "LDSM" => Class::Memory,
            "BRA" | "BRX" | "BRXU" | "JMP" | "EXIT" | "RET" | "CALL" | "BREAK" => Class::Branch,
            base if base.starts_with('U') => Class::Uniform,
            _ => Class::Other,
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The names that JSON has.
        self.serialize(f)
    }
}

/// `IMAD.MOV`, `IMAD.U32 R4, RZ, RZ, UR5`, `HFMA2 R2, -RZ, RZ, …`: arithmetic that only moves.
fn is_move(instruction: &Instruction) -> bool {
    instruction.opcode.contains(".MOV")
        || instruction.operands().split(',').skip(1).take(2).all(|o| o.trim().trim_start_matches('-') == "RZ")
}

/// A mix under its heading: a column of tables, an element of the JSON that the command prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Labelled {
    /// Heading.
    pub label: String,
    /// The mix.
    pub mix: Mix,
}

/// A softmax loop and what one pass through it costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mix {
    /// The function that it lies in.
    pub function: String,
    /// Address of its first instruction; unknown for recorded counts.
    pub address: Option<u32>,
    /// Scores that a thread handles in a pass: two for each `F2FP`.
    pub scores: usize,
    /// Instructions of the ordinary pass by class, not scaled.
    pub pass: BTreeMap<Class, usize>,
    /// All instructions of the loop, rare branches and slow waits among them, not scaled.
    pub all: usize,
}

impl Mix {
    /// Instructions of the ordinary pass, not scaled.
    pub fn total(&self) -> usize {
        self.pass.values().sum()
    }

    /// `count` instructions a pass are so many for each [`SCORES`] scores.
    pub fn scaled(&self, count: usize) -> f64 {
        (count * SCORES) as f64 / self.scores as f64
    }
}

/// The softmax loops of a function, the cheapest for each score first: the copy that handles whole blocks before the one
/// that masks.
pub fn softmax_loops(function: &Function) -> Vec<Mix> {
    let graph = Graph::new(function);
    let has_ex2 = |code: &[Instruction]| code.iter().any(|i| Class::of(i) == Class::Ex2);
    let loops: Vec<Loop> =
        graph.loops().into_iter().filter(|l| l.blocks.iter().any(|b| has_ex2(graph.code(*b)))).collect();
    let is_innermost = |l: &&Loop| !loops.iter().any(|m| m.head != l.head && m.blocks.is_subset(&l.blocks));
    let mut mixes: Vec<Mix> =
        loops.iter().filter(is_innermost).filter_map(|l| mix(function, &graph, l)).collect();
    mixes.sort_by(|a, b| a.scaled(a.total()).total_cmp(&b.scaled(b.total())));
    mixes
}

fn mix(function: &Function, graph: &Graph<'_>, l: &Loop) -> Option<Mix> {
    let packs = |i: &Instruction| i.base() == "F2FP" && i.opcode.contains("PACK_AB");
    let arrives = |i: &Instruction| i.opcode.starts_with("SYNCS.ARRIVE");
    let way = graph.ordinary_pass(l, |code| code.iter().filter(|i| packs(i) || arrives(i)).count());
    let scores = 2 * graph.code_of(&way).filter(|i| packs(i)).count();
    let mut pass = BTreeMap::new();
    for instruction in graph.code_of(&way) {
        *pass.entry(Class::of(instruction)).or_default() += 1;
    }
    // The end of a tile packs O; what makes P has an exponential for a good part of it.
    let exponentials = pass.get(&Class::Ex2).copied().unwrap_or(0);
    (scores > 0 && 4 * exponentials >= scores).then(|| Mix {
        function: function.name.clone(),
        address: Some(graph.code(l.head)[0].address),
        scores,
        pass,
        all: graph.code_of(&l.blocks).count(),
    })
}

/// The least that a softmax step of [`SCORES`] scores can do with all exponentials on the multi-function unit: see
/// `docs/kernels/fwd_sm100.md`.
pub fn least() -> BTreeMap<Class, usize> {
    BTreeMap::from([
        (Class::Ex2, SCORES),
        (Class::Ffma2, SCORES / 2),
        (Class::Fadd2, SCORES / 2),
        (Class::Fmnmx3, SCORES / 2),
        (Class::F2fp, SCORES / 2),
        (Class::Ldtm, 1),
        (Class::Sttm, 1),
    ])
}

/// A Markdown table: a column for the least that is needed, one for each labelled mix. Counts are for [`SCORES`] scores.
pub fn table(columns: &[Labelled]) -> String {
    let number = |x: f64| if x.fract() == 0.0 { format!("{x:.0}") } else { format!("{x:.1}") };
    let least = least();
    let mut rows = vec![vec![format!("per {SCORES} scores"), "least".to_owned()]];
    rows[0].extend(columns.iter().map(|column| column.label.clone()));
    for class in Class::ALL {
        let counts: Vec<usize> =
            columns.iter().map(|c| c.mix.pass.get(&class).copied().unwrap_or(0)).collect();
        let need = least.get(&class).copied().unwrap_or(0);
        if need == 0 && counts.iter().all(|count| *count == 0) {
            continue;
        }
        let mut row = vec![class.to_string(), need.to_string()];
        row.extend(columns.iter().zip(counts).map(|(c, count)| number(c.mix.scaled(count))));
        rows.push(row);
    }
    let mut total = vec!["**ordinary pass**".to_owned(), least.values().sum::<usize>().to_string()];
    total.extend(columns.iter().map(|c| number(c.mix.scaled(c.mix.total()))));
    let mut all = vec!["whole loop".to_owned(), String::new()];
    all.extend(columns.iter().map(|c| number(c.mix.scaled(c.mix.all))));
    let mut scores = vec!["scores a pass".to_owned(), String::new()];
    scores.extend(columns.iter().map(|c| c.mix.scores.to_string()));
    let mut address = vec!["loop at".to_owned(), String::new()];
    address.extend(columns.iter().map(|c| c.mix.address.map_or(String::new(), |a| format!("{a:#x}"))));
    rows.extend([total, all, scores, address]);
    markdown(&rows)
}

/// Rows as a Markdown table with columns of even width, the first row its head, numbers to the right.
fn markdown(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let pad = |column: usize, cell: &str| match (column, widths[column]) {
        (0, w) => format!("{cell:<w$}"),
        (_, w) => format!("{cell:>w$}"),
    };
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        text.push_str(&line(row.iter().enumerate().map(|(column, cell)| pad(column, cell)).collect()));
        if index == 0 {
            let rule = |(column, w): (usize, &usize)| match column {
                0 => "-".repeat(*w),
                _ => "-".repeat(w - 1) + ":",
            };
            text.push_str(&line(widths.iter().enumerate().map(rule).collect()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::tests::function;

    /// Two scores a pass; a branch that masks; the end of a tile packs O in a loop of its own.
    const SOFTMAX: &str = "\
.text.k:
        /*0000*/                   UMOV UR4, URZ ;
.L_block:
        /*0010*/                   LDTM.x2 R4, tmem[UR8] ;
        /*0020*/                   BRA.U !UP0, `(.L_whole) ;
        /*0030*/                   FSEL R4, R4, -INF, P1 ;
        /*0040*/                   FSEL R5, R5, -INF, P2 ;
.L_whole:
        /*0050*/                   FMNMX3 R2, R2, R4, R5, !PT ;
        /*0060*/                   FFMA2 R4, R4.F32x2.HI_LO, UR12.F32, R152.F32 ;
        /*0070*/                   MUFU.EX2 R4, R4 ;
        /*0080*/                   MUFU.EX2 R5, R5 ;
        /*0090*/                   IMAD.MOV.U32 R7, RZ, RZ, 0x3c5bfbb7 ;
        /*00a0*/                   IMAD R8, R9, 0x800000, R8 ;
        /*00b0*/                   F2FP.BF16.F32.PACK_AB R6, R5, R4 ;
        /*00c0*/                   STTM.x1 tmem[UR8], R6 ;
        /*00d0*/               @P0 BRA `(.L_block) ;
.L_end:
        /*00e0*/                   MUFU.RCP R5, R5 ;
        /*00f0*/                   F2FP.BF16.F32.PACK_AB R6, R5, R4 ;
        /*0100*/               @P0 BRA `(.L_end) ;
        /*0110*/                   EXIT ;
";

    #[test]
    fn the_softmax_loop_is_found_and_counted() {
        let mixes = softmax_loops(&function(SOFTMAX));
        assert_eq!(mixes.len(), 1);
        let mix = &mixes[0];
        assert_eq!((mix.address, mix.scores, mix.total(), mix.all), (Some(0x10), 2, 11, 13));
        assert_eq!(mix.pass[&Class::Ex2], 2);
        assert_eq!(mix.pass[&Class::Move], 1);
        assert_eq!(mix.pass[&Class::Integer], 1);
        assert_eq!(mix.pass[&Class::Branch], 2);
        assert!(!mix.pass.contains_key(&Class::Select), "masks are no part of the ordinary pass");
        assert_eq!(mix.scaled(mix.total()), 704.0);
    }

    #[test]
    fn the_table_has_a_column_for_each_kernel() {
        let mixes = softmax_loops(&function(SOFTMAX));
        let column = |label: &str| Labelled { label: label.to_owned(), mix: mixes[0].clone() };
        let text = table(&[column("a"), column("b")]);
        assert!(text.starts_with("| per 128 scores"), "{text}");
        assert!(text.contains("| MUFU.EX2          |   128 |  128 |  128 |\n"), "{text}");
        assert!(text.contains("| **ordinary pass** |   386 |  704 |  704 |\n"), "{text}");
        assert!(!text.contains("FMUL2"), "a row of zeros");
    }
}
