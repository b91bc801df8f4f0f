//! The matrix pipe: tcgen05.mma, cp and commit are checked and queued here; they execute in issue order, in
//! [`super::land_mma`].

use super::cluster::abroad;
use super::cta::{Cta, Origin, Release};
use super::exec::{Next, lanes};
use super::inst::{Addr, Mma, MmaA, MmaKind};
use super::ops::{Kind, MmaOp, MmaSource, Pending, ScaleOp};
use super::run::{Machine, Res, Stop};
use crate::fault::{Code, Fault};
use crate::isa::idesc::{self, AccType, InputType, Issue};
use crate::isa::idesc_scaled::{self, ScaledKind};
use crate::isa::smem_desc::{Major, SmemDesc, element_addrs};
use crate::isa::tcgen05_layout::{CpShape, DLayout, cp_source};
use crate::num::mma::Format;
use std::rc::Rc;

/// Working memory of matrix instructions.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) a: Vec<u32>,
    pub(super) b: Vec<u32>,
    pub(super) c: Vec<u32>,
    pub(super) d: Vec<u32>,
}

pub(super) fn kind_of(k: MmaKind) -> idesc::Kind {
    match k {
        MmaKind::F16 => idesc::Kind::F16,
        MmaKind::Tf32 => idesc::Kind::Tf32,
        // Rows of 32 bytes, whatever the elements in them.
        MmaKind::F8f6f4 | MmaKind::Mxf8f6f4 | MmaKind::Mxf4 | MmaKind::Mxf4nvf4 => idesc::Kind::F8f6f4,
    }
}

fn scaled_kind(k: MmaKind) -> Option<ScaledKind> {
    match k {
        MmaKind::Mxf8f6f4 => Some(ScaledKind::Mxf8f6f4),
        MmaKind::Mxf4 => Some(ScaledKind::Mxf4),
        MmaKind::Mxf4nvf4 => Some(ScaledKind::Mxf4nvf4),
        _ => None,
    }
}

pub(super) fn format(t: InputType) -> Option<Format> {
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
        let pair = self.prog.pair;
        let issue = Issue { cta_pair: pair, ws: i.ws };
        let decoded = match (i.scale, scaled_kind(i.kind)) {
            (Some((_, _, factors)), Some(kind)) => {
                idesc_scaled::decode(bits, kind, factors, issue).map(|(d, s)| (d, Some(s)))
            }
            _ => idesc::decode(bits, kind_of(i.kind), issue).map(|d| (d, None)),
        };
        let (desc, scales) =
            decoded.map_err(|e| self.fault(c, w, pc, bit, Fault::new(Code::Descriptor, e.to_string())))?;
        let scale = match (i.scale, scales) {
            (Some((a, b, factors)), Some(scales)) => {
                self.addr_defined(c, w, pc, bit, a)?;
                self.addr_defined(c, w, pc, bit, b)?;
                let column = |at| self.lane_addr(c, w, at, l) as u32 & 0xffff;
                Some(ScaleOp { a: column(a), b: column(b), factors, scales })
            }
            _ => None,
        };
        let padded =
            [desc.a, desc.b].iter().any(|t| matches!(t, InputType::E2m1 | InputType::E2m3 | InputType::E3m2));
        if i.kind == MmaKind::Mxf8f6f4 && padded {
            return Err(Stop::Unsupported(
                format!("`{}` on padded 4- and 6-bit elements", self.opcode(pc)),
                pc,
            ));
        }
        let Some(layout) = DLayout::of(desc.m, pair, i.ws, false) else {
            return Err(Stop::Unsupported(format!("tcgen05.mma with M = {}", desc.m), pc));
        };
        if format(desc.a).is_none() || format(desc.b).is_none() || desc.d == AccType::S32 {
            return Err(Stop::Unsupported(format!("tcgen05.mma on {:?} and {:?}", desc.a, desc.b), pc));
        }
        let (k, slot_bits) = (kind_of(i.kind).k(), kind_of(i.kind).slot_bits());
        let taddr = self.lane_addr(c, w, i.d, l) as u32;
        let d = (taddr >> 16, taddr & 0xffff);
        let lane_ok = if layout == DLayout::F { matches!(d.0, 0 | 16) } else { d.0 == 0 };
        if !lane_ok {
            let f = Fault::new(Code::TmemLane, format!("accumulator of M={} at lane {}", desc.m, d.0));
            return Err(self.fault(c, w, pc, bit, f));
        }
        // Each CTA of a pair holds half of A's rows and half of B's.
        let ctas = if pair { 2 } else { 1 };
        let b_desc = self.descriptor(c, w, pc, l, i.b, "descriptor of B")?;
        let b = self.operand(c, w, pc, b_desc, desc.transpose_b, slot_bits, desc.n / ctas, k)?;
        let a = match i.a {
            MmaA::Desc(slot) => {
                let a_desc = self.descriptor(c, w, pc, l, slot, "descriptor of A")?;
                let rows = desc.m / ctas;
                MmaSource::Shared(self.operand(c, w, pc, a_desc, desc.transpose_a, slot_bits, rows, k)?)
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
        let mut mask = [0u128; 2];
        for (j, &s) in i.mask.iter().enumerate() {
            self.defined32(c, w, pc, bit, s, "the lane mask")?;
            mask[j / 4] |= u128::from(c.warps[w].regs.r32[s as usize].0[l]) << (32 * (j % 4));
        }
        // Everything is decoded: leases, in both CTAs of a pair.
        let mut op =
            MmaOp { seq: 0, desc, layout, kind: i.kind, d, a, b, enable, mask, scale_d: i.scale_d, scale };
        op.seq = self.enter_pipe(c, w, pc, l, |m, c, w, seq| m.lease_mma_op(c, w, pc, &op, seq))?;
        self.counters.mmas += 1;
        self.hb_mma(c, w, pc, l, &op, slot_bits / 8)?;
        let id = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind: Kind::Mma(Box::new(op)) })
    }

    /// A matrix operation in the books of `c`, issued by a warp that may be the other CTA's.
    fn lease_mma_op(&mut self, c: &mut Cta, w: usize, pc: u32, op: &MmaOp, seq: u32) -> Res<()> {
        let bytes = kind_of(op.kind).slot_bits() / 8;
        let (col, cols) = (op.d.1, op.columns());
        self.lease_operand(c, w, pc, &op.b, bytes, seq)?;
        self.allocated(c, w, pc, col, cols)?;
        match &op.a {
            MmaSource::Shared(a) => self.lease_operand(c, w, pc, a, bytes, seq)?,
            MmaSource::Tmem(_, col) => {
                self.allocated(c, w, pc, *col, 8)?;
                self.lease_sts(c, w, pc, *col, 8, 0xf, None)?;
                for x in *col..*col + 8 {
                    c.tmem.mma_read[x as usize] = [seq; 4];
                }
            }
        }
        if let Some(s) = &op.scale {
            // A's rows in this CTA; B's rows, which lie in two halves side by side where D's columns do.
            let a_rows = if op.layout == DLayout::B { 64 } else { 128 };
            for (at, rows) in [(s.a, a_rows), (s.b, cols)] {
                let n = rows.div_ceil(32);
                self.allocated(c, w, pc, at, n)?;
                self.lease_sts(c, w, pc, at, n, 0xf, None)?;
                for x in at..at + n {
                    c.tmem.mma_read[x as usize] = [seq; 4];
                }
            }
        }
        self.lease_sts(c, w, pc, col, cols, 0xf, None)?;
        self.lease_lds(c, w, pc, col, cols, 0xf)?;
        self.one_issuer(c, w, pc, col, cols)?;
        self.mma_order(c, w, pc, col, cols, seq);
        for x in col..col + cols {
            c.tmem.mma_write[x as usize] = [seq; 4];
        }
        Ok(())
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
            let units = shape.columns() / 4;
            let addrs: Vec<u32> = (0..shape.rows())
                .flat_map(|r| (0..units).map(move |u| (r, u)))
                .map(|(r, u)| cp_source(&desc, r, u))
                .collect();
            // In a pair, each CTA copies from its own shared memory to its own tensor memory.
            let seq = self.enter_pipe(c, w, pc, l, |m, c, w, seq| {
                m.allocated(c, w, pc, base.1, shape.columns())?;
                m.lease_operand(c, w, pc, &addrs, 16, seq)?;
                m.lease_sts(c, w, pc, base.1, shape.columns(), 0xf, None)?;
                m.lease_lds(c, w, pc, base.1, shape.columns(), 0xf)?;
                for x in base.1..base.1 + shape.columns() {
                    c.tmem.mma_write[x as usize] = [seq; 4];
                }
                Ok(())
            })?;
            let rows = (0..shape.rows()).flat_map(|r| shape.lanes(r)).map(|lane| (base.0 + lane) % 128 / 16);
            let rows = rows.fold(0u8, |all, r| all | 1 << r);
            self.hb_cp(c, w, pc, l, &addrs, (base.1, shape.columns(), rows))?;
            let id = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
            self.put_in_flight(
                c,
                Pending { id, warp: w as u32, pc, kind: Kind::Cp { seq, shape, base, desc } },
            )?;
        }
        Ok(Next::Advance)
    }

    pub(super) fn commit(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        at: Addr,
        mask: Option<u32>,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, at)?;
        for l in lanes(m) {
            let (rank, mbar) = self.cluster_place(c, w, pc, l, at)?;
            let to = match mask {
                Some(slot) => self.ranks_of_mask(c, w, pc, l, slot)?,
                None => vec![rank],
            };
            for &r in &to {
                let by = if r == c.rank { w } else { abroad(c.rank, w) };
                self.on(c, r, |m, c| {
                    m.completes_on(c, by, pc, mbar)?;
                    m.hb_mbar_use(c, by, pc, 1 << l, mbar)?;
                    m.hb_mbar_far(c, by, pc, 1 << l, mbar);
                    Ok(())
                })?;
            }
            // It covers what this thread issued, whatever else is in the pipe.
            let seq = c.mma_last.get(&(w as u32, l as u32)).copied().unwrap_or(0);
            let id = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
            c.hb.commit(w, pc, l, id, (mbar, &to));
            self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind: Kind::Commit { mbar, to, seq } })?;
        }
        Ok(Next::Advance)
    }

    /// A commit reached the head of the pipe: it arrives on the barrier at `mbar` in the CTAs of the ranks `to`.
    pub(super) fn land_commit(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        (mbar, to): (u32, &[u32]),
        seq: u32,
    ) -> Res<()> {
        let at = c.clocks.as_ref().map_or(0, |k| k.pipe.free.max(k.warp[w]));
        let (here, peer_seq) = (c.rank, c.pair_seq(seq));
        for &rank in to {
            self.still_there(c, w, pc, rank)?;
            let by = if rank == here { w } else { abroad(here, w) };
            self.on(c, rank, |m, c| {
                let own = if rank == here { Release::Mma(seq) } else { Release::PeerMma(here, seq) };
                if peer_seq != 0
                    && let Some(b) = c.mbars.get_mut(&mbar)
                {
                    let phase = b.bar.phase();
                    b.attached.push((phase, Release::PeerMma(here ^ 1, peer_seq)));
                }
                m.async_arrive(c, by, pc, mbar, 1, Some(own), at)
            })?;
        }
        Ok(())
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
