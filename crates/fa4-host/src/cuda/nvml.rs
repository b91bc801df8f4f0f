//! What a GPU says about its clock, power and temperature, through NVML, which is looked for at run time.
//!
//! # Safety argument
//! The library stays loaded as long as [`Nvml`] lives, and every function pointer is called through it only. Each signature
//! repeats NVML's header (`nvml.h`; status and enumerations are C `int`s or `unsigned int`s). Every pointer passed is to a
//! local of the right type, or to a buffer with its length beside it, and outlives the call. A device handle is valid until
//! `nvmlShutdown`, which is never called: NVML then ends with the process. NVML may be called from any thread.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::gpu::GpuInfo;

/// NVML's name for the SM clock domain.
const CLOCK_SM: c_uint = 1;
/// NVML's name for the sensor on the die.
const TEMPERATURE_GPU: c_uint = 0;
/// Field of the power draw now; `nvmlDeviceGetPowerUsage` answers with a mean over a second since Ampere.
const POWER_INSTANT: c_uint = 186;
/// NVML's name for the type of that field's value.
const UNSIGNED_INT: c_uint = 1;

/// Reasons that slow a busy GPU down, by their bits. Idleness and clocks that a user asked for are none.
const REASONS: [(u64, &str); 5] = [
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "thermal (software)"),
    (0x40, "thermal (hardware)"),
    (0x80, "power brake"),
];

type Device = *mut c_void;

#[repr(C)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    value_type: c_uint,
    status: c_int,
    value: [u8; 8],
}

/// One GPU as NVML knows it.
pub struct Nvml {
    device: Device,
    library: Library,
}

// SAFETY: see the module's argument.
unsafe impl Send for Nvml {}

/// What NVML says at one moment; a value that it does not give is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NvmlReading {
    /// SM clock.
    pub clock_mhz: Option<u32>,
    /// Power draw.
    pub power_w: Option<f64>,
    /// Temperature of the die.
    pub temperature_c: Option<u32>,
    /// What holds the clock back.
    pub throttled: Vec<&'static str>,
}

impl Nvml {
    /// Finds `gpu` in NVML, by its place on the PCI bus: the two libraries number GPUs differently.
    ///
    /// # Errors
    /// In words: no library, or one that does not know the GPU.
    pub fn open(gpu: &GpuInfo) -> Result<Self, String> {
        // SAFETY: the initialisers of NVIDIA's library run; they ask nothing of the caller.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }
            .map_err(|_| "NVIDIA's management library (libnvidia-ml.so.1) is not installed".to_string())?;
        let mut this = Nvml { device: std::ptr::null_mut(), library };
        // SAFETY: no arguments.
        this.ok("nvmlInit_v2", |f: unsafe extern "C" fn() -> c_int| unsafe { f() })
            .ok_or("NVML does not start")?;
        let (domain, bus, device) = gpu.pci;
        let address = CString::new(format!("{domain:08X}:{bus:02X}:{device:02X}.0")).expect("digits only");
        let mut handle: Device = std::ptr::null_mut();
        type ByPci = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
        // SAFETY: a C string and a valid out-pointer.
        this.ok("nvmlDeviceGetHandleByPciBusId_v2", |f: ByPci| unsafe { f(address.as_ptr(), &mut handle) })
            .ok_or_else(|| format!("NVML does not know the GPU at {}", address.to_string_lossy()))?;
        this.device = handle;
        Ok(this)
    }

    /// Calls a function that answers with a status; `None` where there is no such function or it fails.
    fn ok<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> c_int) -> Option<()> {
        // SAFETY: callers give the type of NVML's header; the pointer is used during this call only.
        let function = unsafe { self.library.get::<F>(name.as_bytes()) }.ok()?;
        (call(*function) == 0).then_some(())
    }

    fn number(&self, name: &str) -> Option<u32> {
        let mut value: c_uint = 0;
        type Get = unsafe extern "C" fn(Device, *mut c_uint) -> c_int;
        // SAFETY: a live device and a valid out-pointer.
        self.ok(name, |f: Get| unsafe { f(self.device, &mut value) })?;
        Some(value)
    }

    fn number_of(&self, name: &str, which: c_uint) -> Option<u32> {
        let mut value: c_uint = 0;
        type Get = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int;
        // SAFETY: as above.
        self.ok(name, |f: Get| unsafe { f(self.device, which, &mut value) })?;
        Some(value)
    }

    fn text(&self, name: &str) -> Option<String> {
        let mut buffer: [c_char; 97] = [0; 97];
        type Get = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int;
        // SAFETY: the buffer has the length given, and one zero more.
        self.ok(name, |f: Get| unsafe { f(self.device, buffer.as_mut_ptr(), 96) })?;
        // SAFETY: the last element is 0 whatever was written before it.
        Some(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The GPU's UUID, as `CUDA_VISIBLE_DEVICES` takes it.
    pub fn uuid(&self) -> Option<String> {
        self.text("nvmlDeviceGetUUID")
    }

    /// The driver's version.
    pub fn driver(&self) -> Option<String> {
        let mut buffer: [c_char; 97] = [0; 97];
        type Get = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
        // SAFETY: as in `text`.
        self.ok("nvmlSystemGetDriverVersion", |f: Get| unsafe { f(buffer.as_mut_ptr(), 96) })?;
        // SAFETY: as in `text`.
        Some(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The enforced power limit in watts.
    pub fn power_limit_w(&self) -> Option<f64> {
        self.number("nvmlDeviceGetEnforcedPowerLimit").map(|mw| f64::from(mw) / 1e3)
    }

    fn power_w(&self) -> Option<f64> {
        let mut field = FieldValue {
            field: POWER_INSTANT,
            scope: 0,
            timestamp: 0,
            latency_us: 0,
            value_type: 0,
            status: -1,
            value: [0; 8],
        };
        type Get = unsafe extern "C" fn(Device, c_int, *mut FieldValue) -> c_int;
        // SAFETY: a live device and one field of NVML's layout.
        let asked = self.ok("nvmlDeviceGetFieldValues", |f: Get| unsafe { f(self.device, 1, &mut field) });
        let [a, b, c, d, ..] = field.value;
        match (asked, field.status, field.value_type) {
            (Some(()), 0, UNSIGNED_INT) => Some(f64::from(u32::from_le_bytes([a, b, c, d])) / 1e3),
            _ => self.number("nvmlDeviceGetPowerUsage").map(|mw| f64::from(mw) / 1e3),
        }
    }

    /// Reads now; takes some tens of microseconds.
    pub fn read(&self) -> NvmlReading {
        let mut bits: u64 = 0;
        type Get = unsafe extern "C" fn(Device, *mut u64) -> c_int;
        for name in ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"] {
            // SAFETY: a live device and a valid out-pointer. The second name is the function's older one.
            if self.ok(name, |f: Get| unsafe { f(self.device, &mut bits) }).is_some() {
                break;
            }
        }
        NvmlReading {
            clock_mhz: self.number_of("nvmlDeviceGetClockInfo", CLOCK_SM),
            power_w: self.power_w(),
            temperature_c: self.number_of("nvmlDeviceGetTemperature", TEMPERATURE_GPU),
            throttled: REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| *word).collect(),
        }
    }
}
