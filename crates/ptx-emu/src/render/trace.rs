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
    let all: Vec<Value> = names.chain(tracks).chain(events).collect();
    json!({ "traceEvents": all, "displayTimeUnit": "ms" })
}
