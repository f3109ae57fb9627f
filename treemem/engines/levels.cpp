// A cell over the levels of a schedule, forward and backward.
//
// A cell multiplies what it gathers from the children of a row (products), and then takes a pointwise step. The step of
// one row is printed from the cell's formula, for each arity (step.h); this file does the rest:
// - A segment has rows of one level, arity and kind. A level is divided among the threads by rows. A thread takes its
//   rows in tiles that stay in its cache: it gathers, multiplies and steps, and waits only at the end of a level.
// - If inner rows have features by their label, a table has what these add to products, and its gradient; rows read it.
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
#include "numerics.h"
#include "step.h"

namespace {

using T = REAL;

constexpr int64_t kTileNumbers = 1 << 17, kLeastTile = 32, kMostTile = 512;
constexpr int64_t kChunk = 512;  // rows gathered at once for the gradient of weights
constexpr int64_t kMostNumbers = 1 << 23;  // of rows taken at once: a row may have a million children

// How many rows of so many numbers are taken at once.
inline int64_t bounded(int64_t rows, int64_t numbers) {
  return std::min(rows, std::max<int64_t>(1, kMostNumbers / std::max<int64_t>(1, numbers)));
}

}  // namespace

// Declared in native.py of the engines, with the fields' meaning.
struct Product { PRODUCT };
struct Arity { ARITY };
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

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
        numbers[at] += each.copies * (each.outputs + each.inputs);
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
    Buffer<T> inputs, scratch, sink, values[kMostProducts];
    std::vector<T*> children[kMostStates], d_children[kMostStates];  // of the edges of the tile
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

  static T* row_of(T* values, int64_t at, int64_t width) { return values + at * width; }

  T* values_of(const Product& each, const Tile& t, int64_t i, Memory& memory) const {
    return each.values ? row_of(each.values, t.place * each.copies, each.outputs) : memory.values[i].get();
  }

  static int64_t set_of(const Product& each, int64_t kind) { return each.set_of_kind ? each.set_of_kind[kind] : 0; }

  // The features of a row, or their gradient; null if there are none.
  T* features_of(const Arity& of, int64_t at, T* const* features) const {
    const int64_t is_inner = of.arity > 0;
    T* const found = features[is_inner];
    if (!found) return nullptr;
    return row_of(found, is_inner && p.label ? label_of(at) : at - is_inner * p.num_leaves, p.num_features[is_inner]);
  }

  // How many inputs rows multiply themselves.
  static int64_t own_inputs(const Product& each) { return each.of_labels ? each.from_below : each.inputs; }

  // The place of a set and a label among rows of labels.
  int64_t of_label(const Product& each, int64_t set, int64_t label) const {
    return (set * p.num_labels + label) * each.copies * each.outputs;
  }

  int64_t label_of(int64_t row) const { return p.label[row - p.num_leaves]; }

  // Writes what the rows of a tile multiply.
  void gather(const Tile& t, const Product& each, Memory& memory, T* to) const {
    for (int64_t i = 0; i < t.rows; ++i, to += each.copies * each.inputs) {
      set_row(t, i, memory);
      memory.row.inputs = to;
      reinterpret_cast<Step>(each.gather)(&memory.row, D);
    }
  }

  void forward(const Tile& t, Memory& memory) const {
    const Arity& of = *t.of;
    begin_tile(t, memory);
    for (int64_t i = 0; i < of.num_products; ++i) {
      const Product& each = of.products[i];
      const int64_t set = set_of(each, t.kind), rows = t.rows * each.copies;
      if (!each.values) memory.values[i].at_least(rows * each.outputs);
      T* values = values_of(each, t, i, memory);
      if (each.of_labels)
        for (int64_t row = 0, count = each.copies * each.outputs; row < t.rows; ++row)
          std::copy_n(each.of_labels + of_label(each, set, label_of(t.row + row)), count, values + row * count);
      else fill_rows(values, rows, each.outputs, row_of(each.bias, set, each.outputs));
      const int64_t own = own_inputs(each);
      if (!own) continue;
      T* inputs = memory.inputs.at_least(rows * each.inputs);
      gather(t, each, memory, inputs);
      product(gemm, rows, each.outputs, own, inputs, each.inputs, row_of(each.weight, set, each.outputs * each.inputs),
              each.inputs, values, each.outputs, true);
    }
    for (int64_t i = 0; i < t.rows; ++i) {
      set_row(t, i, memory);
      reinterpret_cast<Step>(of.forward)(&memory.row, D);
    }
  }

  // Finds the children of a tile, before its rows are set.
  void begin_tile(const Tile& t, Memory& memory) const {
    const int64_t edges = t.rows * t.of->arity;
    memory.row.scratch = memory.scratch.at_least(t.of->num_scratch);
    for (int64_t state = 0; state < p.num_states; ++state) {
      memory.children[state].resize(edges);
      for (int64_t k = 0; k < edges; ++k)
        memory.children[state][k] = row_of(p.states[state], p.child[t.edge + k], p.widths[state]);
    }
  }

  // The i-th row of a tile.
  void set_row(const Tile& t, int64_t i, Memory& memory) const {
    Row<T>& row = memory.row;
    const Arity& of = *t.of;
    for (int64_t at = 0; at < of.num_products; ++at)
      row.products[at] = values_of(of.products[at], t, at, memory) + i * of.products[at].copies * of.products[at].outputs;
    row.features = features_of(of, t.row + i, p.features);
    row.mask = of.mask ? row_of(of.mask, t.place + i, of.num_masked) : nullptr;
    row.learned = of.learned;
    for (int64_t state = 0; state < p.num_states; ++state) {
      row.states[state] = row_of(p.states[state], t.row + i, p.widths[state]);
      row.children[state] = memory.children[state].data() + i * of.arity;
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

  // Finds the gradients of the children of a tile, before those of its rows are set.
  void begin_gradients_of_tile(const Tile& t, Memory& memory) const {
    T* const sink = memory.sink.at_least(width + std::max(p.num_features[0], p.num_features[1]));
    const int64_t edges = t.rows * t.of->arity;
    for (int64_t state = 0; state < p.num_states; ++state) {
      memory.d_children[state].resize(edges);
      for (int64_t k = 0; k < edges; ++k) {
        T* to = child_gradient(t.edge + k, state);
        memory.d_children[state][k] = to ? to : sink;
      }
    }
  }

  void set_gradients(const Tile& t, int64_t i, Memory& memory) const {
    Row<T>& row = memory.row;
    row.d_learned = row_of(t.of->d_learned, memory.share, t.of->num_learned);
    for (int64_t at = 0; at < t.of->num_products; ++at) {
      const Product& each = t.of->products[at];
      row.d_products[at] = gradient_of(each) + (t.place + i) * each.copies * each.outputs;
    }
    T* d_features = t.of->arity && p.label ? nullptr : features_of(*t.of, t.row + i, d.features);
    row.d_features = d_features ? d_features : memory.sink.get();
    for (int64_t state = 0; state < p.num_states; ++state) {
      row.d_states[state] = own_gradient(t.row + i, state);
      row.d_children[state] = memory.d_children[state].data() + i * t.of->arity;
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
    begin_tile(t, memory);
    begin_gradients_of_tile(t, memory);
    for (int64_t i = 0; i < t.rows; ++i) {
      set_row(t, i, memory);
      begin_gradients(t, i);
      set_gradients(t, i, memory);
      reinterpret_cast<Step>(of.backward)(&memory.row, D);
    }
    for (int64_t i = of.num_products - 1; i >= 0; --i) spread(t, of.products[i], memory);
  }

  // Where the gradient of a product is: in place of the product, unless that is still needed.
  static T* gradient_of(const Product& each) { return each.gradient ? each.gradient : each.values; }

  // Adds the gradient of what a product multiplied to that of the children, features and other products.
  void spread(const Tile& t, const Product& each, Memory& memory) const {
    const int64_t wanted = d.features[t.of->arity > 0] ? own_inputs(each) : each.from_below;
    if (!wanted) return;
    const int64_t rows = t.rows * each.copies;
    T* found = memory.inputs.at_least(rows * each.inputs);
    const T* gradient = gradient_of(each) + t.place * each.copies * each.outputs;
    const T* weight = row_of(each.weight, set_of(each, t.kind), each.outputs * each.inputs);
    product_plain(gemm, rows, wanted, each.outputs, gradient, each.outputs, weight, each.inputs, found, each.inputs);
    for (int64_t i = 0; i < t.rows; ++i, found += each.copies * each.inputs) {
      set_row(t, i, memory);
      set_gradients(t, i, memory);
      memory.row.d_inputs = found;
      reinterpret_cast<Step>(each.spread)(&memory.row, D);
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
          const int64_t own = (s.end - s.begin) * each.copies * each.outputs * (each.inputs + 1);
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
    const int64_t inputs = each.inputs, own = own_inputs(each), count = task.end - task.begin;
    T* d_weight = row_of(each.d_weight, task.set * each.outputs + task.begin, inputs);
    T* d_bias = row_of(each.d_bias, task.set, each.outputs) + task.begin;
    const int64_t chunk = bounded(kChunk, each.copies * inputs);
    T* gathered = memory.inputs.at_least(std::min(chunk, of->rows) * each.copies * inputs);
    int64_t first = 0, rows = 0;
    auto finish = [&] {
      const T* from = gradient_of(each) + first * each.copies * each.outputs + task.begin;
      if (!each.d_of_labels)
        for (int64_t i = 0; i < rows * each.copies; ++i) add(d_bias, from + i * each.outputs, count);
      if (own) outer(gemm, count, own, rows * each.copies, from, each.outputs, gathered, inputs, d_weight, inputs);
      rows = 0;
    };
    auto add_of_labels = [&](const Tile& t) {
      const T* from = gradient_of(each) + t.place * each.copies * each.outputs + task.begin;
      for (int64_t row = 0; row < t.rows; ++row) {
        T* to = each.d_of_labels + of_label(each, task.set, label_of(t.row + row)) + task.begin;
        for (int64_t copy = 0; copy < each.copies; ++copy, to += each.outputs, from += each.outputs) add(to, from, count);
      }
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
          const Tile tile{s->of, kind, begin, edge, place, taken};
          if (each.d_of_labels) add_of_labels(tile);
          begin_tile(tile, memory);
          if (own) gather(tile, each, memory, gathered + rows * each.copies * inputs);
          rows += taken, begin += taken;
          if (rows == chunk) finish();
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
const char* forward(const Problem* problem) {
  return error_of([&] { LevelRun(*problem).forward(); });
}
const char* begin_backward(const Problem* problem, int64_t* rows, int64_t* spilled, void** begun) {
  return error_of([&] {
    auto run = std::make_unique<LevelRun>(*problem);
    run->planned().plan_gradients();
    *rows = run->planned().num_slots, *spilled = run->planned().num_spills;
    *begun = run.release();
  });
}
const char* backward(void* begun, const Gradients* gradients) {
  return error_of([&] { static_cast<LevelRun*>(begun)->backward(*gradients); });
}
const char* end_backward(void* begun) {
  return error_of([&] { delete static_cast<LevelRun*>(begun); });
}
}
