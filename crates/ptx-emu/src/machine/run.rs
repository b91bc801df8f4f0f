//! Runs a launch: resident CTAs in deterministic round robin until the grid is done or something is wrong.

use super::cluster::{Ctas, home};
use super::cta::{Cta, Origin};
use super::decode::Program;
use super::global::GlobalMemory;
use super::inst::OpClass;
use super::predict::Prediction;
use crate::fault::{Code, Fault, Site};
use crate::launch::{Counters, Launch, Options, Report, Schedule, Verdict};
use crate::num::mma::Scratch;
use crate::trace::Trace;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Why execution stopped.
pub(super) enum Stop {
    /// Wrong kernel.
    Fault(Box<Fault>),
    /// Cannot run it: what, program counter.
    Unsupported(String, u32),
    /// Step limit.
    StepLimit,
}

pub(super) type Res<T> = Result<T, Stop>;

/// Everything but the CTAs.
pub(super) struct Machine<'a> {
    pub prog: &'a Program,
    pub launch: &'a Launch<'a>,
    pub opts: &'a Options,
    pub gmem: &'a mut GlobalMemory,
    pub steps: u64,
    /// Bumped whenever something changed that a waiter could be waiting for.
    pub progress: u64,
    /// Value of `progress` when polls last got their time limit.
    pub timeout_progress: u64,
    /// Step of the last landing.
    pub landing_step: u64,
    pub rng: Rng,
    pub covers: Vec<u64>,
    pub strict: BTreeMap<(Code, u32, u32), Fault>,
    pub counters: Counters,
    pub phases: HashMap<String, u64>,
    pub trace: Option<Trace>,
    pub scratch: Scratch,
    /// Operand addresses by (descriptor, shape key).
    pub addr_cache: HashMap<(u64, u32), Rc<[u32]>>,
    pub bufs: super::exec_mma::Buffers,
    pub prediction: Option<Prediction>,
    /// CTAs of the cluster that runs, by rank; the running one's place is empty.
    pub peers: super::cluster::Ctas,
    /// Number of the next cluster to start.
    pub next_cluster: u64,
    /// Clusters of the grid.
    pub clusters: u64,
    pub hb: super::hb::Hb,
}

/// Counter-based generator (splitmix64).
pub(super) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Runs `launch` on `gmem`.
pub fn run(launch: &Launch<'_>, gmem: &mut GlobalMemory, opts: &Options) -> Report {
    let mut report = Report {
        verdict: Verdict::Clean,
        strict: vec![],
        counters: Counters::default(),
        schedule: opts.schedule,
        seed: opts.seed,
        prediction: None,
        trace: None,
    };
    let prog = match super::setup::prepare(launch, gmem) {
        Ok(p) => p,
        Err(v) => {
            report.verdict = v;
            return report;
        }
    };
    let mut m = Machine {
        prog: &prog,
        launch,
        opts,
        gmem,
        steps: 0,
        progress: 1,
        timeout_progress: 0,
        landing_step: 0,
        rng: Rng(opts.seed ^ 0x5eed_0000_0000),
        covers: vec![0; prog.covers.len()],
        strict: BTreeMap::new(),
        counters: Counters::default(),
        phases: HashMap::new(),
        trace: opts.trace.then(Trace::default),
        scratch: Scratch::default(),
        addr_cache: HashMap::new(),
        bufs: super::exec_mma::Buffers::default(),
        prediction: None,
        peers: vec![],
        next_cluster: 0,
        clusters: launch.grid.iter().zip(prog.cluster.dims).map(|(&g, d)| u64::from(g / d)).product(),
        hb: super::hb::Hb::default(),
    };
    let end = m.grid().and_then(|()| m.check_outputs());
    report.verdict = match end {
        Ok(()) => Verdict::Clean,
        Err(Stop::Fault(f)) => Verdict::Fault(f),
        Err(Stop::StepLimit) => Verdict::StepLimit,
        Err(Stop::Unsupported(what, pc)) => {
            let d = prog.code.get(pc as usize);
            Verdict::Unsupported {
                what,
                opcode: prog
                    .opcodes
                    .get(pc as usize)
                    .map_or(String::new(), |&o| launch.module.opcodes[o as usize].text.clone()),
                line: d.map_or(0, |d| d.span.line),
            }
        }
    };
    m.counters.steps = m.steps;
    m.counters.covers =
        prog.covers.iter().zip(&m.covers).map(|(n, c)| (n.to_string(), *c)).collect::<BTreeMap<_, _>>();
    m.counters.phases = std::mem::take(&mut m.phases).into_iter().collect();
    report.strict = std::mem::take(&mut m.strict).into_values().collect();
    report.counters = m.counters;
    report.prediction = m.prediction;
    if let Some(t) = &mut m.trace {
        t.finish(m.steps);
    }
    report.trace = m.trace;
    if opts.strict
        && report.verdict == Verdict::Clean
        && let Some(f) = report.strict.first()
    {
        report.verdict = Verdict::Fault(Box::new(f.clone()));
    }
    report
}

impl Machine<'_> {
    fn grid(&mut self) -> Res<()> {
        // The timed schedule has one CTA to an SM.
        let resident = if self.timed() { 1 } else { self.opts.resident.max(1) };
        let mut live: Vec<Ctas> = Vec::new();
        loop {
            while live.len() < resident && self.next_cluster < self.clusters {
                live.push(self.new_cluster(self.next_cluster));
                self.next_cluster += 1;
            }
            if live.is_empty() {
                return Ok(());
            }
            self.hb_sweep(&mut live);
            let mut moved = false;
            for k in &mut live {
                moved |= self.run_cluster(k)?;
            }
            if !moved && !self.unstick(&mut live)? {
                return Err(self.deadlock(&live));
            }
            for k in &mut live {
                self.end_ctas(k)?;
            }
            live.retain(|k| k.iter().flatten().any(|c| !c.ended));
        }
    }

    /// Gives every CTA of a cluster some turns; false when none could issue.
    fn run_cluster(&mut self, k: &mut Ctas) -> Res<bool> {
        let mut moved = false;
        std::mem::swap(&mut self.peers, k);
        for i in 0..self.peers.len() {
            // The other way round: what holds only while rank 0 is ahead shows.
            let r = if self.opts.schedule == Schedule::LateLifo { self.peers.len() - 1 - i } else { i };
            let Some(mut c) = self.peers[r].take() else { continue };
            let m = self.run_cta(&mut c);
            self.peers[r] = Some(c);
            moved |= m?;
        }
        std::mem::swap(&mut self.peers, k);
        Ok(moved)
    }

    /// Ends the CTAs of a cluster whose warps have all exited.
    fn end_ctas(&mut self, k: &mut Ctas) -> Res<()> {
        for r in 0..k.len() {
            let Some(mut c) = k[r].take_if(|c| !c.ended && c.done()) else { continue };
            std::mem::swap(&mut self.peers, k);
            self.finish(&mut c)?;
            c.ended = true;
            self.peers[r] = Some(c);
            std::mem::swap(&mut self.peers, k);
        }
        Ok(())
    }

    /// Lands what is left of a finished CTA and checks that it left nothing behind.
    fn finish(&mut self, c: &mut Cta) -> Res<()> {
        if self.opts.checks.lease
            && let Some(p) = c.pending_bulk_read()
        {
            let site = self.site(c, p, 0, "a bulk copy reads shared memory".into());
            let mut f =
                Fault::new(Code::Exit, "the CTA ended while a bulk copy still reads its shared memory")
                    .missing(format!(
                        "cp.async.bulk.wait_group.read 0 by {} after {} and before it exits",
                        self.who(p.warp),
                        self.line(p.pc)
                    ));
            f.site = Some(site);
            return Err(Stop::Fault(Box::new(f)));
        }
        self.nothing_under_way(c)?;
        while !c.pending.is_empty() {
            self.land_at(c, 0)?;
        }
        self.warpgroups_agree(c)?;
        if let Some((col, cols)) = c.tmem.live() {
            let mut f = Fault::new(
                Code::TmemLeak,
                format!(
                    "CTA {:?} ended with {cols} columns of tensor memory at column {col} allocated",
                    c.id
                ),
            )
            .help("execute tcgen05.dealloc by one whole warp before the kernel exits");
            f.site = None;
            return Err(Stop::Fault(Box::new(f)));
        }
        if let Some(k) = &c.clocks {
            let p = k.prediction();
            if self.prediction.is_none_or(|q| p.cycles > q.cycles) {
                self.prediction = Some(p);
            }
        }
        self.counters.tmem_columns = self.counters.tmem_columns.max(c.tmem.high_water);
        for (w, warp) in c.warps.iter().enumerate() {
            let name = self.role_of(w as u32).unwrap_or_else(|| format!("warp {w}"));
            let by = self.counters.instructions.entry(name).or_default();
            for (i, &n) in warp.counts.iter().enumerate().filter(|(_, n)| **n != 0) {
                *by.entry(CLASSES[i]).or_default() += n;
            }
        }
        for (&addr, m) in &c.mbars {
            *self
                .phases
                .entry(super::names::barrier(&self.launch.annotations, c.dynamic_base, addr))
                .or_default() += m.bar.phase();
        }
        Ok(())
    }

    fn check_outputs(&mut self) -> Res<()> {
        if !self.opts.checks.uninit {
            return Ok(());
        }
        for &(addr, len) in &self.launch.outputs {
            match self.gmem.first_undefined(addr, len) {
                Ok(None) => {}
                Ok(Some(a)) => {
                    let name = self
                        .gmem
                        .find(a)
                        .map_or(String::new(), |x| format!(" (`{}` byte {})", x.name, a - x.base));
                    return Err(Stop::Fault(Box::new(
                        Fault::new(
                            Code::UninitOutput,
                            format!("output byte at {a:#x}{name} is undefined when the grid ends"),
                        )
                        .help("either nobody wrote it, or what was written was computed from undefined data"),
                    )));
                }
                Err(e) => {
                    return Err(Stop::Fault(Box::new(Fault::new(
                        Code::Launch,
                        format!("output range: {e}"),
                    ))));
                }
            }
        }
        Ok(())
    }

    pub(super) fn role_of(&self, warp: u32) -> Option<String> {
        let warp = home(warp).1;
        let r = self.launch.annotations.roles.iter();
        r.filter(|r| warp >= r.first_warp && warp < r.first_warp + r.warps).map(|r| r.name.clone()).next()
    }

    pub(super) fn site(&self, c: &Cta, o: Origin, lanes: u32, what: String) -> Site {
        let (rank, warp) = home(o.warp);
        let cta = rank.map_or(c.id, |r| self.cta_id(c, r));
        Site { cta, warp, lanes, role: self.role_of(o.warp), pc: o.pc, step: o.step, what }
    }

    /// A fault at the instruction that `w` executes now.
    pub(super) fn fault(&self, c: &Cta, w: usize, pc: u32, lanes: u32, f: Fault) -> Stop {
        let mut f = f;
        if f.site.is_none() {
            let what = self.opcode(pc);
            f.site = Some(self.site(c, Origin { warp: w as u32, pc, step: self.steps }, lanes, what));
        }
        if matches!(
            f.code,
            Code::UninitBranch | Code::UninitAddress | Code::UninitBarrier | Code::UninitAtomic
        ) {
            f.notes.extend(self.undefined_origin(c, w, pc, lanes));
        }
        Stop::Fault(Box::new(f))
    }

    /// Records a strict finding once for each pair of instructions.
    /// Whether there is a strict finding of this code and pair of instructions already.
    pub(super) fn strict_known(&self, code: Code, pc: u32, other_pc: u32) -> bool {
        self.strict.contains_key(&(code, pc, other_pc))
    }

    pub(super) fn strict(&mut self, c: &Cta, w: usize, pc: u32, other_pc: u32, f: Fault) {
        let key = (f.code, pc, other_pc);
        if !self.strict.contains_key(&key)
            && let Stop::Fault(f) = self.fault(c, w, pc, 0, f)
        {
            self.strict.insert(key, *f);
        }
    }

    pub(super) fn opcode(&self, pc: u32) -> String {
        self.prog
            .opcodes
            .get(pc as usize)
            .map_or("end".into(), |&o| self.launch.module.opcodes[o as usize].text.clone())
    }

    pub(super) fn timed(&self) -> bool {
        self.opts.schedule == Schedule::Timed
    }

    pub(super) fn deterministic_random(&self) -> bool {
        self.opts.schedule == Schedule::Random
    }
}

impl Cta {
    /// Origin of a bulk store whose source was not waited for.
    fn pending_bulk_read(&self) -> Option<Origin> {
        let ops = self.bulk.values().flat_map(|g| g.open.iter().chain(g.groups.iter().flatten()));
        ops.filter(|&&o| !self.released[o as usize]).min().map(|&o| self.origins[o as usize])
    }
}

const CLASSES: [OpClass; super::inst::OP_CLASSES] = {
    use OpClass::*;
    [
        Int, Fp32, Packed, Mufu, Cvt, Mov, Cmp, Fp16, Fp64, Control, Memory, Warp, Barrier, Fence, Bulk,
        TmemMove, TmemWait, Mma, Commit, Other,
    ]
};
