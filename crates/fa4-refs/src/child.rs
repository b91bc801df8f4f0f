//! A child process that is spoken to in lines: bounded lines, bounded memory for what it writes to its standard error,
//! a deadline for every answer, and an end that takes its whole process group along.
//!
//! `std::process` instead of duct, which has no writable standard input that stays open between answers.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::Stderr;

/// A longer answer is no answer. A hundred thousand timings fit.
const LONGEST_LINE_BYTES: u64 = 8 << 20;
/// What is kept of the standard error.
const STDERR_BYTES: usize = 64 << 10;
/// Answers that wait to be read; a child that floods us then waits, too.
const LINES_AHEAD: usize = 4;
/// How long a child may take to end by itself once its standard input is closed.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long the end of the standard error is waited for after a death.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Why there is no line.
#[derive(Debug)]
pub enum NoLine {
    /// Nothing in time.
    Timeout,
    /// The child closed its standard output: it is ending or has ended.
    Ended,
    /// Bytes that are no line of text, in words.
    Garbage(String),
}

enum Event {
    Line(String),
    Garbage(String),
}

/// A running child.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Event>,
    stderr: Arc<Mutex<Tail>>,
}

impl Child {
    /// Starts `command` in a process group of its own, with all three streams piped.
    pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().expect("standard output is piped");
        let errors = process.stderr.take().expect("standard error is piped");
        let (sender, lines) = sync_channel(LINES_AHEAD);
        // Neither thread is ever joined: a grandchild that left the group may hold the pipes open for good.
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            while let Some(event) = next_line(&mut reader) {
                let last = matches!(event, Event::Garbage(_));
                if sender.send(event).is_err() || last {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Tail::default()));
        let kept = Arc::clone(&stderr);
        thread::spawn(move || keep_tail(errors, &kept));
        Ok(Child { process, stdin, lines, stderr })
    }

    /// Sends a line, and forgets what was written to the standard error before: that belongs to earlier requests.
    /// Requests are far smaller than a pipe's buffer and one at a time, so this does not block.
    pub fn send(&mut self, line: &str) -> std::io::Result<()> {
        self.tail().clear();
        let stdin = self.stdin.as_mut().expect("open until the child is dropped");
        stdin.write_all(line.as_bytes())?;
        stdin.write_all(b"\n")?;
        stdin.flush()
    }

    /// Waits for a line.
    pub fn receive(&mut self, deadline: Duration) -> Result<String, NoLine> {
        match self.lines.recv_timeout(deadline) {
            Ok(Event::Line(line)) => Ok(line),
            Ok(Event::Garbage(what)) => Err(NoLine::Garbage(what)),
            Err(RecvTimeoutError::Timeout) => Err(NoLine::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(NoLine::Ended),
        }
    }

    /// What it wrote to its standard error since the last request, at most the last 64 KiB.
    pub fn stderr(&self) -> Stderr {
        Stderr(self.tail().text())
    }

    /// The same for a child that has just answered: what it wrote before may still be on its way through another pipe.
    pub fn settled_stderr(&self) -> Stderr {
        let until = Instant::now() + LAST_WORDS;
        let mut seen = 0;
        loop {
            thread::sleep(Duration::from_millis(10));
            let written = self.tail().written();
            if written > 0 && written == seen || Instant::now() > until {
                return self.stderr();
            }
            seen = written;
        }
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.stderr.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Ends the child and all in its process group; says how it ended.
    pub fn kill(mut self) -> (String, Stderr) {
        let how = match self.wait(Duration::ZERO) {
            Some(status) => describe(status),
            None => {
                self.kill_group();
                self.wait(FAREWELL).map_or_else(|| "does not die".into(), describe)
            }
        };
        (how, self.last_words())
    }

    /// Waits a moment for a child that closed its standard output; kills it if it lives on.
    pub fn bury(mut self) -> (String, Stderr) {
        match self.wait(FAREWELL) {
            Some(status) => {
                // Its own children may live on.
                self.kill_group();
                (describe(status), self.last_words())
            }
            None => {
                self.kill_group();
                self.wait(FAREWELL);
                ("closed its standard output and went on running; it was killed".into(), self.last_words())
            }
        }
    }

    fn last_words(&self) -> Stderr {
        let until = Instant::now() + LAST_WORDS;
        while !self.tail().ended && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        self.stderr()
    }

    fn kill_group(&self) {
        // The group's number is the child's, which stays reserved while one of its members lives or it is not reaped.
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    fn wait(&mut self, most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + most;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

impl Drop for Child {
    /// Closing its standard input is the sign to end; who does not is killed.
    fn drop(&mut self) {
        self.stdin = None;
        if self.wait(FAREWELL).is_none() {
            self.kill_group();
            self.wait(FAREWELL);
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
            format!("signal {signal} ({name})")
        }
        (None, None) => status.to_string(),
    }
}

/// The next line without its end; `None` at the end of the stream.
fn next_line(reader: &mut impl BufRead) -> Option<Event> {
    let mut bytes = Vec::new();
    match reader.take(LONGEST_LINE_BYTES + 1).read_until(b'\n', &mut bytes) {
        Ok(0) | Err(_) => return None,
        Ok(_) => {}
    }
    if bytes.len() as u64 > LONGEST_LINE_BYTES {
        return Some(Event::Garbage(format!("a line of more than {LONGEST_LINE_BYTES} bytes")));
    }
    if bytes.pop_if(|&mut last| last == b'\n').is_none() {
        let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
        return Some(Event::Garbage(format!("an unfinished line: {text:?}")));
    }
    Some(match String::from_utf8(bytes) {
        Ok(line) => Event::Line(line),
        Err(_) => Event::Garbage("a line that is not UTF-8".into()),
    })
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    dropped: u64,
    ended: bool,
}

impl Tail {
    fn push(&mut self, data: &[u8]) {
        self.bytes.extend(data);
        let excess = self.bytes.len().saturating_sub(STDERR_BYTES);
        self.bytes.drain(..excess);
        self.dropped += excess as u64;
    }

    fn written(&self) -> u64 {
        self.dropped + self.bytes.len() as u64
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.dropped = 0;
    }

    fn text(&self) -> String {
        let (a, b) = self.bytes.as_slices();
        let text = String::from_utf8_lossy(&[a, b].concat()).into_owned();
        match self.dropped {
            0 => text,
            dropped => format!("[{dropped} bytes before this are not kept]\n{text}"),
        }
    }
}

fn keep_tail(mut stream: impl Read, tail: &Mutex<Tail>) {
    let lock = || tail.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut chunk = [0u8; 4096];
    while let Ok(count) = stream.read(&mut chunk) {
        if count == 0 {
            break;
        }
        lock().push(&chunk[..count]);
    }
    lock().ended = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_whole() {
        let lines = |bytes: &[u8]| {
            let mut reader = BufReader::new(bytes);
            std::iter::from_fn(|| next_line(&mut reader)).collect::<Vec<_>>()
        };
        assert!(matches!(&lines(b"a\nb\n")[..], [Event::Line(a), Event::Line(b)] if a == "a" && b == "b"));
        assert!(
            matches!(&lines(b"a\nb")[..], [Event::Line(_), Event::Garbage(what)] if what.contains("unfinished"))
        );
        assert!(matches!(&lines(b"\xff\n")[..], [Event::Garbage(what)] if what.contains("UTF-8")));
        let endless = vec![b'x'; LONGEST_LINE_BYTES as usize + 10];
        assert!(matches!(&lines(&endless)[..1], [Event::Garbage(what)] if what.contains("more than")));
    }

    #[test]
    fn the_tail_keeps_the_end() {
        let mut tail = Tail::default();
        tail.push(&vec![b'a'; STDERR_BYTES]);
        tail.push(b"end");
        assert!(tail.text().starts_with("[3 bytes") && tail.text().ends_with("aend"));
        assert_eq!(tail.bytes.len(), STDERR_BYTES);
    }
}
