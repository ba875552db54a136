//! Tails of distributions, and the correction for several questions.

/// Probability that a chi-square variable of `freedom` degrees exceeds `x`, to seven digits: each two degrees more add a term to
/// those of one or two.
pub(super) fn chi_square_tail(x: f64, freedom: u32) -> f64 {
    let half = x.max(0.0) / 2.0;
    let (mut tail, mut term, mut degrees) = match freedom % 2 {
        0 => ((-half).exp(), (-half).exp(), 2),
        // The term is already that of three degrees.
        _ => (complementary_error(half.sqrt()), 2.0 * (half / std::f64::consts::PI).sqrt() * (-half).exp(), 1),
    };
    while degrees < freedom {
        if degrees > 1 {
            term *= half / (f64::from(degrees) / 2.0);
        }
        tail += term;
        degrees += 2;
    }
    tail.min(1.0)
}

/// The value that a chi-square variable exceeds with a probability.
pub(super) fn chi_square_limit(tail: f64, freedom: u32) -> f64 {
    bisect(|x| chi_square_tail(x, freedom) < tail)
}

/// The complementary error function of `x >= 0`, to a relative error of 1.2e-7 however small it gets.
fn complementary_error(x: f64) -> f64 {
    /// A Chebyshev fit in `t = 1 / (1 + x / 2)` of `ln(erfc(x) / t) + x^2`, lowest power first.
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let fit = FIT.iter().rev().fold(0.0, |sum, &coefficient| sum * t + coefficient);
    t * (fit - x * x).exp()
}

/// The sum of squared means, in standard deviations, of which a chi-square test of `freedom` degrees at `level` sees a share `power`.
pub(super) fn seen_effect(level: f64, freedom: u32, power: f64) -> f64 {
    let limit = chi_square_limit(level, freedom);
    // A chi-square variable with an effect is one without, of two degrees more for each event of a Poisson variable of half the effect.
    let seen = |effect: f64| {
        let mut chance = (-effect / 2.0).exp();
        let mut sum = 0.0;
        for events in 0..2_000u32 {
            sum += chance * chi_square_tail(limit, freedom + 2 * events);
            chance *= effect / 2.0 / f64::from(events + 1);
            if chance < 1e-12 && f64::from(events) > effect {
                break;
            }
        }
        sum
    };
    bisect(|effect| seen(effect) > power)
}

/// Where a condition that holds from some point on begins to, between 0 and 1000.
fn bisect(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

/// Holm's correction: each p-value as it counts among all of them, so that the chance that any falls below a level without reason is that
/// level at most.
pub(super) fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut adjusted = vec![1.0; values.len()];
    let mut worst = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        worst = worst.max(values[index] * (values.len() - rank) as f64);
        adjusted[index] = worst.min(1.0);
    }
    adjusted
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn tails_are_those_of_tables() {
        // Upper 5 % and 0.1 % points, and one far out.
        for (x, freedom, tail) in [
            (3.841_459, 1, 0.05),
            (10.827_566, 1, 0.001),
            (5.991_465, 2, 0.05),
            (7.814_728, 3, 0.05),
            (9.487_729, 4, 0.05),
            (18.466_827, 4, 0.001),
            (11.070_498, 5, 0.05),
            (46.194_260, 32, 0.05),
            (62.487_219, 32, 0.001),
            (33.376_838, 4, 1e-6),
        ] {
            let found = chi_square_tail(x, freedom);
            assert!((found / tail - 1.0).abs() < 0.02, "{x} at {freedom}: {found} for {tail}");
        }
        // The two sides of 5 standard deviations.
        assert!((chi_square_tail(25.0, 1) / 5.733e-7 - 1.0).abs() < 1e-3);
        assert!((chi_square_limit(0.05, 4) - 9.487_729).abs() < 1e-5);
    }

    #[test]
    fn an_effect_is_seen_as_often_as_tables_of_power_say() {
        // Noncentrality for 95 % at level 0.05: 12.995 for one degree, 18.572 for four.
        assert!((seen_effect(0.05, 1, 0.95) - 12.995).abs() < 0.01, "{}", seen_effect(0.05, 1, 0.95));
        assert!((seen_effect(0.05, 4, 0.95) - 18.572).abs() < 0.02, "{}", seen_effect(0.05, 4, 0.95));
    }

    #[test]
    fn the_smallest_of_several_counts_for_as_many() {
        let adjusted = holm(&[0.04, 0.01, 0.5]);
        for (found, expected) in adjusted.iter().zip([0.08, 0.03, 0.5]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.02, 0.02, 0.9]), [0.06, 0.06, 0.9]);
    }
}
