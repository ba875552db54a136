//! Checkpoints written anew as GGUF files, their matrices quantised.

mod describe;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::gguf::DEFAULT_ALIGNMENT;
use crate::gguf::write::{Line, Value, header};
use crate::{Checkpoint, Error, Quantizer, Result, TensorType, TensorView, dequantize};

/// Elements that a thread quantises at a time: enough to be worth starting it, little beside the model.
const ELEMENTS_PER_TASK: usize = 1 << 20;
const FILE_TYPE: &str = "general.file_type";
const VERSION: &str = "general.quantization_version";
/// Keys that describe how the source was stored, and not the model.
const OF_THE_SOURCE: [&str; 5] = [FILE_TYPE, VERSION, "split.no", "split.count", "split.tensors.count"];
/// Of the layouts of blocks, as files name it.
const QUANTIZATION_VERSION: u32 = 2;

/// A GGUF file that a checkpoint is going to be.
///
/// The matrices that rows are multiplied with, and the embedding, are quantised where that takes fewer bits than they have;
/// what is narrower already, and every vector, stays as it is. All metadata of a GGUF file is kept, the tokenizer with it; that of
/// safetensors, and of the files beside them, is told in GGUF's words.
#[derive(Debug)]
pub struct Export<'a> {
    checkpoint: &'a Checkpoint,
    header: Vec<u8>,
    alignment: usize,
    tensors: Vec<Planned<'a>>,
}

/// A tensor of the file.
#[derive(Debug)]
struct Planned<'a> {
    name: String,
    /// Fastest first.
    dims: Vec<u64>,
    rows: usize,
    cols: usize,
    /// What its content is.
    stored: TensorType,
    kind: Kind,
    content: Content<'a>,
    quantizer: Option<Quantizer>,
}

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Embedding or head.
    Table,
    /// Multiplied with.
    Matrix,
    /// Kept as it is.
    Other,
}

/// Where the elements of a tensor come from.
#[derive(Debug)]
enum Content<'a> {
    /// Tensors of one type, one behind the other. Where heads, of so many rows each, are to turn in pairs of neighbours and are stored
    /// for pairs of halves, their rows change places.
    Stored {
        views: Vec<TensorView<'a>>,
        turned: Option<usize>,
    },
    Floats(Vec<f32>),
}

impl Planned<'_> {
    fn tensor_type(&self) -> TensorType {
        self.quantizer.map_or(self.stored, Quantizer::tensor_type)
    }

    fn row_bytes(&self) -> usize {
        let whole = "a quantiser is chosen for the row, and rows as they are stored are whole blocks";
        self.tensor_type().row_bytes(self.cols).expect(whole)
    }

    fn bytes(&self) -> usize {
        self.row_bytes() * self.rows
    }

    /// The elements before they are quantised, row by row.
    fn content(&self) -> Cow<'_, [u8]> {
        let joined = |views: &[TensorView<'_>]| views.iter().flat_map(|view| view.bytes().into_owned()).collect();
        match &self.content {
            Content::Floats(values) => Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Content::Stored { views, turned: None } => match &views[..] {
                [view] => view.bytes(),
                several => Cow::Owned(joined(several)),
            },
            Content::Stored { views, turned: Some(head) } => {
                let bytes: Vec<u8> = joined(views);
                let size = bytes.len() / self.rows;
                let source = |row| &bytes[describe::source_row(row, *head) * size..][..size];
                Cow::Owned((0..self.rows).flat_map(source).copied().collect())
            }
        }
    }
}

impl<'a> Export<'a> {
    /// Plans the file: matrices of `quantizer`, embedding and head of `tables`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what GGUF has no words for, [`Error::Unchanged`], and those about the files beside safetensors.
    pub fn new(checkpoint: &'a Checkpoint, quantizer: Quantizer, tables: Quantizer) -> Result<Self> {
        let metadata = checkpoint.metadata();
        let mut tensors = match metadata {
            Some(_) => stored(checkpoint),
            None => describe::tensors(checkpoint),
        };
        for tensor in &mut tensors {
            let asked = match tensor.kind {
                Kind::Table => tables,
                Kind::Matrix => quantizer,
                Kind::Other => continue,
            };
            let stored = tensor.stored;
            tensor.quantizer = asked.for_row(tensor.cols).filter(|chosen| chosen.is_narrower_than(stored));
        }
        if metadata.is_some() && tensors.iter().all(|tensor| tensor.quantizer.is_none()) {
            return Err(Error::Unchanged { file: checkpoint.name().to_owned(), to: quantizer.tensor_type() });
        }
        let mut alignment = DEFAULT_ALIGNMENT;
        let mut keys: Vec<(String, Vec<u8>)> = match metadata {
            Some(metadata) => {
                alignment = metadata.optional_u32("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
                let kept = checkpoint.stored_values().filter(|(key, _)| !OF_THE_SOURCE.contains(key));
                kept.map(|(key, value)| (key.to_owned(), value.to_vec())).collect()
            }
            None => describe::keys(checkpoint)?.into_iter().map(|(key, value)| (key, value.stored())).collect(),
        };
        for (key, value) in [(FILE_TYPE, file_type(quantizer)), (VERSION, QUANTIZATION_VERSION)] {
            keys.push((key.to_owned(), Value::U32(value).stored()));
        }
        let lines = tensors.iter().map(|tensor| Line {
            name: &tensor.name,
            tensor_type: tensor.tensor_type(),
            dims: &tensor.dims,
            bytes: tensor.bytes(),
        });
        let alignment = alignment as usize;
        let header = header(&keys, &lines.collect::<Vec<_>>(), alignment);
        Ok(Self { checkpoint, header, alignment, tensors })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tensors.iter().fold(self.header.len(), |end, tensor| end.next_multiple_of(self.alignment) + tensor.bytes())
    }

    /// What becomes of the tensors: type before and after, and how many.
    #[must_use]
    pub fn changes(&self) -> Vec<(TensorType, TensorType, usize)> {
        let mut changes: Vec<(TensorType, TensorType, usize)> = Vec::new();
        for tensor in &self.tensors {
            let (from, to) = (tensor.stored, tensor.tensor_type());
            match changes.iter_mut().find(|change| (change.0, change.1) == (from, to)) {
                Some(change) => change.2 += 1,
                None => changes.push((from, to, 1)),
            }
        }
        changes
    }

    /// Writes the file to `out`, which messages call `name`, on `threads` threads; `progress` hears of the bytes written.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Malformed`] for a number that is not finite in a matrix that is quantised.
    pub fn write(
        &self,
        out: &mut dyn Write,
        name: &str,
        threads: usize,
        progress: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let mut written = 0;
        let mut put = |bytes: &[u8]| -> Result<()> {
            let fail = |source| Error::Io { file: name.to_owned(), action: "write", source };
            out.write_all(bytes).map_err(fail)?;
            written += bytes.len();
            progress(written);
            Ok(())
        };
        put(&self.header)?;
        let mut end = self.header.len();
        for tensor in &self.tensors {
            put(&vec![0; end.next_multiple_of(self.alignment) - end])?;
            end = end.next_multiple_of(self.alignment) + tensor.bytes();
            let bytes = tensor.content();
            match tensor.quantizer {
                None => put(&bytes)?,
                Some(quantizer) => self.quantize(tensor, quantizer, &bytes, threads, &mut put)?,
            }
            if let Content::Stored { views, .. } = &tensor.content {
                views.iter().for_each(|view| self.checkpoint.release(view));
            }
        }
        Ok(())
    }

    fn quantize(
        &self,
        tensor: &Planned<'_>,
        quantizer: Quantizer,
        bytes: &[u8],
        threads: usize,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Planned { rows, cols, stored, .. } = *tensor;
        let (before, after) = (bytes.len() / rows, tensor.row_bytes());
        let rows_per_task = (ELEMENTS_PER_TASK / cols).max(1);
        let at_once = threads.max(1) * rows_per_task;
        let mut room = vec![0; at_once.min(rows) * after];
        let finite = AtomicBool::new(true);
        for source in bytes.chunks(at_once * before) {
            let target = &mut room[..source.len() / before * after];
            std::thread::scope(|scope| {
                let tasks = source.chunks(rows_per_task * before).zip(target.chunks_mut(rows_per_task * after));
                for (source, target) in tasks {
                    let finite = &finite;
                    scope.spawn(move || {
                        let mut values = vec![0.0; cols];
                        for (row, target) in source.chunks_exact(before).zip(target.chunks_exact_mut(after)) {
                            dequantize(stored, row, &mut values).expect("a row as it is stored");
                            quantizer.quantize(&values, target).expect("a quantiser that was chosen for the row");
                            if !values.iter().all(|value| value.is_finite()) {
                                finite.store(false, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            if !finite.load(Ordering::Relaxed) {
                return Err(Error::Malformed {
                    file: self.checkpoint.name().to_owned(),
                    place: format!("tensor `{}`", tensor.name),
                    problem: "a number in it is not finite".into(),
                });
            }
            put(target)?;
        }
        Ok(())
    }
}

/// The tensors of GGUF files, as they are.
fn stored(checkpoint: &Checkpoint) -> Vec<Planned<'_>> {
    let weights = checkpoint.weights();
    let matrices: HashSet<&str> = weights.matrices().map(|matrix| matrix.name).collect();
    let tables: HashSet<&str> = weights.output.iter().chain([&weights.embedding]).map(|table| table.name).collect();
    let planned = checkpoint.tensors().map(|view| Planned {
        name: view.name.to_owned(),
        dims: checkpoint.dims(&view).iter().map(|&dim| dim as u64).collect(),
        rows: view.rows,
        cols: view.cols,
        stored: view.tensor_type,
        kind: match (tables.contains(view.name), matrices.contains(view.name)) {
            (true, _) => Kind::Table,
            (false, true) => Kind::Matrix,
            (false, false) => Kind::Other,
        },
        content: Content::Stored { views: vec![view], turned: None },
        quantizer: None,
    });
    planned.collect()
}

/// The number that files of mostly this type are marked with.
fn file_type(quantizer: Quantizer) -> u32 {
    match quantizer {
        Quantizer::Q4_0 => 2,
        Quantizer::Q8_0 => 7,
        Quantizer::Q3K => 11,
        Quantizer::Q4K => 14,
    }
}
