// SPDX-License-Identifier: Apache-2.0
/* The parts of the random numbers that need no vectors: one counter's words, and the streams' keys.
 */
#include "kernels/kernels.h"
#include "kernels/cpu/philox.h"
#include <string.h>

void tsr_philox(uint64_t counter_low, uint64_t counter_high, uint64_t key, uint32_t ret_words[4]) {
  philox_words c = {
      {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high,
       (uint32_t)(counter_high >> 32)}};
  c = philox_rounds(c, (uint32_t)key, (uint32_t)(key >> 32));
  memcpy(ret_words, c.word, sizeof c.word);
}

/* Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t tsr_random_key(uint64_t seed, const char *name, uint64_t number) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char *p = name; *p; p++) hash = (hash ^ (unsigned char)*p) * 0x100000001B3u;
  return splitmix(splitmix(splitmix(seed) ^ hash) ^ number);
}
