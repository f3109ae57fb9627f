// Matrix products by the BLAS that torch has, row by row; in bfloat16 by packed.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "errors.h"
#include "packed.h"

namespace {

// sgemm or dgemm of Fortran: column by column.
template <typename T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*,
                      const T*, const int*, const T*, T*, const int*);

template <typename T>
void gemm_columns(Gemm<T> gemm, char first, char second, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda,
                  const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  if (!m || !n) return;
  if (std::max({m, n, k, lda, ldb, ldc}) > std::numeric_limits<int>::max())
    throw std::overflow_error("a matrix has 2^31 or more rows or columns, too many for BLAS");
  const int sizes[] = {int(m), int(n), int(k), int(lda), int(ldb), int(ldc)};
  const T one = 1;
  gemm(&first, &second, sizes, sizes + 1, sizes + 2, &one, a, sizes + 3, b, sizes + 4, &beta, c, sizes + 5);
}

// Whether packed.h makes a product, in bfloat16. With fewer rows, packing the weight takes longer than the product.
template <typename T>
bool packs(int64_t rows) {
#ifdef BFLOAT16_PRODUCTS
  return std::is_same_v<T, float> && rows >= 32;
#endif
  return false;
}

// out [rows, outputs] = (out if add else 0) + in [rows, inputs] weight^T, with weight [outputs, inputs].
template <typename T>
void product(Gemm<T> gemm, int64_t rows, int64_t outputs, int64_t inputs, const T* in, int64_t in_stride,
             const T* weight, int64_t weight_stride, T* out, int64_t out_stride, bool add) {
  if (packs<T>(rows))
    return multiply(rows, in, in_stride, Packed<T>(inputs, outputs, weight, weight_stride, false), out, out_stride, add);
  gemm_columns<T>(gemm, 'T', 'N', outputs, rows, inputs, weight, weight_stride, in, in_stride, T(add), out, out_stride);
}

// out [rows, outputs] = in [rows, inputs] weight, with weight [inputs, outputs]. Of 1 to 4 rows it takes three quarters of
// the time that a BLAS takes.
template <typename T>
void product_plain(Gemm<T> gemm, int64_t rows, int64_t outputs, int64_t inputs, const T* in, int64_t in_stride,
                   const T* weight, int64_t weight_stride, T* out, int64_t out_stride) {
  if (rows <= 4) {
    for (int64_t row = 0; row < rows; ++row) std::fill_n(out + row * out_stride, outputs, T(0));
    for (int64_t k = 0; k < inputs; ++k)
      for (int64_t row = 0; row < rows; ++row)
        add_scaled(out + row * out_stride, in[row * in_stride + k], weight + k * weight_stride, outputs);
    return;
  }
  if (packs<T>(rows))
    return multiply(rows, in, in_stride, Packed<T>(inputs, outputs, weight, weight_stride, true), out, out_stride, false);
  gemm_columns<T>(gemm, 'N', 'N', outputs, rows, inputs, weight, weight_stride, in, in_stride, T(0), out, out_stride);
}

// out [left, right] += a^T b, with a [rows, left] and b [rows, right].
template <typename T>
void outer(Gemm<T> gemm, int64_t left, int64_t right, int64_t rows, const T* a, int64_t a_stride, const T* b,
           int64_t b_stride, T* out, int64_t out_stride) {
  if (packs<T>(rows)) return outer(left, right, rows, a, a_stride, b, b_stride, out, out_stride);
  if (rows) gemm_columns<T>(gemm, 'N', 'T', right, left, rows, b, b_stride, a, a_stride, T(1), out, out_stride);
}

}  // namespace
