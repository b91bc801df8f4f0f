//! Attention with a sliding window on the emulator: problem → plan → launch. `cargo run --release -p fa4-host --example
//! forward` (after `cargo xtask setup`).

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_host::plan::{DEFAULT_TAU, LseRef, plan};
use fa4_host::{Device, TensorRef, Tensors, attention};
use fa4_kernels::{arch::Arch, compile::Builder, kernel_info};
use fa4_spec::tensor::{Layout, Tensor};
use fa4_spec::{AttnProblem, DType, Mask};
use ptx_emu::launch::Options;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mask = Mask { causal: true, window_left: Some(100), window_right: None };
    let problem = AttnProblem::dense(1, (200, 200), (4, 2), 64, mask, DType::F16);
    let mut device = EmuDevice::new(Options::default());
    // Every element 1, so that O is 1 and the LSE is √64 + ln(visible keys).
    let mut ones = |name: &str, heads: usize| -> Result<TensorRef, Box<dyn std::error::Error>> {
        let ones = Tensor::from_fn(DType::F16, [1, 200, heads, 64], |_, _, _, _| 1.0);
        let bytes: Vec<u8> = ones.bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let buffer = device.alloc(name, bytes.len() as u64)?;
        device.write(buffer, &bytes)?;
        Ok(TensorRef { buffer, layout: Layout::bshd(ones.shape) })
    };
    let (q, k, v, o) = (ones("q", 4)?, ones("k", 2)?, ones("v", 2)?, ones("o", 4)?);
    let lse = LseRef::dense(device.alloc("lse", 4 * 200 * 4)?, &problem);
    let tensors = Tensors { q, k, v, o, lse: Some(lse), sinks: None };

    let plan = plan(&problem, &tensors, DEFAULT_TAU)?.ok_or("nothing to launch")?;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let artifact = Builder::open(&root)?.build_row(plan.row)?;
    let ptx = &artifact.image(Arch::Sm100a).ok_or("no image")?.ptx;
    let (module, info) = (EmuModule::parse(plan.row.entry, ptx)?, kernel_info::parse(ptx)?);
    let kernel = attention::Kernel { module: &module, info: &info };
    attention::forward(&mut device, &problem, &tensors, DEFAULT_TAU, |_| Ok(kernel))?;

    let last = device.read(lse.address + 199 * 4, 4)?;
    let lse = f32::from_le_bytes(last[..4].try_into()?);
    println!("{}, {}: LSE of the last row {lse}", plan.row.entry, plan.packing);
    Ok(())
}
