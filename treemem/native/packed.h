// Matrix products with a right side that is packed once and used often. A BLAS packs both sides at every call.
//
// The loops over sequences multiply with these, because each step has few rows and the same weight. Levels of trees multiply
// by the BLAS (blas.h), and torch makes most products of all steps at once. How many times as long torch's BLAS (MKL)
// takes for a product, without the packing, in float32 on one thread of an AMD EPYC with AVX-512:
//
//   rows              2     4     8    16    32    64   128   256
//   64 x 256        2.8   1.5   1.5   1.3   1.1   1.1   1.0   1.0
//   128 x 512       2.7   1.6   1.6   1.3   1.2   1.1   1.1   1.1
//   256 x 1,024     3.2   2.1   2.0   1.6   1.4   1.3   1.2   1.2
//
// In float64 they are the same to 0.4. Packing takes as long as a product of 16 rows, in float64 of 8. `outer` packs at every
// call: with 8 rows it takes 1.6 times as long as the BLAS, with 64 as long.

#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "errors.h"
#include "numerics.h"

namespace {

// The sums of a tile, a row of the right side and one entry of the left side fill the registers.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kTileRows = 14;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kTileRows = 6;
#else
constexpr int kVectorBytes = 16, kTileRows = 6;
#endif
constexpr int kTileVectors = 2;
constexpr int64_t kDepth = 512;      // rows of the right side that are used at a time
constexpr int64_t kManyRows = 20 * kTileRows;

template <typename T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  static constexpr int64_t kWidth = kVectorBytes / sizeof(T);
  static constexpr int64_t kPanel = kTileVectors * kWidth;
};

// A matrix [depth, columns] in panels of adjacent columns, each row by row. The last panel is filled with 0.
template <typename T>
struct Packed {
  static constexpr int64_t kPanel = Lanes<T>::kPanel;
  int64_t depth, columns;
  Buffer<T> values;

  Packed(int64_t depth, int64_t columns) : depth(depth), columns(columns), values(panels() * kPanel * depth) {}

  Packed(int64_t depth, int64_t columns, const T* weight, int64_t stride, bool plain) : Packed(depth, columns) {
    for (int64_t panel = 0; panel < panels(); ++panel) pack_panel(panel, weight, stride, plain);
  }

  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }

  // `weight` is [columns, depth]; or [depth, columns] if `plain`.
  void pack_panel(int64_t panel, const T* weight, int64_t stride, bool plain) {
    T* to = values.get() + panel * kPanel * depth;
    const int64_t begin = panel * kPanel, width = std::min(kPanel, columns - begin);
    if (width < kPanel) std::memset(to, 0, static_cast<size_t>(kPanel * depth) * sizeof(T));
    if (plain && width == kPanel) {
      for (int64_t k = 0; k < depth; ++k) std::memcpy(to + k * kPanel, weight + k * stride + begin, kPanel * sizeof(T));
      return;
    }
    if (plain) {
      for (int64_t k = 0; k < depth; ++k)
        std::memcpy(to + k * kPanel, weight + k * stride + begin, static_cast<size_t>(width) * sizeof(T));
      return;
    }
    for (int64_t block = 0; block < depth; block += 16)  // 16 entries of a row are a cache line
      for (int64_t column = 0; column < width; ++column)
        for (int64_t k = block; k < std::min(block + 16, depth); ++k)
          to[k * kPanel + column] = weight[(begin + column) * stride + k];
  }
};

// c [rows, width] = (c if add else 0) + x^T b, with x [depth, R] and b [depth, panel]; rows <= R and width <= panel.
template <typename T, int R>
__attribute__((noinline)) void multiply_tile(int rows, int64_t depth, const T* x, const T* b, T* c, int64_t stride, int64_t width, bool add) {
  using V = typename Lanes<T>::Vector;
  V sums[R][kTileVectors] = {};
  for (int64_t k = 0; k < depth; ++k, x += R, b += Lanes<T>::kPanel) {
    V right[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v)  // one copy of all would go through memory
      std::memcpy(&right[v], b + v * Lanes<T>::kWidth, sizeof(V));
#pragma GCC unroll 16
    for (int row = 0; row < R; ++row)
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sums[row][v] += x[row] * right[v];
  }
  T values[R][Lanes<T>::kPanel];
#pragma GCC unroll 16
  for (int row = 0; row < R; ++row)
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) std::memcpy(values[row] + v * Lanes<T>::kWidth, &sums[row][v], sizeof(V));
  for (int row = 0; row < rows; ++row, c += stride) {
    if (add)
      for (int64_t i = 0; i < width; ++i) c[i] += values[row][i];
    else
      std::memcpy(c, values[row], static_cast<size_t>(width) * sizeof(T));
  }
}

// The same with the smallest R that is even and enough.
template <typename T, int R = 2>
void multiply_rows(int rows, int64_t depth, const T* x, const T* b, T* c, int64_t stride, int64_t width, bool add) {
  if constexpr (R < kTileRows)
    if (rows > R) return multiply_rows<T, R + 2>(rows, depth, x, b, c, stride, width, add);
  multiply_tile<T, R>(rows, depth, x, b, c, stride, width, add);
}

// [rows, depth], or its transpose, as [depth, even number of rows]. 0 fills the last row.
template <typename T>
void pack_rows(int64_t rows, int64_t depth, const T* x, int64_t stride, bool transposed, T* to) {
  const int64_t even = rows + rows % 2;
  if (even > rows)
    for (int64_t k = 0; k < depth; ++k) to[k * even + rows] = T(0);
  if (transposed && rows == kTileRows) {  // a copy of known size is a few instructions
    for (int64_t k = 0; k < depth; ++k) std::memcpy(to + k * kTileRows, x + k * stride, kTileRows * sizeof(T));
  } else if (transposed) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t row = 0; row < rows; ++row) to[k * even + row] = x[k * stride + row];
  } else {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < depth; ++k) to[k * even + row] = x[row * stride + k];
  }
}

// Panels `first` to `last` of c [rows, columns] = (c if add else 0) + x b. x is [rows, depth], or its transpose is.
template <typename T>
__attribute__((noinline)) void multiply(int64_t rows, const T* x, int64_t x_stride, bool transposed,
                                        const Packed<T>& b, int64_t first, int64_t last, T* c, int64_t stride,
                                        bool add) {
  if (!b.depth && !add)
    for (int64_t row = 0; row < rows; ++row) std::fill_n(c + row * stride, b.columns, T(0));
  thread_local Buffer<T> memory(kManyRows * kDepth);
  for (int64_t row = 0; row < rows; row += kManyRows) {
    const int64_t here = std::min(kManyRows, rows - row), tiles = (here + kTileRows - 1) / kTileRows;
    const auto begin_of = [&](int64_t tile) { return std::min(here, (here + 1) / 2 * tile / tiles * 2); };
    for (int64_t k = 0; k < b.depth; k += kDepth) {
      const int64_t depth = std::min(kDepth, b.depth - k);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = begin_of(tile);
        const T* from = transposed ? x + k * x_stride + row + begin : x + (row + begin) * x_stride + k;
        pack_rows(begin_of(tile + 1) - begin, depth, from, x_stride, transposed, memory.get() + begin * depth);
      }
      for (int64_t panel = first; panel < last; ++panel) {
        const T* right = b.values.get() + (panel * b.depth + k) * b.kPanel;
        const int64_t column = panel * b.kPanel, width = std::min(b.kPanel, b.columns - column);
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const int64_t begin = begin_of(tile);
          multiply_rows<T>(static_cast<int>(begin_of(tile + 1) - begin), depth, memory.get() + begin * depth, right,
                           c + (row + begin) * stride + column, stride, width, add || k);
        }
      }
    }
  }
}

}  // namespace

#if defined(BFLOAT16_PARTS) && defined(__AVX512BF16__) && (defined(__AMX_BF16__) || defined(__AMXBF16__))
#define BFLOAT16_PRODUCTS
#include "bfloat16.h"
#endif

namespace {

// What products with a map take: its weight, [outputs, inputs], or for the backward pass the transpose.
template <typename T>
Packed<T> packed_map(int64_t inputs, int64_t outputs, const T* weight, int64_t stride, bool backward) {
  return backward ? Packed<T>(outputs, inputs, weight, stride, true) : Packed<T>(inputs, outputs, weight, stride, false);
}

// c [rows, columns] = (c if add else 0) + x b by this thread alone.
template <typename T>
void multiply(int64_t rows, const T* x, int64_t x_stride, const Packed<T>& b, T* c, int64_t stride, bool add) {
  multiply(rows, x, x_stride, false, b, 0, b.panels(), c, stride, add);
}

// out [left, right] += a^T b by this thread alone, with a [rows, left] and b [rows, right].
template <typename T>
void outer(int64_t left, int64_t right, int64_t rows, const T* a, int64_t a_stride, const T* b, int64_t b_stride,
           T* out, int64_t out_stride) {
  if (!rows) return;
  const Packed<T> packed(rows, right, b, b_stride, true);
  multiply(left, a, a_stride, true, packed, 0, packed.panels(), out, out_stride, true);
}

// Where the part of a thread begins in `count` things.
inline int64_t share(int64_t count, int64_t thread, int64_t threads) { return count * thread / threads; }

}  // namespace
