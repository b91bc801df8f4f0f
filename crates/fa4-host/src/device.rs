//! What a machine must offer to run a kernel.

use fa4_kernels::kernel_info::KernelInfo;

use crate::error::DeviceError;
use crate::params::TENSOR_MAP_BYTES;
use crate::tensor_map::TensorMapArgs;

/// One launch, ready to go.
#[derive(Debug, Clone)]
pub struct KernelLaunch<'a, M> {
    /// Loaded code.
    pub module: &'a M,
    /// Entry function.
    pub entry: &'a str,
    /// The kernel's own tables: shared memory, and names for reports.
    pub info: &'a KernelInfo,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// CTAs of a cluster.
    pub cluster: [u32; 3],
    /// The parameter struct.
    pub params: Vec<u8>,
    /// Ranges (address, bytes) that the kernel must write in full. A checking device verifies it.
    pub outputs: Vec<(u64, u64)>,
}

/// Memory, code and launches. Addresses are plain numbers.
pub trait Device {
    /// Loaded code.
    type Module;

    /// Allocates `bytes` bytes aligned to 256 whose contents are undefined. `name` is for reports.
    fn alloc(&mut self, name: &str, bytes: u64) -> Result<u64, DeviceError>;

    /// Copies to the device.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Copies from the device what a kernel has written. Where the device knows that a byte is undefined it says so.
    fn read(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, DeviceError>;

    /// The opaque form of a tensor map.
    fn encode_tensor_map(&mut self, args: &TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError>;

    /// SMs that a persistent grid is spread over; `None`: every tile gets a CTA.
    fn sms(&self) -> Option<u32> {
        None
    }

    /// Starts a kernel.
    fn launch(&mut self, launch: &KernelLaunch<'_, Self::Module>) -> Result<(), DeviceError>;

    /// Waits for what was launched.
    fn sync(&mut self) -> Result<(), DeviceError>;
}
