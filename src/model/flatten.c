// SPDX-License-Identifier: Apache-2.0
/* requires: a graph file and all sizes. produces: its calls written out one after the other,
 * repeats and blocks copied, names resolved, attributes evaluated, parameters made. */
#include "model/build.h"
#include <math.h>
#include <string.h>

enum { WORK_MAX = 200000, BLOCK_DEPTH_MAX = 16 };

typedef struct {
  const char *name;
  int value;     /* flat; -1: an error stands in its way */
  bool fixed;    /* inputs and parameters: no result may take the name */
  bool left_out; /* by its `if` */
} binding;

typedef struct {
  const char *name;
  int count;
} used_name;

typedef struct {
  tsr_flat *flat;
  binding *bindings;
  int bindings_count, bindings_capacity;
  int visible_from; /* a block sees its own names only */
  used_name *used;
  int used_count, used_capacity;
  int used_from; /* names are unique within one prefix */
  const char *prefix;
  int work, block_depth;
  int repeat, repeats; /* the outermost repetition that is expanded, and how many there were */
  tsr_name times;      /* how often it repeats, where that is a size that the user gave */
} expander;

static bool expand_body(expander *x, const tsr_body *body);

static binding *find_binding(const expander *x, const char *name) {
  for (int i = x->bindings_count; i-- > x->visible_from;)
    if (!strcmp(x->bindings[i].name, name)) return &x->bindings[i];
  return NULL;
}

static void push_binding(expander *x, binding b) {
  tsr_arena_grow(
      x->flat->scratch, (void **)&x->bindings, sizeof b, x->bindings_count, &x->bindings_capacity);
  x->bindings[x->bindings_count++] = b;
}

static int add_value(tsr_flat *f, tsr_flat_kind kind, int index, int output) {
  tsr_arena_grow(
      f->scratch, (void **)&f->values, sizeof *f->values, f->values_count, &f->values_capacity);
  f->values[f->values_count] =
      (tsr_flat_value){.kind = kind, .index = index, .output = output, .value = -1};
  return f->values_count++;
}

/* prefix + base, or prefix + base_2 and so on if the base was used before. */
static const char *unique_name(expander *x, const char *base) {
  tsr_arena *arena = x->flat->arena;
  for (int i = x->used_from; i < x->used_count; i++) {
    if (strcmp(x->used[i].name, base)) continue;
    return unique_name(x, tsr_arena_printf(arena, "%s_%d", base, ++x->used[i].count));
  }
  tsr_arena_grow(
      x->flat->scratch, (void **)&x->used, sizeof *x->used, x->used_count, &x->used_capacity);
  x->used[x->used_count++] = (used_name){base, 1};
  return tsr_arena_printf(arena, "%s%s", x->prefix, base);
}

static bool count_work(expander *x, tsr_location location) {
  if (++x->work < WORK_MAX) return true;
  if (x->work > WORK_MAX) return false;
  if (x->times.given)
    return tsr_diag_error(
        x->flat->diags, x->times.location,
        "%s %.0f makes the graph one of more than %d calls and repetitions", x->times.name,
        x->times.value.number, WORK_MAX);
  return tsr_diag_error(
      x->flat->diags, location, "the graph has more than %d calls and repetitions", WORK_MAX);
}

static bool push_param(expander *x, tsr_param_decl *d) {
  tsr_flat *f = x->flat;
  bool wanted = true, ok = true;
  if (d->condition) ok = tsr_expr_true(d->condition, f->scope, &wanted, f->diags);
  binding b = {.name = d->name, .value = -1, .fixed = true, .left_out = ok && !wanted};
  if (ok && wanted) {
    tsr_arena_grow(
        f->scratch, (void **)&f->params, sizeof *f->params, f->params_count, &f->params_capacity);
    tsr_flat_param *p = &f->params[f->params_count];
    p->decl = d;
    ok = tsr_param_make(
        f->scope, d, x->prefix, f->options->units.tp, f->uneven, &p->param, f->diags);
    if (ok) b.value = add_value(f, TSR_FLAT_PARAM, f->params_count++, 0);
  }
  binding *before = find_binding(x, d->name);
  if (before) ok = tsr_diag_error(f->diags, d->location, "the name '%s' is already taken", d->name);
  push_binding(x, b);
  return ok;
}

static bool push_params(expander *x, const tsr_param_decls *params) {
  bool ok = true;
  for (int i = 0; i < params->count; i++) ok &= push_param(x, &params->items[i]);
  return ok;
}

static bool push_inputs(expander *x) {
  tsr_graph_file *file = x->flat->file;
  bool ok = true;
  for (int i = 0; i < file->inputs_count; i++) {
    tsr_input_decl *d = &file->inputs[i];
    if (find_binding(x, d->name))
      ok = tsr_diag_error(x->flat->diags, d->location, "the name '%s' is already taken", d->name);
    push_binding(
        x, (binding){
               .name = d->name, .value = add_value(x->flat, TSR_FLAT_INPUT, i, 0), .fixed = true});
  }
  return ok;
}

static bool read_name(const expander *x, const char *name, tsr_location location, int *ret_value) {
  const binding *b = find_binding(x, name);
  *ret_value = b ? b->value : -1;
  if (b && !b->left_out) return b->value >= 0;
  if (b)
    return tsr_diag_error(
        x->flat->diags, location, "parameter '%s' is left out here by its 'if'", name);
  int count = x->bindings_count - x->visible_from;
  const char **names = tsr_arena_array(x->flat->arena, const char *, count + 1);
  for (int i = 0; i < count; i++) names[i] = x->bindings[x->visible_from + i].name;
  tsr_diag_error(x->flat->diags, location, "'%s' is no input, parameter or earlier result", name);
  if (tsr_scope_find(x->flat->scope, name))
    tsr_diag_hint(
        x->flat->diags, "it is a size; as an attribute of the op it needs the attribute's name");
  else tsr_diag_nearest(x->flat->diags, name, names, count);
  return false;
}

static bool read_list(expander *x, const tsr_eval *v, const tsr_expr *e, tsr_call_attr *a) {
  double elements = 1;
  const char *what = a->name ? tsr_arena_printf(x->flat->arena, "'%s'", a->name) : "the list";
  if (v->count < 1 || v->count > TSR_DIMS_MAX)
    return tsr_diag_error(
        x->flat->diags, e->location, "%s must have 1 to %d items, not %d", what, TSR_DIMS_MAX,
        v->count);
  if (v->words)
    return tsr_diag_error(
        x->flat->diags, e->location, "%s must be whole numbers above 0, not '%s'", what,
        tsr_eval_text(x->flat->arena, v));
  for (int i = 0; i < v->count; i++) {
    elements *= fabs(v->list[i]);
    if (v->list[i] != floor(v->list[i]) || v->list[i] < 1 || elements > 1e15) {
      tsr_diag_error(
          x->flat->diags, e->kind == TSR_EXPR_LIST ? e->args[i]->location : e->location,
          "%s must be whole numbers above 0, not %.15g", what, v->list[i]);
      tsr_diag_hint(
          x->flat->diags, "batch is %lld here, and sequence %lld",
          (long long)x->flat->options->batch, (long long)x->flat->options->sequence);
      return false;
    }
    a->list[i] = (int64_t)v->list[i];
  }
  a->list_count = v->count;
  tsr_expr_dims(e, TSR_DIMS_MAX, a->list_names);
  return true;
}

static bool read_attr(
    expander *x, const char *name, tsr_location location, const tsr_expr *e, tsr_call_attr *a) {
  *a = (tsr_call_attr){.name = name, .location = location};
  if (!name) name = "an attribute";
  static const double none;
  tsr_eval v;
  if (!tsr_expr_eval(e, x->flat->scope, &v, x->flat->diags)) return false;
  if (v.kind == TSR_EVAL_LIST && tsr_attr_is_numbers(name))
    return a->numbers = (tsr_number_list){v.count, v.count ? v.list : &none}, true;
  if (v.kind == TSR_EVAL_LIST) return read_list(x, &v, e, a);
  if (v.kind == TSR_EVAL_WORD) a->word = v.word;
  a->value = v.number;
  if (fabs(v.number) < 9e15) return true;
  return tsr_diag_error(
      x->flat->diags, e->location, "'%s' is %.15g, which is too large", name, v.number);
}

static bool
read_input(expander *x, tsr_statement *s, const tsr_expr *e, const char *result, int *ret_value);
static bool expand_block(
    expander *x, tsr_statement *s, const tsr_expr *e, const tsr_expr *times, const char *as,
    int *ret_value);

static bool is_attr(const tsr_expr *e, int argument) {
  return e->keys[argument] || !tsr_expr_is_operand(e->args[argument]);
}

static bool read_arguments(
    expander *x, tsr_statement *s, const tsr_expr *e, const char *result, tsr_call *call) {
  bool ok = true;
  int attrs = 0;
  for (int i = 0; i < e->count; i++) attrs += is_attr(e, i);
  call->attrs = tsr_arena_array(x->flat->scratch, tsr_call_attr, attrs);
  for (int i = 0; i < e->count; i++) {
    if (is_attr(e, i)) {
      tsr_location location = e->keys[i] ? e->key_places[i] : e->args[i]->location;
      tsr_call_attr *a = &call->attrs[call->attrs_count++];
      if (e->words[i])
        *a = (tsr_call_attr){.name = e->keys[i], .location = location, .word = e->args[i]->name};
      else ok &= read_attr(x, e->keys[i], location, e->args[i], a);
    } else {
      int k = call->inputs_count++;
      call->input_places[k] = e->args[i]->location;
      ok &= read_input(x, s, e->args[i], result, &call->inputs[k]);
    }
  }
  return ok;
}

/* The probability of a dropout; -1: it is another call, or a wrong one. */
static double dropout_of(const tsr_call *call) {
  if (strcmp(call->op, "dropout") || call->inputs_count != 1) return -1;
  const char *name = call->attrs_count == 1 ? call->attrs[0].name : "";
  if (call->attrs_count != 1 || (name && strcmp(name, "p")) || call->attrs[0].word) return -1;
  double p = call->attrs[0].value;
  return p >= 0 && p < 1 ? p : -1;
}

static tsr_block *find_block(const expander *x, const char *name) {
  for (int i = 0; i < x->flat->file->blocks_count; i++)
    if (!strcmp(x->flat->file->blocks[i].name, name)) return &x->flat->file->blocks[i];
  return NULL;
}

static bool expand_call(
    expander *x, tsr_statement *s, const tsr_expr *e, const char *result, int outputs,
    int *ret_values) {
  tsr_flat *f = x->flat;
  for (int i = 0; i < outputs; i++) ret_values[i] = -1;
  if (!count_work(x, e->location)) return false;
  tsr_call call = {.op = e->name, .op_place = e->name_place, .location = e->location};
  if (!read_arguments(x, s, e, result, &call)) return false;
  double dropout = outputs == 1 ? dropout_of(&call) : -1;
  if (dropout == 0) return ret_values[0] = call.inputs[0], true;
  call.result = unique_name(x, result);
  tsr_arena_grow(
      f->scratch, (void **)&f->calls, sizeof *f->calls, f->calls_count, &f->calls_capacity);
  tsr_flat_call *c = &f->calls[f->calls_count];
  *c = (tsr_flat_call){.statement = s, .call = call, .outputs_count = outputs, .block = x->repeat};
  c->prefix = x->prefix;
  /* A dropout outside training is a call all the same, so that the graphs of a model have the same
   * names, and their parameters in the same order. */
  c->is_idle = dropout > 0 && !f->options->training;
  for (int i = 0; i < outputs; i++) ret_values[i] = add_value(f, TSR_FLAT_CALL, f->calls_count, i);
  c->outputs = ret_values[0];
  f->calls_count++;
  return true;
}

static bool
read_input(expander *x, tsr_statement *s, const tsr_expr *e, const char *result, int *ret_value) {
  if (e->kind == TSR_EXPR_NAME) return read_name(x, e->name, e->location, ret_value);
  const char *name = tsr_arena_printf(x->flat->arena, "%s.%s", result, e->name);
  if (find_block(x, e->name)) return expand_block(x, s, e, NULL, name, ret_value);
  return expand_call(x, s, e, name, 1, ret_value);
}

/* What a repetition changes and restores. */
typedef struct {
  int bindings_count, visible_from, used_from, scope_count;
  const char *prefix;
  int repeat;
} frame;

static frame enter(expander *x, const char *as, int64_t index) {
  tsr_flat *f = x->flat;
  frame saved = {x->bindings_count, x->visible_from, x->used_from,
                 f->scope->count,   x->prefix,       x->repeat};
  if (index >= 0 && x->repeat < 0) x->repeat = x->repeats++;
  if (index >= 0) {
    x->prefix = tsr_arena_printf(f->arena, "%s%s.%lld.", saved.prefix, as, (long long)index);
    tsr_scope_push_number(f->scope, as, (double)index);
  } else {
    x->prefix = tsr_arena_printf(f->arena, "%s%s.", saved.prefix, as);
  }
  x->used_from = x->used_count;
  return saved;
}

static void leave(expander *x, const frame *saved) {
  x->bindings_count = saved->bindings_count;
  x->visible_from = saved->visible_from;
  x->used_count = x->used_from;
  x->used_from = saved->used_from;
  x->prefix = saved->prefix;
  x->repeat = saved->repeat;
  x->flat->scope->count = saved->scope_count;
}

/* The names of parameters must stay unique, so no two repeats of one scope share theirs. */
static bool claim_prefix(expander *x, const char *as, tsr_location location) {
  for (int i = x->used_from; i < x->used_count; i++)
    if (!strcmp(x->used[i].name, as)) {
      tsr_diag_error(x->flat->diags, location, "the name '%s' is already taken", as);
      tsr_diag_hint(x->flat->diags, "'as' names what is repeated: give it another name");
      return false;
    }
  unique_name(x, as);
  return true;
}

static bool expand_once(expander *x, const tsr_block *b, int *values, int *ret_value) {
  x->visible_from = x->bindings_count;
  for (int i = 0; i < b->inputs_count; i++)
    push_binding(x, (binding){.name = b->inputs[i], .value = values[i]});
  bool ok = push_params(x, &b->params);
  ok = expand_body(x, &b->body) && ok;
  return read_name(x, b->result, b->result_place, ret_value) && ok;
}

/* The first input goes round: each repetition takes the result of the one before. */
static bool expand_block(
    expander *x, tsr_statement *s, const tsr_expr *e, const tsr_expr *times, const char *as,
    int *ret_value) {
  const tsr_block *b = find_block(x, e->name);
  tsr_call call = {.op = e->name};
  int64_t count = 1;
  *ret_value = -1;
  if (!read_arguments(x, s, e, as, &call)) return false;
  if (call.attrs_count)
    return tsr_diag_error(
        x->flat->diags, call.attrs[0].location, "block '%s' has no attribute '%s'", b->name,
        call.attrs[0].name ? call.attrs[0].name : "1");
  if (call.inputs_count != b->inputs_count || !b->inputs_count)
    return tsr_diag_error(
        x->flat->diags, e->location, "block '%s' takes %d inputs, not %d", b->name, b->inputs_count,
        call.inputs_count);
  if (times && !tsr_expr_whole(times, x->flat->scope, "depth", 1, &count, x->flat->diags))
    return false;
  if (x->block_depth == BLOCK_DEPTH_MAX)
    return tsr_diag_error(
        x->flat->diags, e->location, "blocks call each other more than %d deep", BLOCK_DEPTH_MAX);
  if (!claim_prefix(x, as, s->location)) return false;
  x->block_depth++;
  bool ok = true;
  for (int64_t i = 0; ok && i < count; i++) {
    if (!(ok = count_work(x, e->location))) break;
    frame saved = enter(x, as, times ? i : -1);
    ok = expand_once(x, b, call.inputs, ret_value);
    call.inputs[0] = *ret_value;
    leave(x, &saved);
  }
  x->block_depth--;
  return ok;
}

static bool bind_results(expander *x, const tsr_statement *s, const int *values) {
  bool ok = true;
  for (int i = 0; i < s->results_count; i++) {
    binding *b = find_binding(x, s->results[i]);
    if (b && b->fixed)
      ok = tsr_diag_error(
          x->flat->diags, s->result_places[i], "'%s' is an input or a parameter, not a result",
          s->results[i]);
    else if (b) b->value = values[i];
    else push_binding(x, (binding){.name = s->results[i], .value = values[i]});
  }
  return ok;
}

static bool expand_result(expander *x, tsr_statement *s) {
  int values[TSR_CALL_INPUTS_MAX];
  for (int i = 0; i < TSR_CALL_INPUTS_MAX; i++) values[i] = -1;
  bool ok;
  if (s->call->kind == TSR_EXPR_NAME)
    ok = read_name(x, s->call->name, s->call->location, &values[0]);
  else if (find_block(x, s->call->name))
    ok = expand_block(x, s, s->call, s->times, s->as, &values[0]);
  else ok = expand_call(x, s, s->call, s->results[0], s->results_count, values);
  return bind_results(x, s, values) && ok;
}

static void name_times(expander *x, const tsr_expr *times) {
  const tsr_name *name =
      times->kind == TSR_EXPR_NAME ? tsr_scope_find(x->flat->scope, times->name) : NULL;
  if (name && name->value.kind == TSR_EVAL_NUMBER) x->times = *name;
}

/* Results that are new inside a repetition end with it; those from outside continue to the next
 * one. */
static bool expand_repeat(expander *x, tsr_statement *s) {
  int64_t times;
  if (!tsr_expr_whole(s->times, x->flat->scope, "times", 0, &times, x->flat->diags) ||
      !claim_prefix(x, s->as, s->location))
    return false;
  bool ok = true, outermost = !x->times.given;
  if (outermost) name_times(x, s->times);
  if (times >= WORK_MAX) x->work = WORK_MAX - 1; /* it need not be counted */
  for (int64_t i = 0; ok && i < times; i++) {
    if (!count_work(x, s->location)) return false;
    frame saved = enter(x, s->as, i);
    ok = push_params(x, &s->params);
    ok = expand_body(x, &s->body) && ok;
    leave(x, &saved);
  }
  if (outermost) x->times.given = false;
  return ok;
}

static bool expand_statement(expander *x, tsr_statement *s) {
  bool holds = true;
  if (s->condition && !tsr_expr_true(s->condition, x->flat->scope, &holds, x->flat->diags))
    return false;
  if (s->kind == TSR_STATEMENT_GROUP) return expand_body(x, holds ? &s->body : &s->otherwise);
  if (!holds) return true;
  s->expanded = true;
  return s->kind == TSR_STATEMENT_REPEAT ? expand_repeat(x, s) : expand_result(x, s);
}

static bool expand_body(expander *x, const tsr_body *body) {
  bool ok = true;
  for (int i = 0; i < body->count; i++) ok &= expand_statement(x, &body->items[i]);
  return ok;
}

/* Without `outputs:` the results of the last statement are the outputs. */
static void default_outputs(tsr_flat *f) {
  const tsr_body *body = &f->file->body;
  const tsr_statement *last = &body->items[body->count - 1];
  f->outputs = tsr_arena_array(f->scratch, tsr_output_decl, last->results_count + 1);
  for (int i = 0; i < last->results_count; i++)
    f->outputs[f->outputs_count++] =
        (tsr_output_decl){last->results[i], last->results[i], last->result_places[i]};
}

static bool find_outputs(expander *x) {
  tsr_flat *f = x->flat;
  bool ok = true;
  if (f->file->outputs_count) {
    f->outputs = tsr_arena_array(f->scratch, tsr_output_decl, f->file->outputs_count);
    for (int i = 0; i < f->file->outputs_count; i++)
      if (f->options->loss || strcmp(f->file->outputs[i].name, "loss"))
        f->outputs[f->outputs_count++] = f->file->outputs[i];
  } else {
    default_outputs(f);
  }
  f->output_values = tsr_arena_array(f->scratch, int, f->outputs_count + 1);
  for (int i = 0; i < f->outputs_count; i++)
    ok &= read_name(x, f->outputs[i].value, f->outputs[i].location, &f->output_values[i]);
  if (f->outputs_count) return ok;
  if (f->file->outputs_count) {
    tsr_diag_error(f->diags, f->file->outputs[0].location, "the graph has no output but its loss");
    tsr_diag_hint(f->diags, "text is generated from an output 'logits'");
    return false;
  }
  tsr_diag_error(f->diags, f->file->location, "the graph has no outputs");
  tsr_diag_hint(f->diags, "'outputs: [name, …]' lists the results");
  return false;
}

bool tsr_flat_expand(tsr_flat *flat) {
  expander x = {.flat = flat, .prefix = "", .repeat = -1};
  bool ok = push_inputs(&x);
  ok &= push_params(&x, &flat->file->params);
  ok = expand_body(&x, &flat->file->body) && ok;
  return ok && find_outputs(&x);
}
