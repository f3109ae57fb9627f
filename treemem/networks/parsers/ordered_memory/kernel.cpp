// The Ordered Memory of Shen et al. 2019 over packed sequences, forward and backward.
//
// The equations are those of equations.py. What is done differently:
// - A slot is composed only in the sequences whose cp there is at least `skip` (above 0 if skip is 0). In the others its
//   candidate is the element. The last slot is always composed.
// - A (slot, sequence) that is composed is a "pair". The pairs of a step are sorted by slot, and by the first composed
//   slot of their sequence. So the sequences of a slot are a prefix of those of the next slot.
// - The memory of a pair follows from the two steps before: below its first composed slot, a sequence holds elements.
// - Sequences are independent. Each thread takes every n-th one, without waiting for the others.
//
// Without the backward pass by hand, autograd of equations.py, one thread trains 1.8 times as long (128 units, 21 slots, 128
// random sequences of 10 to 50 tokens, dropout), and 3.4 times where the attention is sharp.
//
// Matrices are row by row.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "step.h"

// The steps of a composed slot and of the score of a key, printed from native.py.
namespace slot_step {
SLOT_STEP
}
namespace score_step {
SCORE_STEP
}

// Both are declared in native.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

constexpr double kThreshold = 1e-5;  // reach below this is 0
constexpr double kEpsilon = 1e-5;    // of layer norms
constexpr int64_t kLearned = 5;      // vectors that printed steps read
constexpr double kSmallest = 1e-12;  // of the sum that pointers are divided by

enum Stream : uint32_t { kVertical = 1, kHorizontal, kInner, kKey, kCompared };

// Entries of the cell's hidden layer; of the cell itself if it has no gates.
inline int64_t inner_size(const Problem& p) { return p.weight2 ? 4 * p.hidden_size : p.hidden_size; }

// What a step keeps of its sequences, its pairs and its keys.
struct Step {
  int64_t size = 0, pairs = 0, keys = 0, token = 0;
  std::vector<int64_t> first, rank, order;     // by sequence; by rank
  std::vector<int64_t> count, offset;          // by slot
  std::vector<int64_t> key_pair, key_row, key_slot;  // of the step before
  T *share, *held, *candidate, *inner, *gates, *from_keys;

  int64_t pair(int64_t row, int64_t slot) const { return offset[slot] + rank[row]; }
};

// The weights that products of each step read, or their transposes for the backward pass.
struct Maps {
  Packed<T> key, vertical, horizontal, gates;

  Maps(const Problem& p, bool backward)
      : key(packed_map(p.hidden_size, p.hidden_size, p.key_weight, p.hidden_size, backward)),
        vertical(packed_map(p.hidden_size, inner_size(p), p.weight1, 2 * p.hidden_size, backward)),
        horizontal(packed_map(p.hidden_size, inner_size(p), p.weight1 + p.hidden_size, 2 * p.hidden_size, backward)),
        gates(p.weight2 ? packed_map(inner_size(p), inner_size(p), p.weight2, inner_size(p), backward) : Packed<T>(0, 0)) {}
};

class Part {
 public:
  Part(const Problem& problem, int64_t part)
      : p(problem), part(part), parts(problem.num_parts), D(problem.hidden_size), S(problem.slots),
        H(inner_size(problem)), cell_drop(problem.cell_dropout, problem.seed, part),
        memory_drop(problem.memory_dropout, problem.seed, part),
        of_steps_own((2 * kLearned + 1 + slot_step::kScratch + score_step::kScratch) * D) {
    T* memory = of_steps_own.get();
    const T* learned[kLearned] = {p.gain, p.shift, p.score_weight, p.key_gain, p.key_shift};
    for (int64_t k = 0; k < kLearned; ++k)
      if (learned[k]) std::copy_n(learned[k], D, memory + k * D);
    of_slot.learned = memory, of_key.learned = memory + 2 * D;
    of_slot.d_learned = memory + kLearned * D, of_key.d_learned = of_slot.d_learned + 2 * D;
    of_key.mask = of_slot.d_learned + kLearned * D;
    of_slot.scratch = of_key.mask + D, of_key.scratch = of_slot.scratch + slot_step::kScratch * D;
  }

  bool forward(const Maps& maps) {
    starts.assign(1, 0);
    for (int64_t t = 0; t < p.num_steps; ++t) {
      starts.push_back(starts[t] + p.sizes[t]);
      if (p.sizes[t] <= part) break;
      auto s = std::make_unique<Step>();
      s->size = (p.sizes[t] - part + parts - 1) / parts;
      pairs_before.push_back(num_pairs);
      keys_before.push_back(num_keys);
      steps.push_back(std::move(s));
      Step& step = *steps.back();
      Arena& memory = of_steps[p.train ? 0 : t % 3];  // a step reads those of two steps before
      if (!p.train) memory.reset();
      scratch.reset();
      if (!attend(t, step, maps, memory)) return false;
      choose(t, step, memory);
      hold(t, step, memory);
      compose(t, step, maps, memory);
      num_pairs += static_cast<uint32_t>(step.pairs);
      num_keys += static_cast<uint32_t>(step.keys);
    }
    return true;
  }

  void backward(const Gradients& g, const Maps& maps) {
    T *d_weight1 = own(g.weight1, H * 2 * D), *d_bias1 = own(g.bias1, H), *d_elements = g.elements;
    std::fill_n(of_slot.d_learned, kLearned * D, T(0));

    const int64_t last = static_cast<int64_t>(steps.size()) - 1;
    std::vector<T*> d_candidate(steps.size()), d_held(steps.size());
    Arena of_gradients[3];  // of three steps at a time
    std::vector<std::vector<T>> d_cumulative(steps.size());
    auto prepare = [&](int64_t t) {
      if (t < 0 || d_candidate[t]) return;
      of_gradients[t % 3].reset();
      d_candidate[t] = of_gradients[t % 3].take_zero<T>(steps[t]->pairs * D);
      d_held[t] = of_gradients[t % 3].take_zero<T>(steps[t]->pairs * D);
      d_cumulative[t].assign(steps[t]->size * S, T(0));
    };
    auto d_element = [&](int64_t t, int64_t row) { return d_elements + token(t, row) * D; };
    auto to_candidate = [&](int64_t t, int64_t row, int64_t slot) -> T* {
      if (t < 0) return nullptr;
      return slot < steps[t]->first[row] ? d_element(t, row) : d_candidate[t] + steps[t]->pair(row, slot) * D;
    };

    for (int64_t t = last; t >= 0; --t) {
      Step& s = *steps[t];
      prepare(t), prepare(t - 1), prepare(t - 2);
      for (int64_t row = 0; row < s.size && g.outputs; ++row)
        add(d_candidate[t] + s.pair(row, S - 1) * D, g.outputs + token(t, row) * D, D);

      // The cell, from the last slot to the first.
      scratch.reset();
      T *d_inner = scratch.take<T>(s.pairs * H), *d_vertical = scratch.take<T>(s.size * D);
      T* d_read = scratch.take<T>(s.pairs * D);
      for (int64_t slot = S - 1; slot >= 0; --slot) {
        const int64_t count = s.count[slot], begin = s.offset[slot];
        if (!count) continue;
        T* di = d_inner + begin * H;
        const CellGradients gradients{d_candidate[t] + begin * D, d_held[t] + begin * D, d_vertical, di, d_elements,
                                      d_cumulative[t].data() + slot};
        backward(t, s, slot, gradients, maps);
        multiply(count, di, H, maps.vertical, d_read, D, false);
        for (int64_t rank = 0; rank < count; ++rank) {
          const int64_t row = s.order[rank];
          T* to = slot > s.first[row] ? d_candidate[t] + s.pair(row, slot - 1) * D : d_element(t, row);
          const uint32_t entry = (pairs_before[t] + static_cast<uint32_t>(begin + rank)) * static_cast<uint32_t>(D);
          if (p.weight2) add(to, d_vertical + rank * D, D);
          cell_drop.add(kVertical, entry, d_read + rank * D, to, D);
        }
      }
      multiply(s.pairs, d_inner, H, maps.horizontal, d_read, D, false);
      for (int64_t pair = 0; pair < s.pairs; ++pair) {
        const uint32_t entry = (pairs_before[t] + static_cast<uint32_t>(pair)) * static_cast<uint32_t>(D);
        cell_drop.add(kHorizontal, entry, d_read + pair * D, d_held[t] + pair * D, D);
      }

      // Weights of the cell.
      {
        T* both = scratch.take<T>(s.pairs * 2 * D);
        for (int64_t slot = 0; slot < S; ++slot) gather_vertical(t, s, slot, both + s.offset[slot] * 2 * D, 2 * D);
        gather_held(s, t, both + D, 2 * D);
        outer(H, 2 * D, s.pairs, d_inner, H, both, 2 * D, d_weight1, 2 * D);
        add_rows(d_bias1, d_inner, s.pairs, H);
        if (p.weight2) {
          outer(H, H, s.pairs, s.gates, H, s.inner, H, own(g.weight2, H * H), H);
          add_rows(own(g.bias2, H), s.gates, s.pairs, H);
        }
      }
      if (t > 0) {
        // The memory.
        const T* cumulative = p.cumulative;
        const T* pointers = p.pointers;
        std::vector<T> d_onward(s.size * S, T(0));
        for (int64_t slot = 0; slot < S; ++slot) {
          for (int64_t rank = 0; rank < s.count[slot]; ++rank) {
            const int64_t row = s.order[rank], at = token(t, row) * S;
            const T onward = cumulative[at + S - 1] - cumulative[at + slot] + pointers[at + slot];
            Floats from = memory_before(t, row, slot), to = candidate(t - 1, row, slot);
            Floats dh = d_held[t] + (s.offset[slot] + rank) * D;
            const Step& before = *steps[t - 1];
            T* d_from = slot < before.first[row] ? to_candidate(t - 2, row, slot)
                                                 : d_held[t - 1] + before.pair(row, slot) * D;
            T* d_to = to_candidate(t - 1, row, slot);
            add_scaled(d_to, onward, dh, D);
            if (d_from) add_scaled(d_from, T(1) - onward, dh, D);
            d_onward[row * S + slot] += dot(dh, to, D) - (from ? dot(dh, from, D) : T(0));
          }
        }
        // The attention.
        std::vector<T> d_score(s.keys), d_own(S);
        int64_t key = 0;
        for (int64_t row = 0; row < s.size; ++row) {
          const int64_t at = token(t, row) * S;
          const T* cp = cumulative + token(t - 1, row) * S;
          T so_far = 0, total = 0;
          for (int64_t slot = 0; slot < S; ++slot) {
            so_far += d_onward[row * S + slot];
            d_own[slot] = so_far + (g.pointers ? g.pointers[at + slot] : T(0));
          }
          so_far = 0;
          for (int64_t slot = S - 1; slot >= 0; --slot) {
            so_far += d_cumulative[t][row * S + slot] + (g.cumulative ? g.cumulative[at + slot] : T(0));
            d_own[slot] += so_far;
            total += pointers[at + slot] * d_own[slot];
          }
          T of_untouched = 0;
          for (int64_t slot = 0; slot < S; ++slot) {
            const T within = reach(cp, slot), of_slot = d_own[slot] - total;
            if (within == T(0)) continue;
            if (slot + 1 < S) d_cumulative[t - 1][row * S + slot + 1] += pointers[at + slot] / within * of_slot;
            if (slot < steps[t - 1]->first[row]) of_untouched += pointers[at + slot] * of_slot;
            else d_score[key++] = pointers[at + slot] * of_slot;
          }
          g.untouched[after_first(t, row)] = of_untouched;
        }
        T *inputs = scratch.take<T>(s.keys * D), *d_inputs = scratch.take<T>(s.keys * D);
        gather_keys(t, s, inputs);
        for (key = 0; key < s.keys; ++key) {
          *own(g.score_bias, 1) += d_score[key];
          point_to_key(t, s, key);
          of_key.d_states[0] = d_score.data() + key, of_key.d_products[1] = d_inputs + key * D;
          score_step::backward_step(of_key, D);
          add(g.queries + after_first(t, s.key_row[key]) * D, d_inputs + key * D, D);
        }
        const T* d_keys = s.from_keys;
        outer(D, D, s.keys, d_keys, D, inputs, D, own(g.key_weight, D * D), D);
        if (g.key_bias) add_rows(own(g.key_bias, D), d_keys, s.keys, D);
        multiply(s.keys, d_keys, D, maps.key, d_inputs, D, false);
        for (key = 0; key < s.keys; ++key) {
          T* to = d_candidate[t - 1] + s.key_pair[key] * D;
          memory_drop.add(kKey, entry_of_key(t, key), d_inputs + key * D, to, D);
        }
      }
    }
    T* learned[kLearned] = {g.gain, g.shift, g.score_weight, g.key_gain, g.key_shift};
    for (int64_t k = 0; k < kLearned; ++k)
      if (learned[k]) add(own(learned[k], D), of_slot.d_learned + k * D, D);
  }

 private:
  using Floats = const T*;
  // Of the pairs of a slot: what comes in, `candidate`; what is set, `vertical` (if there are gates) and `inner`; and what
  // is added to, `held`, and by sequence `elements` and `cumulative`.
  struct CellGradients {
    T *candidate, *held, *vertical, *inner, *elements, *cumulative;
  };
  const Problem& p;  // of the run
  const int64_t part, parts, D, S, H;
  const Dropout<T> cell_drop, memory_drop;
  std::vector<std::unique_ptr<Step>> steps;
  Arena of_steps[3], scratch;
  std::vector<int64_t> starts;
  StepRow<T, 3> of_slot;
  StepRow<T, 1> of_key;
  Buffer<T> of_steps_own;  // what steps learn, [5, D], its gradient, and memory for both
  uint32_t num_pairs = 0, num_keys = 0;  // of the steps so far: they number the entries for dropout
  std::vector<uint32_t> pairs_before, keys_before;

  int64_t token(int64_t step, int64_t row) const { return starts[step] + part + parts * row; }
  T* element(int64_t step, int64_t row) const { return p.elements + token(step, row) * D; }
  // The gradients of weights are this part's.
  T* own(T* values, int64_t size) const { return values + part * size; }
  uint32_t entry_of_key(int64_t step, int64_t key) const {
    return (keys_before[step] + static_cast<uint32_t>(key)) * static_cast<uint32_t>(D);
  }
  int64_t after_first(int64_t step, int64_t row) const { return token(step, row) - p.sizes[0]; }

  // The candidate of a slot after a step; null before the first step.
  Floats candidate(int64_t step, int64_t row, int64_t slot) const {
    if (step < 0) return nullptr;
    const Step& s = *steps[step];
    return slot < s.first[row] ? element(step, row) : s.candidate + s.pair(row, slot) * D;
  }
  // The memory of a slot before `step` changes it; null where it is 0.
  Floats memory_before(int64_t step, int64_t row, int64_t slot) const {
    const Step& before = *steps[step - 1];
    return slot < before.first[row] ? candidate(step - 2, row, slot) : before.held + before.pair(row, slot) * D;
  }
  T reach(const T* cumulative, int64_t slot) const {
    const T value = slot + 1 < S ? cumulative[slot + 1] : T(1);
    return value < T(kThreshold) ? T(0) : value;
  }

  // p and cp of a step. False if the sum of the pointers would be clamped: then the memory of slots out of reach changes too.
  bool attend(int64_t t, Step& s, const Maps& maps, Arena& memory) {
    T* pointers = p.pointers;
    T* cumulative = p.cumulative;
    if (t == 0) {
      for (int64_t row = 0; row < s.size; ++row) {
        const int64_t at = token(0, row) * S;
        std::fill_n(pointers + at, S, T(0));
        std::fill_n(cumulative + at, S, T(0));
        pointers[at + S - 1] = cumulative[at + S - 1] = T(p.begins_empty[part + parts * row]);
      }
      return true;
    }
    const Step& before = *steps[t - 1];
    for (int64_t row = 0; row < s.size; ++row) {
      const T* cp = cumulative + token(t - 1, row) * S;
      for (int64_t slot = before.first[row]; slot < S; ++slot) {
        if (reach(cp, slot) == T(0)) continue;
        s.key_pair.push_back(before.pair(row, slot));
        s.key_row.push_back(row);
        s.key_slot.push_back(slot);
      }
    }
    s.keys = static_cast<int64_t>(s.key_pair.size());
    T *inputs = scratch.take<T>(s.keys * D), *scores = scratch.take<T>(s.keys);
    s.from_keys = memory.take<T>(s.keys * D);
    gather_keys(t, s, inputs);
    if (p.key_bias) fill_rows(s.from_keys, s.keys, D, p.key_bias);
    multiply(s.keys, inputs, D, maps.key, s.from_keys, D, p.key_bias != nullptr);
    for (int64_t key = 0; key < s.keys; ++key) {
      point_to_key(t, s, key);
      of_key.states[0] = scores + key;
      score_step::forward_step(of_key, D);
      scores[key] += *p.score_bias;
    }
    int64_t key = 0;
    std::vector<T> own(S);
    for (int64_t row = 0; row < s.size; ++row) {
      const T* cp = cumulative + token(t - 1, row) * S;
      const int64_t first = before.first[row], at = token(t, row) * S;
      const T untouched = p.untouched[after_first(t, row)];
      T most = first > 0 ? untouched : -INFINITY;
      std::fill(own.begin(), own.end(), untouched);
      for (; key < s.keys && s.key_row[key] == row; ++key) {
        own[s.key_slot[key]] = scores[key];
        most = scores[key] <= most ? most : scores[key];
      }
      T sum = 0;
      for (int64_t slot = 0; slot < S; ++slot) {
        const T within = reach(cp, slot);
        pointers[at + slot] = within == T(0) ? T(0) : std::exp(own[slot] - most) * within;
        sum += pointers[at + slot];
      }
      if (sum < T(kSmallest)) return false;
      T so_far = 0;
      for (int64_t slot = 0; slot < S; ++slot) {
        pointers[at + slot] /= sum;
        cumulative[at + slot] = so_far += pointers[at + slot];
      }
    }
    return true;
  }

  // The first composed slot of each sequence, and the order of the pairs.
  void choose(int64_t t, Step& s, Arena& memory) {
    s.first.resize(s.size), s.rank.resize(s.size), s.order.resize(s.size);
    s.count.assign(S, 0), s.offset.assign(S, 0);
    for (int64_t row = 0; row < s.size; ++row) {
      const T* cp = p.cumulative + token(t, row) * S;
      int64_t first = 0;
      while (first < S - 1 && !(cp[first] > T(0) && cp[first] >= T(p.skip)) && cp[first] == cp[first]) ++first;
      s.first[row] = first;
      ++s.count[first];
    }
    int64_t before = 0;
    for (int64_t slot = 0; slot < S; ++slot) {
      const int64_t here = s.count[slot];
      s.offset[slot] = before;  // for now the rank of the slot's first sequence
      before += here;
      s.count[slot] = before;
    }
    for (int64_t row = 0; row < s.size; ++row) s.order[s.rank[row] = s.offset[s.first[row]]++] = row;
    s.pairs = 0;
    for (int64_t slot = 0; slot < S; ++slot) s.offset[slot] = s.pairs, s.pairs += s.count[slot];
    s.share = memory.take<T>(s.pairs);
    for (int64_t slot = 0; slot < S; ++slot)
      for (int64_t rank = 0; rank < s.count[slot]; ++rank)
        s.share[s.offset[slot] + rank] = p.cumulative[token(t, s.order[rank]) * S + slot];
  }

  // The memory of the pairs.
  void hold(int64_t t, Step& s, Arena& memory) {
    s.held = memory.take<T>(s.pairs * D);
    for (int64_t slot = 0; slot < S; ++slot) {
      for (int64_t rank = 0; rank < s.count[slot]; ++rank) {
        const int64_t row = s.order[rank];
        T* held = s.held + (s.offset[slot] + rank) * D;
        if (t == 0) {
          std::fill_n(held, D, T(0));
          continue;
        }
        const int64_t at = token(t, row) * S;
        const T* cp = p.cumulative + at;
        const T onward = cp[S - 1] - cp[slot] + p.pointers[at + slot];
        Floats from = memory_before(t, row, slot), to = candidate(t - 1, row, slot);
        for (int64_t d = 0; d < D; ++d) {
          const T old = from ? from[d] : T(0);
          held[d] = old + onward * (to[d] - old);
        }
      }
    }
  }

  void compose(int64_t t, Step& s, const Maps& maps, Arena& memory) {
    s.candidate = memory.take<T>(s.pairs * D);
    s.inner = memory.take<T>(s.pairs * H);
    if (p.weight2) s.gates = memory.take<T>(s.pairs * H);
    T* inputs = scratch.take<T>(s.pairs * D);
    gather_held(s, t, inputs, D);
    multiply(s.pairs, inputs, D, maps.horizontal, s.inner, H, false);
    for (int64_t slot = 0; slot < S; ++slot) {
      if (!s.count[slot]) continue;
      gather_vertical(t, s, slot, inputs, D);
      multiply(s.count[slot], inputs, D, maps.vertical, s.inner + s.offset[slot] * H, H, true);
      compose(t, s, slot, maps);
    }
    for (int64_t row = 0; row < s.size; ++row)
      std::copy_n(s.candidate + s.pair(row, S - 1) * D, D, p.outputs + token(t, row) * D);
  }

  // The candidates of a slot from `inner`, W_1 [v; h].
  void compose(int64_t t, Step& s, int64_t slot, const Maps& maps) {
    const int64_t count = s.count[slot], begin = s.offset[slot];
    T* inner = s.inner + begin * H;
    for (int64_t rank = 0; rank < count; ++rank) add(inner + rank * H, p.bias1, H);
    if (p.weight2) {
      const uint32_t entry = (pairs_before[t] + static_cast<uint32_t>(begin)) * static_cast<uint32_t>(H);
      for (int64_t i = 0; i < count * H; ++i) inner[i] = inner[i] < T(0) ? T(0) : inner[i];
      cell_drop.copy(kInner, entry, inner, inner, count * H);
      fill_rows(s.gates + begin * H, count, H, p.bias2);
      multiply(count, inner, H, maps.gates, s.gates + begin * H, H, true);
    }
    for (int64_t rank = 0; rank < count; ++rank) {
      point_to_slot(t, s, slot, rank);
      slot_step::forward_step(of_slot, D);
    }
  }

  // What the step of a slot reads and writes in a sequence.
  void point_to_slot(int64_t t, const Step& s, int64_t slot, int64_t rank) {
    const int64_t row = s.order[rank], at = s.offset[slot] + rank;
    T* x = element(t, row);
    of_slot.child[0][0] = slot > s.first[row] ? s.candidate + s.pair(row, slot - 1) * D : x;
    of_slot.child[0][1] = s.held + at * D, of_slot.child[0][2] = x;
    of_slot.products[0] = of_slot.d_products[0] = (p.weight2 ? s.gates : s.inner) + at * H;
    of_slot.products[1] = s.share + at, of_slot.states[0] = s.candidate + at * D;
  }

  // What the score of a key reads.
  void point_to_key(int64_t t, const Step& s, int64_t key) {
    of_key.products[0] = of_key.d_products[0] = s.from_keys + key * D;
    of_key.products[1] = p.queries + after_first(t, s.key_row[key]) * D;
    const uint32_t entry = entry_of_key(t, key);
    const Dropout<T> drop = memory_drop;
    SIMD
    for (int64_t d = 0; d < D; ++d) of_key.mask[d] = drop.factor(kCompared, entry + static_cast<uint32_t>(d));
  }

  // What the key map reads, with dropout.
  void gather_keys(int64_t t, const Step& s, T* out) const {
    for (int64_t key = 0; key < s.keys; ++key) {
      Floats from = steps[t - 1]->candidate + s.key_pair[key] * D;
      memory_drop.copy(kKey, entry_of_key(t, key), from, out + key * D, D);
    }
  }

  // What the cell reads of the slot below, with dropout.
  void gather_vertical(int64_t t, const Step& s, int64_t slot, T* out, int64_t stride) const {
    for (int64_t rank = 0; rank < s.count[slot]; ++rank) {
      const int64_t row = s.order[rank];
      Floats from = slot > s.first[row] ? s.candidate + s.pair(row, slot - 1) * D : element(t, row);
      const uint32_t entry = (pairs_before[t] + static_cast<uint32_t>(s.offset[slot] + rank)) * static_cast<uint32_t>(D);
      cell_drop.copy(kVertical, entry, from, out + rank * stride, D);
    }
  }

  // What the cell reads of the memory, with dropout.
  void gather_held(const Step& s, int64_t t, T* out, int64_t stride) const {
    for (int64_t pair = 0; pair < s.pairs; ++pair) {
      const uint32_t entry = (pairs_before[t] + static_cast<uint32_t>(pair)) * static_cast<uint32_t>(D);
      cell_drop.copy(kHorizontal, entry, s.held + pair * D, out + pair * stride, D);
    }
  }

  // From the candidates of a slot to what the cell reads: `inner`, and `held` and `vertical` past W_1. What the last map
  // gives becomes its gradient.
  void backward(int64_t t, Step& s, int64_t slot, const CellGradients& g, const Maps& maps) {
    const int64_t count = s.count[slot], begin = s.offset[slot];
    T of_share;
    std::fill_n(g.vertical, count * D, T(0));
    for (int64_t rank = 0; rank < count; ++rank) {
      const int64_t row = s.order[rank];
      point_to_slot(t, s, slot, rank);
      of_slot.d_states[0] = g.candidate + rank * D, of_slot.d_products[1] = &of_share;
      of_slot.d_child[0][0] = g.vertical + rank * D, of_slot.d_child[0][1] = g.held + rank * D;
      of_slot.d_child[0][2] = g.elements + token(t, row) * D;
      slot_step::backward_step(of_slot, D);
      g.cumulative[row * S] += of_share;
    }
    Floats inner = s.inner + begin * H, gates = s.gates + begin * H;
    if (!p.weight2) return void(std::copy_n(inner, count * H, g.inner));
    multiply(count, gates, H, maps.gates, g.inner, H, false);
    const T kept = cell_drop.scale;
    SIMD
    for (int64_t i = 0; i < count * H; ++i) g.inner[i] = inner[i] > T(0) ? g.inner[i] * kept : T(0);
  }
};

struct Run {
  Problem problem;
  std::vector<std::unique_ptr<Part>> parts;

  explicit Run(const Problem& given) : problem(given) {
    for (int64_t part = 0; part < problem.num_parts; ++part) parts.push_back(std::make_unique<Part>(problem, part));
  }

  template <class Visit>
  void for_parts(Visit visit) {
    parallel_for(problem.num_parts, problem.num_parts, [&](int64_t part) { visit(*parts[part]); });
  }
  // False if the sum of the pointers would be clamped.
  bool forward() {
    const Maps maps(problem, false);
    std::atomic<bool> done{true};
    for_parts([&](Part& part) {
      if (!part.forward(maps)) done = false;
    });
    return done;
  }
  void backward(const Gradients& gradients) {
    const Maps maps(problem, true);
    for_parts([&](Part& part) { part.backward(gradients, maps); });
  }
};

}  // namespace

EXPORT_KEPT(Run)
