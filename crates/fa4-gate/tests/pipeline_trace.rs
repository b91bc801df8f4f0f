//! The example that writes traces runs, and its traces have a track for each role and engine under every schedule.

#[path = "../examples/pipeline_trace.rs"]
#[allow(dead_code)]
mod pipeline_trace;

use fa4_gate::kernels::workspace;
use fa4_kernels::toolchain::Toolchain;
use std::path::Path;

#[test]
fn unknown_entries_and_schedules_are_named() {
    let error = |entry, schedule| {
        pipeline_trace::write(entry, Path::new("unused"), schedule).unwrap_err().to_string()
    };
    let text = error("fwd_sm100_hd128", "timed");
    assert!(text.contains("`fwd_sm100_hd128`") && text.contains("\n  fwd_sm100_hd128_bf16_full"), "{text}");
    assert!(error("fwd_sm100_hd128_bf16_full", "late").contains("late-lifo"));
}

#[test]
fn every_schedule_has_tracks_for_roles_engines_and_barriers() {
    if Toolchain::locate(&workspace()).is_err() {
        eprintln!("skipped: no compiler is set up");
        return;
    }
    for schedule in ["eager", "random", "late-lifo", "timed"] {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{schedule}.json"));
        let events = pipeline_trace::write("fwd_sm100_hd64_bf16_full", &out, schedule).unwrap();
        assert!(events > 100, "{schedule}: {events}");
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        let all = trace["traceEvents"].as_array().unwrap();
        let named = |kind: &str, name: &str| {
            let of = |e: &&serde_json::Value| e["ph"] == "X" || e["name"] == "thread_name";
            let mut events = all.iter().filter(of).filter(|e| (e["ph"] == "X") == (kind == "slice"));
            events.any(|e| if kind == "slice" { e["name"] == name } else { e["args"]["name"] == name })
        };
        let engine = if schedule == "timed" { "matrix pipe" } else { "mma" };
        for track in [
            "load (warp 14)",
            "mma (warp 12)",
            "softmax0 (warp 0)",
            "correction (warp 8)",
            engine,
            "barriers",
        ] {
            assert!(named("track", track), "{schedule}: no track `{track}`");
        }
        for slice in ["wait S_full[0]", "run", "P_full[1] phase 0", "named barrier 0 phase 0"] {
            assert!(named("slice", slice), "{schedule}: no slice `{slice}`");
        }
    }
}
