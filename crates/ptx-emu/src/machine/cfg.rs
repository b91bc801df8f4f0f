//! Control flow: where the two sides of a divergent branch meet again (immediate post-dominators).

use super::inst::{Decoded, Inst};

const NONE: u32 = u32::MAX;

/// Fills [`Decoded::reconverge`] of every branch that can diverge.
pub fn mark_reconvergence(code: &mut [Decoded]) {
    let n = code.len();
    // Node n is the exit. Straight-line instructions are collapsed: only leaders are nodes.
    let mut leader = vec![false; n + 1];
    leader[n] = true;
    if n > 0 {
        leader[0] = true;
    }
    for (i, d) in code.iter().enumerate() {
        match &d.inst {
            Inst::Bra(t) => {
                leader[*t as usize] = true;
                leader[i + 1] = true;
            }
            Inst::BrxIdx(_, ts) => {
                ts.iter().for_each(|&t| leader[t as usize] = true);
                leader[i + 1] = true;
            }
            Inst::Exit | Inst::Trap => leader[i + 1] = true,
            _ => {}
        }
    }
    let starts: Vec<u32> = (0..=n as u32).filter(|&i| leader[i as usize]).collect();
    let mut block_of = vec![0u32; n + 1];
    let mut b = 0usize;
    for i in 0..=n {
        if b + 1 < starts.len() && starts[b + 1] as usize == i {
            b += 1;
        }
        block_of[i] = b as u32;
    }
    let exit = (starts.len() - 1) as u32;
    let succs: Vec<Vec<u32>> = (0..starts.len())
        .map(|b| {
            if b as u32 == exit {
                return vec![];
            }
            let last = starts[b + 1] as usize - 1;
            let d = &code[last];
            let next = block_of[last + 1];
            match &d.inst {
                Inst::Bra(t) if d.guard.is_none() => vec![block_of[*t as usize]],
                Inst::Bra(t) => vec![block_of[*t as usize], next],
                Inst::BrxIdx(_, ts) => ts.iter().map(|&t| block_of[t as usize]).collect(),
                Inst::Exit | Inst::Trap if d.guard.is_none() => vec![exit],
                Inst::Exit | Inst::Trap => vec![exit, next],
                _ => vec![next],
            }
        })
        .collect();
    let ipdom = post_dominators(&succs, exit);
    for b in 0..starts.len() - 1 {
        let last = starts[b + 1] as usize - 1;
        let diverges = matches!(code[last].inst, Inst::BrxIdx(..))
            || matches!(code[last].inst, Inst::Bra(_)) && code[last].guard.is_some();
        if diverges && ipdom[b] != NONE && ipdom[b] != exit {
            code[last].reconverge = starts[ipdom[b] as usize];
        }
    }
}

/// Immediate post-dominator of each node (Cooper, Harvey and Kennedy's iteration on the reversed graph).
fn post_dominators(succs: &[Vec<u32>], exit: u32) -> Vec<u32> {
    let n = succs.len();
    let mut preds = vec![Vec::new(); n];
    for (b, ss) in succs.iter().enumerate() {
        ss.iter().for_each(|&s| preds[s as usize].push(b as u32));
    }
    // Postorder of the reversed graph from the exit.
    let (mut order, mut number, mut seen) = (Vec::with_capacity(n), vec![0u32; n], vec![false; n]);
    let mut stack = vec![(exit, 0usize)];
    seen[exit as usize] = true;
    while let Some((b, i)) = stack.pop() {
        if let Some(&p) = preds[b as usize].get(i) {
            stack.push((b, i + 1));
            if !seen[p as usize] {
                seen[p as usize] = true;
                stack.push((p, 0));
            }
        } else {
            number[b as usize] = order.len() as u32;
            order.push(b);
        }
    }
    let mut idom = vec![NONE; n];
    idom[exit as usize] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().rev() {
            if b == exit {
                continue;
            }
            let mut new = NONE;
            for &s in &succs[b as usize] {
                if idom[s as usize] == NONE {
                    continue;
                }
                new = if new == NONE { s } else { meet(new, s, &idom, &number) };
            }
            if new != NONE && idom[b as usize] != new {
                idom[b as usize] = new;
                changed = true;
            }
        }
    }
    idom
}

fn meet(mut a: u32, mut b: u32, idom: &[u32], number: &[u32]) -> u32 {
    while a != b {
        while number[a as usize] < number[b as usize] {
            a = idom[a as usize];
        }
        while number[b as usize] < number[a as usize] {
            b = idom[b as usize];
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diamond_and_loop() {
        // 0 → 1, 2; 1 → 3; 2 → 3; 3 → 3, 4; 4 = exit
        let s = vec![vec![1, 2], vec![3], vec![3], vec![3, 4], vec![]];
        assert_eq!(post_dominators(&s, 4), vec![3, 3, 3, 4, 4]);
    }

    #[test]
    fn endless_loop_has_none() {
        let s = vec![vec![1, 2], vec![1], vec![]];
        assert_eq!(post_dominators(&s, 2)[1], NONE);
    }
}
