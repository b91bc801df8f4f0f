//! The machine a case runs on. Only this module knows the emulator's interface.

use super::params::Param;

/// Why a launch gave no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The machine found the kernel, or itself, at fault.
    #[error("{0}")]
    Fault(String),
    /// The kernel needs something that the machine does not do.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The step limit was reached.
    #[error("timeout: {0}")]
    Timeout(String),
}

/// One kernel launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchSpec<'a> {
    /// What to call the kernel in reports.
    pub name: &'a str,
    /// PTX text.
    pub ptx: &'a str,
    /// Name of the `.entry`.
    pub entry: &'a str,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Parameters in order.
    pub params: &'a [Param],
    /// Ranges (address, bytes) that the kernel promises to write.
    pub outputs: &'a [(u64, u64)],
}

/// Memory and a launch: what judging a kernel needs of a machine.
pub trait Device {
    /// Allocates `bytes` bytes, aligned to 256 at least, whose contents are undefined. `name` is for reports.
    ///
    /// # Errors
    /// Where the machine is out of memory.
    fn alloc(&mut self, name: &str, bytes: usize) -> Result<u64, Fault>;

    /// Copies `data` to `address`.
    ///
    /// # Errors
    /// Where the range is not allocated.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault>;

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// Whatever the machine reports instead of finishing.
    fn launch(&mut self, launch: &LaunchSpec<'_>) -> Result<(), Fault>;

    /// Reads bytes that the kernel must have written. `name` is for reports.
    ///
    /// # Errors
    /// Where a byte is undefined or not allocated.
    fn read(&mut self, name: &str, address: u64, bytes: usize) -> Result<Vec<u8>, Fault>;
}
