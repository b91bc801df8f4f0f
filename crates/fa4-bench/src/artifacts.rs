//! Where kernels come from: compiled here, or out of a folder that `pack` filled on a machine with a compiler. Such a folder
//! holds `manifest.json` and, per architecture, a cubin and the PTX with its tables for each entry function.

use std::fs;
use std::path::{Path, PathBuf};

use fa4_gate::error::GateError;
use fa4_gate::kernels::job;
use fa4_host::routes::route_among;
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Builder, Job};
use fa4_kernels::kernel_info::{self, KernelInfo};
use fa4_kernels::manifest::{ROWS, Row, kernels};
use fa4_spec::Case;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::env::{Build, Settings, commit};
use crate::error::BenchError;

/// Name of the list in a folder of built kernels.
const MANIFEST: &str = "manifest.json";

/// A compiled entry function.
pub struct Image {
    /// ELF image.
    pub cubin: Vec<u8>,
    /// The tables that it exports.
    pub info: KernelInfo,
    /// SHA-256 of the cubin, the first 16 hex digits.
    pub hash: String,
}

/// What a folder of built kernels says about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    build: Build,
    archs: Vec<Arch>,
}

/// Where kernels come from.
pub enum Artifacts {
    /// Compiled here, or taken from the build cache.
    Compiled {
        /// The compiler.
        builder: Box<Builder>,
        /// The workspace.
        root: PathBuf,
        /// A file in place of ours, and its name.
        candidate: Option<(PathBuf, String)>,
    },
    /// A folder.
    Packed(PathBuf),
}

impl Artifacts {
    /// What the settings name.
    ///
    /// # Errors
    /// No toolchain, or no such folder.
    pub fn open(root: &Path, settings: &Settings) -> Result<Self, BenchError> {
        match &settings.artifacts {
            Some(folder) => {
                manifest(folder)?;
                Ok(Artifacts::Packed(folder.clone()))
            }
            None => Ok(Artifacts::Compiled {
                builder: Box::new(Builder::open(root).map_err(GateError::from)?),
                root: root.to_path_buf(),
                candidate: settings.candidate.clone(),
            }),
        }
    }

    /// The image of `row` for `arch`.
    ///
    /// # Errors
    /// What the compiler says, or what is wrong with the folder.
    pub fn image(&self, row: &Row, arch: Arch) -> Result<Image, BenchError> {
        let (cubin, ptx) = match self {
            Artifacts::Packed(folder) => {
                let file =
                    |extension: &str| folder.join(arch.name()).join(format!("{}.{extension}", row.entry));
                let read = |path: PathBuf| fs::read(&path).map_err(BenchError::file(path));
                let ptx = String::from_utf8(read(file("ptx"))?);
                let ptx =
                    ptx.map_err(|_| BenchError::Artifacts { path: file("ptx"), what: "is not text".into() })?;
                (read(file("cubin"))?, ptx)
            }
            Artifacts::Compiled { builder, root, candidate } => {
                let ours = job(root, row, arch);
                let job = match candidate {
                    None => ours,
                    Some((path, name)) => {
                        Job { entries: vec![row.entry.into()], ..ours.for_candidate(path, name) }
                    }
                };
                let artifact = builder.build(&job).map_err(GateError::from)?;
                let image = artifact.images.into_iter().next().expect("the job names one architecture");
                (image.cubin, image.ptx)
            }
        };
        let info = kernel_info::parse(&ptx)
            .map_err(|source| GateError::Tables { kernel: row.entry.to_string(), source })?;
        let hash = Sha256::digest(&cubin).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Image { cubin, info, hash })
    }
}

/// What the kernels of a run are built from.
///
/// # Errors
/// No toolchain, or no such folder.
pub fn build(root: &Path, settings: &Settings) -> Result<Build, BenchError> {
    if settings.mock.is_some() {
        return Ok(Build { commit: None, compiler: "none (mock)".into() });
    }
    match &settings.artifacts {
        Some(folder) => Ok(manifest(folder)?.build),
        None => {
            let builder = Builder::open(root).map_err(GateError::from)?;
            Ok(Build { commit: None, compiler: compiler(&builder) })
        }
    }
}

fn compiler(builder: &Builder) -> String {
    format!("NVRTC {}", builder.toolchain().version())
}

fn manifest(folder: &Path) -> Result<Manifest, BenchError> {
    let wrong = |what: String| BenchError::Artifacts { path: folder.into(), what };
    let text =
        fs::read_to_string(folder.join(MANIFEST)).map_err(|e| wrong(format!("no {MANIFEST} ({e})")))?;
    serde_json::from_str(&text).map_err(|e| wrong(format!("{MANIFEST} is of another version ({e})")))
}

/// Fills `out` with every kernel of `archs`.
///
/// # Errors
/// What the compiler or the file system says.
pub fn pack(root: &Path, archs: &[Arch], out: &Path) -> Result<usize, BenchError> {
    let builder = Builder::open(root).map_err(GateError::from)?;
    let mut count = 0;
    for &arch in archs {
        let folder = out.join(arch.name());
        fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        for row in ROWS.iter().filter(|row| row.archs.contains(&arch)) {
            let artifact = builder.build(&job(root, row, arch)).map_err(GateError::from)?;
            let image = artifact.images.into_iter().next().expect("the job names one architecture");
            for (extension, bytes) in [("cubin", image.cubin.as_slice()), ("ptx", image.ptx.as_bytes())] {
                let path = folder.join(format!("{}.{extension}", row.entry));
                fs::write(&path, bytes).map_err(BenchError::file(path))?;
            }
            count += 1;
        }
    }
    let build = Build { commit: Some(commit(root)), compiler: compiler(&builder) };
    let manifest = Manifest { build, archs: archs.to_vec() };
    let text = serde_json::to_string_pretty(&manifest).expect("plain data has a JSON form") + "\n";
    let path = out.join(MANIFEST);
    fs::write(&path, text).map_err(BenchError::file(path))?;
    Ok(count)
}

/// Our variants that serve `case` on `arch`, one for each kernel, the routed one first.
///
/// # Errors
/// Why none does.
pub fn variants(case: &Case, arch: Arch) -> Result<Vec<&'static Row>, fa4_host::HostError> {
    let here = |row: &&Row| row.archs.contains(&arch);
    let routed = route_among(&case.problem, ROWS.iter().filter(here))?;
    let others = kernels().into_iter().filter(|kernel| *kernel != routed.kernel);
    let others = others.flat_map(|kernel| {
        route_among(&case.problem, ROWS.iter().filter(here).filter(|r| r.kernel == kernel))
    });
    Ok(std::iter::once(routed).chain(others).collect())
}
