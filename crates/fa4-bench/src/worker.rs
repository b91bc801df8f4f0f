//! The process of one GPU: rows in by number, finished rows out, one JSON object a line. It owns the CUDA context, so that
//! a kernel that hangs or breaks it costs this process and nothing else.
//!
//! It ends when its standard input does, whatever it is doing: if the parent is killed, no worker stays behind.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use fa4_gate::error::exit;
use fa4_spec::Row;
use fa4_spec::qdist::Stock;
use serde::{Deserialize, Serialize};

use crate::env::Settings;
use crate::error::BenchError;
use crate::gpu::GpuRunner;
use crate::measure::measure;
use crate::mock::MockRunner;
use crate::plan;
use crate::record::RunRow;
use crate::runner::Runner;

/// First line to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// The run's rows.
    pub cases: PathBuf,
    /// The GPU.
    pub ordinal: u32,
    /// The workspace.
    pub root: PathBuf,
    /// What was asked for.
    pub settings: Settings,
}

/// Every other line to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Index of the row to run.
    pub row: usize,
}

/// Lines from a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Word {
    /// It is ready for rows.
    Ready,
    /// What it is doing.
    Doing {
        /// In a word or two.
        what: String,
    },
    /// A finished row.
    Row {
        /// The row.
        row: Box<RunRow>,
    },
    /// It cannot work at all.
    Unfit {
        /// Why.
        what: String,
        /// Exit code that the run should have.
        code: u8,
    },
}

/// The worker's life.
pub fn work() -> u8 {
    // A terminal's Ctrl-C is the parent's business; the row in hand is finished.
    let _ = ctrlc::set_handler(|| ());
    let (orders, inbox) = mpsc::channel();
    let mut lines = std::io::stdin().lock().lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let config: Config = match serde_json::from_str(&first) {
        Ok(config) => config,
        Err(e) => {
            eprintln!(
                "error: `fa4-bench worker` is started by `fa4-bench bench`, which tells it what to do ({e})"
            );
            return exit::USAGE;
        }
    };
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(Ok(order)) = line.map(|line| serde_json::from_str::<Order>(&line)) else { break };
            if orders.send(order).is_err() {
                break;
            }
        }
        std::process::exit(i32::from(exit::OK));
    });
    drop(lines);
    let (mut runner, rows) = match open(&config) {
        Ok(open) => open,
        Err(error) => {
            say(&Word::Unfit { what: error.to_string(), code: error.exit_code() });
            return error.exit_code();
        }
    };
    let mut stock = Stock::default();
    say(&Word::Ready);
    for order in inbox {
        let Some(row) = rows.get(order.row) else { break };
        let mut doing = |what: &str| say(&Word::Doing { what: what.to_string() });
        let row = measure(runner.as_mut(), &mut stock, (order.row, row), config.settings.seed, &mut doing);
        say(&Word::Row { row: Box::new(row) });
    }
    exit::OK
}

fn say(word: &Word) {
    let line = serde_json::to_string(word).expect("plain data has a JSON form") + "\n";
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: standard input is about to end, too.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

fn open(config: &Config) -> Result<(Box<dyn Runner>, Vec<Row>), BenchError> {
    let rows = plan::read(&config.cases)?;
    let settings = &config.settings;
    let runner: Box<dyn Runner> = match &settings.mock {
        Some(spec) => {
            let spec = mock_spec(spec)?;
            Box::new(MockRunner::new(spec, config.ordinal, &config.root, settings))
        }
        None => Box::new(GpuRunner::open(config.ordinal, &config.root, settings)?),
    };
    Ok((runner, rows))
}

/// Parses `--mock`.
///
/// # Errors
/// What is wrong and what is allowed.
pub fn mock_spec(text: &str) -> Result<crate::mock::MockSpec, BenchError> {
    text.parse().map_err(|what| BenchError::Flag { flag: "--mock", value: text.into(), what })
}

/// The default workspace: where this program was built, or else the current folder.
pub fn workspace() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let here = PathBuf::from(".");
    let found = [built, here.clone()].into_iter().find(|root| root.join("sets").is_dir());
    let found = found.unwrap_or(here);
    found.canonicalize().unwrap_or(found)
}
