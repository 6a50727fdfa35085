// SPDX-License-Identifier: Apache-2.0
/* SentencePiece's tokenizer.model: a protocol buffer, ModelProto of sentencepiece_model.proto. */
#ifndef TSR_CHECKPOINT_SENTENCEPIECE_MODEL_H
#define TSR_CHECKPOINT_SENTENCEPIECE_MODEL_H
#include "base/diag.h"

typedef enum {
  TSR_PIECE_NORMAL = 1,
  TSR_PIECE_UNKNOWN = 2,
  TSR_PIECE_CONTROL = 3,
  TSR_PIECE_USER_DEFINED = 4,
  TSR_PIECE_UNUSED = 5,
  TSR_PIECE_BYTE = 6
} tsr_piece_type;

typedef struct {
  const char *text; /* UTF-8 */
  float score;
  tsr_piece_type type;
} tsr_sentencepiece;

typedef struct {
  tsr_sentencepiece *pieces; /* (count), by ids */
  int count;
  bool is_bpe; /* else Unigram, words or characters */
} tsr_sentencepiece_model;

/* `path` is what errors name. Errors: bytes that are no such model. */
bool tsr_sentencepiece_parse(
    tsr_arena *arena, const char *path, const void *bytes, size_t length,
    tsr_sentencepiece_model *ret, tsr_diags *diags);
/* The same of a whole file. */
bool tsr_sentencepiece_read(
    tsr_arena *arena, const char *path, tsr_sentencepiece_model *ret, tsr_diags *diags);

#endif
