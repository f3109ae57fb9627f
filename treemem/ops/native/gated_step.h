// The pointwise step of a gated recursive cell for one node, forward and backward; the equations are those of
// gated_recursive/step.py.

#pragma once

#include "activation.h"

namespace {

// The blocks of `gates` are a gate for each child, the candidate's gate and the candidate.
template <typename T>
class GatedStep {
 public:
  GatedStep(int64_t hidden_size, const void* gain, const void* shift)
      : D(hidden_size), gain(static_cast<const T*>(gain)), shift(static_cast<const T*>(shift)) {}

  // Turns the product into the gates, `normed` into the normalized sum, and `h` into the state. Returns the factor of
  // the normalization.
  T forward(int64_t arity, const T* const* children, T* gates, T* normed, T* h) const {
    T *candidate_gate = gates + arity * D, *candidate = candidate_gate + D;
    sigmoid(gates, candidate - gates);
    SIMD
    for (int64_t i = 0; i < D; ++i) normed[i] = candidate_gate[i] * candidate[i];
    for (int64_t k = 0; k < arity; ++k) {
      const T *gate = gates + k * D, *of_child = children[k];
      SIMD
      for (int64_t i = 0; i < D; ++i) normed[i] += gate[i] * of_child[i];
    }
    const T scale = normalize(normed, D);
    SIMD
    for (int64_t i = 0; i < D; ++i) h[i] = normed[i] * gain[i] + shift[i];
    return scale;
  }

  // Turns the gates into the gradient of the product, and adds to those of the children (where they are not null) and, in
  // `d_learned`, of gain and shift. `d_sum` is for its own use.
  void backward(int64_t arity, const T* const* children, T* gates, const T* normed, T scale, const T* d_h,
                T* const* d_children, T* d_learned, T* d_sum) const {
    T *candidate_gate = gates + arity * D, *candidate = candidate_gate + D;
    through_norm(normed, scale, d_h, d_learned, d_sum);
    for (int64_t k = 0; k < arity; ++k) {
      T *gate = gates + k * D, *d_child = d_children[k];
      const T* of_child = children[k];
      if (d_child) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_child[i] += d_sum[i] * gate[i];
      }
      SIMD
      for (int64_t i = 0; i < D; ++i) gate[i] = through_sigmoid(d_sum[i] * of_child[i], gate[i]);
    }
    SIMD
    for (int64_t i = 0; i < D; ++i) {
      const T d_gate = d_sum[i] * candidate[i];
      candidate[i] = d_sum[i] * candidate_gate[i];
      candidate_gate[i] = through_sigmoid(d_gate, candidate_gate[i]);
    }
  }

 private:
  void through_norm(const T* normed, T scale, const T* d_h, T* d_learned, T* d_sum) const {
    T mean = 0, mean_normed = 0;
    if (d_learned) {
      T *d_gain = d_learned, *d_shift = d_gain + D;
      SIMD
      for (int64_t i = 0; i < D; ++i) d_gain[i] += d_h[i] * normed[i], d_shift[i] += d_h[i];
    }
    SIMD_SUM(mean, mean_normed)
    for (int64_t i = 0; i < D; ++i) {
      d_sum[i] = d_h[i] * gain[i];
      mean += d_sum[i];
      mean_normed += d_sum[i] * normed[i];
    }
    mean /= T(D), mean_normed /= T(D);
    SIMD
    for (int64_t i = 0; i < D; ++i) d_sum[i] = scale * (d_sum[i] - mean - normed[i] * mean_normed);
  }

  const int64_t D;
  const T *gain, *shift;
};

}  // namespace
