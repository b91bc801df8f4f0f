//! The emulator as a device.

use std::path::PathBuf;
use std::sync::Arc;

use fa4_kernels::kernel_info::{KernelInfo, MBARRIER_BYTES, role_of_stage};
use fa4_spec::problem::DType;
use ptx_emu::fault::Fault;
use ptx_emu::launch::{Annotations, BarrierName, Launch, Options, RegionName, Report, RoleName, Verdict};
use ptx_emu::machine::global::{GlobalMemory, OutOfBounds};
use ptx_emu::render::Context;
use ptx_emu::syntax::ast::Module;
use ptx_emu::tma::encode::{EncodeArgs, encode};
use ptx_emu::tma::tensor_map::ElemType;

use crate::device::{Device, KernelLaunch};
use crate::error::DeviceError;
use crate::params::TENSOR_MAP_BYTES;
use crate::tensor_map::{Fill, Swizzle, TensorMapArgs};

/// Parsed PTX; cheap to clone and to share between devices on several threads.
#[derive(Clone)]
pub struct EmuModule(Arc<Module>);

impl EmuModule {
    /// Parses PTX text; `name` is for messages.
    pub fn parse(name: &str, ptx: &str) -> Result<Self, DeviceError> {
        match ptx_emu::syntax::parse(name, ptx) {
            Ok(module) => Ok(EmuModule(Arc::new(module))),
            Err(error) => Err(DeviceError::Load(error.to_string())),
        }
    }
}

impl EmuModule {
    /// A module that exists as a tree, such as a mutant's.
    pub fn of(module: Module) -> Self {
        EmuModule(Arc::new(module))
    }

    /// The resolved tree.
    pub fn tree(&self) -> &Module {
        &self.0
    }
}

/// One emulated device: its memory and how it runs kernels.
pub struct EmuDevice {
    memory: GlobalMemory,
    options: Options,
    report: Option<Report>,
    sources: Option<PathBuf>,
}

impl EmuDevice {
    /// A device with empty memory.
    pub fn new(options: Options) -> Self {
        EmuDevice { memory: GlobalMemory::new(), options, report: None, sources: None }
    }

    /// Quotes source lines in reports from the files below `folder`, which `.loc` paths are relative to.
    pub fn with_sources(self, folder: PathBuf) -> Self {
        EmuDevice { sources: Some(folder), ..self }
    }

    fn render(&self, fault: &Fault, launch: &KernelLaunch<'_, EmuModule>) -> String {
        let read = |file: &str, line: u32| {
            let text = std::fs::read_to_string(self.sources.as_ref()?.join(file)).ok()?;
            text.lines().nth((line as usize).checked_sub(1)?).map(str::to_string)
        };
        let context = Context { source_line: Some(&read), ..Context::of(&launch.module.0, launch.entry) };
        context.fault(fault).trim_end().to_string()
    }

    /// What the emulator said about the last launch.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }
}

fn memory_error(error: OutOfBounds) -> DeviceError {
    DeviceError::Memory(error.to_string())
}

impl Device for EmuDevice {
    type Module = EmuModule;

    fn alloc(&mut self, name: &str, bytes: u64) -> Result<u64, DeviceError> {
        Ok(self.memory.alloc(name, bytes, 256))
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(address, data).map_err(memory_error)
    }

    fn read(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, DeviceError> {
        if let Some(at) = self.memory.first_undefined(address, bytes).map_err(memory_error)? {
            let place =
                self.memory.find(at).map_or(String::new(), |a| format!(" ({}+{:#x})", a.name, at - a.base));
            return Err(DeviceError::Undefined(format!("nobody wrote the byte at {at:#x}{place}")));
        }
        self.memory.read(address, bytes as usize).map_err(memory_error)
    }

    fn encode_tensor_map(&mut self, args: &TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
        let elem = match args.dtype {
            DType::Bf16 => ElemType::BF16,
            DType::F16 => ElemType::F16,
            DType::E4m3 => ElemType::U8,
        };
        let mut encoded =
            EncodeArgs::new(elem, args.address, &args.dims, &args.strides_bytes, &args.box_dims);
        encoded.swizzle = match args.swizzle {
            Swizzle::None => 0,
            Swizzle::B128 => 3,
        };
        encoded.oob_fill = u32::from(args.fill == Fill::Nan);
        encode(&encoded).map_err(|e| DeviceError::TensorMap(e.to_string()))
    }

    /// So few that persistent kernels go through their loop over tiles in small problems, too.
    fn sms(&self) -> Option<u32> {
        Some(3)
    }

    fn launch(&mut self, launch: &KernelLaunch<'_, EmuModule>) -> Result<(), DeviceError> {
        let report = ptx_emu::run(
            &Launch {
                module: &launch.module.0,
                entry: launch.entry,
                grid: launch.grid,
                block: launch.block,
                cluster: launch.cluster,
                dynamic_smem: launch.info.smem_bytes(),
                params: launch.params.clone(),
                outputs: launch.outputs.clone(),
                annotations: annotations(launch.info),
            },
            &mut self.memory,
            &self.options,
        );
        let result = match &report.verdict {
            Verdict::Clean => Ok(()),
            Verdict::Fault(fault) => Err(DeviceError::Fault {
                code: fault.code.as_str().to_string(),
                rendering: self.render(fault, launch),
            }),
            Verdict::Unsupported { what, opcode, line } => {
                Err(DeviceError::Unsupported(format!("{what} (`{opcode}`, PTX line {line})")))
            }
            Verdict::StepLimit => {
                Err(DeviceError::Timeout(format!("{} warp instructions", self.options.step_limit)))
            }
        };
        self.report = Some(report);
        result
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The roles that a barrier's list means for one of its stages: `softmax#` the one of the stage's number, `attend` every
/// `attend0`, `attend1`, … where no role is called that.
fn roles_named(info: &KernelInfo, list: &[String], stage: u32) -> Vec<String> {
    let expand = |word: &String| {
        let name = role_of_stage(word, stage);
        let of_family = |role: &str| {
            let number = role.strip_prefix(name.as_str()).unwrap_or("");
            !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
        };
        let known = info.roles.iter().any(|role| role.name == name);
        let family = info.roles.iter().map(|role| &role.name).filter(|role| !known && of_family(role));
        let family: Vec<String> = family.cloned().collect();
        if family.is_empty() { vec![name] } else { family }
    };
    list.iter().flat_map(expand).collect()
}

/// The kernel's own tables as the emulator's names.
fn annotations(info: &KernelInfo) -> Annotations {
    let roles = info.roles.iter().map(|r| RoleName {
        name: r.name.clone(),
        first_warp: r.first_warp,
        warps: r.warps,
    });
    let shared = info.smem.iter().flat_map(|region| {
        (0..region.stages).map(|stage| RegionName {
            name: stage_name(&region.name, region.stages, stage),
            start: region.offset + stage * region.bytes,
            len: region.bytes,
        })
    });
    let tmem = info.tmem.iter().map(|t| RegionName { name: t.name.clone(), start: t.col, len: t.cols });
    // One entry per stage, since `softmax#` is another role in each of them.
    let barriers = info.barriers.iter().flat_map(|barrier| {
        (0..barrier.stages).map(|stage| BarrierName {
            name: stage_name(&barrier.name, barrier.stages, stage),
            offset: barrier.offset + stage * MBARRIER_BYTES,
            stages: 1,
            arrivers: roles_named(info, &barrier.arriver, stage),
            waiters: roles_named(info, &barrier.waiter, stage),
        })
    });
    Annotations {
        roles: roles.collect(),
        barriers: barriers.collect(),
        shared: shared.collect(),
        tmem: tmem.collect(),
    }
}

fn stage_name(name: &str, stages: u32, stage: u32) -> String {
    if stages == 1 { name.to_string() } else { format!("{name}[{stage}]") }
}
