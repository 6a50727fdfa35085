// SPDX-License-Identifier: Apache-2.0
/* A growing region of memory that is freed as a whole.
 *
 * Everything that describes a run (configuration, mesh, graph, program) lives in one arena from
 * start to end, so nothing is freed singly and no pointer into it ever dangles. Tensors do not live
 * here: the memory plan gives them offsets in a few big buffers. */
#ifndef TSR_BASE_ARENA_H
#define TSR_BASE_ARENA_H
#include <stdarg.h>
#include <stddef.h>

typedef struct tsr_arena tsr_arena;

tsr_arena *tsr_arena_new(void);
void tsr_arena_free(tsr_arena *arena); /* NULL is fine */
/* Has `release(object)` called when the arena is freed, the last one first: for what a library has
 * allocated for an object in the arena. */
void tsr_arena_on_free(tsr_arena *arena, void (*release)(void *object), void *object);

/* Zeroed memory, aligned for any type. Never NULL: out of memory ends the process with a message,
 * because metadata is a few megabytes and nothing sensible can follow its failure. */
void *tsr_arena_alloc(tsr_arena *arena, size_t size_bytes);
#define tsr_arena_array(arena, type, count)                                                        \
  ((type *)tsr_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* Grows `*items` (elements of `item_bytes`) so that index `count` may be written; the old array
 * stays in the arena. `*capacity` starts at 0 with `*items` NULL. */
void tsr_arena_grow(tsr_arena *arena, void **items, size_t item_bytes, int count, int *capacity);

char *tsr_arena_strdup(tsr_arena *arena, const char *text);
char *tsr_arena_strndup(tsr_arena *arena, const char *text, size_t length);
char *tsr_arena_printf(tsr_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *tsr_arena_vprintf(tsr_arena *arena, const char *format, va_list args);

#endif
