//! Jobs on every core, in order, until an interrupt.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lock, whatever happened to other threads: what is guarded here is never left half-written.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of threads to use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` on every job, several at a time, and returns the results in the jobs' order. Jobs are started in order;
/// those not started when `stop` is set have no result.
///
/// Plain threads and not a work-stealing pool: a job may hold a lock while the oracle computes on such a pool, and must
/// not be handed another job that waits for the same lock.
pub fn run<T: Sync, R: Send>(
    jobs: &[T],
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<Option<R>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { break };
                    let result = work(job);
                    *lock(&results[i]) = Some(result);
                }
            });
        }
    });
    results.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order() {
        let jobs: Vec<u64> = (0..100).collect();
        let squares = run(&jobs, 4, &AtomicBool::new(false), |x| x * x);
        assert!(squares.iter().enumerate().all(|(i, x)| *x == Some((i * i) as u64)));
        assert!(run(&[] as &[u64], 4, &AtomicBool::new(false), |x| *x).is_empty());
    }

    #[test]
    fn a_stop_keeps_what_was_finished() {
        let stop = AtomicBool::new(false);
        let done = run(&[0, 1, 2, 3], 1, &stop, |&x| stop.fetch_or(x == 1, Ordering::Relaxed));
        assert_eq!(done.iter().filter(|r| r.is_some()).count(), 2);
    }
}
