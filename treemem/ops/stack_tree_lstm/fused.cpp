// The step of a Tree-LSTM with a stack, forward and backward; the equations are those of step.py.
//
// It covers a stack with element-wise actions whose top row alone is read.

#include "activation.h"
#include "levels.h"

namespace {

enum Action { kPush, kPop, kNoOp, kNumActions };

// Its product has the blocks forget (one for each child), actions, output and update.
template <typename T>
class StackTreeLSTM {
 public:
  explicit StackTreeLSTM(const Problem& p)
      : D(p.hidden_size), S(p.options[0]), activation(Activation(p.options[1])), output_activation(Activation(p.options[2])),
        normalized(p.options[3]), has_pop(p.options[4]), has_no_op(p.options[5]), num_actions(1 + has_pop + has_no_op) {}

  int64_t scratch() const { return (2 * S + 2 * kNumActions + 2) * D; }

  // Turns the product into the gates.
  void forward(Node<T>& node) const {
    Blocks b(*this, node);
    sigmoid(b.forget, b.update - b.forget);
    activate(activation, b.update, D);
    merge(node, b);
    weigh_actions(b);
    const T* pushed = push_value(node, b);
    const T *push = b.weight[kPush], *pop = b.weight[kPop], *no_op = b.weight[kNoOp];
    for (int64_t row = 0; row < S; ++row) {
      T* to = node.states[1] + row * D;
      const T *above = row ? b.merged + (row - 1) * D : pushed, *own = b.merged + row * D, *below = own + D;
      SIMD
      for (int64_t i = 0; i < D; ++i) to[i] = push[i] * above[i];
      if (no_op) {
        SIMD
        for (int64_t i = 0; i < D; ++i) to[i] += no_op[i] * own[i];
      }
      if (pop && row + 1 < S) {
        SIMD
        for (int64_t i = 0; i < D; ++i) to[i] += pop[i] * below[i];
      }
    }
    T* h = node.states[0];
    std::copy_n(node.states[1], D, h);
    activate(output_activation, h, D);
    SIMD
    for (int64_t i = 0; i < D; ++i) h[i] *= b.output[i];
  }

  // Turns the gates into the gradient of the product.
  void backward(Node<T>& node) const {
    Blocks b(*this, node);
    merge(node, b);
    weigh_actions(b);
    through_readout(node, b);
    through_actions(node, b, push_value(node, b));
    through_update(node, b);
    through_weights(b);
    through_forget(node, b);
  }

 private:
  // Where the parts of a row are: gates in the product, the rest in scratch memory.
  struct Blocks {
    Blocks(const StackTreeLSTM& of, const Node<T>& node) {
      const int64_t D = of.D;
      forget = node.products[0], gates = forget + node.arity * D, output = gates + of.num_actions * D, update = output + D;
      merged = node.scratch, d_merged = merged + of.S * D, weights = d_merged + of.S * D;
      d_weights = weights + kNumActions * D, vector = d_weights + kNumActions * D;
      const bool has[] = {true, of.has_pop, of.has_no_op};
      int64_t at = 0;
      for (int action = 0; action < kNumActions; ++action)
        if (has[action]) weight[action] = weights + at * D, d_weight[action] = d_weights + at * D, ++at;
    }
    T *forget, *gates, *output, *update, *merged, *d_merged, *weights, *d_weights, *vector;
    T *weight[kNumActions] = {}, *d_weight[kNumActions] = {};
  };

  // The children's stacks, each through its forget gate, as one.
  void merge(const Node<T>& node, Blocks& b) const {
    if (!node.arity) std::fill_n(b.merged, S * D, T(0));
    for (int64_t k = 0; k < node.arity; ++k)
      for (int64_t row = 0; row < S; ++row) {
        const T *f = b.forget + k * D, *of_child = node.children[1][k] + row * D;
        T* to = b.merged + row * D;
        if (k) {
          SIMD
          for (int64_t i = 0; i < D; ++i) to[i] += f[i] * of_child[i];
        } else {
          SIMD
          for (int64_t i = 0; i < D; ++i) to[i] = f[i] * of_child[i];
        }
      }
  }

  // The weights of the actions: the gates, or a softmax over them. Gates are below 1, so no exponential is large.
  void weigh_actions(Blocks& b) const {
    std::copy_n(b.gates, num_actions * D, b.weights);
    if (!normalized) return;
    T* total = b.vector;
    std::fill_n(total, D, T(0));
    for (int64_t at = 0; at < num_actions; ++at) {
      T* weight = b.weights + at * D;
      SIMD
      for (int64_t i = 0; i < D; ++i) weight[i] = exponential(weight[i]), total[i] += weight[i];
    }
    for (int64_t at = 0; at < num_actions; ++at) {
      T* weight = b.weights + at * D;
      SIMD
      for (int64_t i = 0; i < D; ++i) weight[i] /= total[i];
    }
  }

  // The update after its dropout.
  const T* push_value(const Node<T>& node, Blocks& b) const {
    if (!node.mask) return b.update;
    for (int64_t i = 0; i < D; ++i) b.vector[i] = b.update[i] * node.mask[i];
    return b.vector;
  }

  void through_readout(const Node<T>& node, Blocks& b) const {
    T *readout = b.vector, *d_readout = b.vector + D, *d_top = node.d_states[1];
    const T* d_h = node.d_states[0];
    std::copy_n(node.states[1], D, readout);
    activate(output_activation, readout, D);
    SIMD
    for (int64_t i = 0; i < D; ++i) {
      d_readout[i] = d_h[i] * b.output[i];
      b.output[i] = through_sigmoid(d_h[i] * readout[i], b.output[i]);
    }
    activate_backward(output_activation, readout, d_readout, D);
    add(d_top, d_readout, D);
  }

  // The gradients of the weights of the actions and of the merged stack.
  void through_actions(const Node<T>& node, Blocks& b, const T* pushed) const {
    std::fill_n(b.d_weights, num_actions * D, T(0));
    const T *push = b.weight[kPush], *pop = b.weight[kPop], *no_op = b.weight[kNoOp];
    T *d_push = b.d_weight[kPush], *d_pop = b.d_weight[kPop], *d_no_op = b.d_weight[kNoOp];
    for (int64_t row = 0; row < S; ++row) {
      const T *own = b.merged + row * D, *d_own = node.d_states[1] + row * D;
      const T *above = row ? own - D : pushed, *d_above = d_own - D, *d_below = d_own + D;
      T* d_merged = b.d_merged + row * D;
      SIMD
      for (int64_t i = 0; i < D; ++i) d_push[i] += d_own[i] * above[i];
      if (row + 1 < S) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_merged[i] = push[i] * d_below[i];
      } else {
        std::fill_n(d_merged, D, T(0));
      }
      if (no_op) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_merged[i] += no_op[i] * d_own[i], d_no_op[i] += d_own[i] * own[i];
      }
      if (pop && row) {
        SIMD
        for (int64_t i = 0; i < D; ++i) d_merged[i] += pop[i] * d_above[i], d_pop[i] += d_above[i] * own[i];
      }
    }
  }

  void through_update(const Node<T>& node, Blocks& b) const {
    const T *d_top = node.d_states[1], *push = b.weight[kPush];
    T* d_update = b.vector;
    for (int64_t i = 0; i < D; ++i) d_update[i] = d_top[i] * push[i] * (node.mask ? node.mask[i] : T(1));
    activate_backward(activation, b.update, d_update, D);
    std::copy_n(d_update, D, b.update);
  }

  // From the weights of the actions to the arguments of their gates.
  void through_weights(Blocks& b) const {
    if (normalized) {
      T* total = b.vector;
      std::fill_n(total, D, T(0));
      for (int64_t at = 0; at < num_actions; ++at) {
        T *weight = b.weights + at * D, *d_weight = b.d_weights + at * D;
        SIMD
        for (int64_t i = 0; i < D; ++i) total[i] += weight[i] * d_weight[i];
      }
      for (int64_t at = 0; at < num_actions; ++at) {
        T *weight = b.weights + at * D, *d_weight = b.d_weights + at * D;
        SIMD
        for (int64_t i = 0; i < D; ++i) d_weight[i] = weight[i] * (d_weight[i] - total[i]);
      }
    }
    SIMD
    for (int64_t i = 0; i < num_actions * D; ++i) b.gates[i] = through_sigmoid(b.d_weights[i], b.gates[i]);
  }

  void through_forget(const Node<T>& node, Blocks& b) const {
    for (int64_t k = 0; k < node.arity; ++k) {
      T *f = b.forget + k * D, *d_forget = b.vector, *d_child = node.d_children[1][k];
      std::fill_n(d_forget, D, T(0));
      for (int64_t row = 0; row < S; ++row) {
        const T *d_merged = b.d_merged + row * D, *of_child = node.children[1][k] + row * D;
        SIMD
        for (int64_t i = 0; i < D; ++i) d_forget[i] += d_merged[i] * of_child[i];
        if (!d_child) continue;
        T* to = d_child + row * D;
        SIMD
        for (int64_t i = 0; i < D; ++i) to[i] += d_merged[i] * f[i];
      }
      SIMD
      for (int64_t i = 0; i < D; ++i) f[i] = through_sigmoid(d_forget[i], f[i]);
    }
  }

  const int64_t D, S;
  const Activation activation, output_activation;
  const bool normalized, has_pop, has_no_op;
  const int64_t num_actions;
};

}  // namespace

LEVEL_OPERATION(StackTreeLSTM)
