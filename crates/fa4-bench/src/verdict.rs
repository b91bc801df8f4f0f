//! Where our kernel stands against the fastest right reference, and why.

use serde::{Deserialize, Serialize};

use crate::record::{Entry, Figure, Timing};
use crate::stats;

/// Below this a difference is noise whatever the statistics say: repeated runs on one machine differ as much.
const LEAST_NOISE: f64 = 0.01;
/// Enqueueing that takes this share of the time per launch holds the kernel back.
const HOST_SHARE: f64 = 0.9;
/// A graph that is quicker than single launches by this much shows gaps between the kernels.
const GAP: f64 = 1.05;

/// Where our kernel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Quicker than every reference.
    Ahead,
    /// Within noise of the fastest.
    Level,
    /// Behind, and the time goes into launching: replayed from a graph it is not behind, or the GPU waits for the CPU.
    LaunchBound,
    /// Behind, and another of our kernels is quicker on this row: the router chose wrongly.
    WrongRoute,
    /// The kernel itself is slower.
    KernelGap,
    /// Nothing right to compare with.
    Alone,
}

impl Class {
    /// Every class, in the order of summaries.
    pub const ALL: [Class; 6] =
        [Class::Ahead, Class::Level, Class::LaunchBound, Class::WrongRoute, Class::KernelGap, Class::Alone];

    /// Words for tables.
    pub const fn words(self) -> &'static str {
        match self {
            Class::Ahead => "ahead",
            Class::Level => "level",
            Class::LaunchBound => "launch bound",
            Class::WrongRoute => "wrong route",
            Class::KernelGap => "kernel gap",
            Class::Alone => "no reference",
        }
    }
}

/// A row's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// The fastest right reference's time over ours, burst: above 1 is ahead. The median over rounds of the ratio of
    /// neighbours in time, so that a slow drift of the clock cancels.
    pub ratio: Option<f64>,
    /// Differences up to this are noise.
    pub noise: Option<f64>,
    /// The fastest right reference.
    pub against: Option<String>,
    /// The same ratio of sustained figures, against the reference that is fastest there.
    pub sustained_ratio: Option<f64>,
    /// What the class rests on.
    pub why: String,
}

/// The verdict on our times. `others` are our kernels that the router did not choose.
pub fn verdict(ours: &Timing, others: &[Entry], references: &[Entry]) -> Option<Verdict> {
    let burst = ours.burst.as_ref()?;
    let figure = |entry: &Entry, of: fn(&Timing) -> &Option<Figure>| of(entry.timing.as_ref()?).clone();
    let fastest = |entries: &[Entry], of: fn(&Timing) -> &Option<Figure>| {
        let timed = entries.iter().filter_map(|e| Some((e.id.clone(), figure(e, of)?)));
        timed.min_by(|a, b| a.1.us.total_cmp(&b.1.us))
    };
    let sustained_ratio = ours
        .sustained
        .as_ref()
        .and_then(|own| fastest(references, |t| &t.sustained).map(|(_, other)| other.us / own.us));
    let Some((id, reference)) = fastest(references, |t| &t.burst) else {
        let why = "no reference gave a right result in time".to_string();
        return Some(Verdict {
            class: Class::Alone,
            ratio: None,
            noise: None,
            against: None,
            sustained_ratio,
            why,
        });
    };
    let ratios: Vec<f64> = burst.rounds.iter().zip(&reference.rounds).map(|(a, b)| b.us / a.us).collect();
    let (ratio, noise) = match ratios.is_empty() {
        true => (reference.us / burst.us, LEAST_NOISE),
        false => (stats::median(&ratios), stats::notch(&ratios).max(LEAST_NOISE)),
    };
    let (class, why) = if ratio > 1.0 + noise {
        (Class::Ahead, format!("{:.1} % less time", 100.0 * (1.0 - 1.0 / ratio)))
    } else if ratio >= 1.0 - noise {
        (Class::Level, format!("the difference is within {:.1} %", 100.0 * noise))
    } else {
        behind(ours, burst, &reference, fastest(others, |t| &t.burst), noise)
    };
    Some(Verdict { class, ratio: Some(ratio), noise: Some(noise), against: Some(id), sustained_ratio, why })
}

fn behind(
    ours: &Timing,
    burst: &Figure,
    reference: &Figure,
    other: Option<(String, Figure)>,
    noise: f64,
) -> (Class, String) {
    if let Some((id, figure)) = other.filter(|(_, figure)| figure.us < burst.us * (1.0 - noise)) {
        return (
            Class::WrongRoute,
            format!("our {id} takes {:.1} us, the routed one {:.1}", figure.us, burst.us),
        );
    }
    let gap = ours.graph.as_ref().filter(|graph| burst.us > graph.us * GAP);
    if let Some(graph) = gap.filter(|graph| graph.us <= reference.us * (1.0 + noise)) {
        let why = format!(
            "{:.1} us a launch, {:.1} replayed from a graph: the rest is launching",
            burst.us, graph.us
        );
        return (Class::LaunchBound, why);
    }
    if let Some(host) = ours.host_us.filter(|host| *host >= HOST_SHARE * burst.us) {
        let why = format!("enqueueing takes the CPU {host:.1} of {:.1} us: the GPU waits", burst.us);
        return (Class::LaunchBound, why);
    }
    let more = 100.0 * (burst.us / reference.us - 1.0);
    (Class::KernelGap, format!("the kernel takes {more:.1} % longer"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Round, Status};

    fn figure(us: f64) -> Figure {
        let rounds = [0.999, 1.0, 1.001, 1.0, 0.9995]
            .map(|noise| Round { us: us * noise, ..Round::default() })
            .to_vec();
        Figure { us, us_p10: us, us_p90: us, launches: 50, rounds }
    }

    fn timing(us: f64) -> Timing {
        Timing { burst: Some(figure(us)), ..Timing::default() }
    }

    fn entry(id: &str, us: Option<f64>) -> Entry {
        Entry {
            id: id.into(),
            status: Status::Pass,
            reason: None,
            route: None,
            versions: Default::default(),
            judged: None,
            timing: us.map(timing),
        }
    }

    fn class(ours: &Timing, others: &[Entry], references: &[Entry]) -> Class {
        verdict(ours, others, references).unwrap().class
    }

    #[test]
    fn every_class_is_reached() {
        let field = [entry("slow", Some(120.0)), entry("fast", Some(100.0)), entry("wrong", None)];
        assert_eq!(class(&timing(90.0), &[], &field), Class::Ahead);
        assert_eq!(class(&timing(100.5), &[], &field), Class::Level);
        assert_eq!(class(&timing(110.0), &[], &field), Class::KernelGap);
        assert_eq!(class(&timing(110.0), &[entry("other", Some(95.0))], &field), Class::WrongRoute);
        let graph = Timing { graph: Some(figure(99.0)), ..timing(110.0) };
        assert_eq!(class(&graph, &[], &field), Class::LaunchBound);
        let host = Timing { host_us: Some(109.0), ..timing(110.0) };
        assert_eq!(class(&host, &[], &field), Class::LaunchBound);
        assert_eq!(class(&timing(110.0), &[], &[entry("wrong", None)]), Class::Alone);
        assert!(verdict(&Timing::default(), &[], &field).is_none());
    }

    /// A graph that helps, but not enough to catch up, leaves a kernel that is slower by itself.
    #[test]
    fn launching_is_no_excuse_for_a_slow_kernel() {
        let graph = Timing { graph: Some(figure(130.0)), host_us: Some(20.0), ..timing(150.0) };
        assert_eq!(class(&graph, &[], &[entry("fast", Some(100.0))]), Class::KernelGap);
    }

    /// The clock falls by 2 % a round for both: medians over all rounds would still say 1, the ratio of neighbours does
    /// so with little noise.
    #[test]
    fn drift_cancels() {
        let drift = |us: f64| {
            let rounds: Vec<Round> =
                (0..9).map(|i| Round { us: us * 1.02f64.powi(i), ..Round::default() }).collect();
            Timing { burst: Some(Figure { rounds, ..figure(us * 1.08) }), ..Timing::default() }
        };
        let reference = Entry { timing: Some(drift(103.0)), ..entry("fa3", None) };
        let verdict = verdict(&drift(100.0), &[], &[reference]).unwrap();
        assert_eq!(verdict.class, Class::Ahead);
        assert!((verdict.ratio.unwrap() - 1.03).abs() < 1e-9 && verdict.noise == Some(LEAST_NOISE));
    }
}
