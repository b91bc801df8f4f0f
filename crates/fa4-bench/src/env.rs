//! What a run rests on: version, settings, machine. Two runs whose rows may stand in one table agree in all of it but the
//! shard and the list of GPUs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::paths;
use crate::plan::Shard;
use crate::record::SCHEMA;
use crate::runner::GpuRecord;

/// `env.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Env {
    /// Schema of the rows.
    pub schema: u32,
    /// Version of this program.
    pub version: String,
    /// Commit of the sources, `-dirty` behind it where files differed from it; `unknown` outside a checkout.
    pub commit: String,
    /// The compiler of the kernels.
    pub compiler: String,
    /// UTC, as in 2026-12-05T14:03:00Z.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// What was asked for.
    pub settings: Settings,
    /// Operating system and processor.
    pub machine: Machine,
    /// The GPUs used.
    pub gpus: Vec<GpuRecord>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the set, or of the scenario file.
    pub topic: String,
    /// Pattern for ids.
    pub filter: Option<String>,
    /// Seconds of timing a row.
    pub budget_s: f64,
    /// Seconds after which a row counts as hung.
    pub timeout_s: f64,
    /// Seed of the data.
    pub seed: u64,
    /// References; all where absent.
    pub refs: Option<Vec<String>>,
    /// Part of the rows.
    pub shard: Option<Shard>,
    /// The mock's specification, where it was one.
    pub mock: Option<String>,
    /// A candidate: file and name.
    pub candidate: Option<(PathBuf, String)>,
    /// Folder of built kernels.
    pub artifacts: Option<PathBuf>,
    /// Interpreter of the references' adapters.
    pub python: PathBuf,
    /// A program, with arguments, that stands for all references.
    pub refs_program: Option<String>,
    /// Folder for files that are handed to references.
    pub scratch: PathBuf,
}

impl Settings {
    /// As they may be written down: paths relative to `root`, or their last part.
    pub fn shown(&self, root: &Path) -> Settings {
        let shown = |path: &PathBuf| paths::shown(path, root);
        Settings {
            candidate: self.candidate.as_ref().map(|(path, name)| (shown(path), name.clone())),
            artifacts: self.artifacts.as_ref().map(shown),
            python: shown(&self.python),
            refs_program: self.refs_program.as_ref().map(|words| paths::shown_command(words, root)),
            scratch: shown(&self.scratch),
            ..self.clone()
        }
    }
}

/// Operating system and processor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel name and release.
    pub os: String,
    /// Processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
}

impl Env {
    /// The environment of a run that begins now.
    pub fn now(root: &Path, settings: Settings, gpus: Vec<GpuRecord>, build: Build) -> Self {
        Env {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: build.commit.unwrap_or_else(|| commit(root)),
            compiler: build.compiler,
            started: timestamp(SystemTime::now()),
            command: command_line(root),
            settings: settings.shown(root),
            machine: machine(),
            gpus,
        }
    }

    /// Nothing, for tests of what holds it.
    #[cfg(test)]
    pub fn empty() -> Self {
        let settings = Settings {
            topic: "test".into(),
            filter: None,
            budget_s: 1.0,
            timeout_s: 1.0,
            seed: 1,
            refs: None,
            shard: None,
            mock: None,
            candidate: None,
            artifacts: None,
            python: "python3".into(),
            refs_program: None,
            scratch: "tmp".into(),
        };
        let build = Build { commit: Some("test".into()), compiler: "none".into() };
        Env::now(Path::new("."), settings, Vec::new(), build)
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data has a JSON form") + "\n"
    }

    /// The day on which the run began.
    pub fn date(&self) -> &str {
        self.started.split('T').next().unwrap_or_default()
    }

    /// The first GPU's name; `no GPU` where there is none.
    pub fn gpu_name(&self) -> &str {
        self.gpus.first().map_or("no GPU", |gpu| gpu.name.as_str())
    }

    /// Why rows of `other` cannot stand in one table with these; `None`: they can.
    pub fn differs(&self, other: &Env) -> Option<String> {
        // Where things lie differs between machines and changes nothing.
        let comparable = |env: &Env| Settings {
            shard: None,
            artifacts: None,
            python: PathBuf::new(),
            scratch: PathBuf::new(),
            ..env.settings.clone()
        };
        let pairs = [
            ("schema", self.schema.to_string(), other.schema.to_string()),
            ("version", self.version.clone(), other.version.clone()),
            ("commit", self.commit.clone(), other.commit.clone()),
            ("compiler", self.compiler.clone(), other.compiler.clone()),
            ("GPU", self.gpu_name().into(), other.gpu_name().into()),
            ("settings", json(&comparable(self)), json(&comparable(other))),
        ];
        let (what, a, b) = pairs.into_iter().find(|(_, a, b)| a != b)?;
        Some(format!("{what} is {a} in one and {b} in the other"))
    }
}

fn json(settings: &Settings) -> String {
    serde_json::to_string(settings).expect("plain data has a JSON form")
}

/// What the kernels were built from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Build {
    /// Commit; to be asked of git where absent.
    pub commit: Option<String>,
    /// The compiler.
    pub compiler: String,
}

/// The checkout's commit.
pub fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    match (git(&["rev-parse", "HEAD"]), git(&["status", "--porcelain", "--untracked-files=no"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit}-dirty"),
        (None, _) => "unknown".into(),
    }
}

/// The arguments as one would type them in the checkout; the program by its name.
fn command_line(root: &Path) -> Vec<String> {
    let mut args: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(program) = args.first_mut() {
        let name = Path::new(program.as_str()).file_name().map(|n| n.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    args.iter().map(|word| paths::shown_word(word, root)).collect()
}

/// This machine.
pub fn machine() -> Machine {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = line("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    Machine {
        os: format!("Linux {}", line("/proc/sys/kernel/osrelease").trim()),
        cpu: model.map_or("unknown", |(_, name)| name.trim()).to_string(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// UTC in ISO 8601, to the second.
pub fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a number of days since 1970-01-01, by counting in eras of 400 years that begin in March (the
/// leap day is then a year's last).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let (day, month) = (
        day_of_year - (153 * from_march + 2) / 5 + 1,
        if from_march < 10 { from_march + 3 } else { from_march - 9 },
    );
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_by_the_calendar() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_796_083_200), "2026-12-01T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn no_folder_of_this_machine_is_written_down() {
        let root = Path::new("/srv/someone/fa4");
        let settings = Settings {
            candidate: Some(("/srv/someone/fa4/crates/x.cu".into(), "x".into())),
            artifacts: Some("/data/kernels".into()),
            python: "/srv/someone/envs/refs/bin/python".into(),
            refs_program: Some("/usr/bin/fake slow".into()),
            scratch: "/dev/shm".into(),
            ..Env::empty().settings
        };
        let shown = settings.shown(root);
        assert_eq!(shown.candidate, Some(("crates/x.cu".into(), "x".into())));
        assert_eq!(shown.artifacts, Some("…/kernels".into()));
        let build = Build { commit: Some("test".into()), compiler: "none".into() };
        let env = Env::now(root, settings, Vec::new(), build);
        let text = env.to_json();
        let strings = text.split('"').filter(|word| word.starts_with('/'));
        assert_eq!(strings.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn runs_of_different_versions_do_not_mix() {
        let one = Env::empty();
        let mut other = one.clone();
        other.settings.shard = Some(Shard { k: 2, n: 2 });
        other.started = "2030-01-01T00:00:00Z".into();
        assert_eq!(one.differs(&other), None);
        let commit = Env { commit: "abc".into(), ..one.clone() };
        assert_eq!(one.differs(&commit).unwrap(), "commit is test in one and abc in the other");
        other.settings.budget_s = 7.0;
        assert!(one.differs(&other).unwrap().starts_with("settings is"));
    }
}
