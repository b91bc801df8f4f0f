//! What a reader of a row's times should know, each with what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::{Figure, RunRow};

/// A spread above this is said.
const SPREAD: f64 = 0.02;
/// Fewer rounds than this are said.
const ROUNDS: usize = 5;
/// Clocks of two contestants that differ by more than this are said.
const CLOCK: f64 = 0.03;
/// Below this an event's resolution of half a microsecond shows.
const SHORT_US: f64 = 20.0;

/// One caveat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Caveat {
    /// The clock was held back in short runs already.
    Throttled {
        /// By what.
        reasons: Vec<String>,
    },
    /// Few rounds.
    FewSamples {
        /// How many.
        rounds: usize,
    },
    /// Times scatter.
    Spread {
        /// Whose.
        id: String,
        /// (p90 − p10) / median in percent.
        percent: f64,
    },
    /// No clock beside the times.
    ClockUnknown,
    /// Ours and the reference ran at different clocks.
    ClockDiffers {
        /// Ours, MHz.
        ours: f64,
        /// The reference's, MHz.
        reference: f64,
    },
    /// All tensors stayed in the L2 cache.
    InputCached,
    /// So short that events and launches show.
    ShortKernel {
        /// Our time.
        us: f64,
    },
    /// Times of launches back to back for a second are missing.
    NotSustained,
    /// Some rows of O were judged, not all.
    Sampled {
        /// Judged.
        rows: u64,
        /// Of.
        of: u64,
    },
    /// Nothing right to compare with.
    NoReference,
    /// Another scenario row was on the GPU's memory, or it was too small for the rotation.
    FewCopies {
        /// Sets of tensors.
        copies: u32,
        /// What three times the L2 cache would have asked for.
        wanted: u32,
    },
}

impl Caveat {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Caveat::Throttled { .. } => {
                "compare sustained figures, or cool the card and raise its power limit; ratios at equal clocks hold"
            }
            Caveat::FewSamples { .. } => "raise --budget",
            Caveat::Spread { .. } => {
                "raise --budget; see that nothing else uses the GPU; repeat on another GPU before a claim"
            }
            Caveat::ClockUnknown => "let this process see NVML (libnvidia-ml.so.1)",
            Caveat::ClockDiffers { .. } => {
                "one of them draws more power; compare sustained figures, or lock the clock and run again"
            }
            Caveat::InputCached => "the rotation failed: do not read the bandwidth as that of memory",
            Caveat::ShortKernel { .. } => "read the CUDA graph's figure; differences below 1 us mean nothing",
            Caveat::NotSustained => "raise --budget for the figure that long jobs see",
            Caveat::Sampled { .. } => "the gate judges every row of smaller cases of the same kernel",
            Caveat::NoReference => {
                "bring a reference that serves the row (`cargo xtask refs` says what is missing)"
            }
            Caveat::FewCopies { .. } => "free GPU memory; part of the tensors may have been read from L2",
        }
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::Throttled { reasons } => write!(f, "throttled ({})", reasons.join(", ")),
            Caveat::FewSamples { rounds } => write!(f, "{rounds} rounds only"),
            Caveat::Spread { id, percent } => write!(f, "{id} spreads by {percent:.1} %"),
            Caveat::ClockUnknown => f.write_str("clock unknown"),
            Caveat::ClockDiffers { ours, reference } => {
                write!(f, "clocks differ: ours {ours:.0} MHz, reference {reference:.0} MHz")
            }
            Caveat::InputCached => f.write_str("inputs stayed in L2"),
            Caveat::ShortKernel { us } => write!(f, "short kernel ({us:.1} us)"),
            Caveat::NotSustained => f.write_str("no sustained figure"),
            Caveat::Sampled { rows, of } => write!(f, "{rows} of {of} rows judged"),
            Caveat::NoReference => f.write_str("no right reference"),
            Caveat::FewCopies { copies, wanted } => write!(f, "{copies} of {wanted} sets of tensors"),
        }
    }
}

/// What is to be said about a timed row, from its figures. `wanted` sets of tensors would exceed three times the L2 cache.
pub fn of_row(row: &RunRow, wanted: u32) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let Some(burst) = row.ours.as_ref().and_then(|t| t.burst.as_ref()) else { return caveats };
    let mut reasons: Vec<String> = burst.rounds.iter().flat_map(|r| r.throttled.clone()).collect();
    reasons.sort();
    reasons.dedup();
    if !reasons.is_empty() {
        caveats.push(Caveat::Throttled { reasons });
    }
    if burst.rounds.len() < ROUNDS {
        caveats.push(Caveat::FewSamples { rounds: burst.rounds.len() });
    }
    let right = row.references.iter().filter_map(|e| Some((&e.id, e.timing.as_ref()?.burst.as_ref()?)));
    let fastest = right.min_by(|a, b| a.1.us.total_cmp(&b.1.us));
    let ours = "ours".to_string();
    for (id, figure) in [(&ours, burst)].into_iter().chain(fastest) {
        if figure.spread() > SPREAD {
            caveats.push(Caveat::Spread { id: id.clone(), percent: 100.0 * figure.spread() });
        }
    }
    match (burst.clock_mhz(), fastest.map(|(_, figure)| figure.clock_mhz())) {
        (None, _) | (_, Some(None)) => caveats.push(Caveat::ClockUnknown),
        (Some(ours), Some(Some(reference))) if (ours / reference - 1.0).abs() > CLOCK => {
            caveats.push(Caveat::ClockDiffers { ours, reference });
        }
        _ => {}
    }
    match row.copies {
        Some(1) if wanted > 1 => caveats.push(Caveat::InputCached),
        Some(copies) if copies < wanted => caveats.push(Caveat::FewCopies { copies, wanted }),
        _ => {}
    }
    if burst.us < SHORT_US {
        caveats.push(Caveat::ShortKernel { us: burst.us });
    }
    let sustained = |figure: &Option<Figure>| figure.is_none();
    if row.ours.as_ref().is_some_and(|t| sustained(&t.sustained)) {
        caveats.push(Caveat::NotSustained);
    }
    if let Some(judged) = row.judged.filter(|j| j.rows < j.of) {
        caveats.push(Caveat::Sampled { rows: judged.rows, of: judged.of });
    }
    if fastest.is_none() {
        caveats.push(Caveat::NoReference);
    }
    caveats
}
