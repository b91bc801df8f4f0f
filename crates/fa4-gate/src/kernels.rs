//! What is judged: every variant of every kernel, or a candidate in their place, compiled and loaded.

use std::path::{Path, PathBuf};

use fa4_host::emu::EmuModule;
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Builder, CUDA_FOLDER, Image, Job};
use fa4_kernels::kernel_info::{self, KernelInfo};
use fa4_kernels::manifest::{ROWS, Row};

use crate::coverage;
use crate::error::GateError;

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

/// The job of a kernel's source: all its variants at once, for the architecture that the emulator judges.
pub fn job(root: &Path, row: &Row) -> Job {
    let variants = ROWS.iter().filter(|r| r.source == row.source && r.defines == row.defines);
    Job {
        name: row.defines.iter().fold(row.kernel.to_string(), |name, (_, value)| format!("{name}/{value}")),
        source: root.join(CUDA_FOLDER).join(row.source),
        defines: row.defines.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        entries: variants.map(|r| r.entry.to_string()).collect(),
        archs: vec![Arch::Sm100a],
    }
}

/// Compiles and loads every variant that is `wanted`, or those of them that a candidate defines.
pub fn compile(
    builder: &Builder,
    root: &Path,
    candidate: Option<Candidate<'_>>,
    wanted: impl Fn(&Row) -> bool,
) -> Result<Vec<Kernel<EmuModule>>, GateError> {
    let mut kernels: Vec<Kernel<EmuModule>> = Vec::new();
    let mut images: Vec<(Job, Image, EmuModule)> = Vec::new();
    for row in ROWS.iter().filter(|row| row.archs.contains(&Arch::Sm100a) && wanted(row)) {
        let mut job = job(root, row);
        if let Some(candidate) = candidate {
            job = job.for_candidate(candidate.path, candidate.namespace);
            job.entries.clear();
        }
        if !images.iter().any(|(known, ..)| *known == job) {
            let artifact = builder.build(&job)?;
            let image = artifact.images.into_iter().next().expect("the job names one architecture");
            let module = EmuModule::parse(&job.name, &image.ptx)
                .map_err(|e| GateError::Load { kernel: job.name.clone(), what: e.to_string() })?;
            images.push((job.clone(), image, module));
        }
        let Some((job, image, module)) = images.iter().find(|(known, ..)| *known == job) else { continue };
        if !image.usage.contains_key(row.entry) {
            continue;
        }
        let info = kernel_info::parse(&image.ptx)
            .map_err(|source| GateError::Tables { kernel: job.name.clone(), source })?;
        kernels.push(Kernel {
            row,
            name: candidate.map_or(row.entry.to_string(), |c| format!("{}/{}", c.namespace, row.entry)),
            module: module.clone(),
            info,
            markers: coverage::markers(&image.ptx, row.entry),
            ptx: image.ptx.clone(),
        });
    }
    match candidate {
        Some(candidate) if kernels.is_empty() && !images.is_empty() => Err(GateError::NoEntry {
            path: candidate.path.to_path_buf(),
            defined: images
                .iter()
                .flat_map(|(_, i, _)| i.usage.keys().cloned())
                .collect::<Vec<_>>()
                .join(", "),
            wanted: ROWS.iter().map(|r| r.entry).collect::<Vec<_>>().join(", "),
        }),
        _ => Ok(kernels),
    }
}

/// Slots of a kernel's K/V ring.
pub fn ring_depth(info: &KernelInfo) -> u64 {
    info.smem.iter().find(|region| region.name == "KV").map_or(1, |region| u64::from(region.stages))
}
