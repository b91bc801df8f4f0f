//! Rules about single files: what may be written where.

use super::{Problem, SourceFile};

/// A longer file has two jobs.
const LONGEST: usize = 900;

/// Where calls into C are made; each module gives its safety argument.
const UNSAFE_MODULES: [&str; 9] = [
    "crates/fa4-host/src/cuda/api.rs",
    "crates/fa4-host/src/cuda/gpu.rs",
    "crates/fa4-host/src/cuda/launch.rs",
    "crates/fa4-host/src/cuda/memory.rs",
    "crates/fa4-host/src/cuda/module.rs",
    "crates/fa4-host/src/cuda/nvml.rs",
    "crates/fa4-host/src/cuda/stream.rs",
    "crates/fa4-host/src/cuda/tensor_map.rs",
    "crates/fa4-kernels/src/nvrtc.rs",
];

/// Hosts that a text may point to. A package index is never one: clients are set up by whoever runs them.
const HOSTS: [&str; 10] = [
    "api.github.com",
    "arxiv.org",
    "doi.org",
    "docs.nvidia.com",
    "github.com",
    "opensource.org",
    "perfetto.dev",
    "ui.perfetto.dev",
    "www.apache.org",
    "www.w3.org",
];

/// First parts of absolute paths that exist on one machine only.
const MACHINE_FOLDERS: [&str; 5] = ["home", "root", "Users", "work", "mnt"];

/// Layers of device code, lowest first; an include leads to the same layer or a lower one.
const LAYERS: [&str; 4] = ["ptx", "prim", "attn", "kernels"];
const CUDA: &str = "crates/fa4-kernels/cuda/";

// Spelled in two halves, so that this file does not break its own rules.
const UNSAFE: &str = concat!("un", "safe");
const IGNORE: &str = concat!("#[", "ignore");
const PROMISES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
const OUTSIDE: &str = concat!("../sha", "red");

/// All rules on one file.
pub fn check(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    length(file, &mut problems);
    for (index, line) in file.text.lines().enumerate() {
        let mut report = |message: String| problems.push(Problem::new(&file.path, index + 1, message));
        let code = line.split("//").next().unwrap_or_default();
        if file.has_extension(&["rs"]) {
            if has_word(code, UNSAFE) && !UNSAFE_MODULES.contains(&file.path.as_str()) {
                report(format!("`{UNSAFE}` is allowed in {} only", UNSAFE_MODULES.join(", ")));
            }
            if code.contains(IGNORE) {
                report(format!("`{IGNORE}]`: assert what happens today, with a note, or delete the test"));
            }
        }
        if file.has_extension(&["cu", "cuh"]) {
            assembly(file, code, &mut report);
            layer(file, code, &mut report);
        }
        if file.has_extension(&["rs", "cu", "cuh", "py", "md", "toml"]) {
            promise(line, &mut report);
        }
        if !file.path.ends_with("Cargo.lock") {
            outside(line, &mut report);
        }
    }
    problems
}

/// Modules in the list of exceptions that do not exist any more.
pub fn stale_exceptions(files: &[SourceFile]) -> Vec<Problem> {
    UNSAFE_MODULES
        .iter()
        .filter(|module| !files.iter().any(|file| file.path == **module))
        .map(|module| {
            Problem::new(
                module,
                0,
                format!("may use `{UNSAFE}` but does not exist: remove it from tidy's list"),
            )
        })
        .collect()
}

fn length(file: &SourceFile, problems: &mut Vec<Problem>) {
    let lines = file.text.lines().count();
    if file.has_extension(&["rs", "cu", "cuh", "py"]) && lines > LONGEST {
        let message = format!("{lines} lines; at most {LONGEST}: split it by job");
        problems.push(Problem::new(&file.path, 0, message));
    }
}

fn assembly(file: &SourceFile, code: &str, report: &mut impl FnMut(String)) {
    if ["asm", "__asm__", "__asm"].iter().any(|word| has_word(code, word))
        && !file.path.contains("/cuda/ptx/")
    {
        report("`asm` belongs in cuda/ptx: one function, one instruction".into());
    }
}

fn layer(file: &SourceFile, code: &str, report: &mut impl FnMut(String)) {
    let level = |path: &str| LAYERS.iter().position(|layer| path.split('/').next() == Some(layer));
    let Some(own) = file.path.strip_prefix(CUDA).and_then(level) else { return };
    let Some(rest) = code.trim_start().strip_prefix("#include \"") else { return };
    let name = rest.split('"').next().unwrap_or_default();
    match level(name) {
        Some(other) if other <= own => {}
        Some(other) => report(format!(
            "cuda/{} may not include cuda/{}: includes lead downwards",
            LAYERS[own], LAYERS[other]
        )),
        None => report(format!("include \"{name}\" by its path below cuda/")),
    }
}

fn promise(line: &str, report: &mut impl FnMut(String)) {
    for promise in PROMISES {
        let Some(at) = line.find(promise) else { continue };
        if !has_word(line, promise) {
            continue;
        }
        let reason = line[at + promise.len()..].trim_start_matches([':', ' ']);
        if reason.split_whitespace().count() < 4 {
            report(format!("`{promise}` without a reason: say what is missing and what it waits for"));
        }
    }
}

/// Things that hold on one machine or in one network only.
fn outside(line: &str, report: &mut impl FnMut(String)) {
    for (at, _) in line.match_indices("://") {
        let host: String = line[at + 3..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
            .collect();
        let is_web = line[..at].ends_with("http") || line[..at].ends_with("https");
        if is_web && !host.is_empty() && !HOSTS.contains(&host.as_str()) {
            report(format!("`{host}` is not among the hosts that files may name (xtask/src/tidy/text.rs)"));
        }
    }
    for folder in MACHINE_FOLDERS {
        let path = format!("/{folder}/");
        for (at, _) in line.match_indices(&path) {
            let before = line[..at].chars().next_back();
            let continues =
                before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '}' | ')'));
            if !continues {
                report(format!("`{path}…` exists on one machine only"));
            }
        }
    }
    if line.contains(OUTSIDE) {
        report(format!("`{OUTSIDE}` lies outside the repository, which stands alone"));
    }
}

/// Whether `word` stands in `text` with no letter, digit or underscore beside it.
fn has_word(text: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile { path: path.into(), text: text.into() }).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn assembly_stays_in_its_layer() {
        let text = "int asmx; // asm\n    asm volatile(\"ret;\");\n";
        let found = messages("crates/fa4-kernels/cuda/attn/mask.cuh", text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/fa4-kernels/cuda/attn/mask.cuh:2: "), "{found:?}");
        assert!(messages("crates/fa4-kernels/cuda/ptx/math.cuh", text).is_empty());
    }

    #[test]
    fn includes_lead_downwards() {
        let path = "crates/fa4-kernels/cuda/prim/table.cuh";
        assert!(messages(path, "#include \"ptx/types.cuh\"\n#include \"prim/addr.cuh\"\n").is_empty());
        assert_eq!(messages(path, "#include \"attn/mask.cuh\"\n").len(), 1);
        assert_eq!(messages(path, "#include \"../ptx/types.cuh\"\n").len(), 1);
    }

    #[test]
    fn unsafe_code_has_its_modules() {
        let text = format!("fn f() {{ {UNSAFE} {{ g() }} }} // {UNSAFE}\n#![deny({UNSAFE}_code)]\n");
        assert_eq!(messages("crates/ptx-emu/src/lib.rs", &text).len(), 1);
        assert!(messages(UNSAFE_MODULES[0], &text).is_empty());
        assert_eq!(stale_exceptions(&[]).len(), UNSAFE_MODULES.len());
    }

    #[test]
    fn long_files_and_ignored_tests_are_refused() {
        assert_eq!(messages("a.rs", &"\n".repeat(LONGEST + 1)).len(), 1);
        assert!(messages("a.ptx", &"\n".repeat(LONGEST + 1)).is_empty());
        assert_eq!(messages("a.rs", &format!("{IGNORE}]\n")).len(), 1);
    }

    #[test]
    fn promises_need_a_reason() {
        let promise = PROMISES[0];
        assert_eq!(messages("a.rs", &format!("// {promise}\n// {promise}: later\n")).len(), 2);
        assert!(messages("a.rs", &format!("// {promise}: needs clusters, which come later\n")).is_empty());
    }

    #[test]
    fn nothing_points_out_of_the_repository() {
        let scheme = "https:/";
        assert!(messages("a.md", &format!("{scheme}/docs.nvidia.com/cuda\n")).is_empty());
        assert_eq!(messages("a.md", &format!("{scheme}/packages.example.org/simple\n")).len(), 1);
        let folder = MACHINE_FOLDERS[0];
        assert_eq!(messages("a.md", &format!("see /{folder}/me/notes\n")).len(), 1);
        assert!(messages("a.md", &format!("see docs/{folder}/me, /usr/local/cuda\n")).is_empty());
        assert_eq!(messages("a.md", &format!("see {OUTSIDE}/notes\n")).len(), 1);
    }
}
