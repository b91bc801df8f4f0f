//! References as contestants: their children, one per GPU and interpreter, and how their failures become a row's words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fa4_gate::error::exit;
use fa4_refs::bridge::SharedBridge;
use fa4_refs::catalog::CATALOG;
use fa4_refs::reference::{Prepared, Versions};
use fa4_refs::{
    Bridge, BridgedReference, Deadlines, InputFiles, Launch, RefError, Reference, Route, RowAt,
    Status as RefStatus, TimeMode, TimeRequest,
};
use tabled::builder::Builder;
use tabled::settings::Style;

use crate::cli::RefsArgs;
use crate::env::Settings;
use crate::error::BenchError;
use crate::record::Status;
use crate::runner::{Answer, Contestant, Entrant, Failure, GROUPS, Job, Lap, Mode};
use crate::worker::workspace;

/// Not asked unless named: it writes S and P to memory, is tens of times slower and needs gigabytes.
const ONLY_BY_NAME: &str = "torch-math";
/// Inputs that are written to files at most.
const MOST_BYTES: u64 = 24 << 30;
/// The Python adapters, below the workspace.
const ADAPTERS: &str = "crates/fa4-refs/py/serve.py";

/// What is started to ask references.
fn launch(
    root: &Path,
    python: &Path,
    program: Option<&str>,
    device: Option<String>,
    scratch: &Path,
) -> Launch {
    let script = root.join(ADAPTERS);
    let mut words =
        program.map(|p| p.split_whitespace().map(String::from).collect::<Vec<_>>()).unwrap_or_default();
    let (program, args) = match words.is_empty() {
        true => (python.to_path_buf(), vec!["-B".into(), script.into()]),
        false => (PathBuf::from(words.remove(0)), words.into_iter().map(Into::into).collect()),
    };
    Launch { program, args, device, scratch: scratch.into() }
}

/// The references on one GPU.
pub struct RefField {
    names: Vec<String>,
    /// Whether each was asked for by name: its absence is then said in every row.
    named: bool,
    launch: Launch,
    bridge: Option<SharedBridge>,
    /// Versions, or why a reference is not here; asked once.
    known: BTreeMap<String, Result<Versions, String>>,
}

impl RefField {
    /// The references that `settings` names, on the GPU that `CUDA_VISIBLE_DEVICES` calls `visible`.
    pub fn new(root: &Path, settings: &Settings, visible: Option<String>) -> Self {
        let program = settings.refs_program.as_deref();
        let all = CATALOG.iter().map(|e| e.id).filter(|id| *id != ONLY_BY_NAME).map(String::from);
        RefField {
            names: settings.refs.clone().unwrap_or_else(|| all.collect()),
            named: settings.refs.is_some(),
            launch: launch(root, &settings.python, program, visible, &settings.scratch),
            bridge: None,
            known: BTreeMap::new(),
        }
    }

    /// Every reference, ready for `job` or with the reason why not.
    pub fn ready<'a>(&mut self, job: &Job<'a>) -> Vec<Entrant<'a>> {
        if self.names.is_empty() {
            return Vec::new();
        }
        let bridge = match self.bridge() {
            Ok(bridge) => bridge,
            Err(failure) => return self.names.iter().map(|n| (n.clone(), Err(failure.clone()))).collect(),
        };
        // Written when the first reference wants them.
        let mut files: Option<Arc<InputFiles>> = None;
        let mut ready = Vec::new();
        for name in self.names.clone() {
            let mut reference = BridgedReference::new(&name, &bridge);
            let versions = match self.versions(&name, &mut reference) {
                Ok(versions) => versions,
                Err(_) if !self.named => continue,
                Err(reason) => {
                    ready.push((name, Err(Failure::unsupported(reason))));
                    continue;
                }
            };
            let one = self.prepare(reference, versions, job, &mut files);
            ready.push((name, one.map(|one| Box::new(one) as Box<dyn Contestant + 'a>)));
        }
        ready
    }

    fn bridge(&mut self) -> Result<SharedBridge, Failure> {
        if let Some(bridge) = &self.bridge {
            return Ok(Arc::clone(bridge));
        }
        let bridge = Bridge::new(self.launch.clone(), Deadlines::default()).map_err(failed)?;
        Ok(Arc::clone(self.bridge.insert(bridge)))
    }

    fn versions(&mut self, name: &str, reference: &mut BridgedReference) -> Result<Versions, String> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let answer = reference.versions().map_err(|e| e.to_string());
        self.known.insert(name.to_string(), answer.clone());
        answer
    }

    fn prepare<'a>(
        &self,
        mut reference: BridgedReference,
        versions: Versions,
        job: &Job<'a>,
        files: &mut Option<Arc<InputFiles>>,
    ) -> Result<Bridged<'a>, Failure> {
        let p = &job.case.problem;
        job.stages.time("prepare", || reference.supports(p)).map_err(failed)?;
        let inputs = match files {
            Some(inputs) => Arc::clone(inputs),
            None => {
                let written = job.stages.time("files", || self.written(job));
                Arc::clone(files.insert(written.map_err(failed)?))
            }
        };
        let mut prepared = job.stages.time("prepare", || reference.prepare(p, &inputs)).map_err(failed)?;
        // What ran is worth knowing and not worth losing the figures for.
        let route = job.stages.time("route", || reference.route(&mut prepared));
        let words = route.map_or_else(|e| format!("unknown: {e}"), |route| in_words(&route, &prepared.notes));
        let (id, rows, copies, limit) = (reference.id().to_string(), job.rows, job.copies, job.limit);
        Ok(Bridged { id, reference, prepared: Some(prepared), route: words, versions, rows, copies, limit })
    }

    /// The inputs in files: in a RAM disk if they fit.
    fn written(&self, job: &Job<'_>) -> Result<Arc<InputFiles>, RefError> {
        let bytes = job.images.iter().map(|image| image.len() as u64).sum();
        if bytes > MOST_BYTES {
            return Err(RefError::TooLarge { bytes, limit: MOST_BYTES });
        }
        let write =
            |parent: &Path| InputFiles::write_images(job.inputs, job.images, job.case.problem.batch, parent);
        write(&self.launch.scratch).or_else(|error| match std::env::temp_dir() {
            // A container's RAM disk may be smaller than it looks.
            other if other != self.launch.scratch => write(&other),
            _ => Err(error),
        })
    }
}

/// A route and what was done to the data on the way.
fn in_words(route: &Route, notes: &[String]) -> String {
    let mut words = match route.proven {
        Some(true) => route.called.clone(),
        Some(false) => format!("NOT WHAT IT IS CALLED: {}", route.called),
        None => format!("{} (kernels not seen)", route.called),
    };
    for extra in [route.kernels.join(", "), route.note.clone(), notes.join("; ")] {
        if !extra.is_empty() {
            words = format!("{words}; {extra}");
        }
    }
    words
}

fn failed(error: RefError) -> Failure {
    let status = match error.status() {
        RefStatus::Unavailable | RefStatus::Unsupported | RefStatus::OutOfMemory => Status::Unsupported,
        RefStatus::Timeout => Status::Timeout,
        RefStatus::Error | RefStatus::Crashed | RefStatus::Protocol | RefStatus::Host => Status::Error,
    };
    Failure::new(status, error.to_string())
}

/// A reference made ready for one row.
struct Bridged<'a> {
    id: String,
    reference: BridgedReference,
    prepared: Option<Prepared>,
    route: String,
    versions: Versions,
    rows: Option<&'a [RowAt]>,
    copies: u32,
    limit: std::time::Duration,
}

impl Bridged<'_> {
    fn with<T>(
        &mut self,
        ask: impl FnOnce(&mut BridgedReference, &mut Prepared) -> Result<T, RefError>,
    ) -> Result<T, Failure> {
        let prepared = self.prepared.as_mut().expect("released only on drop");
        ask(&mut self.reference, prepared).map_err(failed)
    }
}

impl Contestant for Bridged<'_> {
    fn id(&self) -> &str {
        &self.id
    }

    fn route(&self) -> Option<String> {
        Some(self.route.clone())
    }

    fn versions(&self) -> BTreeMap<String, String> {
        self.versions.clone()
    }

    fn run_once(&mut self) -> Result<Answer, Failure> {
        let rows = self.rows;
        let output = self.with(|reference, prepared| reference.output(prepared, rows))?;
        Ok(Answer { o: output.o, lse: output.lse.unwrap_or_default(), not_finite: output.not_finite })
    }

    /// A run after the timed ones: its child hands back what a fresh launch wrote.
    fn leftover(&mut self) -> Result<Answer, Failure> {
        self.run_once()
    }

    fn time(&mut self, launches: u32, mode: Mode) -> Result<Lap, Failure> {
        let request = TimeRequest {
            iterations: launches,
            warmup: 1,
            mode: match mode {
                Mode::Stream => TimeMode::Event,
                Mode::Graph => TimeMode::Graph,
            },
            buffers: self.copies,
            group: launches.div_ceil(GROUPS).max(1),
            deadline: Some(self.limit),
        };
        let timing = self.with(|reference, prepared| reference.time(prepared, &request))?;
        Ok(Lap { us: timing.us, host_us: Some(timing.host_us) })
    }
}

impl Drop for Bridged<'_> {
    fn drop(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.reference.release(prepared);
        }
    }
}

/// `refs`: who is here, with versions, and what is missing.
///
/// # Errors
/// No folder for files.
pub fn list(args: &RefsArgs) -> Result<u8, BenchError> {
    let root = args.root.clone().unwrap_or_else(workspace);
    let launch = launch(&root, &args.refs_python, args.refs_program.as_deref(), None, &std::env::temp_dir());
    let scratch = launch.scratch.clone();
    let bridge =
        Bridge::new(launch, Deadlines::default()).map_err(|e| BenchError::folder(scratch, e.to_string()))?;
    let mut builder = Builder::default();
    builder.push_record(["reference", "here", "calls"]);
    let mut here = 0;
    for entry in CATALOG {
        let said = match BridgedReference::new(entry.id, &bridge).versions() {
            Ok(versions) => {
                here += 1;
                versions
                    .iter()
                    .map(|(name, version)| format!("{name} {version}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            }
            Err(error) => {
                let reason = error.to_string();
                format!("no: {}", reason.lines().next().unwrap_or_default())
            }
        };
        builder.push_record([entry.id, &said, entry.calls]);
    }
    println!("{}", builder.build().with(Style::sharp()));
    println!(
        "{here} of {} references are here; `--refs-python PYTHON` names another interpreter",
        CATALOG.len()
    );
    Ok(if here > 0 { exit::OK } else { exit::ENVIRONMENT })
}
