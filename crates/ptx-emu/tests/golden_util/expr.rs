//! Expressions of test headers: values of buffers as formulas of the element index `i`.
//!
//! `"m = i / 16, k = i % 16, (3*m + k) % 5 - 2"`: bindings, then the value. Integers of 64 bits; `% ` is never
//! negative; `sum(k, 16, …)` adds the term for k = 0..15; `c ? a : b`; comparisons give 0 or 1. The point of
//! formulas is that a matrix product can be stated in the header, independently of the emulator.

type Res<T> = Result<T, String>;

enum Node {
    Int(i64),
    /// A slot of the environment.
    Name(usize),
    Bin(&'static str, Box<Node>, Box<Node>),
    Neg(Box<Node>),
    If(Box<Node>, Box<Node>, Box<Node>),
    Sum(usize, Box<Node>, Box<Node>),
}

/// A parsed formula.
pub struct Formula {
    lets: Vec<(usize, Node)>,
    value: Node,
    slots: usize,
}

/// Operators from the loosest to the tightest level.
const LEVELS: [&[&str]; 7] = [
    &["|"],
    &["^"],
    &["&"],
    &["==", "!=", "<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Names in scope, innermost last, with their slots.
    scope: Vec<(String, usize)>,
    slots: usize,
}

impl Formula {
    /// Parses a formula.
    pub fn parse(text: &str) -> Res<Formula> {
        let mut p = Parser { text, at: 0, scope: vec![("i".into(), 0)], slots: 1 };
        let mut lets = Vec::new();
        loop {
            let start = p.at;
            if let Some(name) = p.name()
                && p.take("=")
                && !p.rest().starts_with('=')
            {
                let node = p.ternary()?;
                lets.push((p.bind(name), node));
                if !p.take(",") {
                    return Err(p.error("`,` after a binding"));
                }
                continue;
            }
            p.at = start;
            let value = p.ternary()?;
            if !p.rest().is_empty() {
                return Err(p.error("the end"));
            }
            return Ok(Formula { lets, value, slots: p.slots });
        }
    }

    /// Its value for element `i`.
    pub fn at(&self, i: i64) -> Res<i64> {
        let mut env = vec![0; self.slots];
        env[0] = i;
        for (slot, node) in &self.lets {
            env[*slot] = eval(node, &mut env)?;
        }
        eval(&self.value, &mut env)
    }
}

impl Parser<'_> {
    fn rest(&mut self) -> &str {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
        &self.text[self.at..]
    }

    fn take(&mut self, s: &str) -> bool {
        let hit = self.rest().starts_with(s);
        self.at += if hit { s.len() } else { 0 };
        hit
    }

    fn bind(&mut self, name: String) -> usize {
        self.scope.push((name, self.slots));
        self.slots += 1;
        self.slots - 1
    }

    fn error(&mut self, wanted: &str) -> String {
        let rest = self.rest().to_string();
        format!("formula `{}`: {wanted} expected at `{rest}`", self.text)
    }

    fn name(&mut self) -> Option<String> {
        let r = self.rest();
        let n = r.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(r.len());
        let ok = r.starts_with(|c: char| c.is_ascii_alphabetic());
        let name = ok.then(|| r[..n].to_string())?;
        self.at += n;
        Some(name)
    }

    fn ternary(&mut self) -> Res<Node> {
        let c = self.level(0)?;
        if !self.take("?") {
            return Ok(c);
        }
        let a = self.ternary()?;
        if !self.take(":") {
            return Err(self.error("`:`"));
        }
        Ok(Node::If(Box::new(c), Box::new(a), Box::new(self.ternary()?)))
    }

    fn level(&mut self, n: usize) -> Res<Node> {
        let Some(ops) = LEVELS.get(n) else { return self.unary() };
        let mut left = self.level(n + 1)?;
        while let Some(op) = ops.iter().copied().find(|op| self.take(op)) {
            left = Node::Bin(op, Box::new(left), Box::new(self.level(n + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<Node> {
        if self.take("-") {
            return Ok(Node::Neg(Box::new(self.unary()?)));
        }
        if self.take("(") {
            let e = self.ternary()?;
            return if self.take(")") { Ok(e) } else { Err(self.error("`)`")) };
        }
        if let Some(name) = self.name() {
            if name != "sum" {
                let known = self.scope.iter().rev().find(|(n, _)| *n == name);
                return known
                    .map(|(_, slot)| Node::Name(*slot))
                    .ok_or_else(|| format!("formula `{}`: unknown name `{name}`", self.text));
            }
            let parts = (self.take("("), self.name(), self.take(","));
            let (true, Some(var), true) = parts else { return Err(self.error("`sum(name, count, term)`")) };
            let count = self.ternary()?;
            if !self.take(",") {
                return Err(self.error("`,`"));
            }
            let slot = self.bind(var);
            let term = self.ternary()?;
            self.scope.pop();
            return if self.take(")") {
                Ok(Node::Sum(slot, Box::new(count), Box::new(term)))
            } else {
                Err(self.error("`)`"))
            };
        }
        let r = self.rest();
        let n = r.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(r.len());
        let digits = &r[..n];
        let value = match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        self.at += n;
        value.map(Node::Int).map_err(|_| self.error("a number, a name or `(`"))
    }
}

fn eval(node: &Node, env: &mut [i64]) -> Res<i64> {
    Ok(match node {
        Node::Int(v) => *v,
        Node::Name(slot) => env[*slot],
        Node::Neg(e) => -eval(e, env)?,
        Node::If(c, a, b) => {
            if eval(c, env)? != 0 {
                eval(a, env)?
            } else {
                eval(b, env)?
            }
        }
        Node::Sum(slot, count, term) => {
            let (count, mut total) = (eval(count, env)?, 0);
            for v in 0..count {
                env[*slot] = v;
                total += eval(term, env)?;
            }
            total
        }
        Node::Bin(op, a, b) => {
            let (a, b) = (eval(a, env)?, eval(b, env)?);
            match *op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "/" | "%" if b == 0 => return Err("division by zero in a formula".into()),
                "/" => a.div_euclid(b),
                "%" => a.rem_euclid(b),
                "<<" => a << b,
                ">>" => a >> b,
                "&" => a & b,
                "|" => a | b,
                "^" => a ^ b,
                "==" => i64::from(a == b),
                "!=" => i64::from(a != b),
                "<" => i64::from(a < b),
                ">" => i64::from(a > b),
                "<=" => i64::from(a <= b),
                _ => i64::from(a >= b),
            }
        }
    })
}
