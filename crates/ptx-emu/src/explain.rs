//! What `ptx-emu explain` says of a fault code: the cause, an example, and its fix.
//!
//! The examples are the pairs that the golden tests run, so every one is known to raise its code when broken and to run
//! clean when fixed.

use crate::fault::Code;
use std::fmt::Write;

macro_rules! pairs {
    ($($code:ident $file:literal)*) => {
        /// The golden test that shows a code: its path in the crate, and its text.
        fn pair(code: Code) -> (&'static str, &'static str) {
            match code { $(Code::$code => ($file, include_str!(concat!("../", $file))),)* }
        }
    };
}

pairs! {
    LeaseShared "tests/fault/lease.shared/cp_async_read_unwaited.ptx"
    RaceShared "tests/fault/race.shared/init_not_published.ptx"
    RaceGlobal "tests/fault/race.global/fence_missing.ptx"
    RaceLoad "tests/fault/race.load-in-flight/arrive_before_use.ptx"
    StrictProxyOrder "tests/fault/strict.proxy-order/used_before_arrive.ptx"
    ProxyFence "tests/fault/proxy.fence/wgmma.ptx"
    LeaseTmem "tests/fault/lease.tmem/store_unwaited_before_other_warp.ptx"
    StrictLdUnwaited "tests/fault/strict.ld-unwaited/consumed.ptx"
    StrictTensorFence "tests/fault/strict.tcgen05-fence/wait_without_after.ptx"
    StrictMbarrierInit "tests/fault/strict.mbarrier-init/bulk_copy.ptx"
    StrictScope "tests/fault/strict.scope/remote_arrive.ptx"
    StrictMmaOrder "tests/fault/strict.mma-order/accumulator_over_p.ptx"
    StrictStLd "tests/fault/strict.st-ld/own_store.ptx"
    UninitBranch "tests/fault/uninit.branch/guard_of_exit.ptx"
    UninitAddress "tests/fault/uninit.address/load.ptx"
    UninitBarrier "tests/fault/uninit.barrier/member_mask.ptx"
    UninitAtomic "tests/fault/uninit.atomic/operand.ptx"
    UninitOutput "tests/fault/uninit.output/not_written.ptx"
    BoundsGlobal "tests/fault/bounds.global/past_the_end.ptx"
    BoundsShared "tests/fault/bounds.shared/wgmma_operand.ptx"
    BoundsOther "tests/fault/bounds.other/local.ptx"
    Align "tests/fault/align/mbarrier.ptx"
    MbarrierUninit "tests/fault/mbarrier.uninit/arrive.ptx"
    MbarrierReinit "tests/fault/mbarrier.reinit/live.ptx"
    MbarrierCount "tests/fault/mbarrier.count/init_zero.ptx"
    MbarrierTx "tests/fault/mbarrier.tx/range.ptx"
    MbarrierReused "tests/fault/mbarrier.reused/store.ptx"
    MbarrierLapped "tests/fault/mbarrier.lapped/old_token.ptx"
    StrictMbarrierPhase "tests/fault/strict.mbarrier-phase/arrive_again.ptx"
    MbarrierRole "tests/fault/mbarrier.role/arriver.ptx"
    BarrierNamed "tests/fault/barrier.named/counts_differ.ptx"
    TmemAlloc "tests/fault/tmem.alloc/after_relinquish.ptx"
    TmemLeak "tests/fault/tmem.leak/no_dealloc.ptx"
    TmemPair "tests/fault/tmem.pair/columns.ptx"
    TmemBounds "tests/fault/tmem.bounds/past_allocation.ptx"
    TmemLane "tests/fault/tmem.lane/other_window.ptx"
    WgmmaRegisters "tests/fault/wgmma.registers/written_before_wait.ptx"
    Descriptor "tests/fault/descriptor/wgmma_lanes_differ.ptx"
    Tma "tests/fault/tma/bulk_size.ptx"
    Converge "tests/fault/converge/barrier_in_divergent_code.ptx"
    SetMaxNReg "tests/fault/setmaxnreg/multiple_of_8.ptx"
    Exit "tests/fault/exit/store_unwaited.ptx"
    ClusterEnded "tests/fault/cluster.ended/inbound.ptx"
    ClusterBarrier "tests/fault/cluster.barrier/wait_alone.ptx"
    LaunchControl "tests/fault/launch.control/first_of_nothing.ptx"
    Deadlock "tests/fault/deadlock/overtaken.ptx"
    Trap "tests/fault/trap/reached.ptx"
    Launch "tests/fault/launch/threads.ptx"
}

/// The whole explanation of a code: cause, example, fix; ends with a line feed.
pub fn explain(code: Code) -> String {
    let (file, text) = pair(code);
    let title = text.lines().next().unwrap_or_default().trim_start_matches('/').trim();
    let mut o = format!("{}\n\nCause\n  {}\n\n", code.as_str(), code.explanation());
    // Writing to a String cannot fail.
    let _ = writeln!(o, "Example ({file})\n  {title}");
    for (mark, line) in marked(text, "broken") {
        let _ = writeln!(o, "  {mark} {line}");
    }
    let _ = writeln!(o, "\nFix");
    for (mark, line) in marked(text, "fixed") {
        let _ = writeln!(o, "  {mark} {line}");
    }
    o
}

/// Revision that a line is marked with.
fn revision(line: &str) -> Option<&str> {
    let at = line.rfind("//[")?;
    line[at + 3..].split_once(']').map(|(name, _)| name)
}

/// The lines of one revision of a pair where the two differ, each with the line before and after it; `>` stands before
/// what only this revision has.
fn marked<'a>(text: &'a str, name: &str) -> Vec<(char, &'a str)> {
    let lines: Vec<&str> = text.lines().collect();
    let differs = |i: usize| revision(lines[i]).is_some();
    // Lines of the common text next to a difference; comments and the header are not code.
    let near = |i: usize| {
        let code = !lines[i].starts_with("//") && !lines[i].trim().is_empty();
        code && (i > 0 && differs(i - 1) || i + 1 < lines.len() && differs(i + 1))
    };
    let mut out = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let shown = match revision(line) {
            Some(r) if r == name => '>',
            None if near(i) => ' ',
            _ => continue,
        };
        // A header line is a property of the launch.
        let line = line.strip_prefix("//@").map_or(*line, str::trim);
        let end = line.find("//").unwrap_or(line.len());
        out.push((shown, line[..end].trim()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_cause_example_and_fix() {
        for &code in Code::ALL {
            let (file, text) = pair(code);
            assert!(file.contains(&format!("/{}/", code.as_str())), "{file} is not of {}", code.as_str());
            assert!(code.explanation().len() > 20, "{}: no cause", code.as_str());
            let (broken, fixed) = (marked(text, "broken"), marked(text, "fixed"));
            assert!(!broken.is_empty() && !fixed.is_empty(), "{}: {file} shows nothing", code.as_str());
            assert_ne!(broken, fixed, "{}: example and fix are the same", code.as_str());
            let whole = explain(code);
            for heading in ["Cause\n", "Example (", "Fix\n"] {
                assert!(whole.contains(heading), "{}: no {heading}", code.as_str());
            }
        }
    }
}
