//! Which instructions are mutated, and how. Operand numbers count from 0, as the manual's syntax lists them.

use super::Class;

/// A way to break an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Leave it out.
    Delete,
    /// A test that answers yes at once, so that the loop around it ends.
    Satisfied,
    /// One more group may be pending.
    Weaken(usize),
    /// Arrive without expecting bytes.
    WithoutTx,
    /// Expect 16 bytes, or a box, more or fewer.
    Bytes(usize),
    /// A count, more and fewer by this.
    Count(usize, i64),
    /// The other phase.
    Parity(usize),
    /// The mbarrier after and before the right one.
    Barrier(usize),
    /// The slot of shared memory after and before the right one.
    Slot(usize),
    /// Other columns.
    Column(usize, i64),
    /// Fields of a shared-memory descriptor.
    SmemDesc(usize, &'static str),
    /// Fields of the instruction descriptor.
    InstrDesc(usize),
    /// The last operand of `wgmma`: whether B is transposed.
    Transpose,
    /// Each coordinate of a tensor operand.
    Coordinates(usize),
}

/// An instruction's mutations.
#[derive(Debug)]
pub struct Row {
    /// How the opcode begins.
    pub instruction: &'static str,
    /// What its deletion is.
    pub class: Class,
    /// How it is broken.
    pub operators: &'static [Operator],
}

impl Row {
    /// Whether an opcode is this instruction: the same, or with more modifiers or kinds behind.
    pub fn matches(&self, opcode: &str) -> bool {
        opcode
            .strip_prefix(self.instruction)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
    }
}

const fn row(instruction: &'static str, class: Class, operators: &'static [Operator]) -> Row {
    Row { instruction, class, operators }
}

use Operator::*;

/// The first row that matches counts, so that longer names stand first.
pub const TABLE: &[Row] = &[
    row("mbarrier.init", Class::Count, &[Count(1, 1)]),
    row("mbarrier.try_wait", Class::Wait, &[Satisfied, Parity(2), Barrier(1)]),
    row("mbarrier.test_wait", Class::Wait, &[Satisfied, Parity(2), Barrier(1)]),
    row("mbarrier.arrive.expect_tx", Class::Arrive, &[Delete, WithoutTx, Bytes(2), Barrier(1)]),
    row("mbarrier.expect_tx", Class::ExpectTx, &[Delete, Bytes(1), Barrier(0)]),
    row("mbarrier.arrive", Class::Arrive, &[Delete, Barrier(1)]),
    row("bar.warp.sync", Class::NamedBarrier, &[Delete]),
    row("bar.sync", Class::NamedBarrier, &[Delete, Count(1, 32)]),
    row("bar.arrive", Class::NamedBarrier, &[Delete, Count(1, 32)]),
    row("barrier.sync", Class::NamedBarrier, &[Delete, Count(1, 32)]),
    row("barrier.arrive", Class::NamedBarrier, &[Delete, Count(1, 32)]),
    row("barrier.cluster.arrive", Class::Arrive, &[Delete]),
    row("barrier.cluster.wait", Class::Wait, &[Delete]),
    row("fence.mbarrier_init", Class::Fence, &[Delete]),
    row("fence.proxy.async", Class::Fence, &[Delete]),
    row("fence.acq_rel", Class::Fence, &[Delete]),
    row("fence.sc", Class::Fence, &[Delete]),
    row("membar", Class::Fence, &[Delete]),
    row("tcgen05.fence", Class::Fence, &[Delete]),
    row("tcgen05.wait", Class::Wait, &[Delete]),
    row("tcgen05.commit", Class::Commit, &[Delete, Barrier(0)]),
    row(
        "tcgen05.mma",
        Class::Descriptor,
        &[Column(0, 32), Column(1, 8), SmemDesc(1, "a_desc"), SmemDesc(2, "b_desc"), InstrDesc(3)],
    ),
    row("tcgen05.ld", Class::Column, &[Column(1, 32)]),
    row("tcgen05.st", Class::Column, &[Column(0, 32)]),
    row("wgmma.fence", Class::Fence, &[Delete]),
    row("wgmma.commit_group", Class::Commit, &[Delete]),
    row("wgmma.wait_group", Class::Wait, &[Delete, Weaken(0)]),
    row("wgmma.mma_async", Class::Descriptor, &[SmemDesc(1, "a_desc"), SmemDesc(2, "b_desc"), Transpose]),
    row("cp.async.bulk.commit_group", Class::Commit, &[Delete]),
    row("cp.async.bulk.wait_group", Class::Wait, &[Delete, Weaken(0)]),
    // A load has the coordinates second and a barrier third, a store the coordinates first and its source second.
    row(
        "cp.async.bulk.tensor",
        Class::Coordinate,
        &[Coordinates(0), Coordinates(1), Slot(0), Slot(1), Barrier(2)],
    ),
];
