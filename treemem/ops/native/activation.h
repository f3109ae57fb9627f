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

// exp(z^2) erfc(z) / t with t = 1 / (1 + z / 2), for z >= 0, as a Chebyshev series of 2 t - 1.
constexpr double kScaledErfc[] = {
    0.57703373861646968862, 0.35543692127049848731, 0.06509515882878652455, 0.0036711423958366391659,
    -0.0011128447433526324969, -0.00016075829915378079758, 0.000032780315741731370605, 5.4424416455050160333e-6,
    -1.5154665553171481622e-6, -1.4297608181169864917e-7, 8.234608827419493433e-8, -1.2962846852306562536e-9,
    -4.1547216310151983042e-9, 6.3470582783628111814e-10, 1.4320822712256223707e-10, -6.1603901052045855418e-11,
    2.0612138554721696306e-12, 3.571493148847704445e-12, -8.5864228432517964757e-13, -6.145600213790630554e-14,
    7.4187257485966170573e-14, -1.2895042755032325615e-14, -2.3587263857106323568e-15, 1.5729349381685911397e-15,
    -2.2782966239546465174e-16};

// x times the normal distribution function; `slope` becomes the derivative.
template <typename T>
inline T gelu(T x, T& slope) {
  constexpr int kTerms = sizeof(T) == sizeof(float) ? 11 : 25;
  const T e = exponential(T(-0.5) * x * x), z = std::fabs(x) * T(0.70710678118654752440);
  const T t = T(1) / (T(1) + T(0.5) * z), s = T(2) * t - T(1);
  T first = 0, second = 0;
#pragma GCC unroll 25
  for (int k = kTerms - 1; k > 0; --k) {
    const T next = T(kScaledErfc[k]) + T(2) * s * first - second;
    second = first, first = next;
  }
  const T tail = T(0.5) * e * t * (T(kScaledErfc[0]) + s * first - second);
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
