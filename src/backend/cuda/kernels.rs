//! The kernels: one translation unit, compiled for a device's architecture by
//! NVRTC and kept in the cache folder.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use sha2::{Digest, Sha256};

use super::error::CudaError;
use super::error::Version;
use crate::files;

/// The files of `kernels/`, in the order of the translation unit.
const FILES: [(&str, &str); 10] = [
    ("common.cu", include_str!("kernels/common.cu")),
    ("dequant.cu", include_str!("kernels/dequant.cu")),
    ("product.cu", include_str!("kernels/product.cu")),
    ("elementwise.cu", include_str!("kernels/elementwise.cu")),
    ("norm.cu", include_str!("kernels/norm.cu")),
    ("rope.cu", include_str!("kernels/rope.cu")),
    ("attention.cu", include_str!("kernels/attention.cu")),
    ("head.cu", include_str!("kernels/head.cu")),
    ("moe.cu", include_str!("kernels/moe.cu")),
    ("recurrent.cu", include_str!("kernels/recurrent.cu")),
];

/// Contraction would make decoded weights differ from the CPU's.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// The source of all kernels; errors name the files.
fn source() -> String {
    let files = FILES.iter();
    files
        .map(|(name, text)| format!("#line 1 \"{name}\"\n{text}"))
        .collect()
}

/// A device architecture, as in `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// `9` of 9.0.
    pub major: i32,
    /// `0` of 9.0.
    pub minor: i32,
}

impl Arch {
    fn number(self) -> i32 {
        10 * self.major + self.minor
    }
}

/// The version of the NVRTC library.
///
/// # Errors
/// Whatever the library says.
pub fn nvrtc_version() -> Result<Version, CudaError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both point to integers that outlive the call.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }
        .result()
        .map_err(|e| {
            CudaError::compiler("cannot ask for the compiler's version", e, String::new())
        })?;
    Ok(Version {
        major: major.unsigned_abs(),
        minor: minor.unsigned_abs(),
    })
}

/// The architectures that NVRTC knows, such as 90 for `sm_90`.
fn known_archs() -> Result<Vec<i32>, CudaError> {
    let fail =
        |e| CudaError::compiler("cannot list the compiler's architectures", e, String::new());
    let mut n = 0;
    // SAFETY: `n` outlives the call, and the list has room for as many as NVRTC
    // has announced.
    unsafe {
        sys::nvrtcGetNumSupportedArchs(&mut n)
            .result()
            .map_err(fail)?;
        let mut archs = vec![0; usize::try_from(n).unwrap_or(0)];
        sys::nvrtcGetSupportedArchs(archs.as_mut_ptr())
            .result()
            .map_err(fail)?;
        Ok(archs)
    }
}

/// What `--gpu-architecture` names for a device: its own machine code, or, where
/// NVRTC is older than the device, the newest intermediate code it has, which
/// the driver translates.
fn target(arch: Arch, known: &[i32]) -> String {
    let own = arch.number();
    let older = known.iter().filter(|&&a| a <= own).max();
    match older {
        Some(&a) if a < own => format!("compute_{a}"),
        _ => format!("sm_{own}"),
    }
}

/// Compiles the kernels for `arch`.
///
/// # Errors
/// What NVRTC says, with its log.
pub fn compile(arch: Arch) -> Result<Vec<u8>, CudaError> {
    compile_for(&source(), &target(arch, &known_archs()?))
}

/// Where compiled kernels are kept under `cache`: by all that they depend on.
fn kept_at(cache: &Path, source: &str, target: &str) -> Result<PathBuf, CudaError> {
    let version = nvrtc_version()?;
    let mut hash = Sha256::new();
    for part in [source, &OPTIONS.join(" "), &version.to_string()] {
        hash.update(part);
        hash.update([0]);
    }
    let hash = hash.finalize();
    let hex: String = hash.iter().take(16).map(|b| format!("{b:02x}")).collect();
    Ok(cache.join("kernels").join(format!("{hex}-{target}.bin")))
}

/// Writes a file in one step: other processes see all of it or nothing.
fn keep(path: &Path, code: &[u8]) -> std::io::Result<()> {
    files::replace(path, |out| out.write_all(code))
}

/// A program that is destroyed in any case.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `create_program`, destroyed once.
        let _ = unsafe { nvrtc::destroy_program(self.0) };
    }
}

fn compile_for(source: &str, target: &str) -> Result<Vec<u8>, CudaError> {
    const DOING: &str = "cannot compile the kernels";
    let fail = |e| CudaError::compiler(DOING, e, String::new());
    let source = CString::new(source).unwrap_or_default();
    let program = Program(nvrtc::create_program(&source, Some(c"pplx.cu")).map_err(fail)?);
    let arch = format!("--gpu-architecture={target}");
    let options: Vec<&str> = OPTIONS.into_iter().chain([arch.as_str()]).collect();
    // SAFETY: the program is alive.
    if let Err(e) = unsafe { nvrtc::compile_program(program.0, &options) } {
        // SAFETY: the program is alive.
        let log = unsafe { nvrtc::get_program_log(program.0) }.unwrap_or_default();
        let log: Vec<u8> = log
            .iter()
            .map(|&c| c as u8)
            .take_while(|&c| c != 0)
            .collect();
        let log = format!(
            " for {target}\n{}",
            String::from_utf8_lossy(&log).trim_end()
        );
        return Err(CudaError::compiler(DOING, e, log));
    }
    if target.starts_with("compute_") {
        // SAFETY: the program is compiled. The text ends with a zero byte.
        let text = unsafe { nvrtc::get_ptx(program.0) }.map_err(fail)?;
        return Ok(text.iter().map(|&c| c as u8).collect());
    }
    let mut size = 0;
    // SAFETY: `size` outlives the call, and the buffer has the size that NVRTC
    // has announced.
    unsafe {
        sys::nvrtcGetCUBINSize(program.0, &mut size)
            .result()
            .map_err(fail)?;
        let mut code = vec![0u8; size];
        sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast())
            .result()
            .map_err(fail)?;
        Ok(code)
    }
}

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        /// The kernels of a device, by name.
        pub(super) struct Kernels { $(pub $name: CudaFunction),* }

        impl Kernels {
            /// Loads compiled kernels into a device's context.
            fn load(context: &Arc<CudaContext>, code: Vec<u8>) -> Result<Self, CudaError> {
                let fail = |e| CudaError::driver("cannot load the kernels", e);
                let module = context.load_module(Ptx::from_binary(code)).map_err(fail)?;
                Ok(Self { $($name: module.load_function(stringify!($name)).map_err(fail)?),* })
            }
        }
    };
}

kernels! {
    dequantize_f32, dequantize_f16, dequantize_bf16,
    multiply_f32, multiply_f16, multiply_bf16, narrow_f16, narrow_bf16,
    add, multiply_by, scale, add_row, multiply_row, scale_rows, sigmoid_gate, apply_function,
    activation, gated_activation, copy_columns, gather_rows, scatter_add_rows, find_not_finite,
    normalize, rotate, attend, fold_logits, begin_rows, finish_rows, finish_logits, route,
    convolve, blend_previous, interpolate, scale_by_rate, add_scaled_by_sums,
    scan_mamba1, scan_mamba2, scan_delta_net, scan_rwkv6, scan_rwkv7,
}

impl Kernels {
    /// The kernels for a device's context: those that are kept under `cache`, or
    /// compiled ones, which are kept there then.
    pub fn new(
        context: &Arc<CudaContext>,
        arch: Arch,
        cache: Option<&Path>,
    ) -> Result<Self, CudaError> {
        let (source, target) = (source(), target(arch, &known_archs()?));
        let path = cache.map(|c| kept_at(c, &source, &target)).transpose()?;
        let kept = path.as_ref().and_then(|p| fs::read(p).ok());
        // What cannot be loaded any more is made anew.
        if let Some(kernels) = kept.and_then(|code| Self::load(context, code).ok()) {
            return Ok(kernels);
        }
        let code = compile_for(&source, &target)?;
        if let Some(path) = path {
            // A cache that cannot be written costs the next start some seconds.
            let _ = keep(&path, &code);
        }
        Self::load(context, code)
    }
}
