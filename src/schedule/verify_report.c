// SPDX-License-Identifier: Apache-2.0
/* Findings, each with the node and the rank that it is about. */
#include "schedule/verify_checks.h"

static bool
say(tsr_verify *v, tsr_location location, const char *who, const char *format, va_list args) {
  if (v->mesh->leave_out && v->mesh->leave_out(v->mesh->context, format)) return true;
  if (v->found++ < TSR_VERIFY_FINDINGS_MAX)
    tsr_diag_error(v->diags, location, "%s: %s", who, tsr_arena_vprintf(v->arena, format, args));
  return false;
}

/* "rank 5", with its stage where there are several. */
static const char *rank_text(tsr_verify *v, const tsr_verify_subject *s) {
  if (v->programs->pipeline->stages == 1) return tsr_arena_printf(v->arena, "rank %d", s->rank);
  return tsr_arena_printf(v->arena, "rank %d, stage %d", s->rank, s->p->stage);
}

bool tsr_verify_say_task(
    tsr_verify *v, const tsr_verify_subject *s, int task, int microbatch, const char *format, ...) {
  const tsr_task *t = &s->p->tasks[task];
  const tsr_node *n = &v->graph->nodes[t->node];
  const char *who = tsr_arena_printf(
      v->arena, "'%s', %s, task %d (%s)", n->name, rank_text(v, s), task, tsr_op_name(t->op));
  bool in_body = tsr_verify_is_body(s->p->parts[s->part_of[task]].section);
  if (microbatch >= 0 && in_body)
    who = tsr_arena_printf(v->arena, "%s, microbatch %d", who, microbatch);
  va_list args;
  va_start(args, format);
  bool left_out = say(v, n->location, who, format, args);
  va_end(args);
  return left_out;
}

bool tsr_verify_say_node(
    tsr_verify *v, const tsr_verify_subject *s, int node, const char *format, ...) {
  const tsr_node *n = &v->graph->nodes[node];
  const char *who = tsr_arena_printf(v->arena, "'%s', %s", n->name, rank_text(v, s));
  va_list args;
  va_start(args, format);
  bool left_out = say(v, n->location, who, format, args);
  va_end(args);
  return left_out;
}

bool tsr_verify_say_value(
    tsr_verify *v, const tsr_verify_subject *s, int value, const char *format, ...) {
  const tsr_value *x = &v->graph->values[value];
  const char *who = tsr_arena_printf(v->arena, "'%s', %s", x->name, rank_text(v, s));
  va_list args;
  va_start(args, format);
  bool left_out = say(v, x->location, who, format, args);
  va_end(args);
  return left_out;
}

bool tsr_verify_say(tsr_verify *v, const tsr_verify_subject *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  bool left_out = say(v, TSR_NOWHERE, rank_text(v, s), format, args);
  va_end(args);
  return left_out;
}

const char *tsr_verify_address(tsr_verify *v, tsr_segment segment, int64_t offset) {
  static const char *const names[] = {"param", "state", "const", "input", "cache", "work", "host"};
  return tsr_arena_printf(v->arena, "@%s+%lld", names[segment], (long long)offset);
}
