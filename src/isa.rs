//! Which instructions this processor has, and one source for all of them.

/// An instruction set that the running processor is known to have: values come
/// only from [`Isa::detect`] and [`Isa::available`], so holding one is the proof
/// that calling its code is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Whatever the build's target has.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 with dot products of bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

/// Best first.
const LEVELS: &[Level] = &[
    #[cfg(target_arch = "x86_64")]
    Level::Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    Level::Avx512,
    #[cfg(target_arch = "x86_64")]
    Level::Avx2,
    Level::Portable,
];

impl Level {
    fn is_present(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_present()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => {
                Level::Avx512.is_present() && is_x86_feature_detected!("avx512vnni")
            }
        }
    }
}

impl Isa {
    /// The best one.
    pub fn detect() -> Self {
        let best = LEVELS.iter().copied().find(|l| l.is_present());
        Isa(best.unwrap_or(Level::Portable))
    }

    /// All of them, best first; the last is portable code.
    pub fn available() -> Vec<Self> {
        let present = LEVELS.iter().copied().filter(|l| l.is_present());
        present.map(Isa).collect()
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }

    /// As messages and benchmarks call it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => "avx512-vnni",
        }
    }
}

/// Compiles a function once for each instruction set and picks one by its first
/// argument. The source is one, its `mul_add`s are exactly rounded everywhere,
/// and its lanes are spelled out, so all versions yield the same bits.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) $(-> $ret)? { portable($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $ty),*) $(-> $ret)? { portable($($arg),*) }

            use $crate::isa::Level;
            match isa.level() {
                Level::Portable => portable($($arg),*),
                // SAFETY: an `Isa` exists only where the processor has it.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Vnni => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use multiversion;
