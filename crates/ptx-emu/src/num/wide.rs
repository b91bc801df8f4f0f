//! Loops over lanes for the widest vectors of the machine they run on.
//!
//! The loops are plain code that the compiler vectorises. [`wide`] has it compile them for AVX-512, for AVX2 with
//! FMA, and for the baseline, and picks at run time. What it would not find by itself is in [`Wide`].

use super::Lanes;

/// The vectors that a loop under [`wide`] is compiled for.
#[derive(Clone, Copy)]
pub(crate) struct Wide {
    /// `f32::mul_add` is one instruction.
    pub fused: bool,
    #[cfg(target_arch = "x86_64")]
    v4: Option<pulp::x86::V4>,
}

/// Runs `f` compiled for the widest vectors this machine has.
#[inline(always)]
pub(crate) fn wide<R>(f: impl FnOnce(Wide) -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        struct Call<F>(F, Wide);
        impl<R, F: FnOnce(Wide) -> R> pulp::NullaryFnOnce for Call<F> {
            type Output = R;
            #[inline(always)]
            fn call(self) -> R {
                // Not `self.1`: said here, it is known when the loop is compiled.
                (self.0)(Wide { fused: true, v4: self.1.v4 })
            }
        }
        if let Some(v4) = pulp::x86::V4::try_new() {
            return v4.vectorize(Call(f, Wide { fused: true, v4: Some(v4) }));
        }
        if let Some(v3) = pulp::x86::V3::try_new() {
            return v3.vectorize(Call(f, Wide { fused: true, v4: None }));
        }
        f(Wide { fused: false, v4: None })
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
}

/// Sixteen lanes of [`Wide::lookup`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn permute(v4: pulp::x86::V4, table: &[u32; 64], at: &[u32]) -> [u32; 16] {
    let f = v4.avx512f;
    let [a, b, c, d]: [[u32; 16]; 4] = pulp::cast(*table);
    let at = pulp::cast::<[u32; 16], _>(*at.first_chunk().expect("half of the lanes"));
    let low = f._mm512_permutex2var_epi32(pulp::cast(a), at, pulp::cast(b));
    let high = f._mm512_permutex2var_epi32(pulp::cast(c), at, pulp::cast(d));
    let upper = f._mm512_test_epi32_mask(at, f._mm512_set1_epi32(32));
    pulp::cast(f._mm512_mask_blend_epi32(upper, low, high))
}
