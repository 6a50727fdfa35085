// SPDX-License-Identifier: Apache-2.0
#include "device/host_access.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- pieces ---- */

void tsr_device_pieces_begin(
    tsr_device_pieces *p, const tsr_device *d, const void *from, int64_t bytes) {
  *p = (tsr_device_pieces){.device = d, .from = from, .bytes = bytes};
  p->piece_bytes = tsr_device_is_host(d) ? bytes : d->staging_bytes;
  if (d->access) pthread_mutex_lock(d->access);
}

static int64_t piece_size(const tsr_device_pieces *p, int64_t piece) {
  return smaller(p->piece_bytes, p->bytes - piece * p->piece_bytes);
}

const void *tsr_device_pieces_next(tsr_device_pieces *p, int64_t *ret_bytes) {
  const tsr_device *d = p->device;
  int64_t piece = p->ended;
  if (piece * p->piece_bytes >= p->bytes) return NULL;
  *ret_bytes = piece_size(p, piece);
  p->ended++;
  if (tsr_device_is_host(d)) return p->from;
  for (; p->begun < piece + TSR_STAGING_BUFFERS; p->begun++) {
    int64_t at = p->begun * p->piece_bytes;
    if (at >= p->bytes) break;
    d->begin_read(
        d->state, (int)(p->begun % TSR_STAGING_BUFFERS), p->from + at, piece_size(p, p->begun));
  }
  return d->end_copy(d->state, (int)(piece % TSR_STAGING_BUFFERS));
}

void tsr_device_pieces_end(tsr_device_pieces *p) {
  const tsr_device *d = p->device;
  for (; p->ended < p->begun; p->ended++)
    d->end_copy(d->state, (int)(p->ended % TSR_STAGING_BUFFERS));
  if (d->access) pthread_mutex_unlock(d->access);
}

/* ---- bytes ---- */

void tsr_device_read(const tsr_device *d, void *to, const void *from, int64_t bytes) {
  tsr_device_pieces pieces;
  const void *piece;
  char *at = to;
  tsr_device_pieces_begin(&pieces, d, from, bytes);
  for (int64_t n; (piece = tsr_device_pieces_next(&pieces, &n)); at += n)
    memcpy(at, piece, (size_t)n);
  tsr_device_pieces_end(&pieces);
}

void tsr_device_write(const tsr_device *d, void *to, const void *from, int64_t bytes) {
  if (!bytes) return; /* what has none may be NULL */
  if (tsr_device_is_host(d)) {
    memcpy(to, from, (size_t)bytes);
    return;
  }
  pthread_mutex_lock(d->access);
  int buffer = 0;
  for (int64_t at = 0, n; at < bytes; at += n, buffer = (buffer + 1) % TSR_STAGING_BUFFERS) {
    n = smaller(d->staging_bytes, bytes - at);
    memcpy(d->end_copy(d->state, buffer), (const char *)from + at, (size_t)n);
    d->begin_write(d->state, buffer, (char *)to + at, n);
  }
  pthread_mutex_unlock(d->access);
}

/* ---- views ---- */

static void *align(void *memory) {
  uintptr_t most = (uintptr_t)memory + TSR_VIEW_ALIGNMENT - 1;
  return (void *)(most / TSR_VIEW_ALIGNMENT * TSR_VIEW_ALIGNMENT);
}

void *tsr_device_view_open(
    tsr_device_view *v, const tsr_device *d, const void *memory, int64_t bytes, int access) {
  v->device = d;
  v->memory = (void *)memory;
  v->bytes = bytes;
  v->access = access;
  v->copy = NULL;
  if (tsr_device_is_host(d)) return v->data = v->memory;
  if (bytes <= TSR_VIEW_INLINE_BYTES) memset(v->few, 0, sizeof v->few);
  else v->copy = tsr_memory_new((size_t)bytes + TSR_VIEW_ALIGNMENT);
  v->data = align(v->copy ? v->copy : v->few);
  if (access & TSR_VIEW_READ) tsr_device_read(d, v->data, memory, bytes);
  return v->data;
}

void tsr_device_view_close(tsr_device_view *v) {
  if (tsr_device_is_host(v->device)) return;
  if (v->access & TSR_VIEW_WRITE) tsr_device_write(v->device, v->memory, v->data, v->bytes);
  free(v->copy);
}
