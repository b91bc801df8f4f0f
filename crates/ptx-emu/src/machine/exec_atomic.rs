//! Atomics wider than a register: vectors of elements, each an atomic of its own, and 128-bit exchanges.

use super::cta::Cta;
use super::decode::{Cx, One, addr_reg, atom_order, reject};
use super::decode_async::arg;
use super::exec::{Next, lanes};
use super::hb::{Does, Order};
use super::inst::{Addr, AtomOp, AtomTy, Inst, OpClass, Place, Reg};
use super::run::{Machine, Res};
use crate::fault::Code;
use crate::isa::operands::{Decoded, unsupported};
use crate::isa::regs::Class;
use crate::syntax::ast::{Opcode, Operand, Ty};

/// A decoded vector atomic.
#[derive(Clone, Debug)]
pub struct AtomVector {
    /// Operation on each element.
    pub op: AtomOp,
    /// Type of an element.
    pub ty: AtomTy,
    /// Where.
    pub place: Place,
    /// Address of element 0.
    pub addr: Addr,
    /// How it is ordered.
    pub order: Order,
    /// Per element: old value (32-bit slot, or none), operand.
    pub elements: Box<[(Option<u32>, u32)]>,
}

/// A decoded 128-bit atomic; registers are the first of two 64-bit slots.
#[derive(Clone, Debug)]
pub struct Atom128 {
    /// Where.
    pub place: Place,
    /// Address.
    pub addr: Addr,
    /// How it is ordered.
    pub order: Order,
    /// Old value.
    pub d: u32,
    /// What is stored.
    pub new: u32,
    /// Compare and swap: what the old value must be.
    pub expected: Option<u32>,
}

impl Cx<'_> {
    /// `atom` and `red` with `.v2`, `.v4` or `.v8`.
    pub(super) fn atom_vector(&mut self, op: &Opcode, args: &[Operand]) -> Decoded<One> {
        let (mut place, mut ty, mut kind) = (Place::Generic, None, None);
        for m in &op.mods {
            match m.as_str() {
                "relaxed" | "acquire" | "release" | "acq_rel" | "cta" | "cluster" | "gpu" | "sys"
                | "noftz" | "v2" | "v4" | "v8" => {}
                "global" => place = Place::Global,
                m if m.starts_with("L2::") => {}
                "add" => kind = Some(AtomOp::Add),
                "f32" => ty = Some(AtomTy::F32),
                "f16" => ty = Some(AtomTy::F16),
                "bf16" => ty = Some(AtomTy::Bf16),
                "f16x2" => ty = Some(AtomTy::F16x2),
                "bf16x2" => ty = Some(AtomTy::Bf16x2),
                m => return Err(reject(op, m)),
            }
        }
        let (Some(kind), Some(ty)) = (kind, ty) else { return unsupported(format!("opcode `{}`", op.text)) };
        let returns = op.mnemonic == "atom";
        let rest = args.get(usize::from(returns)..).unwrap_or_default();
        let addr = self.addr(arg(op, rest, 0)?)?;
        let Operand::Vector(b) = arg(op, rest, 1)? else {
            return unsupported(format!("`{}` without a vector", op.text));
        };
        let b = b.iter().map(|o| self.slots.src32(o, Ty::U32)).collect::<Decoded<Vec<_>>>()?;
        let d: Vec<Option<u32>> = match args.first() {
            Some(Operand::Vector(d)) if returns => {
                d.iter().map(|o| self.slots.dst32(o).map(Some)).collect::<Decoded<_>>()?
            }
            _ => vec![None; b.len()],
        };
        if d.len() != b.len() || !op.mods.iter().any(|m| *m == format!("v{}", b.len())) {
            return unsupported(format!("`{}` with vectors of {} and {}", op.text, d.len(), b.len()));
        }
        let srcs: Vec<Reg> = b.iter().map(|&r| (Class::R32, r)).chain(addr_reg(addr)).collect();
        let dsts: Vec<Reg> = d.iter().flatten().map(|&r| (Class::R32, r)).collect();
        let elements = d.into_iter().zip(b).collect();
        let i = AtomVector { op: kind, ty, place, addr, order: atom_order(op), elements };
        Ok(One::new(Inst::AtomVector(Box::new(i)), OpClass::Memory).src(srcs).dst(dsts))
    }

    /// `atom.exch.b128` and `atom.cas.b128`.
    pub(super) fn atom_128(&mut self, op: &Opcode, args: &[Operand]) -> Decoded<One> {
        let (mut place, mut swap) = (Place::Generic, None);
        for m in &op.mods {
            match m.as_str() {
                "relaxed" | "acquire" | "release" | "acq_rel" | "cta" | "cluster" | "gpu" | "sys"
                | "b128" => {}
                "global" => place = Place::Global,
                "shared" | "shared::cta" => place = Place::Shared,
                "shared::cluster" => place = Place::Cluster,
                "exch" => swap = Some(false),
                "cas" => swap = Some(true),
                m if m.starts_with("L2::") => {}
                m => return Err(reject(op, m)),
            }
        }
        let (Some(swap), "atom") = (swap, op.mnemonic.as_str()) else {
            return unsupported(format!("opcode `{}`", op.text));
        };
        let d = self.wide_slot(op, arg(op, args, 0)?)?;
        let addr = self.addr(arg(op, args, 1)?)?;
        let b = self.wide_slot(op, arg(op, args, 2)?)?;
        let (new, expected) = match swap {
            true => (self.wide_slot(op, arg(op, args, 3)?)?, Some(b)),
            false => (b, None),
        };
        let both = |r: u32| [(Class::R64, r), (Class::R64, r + 1)];
        let mut srcs: Vec<Reg> = both(new).into_iter().chain(addr_reg(addr)).collect();
        srcs.extend(expected.into_iter().flat_map(both));
        let i = Atom128 { place, addr, order: atom_order(op), d, new, expected };
        Ok(One::new(Inst::Atom128(Box::new(i)), OpClass::Memory).src(srcs).dst(both(d)))
    }

    /// First of the two 64-bit slots of a 128-bit register.
    pub(super) fn wide_slot(&mut self, op: &Opcode, o: &Operand) -> Decoded<u32> {
        match o {
            Operand::Reg(r) if self.slots.reg(*r).0 == Class::R128 => Ok(self.slots.reg(*r).1),
            _ => unsupported(format!("`{}` without a 128-bit register", op.text)),
        }
    }
}

impl Machine<'_> {
    pub(super) fn atomic_vector(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        i: &AtomVector,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, i.addr)?;
        let n = i.ty.bytes();
        let e = self.hb_begin(c, w, pc, m, i.place, Some(i.order));
        for l in lanes(m) {
            let addr = self.lane_addr(c, w, i.addr, l);
            self.check_align(c, w, pc, l, addr, n * i.elements.len())?;
            for (j, &(d, b)) in i.elements.iter().enumerate() {
                self.atomic_lane(c, w, pc, l, (i.op, i.ty, i.place, addr + (j * n) as u64), (d, b, None))?;
            }
            let at = self.resolve(i.place, addr);
            self.hb_touch(c, w, pc, e, 1 << l, at, n * i.elements.len(), Does::Write)?;
        }
        Ok(Next::Advance)
    }

    pub(super) fn atomic_128(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, i: &Atom128) -> Res<Next> {
        self.addr_defined(c, w, pc, m, i.addr)?;
        let e = self.hb_begin(c, w, pc, m, i.place, Some(i.order));
        for l in lanes(m) {
            let addr = self.lane_addr(c, w, i.addr, l);
            self.check_align(c, w, pc, l, addr, 16)?;
            let (place, addr) = self.resolve(i.place, addr);
            self.hb_touch(c, w, pc, e, 1 << l, (place, addr), 16, Does::Write)?;
            let mut old = [0u8; 16];
            let undef = self.read(c, w, pc, l, place, addr, &mut old)?;
            let regs = &c.warps[w].regs;
            let value = |r: u32| {
                let [lo, hi] = [r, r + 1].map(|r| regs.r64[r as usize].0[l]);
                u128::from(lo) | u128::from(hi) << 64
            };
            let bad = |r: u32| regs.bytes64(r, l) != 0 || regs.bytes64(r + 1, l) != 0;
            if bad(i.new) || i.expected.is_some_and(|e| bad(e) || undef != 0) {
                self.defined(c, w, pc, 1 << l, Code::UninitAtomic, "an operand")?;
            }
            let was = u128::from_le_bytes(old);
            if i.expected.is_none_or(|e| value(e) == was) {
                let new = value(i.new).to_le_bytes();
                self.write(c, w, pc, l, place, addr, &new, 0)?;
            }
            self.hb_strong(c, w, l, (place, addr), i.order, true, true);
            self.progress += 1;
            let regs = &mut c.warps[w].regs;
            regs.set64(i.d, l, was as u64, (undef & 0xff) as u8);
            regs.set64(i.d + 1, l, (was >> 64) as u64, (undef >> 8) as u8);
        }
        Ok(Next::Advance)
    }
}
