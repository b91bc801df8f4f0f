//! A child process per device that serves any number of references. Every request has a deadline; whoever misses it,
//! dies or talks nonsense is killed with its process group, and the next request starts a new child.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fa4_spec::AttnProblem;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{Child, NoLine};
use crate::error::{RefError, Stderr};
use crate::files::{InputFiles, read_f32, read_u16};
use crate::protocol::{
    ErrorKind, Hello, Op, OutputReply, PROTOCOL, PrepareReply, Reply, Request, Route, TimeRequest, Timing,
    VersionsReply,
};
use crate::reference::{LseBase, Output, Prepared, Reference, RowAt, Versions};

/// What to start.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Value of `CUDA_VISIBLE_DEVICES` for the child: a GPU's UUID (best) or its index. `None` leaves the variable alone.
    pub device: Option<String>,
    /// Folder for output files. A RAM disk saves time.
    pub scratch: PathBuf,
}

impl Launch {
    /// The Python adapters of this checkout, by `python`, on `device`.
    pub fn python(python: impl Into<PathBuf>, device: Option<String>, scratch: impl Into<PathBuf>) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("py/serve.py");
        // -B: no compiled files beside the sources. -u is not needed: answers are flushed.
        let args = vec!["-B".into(), script.into()];
        Launch { program: python.into(), args, device, scratch: scratch.into() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if let Some(device) = &self.device {
            command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", device);
        }
        command
    }
}

/// How long a child may take to answer.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// To start: an interpreter, no library yet.
    pub hello: Duration,
    /// To load a library.
    pub load: Duration,
    /// To load data and compile.
    pub prepare: Duration,
    /// To run once or to be profiled.
    pub run: Duration,
    /// To be timed, unless the request says otherwise.
    pub time: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            hello: Duration::from_secs(30),
            load: Duration::from_secs(180),
            prepare: Duration::from_secs(300),
            run: Duration::from_secs(120),
            time: Duration::from_secs(120),
        }
    }
}

impl Deadlines {
    /// The same for all, for tests.
    pub fn all(deadline: Duration) -> Self {
        Deadlines { hello: deadline, load: deadline, prepare: deadline, run: deadline, time: deadline }
    }

    fn of(&self, op: &Op) -> Duration {
        match op {
            Op::Hello => self.hello,
            Op::Versions { .. } | Op::Supports { .. } => self.load,
            Op::Prepare { .. } => self.prepare,
            Op::Output { .. } | Op::Route { .. } | Op::Release { .. } => self.run,
            Op::Time { request, .. } => request.deadline.unwrap_or(self.time),
        }
    }
}

/// The parent's end.
pub struct Bridge {
    launch: Launch,
    deadlines: Deadlines,
    /// For output files.
    scratch: TempDir,
    child: Option<Child>,
    served: Vec<String>,
    /// Counts children; handles of an earlier one mean nothing to a later one.
    generation: u64,
    next_request: u64,
    next_handle: u64,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("launch", &self.launch).field("generation", &self.generation).finish()
    }
}

/// A bridge that several references share.
pub type SharedBridge = Arc<Mutex<Bridge>>;

impl Bridge {
    /// Starts nothing yet: the first request does.
    pub fn new(launch: Launch, deadlines: Deadlines) -> Result<SharedBridge, RefError> {
        let scratch =
            tempfile::Builder::new().prefix("fa4-refs-").tempdir_in(&launch.scratch).map_err(|error| {
                RefError::Io { what: "create a folder in", path: launch.scratch.clone(), error }
            })?;
        Ok(Arc::new(Mutex::new(Bridge {
            launch,
            deadlines,
            scratch,
            child: None,
            served: Vec::new(),
            generation: 0,
            next_request: 0,
            next_handle: 0,
        })))
    }

    /// Children started so far.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Ends the child, if there is one. The next request starts another.
    pub fn stop(&mut self) {
        self.child = None;
    }

    /// Sends a request on behalf of reference `id` and waits for its answer. A child is started first where none runs.
    pub fn call<T: DeserializeOwned>(&mut self, id: &str, op: Op) -> Result<T, RefError> {
        self.ensure_child(id)?;
        let name = op.name();
        let value = self.exchange(id, op)?;
        self.parse(id, name, value)
    }

    fn ensure_child(&mut self, id: &str) -> Result<(), RefError> {
        if self.child.is_none() {
            let child = Child::spawn(&mut self.launch.command())
                .map_err(|error| RefError::Start { program: self.program(), error })?;
            self.child = Some(child);
            self.generation += 1;
            let value = self.exchange(id, Op::Hello)?;
            let hello: Hello = self.parse(id, "hello", value)?;
            if hello.protocol != PROTOCOL {
                self.child = None;
                return Err(RefError::Version {
                    program: self.program(),
                    theirs: hello.protocol,
                    ours: PROTOCOL,
                });
            }
            self.served = hello.references;
        }
        if !self.served.iter().any(|served| served == id) {
            let reason = format!("{} serves {}, not `{id}`", self.program(), self.served.join(", "));
            return Err(RefError::Unavailable { id: id.into(), reason });
        }
        Ok(())
    }

    fn program(&self) -> String {
        self.launch.program.display().to_string()
    }

    fn exchange(&mut self, id: &str, op: Op) -> Result<Value, RefError> {
        let (name, deadline) = (op.name(), self.deadlines.of(&op));
        let number = self.next_request;
        self.next_request += 1;
        let request = Request { protocol: PROTOCOL, id: number, op };
        let line = serde_json::to_string(&request).expect("requests are plain data");
        let child = self.child.as_mut().expect("there is a child");
        let answer = match child.send(&line) {
            Ok(()) => child.receive(deadline),
            // It no longer reads: it is dying.
            Err(_) => Err(NoLine::Ended),
        };
        let line = match answer {
            Ok(line) => line,
            Err(NoLine::Timeout) => {
                let stderr = self.kill();
                let seconds = deadline.as_secs_f64();
                return Err(RefError::Timeout { id: id.into(), op: name, seconds, stderr });
            }
            Err(NoLine::Ended) => {
                let (how, stderr) = self.child.take().expect("there is a child").bury();
                return Err(RefError::Crashed { id: id.into(), op: name, how, stderr });
            }
            Err(NoLine::Garbage(what)) => return Err(self.protocol_error(id, name, what)),
        };
        let reply: Reply = match serde_json::from_str(&line) {
            Ok(reply) => reply,
            Err(error) => {
                return Err(self.protocol_error(id, name, format!("{error} in {:?}", shortened(&line))));
            }
        };
        if reply.id != number {
            let what = format!("an answer to request {} where {number} was asked", reply.id);
            return Err(self.protocol_error(id, name, what));
        }
        match (reply.ok, reply.error) {
            (Some(value), None) => Ok(value),
            (None, Some(error)) => Err(self.refusal(id, name, error.kind, error.message)),
            _ => Err(self.protocol_error(id, name, "an answer needs one of `ok` and `error`".into())),
        }
    }

    fn refusal(&self, id: &str, op: &'static str, kind: ErrorKind, message: String) -> RefError {
        let id = id.to_owned();
        match kind {
            ErrorKind::Unavailable => RefError::Unavailable { id, reason: message },
            ErrorKind::Unsupported => RefError::Unsupported { id, reason: message },
            ErrorKind::OutOfMemory => RefError::OutOfMemory { id, op, message },
            ErrorKind::Failed => {
                let stderr = self.child.as_ref().map(Child::settled_stderr).unwrap_or_default();
                RefError::Failed { id, op, message, stderr }
            }
        }
    }

    fn parse<T: DeserializeOwned>(
        &mut self,
        id: &str,
        op: &'static str,
        value: Value,
    ) -> Result<T, RefError> {
        serde_json::from_value(value)
            .map_err(|error| self.protocol_error(id, op, format!("an answer of another form: {error}")))
    }

    fn protocol_error(&mut self, id: &str, op: &'static str, what: String) -> RefError {
        let stderr = self.kill();
        RefError::Protocol { id: id.into(), op, what, stderr }
    }

    fn kill(&mut self) -> Stderr {
        self.child.take().map(|child| child.kill().1).unwrap_or_default()
    }
}

fn shortened(line: &str) -> String {
    line.chars().take(200).collect()
}

/// A reference behind a bridge.
#[derive(Debug, Clone)]
pub struct BridgedReference {
    id: String,
    bridge: SharedBridge,
}

impl BridgedReference {
    /// The reference `id` of whatever `bridge` starts.
    pub fn new(id: impl Into<String>, bridge: &SharedBridge) -> Self {
        BridgedReference { id: id.into(), bridge: Arc::clone(bridge) }
    }

    fn bridge(&self) -> MutexGuard<'_, Bridge> {
        self.bridge.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Makes `prepared` known to the child that runs now.
    fn renew(&self, bridge: &mut Bridge, prepared: &mut Prepared) -> Result<(), RefError> {
        if bridge.child.is_some() && prepared.generation == bridge.generation {
            return Ok(());
        }
        *prepared = self.prepare_on(bridge, &prepared.problem, &prepared.inputs)?;
        Ok(())
    }

    fn prepare_on(
        &self,
        bridge: &mut Bridge,
        problem: &AttnProblem,
        inputs: &Arc<InputFiles>,
    ) -> Result<Prepared, RefError> {
        let handle = bridge.next_handle;
        bridge.next_handle += 1;
        let started = Instant::now();
        let op = Op::Prepare {
            reference: self.id.clone(),
            handle,
            problem: problem.clone(),
            inputs: inputs.description.clone(),
        };
        let reply: PrepareReply = bridge.call(&self.id, op)?;
        Ok(Prepared {
            problem: problem.clone(),
            inputs: Arc::clone(inputs),
            seconds: started.elapsed().as_secs_f64(),
            notes: reply.notes,
            handle,
            generation: bridge.generation,
        })
    }
}

/// ln 2: a binary LSE times this is a natural one.
const LN_2: f64 = std::f64::consts::LN_2;

impl Reference for BridgedReference {
    fn id(&self) -> &str {
        &self.id
    }

    fn versions(&mut self) -> Result<Versions, RefError> {
        let op = Op::Versions { reference: self.id.clone() };
        self.bridge().call(&self.id, op).map(|reply: VersionsReply| reply.versions)
    }

    fn supports(&mut self, problem: &AttnProblem) -> Result<(), RefError> {
        let op = Op::Supports { reference: self.id.clone(), problem: problem.clone() };
        self.bridge().call(&self.id, op).map(|_: Value| ())
    }

    fn prepare(&mut self, problem: &AttnProblem, inputs: &Arc<InputFiles>) -> Result<Prepared, RefError> {
        self.prepare_on(&mut self.bridge(), problem, inputs)
    }

    fn output(&mut self, prepared: &mut Prepared, rows: Option<&[RowAt]>) -> Result<Output, RefError> {
        let mut bridge = self.bridge();
        self.renew(&mut bridge, prepared)?;
        let (o, lse) = (bridge.scratch.path().join("o.bin"), bridge.scratch.path().join("lse.bin"));
        // What an earlier run left must not pass for this one's.
        for path in [&o, &lse] {
            let _ = std::fs::remove_file(path);
        }
        let op = Op::Output {
            handle: prepared.handle,
            o: o.clone(),
            lse: lse.clone(),
            rows: rows.map(<[RowAt]>::to_vec),
        };
        let reply: OutputReply = bridge.call(&self.id, op)?;
        let p = &prepared.problem;
        let broken = |bridge: &mut Bridge, what| bridge.protocol_error(&self.id, "output", what);
        let missing = |path: &Path| format!("no output file {}", path.display());
        if !o.exists() {
            return Err(broken(&mut bridge, missing(&o)));
        }
        let elems = rows.map_or(p.output_elems(), |rows| rows.len() as u64 * p.head_dim_v);
        let bits = read_u16(&o, elems)?.map_err(|what| broken(&mut bridge, what))?;
        let values = match reply.lse_base {
            None => None,
            Some(_) if !lse.exists() => return Err(broken(&mut bridge, missing(&lse))),
            Some(base) => {
                let elems = p.batch * p.num_heads_q * p.seqlen_q;
                let mut values = read_f32(&lse, elems)?.map_err(|what| broken(&mut bridge, what))?;
                if base == LseBase::Two {
                    values.iter_mut().for_each(|x| *x = (f64::from(*x) * LN_2) as f32);
                }
                Some(values)
            }
        };
        Ok(Output { o: bits, not_finite: reply.not_finite, lse: values, lse_base: reply.lse_base })
    }

    fn time(&mut self, prepared: &mut Prepared, request: &TimeRequest) -> Result<Timing, RefError> {
        let mut bridge = self.bridge();
        self.renew(&mut bridge, prepared)?;
        let op = Op::Time { handle: prepared.handle, request: request.clone() };
        let timing: Timing = bridge.call(&self.id, op)?;
        let wrong = timing.us.iter().find(|us| !(us.is_finite() && **us > 0.0));
        if timing.us.len() != request.times() {
            let (got, iterations, group) = (timing.us.len(), request.iterations, request.group);
            let what = format!("{got} times for {iterations} iterations in groups of {group}");
            return Err(bridge.protocol_error(&self.id, "time", what));
        }
        if let Some(us) = wrong {
            return Err(bridge.protocol_error(&self.id, "time", format!("an iteration of {us} µs")));
        }
        Ok(timing)
    }

    fn route(&mut self, prepared: &mut Prepared) -> Result<Route, RefError> {
        let mut bridge = self.bridge();
        self.renew(&mut bridge, prepared)?;
        bridge.call(&self.id, Op::Route { handle: prepared.handle })
    }

    fn release(&mut self, prepared: Prepared) {
        let mut bridge = self.bridge();
        if bridge.child.is_some() && prepared.generation == bridge.generation {
            // Whatever goes wrong here shows at the next request.
            let _ = bridge.call::<Value>(&self.id, Op::Release { handle: prepared.handle });
        }
    }
}
