//! `plan`: a kernel laid open from the tables that it exports, with a predicted schedule.
//!
//! - [`text`]: everything for a terminal; [`picture`]: the same as SVG; JSON is [`Plan`] itself.
//! - [`figures`]: what a K/V block costs and which unit bounds it; [`timeline`]: the predicted schedule.
//! - [`docs`]: the generated parts of `docs/kernels/`.

pub mod docs;
pub mod figures;
pub mod picture;
pub mod text;
pub mod timeline;

use std::path::{Path, PathBuf};

use fa4_host::emu::EmuModule;
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::Builder;
use fa4_kernels::kernel_info::{KernelInfo, Role};
use fa4_kernels::manifest::{ROWS, Row, kernels as kernel_names};
use serde::Serialize;

use crate::cli::PlanArgs;
use crate::error::{GateError, exit};
use crate::kernels::{Candidate, Kernel, compile, workspace};
use figures::Figures;

/// Shared memory that a CTA may have, in bytes.
pub const SMEM_BYTES: u32 = 227 * 1024;
/// Columns of tensor memory.
pub const TMEM_COLS: u32 = 512;
/// Registers of an SM.
pub const REGISTERS: u32 = 64 * 1024;

/// A kernel laid open.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Name in tables: the entry, a candidate's behind its namespace.
    pub kernel: String,
    /// Architectures that it is compiled for.
    pub archs: &'static [Arch],
    /// How it is launched.
    pub launch: Launch,
    /// Its tables.
    pub info: KernelInfo,
    /// The prediction; absent where the emulator gives none.
    pub figures: Option<Figures>,
}

/// How a kernel is launched.
#[derive(Clone, Debug, Serialize)]
pub struct Launch {
    /// Number of CTAs.
    pub grid: String,
    /// Threads of a CTA.
    pub block: u32,
    /// Dynamic shared memory in bytes.
    pub smem_bytes: u32,
}

impl Plan {
    /// Lays a compiled kernel open.
    pub fn new(kernel: &Kernel<EmuModule>) -> Plan {
        let rows = kernel.row.problem.rows_per_cta;
        Plan {
            kernel: kernel.name.clone(),
            archs: kernel.row.archs,
            launch: Launch {
                grid: format!("⌈seqlen_q / {rows}⌉ · num_heads_q · batch"),
                block: kernel.info.threads(),
                smem_bytes: kernel.info.smem_bytes(),
            },
            info: kernel.info.clone(),
            figures: figures::figures(kernel),
        }
    }
}

/// Roles that are one but for a number: softmax0 and softmax1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family<'a> {
    /// The common part, `softmax`, or the name of the only role.
    pub stem: &'a str,
    /// The roles.
    pub roles: Vec<&'a Role>,
}

impl Family<'_> {
    /// `softmax0/1`, or the name of the only role.
    pub fn label(&self) -> String {
        let numbers: Vec<&str> =
            self.roles.iter().skip(1).map(|role| &role.name[self.stem.len()..]).collect();
        let first = self.roles.first().map_or("", |role| role.name.as_str());
        std::iter::once(first).chain(numbers).collect::<Vec<_>>().join("/")
    }
}

/// The families of a kernel's roles, in warp order.
pub fn families(info: &KernelInfo) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for role in &info.roles {
        let stem = role.name.trim_end_matches(|c: char| c.is_ascii_digit());
        match families.iter_mut().find(|family| family.stem == stem) {
            Some(family) => family.roles.push(role),
            None => families.push(Family { stem, roles: vec![role] }),
        }
    }
    families
}

/// The family that a barrier's table means: `softmax#`, `attend` and `mma` alike.
pub fn family_of(families: &[Family<'_>], word: &str) -> Option<usize> {
    let stem = word.trim_end_matches('#').trim_end_matches(|c: char| c.is_ascii_digit());
    families.iter().position(|family| family.stem == stem)
}

/// The row that the flags mean.
///
/// # Errors
/// [`GateError::Flag`] lists the kernels, or the kernel's variants.
pub fn row(kernel: &str, variant: Option<&str>) -> Result<&'static Row, GateError> {
    let names = |what: &dyn Fn(&Row) -> &'static str, of: &dyn Fn(&Row) -> bool| {
        ROWS.iter().filter(|row| of(row)).map(|row| what(row)).collect::<Vec<_>>().join(", ")
    };
    if let Some(row) = ROWS.iter().find(|row| row.entry == kernel) {
        return match variant {
            Some(variant) if variant != row.variant => row_of(row.kernel, variant, &names),
            _ => Ok(row),
        };
    }
    let Some(first) = ROWS.iter().find(|row| row.kernel == kernel) else {
        let what = format!("no such kernel; there are: {}", kernel_names().join(", "));
        return Err(GateError::Flag { flag: "plan", value: kernel.to_owned(), what });
    };
    match variant {
        None => Ok(first),
        Some(variant) => row_of(first.kernel, variant, &names),
    }
}

type Names<'a> = &'a dyn Fn(&dyn Fn(&Row) -> &'static str, &dyn Fn(&Row) -> bool) -> String;

fn row_of(kernel: &'static str, variant: &str, names: Names<'_>) -> Result<&'static Row, GateError> {
    let row = ROWS.iter().find(|row| row.kernel == kernel && row.variant == variant);
    row.ok_or_else(|| {
        let all = names(&|row| row.variant, &|row| row.kernel == kernel);
        let what = format!("{kernel} has no such variant; it has: {all}");
        GateError::Flag { flag: "--variant", value: variant.to_owned(), what }
    })
}

/// `cargo xtask plan`.
pub fn run(args: &PlanArgs) -> Result<u8, GateError> {
    let row = row(&args.kernel, args.variant.as_deref())?;
    let root = workspace();
    let builder = Builder::open(&root)?;
    let candidate = args.cand.as_deref().zip(args.namespace.as_deref());
    let candidate = candidate.map(|(path, namespace)| Candidate { path, namespace });
    let kernels = compile(&builder, &root, candidate, |other| other == row)?;
    let Some(kernel) = kernels.first() else {
        let what = "a candidate may stand for a kernel of sm_100a only".to_owned();
        return Err(GateError::Flag { flag: "--cand", value: args.kernel.clone(), what });
    };
    let plan = Plan::new(kernel);
    print!("{}", text::plan(&plan));
    if let Some(path) = &args.svg {
        for written in write_pictures(&plan, path)? {
            println!("wrote {}", written.display());
        }
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&plan).expect("plain data has a JSON form");
        write(path, &(json + "\n"))?;
        println!("wrote {}", path.display());
    }
    Ok(exit::OK)
}

/// One file for a path that ends in `.svg`; else a folder with a file for each picture.
fn write_pictures(plan: &Plan, path: &Path) -> Result<Vec<PathBuf>, GateError> {
    let pictures = picture::all(plan);
    if path.extension().is_some_and(|extension| extension == "svg") {
        write(path, &picture::stacked(pictures).text())?;
        return Ok(vec![path.to_owned()]);
    }
    std::fs::create_dir_all(path).map_err(|source| GateError::File { path: path.to_owned(), source })?;
    let mut written = Vec::new();
    for (name, picture) in pictures {
        let file = path.join(format!("{}-{name}.svg", plan.kernel.replace('/', "-")));
        write(&file, &picture.text())?;
        written.push(file);
    }
    Ok(written)
}

fn write(path: &Path, text: &str) -> Result<(), GateError> {
    std::fs::write(path, text).map_err(|source| GateError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_by_kernel_variant_or_entry() {
        assert_eq!(row("fwd_sm100", None).unwrap().entry, "fwd_sm100_hd128_bf16_full");
        assert_eq!(row("fwd_sm90", Some("hd64_fp16_causal")).unwrap().entry, "fwd_sm90_hd64_fp16_causal");
        assert_eq!(row("fwd_sm100_hd96_bf16_general", None).unwrap().variant, "hd96_bf16_general");
        let unknown = row("fwd_sm80", None).unwrap_err().to_string();
        assert!(unknown.contains("fwd_sm80") && unknown.contains("fwd_sm100, fwd_sm90"), "{unknown}");
        let variant = row("fwd_sm100", Some("hd32")).unwrap_err().to_string();
        assert!(variant.contains("--variant hd32") && variant.contains("hd128_bf16_full, "), "{variant}");
        assert!(!variant.contains("hd256"), "variants of the other kernel: {variant}");
    }

    #[test]
    fn roles_with_numbers_are_families() {
        let role = |name: &str, first_warp| Role { name: name.into(), first_warp, warps: 4, regs: 192 };
        let roles = vec![role("softmax0", 0), role("softmax1", 4), role("mma", 8)];
        let info = KernelInfo {
            roles,
            smem: Vec::new(),
            tmem: Vec::new(),
            barriers: Vec::new(),
            params: Vec::new(),
        };
        let families = families(&info);
        assert_eq!(families.iter().map(Family::label).collect::<Vec<_>>(), ["softmax0/1", "mma"]);
        assert_eq!(family_of(&families, "softmax#"), Some(0));
        assert_eq!(family_of(&families, "softmax"), Some(0));
        assert_eq!(family_of(&families, "mma"), Some(1));
        assert_eq!(family_of(&families, "load"), None);
    }
}
