//! The loops of a disassembled function: basic blocks, natural loops by their back-edges, the ordinary way round.
//!
//! A compiler lays a loop out as it likes: the slow half of a wait stands behind the end of the function, a rare
//! branch anywhere. So loops are found in the control flow graph and not by address: an edge to a block that
//! dominates its source closes a loop, and the loop is every block from which that edge is reached without passing
//! its head.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::sass::{Function, Instruction};

/// The control flow graph of a function.
#[derive(Clone, Debug)]
pub struct Graph<'a> {
    function: &'a Function,
    /// Instruction indices of each block, in address order; block 0 is the entry.
    blocks: Vec<Range<usize>>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// Blocks that the entry reaches, in reverse postorder: without back-edges, every block after its predecessors.
    order: Vec<usize>,
}

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block that every pass starts with.
    pub head: usize,
    /// Blocks that jump back to the head.
    pub latches: Vec<usize>,
    /// All its blocks, those of loops inside it among them.
    pub blocks: BTreeSet<usize>,
}

/// Where an instruction may lead besides the next one.
fn targets(function: &Function, instruction: &Instruction) -> Vec<u32> {
    if !matches!(instruction.base(), "BRA" | "BRX" | "BRXU" | "JMP") {
        return Vec::new();
    }
    // `(.L_x_3), and for indirect branches a comment: (*"BRANCH_TARGETS .L_x_1,.L_x_2"*).
    let words = instruction.operands().split(|c: char| !(c.is_ascii_alphanumeric() || "._$".contains(c)));
    words.filter_map(|word| function.labels.get(word).copied()).collect()
}

/// Whether the instruction behind this one may be next.
fn falls_through(instruction: &Instruction) -> bool {
    match instruction.base() {
        // A uniform predicate is an operand: BRA.U UP0, `(…).
        "BRA" => instruction.is_guarded() || instruction.operands().contains(','),
        "EXIT" | "RET" | "BRX" | "BRXU" | "JMP" | "KILL" => instruction.is_guarded(),
        _ => true,
    }
}

impl<'a> Graph<'a> {
    /// Builds the graph.
    pub fn new(function: &'a Function) -> Self {
        let code = &function.instructions;
        let index_of = |address: u32| code.binary_search_by_key(&address, |i| i.address).ok();
        let ends_block = |i: &Instruction| !falls_through(i) || !targets(function, i).is_empty();
        let mut starts: BTreeSet<usize> = BTreeSet::from([0]);
        for (index, instruction) in code.iter().enumerate() {
            if ends_block(instruction) {
                starts.insert(index + 1);
                starts.extend(targets(function, instruction).into_iter().filter_map(index_of));
            }
        }
        starts.retain(|start| *start < code.len());
        let starts: Vec<usize> = starts.into_iter().collect();
        let ends = starts.iter().skip(1).copied().chain([code.len()]);
        let blocks: Vec<Range<usize>> = starts.iter().copied().zip(ends).map(|(a, b)| a..b).collect();
        let block_at = |index: usize| starts.binary_search(&index).ok();
        let mut successors = vec![Vec::new(); blocks.len()];
        for (block, range) in blocks.iter().enumerate() {
            let Some(last) = code.get(range.clone()).and_then(<[Instruction]>::last) else { continue };
            let next = falls_through(last).then_some(range.end).filter(|end| *end < code.len());
            let jumps = targets(function, last).into_iter().filter_map(index_of);
            let all: BTreeSet<usize> = next.into_iter().chain(jumps).filter_map(block_at).collect();
            successors[block] = all.into_iter().collect();
        }
        let mut predecessors = vec![Vec::new(); blocks.len()];
        for (block, next) in successors.iter().enumerate() {
            for n in next {
                predecessors[*n].push(block);
            }
        }
        let order = reverse_postorder(&successors);
        Graph { function, blocks, successors, predecessors, order }
    }

    /// Instructions of a block.
    pub fn code(&self, block: usize) -> &'a [Instruction] {
        &self.function.instructions[self.blocks[block].clone()]
    }

    /// Instructions of several blocks.
    pub fn code_of<'b>(
        &'b self,
        blocks: impl IntoIterator<Item = &'b usize>,
    ) -> impl Iterator<Item = &'a Instruction> {
        blocks.into_iter().flat_map(|block| self.code(*block))
    }

    /// Every natural loop, by address of its head. Loops with the same head are one.
    pub fn loops(&self) -> Vec<Loop> {
        let dominators = self.dominators();
        let mut loops: BTreeMap<usize, Loop> = BTreeMap::new();
        for latch in self.order.iter().copied() {
            let heads = self.successors[latch].iter().filter(|head| dominates(&dominators, **head, latch));
            for head in heads {
                let found = loops.entry(*head).or_insert_with(|| Loop {
                    head: *head,
                    latches: Vec::new(),
                    blocks: BTreeSet::from([*head]),
                });
                found.latches.push(latch);
                let mut open = vec![latch];
                while let Some(block) = open.pop() {
                    if found.blocks.insert(block) {
                        open.extend(&self.predecessors[block]);
                    }
                }
            }
        }
        loops.into_values().collect()
    }

    /// Of the ways from the head of `l` back to it, without rounds of loops inside it, the one with the fewest
    /// instructions among those that do the most `work`; its blocks in order.
    pub fn ordinary_pass(&self, l: &Loop, work: impl Fn(&[Instruction]) -> usize) -> Vec<usize> {
        let rank = self.rank();
        let cost = |block: usize| (-(work(self.code(block)) as i64), self.blocks[block].len() as i64);
        // The cheapest way to each block so far: its cost and the block before.
        let mut best: BTreeMap<usize, ((i64, i64), usize)> =
            BTreeMap::from([(l.head, (cost(l.head), l.head))]);
        for block in self.order.iter().filter(|block| l.blocks.contains(block)) {
            let Some(((work, length), _)) = best.get(block).copied() else { continue };
            for next in self.successors[*block].iter().filter(|next| l.blocks.contains(next)) {
                if rank[*next] <= rank[*block] {
                    continue;
                }
                let (more, longer) = cost(*next);
                let way = (work + more, length + longer);
                if best.get(next).is_none_or(|(known, _)| way < *known) {
                    best.insert(*next, (way, *block));
                }
            }
        }
        let reached = l.latches.iter().filter_map(|latch| Some((best.get(latch)?.0, *latch)));
        let mut way: Vec<usize> = reached.min().map(|(_, latch)| latch).into_iter().collect();
        while let Some(block) = way.last().filter(|block| **block != l.head) {
            way.push(best[block].1);
        }
        way.reverse();
        way
    }

    /// Position of each block in the order; the last for blocks that are never reached.
    fn rank(&self) -> Vec<usize> {
        let mut rank = vec![usize::MAX; self.blocks.len()];
        for (position, block) in self.order.iter().enumerate() {
            rank[*block] = position;
        }
        rank
    }

    /// For each block its immediate dominator; `None` for the entry and for what is never reached.
    fn dominators(&self) -> Vec<Option<usize>> {
        let (order, rank) = (&self.order, self.rank());
        let mut dominator: Vec<Option<usize>> = vec![None; self.blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for block in order.iter().skip(1) {
                let known = |p: &&usize| **p == order[0] || dominator[**p].is_some();
                let meet = self.predecessors[*block].iter().filter(known).copied().reduce(|a, b| {
                    let (mut a, mut b) = (a, b);
                    while a != b {
                        let later = if rank[a] > rank[b] { &mut a } else { &mut b };
                        *later = dominator[*later].unwrap_or(order[0]);
                    }
                    a
                });
                if dominator[*block] != meet {
                    dominator[*block] = meet;
                    changed = true;
                }
            }
        }
        dominator
    }
}

/// Reverse postorder of the blocks that block 0 reaches.
fn reverse_postorder(successors: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; successors.len()];
    let mut order = Vec::new();
    let mut stack: Vec<(usize, usize)> = Vec::new();
    if let Some(first) = seen.first_mut() {
        *first = true;
        stack.push((0, 0));
    }
    while let Some((block, next)) = stack.pop() {
        match successors[block].get(next) {
            Some(successor) => {
                stack.push((block, next + 1));
                if !std::mem::replace(&mut seen[*successor], true) {
                    stack.push((*successor, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}

fn dominates(dominators: &[Option<usize>], head: usize, block: usize) -> bool {
    let mut at = Some(block);
    while let Some(b) = at {
        if b == head {
            return true;
        }
        at = dominators[b];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::tests::function;

    /// A loop with a rare branch inside and the slow half of a wait behind the end, in a loop over tiles.
    const NESTED: &str = "\
.text.k:
        /*0000*/                   MOV R1, R2 ;
.L_tile:
        /*0010*/                   MOV R1, R3 ;
.L_head:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR1], R4 ;
        /*0030*/              @!P0 BRA `(.L_slow) ;
.L_ready:
        /*0040*/                   BRA.U !UP1, `(.L_whole) ;
        /*0050*/                   FSEL R5, R5, -INF, P1 ;
        /*0060*/                   FSEL R6, R6, -INF, P1 ;
.L_whole:
        /*0070*/                   MUFU.EX2 R5, R5 ;
        /*0080*/               @P0 BRA `(.L_head) ;
        /*0090*/                   BRA.U UP0, `(.L_tile) ;
        /*00a0*/                   EXIT ;
.L_slow:
        /*00b0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR1], R4 ;
        /*00c0*/              @!P0 BRA `(.L_slow) ;
        /*00d0*/                   BRA `(.L_ready) ;
.L_end:
        /*00e0*/                   BRA `(.L_end);
";

    fn addresses(graph: &Graph<'_>, blocks: impl IntoIterator<Item = usize>) -> Vec<u32> {
        blocks.into_iter().map(|block| graph.code(block)[0].address).collect()
    }

    #[test]
    fn loops_are_found_wherever_their_blocks_lie() {
        let function = function(NESTED);
        let graph = Graph::new(&function);
        let loops = graph.loops();
        let heads = addresses(&graph, loops.iter().map(|l| l.head));
        assert_eq!(heads, [0x10, 0x20, 0xb0], "the block after the end is not reached");
        let inner = addresses(&graph, loops[1].blocks.iter().copied());
        assert_eq!(inner, [0x20, 0x40, 0x50, 0x70, 0xb0, 0xd0]);
        assert!(loops[0].blocks.is_superset(&loops[1].blocks));
    }

    #[test]
    fn the_ordinary_pass_leaves_rare_branches_out() {
        let function = function(NESTED);
        let graph = Graph::new(&function);
        let loops = graph.loops();
        let exp2 = |code: &[Instruction]| code.iter().filter(|i| i.opcode == "MUFU.EX2").count();
        let way = graph.ordinary_pass(&loops[1], exp2);
        assert_eq!(addresses(&graph, way), [0x20, 0x40, 0x70]);
        let spin = graph.ordinary_pass(&loops[2], exp2);
        assert_eq!(addresses(&graph, spin), [0xb0]);
        // What counts as work is worth a longer way.
        let masks = |code: &[Instruction]| code.iter().filter(|i| i.opcode == "FSEL").count();
        let way = graph.ordinary_pass(&loops[1], masks);
        assert_eq!(addresses(&graph, way), [0x20, 0x40, 0x50, 0x70]);
    }

    #[test]
    fn indirect_branches_lead_to_what_their_comment_lists() {
        let function = function(
            "\
.text.k:
        /*0000*/                   BRX R2 -0x10 (*\"BRANCH_TARGETS .L_a,.L_b\"*) ;
.L_a:
        /*0010*/                   EXIT ;
.L_b:
        /*0020*/               @P0 EXIT ;
        /*0030*/                   BRA `(.L_b) ;
",
        );
        let loops = Graph::new(&function).loops();
        assert_eq!(loops.len(), 1);
        assert_eq!(loops[0].latches.len(), 1);
    }

    #[test]
    fn an_empty_function_has_no_loops() {
        assert!(Graph::new(&Function::default()).loops().is_empty());
    }
}
