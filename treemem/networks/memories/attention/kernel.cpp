// A controller that attends to rows: what it reads is their mean, weighted by a softmax of products with the query.

#include "controller.h"

// Both are declared in native.py.
struct Fields { FIELDS };
struct MemoryGradients { MEMORY_GRADIENTS };

namespace {

struct Attention {
  const int64_t S;
  const Fields& fields;
  const MemoryGradients* gradients;

  struct Buffers {
    Buffer<T> products;

    explicit Buffers(const Attention& memory) : products(memory.fields.most_rows) {}
  };

  Attention(const Problem& p, const Fields& fields, const MemoryGradients* gradients)
      : S(p.read_size), fields(fields), gradients(gradients) {}

  const T* rows_of(int64_t row) const { return fields.rows + row * fields.most_rows * S; }
  T* weights_of(int64_t token) const { return fields.weights + token * fields.most_rows; }

  void forward(Place at, T* query, T* readout, Buffers&) const {
    std::fill_n(readout, S, T(0));
    if (at.ends) return;  // nothing reads it
    const T* rows = rows_of(at.row);
    T* weights = weights_of(at.token);
    const int64_t count = fields.lengths[at.row];
    for (int64_t k = 0; k < count; ++k) weights[k] = dot(rows + k * S, static_cast<const T*>(query), S);
    softmax(weights, count);
    for (int64_t k = 0; k < count; ++k) add_scaled(readout, weights[k], rows + k * S, S);
  }

  void backward(Place at, const T* query, const T* d_readout, T* d_query, Buffers& buffers) const {
    std::fill_n(d_query, S, T(0));
    if (at.ends) return;
    const T *rows = rows_of(at.row), *weights = weights_of(at.token);
    T *products = buffers.products.get(), *d_rows = gradients->rows + at.row * fields.most_rows * S;
    const int64_t count = fields.lengths[at.row];
    for (int64_t k = 0; k < count; ++k) products[k] = dot(rows + k * S, d_readout, S);
    softmax_backward(weights, products, count);
    for (int64_t k = 0; k < count; ++k) {
      add_scaled(d_query, products[k], rows + k * S, S);
      add_scaled(d_rows + k * S, products[k], query, S);
      add_scaled(d_rows + k * S, weights[k], d_readout, S);
    }
  }
};

}  // namespace

RUN(Attention)
