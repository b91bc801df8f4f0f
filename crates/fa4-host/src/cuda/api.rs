//! The functions of the CUDA driver that this crate calls, found at run time.
//!
//! All are looked up when the driver is first used: a driver that lacks one is an error with the function's name, at a
//! time when nothing has happened yet. A status is kept as the number that it is, because a newer driver may answer with
//! one that the bindings' enumeration does not know.
//!
//! # Safety argument
//! Library and symbols stay loaded for the life of the process (`culib` never unloads). Each signature below repeats
//! the one in `cudarc::driver::sys`, which is generated from NVIDIA's header; the suffixes (`_v2`) name the version of
//! the function that the header's macro selects.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUgraphNode, CUlaunchConfig, CUmodule, CUstream,
    CUstreamCaptureMode, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use crate::error::{DeviceError, DriverError};

/// The oldest driver that runs the cubins of the oldest compiler allowed, CUDA 13.0, as the driver spells versions.
const OLDEST_DRIVER: c_int = 13000;

macro_rules! api {
    ($($name:ident($($argument:ty),*);)*) => {
        /// One function pointer per driver function, under its own name.
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Api {
            fn load() -> Result<Self, DeviceError> {
                // SAFETY: the initialisers of NVIDIA's library run; they ask nothing of the caller.
                if !unsafe { sys::is_culib_present() } {
                    let what = "the NVIDIA driver's library (libcuda.so.1) is not installed";
                    return Err(DeviceError::NoDevice(what.into()));
                }
                // SAFETY: as above; the library is present, so that this does not panic.
                let library = unsafe { sys::culib() };
                Ok(Api {
                    $($name: {
                        // SAFETY: the pointer's type is the field's; see the module's argument.
                        let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *symbol.map_err(|_| too_old(stringify!($name), None))?
                    },)*
                })
            }
        }
    };
}

api! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuGetErrorString(c_int, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuModuleGetGlobal_v2(*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
    cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
    cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
    cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamQuery(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
    cuStreamEndCapture(CUstream, *mut CUgraph);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventElapsedTime_v2(*mut f32, CUevent, CUevent);
    cuTensorMapEncodeTiled(
        *mut CUtensorMap,
        CUtensorMapDataType,
        u32,
        *mut c_void,
        *const u64,
        *const u64,
        *const u32,
        *const u32,
        CUtensorMapInterleave,
        CUtensorMapSwizzle,
        CUtensorMapL2promotion,
        CUtensorMapFloatOOBfill
    );
    cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
    cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize);
    cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
    cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphLaunch(CUgraphExec, CUstream);
    cuGraphExecDestroy(CUgraphExec);
    cuGraphDestroy(CUgraph);
}

/// A driver that cannot run these kernels: it lacks a function, or says that it is of an older CUDA.
fn too_old(what: &str, version: Option<c_int>) -> DeviceError {
    let has = match version {
        Some(version) => format!("is of CUDA {}.{}", version / 1000, version % 1000 / 10),
        None => format!("lacks {what}"),
    };
    DeviceError::NoDevice(format!(
        "the installed NVIDIA driver {has}; CUDA 13.0 (driver 580) or newer is needed"
    ))
}

impl Api {
    /// The initialised driver. The first answer is kept: a process does not meet another driver later.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`] with the driver's own words where it has some.
    pub(super) fn get() -> Result<&'static Api, DeviceError> {
        static API: OnceLock<Result<Api, DeviceError>> = OnceLock::new();
        let api = API.get_or_init(|| {
            let api = Api::load()?;
            let no_device = |error: DriverError| DeviceError::NoDevice(error.to_string());
            // SAFETY: no arguments but the flags, which must be 0.
            api.check("cuInit", unsafe { (api.cuInit)(0) }).map_err(no_device)?;
            let mut version = 0;
            // SAFETY: a valid out-pointer.
            api.check("cuDriverGetVersion", unsafe { (api.cuDriverGetVersion)(&mut version) })
                .map_err(no_device)?;
            if version < OLDEST_DRIVER {
                return Err(too_old("", Some(version)));
            }
            Ok(api)
        });
        api.as_ref().map_err(Clone::clone)
    }

    /// A status in the driver's own words.
    pub(super) fn check(&self, call: &'static str, status: c_int) -> Result<(), DriverError> {
        if status == 0 {
            return Ok(());
        }
        let words = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: a valid out-pointer; the driver answers with a static string, or leaves null for a number that it
            // does not know.
            unsafe {
                function(status, &mut text);
                (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = words(self.cuGetErrorName).unwrap_or_else(|| format!("CUDA_ERROR {status}"));
        let text = words(self.cuGetErrorString).unwrap_or_else(|| "no explanation".into());
        Err(DriverError { call, code: status, name, text })
    }
}
