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

/// Proof that this processor runs AVX-512 as [`Avx512Vnni`] and the byte products of AMX, and that the system keeps the tiles of threads.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx(Avx512Vnni);

#[cfg(target_arch = "x86_64")]
impl Amx {
    /// The token, if the processor and the operating system support the instructions. Linux is asked for leave to use tiles, once.
    #[must_use]
    pub fn new() -> Option<Self> {
        use std::sync::OnceLock;
        static SUPPORTED: OnceLock<bool> = OnceLock::new();
        let vectors = Avx512Vnni::new()?;
        SUPPORTED.get_or_init(|| has_byte_tiles() && may_use_tiles()).then_some(Self(vectors))
    }

    /// The vectors beside the tiles.
    pub(crate) fn vectors(self) -> Avx512Vnni {
        self.0
    }
}

/// Whether the processor has AMX-TILE and AMX-INT8: CPUID leaf 7, EDX bits 24 and 25.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "a safe function from Rust 1.94 on")]
fn has_byte_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // SAFETY: every processor with AVX-512 has CPUID.
    let edx = unsafe { if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).edx } };
    edx >> 24 & 3 == 3
}

/// Asks Linux for the state of tiles, which grows what it keeps of every thread: `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn may_use_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XTILEDATA: i64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes two numbers and touches no memory of this process; the kernel clobbers rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result == 0
}

/// Elsewhere nobody has tried.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn may_use_tiles() -> bool {
    false
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
    /// The same, and products of bytes by tiles of 16 x 64 where several rows are multiplied.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
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
        let vectors = [
            Avx2::new().map(Self::Avx2),
            Avx2Vnni::new().map(Self::Avx2Vnni),
            Avx512Vnni::new().map(Self::Avx512Vnni),
            Amx::new().map(Self::Amx),
        ];
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
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => "amx",
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
