//! The resolved tree that the parser hands to the decoder.
//!
//! Scopes are already resolved: a register is an index into [`Function::regs`], a label is an index into
//! [`Function::body`], and a symbol says whether it is a parameter, a variable of the function or of the module.

use std::sync::Arc;

/// Index into [`Function::regs`].
pub type RegId = u32;
/// Index into [`Module::opcodes`].
pub type OpId = u32;

/// A PTX fundamental type, without its vector length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ty {
    /// One-bit predicate.
    Pred,
    /// 8-bit types.
    B8,
    /// Unsigned.
    U8,
    /// Signed.
    S8,
    /// 16-bit types.
    B16,
    /// Unsigned.
    U16,
    /// Signed.
    S16,
    /// Half precision.
    F16,
    /// bfloat16.
    BF16,
    /// 32-bit types.
    B32,
    /// Unsigned.
    U32,
    /// Signed.
    S32,
    /// Single precision.
    F32,
    /// Two halves in 32 bits.
    F16x2,
    /// Two bfloat16 in 32 bits.
    BF16x2,
    /// 64-bit types.
    B64,
    /// Unsigned.
    U64,
    /// Signed.
    S64,
    /// Double precision.
    F64,
    /// 128 bits.
    B128,
}

impl Ty {
    /// Size in bytes (a predicate counts as 1).
    pub fn bytes(self) -> u32 {
        use Ty::*;
        match self {
            Pred | B8 | U8 | S8 => 1,
            B16 | U16 | S16 | F16 | BF16 => 2,
            B32 | U32 | S32 | F32 | F16x2 | BF16x2 => 4,
            B64 | U64 | S64 | F64 => 8,
            B128 => 16,
        }
    }
}

/// Where an instruction stands in the PTX text and, through `.loc`, in the `.cu` source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// 1-based line of the PTX text.
    pub line: u32,
    /// 1 + index into [`Module::locs`]; 0 where no `.loc` precedes the instruction in its function.
    pub loc: u32,
}

/// One `.loc` directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loc {
    /// Index into [`Module::files`] by `.file` number.
    pub file: u32,
    /// 1-based source line.
    pub line: u32,
    /// 1-based column (0 = unknown).
    pub column: u32,
    /// The call site this location was inlined at: 1 + index into [`Module::locs`]; 0 = not inlined.
    pub inlined_at: u32,
}

/// A whole PTX file.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Name of the file, for messages.
    pub name: String,
    /// `.version` major, minor.
    pub version: (u32, u32),
    /// `.target` entries, e.g. `["sm_100a"]`.
    pub target: Vec<String>,
    /// Distinct opcodes in order of first appearance.
    pub opcodes: Vec<Opcode>,
    /// `.global`, `.const` and module-scope `.shared` variables.
    pub vars: Vec<Var>,
    /// Kernels and device functions that have a body.
    pub functions: Vec<Function>,
    /// `.file` number → path.
    pub files: Vec<(u32, String)>,
    /// All `.loc` directives, interned.
    pub locs: Vec<Loc>,
}

/// Mnemonic with all modifiers, as spelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opcode {
    /// The whole opcode, e.g. `ld.global.v4.b32`; a coverage marker has the opcode `%cover`.
    pub text: String,
    /// Up to the first dot, e.g. `ld`, `tcgen05`.
    pub mnemonic: String,
    /// The rest, split at single dots (`::` stays inside), e.g. `["global", "v4", "b32"]`.
    pub mods: Vec<String>,
}

impl Opcode {
    /// True when `m` is among the modifiers.
    pub fn has(&self, m: &str) -> bool {
        self.mods.iter().any(|x| x == m)
    }
}

/// State space of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Per-thread.
    Local,
    /// Per-CTA.
    Shared,
    /// Device memory.
    Global,
    /// Read-only device memory.
    Const,
    /// Kernel or call parameters.
    Param,
}

/// A variable declaration.
#[derive(Clone, Debug)]
pub struct Var {
    /// Name as spelled.
    pub name: String,
    /// State space.
    pub space: Space,
    /// Element type.
    pub ty: Ty,
    /// Total size in bytes; `None` for an unsized `extern .shared` array.
    pub size: Option<u64>,
    /// Alignment in bytes (natural alignment of the element when not spelled).
    pub align: u32,
    /// Declared `.extern` (dynamic shared memory when in `.shared`).
    pub is_extern: bool,
    /// Initial bytes (shorter than `size` = zero padded); empty when there is no initialiser.
    pub init: Vec<u8>,
    /// Addresses patched into `init`: (byte offset, symbol name, addend).
    pub init_refs: Vec<(u64, String, i64)>,
}

/// A kernel parameter.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name as spelled.
    pub name: String,
    /// Element type (`B8` for by-value structs).
    pub ty: Ty,
    /// Byte offset in the parameter buffer.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A kernel (`.entry`) or device function (`.func`) with its body.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Name as spelled.
    pub name: String,
    /// True for `.entry`.
    pub is_entry: bool,
    /// Parameters in order, with their offsets in the parameter buffer.
    pub params: Vec<Param>,
    /// `.reqntid`, where given.
    pub reqntid: Option<[u32; 3]>,
    /// `.maxntid`, where given.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqnctapercluster`, where given.
    pub reqnctapercluster: Option<[u32; 3]>,
    /// All registers of all scopes: (name as spelled, type).
    pub regs: Vec<(Arc<str>, Ty)>,
    /// Variables declared inside the body (`.shared`, `.local`, `.param`).
    pub vars: Vec<Var>,
    /// Instructions in order.
    pub body: Vec<Instr>,
    /// `.branchtargets` lists: each entry is a list of instruction indices.
    pub branch_targets: Vec<Vec<u32>>,
    /// Labels for messages: (instruction index, name).
    pub labels: Vec<(u32, Arc<str>)>,
    /// PTX line of the declaration.
    pub line: u32,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instr {
    /// `@p` or `@!p`: register and whether it is negated.
    pub guard: Option<(RegId, bool)>,
    /// Opcode.
    pub op: OpId,
    /// Operands as written, left to right.
    pub args: Vec<Operand>,
    /// Where it stands.
    pub span: Span,
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sym {
    /// Index into [`Function::params`].
    Param(u32),
    /// Index into [`Function::vars`].
    FuncVar(u32),
    /// Index into [`Module::vars`].
    ModuleVar(u32),
    /// Index into [`Module::functions`].
    Func(u32),
}

/// Base of an address expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Register.
    Reg(RegId),
    /// Variable or parameter.
    Sym(Sym),
    /// Absolute.
    Abs,
}

/// An operand.
#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// A register.
    Reg(RegId),
    /// `!p`.
    NotReg(RegId),
    /// An integer literal (two's complement in 64 bits).
    Int(i64),
    /// `0f…`.
    F32(u32),
    /// `0d…` or a decimal floating literal.
    F64(u64),
    /// A special register with its leading `%`, e.g. `%tid.x`.
    Special(Arc<str>),
    /// `_`.
    Sink,
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `d|p` (either side may be [`Operand::Sink`]).
    Pair(Box<Operand>, Box<Operand>),
    /// `[base + offset]`.
    Addr(Base, i64),
    /// `[map, {c0, c1, …}]`: the map's base and offset, then the coordinates.
    Tensor(Base, i64, Vec<Operand>),
    /// A variable or parameter by name (its address), with an addend (`sym+4`).
    Sym(Sym, i64),
    /// A branch target: index into [`Function::body`] (may equal its length).
    Label(u32),
    /// A `.branchtargets` list: index into [`Function::branch_targets`].
    Targets(u32),
    /// A name that is none of the above (marker names of `%cover`, callee prototypes).
    Name(Arc<str>),
}
