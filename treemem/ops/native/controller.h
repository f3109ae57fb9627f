// The steps of a recurrent cell, a controller, and of the memory that it controls, over packed sequences, forward and
// backward. The equations are those of MemoryCell and of torch's cells.
//
// Each thread takes some sequences from the first step to the last, so that none waits for another.

#pragma once

#include <algorithm>
#include <cstdint>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "recurrent_step.h"

extern "C" {

// Tensors of a run, as ops/controller/run.py fills them in. Float or double. Sequences are sorted by length, longest
// first.
//
// At each step a controller has some blocks, each hidden_size wide: what the input and biases give is there before, and
// the state before and what was read before are added by products. A map of the new state are the controls of the memory.
struct Problem {
  int64_t threads, num_steps, num_tokens, hidden_size;
  int64_t read_size, control_size;        // 0 without a memory
  const int64_t* sizes;                   // [num_steps], sequences of each step, not ascending
  const int64_t* tokens;                  // [num_steps], the number of the first token of each step
  const int64_t* shares;                  // [threads + 1], where the sequences of each thread begin
  const void *of_state, *of_read;         // [products, hidden_size], [products, read_size]
  const void *of_control, *control_bias;  // [control_size, hidden_size], [control_size]
  const void *hidden, *cell, *read;       // [sequences, ...], before the first step; `cell` is that of an LSTM
  void *hidden_after, *cell_after, *read_after;  // after the last one; as before if a sequence has none
  void *blocks;                           // [num_tokens, blocks], become what the backward pass needs
  void *states, *cells, *controls, *reads;  // [num_tokens, ...]
};

// Those of the last states come in, and become those of the first ones.
struct Gradients {
  const void *states, *reads;  // [num_tokens, ...]
  void *hidden, *cell, *read;  // [sequences, ...]
  void *blocks, *controls;     // [num_tokens, ...]
};
}

namespace {

struct Known {  // no controller: the controls are given
  static constexpr int64_t kBlocks = 0, kProducts = 0, kFirst = 0;
  static constexpr bool kCell = false;

  template <typename T>
  static void forward(int64_t, T*, const T*, const T*, T*, T*) {}
  template <typename T>
  static void backward(int64_t, const T*, const T*, const T*, const T*, const T*, T*, T*, T*) {}
};

// Where a run is. `token` is the number of the row's token.
struct Place {
  int64_t step, row, token;
  bool ends;  // whether it is the row's last step
};

// States of a memory, each of `size` numbers: before the first step; after every step, if there may be a backward pass,
// else null; and the last ones.
template <typename T>
struct States {
  const Problem& p;
  const void* first;
  void *all, *last;
  int64_t size;

  T* before(Place at) const {
    if (!at.step) return const_cast<T*>(static_cast<const T*>(first)) + at.row * size;
    return all ? static_cast<T*>(all) + (p.tokens[at.step - 1] + at.row) * size : of_end(at);
  }
  T* after(Place at) const { return all ? static_cast<T*>(all) + at.token * size : of_end(at); }
  T* of_end(Place at) const { return static_cast<T*>(last) + at.row * size; }
};

// A memory has `Buffers`, memory of a thread's own, made from it, and
//   void forward(Place, T* control, T* readout, Buffers&) const
//   void backward(Place, const T* control, const T* d_readout, T* d_control, Buffers&) const
template <typename T, class Controller, class Memory>
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
        : of_state(packed(Controller::kProducts * run.H, run.H, run.p.of_state, backward)),
          of_read(packed(Controller::kProducts * run.H, run.R, run.p.of_read, backward)),
          of_control(packed(run.C, run.H, run.p.of_control, backward)) {}

    // `weight` is [outputs, inputs].
    static Packed<T> packed(int64_t outputs, int64_t inputs, const void* weight, bool backward) {
      return Packed<T>(backward ? outputs : inputs, backward ? inputs : outputs, read(weight), inputs, backward);
    }
  };

  static const T* read(const void* values) { return static_cast<const T*>(values); }
  static T* write(void* values) { return static_cast<T*>(values); }
  static int64_t of_cell(int64_t number) { return Controller::kCell ? number : 0; }

  void forward(int64_t first, int64_t last, const Weights& weights) const {
    const T *before = read(p.hidden), *cells_before = read(p.cell), *reads_before = read(p.read);
    typename Memory::Buffers buffers(memory);
    for (int64_t t = 0; t < p.num_steps && first < p.sizes[t]; ++t) {
      const int64_t token = p.tokens[t];
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      T *blocks = write(p.blocks) + token * B, *states = write(p.states) + token * H, *reads = write(p.reads) + token * R;
      T *cells = write(p.cells) + of_cell(token * H), *controls = write(p.controls) + token * C;
      if constexpr (kControlled) {
        T* block = blocks + first * B;
        multiply(count, before + first * H, H, weights.of_state, block + Controller::kFirst * H, B, true);
        if (R) multiply(count, reads_before + first * R, R, weights.of_read, block, B, true);
        for (int64_t row = first; row < end; ++row)
          Controller::forward(H, blocks + row * B, before + row * H, cells_before + of_cell(row * H), states + row * H,
                              cells + of_cell(row * H));
        if (C) {
          for (int64_t row = first; row < end; ++row) std::copy_n(read(p.control_bias), C, controls + row * C);
          multiply(count, static_cast<const T*>(states) + first * H, H, weights.of_control, controls + first * C, C, true);
        }
      }
      for (int64_t row = first; row < end; ++row) {
        const bool ends = row >= next;
        if (C) memory.forward({t, row, token + row, ends}, controls + row * C, reads + row * R, buffers);
        if (!ends) continue;
        std::copy_n(states + row * H, H, write(p.hidden_after) + row * H);
        std::copy_n(reads + row * R, R, write(p.read_after) + row * R);
        if (Controller::kCell) std::copy_n(cells + row * H, H, write(p.cell_after) + row * H);
      }
      before = states, cells_before = cells, reads_before = reads;
    }
  }

  void backward(int64_t first, int64_t last, const Weights& weights, const Gradients& g) const {
    T *d_states = write(g.hidden), *d_cells = write(g.cell), *d_reads = write(g.read);
    typename Memory::Buffers buffers(memory);
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      const int64_t token = p.tokens[t], token_before = t ? p.tokens[t - 1] : 0;
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      if (count <= 0) continue;
      const T* before = t ? read(p.states) + token_before * H : read(p.hidden);
      const T* cells_before = t ? read(p.cells) + of_cell(token_before * H) : read(p.cell);
      const T *states = read(p.states) + token * H, *cells = read(p.cells) + of_cell(token * H);
      const T *blocks = read(p.blocks) + token * B, *controls = read(p.controls) + token * C;
      T *d_blocks = write(g.blocks) + token * B, *d_controls = write(g.controls) + token * C;
      for (int64_t row = first; row < end; ++row) {
        if (g.states) add(d_states + row * H, read(g.states) + (token + row) * H, H);
        if (g.reads) add(d_reads + row * R, read(g.reads) + (token + row) * R, R);
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

// The functions of a memory with a controller: Memory<T, Controller> is made from what fused.py of the memory gives, and
// for the backward pass from the gradients too.
#define RUNS_OF(name, type, controller, memory)                                                          \
  const char* forward_##controller##_##name(const Problem* p, const Fields* fields) {                    \
    return error_of([&] {                                                                                \
      const memory<type, controller> own(*p, *fields, nullptr);                                          \
      Run<type, controller, memory<type, controller>>(*p, own).forward();                                \
    });                                                                                                  \
  }                                                                                                      \
  const char* backward_##controller##_##name(const Problem* p, const Fields* fields, const Gradients* g, \
                                             const MemoryGradients* d) {                                 \
    return error_of([&] {                                                                                \
      const memory<type, controller> own(*p, *fields, d);                                                \
      Run<type, controller, memory<type, controller>>(*p, own).backward(*g);                             \
    });                                                                                                  \
  }
#define RUNS(controller, memory)           \
  RUNS_OF(float, float, controller, memory) \
  RUNS_OF(double, double, controller, memory)
