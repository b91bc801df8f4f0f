//! The PTX front end against files: `parse/ok/*.ptx` must survive a round trip through the printer,
//! `parse/err/*.ptx` must give exactly the message beside them (`PTX_EMU_BLESS=1` rewrites those messages).

use ptx_emu::syntax::ast::*;
use ptx_emu::syntax::{parse, parse_bytes, places, print};
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parse").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no PTX files in {}", folder.display());
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn ok(file: &str) -> Module {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parse/ok").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    parse(file, &text).unwrap_or_else(|e| panic!("{e}"))
}

/// Everything the decoder sees of a module, spelled names of function-level things and positions aside.
fn tree(m: &Module) -> String {
    use std::fmt::Write;
    let mut s = format!("{:?} {:?} {:?}\n", m.version, m.target, m.vars);
    for f in &m.functions {
        writeln!(s, "{} {} {:?}", f.name, f.is_entry, f.params).unwrap();
        writeln!(s, "{:?} {:?} {:?} {:?}", f.reqntid, f.maxntid, f.reqnctapercluster, f.branch_targets)
            .unwrap();
        for (_, ty) in &f.regs {
            writeln!(s, "reg {ty:?}").unwrap();
        }
        for v in &f.vars {
            writeln!(s, "{:?}", Var { name: String::new(), ..v.clone() }).unwrap();
        }
        for i in &f.body {
            writeln!(s, "{:?} {:?} {:?}", i.guard, m.opcodes[i.op as usize], i.args).unwrap();
        }
        for (at, _) in &f.labels {
            writeln!(s, "label {at}").unwrap();
        }
    }
    s
}

#[test]
fn round_trip() {
    for path in files("ok") {
        let text = std::fs::read_to_string(&path).unwrap();
        let first = parse(&name(&path), &text).unwrap_or_else(|e| panic!("{e}"));
        let printed = print(&first);
        let second = parse("printed", &printed).unwrap_or_else(|e| panic!("{}: {e}", name(&path)));
        assert_eq!(tree(&first), tree(&second), "{}: the tree changed through\n{printed}", name(&path));
        assert_eq!(printed, print(&second), "{}: the normal form is not a fixed point", name(&path));
    }
}

#[test]
fn messages() {
    let bless = std::env::var_os("PTX_EMU_BLESS").is_some();
    for path in files("err") {
        let text = std::fs::read_to_string(&path).unwrap();
        let error = match parse(&name(&path), &text) {
            Ok(_) => panic!("{} was accepted", name(&path)),
            Err(e) => format!("{e}\n"),
        };
        let beside = path.with_extension("stderr");
        if bless {
            std::fs::write(&beside, &error).unwrap();
        }
        let expected = std::fs::read_to_string(&beside).unwrap_or_default();
        assert_eq!(error, expected, "{}", name(&path));
    }
}

/// Cut off after every byte, or with bytes overwritten, a file gives a tree or an error, never a panic.
#[test]
fn damaged_files() {
    let mut state = 1u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let alphabet = b"{}[]()<>,;:.@!|+-=~%/*\"\\ \n09xfUae_$";
    for path in files("ok") {
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            let _ = parse_bytes("cut", &bytes[..cut]);
        }
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random(3) {
                let at = random(damaged.len());
                damaged[at] =
                    if random(8) == 0 { random(256) as u8 } else { alphabet[random(alphabet.len())] };
            }
            if let Ok(m) = parse_bytes("damaged", &damaged) {
                let _ = print(&m);
            }
        }
    }
}

#[test]
fn bytes_that_are_not_text() {
    let e = parse_bytes("kernel.cubin", b".version 9.0\n\xff\xfe").unwrap_err();
    assert_eq!((e.line, e.column), (2, 1));
    assert_eq!(e.message, "byte 13 is not text (UTF-8)");
}

#[test]
fn parameters_follow_c_layout() {
    let m = ok("entry_directives.ptx");
    let f = &m.functions[0];
    let layout: Vec<_> = f.params.iter().map(|p| (p.offset, p.size, p.align)).collect();
    assert_eq!(layout, [(0, 8, 8), (64, 128, 64), (192, 1, 1), (200, 8, 8), (208, 4, 4)]);
    assert_eq!(f.reqntid, Some([128, 1, 1]));
    assert_eq!(f.maxntid, Some([256, 1, 1]));
    assert_eq!(f.reqnctapercluster, Some([2, 1, 1]));
    assert_eq!(f.line, 7);
}

#[test]
fn versions_are_not_numbers() {
    assert_eq!(ok("minimal.ptx").version, (8, 10));
}

#[test]
fn initialisers_become_bytes() {
    let m = ok("variables.ptx");
    let var = |n: &str| m.vars.iter().find(|v| v.name == n).unwrap();
    let floats: Vec<u8> = [1.0f32, 1.5, -2.0, -3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(var("floats").init, floats);
    assert_eq!(var("halves").init, [1, 0, 2, 0, 0, 0, 255, 255, 0, 128, 0, 0]);
    assert_eq!(
        var("pointers").init_refs,
        [
            (0, "floats".to_string(), 0),
            (8, "floats".to_string(), 4),
            (16, "later".to_string(), 0),
            (24, "callee".to_string(), 0)
        ]
    );
    assert_eq!(var("bytewise").init_refs, [(4, "floats".to_string(), 0)]);
    assert_eq!(var("bytewise").init[..4], [7, 0, 0, 0]);
    assert_eq!((var("text").init.as_slice(), var("text").size), (&b"ab\n"[..], Some(8)));
    assert_eq!((var("open").size, var("quad").size, var("quad").align), (Some(3), Some(16), 16));
    assert_eq!(var("single").init, (-5i32).to_le_bytes());
    assert!(var("elsewhere").is_extern && var("elsewhere").size.is_none());
}

#[test]
fn labels_bind_to_the_innermost_scope() {
    let m = ok("labels.ptx");
    let f = &m.functions[0];
    let targets = f.body.iter().map(|i| {
        i.args.iter().find_map(|a| match a {
            Operand::Label(l) => Some(*l),
            _ => None,
        })
    });
    let targets: Vec<_> = targets.flatten().collect();
    assert_eq!(targets, [2, 0, 4, 2, 5]);
    assert_eq!(f.branch_targets, [[5, 7, 8]]);
    assert_eq!(f.body.len(), 8);
}

#[test]
fn registers_are_resolved_through_scopes() {
    let m = ok("registers.ptx");
    let f = &m.functions[0];
    let reg = |instr: usize, arg: usize| match f.body[instr].args[arg] {
        Operand::Reg(r) => (f.regs[r as usize].0.to_string(), f.regs[r as usize].1, r),
        ref other => panic!("not a register: {other:?}"),
    };
    let (outer, inner, innermost) = (reg(4, 0), reg(1, 0), reg(2, 0));
    assert_eq!((outer.0.as_str(), outer.1), ("tmem_acc", Ty::B32));
    assert_eq!((inner.0.as_str(), inner.1), ("tmem_acc", Ty::B32));
    assert_eq!((innermost.0.as_str(), innermost.1), ("tmem_acc", Ty::B64));
    assert_ne!(outer.2, inner.2);
    assert_eq!(reg(3, 1), inner);
    assert_eq!(reg(1, 1).0, "smem_desc_7");
}

#[test]
fn cover_comments_become_instructions() {
    let m = ok("comments.ptx");
    let body: Vec<_> = m.functions[0]
        .body
        .iter()
        .map(|i| match (m.opcodes[i.op as usize].text.as_str(), i.args.as_slice()) {
            ("%cover", [Operand::Name(n)]) => format!("cover {n}"),
            (op, _) => op.to_string(),
        })
        .collect();
    let expected = [
        "cover first",
        "cover in.scope_1",
        "add.s32",
        "cover after-add",
        "mov.b32",
        "cover inside",
        "ret",
        "cover last",
    ];
    assert_eq!(body, expected);
    let op = m.opcodes.iter().find(|o| o.text == "%cover").unwrap();
    assert_eq!((op.mnemonic.as_str(), op.mods.len()), ("%cover", 0));
}

#[test]
fn locations_chain_through_inlining() {
    let m = ok("loc.ptx");
    let chain = |instr: usize| {
        let places = places(&m, m.functions[0].body[instr].span);
        places.iter().map(|p| p.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(chain(0), ["a.cu:10:3"]);
    assert_eq!(chain(1), ["b.cuh:20:5", "a.cu:10:3"]);
    assert_eq!(chain(2), ["dir/c.cuh:30:7", "b.cuh:20:5", "a.cu:10:3"]);
    assert_eq!(chain(3), ["dir/c.cuh:31", "(unnamed file):9:9"]);
    assert_eq!(m.files[2], (3, "dir/c.cuh".to_string()));
}

#[test]
fn literals() {
    let m = ok("operands.ptx");
    let values: Vec<_> = m.functions[0]
        .body
        .iter()
        .filter(|i| m.opcodes[i.op as usize].text.starts_with("mov."))
        .filter_map(|i| match i.args[1] {
            Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => Some(i.args[1].clone()),
            _ => None,
        })
        .collect();
    use Operand::{F32, F64, Int};
    let expected = [
        Int(32),
        Int(5),
        Int(15),
        Int(42),
        Int(-1),
        Int(-1),
        Int(i64::MIN),
        F32(1.0f32.to_bits()),
        F32((-1.0f32).to_bits()),
        F64(1.0f64.to_bits()),
        F64(1.5e-3f64.to_bits()),
        F64((-2.25f64).to_bits()),
    ];
    assert_eq!(values, expected);
}

#[test]
fn calls_name_functions_and_prototypes() {
    let m = ok("calls.ptx");
    let calls: Vec<_> =
        m.functions[0].body.iter().filter(|i| m.opcodes[i.op as usize].mnemonic == "call").collect();
    assert_eq!(calls[0].args[1], Operand::Name("vprintf".into()));
    assert_eq!(calls[1].args[1], Operand::Sym(Sym::Func(1), 0));
    assert_eq!(calls[3].args[3], Operand::Name("prototype_0".into()));
    assert_eq!(m.functions[1].name, "square");
}
