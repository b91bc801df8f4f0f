//! wgmma and mma.sync as PTX against recorded answers of an H200, bit for bit: every recorded tile with A from shared
//! memory and from registers, and every recorded descriptor through execution.

mod silicon;
mod silicon_util;

use ptx_emu::{GlobalMemory, Launch, Options, Schedule};
use serde_json::Value;
use silicon::{records, words};
use std::collections::HashMap;

/// Element type in PTX, its file, bytes of an element. Every row of A and B has 32 bytes.
const FORMATS: [(&str, &str, usize); 4] = [
    ("bf16", "wgmma_bf16.jsonl", 2),
    ("f16", "wgmma_f16.jsonl", 2),
    ("tf32", "wgmma_tf32.jsonl", 4),
    ("e4m3", "wgmma_e4m3.jsonl", 1),
];
const ROWS: usize = 64;
const COLUMNS: usize = 8;
/// Shared memory of a tile: 64 rows of A and 8 of B.
const IMAGE: usize = 72 * 32;

/// A recorded tile: elements of A, B, C and D, row-major.
struct Tile {
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
    d: Vec<u32>,
}

fn tiles(file: &str, size: usize) -> Vec<Tile> {
    let (mut a, mut c, mut tiles) = (HashMap::new(), HashMap::new(), Vec::new());
    for r in records(file) {
        match r["pool"].as_str() {
            Some("A") => drop(a.insert(r["i"].as_u64(), words(&r["b64"], size))),
            Some(_) => drop(c.insert(r["i"].as_u64(), words(&r["b64"], 4))),
            None => tiles.push(r),
        }
    }
    let tile = |r: &Value| Tile {
        a: a[&r["a"].as_u64()].clone(),
        b: words(&r["b"], size),
        c: c[&r["c"].as_u64()].clone(),
        d: words(&r["d"], 4),
    };
    assert_eq!(tiles.len(), 256);
    tiles.iter().map(tile).collect()
}

/// Puts rows of 32 bytes where a descriptor without swizzle, LBO 128 and SBO 256, finds them.
fn place(rows: &[u32], size: usize, image: &mut [u8]) {
    let k = 32 / size;
    for (i, v) in rows.iter().enumerate() {
        let (row, byte) = (i / k, i % k * size);
        let at = row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
        image[at..at + size].copy_from_slice(&v.to_le_bytes()[..size]);
    }
}

/// The 16-byte units of the image come from global memory; C and D are read and written as fragments.
const PROLOGUE: &str = "
    .shared .align 1024 .b8 s[2304];
    .reg .b32 t, cta, base, a, x<4>, r, y, af<4>, bf<2>;
    .reg .f32 d<4>;
    .reg .b64 p, q, da, db, o;
    .reg .pred few, on;
    mov.u32 t, %tid.x;
    mov.u32 cta, %ctaid.x;
    ld.param.u64 p, [ab];
    mad.wide.u32 p, cta, 2304, p;
    mov.u32 base, s;
    mov.u32 y, t;
COPY:
    mad.wide.u32 q, y, 16, p;
    ld.global.v4.u32 {x0, x1, x2, x3}, [q];
    shl.b32 a, y, 4;
    add.u32 a, a, base;
    st.shared.v4.u32 [a], {x0, x1, x2, x3};
    mov.u32 r, %ntid.x;
    add.u32 y, y, r;
    setp.lt.u32 few, y, 144;
    @few bra COPY;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 r, t, 5;
    shl.b32 r, r, 4;
    and.b32 y, t, 31;
    shr.u32 y, y, 2;
    add.u32 r, r, y;
    shl.b32 r, r, 5;
    and.b32 y, t, 3;
    shl.b32 y, y, 3;
    add.u32 r, r, y;
    cvt.u64.u32 o, r;
    ld.param.u64 p, [c];
    mad.wide.u32 p, cta, 2048, p;
    add.u64 p, p, o;
    ld.global.v2.f32 {d0, d1}, [p];
    ld.global.v2.f32 {d2, d3}, [p+256];
    shr.u32 a, base, 4;
    cvt.u64.u32 da, a;
    or.b64 da, da, 0x0000001000080000;
    add.u64 db, da, 128;
    shr.u32 a, t, 5;
    and.b32 y, t, 31;
    shl.b32 y, y, 2;
    add.u32 base, base, y;
    mad.lo.u32 a, a, 512, base;
    ld.shared.b32 af0, [a];
    ld.shared.b32 af1, [a+256];
    ld.shared.b32 af2, [a+128];
    ld.shared.b32 af3, [a+384];
    ld.shared.b32 bf0, [base+2048];
    ld.shared.b32 bf1, [base+2176];
    setp.eq.u32 on, 0, 0;
";

const EPILOGUE: &str = "
    ld.param.u64 p, [d];
    mad.wide.u32 p, cta, 2048, p;
    add.u64 p, p, o;
    st.global.v2.f32 [p], {d0, d1};
    st.global.v2.f32 [p+256], {d2, d3};
    ret;
";

fn kernel(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.entry k(.param .u64 ab, .param .u64 c, .param .u64 d) {{\
         {PROLOGUE}{body}{EPILOGUE}}}\n"
    )
}

fn wgmma(ty: &str, size: usize, operands: &str) -> String {
    let k = 32 / size;
    format!(
        "wgmma.fence.sync.aligned;
         wgmma.mma_async.sync.aligned.m64n8k{k}.f32.{ty}.{ty} {{d0, d1, d2, d3}}, {operands};
         wgmma.commit_group.sync.aligned;
         wgmma.wait_group.sync.aligned 0;"
    )
}

/// Runs `body` on every tile, one CTA each; all of D, tile after tile.
fn run(body: &str, threads: u32, tiles: &[Tile], size: usize, schedule: Schedule) -> Vec<u32> {
    let (mut images, mut c) = (vec![0u8; tiles.len() * IMAGE], Vec::new());
    for (t, image) in tiles.iter().zip(images.chunks_mut(IMAGE)) {
        place(&t.a, size, &mut image[..2048]);
        place(&t.b, size, &mut image[2048..]);
        c.extend(t.c.iter().flat_map(|v| v.to_le_bytes()));
    }
    let mut gmem = GlobalMemory::new();
    let [ab, c_at, d_at] = [images.len(), c.len(), c.len()].map(|n| gmem.alloc("buffer", n as u64, 256));
    gmem.write(ab, &images).unwrap();
    gmem.write(c_at, &c).unwrap();
    let text = kernel(body);
    let module = ptx_emu::syntax::parse("tile.ptx", &text).unwrap_or_else(|e| panic!("{e}"));
    let launch = Launch {
        module: &module,
        entry: "k",
        grid: [tiles.len() as u32, 1, 1],
        block: [threads, 1, 1],
        cluster: [1, 1, 1],
        dynamic_smem: 0,
        params: [ab, c_at, d_at].iter().flat_map(|a| a.to_le_bytes()).collect(),
        outputs: vec![],
        annotations: Default::default(),
    };
    let report = ptx_emu::run(&launch, &mut gmem, &Options { schedule, strict: true, ..Options::default() });
    assert!(report.is_clean(), "{:?}\n{body}", report.verdict);
    let bytes = gmem.read(d_at, c.len()).unwrap();
    bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()
}

fn compare(what: &str, tiles: &[Tile], rows: usize, got: &[u32]) {
    for (i, (t, got)) in tiles.iter().zip(got.chunks(ROWS * COLUMNS)).enumerate() {
        for e in 0..rows * COLUMNS {
            let (g, want) = (got[e], t.d[e]);
            assert_eq!(g, want, "{what}, tile {i}, [{}][{}]: {g:08x}, silicon {want:08x}", e / 8, e % 8);
        }
    }
}

#[test]
fn tiles_from_shared_memory() {
    for (ty, file, size) in FORMATS {
        let tiles = tiles(file, size);
        let trans = if size == 2 { ", 0, 0" } else { "" };
        let body = wgmma(ty, size, &format!("da, db, on, 1, 1{trans}"));
        for schedule in Schedule::ALL {
            let got = run(&body, 128, &tiles, size, schedule);
            compare(&format!("{ty} {}", schedule.as_str()), &tiles, ROWS, &got);
        }
    }
}

/// The H200 gave the same bits with A from registers.
#[test]
fn tiles_from_registers() {
    for (ty, file, size) in FORMATS {
        let tiles = tiles(file, size);
        let trans = if size == 2 { ", 0" } else { "" };
        let body = wgmma(ty, size, &format!("{{af0, af1, af2, af3}}, db, 1, 1, 1{trans}"));
        compare(ty, &tiles, ROWS, &run(&body, 128, &tiles, size, Schedule::LateLifo));
    }
}

/// On the H200 an imm-scale of −1 is a flip of that operand's signs.
#[test]
fn negated_operands() {
    for (ty, file, size) in FORMATS {
        let trans = if size == 2 { ", 0, 0" } else { "" };
        for (scales, flip_a) in [("-1, 1", true), ("1, -1", false)] {
            let mut flipped = tiles(file, size);
            for t in &mut flipped {
                let x = if flip_a { &mut t.a } else { &mut t.b };
                x.iter_mut().for_each(|v| *v ^= 1 << (8 * size - 1));
            }
            let body = wgmma(ty, size, &format!("da, db, on, {scales}{trans}"));
            compare(
                &format!("{ty} {scales}"),
                &flipped,
                ROWS,
                &run(&body, 128, &flipped, size, Schedule::Eager),
            );
        }
    }
}

/// scale-d = 0 is C = +0 and does not read the accumulator, which may be undefined.
#[test]
fn no_accumulation() {
    let mut tiles = tiles("wgmma_bf16.jsonl", 2);
    let with = wgmma("bf16", 2, "da, db, on, 1, 1, 0, 0");
    let without = wgmma("bf16", 2, "da, db, !on, 1, 1, 0, 0");
    let got = run(&without, 128, &tiles, 2, Schedule::Random);
    tiles.iter_mut().for_each(|t| t.c.fill(0));
    assert_eq!(got, run(&with, 128, &tiles, 2, Schedule::Eager));
}

/// mma.sync gives wgmma's bits for f16, bf16 and tf32, and its own for e4m3.
#[test]
fn mma_sync_tiles() {
    for (ty, file, size) in FORMATS {
        let mut tiles = tiles(file, size);
        if ty == "e4m3" {
            let results: Vec<Value> = records("mma_sync_e4m3.jsonl");
            let of = |r: &Value| r["t"].as_u64().unwrap() as usize;
            let keep: HashMap<usize, &Value> = results.iter().map(|r| (of(r), r)).collect();
            let mut i = 0;
            tiles.retain_mut(|t| {
                let r = keep.get(&i);
                i += 1;
                if let Some(r) = r {
                    t.d = words(&r["d"], 4);
                }
                r.is_some()
            });
            assert_eq!(tiles.len(), 32);
        }
        let k = 32 / size;
        let body = format!(
            "mma.sync.aligned.m16n8k{k}.row.col.f32.{ty}.{ty}.f32
             {{d0, d1, d2, d3}}, {{af0, af1, af2, af3}}, {{bf0, bf1}}, {{d0, d1, d2, d3}};"
        );
        compare(&format!("mma.sync {ty}"), &tiles, 16, &run(&body, 32, &tiles, size, Schedule::Eager));
    }
}

/// Shared memory of the descriptor test: all that a CTA can have.
const SHARED: usize = 232_448;
const WINDOW: u32 = 0x400;
/// The identity operand stands at the very end.
const IDENTITY: usize = SHARED - 2048;

/// Every recorded descriptor, executed: each element of shared memory holds one digit of its own address, the other
/// operand is the identity, so that D spells out which bytes were read.
#[test]
fn descriptors() {
    let all = records("wgmma_desc_map.jsonl");
    assert_eq!(all.len(), 736);
    let mut by_op: HashMap<&str, Vec<&Value>> = HashMap::new();
    for r in &all {
        by_op.entry(r["op"].as_str().unwrap()).or_default().push(r);
    }
    for (op, list) in by_op {
        let (ty, size) = match op {
            _ if op.ends_with("tf32") => ("tf32", 4),
            _ if op.ends_with("e4m3") => ("e4m3", 1),
            _ => ("f16", 2),
        };
        let (k, is_a, mn) = (32 / size, op.starts_with('A'), u32::from(op.ends_with("MN")));
        let (rows, n) = if is_a { (64, k) } else { (128, 128) };
        let registers = n / 2;
        let d = (0..registers).map(|i| format!("d{i}")).collect::<Vec<_>>().join(", ");
        let trans = match (size, is_a) {
            (2, true) => format!(", {mn}, 0"),
            (2, false) => format!(", 0, {mn}"),
            _ => String::new(),
        };
        let identity = (IDENTITY as u64 + u64::from(WINDOW)) >> 4 | 0x0000_0010_0008_0000;
        let operands = if is_a { "x, y" } else { "y, x" };
        let stores: String =
            (0..registers).map(|i| format!("st.global.f32 [o+{}], d{i};\n", 4 * i)).collect();
        let text = format!(
            ".version 8.7\n.target sm_90a\n.address_size 64
            .extern .shared .align 1024 .b8 s[];
            .entry k(.param .u64 image, .param .u64 list, .param .u64 out) {{
            .reg .b32 t, a, i, v<4>;
            .reg .b64 p, x, y, o;
            .reg .f32 d<{registers}>;
            .reg .pred more;
            mov.u32 t, %tid.x;
            mov.u32 i, t;
            ld.param.u64 x, [image];
            COPY:
            mad.wide.u32 p, i, 16, x;
            ld.global.v4.u32 {{v0, v1, v2, v3}}, [p];
            shl.b32 a, i, 4;
            mov.u32 v4, s;
            add.u32 a, a, v4;
            st.shared.v4.u32 [a], {{v0, v1, v2, v3}};
            add.u32 i, i, 128;
            setp.lt.u32 more, i, {};
            @more bra COPY;
            fence.proxy.async.shared::cta;
            bar.sync 0;
            mov.u64 y, {identity};
            ld.param.u64 p, [list];
            ld.param.u64 o, [out];
            mad.wide.u32 o, t, {}, o;
            mov.u32 i, 0;
            NEXT:
            ld.global.u64 x, [p];
            add.u64 p, p, 8;
            wgmma.fence.sync.aligned;
            wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{ty}.{ty} {{{d}}}, {operands}, 0, 1, 1{trans};
            wgmma.commit_group.sync.aligned;
            wgmma.wait_group.sync.aligned 0;
            {stores}
            add.u64 o, o, {};
            add.u32 i, i, 1;
            setp.lt.u32 more, i, {};
            @more bra NEXT;
            ret; }}",
            SHARED / 16,
            4 * registers,
            4 * registers * 128,
            list.len(),
        )
        .replace("v<4>", "v<5>");
        let module = ptx_emu::syntax::parse("descriptors.ptx", &text).unwrap_or_else(|e| panic!("{e}"));
        // e4m3 counts exactly to 16, the others to 1024 and more.
        let (digit_bits, digits) = if size == 1 { (4, 5) } else { (9, 2) };
        let mut read = vec![vec![0u32; rows * k]; list.len()];
        for digit in 0..digits {
            let mut image: Vec<u8> = (0..SHARED / size)
                .flat_map(|i| {
                    let v = (i * size) as u32 >> (digit * digit_bits) & ((1 << digit_bits) - 1);
                    encode(ty, v).to_le_bytes().into_iter().take(size)
                })
                .collect();
            let one = encode(ty, 1);
            let identity: Vec<u32> = (0..64 * k).map(|i| if i / k == i % k { one } else { 0 }).collect();
            place(&identity, size, &mut image[IDENTITY..]);
            let mut gmem = GlobalMemory::new();
            let out_bytes = list.len() * registers * 128 * 4;
            let [im, descs, out] =
                [SHARED, 8 * list.len(), out_bytes].map(|n| gmem.alloc("buffer", n as u64, 256));
            gmem.write(im, &image).unwrap();
            let bits: Vec<u8> =
                list.iter().flat_map(|r| silicon_util::hex(&r["desc"]).to_le_bytes()).collect();
            gmem.write(descs, &bits).unwrap();
            let launch = Launch {
                module: &module,
                entry: "k",
                grid: [1, 1, 1],
                block: [128, 1, 1],
                cluster: [1, 1, 1],
                dynamic_smem: SHARED as u32,
                params: [im, descs, out].iter().flat_map(|a| a.to_le_bytes()).collect(),
                outputs: vec![(out, out_bytes as u64)],
                annotations: Default::default(),
            };
            let report = ptx_emu::run(&launch, &mut gmem, &Options::default());
            assert!(report.is_clean(), "{op}: {:?}", report.verdict);
            let bytes = gmem.read(out, out_bytes).unwrap();
            let value = |i: usize| f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap()) as u32;
            for (j, read) in read.iter_mut().enumerate() {
                for t in 0..128 {
                    for i in 0..registers {
                        let row = 16 * (t / 32) + t % 32 / 4 + 8 * (i >> 1 & 1);
                        let column = 8 * (i >> 2) + 2 * (t % 4) + (i & 1);
                        // A · 1 has the elements of A; 1 · Bᵀ those of B, k by n.
                        let (r, kk) = if is_a { (row, column) } else { (column, row) };
                        if kk < k {
                            read[r * k + kk] += value((j * 128 + t) * registers + i) << (digit * digit_bits);
                        }
                    }
                }
            }
        }
        for (r, read) in list.iter().zip(&mut read) {
            read.iter_mut().for_each(|a| *a += WINDOW);
            let at = |row: usize, kk: usize| u64::from(read[row * k + kk]);
            for (field, row, kk) in
                [("a00", 0, 0), ("a10", 1, 0), ("a01", 0, 1), ("a90", 9, 0), ("last", rows - 1, k - 1)]
            {
                assert_eq!(at(row, kk), r[field].as_u64().unwrap(), "{field} of {r}");
            }
            let crc = silicon_util::crc32(&silicon_util::bytes(read.iter().copied()));
            assert_eq!(u64::from(crc), silicon_util::hex(&r["crc32"]), "{r}");
        }
    }
}

/// A small integer in an element type.
fn encode(ty: &str, v: u32) -> u32 {
    let bits = (v as f32).to_bits();
    let (man, bias) = match ty {
        "tf32" => return bits,
        "f16" => (10, 15),
        _ => (3, 7),
    };
    if v == 0 { 0 } else { (((bits >> 23) + bias - 127) << man) | (bits >> (23 - man) & ((1 << man) - 1)) }
}
