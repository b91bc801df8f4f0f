//! Which crate may depend on which. A new edge is a decision, made here and explained in ARCHITECTURE.md.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Problem, SourceFile};
use crate::outcome::Failure;
use crate::spawn::cargo;

/// The workspace's packages and what each may use of the others. Leaves first.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("fa4-spec", &[]),
    ("fa4-kernels", &[]),
    ("ptx-emu", &[]),
    ("fa4-host", &["fa4-spec", "fa4-kernels", "ptx-emu"]),
    ("fa4-gate", &["fa4-spec", "fa4-kernels", "fa4-host", "ptx-emu"]),
    ("fa4-refs", &["fa4-spec"]),
    ("fa4-bench", &["fa4-spec", "fa4-kernels", "fa4-host", "fa4-gate", "fa4-refs"]),
    ("xtask", &[]),
];

/// Packages of the workspace, each with the packages of the workspace that it depends on (for tests, too).
pub struct Graph(BTreeMap<String, Vec<String>>);

impl Graph {
    /// Asks cargo.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root)
            .output()
            .map_err(|error| Failure::Environment(format!("cannot run cargo: {error}")))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Failure::Usage(format!("cargo metadata failed: {message}")));
        }
        let json: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::Environment(format!("cargo metadata is not JSON: {error}")))?;
        Ok(Self::from_metadata(&json))
    }

    fn from_metadata(json: &Value) -> Self {
        let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
        let edges = |package: &Value| {
            // Only dependencies of the workspace have a path.
            list(package, "dependencies").iter().filter(|edge| edge["path"].is_string()).map(name).collect()
        };
        Self(list(json, "packages").iter().map(|package| (name(package), edges(package))).collect())
    }
}

/// Edges that nobody allowed, and crates whose lints are not the workspace's.
pub fn check(graph: &Graph, files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (package, edges) in &graph.0 {
        let manifest = match package.as_str() {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            package => format!("crates/{package}/Cargo.toml"),
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == package) else {
            let message = format!("crate `{package}` has no line in xtask/src/tidy/crates.rs");
            problems.push(Problem::new(&manifest, 0, message));
            continue;
        };
        for edge in edges.iter().filter(|edge| !allowed.contains(&edge.as_str())) {
            let message = format!("`{package}` may not depend on `{edge}` (xtask/src/tidy/crates.rs)");
            problems.push(Problem::new(&manifest, 0, message));
        }
        let text = files.iter().find(|file| file.path == manifest).map_or("", |file| &file.text);
        let forbids = text.contains("[lints]\nworkspace = true");
        let denies = text.contains(concat!("un", "safe_code = \"deny\""));
        if !forbids && !denies {
            problems.push(Problem::new(
                &manifest,
                0,
                "take the workspace's lints: `[lints]` `workspace = true`",
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn edges_and_lints_are_checked() {
        let graph = Graph::from_metadata(&json!({ "packages": [
            { "name": "ptx-emu", "dependencies": [
                { "name": "clap", "path": null }, { "name": "fa4-spec", "path": "/x" } ] },
            { "name": "fa4-gate", "dependencies": [ { "name": "fa4-host", "path": "/x" } ] },
            { "name": "surprise", "dependencies": [] },
        ]}));
        let lints = "[lints]\nworkspace = true\n";
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let files = [file("crates/ptx-emu/Cargo.toml", lints), file("crates/fa4-gate/Cargo.toml", "")];
        let messages: Vec<_> = check(&graph, &files).iter().map(Problem::to_string).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages[0].contains("crates/fa4-gate/Cargo.toml: take the workspace's lints"));
        assert!(messages[1].contains("`ptx-emu` may not depend on `fa4-spec`"));
        assert!(messages[2].contains("`surprise` has no line"));
    }
}
