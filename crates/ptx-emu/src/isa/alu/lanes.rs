//! Running one scalar function over the 32 lanes of a warp, with definedness.
//!
//! Macros turn a body into an [`AluFn`](super::AluFn). `lane_fn!` is for most of them: it erases the
//! body's types, and one loop for all instructions calls it lane by lane. `warp_fn!` is for what inner loops are
//! made of: a loop of its own over fixed-size arrays that the compiler vectorises for each kind of vectors
//! ([`wide`](crate::num::wide::wide)). It is several times as fast and costs a hundred times as much to compile.
//! There every lane is computed, masked or not: the operations are pure, so it costs nothing and keeps the loop free
//! of branches; only the store looks at the mask. Where a source is undefined, the erased body runs instead.
//! `batch_fn!` is for functions that are written for whole registers in the first place.
//!
//! In these loops, nothing that is not inlined may see the result under construction: a call elsewhere that takes
//! its address makes the compiler keep it in memory, and often not vectorise at all.

use super::AluOp;
use crate::isa::regs::{Class, LANES, RegFile};

/// Computes which bytes of a result are undefined from the sources' values and undefined bytes (bit i = byte i;
/// a predicate counts as one byte). Arguments: immediate, values, undefined bytes.
pub type Shadow = fn(u64, [u64; 4], [u8; 4]) -> u8;

/// Per-lane undefined bytes of a result.
pub type Undef = [u8; LANES];

/// A type that a lane of a register can be read and written as.
pub trait Lane: Copy {
    /// A register borrowed for reading.
    type Reg<'a>: Copy;
    /// A result under construction.
    type Out: Default;
    /// Register file it lives in.
    const CLASS: Class;
    /// Bytes of the register that a read looks at.
    const BYTES: u8;
    /// Borrows register `slot`.
    fn reg(rf: &RegFile, slot: u32) -> Self::Reg<'_>;
    /// Reads lane `l`.
    fn at(reg: Self::Reg<'_>, l: usize) -> Self;
    /// Lanes with undefined bytes.
    fn undef(rf: &RegFile, slot: u32) -> u32;
    /// The value of a lane's register bits, zero-extended.
    fn from_bits(v: u64) -> Self;
    /// The register bits of a value, zero-extended.
    fn to_bits(self) -> u64;
    /// Writes lane `l` of a result.
    fn put(out: &mut Self::Out, l: usize, v: Self);
    /// Stores the lanes of `mask` and marks them defined.
    fn store(rf: &mut RegFile, slot: u32, out: &Self::Out, mask: u32);
    /// Marks the undefined bytes of the lanes of `mask`.
    fn mark(rf: &mut RegFile, slot: u32, mask: u32, undef: &Undef);
}

macro_rules! lane32 {
    ($t:ty, $bytes:expr, |$x:ident| $from:expr, |$y:ident| $to:expr) => {
        impl Lane for $t {
            type Reg<'a> = &'a [u32; LANES];
            type Out = [u32; LANES];
            const CLASS: Class = Class::R32;
            const BYTES: u8 = $bytes;
            #[inline(always)]
            fn reg(rf: &RegFile, slot: u32) -> &[u32; LANES] {
                &rf.r32[slot as usize].0
            }
            #[inline(always)]
            fn at(reg: &[u32; LANES], l: usize) -> Self {
                let $x = reg[l];
                $from
            }
            #[inline(always)]
            fn undef(rf: &RegFile, slot: u32) -> u32 {
                rf.u32[slot as usize]
            }
            #[inline(always)]
            fn from_bits(v: u64) -> Self {
                let $x = v as u32;
                $from
            }
            #[inline(always)]
            fn to_bits(self) -> u64 {
                let $y = self;
                u64::from($to)
            }
            #[inline(always)]
            fn put(out: &mut [u32; LANES], l: usize, $y: Self) {
                out[l] = $to;
            }
            #[inline(always)]
            fn store(rf: &mut RegFile, slot: u32, out: &[u32; LANES], mask: u32) {
                store32(rf, slot, out, mask);
            }
            #[inline(always)]
            fn mark(rf: &mut RegFile, slot: u32, mask: u32, undef: &Undef) {
                mark(&mut rf.u32[slot as usize], &mut rf.b32[slot as usize], mask, undef, 0x0f);
            }
        }
    };
}

macro_rules! lane64 {
    ($t:ty, |$x:ident| $from:expr, |$y:ident| $to:expr) => {
        impl Lane for $t {
            type Reg<'a> = &'a [u64; LANES];
            type Out = [u64; LANES];
            const CLASS: Class = Class::R64;
            const BYTES: u8 = 0xff;
            #[inline(always)]
            fn reg(rf: &RegFile, slot: u32) -> &[u64; LANES] {
                &rf.r64[slot as usize].0
            }
            #[inline(always)]
            fn at(reg: &[u64; LANES], l: usize) -> Self {
                let $x = reg[l];
                $from
            }
            #[inline(always)]
            fn undef(rf: &RegFile, slot: u32) -> u32 {
                rf.u64[slot as usize]
            }
            #[inline(always)]
            fn from_bits($x: u64) -> Self {
                $from
            }
            #[inline(always)]
            fn to_bits(self) -> u64 {
                let $y = self;
                $to
            }
            #[inline(always)]
            fn put(out: &mut [u64; LANES], l: usize, $y: Self) {
                out[l] = $to;
            }
            #[inline(always)]
            fn store(rf: &mut RegFile, slot: u32, out: &[u64; LANES], mask: u32) {
                store64(rf, slot, out, mask);
            }
            #[inline(always)]
            fn mark(rf: &mut RegFile, slot: u32, mask: u32, undef: &Undef) {
                mark(&mut rf.u64[slot as usize], &mut rf.b64[slot as usize], mask, undef, 0xff);
            }
        }
    };
}

lane32!(u32, 0x0f, |x| x, |y| y);
lane32!(i32, 0x0f, |x| x as i32, |y| y as u32);
lane32!(u16, 0x03, |x| x as u16, |y| u32::from(y));
lane32!(i16, 0x03, |x| x as i16, |y| u32::from(y as u16));
lane32!(u8, 0x01, |x| x as u8, |y| u32::from(y));
lane32!(i8, 0x01, |x| x as i8, |y| u32::from(y as u8));
lane32!(f32, 0x0f, |x| f32::from_bits(x), |y| y.to_bits());
lane64!(u64, |x| x, |y| y);
lane64!(i64, |x| x as i64, |y| y as u64);
lane64!(f64, |x| f64::from_bits(x), |y| y.to_bits());

impl Lane for bool {
    type Reg<'a> = u32;
    type Out = u32;
    const CLASS: Class = Class::P;
    const BYTES: u8 = 1;
    #[inline(always)]
    fn reg(rf: &RegFile, slot: u32) -> u32 {
        rf.p[slot as usize]
    }
    #[inline(always)]
    fn at(reg: u32, l: usize) -> bool {
        reg >> l & 1 != 0
    }
    #[inline(always)]
    fn undef(rf: &RegFile, slot: u32) -> u32 {
        rf.up[slot as usize]
    }
    #[inline(always)]
    fn from_bits(v: u64) -> bool {
        v & 1 != 0
    }
    #[inline(always)]
    fn to_bits(self) -> u64 {
        u64::from(self)
    }
    #[inline(always)]
    fn put(out: &mut u32, l: usize, v: bool) {
        *out |= u32::from(v) << l;
    }
    #[inline(always)]
    fn store(rf: &mut RegFile, slot: u32, out: &u32, mask: u32) {
        let p = &mut rf.p[slot as usize];
        *p = *p & !mask | *out & mask;
        rf.up[slot as usize] &= !mask;
    }
    #[inline(always)]
    fn mark(rf: &mut RegFile, slot: u32, mask: u32, undef: &Undef) {
        let lanes = (0..LANES).filter(|&l| undef[l] != 0).fold(0, |w, l| w | 1 << l);
        rf.up[slot as usize] |= lanes & mask;
    }
}

/// Stores the lanes of `mask` of a 32-bit result and marks them defined.
#[inline(always)]
pub fn store32(rf: &mut RegFile, slot: u32, out: &[u32; LANES], mask: u32) {
    let dst = &mut rf.r32[slot as usize].0;
    if mask == !0 {
        *dst = *out;
    } else {
        blend(dst, out, mask);
    }
    rf.u32[slot as usize] &= !mask;
}

/// Stores the lanes of `mask` of a 64-bit result and marks them defined.
#[inline(always)]
pub fn store64(rf: &mut RegFile, slot: u32, out: &[u64; LANES], mask: u32) {
    let dst = &mut rf.r64[slot as usize].0;
    if mask == !0 {
        *dst = *out;
    } else {
        blend(dst, out, mask);
    }
    rf.u64[slot as usize] &= !mask;
}

/// Copies the lanes of `mask`.
#[inline(always)]
fn blend<T: Copy>(dst: &mut [T; LANES], out: &[T; LANES], mask: u32) {
    for l in 0..LANES {
        let (new, old) = (out[l], dst[l]);
        dst[l] = if mask >> l & 1 != 0 { new } else { old };
    }
}

#[cold]
#[inline(never)]
fn mark(lanes: &mut u32, bytes: &mut [u8; LANES], mask: u32, undef: &Undef, width: u8) {
    for l in 0..LANES {
        let u = undef[l] & width;
        if mask >> l & 1 != 0 && u != 0 {
            bytes[l] = u;
            *lanes |= 1 << l;
        }
    }
}

/// The sources of an operation.
pub trait Args: Copy {
    /// All source registers, borrowed.
    type Regs<'a>: Copy;
    /// Class and bytes read of each source.
    const SRCS: &'static [(Class, u8)];
    /// Borrows the source registers.
    fn regs<'a>(rf: &'a RegFile, s: &[u32; 4]) -> Self::Regs<'a>;
    /// Reads lane `l` of all.
    fn at(regs: Self::Regs<'_>, l: usize) -> Self;
    /// The values of one lane's register bits.
    fn from_bits(v: [u64; 4]) -> Self;
    /// Lanes in which any source has an undefined byte.
    fn undef(rf: &RegFile, s: &[u32; 4]) -> u32;
}

macro_rules! args {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Lane),+> Args for ($($t,)+) {
            type Regs<'a> = ($($t::Reg<'a>,)+);
            const SRCS: &'static [(Class, u8)] = &[$(($t::CLASS, $t::BYTES)),+];
            #[inline(always)]
            fn regs<'a>(rf: &'a RegFile, s: &[u32; 4]) -> Self::Regs<'a> {
                ($($t::reg(rf, s[$i]),)+)
            }
            #[inline(always)]
            fn at(regs: Self::Regs<'_>, l: usize) -> Self {
                ($($t::at(regs.$i, l),)+)
            }
            #[inline(always)]
            fn from_bits(v: [u64; 4]) -> Self {
                ($($t::from_bits(v[$i]),)+)
            }
            #[inline(always)]
            fn undef(rf: &RegFile, s: &[u32; 4]) -> u32 {
                0 $(| $t::undef(rf, s[$i]))+
            }
        }
    };
}
args!(A 0);
args!(A 0, B 1);
args!(A 0, B 1, C 2);
args!(A 0, B 1, C 2, D 3);

/// The result or pair of results of an operation.
pub trait Results: Copy {
    /// Results under construction.
    type Out: Default;
    /// Class of each destination.
    const DSTS: &'static [Class];
    /// The register bits of one lane's results.
    fn to_bits(self) -> [u64; 2];
    /// Writes lane `l`.
    fn put(out: &mut Self::Out, l: usize, v: Self);
    /// Stores the lanes of `mask` and marks them defined.
    fn store(rf: &mut RegFile, d: &[u32; 4], out: &Self::Out, mask: u32);
}

impl<R: Lane> Results for R {
    type Out = R::Out;
    const DSTS: &'static [Class] = &[R::CLASS];
    #[inline(always)]
    fn to_bits(self) -> [u64; 2] {
        [Lane::to_bits(self), 0]
    }
    #[inline(always)]
    fn put(out: &mut R::Out, l: usize, v: R) {
        R::put(out, l, v);
    }
    #[inline(always)]
    fn store(rf: &mut RegFile, d: &[u32; 4], out: &R::Out, mask: u32) {
        R::store(rf, d[0], out, mask);
    }
}

/// Two results share the undefined bytes: only operations that are all-or-nothing produce pairs.
impl<R: Lane, S: Lane> Results for (R, S) {
    type Out = (R::Out, S::Out);
    const DSTS: &'static [Class] = &[R::CLASS, S::CLASS];
    #[inline(always)]
    fn to_bits(self) -> [u64; 2] {
        [Lane::to_bits(self.0), Lane::to_bits(self.1)]
    }
    #[inline(always)]
    fn put(out: &mut Self::Out, l: usize, v: Self) {
        R::put(&mut out.0, l, v.0);
        S::put(&mut out.1, l, v.1);
    }
    #[inline(always)]
    fn store(rf: &mut RegFile, d: &[u32; 4], out: &Self::Out, mask: u32) {
        R::store(rf, d[0], &out.0, mask);
        S::store(rf, d[1], &out.1, mask);
    }
}

/// A scalar body with its types erased.
pub struct Scalar {
    /// Results' register bits from the immediate and the sources' register bits.
    pub f: fn(u64, [u64; 4]) -> [u64; 2],
    /// Class and bytes read of each source.
    pub srcs: &'static [(Class, u8)],
    /// Class of each destination.
    pub dsts: &'static [Class],
    /// Which result bytes are undefined; without it, any undefined source byte makes the lane's whole result
    /// undefined.
    pub shadow: Option<Shadow>,
}

impl Scalar {
    /// Runs the body lane by lane over `mask`.
    pub fn run(&self, rf: &mut RegFile, op: &AluOp, mask: u32) {
        let undefined = self.srcs.iter().zip(op.s).fold(0, |u, (&(class, _), s)| {
            u | match class {
                Class::P => rf.up[s as usize],
                Class::R32 => rf.u32[s as usize],
                Class::R64 | Class::R128 => rf.u64[s as usize],
            }
        });
        let undef = (undefined & mask != 0).then(|| undef_bytes(rf, op, self.srcs, self.shadow));
        let mut left = mask;
        while left != 0 {
            let l = left.trailing_zeros() as usize;
            left &= left - 1;
            let mut v = [0; 4];
            for (v, (&(class, _), s)) in v.iter_mut().zip(self.srcs.iter().zip(op.s)) {
                *v = match class {
                    Class::P => u64::from(rf.p[s as usize] >> l & 1),
                    Class::R32 => u64::from(rf.r32[s as usize].0[l]),
                    Class::R64 | Class::R128 => rf.r64[s as usize].0[l],
                };
            }
            let results = (self.f)(op.imm, v);
            for (v, (&class, d)) in results.into_iter().zip(self.dsts.iter().zip(op.d)) {
                match class {
                    Class::P => rf.setp(d, l, v != 0, false),
                    Class::R32 => rf.set32(d, l, v as u32, 0),
                    Class::R64 | Class::R128 => rf.set64(d, l, v, 0),
                }
            }
        }
        if let Some(undef) = undef {
            for (&class, d) in self.dsts.iter().zip(op.d) {
                match class {
                    Class::P => <bool as Lane>::mark(rf, d, mask, &undef),
                    Class::R32 => <u32 as Lane>::mark(rf, d, mask, &undef),
                    Class::R64 | Class::R128 => <u64 as Lane>::mark(rf, d, mask, &undef),
                }
            }
        }
    }
}

/// Runs `f` over the lanes of `mask`, unless a source is undefined in one of them: then returns false.
#[inline(always)]
#[must_use]
pub fn run<A: Args, R: Results>(rf: &mut RegFile, op: &AluOp, mask: u32, f: impl Fn(u64, A) -> R) -> bool {
    if A::undef(rf, &op.s) & mask != 0 {
        return false;
    }
    let regs = A::regs(rf, &op.s);
    let mut out = R::Out::default();
    for l in 0..LANES {
        R::put(&mut out, l, f(op.imm, A::at(regs, l)));
    }
    R::store(rf, &op.d, &out, mask);
    true
}

/// Runs a function of whole 32-bit registers (`N` sources, one result); all-or-nothing definedness.
#[inline(always)]
pub fn run_batch<const N: usize>(
    rf: &mut RegFile,
    op: &AluOp,
    mask: u32,
    f: impl Fn([&[u32; LANES]; N]) -> [u32; LANES],
) {
    let mut srcs = [&[0; LANES]; N];
    let mut undefined = 0;
    for i in 0..N {
        srcs[i] = &rf.r32[op.s[i] as usize].0;
        undefined |= rf.u32[op.s[i] as usize];
    }
    let out = f(srcs);
    store32(rf, op.d[0], &out, mask);
    if undefined & mask != 0 {
        mark_whole(rf, op.d[0], undefined & mask);
    }
}

/// Marks the lanes of `mask` of a 32-bit register as wholly undefined.
#[cold]
#[inline(never)]
fn mark_whole(rf: &mut RegFile, slot: u32, mask: u32) {
    <u32 as Lane>::mark(rf, slot, mask, &[0xff; LANES]);
}

/// Runs a function of whole 32-bit registers on both words of 64-bit registers (`.f32x2`): a register is 64
/// consecutive words, so two calls cover it and no word has to move.
#[inline(always)]
pub fn run_words<const N: usize>(
    rf: &mut RegFile,
    op: &AluOp,
    mask: u32,
    f: impl Fn([&[u32; LANES]; N]) -> [u32; LANES],
) {
    let mut srcs = [[&[0; LANES]; N]; 2];
    let mut undefined = 0;
    for i in 0..N {
        let halves: &[[u32; LANES]; 2] = pulp::bytemuck::cast_ref(&rf.r64[op.s[i] as usize].0);
        (srcs[0][i], srcs[1][i]) = (&halves[0], &halves[1]);
        undefined |= rf.u64[op.s[i] as usize];
    }
    let out: [u64; LANES] = pulp::bytemuck::cast([f(srcs[0]), f(srcs[1])]);
    if undefined & mask == 0 {
        store64(rf, op.d[0], &out, mask);
    } else {
        store_words(rf, op, N, &out, mask);
    }
}

/// Stores the result of [`run_words`] where words of the sources are undefined.
#[cold]
#[inline(never)]
fn store_words(rf: &mut RegFile, op: &AluOp, sources: usize, out: &[u64; LANES], mask: u32) {
    let undef = undef_bytes(rf, op, &[(Class::R64, 0xff); 4][..sources], Some(super::shadow::words));
    store64(rf, op.d[0], out, mask);
    <u64 as Lane>::mark(rf, op.d[0], mask, &undef);
}

/// Undefined bytes of a result in every lane.
#[cold]
#[inline(never)]
pub fn undef_bytes(rf: &RegFile, op: &AluOp, srcs: &[(Class, u8)], shadow: Option<Shadow>) -> Undef {
    std::array::from_fn(|l| {
        let (mut v, mut u) = ([0; 4], [0; 4]);
        for (i, &(class, bytes)) in srcs.iter().enumerate() {
            let s = op.s[i];
            (v[i], u[i]) = match class {
                Class::P => (u64::from(rf.p[s as usize] >> l & 1), (rf.up[s as usize] >> l & 1) as u8),
                Class::R32 => (u64::from(rf.r32[s as usize].0[l]), rf.bytes32(s, l)),
                Class::R64 | Class::R128 => (rf.r64[s as usize].0[l], rf.bytes64(s, l)),
            };
            u[i] &= bytes;
        }
        match shadow {
            Some(f) => f(op.imm, v, u),
            None if u == [0; 4] => 0,
            None => 0xff,
        }
    })
}

/// Defines a scalar body as the function `scalar` and, with its types erased, as the constant `SCALAR`.
macro_rules! scalar {
    ($imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block, $shadow:expr) => {
        use $crate::isa::alu::lanes::{Args, Results, Scalar};
        #[inline(always)]
        fn scalar($imm: u64, ($($a,)+): ($($A,)+)) -> $R $body
        const SCALAR: Scalar = Scalar {
            f: |imm, v| Results::to_bits(scalar(imm, Args::from_bits(v))),
            srcs: <($($A,)+) as Args>::SRCS,
            dsts: <$R as Results>::DSTS,
            shadow: $shadow,
        };
    };
}
pub(super) use scalar;

/// Makes an [`AluFn`](super::AluFn) from a scalar body.
///
/// `lane_fn!(|a: u32, b: u32| -> u32 { a & b })`, with `imm;` in front to see the operation's immediate and
/// `, shadow` behind to give the byte-precise definedness rule.
macro_rules! lane_fn {
    (|$($a:ident: $A:ty),+| -> $R:ty $body:block $(, $shadow:expr)?) => {
        $crate::isa::alu::lanes::lane_fn!(_imm; |$($a: $A),+| -> $R $body $(, $shadow)?)
    };
    ($imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block) => {
        $crate::isa::alu::lanes::lane_fn!(@ $imm; |$($a: $A),+| -> $R $body, None)
    };
    ($imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block, $shadow:expr) => {
        $crate::isa::alu::lanes::lane_fn!(@ $imm; |$($a: $A),+| -> $R $body, Some($shadow as $crate::isa::alu::lanes::Shadow))
    };
    (@ $imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block, $shadow:expr) => {{
        $crate::isa::alu::lanes::scalar!($imm; |$($a: $A),+| -> $R $body, $shadow);
        fn go(rf: &mut $crate::isa::regs::RegFile, op: &$crate::isa::alu::AluOp, mask: u32) {
            SCALAR.run(rf, op, mask);
        }
        go as $crate::isa::alu::AluFn
    }};
}
pub(super) use lane_fn;

/// As `lane_fn!`, with a vectorised loop of its own for warps whose sources are defined.
macro_rules! warp_fn {
    (|$($a:ident: $A:ty),+| -> $R:ty $body:block $(, $shadow:expr)?) => {
        $crate::isa::alu::lanes::warp_fn!(_imm; |$($a: $A),+| -> $R $body $(, $shadow)?)
    };
    ($imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block) => {
        $crate::isa::alu::lanes::warp_fn!(@ $imm; |$($a: $A),+| -> $R $body, None)
    };
    ($imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block, $shadow:expr) => {
        $crate::isa::alu::lanes::warp_fn!(@ $imm; |$($a: $A),+| -> $R $body, Some($shadow as $crate::isa::alu::lanes::Shadow))
    };
    (@ $imm:ident; |$($a:ident: $A:ty),+| -> $R:ty $body:block, $shadow:expr) => {{
        $crate::isa::alu::lanes::scalar!($imm; |$($a: $A),+| -> $R $body, $shadow);
        fn go(rf: &mut $crate::isa::regs::RegFile, op: &$crate::isa::alu::AluOp, mask: u32) {
            let done = $crate::num::wide::wide(
                #[inline(always)]
                |_| $crate::isa::alu::lanes::run(rf, op, mask, scalar),
            );
            if !done {
                SCALAR.run(rf, op, mask);
            }
        }
        go as $crate::isa::alu::AluFn
    }};
}
pub(super) use warp_fn;

/// Makes an [`AluFn`](super::AluFn) from a function of whole registers that is written for vectors: `run` is
/// [`run_batch`] or [`run_words`], `w` says which vectors the loop is compiled for.
///
/// `batch_fn!(run_batch, 2; |w, x| lanes::add_rn::<true>(w, x[0], x[1]))`
macro_rules! batch_fn {
    ($run:ident, $n:literal; |$w:ident, $x:ident| $e:expr) => {
        (|rf, op, mask| {
            $crate::num::wide::wide(
                #[inline(always)]
                |$w| {
                    $crate::isa::alu::lanes::$run::<$n>(
                        rf,
                        op,
                        mask,
                        #[inline(always)]
                        |$x| $e,
                    )
                },
            )
        }) as $crate::isa::alu::AluFn
    };
}
pub(super) use batch_fn;
