// SPDX-License-Identifier: Apache-2.0
/* The tokens of a template, with the rules for whitespace of Hugging Face's environment
 * (trim_blocks, lstrip_blocks; https://jinja.palletsprojects.com/templates/#whitespace-control):
 * a newline behind a block or a comment is dropped, so are blanks in front of one on its line, `-`
 * drops all whitespace on its side, `+` keeps it, and the file's last newline is dropped. */
#ifndef TSR_JINJA_LEXER_H
#define TSR_JINJA_LEXER_H
#include "base/diag.h"
#include "jinja/value.h"

typedef enum {
  TOKEN_DATA,
  TOKEN_BLOCK_BEGIN,
  TOKEN_BLOCK_END,
  TOKEN_PRINT_BEGIN,
  TOKEN_PRINT_END,
  TOKEN_NAME,
  TOKEN_STRING,
  TOKEN_INT,
  TOKEN_FLOAT,
  TOKEN_OPERATOR,
  TOKEN_EOF
} token_kind;

typedef struct {
  token_kind kind;
  jinja_string text; /* of DATA and STRING the content; of others as written */
  jinja_value value; /* of INT and FLOAT */
  tsr_location location;
} token;

/* The last token is EOF. False: an error at its place. */
bool jinja_tokens(
    tsr_arena *arena, const char *file, const char *text, size_t length, token **ret_tokens,
    int *ret_count, tsr_diags *diags);

#endif
