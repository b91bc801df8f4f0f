//! Rules that tie the documents to the tree: a map of files that are not there is worse than none.

use super::{Problem, SourceFile};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const GLOSSARY: &str = "GLOSSARY.md";
const DECISIONS: &str = "docs/decisions/";
const KERNELS: &str = "crates/fa4-kernels/cuda/kernels/";
/// An overview is read in one sitting.
const LONGEST_OVERVIEW: usize = 250;

/// All rules on documents.
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for needed in ["README.md", ARCHITECTURE, GLOSSARY, "STYLE.md"] {
        if !files.iter().any(|file| file.path == needed) {
            problems.push(Problem::new(needed, 0, "does not exist"));
        }
    }
    code_map(files, &mut problems);
    glossary(files, &mut problems);
    decisions(files, &mut problems);
    problems
}

fn text<'a>(files: &'a [SourceFile], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
}

/// Every path in the code map exists, and every crate is on it.
fn code_map(files: &[SourceFile], problems: &mut Vec<Problem>) {
    let text = text(files, ARCHITECTURE);
    let lines = text.lines().count();
    if lines > LONGEST_OVERVIEW {
        let message = format!("{lines} lines; an overview has at most {LONGEST_OVERVIEW}");
        problems.push(Problem::new(ARCHITECTURE, 0, message));
    }
    let exists = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches('/'));
        files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    };
    let mut mapped = Vec::new();
    let mut in_map = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            in_map = title.trim() == "Code map";
        } else if in_map {
            for path in quoted(line).filter(|name| name.contains('/') || name.ends_with(".md")) {
                mapped.push(path.to_owned());
                if !exists(path) {
                    let message = format!("the code map names `{path}`, which does not exist");
                    problems.push(Problem::new(ARCHITECTURE, index + 1, message));
                }
            }
        }
    }
    for file in files {
        let Some(folder) = file.path.strip_suffix("/Cargo.toml") else { continue };
        if !mapped.iter().any(|path| path.starts_with(folder)) {
            problems.push(Problem::new(ARCHITECTURE, 0, format!("the code map lacks `{folder}/`")));
        }
    }
}

/// Every name in a kernel's tables is explained.
fn glossary(files: &[SourceFile], problems: &mut Vec<Problem>) {
    let explained: Vec<&str> = text(files, GLOSSARY).lines().flat_map(quoted).collect();
    for file in files.iter().filter(|file| file.path.starts_with(KERNELS)) {
        for (index, line) in file.text.lines().enumerate() {
            let Some(name) = table_name(line) else { continue };
            // `softmax0`, `softmax1` are two of `softmax`.
            let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
            if !explained.contains(&name) && !explained.contains(&family) {
                let message = format!("`{name}` stands in a table but not in {GLOSSARY}");
                problems.push(Problem::new(&file.path, index + 1, message));
            }
        }
    }
}

/// `    {"S_full", …` → `S_full`: how a table's row begins.
fn table_name(line: &str) -> Option<&str> {
    let name = line.trim_start().strip_prefix("{\"")?.split('"').next()?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(name)
}

/// Texts between single backticks, `, `-separated lists taken apart.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).flat_map(|text| text.split([' ', ','])).filter(|text| !text.is_empty())
}

/// NNNN-what-it-is-about.md, no number twice. Gaps are fine: branches that work side by side take ranges.
fn decisions(files: &[SourceFile], problems: &mut Vec<Problem>) {
    let mut taken: Vec<&str> = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(DECISIONS) else { continue };
        let number = name.strip_suffix(".md").and_then(|name| name.split_once('-')).map(|(number, _)| number);
        match number.filter(|digits| digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit())) {
            None => {
                problems.push(Problem::new(&file.path, 0, "a decision is called NNNN-what-it-is-about.md"))
            }
            Some(number) if taken.contains(&number) => {
                problems.push(Problem::new(&file.path, 0, format!("there is another decision {number}")));
            }
            Some(number) => taken.push(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    fn messages(files: &[SourceFile], rule: fn(&[SourceFile], &mut Vec<Problem>)) -> Vec<String> {
        let mut problems = Vec::new();
        rule(files, &mut problems);
        problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn the_code_map_is_compared_with_the_tree() {
        let map = "`crates/gone/` outside the map\n## Code map\n- `crates/a/` and `crates/a/src/b.rs`\n## Next\n`crates/gone/`\n";
        let files =
            [file("ARCHITECTURE.md", map), file("crates/a/Cargo.toml", ""), file("crates/c/Cargo.toml", "")];
        let found = messages(&files, code_map);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(
            found[0],
            "ARCHITECTURE.md:3: the code map names `crates/a/src/b.rs`, which does not exist"
        );
        assert_eq!(found[1], "ARCHITECTURE.md: the code map lacks `crates/c/`");
    }

    #[test]
    fn table_names_need_an_entry() {
        let table = "constexpr Table kBarriers = {\n    {\"S_full\", \"mma\"},\n    {\"softmax1\", 4},\n    {\"X\", 1},\n";
        let files = [
            file("GLOSSARY.md", "| `S_full`, `Q_full` | … |\n| `softmax` | … |\n"),
            file("crates/fa4-kernels/cuda/kernels/k.cu", table),
        ];
        let found = messages(&files, glossary);
        assert_eq!(
            found,
            ["crates/fa4-kernels/cuda/kernels/k.cu:4: `X` stands in a table but not in GLOSSARY.md"]
        );
    }

    #[test]
    fn decisions_are_counted() {
        let files = [
            file("docs/decisions/0001-a.md", ""),
            file("docs/decisions/0001-b.md", ""),
            file("docs/decisions/0003-c.md", ""),
            file("docs/decisions/notes.md", ""),
        ];
        assert_eq!(messages(&files, decisions).len(), 2);
        assert!(messages(&files[..1], decisions).is_empty());
    }
}
