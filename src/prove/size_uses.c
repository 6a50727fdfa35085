// SPDX-License-Identifier: Apache-2.0
#include "prove/size_uses.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_graph_file *file;
  const tsr_run_splits *splits;
  tsr_size_uses uses;
} finder;

static tsr_size_use *add(finder *f, tsr_size_use_kind kind, const tsr_expr *expr) {
  tsr_size_uses *u = &f->uses;
  tsr_arena_grow(f->arena, (void **)&u->items, sizeof *u->items, u->count, &u->capacity);
  u->items[u->count] = (tsr_size_use){.kind = kind, .expr = expr, .owner = -1};
  return &u->items[u->count++];
}

static bool is_division(const tsr_expr *e) {
  return e->kind == TSR_EXPR_BINARY && (e->name[0] == '/' || e->name[0] == '%');
}

static bool rounds(const tsr_expr *e) {
  static const char *const names[] = {"round_up", "ceil", "floor", "sqrt", "len", "log"};
  for (size_t i = 0; e->kind == TSR_EXPR_CALL && i < sizeof names / sizeof *names; i++)
    if (!strcmp(e->name, names[i])) return true;
  return false;
}

void tsr_size_names(const tsr_expr *e, tsr_name_visit *visit, void *context) {
  if (e->kind == TSR_EXPR_NAME) visit(context, e->name);
  if (rounds(e)) return;
  for (int i = 0; i < e->count; i++) {
    bool divisor = is_division(e) && i == 1, index = e->kind == TSR_EXPR_INDEX && i == 1;
    bool condition = e->kind == TSR_EXPR_IF && i == 1;
    if (!divisor && !index && !condition) tsr_size_names(e->args[i], visit, context);
  }
}

/* A product is split where its factors are not. Factors that keep their rest by the reduced count
 * give a product that keeps it. */
static void split(finder *f, const tsr_expr *expr, tsr_size_split by) {
  if (expr->kind != TSR_EXPR_NAME && by.full % by.reduced == 0) by.full = by.reduced;
  if (by.full > 1) add(f, TSR_USE_SPLIT, expr)->split = by;
}

static void find_quotients(finder *f, const tsr_expr *e) {
  if (!e || rounds(e)) return;
  if (is_division(e)) {
    tsr_size_use *u = add(f, TSR_USE_QUOTIENT, e->args[0]);
    u->divisor = e->args[1];
    u->rest = e->name[0] == '%';
  }
  for (int i = 0; i < e->count; i++) find_quotients(f, e->args[i]);
}

/* The expression's own division comes first. */
static void find_in_default(finder *f, int size) {
  const tsr_expr *value = f->file->sizes[size].value;
  int first = f->uses.count;
  find_quotients(f, value);
  for (int i = first; i < f->uses.count; i++) f->uses.items[i].owner = size;
  bool quotient = value && value->kind == TSR_EXPR_BINARY && !strcmp(value->name, "/");
  if (quotient) f->uses.items[first].is_size = true;
}

static bool is_literal(const tsr_expr *e) { return e->kind == TSR_EXPR_NUMBER && e->number > 1; }

static bool find_shape(finder *f, const tsr_expr *shape) {
  bool literal = false;
  for (int d = 0; shape && d < shape->count; d++) {
    add(f, TSR_USE_SHAPE, shape->args[d]);
    find_quotients(f, shape->args[d]);
    literal |= is_literal(shape->args[d]);
  }
  return literal;
}

/* ---- placements ---- */

/* The dimension of shard(d); -1: the expression is another one. */
static int64_t shard_dim(const tsr_expr *placement, const tsr_expr *shape) {
  bool shard = placement->kind == TSR_EXPR_CALL && !strcmp(placement->name, "shard");
  if (!shard || placement->count != 1) return -1;
  const tsr_expr *dim = placement->args[0];
  bool below = dim->kind == TSR_EXPR_UNARY && dim->count == 1;
  int64_t d = (int64_t)(below ? dim->args[0]->number : dim->number);
  if (below) d = shape->count - d;
  return d >= 0 && d < shape->count ? d : -1;
}

/* The dimension of every shard(d) in an expression such as `shard(0) if layer % 2 else replicate`.
 */
static void
split_shards(finder *f, const tsr_expr *placement, const tsr_expr *shape, tsr_size_split by) {
  int64_t d = shard_dim(placement, shape);
  if (d >= 0) split(f, shape->args[d], by);
  for (int i = 0; i < placement->count && d < 0; i++)
    split_shards(f, placement->args[i], shape, by);
}

/* -1: tp does not always split the parameter along the same dimension. */
static int64_t tp_dim(const finder *f, const tsr_param_decl *p) {
  if (!f->splits->has_tp) return -1;
  if (p->placement[TSR_TP]) return shard_dim(p->placement[TSR_TP], p->shape);
  return p->layout[TSR_TP].kind == TSR_SHARD ? p->layout[TSR_TP].dim : -1;
}

static void find_params(finder *f, const tsr_param_decls *params) {
  for (int i = 0; i < params->count; i++) {
    const tsr_param_decl *p = &params->items[i];
    if (!p->shape || p->shape->kind != TSR_EXPR_LIST) continue;
    f->uses.literal_tensors += find_shape(f, p->shape);
    for (int d = 0; d < p->shape->count; d++) /* ZeRO splits none that tp splits */
      if (d != tp_dim(f, p)) split(f, p->shape->args[d], f->splits->zero_shards);
    for (int a = 0; a < TSR_AXES; a++) {
      if (p->placement[a]) split_shards(f, p->placement[a], p->shape, f->splits->axis[a]);
      else if (p->layout[a].kind == TSR_SHARD && p->layout[a].dim < p->shape->count)
        split(f, p->shape->args[p->layout[a].dim], f->splits->axis[a]);
    }
  }
}

static void find_inputs(finder *f) {
  for (int i = 0; i < f->file->inputs_count; i++) {
    const tsr_input_decl *in = &f->file->inputs[i];
    if (!in->shape || in->shape->kind != TSR_EXPR_LIST) continue;
    f->uses.literal_tensors += find_shape(f, in->shape);
    for (int a = 0; a < TSR_AXES; a++)
      if (in->layout[a].kind == TSR_SHARD && in->layout[a].dim < in->shape->count)
        split(f, in->shape->args[in->layout[a].dim], f->splits->axis[a]);
  }
}

/* ---- statements ---- */

static bool has_key(const tsr_expr *call, const char *key) {
  for (int i = 0; i < call->count; i++)
    if (call->keys[i] && !strcmp(call->keys[i], key)) return true;
  return false;
}

static void find_call(finder *f, const tsr_expr *e) {
  static const tsr_size_split halves = {"RoPE halves", 2, 2};
  bool rope = e->kind == TSR_EXPR_CALL && !strcmp(e->name, "rope");
  bool attention = e->kind == TSR_EXPR_CALL && !strcmp(e->name, "attention");
  const char *turned = rope && has_key(e, "rotary_dim") ? "rotary_dim" : "head_dim";
  for (int i = 0; i < e->count; i++) {
    const char *key = e->kind == TSR_EXPR_CALL ? e->keys[i] : NULL;
    if (!key) find_call(f, e->args[i]);
    else if (!strcmp(key, "shape")) find_shape(f, e->args[i]);
    else if (rope && !strcmp(key, turned)) split(f, e->args[i], halves);
    else if (attention && !strcmp(key, "window")) add(f, TSR_USE_WINDOW, e->args[i]);
    if (key) find_quotients(f, e->args[i]);
  }
}

static void find_body(finder *f, const tsr_body *body) {
  for (int i = 0; i < body->count; i++) {
    const tsr_statement *s = &body->items[i];
    if (s->call) find_call(f, s->call);
    if (s->times) add(f, TSR_USE_TIMES, s->times);
    find_params(f, &s->params);
    find_body(f, &s->body);
    find_body(f, &s->otherwise);
  }
}

tsr_size_uses
tsr_size_uses_find(tsr_arena *arena, const tsr_graph_file *file, const tsr_run_splits *splits) {
  finder f = {.arena = arena, .file = file, .splits = splits};
  for (int i = 0; i < file->sizes_count; i++)
    if (file->sizes[i].kind == TSR_SIZE_INTEGER) find_in_default(&f, i);
  for (int i = 0; i < file->checks_count; i++) find_quotients(&f, file->checks[i].that);
  find_inputs(&f);
  find_params(&f, &file->params);
  find_body(&f, &file->body);
  for (int i = 0; i < file->blocks_count; i++) {
    find_params(&f, &file->blocks[i].params);
    find_body(&f, &file->blocks[i].body);
  }
  return f.uses;
}
