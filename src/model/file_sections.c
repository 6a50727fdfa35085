// SPDX-License-Identifier: Apache-2.0
/* requires: the YAML of a graph file. produces: its parts; the sections with more to them are in
 * file_*.c. */
#include "model/graph_file.h"
#include <string.h>

/* A section that must be a map if present; empty counts as absent. */
static bool section(
    const tsr_file_reader *r, const tsr_yaml *root, const char *key, tsr_yaml_kind kind,
    const tsr_yaml **ret_node) {
  const tsr_yaml *node = tsr_yaml_get(root, key);
  *ret_node = node && node->kind == kind ? node : NULL;
  if (!node || node->kind == kind || node->kind == TSR_YAML_NULL) return true;
  return tsr_diag_error(
      r->diags, node->location, "'%s' must be a %s, not %s", key,
      kind == TSR_YAML_MAP ? "map" : "list", tsr_yaml_describe(r->arena, node));
}

static bool
read_text(const tsr_file_reader *r, const tsr_yaml *map, const char *key, const char **ret_text) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  if (!node) return true;
  *ret_text = node->text;
  if (node->kind == TSR_YAML_SCALAR) return true;
  return tsr_diag_error(
      r->diags, node->location, "'%s' must be a text, not %s", key,
      tsr_yaml_describe(r->arena, node));
}

static bool read_check(const tsr_file_reader *r, const tsr_yaml *node, tsr_check *check) {
  static const char *const keys[] = {"that", "else", "at"};
  check->location = node->location;
  if (!tsr_file_keys(r, node, "a check", 3, keys)) return false;
  bool ok = tsr_file_expr(r, node, "that", &check->that);
  ok &= read_text(r, node, "else", &check->otherwise);
  ok &= read_text(r, node, "at", &check->at);
  if (ok && (!check->that || !check->otherwise))
    return tsr_diag_error(r->diags, node->location, "a check needs 'that' and 'else'");
  return ok;
}

static bool read_checks(const tsr_file_reader *r, const tsr_yaml *node) {
  bool ok = true;
  r->file->checks = tsr_arena_array(r->arena, tsr_check, node->count);
  r->file->checks_count = node->count;
  for (int i = 0; i < node->count; i++) ok &= read_check(r, node->items[i], &r->file->checks[i]);
  return ok;
}

static bool add_output(const tsr_file_reader *r, const tsr_yaml *name, const tsr_yaml *value) {
  tsr_output_decl *o = &r->file->outputs[r->file->outputs_count++];
  o->location = value->location;
  return tsr_file_name(r, name, &o->name) && tsr_file_name(r, value, &o->value);
}

/* A list of names, or a map from the name to show to the name in the graph. */
static bool read_outputs(const tsr_file_reader *r, const tsr_yaml *node) {
  enum { OUTPUTS_MAX = 16 };
  if (node->kind != TSR_YAML_LIST && node->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        r->diags, node->location, "'outputs' must be a list of names or a map, not %s",
        tsr_yaml_describe(r->arena, node));
  if (node->count > OUTPUTS_MAX)
    return tsr_diag_error(
        r->diags, node->location, "at most %d outputs, not %d", OUTPUTS_MAX, node->count);
  bool ok = true;
  r->file->outputs = tsr_arena_array(r->arena, tsr_output_decl, node->count);
  for (int i = 0; i < node->count; i++)
    ok &=
        add_output(r, node->kind == TSR_YAML_MAP ? node->keys[i] : node->items[i], node->items[i]);
  return ok;
}

static bool read_block_inputs(const tsr_file_reader *r, tsr_block *b) {
  const tsr_yaml *node = tsr_yaml_get(b->node, "inputs");
  if (!node || node->kind != TSR_YAML_LIST)
    return tsr_diag_error(
        r->diags, node ? node->location : b->location, "block '%s' needs 'inputs', a list of names",
        b->name);
  b->inputs = tsr_arena_array(r->arena, const char *, node->count);
  b->inputs_count = node->count;
  bool ok = true;
  for (int i = 0; i < node->count; i++) ok &= tsr_file_name(r, node->items[i], &b->inputs[i]);
  return ok;
}

static bool read_block(const tsr_file_reader *r, tsr_block *b) {
  static const char *const keys[] = {"inputs", "parameters", "graph", "result"};
  if (!tsr_file_keys(r, b->node, "a block", 4, keys)) return false;
  const tsr_yaml *params, *body, *result = tsr_yaml_get(b->node, "result");
  bool ok = read_block_inputs(r, b);
  ok &= section(r, b->node, "parameters", TSR_YAML_MAP, &params);
  ok &= section(r, b->node, "graph", TSR_YAML_LIST, &body);
  if (ok && (!body || !result))
    return tsr_diag_error(r->diags, b->location, "block '%s' needs 'graph' and 'result'", b->name);
  if (params) ok &= tsr_file_params(r, params, &b->params);
  if (body) ok &= tsr_file_body(r, body, &b->body);
  if (!result) return false;
  b->result_place = result->location;
  return tsr_file_name(r, result, &b->result) && ok;
}

/* Names first: blocks may call each other. */
static bool read_blocks(const tsr_file_reader *r, const tsr_yaml *node) {
  bool ok = true;
  r->file->blocks = tsr_arena_array(r->arena, tsr_block, node->count);
  r->file->blocks_count = node->count;
  for (int i = 0; i < node->count; i++) {
    tsr_block *b = &r->file->blocks[i];
    b->location = node->keys[i]->location;
    b->node = node->items[i];
    ok &= tsr_file_name(r, node->keys[i], &b->name);
  }
  for (int i = 0; ok && i < node->count; i++) ok &= read_block(r, &r->file->blocks[i]);
  return ok;
}

static bool read_sections(const tsr_file_reader *r, const tsr_yaml *root) {
  static const char *const keys[] = {"name",       "description", "sizes",      "inputs",
                                     "parameters", "tensors",     "blocks",     "checks",
                                     "graph",      "outputs",     "huggingface"};
  const tsr_yaml *node;
  if (root->kind != TSR_YAML_MAP) return tsr_file_keys(r, root, "a graph file", 11, keys);
  const char *unused;
  bool ok = tsr_file_keys(r, root, "a graph file", 11, keys);
  ok &= read_text(r, root, "name", &r->file->name);
  ok &= read_text(r, root, "description", &unused);
  ok &= section(r, root, "sizes", TSR_YAML_MAP, &node) && (!node || tsr_file_sizes(r, node));
  ok &= section(r, root, "inputs", TSR_YAML_MAP, &node) && (!node || tsr_file_inputs(r, node));
  ok &= section(r, root, "parameters", TSR_YAML_MAP, &node) &&
        (!node || tsr_file_params(r, node, &r->file->params));
  ok &= section(r, root, "tensors", TSR_YAML_MAP, &node) && (!node || tsr_file_tensors(r, node));
  ok &= section(r, root, "checks", TSR_YAML_LIST, &node) && (!node || read_checks(r, node));
  ok &= section(r, root, "blocks", TSR_YAML_MAP, &node) && (!node || read_blocks(r, node));
  if ((node = tsr_yaml_get(root, "outputs"))) ok &= read_outputs(r, node);
  if (!tsr_yaml_get(root, "graph"))
    return ok && tsr_diag_error(r->diags, root->location, "the graph file has no 'graph'");
  return section(r, root, "graph", TSR_YAML_LIST, &node) &&
         (!node || tsr_file_body(r, node, &r->file->body)) && ok;
}

bool tsr_graph_file_read(
    tsr_arena *arena, const tsr_yaml *root, tsr_graph_file **ret_file, tsr_diags *diags) {
  tsr_graph_file *file = tsr_arena_alloc(arena, sizeof *file);
  *file = (tsr_graph_file){.location = root->location};
  tsr_file_reader r = {arena, file, diags};
  bool ok =
      root->kind == TSR_YAML_LIST ? tsr_file_body(&r, root, &file->body) : read_sections(&r, root);
  if (ok && !file->body.count)
    ok = tsr_diag_error(diags, root->location, "the graph has no statements");
  *ret_file = file;
  return ok;
}
