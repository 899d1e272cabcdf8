//! `pplx doctor`: what runs find on this machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use indicatif::HumanBytes;

use super::Failure;
use crate::backend::ACCELERATORS;
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
    let cache = FetchOptions::from_env().cache_dir;
    let mut failures = Vec::new();
    for device in ACCELERATORS {
        if let Err(e) = device.examine(&mut out, cache.as_deref()) {
            failures.push((device, e));
        }
    }
    let usable = failures.len() < ACCELERATORS.len();
    if !args.gpu {
        for (_, e) in failures.iter().filter(|_| !usable) {
            out += &format!("GPU      none, placements are on the CPU: {e}\n");
        }
    }
    say::text(&out)?;
    let threads = rayon::ThreadPoolBuilder::new().build();
    threads.map_err(|e| Failure::failed(format!("worker threads cannot be started: {e}")))?;
    match failures.first().filter(|_| args.gpu && !usable) {
        Some((device, e)) => {
            let device = device.title();
            Err(Failure::failed(format!(
                "{device} placements cannot run: {e}"
            )))
        }
        None => Ok(()),
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
