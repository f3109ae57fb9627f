// Activation functions of vectors, and their backward pass in terms of their values.

#pragma once

#include "numerics.h"

namespace {

// By their numbers in activation.py.
enum class Activation : int64_t { kSigmoid, kTanh, kRelu, kElu };

template <typename T>
void sigmoid(T* values, int64_t count) {
  SIMD
  for (int64_t i = 0; i < count; ++i) values[i] = sigmoid(values[i]);
}

template <typename T>
void activate(Activation function, T* values, int64_t count) {
  switch (function) {
    case Activation::kSigmoid: sigmoid(values, count); break;
    case Activation::kTanh:
      SIMD
      for (int64_t i = 0; i < count; ++i) values[i] = hyperbolic_tangent(values[i]);
      break;
    case Activation::kRelu:
      SIMD
      for (int64_t i = 0; i < count; ++i) values[i] = values[i] < T(0) ? T(0) : values[i];
      break;
    case Activation::kElu:
      SIMD
      for (int64_t i = 0; i < count; ++i) values[i] = values[i] > T(0) ? values[i] : exponential_minus_one(values[i]);
  }
}

// Multiplies gradients of the values by the derivative.
template <typename T>
void activate_backward(Activation function, const T* values, T* gradient, int64_t count) {
  switch (function) {
    case Activation::kSigmoid:
      SIMD
      for (int64_t i = 0; i < count; ++i) gradient[i] *= values[i] * (T(1) - values[i]);
      break;
    case Activation::kTanh:
      SIMD
      for (int64_t i = 0; i < count; ++i) gradient[i] *= T(1) - values[i] * values[i];
      break;
    case Activation::kRelu:
      SIMD
      for (int64_t i = 0; i < count; ++i) gradient[i] = values[i] > T(0) ? gradient[i] : T(0);
      break;
    case Activation::kElu:
      SIMD
      for (int64_t i = 0; i < count; ++i) gradient[i] *= values[i] > T(0) ? T(1) : values[i] + T(1);
  }
}

// x times the normal distribution function; `slope` becomes the derivative.
template <typename T>
inline T gelu(T x, T& slope) {
  const T e = exponential(T(-0.5) * x * x);
  const T tail = T(0.5) * complementary_error(std::fabs(x) * T(0.70710678118654752440), e);
  const T share = x < T(0) ? tail : T(1) - tail;
  slope = share + x * e * T(0.39894228040143267794);
  return x * share;
}

// GELU or ReLU in place; `slope`, unless it is null, becomes the derivative.
template <typename T>
void activate_hidden(bool is_gelu, T* values, T* slope, int64_t count) {
  if (is_gelu && slope) {
    SIMD
    for (int64_t i = 0; i < count; ++i) values[i] = gelu(values[i], slope[i]);
  } else if (is_gelu) {
    SIMD
    for (int64_t i = 0; i < count; ++i) {
      T unused;
      values[i] = gelu(values[i], unused);
    }
  } else {
    for (int64_t i = 0; slope && i < count; ++i) slope[i] = values[i] > T(0) ? T(1) : T(0);
    activate(Activation::kRelu, values, count);
  }
}

// The gradient of the argument of a sigmoid, from that of its value.
template <typename T>
inline T through_sigmoid(T gradient, T value) {
  return gradient * value * (T(1) - value);
}

}  // namespace
