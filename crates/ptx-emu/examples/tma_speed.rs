//! How long the two loops of the TMA and descriptor models take that a kernel runs by the thousand:
//! `cargo run --release -p ptx-emu --example tma_speed`. Prints, asserts nothing.

use ptx_emu::tma::*;

fn main() {
    use ptx_emu::isa::smem_desc::{Major, SmemDesc, element_addrs};
    use std::hint::black_box;
    let best = |f: &mut dyn FnMut()| {
        let time = |f: &mut dyn FnMut()| {
            let t = std::time::Instant::now();
            (0..20).for_each(|_| f());
            t.elapsed() / 20
        };
        (0..200).map(|_| time(f)).min().unwrap()
    };
    let mut args = EncodeArgs::new(ElemType::BF16, 0x20000, &[256, 100], &[512], &[64, 128]);
    args.swizzle = 3;
    let m = TensorMap::decode(&encode(&args).unwrap()).unwrap();
    let mut chunks = Vec::new();
    let t = best(&mut || {
        load_chunks(black_box(&m), &[0, 3], 0x400, &mut chunks).unwrap();
        black_box(&chunks);
    });
    println!("load_chunks 64x128 bf16: {t:?} a box");
    let d = SmemDesc::tcgen05(0x4000_4040_0001_1000).unwrap();
    let mut addrs = Vec::new();
    let t = best(&mut || {
        element_addrs(black_box(&d), Major::K, 16, 128, 16, &mut addrs).unwrap();
        black_box(&addrs);
    });
    println!("element_addrs 128x16: {t:?} a call");
}
