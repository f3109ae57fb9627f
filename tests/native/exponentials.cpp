// The exponential and the hyperbolic tangent of numerics.h, for test_native.py: a program that stops at undefined
// behaviour, or if a value is wrong.
#include <limits>

#include "numerics.h"

template <typename T>
bool is_right() {
  const T infinite = std::numeric_limits<T>::infinity(), values[] = {-infinite, -1e4, -1, 0, 1, 1e4, infinite, NAN};
  for (T x : values) {
    const T found = exponential(x), expected = std::exp(x);
    const bool is_bounded = std::fabs(x) > 100;  // instead of 0 or infinity
    if (std::isnan(x) ? !std::isnan(found) : !is_bounded && std::fabs(found - expected) > T(1e-6) * expected) return false;
    const T tangent = hyperbolic_tangent(x);
    if (std::isnan(x) ? !std::isnan(tangent) : !(std::fabs(tangent - std::tanh(x)) <= T(1e-6))) return false;
    if (is_bounded && !(x > 0 ? found > T(1e30) : found < T(1e-30))) return false;
  }
  return true;
}

int main() { return is_right<float>() && is_right<double>() ? 0 : 1; }
