//! Initialisers of variables: numbers, floats, strings, addresses, nested braces.

use super::*;

/// Nesting of braces; PTX arrays of more dimensions do not occur.
const DEEPEST: usize = 8;
/// Bytes of an inner row that are padded with zeros; a limit so that a wrong extent cannot exhaust memory.
const LARGEST: u64 = 1 << 28;

impl Parser<'_> {
    /// Reads what follows `=` into `var.init` and `var.init_refs`; an open first extent in `dims` gets the number
    /// of elements found.
    pub(super) fn initialiser(&mut self, var: &mut Var, dims: &mut [Option<u64>]) -> Result<()> {
        if var.ty == Ty::Pred {
            return Err(self.lexer.error(self.tok.start, "a variable of type .pred cannot be initialised"));
        }
        if !self.at(b'{') {
            let most =
                dims.iter().try_fold(u64::from(var.ty.bytes()), |s, d| d.and_then(|d| s.checked_mul(d)));
            let at = self.tok.start;
            self.element(var)?;
            return match (most, dims.first()) {
                (Some(most), _) if var.init.len() as u64 > most => Err(self.too_many(at, most, var)),
                (None, Some(None)) => {
                    dims[0] = Some(var.init.len() as u64 / u64::from(var.ty.bytes()));
                    Ok(())
                }
                _ => Ok(()),
            };
        }
        // Bytes of one row at each level of nesting; a shorter row is padded with zeros.
        let mut row = vec![u64::from(var.ty.bytes()); dims.len() + 1];
        for (i, d) in dims.iter().enumerate().rev() {
            row[i] = row[i + 1].saturating_mul(d.unwrap_or(u64::MAX));
        }
        let mut starts: Vec<u64> = Vec::new();
        loop {
            let at = self.tok.start;
            if self.eat(b'{')? {
                if starts.len() >= DEEPEST.min(dims.len().max(1)) {
                    return Err(self.lexer.error(at, "more braces than the variable has dimensions"));
                }
                starts.push(var.init.len() as u64);
                if !self.at(b'}') {
                    continue;
                }
            } else {
                self.element(var)?;
            }
            // After an element, or at the end of an empty list: close as many levels as there are braces.
            loop {
                let end = starts[starts.len() - 1].saturating_add(row[starts.len() - 1]);
                if var.init.len() as u64 > end {
                    return Err(self.too_many(at, row[starts.len() - 1], var));
                }
                if !self.eat(b'}')? {
                    break;
                }
                let start = starts.pop().unwrap_or(0);
                if starts.is_empty() {
                    if dims.first() == Some(&None) {
                        dims[0] = Some((var.init.len() as u64 - start).div_ceil(row[1]));
                    }
                    return Ok(());
                }
                if end - start > LARGEST {
                    return Err(self
                        .lexer
                        .error(at, "an initialised row of more than 256 MiB is not supported"));
                }
                var.init.resize(end as usize, 0);
            }
            self.expect(b',', "or `}` after an element of the initialiser")?;
        }
    }

    fn too_many(&self, at: usize, most: u64, var: &Var) -> SyntaxError {
        let n = most / u64::from(var.ty.bytes());
        self.lexer
            .error(at, format!("the initialiser has more elements than the {n} of `{}`", shown(&var.name)))
    }

    fn element(&mut self, var: &mut Var) -> Result<()> {
        let negative = self.eat(b'-')?;
        let (at, text) = (self.tok.start, self.text());
        match self.tok.kind {
            Kind::Int(v) => {
                self.bump()?;
                if self.at(b'(') && !negative {
                    return self.masked_address(var, v as u64, at);
                }
                let v = if negative { v.wrapping_neg() } else { v };
                match var.ty {
                    Ty::F32 => var.init.extend((v as f32).to_le_bytes()),
                    Ty::F64 => var.init.extend((v as f64).to_le_bytes()),
                    ty => var.init.extend(&i128::from(v).to_le_bytes()[..ty.bytes() as usize]),
                }
            }
            Kind::F32(bits) => {
                self.bump()?;
                let bits = bits ^ u32::from(negative) << 31;
                match var.ty {
                    // Bit by bit: a NaN keeps its payload.
                    Ty::F32 => var.init.extend(bits.to_le_bytes()),
                    _ => self.float(var, f64::from(f32::from_bits(bits)), at)?,
                }
            }
            Kind::F64(bits) => {
                self.bump()?;
                let v = f64::from_bits(bits);
                self.float(var, if negative { -v } else { v }, at)?;
            }
            Kind::Str if !negative && var.ty.bytes() == 1 => {
                let s = self.string("a string")?;
                var.init.extend(unescape(s));
            }
            Kind::Ident if !negative => {
                self.bump()?;
                if text == "generic" && self.eat(b'(')? {
                    let (name, t) = self.ident("the name of a variable")?;
                    self.expect(b')', "after the variable")?;
                    self.symbol_address(var, name, t.start)?;
                } else {
                    self.symbol_address(var, text, at)?;
                }
            }
            _ => return Err(self.expected("a number, a string or the name of a variable in the initialiser")),
        }
        Ok(())
    }

    fn float(&mut self, var: &mut Var, v: f64, at: usize) -> Result<()> {
        match var.ty {
            Ty::F32 => var.init.extend((v as f32).to_le_bytes()),
            Ty::F64 => var.init.extend(v.to_le_bytes()),
            _ => {
                let e = self.lexer.error(at, format!("`{}` is of an integer type", shown(&var.name)));
                return Err(e.help("write the bits of the number as an integer"));
            }
        }
        Ok(())
    }

    /// `name`, `name+4`, `name-4`.
    fn symbol_address(&mut self, var: &mut Var, name: &str, at: usize) -> Result<()> {
        if var.ty.bytes() != 8 {
            let e = self.lexer.error(at, "an address needs an element of 8 bytes");
            return Err(e.help("declare the variable `.u64` or `.b64`"));
        }
        let mut addend = 0i64;
        while self.at(b'+') || self.at(b'-') {
            let negative = self.at(b'-');
            self.bump()?;
            let v = self.unsigned("a number of bytes")? as i64;
            addend = if negative { addend.wrapping_sub(v) } else { addend.wrapping_add(v) };
        }
        self.reference(var, name, addend, at);
        var.init.extend([0; 8]);
        Ok(())
    }

    fn reference(&mut self, var: &mut Var, name: &str, addend: i64, at: usize) {
        let id = self.names.intern(name);
        self.init_names.push((id, at));
        var.init_refs.push((var.init.len() as u64, name.to_string(), addend));
    }

    /// `0xFF(name)`, `0xFF00(name)`, …: the bytes of one address, spelled one by one in a `.b8` array.
    fn masked_address(&mut self, var: &mut Var, mask: u64, at: usize) -> Result<()> {
        self.bump()?;
        let (mut name, t) = self.ident("the name of a variable")?;
        if name == "generic" && self.eat(b'(')? {
            name = self.ident("the name of a variable")?.0;
            self.expect(b')', "after the variable")?;
        }
        let mut addend = 0i64;
        if self.eat(b'+')? {
            addend = self.unsigned("a number of bytes")? as i64;
        }
        self.expect(b')', "after the variable")?;
        let byte = u64::from(mask.trailing_zeros() / 8);
        if mask == 0 || mask != 0xff << (8 * byte) || var.ty.bytes() != 1 {
            return Err(self
                .lexer
                .error(at, "a mask of an address must select one byte of it, in a .b8 variable"));
        }
        let here = var.init.len() as u64;
        let continues =
            var.init_refs.last().is_some_and(|(o, n, a)| o + byte == here && n == name && *a == addend);
        if byte == 0 {
            self.reference(var, name, addend, t.start);
        } else if !continues {
            let e = self.lexer.error(at, "the bytes of an address must follow one another, lowest first");
            return Err(e);
        }
        var.init.push(0);
        Ok(())
    }
}

/// The bytes of a string with C's escapes.
fn unescape(s: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len());
    let mut bytes = s.bytes();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        out.push(match bytes.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'0') => 0,
            Some(other) => other,
            None => b'\\',
        });
    }
    out
}
