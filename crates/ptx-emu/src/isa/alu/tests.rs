//! Values by hand from the manual's definitions, definedness rules, and the table against the decoder.

use super::{AluInstr, decode, table};
use crate::isa::operands::Slots;
use crate::isa::regs::{Class, RegFile};
use crate::syntax::ast::{Function, Opcode, Operand, Ty};
use std::sync::Arc;

fn opcode(text: &str) -> Opcode {
    let mut parts = text.split('.').map(str::to_string);
    Opcode { text: text.into(), mnemonic: parts.next().unwrap_or_default(), mods: parts.collect() }
}

/// Registers and operands for one instruction, built from operand codes (see [`table::Row::operands`]).
struct Bench {
    f: Function,
    args: Vec<Operand>,
}

impl Bench {
    fn new(codes: &str, op: &Opcode) -> Bench {
        let mut b = Bench { f: Function::default(), args: Vec::new() };
        let mut it = codes.chars().peekable();
        while let Some(c) = it.next() {
            if c == 'c' {
                if ["and", "or", "xor"].iter().any(|m| op.has(m)) {
                    let o = b.reg(Ty::Pred);
                    b.args.push(o);
                }
                continue;
            }
            let o = match c {
                '{' => {
                    let mut v = Vec::new();
                    while let Some(c) = it.next_if(|c| *c != '}') {
                        v.push(b.code(c, op));
                    }
                    it.next();
                    Operand::Vector(v)
                }
                c => b.code(c, op),
            };
            if it.next_if_eq(&'|').is_some() {
                let c = it.next().expect("second of a pair");
                let second = b.code(c, op);
                b.args.push(Operand::Pair(Box::new(o), Box::new(second)));
            } else {
                b.args.push(o);
            }
        }
        b
    }

    fn reg(&mut self, ty: Ty) -> Operand {
        let id = self.f.regs.len() as u32;
        self.f.regs.push((Arc::from(format!("%r{id}")), ty));
        Operand::Reg(id)
    }

    fn code(&mut self, code: char, op: &Opcode) -> Operand {
        let ty = |back: usize| {
            let types = op.mods.iter().filter(|m| super::type_named(m).is_some()).collect::<Vec<_>>();
            types.get(types.len() - back).and_then(|m| super::type_named(m)).unwrap_or(Ty::B32)
        };
        match code {
            'T' => self.reg(ty(1)),
            'S' => self.reg(ty(2)),
            'W' if op.mods.last().is_some_and(|m| m.ends_with("16")) => self.reg(Ty::B32),
            'W' | 'w' => self.reg(Ty::B64),
            'u' => self.reg(Ty::B32),
            'h' => self.reg(Ty::B16),
            'b' => self.reg(Ty::B8),
            'p' => self.reg(Ty::Pred),
            'i' => Operand::Int(0x1e),
            c => panic!("operand code {c}"),
        }
    }
}

#[test]
fn every_row_of_the_table_decodes() {
    let mut n = 0;
    for row in table::ROWS {
        for text in row.opcodes() {
            let op = opcode(&text);
            assert!(table::decoder(&op.mnemonic).is_some(), "{text}");
            let b = Bench::new(row.operands, &op);
            let mut slots = Slots::new(&b.f);
            let got = decode(&op, &b.args, &mut slots).unwrap_or_else(|e| panic!("{e} ({:?})", b.args));
            let instr = got.unwrap_or_else(|| panic!("{text}: refused"));
            run_once(&instr, &slots);
            n += 1;
        }
    }
    assert!(n > 1000, "{n}");
}

/// Runs with undefined sources (nothing may panic, everything written must be undefined or decided) and with
/// defined ones (everything written must be defined, except where a divisor is zero).
fn run_once(i: &AluInstr, slots: &Slots) {
    let mut rf = RegFile::new(slots.n32 as usize, slots.n64 as usize, slots.np as usize);
    i.op.exec(&mut rf, !0);
    for &(c, s) in &i.srcs {
        for l in 0..32 {
            match c {
                Class::P => rf.setp(s, l, true, false),
                Class::R32 => rf.set32(s, l, 1, 0),
                _ => rf.set64(s, l, 1, 0),
            }
        }
    }
    i.op.exec(&mut rf, 0x00ff_ff00);
    for &(c, d) in &i.dsts {
        let undef = match c {
            Class::P => rf.up[d as usize],
            Class::R32 => rf.u32[d as usize],
            _ => rf.u64[d as usize],
        };
        assert_eq!(undef & 0x00ff_ff00, 0, "{i:?}");
    }
}

#[test]
fn unknown_forms_are_refused_by_name() {
    for text in [
        "add.f128",
        "add.rna.f32",
        "fma.rn.oob.f16",
        "cvt.rs.bf16x2.f32",
        "setp.lt.b32",
        "mov.b256",
        "cvt.sat.u32.u16",
        "cvt.rm.relu.bf16.f32",
        "cvt.rna.relu.tf32.f32",
        "sub.u16x2",
        "bfe.u16",
    ] {
        let op = opcode(text);
        let b = Bench::new("uuu", &op);
        let e = decode(&op, &b.args, &mut Slots::new(&b.f)).expect_err(text);
        assert!(e.0.contains(text), "{e}");
    }
    let op = opcode("ld.global.b32");
    assert!(decode(&op, &[], &mut Slots::default()).is_ok_and(|i| i.is_none()));
}

#[test]
fn addresses_and_clocks_are_left_to_the_machine() {
    use crate::syntax::ast::Sym;
    let op = opcode("mov.u64");
    let mut b = Bench::new("T", &op);
    for o in [Operand::Sym(Sym::Param(0), 0), Operand::Special(Arc::from("%clock64"))] {
        b.args.truncate(1);
        b.args.push(o);
        assert!(decode(&op, &b.args, &mut Slots::new(&b.f)).is_ok_and(|i| i.is_none()));
    }
}

/// A source value with its undefined bytes.
#[derive(Clone, Copy)]
struct V(Ty, u64, u8);

fn r(v: u32) -> V {
    V(Ty::B32, u64::from(v), 0)
}
fn h(v: u16) -> V {
    V(Ty::B16, u64::from(v), 0)
}
fn w(v: u64) -> V {
    V(Ty::B64, v, 0)
}
fn p(v: bool) -> V {
    V(Ty::Pred, u64::from(v), 0)
}
fn undef(v: V, bytes: u8) -> V {
    V(v.0, v.1, bytes)
}

/// Runs `text d…, srcs…` on lane 7 and returns value and undefined bytes of each destination; checks that lanes
/// outside the mask keep what they had.
fn exec(text: &str, dsts: &[Ty], srcs: &[V]) -> Vec<(u64, u8)> {
    let op = opcode(text);
    let mut f = Function::default();
    let mut args = Vec::new();
    for ty in dsts.iter().copied().chain(srcs.iter().map(|v| v.0)) {
        args.push(Operand::Reg(f.regs.len() as u32));
        f.regs.push((Arc::from("%x"), ty));
    }
    let args = shape(&op, dsts.len(), args);
    let mut slots = Slots::new(&f);
    let i = decode(&op, &args, &mut slots).unwrap_or_else(|e| panic!("{e}")).expect("an ALU instruction");
    let mut rf = RegFile::new(slots.n32 as usize, slots.n64 as usize, slots.np as usize);
    // Literals are filled in by the machine.
    for (&v, &s) in &slots.const32 {
        (0..32).for_each(|l| rf.set32(s, l, v, 0));
    }
    for (v, &(class, slot)) in srcs.iter().zip(&slots.regs[dsts.len()..]) {
        for l in 0..32 {
            match class {
                Class::P => rf.setp(slot, l, v.1 != 0, v.2 != 0),
                Class::R32 => rf.set32(slot, l, v.1 as u32, v.2),
                _ => rf.set64(slot, l, v.1, v.2),
            }
        }
    }
    let before = rf.clone();
    i.op.exec(&mut rf, 1 << 7);
    for &(class, d) in &i.dsts {
        let same = match class {
            Class::P => (rf.p[d as usize] ^ before.p[d as usize]) & !(1 << 7) == 0,
            Class::R32 => (0..32).all(|l| l == 7 || rf.r32[d as usize].0[l] == before.r32[d as usize].0[l]),
            _ => (0..32).all(|l| l == 7 || rf.r64[d as usize].0[l] == before.r64[d as usize].0[l]),
        };
        assert!(same, "{text}: wrote outside the mask");
    }
    // The full-mask path must agree.
    let mut full = before;
    i.op.exec(&mut full, !0);
    let read = |rf: &RegFile, c: Class, d: u32| match c {
        Class::P => (u64::from(rf.p[d as usize] >> 7 & 1), (rf.up[d as usize] >> 7 & 1) as u8),
        Class::R32 => (u64::from(rf.r32[d as usize].0[7]), rf.bytes32(d, 7)),
        _ => (rf.r64[d as usize].0[7], rf.bytes64(d, 7)),
    };
    i.dsts
        .iter()
        .map(|&(c, d)| {
            assert_eq!(read(&rf, c, d), read(&full, c, d), "{text}: masked and full execution differ");
            read(&rf, c, d)
        })
        .collect()
}

/// Gives flat operands the shape an opcode wants: pairs for `setp` with two results, vectors for packing `mov`.
fn shape(op: &Opcode, n: usize, args: Vec<Operand>) -> Vec<Operand> {
    let (d, s) = args.split_at(n);
    match op.mnemonic.as_str() {
        "setp" if n == 2 => {
            let mut v = vec![Operand::Pair(Box::new(d[0].clone()), Box::new(d[1].clone()))];
            v.extend_from_slice(s);
            v
        }
        "mov" if n > 1 => vec![Operand::Vector(d.to_vec()), s[0].clone()],
        "mov" if s.len() > 1 => vec![d[0].clone(), Operand::Vector(s.to_vec())],
        _ => args,
    }
}

fn value(text: &str, d: Ty, srcs: &[V]) -> u64 {
    let got = exec(text, &[d], srcs)[0];
    assert_eq!(got.1, 0, "{text}: undefined result");
    got.0
}

fn undefined(text: &str, d: Ty, srcs: &[V]) -> u8 {
    exec(text, &[d], srcs)[0].1
}

const M1: u32 = u32::MAX;
const MIN: u32 = 0x8000_0000;

#[test]
fn integer_arithmetic() {
    assert_eq!(value("add.s32", Ty::S32, &[r(M1), r(2)]), 1);
    assert_eq!(value("add.sat.s32", Ty::S32, &[r(0x7fff_ffff), r(1)]), 0x7fff_ffff);
    assert_eq!(value("sub.sat.s32", Ty::S32, &[r(MIN), r(1)]), u64::from(MIN));
    assert_eq!(value("add.u16", Ty::U16, &[h(0xffff), h(1)]), 0);
    assert_eq!(value("add.s16x2", Ty::B32, &[r(0x0001_ffff), r(0x0001_0001)]), 0x0002_0000);
    assert_eq!(value("sub.s64", Ty::S64, &[w(0), w(1)]), u64::MAX);
    assert_eq!(value("mul.lo.s32", Ty::S32, &[r(M1), r(3)]), u64::from(M1 - 2));
    assert_eq!(value("mul.hi.s32", Ty::S32, &[r(M1), r(3)]), u64::from(M1));
    assert_eq!(value("mul.hi.u32", Ty::U32, &[r(M1), r(3)]), 2);
    assert_eq!(value("mul.hi.u64", Ty::U64, &[w(1 << 63), w(6)]), 3);
    assert_eq!(value("mul.hi.s64", Ty::S64, &[w(u64::MAX), w(6)]), u64::MAX);
    assert_eq!(value("mul.wide.s32", Ty::S64, &[r(M1), r(3)]), (-3i64) as u64);
    assert_eq!(value("mul.wide.u32", Ty::U64, &[r(M1), r(M1)]), 0xffff_fffe_0000_0001);
    assert_eq!(value("mul.wide.s16", Ty::S32, &[h(0xffff), h(5)]), u64::from(-5i32 as u32));
    assert_eq!(value("mul.wide.u16", Ty::U32, &[h(0xffff), h(0xffff)]), 0xfffe_0001);
    assert_eq!(value("mad.wide.s32", Ty::S64, &[r(M1), r(3), w(10)]), 7);
    assert_eq!(value("mad.lo.s32", Ty::S32, &[r(M1), r(3), r(10)]), 7);
    assert_eq!(value("mad.hi.sat.s32", Ty::S32, &[r(MIN), r(MIN), r(0x7fff_ffff)]), 0x7fff_ffff);
    assert_eq!(value("mul24.lo.u32", Ty::U32, &[r(0xff00_0003), r(5)]), 15);
    assert_eq!(value("mul24.hi.s32", Ty::S32, &[r(0x00ff_ffff), r(1)]), u64::from(M1));
    assert_eq!(value("sad.s32", Ty::S32, &[r(M1), r(4), r(1)]), 6);
    assert_eq!(value("div.s32", Ty::S32, &[r(-7i32 as u32), r(2)]), u64::from(-3i32 as u32));
    assert_eq!(value("rem.s32", Ty::S32, &[r(-7i32 as u32), r(2)]), u64::from(M1));
    assert_eq!(value("rem.s32", Ty::S32, &[r(7), r(-2i32 as u32)]), 1);
    assert_eq!(value("div.s32", Ty::S32, &[r(MIN), r(M1)]), u64::from(MIN));
    assert_eq!(value("div.u64", Ty::U64, &[w(u64::MAX), w(10)]), u64::MAX / 10);
    assert_eq!(value("abs.s32", Ty::S32, &[r(MIN)]), u64::from(MIN));
    assert_eq!(value("neg.s16", Ty::S16, &[h(1)]), 0xffff);
    assert_eq!(value("min.s16", Ty::S16, &[h(0xffff), h(1)]), 0xffff);
    assert_eq!(value("max.u16", Ty::U16, &[h(0xffff), h(1)]), 0xffff);
    assert_eq!(value("min.relu.s32", Ty::S32, &[r(M1), r(1)]), 0);
    assert_eq!(value("max.relu.s16x2", Ty::B32, &[r(0xffff_0001), r(0xfffe_0002)]), 2);
}

#[test]
fn zero_divisors_give_undefined_results() {
    assert_eq!(undefined("div.u32", Ty::U32, &[r(5), r(0)]), 0x0f);
    assert_eq!(undefined("rem.s64", Ty::S64, &[w(5), w(0)]), 0xff);
}

#[test]
fn carries() {
    // 0xffff_ffff_ffff_ffff + 1 in two halves, then the borrow back.
    let op = |t: &str| opcode(t);
    let mut f = Function::default();
    for _ in 0..4 {
        f.regs.push((Arc::from("%r"), Ty::U32));
    }
    let mut slots = Slots::new(&f);
    let reg = Operand::Reg;
    let program = [
        ("add.cc.u32", [reg(0), reg(2), reg(3)]),
        ("addc.u32", [reg(1), reg(2), Operand::Int(0)]),
        ("sub.cc.u32", [reg(0), reg(0), reg(3)]),
        ("subc.u32", [reg(1), reg(1), Operand::Int(0)]),
    ];
    let code: Vec<_> = program
        .iter()
        .map(|(t, a)| decode(&op(t), a, &mut slots).expect(t).expect("an ALU instruction").op)
        .collect();
    let mut rf = RegFile::new(slots.n32 as usize, slots.n64 as usize, slots.np as usize);
    for (slot, v) in [(2, M1), (3, 1), (slots.const32[&0], 0)] {
        (0..32).for_each(|l| rf.set32(slot, l, v, 0));
    }
    let expect = [(0, None), (0, Some(0)), (M1, Some(0)), (M1, Some(M1))];
    for (op, (lo, hi)) in code.iter().zip(expect) {
        op.exec(&mut rf, !0);
        assert_eq!(rf.r32[0].0[9], lo);
        if let Some(hi) = hi {
            assert_eq!(rf.r32[1].0[9], hi);
        }
    }
}

#[test]
fn shifts_clamp() {
    for (n, e) in [(0u32, 0x8000_0001u64), (31, 0x8000_0000), (32, 0), (33, 0), (M1, 0)] {
        assert_eq!(value("shl.b32", Ty::B32, &[r(0x8000_0001), r(n)]), e);
    }
    assert_eq!(value("shr.u32", Ty::U32, &[r(MIN), r(31)]), 1);
    assert_eq!(value("shr.u32", Ty::U32, &[r(MIN), r(32)]), 0);
    assert_eq!(value("shr.s32", Ty::S32, &[r(MIN), r(40)]), u64::from(M1));
    assert_eq!(value("shr.s16", Ty::S16, &[h(0x8000), r(20)]), 0xffff);
    assert_eq!(value("shl.b16", Ty::B16, &[h(0x8001), r(1)]), 2);
    assert_eq!(value("shr.u64", Ty::U64, &[w(1 << 63), r(63)]), 1);
    assert_eq!(value("shr.s64", Ty::S64, &[w(1 << 63), r(99)]), u64::MAX);
    assert_eq!(value("shf.l.wrap.b32", Ty::B32, &[r(0xaabb_ccdd), r(0x1122_3344), r(8)]), 0x2233_44aa);
    assert_eq!(value("shf.l.wrap.b32", Ty::B32, &[r(0xaabb_ccdd), r(0x1122_3344), r(32)]), 0x1122_3344);
    assert_eq!(value("shf.l.clamp.b32", Ty::B32, &[r(0xaabb_ccdd), r(0x1122_3344), r(40)]), 0xaabb_ccdd);
    assert_eq!(value("shf.r.clamp.b32", Ty::B32, &[r(0xaabb_ccdd), r(0x1122_3344), r(40)]), 0x1122_3344);
    assert_eq!(value("shf.r.wrap.b32", Ty::B32, &[r(0xaabb_ccdd), r(0x1122_3344), r(8)]), 0x44aa_bbcc);
}

#[test]
fn fields() {
    assert_eq!(value("bfe.u32", Ty::U32, &[r(0x1234_5678), r(8), r(12)]), 0x456);
    assert_eq!(value("bfe.u32", Ty::U32, &[r(0x1234_5678), r(24), r(200)]), 0x12);
    assert_eq!(value("bfe.u32", Ty::U32, &[r(M1), r(0), r(0)]), 0);
    assert_eq!(value("bfe.u32", Ty::U32, &[r(M1), r(32), r(4)]), 0);
    assert_eq!(value("bfe.u32", Ty::U32, &[r(M1), r(0x104), r(4)]), 0xf);
    assert_eq!(value("bfe.s32", Ty::S32, &[r(0x0000_0800), r(8), r(4)]), u64::from(-8i32 as u32));
    // Past the end, the sign is the register's top bit.
    assert_eq!(value("bfe.s32", Ty::S32, &[r(MIN), r(28), r(8)]), u64::from(-8i32 as u32));
    assert_eq!(value("bfe.s32", Ty::S32, &[r(MIN), r(40), r(4)]), u64::from(M1));
    assert_eq!(value("bfe.s32", Ty::S32, &[r(M1), r(40), r(0)]), 0);
    assert_eq!(value("bfe.s64", Ty::S64, &[w(0x8000_0000), r(28), r(4)]), (-8i64) as u64);
    assert_eq!(value("bfi.b32", Ty::B32, &[r(0xab), r(0x1111_1111), r(8), r(8)]), 0x1111_ab11);
    assert_eq!(value("bfi.b32", Ty::B32, &[r(0xab), r(0x1111_1111), r(28), r(8)]), 0xb111_1111);
    assert_eq!(value("bfi.b32", Ty::B32, &[r(0xab), r(0x1111_1111), r(8), r(0)]), 0x1111_1111);
    assert_eq!(value("bfi.b32", Ty::B32, &[r(0xab), r(0x1111_1111), r(32), r(8)]), 0x1111_1111);
    assert_eq!(value("bfi.b64", Ty::B64, &[w(0xab), w(0), r(40), r(64)]), 0xab << 40);
    assert_eq!(value("bfind.u32", Ty::U32, &[r(0)]), u64::from(M1));
    assert_eq!(value("bfind.u32", Ty::U32, &[r(0x00f0_0000)]), 23);
    assert_eq!(value("bfind.shiftamt.u32", Ty::U32, &[r(0x00f0_0000)]), 8);
    assert_eq!(value("bfind.s32", Ty::U32, &[r(M1)]), u64::from(M1));
    assert_eq!(value("bfind.s32", Ty::U32, &[r(0xffff_ff7f)]), 7);
    assert_eq!(value("bfind.s64", Ty::U32, &[w(1 << 40)]), 40);
    assert_eq!(value("clz.b64", Ty::U32, &[w(0)]), 64);
    assert_eq!(value("popc.b64", Ty::U32, &[w(u64::MAX)]), 64);
    assert_eq!(value("brev.b32", Ty::B32, &[r(1)]), u64::from(MIN));
    assert_eq!(value("fns.b32", Ty::B32, &[r(0b1010_1000), r(3), r(2)]), 5);
    assert_eq!(value("fns.b32", Ty::B32, &[r(0b1010_1000), r(6), r(-1i32 as u32)]), 5);
    assert_eq!(value("fns.b32", Ty::B32, &[r(0b1010_1000), r(6), r(0)]), u64::from(M1));
    assert_eq!(value("szext.clamp.s32", Ty::S32, &[r(0x80), r(8)]), u64::from(-128i32 as u32));
    assert_eq!(value("szext.wrap.u32", Ty::U32, &[r(0xabcd), r(40)]), 0xcd);
    assert_eq!(value("szext.clamp.u32", Ty::U32, &[r(0xabcd), r(40)]), 0xabcd);
    assert_eq!(value("bmsk.clamp.b32", Ty::B32, &[r(4), r(8)]), 0xff0);
    assert_eq!(value("bmsk.clamp.b32", Ty::B32, &[r(28), r(8)]), 0xf000_0000);
    assert_eq!(value("bmsk.clamp.b32", Ty::B32, &[r(32), r(8)]), 0);
    assert_eq!(value("bmsk.wrap.b32", Ty::B32, &[r(33), r(34)]), 6);
    assert_eq!(value("dp4a.s32.s32", Ty::S32, &[r(0xff02_0304), r(0x0101_0101), r(100)]), 108);
    assert_eq!(value("dp4a.u32.u32", Ty::U32, &[r(0xff02_0304), r(0x0101_0101), r(0)]), 264);
    assert_eq!(value("dp2a.hi.s32.u32", Ty::S32, &[r(0xffff_0002), r(0x0305_0000), r(0)]), 7);
}

#[test]
fn permutations() {
    let (a, b) = (r(0x3322_1100), r(0x7766_5584));
    assert_eq!(value("prmt.b32", Ty::B32, &[a, b, r(0x7531)]), 0x7755_3311);
    assert_eq!(value("prmt.b32", Ty::B32, &[a, b, r(0xc4c4)]), 0xff84_ff84);
    assert_eq!(value("prmt.b32", Ty::B32, &[a, b, r(0x8888)]), 0);
    let mode = |m: &str, c| value(&format!("prmt.b32.{m}"), Ty::B32, &[r(0x3322_1100), r(0x7766_5544), r(c)]);
    assert_eq!(mode("f4e", 1), 0x4433_2211);
    assert_eq!(mode("b4e", 1), 0x6677_0011);
    assert_eq!(mode("rc8", 2), 0x2222_2222);
    assert_eq!(mode("ecl", 1), 0x3322_1111);
    assert_eq!(mode("ecr", 1), 0x1111_1100);
    assert_eq!(mode("rc16", 3), 0x3322_3322);
}

#[test]
fn logic() {
    for (lut, e) in
        [(0xc0i64, 0b1100u64 & 0b1010), (0x96, 0b1100 ^ 0b1010 ^ 0b1001), (0xfe, 0b1111), (0xe8, 0b1000)]
    {
        let op = opcode("lop3.b32");
        let mut f = Function::default();
        (0..4).for_each(|_| f.regs.push((Arc::from("%r"), Ty::B32)));
        let mut slots = Slots::new(&f);
        let mut args: Vec<Operand> = (0..4).map(Operand::Reg).collect();
        args.push(Operand::Int(lut));
        let i = decode(&op, &args, &mut slots).expect("decodes").expect("ALU");
        let mut rf = RegFile::new(slots.n32 as usize, 0, 0);
        for (s, v) in [(1, 0b1100), (2, 0b1010), (3, 0b1001)] {
            (0..32).for_each(|l| rf.set32(s, l, v, 0));
        }
        i.op.exec(&mut rf, !0);
        assert_eq!(u64::from(rf.r32[0].0[3]) & 0xf, e, "lut {lut:#x}");
    }
    assert_eq!(value("not.b16", Ty::B16, &[h(1)]), 0xfffe);
    assert_eq!(value("cnot.b64", Ty::B64, &[w(0)]), 1);
    assert_eq!(value("xor.pred", Ty::Pred, &[p(true), p(false)]), 1);
    assert_eq!(value("not.pred", Ty::Pred, &[p(true)]), 0);
}

#[test]
fn moves_and_packing() {
    assert_eq!(value("mov.b64", Ty::B64, &[r(1), r(2)]), 2 << 32 | 1);
    assert_eq!(value("mov.b32", Ty::B32, &[h(0x1111), h(0x2222)]), 0x2222_1111);
    let parts = exec("mov.b64", &[Ty::B16; 4], &[w(0x4444_3333_2222_1111)]);
    assert_eq!(parts, [(0x1111, 0), (0x2222, 0), (0x3333, 0), (0x4444, 0)]);
    let halves = exec("mov.b64", &[Ty::B32; 2], &[undef(w(0x2222_2222_1111_1111), 0x30)]);
    assert_eq!(halves, [(0x1111_1111, 0), (0x2222_2222, 0x3)]);
    assert_eq!(undefined("mov.b64", Ty::B64, &[undef(r(1), 1), r(2)]), 0x01);
    assert_eq!(undefined("mov.b32", Ty::B32, &[h(1), undef(h(1), 2)]), 0x08);
    assert_eq!(exec("mov.b128", &[Ty::B64; 2], &[V(Ty::B128, 7, 0)])[0], (7, 0));
}

#[test]
fn comparisons() {
    let cmp = |t: &str, a, b| value(t, Ty::Pred, &[a, b]);
    assert_eq!(cmp("setp.lt.s32", r(M1), r(0)), 1);
    assert_eq!(cmp("setp.lt.u32", r(M1), r(0)), 0);
    assert_eq!(cmp("setp.hi.u32", r(M1), r(0)), 1);
    assert_eq!(cmp("setp.ge.s64", w(u64::MAX), w(0)), 0);
    assert_eq!(cmp("setp.lt.s16", h(0xffff), h(0)), 1);
    let (nan, one, two) = (r(0x7fc0_0000), r(1f32.to_bits()), r(2f32.to_bits()));
    for (op, unordered, less) in [
        ("eq", 0, 0),
        ("ne", 0, 1),
        ("lt", 0, 1),
        ("ge", 0, 0),
        ("equ", 1, 0),
        ("neu", 1, 1),
        ("ltu", 1, 1),
        ("geu", 1, 0),
        ("num", 0, 1),
        ("nan", 1, 0),
    ] {
        assert_eq!(cmp(&format!("setp.{op}.f32"), nan, one), unordered, "{op}");
        assert_eq!(cmp(&format!("setp.{op}.f32"), one, two), less, "{op}");
    }
    assert_eq!(cmp("setp.eq.ftz.f32", r(1), r(0x8000_0002)), 1);
    assert_eq!(cmp("setp.eq.f32", r(0), r(MIN)), 1);
    assert_eq!(cmp("setp.lt.f16", h(0xbc00), h(0x3c00)), 1);
    let both = exec("setp.lt.and.s32", &[Ty::Pred; 2], &[r(1), r(2), p(true)]);
    assert_eq!(both, [(1, 0), (0, 0)]);
    let both = exec("setp.lt.or.s32", &[Ty::Pred; 2], &[r(2), r(1), p(false)]);
    assert_eq!(both, [(0, 0), (1, 0)]);
    assert_eq!(value("set.gt.u32.s32", Ty::U32, &[r(1), r(M1)]), u64::from(M1));
    assert_eq!(value("set.gt.f32.s32", Ty::F32, &[r(1), r(M1)]), 0x3f80_0000);
    assert_eq!(value("selp.b64", Ty::B64, &[w(1), w(2), p(false)]), 2);
    assert_eq!(value("slct.b32.s32", Ty::B32, &[r(1), r(2), r(M1)]), 2);
    assert_eq!(value("slct.b32.f32", Ty::B32, &[r(1), r(2), r(MIN)]), 1);
    assert_eq!(value("slct.b32.f32", Ty::B32, &[r(1), r(2), nan]), 2);
}

#[test]
fn conversions_between_integers() {
    assert_eq!(value("cvt.s64.s32", Ty::S64, &[r(M1)]), u64::MAX);
    assert_eq!(value("cvt.u64.u32", Ty::U64, &[r(M1)]), u64::from(M1));
    assert_eq!(value("cvt.u32.u64", Ty::U32, &[w(0x1_0000_0002)]), 2);
    assert_eq!(value("cvt.u16.u32", Ty::U16, &[r(0x0001_2345)]), 0x2345);
    assert_eq!(value("cvt.s32.s16", Ty::S32, &[h(0x8000)]), 0xffff_8000);
    assert_eq!(value("cvt.s32.s8", Ty::S32, &[r(0x1280)]), 0xffff_ff80);
    assert_eq!(value("cvt.s16.s8", Ty::S16, &[h(0x0080)]), 0xff80);
    // A narrow signed result is extended to the register: 16 bits here.
    assert_eq!(value("cvt.s8.s32", Ty::S16, &[r(0x1280)]), 0xff80);
    assert_eq!(value("cvt.u8.s32", Ty::U16, &[r(0x1280)]), 0x80);
    assert_eq!(value("cvt.sat.u8.s32", Ty::U16, &[r(M1)]), 0);
    assert_eq!(value("cvt.sat.s16.s32", Ty::S16, &[r(0x7fff_ffff)]), 0x7fff);
    assert_eq!(value("cvt.pack.sat.u8.s32.b32", Ty::B32, &[r(300), r(M1), r(0x1234)]), 0x1234_ff00);
    assert_eq!(value("cvt.pack.sat.s16.s32", Ty::B32, &[r(M1), r(0x0001_0000)]), 0xffff_7fff);
    assert_eq!(undefined("cvt.u64.u32", Ty::U64, &[undef(r(1), 0x8)]), 0x08);
    assert_eq!(undefined("cvt.s64.s32", Ty::S64, &[undef(r(1), 0x8)]), 0xf8);
    assert_eq!(undefined("cvt.u16.u32", Ty::U16, &[undef(r(1), 0xc)]), 0);
}

#[test]
fn conversions_with_floats() {
    assert_eq!(value("cvt.rni.s32.f32", Ty::S32, &[r(2.5f32.to_bits())]), 2);
    assert_eq!(value("cvt.rzi.u32.f32", Ty::U32, &[r((-3f32).to_bits())]), 0);
    assert_eq!(value("cvt.rzi.s64.f32", Ty::S64, &[r((-3.7f32).to_bits())]), (-3i64) as u64);
    assert_eq!(value("cvt.rn.f32.s32", Ty::F32, &[r(16_777_217)]), u64::from(16_777_216f32.to_bits()));
    assert_eq!(value("cvt.rp.f32.s32", Ty::F32, &[r(16_777_217)]), u64::from(16_777_218f32.to_bits()));
    assert_eq!(value("cvt.f64.f32", Ty::F64, &[r(0.5f32.to_bits())]), 0.5f64.to_bits());
    assert_eq!(value("cvt.rn.f32.f64", Ty::F32, &[w(0.1f64.to_bits())]), u64::from(0.1f32.to_bits()));
    assert_eq!(value("cvt.f32.bf16", Ty::F32, &[h(0x3fc0)]), u64::from(1.5f32.to_bits()));
    assert_eq!(value("cvt.f32.f16", Ty::F32, &[h(0x3e00)]), u64::from(1.5f32.to_bits()));
    assert_eq!(value("cvt.sat.f32.f32", Ty::F32, &[r(1.5f32.to_bits())]), u64::from(1f32.to_bits()));
    assert_eq!(value("cvt.rn.bf16x2.f32", Ty::B32, &[r(1.5f32.to_bits()), r(2f32.to_bits())]), 0x3fc0_4000);
    assert_eq!(value("cvt.rn.f16.s32", Ty::F16, &[r(3)]), 0x4200);
}

#[test]
fn packed_and_mixed_arithmetic() {
    let pair = |lo: f32, hi: f32| w(u64::from(hi.to_bits()) << 32 | u64::from(lo.to_bits()));
    assert_eq!(value("add.rn.f32x2", Ty::B64, &[pair(1., 2.), pair(3., 4.)]), pair(4., 6.).1);
    assert_eq!(value("fma.rn.f32x2", Ty::B64, &[pair(2., 3.), pair(3., 4.), pair(1., 1.)]), pair(7., 13.).1);
    assert_eq!(value("sub.f32x2", Ty::B64, &[pair(2., 3.), pair(3., 5.)]), pair(-1., -2.).1);
    assert_eq!(undefined("add.f32x2", Ty::B64, &[undef(pair(1., 2.), 0x10), pair(3., 4.)]), 0xf0);
    let (a, b, c) = (h(0x3fc0), h(0x4000), r(1f32.to_bits()));
    assert_eq!(value("fma.rn.f32.bf16", Ty::F32, &[a, b, c]), u64::from(4f32.to_bits()));
    assert_eq!(
        value("copysign.f32", Ty::F32, &[r((-1f32).to_bits()), r(2f32.to_bits())]),
        u64::from((-2f32).to_bits())
    );
    assert_eq!(value("testp.subnormal.f32", Ty::Pred, &[r(1)]), 1);
    assert_eq!(value("div.rn.f64", Ty::F64, &[w(1f64.to_bits()), w(3f64.to_bits())]), (1f64 / 3.).to_bits());
    let two = value("rcp.approx.ftz.f64", Ty::F64, &[w(0.5f64.to_bits())]);
    assert_eq!(two, 2f64.to_bits());
}

#[test]
fn definedness() {
    assert_eq!(undefined("add.s32", Ty::S32, &[undef(r(1), 1), r(2)]), 0x0f);
    assert_eq!(undefined("add.s64", Ty::S64, &[undef(w(1), 1), w(2)]), 0xff);
    assert_eq!(undefined("xor.b32", Ty::B32, &[undef(r(1), 2), undef(r(1), 4)]), 6);
    assert_eq!(undefined("and.b32", Ty::B32, &[undef(r(0), 0xf), r(0x00ff_0001)]), 0b0101);
    assert_eq!(undefined("or.b32", Ty::B32, &[undef(r(0), 0xf), r(0x00ff_0001)]), 0b1011);
    assert_eq!(undefined("shl.b32", Ty::B32, &[undef(r(0), 1), r(16)]), 0b0100);
    assert_eq!(undefined("shl.b32", Ty::B32, &[undef(r(0), 1), r(32)]), 0);
    assert_eq!(undefined("shl.b32", Ty::B32, &[undef(r(0), 1), r(3)]), 0xf);
    assert_eq!(undefined("shr.u64", Ty::U64, &[undef(w(0), 0x10), r(32)]), 1);
    assert_eq!(undefined("shr.s32", Ty::S32, &[undef(r(0), 8), r(16)]), 0b1110);
    assert_eq!(undefined("prmt.b32", Ty::B32, &[undef(r(0), 2), r(0), r(0x1040)]), 0b1000);
    assert_eq!(undefined("selp.b32", Ty::B32, &[undef(r(0), 2), r(0), p(true)]), 2);
    assert_eq!(undefined("selp.b32", Ty::B32, &[undef(r(0), 2), r(0), p(false)]), 0);
    assert_eq!(undefined("selp.b32", Ty::B32, &[r(0), r(0), undef(p(false), 1)]), 0xf);
    assert_eq!(undefined("bfe.u32", Ty::U32, &[undef(r(0), 1), r(8), r(8)]), 0);
    assert_eq!(undefined("bfe.u32", Ty::U32, &[undef(r(0), 2), r(8), r(8)]), 1);
    assert_eq!(undefined("bfi.b32", Ty::B32, &[r(0), undef(r(0), 0xf), r(8), r(16)]), 0b1001);
    assert_eq!(undefined("and.pred", Ty::Pred, &[undef(p(true), 1), p(false)]), 0);
    assert_eq!(undefined("and.pred", Ty::Pred, &[undef(p(true), 1), p(true)]), 1);
    assert_eq!(undefined("or.pred", Ty::Pred, &[undef(p(true), 1), p(true)]), 0);
    assert_eq!(undefined("setp.eq.b32", Ty::Pred, &[undef(r(1), 1), r(2)]), 1);
    assert_eq!(exec("setp.eq.and.b32", &[Ty::Pred; 2], &[undef(r(1), 1), r(2), p(false)]), [(0, 0), (0, 0)]);
    assert_eq!(undefined("mul.rn.f32", Ty::F32, &[undef(r(1), 1), r(2)]), 0xf);
    assert_eq!(undefined("add.f16x2", Ty::B32, &[undef(r(1), 1), r(2)]), 0x3);
    assert_eq!(undefined("cvt.rn.satfinite.e4m3x2.f32", Ty::B16, &[undef(r(1), 1), r(2)]), 0x2);
}

/// Register-only opcodes met in kernels that other people's compilers made for sm_90a and sm_100a.
const FIELD: &str = include_str!("field.txt");

#[test]
fn opcodes_of_the_field_are_in_the_table() {
    let known: std::collections::HashSet<String> = table::ROWS.iter().flat_map(|r| r.opcodes()).collect();
    let missing: Vec<&str> = FIELD.lines().filter(|o| !known.contains(*o)).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    assert_eq!(FIELD.lines().count(), 204);
}
