//! The TMA model against an H200: every recorded encoding, load, store, reduction and bit flip.

mod silicon_util;

use ptx_emu::tma::tile::HwError;
use ptx_emu::tma::{
    Chunk, ElemType, EncodeArgs, Interleave, NumType, ReduceOp, TensorMap, TmaFault, convert_load, encode,
    load_bytes, load_chunks, reduce, store_chunks,
};
use serde_json::Value;
use silicon_util::*;
use std::collections::BTreeMap;

const BASE: u64 = 0x7f45_0be0_0000;
/// Shared-window address of the probe's data.
const DATA: u32 = 0x800;

fn u32s(v: &Value) -> Vec<u32> {
    ints(v).into_iter().map(|x| x as u32).collect()
}

fn u64s(v: &Value) -> Vec<u64> {
    ints(v).into_iter().map(|x| x as u64).collect()
}

#[test]
fn encodings() {
    let all = records("tensormap_encode.jsonl");
    let (mut ok, mut refused) = (0, 0);
    for r in &all {
        let n = |i: usize| r[i].as_u64().expect("a number") as u32;
        let args = EncodeArgs {
            data_type: n(1),
            rank: n(2),
            global_address: hex(&r[3]),
            global_dim: u64s(&r[4]),
            global_strides: u64s(&r[5]),
            box_dim: u32s(&r[6]),
            element_strides: u32s(&r[7]),
            interleave: n(8),
            swizzle: n(9),
            l2_promotion: n(10),
            oob_fill: n(11),
        };
        let got = encode(&args);
        if n(12) != 0 {
            assert!(got.is_err(), "the driver refuses {r}");
            refused += 1;
            continue;
        }
        let map = got.unwrap_or_else(|e| panic!("{r}: {e}"));
        let text: String = map[..76].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(text, r[13].as_str().expect("map bytes"), "{r}");
        assert_eq!(map[76..], [0; 52]);
        let m = TensorMap::decode(&map).unwrap_or_else(|e| panic!("{r}: {e}"));
        let k = m.rank;
        assert_eq!((k as u32, m.elem.host(), m.address), (args.rank, args.data_type, args.global_address));
        assert_eq!(m.dims[..k], args.global_dim[..k], "{r}");
        assert_eq!(m.strides[1..k], args.global_strides[..k - 1], "{r}");
        assert_eq!(m.boxes[..k], args.box_dim[..k], "{r}");
        assert_eq!(m.elem_strides[..k], args.element_strides[..k], "{r}");
        ok += 1;
    }
    println!("{ok} maps equal byte for byte, {refused} refusals agree, of {}", all.len());
    assert_eq!((ok + refused, all.len()), (1082, 1082));
}

/// Global buffers of the load probes.
fn fills() -> BTreeMap<&'static str, Vec<u8>> {
    const BYTES: u32 = 1 << 20;
    let mut specials = vec![
        0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x807fffff, 0x800000, 0x7f800000, 0xff800000, 0x7fc00000,
        0x7f800001, 0xffffffff, 0x3f800000, 0x3f801000, 0x3f800fff, 0x3f801001, 0x3f802fff, 0x3f803000,
        0x7f7fffff, 0xff7fffff, 0x7f7ff000, 0x7f7fefff, 0x00001000, 0x00000fff, 0x007fe000, 0x007ff000,
    ];
    specials.extend((0..38).map(|i| 0x3f800000 + i * 0x800));
    BTreeMap::from([
        ("u32", bytes(0..BYTES / 4)),
        ("u16", (0..BYTES / 2).flat_map(|i| (i as u16).to_le_bytes()).collect()),
        ("rand", bytes(random_words(BYTES as usize / 4, &specials))),
    ])
}

/// The map of a recorded case, or `None` where the driver refuses it.
fn case_map(cfg: &Value, address: u64) -> Option<TensorMap> {
    let n = |k: &str| cfg.get(k).map_or(0, |v| v.as_u64().expect("a number") as u32);
    let dims = u64s(&cfg["dims"]);
    let args = EncodeArgs {
        data_type: n("dtype"),
        rank: dims.len() as u32,
        global_address: address,
        element_strides: cfg.get("estr").map_or_else(|| vec![1; dims.len()], u32s),
        global_dim: dims,
        global_strides: u64s(&cfg["strides"]),
        box_dim: u32s(&cfg["box"]),
        interleave: n("inter"),
        swizzle: n("swz"),
        l2_promotion: 0,
        oob_fill: n("oob"),
    };
    let map = encode(&args).ok()?;
    Some(TensorMap::decode(&map).unwrap_or_else(|e| panic!("{cfg}: {e}")))
}

/// A load as a machine would do it: bytes that exist are copied and converted, the rest is filled.
fn load(map: &TensorMap, coords: &[i32], dst: u32, global: &[u8]) -> Result<(Vec<u8>, u32), TmaFault> {
    let mut chunks = Vec::new();
    let tx = load_chunks(map, coords, dst, &mut chunks)?;
    assert_eq!(tx, load_bytes(map));
    let mut smem = vec![0xee; 1 << 17];
    for c in &chunks {
        let to = &mut smem[(c.smem - DATA) as usize..][..c.len as usize];
        let mut run = [0; 16];
        for (i, b) in run.iter_mut().enumerate().filter(|(i, _)| c.valid >> i & 1 != 0) {
            *b = global[(c.global - BASE) as usize + i];
        }
        convert_load(map.elem, &mut run);
        let fill = map.fill();
        for (i, b) in to.iter_mut().enumerate() {
            *b = if c.valid >> i & 1 != 0 { run[i] } else { fill[i] };
        }
    }
    Ok((smem, tx))
}

#[test]
fn tiles() {
    let fills = fills();
    let plain: Vec<u8> = bytes((0..1 << 14).map(|i| i | 0x5a00_0000));
    let rand = &fills["rand"][..1 << 16];
    let all = records("tma_cases.jsonl");
    let mut count = BTreeMap::<&str, usize>::new();
    for r in &all {
        let mut seen = |what| *count.entry(what).or_default() += 1;
        let coords: Vec<i32> = ints(&r["co"]).into_iter().map(|x| x as i32).collect();
        let is_load = r["op"] == "ld";
        // Stores go to a tensor 64 KiB into their buffer.
        let Some(map) = case_map(&r["cfg"], BASE + if is_load { 0 } else { 1 << 16 }) else {
            assert_eq!(r["encode_rc"], 1, "refused by the model only: {r}");
            seen("refused by the encoder");
            continue;
        };
        assert!(r.get("encode_rc").is_none(), "refused by the driver only: {r}");
        if let Some(fault) = r.get("fault") {
            assert!(fault.as_str().is_some_and(|f| f.contains("ILLEGAL_INSTRUCTION")), "{r}");
            let mut chunks = Vec::new();
            let got = match is_load {
                true => load_chunks(&map, &coords, DATA, &mut chunks),
                false => store_chunks(&map, &coords, DATA, &mut chunks),
            };
            let e = got.err().unwrap_or_else(|| panic!("no fault: {r}"));
            assert_eq!(e.hardware(), Some(HwError::IllegalInstruction), "{r}");
            seen("fault");
        } else if is_load {
            let dst = DATA + r["dst"].as_u64().unwrap() as u32;
            let (smem, tx) = load(&map, &coords, dst, &fills[r["fill"].as_str().unwrap()])
                .unwrap_or_else(|e| panic!("{r}: {e}"));
            let n = r["n"].as_u64().unwrap() as usize;
            assert_eq!(u64::from(crc32(&smem[..n])), hex(&r["crc32"]), "{r}");
            seen("load");
            match (r.get("tx").and_then(Value::as_u64), map.interleave) {
                (Some(want), Interleave::None) => {
                    assert_eq!(u64::from(tx), want, "{r}");
                    seen("load with tx");
                }
                (None, Interleave::None) => {
                    seen("load without recorded tx (the probe did not try the right count)")
                }
                // The probe tried too small counts, some of which complete early because the bytes are
                // counted piece by piece; the data itself settles how many there are.
                (want, _) => {
                    assert!(want.is_none_or(|w| w < u64::from(tx)), "{r}");
                    seen("interleaved load, tx not comparable (early completions of too small counts)");
                }
            }
        } else {
            let smem = if r["tag"].as_str().unwrap().contains("conv") { rand } else { &plain[..] };
            check_store(r, &map, &coords, smem);
            seen(if r["red"] == 1 { "reduction" } else { "store" });
        }
    }
    println!("{count:#?}");
    let n = |k| count.get(k).copied().unwrap_or(0);
    assert_eq!(n("load") + n("store") + n("reduction") + n("fault") + n("refused by the encoder"), 927);
    assert_eq!(all.len(), 927);
}

fn check_store(r: &Value, map: &TensorMap, coords: &[i32], smem: &[u8]) {
    let red = r["red"] == 1;
    let word: u32 = if red { 0x10 } else { 0xcdcd_cdcd };
    let before = bytes(std::iter::repeat_n(word, 3 << 14));
    let mut after = before.clone();
    let mut chunks = Vec::new();
    let src = DATA + r["src"].as_u64().unwrap() as u32;
    store_chunks(map, coords, src, &mut chunks).unwrap_or_else(|e| panic!("{r}: {e}"));
    for Chunk { smem: s, global, len, valid } in chunks {
        if valid == 0 {
            continue;
        }
        assert_eq!((valid, len), (0xffff, 16), "stores write whole chunks");
        let from = &smem[(s - DATA) as usize..][..16];
        let to = &mut after[(global - BASE) as usize..][..16];
        if red {
            let ty = NumType::of_tensor(map.elem).expect("a reducible type");
            assert!(reduce(ReduceOp::Add, ty, to, from));
        } else {
            to.copy_from_slice(from);
        }
    }
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count() as u64;
    assert_eq!(changed, r["changed"].as_u64().unwrap(), "{r}");
    if changed != 0 {
        let lo = (1 << 16) + r["lo"].as_u64().unwrap() as usize;
        let len = r["len"].as_u64().unwrap() as usize;
        assert_eq!(u64::from(crc32(&after[lo..lo + len])), hex(&r["crc32"]), "{r}");
    }
}

#[test]
fn reduce_add() {
    let all = records("tma_reduce_add.jsonl");
    let operand = |name| {
        let r = all.iter().find(|r| r["operand"] == name).expect("both operands");
        base64(r["b64"].as_str().unwrap())
    };
    let (smem, global) = (operand("smem"), operand("global before"));
    let mut matched = 0;
    for r in all.iter().filter(|r| r.get("dtype").is_some()) {
        let elem = ElemType::from_host(r["dtype"].as_u64().unwrap() as u32).unwrap();
        let ty = NumType::of_tensor(elem).unwrap();
        let mut got = global.clone();
        assert!(reduce(ReduceOp::Add, ty, &mut got, &smem));
        let want = base64(r["b64"].as_str().unwrap());
        let es = ty.bytes();
        for i in (0..want.len()).step_by(es) {
            let (g, s) = (&global[i..i + es], &smem[i..i + es]);
            assert_eq!(got[i..i + es], want[i..i + es], "{ty:?} at {i}: {g:02x?} + {s:02x?}");
        }
        matched += 1;
    }
    println!("{matched} result arrays of {} bytes", global.len());
    assert_eq!(matched, 4);
}

/// Hand-flipped map bits: the load gives the same bytes, other bytes, or faults.
#[test]
fn flipped_bits() {
    let specials = [
        0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x807fffff, 0x800000, 0x7f800000, 0xff800000, 0x7fc00000,
        0x7f800001, 0xffffffff, 0x3f801000, 0x3f800fff, 0x3f801001, 0x3f803000,
    ];
    let global = bytes(random_words(1 << 18, &specials));
    let flip = |host_type: u32, bits: &[u32]| {
        let elem = ElemType::from_host(host_type).unwrap();
        let es = u64::from(elem.bytes());
        let args = EncodeArgs::new(elem, BASE, &[256 / es, 48], &[256], &[128 / es as u32, 8]);
        let mut map = encode(&args).unwrap();
        for &b in bits {
            map[b as usize / 8] ^= 1 << (b % 8);
        }
        let map = TensorMap::decode(&map)?;
        load(&map, &[-16 / es as i32, -1], DATA, &global).map(|(smem, _)| smem[..1536].to_vec())
    };
    let (f32, f16, bf16, u32_) = (7, 6, 9, 2);
    let base = flip(f32, &[]).unwrap();
    let all = records("flags_tensormap.jsonl");
    let mut count = BTreeMap::<&str, usize>::new();
    for r in &all {
        let name = r["name"].as_str().unwrap();
        let number = |prefix: &str| name.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok());
        let got = match name {
            "base" => flip(f32, &[]),
            "w2_lo2_b21" => flip(f32, &[65, 85]),
            "w7hi_16" => flip(f32, &[240]),
            "w7bit0" => flip(f32, &[228]),
            "int_tf32flag" => flip(u32_, &[80]),
            "bf16_tf32flag" => flip(bf16, &[80]),
            "oob_on_u32" => flip(u32_, &[79]),
            "f16_b21" => flip(f16, &[85]),
            "l2_1" => flip(f32, &[81]),
            "l2_2" => flip(f32, &[82]),
            "inter3" => flip(f32, &[75, 76]),
            "rank_lo" => flip(f32, &[68]),
            "rank7" => flip(f32, &[69, 70]),
            _ => {
                if let Some(bit) = number("w2bit") {
                    flip(f32, &[64 + bit])
                } else if let Some(bit) = number("w13bit") {
                    flip(f32, &[13 * 32 + bit])
                } else if let Some(bit) = number("addr") {
                    flip(f32, &[bit])
                } else if let Some(code) = number("et") {
                    // f32 is type 7; flip what differs from the wanted code.
                    let bits: Vec<u32> =
                        (0..4).filter(|i| (7 ^ code) >> i & 1 != 0).map(|i| 71 + i).collect();
                    flip(f32, &bits)
                } else {
                    panic!("unknown record {r}")
                }
            }
        };
        let answer = match got {
            Err(_) => "fault",
            Ok(b) if b == base => "same",
            Ok(_) => "differs",
        };
        assert_eq!(answer, r["result"], "{r}");
        *count.entry(answer).or_default() += 1;
    }
    println!("{count:?}");
    assert_eq!(all.len(), 43);
}
