// SPDX-License-Identifier: Apache-2.0
/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef TSR_BASE_UTF8_H
#define TSR_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TSR_UTF8_CODES = 0x110000, TSR_UTF8_BYTES_MAX = 4 };

/* The bytes of the character at `text` (1..4) and its code point, or 0 when it is not valid. */
int tsr_utf8_next(const char *text, size_t length, uint32_t *ret_code);

/* How many bytes of the text are whole characters: `length`, or where the first is not valid. */
size_t tsr_utf8_valid(const char *text, size_t length);

/* The bytes of the broken character at `text`: as many as could begin one, at least 1, as Python's
 * bytes.decode(errors='replace') has it. `ret_is_open` (NULL: not needed): whether bytes behind the
 * text could complete it. */
size_t tsr_utf8_broken(const char *text, size_t length, bool *ret_is_open);

/* Unicode's White_Space. */
bool tsr_utf8_is_space(uint32_t code);

/* Writes the character's bytes and returns how many they are. */
int tsr_utf8_put(uint32_t code, char ret_bytes[TSR_UTF8_BYTES_MAX]);

#endif
