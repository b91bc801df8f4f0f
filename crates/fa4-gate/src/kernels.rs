//! What is judged: every variant of every kernel, or a candidate in their place, compiled and loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fa4_host::cuda::{CudaModule, Gpu};
use fa4_host::emu::EmuModule;
use fa4_host::error::DeviceError;
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Builder, CUDA_FOLDER, Image, Job};
use fa4_kernels::kernel_info::{self, KernelInfo};
use fa4_kernels::manifest::{ROWS, Row};

use crate::coverage;
use crate::error::GateError;
use crate::pool;

/// A compiled variant.
pub struct Kernel<M> {
    /// The variant that it is, or stands in for.
    pub row: &'static Row,
    /// Name in tables: the entry function, a candidate's behind its namespace.
    pub name: String,
    /// Loaded code.
    pub module: M,
    /// The tables that the kernel exports.
    pub info: KernelInfo,
    /// Its coverage markers.
    pub markers: Vec<String>,
    /// Text, for evidence.
    pub ptx: String,
}

/// A stranger's file to judge in place of ours.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The `.cu` file.
    pub path: &'a Path,
    /// Its name in tables.
    pub namespace: &'a str,
}

/// The folder that holds `crates/` and `sets/`.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The job of a kernel's source: all variants that one compilation gives, for one architecture.
pub fn job(root: &Path, row: &Row, arch: Arch) -> Job {
    let variants = ROWS.iter().filter(|r| r.source == row.source && r.defines == row.defines);
    Job {
        name: row.defines.iter().fold(row.kernel.to_string(), |name, (_, value)| format!("{name}/{value}")),
        source: root.join(CUDA_FOLDER).join(row.source),
        defines: row.defines.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        entries: variants.map(|r| r.entry.to_string()).collect(),
        archs: vec![arch],
    }
}

/// Compiles and loads every variant that is `wanted`, or those of them that a candidate defines, for the emulator.
pub fn compile(
    builder: &Builder,
    root: &Path,
    candidate: Option<Candidate<'_>>,
    wanted: impl Fn(&Row) -> bool,
) -> Result<Vec<Kernel<EmuModule>>, GateError> {
    // The emulator takes PTX of any architecture; a kernel's first is the one that it is written for.
    compile_for(
        builder,
        root,
        candidate,
        wanted,
        |row| row.archs[0],
        |job, image, _| EmuModule::parse(&job.name, &image.ptx),
    )
}

/// The same for a GPU. Markers are counted by the emulator only, so that these kernels have none.
pub fn compile_for_gpu(
    builder: &Builder,
    root: &Path,
    candidate: Option<Candidate<'_>>,
    wanted: impl Fn(&Row) -> bool,
    (arch, gpu): &(Arch, Arc<Gpu>),
) -> Result<Vec<Kernel<CudaModule>>, GateError> {
    let load = |_: &Job, image: &Image, info: &KernelInfo| {
        let entries: Vec<&str> = image.usage.keys().map(String::as_str).collect();
        CudaModule::load(gpu, &[(image.arch, &image.cubin)], &entries, Some(info))
    };
    let mut kernels = compile_for(builder, root, candidate, wanted, |_| *arch, load)?;
    kernels.iter_mut().for_each(|kernel| kernel.markers.clear());
    Ok(kernels)
}

/// Whether a candidate may stand for `row`: candidates are written for the architecture of `fwd_sm100`, whose entries they
/// define.
pub fn takes_candidates(row: &Row) -> bool {
    row.archs.contains(&Arch::Sm100a)
}

fn compile_for<M: Clone>(
    builder: &Builder,
    root: &Path,
    candidate: Option<Candidate<'_>>,
    wanted: impl Fn(&Row) -> bool,
    arch: impl Fn(&Row) -> Arch,
    load: impl Fn(&Job, &Image, &KernelInfo) -> Result<M, DeviceError>,
) -> Result<Vec<Kernel<M>>, GateError> {
    let takes_part = |row: &&Row| wanted(row) && (candidate.is_none() || takes_candidates(row));
    let rows: Vec<&'static Row> = ROWS.iter().filter(takes_part).collect();
    let job_of = |row: &Row| match candidate {
        None => job(root, row, arch(row)),
        Some(candidate) => {
            let job = job(root, row, arch(row)).for_candidate(candidate.path, candidate.namespace);
            Job { entries: Vec::new(), ..job }
        }
    };
    let mut jobs: Vec<Job> = Vec::new();
    for row in &rows {
        let job = job_of(row);
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    let built = pool::run(&jobs, pool::cores(), &AtomicBool::new(false), |job| builder.build(job));
    let mut modules: Vec<(Job, Image, KernelInfo, M)> = Vec::new();
    let mut defined: Vec<String> = Vec::new();
    for (job, artifact) in jobs.into_iter().zip(built) {
        let artifact = artifact.expect("nothing stops this pool")?;
        let image = artifact.images.into_iter().next().expect("the job names one architecture");
        defined.extend(image.usage.keys().cloned());
        if !rows.iter().any(|row| image.usage.contains_key(row.entry)) {
            continue;
        }
        let info = kernel_info::parse(&image.ptx)
            .map_err(|source| GateError::Tables { kernel: job.name.clone(), source })?;
        let module = load(&job, &image, &info)
            .map_err(|e| GateError::Load { kernel: job.name.clone(), what: e.to_string() })?;
        modules.push((job, image, info, module));
    }
    let mut kernels: Vec<Kernel<M>> = Vec::new();
    for row in &rows {
        let wanted = job_of(row);
        let Some((_, image, info, module)) = modules.iter().find(|(job, ..)| *job == wanted) else {
            continue;
        };
        if !image.usage.contains_key(row.entry) {
            continue;
        }
        kernels.push(Kernel {
            row,
            name: candidate.map_or(row.entry.to_string(), |c| format!("{}/{}", c.namespace, row.entry)),
            module: module.clone(),
            info: info.clone(),
            markers: coverage::markers(&image.ptx, row.entry),
            ptx: image.ptx.clone(),
        });
    }
    match candidate {
        Some(candidate) if kernels.is_empty() && !rows.is_empty() => Err(GateError::NoEntry {
            path: candidate.path.to_path_buf(),
            defined: defined.join(", "),
            wanted: rows.iter().map(|r| r.entry).collect::<Vec<_>>().join(", "),
        }),
        _ => Ok(kernels),
    }
}

/// Slots of a kernel's K/V ring.
pub fn ring_depth(info: &KernelInfo) -> u64 {
    info.smem.iter().find(|region| region.name == "KV").map_or(1, |region| u64::from(region.stages))
}
