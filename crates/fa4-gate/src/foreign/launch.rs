//! The machine a case runs on. Only this module knows the emulator's interface.

use ptx_emu::{GlobalMemory, Launch, Module, Options, Report, Site, Verdict};

use super::params::{self, Param};

/// Why a launch gave no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The machine found the kernel, or itself, at fault.
    #[error("{0}")]
    Fault(String),
    /// The kernel needs something that the machine does not do.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The step limit was reached.
    #[error("timeout: {0}")]
    Timeout(String),
}

/// One kernel launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchSpec<'a> {
    /// What to call the kernel in reports.
    pub name: &'a str,
    /// PTX text.
    pub ptx: &'a str,
    /// Name of the `.entry`.
    pub entry: &'a str,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Parameters in order.
    pub params: &'a [Param],
    /// Ranges (address, bytes) that the kernel promises to write.
    pub outputs: &'a [(u64, u64)],
}

/// Memory and a launch: what judging a kernel needs of a machine.
pub trait Device {
    /// Allocates `bytes` bytes, aligned to 256 at least, whose contents are undefined. `name` is for reports.
    ///
    /// # Errors
    /// Where the machine is out of memory.
    fn alloc(&mut self, name: &str, bytes: usize) -> Result<u64, Fault>;

    /// Copies `data` to `address`.
    ///
    /// # Errors
    /// Where the range is not allocated.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault>;

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// Whatever the machine reports instead of finishing.
    fn launch(&mut self, launch: &LaunchSpec<'_>) -> Result<(), Fault>;

    /// Reads bytes that the kernel must have written. `name` is for reports.
    ///
    /// # Errors
    /// Where a byte is undefined or not allocated.
    fn read(&mut self, name: &str, address: u64, bytes: usize) -> Result<Vec<u8>, Fault>;
}

/// A finding in full: code, sentence, both places with their PTX lines, what is missing, notes.
fn describe(fault: &ptx_emu::Fault, module: &Module, entry: &str) -> String {
    let line = |pc: u32| {
        let function = module.functions.iter().find(|f| f.name == entry);
        function.and_then(|f| f.body.get(pc as usize)).map_or(0, |instruction| instruction.span.line)
    };
    let place = |site: &Site| {
        let Site { cta, warp, lanes, pc, step, what, .. } = site;
        format!("{what}: CTA {cta:?} warp {warp} lanes {lanes:#010x}, PTX line {}, step {step}", line(*pc))
    };
    let parts = [
        fault.site.as_ref().map(|site| format!("at {}", place(site))),
        fault.earlier.as_ref().map(|site| format!("earlier {}", place(site))),
        fault.missing.as_ref().map(|missing| format!("missing: {missing}")),
        fault.help.as_ref().map(|help| format!("help: {help}")),
    ];
    let lines = [format!("{}: {}", fault.code.as_str(), fault.message)];
    lines
        .into_iter()
        .chain(parts.into_iter().flatten())
        .chain(fault.notes.iter().cloned())
        .collect::<Vec<_>>()
        .join("\n  ")
}

/// The emulator as a [`Device`].
pub struct Emulator {
    memory: GlobalMemory,
    options: Options,
    report: Option<Report>,
}

impl Emulator {
    /// An emulator with empty memory that will run under `options`.
    pub fn new(options: Options) -> Self {
        Self { memory: GlobalMemory::new(), options, report: None }
    }

    /// What the last launch reported: counters, strict findings, verdict.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// [`Device::launch`] of PTX that is parsed already.
    ///
    /// # Errors
    /// Whatever the machine reports instead of finishing.
    pub fn launch_parsed(&mut self, module: &Module, launch: &LaunchSpec<'_>) -> Result<(), Fault> {
        let report = ptx_emu::run(
            &Launch {
                module,
                entry: launch.entry,
                grid: launch.grid,
                block: launch.block,
                cluster: launch.cluster,
                dynamic_smem: launch.shared_bytes,
                params: params::lay_out(launch.params),
                outputs: launch.outputs.to_vec(),
                annotations: Default::default(),
            },
            &mut self.memory,
            &self.options,
        );
        let outcome = match &report.verdict {
            Verdict::Clean => Ok(()),
            Verdict::Fault(fault) => Err(Fault::Fault(describe(fault, module, launch.entry))),
            Verdict::Unsupported { what, opcode, line } => {
                Err(Fault::Unsupported(format!("{what} (`{opcode}`, line {line} of {}.ptx)", launch.name)))
            }
            Verdict::StepLimit => {
                Err(Fault::Timeout(format!("no end after {} warp instructions", self.options.step_limit)))
            }
        };
        self.report = Some(report);
        outcome
    }
}

impl Device for Emulator {
    fn alloc(&mut self, name: &str, bytes: usize) -> Result<u64, Fault> {
        Ok(self.memory.alloc(name, bytes as u64, 256))
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault> {
        self.memory.write(address, data).map_err(|e| Fault::Fault(e.to_string()))
    }

    fn launch(&mut self, launch: &LaunchSpec<'_>) -> Result<(), Fault> {
        let module =
            ptx_emu::syntax::parse(launch.name, launch.ptx).map_err(|e| Fault::Unsupported(e.to_string()))?;
        self.launch_parsed(&module, launch)
    }

    fn read(&mut self, name: &str, address: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
        let fault = |e: &dyn std::fmt::Display| Fault::Fault(format!("{name}: {e}"));
        match self.memory.first_undefined(address, bytes as u64).map_err(|e| fault(&e))? {
            Some(at) => Err(fault(&format!("byte {} is undefined after the kernel", at - address))),
            None => self.memory.read(address, bytes).map_err(|e| fault(&e)),
        }
    }
}
