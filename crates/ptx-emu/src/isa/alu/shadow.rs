//! Byte-precise definedness rules (see [`Shadow`](super::lanes::Shadow)).

/// Result bytes come straight from the source's.
pub fn copy(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    u[0]
}

fn byte(v: u64, i: usize) -> u8 {
    (v >> (8 * i)) as u8
}

fn bytes(f: impl Fn(usize) -> bool) -> u8 {
    (0..8).fold(0, |w, i| w | u8::from(f(i)) << i)
}

/// `and`: a defined zero byte decides.
pub fn and(_: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    let zero = |k: usize, i: usize| u[k] >> i & 1 == 0 && byte(v[k], i) == 0;
    bytes(|i| (u[0] | u[1]) >> i & 1 != 0 && !zero(0, i) && !zero(1, i))
}

/// `or`: a defined byte of ones decides.
pub fn or(_: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    let ones = |k: usize, i: usize| u[k] >> i & 1 == 0 && byte(v[k], i) == 0xff;
    bytes(|i| (u[0] | u[1]) >> i & 1 != 0 && !ones(0, i) && !ones(1, i))
}

/// Bytes undefined in any source are undefined in the result (`xor`, packed arithmetic by byte).
pub fn either(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    u[0] | u[1] | u[2] | u[3]
}

/// 16-bit halves are independent: an undefined byte spoils its half.
pub fn halves(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    spread(u[0] | u[1] | u[2] | u[3], 2)
}

/// 32-bit halves of a 64-bit register are independent.
pub fn words(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    spread(u[0] | u[1] | u[2] | u[3], 4)
}

/// Extends undefined bytes to whole groups of `n` bytes.
fn spread(u: u8, n: usize) -> u8 {
    let group = (1u8 << n) - 1;
    (0..8).step_by(n).filter(|&i| u >> i & group != 0).fold(0, |w, i| w | group << i)
}

/// `selp`-like `a, b, p`: the chosen side's bytes; all when the selector is undefined.
pub fn select(_: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    match (u[2], v[2]) {
        (0, 0) => u[1],
        (0, _) => u[0],
        _ => 0xff,
    }
}

/// `shl a, n` by a defined multiple of 8; `BITS` is the register width.
pub fn shl<const BITS: u64>(_: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    let n = v[1] & 0xffff_ffff;
    match u[1] {
        0 if n >= BITS => 0,
        0 if u[0] == 0 => 0,
        0 if n.is_multiple_of(8) => u[0] << (n / 8),
        _ => 0xff,
    }
}

/// Logical `shr a, n` by a defined multiple of 8.
pub fn shr<const BITS: u64>(_: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    let n = v[1] & 0xffff_ffff;
    match u[1] {
        0 if n >= BITS => 0,
        0 if u[0] == 0 => 0,
        0 if n.is_multiple_of(8) => u[0] >> (n / 8),
        _ => 0xff,
    }
}

/// Arithmetic `shr`: the vacated bytes are as undefined as the sign byte.
pub fn sar<const BITS: u64>(imm: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    let n = (v[1] & 0xffff_ffff).min(BITS);
    let sign = u[0] >> (BITS / 8 - 1) & 1 != 0;
    let fill = if sign { (0xffu16 << (BITS / 8 - n / 8)) as u8 } else { 0 };
    match u[1] {
        0 if n >= BITS => {
            if sign {
                0xff
            } else {
                0
            }
        }
        0 if n.is_multiple_of(8) => shr::<BITS>(imm, v, u) | fill,
        0 if u[0] == 0 => 0,
        _ => 0xff,
    }
}

/// Bit-field extraction `a, pos, len` of an unsigned field: byte-precise when the field starts on a byte.
pub fn bfe(looked_at: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    if u[1] | u[2] != 0 {
        return 0xff;
    }
    let (pos, len) = (v[1] & looked_at, v[2] & looked_at);
    match (len, pos) {
        (0, _) => 0,
        (_, pos) if pos >= 64 => 0,
        (len, pos) if pos.is_multiple_of(8) => {
            let n = len.div_ceil(8).min(8);
            u[0] >> (pos / 8) & ((1u16 << n) - 1) as u8
        }
        (len, pos) => {
            let (first, last) = (pos / 8, ((pos + len - 1) / 8).min(7));
            if (first..=last).any(|i| u[0] >> i & 1 != 0) { 0xff } else { 0 }
        }
    }
}

/// Bit-field insertion `a, b, pos, len` of a field that starts on a byte.
pub fn bfi(looked_at: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    if u[2] | u[3] != 0 {
        return 0xff;
    }
    let (pos, len) = (v[2] & looked_at, v[3] & looked_at);
    if !pos.is_multiple_of(8) {
        return if len == 0 || u[0] | u[1] == 0 { u[1] } else { 0xff };
    }
    bytes(|i| {
        let i = i as u64;
        let (lo, hi) = (i * 8, i * 8 + 8);
        let inside = lo < pos + len && hi > pos;
        let covered = lo >= pos && hi <= pos + len;
        (inside && u[0] >> ((lo.max(pos) - pos) / 8) & 1 != 0) || (!covered && u[1] >> i & 1 != 0)
    })
}

/// `prmt a, b, selector` in generic mode.
pub fn prmt(_: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    prmt_bytes(v[2], u)
}

/// The bytes of a permutation whose selector (four nibbles) is known.
pub fn prmt_bytes(selector: u64, u: [u8; 4]) -> u8 {
    if u[2] != 0 {
        return 0xff;
    }
    let both = u[0] & 0xf | u[1] << 4;
    (0..4).fold(0, |w, i| w | (both >> (selector >> (4 * i) & 7) & 1) << i)
}
