// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/memory.h"
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* AddressSanitizer sees what is used behind the end of an allocation, as it does with malloc. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 32 };
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes)
enum { RED_ZONE = 0 };
#endif

/* Chunks grow with the arena. Plans of large models are hundreds of megabytes, and the faults of
 * their pages took longer than the planning: an arena of HUGE_FROM and more grows by huge pages,
 * where the kernel has them. */
enum {
  CHUNK_BYTES = 64 << 10,
  HUGE_FROM = 1 << 20,
  HUGE_CHUNK_BYTES = 4 << 20,
  MAPPED_BYTES = 2 << 20 /* the least chunk that is a mapping of its own */
};

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
  chunk *chunks;         /* the one that is filled, then others */
  size_t bytes;          /* of all */
  finalizer *finalizers; /* in the chunks; the newest first */
};

static bool is_mapped(size_t size) { return sizeof(chunk) + size >= MAPPED_BYTES; }

tsr_arena *tsr_arena_new(void) { return tsr_memory_new(sizeof(tsr_arena)); }

void tsr_arena_free(tsr_arena *arena) {
  if (!arena) return;
  for (finalizer *f = arena->finalizers; f; f = f->next) f->release(f->object);
  for (chunk *c = arena->chunks, *next; c; c = next) {
    next = c->next;
    ASAN_UNPOISON_MEMORY_REGION(c->data, c->used);
    if (!is_mapped(c->size)) free(c);
    else munmap(c, sizeof *c + c->size);
  }
  free(arena);
}

static chunk *new_chunk(size_t size, bool populate) {
  size_t bytes = sizeof(chunk) + size;
  if (!is_mapped(size)) return tsr_memory_new(bytes);
  chunk *c = tsr_memory_map(bytes);
  if (!c) tsr_memory_lack(bytes);
  madvise(c, bytes, MADV_HUGEPAGE);
  if (populate) madvise(c, bytes, MADV_POPULATE_WRITE);
  return c;
}

/* What would fill a chunk has one of its own, behind that which is filled. */
static chunk *add_chunk(tsr_arena *arena, size_t need) {
  size_t size = arena->bytes / 4;
  if (size < CHUNK_BYTES) size = CHUNK_BYTES;
  if (arena->bytes >= HUGE_FROM) size = HUGE_CHUNK_BYTES - sizeof(chunk);
  bool own = need > size / 2;
  if (own) size = need;
  chunk *c = new_chunk(size, !own);
  c->size = size;
  arena->bytes += size;
  chunk **place = own && arena->chunks ? &arena->chunks->next : &arena->chunks;
  c->next = *place;
  *place = c;
  return c;
}

void *tsr_arena_alloc(tsr_arena *arena, size_t size_bytes) {
  size_t need = (size_bytes + RED_ZONE + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
  chunk *c = arena->chunks;
  if (!c || c->size - c->used < need) c = add_chunk(arena, need);
  char *memory = c->data + c->used;
  c->used += need;
  ASAN_POISON_MEMORY_REGION(memory + size_bytes, need - size_bytes);
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

/* One conversion of those that names are made of, without flags: %s, %d or %lld. */
typedef struct {
  const char *text; /* not terminated */
  size_t length;
  char digits[24];
} piece;

static size_t format_number(char digits[24], long long n) {
  size_t at = 24;
  unsigned long long rest = n < 0 ? -(unsigned long long)n : (unsigned long long)n;
  do digits[--at] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (n < 0) digits[--at] = '-';
  return at;
}

/* The next piece of a format: text without conversions, or one of these; false for others. */
static bool next_piece(const char **format, va_list *args, piece *ret) {
  const char *f = *format;
  if (*f != '%') {
    ret->text = f;
    ret->length = strcspn(f, "%");
    *format += ret->length;
    return true;
  }
  if (f[1] == 's') {
    ret->text = va_arg(*args, const char *);
    if (!ret->text) return false;
    ret->length = strlen(ret->text);
    *format += 2;
    return true;
  }
  bool is_long = !strncmp(f + 1, "lld", 3);
  if (!is_long && f[1] != 'd') return false;
  size_t at = format_number(ret->digits, is_long ? va_arg(*args, long long) : va_arg(*args, int));
  ret->text = ret->digits + at;
  ret->length = sizeof ret->digits - at;
  *format += is_long ? 4 : 2;
  return true;
}

/* Graphs have tens of thousands of names, for which vsnprintf takes several times as long. NULL
 * where the format has other conversions. */
static char *format_name(tsr_arena *arena, const char *format, va_list *args) {
  enum { PIECES_MAX = 8 };
  piece pieces[PIECES_MAX];
  int count = 0;
  size_t length = 0;
  while (*format) {
    if (count == PIECES_MAX || !next_piece(&format, args, &pieces[count])) return NULL;
    length += pieces[count++].length;
  }
  char *text = tsr_arena_alloc(arena, length + 1), *end = text;
  for (int i = 0; i < count; i++) {
    memcpy(end, pieces[i].text, pieces[i].length);
    end += pieces[i].length;
  }
  return text;
}

char *tsr_arena_vprintf(tsr_arena *arena, const char *format, va_list args) {
  va_list names;
  va_copy(names, args);
  char *name = format_name(arena, format, &names);
  va_end(names);
  if (name) return name;
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
