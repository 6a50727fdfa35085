// SPDX-License-Identifier: Apache-2.0
#include "config/recipe_keys.h"
#include "config/fields.h"
#include "config/print.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_recipe_entry *entries;
  int count, capacity;
} recipe;

static void add(recipe *r, const char *key, const char *value) {
  tsr_arena_grow(r->arena, (void **)&r->entries, sizeof *r->entries, r->count, &r->capacity);
  r->entries[r->count++] =
      (tsr_recipe_entry){tsr_arena_strdup(r->arena, key), tsr_arena_strdup(r->arena, value)};
}

static void add_number(recipe *r, const char *key, int64_t value) {
  add(r, key, tsr_arena_printf(r->arena, "%lld", (long long)value));
}

/* Where the work is done and what is shown of it changes no bit; what the facts say in another way
 * is left to them. */
static bool is_outside(const tsr_field *f) {
  static const char *const sections[] = {
      "data", /* the fingerprint has the samples that are made */
      "device_config",
      "mesh",
      "eval_config",
      "numerics.units",
      "schedule",
      "pipeline",
      "zero",
      "checkpoint",
      "collectives",
      "elastic",
      "training_step",
      "collectives.all_reduce",
      "collectives.transport"};
  // clang-format off
  static const char *const keys[] = {
      "project_name", "batch_size", "batch_size_per_rank", "gradient_accumulation_steps",
      "max_steps", "num_epochs", "sequence_length", "data_path", "data_sources", "data_format",
      "tokenizer_path", "validation_batch_size", "eval_every", "validation_path", "log_every",
      "checkpoint_dir", "runner", "model_save_interval", "sample_every", "sample_tokens",
      "threads", "isa", "mixed_precision", "validation_fraction", "model_path", "data_weights",
      "validate", "validate_every", "validate_policy", "reduce_tree", "tp_reductions",
      "early_stop_patience", "early_stop_min_delta"};
  // clang-format on
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    if (!strcmp(f->section, sections[i])) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(f->key, keys[i])) return true;
  return !strcmp(f->section, "lora_config") && !strcmp(f->key, "path"); /* its hash is in it */
}

bool tsr_recipe_has_key(const tsr_field *f) {
  bool by_facts = !strcmp(f->section, "numerics.units") || !strcmp(f->key, "isa") ||
                  !strcmp(f->key, "reduce_tree") || !strcmp(f->key, "tp_reductions") ||
                  !strcmp(f->key, "max_steps") || !strcmp(f->key, "sequence_length");
  return f->at && f->type != TSR_FIELD_SECTION && (by_facts || !is_outside(f));
}

/* fp16 alone has a loss scale, fp8 alone formats, bf16 alone other ways to store parameters. */
static bool is_read(const tsr_config *c, const tsr_field *f) {
  tsr_precision p = c->training.precision;
  if (!strcmp(f->section, "training_config.loss_scale")) return p == TSR_PRECISION_FP16;
  if (!strcmp(f->section, "training_config.fp8")) return p == TSR_PRECISION_FP8;
  if (!strcmp(f->key, "stochastic_rounding") || !strcmp(f->key, "kahan_summation"))
    return p == TSR_PRECISION_BF16;
  if (!strcmp(f->key, "clip_grad_norm_max_norm")) return c->training.use_clip_grad_norm;
  return true;
}

static void add_fields(recipe *r, const tsr_config *c) {
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    if (is_outside(f) || !tsr_field_is_printed(c, f) || !is_read(c, f)) continue;
    tsr_text value = {0};
    tsr_field_print(c, f, &value);
    add(r, tsr_field_dotted_key(r->arena, f), value.data ? value.data : "");
    tsr_text_free(&value);
  }
}

/* A number's text is the same however it is written: 0, 0.0 and 0e3. */
static const char *scalar_text(recipe *r, const tsr_yaml *node) {
  char *end;
  double number = strtod(node->text, &end);
  if (node->quoted || !*node->text || *end || !isfinite(number)) return node->text;
  const char *text = tsr_arena_printf(r->arena, "%.15g", number);
  return strtod(text, NULL) == number ? text : tsr_arena_printf(r->arena, "%.17g", number);
}

/* The model's keys as they are written, but for numbers. */
static void add_node(recipe *r, const char *key, const tsr_yaml *node) {
  if (!node) return;
  if (node->kind == TSR_YAML_SCALAR) add(r, key, scalar_text(r, node));
  for (int i = 0; i < node->count; i++) {
    const char *below = node->kind == TSR_YAML_MAP
                            ? tsr_arena_printf(r->arena, "%s.%s", key, node->keys[i]->text)
                            : tsr_arena_printf(r->arena, "%s.%d", key, i);
    if (strcmp(below, "transformer_config.runner_type") &&
        strcmp(below, "transformer_config.model_path") && strcmp(below, "transformer_config.graph"))
      add_node(r, below, node->items[i]);
  }
}

static void add_model(recipe *r, const tsr_config *c) {
  if (c->model.map) add_node(r, c->model.map_name, c->model.map);
  if (c->model.model_type) add(r, "model_type", c->model.model_type);
  add_node(r, "graph", c->graph);
  add_node(r, "tensors", c->tensors);
  add_node(r, "inputs", c->inputs);
  add_node(r, "parameters", c->parameters);
}

static void add_facts(recipe *r, const tsr_config *c, const tsr_recipe_facts *f) {
  add_number(r, "samples_per_step", f->samples_per_step);
  add_number(r, "training_config.sequence_length", f->sequence);
  bool follows_end = c->scheduler.type != TSR_SCHEDULER_CONSTANT;
  if (follows_end) add_number(r, "training_config.max_steps", f->total_steps);
  add_number(r, "numerics.units.batch", f->units_batch);
  if (*f->units_order) add(r, "numerics.units.order", f->units_order);
  add_number(r, "numerics.units.sequence", f->units_sequence);
  add_number(r, "numerics.units.tp", f->units_tp);
  if (f->units_expert) add_number(r, "numerics.units.expert", f->units_expert);
  if (f->units_sequence > 1)
    add(r, "device_config.cp_layout",
        c->device.cp_layout == TSR_CP_ZIGZAG ? "zigzag" : "contiguous");
  if (tsr_config_numerics_are_flat(&c->numerics)) add(r, "numerics.reduce_tree", "flat");
  if (tsr_config_sums_tp_in_half(c)) add(r, "numerics.tp_reductions", "half");
  add(r, TSR_RECIPE_ISA, f->isa);
  if (f->isa_before) add(r, TSR_RECIPE_ISA_BEFORE, f->isa_before);
  if (f->vocab_padded) add_number(r, TSR_RECIPE_VOCAB, f->vocab_padded);
  if (f->vocab_before) add(r, TSR_RECIPE_VOCAB_BEFORE, f->vocab_before);
  if (f->initial_weights) add(r, TSR_RECIPE_WEIGHTS, f->initial_weights);
  if (f->initial_adapter) add(r, TSR_RECIPE_ADAPTER, f->initial_adapter);
  if (f->routing) add(r, TSR_RECIPE_ROUTING, f->routing);
  add(r, TSR_RECIPE_GRAPH, f->graph);
  add(r, "data", f->data);
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const tsr_recipe_entry *)a)->key, ((const tsr_recipe_entry *)b)->key);
}

/* A key that stands twice (model_type, in the map and resolved) is kept once. */
static void sort(recipe *r) {
  qsort(r->entries, (size_t)r->count, sizeof *r->entries, by_key);
  int kept = 0;
  for (int i = 0; i < r->count; i++)
    if (!kept || strcmp(r->entries[kept - 1].key, r->entries[i].key))
      r->entries[kept++] = r->entries[i];
  r->count = kept;
}

void tsr_config_recipe(
    tsr_arena *arena, const tsr_config *config, const tsr_recipe_facts *facts,
    tsr_recipe_entry **ret_entries, int *ret_count) {
  recipe r = {.arena = arena};
  add_fields(&r, config);
  add_model(&r, config);
  add_facts(&r, config, facts);
  sort(&r);
  *ret_entries = r.entries;
  *ret_count = r.count;
}

void tsr_recipe_hash(const tsr_recipe_entry *entries, int count, char ret_text[TSR_HASH_TEXT]) {
  tsr_text text = {0};
  for (int i = 0; i < count; i++) tsr_text_add(&text, "%s: %s\n", entries[i].key, entries[i].value);
  tsr_hash_text(text.data ? text.data : "", text.length, ret_text);
  tsr_text_free(&text);
}

const char *tsr_recipe_find(const tsr_recipe_entry *entries, int count, const char *key) {
  for (int i = 0; i < count; i++)
    if (!strcmp(entries[i].key, key)) return entries[i].value;
  return NULL;
}

int tsr_recipe_diff(
    const tsr_recipe_entry *a, int a_count, const tsr_recipe_entry *b, int b_count,
    tsr_text *text) {
  int count = 0;
  for (int i = 0; i < a_count + b_count; i++) {
    const char *key = i < a_count ? a[i].key : b[i - a_count].key;
    const char *here = tsr_recipe_find(a, a_count, key), *there = tsr_recipe_find(b, b_count, key);
    if ((i >= a_count && here) || (here && there && !strcmp(here, there))) continue;
    tsr_text_add(
        text, "recipe %s: %s | %s\n", key, here ? here : "not there", there ? there : "not there");
    count++;
  }
  return count;
}
