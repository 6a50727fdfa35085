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
  return strcmp(name, "moe") ? NULL : "mixture-of-experts models (op moe)";
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

/* Tokens and labels can only be looked up or be targets. */
static bool check_types(const tsr_call_builder *b, tsr_op op) {
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
  if (!check_inputs(&b, c) || !check_types(&b, c->op) || !name_attrs(&b, c, &named)) return false;
  return c->add ? c->add(&b) : tsr_call_add_op(&b, c->op);
}
