//! What became of the mutants: for people, for machines, for the document.

use std::collections::BTreeMap;
use std::path::Path;

use ptx_emu::mutation::Class;
use serde::Serialize;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use crate::error::GateError;
use crate::mutate::evidence::Evidence;
use crate::mutate::name::Mutant;
use crate::mutate::state::Found;
use crate::mutate::target::Target;
use crate::mutate::trial::Outcome;

/// One mutant's row.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Kernel.
    pub kernel: &'static str,
    /// Variant.
    pub target: String,
    /// Name.
    pub id: String,
    /// Class.
    pub class: &'static str,
    /// The source line.
    pub at: String,
    /// The line that calls the helper which it stands in.
    pub via: String,
    /// The lines before these two.
    #[serde(skip)]
    pub after: [String; 2],
    /// Instruction and change.
    pub mutation: String,
    /// How it ended, and by what it was noticed.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What was said about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Evidence>,
    /// Why it may survive.
    pub justified: Option<String>,
    /// Wall time of its runs.
    pub seconds: f64,
}

impl Row {
    /// A row without a justification.
    pub fn new(target: &Target, mutant: &Mutant, found: Found) -> Self {
        Row {
            kernel: target.row.kernel,
            target: target.name(),
            id: mutant.id.clone(),
            class: mutant.mutation.class.as_str(),
            at: mutant.at.clone(),
            via: mutant.via.clone(),
            after: mutant.after.clone(),
            mutation: mutant.what.clone(),
            outcome: found.outcome,
            report: found.report,
            justified: None,
            seconds: found.seconds,
        }
    }

    /// Survived, or was not judged, and nobody says why it may.
    pub fn is_hole(&self) -> bool {
        !self.outcome.is_noticed() && self.justified.is_none()
    }
}

/// The columns of the tables.
const COLUMNS: [&str; 8] =
    ["class", "mutants", "fault", "wrong result", "hang reported", "strict only", "justified", "holes"];

/// A line per class, and one for all.
fn lines(rows: &[Row]) -> Vec<[String; 8]> {
    let line = |name: &str, rows: &[&Row]| {
        let count = |test: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| test(row)).count().to_string();
        let ended = |word: &'static str| count(&|row: &Row| row.outcome.word() == word);
        [
            name.to_string(),
            rows.len().to_string(),
            ended("fault"),
            ended("wrong result"),
            ended("hang reported"),
            ended("strict only"),
            count(&|row: &Row| !row.outcome.is_noticed() && row.justified.is_some()),
            count(&Row::is_hole),
        ]
    };
    let of = |class: Class| rows.iter().filter(|row| row.class == class.as_str()).collect::<Vec<_>>();
    let classes = Class::ALL.into_iter().map(|class| (class.as_str(), of(class)));
    let mut all: Vec<_> =
        classes.filter(|(_, rows)| !rows.is_empty()).map(|(name, rows)| line(name, &rows)).collect();
    all.push(line("all", &rows.iter().collect::<Vec<_>>()));
    all
}

/// The table for people, with the checks that caught most below it.
pub fn table(rows: &[Row]) -> String {
    let mut builder = Builder::default();
    builder.push_record(COLUMNS);
    lines(rows).into_iter().for_each(|line| builder.push_record(line));
    let mut table = builder.build();
    table.with(Style::sharp());
    for column in 1..COLUMNS.len() {
        table.modify(Columns::one(column), Alignment::right());
    }
    format!("{table}\n{}", checks(rows))
}

/// `lease.tmem 120, deadlock 80, …`: what noticed how many.
fn checks(rows: &[Row]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for row in rows.iter().filter(|row| row.outcome.is_noticed()) {
        *counts.entry(row.outcome.by()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(by, count)| (std::cmp::Reverse(*count), *by));
    let list: Vec<String> = counts.iter().map(|(by, count)| format!("{by} {count}")).collect();
    format!("noticed by: {}", list.join(", "))
}

/// One line.
pub fn summary(rows: &[Row]) -> String {
    let holes = rows.iter().filter(|row| row.is_hole()).count();
    let justified = rows.iter().filter(|row| !row.outcome.is_noticed() && row.justified.is_some()).count();
    let noticed = rows.iter().filter(|r| r.outcome.is_noticed()).count();
    format!("{} mutants: {noticed} noticed, {justified} survivors justified, {holes} holes", rows.len())
}

/// Writes the rows as a JSON array, one object a line.
///
/// # Errors
/// [`GateError::File`].
pub fn write_json(path: &Path, rows: &[Row]) -> Result<(), GateError> {
    let lines: Vec<String> =
        rows.iter().map(|row| serde_json::to_string(row).expect("plain data has a JSON form")).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(path, text).map_err(|source| GateError::File { path: path.to_path_buf(), source })
}

/// Rewrites the kernel's table between its markers in a document.
///
/// # Errors
/// [`GateError::File`], [`GateError::Mutants`] where the markers are missing.
pub fn write_doc(path: &Path, kernel: &str, rows: &[Row]) -> Result<(), GateError> {
    let error = |source| GateError::File { path: path.to_path_buf(), source };
    let text = std::fs::read_to_string(path).map_err(error)?;
    let begin = format!("<!-- begin generated: mutate {kernel} -->\n");
    let end = "<!-- end generated: mutate -->";
    let missing = || GateError::Mutants {
        path: path.to_path_buf(),
        what: format!("no `{}` … `{end}` in it", begin.trim_end()),
    };
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut body = row(&COLUMNS.map(str::to_string));
    body += &format!("|{}\n", "---|".repeat(COLUMNS.len()));
    lines(rows).iter().for_each(|line| body += &row(line));
    let mut variants: Vec<&str> = rows.iter().map(|row| row.target.as_str()).collect();
    variants.dedup();
    body += &format!("\nVariants: {}. {}.\n", variants.join(", "), capital(&checks(rows)));
    std::fs::write(path, format!("{before}{begin}{body}{end}{after}")).map_err(error)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
