// SPDX-License-Identifier: Apache-2.0
/* Checkpoints made by hand, and the text of a manifest with the right hash in front. */
#ifndef TSR_TESTS_CHECKPOINT_MADE_H
#define TSR_TESTS_CHECKPOINT_MADE_H
#include "checkpoint/folder_writer.h"
#include <assert.h>
#include <string.h>

/* Puts the hash of what stands behind the first line into it. */
static inline void made_hash(char *text, size_t length) {
  enum { FRONT = 45, HASH_AT = 10 };
  char hash[TSR_HASH_TEXT];
  tsr_hash_text(text + FRONT, length - FRONT, hash);
  memcpy(text + HASH_AT, hash, TSR_HASH_TEXT - 1);
}

/* One tensor "w" of four numbers, all `step`. */
static inline void made_checkpoint(tsr_arena *arena, const char *path, int64_t step) {
  float w[4] = {(float)step, (float)step, (float)step, (float)step};
  tsr_checkpoint_writer_piece piece = {"w", TSR_F32, 1, {4}, {0}, {4}};
  tsr_manifest about = {.state = {.step = step, .loss = 1}, .has_state = true};
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_checkpoint_writer *out;
  bool ok = tsr_checkpoint_writer_begin(arena, path, NULL, NULL, &out, diags) &&
            tsr_checkpoint_writer_tensors(out, "rank-00000.safetensors", &piece, 1, diags) &&
            tsr_checkpoint_writer_data(out, w, sizeof w, diags) &&
            tsr_checkpoint_writer_end_tensors(out, diags) &&
            tsr_checkpoint_writer_commit(out, &about, diags);
  if (!ok) tsr_diags_print(diags, stderr);
  assert(ok);
}

#endif
