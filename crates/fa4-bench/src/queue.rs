//! Rows to GPUs: a queue, and for each GPU a thread here that keeps a worker process there. Whoever is free takes the next
//! row. A worker that hangs is killed with all it started, one that dies is replaced; either is that row's result.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fa4_gate::error::exit;
use fa4_spec::Row;

use crate::error::BenchError;
use crate::measure::unmeasured;
use crate::record::{RunRow, Status};
use crate::worker::{Config, Order, Word};

/// Time to come up: a driver's start, kernels to compile.
const START: Duration = Duration::from_secs(600);
/// Characters of a dead worker's standard error that a row keeps.
const STDERR: usize = 2000;
/// How often a thread looks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);

/// What the threads tell.
pub enum News {
    /// GPU `0` is doing `1`.
    Doing(u32, String),
    /// A row is finished.
    Row(Box<RunRow>),
    /// A GPU's thread ends because its worker cannot work.
    Unfit(BenchError),
}

/// What all threads share.
pub struct Work<'a> {
    /// All rows.
    pub rows: &'a [Row],
    /// Those still to be run, by index.
    pub queue: Mutex<VecDeque<usize>>,
    /// Set from outside: finish the rows in hand and start no others.
    pub stop: &'a AtomicBool,
    /// Time for a row.
    pub limit: Duration,
    /// This program, to start workers with.
    pub program: PathBuf,
}

impl Work<'_> {
    fn next(&self) -> Option<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Runs everything; `hear` gets the news, on this thread.
pub fn run(
    work: &Work<'_>,
    configs: &[Config],
    mut hear: impl FnMut(News) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut result = Ok(());
    std::thread::scope(|scope| {
        let (tell, news) = mpsc::channel();
        for config in configs {
            let tell = tell.clone();
            scope.spawn(move || serve(work, config, &tell));
        }
        drop(tell);
        for one in news {
            if let Err(error) = hear(one) {
                // What cannot be written down is not worth measuring.
                work.stop.store(true, Ordering::Relaxed);
                result = Err(error);
            }
        }
    });
    result
}

/// One GPU's thread.
fn serve(work: &Work<'_>, config: &Config, tell: &Sender<News>) {
    let mut worker: Option<Worker> = None;
    while let Some(index) = work.next() {
        let row = &work.rows[index];
        let begun = Instant::now();
        if worker.is_none() {
            let started =
                Worker::start(work, config, |what| drop(tell.send(News::Doing(config.ordinal, what))));
            match started {
                Ok(started) => worker = Some(started),
                Err(error) => {
                    work.queue.lock().unwrap_or_else(PoisonError::into_inner).push_front(index);
                    let _ = tell.send(News::Unfit(error));
                    return;
                }
            }
        }
        let Some(at_work) = worker.as_mut() else { return };
        let doing =
            |what: String| drop(tell.send(News::Doing(config.ordinal, format!("{}: {what}", row.id))));
        let finished = at_work.run(index, work.limit, doing);
        let result = match finished {
            Ok(result) => *result,
            Err(end) => {
                let stderr = worker.take().map(Worker::end).unwrap_or_default();
                let (status, what) = end.words(work.limit);
                let reason = format!("{what}{}", quoted(&stderr));
                let mut result = unmeasured(index, row, config.settings.seed, status, reason);
                result.ordinal = Some(config.ordinal);
                result.seconds = begun.elapsed().as_secs_f64();
                result
            }
        };
        let broken = matches!(result.status, Status::Fault | Status::Timeout);
        let _ = tell.send(News::Row(Box::new(result)));
        // A fault leaves a context in which nothing runs any more.
        if broken && let Some(worker) = worker.take() {
            worker.end();
        }
    }
    if let Some(worker) = worker {
        worker.end();
    }
}

/// The last line first: it says most, and tables show one line.
fn quoted(stderr: &str) -> String {
    let text = stderr.trim_end();
    let Some(last) = text.lines().next_back() else {
        return "; it wrote nothing to its standard error".into();
    };
    if last.len() == text.len() {
        return format!("; its standard error: {last}");
    }
    let skipped = text.chars().count().saturating_sub(STDERR);
    let tail: String = text.chars().skip(skipped).collect();
    format!("; its standard error ends: {last}\nall of it:\n{tail}")
}

/// Why a worker gave no row.
enum End {
    Hung,
    Died(Option<ExitStatus>),
    Nonsense(String),
    Unfit(String, u8),
}

impl End {
    fn words(&self, limit: Duration) -> (Status, String) {
        match self {
            End::Hung => {
                let what = format!(
                    "no result within {:.0} s (--timeout); the worker was killed",
                    limit.as_secs_f64()
                );
                (Status::Timeout, what)
            }
            End::Died(status) => {
                let how = status.map_or("ended".to_string(), |s| match (s.code(), s.signal()) {
                    (Some(code), _) => format!("ended with exit code {code}"),
                    (_, Some(signal)) => format!("was ended by signal {signal}"),
                    _ => "ended".into(),
                });
                (Status::Error, format!("the worker {how}"))
            }
            End::Nonsense(what) => {
                (Status::Error, format!("the worker said something odd ({what}) and was killed"))
            }
            End::Unfit(what, _) => (Status::Error, what.clone()),
        }
    }
}

/// A worker process.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    words: Receiver<Result<Word, String>>,
    stderr: Arc<Mutex<String>>,
}

impl Worker {
    fn start(work: &Work<'_>, config: &Config, doing: impl Fn(String)) -> Result<Self, BenchError> {
        let unfit = |what: String, code: u8| BenchError::Worker { ordinal: config.ordinal, what, code };
        let spawned = Command::new(&work.program)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C reaches the parent only, and a kill reaches the worker's children, too.
            .process_group(0)
            .spawn();
        let mut child =
            spawned.map_err(|e| unfit(format!("cannot start a worker: {e}"), exit::ENVIRONMENT))?;
        let (stdin, stdout, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (tell, words) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()) {
                let word = line.map_err(|e| e.to_string()).and_then(|line| {
                    serde_json::from_str(&line)
                        .map_err(|e| format!("{e} in `{}`", line.chars().take(200).collect::<String>()))
                });
                if tell.send(word).is_err() {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&stderr);
        std::thread::spawn(move || keep_tail(errors, &kept));
        let mut worker = Worker { child, stdin, words, stderr };
        let config_line = serde_json::to_string(config).expect("plain data has a JSON form");
        worker.send(&config_line);
        doing("starting".into());
        let end = match worker.wait(START, &doing) {
            Ok(Word::Ready) => return Ok(worker),
            Ok(_) => End::Nonsense("a word before `ready`".into()),
            Err(end) => end,
        };
        let stderr = worker.end();
        match end {
            End::Unfit(what, code) => Err(unfit(what, code)),
            end => Err(unfit(format!("{}{}", end.words(START).1, quoted(&stderr)), exit::ENVIRONMENT)),
        }
    }

    fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            // A worker that no longer reads is dying, which is noticed when it is waited for.
            let _ = stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush());
        }
    }

    fn run(&mut self, index: usize, limit: Duration, doing: impl Fn(String)) -> Result<Box<RunRow>, End> {
        self.send(&serde_json::to_string(&Order { row: index }).expect("plain data has a JSON form"));
        match self.wait(limit, &doing)? {
            Word::Row { row } if row.index == index => Ok(row),
            Word::Row { row } => Err(End::Nonsense(format!("row {} instead of {index}", row.index))),
            _ => Err(End::Nonsense("another word than a row".into())),
        }
    }

    /// The next word that is no mere notice.
    fn wait(&mut self, limit: Duration, doing: &impl Fn(String)) -> Result<Word, End> {
        let until = Instant::now() + limit;
        loop {
            match self.words.recv_timeout(LOOK.min(limit)) {
                Ok(Ok(Word::Doing { what })) => doing(what),
                Ok(Ok(Word::Unfit { what, code })) => return Err(End::Unfit(what, code)),
                Ok(Ok(word)) => return Ok(word),
                Ok(Err(what)) => return Err(End::Nonsense(what)),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Err(End::Hung),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(End::Died(self.child.wait().ok())),
            }
        }
    }

    /// Ends the process and all that it started; what it wrote to its standard error.
    fn end(mut self) -> String {
        drop(self.stdin.take());
        let until = Instant::now() + Duration::from_secs(2);
        // Without standard input it ends by itself, at once unless it hangs in the driver.
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::mem::take(&mut *self.stderr.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn keep_tail(stream: Option<impl Read>, kept: &Mutex<String>) {
    let Some(mut stream) = stream else { return };
    let mut chunk = [0; 4096];
    while let Ok(read) = stream.read(&mut chunk) {
        if read == 0 {
            break;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_str(&String::from_utf8_lossy(&chunk[..read]));
        let skipped = kept.chars().count().saturating_sub(2 * STDERR);
        if skipped > 0 {
            *kept = kept.chars().skip(skipped).collect();
        }
    }
}

/// Counts by GPU of what is being done, for a progress line.
pub fn doing_line(doing: &BTreeMap<u32, String>) -> String {
    doing.iter().map(|(gpu, what)| format!("[{gpu}] {what}")).collect::<Vec<_>>().join("  ")
}
