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

fn load<E: KvElement>(arena: &KvArena<E>, layer: usize, slot: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for head in 0..SHAPE.kv_heads {
        let (group, lane) = SHAPE.slot_at(layer, slot, head);
        for d in 0..SHAPE.head_dim {
            keys.push(arena.elements()[group + d * LANES + lane].decode());
            values.push(arena.elements()[group + SHAPE.values_at() + lane * SHAPE.head_dim + d].decode());
        }
    }
    (keys, values)
}

#[test]
fn every_slot_of_every_layer_keeps_its_own_numbers() {
    let mut arena = KvArena::<f32>::new(SHAPE).expect("a small arena");
    let slots = SHAPE.blocks * BLOCK_TOKENS;
    for layer in 0..SHAPE.layers {
        for slot in 0..slots {
            store(&mut arena, layer, slot, layer * slots + slot);
        }
    }
    for layer in 0..SHAPE.layers {
        for slot in 0..slots {
            assert_eq!(load(&arena, layer, slot), token(layer * slots + slot), "layer {layer}, slot {slot}");
        }
    }
}

#[test]
fn moves_are_done_in_order_and_in_all_layers() {
    let mut arena = KvArena::<f16>::new(SHAPE).expect("a small arena");
    for layer in 0..SHAPE.layers {
        for slot in [31, 32, 40] {
            store(&mut arena, layer, slot, slot);
        }
    }
    arena.move_tokens(&[Move { from: 32, to: 31 }, Move { from: 40, to: 32 }]);
    let rounded = |seed| {
        let (keys, values) = token(seed);
        let round = |row: Vec<f32>| row.into_iter().map(|x| f16::from_f32(x).to_f32()).collect::<Vec<_>>();
        (round(keys), round(values))
    };
    for layer in 0..SHAPE.layers {
        assert_eq!(load(&arena, layer, 31), rounded(32));
        assert_eq!(load(&arena, layer, 32), rounded(40));
    }
}

#[test]
fn a_cache_past_the_address_space_is_refused() {
    let shape = KvShape { blocks: usize::MAX / 2, ..SHAPE };
    assert!(matches!(KvArena::<f32>::new(shape), Err(CpuError::KvSize { .. })));
}
