//! Which cases are judged, on which kernel, and why the rest are not.

use std::path::Path;

use fa4_host::route;
use fa4_host::routes::route_among;
use fa4_kernels::manifest::{self, ROWS, Row as KernelRow};
use fa4_spec::{Case, cases, qdist, sets};
use regex::Regex;

use crate::error::GateError;
use crate::rows::Row;

/// Where cases come from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A few in seconds.
    Smoke,
    /// The edge set, head-ratio × mask × tail products, τ = 0 runs and feature cases. Holds the workspace root.
    Full(&'a Path),
    /// A scenario file.
    File(&'a Path),
}

/// A case with the variant that serves it.
#[derive(Debug, Clone)]
pub struct Routed {
    /// What runs, already reduced.
    pub case: Case,
    /// On which variant.
    pub kernel: &'static KernelRow,
}

/// The cases to run and the rows of those that nothing serves.
#[derive(Debug, Default)]
pub struct Selection {
    /// To run.
    pub routed: Vec<Routed>,
    /// Not served, with reasons.
    pub unsupported: Vec<Row>,
}

/// Reads, expands, filters, routes and reduces cases. `least_blocks` is the number of key blocks that a reduction
/// must leave for a kernel (its ring depth + 2).
pub fn select(
    source: Source<'_>,
    filter: Option<&Regex>,
    seed: u64,
    least_blocks: impl Fn(&KernelRow) -> u64,
) -> Result<Selection, GateError> {
    choose(source, filter, seed, |case, kernel| cases::reduce(case, least_blocks(kernel)))
}

/// What `--device auto` leaves out of the whole set in the emulator, so that it answers within minutes: kernels of a
/// GPU that can be had run their smoke cases only, and windows in fp16 are left to the feature cases. `--device emu`,
/// `--device both`, a filter and `--configs` leave nothing out.
pub fn left_to_others(routed: &Routed) -> bool {
    let id = &routed.case.id;
    match thinned(routed.kernel.kernel) {
        true => !id.starts_with("smoke_"),
        false => id.starts_with("window_") && id.ends_with("_fp16"),
    }
}

/// Whether `--device auto` judges a kernel by its smoke cases only when it runs in the emulator.
pub fn thinned(kernel: &str) -> bool {
    kernel == "fwd_sm90"
}

/// The same without reduction, for a GPU, except of cases whose oracle alone would take minutes.
pub fn select_full(
    source: Source<'_>,
    filter: Option<&Regex>,
    seed: u64,
    least_blocks: impl Fn(&KernelRow) -> u64,
) -> Result<Selection, GateError> {
    choose(source, filter, seed, |case, kernel| match case.cost() <= MOST_BLOCKS {
        true => case.clone(),
        false => cases::reduce(case, least_blocks(kernel)),
    })
}

/// Most blocks of S of a case that is run in full: the oracle works on about a hundred a second and core.
const MOST_BLOCKS: u64 = 4096;

fn choose(
    source: Source<'_>,
    filter: Option<&Regex>,
    seed: u64,
    reduce: impl Fn(&Case, &KernelRow) -> Case,
) -> Result<Selection, GateError> {
    let mut selection = Selection::default();
    for case in expand(source, seed)? {
        let chosen = |kernel: &str| filter.is_none_or(|f| f.is_match(&format!("{kernel}/{}", case.id)));
        // What the kernels lack says more than what the data generator lacks.
        let served = route(&case.problem).map_err(|e| e.to_string());
        match served.and_then(|_| qdist::supports(&case).map_err(|e| e.to_string())) {
            Err(reason) if chosen("none") => {
                selection.unsupported.push(Row::unsupported(&case.id, seed, reason));
            }
            Err(_) => {}
            Ok(()) => {
                // Every kernel that serves the case is judged on it.
                let of =
                    |kernel: &str| ROWS.iter().filter(move |row| row.kernel == kernel).collect::<Vec<_>>();
                let rows =
                    manifest::kernels().into_iter().map(|kernel| route_among(&case.problem, of(kernel)));
                for kernel in rows.flatten().filter(|row| chosen(row.entry)) {
                    selection.routed.push(Routed { case: reduce(&case, kernel), kernel });
                }
            }
        }
    }
    Ok(selection)
}

fn expand(source: Source<'_>, seed: u64) -> Result<Vec<Case>, GateError> {
    let from_file = |path: &Path| -> Result<Vec<Case>, GateError> {
        let rows = sets::read(path)?;
        let cases = rows.iter().map(|row| Case::from_row(row, seed));
        // Every dense bf16 row is also a row in fp16.
        Ok(cases.flat_map(|case| [Some(case.clone()), case.as_fp16()]).flatten().collect())
    };
    Ok(match source {
        Source::Smoke => cases::smoke(seed),
        Source::File(path) => from_file(path)?,
        Source::Full(root) => {
            let mut all = from_file(&root.join("sets/edge.csv"))?;
            all.extend(cases::products(seed));
            all.extend(cases::rescales(seed));
            all.extend(cases::features(seed));
            all.extend(cases::packed(seed));
            all.extend(cases::bugs(seed));
            all.extend(cases::smoke(seed));
            all
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::workspace;

    fn full(filter: Option<&str>) -> Selection {
        let filter = filter.map(|f| Regex::new(f).unwrap());
        select(Source::Full(&workspace()), filter.as_ref(), 1, |_| 5).unwrap()
    }

    #[test]
    fn every_edge_row_is_routed_or_explained() {
        let selection = full(None);
        let rows = sets::read(&workspace().join("sets/edge.csv")).unwrap();
        for row in &rows {
            let routed = selection.routed.iter().any(|r| r.case.id == row.id);
            let explained = selection.unsupported.iter().find(|r| r.case == row.id);
            assert!(routed != explained.is_some(), "{}", row.id);
            if let Some(row) = explained {
                assert!(row.reason.as_ref().is_some_and(|r| !r.is_empty()));
            }
        }
        // Dense bf16 hd128 without a real window, the two overflow rows and the two views among them.
        for id in [
            "tail_prefill_b1_q1025_k1025_h4kv2_d128_c",
            "empty_prefill_b0_q128_k128_h4kv2_d128_nc",
            "empty_prefill_b1_q128_k0_h4kv2_d128_nc",
            "window_prefill_b2_q200_k1000_h8kv2_d128_nc_w4096.0",
            "int32_prefill_b1_q128_k4194304_h1kv1_d128_c",
            "stride_prefill_b2_q512_k512_h8kv2_d128_c_packed_qkv_interleaved_view",
            "logits_prefill_b1_q512_k512_h4kv4_d128_c_pm448x1880",
        ] {
            assert!(selection.routed.iter().any(|r| r.case.id == id), "{id}");
        }
    }

    #[test]
    fn ids_are_unique() {
        let selection = full(None);
        let mut ids: Vec<_> =
            selection.routed.iter().map(|r| format!("{}/{}", r.kernel.kernel, r.case.id)).collect();
        ids.extend(selection.unsupported.iter().map(|r| r.case.clone()));
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn filters_see_kernel_and_case() {
        assert_eq!(full(Some("sm100_hd128_bf16_causal/tail_.*q129")).routed.len(), 1);
        assert!(full(Some("^none/")).routed.is_empty());
        assert!(full(Some("nothing at all")).unsupported.is_empty());
    }

    #[test]
    fn other_sets_are_read_and_explained_too() {
        for set in ["claim.csv", "real.csv"] {
            let selection =
                select(Source::File(&workspace().join("sets").join(set)), None, 1, |_| 5).unwrap();
            assert!(!selection.unsupported.is_empty() && !selection.routed.is_empty(), "{set}");
        }
    }
}
