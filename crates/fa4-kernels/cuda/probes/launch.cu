// Probes of the launch path: does a tensor copy, a cluster, a replayed graph do what the host asked for, and does the host
// say in words what a broken kernel did? No attention in here.
#include "attn/params.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sync.cuh"
#include "ptx/tma.cuh"

namespace {

struct ProbeParams {
    TensorMap src_map;  // (head_dim, seqlen, head, batch), box (64, 128, 1, 1), 128-byte swizzle
    TensorMap dst_map;
    u32* stamps;  // one per CTA: rank in the cluster in bits 31:16, salt in bits 15:0
    u32 salt;
    u32 halves;  // boxes side by side: head_dim / 64
};

constexpr u32 kBoxCols = 64, kBoxRows = 128, kBoxBytes = kBoxCols * kBoxRows * 2, kThreads = 32;

constexpr Table<RoleRow, 1> kRoles = {{{"copy", 0, 1, 32}}};
static_assert(roles_tile_warps(kRoles, kThreads / 32));

constexpr Table<SmemRow, 2> kSmem = place(Table<SmemRow, 2>{{
    {"box", kBoxBytes, 1024, 1, 0},
    {"barriers", kMbarrierBytes, 8, 1, 0},
}});

constexpr Table<BarrierRow, 1> kBarriers = place(
    Table<BarrierRow, 1>{{{"loaded", "copy", "copy", "the box is in shared memory", 1, 1, kBoxBytes, 0}}},
    find(kSmem, "barriers").offset);

// clang-format off
#define PARAM_ROW(field) {#field, u32(__builtin_offsetof(ProbeParams, field)), u32(sizeof(ProbeParams::field))}
constexpr Table<ParamRow, 5> kProbeParams = {{
    PARAM_ROW(src_map), PARAM_ROW(dst_map), PARAM_ROW(stamps), PARAM_ROW(salt), PARAM_ROW(halves),
}};
#undef PARAM_ROW
// clang-format on

}  // namespace

EXPORT_TABLE(kinfo_header, kTableHeader);
EXPORT_TABLE(kinfo_roles, kRoles);
EXPORT_TABLE(kinfo_smem, kSmem);
EXPORT_TABLE(kinfo_barriers, kBarriers);
EXPORT_TABLE(kinfo_params, kProbeParams);

// Copies the tensor box by box. Launch: grid (⌈seqlen / 128⌉, heads, batch), 32 threads, clusters along x as one likes.
extern "C" __global__ void __launch_bounds__(kThreads) probe_copy(const __grid_constant__ ProbeParams p) {
    extern __shared__ __align__(1024) u8 dynamic_smem[];
    const SmemAddr box = {u32(__cvta_generic_to_shared(dynamic_smem))};
    const MbarAddr loaded = {box.u + kBarriers.row[0].offset};
    if (threadIdx.x != 0) return;
    mbarrier_init(loaded, 1);
    fence_mbarrier_init_release_cluster();
    const i32 row = i32(blockIdx.x * kBoxRows), head = i32(blockIdx.y), batch = i32(blockIdx.z);
    for (u32 half = 0; half < p.halves; ++half) {
        mbarrier_arrive_expect_tx(loaded, kBoxBytes);
        cp_async_bulk_tensor_4d_g2s(box, &p.src_map, i32(half * kBoxCols), row, head, batch, loaded);
        while (!mbarrier_try_wait_parity(loaded, half & 1)) {
        }
        cp_async_bulk_tensor_4d_s2g(&p.dst_map, i32(half * kBoxCols), row, head, batch, box);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
    }
    const u32 cta = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    p.stamps[cta] = __clusterRelativeBlockRank() << 16 | p.salt;
}

// Three ways to break a context, for the host's error messages.
extern "C" __global__ void probe_illegal_address(u32* address) { *address = 1; }
extern "C" __global__ void probe_trap() { trap(); }
extern "C" __global__ void probe_hang(volatile u32* flag) {
    while (*flag != 0) {
    }
}
