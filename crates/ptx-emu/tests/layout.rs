//! Layouts of tcgen05 against grids drawn from the manual's tables (`layout/*.golden`), and descriptors against
//! what TMA writes.

use ptx_emu::isa::idesc::{self, AccType, InputType, Issue, Kind};
use ptx_emu::isa::smem_desc::{DescError, Major, SmemDesc, element_addrs};
use ptx_emu::isa::tcgen05_layout::*;
use ptx_emu::tma::{Chunk, ElemType, EncodeArgs, Swizzle, TensorMap, encode, load_chunks};
use std::collections::BTreeMap;

/// Sections of a golden file: name → lines, runs of blanks collapsed.
fn golden(name: &str) -> BTreeMap<String, Vec<String>> {
    let path = format!("{}/tests/layout/{name}.golden", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut out = BTreeMap::<String, Vec<String>>::new();
    let mut section = String::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.strip_prefix('[') {
            Some(rest) => section = rest.split(']').next().unwrap().to_string(),
            None => out.entry(section.clone()).or_default().push(squeeze(line)),
        }
    }
    out
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Draws the grid of a map from cell to label, for the lanes and columns that occur in `lanes` and the map.
fn grid(cells: &BTreeMap<(u32, u32), String>, lanes: &[u32]) -> Vec<String> {
    let mut cols: Vec<u32> = cells.keys().map(|k| k.1).collect();
    cols.sort_unstable();
    cols.dedup();
    let mut out = vec![cols.iter().fold("lane |".to_string(), |s, c| format!("{s} c{c}"))];
    for &l in lanes {
        let row = |s, c| format!("{s} {}", cells.get(&(l, c)).map_or("-", String::as_str));
        out.push(cols.iter().fold(format!("{l} |"), |s, &c| row(s, c)));
    }
    out
}

const SHAPES: [(&str, LdStShape, u32, u32); 5] = [
    ("32x32b.x4", LdStShape::S32x32b, 4, 0),
    ("16x64b.x2", LdStShape::S16x64b, 2, 0),
    ("16x128b.x2", LdStShape::S16x128b, 2, 0),
    ("16x256b.x2", LdStShape::S16x256b, 2, 0),
    ("16x32bx2.x4, half split 6", LdStShape::S16x32bx2, 4, 6),
];

#[test]
fn ld_st_registers() {
    let want = golden("ld_st");
    assert_eq!(want.len(), SHAPES.len());
    for (name, shape, n, split) in SHAPES {
        let mut cells = BTreeMap::new();
        for t in 0..32 {
            for r in 0..shape.registers(n).unwrap() {
                let old = cells.insert(ld_st_cell(shape, t, r, split), format!("t{t}.r{r}"));
                assert_eq!(old, None, "{name}: two registers in one cell");
            }
        }
        let lanes: Vec<u32> = (0..shape.lanes()).collect();
        assert_eq!(grid(&cells, &lanes), want[name], "{name}");
        if shape != LdStShape::S16x32bx2 {
            assert_eq!(cells.keys().map(|k| k.1).max(), Some(shape.columns(n) - 1), "{name}");
        }
    }
}

#[test]
fn packed_registers() {
    let want = golden("pack_16b");
    let shapes = [
        ("32x32b.x2", LdStShape::S32x32b, 2, 0, vec![0, 1, 31]),
        ("16x64b.x1", LdStShape::S16x64b, 1, 0, (0..16).collect()),
        ("16x128b.x1", LdStShape::S16x128b, 1, 0, (0..16).collect()),
        ("16x256b.x1", LdStShape::S16x256b, 1, 0, (0..16).collect()),
        ("16x32bx2.x2, half split 4", LdStShape::S16x32bx2, 2, 4, (0..16).collect::<Vec<u32>>()),
    ];
    assert_eq!(want.len(), shapes.len());
    for (name, shape, n, split, lanes) in shapes {
        let mut cells = BTreeMap::new();
        for t in 0..32 {
            for r in 0..shape.registers(n).unwrap() {
                for (cell, half) in ld_st_cells_16b(shape, t, r, split).into_iter().zip(["lo", "hi"]) {
                    let old = cells.insert(cell, format!("t{t}.r{r}{half}"));
                    assert_eq!(old, None, "{name}: two halves in one cell");
                }
            }
        }
        assert_eq!(grid(&cells, &lanes), want[name], "{name}");
    }
}

#[test]
fn register_counts() {
    use LdStShape::*;
    let counts =
        |s: LdStShape| -> Vec<Option<u32>> { [1, 3, 32, 64, 128, 256].map(|n| s.registers(n)).into() };
    assert_eq!(counts(S32x32b), [Some(1), None, Some(32), Some(64), Some(128), None]);
    assert_eq!(counts(S16x128b), [Some(2), None, Some(64), Some(128), None, None]);
    assert_eq!(counts(S16x256b), [Some(4), None, Some(128), None, None, None]);
}

#[test]
fn accumulators() {
    let want = golden("accumulator");
    let layouts = [
        ("A", DLayout::A, DLayout::of(256, true, false, false), 256),
        ("B", DLayout::B, DLayout::of(128, true, false, false), 128),
        ("C", DLayout::C, DLayout::of(128, true, false, true), 128),
        ("D", DLayout::D, DLayout::of(128, false, true, false), 128),
        ("E", DLayout::E, DLayout::of(64, false, true, false), 64),
        ("F", DLayout::F, DLayout::of(64, false, false, false), 64),
        ("G", DLayout::G, DLayout::of(32, false, true, false), 32),
    ];
    assert_eq!(want.len(), layouts.len());
    let n = 64;
    for (name, layout, of, m) in layouts {
        assert_eq!(of, Some(layout));
        let header = "m \\ n | 0..15 16..31 32..47 48..63".to_string();
        let mut got = vec![header];
        for mb in (0..m).step_by(16) {
            let mut line = format!("{mb}..{:>3}|", mb + 15);
            for nb in (0..n).step_by(16) {
                let Cell { cta, lane, col } = layout.cell(mb, nb, n);
                for (i, j) in (0..16).flat_map(|i| (0..16).map(move |j| (i, j))) {
                    let inner = layout.cell(mb + i, nb + j, n);
                    assert_eq!(inner, Cell { cta, lane: lane + i, col: col + j }, "{name} {mb} {nb}");
                    // A from TMEM: whatever the layout, the row is read from the accumulator's own lane.
                    let (a, bit) = layout.a_cell(mb + i, nb + j, n, 5, 16);
                    assert_eq!((a, bit), (Cell { cta, lane: lane + i, col: 2 }, 16));
                }
                line += &format!(" cta{cta} l{lane}..{} c{col}..{}", lane + 15, col + 15);
            }
            got.push(squeeze(&line));
        }
        assert_eq!(got, want[name], "{name}");
    }
    assert_eq!(DLayout::of(64, true, false, false), None);
    assert_eq!([DLayout::D.columns(64), DLayout::B.columns(64), DLayout::G.columns(64)], [64, 32, 16]);
}

#[test]
fn cp_lanes() {
    let want = golden("cp");
    assert_eq!(want.len(), 6);
    for (name, lines) in want {
        let (shape, multicast) = name.split_once('.').map_or((&name[..], None), |(s, m)| (s, Some(m)));
        let shape = CpShape::from_modifiers(shape, multicast).unwrap();
        for line in lines {
            let row: u32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
            let lanes: String = shape.lanes(row).map(|l| format!(" {l}")).collect();
            assert_eq!(format!("row {row} ->{lanes}"), line, "{name}");
        }
        let mut seen: Vec<u32> = (0..shape.rows()).flat_map(|r| shape.lanes(r)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), if shape == CpShape::S4x256b { 4 } else { 128 }, "{name}: lanes written once");
    }
    assert_eq!(CpShape::from_modifiers("64x128b", None), None);
}

#[test]
fn swizzle_patterns() {
    let want = golden("swizzle");
    let modes = [
        ("32B", Swizzle::B32),
        ("64B", Swizzle::B64),
        ("128B", Swizzle::B128),
        ("128B, 32B atom", Swizzle::B128Atom32),
        ("128B, 32B atom, 8B flip", Swizzle::B128Atom32Flip8),
        ("128B, 64B atom", Swizzle::B128Atom64),
    ];
    assert_eq!(want.len(), modes.len());
    for (name, mode) in modes {
        let got: Vec<String> = (0..mode.repeat() / 128)
            .map(|line| {
                let unit = |u: u32| {
                    let logical = mode.swz(line * 128 + u * 16);
                    let flip = if logical % 16 != 0 { "h" } else { "" };
                    format!(" {}{flip}", logical / 16 % 8)
                };
                format!("line {line} |{}", (0..8).map(unit).collect::<String>())
            })
            .collect();
        assert_eq!(got, want[name], "{name}");
    }
}

/// bf16 tiles as attention kernels hold them: TMA writes panels of one swizzle span's width, the descriptor
/// walks them. Element for element, the descriptor must point at the bytes that TMA put there.
#[test]
fn descriptors_find_what_tma_wrote() {
    const DST: u32 = 0x4400; // a multiple of 1024
    let (rows, cols) = (64u32, 128u32);
    for (host, code, span) in [(3, 2u64, 128u32), (2, 4, 64), (1, 6, 32)] {
        let panel_cols = span / 2;
        let mut args = EncodeArgs::new(ElemType::BF16, 0x10000, &[128, 64], &[256], &[panel_cols, rows]);
        args.swizzle = host;
        let map = TensorMap::decode(&encode(&args).unwrap()).unwrap();
        // Shared address of every tensor element.
        let mut place = vec![0u32; (rows * cols) as usize];
        let mut chunks: Vec<Chunk> = Vec::new();
        for p in 0..cols / panel_cols {
            let dst = DST + p * rows * span;
            load_chunks(&map, &[(p * panel_cols) as i32, 0], dst, &mut chunks).unwrap();
            for c in &chunks {
                assert_eq!(c.valid, 0xffff);
                let first = (c.global - 0x10000) as u32 / 2;
                (0..8).for_each(|i| place[(first + i) as usize] = c.smem + 2 * i);
            }
        }
        let desc = |start: u32, lbo: u32, sbo: u32| {
            let e = |x: u32| u64::from(x >> 4);
            SmemDesc::tcgen05(e(start) | e(lbo) << 16 | e(sbo) << 32 | 1 << 46 | code << 61).unwrap()
        };
        let mut got = Vec::new();
        // Q or K: rows are M or N, columns are K; 32 bytes a step inside a panel, then the next panel.
        for step in 0..cols / 16 {
            let steps_in_panel = panel_cols / 16;
            let (p, s) = (step / steps_in_panel, step % steps_in_panel);
            let d = desc(DST + p * rows * span + 32 * s, 16, 8 * span);
            element_addrs(&d, Major::K, 16, rows, 16, &mut got).unwrap();
            for (r, k) in (0..rows).flat_map(|r| (0..16).map(move |k| (r, k))) {
                let want = place[(r * cols + step * 16 + k) as usize];
                assert_eq!(got[(r * 16 + k) as usize], want, "K-major, span {span}, step {step}, ({r}, {k})");
            }
        }
        // V: columns are N, rows are K; 16 rows a step.
        for step in 0..rows / 16 {
            let d = desc(DST + step * 16 * span, rows * span, 8 * span);
            element_addrs(&d, Major::Mn, 16, cols, 16, &mut got).unwrap();
            for (n, k) in (0..cols).flat_map(|n| (0..16).map(move |k| (n, k))) {
                let want = place[((step * 16 + k) * cols + n) as usize];
                assert_eq!(
                    got[(n * 16 + k) as usize],
                    want,
                    "MN-major, span {span}, step {step}, ({n}, {k})"
                );
            }
        }
        // tcgen05.cp reads the same rows in 16-byte units.
        for (r, u) in (0..rows).flat_map(|r| (0..2).map(move |u| (r, u))) {
            let want = place[(r * cols + 8 * u) as usize];
            assert_eq!(cp_source(&desc(DST, 16, 8 * span), r, u), want);
        }
    }
}

#[test]
fn descriptor_words() {
    let d = SmemDesc::tcgen05(0x4000_4040_0001_1000).unwrap();
    let want = SmemDesc { start: 0x10000, lbo: 16, sbo: 1024, base_offset: 0, swizzle: Swizzle::B128 };
    assert_eq!(d, want);
    assert_eq!(SmemDesc::wgmma(0x4000_0040_0001_1000), want);
    let bad = |d: u64| SmemDesc::tcgen05(d).unwrap_err();
    assert!(matches!(bad(0x4000_0040_0001_1000), DescError::Constant { value: 0, .. }));
    for code in [3u64, 5, 7] {
        assert!(matches!(bad(code << 61 | 1 << 46), DescError::Swizzle { .. }));
    }
    assert!(matches!(bad(1 << 52 | 1 << 46), DescError::AbsoluteLbo(_)));
    assert!(matches!(bad(1 << 55 | 1 << 46), DescError::Reserved(_)));
    let mut out = Vec::new();
    assert!(element_addrs(&d, Major::Mn, 32, 8, 8, &mut out).is_err(), "tf32 MN-major needs the 32B atom");
}

const ONE: Issue = Issue { cta_pair: false, ws: false };
const PAIR: Issue = Issue { cta_pair: true, ws: false };
const WS: Issue = Issue { cta_pair: false, ws: true };

#[test]
fn instruction_descriptors() {
    // Words that compilers and libraries emit.
    let cases = [
        (0x04200490u32, Kind::F16, ONE, (64, 128), InputType::BF16, false),
        (0x08200490, Kind::F16, ONE, (128, 128), InputType::BF16, false),
        (0x08400490, Kind::F16, ONE, (128, 256), InputType::BF16, false),
        (0x10400490, Kind::F16, PAIR, (256, 256), InputType::BF16, false),
        (0x08210490, Kind::F16, ONE, (128, 128), InputType::BF16, true),
        (0x08200010, Kind::F16, ONE, (128, 128), InputType::F16, false),
        (0x08200010, Kind::F8f6f4, ONE, (128, 128), InputType::E4m3, false),
    ];
    for (bits, kind, issue, mn, input, transpose_b) in cases {
        let d = idesc::decode(bits, kind, issue).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((d.m, d.n), mn, "0x{bits:08x}");
        assert_eq!((d.d, d.a, d.b), (AccType::F32, input, input), "0x{bits:08x}");
        assert_eq!((d.transpose_a, d.transpose_b), (false, transpose_b), "0x{bits:08x}");
    }
}

#[test]
fn illegal_instruction_descriptors() {
    let word = |m: u32, n: u32, rest: u32| m >> 4 << 24 | n >> 3 << 17 | rest;
    let field = |bits, kind, issue| idesc::decode(bits, kind, issue).unwrap_err().field;
    let bf16 = 0x490;
    assert_eq!(field(word(256, 128, bf16), Kind::F16, ONE), "M");
    assert_eq!(field(word(64, 128, bf16), Kind::F16, PAIR), "M");
    assert_eq!(field(word(128, 0, bf16), Kind::F16, ONE), "N");
    assert_eq!(field(word(128, 264, bf16), Kind::F16, ONE), "N");
    assert_eq!(field(word(256, 24, bf16), Kind::F16, PAIR), "N");
    assert_eq!(field(word(64, 96, bf16), Kind::F16, WS), "N");
    assert_eq!(field(word(128, 40, 0x20), Kind::I8, ONE), "N");
    assert_eq!(field(word(128, 24, 0x10 | 1 << 16), Kind::F8f6f4, ONE), "N");
    assert_eq!(field(word(128, 128, 0x10), Kind::Tf32, ONE), "A type");
    assert_eq!(field(word(128, 128, 0x480), Kind::F16, ONE), "D type");
    assert_eq!(field(word(128, 128, 0x110), Kind::F8f6f4, ONE), "A type");
    assert_eq!(field(word(128, 128, bf16 | 8), Kind::F16, ONE), "saturate");
    assert_eq!(field(word(128, 128, bf16 | 4), Kind::F16, ONE), "sparsity");
    assert_eq!(field(word(128, 128, bf16 | 1 << 23), Kind::F16, ONE), "bit 23");
    assert_eq!(field(word(128, 128, bf16 | 1 << 30), Kind::F16, ONE), "maximum B shift");
    assert_eq!(field(word(128, 128, 0x20 | 1 << 13), Kind::I8, ONE), "negate A/B");
    let e = idesc::decode(word(128, 12 << 3 | 8, bf16), Kind::F16, WS).unwrap_err();
    assert_eq!(e.to_string(), "instruction descriptor 0x081a0490: N is 104; allowed is 64, 128 or 256 (.ws)");
    assert!(idesc::decode(word(128, 24, bf16), Kind::F16, ONE).unwrap().coarser_n_step(ONE) == Some(16));
}
