/* A graph file's calls: checked, then added as one node or a few. */
#include "graph/graph.h"
#include "graph/infer.h"
#include <math.h>
#include <string.h>

typedef struct {
  tsr_graph *g;
  const tsr_call *call;
  int *values, *count;
  tsr_diags *diags;
} builder;

static bool fail_infer(const builder *b, const char *bad) {
  return tsr_diag_error(b->diags, b->call->op_place, "%s: %s", b->call->op, bad);
}

/* Adds a node after its shapes have been checked; the outputs' first value, or -1. */
static int checked(
    const builder *b, tsr_op op, const char *name, int count, const int *inputs,
    const double *attr) {
  double defaults[TSR_ATTRS_MAX];
  tsr_op_defaults(op, defaults);
  tsr_node node = {.op = op, .inputs_count = count, .inputs = (int *)inputs};
  memcpy(node.attr, attr ? attr : defaults, sizeof node.attr);
  tsr_type types[TSR_OUTPUTS_MAX];
  const char *bad = tsr_infer(b->g, &node, types);
  if (bad) return fail_infer(b, bad) ? 0 : -1;
  return tsr_graph_add(b->g, op, TSR_FORWARD, name, b->call->place, count, inputs, node.attr);
}

static bool give(const builder *b, int value) {
  if (value < 0) return false;
  b->values[(*b->count)++] = value;
  return true;
}

static const tsr_call_attr *find_attr(const tsr_call *call, const char *name) {
  for (int i = 0; i < call->attrs_count; i++)
    if (!strcmp(call->attrs[i].name, name)) return &call->attrs[i];
  return NULL;
}

static double number(const tsr_call *call, const char *name, double otherwise) {
  const tsr_call_attr *a = find_attr(call, name);
  return a ? a->value : otherwise;
}

static bool is_one_of(const char *name, const char *const *names) {
  while (*names && strcmp(*names, name)) names++;
  return *names != NULL;
}

/* An axis is a word, a shape a list, all else a number; what counts or names a dimension is whole.
 */
static bool check_kind(const builder *b, const tsr_call_attr *a) {
  static const char *const words[] = {"axis", NULL}, *const lists[] = {"shape", NULL};
  static const char *const reals[] = {"factor",
                                      "p",
                                      "eps",
                                      "scale",
                                      "dropout",
                                      "theta",
                                      "scaling_factor",
                                      "low_freq_factor",
                                      "high_freq_factor",
                                      NULL};
  if (is_one_of(a->name, words)) return true; /* read_axis has the words */
  bool list = is_one_of(a->name, lists);
  if (list ? !a->list_count : a->word || a->list_count)
    return tsr_diag_error(
        b->diags, a->place, "%s: '%s' must be a %s", b->call->op, a->name,
        list ? "list of sizes" : "number");
  if (!strcmp(a->name, "eps") && a->value < 0)
    return tsr_diag_error(
        b->diags, a->place, "%s: 'eps' must not be negative, found %g", b->call->op, a->value);
  if (!strcmp(a->name, "theta") && !(a->value > 0))
    return tsr_diag_error(
        b->diags, a->place, "%s: 'theta' must be above 0, found %g", b->call->op, a->value);
  if (list || is_one_of(a->name, reals) || a->value == floor(a->value)) return true;
  return tsr_diag_error(
      b->diags, a->place, "%s: '%s' must be a whole number, not %g", b->call->op, a->name,
      a->value);
}

/* Every attribute's name is one of `names`, its value of the right kind, and those that `required`
 * marks are there. */
static bool
check_attrs(const builder *b, int count, const char *const *names, const bool *required) {
  bool ok = true;
  for (int i = 0; i < b->call->attrs_count; i++) {
    const tsr_call_attr *a = &b->call->attrs[i];
    bool known = false;
    for (int k = 0; k < count; k++) known |= !strcmp(a->name, names[k]);
    if (known) {
      ok &= check_kind(b, a);
      continue;
    }
    ok = tsr_diag_error(b->diags, a->place, "%s has no attribute '%s'", b->call->op, a->name);
    tsr_diag_nearest(b->diags, a->name, names, count);
  }
  for (int k = 0; ok && k < count; k++) /* one of another name may be meant */
    if (required[k] && !find_attr(b->call, names[k]))
      ok = tsr_diag_error(
          b->diags, b->call->op_place, "%s needs the attribute '%s'", b->call->op, names[k]);
  return ok;
}

static bool read_axis(const builder *b, const tsr_call_attr *a, double *ret_axis) {
  static const char *const names[] = {"dp", "pp", "ep", "cp", "tp"};
  for (int i = 0; a->word && i < TSR_AXES; i++)
    if (!strcmp(a->word, names[i])) return *ret_axis = i, true;
  if (!a->word)
    return tsr_diag_error(b->diags, a->place, "%s: 'axis' must be an axis's name", b->call->op);
  tsr_diag_error(b->diags, a->place, "'%s' is not an axis", a->word);
  tsr_diag_nearest(b->diags, a->word, names, TSR_AXES);
  return false;
}

/* The op's attributes from the call's, with defaults. */
static bool read_attrs(const builder *b, tsr_op op, double attr[TSR_ATTRS_MAX]) {
  const char *names[TSR_ATTRS_MAX];
  bool required[TSR_ATTRS_MAX];
  int count = tsr_op_attrs(op, names, attr, required);
  if (!check_attrs(b, count, names, required)) return false;
  bool ok = true;
  for (int i = 0; i < count; i++) {
    const tsr_call_attr *a = find_attr(b->call, names[i]);
    if (!a) continue;
    if (!strcmp(names[i], "axis")) {
      ok &= read_axis(b, a, &attr[i]);
    } else {
      attr[i] = a->value;
      int64_t ndim = b->g->values[b->call->inputs[0]].ndim;
      static const char *const dims[] = {"dim", "dim0", "dim1", "from", NULL};
      if (is_one_of(names[i], dims) && attr[i] < 0 && attr[i] >= -(double)ndim)
        attr[i] += (double)ndim;
    }
  }
  return ok;
}

static bool call_op(const builder *b, tsr_op op) {
  double attr[TSR_ATTRS_MAX] = {0};
  if (!read_attrs(b, op, attr)) return false;
  int p = op == TSR_OP_DROPOUT ? 0 : op == TSR_OP_ATTENTION ? 3 : -1;
  if (p >= 0 && !(attr[p] >= 0 && attr[p] < 1))
    return tsr_diag_error(
        b->diags, b->call->op_place, "%s: %s %g is not in [0, 1)", b->call->op, p ? "dropout" : "p",
        attr[p]);
  return give(b, checked(b, op, b->call->result, b->call->inputs_count, b->call->inputs, attr));
}

static bool call_linear(const builder *b) {
  const tsr_call *c = b->call;
  if (!check_attrs(b, 0, NULL, NULL)) return false;
  if (c->inputs_count == 2)
    return give(b, checked(b, TSR_OP_LINEAR, c->result, 2, c->inputs, NULL));
  const char *name = tsr_arena_printf(b->g->arena, "%s.product", c->result);
  int y = checked(b, TSR_OP_LINEAR, name, 2, c->inputs, NULL);
  if (y < 0) return false;
  return give(b, checked(b, TSR_OP_ADD, c->result, 2, (int[]){y, c->inputs[2]}, NULL));
}

/* The cos/sin table for these settings: made once, shared by all layers. */
static int rope_table(const builder *b, int64_t positions, const tsr_init *init) {
  tsr_graph *g = b->g;
  int64_t shape[] = {positions, (int64_t)init->a / 2, 2};
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind == TSR_VALUE_CONST && !memcmp(&v->init, init, sizeof *init) &&
        v->shape[0] == positions)
      return i;
  }
  const char *name = tsr_arena_printf(g->arena, "rope_table.%d", g->values_count);
  return tsr_graph_const(g, name, init, 3, shape, b->call->place);
}

static bool call_rope(const builder *b) {
  static const char *const names[] = {"head_dim",           "theta",
                                      "scaling_factor",     "low_freq_factor",
                                      "high_freq_factor",   "original_context_length",
                                      "max_sequence_length"};
  static const bool required[] = {true, false, false, false, false, false, false};
  const tsr_call *c = b->call;
  if (!check_attrs(b, 7, names, required)) return false;
  int64_t head_dim = (int64_t)number(c, "head_dim", 0);
  const tsr_value *x = &b->g->values[c->inputs[0]];
  if (head_dim < 2 || head_dim % 2)
    return tsr_diag_error(
        b->diags, c->op_place, "rope: head_dim %lld must be even", (long long)head_dim);
  if (x->ndim != 3) return fail_infer(b, "its input must be (batch, sequence, heads * head_dim)");
  tsr_init init;
  memset(&init, 0, sizeof init); /* compared bytewise */
  init.kind = TSR_INIT_ROPE;
  init.a = (double)head_dim;
  init.b = number(c, "theta", 10000);
  init.scaling[0] = number(c, "scaling_factor", 0);
  init.scaling[1] = number(c, "low_freq_factor", 1);
  init.scaling[2] = number(c, "high_freq_factor", 4);
  init.scaling[3] = number(c, "original_context_length", 0);
  if (!init.scaling[3]) init.scaling[0] = 0;
  int table = rope_table(b, x->shape[1], &init);
  double attr[TSR_ATTRS_MAX] = {(double)head_dim, 1};
  return give(b, checked(b, TSR_OP_ROPE, c->result, 2, (int[]){c->inputs[0], table}, attr));
}

static bool call_split(const builder *b) {
  static const char *const names[] = {"sections", "dim"};
  static const bool required[] = {true, false};
  const tsr_call *c = b->call;
  if (!check_attrs(b, 2, names, required)) return false;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int sections = (int)number(c, "sections", 0), dim = (int)number(c, "dim", -1);
  if (dim < 0) dim += x->ndim;
  if (sections < 1 || sections > TSR_CALL_INPUTS_MAX)
    return tsr_diag_error(
        b->diags, c->op_place, "split: %d sections, not 1 to %d", sections, TSR_CALL_INPUTS_MAX);
  if (dim < 0 || dim >= x->ndim || x->shape[dim] % sections)
    return tsr_diag_error(
        b->diags, c->op_place, "split: %d sections do not divide dimension %d of '%s' %s", sections,
        dim, x->name, tsr_shape_text(x->ndim, x->shape));
  int64_t size = x->shape[dim] / sections;
  for (int i = 0; i < sections; i++) {
    double attr[TSR_ATTRS_MAX] = {dim, (double)(i * size), (double)((i + 1) * size)};
    const char *name = tsr_arena_printf(b->g->arena, "%s.%d", c->result, i);
    if (!give(b, checked(b, TSR_OP_SLICE, name, 1, c->inputs, attr))) return false;
  }
  return true;
}

static bool call_cross_entropy(const builder *b) {
  static const char *const names[] = {"valid"};
  static const bool required[] = {false};
  const tsr_call *c = b->call;
  if (!check_attrs(b, 1, names, required)) return false;
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t vocabulary = x->shape[x->ndim - 1];
  double attr[TSR_ATTRS_MAX] = {number(c, "valid", (double)vocabulary)};
  if (attr[0] < 1 || attr[0] > (double)vocabulary)
    return tsr_diag_error(
        b->diags, c->op_place,
        "cross_entropy: valid %g is not between 1 and the %lld logits of '%s'", attr[0],
        (long long)vocabulary, x->name);
  const char *name = tsr_arena_printf(b->g->arena, "%s.stats", c->result);
  int stats = checked(b, TSR_OP_CE_STATS, name, 2, c->inputs, attr);
  if (stats < 0) return false;
  int inputs[] = {c->inputs[0], stats, c->inputs[1], tsr_graph_hyper(b->g)};
  return give(b, checked(b, TSR_OP_CE_LOSS, c->result, 4, inputs, attr));
}

static bool call_mse(const builder *b) {
  if (!check_attrs(b, 0, NULL, NULL)) return false;
  return give(b, checked(b, TSR_OP_SQUARED_ERROR, b->call->result, 2, b->call->inputs, NULL));
}

static bool call_reshape(const builder *b) {
  static const char *const names[] = {"shape"};
  static const bool required[] = {true};
  const tsr_call *c = b->call;
  if (!check_attrs(b, 1, names, required)) return false;
  const tsr_call_attr *a = find_attr(c, "shape");
  const tsr_value *x = &b->g->values[c->inputs[0]];
  int64_t have = tsr_value_elements(x), want = 1;
  for (int i = 0; i < a->list_count; i++) {
    if (a->list[i] < 1 || a->list[i] > have)
      return tsr_diag_error(
          b->diags, a->place, "reshape: a size of %lld does not fit '%s' %s", (long long)a->list[i],
          x->name, tsr_shape_text(x->ndim, x->shape));
    want *= a->list[i];
  }
  if (want != have)
    return tsr_diag_error(
        b->diags, a->place, "reshape: '%s' %s has %lld elements, %s has %lld", x->name,
        tsr_shape_text(x->ndim, x->shape), (long long)have, tsr_shape_text(a->list_count, a->list),
        (long long)want);
  return give(
      b, tsr_graph_add_shaped(
             b->g, TSR_OP_RESHAPE, TSR_FORWARD, c->result, c->place, 1, c->inputs, NULL,
             a->list_count, a->list));
}

typedef struct {
  const char *name;
  int inputs_min, inputs_max;
  tsr_op op;
  bool (*form)(const builder *b); /* NULL: the op as it is */
} callable;

static const callable forms[] = {
    {"linear", 2, 3, TSR_OP_LINEAR, call_linear},
    {"rope", 1, 1, TSR_OP_ROPE, call_rope},
    {"split", 1, 1, TSR_OP_SLICE, call_split},
    {"cross_entropy", 2, 2, TSR_OP_CE_LOSS, call_cross_entropy},
    {"mse", 2, 2, TSR_OP_SQUARED_ERROR, call_mse},
    {"reshape", 1, 1, TSR_OP_RESHAPE, call_reshape},
    {"allreduce", 1, 1, TSR_OP_ALL_REDUCE, NULL}, /* S0's spelling */
    {"gather", 1, 1, TSR_OP_ALL_GATHER, NULL},
};
enum { FORMS = sizeof forms / sizeof *forms };

static const callable plain[] = {
#define OP(id, name, min, max, ...) {name, min, max, TSR_OP_##id, NULL},
#include "graph/ops.def"
#undef OP
};

static bool is_internal(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_INTERNAL; }

static const callable *find_callable(const char *name) {
  for (int i = 0; i < FORMS; i++)
    if (!strcmp(forms[i].name, name)) return &forms[i];
  for (int i = 0; i < TSR_OPS; i++)
    if (!is_internal((tsr_op)i) && !strcmp(plain[i].name, name)) return &plain[i];
  return NULL;
}

const char *const *tsr_graph_call_names(int *ret_count) {
  static const char *names[FORMS + TSR_OPS + 1];
  int n = 0;
  for (int i = 0; i < FORMS; i++) names[n++] = forms[i].name;
  for (int i = 0; i < TSR_OPS; i++)
    if (!is_internal((tsr_op)i) && find_callable(plain[i].name) == &plain[i])
      names[n++] = plain[i].name;
  names[n] = NULL;
  *ret_count = n;
  return names;
}

static bool check_inputs(const builder *b, const callable *c) {
  const tsr_call *call = b->call;
  if (call->inputs_count >= c->inputs_min && call->inputs_count <= c->inputs_max) return true;
  char want[24];
  if (c->inputs_min == c->inputs_max) snprintf(want, sizeof want, "%d", c->inputs_min);
  else snprintf(want, sizeof want, "%d or %d", c->inputs_min, c->inputs_max);
  return tsr_diag_error(
      b->diags, call->op_place, "%s takes %s input%s, not %d", call->op, want,
      c->inputs_max > 1 ? "s" : "", call->inputs_count);
}

/* Tokens and labels can only be looked up or be targets. */
static bool check_types(const builder *b, tsr_op op) {
  bool ok = true;
  for (int i = 0; i < b->call->inputs_count; i++) {
    const tsr_value *v = &b->g->values[b->call->inputs[i]];
    bool want_tokens = (op == TSR_OP_EMBEDDING && i == 0) || (op == TSR_OP_CE_LOSS && i == 1);
    if ((v->dtype == TSR_I32) == want_tokens) continue;
    ok = tsr_diag_error(
        b->diags, b->call->input_places[i], "%s: '%s' holds %s, not %s", b->call->op, v->name,
        want_tokens ? "numbers" : "tokens", want_tokens ? "tokens" : "numbers");
  }
  return ok;
}

bool tsr_graph_call(
    tsr_graph *g, const tsr_call *call, int ret_values[TSR_CALL_INPUTS_MAX], int *ret_count,
    tsr_diags *diags) {
  *ret_count = 0;
  builder b = {.g = g, .call = call, .values = ret_values, .count = ret_count, .diags = diags};
  const callable *c = find_callable(call->op);
  if (!c) {
    int count;
    const char *const *names = tsr_graph_call_names(&count);
    tsr_diag_error(diags, call->op_place, "there is no op '%s'", call->op);
    tsr_diag_nearest(diags, call->op, names, count);
    return false;
  }
  if (!check_inputs(&b, c) || !check_types(&b, c->op)) return false;
  return c->form ? c->form(&b) : call_op(&b, c->op);
}
