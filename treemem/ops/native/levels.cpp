// A cell over the levels of a schedule, forward and backward.
//
// A cell multiplies what it gathers from the children of a row (products), and then takes a pointwise step. The step of
// one row is printed from the cell's formula, for each arity (step.h); this file does the rest:
// - A segment has rows of one level, arity and kind. A level is divided among the threads by rows. A thread takes its
//   rows in tiles that stay in its cache: it gathers, multiplies and steps, and waits only at the end of a level.
// - The products of an arity lie kind by kind. So a segment is one block, and so are all rows of a kind, whose weights
//   get their gradient at the end.
// - The backward pass keeps the gradient of a row's states from the first parent that adds to it until the row has had
//   its step. Then another row gets the memory.
// - Two threads must not add to one row at once. In each level the first thread that meets a row adds to it. What
//   others add goes into spilled rows, which are added at the end of the level. So results depend on the number of
//   threads only.
//
// Matrices are row by row. `gemm` is sgemm or dgemm of the BLAS that torch has.

#include <omp.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "blas.h"
#include "errors.h"
#include "few_rows.h"
#include "numerics.h"
#include "step.h"

namespace {

constexpr int64_t kTileNumbers = 1 << 17, kLeastTile = 32, kMostTile = 512;
constexpr int64_t kChunk = 512;  // rows gathered at once for the gradient of weights
constexpr int64_t kMostNumbers = 1 << 23;  // of rows taken at once: a row may have a million children

// How many rows of so many numbers are taken at once.
inline int64_t bounded(int64_t rows, int64_t numbers) {
  return std::min(rows, std::max<int64_t>(1, kMostNumbers / std::max<int64_t>(1, numbers)));
}

// What a product reads: see product_input.py. The first state is h, the second one a cell or a stack.
enum Source : int64_t { kInOrder, kInOrderWithTops, kSum, kEachChild, kStackRows, kHiddenLayer, kPrinted };

}  // namespace

extern "C" {

// A product of the rows of one arity, as level_run.py of this folder fills it in.
struct Product {
  int64_t source, copies, outputs, inputs, features;  // `inputs` are those from states; copies are rows a node
  int64_t from;                                       // of a hidden layer: the product that it reads
  const int64_t* set_of_kind;                         // null if all kinds use the first set
  const void *weight, *bias;                          // [sets, outputs, inputs + features], [sets, outputs]
  const void* mask;                                   // null, or of the inputs, [rows * copies, inputs + features]
  void* values;                                       // [rows * copies, outputs]; null without a backward pass
  void* gradient;                                     // the same, if another product reads the product; else null
  void *d_weight, *d_bias;
  void *gather, *spread;                              // of printed inputs
  int64_t num_scratch;                                // of these
};

struct Arity {
  int64_t arity, rows, num_products;
  Product products[kMostProducts];
  void *forward, *backward;   // the step of a row
  const void* mask;           // null, or the factors of its dropouts, [rows, num_masked]
  const void* learned;        // what it learns, [num_learned]
  void* d_learned;            // [threads, num_learned]
  int64_t num_scratch, num_masked, num_learned;
};

struct Problem {
  int64_t num_rows, num_leaves, num_given, num_levels, num_arities, num_states, num_threads, hidden_size, num_features;
  const int64_t* segments;            // [segments, 5]: begin, end, kind, arity, first child
  const int64_t* segments_of_level;   // [levels], from the lowest up
  const int64_t* child;               // [edges]
  void* gemm;
  Arity* arities;
  int64_t widths[kMostStates];
  void* states[kMostStates];          // [rows, width]
  const void* features[2];            // of the leaf rows and of the inner rows; null if there are none
};

struct Gradients {
  const void* states[kMostStates];    // incoming, [rows, width], or null
  void* given[kMostStates];           // of the leaf rows that no segment has, [given, width]; null if unwanted
  void* features[2];                  // null if unwanted
  void *rows, *spilled;               // [as planned, sum of widths]
};
}

namespace {

// Rows of one segment that a thread takes at once.
struct Tile {
  const Arity* of;
  int64_t kind, row, edge, place, rows;
};

struct Segment {
  const Arity* of;
  int64_t begin, end, kind, edge, place;
  int64_t cost() const { return std::max<int64_t>(1, of->arity); }
};

struct Level {
  std::vector<Segment> segments;
  int64_t cost = 0;
};

// Who takes which rows when, and where products and gradients are.
class Plan {
 public:
  explicit Plan(const Problem& p) : num_threads(p.num_threads), p(p) {
    find_levels();
    std::vector<int64_t> numbers(p.num_arities);
    for (int64_t at = 0; at < p.num_arities; ++at)
      for (int64_t i = 0; i < p.arities[at].num_products; ++i) {
        const Product& each = p.arities[at].products[i];
        numbers[at] += each.copies * (each.outputs + each.inputs + each.features);
      }
    int64_t most = 1;
    for (int64_t of_row : numbers) most = std::max(most, of_row);
    const int64_t tile = std::min(std::max(kTileNumbers / most, kLeastTile), kMostTile);
    for (int64_t of_row : numbers) tiles.push_back(bounded(tile, of_row));
  }

  // Calls run(tile) for each tile of a thread's share of a level.
  template <class Run>
  void for_tiles(const Level& level, int64_t thread, Run run) const {
    const int64_t begin = level.cost * thread / num_threads, end = level.cost * (thread + 1) / num_threads;
    int64_t cost = 0;
    for (const Segment& s : level.segments) {
      const int64_t of_row = s.cost(), size = s.end - s.begin, tile = tiles[s.of - p.arities];
      auto row_at = [&](int64_t share) {
        return share <= cost ? 0 : std::min(size, (share - cost + of_row - 1) / of_row);
      };
      const int64_t last = row_at(end);
      for (int64_t row = row_at(begin); row < last; row += tile)
        run(Tile{s.of, s.kind, s.begin + row, s.edge + row * s.of->arity, s.place + row, std::min(tile, last - row)});
      cost += size * of_row;
    }
  }

  // Finds where the gradients of rows are in the backward pass.
  void plan_gradients() {
    const size_t num_rows = static_cast<size_t>(p.num_rows);
    size_t num_edges = 0;
    for (const Level& level : levels)
      for (const Segment& s : level.segments)
        num_edges = std::max(num_edges, static_cast<size_t>(s.edge + (s.end - s.begin) * s.of->arity));
    slot.assign(num_rows, -1), is_root.assign(num_rows, 0);
    is_first.assign(num_edges, 0), spill.assign(num_edges, -1);
    std::vector<int64_t> free, met(num_rows, -1), owner(num_rows, 0);
    auto take = [&] {
      if (free.empty()) return num_slots++;
      const int64_t found = free.back();
      free.pop_back();
      return found;
    };
    for (int64_t at = static_cast<int64_t>(levels.size()) - 1; at >= 0; --at) {
      int64_t spills = 0;
      for (int64_t thread = 0; thread < num_threads; ++thread)
        for_tiles(levels[at], thread, [&](const Tile& t) {
          for (int64_t row = t.row; row < t.row + t.rows; ++row)
            if (slot[row] < 0) slot[row] = take(), is_root[row] = 1;
          for (int64_t edge = t.edge; edge < t.edge + t.rows * t.of->arity; ++edge) {
            const int64_t row = p.child[edge];
            if (met[row] == at && owner[row] != thread) {
              spill[edge] = spills++;
              continue;
            }
            met[row] = at, owner[row] = thread;
            if (!is_given(row) && slot[row] < 0) slot[row] = take(), is_first[edge] = 1;
          }
        });
      for (const Segment& s : levels[at].segments)
        for (int64_t row = s.begin; row < s.end; ++row) free.push_back(slot[row]);
      spills_of_level.push_back(spills);
      num_spills = std::max(num_spills, spills);
    }
    std::reverse(spills_of_level.begin(), spills_of_level.end());
  }

  // Whether a row is a leaf that no segment has.
  bool is_given(int64_t row) const { return row < p.num_leaves && row >= p.num_leaves - p.num_given; }

  std::vector<Level> levels;
  std::vector<int64_t> tiles;          // rows of a tile, by arity
  int64_t num_threads;
  int64_t num_slots = 0, num_spills = 0;
  std::vector<int64_t> slot;           // by row
  std::vector<uint8_t> is_root;        // by row: no parent has added to its gradient
  std::vector<uint8_t> is_first;       // by edge: it is the first to add to the child's gradient
  std::vector<int64_t> spill;          // by edge; -1 if it adds to the child's gradient itself
  std::vector<int64_t> spills_of_level;

 private:
  void find_levels() {
    std::map<std::pair<const Arity*, int64_t>, int64_t> place;  // first the number of rows of each kind
    const int64_t* given = p.segments;
    for (int64_t at = 0; at < p.num_levels; ++at) {
      Level level;
      for (int64_t i = 0; i < p.segments_of_level[at]; ++i, given += 5) {
        const Arity* of = p.arities;
        while (of->arity != given[3]) ++of;
        level.segments.push_back({of, given[0], given[1], given[2], given[4], 0});
        level.cost += (given[1] - given[0]) * level.segments.back().cost();
        place[{of, given[2]}] += given[1] - given[0];
      }
      levels.push_back(std::move(level));
    }
    const Arity* of = nullptr;
    int64_t begin = 0;
    for (auto& [key, value] : place) {
      if (key.first != of) of = key.first, begin = 0;
      std::swap(begin, value), begin += value;
    }
    for (Level& level : levels)
      for (Segment& s : level.segments) {
        int64_t& next = place[{s.of, s.kind}];
        s.place = next, next += s.end - s.begin;
      }
  }

  const Problem& p;
};

template <typename T>
class LevelRun {
 public:
  explicit LevelRun(const Problem& problem)
      : p(problem), plan(p), D(p.hidden_size), gemm(reinterpret_cast<Gemm<T>>(p.gemm)) {
    for (int64_t at = 0; at < p.num_states; ++at) offsets[at] = width, width += p.widths[at];
  }

  void forward() {
    on_threads(plan.num_threads, [&](Errors& errors) {
      Memory memory;
      for (const Level& level : plan.levels) {
        errors.run([&] {
          for_shares([&](int64_t share) { plan.for_tiles(level, share, [&](const Tile& tile) { forward(tile, memory); }); });
        });
#pragma omp barrier
      }
    });
  }

  void backward(const Gradients& g) {
    d = g;
    const std::vector<Task> tasks = weight_tasks();
    on_threads(plan.num_threads, [&](Errors& errors) {
      Memory memory;
      for (int64_t at = static_cast<int64_t>(plan.levels.size()) - 1; at >= 0; --at) {
        const Level& level = plan.levels[at];
        errors.run([&] {
          for_shares([&](int64_t share) {
            memory.share = share;
            plan.for_tiles(level, share, [&](const Tile& tile) { backward(tile, memory); });
          });
        });
#pragma omp barrier
        if (plan.spills_of_level[at]) {
          errors.run([&] { for_shares([&](int64_t share) { add_spilled(level, share); }); });
#pragma omp barrier
        }
      }
#pragma omp for schedule(dynamic)
      for (size_t at = 0; at < tasks.size(); ++at)
        errors.run([&] {
          for (const Use& use : tasks[at].uses) add_weight_gradient(tasks[at], use, memory);
        });
    });
  }

  Plan& planned() { return plan; }

 private:
  // Calls run(share) for the shares of this thread: its own, and more if there are fewer threads than asked for.
  template <class Run>
  void for_shares(Run run) const {
    for (int64_t share = omp_get_thread_num(); share < plan.num_threads; share += omp_get_num_threads()) run(share);
  }

  // What a thread needs for a tile; it grows with the tiles that the thread takes.
  struct Memory {
    GrowingBuffer<T> inputs, scratch, sink, values[kMostProducts];
    std::vector<T*> children[kMostStates], d_children[kMostStates];
    Row<T> row{};
    int64_t share = 0;
  };

  using Step = void (*)(const Row<T>*, int64_t);

  // A product of an arity.
  using Use = std::pair<const Arity*, const Product*>;

  // The gradient of one set of weights: some of its outputs. Arities may share weights.
  struct Task {
    std::vector<Use> uses;
    int64_t set, begin, end;
  };

  static T* row_of(void* values, int64_t at, int64_t width) { return static_cast<T*>(values) + at * width; }
  static const T* row_of(const void* values, int64_t at, int64_t width) { return static_cast<const T*>(values) + at * width; }

  T* values_of(const Product& each, const Tile& t, int64_t i, Memory& memory) const {
    return each.values ? row_of(each.values, t.place * each.copies, each.outputs) : memory.values[i].get();
  }

  static int64_t set_of(const Product& each, int64_t kind) { return each.set_of_kind ? each.set_of_kind[kind] : 0; }

  const T* features_of(const Arity& of, int64_t at, int64_t count) const {
    return of.arity ? row_of(p.features[1], at - p.num_leaves, count) : row_of(p.features[0], at, count);
  }

  // Calls visit(copy, column, child, state, offset) for each part of the inputs of a row; a part has D numbers.
  template <class Visit>
  void for_parts(const Product& each, int64_t arity, Visit visit) const {
    for (int64_t k = 0; k < arity; ++k) switch (each.source) {
        case kInOrder: visit(0, k * D, k, 0, 0); break;
        case kInOrderWithTops: visit(0, k * D, k, 0, 0), visit(0, (arity + k) * D, k, 1, 0); break;
        case kSum: visit(0, 0, k, 0, 0); break;
        case kEachChild: visit(k, 0, k, 0, 0); break;
        case kStackRows:
          for (int64_t i = 0; i * D < p.widths[1]; ++i) visit(i, k * D, k, 1, i * D);
      }
  }

  // Writes what a row of the schedule multiplies; `place` is its place among the rows of its arity.
  void gather(const Arity& of, const Product& each, int64_t at, int64_t edge, int64_t place, T* to) const {
    const int64_t stride = each.inputs + each.features;
    const size_t bytes = static_cast<size_t>(D) * sizeof(T);
    if (each.source == kStackRows && each.copies * D > p.widths[1])  // zeros follow the last row
      std::fill_n(to + p.widths[1] / D * stride, each.inputs, T(0));
    if (each.source == kHiddenLayer)
      std::memcpy(to, row_of(of.products[each.from].values, place, each.inputs), static_cast<size_t>(each.inputs) * sizeof(T));
    for_parts(each, of.arity, [&](int64_t copy, int64_t column, int64_t k, int64_t state, int64_t offset) {
      T* part = to + copy * stride + column;
      const T* from = row_of(p.states[state], p.child[edge + k], p.widths[state]) + offset;
      if (k && each.source == kSum) add(part, from, D);
      else std::memcpy(part, from, bytes);
    });
    if (each.features)
      for (int64_t copy = 0; copy < each.copies; ++copy)
        std::memcpy(to + copy * stride + each.inputs, features_of(of, at, each.features),
                    static_cast<size_t>(each.features) * sizeof(T));
    if (each.mask) multiply(to, row_of(each.mask, place * each.copies, stride), each.copies * stride);
  }

  void gather_printed(const Tile& t, int64_t i, const Product& each, Memory& memory, T* to) const {
    set_row(t, i, memory);
    memory.row.scratch = memory.scratch.at_least(each.num_scratch);
    memory.row.inputs = to;
    reinterpret_cast<Step>(each.gather)(&memory.row, D);
  }

  static void multiply(T* to, const T* by, int64_t count) {
    SIMD
    for (int64_t i = 0; i < count; ++i) to[i] *= by[i];
  }

  // Whether the inputs of neighbouring rows lie ready: the features of leaves.
  static bool lie_ready(const Arity& of, const Product& each) { return !of.arity && !each.mask && !each.inputs; }

  // What the rows of a tile multiply.
  const T* inputs_of(const Tile& t, const Product& each, Memory& memory) const {
    const Arity& of = *t.of;
    if (lie_ready(of, each)) return each.features ? features_of(of, t.row, each.features) : nullptr;
    if (each.source == kHiddenLayer && !each.mask) return values_of(of.products[each.from], t, each.from, memory);
    const int64_t size = each.copies * (each.inputs + each.features);
    T* found = memory.inputs.at_least(t.rows * size);
    for (int64_t i = 0; i < t.rows; ++i) {
      T* to = found + i * size;
      if (each.source == kPrinted) {
        gather_printed(t, i, each, memory, to);
      } else if (each.source == kHiddenLayer) {  // whose product may be in memory for a tile only
        std::memcpy(to, values_of(of.products[each.from], t, each.from, memory) + i * size, static_cast<size_t>(size) * sizeof(T));
        multiply(to, row_of(each.mask, t.place + i, size), size);
      } else {
        gather(of, each, t.row + i, t.edge + i * of.arity, t.place + i, to);
      }
    }
    return found;
  }

  void forward(const Tile& t, Memory& memory) const {
    const Arity& of = *t.of;
    for (int64_t i = 0; i < of.num_products; ++i) {
      const Product& each = of.products[i];
      const int64_t set = set_of(each, t.kind), inputs = each.inputs + each.features, rows = t.rows * each.copies;
      if (!each.values) memory.values[i].at_least(rows * each.outputs);
      T* values = values_of(each, t, i, memory);
      if (each.source == kHiddenLayer) rectify(values_of(of.products[each.from], t, each.from, memory), t.rows * each.inputs);
      fill_rows(values, rows, each.outputs, row_of(each.bias, set, each.outputs));
      if (inputs)
        product(gemm, rows, each.outputs, inputs, inputs_of(t, each, memory), inputs,
                row_of(each.weight, set, each.outputs * inputs), inputs, values, each.outputs, true);
    }
    for (int64_t i = 0; i < t.rows; ++i) {
      set_row(t, i, memory);
      reinterpret_cast<Step>(of.forward)(&memory.row, D);
    }
  }

  static void rectify(T* values, int64_t count) {
    SIMD
    for (int64_t i = 0; i < count; ++i) values[i] = values[i] < T(0) ? T(0) : values[i];
  }

  template <class Vector>
  static void make_room(Vector& vector, int64_t size) {
    if (static_cast<int64_t>(vector.size()) < size) vector.resize(size);
  }

  // The i-th row of a tile.
  void set_row(const Tile& t, int64_t i, Memory& memory) const {
    Row<T>& row = memory.row;
    const Arity& of = *t.of;
    row.scratch = memory.scratch.at_least(of.num_scratch);
    for (int64_t at = 0; at < of.num_products; ++at)
      row.products[at] = values_of(of.products[at], t, at, memory) + i * of.products[at].copies * of.products[at].outputs;
    if (of.arity && p.features[1]) row.features = const_cast<T*>(features_of(of, t.row + i, p.num_features));
    row.mask = of.mask ? const_cast<T*>(row_of(of.mask, t.place + i, of.num_masked)) : nullptr;
    row.learned = static_cast<T*>(const_cast<void*>(of.learned));
    for (int64_t state = 0; state < p.num_states; ++state) {
      make_room(memory.children[state], of.arity);
      row.states[state] = row_of(p.states[state], t.row + i, p.widths[state]);
      row.children[state] = memory.children[state].data();
      for (int64_t k = 0; k < of.arity; ++k)
        memory.children[state][k] = row_of(p.states[state], p.child[t.edge + i * of.arity + k], p.widths[state]);
    }
  }

  // Where the gradient of a state is in the gradients of a row.
  int64_t offset_of(int64_t state) const { return offsets[state]; }

  T* own_gradient(int64_t at, int64_t state) const { return row_of(d.rows, plan.slot[at], width) + offset_of(state); }

  // Where the gradient of a child's state is; null if nobody wants it.
  T* child_gradient(int64_t edge, int64_t state) const {
    const int64_t at = p.child[edge];
    const bool given = plan.is_given(at);
    if (given && !d.given[state]) return nullptr;
    if (plan.spill[edge] >= 0) return row_of(d.spilled, plan.spill[edge], width) + offset_of(state);
    return given ? row_of(d.given[state], at - (p.num_leaves - p.num_given), p.widths[state]) : own_gradient(at, state);
  }

  // Begins the gradient of a row with what comes from outside.
  void begin_gradient(int64_t at) const {
    for (int64_t state = 0; state < p.num_states; ++state) {
      T* to = own_gradient(at, state);
      if (d.states[state]) std::copy_n(row_of(d.states[state], at, p.widths[state]), p.widths[state], to);
      else std::fill_n(to, p.widths[state], T(0));
    }
  }

  void set_gradients(const Tile& t, int64_t i, Memory& memory) const {
    Row<T>& row = memory.row;
    row.d_learned = row_of(t.of->d_learned, memory.share, t.of->num_learned);
    for (int64_t at = 0; at < t.of->num_products; ++at) {
      const Product& each = t.of->products[at];
      row.d_products[at] = gradient_of(each) + (t.place + i) * each.copies * each.outputs;
    }
    T* d_features = static_cast<T*>(d.features[1]);
    row.d_features = t.of->arity && d_features ? d_features + (t.row + i - p.num_leaves) * p.num_features : memory.sink.at_least(width + p.num_features);
    for (int64_t state = 0; state < p.num_states; ++state) {
      make_room(memory.d_children[state], t.of->arity);
      row.d_states[state] = own_gradient(t.row + i, state), row.d_children[state] = memory.d_children[state].data();
    }
    for (int64_t k = 0; k < t.of->arity; ++k) {
      const int64_t edge = t.edge + i * t.of->arity + k;
      for (int64_t state = 0; state < p.num_states; ++state) {
        T* to = child_gradient(edge, state);
        memory.d_children[state][k] = to ? to : memory.sink.at_least(width + p.num_features);
      }
    }
  }

  // Begins the gradients of a row that nobody has added to, and of those of its children that it adds to first.
  void begin_gradients(const Tile& t, int64_t i) const {
    if (plan.is_root[t.row + i]) begin_gradient(t.row + i);
    for (int64_t edge = t.edge + i * t.of->arity; edge < t.edge + (i + 1) * t.of->arity; ++edge) {
      if (plan.spill[edge] >= 0) std::fill_n(row_of(d.spilled, plan.spill[edge], width), width, T(0));
      else if (plan.is_first[edge]) begin_gradient(p.child[edge]);
    }
  }

  void backward(const Tile& t, Memory& memory) const {
    const Arity& of = *t.of;
    for (int64_t i = 0; i < t.rows; ++i) {
      set_row(t, i, memory);
      begin_gradients(t, i);
      set_gradients(t, i, memory);
      reinterpret_cast<Step>(of.backward)(&memory.row, D);
    }
    for (int64_t i = of.num_products - 1; i >= 0; --i) spread(t, of.products[i], memory);
  }

  // Where the gradient of a product is: in place of the product, unless that is still needed.
  static T* gradient_of(const Product& each) { return static_cast<T*>(each.gradient ? each.gradient : each.values); }

  // Adds the gradient of what a product multiplied to that of the children and features.
  void spread(const Tile& t, const Product& each, Memory& memory) const {
    const Arity& of = *t.of;
    T* d_features = static_cast<T*>(d.features[of.arity ? 1 : 0]);
    const int64_t all = each.inputs + each.features, wanted = d_features ? all : each.inputs;
    if (!wanted) return;
    const int64_t rows = t.rows * each.copies;
    T* found = memory.inputs.at_least(rows * wanted);
    const T* gradient = gradient_of(each) + t.place * each.copies * each.outputs;
    const T* weight = row_of(each.weight, set_of(each, t.kind), each.outputs * all);
    if (rows <= kFewRows) few_rows_product_plain(rows, wanted, each.outputs, gradient, weight, all, found);
    else product_plain(gemm, rows, wanted, each.outputs, gradient, each.outputs, weight, all, found, wanted);
    if (each.mask)
      for (int64_t i = 0; i < t.rows * each.copies; ++i)
        multiply(found + i * wanted, row_of(each.mask, t.place * each.copies + i, all), wanted);
    if (each.source == kHiddenLayer) {
      const Product& read = of.products[each.from];
      const T* value = row_of(read.values, t.place, read.outputs);
      T* to = row_of(read.gradient, t.place, read.outputs);
      SIMD
      for (int64_t i = 0; i < t.rows * wanted; ++i) to[i] = value[i] > T(0) ? found[i] : T(0);
      return;
    }
    if (each.source == kPrinted) {
      for (int64_t i = 0; i < t.rows; ++i, found += each.copies * wanted) {
        set_row(t, i, memory);
        set_gradients(t, i, memory);
        memory.row.scratch = memory.scratch.at_least(each.num_scratch);
        memory.row.d_inputs = found;
        reinterpret_cast<Step>(each.spread)(&memory.row, D);
      }
      return;
    }
    for (int64_t i = 0; i < t.rows; ++i, found += each.copies * wanted) {
      for_parts(each, of.arity, [&](int64_t copy, int64_t column, int64_t k, int64_t state, int64_t offset) {
        T* to = child_gradient(t.edge + i * of.arity + k, state);
        if (to) add(to + offset, found + copy * wanted + column, D);
      });
      if (wanted == each.inputs) continue;
      T* to = d_features + (t.row + i - (of.arity ? p.num_leaves : 0)) * each.features;
      for (int64_t copy = 0; copy < each.copies; ++copy) add(to, found + copy * wanted + each.inputs, each.features);
    }
  }

  // Adds what this thread's part of the children got from other threads than their first.
  void add_spilled(const Level& level, int64_t thread) const {
    for (const Segment& s : level.segments)
      for (int64_t edge = s.edge; edge < s.edge + (s.end - s.begin) * s.of->arity; ++edge) {
        const int64_t at = p.child[edge], spill = plan.spill[edge];
        if (spill < 0 || at % plan.num_threads != thread) continue;
        for (int64_t state = 0; state < p.num_states; ++state) {
          const T* from = row_of(d.spilled, spill, width) + offset_of(state);
          if (!plan.is_given(at)) add(own_gradient(at, state), from, p.widths[state]);
          else if (d.given[state]) add(row_of(d.given[state], at - (p.num_leaves - p.num_given), p.widths[state]), from, p.widths[state]);
        }
      }
  }

  // One for each set of weights that is used, or several for those that take longest.
  std::vector<Task> weight_tasks() const {
    struct Found {
      std::vector<Use> uses;
      int64_t cost = 0;
    };
    std::map<std::pair<const void*, int64_t>, Found> of_weights;
    int64_t total = 0;
    for (const Level& level : plan.levels)
      for (const Segment& s : level.segments)
        for (int64_t i = 0; i < s.of->num_products; ++i) {
          const Product& each = s.of->products[i];
          if (!each.d_bias) continue;
          const int64_t own = (s.end - s.begin) * each.copies * each.outputs * (each.inputs + each.features + 1);
          Found& found = of_weights[{each.d_bias, set_of(each, s.kind)}];
          found.cost += own, total += own;
          const Use use{s.of, &each};
          if (std::find(found.uses.begin(), found.uses.end(), use) == found.uses.end()) found.uses.push_back(use);
        }
    std::vector<Task> tasks;
    for (const auto& [key, found] : of_weights) {
      const int64_t parts = std::min(plan.num_threads, (2 * plan.num_threads * found.cost + total - 1) / total);
      const int64_t outputs = found.uses[0].second->outputs;
      for (int64_t part = 0; part < parts; ++part)
        tasks.push_back({found.uses, key.second, outputs * part / parts, outputs * (part + 1) / parts});
    }
    return tasks;
  }

  void add_weight_gradient(const Task& task, const Use& use, Memory& memory) const {
    const auto& [of, product] = use;
    const Product& each = *product;
    const int64_t inputs = each.inputs + each.features, count = task.end - task.begin;
    T* d_weight = row_of(each.d_weight, task.set * each.outputs + task.begin, inputs);
    T* d_bias = row_of(each.d_bias, task.set, each.outputs) + task.begin;
    const bool ready = lie_ready(*of, each);
    const int64_t chunk = bounded(kChunk, each.copies * inputs);
    T* to = ready ? nullptr : memory.inputs.at_least(std::min(chunk, of->rows) * each.copies * inputs);
    const T* gathered = to;
    int64_t first = 0, rows = 0;
    auto finish = [&] {
      const T* from = gradient_of(each) + first * each.copies * each.outputs + task.begin;
      for (int64_t i = 0; i < rows * each.copies; ++i) add(d_bias, from + i * each.outputs, count);
      if (inputs)
        outer(gemm, count, inputs, rows * each.copies, from, each.outputs, gathered, inputs, d_weight, inputs);
      rows = 0;
    };
    // The rows of a kind have places one after the other, level by level.
    std::map<int64_t, std::vector<const Segment*>> by_kind;
    for (const Level& level : plan.levels)
      for (const Segment& s : level.segments)
        if (s.of == of && set_of(each, s.kind) == task.set) by_kind[s.kind].push_back(&s);
    for (const auto& [kind, segments] : by_kind) {
      for (const Segment* s : segments)
        for (int64_t begin = s->begin; begin < s->end;) {
          const int64_t place = s->place + begin - s->begin, edge = s->edge + (begin - s->begin) * s->of->arity;
          const int64_t taken = std::min(s->end - begin, chunk - rows);
          if (!rows) first = place;
          if (ready && each.features) gathered = features_of(*of, begin, each.features);
          for (int64_t i = 0; i < taken && each.source == kPrinted; ++i)
            gather_printed({s->of, kind, begin, edge, place, taken}, i, each, memory, to + (rows + i) * each.copies * inputs);
          for (int64_t i = 0; i < taken && !ready && each.source != kPrinted; ++i)
            gather(*of, each, begin + i, edge + i * of->arity, place + i, to + (rows + i) * each.copies * inputs);
          rows += taken, begin += taken;
          if (rows == chunk || ready) finish();
        }
      if (rows) finish();
    }
  }

  const Problem p;
  Plan plan;
  const int64_t D;
  const Gemm<T> gemm;
  int64_t width = 0, offsets[kMostStates];
  Gradients d{};
};

}  // namespace

extern "C" {
const char* sizes(int64_t* found) {
  const int64_t own[] = {sizeof(Product), sizeof(Arity), sizeof(Problem), sizeof(Gradients)};
  std::copy(std::begin(own), std::end(own), found);
  return nullptr;
}
const char* forward(const Problem* problem) {
  return error_of([&] { LevelRun<REAL>(*problem).forward(); });
}
const char* begin_backward(const Problem* problem, int64_t* rows, int64_t* spilled, void** begun) {
  return error_of([&] {
    auto run = std::make_unique<LevelRun<REAL>>(*problem);
    run->planned().plan_gradients();
    *rows = run->planned().num_slots, *spilled = run->planned().num_spills;
    *begun = run.release();
  });
}
const char* backward(void* begun, const Gradients* gradients) {
  return error_of([&] { static_cast<LevelRun<REAL>*>(begun)->backward(*gradients); });
}
const char* end_backward(void* begun) {
  return error_of([&] { delete static_cast<LevelRun<REAL>*>(begun); });
}
}
