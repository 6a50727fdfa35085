// SPDX-License-Identifier: Apache-2.0
/* Unicode's normalization forms (UAX #15). Canonical or compatible parts take the place of a
 * character, marks stand in their canonical order, and in the composed forms a letter and its marks
 * become one code point where there is one. */
#ifndef TSR_TOKENIZER_NORMAL_FORM_H
#define TSR_TOKENIZER_NORMAL_FORM_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

/* Bits: 1 decomposed, 2 compatible. */
typedef enum { TSR_NFC, TSR_NFD, TSR_NFKC, TSR_NFKD } tsr_normal_form;
extern const char *const tsr_normal_form_names[]; /* ends with NULL */

/* One form, and which characters it leaves alone. Any number of threads may use it. */
typedef struct tsr_normalizer tsr_normalizer;
tsr_normalizer *tsr_normalizer_new(tsr_arena *arena, tsr_normal_form form);
tsr_normal_form tsr_normalizer_form(const tsr_normalizer *normalizer);

/* No text gets longer than this many times its bytes. */
int tsr_normalizer_growth(const tsr_normalizer *normalizer);

/* Whether a quick look finds nothing that the form may change; false means "perhaps". */
bool tsr_normalizer_is_plain(const tsr_normalizer *normalizer, const char *text, size_t length);

/* Memory that calls use again; start with {0} and an arena. */
typedef struct {
  tsr_arena *arena;
  uint64_t *items;
  int32_t *codes;
  size_t capacity;
} tsr_normalize_scratch;

/* Writes the form of valid UTF-8 and returns its length; `ret_text` has room for
 * tsr_normalizer_growth * `length` bytes. `ret_from` (NULL: none) has room for one more: for each
 * byte written, where the source begins that it is made of, and then `length`. */
size_t tsr_normalize(
    const tsr_normalizer *normalizer, tsr_normalize_scratch *scratch, const char *text,
    size_t length, char *ret_text, size_t *ret_from);

#endif
