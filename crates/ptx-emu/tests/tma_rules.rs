//! TMA rules that no recorded file holds: alignment faults, gather4, tensormap.replace, bulk operands, and the
//! reductions other than add. Each cites where the rule comes from.

use ptx_emu::tma::tile::HwError;
use ptx_emu::tma::*;

const BASE: u64 = 0x20000;

fn map(args: &EncodeArgs) -> TensorMap {
    TensorMap::decode(&encode(args).unwrap()).unwrap()
}

fn bf16_128b() -> EncodeArgs {
    let mut a = EncodeArgs::new(ElemType::BF16, BASE, &[256, 100], &[512], &[64, 8]);
    a.swizzle = 3;
    a
}

/// Measured: destinations 8, 16 and 64 bytes off a multiple of 128 fault, swizzled or not.
#[test]
fn shared_alignment() {
    let mut out = Vec::new();
    for swizzle in [0, 3] {
        let m = map(&EncodeArgs { swizzle, ..bf16_128b() });
        for off in [8, 16, 64] {
            let e = load_chunks(&m, &[0, 0], 0x800 + off, &mut out).unwrap_err();
            assert_eq!(e.hardware(), Some(HwError::MisalignedAddress));
        }
        assert_eq!(load_chunks(&m, &[0, 0], 0x880, &mut out), Ok(64 * 8 * 2));
    }
}

#[test]
fn messages_say_what_to_do() {
    let m = map(&bf16_128b());
    let mut out = Vec::new();
    let e = load_chunks(&m, &[4, 0], 0x800, &mut out).unwrap_err();
    let want = "inner coordinate 4 stands at byte 8 of its row; the hardware only takes multiples of 16 bytes (8 \
                elements)";
    assert_eq!(e.to_string(), want);
    let e = store_chunks(&m, &[0, -1], 0x800, &mut out).unwrap_err();
    assert_eq!(
        e.to_string(),
        "coordinate -1 of dimension 1 is negative; only loads may start outside the tensor"
    );
    let e = load_chunks(&m, &[0], 0x800, &mut out).unwrap_err();
    assert_eq!(e.to_string(), "the instruction gives 1 coordinates, but the tensor map has rank 2");
    let e = encode(&EncodeArgs { box_dim: vec![128, 8], ..bf16_128b() }).unwrap_err();
    assert_eq!(e.to_string(), "boxDim[0] = 128: allowed is at most 64 (the swizzle span)");
}

/// Manual, gather4: five coordinates; row j lands at linear offset j * row bytes; each row is tested for bounds.
#[test]
fn gather4_is_four_one_row_boxes() {
    let m = map(&EncodeArgs { box_dim: vec![64, 1], ..bf16_128b() });
    let rows = [7, -1, 99, 100];
    let (mut got, mut one) = (Vec::new(), Vec::new());
    assert_eq!(gather4_chunks(&m, 64, rows, 0x800, &mut got), Ok(4 * 128));
    assert_eq!(got.len(), 32);
    let (exists, missing) = (0xffff, 0);
    for (j, (row, valid)) in rows.into_iter().zip([exists, missing, exists, missing]).enumerate() {
        for (k, c) in got[8 * j..8 * j + 8].iter().enumerate() {
            let linear = 0x800 + 128 * j as u32 + 16 * k as u32;
            assert_eq!((c.smem, c.valid, c.len), (linear ^ (j as u32) << 4, valid, 16));
            if valid != 0 {
                assert_eq!(c.global, BASE + row as u64 * 512 + 128 + 16 * k as u64);
            }
        }
        // The first row is an ordinary box.
        if j == 0 {
            load_chunks(&m, &[64, row], 0x800, &mut one).unwrap();
            assert_eq!(one, got[..8]);
        }
    }
    assert!(gather4_chunks(&map(&bf16_128b()), 0, rows, 0x800, &mut got).is_err(), "box {{64, 8}}");
    assert!(scatter4_chunks(&m, 64, rows, 0x800, &mut got).is_err(), "a negative row");
    assert_eq!(scatter4_chunks(&m, 64, [7, 8, 99, 100], 0x800, &mut got), Ok(512));
    assert_eq!(got.iter().filter(|c| c.valid != 0).count(), 24);
}

/// A map edited field by field equals the map that the (recorded) encoder writes.
#[test]
fn replace_makes_the_encoders_map() {
    let from = encode(&bf16_128b()).unwrap();
    let mut to = EncodeArgs::new(
        ElemType::Tf32,
        0x7f45_0be0_0010,
        &[5000, 7, 1 << 31],
        &[20000, (1 << 36) + 32],
        &[16, 4, 2],
    );
    (to.element_strides, to.interleave, to.swizzle, to.oob_fill) = (vec![1, 3, 8], 0, 2, 1);
    let mut m = from;
    let steps = [
        (Field::GlobalAddress, 0, to.global_address),
        (Field::Rank, 0, 2),
        (Field::ElemType, 0, 11),
        (Field::SwizzleMode, 0, 2),
        (Field::SwizzleAtomicity, 0, 0),
        (Field::InterleaveLayout, 0, 0),
        (Field::FillMode, 0, 1),
        (Field::GlobalDim, 0, 5000),
        (Field::GlobalDim, 1, 7),
        (Field::GlobalDim, 2, 1 << 31),
        (Field::GlobalStride, 0, 20000),
        (Field::GlobalStride, 1, (1 << 36) + 32),
        (Field::BoxDim, 0, 16),
        (Field::BoxDim, 1, 4),
        (Field::BoxDim, 2, 2),
        (Field::ElementStride, 1, 3),
        (Field::ElementStride, 2, 8),
    ];
    for (field, ordinal, value) in steps {
        replace(&mut m, field, ordinal, value).unwrap();
    }
    assert_eq!(m[..64], encode(&to).unwrap()[..64]);
    assert_eq!(m[64..], from[64..], "the driver's metadata stays");

    replace(&mut m, Field::SwizzleMode, 0, 3).unwrap(); // wide enough for 16 doubles
    // tf32 back to f32.ftz clears the conversion bit; numbers 8..=10 differ from the host enum.
    for (n, elem) in
        [(8, ElemType::F32Ftz), (9, ElemType::F64), (10, ElemType::BF16), (12, ElemType::Tf32Ftz)]
    {
        replace(&mut m, Field::ElemType, 0, n).unwrap();
        assert_eq!(TensorMap::decode(&m).map(|m| m.elem), Ok(elem));
    }
    assert!(matches!(replace(&mut m, Field::ElemType, 0, 14), Err(ReplaceError::Unsupported { .. })));
    assert!(matches!(replace(&mut m, Field::SwizzleAtomicity, 0, 1), Err(ReplaceError::Unsupported { .. })));
    assert!(matches!(replace(&mut m, Field::GlobalStride, 4, 16), Err(ReplaceError::Ordinal { .. })));
    assert!(matches!(replace(&mut m, Field::BoxDim, 0, 257), Err(ReplaceError::Value { .. })));
}

/// A map in memory may say anything; what no machine can do is an error, not an attempt.
#[test]
fn boxes_larger_than_shared_memory() {
    let mut m = encode(&bf16_128b()).unwrap();
    replace(&mut m, Field::Rank, 0, 4).unwrap();
    (1..5).for_each(|j| replace(&mut m, Field::BoxDim, j, 256).unwrap());
    assert_eq!(TensorMap::decode(&m), Err(MapError::BoxBytes(128 << 32)));
}

/// Measured: 8-byte aligned source or destination and a barrier at 4 mod 8 fault; size 0 does nothing.
#[test]
fn bulk_operands() {
    assert_eq!(bulk_check(0x800, 0x10, 0, Some(0x400)), Ok(()));
    assert_eq!(bulk_check(0x800, 0x10, 4096, None), Ok(()));
    for (dst, src, mbar) in [(0x808, 0x10, None), (0x800, 0x18, None), (0x800, 0x10, Some(0x404))] {
        let e = bulk_check(dst, src, 16, mbar).unwrap_err();
        assert_eq!(e.hardware(), Some(HwError::MisalignedAddress));
    }
    let e = bulk_check(0x800, 0x10, 24, None).unwrap_err();
    assert_eq!(e.to_string(), "bulk copy size 24 is no multiple of 16; the hardware drops the last 8 bytes");
}

/// Manual, `red`: inc and dec wrap at the operand; min and max are signed or not by type.
#[test]
fn integer_reductions() {
    let run = |op, ty, old: u32, src: u32| {
        let mut d = old.to_le_bytes();
        assert!(reduce(op, ty, &mut d, &src.to_le_bytes()));
        u32::from_le_bytes(d)
    };
    use NumType::*;
    use ReduceOp::*;
    assert_eq!([run(Inc, U32, 4, 5), run(Inc, U32, 5, 5), run(Inc, U32, 6, 5)], [5, 0, 0]);
    assert_eq!([run(Dec, U32, 0, 5), run(Dec, U32, 5, 5), run(Dec, U32, 6, 5)], [5, 4, 5]);
    assert_eq!([run(Min, S32, !0, 1), run(Min, U32, !0, 1)], [!0, 1]);
    assert_eq!([run(Max, S32, !0, 1), run(Max, U32, !0, 1)], [1, !0]);
    assert_eq!([run(And, B32, 12, 10), run(Or, B32, 12, 10), run(Xor, B32, 12, 10)], [8, 14, 6]);
    assert_eq!(run(Add, S32, 0x7fff_ffff, 1), 0x8000_0000);
    let mut d = (1u64 << 40).to_le_bytes();
    assert!(reduce(Add, U64, &mut d, &(!0u64).to_le_bytes()));
    assert_eq!(u64::from_le_bytes(d), (1 << 40) - 1);
    assert!(!reduce(Inc, S32, &mut [0; 4], &[0; 4]), "inc is for u32 only");
    assert!(!reduce(Add, S64, &mut [0; 8], &[0; 8]), "no add for s64");
}

#[test]
fn half_min_max() {
    let run = |op, ty, old: u16, src: u16| {
        let mut d = old.to_le_bytes();
        assert!(reduce(op, ty, &mut d, &src.to_le_bytes()));
        u16::from_le_bytes(d)
    };
    use NumType::*;
    use ReduceOp::*;
    let (one, minus_two, nan) = (0x3c00, 0xc000, 0x7e00);
    assert_eq!([run(Min, F16, one, minus_two), run(Max, F16, one, minus_two)], [minus_two, one]);
    assert_eq!([run(Min, F16, 0, 0x8000), run(Max, F16, 0x8000, 0)], [0x8000, 0]);
    assert_eq!(
        [run(Max, F16, nan, one), run(Max, F16, one, nan), run(Max, F16, nan, nan)],
        [one, one, 0x7fff]
    );
    assert_eq!(run(Max, BF16, 0x3f80, 0x7f80), 0x7f80);
}
