// SPDX-License-Identifier: Apache-2.0
#include "schedule/gemm_neighbours.h"
#include "schedule/fuse.h"

/* Of the values of `count` tensors, which are `step` apart, where one task writes them all, and no
 * other batch has them. */
static void add_row(
    tsr_gemm_neighbours *n, const int *writer, const tsr_tensor *row, int step, const int *order,
    int count) {
  for (int i = 0; i < count; i++) {
    int value = row[order[i] * step].value;
    if (row[order[i] * step].segment != TSR_SEGMENT_WORK || writer[value] < 0) return;
    if (writer[value] != writer[row->value] || n->next[value] >= 0 || n->follows[value]) return;
    for (int k = 0; k < i; k++)
      if (row[order[k] * step].value == value) return;
  }
  for (int i = 1; i < count; i++) {
    n->next[row[order[i - 1] * step].value] = row[order[i] * step].value;
    n->follows[row[order[i] * step].value] = true;
  }
}

static void add_batch(tsr_gemm_neighbours *n, const int *writer, const tsr_task *t) {
  int order[TSR_GEMMS_MAX], count = t->outputs_count, each = t->inputs_count / count;
  const tsr_tensor *differs = &t->inputs[t->op == TSR_OP_LINEAR]; /* w, or dy */
  for (int i = 0; i < count; i++) {
    int at = i;
    for (; at > 0 && differs[order[at - 1] * each].value > differs[i * each].value; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  add_row(n, writer, t->outputs, 1, order, count);
  for (int k = 0; k < each; k++) add_row(n, writer, &t->inputs[k], each, order, count);
}

tsr_gemm_neighbours tsr_gemm_neighbours_of(const tsr_program *p) {
  int values = p->graph->values_count;
  tsr_gemm_neighbours n = {
      tsr_arena_array(p->graph->arena, int, values + 1),
      tsr_arena_array(p->graph->arena, bool, values + 1)};
  int *writer = tsr_arena_array(p->graph->arena, int, values + 1);
  for (int v = 0; v < values; v++) n.next[v] = writer[v] = -1;
  for (int i = 0; i < p->tasks_count; i++)
    for (int o = 0; o < p->tasks[i].outputs_count; o++) writer[p->tasks[i].outputs[o].value] = i;
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].fused == TSR_FUSED_GEMMS) add_batch(&n, writer, &p->tasks[i]);
  return n;
}
