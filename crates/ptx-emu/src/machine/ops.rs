//! Asynchronous operations in flight.

use crate::tma::tile::Chunk;
use crate::tma::{ElemType, NumType, ReduceOp};
use std::rc::Rc;

/// Number of an operation within its CTA, in issue order.
pub type OpId = u32;

/// Resolved matrix instruction.
#[derive(Clone)]
pub struct MmaOp {
    /// Sequence number among the CTA's matrix operations (from 1).
    pub seq: u32,
    /// Decoded instruction descriptor.
    pub desc: crate::isa::idesc::InstrDesc,
    /// Where the accumulator lies.
    pub layout: crate::isa::tcgen05_layout::DLayout,
    /// Kind.
    pub kind: super::inst::MmaKind,
    /// Accumulator: lane, column.
    pub d: (u32, u32),
    /// A operand.
    pub a: MmaSource,
    /// B operand: addresses of its elements, n × k.
    pub b: Rc<[u32]>,
    /// Accumulate.
    pub enable: bool,
    /// Lanes not written, in the even and the odd CTA of a pair (or in the only one).
    pub mask: [u128; 2],
    /// D is scaled by 2^-this first.
    pub scale_d: u32,
    /// Block scales.
    pub scale: Option<ScaleOp>,
}

/// Block scales of a matrix instruction.
#[derive(Clone, Debug)]
pub struct ScaleOp {
    /// Column of A's factors.
    pub a: u32,
    /// Column of B's factors.
    pub b: u32,
    /// Factors of a row.
    pub factors: u32,
    /// What the instruction descriptor says of them.
    pub scales: crate::isa::idesc_scaled::Scales,
}

/// Resolved wgmma of one warp.
#[derive(Clone)]
pub struct WgmmaOp {
    /// Sequence number among the warp's wgmmas (from 1).
    pub seq: u32,
    /// Addresses of the 16 × k elements of A that the warp needs; none where A is in registers.
    pub a: Option<(Rc<[u32]>, std::ops::Range<usize>)>,
    /// Addresses of the n × k elements of B.
    pub b: Rc<[u32]>,
    /// Accumulate.
    pub scale_d: bool,
}

/// Where a matrix operand lies.
#[derive(Clone)]
pub enum MmaSource {
    /// Shared-memory addresses of its elements, rows × k.
    Shared(Rc<[u32]>),
    /// Tensor memory: lane, column.
    Tmem(u32, u32),
}

/// One lane's share of an `st.async` or `red.async`.
#[derive(Clone)]
pub struct RemoteStore {
    /// Window address.
    pub addr: u32,
    /// Bytes.
    pub len: u8,
    /// Value.
    pub data: [u8; 32],
    /// Undefined bytes.
    pub undef: u32,
}

/// What lands.
#[derive(Clone)]
pub enum Kind {
    /// Tensor or linear load into shared memory, then complete_tx on a barrier.
    Load {
        /// Runs.
        chunks: Vec<Chunk>,
        /// Fill pattern of bytes outside the tensor.
        fill: [u8; 16],
        /// Element type (for rounding on the way).
        elem: Option<ElemType>,
        /// Barrier: rank of its CTA, address.
        mbar: (u32, u32),
        /// Bytes it completes.
        bytes: u32,
    },
    /// Linear copy from another CTA's shared memory.
    Between {
        /// Rank of the source's CTA, the operation in its books, address.
        from: (u32, OpId, u32),
        /// Destination.
        dst: u32,
        /// Bytes.
        size: u32,
        /// Barrier, of the destination's CTA.
        mbar: u32,
        /// Reduction.
        reduce: Option<(ReduceOp, NumType)>,
    },
    /// `st.async` or `red.async`.
    Remote {
        /// What the lanes store.
        stores: Vec<RemoteStore>,
        /// Reduction.
        reduce: Option<(super::inst::AtomOp, super::inst::AtomTy)>,
        /// Barrier.
        mbar: u32,
        /// Bytes in all.
        bytes: u32,
    },
    /// Response of clusterlaunchcontrol.try_cancel.
    Response {
        /// Where it goes.
        dst: u32,
        /// Barrier.
        mbar: u32,
        /// What it says.
        data: [u8; 16],
    },
    /// Tensor or linear store from shared memory.
    Store {
        /// Runs.
        chunks: Vec<Chunk>,
        /// Reduction.
        reduce: Option<(ReduceOp, NumType)>,
    },
    /// `cp.async`: (shared address, global address, bytes copied, bytes in all).
    CpAsync {
        /// Lanes' copies.
        copies: Vec<(u32, u64, u32, u32)>,
    },
    /// Arrival that waits for earlier `cp.async` of the warp.
    CpArrive {
        /// Barrier.
        mbar: u32,
        /// Arrivals.
        count: u32,
        /// Operations it waits for.
        after: Vec<OpId>,
    },
    /// Matrix instruction.
    Mma(Box<MmaOp>),
    /// wgmma, the part of one warp; the instruction is at `pc`.
    Wgmma(Box<WgmmaOp>),
    /// Shared → tensor memory copy.
    Cp {
        /// Sequence number.
        seq: u32,
        /// Shape.
        shape: crate::isa::tcgen05_layout::CpShape,
        /// Base lane and column.
        base: (u32, u32),
        /// Shared-memory descriptor.
        desc: crate::isa::smem_desc::SmemDesc,
    },
    /// Commit: arrival when all matrix operations up to a sequence number are done.
    Commit {
        /// Barrier, in each of the CTAs.
        mbar: u32,
        /// Ranks of the CTAs in which it arrives.
        to: Vec<u32>,
        /// Last covered sequence number.
        seq: u32,
    },
    /// Tensor memory → registers; the instruction is at `pc`.
    TmemLd {
        /// Base lane and column.
        base: (u32, u32),
    },
    /// Registers → tensor memory: values and undefined bytes, captured at issue.
    TmemSt {
        /// Base lane and column.
        base: (u32, u32),
        /// Per register: 32 values and 32 undefined masks.
        data: Vec<([u32; 32], [u8; 32])>,
    },
}

/// An operation that has not landed.
#[derive(Clone)]
pub struct Pending {
    /// Number.
    pub id: OpId,
    /// Issuing warp; of another CTA where [`super::cluster::abroad`] says so.
    pub warp: u32,
    /// Issuing instruction.
    pub pc: u32,
    /// What.
    pub kind: Kind,
}

impl Pending {
    /// Belongs to the matrix pipe, which executes in issue order.
    pub fn in_mma_pipe(&self) -> bool {
        matches!(self.kind, Kind::Mma(_) | Kind::Cp { .. } | Kind::Commit { .. })
    }

    /// Moves between registers and tensor memory.
    pub fn is_tmem_move(&self) -> bool {
        matches!(self.kind, Kind::TmemLd { .. } | Kind::TmemSt { .. })
    }

    /// Copies by the tensor memory accelerator or `cp.async`.
    pub fn is_copy(&self) -> bool {
        matches!(
            self.kind,
            Kind::Load { .. }
                | Kind::Store { .. }
                | Kind::CpAsync { .. }
                | Kind::Between { .. }
                | Kind::Remote { .. }
        )
    }
}
