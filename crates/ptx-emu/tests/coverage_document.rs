//! `docs/ptx-coverage.md`: the opcodes of shipped kernels, whether the machine runs them, and what that rests on. Written by
//! `cargo xtask bless the_document_is_current`; the test fails where it is not what the decoder says today.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ptx_emu::coverage::{self, Opcode};
use ptx_emu::syntax;

/// One statement for each opcode, `// ## ` before each family.
const FIELD: &str = include_str!("../data/field.ptx");
const DOCUMENT: &str = "docs/ptx-coverage.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn opcodes_of(text: &str, name: &str) -> BTreeMap<String, Opcode> {
    let module = syntax::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
    let mut opcodes = BTreeMap::new();
    coverage::add(&mut opcodes, &module);
    opcodes
}

/// Opcodes of every `.ptx` below a folder.
fn opcodes_below(folder: &str) -> BTreeSet<String> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "ptx"));
    assert!(!files.is_empty(), "{folder}");
    files.iter().flat_map(|path| opcodes_of(&read(path), &path.to_string_lossy()).into_keys()).collect()
}

/// Where the knowledge of an opcode comes from, the strongest first; what a compiler emitted, `ptxas` accepts.
struct Evidence {
    silicon: BTreeSet<String>,
    foreign: BTreeSet<String>,
}

impl Evidence {
    fn collect() -> Self {
        // The H200's answers, bit for bit: probe kernels, and single instructions by name.
        let mut silicon = opcodes_below("crates/ptx-emu/tests/silicon/probes");
        let scalar = read(&root().join("crates/ptx-emu/tests/silicon/scalar.jsonl"));
        for line in scalar.lines().skip(1) {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            silicon.insert(record["op"].as_str().unwrap().replace('_', "."));
        }
        let mut foreign: BTreeSet<String> =
            ["foreign/triton/sm_100a", "foreign/triton/sm_90a"].into_iter().flat_map(opcodes_below).collect();
        let fa4: serde_json::Value =
            serde_json::from_str(&read(&root().join("foreign/fa4/evidence.json"))).unwrap();
        let proven = fa4["opcodes"].as_array().expect("evidence.json lists opcodes");
        foreign.extend(proven.iter().map(|opcode| opcode.as_str().unwrap().to_string()));
        Self { silicon, foreign }
    }

    fn of(&self, opcode: &str) -> &'static str {
        if self.silicon.contains(opcode) {
            "silicon"
        } else if self.foreign.contains(opcode) {
            "foreign"
        } else {
            "ptxas"
        }
    }
}

/// Family → its opcodes, in the file's order.
fn families() -> Vec<(&'static str, Vec<String>)> {
    let known = opcodes_of(FIELD, "field.ptx");
    let mut families: Vec<(&str, Vec<String>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for line in FIELD.lines() {
        if let Some(title) = line.trim().strip_prefix("// ## ") {
            families.push((title, Vec::new()));
            continue;
        }
        let Some((_, opcodes)) = families.last_mut() else { continue };
        for word in line.split(|c: char| c.is_whitespace() || c == ';') {
            if known.contains_key(word) && seen.insert(word) {
                opcodes.push(word.to_string());
            }
        }
    }
    families
}

fn document() -> String {
    let (known, evidence, families) = (opcodes_of(FIELD, "field.ptx"), Evidence::collect(), families());
    let all: Vec<&String> = families.iter().flat_map(|(_, opcodes)| opcodes).collect();
    let refused: Vec<&&String> = all.iter().filter(|o| known[**o].unsupported.is_some()).collect();
    let count = |level: &str| {
        all.iter().filter(|o| known[**o].unsupported.is_none() && evidence.of(o) == level).count()
    };
    let mut text = format!(
        "# PTX coverage\n\n\
         The {} opcodes (mnemonic with all modifiers) that shipped Blackwell and Hopper kernels use: Triton's, \
         FlashAttention-3 and -4, quack, CUTLASS's examples, 77 PTX files in all. The emulator runs {}; what it refuses, it \
         refuses by name and never guesses. Written by `cargo xtask bless the_document_is_current` from \
         `crates/ptx-emu/data/field.ptx`; a test keeps it current.\n\n\
         | evidence | opcodes | means |\n|---|---|---|\n\
         | silicon | {} | an H200's answers, recorded, are the emulator's, bit for bit |\n\
         | foreign | {} | kernels of other people's compilers use it and come out right |\n\
         | ptxas | {} | compilers emit it and the assembler accepts it; its meaning is read from the manual |\n\n\
         ## Not supported\n\n",
        all.len(),
        all.len() - refused.len(),
        count("silicon"),
        count("foreign"),
        count("ptxas"),
    );
    if refused.is_empty() {
        text.push_str("None of these.\n");
    }
    for opcode in refused {
        let why = known[*opcode].unsupported.as_deref().unwrap_or_default();
        let why = why.strip_prefix(&format!("opcode `{opcode}`")).unwrap_or(why).trim();
        let _ =
            writeln!(text, "- `{opcode}`{}", if why.is_empty() { String::new() } else { format!(": {why}") });
    }
    for (title, opcodes) in &families {
        let _ = write!(text, "\n## {title}\n\n| opcode | runs | evidence |\n|---|---|---|\n");
        for opcode in opcodes {
            let runs = known[opcode].unsupported.is_none();
            let (runs, evidence) = if runs { ("yes", evidence.of(opcode)) } else { ("no", "–") };
            let _ = writeln!(text, "| `{opcode}` | {runs} | {evidence} |");
        }
    }
    text
}

/// Nothing is lost between the statements and the families.
#[test]
fn every_statement_has_a_family() {
    let known = opcodes_of(FIELD, "field.ptx");
    let listed: BTreeSet<String> = families().into_iter().flat_map(|(_, opcodes)| opcodes).collect();
    let lost: Vec<&String> = known.keys().filter(|opcode| !listed.contains(*opcode)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(listed.len(), 415);
}

#[test]
fn the_document_is_current() {
    let (path, text) = (root().join(DOCUMENT), document());
    if std::env::var_os("PTX_EMU_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(read(&path) == text, "{DOCUMENT} is not current: `cargo xtask bless the_document_is_current`");
}
