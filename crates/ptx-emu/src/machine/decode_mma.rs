//! Decoding of Hopper's matrix instructions: wgmma, and the mma.sync of one warp.

use super::decode::{Cx, One, reject};
use super::decode_async::{arg, int};
use super::inst::*;
use crate::isa::operands::{Decoded as Res, unsupported};
use crate::isa::regs::Class;
use crate::num::mma::Format;
use crate::syntax::ast::{Opcode, Operand, Ty};

/// Bits of an element's slot in memory and in registers.
pub(super) fn slot_bits(f: Format) -> u32 {
    match f {
        Format::F16 | Format::Bf16 => 16,
        Format::Tf32 => 32,
        _ => 8,
    }
}

fn format(m: &str) -> Option<Format> {
    Some(match m {
        "f16" => Format::F16,
        "bf16" => Format::Bf16,
        "tf32" => Format::Tf32,
        "e4m3" => Format::E4m3,
        "e5m2" => Format::E5m2,
        _ => return None,
    })
}

/// `m64n128k16` → (64, 128, 16).
fn shape(m: &str) -> Option<(u32, u32, u32)> {
    let (rows, rest) = m.strip_prefix('m')?.split_once('n')?;
    let (columns, k) = rest.split_once('k')?;
    Some((rows.parse().ok()?, columns.parse().ok()?, k.parse().ok()?))
}

/// Element types that may stand together: each 16- or 32-bit type with itself, the 8-bit ones in any mix.
fn together(a: Format, b: Format) -> bool {
    a == b || slot_bits(a) == 8 && slot_bits(b) == 8
}

/// `imm-scale`: true for −1.
fn negated(op: &Opcode, args: &[Operand], i: usize) -> Res<bool> {
    match int(op, args, i)? as i32 {
        1 => Ok(false),
        -1 => Ok(true),
        v => unsupported(format!("`{}` with a scale of {v}; it is 1 or -1", op.text)),
    }
}

/// `imm-trans`: true for MN-major.
fn transposed(op: &Opcode, args: &[Operand], i: usize) -> Res<bool> {
    match int(op, args, i)? {
        0 => Ok(false),
        1 => Ok(true),
        v => unsupported(format!("`{}` with a transpose flag of {v}; it is 0 or 1", op.text)),
    }
}

fn as_list(o: &Operand) -> &[Operand] {
    match o {
        Operand::Vector(v) => v,
        other => std::slice::from_ref(other),
    }
}

fn list(regs: &[u32]) -> impl Iterator<Item = Reg> {
    regs.iter().map(|&r| (Class::R32, r))
}

impl Cx<'_> {
    pub(super) fn wgmma(&mut self, op: &Opcode, verb: &str, args: &[Operand]) -> Res<One> {
        if verb == "mma_async" {
            return self.wgmma_async(op, args);
        }
        if let Some(m) = op.mods.iter().skip(1).find(|m| !matches!(m.as_str(), "sync" | "aligned")) {
            return Err(reject(op, m));
        }
        match verb {
            "fence" => Ok(One::new(Inst::WgmmaFence, OpClass::Fence)),
            "commit_group" => Ok(One::new(Inst::WgmmaCommit, OpClass::Commit)),
            "wait_group" => Ok(One::new(Inst::WgmmaWait(int(op, args, 0)?), OpClass::Barrier)),
            _ => unsupported(format!("opcode `{}`", op.text)),
        }
    }

    fn wgmma_async(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let rest: Vec<&str> = op
            .mods
            .iter()
            .skip(1)
            .map(String::as_str)
            .filter(|m| !matches!(*m, "sync" | "aligned"))
            .collect();
        let [tile, acc, a_type, b_type] = rest[..] else {
            return unsupported(format!("opcode `{}` (planned: sparse A, integers)", op.text));
        };
        let (Some((m, n, k)), Some(a_fmt), Some(b_fmt)) = (shape(tile), format(a_type), format(b_type))
        else {
            return unsupported(format!("opcode `{}` (planned: integers)", op.text));
        };
        let bits = slot_bits(a_fmt);
        if m != 64 || k * bits != 256 || n % 8 != 0 || !(8..=256).contains(&n) || !together(a_fmt, b_fmt) {
            return unsupported(format!(
                "`{}`: tiles are m64, n 8 to 256 in steps of 8, k of 32 bytes, A and B of one type",
                op.text
            ));
        }
        let f16_acc = match acc {
            "f32" => false,
            "f16" if !matches!(a_fmt, Format::Bf16 | Format::Tf32) => true,
            m => return Err(reject(op, m)),
        };
        let d: Box<[u32]> = self.registers(arg(op, args, 0)?, true)?;
        let want = if f16_acc { n / 4 } else { n / 2 };
        if d.len() as u32 != want {
            return unsupported(format!("`{}` with {} accumulator registers, not {want}", op.text, d.len()));
        }
        let b = self.slots.src64(arg(op, args, 2)?, Ty::U64)?;
        let mut srcs = vec![(Class::R64, b)];
        let a = match arg(op, args, 1)? {
            v @ Operand::Vector(_) => {
                let regs = self.registers(v, false)?;
                let Ok(regs) = <[u32; 4]>::try_from(&*regs) else {
                    return unsupported(format!("`{}` with A in {} registers, not 4", op.text, regs.len()));
                };
                srcs.extend(list(&regs));
                WgmmaA::Regs(regs)
            }
            o => {
                let s = self.slots.src64(o, Ty::U64)?;
                srcs.push((Class::R64, s));
                WgmmaA::Desc(s)
            }
        };
        let scale_d = self.slots.src_p(arg(op, args, 3)?)?;
        srcs.push((Class::P, scale_d.0));
        let (negate_a, negate_b) = (negated(op, args, 4)?, negated(op, args, 5)?);
        let (trans_a, trans_b) = match (bits, a) {
            (16, WgmmaA::Desc(_)) => (transposed(op, args, 6)?, transposed(op, args, 7)?),
            (16, WgmmaA::Regs(_)) => (false, transposed(op, args, 6)?),
            _ if args.len() > 6 => {
                return unsupported(format!("`{}` with transpose flags: 16-bit types have them", op.text));
            }
            _ => (false, false),
        };
        let dsts: Vec<Reg> = list(&d).collect();
        let i = Wgmma { a_fmt, b_fmt, f16_acc, n, d, a, b, scale_d, negate_a, negate_b, trans_a, trans_b };
        Ok(One::new(Inst::Wgmma(Box::new(i)), OpClass::Mma).src(srcs).dst(dsts))
    }

    pub(super) fn mma_sync(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let rest: Vec<&str> =
            op.mods.iter().map(String::as_str).filter(|m| !matches!(*m, "sync" | "aligned")).collect();
        let [tile, "row", "col", d_type, a_type, b_type, c_type] = rest[..] else {
            return unsupported(format!("opcode `{}` (planned: integers, sparse A, block scales)", op.text));
        };
        let (Some((16, 8, k)), Some(a_fmt), Some(b_fmt)) = (shape(tile), format(a_type), format(b_type))
        else {
            return unsupported(format!("opcode `{}` (planned: m8n8, integers)", op.text));
        };
        let bits = slot_bits(a_fmt);
        // Half-length forms read half the registers. With 8-bit types only the recorded form runs.
        let whole = k * bits == 256;
        if !whole && (k * bits != 128 || bits == 8) || !together(a_fmt, b_fmt) {
            return unsupported(format!("opcode `{}`", op.text));
        }
        if bits == 8 && (a_fmt, b_fmt) != (Format::E4m3, Format::E4m3) {
            return unsupported(format!("`{}`: what the hardware gives for e5m2 is not recorded", op.text));
        }
        let f16_acc = match (d_type, c_type) {
            ("f32", "f32") => false,
            ("f16", "f16") if a_fmt == Format::F16 => true,
            _ => return unsupported(format!("accumulator types of `{}`", op.text)),
        };
        let d = self.registers(arg(op, args, 0)?, true)?;
        let a = self.registers(arg(op, args, 1)?, false)?;
        let b = self.registers(arg(op, args, 2)?, false)?;
        let c = self.registers(arg(op, args, 3)?, false)?;
        let (per_a, per_acc) = (if whole { 4 } else { 2 }, if f16_acc { 2 } else { 4 });
        if [d.len(), a.len(), b.len(), c.len()] != [per_acc, per_a, per_a / 2, per_acc] {
            return unsupported(format!("number of registers of `{}`", op.text));
        }
        let (srcs, dsts): (Vec<Reg>, Vec<Reg>) =
            (list(&a).chain(list(&b)).chain(list(&c)).collect(), list(&d).collect());
        let i = MmaSync { a_fmt, b_fmt, f16_acc, k, d, a, b, c };
        Ok(One::new(Inst::MmaSync(Box::new(i)), OpClass::Mma).src(srcs).dst(dsts))
    }

    /// Slots of a vector of 32-bit registers; literals may stand for sources.
    fn registers(&mut self, o: &Operand, dst: bool) -> Res<Box<[u32]>> {
        as_list(o)
            .iter()
            .map(|o| if dst { self.slots.dst32(o) } else { self.slots.src32(o, Ty::B32) })
            .collect()
    }
}
