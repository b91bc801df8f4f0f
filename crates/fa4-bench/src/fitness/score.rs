//! Rows of `bench`, several runs of a file and of its parent in turn, made into figures.

use super::{Fitness, Status};
use crate::record::{RunRow, Status as RowStatus};
use crate::stats::{geomean, median};

/// Why a file's rows are worth nothing; `None` where all are right or not served.
pub fn wrong(rows: &[RunRow]) -> Option<(Status, String)> {
    let row = rows.iter().find(|row| row.status.is_wrong())?;
    let status = if row.status == RowStatus::Timeout { Status::Hung } else { Status::Wrong };
    Some((status, format!("{}: {}", row.case, row.reason.as_deref().unwrap_or_default())))
}

/// The figures of right rows. Each run of the file is held against the parent's run that followed it, so that a slow drift of
/// the machine cancels; then medians over runs, then geometric means over rows.
pub fn score(of_file: &[Vec<RunRow>], of_parent: &[Vec<RunRow>], evidence: &str) -> Fitness {
    let nothing = |status, reason: String| Fitness::nothing(status, evidence, reason);
    let passes = |rows: &[RunRow], case: &str| rows.iter().any(|r| r.case == case && r.ours_us().is_some());
    let Some(first) = of_file.first() else {
        return nothing(Status::Hung, "no run of the file ended".into());
    };
    // Dropping the hard rows is not getting better.
    let served = of_parent.iter().flatten().filter(|row| row.ours_us().is_some());
    if let Some(lost) = served.map(|row| row.case.as_str()).find(|case| !passes(first, case)) {
        let reason = first.iter().find(|row| row.case == lost).and_then(|row| row.reason.clone());
        return nothing(
            Status::Narrower,
            format!("{lost}: served by the parent, not by the file: {}", reason.unwrap_or_default()),
        );
    }
    let timed: Vec<&RunRow> = first.iter().filter(|row| row.ours_us().is_some()).collect();
    if timed.is_empty() {
        return nothing(Status::Narrower, "serves none of the rows".into());
    }
    let find = |rows: &[RunRow], case: &str| rows.iter().find(|row| row.case == case).cloned();
    let (mut to_parent, mut to_reference) = (Vec::new(), Vec::new());
    for row in &timed {
        let pairs: Vec<f64> = of_file
            .iter()
            .zip(of_parent)
            .filter_map(|(file, parent)| {
                Some(find(parent, &row.case)?.ours_us()? / find(file, &row.case)?.ours_us()?)
            })
            .collect();
        if !pairs.is_empty() {
            to_parent.push((row.case.clone(), median(&pairs)));
        }
        let ratios: Vec<f64> =
            of_file.iter().filter_map(|file| find(file, &row.case)?.verdict?.ratio).collect();
        if !ratios.is_empty() {
            to_reference.push(median(&ratios));
        }
    }
    let ratios: Vec<f64> = to_parent.iter().map(|(_, ratio)| *ratio).collect();
    let against_parent = (!ratios.is_empty()).then(|| geomean(&ratios));
    let against_reference = (!to_reference.is_empty()).then(|| geomean(&to_reference));
    Fitness {
        fitness: against_parent.or(against_reference),
        against_parent,
        against_reference,
        rows: timed.len(),
        worst: to_parent.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)),
        reason: None,
        ..nothing(Status::Pass, String::new())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::measure::unmeasured;
    use crate::plan;
    use crate::record::{Figure, Timing};
    use crate::verdict::{Class, Verdict};

    /// Rows with these times; `None`: not served.
    fn run(times: &[Option<f64>]) -> Vec<RunRow> {
        let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sets/edge.csv");
        let rows = plan::read(&set).unwrap();
        let one = |(index, us): (usize, &Option<f64>)| {
            let status = if us.is_some() { RowStatus::Pass } else { RowStatus::Unsupported };
            let mut row = unmeasured(index, &rows[index], 1, status, "head_dim 512");
            row.ours = us.map(|us| {
                let burst = Figure { us, us_p10: us, us_p90: us, launches: 1, rounds: Vec::new() };
                Timing { burst: Some(burst), ..Timing::default() }
            });
            row
        };
        times.iter().enumerate().map(one).collect()
    }

    fn with_ratio(mut rows: Vec<RunRow>, ratio: f64) -> Vec<RunRow> {
        for row in &mut rows {
            row.verdict = Some(Verdict {
                class: Class::Ahead,
                ratio: Some(ratio),
                noise: None,
                against: Some("fa3".into()),
                sustained_ratio: None,
                why: String::new(),
            });
        }
        rows
    }

    #[test]
    fn ratios_are_means_over_rows_of_medians_over_runs() {
        // Twice as quick in one row, level in the other: the geometric mean is √2.
        let file = run(&[Some(5.0), Some(8.0)]);
        let parent = run(&[Some(10.0), Some(8.0)]);
        let found = score(&[with_ratio(file, 0.9)], &[parent], "GPU");
        assert!((found.fitness.unwrap() - 2f64.sqrt()).abs() < 1e-12, "{found:?}");
        assert_eq!(found.against_parent, found.fitness);
        assert!((found.against_reference.unwrap() - 0.9).abs() < 1e-12);
        assert_eq!((found.rows, found.status, found.worst.unwrap().1), (2, Status::Pass, 1.0));
        // A machine that becomes slower by half between rounds changes nothing.
        let files = [run(&[Some(10.0)]), run(&[Some(15.0)])];
        let parents = [run(&[Some(11.0)]), run(&[Some(16.5)])];
        assert!((score(&files, &parents, "GPU").fitness.unwrap() - 1.1).abs() < 1e-12);
    }

    #[test]
    fn without_a_parent_the_reference_counts() {
        let found = score(&[with_ratio(run(&[Some(5.0)]), 1.25)], &[], "GPU");
        assert!((found.fitness.unwrap() - 1.25).abs() < 1e-12 && found.against_parent.is_none());
        assert_eq!(score(&[run(&[Some(5.0)])], &[], "GPU").fitness, None);
    }

    #[test]
    fn dropping_rows_is_worth_nothing() {
        let parent = run(&[Some(10.0), Some(10.0)]);
        let narrower = score(&[run(&[Some(1.0), None])], &[parent], "GPU");
        assert_eq!((narrower.status, narrower.fitness), (Status::Narrower, Some(0.0)));
        assert!(narrower.reason.unwrap().contains("head_dim 512"));
        assert_eq!(score(&[run(&[None])], &[], "GPU").status, Status::Narrower);
    }

    #[test]
    fn wrong_rows_are_worth_nothing() {
        let mut rows = run(&[Some(1.0), Some(1.0)]);
        assert_eq!(wrong(&rows), None);
        rows[1].status = RowStatus::Timeout;
        assert_eq!(wrong(&rows).unwrap().0, Status::Hung);
        rows[0].status = RowStatus::Fault;
        assert_eq!(wrong(&rows).unwrap().0, Status::Wrong);
    }
}
