//! The tree as PTX text again, in a normal form.
//!
//! Scopes are flattened: all registers, variables and branch-target lists of a function stand at its head, and a
//! spelling that several scopes used gets a suffix. Source positions (`.loc`, `.file`), linkage and pragmas are
//! not printed. Reading the result gives the same tree, positions and suffixed names aside; functions without a
//! body and call prototypes, which the tree knows only by name, come back as `.extern .func` declarations.

use super::ast::*;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::{self, Write};

/// The normal form of a module.
pub fn print(module: &Module) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_module(&mut out, module);
    out
}

fn write_module(o: &mut String, m: &Module) -> fmt::Result {
    writeln!(o, ".version {}.{}", m.version.0, m.version.1)?;
    writeln!(o, ".target {}", m.target.join(", "))?;
    writeln!(o, ".address_size 64")?;
    for name in outside_names(m) {
        writeln!(o, ".extern .func {name};")?;
    }
    for v in &m.vars {
        write_var(o, v, &v.name)?;
    }
    for f in &m.functions {
        write_function(o, m, f)?;
    }
    Ok(())
}

/// Names that instructions or initialisers use and that must be declared before: functions.
fn outside_names(m: &Module) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for f in &m.functions {
        for i in f.body.iter().filter(|i| m.opcodes[i.op as usize].text != "%cover") {
            for a in &i.args {
                let name: &str = match a {
                    Operand::Name(n) => n,
                    Operand::Sym(Sym::Func(i), _) => &m.functions[*i as usize].name,
                    _ => continue,
                };
                names.insert(name);
            }
        }
    }
    let vars: HashSet<&str> = m.vars.iter().map(|v| v.name.as_str()).collect();
    let references = m.vars.iter().flat_map(|v| &v.init_refs).map(|(_, n, _)| n.as_str());
    names.extend(references.filter(|n| !vars.contains(n)));
    names
}

fn type_name(t: Ty) -> &'static str {
    match t {
        Ty::Pred => ".pred",
        Ty::B8 => ".b8",
        Ty::U8 => ".u8",
        Ty::S8 => ".s8",
        Ty::B16 => ".b16",
        Ty::U16 => ".u16",
        Ty::S16 => ".s16",
        Ty::F16 => ".f16",
        Ty::BF16 => ".bf16",
        Ty::B32 => ".b32",
        Ty::U32 => ".u32",
        Ty::S32 => ".s32",
        Ty::F32 => ".f32",
        Ty::F16x2 => ".f16x2",
        Ty::BF16x2 => ".bf16x2",
        Ty::B64 => ".b64",
        Ty::U64 => ".u64",
        Ty::S64 => ".s64",
        Ty::F64 => ".f64",
        Ty::B128 => ".b128",
    }
}

fn write_var(o: &mut String, v: &Var, name: &str) -> fmt::Result {
    let space = match v.space {
        Space::Local => ".local",
        Space::Shared => ".shared",
        Space::Global => ".global",
        Space::Const => ".const",
        Space::Param => ".param",
    };
    let linkage = if v.is_extern { ".extern " } else { "" };
    write!(o, "{linkage}{space} .align {} {} {name}", v.align, type_name(v.ty))?;
    let element = v.ty.bytes() as usize;
    match v.size {
        Some(size) => write!(o, "[{}]", size / element as u64)?,
        None => write!(o, "[]")?,
    }
    if !v.init.is_empty() {
        write!(o, " = {{")?;
        let mut refs = v.init_refs.iter().peekable();
        let mut at = 0;
        while at < v.init.len() {
            if at > 0 {
                write!(o, ", ")?;
            }
            match refs.next_if(|r| r.0 == at as u64) {
                Some((_, symbol, addend)) if element == 8 => {
                    write!(o, "{symbol}")?;
                    write_offset(o, *addend)?;
                    at += 8;
                }
                Some((_, symbol, addend)) => {
                    for byte in 0..8 {
                        let comma = if byte > 0 { ", " } else { "" };
                        write!(o, "{comma}{:#x}({symbol}", 0xffu64 << (8 * byte))?;
                        write_offset(o, *addend)?;
                        write!(o, ")")?;
                    }
                    at += 8;
                }
                None => {
                    let mut bytes = [0; 16];
                    bytes[..element].copy_from_slice(&v.init[at..at + element]);
                    let bits = u128::from_le_bytes(bytes);
                    match v.ty {
                        Ty::F32 => write!(o, "0f{bits:08X}")?,
                        Ty::F64 => write!(o, "0d{bits:016X}")?,
                        _ => write!(o, "{bits}")?,
                    }
                    at += element;
                }
            }
        }
        write!(o, "}}")?;
    }
    writeln!(o, ";")
}

fn write_offset(o: &mut String, offset: i64) -> fmt::Result {
    match offset {
        0 => Ok(()),
        n if n > 0 => write!(o, "+{n}"),
        n => write!(o, "-{}", n.unsigned_abs()),
    }
}

/// Hands out each spelling once.
#[derive(Default)]
struct Unique {
    used: HashSet<String>,
    /// How often each spelling was asked for: the next suffix to try.
    asked: HashMap<String, u32>,
}

impl Unique {
    fn spell(&mut self, name: &str) -> String {
        let n = self.asked.entry(name.to_string()).or_insert(0);
        loop {
            *n += 1;
            let spelled = if *n == 1 { name.to_string() } else { format!("{name}${n}") };
            if self.used.insert(spelled.clone()) {
                return spelled;
            }
        }
    }
}

/// Spellings of a function's registers, variables and labels that are unique in the flat form.
struct Spelling {
    regs: Vec<String>,
    vars: Vec<String>,
    labels: Vec<String>,
    /// Instruction index → index of its first label.
    label_at: Vec<Option<u32>>,
}

impl Spelling {
    fn new(m: &Module, f: &Function) -> Self {
        let mut names = Unique::default();
        for taken in m.vars.iter().map(|v| &v.name).chain(f.params.iter().map(|p| &p.name)) {
            names.spell(taken);
        }
        let regs = f.regs.iter().map(|(n, _)| names.spell(n)).collect();
        let vars = f.vars.iter().map(|v| names.spell(&v.name)).collect();
        let mut names = Unique::default();
        let labels = f.labels.iter().map(|(_, n)| names.spell(n)).collect();
        let mut label_at = vec![None; f.body.len() + 1];
        for (i, &(at, _)) in f.labels.iter().enumerate() {
            label_at[at as usize].get_or_insert(i as u32);
        }
        Spelling { regs, vars, labels, label_at }
    }

    fn label(&self, at: u32) -> &str {
        // Every branch target came from a label.
        self.label_at[at as usize].map_or("", |i| &self.labels[i as usize])
    }
}

fn write_function(o: &mut String, m: &Module, f: &Function) -> fmt::Result {
    let s = Spelling::new(m, f);
    write!(o, "{} {}(", if f.is_entry { ".visible .entry" } else { ".func" }, f.name)?;
    for (i, p) in f.params.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(o, "{comma}.param .align {} {} {}", p.align, type_name(p.ty), p.name)?;
        if p.size != p.ty.bytes() {
            write!(o, "[{}]", p.size / p.ty.bytes())?;
        }
    }
    writeln!(o, ")")?;
    let shapes = [("reqntid", f.reqntid), ("maxntid", f.maxntid), ("reqnctapercluster", f.reqnctapercluster)];
    for (name, v) in shapes {
        if let Some([x, y, z]) = v {
            writeln!(o, ".{name} {x}, {y}, {z}")?;
        }
    }
    writeln!(o, "{{")?;
    for ((_, ty), name) in f.regs.iter().zip(&s.regs) {
        writeln!(o, "\t.reg {} {name};", type_name(*ty))?;
    }
    for (v, name) in f.vars.iter().zip(&s.vars) {
        write!(o, "\t")?;
        write_var(o, v, name)?;
    }
    for (i, list) in f.branch_targets.iter().enumerate() {
        let names: Vec<&str> = list.iter().map(|&t| s.label(t)).collect();
        writeln!(o, "$targets_{i}: .branchtargets {};", names.join(", "))?;
    }
    let mut labels = f.labels.iter().zip(&s.labels).peekable();
    for (at, instr) in f.body.iter().enumerate() {
        while let Some((_, name)) = labels.next_if(|((i, _), _)| *i as usize == at) {
            writeln!(o, "{name}:")?;
        }
        write_instr(o, m, f, &s, instr)?;
    }
    for (_, name) in labels {
        writeln!(o, "{name}:")?;
    }
    writeln!(o, "}}")
}

fn write_instr(o: &mut String, m: &Module, f: &Function, s: &Spelling, i: &Instr) -> fmt::Result {
    let op = &m.opcodes[i.op as usize];
    if let ("%cover", [Operand::Name(name)]) = (op.text.as_str(), i.args.as_slice()) {
        return writeln!(o, "\t// cover: {name}");
    }
    write!(o, "\t")?;
    if let Some((reg, negated)) = i.guard {
        write!(o, "@{}{} ", if negated { "!" } else { "" }, s.regs[reg as usize])?;
    }
    write!(o, "{}", op.text)?;
    for (n, a) in i.args.iter().enumerate() {
        write!(o, "{}", if n > 0 { ", " } else { " " })?;
        // A call's lists are written in parentheses, everybody else's in braces.
        match a {
            Operand::Vector(v) if op.mnemonic == "call" => write_list(o, m, f, s, v, '(', ')')?,
            a => write_operand(o, m, f, s, a)?,
        }
    }
    writeln!(o, ";")
}

fn write_list(
    o: &mut String,
    m: &Module,
    f: &Function,
    s: &Spelling,
    items: &[Operand],
    open: char,
    close: char,
) -> fmt::Result {
    write!(o, "{open}")?;
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            write!(o, ", ")?;
        }
        write_operand(o, m, f, s, item)?;
    }
    write!(o, "{close}")
}

fn sym_name<'a>(m: &'a Module, f: &'a Function, s: &'a Spelling, sym: Sym) -> &'a str {
    match sym {
        Sym::Param(i) => &f.params[i as usize].name,
        Sym::FuncVar(i) => &s.vars[i as usize],
        Sym::ModuleVar(i) => &m.vars[i as usize].name,
        Sym::Func(i) => &m.functions[i as usize].name,
    }
}

fn write_base(
    o: &mut String,
    m: &Module,
    f: &Function,
    s: &Spelling,
    base: Base,
    offset: i64,
) -> fmt::Result {
    match base {
        Base::Reg(r) => write!(o, "{}", s.regs[r as usize])?,
        Base::Sym(sym) => write!(o, "{}", sym_name(m, f, s, sym))?,
        Base::Abs => return write!(o, "{:#x}", offset as u64),
    }
    write_offset(o, offset)
}

fn write_operand(o: &mut String, m: &Module, f: &Function, s: &Spelling, a: &Operand) -> fmt::Result {
    match a {
        Operand::Reg(r) => write!(o, "{}", s.regs[*r as usize]),
        Operand::NotReg(r) => write!(o, "!{}", s.regs[*r as usize]),
        Operand::Int(v) => write!(o, "{v}"),
        Operand::F32(bits) => write!(o, "0f{bits:08X}"),
        Operand::F64(bits) => write!(o, "0d{bits:016X}"),
        Operand::Special(name) | Operand::Name(name) => write!(o, "{name}"),
        Operand::Sink => write!(o, "_"),
        Operand::Vector(items) => write_list(o, m, f, s, items, '{', '}'),
        Operand::Pair(a, b) => {
            write_operand(o, m, f, s, a)?;
            write!(o, "|")?;
            write_operand(o, m, f, s, b)
        }
        Operand::Addr(base, offset) => {
            write!(o, "[")?;
            write_base(o, m, f, s, *base, *offset)?;
            write!(o, "]")
        }
        Operand::Tensor(base, offset, coordinates) => {
            write!(o, "[")?;
            write_base(o, m, f, s, *base, *offset)?;
            write!(o, ", ")?;
            write_list(o, m, f, s, coordinates, '{', '}')?;
            write!(o, "]")
        }
        Operand::Sym(sym, addend) => {
            write!(o, "{}", sym_name(m, f, s, *sym))?;
            write_offset(o, *addend)
        }
        Operand::Label(at) => write!(o, "{}", s.label(*at)),
        Operand::Targets(i) => write!(o, "$targets_{i}"),
    }
}
