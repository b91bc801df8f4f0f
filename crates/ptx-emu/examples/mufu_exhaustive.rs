//! Compares the MUFU models with an H200 on all 2^32 inputs of six functions, by the CRC-32 of every block of
//! 2^23 outputs (tests/silicon/exhaustive_crc.jsonl). Takes some minutes; needs no argument.
//!
//! `cargo run --release -p ptx-emu --example mufu_exhaustive`

#[path = "../tests/silicon/mod.rs"]
#[allow(dead_code)]
mod silicon;

use ptx_emu::num::mufu;
use silicon::{Crc, records};

fn main() {
    let crc = Crc::new();
    let mut wrong = 0;
    for r in records("exhaustive_crc.jsonl") {
        let Some(op) = r["op"].as_str() else { continue };
        let f = match op {
            "ex2_approx_ftz_f32" => mufu::ex2_ftz,
            "rcp_approx_ftz_f32" => mufu::rcp_ftz,
            "rsqrt_approx_ftz_f32" => mufu::rsqrt_ftz,
            "sqrt_approx_ftz_f32" => mufu::sqrt_ftz,
            "lg2_approx_ftz_f32" => mufu::lg2_ftz,
            "tanh_approx_f32" => mufu::tanh,
            _ => panic!("no model of {op}"),
        };
        let want = r["crc32"].as_array().expect("a list of checksums");
        let differs = |block: &usize| {
            let base = (*block as u32) << 23;
            let got = crc.of((0..1u32 << 23).flat_map(|i| f(base | i).to_le_bytes()));
            want[*block].as_str() != Some(format!("{got:08x}").as_str())
        };
        let bad: Vec<usize> = (0..want.len()).filter(differs).collect();
        println!("{op}: {} of {} blocks of 2^23 inputs differ {bad:?}", bad.len(), want.len());
        wrong += bad.len();
    }
    std::process::exit(i32::from(wrong > 0));
}
