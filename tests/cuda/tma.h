// SPDX-License-Identifier: Apache-2.0
/* The mbarriers, tensor maps, copies and registers of kernels/cuda/tma.cuh on the CPU, for tests:
 * included behind emulator.h and before a .cu file. Written from the PTX ISA and the driver's
 * cuTensorMapEncodeTiled, independently of the code that is tested.
 *
 * The window of shared memory begins at an address that is a multiple of 128 alone. Copies come at
 * once or, where `emulator::fetches_late` is set, when no thread goes on without them, the last one
 * first. Behind an arrival the other warps go on first, so that what they may do is done as early as
 * it can be. The async proxy sees what it wrote itself, and what threads wrote before tma_fence. What
 * the hardware leaves undefined stops the program: a barrier that is not initialized, not fenced,
 * not behind a barrier of the block or overwritten, more arrivals than its count, a tile that is
 * not aligned, a phase or a copy that is left at the end of a block, registers that nobody left. */
#ifndef TSR_TESTS_CUDA_TMA_H
#define TSR_TESTS_CUDA_TMA_H
extern "C" {
#include "kernels/kernels.h"
}
#include "kernels/cuda/tma.cuh"
#include "mma.h"

struct alignas(64) tensor_map {
  tma_tensor tensor;
  bool is_encoded;
};

namespace emulator {

enum { SHARED_BASE = 0x480, PHASE_MOST = (1 << 20) - 1, REGISTERS = 64 << 10 };

inline unsigned char proxy[SHARED_MAX]; /* dynamic shared memory, as the async proxy sees it */

/* Where an address of the block's shared memory is in dynamic_shared and in `proxy`. */
inline size_t shared_offset(uint32_t address, size_t bytes, int line) {
  if (address < SHARED_BASE || address + bytes > SHARED_BASE + shared_size)
    fail("an address outside its shared memory", current, line);
  return address - SHARED_BASE;
}

/* ---- mbarriers ---- */

struct mbarrier {
  uint32_t count, left; /* arrivals of a phase, and how many are missing */
  int64_t bytes;        /* that are expected, less those that came */
  uint32_t phase;
  bool is_fenced;
  int by; /* the thread that initialized it, and how many barriers its block had passed then */
  unsigned long then;
};
inline std::map<uint32_t, mbarrier> mbarriers;

/* What lies in memory where a barrier is. */
inline uint64_t mbarrier_mark(uint32_t address) { return 0x6D62617272696572u ^ address; }

inline mbarrier *mbarrier_at(uint32_t address, int line) {
  auto found = mbarriers.find(address);
  uint64_t mark = 0;
  if (found == mbarriers.end()) fail("no mbarrier there", current, line);
  memcpy(&mark, dynamic_shared + shared_offset(address, 8, line), sizeof mark);
  if (mark != mbarrier_mark(address)) fail("overwrote an mbarrier", current, line);
  if (!found->second.is_fenced) fail("an mbarrier that is not fenced", current, line);
  return &found->second;
}

/* For the current thread. */
inline mbarrier *mbarrier_for_thread(uint32_t address, int line) {
  mbarrier *b = mbarrier_at(address, line);
  if (b->by != current && b->then == barriers)
    fail("an mbarrier before a barrier of the block", current, line);
  return b;
}

inline void mbarrier_proceed(mbarrier *b) {
  if (b->left || b->bytes) return;
  b->phase++;
  b->left = b->count;
}
inline void mbarrier_add_bytes(mbarrier *b, int64_t bytes, int line) {
  b->bytes += bytes;
  if (b->bytes > PHASE_MOST || -b->bytes > PHASE_MOST) fail("so many bytes", current, line);
}

/* ---- copies ---- */

struct tile_copy {
  uint32_t to, barrier;
  tma_tensor from;
  int64_t at[4]; /* column, head, row, sample */
  int line;
};
inline std::vector<tile_copy> tile_copies; /* that have not come */

/* Of an address in a pattern of 128 bytes. */
inline uint32_t swizzle_128(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

inline void tile_copy_do(const tile_copy &c) {
  const tma_tensor &x = c.from;
  for (int row = 0; row < x.box_rows; row++)
    for (int i = 0; i < TMA_COLUMNS; i++) {
      int64_t column = c.at[0] + i, of = c.at[2] + row;
      bool real = column >= 0 && column < x.columns && c.at[1] >= 0 && c.at[1] < x.heads &&
                  of >= 0 && of < x.rows && c.at[3] >= 0 && c.at[3] < x.samples;
      uint16_t half = 0;
      const char *from = (const char *)x.at + c.at[1] * x.head + of * x.row + c.at[3] * x.sample;
      if (real) memcpy(&half, from + column * 2, sizeof half);
      uint32_t to = swizzle_128(c.to + (uint32_t)(row * TMA_COLUMNS + i) * 2);
      size_t offset = shared_offset(to, 2, c.line);
      memcpy(dynamic_shared + offset, &half, sizeof half);
      memcpy(proxy + offset, &half, sizeof half);
    }
  mbarrier *b = mbarrier_at(c.barrier, c.line);
  mbarrier_add_bytes(b, -(int64_t)x.box_rows * TMA_COLUMNS * 2, c.line);
  mbarrier_proceed(b);
}

/* ---- registers: how many a thread of each warp has ---- */

inline int registers[THREADS_MAX / WARP];

inline int registers_begin() { return REGISTERS / threads / 8 * 8; }
inline int registers_unused() {
  int sum = threads / WARP * registers_begin();
  for (int w = 0; w < threads / WARP; w++) sum -= registers[w];
  return sum;
}

inline void registers_set(int count, bool takes, int line) {
  int *own = &registers[current / WARP];
  __syncwarp(~0u, line);
  if (count < 24 || count > 256 || count % 8) fail("so many registers", current, line);
  if (lane() == 0) {
    if (takes ? count < *own : count > *own) fail("changes registers that way", current, line);
    wait_until([=]() { return count - *own <= registers_unused(); }, line);
    *own = count;
  }
  __syncwarp(~0u, line);
}

/* ---- a block ---- */

inline void async_begin() {
  mbarriers.clear();
  tile_copies.clear();
  memset(proxy, 0xFF, sizeof proxy);
  for (int w = 0; w < (threads + WARP - 1) / WARP; w++) registers[w] = registers_begin();
}

inline bool async_pass() {
  if (tile_copies.empty()) return false;
  tile_copy last = tile_copies.back();
  tile_copies.pop_back();
  tile_copy_do(last);
  return true;
}

inline void async_end() {
  if (!tile_copies.empty()) fail("nobody waited for a copy", 0, tile_copies[0].line);
  for (const auto &b : mbarriers)
    if (b.second.left != b.second.count || b.second.bytes) fail("left a phase", 0, 0);
  for (int w = 0; w < threads / WARP; w++)
    if (registers[w] != registers[w / 4 * 4]) fail("registers of part of a warpgroup", 0, 0);
}

inline const bool async_is_added = (units().push_back({async_begin, async_pass, async_end}), true);

} // namespace emulator

/* ---- tma.cuh ---- */

inline bool tensor_map_encode(tensor_map *map, const tma_tensor &x) {
  const int64_t most = 1ll << 32, most_step = 1ll << 40;
  bool aligned = (uintptr_t)x.at % 16 == 0 && x.head % 16 == 0 && x.row % 16 == 0;
  bool shape = x.columns > 0 && x.heads > 0 && x.rows > 0 && x.samples > 0 && x.columns <= most &&
               x.heads <= most && x.rows <= most && x.samples <= most;
  bool steps = x.sample % 16 == 0 && x.head < most_step && x.row < most_step &&
               x.sample < most_step && x.head >= 0 && x.row >= 0 && x.sample >= 0;
  map->tensor = x;
  map->is_encoded = aligned && shape && steps && x.box_rows >= 1 && x.box_rows <= 256;
  return map->is_encoded;
}
inline bool tma_has_code(const void *) { return true; }
inline const void *tma_find_encoder() { return (const void *)tensor_map_encode; }

inline uint32_t tma_shared(const void *shared) {
  using namespace emulator;
  uint32_t at = SHARED_BASE + (uint32_t)((const unsigned char *)shared - dynamic_shared);
  while (at % TMA_ALIGNMENT) at++;
  return at;
}

inline void mbarrier_init(uint32_t barrier, uint32_t count, int line = __builtin_LINE()) {
  using namespace emulator;
  uint64_t mark = mbarrier_mark(barrier);
  if (barrier % 8) fail("an mbarrier that is not aligned", current, line);
  if (count < 1 || count > PHASE_MOST) fail("so many arrivals", current, line);
  if (mbarriers.count(barrier)) fail("initialized an mbarrier twice", current, line);
  memcpy(dynamic_shared + shared_offset(barrier, 8, line), &mark, sizeof mark);
  mbarriers[barrier] = {count, count, 0, 0, false, current, barriers};
}

inline void tma_fence() {
  using namespace emulator;
  for (auto &b : mbarriers) b.second.is_fenced = true;
  memcpy(proxy, dynamic_shared, shared_size);
}

inline void mbarrier_expect(uint32_t barrier, uint32_t bytes, int line = __builtin_LINE()) {
  using namespace emulator;
  mbarrier *b = mbarrier_for_thread(barrier, line);
  mbarrier_add_bytes(b, bytes, line);
  if (!b->left--) fail("more arrivals than an mbarrier's count", current, line);
  mbarrier_proceed(b);
}
inline void mbarrier_arrive(uint32_t barrier, int line = __builtin_LINE()) {
  mbarrier_expect(barrier, 0, line);
  emulator::let_others_run(line);
}

inline void mbarrier_wait(uint32_t barrier, uint32_t parity, int line = __builtin_LINE()) {
  using namespace emulator;
  const mbarrier *b = mbarrier_for_thread(barrier, line);
  if (parity > 1) fail("a parity of that size", current, line);
  wait_until([=]() { return (b->phase & 1) != parity; }, line);
}

inline void tma_load(
    uint32_t to, const tensor_map *map, uint32_t barrier, int column, int head, int row, int sample,
    int line = __builtin_LINE()) {
  using namespace emulator;
  mbarrier_for_thread(barrier, line);
  if ((uintptr_t)map % 64 || !map->is_encoded) fail("no tensor map there", current, line);
  if (to % TMA_ALIGNMENT) fail("a tile that is not aligned", current, line);
  shared_offset(to, (size_t)map->tensor.box_rows * TMA_COLUMNS * 2, line);
  tile_copies.push_back({to, barrier, map->tensor, {column, head, row, sample}, line});
  if (!fetches_late) async_pass();
}

template <int COUNT> inline void registers_leave(int line = __builtin_LINE()) {
  emulator::registers_set(COUNT, false, line);
}
template <int COUNT> inline void registers_take(int line = __builtin_LINE()) {
  emulator::registers_set(COUNT, true, line);
}

#endif
