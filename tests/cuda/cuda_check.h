// SPDX-License-Identifier: Apache-2.0
/* What the tests of the CUDA kernels share. A kernel is called several times: with arrays that are
 * aligned and arrays that are not, by the emulator with threads and blocks upwards and downwards.
 * All must give the same bits, leave what lies around arrays and in inputs alone, and be near the
 * CPU's kernels. Without TSR_EMULATED they are called on the first GPU of this machine (label
 * gpu). */
#ifndef TSR_TESTS_CUDA_CHECK_H
#define TSR_TESTS_CUDA_CHECK_H
#include "../check.h"
extern "C" {
#include "kernels/kernels.h"
}
#include "hardware.h"
#include "kernels/cuda/kernels.h"
#include <deque>
#include <functional>
#include <string>
#include <vector>

typedef std::vector<float> numbers;
typedef std::vector<int32_t> integers;

static const tsr_kernels *const cpu = tsr_kernels_get("x86-64");
static const tsr_cuda_type types[] = {TSR_CUDA_F32, TSR_CUDA_BF16, TSR_CUDA_F16};
/* of rows: without packs, with them, one and several warps */
static const int64_t odd_sizes[] = {1, 31, 33, 257, 1000, 64, 776, 4104};

static uint64_t check_state = 88172645463325252u;

static inline uint64_t check_random(void) { /* xorshift */
  check_state ^= check_state << 13;
  check_state ^= check_state >> 7;
  return check_state ^= check_state << 17;
}

static inline numbers random_numbers(int64_t n, float size) {
  numbers x((size_t)n);
  for (float &v : x) v = (float)((double)(check_random() >> 40) * 0x1p-23 - 1) * size;
  return x;
}

static inline size_t type_bytes(tsr_cuda_type type) { return type == TSR_CUDA_F32 ? 4 : 2; }

/* In that type, by the CPU's conversions. */
static inline void numbers_put(tsr_cuda_type type, void *to, const numbers &x) {
  int64_t n = (int64_t)x.size();
  if (n == 0) return;
  if (type == TSR_CUDA_F32) memcpy(to, x.data(), x.size() * 4);
  else if (type == TSR_CUDA_BF16) cpu->f32_to_bf16((uint16_t *)to, x.data(), 0, n);
  else cpu->f32_to_fp16((uint16_t *)to, x.data(), 0, n);
}

static inline numbers numbers_get(tsr_cuda_type type, const void *from, int64_t n) {
  numbers x((size_t)n);
  if (n == 0) return x;
  if (type == TSR_CUDA_F32) memcpy(x.data(), from, x.size() * 4);
  else if (type == TSR_CUDA_BF16) cpu->bf16_to_f32(x.data(), (const uint16_t *)from, 0, n);
  else cpu->fp16_to_f32(x.data(), (const uint16_t *)from, 0, n);
  return x;
}

static inline numbers rounded(tsr_cuda_type type, const numbers &x) {
  std::vector<uint32_t> words(x.size());
  numbers_put(type, words.data(), x);
  return numbers_get(type, words.data(), (int64_t)x.size());
}

enum { GUARD = 64 };

struct array {
  device_vector<unsigned char> memory;
  std::vector<unsigned char> before;
  unsigned char *data;
  size_t bytes;
  int64_t n;
  tsr_cuda_type type;
  bool is_output, is_scratch;
};

/* One call's arrays, `shift` elements behind an alignment to 16 bytes. */
struct call_arrays {
  int64_t shift;
  std::deque<array> all;

  array *add(int64_t n, size_t element, const void *values) {
    all.emplace_back();
    array *a = &all.back();
    a->bytes = (size_t)n * element;
    a->memory.assign(a->bytes + 2 * GUARD + 32, 0xFF); /* a NaN in every type */
    uintptr_t at = ((uintptr_t)a->memory.data() + GUARD + 15) / 16 * 16;
    a->data = (unsigned char *)at + (size_t)shift * element;
    if (values && n) memcpy(a->data, values, a->bytes);
    a->before.assign(a->memory.begin(), a->memory.end());
    a->n = n;
    a->type = TSR_CUDA_F32;
    a->is_output = a->is_scratch = false;
    return a;
  }
  void *in(tsr_cuda_type type, const numbers &x) {
    array *a = add((int64_t)x.size(), type_bytes(type), NULL);
    numbers_put(type, a->data, x);
    a->before.assign(a->memory.begin(), a->memory.end());
    a->type = type;
    return a->data;
  }
  float *in(const numbers &x) { return (float *)in(TSR_CUDA_F32, x); }
  float *one(float x) { return in(numbers(1, x)); }
  int32_t *in(const integers &x) { return (int32_t *)add((int64_t)x.size(), 4, x.data())->data; }
  void *out(tsr_cuda_type type, int64_t n) {
    array *a = add(n, type_bytes(type), NULL);
    a->type = type;
    a->is_output = true;
    return a->data;
  }
  float *out(int64_t n) { return (float *)out(TSR_CUDA_F32, n); }
  void *changed(tsr_cuda_type type, const numbers &x) {
    void *data = in(type, x);
    all.back().is_output = true;
    return data;
  }
  float *changed(const numbers &x) { return (float *)changed(TSR_CUDA_F32, x); }
  void *scratch(int64_t bytes) {
    int64_t kept = shift;
    shift = 0;
    array *a = add(bytes, 1, NULL);
    shift = kept;
    a->is_output = a->is_scratch = true;
    return a->data;
  }
  uint64_t *key(uint64_t key) { return (uint64_t *)add(1, 8, &key)->data; }
};

static inline bool array_intact(const array *a) {
  size_t first = (size_t)(a->data - a->memory.data()), end = first + a->bytes;
  for (size_t i = 0; i < a->memory.size(); i++)
    if ((!a->is_output || i < first || i >= end) && a->memory[i] != a->before[i]) return false;
  return true;
}

/* The outputs, in the order in which the call asked for them. */
template <typename CALL> static std::vector<numbers> run_all(const char *what, CALL call) {
  std::vector<std::vector<unsigned char>> first;
  std::vector<numbers> outputs;
  for (int pass = 0; pass < 4; pass++) {
    call_arrays arrays;
    arrays.shift = pass / 2;
    run_backwards(pass % 2);
    call(arrays);
    finish_work();
    size_t output = 0;
    for (const array &a : arrays.all) {
      CHECK_AT(array_intact(&a), "%s: wrote where it may not, pass %d", what, pass);
      if (!a.is_output || a.is_scratch) continue;
      std::vector<unsigned char> bytes(a.data, a.data + a.bytes);
      if (pass == 0) first.push_back(bytes), outputs.push_back(numbers_get(a.type, a.data, a.n));
      else
        CHECK_AT(
            bytes == first[output], "%s: output %d has other bits, pass %d", what, (int)output,
            pass);
      output++;
    }
  }
  run_backwards(false);
  return outputs;
}

/* f32: relative to the largest element; the others by the norm of the difference. */
static inline void check_near(
    const char *what, tsr_cuda_type type, const numbers &got, const numbers &want,
    double relative = 1e-5) {
  double most = 0, apart = 0, squares = 0, squares_apart = 0;
  size_t at = 0;
  for (size_t i = 0; i < want.size(); i++) {
    double d = fabs((double)got[i] - want[i]);
    if (std::isnan(got[i]) != std::isnan(want[i])) d = INFINITY;
    else if (std::isnan(want[i]) || got[i] == want[i]) d = 0;
    if (d > apart) apart = d, at = i;
    squares_apart += d * d;
    if (!std::isfinite(want[i])) continue;
    most = fmax(most, fabs((double)want[i]));
    squares += (double)want[i] * want[i];
  }
  bool ok = type == TSR_CUDA_F32 ? apart <= relative * most
                                 : squares_apart <= 1e-4 * squares || apart < 1e-6;
  CHECK_AT(
      got.size() == want.size() && ok, "%s, type %d, n %d: at %d %.9g, not %.9g", what, (int)type,
      (int)want.size(), (int)at, (double)got[at], (double)want[at]);
}

/* The same bits. */
static inline void check_same(const char *what, const numbers &got, const numbers &want) {
  size_t at = 0;
  CHECK_INT(got.size(), want.size());
  while (at < want.size() && !memcmp(&got[at], &want[at], 4)) at++;
  CHECK_AT(
      at == want.size(), "%s, n %d: at %d %.9g, not %.9g", what, (int)want.size(), (int)at,
      (double)got[at], (double)want[at]);
}

static inline numbers part(const numbers &x, int64_t first, int64_t n) {
  return numbers(x.begin() + first, x.begin() + first + n);
}

#endif
