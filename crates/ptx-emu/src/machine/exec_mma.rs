//! The matrix pipe: tcgen05.mma, cp and commit are checked and queued here; they execute in issue order.

use super::cta::{Cta, Origin, Release};
use super::exec::{Next, lanes};
use super::inst::{Addr, Mma, MmaA, MmaKind};
use super::ops::{Kind, MmaOp, MmaSource, Pending};
use super::run::{Machine, Res, Stop};
use crate::fault::{Code, Fault};
use crate::isa::idesc::{self, AccType, InputType, InstrDesc, Issue};
use crate::isa::smem_desc::{Major, SmemDesc, element_addrs};
use crate::isa::tcgen05_layout::{CpShape, DLayout, cp_source};
use crate::num::mma::{self, Format, Model};
use std::rc::Rc;

/// Working memory of matrix instructions.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) a: Vec<u32>,
    pub(super) b: Vec<u32>,
    pub(super) c: Vec<u32>,
    pub(super) d: Vec<u32>,
}

fn kind_of(k: MmaKind) -> idesc::Kind {
    match k {
        MmaKind::F16 => idesc::Kind::F16,
        MmaKind::Tf32 => idesc::Kind::Tf32,
        MmaKind::F8f6f4 => idesc::Kind::F8f6f4,
    }
}

fn format(t: InputType) -> Option<Format> {
    Some(match t {
        InputType::F16 => Format::F16,
        InputType::BF16 => Format::Bf16,
        InputType::Tf32 => Format::Tf32,
        InputType::E4m3 => Format::E4m3,
        InputType::E5m2 => Format::E5m2,
        InputType::E2m3 => Format::E2m3,
        InputType::E3m2 => Format::E3m2,
        InputType::E2m1 => Format::E2m1,
        _ => return None,
    })
}

impl Machine<'_> {
    fn descriptor(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        l: usize,
        slot: u32,
        what: &str,
    ) -> Res<(u64, SmemDesc)> {
        let bad = c.warps[w].regs.u64[slot as usize] & 1 << l;
        self.defined(c, w, pc, bad, Code::UninitAddress, what)?;
        let bits = c.warps[w].regs.r64[slot as usize].0[l];
        match SmemDesc::tcgen05(bits) {
            Ok(d) => Ok((bits, d)),
            Err(e) => Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::Descriptor, format!("{what}: {e}")))),
        }
    }

    /// Addresses of a shared-memory operand, from the cache where the same descriptor came before.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn operand(
        &mut self,
        c: &Cta,
        w: usize,
        pc: u32,
        (bits, d): (u64, SmemDesc),
        mn_major: bool,
        slot_bits: u32,
        rows: u32,
        k: u32,
    ) -> Res<Rc<[u32]>> {
        let key = (bits, rows << 16 | k << 8 | slot_bits << 1 | u32::from(mn_major));
        if let Some(a) = self.addr_cache.get(&key) {
            return Ok(a.clone());
        }
        let mut out = Vec::new();
        let major = if mn_major { Major::Mn } else { Major::K };
        if let Err(e) = element_addrs(&d, major, slot_bits, rows, k, &mut out) {
            return Err(self.fault(c, w, pc, 0, Fault::new(Code::Descriptor, e.to_string())));
        }
        let rc: Rc<[u32]> = out.into();
        self.addr_cache.insert(key, rc.clone());
        Ok(rc)
    }

    pub(super) fn mma(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, i: &Mma) -> Res<Next> {
        for l in lanes(m) {
            self.mma_one(c, w, pc, l, i)?;
        }
        Ok(Next::Advance)
    }

    fn mma_one(&mut self, c: &mut Cta, w: usize, pc: u32, l: usize, i: &Mma) -> Res<()> {
        let bit = 1u32 << l;
        self.addr_defined(c, w, pc, bit, i.d)?;
        self.defined32(c, w, pc, bit, i.idesc, "the instruction descriptor")?;
        self.defined(
            c,
            w,
            pc,
            c.warps[w].regs.up[i.enable.0 as usize] & bit,
            Code::UninitAddress,
            "enable-input-d",
        )?;
        let bits = c.warps[w].regs.r32[i.idesc as usize].0[l];
        let desc = idesc::decode(bits, kind_of(i.kind), Issue { cta_pair: false, ws: false })
            .map_err(|e| self.fault(c, w, pc, bit, Fault::new(Code::Descriptor, e.to_string())))?;
        if format(desc.a).is_none() || format(desc.b).is_none() || desc.d == AccType::S32 {
            return Err(Stop::Unsupported(format!("tcgen05.mma on {:?} and {:?}", desc.a, desc.b), pc));
        }
        let (k, slot_bits) = (kind_of(i.kind).k(), kind_of(i.kind).slot_bits());
        let taddr = self.lane_addr(c, w, i.d, l) as u32;
        let d = (taddr >> 16, taddr & 0xffff);
        let lane_ok = if desc.m == 64 { matches!(d.0, 0 | 16) } else { d.0 == 0 };
        if !lane_ok {
            let f = Fault::new(Code::TmemLane, format!("accumulator of M={} at lane {}", desc.m, d.0));
            return Err(self.fault(c, w, pc, bit, f));
        }
        let b_desc = self.descriptor(c, w, pc, l, i.b, "descriptor of B")?;
        let b = self.operand(c, w, pc, b_desc, desc.transpose_b, slot_bits, desc.n, k)?;
        let a = match i.a {
            MmaA::Desc(slot) => {
                let a_desc = self.descriptor(c, w, pc, l, slot, "descriptor of A")?;
                MmaSource::Shared(self.operand(c, w, pc, a_desc, desc.transpose_a, slot_bits, desc.m, k)?)
            }
            MmaA::Tmem(at) => {
                self.addr_defined(c, w, pc, bit, at)?;
                let t = self.lane_addr(c, w, at, l) as u32;
                if t >> 16 != d.0 {
                    let f = Fault::new(
                        Code::TmemLane,
                        format!("A at lane {} and D at lane {} of tensor memory", t >> 16, d.0),
                    );
                    return Err(self.fault(c, w, pc, bit, f));
                }
                MmaSource::Tmem(t >> 16, t & 0xffff)
            }
        };
        let regs = &c.warps[w].regs;
        let enable = (regs.p[i.enable.0 as usize] >> l & 1 != 0) != i.enable.1;
        let mut mask = 0u128;
        if let Some(slots) = i.mask {
            for (j, s) in slots.into_iter().enumerate() {
                self.defined32(c, w, pc, bit, s, "the lane mask")?;
                mask |= u128::from(c.warps[w].regs.r32[s as usize].0[l]) << (32 * j);
            }
        }
        // Everything is decoded: leases.
        let origin = Origin { warp: w as u32, pc, step: self.steps };
        c.mma_origins.push(origin);
        let seq = c.mma_origins.len() as u32;
        c.mma_last.insert((w as u32, l as u32), seq);
        let bytes = slot_bits / 8;
        self.lease_operand(c, w, pc, &b, bytes, seq)?;
        self.allocated(c, w, pc, d.1, desc.n)?;
        match &a {
            MmaSource::Shared(a) => self.lease_operand(c, w, pc, a, bytes, seq)?,
            MmaSource::Tmem(_, col) => {
                self.allocated(c, w, pc, *col, 8)?;
                self.lease_sts(c, w, pc, *col, 8, 0xf, None)?;
                for x in *col..*col + 8 {
                    c.tmem.mma_read[x as usize] = [seq; 4];
                }
            }
        }
        self.lease_sts(c, w, pc, d.1, desc.n, 0xf, None)?;
        self.lease_lds(c, w, pc, d.1, desc.n, 0xf)?;
        self.mma_order(c, w, pc, d.1, desc.n, seq);
        for x in d.1..d.1 + desc.n {
            c.tmem.mma_write[x as usize] = [seq; 4];
        }
        self.counters.mmas += 1;
        let op = MmaOp { seq, desc, kind: i.kind, d, a, b, enable, mask, scale_d: i.scale_d };
        self.hb_mma(c, w, pc, l, &op, bytes)?;
        let id = c.new_op(origin);
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind: Kind::Mma(Box::new(op)) })
    }

    /// Strict: an accumulator overwrites what an earlier, unfinished instruction reads as its A operand.
    fn mma_order(&mut self, c: &Cta, w: usize, pc: u32, col: u32, cols: u32, seq: u32) {
        let hit = (col..col + cols)
            .map(|x| c.tmem.mma_read[x as usize][0])
            .find(|&r| r > c.mma_released && r != seq);
        if let Some(r) = hit {
            let o = c.mma_origins[r as usize - 1];
            let f = Fault::new(
                Code::StrictMmaOrder,
                format!(
                    "the accumulator at {} overwrites the A operand of an earlier matrix instruction that nothing but issue order puts first",
                    super::names::column(&self.launch.annotations, col)
                ),
            )
            .earlier(self.site(c, o, 0, self.opcode(o.pc)));
            self.strict(c, w, pc, o.pc, f);
        }
    }

    pub(super) fn tmem_cp(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        shape: CpShape,
        at: Addr,
        slot: u32,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, at)?;
        for l in lanes(m) {
            let (_, desc) = self.descriptor(c, w, pc, l, slot, "descriptor of the source")?;
            let taddr = self.lane_addr(c, w, at, l) as u32;
            let base = (taddr >> 16, taddr & 0xffff);
            self.allocated(c, w, pc, base.1, shape.columns())?;
            let origin = Origin { warp: w as u32, pc, step: self.steps };
            c.mma_origins.push(origin);
            let seq = c.mma_origins.len() as u32;
            c.mma_last.insert((w as u32, l as u32), seq);
            let units = shape.columns() / 4;
            let addrs: Vec<u32> = (0..shape.rows())
                .flat_map(|r| (0..units).map(move |u| (r, u)))
                .map(|(r, u)| cp_source(&desc, r, u))
                .collect();
            self.lease_operand(c, w, pc, &addrs, 16, seq)?;
            self.lease_sts(c, w, pc, base.1, shape.columns(), 0xf, None)?;
            self.lease_lds(c, w, pc, base.1, shape.columns(), 0xf)?;
            for x in base.1..base.1 + shape.columns() {
                c.tmem.mma_write[x as usize] = [seq; 4];
            }
            let rows = (0..shape.rows()).flat_map(|r| shape.lanes(r)).map(|lane| (base.0 + lane) % 128 / 16);
            let rows = rows.fold(0u8, |all, r| all | 1 << r);
            self.hb_cp(c, w, pc, l, &addrs, (base.1, shape.columns(), rows))?;
            let id = c.new_op(origin);
            self.put_in_flight(
                c,
                Pending { id, warp: w as u32, pc, kind: Kind::Cp { seq, shape, base, desc } },
            )?;
        }
        Ok(Next::Advance)
    }

    pub(super) fn commit(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, at: Addr) -> Res<Next> {
        self.addr_defined(c, w, pc, m, at)?;
        for l in lanes(m) {
            let mbar = self.own_shared(c, w, pc, l, at)?;
            self.check_role(c, w, pc, mbar, false)?;
            // It covers what this thread issued, whatever else is in the pipe.
            let seq = c.mma_last.get(&(w as u32, l as u32)).copied().unwrap_or(0);
            let id = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
            self.hb_mbar_use(c, w, pc, 1 << l, mbar)?;
            c.hb.commit(w, pc, l, id, mbar);
            self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind: Kind::Commit { mbar, seq } })?;
        }
        Ok(Next::Advance)
    }

    /// A commit reached the head of the pipe.
    pub(super) fn land_commit(&mut self, c: &mut Cta, w: usize, pc: u32, mbar: u32, seq: u32) -> Res<()> {
        let at = c.clocks.as_ref().map_or(0, |k| k.pipe_free.max(k.warp[w]));
        self.async_arrive(c, w, pc, mbar, 1, Some(Release::Mma(seq)), at)
    }

    /// D = A·B + D, with the undefined rows and columns that undefined operands make.
    pub(super) fn land_mma(&mut self, c: &mut Cta, op: &MmaOp) {
        let InstrDesc { m, n, .. } = op.desc;
        let k = kind_of(op.kind).k() as usize;
        let bytes = kind_of(op.kind).slot_bits() / 8;
        let (m, n) = (m as usize, n as usize);
        let mut buf = std::mem::take(&mut self.bufs);
        let layout = DLayout::of(m as u32, false, false, false).unwrap_or(DLayout::D);
        let lane_of = |row: usize| (layout.cell(row as u32, 0, n as u32).lane + op.d.0) as usize;
        let b_undef = gather(c, &op.b, bytes, k, &mut buf.b);
        let a_undef = match &op.a {
            MmaSource::Shared(a) => gather(c, a, bytes, k, &mut buf.a),
            MmaSource::Tmem(_, col) => {
                let per = 4 / bytes as usize;
                buf.a.resize(m * k, 0);
                let mut undef = vec![false; m];
                for cell in 0..k / per {
                    let column = c.tmem.column(*col as usize + cell);
                    let bad = c.tmem.undefined_lanes(*col as usize + cell);
                    for row in 0..m {
                        let lane = lane_of(row);
                        let v = column[lane];
                        undef[row] |= bad >> lane & 1 != 0;
                        for e in 0..per {
                            let x =
                                if per == 1 { v } else { v >> (32 / per * e) & ((1u32 << (32 / per)) - 1) };
                            buf.a[row * k + cell * per + e] = x;
                        }
                    }
                }
                undef
            }
        };
        // The unit sums all products and D at once, so A and B can trade places: computing Dᵀ = B·Aᵀ + Dᵀ leaves
        // each column of tensor memory contiguous.
        let full = m == 128;
        buf.d.resize(n * m, 0);
        let col0 = op.d.1 as usize;
        if op.enable {
            buf.c.clear();
            for x in 0..n {
                let column = c.tmem.column(col0 + x);
                if full {
                    buf.c.extend_from_slice(column);
                } else {
                    buf.c.extend((0..m).map(|row| column[lane_of(row)]));
                }
            }
            if op.scale_d != 0 {
                let s = f32::from_bits((127 - op.scale_d) << 23);
                buf.c.iter_mut().for_each(|v| *v = (f32::from_bits(*v) * s).to_bits());
            }
        }
        let shape = mma::Op {
            model: Model::TCGEN05,
            a_fmt: format(op.desc.b).unwrap_or(Format::Bf16),
            b_fmt: format(op.desc.a).unwrap_or(Format::Bf16),
            m: n,
            n: m,
            k,
            negate_a: op.desc.negate_b,
            negate_b: op.desc.negate_a,
        };
        let acc = op.enable.then_some(&buf.c[..]);
        if op.desc.d == AccType::F16 {
            mma::mma_f16(&shape, &buf.b, &buf.a, acc, &mut buf.d, &mut self.scratch);
        } else {
            mma::mma(&shape, &buf.b, &buf.a, acc, &mut buf.d, &mut self.scratch);
        }
        let row_lanes = (0..m).filter(|&r| a_undef[r]).fold(0u128, |a, r| a | 1 << lane_of(r));
        let all_lanes = if full { !0u128 } else { (0..m).fold(0u128, |a, r| a | 1 << lane_of(r)) };
        for x in 0..n {
            let col = col0 + x;
            let mut undef = if b_undef[x] { all_lanes } else { row_lanes };
            if op.enable {
                undef |= c.tmem.undefined_lanes(col) & all_lanes;
            }
            let d = &buf.d[x * m..(x + 1) * m];
            if full && op.mask == 0 && undef == 0 {
                c.tmem.set_column(col, d);
                continue;
            }
            for (row, &v) in d.iter().enumerate() {
                let lane = lane_of(row);
                if op.mask >> lane & 1 == 0 {
                    c.tmem.set(lane, col, v, if undef >> lane & 1 != 0 { 0xf } else { 0 });
                }
            }
        }
        self.bufs = buf;
    }
}

/// Elements of a shared-memory operand; which rows hold an undefined byte.
pub(super) fn gather(c: &Cta, addrs: &[u32], bytes: u32, k: usize, out: &mut Vec<u32>) -> Vec<bool> {
    out.clear();
    out.reserve(addrs.len());
    let mut undef = vec![false; addrs.len() / k];
    for (row, a) in addrs.chunks_exact(k).enumerate() {
        let mut bad = false;
        for unit in a.chunks(16 / bytes as usize) {
            // K-major elements fill aligned units of 16 bytes.
            if let Some((data, u)) = c.shared.unit(unit, bytes) {
                bad |= u != 0;
                match bytes {
                    1 => out.extend(data.map(u32::from)),
                    2 => out.extend(data.as_chunks().0.iter().map(|x| u32::from(u16::from_le_bytes(*x)))),
                    _ => out.extend(data.as_chunks().0.iter().map(|x| u32::from_le_bytes(*x))),
                }
                continue;
            }
            for &a in unit {
                // Bounds were checked when the instruction was issued.
                let (v, u) = c.shared.element(a, bytes).unwrap_or((0, true));
                bad |= u;
                out.push(v);
            }
        }
        undef[row] = bad;
    }
    undef
}
