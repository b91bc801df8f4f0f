//! What the inputs are made from: every PTX file at hand, and the shapes of all instructions in them.

use ptx_emu::syntax::ast::{Base, Function, Operand, Ty};
use ptx_emu::syntax::parse_bytes;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Kind of an operand, without which register, number or place it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A register of a type.
    Reg(Ty),
    /// `!p`.
    NotReg,
    /// An integer.
    Int,
    /// `0f…`.
    F32,
    /// `0d…`.
    F64,
    /// A special register.
    Special(String),
    /// `_`.
    Sink,
    /// `{…}`.
    Vector(Vec<Shape>),
    /// `a|b`.
    Pair(Box<Shape>, Box<Shape>),
    /// `[…]`, the address in a register of a type.
    Addr(Option<Ty>),
    /// `[map, {…}]`.
    Tensor(Vec<Shape>),
    /// A variable's address.
    Sym,
    /// A branch target.
    Label,
}

/// Files and instruction shapes.
pub struct Corpus {
    /// Name and text.
    pub files: Vec<(String, String)>,
    /// Opcode as spelled and its operands.
    pub shapes: Vec<(String, Vec<Shape>)>,
    /// All modifiers that occur.
    pub modifiers: Vec<String>,
}

/// The crate's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The PTX files below a folder, in order.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let below = |p: PathBuf| if p.is_dir() { files(&p) } else { vec![p] };
    paths.into_iter().flat_map(below).filter(|p| p.extension().is_some_and(|e| e == "ptx")).collect()
}

impl Corpus {
    /// Reads the tests' files, Triton's, and this project's own kernels where they were compiled.
    pub fn read() -> Corpus {
        let folders = ["tests", "../../foreign/triton", "../../target/fa4-kernels"];
        let paths = folders.iter().flat_map(|f| files(&root().join(f)));
        let read = |p: PathBuf| Some((p.display().to_string(), std::fs::read_to_string(p).ok()?));
        let files: Vec<_> = paths.filter_map(read).collect();
        let (mut seen, mut shapes) = (HashSet::new(), Vec::new());
        let mut modifiers = HashSet::new();
        for (name, text) in &files {
            let Ok(module) = parse_bytes(name, text.as_bytes()) else { continue };
            for op in &module.opcodes {
                modifiers.extend(op.mods.iter().cloned());
            }
            for f in &module.functions {
                for i in &f.body {
                    let op = &module.opcodes[i.op as usize].text;
                    let args: Option<Vec<Shape>> = i.args.iter().map(|a| shape(f, a)).collect();
                    if let Some(args) = args.filter(|_| !op.starts_with('%') && !op.starts_with("call")) {
                        let one = (op.clone(), args);
                        if seen.insert(one.clone()) {
                            shapes.push(one);
                        }
                    }
                }
            }
        }
        let mut modifiers: Vec<String> = modifiers.into_iter().collect();
        modifiers.sort();
        Corpus { files, shapes, modifiers }
    }
}

fn shape(f: &Function, a: &Operand) -> Option<Shape> {
    let ty = |r: u32| f.regs[r as usize].1;
    let list = |l: &[Operand]| l.iter().map(|a| shape(f, a)).collect::<Option<Vec<_>>>();
    Some(match a {
        Operand::Reg(r) => Shape::Reg(ty(*r)),
        Operand::NotReg(_) => Shape::NotReg,
        Operand::Int(_) => Shape::Int,
        Operand::F32(_) => Shape::F32,
        Operand::F64(_) => Shape::F64,
        Operand::Special(s) => Shape::Special(s.to_string()),
        Operand::Sink => Shape::Sink,
        Operand::Vector(l) => Shape::Vector(list(l)?),
        Operand::Pair(a, b) => Shape::Pair(Box::new(shape(f, a)?), Box::new(shape(f, b)?)),
        Operand::Addr(Base::Reg(r), _) => Shape::Addr(Some(ty(*r))),
        Operand::Addr(..) => Shape::Addr(None),
        Operand::Tensor(_, _, l) => Shape::Tensor(list(l)?),
        Operand::Sym(..) => Shape::Sym,
        Operand::Label(_) => Shape::Label,
        Operand::Targets(_) | Operand::Name(_) => return None,
    })
}
