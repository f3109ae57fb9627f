// The step of a Tree-RNN, forward and backward; the equations are those of step.py.

#include "activation.h"
#include "levels.h"

namespace {

template <typename T>
class TreeRNN {
 public:
  explicit TreeRNN(const Problem& p) : D(p.hidden_size), activation(Activation(p.options[0])) {}
  int64_t scratch() const { return 0; }

  // Turns the product into its value, which is h before its dropout.
  void forward(Node<T>& node) const {
    T *value = node.products[0], *h = node.states[0];
    activate(activation, value, D);
    for (int64_t i = 0; i < D; ++i) h[i] = node.mask ? value[i] * node.mask[i] : value[i];
  }

  // Turns the value into the gradient of the product.
  void backward(Node<T>& node) const {
    T *value = node.products[0], *d_h = node.d_states[0];
    if (node.mask)
      for (int64_t i = 0; i < D; ++i) d_h[i] *= node.mask[i];
    activate_backward(activation, value, d_h, D);
    std::copy_n(d_h, D, value);
  }

 private:
  const int64_t D;
  const Activation activation;
};

}  // namespace

LEVEL_OPERATION(TreeRNN)
