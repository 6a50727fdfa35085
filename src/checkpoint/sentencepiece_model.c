// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sentencepiece_model.h"
#include "base/file_read.h"
#include "base/utf8.h"
#include <string.h>

/* Of a protocol buffer: how the value of a field is written. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { MODEL_BYTES_MAX = 1 << 28 };
enum { BPE = 2 }; /* TrainerSpec.ModelType; 1, Unigram, is the default */

/* A message: what is left of it. */
typedef struct {
  const unsigned char *at, *end;
} message;

typedef struct {
  uint64_t number;
  int kind;
  uint64_t value; /* VARINT and FIXED32 */
  message bytes;  /* BYTES */
} field;

static bool read_varint(message *m, uint64_t *ret) {
  *ret = 0;
  for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
    unsigned char byte = *m->at++;
    *ret |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

/* The next field; false where the message is malformed. To be called while there is one. */
static bool read_field(message *m, field *ret) {
  uint64_t key, length;
  *ret = (field){0};
  if (!read_varint(m, &key)) return false;
  ret->number = key >> 3;
  ret->kind = (int)(key & 7);
  if (ret->kind == VARINT) return read_varint(m, &ret->value);
  if (ret->kind == BYTES && !read_varint(m, &length)) return false;
  if (ret->kind == FIXED32) length = 4;
  else if (ret->kind == FIXED64) length = 8;
  else if (ret->kind != BYTES) return false;
  if (length > (uint64_t)(m->end - m->at)) return false;
  ret->bytes = (message){m->at, m->at + length};
  m->at += length;
  for (int i = 0; ret->kind == FIXED32 && i < 4; i++)
    ret->value |= (uint64_t)ret->bytes.at[i] << 8 * i;
  return true;
}

static bool read_text(tsr_arena *arena, message bytes, const char **ret) {
  const char *text = (const char *)bytes.at;
  size_t length = (size_t)(bytes.end - bytes.at);
  if (memchr(text, '\0', length) || tsr_utf8_valid(text, length) != length) return false;
  *ret = tsr_arena_strndup(arena, text, length);
  return true;
}

static bool read_piece(tsr_arena *arena, message m, tsr_sentencepiece *ret) {
  *ret = (tsr_sentencepiece){.type = TSR_PIECE_NORMAL};
  while (m.at < m.end) {
    field f;
    if (!read_field(&m, &f)) return false;
    if (f.number == 1 && (f.kind != BYTES || !read_text(arena, f.bytes, &ret->text))) return false;
    if (f.number == 2) {
      uint32_t bits = (uint32_t)f.value;
      if (f.kind != FIXED32) return false;
      memcpy(&ret->score, &bits, sizeof bits);
    }
    if (f.number == 3) {
      if (f.kind != VARINT || f.value < TSR_PIECE_NORMAL || f.value > TSR_PIECE_BYTE) return false;
      ret->type = (tsr_piece_type)f.value;
    }
  }
  return ret->text != NULL;
}

static bool read_trainer(message m, bool *ret_is_bpe) {
  while (m.at < m.end) {
    field f;
    if (!read_field(&m, &f)) return false;
    if (f.number == 3 && f.kind == VARINT) *ret_is_bpe = f.value == BPE;
  }
  return true;
}

static bool count_pieces(message m, int *ret) {
  *ret = 0;
  while (m.at < m.end) {
    field f;
    if (!read_field(&m, &f)) return false;
    *ret += f.number == 1 && f.kind == BYTES;
  }
  return *ret > 0;
}

static bool read_model(tsr_arena *arena, message m, tsr_sentencepiece_model *ret) {
  int count;
  if (!count_pieces(m, &count)) return false;
  ret->pieces = tsr_arena_array(arena, tsr_sentencepiece, count);
  while (m.at < m.end) {
    field f;
    if (!read_field(&m, &f)) return false;
    if (f.kind != BYTES) continue;
    if (f.number == 1 && !read_piece(arena, f.bytes, &ret->pieces[ret->count++])) return false;
    if (f.number == 2 && !read_trainer(f.bytes, &ret->is_bpe)) return false;
  }
  return true;
}

bool tsr_sentencepiece_parse(
    tsr_arena *arena, const char *path, const void *bytes, size_t length,
    tsr_sentencepiece_model *ret, tsr_diags *diags) {
  const unsigned char *at = bytes;
  *ret = (tsr_sentencepiece_model){0};
  return read_model(arena, (message){at, at + length}, ret) ||
         tsr_diag_error(diags, TSR_NOWHERE, "'%s' is no model of SentencePiece", path);
}

bool tsr_sentencepiece_read(
    tsr_arena *arena, const char *path, tsr_sentencepiece_model *ret, tsr_diags *diags) {
  char *text;
  size_t length;
  return tsr_file_read_nofollow(arena, path, MODEL_BYTES_MAX, TSR_NOWHERE, &text, &length, diags) &&
         tsr_sentencepiece_parse(arena, path, text, length, ret, diags);
}
