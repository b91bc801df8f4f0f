//! The few vector operations the kernel needs, for AVX2 and for a baseline of four lanes.

use pulp::cast;

/// A vector instruction set.
pub(super) trait Vector: Copy {
    /// f32s.
    type F: Copy;
    /// i32s.
    type I: Copy;
    /// Lanes.
    const WIDTH: usize;
    /// The first `WIDTH` elements.
    fn load_f(self, x: &[f32]) -> Self::F;
    fn load_i(self, x: &[i32]) -> Self::I;
    fn store_i(self, v: Self::I, to: &mut [i32]);
    fn splat_f(self, x: f32) -> Self::F;
    fn splat_i(self, x: i32) -> Self::I;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn add(self, a: Self::I, b: Self::I) -> Self::I;
    fn max(self, a: Self::I, b: Self::I) -> Self::I;
    /// Toward zero; anything for values that do not fit.
    fn truncate(self, x: Self::F) -> Self::I;
    /// Arithmetic shift right by 16.
    fn high(self, x: Self::I) -> Self::I;
    /// The low 16 bits.
    fn low(self, x: Self::I) -> Self::I;
    /// 2^(n − e), with e clamped to ±limit.
    fn power(self, n: Self::I, e: Self::I, limit: i32) -> Self::F;
}

/// AVX2, eight lanes.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2(pub pulp::x86::V3);

#[cfg(target_arch = "x86_64")]
impl Vector for Avx2 {
    type F = core::arch::x86_64::__m256;
    type I = core::arch::x86_64::__m256i;
    const WIDTH: usize = 8;
    #[inline(always)]
    fn load_f(self, x: &[f32]) -> Self::F {
        cast::<[f32; 8], _>(*x.first_chunk().expect("a full vector"))
    }
    #[inline(always)]
    fn load_i(self, x: &[i32]) -> Self::I {
        cast::<[i32; 8], _>(*x.first_chunk().expect("a full vector"))
    }
    #[inline(always)]
    fn store_i(self, v: Self::I, to: &mut [i32]) {
        *to.first_chunk_mut().expect("a full vector") = cast::<_, [i32; 8]>(v);
    }
    #[inline(always)]
    fn splat_f(self, x: f32) -> Self::F {
        self.0.avx._mm256_set1_ps(x)
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        self.0.avx._mm256_set1_epi32(x)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        self.0.avx._mm256_mul_ps(a, b)
    }
    #[inline(always)]
    fn add(self, a: Self::I, b: Self::I) -> Self::I {
        self.0.avx2._mm256_add_epi32(a, b)
    }
    #[inline(always)]
    fn max(self, a: Self::I, b: Self::I) -> Self::I {
        self.0.avx2._mm256_max_epi32(a, b)
    }
    #[inline(always)]
    fn truncate(self, x: Self::F) -> Self::I {
        self.0.avx._mm256_cvttps_epi32(x)
    }
    #[inline(always)]
    fn high(self, x: Self::I) -> Self::I {
        self.0.avx2._mm256_srai_epi32::<16>(x)
    }
    #[inline(always)]
    fn low(self, x: Self::I) -> Self::I {
        self.0.avx2._mm256_and_si256(x, self.splat_i(0xffff))
    }
    #[inline(always)]
    fn power(self, n: Self::I, e: Self::I, limit: i32) -> Self::F {
        let s = self.0.avx2;
        let e = s._mm256_min_epi32(self.max(e, self.splat_i(-limit)), self.splat_i(limit));
        let field = s._mm256_add_epi32(s._mm256_sub_epi32(n, e), self.splat_i(127));
        cast(s._mm256_slli_epi32::<23>(field))
    }
}

/// Four lanes of plain code, which every target can vectorise.
#[derive(Clone, Copy)]
pub(super) struct Base {
    #[cfg(target_arch = "x86_64")]
    sse2: pulp::core_arch::x86::Sse2,
}

impl Base {
    pub fn new() -> Base {
        Base {
            #[cfg(target_arch = "x86_64")]
            sse2: pulp::core_arch::x86::Sse2::try_new().expect("x86-64 has SSE2"),
        }
    }
}

impl Vector for Base {
    type F = [f32; 4];
    type I = [i32; 4];
    const WIDTH: usize = 4;
    #[inline(always)]
    fn load_f(self, x: &[f32]) -> Self::F {
        *x.first_chunk().expect("a full vector")
    }
    #[inline(always)]
    fn load_i(self, x: &[i32]) -> Self::I {
        *x.first_chunk().expect("a full vector")
    }
    #[inline(always)]
    fn store_i(self, v: Self::I, to: &mut [i32]) {
        *to.first_chunk_mut().expect("a full vector") = v;
    }
    #[inline(always)]
    fn splat_f(self, x: f32) -> Self::F {
        [x; 4]
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        [x; 4]
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn add(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn truncate(self, x: Self::F) -> Self::I {
        // A plain cast also clamps and handles NaN, which costs more than the rest of the kernel.
        #[cfg(target_arch = "x86_64")]
        return cast(self.sse2._mm_cvttps_epi32(cast(x)));
        #[cfg(not(target_arch = "x86_64"))]
        x.map(|v| v as i32)
    }
    #[inline(always)]
    fn high(self, x: Self::I) -> Self::I {
        x.map(|v| v >> 16)
    }
    #[inline(always)]
    fn low(self, x: Self::I) -> Self::I {
        x.map(|v| v & 0xffff)
    }
    #[inline(always)]
    fn power(self, n: Self::I, e: Self::I, limit: i32) -> Self::F {
        std::array::from_fn(|i| f32::from_bits(((n[i] - e[i].clamp(-limit, limit) + 127) as u32) << 23))
    }
}
