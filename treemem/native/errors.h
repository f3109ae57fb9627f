// How exceptions of C++ reach Python. An exported function returns null, or a text that says what went wrong, from which
// native/__init__.py makes an error. An exception that leaves an exported function, or a parallel region, ends the process.

#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>

namespace {

// Runs a function; returns what it threw as a text, or null.
template <class Function>
const char* error_of(Function function) noexcept {
  try {
    function();
    return nullptr;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // of a vector: no memory has so much room
  } catch (const std::exception& error) {
    thread_local char text[200];
    std::snprintf(text, sizeof text, "%s", error.what());
    return text;
  }
  return "out of memory";
}

// The first exception of several threads.
class Errors {
 public:
  // Runs a function unless one has thrown. A thread whose work is skipped still meets the others at each barrier.
  template <class Function>
  void run(Function function) noexcept {
    if (thrown.load(std::memory_order_relaxed)) return;
    try {
      function();
    } catch (...) {
      if (!thrown.exchange(true)) first = std::current_exception();
    }
  }
  // After the parallel region.
  void rethrow() const {
    if (first) std::rethrow_exception(first);
  }

 private:
  std::atomic<bool> thrown{false};
  std::exception_ptr first;
};

// Calls function(0), ..., function(count - 1) on several threads. Each takes every n-th one.
template <class Function>
void parallel_for(int64_t threads, int64_t count, Function function) {
  Errors errors;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int64_t at = 0; at < count; ++at) errors.run([&] { function(at); });
  errors.rethrow();
}

// Calls function(errors) on several threads. If it waits for the others, it must do the rest by errors.run. One thread
// makes no parallel region: within it, BLAS would start threads of its own anew for each product.
template <class Function>
void on_threads(int64_t count, Function function) {
  Errors errors;
  if (count == 1) {
    function(errors);
  } else {
#pragma omp parallel num_threads(count)
    errors.run([&] { function(errors); });
  }
  errors.rethrow();
}

}  // namespace

// Exports a run that is made of a problem and has forward() and backward(gradients).
#define EXPORT_RUN(Run)                                                                \
  extern "C" {                                                                         \
  const char* forward(const Problem* problem) {                                        \
    return error_of([&] { Run{*problem}.forward(); });                                 \
  }                                                                                    \
  const char* backward(const Problem* problem, const Gradients* gradients) {           \
    return error_of([&] { Run{*problem}.backward(*gradients); });                      \
  }                                                                                    \
  }

// The same of a run that is kept between both. If forward() returns false, `state` becomes null. The backward pass gets
// the same tensors, which may lie elsewhere now.
#define EXPORT_KEPT(Run)                                                                  \
  extern "C" {                                                                            \
  const char* forward(const Problem* problem, void** state) {                             \
    return error_of([&] {                                                                 \
      auto run = std::make_unique<Run>(*problem);                                         \
      *state = run->forward() ? run.release() : nullptr;                                  \
    });                                                                                   \
  }                                                                                       \
  const char* backward(void* state, const Problem* problem, const Gradients* gradients) { \
    return error_of([&] {                                                                 \
      static_cast<Run*>(state)->problem = *problem;                                       \
      static_cast<Run*>(state)->backward(*gradients);                                     \
    });                                                                                   \
  }                                                                                       \
  const char* release(void* state) {                                                      \
    return error_of([&] { delete static_cast<Run*>(state); });                            \
  }                                                                                       \
  }
