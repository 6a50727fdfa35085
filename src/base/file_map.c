// SPDX-License-Identifier: Apache-2.0
/* Files in memory. A file that another process cuts while it is mapped has no bytes behind its new
 * end, and to touch them there is SIGBUS; the handler puts zeros there instead and remembers the
 * file. */
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/terminal.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files beyond these are mapped, but not looked after. A free one has end 0. */
enum { MAPS_MAX = 4096, NAME_BYTES = 256 };
typedef struct {
  _Atomic uintptr_t begin, end;
  atomic_bool is_cut;
  char name[NAME_BYTES]; /* the end of a path that is longer */
} mapped;

static mapped maps[MAPS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static mapped *find(uintptr_t address) {
  for (int i = 0; i < MAPS_MAX; i++)
    if (address >= atomic_load(&maps[i].begin) && address < atomic_load(&maps[i].end))
      return &maps[i];
  return NULL;
}

/* mmap is a system call alone, which a handler may make. */
static void on_missing_page(int number, siginfo_t *info, void *context) {
  (void)context;
  int error = errno;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)info->si_addr;
  mapped *m = find(at);
  void *address = (void *)(at - at % page);
  bool ok = m && mmap(address, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
                     MAP_FAILED;
  if (m) atomic_store(&m->is_cut, true);
  errno = error;
  if (ok) return;
  tsr_terminal_leave();
  signal(number, SIG_DFL);
  raise(number);
}

static void catch_missing_pages(void) {
  struct sigaction action = {.sa_sigaction = on_missing_page, .sa_flags = SA_SIGINFO};
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, NULL);
}

static void look_after(const char *path, const tsr_file_map *map) {
  size_t length = strlen(path), skipped = length < NAME_BYTES ? 0 : length - NAME_BYTES + 1;
  pthread_once(&once, catch_missing_pages);
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < MAPS_MAX && atomic_load(&maps[i].end)) i++;
  if (i < MAPS_MAX) {
    memcpy(maps[i].name, path + skipped, length - skipped + 1);
    atomic_store(&maps[i].is_cut, false);
    atomic_store(&maps[i].begin, (uintptr_t)map->bytes);
    atomic_store(&maps[i].end, (uintptr_t)map->bytes + map->length);
  }
  pthread_mutex_unlock(&mutex);
}

bool tsr_file_map_open(
    const char *path, unsigned how, tsr_location location, tsr_file_map *ret, tsr_diags *diags) {
  *ret = (tsr_file_map){"", 0};
  struct stat info;
  int fd = tsr_file_open(path, how & ~(unsigned)TSR_FILE_PIPES);
  if (fd < 0) return tsr_file_cannot("read", path, errno, location, diags);
  void *bytes = NULL;
  int error = fstat(fd, &info) ? errno : 0;
  if (!error && info.st_size > 0) bytes = tsr_disk_map(fd, (size_t)info.st_size);
  if (!error && info.st_size > 0 && !bytes) error = errno;
  close(fd);
  if (error) return tsr_file_cannot("read", path, error, location, diags);
  if (!bytes) return true;
  *ret = (tsr_file_map){bytes, (size_t)info.st_size};
  look_after(path, ret);
  return true;
}

void tsr_file_map_close(tsr_file_map *map) {
  if (!map->length) return;
  mapped *m = find((uintptr_t)map->bytes);
  munmap((void *)(uintptr_t)map->bytes, map->length);
  *map = (tsr_file_map){"", 0};
  if (m && !atomic_load(&m->is_cut))
    atomic_store(&m->end, 0); /* a cut one is still to be told of */
  else if (m) atomic_store(&m->begin, atomic_load(&m->end));
}

bool tsr_file_maps_check(tsr_diags *diags) {
  bool ok = true;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MAPS_MAX; i++) {
    if (!atomic_exchange(&maps[i].is_cut, false)) continue;
    ok = tsr_diag_failure(
        diags, (tsr_location){.file = maps[i].name},
        "the file has become shorter while it was read");
    if (atomic_load(&maps[i].begin) == atomic_load(&maps[i].end)) atomic_store(&maps[i].end, 0);
  }
  pthread_mutex_unlock(&mutex);
  return ok;
}
