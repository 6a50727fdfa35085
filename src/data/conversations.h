// SPDX-License-Identifier: Apache-2.0
/* Conversations as documents of tokens, of which a mask names those that are targets. */
#ifndef TSR_DATA_CONVERSATIONS_H
#define TSR_DATA_CONVERSATIONS_H
#include "base/diag.h"
#include "data/text_files.h"
#include <stdint.h>

typedef struct {
  int32_t file, line; /* the line counts from 1 */
} tsr_conversation_place;

typedef struct {
  int64_t count;
  const int64_t *begins;  /* (count + 1) the first token of each document, and the end */
  const int32_t *tokens;  /* (begins[count]) */
  const uint8_t *trained; /* a bit for each token: whether it is a target */
  const tsr_conversation_place *places; /* (count) */
  const char *const *paths;             /* of the files */
} tsr_conversations;

static inline int64_t tsr_conversation_length(const tsr_conversations *c, int64_t document) {
  return c->begins[document + 1] - c->begins[document];
}
static inline bool tsr_conversation_trains(const tsr_conversations *c, int64_t token) {
  return c->trained[token / 8] >> token % 8 & 1;
}
/* How many of the document's first `length` tokens are targets. The first one never is: no token
 * precedes it. */
int64_t
tsr_conversation_targets(const tsr_conversations *conversations, int64_t document, int64_t length);

/* The tokens of one line. */
typedef struct {
  const int32_t *tokens;
  const uint8_t *trained; /* of each token: not 0 where it is a target */
  int64_t count;
} tsr_conversation;

/* Makes tokens of a line. `line` is its place; results and errors may live in `arena`, which lasts
 * until the line's tokens are copied. Several threads call it at once. */
typedef struct {
  bool (*encode)(
      const void *context, tsr_arena *arena, tsr_location line, const char *text, size_t length,
      tsr_conversation *ret, tsr_diags *diags);
  const void *context;
} tsr_conversation_encoder;

/* Encodes the lines of files, one after the other; lines of blanks are none. The result, in
 * `arena`, depends neither on the number of threads (0: one for each core) nor on `block_bytes`,
 * about which a thread encodes at a time (0: a MiB). All lines are encoded; errors are those of the
 * first 20 that cannot be, and the number of the others. */
bool tsr_conversations_read(
    tsr_arena *arena, const tsr_text_file *files, int files_count,
    const tsr_conversation_encoder *encoder, int threads, size_t block_bytes,
    tsr_conversations *ret, tsr_diags *diags);

#endif
