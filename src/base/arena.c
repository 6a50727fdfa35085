// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/memory.h"
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024 };

typedef struct chunk {
  struct chunk *next;
  size_t used, size;
  alignas(max_align_t) char data[];
} chunk;

typedef struct finalizer {
  struct finalizer *next;
  void (*release)(void *object);
  void *object;
} finalizer;

struct tsr_arena {
  chunk *chunks;         /* the newest first */
  finalizer *finalizers; /* in the chunks; the newest first */
};

tsr_arena *tsr_arena_new(void) { return tsr_memory_new(sizeof(tsr_arena)); }

void tsr_arena_free(tsr_arena *arena) {
  if (!arena) return;
  for (finalizer *f = arena->finalizers; f; f = f->next) f->release(f->object);
  for (chunk *c = arena->chunks, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  free(arena);
}

void *tsr_arena_alloc(tsr_arena *arena, size_t size_bytes) {
  size_t need = (size_bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
  chunk *c = arena->chunks;
  if (!c || c->size - c->used < need) {
    size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
    c = tsr_memory_new(sizeof(chunk) + size);
    c->size = size;
    c->next = arena->chunks;
    arena->chunks = c;
  }
  void *memory = c->data + c->used;
  c->used += need;
  return memory;
}

void tsr_arena_on_free(tsr_arena *arena, void (*release)(void *object), void *object) {
  finalizer *f = tsr_arena_alloc(arena, sizeof *f);
  *f = (finalizer){arena->finalizers, release, object};
  arena->finalizers = f;
}

void tsr_arena_grow(tsr_arena *arena, void **items, size_t item_bytes, int count, int *capacity) {
  if (count < *capacity) return;
  int grown = *capacity ? *capacity * 2 : 8;
  while (grown <= count) grown *= 2;
  void *fresh = tsr_arena_alloc(arena, item_bytes * (size_t)grown);
  if (*items) memcpy(fresh, *items, item_bytes * (size_t)*capacity);
  *items = fresh;
  *capacity = grown;
}

char *tsr_arena_strndup(tsr_arena *arena, const char *text, size_t length) {
  char *copy = tsr_arena_alloc(arena, length + 1);
  memcpy(copy, text, length);
  return copy;
}

char *tsr_arena_strdup(tsr_arena *arena, const char *text) {
  return tsr_arena_strndup(arena, text, strlen(text));
}

char *tsr_arena_vprintf(tsr_arena *arena, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = tsr_arena_alloc(arena, (size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

char *tsr_arena_printf(tsr_arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = tsr_arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}
