//! Times the matrix kernels over arrays that no cache holds.
//!
//! For each weight type: milliseconds per pass over the array, GB/s of file bytes at one row, GMAC/s at more. Row counts are
//! interleaved round-robin, so that a change of the machine's speed hits all of them. Figures are medians over rounds; in parentheses
//! stands the sum of each matrix's best time, which a machine that other processes use can still show.
//!
//! `cargo run --release -p spec-cpu --example kernels -- [threads] [types, e.g. Q4_K,Q6_K] [rows, e.g. 1,8] [rounds]`

use std::time::Instant;

use spec_cpu::{
    ActivationForm, CpuError, Isa, PackedMatrix, Pool, Product, QuantizedRows, WeightMemory, WeightType, matmul, probe,
    vector,
};

/// Weights per array: 0.6 GB at 4.5 bits.
const WEIGHTS: usize = 1 << 30;
/// Inputs of most matrices of a model of 1.5 billion weights.
const INPUTS: usize = 1536;
/// Matrices per array: as many outputs as such a model's feed-forward layers.
const OUTPUTS: usize = 8960;

fn main() -> Result<(), CpuError> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2);
    let types = arguments.next().unwrap_or_else(|| "Q4_1,Q5_0,Q8_0,Q4_K,Q6_K".into());
    let rows = arguments.next().unwrap_or_else(|| "1,2,4,8,16,512".into());
    let rounds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(9);
    let rows: Vec<usize> = rows.split(',').filter_map(|text| text.parse().ok()).collect();

    let isa = Isa::from_environment()?;
    let pool = Pool::new(threads)?;
    println!("{} threads, {}", pool.threads(), isa.name());
    println!("read bandwidth {:.1} GB/s", probe::read_bandwidth(isa, &pool)? / 1e9);
    println!("peak int8 {:.0} GMAC/s", probe::peak_int8_macs(isa, &pool) / 1e9);
    region(&pool);
    vectors(isa);

    let selected = |ty: &WeightType| types.split(',').any(|name| name == format!("{ty:?}"));
    for ty in WeightType::ALL.into_iter().filter(selected) {
        cached(isa, ty)?;
    }
    for ty in WeightType::ALL.into_iter().filter(selected) {
        array(isa, &pool, ty, &rows, rounds)?;
    }
    Ok(())
}

/// What a region costs beyond its work: every thread has one task of a fixed time, and all start at once in an ideal one.
fn region(pool: &Pool) {
    const TASK: std::time::Duration = std::time::Duration::from_micros(20);
    let (least, median) = best(5000, || {
        pool.run(pool.threads(), |_| {
            let start = Instant::now();
            while start.elapsed() < TASK {
                std::hint::spin_loop();
            }
        });
    });
    let cost = |time: f64| (time - TASK.as_secs_f64()) * 1e6;
    println!("parallel region {:.2} us (best), {:.2} us (median)", cost(least), cost(median));
}

/// The best and the median of `rounds` runs, in seconds.
fn best(rounds: usize, mut run: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[rounds / 2])
}

fn vectors(isa: Isa) {
    let x: Vec<f32> = (0..8960).map(|index| (index % 100) as f32 * 0.1 - 5.0).collect();
    let mut out = x.clone();
    let mut report = |name: &str, count: usize, run: &mut dyn FnMut(&mut [f32])| {
        let (least, _) = best(2000, || run(&mut out[..count]));
        println!("{name} of {count}: {:.2} us", least * 1e6);
    };
    report("rms_norm", 1536, &mut |out| {
        vector::norm(isa, vector::Norm::Rms { weight: &x[..1536], epsilon: 1e-6 }, out);
    });
    report("silu_mul", 8960, &mut |out| vector::gated(isa, vector::Nonlinearity::Silu, &x, &x, out));
    report("exp_sum", 8960, &mut |out| {
        out.copy_from_slice(&x);
        std::hint::black_box(vector::exp_sum(isa, out, 5.0));
    });
    for form in [ActivationForm::Block32, ActivationForm::Block256] {
        let pool = Pool::new(1).expect("a pool of the caller's thread");
        let mut rows = QuantizedRows::new(form, x.len()).expect("whole blocks");
        let (least, _) = best(2000, || rows.quantize(isa, &pool, 1, &x).expect("one row"));
        println!("quantize {form:?} of {}: {:.2} us", x.len(), least * 1e6);
        let (least, _) =
            best(2000, || rows.quantize_gated(isa, &pool, 1, vector::Nonlinearity::Silu, (&x, &x)).expect("one row"));
        println!("quantize_gated {form:?} of {}: {:.2} us", x.len(), least * 1e6);
    }
}

/// One thread over weights that stay in its second-level cache: what the instructions alone cost.
fn cached(isa: Isa, ty: WeightType) -> Result<(), CpuError> {
    const OUTPUTS: usize = 256;
    let pool = Pool::new(1)?;
    let bytes = vec![0x2c_u8; OUTPUTS * INPUTS / ty.block() * ty.block_bytes()];
    let matrix = PackedMatrix::pack(ty, OUTPUTS, INPUTS, &bytes, &pool)?;
    let mut activations = QuantizedRows::new(ty.activation_form(), INPUTS)?;
    let peak = (0..200).map(|_| probe::peak_int8_macs_for(isa, &pool, 2000)).fold(0.0, f64::max);
    print!("{ty:?} cached, 1 thread, peak {:.0} GMAC/s:", peak / 1e9);
    for rows in [1, 2, 4, 8, 16, 64] {
        let values: Vec<f32> = (0..rows * INPUTS).map(|i| (i % 199) as f32 * 0.01 - 1.0).collect();
        let mut output = vec![0.0; rows * OUTPUTS];
        activations.quantize(isa, &pool, rows, &values)?;
        let (least, _) = best(2000, || {
            matmul(isa, &pool, &mut [Product::new(&matrix, &activations, &mut output)]).expect("shapes fit");
        });
        let macs = (rows * INPUTS * OUTPUTS) as f64 / least / 1e9;
        let speed = matrix.file_bytes() as f64 / least / 1e9;
        print!("  {rows}: {macs:.0} GMAC/s {speed:.1} GB/s");
    }
    println!();
    Ok(())
}

fn array(isa: Isa, pool: &Pool, ty: WeightType, rows: &[usize], rounds: usize) -> Result<(), CpuError> {
    let count = WEIGHTS.div_ceil(INPUTS * OUTPUTS);
    let blocks = OUTPUTS * INPUTS / ty.block();
    // Any codes will do; scales must be ordinary numbers, and 0x2c2c is one.
    let bytes = vec![0x2c_u8; blocks * ty.block_bytes()];
    let memory = WeightMemory::new();
    let start = Instant::now();
    let matrices = (0..count)
        .map(|_| PackedMatrix::pack_in(&memory, ty, OUTPUTS, INPUTS, &bytes, pool))
        .collect::<Result<Vec<_>, _>>()?;
    let packing = (bytes.len() * count) as f64 / start.elapsed().as_secs_f64();
    let file_bytes: usize = matrices.iter().map(PackedMatrix::file_bytes).sum();
    let macs = (count * INPUTS * OUTPUTS) as f64;
    println!("{ty:?}: {:.2} GB, packed at {:.2} GB/s", file_bytes as f64 / 1e9, packing / 1e9);

    let most = rows.iter().copied().max().unwrap_or(1);
    let values: Vec<f32> = (0..most * INPUTS).map(|i| (i * 7 % 199) as f32 * 0.01 - 1.0).collect();
    let mut output = vec![0.0; most * OUTPUTS];
    let mut activations = QuantizedRows::new(ty.activation_form(), INPUTS)?;
    let mut times = vec![Vec::with_capacity(rounds); rows.len()];
    let mut bests = vec![vec![f64::MAX; matrices.len()]; rows.len()];
    for round in 0..rounds {
        for ((&rows, times), bests) in rows.iter().zip(&mut times).zip(&mut bests) {
            if rows > 64 && round % 4 != 0 {
                continue;
            }
            let mut total = 0.0;
            for (matrix, best) in matrices.iter().zip(bests) {
                let start = Instant::now();
                activations.quantize(isa, pool, rows, &values[..rows * INPUTS])?;
                matmul(isa, pool, &mut [Product::new(matrix, &activations, &mut output)])?;
                let elapsed = start.elapsed().as_secs_f64();
                total += elapsed;
                *best = best.min(elapsed);
            }
            times.push(total);
        }
    }
    let mut single = None;
    for ((&rows, times), bests) in rows.iter().zip(&mut times).zip(&bests) {
        times.sort_by(f64::total_cmp);
        let (least, median): (f64, f64) = (bests.iter().sum(), times[times.len() / 2]);
        let (one_least, one_median) = *single.get_or_insert((least, median));
        println!(
            "  {rows:4} rows {:8.1} ms ({:8.1})  {:6.1} GB/s ({:6.1})  {:6.0} GMAC/s ({:6.0})  x{:.2} ({:.2})",
            median * 1e3,
            least * 1e3,
            file_bytes as f64 / median / 1e9,
            file_bytes as f64 / least / 1e9,
            macs * rows as f64 / median / 1e9,
            macs * rows as f64 / least / 1e9,
            median / one_median,
            least / one_least,
        );
    }
    Ok(())
}
