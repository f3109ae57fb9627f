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

// exp(z^2) erfc(z) / t with t = 1 / (1 + z / 2), for z >= 0, as a Chebyshev series of 2 t - 1.
constexpr double kScaledErfc[] = {
    0.57703373861646968862, 0.35543692127049848731, 0.06509515882878652455, 0.0036711423958366391659,
    -0.0011128447433526324969, -0.00016075829915378079758, 0.000032780315741731370605, 5.4424416455050160333e-6,
    -1.5154665553171481622e-6, -1.4297608181169864917e-7, 8.234608827419493433e-8, -1.2962846852306562536e-9,
    -4.1547216310151983042e-9, 6.3470582783628111814e-10, 1.4320822712256223707e-10, -6.1603901052045855418e-11,
    2.0612138554721696306e-12, 3.571493148847704445e-12, -8.5864228432517964757e-13, -6.145600213790630554e-14,
    7.4187257485966170573e-14, -1.2895042755032325615e-14, -2.3587263857106323568e-15, 1.5729349381685911397e-15,
    -2.2782966239546465174e-16};

// erfc(z) for z >= 0, from e = exp(-z^2).
template <typename T>
inline T complementary_error(T z, T e) {
  constexpr int kTerms = sizeof(T) == sizeof(float) ? 11 : 25;
  const T t = T(1) / (T(1) + T(0.5) * z), s = T(2) * t - T(1);
  T first = 0, second = 0;
#pragma GCC unroll 25
  for (int k = kTerms - 1; k > 0; --k) {
    const T next = T(kScaledErfc[k]) + T(2) * s * first - second;
    second = first, first = next;
  }
  return e * t * (T(kScaledErfc[0]) + s * first - second);
}

template <typename T>
inline T error_function(T x) {
  const T rest = T(1) - complementary_error(T(std::fabs(x)), exponential(-x * x));
  return x < T(0) ? -rest : rest;
}

}  // namespace
