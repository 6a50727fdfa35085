// SPDX-License-Identifier: Apache-2.0
/* Located diagnostics: what is wrong, where, and what would be right.
 *
 * Printed form (the hint line only where there is a hint):
 *
 *   run.yaml:4:3: error: unknown key 'bach_size' in training_config
 *       4 |   bach_size: 8
 *         |   ^~~~~~~~~
 *         = did you mean 'batch_size'?
 *
 * Of a line longer than 160 columns what is around the caret is shown, with … where it is cut.
 *
 * Control characters of a name, a message or a hint are printed as escapes: \n, \t, \x1b; those of
 * a quoted line as ?, but for tabs.
 *
 * Functions collect; only main prints. A place with line 0 prints as `file: error: …`, one without
 * a file as `error: …`. */
#ifndef TSR_BASE_DIAG_H
#define TSR_BASE_DIAG_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdio.h>

typedef struct {
  const char *file; /* as the user named it; NULL: nowhere in a file */
  int line, col;    /* from 1, the column in bytes; 0: unknown */
  int length;       /* bytes to underline; 0 or 1: just the caret */
} tsr_location;

typedef enum {
  TSR_NOTE,
  TSR_WARNING,
  TSR_ERROR,   /* the user's mistake: exit code 2 */
  TSR_FAILURE, /* the world's: file, disk, peer, memory, device: exit code 1 */
} tsr_severity;

typedef struct tsr_diags tsr_diags;

/* Owns nothing of its own: lives in `arena`. */
tsr_diags *tsr_diags_new(tsr_arena *arena);

/* Remembers a file's text, so that diagnostics can quote its lines. Both are copied. */
void tsr_diags_source(tsr_diags *diags, const char *file, const char *text, size_t length);

/* Adds one diagnostic. Returns false, so that a check may end with `return tsr_diag_error(…)`. At
 * most TSR_DIAGS_MAX are kept; the rest are counted. */
enum { TSR_DIAGS_MAX = 200 };
bool tsr_diag(
    tsr_diags *diags, tsr_severity severity, tsr_location location, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define tsr_diag_error(diags, ...) tsr_diag((diags), TSR_ERROR, __VA_ARGS__)
#define tsr_diag_failure(diags, ...) tsr_diag((diags), TSR_FAILURE, __VA_ARGS__)
#define tsr_diag_warning(diags, ...) tsr_diag((diags), TSR_WARNING, __VA_ARGS__)
#define tsr_diag_note(diags, ...) tsr_diag((diags), TSR_NOTE, __VA_ARGS__)

/* For what a file or the program promises and does not hold: a key without effect, bits that are
 * not the recipe's. The severity, or TSR_ERROR after tsr_diags_strict. */
tsr_severity tsr_diag_normative(const tsr_diags *diags, tsr_severity severity);
void tsr_diags_strict(tsr_diags *diags);

/* Adds a hint line ("= …") to the newest diagnostic. */
void tsr_diag_hint(tsr_diags *diags, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Hint "did you mean 'x'?" when one of the candidates is near `word`, else "valid: a, b, c" when
 * there are at most 13 of them, else nothing; nothing either for a diagnostic that is only counted.
 */
void tsr_diag_nearest(tsr_diags *diags, const char *word, const char *const *candidates, int count);

int tsr_diags_errors(const tsr_diags *diags); /* of TSR_ERROR and TSR_FAILURE */
/* The first error's message, without its location; "" without errors. */
const char *tsr_diags_first_error(const tsr_diags *diags);
/* Its location; TSR_NOWHERE without errors. */
tsr_location tsr_diags_first_location(const tsr_diags *diags);
/* 0 without errors, 1 if any is a runtime failure, else 2. */
int tsr_diags_exit_code(const tsr_diags *diags);
/* Diagnostics that are not printed yet. */
int tsr_diags_waiting(const tsr_diags *diags);
/* Prints all in the order they were added, then forgets the diagnostics (not the sources) so that
 * main may print in stages; the error counts stay. */
void tsr_diags_print(tsr_diags *diags, FILE *stream);
/* From now on errors only are printed, notes and warnings forgotten unprinted. */
void tsr_diags_quiet(tsr_diags *diags);

#define TSR_NOWHERE ((tsr_location){0})

#endif
