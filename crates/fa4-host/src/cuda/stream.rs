//! Streams order work; events mark points in it and tell the time between them.
//!
//! # Safety argument
//! A handle is made in a context that its owner keeps alive (`Arc<Gpu>`), is destroyed once, on drop, and is private: no
//! use after destruction is possible. Streams and events may be used from any thread.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstream_flags};

use super::gpu::Gpu;
use crate::error::DeviceError;

/// The driver's CUDA_ERROR_NOT_READY: work is still going on.
const NOT_READY: i32 = 600;

/// A queue of work. Does not wait for the default stream.
pub struct Stream {
    pub(super) gpu: Arc<Gpu>,
    pub(super) handle: CUstream,
}

// SAFETY: see the module's argument.
unsafe impl Send for Stream {}
// SAFETY: see the module's argument.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream on `gpu`.
    ///
    /// # Errors
    /// The driver's words.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        let api = gpu.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a valid out-pointer; the context is current.
        gpu.check("cuStreamCreate", unsafe { (api.cuStreamCreate)(&mut handle, flags) })?;
        Ok(Stream { gpu: Arc::clone(gpu), handle })
    }

    /// Waits for all work so far, at most `limit`. Work that outlasts it cannot be stopped: the context counts as lost.
    ///
    /// # Errors
    /// What the work failed with, or [`DeviceError::Timeout`].
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), DeviceError> {
        let api = self.gpu.enter()?;
        let Some(limit) = limit else {
            // SAFETY: a live stream.
            return self.gpu.check("cuStreamSynchronize", unsafe { (api.cuStreamSynchronize)(self.handle) });
        };
        let start = Instant::now();
        loop {
            // SAFETY: a live stream.
            match unsafe { (api.cuStreamQuery)(self.handle) } {
                NOT_READY if start.elapsed() < limit => std::thread::sleep(Duration::from_micros(20)),
                NOT_READY => {
                    let what = format!("the kernel was still running after {:.1} s", limit.as_secs_f64());
                    self.gpu.lose(what.clone());
                    return Err(DeviceError::Timeout(what));
                }
                status => return self.gpu.check("cuStreamQuery", status),
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(api) = self.gpu.enter() {
            // SAFETY: made by `new`, destroyed only here.
            unsafe { (api.cuStreamDestroy_v2)(self.handle) };
        }
    }
}

/// A point in a stream's work whose time is taken.
pub struct Event {
    gpu: Arc<Gpu>,
    handle: CUevent,
}

// SAFETY: see the module's argument.
unsafe impl Send for Event {}

impl Event {
    /// A point behind all work in `stream` so far.
    ///
    /// # Errors
    /// The driver's words.
    pub fn record(stream: &Stream) -> Result<Self, DeviceError> {
        let api = stream.gpu.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: a valid out-pointer; the context is current.
        stream.gpu.check("cuEventCreate", unsafe { (api.cuEventCreate)(&mut handle, flags) })?;
        let event = Event { gpu: Arc::clone(&stream.gpu), handle };
        // SAFETY: both handles are live and of the same context.
        stream.gpu.check("cuEventRecord", unsafe { (api.cuEventRecord)(handle, stream.handle) })?;
        Ok(event)
    }

    /// Milliseconds from `earlier` to this point; waits until both are reached. Resolution: half a microsecond.
    ///
    /// # Errors
    /// What the work before failed with.
    pub fn ms_since(&self, earlier: &Event) -> Result<f32, DeviceError> {
        let api = self.gpu.enter()?;
        let mut ms = 0.0;
        // SAFETY: live events and a valid out-pointer; events of different contexts are the driver's error.
        unsafe {
            self.gpu.check("cuEventSynchronize", (api.cuEventSynchronize)(self.handle))?;
            self.gpu.check(
                "cuEventElapsedTime",
                (api.cuEventElapsedTime_v2)(&mut ms, earlier.handle, self.handle),
            )?;
        }
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(api) = self.gpu.enter() {
            // SAFETY: made by `record`, destroyed only here.
            unsafe { (api.cuEventDestroy_v2)(self.handle) };
        }
    }
}
