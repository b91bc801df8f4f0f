//! The decoded form of a kernel: what each instruction does, with register slots instead of names.

use crate::isa::alu::AluOp;
use crate::isa::regs::Class;
use crate::num::mma::Format;
use crate::syntax::ast::Span;

/// A register slot with its class.
pub type Reg = (Class, u32);

/// An address expression: slot plus offset.
#[derive(Clone, Copy, Debug)]
pub enum Addr {
    /// 32-bit register + offset (wraps at 2^32).
    R32(u32, i64),
    /// 64-bit register + offset.
    R64(u32, i64),
    /// Known when decoding.
    Abs(u64),
    /// A place in the executing CTA's own shared memory: an offset in the window, without the CTA's rank.
    Own(u32),
}

/// Where a memory instruction goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Kernel parameters (offset in the parameter buffer).
    Param,
    /// Device memory (also `.const`, which this machine keeps there).
    Global,
    /// Shared memory of the executing CTA.
    Shared,
    /// Shared memory of any CTA of the cluster: its rank is in bits 24 and up.
    Cluster,
    /// Per-thread memory.
    Local,
    /// Decided by the address.
    Generic,
}

/// Element of a vector load or store.
#[derive(Clone, Debug)]
pub struct Access {
    /// Where.
    pub place: Place,
    /// Address of element 0.
    pub addr: Addr,
    /// Registers, one an element; `None` for `_`.
    pub regs: Box<[Option<Reg>]>,
    /// Bytes of one element.
    pub bytes: u8,
    /// Loads of signed types narrower than the register sign-extend.
    pub signed: bool,
    /// Bytes of the destination register.
    pub reg_bytes: u8,
    /// Acquire, release or stronger.
    pub ordered: bool,
    /// How it is strong; none: it is weak.
    pub order: Option<super::hb::Order>,
}

/// Atomic operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomOp {
    /// Wrapping or floating addition.
    Add,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise xor.
    Xor,
    /// Exchange.
    Exch,
    /// Compare and swap.
    Cas,
    /// Increment with wrap.
    Inc,
    /// Decrement with wrap.
    Dec,
}

/// Type an atomic works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomTy {
    /// Unsigned or untyped, 32 bits.
    U32,
    /// Signed 32 bits.
    S32,
    /// Unsigned or untyped, 64 bits.
    U64,
    /// Signed 64 bits.
    S64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Two halves.
    F16x2,
    /// Two bfloat16.
    Bf16x2,
    /// Untyped 16 bits (`cas` only).
    B16,
    /// One half.
    F16,
    /// One bfloat16.
    Bf16,
}

impl AtomTy {
    /// Floating point.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            AtomTy::F32 | AtomTy::F64 | AtomTy::F16x2 | AtomTy::Bf16x2 | AtomTy::F16 | AtomTy::Bf16
        )
    }

    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            AtomTy::U64 | AtomTy::S64 | AtomTy::F64 => 8,
            AtomTy::B16 | AtomTy::F16 | AtomTy::Bf16 => 2,
            _ => 4,
        }
    }
}

/// What a `shfl` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShflMode {
    /// Lower lane.
    Up,
    /// Higher lane.
    Down,
    /// Butterfly.
    Bfly,
    /// Indexed.
    Idx,
}

/// What a `vote` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VoteMode {
    /// All true.
    All,
    /// Any true.
    Any,
    /// All equal.
    Uni,
    /// Mask.
    Ballot,
}

/// What a `redux` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduxOp {
    /// Wrapping sum.
    Add,
    /// Unsigned minimum.
    MinU,
    /// Unsigned maximum.
    MaxU,
    /// Signed minimum.
    MinS,
    /// Signed maximum.
    MaxS,
    /// And.
    And,
    /// Or.
    Or,
    /// Xor.
    Xor,
    /// Floating minimum.
    MinF {
        /// Of absolute values.
        abs: bool,
        /// NaN wins.
        nan: bool,
    },
    /// Floating maximum.
    MaxF {
        /// Of absolute values.
        abs: bool,
        /// NaN wins.
        nan: bool,
    },
}

/// mbarrier operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MbarOp {
    /// `init`.
    Init,
    /// `inval`.
    Inval,
    /// `arrive`.
    Arrive,
    /// `arrive.noComplete`.
    ArriveNoComplete,
    /// `arrive.expect_tx`.
    ArriveExpectTx,
    /// `arrive_drop`.
    ArriveDrop,
    /// `arrive_drop.noComplete`.
    ArriveDropNoComplete,
    /// `arrive_drop.expect_tx`.
    ArriveDropExpectTx,
    /// `expect_tx`.
    ExpectTx,
    /// `complete_tx`.
    CompleteTx,
    /// `test_wait` with a token.
    TestWait,
    /// `test_wait.parity`.
    TestWaitParity,
    /// `try_wait` with a token.
    TryWait,
    /// `try_wait.parity`.
    TryWaitParity,
}

/// A decoded mbarrier instruction.
#[derive(Clone, Copy, Debug)]
pub struct Mbar {
    /// What.
    pub op: MbarOp,
    /// The barrier.
    pub addr: Addr,
    /// Token destination (64-bit slot).
    pub token: Option<u32>,
    /// Predicate destination of a wait.
    pub pred: Option<u32>,
    /// Count, tx bytes or parity (32-bit slot).
    pub value: Option<u32>,
    /// Token source of a wait (64-bit slot).
    pub state: Option<u32>,
    /// Orders nothing by itself.
    pub relaxed: bool,
    /// How far it orders.
    pub scope: super::hb::Scope,
}

/// Named-barrier operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarOp {
    /// Wait for everybody.
    Sync,
    /// Arrive only.
    Arrive,
    /// Wait for everybody and combine their predicates.
    Reduce {
        /// How.
        how: BarReduce,
        /// Destination: a 32-bit slot for the count, else a predicate.
        d: u32,
        /// Predicate, and whether it is negated.
        src: (u32, bool),
    },
}

/// What a barrier with a reduction tells every thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarReduce {
    /// How many predicates are true.
    Popc,
    /// Whether all are.
    And,
    /// Whether any is.
    Or,
}

/// A-operand of a matrix instruction.
#[derive(Clone, Copy, Debug)]
pub enum MmaA {
    /// Shared-memory descriptor (64-bit slot).
    Desc(u32),
    /// Tensor-memory address (32-bit slot) plus offset.
    Tmem(Addr),
}

/// `kind` of a tcgen05.mma.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmaKind {
    /// f16 and bf16.
    F16,
    /// tf32.
    Tf32,
    /// 8-, 6- and 4-bit floats.
    F8f6f4,
    /// 8-, 6- and 4-bit floats with block scales.
    Mxf8f6f4,
    /// 4-bit floats with block scales.
    Mxf4,
    /// 4-bit floats with block scales, also finer ones.
    Mxf4nvf4,
}

/// A decoded tcgen05.mma.
#[derive(Clone, Debug)]
pub struct Mma {
    /// Kind.
    pub kind: MmaKind,
    /// Accumulator address.
    pub d: Addr,
    /// A operand.
    pub a: MmaA,
    /// B descriptor (64-bit slot).
    pub b: u32,
    /// Instruction descriptor (32-bit slot).
    pub idesc: u32,
    /// enable-input-d: predicate slot, negated.
    pub enable: (u32, bool),
    /// disable-output-lane mask (none, 4 slots, or 8 for a CTA pair).
    pub mask: Box<[u32]>,
    /// `.ws`.
    pub ws: bool,
    /// Block scales: addresses of A's and B's factors, factors of a row.
    pub scale: Option<(Addr, Addr, u32)>,
    /// scale-input-d: D is multiplied by 2^-this.
    pub scale_d: u32,
}

/// A operand of a wgmma.
#[derive(Clone, Copy, Debug)]
pub enum WgmmaA {
    /// Shared-memory descriptor (64-bit slot).
    Desc(u32),
    /// Registers (32-bit slots).
    Regs([u32; 4]),
}

/// A decoded wgmma.mma_async.
#[derive(Clone, Debug)]
pub struct Wgmma {
    /// Type of A.
    pub a_fmt: Format,
    /// Type of B.
    pub b_fmt: Format,
    /// The accumulator is f16, two elements a register.
    pub f16_acc: bool,
    /// Columns.
    pub n: u32,
    /// Accumulator registers (32-bit slots).
    pub d: Box<[u32]>,
    /// A operand.
    pub a: WgmmaA,
    /// B descriptor (64-bit slot).
    pub b: u32,
    /// scale-d: predicate slot, negated.
    pub scale_d: (u32, bool),
    /// imm-scale-a is −1.
    pub negate_a: bool,
    /// imm-scale-b is −1.
    pub negate_b: bool,
    /// A is M-major.
    pub trans_a: bool,
    /// B is N-major.
    pub trans_b: bool,
}

/// A decoded mma.sync of m16n8; registers are 32-bit slots.
#[derive(Clone, Debug)]
pub struct MmaSync {
    /// Type of A.
    pub a_fmt: Format,
    /// Type of B.
    pub b_fmt: Format,
    /// C and D are f16.
    pub f16_acc: bool,
    /// Products per element.
    pub k: u32,
    /// Results.
    pub d: Box<[u32]>,
    /// A, 16 × k.
    pub a: Box<[u32]>,
    /// B, k × 8.
    pub b: Box<[u32]>,
    /// C.
    pub c: Box<[u32]>,
}

/// Shapes of tcgen05.ld and tcgen05.st; the numbers are those of the manual.
pub use crate::isa::tcgen05_layout::LdStShape as TmemShape;

/// A decoded tcgen05.ld or tcgen05.st.
#[derive(Clone, Debug)]
pub struct TmemMove {
    /// Shape.
    pub shape: TmemShape,
    /// Registers in order (32-bit slots); a sink is a slot of its own.
    pub regs: Box<[u32]>,
    /// `.pack::16b` / `.unpack::16b`.
    pub pack: bool,
    /// Address.
    pub taddr: Addr,
    /// immHalfSplitoff of 16x32bx2.
    pub half_split: u32,
}

/// Element-wise operation of a reducing bulk copy, named as in the opcode (`add`, `min`, …), with its type
/// for the plain form (`f32`, …; the tensor form takes it from the map).
pub type BulkReduce = crate::tma::reduce::ReduceOp;

/// A decoded bulk copy.
#[derive(Clone, Debug)]
pub enum Bulk {
    /// Tensor load.
    TensorLoad {
        /// Rank in the opcode.
        dims: u8,
        /// `.tile::gather4`.
        gather4: bool,
        /// Destination.
        dst: Addr,
        /// Tensor map.
        map: Addr,
        /// Coordinates (32-bit slots).
        coords: Box<[u32]>,
        /// Barrier.
        mbar: Addr,
        /// Mask of destination CTAs (32-bit slot).
        mask: Option<u32>,
        /// `.cta_group::2`: the barrier may be that of the other CTA of the pair.
        pair: bool,
    },
    /// Tensor store or reduction.
    TensorStore {
        /// Rank in the opcode.
        dims: u8,
        /// Reduction.
        reduce: Option<BulkReduce>,
        /// Tensor map.
        map: Addr,
        /// Coordinates (32-bit slots).
        coords: Box<[u32]>,
        /// Source.
        src: Addr,
    },
    /// Linear global → shared.
    Load {
        /// Destination.
        dst: Addr,
        /// Source.
        src: Addr,
        /// Bytes (32-bit slot).
        size: u32,
        /// Barrier.
        mbar: Addr,
        /// Mask of destination CTAs (32-bit slot).
        mask: Option<u32>,
    },
    /// Linear shared → shared memory of another CTA of the cluster.
    Between {
        /// Destination.
        dst: Addr,
        /// Source.
        src: Addr,
        /// Bytes (32-bit slot).
        size: u32,
        /// Barrier.
        mbar: Addr,
        /// Reduction and element type.
        reduce: Option<(BulkReduce, crate::tma::NumType)>,
    },
    /// Linear shared → global.
    Store {
        /// Destination.
        dst: Addr,
        /// Source.
        src: Addr,
        /// Bytes (32-bit slot).
        size: u32,
        /// Reduction and element type.
        reduce: Option<(BulkReduce, crate::tma::NumType)>,
    },
}

/// A decoded `st.async` or `red.async`.
#[derive(Clone, Debug)]
pub struct RemoteAsync {
    /// Address of element 0.
    pub addr: Addr,
    /// Barrier, in the same CTA.
    pub mbar: Addr,
    /// Values.
    pub regs: Box<[Option<Reg>]>,
    /// Bytes of one.
    pub bytes: u8,
    /// Reduction.
    pub reduce: Option<(AtomOp, AtomTy)>,
}

/// A decoded clusterlaunchcontrol instruction.
#[derive(Clone, Debug)]
pub enum LaunchControl {
    /// `try_cancel`: response address, barrier, whether every CTA of the cluster gets the response.
    TryCancel(Addr, Addr, bool),
    /// `query_cancel.is_canceled`: predicate, response (128-bit slot).
    IsCanceled(u32, u32),
    /// `query_cancel.get_first_ctaid`: 32-bit destinations of x, y, z; response (128-bit slot).
    FirstCtaid([Option<u32>; 3], u32),
}

/// One decoded operation.
#[derive(Clone, Debug)]
pub enum Inst {
    /// Register-only.
    Alu(AluOp),
    /// Coverage marker.
    Cover(u32),
    /// Branch.
    Bra(u32),
    /// Indexed branch.
    BrxIdx(u32, Box<[u32]>),
    /// `ret` or `exit`.
    Exit,
    /// `trap`.
    Trap,
    /// Without effect on this machine (hints, prefetches, fences that only order).
    Nop,
    /// Reads a clock into a 32- or 64-bit slot.
    Clock(Reg),
    /// Load.
    Ld(Access),
    /// Store.
    St(Access),
    /// Atomic or reduction: destination, operands.
    Atom {
        /// Operation.
        op: AtomOp,
        /// Type.
        ty: AtomTy,
        /// Where.
        place: Place,
        /// Address.
        addr: Addr,
        /// Old value.
        d: Option<u32>,
        /// Operand.
        b: u32,
        /// Second operand (cas).
        c: Option<u32>,
        /// How it is ordered.
        order: super::hb::Order,
    },
    /// Vector atomic.
    AtomVector(Box<super::exec_atomic::AtomVector>),
    /// 128-bit atomic.
    Atom128(Box<super::exec_atomic::Atom128>),
    /// Space address → generic (adds the window base).
    CvtaAdd(u32, u32, u64),
    /// `mapa`: destination and address (32-bit slots, or 64-bit ones where the class says so), rank slot.
    Mapa(Reg, Reg, u32),
    /// `getctarank`: 32-bit destination, address.
    CtaRank(u32, Reg),
    /// `isspacep`: predicate, 64-bit source, place.
    IsSpace(u32, u32, Place),
    /// Shuffle.
    Shfl {
        /// Mode.
        mode: ShflMode,
        /// Destination.
        d: u32,
        /// In-range predicate.
        p: Option<u32>,
        /// Value, lane operand, clamp, member mask.
        s: [u32; 4],
    },
    /// Vote.
    Vote {
        /// Mode.
        mode: VoteMode,
        /// Destination: predicate slot, or 32-bit slot for ballot.
        d: u32,
        /// Source predicate, negated.
        src: (u32, bool),
        /// Member mask.
        mask: u32,
    },
    /// Warp reduction: operation, destination, source, member mask.
    Redux(ReduxOp, u32, u32, u32),
    /// `match.any` / `match.all`: all?, destination, predicate, value (class), mask.
    Match(bool, u32, Option<u32>, Reg, u32),
    /// `activemask`.
    ActiveMask(u32),
    /// `elect.sync`: destination, predicate, mask.
    Elect(Option<u32>, u32, u32),
    /// `bar.warp.sync` with its member mask.
    BarWarp(u32),
    /// Named barrier: operation, id slot, count slot, aligned.
    Bar(BarOp, u32, Option<u32>, bool),
    /// Cluster barrier.
    BarCluster {
        /// Arrive, or wait.
        arrives: bool,
        /// By the whole warp.
        aligned: bool,
        /// The arrival orders nothing by itself.
        relaxed: bool,
    },
    /// mbarrier.
    Mbar(Mbar),
    /// `mbarrier.pending_count`.
    PendingCount(u32, u32),
    /// `fence.proxy.async` that covers shared memory.
    ProxyFence,
    /// Any other fence, and how far it orders memory.
    Fence(super::hb::Scope),
    /// `fence.mbarrier_init`.
    InitFence,
    /// `tcgen05.fence`: before_thread_sync (true) or after.
    TcFence(bool),
    /// `setmaxnreg`: increase?, registers.
    SetMaxNReg(bool, u32),
    /// Bulk copy.
    Bulk(Box<Bulk>),
    /// `st.async`, `red.async`.
    RemoteAsync(Box<RemoteAsync>),
    /// clusterlaunchcontrol.
    LaunchControl(Box<LaunchControl>),
    /// `cp.async.bulk.commit_group`.
    BulkCommit,
    /// `cp.async.bulk.wait_group{.read} N`.
    BulkWait(u32, bool),
    /// `cp.async`: destination, source, bytes copied, source bytes slot (zero fill past them).
    CpAsync(Addr, Addr, u32, Option<u32>),
    /// `cp.async.commit_group`.
    CpAsyncCommit,
    /// `cp.async.wait_group N`; `None` for `wait_all`, which also covers what is not in a group yet.
    CpAsyncWait(Option<u32>),
    /// `cp.async.mbarrier.arrive{.noinc}`.
    CpAsyncMbar(Addr, bool),
    /// `ldmatrix`: registers, address, transposed.
    LdMatrix(Box<[u32]>, Addr, bool),
    /// `stmatrix`.
    StMatrix(Box<[u32]>, Addr, bool),
    /// `tensormap.replace`: place, address, field, ordinal, value register.
    TensormapReplace(Place, Addr, crate::tma::replace::Field, u32, Reg),
    /// `tensormap.cp_fenceproxy`: destination, source (128 bytes).
    TensormapCopy(Addr, Addr),
    /// `tcgen05.alloc`: where the address goes, columns slot.
    TcAlloc(Addr, u32),
    /// `tcgen05.dealloc`: address slot, columns slot.
    TcDealloc(u32, u32),
    /// `tcgen05.relinquish_alloc_permit`.
    TcRelinquish,
    /// `tcgen05.ld`.
    TcLd(Box<TmemMove>),
    /// `tcgen05.st`.
    TcSt(Box<TmemMove>),
    /// `tcgen05.wait::ld`.
    TcWaitLd,
    /// `tcgen05.wait::st`.
    TcWaitSt,
    /// `tcgen05.commit`: barrier, mask of destination CTAs (32-bit slot).
    TcCommit(Addr, Option<u32>),
    /// `tcgen05.mma`.
    TcMma(Box<Mma>),
    /// `tcgen05.cp`: shape, address, descriptor slot.
    TcCp(crate::isa::tcgen05_layout::CpShape, Addr, u32),
    /// `wgmma.mma_async`.
    Wgmma(Box<Wgmma>),
    /// `wgmma.fence`.
    WgmmaFence,
    /// `wgmma.commit_group`.
    WgmmaCommit,
    /// `wgmma.wait_group N`.
    WgmmaWait(u32),
    /// `mma.sync`.
    MmaSync(Box<MmaSync>),
    /// Decodes, but this machine does not run it; the text says what.
    Unsupported(Box<str>),
}

/// Classes of instructions, for counters and cost models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, serde::Serialize)]
#[allow(missing_docs)]
pub enum OpClass {
    Int,
    Fp32,
    Packed,
    Mufu,
    Cvt,
    Mov,
    Cmp,
    Fp16,
    Fp64,
    Control,
    Memory,
    Warp,
    Barrier,
    Fence,
    Bulk,
    TmemMove,
    TmemWait,
    Mma,
    Commit,
    Other,
}

/// Number of classes.
pub const OP_CLASSES: usize = 20;

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// What it does.
    pub inst: Inst,
    /// Guard: predicate slot, negated.
    pub guard: Option<(u32, bool)>,
    /// Class.
    pub class: OpClass,
    /// Where it stands.
    pub span: Span,
    /// Registers read (without the guard): range in [`super::decode::Program::regs`].
    pub srcs: (u32, u32),
    /// Registers written.
    pub dsts: (u32, u32),
    /// An ordinary instruction that reads or writes a register which some wgmma uses.
    pub wgmma_regs: bool,
    /// Where the two sides of a divergence here meet again (`u32::MAX` = only at the exit).
    pub reconverge: u32,
}
