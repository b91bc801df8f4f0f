//! The generated parts of the documents in `docs/kernels/`: what a test compares and `cargo xtask bless plan` rewrites.

use std::fmt::Write as _;
use std::path::Path;

use fa4_host::emu::EmuModule;
use fa4_kernels::compile::Builder;
use fa4_kernels::manifest::{Dtype, Mask};
use fa4_kernels::sass;
use fa4_kernels::sass_mix::{self, Class, Labelled, Mix};
use ptx_emu::machine::inst::OpClass;

use super::figures::{Figures, RoleCounts};
use super::{Plan, picture};
use crate::error::GateError;
use crate::kernels::{Kernel, compile};
use crate::pipeline;

/// Folder of the documents.
pub const FOLDER: &str = "docs/kernels";
/// Folder of the pictures, inside.
pub const PICTURES: &str = "img";
/// FA4's instruction mixes, counted by `cargo xtask build sass-mix`, inside.
pub const RECORDED: &str = "fa4-softmax-mix.toml";

/// A file that is generated, whole or in part: its path in the workspace and its text.
pub type Generated = (String, String);

/// Every generated file of `docs/kernels/`.
///
/// # Errors
/// A kernel that does not compile, a document without its markers, recorded counts that cannot be read.
pub fn generate(builder: &Builder, root: &Path) -> Result<Vec<Generated>, GateError> {
    let mut files = Vec::new();
    let shown = |entry: &str| matches!(entry, "fwd_sm100_hd128_bf16_full" | "fwd_sm90_hd128_bf16_full");
    for kernel in compile(builder, root, None, |row| shown(row.entry))? {
        for (name, picture) in picture::all(&Plan::new(&kernel)) {
            files.push((format!("{FOLDER}/{PICTURES}/{}-{name}.svg", kernel.row.kernel), picture.text()));
        }
    }
    for name in ["fwd_sm100", "fwd_sm90"] {
        let wanted = |row: &fa4_kernels::manifest::Row| {
            let problem = &row.problem;
            row.kernel == name && problem.dtype == Dtype::Bf16 && problem.mask != Mask::General
        };
        let mut kernels = compile(builder, root, None, wanted)?;
        kernels
            .sort_by_key(|kernel| (kernel.row.problem.head_dim_qk, kernel.row.problem.mask == Mask::Causal));
        let path = format!("{FOLDER}/{name}.md");
        let mut text = read(&root.join(&path))?;
        text = splice(&path, &text, "units", &units(&kernels))?;
        if name == "fwd_sm100" {
            text = splice(&path, &text, "roles", &roles(&kernels))?;
            text = splice(&path, &text, "sass", &sass_table(builder, root, &kernels)?)?;
        }
        files.push((path, text));
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String, GateError> {
    std::fs::read_to_string(path).map_err(|source| GateError::File { path: path.to_owned(), source })
}

/// `text` with `body` between the markers of a section.
fn splice(path: &str, text: &str, section: &str, body: &str) -> Result<String, GateError> {
    let begin = format!("<!-- begin generated: {section} -->\n");
    let end = format!("<!-- end generated: {section} -->");
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some(format!("{before}{begin}{body}{end}{after}"))
    });
    parts.ok_or_else(|| {
        let what = format!("{path} lacks the lines `{}` and `{end}`", begin.trim());
        GateError::Flag { flag: "plan", value: section.to_owned(), what }
    })
}

fn title(kernel: &Kernel<EmuModule>) -> String {
    let mask = if kernel.row.problem.mask == Mask::Causal { "causal" } else { "full" };
    format!("hd{} {mask}", kernel.row.problem.head_dim_qk)
}

/// Rows as Markdown; all but the first column to the right.
fn markdown(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> =
        (0..head.len()).map(|column| if column == 0 { "---" } else { "--:" }.to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{}{rows}", line(head), line(&rule))
}

/// What a K/V block asks of each unit, and how far the predicted schedule is from the busiest.
fn units(kernels: &[Kernel<EmuModule>]) -> String {
    let all: Vec<(String, Figures, Option<pipeline::Row>)> = kernels
        .iter()
        .filter_map(|k| Some((title(k), super::figures::figures(k)?, pipeline::predict(k))))
        .collect();
    let mut head = vec!["for each K/V block of a CTA".to_owned()];
    head.extend(all.iter().map(|(title, ..)| title.clone()));
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: &dyn Fn(&Figures, Option<&pipeline::Row>) -> String| {
        let cells = all.iter().map(|(_, figures, pipelined)| value(figures, pipelined.as_ref()));
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    };
    row("queries × keys", &|f, _| format!("{} × {}", f.rows, f.keys));
    row("tensor core: operations", &|f, _| f.units[0].amount.to_string());
    row("tensor core: cycles", &|f, _| format!("{:.0}", f.units[0].cycles));
    row("MUFU: instructions × 32", &|f, _| f.units[1].amount.to_string());
    row("MUFU: cycles", &|f, _| format!("{:.0}", f.units[1].cycles));
    row("shared memory: bytes of operands", &|f, _| f.units[2].amount.to_string());
    row("shared memory: cycles", &|f, _| format!("{:.0}", f.units[2].cycles));
    row("bytes by TMA", &|f, _| f.loaded_bytes.to_string());
    row("bound by", &|f, _| {
        let most = f.bound().cycles;
        let names = f.units.iter().filter(|unit| unit.cycles > 0.995 * most).map(|unit| unit.name);
        names.collect::<Vec<_>>().join(", ")
    });
    row("predicted cycles, steady state", &|f, _| format!("{:.0}", f.block_cycles));
    row("over the bound", &|f, _| f.distance().map_or("–".to_owned(), |d| format!("{d:.3}")));
    row("pipelining condition: ratio over 1024 keys", &|_, p| {
        p.map_or("–".to_owned(), |p| format!("{:.3}", p.units.ratio()))
    });
    row("the same with issue slots and load latency: cycles", &|_, p| {
        p.map_or("–".to_owned(), |p| p.issue.cycles.to_string())
    });
    format!(
        "A prediction, not a measurement (`cargo xtask bless plan` rewrites this table).\n\n{}",
        markdown(&head, &rows)
    )
}

/// Groups of the emulator's classes that tell roles apart.
const GROUPS: [(&str, &[OpClass]); 9] = [
    ("MUFU", &[OpClass::Mufu]),
    ("f32, packed", &[OpClass::Packed]),
    ("f32", &[OpClass::Fp32]),
    ("convert", &[OpClass::Cvt]),
    ("TMEM", &[OpClass::TmemMove, OpClass::TmemWait]),
    ("matrix", &[OpClass::Mma, OpClass::Commit]),
    ("TMA", &[OpClass::Bulk]),
    ("barriers, fences", &[OpClass::Barrier, OpClass::Fence]),
    ("memory", &[OpClass::Memory]),
];

/// PTX instructions of each role: by class for head_dim 128, in all for every variant.
fn roles(kernels: &[Kernel<EmuModule>]) -> String {
    let all: Vec<(&Kernel<EmuModule>, Figures)> =
        kernels.iter().filter_map(|kernel| Some((kernel, super::figures::figures(kernel)?))).collect();
    let number = |x: f64| if x == 0.0 { String::new() } else { format!("{}", (x * 10.0).round() / 10.0) };
    let mut text = String::new();
    for (kernel, figures) in all.iter().filter(|(kernel, _)| kernel.row.problem.head_dim_qk == 128) {
        let mut head = vec!["role".to_owned(), "warps".to_owned()];
        head.extend(GROUPS.iter().map(|(name, _)| (*name).to_owned()));
        head.extend(["integer, compare, move, branch".to_owned(), "all".to_owned()]);
        let row = |counts: &RoleCounts| {
            let groups = GROUPS.map(|(_, classes)| counts.by_warp(classes));
            let mut row = vec![counts.role.clone(), counts.warps.to_string()];
            row.extend(groups.iter().map(|x| number(*x)));
            row.push(number(counts.total_by_warp() - groups.iter().sum::<f64>()));
            row.push(number(counts.total_by_warp()));
            row
        };
        let rows: Vec<_> = figures.roles.iter().filter(|c| !c.classes.is_empty()).map(row).collect();
        let name = title(kernel);
        let _ = write!(
            text,
            "{name}, PTX instructions of a warp for each K/V block:\n\n{}\n",
            markdown(&head, &rows)
        );
    }
    let mut head = vec!["all instructions of a warp".to_owned()];
    head.extend(all.iter().map(|(kernel, _)| title(kernel)));
    let names = all.first().map_or(&[][..], |(_, figures)| &figures.roles).iter().map(|counts| &counts.role);
    let rows = names.map(|name| {
        let of = |figures: &Figures| {
            let counts = figures.roles.iter().find(|counts| counts.role == *name);
            number(counts.map_or(0.0, RoleCounts::total_by_warp))
        };
        std::iter::once(name.clone()).chain(all.iter().map(|(_, figures)| of(figures))).collect::<Vec<_>>()
    });
    let rows: Vec<_> = rows.filter(|row| row.iter().skip(1).any(|cell| !cell.is_empty())).collect();
    format!("{text}Every variant:\n\n{}", markdown(&head, &rows))
}

/// FA4's mixes: a `[loop.NAME]` for each kernel, its classes by name, and `whole_loop` and `scores`.
fn recorded(path: &Path) -> Result<Vec<Labelled>, GateError> {
    let bad = |what: String| GateError::Flag { flag: "plan", value: path.display().to_string(), what };
    let file: toml::Table = read(path)?.parse().map_err(|error: toml::de::Error| bad(error.to_string()))?;
    let loops = file.get("loop").and_then(toml::Value::as_table);
    let loops = loops.ok_or_else(|| bad("has no [loop.NAME]".to_owned()))?;
    let mix = |(name, value): (&String, &toml::Value)| {
        let number = |key: &str| {
            let number =
                value.get(key).and_then(toml::Value::as_integer).and_then(|n| usize::try_from(n).ok());
            number.ok_or_else(|| bad(format!("[loop.{name}] lacks the number `{key}`")))
        };
        let classes = Class::ALL.iter().filter(|class| value.get(class.to_string()).is_some());
        let pass = classes.map(|class| Ok((*class, number(&class.to_string())?)));
        let pass = pass.collect::<Result<_, GateError>>()?;
        let mix = Mix {
            function: name.clone(),
            address: None,
            scores: number("scores")?,
            pass,
            all: number("whole_loop")?,
        };
        Ok(Labelled { label: format!("FA4 {}", name.replace('_', " ")), mix })
    };
    loops.iter().map(mix).collect()
}

/// The machine instructions of a softmax step, ours and FA4's.
fn sass_table(builder: &Builder, root: &Path, kernels: &[Kernel<EmuModule>]) -> Result<String, GateError> {
    let recorded = recorded(&root.join(FOLDER).join(RECORDED))?;
    let mut columns = Vec::new();
    let mut ratios = String::new();
    for kernel in kernels.iter().filter(|kernel| kernel.row.problem.head_dim_qk != 96) {
        let artifact = builder.build_row(kernel.row)?;
        let cubin = artifact.images.first().expect("every row names an architecture").cubin_path();
        let functions = sass::disassemble(builder.toolchain(), &cubin)
            .map_err(|error| GateError::Load { kernel: kernel.name.clone(), what: error.to_string() })?;
        let function = functions.iter().find(|function| function.name == kernel.row.entry);
        let Some(mix) = function.and_then(|f| sass_mix::softmax_loops(f).into_iter().next()) else {
            continue;
        };
        let name = title(kernel);
        let ours = mix.scaled(mix.total());
        columns.push(Labelled { label: name.clone(), mix });
        for theirs in recorded.iter().filter(|r| r.label.starts_with(&format!("FA4 {name}"))) {
            let total = theirs.mix.scaled(theirs.mix.total());
            let _ =
                writeln!(ratios, "- {name} / {}: {ours:.0} / {total:.0} = {:.3}", theirs.label, ours / total);
            columns.push(theirs.clone());
        }
    }
    let table = sass_mix::table(&columns);
    Ok(format!("Rewritten by `cargo xtask bless plan`, with the pinned compiler.\n\n{table}\n{ratios}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let text = "a\n<!-- begin generated: x -->\nold\n<!-- end generated: x -->\nb\n";
        let new = splice("d.md", text, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- begin generated: x -->\nnew\n<!-- end generated: x -->\nb\n");
        assert_eq!(splice("d.md", &new, "x", "new\n").unwrap(), new);
        let error = splice("d.md", text, "y", "").unwrap_err().to_string();
        assert!(error.contains("d.md lacks the lines `<!-- begin generated: y -->`"), "{error}");
    }
}
