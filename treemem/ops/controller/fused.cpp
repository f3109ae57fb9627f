// Controllers without a memory.

#include "controller.h"

extern "C" {
struct Fields {};
struct MemoryGradients {};
}

namespace {

template <typename T, class Controller>
struct Nothing {
  struct Buffers {
    explicit Buffers(const Nothing&) {}
  };

  Nothing(const Problem&, const Fields&, const MemoryGradients*) {}

  void forward(Place, T*, T*, Buffers&) const {}
  void backward(Place, const T*, const T*, T*, Buffers&) const {}
};

}  // namespace

extern "C" {
RUNS(RNN, Nothing)
RUNS(LSTM, Nothing)
RUNS(GRU, Nothing)
}
