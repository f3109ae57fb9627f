// Transitions over stacks and buffers, forward and backward; the equations are those of equations.py.
//
// Sequences are independent. They run in groups, step by step, so that products have many rows. Each thread takes every
// n-th group.
//
// Matrices are row by row. The nodes of a sequence are its tokens, what it composes, and last the empty node, which is 0.
//
// Without it one thread trains 5.9 times as long (32 sequences of 10 to 30 vectors, 64 units, sampled transitions).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "step.h"

// The steps of a composition and of the tracker, printed from trees/tree_lstm/equations.py and native.py.
namespace tree_lstm {
TREE_LSTM_STEP
}
namespace tracker {
TRACKER_STEP
}

// Both are declared in native.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

constexpr int64_t kGroup = 64;
constexpr int64_t kShift = 0, kReduce = 1;

struct Maps {
  Packed<T> cell, inputs, lateral, to_cell;

  Maps(const Problem& p, bool backward)
      : cell(packed_map(2 * p.hidden_size, 5 * p.hidden_size, p.cell, 2 * p.hidden_size, backward)),
        inputs(packed_map(3 * p.hidden_size, 4 * p.tracker_size, p.inputs, 3 * p.hidden_size, backward)),
        lateral(packed_map(p.tracker_size, 4 * p.tracker_size, p.lateral, p.tracker_size, backward)),
        to_cell(packed_map(p.tracker_size, 5 * p.hidden_size, p.to_cell, p.tracker_size, backward)) {}
};

// Some sequences that follow each other.
class Group {
 public:
  Group(const Problem& p, int64_t first, int64_t count)
      : p(p), first(first), count(count), D(p.hidden_size), H(p.tracker_size), steps(2 * p.longest - 1),
        nothing(2 * H, T(0)), composed(count) {}

  void forward(const Maps& maps) {
    const int64_t room = p.longest + 2;
    std::vector<int64_t> stack(count * room), depth(count, 2), taken(count, 0);  // two empty nodes lie at the bottom
    for (int64_t i = 0; i < count; ++i) {
      std::fill_n(stack.begin() + i * room, room, empty(i));
      std::fill_n(tops(i, 0), 3 * steps, empty(i));
      for (int64_t number = 0; number < p.longest; ++number) {
        int64_t* own = made_of(i, number);
        own[0] = own[1] = empty(i), own[2] = place(i, 0);
      }
    }
    std::fill(composed.begin(), composed.end(), 0);
    for (int64_t step = 0, active = count; step < steps; ++step) {
      active = active_in(step, active);
      if (!active) break;
      for (int64_t i = 0; i < active; ++i) {
        const int64_t* top = stack.data() + i * room + depth[i] - 1;
        int64_t* found = tops(i, step);
        found[0] = taken[i] < length(i) ? begin(i) + taken[i] : empty(i), found[1] = top[0], found[2] = top[-1];
      }
      if (H) track(step, active, maps);
      rows.clear();
      for (int64_t i = 0; i < active; ++i) {
        const int64_t choice = choose(i, step);
        const int64_t action = depth[i] < 4 ? kShift : taken[i] < length(i) ? choice : kReduce;
        p.chosen[place(i, step)] = choice, p.actions[place(i, step)] = action;
        if (action == kReduce) {
          rows.push_back(i);
          stack[i * room + --depth[i] - 1] = begin(i) + p.longest + composed[i];
        } else {
          stack[i * room + depth[i]++] = begin(i) + taken[i]++;
        }
      }
      compose(step, maps);
    }
    for (int64_t i = 0; i < count; ++i) p.roots[first + i] = stack[i * room + 2];
  }

  void backward(const Gradients& g, const Maps& maps) {
    for (int64_t i = 0; i < count; ++i) composed[i] = length(i) - 1;
    for (int64_t step = steps - 1; step >= 0; --step) {
      const int64_t active = active_in(step, count);
      rows.clear();
      for (int64_t i = 0; i < active; ++i)
        if (p.actions[place(i, step)] == kReduce) rows.push_back(i);
      compose_backward(step, g, maps);
      if (H && active) track_backward(step, active, g, maps);
    }
  }

 private:

  int64_t length(int64_t i) const { return p.lengths[first + i]; }
  int64_t begin(int64_t i) const { return (first + i) * 2 * p.longest; }
  int64_t empty(int64_t i) const { return begin(i) + 2 * p.longest - 1; }
  int64_t place(int64_t i, int64_t step) const { return (first + i) * steps + step; }
  int64_t* tops(int64_t i, int64_t step) const { return p.tops + 3 * place(i, step); }
  int64_t* made_of(int64_t i, int64_t number) const { return p.made_of + 3 * ((first + i) * p.longest + number); }
  T* node(int64_t number) const { return p.nodes + number * 2 * D; }
  T* gates(T* of, int64_t i, int64_t number) const { return of + ((first + i) * p.longest + number) * 5 * D; }
  T* tracked(T* of, int64_t i, int64_t step) const { return of + place(i, step) * 2 * H; }
  T* tracker_gates(T* of, int64_t i, int64_t step) const { return of + place(i, step) * 4 * H; }
  void point_to_tracker(int64_t i, int64_t step) {
    T* after = tracked(p.tracked, i, step);
    of_tracker.products[0] = tracker_gates(p.tracker_gates, i, step);
    of_tracker.states[0] = after, of_tracker.states[1] = after + H;
    of_tracker.child[1][0] = step ? tracked(p.tracked, i, step - 1) + H : nothing.data();
  }
  void point_to_composition(const int64_t* children, T* kept, T* state) {
    composition.products[0] = kept, composition.states[0] = state, composition.states[1] = state + D;
    for (int64_t k = 0; k < 2; ++k) composition.child[1][k] = node(children[k]) + D;
  }

  // How many sequences, of the first `most`, have a step.
  int64_t active_in(int64_t step, int64_t most) const {
    while (most && 2 * length(most - 1) - 1 <= step) --most;
    return most;
  }

  int64_t choose(int64_t i, int64_t step) const {
    if (p.given) return p.given[place(i, step)];
    const T* read = tracked(p.tracked, i, step);
    T share[2];
    for (int64_t k = 0; k < 2; ++k)
      share[k] = (dot(read, p.transition + k * 2 * H, 2 * H) + p.transition_bias[k]) / T(p.temperature);
    softmax(share, 2);
    return (p.uniform ? p.uniform[place(i, step)] : T(0.5)) > share[0] ? kReduce : kShift;
  }

  void track(int64_t step, int64_t active, const Maps& maps) {
    memory.reset();
    T *read = memory.take<T>(active * 3 * D), *block = tracker_gates(p.tracker_gates, 0, step);
    for (int64_t i = 0; i < active; ++i) {
      for (int64_t k = 0; k < 3; ++k) std::copy_n(node(tops(i, step)[k]), D, read + (3 * i + k) * D);
      std::copy_n(p.inputs_bias, 4 * H, block + i * steps * 4 * H);
    }
    multiply(active, read, 3 * D, maps.inputs, block, steps * 4 * H, true);
    if (step) multiply(active, tracked(p.tracked, 0, step - 1), steps * 2 * H, maps.lateral, block, steps * 4 * H, true);
    for (int64_t i = 0; i < active; ++i) {
      point_to_tracker(i, step);
      tracker::forward_step(of_tracker, H);
    }
  }

  void compose(int64_t step, const Maps& maps) {
    const int64_t number = static_cast<int64_t>(rows.size());
    memory.reset();
    T *read = memory.take<T>(number * 2 * D), *hidden = memory.take<T>(number * H), *found = memory.take<T>(number * 5 * D);
    for (int64_t row = 0; row < number; ++row) {
      const int64_t i = rows[row], *top = tops(i, step);
      int64_t* own = made_of(i, composed[i]);
      own[0] = top[2], own[1] = top[1], own[2] = place(i, step);
      for (int64_t k = 0; k < 2; ++k) std::copy_n(node(own[k]), D, read + (2 * row + k) * D);
      std::copy_n(tracked(p.tracked, i, step), H, hidden + row * H);
    }
    fill_rows(found, number, 5 * D, p.cell_bias);
    multiply(number, read, 2 * D, maps.cell, found, 5 * D, true);
    multiply(number, hidden, H, maps.to_cell, found, 5 * D, true);
    for (int64_t row = 0; row < number; ++row) {
      const int64_t i = rows[row], *own = made_of(i, composed[i]);
      T* kept = gates(p.gates, i, composed[i]);
      std::copy_n(found + row * 5 * D, 5 * D, kept);
      point_to_composition(own, kept, node(begin(i) + p.longest + composed[i]));
      tree_lstm::forward_step(composition, D);
      ++composed[i];
    }
  }

  void compose_backward(int64_t step, const Gradients& g, const Maps& maps) {
    const int64_t number = static_cast<int64_t>(rows.size());
    memory.reset();
    T *d_gates = memory.take<T>(number * 5 * D), *d_read = memory.take<T>(number * 2 * D);
    T* d_hidden = memory.take<T>(number * H);
    for (int64_t row = 0; row < number; ++row) {
      const int64_t i = rows[row], at = --composed[i], *own = made_of(i, at);
      const int64_t state = begin(i) + p.longest + at;
      T *d_state = d_node(g, state), *kept = gates(g.gates, i, at);
      point_to_composition(own, kept, node(state));
      composition.d_products[0] = kept, composition.d_states[0] = d_state, composition.d_states[1] = d_state + D;
      for (int64_t k = 0; k < 2; ++k) composition.d_child[1][k] = d_node(g, own[k]) + D;
      tree_lstm::backward_step(composition, D);
      std::copy_n(kept, 5 * D, d_gates + row * 5 * D);
    }
    multiply(number, d_gates, 5 * D, maps.cell, d_read, 2 * D, false);
    multiply(number, d_gates, 5 * D, maps.to_cell, d_hidden, H, false);
    for (int64_t row = 0; row < number; ++row) {
      const int64_t i = rows[row], *own = made_of(i, composed[i]);
      for (int64_t k = 0; k < 2; ++k) add(d_node(g, own[k]), d_read + (2 * row + k) * D, D);
      add(tracked(g.tracked, i, step), d_hidden + row * H, H);
    }
  }

  void track_backward(int64_t step, int64_t active, const Gradients& g, const Maps& maps) {
    memory.reset();
    T *d_read = memory.take<T>(active * 3 * D), *d_block = tracker_gates(g.tracker_gates, 0, step);
    for (int64_t i = 0; i < active; ++i) {
      T* d = tracked(g.tracked, i, step);
      point_to_tracker(i, step);
      of_tracker.d_products[0] = d_block + i * steps * 4 * H, of_tracker.d_states[0] = d, of_tracker.d_states[1] = d + H;
      of_tracker.d_child[1][0] = step ? tracked(g.tracked, i, step - 1) + H : nothing.data() + H;
      tracker::backward_step(of_tracker, H);
    }
    if (step) multiply(active, d_block, steps * 4 * H, maps.lateral, tracked(g.tracked, 0, step - 1), steps * 2 * H, true);
    multiply(active, d_block, steps * 4 * H, maps.inputs, d_read, 3 * D, false);
    for (int64_t i = 0; i < active; ++i)
      for (int64_t k = 0; k < 3; ++k) add(d_node(g, tops(i, step)[k]), d_read + (3 * i + k) * D, D);
  }

  T* d_node(const Gradients& g, int64_t number) const { return g.nodes + number * 2 * D; }

  const Problem p;
  const int64_t first, count, D, H, steps;
  StepRow<T, 2> composition;
  StepRow<T, 1> of_tracker;
  std::vector<T> nothing;  // c before the first step, and its gradient, which is not read
  std::vector<int64_t> composed;  // how many nodes each sequence has composed so far
  std::vector<int64_t> rows;      // the sequences that reduce in this step
  Arena memory;
};

struct Run {
  const Problem& p;

  template <class Visit>
  void for_groups(Visit visit) const {
    const int64_t most = std::max<int64_t>(1, std::min(kGroup, p.sequences / p.num_threads));
    parallel_for(p.num_threads, (p.sequences + most - 1) / most, [&](int64_t number) {
      Group group(p, number * most, std::min(most, p.sequences - number * most));
      visit(group);
    });
  }
  void forward() const {
    const Maps maps(p, false);
    for_groups([&](Group& group) { group.forward(maps); });
  }
  void backward(const Gradients& gradients) const {
    const Maps maps(p, true);
    for_groups([&](Group& group) {
      const NoSubnormals scope;
      group.backward(gradients, maps);
    });
  }
};

}  // namespace

EXPORT_RUN(Run)
