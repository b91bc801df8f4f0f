//! Decoding of what only clusters have: addresses of other CTAs, remote stores and reductions that complete on an
//! mbarrier, and launch control.

use super::decode::{Cx, One, addr_reg, reject, type_of};
use super::decode_async::arg;
use super::inst::*;
use crate::isa::operands::{Decoded as Res, unsupported};
use crate::isa::regs::Class;
use crate::syntax::ast::{Opcode, Operand, Ty};

impl Cx<'_> {
    /// `mapa{.shared::cluster}.{u32,u64} d, a, rank` and `getctarank{.shared::cluster}.{u32,u64} d, a`. Without the
    /// space, addresses are generic; the rank stands in the same bits.
    pub(super) fn rank_of_address(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let (mut wide, mut window) = (None, false);
        for m in &op.mods {
            match m.as_str() {
                "shared::cluster" => window = true,
                "u32" => wide = Some(false),
                "u64" => wide = Some(true),
                m => return Err(reject(op, m)),
            }
        }
        let Some(wide) = wide else { return unsupported(format!("opcode `{}`", op.text)) };
        if !wide && !window {
            return unsupported(format!("`{}`: 32-bit generic addresses", op.text));
        }
        let source = |cx: &mut Self, o: &Operand| -> Res<Reg> {
            let o = &cx.own_symbol(o)?;
            Ok(if wide {
                (Class::R64, cx.slots.src64(o, Ty::U64)?)
            } else {
                (Class::R32, cx.slots.src32(o, Ty::U32)?)
            })
        };
        let a = source(self, arg(op, args, 1)?)?;
        if op.mnemonic == "getctarank" {
            let d = self.slots.dst32(arg(op, args, 0)?)?;
            return Ok(One::new(Inst::CtaRank(d, a), OpClass::Int).src([a]).dst([(Class::R32, d)]));
        }
        let d = match wide {
            true => (Class::R64, self.slots.dst64(arg(op, args, 0)?)?),
            false => (Class::R32, self.slots.dst32(arg(op, args, 0)?)?),
        };
        let rank = self.slots.src32(arg(op, args, 2)?, Ty::U32)?;
        Ok(One::new(Inst::Mapa(d, a, rank), OpClass::Int).src([a, (Class::R32, rank)]).dst([d]))
    }

    /// `st.async` and `red.async`: `[address], value(s), [mbarrier]`.
    pub(super) fn remote_async(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let reduces = op.mnemonic == "red";
        let (mut ty, mut n, mut kind, mut completes) = (None, 1usize, None, false);
        for m in &op.mods {
            match m.as_str() {
                "async" | "weak" | "shared::cluster" => {}
                "relaxed" | "cluster" if reduces => {}
                "mbarrier::complete_tx::bytes" => completes = true,
                "v2" if !reduces => n = 2,
                "v4" if !reduces => n = 4,
                "add" if reduces => kind = Some(AtomOp::Add),
                "min" if reduces => kind = Some(AtomOp::Min),
                "max" if reduces => kind = Some(AtomOp::Max),
                "inc" if reduces => kind = Some(AtomOp::Inc),
                "dec" if reduces => kind = Some(AtomOp::Dec),
                "and" if reduces => kind = Some(AtomOp::And),
                "or" if reduces => kind = Some(AtomOp::Or),
                "xor" if reduces => kind = Some(AtomOp::Xor),
                m => ty = Some(type_of(m).ok_or_else(|| reject(op, m))?),
            }
        }
        let (Some(ty), true) = (ty, completes) else { return unsupported(format!("opcode `{}`", op.text)) };
        if reduces == kind.is_none() {
            return unsupported(format!("opcode `{}`", op.text));
        }
        let reduce = match (kind, ty) {
            (None, _) => None,
            (Some(k), Ty::U32 | Ty::B32) => Some((k, AtomTy::U32)),
            (Some(k), Ty::S32) => Some((k, AtomTy::S32)),
            (Some(k @ AtomOp::Add), Ty::U64 | Ty::S64) => Some((k, AtomTy::U64)),
            _ => return unsupported(format!("opcode `{}`", op.text)),
        };
        if !matches!(ty.bytes(), 4 | 8) {
            return unsupported(format!("`{}`: 32- and 64-bit types are stored", op.text));
        }
        let addr = self.addr(arg(op, args, 0)?)?;
        let regs = self.element_regs(arg(op, args, 1)?, ty, false)?;
        if regs.len() != n {
            return unsupported(format!("`{}` with {} values", op.text, regs.len()));
        }
        let mbar = self.addr(arg(op, args, 2)?)?;
        let srcs: Vec<Reg> =
            regs.iter().flatten().copied().chain(addr_reg(addr)).chain(addr_reg(mbar)).collect();
        let r = RemoteAsync { addr, mbar, regs: regs.into(), bytes: ty.bytes() as u8, reduce };
        Ok(One::new(Inst::RemoteAsync(Box::new(r)), OpClass::Bulk).src(srcs))
    }

    /// A mask of CTA ranks: 16 bits in a register or a literal.
    pub(super) fn cta_mask(&mut self, op: &Opcode, args: &[Operand], i: usize) -> Res<u32> {
        self.slots.src32(arg(op, args, i)?, Ty::U16)
    }
}
