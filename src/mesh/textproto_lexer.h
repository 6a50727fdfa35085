// SPDX-License-Identifier: Apache-2.0
/* Tokens of the protobuf text format (the Text Format Language Specification, "Lexical Elements").
 */
#ifndef TSR_MESH_TEXTPROTO_LEXER_H
#define TSR_MESH_TEXTPROTO_LEXER_H
#include "base/diag.h"
#include <stdint.h>

typedef enum {
  TSR_TOKEN_END,
  TSR_TOKEN_IDENT,
  TSR_TOKEN_DEC,
  TSR_TOKEN_OCT, /* 0 and at least one more digit */
  TSR_TOKEN_HEX,
  TSR_TOKEN_FLOAT,  /* with a point, an exponent or the suffix f */
  TSR_TOKEN_STRING, /* one literal with its quotes, escapes as written */
  TSR_TOKEN_PUNCT,  /* one byte */
  TSR_TOKEN_BAD     /* already reported */
} tsr_token_kind;

typedef struct {
  tsr_token_kind kind;
  const char *start; /* in the text that is read; not NUL-terminated */
  size_t length;
  tsr_location location;
  bool is_first_of_line;
} tsr_token;

typedef struct {
  const char *file, *at, *end, *line_start;
  int line;
  tsr_diags *diags;
} tsr_lexer;

/* Checks the text as a whole: UTF-8, no NUL, no byte order mark. False after an error. */
bool tsr_lexer_start(
    tsr_lexer *lexer, const char *file, const char *text, size_t length, tsr_diags *diags);
/* The longest next token. A malformed one is reported, skipped as a whole and returned as BAD. */
tsr_token tsr_lexer_next(tsr_lexer *lexer);

static inline bool tsr_token_is(const tsr_token *token, char punct) {
  return token->kind == TSR_TOKEN_PUNCT && token->start[0] == punct;
}

/* Bytes of the UTF-8 sequence at `at`, 0 when it is malformed (overlong and surrogates too). */
int tsr_utf8_length(const char *at, const char *end);

#endif
