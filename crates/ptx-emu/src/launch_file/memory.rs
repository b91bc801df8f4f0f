//! A resolved launch in memory: allocates and fills the buffers, and reads outputs back.

use super::resolved::{Buffer, Contents, FitError, ResolvedLaunch};
use crate::launch::Launch;
use crate::machine::global::{GlobalMemory, Initial, OutOfBounds};
use crate::npy::Array;
use crate::syntax::ast::{Function, Module};

/// Why a launch could not be set up.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SetupError {
    /// The parameters do not fit the kernel.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// There is no such kernel.
    #[error("no kernel to run: {asked}; {file} holds {found}")]
    Kernel {
        /// What was asked for.
        asked: String,
        /// The PTX file.
        file: String,
        /// The kernels it holds.
        found: String,
    },
}

impl ResolvedLaunch {
    /// Allocates every buffer and fills it; returns the addresses, in order.
    ///
    /// # Errors
    /// When a tensor map inside a buffer cannot be encoded with the address its buffer got.
    pub fn allocate(&self, memory: &mut GlobalMemory) -> Result<Vec<u64>, FitError> {
        let addresses: Vec<u64> = self
            .buffers
            .iter()
            .map(|b| {
                let initial = match b.contents {
                    Contents::Zeros => Initial::Byte(0),
                    _ => Initial::Undefined,
                };
                memory.alloc_init(&b.name, b.bytes, b.align, initial)
            })
            .collect();
        for (buffer, &address) in self.buffers.iter().zip(&addresses) {
            let resolved;
            let bytes = match &buffer.contents {
                Contents::Poison | Contents::Zeros => continue,
                Contents::Bytes(bytes) => bytes,
                Contents::Image(image) => {
                    resolved = self.resolve(image, &addresses)?;
                    &resolved
                }
            };
            // The contents have the buffer's size, so this stays inside the allocation.
            let _ = memory.write(address, bytes);
        }
        Ok(addresses)
    }

    /// The kernel that the launch runs.
    ///
    /// # Errors
    /// When the module has no kernel of that name, or several and the launch names none.
    pub fn kernel<'m>(&self, module: &'m Module) -> Result<&'m Function, SetupError> {
        let kernels: Vec<&Function> = module.functions.iter().filter(|f| f.is_entry).collect();
        let error = |asked: String| {
            let names: Vec<_> = kernels.iter().map(|f| format!("`{}`", f.name)).collect();
            let found = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            SetupError::Kernel { asked, file: module.name.clone(), found }
        };
        match (&self.entry, kernels.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(error("the launch file names no `entry`".to_string())),
            (Some(name), _) => {
                let found = kernels.iter().find(|f| f.name == *name);
                found.copied().ok_or_else(|| error(format!("`{name}` was asked for")))
            }
        }
    }

    /// The launch as the machine takes it, for buffers at `addresses`.
    ///
    /// # Errors
    /// When the kernel is missing or its parameters are others.
    pub fn launch<'m>(&self, module: &'m Module, addresses: &[u64]) -> Result<Launch<'m>, SetupError> {
        let kernel = self.kernel(module)?;
        let outputs = self.buffers.iter().zip(addresses).filter(|(b, _)| b.output.is_some());
        Ok(Launch {
            module,
            entry: &kernel.name,
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_smem: self.dynamic_smem,
            params: self.param_buffer(kernel, addresses)?,
            outputs: outputs.map(|(b, &address)| (address, b.bytes)).collect(),
            annotations: self.annotations.clone(),
        })
    }
}

/// A buffer as an array; undefined bytes read as 0.
///
/// # Errors
/// When `address` is not where the buffer was allocated.
pub fn read_back(memory: &GlobalMemory, buffer: &Buffer, address: u64) -> Result<Array, OutOfBounds> {
    let data = memory.read(address, buffer.bytes as usize)?;
    Ok(Array { ty: buffer.dtype.npy(), shape: buffer.shape.clone(), data })
}
