// The step of an n-ary Tree-LSTM over the levels of a schedule.

#include "levels.h"
#include "tree_lstm_step.h"

namespace {

// Its product has the blocks of the step. The option: whether a node hands tanh(c) to its parent as c.
template <typename T>
class TreeLSTM {
 public:
  explicit TreeLSTM(const Problem& p) : D(p.hidden_size), step(D, p.options[0]) {}
  int64_t scratch() const { return D; }

  void forward(Node<T>& node) const {
    step.forward(node.arity, node.children[1].data(), node.mask, node.products[0], node.states[0], node.states[1]);
  }

  void backward(Node<T>& node) const {
    step.backward(node.arity, node.children[1].data(), node.mask, node.products[0], node.states[1], node.d_states[0],
                  node.d_states[1], node.d_children[1].data(), node.scratch);
  }

 private:
  const int64_t D;
  const TreeLSTMStep<T> step;
};

}  // namespace

LEVEL_OPERATION(TreeLSTM)
