//! State of a CTA and its warps.

use super::decode::Program;
use super::inst::{OP_CLASSES, TmemMove};
use super::ledger::Ledger;
use super::ops::{OpId, Pending};
use super::shared::SharedMemory;
use super::tmem::Tmem;
use super::wgmma::{Warpgroup, WgmmaState};
use crate::isa::mbarrier::Mbarrier;
use crate::isa::regs::{RegFile, V32, V64};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// No reconvergence point.
pub const NO_PC: u32 = u32::MAX;

/// What a group of lanes that share a program counter is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Can issue.
    Ready,
    /// Waits at the reconvergence point on top of its stack.
    Reconverge,
    /// At a `.sync` instruction, waiting for the lanes of this mask.
    Sync(u32),
    /// At a named barrier.
    Bar(u32),
    /// At a wait on the mbarrier at this shared address.
    Mbar(u32),
    /// At a bulk `wait_group`.
    Group,
    /// At a `cp.async.wait_group`.
    CpGroup,
    /// At `wgmma.wait_group`.
    Wgmma,
    /// At `tcgen05.alloc`.
    Alloc,
    /// At a cluster barrier.
    Cluster,
}

/// A group of lanes with one program counter.
#[derive(Clone, Debug)]
pub struct Split {
    /// Program counter.
    pub pc: u32,
    /// Lanes.
    pub mask: u32,
    /// What it is doing.
    pub state: State,
    /// Reconvergence stack: (program counter, lanes that meet there).
    pub stack: Vec<(u32, u32)>,
    /// Program counter on top of the stack ([`NO_PC`] when empty).
    pub meet: u32,
    /// Set when a blocked poll is to return false once (its time limit ran out).
    pub poll_pass: bool,
    /// Last unsuccessful `test_wait`: (program counter, barrier address, phase).
    pub last_poll: Option<(u32, u32, u64)>,
}

/// A tcgen05.ld that has not been waited for.
#[derive(Clone, Debug)]
pub struct LdTrack {
    /// Operation, for messages.
    pub op: OpId,
    /// Still to land.
    pub pending: bool,
    /// Program counter and step of the issue.
    pub pc: u32,
    /// Machine step of the issue.
    pub step: u64,
    /// Address (lane and column of the base).
    pub lane: u32,
    /// First column.
    pub col: u32,
    /// Columns.
    pub cols: u32,
    /// Destination registers that nobody has read yet.
    pub unread: u32,
}

/// A tcgen05.st that has not been waited for.
#[derive(Clone, Debug)]
pub struct StTrack {
    /// Operation.
    pub op: OpId,
    /// Program counter of the issue.
    pub pc: u32,
    /// Step of the issue.
    pub step: u64,
    /// Base lane.
    pub lane: u32,
    /// First column.
    pub col: u32,
    /// Columns.
    pub cols: u32,
}

/// Per-register state of an un-waited tcgen05.ld.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LdState {
    /// Nothing.
    #[default]
    None,
    /// The load has not landed.
    Pending(OpId),
    /// Landed, not read yet.
    Unread(OpId),
}

/// A warp.
pub struct Warp {
    /// Registers.
    pub regs: RegFile,
    /// Groups of lanes.
    pub splits: Vec<Split>,
    /// Lanes that have not exited.
    pub live: u32,
    /// Lanes that exist.
    pub lanes: u32,
    /// Un-waited loads from tensor memory.
    pub lds: Vec<LdTrack>,
    /// Un-waited stores to tensor memory.
    pub sts: Vec<StTrack>,
    /// Per 32-bit register, see [`LdState`].
    pub ld_state: Vec<LdState>,
    /// Registers with a state other than `None`.
    pub tracked: u32,
    /// Instructions by class.
    pub counts: [u64; OP_CLASSES],
    /// Per-thread memory, lane after lane, with undefined flags.
    pub local: Vec<u8>,
    /// Undefined flags of `local`.
    pub local_undef: Vec<bool>,
    /// Open and closed `cp.async` groups.
    pub cp_open: Vec<OpId>,
    /// Closed `cp.async` groups, oldest first.
    pub cp_groups: VecDeque<Vec<OpId>>,
    /// Lanes that have arrived at the cluster barrier in the phase under way.
    pub cluster_arrived: u32,
    /// Lanes that have arrived at the cluster barrier and not waited yet.
    pub cluster_owed: u32,
    /// Its wgmmas.
    pub wgmma: WgmmaState,
    /// Registers a thread, as set by setmaxnreg.
    pub max_regs: Option<u32>,
    /// Times a load or wait put this warp to sleep (statistics).
    pub last_issue: u64,
}

impl Warp {
    /// A warp with `lanes` threads about to execute instruction 0.
    pub fn new(prog: &Program, lanes: u32) -> Warp {
        let s = &prog.slots;
        let mut regs = RegFile::new(s.n32 as usize, s.n64 as usize, s.np as usize);
        for (&v, &i) in &s.const32 {
            regs.r32[i as usize] = V32([v; 32]);
            regs.u32[i as usize] = 0;
        }
        for (&v, &i) in &s.const64 {
            regs.r64[i as usize] = V64([v; 32]);
            regs.u64[i as usize] = 0;
        }
        for (&v, &i) in &s.constp {
            regs.p[i as usize] = if v { !0 } else { 0 };
            regs.up[i as usize] = 0;
        }
        let local = prog.layout.local_bytes as usize * 32;
        Warp {
            regs,
            splits: vec![Split {
                pc: 0,
                mask: lanes,
                state: State::Ready,
                stack: vec![],
                meet: NO_PC,
                poll_pass: false,
                last_poll: None,
            }],
            live: lanes,
            lanes,
            lds: vec![],
            sts: vec![],
            ld_state: vec![LdState::None; s.n32 as usize],
            tracked: 0,
            counts: [0; OP_CLASSES],
            local: vec![0; local],
            local_undef: vec![true; local],
            cp_open: vec![],
            cp_groups: VecDeque::new(),
            cluster_arrived: 0,
            cluster_owed: 0,
            wgmma: WgmmaState::new(prog),
            max_regs: None,
            last_issue: 0,
        }
    }
}

/// What to release when a phase has been observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// A bulk operation.
    Op(OpId),
    /// All matrix operations up to this sequence number.
    Mma(u32),
    /// A bulk operation in the books of another CTA of the cluster: rank, operation.
    PeerOp(u32, OpId),
    /// Matrix operations in the books of another CTA of the cluster: rank, sequence number.
    PeerMma(u32, u32),
}

/// An mbarrier in shared memory.
pub struct MbarSlot {
    /// The hardware object.
    pub bar: Mbarrier,
    /// Operations whose completion arrived in a phase.
    pub attached: Vec<(u64, Release)>,
    /// Highest phase count that a successful wait has seen.
    pub observed: u64,
    /// Program counter of the init.
    pub init_pc: u32,
    /// Latest arrival of the phase under way, and when the last phase completed (timed schedule).
    pub stamp: u64,
    /// See `stamp`.
    pub done_at: u64,
    /// Last arrival: (warp, see [`super::cluster::abroad`]; program counter, step).
    pub last_arrival: Option<(u32, u32, u64)>,
    /// Phase in which a (warp, lane) last arrived and kept the token.
    pub tokens: HashMap<(u32, u32), u64>,
    /// Per warp: highest phase count that a successful wait of it has seen.
    pub seen: BTreeMap<u32, u64>,
    /// Who has arrived and waited.
    pub ledger: Ledger,
}

/// A named barrier.
#[derive(Clone, Copy, Default)]
pub struct NamedBar {
    /// Threads the current phase needs (0 = idle).
    pub count: u32,
    /// Threads that arrived.
    pub arrived: u32,
    /// Used without a count: the whole CTA, exited warps left out.
    pub whole: bool,
    /// Latest arrival (timed schedule).
    pub stamp: u64,
    /// Lanes that brought a predicate to a reduction.
    pub lanes: u32,
    /// How many of the predicates are true.
    pub ones: u32,
}

/// Bulk groups of one thread.
#[derive(Default)]
pub struct BulkGroups {
    /// Not committed yet.
    pub open: Vec<OpId>,
    /// Committed, oldest first.
    pub groups: VecDeque<Vec<OpId>>,
}

/// Where an operation was issued.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Warp; of another CTA where [`super::cluster::abroad`] says so.
    pub warp: u32,
    /// Program counter.
    pub pc: u32,
    /// Step.
    pub step: u64,
}

/// A CTA.
pub struct Cta {
    /// Index in the grid.
    pub id: [u32; 3],
    /// Rank in its cluster.
    pub rank: u32,
    /// The rank where it stands in shared addresses (bits 24 and up).
    pub rank_bits: u64,
    /// It has ended; other CTAs of the cluster may still run.
    pub ended: bool,
    /// One of its threads has seen that launch control had nothing left to cancel.
    pub nothing_left: bool,
    /// Columns that a warp waits to allocate together with the other CTA of the pair.
    pub pair_wants: Option<u32>,
    /// Columns that the other CTA of the pair allocated for both.
    pub pair_got: Option<u32>,
    /// Operations of other CTAs' books that read its shared memory.
    pub lent: Vec<OpId>,
    /// Operations that add to shared memory: they may share granules.
    pub reductions: std::collections::HashSet<OpId>,
    /// Releases for other CTAs of the cluster, to be handed on.
    pub outbox: Vec<Release>,
    /// Shared memory.
    pub shared: SharedMemory,
    /// Tensor memory.
    pub tmem: Tmem,
    /// Warps.
    pub warps: Vec<Warp>,
    /// Named barriers.
    pub bars: [NamedBar; 16],
    /// Who has come to them.
    pub bar_ledgers: [Ledger; 16],
    /// Live mbarriers by shared address.
    pub mbars: BTreeMap<u32, MbarSlot>,
    /// Asynchronous operations that have not landed, oldest first.
    pub pending: Vec<Pending>,
    /// Per operation: has landed.
    pub landed: Vec<bool>,
    /// Per operation: its completion was observed.
    pub released: Vec<bool>,
    /// Per operation: where it was issued.
    pub origins: Vec<Origin>,
    /// Per matrix operation (sequence number − 1): where it was issued.
    pub mma_origins: Vec<Origin>,
    /// Per matrix operation: its number, or the last one's before it, in the books of the other CTA of the pair. Empty
    /// where no instruction works on a pair.
    pub pair_seqs: Vec<u32>,
    /// Last matrix operation of a (warp, lane): what its commits cover.
    pub mma_last: HashMap<(u32, u32), u32>,
    /// Matrix operations up to this sequence number are observed complete.
    pub mma_released: u32,
    /// Bulk groups by (warp, lane).
    pub bulk: HashMap<(u32, u32), BulkGroups>,
    /// Accumulator (column, columns) of the matrix operations that no commit covers yet.
    pub mma_open: Vec<(u32, u32)>,
    /// Step + 1 of the last `fence.proxy.async` of any warp.
    pub proxy_fence: u64,
    /// Warpgroups, for the agreement of their warps on each wgmma.
    pub warpgroups: Vec<Warpgroup>,
    /// Start of dynamic shared memory, as a window address.
    pub dynamic_base: u32,
    /// Next warp of the round robin.
    pub next_warp: usize,
    /// Happens-before.
    pub(super) hb: super::hb::CtaHb,
    /// Clocks of the timed schedule.
    pub(super) clocks: Option<Box<super::predict::Clocks>>,
}

impl Cta {
    /// Registers a new operation.
    pub fn new_op(&mut self, origin: Origin) -> OpId {
        self.landed.push(false);
        self.released.push(false);
        self.origins.push(origin);
        self.origins.len() as OpId - 1
    }

    /// Sequence number in the books of the other CTA of the pair of this CTA's matrix operation `seq`, or of the last
    /// before it; 0: none.
    pub fn pair_seq(&self, seq: u32) -> u32 {
        self.pair_seqs.get(..seq as usize).and_then(|s| s.last()).copied().unwrap_or(0)
    }

    /// True when every warp has exited.
    pub fn done(&self) -> bool {
        self.warps.iter().all(|w| w.live == 0)
    }

    /// Releases what completed phases of a barrier cover; a wait of `warp` has seen them.
    pub fn observe(&mut self, addr: u32, warp: u32) {
        let Some(m) = self.mbars.get_mut(&addr) else { return };
        let now = m.bar.phase();
        m.seen.insert(warp, now);
        m.observed = m.observed.max(now);
        let (released, mma, outbox) = (&mut self.released, &mut self.mma_released, &mut self.outbox);
        m.attached.retain(|&(phase, r)| {
            if phase >= now {
                return true;
            }
            match r {
                Release::Op(id) => released[id as usize] = true,
                Release::Mma(seq) => *mma = (*mma).max(seq),
                peer => outbox.push(peer),
            }
            false
        });
    }
}

/// Columns that a move covers and how many cells of 32 bits each register stands for.
pub fn move_columns(mv: &TmemMove) -> u32 {
    let n = mv.regs.len() as u32;
    let per = match mv.shape {
        super::inst::TmemShape::S16x128b => 2,
        super::inst::TmemShape::S16x256b => 4,
        _ => 1,
    };
    let cols = mv.shape.columns(n / per) * if mv.pack { 2 } else { 1 };
    if mv.shape == super::inst::TmemShape::S16x32bx2 { cols + mv.half_split } else { cols }
}
