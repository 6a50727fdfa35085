// SPDX-License-Identifier: Apache-2.0
/* The table of measured kernels beside the limits of the machine. */
#include "cli/kernel_bench/bench.h"
#include <string.h>

enum { LEAST = 60 /* % of its limit, that a kernel is asked for */, COLUMNS = 100 };

/* ---- the list ---- */

static void list_levels(const tsr_kernels *chosen, tsr_text *text) {
  tsr_text_add(text, "levels:\n");
  for (const char *const *name = tsr_kernels_levels(); *name; name++) {
    const char *state = !tsr_kernels_get(*name) ? "not on this machine" : "";
    if (!strcmp(*name, chosen->isa)) state = "chosen";
    tsr_text_add(text, *state ? "  %-10s %s\n" : "  %s\n", *name, state);
  }
}

/* A kernel's cases stand behind each other. */
static void list_group(const tsr_bench_group *g, tsr_text *text) {
  size_t column = 0;
  tsr_text_add(text, "%s:", g->name);
  for (int i = 0; i < g->count; i++) {
    const char *name = g->cases[i].kernel;
    if (i && !strcmp(name, g->cases[i - 1].kernel)) continue;
    size_t length = strlen(name);
    bool is_first = !column || column + 1 + length > COLUMNS;
    tsr_text_add(text, is_first ? "\n  " : " ");
    tsr_text_add_bytes(text, name, length);
    column = (is_first ? 1 : column) + 1 + length;
  }
  tsr_text_add(text, "\n");
}

void tsr_bench_list(const tsr_kernels *chosen, tsr_text *text) {
  list_levels(chosen, text);
  for (const tsr_bench_group *const *g = tsr_bench_groups(); *g; g++) list_group(*g, text);
}

/* ---- the table ---- */

void tsr_bench_print_head(const tsr_kernels *kernels, int threads, tsr_text *text) {
  tsr_text_add(text, "kernels of %s, %d thread%s", kernels->isa, threads, threads > 1 ? "s" : "");
  if (threads > 1) tsr_text_add(text, ", each on memory of its own");
  tsr_text_add(
      text, "\n%-28s  %-16s  %8s  %7s  %-7s  %5s\n", "kernel", "shape", "GFLOP/s", "GB/s", "limit",
      "of it");
}

void tsr_bench_print_row(const tsr_bench_row *r, tsr_text *text) {
  static const char *const limits[] = {"compute", "memory", "cache"};
  char flops[32] = "-", share[32] = "-";
  if (r->flops > 0) snprintf(flops, sizeof flops, "%.1f", 1e-9 * r->flops / r->seconds);
  if (r->share > 0) snprintf(share, sizeof share, "%.0f %%", 100 * r->share);
  tsr_text_add(
      text, "%-28s  %-16s  %8s  %7.1f  %-7s  %5s\n", r->name, r->shape, flops,
      1e-9 * r->bytes / r->seconds, limits[r->limit], share);
}

static void
print_range(const tsr_bench_row *rows, int count, size_t at, const char *unit, tsr_text *text) {
  double low = 1e300, high = 0;
  for (int i = 0; i < count; i++) {
    double value = *(const double *)((const char *)&rows[i].limits + at);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  tsr_text_add(text, "%.1f to %.1f %s", 1e-9 * low, 1e-9 * high, unit);
}

static bool is_slow(const tsr_bench_row *r) { return r->share > 0 && 100 * r->share < LEAST; }

/* Rows of one shape by it, others by their kernel alone, which has a row for each place of memory.
 */
static void print_slow(const tsr_bench_row *rows, int count, tsr_text *text) {
  int named = 0;
  for (int i = 0; i < count; i++) {
    const tsr_bench_row *r = &rows[i];
    if (!is_slow(r)) continue;
    if (named++) tsr_text_add(text, ", %s", r->name);
    else tsr_text_add(text, "below %d %% of their limit: %s", LEAST, r->name);
    if (r->is_fixed) tsr_text_add(text, " %s", r->shape);
  }
  if (named) tsr_text_add(text, "\n");
  else tsr_text_add(text, "all kernels reach %d %% of their limit\n", LEAST);
}

void tsr_bench_print_end(const tsr_bench_row *rows, int count, tsr_text *text) {
  tsr_text_add(text, "limits, measured around each: ");
  print_range(rows, count, offsetof(tsr_peak_rates, flops), "GFLOP/s", text);
  tsr_text_add(text, ", ");
  print_range(rows, count, offsetof(tsr_peak_rates, bytes), "GB/s read", text);
  tsr_text_add(text, "\n");
  print_slow(rows, count, text);
}
