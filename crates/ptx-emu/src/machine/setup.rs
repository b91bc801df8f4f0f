//! Before the first instruction: the entry is chosen, variables are placed, the launch is checked, CTAs are
//! built.

use super::cta::{Cta, NamedBar, Warp};
use super::decode::{self, Layout, Program};
use super::global::{GlobalMemory, Initial};
use super::hb::CtaHb;
use super::inline;
use super::shared::{SharedMemory, WINDOW_BASE};
use super::tmem::Tmem;
use crate::fault::{Code, Fault};
use crate::isa::regs::{V32, V64};
use crate::launch::{Launch, Verdict};
use crate::syntax::ast::{Function, Module, Space, Var};
use std::collections::{BTreeMap, HashMap};

/// Most shared memory a CTA can have (227 KiB).
pub const MAX_SHARED: u32 = 232_448;
/// Most local memory of a thread: a warp's lies in one piece, whether touched or not.
const MAX_LOCAL: u64 = 64 << 10;
/// Most CTAs along each axis of a grid.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

fn launch_fault(message: String, help: &str) -> Verdict {
    Verdict::Fault(Box::new(Fault::new(Code::Launch, message).help(help)))
}

fn cannot(what: impl Into<String>, line: u32) -> Verdict {
    Verdict::Unsupported { what: what.into(), opcode: String::new(), line }
}

/// Chooses the kernel, checks the launch, places variables, decodes.
pub(super) fn prepare(launch: &Launch<'_>, gmem: &mut GlobalMemory) -> Result<Program, Verdict> {
    let m = launch.module;
    let f = entry(m, launch.entry)?;
    let product = |v: [u32; 3]| v.iter().fold(1u64, |n, &x| n.saturating_mul(u64::from(x)));
    let threads = product(launch.block);
    if threads == 0 || threads > 1024 {
        return Err(launch_fault(
            format!("block {:?} has {threads} threads", launch.block),
            "1 to 1024 threads",
        ));
    }
    if launch.grid.iter().zip(MAX_GRID).any(|(&n, most)| n == 0 || n > most) {
        return Err(launch_fault(
            format!("grid {:?} of CTAs", launch.grid),
            "1 to 2147483647 CTAs along x, 1 to 65535 along y and z",
        ));
    }
    if let Some(r) = f.reqntid
        && product(r.map(|x| x.max(1))) != threads
    {
        return Err(launch_fault(
            format!("block {:?} but the kernel says .reqntid {r:?}", launch.block),
            "launch with the block size that the kernel was compiled for",
        ));
    }
    let cluster = super::cluster::dims(launch, f).map_err(|(text, help)| launch_fault(text, help))?;
    let need = f.params.iter().map(|p| u64::from(p.offset) + u64::from(p.size)).max().unwrap_or(0);
    if (launch.params.len() as u64) < need {
        return Err(launch_fault(
            format!("the parameter buffer has {} bytes, `{}` reads {need}", launch.params.len(), f.name),
            "give every parameter of the kernel's declaration, in order",
        ));
    }
    let expanded = inline::expanded(m, f).map_err(|(what, call)| Verdict::Unsupported {
        what,
        opcode: m.opcodes[call.op as usize].text.clone(),
        line: call.span.line,
    })?;
    let f = expanded.as_ref().unwrap_or(f);
    let layout = place(m, f, gmem)?;
    if layout.static_smem.saturating_add(launch.dynamic_smem) > MAX_SHARED {
        return Err(launch_fault(
            format!(
                "{} bytes of static and {} of dynamic shared memory exceed {MAX_SHARED}",
                layout.static_smem, launch.dynamic_smem
            ),
            "at most 227 KiB a CTA",
        ));
    }
    decode::decode(m, f, layout).map(|p| Program { cluster, ..p }).map_err(|e| Verdict::Unsupported {
        what: e.what.0.clone(),
        opcode: e.opcode.clone(),
        line: e.span.line,
    })
}

fn entry<'a>(m: &'a Module, name: &str) -> Result<&'a Function, Verdict> {
    let kernels: Vec<&Function> = m.functions.iter().filter(|f| f.is_entry).collect();
    let names = || kernels.iter().map(|f| format!("`{}`", f.name)).collect::<Vec<_>>().join(", ");
    match (name, kernels.as_slice()) {
        ("", [one]) => Ok(one),
        ("", _) => {
            Err(launch_fault(format!("the module holds {} kernels: {}", kernels.len(), names()), "name one"))
        }
        _ => kernels.iter().find(|f| f.name == name).copied().ok_or_else(|| {
            launch_fault(
                format!("no kernel `{name}` in {}; it holds {}", m.name, names()),
                "name one of these",
            )
        }),
    }
}

fn place(m: &Module, f: &Function, gmem: &mut GlobalMemory) -> Result<Layout, Verdict> {
    let mut l =
        Layout { module_vars: vec![0; m.vars.len()], func_vars: vec![0; f.vars.len()], ..Layout::default() };
    // In 64 bits and saturating: what does not fit is told below, not wrapped.
    let mut shared_end = u64::from(WINDOW_BASE);
    let mut local_end = 0u64;
    let put = |v: &Var, end: &mut u64| {
        let at = end.checked_next_multiple_of(u64::from(v.align.max(1))).unwrap_or(u64::MAX);
        *end = at.saturating_add(v.size.unwrap_or(0));
        at
    };
    for (i, v) in m.vars.iter().enumerate() {
        match v.space {
            Space::Shared if v.is_extern || v.size.is_none() => {}
            Space::Shared => l.module_vars[i] = put(v, &mut shared_end),
            Space::Global | Space::Const => {
                // PTX: variables without an initialiser start as zero.
                let size = v.size.unwrap_or(0);
                let a = gmem.alloc_init(&v.name, size, u64::from(v.align), Initial::Byte(0));
                if !v.init.is_empty() && gmem.write(a, &v.init).is_err() {
                    return Err(cannot(
                        format!("initialiser of `{}` is longer than the variable", v.name),
                        0,
                    ));
                }
                l.module_vars[i] = a;
            }
            Space::Local | Space::Param => {}
        }
    }
    for (i, v) in m.vars.iter().enumerate() {
        for (off, name, add) in &v.init_refs {
            let Some(j) = m.vars.iter().position(|x| x.name == *name) else {
                return Err(cannot(
                    format!("initialiser of `{}` names `{name}`, which is no variable", v.name),
                    0,
                ));
            };
            let value = (l.module_vars[j] as i64 + add) as u64;
            let _ = gmem.write(l.module_vars[i] + off, &value.to_le_bytes());
        }
    }
    for (i, v) in f.vars.iter().enumerate() {
        match v.space {
            Space::Shared if !v.is_extern => l.func_vars[i] = put(v, &mut shared_end),
            Space::Local | Space::Param => l.func_vars[i] = put(v, &mut local_end),
            _ => {}
        }
    }
    // Dynamic shared memory follows, at the strictest alignment that an extern array asks for.
    let align =
        m.vars.iter().chain(&f.vars).filter(|v| v.space == Space::Shared && v.is_extern).map(|v| v.align);
    let align = u64::from(align.max().unwrap_or(16).max(16));
    let dynamic = shared_end.checked_next_multiple_of(align).unwrap_or(u64::MAX);
    let window = u64::from(WINDOW_BASE);
    if dynamic - window > u64::from(MAX_SHARED) {
        return Err(launch_fault(
            format!("{} bytes of static shared memory exceed {MAX_SHARED}", dynamic - window),
            "at most 227 KiB a CTA",
        ));
    }
    if local_end > MAX_LOCAL {
        return Err(cannot(
            format!("{local_end} bytes of local memory a thread; at most {MAX_LOCAL}"),
            f.line,
        ));
    }
    l.local_bytes = local_end as u32;
    for (vars, out) in [(&m.vars, &mut l.module_vars), (&f.vars, &mut l.func_vars)] {
        for (i, v) in vars.iter().enumerate() {
            if v.space == Space::Shared && (v.is_extern || v.size.is_none()) {
                out[i] = dynamic;
            }
        }
    }
    l.static_smem = (dynamic - window) as u32;
    Ok(l)
}

/// A CTA at its first instruction.
pub(super) fn new_cta(prog: &Program, launch: &Launch<'_>, id: [u32; 3], race: bool) -> Cta {
    let rank = super::cluster::rank(id, prog.cluster.dims);
    let threads = launch.block.iter().product::<u32>();
    let n = threads.div_ceil(32);
    let mut warps = Vec::with_capacity(n as usize);
    for w in 0..n {
        let here = (threads - 32 * w).min(32);
        let lanes = if here == 32 { !0 } else { (1u32 << here) - 1 };
        let mut warp = Warp::new(prog, lanes);
        specials(prog, launch, id, w, &mut warp);
        warps.push(warp);
    }
    // Only a name for messages and clocks: a grid of more than 2^32 CTAs may wrap it.
    let linear = launch.grid[1].wrapping_mul(id[2]).wrapping_add(id[1]);
    let linear = launch.grid[0].wrapping_mul(linear).wrapping_add(id[0]);
    let lanes: Vec<u32> = warps.iter().map(|w| w.lanes).collect();
    let bytes = prog.layout.static_smem + launch.dynamic_smem;
    Cta {
        id,
        rank,
        rank_bits: u64::from(rank) << 24,
        ended: false,
        nothing_left: false,
        pair_wants: None,
        pair_got: None,
        lent: vec![],
        reductions: Default::default(),
        outbox: vec![],
        hb: CtaHb::new(race, prog.bulk_loads, linear, &lanes, bytes),
        shared: SharedMemory::new(bytes),
        tmem: Tmem::default(),
        warps,
        bars: [NamedBar::default(); 16],
        bar_ledgers: Default::default(),
        mbars: BTreeMap::new(),
        pending: vec![],
        landed: vec![],
        released: vec![],
        origins: vec![],
        mma_origins: vec![],
        pair_seqs: vec![],
        mma_last: HashMap::new(),
        mma_released: 0,
        bulk: HashMap::new(),
        mma_open: vec![],
        proxy_fence: 0,
        warpgroups: vec![Default::default(); n.div_ceil(4) as usize],
        dynamic_base: WINDOW_BASE + prog.layout.static_smem,
        next_warp: 0,
        clocks: None,
    }
}

fn specials(prog: &Program, launch: &Launch<'_>, id: [u32; 3], w: u32, warp: &mut Warp) {
    let b = launch.block;
    let linear = |l: u32| 32 * w + l;
    let (dims, rank) = (prog.cluster.dims, super::cluster::rank(id, prog.cluster.dims));
    let per_axis = |f: fn(u32, u32) -> u32, v: [u32; 3]| std::array::from_fn(|i| f(v[i], dims[i]));
    let value = |name: &str, l: u32| -> u64 {
        let t = linear(l);
        let axis = |v: [u32; 3]| match name.rsplit('.').next() {
            Some("x") => v[0],
            Some("y") => v[1],
            Some("z") => v[2],
            _ => 0,
        };
        let v = match name.split('.').next().unwrap_or(name) {
            "%tid" => axis([t % b[0], t / b[0] % b[1], t / b[0] / b[1]]),
            "%ntid" => axis(b),
            "%ctaid" => axis(id),
            "%nctaid" => axis(launch.grid),
            "%clusterid" => axis(per_axis(|v, d| v / d, id)),
            "%nclusterid" => axis(per_axis(|v, d| v / d, launch.grid)),
            "%cluster_ctaid" => axis(per_axis(|v, d| v % d, id)),
            "%cluster_nctaid" => axis(dims),
            "%cluster_ctarank" => rank,
            "%cluster_nctarank" => dims.iter().product(),
            "%laneid" => l,
            "%warpid" => w,
            "%nwarpid" => (b[0] * b[1] * b[2]).div_ceil(32),
            "%nsmid" => 148,
            "%lanemask_eq" => 1 << l,
            "%lanemask_lt" => (1u32 << l) - 1,
            "%lanemask_le" => ((1u64 << (l + 1)) - 1) as u32,
            "%lanemask_gt" => !(((1u64 << (l + 1)) - 1) as u32),
            "%lanemask_ge" => !((1u32 << l) - 1),
            "%dynamic_smem_size" => launch.dynamic_smem,
            "%total_smem_size" => prog.layout.static_smem + launch.dynamic_smem,
            // %smid, %gridid and whatever else reads 0 on this machine.
            _ => match name.strip_prefix(decode::OWN_SHARED) {
                Some(offset) => offset.parse().unwrap_or(0) | rank << 24,
                None => 0,
            },
        };
        u64::from(v)
    };
    for (name, &slot) in &prog.slots.special32 {
        warp.regs.r32[slot as usize] = V32(std::array::from_fn(|l| value(name, l as u32) as u32));
        warp.regs.u32[slot as usize] = 0;
    }
    for (name, &slot) in &prog.slots.specialp {
        let set = &**name == "%is_explicit_cluster" && prog.cluster.explicit;
        warp.regs.p[slot as usize] = if set { !0 } else { 0 };
        warp.regs.up[slot as usize] = 0;
    }
    for (name, &slot) in &prog.slots.special64 {
        warp.regs.r64[slot as usize] = V64(std::array::from_fn(|l| value(name, l as u32)));
        warp.regs.u64[slot as usize] = 0;
    }
}
