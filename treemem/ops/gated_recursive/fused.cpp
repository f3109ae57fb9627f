// The step of a gated recursive cell over the levels of a schedule.

#include "gated_step.h"
#include "levels.h"

namespace {

// Its second product has the blocks of the step; the first one is hidden. It keeps the normalized sum and the factor of the
// normalization.
template <typename T>
class GatedRecursive {
 public:
  explicit GatedRecursive(const Problem& p) : D(p.hidden_size), step(D, p.learned[0], p.learned[1]) {}
  int64_t scratch() const { return D; }

  void forward(Node<T>& node) const {
    T* normed = node.kept ? node.kept : node.scratch;
    const T scale = step.forward(node.arity, node.children[0].data(), node.products[1], normed, node.states[0]);
    if (node.kept) node.kept[D] = scale;
  }

  void backward(Node<T>& node) const {
    step.backward(node.arity, node.children[0].data(), node.products[1], node.kept, node.kept[D], node.d_states[0],
                  node.d_children[0].data(), node.d_learned, node.scratch);
  }

 private:
  const int64_t D;
  const GatedStep<T> step;
};

}  // namespace

LEVEL_OPERATION(GatedRecursive)
