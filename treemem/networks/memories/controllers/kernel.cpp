// Controllers without a memory.

#include "controller.h"

// Both are declared in run.py.
struct Fields { FIELDS };
struct MemoryGradients { MEMORY_GRADIENTS };

namespace {

struct Nothing {
  struct Buffers {
    explicit Buffers(const Nothing&) {}
  };

  Nothing(const Problem&, const Fields&, const MemoryGradients*) {}

  void forward(Place, T*, T*, Buffers&) const {}
  void backward(Place, const T*, const T*, T*, Buffers&) const {}
};

}  // namespace

RUN(Nothing)
