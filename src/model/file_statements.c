// SPDX-License-Identifier: Apache-2.0
/* requires: a `graph:` list. produces: its statements, with calls of known ops and blocks only. */
#include "model/graph_file.h"
#include <string.h>

static const tsr_block *find_block(const tsr_graph_file *file, const char *name) {
  for (int i = 0; i < file->blocks_count; i++)
    if (file->blocks[i].name && !strcmp(file->blocks[i].name, name)) return &file->blocks[i];
  return NULL;
}

static bool check_callee(const tsr_file_reader *r, const tsr_expr *e) {
  int count;
  const char *const *ops = tsr_graph_call_names(&count);
  for (int i = 0; i < count; i++)
    if (!strcmp(ops[i], e->name)) return true;
  if (find_block(r->file, e->name)) return true;
  const char **names = tsr_arena_array(r->arena, const char *, count + r->file->blocks_count);
  memcpy(names, ops, sizeof *ops * (size_t)count);
  for (int i = 0; i < r->file->blocks_count; i++) names[count++] = r->file->blocks[i].name;
  const char *refused = tsr_graph_refused_op(e->name);
  if (refused) {
    tsr_diag_error(r->diags, e->name_place, "unsupported feature: %s", refused);
    tsr_diag_hint(
        r->diags, "it is router, choose_experts, expert_plan, expert_linear and combine_experts");
    return false;
  }
  tsr_diag_error(r->diags, e->name_place, "there is no op '%s'", e->name);
  tsr_diag_nearest(r->diags, e->name, names, count);
  return false;
}

/* Inputs are names or calls; behind them stand attributes by position, then those with names. */
static bool check_call(const tsr_file_reader *r, const tsr_expr *e) {
  bool ok = check_callee(r, e), named = false;
  int inputs = 0, attrs = 0;
  for (int i = 0; i < e->count; i++) {
    const tsr_expr *a = e->args[i];
    if (e->keys[i]) {
      named = true;
      attrs++;
      for (int k = 0; k < i; k++)
        if (e->keys[k] && !strcmp(e->keys[k], e->keys[i]))
          ok = tsr_diag_error(r->diags, e->key_places[i], "'%s' is given twice", e->keys[i]);
      continue;
    }
    bool operand = tsr_expr_is_operand(a);
    operand ? inputs++ : attrs++;
    if (named || (operand && attrs))
      ok = tsr_diag_error(
          r->diags, a->location, "input '%s' stands after %s attribute", a->text,
          named ? "a named" : "an");
    else if (a->kind == TSR_EXPR_CALL) ok &= check_call(r, a);
    else if (!operand && !inputs)
      ok = tsr_diag_error(r->diags, a->location, "an input is a name or a call, not '%s'", a->text);
  }
  if (inputs > TSR_CALL_INPUTS_MAX)
    ok = tsr_diag_error(r->diags, e->location, "at most %d inputs", TSR_CALL_INPUTS_MAX);
  if (attrs > TSR_CALL_ATTRS_MAX)
    ok = tsr_diag_error(r->diags, e->location, "at most %d attributes", TSR_CALL_ATTRS_MAX);
  return ok;
}

/* "q, k, v": the names of the results. */
static bool read_results(const tsr_file_reader *r, const tsr_yaml *key, tsr_statement *s) {
  const char *at = key->text;
  for (;;) {
    at += strspn(at, " ");
    size_t length = strcspn(at, ", ");
    char *name = tsr_arena_strndup(r->arena, at, length);
    tsr_location location = tsr_scalar_place(key, (size_t)(at - key->text), length ? length : 1);
    if (!tsr_is_name(name) || strchr(name, '.'))
      return tsr_diag_error(
          r->diags, location, "a result's name has letters, digits and '_', not '%s'", name);
    if (s->results_count == TSR_CALL_INPUTS_MAX)
      return tsr_diag_error(r->diags, location, "at most %d results", TSR_CALL_INPUTS_MAX);
    s->results[s->results_count] = name;
    s->result_places[s->results_count++] = location;
    at += length;
    at += strspn(at, " ");
    if (!*at) return true;
    if (*at != ',') return tsr_diag_error(r->diags, key->location, "results are separated by ', '");
    at++;
  }
}

static bool read_as(const tsr_file_reader *r, const tsr_yaml *map, const char **ret_as) {
  const tsr_yaml *node = tsr_yaml_get(map, "as");
  if (!node) return true;
  if (!tsr_file_name(r, node, ret_as)) return false;
  if (!strchr(*ret_as, '.')) return true;
  return tsr_diag_error(r->diags, node->location, "'as' is a name without dots");
}

static bool read_depth(const tsr_file_reader *r, const tsr_yaml *node, tsr_statement *s) {
  const tsr_block *b = s->call->kind == TSR_EXPR_CALL ? find_block(r->file, s->call->name) : NULL;
  const tsr_yaml *depth = tsr_yaml_key(node, "depth"), *as = tsr_yaml_key(node, "as");
  if (b) {
    s->as = b->name;
    if (s->results_count > 1)
      return tsr_diag_error(
          r->diags, s->location, "block '%s' has one result, not %d", b->name, s->results_count);
    bool ok = tsr_file_expr(r, node, "depth", &s->times);
    return read_as(r, node, &s->as) && ok;
  }
  if (depth || as)
    return tsr_diag_error(
        r->diags, (depth ? depth : as)->location, "'%s' is for calls of blocks",
        depth ? "depth" : "as");
  return true;
}

static bool read_call(const tsr_file_reader *r, const tsr_yaml *node, tsr_statement *s) {
  static const char *const options[] = {"if", "depth", "as"};
  int found = -1;
  for (int i = 0; i < node->count; i++) {
    bool option = false;
    for (int k = 0; k < 3; k++) option |= !strcmp(node->keys[i]->text, options[k]);
    if (option) continue;
    if (found >= 0) {
      tsr_diag_error(
          r->diags, node->keys[i]->location, "a statement has one result, '%s', so what is '%s'?",
          node->keys[found]->text, node->keys[i]->text);
      tsr_diag_hint(r->diags, "beside it may stand: if, depth, as");
      return false;
    }
    found = i;
  }
  if (found < 0)
    return tsr_diag_error(r->diags, node->location, "a statement needs 'result: op(inputs)'");
  s->location = node->keys[found]->location;
  if (!read_results(r, node->keys[found], s) ||
      !tsr_expr_parse(r->arena, node->items[found], true, &s->call, r->diags))
    return false;
  if (s->call->kind != TSR_EXPR_CALL && s->call->kind != TSR_EXPR_NAME)
    return tsr_diag_error(
        r->diags, s->call->location, "expected a call such as add(x, y), found '%s'",
        s->call->text);
  if (s->call->kind == TSR_EXPR_CALL && !check_call(r, s->call)) return false;
  return read_depth(r, node, s);
}

static bool read_repeat(const tsr_file_reader *r, const tsr_yaml *node, tsr_statement *s) {
  static const char *const keys[] = {"repeat", "parameters", "graph", "if"};
  static const char *const repeat_keys[] = {"times", "as"};
  const tsr_yaml *repeat = tsr_yaml_get(node, "repeat"), *body = tsr_yaml_get(node, "graph"),
                 *params = tsr_yaml_get(node, "parameters");
  s->kind = TSR_STATEMENT_REPEAT;
  s->as = "block";
  bool ok = tsr_file_keys(r, node, "a repeat", 4, keys);
  if (repeat->kind == TSR_YAML_MAP) {
    ok &= tsr_file_keys(r, repeat, "repeat", 2, repeat_keys);
    ok &= tsr_file_expr(r, repeat, "times", &s->times);
    ok &= read_as(r, repeat, &s->as);
  } else {
    ok &= tsr_expr_parse(r->arena, repeat, false, &s->times, r->diags);
  }
  if (ok && !s->times) ok = tsr_diag_error(r->diags, repeat->location, "a repeat needs 'times'");
  if (!body) return tsr_diag_error(r->diags, s->location, "a repeat needs 'graph'");
  if (params && params->kind != TSR_YAML_MAP)
    ok = tsr_diag_error(r->diags, params->location, "'parameters' must be a map");
  else if (params) ok &= tsr_file_params(r, params, &s->params);
  return tsr_file_body(r, body, &s->body) && ok;
}

static bool read_group(const tsr_file_reader *r, const tsr_yaml *node, tsr_statement *s) {
  static const char *const keys[] = {"if", "graph", "else"};
  const tsr_yaml *otherwise = tsr_yaml_get(node, "else");
  static const char *const heads[] = {"repeat", "if", "graph", "else", "parameters"};
  bool has_head = tsr_yaml_get(node, "if") != NULL;
  s->kind = TSR_STATEMENT_GROUP;
  if (!has_head && !tsr_file_keys(r, node, "a statement with a graph", 5, heads)) return false;
  bool ok = tsr_file_keys(r, node, "an if", 3, keys);
  if (!has_head)
    ok = tsr_diag_error(r->diags, s->location, "a nested 'graph' needs 'if' or 'repeat'");
  ok &= tsr_file_body(r, tsr_yaml_get(node, "graph"), &s->body);
  if (otherwise) ok &= tsr_file_body(r, otherwise, &s->otherwise);
  return ok;
}

static bool read_statement(const tsr_file_reader *r, const tsr_yaml *node, tsr_statement *s) {
  s->location = node->location;
  if (node->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        r->diags, node->location, "a statement is 'result: op(inputs)', not %s",
        tsr_yaml_describe(r->arena, node));
  bool ok = tsr_file_expr(r, node, "if", &s->condition);
  if (tsr_yaml_get(node, "repeat")) return read_repeat(r, node, s) && ok;
  if (tsr_yaml_get(node, "graph")) return read_group(r, node, s) && ok;
  return read_call(r, node, s) && ok;
}

bool tsr_file_body(const tsr_file_reader *r, const tsr_yaml *node, tsr_body *ret_body) {
  if (node->kind != TSR_YAML_LIST)
    return tsr_diag_error(
        r->diags, node->location, "'graph' must be a list of statements, not %s",
        tsr_yaml_describe(r->arena, node));
  ret_body->items = tsr_arena_array(r->arena, tsr_statement, node->count);
  ret_body->count = node->count;
  bool ok = true;
  for (int i = 0; i < node->count; i++)
    ok &= read_statement(r, node->items[i], &ret_body->items[i]);
  return ok;
}
