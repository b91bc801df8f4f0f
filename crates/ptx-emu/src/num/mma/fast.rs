//! The vector path: rows of D, several columns at a time.
//!
//! Factors are decoded once into f32 values and integer exponents. For each element, first the largest exponent
//! is found over k, then each product, exact in f32 (at most 22 significand bits), is scaled by
//! 2^(n − emax), truncated to an integer below 2^27 by the conversion instruction, and added. Eight products
//! fit a 32-bit sum; such sums are kept as two 16-bit halves and joined in f64.
//!
//! This is exact while emax lies in [−100, 100] and everything is finite. Zeros get a very small exponent and
//! NaN and infinity a very large one, so that emax alone tells which elements need [`super::fused`].

use super::super::lanes::f16_rn;
use super::super::wide::wide;
use super::vector::{self, Vector};
use super::{Acc, Format, Op, f16_as_f32, fused};

const ZERO: i32 = -1000;
const SPECIAL: i32 = 2000;
/// Range of emax within which no f32 operation of the kernel over- or underflows.
const LIMIT: i32 = 100;
/// Below this only zeros contribute.
const ALL_ZERO: i32 = -500;
/// Products added in one 32-bit integer: 8·2^27 plus C's 2^26 stay below 2^31.
const CHUNK: usize = 8;
/// Most fraction bits for which the above holds.
const MAX_N: u32 = 25;
/// Columns are padded to a multiple of this.
const PAD: usize = 8;

/// Working memory, kept between calls so that they do not allocate.
#[derive(Debug, Default, Clone)]
pub struct Scratch {
    a: Matrix,
    b: Matrix,
    /// B as decoded, before it is laid out with k outermost.
    b_rows: Matrix,
    row: Row,
}

/// Values and exponents of a matrix.
#[derive(Debug, Default, Clone)]
struct Matrix {
    value: Vec<f32>,
    exp: Vec<i32>,
}

/// One row of C and what becomes of it.
#[derive(Debug, Default, Clone)]
struct Row {
    c: Matrix,
    emax: Vec<i32>,
    /// The integer sum is high·2^16 + low.
    high: Vec<i32>,
    low: Vec<i32>,
}

impl Matrix {
    fn resize(&mut self, len: usize) {
        self.value.resize(len, 0.0);
        self.exp.resize(len, ZERO);
    }
}

pub(super) fn run(
    op: &Op,
    acc: Acc,
    a: &[u32],
    b: &[u32],
    c: Option<&[u32]>,
    d: &mut [u32],
    s: &mut Scratch,
) {
    let (m, n, k) = (op.m, op.n, op.k);
    let (a, b, d) = (&a[..m * k], &b[..n * k], &mut d[..m * n]);
    let c = c.map(|c| &c[..m * n]);
    if op.model.n > MAX_N {
        for i in 0..m * n {
            d[i] = slow(op, acc, a, b, c, i / n, i % n);
        }
        return;
    }
    wide(
        #[inline(always)]
        |_| prepare(op, a, b, s),
    );
    for i in 0..m {
        let c_row = c.map(|c| &c[i * n..][..n]);
        let d_row = &mut d[i * n..][..n];
        row_of_c(acc, c_row, &mut s.row, s.b.value.len() / k.max(1));
        sums(op, i, s);
        let redo = wide(
            #[inline(always)]
            |_| finish(op, acc, &s.row, d_row),
        );
        if redo {
            for j in 0..n {
                if needs_slow(s.row.emax[j]) {
                    d_row[j] = slow(op, acc, a, b, c, i, j);
                }
            }
        }
    }
}

fn slow(op: &Op, acc: Acc, a: &[u32], b: &[u32], c: Option<&[u32]>, i: usize, j: usize) -> u32 {
    let (x, y) = (&a[i * op.k..][..op.k], &b[j * op.k..][..op.k]);
    fused::element(op, acc, x, y, c.map_or(0, |c| c[i * op.n + j]))
}

/// Whether an element is outside what the kernel computes exactly.
#[inline(always)]
fn needs_slow(emax: i32) -> bool {
    (emax > LIMIT) | ((emax < -LIMIT) & (emax > ALL_ZERO))
}

/// Decodes A and B; B ends up with k outermost and its rows padded with zeros.
#[inline(always)]
fn prepare(op: &Op, a: &[u32], b: &[u32], s: &mut Scratch) {
    let (n, k) = (op.n, op.k);
    let width = n.next_multiple_of(PAD);
    s.a.resize(a.len());
    decode(op.a_fmt, a, op.negate_a, &mut s.a);
    s.b_rows.resize(b.len());
    decode(op.b_fmt, b, op.negate_b, &mut s.b_rows);
    s.b.resize(width * k);
    for p in 0..k {
        let (value, exp) = (&mut s.b.value[p * width..][..width], &mut s.b.exp[p * width..][..width]);
        for j in 0..n {
            value[j] = s.b_rows.value[j * k + p];
            exp[j] = s.b_rows.exp[j * k + p];
        }
        value[n..].fill(0.0);
        exp[n..].fill(ZERO);
    }
    s.row.emax.resize(width, 0);
    s.row.high.resize(width, 0);
    s.row.low.resize(width, 0);
}

/// Values and exponents of raw elements. Magnitudes are shifted to f32's exponent position and scaled by the
/// difference of the biases, which normalises subnormals on the way.
#[inline(always)]
fn decode(fmt: Format, raw: &[u32], negate: bool, out: &mut Matrix) {
    let f = fmt.fields();
    let rebias = f32::from_bits(((127 + 127 - f.bias) as u32) << 23);
    let flip = u32::from(negate);
    for ((&r, value), exp) in raw.iter().zip(&mut out.value).zip(&mut out.exp) {
        let mag = f.magnitude(r);
        let sign = ((r >> f.sign) ^ flip) << 31;
        let v = f32::from_bits(mag << (23 - f.man)) * rebias;
        *value = f32::from_bits(v.to_bits() | sign);
        let e = ((mag >> f.man) as i32).max(1) - f.bias;
        let e = if mag == 0 { ZERO } else { e };
        *exp = if mag >= f.special { SPECIAL } else { e };
    }
}

fn row_of_c(acc: Acc, c: Option<&[u32]>, row: &mut Row, width: usize) {
    row.c.resize(width);
    let Some(c) = c else {
        row.c.value.fill(0.0);
        row.c.exp.fill(ZERO);
        return;
    };
    wide(
        #[inline(always)]
        |_| match acc {
            Acc::F32 => {
                for ((&bits, value), exp) in c.iter().zip(&mut row.c.value).zip(&mut row.c.exp) {
                    let mag = bits & 0x7fff_ffff;
                    *value = f32::from_bits(bits);
                    *exp = if mag == 0 { ZERO } else { ((mag >> 23) as i32).max(1) - 127 };
                }
            }
            Acc::F16 => {
                for ((&bits, value), exp) in c.iter().zip(&mut row.c.value).zip(&mut row.c.exp) {
                    let mag = bits & 0x7fff;
                    *value = f32::from_bits(f16_as_f32(bits));
                    let e = ((mag >> 10) as i32).max(1) - 15;
                    let e = if mag == 0 { ZERO } else { e };
                    *exp = if mag >= 0x7c00 { SPECIAL } else { e };
                }
            }
        },
    );
    row.c.value[c.len()..].fill(0.0);
    row.c.exp[c.len()..].fill(ZERO);
}

/// Fills `emax`, `high` and `low` of one row.
fn sums(op: &Op, i: usize, s: &mut Scratch) {
    let k = op.k;
    let (value, exp) = (&s.a.value[i * k..][..k], &s.a.exp[i * k..][..k]);
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = pulp::x86::V3::try_new() {
        struct Call<'a>(pulp::x86::V3, u32, &'a [f32], &'a [i32], &'a Matrix, &'a mut Row);
        impl pulp::NullaryFnOnce for Call<'_> {
            type Output = ();
            #[inline(always)]
            fn call(self) {
                blocks(vector::Avx2(self.0), self.1, self.2, self.3, self.4, self.5);
            }
        }
        v3.vectorize(Call(v3, op.model.n, value, exp, &s.b, &mut s.row));
        return;
    }
    blocks(vector::Base::new(), op.model.n, value, exp, &s.b, &mut s.row);
}

#[inline(always)]
fn blocks<V: Vector>(v: V, n: u32, value: &[f32], exp: &[i32], b: &Matrix, row: &mut Row) {
    let width = row.emax.len();
    let mut at = 0;
    while at + 4 * V::WIDTH <= width {
        block::<V, 4>(v, n, value, exp, b, row, at);
        at += 4 * V::WIDTH;
    }
    while at + V::WIDTH <= width {
        block::<V, 1>(v, n, value, exp, b, row, at);
        at += V::WIDTH;
    }
}

/// U vectors of columns from `at` on.
#[inline(always)]
fn block<V: Vector, const U: usize>(
    v: V,
    n: u32,
    value: &[f32],
    exp: &[i32],
    b: &Matrix,
    row: &mut Row,
    at: usize,
) {
    let width = row.emax.len();
    let w = V::WIDTH;
    let columns = at..at + U * w;
    // Loops rather than `array::from_fn`: its closures would not be compiled for the vector instructions.
    let mut emax = [v.splat_i(0); U];
    let c_exp = &row.c.exp[columns.clone()];
    for u in 0..U {
        emax[u] = v.load_i(&c_exp[u * w..]);
    }
    for (&e, row) in exp.iter().zip(b.exp.chunks_exact(width)) {
        let (e, row) = (v.splat_i(e), &row[columns.clone()]);
        for u in 0..U {
            emax[u] = v.max(emax[u], v.add(e, v.load_i(&row[u * w..])));
        }
    }
    let mut scale = [v.splat_f(0.0); U];
    let mut acc = [v.splat_i(0); U];
    let c_value = &row.c.value[columns.clone()];
    for u in 0..U {
        scale[u] = v.power(v.splat_i(n as i32), emax[u], LIMIT);
        acc[u] = v.truncate(v.mul(v.load_f(&c_value[u * w..]), scale[u]));
    }
    let mut high = [v.splat_i(0); U];
    let mut low = [v.splat_i(0); U];
    for (values, rows) in value.chunks(CHUNK).zip(b.value.chunks(CHUNK * width)) {
        for (&x, row) in values.iter().zip(rows.chunks_exact(width)) {
            let (x, row) = (v.splat_f(x), &row[columns.clone()]);
            for u in 0..U {
                let product = v.mul(x, v.load_f(&row[u * w..]));
                acc[u] = v.add(acc[u], v.truncate(v.mul(product, scale[u])));
            }
        }
        for u in 0..U {
            high[u] = v.add(high[u], v.high(acc[u]));
            low[u] = v.add(low[u], v.low(acc[u]));
            acc[u] = v.splat_i(0);
        }
    }
    for u in 0..U {
        let to = at + u * w;
        v.store_i(emax[u], &mut row.emax[to..]);
        v.store_i(high[u], &mut row.high[to..]);
        v.store_i(low[u], &mut row.low[to..]);
    }
}

/// Joins the sums and rounds them; returns whether some element needs the slow path.
#[inline(always)]
fn finish(op: &Op, acc: Acc, row: &Row, d: &mut [u32]) -> bool {
    let n = op.model.n as i32;
    // Bits of an f64 below the result's last fraction bit.
    let cut = match acc {
        Acc::F32 => 52 - op.model.out_bits,
        Acc::F16 => 52 - 23,
    };
    let mask = u64::MAX << cut;
    let len = d.len();
    let (emax, high, low) = (&row.emax[..len], &row.high[..len], &row.low[..len]);
    let mut redo = false;
    for j in 0..len {
        redo |= needs_slow(emax[j]);
        let e = emax[j].clamp(-LIMIT, LIMIT) - n;
        let unit = f64::from_bits(((e + 1023) as u64) << 52);
        let sum = (f64::from(high[j]) * 65536.0 + f64::from(low[j])) * unit;
        let bits = sum.to_bits();
        d[j] = match acc {
            Acc::F32 => (f64::from_bits(bits & mask) as f32).to_bits(),
            Acc::F16 => {
                // Rounded to odd, so that the second rounding is the only one.
                let odd = u64::from(bits & !mask != 0) << cut;
                let r = f16_rn((f64::from_bits(bits & mask | odd) as f32).to_bits());
                if r == 0x8000 { 0 } else { r }
            }
        };
    }
    redo
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::mma::Model;

    const FORMATS: [Format; 8] = [
        Format::F16,
        Format::Bf16,
        Format::Tf32,
        Format::E4m3,
        Format::E5m2,
        Format::E2m1,
        Format::E2m3,
        Format::E3m2,
    ];

    /// The vector path equals the statement of the model for every pair of formats, both accumulators, both
    /// widths of the sum, odd shapes, flipped signs, and values from tame to arbitrary bits.
    #[test]
    fn vectors_follow_the_model() {
        let mut state = 3u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let mut scratch = Scratch::default();
        let shapes = [(3, 40, 16), (2, 7, 32), (1, 8, 8), (2, 33, 9)];
        for (trial, &a_fmt) in FORMATS.iter().cycle().take(64).enumerate() {
            let b_fmt = FORMATS[trial / 8];
            let (m, n, k) = shapes[trial % shapes.len()];
            let model = if trial % 3 == 0 { Model::WGMMA_FP8 } else { Model::TCGEN05 };
            let op = Op { model, a_fmt, b_fmt, m, n, k, negate_a: trial % 5 == 0, negate_b: trial % 7 == 0 };
            for acc in [Acc::F32, Acc::F16] {
                for tame in [false, true] {
                    let mut fill = |fmt: Format, len: usize| -> Vec<u32> {
                        let f = fmt.fields();
                        let one = (f.bias as u32) << f.man;
                        // Tame: magnitudes from 1/4 to 2, some zeros.
                        let near = |r: u32| one.wrapping_sub((r >> 8 & 1) << (f.man + u32::from(f.bias > 1)));
                        (0..len)
                            .map(|_| random())
                            .map(|r| match (tame, r & 7) {
                                (true, 0) => 0,
                                (true, _) => near(r) | r & ((1 << f.man) - 1) | (r >> 20 & 1) << f.sign,
                                (false, _) => r,
                            })
                            .collect()
                    };
                    let (a, b) = (fill(a_fmt, m * k), fill(b_fmt, n * k));
                    let c = match acc {
                        Acc::F32 => fill(Format::Tf32, m * n),
                        Acc::F16 => fill(Format::F16, m * n).iter().map(|x| x & 0xffff).collect(),
                    };
                    for c in [Some(&c[..]), None] {
                        let mut d = vec![0; m * n];
                        run(&op, acc, &a, &b, c, &mut d, &mut scratch);
                        for i in 0..m * n {
                            let want = slow(&op, acc, &a, &b, c, i / n, i % n);
                            assert_eq!(d[i], want, "{op:?} {acc:?} tame {tame} element {i}");
                        }
                    }
                }
            }
        }
    }
}
