//! What is done with files that were accepted, by damaged-file tests and by fuzz targets.

use spec_model::Checkpoint;

/// Uses a checkpoint in every way that does not need its weights to make sense.
pub(crate) fn exercise(checkpoint: &Checkpoint) {
    let weights = checkpoint.weights();
    for layer in &weights.layers {
        let matrices = [&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.up, &layer.down];
        for matrix in matrices.into_iter().chain(&layer.gate) {
            assert_eq!(
                matrix.weight.row(matrix.weight.rows - 1).map(|row| row.len()),
                matrix.weight.row(0).map(|row| row.len())
            );
            assert!(matrix.bias.is_none_or(|bias| bias.to_f32().len() == matrix.weight.rows));
        }
        assert_eq!(layer.attn_norm.weight.to_f32().len(), checkpoint.config().hidden_size);
    }
    let stored: usize = checkpoint.tensors().map(|tensor| tensor.bytes().len()).sum();
    let files: usize = checkpoint.files().map(|(_, bytes)| bytes).sum();
    assert!(stored <= files);
    if let Some(rope) = &checkpoint.config().rope {
        assert_eq!(rope.frequencies().len(), rope.dims / 2);
    }
    let _ = checkpoint.tokenizer();
    let _ = checkpoint.chat_template();
}
