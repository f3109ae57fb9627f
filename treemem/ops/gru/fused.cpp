// The steps of a GRU over packed sequences, forward and backward. The equations are those of naive.py.
//
// Each thread takes some sequences from the first step to the last, so that none waits for another.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "numerics.h"
#include "packed.h"

extern "C" {

// Tensors of a run, as fused.py fills them in. Float or double. Sequences are sorted by length, longest first.
//
// A block has what the input gives the candidate, reset gate, update gate, and what the state gives the candidate, each
// hidden_size wide: inputs and readouts reach the first three, the state reaches the last three.
struct Problem {
  int64_t threads, num_steps, num_tokens, hidden_size;
  int64_t read_size;       // 0 without attention
  int64_t most_rows;       // that a sequence attends to
  const int64_t* sizes;    // [num_steps], sequences of each step, not ascending
  const int64_t* shares;   // [threads + 1], where the sequences of each thread begin
  const int64_t* lengths;  // [sequences], how many rows each attends to
  const void* of_state;    // [3 * hidden_size, hidden_size]
  const void* hidden;      // [sequences, hidden_size]
  const void* of_read;     // [3 * hidden_size, read_size]
  const void* attended;    // [sequences, most_rows, read_size]
  const void *query_weight, *query_bias;  // [read_size, hidden_size], [read_size]
  const void* read;        // [sequences, read_size]
  void* blocks;            // [num_tokens, 4 * hidden_size], what inputs and biases give; become gates
  void* states;            // [num_tokens, hidden_size]
  void *queries, *reads;   // [num_tokens, read_size]
  void* attention;         // [num_tokens, most_rows]
  void* last;              // [sequences, hidden_size], of those without tokens filled in before
};

struct Gradients {
  const void* states;  // [num_tokens, hidden_size]
  void* hidden;        // [sequences, hidden_size], of the last ones; become those of the first ones
  void* read;          // [sequences, read_size], 0; become those of the first ones
  void* blocks;        // [num_tokens, 4 * hidden_size]
  void* queries;       // [num_tokens, read_size]
  void* attended;      // [sequences, most_rows, read_size], 0
};
}

namespace {

template <typename T>
struct Run {
  const Problem& p;
  const int64_t H, S;

  explicit Run(const Problem& problem) : p(problem), H(problem.hidden_size), S(problem.read_size) {}

  // What products take: the weights, or for the backward pass their transposes.
  struct Weights {
    const Packed<T> of_state, of_read, query;

    Weights(const Run& run, bool backward)
        : of_state(packed(3 * run.H, run.H, run.p.of_state, backward)),
          of_read(packed(3 * run.H, run.S, run.p.of_read, backward)),
          query(packed(run.S, run.H, run.p.query_weight, backward)) {}

    // `weight` is [outputs, inputs].
    static Packed<T> packed(int64_t outputs, int64_t inputs, const void* weight, bool backward) {
      return Packed<T>(backward ? outputs : inputs, backward ? inputs : outputs, read(weight), inputs, backward);
    }
  };

  static const T* read(const void* values) { return static_cast<const T*>(values); }
  static T* write(void* values) { return static_cast<T*>(values); }

  void step(T* block, const T* before, T* state) const {
    T *candidate = block, *reset = block + H, *update = block + 2 * H, *of_state = block + 3 * H;
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      reset[i] = sigmoid(reset[i]);
      update[i] = sigmoid(update[i]);
      candidate[i] = hyperbolic_tangent(candidate[i] + reset[i] * of_state[i]);
      state[i] = candidate[i] + update[i] * (before[i] - candidate[i]);
    }
  }

  // `d_state` becomes the gradient of the state before, but for the part through the product with the weight.
  void step_backward(const T* block, const T* before, T* d_state, T* d_block) const {
    const T *candidate = block, *reset = block + H, *update = block + 2 * H, *of_state = block + 3 * H;
    SIMD
    for (int64_t i = 0; i < H; ++i) {
      const T inner = d_state[i] * (T(1) - update[i]) * (T(1) - candidate[i] * candidate[i]);
      d_block[i] = inner;
      d_block[H + i] = inner * of_state[i] * reset[i] * (T(1) - reset[i]);
      d_block[2 * H + i] = d_state[i] * (before[i] - candidate[i]) * update[i] * (T(1) - update[i]);
      d_block[3 * H + i] = inner * reset[i];
      d_state[i] *= update[i];
    }
  }

  // What a row reads with a query: the mean of what it attends to, weighted by a softmax of products.
  void attend(int64_t row, const T* query, T* attention, T* out) const {
    const T* from = read(p.attended) + row * p.most_rows * S;
    T greatest = -std::numeric_limits<T>::infinity(), total = 0;
    for (int64_t k = 0; k < p.lengths[row]; ++k) greatest = std::max(greatest, attention[k] = dot(from + k * S, query));
    for (int64_t k = 0; k < p.lengths[row]; ++k) total += attention[k] = exponential(attention[k] - greatest);
    std::fill_n(out, S, T(0));
    for (int64_t k = 0; k < p.lengths[row]; ++k) add_scaled(attention[k] /= total, from + k * S, out);
  }

  void attend_backward(int64_t row, const T* query, const T* attention, const T* d_out, T* d_query, T* d_from,
                       T* own) const {
    const T* from = read(p.attended) + row * p.most_rows * S;
    T mean = 0;
    for (int64_t k = 0; k < p.lengths[row]; ++k) mean += attention[k] * (own[k] = dot(from + k * S, d_out));
    std::fill_n(d_query, S, T(0));
    for (int64_t k = 0; k < p.lengths[row]; ++k) {
      const T d_score = attention[k] * (own[k] - mean), weight = attention[k];
      const T* of_row = from + k * S;
      T* d_row = d_from + k * S;
      SIMD
      for (int64_t i = 0; i < S; ++i) {
        d_query[i] += d_score * of_row[i];
        d_row[i] += weight * d_out[i] + d_score * query[i];
      }
    }
  }

  T dot(const T* a, const T* b) const {
    T sum = 0;
    SIMD_SUM(sum)
    for (int64_t i = 0; i < S; ++i) sum += a[i] * b[i];
    return sum;
  }

  void add_scaled(T factor, const T* from, T* to) const {
    SIMD
    for (int64_t i = 0; i < S; ++i) to[i] += factor * from[i];
  }

  void forward(int64_t first, int64_t last, const Weights& weights) const {
    const T *before = read(p.hidden), *read_before = read(p.read);
    int64_t token = 0;
    for (int64_t t = 0; t < p.num_steps && first < p.sizes[t]; ++t) {
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      T *blocks = write(p.blocks) + token * 4 * H, *states = write(p.states) + token * H;
      T *queries = write(p.queries) + token * S, *reads = write(p.reads) + token * S;
      T* block = blocks + first * 4 * H;
      multiply(count, before + first * H, H, weights.of_state, block + H, 4 * H, true);
      if (S) multiply(count, read_before + first * S, S, weights.of_read, block, 4 * H, true);
      for (int64_t row = first; row < end; ++row) {
        step(blocks + row * 4 * H, before + row * H, states + row * H);
        if (row >= next) std::copy_n(states + row * H, H, write(p.last) + row * H);
      }
      before = states, read_before = reads;
      if (S) {
        for (int64_t row = first; row < end; ++row) std::copy_n(read(p.query_bias), S, queries + row * S);
        multiply(count, static_cast<const T*>(states) + first * H, H, weights.query, queries + first * S, S, true);
        for (int64_t row = first; row < next && row < end; ++row)  // what a sequence reads at its end has no use
          attend(row, queries + row * S, write(p.attention) + (token + row) * p.most_rows, reads + row * S);
      }
      token += p.sizes[t];
    }
  }

  void backward(int64_t first, int64_t last, const Weights& weights, const Gradients& g) const {
    T *d_states = write(g.hidden), *d_reads = write(g.read);
    Buffer<T> own(p.most_rows);
    int64_t token = p.num_tokens;
    for (int64_t t = p.num_steps - 1; t >= 0; --t) {
      token -= p.sizes[t];
      const int64_t end = std::min(last, p.sizes[t]), next = t + 1 < p.num_steps ? p.sizes[t + 1] : 0, count = end - first;
      if (count <= 0) continue;
      const T* before = t ? read(p.states) + (token - p.sizes[t - 1]) * H : read(p.hidden);
      const T *blocks = read(p.blocks) + token * 4 * H, *queries = read(p.queries) + token * S;
      T *d_blocks = write(g.blocks) + token * 4 * H, *d_queries = write(g.queries) + token * S;
      for (int64_t row = first; row < end; ++row) add(d_states + row * H, read(g.states) + (token + row) * H, H);
      if (S) {
        for (int64_t row = first; row < end; ++row) {
          if (row < next)
            attend_backward(row, queries + row * S, read(p.attention) + (token + row) * p.most_rows, d_reads + row * S,
                            d_queries + row * S, write(g.attended) + row * p.most_rows * S, own.get());
          else
            std::fill_n(d_queries + row * S, S, T(0));
        }
        multiply(count, static_cast<const T*>(d_queries) + first * S, S, weights.query, d_states + first * H, H, true);
      }
      for (int64_t row = first; row < end; ++row)
        step_backward(blocks + row * 4 * H, before + row * H, d_states + row * H, d_blocks + row * 4 * H);
      const T* d_block = d_blocks + first * 4 * H;
      multiply(count, d_block + H, 4 * H, weights.of_state, d_states + first * H, H, true);
      if (S) multiply(count, d_block, 4 * H, weights.of_read, d_reads + first * S, S, false);
    }
  }

  // Calls a function with the first and the last row of each thread.
  template <class Function>
  void on_rows(Function function) const {
#pragma omp parallel for num_threads(p.threads)
    for (int64_t thread = 0; thread < p.threads; ++thread) function(p.shares[thread], p.shares[thread + 1]);
  }

  void forward() const {
    const Weights weights(*this, false);
    on_rows([&](int64_t first, int64_t last) { forward(first, last, weights); });
  }

  void backward(const Gradients& g) const {
    const Weights weights(*this, true);
    on_rows([&](int64_t first, int64_t last) { backward(first, last, weights, g); });
  }
};

}  // namespace

extern "C" {
void forward_float(const Problem* problem) { Run<float>(*problem).forward(); }
void forward_double(const Problem* problem) { Run<double>(*problem).forward(); }
void backward_float(const Problem* problem, const Gradients* g) { Run<float>(*problem).backward(*g); }
void backward_double(const Problem* problem, const Gradients* g) { Run<double>(*problem).backward(*g); }
}
