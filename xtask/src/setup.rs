//! `cargo xtask setup`: the CUDA compiler of `toolchain.lock` into `.toolchain/`.
//!
//! pip installs into a folder beside the final one, which is renamed when complete: an interrupted set-up leaves
//! nothing half done. A file lock keeps two set-ups apart; the second finds the first one's result.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::cli;
use crate::outcome::{Failure, Outcome};
use crate::spawn::workspace;

/// What `.toolchain/` holds.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// The wheels of `toolchain.lock`.
    Pinned,
    /// The path of an installed CUDA.
    Installed(PathBuf),
    /// Wheels of another lock file, or an unfinished folder.
    Stale,
    /// Nothing.
    Missing,
}

/// The files and folders of one set-up, so that tests can have their own.
pub struct Paths {
    lock: PathBuf,
    folder: PathBuf,
    temporary: PathBuf,
    old: PathBuf,
    guard: PathBuf,
}

impl Paths {
    /// Those below `root`.
    pub fn below(root: &Path) -> Self {
        Self {
            lock: root.join("toolchain.lock"),
            folder: root.join(".toolchain"),
            temporary: root.join(".toolchain.tmp"),
            old: root.join(".toolchain.old"),
            guard: root.join(".toolchain.guard"),
        }
    }

    /// Where the compiler is, or will be.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is there now.
    pub fn state(&self) -> Result<State, Failure> {
        if let Ok(path) = fs::read_to_string(self.folder.join("installed-cuda")) {
            return Ok(State::Installed(PathBuf::from(path.trim())));
        }
        match fs::read_to_string(self.folder.join("stamp")) {
            Ok(stamp) if stamp.trim() == self.lock_hash()? => Ok(State::Pinned),
            _ if self.folder.exists() => Ok(State::Stale),
            _ => Ok(State::Missing),
        }
    }

    fn lock_hash(&self) -> Result<String, Failure> {
        let bytes = fs::read(&self.lock).map_err(|error| {
            Failure::Environment(format!(
                "cannot read {}: {error}; is the clone complete?",
                self.lock.display()
            ))
        })?;
        Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Waits until no other set-up is at work here.
    fn guard(&self) -> Result<File, Failure> {
        let file = File::create(&self.guard).map_err(|error| cannot("create", &self.guard, &error))?;
        if file.try_lock().is_err() {
            eprintln!("waiting for another `cargo xtask setup` …");
            file.lock().map_err(|error| cannot("lock", &self.guard, &error))?;
        }
        Ok(file)
    }

    /// An empty folder to fill.
    fn begin(&self) -> Outcome {
        remove(&self.temporary)?;
        fs::create_dir_all(&self.temporary).map_err(|error| cannot("create", &self.temporary, &error))
    }

    /// The filled folder becomes the one in use.
    fn finish(&self) -> Outcome {
        remove(&self.old)?;
        if self.folder.exists() {
            fs::rename(&self.folder, &self.old).map_err(|error| cannot("rename", &self.folder, &error))?;
        }
        fs::rename(&self.temporary, &self.folder)
            .map_err(|error| cannot("rename", &self.temporary, &error))?;
        remove(&self.old)
    }
}

/// The command.
pub fn run(args: &cli::Setup) -> Outcome {
    let paths = Paths::below(&workspace());
    let _guard = paths.guard()?;
    match &args.toolchain {
        Some(root) => use_installed(&paths, root),
        None if paths.state()? == State::Pinned => {
            eprintln!("the CUDA toolchain of toolchain.lock is already in {}", paths.folder.display());
            Ok(())
        }
        None => install(&paths),
    }
}

/// For commands that need the compiler: sets it up unless it is there. An installed CUDA that was named stays.
pub fn ensure() -> Outcome {
    let paths = Paths::below(&workspace());
    if ready(&paths)? {
        return Ok(());
    }
    let _guard = paths.guard()?;
    if ready(&paths)? { Ok(()) } else { install(&paths) }
}

fn ready(paths: &Paths) -> Result<bool, Failure> {
    Ok(matches!(paths.state()?, State::Pinned | State::Installed(_)))
}

fn use_installed(paths: &Paths, root: &Path) -> Outcome {
    let root = fs::canonicalize(root)
        .map_err(|error| Failure::Usage(format!("--toolchain {}: {error}", root.display())))?;
    eprintln!("checking the CUDA in {} …", root.display());
    // Looks for the files, compares versions and compiles for every architecture; says itself what is wrong.
    crate::spawn::run(
        "fa4-kernels",
        "fa4-build",
        ["check".as_ref(), "--toolchain".as_ref(), root.as_os_str()],
    )?;
    paths.begin()?;
    let record = paths.temporary.join("installed-cuda");
    fs::write(&record, format!("{}\n", root.display())).map_err(|error| cannot("write", &record, &error))?;
    paths.finish()
}

fn install(paths: &Paths) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Err(Failure::Environment(
            "the pinned CUDA compiler exists for Linux on x86_64 and aarch64 only".into(),
        ));
    }
    let started = Instant::now();
    require_pip()?;
    eprintln!(
        "installing the CUDA compiler of toolchain.lock into {} (64 MB download) …",
        paths.folder.display()
    );
    paths.begin()?;
    let status = pip()
        .args(["install", "--no-deps", "--only-binary=:all:", "--require-hashes", "--target"])
        .arg(&paths.temporary)
        .arg("-r")
        .arg(&paths.lock)
        // Standard output belongs to the command that needs the compiler.
        .stdout(stderr())
        .status()
        .map_err(|error| Failure::Environment(format!("cannot run python3: {error}")))?;
    if !status.success() {
        remove(&paths.temporary)?;
        return Err(Failure::Environment(
            "pip could not install the CUDA compiler; its own words are above. \
             Mend the network, proxy or package index that pip uses and run `cargo xtask setup` again, \
             or name an installed CUDA: `cargo xtask setup --toolchain /usr/local/cuda`"
                .into(),
        ));
    }
    let stamp = paths.temporary.join("stamp");
    fs::write(&stamp, format!("{}\n", paths.lock_hash()?))
        .map_err(|error| cannot("write", &stamp, &error))?;
    paths.finish()?;
    eprintln!("CUDA compiler ready in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// `python3 -m pip`, without what a user's settings could add to it.
pub fn pip() -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "pip"]).env("PIP_USER", "0").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command.env("PIP_ROOT_USER_ACTION", "ignore").env("PIP_NO_INPUT", "1").stdin(Stdio::null());
    command
}

/// What mends a missing python3.
pub const MEND_PYTHON: &str = "install Python 3.9 or newer, for example: apt-get install python3 python3-pip";
/// What mends a missing pip.
pub const MEND_PIP: &str = "install pip, for example: apt-get install python3-pip (or: python3 -m ensurepip)";

fn require_pip() -> Outcome {
    match pip().arg("--version").output() {
        Err(_) => Err(Failure::Environment(format!("python3 is not found; {MEND_PYTHON}"))),
        Ok(output) if !output.status.success() => {
            Err(Failure::Environment(format!("python3 has no pip; {MEND_PIP}")))
        }
        Ok(_) => Ok(()),
    }
}

fn stderr() -> Stdio {
    use std::os::fd::AsFd;
    io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from)
}

fn remove(path: &Path) -> Outcome {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot("remove", path, &error)),
        _ => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Environment(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_follows_the_lock_file() {
        let root = std::env::temp_dir().join(format!("fa4-setup-{}", std::process::id()));
        let paths = Paths::below(&root);
        fs::create_dir_all(&root).unwrap();
        fs::write(&paths.lock, "one").unwrap();
        assert_eq!(paths.state().unwrap(), State::Missing);
        paths.begin().unwrap();
        fs::write(paths.temporary.join("stamp"), paths.lock_hash().unwrap()).unwrap();
        assert_eq!(paths.state().unwrap(), State::Missing, "an unfinished set-up counts for nothing");
        paths.finish().unwrap();
        assert_eq!(paths.state().unwrap(), State::Pinned);
        fs::write(&paths.lock, "two").unwrap();
        assert_eq!(paths.state().unwrap(), State::Stale);
        paths.begin().unwrap();
        fs::write(paths.temporary.join("installed-cuda"), "/usr/local/cuda\n").unwrap();
        paths.finish().unwrap();
        assert_eq!(paths.state().unwrap(), State::Installed("/usr/local/cuda".into()));
        fs::remove_dir_all(&root).unwrap();
    }
}
