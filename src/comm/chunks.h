// SPDX-License-Identifier: Apache-2.0
/* How large the chunks are that collectives move at a time. */
#ifndef TSR_COMM_CHUNKS_H
#define TSR_COMM_CHUNKS_H
#include <stdint.h>

/* Bytes of one, a multiple of 64, where a process has room for so many of them. */
static inline int64_t tsr_chunk_bytes(int64_t chunks) {
  const int64_t staging = INT64_C(32) << 20, most = INT64_C(512) << 10, least = INT64_C(16) << 10;
  int64_t bytes =
      staging / (chunks > 0 ? chunks : 1); /* about: more than that where it is `least` */
  bytes = bytes < least ? least : bytes > most ? most : bytes;
  return bytes / 64 * 64;
}

#endif
