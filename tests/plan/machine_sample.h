// SPDX-License-Identifier: Apache-2.0
/* What the tests of machine descriptions share: a small machine whose times can be told by hand. */
#ifndef TSR_TESTS_MACHINE_SAMPLE_H
#define TSR_TESTS_MACHINE_SAMPLE_H
#include "plan/machine.h"
#include "tests/check.h"
#include "tests/printed.h"

#define GROUP(...) ((tsr_machine_group){__VA_ARGS__})

/* The machine that a text describes, in "m.yaml"; NULL after errors. */
static inline tsr_machine *sample_parse(tsr_arena *arena, const char *text, tsr_diags *diags) {
  tsr_machine *m = NULL;
  return tsr_machine_parse(arena, "m.yaml", text, strlen(text), &m, diags) ? m : NULL;
}

static const char sample_small[] = "name: small\n"
                                   "doc: for hands\n"
                                   "device:\n"
                                   "  memory: 1KiB\n"
                                   "  memory_bandwidth: 10\n"
                                   "  flops: {f32: 100, bf16: 1000FLOP/s}\n"
                                   "  overhead: 1\n"
                                   "  efficiency: {products: 0.5, attention: 0.25, memory: 0.5}\n"
                                   "links:\n"
                                   "- {name: near, devices: 4, bandwidth: 200B/s, latency: 1s, "
                                   "efficiency: 0.5}\n"
                                   "- {name: far, devices: ~, bandwidth: 10B/s, latency: 5000ms}\n";

/* `sample_small` with `more` behind. */
static inline tsr_machine *sample_machine(tsr_arena *arena, const char *more) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_machine *m = sample_parse(arena, tsr_arena_printf(arena, "%s%s", sample_small, more), diags);
  CHECK_STR(printed_diags(arena, diags), "");
  return m;
}

/* Seconds of a task in four calls. */
static inline double sample_task(
    const tsr_machine *m, const char *op, tsr_machine_dtype dtype, double flops, double bytes) {
  return tsr_machine_task_seconds(m, op, dtype, (tsr_machine_work){flops, bytes, 4});
}

static inline bool sample_same(const tsr_machine *a, const tsr_machine *b) {
  bool same = !strcmp(a->name, b->name) && !strcmp(a->doc, b->doc) && a->memory == b->memory &&
              a->memory_bandwidth == b->memory_bandwidth &&
              a->host_bandwidth == b->host_bandwidth && a->threads == b->threads &&
              a->overhead == b->overhead && !memcmp(a->flops, b->flops, sizeof a->flops) &&
              a->efficiency_products == b->efficiency_products &&
              a->efficiency_attention == b->efficiency_attention &&
              a->efficiency_memory == b->efficiency_memory && a->links_count == b->links_count &&
              a->rates_count == b->rates_count;
  for (int l = 0; same && l < a->links_count; l++) {
    const tsr_machine_link *x = &a->links[l], *y = &b->links[l];
    same = !strcmp(x->name, y->name) && x->devices == y->devices && x->latency == y->latency &&
           x->bandwidth == y->bandwidth && x->efficiency == y->efficiency;
  }
  for (int i = 0; same && i < a->rates_count; i++) {
    const tsr_machine_rate *x = &a->rates[i], *y = &b->rates[i];
    same = !strcmp(x->op, y->op) && x->dtype == y->dtype && x->flops == y->flops &&
           x->bytes == y->bytes && x->call == y->call && x->overhead == y->overhead;
  }
  return same;
}

/* What is written and read again is the same machine. */
static inline void sample_check_round_trip(const tsr_machine *m) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text text = {0};
  tsr_machine_write(m, &text);
  tsr_machine *again = sample_parse(arena, text.data, diags);
  CHECK_AT(
      again && sample_same(m, again), "is not the same again:\n%s%s", text.data,
      printed_diags(arena, diags));
  tsr_text_free(&text);
  tsr_arena_free(arena);
}

#endif
