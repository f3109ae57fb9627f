// Sequences that become trees pair by pair, composed by a Tree-LSTM and scored by a query. The equations are those of
// pair_by_pair.py, and of the backward pass those of gumbel_tree_lstm/native.py.
//
// Nodes and pairs have numbers. Leaves are the first nodes, and pair p becomes the node `leaves + p`. There are numbers for
// 3 n - 5 pairs of n > 1 tokens: those of the leaves, and two for each choice but the last. A choice at an end needs one.
//
// Without it one thread trains 2.8 times as long (Gumbel Tree-LSTM, 32 sequences of 10 to 30 vectors, 64 units).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "errors.h"
#include "packed.h"
#include "step.h"

// The step of the cell for two children, printed from trees/tree_lstm/equations.py.
namespace tree_lstm {
TREE_LSTM_STEP
}

// Both are declared in native_pairs.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

constexpr int64_t kRows = 256;  // of a product

// A sequence: its nodes and pairs from left to right.
struct Sequence {
  int64_t number, length, next_pair, choice;  // the next numbers of a pair and of a probability
  std::vector<int64_t> nodes, pairs;
};

// The sequences of a thread. Their products are made together.
class Group {
 public:
  Group(const Problem& p, int64_t thread)
      : p(p), L(p.longest), H(p.hidden_size), W(2 * H), G(5 * H), first(p.sequences * L), states(p.states), gates(p.gates),
        scores(p.scores), probability(p.probability) {
    int64_t pair = 0, choice = 0;
    for (int64_t number = 0; number < p.sequences; ++number) {
      const int64_t n = p.lengths[number];
      if (number % p.num_threads == thread) sequences.push_back({number, n, pair, choice, {}, {}});
      pair += n > 1 ? 3 * n - 5 : 0, choice += n * (n - 1) / 2;
    }
  }

  void forward(const Packed<T>& weight) {
    std::vector<int64_t> fresh;
    for (Sequence& s : sequences) {
      for (int64_t i = 0; i < s.length; ++i) s.nodes.push_back(s.number * L + i);
      for (int64_t i = 0; i + 1 < s.length; ++i) s.pairs.push_back(pair(s, s.nodes[i], s.nodes[i + 1], fresh));
    }
    compose(fresh, weight);
    for (int64_t step = 0, noise = 0; step + 1 < L; ++step) {
      fresh.clear();
      for (Sequence& s : sequences)
        if (step + 1 < s.length) choose(s, step, noise + s.number * (L - 1 - step), fresh);
      compose(fresh, weight);
      noise += active(step) * (L - 1 - step);
    }
  }

  void backward(const Gradients& g, const Packed<T>& weight) {
    T *d_states = g.states, *d_pairs = g.pairs;
    const T *d_compositions = g.compositions, *of_score = g.of_score;
    for (Sequence& s : sequences) {
      s.choice += s.length * (s.length - 1) / 2;
      if (s.length > 1) s.nodes = {first + p.chosen[s.number * (L - 1) + s.length - 2]};
    }
    Arena memory;
    std::vector<Sequence*> here;
    std::vector<T> d_choice;
    for (int64_t step = L - 2; step >= 0; --step) {
      here.clear(), memory.reset();
      for (Sequence& s : sequences)
        if (step + 1 < s.length) here.push_back(&s);
      const int64_t rows = static_cast<int64_t>(here.size());
      T *d_gates = memory.take<T>(rows * G), *d_hidden = memory.take<T>(rows * W);
      T* d_cells = memory.take_zero<T>(rows * W);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = here[row]->number * (L - 1) + step, chosen = p.chosen[at];
        T* own = d_pairs + chosen * W;
        std::copy_n(d_states + (first + chosen) * W, W, own);
        if (d_compositions) add(own, d_compositions + at * W, W);
        point_to(chosen);
        for (int64_t child = 0; child < 2; ++child) node.d_child[1][child] = d_cells + row * W + child * H;
        node.d_products[0] = d_gates + row * G, node.d_states[0] = own, node.d_states[1] = own + H;
        tree_lstm::backward_step(node, H);
      }
      multiply(rows, d_gates, G, weight, d_hidden, W, false);
      for (int64_t row = 0; row < rows; ++row) {
        Sequence& s = *here[row];
        const int64_t at = s.number * (L - 1) + step, chosen = p.chosen[at];
        const std::vector<int64_t> after = s.nodes;
        undo(s, at);
        const int64_t count = static_cast<int64_t>(s.pairs.size());
        s.choice -= count;
        if (of_score && count > 1) {
          choice_gradient(s, after, d_states, d_compositions ? d_compositions + at * W : nullptr, d_choice);
          softmax_backward(probability + s.choice, d_choice.data(), count);
        }
        for (int64_t child = 0; child < 2; ++child) {
          T* d_child = d_states + p.children[2 * chosen + child] * W;
          add(d_child, d_hidden + row * W + child * H, H);
          add(d_child + H, d_cells + row * W + child * H, H);
        }
        if (!of_score || count == 1) continue;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t pair = s.pairs[i];
          const T d_score = d_choice[i] / T(*p.temperature);
          g.scores[pair] += d_score;
          for (int64_t child = 0; child < 2; ++child) {
            T* d_child = d_states + p.children[2 * pair + child] * W;
            add_scaled(d_child, d_score, of_score + (2 * pair + child) * W, W);
          }
        }
      }
    }
  }

 private:
  // How many sequences have a pair at a step.
  int64_t active(int64_t step) const {
    return std::count_if(p.lengths, p.lengths + p.sequences, [&](int64_t length) { return length > step + 1; });
  }

  int64_t pair(Sequence& s, int64_t left, int64_t right, std::vector<int64_t>& fresh) const {
    const int64_t made = s.next_pair++;
    p.children[2 * made] = left, p.children[2 * made + 1] = right;
    fresh.push_back(made);
    return made;
  }

  void compose(const std::vector<int64_t>& fresh, const Packed<T>& weight) {
    const T *bias = p.bias, *query = p.query;
    for (size_t begin = 0; begin < fresh.size(); begin += kRows) {
      const int64_t rows = std::min<int64_t>(kRows, static_cast<int64_t>(fresh.size() - begin));
      scratch.reset();
      T *read = scratch.take<T>(rows * W), *products = scratch.take<T>(rows * G);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t child = 0; child < 2; ++child)
          std::copy_n(states + p.children[2 * fresh[begin + row] + child] * W, H, read + row * W + child * H);
      fill_rows(products, rows, G, bias);
      multiply(rows, read, W, weight, products, G, true);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t made = fresh[begin + row];
        std::copy_n(products + row * G, G, gates + made * G);
        point_to(made);
        tree_lstm::forward_step(node, H);
        scores[made] = dot(static_cast<const T*>(node.states[0]), query, H);
      }
    }
  }

  void point_to(int64_t pair) {
    T* h = states + (first + pair) * W;
    node.products[0] = gates + pair * G, node.states[0] = h, node.states[1] = h + H;
    for (int64_t child = 0; child < 2; ++child) node.child[1][child] = states + p.children[2 * pair + child] * W + H;
  }

  // Puts the pair of the highest score in place of its nodes.
  void choose(Sequence& s, int64_t step, int64_t noise_at, std::vector<int64_t>& fresh) {
    const int64_t count = static_cast<int64_t>(s.pairs.size()), at = s.number * (L - 1) + step;
    std::vector<T> noisy(count);
    for (int64_t i = 0; i < count; ++i) {
      noisy[i] = scores[s.pairs[i]];
      if (p.noise && count > 1) noisy[i] += p.noise[noise_at + i];
    }
    const int64_t place = first_highest(noisy), chosen = s.pairs[place], node = first + chosen;
    if (p.temperature) {
      T* own = probability + s.choice;
      for (int64_t i = 0; i < count; ++i) own[i] = noisy[i] / T(*p.temperature);
      softmax(own, count);
      s.choice += count;
    }
    p.chosen[at] = chosen, p.places[at] = place;
    int64_t* replaced = p.replaced + 2 * at;
    replaced[0] = place ? s.pairs[place - 1] : -1;
    replaced[1] = place + 1 < count ? s.pairs[place + 1] : -1;
    s.nodes[place] = node;
    s.nodes.erase(s.nodes.begin() + place + 1);
    if (replaced[0] >= 0) s.pairs[place - 1] = pair(s, s.nodes[place - 1], node, fresh);
    if (replaced[1] >= 0) s.pairs[place + 1] = pair(s, node, s.nodes[place + 1], fresh);
    s.pairs.erase(s.pairs.begin() + place);
  }

  // Back to the nodes and pairs before a choice.
  void undo(Sequence& s, int64_t at) const {
    const int64_t chosen = p.chosen[at], place = p.places[at], *replaced = p.replaced + 2 * at;
    s.nodes[place] = p.children[2 * chosen];
    s.nodes.insert(s.nodes.begin() + place + 1, p.children[2 * chosen + 1]);
    s.pairs.insert(s.pairs.begin() + place, chosen);
    if (replaced[0] >= 0) s.pairs[place - 1] = replaced[0];
    if (replaced[1] >= 0) s.pairs[place + 1] = replaced[1];
  }

  // The place of the first score that is the highest but for rounding, as choices.py has it; any if some are NaN.
  static int64_t first_highest(const std::vector<T>& values) {
    T greatest = values[0], largest = 0;
    for (T value : values) greatest = std::max(greatest, value), largest = std::max(largest, std::fabs(value));
    const T least = greatest - T(64) * std::numeric_limits<T>::epsilon() * largest;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] >= least) return static_cast<int64_t>(i);
    return 0;
  }

  // The gradients of a choice, but for a constant; `after` are the nodes after it.
  void choice_gradient(const Sequence& s, const std::vector<int64_t>& after, const T* d_states, const T* own,
                       std::vector<T>& d_choice) const {
    d_choice.resize(after.size());
    T passed = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const T *d_node = d_states + after[i] * W, *composed = states + (first + s.pairs[i]) * W;
      const T stays = dot(d_node, static_cast<const T*>(states + s.nodes[i] * W), W);
      passed += stays - dot(d_node, static_cast<const T*>(states + s.nodes[i + 1] * W), W);
      d_choice[i] = dot(d_node, composed, W) - stays + passed;
      if (own) d_choice[i] += dot(own, composed, W);
    }
  }

  const Problem& p;
  const int64_t L, H, W, G, first;
  T *states, *gates, *scores, *probability;
  std::vector<Sequence> sequences;
  Arena scratch;
  StepRow<T, 2> node;
};

struct Run {
  const Problem& p;
  const int64_t H;

  explicit Run(const Problem& p) : p(p), H(p.hidden_size) {}

  template <class Visit>
  void for_groups(Visit visit) const {
    parallel_for(p.num_threads, p.num_threads, [&](int64_t thread) {
      Group group(p, thread);
      visit(group);
    });
  }
  void forward() const {
    const Packed<T> weight = packed_map(2 * H, 5 * H, p.weight, 2 * H, false);
    for_groups([&](Group& group) { group.forward(weight); });
  }
  void backward(const Gradients& gradients) const {
    const Packed<T> weight = packed_map(2 * H, 5 * H, p.weight, 2 * H, true);
    for_groups([&](Group& group) { group.backward(gradients, weight); });
  }
};

}  // namespace

EXPORT_RUN(Run)
