// SPDX-License-Identifier: Apache-2.0
/* The structure of a program: lists that index one another, and the place of every tensor. */
#include "base/reduction_tree.h"
#include "schedule/verify_checks.h"
#include <string.h>

/* ---- lists ---- */

/* What decides which samples and positions a rank has is alike on all ranks. */
static bool check_layout(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_lowering *l = &s->p->lowering, *first = &v->subjects[0].p->lowering;
  if (l->microbatch_first == first->microbatch_first && l->zigzag == first->zigzag) return true;
  return tsr_verify_say(
      v, s, "its samples or positions are laid out otherwise than those of rank %d",
      v->subjects[0].rank);
}

static bool check_recipe(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  bool other = p->graph != v->graph || p->pipeline != v->programs->pipeline, ok = true;
  if (other && !tsr_verify_say(v, s, "the program is of another graph or schedule")) return false;
  if (p->lowering.microbatches != v->microbatches &&
      !tsr_verify_say(
          v, s, "the program is for %lld microbatches, the schedule for %d",
          (long long)p->lowering.microbatches, v->microbatches))
    return false;
  for (int a = 0; a < TSR_AXES; a++)
    if (p->lowering.size[a] != v->mesh->size[a])
      ok &= tsr_verify_say(
          v, s, "the program is for %s = %lld, the mesh has %d", tsr_axis_name(a),
          (long long)p->lowering.size[a], v->mesh->size[a]);
  return ok && check_layout(v, s);
}

static const char *part_text(const tsr_verify *v, const tsr_part *part) {
  if ((int)part->section < 0 || part->section >= TSR_SECTIONS) return "no section";
  const char *name = tsr_section_name(part->section);
  if (v->programs->pipeline->chunks == 1 || !tsr_verify_is_body(part->section)) return name;
  return tsr_arena_printf(v->arena, "%s of chunk %d", name, part->chunk);
}

/* The prologue, forward, backward and weights of each chunk, the update; tasks fill them in order.
 */
static bool check_parts(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  int want = 2 + 3 * p->pipeline->chunks, end = 0;
  if (p->parts_count != want &&
      (!tsr_verify_say(v, s, "%d parts, not %d", p->parts_count, want) || p->parts_count < want))
    return false;
  for (int k = 0; k < want; k++) {
    tsr_part part = {.section = TSR_PROLOGUE};
    if (k == want - 1) part.section = TSR_UPDATE;
    else if (k > 0)
      part = (tsr_part){.section = (tsr_section)(TSR_FORWARD + (k - 1) % 3), .chunk = (k - 1) / 3};
    const tsr_part *got = &p->parts[k];
    bool same = got->section == part.section && got->chunk == part.chunk;
    if (!same &&
        !tsr_verify_say(v, s, "part %d is %s, not %s", k, part_text(v, got), part_text(v, &part)))
      return false;
    bool inside = got->begin >= 0 && got->end >= got->begin && got->end <= p->tasks_count;
    if ((!inside || got->begin != end) &&
        (!tsr_verify_say(
             v, s, "%s is tasks %d to before %d, but must begin at %d", part_text(v, got),
             got->begin, got->end, end) ||
         !inside))
      return false;
    end = got->end;
  }
  if (end == p->tasks_count) return true;
  return tsr_verify_say(v, s, "%d tasks stand behind the last part", p->tasks_count - end);
}

static bool check_run(tsr_verify *v, const tsr_verify_subject *s, const tsr_run *run, int *times) {
  if (run->part < 0 || run->part >= s->p->parts_count)
    return tsr_verify_say(
               v, s, "a run of part %d, of which there are %d", run->part, s->p->parts_count),
           false;
  const tsr_part *part = &s->p->parts[run->part];
  bool body = tsr_verify_is_body(part->section);
  int only = part->section == TSR_PROLOGUE ? 0 : v->microbatches - 1;
  bool inside = run->microbatch >= 0 && run->microbatch < v->microbatches;
  if ((!inside || (!body && run->microbatch != only)) &&
      (!tsr_verify_say(
           v, s, "%s runs with microbatch %d, not %s%d", part_text(v, part), run->microbatch,
           body ? "one of 0 to " : "", only) ||
       !inside))
    return false;
  times[run->part * v->microbatches + run->microbatch]++;
  return true;
}

/* Every part that has tasks runs once a step, of the body once a microbatch. */
static bool check_runs(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  int *times = tsr_arena_array(v->brief, int, p->parts_count * v->microbatches);
  bool ok = true;
  for (int r = 0; r < p->runs_count; r++)
    if (!check_run(v, s, &p->runs[r], times)) return false;
  for (int k = 0; k < p->parts_count; k++)
    for (int m = 0; m < v->microbatches && p->parts[k].begin < p->parts[k].end; m++) {
      bool body = tsr_verify_is_body(p->parts[k].section);
      int only = p->parts[k].section == TSR_PROLOGUE ? 0 : v->microbatches - 1;
      int got = times[k * v->microbatches + m];
      if (got == 1 || (!body && m != only)) continue;
      const char *with = body ? tsr_arena_printf(v->arena, " with microbatch %d", m) : "";
      const char *often = tsr_arena_printf(v->arena, "runs %d times", got);
      if (!got) often = "never runs";
      ok &= tsr_verify_say(v, s, "%s %s%s", part_text(v, &p->parts[k]), often, with);
    }
  return ok;
}

static bool is_inside(const tsr_slot_group *f, int64_t end) {
  return f->offset <= end && (!f->slots || f->bytes <= (end - f->offset) / f->slots);
}

static bool check_slot_groups(tsr_verify *v, const tsr_verify_subject *s) {
  bool ok = true;
  for (int i = 0; i < s->p->slot_groups_count; i++) {
    const tsr_slot_group *f = &s->p->slot_groups[i];
    int most = v->microbatches * v->programs->pipeline->chunks; /* alive at once */
    bool there = (int)f->segment >= 0 && f->segment < TSR_SEGMENTS && f->slots >= 0 &&
                 f->slots <= most && f->bytes >= 0 && f->offset >= 0;
    if (!there || !is_inside(f, s->p->bytes[f->segment]))
      ok &= tsr_verify_say(
                v, s, "slot group %d of %d × %lld bytes from %lld on is outside its segment", i,
                f->slots, (long long)f->bytes, (long long)f->offset) &&
            there;
    for (int m = 0; m < v->microbatches && there; m++) {
      if (f->slot_of[m] >= 0 && f->slot_of[m] < f->slots) continue;
      tsr_verify_say(
          v, s, "slot group %d has %d slots, microbatch %d takes slot %d", i, f->slots, m,
          f->slot_of[m]);
      ok = false;
    }
  }
  return ok;
}

static bool is_node(const tsr_verify *v, int node) {
  return node >= 0 && node < v->graph->nodes_count;
}

static bool check_indices(tsr_verify *v, const tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *t = &p->tasks[i];
    bool ok = is_node(v, t->node) && (int)t->op >= 0 && t->op < TSR_OPS;
    for (int k = 0; t->fused && k < t->nodes_count; k++) ok &= is_node(v, t->nodes[k]);
    if (!ok)
      return tsr_verify_say(v, s, "task %d is for no node of the graph, or for no op", i), false;
  }
  for (int x = 0; x < v->graph->values_count; x++) {
    const tsr_tensor *t = &p->tensors[x];
    if (t->segment == TSR_SEGMENT_ABSENT) continue;
    if (t->value != x || (int)t->segment < 0 || t->segment > TSR_SEGMENT_ABSENT ||
        t->slot_group < -1 || t->slot_group >= p->slot_groups_count || t->ndim < 0 ||
        t->ndim > TSR_DIMS_MAX || (int)t->dtype < 0 || t->dtype > TSR_INT8)
      return tsr_verify_say_value(v, s, x, "its tensor is of another value, slot group or dtype"),
             false;
  }
  return true;
}

static void find_owners(const tsr_verify *v, tsr_verify_subject *s) {
  const tsr_graph *g = v->graph;
  s->owner = tsr_arena_array(v->brief, int, g->values_count + 1);
  for (int x = 0; x < g->values_count; x++) s->owner[x] = x;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->outputs_count != 1 || n->inputs_count != 1 || !tsr_program_has_node(s->p, i)) continue;
    if (tsr_program_is_alias(s->p, i)) s->owner[n->outputs[0]] = s->owner[n->inputs[0]];
  }
}

bool tsr_verify_lists(tsr_verify *v, tsr_verify_subject *s) {
  if (!check_recipe(v, s) || !check_parts(v, s)) return false;
  bool ok = check_runs(v, s);
  ok = check_slot_groups(v, s) && ok;
  if (!check_indices(v, s)) return false;
  find_owners(v, s);
  s->part_of = tsr_arena_array(v->arena, int, s->p->tasks_count + 1);
  for (int k = 0; k < s->p->parts_count; k++)
    for (int i = s->p->parts[k].begin; i < s->p->parts[k].end; i++) s->part_of[i] = k;
  return ok;
}

/* ---- tensors ---- */

static const char *tensor_text(tsr_verify *v, const tsr_tensor *t) {
  const char *units = t->units ? tsr_arena_printf(v->arena, "%lld × ", (long long)t->units) : "";
  return tsr_arena_printf(
      v->arena, "%s%s %s", units, tsr_shape_text(t->ndim, t->shape).text, tsr_dtype_name(t->dtype));
}

/* What a rank's part of a value must be. */
/* The most rows that this many experts can have. */
static int64_t room_of(const tsr_verify *v, const tsr_value *x, int64_t experts) {
  int64_t tokens = x->routed.tokens;
  for (int a = 0; a < TSR_AXES; a++)
    if (x->placement[a].kind == TSR_SHARD && x->placement[a].dim == 0) tokens /= v->mesh->size[a];
  int64_t each = x->routed.choices < experts ? x->routed.choices : experts, rows = tokens * each;
  if (!x->routed.slots) return rows;
  int64_t slots = tokens / x->routed.unit_tokens * experts * x->routed.slots;
  return slots < rows ? slots : rows;
}

static tsr_tensor local_tensor(const tsr_verify *v, int value) {
  static const tsr_segment segments[] = {
      [TSR_VALUE_INPUT] = TSR_SEGMENT_INPUT, [TSR_VALUE_STEP_SCALARS] = TSR_SEGMENT_INPUT,
      [TSR_VALUE_CONST] = TSR_SEGMENT_CONST, [TSR_VALUE_PARAM] = TSR_SEGMENT_PARAM,
      [TSR_VALUE_STATE] = TSR_SEGMENT_STATE, [TSR_VALUE_NODE] = TSR_SEGMENT_WORK};
  const tsr_value *x = &v->graph->values[value];
  tsr_tensor t = {.value = value, .dtype = x->dtype, .ndim = x->ndim, .units = x->units};
  bool kept =
      x->kind == TSR_VALUE_NODE && tsr_op_facts(v->graph->nodes[x->node].op) & TSR_FACT_KEPT;
  bool copied = x->kind == TSR_VALUE_NODE && v->graph->nodes[x->node].op == TSR_OP_OFFLOAD;
  t.segment = copied ? TSR_SEGMENT_HOST : kept ? TSR_SEGMENT_CACHE : segments[x->kind];
  memcpy(t.shape, x->shape, sizeof t.shape);
  int64_t experts = x->routed.experts;
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement over = x->placement[a];
    int size = v->mesh->size[a];
    if (over.kind == TSR_SHARD) t.shape[over.dim] /= tsr_placement_blocks(over, size);
    if (over.kind == TSR_ROUTED) experts /= size;
  }
  if (tsr_routed_is_rows(x->routed)) t.shape[0] = room_of(v, x, experts);
  if (x->placement[TSR_TP].kind == TSR_PARTIAL) t.units /= v->mesh->size[TSR_TP];
  if (x->units_of_sequence && x->placement[TSR_CP].kind == TSR_PARTIAL)
    t.units /= v->mesh->size[TSR_CP];
  if (x->batch_units) t.units = x->batch_units * (t.units ? t.units : 1);
  for (int d = 0; d < 2 && tsr_dtype_is_quantized(x->dtype); d++) {
    tsr_placement tp = x->placement[TSR_TP];
    t.unit_shape[d] = tp.kind == TSR_SHARD && tp.dim == d
                          ? x->shape[d] / (v->graph->units.tp > 1 ? v->graph->units.tp : 1)
                          : t.shape[d];
  }
  return t;
}

static bool same_shape(const tsr_tensor *a, const tsr_tensor *b) {
  return a->ndim == b->ndim && a->units == b->units && a->dtype == b->dtype &&
         !memcmp(a->unit_shape, b->unit_shape, sizeof a->unit_shape) &&
         !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

static void check_alias(tsr_verify *v, const tsr_verify_subject *s, int value) {
  const tsr_tensor *t = &s->p->tensors[value], *of = &s->p->tensors[s->owner[value]];
  tsr_tensor want = local_tensor(v, s->owner[value]); /* whatever `of` is */
  if (t->segment == of->segment && t->offset == of->offset && t->slot_group == of->slot_group &&
      tsr_tensor_bytes(t) == tsr_tensor_bytes(&want))
    return;
  const char *name = v->graph->values[s->owner[value]].name;
  tsr_verify_say_value(v, s, value, "it must be the bytes of '%s' under another name", name);
}

/* An op that adds to an earlier sum of its own kind works on that sum's bytes. */
static void check_sum(tsr_verify *v, const tsr_verify_subject *s, int value) {
  const tsr_graph *g = v->graph;
  const tsr_value *x = &g->values[value];
  if (x->kind != TSR_VALUE_NODE || x->output) return;
  const tsr_node *n = &g->nodes[x->node];
  if (!(tsr_op_facts(n->op) & TSR_FACT_ADDS)) return;
  int of = n->inputs[n->inputs_count - 1], from = g->values[of].node;
  if (from < 0 || g->nodes[from].op != n->op) return;
  const tsr_tensor *a = &s->p->tensors[value], *b = &s->p->tensors[of];
  if (a->segment == b->segment && a->offset == b->offset && a->slot_group == b->slot_group) return;
  tsr_verify_say_value(
      v, s, value, "it must lie where '%s' does, to which it is added", g->values[of].name);
}

/* Inside its segment, or its slot group (and the slot group is inside the segment). */
static void check_place(tsr_verify *v, const tsr_verify_subject *s, int value) {
  const tsr_tensor *t = &s->p->tensors[value];
  const tsr_slot_group *f = t->slot_group >= 0 ? &s->p->slot_groups[t->slot_group] : NULL;
  int64_t bytes = tsr_verify_bytes(s->p, value), begin = 0, end = s->p->bytes[t->segment];
  if (f) begin = f->offset, end = begin + (f->segment == t->segment ? f->bytes : 0);
  bool inside = t->offset >= begin && t->offset <= end && bytes <= end - t->offset;
  if (inside && t->offset % 64 == 0) return;
  const char *at = tsr_verify_address(v, t->segment, t->offset);
  const char *what = f ? tsr_arena_printf(v->arena, "slot group %d", t->slot_group) : "its segment";
  if (t->offset % 64) tsr_verify_say_value(v, s, value, "%s is not a multiple of 64 bytes", at);
  if (!inside)
    tsr_verify_say_value(
        v, s, value, "its %lld bytes %s are outside %s, which is bytes %lld to before %lld",
        (long long)bytes, at, what, (long long)begin, (long long)end);
}

static void check_tensor(tsr_verify *v, const tsr_verify_subject *s, int value) {
  const tsr_tensor *t = &s->p->tensors[value];
  tsr_tensor want = local_tensor(v, value);
  const tsr_value *x = &v->graph->values[value];
  bool sized = x->kind == TSR_VALUE_NODE && x->output == 0 &&
               tsr_op_facts(v->graph->nodes[x->node].op) & TSR_FACT_SIZED;
  if (sized && t->shape[0] >= 0 && t->shape[0] <= s->p->bytes[TSR_SEGMENT_WORK])
    want.shape[0] = t->shape[0]; /* the device knows */
  bool alias = s->owner[value] != value;
  if (!same_shape(t, &want) && !tsr_verify_say_value(
                                   v, s, value, "it is %s, its placement on this mesh makes it %s",
                                   tensor_text(v, t), tensor_text(v, &want)))
    return;
  if (!alias && t->segment != want.segment &&
      !tsr_verify_say_value(
          v, s, value, "it lies %s, in the wrong segment", tsr_verify_address(v, t->segment, 0)))
    return;
  if (alias) check_alias(v, s, value);
  else check_place(v, s, value), check_sum(v, s, value);
}

/* Nodes that fused tasks cover: they may elide what these make (tsr_verify_fused). */
static bool *find_fused(const tsr_verify *v, const tsr_verify_subject *s) {
  bool *fused = tsr_arena_array(v->brief, bool, v->graph->nodes_count + 1);
  for (int i = 0; i < s->p->tasks_count; i++) {
    const tsr_task *t = &s->p->tasks[i];
    for (int k = 0; t->fused && k < t->nodes_count; k++) fused[t->nodes[k]] = true;
  }
  return fused;
}

bool tsr_verify_tensors(tsr_verify *v, const tsr_verify_subject *s) {
  int before = v->found;
  const bool *fused = find_fused(v, s);
  for (int x = 0; x < v->graph->values_count && !tsr_verify_is_full(v); x++) {
    const tsr_value *value = &v->graph->values[x];
    if (s->p->tensors[x].segment != TSR_SEGMENT_ABSENT) check_tensor(v, s, x);
    else if (
        value->kind == TSR_VALUE_NODE && tsr_program_has_node(s->p, value->node) &&
        !fused[v->graph->values[s->owner[x]].node])
      tsr_verify_say_value(v, s, x, "it has no bytes, though it is made here");
  }
  return v->found == before;
}
