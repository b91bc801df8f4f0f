//! One case under one schedule.

use std::time::Instant;

use fa4_spec::problem::AttnProblem;
use fa4_spec::tensor::Tensor;
use fa4_spec::tolerance::{Bounds, Judgement, judge};
use ptx_emu::Module;
use ptx_emu::launch::{Counters, Options};

use super::NAMESPACE;
use super::capture::HostLaunch;
use super::catalog::Fa4Case;
use crate::cli::Run;
use crate::foreign::findings::Finding;
use crate::foreign::launch::{Device, Emulator, Fault, LaunchSpec};
use crate::judge::Prepared;
use crate::rows::{Row, Status};

/// Largest relative error of the polynomial of degree 3 by which FlashAttention-4 replaces a share of the exponentials
/// (its paper, section on the softmax; arXiv 2603.05451).
pub const EXP2_ERROR: f64 = 8.77e-5;

/// A case with everything that its runs share.
pub struct Job {
    /// The problem.
    pub case: Fa4Case,
    /// How it is launched.
    pub launch: HostLaunch,
    /// PTX text.
    pub ptx: String,
    /// The same, parsed.
    pub module: Module,
    /// Data and truth.
    pub data: Prepared,
}

/// What one run gave.
pub struct Outcome {
    /// For the table.
    pub row: Row,
    /// What the emulator remarked, at fault and at strict level.
    pub findings: Vec<Finding>,
    /// What the emulator counted.
    pub counters: Option<Counters>,
    /// O and LSE as bytes, where the kernel ran to its end.
    pub output: Option<[Vec<u8>; 2]>,
}

/// The bounds of a kernel whose exponentials are FlashAttention's.
pub fn bounds(case: &Fa4Case, data: &Prepared) -> Bounds {
    Bounds::new(&case.case.problem, &data.reference, case.case.qdist.is_independent(), EXP2_ERROR)
}

/// Warp instructions after which a run is given up: many times what any case of the catalog takes.
const STEP_LIMIT: u64 = 50_000_000;

/// Runs `job` as `how` says.
pub fn run(job: &Job, how: Run) -> Outcome {
    run_module(job, &job.module, how, STEP_LIMIT)
}

/// Runs another module in place of the job's: one that was changed.
pub fn run_module(job: &Job, module: &Module, how: Run, step_limit: u64) -> Outcome {
    let start = Instant::now();
    let options = Options { schedule: how.schedule, seed: how.seed, step_limit, ..Options::default() };
    let mut device = Emulator::new(options);
    let result = execute(job, module, &mut device);
    let kernel = format!("{NAMESPACE}/{}", job.case.kernel);
    let mut row = Row {
        kernel: kernel.clone(),
        schedule: Some(how.schedule.as_str()),
        device: Some("emu"),
        evidence: Some("foreign"),
        ..Row::unsupported(&job.case.case.id, how.seed, String::new())
    };
    let findings = device.report().map(|report| Finding::all(&kernel, report)).unwrap_or_default();
    let output = match result {
        Ok(output) => {
            let verdict = compare(job, &output);
            (row.status, row.reason) = match &verdict {
                Ok(_) => (Status::Pass, None),
                Err(wrong) => (Status::Fail, Some(wrong.clone())),
            };
            if let Ok(judgement) = verdict {
                (row.o_ratio, row.lse_ratio) = (Some(judgement.o.ratio), Some(judgement.lse.ratio));
            }
            Some(output)
        }
        Err(fault) => {
            row.status = match &fault {
                Fault::Fault(_) => Status::Fault,
                Fault::Unsupported(_) => Status::Unsupported,
                Fault::Timeout(_) => Status::Timeout,
            };
            row.reason = Some(fault.to_string());
            None
        }
    };
    row.seconds = start.elapsed().as_secs_f64();
    Outcome { row, findings, counters: device.report().map(|r| r.counters.clone()), output }
}

fn execute(job: &Job, module: &Module, device: &mut Emulator) -> Result<[Vec<u8>; 2], Fault> {
    let inputs = &job.data.inputs;
    let mut places: Vec<(&str, u64)> = Vec::new();
    for tensor in &job.launch.tensors {
        let address = device.alloc(&tensor.name, tensor.bytes() as usize)?;
        // Outputs arrive undefined.
        let data: Option<&Tensor> = match tensor.name.as_str() {
            "q" => Some(&inputs.q.tensor),
            "k" => Some(&inputs.k.tensor),
            "v" => Some(&inputs.v.tensor),
            _ => None,
        };
        if let Some(data) = data {
            let bytes: Vec<u8> = data.bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            device.write(address, &bytes)?;
        }
        places.push((&tensor.name, address));
    }
    let address = |name: &str| places.iter().find(|(n, _)| *n == name).map_or(0, |(_, address)| *address);
    let name = job.case.name();
    let params = job.launch.params(module, address).map_err(Fault::Unsupported)?;
    let size = |name: &str| job.launch.tensors.iter().find(|t| t.name == name).map_or(0, |t| t.bytes());
    let outputs = ["o", "lse"].map(|name| (address(name), size(name)));
    let launch = LaunchSpec {
        name: &name,
        ptx: &job.ptx,
        entry: &job.launch.entry,
        grid: job.launch.grid,
        block: job.launch.block,
        cluster: job.launch.cluster,
        shared_bytes: job.launch.shared_bytes,
        params: &params,
        outputs: &outputs,
    };
    device.launch_parsed(module, &launch)?;
    let [(o, o_bytes), (lse, lse_bytes)] = outputs;
    Ok([device.read("o", o, o_bytes as usize)?, device.read("lse", lse, lse_bytes as usize)?])
}

/// O lies (batch, seqlen_q, head, dim) and LSE (batch, head, seqlen_q), as the oracle has them.
fn compare(job: &Job, [o, lse]: &[Vec<u8>; 2]) -> Result<Judgement, String> {
    let problem: &AttnProblem = &job.case.case.problem;
    let o: Vec<u16> = o.chunks_exact(2).map(|x| u16::from_le_bytes([x[0], x[1]])).collect();
    let lse: Vec<f32> = lse.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
    judge(problem, &bounds(&job.case, &job.data), &job.data.reference, &o, &lse)
        .map_err(|wrong| wrong.to_string())
}
