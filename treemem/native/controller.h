// The steps of a recurrent cell, a controller, and of the memory that it controls, over packed sequences, forward and
// backward. The equations are those of MemoryCell and of torch's cells.
//
// Each thread takes some sequences from the first step to the last, so that none waits for another.
//
// Without it one thread trains so many times as long (32 sequences of 10 to 30 vectors, an LSTM): 128 units alone 1.9; 64 units
// with a superposition stack 3.1, a neural stack 4.3, registers 5.9. A GRU of 128 units with attention 3.3.

#pragma once

#include <algorithm>
#include <cstdint>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "step.h"

// The step of the controller, printed from networks/memories/controllers/equations.py.
namespace controller {
CONTROLLER_STEP
}

// Both are declared in networks/memories/controllers/run.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

// Where a run is. `token` is the number of the row's token.
struct Place {
  int64_t step, row, token;
  bool ends;  // whether it is the row's last step
};

// States of a memory, each of `size` numbers: before the first step; after every step, if there may be a backward pass,
// else null; and the last ones.
struct States {
  const Problem& p;
  const T* first;
  T *all, *last;
  int64_t size;

  T* before(Place at) const {
    if (!at.step) return const_cast<T*>(first) + at.row * size;
    return all ? all + (p.tokens[at.step - 1] + at.row) * size : of_end(at);
  }
  T* after(Place at) const { return all ? all + at.token * size : of_end(at); }
  T* of_end(Place at) const { return last + at.row * size; }
};

// A memory has `Buffers`, memory of a thread's own, made from it, and
//   void forward(Place, T* control, T* readout, Buffers&) const
//   void backward(Place, const T* control, const T* d_readout, T* d_control, Buffers&) const
template <class Memory>
struct Run {
  const Problem& p;
  const Memory& memory;
  const int64_t H, Z, R, C, B, P;  // widths of h, c, what is read, controls, blocks, and those that h adds to

  Run(const Problem& problem, const Memory& memory)
      : p(problem), memory(memory), H(p.hidden_size), Z(p.cell_size), R(p.read_size), C(p.control_size),
        B(p.num_blocks * H), P(p.num_products * H) {}

  // What products take: the weights, or for the backward pass their transposes.
  struct Weights {
    const Packed<T> of_state, of_read, of_control;

    Weights(const Run& run, bool backward)
        : of_state(packed_map(run.H, run.P, run.p.of_state, run.H, backward)),
          of_read(packed_map(run.R, run.P, run.p.of_read, run.R, backward)),
          of_control(packed_map(run.H, run.C, run.p.of_control, run.H, backward)) {}
  };

  void forward(int64_t first, int64_t last, const Weights& weights) const {
    T *before = p.hidden, *cells_before = p.cell;
    const T* reads_before = p.read;
    typename Memory::Buffers buffers(memory);
    StepRow<T, 1> own;
    for (int64_t t = 0; t < p.num_steps && first < p.sizes[t]; ++t) {
      const int64_t token = p.tokens[t];
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      T *blocks = p.blocks + token * B, *states = p.states + token * H, *reads = p.reads + token * R;
      T *cells = p.cells + token * Z, *controls = p.controls + token * C;
      if (B) {
        T* block = blocks + first * B;
        multiply(count, static_cast<const T*>(before) + first * H, H, weights.of_state, block + B - P, B, true);
        if (R) multiply(count, reads_before + first * R, R, weights.of_read, block, B, true);
        for (int64_t row = first; row < end; ++row) {
          own.products[0] = blocks + row * B;
          own.child[0][0] = before + row * H, own.child[1][0] = cells_before + row * Z;
          own.states[0] = states + row * H, own.states[1] = cells + row * Z;
          controller::forward_step(own, H);
        }
        if (C) {
          for (int64_t row = first; row < end; ++row) std::copy_n(p.control_bias, C, controls + row * C);
          multiply(count, static_cast<const T*>(states) + first * H, H, weights.of_control, controls + first * C, C, true);
        }
      }
      for (int64_t row = first; row < end; ++row) {
        const bool ends = row >= next;
        if (C) memory.forward({t, row, token + row, ends}, controls + row * C, reads + row * R, buffers);
        if (!ends) continue;
        std::copy_n(states + row * H, H, p.hidden_after + row * H);
        std::copy_n(reads + row * R, R, p.read_after + row * R);
        std::copy_n(cells + row * Z, Z, p.cell_after + row * Z);
      }
      before = states, cells_before = cells, reads_before = reads;
    }
  }

  void backward(int64_t first, int64_t last, const Weights& weights, const Gradients& g) const {
    T *d_states = g.hidden, *d_cells = g.cell, *d_reads = g.read;
    typename Memory::Buffers buffers(memory);
    StepRow<T, 1> own;
    const Buffer<T> d_own(H + Z);
    own.d_states[0] = d_own.get(), own.d_states[1] = d_own.get() + H;
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      const int64_t token = p.tokens[t], token_before = t ? p.tokens[t - 1] : 0;
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      if (count <= 0) continue;
      T* before = t ? p.states + token_before * H : p.hidden;
      T* cells_before = t ? p.cells + token_before * Z : p.cell;
      T *states = p.states + token * H, *cells = p.cells + token * Z, *blocks = p.blocks + token * B;
      const T* controls = p.controls + token * C;
      T *d_blocks = g.blocks + token * B, *d_controls = g.controls + token * C;
      for (int64_t row = first; row < end; ++row) {
        if (g.states) add(d_states + row * H, g.states + (token + row) * H, H);
        if (g.reads) add(d_reads + row * R, g.reads + (token + row) * R, R);
        if (C)
          memory.backward({t, row, token + row, row >= next}, controls + row * C, d_reads + row * R, d_controls + row * C,
                          buffers);
        std::fill_n(d_reads + row * R, R, T(0));
      }
      if (B) {
        if (C) multiply(count, static_cast<const T*>(d_controls) + first * C, C, weights.of_control, d_states + first * H, H, true);
        for (int64_t row = first; row < end; ++row) {
          own.products[0] = blocks + row * B, own.d_products[0] = d_blocks + row * B;
          own.child[0][0] = before + row * H, own.child[1][0] = cells_before + row * Z;
          own.states[0] = states + row * H, own.states[1] = cells + row * Z;
          own.d_child[0][0] = d_states + row * H, own.d_child[1][0] = d_cells + row * Z;
          move(own.d_child[0][0], own.d_states[0], H), move(own.d_child[1][0], own.d_states[1], Z);
          controller::backward_step(own, H);
        }
        const T* d_block = d_blocks + first * B;
        multiply(count, d_block + B - P, B, weights.of_state, d_states + first * H, H, true);
        if (R) multiply(count, d_block, B, weights.of_read, d_reads + first * R, R, false);
      }
    }
  }

  static void move(T* from, T* to, int64_t count) {
    std::copy_n(from, count, to);
    std::fill_n(from, count, T(0));
  }

  // Calls a function with the first and the last row of each thread.
  template <class Function>
  void on_rows(Function function) const {
    parallel_for(p.threads, p.threads, [&](int64_t thread) { function(p.shares[thread], p.shares[thread + 1]); });
  }

  void forward() const {
    const Weights weights(*this, false);
    on_rows([&](int64_t first, int64_t last) { forward(first, last, weights); });
  }

  void backward(const Gradients& g) const {
    const Weights weights(*this, true);
    on_rows([&](int64_t first, int64_t last) { backward(first, last, weights, g); });
  }
};

}  // namespace

// The functions of a memory: it is made from what native.py of the memory gives, and for the backward pass from the
// gradients too.
#define RUN(Memory)                                                                                                   \
  extern "C" {                                                                                                        \
  const char* forward(const Problem* p, const Fields* fields) {                                                       \
    return error_of([&] {                                                                                             \
      const Memory own(*p, *fields, nullptr);                                                                         \
      Run<Memory>(*p, own).forward();                                                                                 \
    });                                                                                                               \
  }                                                                                                                   \
  const char* backward(const Problem* p, const Fields* fields, const Gradients* g, const MemoryGradients* d) {        \
    return error_of([&] {                                                                                             \
      const Memory own(*p, *fields, d);                                                                               \
      Run<Memory>(*p, own).backward(*g);                                                                              \
    });                                                                                                               \
  }                                                                                                                   \
  }
