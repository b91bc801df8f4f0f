//! Pure register instructions: everything that reads and writes only the executing lane's registers.
//!
//! [`decode`] turns an opcode with its operands into an [`AluInstr`]: one function that works on whole lane
//! vectors, and the slots it reads and writes. [`table`] lists what is understood; a mnemonic that is in the
//! table with a modifier or type that is not is refused by name, never guessed at.

mod bits;
mod cmp;
mod cvt;
mod float;
mod half;
mod int;
mod lanes;
mod logic;
mod mov;
mod mufu;
mod shadow;
pub mod table;
#[cfg(test)]
mod tests;

use super::operands::{Decoded, Slots, class_of, unsupported};
use super::regs::{Class, RegFile};
use crate::syntax::ast::{Opcode, Operand, Ty};

/// Executes an operation on the lanes of a mask.
pub type AluFn = fn(&mut RegFile, &AluOp, u32);

/// A decoded operation: what the machine keeps per instruction.
#[derive(Clone, Copy, Debug)]
pub struct AluOp {
    /// Semantics.
    pub f: AluFn,
    /// Destination slots (unused = 0).
    pub d: [u32; 4],
    /// Source slots (unused = 0).
    pub s: [u32; 4],
    /// Immediate or mode bits; each function gives them its own meaning.
    pub imm: u64,
}

impl AluOp {
    /// Runs the operation on the lanes of `mask`.
    #[inline]
    pub fn exec(&self, rf: &mut RegFile, mask: u32) {
        (self.f)(rf, self, mask);
    }
}

/// Kind of work, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AluClass {
    /// Integer and logic.
    Int,
    /// Single precision.
    Fp32,
    /// Two single-precision values in a 64-bit register.
    Packed,
    /// Special function unit.
    Mufu,
    /// Conversions.
    Cvt,
    /// Moves, packing and selection.
    Mov,
    /// Comparisons.
    Cmp,
    /// Half precision and bfloat16.
    Fp16,
    /// Double precision.
    Fp64,
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct AluInstr {
    /// What to run.
    pub op: AluOp,
    /// Registers written.
    pub dsts: Vec<(Class, u32)>,
    /// Registers read.
    pub srcs: Vec<(Class, u32)>,
    /// Kind of work.
    pub class: AluClass,
}

/// Decodes an instruction; `Ok(None)` when it is not a pure register instruction.
///
/// # Errors
/// [`Unsupported`](super::operands::Unsupported) names an opcode whose mnemonic is known here but whose form is
/// not, or whose operands do not fit.
pub fn decode(op: &Opcode, args: &[Operand], slots: &mut Slots) -> Decoded<Option<AluInstr>> {
    match table::decoder(&op.mnemonic) {
        Some(f) => {
            let mut form = Form { op, args, slots, used: 0, d: Vec::new(), s: Vec::new() };
            match f(&mut form) {
                Err(e) if !e.0.contains(&op.text) => unsupported(format!("{}: {}", op.text, e.0)),
                r => r,
            }
        }
        None => Ok(None),
    }
}

/// An instruction being decoded: hands out its modifiers and operands and remembers which were looked at.
struct Form<'a> {
    op: &'a Opcode,
    args: &'a [Operand],
    slots: &'a mut Slots,
    used: u64,
    d: Vec<(Class, u32)>,
    s: Vec<(Class, u32)>,
}

impl Form<'_> {
    /// An error that names the opcode.
    fn no<T>(&self, why: &str) -> Decoded<T> {
        unsupported(format!("{}: {why}", self.op.text))
    }

    /// True when modifier `m` is given.
    fn flag(&mut self, m: &str) -> bool {
        self.one_of(&[m]).is_some()
    }

    /// The first modifier that is among `ms`.
    fn one_of<'m>(&mut self, ms: &[&'m str]) -> Option<&'m str> {
        for (i, x) in self.op.mods.iter().enumerate() {
            if self.used >> i & 1 == 0
                && let Some(m) = ms.iter().find(|m| *m == x)
            {
                self.used |= 1 << i;
                return Some(m);
            }
        }
        None
    }

    /// The last modifier as a type.
    fn ty(&mut self) -> Decoded<Ty> {
        match self.types(1)?[..] {
            [t] => Ok(t),
            _ => unreachable!("types(1) returns one type"),
        }
    }

    /// The last `n` modifiers as types.
    fn types(&mut self, n: usize) -> Decoded<Vec<Ty>> {
        let mods = &self.op.mods;
        if mods.len() < n {
            return self.no("the type is missing");
        }
        let mut tys = Vec::new();
        for i in mods.len() - n..mods.len() {
            match type_named(&mods[i]) {
                Some(t) => tys.push(t),
                None => return self.no(&format!("`.{}` is not a type known here", mods[i])),
            }
            self.used |= 1 << i;
        }
        Ok(tys)
    }

    /// Checks the operand count and that every modifier has been understood.
    fn check(&self, n_args: usize) -> Decoded<()> {
        for (i, m) in self.op.mods.iter().enumerate() {
            if self.used >> i & 1 == 0 {
                return self.no(&format!("modifier `.{m}` is not supported here"));
            }
        }
        if self.args.len() != n_args {
            return self.no(&format!("{} operands where {n_args} are expected", self.args.len()));
        }
        Ok(())
    }

    /// Adds operand `o` as the next source, read as `ty`.
    fn src_operand(&mut self, o: &Operand, ty: Ty) -> Decoded<()> {
        let c = class_of(ty);
        let slot = match c {
            Class::P => match self.slots.src_p(o)? {
                (p, false) => p,
                (_, true) => return self.no("a negated predicate is not supported here"),
            },
            Class::R32 => self.slots.src32(o, ty)?,
            Class::R64 => self.slots.src64(o, ty)?,
            Class::R128 => return self.no("a 128-bit source is not supported here"),
        };
        self.s.push((c, slot));
        Ok(())
    }

    /// Adds operand number `i` as the next source, read as `ty`.
    fn src(&mut self, i: usize, ty: Ty) -> Decoded<()> {
        let args = self.args;
        self.src_operand(&args[i], ty)
    }

    /// Adds operand `o` as the next destination of type `ty`.
    fn dst_operand(&mut self, o: &Operand, ty: Ty) -> Decoded<()> {
        let c = class_of(ty);
        let slot = match c {
            Class::P => self.slots.dst_p(o)?,
            Class::R32 => self.slots.dst32(o)?,
            Class::R64 => self.slots.dst64(o)?,
            Class::R128 => return self.no("a 128-bit destination is not supported here"),
        };
        self.d.push((c, slot));
        Ok(())
    }

    /// Adds operand number `i` as the next destination.
    fn dst(&mut self, i: usize, ty: Ty) -> Decoded<()> {
        let args = self.args;
        self.dst_operand(&args[i], ty)
    }

    /// Operands `d, a, b, …` of the given types (destination first), after [`check`](Form::check).
    fn operands(&mut self, tys: &[Ty]) -> Decoded<()> {
        self.check(tys.len())?;
        self.dst(0, tys[0])?;
        (1..tys.len()).try_for_each(|i| self.src(i, tys[i]))
    }

    /// The finished instruction.
    fn done(&mut self, f: AluFn, imm: u64, class: AluClass) -> Decoded<Option<AluInstr>> {
        let (mut d, mut s) = ([0; 4], [0; 4]);
        for (to, from) in d.iter_mut().zip(&self.d) {
            *to = from.1;
        }
        for (to, from) in s.iter_mut().zip(&self.s) {
            *to = from.1;
        }
        let (dsts, srcs) = (std::mem::take(&mut self.d), std::mem::take(&mut self.s));
        Ok(Some(AluInstr { op: AluOp { f, d, s, imm }, dsts, srcs, class }))
    }

    /// The usual instruction: all operands of one type, with a function chosen by that type.
    fn simple(&mut self, n: usize, ty: Ty, f: Option<AluFn>, class: AluClass) -> Decoded<Option<AluInstr>> {
        match f {
            Some(f) => {
                self.operands(&vec![ty; n])?;
                self.done(f, 0, class)
            }
            None => self.no("not defined for this type"),
        }
    }
}

/// The type a modifier names.
fn type_named(m: &str) -> Option<Ty> {
    use Ty::*;
    Some(match m {
        "pred" => Pred,
        "b8" => B8,
        "u8" => U8,
        "s8" => S8,
        "b16" => B16,
        "u16" => U16,
        "s16" => S16,
        "f16" => F16,
        "bf16" => BF16,
        "b32" => B32,
        "u32" => U32,
        "s32" => S32,
        "f32" => F32,
        "f16x2" => F16x2,
        "bf16x2" => BF16x2,
        "b64" => B64,
        "u64" => U64,
        "s64" => S64,
        "f64" => F64,
        "b128" => B128,
        _ => return None,
    })
}

/// Picks a function by type: `by_ty!(ty; U32 = u32, S32 = i32; lane_fn!(|a: T| -> T { a }))`.
macro_rules! by_ty {
    ($ty:expr; $($variant:ident = $t:ty),+; $f:expr) => {
        match $ty {
            $(Ty::$variant => {
                #[allow(dead_code)]
                type T = $t;
                Some($f)
            })+
            _ => None,
        }
    };
}
use by_ty;
