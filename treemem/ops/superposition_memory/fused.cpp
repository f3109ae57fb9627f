// The steps of a superposition stack over packed sequences, forward and backward: with a controller, or with known
// actions. The equations are those of SuperpositionStack, MemoryCell and torch's cells.
//
// Each thread takes some sequences from the first step to the last, so that none waits for another.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "numerics.h"
#include "packed.h"

extern "C" {

// Tensors of a run, as fused.py fills them in. Float or double. Sequences are sorted by length, longest first.
//
// The state of a sequence is the controller's output and then what it read last: state_size = hidden_size + top_k *
// value_size numbers. A control has the value, sigmoid, and the weights of push, pop and perhaps no_op, softmax. Known
// actions are controls as they are, and there is no controller: hidden_size is 0.
//
// Of a stack only the rows that can differ from an empty one are kept: most_rows at first, one more after each step, at
// most depth.
struct Problem {
  int64_t threads, num_steps, num_tokens, hidden_size, value_size, depth, top_k, actions;
  int64_t most_rows;        // of the first stacks
  int64_t kept;             // whether all stacks are kept, or only those of the last two steps
  const int64_t* sizes;     // [num_steps], sequences of each step, not ascending
  const int64_t* shares;    // [threads + 1], where the sequences of each thread begin
  const void* weight;       // [blocks, state_size], from the state to the blocks of the controller
  const void *control_weight, *control_bias;  // [value_size + actions, hidden_size], [value_size + actions]
  const void* empty;        // [1], what an empty row holds
  const void* first;        // [sequences, state_size]
  const void* first_cells;  // [sequences, hidden_size], of an LSTM
  const void* first_stacks; // [sequences, depth, value_size]
  void* blocks;             // [num_tokens, blocks], what inputs and biases give; become what the backward pass needs
  void* states;             // [num_tokens, state_size]
  void* cells;              // [num_tokens, hidden_size], of an LSTM
  void* controls;           // [num_tokens, value_size + actions]
  void* stacks;             // of each step [sequences, rows, value_size]
  void* last;               // [sequences, state_size]
  void* last_cells;         // [sequences, hidden_size], of an LSTM
  void* last_stacks;        // [sequences, depth, value_size], empty
};

// Those of the last states come in, and become those of the first ones.
struct Gradients {
  const void* states;  // [num_tokens, state_size]
  void* state;         // [sequences, state_size]
  void* cell;          // [sequences, hidden_size], of an LSTM
  void* stack;         // [sequences, depth, value_size]
  void* blocks;        // [num_tokens, blocks]
  void* controls;      // [num_tokens, value_size + actions]
};
}

namespace {

// Controllers: `count` blocks of the hidden size become what is kept, and the next state. In the backward pass `d` is
// the gradient of the state and becomes the part of that of the state before which does not go through the blocks.

struct Known {
  static constexpr int64_t kBlocks = 0;
  static constexpr bool kCell = false;
};

struct Vanilla {
  static constexpr int64_t kBlocks = 1;
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
  static constexpr int64_t kBlocks = 4;
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

struct GRU {  // what inputs and readouts give the candidate, reset gate, update gate, what the state gives the candidate
  static constexpr int64_t kBlocks = 4;
  static constexpr bool kCell = false;

  template <typename T>
  static void forward(int64_t H, T* block, const T* before, const T*, T* state, T*) {
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      block[H + i] = sigmoid(block[H + i]);
      block[2 * H + i] = sigmoid(block[2 * H + i]);
      block[i] = hyperbolic_tangent(block[i] + block[H + i] * block[3 * H + i]);
      state[i] = block[i] + block[2 * H + i] * (before[i] - block[i]);
    }
  }
  template <typename T>
  static void backward(int64_t H, const T* block, const T* before, const T*, const T*, const T*, T* d, T*, T* d_block) {
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      const T candidate = block[i], reset = block[H + i], update = block[2 * H + i], of_state = block[3 * H + i];
      const T inner = d[i] * (T(1) - update) * (T(1) - candidate * candidate);
      d_block[i] = inner;
      d_block[H + i] = inner * of_state * reset * (T(1) - reset);
      d_block[2 * H + i] = d[i] * (before[i] - candidate) * update * (T(1) - update);
      d_block[3 * H + i] = inner * reset;
      d[i] *= update;
    }
  }
};

template <typename T, class Controller>
struct Run {
  static constexpr bool kControls = Controller::kBlocks > 0;
  const Problem& p;
  const int64_t H, V, S, C, B;
  const T empty;

  explicit Run(const Problem& problem)
      : p(problem), H(p.hidden_size), V(p.value_size), S(H + p.top_k * V), C(V + p.actions),
        B(Controller::kBlocks * H), empty(*read(p.empty)) {}

  // What products take: the weights, or for the backward pass their transposes.
  struct Weights {
    const Packed<T> of_state, of_control;

    Weights(const Run& run, bool backward)
        : of_state(packed(run.B, run.S, run.p.weight, backward)),
          of_control(packed(run.C, run.H, run.p.control_weight, backward)) {}

    // `weight` is [outputs, inputs].
    static Packed<T> packed(int64_t outputs, int64_t inputs, const void* weight, bool backward) {
      return Packed<T>(backward ? outputs : inputs, backward ? inputs : outputs, read(weight), inputs, backward);
    }
  };

  static const T* read(const void* values) { return static_cast<const T*>(values); }
  static T* write(void* values) { return static_cast<T*>(values); }

  // Rows that can differ from empty ones after so many steps, and for how many there is room.
  int64_t rows(int64_t steps) const { return std::min(p.depth, p.most_rows + steps); }
  int64_t room(int64_t steps) const { return p.kept && steps ? rows(steps) : p.depth; }

  // Entries of a stack from the value on: the value, the rows, and empty ones. Row i of the next stack is a mixture of
  // entries i (push), i + 1 (no_op) and i + 2 (pop).
  void entries(const T* value, const T* stack, int64_t rows_before, int64_t rows_after, T* to) const {
    std::copy_n(value, V, to);
    std::copy_n(stack, rows_before * V, to + V);
    std::fill(to + (rows_before + 1) * V, to + (rows_after + 2) * V, empty);
  }

  void activate(T* control) const {
    SIMD
    for (int64_t i = 0; i < V; ++i) control[i] = sigmoid(control[i]);
    T* actions = control + V;
    const T greatest = *std::max_element(actions, actions + p.actions);
    T total = 0;
    for (int64_t a = 0; a < p.actions; ++a) total += actions[a] = exponential(actions[a] - greatest);
    for (int64_t a = 0; a < p.actions; ++a) actions[a] /= total;
  }

  void act(const T* control, const T* stack, int64_t rows_before, int64_t rows_after, T* next, T* readout,
           T* own) const {
    entries(control, stack, rows_before, rows_after, own);
    const T push = control[V], pop = control[V + 1], no_op = p.actions == 3 ? control[V + 2] : T(0);
    const T *pushed = own, *same = own + V, *popped = own + 2 * V;
    SIMD
    for (int64_t i = 0; i < rows_after * V; ++i) next[i] = push * pushed[i] + pop * popped[i] + no_op * same[i];
    const int64_t there = std::min(rows_after, p.top_k);
    std::copy_n(next, there * V, readout);
    std::fill(readout + there * V, readout + p.top_k * V, empty);
  }

  // `d_stack` is the gradient of the next stack and becomes that of the stack before; `d_control` is that before
  // the sigmoid and the softmax, if there are any.
  void act_backward(const T* control, const T* stack, int64_t rows_before, int64_t rows_after, const T* d_readout,
                    T* d_stack, T* d_control, T* own, T* d_own) const {
    entries(control, stack, rows_before, rows_after, own);
    const int64_t count = rows_after * V;
    T* d = d_own + V;  // between entries of 0
    std::fill_n(d_own, V, T(0));
    std::copy_n(d_stack, count, d);
    add(d, d_readout, std::min(rows_after, p.top_k) * V);
    std::fill_n(d + count, 2 * V, T(0));
    const T *pushed = own, *same = own + V, *popped = own + 2 * V;
    T weights[3] = {control[V], control[V + 1], p.actions == 3 ? control[V + 2] : T(0)};
    T of_push = 0, of_pop = 0, of_no_op = 0;
    SIMD_SUM(of_push, of_pop, of_no_op)
    for (int64_t i = 0; i < count; ++i)
      of_push += d[i] * pushed[i], of_pop += d[i] * popped[i], of_no_op += d[i] * same[i];
    const T of_actions[3] = {of_push, of_pop, of_no_op};
    if constexpr (kControls) {
      T mean = 0;
      for (int64_t a = 0; a < p.actions; ++a) mean += weights[a] * of_actions[a];
      for (int64_t a = 0; a < p.actions; ++a) d_control[V + a] = weights[a] * (of_actions[a] - mean);
      SIMD
      for (int64_t i = 0; i < V; ++i) d_control[i] = weights[0] * d[i] * control[i] * (T(1) - control[i]);
    } else {
      std::copy_n(of_actions, p.actions, d_control + V);
      for (int64_t i = 0; i < V; ++i) d_control[i] = weights[0] * d[i];
    }
    const T *from_above = d - V, *from_same = d, *from_below = d + V;
    SIMD
    for (int64_t i = 0; i < rows_before * V; ++i)
      d_stack[i] = weights[0] * from_below[i] + weights[1] * from_above[i] + weights[2] * from_same[i];
  }

  // Where the stacks of a step begin.
  T* stacks_of(int64_t step, int64_t before) const {
    const int64_t of_two = step % 2 * (p.num_steps ? p.sizes[0] : 0) * p.depth * V;
    return write(p.stacks) + (p.kept ? before : of_two);
  }

  void forward(int64_t first, int64_t last, const Weights& weights) const {
    const T *before = read(p.first), *cells_before = read(p.first_cells), *stacks_before = read(p.first_stacks);
    int64_t token = 0, at = 0;
    Buffer<T> own((p.depth + 2) * V);
    for (int64_t t = 0; t < p.num_steps && first < p.sizes[t]; ++t) {
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      const int64_t rows_before = rows(t), rows_after = rows(t + 1);
      T *blocks = write(p.blocks) + token * B, *states = write(p.states) + token * S;
      T *controls = write(p.controls) + token * C, *cells = write(p.cells) + (Controller::kCell ? token * H : 0);
      T* stacks = stacks_of(t, at);
      if constexpr (kControls) {
        multiply(count, before + first * S, S, weights.of_state, blocks + first * B, B, true);
        for (int64_t row = first; row < end; ++row) {
          const int64_t cell = Controller::kCell ? row * H : 0;
          Controller::forward(H, blocks + row * B, before + row * S, cells_before + cell, states + row * S, cells + cell);
        }
        for (int64_t row = first; row < end; ++row) std::copy_n(read(p.control_bias), C, controls + row * C);
        multiply(count, static_cast<const T*>(states) + first * S, S, weights.of_control, controls + first * C, C, true);
        for (int64_t row = first; row < end; ++row) activate(controls + row * C);
      }
      for (int64_t row = first; row < end; ++row) {
        T *state = states + row * S, *stack = stacks + row * room(t + 1) * V;
        act(controls + row * C, stacks_before + row * room(t) * V, rows_before, rows_after, stack, state + H, own.get());
        if (row < next) continue;
        std::copy_n(state, S, write(p.last) + row * S);
        if (Controller::kCell) std::copy_n(cells + row * H, H, write(p.last_cells) + row * H);
        std::copy_n(stack, rows_after * V, write(p.last_stacks) + row * p.depth * V);
      }
      before = states, cells_before = cells, stacks_before = stacks;
      token += p.sizes[t], at += p.sizes[t] * rows_after * V;
    }
  }

  void backward(int64_t first, int64_t last, const Weights& weights, const Gradients& g) const {
    T *d_states = write(g.state), *d_cells = write(g.cell), *d_stacks = write(g.stack);
    Buffer<T> own((p.depth + 2) * V), d_own((p.depth + 3) * V);
    int64_t token = p.num_tokens, at = 0;
    for (int64_t t = 0; t + 1 < p.num_steps; ++t) at += p.sizes[t] * rows(t + 1) * V;  // of the last step
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      token -= p.sizes[t];
      const int64_t rows_before = rows(t), rows_after = rows(t + 1);
      const int64_t previous = t ? at - p.sizes[t - 1] * rows_before * V : 0;
      at = previous;
      const int64_t end = std::min(last, p.sizes[t]), count = end - first;
      if (count <= 0) continue;
      const int64_t token_before = token - (t ? p.sizes[t - 1] : 0);
      const T* before = t ? read(p.states) + token_before * S : read(p.first);
      const T* cells_before = t && Controller::kCell ? read(p.cells) + token_before * H : read(p.first_cells);
      const T* stacks_before = t ? read(p.stacks) + previous : read(p.first_stacks);
      const T *states = read(p.states) + token * S, *controls = read(p.controls) + token * C;
      const T *blocks = read(p.blocks) + token * B, *cells = read(p.cells) + (Controller::kCell ? token * H : 0);
      T *d_controls = write(g.controls) + token * C, *d_blocks = write(g.blocks) + token * B;
      for (int64_t row = first; row < end; ++row) {
        T* d_state = d_states + row * S;
        add(d_state, read(g.states) + (token + row) * S, S);
        act_backward(controls + row * C, stacks_before + row * room(t) * V, rows_before, rows_after, d_state + H,
                     d_stacks + row * p.depth * V, d_controls + row * C, own.get(), d_own.get());
        std::fill_n(d_state + H, S - H, T(0));
      }
      if constexpr (kControls) {
        multiply(count, static_cast<const T*>(d_controls) + first * C, C, weights.of_control, d_states + first * S, S,
                 true);
        for (int64_t row = first; row < end; ++row) {
          const int64_t cell = Controller::kCell ? row * H : 0;
          Controller::backward(H, blocks + row * B, before + row * S, cells_before + cell, states + row * S, cells + cell,
                               d_states + row * S, d_cells + cell, d_blocks + row * B);
        }
        multiply(count, static_cast<const T*>(d_blocks) + first * B, B, weights.of_state, d_states + first * S, S, true);
      }
    }
  }

  // Calls a function with the first and the last row of each thread.
  template <class Function>
  void on_rows(Function function) const {
#pragma omp parallel for num_threads(p.threads)
    for (int64_t thread = 0; thread < p.threads; ++thread) function(p.shares[thread], p.shares[thread + 1]);
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

#define RUNS(name, type, controller)                                                                            \
  void forward_##name(const Problem* problem) { Run<type, controller>(*problem).forward(); }                    \
  void backward_##name(const Problem* problem, const Gradients* g) { Run<type, controller>(*problem).backward(*g); }

extern "C" {
RUNS(known_float, float, Known)
RUNS(known_double, double, Known)
RUNS(RNN_float, float, Vanilla)
RUNS(RNN_double, double, Vanilla)
RUNS(LSTM_float, float, LSTM)
RUNS(LSTM_double, double, LSTM)
RUNS(GRU_float, float, GRU)
RUNS(GRU_double, double, GRU)
}
