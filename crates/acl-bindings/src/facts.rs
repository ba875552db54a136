//! What headers do not say: in which libraries a function is, and since which release.

/// One of our headers, and the module that is made of it.
pub(crate) struct Header {
    pub(crate) module: &'static str,
    pub(crate) file: &'static str,
    /// What it includes.
    pub(crate) uses: Option<&'static str>,
    /// `acl_sys::Family` of its functions.
    family: &'static str,
    /// Whether the vendor has it, so that there is something to compare with.
    pub(crate) is_vendor: bool,
}

const fn vendor(module: &'static str, file: &'static str, family: &'static str) -> Header {
    Header { module, file, uses: Some("base"), family, is_vendor: true }
}

pub(crate) const HEADERS: &[Header] = &[
    Header { module: "base", file: "acl/base.h", uses: None, family: "Runtime", is_vendor: true },
    vendor("device", "acl/device.h", "Runtime"),
    vendor("stream", "acl/stream.h", "Runtime"),
    vendor("memory", "acl/memory.h", "Runtime"),
    vendor("model", "acl/model.h", "Model"),
    Header { module: "profiling", file: "acl/profiling.h", uses: None, family: "Profiling", is_vendor: true },
    Header { module: "spec_atb", file: "spec_atb.h", uses: None, family: "Shim", is_vendor: false },
    Header {
        module: "spec_atb_operations",
        file: "spec_atb_operations.h",
        uses: Some("spec_atb"),
        family: "Shim",
        is_vendor: false,
    },
    Header { module: "spec_decode", file: "spec_decode.h", uses: Some("spec_atb"), family: "Shim", is_vendor: false },
];

/// Functions that CANN 8.0 does not have. Taken from the headers of the releases.
const SINCE: &[(&str, &str)] = &[
    ("aclsysGetCANNVersion", "Cann(8, 1)"),
    ("aclmdlRICaptureBegin", "Cann(8, 1)"),
    ("aclmdlRICaptureGetInfo", "Cann(8, 1)"),
    ("aclmdlRICaptureEnd", "Cann(8, 1)"),
    ("aclmdlRIExecuteAsync", "Cann(8, 1)"),
    ("aclmdlRIDestroy", "Cann(8, 1)"),
    ("aclFinalizeReference", "Cann(8, 5)"),
    ("aclsysGetVersionStr", "Cann(8, 5)"),
    ("aclsysGetVersionNum", "Cann(8, 5)"),
    ("aclrtResetDeviceForce", "Cann(8, 5)"),
    ("aclrtSynchronizeDeviceWithTimeout", "Cann(8, 5)"),
    ("aclrtStreamWaitEventWithTimeout", "Cann(8, 5)"),
    ("aclrtStreamAbort", "Cann(8, 5)"),
    ("aclrtStreamGetId", "Cann(8, 5)"),
    ("aclrtSynchronizeEventWithTimeout", "Cann(8, 5)"),
    ("aclrtEventGetTimestamp", "Cann(8, 5)"),
    ("aclrtLaunchHostFunc", "Cann(8, 5)"),
    ("aclrtMallocWithCfg", "Cann(8, 5)"),
    ("aclrtMallocHostWithCfg", "Cann(8, 5)"),
    ("aclrtFreeWithDevSync", "Cann(8, 5)"),
    ("aclrtPointerGetAttributes", "Cann(8, 5)"),
];

impl Header {
    /// `acl_sys::Family` of a function.
    pub(crate) fn family(&self, function: &str) -> &'static str {
        // Captured graphs are documented with models, and are in the runtime's library.
        if function.starts_with("aclmdlRI") { "Runtime" } else { self.family }
    }

    /// `acl_sys::Since` of a function.
    pub(crate) fn since(&self, function: &str) -> &'static str {
        let exception = SINCE.iter().find(|(name, _)| *name == function).map(|(_, since)| *since);
        let usual = match (self.is_vendor, self.module) {
            (true, _) => "Cann(8, 0)",
            // A part that shims are built with or without.
            (false, "spec_decode") => "SpecDecode(1)",
            (false, _) => "Shim(1)",
        };
        exception.unwrap_or(usual)
    }
}

/// Fails for a fact about a function that no header declares.
pub(crate) fn check<'a>(functions: impl Iterator<Item = &'a str> + Clone) -> anyhow::Result<()> {
    for (name, _) in SINCE {
        anyhow::ensure!(
            functions.clone().any(|function| function == *name),
            "facts.rs names {name}, which no header declares"
        );
    }
    Ok(())
}
