//! Whoever has only the report of a broken kernel can name the statement that is missing: the barrier, who should arrive or
//! wait there, and before or after which line.

use fa4_gate::judge::{Verdict, prepare, run_edited};
use fa4_gate::kernels::{Kernel, compile, workspace};
use fa4_gate::mutate::name::Sources;
use fa4_gate::mutate::{mutants_of, target};
use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_host::error::DeviceError;
use fa4_kernels::compile::Builder;
use fa4_kernels::toolchain::Toolchain;
use ptx_emu::launch::{Options, Schedule};
use ptx_emu::mutation;
use regex::Regex;

/// The end of a mutant's name, and what its report must say.
const MUTANTS: &[(&str, &[&str])] = &[
    (r"try_wait\(KV_full\) delete", &["a wait by mma (warp 12) for phase 0 of KV_full[1]", "(from "]),
    (r"try_wait\(S_full\) parity", &["a wait by softmax0 (warp 0) for phase 0 of S_full[0]", "fell through"]),
    (r"try_wait\(P_full\) delete", &["a wait by mma (warp 12) for P_full[0]", "has never waited there"]),
    (r"try_wait\(Q_full\) delete", &["a wait by mma (warp 12) for phase 0 of Q_full[0]"]),
    (
        r"try_wait\(KV_empty\) delete",
        &["a wait by load (warp 14) for KV_empty[0]", "where mma (warp 12) arrives"],
    ),
    (r"try_wait\(O_staged\) delete", &["a wait by epilogue (warp 13) for O_staged[0]"]),
    (r"try_wait\(stats_full\) delete", &["row_factor[0]", "has not waited yet for stats_full[0]"]),
    (
        r"arrive\(P_tail_full\) delete",
        &["an arrival on P_tail_full[0] by softmax0", "softmax0 (warps 0-3) wait"],
    ),
    (r"arrive\(stats_full\) delete", &["an arrival on stats_full[0] in phase 0 by softmax0 (warps 0-3)"]),
    (r"commit\(O_full\) delete", &["an arrival on O_full[0] by mma"]),
    (r"commit\(KV_empty\) delete", &["an arrival on KV_empty[1]", "by mma (warp 12) (tcgen05.commit)"]),
    (
        r"tcgen05.wait delete",
        &["tcgen05.wait::st by softmax0 (warp 0) between", "where it hands over (P_full[0])"],
    ),
    (r"fence.proxy.async delete", &["fence.proxy.async by correction (warp 8) between", "(O_staged[0])"]),
    (r"expect_tx tx_bytes -box", &["bytes announced on Q_full[0]: expect_tx at fwd_sm100.cu:"]),
    (r"expect_tx no expect_tx", &["an expect_tx of the copy's bytes on Q_full[0]"]),
    (r"bar.sync delete", &["a barrier (bar.sync) between mbarrier.init at fwd_sm100.cu:"]),
    (
        r"bulk.wait_group delete",
        &["cp.async.bulk.wait_group.read 0 by epilogue (warp 13) after fwd_sm100.cu:"],
    ),
];

/// What the emulator says of a kernel under the first schedule that finds fault with it.
fn report(kernel: &Kernel<EmuModule>, target: &target::Target) -> Option<String> {
    let case = target.cases().into_iter().next()?;
    let data = prepare(&case).ok()?;
    Schedule::ALL.into_iter().find_map(|schedule| {
        let options = Options { schedule, seed: 1, step_limit: 3_000_000, ..Options::default() };
        match run_edited(kernel, &case, &data, &mut EmuDevice::new(options), |_| ()).verdict {
            Verdict::Device(DeviceError::Fault { rendering, .. }) => Some(rendering),
            _ => None,
        }
    })
}

#[test]
fn reports_name_what_was_deleted() {
    let root = workspace();
    if Toolchain::locate(&root).is_err() {
        return;
    }
    let targets = target::of("fwd_sm100").unwrap();
    let target = targets.iter().find(|t| t.row.entry == "fwd_sm100_hd64_bf16_full").unwrap();
    let kernels = compile(&Builder::open(&root).unwrap(), &root, None, |row| row == target.row).unwrap();
    let tree = kernels[0].module.tree();
    let function = tree.functions.iter().position(|f| f.name == target.row.entry).unwrap();
    let mutants = mutants_of(&kernels[0], &Sources::new(&root)).unwrap();
    let mut wrong = Vec::new();
    for (name, words) in MUTANTS {
        let pattern = Regex::new(&format!("{name}$")).unwrap();
        let broken = mutants.iter().filter(|m| pattern.is_match(&m.id)).find_map(|m| {
            let module = EmuModule::of(mutation::apply(tree, function, &m.mutation)?);
            let (row, info) = (kernels[0].row, kernels[0].info.clone());
            let kernel =
                Kernel { row, name: m.id.clone(), module, info, markers: Vec::new(), ptx: String::new() };
            report(&kernel, target).map(|text| (m.id.clone(), text))
        });
        match broken {
            None => wrong.push(format!("{name}: no mutant is found fault with")),
            Some((id, text)) => {
                let lacks = words.iter().filter(|word| !text.contains(**word));
                wrong.extend(lacks.map(|word| format!("{id}: lacks `{word}`:\n{text}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
