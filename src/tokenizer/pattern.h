// SPDX-License-Identifier: Apache-2.0
/* Regular expressions of tokenizers, as Oniguruma reads them, which the tokenizers package uses. */
#ifndef TSR_TOKENIZER_PATTERN_H
#define TSR_TOKENIZER_PATTERN_H
#include "base/diag.h"

typedef struct tsr_pattern tsr_pattern; /* never changes: for any number of threads */
typedef struct tsr_known_pattern tsr_known_pattern;
typedef struct tsr_match tsr_match; /* what one thread needs to match */

/* A regular expression, or plain text. It is freed with the arena. */
bool tsr_pattern_compile(
    tsr_arena *arena, const char *text, bool is_plain, const char *file, tsr_pattern **ret,
    tsr_diags *diags);
/* The pattern that it is known as, or NULL. */
const tsr_known_pattern *tsr_pattern_known(const tsr_pattern *pattern);
tsr_match *tsr_match_new(tsr_arena *arena);
void tsr_match_free(tsr_match *match);

/* The first match at or behind `at` in valid UTF-8: 1, or 0 for none, or -1, mostly for too many
 * steps or too much memory: tsr_match_failure has the reason. */
int tsr_pattern_find(
    const tsr_pattern *pattern, tsr_match *match, const char *text, size_t length, size_t at,
    size_t *ret_begin, size_t *ret_end);
const char *tsr_match_failure(const tsr_match *match);

/* ---- pattern_known.c ---- */

/* A few patterns, known by their exact text, matched at the same places many times faster. */
tsr_known_pattern *tsr_known_pattern_find(tsr_arena *arena, const char *text); /* NULL: none */
/* Whether matches follow each other without gaps, in any text. */
bool tsr_known_pattern_covers(const tsr_known_pattern *pattern);
/* Of such a one: writes where the next matches from `at` on end, `most` at most, and returns how
 * many: 0 at the end of the text alone. */
int tsr_known_pattern_ends(
    const tsr_known_pattern *pattern, const char *text, size_t length, size_t at, int most,
    size_t *ret_ends);
/* As tsr_pattern_find. */
bool tsr_known_pattern_match(
    const tsr_known_pattern *pattern, const char *text, size_t length, size_t at, size_t *ret_begin,
    size_t *ret_end);

#endif
