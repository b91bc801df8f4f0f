//! `.npy` files against bytes that NumPy 2 wrote.

use ptx_emu::npy::{Array, NpyError, NpyType, read, write};

/// A file as NumPy writes it: version, header text, data.
fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let before = if version == 1 { 10 } else { 12 };
    let padded = (before + header.len() + 1).next_multiple_of(64) - before;
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([version, 0]);
    match version {
        1 => out.extend((padded as u16).to_le_bytes()),
        _ => out.extend((padded as u32).to_le_bytes()),
    }
    out.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
    out.extend(data);
    out
}

const HEADER: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

#[test]
fn numpys_own_bytes() {
    // numpy.save of arange(6, dtype=float32).reshape(2, 3).
    let saved = include_bytes!("launch/ok/x.npy");
    let a = read(saved).unwrap();
    assert_eq!((a.ty, a.shape.as_slice()), (NpyType::F32, &[2, 3][..]));
    let expected: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    assert_eq!(a.data, expected);
    assert_eq!(write(&a), saved);
    assert_eq!(file(1, HEADER, &expected), saved);
}

#[test]
fn shapes_and_types_survive() {
    for ty in NpyType::ALL {
        for shape in [vec![], vec![3], vec![2, 0], vec![2, 3, 4], vec![1; 40]] {
            let n = shape.iter().product::<u64>() as usize * ty.bytes();
            let a = Array { ty, shape, data: (0..n).map(|i| i as u8).collect() };
            let bytes = write(&a);
            assert_eq!((bytes.len() - n) % 64, 0);
            assert_eq!(read(&bytes).unwrap(), a);
        }
    }
}

#[test]
fn later_versions_and_loose_headers() {
    let data = [1, 0, 2, 0];
    let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }";
    for version in [2, 3] {
        let a = read(&file(version, header, &data)).unwrap();
        assert_eq!((a.ty, a.shape, a.data), (NpyType::I16, vec![2], data.to_vec()));
    }
    let header = r#"{"shape":(4,),"fortran_order":False,"descr":"<u1"}"#;
    assert_eq!(read(&file(1, header, &data)).unwrap().ty, NpyType::U8);
}

#[test]
fn errors() {
    let data = [0; 24];
    let with = |from: &str, to: &str| read(&file(1, &HEADER.replace(from, to), &data)).unwrap_err();
    assert_eq!(read(b"").unwrap_err(), NpyError::Magic);
    assert_eq!(read(b"\x93NUMPY\x09\x00").unwrap_err(), NpyError::Version(9, 0));
    assert_eq!(with("False", "True"), NpyError::Fortran);
    assert_eq!(with("<f4", ">f4"), NpyError::Type("'>f4'".into()));
    assert_eq!(with("'<f4'", "[('a', '<f4')]"), NpyError::Type("[('a', '<f4')]".into()));
    assert_eq!(with("(2, 3)", "(2, 4)"), NpyError::Short { what: "the data", needed: 32, found: 24 });
    assert_eq!(with("(2, 3)", "(2, 2)"), NpyError::Long(8));
    assert!(matches!(with("shape", "form"), NpyError::Header("shape", _)));
    assert!(matches!(with("(2, 3)", "(2, x)"), NpyError::Header("shape", _)));
    assert!(matches!(
        with("(2, 3)", "(18446744073709551615, 3)"),
        NpyError::Short { what: "the data", needed: u64::MAX, .. }
    ));
    // Cut off anywhere, damaged anywhere: an error or an array, never a panic.
    let whole = file(1, HEADER, &data);
    for cut in 0..whole.len() {
        assert!(read(&whole[..cut]).is_err());
    }
    for at in 0..whole.len() {
        for byte in [0, b'\'', b'(', b')', b'[', b'\xff'] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            let _ = read(&damaged);
        }
    }
}
