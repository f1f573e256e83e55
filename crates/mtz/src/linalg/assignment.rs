//! Which unit of one network goes with which of another: the cheapest pairs, each unit in one at most.

/// The paper's way: the cheapest pair of all, then the cheapest of the rest, up to `count` pairs. Costs are rows ×
/// columns.
pub fn greedy_pairs(costs: &[f64], columns: usize, count: usize) -> Vec<(usize, usize)> {
    let rows = costs.len().checked_div(columns).unwrap_or(0);
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by(|&a, &b| costs[a].total_cmp(&costs[b]).then(a.cmp(&b)));
    let (mut row_free, mut column_free) = (vec![true; rows], vec![true; columns]);
    let mut pairs = Vec::new();
    for index in order {
        if pairs.len() >= count {
            break;
        }
        let (i, j) = (index / columns, index % columns);
        if row_free[i] && column_free[j] {
            (row_free[i], column_free[j]) = (false, false);
            pairs.push((i, j));
        }
    }
    pairs
}

/// The `count` pairs with the smallest sum, by row.
///
/// With fewer pairs than units, every unit that is left over goes with a dummy at no cost, and dummies do not go with
/// each other: an assignment of all to all, whose real part is the answer. What dummies cost is known without a table
/// of it.
pub fn optimal_pairs(costs: &[f64], columns: usize, count: usize) -> Vec<(usize, usize)> {
    let rows = costs.len().checked_div(columns).unwrap_or(0);
    let count = count.min(rows).min(columns);
    if count == 0 {
        return Vec::new();
    }
    if count == rows.min(columns) {
        return assignment(costs, rows, columns);
    }
    let size = rows + columns - count;
    // More than any sum of real costs can differ by, but small enough to keep their digits.
    let far = 1.0 + costs.iter().fold(0.0f64, |m, c| m.max(c.abs())) * (size as f64 + 1.0);
    let padded = Costs { real: costs, width: columns, dummy: vec![0.0; columns], far, rows: size, columns: size };
    assign(&padded).into_iter().filter(|&(i, j)| i < rows && j < columns).collect()
}

/// Costs of rows × columns. Behind the real ones stand dummies: one that goes with a real unit costs nothing, two of
/// them cost `far`.
struct Costs<'c> {
    /// Real rows × `width`.
    real: &'c [f64],
    width: usize,
    /// What a dummy row costs with each real column.
    dummy: Vec<f64>,
    far: f64,
    rows: usize,
    columns: usize,
}

/// The costs of one row.
#[derive(Clone, Copy)]
struct Row<'c> {
    /// With the real columns.
    real: &'c [f64],
    /// With each of the others.
    others: f64,
}

impl Costs<'_> {
    fn row(&self, i: usize) -> Row<'_> {
        match self.real.get(i * self.width..(i + 1) * self.width) {
            Some(real) => Row { real, others: 0.0 },
            None => Row { real: &self.dummy, others: self.far },
        }
    }
}

impl Row<'_> {
    fn at(&self, j: usize) -> f64 {
        self.real.get(j).copied().unwrap_or(self.others)
    }
}

/// Not in a pair.
const NONE: usize = usize::MAX;

/// Two rounds in which every row without a pair takes its cheapest column and pays so much more for it that its second
/// choice would cost the same; who had it before looks again ("augmenting row reduction").
fn augmenting_row_reduction(costs: &Costs, v: &mut [f64], row_of: &mut [usize], column_of: &mut [usize]) {
    let mut free: Vec<usize> = (0..column_of.len()).filter(|&i| column_of[i] == NONE).collect();
    // Rounding could make two rows outbid each other by nothing for ever.
    let mut patience = 10 * costs.columns;
    for _ in 0..2 {
        let mut queue: Vec<usize> = std::mem::take(&mut free);
        queue.reverse();
        while let Some(row) = queue.pop() {
            let (mut first, mut lowest, mut second, mut next) = (NONE, f64::INFINITY, NONE, f64::INFINITY);
            let own = costs.row(row);
            for (j, price) in v.iter().enumerate() {
                let reduced = own.at(j) - price;
                if reduced < lowest {
                    (second, next) = (first, lowest);
                    (first, lowest) = (j, reduced);
                } else if reduced < next {
                    (second, next) = (j, reduced);
                }
            }
            if first == NONE || second == NONE || patience == 0 {
                free.push(row);
                continue;
            }
            patience -= 1;
            let outbids = v[first] - (next - lowest) < v[first];
            if outbids {
                v[first] -= next - lowest;
            } else if row_of[first] != NONE {
                first = second;
            }
            let loser = std::mem::replace(&mut row_of[first], row);
            column_of[row] = first;
            if loser != NONE {
                column_of[loser] = NONE;
                if outbids { queue.push(loser) } else { free.push(loser) }
            }
        }
    }
}

/// The assignment with the smallest sum that uses every unit of the smaller side, by row: shortest augmenting paths
/// after a reduction of columns and rows (Jonker and Volgenant 1987).
pub fn assignment(costs: &[f64], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    if rows > columns {
        let mut turned = vec![0.0; costs.len()];
        for i in 0..rows {
            for j in 0..columns {
                turned[j * rows + i] = costs[i * columns + j];
            }
        }
        let mut pairs: Vec<_> = assignment(&turned, columns, rows).into_iter().map(|(i, j)| (j, i)).collect();
        pairs.sort_unstable();
        return pairs;
    }
    assign(&Costs { real: costs, width: columns, dummy: Vec::new(), far: 0.0, rows, columns })
}

/// The same for costs with dummies; there are no more rows than columns.
fn assign(costs: &Costs) -> Vec<(usize, usize)> {
    let (rows, columns) = (costs.rows, costs.columns);
    let cost = |i: usize, j: usize| costs.row(i).at(j);
    // Prices: cost(i, j) ≥ u[i] + v[j], with equality for pairs. Free columns keep v = 0 where columns outnumber rows.
    let mut v = vec![0.0; columns];
    let (mut row_of, mut column_of) = (vec![NONE; columns], vec![NONE; rows]);
    if rows == columns {
        for j in (0..columns).rev() {
            let best = (0..rows).min_by(|&a, &b| cost(a, j).total_cmp(&cost(b, j))).unwrap_or(0);
            v[j] = cost(best, j);
            if column_of[best] == NONE {
                (column_of[best], row_of[j]) = (j, best);
            }
        }
        augmenting_row_reduction(costs, &mut v, &mut row_of, &mut column_of);
    }
    let (mut distance, mut before, mut done) = (vec![0.0; columns], vec![0; columns], vec![false; columns]);
    let mut open: Vec<usize> = Vec::with_capacity(columns);
    for free in 0..rows {
        if column_of[free] != NONE {
            continue;
        }
        distance.fill(f64::INFINITY);
        done.fill(false);
        open.clear();
        open.extend(0..columns);
        let (mut row, mut base) = (free, 0.0);
        let mut settled: Vec<usize> = Vec::new();
        let end = loop {
            // The price of a row follows from its pair.
            let reduced = column_of[row];
            let shift = if reduced == NONE { 0.0 } else { cost(row, reduced) - v[reduced] };
            let own = costs.row(row);
            let (mut nearest, mut place, mut lowest) = (0, NONE, f64::INFINITY);
            for (k, &j) in open.iter().enumerate() {
                let through = base + own.at(j) - v[j] - shift;
                if through < distance[j] {
                    distance[j] = through;
                    before[j] = row;
                }
                let better =
                    distance[j] < lowest || distance[j] == lowest && row_of[j] == NONE && row_of[nearest] != NONE;
                if place == NONE || better {
                    (nearest, place, lowest) = (j, k, distance[j]);
                }
            }
            open.swap_remove(place);
            base = lowest;
            done[nearest] = true;
            if row_of[nearest] == NONE {
                break nearest;
            }
            settled.push(nearest);
            row = row_of[nearest];
        };
        for &j in &settled {
            v[j] += distance[j] - base;
        }
        // Turn the path around.
        let mut j = end;
        loop {
            let i = before[j];
            row_of[j] = i;
            std::mem::swap(&mut column_of[i], &mut j);
            if i == free {
                break;
            }
        }
    }
    column_of.into_iter().enumerate().filter(|&(_, j)| j != NONE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;
    use proptest::prelude::*;

    fn sum(costs: &[f64], columns: usize, pairs: &[(usize, usize)]) -> f64 {
        pairs.iter().map(|&(i, j)| costs[i * columns + j]).sum()
    }

    /// The smallest sum of `count` pairs, by trying all.
    fn exhaustive(costs: &[f64], rows: usize, columns: usize, count: usize, row: usize, used: u32) -> f64 {
        if count == 0 {
            return 0.0;
        }
        if row == rows {
            return f64::INFINITY;
        }
        let skip = exhaustive(costs, rows, columns, count, row + 1, used);
        (0..columns).filter(|j| used & (1 << j) == 0).fold(skip, |best, j| {
            let rest = exhaustive(costs, rows, columns, count - 1, row + 1, used | (1 << j));
            best.min(costs[row * columns + j] + rest)
        })
    }

    proptest! {
        #[test]
        fn best_pairs_are_the_best(rows in 1usize..6, columns in 1usize..6, count in 0usize..6, seed: u64, ties: bool) {
            let count = count.min(rows).min(columns);
            let number = |i: u64| { let x = f64::from(random::normal(seed, i)); if ties { x.round() } else { x } };
            let costs: Vec<f64> = (0..(rows * columns) as u64).map(number).collect();
            let pairs = optimal_pairs(&costs, columns, count);
            prop_assert_eq!(pairs.len(), count);
            let distinct = |f: fn(&(usize, usize)) -> usize| pairs.iter().map(f)
            .collect::<std::collections::BTreeSet<_>>().len();
            prop_assert_eq!((distinct(|p| p.0), distinct(|p| p.1)), (count, count));
            let expected = exhaustive(&costs, rows, columns, count, 0, 0);
            prop_assert!((sum(&costs, columns, &pairs) - expected).abs() < 1e-9);
            let greedy = greedy_pairs(&costs, columns, count);
            prop_assert_eq!(greedy.len(), count);
            prop_assert!(sum(&costs, columns, &greedy) >= expected - 1e-9);
        }
    }

    /// A table with all dummies in it gives the same pairs, ties included.
    #[test]
    fn dummies_need_no_table() {
        for (seed, (rows, columns, count)) in (1..).zip([(30, 30, 15), (20, 45, 7), (45, 20, 19), (9, 300, 4)]) {
            for ties in [false, true] {
                let number = |i: u64| {
                    let x = 3.0 * f64::from(random::uniform(seed, i));
                    if ties { x.floor() } else { x }
                };
                let costs: Vec<f64> = (0..(rows * columns) as u64).map(number).collect();
                let size = rows + columns - count;
                let far = 1.0 + costs.iter().fold(0.0f64, |m, c| m.max(c.abs())) * (size as f64 + 1.0);
                let cost = |i: usize, j: usize| match (i < rows, j < columns) {
                    (true, true) => costs[i * columns + j],
                    (false, false) => far,
                    _ => 0.0,
                };
                let all: Vec<f64> = (0..size * size).map(|k| cost(k / size, k % size)).collect();
                let mut expected = assignment(&all, size, size);
                expected.retain(|&(i, j)| i < rows && j < columns);
                assert_eq!(optimal_pairs(&costs, columns, count), expected, "{count} of {rows} and {columns}");
            }
        }
    }

    #[test]
    fn larger_assignments_are_never_worse_than_greedy() {
        let n = 120;
        let costs: Vec<f64> = (0..(n * n) as u64).map(|i| f64::from(random::uniform(5, i))).collect();
        let (best, greedy) = (assignment(&costs, n, n), greedy_pairs(&costs, n, n));
        assert_eq!(best.len(), n);
        assert!(sum(&costs, n, &best) < 0.9 * sum(&costs, n, &greedy));
    }
}
