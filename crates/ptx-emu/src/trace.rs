//! Trace of a run: JSON lines and the Chrome/Perfetto format, one track for each role and engine.

use crate::machine::ops::{Kind, Pending};
use serde::Serialize;
use std::collections::BTreeMap;

/// One event.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// CTA.
    pub cta: [u32; 3],
    /// Track: `mma`, `tma`, `tmem w3`, `barriers`.
    pub track: String,
    /// What.
    pub name: String,
    /// Step at which it began.
    pub begin: u64,
    /// Step at which it ended (equal to `begin` for instants).
    pub end: u64,
    /// Operation number, to pair issue with landing.
    pub op: Option<u32>,
}

/// Events in the order they ended.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Events.
    pub events: Vec<Event>,
    open: Vec<([u32; 3], u32, u64)>,
    /// Per warp: its track, and what it does.
    warps: BTreeMap<([u32; 3], u32), Warp>,
}

/// What a warp does, where the schedule has no clocks.
#[derive(Clone, Debug, Default)]
struct Warp {
    track: String,
    /// What it waits for, and since when.
    waits: Option<(String, u64)>,
    /// The event of its last turn.
    last_run: Option<usize>,
}

/// The track of a warp.
pub(crate) fn warp_track(role: Option<&str>, warp: u32) -> String {
    role.map_or(format!("warp {warp}"), |role| format!("{role} (warp {warp})"))
}

impl Trace {
    /// An operation was issued.
    pub(crate) fn issue(&mut self, cta: [u32; 3], p: &Pending, step: u64) {
        self.open.push((cta, p.id, step));
    }

    /// An operation landed.
    pub(crate) fn land(&mut self, cta: [u32; 3], p: &Pending, step: u64) {
        let i = self.open.iter().position(|o| o.0 == cta && o.1 == p.id);
        let begin = i.map_or(step, |i| self.open.swap_remove(i).2);
        let (track, name) = match &p.kind {
            Kind::Load { bytes, .. } => ("tma load".to_string(), format!("load {bytes} B")),
            Kind::Store { .. } => ("tma store".to_string(), "store".to_string()),
            Kind::Between { size, .. } => ("cluster".to_string(), format!("copy {size} B from a peer")),
            Kind::Remote { bytes, .. } => ("cluster".to_string(), format!("store {bytes} B")),
            Kind::Response { .. } => ("cluster".to_string(), "launch control".to_string()),
            Kind::CpAsync { .. } => ("cp.async".to_string(), "cp.async".to_string()),
            Kind::CpArrive { .. } => ("cp.async".to_string(), "arrive".to_string()),
            Kind::Mma(m) => ("mma".to_string(), format!("mma D@{}", m.d.1)),
            Kind::Wgmma(m) => (format!("wgmma warp {}", p.warp), format!("wgmma {}", m.seq)),
            Kind::Cp { .. } => ("mma".to_string(), "cp".to_string()),
            Kind::Commit { .. } => ("mma".to_string(), "commit".to_string()),
            Kind::TmemLd { base } => (format!("tmem warp {}", p.warp), format!("ld @{}", base.1)),
            Kind::TmemSt { base, .. } => (format!("tmem warp {}", p.warp), format!("st @{}", base.1)),
        };
        self.events.push(Event { cta, track, name, begin, end: step, op: Some(p.id) });
    }

    /// A warp had a turn. Between turns it waits, or is ready and others have theirs.
    pub(crate) fn turn(&mut self, cta: [u32; 3], warp: u32, role: Option<&str>, begin: u64, end: u64) {
        let w = self.warps.entry((cta, warp)).or_default();
        if w.track.is_empty() {
            w.track = warp_track(role, warp);
        }
        let event =
            |name: String, begin, end| Event { cta, track: w.track.clone(), name, begin, end, op: None };
        if let Some((name, since)) = w.waits.take() {
            self.events.push(event(format!("wait {name}"), since, begin));
            w.last_run = None;
        }
        match w.last_run.map(|i| &mut self.events[i]) {
            Some(last) if last.end == begin => last.end = end,
            _ => {
                w.last_run = Some(self.events.len());
                self.events.push(event("run".into(), begin, end));
            }
        }
    }

    /// All of a warp waits from now on.
    pub(crate) fn blocked(&mut self, cta: [u32; 3], warp: u32, name: String, step: u64) {
        if let Some(w) = self.warps.get_mut(&(cta, warp)) {
            w.waits.get_or_insert((name, step));
        }
    }

    /// The run is over: who still waits does so to the end.
    pub(crate) fn finish(&mut self, step: u64) {
        for ((cta, _), w) in std::mem::take(&mut self.warps) {
            if let Some((name, begin)) = w.waits {
                let name = format!("wait {name}");
                self.events.push(Event { cta, track: w.track, name, begin, end: step, op: None });
            }
        }
    }

    /// A barrier completed a phase.
    pub(crate) fn phase(&mut self, cta: [u32; 3], barrier: &str, phase: u64, step: u64) {
        let name = format!("{barrier} phase {}", phase.wrapping_sub(1));
        self.events.push(Event { cta, track: "barriers".into(), name, begin: step, end: step, op: None });
    }
}
