//! Decoding of barriers in memory, bulk copies, matrix and tensor-memory instructions.

use super::decode::{Cx, One, addr_reg, reject, type_of};
use super::inst::*;
use crate::isa::idesc_scaled::ScaledKind;
use crate::isa::operands::{Decoded as Res, unsupported};
use crate::isa::regs::Class;
use crate::isa::tcgen05_layout::{CpShape, LdStShape as Shape};
use crate::syntax::ast::{Base, Opcode, Operand, Ty};
use crate::tma::NumType;
use crate::tma::reduce::ReduceOp;
use crate::tma::replace::Field;

impl Cx<'_> {
    pub(super) fn asynchronous(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let first = op.mods.first().map_or("", String::as_str);
        match (op.mnemonic.as_str(), first) {
            ("mbarrier", "pending_count") => {
                let d = self.slots.dst32(arg(op, args, 0)?)?;
                let s = self.slots.src64(arg(op, args, 1)?, Ty::U64)?;
                Ok(One::new(Inst::PendingCount(d, s), OpClass::Barrier)
                    .src([(Class::R64, s)])
                    .dst([(Class::R32, d)]))
            }
            ("mbarrier", _) => self.mbarrier(op, args),
            ("setmaxnreg", _) => match arg(op, args, 0)? {
                Operand::Int(n) => {
                    Ok(One::new(Inst::SetMaxNReg(op.has("inc"), word(op, *n)?), OpClass::Other))
                }
                _ => unsupported(format!("`{}` without an immediate", op.text)),
            },
            ("ldmatrix" | "stmatrix", _) => self.matrix_move(op, args),
            ("tensormap", "replace") => self.replace(op, args),
            ("tensormap", "cp_fenceproxy") => {
                let d = self.addr(arg(op, args, 0)?)?;
                let s = self.addr(arg(op, args, 1)?)?;
                let regs: Vec<_> = addr_reg(d).into_iter().chain(addr_reg(s)).collect();
                Ok(One::new(Inst::TensormapCopy(d, s), OpClass::Memory).src(regs))
            }
            ("cp", "async") => match op.mods.get(1).map_or("", String::as_str) {
                "bulk" => self.bulk(op, args, false),
                "commit_group" => Ok(One::new(Inst::CpAsyncCommit, OpClass::Bulk)),
                "wait_all" => Ok(One::new(Inst::CpAsyncWait(None), OpClass::Bulk)),
                "wait_group" => Ok(One::new(Inst::CpAsyncWait(Some(int(op, args, 0)?)), OpClass::Bulk)),
                "mbarrier" => {
                    let a = self.addr(arg(op, args, 0)?)?;
                    Ok(One::new(Inst::CpAsyncMbar(a, op.has("noinc")), OpClass::Bulk).src(addr_reg(a)))
                }
                _ => self.cp_async(op, args),
            },
            ("cp", "reduce") => self.bulk(op, args, true),
            ("tcgen05", _) => self.tcgen05(op, first, args),
            ("wgmma", verb) => self.wgmma(op, verb, args),
            ("mma", _) => self.mma_sync(op, args),
            ("clusterlaunchcontrol", verb) => self.launch_control(op, verb, args),
            _ => unsupported(format!("opcode `{}`", op.text)),
        }
    }

    fn mbarrier(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let (mut verb, mut parity, mut expect, mut no_complete) = ("", false, false, false);
        for m in &op.mods {
            match m.as_str() {
                "shared" | "shared::cta" | "shared::cluster" | "b64" | "cta" | "cluster" | "release"
                | "acquire" | "relaxed" => {}
                "parity" => parity = true,
                "expect_tx" if !verb.is_empty() => expect = true,
                "noComplete" => no_complete = true,
                v @ ("init" | "inval" | "arrive" | "arrive_drop" | "expect_tx" | "complete_tx"
                | "test_wait" | "try_wait")
                    if verb.is_empty() =>
                {
                    verb = v
                }
                m => return Err(reject(op, m)),
            }
        }
        let kind = match (verb, parity, expect, no_complete) {
            ("init", ..) => MbarOp::Init,
            ("inval", ..) => MbarOp::Inval,
            ("arrive", _, false, false) => MbarOp::Arrive,
            ("arrive", _, true, false) => MbarOp::ArriveExpectTx,
            ("arrive", _, false, true) => MbarOp::ArriveNoComplete,
            ("arrive_drop", _, false, false) => MbarOp::ArriveDrop,
            ("arrive_drop", _, true, false) => MbarOp::ArriveDropExpectTx,
            ("arrive_drop", _, false, true) => MbarOp::ArriveDropNoComplete,
            ("expect_tx", ..) => MbarOp::ExpectTx,
            ("complete_tx", ..) => MbarOp::CompleteTx,
            ("test_wait", true, ..) => MbarOp::TestWaitParity,
            ("test_wait", false, ..) => MbarOp::TestWait,
            ("try_wait", true, ..) => MbarOp::TryWaitParity,
            ("try_wait", false, ..) => MbarOp::TryWait,
            _ => return unsupported(format!("opcode `{}`", op.text)),
        };
        // A destination stands before the address where there is one.
        let at = args.iter().position(|a| matches!(a, Operand::Addr(..))).unwrap_or(0);
        let addr = self.addr(arg(op, args, at)?)?;
        let waits = matches!(
            kind,
            MbarOp::TestWait | MbarOp::TestWaitParity | MbarOp::TryWait | MbarOp::TryWaitParity
        );
        let (mut token, mut pred) = (None, None);
        if at == 1 {
            match arg(op, args, 0)? {
                Operand::Sink => {}
                o if waits => pred = Some(self.slots.dst_p(o)?),
                o => token = Some(self.slots.dst64(o)?),
            }
        }
        let (mut value, mut state) = (None, None);
        if let Some(o) = args.get(at + 1) {
            if matches!(kind, MbarOp::TestWait | MbarOp::TryWait) {
                state = Some(self.slots.src64(o, Ty::U64)?);
            } else {
                value = Some(self.slots.src32(o, Ty::U32)?);
            }
        }
        let relaxed = op.has("relaxed");
        let scope = super::decode::scope(op).unwrap_or(super::hb::Scope::Cta);
        let mut one = One::new(
            Inst::Mbar(Mbar { op: kind, addr, token, pred, value, state, relaxed, scope }),
            OpClass::Barrier,
        );
        one.srcs.extend(addr_reg(addr));
        one.srcs.extend(value.map(|v| (Class::R32, v)));
        one.srcs.extend(state.map(|v| (Class::R64, v)));
        one.dsts.extend(token.map(|t| (Class::R64, t)));
        one.dsts.extend(pred.map(|p| (Class::P, p)));
        Ok(one)
    }

    fn matrix_move(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let (mut n, mut trans) = (0usize, false);
        for m in &op.mods {
            match m.as_str() {
                "sync" | "aligned" | "m8n8" | "shared" | "shared::cta" | "b16" => {}
                "x1" => n = 1,
                "x2" => n = 2,
                "x4" => n = 4,
                "trans" => trans = true,
                m => return Err(reject(op, m)),
            }
        }
        let load = op.mnemonic == "ldmatrix";
        let (regs, addr) = if load {
            (arg(op, args, 0)?, arg(op, args, 1)?)
        } else {
            (arg(op, args, 1)?, arg(op, args, 0)?)
        };
        let addr = self.addr(addr)?;
        let regs = self.reg_list(regs, load)?;
        if regs.len() != n {
            return unsupported(format!("`{}` with {} registers", op.text, regs.len()));
        }
        let list: Vec<Reg> = regs.iter().map(|&r| (Class::R32, r)).collect();
        Ok(if load {
            One::new(Inst::LdMatrix(regs, addr, trans), OpClass::Memory).src(addr_reg(addr)).dst(list)
        } else {
            One::new(Inst::StMatrix(regs, addr, trans), OpClass::Memory).src(addr_reg(addr)).src(list)
        })
    }

    /// A vector of 32-bit registers (or one).
    fn reg_list(&mut self, o: &Operand, dst: bool) -> Res<Box<[u32]>> {
        let list: &[Operand] = match o {
            Operand::Vector(v) => v,
            other => std::slice::from_ref(other),
        };
        list.iter().map(|o| if dst { self.slots.dst32(o) } else { self.slots.src32(o, Ty::B32) }).collect()
    }

    fn replace(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let (mut field, mut place, mut wide) = (None, Place::Generic, false);
        for m in op.mods.get(1..).unwrap_or_default() {
            match m.as_str() {
                "tile" | "b1024" | "b32" => {}
                "b64" => wide = true,
                "global" => place = Place::Global,
                "shared::cta" | "shared" => place = Place::Shared,
                m => field = Some(Field::from_modifier(m).ok_or_else(|| reject(op, m))?),
            }
        }
        let Some(field) = field else { return unsupported(format!("opcode `{}`", op.text)) };
        let addr = self.addr(arg(op, args, 0)?)?;
        let (ord, val) = if args.len() == 3 { (int(op, args, 1)?, &args[2]) } else { (0, arg(op, args, 1)?) };
        let val = if wide {
            (Class::R64, self.slots.src64(val, Ty::U64)?)
        } else {
            (Class::R32, self.slots.src32(val, Ty::U32)?)
        };
        Ok(One::new(Inst::TensormapReplace(place, addr, field, ord, val), OpClass::Memory)
            .src(addr_reg(addr))
            .src([val]))
    }

    fn cp_async(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        for m in op.mods.get(1..).unwrap_or_default() {
            match m.as_str() {
                "ca" | "cg" | "shared" | "shared::cta" | "global" => {}
                m if m.starts_with("L2::") => {}
                m => return Err(reject(op, m)),
            }
        }
        let dst = self.addr(arg(op, args, 0)?)?;
        let src = self.addr(arg(op, args, 1)?)?;
        let size = int(op, args, 2)?;
        if !(matches!(size, 4 | 8) && !op.has("cg") || size == 16) {
            return unsupported(format!(
                "`{}` of {size} bytes; .ca copies 4, 8 or 16, .cg copies 16",
                op.text
            ));
        }
        let fill = match args.get(3) {
            None => None,
            Some(_) if op.has("L2::cache_hint") && args.len() == 4 => None,
            Some(o @ (Operand::Reg(_) | Operand::Int(_))) => Some(self.slots.src32(o, Ty::U32)?),
            Some(o) => return unsupported(format!("operand {o:?} of `{}`", op.text)),
        };
        let mut one = One::new(Inst::CpAsync(dst, src, size, fill), OpClass::Bulk);
        one.srcs.extend(addr_reg(dst));
        one.srcs.extend(addr_reg(src));
        one.srcs.extend(fill.map(|f| (Class::R32, f)));
        Ok(one)
    }

    fn bulk(&mut self, op: &Opcode, args: &[Operand], reducing: bool) -> Res<One> {
        let has = |m| op.has(m);
        if has("commit_group") {
            return Ok(One::new(Inst::BulkCommit, OpClass::Bulk));
        }
        if has("wait_group") {
            return Ok(One::new(Inst::BulkWait(int(op, args, 0)?, has("read")), OpClass::Bulk));
        }
        if has("prefetch") {
            return Ok(One::new(Inst::Nop, OpClass::Other));
        }
        let (mut dims, mut gather4, mut reduce, mut elem) = (0u8, false, None, None);
        let (mut multicast, mut pair) = (false, false);
        let mut spaces = Vec::new();
        for m in &op.mods {
            match m.as_str() {
                "async"
                | "bulk"
                | "tensor"
                | "tile"
                | "mbarrier::complete_tx::bytes"
                | "bulk_group"
                | "reduce"
                | "L2::cache_hint"
                | "noftz"
                | "cta_group::1" => {}
                "cta_group::2" => pair = true,
                "1d" | "2d" | "3d" | "4d" | "5d" => dims = m.as_bytes()[0] - b'0',
                "tile::gather4" => gather4 = true,
                "global" | "shared::cta" | "shared::cluster" => spaces.push(m.as_str()),
                "multicast::cluster" => multicast = true,
                "im2col" | "im2col::w" => return unsupported(format!("`{}`: im2col", op.text)),
                m if reducing && reduce.is_none() && ReduceOp::from_modifier(m).is_some() => {
                    reduce = ReduceOp::from_modifier(m)
                }
                m if type_of(m).is_some() => elem = type_of(m),
                m => return Err(reject(op, m)),
            }
        }
        let load = match spaces[..] {
            ["shared::cta" | "shared::cluster", "global"] => true,
            ["global", "shared::cta"] => false,
            ["shared::cluster", "shared::cta"] if dims == 0 && !multicast => true,
            _ => return unsupported(format!("opcode `{}`", op.text)),
        };
        if reducing && reduce.is_none() {
            return unsupported(format!("opcode `{}`", op.text));
        }
        let mut srcs = Vec::new();
        let bulk = if has("tensor") {
            let at = usize::from(load);
            let Operand::Tensor(base, off, coords) = arg(op, args, at)? else {
                return unsupported(format!("`{}` without tensor coordinates", op.text));
            };
            let map = self.base(*base, *off)?;
            let coords: Box<[u32]> =
                coords.iter().map(|c| self.slots.src32(c, Ty::S32)).collect::<Res<_>>()?;
            let want = if gather4 { 5 } else { usize::from(dims) };
            if coords.len() != want {
                return unsupported(format!("`{}` with {} coordinates", op.text, coords.len()));
            }
            srcs.extend(coords.iter().map(|&c| (Class::R32, c)));
            srcs.extend(addr_reg(map));
            if load {
                let dst = self.addr(arg(op, args, 0)?)?;
                let mbar = self.addr(arg(op, args, 2)?)?;
                srcs.extend(addr_reg(dst).into_iter().chain(addr_reg(mbar)));
                let mask = if multicast { Some(self.cta_mask(op, args, 3)?) } else { None };
                srcs.extend(mask.map(|m| (Class::R32, m)));
                Bulk::TensorLoad { dims, gather4, dst, map, coords, mbar, mask, pair }
            } else {
                let src = self.addr(arg(op, args, 1)?)?;
                srcs.extend(addr_reg(src));
                Bulk::TensorStore { dims, reduce, map, coords, src }
            }
        } else {
            let dst = self.addr(arg(op, args, 0)?)?;
            let src = self.addr(arg(op, args, 1)?)?;
            let size = self.slots.src32(arg(op, args, 2)?, Ty::U32)?;
            srcs.extend(addr_reg(dst).into_iter().chain(addr_reg(src)));
            srcs.push((Class::R32, size));
            let reduce = match (reduce, elem) {
                (None, _) => None,
                (Some(r), Some(t)) => Some((r, elem_of(t).ok_or_else(|| reject(op, "type"))?)),
                (Some(_), None) => return unsupported(format!("opcode `{}`", op.text)),
            };
            if load {
                let mbar = self.addr(arg(op, args, 3)?)?;
                srcs.extend(addr_reg(mbar));
                if spaces[1] == "shared::cta" {
                    Bulk::Between { dst, src, size, mbar, reduce }
                } else if reducing {
                    return unsupported(format!("opcode `{}`", op.text));
                } else {
                    let mask = if multicast { Some(self.cta_mask(op, args, 4)?) } else { None };
                    srcs.extend(mask.map(|m| (Class::R32, m)));
                    Bulk::Load { dst, src, size, mbar, mask }
                }
            } else {
                Bulk::Store { dst, src, size, reduce }
            }
        };
        Ok(One::new(Inst::Bulk(Box::new(bulk)), OpClass::Bulk).src(srcs))
    }

    fn tcgen05(&mut self, op: &Opcode, verb: &str, args: &[Operand]) -> Res<One> {
        match verb {
            "alloc" => {
                let a = self.addr(arg(op, args, 0)?)?;
                let n = self.slots.src32(arg(op, args, 1)?, Ty::U32)?;
                Ok(One::new(Inst::TcAlloc(a, n), OpClass::Other).src(addr_reg(a)).src([(Class::R32, n)]))
            }
            "dealloc" => {
                let a = self.slots.src32(arg(op, args, 0)?, Ty::U32)?;
                let n = self.slots.src32(arg(op, args, 1)?, Ty::U32)?;
                Ok(One::new(Inst::TcDealloc(a, n), OpClass::Other).src([(Class::R32, a), (Class::R32, n)]))
            }
            "relinquish_alloc_permit" => Ok(One::new(Inst::TcRelinquish, OpClass::Other)),
            "wait::ld" => Ok(One::new(Inst::TcWaitLd, OpClass::TmemWait)),
            "wait::st" => Ok(One::new(Inst::TcWaitSt, OpClass::TmemWait)),
            "fence::before_thread_sync" | "fence::after_thread_sync" => {
                Ok(One::new(Inst::TcFence(verb.contains("before")), OpClass::Fence))
            }
            "commit" => {
                let mut multicast = false;
                for m in op.mods.get(1..).unwrap_or_default() {
                    match m.as_str() {
                        "cta_group::1"
                        | "cta_group::2"
                        | "mbarrier::arrive::one"
                        | "shared::cluster"
                        | "b64" => {}
                        "multicast::cluster" => multicast = true,
                        m => return Err(reject(op, m)),
                    }
                }
                let a = self.addr(arg(op, args, 0)?)?;
                let mask = if multicast { Some(self.cta_mask(op, args, 1)?) } else { None };
                let one = One::new(Inst::TcCommit(a, mask), OpClass::Commit).src(addr_reg(a));
                Ok(one.src(mask.map(|m| (Class::R32, m))))
            }
            "ld" | "st" => self.tmem_move(op, verb == "ld", args),
            "mma" => self.mma(op, args),
            "cp" => {
                let rest: Vec<&str> = op
                    .mods
                    .get(1..)
                    .unwrap_or_default()
                    .iter()
                    .map(String::as_str)
                    .filter(|m| !m.starts_with("cta_group::"))
                    .collect();
                let shape = match rest[..] {
                    [s] => CpShape::from_modifiers(s, None),
                    [s, m] => CpShape::from_modifiers(s, Some(m)),
                    _ => None,
                };
                let Some(shape) = shape else { return unsupported(format!("opcode `{}`", op.text)) };
                let a = self.addr(arg(op, args, 0)?)?;
                let d = self.slots.src64(arg(op, args, 1)?, Ty::U64)?;
                Ok(One::new(Inst::TcCp(shape, a, d), OpClass::Mma).src(addr_reg(a)).src([(Class::R64, d)]))
            }
            _ => unsupported(format!("opcode `{}`", op.text)),
        }
    }

    fn tmem_move(&mut self, op: &Opcode, load: bool, args: &[Operand]) -> Res<One> {
        let (mut shape, mut n, mut pack) = (None, 0u32, false);
        for m in op.mods.get(1..).unwrap_or_default() {
            match m.as_str() {
                "sync" | "aligned" | "b32" => {}
                "pack::16b" if load => pack = true,
                "unpack::16b" if !load => pack = true,
                m if Shape::from_modifier(m).is_some() => shape = Shape::from_modifier(m),
                m if m.starts_with('x') => n = m[1..].parse().map_err(|_| reject(op, m))?,
                m => return Err(reject(op, m)),
            }
        }
        let Some(shape) = shape else { return unsupported(format!("opcode `{}`", op.text)) };
        let at = usize::from(load);
        let taddr = self.addr(arg(op, args, at)?)?;
        let (half_split, regs) = match (load, args) {
            (true, [r, _]) => (0, r),
            (true, [r, _, Operand::Int(h)]) => (word(op, *h)?, r),
            (false, [_, r]) => (0, r),
            (false, [_, Operand::Int(h), r]) => (word(op, *h)?, r),
            _ => return unsupported(format!("operands of `{}`", op.text)),
        };
        let regs = self.reg_list(regs, load)?;
        if shape.registers(n) != Some(regs.len() as u32) {
            return unsupported(format!("`{}` with {} registers", op.text, regs.len()));
        }
        let list: Vec<Reg> = regs.iter().map(|&r| (Class::R32, r)).collect();
        let mv = Box::new(TmemMove { shape, regs, pack, taddr, half_split });
        Ok(if load {
            One::new(Inst::TcLd(mv), OpClass::TmemMove).src(addr_reg(taddr)).dst(list)
        } else {
            One::new(Inst::TcSt(mv), OpClass::TmemMove).src(addr_reg(taddr)).src(list)
        })
    }

    fn mma(&mut self, op: &Opcode, args: &[Operand]) -> Res<One> {
        let (mut kind, mut ws) = (None, false);
        let (mut scaled, mut vec_size) = (None, None);
        for m in op.mods.get(1..).unwrap_or_default() {
            match m.as_str() {
                "cta_group::1" | "cta_group::2" => {}
                "ws" => ws = true,
                "block_scale" => {}
                m @ ("block16" | "block32" | "scale_vec::1X" | "scale_vec::2X" | "scale_vec::4X") => {
                    vec_size = Some(m)
                }
                "kind::f16" => kind = Some(MmaKind::F16),
                "kind::tf32" => kind = Some(MmaKind::Tf32),
                "kind::f8f6f4" => kind = Some(MmaKind::F8f6f4),
                m if m.strip_prefix("kind::").is_some_and(|k| ScaledKind::from_modifier(k).is_some()) => {
                    scaled = ScaledKind::from_modifier(&m[6..])
                }
                m if m.starts_with("collector::") => {}
                "collector" => {}
                m => return unsupported(format!("`.{m}` of `{}` (planned: i8)", op.text)),
            }
        }
        let factors = match scaled {
            Some(k) => {
                kind = Some(match k {
                    ScaledKind::Mxf8f6f4 => MmaKind::Mxf8f6f4,
                    ScaledKind::Mxf4 => MmaKind::Mxf4,
                    ScaledKind::Mxf4nvf4 => MmaKind::Mxf4nvf4,
                });
                k.factors(vec_size)
            }
            None => None,
        };
        if scaled.is_some() != factors.is_some() || vec_size.is_some() && scaled.is_none() {
            return unsupported(format!("block size of `{}`", op.text));
        }
        let Some(kind) = kind else { return unsupported(format!("opcode `{}`", op.text)) };
        let d = self.addr(arg(op, args, 0)?)?;
        let mut srcs: Vec<Reg> = addr_reg(d).into_iter().collect();
        let a = match arg(op, args, 1)? {
            o @ Operand::Addr(..) => {
                let a = self.addr(o)?;
                srcs.extend(addr_reg(a));
                MmaA::Tmem(a)
            }
            o => {
                let s = self.slots.src64(o, Ty::U64)?;
                srcs.push((Class::R64, s));
                MmaA::Desc(s)
            }
        };
        let b = self.slots.src64(arg(op, args, 2)?, Ty::U64)?;
        let idesc = self.slots.src32(arg(op, args, 3)?, Ty::U32)?;
        srcs.extend([(Class::R64, b), (Class::R32, idesc)]);
        let mut rest = args.get(4..).unwrap_or_default();
        let mut scale = None;
        if let Some(n) = factors {
            let (a, b) = (self.addr(arg(op, rest, 0)?)?, self.addr(arg(op, rest, 1)?)?);
            srcs.extend(addr_reg(a).into_iter().chain(addr_reg(b)));
            scale = Some((a, b, n));
            rest = &rest[2..];
        }
        let mut mask = Box::default();
        if let Some(Operand::Vector(v)) = rest.first() {
            let slots = v.iter().map(|o| self.slots.src32(o, Ty::U32)).collect::<Res<Vec<_>>>()?;
            let want = if op.has("cta_group::2") { 8 } else { 4 };
            if slots.len() != want || ws {
                return unsupported(format!("`{}`: a lane mask of {} registers", op.text, slots.len()));
            }
            srcs.extend(slots.iter().map(|&r| (Class::R32, r)));
            mask = slots.into_boxed_slice();
            rest = &rest[1..];
        }
        let enable = self.slots.src_p(arg(op, rest, 0)?)?;
        srcs.push((Class::P, enable.0));
        if ws && rest.len() > 1 && !matches!(rest[1], Operand::Int(0)) {
            return unsupported(format!("`{}` with a zero-column mask", op.text));
        }
        let scale_d = if rest.len() > 1 { int(op, rest, 1)? } else { 0 };
        if scale_d > 15 {
            return unsupported(format!("`{}` with scale-input-d {scale_d}; 0 to 15", op.text));
        }
        Ok(One::new(
            Inst::TcMma(Box::new(Mma { kind, d, a, b, idesc, enable, mask, ws, scale, scale_d })),
            OpClass::Mma,
        )
        .src(srcs))
    }
}

fn elem_of(t: Ty) -> Option<NumType> {
    Some(match t {
        Ty::B32 => NumType::B32,
        Ty::U32 => NumType::U32,
        Ty::S32 => NumType::S32,
        Ty::B64 => NumType::B64,
        Ty::U64 => NumType::U64,
        Ty::S64 => NumType::S64,
        Ty::F16 => NumType::F16,
        Ty::BF16 => NumType::BF16,
        // The plain form flushes subnormals, as the manual says of bulk reductions.
        Ty::F32 => NumType::F32,
        Ty::F64 => NumType::F64,
        _ => return None,
    })
}

pub(super) fn arg<'a>(op: &Opcode, args: &'a [Operand], i: usize) -> Res<&'a Operand> {
    match args.get(i) {
        Some(a) => Ok(a),
        None => unsupported(format!("`{}` with {} operands", op.text, args.len())),
    }
}

/// An immediate of 32 bits, signed or not: a wider one must not lose its upper half in silence.
fn word(op: &Opcode, v: i64) -> Res<u32> {
    if (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&v) {
        return Ok(v as u32);
    }
    unsupported(format!("`{}` with the immediate {v}, which has more than 32 bits", op.text))
}

pub(super) fn int(op: &Opcode, args: &[Operand], i: usize) -> Res<u32> {
    match arg(op, args, i)? {
        Operand::Int(v) => word(op, *v),
        Operand::Reg(_) | Operand::Addr(Base::Reg(_), _) => {
            unsupported(format!("`{}` with a register where an immediate stands", op.text))
        }
        o => unsupported(format!("operand {o:?} of `{}`", op.text)),
    }
}
