// FlashAttention forward for Hopper (sm_90a), 16-bit types, head_dim 64, 96, 128 or 256:
//
//     O = softmax(scale · Q Kᵀ + mask) V        LSE = ln Σ exp(scale · Q Kᵀ + mask)
//
// Compiled once per FWD_HEAD_DIM, FWD_DTYPE (bf16, fp16) and FWD_MASK: `full`, `causal` (aligned bottom-right) and
// `general`, where sliding window, softcap and sinks are parameters. Any seqlen_q ≥ 1 and seqlen_k, any GQA ratio, any
// batch, strides by tensor map. Rows that see no key give O = 0 and LSE = −inf.
//
// One warp loads by TMA; two or three warpgroups attend, each to 64 query rows of its own, sharing every K/V block.
// S, P and O of a warpgroup live in its registers. Two overlaps keep the tensor core busy:
//
//   within a warpgroup    S(i)=Q·K(i) and O+=P(i−1)·V(i−1) are issued together; the softmax of S(i) runs while the
//                         second is still being multiplied
//   between warpgroups    they take turns at issuing, so that one computes exponentials while the other multiplies:
//
//   attend0    | S(1) PV(0) |  softmax(1)  | S(2) PV(1) |  softmax(2)  |
//   attend1                 | S(1) PV(0) |  softmax(1)  | S(2) PV(1) |  …
//   load       K0 Q V0 K1 …  as slots of the ring fall free
//
// K/V blocks run from the last to the first, so that masked blocks come first. The grid is persistent (or one CTA per
// tile, the code does not care); the next tile's K and V are loaded while this one's O is stored.
//
// The deep dive is docs/kernels/fwd_sm90.md.

#include "attn/fragment_softmax.cuh"
#include "attn/params.cuh"
#include "attn/static_scheduler.cuh"
#include "prim/pipeline.cuh"
#include "prim/swizzle.cuh"
#include "prim/table.cuh"
#include "prim/warpgroup_mma.cuh"
#include "ptx/cover.cuh"
#include "ptx/ldst.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/sync.cuh"
#include "ptx/tma.cuh"

namespace {

// ---------------------------------------------------------------------------------------------------- constants

__device__ constexpr u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }

#define FWD_TEXT_OF(x) #x
#define FWD_TEXT(x) FWD_TEXT_OF(x)
constexpr u32 kHeadDim = FWD_HEAD_DIM;
constexpr Dtype kDtype = same_name(FWD_TEXT(FWD_DTYPE), "bf16") ? Dtype::kBf16 : Dtype::kFp16;
constexpr Mask kMask = same_name(FWD_TEXT(FWD_MASK), "full")     ? Mask::kFull
                       : same_name(FWD_TEXT(FWD_MASK), "causal") ? Mask::kCausal
                                                                 : Mask::kGeneral;
static_assert(kHeadDim == 64 || kHeadDim == 96 || kHeadDim == 128 || kHeadDim == 256, "FWD_HEAD_DIM");
static_assert(kDtype == Dtype::kBf16 || same_name(FWD_TEXT(FWD_DTYPE), "fp16"), "FWD_DTYPE");
static_assert(kMask != Mask::kGeneral || same_name(FWD_TEXT(FWD_MASK), "general"), "FWD_MASK");

// Attending warpgroups and keys per block: as many as registers (S, P and O are fragments) and shared memory hold;
// where masks cut blocks, smaller ones waste less.
constexpr u32 kGroups = kHeadDim == 64 ? 3 : 2;
constexpr u32 kTileN = kHeadDim == 256 ? 80 : kHeadDim == 64 || kMask != Mask::kFull ? 128 : kHeadDim == 96 ? 160 : 176;
constexpr u32 kTileM = kGroups * kGroupRows;
constexpr u32 kKvStages = 4;
constexpr u32 kWarps = 4 + 4 * kGroups;
constexpr u32 kThreads = kWarps * 32;
constexpr u32 kLoadRegs = kGroups == 2 ? 40 : 32;
constexpr u32 kAttendRegs = kGroups == 2 ? 232 : 160;

// Tiles in shared memory are panels of 64 columns (128 bytes: one swizzle span).
constexpr u32 kPanels = (kHeadDim + kSpanElems - 1) / kSpanElems;
constexpr u32 kQPanelBytes = kGroupRows * kSwizzleSpanBytes;
constexpr u32 kKvPanelBytes = kTileN * kSwizzleSpanBytes;
constexpr u32 kQBytes = kPanels * kQPanelBytes;
constexpr u32 kKvBytes = kPanels * kKvPanelBytes;

// Q slots, dealt out group by group and tile by tile: those that shared memory has room for beside the K/V ring, up to
// two tiles. With a slot to spare, the next tile's Q is there before this one's O has left.
constexpr u32 kQStages = min_u32((227 * 1024 - 256 - kKvStages * kKvBytes) / kQBytes, 2 * kGroups);
static_assert(kQStages >= kGroups, "a Q slot for each group");
// Where a slot goes from group to group, a group that waits for its Q must know that the slot's former Q, another
// group's, had come: the parity that it waits for is that of the phase before, too. Turns tell it, since a group takes
// one in each tile behind its own wait for Q. A tile of one block has no turns by nature, so it gets one.
constexpr bool kSlotsChangeGroups = kQStages % kGroups != 0;

// Named barriers: a group's turn to issue, and a group among itself.
constexpr u32 kBarTurn = 1;
constexpr u32 kBarGroup = kBarTurn + kGroups;

// ------------------------------------------------------------------------------------------------------- tables

// clang-format off
__device__ constexpr Table<RoleRow, 2 + kGroups> make_roles() {
    Table<RoleRow, 2 + kGroups> roles = {{
        // name  first  warps  regs
        {"load", 0,     1,     kLoadRegs},
        {"idle", 1,     3,     kLoadRegs},
    }};
    for (u32 group = 0; group < kGroups; ++group) {
        roles.row[2 + group] = {"attend0", 4 + 4 * group, 4, kAttendRegs};
        roles.row[2 + group].name[6] = char('0' + group);
    }
    return roles;
}
constexpr Table<RoleRow, 2 + kGroups> kRoles = make_roles();

constexpr Table<SmemRow, 3> kSmem = place(Table<SmemRow, 3>{{
    // name      bytes                                           align  stages
    {"Q",        kQBytes,                                        1024,  kQStages,   0},  // at the end of a tile: O
    {"KV",       kKvBytes,                                       1024,  kKvStages,  0},
    {"barriers", (2 * kQStages + 2 * kKvStages) * kMbarrierBytes, 8,     1,          0},
}});

// The groups have no stage of a barrier to themselves, so that each is named.
__device__ constexpr Table<BarrierRow, 4> make_barriers() {
    Table<BarrierRow, 4> barriers = {{
        // name      arriver            waiter             what becomes true                           stages     arrivals     tx_bytes
        {"Q_full",   "load",            "attend0 attend1", "Q rows of a group in the slot",            kQStages,  1,           kQBytes,  0},
        {"Q_empty",  "attend0 attend1", "load",            "O has left the slot",                      kQStages,  1,           0,        0},
        {"KV_full",  "load",            "attend0 attend1", "K or V block in the slot",                 kKvStages, 1,           kKvBytes, 0},
        {"KV_empty", "attend0 attend1", "load",            "slot read by the products of every group", kKvStages, 4 * kGroups, 0,        0},
    }};
    for (BarrierRow& row : barriers.row) {
        char(&attend)[24] = same_name(row.arriver, "load") ? row.waiter : row.arriver;
        for (u32 i = 0; kGroups == 3 && i < 24; ++i) attend[i] = "attend0 attend1 attend2"[i];
    }
    return barriers;
}
constexpr Table<BarrierRow, 4> kBarriers = place(make_barriers(), find(kSmem, "barriers").offset);
// clang-format on

// ------------------------------------------------------------------------------------------------ table asserts

static_assert(roles_tile_warps(kRoles, kWarps), "roles cover the warps, one register budget per warpgroup");
static_assert(register_count(kRoles) <= 64 * 1024, "registers of an SM");
static_assert(smem_bytes(kSmem) <= 227 * 1024, "shared memory of a CTA");
static_assert(barrier_count(kBarriers) * kMbarrierBytes <= find(kSmem, "barriers").bytes, "room for the barriers");
static_assert(kKvPanelBytes % kSwizzleGroupBytes == 0 && kTileN % kWgmmaK == 0, "whole swizzle groups and k-steps");

// ----------------------------------------------------------------------------------------------- params and Ctx

// Offsets of the table rows as constants.
struct Barrier {
    u32 offset;
};
__device__ constexpr Barrier barrier(const char* name) { return {find(kBarriers, name).offset}; }
constexpr Barrier Q_full = barrier("Q_full"), Q_empty = barrier("Q_empty"), KV_full = barrier("KV_full"),
                  KV_empty = barrier("KV_empty");
constexpr u32 kSmemQ = find(kSmem, "Q").offset, kSmemKV = find(kSmem, "KV").offset;

// What every role sees: parameters, address bases, and which thread it is.
struct Ctx {
    const AttnParams& p;
    SmemAddr smem;
    u32 warp, lane;

    __device__ __forceinline__ MbarAddr bar(Barrier b, u32 stage) const {
        return {smem.u + b.offset + stage * kMbarrierBytes};
    }
    __device__ __forceinline__ SmemAddr q(u32 stage) const { return smem + (kSmemQ + stage * kQBytes); }
    __device__ __forceinline__ SmemAddr kv(u32 stage) const { return smem + (kSmemKV + stage * kKvBytes); }
};

// One query tile of a CTA.
struct Job {
    u32 first_row, first_block, end_block, head, kv_head, batch;
};

// The next tile of this CTA; false: no more.
__device__ __forceinline__ bool next_job(const AttnParams& p, StaticScheduler<kMask>& scheduler, Job& job) {
    u32 m_block, head_in_batch;
    if (!scheduler.next(m_block, head_in_batch)) return false;
    job.batch = head_in_batch / p.num_heads_q;
    job.head = head_in_batch - job.batch * p.num_heads_q;
    job.kv_head = job.head / p.qhead_per_kvhead;
    job.first_row = m_block * kTileM;
    const Tile tile = make_tile<kMask, kTileM, kTileN>(p, job.first_row);
    job.first_block = tile.first_block;
    job.end_block = tile.end_block;
    return true;
}

// -------------------------------------------------------------------------------------------------- role: load

// Loads one K or V block into the next slot of the ring. The tensor map clips the sequence and fills with zeros.
__device__ __forceinline__ void load_kv(const Ctx& ctx, const Job& job, const TensorMap& map, u32 n_block,
                                        Ring<kKvStages>& ring) {
    wait_empty(ctx.bar(KV_empty, ring.stage), ring.phase);
    const MbarAddr full = ctx.bar(KV_full, ring.stage);
    mbarrier_arrive_expect_tx(full, kKvBytes);
#pragma unroll
    for (u32 panel = 0; panel < kPanels; ++panel)
        cp_async_bulk_tensor_4d_g2s(ctx.kv(ring.stage) + panel * kKvPanelBytes, &map, panel * kSpanElems,
                                    n_block * kTileN, job.kv_head, job.batch, full);
    if (ring.advance()) {
        if (ring.phase == 1)
            COVER("ring_wrap_0");
        else
            COVER("ring_wrap_1");
    }
}

// The Q rows of every group, each into the next slot. A tile without keys needs no Q, only the slot for its O.
__device__ __forceinline__ void load_q(const Ctx& ctx, const Job& job, Ring<kQStages>& ring) {
#pragma unroll 1
    for (u32 group = 0; group < kGroups; ++group) {
        wait_empty(ctx.bar(Q_empty, ring.stage), ring.phase);
        const MbarAddr full = ctx.bar(Q_full, ring.stage);
        if (job.first_block == job.end_block) {
            mbarrier_arrive(full);
        } else {
            mbarrier_arrive_expect_tx(full, kQBytes);
#pragma unroll
            for (u32 panel = 0; panel < kPanels; ++panel)
                cp_async_bulk_tensor_4d_g2s(ctx.q(ring.stage) + panel * kQPanelBytes, &ctx.p.q_map, panel * kSpanElems,
                                            job.first_row + group * kGroupRows, job.head, job.batch, full);
        }
        ring.advance();
    }
}

// One thread. K(0) K(1) V(0) K(2) V(1) … V(n−1): the order in which the groups read.
__device__ __forceinline__ void load(const Ctx& ctx) {
    const AttnParams& p = ctx.p;
    StaticScheduler<kMask> scheduler(p, kTileM);
    Ring<kKvStages> ring;
    Ring<kQStages> q_ring;
#pragma unroll 1
    for (Job job; next_job(p, scheduler, job);) {
        const bool any = job.first_block < job.end_block;
        if (any) load_kv(ctx, job, p.k_map, job.end_block - 1, ring);
        load_q(ctx, job, q_ring);
#pragma unroll 1
        for (u32 n_block = job.end_block; any && --n_block > job.first_block;) {
            load_kv(ctx, job, p.k_map, n_block - 1, ring);
            load_kv(ctx, job, p.v_map, n_block, ring);
        }
        if (any) load_kv(ctx, job, p.v_map, job.first_block, ring);
    }
}

// ------------------------------------------------------------------------------------------------ role: attend#

// What an attending warpgroup carries along.
struct Group {
    u32 index;
    Ring<kKvStages> ring;
    Ring<kQStages> q_ring;
};

__device__ __forceinline__ void take_turn(u32 group) { bar_sync<2 * kGroupThreads>(kBarTurn + group); }
__device__ __forceinline__ void pass_turn(u32 group) {
    bar_arrive<2 * kGroupThreads>(kBarTurn + (group + 1 == kGroups ? 0 : group + 1));
}

// The slot that comes next in the ring, full.
__device__ __forceinline__ u32 next_slot(const Ctx& ctx, Ring<kKvStages>& ring) {
    const u32 stage = ring.stage;
    wait_full(ctx.bar(KV_full, stage), ring.phase);
    ring.advance();
    return stage;
}

// One arrival per warp: wait_group speaks for the warp that executes it.
__device__ __forceinline__ void release_slot(const Ctx& ctx, u32 stage) {
    if (ctx.lane == 0) mbarrier_arrive(ctx.bar(KV_empty, stage));
}

__device__ __forceinline__ void mma_qk(const Ctx& ctx, u32 q_slot, u32 stage, float (&s)[kTileN / 2]) {
    group_mma_abt<kDtype, kTileN, kHeadDim, kQPanelBytes, kKvPanelBytes>(s, ctx.q(q_slot), ctx.kv(stage));
    wgmma_commit_group();
}

// O += P·V, issued step by step. The queue in front of the tensor core is short and a warp that fills it waits: where
// exponentials take long beside the products (head_dim 96 and 128), the last steps are issued between the chunks of the
// softmax, whose first chunks then need not wait for them. How many, and after which the turn is passed: by
// measurement.
constexpr u32 kPvSteps = kTileN / kWgmmaK;
constexpr u32 kPvStepsLate = kHeadDim == 64 || kHeadDim == 256 ? 0 : kTileN == 176 ? 3 : 1;
constexpr u32 kPvStepsAhead = kPvSteps - kPvStepsLate;
constexpr u32 kPassTurnAt = kTileN == 176 ? kPvSteps - 1 : kPvSteps;
struct PvIssuer {
    const Ctx& ctx;
    u32 group, v_slot;
    const u32 (&p)[kTileN / 4];
    float (&o)[kHeadDim / 2];
    u32 step;

    __device__ __forceinline__ void operator()() {
        if (step == kPvSteps) return;
        group_mma_ab_step<kDtype, kHeadDim, kKvPanelBytes>(o, p + step * 4, ctx.kv(v_slot), step);
        ++step;
        if (step == kPassTurnAt) pass_turn(group);
        if (step == kPvStepsAhead || step == kPvSteps) wgmma_commit_group();
    }
};

// Masks a block that reaches past the end of the keys, across the diagonal or over an edge of the window.
__device__ __forceinline__ void mask_block(const Ctx& ctx, u32 first_row, u32 n_block, float (&s)[kTileN / 2]) {
    const u32 block_key = n_block * kTileN;
    if (kMask == Mask::kFull || block_key + kTileN > ctx.p.seqlen_k)
        COVER("tail_k");
    else
        COVER("block_edge");
    const u32 row = first_row + fragment_row(ctx.warp, ctx.lane, 0);
    mask_fragment(s, ctx.lane, i32(end_key<kMask>(ctx.p, row) - block_key),
                  i32(end_key<kMask>(ctx.p, row + 8) - block_key));
    if (kMask == Mask::kGeneral)
        mask_fragment_left(s, ctx.lane, i32(first_key<kMask>(ctx.p, row) - block_key),
                           i32(first_key<kMask>(ctx.p, row + 8) - block_key));
}

// Softcap, where it is asked for.
__device__ __forceinline__ void cap_block(const Ctx& ctx, float (&s)[kTileN / 2]) {
    if (kMask == Mask::kGeneral && ctx.p.softcap_rate > 0.0f) {
        COVER("softcap");
        cap_scores(s, ctx.p.softcap_rate);
    }
}

// S to P in place, and the rows' statistics. alpha: the factors of what the rows accumulated before.
template <class Between>
__device__ __forceinline__ void softmax_block(const Ctx& ctx, float (&s)[kTileN / 2], FragmentRows& rows,
                                              float (&alpha)[2], Between& between) {
    float block_max[2];
    fragment_row_max(s, rows, block_max, between);
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        alpha[half] = update_row_max(rows.row[half], block_max[half], ctx.p.scale_log2, ctx.p.rescale_threshold);
        rows.row[half].row_sum *= alpha[half];
    }
    exponentiate_fragment(s, rows, ctx.p.scale_log2, between);
}

// O times alpha, by the whole warp, if any of its rows asks for it.
__device__ __forceinline__ void rescale_o(float (&o)[kHeadDim / 2], const float (&alpha)[2]) {
    if (!vote_sync_any(alpha[0] < 1.0f || alpha[1] < 1.0f)) {
        COVER("rescale_skipped");
        return;
    }
    COVER("rescale_taken");
    scale_fragment(o, alpha[0], alpha[1]);
}

// A warpgroup's registers while it works on a tile.
struct Fragments {
    float s[kTileN / 2];  // S, then P in f32
    u32 p[kTileN / 4];    // P as operand A
    float o[kHeadDim / 2];
    FragmentRows rows;
    float alpha[2];
};

template <bool kIt> struct Masked {
    static constexpr bool kValue = kIt;
};

// Step i > 0: S(i) and its softmax, and O += P(i−1)·V(i−1) meanwhile.
template <bool kMasked>
__device__ __forceinline__ void attend_block(const Ctx& ctx, Group& group, Fragments& f, u32 q_slot, u32 first_row,
                                             u32 n_block) {
    const u32 k_slot = next_slot(ctx, group.ring);
    take_turn(group.index);
    wgmma_fence();
    mma_qk(ctx, q_slot, k_slot, f.s);
    const u32 v_slot = next_slot(ctx, group.ring);
    PvIssuer issue_pv = {ctx, group.index, v_slot, f.p, f.o, 0};
#pragma unroll
    for (u32 step = 0; step < kPvStepsAhead; ++step) issue_pv();
    wait_mma<1>(f.s);
    release_slot(ctx, k_slot);
    cap_block(ctx, f.s);
    if (kMasked)
        mask_block(ctx, first_row, n_block, f.s);
    else
        COVER("block_full");
    softmax_block(ctx, f.s, f.rows, f.alpha, issue_pv);
    wait_mma<0>(f.o);
    release_slot(ctx, v_slot);
#pragma unroll
    for (u32 e = 0; e < kTileN / 2; ++e) pin_register(f.s[e]);  // P is packed only when its registers are free
    pack_fragment<kDtype>(f.s, f.p);
    rescale_o(f.o, f.alpha);
}

// A group that sees nothing of a block lets the others have it. Turns are passed as if it had worked.
__device__ __forceinline__ void skip_v(const Ctx& ctx, Group& group) {
    take_turn(group.index);
    pass_turn(group.index);
    release_slot(ctx, next_slot(ctx, group.ring));
}
__device__ __forceinline__ void skip_block(const Ctx& ctx, Group& group, bool has_v) {
    COVER("block_not_seen");
    release_slot(ctx, next_slot(ctx, group.ring));
    if (has_v) skip_v(ctx, group);
}

// All K/V blocks of a tile: O and the rows' statistics, not yet normalised.
__device__ __forceinline__ void attend_blocks(const Ctx& ctx, const Job& job, Group& group, Fragments& f) {
    const u32 q_slot = group.q_ring.stage, first_row = job.first_row + group.index * kGroupRows;
    const u32 last_row = first_row + kGroupRows - 1;
    // Blocks that some row of the group sees; and those that each of its rows sees whole.
    const Tile seen = make_tile<kMask, kGroupRows, kTileN>(ctx.p, first_row);
    const u32 end_block = seen.n_blocks() > 0 ? seen.end_block : job.first_block;
    const u32 end_whole = end_key<kMask>(ctx.p, first_row) / kTileN;
    const u32 first_whole = (first_key<kMask>(ctx.p, last_row) + kTileN - 1) / kTileN;

    const u32 n_skipped = job.end_block - end_block;
#pragma unroll 1
    for (u32 i = 0; i < n_skipped; ++i) skip_block(ctx, group, i > 0);
    if (end_block == job.first_block) {
        release_slot(ctx, next_slot(ctx, group.ring));  // the last V
        return;
    }

    const u32 k_slot = next_slot(ctx, group.ring);
    if (n_skipped > 0) skip_v(ctx, group);
    wgmma_fence();
    mma_qk(ctx, q_slot, k_slot, f.s);
    wait_mma<0>(f.s);
    release_slot(ctx, k_slot);
    u32 n_block = end_block - 1;
    cap_block(ctx, f.s);
    if (n_block >= end_whole || n_block < first_whole) mask_block(ctx, first_row, n_block, f.s);
    Nothing nothing;
    softmax_block(ctx, f.s, f.rows, f.alpha, nothing);
    pack_fragment<kDtype>(f.s, f.p);

    // Three stretches: across the diagonal or the right edge, whole blocks, across the left edge.
    const auto attend_down_to = [&](auto masked, u32 block) {
        const u32 stop = max(block, job.first_block);
#pragma unroll 1
        while (n_block > stop) attend_block<decltype(masked)::kValue>(ctx, group, f, q_slot, first_row, --n_block);
    };
    if (kMask != Mask::kFull) attend_down_to(Masked<true>{}, end_whole);
    attend_down_to(Masked<false>{}, first_whole);
    if (kMask == Mask::kGeneral) attend_down_to(Masked<true>{}, 0);

    const u32 v_slot = next_slot(ctx, group.ring);
    wgmma_fence();
#pragma unroll
    for (u32 step = 0; step < kPvSteps; ++step)
        group_mma_ab_step<kDtype, kHeadDim, kKvPanelBytes>(f.o, f.p + step * 4, ctx.kv(v_slot), step);
    wgmma_commit_group();
    wait_mma<0>(f.o);
    release_slot(ctx, v_slot);
}

__device__ __forceinline__ void store_lse(const Ctx& ctx, const Job& job, u32 row, float lse) {
    const AttnParams& p = ctx.p;
    if (p.lse == nullptr || row >= p.seqlen_q) return;
    st_global_f32(
        p.lse + (i64(job.batch) * p.lse_batch_stride + i64(job.head) * p.lse_head_stride + i64(row) * p.lse_row_stride),
        lse);
}

// Normalises O, stages it where Q was and stores it by TMA, which clips rows past the end; and the LSE.
__device__ __forceinline__ void finish_tile(const Ctx& ctx, const Job& job, const Group& group, FragmentRows& rows,
                                            float (&o)[kHeadDim / 2]) {
    const u32 first_row = job.first_row + group.index * kGroupRows, q_slot = group.q_ring.stage;
    float inv_sum[2];
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        float row_sum = quad_sum(rows.row[half].row_sum), m2 = rows.row[half].m2(ctx.p.scale_log2);
        // A row that saw a key has a P of at least 1 in its sum, because row_max never exceeds the true maximum.
        const bool empty_row = row_sum == 0.0f;
        if (kMask != Mask::kFull && empty_row) COVER("empty_row");
        float factor = 1.0f;  // from the scale of O and row_sum to a scale that holds the sink too
        if (kMask == Mask::kGeneral && ctx.p.sinks != nullptr && !empty_row) {
            COVER("sink");
            const float sink2 = ld_global_f32(ctx.p.sinks + job.head) * kLog2e, with_sink = max_f32(m2, sink2);
            factor = ex2_approx_ftz_f32(m2 - with_sink);
            row_sum = row_sum * factor + ex2_approx_ftz_f32(sink2 - with_sink);
            m2 = with_sink;
        }
        inv_sum[half] = empty_row ? 0.0f : factor * rcp_approx_ftz_f32(row_sum);
        const float lse = (m2 + lg2_approx_ftz_f32(row_sum)) * kLn2;
        if (ctx.lane % 4 == 0)
            store_lse(ctx, job, first_row + fragment_row(ctx.warp, ctx.lane, half), empty_row ? minus_infinity() : lse);
    }
    scale_fragment(o, inv_sum[0], inv_sum[1]);

    const SmemAddr tile = ctx.q(q_slot);
#pragma unroll
    for (u32 e = 0; e < kHeadDim / 2; e += 2) {
        const u32 row = fragment_row(ctx.warp, ctx.lane, e / 2 % 2), col = e / 4 * 8;
        st_shared_b32(tile + (col / kSpanElems * kQPanelBytes +
                              swizzle_128b(row * kSwizzleSpanBytes + (col % kSpanElems + ctx.lane % 4 * 2) * 2)),
                      pack2<kDtype>(o[e + 1], o[e]));
    }
    fence_proxy_async_shared_cta();
    bar_sync<kGroupThreads>(kBarGroup + group.index);
    if (ctx.warp % 4 == 0 && elect_sync()) {
#pragma unroll
        for (u32 panel = 0; panel < kPanels; ++panel)
            cp_async_bulk_tensor_4d_s2g(&ctx.p.o_map, panel * kSpanElems, first_row, job.head, job.batch,
                                        tile + panel * kQPanelBytes);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
        mbarrier_arrive(ctx.bar(Q_empty, q_slot));
    }
    bar_warp_sync();
}

// A warpgroup, 64 rows: S, P and O in registers from the first block to the store.
__device__ __forceinline__ void attend(const Ctx& ctx, u32 index) {
    StaticScheduler<kMask> scheduler(ctx.p, kTileM);
    Group group = {index, {}, {index, 0}};
    if (index == kGroups - 1) pass_turn(index);  // group 0 begins
#pragma unroll 1
    for (Job job; next_job(ctx.p, scheduler, job);) {
        Fragments f;
        f.rows = {};
#pragma unroll
        for (u32 e = 0; e < kHeadDim / 2; ++e) f.o[e] = 0.0f;
        wait_full(ctx.bar(Q_full, group.q_ring.stage), group.q_ring.phase);
        if (kMask != Mask::kFull && job.end_block * kTileN < ctx.p.seqlen_k) COVER("blocks_skipped_right");
        if (kMask == Mask::kGeneral && job.first_block > 0) COVER("blocks_skipped_left");
        if (kSlotsChangeGroups && job.end_block - job.first_block < 2) {
            take_turn(index);
            pass_turn(index);
        }
        if (job.first_block < job.end_block) attend_blocks(ctx, job, group, f);
        finish_tile(ctx, job, group, f.rows, f.o);
#pragma unroll
        for (u32 i = 0; i < kGroups; ++i) group.q_ring.advance();  // the other groups' slots lie in between
    }
    if (index == 0) take_turn(index);  // the last turn passed: no arrival is left behind
}

// ------------------------------------------------------------------------------------------------------- entry

__device__ __forceinline__ void init_barriers(SmemAddr smem) {
#pragma unroll
    for (u32 i = 0; i < kBarriers.kRows; ++i)
#pragma unroll
        for (u32 stage = 0; stage < kBarriers.row[i].stages; ++stage)
            mbarrier_init({smem.u + kBarriers.row[i].offset + stage * kMbarrierBytes}, kBarriers.row[i].arrivals);
    fence_mbarrier_init_release_cluster();
}

__device__ __forceinline__ void fwd(const AttnParams& p) {
    extern __shared__ __align__(1024) u8 dynamic_smem[];
    const SmemAddr smem = {u32(__cvta_generic_to_shared(dynamic_smem))};
    const u32 warp = shfl_sync_idx_lane0(threadIdx.x / 32), lane = threadIdx.x % 32;

    if (warp == 0 && elect_sync()) {
        init_barriers(smem);
        prefetch_tensormap(&p.q_map);
        prefetch_tensormap(&p.k_map);
        prefetch_tensormap(&p.v_map);
        prefetch_tensormap(&p.o_map);
    }
    bar_sync_0<kThreads>();
    const Ctx ctx = {p, smem, warp, lane};

    if (warp < 4) {
        setmaxnreg_dec<kLoadRegs>();
        if (warp == 0 && elect_sync()) load(ctx);
        bar_warp_sync();
    } else {
        setmaxnreg_inc<kAttendRegs>();
        attend(ctx, warp / 4 - 1);
    }
}

}  // namespace

// ------------------------------------------------------------------------------- exported tables and entry names

EXPORT_TABLE(kinfo_header, kTableHeader);
EXPORT_TABLE(kinfo_roles, kRoles);
EXPORT_TABLE(kinfo_smem, kSmem);
EXPORT_TABLE(kinfo_barriers, kBarriers);
EXPORT_TABLE(kinfo_params, kAttnParams);

// Launch: any grid up to a CTA per tile — (⌈seqlen_q / rows⌉, num_heads_q, batch), or as many CTAs as there are SMs —
// of kThreads threads; dynamic shared memory as the table says. Boxes of the tensor maps: 64 columns, and the rows of
// the table's Q (for Q and O) or KV.
#define FWD_NAME_OF(head_dim, dtype, mask) fwd_sm90_hd##head_dim##_##dtype##_##mask
#define FWD_NAME(head_dim, dtype, mask) FWD_NAME_OF(head_dim, dtype, mask)
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    FWD_NAME(FWD_HEAD_DIM, FWD_DTYPE, FWD_MASK)(const __grid_constant__ AttnParams p) {
    fwd(p);
}
