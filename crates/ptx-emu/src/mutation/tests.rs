//! Mutants of a small kernel, by their printed text.

use super::*;
use crate::syntax;

const KERNEL: &str = r#"
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k()
{
    .reg .pred p;
    .reg .b32 bar, phase, t;
    .shared .align 8 .b64 b[2];
    mov.u32 bar, b;
    mbarrier.init.shared::cta.b64 [bar], 128;
    fence.mbarrier_init.release.cluster;
    bar.sync 0, 128;
    mov.u32 phase, 0;
    mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 256;
LOOP:
    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [bar+8], phase;
    @!p bra LOOP;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {t}, [t+64];
    tcgen05.wait::ld.sync.aligned;
    cp.async.bulk.wait_group.read 0;
    ret;
}
"#;

const SIZES: Sizes = Sizes { slot_bytes: 4096, box_bytes: 1024 };

fn mutants() -> (Module, Vec<Mutation>) {
    let module = syntax::parse("k.ptx", KERNEL).unwrap_or_else(|e| panic!("{e}"));
    let all = sites(&module, &module.functions[0], SIZES);
    (module, all)
}

/// Lines that the mutant has and the kernel has not, and the other way round.
fn difference(instruction: &str, change: &str) -> (Vec<String>, Vec<String>) {
    let (module, all) = mutants();
    let mutation = all.iter().find(|m| m.instruction == instruction && m.change == change);
    let mutation = mutation.unwrap_or_else(|| panic!("no {instruction} {change}"));
    let mutant = apply(&module, 0, mutation).expect("applies");
    let (old, new) = (syntax::print(&module), syntax::print(&mutant));
    // What is printed is PTX again.
    syntax::parse("mutant.ptx", &new).unwrap_or_else(|e| panic!("{e}\n{new}"));
    let only = |a: &str, b: &str| {
        a.lines()
            .filter(|line| !b.lines().any(|other| other == *line))
            .map(|l| l.trim().to_string())
            .collect()
    };
    (only(&new, &old), only(&old, &new))
}

#[test]
fn every_site_is_found_in_order() {
    let (_, all) = mutants();
    let mut names: Vec<&str> = all.iter().map(|m| m.instruction).collect();
    names.dedup();
    let expected = [
        "mbarrier.init",
        "fence.mbarrier_init",
        "bar.sync",
        "mbarrier.arrive.expect_tx",
        "mbarrier.try_wait",
        "tcgen05.ld",
        "tcgen05.wait",
        "cp.async.bulk.wait_group",
    ];
    assert_eq!(names, expected);
    assert_eq!(all.iter().filter(|m| m.class == Class::ExpectTx).count(), 5);
    assert_eq!(all.iter().filter(|m| m.class == Class::Count).count(), 4);
}

#[test]
fn instructions_are_left_out() {
    let (new, old) = difference("fence.mbarrier_init", "delete");
    assert!(new.is_empty() && old == ["fence.mbarrier_init.release.cluster;"], "{new:?} {old:?}");
    // The labels behind it still mean the same instruction.
    let (module, all) = mutants();
    let mutant = apply(&module, 0, all.iter().find(|m| m.instruction == "bar.sync").unwrap()).unwrap();
    let body = &mutant.functions[0].body;
    let target = body.iter().flat_map(|i| &i.args).find_map(|a| match a {
        Operand::Label(at) => Some(*at as usize),
        _ => None,
    });
    assert!(mutant.opcodes[body[target.unwrap()].op as usize].text.starts_with("mbarrier.try_wait"));
}

#[test]
fn a_wait_that_does_not_wait_sets_its_predicate() {
    let (new, old) = difference("mbarrier.try_wait", "delete");
    assert_eq!((new, old.len()), (vec!["setp.eq.u32 p, 0, 0;".to_string()], 1));
}

#[test]
fn numbers_and_addresses_move() {
    assert_eq!(difference("mbarrier.init", "count -1").0, ["mbarrier.init.shared::cta.b64 [bar], 127;"]);
    assert_eq!(difference("bar.sync", "count +32").0, ["bar.sync 0, 160;"]);
    assert_eq!(
        difference("cp.async.bulk.wait_group", "one more pending").0,
        ["cp.async.bulk.wait_group.read 1;"]
    );
    let (new, _) = difference("mbarrier.try_wait", "barrier -1");
    assert!(new[0].contains("[bar]"), "{new:?}");
    let (new, _) = difference("tcgen05.ld", "column +32");
    assert!(new[0].contains("[t+96]"), "{new:?}");
    let (new, _) = difference("mbarrier.arrive.expect_tx", "tx_bytes -box");
    assert!(new[0].ends_with("[bar], -768;"), "{new:?}");
    let (new, _) = difference("mbarrier.arrive.expect_tx", "no expect_tx");
    assert!(new == ["mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];"], "{new:?}");
}

/// What stands in a register is changed on the way, inside the loop that reads it.
#[test]
fn registers_are_changed_in_front() {
    let (new, old) = difference("mbarrier.try_wait", "parity");
    let text = new.join("\n");
    assert!(text.contains("xor.b32 %mutated, phase, 1;"), "{text}");
    assert!(text.contains("p, [bar+8], %mutated;"), "{text}");
    assert_eq!(old.iter().filter(|line| line.contains("try_wait")).count(), 1);
    let (module, all) = mutants();
    let mutation = all.iter().find(|m| m.change == "parity").unwrap();
    let mutant = apply(&module, 0, mutation).unwrap();
    let body = &mutant.functions[0].body;
    let target = body.iter().flat_map(|i| &i.args).find_map(|a| match a {
        Operand::Label(at) => Some(*at as usize),
        _ => None,
    });
    assert_eq!(target, Some(mutation.at), "the loop runs the change each time");
}
