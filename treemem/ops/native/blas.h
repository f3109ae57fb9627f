// Matrix products by the BLAS that torch has, row by row; in bfloat16 by packed.h.
#pragma once

#include <cstdint>

#include "packed.h"

namespace {

// Runs a function on several threads. One thread makes no parallel region: within it, BLAS would start threads of its own
// anew for each product.
template <class Function>
void on_threads(int64_t count, Function function) {
  if (count == 1) return function();
#pragma omp parallel num_threads(count)
  function();
}

// sgemm or dgemm of Fortran: column by column.
template <typename T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*,
                      const T*, const int*, const T*, T*, const int*);

template <typename T>
void gemm_columns(Gemm<T> gemm, char first, char second, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda,
                  const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  if (!m || !n) return;
  const int sizes[] = {int(m), int(n), int(k), int(lda), int(ldb), int(ldc)};
  const T one = 1;
  gemm(&first, &second, sizes, sizes + 1, sizes + 2, &one, a, sizes + 3, b, sizes + 4, &beta, c, sizes + 5);
}

// out [rows, outputs] = (out if add else 0) + in [rows, inputs] weight^T, with weight [outputs, inputs].
template <typename T>
void product(Gemm<T> gemm, int64_t rows, int64_t outputs, int64_t inputs, const T* in, int64_t in_stride,
             const T* weight, int64_t weight_stride, T* out, int64_t out_stride, bool add) {
  gemm_columns<T>(gemm, 'T', 'N', outputs, rows, inputs, weight, weight_stride, in, in_stride, T(add), out, out_stride);
}

// out [rows, outputs] = in [rows, inputs] weight, with weight [inputs, outputs].
template <typename T>
void product_plain(Gemm<T> gemm, int64_t rows, int64_t outputs, int64_t inputs, const T* in, int64_t in_stride,
                   const T* weight, int64_t weight_stride, T* out, int64_t out_stride) {
  gemm_columns<T>(gemm, 'N', 'N', outputs, rows, inputs, weight, weight_stride, in, in_stride, T(0), out, out_stride);
}

// out [left, right] += a^T b, with a [rows, left] and b [rows, right].
template <typename T>
void outer(Gemm<T> gemm, int64_t left, int64_t right, int64_t rows, const T* a, int64_t a_stride, const T* b,
           int64_t b_stride, T* out, int64_t out_stride) {
  if (rows) gemm_columns<T>(gemm, 'N', 'T', right, left, rows, b, b_stride, a, a_stride, T(1), out, out_stride);
}

#ifdef BFLOAT16_PRODUCTS
constexpr int64_t kLeastRows = 32;  // with fewer, packing the weight takes longer than the product

template <>
void product<float>(Gemm<float> gemm, int64_t rows, int64_t outputs, int64_t inputs, const float* in, int64_t in_stride,
                    const float* weight, int64_t weight_stride, float* out, int64_t out_stride, bool add) {
  if (rows < kLeastRows)
    return gemm_columns<float>(gemm, 'T', 'N', outputs, rows, inputs, weight, weight_stride, in, in_stride, add, out,
                               out_stride);
  multiply(rows, in, in_stride, Packed<float>(inputs, outputs, weight, weight_stride, false), out, out_stride, add);
}

template <>
void product_plain<float>(Gemm<float> gemm, int64_t rows, int64_t outputs, int64_t inputs, const float* in,
                          int64_t in_stride, const float* weight, int64_t weight_stride, float* out,
                          int64_t out_stride) {
  if (rows < kLeastRows)
    return gemm_columns<float>(gemm, 'N', 'N', outputs, rows, inputs, weight, weight_stride, in, in_stride, 0, out,
                               out_stride);
  multiply(rows, in, in_stride, Packed<float>(inputs, outputs, weight, weight_stride, true), out, out_stride, false);
}

template <>
void outer<float>(Gemm<float>, int64_t left, int64_t right, int64_t rows, const float* a, int64_t a_stride,
                  const float* b, int64_t b_stride, float* out, int64_t out_stride) {
  outer(left, right, rows, a, a_stride, b, b_stride, out, out_stride);
}
#endif

}  // namespace
