// SPDX-License-Identifier: Apache-2.0
/* adapter_config.json of PEFT. What is taken is in its ranges, is printed and read again as it was,
 * and its names are matched against those of modules. */
#include "checkpoint/peft_config.h"
#include "train/module_names.h"
#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ranges(const tsr_config_lora *l) {
  assert(l->r >= 1 && l->r <= 65536 && l->alpha > 0 && isfinite(l->alpha));
  assert(l->dropout >= 0 && l->dropout < 1 && l->target_modules.count > 0);
  for (int i = 0; i < l->rank_pattern.count; i++) {
    double rank = l->rank_pattern.items[i].value;
    assert(
        rank >= 1 && rank <= 65536 && rank == floor(rank) && *l->rank_pattern.items[i].name.text);
  }
  for (int i = 0; i < l->alpha_pattern.count; i++)
    assert(l->alpha_pattern.items[i].value > 0 && isfinite(l->alpha_pattern.items[i].value));
}

static void check_same_numbers(const tsr_config_numbers *a, const tsr_config_numbers *b) {
  assert(a->count == b->count);
  for (int i = 0; i < a->count; i++) {
    assert(a->items[i].value == b->items[i].value);
    assert(!strcmp(a->items[i].name.text, b->items[i].name.text));
  }
}

static const char **texts_of(tsr_arena *arena, const tsr_config_names *names) {
  const char **texts = tsr_arena_array(arena, const char *, names->count + 1);
  for (int i = 0; i < names->count; i++) texts[i] = names->items[i].text;
  return texts;
}

static void check_again(tsr_arena *arena, const tsr_config_lora *l, tsr_diags *diags) {
  tsr_peft_config c = {.lora = l, .ranks = l->rank_pattern, .alphas = l->alpha_pattern};
  c.targets = texts_of(arena, &l->target_modules);
  c.targets_count = l->target_modules.count;
  c.saved = texts_of(arena, &l->modules_to_save);
  c.saved_count = l->modules_to_save.count;
  tsr_text text = {0};
  tsr_peft_config_print(&c, &text);
  tsr_config_lora again = {0};
  bool ok =
      tsr_peft_config_parse(arena, "again", text.data, text.length, TSR_NOWHERE, &again, diags);
  assert(ok && again.r == l->r && again.alpha == l->alpha && again.dropout == l->dropout);
  assert(again.use_rslora == l->use_rslora && again.use_dora == l->use_dora);
  assert(again.bias == l->bias && again.target_modules.count == c.targets_count);
  check_same_numbers(&again.rank_pattern, &l->rank_pattern);
  check_same_numbers(&again.alpha_pattern, &l->alpha_pattern);
  tsr_text_free(&text);
}

static void match(tsr_arena *arena, const tsr_config_names *from, tsr_module_names_rule rule) {
  static const char *const modules[] = {
      "model.layers.0.self_attn.q_proj", "transformer.h.1.mlp.c_fc", "block.0.attn.wq", "lm_head"};
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_module_names *names;
  if (!tsr_module_names_compile(arena, from, "lora_config.target_modules", rule, &names, diags)) {
    assert(tsr_diags_errors(diags));
    return;
  }
  bool any = false;
  for (int i = 0; i < 4; i++) any |= tsr_module_names_match(names, modules[i]) != NULL;
  bool used = tsr_module_names_check_used(names, modules, 4, modules[3], diags);
  assert(used == !tsr_diags_errors(diags) && (any || !used || !from->count));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_config_lora lora = {0};
  const char *text = tsr_arena_strndup(arena, (const char *)data, size);
  if (tsr_peft_config_parse(arena, "fuzz", text, size, TSR_NOWHERE, &lora, diags)) {
    check_ranges(&lora);
    check_again(arena, &lora, diags);
    match(arena, &lora.target_modules, TSR_NAMES_TARGETS);
    match(arena, &lora.modules_to_save, TSR_NAMES_SAVED);
    match(arena, &lora.target_modules, TSR_NAMES_OF_NUMBERS);
  } else {
    assert(tsr_diags_errors(diags));
  }
  tsr_arena_free(arena);
  return 0;
}
