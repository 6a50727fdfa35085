// SPDX-License-Identifier: Apache-2.0
/* Memory of the host. Each allocation can be made to fail (base/fault.h). */
#ifndef TSR_BASE_MEMORY_H
#define TSR_BASE_MEMORY_H
#include <stddef.h>
#include <stdint.h>

/* As malloc, calloc of bytes, and realloc. May be NULL. */
void *tsr_memory_try(size_t bytes);
void *tsr_memory_try_zeroed(size_t bytes);
void *tsr_memory_try_grow(void *memory, size_t bytes);
/* Zeroed pages of their own, for munmap. May be NULL, with errno set. */
void *tsr_memory_map(size_t bytes);

/* Bytes that the host has for new memory: Linux's MemAvailable, or less where a control group
 * allows less. 0: not known. */
int64_t tsr_memory_available(void);

/* For what a process cannot run without: never NULL. If memory is exhausted, the process ends. */
void *tsr_memory_new(size_t bytes); /* zeroed */
void *tsr_memory_grow(void *memory, size_t bytes);

/* Ends the process so, for want of so many bytes. */
void tsr_memory_lack(size_t bytes) __attribute__((noreturn));

/* How it ends: called with the bytes that were wanted, by the thread that wanted them; does not
 * return. Unless it is set, the process reports it and exits with 1. */
typedef void tsr_memory_end(void *context, size_t bytes);
void tsr_memory_on_lack(tsr_memory_end *end, void *context);

#endif
