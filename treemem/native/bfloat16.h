// Products of float32 matrices whose numbers are sums of one or two bfloat16 numbers, by the tiles of AMX.
//
// A tile has 16 rows of 16 pairs. On the left, a row of a tile is a row of the matrix, and its pairs are adjacent depths.
// On the right, a row of a tile is a pair of depths, for 16 columns. With two parts, x = high + low, a product is
// high high + high low + low high; what is left out is 2^-16 of it, and the product of an infinite x is NaN. Sums are in
// float32.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "numerics.h"

namespace {

constexpr int64_t kSide = 16, kPairs = 2 * kSide, kTile = kSide * kPairs;  // rows, and numbers, of a tile
constexpr int64_t kTileBytes = sizeof(uint16_t) * kPairs;                  // of a row
constexpr int kParts = BFLOAT16_PARTS;

// The first `count` of 16 numbers.
inline __mmask16 first_of(int64_t count) {
  return static_cast<__mmask16>((1 << std::clamp(count, int64_t(0), kSide)) - 1);
}

// Exchanges rows and columns of 16 x 16 pairs.
inline void transpose(__m512i (&rows)[kSide]) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i other = _mm512_add_epi32(lane, _mm512_set1_epi32(kSide));  // the lanes of a second vector
  for (int step = 1; step < kSide; step *= 2) {
    const __m512i by = _mm512_set1_epi32(step);
    const __mmask16 odd = _mm512_test_epi32_mask(lane, by);
    const __m512i upper = _mm512_mask_sub_epi32(lane, odd, other, by);
    const __m512i lower = _mm512_mask_mov_epi32(_mm512_add_epi32(lane, by), odd, other);
    for (int i = 0; i < kSide; ++i) {
      if (i & step) continue;
      const __m512i a = rows[i], b = rows[i + step];
      rows[i] = _mm512_permutex2var_epi32(a, upper, b);
      rows[i + step] = _mm512_permutex2var_epi32(a, lower, b);
    }
  }
}

// 16 bfloat16 numbers as bits; x becomes what is left of it.
inline __m256i split(__m512& x) {
  const __m256i bits = (__m256i)_mm512_cvtneps_pbh(x);
  x = _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
  return bits;
}

// Writes a tile of each part. x is [side, depth], or [depth, side] if `across`; both may be less than a tile has.
inline void fill_tiles(const float* x, int64_t stride, bool across, int64_t side, int64_t depth, bool right,
                       uint16_t* to) {
  __m512i rows[kParts][kSide];
  for (int64_t i = 0; i < kSide; ++i) {
    __m512 a, b;
    if (across) {  // the pairs of two rows
      const __mmask16 all = first_of(side), none = 0;
      a = _mm512_maskz_loadu_ps(2 * i < depth ? all : none, x + 2 * i * stride);
      b = _mm512_maskz_loadu_ps(2 * i + 1 < depth ? all : none, x + (2 * i + 1) * stride);
    } else {  // the pairs within a row
      const int64_t here = i < side ? depth : 0;
      a = _mm512_maskz_loadu_ps(first_of(here), x + i * stride);
      b = _mm512_maskz_loadu_ps(first_of(here - kSide), x + i * stride + kSide);
    }
    for (int part = 0; part < kParts; ++part) {
      const __m256i of_a = split(a), of_b = split(b);
      rows[part][i] = across ? _mm512_or_si512(_mm512_cvtepu16_epi32(of_a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(of_b), 16))
                             : _mm512_inserti64x4(_mm512_castsi256_si512(of_a), of_b, 1);
    }
  }
  for (int part = 0; part < kParts; ++part, to += kTile) {
    if (across != right) transpose(rows[part]);
    for (int64_t i = 0; i < kSide; ++i) _mm512_store_si512(to + i * kPairs, rows[part][i]);
  }
}

template <>
struct Packed<float> {
  static constexpr int64_t kPanel = 2 * kSide;
  int64_t depth, columns;
  Buffer<uint16_t> values;  // panel by panel, 32 depths at a time: the parts of the left tile and of the right one

  Packed(int64_t depth, int64_t columns) : depth(depth), columns(columns), values(panels() * panel_size()) {}

  Packed(int64_t depth, int64_t columns, const float* weight, int64_t stride, bool plain) : Packed(depth, columns) {
    for (int64_t panel = 0; panel < panels(); ++panel) pack_panel(panel, weight, stride, plain);
  }

  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }
  int64_t steps() const { return (depth + kPairs - 1) / kPairs; }
  int64_t panel_size() const { return steps() * 2 * kParts * kTile; }

  void pack_panel(int64_t panel, const float* weight, int64_t stride, bool plain) {
    uint16_t* to = values.get() + panel * panel_size();
    for (int64_t k = 0; k < depth; k += kPairs)
      for (int64_t column = panel * kPanel; column < (panel + 1) * kPanel; column += kSide, to += kParts * kTile) {
        const float* from = weight + (plain ? k * stride + column : column * stride + k);
        fill_tiles(from, stride, plain, columns - column, depth - k, true, to);
      }
  }
};

// A tile of sums: in c itself, or in a copy if c has fewer than 16 rows or columns there.
struct Sums {
  float *c, *at;
  int64_t stride, rows, columns, bytes;
  alignas(64) float copy[kSide * kSide];

  Sums(float* c, int64_t stride, int64_t rows, int64_t columns, bool add)
      : c(c), stride(stride), rows(std::min(rows, kSide)), columns(std::min(columns, kSide)) {
    const bool whole = rows >= kSide && columns >= kSide;
    at = whole ? c : copy;
    bytes = (whole ? stride : kSide) * static_cast<int64_t>(sizeof(float));
    if (whole && add) return;
    for (int64_t row = 0; row < kSide; ++row) std::fill_n(at + row * (whole ? stride : kSide), kSide, 0.0f);
    if (add) transfer(c, stride, copy, kSide);
  }
  Sums(const Sums&) = delete;

  void finish() {
    if (at == copy) transfer(copy, kSide, c, stride);
  }

 private:
  void transfer(const float* from, int64_t from_stride, float* to, int64_t to_stride) const {
    for (int64_t row = 0; columns > 0 && row < rows; ++row)
      std::memcpy(to + row * to_stride, from + row * from_stride, static_cast<size_t>(columns) * sizeof(float));
  }
};

// sums [32, 32] += a b, or [16, 32] if not `two`. The tiles of a lie depth by depth, its second row `next` numbers on.
template <bool two>
void multiply_tiles(int64_t steps, const uint16_t* a, int64_t next, const uint16_t* b, const Sums* sums) {
  const auto products = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  };
  asm volatile("" ::: "memory");  // for GCC the loads of tiles read no memory
  _tile_loadd(0, sums[0].at, sums[0].bytes);
  _tile_loadd(1, sums[1].at, sums[1].bytes);
  if (two) {
    _tile_loadd(2, sums[2].at, sums[2].bytes);
    _tile_loadd(3, sums[3].at, sums[3].bytes);
  }
  for (int64_t step = 0; step < steps; ++step, a += kParts * kTile, b += 2 * kParts * kTile) {
    const auto left = [&](int part) {
      _tile_loadd(4, a + part * kTile, kTileBytes);
      if (two) _tile_loadd(5, a + next + part * kTile, kTileBytes);
    };
    const auto right = [&](int part) {
      _tile_loadd(6, b + part * kTile, kTileBytes);
      _tile_loadd(7, b + (kParts + part) * kTile, kTileBytes);
    };
    left(0);
    if (kParts == 2) {
      right(1);
      products();
    }
    right(0);
    products();
    if (kParts == 2) {
      left(1);
      products();
    }
  }
  _tile_stored(0, sums[0].at, sums[0].bytes);
  _tile_stored(1, sums[1].at, sums[1].bytes);
  if (two) {
    _tile_stored(2, sums[2].at, sums[2].bytes);
    _tile_stored(3, sums[3].at, sums[3].bytes);
  }
}

// The tiles of this thread: 16 rows of 64 bytes each.
struct Tiles {
  Tiles() {
    alignas(64) uint8_t shapes[64] = {1};
    for (int tile = 0; tile < 8; ++tile) shapes[16 + 2 * tile] = kTileBytes, shapes[48 + tile] = kSide;
    asm volatile("" ::: "memory");
    _tile_loadconfig(shapes);
  }
  ~Tiles() { _tile_release(); }
};

template <>
__attribute__((noinline)) void multiply<float>(int64_t rows, const float* x, int64_t x_stride, bool transposed,
                                               const Packed<float>& b, int64_t first, int64_t last, float* c,
                                               int64_t stride, bool add) {
  constexpr int64_t kRows = 16 * kSide, kSteps = kDepth / kPairs;  // at a time
  if (!b.depth && !add)
    for (int64_t row = 0; row < rows; ++row) std::fill_n(c + row * stride, b.columns, 0.0f);
  thread_local Buffer<uint16_t> memory(kRows * kDepth * kParts);
  const Tiles tiles;
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    const int64_t here = std::min(kRows, rows - begin);
    for (int64_t step = 0; step < b.steps(); step += kSteps) {
      const int64_t steps = std::min(kSteps, b.steps() - step), next = steps * kParts * kTile;
      uint16_t* to = memory.get();
      for (int64_t row = begin; row < begin + here; row += kSide)
        for (int64_t k = step * kPairs; k < (step + steps) * kPairs; k += kPairs, to += kParts * kTile) {
          const float* from = x + (transposed ? k * x_stride + row : row * x_stride + k);
          fill_tiles(from, x_stride, transposed, rows - row, b.depth - k, false, to);
        }
      for (int64_t panel = first; panel < last; ++panel) {
        const uint16_t* right = b.values.get() + panel * b.panel_size() + step * 2 * kParts * kTile;
        const int64_t column = panel * b.kPanel;
        for (int64_t row = 0; row < here; row += 2 * kSide) {
          const auto at = [&](int64_t i, int64_t j) {
            float* out = c + (begin + row + i) * stride + column + j;
            return Sums(out, stride, here - row - i, b.columns - column - j, add || step);
          };
          Sums sums[] = {at(0, 0), at(0, kSide), at(kSide, 0), at(kSide, kSide)};
          const auto run = here - row > kSide ? multiply_tiles<true> : multiply_tiles<false>;
          run(steps, memory.get() + row / kSide * next, next, right, sums);
          for (Sums& each : sums) each.finish();
        }
      }
    }
  }
}

}  // namespace
