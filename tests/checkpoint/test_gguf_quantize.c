// SPDX-License-Identifier: Apache-2.0
/* The quantized types of GGUF against the bytes of llama.cpp's quantizer (scripts/make_gguf_blocks),
 * at every instruction-set level.
 * usage: test_gguf_quantize gguf_blocks.bin */
#include "base/file_read.h"
#include "checkpoint/gguf_quantize.h"
#include "tests/check.h"

enum { ELEMENTS = 256, ROOM = 272 };

static const tsr_gguf_type types[] = {TSR_GGUF_Q5_0, TSR_GGUF_Q5_1, TSR_GGUF_Q8_0,
                                      TSR_GGUF_Q4_K, TSR_GGUF_Q5_K, TSR_GGUF_Q6_K};

static int64_t bytes_of(tsr_gguf_type type) {
  return ELEMENTS / tsr_gguf_block_elements(type) * tsr_gguf_block_bytes(type);
}

static void check_level(const char *isa, const char *data, size_t length) {
  const tsr_kernels *kernels = tsr_kernels_get(isa);
  uint32_t count;
  memcpy(&count, data, sizeof count);
  const float *x = (const float *)(const void *)(data + 4);
  const char *expected = data + 4 + (size_t)count * ELEMENTS * sizeof *x;
  if (!kernels) return; /* the processor lacks it */
  CHECK(count >= 20);
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (uint32_t i = 0; i < count; i++, expected += bytes_of(types[t])) {
      unsigned char found[ROOM];
      int64_t overflows = 0;
      tsr_gguf_quantize(kernels, types[t], x + i * ELEMENTS, ELEMENTS, found, &overflows);
      CHECK_INT(overflows, 0);
      CHECK_AT(
          !memcmp(found, expected, (size_t)bytes_of(types[t])), "%s, type %d: block %u differs",
          isa, (int)types[t], i);
    }
  CHECK(expected == data + length);
}

static void check_overflows(void) {
  static float x[ELEMENTS];
  unsigned char found[ROOM];
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    static const float values[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (int v = 0; v < 4; v++) {
      int64_t overflows = 0;
      x[100] = values[v];
      tsr_gguf_quantize(tsr_kernels_get(NULL), types[t], x, ELEMENTS, found, &overflows);
      CHECK_INT(overflows, 1);
    }
  }
}

int main(int argc, char **argv) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  char *data;
  size_t length;
  CHECK(argc == 2 && tsr_file_read(arena, argv[1], 1 << 20, TSR_NOWHERE, &data, &length, diags));
  if (check_failed) return 1;
  int levels = 0;
  for (const char *const *isa = tsr_kernels_levels(); *isa; isa++, levels++)
    check_level(*isa, data, length);
  CHECK(levels > 0);
  check_overflows();
  tsr_arena_free(arena);
  return check_done("gguf_quantize");
}
