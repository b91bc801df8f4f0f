//! Reader of scenario files (`sets/README.md`). Strict: the header must be the one below, every field is
//! checked where it stands, and an error names file, line, column and what is allowed there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use crate::problem::{AttnProblem, DType, Mask, ProblemError};
use crate::qdist::QDist;

/// The header line of a scenario file.
pub const HEADER: [&str; 25] = [
    "id",
    "set",
    "family",
    "phase",
    "b",
    "sq",
    "sk",
    "hq",
    "hkv",
    "d",
    "dv",
    "causal",
    "win_left",
    "win_right",
    "sink",
    "softcap",
    "q_dtype",
    "kv_dtype",
    "layout",
    "page",
    "batch_spec",
    "qdist",
    "expect",
    "note",
    "src",
];

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
        impl $name {
            /// Every value, in the order of `sets/README.md`.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The word that scenario files use.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.name()) }
        }
        impl std::str::FromStr for $name {
            type Err = ();
            fn from_str(s: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|v| v.name() == s).ok_or(())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What part of inference a row stands for.
    Phase {
        /// A whole prompt.
        Prefill = "prefill",
        /// Part of a prompt on a longer cache.
        Chunked = "chunked",
        /// One query token.
        Decode = "decode",
        /// Several query tokens on a long cache.
        Spec = "spec",
        /// Prefills and decodes together.
        Mixed = "mixed",
    }
}

words! {
    /// How a row's output is judged.
    Expect {
        /// Every row against the oracle.
        Match = "match",
        /// Sampled rows against the oracle; the problem overflows 32-bit arithmetic.
        MatchSampled = "match_sampled",
        /// The row's bits do not depend on the rest of the batch.
        SameBits = "same_bits",
    }
}

/// How batch entries lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchLayout {
    /// One length for all.
    Dense,
    /// Packed segments with cu_seqlens.
    Varlen,
    /// Keys in pages of this many tokens.
    Paged(u64),
}

impl fmt::Display for BatchLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchLayout::Dense => f.write_str("dense"),
            BatchLayout::Varlen => f.write_str("varlen"),
            BatchLayout::Paged(tokens) => write!(f, "paged{tokens}"),
        }
    }
}

/// `count` batch entries with these lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// How many.
    pub count: u64,
    /// Query tokens of each.
    pub seqlen_q: u64,
    /// Key tokens of each.
    pub seqlen_k: u64,
}

/// One line of a scenario file.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Unique in its file.
    pub id: String,
    /// Name of the set.
    pub set: String,
    /// Group within the set.
    pub family: String,
    /// Part of inference.
    pub phase: Phase,
    /// Sizes, mask and dtypes; lengths are 0 where `segments` says them.
    pub problem: AttnProblem,
    /// Memory layout of the batch.
    pub layout: BatchLayout,
    /// Lengths of mixed batches; empty for equal lengths.
    pub segments: Vec<Segments>,
    /// How the data is made.
    pub qdist: QDist,
    /// How the output is judged.
    pub expect: Expect,
    /// Words.
    pub note: String,
    /// Where the row comes from.
    pub src: String,
}

/// Why a scenario file cannot be used. `line` and `column` count from 1.
#[derive(Debug, Error)]
pub enum SetError {
    /// The file cannot be read.
    #[error("{}: cannot read the scenario file: {source}; give a CSV file in the form of sets/README.md", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// One place in the file is wrong.
    #[error("{}:{line}:{column}: {what}", path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// Line of the place.
        line: u64,
        /// Column of the place, in characters.
        column: u64,
        /// What was given and what is allowed.
        what: String,
    },
}

/// Reads a scenario file.
pub fn read(path: &Path) -> Result<Vec<Row>, SetError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SetError::Read { path: path.to_path_buf(), source })?;
    parse(path, &text)
}

/// Parses the text of a scenario file; `path` is for messages only.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Row>, SetError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut rows: Vec<Row> = Vec::new();
    let mut ids = std::collections::HashMap::new();
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|e| {
            let line = e.position().map_or(1, csv::Position::line);
            SetError::At { path: path.into(), line, column: 1, what: format!("not valid CSV: {e}") }
        })?;
        let fields = Fields { path, text, record: &record };
        if index == 0 {
            fields.check_header()?;
            continue;
        }
        let row = fields.row()?;
        if let Some(first) = ids.insert(row.id.clone(), fields.line()) {
            let what = format!("id `{}` was already used in line {first}; ids must be unique", row.id);
            return Err(fields.error(0, what));
        }
        rows.push(row);
    }
    if ids.is_empty() {
        let what = format!("no rows; expected the header `{}` and at least one row", HEADER.join(","));
        return Err(SetError::At { path: path.into(), line: 1, column: 1, what });
    }
    Ok(rows)
}

/// One record with what is needed to locate its fields.
struct Fields<'a> {
    path: &'a Path,
    text: &'a str,
    record: &'a csv::StringRecord,
}

impl Fields<'_> {
    /// First line of the record. The reader's position may still be on blank lines before it.
    fn line(&self) -> u64 {
        let start = self.start();
        1 + self.text[..start].bytes().filter(|&b| b == b'\n').count() as u64
    }

    fn start(&self) -> usize {
        let start = self.record.position().map_or(0, |p| p.byte() as usize);
        start + self.text[start..].bytes().take_while(|b| matches!(b, b'\n' | b'\r')).count()
    }

    /// Line and column where field `index` starts: walks the raw text, since quotes hide delimiters.
    fn locate(&self, index: usize) -> (u64, u64) {
        let (mut line, mut column, mut field, mut quoted) = (self.line(), 1, 0, false);
        for c in self.text[self.start()..].chars() {
            if field == index || (c == '\n' && !quoted) {
                break;
            }
            quoted ^= c == '"';
            field += usize::from(c == ',' && !quoted);
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        (line, column)
    }

    fn error(&self, index: usize, what: String) -> SetError {
        let (line, column) = self.locate(index);
        SetError::At { path: self.path.into(), line, column, what }
    }

    fn check_header(&self) -> Result<(), SetError> {
        for (index, want) in HEADER.iter().enumerate() {
            let got = self.record.get(index).unwrap_or("nothing").trim_start_matches('\u{feff}');
            if got != *want {
                let what = format!(
                    "header field {} is `{got}`, expected `{want}`; the header must be `{}`",
                    index + 1,
                    HEADER.join(",")
                );
                return Err(self.error(index, what));
            }
        }
        self.check_len()
    }

    fn check_len(&self) -> Result<(), SetError> {
        let (got, want) = (self.record.len(), HEADER.len());
        if got == want {
            return Ok(());
        }
        let what = format!("{got} fields, expected {want}; quote a field that contains a comma");
        Err(self.error(got.min(want), what))
    }

    fn text(&self, index: usize) -> &str {
        self.record.get(index).unwrap_or_default()
    }

    fn parsed<T>(
        &self,
        index: usize,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SetError> {
        let text = self.text(index);
        parse(text)
            .ok_or_else(|| self.error(index, format!("{} is `{text}`; allowed: {allowed}", HEADER[index])))
    }

    fn size(&self, index: usize, min: u64) -> Result<u64, SetError> {
        let allowed = format!("a whole number from {min} to 2^40");
        self.parsed(index, &allowed, |s| s.parse().ok().filter(|n| (min..=1 << 40).contains(n)))
    }

    fn flag(&self, index: usize) -> Result<bool, SetError> {
        self.parsed(index, "0 or 1", |s| ["0", "1"].iter().position(|x| *x == s).map(|i| i == 1))
    }

    fn window(&self, index: usize) -> Result<Option<u64>, SetError> {
        let parse = |s: &str| if s == "-1" { Some(None) } else { s.parse().ok().map(Some) };
        self.parsed(index, "-1 (unbounded) or a number of keys ≥ 0", parse)
    }

    fn word<T: FromStr>(&self, index: usize, allowed: &str) -> Result<T, SetError> {
        self.parsed(index, allowed, |s| s.parse().ok())
    }

    fn row(&self) -> Result<Row, SetError> {
        self.check_len()?;
        let id = self.parsed(0, "a name that is not empty", |s| (!s.is_empty()).then(|| s.to_string()))?;
        let dtypes = "bf16, fp16, fp8_e4m3";
        let segments = match self.text(20) {
            "" => Vec::new(),
            spec => batch_spec(spec).map_err(|what| self.error(20, what))?,
        };
        let problem = AttnProblem {
            batch: self.size(4, 0)?,
            seqlen_q: self.size(5, 0)?,
            seqlen_k: self.size(6, 0)?,
            num_heads_q: self.size(7, 1)?,
            num_heads_kv: self.size(8, 1)?,
            head_dim_qk: self.size(9, 1)?,
            head_dim_v: self.size(10, 1)?,
            mask: Mask {
                causal: self.flag(11)?,
                window_left: self.window(12)?,
                window_right: self.window(13)?,
            },
            sink: self.flag(14)?,
            softcap: self.parsed(15, "a number ≥ 0 (0 is none)", |s| s.parse().ok())?,
            scale: None,
            q_dtype: self.word::<DType>(16, dtypes)?,
            kv_dtype: self.word::<DType>(17, dtypes)?,
        };
        problem.validate().map_err(|e| {
            let field = match &e {
                ProblemError::Heads { .. } => 8,
                ProblemError::HeadDim { .. } => 9,
                ProblemError::Factor { .. } => 15,
                ProblemError::TooLarge { .. } => 4,
            };
            self.error(field, e.to_string())
        })?;
        let page = self.size(19, 0)?;
        let layout = match (self.text(18), page) {
            ("dense", 0) => BatchLayout::Dense,
            ("varlen", 0) => BatchLayout::Varlen,
            ("paged", tokens) if tokens > 0 => BatchLayout::Paged(tokens),
            (layout @ ("dense" | "varlen"), _) => {
                return Err(self.error(19, format!("page is {page}; with layout {layout} it must be 0")));
            }
            ("paged", _) => {
                return Err(self.error(19, "page is 0; with layout paged it must be ≥ 1".to_string()));
            }
            (other, _) => {
                return Err(self.error(18, format!("layout is `{other}`; allowed: dense, varlen, paged")));
            }
        };
        Ok(Row {
            id,
            set: self.text(1).to_string(),
            family: self.text(2).to_string(),
            phase: self.word(3, &list(Phase::ALL))?,
            problem,
            layout,
            segments,
            qdist: self.word(21, &list(QDist::ALL))?,
            expect: self.word(22, &list(Expect::ALL))?,
            note: self.text(23).to_string(),
            src: self.text(24).to_string(),
        })
    }
}

fn list<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Parses vLLM's batch grammar: segments joined by `_`, each `[count]q<len>[k][s<len>[k]]`; `k` is ×1024 and a
/// missing `s` means as many keys as queries.
pub fn batch_spec(spec: &str) -> Result<Vec<Segments>, String> {
    spec.split('_')
        .map(|segment| {
            parse_segment(segment).ok_or_else(|| {
                format!(
                    "batch_spec segment `{segment}` of `{spec}`; allowed: [count]q<len>[k] or \
                     [count]q<len>[k]s<len>[k], joined by `_`, as in 2q2k_32q1s1k"
                )
            })
        })
        .collect()
}

fn parse_segment(segment: &str) -> Option<Segments> {
    let (count, lengths) = segment.split_once('q')?;
    let count = if count.is_empty() { 1 } else { count.parse().ok().filter(|&n| n > 0)? };
    let length = |text: &str| {
        let (digits, unit) = text.strip_suffix('k').map_or((text, 1), |digits| (digits, 1024));
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(unit).filter(|&n| n <= 1 << 40)
    };
    let (q, k) = lengths.split_once('s').unwrap_or((lengths, lengths));
    Some(Segments { count, seqlen_q: length(q)?, seqlen_k: length(k)? })
}

#[cfg(test)]
#[path = "sets_tests.rs"]
mod tests;
