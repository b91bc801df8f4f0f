//! From the resolved tree of one kernel to decoded operations on register slots.
//!
//! Memory, control flow, synchronisation and asynchronous instructions are decoded here and in
//! [`super::decode_async`]; register-only ones by [`crate::isa::alu`]. A modifier that is not understood makes
//! the instruction unsupported: nothing is guessed.

use super::decode_async::arg;
use super::hb::{Order, Scope};
use super::inst::*;
use crate::isa::alu::{self, AluClass};
use crate::isa::operands::{Decoded as Res, Slots, Unsupported, unsupported};
use crate::isa::regs::Class;
use crate::syntax::ast::{self, Base, Function, Module, Opcode, Operand, Space, Sym, Ty};
use std::collections::HashMap;
use std::sync::Arc;

/// First byte of the window that generic addresses of shared memory lie in (bits 24 and up of the low word:
/// CTA rank in the cluster).
pub const SHARED_WINDOW: u64 = 0x7f2f_0000_0000;
/// What the name of a special register begins with that holds an address in the CTA's own shared memory: the offset in
/// the window follows, the CTA's rank is added.
pub const OWN_SHARED: &str = "%shared+";
/// Window of per-thread memory.
pub const LOCAL_WINDOW: u64 = 0x7f2e_0000_0000;
/// Window of kernel parameters.
pub const PARAM_WINDOW: u64 = 0x7f2d_0000_0000;

/// Where the variables of a kernel live.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Address of each module variable (shared: window offset).
    pub module_vars: Vec<u64>,
    /// Address of each function variable.
    pub func_vars: Vec<u64>,
    /// Bytes of static shared memory, rounded up to where dynamic memory begins.
    pub static_smem: u32,
    /// Bytes of local memory a thread.
    pub local_bytes: u32,
}

/// A kernel ready to run.
#[derive(Debug)]
pub struct Program {
    /// Operations.
    pub code: Vec<Decoded>,
    /// Register lists that [`Decoded::srcs`] and [`Decoded::dsts`] point into.
    pub regs: Vec<Reg>,
    /// Slot assignment, constants, special registers.
    pub slots: Slots,
    /// Names of coverage markers.
    pub covers: Vec<Arc<str>>,
    /// Variable placement.
    pub layout: Layout,
    /// True when several CTAs can influence each other (atomics, reductions to global memory).
    pub coupled: bool,
    /// Something writes shared memory through the async proxy.
    pub bulk_loads: bool,
    /// Per 32-bit slot: some wgmma reads or writes it. Empty where the kernel has none.
    pub wgmma_regs: Vec<bool>,
    /// Opcode text of each instruction (index into the module's opcodes).
    pub opcodes: Vec<u32>,
    /// The cluster that it is launched with.
    pub cluster: super::cluster::ClusterDims,
    /// Its tcgen05 instructions are those of a CTA pair (`.cta_group::2`).
    pub pair: bool,
}

/// An instruction that cannot be run, and where it stands.
#[derive(Clone, Debug)]
pub struct DecodeError {
    /// What is unsupported.
    pub what: Unsupported,
    /// The opcode as spelled.
    pub opcode: String,
    /// Where.
    pub span: ast::Span,
}

pub(super) struct Cx<'a> {
    pub module: &'a Module,
    pub f: &'a Function,
    pub slots: Slots,
    pub layout: &'a Layout,
    covers: Vec<Arc<str>>,
    cover_ids: HashMap<Arc<str>, u32>,
}

/// Decodes every instruction of `f`.
pub fn decode(module: &Module, f: &Function, layout: Layout) -> Result<Program, Box<DecodeError>> {
    let mut cx =
        Cx { module, f, slots: Slots::new(f), layout: &layout, covers: vec![], cover_ids: HashMap::new() };
    let (mut code, mut regs, mut opcodes) = (Vec::with_capacity(f.body.len()), Vec::new(), Vec::new());
    let mut coupled = false;
    let mut pair = false;
    let mut single = false;
    for instr in &f.body {
        let op = &module.opcodes[instr.op as usize];
        let fail = |what| Box::new(DecodeError { what, opcode: op.text.clone(), span: instr.span });
        let guard = match instr.guard {
            None => None,
            Some((r, neg)) => Some((cx.slots.src_p(&Operand::Reg(r)).map_err(fail)?.0, neg)),
        };
        let one = cx.one(op, &instr.args).map_err(fail)?;
        if op.mnemonic == "tcgen05" {
            pair |= op.has("cta_group::2");
            single |= op.has("cta_group::1");
            if pair && single {
                return Err(fail(Unsupported("cta_group::1 and cta_group::2 in one kernel".into())));
            }
        }
        coupled |= matches!(&one.inst, Inst::AtomVector(_) | Inst::Atom128(_) | Inst::LaunchControl(_))
            || matches!(&one.inst, Inst::Atom { place, .. } if *place != Place::Shared)
            || matches!(&one.inst, Inst::Ld(a) if a.ordered && a.place != Place::Shared);
        let s0 = regs.len() as u32;
        regs.extend(one.srcs);
        let s1 = regs.len() as u32;
        regs.extend(one.dsts);
        let d1 = regs.len() as u32;
        opcodes.push(instr.op);
        code.push(Decoded {
            inst: one.inst,
            guard,
            class: one.class,
            span: instr.span,
            srcs: (s0, s1),
            dsts: (s1, d1),
            wgmma_regs: false,
            reconverge: u32::MAX,
        });
    }
    let bulk_loads = code.iter().any(|d: &Decoded| match &d.inst {
        Inst::Bulk(b) => matches!(**b, Bulk::Load { .. } | Bulk::TensorLoad { .. } | Bulk::Between { .. }),
        _ => false,
    });
    super::cfg::mark_reconvergence(&mut code);
    let Cx { slots, covers, .. } = cx;
    let wgmma_regs = super::wgmma::mark_registers(&mut code, &regs, slots.n32 as usize);
    let cluster = Default::default();
    Ok(Program { code, regs, slots, covers, layout, coupled, bulk_loads, opcodes, wgmma_regs, cluster, pair })
}

/// One decoded instruction before it is packed.
pub(super) struct One {
    pub inst: Inst,
    pub class: OpClass,
    pub srcs: Vec<Reg>,
    pub dsts: Vec<Reg>,
}

impl One {
    pub fn new(inst: Inst, class: OpClass) -> One {
        One { inst, class, srcs: vec![], dsts: vec![] }
    }
    pub fn src(mut self, r: impl IntoIterator<Item = Reg>) -> One {
        self.srcs.extend(r);
        self
    }
    pub fn dst(mut self, r: impl IntoIterator<Item = Reg>) -> One {
        self.dsts.extend(r);
        self
    }
}

/// Registers that an address reads.
pub(super) fn addr_reg(a: Addr) -> Option<Reg> {
    match a {
        Addr::R32(r, _) => Some((Class::R32, r)),
        Addr::R64(r, _) => Some((Class::R64, r)),
        Addr::Abs(_) | Addr::Own(_) => None,
    }
}

/// Result of a modifier walk: every modifier must be taken by somebody.
pub(super) fn reject(op: &Opcode, m: &str) -> Unsupported {
    Unsupported(format!("modifier `.{m}` of `{}`", op.text))
}

/// Type named by a modifier.
pub(super) fn type_of(m: &str) -> Option<Ty> {
    Some(match m {
        "pred" => Ty::Pred,
        "b8" => Ty::B8,
        "u8" => Ty::U8,
        "s8" => Ty::S8,
        "b16" => Ty::B16,
        "u16" => Ty::U16,
        "s16" => Ty::S16,
        "f16" => Ty::F16,
        "bf16" => Ty::BF16,
        "b32" => Ty::B32,
        "u32" => Ty::U32,
        "s32" => Ty::S32,
        "f32" => Ty::F32,
        "f16x2" => Ty::F16x2,
        "bf16x2" => Ty::BF16x2,
        "b64" => Ty::B64,
        "u64" => Ty::U64,
        "s64" => Ty::S64,
        "f64" => Ty::F64,
        "b128" => Ty::B128,
        _ => return None,
    })
}

impl Cx<'_> {
    fn one(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        use OpClass as C;
        let plain = |i, c| Ok(One::new(i, c));
        match op.mnemonic.as_str() {
            "%cover" => {
                let Some(Operand::Name(n)) = args.first() else {
                    return unsupported("a cover marker without a name");
                };
                let id = *self.cover_ids.entry(n.clone()).or_insert_with(|| {
                    self.covers.push(n.clone());
                    self.covers.len() as u32 - 1
                });
                plain(Inst::Cover(id), C::Other)
            }
            "bra" => self.one_jump(args),
            "brx" => match args {
                [idx, Operand::Targets(t)] => {
                    let i = self.slots.src32(idx, Ty::U32)?;
                    let targets = self.f.branch_targets[*t as usize].clone().into_boxed_slice();
                    Ok(One::new(Inst::BrxIdx(i, targets), C::Control).src([(Class::R32, i)]))
                }
                _ => unsupported("brx.idx without a target list"),
            },
            // In a copy of a device function: back to the call.
            "ret" if matches!(args, [Operand::Label(_)]) => self.one_jump(args),
            "ret" | "exit" => plain(Inst::Exit, C::Control),
            "trap" | "brkpt" => plain(Inst::Trap, C::Control),
            "call" => match args {
                [] => plain(Inst::Exit, C::Control),
                [Operand::Label(_)] => self.one_jump(args),
                _ => plain(called(args), C::Control),
            },
            "nanosleep" | "prefetch" | "prefetchu" | "discard" | "applypriority" | "createpolicy"
            | "pmevent" | "griddepcontrol" | "barrier_dummy" => self.hint(op, args),
            "fence"
                if op.has("proxy") && op.mods.iter().any(|m| m.starts_with("async")) && !op.has("global") =>
            {
                plain(Inst::ProxyFence, C::Fence)
            }
            "fence" if op.has("mbarrier_init") => plain(Inst::InitFence, C::Fence),
            "fence" | "membar" => plain(Inst::Fence(fence_scope(op)), C::Fence),
            "ld" | "ldu" => self.ld(op, args),
            "st" => self.st(op, args),
            "atom" | "red" => self.atom(op, args),
            "cvta" => self.cvta(op, args),
            "mapa" | "getctarank" => self.rank_of_address(op, args),
            "isspacep" => {
                let place = place_of(op)?;
                let d = self.slots.dst_p(arg(op, args, 0)?)?;
                let s = self.slots.src64(arg(op, args, 1)?, Ty::U64)?;
                Ok(One::new(Inst::IsSpace(d, s, place), C::Other).src([(Class::R64, s)]).dst([(Class::P, d)]))
            }
            "shfl" => self.shfl(op, args),
            "vote" => self.vote(op, args),
            "redux" => self.redux(op, args),
            "match" => self.match_sync(op, args),
            "activemask" => {
                let d = self.slots.dst32(arg(op, args, 0)?)?;
                Ok(One::new(Inst::ActiveMask(d), C::Warp).dst([(Class::R32, d)]))
            }
            "elect" => {
                let (d, p) = match arg(op, args, 0)? {
                    Operand::Pair(d, p) => (
                        match **d {
                            Operand::Sink => None,
                            ref d => Some(self.slots.dst32(d)?),
                        },
                        self.slots.dst_p(p)?,
                    ),
                    p => (None, self.slots.dst_p(p)?),
                };
                let m = self.slots.src32(arg(op, args, 1)?, Ty::U32)?;
                let mut one =
                    One::new(Inst::Elect(d, p, m), C::Warp).src([(Class::R32, m)]).dst([(Class::P, p)]);
                one.dsts.extend(d.map(|d| (Class::R32, d)));
                Ok(one)
            }
            "bar" | "barrier" => self.bar(op, args),
            "mov" if matches!(args.get(1), Some(Operand::Special(s)) if is_clock(s)) => {
                let d = match op.mods.last().and_then(|m| type_of(m)).map(Ty::bytes) {
                    Some(8) => (Class::R64, self.slots.dst64(arg(op, args, 0)?)?),
                    _ => (Class::R32, self.slots.dst32(arg(op, args, 0)?)?),
                };
                Ok(One::new(Inst::Clock(d), C::Other).dst([d]))
            }
            "mov" if matches!(args.get(1), Some(Operand::Sym(..))) => {
                let value = self.own_symbol(arg(op, args, 1)?)?;
                self.alu(op, &[arg(op, args, 0)?.clone(), value])
            }
            "mbarrier"
            | "cp"
            | "tcgen05"
            | "setmaxnreg"
            | "tensormap"
            | "ldmatrix"
            | "stmatrix"
            | "wgmma"
            | "mma"
            | "clusterlaunchcontrol"
            | "multimem" => self.asynchronous(op, args),
            _ => self.alu(op, args),
        }
    }

    fn alu(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let Some(a) = alu::decode(op, args, &mut self.slots)? else {
            return unsupported(format!("opcode `{}`", op.text));
        };
        let class = match a.class {
            AluClass::Int => OpClass::Int,
            AluClass::Fp32 => OpClass::Fp32,
            AluClass::Packed => OpClass::Packed,
            AluClass::Mufu => OpClass::Mufu,
            AluClass::Cvt => OpClass::Cvt,
            AluClass::Mov => OpClass::Mov,
            AluClass::Cmp => OpClass::Cmp,
            AluClass::Fp16 => OpClass::Fp16,
            AluClass::Fp64 => OpClass::Fp64,
        };
        Ok(One { inst: Inst::Alu(a.op), class, srcs: a.srcs, dsts: a.dsts })
    }

    /// Hints without effect here. Their operands are still addresses, but nothing is touched.
    fn hint(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        if op.mnemonic == "createpolicy" {
            let d = self.slots.dst64(arg(op, args, 0)?)?;
            let z = self.slots.imm64(0);
            let mov = Opcode { text: "mov.b64".into(), mnemonic: "mov".into(), mods: vec!["b64".into()] };
            let _ = (d, z);
            return self.alu(&mov, &[arg(op, args, 0)?.clone(), Operand::Int(0)]);
        }
        Ok(One::new(Inst::Nop, OpClass::Other))
    }

    fn one_jump(&self, args: &[Operand]) -> Res<One> {
        match args {
            [Operand::Label(t)] => Ok(One::new(Inst::Bra(*t), OpClass::Control)),
            _ => unsupported("a branch without a label"),
        }
    }

    /// Address that a symbol stands for, in its own space.
    pub fn symbol(&self, s: Sym) -> Res<u64> {
        Ok(match s {
            Sym::Param(i) => u64::from(self.f.params[i as usize].offset),
            Sym::FuncVar(i) => self.layout.func_vars[i as usize],
            Sym::ModuleVar(i) => self.layout.module_vars[i as usize],
            Sym::Func(i) => {
                return unsupported(format!(
                    "address of function `{}`",
                    self.module.functions[i as usize].name
                ));
            }
        })
    }

    /// A symbol as a value that a register operation can read; other operands as they are.
    pub(super) fn own_symbol(&self, o: &Operand) -> Res<Operand> {
        let Operand::Sym(s, add) = o else { return Ok(o.clone()) };
        let v = self.symbol(*s)? as i64 + add;
        Ok(match self.symbol_space(*s) {
            Space::Shared => Operand::Special(format!("{OWN_SHARED}{}", v as u32).into()),
            _ => Operand::Int(v),
        })
    }

    fn symbol_space(&self, s: Sym) -> Space {
        match s {
            Sym::Param(_) | Sym::Func(_) => Space::Param,
            // A .param variable of the body carries an argument or a result: memory of the thread (`inline`).
            Sym::FuncVar(i) => match self.f.vars[i as usize].space {
                Space::Param => Space::Local,
                other => other,
            },
            Sym::ModuleVar(i) => self.module.vars[i as usize].space,
        }
    }

    /// Address expression `[base + offset]`; bare registers are taken too (tcgen05.dealloc's operand).
    pub fn addr(&mut self, o: &Operand) -> Res<Addr> {
        match o {
            Operand::Addr(b, off) => self.base(*b, *off),
            Operand::Reg(r) => self.base(Base::Reg(*r), 0),
            Operand::Sym(s, off) => self.base(Base::Sym(*s), *off),
            Operand::Int(v) => Ok(Addr::Abs(*v as u64)),
            other => unsupported(format!("operand {other:?} where an address is read")),
        }
    }

    pub fn base(&mut self, b: Base, off: i64) -> Res<Addr> {
        Ok(match b {
            Base::Reg(r) => match self.slots.reg(r) {
                (Class::R32, i) => Addr::R32(i, off),
                (Class::R64, i) => Addr::R64(i, off),
                (c, _) => return unsupported(format!("a {c:?} register as an address")),
            },
            Base::Sym(s) if self.symbol_space(s) == Space::Shared => {
                Addr::Own((self.symbol(s)? as i64 + off) as u32)
            }
            Base::Sym(s) => Addr::Abs((self.symbol(s)? as i64 + off) as u64),
            Base::Abs => Addr::Abs(off as u64),
        })
    }

    pub(super) fn element_regs(&mut self, o: &Operand, ty: Ty, load: bool) -> Res<Vec<Option<Reg>>> {
        let list: &[Operand] = match o {
            Operand::Vector(v) => v,
            other => std::slice::from_ref(other),
        };
        list.iter()
            .map(|e| {
                Ok(match e {
                    Operand::Sink => None,
                    Operand::Reg(r) => {
                        let (c, i) = self.slots.reg(*r);
                        if c == Class::P {
                            return unsupported("a predicate as memory data");
                        }
                        Some((c, i))
                    }
                    lit if load => return unsupported(format!("operand {lit:?} as a load destination")),
                    lit if ty.bytes() == 8 => Some((Class::R64, self.slots.src64(lit, ty)?)),
                    lit => Some((Class::R32, self.slots.src32(lit, ty)?)),
                })
            })
            .collect()
    }

    fn access(&mut self, op: &Opcode, addr: &Operand, data: &Operand, load: bool) -> Res<Access> {
        let (mut place, mut ty, mut n, mut ordered) = (Place::Generic, None, 1usize, false);
        for m in &op.mods {
            match m.as_str() {
                "weak" | "volatile" | "relaxed" | "mmio" | "cta" | "cluster" | "gpu" | "sys" | "nc"
                | "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "unified" => {}
                "acquire" | "release" => ordered = true,
                "param" | "param::entry" | "param::func" => place = Place::Param,
                "global" | "const" => place = Place::Global,
                "shared" | "shared::cta" => place = Place::Shared,
                "shared::cluster" => place = Place::Cluster,
                "local" => place = Place::Local,
                "v2" => n = 2,
                "v4" => n = 4,
                "v8" => n = 8,
                m if m.starts_with("L1::") || m.starts_with("L2::") => {}
                m => ty = Some(type_of(m).ok_or_else(|| reject(op, m))?),
            }
        }
        let Some(ty) = ty else { return unsupported(format!("`{}` without a type", op.text)) };
        if matches!(place, Place::Generic | Place::Param)
            && let Operand::Addr(Base::Sym(s), _) = addr
        {
            place = match self.symbol_space(*s) {
                Space::Param => Place::Param,
                Space::Shared => Place::Shared,
                Space::Local => Place::Local,
                Space::Global | Space::Const => Place::Global,
            };
        }
        let regs = self.element_regs(data, ty, load)?;
        if regs.len() != n {
            return unsupported(format!("`{}` with {} data operands", op.text, regs.len()));
        }
        let (bytes, n128) = if ty == Ty::B128 { (8, true) } else { (ty.bytes() as u8, false) };
        let regs: Vec<_> = if n128 {
            regs.iter().flat_map(|r| [0, 1].map(|half| r.map(|(_, i)| (Class::R64, i + half)))).collect()
        } else {
            regs
        };
        let reg_bytes = self.reg_bytes(data);
        let addr = self.addr(addr)?;
        let signed = matches!(ty, Ty::S8 | Ty::S16 | Ty::S32);
        Ok(Access { place, addr, regs: regs.into(), bytes, signed, reg_bytes, ordered, order: order(op) })
    }

    /// Width of the (first) register of a data operand.
    fn reg_bytes(&self, data: &Operand) -> u8 {
        let first = match data {
            Operand::Vector(v) => v.iter().find(|o| matches!(o, Operand::Reg(_))),
            o => Some(o),
        };
        match first {
            Some(Operand::Reg(r)) => self.f.regs[*r as usize].1.bytes().min(8) as u8,
            _ => 8,
        }
    }

    fn ld(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let [d, a, ..] = args else { return unsupported(format!("`{}` with too few operands", op.text)) };
        let acc = self.access(op, a, d, true)?;
        let dsts: Vec<Reg> = acc.regs.iter().flatten().flat_map(expand).collect();
        let src = addr_reg(acc.addr);
        Ok(One::new(Inst::Ld(acc), OpClass::Memory).src(src).dst(dsts))
    }

    fn st(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        if op.has("async") {
            return self.remote_async(op, args);
        }
        if op.has("bulk") {
            return unsupported(format!("opcode `{}`", op.text));
        }
        let [a, s, ..] = args else { return unsupported(format!("`{}` with too few operands", op.text)) };
        let acc = self.access(op, a, s, false)?;
        let mut srcs: Vec<Reg> = acc.regs.iter().flatten().flat_map(expand).collect();
        srcs.extend(addr_reg(acc.addr));
        Ok(One::new(Inst::St(acc), OpClass::Memory).src(srcs))
    }

    fn atom(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        if op.has("async") {
            return self.remote_async(op, args);
        }
        if op.has("b128") {
            return self.atom_128(op, args);
        }
        if ["v2", "v4", "v8"].into_iter().any(|v| op.has(v)) {
            return self.atom_vector(op, args);
        }
        let (mut place, mut ty, mut kind) = (Place::Generic, None, None);
        for m in &op.mods {
            match m.as_str() {
                "relaxed" | "acquire" | "release" | "acq_rel" | "cta" | "cluster" | "gpu" | "sys"
                | "noftz" => {}
                "global" => place = Place::Global,
                "shared" | "shared::cta" => place = Place::Shared,
                "shared::cluster" => place = Place::Cluster,
                "add" => kind = Some(AtomOp::Add),
                "min" => kind = Some(AtomOp::Min),
                "max" => kind = Some(AtomOp::Max),
                "and" => kind = Some(AtomOp::And),
                "or" => kind = Some(AtomOp::Or),
                "xor" => kind = Some(AtomOp::Xor),
                "exch" => kind = Some(AtomOp::Exch),
                "cas" => kind = Some(AtomOp::Cas),
                "inc" => kind = Some(AtomOp::Inc),
                "dec" => kind = Some(AtomOp::Dec),
                m if m.starts_with("L2::") => {}
                "u32" | "b32" => ty = Some(AtomTy::U32),
                "s32" => ty = Some(AtomTy::S32),
                "u64" | "b64" => ty = Some(AtomTy::U64),
                "s64" => ty = Some(AtomTy::S64),
                "f32" => ty = Some(AtomTy::F32),
                "f64" => ty = Some(AtomTy::F64),
                "b16" => ty = Some(AtomTy::B16),
                "f16" => ty = Some(AtomTy::F16),
                "bf16" => ty = Some(AtomTy::Bf16),
                "f16x2" => ty = Some(AtomTy::F16x2),
                "bf16x2" => ty = Some(AtomTy::Bf16x2),
                m => return Err(reject(op, m)),
            }
        }
        let (Some(kind), Some(ty)) = (kind, ty) else { return unsupported(format!("opcode `{}`", op.text)) };
        let wide = ty.bytes() == 8;
        let returns = op.mnemonic == "atom";
        let rest = args.get(usize::from(returns)..).unwrap_or_default();
        let class = if wide { Class::R64 } else { Class::R32 };
        let src = |s: &mut Slots, o: &Operand| {
            if wide {
                s.src64(o, Ty::U64)
            } else {
                s.src32(o, if ty == AtomTy::F32 { Ty::F32 } else { Ty::U32 })
            }
        };
        let d = match args.first() {
            Some(Operand::Sink) => None,
            Some(o) if returns && wide => Some(self.slots.dst64(o)?),
            Some(o) if returns => Some(self.slots.dst32(o)?),
            _ => None,
        };
        let addr = self.addr(arg(op, rest, 0)?)?;
        let b = src(&mut self.slots, arg(op, rest, 1)?)?;
        let c = match (kind, rest.get(2)) {
            (AtomOp::Cas, Some(o)) => Some(src(&mut self.slots, o)?),
            (AtomOp::Cas, None) => return unsupported("atom.cas with one operand"),
            _ => None,
        };
        let order = atom_order(op);
        let mut one = One::new(Inst::Atom { op: kind, ty, place, addr, d, b, c, order }, OpClass::Memory);
        one.srcs.extend([(class, b)]);
        one.srcs.extend(c.map(|c| (class, c)));
        one.srcs.extend(addr_reg(addr));
        one.dsts.extend(d.map(|d| (class, d)));
        Ok(one)
    }

    fn cvta(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let to = op.has("to");
        let mut base = 0u64;
        for m in &op.mods {
            match m.as_str() {
                "to" | "u64" | "global" | "const" => {}
                "u32" => return unsupported("32-bit generic addresses"),
                "shared" | "shared::cta" | "shared::cluster" => base = SHARED_WINDOW,
                "local" => base = LOCAL_WINDOW,
                "param" | "param::entry" => base = PARAM_WINDOW,
                m => return Err(reject(op, m)),
            }
        }
        let d = self.slots.dst64(arg(op, args, 0)?)?;
        let s = match arg(op, args, 1)? {
            Operand::Sym(s, off) => {
                let value = self.own_symbol(&Operand::Sym(*s, *off))?;
                self.slots.src64(&value, Ty::U64)?
            }
            o => self.slots.src64(o, Ty::U64)?,
        };
        let add = if to { base.wrapping_neg() } else { base };
        Ok(One::new(Inst::CvtaAdd(d, s, add), OpClass::Int).src([(Class::R64, s)]).dst([(Class::R64, d)]))
    }

    fn shfl(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let mut mode = None;
        for m in &op.mods {
            match m.as_str() {
                "sync" | "b32" => {}
                "up" => mode = Some(ShflMode::Up),
                "down" => mode = Some(ShflMode::Down),
                "bfly" => mode = Some(ShflMode::Bfly),
                "idx" => mode = Some(ShflMode::Idx),
                m => return Err(reject(op, m)),
            }
        }
        let (Some(mode), [dp, rest @ ..]) = (mode, args) else { return unsupported(op.text.clone()) };
        if rest.len() != 4 {
            return unsupported(format!("`{}` without a member mask", op.text));
        }
        let (d, p) = match dp {
            Operand::Pair(d, p) => (self.slots.dst32(d)?, Some(self.slots.dst_p(p)?)),
            d => (self.slots.dst32(d)?, None),
        };
        let mut s = [0; 4];
        for (i, o) in rest.iter().enumerate() {
            s[i] = self.slots.src32(o, Ty::U32)?;
        }
        let mut one = One::new(Inst::Shfl { mode, d, p, s }, OpClass::Warp)
            .src(s.map(|s| (Class::R32, s)))
            .dst([(Class::R32, d)]);
        one.dsts.extend(p.map(|p| (Class::P, p)));
        Ok(one)
    }

    fn vote(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let mut mode = None;
        for m in &op.mods {
            match m.as_str() {
                "sync" | "pred" | "b32" => {}
                "all" => mode = Some(VoteMode::All),
                "any" => mode = Some(VoteMode::Any),
                "uni" => mode = Some(VoteMode::Uni),
                "ballot" => mode = Some(VoteMode::Ballot),
                m => return Err(reject(op, m)),
            }
        }
        let (Some(mode), [d, s, m]) = (mode, args) else { return unsupported(op.text.clone()) };
        let ballot = mode == VoteMode::Ballot;
        let d = if ballot { self.slots.dst32(d)? } else { self.slots.dst_p(d)? };
        let src = self.slots.src_p(s)?;
        let mask = self.slots.src32(m, Ty::U32)?;
        Ok(One::new(Inst::Vote { mode, d, src, mask }, OpClass::Warp)
            .src([(Class::P, src.0), (Class::R32, mask)])
            .dst([(if ballot { Class::R32 } else { Class::P }, d)]))
    }

    fn redux(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let has = |m| op.has(m);
        let (abs, nan) = (has("abs"), has("NaN"));
        let kind = match () {
            _ if has("f32") && has("min") => ReduxOp::MinF { abs, nan },
            _ if has("f32") && has("max") => ReduxOp::MaxF { abs, nan },
            _ if has("add") => ReduxOp::Add,
            _ if has("min") && has("u32") => ReduxOp::MinU,
            _ if has("max") && has("u32") => ReduxOp::MaxU,
            _ if has("min") && has("s32") => ReduxOp::MinS,
            _ if has("max") && has("s32") => ReduxOp::MaxS,
            _ if has("and") => ReduxOp::And,
            _ if has("or") => ReduxOp::Or,
            _ if has("xor") => ReduxOp::Xor,
            _ => return unsupported(format!("opcode `{}`", op.text)),
        };
        let d = self.slots.dst32(arg(op, args, 0)?)?;
        let s = self.slots.src32(arg(op, args, 1)?, Ty::U32)?;
        let m = self.slots.src32(arg(op, args, 2)?, Ty::U32)?;
        Ok(One::new(Inst::Redux(kind, d, s, m), OpClass::Warp)
            .src([(Class::R32, s), (Class::R32, m)])
            .dst([(Class::R32, d)]))
    }

    fn match_sync(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let all = op.has("all");
        let (d, p) = match arg(op, args, 0)? {
            Operand::Pair(d, p) => (self.slots.dst32(d)?, Some(self.slots.dst_p(p)?)),
            d => (self.slots.dst32(d)?, None),
        };
        let v = if op.has("b64") {
            (Class::R64, self.slots.src64(arg(op, args, 1)?, Ty::U64)?)
        } else {
            (Class::R32, self.slots.src32(arg(op, args, 1)?, Ty::U32)?)
        };
        let m = self.slots.src32(arg(op, args, 2)?, Ty::U32)?;
        let mut one = One::new(Inst::Match(all, d, p, v, m), OpClass::Warp)
            .src([v, (Class::R32, m)])
            .dst([(Class::R32, d)]);
        one.dsts.extend(p.map(|p| (Class::P, p)));
        Ok(one)
    }

    fn bar(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let has = |m| op.has(m);
        if has("warp") {
            let m = self.slots.src32(arg(op, args, 0)?, Ty::U32)?;
            return Ok(One::new(Inst::BarWarp(m), OpClass::Warp).src([(Class::R32, m)]));
        }
        if has("cluster") {
            let inst =
                Inst::BarCluster { arrives: has("arrive"), aligned: has("aligned"), relaxed: has("relaxed") };
            return Ok(One::new(inst, OpClass::Barrier));
        }
        if has("red") {
            return self.bar_reduce(op, args);
        }
        let kind = match () {
            _ if has("sync") => BarOp::Sync,
            _ if has("arrive") => BarOp::Arrive,
            _ => return unsupported(format!("opcode `{}`", op.text)),
        };
        let id = self.slots.src32(arg(op, args, 0)?, Ty::U32)?;
        let count = args.get(1).map(|o| self.slots.src32(o, Ty::U32)).transpose()?;
        let aligned = op.mnemonic == "bar" || has("aligned");
        let mut one = One::new(Inst::Bar(kind, id, count, aligned), OpClass::Barrier).src([(Class::R32, id)]);
        one.srcs.extend(count.map(|c| (Class::R32, c)));
        Ok(one)
    }

    /// `bar.red d, id{, count}, {!}p`.
    fn bar_reduce(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let [d, id, count @ .., p] = args else { return unsupported(format!("opcode `{}`", op.text)) };
        let how = match () {
            _ if op.has("popc") => BarReduce::Popc,
            _ if op.has("and") => BarReduce::And,
            _ if op.has("or") => BarReduce::Or,
            _ => return unsupported(format!("opcode `{}`", op.text)),
        };
        let d = match how {
            BarReduce::Popc => (Class::R32, self.slots.dst32(d)?),
            _ => (Class::P, self.slots.dst_p(d)?),
        };
        let src = self.slots.src_p(p)?;
        let id = self.slots.src32(id, Ty::U32)?;
        let count = count.first().map(|o| self.slots.src32(o, Ty::U32)).transpose()?;
        let aligned = op.mnemonic == "bar" || op.has("aligned");
        let inst = Inst::Bar(BarOp::Reduce { how, d: d.1, src }, id, count, aligned);
        let mut one = One::new(inst, OpClass::Barrier).src([(Class::R32, id), (Class::P, src.0)]).dst([d]);
        one.srcs.extend(count.map(|c| (Class::R32, c)));
        Ok(one)
    }
}

fn expand(r: &Reg) -> Vec<Reg> {
    match *r {
        (Class::R128, i) => vec![(Class::R64, i), (Class::R64, i + 1)],
        r => vec![r],
    }
}

fn is_clock(name: &str) -> bool {
    name.starts_with("%clock") || name.starts_with("%globaltimer")
}

fn place_of(op: &Opcode) -> Res<Place> {
    match op.mods.first().map(String::as_str) {
        Some("global" | "const") => Ok(Place::Global),
        Some("shared" | "shared::cta") => Ok(Place::Shared),
        Some("shared::cluster") => Ok(Place::Cluster),
        Some("local") => Ok(Place::Local),
        Some("param" | "param::entry") => Ok(Place::Param),
        Some(m) => Err(reject(op, m)),
        None => unsupported(op.text.clone()),
    }
}

/// How far a fence orders memory; a fence of proxies orders none.
fn fence_scope(op: &Opcode) -> Scope {
    if op.has("proxy") { Scope::Thread } else { scope(op).unwrap_or(Scope::Sys) }
}

/// How an access is strong, if it is; `volatile` is relaxed at the widest scope.
fn order(op: &Opcode) -> Option<Order> {
    let strong = ["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"];
    strong.iter().any(|m| op.has(m)).then(|| Order {
        scope: scope(op).unwrap_or(Scope::Sys),
        acquire: op.has("acquire") || op.has("acq_rel"),
        release: op.has("release") || op.has("acq_rel"),
    })
}

/// The same of an atomic: without qualifiers it is relaxed at GPU scope.
pub(super) fn atom_order(op: &Opcode) -> Order {
    Order { scope: scope(op).unwrap_or(Scope::Gpu), ..order(op).unwrap_or_default() }
}

/// The scope that an opcode names.
pub(super) fn scope(op: &Opcode) -> Option<Scope> {
    let names = [
        ("cta", Scope::Cta),
        ("cluster", Scope::Cluster),
        ("gpu", Scope::Gpu),
        ("gl", Scope::Gpu),
        ("sys", Scope::Sys),
    ];
    names.into_iter().find(|(n, _)| op.has(n)).map(|(_, s)| s)
}

/// A call that has no copy of its function.
fn called(args: &[Operand]) -> Inst {
    let name = args.iter().find_map(|o| if let Operand::Name(n) = o { Some(&**n) } else { None });
    match name {
        // Its text is not shown.
        Some("vprintf") => Inst::Nop,
        Some("__assertfail") => Inst::Trap,
        Some(name) => Inst::Unsupported(format!("call: `{name}` has no body in this module").into()),
        None => Inst::Unsupported("call: a call through a register".into()),
    }
}
