//! Arithmetic and conversions against independent references: the host's IEEE instructions, exact integers,
//! and searches through all codes of a small format.

use ptx_emu::num::Round;
use ptx_emu::num::cvt::{self, Fit, Int, Tiny};
use ptx_emu::num::fp::{self, Mode};
use ptx_emu::num::half::Half;

const DIRECTIONS: [Round; 4] = [Round::Rn, Round::Rz, Round::Rm, Round::Rp];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
    /// Bits of an f64: arbitrary, near one, or special.
    fn f64(&mut self) -> u64 {
        let r = self.next();
        match self.next() % 8 {
            0 => r & !(0x7ff << 52),
            1 => [0, 1 << 63, 0x7ff << 52, 0xfff << 52, 1, f64::MAX.to_bits(), 1 << 52, 0x3ff << 52]
                [(r % 8) as usize],
            2..=4 => r & 0x800f_ffff_ffff_ffff | (1000 + (r >> 52) % 48) << 52,
            _ => r,
        }
    }
}

fn same64(got: u64, want: f64, what: &str) {
    if want.is_nan() {
        assert!(f64::from_bits(got).is_nan(), "{what}: {got:016x}, not NaN");
    } else {
        assert_eq!(got, want.to_bits(), "{what}");
    }
}

#[test]
fn f64_nearest_is_the_hosts() {
    let mut r = Random(1);
    for _ in 0..300_000 {
        let (a, b, c) = (r.f64(), r.f64(), r.f64());
        let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
        same64(fp::add64(a, b, Round::Rn), x + y, "add");
        same64(fp::sub64(a, b, Round::Rn), x - y, "sub");
        same64(fp::mul64(a, b, Round::Rn), x * y, "mul");
        same64(fp::div64(a, b, Round::Rn), x / y, "div");
        same64(fp::sqrt64(a, Round::Rn), x.sqrt(), "sqrt");
        same64(fp::fma64(a, b, c, Round::Rn), x.mul_add(y, z), "fma");
    }
}

#[test]
fn f32_nearest_is_the_hosts() {
    let mut r = Random(2);
    for _ in 0..300_000 {
        let (a, b) = (r.next() as u32, r.next() as u32);
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        let same = |got: u32, want: f32, what: &str| {
            let want = if want.is_nan() { 0x7fff_ffff } else { want.to_bits() };
            assert_eq!(got, want, "{what} {a:08x} {b:08x}");
        };
        same(fp::add(a, b, Mode::RN), x + y, "add");
        same(fp::mul(a, b, Mode::RN), x * y, "mul");
        same(fp::div(a, b, Mode::RN), x / y, "div");
        same(fp::sqrt(a, Mode::RN), x.sqrt(), "sqrt");
        let wide = r.f64();
        same(cvt::f64_to_f32(wide, Round::Rn, false, false), f64::from_bits(wide) as f32, "cvt");
    }
}

/// The exact value in units of 2^-90 of an f32 between 2^-20 and 2^20.
fn fixed(x: u32) -> i128 {
    let exp = (x >> 23 & 255) as i32 - 150 + 90;
    let sig = i128::from(x & 0x7f_ffff | 0x80_0000) << exp;
    if x >> 31 == 1 { -sig } else { sig }
}

/// a·b + c in every direction, against the exact value as an integer.
#[test]
fn f32_directed_results_bracket_the_exact_value() {
    let mut r = Random(3);
    let mut pick =
        |low: u64, span: u64| (r.next() as u32 & 0x807f_ffff) | ((low + r.next() % span) as u32) << 23;
    for _ in 0..100_000 {
        let (a, b, c) = (pick(122, 10), pick(122, 10), pick(112, 30));
        let exact = (fixed(a) >> 45) * (fixed(b) >> 45) + fixed(c);
        let [near, zero, down, up] = DIRECTIONS.map(|round| fp::fma(a, b, c, Mode { round, ..Mode::RN }));
        if exact == 0 {
            assert_eq!([near, zero, down, up], [0, 0, 0x8000_0000, 0]);
            continue;
        }
        // Cancellation can leave the range that `fixed` covers.
        if (near >> 23 & 255) < 100 {
            continue;
        }
        assert!(fixed(down) <= exact && exact <= fixed(up), "{a:08x} {b:08x} {c:08x}");
        assert_eq!(fixed(down) == exact, fixed(up) == exact);
        let gap = (f32::from_bits(down).next_up() == f32::from_bits(up)) || down == up;
        assert!(gap, "{down:08x} {up:08x} are not neighbours");
        assert_eq!(zero, if exact > 0 { down } else { up });
        let (below, above) = (exact - fixed(down), fixed(up) - exact);
        let nearest = if below < above || below == above && down & 1 == 0 { down } else { up };
        assert_eq!(near, nearest, "{a:08x} {b:08x} {c:08x}");
    }
}

/// Directed quotients and roots bracket the true one: checked by multiplying back exactly.
#[test]
fn f32_directed_quotients_and_roots() {
    let mut r = Random(4);
    for _ in 0..100_000 {
        let mut pick = || (r.next() as u32 & 0x7f_ffff) | ((110 + r.next() % 30) as u32) << 23;
        let (a, b) = (pick(), pick());
        let wide = |x: u32| f64::from(f32::from_bits(x));
        let [near, zero, down, up] = DIRECTIONS.map(|round| fp::div(a, b, Mode { round, ..Mode::RN }));
        assert!(wide(down) * wide(b) <= wide(a) && wide(a) <= wide(up) * wide(b));
        assert!(up - down <= 1 && zero == down && (near == down || near == up));
        let [near, zero, down, up] = DIRECTIONS.map(|round| fp::sqrt(a, Mode { round, ..Mode::RN }));
        assert!(wide(down) * wide(down) <= wide(a) && wide(a) <= wide(up) * wide(up));
        assert!(up - down <= 1 && zero == down && (near == down || near == up));
    }
}

#[test]
fn conversions_to_integers_are_the_hosts() {
    let mut r = Random(5);
    for _ in 0..200_000 {
        let x = (r.next() as u32 & 0x807f_ffff) | ((110 + r.next() % 90) as u32) << 23;
        let v = f32::from_bits(x);
        for (round, host) in
            DIRECTIONS.into_iter().zip([f32::round_ties_even, f32::trunc, f32::floor, f32::ceil])
        {
            let h = host(v);
            let to = |bits, signed| cvt::f32_to_int(x, Int { bits, signed }, round, false);
            assert_eq!(to(32, true) as u32 as i32, h as i32, "{v} {round:?}");
            assert_eq!(to(32, false) as u32, h as u32, "{v} {round:?}");
            assert_eq!(to(64, true) as i64, h as i64, "{v} {round:?}");
            assert_eq!(to(64, false), h as u64, "{v} {round:?}");
            assert_eq!(to(8, true) as u8 as i8, h as i8, "{v} {round:?}");
            assert_eq!(to(16, false) as u16, h as u16, "{v} {round:?}");
            assert_eq!(cvt::f32_round(x, round, false, false), h.to_bits(), "{v} {round:?}");
            let wide = cvt::f32_to_f64(x, false);
            assert_eq!(wide, f64::from(v).to_bits());
            assert_eq!(cvt::f64_to_int(wide, Int { bits: 32, signed: true }, round) as u32 as i32, h as i32);
        }
    }
    assert_eq!(cvt::f32_to_int(0x7fc0_0000, Int { bits: 32, signed: true }, Round::Rz, false), 0);
}

#[test]
fn conversions_of_integers_are_the_hosts() {
    let mut r = Random(6);
    for _ in 0..200_000 {
        let shift = r.next() % 64;
        let x = r.next() >> shift;
        let of = |bits, signed| cvt::int_to_f32(x, Int { bits, signed }, Round::Rn);
        assert_eq!(of(32, true), (x as i32 as f32).to_bits());
        assert_eq!(of(32, false), (x as u32 as f32).to_bits());
        assert_eq!(of(64, true), (x as i64 as f32).to_bits());
        assert_eq!(of(64, false), (x as f32).to_bits());
        assert_eq!(of(8, true), f32::from(x as i8).to_bits());
        assert_eq!(
            cvt::int_to_f64(x, Int { bits: 64, signed: true }, Round::Rn),
            (x as i64 as f64).to_bits()
        );
        let (s16, u8_) = (Int { bits: 16, signed: true }, Int { bits: 8, signed: false });
        assert_eq!(
            cvt::int_to_int(x & 0xffff, s16, Int { bits: 64, signed: true }, false),
            x as i16 as i64 as u64
        );
        assert_eq!(cvt::int_to_int(x & 0xffff, s16, u8_, true), (x as i16).clamp(0, 255) as u64);
        assert_eq!(cvt::int_to_int(x & 0xffff, s16, u8_, false), u64::from(x as u8));
    }
}

/// Every finite code of a small format with its value.
fn codes(t: Tiny) -> Vec<(u8, f64)> {
    let bits = match t {
        Tiny::E4m3 | Tiny::E5m2 => 8,
        Tiny::E2m3 | Tiny::E3m2 => 6,
        Tiny::E2m1 => 4,
    };
    let value = |c: u16| {
        let h = cvt::tiny_to_f16(t, c as u8, false);
        f64::from(f32::from_bits(cvt::half_to_f32(Half::F16, h)))
    };
    (0..1u16 << bits).map(|c| (c as u8, value(c))).filter(|(_, v)| v.is_finite()).collect()
}

/// Conversion to a small format finds the nearest value (ties: the even code) and clamps.
#[test]
fn small_formats_round_to_the_nearest_code() {
    let limits = [
        (Tiny::E4m3, 448.0),
        (Tiny::E5m2, 57344.0),
        (Tiny::E2m1, 6.0),
        (Tiny::E2m3, 7.5),
        (Tiny::E3m2, 28.0),
    ];
    let mut r = Random(7);
    for (t, limit) in limits {
        let codes = codes(t);
        let largest = codes.iter().map(|c| c.1).fold(0.0, f64::max);
        assert_eq!(largest, limit, "{t:?}");
        for &(code, v) in &codes {
            assert_eq!(cvt::f32_to_tiny(t, (v as f32).to_bits(), false), code, "{t:?} {v}");
        }
        for _ in 0..20_000 {
            // Few fraction bits, so that ties are common.
            let x = (r.next() as u32 & 0x807c_0000) | ((108 + r.next() % 36) as u32) << 23;
            let v = f64::from(f32::from_bits(x)).clamp(-limit, limit);
            let sign = v.is_sign_negative();
            let best = codes
                .iter()
                .filter(|c| c.1.is_sign_negative() == sign)
                .min_by(|p, q| {
                    let far = |c: &(u8, f64)| (c.1 - v).abs();
                    far(p).total_cmp(&far(q)).then((p.0 & 1).cmp(&(q.0 & 1)))
                })
                .unwrap();
            assert_eq!(cvt::f32_to_tiny(t, x, false), best.0, "{t:?} {v}");
        }
    }
}

/// ue8m0 holds powers of two: the manual's rounding toward zero and up.
#[test]
fn ue8m0() {
    let code = |v: f32, r| cvt::f32_to_ue8m0(v.to_bits(), r, true);
    assert_eq!([code(1.0, Round::Rz), code(1.0, Round::Rp)], [127, 127]);
    assert_eq!([code(1.5, Round::Rz), code(1.5, Round::Rp)], [127, 128]);
    assert_eq!([code(f32::MAX, Round::Rz), code(f32::MAX, Round::Rp)], [254, 254]);
    assert_eq!(code(f32::NAN, Round::Rp), 255);
    assert_eq!(cvt::ue8m0_to_bf16(127), 0x3f80);
    assert_eq!(f32::from_bits(u32::from(cvt::ue8m0_to_bf16(0)) << 16), 2f32.powi(-127));
}

#[test]
fn saturation_and_relu() {
    let fit = |relu, satfinite| Fit { relu, satfinite };
    let big = 1e30f32.to_bits();
    assert_eq!(cvt::f32_to_half(Half::F16, big, Round::Rn, fit(false, false)), 0x7c00);
    assert_eq!(cvt::f32_to_half(Half::F16, big, Round::Rn, fit(false, true)), 0x7bff);
    assert_eq!(cvt::f32_to_half(Half::F16, big | 1 << 31, Round::Rn, fit(true, false)), 0);
    let sat = Mode { sat: true, ..Mode::RN };
    assert_eq!(fp::add(2f32.to_bits(), 0, sat), 1f32.to_bits());
    assert_eq!(fp::add((-2f32).to_bits(), 0, sat), 0);
    assert_eq!(fp::add(f32::NAN.to_bits(), 0, sat), 0);
    assert_eq!(cvt::f32_to_f32(0.25f32.to_bits(), false, true), 0.25f32.to_bits());
}

/// The f64 approximations carry 20 fraction bits, which two Newton steps turn into a full quotient.
#[test]
fn f64_approximations_have_twenty_bits() {
    let mut r = Random(8);
    for _ in 0..20_000 {
        let x = r.next() & 0x000f_ffff_ffff_ffff | (900 + r.next() % 200) << 52;
        let v = f64::from_bits(x);
        for (got, want) in [
            (ptx_emu::num::mufu::rcp_ftz64(x), 1.0 / v),
            (ptx_emu::num::mufu::rsqrt_ftz64(x), 1.0 / v.sqrt()),
        ] {
            assert_eq!(got & 0xffff_ffff, 0);
            assert!((f64::from_bits(got) / want - 1.0).abs() < 2f64.powi(-18));
        }
    }
    assert_eq!(ptx_emu::num::mufu::rcp_ftz64(0), f64::INFINITY.to_bits());
    assert_eq!(ptx_emu::num::mufu::rcp_ftz64(f64::INFINITY.to_bits()), 0);
}
