// SPDX-License-Identifier: Apache-2.0
/* Files of token numbers, as other programs write them: mapped, and read as they lie.
 *
 * llmc: 256 int32 of header {20240520, 1, tokens} and 16-bit tokens, or {20240801, 7, tokens} and
 * 32-bit ones. nanogpt_u16, nanogpt_u32: nothing but tokens. megatron: NAME.bin holds the tokens,
 * NAME.idx the sequences and the documents that they make. All are little endian. tt_train: YAML
 * (data/tt_train_tokens.h), which is read into memory. */
#ifndef TSR_DATA_TOKEN_FILES_H
#define TSR_DATA_TOKEN_FILES_H
#include "base/file_read.h"
#include <stdint.h>

typedef enum {
  TSR_TOKEN_FILE_AUTO, /* by what is in it, see tsr_token_file_open */
  TSR_TOKEN_FILE_TEXT, /* no token file */
  TSR_TOKEN_FILE_LLMC,
  TSR_TOKEN_FILE_NANOGPT_U16,
  TSR_TOKEN_FILE_NANOGPT_U32,
  TSR_TOKEN_FILE_MEGATRON,
  TSR_TOKEN_FILE_TT_TRAIN,
} tsr_token_format;
const char *tsr_token_format_name(tsr_token_format format); /* "llmc" */

typedef enum { TSR_TOKEN_U16, TSR_TOKEN_U32, TSR_TOKEN_I32 } tsr_token_type;
static inline int64_t tsr_token_bytes(tsr_token_type type) { return type == TSR_TOKEN_U16 ? 2 : 4; }

enum { TSR_LLMC_HEADER_BYTES = 1024, TSR_MEGATRON_HEADER_BYTES = 34 };
enum { TSR_LLMC_MAGIC_U16 = 20240520, TSR_LLMC_MAGIC_U32 = 20240801 };

/* A Megatron .idx whose numbers agree with each other; points into its bytes. */
typedef struct {
  tsr_token_type type;
  int64_t sequences, tokens;
  int64_t entries;          /* of `documents` */
  const uint8_t *pointers;  /* (sequences) int64, unaligned: the byte where each begins */
  const uint8_t *documents; /* (entries) int64, unaligned: the sequence where each begins */
} tsr_megatron_index;

typedef struct {
  const char *path; /* of the tokens */
  tsr_token_format format;
  tsr_token_type type;
  const void *tokens;
  int64_t count;
  int64_t begin_bytes; /* where the first token is in the file */
  int64_t vocab_size;  /* from the file itself; 0: not stored there */
  const tsr_megatron_index *index;
  const int64_t *begins; /* of a text's files, rising: the token where each begins */
  int64_t begins_count;
  tsr_file_map maps[2]; /* the tokens' file, the index */
} tsr_token_file;

/* Whether a file of AUTO is a token file: its name ends in .bin, .idx, .yaml or .yml, or there are
 * both of Megatron's files of this name. */
bool tsr_token_file_is(tsr_arena *arena, const char *path);

/* Maps a file and checks its sizes and its index. AUTO: tt-train by its name, Megatron where a .idx
 * stands beside it, llm.c by the number that it begins with, else nanoGPT, with 16-bit tokens for a
 * vocabulary of at most 65536 (0: unknown, an error) unless that reads as zeros every other token
 * (what is plainly text or another program's file is an error: data/text_check.h).
 * Of Megatron `path` is one of both files or what their names begin with. Errors stand at `place`
 * and name the file and the byte. */
bool tsr_token_file_open(
    tsr_arena *arena, const char *path, tsr_token_format format, int64_t vocab_size,
    tsr_location location, tsr_token_file *ret_file, tsr_diags *diags);
void tsr_token_file_close(tsr_token_file *file);

/* Reads an index of `length` bytes, called `path` in errors. */
bool tsr_megatron_index_read(
    const char *path, const void *bytes, size_t length, tsr_location location,
    tsr_megatron_index *ret_index, tsr_diags *diags);

static inline int64_t tsr_token_at(const tsr_token_file *file, int64_t i) {
  if (file->type == TSR_TOKEN_U16) return ((const uint16_t *)file->tokens)[i];
  if (file->type == TSR_TOKEN_U32) return ((const uint32_t *)file->tokens)[i];
  return ((const int32_t *)file->tokens)[i];
}

/* The first of `count` tokens from `begin` that is outside [0, vocab_size), or -1. At the speed of
 * the memory. */
int64_t tsr_token_file_find_outside(
    const tsr_token_file *file, int64_t begin, int64_t count, int64_t vocab_size);
/* The error of that token. */
bool tsr_token_file_outside(
    const tsr_token_file *file, int64_t token, int64_t vocab_size, tsr_location location,
    tsr_diags *diags);

/* The first document that begins behind token `at` by the index or the text's files; the file's end
 * when none does. */
int64_t tsr_token_file_next_document(const tsr_token_file *file, int64_t at);
/* Whether documents are known without an end-of-text token. */
bool tsr_token_file_has_documents(const tsr_token_file *file);

#endif
