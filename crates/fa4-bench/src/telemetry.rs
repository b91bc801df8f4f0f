//! What the GPU says about itself while kernels run: clock, power, temperature, and what holds the clock back.
//!
//! A thread reads every few milliseconds; a round takes the readings that fell into it, or the one next after its start.
//! The driver renews these values less often than that, so that a reading says what was true within some 50 ms.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::record::Round;
use crate::stats::median;

/// Time between two readings.
const PERIOD: Duration = Duration::from_millis(4);
/// Readings kept: some seconds.
const KEPT: usize = 4096;

/// One reading.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// SM clock.
    pub clock_mhz: Option<u32>,
    /// Power draw.
    pub power_w: Option<f64>,
    /// GPU temperature.
    pub temperature_c: Option<u32>,
    /// What holds the clock back.
    pub throttled: Vec<String>,
}

/// Whoever can be asked for readings.
pub trait Source: Send {
    /// Reads now.
    fn read(&mut self) -> Reading;
}

type Readings = Arc<Mutex<VecDeque<(Instant, Reading)>>>;

/// Readings of one GPU, past and present.
pub struct Telemetry {
    readings: Readings,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    fixed: Option<Reading>,
}

impl Telemetry {
    /// Reads `source` from now on.
    pub fn of(mut source: Box<dyn Source>) -> Self {
        let (readings, stop) = (Readings::default(), Arc::new(AtomicBool::new(false)));
        let (shared, ended) = (Arc::clone(&readings), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let reading = source.read();
                let mut readings = shared.lock().unwrap_or_else(PoisonError::into_inner);
                readings.push_back((Instant::now(), reading));
                if readings.len() > KEPT {
                    readings.pop_front();
                }
                drop(readings);
                std::thread::sleep(PERIOD);
            }
        });
        Telemetry { readings, stop, thread: Some(thread), fixed: None }
    }

    /// Nobody to ask.
    pub fn none() -> Self {
        Self::fixed(Reading::default())
    }

    /// The same reading always.
    pub fn fixed(reading: Reading) -> Self {
        let stop = Arc::new(AtomicBool::new(true));
        Telemetry { readings: Readings::default(), stop, thread: None, fixed: Some(reading) }
    }

    /// A round of `us` per launch that ran from `start` to now.
    pub fn round(&self, us: f64, start: Instant) -> Round {
        if let Some(reading) = self.fixed.clone() {
            let Reading { clock_mhz, power_w, temperature_c, throttled } = reading;
            return Round { us, clock_mhz, power_w, temperature_c, throttled };
        }
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now();
        let mut during: Vec<&Reading> =
            readings.iter().filter(|(at, _)| (start..=end).contains(at)).map(|(_, r)| r).collect();
        if during.is_empty() {
            during.extend(readings.back().map(|(_, r)| r));
        }
        let middle = |value: fn(&Reading) -> Option<f64>| {
            let values: Vec<f64> = during.iter().filter_map(|r| value(r)).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let mut throttled: Vec<String> = during.iter().flat_map(|r| r.throttled.clone()).collect();
        throttled.sort();
        throttled.dedup();
        Round {
            us,
            clock_mhz: middle(|r| r.clock_mhz.map(f64::from)).map(|mhz| mhz.round() as u32),
            power_w: middle(|r| r.power_w),
            temperature_c: middle(|r| r.temperature_c.map(f64::from)).map(|c| c.round() as u32),
            throttled,
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u32);

    impl Source for Counting {
        fn read(&mut self) -> Reading {
            self.0 += 1;
            let throttled = if self.0 == 1 { vec!["power cap".into()] } else { Vec::new() };
            Reading { clock_mhz: Some(1000 + self.0), power_w: Some(500.0), temperature_c: None, throttled }
        }
    }

    #[test]
    fn a_round_has_the_readings_that_fell_into_it() {
        let telemetry = Telemetry::of(Box::new(Counting(0)));
        std::thread::sleep(Duration::from_millis(40));
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(60));
        let round = telemetry.round(3.0, start);
        assert_eq!((round.us, round.power_w, round.temperature_c), (3.0, Some(500.0), None));
        // The first reading was before the round.
        assert!(round.throttled.is_empty() && round.clock_mhz.unwrap() > 1002, "{round:?}");
    }

    #[test]
    fn no_source_says_nothing() {
        let round = Telemetry::none().round(1.0, Instant::now());
        assert_eq!(round, Round { us: 1.0, ..Round::default() });
    }
}
