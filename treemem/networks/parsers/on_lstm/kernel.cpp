// The steps of an ON-LSTM over packed sequences, forward and backward.
//
// The equations are those of equations.py. Each thread computes some columns of a product of all rows, so each reads its
// part of the weight only; then it computes the gates of some rows. The inputs of some steps are multiplied at once, and
// soon read: without a backward pass nothing else is kept of them.
//
// Without it one thread trains 2.3 times as long (32 sequences of 10 to 30 vectors, 120 units in chunks of 10).

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "errors.h"
#include "numerics.h"
#include "packed.h"
#include "step.h"

// Both are printed from equations.py.
namespace masters_of_row {
MASTERS_STEP
}
namespace units_of_row {
UNITS_STEP
}

// Both are declared in native.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

// What a thread needs for a row.
struct Own {
  const int64_t H, masters, chunk;
  const Buffer<T> memory;
  T *repeated, *d_cell, *d_masters;  // master gates by unit, [2, H], which become their gradients; [H]; [2, masters]
  StepRow<T, 1> of_masters, of_units;

  Own(int64_t H, int64_t chunk)
      : H(H), masters(H / chunk), chunk(chunk),
        memory((3 + units_of_row::kScratch) * H + (2 + masters_of_row::kScratch) * masters), repeated(memory.get()),
        d_cell(repeated + 2 * H), d_masters(d_cell + H) {
    of_masters.scratch = d_masters + 2 * masters, of_masters.d_states[0] = d_masters;
    of_masters.d_states[1] = d_masters + masters;
    of_units.scratch = of_masters.scratch + masters_of_row::kScratch * masters;
    of_units.products[1] = of_units.d_products[1] = repeated, of_units.d_states[1] = d_cell;
  }

  void point_to(T* block, T* of_row, T* before, T* state, T* cell) {
    of_masters.products[0] = block, of_masters.states[0] = of_row, of_masters.states[1] = of_row + masters;
    of_units.products[0] = block + 2 * masters, of_units.child[1][0] = before;
    of_units.states[0] = state, of_units.states[1] = cell;
  }
  void repeat() const {
    for (int64_t side = 0; side < 2; ++side)
      for (int64_t m = 0; m < masters; ++m) std::fill_n(repeated + side * H + m * chunk, chunk, of_masters.states[side][m]);
  }
  void sum_up() const {
    for (int64_t m = 0; m < 2 * masters; ++m) d_masters[m] = std::accumulate(repeated + m * chunk, repeated + (m + 1) * chunk, T(0));
  }
};

struct Run {
  const Problem& p;
  const int64_t H, masters, columns;

  explicit Run(const Problem& problem)
      : p(problem), H(problem.hidden_size), masters(H / problem.chunk_size), columns(2 * masters + 4 * H) {}

  void forward() const;
  void backward(const Gradients& g) const;

 private:
  T* cell(int64_t token, int64_t row) const { return p.cells + ((p.kept ? token : 0) + row) * H; }
  void point_to(Own& own, T* blocks, int64_t token, int64_t row, T* before) const {
    own.point_to(blocks + row * columns, p.masters + (token + row) * 2 * masters, before,
                 p.states + (token + row) * H, cell(token, row));
  }
};

void Run::forward() const {
  Packed<T> weight(H, columns), of_inputs(p.input_size, columns);
  on_threads(p.threads, [&](Errors& errors) {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t first = share(weight.panels(), thread, threads), last = share(weight.panels(), thread + 1, threads);
    for (int64_t panel = first; panel < last; ++panel) {
      of_inputs.pack_panel(panel, p.input_weight, p.input_size, false);
      weight.pack_panel(panel, p.hidden_weight, H, false);
    }
    const int64_t begin = std::min(first * weight.kPanel, columns), end = std::min(last * weight.kPanel, columns);
    std::optional<Own> own;
    errors.run([&] { own.emplace(H, p.chunk_size); });
    int64_t token = 0, known = 0;  // tokens whose inputs have been multiplied
    T *hidden = p.hidden, *before = p.cell, *blocks = p.blocks;
    for (int64_t t = 0; t < p.num_steps; ++t) {
      const int64_t size = p.sizes[t], next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0;
      errors.run([&] {
        if (token == known) {  // the inputs of this step and of some more
          for (int64_t step = t; step < p.num_steps && known < token + p.rows_at_once; ++step) known += p.sizes[step];
          if (!p.kept) blocks = p.blocks;
          const T* inputs = p.inputs + token * p.input_size;
          for (int64_t row = 0; row < known - token; ++row)
            std::copy(p.bias + begin, p.bias + end, blocks + row * columns + begin);
          multiply(known - token, inputs, p.input_size, false, of_inputs, first, last, blocks, columns, true);
        }
        multiply(size, static_cast<const T*>(hidden), H, false, weight, first, last, blocks, columns, true);
      });
#pragma omp barrier
      errors.run([&] {
        for (int64_t row = thread; row < size; row += threads) {
          point_to(*own, blocks, token, row, before + row * H);
          masters_of_row::forward_step(own->of_masters, masters);
          own->repeat();
          units_of_row::forward_step(own->of_units, H);
          if (row < next) continue;
          std::copy_n(p.states + (token + row) * H, H, p.last_hidden + row * H);
          std::copy_n(cell(token, row), H, p.last_cell + row * H);
        }
      });
#pragma omp barrier
      hidden = p.states + token * H, before = cell(token, 0);
      token += size, blocks += size * columns;
    }
  });
}

void Run::backward(const Gradients& g) const {
  Packed<T> weight(columns, H);
  on_threads(p.threads, [&](Errors& errors) {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t first = share(weight.panels(), thread, threads), last = share(weight.panels(), thread + 1, threads);
    for (int64_t panel = first; panel < last; ++panel) weight.pack_panel(panel, p.hidden_weight, H, true);
    std::optional<Own> own;
    errors.run([&] { own.emplace(H, p.chunk_size); });
    T *d_hidden = g.hidden, *d_cell = g.cell;
    int64_t token = p.num_tokens;
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      const int64_t size = p.sizes[t];
      token -= size;
      T* before = t ? p.cells + (token - p.sizes[t - 1]) * H : p.cell;
      T* d_block = g.blocks + token * columns;
      errors.run([&] {
        for (int64_t row = thread; row < size; row += threads) {
          add(d_hidden + row * H, g.states + (token + row) * H, H);
          point_to(*own, p.blocks + token * columns, token, row, before + row * H);
          own->repeat();
          own->of_units.d_states[0] = d_hidden + row * H, own->of_units.d_child[1][0] = d_cell + row * H;
          own->of_units.d_products[0] = d_block + row * columns + 2 * masters;
          own->of_masters.d_products[0] = d_block + row * columns;
          std::copy_n(d_cell + row * H, H, own->d_cell);
          std::fill_n(d_cell + row * H, H, T(0));
          units_of_row::backward_step(own->of_units, H);
          own->sum_up();
          masters_of_row::backward_step(own->of_masters, masters);
        }
      });
#pragma omp barrier
      errors.run([&] {
        multiply(size, static_cast<const T*>(d_block), columns, false, weight, first, last, d_hidden, H, false);
      });
#pragma omp barrier
    }
  });
}

}  // namespace

EXPORT_RUN(Run)
