// FlashAttention forward for sm_100a, bf16 or fp16, head_dim 64, 96 or 128:
//
//     O = softmax(scale · Q Kᵀ + mask) V        LSE = ln Σ exp(scale · Q Kᵀ + mask)
//
// Compiled once per FWD_HEAD_DIM (64, 96, 128) and FWD_DTYPE (bf16, fp16) into three entries: `full`, `causal` (aligned
// bottom-right) and `general`, where sliding window, softcap and sinks are parameters. Any seqlen_q ≥ 1 and seqlen_k,
// any GQA ratio, any batch, strides by tensor map. Rows that see no key give O = 0 and LSE = −inf. Not supported here:
// other head dims, fp8, varlen, paging, dropout, biases.
//
// A CTA owns two tiles of 128 rows: 256 query rows of one head, or, where seqlen_q is small, fewer query rows of several
// heads that share a K/V head (packed: tile row r is query row first_row + r % rows_per_head of head r / rows_per_head;
// only the Q and O boxes, the mask's row number, LSE and sink know). Sixteen warps, one job each; everything is handed
// over through mbarriers. While a softmax group works on one tile, the tensor core works on the other:
//
//   load        Q0 K0 Q1 V0 K1 V1 K2 V2 …                                         (ring of 3 or 4 K/V slots)
//   mma         S0=Q0K0 S1=Q1K0 | O0+=P0V0 S0=Q0K1 | O1+=P1V0 S1=Q1K1 | O0+=P0V1 S0=Q0K2 | …
//   softmax0            [max, exp2, P0, sum]          [max, exp2, P0, sum]
//   softmax1                          [max, exp2, P1, sum]          [max, exp2, P1, sum]
//   correction                                   [O0·=α]       [O1·=α]         …  [O/row_sum → smem]
//   epilogue                                                                                     [smem → global]
//
// K/V blocks run from the last to the first, so that masked blocks come first. Both tiles share every K/V block; a tile
// that does not need the first of them (causal) joins later, one that does not need the last (window) leaves early.
//
// The deep dive (state machine per role, why each wait exists) is docs/kernels/fwd_sm100.md.

#include "attn/online_softmax.cuh"
#include "attn/params.cuh"
#include "attn/rescale.cuh"
#include "attn/tile_scheduler.cuh"
#include "prim/instr_desc.cuh"
#include "prim/pipeline.cuh"
#include "prim/smem_desc.cuh"
#include "prim/swizzle.cuh"
#include "prim/table.cuh"
#include "ptx/cover.cuh"
#include "ptx/ldst.cuh"
#include "ptx/sync.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"

namespace {

// ---------------------------------------------------------------------------------------------------- constants

#define FWD_TEXT_OF(x) #x
#define FWD_TEXT(x) FWD_TEXT_OF(x)
constexpr u32 kHeadDim = FWD_HEAD_DIM;
constexpr Dtype kDtype = same_name(FWD_TEXT(FWD_DTYPE), "bf16") ? Dtype::kBf16 : Dtype::kFp16;
static_assert(kHeadDim == 64 || kHeadDim == 96 || kHeadDim == 128, "FWD_HEAD_DIM");
static_assert(kDtype == Dtype::kBf16 || same_name(FWD_TEXT(FWD_DTYPE), "fp16"), "FWD_DTYPE");

constexpr u32 kTileM = 128;  // query rows per tile = TMEM lanes
constexpr u32 kTileN = 128;  // keys per block
constexpr u32 kTiles = 2;    // query tiles per CTA, worked on in turn
constexpr u32 kKvStages = kHeadDim == 64 ? 4 : 3;  // slots of the K/V ring
constexpr u32 kWarps = 16;
constexpr u32 kThreads = kWarps * 32;
constexpr u32 kTmemCols = 512;
constexpr u32 kMmaK = 16;  // contraction per tcgen05.mma of 16-bit operands

// Tiles in shared memory are panels of 64 columns (128 bytes: one swizzle span), each kTileM = kTileN rows tall. Of
// head_dim 96 the second panel is half used: TMA fills the rest with zeros, no mma reads it and no store writes it out.
constexpr u32 kPanelCols = 64;
constexpr u32 kPanels = (kHeadDim + kPanelCols - 1) / kPanelCols;
constexpr u32 kPanelBytes = kTileN * kSwizzleSpanBytes;
constexpr u32 kTileBytes = kPanels * kPanelBytes;

// P is handed to the tensor core in two parts, so that O += P·V can start while the last exponentials are computed.
constexpr u32 kPHeadKeys = 96;
constexpr u32 kPTailKeys = kTileN - kPHeadKeys;

// ------------------------------------------------------------------------------------------------------- tables

// clang-format off
constexpr Table<RoleRow, 7> kRoles = {{
    // name         first  warps  regs
    {"softmax0",    0,     4,     192},
    {"softmax1",    4,     4,     192},
    {"correction",  8,     4,     72},
    {"mma",         12,    1,     56},
    {"epilogue",    13,    1,     56},
    {"load",        14,    1,     56},
    {"idle",        15,    1,     56},
}};

constexpr Table<SmemRow, 7> kSmem = place(Table<SmemRow, 7>{{
    // name          bytes                align  stages
    {"Q",            kTileBytes,          1024,  kTiles,     0},
    {"KV",           kTileBytes,          1024,  kKvStages,  0},
    {"O",            kTileBytes,          1024,  kTiles,     0},  // two: tile 0 is stored while tile 1 is finished
    {"row_factor",   kTileM * 4,          128,   kTiles,     0},  // alpha of a step; at the end row_sum
    {"row_max",      kTileM * 4,          128,   kTiles,     0},  // at the end, in log2 units
    {"barriers",     24 * kMbarrierBytes, 8,     1,          0},
    {"tmem_base",    4,                   4,     1,          0},
}});

constexpr Table<TmemRow, 6> kTmem = {{
    // name   dtype                written by        read by           alias  col             cols
    {"S0",    "f32",               "mma",            "softmax0",       "",    0,              128},
    {"P0",    FWD_TEXT(FWD_DTYPE), "softmax0",       "mma",            "S0",  64,             64},  // after S0 is loaded
    {"S1",    "f32",               "mma",            "softmax1",       "",    128,            128},
    {"P1",    FWD_TEXT(FWD_DTYPE), "softmax1",       "mma",            "S1",  192,            64},
    {"O0",    "f32",               "mma correction", "mma correction", "",    256,            kHeadDim},
    {"O1",    "f32",               "mma correction", "mma correction", "",    256 + kHeadDim, kHeadDim},
}};

// Every barrier is an mbarrier in this CTA's shared memory, initialised once with `arrivals`. A phase completes when that
// many have arrived (and tx_bytes have landed); who waits, waits for the parity of one phase. Stages: [t] is the query
// tile 0 or 1, [slot] a slot of the K/V ring. "Each thread" means one mbarrier.arrive by every lane of four warps, 128 in
// all, after its own part is done; "commit" means one arrival, by the tensor core, when every mma issued before the commit
// has completed. Who arrives, when, and how often:
//
//   Q_full[t]       load, one thread: one arrive.expect_tx, which is the arrival and announces the tile's bytes; TMA
//                   brings them (packing may leave spare rows, which are not loaded: then fewer). Once; a tile without blocks: never.
//   KV_full[slot]   the same for each block that enters the slot.
//   KV_empty[slot]  mma: one commit behind the last mma that reads the slot, at the end of the second tile's turn.
//   S_full[t]       mma: one commit behind Q·Kᵀ of each block; it covers P·V of the block before, too.
//   P_full[t]       256 = each thread of softmax t, when its S is in registers and its first 96 keys of P in TMEM, and
//                   each thread of correction, when its row of O has the scale of the new P. For the first block P·V
//                   overwrites O, so that correction arrives at once, before anything else.
//   P_tail_full[t]  each thread of softmax t, when the last 32 keys of P are in TMEM.
//   stats_full[t]   each thread of softmax t, when its row_factor is written: per block but the first, and once more at
//                   the end for row_sum and row_max.
//   stats_empty[t]  each thread of correction, when it has read its alpha; not at the end, since nothing follows.
//                   Between blocks it only repeats what S_full says (that commit stands behind a P·V that waited for
//                   correction). What it guards is the end: row_sum takes the place of the last alpha with no S_full
//                   in between.
//   O_full[t]       mma: one commit behind the tile's last P·V. Once.
//   O_staged[t]     each thread of correction, when its row of O is in shared memory and fenced. Once.
//
// Phases: whoever waits on a `full` (or `staged`) barrier waits for parity 0 first, then 1, 0, … Whoever waits on an
// `empty` barrier starts with parity 1, which a fresh barrier counts as completed: slots are empty at first and the
// first wait falls through (wait_empty in prim/pipeline.cuh). No barrier can run two phases ahead of a waiter, who would
// then take the old parity for the new: each round of S → P → O waits for the one before it, and a slot of the ring is
// not filled again before its KV_empty, which stands behind the mma that waited for its KV_full. The last phase of
// KV_empty is waited for by nobody.
//
// Beside these, bar.sync 0 of all 16 warps twice: after set-up (barriers initialised, TMEM allocated, its base address
// in shared memory, spare rows of Q cleared) and before the deallocation of TMEM (every role has left it).
constexpr Table<BarrierRow, 10> kBarriers = place(Table<BarrierRow, 10>{{
    // name          arriver                waiter        what becomes true                                   stages     arrivals tx_bytes
    {"Q_full",       "load",                "mma",        "Q tile in smem",                                   kTiles,    1,   kTileBytes, 0},
    {"KV_full",      "load",                "mma",        "K or V block in the slot",                         kKvStages, 1,   kTileBytes, 0},
    {"KV_empty",     "mma",                 "load",       "slot read by every mma (commit)",                  kKvStages, 1,   0,          0},
    {"S_full",       "mma",                 "softmax#",   "S in TMEM, all earlier mma done (commit)",         kTiles,    1,   0,          0},
    {"P_full",       "softmax# correction", "mma",        "S loaded, first 96 keys of P stored, O rescaled",  kTiles,    256, 0,          0},
    {"P_tail_full",  "softmax#",            "mma",        "last 32 keys of P stored",                         kTiles,    128, 0,          0},
    {"stats_full",   "softmax#",            "correction", "row_factor (at the end also row_max) written",     kTiles,    128, 0,          0},
    {"stats_empty",  "correction",          "softmax#",   "alpha read: row_factor may be written",            kTiles,    128, 0,          0},
    {"O_full",       "mma",                 "correction", "O final in TMEM (commit)",                         kTiles,    1,   0,          0},
    {"O_staged",     "correction",          "epilogue",   "normalised O in smem, visible to the async proxy", kTiles,    128, 0,          0},
}}, find(kSmem, "barriers").offset);
// clang-format on

// ------------------------------------------------------------------------------------------------ table asserts

static_assert(roles_tile_warps(kRoles, kWarps), "roles cover the 16 warps, one register budget per warpgroup");
static_assert(register_count(kRoles) <= 64 * 1024, "registers of an SM");
static_assert(smem_bytes(kSmem) <= 227 * 1024, "shared memory of a CTA");
static_assert(barrier_count(kBarriers) * kMbarrierBytes <= find(kSmem, "barriers").bytes, "room for the barriers");
static_assert(tmem_overlaps_are_declared(kTmem), "TMEM regions");
static_assert(kTileM == kTileN, "one box shape for Q, K, V and O");

// ----------------------------------------------------------------------------------------------- params and Ctx

// Offsets of the table rows as constants.
struct Barrier {
    u32 offset;
};
__device__ constexpr Barrier barrier(const char* name) { return {find(kBarriers, name).offset}; }
constexpr Barrier Q_full = barrier("Q_full"), KV_full = barrier("KV_full"), KV_empty = barrier("KV_empty"),
                  S_full = barrier("S_full"), P_full = barrier("P_full"), P_tail_full = barrier("P_tail_full"),
                  stats_full = barrier("stats_full"), stats_empty = barrier("stats_empty"), O_full = barrier("O_full"),
                  O_staged = barrier("O_staged");

constexpr u32 kSmemQ = find(kSmem, "Q").offset, kSmemKV = find(kSmem, "KV").offset, kSmemO = find(kSmem, "O").offset;
constexpr u32 kSmemRowFactor = find(kSmem, "row_factor").offset, kSmemRowMax = find(kSmem, "row_max").offset;
constexpr u32 kSmemTmemBase = find(kSmem, "tmem_base").offset;

constexpr u32 kTmemS = find(kTmem, "S0").col, kTmemP = find(kTmem, "P0").col, kTmemO = find(kTmem, "O0").col;
constexpr u32 kTmemSCols = find(kTmem, "S1").col - kTmemS, kTmemOCols = find(kTmem, "O1").col - kTmemO;
static_assert(find(kTmem, "P1").col == kTmemP + kTmemSCols, "P lies alike in both S");

constexpr u32 kInstrDescQK = instr_desc_16bit_f32(kDtype, kTileM, kTileN, Major::kK, Major::kK);
constexpr u32 kInstrDescPV = instr_desc_16bit_f32(kDtype, kTileM, kHeadDim, Major::kK, Major::kMn);

// What every role sees: parameters, address bases, and which thread it is.
struct Ctx {
    const AttnParams& p;
    SmemAddr smem;
    TmemAddr tmem;
    u32 warp, lane;

    __device__ __forceinline__ MbarAddr bar(Barrier b, u32 stage) const {
        return {smem.u + b.offset + stage * kMbarrierBytes};
    }
    __device__ __forceinline__ SmemAddr q(u32 t) const { return smem + (kSmemQ + t * kTileBytes); }
    __device__ __forceinline__ SmemAddr kv(u32 stage) const { return smem + (kSmemKV + stage * kTileBytes); }
    __device__ __forceinline__ SmemAddr o(u32 t) const { return smem + (kSmemO + t * kTileBytes); }
    __device__ __forceinline__ TmemAddr S(u32 t) const { return tmem.col(kTmemS + t * kTmemSCols); }
    __device__ __forceinline__ TmemAddr P(u32 t) const { return tmem.col(kTmemP + t * kTmemSCols); }
    __device__ __forceinline__ TmemAddr O(u32 t) const { return tmem.col(kTmemO + t * kTmemOCols); }

    // Tile rows that hold a query row; packing leaves fewer than 64 of 128 over.
    __device__ __forceinline__ u32 used_rows() const { return p.heads_per_tile * p.rows_per_head; }
    // The tile row, and TMEM lane, of this thread in a warpgroup role; and the first lane its warp may touch.
    __device__ __forceinline__ u32 row() const { return warp % 4 * 32 + lane; }
    __device__ __forceinline__ u32 first_lane() const { return warp % 4 * 32; }
    // What the tile row of this thread holds. Divisions: worked out where needed, a register less for the softmax loop.
    __device__ __forceinline__ u32 query_row(const Tile& tile) const { return tile.first_row + row() % p.rows_per_head; }
    __device__ __forceinline__ u32 head_in_group() const { return row() / p.rows_per_head; }
    __device__ __forceinline__ SmemAddr row_factor(u32 t) const {
        return smem + (kSmemRowFactor + (t * kTileM + row()) * 4);
    }
    __device__ __forceinline__ SmemAddr row_max(u32 t) const { return smem + (kSmemRowMax + (t * kTileM + row()) * 4); }
};

// -------------------------------------------------------------------------------------------------- role: load

// One tile: a box of box_rows rows per panel. The tensor map clips the sequence and fills with zeros.
__device__ __forceinline__ void load_tile(SmemAddr dst, const TensorMap& map, u32 box_rows, u32 row, u32 head,
                                          u32 batch, MbarAddr full) {
    mbarrier_arrive_expect_tx(full, box_rows * (kPanels * kSwizzleSpanBytes));
#pragma unroll
    for (u32 panel = 0; panel < kPanels; ++panel)
        cp_async_bulk_tensor_4d_g2s(dst + panel * kPanelBytes, &map, panel * kPanelCols, row, head, batch, full);
}

// Loads one K or V block into the next slot of the ring.
__device__ __forceinline__ void load_kv(const Ctx& ctx, const Work& work, const TensorMap& map, u32 n_block,
                                        Ring<kKvStages>& ring) {
    wait_empty(ctx.bar(KV_empty, ring.stage), ring.phase);
    load_tile(ctx.kv(ring.stage), map, kTileN, n_block * kTileN, work.kv_head, work.batch,
              ctx.bar(KV_full, ring.stage));
    if (ring.advance()) {
        if (ring.phase == 1)
            COVER("ring_wrap_0");
        else
            COVER("ring_wrap_1");
    }
}

__device__ __forceinline__ void load_q(const Ctx& ctx, const Work& work, u32 t) {
    const Tile& tile = work.tile[t];
    if (tile.n_blocks() == 0) return;
    if (ctx.p.heads_per_tile > 1) COVER("tile_packed");
    load_tile(ctx.q(t), ctx.p.q_map, ctx.used_rows(), tile.first_row, work.head, work.batch, ctx.bar(Q_full, t));
}

// One thread. Q0 K Q1 V first, so that the first S0 can start early; then K and V block by block.
__device__ __forceinline__ void load(const Ctx& ctx, const Work& work) {
    Ring<kKvStages> ring;
    if (!work.tile[1].present) COVER("second_tile_absent");
    load_q(ctx, work, 0);
#pragma unroll 1
    for (u32 i = 0; i < work.n_blocks(); ++i) {
        const u32 n_block = work.end_block - 1 - i;
        load_kv(ctx, work, ctx.p.k_map, n_block, ring);
        if (i == 0) load_q(ctx, work, 1);
        load_kv(ctx, work, ctx.p.v_map, n_block, ring);
    }
}

// --------------------------------------------------------------------------------------------------- role: mma

// S = Q·Kᵀ: both operands K-major, 32 bytes of each row per step.
__device__ __forceinline__ void mma_qk(TmemAddr S, SmemAddr q, SmemAddr k) {
#pragma unroll
    for (u32 step = 0; step < kHeadDim / kMmaK; ++step) {
        const u32 offset = step * kMmaK / kPanelCols * kPanelBytes + step * kMmaK % kPanelCols * 2;
        tcgen05_mma_f16_ss(S, smem_desc(kSmemDescKMajor, q + offset), smem_desc(kSmemDescKMajor, k + offset),
                           kInstrDescQK, step > 0);
    }
}

// O (+)= P·V over the keys [kFirst, kLast): P from TMEM, two keys a column; V MN-major, 128 bytes a key.
template <u32 kFirst, u32 kLast>
__device__ __forceinline__ void mma_pv(TmemAddr O, TmemAddr P, SmemAddr v, bool accumulate) {
#pragma unroll
    for (u32 key = kFirst; key < kLast; key += kMmaK)
        tcgen05_mma_f16_ts(O, P.col(key / 2), smem_desc(kSmemDescMnMajor<kPanelBytes>, v + key * kSwizzleSpanBytes),
                           kInstrDescPV, key > 0 || accumulate);
}

// One thread. Step i multiplies P(i−1) by V(i−1) and then Q by K(i), for either tile in turn.
//
// Note (S and P share columns): S(i) overwrites the columns of P(i−1). The tensor core executes the mma of one thread
// in issue order, so P(i−1)·V is done reading when Q·K(i) writes; the manual promises this order only for mma with
// the same accumulator, shipped kernels rely on it in general.
__device__ __forceinline__ void mma(const Ctx& ctx, const Work& work) {
    Ring<kKvStages> ring;  // K(0) V(0) K(1) V(1) …
    Ring<1> p_ring[kTiles];
    const u32 n_blocks = work.n_blocks(), n_steps = n_blocks == 0 ? 0 : n_blocks + 1;
#pragma unroll 1
    for (u32 i = 0; i < n_steps; ++i) {
        const bool has_v = i > 0, has_k = i < n_blocks;
        const Ring<kKvStages> v_slot = ring;
        if (has_v) ring.advance();
        const Ring<kKvStages> k_slot = ring;
        if (has_k) ring.advance();
        if (has_v) wait_full(ctx.bar(KV_full, v_slot.stage), v_slot.phase);
#pragma unroll
        for (u32 t = 0; t < kTiles; ++t) {
            const u32 skip = work.skip(t), stop = work.stop(t);
            if (i > skip && i <= stop) {
                const bool accumulate = i > skip + 1;
                wait_full(ctx.bar(P_full, t), p_ring[t].phase);
                tcgen05_fence_after_thread_sync();
                mma_pv<0, kPHeadKeys>(ctx.O(t), ctx.P(t), ctx.kv(v_slot.stage), accumulate);
                wait_full(ctx.bar(P_tail_full, t), p_ring[t].phase);
                tcgen05_fence_after_thread_sync();
                mma_pv<kPHeadKeys, kTileN>(ctx.O(t), ctx.P(t), ctx.kv(v_slot.stage), accumulate);
                p_ring[t].advance();
                if (i == stop) tcgen05_commit(ctx.bar(O_full, t));
            }
            if (t == kTiles - 1 && has_v) tcgen05_commit(ctx.bar(KV_empty, v_slot.stage));
            if (t == 0 && has_k) wait_full(ctx.bar(KV_full, k_slot.stage), k_slot.phase);
            if (i >= skip && i < stop) {
                if (i == skip) wait_full(ctx.bar(Q_full, t), 0);
                tcgen05_fence_after_thread_sync();
                mma_qk(ctx.S(t), ctx.q(t), ctx.kv(k_slot.stage));
                tcgen05_commit(ctx.bar(S_full, t));
            }
            if (t == kTiles - 1 && has_k) tcgen05_commit(ctx.bar(KV_empty, k_slot.stage));
        }
    }
}

// ----------------------------------------------------------------------------------------------- role: softmax

// Masks a block where it must be: past the end of the keys, across the diagonal, or across the window's left edge.
template <Mask kMask>
__device__ __forceinline__ void mask_block(const Ctx& ctx, const Tile& tile, u32 n_block, float (&s)[kTileN]) {
    const u32 block = n_block * kTileN;
    // Uniform over the tile: the first row sees least to the right, the last row least to the left.
    const bool cut_right = block + kTileN > end_key<kMask>(ctx.p, tile.first_row);
    const bool cut_left = block < first_key<kMask>(ctx.p, tile.first_row + ctx.p.rows_per_head - 1);
    if (!cut_right && !cut_left) COVER("block_full");
    if (cut_right) {
        if (kMask == Mask::kFull || block + kTileN > ctx.p.seqlen_k)
            COVER("tail_k");
        else
            COVER("block_diagonal");
        mask_right(s, i32(end_key<kMask>(ctx.p, ctx.query_row(tile)) - block));
    }
    if (cut_left) {
        COVER("block_left_edge");
        mask_left(s, i32(first_key<kMask>(ctx.p, ctx.query_row(tile)) - block));
    }
}

// Stores P and tells the tensor core, in two parts. The sum of P.
__device__ __forceinline__ float store_p(const Ctx& ctx, u32 t, const float (&s)[kTileN], float scale_log2, float m2) {
    const F32x2 scale2 = mov_b64_pack(scale_log2, scale_log2), minus_m2 = mov_b64_pack(-m2, -m2);
    const TmemAddr P = ctx.P(t).lane(ctx.first_lane());
    u32 p[16];
    BlockSum sum;
    COVER("exp2_poly");
    scores_to_p<kDtype, 0, 32>(s, p, scale2, minus_m2, sum);
    tcgen05_st_32x32b_x16(P, p);
    scores_to_p<kDtype, 32, 32>(s, p, scale2, minus_m2, sum);
    tcgen05_st_32x32b_x16(P.col(16), p);
    scores_to_p<kDtype, 64, 32>(s, p, scale2, minus_m2, sum);
    tcgen05_st_32x32b_x16(P.col(32), p);
    tcgen05_wait_st();
    tcgen05_fence_before_thread_sync();
    mbarrier_arrive(ctx.bar(P_full, t));
    scores_to_p<kDtype, kPHeadKeys, kPTailKeys>(s, p, scale2, minus_m2, sum);
    tcgen05_st_32x32b_x16(P.col(kPHeadKeys / 2), p);
    tcgen05_wait_st();
    tcgen05_fence_before_thread_sync();
    mbarrier_arrive(ctx.bar(P_tail_full, t));
    return sum.total();
}

// A warpgroup per tile, a thread per row.
template <Mask kMask> __device__ __forceinline__ void softmax(const Ctx& ctx, u32 t, const Tile& tile) {
    const float scale_log2 = ctx.p.scale_log2;
    RowState row;
    Ring<1> s_ring, stats_ring;
    if (kMask != Mask::kFull && tile.present && tile.end_block * kTileN < ctx.p.seqlen_k) COVER("blocks_skipped_right");
    if (kMask == Mask::kGeneral && tile.first_block > 0) COVER("blocks_skipped_left");
    const u32 n_blocks = tile.n_blocks();
#pragma unroll 1
    for (u32 i = 0; i < n_blocks; ++i) {
        float s[kTileN];
        wait_full(ctx.bar(S_full, t), s_ring.phase);
        s_ring.advance();
        tcgen05_fence_after_thread_sync();
#pragma unroll
        for (u32 col = 0; col < kTileN; col += 32)
            tcgen05_ld_32x32b_x32(s + col, ctx.S(t).lane(ctx.first_lane()).col(col));
        tcgen05_wait_ld();
        if (kMask == Mask::kGeneral && ctx.p.softcap_rate > 0.0f) {
            COVER("softcap");
            cap_scores(s, ctx.p.softcap_rate);
        }
        mask_block<kMask>(ctx, tile, tile.end_block - 1 - i, s);

        const float block_max = row_max_of(s, row.row_max);
        float alpha = 0.0f;
        if (i == 0) {
            row.row_max = block_max;  // nothing accumulated yet: no factor to hand over
        } else {
            alpha = update_row_max(row, block_max, scale_log2, ctx.p.rescale_threshold);
            wait_empty(ctx.bar(stats_empty, t), stats_ring.phase);
            st_shared_f32(ctx.row_factor(t), alpha);
            mbarrier_arrive(ctx.bar(stats_full, t));
            stats_ring.advance();
        }
        const float p_sum = store_p(ctx, t, s, scale_log2, row.m2(scale_log2));
        row.row_sum = row.row_sum * alpha + p_sum;
    }
    if (n_blocks > 0) {
        wait_empty(ctx.bar(stats_empty, t), stats_ring.phase);
        st_shared_f32(ctx.row_factor(t), row.row_sum);
        st_shared_f32(ctx.row_max(t), row.m2(scale_log2));
        mbarrier_arrive(ctx.bar(stats_full, t));
    }
}

// -------------------------------------------------------------------------------------------- role: correction

// O *= alpha in TMEM, by the whole warp, if any of its rows asks for it.
__device__ __forceinline__ void rescale_o(TmemAddr O, float alpha) {
    if (!vote_sync_any(alpha < 1.0f)) {
        COVER("rescale_skipped");
        return;
    }
    COVER("rescale_taken");
#pragma unroll
    for (u32 col = 0; col < kHeadDim; col += 32) {
        float o[32];
        tcgen05_ld_32x32b_x32(o, O.col(col));
        tcgen05_wait_ld();
        scale_row<32>(o, alpha);
        tcgen05_st_32x32b_x32_f32(O.col(col), o);
    }
    tcgen05_wait_st();
}

// Columns [col, col + 32) of this thread's O row, converted, into the swizzled staging tile.
__device__ __forceinline__ void stage_o(SmemAddr tile, u32 row, u32 col, const float (&o)[32]) {
    const u32 panel = col / kPanelCols * kPanelBytes;
#pragma unroll
    for (u32 c = 0; c < 32; c += 8)
        st_shared_v4_b32(tile + (panel + swizzle_128b(row * kSwizzleSpanBytes + (col % kPanelCols + c) * 2)),
                         pack2<kDtype>(o[c + 1], o[c]), pack2<kDtype>(o[c + 3], o[c + 2]),
                         pack2<kDtype>(o[c + 5], o[c + 4]), pack2<kDtype>(o[c + 7], o[c + 6]));
}

__device__ __forceinline__ void store_lse(const Ctx& ctx, u32 batch, u32 head, u32 row, float lse) {
    const AttnParams& p = ctx.p;
    if (p.lse == nullptr || row >= p.seqlen_q || ctx.row() >= ctx.used_rows()) return;
    st_global_f32(p.lse + (i64(batch) * p.lse_batch_stride + i64(head) * p.lse_head_stride +
                           i64(row) * p.lse_row_stride),
                  lse);
}

// The final O of one tile: normalise, convert, stage for the epilogue; and the LSE.
template <Mask kMask>
__device__ __forceinline__ void finish_tile(const Ctx& ctx, const Work& work, u32 t, u32 stats_phase) {
    const Tile& tile = work.tile[t];
    // A spare row has the last head's number: it stores nothing, but reads a sink.
    const u32 head = work.head + min(ctx.head_in_group(), ctx.p.heads_per_tile - 1);
    const bool has_blocks = tile.n_blocks() > 0;
    float row_sum = 0.0f, m2 = 0.0f;
    if (has_blocks) {
        wait_full(ctx.bar(stats_full, t), stats_phase);
        row_sum = ld_shared_f32(ctx.row_factor(t));
        m2 = ld_shared_f32(ctx.row_max(t));
        wait_full(ctx.bar(O_full, t), 0);
        tcgen05_fence_after_thread_sync();
    }
    // A row that saw a key has a P of at least 1 in its sum, because row_max never exceeds the true maximum.
    const bool empty_row = row_sum == 0.0f;
    if (kMask != Mask::kFull && empty_row) COVER("empty_row");
    float factor = 1.0f;  // from the scale of O and row_sum to a scale that holds the sink too
    if (kMask == Mask::kGeneral && ctx.p.sinks != nullptr && !empty_row) {
        COVER("sink");
        const float sink2 = ld_global_f32(ctx.p.sinks + head) * kLog2e, with_sink = max_f32(m2, sink2);
        factor = ex2_approx_ftz_f32(m2 - with_sink);
        row_sum = row_sum * factor + ex2_approx_ftz_f32(sink2 - with_sink);
        m2 = with_sink;
    }
    const float inv_sum = empty_row ? 0.0f : factor * rcp_approx_ftz_f32(row_sum);
    store_lse(ctx, work.batch, head, ctx.query_row(tile),
              empty_row ? minus_infinity() : (m2 + lg2_approx_ftz_f32(row_sum)) * kLn2);
#pragma unroll
    for (u32 col = 0; col < kHeadDim; col += 32) {
        float o[32] = {};
        if (has_blocks) {
            tcgen05_ld_32x32b_x32(o, ctx.O(t).lane(ctx.first_lane()).col(col));
            tcgen05_wait_ld();
            scale_row<32>(o, inv_sum);
        }
        stage_o(ctx.o(t), ctx.row(), col, o);
    }
    fence_proxy_async_shared_cta();
    mbarrier_arrive(ctx.bar(O_staged, t));
}

// A warpgroup, a thread per row, both tiles in turn. The first block of a tile needs no correction: O is overwritten.
template <Mask kMask> __device__ __forceinline__ void correction(const Ctx& ctx, const Work& work) {
    Ring<1> stats_ring[kTiles];
#pragma unroll
    for (u32 t = 0; t < kTiles; ++t)
        if (work.tile[t].n_blocks() > 0) mbarrier_arrive(ctx.bar(P_full, t));
#pragma unroll 1
    for (u32 i = 1; i < work.n_blocks(); ++i) {
#pragma unroll
        for (u32 t = 0; t < kTiles; ++t) {
            if (i <= work.skip(t) || i >= work.stop(t)) continue;
            wait_full(ctx.bar(stats_full, t), stats_ring[t].phase);
            stats_ring[t].advance();
            // alpha of step i was published after S_full(i), whose commit covers the mma that wrote O in step i−1.
            tcgen05_fence_after_thread_sync();
            const float alpha = ld_shared_f32(ctx.row_factor(t));
            mbarrier_arrive(ctx.bar(stats_empty, t));
            rescale_o(ctx.O(t).lane(ctx.first_lane()), alpha);
            tcgen05_fence_before_thread_sync();
            mbarrier_arrive(ctx.bar(P_full, t));
        }
    }
#pragma unroll
    for (u32 t = 0; t < kTiles; ++t)
        if (work.tile[t].present) finish_tile<kMask>(ctx, work, t, stats_ring[t].phase);
}

// ---------------------------------------------------------------------------------------------- role: epilogue

// One thread. The tensor map clips rows past the end; its box is as tall as the rows of Q's, so that spare rows stay.
__device__ __forceinline__ void epilogue(const Ctx& ctx, const Work& work) {
#pragma unroll
    for (u32 t = 0; t < kTiles; ++t) {
        if (!work.tile[t].present) continue;
        wait_full(ctx.bar(O_staged, t), 0);
#pragma unroll
        for (u32 panel = 0; panel < kPanels; ++panel)
            cp_async_bulk_tensor_4d_s2g(&ctx.p.o_map, panel * kPanelCols, work.tile[t].first_row, work.head, work.batch,
                                        ctx.o(t) + panel * kPanelBytes);
        cp_async_bulk_commit_group();
    }
    cp_async_bulk_wait_group_read<0>();  // shared memory must outlive the reads
}

// ------------------------------------------------------------------------------------------------------- entry

constexpr u32 kFirstWarpMma = find(kRoles, "mma").first_warp, kFirstWarpEpilogue = find(kRoles, "epilogue").first_warp,
              kFirstWarpLoad = find(kRoles, "load").first_warp,
              kFirstWarpCorrection = find(kRoles, "correction").first_warp;

__device__ __forceinline__ void init_barriers(SmemAddr smem) {
#pragma unroll
    for (u32 i = 0; i < kBarriers.kRows; ++i)
#pragma unroll
        for (u32 stage = 0; stage < kBarriers.row[i].stages; ++stage)
            mbarrier_init({smem.u + kBarriers.row[i].offset + stage * kMbarrierBytes}, kBarriers.row[i].arrivals);
    fence_mbarrier_init_release_cluster();
}

// Spare rows of packed tiles are never loaded: zeros, so that no mma reads what nobody wrote. They are the last rows of
// each panel and fewer than 64, for which one store of 16 bytes by every thread is enough.
__device__ __forceinline__ void clear_spare_rows(SmemAddr smem, u32 used_rows) {
    const u32 offset = used_rows * kSwizzleSpanBytes + threadIdx.x * 16;
    static_assert(kThreads * 16 >= kTileM / 2 * kSwizzleSpanBytes, "one pass");
    if (used_rows == kTileM) return;
    COVER("spare_rows");
    if (offset < kPanelBytes)
#pragma unroll
        for (u32 panel = 0; panel < kTiles * kPanels; ++panel)
            st_shared_v4_b32(smem + (kSmemQ + panel * kPanelBytes + offset), 0, 0, 0, 0);
    fence_proxy_async_shared_cta();
}

template <Mask kMask> __device__ __forceinline__ void fwd(const AttnParams& p) {
    extern __shared__ __align__(1024) u8 dynamic_smem[];
    const SmemAddr smem = {u32(__cvta_generic_to_shared(dynamic_smem))};
    const u32 warp = shfl_sync_idx_lane0(threadIdx.x / 32), lane = threadIdx.x % 32;

    if (warp == kFirstWarpLoad && elect_sync()) {
        init_barriers(smem);
        prefetch_tensormap(&p.q_map);
        prefetch_tensormap(&p.k_map);
        prefetch_tensormap(&p.v_map);
        prefetch_tensormap(&p.o_map);
    }
    if (warp == kFirstWarpMma) {
        tcgen05_alloc<kTmemCols>(smem + kSmemTmemBase);
        tcgen05_relinquish_alloc_permit();
        tcgen05_fence_before_thread_sync();
    }
    clear_spare_rows(smem, p.heads_per_tile * p.rows_per_head);
    bar_sync_0<kThreads>();
    tcgen05_fence_after_thread_sync();
    const Ctx ctx = {p, smem, {ld_shared_u32(smem + kSmemTmemBase)}, warp, lane};

    // Each role works out its tiles for itself: held across the branch they would cost every role registers.
    if (warp < kFirstWarpCorrection) {
        setmaxnreg_inc<find(kRoles, "softmax0").regs>();
        const Work work = make_work<kMask, kTileM, kTileN>(p);
        const u32 t = warp / 4;
        softmax<kMask>(ctx, t, t == 0 ? work.tile[0] : work.tile[1]);
    } else if (warp < kFirstWarpMma) {
        setmaxnreg_dec<find(kRoles, "correction").regs>();
        correction<kMask>(ctx, make_work<kMask, kTileM, kTileN>(p));
    } else {
        setmaxnreg_dec<find(kRoles, "mma").regs>();
        const Work work = make_work<kMask, kTileM, kTileN>(p);
        if (warp == kFirstWarpMma && elect_sync()) mma(ctx, work);
        if (warp == kFirstWarpEpilogue && elect_sync()) epilogue(ctx, work);
        if (warp == kFirstWarpLoad && elect_sync()) load(ctx, work);
        bar_warp_sync();
    }

    tcgen05_fence_before_thread_sync();
    bar_sync_0<kThreads>();
    if (warp == kFirstWarpMma) {
        tcgen05_fence_after_thread_sync();
        tcgen05_dealloc<kTmemCols>(ctx.tmem);
    }
}

}  // namespace

// ------------------------------------------------------------------------------- exported tables and entry names

EXPORT_TABLE(kinfo_header, kTableHeader);
EXPORT_TABLE(kinfo_roles, kRoles);
EXPORT_TABLE(kinfo_smem, kSmem);
EXPORT_TABLE(kinfo_tmem, kTmem);
EXPORT_TABLE(kinfo_barriers, kBarriers);
EXPORT_TABLE(kinfo_params, kAttnParams);

// Launch: grid m_blocks · head_groups · batch, 512 threads, dynamic shared memory as the table says.
// Names: fwd_sm100_hd128_bf16_full and so on.

#define FWD_NAME_OF(head_dim, dtype, mask) fwd_sm100_hd##head_dim##_##dtype##_##mask
#define FWD_NAME(head_dim, dtype, mask) FWD_NAME_OF(head_dim, dtype, mask)
#define FWD_ENTRY(mask, kMask)                                                                                         \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                          \
        FWD_NAME(FWD_HEAD_DIM, FWD_DTYPE, mask)(const __grid_constant__ AttnParams p) {                                \
        fwd<kMask>(p);                                                                                                 \
    }

FWD_ENTRY(full, Mask::kFull)
FWD_ENTRY(causal, Mask::kCausal)
FWD_ENTRY(general, Mask::kGeneral)
