//! Writes the Chrome/Perfetto trace of the pipelining problem (one head, eight K/V blocks) of a kernel, in predicted
//! cycles: `cargo run --release -p fa4-gate --example pipeline_trace -- [ENTRY] [OUT.json]`.

use fa4_gate::kernels::{compile, workspace};
use fa4_gate::pipeline;
use fa4_kernels::compile::Builder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let entry = args.next().unwrap_or_else(|| "fwd_sm100_hd128_bf16_full".into());
    let out = args.next().unwrap_or_else(|| "trace.json".into());
    let root = workspace();
    let kernels = compile(&Builder::open(&root)?, &root, None, |row| row.entry == entry)?;
    let kernel = kernels.first().ok_or_else(|| format!("no kernel has the entry {entry}"))?;
    let trace =
        pipeline::trace(kernel).ok_or_else(|| format!("{entry} is not one that the condition names"))?;
    std::fs::write(&out, serde_json::to_string(&ptx_emu::render::chrome(&trace))?)?;
    println!("{out}: {} events; open it at ui.perfetto.dev or chrome://tracing", trace.events.len());
    Ok(())
}
