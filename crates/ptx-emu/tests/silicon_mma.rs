//! The matrix unit's model against recorded tiles of an H200 (tests/silicon), bit for bit.

mod silicon;

use std::collections::HashMap;

use ptx_emu::num::mma::{Format, Model, Op, Scratch, mma, mma_sync_fp8};
use serde_json::Value;
use silicon::{records, words};

const ROWS: usize = 64;
const COLUMNS: usize = 8;

struct Tiles {
    k: usize,
    a: HashMap<u64, Vec<u32>>,
    c: HashMap<u64, Vec<u32>>,
    tiles: Vec<Value>,
}

fn load(file: &str, k: usize, size: usize) -> Tiles {
    let (mut a, mut c, mut tiles) = (HashMap::new(), HashMap::new(), Vec::new());
    for r in records(file) {
        match r["pool"].as_str() {
            Some("A") => drop(a.insert(r["i"].as_u64().unwrap(), words(&r["b64"], size))),
            Some(_) => drop(c.insert(r["i"].as_u64().unwrap(), words(&r["b64"], 4))),
            None => tiles.push(r),
        }
    }
    assert_eq!(tiles.len(), 256);
    Tiles { k, a, c, tiles }
}

fn op(model: Model, fmt: Format, m: usize, n: usize, k: usize) -> Op {
    Op { model, a_fmt: fmt, b_fmt: fmt, m, n, k, negate_a: false, negate_b: false }
}

fn check(file: &str, model: Model, fmt: Format, k: usize, size: usize) {
    let t = load(file, k, size);
    let mut scratch = Scratch::default();
    for r in &t.tiles {
        let (a, c) = (&t.a[&r["a"].as_u64().unwrap()], &t.c[&r["c"].as_u64().unwrap()]);
        let (b, want) = (words(&r["b"], size), words(&r["d"], 4));
        let mut d = vec![0; ROWS * COLUMNS];
        mma(&op(model, fmt, ROWS, COLUMNS, t.k), a, &b, Some(c), &mut d, &mut scratch);
        let wrong = (0..d.len()).filter(|&i| d[i] != want[i]).collect::<Vec<_>>();
        if let Some(&i) = wrong.first() {
            panic!(
                "{file} tile {} ({}): {} wrong, first [{}][{}] = {:08x}, silicon {:08x}",
                r["t"],
                r["cls"],
                wrong.len(),
                i / COLUMNS,
                i % COLUMNS,
                d[i],
                want[i]
            );
        }
    }
}

#[test]
fn wgmma_bf16() {
    check("wgmma_bf16.jsonl", Model::WGMMA, Format::Bf16, 16, 2);
}

#[test]
fn wgmma_f16() {
    check("wgmma_f16.jsonl", Model::WGMMA, Format::F16, 16, 2);
}

#[test]
fn wgmma_tf32() {
    check("wgmma_tf32.jsonl", Model::WGMMA, Format::Tf32, 8, 4);
}

#[test]
fn wgmma_e4m3() {
    check("wgmma_e4m3.jsonl", Model::WGMMA_FP8, Format::E4m3, 32, 1);
}

#[test]
fn mma_sync_e4m3_rows_0_to_15() {
    let t = load("wgmma_e4m3.jsonl", 32, 1);
    let mut scratch = Scratch::default();
    let results = records("mma_sync_e4m3.jsonl");
    assert_eq!(results.len(), 32);
    for r in results {
        let tile = &t.tiles[r["t"].as_u64().unwrap() as usize];
        assert_eq!(tile["t"], r["t"]);
        let (a, c) = (&t.a[&tile["a"].as_u64().unwrap()], &t.c[&tile["c"].as_u64().unwrap()]);
        let b = words(&tile["b"], 1);
        let mut d = vec![0; 16 * COLUMNS];
        let o = op(Model::WGMMA_FP8, Format::E4m3, 16, COLUMNS, 32);
        mma_sync_fp8(&o, &a[..16 * 32], &b, &c[..16 * COLUMNS], &mut d, &mut scratch);
        assert_eq!(d, words(&r["d"], 4), "tile {}", r["t"]);
    }
}

/// The vector path does not depend on how many columns or products there are: a wide instruction gives every
/// column what a narrow one gives it, with NaN, infinities and extreme exponents in between.
#[test]
fn shape_does_not_matter() {
    let t = load("wgmma_bf16.jsonl", 16, 2);
    let mut scratch = Scratch::default();
    for group in t.tiles.chunks(15) {
        let first = &group[0];
        let a = &t.a[&first["a"].as_u64().unwrap()];
        let c8 = &t.c[&first["c"].as_u64().unwrap()];
        let b: Vec<u32> = group.iter().flat_map(|r| words(&r["b"], 2)).collect();
        let n = group.len() * COLUMNS;
        let c: Vec<u32> = (0..ROWS * n).map(|i| c8[i / n * COLUMNS + i % n % COLUMNS]).collect();
        let mut wide = vec![0; ROWS * n];
        mma(&op(Model::WGMMA, Format::Bf16, ROWS, n, 16), a, &b, Some(&c), &mut wide, &mut scratch);
        for (g, b) in b.chunks(COLUMNS * 16).enumerate() {
            let mut d = vec![0; ROWS * COLUMNS];
            mma(&op(Model::WGMMA, Format::Bf16, ROWS, COLUMNS, 16), a, b, Some(c8), &mut d, &mut scratch);
            for i in 0..ROWS {
                assert_eq!(wide[i * n + g * COLUMNS..][..COLUMNS], d[i * COLUMNS..][..COLUMNS]);
            }
        }
    }
}
