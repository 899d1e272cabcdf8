// cuBLAS's entry points: products of f32, f16 and bf16 with f32 sums.
#include "context.h"
#include "gemm.h"
#include "memory.h"
#include "status.h"

using namespace standin;

namespace {

enum BlasStatus {
    blas_success = 0,
    blas_not_initialized = 1,
    blas_invalid_value = 7,
    blas_execution_failed = 13,
    blas_not_supported = 15,
};

struct Handle {
    void *stream = nullptr;
    int math = 0;
    int pointer_mode = 0;
};

bool number_of(int data_type, Number &number) {
    switch (data_type) {
    case 0: return number = Number::f32, true;
    case 2: return number = Number::f16, true;
    case 14: return number = Number::bf16, true;
    default: return false;
    }
}

// f32 sums, whichever way products may be rounded; TF32 is computed as f32.
bool sums_in_f32(int compute_type) { return compute_type == 68 || compute_type == 69 || compute_type == 77; }

struct Operand {
    const void *data;
    int type;
    int leading;
    long long stride;
};

// Bytes from the first element to behind the last of `columns` columns.
size_t extent(const Operand &x, Number number, int rows, int columns, int batch) {
    if (!rows || !columns) return 0;
    return ((size_t(batch) - 1) * size_t(x.stride) + (size_t(columns) - 1) * size_t(x.leading) + size_t(rows)) *
           bytes_of(number);
}

int product(Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, Operand a, Operand b,
            const void *beta, Operand c, int batch, int compute_type) {
    if (!h) return blas_not_initialized;
    if (enter(true)) return blas_execution_failed;
    Number of_a, of_b, of_c;
    if (!number_of(a.type, of_a) || !number_of(b.type, of_b) || !number_of(c.type, of_c) ||
        !sums_in_f32(compute_type) || h->pointer_mode != 0)
        return blas_not_supported;
    if (of_a != of_b || (of_a == Number::f32 && of_c != Number::f32)) return blas_not_supported;
    bool ta = op_a != 0, tb = op_b != 0;
    int rows_a = ta ? k : m, rows_b = tb ? n : k;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || a.leading < std::max(1, rows_a) ||
        b.leading < std::max(1, rows_b) || c.leading < std::max(1, m))
        return blas_invalid_value;
    if (!m || !n || !batch) return blas_success;
    size_t bytes_a = extent(a, of_a, rows_a, ta ? m : k, batch), bytes_b = extent(b, of_b, rows_b, tb ? k : n, batch),
           bytes_c = extent(c, of_c, m, n, batch);
    float factor = *static_cast<const float *>(alpha), keep = *static_cast<const float *>(beta);
    auto work = [=]() -> Failure {
        if (!memory().mapped(a.data, bytes_a) || !memory().mapped(b.data, bytes_b) ||
            !memory().mapped(c.data, bytes_c))
            return {cuda_illegal_address, "a cuBLAS product of " + std::to_string(m) + " × " + std::to_string(n) +
                                              " × " + std::to_string(k) + " reaches past an allocation"};
        auto at = [](const Operand &x, Number number, int i) {
            return static_cast<const char *>(x.data) + size_t(i) * size_t(x.stride) * bytes_of(number);
        };
        for (int i = 0; i < batch; i++)
            multiply(size_t(m), size_t(n), size_t(k), factor, {at(a, of_a, i), of_a, ta, size_t(a.leading)},
                     {at(b, of_b, i), of_b, tb, size_t(b.leading)}, keep, const_cast<char *>(at(c, of_c, i)), of_c,
                     size_t(c.leading));
        return {};
    };
    return enqueue_launch(h->stream, "cuBLAS", work) ? blas_execution_failed : blas_success;
}

constexpr int f32 = 0, compute_f32 = 68;

} // namespace

extern "C" {

int cublasCreate_v2(Handle **h) {
    if (enter(true)) return blas_not_initialized;
    return *h = new Handle, blas_success;
}
int cublasDestroy_v2(Handle *h) {
    if (!h) return blas_not_initialized;
    delete h;
    return blas_success;
}
int cublasGetVersion_v2(Handle *, int *version) { return *version = 129900, blas_success; }
int cublasGetProperty(int type, int *value) {
    const int version[] = {12, 99, 0};
    if (type < 0 || type > 2) return blas_invalid_value;
    return *value = version[type], blas_success;
}
int cublasSetStream_v2(Handle *h, void *stream) { return h->stream = stream, blas_success; }
int cublasGetStream_v2(Handle *h, void **stream) { return *stream = h->stream, blas_success; }
int cublasSetWorkspace_v2(Handle *, void *, size_t) { return blas_success; }
int cublasSetMathMode(Handle *h, int mode) { return h->math = mode, blas_success; }
int cublasGetMathMode(Handle *h, int *mode) { return *mode = h->math, blas_success; }
int cublasSetPointerMode_v2(Handle *h, int mode) { return h->pointer_mode = mode, blas_success; }
int cublasGetPointerMode_v2(Handle *h, int *mode) { return *mode = h->pointer_mode, blas_success; }
const char *cublasGetStatusString(int status) {
    switch (status) {
    case blas_success: return "CUBLAS_STATUS_SUCCESS";
    case blas_not_initialized: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case blas_invalid_value: return "CUBLAS_STATUS_INVALID_VALUE";
    case blas_execution_failed: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case blas_not_supported: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS unknown";
    }
}

int cublasSgemm_v2(Handle *h, int op_a, int op_b, int m, int n, int k, const float *alpha, const float *a, int lda,
                   const float *b, int ldb, const float *beta, float *c, int ldc) {
    return product(h, op_a, op_b, m, n, k, alpha, {a, f32, lda, 0}, {b, f32, ldb, 0}, beta, {c, f32, ldc, 0}, 1,
                   compute_f32);
}
int cublasSgemmStridedBatched(Handle *h, int op_a, int op_b, int m, int n, int k, const float *alpha, const float *a,
                              int lda, long long stride_a, const float *b, int ldb, long long stride_b,
                              const float *beta, float *c, int ldc, long long stride_c, int batch) {
    return product(h, op_a, op_b, m, n, k, alpha, {a, f32, lda, stride_a}, {b, f32, ldb, stride_b}, beta,
                   {c, f32, ldc, stride_c}, batch, compute_f32);
}
int cublasGemmEx(Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                 int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                 int compute_type, int) {
    return product(h, op_a, op_b, m, n, k, alpha, {a, type_a, lda, 0}, {b, type_b, ldb, 0}, beta, {c, type_c, ldc, 0},
                   1, compute_type);
}
int cublasGemmStridedBatchedEx(Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                               int type_a, int lda, long long stride_a, const void *b, int type_b, int ldb,
                               long long stride_b, const void *beta, void *c, int type_c, int ldc, long long stride_c,
                               int batch, int compute_type, int) {
    return product(h, op_a, op_b, m, n, k, alpha, {a, type_a, lda, stride_a}, {b, type_b, ldb, stride_b}, beta,
                   {c, type_c, ldc, stride_c}, batch, compute_type);
}
}
