//! Trace of a run: JSON lines and the Chrome/Perfetto format, one track for each role and engine.

use crate::machine::ops::{Kind, Pending};
use serde::Serialize;

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

    /// A barrier completed a phase.
    pub(crate) fn phase(&mut self, cta: [u32; 3], barrier: &str, phase: u64, step: u64) {
        let name = format!("{barrier} phase {}", phase.wrapping_sub(1));
        self.events.push(Event { cta, track: "barriers".into(), name, begin: step, end: step, op: None });
    }
}
