//! An Ascend device, or the simulator of one, behind `--device`.

use std::sync::Arc;

use acl_sys::Host;
use anyhow::{Context as _, Result};
use atb_rs::{Chip, Runtime};
use indicatif::ProgressBar;
use spec_ascend::{AscendDevice, AscendModel, AscendStream, DeviceOptions, LoadOptions, MemoryPlan};
use spec_model::Checkpoint;

use crate::args::{KvKind, QuantKind};
use crate::device::DeviceName;
use crate::session::progress_style;
use crate::storage::Storage;
use crate::usage;

/// An open device.
pub(crate) struct Ascend {
    device: AscendDevice,
}

impl Ascend {
    /// Loads the libraries that a device of this name needs, and opens it.
    /// With `ranges`, passes are named in the timeline of CANN's profiler.
    pub(crate) fn open(name: DeviceName, ranges: bool) -> Result<Self> {
        let loader = name.loader(&Host::current()).ok_or_else(|| usage(format!("{name} is no Ascend device")))?;
        // SAFETY: what lies where CANN is installed, or where the simulator is built, is taken to be that.
        let api = unsafe { loader.load() }.with_context(|| name.to_string())?;
        let runtime = Runtime::start(api).with_context(|| name.to_string())?;
        let number = if let DeviceName::Ascend(number) = name { i32::from(number) } else { 0 };
        let mut options = DeviceOptions::default();
        options.name = Some(name.to_string());
        options.ranges = ranges;
        let device = AscendDevice::open(&runtime, number, options).with_context(|| name.to_string())?;
        Ok(Self { device })
    }

    /// A queue for a model's passes, with 96 MiB of the device for ATB.
    pub(crate) fn stream(&self) -> Result<AscendStream> {
        AscendStream::new(&self.device).with_context(|| self.device.name().to_owned())
    }

    /// Loads a model for sequences of `context` positions and shows progress on a terminal.
    pub(crate) fn load(
        &self,
        stream: &AscendStream,
        checkpoint: &Checkpoint,
        storage: Storage,
        context: usize,
    ) -> Result<Arc<AscendModel>> {
        let name = checkpoint.name().to_owned();
        let bar = ProgressBar::new(0).with_style(progress_style()).with_message(format!("loading {name}"));
        let mut progress = |done: usize, total: usize| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        };
        let mut options = options(storage, context)?;
        options.progress = Some(&mut progress);
        let model = AscendModel::load(checkpoint, stream, options).with_context(|| self.device.name().to_owned());
        bar.finish_and_clear();
        Ok(Arc::new(model?))
    }
}

/// What the flags mean on Ascend.
fn options<'a>(storage: Storage, context: usize) -> Result<LoadOptions<'a>> {
    if storage.requantize || storage.trimmed_head {
        return Err(usage("--draft-quant and --draft-head are for --device cpu; leave them out"));
    }
    if storage.kv != KvKind::F16 {
        return Err(usage(
            "--kv: on Ascend the cache has the type of the activations, f16 or bf16; leave the flag out",
        ));
    }
    let mut options = LoadOptions::default();
    options.int8 = match storage.quant {
        None => false,
        Some(QuantKind::Int8) => true,
        Some(_) => return Err(usage("--quant: on Ascend int8 is the one type, with activations quantised row by row")),
    };
    options.context = Some(context);
    Ok(options)
}

/// What a checkpoint would take of an Atlas A2 for one sequence of `context` positions, or why it does not run there.
pub(crate) fn plan(checkpoint: &Checkpoint, context: usize) -> Result<MemoryPlan, String> {
    let mut options = LoadOptions::default();
    options.context = Some(context);
    MemoryPlan::new(checkpoint, Chip::A2, &options).map_err(|error| error.to_string())
}
