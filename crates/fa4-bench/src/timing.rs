//! How times are taken.
//!
//! *Burst.* Contestants take turns, A B C A B C …; each turn is a rest, then a warm-up launch and as many launches as fill
//! some 10 ms, going through as many sets of tensors as exceed three times the L2 cache. Taking turns makes what drifts
//! (temperature, clock) meet everybody; rests keep the card off its power limit. *Sustained.* One contestant back to back
//! for 1 to 1.5 s, the second half counts: what a long job sees, often 10 % slower. *Graph.* As burst, replayed
//! from a CUDA graph, for kernels so short that launching shows.

use std::time::{Duration, Instant};

use crate::record::{Figure, Round, Timing};
use crate::runner::{Contestant, Effort, Failure, Lap, Mode};
use crate::stats::{median, quantile};
use crate::telemetry::Telemetry;

/// Rounds: as many as the budget allows within these.
const ROUNDS: (usize, usize) = (3, 15);
/// The budget has room for sustained figures where they take at most this share of it.
const SUSTAINED_SHARE: f64 = 0.67;
/// Who gets a sustained figure first of all: ours and the quickest reference. One alone would compare nothing.
const SUSTAINED: f64 = 2.0;
/// Launches of a round at most.
const LAUNCHES: u32 = 2000;
/// Launches to learn how long one takes.
const TRIAL: u32 = 3;
/// Kernels shorter than this are also timed from a graph.
const GRAPH_BELOW_US: f64 = 300.0;

/// A contestant with what was measured so far.
pub struct Timed<'a, 'b> {
    /// The kernel.
    pub contestant: &'a mut (dyn Contestant + 'b),
    /// Its times.
    pub timing: Timing,
    /// Why it was taken out.
    pub failure: Option<Failure>,
    /// Microseconds of a launch, roughly.
    estimate_us: f64,
    laps: Vec<Lap>,
    rounds: Vec<Round>,
}

impl<'a, 'b> Timed<'a, 'b> {
    /// Not timed yet.
    pub fn new(contestant: &'a mut (dyn Contestant + 'b)) -> Self {
        Timed {
            contestant,
            timing: Timing::default(),
            failure: None,
            estimate_us: 0.0,
            laps: Vec::new(),
            rounds: Vec::new(),
        }
    }

    fn lap(&mut self, launches: u32, mode: Mode, telemetry: &Telemetry) -> Option<Lap> {
        let start = Instant::now();
        match self.contestant.time(launches, mode) {
            Ok(lap) if !lap.us.is_empty() => {
                self.rounds.push(telemetry.round(median(&lap.us), start));
                Some(lap)
            }
            Ok(_) => {
                let what = "a timing without times";
                self.failure = Some(Failure::new(crate::record::Status::Error, what));
                None
            }
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }

    /// The rounds so far as one figure; starts afresh.
    fn figure(&mut self) -> Option<Figure> {
        let (laps, rounds) = (std::mem::take(&mut self.laps), std::mem::take(&mut self.rounds));
        let us: Vec<f64> = laps.iter().flat_map(|lap| lap.us.iter().copied()).collect();
        if us.is_empty() || self.failure.is_some() {
            return None;
        }
        Some(Figure {
            us: median(&us),
            us_p10: quantile(&us, 0.1),
            us_p90: quantile(&us, 0.9),
            launches: us.len() as u64,
            rounds,
        })
    }

    fn is_in(&self) -> bool {
        self.failure.is_none()
    }
}

/// Times everybody who has not failed. The first is ours.
pub fn time_all(field: &mut [Timed<'_, '_>], effort: &Effort, telemetry: &Telemetry) {
    for timed in field.iter_mut() {
        // The first launches after other work are slow, and the number of launches of a round rests on the estimate.
        if let Some(lap) = timed.lap(TRIAL, Mode::Stream, telemetry) {
            timed.estimate_us = median(&lap.us);
            timed.timing.host_us = lap.host_us;
        }
        timed.rounds.clear();
    }
    let turn_s = field.iter().filter(|t| t.is_in()).map(|t| turn(t, effort).as_secs_f64()).sum::<f64>();
    let with_graphs = field.first().is_some_and(|ours| ours.estimate_us < GRAPH_BELOW_US);
    let reserved_s = reserved(effort);
    let burst_s = (effort.budget_s - reserved_s) / if with_graphs { 2.0 } else { 1.0 };
    let rounds = ((burst_s / turn_s.max(1e-6)) as usize).clamp(ROUNDS.0, ROUNDS.1);
    take_turns(field, rounds, Mode::Stream, effort, telemetry);
    for timed in field.iter_mut() {
        let host: Vec<f64> = timed.laps.iter().filter_map(|lap| lap.host_us).collect();
        if !host.is_empty() {
            timed.timing.host_us = Some(median(&host));
        }
        timed.timing.burst = timed.figure();
    }
    let mut left_s = effort.budget_s - rounds as f64 * turn_s;
    if with_graphs {
        left_s -= rounds as f64 * turn_s;
        graphs(field, rounds, effort, telemetry);
    }
    // Long launches make the fewest rounds dearer than their part of the budget; the sustained figures are kept.
    sustain(field, left_s.max(reserved_s), effort, telemetry);
}

/// Seconds of the budget that are kept for sustained figures.
fn reserved(effort: &Effort) -> f64 {
    let wanted = SUSTAINED * effort.sustained.as_secs_f64();
    if wanted <= SUSTAINED_SHARE * effort.budget_s { wanted } else { 0.0 }
}

/// Device time of a turn with its rest.
fn turn(timed: &Timed<'_, '_>, effort: &Effort) -> Duration {
    // The launches and one to warm up.
    effort.rest + Duration::from_secs_f64(f64::from(launches(timed, effort) + 1) * timed.estimate_us / 1e6)
}

fn launches(timed: &Timed<'_, '_>, effort: &Effort) -> u32 {
    let fit = effort.round.as_secs_f64() * 1e6 / timed.estimate_us.max(0.1);
    (fit as u32).clamp(2, LAUNCHES)
}

fn take_turns(
    field: &mut [Timed<'_, '_>],
    rounds: usize,
    mode: Mode,
    effort: &Effort,
    telemetry: &Telemetry,
) {
    for _ in 0..rounds {
        for timed in field.iter_mut().filter(|t| t.is_in()) {
            std::thread::sleep(effort.rest);
            let launches = launches(timed, effort);
            if let Some(lap) = timed.lap(launches, mode, telemetry) {
                timed.laps.push(lap);
            }
        }
    }
}

/// A contestant that cannot be captured stays in; it only has no such figure.
fn graphs(field: &mut [Timed<'_, '_>], rounds: usize, effort: &Effort, telemetry: &Telemetry) {
    let mut refused: Vec<usize> = Vec::new();
    for (at, timed) in field.iter_mut().enumerate().filter(|(_, t)| t.is_in()) {
        if timed.lap(TRIAL, Mode::Graph, telemetry).is_none() {
            refused.push(at);
        }
        timed.rounds.clear();
    }
    take_turns(field, rounds, Mode::Graph, effort, telemetry);
    for (at, timed) in field.iter_mut().enumerate() {
        if refused.contains(&at) {
            timed.failure = None;
            timed.rounds.clear();
        } else {
            timed.timing.graph = timed.figure();
        }
    }
}

/// Ours first, then the references from the quickest on, as long as the budget lasts.
fn sustain(field: &mut [Timed<'_, '_>], mut left_s: f64, effort: &Effort, telemetry: &Telemetry) {
    let mut order: Vec<usize> = (0..field.len()).filter(|&at| field[at].timing.burst.is_some()).collect();
    let us = |at: usize| field[at].timing.burst.as_ref().map_or(f64::INFINITY, |f| f.us);
    order.sort_by(|&a, &b| (a > 0).cmp(&(b > 0)).then(us(a).total_cmp(&us(b))));
    let pays = (order.len() as f64).min(SUSTAINED) * effort.sustained.as_secs_f64();
    if left_s < pays {
        return;
    }
    for at in order {
        left_s -= effort.sustained.as_secs_f64();
        if left_s < 0.0 {
            break;
        }
        let timed = &mut field[at];
        std::thread::sleep(effort.rest);
        let half = effort.sustained.as_secs_f64() / 2.0 * 1e6 / timed.estimate_us.max(0.1);
        let half = half.clamp(1.0, 4e6) as u32;
        let (Some(_), Some(second)) =
            (timed.lap(half, Mode::Stream, telemetry), timed.lap(half, Mode::Stream, telemetry))
        else {
            continue;
        };
        timed.rounds.remove(0);
        timed.laps = vec![second];
        timed.timing.sustained = timed.figure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Status;
    use crate::runner::Answer;

    /// Counts what it is asked and notes the order of turns.
    struct Fake<'a> {
        id: &'static str,
        us: f64,
        fails_at: Option<usize>,
        graphs: bool,
        calls: usize,
        log: &'a std::cell::RefCell<Vec<(&'static str, u32, Mode)>>,
    }

    impl Contestant for Fake<'_> {
        fn id(&self) -> &str {
            self.id
        }
        fn route(&self) -> Option<String> {
            None
        }
        fn run_once(&mut self) -> Result<Answer, Failure> {
            unreachable!("timing runs nothing else")
        }
        fn leftover(&mut self) -> Result<Answer, Failure> {
            unreachable!("timing reads nothing back")
        }
        fn time(&mut self, launches: u32, mode: Mode) -> Result<Lap, Failure> {
            self.calls += 1;
            if self.fails_at == Some(self.calls) || mode == Mode::Graph && !self.graphs {
                return Err(Failure::new(Status::Fault, "gone"));
            }
            self.log.borrow_mut().push((self.id, launches, mode));
            Ok(Lap { us: vec![self.us; launches.min(100) as usize], host_us: Some(2.0) })
        }
    }

    fn effort(budget_s: f64) -> Effort {
        Effort { rest: Duration::ZERO, ..Effort::within(budget_s) }
    }

    type Log = std::cell::RefCell<Vec<(&'static str, u32, Mode)>>;

    fn fake<'a>(log: &'a Log, id: &'static str, us: f64) -> Fake<'a> {
        Fake { id, us, fails_at: None, graphs: true, calls: 0, log }
    }

    #[test]
    fn contestants_take_turns() {
        let log = Log::default();
        let (mut a, mut b) = (fake(&log, "a", 1000.0), fake(&log, "b", 500.0));
        let mut field = [Timed::new(&mut a), Timed::new(&mut b)];
        time_all(&mut field, &effort(10.0), &Telemetry::none());
        let burst = field[0].timing.burst.clone().unwrap();
        assert_eq!((burst.us, burst.rounds.len(), burst.launches), (1000.0, 15, 150));
        assert!(field[0].timing.graph.is_none(), "long kernels need no graph");
        assert_eq!(field[1].timing.host_us, Some(2.0));
        assert!(field.iter().all(|t| t.timing.sustained.is_some()));
        drop(field);
        let turns: Vec<_> = log.borrow()[2..32].iter().map(|(id, launches, _)| (*id, *launches)).collect();
        assert!(turns.chunks(2).all(|pair| pair == [("a", 10), ("b", 20)]), "{turns:?}");
    }

    /// Little budget: fewest rounds, nothing sustained.
    #[test]
    fn the_budget_is_kept() {
        let log = Log::default();
        let (mut a, mut b) = (fake(&log, "a", 1000.0), fake(&log, "b", 500.0));
        let mut field = [Timed::new(&mut a), Timed::new(&mut b)];
        time_all(&mut field, &effort(0.05), &Telemetry::none());
        assert_eq!(field[0].timing.burst.as_ref().unwrap().rounds.len(), ROUNDS.0);
        assert!(field.iter().all(|t| t.timing.sustained.is_none()));
    }

    /// From 3 s on ours and the quickest reference have sustained figures, however long launches take, and for short ones
    /// beside graphs.
    #[test]
    fn three_seconds_are_enough_for_sustained_figures() {
        for us in [8.0, 1000.0, 36_000.0] {
            let log = Log::default();
            let (mut a, mut b, mut c) = (fake(&log, "a", us), fake(&log, "b", 2.0 * us), fake(&log, "c", us));
            let mut field = [Timed::new(&mut a), Timed::new(&mut b), Timed::new(&mut c)];
            time_all(&mut field, &effort(3.0), &Telemetry::none());
            let sustained: Vec<bool> = field.iter().map(|t| t.timing.sustained.is_some()).collect();
            assert!(sustained[0] && sustained[2], "{us} {sustained:?}");
            assert!(field[0].timing.burst.as_ref().unwrap().rounds.len() >= ROUNDS.0);
            drop(field);
            let half = log.borrow().iter().map(|(_, launches, _)| f64::from(*launches)).fold(0.0, f64::max);
            assert!((half * us / 1e6 - 0.5).abs() < 0.05, "{half} launches of {us} us");
        }
    }

    #[test]
    fn one_that_fails_is_out_and_the_others_go_on() {
        let log = Log::default();
        let (mut a, mut b) = (fake(&log, "a", 1000.0), fake(&log, "b", 500.0));
        b.fails_at = Some(4);
        let mut field = [Timed::new(&mut a), Timed::new(&mut b)];
        time_all(&mut field, &effort(10.0), &Telemetry::none());
        assert!(
            field[0].timing.burst.is_some()
                && field[1].timing == Timing { host_us: Some(2.0), ..Timing::default() }
        );
        assert_eq!(field[1].failure.as_ref().unwrap().reason, "gone");
    }

    #[test]
    fn short_kernels_get_a_graph_where_they_can() {
        let log = Log::default();
        let (mut a, mut b) = (fake(&log, "a", 8.0), fake(&log, "b", 9.0));
        b.graphs = false;
        let mut field = [Timed::new(&mut a), Timed::new(&mut b)];
        time_all(&mut field, &effort(10.0), &Telemetry::none());
        assert!(field[0].timing.graph.is_some());
        assert!(field[1].timing.graph.is_none() && field[1].failure.is_none());
        assert!(field[1].timing.burst.is_some() && field[1].timing.sustained.is_some());
    }
}
