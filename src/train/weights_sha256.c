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

/* Whether one rank has all of a parameter as it is hashed: then where. */
static bool find_whole(const tsr_executable *executable, int value, tsr_part_of_value *ret_part) {
  const tsr_graph *g = tsr_executable_graph(executable);
  const tsr_param *p = &g->params[g->values[value].param];
  if (tsr_executable_ranks(executable) > 1 || g->values[value].dtype != TSR_F32 || p->padding.dim ||
      p->padding.blocks > 1)
    return false;
  return tsr_executable_parts(executable, value, false, ret_part) == 1;
}

static void add_whole(tsr_sha256 *sha, const tsr_part_of_value *part, int64_t bytes) {
  tsr_device_pieces pieces;
  const void *piece;
  tsr_device_pieces_begin(&pieces, part->device, part->address, bytes);
  for (int64_t n; (piece = tsr_device_pieces_next(&pieces, &n));)
    tsr_sha256_update(sha, piece, (size_t)n);
  tsr_device_pieces_end(&pieces);
}

bool tsr_weights_sha256(
    tsr_arena *arena, const tsr_executable *executable, const tsr_graph *g, char ret_text[65],
    tsr_diags *diags) {
  const tsr_param **sorted = tsr_arena_array(arena, const tsr_param *, g->params_count);
  tsr_part_of_value part;
  size_t most = 0; /* numbers that have to be brought together */
  for (int i = 0; i < g->params_count; i++) {
    sorted[i] = &g->params[i];
    size_t n = 1;
    for (int d = 0; d < g->params[i].ndim; d++) n *= (size_t)g->params[i].shape[d];
    if (n > most && !find_whole(executable, tsr_executable_param(executable, i), &part)) most = n;
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
    int64_t bytes = tsr_param_real_elements(p) * (int64_t)sizeof *copy;
    if (find_whole(executable, value, &part)) {
      add_whole(sha, &part, bytes);
      continue;
    }
    tsr_executable_read(executable, value, copy);
    tsr_padding_remove(&p->padding, p->ndim, p->shape, copy);
    tsr_sha256_update(sha, copy, (size_t)bytes);
  }
  tsr_sha256_final(sha, ret_text);
  free(copy);
  return true;
}
