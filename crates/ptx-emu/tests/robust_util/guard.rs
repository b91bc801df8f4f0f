//! How many mutants a test makes, and a guard that keeps what made the emulator panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// How many times the usual number of mutants.
pub fn factor() -> u64 {
    variable("PTX_EMU_ROBUST_FACTOR", 1).max(1)
}

/// Seed of one test.
pub fn seed(test: u64) -> u64 {
    variable("PTX_EMU_ROBUST_SEED", 0) << 8 | test
}

/// Runs `f`; when it panics or takes long, the mutant is kept and the test fails with its path.
pub fn guarded(what: &str, mutant: &[u8], f: impl FnOnce()) {
    // A mutant takes milliseconds; a busy machine may stretch that a hundredfold.
    const LONGEST: Duration = Duration::from_secs(20);
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(f));
    if result.is_ok() && start.elapsed() < LONGEST {
        return;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "mutant-{:016x}",
        mutant.iter().fold(0u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    ));
    let _ = std::fs::write(&path, mutant);
    panic!(
        "{what}: {} after {:?}; the mutant is {}",
        if result.is_ok() { "ended" } else { "panicked" },
        start.elapsed(),
        path.display()
    );
}
