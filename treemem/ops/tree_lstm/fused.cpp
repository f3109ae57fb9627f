// The step of an n-ary Tree-LSTM, forward and backward; the equations are those of step.py.

#include <type_traits>

#include "activation.h"
#include "levels.h"

namespace {

// Its product has the blocks input, forget (one for each child), output and update. The option: whether a node hands
// tanh(c) to its parent as c.
template <typename T>
class TreeLSTM {
 public:
  explicit TreeLSTM(const Problem& p) : D(p.hidden_size), bounded(p.options[0]) {}
  int64_t scratch() const { return D; }

  // Turns the product into the gates.
  void forward(Node<T>& node) const {
    T* input = node.products[0];
    T *forget = input + D, *output = forget + node.arity * D, *update = output + D;
    sigmoid(input, update - input);
    activate(Activation::kTanh, update, D);
    T *h = node.states[0], *c = node.states[1];
    SIMD
    for (int64_t i = 0; i < D; ++i) c[i] = input[i] * update[i];
    if (node.mask)
      for (int64_t i = 0; i < D; ++i) c[i] *= node.mask[i];
    for (int64_t k = 0; k < node.arity; ++k) {
      const T *f = forget + k * D, *of_child = node.children[1][k];
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

  // Turns the gates into the gradient of the product.
  void backward(Node<T>& node) const {
    T* input = node.products[0];
    T *forget = input + D, *output = forget + node.arity * D, *update = output + D, *d_new = node.scratch;
    const T *d_h = node.d_states[0], *c = node.states[1];
    T* d_c = node.d_states[1];
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
    for (int64_t k = 0; k < node.arity; ++k) {
      T *f = forget + k * D, *d_child = node.d_children[1][k];
      const T* of_child = node.children[1][k];
      if (d_child) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_child[i] += d_c[i] * f[i];
      }
      SIMD
      for (int64_t i = 0; i < D; ++i) f[i] = through_sigmoid(d_c[i] * of_child[i], f[i]);
    }
    for (int64_t i = 0; i < D; ++i) d_new[i] = node.mask ? d_c[i] * node.mask[i] : d_c[i];
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

LEVEL_OPERATION(TreeLSTM)
