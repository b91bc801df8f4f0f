//! Warp instructions a second of the register-only instructions, one line each, and of the mix that an
//! attention kernel's softmax runs.

use ptx_emu::isa::alu::{self, AluOp};
use ptx_emu::isa::operands::Slots;
use ptx_emu::isa::regs::RegFile;
use ptx_emu::syntax::ast::{Function, Opcode, Operand, Ty};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// One instruction on its operands' register files: `r` 32-bit, `w` 64-bit, `p` predicate, `{rr}` a vector.
fn decode(slots: &mut Slots, text: &str, operands: &str, n: u32) -> AluOp {
    let mut parts = text.split('.').map(str::to_string);
    let op = Opcode { text: text.into(), mnemonic: parts.next().unwrap_or_default(), mods: parts.collect() };
    let mut next = n;
    let mut reg = |c: char| {
        next += 3;
        Operand::Reg(match c {
            'r' => next % 16,
            'w' => 16 + next % 16,
            _ => 32 + next % 4,
        })
    };
    let mut args = Vec::new();
    let mut chars = operands.chars();
    while let Some(c) = chars.next() {
        args.push(match c {
            '{' => Operand::Vector(chars.by_ref().take_while(|c| *c != '}').map(&mut reg).collect()),
            c => reg(c),
        });
    }
    alu::decode(&op, &args, slots).expect("decodes").expect("an ALU instruction").op
}

/// Best of many short windows, so that a busy machine does not blur the figure.
fn time(name: &str, ops: &[AluOp], rf: &mut RegFile) {
    const WINDOWS: usize = 60;
    let mut rounds = 1;
    let mut best = f64::INFINITY;
    let mut window = 0;
    while window < WINDOWS {
        let t = Instant::now();
        for _ in 0..rounds {
            for op in ops {
                op.exec(black_box(rf), !0);
            }
        }
        let s = t.elapsed().as_secs_f64();
        if s < 0.001 {
            rounds *= 2;
            continue;
        }
        best = best.min(s / (rounds * ops.len()) as f64);
        window += 1;
    }
    println!("{name:<28} {:8.1} M warp-instr/s", 1e-6 / best);
}

fn main() {
    let mut f = Function::default();
    for (n, ty) in [(16, Ty::B32), (16, Ty::B64), (4, Ty::Pred)] {
        f.regs.extend((0..n).map(|_| (Arc::from("%x"), ty)));
    }
    let mut slots = Slots::new(&f);
    // The row-sum and exponent loop of a softmax: scale, exponentiate, accumulate, convert, move.
    let mix = [
        ("fma.rn.ftz.f32", "rrrr"),
        ("fma.rn.ftz.f32", "rrrr"),
        ("fma.rn.f32x2", "wwww"),
        ("ex2.approx.ftz.f32", "rr"),
        ("ex2.approx.ftz.f32", "rr"),
        ("max.f32", "rrr"),
        ("max.f32", "rrr"),
        ("add.f32x2", "www"),
        ("add.f32", "rrr"),
        ("cvt.rn.bf16x2.f32", "rrr"),
        ("mov.b64", "{rr}w"),
        ("mov.b64", "w{rr}"),
        ("mov.b32", "rr"),
        ("add.s32", "rrr"),
        ("selp.f32", "rrrp"),
        ("setp.lt.s32", "prr"),
    ];
    let others = [
        ("mul.f32", "rrr"),
        ("mul.ftz.f32", "rrr"),
        ("shl.b32", "rrr"),
        ("and.b32", "rrr"),
        ("mad.lo.s32", "rrrr"),
        ("add.s64", "www"),
        ("setp.eq.b32", "prr"),
        ("and.pred", "ppp"),
        ("tanh.approx.f32", "rr"),
        ("lg2.approx.ftz.f32", "rr"),
        ("rcp.approx.ftz.f32", "rr"),
        ("div.full.f32", "rrr"),
        ("add.rm.f32x2", "www"),
        ("fma.rn.bf16x2", "rrrr"),
        ("cvt.u64.u32", "wr"),
        ("prmt.b32", "rrrr"),
    ];
    let mut all = Vec::new();
    let mut rf = RegFile::new(64, 64, 16);
    let fill = |rf: &mut RegFile| {
        for l in 0..32 {
            for s in 0..16 {
                let x = (s as f32 - 8.0) * 0.37 + l as f32 * 0.11;
                rf.set32(s, l, x.to_bits(), 0);
                rf.set64(s, l, u64::from(x.to_bits()) << 32 | u64::from((x * 0.5).to_bits()), 0);
            }
            (0..4).for_each(|s| rf.setp(s, l, (l as u32 + s).is_multiple_of(3), false));
        }
    };
    let mut seen = Vec::new();
    for (n, (text, operands)) in mix.iter().chain(&others).enumerate() {
        let op = decode(&mut slots, text, operands, n as u32);
        fill(&mut rf);
        if n < mix.len() {
            all.push(op);
        }
        if seen.contains(&(text, operands)) {
            continue;
        }
        seen.push((text, operands));
        if std::env::args().nth(1).is_some_and(|only| !format!("{text} {operands}").starts_with(&only)) {
            continue;
        }
        time(&format!("{text} {operands}"), &[op], &mut rf);
    }
    fill(&mut rf);
    time("softmax mix", &all, &mut rf);
}
