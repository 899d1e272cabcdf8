//! A cuBLAS handle.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::{result, sys};
use cudarc::driver::CudaStream;

use super::error::CudaError;
use super::error::Version;
use super::kernels::Arch;
use super::memory::{Allocation, Memory};
use super::precision::Precision;

/// What cuBLAS may use beside inputs and outputs: NVIDIA's advice. Given to it so
/// that it is counted, and so that its choice of algorithm does not depend on
/// what is free.
pub(super) fn workspace_bytes(arch: Arch) -> u64 {
    match arch.major {
        9.. => 32 << 20,
        _ => 4 << 20,
    }
}

pub(super) struct Blas {
    handle: sys::cublasHandle_t,
    stream: Arc<CudaStream>,
    _workspace: Allocation,
}

// SAFETY: cuBLAS handles may be used from any thread, by one at a time; the
// backend's queue is locked while in use.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// A product of row-major matrices: `out[r, o] = scale · Σ_i x[r, i] · w[o, i]`,
/// with rows `x_row`, `n_in` and `out_row` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub precision: Precision,
    pub n_rows: i32,
    pub n_out: i32,
    pub n_in: i32,
    pub scale: f32,
    pub x: u64,
    pub x_row: i32,
    pub w: u64,
    pub out: u64,
    pub out_row: i32,
}

impl Blas {
    pub fn new(
        stream: Arc<CudaStream>,
        memory: &Arc<Memory>,
        arch: Arch,
    ) -> Result<Self, CudaError> {
        let fail = |e| CudaError::blas("cannot start cuBLAS", e);
        let workspace = memory.allocate("cuBLAS's workspace", workspace_bytes(arch))?;
        let blas = Self {
            handle: result::create_handle().map_err(fail)?,
            stream,
            _workspace: workspace,
        };
        let size = usize::try_from(blas._workspace.bytes()).unwrap_or(0);
        // Sums in f32 throughout, whatever the inputs' width.
        let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: the handle is alive; the stream and the workspace live as long.
        unsafe {
            sys::cublasSetStream_v2(blas.handle, blas.stream.cu_stream().cast())
                .result()
                .map_err(fail)?;
            sys::cublasSetWorkspace_v2(blas.handle, blas._workspace.address() as *mut c_void, size)
                .result()
                .map_err(fail)?;
            sys::cublasSetMathMode(blas.handle, mode)
                .result()
                .map_err(fail)?;
        }
        Ok(blas)
    }

    pub fn version(&self) -> Result<Version, CudaError> {
        let mut version = 0;
        // SAFETY: the handle is alive, and `version` outlives the call.
        unsafe { sys::cublasGetVersion_v2(self.handle, &mut version) }
            .result()
            .map_err(|e| CudaError::blas("cannot ask for cuBLAS's version", e))?;
        let version = version.unsigned_abs();
        Ok(Version {
            major: version / 10000,
            minor: version / 100 % 100,
        })
    }

    /// Queues a product. The addresses are those of device memory that holds the
    /// matrices and stays until the stream has come so far.
    pub fn multiply(&self, p: Product) -> Result<(), CudaError> {
        use sys::cublasComputeType_t as Compute;
        use sys::cudaDataType_t as Data;
        // Pedantic: no TF32, whatever the environment says.
        let (data, compute) = match p.precision {
            Precision::F32 => (Data::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_PEDANTIC),
            Precision::F16 => (Data::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F),
            Precision::Bf16 => (Data::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
        };
        let (alpha, beta) = (p.scale, 0.0f32);
        // Columns there are rows here: outᵀ = w · xᵀ.
        // SAFETY: the caller vouches for the addresses; alpha and beta are read
        // before the call returns.
        unsafe {
            sys::cublasGemmEx(
                self.handle,
                sys::cublasOperation_t::CUBLAS_OP_T,
                sys::cublasOperation_t::CUBLAS_OP_N,
                p.n_out,
                p.n_rows,
                p.n_in,
                (&raw const alpha).cast(),
                p.w as *const c_void,
                data,
                p.n_in,
                p.x as *const c_void,
                data,
                p.x_row,
                (&raw const beta).cast(),
                p.out as *mut c_void,
                Data::CUDA_R_32F,
                p.out_row,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
        .map_err(|e| CudaError::blas("cannot multiply", e))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: created by `create_handle`, destroyed once.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}
