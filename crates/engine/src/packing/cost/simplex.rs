//! A small linear program, solved by the simplex method on a dense table.
//!
//! Only programs whose origin is feasible are asked here: maximise `objective · x` where every row says
//! `coefficients · x ≤ limit` with `limit ≥ 0`, and `x ≥ 0`. The answer is feasible up to rounding even when the
//! number of steps runs out; callers that prove something from it repair the rounding themselves.
#![expect(
    clippy::indexing_slicing,
    reason = "every row of the table has the same length, and positions come from ranges over it"
)]

/// What counts as zero in a table whose entries are about one.
const EPSILON: f64 = 1e-11;

/// `coefficients · x ≤ limit`.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) coefficients: Vec<f64>,
    pub(super) limit: f64,
}

/// An `x` that maximises the objective, or a feasible one where the steps run out.
pub(super) fn maximise(objective: &[f64], rows: &[Row]) -> Vec<f64> {
    let columns = objective.len();
    // Row by row the basic variables in terms of the others, with the limit last; then the objective.
    let mut table: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let mut cells = row.coefficients.clone();
            cells.resize(columns, 0.0);
            cells.push(row.limit.max(0.0));
            cells
        })
        .collect();
    let mut gain: Vec<f64> = objective.to_vec();
    // Variables from `columns` on are the slacks of the rows.
    let mut outside: Vec<usize> = (0..columns).collect();
    let mut basis: Vec<usize> = (columns..columns + rows.len()).collect();
    let steps = 50 * (columns + rows.len()) + 1000;
    for step in 0..steps {
        // The steepest column first; towards the end the first one, which cannot cycle.
        let improving = (0..columns).filter(|at| gain[*at] > EPSILON);
        let entering = if step < steps / 2 {
            improving.max_by(|a, b| gain[*a].total_cmp(&gain[*b]))
        } else {
            improving.min_by_key(|at| outside[*at])
        };
        let Some(column) = entering else { break };
        let ratio = |row: &usize| table[*row][columns] / table[*row][column];
        let leaving = (0..table.len())
            .filter(|row| table[*row][column] > EPSILON)
            .min_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(basis[*a].cmp(&basis[*b])));
        // Without a limit on the column the program is unbounded; the caller's rows do not let that happen.
        let Some(row) = leaving else {
            gain[column] = 0.0;
            continue;
        };
        pivot(&mut table, &mut gain, row, column);
        std::mem::swap(&mut outside[column], &mut basis[row]);
    }
    let mut solution = vec![0.0; columns];
    for (row, variable) in table.iter().zip(&basis) {
        if *variable < columns {
            solution[*variable] = row[columns].max(0.0);
        }
    }
    solution
}

/// Exchanges the basic variable of `row` for the one of `column`.
fn pivot(table: &mut [Vec<f64>], gain: &mut [f64], row: usize, column: usize) {
    let mut pivot_row = std::mem::take(&mut table[row]);
    let scale = 1.0 / pivot_row[column];
    pivot_row[column] = 1.0;
    for cell in &mut pivot_row {
        *cell *= scale;
    }
    for other in table.iter_mut().filter(|other| !other.is_empty()) {
        let factor = other[column];
        if factor == 0.0 {
            continue;
        }
        other[column] = 0.0;
        for (cell, of_pivot) in other.iter_mut().zip(&pivot_row) {
            *cell -= factor * of_pivot;
        }
    }
    let factor = gain[column];
    gain[column] = 0.0;
    for (cell, of_pivot) in gain.iter_mut().zip(&pivot_row) {
        *cell -= factor * of_pivot;
    }
    table[row] = pivot_row;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(coefficients: &[f64], limit: f64) -> Row {
        Row {
            coefficients: coefficients.to_vec(),
            limit,
        }
    }

    #[test]
    fn the_best_corner_is_found() {
        let rows = [
            row(&[1.0, 1.0], 4.0),
            row(&[1.0, 3.0], 6.0),
            row(&[1.0, 0.0], 3.5),
        ];
        let best = maximise(&[3.0, 5.0], &rows);
        assert!(
            (best[0] - 3.0).abs() < 1e-9 && (best[1] - 1.0).abs() < 1e-9,
            "{best:?}"
        );
    }

    #[test]
    fn rows_that_allow_nothing_leave_nothing() {
        let rows = [
            row(&[1.0, 1.0], 0.0),
            row(&[2.0, 1.0], 0.0),
            row(&[1.0, 3.0], 0.0),
        ];
        assert_eq!(maximise(&[1.0, 1.0], &rows), [0.0, 0.0]);
    }

    #[test]
    fn a_degenerate_program_ends() {
        // Beale's example, on which the steepest column alone goes round for ever.
        let rows = [
            row(&[0.25, -60.0, -0.04, 9.0], 0.0),
            row(&[0.5, -90.0, -0.02, 3.0], 0.0),
            row(&[0.0, 0.0, 1.0, 0.0], 1.0),
        ];
        let objective = [0.75, -150.0, 0.02, -6.0];
        let best = maximise(&objective, &rows);
        let value: f64 = objective.iter().zip(&best).map(|(a, b)| a * b).sum();
        assert!((value - 0.05).abs() < 1e-9, "{value} at {best:?}");
    }
}
