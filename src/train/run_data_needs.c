// SPDX-License-Identifier: Apache-2.0
/* What a graph takes from the data, by the names of its inputs. */
#include "graph/documents.h"
#include "graph/routing.h"
#include "train/run_data.h"
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return !a || b < a ? b : a; }

/* Tokens are looked up, targets and labels compared with logits: none may lie outside. */
static int64_t token_limit(const tsr_graph *g, int value) {
  int64_t limit = 0;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op == TSR_OP_CE_LOSS && n->inputs[2] == value)
      limit = least(limit, n->attr.ce_loss.valid);
    if (n->op != TSR_OP_EMBEDDING || n->inputs[0] != value) continue;
    const tsr_value *table = &g->values[n->inputs[1]];
    int64_t shape[TSR_DIMS_MAX] = {table->shape[0]};
    if (table->kind == TSR_VALUE_PARAM) tsr_param_real_shape(&g->params[table->param], shape);
    limit = least(limit, shape[0]);
  }
  return limit;
}

bool tsr_run_data_needs_of(const tsr_graph *g, tsr_run_data_needs *ret, tsr_diags *diags) {
  static const char *const names[] = {"tokens", "targets", "features",
                                      "labels", "values",  TSR_DOCUMENT_LABELS};
  *ret = (tsr_run_data_needs){0};
  bool ok = true;
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind != TSR_VALUE_INPUT || tsr_value_is_routing(v)) continue;
    if (tsr_value_is_document_positions(v)) continue;
    int64_t last = v->ndim > 1 ? v->shape[v->ndim - 1] : 1;
    if (!strcmp(v->name, "tokens") || !strcmp(v->name, "targets")) {
      ret->text = true;
      ret->sequence = last;
      if (token_limit(g, i)) ret->vocab = least(ret->vocab, token_limit(g, i));
    } else if (!strcmp(v->name, TSR_DOCUMENT_LABELS)) {
      ret->labels = true;
      ret->sequence = last;
      ret->classes = token_limit(g, i);
    } else if (!strcmp(v->name, "features")) {
      ret->features = last;
    } else if (!strcmp(v->name, "labels")) {
      ret->labels = true;
      ret->classes = token_limit(g, i);
    } else if (!strcmp(v->name, "values")) {
      ret->classes = last;
    } else {
      ok = tsr_diag_error(diags, v->location, "no data is called '%s'", v->name);
      tsr_diag_nearest(diags, v->name, names, 6);
    }
  }
  bool rows = ret->features > 0, wanted = ret->labels || ret->classes;
  if (ok && (ret->text == rows || (rows && !wanted)))
    return tsr_diag_error(
        diags, g->loss < 0 ? TSR_NOWHERE : g->values[g->loss].location,
        "a graph with a loss takes tokens with targets or document_labels, or features with labels "
        "or "
        "values");
  return ok;
}
