// Executable tables: a kernel's roles, shared memory, TMEM and barriers as constexpr rows. Offsets are prefix sums of
// the rows, the set-up code loops over them, static_asserts check them, and EXPORT_TABLE leaves the very same bytes in
// the PTX, where the host, the emulator's annotations and `xtask plan` read them. One truth, no second copy.
//
// Binary layout (little-endian, no padding; text is NUL-padded, roles in a list are separated by one space):
//
//   kinfo_header    magic "FA4K", u32 version = 1, u32 row size of roles, smem, tmem, barriers, params
//   kinfo_roles     name[24]  first_warp  warps  regs                                                       36 bytes
//   kinfo_smem      name[24]  bytes  align  stages  offset                                                  40
//   kinfo_tmem      name[24]  dtype[8]  written_by[24]  read_by[24]  alias[24]  col  cols                   112
//   kinfo_barriers  name[24]  arriver[24]  waiter[24]  meaning[64]  stages  arrivals  tx_bytes  offset      152
//   kinfo_params    name[24]  offset  bytes                                                                 32
//
// `bytes` is per stage; stages follow each other. Offsets count from the start of dynamic shared memory
// (smem, barriers: 8 bytes a stage) or of the parameter struct. tx_bytes is 0 for a barrier without transaction count.
// A role name that ends in '#' means the role whose last character is the stage's number: "softmax#" of stage 1 is
// softmax1. One that no role has, such as "attend" beside attend0 and attend1, means every role of that name and a
// number. A TMEM row's alias names the region whose columns it reuses on purpose, or is empty.
#pragma once
#include "ptx/types.cuh"

struct RoleRow {
    char name[24];
    u32 first_warp, warps, regs;
};
struct SmemRow {
    char name[24];
    u32 bytes, align, stages, offset;
};
struct TmemRow {
    char name[24];
    char dtype[8];
    char written_by[24];
    char read_by[24];
    char alias[24];
    u32 col, cols;
};
struct BarrierRow {
    char name[24];
    char arriver[24];
    char waiter[24];
    char meaning[64];
    u32 stages, arrivals, tx_bytes, offset;
};
struct ParamRow {
    char name[24];
    u32 offset, bytes;
};

template <class Row, u32 N> struct Table {
    Row row[N];
    static constexpr u32 kRows = N;
};

struct TableHeader {
    char magic[4];
    u32 version, role_bytes, smem_bytes, tmem_bytes, barrier_bytes, param_bytes;
};
constexpr TableHeader kTableHeader = {
    {'F', 'A', '4', 'K'}, 1, sizeof(RoleRow), sizeof(SmemRow), sizeof(TmemRow), sizeof(BarrierRow), sizeof(ParamRow)};
static_assert(sizeof(RoleRow) == 36 && sizeof(SmemRow) == 40 && sizeof(TmemRow) == 112 && sizeof(BarrierRow) == 152 &&
                  sizeof(ParamRow) == 32,
              "the layout documented above");

constexpr u32 kMbarrierBytes = 8;

__device__ constexpr bool same_name(const char* a, const char* b) {
    while (*a != 0 && *a == *b) ++a, ++b;
    return *a == *b;
}

// Row of that name; a name that is not in the table does not compile in a constant expression.
template <class Row, u32 N> __device__ constexpr Row find(const Table<Row, N>& table, const char* name) {
    u32 i = 0;
    while (!same_name(table.row[i].name, name)) ++i;  // running off the end is no constant expression
    return table.row[i];
}

// Shared memory laid out in the order of the rows.
template <u32 N> __device__ constexpr Table<SmemRow, N> place(Table<SmemRow, N> table) {
    u32 offset = 0;
    for (u32 i = 0; i < N; ++i) {
        const u32 align = table.row[i].align;
        offset = (offset + align - 1) / align * align;
        table.row[i].offset = offset;
        offset += table.row[i].bytes * table.row[i].stages;
    }
    return table;
}

// Barriers laid out from `offset` on.
template <u32 N> __device__ constexpr Table<BarrierRow, N> place(Table<BarrierRow, N> table, u32 offset) {
    for (u32 i = 0; i < N; ++i) {
        table.row[i].offset = offset;
        offset += kMbarrierBytes * table.row[i].stages;
    }
    return table;
}

template <u32 N> __device__ constexpr u32 smem_bytes(const Table<SmemRow, N>& table) {
    const SmemRow& last = table.row[N - 1];
    return last.offset + last.bytes * last.stages;
}

template <u32 N> __device__ constexpr u32 barrier_count(const Table<BarrierRow, N>& table) {
    u32 count = 0;
    for (u32 i = 0; i < N; ++i) count += table.row[i].stages;
    return count;
}

// Registers that all roles hold together after setmaxnreg.
template <u32 N> __device__ constexpr u32 register_count(const Table<RoleRow, N>& table) {
    u32 count = 0;
    for (u32 i = 0; i < N; ++i) count += table.row[i].warps * 32 * table.row[i].regs;
    return count;
}

// Roles cover the warps 0.. without gap or overlap, and each warpgroup has one register budget.
template <u32 N> __device__ constexpr bool roles_tile_warps(const Table<RoleRow, N>& table, u32 warps) {
    u32 next = 0;
    for (u32 i = 0; i < N; ++i) {
        if (table.row[i].first_warp != next || table.row[i].regs % 8 != 0) return false;
        if (next % 4 != 0 && table.row[i].regs != table.row[i - 1].regs) return false;
        next += table.row[i].warps;
    }
    return next == warps;
}

// Regions stay within 512 columns; two regions share a column only where one declares the other as its alias.
template <u32 N> __device__ constexpr bool tmem_overlaps_are_declared(const Table<TmemRow, N>& table) {
    for (u32 i = 0; i < N; ++i) {
        const TmemRow& a = table.row[i];
        if (a.col + a.cols > 512) return false;
        for (u32 j = 0; j < i; ++j) {
            const TmemRow& b = table.row[j];
            const bool overlap = a.col < b.col + b.cols && b.col < a.col + a.cols;
            const bool declared = same_name(a.alias, b.name) || same_name(b.alias, a.name);
            if (overlap && !declared) return false;
        }
    }
    return true;
}

// One blob per table, visible in the PTX although nothing reads it on the device.
#define EXPORT_TABLE(symbol, table) extern "C" __device__ const auto symbol = table
