// SPDX-License-Identifier: Apache-2.0
/* One number of a program becomes one that no program has. */
#include "faults.h"
#include <limits.h>

static void spoil32(mutant *m, void *field) {
  static const int garbage[] = {-1, INT_MIN, INT_MAX, 0, 1 << 20, 5};
  *(int *)field = garbage[mutant_below(m, sizeof garbage / sizeof *garbage)];
}
static void spoil64(mutant *m, int64_t *field) {
  static const int64_t garbage[] = {-1, INT64_MIN, INT64_MAX, 0, (int64_t)1 << 40, 5};
  *field = garbage[mutant_below(m, sizeof garbage / sizeof *garbage)];
}

static void spoil_tensor(mutant *m, tsr_tensor *t) {
  void *ints[] = {&t->value, &t->dtype, &t->segment, &t->slot_group, &t->ndim};
  int64_t *longs[] = {&t->offset, &t->units, &t->shape[mutant_below(m, TSR_DIMS_MAX)]};
  int k = mutant_below(m, 8);
  if (k < 5) spoil32(m, ints[k]);
  else spoil64(m, longs[k - 5]);
}
static void spoil_sum(mutant *m, tsr_reduction *r) {
  int64_t *longs[] = {&r->batch, &r->sequence, &r->tp, &r->kept, &r->dim[mutant_below(m, 3)].size};
  int k = mutant_below(m, 10);
  bool *split = &r->dim[mutant_below(m, 3)].split[mutant_below(m, TSR_AXES)];
  if (k < 5) spoil64(m, longs[k]);
  else if (k == 5) spoil32(m, &r->ndim);
  else if (k == 6) spoil32(m, &r->kept_dim);
  else if (k == 7) r->keeps_batch = !r->keeps_batch;
  else *split = !*split;
}
static void spoil_norm(mutant *m, tsr_task *t) {
  tsr_norm_pieces *n = tsr_arena_alloc(m->arena, sizeof *n);
  if (!t->norm) return;
  *n = *t->norm;
  t->norm = n;
  int64_t *longs[] = {&n->shape[mutant_below(m, 2)], &n->whole, &n->pieces, &n->parts, &n->units};
  int *ints[] = {&n->ndim, &n->dim, &n->tp_dim};
  int k = mutant_below(m, 8);
  if (k < 5) spoil64(m, longs[k]);
  else spoil32(m, ints[k - 5]);
}
static void spoil_experts(mutant *m, tsr_task *t) {
  tsr_expert_rows *r = tsr_arena_alloc(m->arena, sizeof *r);
  *r = *t->experts;
  t->experts = r;
  int64_t *longs[] = {&r->experts,     &r->choices,    &r->here,  &r->tokens,
                      &r->unit_tokens, &r->leaf_units, &r->leaves};
  int k = mutant_below(m, 9);
  if (k < 7) spoil64(m, longs[k]);
  else if (k == 7) r->accumulates = !r->accumulates;
  else t->experts = NULL;
}
static void spoil_task(mutant *m, tsr_task *t) {
  void *ints[] = {&t->node, &t->op, &t->section, &t->axis, &t->lag, &t->bucket};
  int k = mutant_below(m, 12);
  if (k < 6) spoil32(m, ints[k]);
  else if (k < 8) spoil64(m, k == 6 ? &t->scratch_offset : &t->scratch_bytes);
  else if (k == 8 && t->inputs_count) spoil_tensor(m, &t->inputs[mutant_below(m, t->inputs_count)]);
  else if (k == 9 && t->outputs_count) spoil_tensor(m, &t->outputs[0]);
  else spoil_sum(m, &t->sum);
}
static void spoil_slot_group(mutant *m, tsr_slot_group *f) {
  int64_t *longs[] = {&f->offset, &f->bytes};
  void *ints[] = {&f->segment, &f->slots, &f->slot_of[0]};
  int k = mutant_below(m, 5);
  if (k < 2) spoil64(m, longs[k]);
  else spoil32(m, ints[k - 2]);
}
static void spoil_lists(mutant *m) {
  tsr_part *part = &m->p->parts[mutant_below(m, m->p->parts_count)];
  tsr_run *run = &m->p->runs[mutant_below(m, m->p->runs_count)];
  void *ints[] = {&part->section, &part->chunk, &part->begin,
                  &part->end,     &run->part,   &run->microbatch};
  spoil32(m, ints[mutant_below(m, 6)]);
}

void mutant_garble(mutant *m) {
  tsr_program *p = m->p;
  tsr_task *t = &p->tasks[mutant_below(m, p->tasks_count)];
  int kind = mutant_below(m, 8);
  int norm = mutant_pick_op(m, TSR_OP_NORM_STATS);
  int experts = mutant_pick_op(m, TSR_OP_EXPERT_LINEAR_DW);
  if (kind == 2 && experts >= 0) spoil_experts(m, &p->tasks[experts]);
  else if (kind < 3) spoil_task(m, t);
  else if (kind == 3 && norm >= 0) spoil_norm(m, &p->tasks[norm]);
  else if (kind == 4 && p->slot_groups_count)
    spoil_slot_group(m, p->slot_groups + mutant_below(m, p->slot_groups_count));
  else if (kind == 5) spoil_lists(m);
  else {
    spoil_tensor(m, &p->tensors[mutant_below(m, p->graph->values_count)]);
    if (mutant_below(m, 2)) sample_bind(p);
  }
}
