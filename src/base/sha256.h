// SPDX-License-Identifier: Apache-2.0
/* SHA-256 (FIPS 180-4) over the bytes of parameters, in the order they are given. */
#ifndef TSR_BASE_SHA256_H
#define TSR_BASE_SHA256_H
#include "base/arena.h"

enum { TSR_SHA256_TEXT_BYTES = 65 }; /* 64 hexadecimal digits and NUL */

typedef struct tsr_sha256 tsr_sha256;

tsr_sha256 *tsr_sha256_new(tsr_arena *arena);
void tsr_sha256_update(tsr_sha256 *sha, const void *bytes, size_t length);
/* Writes the sum in lower case, and makes ready for the next one. */
void tsr_sha256_final(tsr_sha256 *sha, char ret_text[TSR_SHA256_TEXT_BYTES]);

#endif
