//! Zipfian ranks as YCSB draws them (Gray et al., "Quickly generating billion-record synthetic databases", 1994), for
//! a set that may grow.

use super::random::Random;

/// The exponent of YCSB.
pub(crate) const THETA: f64 = 0.99;

/// Terms of the zeta sum that are added up one by one; the rest is the integral with two terms of Euler and
/// Maclaurin, exact to about 1e-12.
const TERMS_EXACT: u64 = 10_000;

/// Draws ranks: 0 most often.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    items: u64,
    zeta: f64,
    zeta_of_two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    pub(crate) fn new(items: u64) -> Self {
        let mut zipfian =
            Self { items, zeta: zeta(items), zeta_of_two: zeta(2), alpha: 1.0 / (1.0 - THETA), eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    /// Adds an item.
    pub(crate) fn grow(&mut self) {
        self.items += 1;
        self.zeta += (self.items as f64).powf(-THETA);
        self.set_eta();
    }

    fn set_eta(&mut self) {
        self.eta = (1.0 - (2.0 / self.items as f64).powf(1.0 - THETA)) / (1.0 - self.zeta_of_two / self.zeta);
    }

    /// A rank below the number of items.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < self.zeta_of_two {
            return 1;
        }
        let rank = (self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64;
        rank.min(self.items - 1)
    }
}

/// The sum of i^-theta for i from 1 to n.
fn zeta(n: u64) -> f64 {
    let exact = n.min(TERMS_EXACT);
    let head: f64 = (1..=exact).map(|i| (i as f64).powf(-THETA)).sum();
    if n == exact {
        return head;
    }
    let (a, b) = (exact as f64, n as f64);
    let integral = (b.powf(1.0 - THETA) - a.powf(1.0 - THETA)) / (1.0 - THETA);
    let slope = |x: f64| -THETA * x.powf(-THETA - 1.0);
    head + integral + (b.powf(-THETA) - a.powf(-THETA)) / 2.0 + (slope(b) - slope(a)) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_is_exact() {
        let sum: f64 = (1..=200_000).map(|i| f64::from(i).powf(-THETA)).sum();
        assert!((zeta(200_000) - sum).abs() < 1e-9);
        // The constant that YCSB carries for its ten billion items.
        assert!((zeta(10_000_000_000) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    #[test]
    fn the_first_rank_has_its_share() {
        let zipfian = Zipfian::new(1_000_000);
        let mut random = Random::new(1, "zipfian", 0);
        let draws = 200_000;
        let first = (0..draws).filter(|_| zipfian.draw(&mut random) == 0).count();
        let share = first as f64 / f64::from(draws);
        assert!((share * zeta(1_000_000) - 1.0).abs() < 0.05, "{share}");
    }

    #[test]
    fn growing_is_as_starting_larger() {
        let mut grown = Zipfian::new(1000);
        (0..500).for_each(|_| grown.grow());
        let whole = Zipfian::new(1500);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9 && (grown.eta - whole.eta).abs() < 1e-12);
    }
}
