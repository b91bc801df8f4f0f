//! The harness on trial: parameter lists against the PTX, bounds against a plain f32 computation, negative controls.

use ptx_emu::{Options, Schedule};

use super::catalog::Problem;
use super::findings::{Finding, Triage};
use super::format::Format;
use super::params::Param;
use super::*;

/// A device that runs nothing: it records the launch and reads back whatever the test put there.
#[derive(Default)]
struct Recorder {
    memory: Vec<(u64, Vec<u8>)>,
    params: Vec<Param>,
    next: u64,
}

impl Device for Recorder {
    fn alloc(&mut self, _name: &str, bytes: usize) -> Result<u64, Fault> {
        self.next += 0x10_0000;
        self.memory.push((self.next, vec![0; bytes]));
        Ok(self.next)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault> {
        let (_, bytes) = self.memory.iter_mut().find(|(a, _)| *a == address).expect("allocated");
        bytes.copy_from_slice(data);
        Ok(())
    }

    fn launch(&mut self, launch: &LaunchSpec<'_>) -> Result<(), Fault> {
        self.params = launch.params.to_vec();
        Ok(())
    }

    fn read(&mut self, _name: &str, address: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
        let (start, data) = self.memory.iter().rev().find(|(a, _)| *a <= address).expect("allocated");
        Ok(data[(address - start) as usize..][..bytes].to_vec())
    }
}

/// (alignment, size) of each parameter, read off the PTX text.
fn declared_params(ptx: &str) -> Vec<(usize, usize)> {
    let entry = &ptx[ptx.find(".entry").expect("an entry")..];
    let list = &entry[..entry.find("\n)").expect("a parameter list")];
    list.lines()
        .filter_map(|line| line.trim().strip_prefix(".param "))
        .map(|param| match param.split_whitespace().next() {
            Some(".align") => {
                let word = |n| param.split_whitespace().nth(n).expect("align N .b8 name[bytes]");
                let size = word(3).trim_end_matches(',').trim_end_matches(']');
                (word(1).parse().unwrap(), size[size.find('[').unwrap() + 1..].parse().unwrap())
            }
            Some(".u64") => (8, 8),
            Some(".u32" | ".f32") => (4, 4),
            other => panic!("unforeseen parameter type {other:?}"),
        })
        .collect()
}

#[test]
fn packed_parameters_are_those_that_the_ptx_declares() {
    for kernel in kernels().unwrap() {
        for case in cases(&kernel) {
            let mut device = Recorder::default();
            run(&kernel, &inputs::setup(&case), &mut device).unwrap();
            let packed: Vec<_> = device.params.iter().map(|p| (p.align, p.bytes.len())).collect();
            assert_eq!(packed, declared_params(kernel.ptx), "{}", kernel.name);
        }
    }
}

/// The emulator's front end reads every kernel and sees the same parameter list.
#[test]
fn the_emulator_parses_every_kernel() {
    for kernel in kernels().unwrap() {
        let module = ptx_emu::syntax::parse(kernel.name, kernel.ptx).unwrap_or_else(|e| panic!("{e}"));
        let function = &module.functions[0];
        assert_eq!(function.name, kernel.meta.entry);
        let params: Vec<_> = function.params.iter().map(|p| (p.align as usize, p.size as usize)).collect();
        assert_eq!(params, declared_params(kernel.ptx), "{}", kernel.name);
        let mut device = Recorder::default();
        run(&kernel, &inputs::setup(&cases(&kernel)[0]), &mut device).unwrap();
        let last = function.params.last().expect("profile scratch");
        assert_eq!(
            params::lay_out(&device.params).len(),
            (last.offset + last.size) as usize,
            "{}",
            kernel.name
        );
    }
}

#[test]
fn launch_shape_is_the_one_that_the_ptx_requires() {
    for kernel in kernels().unwrap() {
        let required = format!(".reqntid {}\n", 32 * kernel.meta.num_warps);
        assert!(kernel.ptx.contains(&required), "{}: no {required}", kernel.name);
        assert!(kernel.ptx.contains(&format!(".entry {}(", kernel.meta.entry)), "{}", kernel.name);
    }
}

/// A device that does nothing must never look right.
#[test]
fn zeros_fail_everywhere() {
    for kernel in kernels().unwrap() {
        for case in cases(&kernel) {
            for judgement in run(&kernel, &inputs::setup(&case), &mut Recorder::default()).unwrap() {
                assert!(!judgement.passed(), "{} {}: {judgement}", kernel.name, case.problem);
                assert!(judgement.ratio > 20.0, "{} {}: weak bound, {judgement}", kernel.name, case.problem);
            }
        }
    }
}

#[test]
fn non_finite_values_fail() {
    let kernel = &kernels().unwrap()[0];
    let setup = inputs::setup(&cases(kernel)[0]);
    let output = &setup.outputs[0];
    let mut got = output.expected.value.clone();
    assert_eq!(judge(output, &got).ratio, 0.0);
    got[1003] = f64::NAN;
    let judgement = judge(output, &got);
    assert!(!judgement.passed() && judgement.at == (1, 3), "{judgement}");
}

/// A case of kernel `name` and its setup.
fn setup_of(name: &str, which: usize) -> (Case, Setup) {
    let kernels = kernels().unwrap();
    let kernel = kernels.iter().find(|k| k.name == name).expect("a committed kernel");
    let case = cases(kernel).swap_remove(which);
    let setup = inputs::setup(&case);
    (case, setup)
}

fn input(setup: &Setup, index: usize) -> Vec<f64> {
    let buffer = &setup.buffers[index];
    buffer.format.from_bytes(buffer.data.as_ref().expect("an input"))
}

/// Sequential f32 sums are within the bound, and one missing product is not.
#[test]
fn matmul_bound_holds_for_f32_and_catches_a_dropped_product() {
    // The 8-bit unit keeps 13 bits only, so its bound is far above f32's error.
    for (name, least) in [("matmul_tma", 0.3), ("matmul_fp8", 0.05)] {
        let (case, setup) = setup_of(name, 1);
        let Problem::Matmul { k, .. } = case.problem else { panic!("{name} is a matmul") };
        let (a, b) = (input(&setup, 0), input(&setup, 1));
        let product = |terms: usize| -> Vec<f64> {
            a.chunks(k)
                .flat_map(|a| b.chunks(k).map(move |b| (a, b)))
                .map(|(a, b)| (0..terms).fold(0f32, |sum, i| sum + (a[i] * b[i]) as f32))
                .map(|sum| case.output.round(f64::from(sum)))
                .collect()
        };
        let right = judge(&setup.outputs[0], &product(k));
        assert!(right.passed() && right.ratio > least, "{name}: {right}");
        let wrong = judge(&setup.outputs[0], &product(k - 1));
        assert!(wrong.ratio > 20.0, "{name}: {wrong}");
    }
}

/// What a step of the simulated attention gets wrong.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// Key 0 is not masked but skipped.
    DroppedKey,
    /// The accumulator is not rescaled when the maximum moves.
    NoRescale,
}

/// Online softmax in f32 with P rounded to bf16; returns O and the LSE.
fn simulate_attention(case: &Case, setup: &Setup, mistake: Mistake) -> (Vec<f64>, Vec<f64>) {
    let Problem::Attention { s, d, causal, .. } = case.problem else { panic!("attention") };
    let single = |x: Vec<f64>| -> Vec<f32> { x.into_iter().map(|x| x as f32).collect() };
    let (q, k, v) = (single(input(setup, 0)), single(input(setup, 1)), single(input(setup, 2)));
    let scale = (1.0 / (d as f64).sqrt()) as f32 * std::f32::consts::LOG2_E;
    let (mut o, mut lse) = (vec![], vec![]);
    for (row, q) in q.chunks(d).enumerate() {
        let (base, i) = (row / s * s, row % s);
        let (mut max, mut sum, mut acc) = (f32::NEG_INFINITY, 0f32, vec![0f32; d]);
        for block in (0..if causal { i + 1 } else { s }).step_by(case.tile.1) {
            let keys: Vec<usize> = (block..block + case.tile.1)
                .filter(|&j| !causal || j <= i)
                .filter(|&j| mistake != Mistake::DroppedKey || j != 0)
                .collect();
            let score =
                |&j: &usize| q.iter().zip(&k[(base + j) * d..]).fold(0f32, |t, (q, k)| t + q * k) * scale;
            let scores: Vec<f32> = keys.iter().map(score).collect();
            let new_max = scores.iter().copied().fold(max, f32::max);
            let alpha = if new_max > max { (max - new_max).exp2() } else { 1.0 };
            sum *= alpha;
            if mistake != Mistake::NoRescale {
                acc.iter_mut().for_each(|acc| *acc *= alpha);
            }
            for (j, score) in keys.iter().zip(&scores) {
                let p = (score - new_max).exp2();
                sum += p;
                let p = Format::Bf16.round(f64::from(p)) as f32;
                acc.iter_mut().zip(&v[(base + j) * d..]).for_each(|(acc, v)| *acc += p * v);
            }
            max = new_max;
        }
        o.extend(acc.iter().map(|acc| Format::Bf16.round(f64::from(acc / sum))));
        lse.push(f64::from(max + sum.log2()));
    }
    (o, lse)
}

#[test]
fn attention_bound_holds_for_f32_and_catches_mistakes() {
    for name in ["attn_fwd_d64", "attn_fwd_d64_causal", "attn_fwd_d128"] {
        let (case, setup) = setup_of(name, 1);
        let ratios = |mistake| {
            let (o, lse) = simulate_attention(&case, &setup, mistake);
            (judge(&setup.outputs[0], &o), judge(&setup.outputs[1], &lse))
        };
        let (o, lse) = ratios(Mistake::None);
        assert!(o.passed() && o.ratio > 0.2 && lse.passed(), "{name}: {o}; {lse}");
        println!("{name}: {o}; {lse}");
        let (o, lse) = ratios(Mistake::DroppedKey);
        assert!(o.ratio > 5.0 && lse.ratio > 5.0, "{name} without key 0: {o}; {lse}");
        let (o, _) = ratios(Mistake::NoRescale);
        assert!(o.ratio > 5.0, "{name} without rescale: {o}");
    }
}

/// The claim that the section exists for: strangers' code for Blackwell and Hopper gives right numbers, whatever lands when, with every
/// check on; and what the strict level remarks is explained in `foreign-findings.toml`.
#[test]
fn every_kernel_is_right_under_every_schedule() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let triage = Triage::open(&root).unwrap_or_else(|e| panic!("{e}"));
    let options = |schedule| Options { schedule, seed: 7, step_limit: 10_000_000, ..Options::default() };
    for kernel in kernels().unwrap() {
        for case in cases(&kernel) {
            let setup = inputs::setup(&case);
            for schedule in Schedule::ALL {
                let row = format!("{} {} {}", kernel.id(), case.problem, schedule.as_str());
                let mut device = Emulator::new(options(schedule));
                let judgements = run(&kernel, &setup, &mut device);
                for judgement in judgements.unwrap_or_else(|e| panic!("{row}: {e}")) {
                    assert!(judgement.passed(), "{row}: {judgement}");
                }
                let report = device.report().expect("it ran");
                for finding in Finding::all(&format!("triton/{}", kernel.id()), report) {
                    assert!(triage.explain(&finding).is_some(), "{row}: {finding}");
                }
            }
        }
    }
}

/// Reads through to the emulator and hashes what it reads (FNV-1a, 64 bits).
struct Hashing(Emulator, u64);

impl Device for Hashing {
    fn alloc(&mut self, name: &str, bytes: usize) -> Result<u64, Fault> {
        self.0.alloc(name, bytes)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault> {
        self.0.write(address, data)
    }

    fn launch(&mut self, launch: &LaunchSpec<'_>) -> Result<(), Fault> {
        self.0.launch(launch)
    }

    fn read(&mut self, name: &str, address: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
        let data = self.0.read(name, address, bytes)?;
        self.1 = data.iter().fold(self.1, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Ok(data)
    }
}

/// The matmuls of both architectures in the emulator give, bit for bit, what Hopper's gave on silicon.
#[test]
fn matmuls_have_the_bits_of_an_h200() {
    let recorded = include_str!("../../../../foreign/triton/h200.csv");
    let mut compared = 0;
    for kernel in kernels().unwrap() {
        for case in cases(&kernel) {
            // A warp-specialised build computes what the plain one does.
            let row = format!("{},{},c_desc,", kernel.name.trim_end_matches("_ws"), case.problem);
            let Some(hash) = recorded.lines().find_map(|line| line.strip_prefix(&row)) else { continue };
            let mut device = Hashing(Emulator::new(Options::default()), 0xcbf2_9ce4_8422_2325);
            run(&kernel, &inputs::setup(&case), &mut device).unwrap();
            assert_eq!(format!("{:016x}", device.1), hash, "{} {}", kernel.id(), case.problem);
            compared += 1;
        }
    }
    assert_eq!(compared, 39);
}
