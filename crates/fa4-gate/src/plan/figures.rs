//! What one K/V block costs, counted by the emulator, against what the machine's units can do: a prediction.
//!
//! One CTA's tiles of one head are run with 8 and with 16 K/V blocks. An eighth of the difference is one block of the
//! steady state, free of prologue and end.

use std::collections::BTreeMap;

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_kernels::arch::Arch;
use fa4_kernels::kernel_info::KernelInfo;
use fa4_kernels::manifest::Problem;
use ptx_emu::launch::{Counters, Options, Report, Schedule};
use ptx_emu::machine::inst::OpClass;
use ptx_emu::machine::predict::{Costs, Prediction};
use serde::Serialize;

use crate::judge::{prepare, run};
use crate::kernels::Kernel;
use crate::pipeline::one_head;
use crate::plan::timeline::Timeline;

/// K/V blocks of the shorter run; the longer one has twice as many.
pub const BLOCKS: u64 = 8;
/// Bytes of 16-bit elements.
const ELEM_BYTES: u64 = 2;
/// Columns of a panel in shared memory: rows of head_dim are padded to a multiple.
const PANEL_COLS: u64 = 64;

/// What an SM does in a cycle (arXiv 2603.05451 for Blackwell, 2407.08608 for Hopper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Dense 16-bit tensor operations (a multiply-add is two).
    pub tensor_ops: u64,
    /// Exponentials.
    pub exponentials: u64,
    /// Bytes of shared memory.
    pub smem_bytes: u64,
}

impl Machine {
    /// The machine of an architecture.
    pub fn of(arch: Arch) -> Machine {
        let tensor_ops = match arch {
            Arch::Sm90a => 4096,
            Arch::Sm100a | Arch::Sm103a => 8192,
        };
        Machine { tensor_ops, exponentials: 16, smem_bytes: 128 }
    }
}

/// A unit's share of one K/V block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unit {
    /// `tensor core`, `MUFU`, `shared memory`.
    pub name: &'static str,
    /// How much it has to do.
    pub amount: u64,
    /// Of what.
    pub of: &'static str,
    /// Cycles that this takes it at the least.
    pub cycles: f64,
}

/// Warp instructions of one role for one K/V block, by class of the emulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleCounts {
    /// Role.
    pub role: String,
    /// Warps that play it.
    pub warps: u32,
    /// PTX instructions of all its warps together.
    pub classes: BTreeMap<OpClass, f64>,
    /// The same for the whole of the shorter run, prologue and end included.
    pub whole: BTreeMap<OpClass, u64>,
}

impl RoleCounts {
    /// Instructions of some classes, by warp.
    pub fn by_warp(&self, classes: &[OpClass]) -> f64 {
        let sum: f64 = classes.iter().filter_map(|class| self.classes.get(class)).sum();
        sum / f64::from(self.warps.max(1))
    }

    /// All instructions, by warp.
    pub fn total_by_warp(&self) -> f64 {
        self.classes.values().sum::<f64>() / f64::from(self.warps.max(1))
    }
}

/// Everything predicted for one variant.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Query rows of the CTA.
    pub rows: u64,
    /// Keys of a K/V block.
    pub keys: u64,
    /// Units, by what one K/V block asks of them.
    pub units: Vec<Unit>,
    /// Roles.
    pub roles: Vec<RoleCounts>,
    /// Bytes that TMA brings for one K/V block.
    pub loaded_bytes: u64,
    /// Cycles of one K/V block in the steady state.
    pub block_cycles: f64,
    /// The whole of the shorter run.
    pub short: Prediction,
    /// Whether matrix instructions take time in the emulator's model of this architecture.
    pub times_matrix: bool,
    /// The shorter run, for charts.
    pub timeline: Timeline,
}

impl Figures {
    /// The unit that has most to do.
    pub fn bound(&self) -> &Unit {
        let busiest = self.units.iter().max_by(|a, b| a.cycles.total_cmp(&b.cycles));
        busiest.expect("there are three units")
    }

    /// Cycles of a block over the least that the busiest unit needs; `None` where the model times no matrix instructions.
    pub fn distance(&self) -> Option<f64> {
        self.times_matrix.then(|| self.block_cycles / self.bound().cycles)
    }
}

/// Keys of a K/V block, from the size of its slot.
pub fn block_keys(info: &KernelInfo, problem: &Problem) -> Option<u64> {
    let slot = info.smem.iter().find(|region| region.name == "KV")?;
    let row =
        u64::from(problem.head_dim_qk.max(problem.head_dim_v)).next_multiple_of(PANEL_COLS) * ELEM_BYTES;
    Some(u64::from(slot.bytes) / row).filter(|keys| *keys > 0)
}

/// Predicts a variant; `None` where its tables name no K/V slot or it does not run clean.
pub fn figures(kernel: &Kernel<EmuModule>) -> Option<Figures> {
    let problem = &kernel.row.problem;
    let keys = block_keys(&kernel.info, problem)?;
    let rows = u64::from(problem.rows_per_cta);
    let run = |blocks: u64, trace: bool| -> Option<Report> {
        let case = one_head(problem, rows, blocks * keys);
        let data = prepare(&case).ok()?;
        let options = Options { schedule: Schedule::Timed, costs: Costs::UNITS, trace, ..Options::default() };
        let mut device = EmuDevice::new(options);
        run(kernel, &case, &data, &mut device);
        device.report().filter(|report| report.is_clean()).cloned()
    };
    let (short, long) = (run(BLOCKS, true)?, run(2 * BLOCKS, false)?);
    let (before, after) = (short.prediction?, long.prediction?);
    let machine = Machine::of(kernel.row.archs[0]);
    let per_block = |short: u64, long: u64| (long - short.min(long)) as f64 / BLOCKS as f64;

    let (dim_qk, dim_v) = (u64::from(problem.head_dim_qk), u64::from(problem.head_dim_v));
    let tensor_ops = 2 * rows * keys * (dim_qk + dim_v);
    let exponentials = per_block(ex2(&short.counters), ex2(&long.counters)) * 32.0;
    // Each tile of Blackwell, each warpgroup's of Hopper, reads K and V for itself; Q·K reads Q besides, while P comes from
    // tensor memory or registers.
    let tile_rows = if machine.tensor_ops == 4096 { 64 } else { 128 };
    let operand_bytes = (rows * dim_qk + rows / tile_rows * keys * (dim_qk + dim_v)) * ELEM_BYTES;
    let unit =
        |name, amount: u64, of, rate: u64| Unit { name, amount, of, cycles: amount as f64 / rate as f64 };
    let units = vec![
        unit("tensor core", tensor_ops, "operations", machine.tensor_ops),
        unit("MUFU", exponentials as u64, "exponentials", machine.exponentials),
        unit("shared memory", operand_bytes, "bytes of operands", machine.smem_bytes),
    ];
    Some(Figures {
        rows,
        keys,
        units,
        roles: roles(&kernel.info, &short.counters, &long.counters),
        loaded_bytes: per_block(short.counters.bytes_loaded, long.counters.bytes_loaded) as u64,
        block_cycles: per_block(before.cycles, after.cycles),
        short: before,
        times_matrix: before.mma > 0,
        timeline: Timeline::new(short.trace.as_ref()?, &kernel.info),
    })
}

/// Warp instructions on the multi-function unit. All but a few are exponentials.
fn ex2(counters: &Counters) -> u64 {
    counters.instructions.values().filter_map(|by| by.get(&OpClass::Mufu)).sum()
}

fn roles(info: &KernelInfo, short: &Counters, long: &Counters) -> Vec<RoleCounts> {
    let of = |counters: &Counters, role: &str, class: OpClass| {
        counters.instructions.get(role).and_then(|by| by.get(&class)).copied().unwrap_or(0)
    };
    let counts = info.roles.iter().map(|role| {
        let classes = long.instructions.get(&role.name).into_iter().flatten();
        let classes = classes.map(|(class, after)| {
            let more = after - of(short, &role.name, *class).min(*after);
            (*class, more as f64 / BLOCKS as f64)
        });
        let classes = classes.filter(|(_, count)| *count > 0.0).collect();
        let whole = short.instructions.get(&role.name).cloned().unwrap_or_default();
        RoleCounts { role: role.name.clone(), warps: role.warps, classes, whole }
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of arXiv 2603.05451 for M = 256, N = D = 128: 2048 cycles of tensor core and MUFU, 1536 of shared memory.
    #[test]
    fn units_agree_with_the_published_figures() {
        let machine = Machine::of(Arch::Sm100a);
        assert_eq!(2 * 256 * 128 * 256 / machine.tensor_ops, 2048);
        assert_eq!(256 * 128 / machine.exponentials, 2048);
        assert_eq!((256 * 128 + 2 * 128 * 256) * 2 / machine.smem_bytes, 1536);
    }
}
