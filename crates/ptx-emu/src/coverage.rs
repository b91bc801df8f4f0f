//! Which opcodes of a PTX file the machine can run: every instruction is put to the decoder, and what it refuses has a reason.
//!
//! An opcode is a mnemonic with all its modifiers, as spelled. It counts as supported where every form of it in the file is
//! (operands matter: `tcgen05.mma` takes A from shared or from tensor memory).

use std::collections::{BTreeMap, HashSet};

use crate::Module;
use crate::machine::decode::{Layout, decode};
use crate::syntax::ast::{Function, Instr, Operand};

/// What is known of one opcode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opcode {
    /// Instructions with it.
    pub uses: u64,
    /// Why the machine cannot run one of them.
    pub unsupported: Option<String>,
}

/// The opcodes of the kernels in `module`, added to those that are in `opcodes`.
pub fn add(opcodes: &mut BTreeMap<String, Opcode>, module: &Module) {
    for function in module.functions.iter().filter(|function| function.is_entry) {
        let mut judge = Judge::new(module, function);
        for instruction in &function.body {
            let text = &module.opcodes[instruction.op as usize].text;
            // Markers of coverage stand for comments.
            if text == "%cover" {
                continue;
            }
            let opcode = opcodes.entry(text.clone()).or_default();
            opcode.uses += 1;
            if opcode.unsupported.is_none() {
                opcode.unsupported = judge.reason(instruction);
            }
        }
    }
}

/// Asks the decoder about single instructions.
struct Judge<'m> {
    module: &'m Module,
    /// The kernel with a body of one instruction.
    one: Function,
    layout: Layout,
    /// Opcodes with kinds of operands that were decoded already.
    known: HashSet<(u32, Vec<std::mem::Discriminant<Operand>>)>,
}

impl<'m> Judge<'m> {
    fn new(module: &'m Module, f: &Function) -> Self {
        let one = Function {
            name: f.name.clone(),
            is_entry: true,
            params: f.params.clone(),
            regs: f.regs.clone(),
            vars: f.vars.clone(),
            branch_targets: vec![vec![0]; f.branch_targets.len()],
            ..Function::default()
        };
        let layout = Layout {
            module_vars: vec![0; module.vars.len()],
            func_vars: vec![0; f.vars.len()],
            ..Layout::default()
        };
        Judge { module, one, layout, known: HashSet::new() }
    }

    /// Why the machine cannot run an instruction; `None` also when one like it was judged before.
    fn reason(&mut self, i: &Instr) -> Option<String> {
        if !self.known.insert((i.op, i.args.iter().map(std::mem::discriminant).collect())) {
            return None;
        }
        let mut i = i.clone();
        for a in &mut i.args {
            if let Operand::Label(at) = a {
                *at = 0;
            }
        }
        self.one.body = vec![i];
        decode(self.module, &self.one, self.layout.clone()).err().map(|e| e.what.0)
    }
}
