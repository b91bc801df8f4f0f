//! Kernel launches with cluster dimensions, and graphs of one launch that is replayed with other arguments.
//!
//! # Safety argument
//! The driver reads the parameters that the compiled function has, at the offsets that it has them at: [`Shape::check`]
//! requires a block of exactly that size, and the driver copies it before the call returns. What a kernel does with the
//! addresses it is given is the kernel's: code that was compiled here is trusted as linked code is. Graph handles are
//! private, made once, destroyed on drop, and keep module and context alive.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction_attribute as Attribute, CUgraph, CUgraphExec, CUgraphNode,
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1 as ClusterDim, CUlaunchConfig, CUstreamCaptureMode,
};

use super::module::{CudaModule, Function};
use super::stream::Stream;
use crate::error::DeviceError;

/// Dynamic shared memory that needs no permission.
const DEFAULT_SMEM: u32 = 48 << 10;
/// Largest cluster that every GPU with clusters can run.
const PORTABLE_CLUSTER: u32 = 8;
/// Largest cluster at all.
const LARGEST_CLUSTER: u32 = 16;

/// The size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// CTAs of a cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a CTA in bytes.
    pub dynamic_smem: u32,
}

fn volume(size: [u32; 3]) -> u64 {
    size.iter().map(|n| u64::from(*n)).product()
}

impl Shape {
    /// What the driver would refuse with one word, in many; and the size of the parameter block, which it cannot check.
    fn check(&self, function: &Function, most_smem: u32, params: &[u8]) -> Result<(), DeviceError> {
        let no = |what: &'static str, given: String, allowed: String| {
            Err(DeviceError::Launch { kernel: function.name.clone(), what, given, allowed })
        };
        let (threads, cluster) = (volume(self.block), volume(self.cluster));
        if volume(self.grid) == 0 || self.grid[0] > i32::MAX as u32 || self.grid[1].max(self.grid[2]) > 65535
        {
            return no("grid", format!("{:?}", self.grid), "1 to 2147483647 × 65535 × 65535".into());
        }
        if threads == 0 || threads > u64::from(function.max_threads) {
            return no(
                "block",
                format!("{:?}", self.block),
                format!("1 to {} threads", function.max_threads),
            );
        }
        let divides =
            self.grid.iter().zip(self.cluster).all(|(grid, cluster)| cluster > 0 && grid % cluster == 0);
        if !divides || cluster > u64::from(LARGEST_CLUSTER) {
            let allowed = format!("divisors of the grid {:?}, at most {LARGEST_CLUSTER} CTAs", self.grid);
            return no("cluster", format!("{:?}", self.cluster), allowed);
        }
        let most = most_smem.saturating_sub(function.static_smem);
        if self.dynamic_smem > most {
            return no(
                "dynamic shared memory",
                format!("{} bytes", self.dynamic_smem),
                format!("at most {most}"),
            );
        }
        let wanted = function.param_bytes();
        if params.len() != wanted {
            return no("parameter block", format!("{} bytes", params.len()), format!("exactly {wanted}"));
        }
        Ok(())
    }
}

/// The driver's form of the parameters: a pointer to each.
fn pointers(function: &Function, params: &[u8]) -> Vec<*mut c_void> {
    function.params.iter().map(|(offset, _)| params[*offset..].as_ptr().cast_mut().cast()).collect()
}

/// A function of `module` that may be launched in `shape`, with its shared memory and cluster size permitted.
fn permit<'a>(
    stream: &Stream,
    module: &'a CudaModule,
    entry: &str,
    shape: &Shape,
    params: &[u8],
) -> Result<&'a Function, DeviceError> {
    let gpu = &stream.gpu;
    let Some(function) = module.function(entry) else {
        return Err(DeviceError::Load(format!("the module was loaded without its entry function `{entry}`")));
    };
    if module.gpu().info.ordinal != gpu.info.ordinal {
        let (there, here) = (module.gpu().info.ordinal, gpu.info.ordinal);
        return Err(DeviceError::Load(format!("{entry} is loaded on GPU {there}, not on GPU {here}")));
    }
    shape.check(function, gpu.info.max_dynamic_smem, params)?;
    let api = gpu.enter()?;
    let set = |attribute: Attribute, value: u32| {
        // SAFETY: a live function.
        let status = unsafe { (api.cuFuncSetAttribute)(function.handle, attribute, value as i32) };
        gpu.check("cuFuncSetAttribute", status)
    };
    if shape.dynamic_smem > DEFAULT_SMEM {
        set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shape.dynamic_smem)?;
    }
    if volume(shape.cluster) > u64::from(PORTABLE_CLUSTER) {
        set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
    }
    Ok(function)
}

/// Starts `entry` in `stream`.
///
/// # Errors
/// [`DeviceError::Launch`] for a shape or parameters that cannot be, else the driver's words. What goes wrong while the
/// kernel runs is said by whoever waits for it.
pub fn launch(
    stream: &Stream,
    module: &CudaModule,
    entry: &str,
    shape: &Shape,
    params: &[u8],
) -> Result<(), DeviceError> {
    let function = permit(stream, module, entry, shape, params)?;
    let api = stream.gpu.enter()?;
    let [x, y, z] = shape.cluster;
    let mut attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { clusterDim: ClusterDim { x, y, z } },
    };
    let config = CUlaunchConfig {
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.dynamic_smem,
        hStream: stream.handle,
        attrs: &mut attribute,
        numAttrs: u32::from(volume(shape.cluster) > 1),
    };
    let mut pointers = pointers(function, params);
    // SAFETY: configuration, attribute, pointers and the parameters behind them outlive the call; see the module's
    // argument for what the driver reads.
    let status = unsafe {
        (api.cuLaunchKernelEx)(&config, function.handle, pointers.as_mut_ptr(), std::ptr::null_mut())
    };
    stream.gpu.check("cuLaunchKernelEx", status)
}

/// A captured launch, ready to be replayed.
pub(super) struct Graph {
    module: CudaModule,
    entry: String,
    cluster: [u32; 3],
    graph: CUgraph,
    exec: CUgraphExec,
    node: CUgraphNode,
}

// SAFETY: a graph may be used from any thread, one at a time (`&mut` or ownership).
unsafe impl Send for Graph {}

impl Graph {
    /// Records a launch instead of running it.
    pub(super) fn capture(
        stream: &Stream,
        module: &CudaModule,
        entry: &str,
        shape: &Shape,
        params: &[u8],
    ) -> Result<Self, DeviceError> {
        let gpu = &stream.gpu;
        let api = gpu.enter()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream.
        let status = unsafe { (api.cuStreamBeginCapture_v2)(stream.handle, mode) };
        gpu.check("cuStreamBeginCapture", status)?;
        let launched = launch(stream, module, entry, shape, params);
        let mut this = Graph {
            module: module.clone(),
            entry: entry.to_string(),
            cluster: shape.cluster,
            graph: std::ptr::null_mut(),
            exec: std::ptr::null_mut(),
            node: std::ptr::null_mut(),
        };
        // SAFETY: a live stream in capture and a valid out-pointer. The capture is ended whether or not the launch worked.
        let status = unsafe { (api.cuStreamEndCapture)(stream.handle, &mut this.graph) };
        let ended = gpu.check("cuStreamEndCapture", status);
        launched.and(ended)?;
        let mut count = 1usize;
        // SAFETY: a live graph and room for one node.
        let status = unsafe { (api.cuGraphGetNodes)(this.graph, &mut this.node, &mut count) };
        gpu.check("cuGraphGetNodes", status)?;
        // SAFETY: a live graph and a valid out-pointer.
        let status = unsafe { (api.cuGraphInstantiateWithFlags)(&mut this.exec, this.graph, 0) };
        gpu.check("cuGraphInstantiateWithFlags", status)?;
        Ok(this)
    }

    /// Replaces grid, block, shared memory and parameters of the launch; the entry and its cluster stay.
    pub(super) fn update(
        &mut self,
        stream: &Stream,
        shape: &Shape,
        params: &[u8],
    ) -> Result<(), DeviceError> {
        if shape.cluster != self.cluster {
            return Err(DeviceError::Launch {
                kernel: self.entry.clone(),
                what: "cluster of a replayed graph",
                given: format!("{:?}", shape.cluster),
                allowed: format!("the captured {:?}", self.cluster),
            });
        }
        let function = permit(stream, &self.module, &self.entry, shape, params)?;
        let api = stream.gpu.enter()?;
        let mut pointers = pointers(function, params);
        let node = CUDA_KERNEL_NODE_PARAMS {
            func: function.handle,
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.dynamic_smem,
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        // SAFETY: a live executable graph with that node; the parameters are copied before the call returns.
        let status = unsafe { (api.cuGraphExecKernelNodeSetParams_v2)(self.exec, self.node, &node) };
        stream.gpu.check("cuGraphExecKernelNodeSetParams", status)
    }

    /// Starts the launch in `stream`.
    pub(super) fn replay(&self, stream: &Stream) -> Result<(), DeviceError> {
        let api = stream.gpu.enter()?;
        // SAFETY: a live executable graph and a live stream.
        stream.gpu.check("cuGraphLaunch", unsafe { (api.cuGraphLaunch)(self.exec, stream.handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(api) = self.module.gpu().enter() else { return };
        if !self.exec.is_null() {
            // SAFETY: instantiated once, destroyed only here.
            unsafe { (api.cuGraphExecDestroy)(self.exec) };
        }
        if !self.graph.is_null() {
            // SAFETY: captured once, destroyed only here.
            unsafe { (api.cuGraphDestroy)(self.graph) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function() -> Function {
        Function {
            handle: std::ptr::null_mut(),
            name: "k".into(),
            params: vec![(0, 8), (8, 4)],
            registers: 32,
            static_smem: 1024,
            local_bytes: 0,
            max_threads: 512,
        }
    }

    const GOOD: Shape = Shape { grid: [6, 2, 1], block: [512, 1, 1], cluster: [2, 1, 1], dynamic_smem: 1000 };

    #[test]
    fn impossible_launches_are_refused_in_words() {
        let check = |shape: Shape, params: &[u8]| shape.check(&function(), 228 << 10, params);
        assert_eq!(check(GOOD, &[0; 12]), Ok(()));
        let text = |shape: Shape| check(shape, &[0; 12]).unwrap_err().to_string();
        assert!(text(Shape { grid: [0, 1, 1], ..GOOD }).contains("grid is [0, 1, 1]"));
        assert!(text(Shape { grid: [6, 65536, 1], ..GOOD }).contains("65535"));
        assert!(text(Shape { block: [513, 1, 1], ..GOOD }).contains("1 to 512 threads"));
        assert!(text(Shape { cluster: [4, 1, 1], ..GOOD }).contains("divisors of the grid [6, 2, 1]"));
        assert!(text(Shape { cluster: [0, 1, 1], ..GOOD }).contains("cluster is"));
        let text = text(Shape { dynamic_smem: 228 << 10, ..GOOD });
        assert!(text.contains("at most 232448"), "{text}");
        let error = check(GOOD, &[0; 16]).unwrap_err().to_string();
        assert!(error.contains("parameter block is 16 bytes; allowed: exactly 12"), "{error}");
    }
}
