//! The decoder and the lane-vector functions against results recorded on an H200: every recorded instruction
//! is decoded from its spelling, run 32 lanes at a time, and compared bit for bit.

#[allow(dead_code)]
mod silicon;

use ptx_emu::isa::alu::{self, AluInstr};
use ptx_emu::isa::operands::Slots;
use ptx_emu::isa::regs::RegFile;
use ptx_emu::syntax::ast::{Function, Opcode, Operand, Ty};
use silicon::{records, words};
use std::sync::Arc;

/// Register type that holds a PTX operand type.
fn register(name: &str) -> Ty {
    match name {
        "f16" | "bf16" | "e4m3x2" | "e5m2x2" => Ty::B16,
        _ => Ty::B32,
    }
}

fn opcode(text: &str) -> Opcode {
    let mut parts = text.split('.').map(str::to_string);
    Opcode { text: text.into(), mnemonic: parts.next().unwrap_or_default(), mods: parts.collect() }
}

fn decode(text: &str, sources: usize) -> (AluInstr, Slots) {
    let op = opcode(text);
    let source = register(op.mods.last().map_or("", |m| m));
    let result = if op.mnemonic == "cvt" { register(&op.mods[op.mods.len() - 2]) } else { source };
    let mut f = Function::default();
    f.regs.push((Arc::from("%d"), result));
    f.regs.extend((0..sources).map(|i| (Arc::from(format!("%s{i}")), source)));
    let mut slots = Slots::new(&f);
    let args: Vec<Operand> = (0..=sources as u32).map(Operand::Reg).collect();
    let instr = alu::decode(&op, &args, &mut slots).unwrap_or_else(|e| panic!("{e}"));
    (instr.unwrap_or_else(|| panic!("{text}: not taken for an ALU instruction")), slots)
}

#[test]
fn recorded_scalar_instructions() {
    let (mut ops, mut lanes) = (0, 0);
    for r in records("scalar.jsonl") {
        let text = r["op"].as_str().expect("op").replace('_', ".");
        let inputs: Vec<Vec<u32>> =
            r["inputs"].as_array().expect("inputs").iter().map(|i| words(i, 4)).collect();
        let out = words(&r["out"], 4);
        // No model of the hardware's sine and cosine exists; the manual's error bound is checked elsewhere.
        if text.starts_with("sin.") || text.starts_with("cos.") {
            continue;
        }
        let (instr, slots) = decode(&text, inputs.len());
        let mut rf = RegFile::new(slots.n32 as usize, slots.n64 as usize, slots.np as usize);
        let n = out.len();
        for first in (0..n).step_by(32) {
            let count = (n - first).min(32);
            let mask = if count == 32 { !0 } else { (1 << count) - 1 };
            for (input, &slot) in inputs.iter().zip(&instr.op.s) {
                for l in 0..count {
                    rf.set32(slot, l, input[first + l], 0);
                }
            }
            instr.op.exec(&mut rf, mask);
            let d = instr.op.d[0];
            for l in 0..count {
                let got = rf.r32[d as usize].0[l];
                let args: Vec<String> = inputs.iter().map(|i| format!("{:#010x}", i[first + l])).collect();
                assert_eq!(got, out[first + l], "{text} of {}: {got:#010x}", args.join(", "));
                assert_eq!(rf.bytes32(d, l), 0, "{text}: undefined result");
            }
            lanes += count;
        }
        ops += 1;
    }
    assert!(ops >= 80, "only {ops} recorded instructions were read");
    println!("{ops} instructions, {lanes} results");
}
