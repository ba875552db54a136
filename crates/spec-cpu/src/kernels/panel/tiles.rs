//! Tiles of AMX: several rows times a panel of super-blocks.
//!
//! A tile instruction multiplies sixteen rows of 64 activations with 64 codes of each of sixteen outputs and adds integers. Sub-blocks have
//! scales of their own, for each 32 or 16 inputs: tiles of plain dot products would have to leave the unit that often, which takes as long
//! as computing them. So codes are multiplied with their integer scales first, and a tile collects a whole super-block. The products
//! take more than a byte: they lie in two planes of bytes, `low + (high << SHIFT)`, each with a tile of sums.
//!
//! Kernels of vectors form the same integers ([`Simd::EXACT`]), and the floats are computed from them alike.

use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use super::Panel;
use super::super_block::{ActivationSums, Q4K, Q5K, Q6K, Scales, SuperBlock};
use crate::activation::{MAX_ROW_TILE, Tile};
use crate::kernels::Sums;
use crate::kernels::avx512::{Zmm, run_exact};
use crate::kernels::simd::Simd;
use crate::packed::{LANES, WeightType, q4_k, q6_k, super_block_bytes};
use crate::{Amx, PackedMatrix};

/// Tiles of rows that are multiplied with the same codes: as many as the unit has tiles for their sums.
pub(in crate::kernels) const TOGETHER: usize = 2;

/// Panels whose super-blocks are multiplied by turns, while the activations of a block of inputs are in the first-level cache.
pub(in crate::kernels) const PANELS: usize = 4;

/// Whether `rows` rows are multiplied with weights of this type by tiles: fewer than eight vectors multiply as fast.
pub(in crate::kernels) fn multiplies(ty: WeightType, rows: usize) -> bool {
    matches!(ty, WeightType::Q4_K | WeightType::Q5_K | WeightType::Q6_K) && rows >= 8
}

/// Multiplies a tile of few rows with a panel by vectors, to the bits of tiles if those multiply more rows.
pub(in crate::kernels) fn few_rows(token: Amx, ty: WeightType, panel: &[u8], tile: &Tile<'_>, sums: &mut Sums) {
    macro_rules! by_rows {
        ($($rows:literal)*) => {
            match tile.rows {
                // SAFETY: the token proves support.
                $($rows => unsafe { run_exact(token, Panel::<$rows> { ty, panel, tile, sums }) },)*
                rows => unreachable!("a tile of {rows} rows"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7);
}

/// Multiply-adds of bytes by tiles, operands in the unit, this many rounds of them; returns how many.
pub(in crate::kernels) fn spin(token: Amx, rounds: usize) -> u64 {
    let _unit = Unit::new(token, MAX_ROW_TILE);
    for _ in 0..rounds {
        // SAFETY: the token proves support, and the unit is set up.
        unsafe {
            asm!(
                "tdpbsud tmm0, tmm4, tmm6",
                "tdpbsud tmm1, tmm4, tmm7",
                "tdpbsud tmm2, tmm5, tmm6",
                "tdpbsud tmm3, tmm5, tmm7",
                options(nostack, preserves_flags, nomem)
            );
        }
    }
    (rounds * 4 * MAX_ROW_TILE * LANES * 64) as u64
}

/// The unit of this thread, set up for tiles of so many rows until the value is dropped.
pub(in crate::kernels) struct Unit {
    token: Amx,
    rows: usize,
    /// The processor's tiles are a thread's own.
    of_thread: PhantomData<*const ()>,
}

/// What lies between the steps of a product. Tiles are not loaded from stores under way, nor vectors from stores of tiles: what a step
/// writes is read steps later.
#[repr(C, align(64))]
struct Scratch {
    /// Of the step that is multiplied and of the next, which is expanded meanwhile, by turns.
    planes: [StepPlanes; 2],
    /// Sums over a super-block by plane, for each tile of rows, of this job and of the one before.
    dots: [[[[__m512i; MAX_ROW_TILE]; 2]; TOGETHER]; 2],
    sums: [GroupSums; PANELS],
}

/// The sums of a panel: `[tile][row][output]`.
pub(in crate::kernels) type GroupSums = [Sums; TOGETHER];

/// Codes of 64 inputs times their scales, in two planes: for each four inputs the vector of sixteen outputs.
type StepPlanes = [[__m512i; 16]; 2];

/// How many super-blocks ahead weights are fetched into the first and into the second-level cache.
const NEAR: usize = 2;
const FAR: usize = 4;

impl Scratch {
    // SAFETY: zeros are vectors.
    const EMPTY: Self = unsafe { std::mem::zeroed() };
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::EMPTY) };
}

/// What `ldtilecfg` reads: palette 1, then the bytes of a row and the rows of each tile.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Unit {
    pub(in crate::kernels) fn new(token: Amx, rows: usize) -> Self {
        assert!((1..=MAX_ROW_TILE).contains(&rows), "a tile of {rows} rows");
        let mut shapes = Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for tile in 0..8 {
            shapes.row_bytes[tile] = 64;
            // Sums and activations in tiles 0 to 5; codes in the others.
            shapes.rows[tile] = if tile < 6 { rows as u8 } else { 16 };
        }
        // SAFETY: the token proves support, and the shapes are legal.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags, readonly)) };
        Self { token, rows, of_thread: PhantomData }
    }

    /// Multiplies tiles of rows, of as many rows each as the unit was set up for or more, with the panels; `take` is given each panel and its
    /// sums. What lies behind the panels is fetched meanwhile.
    pub(in crate::kernels) fn multiply(
        &self,
        weights: &PackedMatrix,
        panels: Range<usize>,
        tiles: &[Tile<'_>],
        mut take: impl FnMut(usize, &GroupSums),
    ) {
        assert!((1..=TOGETHER).contains(&tiles.len()));
        let blocks = tiles[0].blocks;
        for tile in tiles {
            assert!(tile.blocks == blocks && (self.rows..=MAX_ROW_TILE).contains(&tile.rows));
            assert!(tile.has_super_blocks(tile.rows));
        }
        let ty = weights.weight_type();
        assert!(weights.panel_bytes() >= blocks * super_block_bytes(ty));
        assert!(!panels.is_empty() && panels.end <= weights.panels());
        SCRATCH.with_borrow_mut(|scratch| {
            for first in panels.clone().step_by(PANELS) {
                let group = first..panels.end.min(first + PANELS);
                let order = Order {
                    panel: weights.panel(first).as_ptr(),
                    panel_bytes: weights.panel_bytes(),
                    panels: group.len(),
                    blocks,
                    super_block: super_block_bytes(ty),
                };
                // SAFETY: the token proves support, the unit is set up, and the lengths were just checked.
                unsafe {
                    match ty {
                        WeightType::Q4_K => self.run::<Q4K>(order, tiles, scratch),
                        WeightType::Q5_K => self.run::<Q5K>(order, tiles, scratch),
                        WeightType::Q6_K => self.run::<Q6K>(order, tiles, scratch),
                        _ => unreachable!("{ty:?} is multiplied by vectors"),
                    }
                }
                group.zip(&scratch.sums).for_each(|(panel, sums)| take(panel, sums));
            }
        });
    }

    /// # Safety
    /// The super-blocks of `order` are of type `B`, and as many as the tiles have in each panel; the tiles' slices are complete.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn run<B: Planes>(&self, order: Order, tiles: &[Tile<'_>], scratch: &mut Scratch) {
        let simd = Zmm::<true>::new(self.token.vectors());
        let jobs = order.blocks * order.panels;
        let Scratch { planes, dots, sums } = scratch;
        let fours = self.rows.div_ceil(4);
        // SAFETY: the caller's contract; super-blocks are within the panels and the tiles.
        unsafe {
            let mut before = order.place(0);
            B::expand_step(simd, before.base, 0, &mut planes[0]);
            // Each job is a super-block, of which the sums are read in the next one.
            for job in 0..=jobs {
                let now = order.place(job);
                let [near, far] = [NEAR, FAR].map(|ahead| order.place(job + ahead).base);
                for step in 0..4 {
                    if job < jobs {
                        if step < 3 {
                            B::expand_step(simd, now.base, step + 1, &mut planes[(step + 1) % 2]);
                        } else if job + 1 < jobs {
                            B::expand_step(simd, order.place(job + 1).base, 0, &mut planes[0]);
                        }
                        let lines = B::BYTES / 64;
                        for line in step * lines / 4..(step + 1) * lines / 4 {
                            simd.prefetch::<false>(far.wrapping_add(line * 64));
                            simd.prefetch::<true>(near.wrapping_add(line * 64));
                        }
                        if step == 0 {
                            zero();
                        }
                        load(&planes[step % 2]);
                        let activations = |tile: &Tile<'_>| {
                            tile.codes.as_ptr().add(now.block * 8 * tile.rows).cast::<i8>().add(step * tile.rows * 64)
                        };
                        multiply::<B, 0>(activations(&tiles[0]));
                        if let Some(second) = tiles.get(1) {
                            multiply::<B, 1>(activations(second));
                        }
                        if step == 3 {
                            store::<0>(&mut dots[job % 2][0]);
                            if tiles.len() > 1 {
                                store::<1>(&mut dots[job % 2][1]);
                            }
                        }
                    }
                    if job > 0 && step < fours {
                        let rows = 4 * step..self.rows.min(4 * step + 4);
                        let dots = &dots[(job - 1) % 2];
                        for ((tile, dots), sums) in tiles.iter().zip(dots).zip(&mut sums[before.panel]) {
                            finish::<B>(simd, before, tile, rows.clone(), dots, sums);
                        }
                    }
                }
                before = now;
            }
        }
    }
}

/// Super-blocks of several panels: a block of inputs of all of them, then the next, so that activations stay in the first-level cache.
#[derive(Clone, Copy)]
struct Order {
    panel: *const u8,
    panel_bytes: usize,
    panels: usize,
    blocks: usize,
    super_block: usize,
}

/// A super-block among them.
#[derive(Clone, Copy)]
struct Place {
    base: *const u8,
    block: usize,
    panel: usize,
}

impl Order {
    /// Super-block number `job`; past the last one those of the panels behind these, which are fetched only.
    #[inline(always)]
    fn place(self, job: usize) -> Place {
        let (job, behind) = match job.checked_sub(self.blocks * self.panels) {
            Some(job) => (job, self.panels * self.panel_bytes),
            None => (job, 0),
        };
        let (block, panel) = (job / self.panels, job % self.panels);
        let at = behind + panel * self.panel_bytes + block * self.super_block;
        Place { base: self.panel.wrapping_add(at), block, panel }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: the token proves support. Tiles in use would be saved at every switch of threads.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

/// A type whose codes, times their scales, fit two planes of bytes. What is given serves codes of at most five bits with scales of six, as of
/// [`Minima`](super::super_block::Minima).
trait Planes: SuperBlock {
    /// Bits by which the high plane is shifted.
    const SHIFT: u32 = 3;
    /// Whether the high plane is signed; the low one never is.
    const SIGNED: bool = false;

    /// Multiplies codes and scales of the 64 inputs from `64 * step` on of the super-block at `base`.
    ///
    /// The upper and the lower three bits of a scale apart no product leaves its byte, and one instruction multiplies two.
    ///
    /// # Safety
    /// A super-block lies there, and `step` is below four.
    #[inline(always)]
    unsafe fn expand_step(simd: Zmm<true>, base: *const u8, step: usize, [low, high]: &mut StepPlanes) {
        // SAFETY: the token proves support; the caller's contract.
        unsafe {
            let three_bits = _mm512_set1_epi16(7);
            for half in 0..2 {
                let sub = step * 2 + half;
                let scales = simd.load_unsigned(base.add(q4_k::SCALES + sub * LANES));
                let scales = _mm512_or_si512(scales, _mm512_slli_epi32::<16>(scales));
                let (lower, upper) = (_mm512_and_si512(scales, three_bits), _mm512_srli_epi16::<3>(scales));
                for eight in 0..4 {
                    let (first, second) = Self::expand(simd, base.add(Self::CODES), sub, eight, 0);
                    let at = half * 8 + eight * 2;
                    low[at] = _mm512_mullo_epi16(first, lower);
                    high[at] = _mm512_mullo_epi16(first, upper);
                    low[at + 1] = _mm512_mullo_epi16(second, lower);
                    high[at + 1] = _mm512_mullo_epi16(second, upper);
                }
            }
        }
    }
}

impl Planes for Q4K {}

impl Planes for Q5K {}

impl Planes for Q6K {
    const SHIFT: u32 = 8;
    const SIGNED: bool = true;

    /// Codes of -32 to 31 times signed scales have fourteen bits.
    #[inline(always)]
    unsafe fn expand_step(simd: Zmm<true>, base: *const u8, step: usize, [low, high]: &mut StepPlanes) {
        /// `(a & mask) | b`
        const SELECT_OR: i32 = 0xea;
        // SAFETY: the token proves support; the caller's contract.
        unsafe {
            let zero_code = _mm512_set1_epi8(32);
            let (even, odd) = (_mm512_set1_epi16(0x00ff), _mm512_set1_epi16(-0x100));
            for quarter in 0..4 {
                let sub = step * 4 + quarter;
                let scales = simd.load_signed(base.add(q6_k::SCALES + sub * LANES).cast());
                let scales = _mm512_and_si512(scales, _mm512_set1_epi32(0xffff));
                let scales = _mm512_or_si512(scales, _mm512_slli_epi32::<16>(scales));
                for eight in 0..2 {
                    let (first, second) = Self::expand(simd, base.add(Self::CODES), sub, eight, 0);
                    for (half, codes) in [first, second].into_iter().enumerate() {
                        let codes = _mm512_sub_epi8(codes, zero_code);
                        let products =
                            _mm512_mullo_epi16(_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(codes)), scales);
                        let odd_products = _mm512_mullo_epi16(_mm512_srai_epi16::<8>(codes), scales);
                        let at = quarter * 4 + eight * 2 + half;
                        let moved = _mm512_slli_epi16::<8>(odd_products);
                        low[at] = _mm512_ternarylogic_epi32::<SELECT_OR>(products, even, moved);
                        let moved = _mm512_srli_epi16::<8>(products);
                        high[at] = _mm512_ternarylogic_epi32::<SELECT_OR>(odd_products, odd, moved);
                    }
                }
            }
        }
    }
}

/// Clears the sums.
///
/// # Safety
/// The unit is set up.
#[inline(always)]
unsafe fn zero() {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nostack, preserves_flags, nomem)
        );
    }
}

/// Loads the planes of a step.
///
/// # Safety
/// The unit is set up.
#[inline(always)]
unsafe fn load(planes: &StepPlanes) {
    // SAFETY: the caller's contract; a plane is sixteen lines.
    unsafe {
        asm!(
            "tileloadd tmm6, [{planes} + {line}]",
            "tileloadd tmm7, [{planes} + {line} + 1024]",
            planes = in(reg) planes,
            line = in(reg) 64_usize,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Adds the products of tile `TILE` of the two with the planes that were loaded to its sums.
///
/// # Safety
/// The unit is set up; as many rows of 64 activations are readable.
#[inline(always)]
unsafe fn multiply<B: Planes, const TILE: usize>(activations: *const i8) {
    macro_rules! multiply {
        ($low:literal, $high:literal, $rows:literal, $signed:literal) => {
            asm!(
                concat!("tileloadd ", $rows, ", [{activations} + {line}]"),
                concat!("tdpbsud ", $low, ", ", $rows, ", tmm6"),
                concat!($signed, " ", $high, ", ", $rows, ", tmm7"),
                activations = in(reg) activations,
                line = in(reg) 64_usize,
                options(nostack, preserves_flags, readonly)
            )
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        match (TILE, B::SIGNED) {
            (0, false) => multiply!("tmm0", "tmm1", "tmm4", "tdpbsud"),
            (0, true) => multiply!("tmm0", "tmm1", "tmm4", "tdpbssd"),
            (_, false) => multiply!("tmm2", "tmm3", "tmm5", "tdpbsud"),
            (_, true) => multiply!("tmm2", "tmm3", "tmm5", "tdpbssd"),
        }
    }
}

/// Stores the sums of tile `TILE` of the two, by plane.
///
/// # Safety
/// The unit is set up.
#[inline(always)]
unsafe fn store<const TILE: usize>(dots: &mut [[__m512i; MAX_ROW_TILE]; 2]) {
    macro_rules! store {
        ($low:literal, $high:literal) => {
            asm!(
                concat!("tilestored [{dots} + {line}], ", $low),
                concat!("tilestored [{dots} + {line} + 1024], ", $high),
                dots = in(reg) dots,
                line = in(reg) 64_usize,
                options(nostack, preserves_flags)
            )
        };
    }
    // SAFETY: the caller's contract; a plane of sums has room for sixteen rows.
    unsafe {
        match TILE {
            0 => store!("tmm0", "tmm1"),
            _ => store!("tmm2", "tmm3"),
        }
    }
}

/// Adds what a super-block gives to the sums of some of a tile's rows, at most four.
///
/// # Safety
/// As [`Unit::run`]; the super-block lies at `place`.
#[inline(always)]
unsafe fn finish<B: Planes>(
    simd: Zmm<true>,
    place: Place,
    tile: &Tile<'_>,
    rows: Range<usize>,
    dots: &[[__m512i; MAX_ROW_TILE]; 2],
    sums: &mut Sums,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if rows.len() == 4 {
            finish_rows::<4, B>(simd, place, tile, rows.start, dots, sums);
        } else {
            for row in rows {
                finish_rows::<1, B>(simd, place, tile, row, dots, sums);
            }
        }
    }
}

/// # Safety
/// As [`finish`]; the tile has `R` rows from `first` on.
#[inline(always)]
unsafe fn finish_rows<const R: usize, B: Planes>(
    simd: Zmm<true>,
    Place { base, block, .. }: Place,
    tile: &Tile<'_>,
    first: usize,
    [low, high]: &[[__m512i; MAX_ROW_TILE]; 2],
    sums: &mut Sums,
) {
    // SAFETY: the token proves support; the caller's contract.
    unsafe {
        let mut values = [simd.floats(0.0); R];
        for (row, value) in values.iter_mut().enumerate() {
            let high = _mm512_sll_epi32(*high.as_ptr().add(first + row), _mm_cvtsi32_si128(B::SHIFT.cast_signed()));
            *value = simd.to_floats(_mm512_add_epi32(*low.as_ptr().add(first + row), high));
        }
        B::Scales::finish(simd, base, ActivationSums::new(tile, tile.rows, block, first), 0, &mut values);
        let scales = tile.scales.as_ptr().add(block * tile.rows + first);
        for (row, &value) in values.iter().enumerate() {
            let total = sums.as_mut_ptr().add(first + row).cast::<f32>();
            let before = if block == 0 { simd.floats(0.0) } else { simd.load(total) };
            simd.store(total, simd.mul_add(value, simd.floats(*scales.add(row)), before));
        }
    }
}
