//! The figures in what `cargo run --release -p spec-cpu --example kernels` prints.

use super::Figure;

/// Times by name. Lines of another form are no figures.
pub(crate) fn figures(printed: &str) -> Vec<(Figure, f64)> {
    let mut figures = Vec::new();
    let mut array = "";
    for line in printed.lines() {
        if let Some((name, rest)) = line.split_once(": ")
            && rest.contains("packed at")
        {
            array = name;
        } else if let Some((heading, cells)) = line.split_once(" cached,") {
            figures.extend(cached(heading, cells));
        } else if let Some(rows) = line.strip_prefix("  ") {
            figures.extend(rows_of(array, rows));
        } else if let Some(rest) = line.strip_prefix("parallel region ") {
            figures.extend(micros("parallel region", rest));
        } else if let Some((name, rest)) = line.split_once(": ") {
            figures.extend(micros(name, rest));
        }
    }
    figures
}

/// `   8 rows     50.1 ms (    49.0) ...`: the sum of best times in parentheses, which other processes disturb least.
fn rows_of(array: &str, line: &str) -> Option<(Figure, f64)> {
    let (rows, rest) = line.split_once(" rows ")?;
    let best = rest.split_once('(')?.1.split_once(')')?.0.trim().parse().ok()?;
    Some((Figure { name: format!("{array}, {} rows, best", rows.trim()), unit: "ms" }, best))
}

/// ` 1 thread, peak 400 GMAC/s:  1: 95 GMAC/s 53.4 GB/s  2: ...`, as time per thousand million multiply-adds.
fn cached(heading: &str, cells: &str) -> Vec<(Figure, f64)> {
    let cells = cells.split_once("GMAC/s:").map_or("", |(_, cells)| cells);
    let of_cell = |cell: &str| {
        let (rows, rest) = cell.trim().split_once(':')?;
        let rate: f64 = rest.trim().split(' ').next()?.parse().ok()?;
        (rate > 0.0).then(|| (Figure { name: format!("{heading}, cached, {rows} rows"), unit: "ms/GMAC" }, 1e3 / rate))
    };
    // The speed at a cell's end is derived from the rate.
    cells.split("GB/s").filter_map(of_cell).collect()
}

/// `0.25 us`, with anything behind it.
fn micros(name: &str, text: &str) -> Option<(Figure, f64)> {
    let (value, _) = text.split_once(" us")?;
    Some((Figure { name: name.to_owned(), unit: "us" }, value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn every_kind_of_line_becomes_a_time() {
        let printed = "\
2 threads, AVX-512 VNNI
read bandwidth 30.1 GB/s
peak int8 740 GMAC/s
parallel region 1.10 us (best), 1.25 us (median)
rms_norm of 1536: 0.40 us
Q4_K cached, 1 thread, peak 370 GMAC/s:  1: 100 GMAC/s 56.2 GB/s  8: 250 GMAC/s 17.6 GB/s
Q4_K: 0.60 GB, packed at 1.20 GB/s
     1 rows     25.0 ms (    24.1)    24.0 GB/s (  24.9)      43 GMAC/s (    44)  x1.00 (1.00)
     8 rows     31.0 ms (    29.5)    19.4 GB/s (  20.3)     277 GMAC/s (   291)  x1.24 (1.22)
";
        let found: Vec<(String, f64)> =
            figures(printed).into_iter().map(|(figure, value)| (figure.name, value)).collect();
        let expected = [
            ("parallel region", 1.1),
            ("rms_norm of 1536", 0.4),
            ("Q4_K, cached, 1 rows", 10.0),
            ("Q4_K, cached, 8 rows", 4.0),
            ("Q4_K, 1 rows, best", 24.1),
            ("Q4_K, 8 rows, best", 29.5),
        ];
        let expected: Vec<(String, f64)> = expected.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(found, expected);
        assert!(figures("error: nothing here\n").is_empty());
    }
}
