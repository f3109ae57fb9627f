// Activation functions of hidden layers, with their derivatives.

#pragma once

#include "numerics.h"

namespace {

// x times the normal distribution function; `slope` becomes the derivative.
template <typename T>
inline T gelu(T x, T& slope) {
  const T e = exponential(T(-0.5) * x * x);
  const T tail = T(0.5) * complementary_error(std::fabs(x) * T(0.70710678118654752440), e);
  const T share = x < T(0) ? tail : T(1) - tail;
  slope = share + x * e * T(0.39894228040143267794);
  return x * share;
}

// GELU or ReLU in place; `slope` becomes the derivative.
template <typename T>
void activate_hidden(bool is_gelu, T* values, T* slope, int64_t count) {
  if (is_gelu) {
    SIMD
    for (int64_t i = 0; i < count; ++i) values[i] = gelu(values[i], slope[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) slope[i] = values[i] > T(0) ? T(1) : T(0);
    for (int64_t i = 0; i < count; ++i) values[i] = values[i] < T(0) ? T(0) : values[i];
  }
}

}  // namespace
