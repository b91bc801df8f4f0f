//! Maps a function's PTX registers, literals and special registers to slots of the warp's register file.
//!
//! Literals and read-only special registers become registers of their own (filled once per warp), so that
//! every source operand of an operation is a plain register index.

use super::regs::Class;
use crate::syntax::ast::{Function, Operand, RegId, Ty};
use std::collections::HashMap;
use std::sync::Arc;

/// Why an instruction could not be decoded: "unsupported", never "your kernel is wrong".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Result of a decoding step.
pub type Decoded<T> = Result<T, Unsupported>;

/// Shorthand for an [`Unsupported`] error.
pub fn unsupported<T>(what: impl Into<String>) -> Decoded<T> {
    Err(Unsupported(what.into()))
}

/// Slot of each PTX register, plus the constants and special registers met while decoding.
#[derive(Debug, Default)]
pub struct Slots {
    /// Per [`RegId`]: class and index in that class's file.
    pub regs: Vec<(Class, u32)>,
    /// Number of 32-bit, 64-bit and predicate slots handed out so far.
    pub n32: u32,
    /// 64-bit slots.
    pub n64: u32,
    /// Predicate slots.
    pub np: u32,
    /// 32-bit constants: value → slot.
    pub const32: HashMap<u32, u32>,
    /// 64-bit constants: value → slot.
    pub const64: HashMap<u64, u32>,
    /// Constant predicates: value → slot.
    pub constp: HashMap<bool, u32>,
    /// 32-bit special registers (`%tid.x`, `%laneid`, …) that are fixed for a warp's life: name → slot.
    pub special32: HashMap<Arc<str>, u32>,
    /// Special registers that are predicates (`%is_explicit_cluster`).
    pub specialp: HashMap<Arc<str>, u32>,
    /// 64-bit special registers.
    pub special64: HashMap<Arc<str>, u32>,
    /// Per [`RegId`]: declared type (`cvt` extends to the width of its destination).
    pub types: Vec<Ty>,
    /// Predicate slot of the condition-code register's carry bit, once an instruction uses it.
    pub cc: Option<u32>,
}

/// Class that holds values of a type.
pub fn class_of(ty: Ty) -> Class {
    match ty.bytes() {
        _ if ty == Ty::Pred => Class::P,
        1..=4 => Class::R32,
        8 => Class::R64,
        _ => Class::R128,
    }
}

impl Slots {
    /// Hands a slot to every register of `f`.
    pub fn new(f: &Function) -> Slots {
        let mut s = Slots::default();
        for (_, ty) in &f.regs {
            let c = class_of(*ty);
            let i = match c {
                Class::P => s.fresh_p(),
                Class::R32 => s.fresh32(),
                Class::R64 => s.fresh64(),
                Class::R128 => {
                    let lo = s.fresh64();
                    s.fresh64();
                    lo
                }
            };
            s.regs.push((c, i));
            s.types.push(*ty);
        }
        s
    }

    /// A new 32-bit slot.
    pub fn fresh32(&mut self) -> u32 {
        self.n32 += 1;
        self.n32 - 1
    }

    /// A new 64-bit slot.
    pub fn fresh64(&mut self) -> u32 {
        self.n64 += 1;
        self.n64 - 1
    }

    /// A new predicate slot.
    pub fn fresh_p(&mut self) -> u32 {
        self.np += 1;
        self.np - 1
    }

    /// Predicate slot of the carry bit (`add.cc`, `addc`, …).
    pub fn cc(&mut self) -> u32 {
        if let Some(s) = self.cc {
            return s;
        }
        let s = self.fresh_p();
        self.cc = Some(s);
        s
    }

    /// Slot of a 32-bit constant.
    pub fn imm32(&mut self, v: u32) -> u32 {
        if let Some(&s) = self.const32.get(&v) {
            return s;
        }
        let s = self.fresh32();
        self.const32.insert(v, s);
        s
    }

    /// Slot of a 64-bit constant.
    pub fn imm64(&mut self, v: u64) -> u32 {
        if let Some(&s) = self.const64.get(&v) {
            return s;
        }
        let s = self.fresh64();
        self.const64.insert(v, s);
        s
    }

    /// Slot of a constant predicate.
    pub fn immp(&mut self, v: bool) -> u32 {
        if let Some(&s) = self.constp.get(&v) {
            return s;
        }
        let s = self.fresh_p();
        self.constp.insert(v, s);
        s
    }

    /// Class and slot of a PTX register.
    pub fn reg(&self, r: RegId) -> (Class, u32) {
        self.regs[r as usize]
    }

    /// A source read as 32 bits or fewer. `ty` says how a literal is to be converted (16-bit types are
    /// stored zero-extended; a floating literal for `F32` is rounded to single).
    pub fn src32(&mut self, o: &Operand, ty: Ty) -> Decoded<u32> {
        let mask = match ty.bytes() {
            1 => 0xff,
            2 => 0xffff,
            _ => u32::MAX,
        };
        match o {
            Operand::Reg(r) => match self.reg(*r) {
                (Class::R32, i) => Ok(i),
                (c, _) => unsupported(format!("a {c:?} register where a 32-bit source is read")),
            },
            Operand::Int(v) if ty == Ty::F32 => Ok(self.imm32((*v as f32).to_bits())),
            Operand::Int(v) => Ok(self.imm32(*v as u32 & mask)),
            Operand::F32(b) => Ok(self.imm32(*b)),
            Operand::F64(b) => Ok(self.imm32((f64::from_bits(*b) as f32).to_bits())),
            Operand::Special(n) => {
                if let Some(&s) = self.special32.get(n) {
                    return Ok(s);
                }
                let s = self.fresh32();
                self.special32.insert(n.clone(), s);
                Ok(s)
            }
            other => unsupported(format!("operand {other:?} where a 32-bit source is read")),
        }
    }

    /// A source read as 64 bits.
    pub fn src64(&mut self, o: &Operand, ty: Ty) -> Decoded<u32> {
        match o {
            Operand::Reg(r) => match self.reg(*r) {
                (Class::R64, i) => Ok(i),
                (c, _) => unsupported(format!("a {c:?} register where a 64-bit source is read")),
            },
            Operand::Int(v) if ty == Ty::F64 => Ok(self.imm64((*v as f64).to_bits())),
            Operand::Int(v) => Ok(self.imm64(*v as u64)),
            Operand::F64(b) => Ok(self.imm64(*b)),
            Operand::F32(b) => Ok(self.imm64(f64::from(f32::from_bits(*b)).to_bits())),
            Operand::Special(n) => {
                if let Some(&s) = self.special64.get(n) {
                    return Ok(s);
                }
                let s = self.fresh64();
                self.special64.insert(n.clone(), s);
                Ok(s)
            }
            other => unsupported(format!("operand {other:?} where a 64-bit source is read")),
        }
    }

    /// A predicate source; the flag is true when it is negated.
    pub fn src_p(&mut self, o: &Operand) -> Decoded<(u32, bool)> {
        match o {
            Operand::Reg(r) | Operand::NotReg(r) => match self.reg(*r) {
                (Class::P, i) => Ok((i, matches!(o, Operand::NotReg(_)))),
                (c, _) => unsupported(format!("a {c:?} register where a predicate is read")),
            },
            Operand::Int(v) => Ok((self.immp(*v != 0), false)),
            Operand::Special(n) => {
                if let Some(&s) = self.specialp.get(n) {
                    return Ok((s, false));
                }
                let s = self.fresh_p();
                self.specialp.insert(n.clone(), s);
                Ok((s, false))
            }
            other => unsupported(format!("operand {other:?} where a predicate is read")),
        }
    }

    /// A 32-bit destination (`_` gets a slot of its own that nobody reads).
    pub fn dst32(&mut self, o: &Operand) -> Decoded<u32> {
        match o {
            Operand::Reg(r) if self.reg(*r).0 == Class::R32 => Ok(self.reg(*r).1),
            Operand::Sink => Ok(self.fresh32()),
            other => unsupported(format!("operand {other:?} as a 32-bit destination")),
        }
    }

    /// A 64-bit destination.
    pub fn dst64(&mut self, o: &Operand) -> Decoded<u32> {
        match o {
            Operand::Reg(r) if self.reg(*r).0 == Class::R64 => Ok(self.reg(*r).1),
            Operand::Sink => Ok(self.fresh64()),
            other => unsupported(format!("operand {other:?} as a 64-bit destination")),
        }
    }

    /// A predicate destination.
    pub fn dst_p(&mut self, o: &Operand) -> Decoded<u32> {
        match o {
            Operand::Reg(r) if self.reg(*r).0 == Class::P => Ok(self.reg(*r).1),
            Operand::Sink => Ok(self.fresh_p()),
            other => unsupported(format!("operand {other:?} as a predicate destination")),
        }
    }
}
