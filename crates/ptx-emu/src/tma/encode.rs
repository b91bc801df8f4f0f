//! `cuTensorMapEncodeTiled`: the driver's argument checks and the bytes it writes.
//!
//! The limits are those of driver 580 on an H200 (recorded cases are tests); where the driver is laxer than
//! the API text, as with a dimension of exactly 2^32 or stride 0, the driver is followed.

use super::tensor_map::ElemType;
use thiserror::Error;

/// Arguments of `cuTensorMapEncodeTiled`, in the numbers of cuda.h.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodeArgs {
    /// `CUtensorMapDataType` ([`ElemType::host`]).
    pub data_type: u32,
    /// Number of dimensions.
    pub rank: u32,
    /// Address of the tensor.
    pub global_address: u64,
    /// Sizes in elements, innermost first; at least `rank` entries.
    pub global_dim: Vec<u64>,
    /// Strides in bytes of dimensions 1 and up; at least `rank - 1` entries.
    pub global_strides: Vec<u64>,
    /// Box sizes in elements; at least `rank` entries.
    pub box_dim: Vec<u32>,
    /// Element strides; at least `rank` entries.
    pub element_strides: Vec<u32>,
    /// 0 none, 1 16B, 2 32B.
    pub interleave: u32,
    /// 0 none, 1 32B, 2 64B, 3 128B; 4..=6 (other atoms, sm_100) are not supported.
    pub swizzle: u32,
    /// 0 none, 1 64B, 2 128B, 3 256B.
    pub l2_promotion: u32,
    /// 0 zero, 1 NaN (float types).
    pub oob_fill: u32,
}

impl EncodeArgs {
    /// A dense map with element strides 1, no swizzle and zero fill; change the fields from there.
    pub fn new(elem: ElemType, address: u64, dims: &[u64], strides: &[u64], boxes: &[u32]) -> EncodeArgs {
        EncodeArgs {
            data_type: elem.host(),
            rank: dims.len() as u32,
            global_address: address,
            global_dim: dims.to_vec(),
            global_strides: strides.to_vec(),
            box_dim: boxes.to_vec(),
            element_strides: vec![1; dims.len()],
            interleave: 0,
            swizzle: 0,
            l2_promotion: 0,
            oob_fill: 0,
        }
    }
}

/// CUDA_ERROR_INVALID_VALUE: which argument, what was given and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{argument} = {given}: allowed is {allowed}")]
pub struct EncodeError {
    /// Name in cuda.h, with its index where it is an array.
    pub argument: String,
    /// The value.
    pub given: String,
    /// What the driver accepts.
    pub allowed: String,
}

/// Largest box in bytes that the driver accepts (228 KiB; 234496 is refused).
const MAX_BOX_BYTES: u64 = 233_472;

fn check(
    ok: bool,
    argument: impl ToString,
    given: impl ToString,
    allowed: impl ToString,
) -> Result<(), EncodeError> {
    if ok {
        return Ok(());
    }
    Err(EncodeError {
        argument: argument.to_string(),
        given: given.to_string(),
        allowed: allowed.to_string(),
    })
}

/// Checks the arguments as the driver does and writes the map, its two metadata words included.
pub fn encode(a: &EncodeArgs) -> Result<[u8; 128], EncodeError> {
    let Some(elem) = ElemType::from_host(a.data_type) else {
        let allowed = "0..=12 (13..=15, the packed 4- and 6-bit types, are not supported)";
        return Err(EncodeError {
            argument: "tensorDataType".into(),
            given: a.data_type.to_string(),
            allowed: allowed.into(),
        });
    };
    let es = elem.bytes();
    check((1..=5).contains(&a.rank), "tensorRank", a.rank, "1..=5")?;
    let n = a.rank as usize;
    check(a.global_dim.len() >= n, "globalDim", format!("{:?}", a.global_dim), format!("{n} entries"))?;
    let strides = format!("{:?}", a.global_strides);
    check(a.global_strides.len() >= n - 1, "globalStrides", strides, format!("{} entries", n - 1))?;
    check(a.box_dim.len() >= n, "boxDim", format!("{:?}", a.box_dim), format!("{n} entries"))?;
    let element_strides = format!("{:?}", a.element_strides);
    check(a.element_strides.len() >= n, "elementStrides", element_strides, format!("{n} entries"))?;

    check(a.interleave <= 2, "interleave", a.interleave, "0 (none), 1 (16B), 2 (32B)")?;
    check(a.interleave == 0 || n >= 3, "tensorRank", n, "3..=5 with an interleaved layout")?;
    // Interleave 32B: the API text asks 32; every recorded encoding obeys it, none tests it.
    let align = if a.interleave == 2 { 32 } else { 16 };
    let address = format!("0x{:x}", a.global_address);
    check(
        a.global_address.is_multiple_of(align),
        "globalAddress",
        address,
        format!("a multiple of {align}"),
    )?;
    for (j, &d) in a.global_dim[..n].iter().enumerate() {
        check((1..=1 << 32).contains(&d), format!("globalDim[{j}]"), d, "1..=2^32")?;
    }
    for (j, &s) in a.global_strides[..n - 1].iter().enumerate() {
        let ok = s % align == 0 && s < 1 << 40;
        check(ok, format!("globalStrides[{j}]"), s, format!("a multiple of {align} below 2^40"))?;
    }
    for (j, &b) in a.box_dim[..n].iter().enumerate() {
        check((1..=256).contains(&b), format!("boxDim[{j}]"), b, "1..=256")?;
    }
    for (j, &s) in a.element_strides[..n].iter().enumerate() {
        check((1..=8).contains(&s), format!("elementStrides[{j}]"), s, "1..=8")?;
    }
    let inner = a.box_dim[0] * es;
    check(
        inner.is_multiple_of(16),
        "boxDim[0]",
        a.box_dim[0],
        format!("a multiple of 16 bytes ({} elements)", 16 / es),
    )?;
    check(a.swizzle <= 3, "swizzle", a.swizzle, "0..=3 (4..=6, the other atoms, are not supported)")?;
    if a.swizzle != 0 && a.interleave == 0 {
        let span = 16 << a.swizzle;
        check(inner <= span, "boxDim[0]", a.box_dim[0], format!("at most {} (the swizzle span)", span / es))?;
    }
    check(a.l2_promotion <= 3, "l2Promotion", a.l2_promotion, "0..=3")?;
    check(a.oob_fill <= 1, "oobFill", a.oob_fill, "0 (zero), 1 (NaN)")?;
    check(a.oob_fill == 0 || elem.is_float(), "oobFill", a.oob_fill, format!("0 for {elem:?}"))?;
    // The driver's own size, with its rounding; it also leaves it in the map.
    let sizes = a.box_dim[..n].iter().zip(&a.element_strides[..n]);
    let volume = sizes.fold(u64::from(es), |v, (&b, &s)| v * u64::from(b / s));
    let box_dim = format!("{:?}", &a.box_dim[..n]);
    check(volume <= MAX_BOX_BYTES, "boxDim", box_dim, format!("at most {MAX_BOX_BYTES} bytes in all"))?;

    let mut map = [0; 128];
    let mut put = |at: usize, v: u32| map[at..at + 4].copy_from_slice(&v.to_le_bytes());
    put(0, a.global_address as u32);
    put(4, (a.global_address >> 32) as u32);
    let (code, tf32) = elem.bits();
    let head = (a.rank - 1) << 4 | code << 7 | a.interleave << 11 | a.swizzle << 13;
    put(8, head | a.oob_fill << 15 | tf32 << 16 | a.l2_promotion << 17);
    let mut high = 0;
    for (j, &s) in a.global_strides[..n - 1].iter().enumerate() {
        put(12 + 4 * j, (s >> 4) as u32);
        high |= ((s >> 36) as u32) << (4 * j);
    }
    put(28, high);
    for (j, &d) in a.global_dim[..n].iter().enumerate() {
        put(32 + 4 * j, (d - 1) as u32);
    }
    let strides = a.element_strides[..n].iter().enumerate();
    put(52, strides.fold(0, |v, (j, &s)| v | (s - 1) << (3 * j)));
    put(64, volume as u32);
    put(72, [16, 256, 512, 1024][a.swizzle as usize]);
    for (j, &b) in a.box_dim[..n].iter().enumerate() {
        map[55 + j] = (b - 1) as u8;
    }
    Ok(map)
}
