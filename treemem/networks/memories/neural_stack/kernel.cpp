// A neural stack, queue or deque with a controller: Grefenstette et al. 2015, eq. 1-3 and 6-7, and section 3.3.

#include "controller.h"

// A memory with one end, which pops and reads there, pushes at the top; one with two ends pushes at both. A control has
// the value of each end, tanh, then the strengths of pushes, then of pops, sigmoid, the top first.
//
// Items lie in places: those before the first step from `begin` on, pushed ones beside them. Items are read where they
// came from, the first ones or the controls.

// Both are declared in native.py.
struct Fields { FIELDS };
struct MemoryGradients { MEMORY_GRADIENTS };

namespace {

// Items in the order from an end on.
struct Order {
  int64_t nearest, step;
  int64_t operator[](int64_t k) const { return nearest + k * step; }
};

struct Strengths {
  const Problem& p;
  const Fields& f;
  const MemoryGradients* gradients;
  const int64_t V, ends, room;
  const T read_strength;
  const States states;

  struct Buffers {
    Buffer<T> strengths, sums;

    explicit Buffers(const Strengths& memory) : strengths(memory.room), sums(memory.room) {}
  };

  Strengths(const Problem& p, const Fields& f, const MemoryGradients* gradients)
      : p(p), f(f), gradients(gradients), V(f.value_size), ends(f.reads_top + f.reads_bottom), room(f.room),
        read_strength(f.read_strength),
        states{p, f.first_strengths, f.all_strengths, f.strengths, room} {}

  int64_t below(int64_t steps) const { return ends == 2 ? steps : 0; }  // items pushed at the bottom by then
  int64_t first(int64_t steps) const { return f.begin - below(steps); }
  int64_t count(int64_t steps) const { return f.filled + steps + below(steps); }
  bool is_top(int64_t end) const { return end == 0 && f.reads_top; }
  Order order(int64_t end, int64_t steps) const {
    return is_top(end) ? Order{first(steps) + count(steps) - 1, -1} : Order{first(steps), 1};
  }

  T* d_strengths(int64_t row) const { return gradients->strengths + row * room; }
  T* d_items(int64_t row) const { return gradients->items + row * room * V; }

  const T* item(int64_t place, int64_t row) const {
    const int64_t above = place - f.begin - f.filled;
    if (place >= f.begin && above < 0) return f.first_items + (row * room + place) * V;
    const int64_t step = above < 0 ? f.begin - 1 - place : above;
    return p.controls + (p.tokens[step] + row) * p.control_size + (above < 0 ? V : 0);
  }

  void forward(Place at, T* control, T* readout, Buffers&) const {
    if (p.num_blocks)
      for (int64_t i = 0; i < p.control_size; ++i)
        control[i] = i < ends * V ? hyperbolic_tangent(control[i]) : sigmoid(control[i]);
    const T *pushes = control + ends * V, *pops = pushes + ends, *old = states.before(at);
    T* strengths = states.after(at);
    const int64_t begin = first(at.step), items = count(at.step), next = at.step + 1;
    if (strengths != old) std::copy_n(old + begin, items, strengths + begin);
    for (int64_t end = 0; end < ends; ++end) pop(strengths, order(end, at.step), items, pops[end]);
    strengths[begin + items] = pushes[0];
    if (ends == 2) strengths[begin - 1] = pushes[1];
    for (int64_t end = 0; end < ends; ++end) read(strengths, order(end, next), count(next), at.row, readout + end * V);
    if (!at.ends) return;
    T* last = states.of_end(at);
    if (last != strengths) std::copy_n(strengths + first(next), count(next), last + first(next));
    for (int64_t place = first(next); place < first(next) + count(next); ++place)
      std::copy_n(item(place, at.row), V, f.items + (at.row * room + place) * V);
  }

  // NaN stays.
  static T positive(T x) { return x < T(0) ? T(0) : x; }
  static T smaller(T own, T left) { return own > left ? left : own; }

  static void pop(T* strengths, Order order, int64_t items, T amount) {
    T nearer = 0;
    for (int64_t k = 0; k < items && (!k || !(nearer >= amount)); ++k) {
      T& own = strengths[order[k]];
      const T left = k ? amount - nearer : amount;
      nearer += own;
      own = positive(own - left);
    }
  }

  void read(const T* strengths, Order order, int64_t items, int64_t row, T* readout) const {
    std::fill_n(readout, V, T(0));
    T nearer = 0;
    for (int64_t k = 0; k < items && !(nearer >= read_strength); ++k) {
      const T own = strengths[order[k]], weight = smaller(own, read_strength - nearer);
      nearer += own;
      if (weight != T(0)) add_scaled(readout, weight, item(order[k], row), V);
    }
  }

  void backward(Place at, const T* control, const T* d_readout, T* d_control, Buffers& buffers) const {
    T *d = d_strengths(at.row), *d_items = this->d_items(at.row);
    const T *strengths = states.after(at), *old = states.before(at), *pops = control + ends * (V + 1);
    T *of_pushes = d_control + ends * V, *of_pops = of_pushes + ends;
    const int64_t begin = first(at.step), items = count(at.step), next = at.step + 1;
    for (int64_t end = 0; end < ends; ++end)
      read_backward(strengths, order(end, next), count(next), at.row, d_readout + end * V, buffers.sums.get());
    for (int64_t end = 0; end < ends; ++end) {  // what was pushed
      const int64_t place = end ? begin - 1 : begin + items;
      of_pushes[end] = d[place];
      std::copy_n(d_items + place * V, V, d_control + end * V);
    }
    if (ends == 2) {
      T* between = buffers.strengths.get();
      std::copy_n(old + begin, items, between + begin);
      pop(between, order(0, at.step), items, pops[0]);
      of_pops[1] = pop_backward(between, strengths, order(1, at.step), items, pops[1], d);
      strengths = between;
    }
    of_pops[0] = pop_backward(old, strengths, order(0, at.step), items, pops[0], d);
    if (!p.num_blocks) return;
    for (int64_t i = 0; i < p.control_size; ++i)
      d_control[i] *= i < ends * V ? T(1) - control[i] * control[i] : control[i] * (T(1) - control[i]);
  }

  // With torch's subgradients: a half for each side of a minimum of equals, 0 for max(0, x) at 0.
  void read_backward(const T* strengths, Order order, int64_t items, int64_t row, const T* d_readout, T* sums) const {
    T *d = d_strengths(row), nearer = 0;
    int64_t read = 0;
    for (; read < items && !(nearer >= read_strength); ++read) {
      const int64_t place = order[read];
      const T own = strengths[place], left = read_strength - nearer, weight = smaller(own, left);
      nearer += own;
      sums[read] = 0;
      if (own == T(0)) continue;  // popped, or 0 before: no gradient reaches it. Pushes are above 0
      const T* from = item(place, row);
      T *to = d_items(row) + place * V, of_weight = 0;
      SIMD_SUM(of_weight)
      for (int64_t i = 0; i < V; ++i) of_weight += from[i] * d_readout[i], to[i] += weight * d_readout[i];
      sums[read] = (own > left ? T(1) : own == left ? T(0.5) : T(0)) * of_weight;
      d[place] += of_weight - sums[read];
    }
    T sum = 0;
    for (int64_t k = read - 1; k >= 0; --k) d[order[k]] -= sum, sum += sums[k];
  }

  // Returns the gradient of the amount. `d` is that of the popped strengths and becomes that of the full ones. At most
  // one item, the boundary, is popped in part.
  static T pop_backward(const T* full, const T* popped, Order order, int64_t items, T amount, T* d) {
    T nearer = 0, of_boundary = 0;
    int64_t boundary = 0;
    for (int64_t k = 0; k < items; ++k) {
      const int64_t place = order[k];
      const bool kept = popped[place] > T(0);
      if (kept && (!k || amount > nearer)) boundary = k, of_boundary += d[place];
      nearer += full[place];
      if (!kept) d[place] = 0;
    }
    for (int64_t k = 0; k < boundary; ++k) d[order[k]] += of_boundary;
    return -of_boundary;
  }
};

}  // namespace

RUN(Strengths)
