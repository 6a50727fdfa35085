// SPDX-License-Identifier: Apache-2.0
/* The memory of emulated devices. Each block has pages of its own and ends at one that nobody may
 * touch. Where operations are delayed (queue.h), a block of cudaMalloc is accessible to operations,
 * and one of cudaMallocManaged to the host too from when it has waited for all until it begins
 * another one: whoever touches one at another time, or one that was freed, stops the program with a
 * report. New blocks are all ones, NaNs. */
#ifndef TSR_TESTS_CUDA_MEMORY_H
#define TSR_TESTS_CUDA_MEMORY_H
#include <cstddef>

namespace emulator {

enum memory_kind { MEMORY_PAGEABLE, MEMORY_DEVICE, MEMORY_MANAGED, MEMORY_PINNED };
/* Operations run, each of which opens what it touches; the host does, and operations may be
 * pending; the host does, and it knows that none are. */
enum memory_access { ACCESS_DEVICE, ACCESS_HOST_BUSY, ACCESS_HOST };

struct block {
  char *pages, *data;
  size_t pages_bytes, bytes;
  memory_kind kind;
  unsigned long number; /* of all that were allocated */
  const void *caller;   /* who allocated it */
  bool is_open;         /* accessible now */
  bool is_freed;
};

/* NULL: there is no room. */
void *memory_new(memory_kind kind, size_t bytes, const void *caller);
/* False: no block begins there. */
bool memory_free(void *data);
/* The block that has the address, or NULL. */
const block *memory_find(const void *address);
memory_kind memory_kind_of(const void *address);
void memory_allow(memory_access access);
/* Of what cudaMalloc and cudaMallocManaged gave and was not freed. */
size_t memory_used();
[[noreturn]] void memory_report(const char *what, const block *b, const void *address);

} // namespace emulator

#endif
