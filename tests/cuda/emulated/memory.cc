// SPDX-License-Identifier: Apache-2.0
#include "memory.h"
#include "queue.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <execinfo.h>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace emulator {

/* FREED_MAX: of so many freed blocks an access is reported with the block. */
enum { ALIGNMENT = 256, FREED_MAX = 1024 };

/* By the end of their pages. A device may be opened before constructors have run. */
EMULATED_FIRST static std::map<const char *, block> blocks;
EMULATED_FIRST static std::deque<const char *> freed;
EMULATED_FIRST static std::set<block *> guarded; /* those that are protected */
static memory_access allowed = ACCESS_HOST;
static size_t used;

size_t memory_used() { return used; }

const block *memory_find(const void *address) {
  auto at = blocks.upper_bound((const char *)address);
  if (at == blocks.end() || (const char *)address < at->second.pages) return nullptr;
  return &at->second;
}

memory_kind memory_kind_of(const void *address) {
  const block *b = memory_find(address);
  return b && !b->is_freed ? b->kind : MEMORY_PAGEABLE;
}

/* ---- who touches what they may not ---- */

static const char *name_of(memory_kind kind) {
  static const char *const names[] = {"pageable", "device", "managed", "pinned"};
  return names[kind];
}

static const char *function_at(const void *address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_sname ? info.dli_sname : "a static function";
}

void memory_report(const char *what, const block *b, const void *address) {
  void *frames[32];
  const operation *o = queue_running();
  dprintf(
      STDERR_FILENO,
      "emulator: %s%s%s %s: byte %td of block %lu (%zu bytes, %s, allocated by %s); "
      "EMULATED_CUDA=seed=%lld\n",
      o ? "operation " : "the host", o ? o->what : "", "", what, (const char *)address - b->data,
      b->number, b->bytes, name_of(b->kind), function_at(b->caller), setting("seed=", 0));
  backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
  abort();
}

static struct sigaction others; /* handler */

static void protect(block *b, bool open);

/* An operation opens what it touches. */
static void on_fault(int, siginfo_t *info, void *) {
  auto found = blocks.upper_bound((const char *)info->si_addr);
  block *b =
      found == blocks.end() || info->si_addr < found->second.pages ? nullptr : &found->second;
  bool is_guard = b && (const char *)info->si_addr >= b->data + b->bytes;
  if (b && !b->is_freed && !is_guard && !b->is_open && allowed == ACCESS_DEVICE && queue_running())
    return protect(b, true);
  if (!b) {
    sigaction(SIGSEGV, &others, nullptr); /* the access is repeated */
    return;
  }
  const char *at = (const char *)info->si_addr;
  if (b->is_freed) memory_report("touches freed memory", b, at);
  if (at >= b->data + b->bytes) memory_report("touches memory behind a block", b, at);
  if (b->kind == MEMORY_MANAGED)
    memory_report("touches managed memory while operations are pending", b, at);
  memory_report("touches device memory", b, at);
}

static void watch() {
  static bool watches;
  struct sigaction action = {};
  if (watches) return;
  watches = true;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &others);
}

/* ---- blocks ---- */

static void protect(block *b, bool open) {
  size_t guard = (size_t)sysconf(_SC_PAGESIZE);
  if (open == b->is_open) return;
  mprotect(b->pages, b->pages_bytes - guard, open ? PROT_READ | PROT_WRITE : PROT_NONE);
  b->is_open = open;
}

void memory_allow(memory_access access) {
  if (access == allowed) return;
  allowed = access;
  for (block *b : guarded) {
    if (access == ACCESS_HOST_BUSY || (access == ACCESS_HOST && b->kind == MEMORY_DEVICE))
      protect(b, false);
    else if (access == ACCESS_HOST) protect(b, true);
  }
}

void *memory_new(memory_kind kind, size_t bytes, const void *caller) {
  static unsigned long numbers;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size_t all = (rounded + page - 1) / page * page + page;
  void *pages = mmap(
      nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  watch();
  char *begin = (char *)pages, *data = begin + (all - page - rounded);
  memset(begin, 0xFF, all - page);
  mprotect(begin + all - page, page, PROT_NONE);
  block *b =
      &(blocks[begin + all] = {begin, data, all, rounded, kind, ++numbers, caller, true, false});
  if (kind != MEMORY_PINNED && setting("seed=", 0) != 0) {
    guarded.insert(b);
    protect(b, allowed == ACCESS_HOST && kind == MEMORY_MANAGED);
  }
  if (kind != MEMORY_PINNED) used += rounded;
  return data;
}

bool memory_free(void *data) {
  const block *found = memory_find(data);
  if (!found || found->data != data || found->is_freed) return false;
  block *b = &blocks[found->pages + found->pages_bytes];
  if (b->kind != MEMORY_PINNED) used -= b->bytes;
  b->is_freed = true;
  guarded.erase(b);
  madvise(b->pages, b->pages_bytes, MADV_DONTNEED);
  mprotect(b->pages, b->pages_bytes, PROT_NONE);
  freed.push_back(b->pages + b->pages_bytes);
  if (freed.size() <= FREED_MAX) return true;
  const block &old = blocks[freed.front()];
  munmap(old.pages, old.pages_bytes);
  blocks.erase(freed.front());
  freed.pop_front();
  return true;
}

} // namespace emulator
