// SPDX-License-Identifier: Apache-2.0
/* Unicode's normalization form C (UAX #15): a letter and its marks become one code point where
 * there is one, marks stand in their canonical order. */
#ifndef TSR_DATA_NFC_H
#define TSR_DATA_NFC_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum { TSR_NFC_GROWTH = 3 }; /* no text gets longer than this many times its bytes */

/* Whether a quick look finds nothing that NFC may change; false says "perhaps not NFC". */
bool tsr_nfc_is_plain(const char *text, size_t length);

/* Memory that calls use again; start with {0} and an arena. */
typedef struct {
  tsr_arena *arena;
  uint64_t *items;
  size_t capacity;
} tsr_nfc_scratch;

/* Writes the NFC of valid UTF-8 and returns its length; `ret_text` has room for TSR_NFC_GROWTH *
 * `length` bytes. */
size_t tsr_nfc(tsr_nfc_scratch *scratch, const char *text, size_t length, char *ret_text);

#endif
