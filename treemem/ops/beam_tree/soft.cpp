// The mean beam of OneSoft, forward and backward; the equations are those of soft.py.

#include <cstdint>

#include "errors.h"
#include "numerics.h"

extern "C" {

// As soft.py fills it in. Nodes and compositions are rows of `states`.
struct Problem {
  int64_t sequences, num_beams, num_pairs, hidden_size, num_threads;
  int64_t first;               // row of the first new node; each sequence has num_pairs rows
  const int64_t* own;          // how many pairs a sequence has, [sequences]
  const int64_t* nodes;        // [sequences, num_beams, num_pairs + 1]
  const int64_t* compositions; // [sequences, num_beams, num_pairs]
  const void* of_beam;         // [sequences, num_beams]
  const void* mix;             // of the composition and of the nodes on its left and right, [sequences, num_pairs, 3]
  void* states;
};

// Begin with 0, but for those of states.
struct Gradients {
  void *states, *of_beam, *mix;
};
}

namespace {

using T = REAL;

// Calls visit(beam, pair, rows of the three sources, row of the new node); returns what went wrong, or null.
template <class Visit>
const char* for_sources(const Problem& p, Visit visit) {
  const auto of_sequence = [&](int64_t sequence) {
    for (int64_t beam = 0; beam < p.num_beams; ++beam) {
      const int64_t at = sequence * p.num_beams + beam;
      const int64_t *node = p.nodes + at * (p.num_pairs + 1), *composition = p.compositions + at * p.num_pairs;
      for (int64_t pair = 0; pair < p.own[sequence]; ++pair) {
        const int64_t sources[] = {composition[pair], node[pair], node[pair + 1]};
        visit(at, sequence * p.num_pairs + pair, sources, p.first + sequence * p.num_pairs + pair);
      }
    }
  };
  return error_of([&] { parallel_for(p.num_threads, p.sequences, of_sequence); });
}

}  // namespace

extern "C" {
const char* forward(const Problem* p) {
  const int64_t D = p->hidden_size;
  T* states = static_cast<T*>(p->states);
  return for_sources(*p, [&](int64_t beam, int64_t pair, const int64_t* sources, int64_t row) {
    const T weight = static_cast<const T*>(p->of_beam)[beam], *mix = static_cast<const T*>(p->mix) + 3 * pair;
    T* to = states + row * D;
    const T *first = states + sources[0] * D, *second = states + sources[1] * D, *third = states + sources[2] * D;
    SIMD
    for (int64_t i = 0; i < D; ++i) to[i] += weight * (mix[0] * first[i] + mix[1] * second[i] + mix[2] * third[i]);
  });
}

const char* backward(const Problem* p, const Gradients* g) {
  const int64_t D = p->hidden_size;
  const T* states = static_cast<const T*>(p->states);
  T* d_states = static_cast<T*>(g->states);
  return for_sources(*p, [&](int64_t beam, int64_t pair, const int64_t* sources, int64_t row) {
    const NoSubnormals scope;
    const T weight = static_cast<const T*>(p->of_beam)[beam], *mix = static_cast<const T*>(p->mix) + 3 * pair;
    T *d_weight = static_cast<T*>(g->of_beam) + beam, *d_mix = static_cast<T*>(g->mix) + 3 * pair;
    const T* d_new = d_states + row * D;
    for (int64_t k = 0; k < 3; ++k) {
      const T agreement = dot(d_new, states + sources[k] * D, D), factor = weight * mix[k];
      *d_weight += mix[k] * agreement;
      d_mix[k] += weight * agreement;
      T* d_source = d_states + sources[k] * D;
      SIMD
      for (int64_t i = 0; i < D; ++i) d_source[i] += factor * d_new[i];
    }
  });
}
}
