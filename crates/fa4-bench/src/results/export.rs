//! Results in the form of flashinfer-bench ("FlashInfer Trace"): `definitions/`, `workloads/`, `solutions/`, `traces/`, one
//! JSON file a definition and solution, one JSON line a workload and trace.
//!
//! Its validators ask: a PASSED evaluation has correctness and performance, an INCORRECT_NUMERICAL one correctness alone,
//! every other neither; NaN is a string; a scalar's shape is null; the reference is Python with a function `run`; a
//! solution's entry file is among its sources. Its LSE is in base 2, ours natural, which the reference's text says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fa4_kernels::compile::CUDA_FOLDER;
use fa4_kernels::manifest::by_entry;
use fa4_kernels::source::Source;
use fa4_spec::problem::{AttnProblem, DType, MaskKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::env::{Env, timestamp};
use crate::error::BenchError;
use crate::folder;
use crate::record::{RunRow, Status};
use crate::render::us_of;
use crate::worker::workspace;

/// Group of all definitions here: dense batches of equal lengths, which the project's own groups do not have.
const OP_TYPE: &str = "gqa_dense";

/// Writes `folder`'s results below `out`; what was written, in words.
///
/// # Errors
/// What is wrong with the folder, or the file system's words.
pub fn flashinfer(folder: &Path, out: &Path) -> Result<String, BenchError> {
    let (env, rows) = (folder::env(folder)?, folder::rows(folder)?);
    let mut definitions: BTreeMap<String, Value> = BTreeMap::new();
    let mut lines: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut solutions: BTreeMap<(String, String), Value> = BTreeMap::new();
    for row in &rows {
        let name = definition_name(&row.problem);
        definitions.entry(name.clone()).or_insert_with(|| definition(&name, &row.problem));
        let workload = workload(row);
        let (workloads, traces) = lines.entry(name.clone()).or_default();
        let empty = json!({ "definition": name, "workload": workload, "solution": null, "evaluation": null });
        let _ = writeln!(workloads, "{empty}");
        let (Some(kernel), Some(evaluation)) = (&row.kernel, evaluation(row, &env)) else { continue };
        let solution = solution_name(&name, kernel, row, &env);
        solutions
            .entry((name.clone(), solution.clone()))
            .or_insert_with(|| self::solution(&solution, &name, kernel, &env));
        let trace = json!({ "definition": name, "workload": workload, "solution": solution, "evaluation": evaluation });
        let _ = writeln!(traces, "{trace}");
    }
    let put = |path: &str, text: String| -> Result<(), BenchError> {
        let path = out.join(path);
        let parent = path.parent().unwrap_or(out);
        fs::create_dir_all(parent).map_err(BenchError::file(parent))?;
        fs::write(&path, text).map_err(BenchError::file(&path))
    };
    let pretty =
        |value: &Value| serde_json::to_string_pretty(value).expect("plain data has a JSON form") + "\n";
    for (name, value) in &definitions {
        put(&format!("definitions/{OP_TYPE}/{name}.json"), pretty(value))?;
    }
    for ((definition, name), value) in &solutions {
        put(&format!("solutions/{OP_TYPE}/{definition}/{name}.json"), pretty(value))?;
    }
    let mut count = 0;
    for (name, (workloads, traces)) in lines {
        count += traces.lines().count();
        put(&format!("workloads/{OP_TYPE}/{name}.jsonl"), workloads)?;
        put(&format!("traces/{OP_TYPE}/{name}.jsonl"), traces)?;
    }
    let (definitions, solutions) = (definitions.len(), solutions.len());
    Ok(format!("{definitions} definitions, {} workloads, {solutions} solutions, {count} traces", rows.len()))
}

/// What the mask does, whatever the lengths: one definition serves all of them.
fn mask_word(p: &AttnProblem) -> String {
    match p.mask.kind(u64::MAX / 2, u64::MAX / 2) {
        MaskKind::Full => "full".into(),
        MaskKind::Causal => "causal".into(),
        MaskKind::Window => {
            let side = |bound: Option<u64>| bound.map_or("x".to_string(), |b| b.to_string());
            let right = if p.mask.causal { Some(0) } else { p.mask.window_right };
            format!("window_{}_{}", side(p.mask.window_left), side(right))
        }
    }
}

fn definition_name(p: &AttnProblem) -> String {
    let mut name =
        format!("{OP_TYPE}_{}_h{}_kv{}_d{}", mask_word(p), p.num_heads_q, p.num_heads_kv, p.head_dim_qk);
    if p.head_dim_v != p.head_dim_qk {
        let _ = write!(name, "_vo{}", p.head_dim_v);
    }
    if p.sink {
        name.push_str("_sink");
    }
    if p.softcap > 0.0 {
        let _ = write!(name, "_softcap{}", p.softcap);
    }
    if p.q_dtype != DType::Bf16 {
        let _ = write!(name, "_{}", p.q_dtype);
    }
    name
}

fn dtype(dtype: DType) -> &'static str {
    match dtype {
        DType::Bf16 => "bfloat16",
        DType::F16 => "float16",
        DType::E4m3 => "float8_e4m3fn",
    }
}

/// What O is stored as: as Q, but eight bits do not hold it.
fn output_dtype(p: &AttnProblem) -> &'static str {
    match p.q_dtype {
        DType::E4m3 => dtype(DType::Bf16),
        wider => dtype(wider),
    }
}

fn definition(name: &str, p: &AttnProblem) -> Value {
    let constant = |value: u64| json!({ "type": "const", "value": value });
    let tensor = |shape: &[&str], dtype: &str| json!({ "shape": shape, "dtype": dtype });
    let (q_type, kv_type) = (dtype(p.q_dtype), dtype(p.kv_dtype));
    let mut inputs = json!({
        "q": tensor(&["batch", "seqlen_q", "num_qo_heads", "head_dim_qk"], q_type),
        "k": tensor(&["batch", "seqlen_k", "num_kv_heads", "head_dim_qk"], kv_type),
        "v": tensor(&["batch", "seqlen_k", "num_kv_heads", "head_dim_vo"], kv_type),
        "sm_scale": { "shape": null, "dtype": "float32" },
    });
    if p.sink {
        inputs["sinks"] = tensor(&["num_qo_heads"], "float32");
    }
    json!({
        "name": name,
        "op_type": OP_TYPE,
        "description": "Dense forward attention; the mask is aligned bottom-right: query i sits on key i + seqlen_k - seqlen_q.",
        "tags": ["status:verified"],
        "axes": {
            "batch": { "type": "var" },
            "seqlen_q": { "type": "var" },
            "seqlen_k": { "type": "var" },
            "num_qo_heads": constant(p.num_heads_q),
            "num_kv_heads": constant(p.num_heads_kv),
            "head_dim_qk": constant(p.head_dim_qk),
            "head_dim_vo": constant(p.head_dim_v),
        },
        "inputs": inputs,
        "outputs": {
            "output": tensor(&["batch", "seqlen_q", "num_qo_heads", "head_dim_vo"], output_dtype(p)),
            "lse": tensor(&["batch", "num_qo_heads", "seqlen_q"], "float32"),
        },
        "constraints": [],
        "reference": reference(p),
    })
}

/// The definition as PyTorch, in f32: slow and plain.
fn reference(p: &AttnProblem) -> String {
    let sinks = if p.sink { ", sinks" } else { "" };
    let mut text = format!(
        "import math\nimport torch\n\n\n@torch.no_grad()\ndef run(q, k, v, sm_scale{sinks}):\n    group = q.shape[2] // k.shape[2]\n    \
         k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)\n    \
         s = torch.einsum(\"bqhd,bkhd->bhqk\", q.float(), k.float()) * sm_scale\n"
    );
    if p.softcap > 0.0 {
        let _ = writeln!(text, "    s = {0} * torch.tanh(s / {0})", p.softcap);
    }
    text.push_str(
        "    sq, sk = s.shape[-2:]\n    own = torch.arange(sq, device=s.device)[:, None] + sk - sq\n    \
         key = torch.arange(sk, device=s.device)[None]\n    hidden = torch.zeros(sq, sk, dtype=torch.bool, device=s.device)\n",
    );
    let right = if p.mask.causal { Some(0) } else { p.mask.window_right };
    if let Some(left) = p.mask.window_left {
        let _ = writeln!(text, "    hidden |= key < own - {left}");
    }
    if let Some(right) = right {
        let _ = writeln!(text, "    hidden |= key > own + {right}");
    }
    text.push_str("    s = s.masked_fill(hidden, -math.inf)\n    lse = torch.logsumexp(s, -1)\n");
    if p.sink {
        text.push_str(
            "    with_sink = torch.logaddexp(lse, sinks.float()[None, :, None])\n    \
             lse = torch.where(torch.isinf(lse), lse, with_sink)\n",
        );
    }
    let _ = write!(
        text,
        "    w = torch.exp(s - lse[..., None]).nan_to_num(0.0)\n    \
         o = torch.einsum(\"bhqk,bkhd->bqhd\", w, v.float()).to(torch.{})\n    \
         # In base 2, as this format wants it.\n    return {{\"output\": o, \"lse\": lse / math.log(2.0)}}\n",
        output_dtype(p)
    );
    text
}

fn workload(row: &RunRow) -> Value {
    let p = &row.problem;
    let random = json!({ "type": "random" });
    let mut inputs = json!({
        "q": random, "k": random, "v": random,
        "sm_scale": { "type": "scalar", "value": p.softmax_scale() },
    });
    if p.sink {
        inputs["sinks"] = random;
    }
    let axes = json!({ "batch": p.batch, "seqlen_q": p.seqlen_q, "seqlen_k": p.seqlen_k });
    json!({ "uuid": uuid(&row.case), "axes": axes, "inputs": inputs })
}

/// The same for the same row in every run.
fn uuid(case: &str) -> String {
    let hex: String = Sha256::digest(case.as_bytes()).iter().take(16).map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Unique over all definitions, as that project asks: one kernel solves several.
fn solution_name(definition: &str, kernel: &str, row: &RunRow, env: &Env) -> String {
    let who = env.settings.candidate.as_ref().map_or("fa4", |(_, name)| name.as_str());
    let artifact = row.artifact.as_deref().unwrap_or("unknown");
    format!("{who}_{kernel}_{artifact}_on_{definition}")
}

fn solution(name: &str, definition: &str, kernel: &str, env: &Env) -> Value {
    let (file, sources) = sources(kernel, env);
    json!({
        "name": name,
        "definition": definition,
        "author": "fa4",
        "description": format!(
            "Entry function {kernel} at commit {}, {}. It takes fa4's parameter struct (tensor maps among it): launch it \
             through fa4-host.", env.commit, env.compiler
        ),
        "spec": {
            "language": "cuda",
            "target_hardware": [env.gpu_name().replace(' ', "_")],
            "entry_point": format!("{file}::{kernel}"),
            "dependencies": [],
            "destination_passing_style": true,
        },
        "sources": sources,
    })
}

/// The entry file's name, and every file with its text; where this checkout does not have it, a file that says so.
fn sources(kernel: &str, env: &Env) -> (String, Vec<Value>) {
    let file = |path: &str, content: &str| json!({ "path": path, "content": content });
    let folder = workspace().join(CUDA_FOLDER);
    let found = by_entry(kernel).filter(|_| env.settings.candidate.is_none());
    let loaded = found.and_then(|row| Source::load(&folder, &folder.join(row.source)).ok());
    match loaded {
        Some(source) => {
            let headers = source.headers.iter().map(|(name, text)| file(name, text));
            let all = std::iter::once(file(&source.name, &source.text)).chain(headers).collect();
            (source.name.clone(), all)
        }
        None => {
            let text = format!("// {kernel}: see commit {} of fa4\n", env.commit);
            ("kernel.cu".into(), vec![file("kernel.cu", &text)])
        }
    }
}

/// A row's evaluation; `None` for one that was not served.
fn evaluation(row: &RunRow, env: &Env) -> Option<Value> {
    let status = match row.status {
        Status::Pass => "PASSED",
        Status::Fail => "INCORRECT_NUMERICAL",
        Status::Fault | Status::Error => "RUNTIME_ERROR",
        Status::Timeout => "TIMEOUT",
        Status::Unsupported => return None,
    };
    let mut libs =
        BTreeMap::from([("fa4".to_string(), env.commit.clone()), ("nvrtc".into(), env.compiler.clone())]);
    for entry in &row.references {
        libs.extend(entry.versions.clone());
    }
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(row.started);
    let mut value = json!({
        "status": status,
        "environment": { "hardware": env.gpu_name().replace(' ', "_"), "libs": libs },
        "timestamp": timestamp(time),
        "log": row.reason.clone().unwrap_or_default(),
        "correctness": null,
        "performance": null,
    });
    match (row.status, row.judged, row.ours_us()) {
        (Status::Pass, Some(judged), Some(us)) => {
            let references: BTreeMap<&str, f64> =
                row.references.iter().filter_map(|e| Some((e.id.as_str(), us_of(e)? / 1e3))).collect();
            value["correctness"] = json!({
                "max_absolute_error": judged.o_abs,
                "max_relative_error": judged.o_rel,
                "extra": { "o_error_over_bound": judged.o_ratio, "lse_error_over_bound": judged.lse_ratio,
                           "rows_judged": judged.rows, "rows": judged.of, "references_ms": references },
            });
            let against = row.verdict.as_ref().and_then(|v| v.against.clone());
            let best = against.as_ref().and_then(|id| references.get(id.as_str()));
            if let Some(id) = &against {
                value["log"] = json!(format!("reference_latency_ms is that of {id}"));
            }
            value["performance"] = json!({
                "latency_ms": us / 1e3,
                "reference_latency_ms": best.copied().unwrap_or(0.0),
                "speedup_factor": best.map_or(0.0, |ms| ms / (us / 1e3)),
            });
        }
        // A row without figures that did not fail has nothing to say in this form.
        (Status::Pass, ..) => return None,
        (Status::Fail, ..) => {
            value["correctness"] = json!({ "max_absolute_error": "NaN", "max_relative_error": "NaN" });
        }
        _ => {}
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use fa4_spec::Mask;

    use super::*;

    fn problem(mask: Mask) -> AttnProblem {
        AttnProblem::dense(2, (3, 5), (4, 2), 64, mask, DType::Bf16)
    }

    #[test]
    fn names_tell_definitions_apart() {
        let window = Mask { causal: true, window_left: Some(127), window_right: None };
        assert_eq!(definition_name(&problem(Mask::CAUSAL)), "gqa_dense_causal_h4_kv2_d64");
        let p = AttnProblem {
            sink: true,
            softcap: 50.0,
            head_dim_v: 128,
            q_dtype: DType::F16,
            ..problem(window)
        };
        assert_eq!(definition_name(&p), "gqa_dense_window_127_0_h4_kv2_d64_vo128_sink_softcap50_fp16");
        assert_eq!(uuid("a").len(), 36);
        assert_ne!(uuid("a"), uuid("b"));
    }

    #[test]
    fn eight_bit_inputs_give_sixteen_bit_outputs() {
        let p = AttnProblem { q_dtype: DType::E4m3, kv_dtype: DType::E4m3, ..problem(Mask::FULL) };
        let value = definition("x", &p);
        assert_eq!(value["inputs"]["v"]["dtype"], "float8_e4m3fn");
        assert_eq!(value["outputs"]["output"]["dtype"], "bfloat16");
        assert!(value["reference"].as_str().unwrap().contains(".to(torch.bfloat16)"));
    }

    /// Every axis that a tensor names is defined, and the reference has a `run` with the inputs as arguments in order.
    #[test]
    fn definitions_keep_the_validators_rules() {
        for mask in [Mask::FULL, Mask::CAUSAL] {
            let p = AttnProblem { sink: true, ..problem(mask) };
            let value = definition("x", &p);
            for tensors in ["inputs", "outputs"] {
                for (name, tensor) in value[tensors].as_object().unwrap() {
                    for axis in tensor["shape"].as_array().into_iter().flatten() {
                        assert!(value["axes"].get(axis.as_str().unwrap()).is_some(), "{name} {axis}");
                    }
                }
            }
            let text = value["reference"].as_str().unwrap();
            assert!(text.contains("\ndef run(q, k, v, sm_scale, sinks):\n"));
            assert_eq!(text.contains("hidden |= key > own + 0"), mask == Mask::CAUSAL);
        }
    }
}
