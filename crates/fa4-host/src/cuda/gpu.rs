//! GPUs of this machine, and the context in which one of them works.
//!
//! # Safety argument
//! Every pointer passed is to a local of the right type and length that outlives the call. The context is retained when
//! a [`Gpu`] is made and released when the last user is gone, so that handles made in it are valid as long as whoever
//! holds them also holds the `Arc<Gpu>`. The driver's functions may be called from any thread once the context is
//! current there, which [`Gpu::enter`] sees to; that is why the handle may be sent and shared.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute as Attribute};
use fa4_kernels::arch::Arch;

use super::api::Api;
use crate::error::{DeviceError, DriverError};

/// What a GPU says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number in this process.
    pub ordinal: u32,
    /// Product name.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Level-2 cache in bytes.
    pub l2_bytes: u64,
    /// Largest dynamic shared memory of a CTA in bytes.
    pub max_dynamic_smem: u32,
    /// Highest SM clock in kHz.
    pub max_clock_khz: u32,
    /// CUDA version of the driver, major and minor.
    pub driver: (u32, u32),
    /// Domain, bus and device on the PCI bus.
    pub pci: (u32, u32, u32),
}

impl GpuInfo {
    /// The architecture whose cubins this GPU runs; `None`: no kernel here is compiled for it.
    pub fn arch(&self) -> Option<Arch> {
        match self.compute_capability {
            (9, 0) => Some(Arch::Sm90a),
            (10, 0) => Some(Arch::Sm100a),
            (10, 3) => Some(Arch::Sm103a),
            _ => None,
        }
    }

    /// The architecture, or why nothing runs here.
    pub(super) fn allowed(&self) -> String {
        let all = || Arch::ALL.map(Arch::name).join(", ");
        self.arch().map_or_else(|| format!("none of {}", all()), |arch| arch.to_string())
    }
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((major, minor), driver) = (self.compute_capability, self.driver);
        write!(
            f,
            "GPU {}: {}, compute capability {major}.{minor} ({}), {} SMs, {:.1} GiB, L2 {} MiB, at most {} MHz, \
             driver for CUDA {}.{}",
            self.ordinal,
            self.name,
            self.arch().map_or("no kernels", Arch::name),
            self.sms,
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.l2_bytes >> 20,
            self.max_clock_khz / 1000,
            driver.0,
            driver.1,
        )
    }
}

/// The GPUs that the driver shows to this process, in its order; at least one.
///
/// # Errors
/// [`DeviceError::NoDevice`]: no driver, one that is too old, or no GPU.
pub fn gpus() -> Result<Vec<GpuInfo>, DeviceError> {
    let api = Api::get()?;
    let mut count = 0;
    // SAFETY: a valid out-pointer.
    api.check("cuDeviceGetCount", unsafe { (api.cuDeviceGetCount)(&mut count) })?;
    if count < 1 {
        return Err(DeviceError::NoDevice("the NVIDIA driver shows no device to this process".into()));
    }
    (0..count).map(|ordinal| Ok(info(api, ordinal)?)).collect()
}

fn device(api: &Api, ordinal: c_int) -> Result<CUdevice, DriverError> {
    let mut device = 0;
    // SAFETY: a valid out-pointer.
    api.check("cuDeviceGet", unsafe { (api.cuDeviceGet)(&mut device, ordinal) })?;
    Ok(device)
}

fn info(api: &Api, ordinal: c_int) -> Result<GpuInfo, DriverError> {
    let device = device(api, ordinal)?;
    let attribute = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: a valid out-pointer and a device of this driver.
        let status = unsafe { (api.cuDeviceGetAttribute)(&mut value, attribute, device) };
        api.check("cuDeviceGetAttribute", status).map(|()| value.max(0) as u32)
    };
    let mut name: [c_char; 256] = [0; 256];
    let mut memory_bytes = 0usize;
    let mut driver: c_int = 0;
    // SAFETY: the buffer has the length given; the others are valid out-pointers.
    unsafe {
        api.check("cuDeviceGetName", (api.cuDeviceGetName)(name.as_mut_ptr(), 255, device))?;
        api.check("cuDeviceTotalMem", (api.cuDeviceTotalMem_v2)(&mut memory_bytes, device))?;
        api.check("cuDriverGetVersion", (api.cuDriverGetVersion)(&mut driver))?;
    }
    // SAFETY: the last byte is 0 whatever the driver wrote into the 255 before it.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(GpuInfo {
        ordinal: ordinal as u32,
        name,
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sms: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_bytes: memory_bytes as u64,
        l2_bytes: u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        max_dynamic_smem: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        max_clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        driver: (driver as u32 / 1000, driver as u32 % 1000 / 10),
        pci: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        ),
    })
}

/// Failures after which the driver answers every further call in the context with the same error: the kernel trapped,
/// left its memory, or hit a hardware error.
fn breaks_context(code: i32) -> bool {
    // ECC_UNCORRECTABLE, CONTEXT_IS_DESTROYED…LAUNCH_FAILED, and what later drivers add beside them.
    matches!(code, 214 | 700 | 702 | 709..=710 | 714..=719 | 721)
}

/// A GPU with its primary context, shared by the devices, modules and streams that use it.
pub struct Gpu {
    /// What it says about itself.
    pub info: GpuInfo,
    pub(super) api: &'static Api,
    device: CUdevice,
    context: CUcontext,
    lost: Mutex<Option<String>>,
}

// SAFETY: see the module's argument.
unsafe impl Send for Gpu {}
// SAFETY: see the module's argument.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`] where there is no such GPU, else the driver's words.
    pub fn open(ordinal: u32) -> Result<Arc<Gpu>, DeviceError> {
        let all = gpus()?;
        let Some(info) = all.get(ordinal as usize).cloned() else {
            let what =
                format!("there is no GPU {ordinal}; the driver shows {} (0 to {})", all.len(), all.len() - 1);
            return Err(DeviceError::NoDevice(what));
        };
        let api = Api::get()?;
        let device = device(api, ordinal as c_int)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid out-pointer and a device of this driver.
        let status = unsafe { (api.cuDevicePrimaryCtxRetain)(&mut context, device) };
        api.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(Arc::new(Gpu { info, api, device, context, lost: Mutex::new(None) }))
    }

    /// Makes the context current on this thread; refuses once a kernel broke it.
    pub(super) fn enter(&self) -> Result<&'static Api, DeviceError> {
        if let Some(first) = self.lost() {
            return Err(DeviceError::Lost(first));
        }
        // SAFETY: the context is retained until `self` is dropped.
        self.check("cuCtxSetCurrent", unsafe { (self.api.cuCtxSetCurrent)(self.context) })?;
        Ok(self.api)
    }

    /// A status as a result; remembers what broke the context.
    pub(super) fn check(&self, call: &'static str, status: c_int) -> Result<(), DeviceError> {
        let result = self.api.check(call, status);
        if let Err(error) = &result
            && breaks_context(error.code)
        {
            self.lose(error.to_string());
        }
        Ok(result?)
    }

    /// Declares the context unusable. What lives in it is then left to the end of the process: freeing it would wait for
    /// the kernel that hangs, or fail like everything else.
    pub(super) fn lose(&self, why: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// What broke the context, if something did.
    pub fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Free and total memory in bytes.
    ///
    /// # Errors
    /// The driver's words.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let api = self.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: valid out-pointers; the context is current.
        self.check("cuMemGetInfo", unsafe { (api.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.lost().is_none() {
            // SAFETY: retained by `open`; nothing made in the context outlives the last `Arc<Gpu>`.
            unsafe { (self.api.cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}
