//! The forward pass on a device.

use fa4_spec::problem::AttnProblem;

use crate::device::{Device, KernelLaunch};
use crate::error::HostError;
use crate::params::KernelAbi;
use crate::plan::{LaunchPlan, Tensors, plan};

/// Loaded code of a route with what it exports about itself.
#[derive(Debug, Clone)]
pub struct Kernel<M> {
    /// Code.
    pub module: M,
    /// Parameter layout and shared memory.
    pub abi: KernelAbi,
}

/// Runs attention on `device` and waits for it. `kernel` gives the loaded kernel of a plan's route. Writes O and the
/// LSE, nothing else; without outputs nothing is launched and the answer is `None`.
pub fn forward<D: Device>(
    device: &mut D,
    problem: &AttnProblem,
    tensors: &Tensors,
    tau: f32,
    kernel: impl FnOnce(&LaunchPlan) -> Result<Kernel<D::Module>, HostError>,
) -> Result<Option<LaunchPlan>, HostError> {
    let Some(plan) = plan(problem, tensors, tau)? else { return Ok(None) };
    let Kernel { module, abi } = kernel(&plan)?;
    let params = plan.params.to_bytes(&abi, |map| device.encode_tensor_map(map).map_err(HostError::from))?;
    device.launch(&KernelLaunch {
        module: &module,
        entry: plan.route.entry,
        grid: plan.grid,
        block: plan.block,
        cluster: plan.cluster,
        dynamic_smem_bytes: abi.dynamic_smem_bytes,
        params,
    })?;
    device.sync()?;
    Ok(Some(plan))
}
