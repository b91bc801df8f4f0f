//! Attention by the oracle on the files of a request; wrong where a fault asks for it.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use fa4_refs::files::{Description, View};
use fa4_refs::protocol::OutputReply;
use fa4_refs::reference::{LseBase, RowAt};
use fa4_spec::oracle;
use fa4_spec::tensor::{Tensor, decode, encode, rows};
use fa4_spec::{AttnProblem, Mask};

use crate::behaviour::Fault;

/// Computes and writes O, or `rows` of it, and the LSE; says which base the LSE has and what of O is not finite.
pub fn write(
    problem: &AttnProblem,
    inputs: &Description,
    fault: Option<Fault>,
    (o_path, lse_path): (&Path, &Path),
    rows: Option<&[RowAt]>,
) -> Result<OutputReply, Error> {
    let buffers: Vec<Vec<u8>> =
        inputs.buffers.iter().map(|buffer| fs::read(&buffer.path)).collect::<Result<_, _>>()?;
    let load = |view: &View| tensor(view, &buffers[view.buffer]);
    let (q, k, v) = (load(&inputs.q)?, load(&inputs.k)?, load(&inputs.v)?);
    let sinks: Option<Vec<f64>> = inputs.sinks.as_ref().map(|s| s.iter().map(|&x| f64::from(x)).collect());
    let mut problem = problem.clone();
    if fault == Some(Fault::Wrong) {
        // The farthest key that a row may see is hidden from the first row on.
        problem.mask = Mask { window_left: Some(problem.seqlen_k.saturating_sub(2)), ..problem.mask };
    }
    let truth = oracle::attention(&problem, &q, &k, &v, sinks.as_deref());
    let mut o: Vec<u8> = truth.o.iter().flat_map(|&x| encode(problem.q_dtype, x).to_le_bytes()).collect();
    match fault {
        Some(Fault::Unwritten) => {
            let nan = encode(problem.q_dtype, f64::NAN).to_le_bytes();
            let last = o.len() / 4 * 3 / 2 * 2;
            o[last..].chunks_exact_mut(2).for_each(|b| b.copy_from_slice(&nan));
        }
        Some(Fault::ShortOutput) => o.truncate(o.len() / 2),
        Some(Fault::NoOutput) => return Ok(OutputReply { lse_base: None, not_finite: None }),
        _ => {}
    }
    let mut not_finite = None;
    if let Some(rows) = rows {
        let is_odd = |b: &[u8]| !decode(problem.q_dtype, u16::from_le_bytes([b[0], b[1]])).is_finite();
        not_finite = o.chunks_exact(2).position(is_odd).map(|at| at as u64);
        let [seqlen, heads, dim] =
            [problem.seqlen_q, problem.num_heads_q, problem.head_dim_v].map(|n| n as usize);
        let row = |&(b, s, h): &RowAt| {
            let at = 2 * ((b * seqlen + s) * heads + h) * dim;
            o.get(at..at + 2 * dim).unwrap_or_default().to_vec()
        };
        o = rows.iter().flat_map(row).collect();
    }
    fs::write(o_path, o)?;
    if fault == Some(Fault::NoLse) {
        return Ok(OutputReply { lse_base: None, not_finite });
    }
    let binary = matches!(fault, Some(Fault::BinaryLse | Fault::LyingLse));
    let factor = if binary { std::f64::consts::LOG2_E } else { 1.0 };
    let lse: Vec<u8> = truth.lse.iter().flat_map(|&x| ((x * factor) as f32).to_le_bytes()).collect();
    fs::write(lse_path, lse)?;
    let lse_base = Some(if fault == Some(Fault::BinaryLse) { LseBase::Two } else { LseBase::E });
    Ok(OutputReply { lse_base, not_finite })
}

fn tensor(view: &View, bytes: &[u8]) -> Result<Tensor, Error> {
    let shape = view.shape.map(|n| n as usize);
    let [batch, seqlen, heads, dim] = shape;
    let mut bits = Vec::with_capacity(shape.iter().product());
    for (b, s, h) in rows(batch, seqlen, heads) {
        let at = [b, s, h].iter().zip(view.strides).map(|(&i, stride)| i as u64 * stride).sum::<u64>();
        let at = (view.offset_bytes + 2 * at) as usize;
        let row = bytes.get(at..at + 2 * dim).ok_or_else(|| {
            Error::new(ErrorKind::InvalidData, format!("row ({b}, {s}, {h}) lies outside its buffer"))
        })?;
        bits.extend(row.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])));
    }
    Ok(Tensor { dtype: view.dtype, shape, bits })
}
