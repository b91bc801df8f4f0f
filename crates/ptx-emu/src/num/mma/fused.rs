//! One element of D, by integers: the model as it is stated, for the cases the vector code leaves out.

use super::super::exact::{self, Exact, Layout};
use super::super::{NAN16, NAN32, Round};
use super::{Acc, Format, Op};

/// Exponent the unit gives to terms that are zero.
const ZERO_EXP: i32 = -133;

/// A term or factor: (−1)^neg · sig · 2^(exp − frac), or not a finite number.
#[derive(Clone, Copy)]
struct Term {
    neg: bool,
    sig: u64,
    frac: u32,
    exp: i32,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Finite,
    Infinite,
    Nan,
}

fn decode(fmt: Format, raw: u32, negate: bool) -> Term {
    let f = fmt.fields();
    let mag = f.magnitude(raw);
    let kind = match mag {
        m if m < f.special => Kind::Finite,
        m if m == f.special && f.infinity => Kind::Infinite,
        _ => Kind::Nan,
    };
    let (field, fraction) = ((mag >> f.man) as i32, mag & ((1 << f.man) - 1));
    let sig = if field == 0 { fraction } else { fraction | 1 << f.man };
    Term {
        neg: (raw >> f.sign & 1 == 1) ^ negate,
        sig: (sig >> f.unused).into(),
        frac: f.man - f.unused,
        exp: field.max(1) - f.bias,
        kind,
    }
}

fn accumulator(acc: Acc, raw: u32) -> Term {
    let l = match acc {
        Acc::F32 => exact::F32,
        Acc::F16 => exact::F16,
    };
    let mag = u64::from(raw) & (l.sign() - 1);
    let kind = match mag {
        m if m < l.inf() => Kind::Finite,
        m if m == l.inf() => Kind::Infinite,
        _ => Kind::Nan,
    };
    let (field, fraction) = ((mag >> l.man) as i32, mag & ((1 << l.man) - 1));
    let sig = if field == 0 { fraction } else { fraction | 1 << l.man };
    Term { neg: u64::from(raw) & l.sign() != 0, sig, frac: l.man, exp: field.max(1) - l.bias(), kind }
}

fn product(a: Term, b: Term) -> Term {
    let zero = |t: Term| t.kind == Kind::Finite && t.sig == 0;
    let kind = match (a.kind, b.kind) {
        (Kind::Nan, _) | (_, Kind::Nan) => Kind::Nan,
        (Kind::Infinite, _) | (_, Kind::Infinite) if zero(a) || zero(b) => Kind::Nan,
        (Kind::Infinite, _) | (_, Kind::Infinite) => Kind::Infinite,
        _ => Kind::Finite,
    };
    Term { neg: a.neg ^ b.neg, sig: a.sig * b.sig, frac: a.frac + b.frac, exp: a.exp + b.exp, kind }
}

/// The element of D for one row of A and one row of B.
pub(super) fn element(op: &Op, acc: Acc, a: &[u32], b: &[u32], c: u32) -> u32 {
    let n = op.model.n;
    let (nan, inf, sign) = match acc {
        Acc::F32 => (NAN32, 0x7f80_0000, 0x8000_0000),
        Acc::F16 => (NAN16.into(), 0x7c00, 0x8000),
    };
    let terms = || {
        let products = a
            .iter()
            .zip(b)
            .map(|(&x, &y)| product(decode(op.a_fmt, x, op.negate_a), decode(op.b_fmt, y, op.negate_b)));
        products.chain([accumulator(acc, c)])
    };
    let any = |kind: Kind, neg: bool| terms().any(|t| t.kind == kind && (t.neg == neg || kind == Kind::Nan));
    let (plus, minus) = (any(Kind::Infinite, false), any(Kind::Infinite, true));
    if any(Kind::Nan, false) || plus && minus {
        return nan;
    }
    if plus || minus {
        return inf | if minus { sign } else { 0 };
    }
    let exponent = |t: &Term| if t.sig == 0 { ZERO_EXP } else { t.exp };
    let emax = terms().map(|t| exponent(&t)).max().unwrap_or(ZERO_EXP);
    let sum: i64 = terms()
        .map(|t| {
            let drop = emax - exponent(&t) + t.frac as i32 - n as i32;
            let v = if drop >= 0 { t.sig >> drop.min(63) } else { t.sig << -drop } as i64;
            if t.neg { -v } else { v }
        })
        .sum();
    if sum == 0 {
        return 0;
    }
    let value =
        Exact { neg: sum < 0, sig: u128::from(sum.unsigned_abs()), exp: emax - n as i32, sticky: false };
    let bits = match acc {
        Acc::F32 if value.top() > 127 => inf | if sum < 0 { sign } else { 0 },
        Acc::F32 => {
            let l = Layout { exp: 8, man: op.model.out_bits };
            (value.round(l, Round::Rz, false) << (23 - op.model.out_bits)) as u32
        }
        Acc::F16 => value.round(exact::F16, Round::Rn, false) as u32,
    };
    // A result that rounds or truncates to zero has no sign.
    if bits == sign { 0 } else { bits }
}
