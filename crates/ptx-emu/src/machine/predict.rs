//! The timed schedule: a prediction of how well a kernel is pipelined, under unit costs.
//!
//! Effects land at issue, as under `eager`; beside them every warp carries a clock, and every barrier the time at
//! which its phase completed. A waiting warp's clock jumps to that time. Three units have a cost and are shared: the
//! matrix pipe (one a CTA for `tcgen05.mma`, one for each quarter of the warps for `wgmma`, in issue order), the
//! multi-function unit (one for each quarter of the warps: warp index modulo 4), and, where asked for, the issue slot of
//! that quarter. The warp with the earliest clock runs next.
//!
//! It is a model, not a measurement: memory latency, bank conflicts, register dependencies, clock limits and the short
//! queue in front of Hopper's matrix pipe are not in it. What it can show is whether the protocol itself leaves the matrix pipe or the multi-function unit idle.

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

/// Cycles of one warp's share of a wgmma: 16 rows on its quarter of the SM, which does 1024 multiply-adds-as-two
/// operations a cycle on 16-bit elements.
pub fn wgmma_cycles(n: u32) -> u64 {
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

/// A matrix pipe, which runs instructions one by one.
#[derive(Clone, Copy, Default)]
pub(super) struct Pipe {
    /// When it is free again.
    pub free: u64,
    busy: u64,
    first: Option<u64>,
}

impl Pipe {
    /// An instruction of `cycles` that may start at `ready`; from when to when it runs.
    fn run(&mut self, ready: u64, cycles: u64) -> (u64, u64) {
        let start = self.free.max(ready);
        self.free = start + cycles;
        self.busy += cycles;
        self.first.get_or_insert(start);
        (start, self.free)
    }

    /// Time between its first and last instruction in which it had nothing to do.
    fn idle_inside(&self) -> u64 {
        let inside = self.first.map_or(0, |first| self.free - first);
        inside - self.busy.min(inside)
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
    /// The pipe of `tcgen05.mma`.
    pub pipe: Pipe,
    /// The pipes of `wgmma`.
    quarters: [Pipe; 4],
    /// Per warp: when each of its wgmmas ends.
    wgmma_ends: Vec<Vec<u64>>,
    /// Since when each warp has been running without a wait.
    run_since: Vec<u64>,
}

impl Clocks {
    pub fn new(warps: usize) -> Clocks {
        Clocks {
            warp: vec![0; warps],
            run_since: vec![0; warps],
            wgmma_ends: vec![Vec::new(); warps],
            ..Clocks::default()
        }
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
        self.pipe.run(self.warp[w], cycles)
    }

    /// Warp `w`'s share of a wgmma; returns when it runs.
    pub fn wgmma(&mut self, w: usize, cycles: u64) -> (u64, u64) {
        let times = self.quarters[w % 4].run(self.warp[w], cycles);
        self.wgmma_ends[w].push(times.1);
        times
    }

    /// When warp `w`'s wgmma number `seq` (from 1) ends.
    pub fn wgmma_end(&self, w: usize, seq: u32) -> u64 {
        self.wgmma_ends[w].get((seq as usize).wrapping_sub(1)).copied().unwrap_or(0)
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
            let track = crate::trace::warp_track(Some(role).filter(|r| !r.is_empty()), w as u32);
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
        let pipes = self.quarters.iter().chain([&self.pipe]);
        let busiest = pipes.max_by_key(|pipe| pipe.busy).copied().unwrap_or_default();
        Prediction {
            cycles: self.warp.iter().copied().max().unwrap_or(0).max(busiest.free),
            mma: busiest.busy,
            mufu: self.mufu_busy.into_iter().max().unwrap_or(0),
            mma_idle_inside: busiest.idle_inside(),
        }
    }
}

impl Cta {
    /// Clock of a warp (0 when the run is not timed).
    pub(super) fn now(&self, w: usize) -> u64 {
        self.clocks.as_ref().map_or(0, |c| c.warp[super::cluster::home(w as u32).1 as usize])
    }
}
