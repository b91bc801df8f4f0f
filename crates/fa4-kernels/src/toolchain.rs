//! Where the CUDA compiler is: the pinned wheels in `.toolchain/`, or an installed CUDA that `setup` was told of.
//!
//! `cargo xtask setup` fills `.toolchain/`; this module only looks. Nothing here reads an environment variable.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder at the workspace root that `cargo xtask setup` fills.
pub const FOLDER: &str = ".toolchain";
/// The lock file at the workspace root.
pub const LOCK_FILE: &str = "toolchain.lock";
/// Inside [`FOLDER`]: SHA-256 of the lock file that the wheels were installed from.
pub const STAMP: &str = "stamp";
/// Inside [`FOLDER`], instead of wheels: the path of an installed CUDA.
pub const INSTALLED: &str = "installed-cuda";
/// The oldest NVRTC that knows every instruction used here.
pub const OLDEST: Version = Version { major: 13, minor: 0 };

/// Version of an NVRTC, as in the name of its builtins library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version, 13 for CUDA 13.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The files of one CUDA toolchain.
#[derive(Clone, Debug)]
pub struct Toolchain {
    root: PathBuf,
    nvrtc: PathBuf,
    builtins: PathBuf,
    cuobjdump: PathBuf,
    nvdisasm: PathBuf,
    version: Version,
    identity: String,
}

/// Why there is no usable toolchain.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// `.toolchain/` does not exist.
    #[error("no CUDA toolchain in {}; run `cargo xtask setup`", .0.display())]
    Missing(PathBuf),
    /// `.toolchain/` was filled from another lock file.
    #[error("the CUDA toolchain in {} is not the one that toolchain.lock names; run `cargo xtask setup`", .0.display())]
    Stale(PathBuf),
    /// A folder without one of the files.
    #[error(
        "{} holds no {what} (looked in {looked}); name the root of an installed CUDA 13 or newer, \
         or run `cargo xtask setup` for the pinned one",
        root.display()
    )]
    Incomplete {
        /// The folder that was searched.
        root: PathBuf,
        /// The file that is missing.
        what: &'static str,
        /// The subfolders that were searched.
        looked: String,
    },
    /// NVRTC is too old.
    #[error(
        "the NVRTC in {} is {found}; {OLDEST} or newer is needed; run `cargo xtask setup` for the pinned one",
        root.display()
    )]
    TooOld {
        /// The folder that was searched.
        root: PathBuf,
        /// The version found there.
        found: Version,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

const LIB_FOLDERS: [&str; 5] =
    ["nvidia/cu13/lib", "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
const BIN_FOLDERS: [&str; 2] = ["nvidia/cu13/bin", "bin"];

impl Toolchain {
    /// The toolchain that `cargo xtask setup` prepared for the workspace at `workspace`.
    ///
    /// # Errors
    /// [`ToolchainError`]: nothing there, other wheels than the lock file names, or an incomplete folder.
    pub fn locate(workspace: &Path) -> Result<Self, ToolchainError> {
        let folder = workspace.join(FOLDER);
        if !folder.is_dir() {
            return Err(ToolchainError::Missing(folder));
        }
        let installed = folder.join(INSTALLED);
        if installed.is_file() {
            return Self::installed(Path::new(read(&installed)?.trim()));
        }
        let lock = lock_hash(&workspace.join(LOCK_FILE))?;
        match fs::read_to_string(folder.join(STAMP)) {
            Ok(stamp) if stamp.trim() == lock => Self::in_folder(&folder, lock),
            _ => Err(ToolchainError::Stale(folder)),
        }
    }

    /// An installed CUDA at `root`, for example `/usr/local/cuda`.
    ///
    /// # Errors
    /// [`ToolchainError::Incomplete`] or [`ToolchainError::TooOld`].
    pub fn installed(root: &Path) -> Result<Self, ToolchainError> {
        let mut toolchain = Self::in_folder(root, String::new())?;
        // An installed toolkit may be updated in place: its library's size and time stand for its content.
        let path = fs::canonicalize(&toolchain.nvrtc).unwrap_or_else(|_| toolchain.nvrtc.clone());
        let meta = fs::metadata(&path).map_err(|source| ToolchainError::Io { path: path.clone(), source })?;
        toolchain.identity = format!("{} {} {:?}", path.display(), meta.len(), meta.modified().ok());
        Ok(toolchain)
    }

    fn in_folder(root: &Path, identity: String) -> Result<Self, ToolchainError> {
        let nvrtc = find(root, &LIB_FOLDERS, "libnvrtc.so.*", |name| {
            name.strip_prefix("libnvrtc.so.")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })?;
        let builtins =
            find(root, &LIB_FOLDERS, "libnvrtc-builtins.so.*", |name| builtins_version(name).is_some())?;
        let cuobjdump = find(root, &BIN_FOLDERS, "cuobjdump", |name| name == "cuobjdump")?;
        let nvdisasm = find(root, &BIN_FOLDERS, "nvdisasm", |name| name == "nvdisasm")?;
        let version = builtins
            .file_name()
            .and_then(|name| builtins_version(&name.to_string_lossy()))
            .expect("`find` took this name because it has a version");
        if version < OLDEST {
            return Err(ToolchainError::TooOld { root: root.to_owned(), found: version });
        }
        Ok(Self { root: root.to_owned(), nvrtc, builtins, cuobjdump, nvdisasm, version, identity })
    }

    /// The folder that holds the toolchain.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `libnvrtc.so.*`.
    pub fn nvrtc(&self) -> &Path {
        &self.nvrtc
    }

    /// `libnvrtc-builtins.so.*`, which NVRTC opens when it compiles.
    pub fn builtins(&self) -> &Path {
        &self.builtins
    }

    /// `cuobjdump`.
    pub fn cuobjdump(&self) -> &Path {
        &self.cuobjdump
    }

    /// `nvdisasm`.
    pub fn nvdisasm(&self) -> &Path {
        &self.nvdisasm
    }

    /// NVRTC's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Text that changes whenever another compiler is in use; part of every cache key.
    pub fn identity(&self) -> &str {
        &self.identity
    }
}

/// SHA-256 of the lock file, in hex: what the stamp in `.toolchain/` must say.
fn lock_hash(path: &Path) -> Result<String, ToolchainError> {
    Ok(hex(&Sha256::digest(read(path)?.as_bytes())))
}

/// Lower-case hex digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<String, ToolchainError> {
    fs::read_to_string(path).map_err(|source| ToolchainError::Io { path: path.to_owned(), source })
}

/// `libnvrtc-builtins.so.13.5` or `libnvrtc-builtins.so.13.5.37` → 13.5.
fn builtins_version(name: &str) -> Option<Version> {
    let mut parts = name.strip_prefix("libnvrtc-builtins.so.")?.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some(Version { major, minor })
}

/// The first matching file in name order (so `libnvrtc.so.13` before `libnvrtc.so.13.5.37`).
fn find(
    root: &Path,
    folders: &[&str],
    what: &'static str,
    matches: impl Fn(&str) -> bool,
) -> Result<PathBuf, ToolchainError> {
    for folder in folders {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| file_name(path).is_some_and(&matches))
            .collect();
        names.sort();
        if let Some(path) = names.into_iter().next() {
            return Ok(path);
        }
    }
    Err(ToolchainError::Incomplete { root: root.to_owned(), what, looked: folders.join(", ") })
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_the_builtins_name() {
        assert_eq!(builtins_version("libnvrtc-builtins.so.13.5"), Some(Version { major: 13, minor: 5 }));
        assert_eq!(builtins_version("libnvrtc-builtins.so.12.9.86"), Some(Version { major: 12, minor: 9 }));
        assert_eq!(builtins_version("libnvrtc.so.13"), None);
        assert!(Version { major: 12, minor: 9 } < OLDEST);
    }

    #[test]
    fn an_empty_folder_says_what_is_missing_and_what_to_do() {
        let folder = std::env::temp_dir().join(format!("fa4-toolchain-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let missing = Toolchain::locate(&folder).unwrap_err().to_string();
        let incomplete = Toolchain::installed(&folder).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert!(missing.contains("cargo xtask setup"), "{missing}");
        assert!(incomplete.contains("libnvrtc.so.*") && incomplete.contains("lib64"), "{incomplete}");
    }
}
