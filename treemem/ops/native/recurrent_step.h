// The pointwise steps of recurrent cells, forward and backward; the equations are those of torch's cells.

#pragma once

#include "numerics.h"

namespace {

// Blocks become what is kept, and the next state. In the backward pass `d` is the gradient of the state and
// becomes that part of the gradient of the state before that does not go through the blocks. Products with the state
// before add to kProducts blocks from kFirst on, products with what was read to the first kProducts.

struct RNN {
  static constexpr int64_t kBlocks = 1, kProducts = 1, kFirst = 0;
  static constexpr bool kCell = false;

  template <typename T>
  static void forward(int64_t H, T* block, const T*, const T*, T* state, T*) {
    SIMD
    for (int64_t i = 0; i < H; ++i) state[i] = hyperbolic_tangent(block[i]);
  }
  template <typename T>
  static void backward(int64_t H, const T*, const T*, const T*, const T* state, const T*, T* d, T*, T* d_block) {
    SIMD
    for (int64_t i = 0; i < H; ++i) d_block[i] = d[i] * (T(1) - state[i] * state[i]), d[i] = 0;
  }
};

struct LSTM {  // input gate, forget gate, candidate, output gate
  static constexpr int64_t kBlocks = 4, kProducts = 4, kFirst = 0;
  static constexpr bool kCell = true;

  template <typename T>
  static void forward(int64_t H, T* block, const T*, const T* cell_before, T* state, T* cell) {
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      block[i] = sigmoid(block[i]);
      block[H + i] = sigmoid(block[H + i]);
      block[2 * H + i] = hyperbolic_tangent(block[2 * H + i]);
      block[3 * H + i] = sigmoid(block[3 * H + i]);
      cell[i] = block[H + i] * cell_before[i] + block[i] * block[2 * H + i];
      state[i] = block[3 * H + i] * hyperbolic_tangent(cell[i]);
    }
  }
  template <typename T>
  static void backward(int64_t H, const T* block, const T*, const T* cell_before, const T*, const T* cell, T* d,
                       T* d_cell, T* d_block) {
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      const T in = block[i], forget = block[H + i], candidate = block[2 * H + i], out = block[3 * H + i];
      const T squashed = hyperbolic_tangent(cell[i]);
      const T of_cell = d_cell[i] + d[i] * out * (T(1) - squashed * squashed);
      d_block[i] = of_cell * candidate * in * (T(1) - in);
      d_block[H + i] = of_cell * cell_before[i] * forget * (T(1) - forget);
      d_block[2 * H + i] = of_cell * in * (T(1) - candidate * candidate);
      d_block[3 * H + i] = d[i] * squashed * out * (T(1) - out);
      d_cell[i] = of_cell * forget;
      d[i] = 0;
    }
  }
};

struct GRU {  // candidate without the state, reset gate, update gate, what the state gives the candidate
  static constexpr int64_t kBlocks = 4, kProducts = 3, kFirst = 1;
  static constexpr bool kCell = false;

  template <typename T>
  static void forward(int64_t H, T* block, const T* before, const T*, T* state, T*) {
    T *candidate = block, *reset = block + H, *update = block + 2 * H, *of_state = block + 3 * H;
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      reset[i] = sigmoid(reset[i]);
      update[i] = sigmoid(update[i]);
      candidate[i] = hyperbolic_tangent(candidate[i] + reset[i] * of_state[i]);
      state[i] = candidate[i] + update[i] * (before[i] - candidate[i]);
    }
  }
  template <typename T>
  static void backward(int64_t H, const T* block, const T* before, const T*, const T*, const T*, T* d, T*, T* d_block) {
    const T *candidate = block, *reset = block + H, *update = block + 2 * H, *of_state = block + 3 * H;
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      const T inner = d[i] * (T(1) - update[i]) * (T(1) - candidate[i] * candidate[i]);
      d_block[i] = inner;
      d_block[H + i] = inner * of_state[i] * reset[i] * (T(1) - reset[i]);
      d_block[2 * H + i] = d[i] * (before[i] - candidate[i]) * update[i] * (T(1) - update[i]);
      d_block[3 * H + i] = inner * reset[i];
      d[i] *= update[i];
    }
  }
};

}  // namespace
