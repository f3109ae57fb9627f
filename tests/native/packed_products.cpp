// The products of packed.h, for test_matmul_precision.py.
#include "packed.h"

extern "C" const char* in_bfloat16(int* parts) {
  return error_of([&] {
    *parts = 0;
#ifdef BFLOAT16_PRODUCTS
    *parts = BFLOAT16_PARTS;
#endif
  });
}

extern "C" const char* multiply_float(int64_t rows, int64_t columns, int64_t depth, const float* x, int64_t x_stride,
                                      int64_t transposed, const float* weight, int64_t weight_stride, int64_t plain,
                                      float* c, int64_t stride, int64_t add) {
  return error_of([&] {
    const Packed<float> packed(depth, columns, weight, weight_stride, plain);
    multiply(rows, x, x_stride, bool(transposed), packed, 0, packed.panels(), c, stride, bool(add));
  });
}
