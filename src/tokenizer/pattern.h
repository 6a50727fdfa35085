// SPDX-License-Identifier: Apache-2.0
/* Regular expressions of tokenizers, as Oniguruma reads them, which the tokenizers package uses. */
#ifndef TSR_TOKENIZER_PATTERN_H
#define TSR_TOKENIZER_PATTERN_H
#include "base/diag.h"

typedef struct tsr_pattern tsr_pattern; /* never changes: for any number of threads */
typedef struct tsr_match tsr_match;     /* what one thread needs to match */

/* A regular expression, or plain text. It is freed with the arena. */
bool tsr_pattern_compile(
    tsr_arena *arena, const char *text, bool is_plain, const char *file, tsr_pattern **ret,
    tsr_diags *diags);
tsr_match *tsr_match_new(tsr_arena *arena);
void tsr_match_free(tsr_match *match);

/* The first match at or behind `at` in valid UTF-8: 1, or 0 for none, or -1, mostly for too many
 * steps or too much memory: tsr_match_failure has the reason. */
int tsr_pattern_find(
    const tsr_pattern *pattern, tsr_match *match, const char *text, size_t length, size_t at,
    size_t *ret_begin, size_t *ret_end);
const char *tsr_match_failure(const tsr_match *match);

/* ---- pattern_jit.c ---- */

/* A few patterns, known by their exact text, found in the same places several times faster. */
typedef struct tsr_pattern_jit tsr_pattern_jit;
typedef struct tsr_pattern_jit_match tsr_pattern_jit_match;
tsr_pattern_jit *
tsr_pattern_jit_compile(tsr_arena *arena, const char *text); /* NULL: not one of them */
void tsr_pattern_jit_free(tsr_pattern_jit *jit);             /* NULL is fine */
tsr_pattern_jit_match *tsr_pattern_jit_match_new(tsr_arena *arena);
void tsr_pattern_jit_match_free(tsr_pattern_jit_match *match);
/* As tsr_pattern_find; after -1 Oniguruma has to find it. */
int tsr_pattern_jit_find(
    const tsr_pattern_jit *jit, tsr_pattern_jit_match *match, const char *text, size_t length,
    size_t at, size_t *ret_begin, size_t *ret_end);

#endif
