// A continuous recursion over sequences, forward and backward; the equations are those of naive.py. In torch a training
// step takes 2.5 times as long and twice the memory (100,000 weights, 64 sequences of 5 to 50 tokens).
//
// Sequences are independent. They run in groups, so that the products of a step have many rows and what a step reads stays
// in the cache. A sequence leaves its group when it has ended. Each thread takes every n-th group.
//
// Matrices are row by row. A sequence has positions for START, its tokens and END.
//
// Without it one thread trains 2.4 times as long (32 sequences of 10 to 30 vectors, 64 units).

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "errors.h"
#include "activation.h"
#include "numerics.h"
#include "packed.h"
#include "step.h"

// The step of the cell, printed from gated_recursive/step.py.
namespace gated {
GATED_STEP
}

// Both are declared in native.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

constexpr int64_t kPositions = 256;  // of a group, at least, if there are so many

enum Stream : uint32_t { kHidden = 1 };

inline int64_t width_of_window(const Problem& p) { return (2 * p.num_neighbors + 1) * p.hidden_size; }

struct Maps {
  Packed<T> hidden, gates, window;

  Maps(const Problem& p, bool backward)
      : hidden(packed_map(2 * p.hidden_size, p.inner_size, p.weight1, 2 * p.hidden_size, backward)),
        gates(packed_map(p.inner_size, 4 * p.hidden_size, p.weight2, p.inner_size, backward)),
        window(packed_map(width_of_window(p), p.hidden_size, p.window, width_of_window(p), backward)) {}
};

// A sequence in a step: its first position among those of the step, and its first pair among those of the step.
struct Sequence {
  int64_t sequence, length, size, at, pair;
  int64_t pairs() const { return length - 1; }  // the first token has no left neighbour to take
};

// What a step keeps, by position of the step; `cell_...`, gates and composed by pair.
struct Step {
  std::vector<Sequence> rows;
  int64_t positions = 0, pairs = 0;
  T *states, *existence, *taken_before, *read, *activation, *slope, *moves, *among, *gives, *taken, *highest, *scores;
  T *cell_hidden, *cell_slope, *gates, *composed;
};

// How far each position is the next one on the left and on the right of another, [size, size] each.
struct Neighbors {
  T *left, *right;
};

class Group {
 public:
  Group(const Problem& p, int64_t thread, int64_t number, std::vector<int64_t> sequences)
      : p(p), thread(thread), D(p.hidden_size), H(p.inner_size), N(p.num_neighbors), W(width_of_window(p)),
        threshold(T(p.threshold)), epsilon(T(p.epsilon)), drop(p.dropout, p.seed, number),
        sequences(std::move(sequences)) {}

  void forward(const Maps& maps) {
    Arena arenas[2];
    auto step = std::make_unique<Step>();
    for (int64_t each : sequences) {
      const int64_t length = p.lengths[each];
      step->rows.push_back({each, length, length + 2, step->positions, step->pairs});
      step->positions += length + 2, step->pairs += length - 1;
    }
    begin(*step, p.train ? kept : arenas[0]);
    for (const Sequence& row : step->rows) {
      std::copy_n(of_sequence(p.states, row, D), row.size * D, step->states + row.at * D);
      std::fill_n(p.total + row.sequence * p.size, row.size, T(0));
      p.ended_well[row.sequence] = 0;
    }
    std::fill_n(step->existence, step->positions, T(1));
    std::fill_n(step->taken_before, step->positions, T(0));
    for (int64_t number = 1; !step->rows.empty(); ++number) {
      Arena& memory = p.train ? kept : arenas[number % 2];
      auto next = std::make_unique<Step>();
      scratch.reset();
      score(*step, maps);
      compose(*step, maps);
      if (!p.train) memory.reset();
      finish(*step, *next, number, memory);
      if (p.train) steps.push_back(std::move(step));
      step = std::move(next);
    }
  }

  void backward(const Gradients& g, const Maps& maps) {
    for (int64_t at = static_cast<int64_t>(steps.size()) - 1; at >= 0; --at) {
      scratch.reset();
      backward(*steps[at], g, maps);
    }
  }

 private:
  using Floats = const T*;
  template <typename P>
  P* of_sequence(P* values, const Sequence& row, int64_t width) const {
    return values + row.sequence * p.size * width;
  }
  T* own(T* values, int64_t count) const { return values + thread * count; }
  bool adds_features() const { return p.change && p.equation == 6; }

  void begin(Step& s, Arena& memory) const {
    s.states = memory.take<T>(s.positions * D);
    s.existence = memory.take<T>(s.positions);
    s.taken_before = memory.take<T>(s.positions);
    s.read = memory.take<T>(s.positions * W);
    for (T** each : {&s.activation, &s.slope}) *each = memory.take<T>(s.positions * D);
    for (T** each : {&s.moves, &s.among, &s.gives, &s.taken, &s.scores}) *each = memory.take<T>(s.positions);
    s.highest = memory.take<T>(static_cast<int64_t>(s.rows.size()));
    for (T** each : {&s.cell_hidden, &s.cell_slope}) *each = memory.take<T>(s.pairs * H);
    s.gates = memory.take<T>(s.pairs * 4 * D);
    s.composed = memory.take<T>(s.pairs * D);
  }

  // Fills row i of either matrix of neighbours. The j-th position from i on has the existence e(j).
  template <class Existence, class Entry>
  void neighbors_of(int64_t count, Existence e, Entry entry) const {
    T so_far = p.equation == 6 ? T(1) : T(0);
    for (int64_t j = 0; j < count; ++j) {
      if (p.equation == 6) {
        entry(j) = e(j) * so_far;
        so_far *= T(1) - e(j) + epsilon;
      } else {
        const T until = so_far + e(j);
        entry(j) = std::min(until, T(1)) - std::min(so_far, T(1));
        so_far = until;
      }
    }
  }

  // Adds the gradient of the existence that row i was made from.
  template <class Existence, class Gradient, class Sum>
  void neighbors_backward(int64_t count, Existence e, Gradient d_entry, Sum d_e, std::vector<T>& before) const {
    before.resize(count + 1);
    before[0] = p.equation == 6 ? T(1) : T(0);
    for (int64_t j = 0; j < count; ++j)
      before[j + 1] = p.equation == 6 ? before[j] * (T(1) - e(j) + epsilon) : before[j] + e(j);
    T carried = 0;
    for (int64_t j = count - 1; j >= 0; --j) {
      if (p.equation == 6) {  // `carried` is the gradient of before[j + 1]
        d_e(j) += d_entry(j) * before[j] - carried * before[j];
        carried = d_entry(j) * e(j) + carried * (T(1) - e(j) + epsilon);
      } else {  // the sum of those of before[j + 1], before[j + 2], ...
        const T next = j + 1 < count ? d_entry(j + 1) : T(0);
        carried += before[j + 1] <= T(1) ? d_entry(j) - next : T(0);
        d_e(j) += carried;
      }
    }
  }

  Neighbors neighbors(const Step& s, const Sequence& row, Arena& memory) const {
    Floats e = s.existence + row.at;
    const int64_t size = row.size;
    Neighbors found{memory.take_zero<T>(size * size), memory.take_zero<T>(size * size)};
    for (int64_t i = 0; i < size; ++i) {
      T *left = found.left + i * size, *right = found.right + i * size;
      neighbors_of(i, [&](int64_t j) { return e[i - 1 - j]; }, [&](int64_t j) -> T& { return left[i - 1 - j]; });
      neighbors_of(size - 1 - i, [&](int64_t j) { return e[i + 1 + j]; }, [&](int64_t j) -> T& { return right[i + 1 + j]; });
    }
    return found;
  }

  // to = matrix from, for blocks of `read`; `begin` and `end` say where a row of the matrix may be other than 0.
  template <class Range>
  void spread(const Sequence& row, Floats matrix, Floats from, T* to, Range range) const {
    for (int64_t i = 0; i < row.size; ++i) {
      T* sum = to + i * W;
      std::fill_n(sum, D, T(0));
      const auto [begin, end] = range(i);
      for (int64_t j = begin; j < end; ++j) {
        const T factor = matrix[i * row.size + j];
        if (factor == T(0)) continue;
        Floats each = from + j * W;
        SIMD
        for (int64_t d = 0; d < D; ++d) sum[d] += factor * each[d];
      }
    }
  }

  // The gradients of `spread`, added.
  template <class Range>
  void spread_backward(const Sequence& row, Floats matrix, Floats from, Floats d_to, T* d_matrix, T* d_from, Range range) const {
    for (int64_t i = 0; i < row.size; ++i) {
      const auto [begin, end] = range(i);
      Floats d = d_to + i * W;
      for (int64_t j = begin; j < end; ++j) {
        d_matrix[i * row.size + j] += dot(d, from + j * W, D);
        const T factor = matrix[i * row.size + j];
        if (factor == T(0)) continue;
        T* sum = d_from + j * W;
        SIMD
        for (int64_t k = 0; k < D; ++k) sum[k] += factor * d[k];
      }
    }
  }

  auto on_left() const {
    return [](int64_t i) { return std::pair<int64_t, int64_t>(0, i); };
  }
  auto on_right(const Sequence& row) const {
    return [size = row.size](int64_t i) { return std::pair<int64_t, int64_t>(i + 1, size); };
  }

  // What each position reads, its score, and how far it gives way and takes its left neighbour.
  void score(Step& s, const Maps& maps) {
    Floats absent = p.absent, change = p.change;
    std::vector<Neighbors> of_rows;
    for (const Sequence& row : s.rows) {
      T* read = s.read + row.at * W;
      for (int64_t i = 0; i < row.size; ++i) {
        T* seen = read + i * W + N * D;
        std::copy_n(s.states + (row.at + i) * D, D, seen);
        if (!adds_features()) continue;
        const T taken = s.taken_before[row.at + i];
        for (int64_t d = 0; d < D; ++d) seen[d] += absent[d] + taken * change[d];
      }
      of_rows.push_back(neighbors(s, row, scratch));
      for (int64_t k = N; k > 0; --k) {
        spread(row, of_rows.back().left, read + k * D, read + (k - 1) * D, on_left());
        spread(row, of_rows.back().right, read + (2 * N - k) * D, read + (2 * N - k + 1) * D, on_right(row));
      }
    }
    fill_rows(s.activation, s.positions, D, p.window_bias);
    multiply(s.positions, s.read, W, maps.window, s.activation, D, true);
    Floats weight = p.score;
    for (int64_t at = 0; at < s.positions; ++at) {
      T *activation = s.activation + at * D, *slope = s.slope + at * D;
      if (p.change && p.equation == 5) {
        const T taken = s.taken_before[at];
        for (int64_t d = 0; d < D; ++d) activation[d] += absent[d] + taken * change[d];
      }
      T sum = 0;
      SIMD_SUM(sum)
      for (int64_t d = 0; d < D; ++d) {
        activation[d] = gelu(activation[d], slope[d]);
        sum += weight[d] * activation[d];
      }
      s.scores[at] = sum + p.score_bias[0];
    }
    for (size_t number = 0; number < s.rows.size(); ++number) {
      const Sequence& row = s.rows[number];
      const int64_t size = row.size;
      const Neighbors& found = of_rows[number];
      Floats scores = s.scores + row.at;
      T *moves = s.moves + row.at, *among = s.among + row.at, *gives = s.gives + row.at, *taken = s.taken + row.at;
      const T highest = s.highest[number] = std::max(*std::max_element(scores, scores + size), T(0));
      std::fill_n(moves, size, T(0)), std::fill_n(gives, size, T(0)), std::fill_n(taken, size, T(0));
      for (int64_t i = 1; i < row.length; ++i) moves[i] = exponential(scores[i] - highest);  // the last token stays
      const T others = exponential(-highest) + epsilon * T(p.modulated ? 4 : 2);
      for (int64_t i = 1; i < row.length; ++i) {
        among[i] = moves[i] + others;
        if (p.modulated)
          among[i] += dot(found.left + i * size, static_cast<Floats>(moves), size) +
                      dot(found.right + i * size, static_cast<Floats>(moves), size);
        gives[i] = moves[i] / among[i];
      }
      for (int64_t i = 1; i <= row.length; ++i) taken[i] = dot(found.left + i * size, static_cast<Floats>(gives), size);
    }
  }

  // Calls visit(position, pair) for the positions of a row that take their left neighbours.
  template <class Visit>
  static void for_pairs(const Sequence& row, Visit visit) {
    for (int64_t i = 0; i < row.pairs(); ++i) visit(row.at + 2 + i, row.pair + i);
  }

  // What the cell reads, [pairs, 2 * hidden_size].
  void gather_pairs(const Step& s, T* to) const {
    for (const Sequence& row : s.rows)
      for_pairs(row, [&](int64_t at, int64_t pair) {
        std::copy_n(s.read + at * W + (N - 1) * D, D, to + pair * 2 * D);
        std::copy_n(s.states + at * D, D, to + (pair * 2 + 1) * D);
      });
  }

  // The step of the cell at each pair; `visit` sets its gradients and runs it.
  template <class Visit>
  void for_cells(const Step& s, T* inputs, Visit visit) {
    StepRow<T, 2> cell;
    cell.learned = scratch.take<T>(2 * D), cell.scratch = scratch.take<T>(gated::kScratch * D);
    std::copy_n(p.gain, D, cell.learned), std::copy_n(p.shift, D, cell.learned + D);
    for (int64_t pair = 0; pair < s.pairs; ++pair) {
      cell.products[0] = cell.d_products[0] = s.gates + pair * 4 * D, cell.states[0] = s.composed + pair * D;
      for (int64_t k = 0; k < 2; ++k) cell.child[0][k] = inputs + (2 * pair + k) * D;
      visit(pair, cell);
    }
  }

  void compose(Step& s, const Maps& maps) {
    T* inputs = scratch.take<T>(s.pairs * 2 * D);
    gather_pairs(s, inputs);
    T *hidden = s.cell_hidden, *slope = s.cell_slope;
    fill_rows(hidden, s.pairs, H, p.bias1);
    multiply(s.pairs, inputs, 2 * D, maps.hidden, hidden, H, true);
    activate_hidden(p.gelu, hidden, slope, s.pairs * H);
    drop.copy(kHidden, entries, hidden, hidden, s.pairs * H);
    drop.copy(kHidden, entries, slope, slope, s.pairs * H);
    entries += static_cast<uint32_t>(s.pairs * H);
    fill_rows(s.gates, s.pairs, 4 * D, p.bias2);
    multiply(s.pairs, hidden, H, maps.gates, s.gates, 4 * D, true);
    for_cells(s, inputs, [&](int64_t, const StepRow<T, 2>& cell) { gated::forward_step(cell, D); });
  }

  // The states and the existence after the step: of the next one, or at the end.
  void finish(const Step& s, Step& next, int64_t number, Arena& memory) {
    T *states = scratch.take<T>(s.positions * D), *existence = scratch.take<T>(s.positions);
    std::copy_n(s.states, s.positions * D, states);
    for (int64_t at = 0; at < s.positions; ++at) existence[at] = s.existence[at] * (T(1) - s.gives[at]);
    std::vector<const Sequence*> before;
    for (const Sequence& row : s.rows) {
      for_pairs(row, [&](int64_t at, int64_t pair) {
        Floats composed = s.composed + pair * D;
        T* state = states + at * D;
        const T share = s.taken[at];
        SIMD
        for (int64_t d = 0; d < D; ++d) state[d] += share * (composed[d] - state[d]);
      });
      add(of_sequence(p.total, row, 1), s.existence + row.at, row.size);
      Floats own = existence + row.at;
      const int64_t remaining = std::count_if(own, own + row.size, [&](T each) { return each > threshold; }) - 2;
      if (remaining == 1) p.ended_well[row.sequence] = 1;
      if (row.length > number && remaining > 1) {
        before.push_back(&row);
        next.rows.push_back({row.sequence, row.length, row.size, next.positions, next.pairs});
        next.positions += row.size, next.pairs += row.pairs();
      } else {
        std::copy_n(states + row.at * D, row.size * D, of_sequence(p.outputs, row, D));
        std::copy_n(own, row.size, of_sequence(p.existence, row, 1));
      }
    }
    if (next.rows.empty()) return;
    begin(next, memory);
    for (size_t i = 0; i < before.size(); ++i) {
      const Sequence &from = *before[i], &to = next.rows[i];
      std::copy_n(states + from.at * D, from.size * D, next.states + to.at * D);
      std::copy_n(existence + from.at, from.size, next.existence + to.at);
      std::copy_n(s.taken + from.at, from.size, next.taken_before + to.at);
    }
  }

  void backward(Step& s, const Gradients& g, const Maps& maps) {
    // The interpolation and the cell. `gates` and `cell_slope` become gradients.
    T *inputs = scratch.take<T>(s.pairs * 2 * D), *d_inputs = scratch.take_zero<T>(s.pairs * 2 * D);
    T *d_composed = scratch.take<T>(s.pairs * D), *d_hidden = scratch.take<T>(s.pairs * H);
    gather_pairs(s, inputs);
    for (const Sequence& row : s.rows) {
      T *d_states = of_sequence(g.states, row, D), *d_taken = of_sequence(g.taken, row, 1);
      for_pairs(row, [&](int64_t at, int64_t pair) {
        Floats composed = s.composed + pair * D, state = s.states + at * D;
        T *d_state = d_states + (at - row.at) * D, *d = d_composed + pair * D;
        const T share = s.taken[at];
        T sum = 0;
        SIMD_SUM(sum)
        for (int64_t k = 0; k < D; ++k) {
          sum += d_state[k] * (composed[k] - state[k]);
          d[k] = share * d_state[k];
          d_state[k] -= d[k];
        }
        d_taken[at - row.at] += sum;
      });
    }
    std::vector<T> d_learned(2 * D, T(0));
    for_cells(s, inputs, [&](int64_t pair, StepRow<T, 2>& cell) {
      cell.d_learned = d_learned.data(), cell.d_states[0] = d_composed + pair * D;
      for (int64_t k = 0; k < 2; ++k) cell.d_child[0][k] = d_inputs + (2 * pair + k) * D;
      gated::backward_step(cell, D);
    });
    add(own(g.gain, D), d_learned.data(), D), add(own(g.shift, D), d_learned.data() + D, D);
    multiply(s.pairs, s.gates, 4 * D, maps.gates, d_hidden, H, false);
    SIMD
    for (int64_t i = 0; i < s.pairs * H; ++i) s.cell_slope[i] *= d_hidden[i];
    multiply(s.pairs, s.cell_slope, H, maps.hidden, d_inputs, 2 * D, true);
    outer(H, 2 * D, s.pairs, s.cell_slope, H, inputs, 2 * D, own(g.weight1, H * 2 * D), 2 * D);
    outer(4 * D, H, s.pairs, s.gates, 4 * D, s.cell_hidden, H, own(g.weight2, 4 * D * H), H);
    add_rows(own(g.bias1, H), s.cell_slope, s.pairs, H);
    add_rows(own(g.bias2, 4 * D), s.gates, s.pairs, 4 * D);

    // From what positions give to their scores, and to what the scores read. `slope` becomes a gradient.
    std::vector<Neighbors> of_rows, d_of_rows;
    T* d_read = scratch.take<T>(s.positions * W);
    Floats weight = p.score, change = p.change;
    T *d_weight = own(g.score, D), *d_bias = own(g.score_bias, 1);
    for (size_t number = 0; number < s.rows.size(); ++number) {
      const Sequence& row = s.rows[number];
      of_rows.push_back(neighbors(s, row, scratch));
      d_of_rows.push_back({scratch.take_zero<T>(row.size * row.size), scratch.take_zero<T>(row.size * row.size)});
      T* d_scores = scratch.take_zero<T>(row.size);
      scores_backward(s, row, s.highest[number], of_rows.back(), d_of_rows.back(), g, d_scores);
      for (int64_t i = 0; i < row.size; ++i) {
        Floats activation = s.activation + (row.at + i) * D;
        T *slope = s.slope + (row.at + i) * D, d = d_scores[i];
        d_bias[0] += d;
        SIMD
        for (int64_t k = 0; k < D; ++k) d_weight[k] += d * activation[k], slope[k] *= d * weight[k];
      }
    }
    add_rows(own(g.window_bias, D), s.slope, s.positions, D);
    outer(D, W, s.positions, s.slope, D, s.read, W, own(g.window, D * W), W);
    multiply(s.positions, s.slope, D, maps.window, d_read, W, false);

    for (size_t number = 0; number < s.rows.size(); ++number) {
      const Sequence& row = s.rows[number];
      T *d_states = of_sequence(g.states, row, D), *d_taken = of_sequence(g.taken, row, 1);
      std::fill_n(d_taken, row.size, T(0));  // from here on that of the step before
      for_pairs(row, [&](int64_t at, int64_t pair) {
        add(d_read + at * W + (N - 1) * D, d_inputs + pair * 2 * D, D);
        add(d_states + (at - row.at) * D, d_inputs + (pair * 2 + 1) * D, D);
      });
      read_backward(s, row, of_rows[number], d_of_rows[number], d_read + row.at * W, of_sequence(g.existence, row, 1));
      for (int64_t i = 0; i < row.size; ++i) {
        Floats d_seen = d_read + (row.at + i) * W + N * D;
        add(d_states + i * D, d_seen, D);
        if (!p.change) continue;
        Floats d = adds_features() ? d_seen : s.slope + (row.at + i) * D;
        T *d_absent = own(g.absent, D), *d_change = own(g.change, D);
        const T taken = s.taken_before[row.at + i];
        T sum = 0;
        SIMD_SUM(sum)
        for (int64_t k = 0; k < D; ++k) {
          d_absent[k] += d[k], d_change[k] += taken * d[k];
          sum += d[k] * change[k];
        }
        d_taken[i] = sum;
      }
    }
  }

  // From `taken` and the existence after the step to the scores, the matrices and the existence before it.
  void scores_backward(const Step& s, const Sequence& row, T highest, const Neighbors& found, Neighbors& d_found,
                       const Gradients& g, T* d_scores) const {
    const int64_t size = row.size;
    Floats moves = s.moves + row.at, among = s.among + row.at, gives = s.gives + row.at, scores = s.scores + row.at;
    Floats existence = s.existence + row.at, d_taken = of_sequence(g.taken, row, 1);
    T* d_existence = of_sequence(g.existence, row, 1);
    std::vector<T> d_gives(size, T(0)), d_moves(size, T(0));
    for (int64_t i = 0; i < size; ++i) {
      d_gives[i] = -d_existence[i] * existence[i];
      d_existence[i] *= T(1) - gives[i];
    }
    for (int64_t i = 1; i <= row.length; ++i)
      for (int64_t j = 0; j < i; ++j) {
        d_found.left[i * size + j] += d_taken[i] * gives[j];
        d_gives[j] += d_taken[i] * found.left[i * size + j];
      }
    T d_highest = 0;
    const T other = exponential(-highest);
    for (int64_t i = 1; i < row.length; ++i) {
      const T d_among = -d_gives[i] * gives[i] / among[i];
      d_moves[i] += d_gives[i] / among[i] + d_among;
      d_highest -= d_among * other;
      if (!p.modulated) continue;
      for (T *matrix : {found.left + i * size, found.right + i * size})
        for (int64_t j = 1; j < row.length; ++j) d_moves[j] += matrix[j] * d_among;
      for (T *d_matrix : {d_found.left + i * size, d_found.right + i * size})
        for (int64_t j = 1; j < row.length; ++j) d_matrix[j] += moves[j] * d_among;
    }
    for (int64_t i = 1; i < row.length; ++i) {
      d_scores[i] = d_moves[i] * moves[i];
      d_highest -= d_scores[i];
    }
    const T most = *std::max_element(scores, scores + size);
    if (most < T(0)) return;
    const T ties = static_cast<T>(std::count(scores, scores + size, most));
    for (int64_t i = 0; i < size; ++i)
      if (scores[i] == most) d_scores[i] += d_highest / ties;
  }

  // From what is read to the states, in place of the middle block, and to the existence.
  void read_backward(const Step& s, const Sequence& row, const Neighbors& found, Neighbors& d_found, T* d_read,
                     T* d_existence) const {
    Floats read = s.read + row.at * W;
    for (int64_t k = 1; k <= N; ++k) {
      spread_backward(row, found.left, read + k * D, d_read + (k - 1) * D, d_found.left, d_read + k * D, on_left());
      spread_backward(row, found.right, read + (2 * N - k) * D, d_read + (2 * N - k + 1) * D, d_found.right,
                      d_read + (2 * N - k) * D, on_right(row));
    }
    Floats e = s.existence + row.at;
    std::vector<T> before;
    for (int64_t i = 0; i < row.size; ++i) {
      Floats left = d_found.left + i * row.size, right = d_found.right + i * row.size;
      neighbors_backward(
          i, [&](int64_t j) { return e[i - 1 - j]; }, [&](int64_t j) { return left[i - 1 - j]; },
          [&](int64_t j) -> T& { return d_existence[i - 1 - j]; }, before);
      neighbors_backward(
          row.size - 1 - i, [&](int64_t j) { return e[i + 1 + j]; }, [&](int64_t j) { return right[i + 1 + j]; },
          [&](int64_t j) -> T& { return d_existence[i + 1 + j]; }, before);
    }
  }

  const Problem& p;  // of the run
  const int64_t thread, D, H, N, W;
  const T threshold, epsilon;
  const Dropout<T> drop;
  const std::vector<int64_t> sequences;
  std::vector<std::unique_ptr<Step>> steps;
  Arena kept, scratch;
  uint32_t entries = 0;  // of the cell so far: they number those of dropout
};

struct Run {
  Problem problem;
  std::vector<std::vector<std::unique_ptr<Group>>> of_threads;

  explicit Run(const Problem& p) : problem(p), of_threads(p.num_threads) {
    std::vector<int64_t> sequences;
    int64_t positions = 0, number = 0;
    for (int64_t each = 0; each < p.sequences; ++each) {
      sequences.push_back(each), positions += p.lengths[each] + 2;
      if (positions < kPositions && each + 1 < p.sequences) continue;
      const int64_t thread = number % p.num_threads;
      of_threads[thread].push_back(std::make_unique<Group>(problem, thread, number++, std::move(sequences)));
      sequences.clear(), positions = 0;
    }
  }

  template <class Visit>
  void for_groups(Visit visit) {
    parallel_for(problem.num_threads, problem.num_threads, [&](int64_t thread) {
      for (auto& group : of_threads[thread]) visit(*group);
    });
  }
};

}  // namespace

extern "C" {
const char* forward(const Problem* problem, void** state) {
  return error_of([&] {
    auto run = std::make_unique<Run>(*problem);
    const Maps maps(*problem, false);
    run->for_groups([&](Group& group) { group.forward(maps); });
    *state = run.release();
  });
}
const char* backward(void* state, const Problem* problem, const Gradients* gradients) {
  return error_of([&] {
    Run& run = *static_cast<Run*>(state);
    run.problem = *problem;  // the same tensors as in the forward pass, which may lie elsewhere now
    const Maps maps(run.problem, true);
    run.for_groups([&](Group& group) {
      const NoSubnormals scope;
      group.backward(*gradients, maps);
    });
  });
}
const char* release(void* state) {
  return error_of([&] { delete static_cast<Run*>(state); });
}
}
