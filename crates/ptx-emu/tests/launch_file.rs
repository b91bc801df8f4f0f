//! Launch files: `launch/ok/every_kind.toml` becomes the bytes worked out here by hand, `launch/err/*.toml`
//! give exactly the message beside them (`PTX_EMU_BLESS=1` rewrites those messages).

use ptx_emu::launch_file::{Contents, DType, FitError, parse, read};
use ptx_emu::syntax;
use ptx_emu::tma::tensor_map::TensorMap;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launch").join(name)
}

#[test]
fn messages() {
    let bless = std::env::var_os("PTX_EMU_BLESS").is_some();
    let err = folder("err");
    let mut files: Vec<_> = std::fs::read_dir(&err).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let error = match parse(&name, &text, &err) {
            Ok(_) => panic!("{name} was accepted"),
            // Messages about other files hold their path, which differs from machine to machine.
            Err(e) => format!("{e}\n").replace(&format!("{}/", err.display()), ""),
        };
        let beside = path.with_extension("stderr");
        if bless {
            std::fs::write(&beside, &error).unwrap();
        }
        assert_eq!(error, std::fs::read_to_string(&beside).unwrap_or_default(), "{name}");
    }
}

/// What a buffer is filled from may be longer than memory.
#[cfg(unix)]
#[test]
fn files_are_read_as_far_as_the_buffer_goes() {
    for init in ["file", "raw"] {
        let text = format!(
            "ptx = 'k'\ngrid = [1]\nblock = [1]\n[[buffer]]\nname = 'x'\ndtype = 'f32'\nshape = [4]\n\
             init = {{ {init} = '/dev/zero' }}\n"
        );
        parse("t", &text, Path::new("")).expect_err(init);
    }
}

#[test]
fn every_kind_becomes_bytes() {
    let path = folder("ok").join("every_kind.toml");
    let l = read(&path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(l.ptx, folder("ok").join("kernels/k.ptx"));
    assert_eq!((l.entry.as_deref(), l.grid, l.block), (Some("k"), [4, 2, 1], [128, 1, 1]));
    assert_eq!((l.cluster, l.dynamic_smem), ([2, 1, 1], 65536));

    assert_eq!((l.annotations.roles[0].first_warp, l.annotations.roles[0].warps), (4, 4));
    assert_eq!((l.annotations.barriers[0].stages, l.annotations.barriers[0].waiters.len()), (2, 0));
    assert_eq!(l.annotations.shared[0].name, "Q");

    let names: Vec<_> = l.buffers.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["q", "o", "q_map", "sparse", "loaded", "counts"]);
    let buffer = |n: &str| l.buffers.iter().find(|b| b.name == n).unwrap();
    assert_eq!((buffer("q").dtype, buffer("q").bytes), (DType::Bf16, 512));
    assert_eq!((&buffer("o").contents, buffer("o").align), (&Contents::Poison, 1024));
    assert_eq!(buffer("o").output, Some(folder("ok").join("out/o.npy")));
    assert_eq!((&buffer("sparse").contents, buffer("sparse").bytes), (&Contents::Zeros, 1_000_000_000_000));
    let loaded: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    assert_eq!(buffer("loaded").contents, Contents::Bytes(loaded));
    let counts: Vec<u8> = [0u32, 1, 2].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(buffer("counts").contents, Contents::Bytes(counts));

    let addresses = [0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000];
    let bytes: Vec<Vec<u8>> =
        l.params.iter().map(|p| l.resolve(&p.image, &addresses).unwrap_or_else(|e| panic!("{e}"))).collect();
    assert_eq!(bytes[0], 0x6000u64.to_le_bytes());
    assert_eq!(bytes[1], 0x1080u64.to_le_bytes());
    assert_eq!(bytes[2], [0xff; 8]);
    assert_eq!(bytes[3], [0x00, 0x3c]);
    assert_eq!(bytes[4], f32::NEG_INFINITY.to_le_bytes());
    assert_eq!(bytes[5], [1, 2, 0xf0, 0x1f, 0, 0, 0, 0, 0, 0, 3]);
    let map = TensorMap::decode(bytes[6].as_slice().try_into().unwrap()).unwrap();
    assert_eq!((map.address, map.rank, map.nan_fill, map.l2_promotion), (0x1100, 2, true, 3));
    assert_eq!((&map.dims[..2], map.strides[1], &map.boxes[..2]), (&[64, 2][..], 128, &[64, 2][..]));
    assert_eq!(bytes[7].len(), 200);
    assert_eq!(bytes[7][..16], [0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0]);
    let map = TensorMap::decode(bytes[7][64..192].try_into().unwrap()).unwrap();
    assert_eq!((map.address, map.dims[1]), (0x1000, 4));
    assert_eq!(bytes[7][192..], [0, 0, 0, 0, 7, 0, 0, 0]);
    let Contents::Image(image) = &buffer("q_map").contents else { panic!("not an image") };
    let object = l.resolve(image, &addresses).unwrap();
    assert_eq!(object, bytes[7][64..192]);
}

/// Values computed by NumPy with the program in the documentation of `launch_file::fill`.
#[test]
fn randn_is_what_numpy_computes() {
    let text = |dtype: &str, init: &str| {
        format!(
            "ptx = 'k'\ngrid = [1]\nblock = [1]\n[[buffer]]\nname = 'x'\ndtype = '{dtype}'\nshape = [{}]\n\
             init = {init}\n",
            if dtype == "f32" { 6 } else { 4 }
        )
    };
    let bytes = |text: &str| match &parse("t", text, Path::new("")).unwrap().buffers[0].contents {
        Contents::Bytes(b) => b.clone(),
        other => panic!("{other:?}"),
    };
    let expected: [u32; 6] = [3169283075, 3194577852, 1037246809, 3204552343, 1054687713, 3213352281];
    let expected: Vec<u8> = expected.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(bytes(&text("f32", "{ randn = 1 }")), expected);
    let expected: [u16; 4] = [15697, 48419, 17387, 15965];
    let expected: Vec<u8> = expected.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(bytes(&text("f16", "{ randn = 42, mean = 0.5, scale = 2 }")), expected);
}

#[test]
fn parameters_must_fit_the_kernel() {
    let ptx =
        ".version 9.0\n.target sm_100a\n.entry k(.param .u8 a, .param .u64 b, .param .u32 c) { ret; }\n";
    let m = syntax::parse("k.ptx", ptx).unwrap();
    let launch = |params: &str| {
        let text = format!("ptx = 'k.ptx'\ngrid = [1]\nblock = [1]\n{params}");
        parse("t", &text, Path::new("")).unwrap_or_else(|e| panic!("{e}"))
    };
    let scalar = |ty: &str, v: u32| format!("[[param]]\nkind = 'scalar'\ntype = '{ty}'\nvalue = {v}\n");
    let good = launch(&(scalar("u8", 1) + &scalar("u64", 2) + &scalar("u32", 3)));
    let expected = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0];
    assert_eq!(good.param_buffer(&m.functions[0], &[]).unwrap(), expected);

    let few = launch(&scalar("u8", 1));
    let e = few.param_buffer(&m.functions[0], &[]).unwrap_err();
    assert_eq!(e.to_string(), "the kernel `k` takes 3 parameters, the launch file gives 1");
    let wrong = launch(&(scalar("u8", 1) + &scalar("u32", 2) + &scalar("u32", 3)));
    let e = wrong.param_buffer(&m.functions[0], &[]).unwrap_err();
    assert!(matches!(e, FitError::Size { index: 1, wanted: 8, given: 4, .. }), "{e}");
}
