// SPDX-License-Identifier: Apache-2.0
#include "prove/reduced_sizes.h"
#include "base/text.h"
#include "model/build.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Every size has a first, an interior and a last element, as mesh axes have members; and a part of
 * it has two, if it has so many at full size, or an error by the length of a part is none. */
enum { LEAST = 3, LEAST_BLOCKS = 2, LEAST_IN_PART = 2, LIST_MAX = 64, TEXT_BYTES = 256 };

typedef enum { UNRESOLVED, RESOLVING, RESOLVED } progress;

/* Of the graph file's size of the same index; the last one is `sequence`. */
typedef struct {
  const char *name;
  const tsr_size_decl *decl; /* NULL: sequence */
  bool in_shape, in_times, in_window;
  bool given;
  const tsr_expr *from; /* that it is computed from: its default, or what a check equates it to */
  bool equated;
  progress progress;
  const char *why, *kept;
} size;

typedef struct {
  tsr_arena *arena;
  const tsr_reduced_sizes_request *request;
  const tsr_graph_file *file;
  tsr_size_uses uses;
  tsr_scope full, reduced; /* of the same names */
  size *sizes;
  int count;          /* with sequence */
  tsr_diags *ignored; /* of expressions that have no value in the reduced scope */
} reducer;

typedef struct {
  tsr_size_split *items;
  int count, capacity;
  int64_t least;
  int64_t parts; /* the most that split the size itself, of those that have two of it each */
} split_list;

static void resolve(reducer *x, int index);

/* ---- names ---- */

static int find_size(const reducer *x, const char *name) {
  if (!strcmp(name, "vocab_padded")) name = "vocab_size";
  for (int i = 0; i < x->count; i++)
    if (!strcmp(x->sizes[i].name, name)) return i;
  return -1;
}

static bool is_quotient(const tsr_expr *e) {
  return e && e->kind == TSR_EXPR_BINARY && !strcmp(e->name, "/");
}

typedef struct {
  const reducer *x;
  int wanted, depth;
  bool found;
} mention;

/* Through sizes that are computed, but for quotients, which are split by themselves. */
static void see_name(void *context, const char *name) {
  mention *m = context;
  int i = find_size(m->x, name);
  if (i < 0 || m->found || m->depth > m->x->count) return;
  if (i == m->wanted) m->found = true;
  const tsr_expr *from = m->x->sizes[i].from;
  if (m->found || !from || is_quotient(from)) return;
  m->depth++;
  tsr_size_names(from, see_name, m);
  m->depth--;
}

static bool mentions(const reducer *x, const tsr_expr *e, int index) {
  mention m = {.x = x, .wanted = index};
  tsr_size_names(e, see_name, &m);
  return m.found;
}

/* Whether a value depends on a size, by whatever it is computed from. */
static bool depends(const reducer *x, const tsr_expr *e, int index, int depth) {
  int i = e->kind == TSR_EXPR_NAME ? find_size(x, e->name) : -1;
  if (i == index) return true;
  if (i >= 0 && x->sizes[i].from && depth < x->count)
    if (depends(x, x->sizes[i].from, index, depth + 1)) return true;
  for (int k = 0; k < e->count; k++)
    if (depends(x, e->args[k], index, depth)) return true;
  return false;
}

/* Every name, divisors and conditions too. */
static void resolve_names(reducer *x, const tsr_expr *e) {
  int i = e->kind == TSR_EXPR_NAME ? find_size(x, e->name) : -1;
  if (i >= 0) resolve(x, i);
  for (int k = 0; k < e->count; k++) resolve_names(x, e->args[k]);
}

static bool whole(reducer *x, tsr_scope *scope, const tsr_expr *e, int64_t *ret) {
  double number;
  scope->rest.expr = NULL;
  if (!tsr_expr_number(e, scope, &number, x->ignored)) return false;
  *ret = (int64_t)number;
  return number == floor(number) && number >= 1 && number < 9e15;
}

static tsr_name *entry(tsr_scope *scope, const char *name) {
  for (int i = scope->count; i-- > 0;)
    if (!strcmp(scope->names[i].name, name)) return &scope->names[i];
  return NULL;
}

static int64_t full_number(const reducer *x, const char *name) {
  return tsr_sizes_get(&x->full, name);
}

static void set_reduced(reducer *x, const char *name, int64_t number) {
  tsr_name *n = entry(&x->reduced, name);
  assert(n);
  n->value.number = (double)number;
  if (strcmp(name, "vocab_size")) return;
  set_reduced(x, "vocab_padded", tsr_vocab_stored(number, x->request->splits.axis[TSR_TP].reduced));
}

/* ---- what splits a size ---- */

static void add_split(reducer *x, split_list *splits, tsr_size_split split) {
  if (split.reduced < 1 || split.full <= 1) return;
  for (int i = 0; i < splits->count; i++) {
    const tsr_size_split *c = &splits->items[i];
    if (c->full == split.full && c->reduced == split.reduced && !strcmp(c->what, split.what))
      return;
  }
  tsr_arena_grow(
      x->arena, (void **)&splits->items, sizeof *splits->items, splits->count, &splits->capacity);
  splits->items[splits->count++] = split;
}

static void gather(reducer *x, int index, split_list *splits);

/* The quotient q = a / b is a size of its own: what splits q splits a in parts of b. */
static void add_quotient(
    reducer *x, split_list *splits, int quotient, const char *what, int64_t full, int64_t reduced) {
  split_list own = {.least = LEAST};
  int64_t q = full_number(x, x->sizes[quotient].name);
  gather(x, quotient, &own);
  for (int i = 0; i < own.count; i++) {
    const char *text = tsr_arena_printf(x->arena, "%s × %s", what, own.items[i].what);
    tsr_size_split both = {text, full * own.items[i].full, reduced * own.items[i].reduced};
    add_split(x, splits, both);
  }
  if (q < 1) return;
  int64_t least = reduced * tsr_size_reduce(q, own.items, own.count, own.least < q ? own.least : q);
  if (least > splits->least) splits->least = least;
}

/* heads % groups: the heads of a group shrink as the members of a mesh axis do. */
static void add_ratio(
    reducer *x, split_list *splits, int index, const char *what, int64_t full, int64_t reduced) {
  int64_t n = full_number(x, x->sizes[index].name), ratio = n / full;
  if (n % full || ratio < 2) return;
  int64_t kept = tsr_axis_reduce(ratio);
  const char *text = tsr_arena_printf(x->arena, "%lld × %s", (long long)kept, what);
  add_split(x, splits, (tsr_size_split){text, n, reduced * kept});
}

static void gather_quotient(reducer *x, int index, const tsr_size_use *u, split_list *splits) {
  int64_t full, reduced;
  if (u->owner == index || (u->owner >= 0 && x->sizes[u->owner].given)) return;
  if (depends(x, u->divisor, index, 0)) return;
  resolve_names(x, u->divisor);
  if (!whole(x, &x->full, u->divisor, &full) || !whole(x, &x->reduced, u->divisor, &reduced))
    return;
  bool units = u->divisor->kind == TSR_EXPR_NAME && !strcmp(u->divisor->name, "tp_units");
  const char *what = units                                 ? "tp units"
                     : u->divisor->kind == TSR_EXPR_NUMBER ? "factor"
                                                           : u->divisor->text;
  add_split(x, splits, (tsr_size_split){what, full, reduced});
  if (u->is_size) add_quotient(x, splits, u->owner, what, full, reduced);
  bool names = u->expr->kind == TSR_EXPR_NAME && u->divisor->kind == TSR_EXPR_NAME && !units;
  if (u->rest && names) add_ratio(x, splits, index, what, full, reduced);
}

/* Splits the size itself and no product of it with others. */
static void add_parts(reducer *x, int index, split_list *splits, tsr_size_split split) {
  int64_t full = full_number(x, x->sizes[index].name);
  add_split(x, splits, split);
  if (split.full > 1 && full / split.full >= LEAST_IN_PART && split.reduced > splits->parts)
    splits->parts = split.reduced;
}

static void gather(reducer *x, int index, split_list *splits) {
  const tsr_run_splits *run = &x->request->splits;
  const size *s = &x->sizes[index];
  for (int i = 0; i < x->uses.count; i++) {
    const tsr_size_use *u = &x->uses.items[i];
    if (!mentions(x, u->expr, index)) continue;
    bool itself = u->expr->kind == TSR_EXPR_NAME && find_size(x, u->expr->name) == index;
    if (u->kind == TSR_USE_SPLIT && itself) add_parts(x, index, splits, u->split);
    if (u->kind == TSR_USE_SPLIT) add_split(x, splits, u->split);
    if (u->kind == TSR_USE_QUOTIENT) gather_quotient(x, index, u, splits);
  }
  if (s->in_times) {
    add_split(x, splits, run->stages);
    int64_t every = run->recompute_every;
    add_split(x, splits, (tsr_size_split){"recompute_every", every, every});
  }
  bool positions = !strcmp(s->name, "sequence") || !strcmp(s->name, "max_sequence_length");
  if (positions) add_parts(x, index, splits, run->sequence_units);
}

/* Two sizes of positions are split alike, so that they stay equal where they are. */
static void gather_positions(reducer *x, int index, split_list *splits) {
  int sequence = x->count - 1, longest = find_size(x, "max_sequence_length");
  if (index != sequence && index != longest) return;
  gather(x, index == sequence && longest >= 0 ? longest : sequence, splits);
  if (index == sequence) return;
  resolve(x, sequence);
  int64_t reduced = tsr_sizes_get(&x->reduced, "sequence");
  int64_t least = reduced + (full_number(x, "max_sequence_length") > full_number(x, "sequence"));
  if (reduced && least > splits->least) splits->least = least;
}

/* Counts that divide another one add no constraint. */
static bool is_implied(const split_list *splits, int index) {
  const tsr_size_split *c = &splits->items[index];
  for (int i = 0; i < splits->count; i++) {
    const tsr_size_split *other = &splits->items[i];
    bool equal = other->reduced == c->reduced;
    if (!equal && other->reduced % c->reduced == 0) return true;
    if (equal && i < index && (strstr(c->what, "×") || !strcmp(c->what, other->what))) return true;
  }
  return false;
}

static const char *describe(reducer *x, const split_list *splits) {
  tsr_text text = {0};
  for (int i = 0; i < splits->count; i++) {
    const tsr_size_split *c = &splits->items[i];
    if (c->reduced < 2 || text.length > TEXT_BYTES || is_implied(splits, i)) continue;
    tsr_text_add(&text, "%s%s %lld", text.length ? ", " : "", c->what, (long long)c->reduced);
  }
  const char *copy = tsr_arena_strdup(x->arena, text.data ? text.data : "");
  tsr_text_free(&text);
  return copy;
}

/* ---- one size ---- */

static void keep(reducer *x, int index, const char *why) {
  if (!x->sizes[index].kept) x->sizes[index].kept = why;
}

static int64_t least_of(const split_list *splits, int64_t full) {
  int64_t least = LEAST_IN_PART * splits->parts;
  if (splits->least > least) least = splits->least;
  return full < least ? full : least;
}

static void reduce_list(reducer *x, size *s) {
  const tsr_name *full = entry(&x->full, s->name);
  tsr_name *reduced = entry(&x->reduced, s->name);
  split_list splits = {.least = LEAST};
  gather(x, (int)(s - x->sizes), &splits);
  int n = full->value.count;
  double *list = tsr_arena_array(x->arena, double, n + 1);
  for (int i = 0; i < n; i++) {
    int64_t item = (int64_t)full->value.list[i];
    list[i] = (double)tsr_size_reduce(item, splits.items, splits.count, least_of(&splits, item));
  }
  reduced->value.list = list;
  s->why = describe(x, &splits);
}

static void reduce_number(reducer *x, size *s) {
  int index = (int)(s - x->sizes);
  int64_t full = full_number(x, s->name);
  split_list splits = {.least = s->in_times && !s->in_shape ? LEAST_BLOCKS : LEAST};
  gather(x, index, &splits);
  gather_positions(x, index, &splits);
  if (s->decl && s->decl->min > (double)splits.least) splits.least = (int64_t)s->decl->min;
  int64_t least = s->in_times && !s->in_shape ? splits.least : least_of(&splits, full);
  if (least > full) least = full;
  set_reduced(x, s->name, tsr_size_reduce(full, splits.items, splits.count, least));
  s->why = describe(x, &splits);
}

/* A window that hides positions hides some of the reduced sequence, too. */
static void reduce_window(reducer *x, size *s) {
  resolve(x, x->count - 1);
  int64_t full = full_number(x, s->name), sequence = full_number(x, "sequence");
  int64_t left = tsr_sizes_get(&x->reduced, "sequence");
  if (full >= sequence || left < 2) return;
  int64_t share = (full * left + sequence - 1) / sequence;
  set_reduced(x, s->name, share < left ? share : left - 1);
  s->why = "its share of sequence_length";
}

static void follow(reducer *x, size *s) {
  int64_t number;
  resolve_names(x, s->from);
  s->why = s->from->text;
  if (whole(x, &x->reduced, s->from, &number)) set_reduced(x, s->name, number);
}

static void resolve(reducer *x, int index) {
  size *s = &x->sizes[index];
  const tsr_name *full = entry(&x->full, s->name);
  /* Of two sizes that split each other the first sees the other one's full value. */
  if (s->progress != UNRESOLVED || !full) return;
  s->progress = RESOLVING;
  bool reals = s->decl && s->decl->kind == TSR_SIZE_REALS; /* are no sizes of anything */
  bool list = full->value.kind == TSR_EVAL_LIST && !reals,
       number = full->value.kind == TSR_EVAL_NUMBER;
  bool whole_number = s->decl ? s->decl->kind == TSR_SIZE_INTEGER : true;
  if (s->from && number) follow(x, s);
  else if (s->in_window && !s->kept && number && full->value.number > 0) reduce_window(x, s);
  else if (s->kept || !(s->in_shape || s->in_times)) s->why = s->kept ? s->kept : "";
  else if (list && full->value.count < LIST_MAX) reduce_list(x, s);
  else if (number && whole_number && full->value.number >= 1) reduce_number(x, s);
  s->progress = RESOLVED;
}

/* ---- all of them ---- */

static bool names_any(const tsr_expr *e) {
  bool any = e->kind == TSR_EXPR_NAME;
  for (int i = 0; i < e->count; i++) any |= names_any(e->args[i]);
  return any;
}

static void find_sizes(reducer *x) {
  const tsr_model *model = x->request->model;
  x->sizes = tsr_arena_array(x->arena, size, x->file->sizes_count + 1);
  for (int i = 0; i < x->file->sizes_count; i++) {
    const tsr_size_decl *d = &x->file->sizes[i];
    const tsr_name *n = entry(&x->full, d->names[0]);
    size *s = &x->sizes[x->count++];
    *s = (size){.name = d->names[0], .decl = d, .given = n && n->given};
    bool computed = !s->given && d->value && d->kind == TSR_SIZE_INTEGER && names_any(d->value);
    if (computed) s->from = d->value;
    s->in_shape = !strcmp(d->names[0], "max_sequence_length");
  }
  x->sizes[x->count++] = (size){.name = "sequence", .in_shape = model->sequence > 0};
}

static void find_roles(reducer *x) {
  for (int i = 0; i < x->uses.count; i++) {
    const tsr_size_use *u = &x->uses.items[i];
    for (int k = 0; k < x->count; k++) {
      size *s = &x->sizes[k];
      bool shape = u->kind == TSR_USE_SHAPE || u->kind == TSR_USE_SPLIT;
      if (u->kind == TSR_USE_WINDOW && mentions(x, u->expr, k)) s->in_window = true;
      if (!shape && u->kind != TSR_USE_TIMES) continue;
      if (!mentions(x, u->expr, k)) continue;
      s->in_shape |= shape;
      s->in_times |= !shape;
    }
  }
  /* What a size in a shape is computed from stands in that shape. */
  for (int i = x->count - 1; i >= 0; i--)
    for (int k = 0; x->sizes[i].from && x->sizes[i].in_shape && k < x->count; k++)
      x->sizes[k].in_shape |= mentions(x, x->sizes[i].from, k);
}

/* `num_heads * head_dim == embedding_dim` of three that are given: the last one follows. */
static void find_equations(reducer *x) {
  for (int i = 0; i < x->file->checks_count; i++) {
    const tsr_expr *e = x->file->checks[i].that;
    if (e->kind != TSR_EXPR_BINARY || strcmp(e->name, "==")) continue;
    for (int side = 0; side < 2; side++) {
      const tsr_expr *name = e->args[side], *other = e->args[1 - side];
      int k = name->kind == TSR_EXPR_NAME ? find_size(x, name->name) : -1;
      if (k < 0 || x->sizes[k].from || !x->sizes[k].decl || !names_any(other)) continue;
      if (x->sizes[k].decl->kind != TSR_SIZE_INTEGER || depends(x, other, k, 0)) continue;
      x->sizes[k].from = other;
      x->sizes[k].equated = true;
      break;
    }
  }
}

static void start(reducer *x) {
  const tsr_reduced_sizes_request *r = x->request;
  x->reduced = x->full;
  x->reduced.capacity = 0;
  x->reduced.names = tsr_arena_array(x->arena, tsr_name, x->full.count);
  memcpy(x->reduced.names, x->full.names, sizeof *x->full.names * (size_t)x->full.count);
  tsr_name *units = entry(&x->reduced, "tp_units");
  if (units) units->value.number = (double)r->splits.axis[TSR_TP].reduced;
  for (int i = 0; i < x->count; i++) x->sizes[i].progress = UNRESOLVED;
  for (int i = 0; i < x->count; i++) {
    size *s = &x->sizes[i];
    if (r->splits.fixed_blocks && s->in_times) keep(x, i, r->splits.fixed_blocks);
    for (int k = 0; k < r->kept_count; k++)
      if (!strcmp(r->kept[k].name, s->name)) keep(x, i, r->kept[k].why);
    if (s->kept && s->equated) s->from = NULL;
  }
}

/* Keeps what a check names that no longer holds; whether there was one. */
static bool keep_checked(reducer *x) {
  bool failed = false;
  for (int i = 0; i < x->file->checks_count; i++) {
    const tsr_expr *that = x->file->checks[i].that;
    bool before, holds = false;
    if (!tsr_expr_true(that, &x->full, &before, x->ignored) || !before) continue;
    if (tsr_expr_true(that, &x->reduced, &holds, x->ignored) && holds) continue;
    for (int k = 0; k < x->count; k++) {
      size *s = &x->sizes[k];
      if (s->kept || !(s->in_shape || s->in_times) || !depends(x, that, k, 0)) continue;
      failed = true;
      keep(x, k, tsr_arena_printf(x->arena, "checks: %s", that->text));
    }
  }
  return failed;
}

static void resolve_all(reducer *x) {
  do {
    start(x);
    for (int i = 0; i < x->count; i++) resolve(x, i);
  } while (keep_checked(x));
}

/* ---- results ---- */

/* Whether the model's map has a size under this name, in maps of maps where it has dots. */
static bool is_key(const tsr_yaml *map, const char *name) {
  size_t length = strcspn(name, ".");
  for (int i = 0; map && map->kind == TSR_YAML_MAP && i < map->count; i++)
    if (strlen(map->keys[i]->text) == length && !strncmp(map->keys[i]->text, name, length))
      return !name[length] || is_key(map->items[i], name + length + 1);
  return false;
}

static const char *key_of(const reducer *x, const size *s) {
  if (!s->decl) return NULL;
  for (int i = 1; i < s->decl->names_count; i++)
    if (is_key(x->request->config->model.map, s->decl->names[i])) return s->decl->names[i];
  return s->decl->names[0];
}

static void add_row(reducer *x, tsr_reduced_sizes *out, const size *s) {
  const tsr_name *full = entry(&x->full, s->name), *reduced = entry(&x->reduced, s->name);
  bool sequence = !s->decl;
  bool hides = s->in_window && full && full->value.number > 0;
  if (!full || (s->from && !s->equated) || !(s->in_shape || s->in_times || hides)) return;
  tsr_reduced_size *row = &out->rows[out->count++];
  *row = (tsr_reduced_size){.name = sequence ? "sequence_length" : s->name, .why = s->why};
  row->full = tsr_eval_text(x->arena, &full->value);
  row->reduced = tsr_eval_text(x->arena, &reduced->value);
  row->key = key_of(x, s);
  row->location = full->location;
  row->shrinks = strcmp(row->full, row->reduced) != 0;
  if (!row->why) row->why = "";
  if (s->kept) row->why = tsr_arena_printf(x->arena, "kept: %s", s->kept);
}

bool tsr_reduced_sizes_make(
    tsr_arena *arena, const tsr_reduced_sizes_request *request, tsr_reduced_sizes *ret,
    tsr_diags *diags) {
  reducer x = {.arena = arena, .request = request, .ignored = tsr_diags_new(arena)};
  tsr_model_source source;
  tsr_graph_file *file;
  *ret = (tsr_reduced_sizes){0};
  if (!tsr_model_source_read(arena, request->config, request->full.graphs_folder, &source, diags) ||
      !tsr_graph_file_read(arena, source.root, &file, diags))
    return false;
  x.file = file;
  x.full.arena = arena;
  if (!tsr_sizes_read(&x.full, file, &source, &request->full, diags)) return false;
  x.uses = tsr_size_uses_find(arena, file, &request->splits);
  find_sizes(&x);
  find_equations(&x);
  find_roles(&x);
  resolve_all(&x);
  ret->rows = tsr_arena_array(arena, tsr_reduced_size, x.count);
  for (int i = 0; i < x.count; i++) add_row(&x, ret, &x.sizes[i]);
  ret->sequence = request->model->sequence ? tsr_sizes_get(&x.reduced, "sequence") : 0;
  ret->literal_tensors = x.uses.literal_tensors;
  return true;
}
