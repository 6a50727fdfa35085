// SPDX-License-Identifier: Apache-2.0
/* Single YAML nodes of a graph file: the keys of a map, a name, an expression. */
#include "model/graph_file.h"
#include <string.h>

bool tsr_file_keys(
    const tsr_file_reader *r, const tsr_yaml *node, const char *what, int count,
    const char *const *keys) {
  if (node->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        r->diags, node->location, "%s must be a map, not %s", what,
        tsr_yaml_describe(r->arena, node));
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    bool known = false;
    for (int k = 0; k < count; k++) known |= !strcmp(node->keys[i]->text, keys[k]);
    if (known) continue;
    ok = tsr_diag_error(
        r->diags, node->keys[i]->location, "unknown key '%s' in %s", node->keys[i]->text, what);
    tsr_diag_nearest(r->diags, node->keys[i]->text, keys, count);
  }
  return ok;
}

bool tsr_file_name(const tsr_file_reader *r, const tsr_yaml *node, const char **ret_name) {
  *ret_name = node->text;
  if (node->kind == TSR_YAML_SCALAR && tsr_is_name(node->text)) return true;
  return tsr_diag_error(
      r->diags, node->location, "expected a name of letters, digits and '_', found %s",
      tsr_yaml_describe(r->arena, node));
}

bool tsr_file_expr(
    const tsr_file_reader *r, const tsr_yaml *map, const char *key, tsr_expr **ret_expr) {
  *ret_expr = NULL;
  const tsr_yaml *node = tsr_yaml_get(map, key);
  return !node || tsr_expr_parse(r->arena, node, false, ret_expr, r->diags);
}
