//! Launch files: TOML that names a PTX file, a kernel, its shape and its parameters.
//!
//! ```toml
//! ptx = "kernel.ptx"            # paths are relative to the launch file
//! entry = "attention"           # may be left out when the PTX holds one kernel
//! grid = [4, 1, 1]              # one to three numbers
//! block = [128]
//! cluster = [1]                 # default 1
//! dynamic_smem = 65536          # bytes, default 0
//!
//! [[buffer]]                    # global memory
//! name = "q"
//! dtype = "bf16"                # u8 i8 u16 i16 u32 i32 u64 i64 e4m3 e5m2 f16 bf16 f32 f64
//! shape = [256, 128]
//! init = { randn = 1 }          # "poison" (default) "zeros" "iota" { randn = seed, mean = 0, scale = 1 }
//!                               # { fill = x } { file = "q.npy" } { raw = "q.bin" } { hex = "00 3f" }
//! output = "o.npy"              # written after the run, and must then be defined throughout
//! align = 256                   # default 256
//!
//! [[buffer]]                    # a tensor map as an object in global memory
//! name = "q_map"
//! tensor_map = { buffer = "q", dtype = "bf16", dims = [128, 256], strides = [256], box = [64, 128] }
//!
//! [[param]]                     # parameters in order
//! kind = "tensor_map"           # 128 bytes by value; lists are innermost first, strides in bytes from dimension 1
//! buffer = "q"
//! addend = 0                    # bytes added to the buffer's address
//! dtype = "bf16"
//! dims = [128, 256]
//! strides = [256]
//! box = [64, 128]
//! element_strides = [1, 1]      # default 1
//! swizzle = "128B"              # "none" "32B" "64B" "128B"
//! interleave = "none"           # "none" "16B" "32B"
//! fill = "zeros"                # "zeros" "nan"
//! l2 = "none"                   # "none" "64B" "128B" "256B"
//!
//! [[param]]
//! kind = "buffer"               # the address of a declared buffer; with dtype and shape it declares one
//! name = "q"
//! addend = 128
//!
//! [[param]]
//! kind = "scalar"
//! type = "u32"
//! value = 7                     # a number, true/false, or a string for what TOML cannot spell: "0xffffffffffffffff"
//!
//! [[annotations.roles]]         # names for reports, and who may touch which barrier; all optional
//! name = "softmax"
//! first_warp = 4
//! warps = 4
//!
//! [[annotations.barriers]]      # in dynamic shared memory
//! name = "P_full"
//! offset = 1024
//! stages = 2
//! arrivers = ["softmax"]        # default: anybody
//! waiters = ["mma"]
//!
//! [[annotations.shared]]        # regions of dynamic shared memory (bytes); `tmem` alike (columns)
//! name = "Q"
//! start = 2048
//! len = 16384
//!
//! [[param]]
//! kind = "raw"                  # captured bytes, with the addresses in them replaced
//! bytes = "00000000 00000000 07000000"
//! patches = [{ offset = 0, buffer = "q", addend = 0 }]
//!
//! [[param]]
//! kind = "struct"               # by-value struct: any of the above at byte offsets, zero elsewhere
//! size = 144
//! fields = [{ offset = 0, kind = "buffer", name = "q" }, { offset = 8, kind = "scalar", type = "f32", value = 0.5 }]
//! ```

mod dtype;
mod fill;
mod memory;
mod resolve;
mod resolved;
mod schema;

pub use dtype::DType;
pub use fill::{normal, splitmix64};
pub use memory::{SetupError, read_back};
pub use resolve::{LaunchFileError, parse, read};
pub use resolved::{Buffer, BufferId, Contents, FitError, Image, MapPatch, Param, Patch, ResolvedLaunch};
