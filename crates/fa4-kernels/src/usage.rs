//! What a kernel takes from the machine: read from the assembler's log (`-v`) and from the cubin.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Resources of one entry function.
///
/// `registers` is per thread at launch. A kernel with `setmaxnreg` reports what its launch bounds and largest
/// request allow, not what its code needs, so registers are no gate; spills and stack are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Registers per thread.
    pub registers: u32,
    /// Local memory of the frame, bytes per thread.
    pub stack_bytes: u32,
    /// Local memory written for want of registers, bytes per thread.
    pub spill_store_bytes: u32,
    /// Local memory read back, bytes per thread.
    pub spill_load_bytes: u32,
    /// Static shared memory, bytes per CTA, without the 1024 that the system reserves.
    pub static_smem_bytes: u32,
    /// Size of the machine code in bytes.
    pub sass_bytes: u64,
}

impl Usage {
    /// Whether any local memory is used, spilled to or not.
    pub fn uses_local_memory(&self) -> bool {
        self.stack_bytes + self.spill_store_bytes + self.spill_load_bytes > 0
    }
}

/// Usage by function name, from the log of `--ptxas-options=-v`. Functions that were not inlined are listed too.
pub fn from_log(log: &str) -> BTreeMap<String, Usage> {
    let mut usages: BTreeMap<String, Usage> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            current = Some(name.trim().to_owned());
            usages.entry(name.trim().to_owned()).or_default();
        } else if let Some(usage) = current.as_ref().and_then(|name| usages.get_mut(name)) {
            for (label, field) in [
                ("bytes stack frame", &mut usage.stack_bytes),
                ("bytes spill stores", &mut usage.spill_store_bytes),
                ("bytes spill loads", &mut usage.spill_load_bytes),
                ("bytes smem", &mut usage.static_smem_bytes),
            ] {
                if let Some(value) = number_before(line, label) {
                    *field = value;
                }
            }
            if line.contains("Used ")
                && let Some(value) = number_before(line, "registers")
            {
                usage.registers = value;
            }
        }
    }
    usages
}

/// `…, 24 bytes spill stores` with label `bytes spill stores` → 24.
fn number_before(line: &str, label: &str) -> Option<u32> {
    line[..line.find(label)?].split_whitespace().next_back()?.parse().ok()
}

/// Size of each function's code: the `.text.<name>` sections of a 64-bit little-endian ELF image.
/// `None` if the image is not one.
pub fn sass_bytes(cubin: &[u8]) -> Option<BTreeMap<String, u64>> {
    if cubin.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let word = |at: usize, len: usize| -> Option<u64> {
        Some(
            cubin
                .get(at..at.checked_add(len)?)?
                .iter()
                .rev()
                .fold(0, |value, &byte| value << 8 | u64::from(byte)),
        )
    };
    let table = word(0x28, 8)? as usize;
    let entry_size = word(0x3a, 2)? as usize;
    let count = word(0x3c, 2)? as usize;
    let names_index = word(0x3e, 2)? as usize;
    let names = word(table + names_index * entry_size + 0x18, 8)? as usize;
    let mut sizes = BTreeMap::new();
    for index in 0..count {
        let header = table + index * entry_size;
        let name_at = names + word(header, 4)? as usize;
        let length = cubin.get(name_at..)?.iter().position(|&byte| byte == 0)?;
        let name = std::str::from_utf8(&cubin[name_at..name_at + length]).ok()?;
        if let Some(function) = name.strip_prefix(".text.") {
            sizes.insert(function.to_owned(), word(header + 0x20, 8)?);
        }
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shape of the log as NVRTC 13.5 prints it.
    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_100a'
ptxas info    : Function properties for k
ptxas         .     16 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 232 registers, used 1 barriers, 16 bytes cumulative stack size, 84 bytes smem
ptxas info    : Compile time = 53.600 ms
";

    #[test]
    fn log_is_read() {
        let usages = from_log(LOG);
        let expected = Usage {
            registers: 232,
            stack_bytes: 16,
            spill_store_bytes: 24,
            spill_load_bytes: 36,
            static_smem_bytes: 84,
            sass_bytes: 0,
        };
        assert_eq!(usages["k"], expected);
        assert!(expected.uses_local_memory());
        assert!(!Usage { registers: 255, ..Usage::default() }.uses_local_memory());
    }

    #[test]
    fn what_is_no_elf_is_refused() {
        assert_eq!(sass_bytes(b""), None);
        assert_eq!(sass_bytes(b"\x7fELF\x02\x01"), None);
    }
}
