//! A GPU behind [`Device`].

use std::sync::Arc;
use std::time::Duration;

use super::gpu::Gpu;
use super::launch::{Graph, Shape, launch};
use super::memory::Memory;
use super::module::CudaModule;
use super::stream::{Event, Stream};
use super::tensor_map;
use crate::device::{Device, KernelLaunch};
use crate::error::DeviceError;
use crate::params::TENSOR_MAP_BYTES;
use crate::tensor_map::TensorMapArgs;

/// Memory and a stream of its own on one GPU. Several may share a GPU, each on its own thread.
pub struct CudaDevice {
    // Dropped in this order: memory is given back before the stream that its last user ran in.
    memory: Memory,
    stream: Stream,
    limit: Option<Duration>,
}

impl CudaDevice {
    /// A device on GPU number `ordinal`.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open(ordinal: u32) -> Result<Self, DeviceError> {
        Self::on(&Gpu::open(ordinal)?)
    }

    /// A device on an open GPU.
    ///
    /// # Errors
    /// The driver's words.
    pub fn on(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        Ok(CudaDevice { memory: Memory::new(gpu), stream: Stream::new(gpu)?, limit: None })
    }

    /// Gives up on kernels that run longer than `limit`: [`Device::sync`] then answers [`DeviceError::Timeout`], and the
    /// GPU is lost to this process.
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.stream.gpu
    }

    /// Gives an allocation back.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] where `address` is not the start of one.
    pub fn free(&mut self, address: u64) -> Result<(), DeviceError> {
        self.memory.free(address)
    }

    /// Milliseconds that the work takes which `work` starts, by the GPU's own clock.
    ///
    /// # Errors
    /// What `work` or the work failed with.
    pub fn time(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<f32, DeviceError> {
        let start = Event::record(&self.stream)?;
        work(self)?;
        Event::record(&self.stream)?.ms_since(&start)
    }

    /// A point behind all work so far, to take times between.
    ///
    /// # Errors
    /// The driver's words.
    pub fn mark(&self) -> Result<Event, DeviceError> {
        Event::record(&self.stream)
    }

    /// Records a launch as a graph instead of running it.
    ///
    /// # Errors
    /// As [`Device::launch`].
    pub fn capture(&mut self, launch: &KernelLaunch<'_, CudaModule>) -> Result<CudaGraph, DeviceError> {
        let graph =
            Graph::capture(&self.stream, launch.module, launch.entry, &shape(launch), &launch.params)?;
        Ok(CudaGraph(graph))
    }

    /// Replaces grid, block, shared memory and parameters (pointers, lengths, strides) of a captured launch.
    ///
    /// # Errors
    /// As [`Device::launch`]; another cluster than the captured one is refused.
    pub fn update(
        &mut self,
        graph: &mut CudaGraph,
        launch: &KernelLaunch<'_, CudaModule>,
    ) -> Result<(), DeviceError> {
        graph.0.update(&self.stream, &shape(launch), &launch.params)
    }

    /// Starts a captured launch.
    ///
    /// # Errors
    /// The driver's words.
    pub fn replay(&mut self, graph: &CudaGraph) -> Result<(), DeviceError> {
        graph.0.replay(&self.stream)
    }
}

/// A captured launch.
pub struct CudaGraph(Graph);

fn shape(launch: &KernelLaunch<'_, CudaModule>) -> Shape {
    Shape {
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        dynamic_smem: launch.info.smem_bytes(),
    }
}

impl Device for CudaDevice {
    type Module = CudaModule;

    /// Every byte arrives as 0xFF: NaN in every format used here, so that an output nobody wrote is seen.
    fn alloc(&mut self, name: &str, bytes: u64) -> Result<u64, DeviceError> {
        self.memory.alloc(&self.stream, name, bytes)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(&self.stream, address, data)
    }

    fn read(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, DeviceError> {
        self.memory.read(&self.stream, address, bytes)
    }

    fn encode_tensor_map(&mut self, args: &TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
        tensor_map::encode(&self.stream.gpu, args)
    }

    fn sms(&self) -> Option<u32> {
        Some(self.stream.gpu.info.sms)
    }

    fn launch(&mut self, kernel: &KernelLaunch<'_, CudaModule>) -> Result<(), DeviceError> {
        launch(&self.stream, kernel.module, kernel.entry, &shape(kernel), &kernel.params)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.stream.wait(self.limit)
    }
}
