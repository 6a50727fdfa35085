// SPDX-License-Identifier: Apache-2.0
/* Tasks and nodes: every node of the stage has one task in its part, which works on what the node
 * says. */
#include "schedule/verify_checks.h"
#include <string.h>

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  const tsr_program *p;
} check;

static bool is_move(tsr_op op) {
  return op == TSR_OP_SEND || op == TSR_OP_RECEIVE || op == TSR_OP_WAIT;
}

static bool same_tensor(const tsr_tensor *a, const tsr_tensor *b) {
  return a->value == b->value && a->dtype == b->dtype && a->segment == b->segment &&
         a->slot_group == b->slot_group && a->offset == b->offset && a->ndim == b->ndim &&
         a->units == b->units && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

static const char *tensor_text(const check *c, const tsr_tensor *t) {
  if (t->ndim < 0 || t->ndim > TSR_DIMS_MAX || (int)t->dtype < 0 || t->dtype > TSR_F16)
    return "no tensor";
  const char *what = tsr_arena_printf(
      c->v->arena, "%s %s", tsr_shape_text(t->ndim, t->shape).text, tsr_dtype_name(t->dtype));
  if (t->units) what = tsr_arena_printf(c->v->arena, "%lld × %s", (long long)t->units, what);
  if ((int)t->segment < 0 || t->segment >= TSR_SEGMENT_ABSENT) return what;
  const char *at = tsr_verify_address(c->v, t->segment, t->offset);
  if (t->slot_group >= 0)
    at = tsr_arena_printf(c->v->arena, "%s of slot group %d", at, t->slot_group);
  return tsr_arena_printf(c->v->arena, "%s %s", what, at);
}

/* ---- what a task works on ---- */

static const char *name_of(const check *c, int value) {
  if (value < 0 || value >= c->v->graph->values_count) return "no value";
  return c->v->graph->values[value].name;
}

static bool
check_tensor(const check *c, int task, const tsr_tensor *t, int want, const char *what, int k) {
  bool known = t->value >= 0 && t->value < c->v->graph->values_count;
  if (t->value != want && (!tsr_verify_say_task(
                               c->v, c->s, task, -1, "its %s %d is '%s', its node's is '%s'", what,
                               k, name_of(c, t->value), name_of(c, want)) ||
                           !known))
    return false;
  if (same_tensor(t, &c->p->tensors[t->value])) return true;
  return tsr_verify_say_task(
      c->v, c->s, task, -1, "its '%s' is %s, the program's is %s", name_of(c, t->value),
      tensor_text(c, t), tensor_text(c, &c->p->tensors[t->value]));
}

/* Another stage's parameters are left out of a norm over all of them. */
static bool check_present(const check *c, int task, int value) {
  const tsr_task *t = &c->p->tasks[task];
  int stage, chunk, of = tsr_value_stage(c->v->graph, value);
  if (c->p->tensors[value].segment != TSR_SEGMENT_ABSENT) return true;
  stage = c->p->stage;
  if (of != TSR_EVERY_STAGE) tsr_pipeline_locate(c->p->pipeline, of, &stage, &chunk);
  if (tsr_op_facts(t->op) & TSR_FACT_EVERYWHERE && stage != c->p->stage) return true;
  return tsr_verify_say_task(
      c->v, c->s, task, -1, "reads '%s', of which this stage has nothing", name_of(c, value));
}

/* An input may go by another name of the same bytes. */
static int wanted_input(const check *c, const tsr_task *t, int k) {
  int want = c->v->graph->nodes[t->node].inputs[k];
  if (!t->values || t->values[k] < 0 || t->values[k] >= c->v->graph->values_count) return want;
  return c->s->owner[t->values[k]] == c->s->owner[want] ? t->values[k] : want;
}

static bool check_inputs(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  const tsr_node *n = &c->v->graph->nodes[t->node];
  if (t->inputs_count != n->inputs_count &&
      (!tsr_verify_say_task(
           c->v, c->s, task, -1, "it has %d inputs, its node %d", t->inputs_count,
           n->inputs_count) ||
       t->inputs_count > n->inputs_count))
    return false;
  for (int k = 0; k < t->inputs_count; k++) {
    int want = wanted_input(c, t, k);
    if (k != tsr_op_gradient_input(t->op) && !check_present(c, task, want)) return false;
    if (c->p->tensors[want].segment == TSR_SEGMENT_ABSENT &&
        t->inputs[k].segment == TSR_SEGMENT_ABSENT && t->inputs[k].value == want)
      continue;
    if (!check_tensor(c, task, &t->inputs[k], want, "input", k)) return false;
  }
  return true;
}

/* The wait for a bucket is for whatever the bucket moves. */
static bool check_collected(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  for (int k = 0; k < t->inputs_count; k++) {
    int value = t->inputs[k].value;
    if (value < 0 || value >= c->v->graph->values_count) value = 0;
    if (!check_tensor(c, task, &t->inputs[k], value, "input", k)) return false;
  }
  return true;
}

static bool check_outputs(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  const tsr_node *n = &c->v->graph->nodes[t->node];
  if (t->outputs_count != n->outputs_count &&
      (!tsr_verify_say_task(
           c->v, c->s, task, -1, "it has %d outputs, its node %d", t->outputs_count,
           n->outputs_count) ||
       t->outputs_count > n->outputs_count))
    return false;
  for (int k = 0; k < t->outputs_count; k++)
    if (!check_tensor(c, task, &t->outputs[k], n->outputs[k], "output", k)) return false;
  return true;
}

static bool check_scratch(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  int64_t work = c->p->bytes[TSR_SEGMENT_WORK];
  if (t->scratch_bytes == 0) return true;
  if (t->scratch_bytes > 0 && t->scratch_offset >= 0 && t->scratch_offset % 64 == 0 &&
      t->scratch_offset <= work && t->scratch_bytes <= work - t->scratch_offset)
    return true;
  return tsr_verify_say_task(
      c->v, c->s, task, -1, "its %lld bytes of scratch %s are not in work, which has %lld bytes",
      (long long)t->scratch_bytes, tsr_verify_address(c->v, TSR_SEGMENT_WORK, t->scratch_offset),
      (long long)work);
}

/* ---- tasks that move ---- */

/* Whether a tensor that no list has proved to be one has so many elements. */
static bool is_as_large(const tsr_tensor *t, int64_t elements) {
  int64_t n = t->units ? t->units : 1;
  if (t->ndim < 0 || t->ndim > TSR_DIMS_MAX) return false;
  for (int i = 0; i < t->ndim; i++)
    if (__builtin_mul_overflow(n, t->shape[i], &n)) return false;
  return n == elements;
}

/* The other end's tensor, which a receive describes: its shape, and no place. */
static bool check_receive(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  int want = c->v->graph->nodes[t->node].inputs[0];
  const tsr_tensor *in = &t->inputs[0], *out = &t->outputs[0];
  if ((t->inputs_count != 1 || in->value != want) &&
      (!tsr_verify_say_task(
           c->v, c->s, task, -1, "it receives '%s', its node '%s'",
           t->inputs_count == 1 ? name_of(c, in->value) : "nothing", name_of(c, want)) ||
       t->inputs_count != 1))
    return false;
  if (!check_outputs(c, task)) return false;
  if (in->dtype == out->dtype && is_as_large(in, tsr_tensor_elements(out))) return true;
  return tsr_verify_say_task(
      c->v, c->s, task, -1, "it receives %s as %s", tensor_text(c, in), tensor_text(c, out));
}

static bool check_move(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  const tsr_node *n = &c->v->graph->nodes[t->node];
  bool of_bucket = t->op == TSR_OP_WAIT && t->bucket > 0;
  if (!of_bucket && n->op != TSR_OP_RECEIVE) {
    tsr_verify_say_task(
        c->v, c->s, task, -1, "its node is a %s, not a receive", tsr_op_name(n->op));
    return false;
  }
  if (t->op == TSR_OP_RECEIVE) return check_receive(c, task);
  if (t->outputs_count && !tsr_verify_say_task(c->v, c->s, task, -1, "it has outputs"))
    return false;
  if (t->op == TSR_OP_WAIT && t->lag < 0 && t->lag != TSR_WAIT_ALL) {
    tsr_verify_say_task(c->v, c->s, task, -1, "it waits for %d microbatches before", t->lag);
    return false;
  }
  if (of_bucket) return check_collected(c, task);
  if (tsr_verify_source(c->v, t->node) != c->p->stage &&
      !tsr_verify_say_task(
          c->v, c->s, task, -1, "'%s' is sent by stage %d, not by this one",
          name_of(c, n->inputs[0]), tsr_verify_source(c->v, t->node)))
    return false;
  return check_inputs(c, task);
}

/* ---- nodes ---- */

/* A classifier's loss is computed with its gradient. */
static bool is_kept_back(const tsr_task *t, tsr_section runs, tsr_section of) {
  return t->fused == TSR_FUSED_LINEAR_CROSS_ENTROPY && runs == TSR_BACKWARD && of == TSR_FORWARD;
}

/* Where a task of the node may stand: in its part, or with the last microbatch what a step needs
 * once. */
static bool check_part_of(const check *c, int task, int node) {
  const tsr_task *t = &c->p->tasks[task];
  const tsr_node *n = &c->v->graph->nodes[node];
  const tsr_part *part = &c->p->parts[c->s->part_of[task]];
  int stage = c->p->stage, chunk = 0;
  if (n->stage != TSR_EVERY_STAGE) tsr_pipeline_locate(c->p->pipeline, n->stage, &stage, &chunk);
  if (stage != c->p->stage &&
      !tsr_verify_say_task(c->v, c->s, task, -1, "its node is on stage %d", stage))
    return false;
  bool body = tsr_verify_is_body(part->section), several = c->v->microbatches > 1;
  bool last = t->last_only || !several; /* only the last microbatch comes to the task */
  if (body && n->section == TSR_UPDATE && last) return true;
  if (is_kept_back(t, part->section, n->section) && part->chunk == chunk) return true;
  bool often = n->section != TSR_UPDATE && several; /* the node runs with another one, too */
  if (part->section == n->section && (!body || part->chunk == chunk) && !(t->last_only && often))
    return true;
  return tsr_verify_say_task(
      c->v, c->s, task, -1, "it runs in the %s part%s, its node in %s of chunk %d",
      tsr_section_name(part->section), t->last_only ? " with the last microbatch only" : "",
      tsr_section_name(n->section), chunk);
}

static bool check_part(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  bool ok = check_part_of(c, task, t->node);
  for (int i = 0; ok && t->fused && i < t->nodes_count; i++)
    ok = check_part_of(c, task, t->nodes[i]);
  return ok;
}

/* The tensors of a fused task's operands, whose values have been checked. */
static bool check_tensors(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  for (int k = 0; k < t->inputs_count; k++)
    if (!check_present(c, task, t->inputs[k].value) ||
        !check_tensor(c, task, &t->inputs[k], t->inputs[k].value, "input", k))
      return false;
  for (int k = 0; k < t->outputs_count; k++)
    if (!check_tensor(c, task, &t->outputs[k], t->outputs[k].value, "output", k)) return false;
  return true;
}

/* Whether a collective or a split leads from one placement over its axis to the other one. */
static bool leads(const tsr_node *n, tsr_placement from, tsr_placement to) {
  bool gathered = from.kind == TSR_SHARD && to.kind == TSR_REPLICATE;
  switch (n->op) {
  case TSR_OP_ALL_REDUCE:
    return from.kind == TSR_PARTIAL && to.kind == TSR_REPLICATE;
  case TSR_OP_ALL_GATHER:
    return gathered && (n->attr.all_gather.dim < 0 || n->attr.all_gather.dim == from.dim);
  case TSR_OP_REDUCE_SCATTER:
    return from.kind == TSR_PARTIAL && to.kind == TSR_SHARD && n->attr.scatter.dim == to.dim;
  case TSR_OP_SCATTER:
    return from.kind == TSR_REPLICATE && to.kind == TSR_SHARD && n->attr.scatter.dim == to.dim;
  case TSR_OP_ALL_TO_ALL: /* among all members, not inside groups of them */
    return from.kind == TSR_SHARD && to.kind == TSR_SHARD && n->attr.all_to_all.from == from.dim &&
           n->attr.all_to_all.dim == to.dim && from.groups <= 1 && to.groups <= 1;
  case TSR_OP_REDUCE:
    return from.kind == TSR_PARTIAL && to.kind == TSR_OWNED && n->attr.reduce.root == to.owner;
  case TSR_OP_BROADCAST:
    if (from.kind == TSR_OWNED && n->attr.broadcast.root != from.owner) return false;
    return (from.kind == TSR_OWNED || from.kind == TSR_REPLICATE) && to.kind == TSR_REPLICATE;
  default: /* a ring's shift */
    return tsr_placement_equal(from, to);
  }
}

/* An axis splits what the outer ones leave of a dimension, so nothing may be gathered or split over
 * an axis as long as an inner one splits the same dimension. */
static bool check_nesting(const check *c, int task) {
  const tsr_node *n = &c->v->graph->nodes[c->p->tasks[task].node];
  const tsr_value *in = &c->v->graph->values[n->inputs[0]];
  const tsr_value *out = &c->v->graph->values[n->outputs[0]];
  int axis = (int)n->attr.move.axis;
  tsr_placement from = in->placement[axis], to = out->placement[axis];
  if (tsr_placement_equal(from, to) || c->v->mesh->size[axis] == 1) return true;
  for (int a = axis + 1; a < TSR_AXES; a++) {
    tsr_placement inner = in->placement[a];
    bool splits = inner.kind == TSR_SHARD && c->v->mesh->size[a] > 1;
    bool same = (from.kind == TSR_SHARD && from.dim == inner.dim) ||
                (to.kind == TSR_SHARD && to.dim == inner.dim);
    if (splits && same &&
        !tsr_verify_say_task(
            c->v, c->s, task, -1, "it moves dimension %d of '%s' over %s, which %s splits inside",
            inner.dim, in->name, tsr_axis_name(axis), tsr_axis_name(a)))
      return false;
  }
  return true;
}

/* It changes the placement over its axis, and nothing over others. */
static bool check_placements(const check *c, int task) {
  const tsr_node *n = &c->v->graph->nodes[c->p->tasks[task].node];
  const tsr_value *in = &c->v->graph->values[n->inputs[0]];
  const tsr_value *out = &c->v->graph->values[n->outputs[0]];
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement from = in->placement[a], to = out->placement[a];
    bool right = a == (int)n->attr.move.axis ? leads(n, from, to) : tsr_placement_equal(from, to);
    if (!right && c->v->mesh->size[a] > 1 &&
        !tsr_verify_say_task(
            c->v, c->s, task, -1, "it does not lead from the placement of '%s' over %s to its own",
            in->name, tsr_axis_name(a)))
      return false;
  }
  return check_nesting(c, task);
}

/* A task reads what is in the host's memory by a copy that another task has made. */
static bool check_host_memory(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  for (int k = 0; k < t->inputs_count; k++) {
    bool on_host = t->inputs[k].segment == TSR_SEGMENT_HOST;
    if (on_host != (t->op == TSR_OP_RELOAD) &&
        !tsr_verify_say_task(
            c->v, c->s, task, -1, "reads '%s' in the %s's memory", name_of(c, t->inputs[k].value),
            on_host ? "host" : "device"))
      return false;
  }
  return true;
}

static bool check_node(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  const tsr_node *n = &c->v->graph->nodes[t->node];
  int axis = tsr_node_axis(n);
  if (t->op != n->op &&
      !tsr_verify_say_task(c->v, c->s, task, -1, "its node is a %s", tsr_op_name(n->op)))
    return false;
  if (t->axis != axis &&
      !tsr_verify_say_task(
          c->v, c->s, task, -1, "it works over %s, its node over %s",
          t->axis >= 0 && t->axis < TSR_AXES ? tsr_axis_name(t->axis) : "no axis",
          axis >= 0 ? tsr_axis_name(axis) : "no axis"))
    return false;
  if (tsr_program_is_alias(c->p, t->node) &&
      !tsr_verify_say_task(
          c->v, c->s, task, -1, "its node is '%s' under another name, which needs no task",
          name_of(c, n->inputs[0])))
    return false;
  if (!check_host_memory(c, task)) return false;
  if (t->fused) return tsr_verify_fused(c->v, c->s, task) && check_tensors(c, task);
  return (axis < 0 || check_placements(c, task)) && check_inputs(c, task) && check_outputs(c, task);
}

static bool check_task(const check *c, int task) {
  const tsr_task *t = &c->p->tasks[task];
  bool inside = t->bucket >= 0 && t->bucket <= c->p->tasks_count;
  bool copies = tsr_op_copies_to_or_from_host(t->op); /* beside other tasks, never as one of them */
  bool moves = t->op == TSR_OP_WAIT || tsr_op_is_collective(t->op) || copies;
  if ((!inside || (t->bucket ? !moves : copies)) &&
      (!tsr_verify_say_task(c->v, c->s, task, -1, "it is in bucket %d", t->bucket) || !inside))
    return false;
  if (t->op != TSR_OP_SEND && t->op != TSR_OP_WAIT && !check_part(c, task)) return false;
  if (!(is_move(t->op) ? check_move(c, task) : check_node(c, task))) return false;
  return check_scratch(c, task) && tsr_verify_casts(c->v, c->s, task, t) &&
         tsr_verify_host_task(c->v, c->s, task);
}

/* Tasks of one bucket begin one after the other and go over one axis, as one message. */
static void check_buckets(const check *c) {
  int *first = NULL, buckets = 0;
  for (int i = 0; i < c->p->tasks_count; i++)
    if (c->p->tasks[i].bucket > buckets) buckets = c->p->tasks[i].bucket;
  first = tsr_arena_array(c->v->brief, int, buckets + 1);
  for (int i = 0; i < c->p->tasks_count; i++) {
    const tsr_task *t = &c->p->tasks[i], *before = t - 1;
    if (!t->bucket || t->op == TSR_OP_WAIT) continue;
    if (!first[t->bucket]) {
      first[t->bucket] = i + 1;
      continue;
    }
    bool next = before->bucket == t->bucket && before->op != TSR_OP_WAIT &&
                c->s->part_of[i] == c->s->part_of[i - 1];
    if (next && before->axis == t->axis && before->last_only == t->last_only) continue;
    tsr_verify_say_task(
        c->v, c->s, i, -1,
        "it is in bucket %d, which began with task %d, over another axis or "
        "with others between them",
        t->bucket, first[t->bucket] - 1);
  }
}

/* Once each: no node of the stage is left out or stands twice. */
static void check_once(const check *c) {
  const tsr_graph *g = c->v->graph;
  int *task_of = tsr_arena_array(c->v->brief, int, g->nodes_count + 1);
  for (int i = 0; i < c->p->tasks_count && !tsr_verify_is_full(c->v); i++) {
    const tsr_task *t = &c->p->tasks[i];
    if (t->op == TSR_OP_SEND || t->op == TSR_OP_WAIT) continue;
    for (int k = 0; k < (t->fused ? t->nodes_count : 1); k++) {
      int node = t->fused ? t->nodes[k] : t->node;
      if (task_of[node])
        tsr_verify_say_task(c->v, c->s, i, -1, "task %d runs the same node", task_of[node] - 1);
      task_of[node] = i + 1;
    }
  }
  for (int i = 0; i < g->nodes_count && !tsr_verify_is_full(c->v); i++)
    if (!task_of[i] && tsr_program_has_node(c->p, i) && !tsr_program_is_alias(c->p, i))
      tsr_verify_say_node(c->v, c->s, i, "no task runs this %s", tsr_op_name(g->nodes[i].op));
}

/* An update writes a parameter itself, and no copy of one. */
static void check_updates(const check *c) {
  const tsr_graph *g = c->v->graph;
  for (int i = 0; i < g->nodes_count && !tsr_verify_is_full(c->v); i++) {
    const tsr_node *n = &g->nodes[i];
    if (!(tsr_op_facts(n->op) & TSR_FACT_UPDATE) || !tsr_program_has_node(c->p, i)) continue;
    if (g->values[n->inputs[0]].kind != TSR_VALUE_PARAM)
      tsr_verify_say_node(
          c->v, c->s, i, "it updates '%s', which is no parameter", name_of(c, n->inputs[0]));
  }
}

bool tsr_verify_tasks(tsr_verify *v, const tsr_verify_subject *s) {
  check c = {v, s, s->p};
  bool ok = true;
  int before = v->found;
  for (int i = 0; i < s->p->tasks_count && !tsr_verify_is_full(v); i++) ok &= check_task(&c, i);
  check_once(&c);
  check_updates(&c);
  if (ok) check_buckets(&c);
  return ok && v->found == before;
}
