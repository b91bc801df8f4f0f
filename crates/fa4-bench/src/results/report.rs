//! What a folder shows, made from its `env.json`, `cases.csv` and `raw.jsonl` any number of times: `README.md`, `rows.csv`,
//! `summary.md`, plots; and the short table of it between the markers of another document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::env::Env;
use crate::error::BenchError;
use crate::folder::{self, write_atomically};
use crate::record::{Counts, Entry, Figure, RunRow, Status};
use crate::render::{FLOP_RULE, is_memory_bound, reference_ids, summary, us_of};
use crate::runner::Effort;
use crate::stats::geomean;
use crate::verdict::Class;
use crate::{plot, results};

/// Around generated text in a document.
const MARKERS: (&str, &str) = ("<!-- begin generated: bench -->\n", "<!-- end generated: bench -->");

/// Writes everything.
///
/// # Errors
/// What is wrong with the folder.
pub fn write(folder: &Path) -> Result<(), BenchError> {
    let (env, rows) = (folder::env(folder)?, folder::rows(folder)?);
    let planned = results::planned(&env, folder::cases(folder)?.len());
    let put = |name: &str, text: String| write_atomically(&folder.join(name), text.as_bytes());
    put("rows.csv", rows_csv(&rows))?;
    put("summary.md", summary_md(&rows))?;
    let plots = plot::all(&rows);
    for (name, svg) in &plots {
        put(name, svg.clone())?;
    }
    let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
    put("README.md", readme(&env, &rows, planned, &names))
}

/// Puts the short table of `folder` between the markers of `file`.
///
/// # Errors
/// A file without the markers.
pub fn into(folder: &Path, file: &Path) -> Result<(), BenchError> {
    let (env, rows) = (folder::env(folder)?, folder::rows(folder)?);
    let name = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let filter = env.settings.filter.as_ref().map_or_else(String::new, |f| format!(" --filter '{f}'"));
    let intro = format!(
        "`cargo xtask bench --set {}{filter}` on {} on {}: {} rows, forward, fa4 at {}; ratio: the fastest right reference's time over ours, above 1 is \
         ahead ([everything](results/{name}/README.md)).\n\n",
        env.settings.topic,
        env.date(),
        env.gpu_name(),
        rows.len(),
        env.commit.chars().take(9).collect::<String>(),
    );
    between(MARKERS, file, &format!("{intro}{}", groups_md(&rows)))
}

/// Puts `new` between two markers of `file`.
///
/// # Errors
/// A file without the markers.
pub fn between(markers: (&str, &str), file: &Path, new: &str) -> Result<(), BenchError> {
    let text = std::fs::read_to_string(file).map_err(BenchError::file(file))?;
    let parts =
        text.split_once(markers.0).and_then(|(head, rest)| Some((head, rest.split_once(markers.1)?.1)));
    let Some((head, tail)) = parts else {
        let what =
            format!("has no lines `{}` and `{}` to put the table between", markers.0.trim(), markers.1);
        return Err(BenchError::folder(file, what));
    };
    write_atomically(file, format!("{head}{}{new}{}{tail}", markers.0, markers.1).as_bytes())
}

fn readme(env: &Env, rows: &[RunRow], planned: usize, plots: &[&str]) -> String {
    let mut text = format!("# `{}` on {}, {}\n\n", env.settings.topic, env.gpu_name(), env.date());
    if env.settings.mock.is_some() {
        text.push_str("**A mock: these figures are made up and mean nothing.**\n\n");
    }
    let _ = writeln!(text, "{}.\n", summary(rows));
    if rows.len() < planned {
        let _ = writeln!(text, "Not finished: {} of {planned} rows.\n", rows.len());
    }
    let gpus: Vec<String> = env
        .gpus
        .iter()
        .map(|gpu| {
            let power = gpu.power_limit_w.map_or(String::new(), |w| format!(", power limit {w:.0} W"));
            format!(
                "{}, {} SMs, L2 {} MiB, at most {} MHz{power}, driver {}",
                gpu.name,
                gpu.sms,
                gpu.l2_bytes >> 20,
                gpu.max_clock_mhz,
                gpu.driver
            )
        })
        .collect();
    let s = &env.settings;
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "| {what} | {} |", value.replace('|', "\\|"));
    };
    line("", String::new());
    line("---", "---".into());
    line("GPU", gpus.join("; "));
    line("machine", format!("{}, {} cores, {}", env.machine.cpu, env.machine.cores, env.machine.os));
    line("kernels", format!("fa4 {} at {}, {}", env.version, env.commit, env.compiler));
    for (id, versions) in reference_versions(rows) {
        line(&id, versions);
    }
    line("inputs", format!("as each row's qdist says, seed {}; the same bytes for everybody", s.seed));
    line(
        "timing",
        format!(
            "burst: medians of rounds of 10 ms after rests of 10 ms, contestants in turn; sustained: second half of {:.1} s back \
         to back; device events; tensors rotated over 3 × L2; budget {} s a row",
            Effort::within(s.budget_s).sustained.as_secs_f64(),
            s.budget_s
        ),
    );
    line("judged", "every contestant's O (and LSE where given) against the f64 oracle before and after being timed; a wrong one has no times".into());
    line("FLOPs", format!("{FLOP_RULE}; bytes: q, k, v, O, LSE once each"));
    if let Some(times) = wall_times(rows) {
        line("wall time", times);
    }
    let _ = writeln!(text, "\n    {}\n", shown(&env.command));
    text.push_str("`raw.jsonl` has every round with clock, power, temperature and what throttled it; `rows.csv` a line a row; `summary.md` groups, failures and advice.\n\n");
    text.push_str(&groups_md(rows));
    text.push('\n');
    for plot in plots {
        let _ = writeln!(text, "![{}]({plot})", plot.trim_end_matches(".svg"));
    }
    text.push_str("\n## Rows\n\n");
    text.push_str(&rows_md(rows));
    text
}

/// Where the rows' seconds went, the largest part first; `None` where that was not noted.
fn wall_times(rows: &[RunRow]) -> Option<String> {
    let timed: Vec<&RunRow> = rows.iter().filter(|row| !row.stages.is_empty()).collect();
    let whole: f64 = timed.iter().map(|row| row.seconds).sum();
    let mut stages: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, seconds) in timed.iter().flat_map(|row| &row.stages) {
        *stages.entry(name).or_default() += seconds;
    }
    let mut stages: Vec<(&str, f64)> = stages.into_iter().collect();
    stages.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = stages.iter().map(|(name, s)| format!("{name} {s:.0} s")).collect();
    let each = whole / timed.len().max(1) as f64;
    let text = format!("{whole:.0} s for {} rows, {each:.1} s each: {}", timed.len(), parts.join(", "));
    (!timed.is_empty()).then_some(text)
}

/// The command as one would type it, without folders of this machine.
fn shown(command: &[String]) -> String {
    let word = |word: &String| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c));
        let word = match Path::new(word).is_absolute() {
            true => {
                Path::new(word).file_name().map_or_else(String::new, |n| format!("…/{}", n.to_string_lossy()))
            }
            false => word.clone(),
        };
        if plain && !word.is_empty() { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn reference_versions(rows: &[RunRow]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in rows.iter().flat_map(|row| &row.references).filter(|e| !e.versions.is_empty()) {
        if found.iter().all(|(id, _)| *id != entry.id) {
            let versions: Vec<String> = entry.versions.iter().map(|(k, v)| format!("{k} {v}")).collect();
            found.push((entry.id.clone(), versions.join(", ")));
        }
    }
    found
}

/// Phase, head dims, dtype, mask: rows that belong on one line or curve.
pub fn group(row: &RunRow) -> String {
    let p = &row.problem;
    let dims = if p.head_dim_qk == p.head_dim_v {
        format!("hd{}", p.head_dim_qk)
    } else {
        format!("hd{}/{}", p.head_dim_qk, p.head_dim_v)
    };
    let mut text = format!("{} {dims} {} {}", row.phase, p.q_dtype, p.mask.kind_word(p.seqlen_q, p.seqlen_k));
    if p.sink {
        text.push_str(" sink");
    }
    if p.softcap > 0.0 {
        text.push_str(" softcap");
    }
    text
}

/// The word of a mask, by what it does.
trait KindWord {
    fn kind_word(self, seqlen_q: u64, seqlen_k: u64) -> &'static str;
}

impl KindWord for fa4_spec::Mask {
    fn kind_word(self, seqlen_q: u64, seqlen_k: u64) -> &'static str {
        match self.kind(seqlen_q, seqlen_k) {
            fa4_spec::problem::MaskKind::Full => "full",
            fa4_spec::problem::MaskKind::Causal => "causal",
            fa4_spec::problem::MaskKind::Window => "window",
        }
    }
}

/// Rows with a ratio by group.
fn by_group(rows: &[RunRow]) -> BTreeMap<String, Vec<&RunRow>> {
    let mut groups: BTreeMap<String, Vec<&RunRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.verdict.is_some()) {
        groups.entry(group(row)).or_default().push(row);
    }
    groups
}

fn groups_md(rows: &[RunRow]) -> String {
    let mut text = String::from(
        "| | rows | ratio, burst: mean (least … most) | ratio, sustained | ahead / level / behind | best burst rate |\n|---|---|---|---|---|---|\n",
    );
    for (name, rows) in by_group(rows) {
        let ratios: Vec<f64> = rows.iter().filter_map(|r| r.verdict.as_ref()?.ratio).collect();
        let sustained: Vec<f64> = rows.iter().filter_map(|r| r.verdict.as_ref()?.sustained_ratio).collect();
        let mean =
            |values: &[f64]| if values.is_empty() { "–".into() } else { format!("{:.3}", geomean(values)) };
        let edge = |fold: fn(f64, f64) -> f64| {
            ratios.iter().copied().reduce(fold).map_or("–".into(), |x| format!("{x:.3}"))
        };
        let count = |classes: &[Class]| {
            rows.iter().filter(|r| r.verdict.as_ref().is_some_and(|v| classes.contains(&v.class))).count()
        };
        let behind = [Class::LaunchBound, Class::WrongRoute, Class::KernelGap];
        let _ = writeln!(
            text,
            "| {name} | {} | {} ({} … {}) | {} | {} / {} / {} | {} |",
            rows.len(),
            mean(&ratios),
            edge(f64::min),
            edge(f64::max),
            mean(&sustained),
            count(&[Class::Ahead]),
            count(&[Class::Level]),
            count(&behind),
            best_rate(&rows),
        );
    }
    text
}

fn best_rate(rows: &[&RunRow]) -> String {
    let memory = rows.iter().all(|row| is_memory_bound(row));
    let rate = |row: &&RunRow| {
        let (us, counts) = row.ours_us().zip(row.counts)?;
        Some(if memory { counts.gbps(us) } else { counts.tflops(us) })
    };
    let best = rows.iter().filter_map(rate).reduce(f64::max);
    best.map_or("–".into(), |x| format!("{x:.0} {}", if memory { "GB/s" } else { "TFLOP/s" }))
}

fn rows_md(rows: &[RunRow]) -> String {
    let ids = reference_ids(rows);
    let mut text = String::from(
        "TFLOP/s (GB/s where memory is the limit), burst; in brackets sustained.\n\n| row | ours |",
    );
    for id in &ids {
        let _ = write!(text, " {id} |");
    }
    text.push_str(" ratio | verdict | caveats |\n|---|---|");
    text.push_str(&"---|".repeat(ids.len() + 3));
    text.push('\n');
    for row in rows {
        let (Some(counts), Some(ours)) = (row.counts, &row.ours) else { continue };
        let rate = |figure: &Option<Figure>| {
            figure
                .as_ref()
                .map(|f| if is_memory_bound(row) { counts.gbps(f.us) } else { counts.tflops(f.us) })
        };
        let cell = |timing: &crate::record::Timing| {
            let burst = rate(&timing.burst).map_or("–".into(), |x| format!("{x:.0}"));
            rate(&timing.sustained).map_or(burst.clone(), |x| format!("{burst} ({x:.0})"))
        };
        let _ = write!(text, "| {} | {} |", row.case, cell(ours));
        for id in &ids {
            let entry = row.references.iter().find(|e| e.id == *id);
            let shown = match entry {
                Some(entry) if entry.status == Status::Pass => entry.timing.as_ref().map_or("–".into(), cell),
                Some(entry) if entry.status != Status::Unsupported => entry.status.name().into(),
                _ => "–".into(),
            };
            let _ = write!(text, " {shown} |");
        }
        let verdict = row.verdict.as_ref();
        let ratio = verdict.and_then(|v| v.ratio).map_or("–".into(), |x| format!("{x:.3}"));
        let class = verdict.map_or("–", |v| v.class.words());
        let caveats: Vec<String> = row.caveats.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, " {ratio} | {class} | {} |", caveats.join(", "));
    }
    let left: Vec<&RunRow> = rows.iter().filter(|row| row.ours.is_none()).collect();
    if !left.is_empty() {
        text.push_str("\nNot timed:\n\n");
        for (reason, cases) in
            by_reason(left.iter().map(|r| (r.status, r.reason.as_deref().unwrap_or(""), r.case.as_str())))
        {
            let _ = writeln!(text, "- {reason}: {} rows ({})", cases.len(), abridged(&cases));
        }
    }
    text
}

fn by_reason<'a>(all: impl Iterator<Item = (Status, &'a str, &'a str)>) -> BTreeMap<String, Vec<&'a str>> {
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (status, reason, case) in all {
        let first = reason.lines().next().unwrap_or_default();
        reasons.entry(format!("{}: {first}", status.name())).or_default().push(case);
    }
    reasons
}

fn abridged(cases: &[&str]) -> String {
    const SHOWN: usize = 3;
    let more = if cases.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", cases[..cases.len().min(SHOWN)].join(", "))
}

fn summary_md(rows: &[RunRow]) -> String {
    let mut text = format!("# Summary\n\n{}.\n\n{}", summary(rows), groups_md(rows));
    let behind = [Class::LaunchBound, Class::WrongRoute, Class::KernelGap];
    let mut worst: Vec<&RunRow> =
        rows.iter().filter(|r| r.verdict.as_ref().is_some_and(|v| behind.contains(&v.class))).collect();
    worst.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    if !worst.is_empty() {
        text.push_str("\n## Behind, the furthest first\n\n");
    }
    for row in worst {
        let Some(verdict) = &row.verdict else { continue };
        let against = verdict.against.as_deref().unwrap_or_default();
        let _ = writeln!(
            text,
            "- {} {:.3} against {against}: {}, {}",
            row.case,
            ratio(row),
            verdict.class.words(),
            verdict.why
        );
    }
    let own = rows.iter().filter(|row| row.status.is_wrong());
    let own = by_reason(own.map(|r| (r.status, r.reason.as_deref().unwrap_or(""), r.case.as_str())));
    if !own.is_empty() {
        text.push_str("\n## Ours: wrong, hung or broken\n\n");
    }
    for (reason, cases) in own {
        let _ = writeln!(text, "- {reason}: {} rows ({})", cases.len(), abridged(&cases));
    }
    text.push_str(&references_md(rows));
    let mut routes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for entry in rows.iter().flat_map(|row| &row.references) {
        if let Some(route) = &entry.route {
            *routes.entry((&entry.id, route)).or_default() += 1;
        }
    }
    if !routes.is_empty() {
        text.push_str("\n## What the references ran\n\n");
    }
    for ((id, route), count) in routes {
        let _ = writeln!(text, "- {id}, {count} rows: {}", shortened(route));
    }
    let mut advice: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for caveat in rows.iter().flat_map(|row| &row.caveats) {
        let entry = advice.entry(caveat.advice()).or_insert((0, caveat.to_string()));
        entry.0 += 1;
    }
    if !advice.is_empty() {
        text.push_str("\n## Caveats and what to do\n\n");
    }
    for (advice, (count, example)) in advice {
        let _ = writeln!(text, "- {count} rows, such as \"{example}\": {advice}");
    }
    text
}

/// How the references did, and, one by one, who was wrong where: the first thing to know before a ratio is believed.
fn references_md(rows: &[RunRow]) -> String {
    let ids = reference_ids(rows);
    if ids.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## References\n\n| | right | wrong | hung or broken | not served or not here | the fastest right one |\n\
         |---|---|---|---|---|---|\n",
    );
    let entries = |id: &str| -> Vec<(&RunRow, &Entry)> {
        let all = rows.iter().flat_map(|row| row.references.iter().map(move |entry| (row, entry)));
        all.filter(|(_, entry)| entry.id == id).collect()
    };
    for id in &ids {
        let entries = entries(id);
        let count = |of: &[Status]| entries.iter().filter(|(_, e)| of.contains(&e.status)).count();
        let best =
            rows.iter().filter(|r| r.verdict.as_ref().is_some_and(|v| v.against.as_deref() == Some(id)));
        let wrong = match count(&[Status::Fail]) {
            0 => "0".to_string(),
            wrong => format!("**{wrong}**"),
        };
        let _ = writeln!(
            text,
            "| {id} | {} | {wrong} | {} | {} | in {} rows |",
            count(&[Status::Pass]),
            count(&[Status::Fault, Status::Timeout, Status::Error]),
            count(&[Status::Unsupported]),
            best.count()
        );
    }
    let others = rows.iter().flat_map(|row| row.others.iter().map(move |entry| (row, entry)));
    let all = ids.iter().flat_map(|id| entries(id)).chain(others);
    let mut wrong = all.filter(|(_, entry)| entry.status.is_wrong()).peekable();
    if wrong.peek().is_some() {
        text.push_str("\n## Others: wrong, hung or broken, without times\n\n");
    }
    for (row, entry) in wrong {
        let reason = entry.reason.as_deref().and_then(|r| r.lines().next()).unwrap_or_default();
        let (id, status, case) = (&entry.id, entry.status.name(), &row.case);
        let _ = writeln!(text, "- **{id}** {status} in {case}: {}", shortened(reason));
    }
    text
}

/// Names of templates run to thousands of characters; `raw.jsonl` has them whole.
fn shortened(words: &str) -> String {
    const MOST: usize = 300;
    match words.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} …", &words[..at]),
        None => words.to_string(),
    }
}

fn ratio(row: &RunRow) -> f64 {
    row.verdict.as_ref().and_then(|v| v.ratio).unwrap_or(f64::NAN)
}

fn rows_csv(rows: &[RunRow]) -> String {
    let ids = reference_ids(rows);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let fixed = [
        "case",
        "set",
        "family",
        "phase",
        "status",
        "kernel",
        "b",
        "sq",
        "sk",
        "hq",
        "hkv",
        "d",
        "dv",
        "mask",
        "dtype",
        "flops",
        "flops_convention",
        "bytes",
        "o_ratio",
        "lse_ratio",
        "us",
        "us_p10",
        "us_p90",
        "tflops",
        "gbps",
        "clock_mhz",
        "power_w",
        "sustained_us",
        "sustained_clock_mhz",
        "sustained_power_w",
        "graph_us",
        "host_us",
    ];
    let mut header: Vec<String> = fixed.map(String::from).to_vec();
    for id in &ids {
        header.extend(["status", "us", "sustained_us", "graph_us"].map(|column| format!("{id}_{column}")));
    }
    header.extend(
        ["ratio", "noise", "against", "sustained_ratio", "class", "caveats", "reason"].map(String::from),
    );
    let text = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x}"));
    let us = |figure: Option<&Figure>| text(figure.map(|f| f.us));
    let _ = writer.write_record(&header);
    for row in rows {
        let p = &row.problem;
        let timing = row.ours.clone().unwrap_or_default();
        let (burst, sustained) = (timing.burst.as_ref(), timing.sustained.as_ref());
        let counted = |f: fn(&Counts) -> f64| text(row.counts.as_ref().map(f));
        let rate = |f: fn(&Counts, f64) -> f64| text(row.counts.as_ref().zip(burst).map(|(c, b)| f(c, b.us)));
        let mut record: Vec<String> = vec![
            row.case.clone(),
            row.set.clone(),
            row.family.clone(),
            row.phase.clone(),
            row.status.name().into(),
            row.kernel.clone().unwrap_or_default(),
            p.batch.to_string(),
            p.seqlen_q.to_string(),
            p.seqlen_k.to_string(),
            p.num_heads_q.to_string(),
            p.num_heads_kv.to_string(),
            p.head_dim_qk.to_string(),
            p.head_dim_v.to_string(),
            p.mask.to_string(),
            p.q_dtype.to_string(),
            counted(|c| c.flops),
            counted(|c| c.flops_convention),
            counted(|c| c.bytes as f64),
            text(row.judged.map(|j| j.o_ratio)),
            text(row.judged.and_then(|j| j.lse_ratio)),
            us(burst),
            text(burst.map(|f| f.us_p10)),
            text(burst.map(|f| f.us_p90)),
            rate(Counts::tflops),
            rate(Counts::gbps),
            text(burst.and_then(Figure::clock_mhz)),
            text(burst.and_then(Figure::power_w)),
            us(sustained),
            text(sustained.and_then(Figure::clock_mhz)),
            text(sustained.and_then(Figure::power_w)),
            us(timing.graph.as_ref()),
            text(timing.host_us),
        ];
        for id in &ids {
            let entry = row.references.iter().find(|e| e.id == *id);
            let timing = entry.and_then(|e| e.timing.as_ref());
            record.extend([
                entry.map_or(String::new(), |e| e.status.name().into()),
                text(entry.and_then(us_of)),
                us(timing.and_then(|t| t.sustained.as_ref())),
                us(timing.and_then(|t| t.graph.as_ref())),
            ]);
        }
        let verdict = row.verdict.as_ref();
        let caveats: Vec<String> = row.caveats.iter().map(ToString::to_string).collect();
        record.extend([
            text(verdict.and_then(|v| v.ratio)),
            text(verdict.and_then(|v| v.noise)),
            verdict.and_then(|v| v.against.clone()).unwrap_or_default(),
            text(verdict.and_then(|v| v.sustained_ratio)),
            verdict.map_or(String::new(), |v| v.class.words().into()),
            caveats.join("; "),
            row.reason.clone().unwrap_or_default(),
        ]);
        let _ = writer.write_record(&record);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
