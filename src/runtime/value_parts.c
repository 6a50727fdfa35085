// SPDX-License-Identifier: Apache-2.0
/* The parts of values that the ranks of this process hold, without padding. */
#include "runtime/executable_internal.h"

int tsr_executable_parts_most(const tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  int64_t most = 1;
  for (int p = 0; p < g->params_count; p++)
    if (g->params[p].padding.blocks > most) most = g->params[p].padding.blocks;
  return b->process->options.parallel->ranks * (int)most;
}

/* The real rectangles of a rank's part, which lies at `address`. */
static int add_parts(
    const tsr_executable *b, int value, int rank, const tsr_device *device, char *address,
    tsr_part_of_value *ret_parts) {
  const tsr_value *v = &b->programs->graph->values[value];
  const tsr_padding *padding = &b->programs->graph->params[v->param].padding;
  tsr_tensor_slice stored = tsr_executable_slice(b, value, rank);
  int count = 0, dim = padding->dim;
  int64_t inner = tsr_dtype_is_quantized(v->dtype) ? 0 : tsr_dtype_bytes(v->dtype);
  int64_t each = inner, length = stored.shape[dim];
  for (int d = dim + 1; d < stored.ndim; d++) inner *= stored.shape[d];
  tsr_real_run run = {0};
  while (tsr_padding_next(padding, stored.global[dim], stored.offset[dim], length, &run)) {
    tsr_part_of_value *p = &ret_parts[count++];
    *p = (tsr_part_of_value){rank, address + run.at * inner, device, stored, 0, 0};
    p->slice.global[dim] = padding->real;
    p->slice.offset[dim] = run.begin;
    p->slice.shape[dim] = run.size;
    p->run = each ? run.size * inner / each : 0;
    p->stride = each ? length * inner / each : 0;
  }
  return count;
}

int tsr_executable_parts(
    const tsr_executable *b, int value, bool distinct, tsr_part_of_value *ret_parts) {
  int count = 0;
  for (int r = 0; r < b->process->options.parallel->ranks; r++)
    if (tsr_executable_has(b, value, r) &&
        (!distinct || tsr_executable_first_holder(b, value, r) == r))
      count += add_parts(
          b, value, r, tsr_executable_home(b, value), tsr_executable_address(b, value, r, 0),
          ret_parts + count);
  return count;
}

int tsr_executable_open_parts(
    const tsr_executable *b, int value, int access, tsr_part_of_value *ret_parts) {
  int count = 0;
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!tsr_executable_has(b, value, r)) continue;
    char *data = tsr_executable_view(b, value, r, 0, access, &b->views[r]);
    count += add_parts(b, value, r, b->process->host, data, ret_parts + count);
  }
  return count;
}

void tsr_executable_close_parts(const tsr_executable *b, int value) {
  for (int r = 0; r < b->process->options.parallel->ranks; r++)
    if (tsr_executable_has(b, value, r)) tsr_device_view_close(&b->views[r]);
}
