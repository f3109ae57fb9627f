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

// The gradient of the argument of a sigmoid, from that of its value.
template <typename T>
inline T through_sigmoid(T gradient, T value) {
  return gradient * value * (T(1) - value);
}

}  // namespace
