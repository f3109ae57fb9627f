// The exponential function and its kin, in forms that vectorise.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)

namespace {

// e^x = power * (1 + rest), in a form that vectorises: `rest` is a Taylor polynomial of |x| <= log(2) / 2.
inline void split_exponential(float x, float& power, float& rest) {
  x = x < -87.f ? -87.f : x > 88.f ? 88.f : x;
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float y = 1.f / 5040;
  y = y * r + 1.f / 720, y = y * r + 1.f / 120, y = y * r + 1.f / 24, y = y * r + 1.f / 6, y = y * r + 0.5f;
  rest = (y * r + 1.f) * r;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;  // any for NaN: `rest` stays NaN
  std::memcpy(&power, &bits, sizeof power);
}
inline void split_exponential(double x, double& power, double& rest) {
  x = x < -708. ? -708. : x > 709. ? 709. : x;
  const double n = std::nearbyint(x * 1.4426950408889634);
  const double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  double y = 1. / 6227020800;
  y = y * r + 1. / 479001600, y = y * r + 1. / 39916800, y = y * r + 1. / 3628800, y = y * r + 1. / 362880;
  y = y * r + 1. / 40320, y = y * r + 1. / 5040, y = y * r + 1. / 720, y = y * r + 1. / 120, y = y * r + 1. / 24;
  y = y * r + 1. / 6, y = y * r + 0.5;
  rest = (y * r + 1.) * r;
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  std::memcpy(&power, &bits, sizeof power);
}

template <typename T>
inline T exponential(T x) {
  T power, rest;
  split_exponential(x, power, rest);
  return power + power * rest;
}

template <typename T>
inline T exponential_minus_one(T x) {
  T power, rest;
  split_exponential(x, power, rest);
  return power * rest + (power - T(1));
}

// e / (e + 2) with e = exp(2 x) - 1, exact near 0 too.
template <typename T>
inline T hyperbolic_tangent(T x) {
  const T e = exponential_minus_one(x > T(20) ? T(40) : T(2) * x);
  return e / (e + T(2));
}

template <typename T>
inline T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

}  // namespace
