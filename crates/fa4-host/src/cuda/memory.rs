//! Device memory.
//!
//! # Safety argument
//! With unified addressing a number that is no device address may be a host address, so that copying to any number given
//! would let safe code overwrite host memory. Copies therefore go to the allocations of a [`Memory`] only, within their
//! bounds; host buffers are slices of the length copied, and every copy has ended when the function returns.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gpu::Gpu;
use super::stream::Stream;
use crate::error::DeviceError;

/// Byte with which new memory is filled: NaN in every format used here, so that an output nobody wrote is seen.
const POISON: u8 = 0xff;
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: i32 = 2;

/// The allocations of one device, freed when it is dropped.
pub(super) struct Memory {
    gpu: Arc<Gpu>,
    /// Size and name by address.
    allocations: BTreeMap<u64, (u64, String)>,
}

impl Memory {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Self {
        Memory { gpu: Arc::clone(gpu), allocations: BTreeMap::new() }
    }

    /// Allocates and poisons `bytes` bytes, at least one.
    pub(super) fn alloc(&mut self, stream: &Stream, name: &str, bytes: u64) -> Result<u64, DeviceError> {
        let api = self.gpu.enter()?;
        let (mut address, size) = (0, bytes.max(1) as usize);
        // SAFETY: a valid out-pointer; the context is current.
        match self.gpu.check("cuMemAlloc", unsafe { (api.cuMemAlloc_v2)(&mut address, size) }) {
            Err(DeviceError::Driver(error)) if error.code == OUT_OF_MEMORY => {
                let (free, _) = self.gpu.memory()?;
                let driver = error.name;
                return Err(DeviceError::OutOfMemory { name: name.into(), bytes, free, driver });
            }
            result => result?,
        }
        self.allocations.insert(address, (size as u64, name.to_string()));
        // SAFETY: the range was just allocated; device memory holds no Rust value.
        let status = unsafe { (api.cuMemsetD8Async)(address, POISON, size, stream.handle) };
        self.gpu.check("cuMemsetD8Async", status)?;
        Ok(address)
    }

    /// Gives an allocation back; work that uses it must have ended, or the driver waits for it.
    pub(super) fn free(&mut self, address: u64) -> Result<(), DeviceError> {
        if self.allocations.remove(&address).is_none() {
            return Err(DeviceError::Memory(format!("{address:#x} is not the start of an allocation")));
        }
        let api = self.gpu.enter()?;
        // SAFETY: it was in the table, hence allocated and not freed yet.
        self.gpu.check("cuMemFree", unsafe { (api.cuMemFree_v2)(address) })
    }

    pub(super) fn write(&self, stream: &Stream, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        if data.is_empty() {
            return Ok(());
        }
        self.within(address, data.len() as u64)?;
        let api = self.gpu.enter()?;
        // SAFETY: the device range lies in an allocation, the host range is a slice; the copy ends before the return.
        let status =
            unsafe { (api.cuMemcpyHtoDAsync_v2)(address, data.as_ptr().cast(), data.len(), stream.handle) };
        self.gpu.check("cuMemcpyHtoDAsync", status)?;
        stream.wait(None)
    }

    pub(super) fn read(&self, stream: &Stream, address: u64, bytes: u64) -> Result<Vec<u8>, DeviceError> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        self.within(address, bytes)?;
        let api = self.gpu.enter()?;
        let mut data = vec![0; bytes as usize];
        // SAFETY: as in `write`.
        let status = unsafe {
            (api.cuMemcpyDtoHAsync_v2)(data.as_mut_ptr().cast(), address, data.len(), stream.handle)
        };
        self.gpu.check("cuMemcpyDtoHAsync", status)?;
        stream.wait(None)?;
        Ok(data)
    }

    /// An error unless the range lies in one allocation.
    fn within(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let found = self.allocations.range(..=address).next_back();
        let end = address.checked_add(bytes);
        match (found, end) {
            (Some((base, (size, _))), Some(end)) if end <= base + size => Ok(()),
            (Some((base, (size, name))), _) if address < base + size => Err(DeviceError::Memory(format!(
                "{bytes} bytes at {name}+{:#x} end outside the allocation of {size} bytes",
                address - base
            ))),
            _ => Err(DeviceError::Memory(format!(
                "{bytes} bytes at {address:#x} are in no allocation of this device"
            ))),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Ok(api) = self.gpu.enter() else { return };
        for address in self.allocations.keys() {
            // SAFETY: allocated by `alloc`, not freed yet.
            unsafe { (api.cuMemFree_v2)(*address) };
        }
    }
}
