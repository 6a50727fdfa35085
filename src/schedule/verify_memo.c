// SPDX-License-Identifier: Apache-2.0
/* Keys of sums and norms that were proved before. */
#include "schedule/verify_checks.h"
#include <string.h>

struct tsr_verify_proved {
  struct tsr_verify_proved *next;
  size_t bytes;
  char key[];
};

bool tsr_verify_is_proved(const tsr_verify *v, const void *key, size_t bytes) {
  for (const struct tsr_verify_proved *p = v->proved; p; p = p->next)
    if (p->bytes == bytes && !memcmp(p->key, key, bytes)) return true;
  return false;
}

void tsr_verify_keep_proved(tsr_verify *v, const void *key, size_t bytes) {
  struct tsr_verify_proved *p = tsr_arena_alloc(v->arena, sizeof *p + bytes);
  p->next = v->proved;
  p->bytes = bytes;
  memcpy(p->key, key, bytes);
  v->proved = p;
}
