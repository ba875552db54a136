//! What can go wrong, said so that the next step is clear.

use spec_runtime::RuntimeError;

use crate::MemoryPlan;

/// Why a model could not be loaded, or a pass not be done. The device is named by whoever shows it.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum AscendError {
    /// The model has a part that ATB's operators cannot express.
    #[error("{model} cannot run on Ascend: {feature}: {reason}; run it with --device cpu")]
    Unsupported {
        /// The model's name.
        model: String,
        /// The part.
        feature: String,
        /// What is missing.
        reason: String,
    },
    /// A size that is outside of what ATB documents.
    #[error("{model}: {what} is {value}, and {limit}")]
    Limit {
        /// The model's name.
        model: String,
        /// Which size.
        what: &'static str,
        /// What it is.
        value: usize,
        /// What is allowed, and for whom.
        limit: String,
    },
    /// A choice that does not fit the device, the model or another choice.
    #[error("{option}: {reason}")]
    Choice {
        /// The field of the options.
        option: &'static str,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// A tensor whose numbers do not fit the chosen type.
    #[error("tensor {tensor}: {reason}")]
    Tensor {
        /// Name in the file.
        tensor: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The device has not enough memory.
    #[error(
        "the device has {free} bytes free, and the model takes {needed}; lower the context or the number of KV blocks, \
         take int8 weights or a smaller model, or end what else uses the device (npu-smi info lists it)\n{plan}"
    )]
    Memory {
        /// Bytes.
        needed: u64,
        /// Bytes.
        free: u64,
        /// What takes how much.
        plan: Box<MemoryPlan>,
    },
    /// A call of the device's libraries, or work on it, failed. Names the status, its meaning and what to do.
    #[error("{0}")]
    Call(#[from] atb_rs::Error),
    /// The device is gone for this process.
    #[error(
        "the device is lost and takes no more work: {cause}\n  end this process, look at the device with `npu-smi info` \
         and `spec doctor --device ascend`, reset it if it is not healthy, and start again"
    )]
    Lost {
        /// What was seen first.
        cause: String,
    },
    /// Work did not end in time.
    #[error(
        "a pass was not done after {seconds} s: the stream hangs, or waits for an event that never comes; later \
         requests may work once the device's own limit on kernels has ended it, else restart the process"
    )]
    Hung {
        /// How long it was waited for.
        seconds: u64,
    },
    /// Logits that are no numbers.
    #[error(
        "logits of row {row} of the pass are not finite (id {id} has {value}): activations have left the range of \
         {dtype}, or a kernel wrote nothing; load the model in bf16 where the chip has it, and see whether other \
         prompts do the same"
    )]
    NotFinite {
        /// Row of the batch.
        row: usize,
        /// First id whose logit it is.
        id: usize,
        /// NaN or an infinity.
        value: f32,
        /// Type of the activations.
        dtype: &'static str,
    },
    /// A device's failure may have hit the cache of the sequence.
    #[error(
        "work on the stream failed since this sequence was opened, and the device does not say whose it was: its KV \
         cache may be wrong; start the request again"
    )]
    Suspect,
    /// Keys or values could not be moved, so that the sequence holds a wrong text from now on.
    #[error("keeping the accepted path in the KV cache failed; the sequence is to be closed: {0}")]
    Compaction(Box<AscendError>),
}

impl AscendError {
    /// The same at the engine's seam.
    pub(crate) fn at(self, device: &str) -> RuntimeError {
        RuntimeError::Device { device: device.to_owned(), reason: self.to_string() }
    }
}
