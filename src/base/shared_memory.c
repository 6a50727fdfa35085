// SPDX-License-Identifier: Apache-2.0
#include "base/shared_memory.h"
#include "base/fault.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *map(int file, int64_t bytes) {
  void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return NULL;
  madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
  return memory;
}

static void *close_failed(int file) {
  int wrong = errno;
  close(file);
  errno = wrong;
  return NULL;
}

void *tsr_shared_memory_new(int64_t bytes, tsr_shared_memory *ret) {
  struct stat about;
  *ret = (tsr_shared_memory){.file = -1};
  if (tsr_fault_next(TSR_FAULT_ALLOCATIONS) != TSR_FAULT_NONE) return errno = ENOMEM, NULL;
  int file = memfd_create("tessera-train", MFD_CLOEXEC);
  if (file < 0) return NULL;
  if (ftruncate(file, bytes) || fstat(file, &about)) return close_failed(file);
  void *memory = map(file, bytes);
  if (!memory) return close_failed(file);
  *ret = (tsr_shared_memory){.pid = getpid(), .bytes = bytes, .file = file};
  ret->device = (uint64_t)about.st_dev;
  ret->inode = (uint64_t)about.st_ino;
  return memory;
}

void *tsr_shared_memory_map(const tsr_shared_memory *m) {
  char path[64];
  struct stat about;
  snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)m->pid, (int)m->file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return NULL;
  if (fstat(file, &about)) return close_failed(file);
  bool same = (uint64_t)about.st_dev == m->device && (uint64_t)about.st_ino == m->inode &&
              about.st_size == m->bytes;
  if (!same) errno = ESRCH;
  void *memory = same ? map(file, m->bytes) : NULL;
  close_failed(file);
  return memory;
}

void tsr_shared_memory_close(tsr_shared_memory *m) {
  if (m->file >= 0) close(m->file);
  m->file = -1;
}
