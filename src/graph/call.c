// SPDX-License-Identifier: Apache-2.0
/* A graph file's calls: checked, then added as one node or a few. */
#include "graph/call_forms.h"
#include <assert.h>
#include <string.h>

static const tsr_call_form plain[] = {
#define OP(id, name, min, max, outputs, attrs, ...)                                                \
  {name, min, max, TSR_OP_##id, TSR_ATTRS_##attrs, NULL},
#include "graph/ops.def"
#undef OP
};

static bool is_internal(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_INTERNAL; }

static const tsr_call_form *find_form(const char *name) {
  for (int i = 0; i < tsr_call_forms_count; i++)
    if (!strcmp(tsr_call_forms[i].name, name)) return &tsr_call_forms[i];
  for (int i = 0; i < TSR_OPS; i++)
    if (!is_internal((tsr_op)i) && !strcmp(plain[i].name, name)) return &plain[i];
  return NULL;
}

const char *tsr_graph_refused_op(const char *name) {
  if (!strcmp(name, "moe")) return "a mixture of experts as one op (moe)";
  if (strcmp(name, "expert_choice")) return NULL;
  return "experts that choose tokens (expert_choice): a token's experts would depend on later ones";
}

const char *const *tsr_graph_call_names(int *ret_count) {
  enum { FORMS_MAX = 32 };
  static const char *names[FORMS_MAX + TSR_OPS + 1];
  int n = 0;
  assert(tsr_call_forms_count <= FORMS_MAX);
  for (int i = 0; i < tsr_call_forms_count; i++) names[n++] = tsr_call_forms[i].name;
  for (int i = 0; i < TSR_OPS; i++)
    if (!is_internal((tsr_op)i) && find_form(plain[i].name) == &plain[i])
      names[n++] = plain[i].name;
  names[n] = NULL;
  *ret_count = n;
  return names;
}

static bool check_inputs(const tsr_call_builder *b, const tsr_call_form *c) {
  const tsr_call *call = b->call;
  if (call->inputs_count >= c->inputs_min && call->inputs_count <= c->inputs_max) return true;
  char want[24];
  if (c->inputs_min == c->inputs_max) snprintf(want, sizeof want, "%d", c->inputs_min);
  else
    snprintf(
        want, sizeof want, c->inputs_max == c->inputs_min + 1 ? "%d or %d" : "%d to %d",
        c->inputs_min, c->inputs_max);
  return tsr_diag_error(
      b->diags, call->op_place, "%s takes %s input%s, not %d", call->op, want,
      c->inputs_max > 1 ? "s" : "", call->inputs_count);
}

/* What an input of whole numbers must be. */
typedef enum { WANTS_NUMBERS, WANTS_TOKENS, WANTS_CHOICES, WANTS_PLAN } wanted_input;

static wanted_input wanted_of(tsr_op op, int input) {
  static const struct {
    tsr_op op;
    int input;
    wanted_input wanted;
  } table[] = {{TSR_OP_EMBEDDING, 0, WANTS_TOKENS},       {TSR_OP_CE_LOSS, 1, WANTS_TOKENS},
               {TSR_OP_EXPERT_WEIGHTS, 1, WANTS_CHOICES}, {TSR_OP_EXPERT_PLAN, 0, WANTS_CHOICES},
               {TSR_OP_BALANCE_LOSS, 1, WANTS_CHOICES},   {TSR_OP_PERMUTE_EXPERTS, 1, WANTS_PLAN},
               {TSR_OP_EXPERT_LINEAR, 2, WANTS_PLAN},     {TSR_OP_COMBINE_EXPERTS, 2, WANTS_PLAN},
               {TSR_OP_EXPERT_ADD, 2, WANTS_PLAN}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].op == op && table[i].input == input) return table[i].wanted;
  return WANTS_NUMBERS;
}

/* What choose_experts makes indexes experts, and nothing else may. */
static wanted_input kind_of(const tsr_graph *g, const tsr_value *v) {
  if (v->dtype != TSR_I32) return WANTS_NUMBERS;
  if (v->kind != TSR_VALUE_NODE) return WANTS_TOKENS;
  return g->nodes[v->node].op == TSR_OP_EXPERT_PLAN ? WANTS_PLAN : WANTS_CHOICES;
}

/* Tokens and labels can only be looked up or be targets. */
static bool check_types(const tsr_call_builder *b, tsr_op op) {
  static const char *const names[] = {
      "numbers", "tokens", "choices of experts", "a plan of experts' rows"};
  bool ok = true;
  for (int i = 0; i < b->call->inputs_count; i++) {
    const tsr_value *v = &b->g->values[b->call->inputs[i]];
    wanted_input want = wanted_of(op, i), is = kind_of(b->g, v);
    if (is == want) continue;
    ok = tsr_diag_error(
        b->diags, b->call->input_places[i], "%s: '%s' holds %s, not %s", b->call->op, v->name,
        names[is], names[want]);
  }
  return ok;
}

/* The plan by which a value's rows of experts lie, or which it is. */
static int plan_of(const tsr_graph *g, int value) {
  const tsr_node *n = &g->nodes[g->values[value].node];
  if (n->op == TSR_OP_EXPERT_PLAN) return value;
  for (int i = n->inputs_count - 1; i >= 0; i--)
    if (tsr_routed_is_rows(g->values[n->inputs[i]].routed)) return plan_of(g, n->inputs[i]);
  return -1;
}

/* Rows of two plans lie in two orders. */
static bool check_one_plan(const tsr_call_builder *b) {
  int plan = -1;
  for (int i = 0; i < b->call->inputs_count; i++) {
    int input = b->call->inputs[i];
    if (!tsr_routed_is_rows(b->g->values[input].routed)) continue;
    int of = plan_of(b->g, input);
    if (plan < 0) plan = of;
    if (of != plan)
      return tsr_diag_error(
          b->diags, b->call->input_places[i], "%s: the rows of '%s' lie by the plan '%s', not '%s'",
          b->call->op, b->g->values[input].name, b->g->values[of].name, b->g->values[plan].name);
  }
  return true;
}

/* Rows of experts lie by expert: only what treats each row, and each of its elements, by itself may
 * read them. */
static bool check_routed(const tsr_call_builder *b, tsr_op op) {
  unsigned facts = tsr_op_facts(op);
  bool reads_rows =
      op == TSR_OP_EXPERT_LINEAR || op == TSR_OP_EXPERT_ADD || op == TSR_OP_COMBINE_EXPERTS;
  int routed = -1, other = -1;
  for (int i = 0; i < b->call->inputs_count; i++) {
    bool may = (reads_rows && i == 0) || wanted_of(op, i) == WANTS_PLAN;
    if (may) continue;
    if (tsr_routed_is_rows(b->g->values[b->call->inputs[i]].routed)) routed = i;
    else other = i;
  }
  bool maps = facts & (TSR_FACT_OVERWRITES | TSR_FACT_MAPS) && !(facts & TSR_FACT_RANDOM);
  if (routed < 0 || (maps && other < 0)) return check_one_plan(b);
  return tsr_diag_error(
      b->diags, b->call->input_places[routed],
      "%s: '%s' has rows of experts, which only elementwise ops of such rows, expert_linear and "
      "combine_experts read",
      b->call->op, b->g->values[b->call->inputs[routed]].name);
}

/* What goes by its position gets the name of the set's next attribute. */
static bool name_attrs(const tsr_call_builder *b, const tsr_call_form *c, tsr_call *call) {
  const tsr_attr_set *set = tsr_attr_set_of(c->attrs);
  for (int i = 0, next = 0; i < call->attrs_count; i++) {
    tsr_call_attr *a = &call->attrs[i];
    if (a->name) continue;
    while (next < set->count && set->fields[next].internal) next++;
    if (next == set->count)
      return tsr_diag_error(
          b->diags, a->location, "%s has no attribute for the number %g", call->op, a->value);
    const char *name = set->fields[next++].name;
    if (tsr_call_find_attr(call, name))
      return tsr_diag_error(
          b->diags, a->location, "%s: '%s' is given twice, by its position and by its name",
          call->op, name);
    a->name = name;
  }
  return true;
}

bool tsr_graph_call(
    tsr_graph *g, const tsr_call *call, int ret_values[TSR_CALL_INPUTS_MAX], int *ret_count,
    tsr_diags *diags) {
  *ret_count = 0;
  tsr_call named = *call;
  tsr_call_attr attrs[TSR_CALL_ATTRS_MAX];
  for (int i = 0; i < call->attrs_count; i++) attrs[i] = call->attrs[i];
  named.attrs = attrs;
  tsr_call_builder b = {
      .g = g, .call = &named, .values = ret_values, .count = ret_count, .diags = diags};
  const tsr_call_form *c = find_form(call->op);
  if (!c) {
    int count;
    const char *const *names = tsr_graph_call_names(&count);
    tsr_diag_error(diags, call->op_place, "there is no op '%s'", call->op);
    tsr_diag_nearest(diags, call->op, names, count);
    return false;
  }
  if (!check_inputs(&b, c) || !check_types(&b, c->op) || !check_routed(&b, c->op) ||
      !name_attrs(&b, c, &named))
    return false;
  return c->add ? c->add(&b) : tsr_call_add_op(&b, c->op);
}
