//! One case on one device: place the data, run, compare.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use fa4_host::attention;
use fa4_host::device::Device;
use fa4_host::emu::EmuDevice;
use fa4_host::error::{DeviceError, HostError};
use fa4_host::plan::{
    DEFAULT_TAU, LSE_BYTES, LaunchPlan, LseRef, TensorRef, Tensors, output_ranges, plan_row,
};
use fa4_spec::exp2_poly;
use fa4_spec::oracle::{self, Reference};
use fa4_spec::qdist::{self, Inputs, Placed, Unsupported};
use fa4_spec::tensor::{Layout, rows};
use fa4_spec::tolerance::{Bounds, Judgement, Wrong, judge};
use fa4_spec::{AttnProblem, Case};

use crate::kernels::Kernel;

/// A case's data and truth, made once and shared by its runs.
pub struct Prepared {
    /// Values and layouts.
    pub inputs: Inputs,
    /// The oracle's answer.
    pub reference: Reference,
    /// How far from it is right.
    pub bounds: Bounds,
}

/// Makes a case's data and asks the oracle.
pub fn prepare(case: &Case) -> Result<Prepared, Unsupported> {
    let inputs = qdist::inputs(case)?;
    let p = case.problem.clone();
    let (q, k, v) = (&inputs.q.tensor, &inputs.k.tensor, &inputs.v.tensor);
    // K and V that repeat over the batch are stored once; the oracle wants them whole.
    let repeat = |x: &fa4_spec::tensor::Tensor| {
        let mut whole = x.clone();
        whole.shape[0] = p.batch as usize;
        whole.bits = x.bits.repeat(if x.shape[0] == 1 { p.batch as usize } else { 1 });
        whole
    };
    let (k, v) = (repeat(k), repeat(v));
    let sinks: Option<Vec<f64>> = inputs.sinks.as_ref().map(|s| s.iter().map(|&x| f64::from(x)).collect());
    let reference = oracle::attention(&p, q, &k, &v, sinks.as_deref());
    let bounds = Bounds::new(&p, &reference, case.qdist.is_independent(), exp2_poly::MAX_RELATIVE_ERROR);
    Ok(Prepared { inputs, reference, bounds })
}

/// Elements between the batch entries of a spread LSE: more than 32 bits of offset can say.
const LSE_SPREAD: u64 = 1 << 31;

/// A device that says what it saw besides the outcome.
pub trait GateDevice: Device {
    /// How often the last launch passed each coverage marker.
    fn covers(&self) -> BTreeMap<String, u64>;
    /// Findings of the last launch that fail nothing by themselves, one line each.
    fn strict_findings(&self) -> Vec<String>;
    /// Whether it runs under a schedule of ours; a GPU has its own.
    fn has_schedules(&self) -> bool {
        true
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Within every bound.
    Pass(Judgement),
    /// A wrong number.
    Wrong(Wrong),
    /// The device stopped the kernel, or could not run it.
    Device(DeviceError),
    /// The launcher refused.
    Host(HostError),
}

/// A run's verdict with the output that led to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub verdict: Verdict,
    /// O and LSE, where the kernel ran to its end.
    pub output: Option<Output>,
}

/// O as storage bits (batch, seqlen_q, head, dim) and LSE (batch, head, seqlen_q).
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// O.
    pub o: Vec<u16>,
    /// LSE.
    pub lse: Vec<f32>,
}

impl Output {
    /// Whether two runs gave the same bytes.
    pub fn same_bits(&self, other: &Output) -> bool {
        self.o == other.o && self.lse.iter().map(|x| x.to_bits()).eq(other.lse.iter().map(|x| x.to_bits()))
    }

    /// A number that is the same for the same bits, on every machine.
    pub fn digest(&self) -> u64 {
        let mut hash = std::hash::DefaultHasher::new();
        self.o.hash(&mut hash);
        self.lse.iter().for_each(|x| x.to_bits().hash(&mut hash));
        hash.finish()
    }
}

/// Runs `case` with `kernel` on `device` and compares with the oracle.
pub fn run<D: GateDevice>(
    kernel: &Kernel<D::Module>,
    case: &Case,
    data: &Prepared,
    device: &mut D,
) -> Outcome {
    run_edited(kernel, case, data, device, |_| ())
}

/// The same with a launch that is not quite the planned one: for twins that break the launch.
pub fn run_edited<D: GateDevice>(
    kernel: &Kernel<D::Module>,
    case: &Case,
    data: &Prepared,
    device: &mut D,
    edit: impl FnOnce(&mut LaunchPlan),
) -> Outcome {
    match execute(kernel, case, data, device, edit) {
        Err(HostError::Device(error)) => Outcome { verdict: Verdict::Device(error), output: None },
        Err(error) => Outcome { verdict: Verdict::Host(error), output: None },
        Ok(output) => {
            let verdict = judge(&case.problem, &data.bounds, &data.reference, &output.o, &output.lse);
            let verdict = verdict.map_or_else(Verdict::Wrong, Verdict::Pass);
            Outcome { verdict, output: Some(output) }
        }
    }
}

fn execute<D: GateDevice>(
    kernel: &Kernel<D::Module>,
    case: &Case,
    data: &Prepared,
    device: &mut D,
    edit: impl FnOnce(&mut LaunchPlan),
) -> Result<Output, HostError> {
    let (p, inputs) = (&case.problem, &data.inputs);
    let mut buffers = Vec::new();
    for buffer in &inputs.buffers {
        let address = device.alloc(buffer.name, buffer.bytes)?;
        if let Some(bits) = buffer.background {
            device.write(address, &bits.to_le_bytes().repeat(buffer.bytes as usize / 2))?;
        }
        buffers.push(address);
    }
    for placed in [&inputs.q, &inputs.k, &inputs.v] {
        upload(device, buffers[placed.buffer], placed)?;
    }
    let elem_bytes = p.q_dtype.bytes();
    let o_shape = [p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
    // Outputs arrive undefined: the device knows which bytes the kernel wrote.
    let o = TensorRef {
        buffer: device.alloc("O", inputs.o.extent_bytes(elem_bytes, o_shape))?,
        layout: inputs.o,
    };
    // The LSE is small: where a case is about 64-bit addresses its batch entries are put far apart.
    let mut lse = LseRef::dense(0, p);
    lse.stride_batch += if case.spread.is_some() { LSE_SPREAD } else { 0 };
    lse.address = device.alloc("LSE", p.batch * lse.stride_batch * LSE_BYTES)?;
    let at = |placed: &Placed| TensorRef { buffer: buffers[placed.buffer], layout: placed.layout };
    let sinks = inputs.sinks.as_ref().map(|sinks| -> Result<u64, DeviceError> {
        let bytes: Vec<u8> = sinks.iter().flat_map(|x| x.to_le_bytes()).collect();
        let address = device.alloc("sinks", bytes.len() as u64)?;
        device.write(address, &bytes)?;
        Ok(address)
    });
    let sinks = sinks.transpose()?;
    let tensors = Tensors { q: at(&inputs.q), k: at(&inputs.k), v: at(&inputs.v), o, lse: Some(lse), sinks };
    let tau = case.tau.unwrap_or(DEFAULT_TAU);
    if let Some(mut plan) = plan_row(kernel.row, p, &tensors, tau)? {
        edit(&mut plan);
        let kernel = attention::Kernel { module: &kernel.module, info: &kernel.info };
        attention::launch(device, &plan, kernel, output_ranges(p, &tensors))?;
    }
    download(device, p, &o, &lse)
}

/// Rows that follow each other in memory travel together: a copy to a GPU costs microseconds, however short.
fn upload<D: Device>(device: &mut D, buffer: u64, placed: &Placed) -> Result<(), DeviceError> {
    let [batch, seqlen, heads, _] = placed.tensor.shape;
    let elem_bytes = placed.tensor.dtype.bytes();
    let mut run = (0, Vec::new());
    for (at, (b, s, h)) in in_memory_order(&placed.layout, elem_bytes, rows(batch, seqlen, heads)) {
        if at != run.0 + run.1.len() as u64 {
            send(device, buffer, &run)?;
            run = (at, Vec::new());
        }
        run.1.extend(placed.tensor.row(b, s, h).iter().flat_map(|bits| bits.to_le_bytes()));
    }
    send(device, buffer, &run)
}

fn send<D: Device>(device: &mut D, buffer: u64, (at, bytes): &(u64, Vec<u8>)) -> Result<(), DeviceError> {
    if bytes.is_empty() { Ok(()) } else { device.write(buffer + at, bytes) }
}

/// Rows with their offsets, in the order of these. Rows of a stride 0 stay in the order given.
fn in_memory_order(
    layout: &Layout,
    elem_bytes: u64,
    rows: impl Iterator<Item = (usize, usize, usize)>,
) -> Vec<(u64, (usize, usize, usize))> {
    let mut all: Vec<_> = rows.map(|(b, s, h)| (layout.row_offset(elem_bytes, b, s, h), (b, s, h))).collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn download<D: Device>(
    device: &mut D,
    p: &AttnProblem,
    o: &TensorRef,
    lse: &LseRef,
) -> Result<Output, HostError> {
    let elem_bytes = p.q_dtype.bytes();
    let [batch, seqlen, heads, dim] = [p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
    let mut bits = vec![0; p.output_elems() as usize];
    let order = in_memory_order(&o.layout, elem_bytes, rows(batch, seqlen, heads));
    let row_bytes = p.head_dim_v * elem_bytes;
    for run in order.chunk_by(|(at, _), (next, _)| at + row_bytes == *next) {
        let data = device.read(o.buffer + run[0].0, row_bytes * run.len() as u64)?;
        for ((_, (b, s, h)), row) in run.iter().zip(data.chunks_exact(row_bytes as usize)) {
            let start = ((b * seqlen + s) * heads + h) * dim;
            for (bits, x) in bits[start..start + dim].iter_mut().zip(row.chunks_exact(2)) {
                *bits = u16::from_le_bytes([x[0], x[1]]);
            }
        }
    }
    let entry_bytes = p.num_heads_q * p.seqlen_q * LSE_BYTES;
    let mut lse_bytes = Vec::new();
    for b in (0..p.batch).filter(|_| entry_bytes > 0) {
        lse_bytes.extend(device.read(lse.address + b * lse.stride_batch * LSE_BYTES, entry_bytes)?);
    }
    let lse = lse_bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
    Ok(Output { o: bits, lse })
}

impl GateDevice for EmuDevice {
    fn covers(&self) -> BTreeMap<String, u64> {
        self.report().map(|report| report.counters.covers.clone()).unwrap_or_default()
    }

    fn strict_findings(&self) -> Vec<String> {
        let findings = self.report().map_or(&[][..], |report| &report.strict);
        let mut lines: Vec<String> =
            findings.iter().map(|fault| format!("{}: {}", fault.code.as_str(), fault.message)).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_where_bits_do() {
        let output = Output { o: vec![0x3f80, 0x8000], lse: vec![0.0, 1.5] };
        assert_eq!(output.digest(), output.clone().digest());
        let other = Output { o: vec![0x3f80, 0x0000], ..output.clone() };
        assert!(!output.same_bits(&other) && output.digest() != other.digest());
        let other = Output { lse: vec![-0.0, 1.5], ..output.clone() };
        assert!(!output.same_bits(&other) && output.digest() != other.digest());
    }
}
