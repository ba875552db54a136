//! Products of f32 vectors, in one order whatever the shape around them.

/// Columns of a weight that are widened at a time.
const LANES: usize = 32;

/// The sum of products, over lanes `i mod 32`, each ascending, then over the lanes in order.
#[inline(always)]
fn dot_lanes(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_blocks.remainder(), b_blocks.remainder());
    for (a, b) in a_blocks.zip(b_blocks) {
        for lane in 0..LANES {
            lanes[lane] = a[lane].mul_add(b[lane], lanes[lane]);
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = a.mul_add(*b, *lane);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_fma(a: &[f32], b: &[f32]) -> f32 {
    dot_lanes(a, b)
}

/// The same sums without fused steps, for processors that would emulate those.
fn dot_plain(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

/// Which way of multiplying this processor has.
#[derive(Clone, Copy)]
pub(crate) struct Dot(fn(&[f32], &[f32]) -> f32);

impl Dot {
    pub(crate) fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            fn dot(a: &[f32], b: &[f32]) -> f32 {
                // SAFETY: this function is handed out only where both features were found.
                unsafe { dot_fma(a, b) }
            }
            return Self(dot);
        }
        if cfg!(target_arch = "aarch64") { Self(dot_lanes) } else { Self(dot_plain) }
    }

    /// The sum of products of two vectors of one length.
    pub(crate) fn of(self, a: &[f32], b: &[f32]) -> f32 {
        (self.0)(a, b)
    }
}

/// Multiply-adds below which a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 1 << 22;

/// Runs `work` on ranges of `0..count`, on several threads when there is enough of it. Each index is worked on alone,
/// so that results do not depend on how many threads there are.
pub(crate) fn in_parallel(count: usize, multiply_adds: usize, work: impl Fn(std::ops::Range<usize>) + Sync) {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = available.min(multiply_adds / WORTH_A_THREAD).clamp(1, count.max(1));
    if threads == 1 {
        return work(0..count);
    }
    let share = count.div_ceil(threads);
    std::thread::scope(|scope| {
        for start in (0..count).step_by(share).skip(1) {
            let work = &work;
            scope.spawn(move || work(start..(start + share).min(count)));
        }
        work(0..share);
    });
}
