//! NVIDIA's libraries by name.

use std::fmt;

/// A library that is loaded at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Comes with the GPU's driver.
    Driver,
    /// The compiler of the kernels.
    Nvrtc,
    /// Matrix products. Without it a kernel of ours takes its place.
    Cublas,
}

/// Folders in which the libraries are looked for before the system's own:
/// separated as in `PATH`. A Python `site-packages` folder with NVIDIA's wheels
/// will do.
pub const PATH_VARIABLE: &str = "PPLX_CUDA_PATH";

impl Library {
    /// As in `libNAME.so`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::Cublas => "cublas",
        }
    }

    /// How to get it.
    pub(super) fn help(self) -> String {
        let wheel = match self {
            Library::Driver => {
                return "install NVIDIA's driver for CUDA 12.0 or later (libcuda comes with it)"
                    .to_owned();
            }
            Library::Nvrtc => "nvidia-cuda-nvrtc-cu12",
            Library::Cublas => "nvidia-cublas-cu12",
        };
        format!(
            "install the CUDA toolkit 12, or 'pip install {wheel}' and set {PATH_VARIABLE} to the \
             site-packages folder; LD_LIBRARY_PATH is looked at too"
        )
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Driver => "the CUDA driver library (libcuda)",
            Library::Nvrtc => "the CUDA compiler library (libnvrtc)",
            Library::Cublas => "the CUDA product library (libcublas)",
        })
    }
}
