// SPDX-License-Identifier: Apache-2.0
/* XXH3-128 in hexadecimal and XXH3-64 as a number, for finding differences and damage; FNV-1a 64,
 * for what users compute themselves from a name. None is cryptographic. */
#ifndef TSR_BASE_HASH_H
#define TSR_BASE_HASH_H
#include "base/arena.h"
#include <stdint.h>

enum { TSR_HASH_TEXT = 33 }; /* bytes of the text, its end included */

/* Of bytes that are in memory as a whole. */
void tsr_hash_text(const void *bytes, size_t length, char ret_text[TSR_HASH_TEXT]);
uint64_t tsr_hash_number(const void *bytes, size_t length);
uint64_t tsr_hash_fnv1a(const void *bytes, size_t length);

/* Of bytes that come in pieces: begin, add …, end; then it may begin again. In the arena. */
typedef struct tsr_hasher tsr_hasher;
tsr_hasher *tsr_hasher_new(tsr_arena *arena);
void tsr_hasher_begin(tsr_hasher *hasher);
void tsr_hasher_add(tsr_hasher *hasher, const void *bytes, size_t length);
void tsr_hasher_end(tsr_hasher *hasher, char ret_text[TSR_HASH_TEXT]);

#endif
