//! The Python environment that holds FlashAttention-4, in a folder that git ignores.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Error, FOLDER, read, tail, write};

/// Folder of the environment below the workspace root.
const ENVIRONMENT: &str = ".toolchain-foreign";
/// Holds the requirements that the environment was made from.
const STAMP: &str = "fa4-requirements.txt";
const REQUIREMENTS: &str = "requirements.txt";

/// An environment with the versions that the requirements name.
#[derive(Debug, Clone)]
pub struct Package {
    folder: PathBuf,
}

impl Package {
    /// The environment of the workspace at `root`.
    ///
    /// # Errors
    /// [`Error::NotSetUp`] where it is missing or was made from other requirements.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let folder = root.join(ENVIRONMENT);
        let wanted = read(root.join(FOLDER).join(REQUIREMENTS))?;
        match std::fs::read_to_string(folder.join(STAMP)) {
            Ok(stamp) if stamp == wanted => Ok(Self { folder }),
            Ok(_) => Err(Error::NotSetUp { folder, state: "installed in another version" }),
            Err(_) => Err(Error::NotSetUp { folder, state: "not installed" }),
        }
    }

    /// Makes the environment, unless it is there. `say` gets what is being done.
    ///
    /// # Errors
    /// [`Error::Program`] where Python or pip fail, with the end of what they said.
    pub fn set_up(root: &Path, say: impl Fn(&str)) -> Result<Self, Error> {
        if let Ok(package) = Self::open(root) {
            return Ok(package);
        }
        let folder = root.join(ENVIRONMENT);
        let requirements = root.join(FOLDER).join(REQUIREMENTS);
        say("installing FlashAttention-4 and what it needs (about 5 GB, minutes)");
        call(Command::new("python3").arg("-m").arg("venv").arg(&folder))?;
        let package = Self { folder };
        call(
            Command::new(package.python())
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--no-cache-dir",
                    "--no-compile",
                    "-r",
                ])
                .arg(&requirements),
        )?;
        write(package.folder.join(STAMP), &read(requirements)?)?;
        Ok(package)
    }

    /// The interpreter.
    pub fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }
}

/// Runs a program to its end.
///
/// # Errors
/// [`Error::Program`] where it cannot be started or does not succeed.
pub fn call(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |how: String| Error::Program { program: program.clone(), how };
    let output = command.output().map_err(|e| failed(format!("cannot be started: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Err(failed(format!("failed ({}):\n  {}", output.status, tail(&said))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_environment_names_the_remedy() {
        let root = crate::kernels::workspace();
        let nowhere = root.join("crates/fa4-gate/src/foreign");
        assert!(matches!(Package::open(&nowhere), Err(Error::File { .. })), "no requirements there");
        let error = Error::NotSetUp { folder: nowhere, state: "not installed" };
        assert!(error.to_string().contains("foreign fa4 --setup"));
        assert!(error.is_environment());
    }

    #[test]
    fn failures_carry_what_the_program_said() {
        let error = call(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
        let error = call(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot be started"), "{error}");
    }
}
