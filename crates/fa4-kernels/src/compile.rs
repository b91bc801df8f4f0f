//! Source → PTX, cubin and `usage.json`, through NVRTC and a cache keyed by content.
//!
//! A spill or any other local memory is an error: on these kernels it costs more than the occupancy it buys, and
//! nothing but the build would notice it on a machine without a GPU.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

use crate::arch::Arch;
use crate::diagnostics;
use crate::manifest::Row;
use crate::nvrtc::{Nvrtc, NvrtcError};
use crate::source::{Source, SourceError};
use crate::toolchain::{Toolchain, ToolchainError, hex};
use crate::usage::{self, Usage};

/// Folder of the CUDA sources below the workspace root; include names start here.
pub const CUDA_FOLDER: &str = "crates/fa4-kernels/cuda";
/// Folder of the cache below the workspace root.
pub const CACHE_FOLDER: &str = "target/fa4-kernels";
/// Changes when the cached files' meaning does.
const CACHE_FORMAT: &str = "fa4-kernels cache 1";

/// One thing to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What messages call it, for example `fwd_sm100/hd128_causal` or `NAMESPACE/…` for a candidate.
    pub name: String,
    /// The `.cu` file.
    pub source: PathBuf,
    /// Macros: name and value.
    pub defines: Vec<(String, String)>,
    /// The entry functions that must come out. Empty: whatever the file defines.
    pub entries: Vec<String>,
    /// Architectures, one image each.
    pub archs: Vec<Arch>,
}

impl Job {
    /// What the manifest's row says, for the sources of the workspace at `root`.
    pub fn of_row(root: &Path, row: &Row) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            name: row.name(),
            source: root.join(CUDA_FOLDER).join(row.source),
            defines: row.defines.iter().map(owned).collect(),
            entries: vec![row.entry.to_owned()],
            archs: row.archs.to_vec(),
        }
    }

    /// The same job for a stranger's file: its tables and messages carry `namespace` in front of the name.
    pub fn for_candidate(&self, source: &Path, namespace: &str) -> Self {
        Self { name: format!("{namespace}/{}", self.name), source: source.to_owned(), ..self.clone() }
    }
}

/// What a [`Job`] compiled to.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The job's name.
    pub name: String,
    /// One per architecture, in the job's order.
    pub images: Vec<Image>,
}

impl Artifact {
    /// The image for `arch`.
    pub fn image(&self, arch: Arch) -> Option<&Image> {
        self.images.iter().find(|image| image.arch == arch)
    }
}

/// PTX and cubin for one architecture.
#[derive(Clone)]
pub struct Image {
    /// The architecture.
    pub arch: Arch,
    /// Cache folder that holds `kernel.ptx`, `kernel.cubin`, `usage.json`, `compiler.log`.
    pub folder: PathBuf,
    /// PTX text with `.loc` lines; file names are relative to the include root.
    pub ptx: String,
    /// ELF image.
    pub cubin: Vec<u8>,
    /// Resources by entry function.
    pub usage: BTreeMap<String, Usage>,
    /// Whether the image came out of the cache.
    pub cached: bool,
}

impl fmt::Debug for Image {
    /// Without the PTX and the cubin: a failing assertion should fit on a screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("arch", &self.arch)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Path of the PTX file.
    pub fn ptx_path(&self) -> PathBuf {
        self.folder.join(PTX)
    }

    /// Path of the cubin file.
    pub fn cubin_path(&self) -> PathBuf {
        self.folder.join(CUBIN)
    }
}

const PTX: &str = "kernel.ptx";
const CUBIN: &str = "kernel.cubin";
const USAGE: &str = "usage.json";
const LOG: &str = "compiler.log";

/// Why a job gave no artifact.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No compiler.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// A source file could not be read.
    #[error("{name}: {source}")]
    Source {
        /// The job.
        name: String,
        /// What is wrong.
        source: SourceError,
    },
    /// The source is wrong.
    #[error("{name} does not compile for {arch}:\n{log}")]
    Compile {
        /// The job.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The compiler's log, `file:line:` in front of each message.
        log: String,
    },
    /// Registers spilled, or an array that could not be kept in registers.
    #[error(
        "{name} for {arch}: function `{function}` uses local memory (stack {} B, spill stores {} B, spill loads {} B \
         per thread, {} registers); raise the role's register budget, or index register arrays by constants only",
        usage.stack_bytes, usage.spill_store_bytes, usage.spill_load_bytes, usage.registers
    )]
    LocalMemory {
        /// The job.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The function.
        function: String,
        /// Its resources.
        usage: Usage,
    },
    /// The PTX keeps an array in local memory, whether or not the assembler found registers for it.
    #[error(
        "{at}: {name} for {arch} keeps an array in local memory: `{instruction}`; index register arrays by constants only"
    )]
    LocalArray {
        /// The job.
        name: String,
        /// The architecture.
        arch: Arch,
        /// `file:line` of the source.
        at: String,
        /// The first PTX instruction that does.
        instruction: String,
    },
    /// An entry function that the table names is not in the image.
    #[error("{name} for {arch}: no entry function `{entry}`; the file defines {defined}")]
    Entry {
        /// The job.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The missing function.
        entry: String,
        /// What there is.
        defined: String,
    },
    /// NVRTC itself failed.
    #[error("{name}: {source}")]
    Nvrtc {
        /// The job.
        name: String,
        /// What NVRTC said.
        source: NvrtcError,
    },
    /// The cache could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl BuildError {
    /// Whether the machine is at fault (exit code 3) rather than the source (exit code 2).
    pub fn is_environment(&self) -> bool {
        match self {
            Self::Toolchain(_) | Self::Cache { .. } => true,
            Self::Nvrtc { source, .. } => {
                matches!(source, NvrtcError::Open { .. } | NvrtcError::Version { .. })
            }
            _ => false,
        }
    }
}

/// Compiles jobs for one workspace. May be shared between threads; processes may share the cache.
pub struct Builder {
    root: PathBuf,
    toolchain: Toolchain,
    // Opened at the first cache miss: the library is 140 MiB and most runs need it not at all.
    nvrtc: OnceLock<Result<Nvrtc, NvrtcError>>,
    // One lock per cache entry, so that threads that want the same image compile it once.
    entries: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl Builder {
    /// A builder with the toolchain that `cargo xtask setup` prepared in the workspace at `root`.
    ///
    /// # Errors
    /// [`ToolchainError`].
    pub fn open(root: &Path) -> Result<Self, ToolchainError> {
        Ok(Self::with_toolchain(root, Toolchain::locate(root)?))
    }

    /// A builder with a given toolchain.
    pub fn with_toolchain(root: &Path, toolchain: Toolchain) -> Self {
        Self { root: root.to_owned(), toolchain, nvrtc: OnceLock::new(), entries: Mutex::default() }
    }

    /// The toolchain in use.
    pub fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// Compiles a row of the manifest, or takes its images from the cache.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_row(&self, row: &Row) -> Result<Artifact, BuildError> {
        self.build(&Job::of_row(&self.root, row))
    }

    /// Compiles `job` for each of its architectures, or takes the images from the cache.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(&self, job: &Job) -> Result<Artifact, BuildError> {
        self.build_source(job, &self.source(job)?)
    }

    /// The job's source with its headers, for [`Builder::build_source`].
    ///
    /// # Errors
    /// [`BuildError::Source`].
    pub fn source(&self, job: &Job) -> Result<Source, BuildError> {
        Source::load(&self.root.join(CUDA_FOLDER), &job.source)
            .map_err(|source| BuildError::Source { name: job.name.clone(), source })
    }

    /// As [`Builder::build`], with a source that may have been edited since it was read.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_source(&self, job: &Job, source: &Source) -> Result<Artifact, BuildError> {
        // One thread per architecture: the compiler takes seconds for a large kernel and uses one core.
        let images = std::thread::scope(|scope| {
            let threads: Vec<_> =
                job.archs.iter().map(|&arch| scope.spawn(move || self.image(job, arch, source))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(Artifact { name: job.name.clone(), images })
    }

    fn image(&self, job: &Job, arch: Arch, source: &Source) -> Result<Image, BuildError> {
        let options = options(arch, &job.defines);
        let key = key(self.toolchain.identity(), &options, source);
        let folder = self.root.join(CACHE_FOLDER).join(&key);
        let entry =
            Arc::clone(self.entries.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        let _alone = entry.lock().unwrap_or_else(PoisonError::into_inner);
        let image = match load(&folder, arch) {
            Some(image) => image,
            None => self.compile(job, arch, source, &options, folder)?,
        };
        let missing = job.entries.iter().find(|entry| !image.usage.contains_key(*entry));
        if let Some(entry) = missing {
            let defined = image.usage.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(BuildError::Entry { name: job.name.clone(), arch, entry: entry.clone(), defined });
        }
        Ok(image)
    }

    fn compile(
        &self,
        job: &Job,
        arch: Arch,
        source: &Source,
        options: &[String],
        folder: PathBuf,
    ) -> Result<Image, BuildError> {
        let name = || job.name.clone();
        let nvrtc = match self.nvrtc.get_or_init(|| Nvrtc::open(&self.toolchain)) {
            Ok(nvrtc) => nvrtc,
            Err(error) => return Err(BuildError::Nvrtc { name: name(), source: error.clone() }),
        };
        let compiled = match nvrtc.compile(&source.name, &source.text, &source.headers, options) {
            Ok(compiled) => compiled,
            Err(NvrtcError::Compilation { log, ptx }) => {
                // A spill is a warning made an error; the assembler then says only how large it is.
                refuse_local_memory(job, arch, &usage::from_log(&log))?;
                let log = diagnostics::readable(&log, ptx.as_deref(), Path::new(CUDA_FOLDER), source);
                return Err(BuildError::Compile { name: name(), arch, log });
            }
            Err(source) => return Err(BuildError::Nvrtc { name: name(), source }),
        };
        let mut usage = usage::from_log(&compiled.log);
        refuse_local_memory(job, arch, &usage)?;
        if let Some((at, instruction)) =
            diagnostics::local_memory(&compiled.ptx, Path::new(CUDA_FOLDER), source)
        {
            return Err(BuildError::LocalArray { name: name(), arch, at, instruction });
        }
        let sizes = usage::sass_bytes(&compiled.cubin).unwrap_or_default();
        for (function, usage) in &mut usage {
            usage.sass_bytes = sizes.get(function).copied().unwrap_or(0);
        }
        let ptx = diagnostics::relative_files(&compiled.ptx);
        let usage_json = serde_json::to_string_pretty(&usage).expect("a map of plain numbers");
        store(
            &folder,
            &[
                (PTX, ptx.as_bytes()),
                (CUBIN, &compiled.cubin),
                (LOG, compiled.log.as_bytes()),
                (USAGE, usage_json.as_bytes()),
            ],
        )?;
        Ok(Image { arch, folder, ptx, cubin: compiled.cubin, usage, cached: false })
    }
}

/// NVRTC's options for `arch`.
fn options(arch: Arch, defines: &[(String, String)]) -> Vec<String> {
    let mut options = vec![
        format!("--gpu-architecture={arch}"),
        "--std=c++20".into(),
        // Everything is device code; without it each constexpr helper would need `__device__`.
        "--device-as-default-execution-space".into(),
        // `.loc` lines: the emulator and nvdisasm name .cu lines.
        "--generate-line-info".into(),
        "--ptxas-options=-v".into(),
        "--ptxas-options=-warn-spills".into(),
        "--ptxas-options=-Werror".into(),
    ];
    options.extend(defines.iter().map(|(name, value)| format!("--define-macro={name}={value}")));
    options
}

fn refuse_local_memory(job: &Job, arch: Arch, usages: &BTreeMap<String, Usage>) -> Result<(), BuildError> {
    match usages.iter().find(|(_, usage)| usage.uses_local_memory()) {
        None => Ok(()),
        Some((function, usage)) => Err(BuildError::LocalMemory {
            name: job.name.clone(),
            arch,
            function: function.clone(),
            usage: usage.clone(),
        }),
    }
}

/// Hash of everything that decides the result, each part with its length so that no two lists read alike.
fn key(identity: &str, options: &[String], source: &Source) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    part(CACHE_FORMAT);
    part(identity);
    part(&options.join("\0"));
    part(&source.name);
    part(&source.text);
    for (name, text) in &source.headers {
        part(name);
        part(text);
    }
    hex(&hash.finalize()[..16])
}

fn load(folder: &Path, arch: Arch) -> Option<Image> {
    let usage = serde_json::from_str(&fs::read_to_string(folder.join(USAGE)).ok()?).ok()?;
    let ptx = fs::read_to_string(folder.join(PTX)).ok()?;
    let cubin = fs::read(folder.join(CUBIN)).ok()?;
    Some(Image { arch, folder: folder.to_owned(), ptx, cubin, usage, cached: true })
}

/// Writes the files into a fresh folder and renames it to `folder`, so that no reader ever sees half an entry.
fn store(folder: &Path, files: &[(&str, &[u8])]) -> Result<(), BuildError> {
    static UNIQUE: AtomicU64 = AtomicU64::new(0);
    let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.with_extension(format!("{}.{unique}.tmp", std::process::id()));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Cache { path, source }
    };
    fs::create_dir_all(&temporary).map_err(failed(&temporary))?;
    for (name, bytes) in files {
        let path = temporary.join(name);
        fs::write(&path, bytes).map_err(failed(&path))?;
    }
    if fs::rename(&temporary, folder).is_ok() {
        return Ok(());
    }
    // Somebody else finished first (same key, same content), or a damaged entry is in the way.
    if load(folder, Arch::Sm100a).is_none() {
        let _ = fs::remove_dir_all(folder);
        return fs::rename(&temporary, folder).map_err(failed(folder));
    }
    fs::remove_dir_all(&temporary).map_err(failed(&temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            name: "kernels/k.cu".into(),
            text: text.into(),
            headers: vec![("a.cuh".into(), "int a;".into())],
        }
    }

    #[test]
    fn key_depends_on_every_input() {
        let base = key("13.5", &options(Arch::Sm100a, &[]), &source("x"));
        assert_eq!(base, key("13.5", &options(Arch::Sm100a, &[]), &source("x")));
        let mut header = source("x");
        header.headers[0].1.push(' ');
        let defines = [("HEAD_DIM".to_owned(), "128".to_owned())];
        for other in [
            key("13.4", &options(Arch::Sm100a, &[]), &source("x")),
            key("13.5", &options(Arch::Sm103a, &[]), &source("x")),
            key("13.5", &options(Arch::Sm100a, &defines), &source("x")),
            key("13.5", &options(Arch::Sm100a, &[]), &source("y")),
            key("13.5", &options(Arch::Sm100a, &[]), &header),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_damaged_entry_is_a_miss_and_is_replaced() {
        let folder = std::env::temp_dir().join(format!("fa4-cache-{}", std::process::id())).join("key");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(USAGE), "{").unwrap();
        assert!(load(&folder, Arch::Sm100a).is_none());
        let files: [(&str, &[u8]); 3] = [(PTX, b"ptx"), (CUBIN, b"cubin"), (USAGE, b"{}")];
        store(&folder, &files).unwrap();
        store(&folder, &files).unwrap();
        let image = load(&folder, Arch::Sm100a).unwrap();
        let left = fs::read_dir(folder.parent().unwrap()).unwrap().count();
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        assert_eq!((image.ptx.as_str(), image.cubin.as_slice(), left), ("ptx", b"cubin".as_slice(), 1));
    }
}
