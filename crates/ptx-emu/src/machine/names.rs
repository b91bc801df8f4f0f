//! Addresses in the words of the kernel's own tables.

use crate::launch::{Annotations, RegionName};

/// `P_full[1]` for a barrier at a shared-window address.
pub fn barrier(a: &Annotations, dynamic_base: u32, addr: u32) -> String {
    let off = addr.wrapping_sub(dynamic_base);
    for b in &a.barriers {
        if off >= b.offset && off < b.offset + 8 * b.stages {
            return if b.stages == 1 {
                b.name.clone()
            } else {
                format!("{}[{}]", b.name, (off - b.offset) / 8)
            };
        }
    }
    format!("mbarrier at shared {addr:#x}")
}

/// A shared address.
pub fn shared(a: &Annotations, dynamic_base: u32, addr: u32) -> String {
    let off = addr.wrapping_sub(dynamic_base);
    match find(&a.shared, off) {
        Some((n, d)) => format!("{n}+{d:#x}"),
        None => format!("shared {addr:#x}"),
    }
}

/// A tensor-memory column.
pub fn column(a: &Annotations, col: u32) -> String {
    match find(&a.tmem, col) {
        Some((n, d)) => format!("{n} column {d}"),
        None => format!("column {col}"),
    }
}

/// The innermost region (the shortest) that holds `at`.
fn find(regions: &[RegionName], at: u32) -> Option<(&str, u32)> {
    let hit = regions.iter().filter(|r| at >= r.start && at - r.start < r.len);
    hit.min_by_key(|r| r.len).map(|r| (r.name.as_str(), at - r.start))
}
