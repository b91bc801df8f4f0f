//! Operands.

use super::*;

/// Nesting of `{ }` and `( )` in one operand.
const DEEPEST: u32 = 8;

/// A name that waits for its definition, with its place in the text.
type Unresolved = Option<(NameId, usize)>;

impl Parser<'_> {
    /// One operand as written, `d|p` included. A name that may turn out to be a label or a function comes back as
    /// [`Operand::Name`] together with its id.
    pub(super) fn operand(&mut self) -> Result<(Operand, Unresolved)> {
        let first_token = self.tok;
        let first = self.primary(0)?;
        if self.at(b'|') {
            self.pairable(&first, first_token)?;
            self.bump()?;
            let second_token = self.tok;
            let second = self.primary(0)?;
            self.pairable(&second, second_token)?;
            return Ok((Operand::Pair(Box::new(first), Box::new(second)), None));
        }
        let unresolved = match &first {
            Operand::Name(text) => Some((self.names.intern(text), first_token.start)),
            _ => None,
        };
        Ok((first, unresolved))
    }

    fn pairable(&self, operand: &Operand, t: Token) -> Result<()> {
        match operand {
            Operand::Reg(_) | Operand::Sink => Ok(()),
            _ => Err(self.lexer.error(t.start, "each side of `|` must be a register or `_`")),
        }
    }

    fn primary(&mut self, depth: u32) -> Result<Operand> {
        match self.tok.kind {
            Kind::Ident => self.named(depth),
            Kind::Int(_) | Kind::F32(_) | Kind::F64(_) | Kind::Punct(b'-' | b'+' | b'~') => self.number(),
            Kind::Punct(b'[') => self.address(),
            Kind::Punct(b'{') => self.list(b'}', depth),
            // Arguments and results of a call.
            Kind::Punct(b'(') => self.list(b')', depth),
            Kind::Punct(b'!') => {
                self.bump()?;
                let at = self.tok.start;
                match self.primary(depth)? {
                    Operand::Reg(r) => Ok(Operand::NotReg(r)),
                    _ => Err(self.lexer.error(at, "`!` must stand before a predicate register")),
                }
            }
            _ => Err(self.expected("an operand")),
        }
    }

    fn list(&mut self, close: u8, depth: u32) -> Result<Operand> {
        if depth >= DEEPEST {
            return Err(self
                .lexer
                .error(self.tok.start, format!("more than {DEEPEST} nested lists in an operand")));
        }
        self.bump()?;
        let mut items = Vec::new();
        while !self.eat(close)? {
            items.push(self.primary(depth + 1)?);
            if !self.at(close) {
                self.expect(b',', &format!("or `{}` after an element", close as char))?;
            }
        }
        Ok(Operand::Vector(items))
    }

    fn number(&mut self) -> Result<Operand> {
        let (mut negative, mut inverted) = (false, false);
        loop {
            match self.tok.kind {
                Kind::Punct(b'-') => negative = !negative,
                Kind::Punct(b'+') => {}
                Kind::Punct(b'~') if !negative && !inverted => inverted = true,
                _ => break,
            }
            self.bump()?;
        }
        let operand = match self.tok.kind {
            Kind::Int(v) => {
                let v = if negative { v.wrapping_neg() } else { v };
                Operand::Int(if inverted { !v } else { v })
            }
            Kind::F32(bits) if !inverted => Operand::F32(bits ^ u32::from(negative) << 31),
            Kind::F64(bits) if !inverted => Operand::F64(bits ^ u64::from(negative) << 63),
            Kind::Ident if self.text() == "WARP_SZ" && !inverted => {
                Operand::Int(if negative { -WARP_SZ } else { WARP_SZ })
            }
            _ => return Err(self.expected("a number after the sign")),
        };
        self.bump()?;
        Ok(operand)
    }

    fn named(&mut self, depth: u32) -> Result<Operand> {
        let mut t = self.tok;
        let text = self.lexer.text(t);
        if text == "_" {
            self.bump()?;
            return Ok(Operand::Sink);
        }
        let name = self.names.intern(text);
        // A label may be spelled like a register or variable; only `brx.idx` takes a register beside labels.
        let jumps = matches!(self.body.mnemonic, "bra" | "brx");
        match self.names.lookup(name) {
            Bound::Reg(r) if self.body.mnemonic != "bra" => {
                self.bump()?;
                if self.tok.kind == Kind::Directive && self.tok.start == t.end {
                    return Err(self.expected(&format!("`,` or `;` after the register `{}`", shown(text))));
                }
                Ok(Operand::Reg(r))
            }
            Bound::Sym(s) if !jumps => {
                self.bump()?;
                Ok(Operand::Sym(s, self.addend()?))
            }
            _ if text.starts_with('%') && self.body.mnemonic != "bra" => {
                self.lexer.extend_dotted(&mut t);
                self.tok = t;
                let text = self.lexer.text(t);
                if !is_special(text) {
                    let known = SPECIAL.iter().map(|s| s.trim_end_matches(['.', '#']));
                    let e = self.lexer.error(t.start, format!("unknown register `{}`", shown(text)));
                    return Err(e.near(nearest(text, self.names.declared().chain(known))));
                }
                self.bump()?;
                Ok(Operand::Special(text.into()))
            }
            _ if text == "WARP_SZ" => {
                self.bump()?;
                Ok(Operand::Int(WARP_SZ))
            }
            _ if depth == 0 && (jumps || matches!(self.body.mnemonic, "call" | "mov")) => {
                self.bump()?;
                Ok(Operand::Name(self.names.text(name).clone()))
            }
            _ => Err(self.unknown("register or variable", text, t.start)),
        }
    }

    /// `[base]`, `[base+imm]`, `[base+-imm]`, `[imm]`, `[base, {c0, c1}]`.
    fn address(&mut self) -> Result<Operand> {
        self.bump()?;
        let (base, mut offset) = match self.tok.kind {
            Kind::Ident => {
                let (text, t) = self.ident("")?;
                let name = self.names.intern(text);
                match self.names.lookup(name) {
                    Bound::Reg(r) => (Base::Reg(r), 0),
                    Bound::Sym(s) => (Base::Sym(s), 0),
                    Bound::Nothing => return Err(self.unknown("register or variable", text, t.start)),
                }
            }
            Kind::Int(v) => {
                self.bump()?;
                (Base::Abs, v)
            }
            _ => return Err(self.expected("a register, a variable or a number as the address")),
        };
        offset = self.addend()?.wrapping_add(offset);
        let operand = if self.eat(b',')? {
            let coordinates = match self.primary(1)? {
                Operand::Vector(v) => v,
                one => vec![one],
            };
            Operand::Tensor(base, offset, coordinates)
        } else {
            Operand::Addr(base, offset)
        };
        self.expect(b']', "after the address")?;
        Ok(operand)
    }

    /// Any number of `+ imm`, `- imm`, `+-imm`.
    fn addend(&mut self) -> Result<i64> {
        let mut sum = 0i64;
        while self.at(b'+') || self.at(b'-') {
            let mut negative = false;
            while self.at(b'+') || self.at(b'-') {
                negative ^= self.at(b'-');
                self.bump()?;
            }
            let v = self.unsigned("an offset in bytes (a number)")? as i64;
            sum = if negative { sum.wrapping_sub(v) } else { sum.wrapping_add(v) };
        }
        Ok(sum)
    }
}

/// Threads of a warp, as the PTX constant of that name has it.
const WARP_SZ: i64 = 32;

/// PTX's special registers; a trailing `.` takes `.x .y .z .w` (or none), a trailing `#` takes a number.
const SPECIAL: &[&str] = &[
    "%tid.",
    "%ntid.",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%ctaid.",
    "%nctaid.",
    "%smid",
    "%nsmid",
    "%gridid",
    "%is_explicit_cluster",
    "%clusterid.",
    "%nclusterid.",
    "%cluster_ctaid.",
    "%cluster_nctaid.",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%clock",
    "%clock_hi",
    "%clock64",
    "%pm#",
    "%pm0_64",
    "%pm1_64",
    "%pm2_64",
    "%pm3_64",
    "%pm4_64",
    "%pm5_64",
    "%pm6_64",
    "%pm7_64",
    "%envreg#",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end",
    "%reserved_smem_offset_cap",
    "%reserved_smem_offset_#",
    "%total_smem_size",
    "%aggr_smem_size",
    "%dynamic_smem_size",
    "%current_graph_exec",
];

fn is_special(text: &str) -> bool {
    SPECIAL.iter().any(|s| match s.as_bytes()[s.len() - 1] {
        b'.' => {
            let stem = &s[..s.len() - 1];
            text.strip_prefix(stem).is_some_and(|rest| matches!(rest, "" | ".x" | ".y" | ".z" | ".w"))
        }
        b'#' => {
            let stem = &s[..s.len() - 1];
            text.strip_prefix(stem).is_some_and(|rest| {
                !rest.is_empty() && rest.len() < 3 && rest.bytes().all(|b| b.is_ascii_digit())
            })
        }
        _ => text == *s,
    })
}
