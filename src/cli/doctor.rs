//! `pplx doctor`: what CUDA placements find on this machine.

use std::time::Instant;

use indicatif::HumanBytes;

use super::Failure;
use crate::backend::cuda::{self, CudaError, Library};
use crate::fetch::FetchOptions;
use crate::say;

#[derive(clap::Args)]
#[command(
    after_help = "PPLX_CUDA_PATH names folders in which NVIDIA's libraries are looked for before \
the system's own: a Python site-packages folder with NVIDIA's wheels will do.\n\
Exit codes: 0 CUDA placements can run; 1 they cannot, and the output says what is missing."
)]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    let mut out = String::new();
    let result = examine(&mut out);
    say::text(&out)?;
    result.map_err(|e| Failure::failed(format!("CUDA placements cannot run: {e}")))
}

/// Goes the way of a run up to the first kernel, and writes down what it meets.
fn examine(out: &mut String) -> Result<(), CudaError> {
    *out += &format!("driver   CUDA {}\n", cuda::driver_version()?);
    let devices = cuda::devices()?;
    if devices.is_empty() {
        return Err(CudaError::NoDevice);
    }
    for (i, d) in devices.iter().enumerate() {
        *out += &format!(
            "device   {i}: {}, compute capability {}.{}, {} free of {}{}\n",
            d.name,
            d.arch.major,
            d.arch.minor,
            HumanBytes(d.free_bytes),
            HumanBytes(d.total_bytes),
            if i == 0 { " (in use)" } else { "" }
        );
    }
    Library::Nvrtc.load()?;
    *out += &format!("NVRTC    {}\n", cuda::nvrtc_version()?);
    let start = Instant::now();
    let cache = FetchOptions::from_env().cache_dir;
    let setup = cuda::try_setup(cache.as_deref())?;
    *out += &match setup.blas {
        Some(version) => format!("cuBLAS   {version}\n"),
        None => match Library::Cublas.load() {
            Err(e) => {
                format!("cuBLAS   none: products run slower, in a kernel of ours\n         {e}\n")
            }
            Ok(()) => "cuBLAS   none\n".to_owned(),
        },
    };
    *out += &format!(
        "kernels  ready after {:.1} s\n",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
