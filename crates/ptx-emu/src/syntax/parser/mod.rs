//! Tokens to the resolved tree: the parser's state, its helpers and the module level.
//!
//! Declarations are in `decl`, initialisers in `init`, function bodies in `body`, operands in `operand`.

mod body;
mod decl;
mod init;
mod names;
mod operand;

use self::body::Body;
use self::names::{Bound, NameId, Names};
use super::ast::*;
use super::error::{SyntaxError, nearest, shown};
use super::lexer::{Kind, Lexer, Token};
use super::source::Source;
use std::collections::HashMap;

type Result<T> = std::result::Result<T, SyntaxError>;

/// Reads a PTX file. `name` is what messages call it.
///
/// # Errors
/// The first thing that is not PTX as this front end knows it, with its place in the text.
pub fn parse(name: &str, text: &str) -> Result<Module> {
    let source = Source { name, text };
    let mut lexer = Lexer::new(source);
    let tok = lexer.advance()?;
    let mut p = Parser {
        lexer,
        tok,
        last_line: 1,
        names: Names::default(),
        opcodes: HashMap::new(),
        locs: HashMap::new(),
        functions: HashMap::new(),
        calls: Vec::new(),
        init_names: Vec::new(),
        vars: HashMap::new(),
        body: Body::default(),
        module: Module { name: name.to_string(), ..Module::default() },
    };
    p.module()?;
    Ok(p.module)
}

/// [`parse`] for bytes that may not be text at all.
///
/// # Errors
/// As [`parse`]; also when the bytes are not UTF-8, which is what a cubin or another binary file looks like.
pub fn parse_bytes(name: &str, bytes: &[u8]) -> Result<Module> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(name, text),
        Err(e) => {
            let text = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
            let source = Source { name, text: &text };
            let message = format!("byte {} is not text (UTF-8)", e.valid_up_to());
            Err(SyntaxError::new(source, text.len(), message)
                .help("a PTX file is text; a cubin or fatbin must be compiled to PTX instead"))
        }
    }
}

/// A declared function: its index in [`Module::functions`] once a body was seen.
#[derive(Clone, Copy, Default)]
struct Declared {
    index: Option<u32>,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token to be consumed next; the lexer stands at its end.
    tok: Token,
    /// Line of the token consumed last.
    last_line: u32,
    names: Names,
    opcodes: HashMap<&'a str, OpId>,
    locs: HashMap<(u32, u32, u32, u32), u32>,
    functions: HashMap<NameId, Declared>,
    /// Operands that name a function whose body may follow later: function, instruction, operand, name.
    calls: Vec<(usize, u32, u32, NameId)>,
    /// Names used in initialisers, checked at the end of the module.
    init_names: Vec<(NameId, usize)>,
    /// Module variables by name, so that a definition can complete an `.extern` declaration.
    vars: HashMap<NameId, u32>,
    body: Body<'a>,
    module: Module,
}

impl<'a> Parser<'a> {
    // ---- tokens ----------------------------------------------------------------------------------------------

    fn bump(&mut self) -> Result<Token> {
        let t = self.tok;
        self.last_line = t.line;
        self.tok = self.lexer.advance()?;
        Ok(t)
    }

    fn at(&self, c: u8) -> bool {
        self.tok.kind == Kind::Punct(c)
    }

    fn eat(&mut self, c: u8) -> Result<bool> {
        let yes = self.at(c);
        if yes {
            self.bump()?;
        }
        Ok(yes)
    }

    fn expect(&mut self, c: u8, place: &str) -> Result<()> {
        if self.eat(c)? {
            return Ok(());
        }
        Err(self.expected(&format!("`{}` {place}", c as char)))
    }

    fn text(&self) -> &'a str {
        self.lexer.text(self.tok)
    }

    /// An error at the current token: expected one thing, found another.
    fn expected(&self, what: &str) -> SyntaxError {
        self.lexer.error(self.tok.start, format!("expected {what}, found {}", self.found()))
    }

    fn found(&self) -> String {
        match self.tok.kind {
            Kind::Eof => "the end of the file".to_string(),
            _ => format!("`{}`", shown(self.text())),
        }
    }

    fn ident(&mut self, what: &str) -> Result<(&'a str, Token)> {
        match self.tok.kind {
            Kind::Ident => {
                let t = self.bump()?;
                Ok((self.lexer.text(t), t))
            }
            _ => Err(self.expected(what)),
        }
    }

    fn unsigned(&mut self, what: &str) -> Result<u64> {
        match self.tok.kind {
            Kind::Int(v) => {
                self.bump()?;
                Ok(v as u64)
            }
            _ => Err(self.expected(what)),
        }
    }

    fn unsigned32(&mut self, what: &str) -> Result<u32> {
        let at = self.tok.start;
        let v = self.unsigned(what)?;
        u32::try_from(v).map_err(|_| self.lexer.error(at, format!("{v} is too large for {what}")))
    }

    /// The contents of a string token.
    fn string(&mut self, what: &str) -> Result<&'a str> {
        match self.tok.kind {
            Kind::Str => {
                let t = self.bump()?;
                Ok(&self.lexer.source.text[t.start + 1..t.end - 1])
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Skips `{ … }` without reading what is inside.
    fn skip_braces(&mut self) -> Result<()> {
        let open = self.tok.start;
        self.expect(b'{', "")?;
        let mut depth = 1u32;
        while depth > 0 {
            match self.tok.kind {
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') => depth -= 1,
                Kind::Eof => return Err(self.lexer.error(open, "this `{` is never closed")),
                _ => {}
            }
            self.bump()?;
        }
        Ok(())
    }

    /// Skips to and over the next `;`.
    fn skip_statement(&mut self) -> Result<()> {
        while !self.at(b';') {
            if self.tok.kind == Kind::Eof {
                return Err(self.expected("`;`"));
            }
            self.bump()?;
        }
        self.bump()?;
        Ok(())
    }

    // ---- the module level ------------------------------------------------------------------------------------

    fn module(&mut self) -> Result<()> {
        if self.tok.kind == Kind::Eof {
            let e = self.lexer.error(0, "the file is empty: a PTX file starts with `.version`");
            return Err(e.help("check that the compiler that should have written it succeeded"));
        }
        if self.tok.kind != Kind::Directive || self.text() != ".version" {
            return Err(self.expected("`.version` as the first directive of a PTX file"));
        }
        self.bump()?;
        self.version()?;
        if self.tok.kind != Kind::Directive || self.text() != ".target" {
            return Err(self.expected("`.target` after `.version`"));
        }
        self.bump()?;
        self.target()?;
        while self.tok.kind != Kind::Eof {
            self.module_statement()?;
            self.lexer.markers.clear();
        }
        self.resolve_calls();
        self.check_init_names()
    }

    /// `9.0`: the text decides, since 9.1 and 9.10 are different versions and the same number.
    fn version(&mut self) -> Result<()> {
        let parts = self.text().split_once('.').map(|(a, b)| (a.parse(), b.parse()));
        let (Kind::F64(_), Some((Ok(major), Ok(minor)))) = (self.tok.kind, parts) else {
            return Err(self.expected("a version such as 9.0"));
        };
        self.module.version = (major, minor);
        self.bump()?;
        Ok(())
    }

    fn target(&mut self) -> Result<()> {
        loop {
            let (name, _) = self.ident("a target such as sm_100a")?;
            self.module.target.push(name.to_string());
            if !self.eat(b',')? {
                return Ok(());
            }
        }
    }

    fn module_statement(&mut self) -> Result<()> {
        match self.tok.kind {
            Kind::Punct(b';') => return self.bump().map(drop),
            // Line information in the style of old compilers: `@@DWARF …`.
            Kind::Punct(b'@') => {
                self.lexer.skip_line();
                return self.bump().map(drop);
            }
            Kind::Directive => {}
            Kind::Punct(b'}') => {
                let e = self.lexer.error(self.tok.start, "this `}` closes nothing");
                return Err(e.help("the function before it has ended; look for a `}` too many inside it"));
            }
            _ => return Err(self.expected("a directive at module level")),
        }
        let start = self.tok;
        let mut is_extern = false;
        loop {
            match self.text() {
                ".visible" | ".weak" | ".common" => {}
                ".extern" => is_extern = true,
                _ => break,
            }
            self.bump()?;
        }
        match self.text() {
            ".entry" => self.function(true),
            ".func" => self.function(false),
            ".global" | ".const" | ".shared" | ".local" => self.module_variables(is_extern),
            ".file" => self.file(),
            ".pragma" | ".alias" => self.skip_statement(),
            ".address_size" => {
                self.bump()?;
                match self.tok.kind {
                    Kind::Int(64) => self.bump().map(drop),
                    _ => Err(self.expected("64, the only address size that is supported")),
                }
            }
            ".section" => {
                self.bump()?;
                if !matches!(self.tok.kind, Kind::Directive | Kind::Ident) {
                    return Err(self.expected("the section's name"));
                }
                self.bump()?;
                self.skip_braces()
            }
            ".loc" => self.loc(),
            _ if self.tok.start == start.start => Err(self.expected(
                "a directive of the module level (.entry, .func, .global, .const, .shared, .file, .section, ...)",
            )),
            _ => Err(self.expected(&format!("a function or variable after `{}`", self.lexer.text(start)))),
        }
    }

    fn file(&mut self) -> Result<()> {
        self.bump()?;
        let number = self.unsigned32("the number of the file")?;
        let path = self.string("the path of the file in quotes")?.to_string();
        while self.eat(b',')? {
            self.unsigned("a time stamp or size")?;
        }
        self.module.files.push((number, path));
        Ok(())
    }

    /// `.loc file line column [, function_name label [+ n]] [, inlined_at file line column]`; the result counts
    /// for the instructions that follow.
    fn loc(&mut self) -> Result<()> {
        self.bump()?;
        let (file, line, column) = self.file_line_column()?;
        let mut inlined_at = 0;
        while self.eat(b',')? {
            match self.ident("`function_name` or `inlined_at`")? {
                ("function_name", _) => {
                    self.ident("the label of the function's name")?;
                    if self.eat(b'+')? {
                        self.unsigned("an offset")?;
                    }
                }
                ("inlined_at", _) => {
                    let site = self.file_line_column()?;
                    // The call site may itself be inlined: then its own `.loc` was seen in this function.
                    inlined_at = match self.body.sites.get(&site) {
                        Some(&known) => known,
                        None => self.intern_loc(site, 0),
                    };
                }
                (_, t) => {
                    return Err(self.lexer.error(
                        t.start,
                        format!(
                            "expected `function_name` or `inlined_at`, found `{}`",
                            shown(self.lexer.text(t))
                        ),
                    ));
                }
            }
        }
        let loc = self.intern_loc((file, line, column), inlined_at);
        self.body.sites.insert((file, line, column), loc);
        self.body.loc = loc;
        Ok(())
    }

    fn file_line_column(&mut self) -> Result<(u32, u32, u32)> {
        Ok((
            self.unsigned32("a file number")?,
            self.unsigned32("a line number")?,
            self.unsigned32("a column number")?,
        ))
    }

    /// 1 + index of a location.
    fn intern_loc(&mut self, (file, line, column): (u32, u32, u32), inlined_at: u32) -> u32 {
        let locs = &mut self.module.locs;
        *self.locs.entry((file, line, column, inlined_at)).or_insert_with(|| {
            locs.push(Loc { file, line, column, inlined_at });
            locs.len() as u32
        })
    }

    /// Operands that name a function get its index, now that all bodies are known; a function without a body
    /// (`vprintf`) stays a name.
    fn resolve_calls(&mut self) {
        for (function, instr, arg, name) in std::mem::take(&mut self.calls) {
            if let Some(index) = self.functions.get(&name).and_then(|d| d.index) {
                self.module.functions[function].body[instr as usize].args[arg as usize] =
                    Operand::Sym(Sym::Func(index), 0);
            }
        }
    }

    fn check_init_names(&self) -> Result<()> {
        for &(name, at) in &self.init_names {
            if self.vars.contains_key(&name) || self.functions.contains_key(&name) {
                continue;
            }
            let text = self.names.text(name);
            let known = self.vars.keys().chain(self.functions.keys()).map(|&n| &**self.names.text(n));
            let e = self.lexer.error(at, format!("unknown variable or function `{}`", shown(text)));
            return Err(e.near(nearest(text, known)));
        }
        Ok(())
    }

    // ---- names -----------------------------------------------------------------------------------------------

    /// Declares a name in the current scope, once.
    fn declare(&mut self, name: NameId, bound: Bound, at: usize) -> Result<()> {
        if self.names.declare(name, bound) {
            return Ok(());
        }
        let name = shown(self.names.text(name));
        Err(self
            .lexer
            .error(at, format!("`{name}` is declared twice in this scope"))
            .help("open a scope of its own with `{ }`, or use another name"))
    }

    /// An error for a name that nothing declares.
    fn unknown(&self, what: &str, name: &str, at: usize) -> SyntaxError {
        let e = self.lexer.error(at, format!("unknown {what} `{}`", shown(name)));
        let f = &self.body.function;
        if f.regs.iter().any(|(n, _)| &**n == name) || f.vars.iter().any(|v| v.name == name) {
            return e.help("it is declared in a scope that has ended");
        }
        e.near(nearest(name, self.names.declared()))
    }
}
