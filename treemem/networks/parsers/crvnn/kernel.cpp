// A continuous recursion over sequences, forward and backward; the equations are those of equations.py. The comparison of
// all encoders trains it (tasks/comparison).
//
// Sequences are independent. They run in groups, so that the products of a step have many rows and what a step reads stays
// in the cache. A sequence leaves its group when it has ended. Each thread takes every n-th group.
//
// Matrices are row by row. A sequence has positions for START, its tokens and END.
//
// In torch one thread takes 2.7 times as long, in training and in inference (64 units, 128 sequences of 25 vectors,
// `python -m benchmarks --threads 1 --seconds 4 --only "crvnn 64"`), and twice the memory.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "step.h"

// The steps of the cell, of its hidden layer and of the score of a position, printed from formulas in torch.
namespace gated {
GATED_STEP
}
namespace hidden_layer {
HIDDEN_STEP
}
namespace score_step {
SCORE_STEP
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

// What a step keeps, by position of the step; what the cell makes, by pair.
struct Step {
  std::vector<Sequence> rows;
  int64_t positions = 0, pairs = 0;
  uint32_t entries;  // where those of dropout begin
  T *states, *existence, *taken_before, *read, *window, *moves, *among, *gives, *taken, *highest, *scores;
  T *inner, *hidden, *gates, *composed;
};

// How far each position is the next one on the left and on the right of another, [size, size] each.
using Neighbors = std::array<T*, 2>;

class Group {
 public:
  Group(const Problem& p, int64_t thread, int64_t number, std::vector<int64_t> sequences)
      : p(p), thread(thread), D(p.hidden_size), H(p.inner_size), N(p.num_neighbors), W(width_of_window(p)),
        threshold(T(p.threshold)), epsilon(T(p.epsilon)), drop(p.dropout, p.seed, number),
        sequences(std::move(sequences)),
        of_steps((gated::kScratch + score_step::kScratch) * D + hidden_layer::kScratch * H) {
    of_cell.scratch = of_steps.get(), of_score.scratch = of_cell.scratch + gated::kScratch * D;
    of_hidden.scratch = of_score.scratch + score_step::kScratch * D;
  }

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
    s.states = memory.take<T>(s.positions * D), s.window = memory.take<T>(s.positions * D);
    s.read = memory.take<T>(s.positions * W);
    for (T** each : {&s.existence, &s.taken_before, &s.moves, &s.among, &s.gives, &s.taken, &s.scores})
      *each = memory.take<T>(s.positions);
    s.highest = memory.take<T>(static_cast<int64_t>(s.rows.size()));
    s.inner = memory.take<T>(s.pairs * H), s.hidden = memory.take<T>(s.pairs * H);
    s.gates = memory.take<T>(s.pairs * 4 * D), s.composed = memory.take<T>(s.pairs * D);
  }

  // What the last step adds to a state that is read, or to the hidden layer of a score.
  void add_features(T taken, T* to) const {
    add(to, p.absent, D);
    add_scaled(to, taken, p.change, D);
  }

  // Fills row i of a matrix of neighbours, whose positions follow each other by `step`, from their existence.
  void neighbors_of(Floats e, int64_t size, int64_t i, int64_t step, T* entries) const {
    T so_far = p.equation == 6 ? T(1) : T(0);
    for (int64_t j = i + step; j >= 0 && j < size; j += step) {
      if (p.equation == 6) {
        entries[j] = e[j] * so_far;
        so_far *= T(1) - e[j] + epsilon;
      } else {
        const T until = so_far + e[j];
        entries[j] = std::min(until, T(1)) - std::min(so_far, T(1));
        so_far = until;
      }
    }
  }

  // Adds the gradient of the existence that row i was made from.
  void neighbors_backward(Floats e, int64_t size, int64_t i, int64_t step, Floats d_entries, T* d_e) {
    const int64_t count = step < 0 ? i : size - 1 - i;
    before.assign(count + 1, p.equation == 6 ? T(1) : T(0));
    for (int64_t k = 0, j = i + step; k < count; ++k, j += step)
      before[k + 1] = p.equation == 6 ? before[k] * (T(1) - e[j] + epsilon) : before[k] + e[j];
    T carried = 0;
    for (int64_t k = count - 1, j = i + count * step; k >= 0; --k, j -= step) {
      if (p.equation == 6) {  // `carried` is the gradient of before[k + 1]
        d_e[j] += d_entries[j] * before[k] - carried * before[k];
        carried = d_entries[j] * e[j] + carried * (T(1) - e[j] + epsilon);
      } else {  // the sum of those of before[k + 1], before[k + 2], ...
        const T next = k + 1 < count ? d_entries[j + step] : T(0);
        carried += before[k + 1] <= T(1) ? d_entries[j] - next : T(0);
        d_e[j] += carried;
      }
    }
  }

  Neighbors neighbors(const Step& s, const Sequence& row, Arena& memory) const {
    const Neighbors found{memory.take_zero<T>(row.size * row.size), memory.take_zero<T>(row.size * row.size)};
    for (int64_t i = 0; i < row.size; ++i)
      for (int64_t side : {0, 1}) neighbors_of(s.existence + row.at, row.size, i, 2 * side - 1, found[side] + i * row.size);
    return found;
  }

  // Calls visit(i, j) for the entries of a matrix of neighbours.
  template <class Visit>
  static void for_entries(int64_t size, int64_t side, Visit visit) {
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = side ? i + 1 : 0; j < (side ? size : i); ++j) visit(i, j);
  }

  // The block of what positions read that is so many neighbours away.
  int64_t block(int64_t side, int64_t distance) const { return (N + (2 * side - 1) * distance) * D; }

  // Reads of the neighbours at a distance what they read of theirs, or sends back the gradients.
  void spread(const Sequence& row, const Neighbors& found, T* read) const {
    for (int64_t side : {0, 1})
      for (int64_t distance = 1; distance <= N; ++distance) {
        T *from = read + block(side, distance - 1), *to = read + block(side, distance);
        for (int64_t i = 0; i < row.size; ++i) std::fill_n(to + i * W, D, T(0));
        for_entries(row.size, side, [&](int64_t i, int64_t j) {
          const T factor = found[side][i * row.size + j];
          if (factor != T(0)) add_scaled(to + i * W, factor, from + j * W, D);
        });
      }
  }
  void spread_backward(const Sequence& row, const Neighbors& found, Floats read, const Neighbors& d_found, T* d_read) const {
    for (int64_t side : {0, 1})
      for (int64_t distance = N; distance > 0; --distance) {
        const int64_t from = block(side, distance - 1), to = block(side, distance);
        for_entries(row.size, side, [&](int64_t i, int64_t j) {
          Floats d = d_read + i * W + to;
          d_found[side][i * row.size + j] += dot(d, read + j * W + from, D);
          const T factor = found[side][i * row.size + j];
          if (factor != T(0)) add_scaled(d_read + j * W + from, factor, d, D);
        });
      }
  }

  // What each position reads, its score, and how far it gives way and takes its left neighbour.
  void score(Step& s, const Maps& maps) {
    std::vector<Neighbors> of_rows;
    for (const Sequence& row : s.rows) {
      T* read = s.read + row.at * W;
      for (int64_t i = 0; i < row.size; ++i) {
        std::copy_n(s.states + (row.at + i) * D, D, read + i * W + N * D);
        if (adds_features()) add_features(s.taken_before[row.at + i], read + i * W + N * D);
      }
      of_rows.push_back(neighbors(s, row, scratch));
      spread(row, of_rows.back(), read);
    }
    fill_rows(s.window, s.positions, D, p.window_bias);
    multiply(s.positions, s.read, W, maps.window, s.window, D, true);
    for (int64_t at = 0; at < s.positions; ++at) {
      if (p.change && p.equation == 5) add_features(s.taken_before[at], s.window + at * D);
      point_to_score(s, at);
      score_step::forward_step(of_score, D);
      s.scores[at] += p.score_bias[0];
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
        for (T* matrix : found)
          if (p.modulated) among[i] += dot(static_cast<Floats>(matrix + i * size), static_cast<Floats>(moves), size);
        gives[i] = moves[i] / among[i];
      }
      for (int64_t i = 1; i <= row.length; ++i) taken[i] = dot(static_cast<Floats>(found[0] + i * size), static_cast<Floats>(gives), size);
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

  // What steps read and write at a pair or at a position.
  void point_to_cell(const Step& s, T* inputs, int64_t pair) {
    of_cell.learned = const_cast<T*>(p.norm);
    of_cell.products[0] = of_cell.d_products[0] = s.gates + pair * 4 * D, of_cell.states[0] = s.composed + pair * D;
    for (int64_t k = 0; k < 2; ++k) of_cell.child[0][k] = inputs + (2 * pair + k) * D;
  }
  void point_to_hidden(const Step& s, int64_t pair) {
    of_hidden.products[0] = of_hidden.d_products[0] = s.inner + pair * H, of_hidden.states[0] = s.hidden + pair * H;
  }
  void point_to_score(const Step& s, int64_t at) {
    of_score.learned = const_cast<T*>(p.score);
    of_score.products[0] = of_score.d_products[0] = s.window + at * D, of_score.states[0] = s.scores + at;
  }

  void compose(Step& s, const Maps& maps) {
    T* inputs = scratch.take<T>(s.pairs * 2 * D);
    gather_pairs(s, inputs);
    fill_rows(s.inner, s.pairs, H, p.bias1);
    multiply(s.pairs, inputs, 2 * D, maps.hidden, s.inner, H, true);
    for (int64_t pair = 0; pair < s.pairs; ++pair) {
      point_to_hidden(s, pair);
      hidden_layer::forward_step(of_hidden, H);
    }
    s.entries = entries, entries += static_cast<uint32_t>(s.pairs * H);
    drop.copy(kHidden, s.entries, s.hidden, s.hidden, s.pairs * H);
    fill_rows(s.gates, s.pairs, 4 * D, p.bias2);
    multiply(s.pairs, s.hidden, H, maps.gates, s.gates, 4 * D, true);
    for (int64_t pair = 0; pair < s.pairs; ++pair) {
      point_to_cell(s, inputs, pair);
      gated::forward_step(of_cell, D);
    }
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
    // The interpolation and the cell. `gates` and `inner` become gradients.
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
    of_cell.d_learned = own(g.norm, 2 * D);
    for (int64_t pair = 0; pair < s.pairs; ++pair) {
      point_to_cell(s, inputs, pair);
      of_cell.d_states[0] = d_composed + pair * D;
      for (int64_t k = 0; k < 2; ++k) of_cell.d_child[0][k] = d_inputs + (2 * pair + k) * D;
      gated::backward_step(of_cell, D);
    }
    multiply(s.pairs, s.gates, 4 * D, maps.gates, d_hidden, H, false);
    drop.copy(kHidden, s.entries, d_hidden, d_hidden, s.pairs * H);
    for (int64_t pair = 0; pair < s.pairs; ++pair) {
      point_to_hidden(s, pair);
      of_hidden.d_states[0] = d_hidden + pair * H;
      hidden_layer::backward_step(of_hidden, H);
    }
    multiply(s.pairs, s.inner, H, maps.hidden, d_inputs, 2 * D, true);
    outer(H, 2 * D, s.pairs, s.inner, H, inputs, 2 * D, own(g.weight1, H * 2 * D), 2 * D);
    outer(4 * D, H, s.pairs, s.gates, 4 * D, s.hidden, H, own(g.weight2, 4 * D * H), H);
    add_rows(own(g.bias1, H), s.inner, s.pairs, H);
    add_rows(own(g.bias2, 4 * D), s.gates, s.pairs, 4 * D);

    // From what positions give to their scores, and to what the scores read. `window` becomes a gradient.
    std::vector<Neighbors> of_rows, d_of_rows;
    T* d_read = scratch.take<T>(s.positions * W);
    of_score.d_learned = own(g.score, D);
    for (size_t number = 0; number < s.rows.size(); ++number) {
      const Sequence& row = s.rows[number];
      of_rows.push_back(neighbors(s, row, scratch));
      d_of_rows.push_back({scratch.take_zero<T>(row.size * row.size), scratch.take_zero<T>(row.size * row.size)});
      T* d_scores = scratch.take_zero<T>(row.size);
      scores_backward(s, row, s.highest[number], of_rows.back(), d_of_rows.back(), g, d_scores);
      for (int64_t i = 0; i < row.size; ++i) {
        *own(g.score_bias, 1) += d_scores[i];
        point_to_score(s, row.at + i);
        of_score.d_states[0] = d_scores + i;
        score_step::backward_step(of_score, D);
      }
    }
    add_rows(own(g.window_bias, D), s.window, s.positions, D);
    outer(D, W, s.positions, s.window, D, s.read, W, own(g.window, D * W), W);
    multiply(s.positions, s.window, D, maps.window, d_read, W, false);

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
        Floats d = adds_features() ? d_seen : s.window + (row.at + i) * D;
        add(own(g.absent, D), d, D);
        add_scaled(own(g.change, D), s.taken_before[row.at + i], d, D);
        d_taken[i] = dot(d, static_cast<Floats>(p.change), D);
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
        d_found[0][i * size + j] += d_taken[i] * gives[j];
        d_gives[j] += d_taken[i] * found[0][i * size + j];
      }
    T d_highest = 0;
    const T other = exponential(-highest);
    for (int64_t i = 1; i < row.length; ++i) {
      const T d_among = -d_gives[i] * gives[i] / among[i];
      d_moves[i] += d_gives[i] / among[i] + d_among;
      d_highest -= d_among * other;
      if (!p.modulated) continue;
      for (int64_t side : {0, 1}) {
        add_scaled(d_moves.data() + 1, d_among, found[side] + i * size + 1, row.pairs());
        add_scaled(d_found[side] + i * size + 1, d_among, moves + 1, row.pairs());
      }
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
  void read_backward(const Step& s, const Sequence& row, const Neighbors& found, const Neighbors& d_found, T* d_read,
                     T* d_existence) {
    spread_backward(row, found, s.read + row.at * W, d_found, d_read);
    for (int64_t i = 0; i < row.size; ++i)
      for (int64_t side : {0, 1})
        neighbors_backward(s.existence + row.at, row.size, i, 2 * side - 1, d_found[side] + i * row.size, d_existence);
  }

  const Problem& p;  // of the run
  const int64_t thread, D, H, N, W;
  const T threshold, epsilon;
  const Dropout<T> drop;
  const std::vector<int64_t> sequences;
  std::vector<std::unique_ptr<Step>> steps;
  Arena kept, scratch;
  const Buffer<T> of_steps;
  StepRow<T, 2> of_cell;
  Row<T> of_hidden{}, of_score{};
  std::vector<T> before;   // sums or products of the existence of neighbours
  uint32_t entries = 0;    // of the cell so far: they number those of dropout
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
  bool forward() {
    const Maps maps(problem, false);
    for_groups([&](Group& group) { group.forward(maps); });
    return true;
  }
  void backward(const Gradients& gradients) {
    const Maps maps(problem, true);
    for_groups([&](Group& group) {
      const NoSubnormals scope;
      group.backward(gradients, maps);
    });
  }
};

}  // namespace

EXPORT_KEPT(Run)
