//! Which kernel runs where, and a GPU as a device of the gate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fa4_host::cuda::{CudaDevice, CudaModule, Gpu, gpus};
use fa4_host::device::{Device, KernelLaunch};
use fa4_host::error::DeviceError;
use fa4_host::params::TENSOR_MAP_BYTES;
use fa4_host::tensor_map::TensorMapArgs;
use fa4_kernels::arch::Arch;
use fa4_kernels::manifest::{ROWS, Row};

use crate::cli::DeviceKind;
use crate::error::GateError;
use crate::judge::GateDevice;

/// A kernel that runs longer than this hangs: the largest case here takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);
/// Cases that share a GPU at a time: preparing data keeps the cores busy, and the largest buffers still fit together.
pub const THREADS: usize = 8;
/// Runs of each case. The GPU schedules as it likes; other bits in another run are a race.
pub const RUNS: usize = 3;

/// Where kernels run.
pub struct Places {
    kind: DeviceKind,
    gpus: Vec<(Arch, Arc<Gpu>)>,
}

impl Places {
    /// Opens the GPUs that `kind` asks for: the first of each architecture that a kernel is compiled for.
    ///
    /// # Errors
    /// [`GateError::NoDevice`] where a GPU is asked for and none can be used.
    pub fn open(kind: DeviceKind) -> Result<Self, GateError> {
        let found = match kind {
            DeviceKind::Emu => Ok(Vec::new()),
            _ => open_each_arch(),
        };
        match (kind, found) {
            (DeviceKind::Emu | DeviceKind::Auto, Err(DeviceError::NoDevice(_))) => {
                Ok(Places { kind, gpus: Vec::new() })
            }
            (DeviceKind::Auto, Err(error)) => {
                eprintln!("note: the GPU is not used: {error}");
                Ok(Places { kind, gpus: Vec::new() })
            }
            (_, Err(source)) => Err(GateError::NoDevice { device: kind.word(), source }),
            (_, Ok(gpus)) => Ok(Places { kind, gpus }),
        }
    }

    /// The GPUs in use, with the architecture of their cubins.
    pub fn gpus(&self) -> &[(Arch, Arc<Gpu>)] {
        &self.gpus
    }

    /// The architecture of the GPU that runs `row`.
    pub fn gpu_arch(&self, row: &Row) -> Option<Arch> {
        self.gpus.iter().map(|(arch, _)| *arch).find(|arch| row.archs.contains(arch))
    }

    /// Whether the emulator runs `row`.
    pub fn on_emulator(&self, row: &Row) -> bool {
        match self.kind {
            DeviceKind::Emu | DeviceKind::Both => true,
            DeviceKind::Cuda => false,
            DeviceKind::Auto => self.gpu_arch(row).is_none(),
        }
    }
}

fn open_each_arch() -> Result<Vec<(Arch, Arc<Gpu>)>, DeviceError> {
    let all = gpus()?;
    let mut open: Vec<(Arch, Arc<Gpu>)> = Vec::new();
    for info in &all {
        let wanted = info.arch().filter(|arch| ROWS.iter().any(|row| row.archs.contains(arch)));
        if let Some(arch) = wanted.filter(|arch| open.iter().all(|(known, _)| known != arch)) {
            open.push((arch, Gpu::open(info.ordinal)?));
        }
    }
    if open.is_empty() {
        let names: Vec<_> = all.iter().map(|info| info.name.as_str()).collect();
        let archs = Arch::ALL.map(Arch::name).join(", ");
        let what = format!("kernels are compiled for {archs}; here is {}", names.join(", "));
        return Err(DeviceError::NoDevice(what));
    }
    Ok(open)
}

/// A GPU for one run. Where it cannot be had (an earlier kernel broke it), every use answers with the reason.
pub struct GpuRun(Result<CudaDevice, DeviceError>);

impl GpuRun {
    /// Memory and a stream of its own on `gpu`.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        GpuRun(CudaDevice::on(gpu).map(|device| device.with_limit(LIMIT)))
    }

    fn device(&mut self) -> Result<&mut CudaDevice, DeviceError> {
        self.0.as_mut().map_err(|error| error.clone())
    }
}

impl Device for GpuRun {
    type Module = CudaModule;

    fn alloc(&mut self, name: &str, bytes: u64) -> Result<u64, DeviceError> {
        self.device()?.alloc(name, bytes)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.device()?.write(address, data)
    }

    fn read(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, DeviceError> {
        self.device()?.read(address, bytes)
    }

    fn encode_tensor_map(&mut self, args: &TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
        self.device()?.encode_tensor_map(args)
    }

    fn sms(&self) -> Option<u32> {
        self.0.as_ref().ok().and_then(Device::sms)
    }

    fn launch(&mut self, launch: &KernelLaunch<'_, CudaModule>) -> Result<(), DeviceError> {
        self.device()?.launch(launch)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.device()?.sync()
    }
}

impl GateDevice for GpuRun {
    fn covers(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn strict_findings(&self) -> Vec<String> {
        Vec::new()
    }

    fn has_schedules(&self) -> bool {
        false
    }
}
