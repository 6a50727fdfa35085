// SPDX-License-Identifier: Apache-2.0
/* Text that grows, and the nearest word. */
#ifndef TSR_BASE_TEXT_H
#define TSR_BASE_TEXT_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing, always NUL-terminated text on the heap; start with {0}. `data` is NULL while empty. */
typedef struct {
  char *data;
  size_t length, capacity;
} tsr_text;

void tsr_text_add(tsr_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tsr_text_add_bytes(tsr_text *text, const void *bytes, size_t length);
/* A character as UTF-8; `code` is a code point below 0x110000. */
void tsr_text_add_code_point(tsr_text *text, uint32_t code);
/* Bytes that are not UTF-8, and NUL, become U+FFFD. */
void tsr_text_add_clean(tsr_text *text, const char *bytes, size_t length);
/* For a terminal: control characters, but newlines and tabs, become "\x1b" (bytes, also of C1 in
 * text that is no UTF-8) or "\u009b" (characters). */
void tsr_text_add_shown(tsr_text *text, const char *bytes, size_t length);
void tsr_text_free(tsr_text *text);

/* The candidate within an edit distance (insert, delete, replace, swap) of a third of the word's
 * length (at least 1, at most 3), upper and lower case alike; the first of the nearest; or NULL. */
const char *tsr_nearest(const char *word, const char *const *candidates, int count);

/* A text by value, for one argument of a printf: tsr_text_count(n).text lives as long as the full
 * expression. */
typedef struct {
  char text[96];
} tsr_short_text;

tsr_short_text tsr_text_count(int64_t value);    /* "81,920,000,000" */
tsr_short_text tsr_text_bytes(int64_t bytes);    /* "76.3 GiB" */
tsr_short_text tsr_text_seconds(double seconds); /* "9.51 s", "3.20 ms", "12.0 us" */
/* "0:07", "1:23", "2:03:04", "3d 02:03:04"; "--:--" of what is below 0 or not known. */
tsr_short_text tsr_text_duration(double seconds);

#endif
