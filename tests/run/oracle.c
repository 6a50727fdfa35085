// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"
#include <math.h>
#include <stdlib.h>

/* Dimension 0 is samples: a microbatch has its part of the step's. */
static void
mask(void *context, const tsr_node *node, int ndim, const int64_t *shape, double *ret_mask) {
  const oracle_moment *m = context;
  tsr_tensor_slice slice = {.ndim = ndim};
  int64_t count = 1;
  for (int d = 0; d < ndim; d++) count *= slice.shape[d] = slice.global[d] = shape[d];
  slice.global[0] *= m->h->options.microbatches;
  slice.offset[0] = m->microbatch * shape[0];
  float *ones = malloc(sizeof *ones * (size_t)count);
  if (!ones) abort();
  for (int64_t i = 0; i < count; i++) ones[i] = 1;
  double p = tsr_node_dropout(node);
  uint64_t key = tsr_random_key(HARNESS_SEED, node->stream, (uint64_t)m->step);
  m->h->cpu.k->dropout(ones, ones, (float)p, key, &slice, 0, count / shape[ndim - 1]);
  for (int64_t i = 0; i < count; i++) ret_mask[i] = (double)ones[i];
  free(ones);
}

tsr_interpreter_step oracle_step_of(const oracle_moment *moment) {
  float step_scalars[TSR_SCALARS];
  harness_step_scalars(moment->h, moment->step, step_scalars);
  return (tsr_interpreter_step){
      .inv_count = (double)step_scalars[TSR_SCALAR_INV_COUNT],
      .microbatches = moment->h->options.microbatches,
      .mask = mask,
      .mask_context = (void *)moment};
}

void oracle_fill_params(tsr_interpreter *t, const harness *h) {
  for (int p = 0; p < h->graph->params_count; p++) {
    int64_t count;
    float *w = harness_read_param(h->graph->arena, h, p, &count);
    for (int64_t i = 0; i < count; i++) tsr_interpreter_param(t, p)[i] = (double)w[i];
  }
}

void oracle_fill_inputs(tsr_interpreter *t, const harness *h, int64_t microbatch) {
  for (int v = 0; v < h->graph->values_count; v++) {
    const tsr_value *value = &h->graph->values[v];
    if (value->kind != TSR_VALUE_INPUT) continue;
    int64_t count = tsr_value_elements(value), row = count / value->shape[0];
    int64_t first = microbatch * value->shape[0];
    double *x = tsr_interpreter_value(t, v);
    for (int64_t i = 0; i < count; i++)
      x[i] = harness_number(
          &h->options, value->name, value->dtype == TSR_I32, first + i / row, i % row);
  }
}

double oracle_run(tsr_interpreter *t, const harness *h, int64_t step) {
  double loss = 0;
  tsr_interpreter_zero_gradients(t);
  oracle_fill_params(t, h);
  for (int64_t m = 0; m < h->options.microbatches; m++) {
    oracle_moment moment = {h, step, m};
    tsr_interpreter_step numbers = oracle_step_of(&moment);
    oracle_fill_inputs(t, h, m);
    tsr_interpreter_forward(t, &numbers);
    tsr_interpreter_backward(t);
    loss += tsr_interpreter_loss(t);
  }
  return loss;
}

double oracle_largest(const double *x, int64_t count) {
  double max = 0;
  for (int64_t i = 0; i < count; i++) max = fabs(x[i]) > max ? fabs(x[i]) : max;
  return max;
}
