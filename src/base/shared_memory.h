// SPDX-License-Identifier: Apache-2.0
/* Memory that other processes of the host map, too, and then read and write where it lies: memfd
 * (Linux), which has no name in a file system, does not count against /dev/shm, and is gone when
 * nobody maps it. Another process finds it in /proc/PID/fd, which takes the same user and the same
 * namespace of process ids. */
#ifndef TSR_BASE_SHARED_MEMORY_H
#define TSR_BASE_SHARED_MEMORY_H
#include <stdbool.h>
#include <stdint.h>

/* What another process needs to know. */
typedef struct tsr_shared_memory {
  int64_t pid, bytes;
  uint64_t device, inode; /* a process id is given again, and a descriptor's number, too */
  int32_t file;           /* the descriptor; -1: there is no such memory */
  int32_t reserved;
} tsr_shared_memory;

/* Zeroed pages, huge where the kernel has such for shared memory; for munmap. NULL: failed, with
 * errno set. */
void *tsr_shared_memory_new(int64_t bytes, tsr_shared_memory *ret);
/* Another process's. NULL: failed, with errno set. */
void *tsr_shared_memory_map(const tsr_shared_memory *memory);
/* The descriptor is closed: from now on nobody else finds it. What is mapped stays. */
void tsr_shared_memory_close(tsr_shared_memory *memory);

#endif
