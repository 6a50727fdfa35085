// SPDX-License-Identifier: Apache-2.0
#include "prove/synthetic_weights.h"
#include "kernels/kernels.h"
#include "train/adapter_magnitudes.h"
#include <math.h>

/* The largest distance from ones, and from zeros; and from those of a bias of a choice of experts,
 * which decides between scores that are close to one another. */
static const double of_ones = 0.2, of_zeros = 0.1, of_choices = 0.002;

/* What the numbers of a parameter are multiplied by, and the most that is added to each. */
typedef struct {
  double factor, distance;
} change;

/* Of matrices, so that the results of a linear layer are `gain` times as large as what it reads. */
static double factor_of(const tsr_param *p, double gain) {
  const tsr_init *init = &p->init;
  double deviation = init->kind == TSR_INIT_NORMAL    ? init->b
                     : init->kind == TSR_INIT_UNIFORM ? (init->b - init->a) / sqrt(12)
                                                      : 0;
  double wanted = gain / sqrt((double)p->shape[p->ndim - 1]);
  return p->ndim > 1 && deviation > 0 && deviation < wanted ? wanted / deviation : 1;
}

static change change_of(const tsr_graph *g, const tsr_param *p, double gain) {
  if (tsr_param_is_load(g, p)) return (change){1, 0};
  if (tsr_param_is_input(g, p, TSR_OP_CHOOSE_EXPERTS, 1)) return (change){1, of_choices};
  if (p->init.kind == TSR_INIT_ONES) return (change){1, of_ones};
  if (p->init.kind == TSR_INIT_ZEROS) return (change){1, of_zeros};
  return (change){factor_of(p, gain), 0};
}

static void apply(change c, float *x, int64_t count, uint64_t key) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t words[4];
    tsr_philox((uint64_t)i, 0, key, words);
    x[i] *= (float)c.factor;
    x[i] += (float)(c.distance * ((double)words[0] / 2147483648.0 - 1));
  }
}

static void
change_param(tsr_arena *arena, tsr_executable *executable, int param, change c, uint64_t seed) {
  const tsr_graph *g = tsr_executable_graph(executable);
  const tsr_param *p = &g->params[param];
  int value = tsr_executable_param(executable, param);
  const tsr_value *v = &g->values[value];
  float *stored = tsr_arena_array(arena, float, tsr_value_elements(v));
  float *real = tsr_arena_array(arena, float, tsr_value_elements(v));
  tsr_executable_read(executable, value, real);
  tsr_padding_remove(&p->padding, v->ndim, v->shape, real);
  apply(c, real, tsr_param_real_elements(p), tsr_random_key(seed, p->name, UINT64_MAX));
  tsr_padding_add(&p->padding, v->ndim, v->shape, real, stored);
  tsr_executable_write(executable, value, stored);
}

void tsr_synthetic_weights(
    tsr_arena *arena, tsr_executable *executable, const tsr_graph *g, uint64_t seed, double gain) {
  for (int p = 0; p < g->params_count; p++) {
    change c = change_of(g, &g->params[p], gain);
    if (c.factor != 1 || c.distance > 0) change_param(arena, executable, p, c, seed);
  }
  tsr_magnitudes_begin(executable, g);
}
