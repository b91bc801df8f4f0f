//! Paths as results may show them: relative to the checkout, or by their last part. Where somebody's folders lie says
//! nothing about figures and something about him.

use std::path::{Path, PathBuf};

/// Stands for the folders that are left out.
const LEFT_OUT: &str = "…";

/// `path` relative to `root`, or `…/` and its last part where it is absolute and elsewhere. Relative ones stay.
pub fn shown(path: &Path, root: &Path) -> PathBuf {
    if path.is_relative() {
        return path.to_path_buf();
    }
    let known = [Some(root.to_path_buf()), root.canonicalize().ok()];
    match known.iter().flatten().find_map(|root| path.strip_prefix(root).ok()) {
        Some(inside) if inside.as_os_str().is_empty() => PathBuf::from("."),
        Some(inside) => inside.to_path_buf(),
        None => Path::new(LEFT_OUT).join(path.file_name().unwrap_or_default()),
    }
}

/// A word of a command line, `--flag=PATH` included.
pub fn shown_word(word: &str, root: &Path) -> String {
    let (flag, value) = match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => (Some(flag), value),
        _ => (None, word),
    };
    let value = shown(Path::new(value), root).to_string_lossy().into_owned();
    flag.map_or(value.clone(), |flag| format!("{flag}={value}"))
}

/// The words of a command, separated by spaces.
pub fn shown_command(command: &str, root: &Path) -> String {
    command.split_whitespace().map(|word| shown_word(word, root)).collect::<Vec<_>>().join(" ")
}

/// Whether part of what was written is left out, so that nobody can find it again.
pub fn is_left_out(shown: &str) -> bool {
    shown.split_whitespace().any(|word| word.starts_with(LEFT_OUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_checkout_and_last_parts_are_shown() {
        let root = Path::new("/srv/someone/fa4");
        for (path, wanted) in [
            ("/srv/someone/fa4/kernels", "kernels"),
            ("/srv/someone/fa4", "."),
            ("/srv/someone/envs/refs/bin/python", "…/python"),
            ("/dev/shm", "…/shm"),
            ("/", "…/"),
            ("python3", "python3"),
            ("../out", "../out"),
        ] {
            assert_eq!(shown(Path::new(path), root), Path::new(wanted), "{path}");
        }
        assert_eq!(shown_word("--out=/srv/someone/x", root), "--out=…/x");
        assert_eq!(shown_word("fa4paper.*_d(64|128)_", root), "fa4paper.*_d(64|128)_");
        assert_eq!(shown_word("gpus=2;row_ms=5", root), "gpus=2;row_ms=5");
        let command = shown_command("/usr/bin/env /srv/someone/fa4/fake slow*1.5", root);
        assert_eq!(command, "…/env fake slow*1.5");
        assert!(is_left_out(&command) && !is_left_out("fake slow"));
    }
}
