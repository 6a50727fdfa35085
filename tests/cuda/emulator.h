// SPDX-License-Identifier: Apache-2.0
/* Runs CUDA kernels on the CPU, for tests: a .cu file is compiled as C++ with this header before
 * it.
 *
 * Blocks run one after the other. A block's threads are fibers, which run until they wait: at
 * __syncthreads for the block, at __syncwarp and in the exchanges of a warp (__shfl_xor_sync) for
 * the lanes of their mask, and for what units beside the threads do (tma.h). A wait that would never
 * end, or that a GPU leaves undefined, stops the program with the place: a thread that has ended
 * while others wait for it, threads of a block that wait at different lines, lanes with different
 * masks, a launch that no GPU would take.
 *
 * Shared memory (`__shared__` variables, and launch.cuh's TSR_SHARED) is all ones, a NaN, when a
 * block begins, and nothing may be written behind what a launch asked for. Threads and blocks run
 * upwards or, where `emulator::backwards` is set, downwards: a kernel whose result depends on that
 * lacks a barrier, or lets its blocks touch one another. */
#ifndef TSR_TESTS_CUDA_EMULATOR_H
#define TSR_TESTS_CUDA_EMULATOR_H
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <link.h>
#include <map>
#include <sys/mman.h>
#include <vector>
#include "stack_switch.h"

struct CUstream_st;
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace emulator {

enum { THREADS_MAX = 1024, WARP = 32, STACK = 256 << 10, SHARED_MAX = 227 << 10, GUARD = 1024 };
enum wait_kind { READY, AT_BLOCK, AT_WARP, AT_EVENT, ENDED };

struct fiber {
  stack_context stack;
  wait_kind wait;
  unsigned mask;    /* AT_WARP: the lanes that must come */
  int line, parity; /* where it waits; which of the two exchange buffers is next */
  const std::function<bool()> *event; /* AT_EVENT: whether it has come */
};

/* What works beside the threads of a block: `pass` does a piece of it when all threads wait, and
 * returns false when nothing is left; `end` checks that nothing is. */
struct unit {
  void (*begin)();
  bool (*pass)();
  void (*end)();
};
inline std::vector<unit> &units() {
  static std::vector<unit> all;
  return all;
}

inline bool backwards = false;
inline fiber fibers[THREADS_MAX];
inline stack_context home;
inline int current, threads, at_events; /* threads AT_EVENT */
inline unsigned long runs, sweeps;      /* of fibers, and over all warps, so far */
inline unsigned long barriers;          /* of blocks that all threads passed, so far */
inline size_t shared_size;              /* of the block, dynamic */
inline const std::function<void()> *body;
inline uint64_t exchange[2][THREADS_MAX];
alignas(128) inline unsigned char dynamic_shared[SHARED_MAX + GUARD];

[[noreturn]] inline void fail(const char *what, int thread, int line) {
  fprintf(
      stderr, "emulator: %s: thread %d of block (%u, %u, %u), line %d\n", what, thread, blockIdx.x,
      blockIdx.y, blockIdx.z, line);
  abort();
}

inline void *shared() { return dynamic_shared; }

/* `__shared__` variables are thread_local: those of this program, or plugin, lie in one piece. */
inline int poison_variables(dl_phdr_info *program, size_t, void *) {
  const ElfW(Phdr) *variables = nullptr;
  bool own = false;
  for (int i = 0; i < program->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &program->dlpi_phdr[i];
    uintptr_t begin = program->dlpi_addr + p->p_vaddr, here = (uintptr_t)&home;
    if (p->p_type == PT_LOAD) own |= here >= begin && here - begin < p->p_memsz;
    if (p->p_type == PT_TLS) variables = p;
  }
  if (own && variables && program->dlpi_tls_data)
    memset(program->dlpi_tls_data, 0xFF, variables->p_memsz);
  return own;
}

inline void poison_shared(size_t bytes) {
  dl_iterate_phdr(poison_variables, nullptr);
  memset(dynamic_shared, 0xFF, bytes + GUARD);
}

inline void check_guard(size_t bytes) {
  for (int i = 0; i < GUARD; i++)
    if (dynamic_shared[bytes + i] != 0xFF) fail("wrote behind its shared memory", 0, 0);
}

inline void fiber_main() {
  (*body)();
  fibers[current].wait = ENDED;
  switch_stack(&fibers[current].stack, &home);
}

inline void fiber_start(int t) {
  static char *stacks = nullptr;
  if (!stacks)
    stacks = (char *)mmap(
        nullptr, (size_t)THREADS_MAX * STACK, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) abort();
  fiber *f = &fibers[t];
  f->wait = READY;
  f->parity = 0;
  stack_begin(&f->stack, stacks + (size_t)t * STACK, STACK, fiber_main);
}

inline void fiber_run(int t) {
  unsigned x = (unsigned)t, width = blockDim.x, height = blockDim.y;
  current = t;
  runs++;
  threadIdx = {x % width, x / width % height, x / width / height};
  switch_stack(&home, &fibers[t].stack);
}

inline void wait_for(wait_kind kind, unsigned mask, int line) {
  fiber *f = &fibers[current];
  f->wait = kind;
  f->mask = mask;
  f->line = line;
  switch_stack(&f->stack, &home);
}

inline void wait_until(const std::function<bool()> &event, int line) {
  fibers[current].event = &event;
  while (!event()) {
    at_events++;
    wait_for(AT_EVENT, 0, line);
    at_events--;
  }
}

/* Lets all other warps go on as far as they can. */
inline void let_others_run(int line) {
  unsigned long now = sweeps;
  wait_until([=]() { return sweeps > now; }, line);
}

/* Whether all lanes that thread t waits for have come. */
inline bool warp_is_there(int t) {
  int first = t / WARP * WARP;
  if (!(fibers[t].mask >> (t - first) & 1)) fail("its mask is without it", t, fibers[t].line);
  for (int lane = 0; lane < WARP; lane++) {
    if (!(fibers[t].mask >> lane & 1)) continue;
    const fiber *f = &fibers[first + lane];
    if (first + lane >= threads) fail("waits for a lane that is not", t, fibers[t].line);
    if (f->wait == ENDED) fail("waits for a lane that has ended", t, fibers[t].line);
    if (f->wait != AT_WARP) return false;
    if (f->mask != fibers[t].mask || f->line != fibers[t].line)
      fail("waits for a lane that waits elsewhere", t, fibers[t].line);
  }
  return true;
}

inline bool release_warp(int first) {
  bool released = false;
  for (int t = first; t < first + WARP && t < threads; t++) {
    if (fibers[t].wait != AT_WARP || !warp_is_there(t)) continue;
    unsigned mask = fibers[t].mask;
    for (int lane = 0; lane < WARP; lane++)
      if (mask >> lane & 1) fibers[first + lane].wait = READY;
    released = true;
  }
  return released;
}

/* A warp goes on until it waits for the others, so that it is as far ahead of them as it can be. */
inline int warp_run(int first) {
  int ended = 0, lanes = threads - first < WARP ? threads - first : (int)WARP;
  do
    for (int i = 0; i < lanes; i++) {
      int t = first + (backwards ? lanes - 1 - i : i);
      if (fibers[t].wait == AT_EVENT && (*fibers[t].event)()) fibers[t].wait = READY;
      if (fibers[t].wait != READY) continue;
      fiber_run(t);
      ended += fibers[t].wait == ENDED;
    }
  while (release_warp(first));
  return ended;
}

inline void release_block() {
  int waiting = 0;
  for (int t = 0; t < threads; t++)
    if (fibers[t].wait == AT_EVENT) fail("waits for ever", t, fibers[t].line);
  while (fibers[waiting].wait != AT_BLOCK)
    if (++waiting == threads) fail("waits for ever", 0, fibers[0].line);
  for (int t = 0; t < threads; t++) {
    if (fibers[t].wait == ENDED) fail("has ended, others wait for it", t, fibers[waiting].line);
    if (fibers[t].wait != AT_BLOCK || fibers[t].line != fibers[waiting].line)
      fail("waits elsewhere than the block", t, fibers[t].line);
  }
  for (int t = 0; t < threads; t++) fibers[t].wait = READY;
  barriers++;
}

inline bool units_pass() {
  for (const unit &u : units())
    if (u.pass()) return true;
  return false;
}

/* While threads wait for events, warps and units go on; the block's barrier is next when none can.
 */
inline void block_run() {
  int ended = 0, warps = (threads + WARP - 1) / WARP;
  at_events = 0;
  for (const unit &u : units()) u.begin();
  for (int t = 0; t < threads; t++) fiber_start(t);
  for (;;) {
    unsigned long before = runs;
    sweeps++;
    for (int i = 0; i < warps; i++) ended += warp_run((backwards ? warps - 1 - i : i) * WARP);
    if (ended == threads) break;
    if (at_events && (runs != before || units_pass())) continue;
    release_block();
  }
  for (const unit &u : units()) u.end();
}

/* Begins work on a stream: the runtime (emulated/runtime.cc) does it when the stream's order
 * allows. Without a runtime it is done at once. */
inline void (*begins)(CUstream_st *stream, const char *what, const std::function<void()> &work) =
    nullptr;
inline void begin(CUstream_st *stream, const char *what, const std::function<void()> &work) {
  if (begins) begins(stream, what, work);
  else work();
}

/* `call` is one thread's call of the kernel. */
inline void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &call) {
  uint64_t size = (uint64_t)block.x * block.y * block.z;
  if (!size || size > THREADS_MAX || block.z > 64) fail("a block of that size", (int)size, 0);
  if (!grid.x || !grid.y || !grid.z || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
    fail("a grid of that size", 0, 0);
  if (shared_bytes > SHARED_MAX) fail("that much shared memory", 0, 0);
  gridDim = grid;
  blockDim = block;
  shared_size = shared_bytes;
  threads = (int)size;
  body = &call;
  uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; i++) {
    uint64_t b = backwards ? blocks - 1 - i : i;
    blockIdx = {
        (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
    poison_shared(shared_bytes);
    block_run();
    check_guard(shared_bytes);
  }
}

inline unsigned long launches; /* so far */

/* Of each kernel, where it may have more dynamic shared memory than a launch has by itself. */
enum { SHARED_WITHOUT = 48 << 10 };
inline std::map<const void *, size_t> &allowed_shared() {
  static std::map<const void *, size_t> allowed;
  return allowed;
}
inline void allow_shared(const void *kernel, size_t bytes) {
  if (bytes > SHARED_MAX) fail("that much shared memory", 0, 0);
  allowed_shared()[kernel] = bytes;
}
inline void check_shared(const void *kernel, size_t bytes) {
  auto at = allowed_shared().find(kernel);
  size_t most = at == allowed_shared().end() ? (size_t)SHARED_WITHOUT : at->second;
  if (bytes > SHARED_MAX) fail("that much shared memory", 0, 0);
  if (bytes > most && bytes > SHARED_WITHOUT) fail("more shared memory than is allowed", 0, 0);
}

/* With EMULATED_CUDA_LAUNCHES=FILE, one line a launch: the kernel, its grid, block and dynamic
 * shared memory, for comparison with `trace --emit tile-ir`. */
inline void log_launch(const char *kernel, dim3 grid, dim3 block, int64_t shared_bytes) {
  const char *path = getenv("EMULATED_CUDA_LAUNCHES");
  FILE *f = path ? fopen(path, "a") : nullptr;
  if (!f) return;
  kernel += kernel[0] == '(';
  fprintf(
      f, "%.*s %u %u %u %u %u %u %lld\n", (int)strcspn(kernel, "<)"), kernel, grid.x, grid.y,
      grid.z, block.x, block.y, block.z, (long long)shared_bytes);
  fclose(f);
}

inline void launch(
    CUstream_st *stream, const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
    const std::function<void()> &call) {
  launches++;
  begin(stream, kernel, [=]() { run(grid, block, shared_bytes, call); });
}

/* The arguments are those of now, as a GPU's are. Each file's own function: several have structs of
 * the same name. */
template <typename T> struct same { typedef T type; };
template <typename... P>
static void launch_kernel(
    CUstream_st *stream, const char *name, dim3 grid, dim3 block, size_t shared_bytes,
    void (*kernel)(P...), typename same<P>::type... p) {
  check_shared((const void *)kernel, shared_bytes);
  launch(stream, name, grid, block, shared_bytes, [=]() { kernel(p...); });
}

/* ---- what the lanes of a warp tell one another: one barrier between writing and reading, and two
 * buffers in turn, so that the next exchange does not overwrite this one ---- */

inline uint64_t *tell(uint64_t word, unsigned mask, int line) {
  fiber *f = &fibers[current];
  uint64_t *words = exchange[f->parity] + current / WARP * WARP;
  words[current % WARP] = word;
  f->parity ^= 1;
  wait_for(AT_WARP, mask, line);
  return words;
}

template <typename T> T hear(T x, unsigned mask, int lane, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a number of at most 64 bits");
  uint64_t word = 0;
  memcpy(&word, &x, sizeof x);
  word = tell(word, mask, line)[lane];
  if (!(mask >> lane & 1)) fail("reads a lane outside its mask", current, line);
  memcpy(&x, &word, sizeof x);
  return x;
}

inline int lane() { return current % WARP; }

} // namespace emulator

/* ---- CUDA's words ---- */
#define __global__
#define __device__
#define __constant__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ thread_local /* static where it stands in a function */

inline void __syncthreads(int line = __builtin_LINE()) {
  emulator::wait_for(emulator::AT_BLOCK, 0, line);
}
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
  emulator::wait_for(emulator::AT_WARP, mask, line);
}

template <typename T> T __shfl_xor_sync(unsigned mask, T x, int bits, int line = __builtin_LINE()) {
  return emulator::hear(x, mask, emulator::lane() ^ bits, line);
}

template <typename T> T atomicAdd(T *at, T x) {
  static_assert(T(1) / 2 == 0, "sums of floats depend on the order");
  T old = *at;
  *at = (T)(old + x);
  return old;
}

template <typename T> T atomicMin(T *at, T x) {
  static_assert(T(1) / 2 == 0, "whole numbers");
  T old = *at;
  if (x < old) *at = x;
  return old;
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  const uint64_t *words = emulator::tell(predicate != 0, mask, line);
  unsigned bits = 0;
  for (int lane = 0; lane < emulator::WARP; lane++)
    if (mask >> lane & 1) bits |= (unsigned)words[lane] << lane;
  return bits;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#endif
