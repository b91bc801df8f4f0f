//! Loads, stores, atomics, ldmatrix and stmatrix, tensor-map edits: everything that touches bytes at once.

use super::cta::Cta;
use super::decode::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::exec::{Next, lanes};
use super::hb::{Does, Order};
use super::inst::{Access, Addr, AtomOp, AtomTy, Place, Reg};
use super::run::{Machine, Res};
use super::shared::WINDOW_BASE;
use crate::fault::{Code, Fault};
use crate::isa::regs::{Class, RegFile};
use crate::num::fp;
use crate::num::half::{self, Half, HalfMode};
use crate::tma::reduce::add_f64;
use crate::tma::replace::{self, Field};

/// Size of a window of generic addresses.
const WINDOW: u64 = 1 << 32;

/// Address of lane `l` with these registers, in the CTA whose rank stands in shared addresses as `rank_bits`.
#[inline]
pub(super) fn address(regs: &RegFile, rank_bits: u64, a: Addr, l: usize) -> u64 {
    match a {
        Addr::R32(r, off) => u64::from(regs.r32[r as usize].0[l].wrapping_add(off as u32)),
        Addr::R64(r, off) => regs.r64[r as usize].0[l].wrapping_add(off as u64),
        Addr::Abs(v) => v,
        Addr::Own(v) => u64::from(v) | rank_bits,
    }
}

impl Machine<'_> {
    /// Address of lane `l`.
    #[inline]
    pub(super) fn lane_addr(&self, c: &Cta, w: usize, a: Addr, l: usize) -> u64 {
        address(&c.warps[w].regs, c.rank_bits, a, l)
    }

    /// Faults when the address register is undefined in a lane that uses it.
    pub(super) fn addr_defined(&self, c: &Cta, w: usize, pc: u32, m: u32, a: Addr) -> Res<()> {
        let regs = &c.warps[w].regs;
        let bad = match a {
            Addr::R32(r, _) => regs.u32[r as usize] & m,
            Addr::R64(r, _) => regs.u64[r as usize] & m,
            Addr::Abs(_) | Addr::Own(_) => 0,
        };
        self.defined(c, w, pc, bad, Code::UninitAddress, "the address")
    }

    /// Faults when `bad` has a lane and undefined values are checked.
    pub(super) fn defined(&self, c: &Cta, w: usize, pc: u32, bad: u32, code: Code, what: &str) -> Res<()> {
        if bad == 0 || !self.opts.checks.uninit {
            return Ok(());
        }
        Err(self.fault(
            c,
            w,
            pc,
            bad,
            Fault::new(code, format!("{what} of `{}` is undefined", self.opcode(pc))),
        ))
    }

    /// Faults when a 32-bit operand is undefined.
    pub(super) fn defined32(&self, c: &Cta, w: usize, pc: u32, m: u32, slot: u32, what: &str) -> Res<()> {
        self.defined(c, w, pc, c.warps[w].regs.u32[slot as usize] & m, Code::UninitAddress, what)
    }

    /// Splits a generic address into its space and the address there.
    pub(super) fn resolve(&self, place: Place, addr: u64) -> (Place, u64) {
        match place {
            Place::Shared | Place::Cluster => (place, addr & 0xffff_ffff),
            Place::Generic => match addr {
                a if a.wrapping_sub(SHARED_WINDOW) < WINDOW => (Place::Cluster, a - SHARED_WINDOW),
                a if a.wrapping_sub(LOCAL_WINDOW) < WINDOW => (Place::Local, a - LOCAL_WINDOW),
                a if a.wrapping_sub(PARAM_WINDOW) < WINDOW => (Place::Param, a - PARAM_WINDOW),
                a => (Place::Global, a),
            },
            p => (p, addr),
        }
    }

    /// Offset of `len` bytes at a shared-window address of this CTA.
    pub(super) fn shared_offset(&self, c: &Cta, w: usize, pc: u32, addr: u64, len: u32) -> Res<usize> {
        let Some(off) = u32::try_from(addr).ok().and_then(|a| c.shared.offset(a, len)) else {
            let f = Fault::new(
                Code::BoundsShared,
                format!(
                    "{len} bytes at shared address {addr:#x} are outside the CTA's {} bytes ({:#x}..{:#x})",
                    c.shared.size(),
                    WINDOW_BASE,
                    WINDOW_BASE + c.shared.size()
                ),
            );
            return Err(self.fault(c, w, pc, 0, f));
        };
        Ok(off)
    }

    pub(super) fn check_align(&self, c: &Cta, w: usize, pc: u32, l: usize, addr: u64, n: usize) -> Res<()> {
        if addr.is_multiple_of(n as u64) {
            return Ok(());
        }
        let f = Fault::new(
            Code::Align,
            format!("address {addr:#x} of a {n}-byte access is not a multiple of {n}"),
        );
        Err(self.fault(c, w, pc, 1 << l, f))
    }

    /// Reads `buf.len()` ≤ 64 bytes for lane `l`; returns the undefined mask.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn read(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        l: usize,
        place: Place,
        addr: u64,
        buf: &mut [u8],
    ) -> Res<u64> {
        let n = buf.len();
        match place {
            Place::Cluster if addr >> 24 != u64::from(c.rank) => self.remote_read(c, w, pc, l, addr, buf),
            Place::Shared | Place::Cluster => {
                let off = self.shared_offset(c, w, pc, addr ^ c.rank_bits, n as u32)?;
                self.lease_shared(c, w, pc, off, n, false)?;
                buf.copy_from_slice(c.shared.bytes(off, n));
                Ok(c.shared.undef(off, n))
            }
            Place::Global => match self.gmem.load(addr, buf) {
                Ok(u) => Ok(u),
                Err(e) => Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsGlobal, e.to_string()))),
            },
            Place::Param => {
                let p = &self.launch.params;
                match (addr as usize).checked_add(n).filter(|&e| e <= p.len()) {
                    Some(e) => {
                        buf.copy_from_slice(&p[addr as usize..e]);
                        Ok(0)
                    }
                    None => {
                        let what = format!("{n} bytes at parameter offset {addr} of {}", p.len());
                        Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsOther, what)))
                    }
                }
            }
            Place::Local => {
                let size = self.prog.layout.local_bytes as usize;
                self.check_local(c, w, pc, l, addr, n, size)?;
                let at = l * size + addr as usize;
                buf.copy_from_slice(&c.warps[w].local[at..at + n]);
                Ok((0..n).map(|i| u64::from(c.warps[w].local_undef[at + i]) << i).sum())
            }
            Place::Generic => {
                let (p, a) = self.resolve(place, addr);
                self.read(c, w, pc, l, p, a, buf)
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn check_local(&self, c: &Cta, w: usize, pc: u32, l: usize, addr: u64, n: usize, size: usize) -> Res<()> {
        if (addr as usize).checked_add(n).is_some_and(|e| e <= size) {
            return Ok(());
        }
        let what = format!("{n} bytes at local address {addr:#x} of {size} bytes a thread");
        Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsOther, what)))
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn write(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        place: Place,
        addr: u64,
        data: &[u8],
        undef: u64,
    ) -> Res<()> {
        let n = data.len();
        match place {
            Place::Cluster if addr >> 24 != u64::from(c.rank) => {
                self.remote_write(c, w, pc, l, addr, data, undef)
            }
            Place::Shared | Place::Cluster => {
                let addr = addr ^ c.rank_bits;
                let off = self.shared_offset(c, w, pc, addr, n as u32)?;
                self.lease_shared(c, w, pc, off, n, true)?;
                self.not_a_barrier(c, w, pc, addr as u32, n as u32)?;
                c.shared.store(off, data, undef);
                self.stored(c, w, pc, off, n);
                Ok(())
            }
            Place::Global => match self.gmem.store(addr, data, undef, !0) {
                Ok(()) => {
                    self.progress += 1;
                    Ok(())
                }
                Err(e) => Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsGlobal, e.to_string()))),
            },
            Place::Param => Err(self.fault(
                c,
                w,
                pc,
                1 << l,
                Fault::new(Code::BoundsOther, "a store to kernel parameters"),
            )),
            Place::Local => {
                let size = self.prog.layout.local_bytes as usize;
                self.check_local(c, w, pc, l, addr, n, size)?;
                let at = l * size + addr as usize;
                c.warps[w].local[at..at + n].copy_from_slice(data);
                for i in 0..n {
                    c.warps[w].local_undef[at + i] = undef >> i & 1 != 0;
                }
                Ok(())
            }
            Place::Generic => {
                let (p, a) = self.resolve(place, addr);
                self.write(c, w, pc, l, p, a, data, undef)
            }
        }
    }

    /// Ordinary data must not fall on a live mbarrier.
    pub(super) fn not_a_barrier(&self, c: &Cta, w: usize, pc: u32, addr: u32, n: u32) -> Res<()> {
        let Some((&a, _)) = c.mbars.range(addr.saturating_sub(7)..addr.saturating_add(n)).next() else {
            return Ok(());
        };
        let name = super::names::barrier(&self.launch.annotations, c.dynamic_base, a);
        let f = Fault::new(Code::MbarrierReused, format!("data is written over the live {name}"))
            .help("execute mbarrier.inval before the memory is used for something else");
        Err(self.fault(c, w, pc, 0, f))
    }

    pub(super) fn load(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, a: &Access) -> Res<Next> {
        let (eb, count) = (usize::from(a.bytes), a.regs.len());
        let n = eb * count;
        if a.place != Place::Param || !matches!(a.addr, Addr::Abs(_)) {
            self.addr_defined(c, w, pc, m, a.addr)?;
        }
        let mut buf = [0u8; 64];
        let e = self.hb_begin_load(c, w, pc, m, a);
        for l in lanes(m) {
            let addr = self.lane_addr(c, w, a.addr, l);
            self.check_align(c, w, pc, l, addr, n)?;
            let undef = self.read(c, w, pc, l, a.place, addr, &mut buf[..n])?;
            self.hb_touch(c, w, pc, e, 1 << l, (a.place, addr), n, Does::Read)?;
            if let Some(order) = a.order {
                self.hb_strong(c, w, l, (a.place, addr), order, true, false);
            }
            for (i, r) in a.regs.iter().enumerate() {
                let Some(r) = *r else { continue };
                let u = (undef >> (i * eb)) as u8 & ((1u16 << eb) - 1) as u8;
                put(c, w, l, r, &buf[i * eb..(i + 1) * eb], u, a.signed, a.reg_bytes);
            }
        }
        Ok(Next::Advance)
    }

    pub(super) fn store(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, a: &Access) -> Res<Next> {
        let (eb, count) = (usize::from(a.bytes), a.regs.len());
        let n = eb * count;
        self.addr_defined(c, w, pc, m, a.addr)?;
        let mut buf = [0u8; 64];
        let e = self.hb_begin(c, w, pc, m, a.place, a.order);
        for l in lanes(m) {
            let addr = self.lane_addr(c, w, a.addr, l);
            self.check_align(c, w, pc, l, addr, n)?;
            let mut undef = 0u64;
            let regs = &c.warps[w].regs;
            for (i, r) in a.regs.iter().enumerate() {
                let Some((class, r)) = *r else { continue };
                let (v, u) = match class {
                    Class::R32 => (u64::from(regs.r32[r as usize].0[l]), regs.bytes32(r, l)),
                    _ => (regs.r64[r as usize].0[l], regs.bytes64(r, l)),
                };
                buf[i * eb..(i + 1) * eb].copy_from_slice(&v.to_le_bytes()[..eb]);
                undef |= (u64::from(u) & ((1 << eb) - 1)) << (i * eb);
            }
            self.hb_store(c, w, pc, e, 1 << l, (a.place, addr), &buf[..n])?;
            self.write(c, w, pc, l, a.place, addr, &buf[..n], undef)?;
            if let Some(order) = a.order {
                self.hb_strong(c, w, l, (a.place, addr), order, false, true);
            }
        }
        Ok(Next::Advance)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn atomic(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        (op, ty, place, at): (AtomOp, AtomTy, Place, Addr),
        d: Option<u32>,
        b: u32,
        cmp: Option<u32>,
        order: Order,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, at)?;
        let e = self.hb_begin(c, w, pc, m, place, Some(order));
        for l in lanes(m) {
            let addr = self.lane_addr(c, w, at, l);
            self.check_align(c, w, pc, l, addr, ty.bytes())?;
            self.atomic_lane(c, w, pc, l, (op, ty, place, addr), (d, b, cmp))?;
            let at = self.resolve(place, addr);
            self.hb_touch(c, w, pc, e, 1 << l, at, ty.bytes(), Does::Write)?;
            if !ty.is_float() {
                self.hb_strong(c, w, l, at, order, true, true);
            }
        }
        Ok(Next::Advance)
    }

    /// One lane's atomic on one element: destination, operand, second operand.
    pub(super) fn atomic_lane(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        (op, ty, place, addr): (AtomOp, AtomTy, Place, u64),
        (d, b, cmp): (Option<u32>, u32, Option<u32>),
    ) -> Res<()> {
        let n = ty.bytes();
        let (place, addr) = self.resolve(place, addr);
        let mut buf = [0u8; 8];
        let undef = self.read(c, w, pc, l, place, addr, &mut buf[..n])?;
        let regs = &c.warps[w].regs;
        let get = |s: u32| match n {
            8 => regs.r64[s as usize].0[l],
            4 => u64::from(regs.r32[s as usize].0[l]),
            _ => u64::from(regs.r32[s as usize].0[l] & 0xffff),
        };
        let und = |s: u32| match n {
            8 => regs.bytes64(s, l),
            4 => regs.bytes32(s, l),
            _ => regs.bytes32(s, l) & 0b11,
        };
        let bad = undef != 0 && op != AtomOp::Exch || und(b) != 0 || cmp.is_some_and(|s| und(s) != 0);
        if bad {
            self.defined(c, w, pc, 1 << l, Code::UninitAtomic, "an operand")?;
        }
        let old = u64::from_le_bytes(buf);
        let new = atom(op, ty, place, old, get(b), cmp.map_or(0, get));
        self.write(c, w, pc, l, place, addr, &new.to_le_bytes()[..n], 0)?;
        self.progress += 1;
        if let Some(d) = d {
            let regs = &mut c.warps[w].regs;
            if n == 8 { regs.set64(d, l, old, 0) } else { regs.set32(d, l, old as u32, 0) }
        }
        Ok(())
    }

    pub(super) fn isspace(
        &mut self,
        c: &mut Cta,
        w: usize,
        m: u32,
        d: u32,
        s: u32,
        place: Place,
    ) -> Res<Next> {
        for l in lanes(m) {
            let a = c.warps[w].regs.r64[s as usize].0[l];
            let is = match (self.resolve(Place::Generic, a), place) {
                ((Place::Cluster, a), Place::Shared) => a >> 24 == u64::from(c.rank),
                ((is, _), place) => is == place,
            };
            let u = c.warps[w].regs.bytes64(s, l) != 0;
            c.warps[w].regs.setp(d, l, is, u);
        }
        Ok(Next::Advance)
    }

    /// Row addresses come from lanes 8i..8i+7; lane t gets elements 2(t%4), 2(t%4)+1 of row t/4 of matrix i.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn ldmatrix(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        regs: &[u32],
        a: Addr,
        trans: bool,
    ) -> Res<Next> {
        self.whole_warp(c, w, pc, m)?;
        self.addr_defined(c, w, pc, row_lanes(regs.len()), a)?;
        c.hb.meet(w, m);
        let e = self.hb_begin_matrix(c, w, pc, m, regs);
        for (i, &r) in regs.iter().enumerate() {
            let mut rows = [[0u8; 16]; 8];
            let mut undef = [0u64; 8];
            for j in 0..8 {
                let addr = self.lane_addr(c, w, a, 8 * i + j);
                let (place, addr) = self.resolve(Place::Shared, addr);
                self.check_align(c, w, pc, 8 * i + j, addr, 16)?;
                undef[j] = self.read(c, w, pc, 8 * i + j, place, addr, &mut rows[j])?;
                self.hb_touch(c, w, pc, e, row_users(j, trans), (place, addr), 16, Does::Read)?;
            }
            for t in 0..32 {
                let cells = fragment(t, trans);
                let (mut v, mut u) = (0u32, 0u8);
                for (h, (row, col)) in cells.into_iter().enumerate() {
                    let e = u16::from_le_bytes([rows[row][2 * col], rows[row][2 * col + 1]]);
                    v |= u32::from(e) << (16 * h);
                    u |= ((undef[row] >> (2 * col) & 3) as u8) << (2 * h);
                }
                c.warps[w].regs.set32(r, t, v, u);
            }
        }
        Ok(Next::Advance)
    }

    /// Inverse of [`Machine::ldmatrix`].
    #[allow(clippy::too_many_arguments)]
    pub(super) fn stmatrix(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        regs: &[u32],
        a: Addr,
        trans: bool,
    ) -> Res<Next> {
        self.whole_warp(c, w, pc, m)?;
        self.addr_defined(c, w, pc, row_lanes(regs.len()), a)?;
        c.hb.meet(w, m);
        let e = self.hb_begin(c, w, pc, m, Place::Shared, None);
        for (i, &r) in regs.iter().enumerate() {
            let mut rows = [[0u8; 16]; 8];
            let mut undef = [0u64; 8];
            for t in 0..32 {
                let (v, u) = (c.warps[w].regs.r32[r as usize].0[t], c.warps[w].regs.bytes32(r, t));
                for (h, (row, col)) in fragment(t, trans).into_iter().enumerate() {
                    rows[row][2 * col..2 * col + 2].copy_from_slice(&((v >> (16 * h)) as u16).to_le_bytes());
                    undef[row] |= u64::from(u >> (2 * h) & 3) << (2 * col);
                }
            }
            for j in 0..8 {
                let addr = self.lane_addr(c, w, a, 8 * i + j);
                let (place, addr) = self.resolve(Place::Shared, addr);
                self.check_align(c, w, pc, 8 * i + j, addr, 16)?;
                self.write(c, w, pc, 8 * i + j, place, addr, &rows[j], undef[j])?;
                self.hb_touch(c, w, pc, e, row_users(j, trans), (place, addr), 16, Does::Write)?;
            }
        }
        Ok(Next::Advance)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn tensormap_replace(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        place: Place,
        at: Addr,
        field: Field,
        ord: u32,
        (class, val): Reg,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, at)?;
        let e = self.hb_begin(c, w, pc, m, place, None);
        for l in lanes(m) {
            let addr = self.lane_addr(c, w, at, l);
            let (mut map, undef) = self.read_128(c, w, pc, l, place, addr)?;
            self.hb_touch(c, w, pc, e, 1 << l, (place, addr), 128, Does::Write)?;
            let regs = &c.warps[w].regs;
            let (v, u) = match class {
                Class::R64 => (regs.r64[val as usize].0[l], regs.bytes64(val, l)),
                _ => (u64::from(regs.r32[val as usize].0[l]), regs.bytes32(val, l)),
            };
            if u != 0 {
                self.defined(c, w, pc, 1 << l, Code::UninitAddress, "the new value")?;
            }
            let before = map;
            if let Err(e) = replace::replace(&mut map, field, ord, v) {
                return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::Tma, e.to_string())));
            }
            // Bits that share a byte with other fields keep what was known of that byte; a map is expected to be
            // filled (copied or zeroed) before it is edited.
            let mut undef = undef;
            for (b, (new, old)) in map.iter().zip(&before).enumerate() {
                if new != old {
                    undef &= !(1 << b);
                }
            }
            if field == Field::GlobalAddress {
                undef &= !0xff;
            }
            self.write(c, w, pc, l, place, addr, &map[..64], undef as u64)?;
            self.write(c, w, pc, l, place, addr + 64, &map[64..], (undef >> 64) as u64)?;
        }
        Ok(Next::Advance)
    }

    /// Reads a tensor map; bit i of the mask: byte i is undefined.
    fn read_128(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        l: usize,
        place: Place,
        addr: u64,
    ) -> Res<([u8; 128], u128)> {
        let mut map = [0u8; 128];
        let lo = self.read(c, w, pc, l, place, addr, &mut map[..64])?;
        let hi = self.read(c, w, pc, l, place, addr + 64, &mut map[64..])?;
        Ok((map, u128::from(lo) | u128::from(hi) << 64))
    }

    /// Tensor map that a bulk tensor copy names.
    pub(super) fn tensor_map(&self, c: &Cta, w: usize, pc: u32, l: usize, addr: u64) -> Res<[u8; 128]> {
        if !addr.is_multiple_of(64) {
            let f = Fault::new(Code::Tma, format!("the tensor map at {addr:#x} is not 64-byte aligned"));
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        let (map, undef) = self.read_128(c, w, pc, l, Place::Generic, addr)?;
        // The hardware ignores the upper half.
        if undef as u64 != 0 {
            self.defined(c, w, pc, 1 << l, Code::UninitAddress, "a byte of the tensor map")?;
        }
        Ok(map)
    }

    pub(super) fn tensormap_copy(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        dst: Addr,
        src: Addr,
    ) -> Res<Next> {
        self.whole_warp(c, w, pc, m)?;
        self.addr_defined(c, w, pc, m, dst)?;
        self.addr_defined(c, w, pc, m, src)?;
        let (d, s) = (self.lane_addr(c, w, dst, 0), self.lane_addr(c, w, src, 0));
        let (map, undef) = self.read_128(c, w, pc, 0, Place::Shared, s)?;
        c.hb.meet(w, m);
        let e = self.hb_begin(c, w, pc, m, Place::Shared, None);
        self.hb_touch(c, w, pc, e, m, (Place::Shared, s), 128, Does::Read)?;
        self.write(c, w, pc, 0, Place::Generic, d, &map[..64], undef as u64)?;
        self.write(c, w, pc, 0, Place::Generic, d + 64, &map[64..], (undef >> 64) as u64)?;
        Ok(Next::Advance)
    }
}

fn row_lanes(matrices: usize) -> u32 {
    ((1u64 << (8 * matrices)) - 1) as u32
}

/// Lanes that hold elements of row `j` of a matrix.
fn row_users(j: usize, trans: bool) -> u32 {
    if trans { 0x1111_1111 << (j / 2) } else { 0xf << (4 * j) }
}

fn fragment(t: usize, trans: bool) -> [(usize, usize); 2] {
    let (a, b) = (t / 4, 2 * (t % 4));
    if trans { [(b, a), (b + 1, a)] } else { [(a, b), (a, b + 1)] }
}

/// Puts loaded bytes into a register: zero- or sign-extended to the register's width.
#[allow(clippy::too_many_arguments)]
fn put(
    c: &mut Cta,
    w: usize,
    l: usize,
    (class, r): Reg,
    bytes: &[u8],
    undef: u8,
    signed: bool,
    reg_bytes: u8,
) {
    let mut le = [0u8; 8];
    le[..bytes.len()].copy_from_slice(bytes);
    let (mut v, mut undef) = (u64::from_le_bytes(le), undef);
    let top = bytes.len();
    if signed && top < 8 {
        let shift = 64 - 8 * top as u32;
        v = ((v << shift) as i64 >> shift) as u64;
        if undef >> (top - 1) & 1 != 0 {
            undef |= !((1u16 << top) - 1) as u8;
        }
    }
    let regs = &mut c.warps[w].regs;
    match class {
        Class::R32 => {
            let keep = if reg_bytes < 4 { (1u32 << (8 * reg_bytes)) - 1 } else { !0 };
            regs.set32(r, l, v as u32 & keep, undef & 0xf & ((1u16 << reg_bytes.min(4)) - 1) as u8);
        }
        _ => regs.set64(r, l, v, undef),
    }
}

/// The new value. Floating sums in global memory are the memory system's own: f32 flushes subnormals, f64 passes NaNs
/// on unchanged. In shared memory they are ordinary additions between compare-and-swaps.
pub(super) fn atom(op: AtomOp, ty: AtomTy, place: Place, old: u64, b: u64, cmp: u64) -> u64 {
    let (o32, b32) = (old as u32, b as u32);
    match op {
        AtomOp::Exch => b,
        // atom.cas d, [a], b, c: stores c when the old value equals b.
        AtomOp::Cas => {
            if old == b {
                cmp
            } else {
                old
            }
        }
        AtomOp::And => old & b,
        AtomOp::Or => old | b,
        AtomOp::Xor => old ^ b,
        AtomOp::Inc => u64::from(if o32 >= b32 { 0 } else { o32 + 1 }),
        AtomOp::Dec => u64::from(if o32 == 0 || o32 > b32 { b32 } else { o32 - 1 }),
        AtomOp::Add => match ty {
            AtomTy::U32 | AtomTy::S32 => u64::from(o32.wrapping_add(b32)),
            AtomTy::U64 | AtomTy::S64 => old.wrapping_add(b),
            AtomTy::F32 => {
                let ftz = place == Place::Global;
                u64::from(fp::add(o32, b32, fp::Mode { ftz, ..fp::Mode::default() }))
            }
            AtomTy::F64 if place == Place::Global => add_f64(old, b),
            AtomTy::F64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
            AtomTy::F16x2 => u64::from(half::add_x2(Half::F16, o32, b32, HalfMode::default())),
            AtomTy::Bf16x2 => u64::from(half::add_x2(Half::Bf16, o32, b32, HalfMode::default())),
            AtomTy::F16 => u64::from(half::add(Half::F16, old as u16, b as u16, HalfMode::default())),
            AtomTy::Bf16 => u64::from(half::add(Half::Bf16, old as u16, b as u16, HalfMode::default())),
            AtomTy::B16 => (old + b) & 0xffff,
        },
        AtomOp::Min | AtomOp::Max => {
            let max = op == AtomOp::Max;
            match ty {
                AtomTy::S32 => {
                    let (x, y) = (o32 as i32, b32 as i32);
                    u64::from(if (x > y) == max { x } else { y } as u32)
                }
                AtomTy::S64 => {
                    let (x, y) = (old as i64, b as i64);
                    if (x > y) == max { old } else { b }
                }
                _ => {
                    if (old > b) == max {
                        old
                    } else {
                        b
                    }
                }
            }
        }
    }
}
