//! Compares the MUFU models with an H200 on all 2^32 inputs of six functions, by the CRC-32 of every block of
//! 2^23 outputs (tests/silicon/exhaustive_crc.jsonl). Where a function has a vectorised form, that is compared too.
//! Takes some minutes a function; an argument names the one to compare, e.g. `lg2`.
//!
//! `cargo run --release -p ptx-emu --example mufu_exhaustive`

#[path = "../tests/silicon/mod.rs"]
#[allow(dead_code)]
mod silicon;

use ptx_emu::num::{Lanes, mufu};
use silicon::{Crc, records};

fn main() {
    let crc = Crc::new();
    let only = std::env::args().nth(1);
    let mut wrong = 0;
    for r in records("exhaustive_crc.jsonl") {
        let Some(op) = r["op"].as_str() else { continue };
        if only.as_ref().is_some_and(|only| !op.starts_with(only.as_str())) {
            continue;
        }
        let f: fn(u32) -> u32 = match op {
            "ex2_approx_ftz_f32" => mufu::ex2_ftz,
            "rcp_approx_ftz_f32" => mufu::rcp_ftz,
            "rsqrt_approx_ftz_f32" => mufu::rsqrt_ftz,
            "sqrt_approx_ftz_f32" => mufu::sqrt_ftz,
            "lg2_approx_ftz_f32" => mufu::lg2_ftz,
            "tanh_approx_f32" => mufu::tanh,
            _ => panic!("no model of {op}"),
        };
        let warp: Option<fn(&Lanes) -> Lanes> = match op {
            "ex2_approx_ftz_f32" => Some(mufu::ex2_ftz32),
            "rcp_approx_ftz_f32" => Some(mufu::rcp_ftz32),
            "lg2_approx_ftz_f32" => Some(mufu::lg2_ftz32),
            _ => None,
        };
        let want = r["crc32"].as_array().expect("a list of checksums");
        let differs = |block: &usize| {
            let base = (*block as u32) << 23;
            let want = want[*block].as_str();
            let differs = |got: u32| want != Some(format!("{got:08x}").as_str());
            let by_warp = warp.is_some_and(|warp| {
                let lanes = |i: u32| warp(&std::array::from_fn(|l| base | i << 5 | l as u32));
                differs(crc.of((0..1u32 << 18).flat_map(lanes).flat_map(u32::to_le_bytes)))
            });
            by_warp || differs(crc.of((0..1u32 << 23).flat_map(|i| f(base | i).to_le_bytes())))
        };
        let bad: Vec<usize> = (0..want.len()).filter(differs).collect();
        println!("{op}: {} of {} blocks of 2^23 inputs differ {bad:?}", bad.len(), want.len());
        wrong += bad.len();
    }
    std::process::exit(i32::from(wrong > 0));
}
