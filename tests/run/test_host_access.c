// SPDX-License-Identifier: Apache-2.0
/* The host's access to a device's memory: on the CPU it is the memory itself; a device of its own,
 * which this test is and which makes a copy no earlier than somebody waits for it, has every byte
 * copied through buffers that are never used for two copies at once. */
#include "device/host_access.h"
#include "tests/check.h"
#include <string.h>

enum { PIECE = 64, MEMORY = 1000, GUARD = 8 };

/* ---- the device ---- */

typedef struct {
  char buffers[TSR_STAGING_BUFFERS][PIECE];
  struct pending {
    char *to;
    const char *from;
    int64_t bytes; /* 0: none */
  } pending[TSR_STAGING_BUFFERS];
  int begun, in_flight, most_in_flight;
} late_device;

static void begin(late_device *d, int buffer, void *to, const void *from, int64_t bytes) {
  CHECK(buffer >= 0 && buffer < TSR_STAGING_BUFFERS && bytes > 0 && bytes <= PIECE);
  CHECK_INT(d->pending[buffer].bytes, 0);
  d->pending[buffer] = (struct pending){to, from, bytes};
  d->begun++;
  if (++d->in_flight > d->most_in_flight) d->most_in_flight = d->in_flight;
}

static void begin_read(void *state, int buffer, const void *from, int64_t bytes) {
  late_device *d = state;
  begin(d, buffer, d->buffers[buffer], from, bytes);
}

static void begin_write(void *state, int buffer, void *to, int64_t bytes) {
  late_device *d = state;
  begin(d, buffer, to, d->buffers[buffer], bytes);
}

static char *end_copy(void *state, int buffer) {
  late_device *d = state;
  struct pending *p = &d->pending[buffer];
  if (p->bytes) {
    memcpy(p->to, p->from, (size_t)p->bytes);
    d->in_flight--;
  }
  p->bytes = 0;
  return d->buffers[buffer];
}

static pthread_mutex_t access = PTHREAD_MUTEX_INITIALIZER;
static late_device late;
static const tsr_device device = {
    .state = &late,
    .staging_bytes = PIECE,
    .access = &access,
    .begin_read = begin_read,
    .begin_write = begin_write,
    .end_copy = end_copy};
static const tsr_device host; /* a device whose memory is the host's */

static void finish(void) {
  for (int i = 0; i < TSR_STAGING_BUFFERS; i++) end_copy(&late, i);
  CHECK_INT(late.in_flight, 0);
}

/* ---- what it is asked for ---- */

static void number(char *bytes, int64_t count, int seed) {
  for (int64_t i = 0; i < count; i++) bytes[i] = (char)(i * 7 + seed);
}

static void check_bytes(const tsr_device *d, int64_t count) {
  char memory[MEMORY + GUARD], copy[MEMORY + GUARD], want[MEMORY + GUARD];
  number(memory, sizeof memory, 1);
  memset(copy, 0, sizeof copy);
  memcpy(want, memory, (size_t)count);
  memset(want + count, 0, sizeof want - (size_t)count);
  tsr_device_read(d, copy, memory, count);
  CHECK_AT(!memcmp(copy, want, sizeof want), "%lld bytes read", (long long)count);
  number(copy, sizeof copy, 2);
  memcpy(want, memory, sizeof want);
  memcpy(want, copy, (size_t)count);
  tsr_device_write(d, memory, copy, count);
  memset(copy, 0, sizeof copy); /* what was written from may change */
  finish();
  CHECK_AT(!memcmp(memory, want, sizeof want), "%lld bytes written", (long long)count);
}

/* Pieces follow one another; on a device of its own the next one's copy is begun before the host
 * uses one. */
static void check_pieces(const tsr_device *d, int64_t count, int64_t leave_at) {
  char memory[MEMORY];
  tsr_device_pieces pieces;
  const void *piece;
  int64_t at = 0;
  bool is_host = tsr_device_is_host(d);
  number(memory, MEMORY, 3);
  late.begun = late.most_in_flight = 0;
  tsr_device_pieces_begin(&pieces, d, memory, count);
  for (int64_t n; at < leave_at && (piece = tsr_device_pieces_next(&pieces, &n)); at += n) {
    CHECK(at + n <= count && (is_host ? piece == memory : n <= PIECE));
    CHECK(!memcmp(piece, memory + at, (size_t)n));
    if (!is_host && at + n < count) CHECK_INT(late.in_flight, TSR_STAGING_BUFFERS - 1);
  }
  tsr_device_pieces_end(&pieces);
  CHECK_INT(late.in_flight, 0);
  if (leave_at >= count) CHECK_INT(at, count);
  if (is_host) CHECK_INT(late.begun, 0);
}

static void check_view(const tsr_device *d, int64_t count, int access_of) {
  _Alignas(64) char memory[MEMORY + GUARD], want[MEMORY + GUARD];
  tsr_device_view view;
  bool is_host = tsr_device_is_host(d);
  number(memory, sizeof memory, 4);
  memcpy(want, memory, sizeof want);
  char *data = tsr_device_view_open(&view, d, memory, count, access_of);
  CHECK((data == memory) == is_host);
  CHECK_INT((uintptr_t)data % 64, 0);
  for (int64_t i = 0; i < count && access_of & TSR_VIEW_READ; i++) CHECK_INT(data[i], want[i]);
  for (int64_t i = 0; i < count && access_of == TSR_VIEW_WRITE && !is_host; i++)
    CHECK_INT(data[i], 0);
  if (access_of & TSR_VIEW_WRITE) number(data, count, 5), number(want, count, 5);
  tsr_device_view_close(&view);
  finish();
  CHECK_AT(!memcmp(memory, want, sizeof want), "a view of %lld bytes", (long long)count);
}

int main(void) {
  static const int64_t counts[] = {0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 256, 257, MEMORY};
  static const tsr_device *const devices[] = {&host, &device};
  for (int d = 0; d < 2; d++)
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      check_bytes(devices[d], counts[i]);
      check_pieces(devices[d], counts[i], MEMORY);
      check_pieces(devices[d], counts[i], PIECE + 1);
      for (int access_of = 1; access_of <= 3; access_of++)
        check_view(devices[d], counts[i], access_of);
    }
  return check_done("run.host_access");
}
