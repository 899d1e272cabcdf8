//! `pplx doctor`: what runs find on this machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use std::time::Instant;

use indicatif::HumanBytes;

use super::Failure;
use crate::backend::cuda::{self, CudaError, Library};
use crate::fetch::FetchOptions;
use crate::isa::Isa;
use crate::run::{engine, memory};
use crate::say;

#[derive(clap::Args)]
#[command(
    after_help = "PPLX_CUDA_PATH names directories in which NVIDIA's libraries are looked for before \
the system's own: a Python site-packages directory with NVIDIA's wheels will do.\n\
Exit codes: 0 runs on the CPU work (with --gpu, those on the GPU too); 1 they do not, and the \
output says why."
)]
pub struct Args {
    /// Fail where CUDA placements cannot run.
    #[arg(long)]
    gpu: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let mut out = String::new();
    cpu(&mut out);
    out += &cache();
    out += &format!("pip      {}\n", pip());
    let found = gpu(&mut out);
    if let (Err(e), false) = (&found, args.gpu) {
        out += &format!("GPU      none, placements are on the CPU: {e}\n");
    }
    say::text(&out)?;
    let threads = rayon::ThreadPoolBuilder::new().build();
    threads.map_err(|e| Failure::failed(format!("worker threads cannot be started: {e}")))?;
    match (found, args.gpu) {
        (Err(e), true) => Err(Failure::failed(format!("CUDA placements cannot run: {e}"))),
        _ => Ok(()),
    }
}

fn cpu(out: &mut String) {
    let cores = match available_parallelism().map_or(1, usize::from) {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    *out += &format!("engine   {}\n", engine(None));
    let isa = Isa::detect().name();
    *out += &format!("CPU      {isa} kernels, {cores}\n");
    let memory = memory().map(|(total, available)| {
        format!(
            "{} available of {}",
            HumanBytes(available),
            HumanBytes(total)
        )
    });
    let memory = memory.as_deref().unwrap_or("not known");
    *out += &format!("memory   {memory}\n");
}

/// Where downloads, token ids and hashes are kept.
fn cache() -> String {
    let Some(directory) = FetchOptions::from_env().cache_dir else {
        return "cache    none: tokens and hashes are made anew each time\n".to_owned();
    };
    // It is made when it is first wanted.
    let there = directory.ancestors().find(|p| p.exists());
    let tried = tempfile::tempfile_in(there.unwrap_or(Path::new(".")));
    let directory = directory.display();
    match tried {
        Ok(_) => format!("cache    {directory}\n"),
        Err(e) => format!(
            "cache    {directory} cannot be written: tokens and hashes are made anew each time: {e}\n"
        ),
    }
}

/// What fetches from PyPI.
fn pip() -> String {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "--version"])
        .stdin(Stdio::null());
    let none = |why: String| format!("none, so that pypi: sources cannot be fetched: {why}");
    match command.output() {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            said.trim().trim_start_matches("pip ").to_owned()
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            none(said.lines().last().unwrap_or("no answer").to_owned())
        }
        Err(e) => none(format!("python3: {e}")),
    }
}

/// Goes the way of a run up to the first kernel, and writes down what it meets.
fn gpu(out: &mut String) -> Result<(), CudaError> {
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
