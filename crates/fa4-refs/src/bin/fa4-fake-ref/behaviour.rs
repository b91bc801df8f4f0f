//! How a fake reference misbehaves, and in which operation.

use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use fa4_refs::protocol::{ErrorKind, ErrorReply};
use serde_json::{Value, json};

/// A reference with its fault.
#[derive(Debug, Clone)]
pub struct Persona {
    /// Its name.
    pub name: String,
    /// What it does wrong, and in which operation.
    pub fault: Option<(Fault, String)>,
    /// On its timings.
    pub factor: f64,
}

impl Persona {
    /// The fault that shows in `op`.
    pub fn strikes(&self, op: &str) -> Option<Fault> {
        self.fault.as_ref().filter(|(_, at)| at == op).map(|(fault, _)| *fault)
    }
}

impl FromStr for Persona {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, factor) = match text.split_once('*') {
            Some((text, factor)) => {
                (text, factor.parse().map_err(|_| format!("`{factor}` is not a factor"))?)
            }
            None => (text, 1.0),
        };
        let (name, fault) = match text.split_once(':') {
            Some((name, fault)) => (name, Some(fault)),
            None => (text, None),
        };
        let fault = match fault {
            None => None,
            Some(fault) => {
                let (fault, op) = fault.split_once('@').map_or((fault, None), |(f, op)| (f, Some(op)));
                let fault = Fault::from_name(fault)?;
                Some((fault, op.unwrap_or(fault.usual_op()).to_owned()))
            }
        };
        if name.is_empty() {
            return Err("a reference needs a name".into());
        }
        Ok(Persona { name: name.into(), fault, factor })
    }
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal @ $op:literal,)*) => {
        /// What can be wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault { $($(#[doc = $doc])+ $variant,)* }

        impl Fault {
            fn from_name(name: &str) -> Result<Self, String> {
                match name {
                    $($name => Ok(Fault::$variant),)*
                    _ => {
                        let lines = [$(concat!("  ", $name, " (", $op, "):", $($doc),+)),*];
                        Err(format!("`{name}` is no fault; there are, with their usual operation:\n{}", lines.join("\n")))
                    }
                }
            }

            /// The operation that shows it best.
            fn usual_op(self) -> &'static str {
                match self { $(Fault::$variant => $op,)* }
            }
        }
    };
}

faults! {
    /// answers after a second
    Delay = "delay" @ "time",
    /// never answers
    Hang = "hang" @ "time",
    /// never answers, nor do its own children, which ignore that their parent is gone
    HangWithChildren = "hang-with-children" @ "time",
    /// ends with exit code 3
    Crash = "crash" @ "time",
    /// ends by a signal
    Abort = "abort" @ "time",
    /// closes its standard output and goes on
    Mute = "mute" @ "time",
    /// says another protocol version
    Version = "version" @ "hello",
    /// answers with something that is not JSON
    Garbage = "garbage" @ "time",
    /// answers with bytes that are not text
    Binary = "binary" @ "time",
    /// answers with a line that does not end
    Endless = "endless" @ "time",
    /// dies within a line
    HalfLine = "half-line" @ "time",
    /// answers another request
    WrongId = "wrong-id" @ "time",
    /// answers with an object of another form
    WrongForm = "wrong-form" @ "time",
    /// writes megabytes to its standard error, then crashes
    StderrFlood = "stderr-flood" @ "time",
    /// gives fewer times than asked
    FewTimes = "few-times" @ "time",
    /// gives a time of zero
    ZeroTime = "zero-time" @ "time",
    /// one key too few in every row
    Wrong = "wrong" @ "output",
    /// leaves part of O unwritten
    Unwritten = "unwritten" @ "output",
    /// writes a file that is too short
    ShortOutput = "short-output" @ "output",
    /// writes no file
    NoOutput = "no-output" @ "output",
    /// gives no LSE
    NoLse = "no-lse" @ "output",
    /// gives a binary LSE and says so
    BinaryLse = "binary-lse" @ "output",
    /// gives a binary LSE and calls it natural
    LyingLse = "lying-lse" @ "output",
    /// another kernel ran than was asked for
    OtherRoute = "other-route" @ "route",
    /// is not installed
    Unavailable = "unavailable" @ "versions",
    /// does not do this
    Unsupported = "unsupported" @ "supports",
    /// runs out of device memory
    OutOfMemory = "out-of-memory" @ "prepare",
    /// raises an error
    Failed = "failed" @ "prepare",
}

impl Fault {
    /// The refusal that this fault is.
    pub fn refusal(self) -> Option<ErrorReply> {
        let (kind, message) = match self {
            Fault::Unavailable => (ErrorKind::Unavailable, "no module named fake"),
            Fault::Unsupported => (ErrorKind::Unsupported, "head_dim 128 only"),
            Fault::OutOfMemory => (ErrorKind::OutOfMemory, "tried to allocate 20 GiB"),
            Fault::Failed => (ErrorKind::Failed, "RuntimeError: invalid configuration"),
            _ => return None,
        };
        eprintln!("fake trouble: {message}");
        Some(ErrorReply { kind, message: message.into() })
    }

    /// Misbehaves before the answer to request `id`; may not come back. Gives the number to answer with.
    pub fn before_answer(self, id: u64) -> Option<u64> {
        let raw = |bytes: &[u8]| {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(bytes).and_then(|()| out.flush());
        };
        match self {
            Fault::Delay => std::thread::sleep(Duration::from_secs(1)),
            Fault::Hang => hang(),
            Fault::HangWithChildren => {
                let child = std::process::Command::new("sleep").arg("1000").spawn();
                match child {
                    Ok(child) => eprintln!("child {}", child.id()),
                    Err(error) => eprintln!("no child: {error}"),
                }
                hang()
            }
            Fault::Crash => {
                eprintln!("fake trouble: an illegal memory access was encountered");
                std::process::exit(3)
            }
            Fault::Abort => std::process::abort(),
            Fault::Mute => {
                // The one way to close standard output without foreign calls is to become a program that does.
                let error = std::os::unix::process::CommandExt::exec(
                    std::process::Command::new("sh").args(["-c", "exec >&-; sleep 1000"]),
                );
                eprintln!("cannot start sh: {error}");
                std::process::exit(3)
            }
            Fault::Garbage => {
                raw(b"Traceback (most recent call last):\n");
                hang()
            }
            Fault::Binary => {
                raw(b"\xff\xfe\x00\n");
                hang()
            }
            Fault::Endless => {
                for _ in 0..(10 << 10) {
                    raw(&[b'x'; 1 << 10]);
                }
                hang()
            }
            Fault::HalfLine => {
                raw(b"{\"id\": 0, \"ok\": {\"us\": [1.0,");
                std::process::exit(0)
            }
            Fault::WrongId => return Some(id + 1000),
            Fault::StderrFlood => {
                let mut errors = std::io::stderr().lock();
                for i in 0..100_000 {
                    let _ = writeln!(errors, "warning {i}: this library warns about everything, always");
                }
                let _ = writeln!(errors, "the last words");
                std::process::exit(3)
            }
            _ => {}
        }
        None
    }

    /// Misbehaves in the answer itself.
    pub fn change(self, ok: Value) -> Value {
        match self {
            Fault::Version => json!({ "protocol": 99, "references": ok["references"] }),
            Fault::WrongForm => json!({ "surprise": true }),
            Fault::FewTimes => json!({ "us": [1.0], "host_us": 1.0, "buffers": 1 }),
            Fault::ZeroTime => {
                let mut ok = ok;
                if let Some(first) = ok["us"].get_mut(0) {
                    *first = json!(0.0);
                }
                ok
            }
            _ => ok,
        }
    }
}

fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}
