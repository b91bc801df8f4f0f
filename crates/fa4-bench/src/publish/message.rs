//! What is said about a result folder: a line for the commit, a comment for the pull request.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::error::PublishError;
use crate::env::Env;
use crate::error::BenchError;
use crate::folder;
use crate::record::RunRow;
use crate::render;

/// GitHub cuts a status's description off here.
const MOST_DESCRIPTION_CHARS: usize = 140;
/// GitHub refuses longer comments (65536); the rest is room for what frames them.
const MOST_COMMENT_CHARS: usize = 65_000;
/// Rows that failed, in a comment, and what is shown of each.
const MOST_FAILURES: usize = 20;
const MOST_FAILURE_CHARS: usize = 500;
/// Table of a result folder, where `results report` has made one.
const SUMMARY: &str = "summary.md";

/// What is said about a result folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `success` or `failure`.
    pub state: &'static str,
    /// One line for the commit.
    pub description: String,
    /// Markdown for the pull request; begins with [`marker`].
    pub comment: String,
}

/// First line of a comment, by which a later run finds it again.
pub fn marker(context: &str) -> String {
    format!("<!-- fa4-bench: {context} -->")
}

/// Reads a folder and words it.
///
/// # Errors
/// A folder that holds no results.
pub fn message(folder: &Path, context: &str) -> Result<Message, PublishError> {
    let broken = |error: BenchError| PublishError::Results { path: folder.into(), what: error.to_string() };
    let env = folder::env(folder).map_err(broken)?;
    if env.settings.mock.is_some() {
        let what = "holds a mock's figures, which mean nothing to anybody".into();
        return Err(PublishError::Results { path: folder.into(), what });
    }
    let rows = folder::rows(folder).map_err(broken)?;
    let planned = folder::cases(folder).map_err(broken)?.len();
    let table = fs::read_to_string(folder.join(SUMMARY));
    let table = table.unwrap_or_else(|_| code(&shortened(&render::table(&rows), MOST_COMMENT_CHARS / 2)));
    Ok(word(&env, &rows, planned, &table, context))
}

fn word(env: &Env, rows: &[RunRow], planned: usize, table: &str, context: &str) -> Message {
    let wrong = rows.iter().filter(|row| row.status.is_wrong()).count();
    let missing = planned.saturating_sub(rows.len());
    let state = if wrong == 0 && missing == 0 && !rows.is_empty() { "success" } else { "failure" };
    let mut summary = render::summary(rows);
    if missing > 0 {
        let _ = write!(summary, "; {missing} of {planned} rows did not run");
    }
    let mut comment = format!("{}\n### {context}: {state}\n\n{summary}.\n\n", marker(context));
    let gpus: Vec<&str> = env.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let _ = writeln!(comment, "Commit {}, {}, {}.\n", env.commit, gpus.join(", "), env.started);
    let failing: Vec<&RunRow> = rows.iter().filter(|row| row.status.is_wrong()).collect();
    if !failing.is_empty() {
        let line = |row: &&RunRow| clipped(&render::line(row), MOST_FAILURE_CHARS);
        let lines: Vec<String> = failing.iter().take(MOST_FAILURES).map(line).collect();
        let more = failing.len().saturating_sub(MOST_FAILURES);
        let tail = if more > 0 { format!("\nand {more} more") } else { String::new() };
        let _ = writeln!(comment, "{}\n", code(&format!("{}{tail}", lines.join("\n"))));
    }
    let room = MOST_COMMENT_CHARS.saturating_sub(comment.chars().count());
    let _ =
        write!(comment, "<details><summary>Table</summary>\n\n{}\n\n</details>\n", shortened(table, room));
    Message { state, description: clipped(&summary, MOST_DESCRIPTION_CHARS), comment }
}

/// A block that is shown as it is. Nothing in it can end it: rows hold other people's words.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

/// Whole lines of `text`, about `most` characters of them.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let (mut kept, mut chars) = (String::new(), 0);
    for line in text.lines() {
        chars += line.chars().count() + 1;
        if chars > most {
            break;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept + "… (the rest is in the result folder)"
}

fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::unmeasured;
    use crate::plan;
    use crate::record::Status;

    fn row(index: usize, status: Status, reason: &str) -> RunRow {
        let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sets/edge.csv");
        let rows = plan::read(&set).unwrap();
        unmeasured(index, &rows[index], 1, status, reason)
    }

    #[test]
    fn missing_and_wrong_rows_fail() {
        let good = vec![row(0, Status::Pass, ""), row(1, Status::Unsupported, "no kernel")];
        let say = |rows: &[RunRow], planned| word(&Env::empty(), rows, planned, "|t|", "h200");
        assert_eq!(say(&good, 2).state, "success");
        assert_eq!(say(&good, 3).state, "failure");
        assert!(say(&good, 3).description.contains("1 of 3 rows did not run"));
        assert_eq!(say(&[], 0).state, "failure");
        let bad = [good, vec![row(2, Status::Fault, "KV_full never arrives")]].concat();
        let said = say(&bad, 3);
        assert_eq!(said.state, "failure");
        assert!(said.comment.contains("KV_full never arrives"));
        assert!(said.comment.starts_with("<!-- fa4-bench: h200 -->\n"));
    }

    #[test]
    fn limits_are_kept() {
        let rows: Vec<RunRow> = (0..30).map(|i| row(i, Status::Fault, &"long reason ".repeat(50))).collect();
        let said = word(&Env::empty(), &rows, 30, &"a row of a table\n".repeat(10_000), "h200");
        assert!(said.comment.chars().count() < 65_536);
        assert!(
            said.comment.contains("and 10 more") && said.comment.contains("the rest is in the result folder")
        );
        assert!(said.comment.ends_with("</details>\n"));
        assert_eq!(clipped("abcdef", 4), "abc…");
    }

    /// What a kernel's message says must not become markup.
    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert!(code("a ```` b").starts_with("`````text\n"));
        assert!(code("plain").starts_with("```text\n"));
    }
}
