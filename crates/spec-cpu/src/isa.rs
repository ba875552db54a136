//! Instruction sets: proof-of-support tokens and the choice made at run time.

use crate::CpuError;

/// Defines the token of an instruction set: only [`new`](Avx2::new) makes one, and only where its features are.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $($feature:tt)+) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(());

        #[cfg(target_arch = "x86_64")]
        impl $name {
            /// The token, if the processor and the operating system support the instructions.
            #[must_use]
            pub fn new() -> Option<Self> {
                let supported = token!(@all $($feature)+);
                supported.then_some(Self(()))
            }
        }
    };
    (@all $($feature:tt)+) => { true $(&& is_x86_feature_detected!($feature))+ };
}

token! {
    /// Proof that this processor runs AVX2, FMA and F16C.
    Avx2, "avx2" "fma" "f16c"
}

token! {
    /// Proof that this processor runs AVX2, FMA, F16C and the 256-bit dot products of AVX-VNNI.
    Avx2Vnni, "avx2" "fma" "f16c" "avxvnni"
}

token! {
    /// Proof that this processor runs AVX-512 F, BW, DQ, VL and VNNI.
    Avx512Vnni, "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni"
}

/// A family of kernels. Results are bit-for-bit reproducible within one, not across two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust; runs everywhere, an order of magnitude slower.
    Portable,
    /// 256-bit vectors; products of bytes by way of 16-bit sums.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 256-bit vectors with 8-bit dot products.
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni(Avx2Vnni),
    /// 512-bit vectors with 8-bit dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512Vnni),
}

impl Isa {
    /// The fastest family that this processor runs.
    #[must_use]
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::Portable)
    }

    /// Every family that this processor runs, slowest first. Tests iterate over it.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors =
            [Avx2::new().map(Self::Avx2), Avx2Vnni::new().map(Self::Avx2Vnni), Avx512Vnni::new().map(Self::Avx512Vnni)];
        #[cfg(not(target_arch = "x86_64"))]
        let vectors: [Option<Self>; 0] = [];
        [Self::Portable].into_iter().chain(vectors.into_iter().flatten()).collect()
    }

    /// The family called `name` (as [`Isa::name`] spells it).
    ///
    /// # Errors
    /// [`CpuError::UnknownIsa`] when there is no such family or the processor lacks it.
    pub fn from_name(name: &str) -> Result<Self, CpuError> {
        let available = Self::available();
        available.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| CpuError::UnknownIsa {
            name: name.to_owned(),
            available: available.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The family named by the environment variable `SPEC_CPU_ISA`, else the fastest one.
    ///
    /// # Errors
    /// [`CpuError::UnknownIsa`] when the variable names none that runs here.
    pub fn from_environment() -> Result<Self, CpuError> {
        match std::env::var("SPEC_CPU_ISA") {
            Ok(name) => Self::from_name(&name),
            Err(_) => Ok(Self::detect()),
        }
    }

    /// Short name, for logs and `SPEC_CPU_ISA`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Vnni(_) => "avx2vnni",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => "avx512vnni",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_family_is_found_by_its_name() {
        for isa in Isa::available() {
            assert_eq!(Isa::from_name(isa.name()).expect("its own name"), isa);
        }
        let refused = Isa::from_name("abacus").expect_err("no such family").to_string();
        assert!(refused.contains("abacus") && refused.contains("portable"), "{refused}");
    }
}
