//! What reports say: warps by role, places by line, what stands ahead of a warp, where an undefined value comes from.

mod ahead;
mod deadlock;
mod origin;
mod sibling;

pub(super) use ahead::{Act, At, Has, Survey};

use super::cluster::home;
use super::cta::Cta;
use super::run::Machine;
use crate::syntax::places;

/// Places in the kernel's own file from which on the innermost is taken for a helper's: a helper, the role that calls it,
/// the body that tells the roles apart, the entry.
const HELPER_DEPTH: usize = 4;

/// Names at most this many places of a kind.
pub(super) const MOST_NAMED: usize = 3;

impl Machine<'_> {
    /// Where an instruction stands, in a few characters: the innermost line of the kernel's own file, with the line that
    /// calls it where that is a helper's; or its PTX line where there is no line information.
    pub(super) fn line(&self, pc: u32) -> String {
        let Some(d) = self.prog.code.get(pc as usize) else { return "the end".into() };
        let chain = places(self.launch.module, d.span);
        // The outermost place is in the kernel's own file; wrappers live in others.
        let own = chain.last().and_then(|p| p.file);
        let lines: Vec<u32> = chain.iter().filter(|p| p.file == own).map(|p| p.line).collect();
        let file = own.unwrap_or_default();
        let file = file.rsplit('/').next().unwrap_or(file);
        match lines[..] {
            [] => format!("PTX line {}", d.span.line),
            [at, from, ..] if lines.len() >= HELPER_DEPTH => format!("{file}:{at} (from {from})"),
            [at, ..] => format!("{file}:{at}"),
        }
    }

    /// `softmax0 (warp 3)`, or `warp 3`.
    pub(super) fn who(&self, warp: u32) -> String {
        self.who_all(&[warp])
    }

    /// Warps by role: `softmax0 (warps 0-3), load (warp 14)`.
    pub(super) fn who_all(&self, warps: &[u32]) -> String {
        let mut groups: Vec<(Option<u32>, Option<String>, Vec<u32>)> = vec![];
        for &w in warps {
            let ((rank, here), role) = (home(w), self.role_of(w));
            match groups.iter_mut().find(|g| (&g.0, &g.1) == (&rank, &role)) {
                Some(g) if !g.2.contains(&here) => g.2.push(here),
                Some(_) => {}
                None => groups.push((rank, role, vec![here])),
            }
        }
        let one = |(rank, role, mut warps): (Option<u32>, Option<String>, Vec<u32>)| {
            warps.sort_unstable();
            let numbers = ranges(&warps);
            let of = rank.map_or(String::new(), |r| format!(" of the CTA of rank {r}"));
            match role {
                Some(role) => format!("{role} ({numbers}){of}"),
                None => format!("{numbers}{of}"),
            }
        };
        groups.into_iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Name of the mbarrier at a shared address.
    pub(super) fn barrier_name(&self, c: &Cta, addr: u32) -> String {
        super::names::barrier(&self.launch.annotations, c.dynamic_base, addr)
    }

    /// Name of a place where threads meet.
    pub(super) fn at_name(&self, c: &Cta, at: At) -> String {
        match at {
            At::Mbar(a) => self.barrier_name(c, a),
            At::Bar(id) => format!("named barrier {id}"),
        }
    }
}

/// `warp 3`, `warps 0-3`, `warps 0, 2`.
fn ranges(sorted: &[u32]) -> String {
    let runs = sorted.chunk_by(|a, b| a + 1 == *b);
    let text: Vec<String> = runs
        .map(|r| match r {
            [a, b] => format!("{a}, {b}"),
            [a, .., b] => format!("{a}-{b}"),
            [a] => a.to_string(),
            [] => String::new(),
        })
        .collect();
    format!("{} {}", if sorted.len() == 1 { "warp" } else { "warps" }, text.join(", "))
}

/// The array that a barrier is a stage of.
pub(super) fn array(name: &str) -> &str {
    name.split('[').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_in_runs() {
        assert_eq!(ranges(&[3]), "warp 3");
        assert_eq!(ranges(&[0, 1, 2, 3, 6]), "warps 0-3, 6");
        assert_eq!(ranges(&[4, 5]), "warps 4, 5");
        assert_eq!(array("KV_full[2]"), "KV_full");
    }
}
