//! Instruction probes: tiny kernels around one instruction each, on a GPU and in the emulator, compared word by word.
//!
//! The probes and what an H200 answered lie with the emulator (`crates/ptx-emu/tests/silicon/README_probes.md`). Where
//! there is a GPU, the emulator is held against the GPU at hand; elsewhere against the recorded words. Either way a word
//! that differs is the emulator's fault, not a kernel's.
//!
//! [`record`] reads probes, inputs and recorded words; [`wrap`] makes CUDA of a probe's PTX, since the pinned compiler
//! takes nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fa4_host::cuda::{CudaDevice, CudaModule, Gpu};
use fa4_host::device::{Device, KernelLaunch};
use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_host::error::DeviceError;
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Builder, Job};
use fa4_kernels::kernel_info::KernelInfo;
use fa4_kernels::source::Source;
use ptx_emu::launch::{Options, Schedule};
use regex::Regex;

use crate::error::GateError;
use crate::evidence::Evidence;
use crate::pool;
use crate::rows::{Row, Status};

pub mod record;
pub mod wrap;

use record::Record;

/// In front of a probe's name in tables and filters.
pub const NAMESPACE: &str = "probe";
/// Folder of the probes below the workspace root.
const FOLDER: &str = "crates/ptx-emu/tests/silicon";
/// Bytes that a probe does not write keep this value.
const UNWRITTEN: u8 = 0xa5;
/// A probe takes microseconds; the first one pays for loading its module.
const LIMIT: Duration = Duration::from_secs(10);
/// Warp instructions after which the emulator gives up.
const STEP_LIMIT: u64 = 10_000_000;

/// The probes that a filter leaves, with the PTX files that hold them.
pub struct Section {
    records: Vec<Record>,
    /// File → PTX text.
    files: BTreeMap<String, String>,
}

impl Section {
    /// Reads the committed probes below the workspace `root`; a filter is matched against `probe/NAME`.
    ///
    /// # Errors
    /// [`GateError::File`] and [`GateError::Probe`] for a file that cannot be read or is no record.
    pub fn open(root: &Path, filter: Option<&Regex>) -> Result<Self, GateError> {
        let folder = root.join(FOLDER);
        let mut records = record::read(&folder.join("probes_sm90.jsonl"))?;
        records.retain(|r| filter.is_none_or(|f| f.is_match(&format!("{NAMESPACE}/{}", r.probe))));
        let mut files = BTreeMap::new();
        for record in &records {
            if !files.contains_key(&record.file) {
                let path = folder.join("probes").join(&record.file);
                let text =
                    std::fs::read_to_string(&path).map_err(|source| GateError::File { path, source })?;
                files.insert(record.file.clone(), text);
            }
        }
        Ok(Section { records, files })
    }

    /// Probes that are run.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is run.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Compiles the probes for a GPU, one module per file.
    ///
    /// # Errors
    /// [`GateError`]: a probe that does not compile, or a cubin that the GPU does not load.
    pub fn compile(
        &self,
        builder: &Builder,
        gpu: &(Arch, Arc<Gpu>),
    ) -> Result<BTreeMap<String, CudaModule>, GateError> {
        let files: Vec<(&String, &String)> = self.files.iter().collect();
        let built = pool::run(&files, pool::cores(), &AtomicBool::new(false), |(file, ptx)| {
            let entries: Vec<&str> =
                self.records.iter().filter(|r| r.file == **file).map(|r| r.probe.as_str()).collect();
            load(builder, gpu, file, ptx, &entries)
        });
        let built = built.into_iter().map(|result| result.expect("nothing stops this pool"));
        files.iter().zip(built).map(|((file, _), module)| Ok(((*file).clone(), module?))).collect()
    }

    /// One row per probe. With `gpu`, the emulator is compared with what the GPU answers, else with the record.
    ///
    /// # Errors
    /// [`GateError::Load`] where the emulator cannot read a probe's PTX.
    pub fn judge(
        &self,
        gpu: Option<(&Arc<Gpu>, &BTreeMap<String, CudaModule>)>,
        stop: &AtomicBool,
    ) -> Result<(Vec<Row>, bool), GateError> {
        let mut modules = BTreeMap::new();
        for (file, text) in &self.files {
            let module = EmuModule::parse(file, text).map_err(|e| GateError::Load {
                kernel: format!("{NAMESPACE}/{file}"),
                what: e.to_string(),
            })?;
            modules.insert(file, module);
        }
        let rows = pool::run(&self.records, pool::cores(), stop, |record| {
            let start = Instant::now();
            let want = match gpu {
                Some((gpu, code)) => on_gpu(record, gpu, &code[&record.file]),
                None => recorded(record),
            };
            let emulated: Vec<Answer> = Schedule::ALL
                .into_iter()
                .map(|schedule| in_emulator(record, &modules[&record.file], schedule))
                .collect();
            let (status, reason) = compare(&want, &emulated, gpu.is_some().then(|| recorded(record)));
            Row {
                kernel: format!("{NAMESPACE}/{}", record.probe),
                status,
                device: Some(if gpu.is_some() { "both" } else { "emu" }),
                evidence: Some(Evidence::Silicon.name()),
                reason,
                seconds: start.elapsed().as_secs_f64(),
                ..Row::unsupported(&record.file, record.seed, String::new())
            }
        });
        let interrupted = rows.iter().any(Option::is_none);
        Ok((rows.into_iter().flatten().collect(), interrupted))
    }
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It ended; the output's bytes.
    Bytes(Vec<u8>),
    /// It does not end: a deadlock.
    Hangs,
    /// The emulator cannot run it.
    Unsupported(String),
    /// Anything else.
    Failed(String),
}

fn recorded(record: &Record) -> Answer {
    record.out.clone().map_or(Answer::Hangs, Answer::Bytes)
}

/// A probe's status, from what the device answered and what the emulator did under each schedule. `record` is what another
/// GPU answered once, where the device is one at hand.
fn compare(device: &Answer, emulated: &[Answer], record: Option<Answer>) -> (Status, Option<String>) {
    let name = if record.is_some() { "this GPU" } else { "the H200" };
    let says = if record.is_some() { "this GPU says" } else { "the H200 says" };
    if let Answer::Failed(what) | Answer::Unsupported(what) = device {
        return (Status::Fault, Some(format!("on {name}: {what}")));
    }
    for (answer, schedule) in emulated.iter().zip(Schedule::ALL) {
        let wrong = match (answer, device) {
            (Answer::Unsupported(what), _) => return (Status::Unsupported, Some(what.clone())),
            (Answer::Bytes(got), Answer::Bytes(want)) => differences(got, want, says),
            (Answer::Hangs, Answer::Hangs) => None,
            (Answer::Hangs, _) => Some(format!("deadlock; on {name} the probe ends")),
            (Answer::Failed(what), _) => Some(what.clone()),
            (Answer::Bytes(_), _) => Some(format!("ends; on {name} the probe does not")),
        };
        if let Some(what) = wrong {
            return (Status::Fail, Some(format!("emulator fault under {}: {what}", schedule.as_str())));
        }
    }
    // Two GPUs that disagree, both matched by nothing but the one at hand: worth a line.
    match record {
        Some(record) if record != *device => {
            (Status::Pass, Some("the recorded H200 answered otherwise than this GPU".to_string()))
        }
        _ => (Status::Pass, None),
    }
}

/// How many words differ, and the first of them.
fn differences(got: &[u8], want: &[u8], says: &str) -> Option<String> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
    let pairs = || got.chunks(4).zip(want.chunks(4)).enumerate().filter(|(_, (g, w))| g != w);
    let (at, (g, w)) = pairs().next()?;
    Some(format!(
        "{} of {} words differ, first word {at}: {:#010x}, {says} {:#010x}",
        pairs().count(),
        want.len() / 4,
        word(g),
        word(w)
    ))
}

fn in_emulator(record: &Record, module: &EmuModule, schedule: Schedule) -> Answer {
    let options = Options { schedule, step_limit: STEP_LIMIT, ..Options::default() };
    match run(record, module, &mut EmuDevice::new(options)) {
        Ok(bytes) => Answer::Bytes(bytes),
        Err(DeviceError::Unsupported(what)) => Answer::Unsupported(what),
        Err(DeviceError::Fault { code, .. }) if code == "deadlock" => Answer::Hangs,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn on_gpu(record: &Record, gpu: &Arc<Gpu>, module: &CudaModule) -> Answer {
    // A kernel that hangs costs the process its GPU: what hung when recorded is taken at its word.
    if record.out.is_none() {
        return Answer::Hangs;
    }
    let answer = CudaDevice::on(gpu)
        .and_then(|device| run(record, module, &mut device.with_limit(LIMIT)))
        .map_err(|error| error.to_string());
    answer.map_or_else(Answer::Failed, Answer::Bytes)
}

/// Runs a probe and reads its output back.
fn run<D: Device>(record: &Record, module: &D::Module, device: &mut D) -> Result<Vec<u8>, DeviceError> {
    let inputs: Vec<u8> = record.inputs().into_iter().flat_map(u32::to_le_bytes).collect();
    let bytes = 4 * record.out_words;
    let input = device.alloc("in", inputs.len() as u64)?;
    device.write(input, &inputs)?;
    let output = device.alloc("out", bytes)?;
    device.write(output, &vec![UNWRITTEN; bytes as usize])?;
    device.launch(&KernelLaunch {
        module,
        entry: &record.probe,
        info: &NO_TABLES,
        grid: [record.grid, 1, 1],
        block: [record.block, 1, 1],
        cluster: [record.cluster, 1, 1],
        params: record.params(input, output).map_err(DeviceError::TensorMap)?,
        outputs: vec![(output, bytes)],
    })?;
    device.sync()?;
    device.read(output, bytes)
}

/// Probes export no tables and use static shared memory only.
const NO_TABLES: KernelInfo = KernelInfo {
    roles: Vec::new(),
    smem: Vec::new(),
    tmem: Vec::new(),
    barriers: Vec::new(),
    params: Vec::new(),
};

fn load(
    builder: &Builder,
    (arch, gpu): &(Arch, Arc<Gpu>),
    file: &str,
    ptx: &str,
    entries: &[&str],
) -> Result<CudaModule, GateError> {
    let image = compile(builder, *arch, file, ptx, entries)?;
    CudaModule::load(gpu, &[(*arch, &image)], entries, None)
        .map_err(|e| GateError::Load { kernel: format!("{NAMESPACE}/{file}"), what: e.to_string() })
}

/// The cubin of a file of probes.
fn compile(
    builder: &Builder,
    arch: Arch,
    file: &str,
    ptx: &str,
    entries: &[&str],
) -> Result<Vec<u8>, GateError> {
    let name = format!("{NAMESPACE}/{file}");
    let text = wrap::cuda(ptx).map_err(|what| GateError::Probe { file: file.to_string(), what })?;
    let source = Source { name: format!("probes/{file}.cu"), text, headers: Vec::new() };
    let job = Job {
        name,
        source: source.name.clone().into(),
        defines: Vec::new(),
        entries: entries.iter().map(|entry| entry.to_string()).collect(),
        archs: vec![arch],
    };
    let artifact = builder.build_source(&job, &source)?;
    Ok(artifact.images.into_iter().next().expect("the job names one architecture").cubin)
}

/// Compiles every probe into the build cache without running anything: for a machine with a GPU and no compiler.
///
/// # Errors
/// [`GateError`]: a probe that does not compile.
pub fn prebuild(root: &Path, builder: &Builder, arch: Arch) -> Result<usize, GateError> {
    let section = Section::open(root, None)?;
    for (file, ptx) in &section.files {
        let entries: Vec<&str> =
            section.records.iter().filter(|r| r.file == *file).map(|r| r.probe.as_str()).collect();
        compile(builder, arch, file, ptx, &entries)?;
    }
    Ok(section.len())
}

#[cfg(test)]
mod tests;
