//! The workflows keep their promises: each job is one `cargo xtask` line that parses, GPUs are shared by nobody and by no
//! fork, tokens are where they belong, and what is uploaded is what was written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;
use yaml_rust2::{Yaml, YamlLoader};

/// What expressions stand for when a line is parsed. One that is not here is an error: it would be put into a shell unseen.
/// None of these can hold anything but letters, digits and `/._-`.
const VALUES: [(&str, &str); 6] = [
    ("github.repository", "owner/name"),
    ("github.sha", "0123456789abcdef0123456789abcdef01234567"),
    ("github.event.pull_request.head.sha", "0123456789abcdef0123456789abcdef01234567"),
    ("github.event.pull_request.number", "7"),
    ("matrix.set", "claim"),
    ("matrix.shard", "1"),
];
/// Actions that may run; all of them GitHub's own.
const ACTIONS: [&str; 3] =
    ["actions/checkout@v4", "actions/upload-artifact@v4", "actions/download-artifact@v4"];
/// Machines.
const RUNNERS: [&[&str]; 3] =
    [&["ubuntu-latest"], &["self-hosted", "linux", "h200"], &["self-hosted", "b200"]];
/// What keeps forks and unlabelled pull requests away from our machines.
const GUARDS: [&str; 3] = [
    "github.event_name != 'pull_request'",
    "contains(github.event.pull_request.labels.*.name, 'run-gpu')",
    "github.event.pull_request.head.repo.full_name == github.repository",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap_or_default()
}

fn list(yaml: &Yaml) -> Vec<&str> {
    match yaml {
        Yaml::Array(items) => items.iter().map(text).collect(),
        Yaml::String(one) => vec![one],
        _ => Vec::new(),
    }
}

/// What a workflow, a job, a step may have. GitHub refuses a file with any other key, and runs nothing.
const KEYS: [(&str, &[&str]); 3] = [
    ("the workflow", &["name", "on", "permissions", "concurrency", "jobs"]),
    ("the job", &["if", "needs", "runs-on", "timeout-minutes", "permissions", "strategy", "steps"]),
    ("a step", &["if", "uses", "with", "run", "env"]),
];
/// What each of [`ACTIONS`] may be given.
const WITH: [&[&str]; 3] = [&[], &["name", "path", "if-no-files-found"], &["name", "pattern", "path"]];
/// Events, and the words of `types`.
const EVENTS: [&str; 3] = ["push", "pull_request", "workflow_dispatch"];
const TYPES: [&str; 2] = ["labeled", "synchronize"];
/// Functions of expressions.
const FUNCTIONS: [&str; 3] = ["contains", "cancelled", "always"];

/// Keys of `yaml` that [`KEYS`] does not know.
fn odd_keys(of: usize, yaml: &Yaml, found: &mut Vec<String>) {
    let (what, known) = KEYS[of];
    let keys = yaml.as_hash().into_iter().flat_map(|hash| hash.keys()).map(text);
    found.extend(keys.filter(|key| !known.contains(key)).map(|key| format!("{what} has an odd key `{key}`")));
}

/// Every string in `yaml`.
fn strings<'a>(yaml: &'a Yaml, into: &mut Vec<&'a str>) {
    match yaml {
        Yaml::String(one) => into.push(one),
        Yaml::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Yaml::Hash(hash) => hash.values().for_each(|value| strings(value, into)),
        _ => {}
    }
}

/// What is wrong with the expressions of a job: brackets, contexts, names of jobs, of matrix axes and of functions.
fn expression_problems(job: &Yaml, found: &mut Vec<String>) {
    let mut all = Vec::new();
    strings(job, &mut all);
    let mut expressions = vec![text(&job["if"])];
    expressions.extend(job["steps"].as_vec().into_iter().flatten().map(|step| text(&step["if"])));
    for string in all {
        let mut parts = string.split("${{");
        if parts.next().is_some_and(|before| before.contains("}}")) {
            found.push(format!("`}}}}` without a beginning: {string}"));
        }
        for part in parts {
            match part.split_once("}}") {
                Some((expression, rest)) if !rest.contains("}}") => expressions.push(expression),
                _ => found.push(format!("`${{{{` without its end: {string}")),
            }
        }
    }
    let needs = list(&job["needs"]);
    for expression in expressions.into_iter().map(|e| e.trim_start_matches("${{").trim_end_matches("}}")) {
        let quotes = expression.matches('\'').count();
        let depth = expression.matches('(').count() as i64 - expression.matches(')').count() as i64;
        if quotes % 2 != 0 || depth != 0 {
            found.push(format!("quotes or brackets do not match: {expression}"));
        }
        let plain: String = expression.split('\'').step_by(2).collect();
        let is_word = |c: char| c.is_ascii_alphanumeric() || "._-*".contains(c);
        for (at, word) in plain.match_indices(|c: char| c.is_ascii_alphabetic()).filter_map(|(at, _)| {
            let begins = !plain[..at].ends_with(is_word);
            let word = plain[at..].split(|c: char| !is_word(c)).next().unwrap_or_default();
            begins.then_some((at, word))
        }) {
            let is_call = plain[at + word.len()..].starts_with('(');
            let fine = match word.split('.').collect::<Vec<_>>()[..] {
                [function] => is_call && FUNCTIONS.contains(&function),
                ["github", ..] => !is_call,
                ["needs", job, "result"] => needs.contains(&job),
                ["matrix", axis] => !job["strategy"]["matrix"][axis].is_badvalue(),
                _ => false,
            };
            if !fine {
                found.push(format!("`{word}` means nothing here: {}", expression.trim()));
            }
        }
    }
}

/// Files that a job takes must be those that a job before it leaves.
fn artifact_problems(job: &Yaml, jobs: &[(&str, &Yaml)], found: &mut Vec<String>) {
    let steps = |job: &'_ Yaml, action: &str| -> Vec<Yaml> {
        let all = job["steps"].as_vec().into_iter().flatten();
        all.filter(|step| text(&step["uses"]) == action).cloned().collect()
    };
    let mut before: Vec<&str> = list(&job["needs"]);
    for at in 0..jobs.len() {
        let more: Vec<&str> = before.get(at).map_or(Vec::new(), |name| {
            jobs.iter().filter(|(other, _)| other == name).flat_map(|(_, job)| list(&job["needs"])).collect()
        });
        before.extend(more);
    }
    let left: Vec<String> = jobs
        .iter()
        .filter(|(name, _)| before.contains(name))
        .flat_map(|(_, job)| steps(job, ACTIONS[1]))
        .map(|step| text(&step["with"]["name"]).to_string())
        .collect();
    for step in steps(job, ACTIONS[2]) {
        let with = &step["with"];
        let (name, pattern) = (text(&with["name"]), text(&with["pattern"]).trim_end_matches('*'));
        let is_there = |left: &String| left == name || !pattern.is_empty() && left.starts_with(pattern);
        if !left.iter().any(is_there) {
            found.push(format!("takes `{name}{pattern}`, which no job before it leaves"));
        }
    }
}

/// Everything that is wrong with a workflow.
fn problems(source: &str) -> Vec<String> {
    let documents = match YamlLoader::load_from_str(source) {
        Ok(documents) => documents,
        Err(error) => return vec![format!("not YAML: {error}")],
    };
    let [workflow] = &documents[..] else { return vec!["not one document".into()] };
    let mut found = Vec::new();
    if workflow["on"].as_hash().is_some_and(|on| on.keys().any(|key| text(key) == "pull_request_target")) {
        found.push("pull_request_target gives forks a token that may write".into());
    }
    let top = workflow["permissions"].as_hash();
    if !top.is_some_and(|p| p.len() == 1 && text(&workflow["permissions"]["contents"]) == "read") {
        found.push("permissions at the top must be `contents: read`".into());
    }
    odd_keys(0, workflow, &mut found);
    for (event, about) in workflow["on"].as_hash().into_iter().flatten() {
        let types = list(&about["types"]);
        if !EVENTS.contains(&text(event)) || types.iter().any(|word| !TYPES.contains(word)) {
            found.push(format!("an odd event: {} {types:?}", text(event)));
        }
    }
    let Some(jobs) = workflow["jobs"].as_hash() else { return vec!["no jobs".into()] };
    let names: BTreeSet<&str> = jobs.keys().map(text).collect();
    let in_order: Vec<(&str, &Yaml)> = jobs.iter().map(|(name, job)| (text(name), job)).collect();
    for (at, (name, job)) in jobs.iter().enumerate() {
        let before = found.len();
        job_problems(job, &names, &mut found);
        expression_problems(job, &mut found);
        artifact_problems(job, &in_order, &mut found);
        // What is in order goes round in no circle.
        let above: Vec<&str> = in_order[..at].iter().map(|(name, _)| *name).collect();
        if list(&job["needs"]).iter().any(|needed| names.contains(needed) && !above.contains(needed)) {
            found.push("needs a job that stands below it".into());
        }
        if list(&job["runs-on"]).contains(&"self-hosted") {
            let needs = list(&job["needs"]);
            let needed =
                jobs.iter().filter(|(other, _)| needs.contains(&text(other))).map(|(_, other)| other);
            let guards = |job: &Yaml| GUARDS.iter().all(|guard| text(&job["if"]).contains(guard));
            if !std::iter::once(job).chain(needed).any(guards) {
                found.push("a fork could reach our machine".into());
            }
            if workflow["concurrency"]["cancel-in-progress"].as_bool() != Some(false) {
                found.push("runs on one GPU must queue up".into());
            }
        }
        found[before..].iter_mut().for_each(|problem| *problem = format!("{}: {problem}", text(name)));
    }
    found
}

fn job_problems(job: &Yaml, names: &BTreeSet<&str>, found: &mut Vec<String>) {
    let runs_on = list(&job["runs-on"]);
    if !RUNNERS.contains(&&runs_on[..]) {
        found.push(format!("no such machine: {runs_on:?}"));
    }
    if !job["timeout-minutes"].as_i64().is_some_and(|minutes| (1..=180).contains(&minutes)) {
        found.push("needs `timeout-minutes`, at most 180".into());
    }
    for needed in list(&job["needs"]).into_iter().filter(|needed| !names.contains(needed)) {
        found.push(format!("needs `{needed}`, which is no job"));
    }
    odd_keys(1, job, found);
    let steps: Vec<&Yaml> = job["steps"].as_vec().into_iter().flatten().collect();
    for step in &steps {
        odd_keys(2, step, found);
        let action = ACTIONS.iter().position(|action| *action == text(&step["uses"]));
        let with = step["with"].as_hash().into_iter().flat_map(|hash| hash.keys()).map(text);
        let known = |key: &str| action.is_some_and(|at| WITH[at].contains(&key));
        found.extend(with.filter(|key| !known(key)).map(|key| format!("an action is given an odd `{key}`")));
    }
    let actions: Vec<&str> =
        steps.iter().map(|step| text(&step["uses"])).filter(|uses| !uses.is_empty()).collect();
    if let Some(other) = actions.iter().find(|action| !ACTIONS.contains(action)) {
        found.push(format!("`{other}` is not among {ACTIONS:?}"));
    }
    if actions.first() != Some(&ACTIONS[0]) {
        found.push("must begin with the checkout".into());
    }
    let lines: Vec<&str> =
        steps.iter().map(|step| text(&step["run"])).filter(|run| !run.is_empty()).collect();
    let [line] = lines[..] else {
        found.push(format!("must run one line, has {}", lines.len()));
        return;
    };
    found.extend(parses(line).err());
    let publishes = line.starts_with("cargo xtask publish ");
    let with_token = steps.iter().any(|step| !step["env"]["GITHUB_TOKEN"].is_badvalue());
    if publishes != with_token {
        found.push("the token belongs to publishing jobs and to no others".into());
    }
    let may_write =
        job["permissions"].as_hash().is_some_and(|p| p.values().any(|value| text(value) == "write"));
    if may_write && (!publishes || runs_on != ["ubuntu-latest"]) {
        found.push("only publishing jobs on GitHub's machines may write".into());
    }
    for step in steps.iter().filter(|step| text(&step["uses"]) == ACTIONS[1]) {
        let path = text(&step["with"]["path"]);
        if !line.ends_with(&format!(" {path}")) {
            found.push(format!("uploads `{path}`, which the line does not write"));
        }
        if text(&step["if"]) != "always()" {
            found.push("must upload what there is also when it fails".into());
        }
    }
}

/// Whether a line is one command of ours with flags that exist.
fn parses(line: &str) -> Result<(), String> {
    let mut filled = line.to_string();
    while let Some((before, rest)) = filled.split_once("${{") {
        let (expression, after) = rest.split_once("}}").ok_or("an expression that does not end")?;
        let expression = expression.trim();
        let value = VALUES.iter().find(|(name, _)| *name == expression).map(|(_, value)| value);
        let value = value.ok_or_else(|| format!("`{expression}` may not stand in a shell line"))?;
        filled = format!("{before}{value}{after}");
    }
    if let Some(odd) = filled.chars().find(|c| ";&|><$`\n'\\".contains(*c)) {
        return Err(format!("one command only, without {odd:?}: {filled}"));
    }
    let words = words(&filled);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["cargo", "xtask", command, args @ ..] = &words[..] else {
        return Err(format!("not a `cargo xtask` line: {filled}"));
    };
    let wrong = |error: clap::Error| format!("{filled}: {error}");
    match *command {
        "test" if args.is_empty() => Ok(()),
        "gate" => {
            let words = ["fa4-gate"].iter().chain(args);
            fa4_gate::cli::Cli::try_parse_from(words).map(|_| ()).map_err(wrong)
        }
        "bench" | "results" | "publish" | "refs" | "fitness" => {
            let words = ["fa4-bench", command].into_iter().chain(args.iter().copied());
            fa4_bench::cli::Cli::try_parse_from(words).map(|_| ()).map_err(wrong)
        }
        _ => Err(format!("`{command}` is no command for a workflow")),
    }
}

/// Words of a line; double quotes keep blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('"').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.into()),
        }
    }
    words
}

fn workflow(name: &str) -> String {
    std::fs::read_to_string(root().join(".github/workflows").join(name)).unwrap()
}

#[test]
fn the_workflows_are_in_order() {
    let folder = root().join(".github/workflows");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["b200.yml", "check.yml", "h200.yml"]);
    for name in names {
        assert_eq!(problems(&workflow(&name)), Vec::<String>::new(), "{name}");
    }
}

/// Whoever sets a runner up finds every workflow and every label in the README.
#[test]
fn the_readme_knows_every_machine() {
    let readme = std::fs::read_to_string(root().join("ci/README.md")).unwrap();
    for labels in &RUNNERS[1..] {
        assert!(readme.contains(&format!("`[{}]`", labels.join(", "))), "{labels:?}");
    }
    for name in ["check.yml", "h200.yml", "b200.yml"] {
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

/// All shards that are measured are merged.
#[test]
fn the_merge_takes_every_shard() {
    let source = workflow("b200.yml");
    let b200 = &YamlLoader::load_from_str(&source).unwrap()[0];
    let shards = b200["jobs"]["bench"]["strategy"]["matrix"]["shard"].as_vec().unwrap();
    let shards: Vec<i64> = shards.iter().map(|shard| shard.as_i64().unwrap()).collect();
    assert!(source.contains(&format!("--shard ${{{{ matrix.shard }}}}/{} ", shards.len())));
    for shard in shards {
        assert!(source.contains(&format!("out/shard-${{{{ matrix.set }}}}-{shard} ")), "{shard}");
    }
}

/// Each rule catches a workflow that breaks it.
#[test]
fn broken_workflows_are_found() {
    let good = workflow("h200.yml");
    let broken = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        problems(&good.replacen(from, to, 1)).join("\n")
    };
    for (from, to, says) in [
        ("jobs:\n", "jobs: [\n", "not YAML"),
        ("  pull_request:\n", "  pull_request_target:\n", "pull_request_target"),
        ("contents: read\n", "contents: write\n", "permissions at the top"),
        ("cancel-in-progress: false", "cancel-in-progress: true", "must queue up"),
        ("needs: gate", "needs: gat", "no job"),
        ("[self-hosted, linux, h200]", "[self-hosted, linux, h100]", "no such machine"),
        ("    timeout-minutes: 60\n", "", "timeout-minutes"),
        ("actions/checkout@v4", "somebody/checkout@v4", "not among"),
        ("cargo xtask gate --device cuda", "cargo xtask gate --devise cuda", "--devise"),
        ("cargo xtask bench --set claim", "cargo xtask bench --set claims", "claims"),
        ("cargo xtask bench", "nvidia-smi; cargo xtask bench", "one command only"),
        ("cargo xtask bench", "cargo xtask clean", "no command for a workflow"),
        ("${{ github.sha }}", "${{ github.head_ref }}", "may not stand in a shell line"),
        ("path: out/gate.json", "path: out/other.json", "does not write"),
        ("      - if: always()\n", "      - if: success()\n", "also when it fails"),
        ("github.event.pull_request.head.repo.full_name == github.repository", "true", "a fork could reach"),
        ("runs-on: ubuntu-latest", "runs-on: [self-hosted, linux, h200]", "may write"),
        ("    needs: gate\n", "    needs: gate\n    run-on: x\n", "odd key `run-on`"),
        (
            "      - run: cargo xtask bench",
            "      - shell: bash\n        run: cargo xtask bench",
            "odd key `shell`",
        ),
        ("if-no-files-found: warn", "if-no-file-found: warn", "odd `if-no-file-found`"),
        ("types: [labeled,", "types: [labelled,", "an odd event"),
        ("  push:\n", "  pushed:\n", "an odd event"),
        ("${{ github.sha }}", "${{ github.sha }", "without its end"),
        ("GITHUB_TOKEN: ${{ github.token }}", "GITHUB_TOKEN: github.token }}", "without a beginning"),
        ("${{ github.sha }}", "${{ matrix.shard }}", "`matrix.shard` means nothing"),
        ("needs.bench.result", "needs.gate.result", "`needs.gate.result` means nothing"),
        ("!cancelled()", "!canceled()", "`canceled` means nothing"),
        ("!cancelled()", "!cancelled(", "do not match"),
        ("needs: gate", "needs: publish-status", "stands below"),
        (
            "        with:\n          name: claim\n          path: out/claim\n      - run",
            "        with:\n          name: clam\n          path: out/claim\n      - run",
            "no job before it leaves",
        ),
        ("        env:\n          GITHUB_TOKEN: ${{ github.token }}\n", "", "the token belongs"),
    ] {
        let found = broken(from, to);
        assert!(found.contains(says), "{from} → {to}: {found}");
    }
    assert_eq!(problems(&good), Vec::<String>::new());
}
