//! Loops over lanes for the widest vectors of the machine they run on.
//!
//! The loops are plain code that the compiler vectorises. [`wide`] has it compile them for AVX-512, for AVX2 with
//! FMA, and for the baseline, and picks at run time. What it would not find by itself is in [`Wide`].

#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};

use super::Lanes;

/// The vectors that a loop under [`wide`] is compiled for.
#[derive(Clone, Copy)]
pub(crate) struct Wide {
    /// `f32::mul_add` is one instruction.
    pub fused: bool,
    #[cfg(target_arch = "x86_64")]
    v3: Option<V3>,
    #[cfg(target_arch = "x86_64")]
    v4: Option<V4>,
}

/// A function with the proof that the machine has the vectors it is compiled for.
#[cfg(target_arch = "x86_64")]
struct On<F, V>(F, V);

#[cfg(target_arch = "x86_64")]
impl<R, F: FnOnce(Wide) -> R> pulp::NullaryFnOnce for On<F, V3> {
    type Output = R;
    #[inline(always)]
    fn call(self) -> R {
        (self.0)(Wide { fused: true, v3: Some(self.1), v4: None })
    }
}

#[cfg(target_arch = "x86_64")]
impl<R, F: FnOnce(Wide) -> R> pulp::NullaryFnOnce for On<F, V4> {
    type Output = R;
    #[inline(always)]
    fn call(self) -> R {
        (self.0)(Wide { fused: true, v3: None, v4: Some(self.1) })
    }
}

/// Runs `f` compiled for the widest vectors this machine has.
#[inline(always)]
pub(crate) fn wide<R>(f: impl FnOnce(Wide) -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(v4) = V4::try_new() {
            return v4.vectorize(On(f, v4));
        }
        if let Some(v3) = V3::try_new() {
            return v3.vectorize(On(f, v3));
        }
        f(Wide { fused: false, v3: None, v4: None })
    }
    #[cfg(not(target_arch = "x86_64"))]
    f(Wide { fused: cfg!(target_arch = "aarch64") })
}

impl Wide {
    /// `table[at[i] & 63]` for every lane. AVX-512 permutes the table in registers.
    #[inline(always)]
    pub fn lookup(self, table: &[u32; 64], at: &Lanes) -> Lanes {
        #[cfg(target_arch = "x86_64")]
        if let Some(v4) = self.v4 {
            return pulp::cast([permute(v4, table, &at[..16]), permute(v4, table, &at[16..])]);
        }
        let mut d = [0; 32];
        for i in 0..32 {
            d[i] = table[at[i] as usize & 63];
        }
        d
    }

    /// The sign bits of all lanes, lane 0 lowest.
    #[inline(always)]
    pub fn signs(self, x: &Lanes) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if let Some(v4) = self.v4 {
            let [low, high]: [[u32; 16]; 2] = pulp::cast(*x);
            let bits = |half| u32::from(v4.avx512dq._mm512_movepi32_mask(pulp::cast::<[u32; 16], _>(half)));
            return bits(low) | bits(high) << 16;
        } else if let Some(v3) = self.v3 {
            let quarters: [[u32; 8]; 4] = pulp::cast(*x);
            let bits = |i: usize| v3.avx._mm256_movemask_ps(pulp::cast(quarters[i])) as u32;
            return bits(0) | bits(1) << 8 | bits(2) << 16 | bits(3) << 24;
        }
        let mut d = 0;
        for l in 0..32 {
            d |= x[l] >> 31 << l;
        }
        d
    }
}

/// Sixteen lanes of [`Wide::lookup`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn permute(v4: V4, table: &[u32; 64], at: &[u32]) -> [u32; 16] {
    let f = v4.avx512f;
    let [a, b, c, d]: [[u32; 16]; 4] = pulp::cast(*table);
    let at = pulp::cast::<[u32; 16], _>(*at.first_chunk().expect("half of the lanes"));
    let low = f._mm512_permutex2var_epi32(pulp::cast(a), at, pulp::cast(b));
    let high = f._mm512_permutex2var_epi32(pulp::cast(c), at, pulp::cast(d));
    let upper = f._mm512_test_epi32_mask(at, f._mm512_set1_epi32(32));
    pulp::cast(f._mm512_mask_blend_epi32(upper, low, high))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The results of `f` for every kind of vectors that this machine has, the baseline first.
    pub(crate) fn every_width<R>(f: impl Fn(Wide) -> R) -> Vec<R> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut all = vec![f(Wide { fused: false, v3: None, v4: None })];
            all.extend(V3::try_new().map(|v| v.vectorize(On(&f, v))));
            all.extend(V4::try_new().map(|v| v.vectorize(On(&f, v))));
            all
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![f(Wide { fused: false }), f(Wide { fused: true })]
    }

    #[test]
    fn lookup_and_signs_are_what_they_say() {
        let table: [u32; 64] = std::array::from_fn(|i| (i as u32).wrapping_mul(0x9e37_79b9));
        for round in 0..64u32 {
            let x: Lanes = std::array::from_fn(|l| (l as u32 * 7 + round).wrapping_mul(0x8088_0405));
            let found: Lanes = x.map(|at| table[at as usize % 64]);
            let signs = (0..32).map(|l| u32::from((x[l] as i32) < 0) << l).sum::<u32>();
            for got in every_width(|w| (w.lookup(&table, &x), w.signs(&x))) {
                assert_eq!(got, (found, signs));
            }
        }
    }
}
