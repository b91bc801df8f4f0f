//! Names and lexical scopes.
//!
//! Every spelling is interned once. What it stands for now is one array look-up; opening a scope records a mark,
//! closing it undoes the declarations made since. So cost does not depend on nesting, and a file with thousands
//! of inline-asm scopes that shadow each other's registers stays linear.

use crate::syntax::ast::{RegId, Sym};
use std::collections::HashMap;
use std::sync::Arc;

/// Index of an interned spelling.
pub type NameId = u32;

/// What a name stands for in the current scope.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// Not declared.
    Nothing,
    /// A register.
    Reg(RegId),
    /// A variable or parameter.
    Sym(Sym),
}

#[derive(Clone, Copy)]
struct Slot {
    bound: Bound,
    depth: u32,
}

/// The interner and the scope stack.
#[derive(Default)]
pub struct Names {
    ids: HashMap<Arc<str>, NameId>,
    texts: Vec<Arc<str>>,
    slots: Vec<Slot>,
    undo: Vec<(NameId, Slot)>,
    marks: Vec<usize>,
}

impl Names {
    /// The id of a spelling.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.texts.len() as NameId;
        let text: Arc<str> = text.into();
        self.ids.insert(text.clone(), id);
        self.texts.push(text);
        self.slots.push(Slot { bound: Bound::Nothing, depth: 0 });
        id
    }

    /// The spelling of an id.
    pub fn text(&self, id: NameId) -> &Arc<str> {
        &self.texts[id as usize]
    }

    /// Opens a scope.
    pub fn open(&mut self) {
        self.marks.push(self.undo.len());
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        let mark = self.marks.pop().unwrap_or(0);
        for (id, slot) in self.undo.drain(mark..).rev() {
            self.slots[id as usize] = slot;
        }
    }

    /// Declares a name in the innermost scope; false when that scope has already declared it.
    pub fn declare(&mut self, id: NameId, bound: Bound) -> bool {
        let depth = self.marks.len() as u32;
        let old = self.slots[id as usize];
        if old.bound != Bound::Nothing && old.depth == depth {
            return false;
        }
        if depth > 0 {
            self.undo.push((id, old));
        }
        self.slots[id as usize] = Slot { bound, depth };
        true
    }

    /// What a name stands for.
    pub fn lookup(&self, id: NameId) -> Bound {
        self.slots[id as usize].bound
    }

    /// All names that are declared at the moment.
    pub fn declared(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().zip(&self.texts).filter(|(s, _)| s.bound != Bound::Nothing).map(|(_, t)| &**t)
    }
}
