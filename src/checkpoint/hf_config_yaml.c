// SPDX-License-Identifier: Apache-2.0
/* requires: sizes. produces: our section of them. */
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_values.h"
#include <string.h>

/* The default is 0 or less, false or an empty list as it stands in the graph file, and the value is
 * the same. */
static bool is_off(tsr_arena *arena, const tsr_hf_size_value *s) {
  const tsr_expr *e = s->decl->value;
  if (!e || s->decl->kind == TSR_SIZE_CHOICE) return false;
  if (e->kind == TSR_EXPR_UNARY) e = e->args[0];
  bool literal = e->kind == TSR_EXPR_NUMBER || (e->kind == TSR_EXPR_LIST && !e->count) ||
                 (e->kind == TSR_EXPR_NAME && !strcmp(e->name, "false"));
  tsr_scope scope = {.arena = arena};
  tsr_eval value;
  return literal && tsr_expr_eval(s->decl->value, &scope, &value, tsr_diags_new(arena)) &&
         (value.kind != TSR_EVAL_NUMBER || value.number <= 0) && tsr_eval_equal(&value, &s->value);
}

static const char *text_of(tsr_arena *arena, const tsr_hf_size_value *s) {
  tsr_size_kind kind = s->decl->kind;
  if (kind == TSR_SIZE_REAL) return tsr_hf_real_text(arena, s->value.number);
  if (kind == TSR_SIZE_BOOLEAN) return s->value.number != 0 ? "true" : "false";
  if (kind != TSR_SIZE_REALS) return tsr_eval_text(arena, &s->value);
  const char *text = "[";
  for (int i = 0; i < s->value.count; i++)
    text = tsr_arena_printf(
        arena, "%s%s%s", text, i ? ", " : "", tsr_hf_real_text(arena, s->value.list[i]));
  return tsr_arena_printf(arena, "%s]", text);
}

/* Those of one map follow each other. */
static void add_map(const tsr_hf_config *c, int first, bool *done, tsr_arena *arena, tsr_text *t) {
  const char *name = c->sizes[first].decl->names[0], *dot = strchr(name, '.');
  size_t length = dot ? (size_t)(dot + 1 - name) : 0;
  if (dot) tsr_text_add(t, "  %.*s:\n", (int)(dot - name), name);
  for (int i = first; i < c->sizes_count; i++) {
    const char *other = c->sizes[i].decl->names[0];
    if (done[i] || (dot ? strncmp(other, name, length) != 0 : i != first)) continue;
    done[i] = true;
    tsr_text_add(
        t, "%s%s: %s\n", dot ? "    " : "  ", other + length, text_of(arena, &c->sizes[i]));
  }
}

/* A text in double quotes is the same in YAML as in JSON. */
static void add_data(const tsr_hf_labels *labels, tsr_text *text) {
  tsr_text_add(text, "data:\n  format: labels\n  labels: [");
  for (int i = 0; i < labels->count; i++) {
    tsr_text_add(text, "%s", i ? ", " : "");
    tsr_json_add_text(text, labels->names[i], strlen(labels->names[i]));
  }
  tsr_text_add(text, "]\n");
}

void tsr_hf_config_yaml(const tsr_hf_config *config, tsr_text *text) {
  tsr_arena *arena = tsr_arena_new();
  bool *done = tsr_arena_array(arena, bool, config->sizes_count + 1);
  for (int i = 0; i < config->sizes_count; i++) done[i] = is_off(arena, &config->sizes[i]);
  tsr_text_add(text, "transformer_config:\n  model_type: %s\n", config->graph);
  for (int i = 0; i < config->sizes_count; i++)
    if (!done[i]) add_map(config, i, done, arena, text);
  if (config->has_labels) add_data(&config->labels, text);
  tsr_arena_free(arena);
}
