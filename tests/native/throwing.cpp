// Functions that throw, for test_native.py.
#include <omp.h>

#include <vector>

#include "blas.h"
#include "errors.h"
#include "numerics.h"

extern "C" {
const char* twice(int64_t* number) {
  return error_of([&] { *number *= 2; });
}
const char* out_of_memory(int64_t how) {
  return error_of([&] {
    Arena arena;
    if (how == 0) throw std::bad_alloc();
    if (how == 1) Buffer<double>(int64_t(1) << 50);
    if (how == 2) Buffer<double>(-1);
    if (how == 3) arena.take<double>(int64_t(1) << 60);
    if (how == 4) std::vector<double>(size_t(1) << 62);
    if (how == 5) Buffer<double>().at_least(int64_t(1) << 50);
  });
}
const char* on_a_thread(int64_t threads, int64_t* passed) {
  return error_of([&] {
    on_threads(threads, [&](Errors& errors) {
      for (int64_t step = 0; step < 5; ++step) {
        errors.run([&] {
          if (step == 2 && omp_get_thread_num() == omp_get_num_threads() - 1) throw std::bad_alloc();
        });
#pragma omp barrier
      }
#pragma omp atomic
      ++*passed;
    });
  });
}
const char* in_a_loop(int64_t threads, int64_t count) {
  return error_of([&] {
    parallel_for(threads, count, [](int64_t at) {
      if (at == 3) throw std::overflow_error("three is too many");
    });
  });
}
const char* wide_product() {
  return error_of([&] { gemm_columns<double>(nullptr, 'N', 'N', 1, 1, int64_t(1) << 31, nullptr, 1, nullptr, 1, 0, nullptr, 1); });
}
}
