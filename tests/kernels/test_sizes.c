// SPDX-License-Identifier: Apache-2.0
/* What kernels need beside their tensors is the same at every level, so that the memory that a
 * plan says is, too. */
#include "tests/kernels/kernel_check.h"

enum { CASES = 2000 };

static const tsr_kernels *plainest; /* that every machine has */

static int64_t draw(int64_t least, int64_t most) {
  return least + (int64_t)(check_random() % (uint64_t)(most - least + 1));
}

static tsr_attention draw_attention(void) {
  int64_t G = draw(1, 4);
  tsr_attention a = {.B = draw(1, 3), .T = draw(1, 200), .H = G * draw(1, 4), .G = G};
  a.D = draw(1, 160);
  a.Dv = draw(0, 160);
  a.causal = draw(0, 1) != 0;
  a.dropout = draw(0, 1) ? 0.5f : 0;
  a.bf16 = draw(0, 1) != 0;
  return a;
}

static void compare_attention(const tsr_kernels *k) {
  tsr_attention a = draw_attention();
  tsr_attention_cached c = {.a = a, .page = 16 * draw(1, 3), .pages_each = draw(1, 20)};
  char shape[64];
  snprintf(
      shape, sizeof shape, "T %d, D %d, %s", (int)a.T, (int)a.D, a.dropout != 0 ? "dropout" : "no");
  CHECK_AT(k->attention_scratch(&a) == plainest->attention_scratch(&a), "%s: %s", k->isa, shape);
  CHECK_AT(
      k->attention_cached_scratch(&c) == plainest->attention_cached_scratch(&c), "%s, cached: %s",
      k->isa, shape);
}

static void compare_ring(const tsr_kernels *k) {
  tsr_attention_ring r = {.a = draw_attention(), .members = 1 << draw(0, 2)};
  r.units = r.members << draw(1, 2);
  r.length = r.units * draw(1, 50);
  r.a.T = r.length / r.members;
  r.zigzag = draw(0, 1) != 0;
  CHECK_AT(
      k->attention_ring_scratch(&r) == plainest->attention_ring_scratch(&r),
      "%s: %d positions in %d units, D %d", k->isa, (int)r.length, (int)r.units, (int)r.a.D);
  for (int sum = TSR_ATTENTION_OUT; sum <= (int)TSR_ATTENTION_DKV; sum++)
    CHECK_AT(
        k->attention_ring_acc(&r, (tsr_attention_sum)sum) ==
            plainest->attention_ring_acc(&r, (tsr_attention_sum)sum),
        "%s, sum %d: %d positions in %d units, D %d", k->isa, sum, (int)r.length, (int)r.units,
        (int)r.a.D);
}

static void compare_others(const tsr_kernels *k) {
  int64_t R = draw(1, 300), V = draw(1, 300), C = draw(1, 300), units = 1 << draw(0, 4);
  int threads = (int)draw(1, 8);
  tsr_gemm p = {.M = R, .N = V, .K = C, .by_rows = draw(0, 1) != 0};
  CHECK_INT(k->gemm_bytes(&p), plainest->gemm_bytes(&p));
  CHECK_INT(
      k->embedding_scratch(R, 0, V, C, units, threads),
      plainest->embedding_scratch(R, 0, V, C, units, threads));
}

static void compare(const tsr_kernels *k) {
  for (int i = 0; i < CASES; i++) {
    compare_attention(k);
    compare_ring(k);
    compare_others(k);
  }
}

int main(void) {
  const char *const *name = tsr_kernels_levels();
  while (name[1]) name++;
  plainest = tsr_kernels_get(*name);
  each_level(compare);
  return check_done("kernels.sizes");
}
