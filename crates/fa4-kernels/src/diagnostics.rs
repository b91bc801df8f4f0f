//! The compiler's messages, made to lead to a `.cu` line.
//!
//! The compiler writes `kernels/k.cu(12): error: …`; the assembler speaks of lines of the PTX that nobody wrote.
//! Both become `crates/fa4-kernels/cuda/kernels/k.cu:12: error: …`, which editors and terminals open.

use std::collections::HashSet;
use std::path::Path;

use crate::source::Source;

/// The log without the assembler's statistics, each message with its `file:line:`. `cuda` is the include root as it
/// is to be shown; `ptx` is what the assembler was given, if it got that far.
pub fn readable(log: &str, ptx: Option<&str>, cuda: &Path, source: &Source) -> String {
    let mut out = String::new();
    // One line of a wrapper becomes hundreds of PTX lines: the same complaint about it is worth saying once.
    let mut seen = HashSet::new();
    let mut repeated = 0usize;
    for line in log.lines().filter(|line| !is_statistics(line)) {
        if let Some((file, number, message)) = compiler_message(line) {
            out.push_str(&format!("{}:{number}: {message}", shown(file, cuda, source)));
        } else if let Some(number) = assembler_line(line) {
            match ptx.and_then(|ptx| origin(ptx, number)) {
                None => out.push_str(line),
                Some(at) => {
                    let complaint = line.split_once(';').map_or(line, |(_, complaint)| complaint);
                    if !seen.insert((at.file.clone(), at.line, complaint.to_owned())) {
                        repeated += 1;
                        continue;
                    }
                    out.push_str(&format!("{}:{}: {line}", shown(&at.file, cuda, source), at.line));
                    if let Some(text) = ptx.and_then(|ptx| ptx.lines().nth(number - 1)) {
                        out.push_str(&format!("\n    {}", text.trim()));
                    }
                }
            }
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    if repeated > 0 {
        out.push_str(&format!("({repeated} more about the same lines)\n"));
    }
    out.trim_end().to_owned()
}

/// The first instruction that reads or writes local memory: its `file:line` and text.
pub fn local_memory(ptx: &str, cuda: &Path, source: &Source) -> Option<(String, String)> {
    let is_local = |line: &&str| line.contains("ld.local") || line.contains("st.local");
    let (index, line) = ptx.lines().enumerate().find(|(_, line)| is_local(line))?;
    let at = match origin(ptx, index + 1) {
        Some(at) => format!("{}:{}", shown(&at.file, cuda, source), at.line),
        None => format!("PTX line {}", index + 1),
    };
    Some((at, line.trim().to_owned()))
}

/// PTX with the `.file` names as the compiler was given them. It puts the process's working folder in front, which
/// would make the text (and every golden made from it) depend on where the build ran.
pub fn relative_files(ptx: &str) -> String {
    let Ok(here) = std::env::current_dir() else { return ptx.to_owned() };
    let prefix = format!("\"{}/", here.display());
    let mut out = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        if line.trim_start().starts_with(".file") {
            out.push_str(&line.replacen(&prefix, "\"", 1));
        } else {
            out.push_str(line);
        }
    }
    out
}

fn is_statistics(line: &str) -> bool {
    line.starts_with("ptxas info") || line.starts_with("ptxas         .")
}

/// `kernels/k.cu(12): error: text` → (`kernels/k.cu`, 12, `error: text`).
fn compiler_message(line: &str) -> Option<(&str, usize, &str)> {
    let (head, message) = line.split_once("): ")?;
    let (file, number) = head.rsplit_once('(')?;
    Some((file, number.parse().ok()?, message))
}

/// `ptxas application ptx input, line 35; error : …` → 35.
fn assembler_line(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once(" input, line ")?;
    rest.split(';').next()?.trim().parse().ok().filter(|&number| number > 0)
}

struct Origin {
    file: String,
    line: usize,
}

/// Where line `number` of `ptx` comes from: the `.loc` in force there.
fn origin(ptx: &str, number: usize) -> Option<Origin> {
    let lines: Vec<&str> = ptx.lines().collect();
    let loc = lines.get(..number)?.iter().rev().find_map(|line| line.trim_start().strip_prefix(".loc"))?;
    let mut words = loc.split_whitespace();
    let index = words.next()?;
    let line = words.next()?.parse().ok()?;
    let file = lines.iter().find_map(|line| {
        let rest = line.trim_start().strip_prefix(".file")?.trim_start();
        let (found, name) = rest.split_once(char::is_whitespace)?;
        (found == index).then(|| name.trim().trim_matches('"').to_owned())
    })?;
    Some(Origin { file, line })
}

/// `file` as a path from the workspace root, if it lies below the include root; else as it is.
fn shown(file: &str, cuda: &Path, source: &Source) -> String {
    let below = |name: &str| file == name || file.ends_with(&format!("/{name}"));
    let name = source.headers.iter().map(|(name, _)| name).chain([&source.name]).find(|name| below(name));
    match name {
        Some(name) if Path::new(name).is_relative() => cuda.join(name).display().to_string(),
        Some(name) => name.clone(),
        None => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source {
            name: "kernels/k.cu".into(),
            text: String::new(),
            headers: vec![("ptx/a.cuh".into(), String::new())],
        }
    }

    #[test]
    fn compiler_messages_become_clickable() {
        let log = "kernels/k.cu(3): error: identifier \"x\" is undefined\n   x = 1;\n   ^\nptxas info    : 0 bytes gmem\n";
        let text = readable(log, None, Path::new("cuda"), &source());
        assert_eq!(text, "cuda/kernels/k.cu:3: error: identifier \"x\" is undefined\n   x = 1;\n   ^");
    }

    #[test]
    fn assembler_messages_lead_to_the_source_line() {
        let ptx = "\t.loc\t1 9 2\n\t.loc\t2 3 2, function_name $L__info_string0, inlined_at 1 9 2\n\tmul.lo.s37 %r1, %r2, 3;\n\t.file\t1 \"/somewhere/kernels/k.cu\"\n\t.file\t2 \"/somewhere/ptx/a.cuh\"\n";
        let message = "ptxas application ptx input, line 3; error   : Unknown modifier '.s37'\n";
        let log = message.repeat(3);
        let text = readable(&log, Some(ptx), Path::new("cuda"), &source());
        assert_eq!(
            text,
            "cuda/ptx/a.cuh:3: ptxas application ptx input, line 3; error   : Unknown modifier '.s37'\n    mul.lo.s37 %r1, %r2, 3;\n(2 more about the same lines)"
        );
    }

    #[test]
    fn working_folder_leaves_the_file_lines() {
        let here = std::env::current_dir().unwrap();
        let ptx = format!("ret;\n\t.file\t1 \"{}/kernels/k.cu\"\n", here.display());
        assert_eq!(relative_files(&ptx), "ret;\n\t.file\t1 \"kernels/k.cu\"\n");
    }
}
