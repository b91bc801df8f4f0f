//! Where a row's wall time goes, by stage.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds by stage. Stages do not overlap: what is spent inside another one is taken off that.
#[derive(Debug, Default)]
pub struct Stages {
    seconds: RefCell<BTreeMap<&'static str, f64>>,
    /// Seconds of finished stages within each one that runs now.
    inner: RefCell<Vec<f64>>,
}

impl Stages {
    /// Runs `work` as part of stage `name`.
    pub fn time<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        self.inner.borrow_mut().push(0.0);
        let result = work();
        let whole = start.elapsed().as_secs_f64();
        let inner = self.inner.borrow_mut().pop().unwrap_or_default();
        if let Some(outer) = self.inner.borrow_mut().last_mut() {
            *outer += whole;
        }
        *self.seconds.borrow_mut().entry(name).or_default() += whole - inner;
        result
    }

    /// Milliseconds precisely, since more says nothing.
    pub fn seconds(&self) -> BTreeMap<String, f64> {
        let rounded = |s: f64| (s * 1e3).round() / 1e3;
        self.seconds.borrow().iter().map(|(name, s)| (name.to_string(), rounded(*s))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stages_add_up_and_do_not_overlap() {
        let stages = Stages::default();
        let nap = |ms| std::thread::sleep(Duration::from_millis(ms));
        let start = Instant::now();
        let seven = stages.time("outer", || {
            nap(20);
            stages.time("inner", || nap(60));
            stages.time("inner", || nap(60));
            7
        });
        let whole = start.elapsed().as_secs_f64();
        let seconds = stages.seconds();
        assert_eq!(seven, 7);
        assert!(seconds["inner"] >= 0.12 && seconds["outer"] < seconds["inner"], "{seconds:?}");
        assert!((seconds.values().sum::<f64>() - whole).abs() < 0.01, "{seconds:?} of {whole}");
    }
}
