// The step of a cell for one row, as it is printed from the cell's formula: what it reads and writes.

#pragma once

#include <limits>

#include "exponentials.h"

namespace {

constexpr int kMostStates = 4, kMostProducts = 12;

// A row at its step. Pointers to gradients of children are never null.
template <typename T>
struct Row {
  T* products[kMostProducts];       // of the first copy; the forward pass leaves there what backward needs
  T* d_products[kMostProducts];     // the same place, unless the product is read again
  T* states[kMostStates];
  T* d_states[kMostStates];         // of the row
  T* const* children[kMostStates];  // by child
  T* const* d_children[kMostStates];  // to add to
  T *inputs, *d_inputs;             // of the product whose inputs are made
  T *features, *d_features;         // of the row; the latter to add to
  T* mask;                          // factors of dropout
  T* learned;
  T* d_learned;                     // to add to
  T* scratch;                       // as many vectors as the step says
};

// A row with the children that a driver sets.
template <typename T, int arity>
struct StepRow : Row<T> {
  T *child[kMostStates][arity], *d_child[kMostStates][arity];

  StepRow() : Row<T>() {
    for (int state = 0; state < kMostStates; ++state)
      this->children[state] = child[state], this->d_children[state] = d_child[state];
  }
  StepRow(const StepRow&) = delete;
};

// As torch: NaN if either is.
template <typename T>
inline T larger(T a, T b) {
  return a < b || b != b ? b : a;
}

template <typename T>
inline T smaller(T a, T b) {
  return a > b || b != b ? b : a;
}

template <typename T>
inline T sign(T x) {
  return x != x ? x : T(T(0) < x) - T(x < T(0));
}

}  // namespace

// A function of the printed cell, for the type that the compiler is told; and how many vectors of scratch they need.
#define EXPORT(name) \
  extern "C" void name##_row(const Row<REAL>* row, int64_t D) { name<REAL>(*row, D); }
#define SCRATCH(vectors) \
  extern "C" const char* count_scratch(int64_t* count) { return *count = vectors, nullptr; }
