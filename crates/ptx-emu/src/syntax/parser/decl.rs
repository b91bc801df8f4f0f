//! Declarations: variables, parameters, registers, and the heads of functions.

use super::names::{Bound, NameId};
use super::*;

/// Registers one function may declare; more is a typo in `name<N>`, not a program.
const MOST_REGS: u64 = 1 << 20;

/// What stands between the state space and the name of a variable or parameter.
struct Attributes {
    ty: Ty,
    lanes: u32,
    align: Option<u32>,
}

/// The type a directive names.
pub fn type_of(directive: &str) -> Option<Ty> {
    Some(match directive {
        ".pred" => Ty::Pred,
        ".b8" => Ty::B8,
        ".u8" => Ty::U8,
        ".s8" => Ty::S8,
        ".b16" => Ty::B16,
        ".u16" => Ty::U16,
        ".s16" => Ty::S16,
        ".f16" => Ty::F16,
        ".bf16" => Ty::BF16,
        ".b32" => Ty::B32,
        ".u32" => Ty::U32,
        ".s32" => Ty::S32,
        ".f32" => Ty::F32,
        ".f16x2" => Ty::F16x2,
        ".bf16x2" => Ty::BF16x2,
        ".b64" => Ty::B64,
        ".u64" => Ty::U64,
        ".s64" => Ty::S64,
        ".f64" => Ty::F64,
        ".b128" => Ty::B128,
        _ => return None,
    })
}

impl Parser<'_> {
    fn attributes(&mut self, what: &str) -> Result<Attributes> {
        let (mut ty, mut lanes, mut align, mut pointer) = (None, 1, None, false);
        while self.tok.kind == Kind::Directive {
            let text = self.text();
            match text {
                ".align" => {
                    self.bump()?;
                    let at = self.tok.start;
                    let n = self.unsigned32("an alignment in bytes")?;
                    if !n.is_power_of_two() {
                        return Err(self.lexer.error(at, format!("the alignment {n} is not a power of two")));
                    }
                    // After `.ptr` it is the alignment of what the parameter points to.
                    if !pointer {
                        align = Some(n);
                    }
                    continue;
                }
                ".attribute" => {
                    self.bump()?;
                    self.expect(b'(', "after `.attribute`")?;
                    while !self.at(b')') {
                        if self.tok.kind == Kind::Eof {
                            return Err(self.expected("`)` after the attribute"));
                        }
                        self.bump()?;
                    }
                    self.bump()?;
                    continue;
                }
                ".ptr" => pointer = true,
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                ".v8" => lanes = 8,
                ".const" | ".global" | ".local" | ".shared" | ".param" | ".generic" => {}
                _ => match type_of(text) {
                    Some(t) => ty = Some(t),
                    None => return Err(self.expected(&format!("the type of the {what}"))),
                },
            }
            self.bump()?;
        }
        let ty = ty.ok_or_else(|| self.expected(&format!("the type of the {what}, e.g. `.b32`")))?;
        Ok(Attributes { ty, lanes, align })
    }

    /// `[n][m]…`: the extents; an empty first pair of brackets reads as `None`.
    fn extents(&mut self) -> Result<Vec<Option<u64>>> {
        let mut dims = Vec::new();
        while self.eat(b'[')? {
            if self.at(b']') && dims.is_empty() {
                dims.push(None);
            } else {
                dims.push(Some(self.unsigned("the number of elements")?));
            }
            self.expect(b']', "after the number of elements")?;
        }
        Ok(dims)
    }

    /// `.space attributes name[n] = init, … ;`, appended to `out` and declared in the current scope by `bind`.
    fn variables(&mut self, is_extern: bool) -> Result<Vec<(NameId, usize, Var)>> {
        let space = match self.text() {
            ".local" => Space::Local,
            ".shared" => Space::Shared,
            ".const" => Space::Const,
            ".param" => Space::Param,
            _ => Space::Global,
        };
        self.bump()?;
        let a = self.attributes("variable")?;
        let element = u64::from(a.ty.bytes() * a.lanes);
        let mut out = Vec::new();
        loop {
            let (name, at) = self.ident("the name of the variable")?;
            let mut dims = self.extents()?;
            let mut var = Var {
                name: name.to_string(),
                space,
                ty: a.ty,
                size: None,
                align: a.align.unwrap_or(element as u32),
                is_extern,
                init: Vec::new(),
                init_refs: Vec::new(),
            };
            if a.lanes > 1 {
                dims.push(Some(u64::from(a.lanes)));
            }
            if self.eat(b'=')? {
                self.initialiser(&mut var, &mut dims)?;
            }
            if dims.iter().all(Option::is_some) {
                let elements = dims.iter().flatten().try_fold(1u64, |n, &d| n.checked_mul(d));
                let size = elements.and_then(|n| n.checked_mul(u64::from(a.ty.bytes())));
                var.size = size.filter(|&s| s <= 1 << 40);
                if var.size.is_none() {
                    return Err(self
                        .lexer
                        .error(at.start, format!("`{}` is larger than 1 TiB", shown(name))));
                }
            }
            if var.size.is_none() && !is_extern && space != Space::Param {
                let e = self.lexer.error(at.start, format!("`{}` has no size", shown(name)));
                return Err(e.help("give the number of elements, an initialiser, or declare it `.extern`"));
            }
            out.push((self.names.intern(name), at.start, var));
            if !self.eat(b',')? {
                break;
            }
        }
        self.expect(b';', "after the variable")?;
        Ok(out)
    }

    pub(super) fn module_variables(&mut self, is_extern: bool) -> Result<()> {
        for (name, at, var) in self.variables(is_extern)? {
            if let Some(&known) = self.vars.get(&name) {
                // A definition completes an `.extern` declaration; a repeated declaration says nothing new.
                let old = &mut self.module.vars[known as usize];
                if old.is_extern && old.space == var.space {
                    if !var.is_extern {
                        *old = var;
                    }
                    continue;
                }
                if var.is_extern && old.space == var.space {
                    continue;
                }
            }
            let index = self.module.vars.len() as u32;
            self.declare(name, Bound::Sym(Sym::ModuleVar(index)), at)?;
            self.vars.insert(name, index);
            self.module.vars.push(var);
        }
        Ok(())
    }

    /// A `.local`, `.shared`, `.param` (or `.global`, `.const`) variable in a body.
    pub(super) fn function_variables(&mut self) -> Result<()> {
        for (name, at, var) in self.variables(false)? {
            self.function_variable(name, at, var)?;
        }
        Ok(())
    }

    fn function_variable(&mut self, name: NameId, at: usize, var: Var) -> Result<()> {
        let index = self.body.function.vars.len() as u32;
        self.declare(name, Bound::Sym(Sym::FuncVar(index)), at)?;
        self.body.function.vars.push(var);
        Ok(())
    }

    /// `.reg .b32 a, b, c<8>;`
    pub(super) fn registers(&mut self) -> Result<()> {
        self.bump()?;
        let ty = self.register_type()?;
        loop {
            let (name, at) = self.ident("the name of a register")?;
            if self.eat(b'<')? {
                let count = self.unsigned("the number of registers")?;
                self.expect(b'>', "after the number of registers")?;
                if count > MOST_REGS {
                    let e = self.lexer.error(at.start, format!("{count} registers are too many"));
                    return Err(e.help(format!("at most {MOST_REGS} registers are accepted per function")));
                }
                let mut spelled = String::with_capacity(name.len() + 8);
                for i in 0..count {
                    use std::fmt::Write;
                    spelled.clear();
                    let _ = write!(spelled, "{name}{i}");
                    let id = self.names.intern(&spelled);
                    self.register(id, ty, at.start)?;
                }
            } else {
                let id = self.names.intern(name);
                self.register(id, ty, at.start)?;
            }
            if !self.eat(b',')? {
                break;
            }
        }
        self.expect(b';', "after the registers")
    }

    fn register_type(&mut self) -> Result<Ty> {
        if matches!(self.text(), ".v2" | ".v4") {
            let e = self.lexer.error(self.tok.start, "vector registers are not supported");
            return Err(e.help("declare scalar registers and list them in braces, `{a, b}`"));
        }
        match type_of(self.text()) {
            Some(ty) if self.tok.kind == Kind::Directive => {
                self.bump()?;
                Ok(ty)
            }
            _ => Err(self.expected("the type of the registers, e.g. `.b32`")),
        }
    }

    fn register(&mut self, name: NameId, ty: Ty, at: usize) -> Result<()> {
        let index = self.body.function.regs.len();
        if index as u64 >= MOST_REGS {
            return Err(self
                .lexer
                .error(at, format!("the function declares more than {MOST_REGS} registers")));
        }
        self.declare(name, Bound::Reg(index as RegId), at)?;
        self.body.function.regs.push((self.names.text(name).clone(), ty));
        Ok(())
    }

    /// `.entry name (params) directives { body }` or `.func (ret) name (params) directives { body }`; without a
    /// body it is a declaration.
    pub(super) fn function(&mut self, is_entry: bool) -> Result<()> {
        let line = self.tok.line;
        self.bump()?;
        self.names.open();
        self.body = Body::default();
        self.body.function.is_entry = is_entry;
        self.body.function.line = line;
        while self.tok.kind == Kind::Directive && self.text() == ".attribute" {
            self.skip_attribute()?;
        }
        if !is_entry && self.at(b'(') {
            self.results()?;
        }
        let (name, at) = self.ident("the name of the function")?;
        let id = self.names.intern(name);
        self.body.function.name = name.to_string();
        if self.at(b'(') {
            self.parameters()?;
        }
        self.function_directives()?;
        let known = *self.functions.entry(id).or_default();
        if self.eat(b';')? {
            self.names.close();
            return Ok(());
        }
        if known.index.is_some() {
            return Err(self.lexer.error(at.start, format!("the function `{}` has two bodies", shown(name))));
        }
        let index = self.module.functions.len() as u32;
        self.functions.insert(id, Declared { index: Some(index) });
        if !self.at(b'{') {
            return Err(self.expected("`{` and the body of the function, or `;`"));
        }
        self.function_body()?;
        let done = std::mem::take(&mut self.body);
        self.module.functions.push(done.function);
        Ok(())
    }

    fn skip_attribute(&mut self) -> Result<()> {
        self.bump()?;
        self.expect(b'(', "after `.attribute`")?;
        while !self.eat(b')')? {
            if self.tok.kind == Kind::Eof {
                return Err(self.expected("`)` after the attribute"));
            }
            self.bump()?;
        }
        Ok(())
    }

    /// `(.param .b32 retval)`: a variable of the body, not a parameter.
    fn results(&mut self) -> Result<()> {
        self.bump()?;
        while !self.eat(b')')? {
            if self.text() == ".reg" {
                self.bump()?;
                let ty = self.register_type()?;
                let (name, at) = self.ident("the name of the result")?;
                let id = self.names.intern(name);
                self.register(id, ty, at.start)?;
            } else {
                let (name, at, p) = self.parameter()?;
                let var = Var {
                    name: p.name,
                    space: Space::Param,
                    ty: p.ty,
                    size: Some(u64::from(p.size)),
                    align: p.align,
                    is_extern: false,
                    init: Vec::new(),
                    init_refs: Vec::new(),
                };
                self.function_variable(name, at, var)?;
            }
            if !self.at(b')') {
                self.expect(b',', "or `)` after a result")?;
            }
        }
        Ok(())
    }

    /// `(.param .u64 a, .param .align 64 .b8 b[128])`, laid out as a C struct.
    fn parameters(&mut self) -> Result<()> {
        self.bump()?;
        let mut end = 0u64;
        while !self.eat(b')')? {
            if self.text() == ".reg" {
                self.bump()?;
                let ty = self.register_type()?;
                let (name, at) = self.ident("the name of the parameter")?;
                let id = self.names.intern(name);
                self.register(id, ty, at.start)?;
            } else {
                let (name, at, mut p) = self.parameter()?;
                let offset = end.next_multiple_of(u64::from(p.align));
                end = offset + u64::from(p.size);
                p.offset = u32::try_from(offset)
                    .map_err(|_| self.lexer.error(at, "the parameters take more than 4 GiB"))?;
                let index = self.body.function.params.len() as u32;
                self.declare(name, Bound::Sym(Sym::Param(index)), at)?;
                self.body.function.params.push(p);
            }
            if !self.at(b')') {
                self.expect(b',', "or `)` after a parameter")?;
            }
        }
        Ok(())
    }

    fn parameter(&mut self) -> Result<(NameId, usize, Param)> {
        if self.text() != ".param" {
            return Err(self.expected("`.param` and a parameter"));
        }
        self.bump()?;
        let a = self.attributes("parameter")?;
        let (name, at) = self.ident("the name of the parameter")?;
        let mut size = u64::from(a.ty.bytes() * a.lanes);
        for d in self.extents()? {
            size = size.saturating_mul(d.unwrap_or(0));
        }
        let size = u32::try_from(size)
            .map_err(|_| self.lexer.error(at.start, format!("`{}` is larger than 4 GiB", shown(name))))?;
        let p = Param {
            name: name.to_string(),
            ty: a.ty,
            offset: 0,
            size,
            align: a.align.unwrap_or(a.ty.bytes() * a.lanes),
        };
        Ok((self.names.intern(name), at.start, p))
    }

    fn function_directives(&mut self) -> Result<()> {
        while self.tok.kind == Kind::Directive {
            match self.text() {
                ".reqntid" => self.body.function.reqntid = Some(self.three()?),
                ".maxntid" => self.body.function.maxntid = Some(self.three()?),
                ".reqnctapercluster" => self.body.function.reqnctapercluster = Some(self.three()?),
                ".minnctapersm"
                | ".maxnctapersm"
                | ".maxnreg"
                | ".maxclusterrank"
                | ".abi_preserve"
                | ".abi_preserve_control" => {
                    self.bump()?;
                    self.unsigned("a number")?;
                }
                ".explicitcluster" | ".blocksareclusters" | ".noreturn" | ".unified" => {
                    self.bump().map(drop)?
                }
                ".attribute" => self.skip_attribute()?,
                ".pragma" => self.skip_statement()?,
                _ => return Err(self.expected("a directive of a function, `{` or `;`")),
            }
        }
        Ok(())
    }

    fn three(&mut self) -> Result<[u32; 3]> {
        self.bump()?;
        let mut v = [1; 3];
        v[0] = self.unsigned32("a number of threads or CTAs")?;
        for x in &mut v[1..] {
            if !self.eat(b',')? {
                break;
            }
            *x = self.unsigned32("a number of threads or CTAs")?;
        }
        Ok(v)
    }
}
