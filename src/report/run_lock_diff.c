// SPDX-License-Identifier: Apache-2.0
#include "report/run_lock_diff.h"
#include <inttypes.h>
#include <string.h>

/* ---- what they ran on ---- */

static int diff_text(const char *what, const char *a, const char *b, tsr_text *text) {
  if (!strcmp(a, b)) return 0;
  tsr_text_add(text, "%s: %s | %s\n", what, a, b);
  return 1;
}

static int diff_number(const char *what, int64_t a, int64_t b, tsr_text *text) {
  if (a == b) return 0;
  tsr_text_add(text, "%s: %" PRId64 " | %" PRId64 "\n", what, a, b);
  return 1;
}

static int diff_starts(const tsr_lock_start *a, const tsr_lock_start *b, tsr_text *text) {
  return diff_text("mesh", a->mesh, b->mesh, text) +
         diff_number("ranks", a->ranks, b->ranks, text) +
         diff_number("processes", a->processes, b->processes, text) +
         diff_number("threads", a->threads, b->threads, text) +
         diff_text("cpu", a->cpu, b->cpu, text) +
         diff_text("version", a->version, b->version, text) +
         diff_text("compiler", a->compiler, b->compiler, text) +
         diff_text("program", a->program, b->program, text);
}

/* ---- steps ---- */

static bool same_bits(const tsr_locked_step *a, const tsr_locked_step *b) {
  return a->loss == b->loss && a->weights == b->weights;
}

/* Steps that both have: [*ret_first, *ret_last]. */
static bool
common_steps(const tsr_run_lock *a, const tsr_run_lock *b, int64_t *ret_first, int64_t *ret_last) {
  int64_t last_a = a->first.step + a->steps_count, last_b = b->first.step + b->steps_count;
  *ret_first = a->first.step > b->first.step ? a->first.step : b->first.step;
  *ret_last = last_a < last_b ? last_a : last_b;
  return *ret_first <= *ret_last;
}

/* Chains are of one kind only where the recipes and the first steps are. */
static int64_t bisect(const tsr_run_lock *a, const tsr_run_lock *b, int64_t low, int64_t high) {
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    bool same = !strcmp(tsr_run_lock_at(a, middle)->chain, tsr_run_lock_at(b, middle)->chain);
    if (same) low = middle + 1;
    else high = middle;
  }
  return low;
}

int64_t tsr_run_lock_first_difference(const tsr_run_lock *a, const tsr_run_lock *b) {
  int64_t first, last;
  if (!common_steps(a, b, &first, &last)) return -1;
  const tsr_locked_step *end_a = tsr_run_lock_at(a, last), *end_b = tsr_run_lock_at(b, last);
  if (!strcmp(a->first.chain, b->first.chain))
    return strcmp(end_a->chain, end_b->chain) ? bisect(a, b, first, last) : -1;
  for (int64_t s = first; s <= last; s++) {
    const tsr_locked_step *x = tsr_run_lock_at(a, s), *y = tsr_run_lock_at(b, s);
    bool both = x != &a->first && y != &b->first; /* else one has no loss */
    if (both ? !same_bits(x, y) : x->weights != y->weights) return s;
  }
  return -1;
}

static void add_step(const tsr_locked_step *s, bool has_loss, tsr_text *text) {
  float loss;
  memcpy(&loss, &s->loss, sizeof loss);
  if (has_loss) tsr_text_add(text, "loss %.9g, ", (double)loss);
  tsr_text_add(text, "weights %016" PRIx64, s->weights);
}

static void diff_steps(const tsr_run_lock *a, const tsr_run_lock *b, tsr_text *text) {
  int64_t first, last, step = tsr_run_lock_first_difference(a, b);
  if (!common_steps(a, b, &first, &last)) {
    tsr_text_add(text, "steps: the runs have none in common\n");
    return;
  }
  if (step < 0 && first == last) {
    tsr_text_add(text, "steps: the weights after step %" PRId64 " are equal\n", first);
    return;
  }
  if (step < 0) {
    tsr_text_add(
        text,
        "steps: the weights after steps %" PRId64 " to %" PRId64 " and all losses are equal\n",
        first, last);
    return;
  }
  if (step == first) tsr_text_add(text, "the runs begin with other weights: ");
  else tsr_text_add(text, "step %" PRId64 " is the first that differs: ", step);
  add_step(tsr_run_lock_at(a, step), step > first, text);
  tsr_text_add(text, " | ");
  add_step(tsr_run_lock_at(b, step), step > first, text);
  tsr_text_add(text, "\n");
}

void tsr_run_lock_diff(const tsr_run_lock *a, const tsr_run_lock *b, tsr_text *text) {
  if (!tsr_recipe_diff(a->recipe, a->recipe_count, b->recipe, b->recipe_count, text))
    tsr_text_add(text, "recipe: the same\n");
  diff_starts(&a->starts[0], &b->starts[0], text);
  diff_steps(a, b, text);
}
