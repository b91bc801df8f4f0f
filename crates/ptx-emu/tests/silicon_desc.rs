//! Shared-memory descriptors against an H200: the addresses that wgmma read for 736 descriptors.

mod silicon_util;

use ptx_emu::isa::smem_desc::{Major, SmemDesc, element_addrs};
use silicon_util::*;

#[test]
fn wgmma_addresses() {
    let all = records("wgmma_desc_map.jsonl");
    let mut addrs = Vec::new();
    for r in &all {
        let op = r["op"].as_str().unwrap();
        let (bits, k) = match op {
            _ if op.ends_with("tf32") => (32, 8),
            _ if op.ends_with("e4m3") => (8, 32),
            _ => (16, 16),
        };
        let rows = if op.starts_with('A') { 64 } else { 128 };
        let major = if op.ends_with("MN") { Major::Mn } else { Major::K };
        element_addrs(&SmemDesc::wgmma(hex(&r["desc"])), major, bits, rows, k, &mut addrs).unwrap();
        let at = |row: u32, kk: u32| u64::from(addrs[(row * k + kk) as usize]);
        for (field, row, kk) in
            [("a00", 0, 0), ("a10", 1, 0), ("a01", 0, 1), ("a90", 9, 0), ("last", rows - 1, k - 1)]
        {
            assert_eq!(at(row, kk), r[field].as_u64().unwrap(), "{field} of {r}");
        }
        assert_eq!(u64::from(crc32(&bytes(addrs.iter().copied()))), hex(&r["crc32"]), "{r}");
    }
    assert_eq!(all.len(), 736);
}
