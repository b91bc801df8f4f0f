//! Random programs that are mostly valid: instructions of the shapes that real kernels use, on registers of the right
//! types, addresses that mostly exist, and branches.

use super::corpus::{Corpus, Shape};
use super::robust_util::Random;
use ptx_emu::syntax::ast::Ty;
use std::fmt::Write;

/// Declared types with the prefix of their registers.
const TYPES: [(Ty, &str, &str); 12] = [
    (Ty::Pred, ".pred", "%p"),
    (Ty::B8, ".b8", "%c"),
    (Ty::B16, ".b16", "%h"),
    (Ty::F16, ".f16", "%hf"),
    (Ty::B32, ".b32", "%r"),
    (Ty::F32, ".f32", "%f"),
    (Ty::S32, ".s32", "%s"),
    (Ty::U32, ".u32", "%u"),
    (Ty::B64, ".b64", "%d"),
    (Ty::U64, ".u64", "%e"),
    (Ty::F64, ".f64", "%fd"),
    (Ty::B128, ".b128", "%q"),
];
/// Registers of each type.
const REGS: usize = 8;

/// A 64-bit register that holds an address of the space, set before the first instruction.
const SHARED64: &str = "%a0";
const GLOBAL64: &str = "%a1";
const MAP64: &str = "%a2";
/// A 32-bit register that holds a shared-memory address.
const SHARED32: &str = "%b0";

fn register(ty: Ty, r: &mut Random) -> String {
    let same = |t: Ty| t == ty;
    let of_size = |t: Ty| t.bytes() == ty.bytes() && (t == Ty::Pred) == (ty == Ty::Pred);
    let exact = TYPES.iter().find(|t| same(t.0)).or_else(|| TYPES.iter().find(|t| of_size(t.0)));
    let (_, _, prefix) = match exact {
        // Now and then a register of another type.
        Some(t) if r.below(60) != 0 => t,
        _ => &TYPES[r.below(TYPES.len())],
    };
    format!("{prefix}{}", r.below(REGS))
}

fn integer(r: &mut Random) -> i64 {
    match r.below(8) {
        0..4 => r.below(9) as i64,
        4 => 1 << r.below(63),
        5 => (1 << r.below(32)) - 1,
        6 => -(r.below(300) as i64),
        _ => r.next() as i64,
    }
}

fn offset(r: &mut Random) -> i64 {
    match r.below(10) {
        0..7 => 16 * r.below(64) as i64,
        7 => r.below(4096) as i64,
        8 => -16,
        _ => integer(r),
    }
}

fn address(op: &str, ty: Option<Ty>, r: &mut Random) -> String {
    let off = offset(r);
    if op.starts_with("tcgen05.ld")
        || op.starts_with("tcgen05.st")
        || op.starts_with("tcgen05.mma") && r.below(2) == 0
    {
        return format!("[{}]", if r.below(3) == 0 { register(Ty::B32, r) } else { "%tm".into() });
    }
    let shared = op.contains("shared") || op.contains("mbar") || op.contains("matrix");
    let base = match r.below(16) {
        0 => register(ty.unwrap_or(Ty::B64), r),
        1 => GLOBAL64.into(),
        2 => SHARED64.into(),
        3 => "sm".into(),
        _ if op.contains(".param") => "p0".into(),
        _ if shared && ty != Some(Ty::B64) && r.below(2) == 0 => SHARED32.into(),
        _ if shared => {
            if r.below(2) == 0 {
                "sm".into()
            } else {
                SHARED32.into()
            }
        }
        _ if op.contains("global") => GLOBAL64.into(),
        _ if op.contains("tensor") => MAP64.into(),
        _ if ty == Some(Ty::B32) => SHARED32.into(),
        _ => {
            if r.below(2) == 0 {
                SHARED64.into()
            } else {
                GLOBAL64.into()
            }
        }
    };
    if off == 0 || r.below(4) == 0 { format!("[{base}]") } else { format!("[{base}+{off}]") }
}

fn operand(op: &str, s: &Shape, labels: usize, r: &mut Random) -> String {
    let list = |l: &[Shape], r: &mut Random| {
        let parts: Vec<String> = l.iter().map(|s| operand(op, s, labels, r)).collect();
        format!("{{{}}}", parts.join(", "))
    };
    match s {
        Shape::Reg(Ty::B64 | Ty::U64 | Ty::S64) if r.below(12) == 0 => {
            [SHARED64, GLOBAL64, MAP64][r.below(3)].into()
        }
        Shape::Reg(ty) => register(*ty, r),
        Shape::NotReg => format!("!{}", register(Ty::Pred, r)),
        Shape::Int => integer(r).to_string(),
        Shape::F32 => format!("0f{:08X}", r.next() as u32),
        Shape::F64 => format!("0d{:016X}", r.next()),
        Shape::Special(s) => s.clone(),
        Shape::Sink => "_".into(),
        Shape::Vector(l) => list(l, r),
        Shape::Pair(a, b) => format!("{}|{}", operand(op, a, labels, r), operand(op, b, labels, r)),
        Shape::Addr(ty) => address(op, *ty, r),
        Shape::Tensor(l) => format!("[{MAP64}, {}]", list(l, r)),
        Shape::Sym => ["sm", "gl", "dyn"][r.below(3)].into(),
        Shape::Label => format!("L{}", r.below(labels)),
    }
}

/// One instruction; now and then with a modifier of another one.
fn instruction(c: &Corpus, labels: usize, r: &mut Random) -> String {
    let (op, shapes) = &c.shapes[r.below(c.shapes.len())];
    let mut op = op.clone();
    if r.below(12) == 0 {
        let dots: Vec<usize> = op.match_indices('.').map(|(i, _)| i).collect();
        if let Some(&at) = dots.get(r.below(dots.len())) {
            let end = op[at + 1..].find('.').map_or(op.len(), |n| at + 1 + n);
            let other = format!(".{}", c.modifiers[r.below(c.modifiers.len())]);
            match r.below(3) {
                0 => op.replace_range(at..end, ""),
                1 => op.insert_str(at, &other),
                _ => op.replace_range(at..end, &other),
            }
        }
    }
    let args: Vec<String> = shapes.iter().map(|s| operand(&op, s, labels, r)).collect();
    let guard = match r.below(6) {
        0 => format!("@{} ", register(Ty::Pred, r)),
        1 if r.below(4) == 0 => format!("@!{} ", register(Ty::Pred, r)),
        _ => String::new(),
    };
    format!("  {guard}{op} {};\n", args.join(", "))
}

/// Writing to a String cannot fail.
fn push(text: &mut String, args: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(args);
}

/// A module with one kernel, `k(.param .u64 p0, .param .align 64 .b8 p1[128])`.
pub fn program(c: &Corpus, r: &mut Random) -> String {
    let mut t = String::new();
    let target = if r.below(4) == 0 { "sm_90a" } else { "sm_100a" };
    push(&mut t, format_args!(".version 8.7\n.target {target}\n.address_size 64\n"));
    t += ".global .align 128 .b8 gl[4096];\n.extern .shared .align 1024 .b8 dyn[];\n";
    t += ".visible .entry k(.param .u64 p0, .param .align 64 .b8 p1[128])\n{\n";
    t += "  .shared .align 1024 .b8 sm[16384];\n  .reg .b64 %a<3>;\n  .reg .b32 %b<1>, %tm;\n";
    for (_, ty, prefix) in TYPES {
        push(&mut t, format_args!("  .reg {ty} {prefix}<{REGS}>;\n"));
    }
    t += "  ld.param.u64 %a1, [p0];\n  mov.u32 %b0, sm;\n  cvt.u64.u32 %a0, %b0;\n  cvta.shared.u64 %a0, %a0;\n";
    t += "  mov.u64 %a2, p1;\n  cvta.param.u64 %a2, %a2;\n  mov.b32 %tm, 0;\n";
    // Most programs start with defined registers; what they hold is small, or the thread's number, or anything.
    if r.below(8) != 0 {
        for (ty, name, prefix) in TYPES {
            for i in 0..REGS {
                let v = integer(r);
                match ty {
                    Ty::Pred => push(&mut t, format_args!("  setp.lt.s32 {prefix}{i}, {}, 3;\n", v as i32)),
                    Ty::F32 => push(&mut t, format_args!("  mov.f32 {prefix}{i}, 0f{:08X};\n", v as u32)),
                    Ty::F64 => push(&mut t, format_args!("  mov.f64 {prefix}{i}, 0d{v:016X};\n")),
                    Ty::B32 if i == 0 => t += "  mov.u32 %r0, %tid.x;\n",
                    Ty::B32 if i == 1 => t += "  mov.b32 %r1, %b0;\n",
                    Ty::B64 if i == 0 => t += "  mov.b64 %d0, %a1;\n",
                    Ty::B8 | Ty::F16 | Ty::B128 => {}
                    Ty::B16 => push(&mut t, format_args!("  mov.b16 {prefix}{i}, {};\n", v as i16)),
                    _ => push(
                        &mut t,
                        format_args!(
                            "  mov{name} {prefix}{i}, {};\n",
                            if ty.bytes() == 4 { i64::from(v as i32) } else { v }
                        ),
                    ),
                }
            }
        }
    }
    if r.below(3) == 0 {
        t += "  mbarrier.init.shared::cta.b64 [sm], 1;\n  fence.mbarrier_init.release.cluster;\n  bar.sync 0;\n";
    }
    if r.below(3) == 0 && target == "sm_100a" {
        t += "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [sm+16], 64;\n  bar.sync 0;\n  ld.shared.b32 %tm, [sm+16];\n";
    }
    let (n, labels) = (1 + r.below(24), 1 + r.below(4));
    let at: Vec<usize> = (0..labels).map(|_| r.below(n)).collect();
    for i in 0..n {
        for (l, _) in at.iter().enumerate().filter(|(_, p)| **p == i) {
            push(&mut t, format_args!("L{l}:\n"));
        }
        t += &instruction(c, labels, r);
    }
    t += "  ret;\n}\n";
    t
}
