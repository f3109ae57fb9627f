// What the compiled operations share: matrix products, rows, exponentials and dropout.

#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "exponentials.h"

#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))

namespace {

// While it lives, this thread takes subnormal numbers for 0. Processors are many times slower with them, and gradients
// that vanish are full of them.
class NoSubnormals {
#ifdef __SSE2__
 public:
  NoSubnormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }  // results and operands
  ~NoSubnormals() { _mm_setcsr(before); }

 private:
  const unsigned before;
#endif
};

// Of an array, with room to align it to cache lines.
template <typename T>
size_t bytes_of(int64_t count) {
  if (count < 0 || count > int64_t(1) << 56) throw std::bad_alloc();
  return (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64;
}

// Memory without initial values, aligned to cache lines.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { at_least(count); }

  // If it grows, it loses what it held.
  T* at_least(int64_t count) {
    if (count <= size && values) return values.get();
    size = 0;
    values.reset();  // before there is more memory
    values.reset(static_cast<T*>(std::aligned_alloc(64, bytes_of<T>(count))));
    if (!values) throw std::bad_alloc();
    size = count;
    return values.get();
  }
  T* get() const { return values.get(); }
  T& operator[](int64_t at) const { return values[at]; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T[], Free> values;
  int64_t size = 0;
};

// Blocks of memory for arenas, in large pages where the system has them. At most kKept free ones are kept: the system
// sets every page to 0 when it is used first, which takes a tenth of a training step.
class Blocks {
 public:
  static constexpr size_t kSize = size_t(1) << 25, kKept = 32, kLargePage = size_t(1) << 21;

  static char* take(size_t size) {
    Blocks& blocks = all();
    if (size == kSize) {
      std::lock_guard<std::mutex> guard(blocks.lock);
      if (!blocks.free.empty()) {
        char* found = blocks.free.back();
        blocks.free.pop_back();
        return found;
      }
    }
    char* made = static_cast<char*>(std::aligned_alloc(size < kLargePage ? 64 : kLargePage, size));
    if (!made) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (size >= kLargePage) madvise(made, size, MADV_HUGEPAGE);
#endif
    return made;
  }
  static void give_back(char* block, size_t size) {
    Blocks& blocks = all();
    std::lock_guard<std::mutex> guard(blocks.lock);
    if (size == kSize && blocks.free.size() < kKept) return blocks.free.push_back(block);
    std::free(block);
  }

 private:
  Blocks() { free.reserve(kKept); }  // giving back must not throw

  std::mutex lock;
  std::vector<char*> free;

  static Blocks& all() {
    static Blocks blocks;
    return blocks;
  }
};

// Memory for many arrays, all freed together.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (const auto& [block, size] : blocks) Blocks::give_back(block, size);
  }

  // An array without initial values, aligned to cache lines.
  template <typename T>
  T* take(int64_t count) {
    const size_t bytes = bytes_of<T>(count);
    while (current < blocks.size() && used + bytes > blocks[current].second) ++current, used = 0;
    if (current == blocks.size()) {
      size_t size = size_t(1) << std::min<size_t>(16 + 3 * blocks.size(), 25);  // at most Blocks::kSize
      if (bytes > size) size = (bytes + Blocks::kLargePage - 1) / Blocks::kLargePage * Blocks::kLargePage;
      blocks.emplace_back(nullptr, 0);  // first: if this throws, no block is lost
      blocks.back() = {Blocks::take(size), size};
    }
    return reinterpret_cast<T*>(blocks[current].first + (used += bytes) - bytes);
  }
  template <typename T>
  T* take_zero(int64_t count) {
    T* values = take<T>(count);
    std::memset(values, 0, static_cast<size_t>(count) * sizeof(T));
    return values;
  }
  // Frees all arrays, and keeps the memory for others.
  void reset() { current = used = 0; }

 private:
  std::vector<std::pair<char*, size_t>> blocks;
  size_t current = 0, used = 0;
};

template <typename T>
void add(T* to, const T* from, int64_t count) {
  SIMD
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <typename T>
void add_scaled(T* to, T factor, const T* from, int64_t count) {
  SIMD
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <typename T>
T dot(const T* a, const T* b, int64_t count) {
  T sum = 0;
  SIMD_SUM(sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename T>
void add_rows(T* to, const T* from, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) add(to, from + row * width, width);
}

template <typename T>
void fill_rows(T* to, int64_t rows, int64_t width, const T* from) {
  for (int64_t row = 0; row < rows; ++row) std::memcpy(to + row * width, from, static_cast<size_t>(width) * sizeof(T));
}

template <typename T>
void softmax(T* values, int64_t count) {
  if (!count) return;
  const T greatest = *std::max_element(values, values + count);
  T total = 0;
  for (int64_t i = 0; i < count; ++i) total += values[i] = exponential(values[i] - greatest);
  for (int64_t i = 0; i < count; ++i) values[i] /= total;
}

// d of the softmax becomes d of what it was made from.
template <typename T>
void softmax_backward(const T* values, T* d, int64_t count) {
  const T mean = dot(values, static_cast<const T*>(d), count);
  for (int64_t i = 0; i < count; ++i) d[i] = values[i] * (d[i] - mean);
}

// Inverted dropout. The factor of an entry follows from its number, so nothing is kept for the backward pass.
template <typename T>
class Dropout {
 public:
  Dropout(double rate, int64_t seed, int64_t part)
      : scale(rate < 1 ? T(1 / (1 - rate)) : T(0)), on(rate > 0),
        least(static_cast<uint32_t>(std::fmin(rate * 4294967296.0, 4294967295.0))),
        seed(mixed(static_cast<uint32_t>(seed) ^ mixed(static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(part)))) {}

  // 0, or 1 / (1 - rate), for an entry of a stream of entries. It does not branch, so that a loop takes many at once.
  T factor(uint32_t stream, uint32_t entry) const {
    return mixed((entry ^ seed) + stream * 0x9E3779B9u) >= least ? scale : T(0);
  }

  // to = from * factor, or to += from * factor, for `count` entries from `entry` on.
  void copy(uint32_t stream, uint32_t entry, const T* from, T* to, int64_t count) const {
    if (!on) return void(std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T)));
    const Dropout own = *this;  // so that the compiler knows that `to` does not change it
    SIMD
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] * own.factor(stream, entry + static_cast<uint32_t>(i));
  }
  void add(uint32_t stream, uint32_t entry, const T* from, T* to, int64_t count) const {
    const Dropout own = *this;
    if (!own.on) {
      SIMD
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
      return;
    }
    SIMD
    for (int64_t i = 0; i < count; ++i) to[i] += from[i] * own.factor(stream, entry + static_cast<uint32_t>(i));
  }

  const T scale;

 private:
  static uint32_t mixed(uint32_t x) {  // the finalizer of MurmurHash3
    x ^= x >> 16, x *= 0x85EBCA6Bu, x ^= x >> 13, x *= 0xC2B2AE35u;
    return x ^ x >> 16;
  }

  const bool on;
  const uint32_t least, seed;
};

}  // namespace
