//! Mutants: a kernel with one instruction of its synchronisation deleted, weakened or aimed elsewhere.
//!
//! [`sites`] lists every mutation of a kernel from a table of instructions ([`table`]); [`apply`] makes the mutant's
//! tree. A mutant that still passes is either redundant or a hole in whatever judged it. Deleting work (a matrix product,
//! a load) is no mutation: anything notices that.

use crate::syntax::ast::{Function, Instr, Module, Opcode, Operand, RegId, Ty};

pub mod table;

use table::{Operator, TABLE};

/// What kind of mistake a mutant makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A wait that is missing or lets more pending operations through.
    Wait,
    /// A missing fence.
    Fence,
    /// A missing commit.
    Commit,
    /// A missing arrival.
    Arrive,
    /// A missing expectation, or one of other bytes.
    ExpectTx,
    /// A missing rendezvous of `bar`.
    NamedBarrier,
    /// A barrier that counts one more or fewer.
    Count,
    /// A wait for the other phase.
    Parity,
    /// The barrier, or the slot, next to the right one.
    Stage,
    /// Other columns of tensor memory.
    Column,
    /// Another field in a descriptor.
    Descriptor,
    /// Another box of the tensor.
    Coordinate,
}

impl Class {
    /// Every class, in the order of tables.
    pub const ALL: [Class; 12] = [
        Class::Wait,
        Class::Fence,
        Class::Commit,
        Class::Arrive,
        Class::ExpectTx,
        Class::NamedBarrier,
        Class::Count,
        Class::Parity,
        Class::Stage,
        Class::Column,
        Class::Descriptor,
        Class::Coordinate,
    ];

    /// The word in tables and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Wait => "wait",
            Class::Fence => "fence",
            Class::Commit => "commit",
            Class::Arrive => "arrive",
            Class::ExpectTx => "expect_tx",
            Class::NamedBarrier => "named barrier",
            Class::Count => "count",
            Class::Parity => "parity",
            Class::Stage => "stage",
            Class::Column => "column",
            Class::Descriptor => "descriptor",
            Class::Coordinate => "coordinate",
        }
    }
}

/// Sizes that the text does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes from one slot of a ring in shared memory to the next.
    pub slot_bytes: u32,
    /// Bytes that one tensor copy brings.
    pub box_bytes: u32,
}

/// An operand: its number, and the element where it is a list or a tensor's coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the operand.
    pub arg: usize,
    /// Element of it.
    pub element: Option<usize>,
}

/// What happens to the instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It is not there.
    Delete,
    /// The predicate that it would write is true at once.
    Satisfied,
    /// It loses a modifier and keeps its first operands.
    Without {
        /// The modifier.
        modifier: &'static str,
        /// Operands that stay.
        operands: usize,
    },
    /// An operand, or the address in it, is larger by so much.
    Add(Place, i64),
    /// An operand has these bits flipped.
    Xor(Place, i64),
}

/// One mutation of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Index of the instruction in the kernel's body.
    pub at: usize,
    /// What kind of mistake it is.
    pub class: Class,
    /// The instruction, up to the modifiers that matter: `mbarrier.try_wait`.
    pub instruction: &'static str,
    /// What is changed, in words that are unique at the instruction: `delete`, `count +1`.
    pub change: String,
    /// The change.
    pub edit: Edit,
}

/// Every mutation of `kernel`, in the order of its text.
pub fn sites(module: &Module, kernel: &Function, sizes: Sizes) -> Vec<Mutation> {
    let mut all = Vec::new();
    let mut turn = 0;
    for (at, instr) in kernel.body.iter().enumerate() {
        let opcode = &module.opcodes[instr.op as usize];
        let Some(row) = TABLE.iter().find(|row| row.matches(&opcode.text)) else { continue };
        let mutation = |operator: &Operator, (change, edit): (String, Edit)| {
            let class = operator.class().unwrap_or(row.class);
            Mutation { at, class, instruction: row.instruction, change, edit }
        };
        let (fields, others): (Vec<_>, Vec<_>) = row
            .operators
            .iter()
            .flat_map(|operator| operator.edits(instr, sizes).into_iter().map(move |e| mutation(operator, e)))
            .partition(|mutation| mutation.class == Class::Descriptor);
        all.extend(others);
        // Unrolled loops have dozens of matrix products that are alike: one field of each, in turn.
        if !fields.is_empty() {
            all.push(fields[turn % fields.len()].clone());
            turn += 1;
        }
    }
    all
}

/// The module with one instruction of `kernel` (an index into [`Module::functions`]) mutated. `None` where the operand
/// is of no kind that the edit can change.
pub fn apply(module: &Module, kernel: usize, mutation: &Mutation) -> Option<Module> {
    let mut module = module.clone();
    let at = mutation.at;
    match &mutation.edit {
        Edit::Delete => remove(&mut module.functions[kernel], at),
        Edit::Satisfied => {
            let op = intern(&mut module, "setp.eq.u32");
            let instr = &mut module.functions[kernel].body[at];
            let predicate = instr.args.first()?.clone();
            (instr.op, instr.args) = (op, vec![predicate, Operand::Int(0), Operand::Int(0)]);
        }
        Edit::Without { modifier, operands } => {
            let instr = &module.functions[kernel].body[at];
            let text = module.opcodes[instr.op as usize].text.replacen(&format!(".{modifier}"), "", 1);
            let op = intern(&mut module, &text);
            let instr = &mut module.functions[kernel].body[at];
            instr.op = op;
            instr.args.truncate(*operands);
        }
        Edit::Add(place, delta) => change(&mut module, kernel, at, *place, Arithmetic::Add, *delta)?,
        Edit::Xor(place, bits) => change(&mut module, kernel, at, *place, Arithmetic::Xor, *bits)?,
    }
    Some(module)
}

/// The module with a `trap` in front of an instruction, under the same guard: it traps where the instruction is reached.
pub fn trap_at(module: &Module, kernel: usize, at: usize) -> Module {
    let mut module = module.clone();
    let op = intern(&mut module, "trap");
    let function = &mut module.functions[kernel];
    let Instr { guard, span, .. } = function.body[at];
    insert(function, at, Instr { guard, op, args: Vec::new(), span });
    module
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Xor,
}

fn operand(instr: &mut Instr, place: Place) -> Option<&mut Operand> {
    let arg = instr.args.get_mut(place.arg)?;
    match (place.element, arg) {
        (None, arg) => Some(arg),
        (Some(i), Operand::Vector(list) | Operand::Tensor(_, _, list)) => list.get_mut(i),
        (Some(_), _) => None,
    }
}

fn change(
    module: &mut Module,
    kernel: usize,
    at: usize,
    place: Place,
    how: Arithmetic,
    by: i64,
) -> Option<()> {
    let target = operand(&mut module.functions[kernel].body[at], place)?;
    match (target, how) {
        (Operand::Int(x), Arithmetic::Add) => *x = x.wrapping_add(by),
        (Operand::Int(x), Arithmetic::Xor) => *x ^= by,
        (Operand::Addr(_, offset) | Operand::Sym(_, offset), Arithmetic::Add) => *offset += by,
        (target @ Operand::Reg(_), _) => {
            let Operand::Reg(source) = *target else { return None };
            return through_register(module, kernel, at, place, how, by, source);
        }
        _ => return None,
    }
    Some(())
}

/// Puts an instruction in front that computes the changed value into a register of its own.
fn through_register(
    module: &mut Module,
    kernel: usize,
    at: usize,
    place: Place,
    how: Arithmetic,
    by: i64,
    source: RegId,
) -> Option<()> {
    let ty = module.functions[kernel].regs[source as usize].1;
    let bits = match ty.bytes() {
        4 => 32,
        8 => 64,
        _ => return None,
    };
    let opcode = match how {
        Arithmetic::Add => format!("add.s{bits}"),
        Arithmetic::Xor => format!("xor.b{bits}"),
    };
    let op = intern(module, &opcode);
    let function = &mut module.functions[kernel];
    let fresh = function.regs.len() as RegId;
    function.regs.push(("%mutated".into(), if bits == 32 { Ty::B32 } else { Ty::B64 }));
    let span = function.body[at].span;
    *operand(&mut function.body[at], place)? = Operand::Reg(fresh);
    let args = vec![Operand::Reg(fresh), Operand::Reg(source), Operand::Int(by)];
    insert(function, at, Instr { guard: None, op, args, span });
    Some(())
}

fn intern(module: &mut Module, text: &str) -> u32 {
    if let Some(at) = module.opcodes.iter().position(|op| op.text == text) {
        return at as u32;
    }
    let mut words = text.split('.').map(str::to_string);
    let mnemonic = words.next().unwrap_or_default();
    module.opcodes.push(Opcode { text: text.to_string(), mnemonic, mods: words.collect() });
    module.opcodes.len() as u32 - 1
}

/// Moves every reference to an instruction.
fn relabel(function: &mut Function, moved: impl Fn(u32) -> u32) {
    for instr in &mut function.body {
        for arg in &mut instr.args {
            if let Operand::Label(target) = arg {
                *target = moved(*target);
            }
        }
    }
    function.branch_targets.iter_mut().flatten().for_each(|target| *target = moved(*target));
    function.labels.iter_mut().for_each(|(target, _)| *target = moved(*target));
}

fn remove(function: &mut Function, at: usize) {
    function.body.remove(at);
    relabel(function, |target| target - u32::from(target as usize > at));
}

/// A branch to the instruction that stood there now meets the new one first.
fn insert(function: &mut Function, at: usize, instr: Instr) {
    relabel(function, |target| target + u32::from(target as usize > at));
    function.body.insert(at, instr);
}

impl Operator {
    /// The class of its mutants; `None` for the row's.
    fn class(self) -> Option<Class> {
        match self {
            Operator::Delete | Operator::Weaken(_) => None,
            Operator::Satisfied => Some(Class::Wait),
            Operator::WithoutTx | Operator::Bytes(_) => Some(Class::ExpectTx),
            Operator::Count(..) => Some(Class::Count),
            Operator::Parity(_) => Some(Class::Parity),
            Operator::Barrier(_) | Operator::Slot(_) => Some(Class::Stage),
            Operator::Column(..) => Some(Class::Column),
            Operator::SmemDesc(..) | Operator::InstrDesc(_) | Operator::Transpose => Some(Class::Descriptor),
            Operator::Coordinates(_) => Some(Class::Coordinate),
        }
    }

    /// The edits that it means for an instruction.
    fn edits(self, instr: &Instr, sizes: Sizes) -> Vec<(String, Edit)> {
        let whole = |arg: usize| Place { arg, element: None };
        let has = |arg: usize| instr.args.get(arg);
        let add = |name: String, arg: usize, by: i64| (name, Edit::Add(whole(arg), by));
        match self {
            Operator::Delete => vec![("delete".into(), Edit::Delete)],
            Operator::Satisfied => vec![("delete".into(), Edit::Satisfied)],
            Operator::Weaken(arg) => vec![add("one more pending".into(), arg, 1)],
            Operator::WithoutTx => {
                vec![("no expect_tx".into(), Edit::Without { modifier: "expect_tx", operands: 2 })]
            }
            Operator::Bytes(arg) => {
                let boxes = i64::from(sizes.box_bytes);
                let by = [("+16", 16), ("-16", -16), ("+box", boxes), ("-box", -boxes)];
                by.into_iter().map(|(name, by)| add(format!("tx_bytes {name}"), arg, by)).collect()
            }
            Operator::Count(arg, by) if matches!(has(arg), Some(Operand::Int(_))) => {
                [by, -by].into_iter().map(|by| add(format!("count {by:+}"), arg, by)).collect()
            }
            Operator::Parity(arg) => vec![("parity".into(), Edit::Xor(whole(arg), 1))],
            Operator::Barrier(arg) if has(arg).is_some() => {
                [8, -8].into_iter().map(|by| add(format!("barrier {:+}", by / 8), arg, by)).collect()
            }
            Operator::Slot(arg) if matches!(has(arg), Some(Operand::Addr(..))) => {
                let slot = i64::from(sizes.slot_bytes);
                [slot, -slot].into_iter().map(|by| add(format!("slot {:+}", by / slot), arg, by)).collect()
            }
            Operator::Column(arg, by) if matches!(has(arg), Some(Operand::Addr(..))) => {
                vec![add(format!("column {by:+}"), arg, by)]
            }
            Operator::SmemDesc(arg, name) if matches!(has(arg), Some(Operand::Reg(_))) => vec![
                // 32 bytes further: the next step of a K-major tile.
                add(format!("{name} start +2"), arg, 2),
                add(format!("{name} sbo +1"), arg, 1 << 32),
                (format!("{name} swizzle"), Edit::Xor(whole(arg), 1 << 62)),
            ],
            Operator::InstrDesc(arg) if has(arg).is_some() => vec![
                ("instr_desc transpose B".into(), Edit::Xor(whole(arg), 1 << 16)),
                ("instr_desc N -16".into(), Edit::Add(whole(arg), -(2 << 17))),
            ],
            Operator::Transpose => match instr.args.len().checked_sub(1) {
                Some(last) if matches!(instr.args[last], Operand::Int(_)) => {
                    vec![("transpose B".into(), Edit::Xor(whole(last), 1))]
                }
                _ => Vec::new(),
            },
            Operator::Coordinates(arg) => match has(arg) {
                Some(Operand::Tensor(_, _, list)) => (0..list.len())
                    .map(|i| {
                        let by = if i == 0 { 8 } else { 1 };
                        let place = Place { arg, element: Some(i) };
                        (format!("coordinate {i} {by:+}"), Edit::Add(place, by))
                    })
                    .collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
