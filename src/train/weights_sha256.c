// SPDX-License-Identifier: Apache-2.0
/* SHA-256 over all parameters, whole and without padding, in the order of their names. */
#include "base/memory.h"
#include "base/sha256.h"
#include "train/trainer.h"
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
  return strcmp((*(const tsr_param *const *)a)->name, (*(const tsr_param *const *)b)->name);
}

static size_t numbers_of(const tsr_param *p, int64_t rows) {
  size_t n = (size_t)rows;
  for (int d = 1; d < p->ndim; d++) n *= (size_t)p->shape[d];
  return n;
}

/* Where one rank has all of a parameter as it is hashed, with its padding behind it, or NULL. */
static const float *find_whole(const tsr_executable *executable, int value) {
  tsr_part_of_value part;
  if (tsr_executable_ranks(executable) > 1 ||
      tsr_executable_graph(executable)->values[value].dtype != TSR_F32)
    return NULL;
  return tsr_executable_parts(executable, value, false, &part) == 1 ? part.address : NULL;
}

bool tsr_weights_sha256(
    tsr_arena *arena, const tsr_executable *executable, const tsr_graph *g, char ret_text[65],
    tsr_diags *diags) {
  const tsr_param **sorted = tsr_arena_array(arena, const tsr_param *, g->params_count);
  size_t most = 0; /* numbers that have to be brought together */
  for (int i = 0; i < g->params_count; i++) {
    sorted[i] = &g->params[i];
    size_t n = numbers_of(&g->params[i], g->params[i].shape[0]);
    if (n > most && !find_whole(executable, tsr_executable_param(executable, i))) most = n;
  }
  qsort(sorted, (size_t)g->params_count, sizeof *sorted, by_name);
  float *copy = most ? tsr_memory_try(sizeof(float) * most) : NULL;
  if (most && !copy)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s to compute the weights' SHA-256",
        tsr_text_bytes((int64_t)(sizeof *copy * most)).text);
  tsr_sha256 *sha = tsr_sha256_new(arena);
  for (int i = 0; i < g->params_count; i++) {
    const tsr_param *p = sorted[i];
    int value = tsr_executable_param(executable, (int)(p - g->params));
    const float *whole = find_whole(executable, value);
    if (!whole) tsr_executable_read(executable, value, copy);
    tsr_sha256_update(sha, whole ? whole : copy, numbers_of(p, p->valid0) * sizeof *whole);
  }
  tsr_sha256_final(sha, ret_text);
  free(copy);
  return true;
}
