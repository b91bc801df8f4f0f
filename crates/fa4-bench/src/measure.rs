//! One scenario row from data to [`RunRow`]: inputs, truth, everybody judged, the right ones timed, judged again, verdict.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fa4_refs::files::images;
use fa4_spec::qdist::Stock;
use fa4_spec::{Case, Row, qdist};

use crate::caveats;
use crate::counts::counts;
use crate::record::{Entry, Judged, RunRow, SCHEMA, Status};
use crate::runner::{Contestant, Failure, Field, Job, Runner};
use crate::stages::Stages;
use crate::timing::{Timed, time_all};
use crate::verdict::verdict;
use crate::verify::Truth;

/// Most elements of q, k and v together: what is made on the CPU, in some seconds.
const MOST_ELEMS: u64 = 1 << 32;
/// Rotated tensors take together at least this many times the L2 cache.
const L2_TIMES: u64 = 3;
/// Most sets of tensors.
const MOST_COPIES: u64 = 256;
/// Time for one call of a contestant.
const LIMIT: Duration = Duration::from_secs(60);

/// A row that nothing was measured of.
pub fn unmeasured(index: usize, row: &Row, seed: u64, status: Status, reason: impl Into<String>) -> RunRow {
    RunRow {
        schema: SCHEMA,
        index,
        case: row.id.clone(),
        set: row.set.clone(),
        family: row.family.clone(),
        phase: row.phase.to_string(),
        problem: row.problem.clone(),
        qdist: row.qdist.to_string(),
        seed,
        status,
        reason: Some(reason.into()),
        kernel: None,
        artifact: None,
        gpu: None,
        ordinal: None,
        judged: None,
        counts: None,
        copies: None,
        ours: None,
        others: Vec::new(),
        references: Vec::new(),
        verdict: None,
        caveats: Vec::new(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        seconds: 0.0,
        stages: Default::default(),
    }
}

/// Judges and times a row. `stock` keeps data for later rows; `said` is told what is being done.
pub fn measure(
    runner: &mut dyn Runner,
    stock: &mut Stock,
    (index, row): (usize, &Row),
    seed: u64,
    said: &mut dyn FnMut(&str),
) -> RunRow {
    let start = Instant::now();
    let gpu = runner.gpu();
    let mut result = unmeasured(index, row, seed, Status::Pass, "");
    (result.gpu, result.ordinal) = (Some(gpu.name.clone()), Some(gpu.ordinal));
    let stages = Stages::default();
    if let Err(failure) = fill((runner, stock, &stages), row, seed, &mut result, said) {
        (result.status, result.reason) = (failure.status, Some(failure.reason));
    } else {
        result.reason = None;
    }
    (result.seconds, result.stages) = (start.elapsed().as_secs_f64(), stages.seconds());
    result
}

fn fill(
    (runner, stock, stages): (&mut dyn Runner, &mut Stock, &Stages),
    row: &Row,
    seed: u64,
    result: &mut RunRow,
    said: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let case = Case::from_row(row, seed);
    let kernel = runner.route(&case)?;
    result.artifact = runner.artifact(&kernel);
    result.kernel = Some(kernel);
    qdist::supports(&case).map_err(|e| Failure::unsupported(e.to_string()))?;
    let p = &case.problem;
    let work = counts(p);
    result.counts = Some(work);
    if p.output_elems() == 0 {
        return Err(Failure::unsupported("O has no elements: nothing to launch or to time"));
    }
    let elems = p.batch * (p.seqlen_q * p.num_heads_q * p.head_dim_qk)
        + p.batch * p.seqlen_k * p.num_heads_kv * (p.head_dim_qk + p.head_dim_v);
    if elems > MOST_ELEMS {
        let what = format!("q, k and v have {elems} elements; at most {MOST_ELEMS} are made for a timing");
        return Err(Failure::unsupported(what));
    }
    said("data");
    let inputs = stages.time("data", || qdist::inputs_from(&case, stock));
    let inputs = inputs.map_err(|e| Failure::unsupported(e.to_string()))?;
    let images = stages.time("data", || images(&inputs));
    said("oracle");
    let truth = stages.time("oracle", || Truth::of(&case, &inputs));
    let wanted = (L2_TIMES * runner.gpu().l2_bytes).div_ceil(work.bytes.max(1)).clamp(1, MOST_COPIES);
    let fit = (runner.memory_share() / work.bytes.max(1)).max(1);
    let copies = wanted.min(fit) as u32;
    result.copies = Some(copies);
    let (effort, limit) = (runner.effort(), LIMIT);
    let (inputs, rows) = (&inputs, truth.rows());
    let job = Job { row, case: &case, inputs, images: &images, rows, copies, limit, stages };
    said("loading");
    let telemetry = runner.telemetry();
    let Field { mut ours, references } = stages.time("load", || runner.field(&job))?;
    said("judging");
    let judge = |contestant: &mut dyn Contestant| -> Result<Judged, Failure> {
        let output = stages.time("output", || contestant.run_once())?;
        stages.time("judge", || truth.judge(&output)).map_err(|what| Failure::new(Status::Fail, what))
    };
    for (at, contestant) in ours.iter_mut().enumerate() {
        let judged = judge(contestant.as_mut());
        match (at, judged) {
            (0, judged) => result.judged = Some(judged?),
            (_, judged) => result.others.push(entry(contestant.as_ref(), judged)),
        }
    }
    let mut ready: Vec<Box<dyn Contestant + '_>> = Vec::new();
    for (id, reference) in references {
        match reference {
            Err(failure) => result.references.push(absent(id, failure)),
            Ok(mut reference) => {
                said(&format!("judging {id}"));
                let judged = judge(reference.as_mut());
                result.references.push(entry(reference.as_ref(), judged));
                ready.push(reference);
            }
        }
    }
    let is_right = |id: &str, result: &RunRow| {
        let all = result.others.iter().chain(&result.references);
        all.filter(|e| e.id == id).all(|e| e.status == Status::Pass)
    };
    said("timing");
    let mut field: Vec<Timed<'_, '_>> = Vec::new();
    for contestant in ours.iter_mut().chain(ready.iter_mut()) {
        if is_right(contestant.id(), result) {
            field.push(Timed::new(contestant.as_mut()));
        }
    }
    stages.time("timing", || time_all(&mut field, &effort, &telemetry));
    said("judging again");
    for (at, timed) in field.iter_mut().enumerate() {
        // A launch that went wrong among thousands shows in what it left behind.
        let after = timed.failure.take().map_or(Ok(()), Err).and_then(|()| {
            let output = stages.time("output", || timed.contestant.leftover())?;
            let judged = stages.time("judge", || truth.judge(&output));
            judged
                .map(|_| ())
                .map_err(|what| Failure::new(Status::Fail, format!("after being timed: {what}")))
        });
        if at == 0 {
            after?;
            result.ours = Some(std::mem::take(&mut timed.timing));
            continue;
        }
        let id = timed.contestant.id().to_string();
        let mut all = result.others.iter_mut().chain(&mut result.references);
        let Some(entry) = all.find(|e| e.id == id) else { continue };
        match after {
            Ok(()) => entry.timing = Some(std::mem::take(&mut timed.timing)),
            Err(failure) => (entry.status, entry.reason) = (failure.status, Some(failure.reason)),
        }
    }
    drop(field);
    result.verdict = result.ours.as_ref().and_then(|ours| verdict(ours, &result.others, &result.references));
    result.caveats = caveats::of_row(result, wanted as u32);
    Ok(())
}

fn entry(contestant: &dyn Contestant, judged: Result<Judged, Failure>) -> Entry {
    let (status, reason, judged) = match judged {
        Ok(judged) => (Status::Pass, None, Some(judged)),
        Err(failure) => (failure.status, Some(failure.reason), None),
    };
    Entry {
        id: contestant.id().to_string(),
        status,
        reason,
        route: contestant.route(),
        versions: contestant.versions(),
        judged,
        timing: None,
    }
}

fn absent(id: String, failure: Failure) -> Entry {
    Entry {
        id,
        status: failure.status,
        reason: Some(failure.reason),
        route: None,
        versions: Default::default(),
        judged: None,
        timing: None,
    }
}
