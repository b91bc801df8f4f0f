//! Who is here? Asks every reference through the bridge, judges one small problem of each by the oracle, and times it:
//! `cargo run --release -p fa4-refs --example field -- [PYTHON [ID …]]`.

use std::sync::Arc;

use fa4_refs::catalog::{CATALOG, Field};
use fa4_refs::{InputFiles, RefError, Reference, TimeMode, TimeRequest};
use fa4_spec::qdist;
use fa4_spec::tolerance::{Bounds, judge};
use fa4_spec::{AttnProblem, Case, DType, Mask, oracle};

fn main() -> Result<(), RefError> {
    let mut args = std::env::args().skip(1);
    let python = args.next().unwrap_or_else(|| "python3".into());
    let only: Vec<String> = args.collect();
    let problem = AttnProblem::dense(1, (256, 384), (4, 2), 128, Mask::CAUSAL, DType::Bf16);
    let case = Case::dense("field", problem, 1);
    let inputs = qdist::inputs(&case).expect("a plain case");
    let files = InputFiles::write(&inputs, 1, &std::env::temp_dir(), 1 << 30)?;
    let truth = oracle::attention(&case.problem, &inputs.q.tensor, &inputs.k.tensor, &inputs.v.tensor, None);
    let bounds = Bounds::new(&case.problem, &truth, true, 0.0);
    let mut field = Field::new(python, None, std::env::temp_dir());
    for entry in CATALOG.iter().filter(|entry| only.is_empty() || only.iter().any(|id| id == entry.id)) {
        let mut reference = field.reference(entry.id)?;
        let line = attempt(&mut reference, &case.problem, &files, |o, lse| {
            let lse = lse.unwrap_or_else(|| truth.lse.iter().map(|&x| x as f32).collect());
            match judge(&case.problem, &bounds, &truth, &o, &lse) {
                Ok(judgement) => format!("right, {:.3} of the bound", judgement.o.ratio),
                Err(wrong) => format!("wrong: {wrong}"),
            }
        });
        println!("{:20} {}", entry.id, line.unwrap_or_else(|error| format!("{:?}: {error}", error.status())));
    }
    Ok(())
}

fn attempt(
    reference: &mut impl Reference,
    problem: &AttnProblem,
    files: &Arc<InputFiles>,
    verdict: impl Fn(Vec<u16>, Option<Vec<f32>>) -> String,
) -> Result<String, RefError> {
    let versions = reference.versions()?;
    reference.supports(problem)?;
    let mut prepared = reference.prepare(problem, files)?;
    let output = reference.output(&mut prepared, None)?;
    let route = reference.route(&mut prepared)?;
    let request = TimeRequest { mode: TimeMode::Graph, buffers: 2, ..TimeRequest::default() };
    let mut us = reference.time(&mut prepared, &request)?.us;
    us.sort_by(f64::total_cmp);
    let line = format!(
        "{}; {:.1} µs as a graph; route proven: {:?}, {}; prepared in {:.1} s; {versions:?}",
        verdict(output.o, output.lse),
        us[us.len() / 2],
        route.proven,
        route.kernels.join(" + "),
        prepared.seconds,
    );
    reference.release(prepared);
    Ok(line)
}
