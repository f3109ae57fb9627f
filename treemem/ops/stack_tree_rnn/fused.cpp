// The step of a Tree-RNN with a stack that reads its children's tops, forward and backward; the equations are those of
// step.py.

#include "activation.h"
#include "levels.h"

namespace {

enum Action { kPush, kPop, kNoOp };

// Its products are hidden; control, with the blocks update and actions; and rows, with a block for each action.
template <typename T>
class StackTreeRNN {
 public:
  explicit StackTreeRNN(const Problem& p)
      : D(p.hidden_size), S(p.options[0]), activation(Activation(p.options[1])), num_actions(2 + p.options[2]),
        num_popped(S - 1 + p.options[3]) {}
  int64_t scratch() const { return 0; }

  // Turns the products into their values.
  void forward(Node<T>& node) const {
    T *hidden = node.products[0], *update = node.products[1], *action = update + D, *rows = node.products[2];
    T *h = node.states[0], *stack = node.states[1];
    activate(activation, hidden, D);
    for (int64_t i = 0; i < D; ++i) h[i] = node.mask ? hidden[i] * node.mask[i] : hidden[i];
    sigmoid(update, D);
    sigmoid(rows, (num_popped + 1) * num_actions * D);
    weigh_actions(action);
    for (int64_t row = 0; row < S; ++row) {
      T* to = stack + row * D;
      const T* pushed = row ? mapped(rows, row - 1, kPush) : update;
      SIMD
      for (int64_t i = 0; i < D; ++i) to[i] = action[kPush] * pushed[i];
      if (row < num_popped) add_scaled(to, mapped(rows, row + 1, kPop), action[kPop]);
      if (num_actions > kNoOp) add_scaled(to, mapped(rows, row, kNoOp), action[kNoOp]);
    }
  }

  // Turns the values into the gradients of the products.
  void backward(Node<T>& node) const {
    T *hidden = node.products[0], *update = node.products[1], *action = update + D, *rows = node.products[2];
    T *d_h = node.d_states[0], *d_stack = node.d_states[1];
    if (node.mask)
      for (int64_t i = 0; i < D; ++i) d_h[i] *= node.mask[i];
    activate_backward(activation, hidden, d_h, D);
    std::copy_n(d_h, D, hidden);
    T d_action[3] = {through_row(update, d_stack, action[kPush]), T(0), T(0)};
    for (int64_t row = 0; row <= num_popped; ++row) {
      through_or_clear(row + 1 < S, mapped(rows, row, kPush), d_stack + (row + 1) * D, action[kPush], d_action[kPush]);
      through_or_clear(row > 0, mapped(rows, row, kPop), d_stack + (row - 1) * D, action[kPop], d_action[kPop]);
      if (num_actions > kNoOp)
        through_or_clear(row < S, mapped(rows, row, kNoOp), d_stack + row * D, action[kNoOp], d_action[kNoOp]);
    }
    T total = 0;
    for (int64_t at = 0; at < num_actions; ++at) total += action[at] * d_action[at];
    for (int64_t at = 0; at < num_actions; ++at) action[at] *= d_action[at] - total;
  }

 private:
  T* mapped(T* rows, int64_t row, int64_t action) const { return rows + (row * num_actions + action) * D; }

  // A softmax.
  void weigh_actions(T* action) const {
    const T most = *std::max_element(action, action + num_actions);
    T total = 0;
    for (int64_t at = 0; at < num_actions; ++at) action[at] = exponential(action[at] - most), total += action[at];
    for (int64_t at = 0; at < num_actions; ++at) action[at] /= total;
  }

  void add_scaled(T* to, const T* from, T weight) const {
    SIMD
    for (int64_t i = 0; i < D; ++i) to[i] += weight * from[i];
  }

  // Turns the value of a row, which went into the stack with a weight, into the gradient of its argument. Returns the
  // gradient of the weight.
  T through_row(T* value, const T* d_stack, T weight) const {
    T d_weight = 0;
    SIMD_SUM(d_weight)
    for (int64_t i = 0; i < D; ++i) {
      d_weight += d_stack[i] * value[i];
      value[i] = through_sigmoid(weight * d_stack[i], value[i]);
    }
    return d_weight;
  }

  // The same, or 0 for a row that went nowhere.
  void through_or_clear(bool is_used, T* value, const T* d_stack, T weight, T& d_weight) const {
    if (is_used) d_weight += through_row(value, d_stack, weight);
    else std::fill_n(value, D, T(0));
  }

  const int64_t D, S;
  const Activation activation;
  const int64_t num_actions, num_popped;
};

}  // namespace

LEVEL_OPERATION(StackTreeRNN)
