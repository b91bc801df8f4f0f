//! The forward pass on a device.

use fa4_kernels::kernel_info::KernelInfo;
use fa4_spec::problem::AttnProblem;

use crate::device::{Device, KernelLaunch};
use crate::error::HostError;
use crate::plan::{LaunchPlan, Tensors, output_ranges, plan};

/// Loaded code with the tables that it exports about itself.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a, M> {
    /// Code.
    pub module: &'a M,
    /// Its tables.
    pub info: &'a KernelInfo,
}

/// Runs attention on `device` and waits for it. `kernel` gives the loaded kernel that a plan asks for. Writes O and the
/// LSE, nothing else; without outputs nothing is launched and the answer is `None`.
pub fn forward<'a, D: Device>(
    device: &mut D,
    problem: &AttnProblem,
    tensors: &Tensors,
    tau: f32,
    kernel: impl FnOnce(&LaunchPlan) -> Result<Kernel<'a, D::Module>, HostError>,
) -> Result<Option<LaunchPlan>, HostError>
where
    D::Module: 'a,
{
    let Some(plan) = plan(problem, tensors, tau)? else { return Ok(None) };
    launch(device, &plan, kernel(&plan)?, output_ranges(problem, tensors))?;
    Ok(Some(plan))
}

/// Launches a plan and waits. `outputs` are the ranges that the kernel must write.
pub fn launch<D: Device>(
    device: &mut D,
    plan: &LaunchPlan,
    kernel: Kernel<'_, D::Module>,
    outputs: Vec<(u64, u64)>,
) -> Result<(), HostError> {
    let (entry, info) = (plan.row.entry, kernel.info);
    let params = plan.params_for(info)?.to_bytes(entry, info, |map| device.encode_tensor_map(map))?;
    device.launch(&KernelLaunch {
        module: kernel.module,
        entry,
        info,
        grid: plan.grid_on(device.sms()),
        block: [info.threads(), 1, 1],
        cluster: plan.cluster,
        params,
        outputs,
    })?;
    Ok(device.sync()?)
}
