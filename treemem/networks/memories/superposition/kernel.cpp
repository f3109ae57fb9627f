// A superposition stack, with a controller or with known actions.

#include "controller.h"

// A control has the value, sigmoid, and the weights of push, pop and perhaps no_op, softmax. Known actions are controls
// as they are.
//
// Of a stack only the rows that can differ from an empty one are kept: rows_before the first step, one more after each
// step, at most depth.

// Both are declared in native.py.
struct Fields { FIELDS };
struct MemoryGradients { MEMORY_GRADIENTS };

namespace {

struct Superposition {
  const Fields& f;
  const MemoryGradients* gradients;
  const int64_t V, readable;
  const bool is_controlled;
  const T empty;

  struct Buffers {
    Buffer<T> entries, gradients;

    explicit Buffers(const Superposition& memory)
        : entries((memory.f.depth + 2) * memory.V), gradients((memory.f.depth + 3) * memory.V) {}
  };

  Superposition(const Problem& p, const Fields& fields, const MemoryGradients* gradients)
      : f(fields), gradients(gradients), V(f.value_size), readable(p.read_size / V), is_controlled(p.num_blocks),
        empty(f.empty) {}

  // Rows that can differ from empty ones after so many steps.
  int64_t rows(int64_t steps) const { return std::min(f.depth, f.rows_before + steps); }

  // The stack of a sequence after so many steps.
  T* stack(int64_t steps, int64_t row) const {
    if (!steps) return const_cast<T*>(f.first) + row * f.depth * V;
    return f.stacks + f.starts[steps - 1] + row * (f.all_kept ? rows(steps) : f.depth) * V;
  }

  // The value, the rows of the stack before, and empty ones. Row i of the next stack is a mixture of entries i (push),
  // i + 1 (no_op) and i + 2 (pop).
  void fill(Place at, const T* value, T* entries) const {
    std::copy_n(value, V, entries);
    std::copy_n(stack(at.step, at.row), rows(at.step) * V, entries + V);
    std::fill(entries + (rows(at.step) + 1) * V, entries + (rows(at.step + 1) + 2) * V, empty);
  }

  void activate(T* control) const {
    SIMD
    for (int64_t i = 0; i < V; ++i) control[i] = sigmoid(control[i]);
    softmax(control + V, f.actions);
  }

  void forward(Place at, T* control, T* readout, Buffers& buffers) const {
    if (is_controlled) activate(control);
    fill(at, control, buffers.entries.get());
    const T push = control[V], pop = control[V + 1], no_op = f.actions == 3 ? control[V + 2] : T(0);
    const T *pushed = buffers.entries.get(), *same = pushed + V, *popped = same + V;
    const int64_t count = rows(at.step + 1) * V, there = std::min(count, readable * V);
    T* next = stack(at.step + 1, at.row);
    SIMD
    for (int64_t i = 0; i < count; ++i) next[i] = push * pushed[i] + pop * popped[i] + no_op * same[i];
    std::copy_n(next, there, readout);
    std::fill(readout + there, readout + readable * V, empty);
    if (at.ends) std::copy_n(next, count, f.last + at.row * f.depth * V);
  }

  void backward(Place at, const T* control, const T* d_readout, T* d_control, Buffers& buffers) const {
    fill(at, control, buffers.entries.get());
    const int64_t count = rows(at.step + 1) * V;
    T *d_stack = gradients->stacks + at.row * f.depth * V, *d = buffers.gradients.get() + V;
    std::fill_n(d - V, V, T(0));  // below and above the gradient of the next stack
    std::copy_n(d_stack, count, d);
    add(d, d_readout, std::min(count, readable * V));
    std::fill_n(d + count, 2 * V, T(0));
    const T push = control[V], pop = control[V + 1], no_op = f.actions == 3 ? control[V + 2] : T(0);
    const T *pushed = buffers.entries.get(), *same = pushed + V, *popped = same + V;
    T of_push = 0, of_pop = 0, of_no_op = 0;
    SIMD_SUM(of_push, of_pop, of_no_op)
    for (int64_t i = 0; i < count; ++i)
      of_push += d[i] * pushed[i], of_pop += d[i] * popped[i], of_no_op += d[i] * same[i];
    const T of_actions[3] = {of_push, of_pop, of_no_op};
    for (int64_t i = 0; i < V; ++i) d_control[i] = push * d[i];
    std::copy_n(of_actions, f.actions, d_control + V);
    if (is_controlled) {
      softmax_backward(control + V, d_control + V, f.actions);
      for (int64_t i = 0; i < V; ++i) d_control[i] *= control[i] * (T(1) - control[i]);
    }
    const T *above = d - V, *below = d + V;
    SIMD
    for (int64_t i = 0; i < rows(at.step) * V; ++i) d_stack[i] = push * below[i] + pop * above[i] + no_op * d[i];
  }
};

}  // namespace

RUN(Superposition)
