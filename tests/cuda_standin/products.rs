//! cuBLAS products against a loop.

use super::*;

/// All four layouts, by cuBLAS's column-major rule: a row-major C = A B is the
/// column-major Cᵀ = Bᵀ Aᵀ.
#[test]
fn cublas_products_agree_with_a_loop() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let blas = CudaBlas::new(gpu.stream.clone()).expect("a handle");
    for (m, n, k) in [(1, 1, 1), (7, 5, 3), (100, 33, 300), (17, 130, 64)] {
        let (a, b) = (numbers(m * k, 6), numbers(k * n, 7));
        let want = host_matmul(&a, &b, m, n, k);
        let transpose = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..rows * columns)
                .map(|i| x[i % rows * columns + i / rows])
                .collect()
        };
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if ta { transpose(&a, m, k) } else { a.clone() };
            let b = if tb { transpose(&b, k, n) } else { b.clone() };
            let a = gpu.stream.clone_htod(&a).expect("a copy");
            let b = gpu.stream.clone_htod(&b).expect("a copy");
            let mut c = gpu.stream.clone_htod(&vec![1.0f32; m * n]).expect("a copy");
            let op = |t| {
                if t {
                    cublasOperation_t::CUBLAS_OP_T
                } else {
                    cublasOperation_t::CUBLAS_OP_N
                }
            };
            let config = GemmConfig {
                transa: op(tb),
                transb: op(ta),
                m: n as i32,
                n: m as i32,
                k: k as i32,
                alpha: 2.0f32,
                lda: if tb { k } else { n } as i32,
                ldb: if ta { m } else { k } as i32,
                beta: 3.0,
                ldc: n as i32,
            };
            unsafe { blas.gemm(config, &b, &a, &mut c) }.expect("a product");
            let c = gpu.stream.clone_dtoh(&c).expect("a copy");
            for (c, w) in c.iter().zip(&want) {
                assert_eq!(*c, 2.0 * w + 3.0);
            }
        }
    }
}

#[test]
fn cublas_batches() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let blas = CudaBlas::new(gpu.stream.clone()).expect("a handle");
    let (m, n, k, batch) = (4usize, 6usize, 5usize, 3usize);
    let (a, b) = (numbers(m * k * batch, 8), numbers(k * n * batch, 9));
    let on_a = gpu.stream.clone_htod(&a).expect("a copy");
    let on_b = gpu.stream.clone_htod(&b).expect("a copy");
    let mut c = unsafe { gpu.stream.alloc::<f32>(m * n * batch) }.expect("memory");
    let config = StridedBatchedConfig {
        gemm: GemmConfig {
            transa: cublasOperation_t::CUBLAS_OP_N,
            transb: cublasOperation_t::CUBLAS_OP_N,
            m: n as i32,
            n: m as i32,
            k: k as i32,
            alpha: 1.0f32,
            lda: n as i32,
            ldb: k as i32,
            // What the memory holds, NaN here, must not be read.
            beta: 0.0,
            ldc: n as i32,
        },
        batch_size: batch as i32,
        stride_a: (k * n) as i64,
        stride_b: (m * k) as i64,
        stride_c: (m * n) as i64,
    };
    unsafe { blas.gemm_strided_batched(config, &on_b, &on_a, &mut c) }.expect("products");
    let c = gpu.stream.clone_dtoh(&c).expect("a copy");
    for i in 0..batch {
        let want = host_matmul(&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], m, n, k);
        assert_eq!(c[i * m * n..][..m * n], want);
    }
}

/// Halves of both kinds hold small integers exactly, so their products are f32's.
#[test]
fn cublas_takes_halves() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let blas = CudaBlas::new(gpu.stream.clone()).expect("a handle");
    let (m, n, k) = (20usize, 30usize, 40usize);
    let (a, b) = (numbers(m * k, 11), numbers(n * k, 12));
    // Row-major A and Bᵀ: column-major, both read as they are but B turned.
    let want: Vec<f32> = (0..m * n)
        .map(|i| (0..k).map(|p| a[i / n * k + p] * b[i % n * k + p]).sum())
        .collect();
    let f16 = |x: &f32| half::f16::from_f32(*x).to_bits();
    let bf16 = |x: &f32| half::bf16::from_f32(*x).to_bits();
    let kinds = [
        (cublas::cudaDataType::CUDA_R_16F, f16 as fn(&f32) -> u16),
        (cublas::cudaDataType::CUDA_R_16BF, bf16),
    ];
    for (kind, narrow) in kinds {
        let upload = |x: &[f32]| {
            let narrow: Vec<u16> = x.iter().map(narrow).collect();
            gpu.stream.clone_htod(&narrow).expect("a copy")
        };
        let (on_a, on_b) = (upload(&a), upload(&b));
        let mut c = unsafe { gpu.stream.alloc::<f32>(m * n) }.expect("memory");
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the pointers are of matrices of these sizes.
        unsafe {
            cudarc::cublas::result::gemm_ex(
                *blas.handle(),
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                n as i32,
                m as i32,
                k as i32,
                (&raw const one).cast(),
                on_b.device_ptr(&gpu.stream).0 as *const _,
                kind,
                k as i32,
                on_a.device_ptr(&gpu.stream).0 as *const _,
                kind,
                k as i32,
                (&raw const zero).cast(),
                c.device_ptr_mut(&gpu.stream).0 as *mut _,
                cublas::cudaDataType::CUDA_R_32F,
                n as i32,
                cublas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .expect("a product");
        assert_eq!(gpu.stream.clone_dtoh(&c).expect("a copy"), want, "{kind:?}");
    }
}
