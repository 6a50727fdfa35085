// SPDX-License-Identifier: Apache-2.0
/* Documents of tokens: conversations, of which a mask names the tokens that are targets, or texts,
 * each of which has a label at its last token. */
#ifndef TSR_DATA_MASKED_DOCUMENTS_H
#define TSR_DATA_MASKED_DOCUMENTS_H
#include "base/diag.h"
#include "data/text_files.h"
#include <stdint.h>

typedef struct {
  int32_t file, line; /* the line counts from 1 */
} tsr_document_place;

typedef struct {
  int64_t count;
  const int64_t *begins;            /* (count + 1) the first token of each document, and the end */
  const int32_t *tokens;            /* (begins[count]) */
  const uint8_t *trained;           /* a bit for each token: whether it is a target */
  const int32_t *labels;            /* (count) of texts; NULL: of conversations */
  const tsr_document_place *places; /* (count) */
  const char *const *paths;         /* of the files */
} tsr_masked_documents;

static inline int64_t tsr_document_length(const tsr_masked_documents *d, int64_t document) {
  return d->begins[document + 1] - d->begins[document];
}
static inline bool tsr_document_trains(const tsr_masked_documents *d, int64_t token) {
  return d->trained[token / 8] >> token % 8 & 1;
}
/* How many of the document's first `length` tokens are targets. The first one never is: no token
 * precedes it. A label is one, at the last of these tokens. */
int64_t
tsr_document_targets(const tsr_masked_documents *documents, int64_t document, int64_t length);

/* The tokens of one line. */
typedef struct {
  const int32_t *tokens;
  const uint8_t *trained; /* of each token: not 0 where it is a target */
  int64_t count;
  int32_t label; /* of a text */
} tsr_masked_tokens;

/* Makes tokens of the line at [offset, offset + length) of a file. The results may live in `arena`,
 * which lasts until they are copied. Several threads call `encode` at once, each with a state of
 * its own. */
typedef struct {
  bool (*encode)(
      const void *context, void *state, tsr_arena *arena, const tsr_text_file *file, size_t offset,
      size_t length, tsr_masked_tokens *ret, tsr_diags *diags);
  const void *context;
  void *(*open_state)(const void *context); /* NULL: the state is NULL */
  void (*close_state)(void *state);
  bool has_labels; /* each line has a label, and no token is a target */
} tsr_line_encoder;

/* Encodes the lines of files, one after the other; lines of blanks are none. The result, in
 * `arena`, depends neither on the number of threads (0: one for each core) nor on `block_bytes`,
 * about which a thread encodes at a time (0: a MiB). Errors are those of the first lines that
 * cannot be encoded, TSR_BAD_LINES_MAX at most; of lines with one error in another file, the
 * first's. */
enum { TSR_BAD_LINES_MAX = 20 };
bool tsr_masked_documents_read(
    tsr_arena *arena, const tsr_text_file *files, int files_count, const tsr_line_encoder *encoder,
    int threads, size_t block_bytes, tsr_masked_documents *ret, tsr_diags *diags);

#endif
