// SPDX-License-Identifier: Apache-2.0
/* Where the tests of the CUDA kernels run them: on the emulator, or without TSR_EMULATED on the
 * first GPU of this machine. */
#ifndef TSR_TESTS_CUDA_HARDWARE_H
#define TSR_TESTS_CUDA_HARDWARE_H
#include <vector>

#if defined(TSR_EMULATED)

template <typename T> using device_vector = std::vector<T>;
static inline void finish_work(void) {}
static inline void run_backwards(bool backwards) { emulator::backwards = backwards; }
static inline void needs_architecture(int, int) {}

#else
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>

static inline void check_cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s\n", cudaGetErrorString(error));
  abort();
}

/* Memory that the host reaches, too. */
template <typename T> struct managed {
  typedef T value_type;
  managed() = default;
  template <typename U> managed(const managed<U> &) {}
  T *allocate(size_t n) {
    void *memory = nullptr;
    check_cuda(cudaMallocManaged(&memory, n * sizeof(T), cudaMemAttachGlobal));
    return (T *)memory;
  }
  void deallocate(T *memory, size_t) { check_cuda(cudaFree(memory)); }
  bool operator==(const managed &) const { return true; }
  bool operator!=(const managed &) const { return false; }
};
template <typename T> using device_vector = std::vector<T, managed<T>>;

static inline void finish_work(void) {
  check_cuda(cudaGetLastError());
  check_cuda(cudaDeviceSynchronize());
}
static inline void run_backwards(bool) {}

/* Tests that need a GPU are skipped where none is. */
static const bool has_device = [] {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  printf("skipped: no GPU\n");
  exit(77);
}();

/* Skips a test of kernels for one architecture on others. */
static inline void needs_architecture(int major, int minor) {
  cudaDeviceProp is;
  check_cuda(cudaGetDeviceProperties(&is, 0));
  if (is.major == major && is.minor == minor) return;
  printf("skipped: the GPU is sm_%d%d, not sm_%d%d\n", is.major, is.minor, major, minor);
  exit(77);
}

#endif
#endif
