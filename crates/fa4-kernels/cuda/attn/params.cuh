// What the host passes to an attention kernel, by value. Its #[repr(C)] twin lives in the host crate, which checks its
// offsets against the exported kinfo_params at load time.
#pragma once
#include "prim/table.cuh"

// A CUtensorMap: opaque here. The driver asks for 64-byte alignment; its own type says 128, and so does ours, because
// by-value structs of the two alignments are laid out differently in the parameter space.
struct alignas(128) TensorMap {
    u64 opaque[16];
};

// Tensor maps are 4-D: (head_dim, seqlen, head, batch), 16-bit elements, 128-byte swizzle, zero fill. The sequence is a
// dimension of its own, so that a tile past the end reads zeros and writes nothing, and never meets the neighbouring
// head or batch entry. Boxes are (64, rows of a tile, 1, 1); of Q and O where query heads are packed (64, rows_per_head,
// heads_per_tile, 1): the rows of one head, then those of the next.
struct AttnParams {
    TensorMap q_map;
    TensorMap k_map;
    TensorMap v_map;
    TensorMap o_map;
    float* lse;            // natural logarithm, f32; null: not wanted
    const float* sinks;    // one natural logit per query head; null: none
    i64 lse_batch_stride;  // elements
    i64 lse_head_stride;
    i64 lse_row_stride;
    u32 seqlen_q;
    u32 seqlen_k;
    u32 num_heads_q;
    u32 qhead_per_kvhead;
    u32 batch;
    i32 window_left;          // keys visible to the left of a row's own; −1: all
    i32 window_right;         // the same to the right; 0: causal
    u32 groups_per_section;    // head groups (over all batch entries) whose CTAs are dealt longest first together; ≥ 1
    float softcap_rate;       // 2 log2 e · scale / softcap; 0: no softcap
    float scale_log2;         // softmax scale × log2 e, > 0; with a softcap: softcap × log2 e
    float rescale_threshold;  // O is rescaled only when a row maximum grew by more than this, in log2 units; ≥ 0
    u32 heads_per_tile;       // query heads of one K/V head whose rows share a tile, a head group; 1: not packed
    u32 rows_per_head;        // query rows of each of them in a tile
    u32 head_groups;          // num_heads_q / heads_per_tile
    u32 m_blocks;             // CTAs of a head group: seqlen_q over the query rows of a CTA, rounded up
};

// clang-format off
#define PARAM_ROW(field) {#field, u32(__builtin_offsetof(AttnParams, field)), u32(sizeof(AttnParams::field))}
constexpr Table<ParamRow, 24> kAttnParams = {{
    PARAM_ROW(q_map),            PARAM_ROW(k_map),           PARAM_ROW(v_map),          PARAM_ROW(o_map),
    PARAM_ROW(lse),              PARAM_ROW(sinks),           PARAM_ROW(lse_batch_stride), PARAM_ROW(lse_head_stride),
    PARAM_ROW(lse_row_stride),   PARAM_ROW(seqlen_q),        PARAM_ROW(seqlen_k),       PARAM_ROW(num_heads_q),
    PARAM_ROW(qhead_per_kvhead), PARAM_ROW(batch),           PARAM_ROW(window_left),    PARAM_ROW(window_right),
    PARAM_ROW(groups_per_section), PARAM_ROW(softcap_rate),   PARAM_ROW(scale_log2),     PARAM_ROW(rescale_threshold),
    PARAM_ROW(heads_per_tile),   PARAM_ROW(rows_per_head),   PARAM_ROW(head_groups),    PARAM_ROW(m_blocks),
}};
#undef PARAM_ROW
// clang-format on
