//! How many more spares an Overprovisioner's spending leaves room for.

/// How many of spares that cost these prices fit into a spending limit, taken in this order.
#[must_use]
pub fn affordable(prices: impl IntoIterator<Item = f64>, limit: f64) -> usize {
    // Sums of prices are not exact; a millionth of a dollar per hour is no reason to launch one less.
    const SLACK: f64 = 1e-6;
    let mut spent = 0.0;
    let mut count = 0;
    for price in prices {
        spent += price;
        if spent > limit + SLACK {
            break;
        }
        count += 1;
    }
    count
}
