//! The predicted schedule of one CTA as rows of spans: the matrix pipe and one warp of each role.

use fa4_kernels::kernel_info::KernelInfo;
use ptx_emu::trace::Trace;
use serde::Serialize;

/// Rows of spans over predicted cycles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// End of the last span.
    pub cycles: u64,
    /// The matrix pipe first, then the roles in warp order.
    pub lanes: Vec<Lane>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// `matrix pipe`, or the role.
    pub name: String,
    /// What it was busy with: the accumulator for the pipe, `run` for a role.
    pub busy: Vec<Span>,
    /// What the role waited for.
    pub waits: Vec<Span>,
}

/// From when to when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// What.
    pub what: String,
    /// First cycle.
    pub begin: u64,
    /// First cycle after it.
    pub end: u64,
}

const PIPE: &str = "matrix pipe";

impl Timeline {
    /// The rows that a trace in predicted cycles shows, with the first warp for each role.
    pub fn new(trace: &Trace, info: &KernelInfo) -> Timeline {
        let on_track = |track: &str| {
            let events = trace.events.iter().filter(|e| e.track == track && e.begin < e.end);
            events.map(|e| Span { what: e.name.clone(), begin: e.begin, end: e.end }).collect::<Vec<_>>()
        };
        let pipe = on_track(PIPE).into_iter().map(|span| Span { what: accumulator(&span.what), ..span });
        let mut lanes = vec![Lane { name: PIPE.to_owned(), busy: joined(pipe.collect()), waits: Vec::new() }];
        for role in &info.roles {
            let spans = on_track(&format!("{} (warp {})", role.name, role.first_warp));
            let (busy, waits): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span.what == "run");
            let waits = waits
                .into_iter()
                .map(|span| Span { what: span.what.trim_start_matches("wait ").to_owned(), ..span });
            // The barrier that ends the CTA is no hand-over.
            let waits = waits.filter(|span| !span.what.starts_with("named barrier 0"));
            lanes.push(Lane { name: role.name.clone(), busy, waits: waits.collect() });
        }
        lanes.retain(|lane| !lane.busy.is_empty() || !lane.waits.is_empty());
        let ends = lanes.iter().flat_map(|lane| lane.busy.iter().chain(&lane.waits)).map(|span| span.end);
        Timeline { cycles: ends.max().unwrap_or(0), lanes }
    }

    /// The accumulators that the pipe works on, in order of first use.
    pub fn accumulators(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for span in self.lanes.iter().filter(|lane| lane.name == PIPE).flat_map(|lane| &lane.busy) {
            if !names.contains(&span.what.as_str()) {
                names.push(&span.what);
            }
        }
        names
    }

    /// The rows as text, `columns` characters for the whole time; a legend behind.
    ///
    /// The pipe shows the accumulator's letter, small for the first tile; a role `#` while it computes, `|` where a wait
    /// ended and it did what costs nothing in the model, `.` while it waits.
    pub fn chart(&self, columns: usize) -> String {
        let width = self.lanes.iter().map(|lane| lane.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for lane in &self.lanes {
            let cells: String = (0..columns).map(|column| self.cell(lane, column, columns)).collect();
            text.push_str(&format!("{:<width$} {}\n", lane.name, cells.trim_end()));
        }
        let scale = format!("0{:>1$}", format!("{} cycles", self.cycles), columns - 1);
        text.push_str(&format!("{:<width$} {scale}\n", ""));
        let letters: Vec<String> =
            self.accumulators().iter().map(|name| format!("{} {name}", letter(name))).collect();
        text.push_str(&format!(
            "{:<width$} {}; # computes, | a wait ends, . waits\n",
            "",
            if letters.is_empty() { "no matrix instruction is timed".to_owned() } else { letters.join(", ") }
        ));
        text
    }

    fn cell(&self, lane: &Lane, column: usize, columns: usize) -> char {
        let at = |column: usize| self.cycles * column as u64 / columns as u64;
        let (begin, end) = (at(column), at(column + 1).max(at(column) + 1));
        let overlap = |span: &Span| span.end.min(end).saturating_sub(span.begin.max(begin));
        let longest =
            lane.busy.iter().max_by_key(|span| overlap(span)).filter(|span| 2 * overlap(span) >= end - begin);
        if let Some(span) = longest {
            return if lane.name == PIPE { letter(&span.what) } else { '#' };
        }
        if lane.name == PIPE {
            return ' ';
        }
        let ends = |span: &Span| (begin..end).contains(&(span.end - 1)) && !lane.computes_at(span.end);
        match lane.waits.iter().any(ends) {
            true => '|',
            false if lane.waits.iter().any(|span| overlap(span) > 0) => '.',
            false => ' ',
        }
    }
}

impl Lane {
    /// Whether it starts to compute at `cycle`.
    pub fn computes_at(&self, cycle: u64) -> bool {
        self.busy.iter().any(|span| span.begin == cycle)
    }
}

/// `S0` for `mma → S0 column 0`.
fn accumulator(name: &str) -> String {
    let name = name.split_once("→ ").map_or(name, |(_, region)| region);
    name.split_whitespace().next().unwrap_or(name).to_owned()
}

/// One letter for an accumulator: `s` for S0, `S` for S1, `2` for a third.
fn letter(name: &str) -> char {
    let (first, last) = (name.chars().next().unwrap_or('?'), name.chars().last().unwrap_or('?'));
    match last {
        '1' => first.to_ascii_uppercase(),
        '2'..='9' => last,
        _ => first.to_ascii_lowercase(),
    }
}

/// Neighbours that do the same without a gap are one span.
fn joined(spans: Vec<Span>) -> Vec<Span> {
    let mut all: Vec<Span> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if last.what == span.what && last.end == span.begin => last.end = span.end,
            _ => all.push(span),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use fa4_kernels::kernel_info::Role;
    use ptx_emu::trace::Event;

    fn trace(events: &[(&str, &str, u64, u64)]) -> Trace {
        let mut trace = Trace::default();
        for &(track, name, begin, end) in events {
            let (track, name) = (track.to_owned(), name.to_owned());
            trace.events.push(Event { cta: [0; 3], track, name, begin, end, op: None });
        }
        trace
    }

    fn info() -> KernelInfo {
        let role = |name: &str, first_warp| Role { name: name.into(), first_warp, warps: 1, regs: 64 };
        KernelInfo {
            roles: vec![role("softmax0", 0), role("mma", 1), role("idle", 2)],
            smem: Vec::new(),
            tmem: Vec::new(),
            barriers: Vec::new(),
            params: Vec::new(),
        }
    }

    #[test]
    fn a_trace_becomes_rows() {
        let trace = trace(&[
            ("matrix pipe", "mma → S0 column 0", 0, 10),
            ("matrix pipe", "mma → S0 column 0", 10, 20),
            ("matrix pipe", "mma → O1 column 0", 40, 80),
            ("softmax0 (warp 0)", "wait S_full[0]", 0, 20),
            ("softmax0 (warp 0)", "run", 20, 40),
            ("mma (warp 1)", "wait P_full[0]", 0, 40),
            ("idle (warp 2)", "wait named barrier 0", 0, 80),
            ("barriers", "S_full[0] phase 0", 20, 20),
        ]);
        let timeline = Timeline::new(&trace, &info());
        let names: Vec<_> = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
        assert_eq!(names, ["matrix pipe", "softmax0", "mma"]);
        assert_eq!(timeline.cycles, 80);
        assert_eq!(timeline.lanes[0].busy.len(), 2, "equal neighbours are joined");
        assert_eq!(timeline.accumulators(), ["S0", "O1"]);
        let chart = timeline.chart(8);
        let lines: Vec<&str> = chart.lines().collect();
        assert_eq!(lines[0], "matrix pipe ss  OOOO");
        assert_eq!(lines[1], "softmax0    ..##");
        assert_eq!(lines[2], "mma         ...|");
        assert!(lines[3].ends_with("80 cycles") && lines[4].contains("s S0, O O1;"), "{chart}");
    }
}
