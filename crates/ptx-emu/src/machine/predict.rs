//! The timed schedule: a prediction of how well a kernel is pipelined, under unit costs.
//!
//! Effects land at issue, as under `eager`; beside them every warp carries a clock, and every barrier the time at
//! which its phase completed. A waiting warp's clock jumps to that time. Three units have a cost and are shared: the
//! matrix pipe (one a CTA, in issue order), the multi-function unit (one for each quarter of the warps: warp index
//! modulo 4), and, where asked for, the issue slot of that quarter. The warp with the earliest clock runs next.
//!
//! It is a model, not a measurement: memory latency, bank conflicts, register dependencies and clock limits are not
//! in it. What it can show is whether the protocol itself leaves the matrix pipe or the multi-function unit idle.

use super::cta::Cta;
use super::inst::OpClass;
use crate::trace::{Event, Trace};
use serde::Serialize;

/// Costs in cycles of one SM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// A warp instruction on the multi-function unit: 32 lanes at 4 a cycle and quarter (16 a cycle and SM).
    pub mufu: u64,
    /// Issuing any warp instruction.
    pub issue: u64,
    /// From the issue of a load to its completion.
    pub load: u64,
}

impl Costs {
    /// Only the matrix pipe and the multi-function unit cost anything.
    pub const UNITS: Costs = Costs { mufu: 8, issue: 0, load: 0 };
    /// Every instruction also takes one issue slot of its quarter, and a load takes 800 cycles.
    pub const ISSUE: Costs = Costs { mufu: 8, issue: 1, load: 800 };
}

/// Cycles of a matrix instruction (8192 multiply-adds-as-two operations a cycle at M = 128; M = 64 takes as long).
pub fn mma_cycles(n: u32) -> u64 {
    u64::from(n) / 2
}

/// What a timed run predicts, for the CTA that took longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Prediction {
    /// End of the last warp or matrix instruction.
    pub cycles: u64,
    /// Time the matrix pipe was busy.
    pub mma: u64,
    /// Time the busiest quarter's multi-function unit was busy.
    pub mufu: u64,
    /// Time between the first and the last matrix instruction in which the pipe had nothing to do.
    pub mma_idle_inside: u64,
}

impl Prediction {
    /// Critical path over the larger of matrix and multi-function time.
    pub fn ratio(&self) -> f64 {
        self.cycles as f64 / self.mma.max(self.mufu).max(1) as f64
    }
}

/// Clocks of one CTA.
#[derive(Default)]
pub(super) struct Clocks {
    /// Per warp.
    pub warp: Vec<u64>,
    mufu_free: [u64; 4],
    mufu_busy: [u64; 4],
    issue_free: [u64; 4],
    /// When the matrix pipe is free again.
    pub pipe_free: u64,
    pipe_busy: u64,
    pipe_first: Option<u64>,
    /// Since when each warp has been running without a wait.
    run_since: Vec<u64>,
}

impl Clocks {
    pub fn new(warps: usize) -> Clocks {
        Clocks { warp: vec![0; warps], run_since: vec![0; warps], ..Clocks::default() }
    }

    /// An instruction of warp `w` was executed.
    #[inline]
    pub fn instruction(&mut self, costs: &Costs, w: usize, class: OpClass) {
        let q = w % 4;
        let mut t = self.warp[w];
        // Packing moves are PTX's alone: registers are renamed, no instruction is left of them.
        if costs.issue != 0 && class != OpClass::Mov {
            t = t.max(self.issue_free[q]) + costs.issue;
            self.issue_free[q] = t;
        }
        if class == OpClass::Mufu {
            t = t.max(self.mufu_free[q]) + costs.mufu;
            self.mufu_free[q] = t;
            self.mufu_busy[q] += costs.mufu;
        }
        self.warp[w] = t;
    }

    /// A matrix instruction of `cycles` issued by warp `w`; returns when it runs.
    pub fn matrix(&mut self, w: usize, cycles: u64) -> (u64, u64) {
        let start = self.pipe_free.max(self.warp[w]);
        self.pipe_free = start + cycles;
        self.pipe_busy += cycles;
        self.pipe_first.get_or_insert(start);
        (start, self.pipe_free)
    }

    /// Warp `w` waited until `time`.
    pub fn wait(
        &mut self,
        w: usize,
        time: u64,
        cta: [u32; 3],
        name: &str,
        role: &str,
        trace: Option<&mut Trace>,
    ) {
        if time <= self.warp[w] {
            return;
        }
        if let Some(t) = trace {
            let track = format!("{role} (warp {w})");
            let event =
                |name: String, begin, end| Event { cta, track: track.clone(), name, begin, end, op: None };
            if self.run_since[w] < self.warp[w] {
                t.events.push(event("run".into(), self.run_since[w], self.warp[w]));
            }
            t.events.push(event(format!("wait {name}"), self.warp[w], time));
        }
        self.warp[w] = time;
        self.run_since[w] = time;
    }

    pub fn prediction(&self) -> Prediction {
        let last = self.warp.iter().copied().max().unwrap_or(0).max(self.pipe_free);
        let inside = self.pipe_first.map_or(0, |f| self.pipe_free - f);
        Prediction {
            cycles: last,
            mma: self.pipe_busy,
            mufu: self.mufu_busy.into_iter().max().unwrap_or(0),
            mma_idle_inside: inside - self.pipe_busy.min(inside),
        }
    }
}

impl Cta {
    /// Clock of a warp (0 when the run is not timed).
    pub(super) fn now(&self, w: usize) -> u64 {
        self.clocks.as_ref().map_or(0, |c| c.warp[super::cluster::home(w as u32).1 as usize])
    }
}
