use super::*;

const SHAPE: KvShape = KvShape { layers: 2, blocks: 3, kv_heads: 2, head_dim: 16 };

fn token(seed: usize) -> (Vec<f32>, Vec<f32>) {
    let width = SHAPE.kv_heads * SHAPE.head_dim;
    let row = |base: usize| (0..width).map(|i| (base * 1000 + i) as f32 * 0.25).collect();
    (row(2 * seed), row(2 * seed + 1))
}

fn store<E: KvElement>(arena: &mut KvArena<E>, layer: usize, slot: usize, seed: usize) {
    let (keys, values) = token(seed);
    let shape = *arena.shape();
    let elements = SharedSlice::new(arena.elements_mut());
    // SAFETY: no other thread exists.
    unsafe { store_token(Isa::detect(), &elements, &shape, (layer, slot), (&keys, &values)) };
}

/// What a row is when it comes back.
pub(crate) fn as_stored<E: KvElement>(isa: Isa, row: &[f32]) -> Vec<f32> {
    let (scale, inverse) = E::scale(isa, row);
    let mut encoded = vec![E::default(); row.len()];
    E::encode(isa, row, inverse, &mut encoded);
    encoded.into_iter().map(|element| element.decode() * scale).collect()
}

fn rounded<E: KvElement>(seed: usize) -> (Vec<f32>, Vec<f32>) {
    let (keys, values) = token(seed);
    let round = |row: Vec<f32>| -> Vec<f32> {
        row.chunks(SHAPE.head_dim).flat_map(|head| as_stored::<E>(Isa::detect(), head)).collect()
    };
    (round(keys), round(values))
}

fn load<E: KvElement>(arena: &KvArena<E>, layer: usize, slot: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let elements = arena.elements();
    let scale = |group: usize, lane: usize| -> f32 {
        let at = group + SHAPE.scale_at::<E>(lane);
        let stored = elements[at..at + E::SCALE_ELEMENTS].as_ptr().cast::<f32>();
        // SAFETY: the bytes of an f32, where there is a scale.
        if E::SCALE_ELEMENTS == 0 { 1.0 } else { unsafe { stored.read_unaligned() } }
    };
    for head in 0..SHAPE.kv_heads {
        let (group, lane) = SHAPE.slot_at::<E>(layer, slot, head);
        let value_group = group + SHAPE.values_at::<E>();
        for d in 0..SHAPE.head_dim {
            keys.push(elements[group + d * LANES + lane].decode() * scale(group, lane));
            values.push(elements[value_group + lane * SHAPE.head_dim + d].decode() * scale(value_group, lane));
        }
    }
    (keys, values)
}

fn every_slot_keeps_its_own<E: KvElement>() {
    let mut arena = KvArena::<E>::new(SHAPE).expect("a small arena");
    let slots = SHAPE.blocks * BLOCK_TOKENS;
    for layer in 0..SHAPE.layers {
        for slot in 0..slots {
            store(&mut arena, layer, slot, layer * slots + slot);
        }
    }
    for layer in 0..SHAPE.layers {
        for slot in 0..slots {
            assert_eq!(load(&arena, layer, slot), rounded::<E>(layer * slots + slot), "layer {layer}, slot {slot}");
        }
    }
}

#[test]
fn every_slot_of_every_layer_keeps_its_own_numbers() {
    every_slot_keeps_its_own::<f32>();
    every_slot_keeps_its_own::<f16>();
    every_slot_keeps_its_own::<i8>();
    assert_eq!(rounded::<f32>(7), token(7), "nothing is lost in single precision");
}

fn moves_are_done_in_order<E: KvElement>() {
    let mut arena = KvArena::<E>::new(SHAPE).expect("a small arena");
    for layer in 0..SHAPE.layers {
        for slot in [31, 32, 40] {
            store(&mut arena, layer, slot, slot);
        }
    }
    arena.move_tokens(&[Move { from: 32, to: 31 }, Move { from: 40, to: 32 }]);
    for layer in 0..SHAPE.layers {
        assert_eq!(load(&arena, layer, 31), rounded::<E>(32));
        assert_eq!(load(&arena, layer, 32), rounded::<E>(40));
    }
}

#[test]
fn moves_are_done_in_order_and_in_all_layers() {
    moves_are_done_in_order::<f32>();
    moves_are_done_in_order::<f16>();
    moves_are_done_in_order::<i8>();
}

#[test]
fn bytes_are_within_half_a_step_of_what_they_stand_for() {
    for isa in Isa::available() {
        let row: Vec<f32> = (0..144).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.03).collect();
        let step = 1.5 / 127.0;
        for (stored, value) in as_stored::<i8>(isa, &row).into_iter().zip(&row) {
            assert!((stored - value).abs() <= 0.501 * step, "{}: {stored} for {value}", isa.name());
        }
        assert_eq!(as_stored::<i8>(isa, &[0.0; 16]), [0.0; 16]);
        for poison in [f32::NAN, f32::INFINITY] {
            let row: Vec<f32> = (0..16).map(|i| if i == 5 { poison } else { 1.0 }).collect();
            assert!(as_stored::<i8>(isa, &row).iter().all(|value| value.is_nan()), "{} of {poison}", isa.name());
        }
    }
}

#[test]
fn a_cache_past_the_address_space_is_refused() {
    let shape = KvShape { blocks: usize::MAX / 2, ..SHAPE };
    assert!(matches!(KvArena::<f32>::new(shape), Err(CpuError::KvSize { .. })));
}
