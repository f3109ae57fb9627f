// The steps of a recurrent cell, a controller, and of the memory that it controls, over packed sequences, forward and
// backward. The equations are those of MemoryCell and of torch's cells.
//
// Each thread takes some sequences from the first step to the last, so that none waits for another.
//
// Without it one thread trains so many times as long (32 sequences of 10 to 30 vectors, an LSTM): 128 units alone 1.9; 64 units
// with a superposition stack 3.1, a neural stack 4.3, registers 5.9.

#pragma once

#include <algorithm>
#include <cstdint>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "recurrent_step.h"

// Both are declared in ops/controller/run.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

struct Known {  // no controller: the controls are given
  static constexpr int64_t kBlocks = 0, kProducts = 0, kFirst = 0;
  static constexpr bool kCell = false;

  static void forward(int64_t, T*, const T*, const T*, T*, T*) {}
  static void backward(int64_t, const T*, const T*, const T*, const T*, const T*, T*, T*, T*) {}
};

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
template <class Controller, class Memory>
struct Run {
  static constexpr bool kControlled = Controller::kBlocks > 0;
  const Problem& p;
  const Memory& memory;
  const int64_t H, R, C, B;

  Run(const Problem& problem, const Memory& memory)
      : p(problem), memory(memory), H(p.hidden_size), R(p.read_size), C(p.control_size), B(Controller::kBlocks * H) {}

  // What products take: the weights, or for the backward pass their transposes.
  struct Weights {
    const Packed<T> of_state, of_read, of_control;

    Weights(const Run& run, bool backward)
        : of_state(packed_map(run.H, Controller::kProducts * run.H, run.p.of_state, run.H, backward)),
          of_read(packed_map(run.R, Controller::kProducts * run.H, run.p.of_read, run.R, backward)),
          of_control(packed_map(run.H, run.C, run.p.of_control, run.H, backward)) {}
  };

  static int64_t of_cell(int64_t number) { return Controller::kCell ? number : 0; }

  void forward(int64_t first, int64_t last, const Weights& weights) const {
    const T *before = p.hidden, *cells_before = p.cell, *reads_before = p.read;
    typename Memory::Buffers buffers(memory);
    for (int64_t t = 0; t < p.num_steps && first < p.sizes[t]; ++t) {
      const int64_t token = p.tokens[t];
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      T *blocks = p.blocks + token * B, *states = p.states + token * H, *reads = p.reads + token * R;
      T *cells = p.cells + of_cell(token * H), *controls = p.controls + token * C;
      if constexpr (kControlled) {
        T* block = blocks + first * B;
        multiply(count, before + first * H, H, weights.of_state, block + Controller::kFirst * H, B, true);
        if (R) multiply(count, reads_before + first * R, R, weights.of_read, block, B, true);
        for (int64_t row = first; row < end; ++row)
          Controller::forward(H, blocks + row * B, before + row * H, cells_before + of_cell(row * H), states + row * H,
                              cells + of_cell(row * H));
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
        if (Controller::kCell) std::copy_n(cells + row * H, H, p.cell_after + row * H);
      }
      before = states, cells_before = cells, reads_before = reads;
    }
  }

  void backward(int64_t first, int64_t last, const Weights& weights, const Gradients& g) const {
    T *d_states = g.hidden, *d_cells = g.cell, *d_reads = g.read;
    typename Memory::Buffers buffers(memory);
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      const int64_t token = p.tokens[t], token_before = t ? p.tokens[t - 1] : 0;
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      if (count <= 0) continue;
      const T* before = t ? p.states + token_before * H : p.hidden;
      const T* cells_before = t ? p.cells + of_cell(token_before * H) : p.cell;
      const T *states = p.states + token * H, *cells = p.cells + of_cell(token * H);
      const T *blocks = p.blocks + token * B, *controls = p.controls + token * C;
      T *d_blocks = g.blocks + token * B, *d_controls = g.controls + token * C;
      for (int64_t row = first; row < end; ++row) {
        if (g.states) add(d_states + row * H, g.states + (token + row) * H, H);
        if (g.reads) add(d_reads + row * R, g.reads + (token + row) * R, R);
        if (C)
          memory.backward({t, row, token + row, row >= next}, controls + row * C, d_reads + row * R, d_controls + row * C,
                          buffers);
        std::fill_n(d_reads + row * R, R, T(0));
      }
      if constexpr (kControlled) {
        if (C) multiply(count, static_cast<const T*>(d_controls) + first * C, C, weights.of_control, d_states + first * H, H, true);
        for (int64_t row = first; row < end; ++row)
          Controller::backward(H, blocks + row * B, before + row * H, cells_before + of_cell(row * H), states + row * H,
                               cells + of_cell(row * H), d_states + row * H, d_cells + of_cell(row * H), d_blocks + row * B);
        const T* d_block = d_blocks + first * B;
        multiply(count, d_block + Controller::kFirst * H, B, weights.of_state, d_states + first * H, H, true);
        if (R) multiply(count, d_block, B, weights.of_read, d_reads + first * R, R, false);
      }
    }
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

// The functions of a memory with a controller: Memory<Controller> is made from what fused.py of the memory gives, and for
// the backward pass from the gradients too.
#define RUNS(controller, memory)                                                                               \
  const char* forward_##controller(const Problem* p, const Fields* fields) {                                   \
    return error_of([&] {                                                                                      \
      const memory<controller> own(*p, *fields, nullptr);                                                      \
      Run<controller, memory<controller>>(*p, own).forward();                                                  \
    });                                                                                                        \
  }                                                                                                            \
  const char* backward_##controller(const Problem* p, const Fields* fields, const Gradients* g,                \
                                    const MemoryGradients* d) {                                                \
    return error_of([&] {                                                                                      \
      const memory<controller> own(*p, *fields, d);                                                            \
      Run<controller, memory<controller>>(*p, own).backward(*g);                                               \
    });                                                                                                        \
  }
