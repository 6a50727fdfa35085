// SPDX-License-Identifier: Apache-2.0
/* Tasks that the host runs for a device with memory of its own: their operands' copies and their
 * scratch in the host's memory (host_tasks.h). */
#include "schedule/host_tasks.h"
#include "schedule/verify_checks.h"

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  int task;
  const tsr_task *t;
  const tsr_host_task *host;
} check;

static const tsr_tensor *operand_of(const tsr_task *t, int operand) {
  return operand < t->inputs_count ? &t->inputs[operand] : &t->outputs[operand - t->inputs_count];
}

static bool same_place(const tsr_tensor *a, const tsr_tensor *b) {
  return a->segment == b->segment && a->slot_group == b->slot_group && a->offset == b->offset;
}

static bool same_tensor(const tsr_tensor *a, const tsr_tensor *b) {
  bool same =
      a->value == b->value && a->dtype == b->dtype && a->ndim == b->ndim && a->units == b->units;
  for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
  return same;
}

static const tsr_host_copy *find_copy(const check *c, const tsr_tensor *x) {
  for (int i = 0; i < c->host->copies_count; i++)
    if (same_place(&c->host->copies[i].tensor, x)) return &c->host->copies[i];
  return NULL;
}

static int64_t bytes_of(const check *c, const tsr_tensor *x) {
  bool is_stack = tsr_program_stack_entries(c->s->p, x->value) > 1;
  return is_stack ? tsr_verify_bytes(c->s->p, x->value) : tsr_tensor_bytes(x);
}

/* What the task reads must have been copied where the task reads it, and what it writes must be
 * copied back. State that is in a file is in the host's memory. */
static bool check_operand(const check *c, int operand) {
  const tsr_tensor *x = operand_of(c->t, operand), *y = operand_of(&c->host->task, operand);
  bool in = tsr_host_task_reads(c->s->p, c->t, operand);
  bool out = tsr_host_task_writes(c->s->p, c->t, operand);
  const char *name = c->v->graph->values[x->value].name;
  if (!same_tensor(x, y))
    return tsr_verify_say_task(
        c->v, c->s, c->task, -1, "the host's operand %d is not '%s'", operand, name);
  if (!in && !out) return true;
  const tsr_host_copy *copy = find_copy(c, x);
  if (!copy && x->segment == TSR_SEGMENT_STATE && same_place(x, y)) return true;
  bool there = copy && y->segment == TSR_SEGMENT_WORK && y->slot_group < 0 &&
               y->offset == copy->offset && copy->bytes >= bytes_of(c, x);
  if (!there)
    return tsr_verify_say_task(c->v, c->s, c->task, -1, "the host has no copy of '%s'", name);
  if (in && !copy->in)
    return tsr_verify_say_task(
        c->v, c->s, c->task, -1, "the host reads '%s', which is not copied to it", name);
  return !out || copy->out ||
         tsr_verify_say_task(
             c->v, c->s, c->task, -1, "the host writes '%s', which is not copied back", name);
}

/* Copies and scratch lie one behind the other, inside what is planned for the host. */
static bool check_room(const check *c) {
  const tsr_host_task *h = c->host;
  int64_t end = 0;
  bool apart = true;
  for (int i = 0; i < h->copies_count; i++) {
    apart &= h->copies[i].offset >= end;
    end = h->copies[i].offset + h->copies[i].bytes;
  }
  apart &= h->task.scratch_offset >= end;
  end = h->task.scratch_offset + h->task.scratch_bytes;
  if (!apart)
    return tsr_verify_say_task(c->v, c->s, c->task, -1, "its copies on the host share bytes");
  return end <= c->s->p->host_bytes ||
         tsr_verify_say_task(
             c->v, c->s, c->task, -1, "it needs %lld bytes of the host, of which %lld are planned",
             (long long)end, (long long)c->s->p->host_bytes);
}

bool tsr_verify_host_task(tsr_verify *v, const tsr_verify_subject *s, int task) {
  const tsr_task *t = &s->p->tasks[task];
  check c = {v, s, task, t, t->host};
  if (!t->on_host && !t->host) return true;
  if (!t->on_host || !t->host || t->scratch_bytes)
    return tsr_verify_say_task(v, s, task, -1, "it is neither the device's nor the host's alone");
  const tsr_task *h = &t->host->task;
  if (h->op != t->op || h->node != t->node || h->inputs_count != t->inputs_count ||
      h->outputs_count != t->outputs_count)
    return tsr_verify_say_task(v, s, task, -1, "the host has another task for it");
  for (int k = 0; k < t->inputs_count + t->outputs_count; k++)
    if (!check_operand(&c, k)) return false;
  return check_room(&c) && tsr_verify_casts(v, s, task, h);
}
