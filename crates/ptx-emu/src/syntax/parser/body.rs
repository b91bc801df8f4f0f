//! Function bodies: scopes, labels, guards, instructions.
//!
//! A label may be used before its definition, and the same label may be defined once in each of many sibling
//! scopes. So every open scope keeps its labels and the uses that are still open; when it closes, uses that it
//! defines are patched and the rest move to the enclosing scope.

use super::*;
use std::collections::hash_map::Entry;

/// Nesting of `{ }`; open label uses move outward one scope at a time, so this bounds their cost.
const DEEPEST: usize = 256;

/// What a label marks.
#[derive(Clone, Copy)]
enum Label {
    Instr(u32),
    Targets(u32),
    Prototype,
}

/// Where a name waits for its definition.
#[derive(Clone, Copy)]
enum Site {
    Arg { instr: u32, arg: u32 },
    Target { list: u32, index: u32 },
}

#[derive(Clone, Copy)]
struct Open {
    name: NameId,
    site: Site,
    at: usize,
}

#[derive(Default)]
struct Scope {
    /// Byte offset of its `{`.
    start: usize,
    labels: HashMap<NameId, Label>,
    open: Vec<Open>,
}

/// The function that is being read.
#[derive(Default)]
pub(super) struct Body<'a> {
    pub(super) function: Function,
    /// 1 + index of the location in force; 0 before the first `.loc`.
    pub(super) loc: u32,
    /// Latest location of each (file, line, column) of this function, for `inlined_at` chains.
    pub(super) sites: HashMap<(u32, u32, u32), u32>,
    scopes: Vec<Scope>,
    /// The mnemonic of the instruction that is being read.
    pub(super) mnemonic: &'a str,
}

impl<'a> Parser<'a> {
    /// `{ … }` after the head of a function. The names of its parameters are declared already, in a scope that
    /// this closes.
    pub(super) fn function_body(&mut self) -> Result<()> {
        self.lexer.markers.clear();
        self.open_scope()?;
        while !self.body.scopes.is_empty() {
            self.statement()?;
        }
        self.names.close();
        Ok(())
    }

    fn open_scope(&mut self) -> Result<()> {
        let start = self.tok.start;
        if self.body.scopes.len() >= DEEPEST {
            return Err(self
                .lexer
                .error(start, format!("more than {DEEPEST} nested scopes are not supported")));
        }
        self.bump()?;
        self.names.open();
        self.body.scopes.push(Scope { start, ..Scope::default() });
        Ok(())
    }

    fn close_scope(&mut self) -> Result<()> {
        let Some(scope) = self.body.scopes.pop() else { return Ok(()) };
        for use_ in scope.open {
            match scope.labels.get(&use_.name) {
                Some(&label) => self.patch(use_, label)?,
                None => match self.body.scopes.last_mut() {
                    Some(outer) => outer.open.push(use_),
                    None => self.leave_open(use_, &scope.labels)?,
                },
            }
        }
        self.names.close();
        Ok(())
    }

    fn patch(&mut self, use_: Open, label: Label) -> Result<()> {
        match (use_.site, label) {
            (Site::Arg { instr, arg }, label) => {
                let operand = &mut self.body.function.body[instr as usize].args[arg as usize];
                match label {
                    Label::Instr(i) => *operand = Operand::Label(i),
                    Label::Targets(i) => *operand = Operand::Targets(i),
                    Label::Prototype => {}
                }
            }
            (Site::Target { list, index }, Label::Instr(i)) => {
                self.body.function.branch_targets[list as usize][index as usize] = i;
            }
            (Site::Target { .. }, _) => {
                return Err(self.lexer.error(use_.at, "a branch target must be the label of an instruction"));
            }
        }
        Ok(())
    }

    /// A name that no scope of the function defines: a function, or an error.
    fn leave_open(&mut self, use_: Open, labels: &HashMap<NameId, Label>) -> Result<()> {
        let name = &**self.names.text(use_.name);
        let mut what = "label";
        if let Site::Arg { instr, arg } = use_.site {
            if self.functions.contains_key(&use_.name) {
                self.calls.push((self.module.functions.len(), instr, arg, use_.name));
                return Ok(());
            }
            let op = self.body.function.body[instr as usize].op;
            what = match self.module.opcodes[op as usize].mnemonic.as_str() {
                "call" => "function",
                "mov" => "register, variable or function",
                _ => "label",
            };
        }
        let known: Box<dyn Iterator<Item = &str>> = match what {
            "label" => Box::new(
                labels
                    .keys()
                    .map(|&n| &**self.names.text(n))
                    .chain(self.body.function.labels.iter().map(|(_, n)| &**n)),
            ),
            _ => Box::new(self.functions.keys().map(|&n| &**self.names.text(n)).chain(self.names.declared())),
        };
        let near = nearest(name, known);
        let e = self.lexer.error(use_.at, format!("unknown {what} `{}`", shown(name)));
        // The same spelling elsewhere in the function means a label of a scope that is closed to this use.
        let hidden = what == "label" && self.body.function.labels.iter().any(|(_, n)| &**n == name);
        Err(if hidden {
            e.help("it is defined in a scope that this instruction is outside of")
        } else {
            e.near(near)
        })
    }

    fn statement(&mut self) -> Result<()> {
        self.take_markers();
        match self.tok.kind {
            Kind::Punct(b'{') => self.open_scope(),
            Kind::Punct(b'}') => {
                self.close_scope()?;
                // The function's own brace: what follows is module level, where markers mean nothing.
                self.bump().map(drop)
            }
            Kind::Punct(b';') => self.bump().map(drop),
            Kind::Punct(b'@') => self.guarded(),
            Kind::Directive => self.body_directive(),
            Kind::Ident => {
                let mut t = self.tok;
                self.lexer.extend_dotted(&mut t);
                self.tok = t;
                if self.lexer.colon_follows() { self.label() } else { self.instruction(None) }
            }
            Kind::Eof => {
                let depth = self.body.scopes.len();
                let name = shown(&self.body.function.name);
                let open = self.lexer.source.excerpt(self.body.scopes[depth - 1].start).line;
                Err(self
                    .lexer
                    .error(self.tok.start, format!("the file ends inside the function `{name}`"))
                    .help(format!("the `{{` of line {open} is never closed; was the file cut off?")))
            }
            _ => Err(self.expected("an instruction, a directive, a label or `}`")),
        }
    }

    /// `// cover: NAME` comments passed by the lexer become instructions.
    fn take_markers(&mut self) {
        for i in 0..self.lexer.markers.len() {
            let marker = self.lexer.markers[i];
            let op = self.opcode("%cover");
            self.body.function.body.push(Instr {
                guard: None,
                op,
                args: vec![Operand::Name(marker.name.into())],
                span: Span { line: marker.line, loc: self.body.loc },
            });
        }
        self.lexer.markers.clear();
    }

    fn body_directive(&mut self) -> Result<()> {
        match self.text() {
            ".reg" => self.registers(),
            ".local" | ".shared" | ".param" | ".global" | ".const" => self.function_variables(),
            ".loc" => self.loc(),
            ".pragma" => self.skip_statement(),
            ".file" => self.file(),
            ".branchtargets" | ".calltargets" | ".callprototype" => {
                Err(self.lexer.error(self.tok.start, format!("`{}` needs a label before it", self.text())))
            }
            _ => Err(self.expected("an instruction, a declaration, `.loc` or `.pragma`")),
        }
    }

    fn label(&mut self) -> Result<()> {
        let t = self.bump()?;
        self.expect(b':', "after the label")?;
        let text = self.lexer.text(t);
        let name = self.names.intern(text);
        let label = match (self.tok.kind, self.text()) {
            (Kind::Directive, ".branchtargets") => self.branch_targets()?,
            (Kind::Directive, ".callprototype" | ".calltargets") => {
                self.skip_statement()?;
                Label::Prototype
            }
            _ => {
                let here = self.body.function.body.len() as u32;
                self.body.function.labels.push((here, self.names.text(name).clone()));
                Label::Instr(here)
            }
        };
        let scope = self.body.scopes.len() - 1;
        match self.body.scopes[scope].labels.entry(name) {
            Entry::Vacant(v) => {
                v.insert(label);
                Ok(())
            }
            Entry::Occupied(_) => {
                let e = self
                    .lexer
                    .error(t.start, format!("the label `{}` is defined twice in this scope", shown(text)));
                Err(e.help("put the inline asm that defines it into braces, `{ }`, or use `%=`"))
            }
        }
    }

    fn branch_targets(&mut self) -> Result<Label> {
        self.bump()?;
        let list = self.body.function.branch_targets.len() as u32;
        let mut count = 0;
        loop {
            let (text, t) = self.ident("a label")?;
            let name = self.names.intern(text);
            self.wait_for(name, Site::Target { list, index: count }, t.start);
            count += 1;
            if !self.eat(b',')? {
                break;
            }
        }
        self.expect(b';', "after the branch targets")?;
        self.body.function.branch_targets.push(vec![0; count as usize]);
        Ok(Label::Targets(list))
    }

    fn wait_for(&mut self, name: NameId, site: Site, at: usize) {
        if let Some(scope) = self.body.scopes.last_mut() {
            scope.open.push(Open { name, site, at });
        }
    }

    /// `@p` or `@!p` and the instruction it guards.
    fn guarded(&mut self) -> Result<()> {
        self.bump()?;
        let negated = self.eat(b'!')?;
        let (name, t) = self.ident("the predicate register of the guard")?;
        let id = self.names.intern(name);
        let reg = match self.names.lookup(id) {
            Bound::Reg(r) => r,
            Bound::Sym(_) => {
                return Err(self
                    .lexer
                    .error(t.start, format!("`{}` is not a predicate register", shown(name))));
            }
            Bound::Nothing => return Err(self.unknown("predicate register", name, t.start)),
        };
        if self.body.function.regs[reg as usize].1 != Ty::Pred {
            let e = self
                .lexer
                .error(t.start, format!("the guard `{}` is not a register of type .pred", shown(name)));
            return Err(e);
        }
        if self.tok.kind != Kind::Ident {
            return Err(self.expected("an instruction after the guard"));
        }
        let mut t = self.tok;
        self.lexer.extend_dotted(&mut t);
        self.tok = t;
        self.instruction(Some((reg, negated)))
    }

    /// The current token is the opcode, already extended over its modifiers.
    fn instruction(&mut self, guard: Option<(RegId, bool)>) -> Result<()> {
        let t = self.bump()?;
        let text = self.lexer.text(t);
        if text.starts_with('%') {
            return Err(self
                .lexer
                .error(t.start, format!("expected an instruction, found `{}`", shown(text))));
        }
        let op = self.opcode(text);
        self.body.mnemonic = text.split('.').next().unwrap_or(text);
        let span = Span { line: t.line, loc: self.body.loc };
        let instr = self.body.function.body.len() as u32;
        let mut args = Vec::new();
        if !self.at(b';') {
            loop {
                let (operand, unresolved) = self.operand()?;
                if let Some((name, at)) = unresolved {
                    self.wait_for(name, Site::Arg { instr, arg: args.len() as u32 }, at);
                }
                args.push(operand);
                if !self.eat(b',')? {
                    break;
                }
            }
            if !self.at(b';') {
                let e = self.expected("`,` or `;` after an operand");
                // The last operand ended on an earlier line than what was found: most likely its `;` is missing.
                return Err(match self.last_line < self.tok.line && self.tok.kind != Kind::Eof {
                    true => e.help(format!("is a `;` missing at the end of line {}?", self.last_line)),
                    false => e,
                });
            }
        }
        self.bump()?;
        self.body.function.body.push(Instr { guard, op, args, span });
        Ok(())
    }

    /// The id of an opcode; each distinct spelling is split once.
    fn opcode(&mut self, text: &'a str) -> OpId {
        let opcodes = &mut self.module.opcodes;
        *self.opcodes.entry(text).or_insert_with(|| {
            let mut parts = text.split('.').map(str::to_string);
            let mnemonic = parts.next().unwrap_or_default();
            opcodes.push(Opcode { text: text.to_string(), mnemonic, mods: parts.collect() });
            (opcodes.len() - 1) as OpId
        })
    }
}
