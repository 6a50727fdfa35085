// SPDX-License-Identifier: Apache-2.0
/* The keys of adapters: lists of modules, and the rules between keys. */
#include "config/config_internal.h"
#include <math.h>
#include <string.h>

static bool read_name(
    tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node,
    tsr_config_name *ret) {
  if (node->kind != TSR_YAML_SCALAR) return tsr_value_wrong_type(l, f, key, node);
  *ret = (tsr_config_name){node->text, node->location};
  return *node->text ||
         tsr_diag_error(l->diags, node->location, "'%s' has a name without characters", key);
}

bool tsr_names_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  tsr_config_names *names = (tsr_config_names *)(void *)((char *)l->config + f->at);
  if (node->kind == TSR_YAML_NULL) return true;
  bool list = node->kind == TSR_YAML_LIST;
  int count = list ? node->count : 1;
  tsr_config_name *items = tsr_arena_array(l->arena, tsr_config_name, count + 1);
  for (int i = 0; i < count; i++)
    if (!read_name(l, f, key, list ? node->items[i] : node, &items[i])) return false;
  *names = (tsr_config_names){items, count, !list};
  return true;
}

bool tsr_numbers_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  tsr_config_numbers *numbers = (tsr_config_numbers *)(void *)((char *)l->config + f->at);
  if (node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_MAP) return tsr_value_wrong_type(l, f, key, node);
  tsr_config_number *items = tsr_arena_array(l->arena, tsr_config_number, node->count + 1);
  tsr_field item = {.type = TSR_FIELD_FLOAT, .section = "", .range = f->range};
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    const char *name = tsr_arena_printf(l->arena, "%s.%s", key, node->keys[i]->text);
    ok &= read_name(l, f, key, node->keys[i], &items[i].name);
    ok &= tsr_scalar_read(l, &item, name, node->items[i]) &&
          tsr_yaml_float(node->items[i], &items[i].value);
  }
  if (ok) *numbers = (tsr_config_numbers){items, node->count};
  return ok;
}

/* A rank is a whole number. */
static void check_ranks(tsr_loader *l) {
  const tsr_yaml *map = tsr_loader_value(l, "lora_config.rank_pattern");
  const tsr_config_numbers *ranks = &l->config->lora.rank_pattern;
  for (int i = 0; map && map->kind == TSR_YAML_MAP && i < ranks->count; i++)
    if (ranks->items[i].value != floor(ranks->items[i].value))
      tsr_diag_error(
          l->diags, map->items[i]->location, "'rank_pattern.%s' must be a whole number, found %s",
          ranks->items[i].name.text, tsr_yaml_describe(l->arena, map->items[i]));
}

/* tt-train's key and PEFT's. */
static void resolve_bias(tsr_loader *l) {
  const tsr_yaml *trained = tsr_loader_value(l, "lora_config.is_bias_trainable");
  tsr_config_lora *lora = &l->config->lora;
  bool wanted;
  if (!tsr_yaml_bool(trained, &wanted)) return;
  if (tsr_loader_value(l, "lora_config.bias")) {
    if (wanted != (lora->bias != TSR_LORA_BIAS_NONE))
      tsr_loader_contradict(l, "lora_config.is_bias_trainable", "lora_config.bias");
    return;
  }
  if (!wanted) return;
  lora->bias = TSR_LORA_BIAS_LORA_ONLY;
  tsr_loader_take_origin(l, "lora_config.bias", "lora_config.is_bias_trainable");
}

void tsr_lora_resolve(tsr_loader *l) {
  const tsr_yaml *section = tsr_loader_value(l, "lora_config");
  l->config->lora.enabled = section && section->kind == TSR_YAML_MAP;
  resolve_bias(l);
  check_ranks(l);
}
