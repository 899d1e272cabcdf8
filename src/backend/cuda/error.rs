//! What can go wrong on a device, in words.

use cudarc::cublas::result::CublasError;
use cudarc::driver::result::DriverError;
use cudarc::nvrtc::result::NvrtcError;

use super::library::Library;
use crate::backend::memory::mib;
use crate::backend::{BackendError, DeviceFailure};

/// Why a CUDA device cannot be used, or stopped being usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum CudaError {
    #[error("{library} cannot be loaded; looked for {tried}\n{help}", help = library.help())]
    Missing { library: Library, tried: String },
    #[error("the CUDA driver is for CUDA {found}; CUDA 12.0 or later is needed: update the driver")]
    OldDriver { found: Version },
    #[error("the CUDA driver sees no device")]
    NoDevice,
    #[error("{doing}: the CUDA driver says {name}: {text}")]
    Driver {
        doing: &'static str,
        name: String,
        text: String,
    },
    #[error(
        "out of device memory: {what} needs {asked}, with {in_use} in use by pplx and {free} of {total} free{advice}",
        asked = mib(*asked), in_use = mib(*in_use), free = mib(*free), total = mib(*total)
    )]
    OutOfMemory {
        what: &'static str,
        asked: u64,
        in_use: u64,
        free: u64,
        total: u64,
        /// What to do about it, or empty.
        advice: String,
    },
    #[error("{doing}: NVRTC says {code}{log}")]
    Compiler {
        doing: &'static str,
        code: String,
        /// The compiler's own words on lines of their own, or empty.
        log: String,
    },
    #[error("{doing}: cuBLAS says {code}")]
    Blas { doing: &'static str, code: String },
    #[error("{0} cannot run on CUDA: {1}")]
    Unsupported(&'static str, String),
}

/// A CUDA version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `12` of 12.4.
    pub major: u32,
    /// `4` of 12.4.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl CudaError {
    pub(super) fn driver(doing: &'static str, error: DriverError) -> Self {
        let text = |r: Result<&std::ffi::CStr, _>| match r {
            Ok(text) => text.to_string_lossy().into_owned(),
            Err(_) => format!("{:?}", error.0),
        };
        CudaError::Driver {
            doing,
            name: text(error.error_name()),
            text: text(error.error_string()),
        }
    }

    pub(super) fn compiler(doing: &'static str, error: NvrtcError, log: String) -> Self {
        CudaError::Compiler {
            doing,
            code: format!("{:?}", error.0),
            log,
        }
    }

    pub(super) fn blas(doing: &'static str, error: CublasError) -> Self {
        CudaError::Blas {
            doing,
            code: format!("{:?}", error.0),
        }
    }
}

impl From<CudaError> for BackendError {
    fn from(error: CudaError) -> Self {
        let brief = match &error {
            CudaError::Missing { library, .. } => format!("{library} cannot be loaded"),
            e => e.to_string(),
        };
        BackendError::Device(DeviceFailure::new(error, brief))
    }
}
