// The step of a gated recursive cell, forward and backward; the equations are those of step.py.

#include "activation.h"
#include "levels.h"

namespace {

// Its second product has the blocks gate (one for each child), candidate gate and candidate; the first one is hidden.
template <typename T>
class GatedRecursive {
 public:
  explicit GatedRecursive(const Problem& p)
      : D(p.hidden_size), gain(static_cast<const T*>(p.learned[0])), shift(static_cast<const T*>(p.learned[1])) {}
  int64_t scratch() const { return D; }

  // Turns the product into the gates, and keeps the normalized sum and the factor of the normalization.
  void forward(Node<T>& node) const {
    T *gates = node.products[1], *candidate_gate = gates + node.arity * D, *candidate = candidate_gate + D;
    T* mixed = node.kept ? node.kept : node.scratch;
    sigmoid(gates, candidate - gates);
    SIMD
    for (int64_t i = 0; i < D; ++i) mixed[i] = candidate_gate[i] * candidate[i];
    for (int64_t k = 0; k < node.arity; ++k) {
      const T *gate = gates + k * D, *of_child = node.children[0][k];
      SIMD
      for (int64_t i = 0; i < D; ++i) mixed[i] += gate[i] * of_child[i];
    }
    const T scale = normalize(mixed, D);
    if (node.kept) node.kept[D] = scale;
    T* h = node.states[0];
    SIMD
    for (int64_t i = 0; i < D; ++i) h[i] = mixed[i] * gain[i] + shift[i];
  }

  // Turns the gates into the gradient of the product.
  void backward(Node<T>& node) const {
    T *gates = node.products[1], *candidate_gate = gates + node.arity * D, *candidate = candidate_gate + D;
    T* d_mixed = node.scratch;
    through_norm(node, d_mixed);
    for (int64_t k = 0; k < node.arity; ++k) {
      T *gate = gates + k * D, *d_child = node.d_children[0][k];
      const T* of_child = node.children[0][k];
      if (d_child) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_child[i] += d_mixed[i] * gate[i];
      }
      SIMD
      for (int64_t i = 0; i < D; ++i) gate[i] = through_sigmoid(d_mixed[i] * of_child[i], gate[i]);
    }
    SIMD
    for (int64_t i = 0; i < D; ++i) {
      const T d_gate = d_mixed[i] * candidate[i];
      candidate[i] = d_mixed[i] * candidate_gate[i];
      candidate_gate[i] = through_sigmoid(d_gate, candidate_gate[i]);
    }
  }

 private:
  void through_norm(const Node<T>& node, T* d_mixed) const {
    const T *d_h = node.d_states[0], *normed = node.kept;
    T mean = 0, mean_normed = 0;
    if (node.d_learned) {
      T *d_gain = node.d_learned, *d_shift = d_gain + D;
      SIMD
      for (int64_t i = 0; i < D; ++i) d_gain[i] += d_h[i] * normed[i], d_shift[i] += d_h[i];
    }
    SIMD_SUM(mean, mean_normed)
    for (int64_t i = 0; i < D; ++i) {
      d_mixed[i] = d_h[i] * gain[i];
      mean += d_mixed[i];
      mean_normed += d_mixed[i] * normed[i];
    }
    mean /= T(D), mean_normed /= T(D);
    const T scale = normed[D];
    SIMD
    for (int64_t i = 0; i < D; ++i) d_mixed[i] = scale * (d_mixed[i] - mean - normed[i] * mean_normed);
  }

  const int64_t D;
  const T *gain, *shift;
};

}  // namespace

LEVEL_OPERATION(GatedRecursive)
