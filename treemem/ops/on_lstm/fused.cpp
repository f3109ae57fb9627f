// The steps of an ON-LSTM over packed sequences, forward and backward.
//
// The equations are those of naive.py. Each thread computes some columns of a product of all rows, so each reads its part
// of the weight only; then it computes the gates of some rows.
//
// Without it one thread trains 2.3 times as long (32 sequences of 10 to 30 vectors, 120 units in chunks of 10).

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "errors.h"
#include "numerics.h"
#include "packed.h"

// Both are declared in native.py.
struct Problem { PROBLEM };
struct Gradients { GRADIENTS };

namespace {

using T = REAL;

struct Run {
  const Problem& p;
  const int64_t H, masters, columns;

  explicit Run(const Problem& problem)
      : p(problem), H(problem.hidden_size), masters(H / problem.chunk_size), columns(2 * masters + 4 * H) {}

  void forward() const;
  void backward(const Gradients& g) const;

 private:
  int64_t place(int64_t token, int64_t row) const { return (p.kept ? token : 0) + row; }
  void gates(int64_t token, int64_t row, const T* before, T* own) const;
  void gates_backward(int64_t token, int64_t row, const T* before, const T* d_state, T* d_cell, T* d_block, T* own) const;
  void spread(const T* masters_of_row, T* overlap, T* rest_input, T* rest_forget) const;
};

// Repeats, over the units of each chunk, the overlap of the master gates and what each master gate has beyond it.
void Run::spread(const T* of_row, T* overlap, T* rest_input, T* rest_forget) const {
  for (int64_t m = 0; m < masters; ++m) {
    const T input = of_row[m], forget = of_row[masters + m], both = input * forget;
    for (int64_t i = m * p.chunk_size; i < (m + 1) * p.chunk_size; ++i)
      overlap[i] = both, rest_input[i] = input - both, rest_forget[i] = forget - both;
  }
}

// Turns the preactivations of a row into its gates, h and c. `own` is memory for 5 * H entries.
void Run::gates(int64_t token, int64_t row, const T* before, T* own) const {
  T* block = p.blocks + (token + row) * columns;
  T* of_row = p.masters + (token + row) * 2 * masters;
  T* softmax = p.softmax + place(token, row) * 2 * masters;
  for (int side = 0; side < 2; ++side, block += masters) {
    const T most = *std::max_element(block, block + masters);
    T sum = 0, so_far = 0, *values = softmax + side * masters;
    SIMD_SUM(sum)
    for (int64_t m = 0; m < masters; ++m) sum += values[m] = exponential(block[m] - most);
    for (int64_t m = 0; m < masters; ++m) {
      so_far += values[m] /= sum;
      of_row[side * masters + m] = side ? so_far : T(1) - so_far;
    }
  }
  T *overlap = own, *rest_input = own + H, *rest_forget = own + 2 * H;
  spread(of_row, overlap, rest_input, rest_forget);
  T *output = block, *update = output + H, *input = update + H, *forget = input + H;
  T* state = p.states + (token + row) * H;
  T* cell = p.cells + place(token, row) * H;
  T* tanh_cell = p.tanh_cells + place(token, row) * H;
  SIMD
  for (int64_t i = 0; i < H; ++i) {
    output[i] = sigmoid(output[i]);
    update[i] = hyperbolic_tangent(update[i]);
    input[i] = sigmoid(input[i]);
    forget[i] = sigmoid(forget[i]);
    cell[i] = (forget[i] * overlap[i] + rest_forget[i]) * before[i] + (input[i] * overlap[i] + rest_input[i]) * update[i];
    tanh_cell[i] = hyperbolic_tangent(cell[i]);
    state[i] = output[i] * tanh_cell[i];
  }
}

void Run::forward() const {
  Packed<T> weight(H, columns), of_input(p.input_size, columns);
  on_threads(p.threads, [&](Errors& errors) {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t first = share(weight.panels(), thread, threads), last = share(weight.panels(), thread + 1, threads);
    for (int64_t panel = first; panel < last; ++panel) {
      of_input.pack_panel(panel, p.input_weight, p.input_size, false);
      weight.pack_panel(panel, p.hidden_weight, H, false);
    }
    const int64_t begin = first * weight.kPanel, width = std::min(last * weight.kPanel, columns) - begin;
    for (int64_t token = 0; token < p.num_tokens; ++token)
      std::copy_n(p.bias + begin, std::max<int64_t>(width, 0), p.blocks + token * columns + begin);
    Buffer<T> own;
    errors.run([&] {
      own.allocate(5 * H);
      multiply(p.num_tokens, p.inputs, p.input_size, false, of_input, first, last, p.blocks, columns, true);
    });
    int64_t token = 0;
    const T *hidden = p.hidden, *cell = p.cell;
    for (int64_t t = 0; t < p.num_steps; ++t) {
      const int64_t size = p.sizes[t], next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0;
      errors.run([&] {
        multiply(size, hidden, H, false, weight, first, last, p.blocks + token * columns, columns, true);
      });
#pragma omp barrier
      errors.run([&] {
        for (int64_t row = thread; row < size; row += threads) {
          gates(token, row, cell + row * H, own.get());
          if (row < next) continue;
          std::copy_n(p.states + (token + row) * H, H, p.last_hidden + row * H);
          std::copy_n(p.cells + place(token, row) * H, H, p.last_cell + row * H);
        }
      });
#pragma omp barrier
      hidden = p.states + token * H, cell = p.cells + place(token, 0) * H;
      token += size;
    }
  });
}

// Gradients of the preactivations of a row, and of c before, over that of c. `own` is memory for 5 * H entries.
void Run::gates_backward(int64_t token, int64_t row, const T* before, const T* d_state, T* d_cell, T* d_block,
                            T* own) const {
  const T* output = p.blocks + (token + row) * columns + 2 * masters;
  const T *update = output + H, *input = update + H, *forget = input + H;
  const T* of_row = p.masters + (token + row) * 2 * masters;
  const T* softmax = p.softmax + place(token, row) * 2 * masters;
  const T* tanh_cell = p.tanh_cells + place(token, row) * H;
  T *overlap = own, *rest_input = own + H, *rest_forget = own + 2 * H, *of_input = own + 3 * H, *of_forget = own + 4 * H;
  spread(of_row, overlap, rest_input, rest_forget);
  T *d_output = d_block + 2 * masters, *d_update = d_output + H, *d_input = d_update + H, *d_forget = d_input + H;
  SIMD
  for (int64_t i = 0; i < H; ++i) {
    const T of_cell = d_cell[i] + d_state[i] * output[i] * (T(1) - tanh_cell[i] * tanh_cell[i]);
    d_output[i] = d_state[i] * tanh_cell[i] * output[i] * (T(1) - output[i]);
    d_update[i] = of_cell * (input[i] * overlap[i] + rest_input[i]) * (T(1) - update[i] * update[i]);
    d_cell[i] = of_cell * (forget[i] * overlap[i] + rest_forget[i]);
    of_input[i] = of_cell * update[i];
    of_forget[i] = of_cell * before[i];
    d_input[i] = of_input[i] * overlap[i] * input[i] * (T(1) - input[i]);
    d_forget[i] = of_forget[i] * overlap[i] * forget[i] * (T(1) - forget[i]);
    overlap[i] = of_input[i] * (input[i] - T(1)) + of_forget[i] * (forget[i] - T(1));  // now its gradient
  }
  for (int64_t m = 0; m < masters; ++m) {
    T to_input = 0, to_forget = 0, to_overlap = 0;
    for (int64_t i = m * p.chunk_size; i < (m + 1) * p.chunk_size; ++i)
      to_input += of_input[i], to_forget += of_forget[i], to_overlap += overlap[i];
    d_block[m] = -(to_input + to_overlap * of_row[masters + m]);
    d_block[masters + m] = to_forget + to_overlap * of_row[m];
  }
  for (int side = 0; side < 2; ++side, d_block += masters, softmax += masters) {
    T total = 0, so_far = 0;
    for (int64_t m = masters - 1; m >= 0; --m) {  // a unit adds to the cumulative sums from it on
      so_far += d_block[m];
      d_block[m] = so_far * softmax[m];
      total += d_block[m];
    }
    SIMD
    for (int64_t m = 0; m < masters; ++m) d_block[m] -= total * softmax[m];
  }
}

void Run::backward(const Gradients& g) const {
  Packed<T> weight(columns, H);
  on_threads(p.threads, [&](Errors& errors) {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t first = share(weight.panels(), thread, threads), last = share(weight.panels(), thread + 1, threads);
    for (int64_t panel = first; panel < last; ++panel) weight.pack_panel(panel, p.hidden_weight, H, true);
    Buffer<T> own;
    errors.run([&] { own.allocate(5 * H); });
    T *d_hidden = g.hidden, *d_cell = g.cell;
    int64_t token = p.num_tokens;
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      const int64_t size = p.sizes[t];
      token -= size;
      const T* before = t ? p.cells + (token - p.sizes[t - 1]) * H : p.cell;
      T* d_block = g.blocks + token * columns;
      errors.run([&] {
        for (int64_t row = thread; row < size; row += threads) {
          add(d_hidden + row * H, g.states + (token + row) * H, H);
          gates_backward(token, row, before + row * H, d_hidden + row * H, d_cell + row * H, d_block + row * columns,
                         own.get());
        }
      });
#pragma omp barrier
      errors.run([&] {
        multiply(size, static_cast<const T*>(d_block), columns, false, weight, first, last, d_hidden, H, false);
      });
#pragma omp barrier
    }
  });
  const T* d_blocks = g.blocks;
  product(p.threads, p.num_tokens, p.input_size, columns, d_blocks, false, p.input_weight, g.inputs);
  product(p.threads, columns, p.input_size, p.num_tokens, d_blocks, true, p.inputs, g.input_weight);
  product(p.threads, columns, H, p.num_tokens, d_blocks, true, g.previous, g.hidden_weight);
}

}  // namespace

extern "C" {
const char* forward(const Problem* problem) {
  return error_of([&] { Run(*problem).forward(); });
}
const char* backward(const Problem* problem, const Gradients* gradients) {
  return error_of([&] { Run(*problem).backward(*gradients); });
}
}
