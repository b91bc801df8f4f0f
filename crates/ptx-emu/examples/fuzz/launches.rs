//! Launch files: damaged text, and demands without measure in every number.

use super::corpus::{Corpus, root};
use super::kinds::{check, options};
use super::robust_util::{Random, damage};
use super::{Stage, Try};
use ptx_emu::syntax::ast::Module;
use ptx_emu::syntax::parse_bytes;
use ptx_emu::{GlobalMemory, launch_file};
use std::path::Path;

const LAUNCH: &str = include_str!("../../tests/launch/triton_softmax.toml");
const LAUNCH_OF_ALL: &str = include_str!("../../tests/robust_util/all.toml");

/// All kinds of this file.
pub fn all(_: &Corpus) -> Vec<(&'static str, Try<'static>)> {
    let ptx = root().join("../../foreign/triton/sm_100a/softmax_rows.ptx");
    let text = std::fs::read(&ptx).expect("a Triton kernel");
    let module = std::rc::Rc::new(parse_bytes("softmax_rows.ptx", &text).expect("parses"));
    let again = module.clone();
    vec![
        ("launch-tokens", Box::new(move |r, keep| launch(&module, r, keep, damage))),
        ("launch-huge", Box::new(move |r, keep| launch(&again, r, keep, huge))),
    ]
}

/// Numbers that ask for more than there is, and small ones; none that rightly asks for gigabytes.
fn huge(text: &[u8], r: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..1 + r.below(4) {
        let starts: Vec<usize> = (0..text.len())
            .filter(|&i| text[i].is_ascii_digit() && !text[i.saturating_sub(1)].is_ascii_alphanumeric())
            .collect();
        let Some(&at) = starts.get(r.below(starts.len())) else { break };
        let end = (at..text.len()).find(|&i| !text[i].is_ascii_alphanumeric()).unwrap_or(text.len());
        let number = match r.below(6) {
            0 => (1u64 << (40 + r.below(23))).to_string(),
            1 => ((1u64 << (40 + r.below(23))) - 1).to_string(),
            2 => (r.next() >> (54 + r.below(10))).to_string(),
            3 => format!("-{}", 1u64 << r.below(63)),
            4 => u64::MAX.to_string(),
            _ => i64::MAX.to_string(),
        };
        text.splice(at..end, number.into_bytes());
    }
    text
}

fn launch(
    module: &Module,
    r: &mut Random,
    keep: &dyn Fn(&[u8]),
    wound: fn(&[u8], &mut Random) -> Vec<u8>,
) -> Stage {
    let original = if r.below(2) == 0 { LAUNCH } else { LAUNCH_OF_ALL };
    let input = wound(original.as_bytes(), r);
    keep(&input);
    let Ok(text) = std::str::from_utf8(&input) else { return Stage::Refused };
    let lines = text.matches('\n').count() as u32 + 1;
    let launch = match launch_file::parse("launch.toml", text, Path::new("no/such/folder")) {
        Ok(launch) => launch,
        Err(e) => {
            assert!((1..=lines).contains(&e.line), "line {} of {lines}: {e}", e.line);
            assert!(e.to_string().len() < 4_000, "a long message");
            return Stage::Refused;
        }
    };
    let mut memory = GlobalMemory::new();
    let Ok(addresses) = launch.allocate(&mut memory) else { return Stage::Read };
    let Ok(ready) = launch.launch(module, &addresses) else { return Stage::Read };
    check(module, &ptx_emu::run(&ready, &mut memory, &options(r)));
    Stage::Ran
}
