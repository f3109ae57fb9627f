// The pointwise step of an n-ary Tree-LSTM for one node, forward and backward; the equations are those of
// tree_lstm/step.py.

#pragma once

#include <type_traits>

#include "activation.h"

namespace {

// The blocks of `gates` are input, forget (one for each child), output and update.
template <typename T>
class TreeLSTMStep {
 public:
  // `bounded`: whether a node hands tanh(c) to its parent as c.
  TreeLSTMStep(int64_t hidden_size, bool bounded) : D(hidden_size), bounded(bounded) {}

  // Turns the product into the gates. `mask` is that of the dropout of the update, or null.
  void forward(int64_t arity, const T* const* children, const T* mask, T* gates, T* h, T* c) const {
    T *input = gates, *forget = input + D, *output = forget + arity * D, *update = output + D;
    sigmoid(input, update - input);
    activate(Activation::kTanh, update, D);
    SIMD
    for (int64_t i = 0; i < D; ++i) c[i] = input[i] * update[i];
    if (mask)
      for (int64_t i = 0; i < D; ++i) c[i] *= mask[i];
    for (int64_t k = 0; k < arity; ++k) {
      const T *f = forget + k * D, *of_child = children[k];
      SIMD
      for (int64_t i = 0; i < D; ++i) c[i] += f[i] * of_child[i];
    }
    if (bounded) activate(Activation::kTanh, c, D);
    const auto through_output = [&](auto is_bounded) {
      SIMD
      for (int64_t i = 0; i < D; ++i) h[i] = output[i] * (is_bounded ? c[i] : hyperbolic_tangent(c[i]));
    };
    if (bounded) through_output(std::true_type());
    else through_output(std::false_type());
  }

  // Turns the gates into the gradient of the product, `d_c` into that of c before its bound, and adds to those of the
  // children's c, where they are not null. `d_new` is for its own use.
  void backward(int64_t arity, const T* const* children, const T* mask, T* gates, const T* c, const T* d_h, T* d_c,
                T* const* d_children, T* d_new) const {
    T *input = gates, *forget = input + D, *output = forget + arity * D, *update = output + D;
    const auto through_output = [&](auto is_bounded) {
      SIMD
      for (int64_t i = 0; i < D; ++i) {
        const T value = is_bounded ? c[i] : hyperbolic_tangent(c[i]), slope = T(1) - value * value;
        d_c[i] = (is_bounded ? d_c[i] * slope : d_c[i]) + d_h[i] * output[i] * slope;
        output[i] = through_sigmoid(d_h[i] * value, output[i]);
      }
    };
    if (bounded) through_output(std::true_type());
    else through_output(std::false_type());
    for (int64_t k = 0; k < arity; ++k) {
      T *f = forget + k * D, *d_child = d_children[k];
      const T* of_child = children[k];
      if (d_child) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_child[i] += d_c[i] * f[i];
      }
      SIMD
      for (int64_t i = 0; i < D; ++i) f[i] = through_sigmoid(d_c[i] * of_child[i], f[i]);
    }
    for (int64_t i = 0; i < D; ++i) d_new[i] = mask ? d_c[i] * mask[i] : d_c[i];
    SIMD
    for (int64_t i = 0; i < D; ++i) {
      const T d_input = d_new[i] * update[i];
      update[i] = d_new[i] * input[i] * (T(1) - update[i] * update[i]);
      input[i] = through_sigmoid(d_input, input[i]);
    }
  }

 private:
  const int64_t D;
  const bool bounded;
};

}  // namespace
