// SPDX-License-Identifier: Apache-2.0
/* The tokens of a template, with the white space control of transformers' environment (trim_blocks,
 * lstrip_blocks; https://jinja.palletsprojects.com/templates/#whitespace-control): a newline behind
 * a block or a comment is removed, and so are blanks in front of one on its line; `-` removes all
 * white space on its side, `+` keeps it; the last newline of a template is removed. */
#ifndef TSR_JINJA_LEXER_H
#define TSR_JINJA_LEXER_H
#include "base/diag.h"
#include "jinja/value.h"

typedef enum {
  TSR_JINJA_TOKEN_DATA,
  TSR_JINJA_TOKEN_BLOCK_BEGIN,
  TSR_JINJA_TOKEN_BLOCK_END,
  TSR_JINJA_TOKEN_PRINT_BEGIN,
  TSR_JINJA_TOKEN_PRINT_END,
  TSR_JINJA_TOKEN_NAME,
  TSR_JINJA_TOKEN_STRING,
  TSR_JINJA_TOKEN_INT,
  TSR_JINJA_TOKEN_FLOAT,
  TSR_JINJA_TOKEN_OPERATOR,
  TSR_JINJA_TOKEN_EOF
} tsr_jinja_token_kind;

typedef struct {
  tsr_jinja_token_kind kind;
  tsr_jinja_string text; /* of DATA and STRING their content, of others their source text */
  tsr_jinja_value value; /* of INT and FLOAT */
  tsr_location location;
} tsr_jinja_token;

/* The last token is EOF. */
bool tsr_jinja_tokenize(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    tsr_jinja_token **ret_tokens, int *ret_count, tsr_diags *diags);

#endif
