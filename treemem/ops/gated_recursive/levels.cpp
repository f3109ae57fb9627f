// A gated recursive cell of two children over the levels of binary trees, forward and backward; the equations are those of
// cell.py. A call runs some levels that follow each other; the gradients of the weights come last, of all inner nodes.
//
// A level is run in tiles of rows that stay in the cache. The gradients of children are added after a level, each thread
// its own columns, because a row may be the child of several.
//
// Without it one thread trains EBT-GRC 1.4 times as long with 32 units and 1.2 times with 128 (32 sequences of 10 to 30
// vectors, 3 beams), BT-GRC 1.4 times with 64.
//
// Matrices are row by row.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "errors.h"
#include "gated_step.h"
#include "numerics.h"
#include "packed.h"

// Both are declared in nodes.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

constexpr int64_t kLevelRows = 64;
constexpr int64_t kChunk = 512;  // rows at a time for the gradient of weights

class Run {
 public:
  explicit Run(const Problem& p) : p(p), D(p.hidden_size), H(p.inner_size), step(D, p.gain, p.shift) {}

  void forward() const {
    const Packed<T> hidden_map(2 * D, H, p.weight1, 2 * D, false), gate_map(H, 4 * D, p.weight2, H, false);
    std::vector<Memory> memory(p.num_threads);
    for_levels([&](int64_t begin, int64_t end) {
      for_tiles(begin, end, [&](int64_t thread, int64_t at, int64_t rows) {
        forward(at, rows, hidden_map, gate_map, memory[thread]);
      });
    });
  }

  void backward(const Gradients& g) const {
    const Packed<T> hidden_map(H, 2 * D, p.weight1, 2 * D, true), gate_map(4 * D, H, p.weight2, H, true);
    std::vector<Memory> memory(p.num_threads);
    int64_t most = 0;
    for_levels([&](int64_t begin, int64_t end) { most = std::max(most, end - begin); });
    Buffer<T> of_children(most * 2 * D);
    for (int64_t level = p.num_levels - 1; level >= 0; --level) {
      const int64_t begin = begin_of(level);
      for_tiles(begin, p.ends[level], [&](int64_t thread, int64_t at, int64_t rows) {
        const NoSubnormals scope;
        T* learned = g.learned + thread * 2 * D;
        T* found = of_children.get() + (at - begin) * 2 * D;
        backward(at, rows, hidden_map, gate_map, g.states, learned, found, memory[thread]);
      });
      for_parts(D, [&](int64_t from, int64_t to) {
        for (int64_t at = begin; at < p.ends[level]; ++at)
          for (int64_t k = 0; k < 2; ++k)
            add(g.states + p.children[2 * at + k] * D + from,
                of_children.get() + (2 * (at - begin) + k) * D + from, to - from);
      });
    }
  }

  // After the backward pass of all inner nodes.
  void of_weights(const Gradients& g) const {
    for_parts(H, [&](int64_t from, int64_t to) {
      const NoSubnormals scope;
      Buffer<T> read(kChunk * 2 * D);
      for (int64_t at = 0; at < p.count; at += kChunk) {
        const int64_t rows = std::min(kChunk, p.count - at);
        const T* d = p.slope + at * H + from;
        gather(at, rows, read.get());
        outer(to - from, 2 * D, rows, d, H, read.get(), 2 * D, g.weight1 + from * 2 * D, 2 * D);
        for (int64_t row = 0; row < rows; ++row) add(g.bias1 + from, d + row * H, to - from);
      }
    });
    for_parts(4 * D, [&](int64_t from, int64_t to) {
      const NoSubnormals scope;
      for (int64_t at = 0; at < p.count; at += kChunk) {
        const int64_t rows = std::min(kChunk, p.count - at);
        const T* d = p.gates + at * 4 * D + from;
        outer(to - from, H, rows, d, 4 * D, p.hidden + at * H, H, g.weight2 + from * H, H);
        for (int64_t row = 0; row < rows; ++row) add(g.bias2 + from, d + row * 4 * D, to - from);
      }
    });
  }

 private:
  // What a thread needs for a tile.
  struct Memory {
    Buffer<T> read, hidden, gates, row;
    void allocate(int64_t D, int64_t H) {
      read.allocate(kLevelRows * 2 * D), hidden.allocate(kLevelRows * H), gates.allocate(kLevelRows * 4 * D), row.allocate(D);
    }
  };

  const T* state(int64_t row) const { return p.states + row * D; }

  template <class Visit>
  void for_levels(Visit visit) const {
    for (int64_t level = 0; level < p.num_levels; ++level) visit(begin_of(level), p.ends[level]);
  }

  int64_t begin_of(int64_t level) const { return level ? p.ends[level - 1] : p.begin; }

  // Calls visit(thread, first row, rows) for the tiles of a level, on several threads if there are several tiles.
  template <class Visit>
  void for_tiles(int64_t begin, int64_t end, Visit visit) const {
    const int64_t tiles = (end - begin + kLevelRows - 1) / kLevelRows;
    on_threads(std::max<int64_t>(1, std::min(tiles, p.num_threads)), [&](Errors&) {
      const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
      for (int64_t tile = thread; tile < tiles; tile += threads)
        visit(thread, begin + tile * kLevelRows, std::min(kLevelRows, end - begin - tile * kLevelRows));
    });
  }

  // Calls visit(begin, end) for the parts of a width, one for each thread.
  template <class Visit>
  void for_parts(int64_t width, Visit visit) const {
    on_threads(p.num_threads, [&](Errors&) {
      const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
      visit(share(width, thread, threads), share(width, thread + 1, threads));
    });
  }

  static void multiply_by(T* values, const T* by, int64_t count) {
    SIMD
    for (int64_t i = 0; i < count; ++i) values[i] *= by[i];
  }

  void gather(int64_t at, int64_t rows, T* to) const {
    for (int64_t i = 0; i < 2 * rows; ++i) std::copy_n(state(p.children[2 * at + i]), D, to + i * D);
  }

  void forward(int64_t at, int64_t rows, const Packed<T>& hidden_map, const Packed<T>& gate_map, Memory& memory) const {
    if (!memory.read.get()) memory.allocate(D, H);
    T* hidden = p.hidden ? p.hidden + at * H : memory.hidden.get();
    T* gates = p.gates ? p.gates + at * 4 * D : memory.gates.get();
    gather(at, rows, memory.read.get());
    fill_rows(hidden, rows, H, p.bias1);
    multiply(rows, memory.read.get(), 2 * D, hidden_map, hidden, H, true);
    T* slope = p.slope ? p.slope + at * H : nullptr;
    activate_hidden(p.gelu, hidden, slope, rows * H);
    if (p.keep)
      for (T* each : {hidden, slope})
        if (each) multiply_by(each, p.keep + at * H, rows * H);
    fill_rows(gates, rows, 4 * D, p.bias2);
    multiply(rows, hidden, H, gate_map, gates, 4 * D, true);
    for (int64_t i = 0; i < rows; ++i) {
      const T* children[] = {memory.read.get() + 2 * i * D, memory.read.get() + (2 * i + 1) * D};
      T* normed = p.normed ? p.normed + (at + i) * (D + 1) : memory.row.get();
      const T scale = step.forward(2, children, gates + i * 4 * D, normed, p.states + (p.first + at + i) * D);
      if (p.normed) normed[D] = scale;
    }
  }

  // `gates` and `slope` become the gradients of the products; `found` [rows, 2 * hidden_size] that of what was read.
  void backward(int64_t at, int64_t rows, const Packed<T>& hidden_map, const Packed<T>& gate_map, const T* d_states,
                T* d_learned, T* found, Memory& memory) const {
    if (!memory.read.get()) memory.allocate(D, H);
    T *gates = p.gates + at * 4 * D, *slope = p.slope + at * H, *d_hidden = memory.hidden.get();
    gather(at, rows, memory.read.get());
    std::fill_n(found, rows * 2 * D, T(0));
    for (int64_t i = 0; i < rows; ++i) {
      const T* children[] = {memory.read.get() + 2 * i * D, memory.read.get() + (2 * i + 1) * D};
      T* d_children[] = {found + 2 * i * D, found + (2 * i + 1) * D};
      const T* normed = p.normed + (at + i) * (D + 1);
      const T* d_h = d_states + (p.first + at + i) * D;
      step.backward(2, children, gates + i * 4 * D, normed, normed[D], d_h, d_children, d_learned, memory.row.get());
    }
    multiply(rows, gates, 4 * D, gate_map, d_hidden, H, false);
    multiply_by(slope, d_hidden, rows * H);
    multiply(rows, slope, H, hidden_map, found, 2 * D, true);
  }

  const Problem p;
  const int64_t D, H;
  const GatedStep<T> step;
};

}  // namespace

extern "C" {
const char* forward(const Problem* problem) {
  return error_of([&] { Run(*problem).forward(); });
}
const char* backward(const Problem* problem, const Gradients* gradients) {
  return error_of([&] { Run(*problem).backward(*gradients); });
}
const char* of_weights(const Problem* problem, const Gradients* gradients) {
  return error_of([&] { Run(*problem).of_weights(*gradients); });
}
}
