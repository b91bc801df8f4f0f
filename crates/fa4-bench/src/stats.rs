//! Robust statistics of times.
//!
//! Times of a kernel are not normally distributed: they have a floor and a tail. So the middle is the median and the
//! spread is between percentiles (Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC 2015,
//! rules 5 to 8), percentiles are interpolated linearly between order statistics (type 7 of Hyndman and Fan, "Sample
//! Quantiles in Statistical Packages", 1996), and the uncertainty of a median is the notch of a box plot,
//! 1.57·IQR/√n (McGill, Tukey and Larsen, "Variations of Box Plots", 1978), about a 95 % interval for comparing two
//! medians.

/// Quantile `q` (0 to 1) of `values`; NaN for none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Half width of the median's uncertainty: 1.57·IQR/√n.
pub fn notch(values: &[f64]) -> f64 {
    1.57 * (quantile(values, 0.75) - quantile(values, 0.25)) / (values.len() as f64).sqrt()
}

/// Geometric mean; NaN for none.
pub fn geomean(values: &[f64]) -> f64 {
    (values.iter().map(|x| x.ln()).sum::<f64>() / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Hyndman and Fan's type 7 worked by hand.
    #[test]
    fn quantiles_by_hand() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.5), 2.5);
        assert_eq!(quantile(&values, 0.25), 1.75);
        assert!((quantile(&values, 0.9) - 3.7).abs() < 1e-12);
        assert_eq!(quantile(&values, 1.0), 4.0);
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn one_outlier_moves_the_median_little() {
        let mut values = vec![10.0; 9];
        values.push(1000.0);
        assert_eq!(median(&values), 10.0);
    }

    #[test]
    fn notch_shrinks_with_samples() {
        let few: Vec<f64> = (0..8).map(f64::from).collect();
        let many: Vec<f64> = (0..800).map(|i| f64::from(i % 8)).collect();
        assert!((notch(&few) - 1.57 * 3.5 / 8f64.sqrt()).abs() < 1e-12);
        assert!(notch(&many) < notch(&few) / 9.0);
    }

    #[test]
    fn geomean_of_reciprocals_is_one() {
        assert!((geomean(&[0.5, 2.0, 4.0, 0.25]) - 1.0).abs() < 1e-12);
    }
}
