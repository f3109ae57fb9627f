// The function of activation.h, for test_gelu.py.
#include "activation.h"
#include "errors.h"

extern "C" const char* run(const REAL* x, REAL* value, REAL* slope, int64_t count) {
  return error_of([&] {
    SIMD
    for (int64_t i = 0; i < count; ++i) value[i] = gelu(x[i], slope[i]);
  });
}
