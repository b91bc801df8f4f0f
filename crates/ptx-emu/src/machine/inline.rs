//! Calls of device functions: each call gets a copy of the function behind the kernel's own instructions. The call becomes a
//! branch to the copy, `ret` in it a branch back; `.param` variables that carry arguments and results are memory of the
//! thread. PTX asks for no more of a call (7.1): registers are the callee's own, and nobody sees a stack.
//!
//! What cannot be run that way is told by the decoder: a function without a body (but `vprintf`, whose text is not shown,
//! and `__assertfail`), a call through a register, and recursion.

use crate::syntax::ast::{Base, Function, Instr, Module, Operand, Sym};

/// Deepest chain of calls; more is recursion.
const DEEPEST: u32 = 24;
/// Most instructions of a kernel with all copies.
const MOST: usize = 1 << 20;

/// The kernel `f` of `m` with its calls expanded; `None` where it calls nothing.
///
/// # Errors
/// What cannot be expanded, and the instruction that asks for it.
pub fn expanded(m: &Module, f: &Function) -> Result<Option<Function>, (String, Instr)> {
    let is_call = |i: &Instr| m.opcodes[i.op as usize].mnemonic == "call";
    if !f.body.iter().any(is_call) {
        return Ok(None);
    }
    let mut out = f.clone();
    // Who runs off the end of the kernel must not run into a copy.
    let end = out.body.len();
    let call = f.body.iter().find(|i| is_call(i)).expect("looked for above");
    out.body.push(Instr { guard: None, op: call.op, args: vec![], span: call.span });
    let mut depth = vec![0; out.body.len()];
    let mut at = 0;
    while at < out.body.len() {
        let i = &out.body[at];
        if at != end && is_call(i) && !matches!(i.args[..], [] | [Operand::Label(_)]) {
            let i = i.clone();
            let fail = |what: String| Err((what, i.clone()));
            let (results, callee, arguments) = parts(&i.args);
            if let Some(Operand::Sym(Sym::Func(callee), 0)) = callee {
                if depth[at] >= DEEPEST || out.body.len() > MOST {
                    return fail(format!("call: a chain of more than {DEEPEST} calls; recursion is not run"));
                }
                let callee = &m.functions[*callee as usize];
                let start = out.body.len() as u32;
                if let Err(what) = copy(m, &mut out, callee, (results, arguments), &i, at as u32 + 1) {
                    return fail(what);
                }
                depth.resize(out.body.len(), depth[at] + 1);
                out.body[at].args = vec![Operand::Label(start)];
            }
        }
        at += 1;
    }
    Ok(Some(out))
}

/// Results, function and arguments of a call's operands.
fn parts(args: &[Operand]) -> (&[Operand], Option<&Operand>, &[Operand]) {
    match args {
        [Operand::Vector(r), f, Operand::Vector(a), ..] => (r, Some(f), a),
        [Operand::Vector(r), f] => (r, Some(f), &[]),
        [f, Operand::Vector(a), ..] => (&[], Some(f), a),
        [f, ..] => (&[], Some(f), &[]),
        [] => (&[], None, &[]),
    }
}

/// Appends `f` for the call `call`, and a branch to `back` behind it.
fn copy(
    m: &Module,
    out: &mut Function,
    f: &Function,
    (results, arguments): (&[Operand], &[Operand]),
    call: &Instr,
    back: u32,
) -> Result<(), String> {
    let variable = |o: &Operand| match o {
        Operand::Sym(s @ Sym::FuncVar(_), 0) => Ok(*s),
        _ => Err(format!("call: an argument or result of `{}` that is no .param variable", f.name)),
    };
    let results = results.iter().map(variable).collect::<Result<Vec<_>, _>>()?;
    let arguments = arguments.iter().map(variable).collect::<Result<Vec<_>, _>>()?;
    if arguments.len() != f.params.len() {
        let (n, given) = (f.params.len(), arguments.len());
        return Err(format!("call: `{}` takes {n} arguments in .param variables, {given} are given", f.name));
    }
    let shift = Shift {
        regs: out.regs.len() as u32,
        vars: out.vars.len() as u32,
        body: out.body.len() as u32,
        targets: out.branch_targets.len() as u32,
        results: &results,
        arguments: &arguments,
    };
    out.regs.extend(f.regs.iter().cloned());
    out.vars.extend(f.vars.iter().cloned());
    out.branch_targets.extend(f.branch_targets.iter().map(|t| t.iter().map(|l| l + shift.body).collect()));
    out.labels.extend(f.labels.iter().map(|(l, n)| (l + shift.body, n.clone())));
    for i in &f.body {
        let mut args: Vec<Operand> = i.args.iter().map(|o| shift.operand(o)).collect();
        // `ret` of a function: back to the call. (The decoder ends the thread at one without a label.)
        if m.opcodes[i.op as usize].mnemonic == "ret" {
            args.push(Operand::Label(back));
        }
        out.body.push(Instr { guard: i.guard.map(|(r, n)| (r + shift.regs, n)), args, ..i.clone() });
    }
    out.body.push(Instr { guard: None, op: call.op, args: vec![Operand::Label(back)], span: call.span });
    Ok(())
}

/// How the indices of a function move in its copy.
struct Shift<'a> {
    regs: u32,
    vars: u32,
    body: u32,
    targets: u32,
    results: &'a [Sym],
    arguments: &'a [Sym],
}

impl Shift<'_> {
    fn sym(&self, s: Sym) -> Sym {
        match s {
            Sym::Param(i) => self.arguments[i as usize],
            // A function's results are the first variables that it declares.
            Sym::FuncVar(i) => self.results.get(i as usize).copied().unwrap_or(Sym::FuncVar(i + self.vars)),
            other => other,
        }
    }

    fn base(&self, b: Base) -> Base {
        match b {
            Base::Reg(r) => Base::Reg(r + self.regs),
            Base::Sym(s) => Base::Sym(self.sym(s)),
            other => other,
        }
    }

    fn operand(&self, o: &Operand) -> Operand {
        let all = |v: &[Operand]| v.iter().map(|o| self.operand(o)).collect();
        match o {
            Operand::Reg(r) => Operand::Reg(r + self.regs),
            Operand::NotReg(r) => Operand::NotReg(r + self.regs),
            Operand::Vector(v) => Operand::Vector(all(v)),
            Operand::Pair(a, b) => Operand::Pair(Box::new(self.operand(a)), Box::new(self.operand(b))),
            Operand::Addr(b, n) => Operand::Addr(self.base(*b), *n),
            Operand::Tensor(b, n, v) => Operand::Tensor(self.base(*b), *n, all(v)),
            Operand::Sym(s, n) => Operand::Sym(self.sym(*s), *n),
            Operand::Label(l) => Operand::Label(l + self.body),
            Operand::Targets(t) => Operand::Targets(t + self.targets),
            Operand::Int(_)
            | Operand::F32(_)
            | Operand::F64(_)
            | Operand::Special(_)
            | Operand::Sink
            | Operand::Name(_) => o.clone(),
        }
    }
}
