//! Traces as files: JSON lines, and the Chrome format that Perfetto and chrome://tracing show (one process for
//! each CTA, one thread for each role or engine; a step of the machine counts as a microsecond).

use crate::trace::Trace;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One JSON object a line, as [`crate::trace::Event`] serialises.
pub fn json_lines(trace: &Trace) -> String {
    trace.events.iter().map(|e| json!(e).to_string() + "\n").collect()
}

/// The Chrome trace.
pub fn chrome(trace: &Trace) -> Value {
    let mut processes: BTreeMap<[u32; 3], usize> = BTreeMap::new();
    let mut threads: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let mut events = Vec::with_capacity(trace.events.len());
    for e in &trace.events {
        let next = processes.len() + 1;
        let pid = *processes.entry(e.cta).or_insert(next);
        let next = threads.len() + 1;
        let tid = *threads.entry((pid, e.track.as_str())).or_insert(next);
        // Instants are drawn one step wide, so that they can be seen and clicked.
        let duration = (e.end - e.begin).max(1);
        events.push(json!({
            "name": e.name, "ph": "X", "ts": e.begin, "dur": duration, "pid": pid, "tid": tid,
            "args": { "operation": e.op },
        }));
    }
    let names = processes.iter().map(|([x, y, z], pid)| {
        json!({ "name": "process_name", "ph": "M", "pid": pid, "args": { "name": format!("CTA ({x}, {y}, {z})") } })
    });
    let tracks = threads.iter().map(|((pid, track), tid)| {
        json!({ "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": { "name": track } })
    });
    let orders = threads.iter().map(|((pid, track), tid)| {
        let order = json!({ "sort_index": order(track, *tid) });
        json!({ "name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid, "args": order })
    });
    let all: Vec<Value> = names.chain(tracks).chain(orders).chain(events).collect();
    json!({ "traceEvents": all, "displayTimeUnit": "ms" })
}

/// Warps first, in their order, then engines, then barriers.
fn order(track: &str, number: usize) -> usize {
    let warp = track.strip_prefix("warp ").or_else(|| track.split_once(" (warp ").map(|t| t.1));
    match warp.and_then(|n| n.trim_end_matches(')').parse::<usize>().ok()) {
        Some(warp) => warp,
        None if track == "barriers" => usize::from(u16::MAX),
        None => 1024 + number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    #[test]
    fn tracks_are_named_and_sorted() {
        let event = |track: &str| Event {
            cta: [0; 3],
            track: track.into(),
            name: "x".into(),
            begin: 1,
            end: 1,
            op: None,
        };
        let mut trace = Trace::default();
        trace.events = ["barriers", "mma", "load (warp 14)", "warp 2"].map(event).to_vec();
        let all = chrome(&trace);
        let events = all["traceEvents"].as_array().cloned().unwrap_or_default();
        let of = |kind: &str| events.iter().filter(|e| e["name"] == kind).cloned().collect::<Vec<_>>();
        let mut order: Vec<(u64, String)> = of("thread_sort_index")
            .iter()
            .map(|e| {
                let name = of("thread_name")
                    .iter()
                    .find(|n| n["tid"] == e["tid"])
                    .map(|n| n["args"]["name"].to_string());
                (e["args"]["sort_index"].as_u64().unwrap_or(0), name.unwrap_or_default())
            })
            .collect();
        order.sort();
        let names: Vec<&str> = order.iter().map(|o| o.1.trim_matches('"')).collect();
        assert_eq!(names, ["warp 2", "load (warp 14)", "mma", "barriers"]);
        let slice = events.iter().find(|e| e["ph"] == "X").map(|e| e["dur"].clone());
        assert_eq!(slice, Some(json!(1)));
    }
}
