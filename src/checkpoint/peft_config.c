// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/peft_config.h"
#include "base/file_read.h"
#include "base/json.h"
#include <math.h>
#include <string.h>

enum { BYTES_MAX = 1 << 24, RANK_MAX = 65536 };

typedef struct {
  tsr_arena *arena;
  const char *file;
  tsr_location location; /* where the folder was named */
  const cJSON *root;
  tsr_diags *diags;
} reader;

/* ---- what is refused ---- */

static bool is_empty(const cJSON *j) {
  return !j || cJSON_IsNull(j) || cJSON_IsFalse(j) ||
         ((cJSON_IsArray(j) || cJSON_IsObject(j)) && cJSON_GetArraySize(j) == 0);
}

/* Options that change which modules have adapters, or what these compute. */
static bool check_options(const reader *r) {
  static const char *const refused[] = {
      "alora_invocation_tokens",
      "arrow_config",
      "layer_replication",
      "layers_pattern",
      "layers_to_transform",
      "lora_bias",
      "megatron_config",
      "target_parameters",
      "trainable_token_indices",
      "use_bdlora",
      "use_qalora",
      "velora_config",
      "kasa_config",
      "monteclora_config"};
  bool ok = true;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (!is_empty(tsr_json_get(r->root, refused[i])))
      ok =
          tsr_diag_error(r->diags, r->location, "'%s': '%s' is not supported", r->file, refused[i]);
  return ok;
}

static const char *word_of(const cJSON *j) { return cJSON_IsString(j) ? j->valuestring : ""; }

/* Ways to begin that change the model's own weights, which must then be the changed ones. */
static bool check_init(const reader *r) {
  static const char *const refused[] = {"pissa", "olora", "corda", "loftq"};
  const char *init = word_of(tsr_json_get(r->root, "init_lora_weights"));
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (!strncmp(init, refused[i], strlen(refused[i])))
      return tsr_diag_error(
          r->diags, r->location,
          "'%s': adapters of init_lora_weights '%s' go with weights that it has changed", r->file,
          init);
  return true;
}

static bool check_type(const reader *r) {
  const char *type;
  if (!tsr_json_text(r->root, "peft_type", r->file, &type, r->diags)) return false;
  return !strcmp(type, "LORA") ||
         tsr_diag_error(
             r->diags, r->location, "'%s': peft_type '%s' is not supported; LORA is", r->file,
             type);
}

/* ---- values ---- */

static bool read_flag(const reader *r, const char *key, bool *ret) {
  const cJSON *j = tsr_json_get(r->root, key);
  *ret = false;
  return !j || cJSON_IsNull(j) || tsr_json_bool(r->root, key, r->file, ret, r->diags);
}

static bool read_number(const reader *r, const char *key, double otherwise, double *ret) {
  const cJSON *j = tsr_json_get(r->root, key);
  *ret = otherwise;
  return !j || cJSON_IsNull(j) || tsr_json_double(r->root, key, r->file, ret, r->diags);
}

/* null, a text, or a list of texts. */
static bool read_names(const reader *r, const char *key, tsr_config_names *ret) {
  const cJSON *j = tsr_json_get(r->root, key);
  *ret = (tsr_config_names){0};
  if (!j || cJSON_IsNull(j)) return true;
  bool list = cJSON_IsArray(j);
  int count = list ? cJSON_GetArraySize(j) : 1;
  tsr_config_name *items = tsr_arena_array(r->arena, tsr_config_name, count + 1);
  for (int i = 0; i < count; i++) {
    const cJSON *item = list ? cJSON_GetArrayItem(j, i) : j;
    if (!cJSON_IsString(item) || !*item->valuestring)
      return tsr_diag_error(
          r->diags, r->location, "'%s': '%s' should be a text or a list of texts", r->file, key);
    items[i] = (tsr_config_name){item->valuestring, {.file = r->file}};
  }
  *ret = (tsr_config_names){items, count, !list};
  return true;
}

/* null, or a map of names to numbers. */
static bool read_numbers(const reader *r, const char *key, tsr_config_numbers *ret) {
  const cJSON *j = tsr_json_get(r->root, key);
  *ret = (tsr_config_numbers){0};
  if (!j || cJSON_IsNull(j)) return true;
  int count = cJSON_IsObject(j) ? cJSON_GetArraySize(j) : -1;
  tsr_config_number *items = tsr_arena_array(r->arena, tsr_config_number, count + 2);
  const cJSON *item = count < 0 ? j : j->child;
  for (int i = 0; count < 0 || i < count; i++, item = item->next) {
    if (count < 0 || !*item->string || !cJSON_IsNumber(item))
      return tsr_diag_error(
          r->diags, r->location, "'%s': '%s' should be a map of names to numbers", r->file, key);
    items[i] = (tsr_config_number){{item->string, {.file = r->file}}, item->valuedouble};
  }
  *ret = (tsr_config_numbers){items, count};
  return true;
}

static bool read_bias(const reader *r, tsr_lora_bias *ret) {
  static const char *const words[] = {
      [TSR_LORA_BIAS_NONE] = "none",
      [TSR_LORA_BIAS_ALL] = "all",
      [TSR_LORA_BIAS_LORA_ONLY] = "lora_only"};
  const cJSON *j = tsr_json_get(r->root, "bias");
  *ret = TSR_LORA_BIAS_NONE;
  if (!j || cJSON_IsNull(j)) return true;
  for (int i = 0; i < 3; i++)
    if (!strcmp(word_of(j), words[i])) return *ret = (tsr_lora_bias)i, true;
  return tsr_diag_error(
      r->diags, r->location, "'%s': 'bias' is neither none, all nor lora_only", r->file);
}

static bool check_patterns(const reader *r, const tsr_config_lora *l) {
  const tsr_config_numbers *ranks = &l->rank_pattern, *alphas = &l->alpha_pattern;
  bool ok = true;
  for (int i = 0; i < ranks->count; i++) {
    double rank = ranks->items[i].value;
    if (!(rank >= 1 && rank <= RANK_MAX) || rank != floor(rank))
      ok = tsr_diag_error(
          r->diags, r->location, "'%s': rank_pattern: %g of '%s' is no rank", r->file, rank,
          ranks->items[i].name.text);
  }
  for (int i = 0; i < alphas->count; i++)
    if (!(alphas->items[i].value > 0) || !isfinite(alphas->items[i].value))
      ok = tsr_diag_error(
          r->diags, r->location, "'%s': alpha_pattern: %g of '%s' is out of range", r->file,
          alphas->items[i].value, alphas->items[i].name.text);
  return ok;
}

static bool check_ranges(const reader *r, const tsr_config_lora *l) {
  if (l->r < 1 || l->r > RANK_MAX || !(l->alpha > 0) || !(l->dropout >= 0 && l->dropout < 1))
    return tsr_diag_error(
        r->diags, r->location, "'%s': r %lld, lora_alpha %g or lora_dropout %g is out of range",
        r->file, (long long)l->r, l->alpha, l->dropout);
  if (l->target_modules.count) return true;
  return tsr_diag_error(r->diags, r->location, "'%s': target_modules names no modules", r->file);
}

/* PEFT's SEQ_CLS trains the scores whole, whether the list has them or not. */
static bool read_saved(const reader *r, tsr_config_names *ret) {
  static tsr_config_name scores = {.text = "score"};
  if (!read_names(r, "modules_to_save", ret)) return false;
  if (!ret->count && !strcmp(word_of(tsr_json_get(r->root, "task_type")), "SEQ_CLS"))
    *ret = (tsr_config_names){&scores, 1, false};
  return true;
}

static bool read_values(const reader *r, tsr_config_lora *l) {
  return tsr_json_int(r->root, "r", r->file, &l->r, r->diags) &&
         read_number(r, "lora_alpha", 8, &l->alpha) &&
         read_number(r, "lora_dropout", 0, &l->dropout) &&
         read_flag(r, "use_rslora", &l->use_rslora) && read_flag(r, "use_dora", &l->use_dora) &&
         read_names(r, "target_modules", &l->target_modules) &&
         read_names(r, "exclude_modules", &l->exclude_modules) &&
         read_saved(r, &l->modules_to_save) && read_bias(r, &l->bias) &&
         read_numbers(r, "rank_pattern", &l->rank_pattern) &&
         read_numbers(r, "alpha_pattern", &l->alpha_pattern) && check_ranges(r, l) &&
         check_patterns(r, l);
}

bool tsr_peft_config_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_location location,
    tsr_config_lora *ret, tsr_diags *diags) {
  cJSON *root;
  if (!tsr_json_parse(arena, file, text, length, &root, diags)) return false;
  reader r = {.arena = arena, .file = file, .location = location, .root = root, .diags = diags};
  return check_type(&r) && check_options(&r) && check_init(&r) && read_values(&r, ret);
}

bool tsr_peft_config_read(
    tsr_arena *arena, const char *folder, tsr_location location, tsr_config_lora *ret,
    tsr_diags *diags) {
  const char *file = tsr_path_join(arena, folder, TSR_PEFT_CONFIG_NAME);
  char *text;
  size_t length;
  *ret = (tsr_config_lora){.enabled = true, .path = folder, .base = ret->base};
  return tsr_file_read_regular(arena, file, BYTES_MAX, location, &text, &length, diags) &&
         tsr_peft_config_parse(arena, file, text, length, location, ret, diags);
}

/* ---- beside a configuration ---- */

static bool is_given(const tsr_config *c, const char *key) {
  return tsr_config_location(c, key).file != NULL;
}

/* In any order. */
static bool have_same_names(const tsr_config_names *a, const tsr_config_names *b) {
  if (a->count != b->count || a->is_one != b->is_one) return false;
  for (int i = 0; i < a->count; i++) {
    bool found = false;
    for (int k = 0; k < b->count; k++) found |= !strcmp(a->items[i].text, b->items[k].text);
    if (!found) return false;
  }
  return true;
}

/* In one order: the first that a module matches counts. */
static bool have_same_numbers(const tsr_config_numbers *a, const tsr_config_numbers *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++)
    same = !strcmp(a->items[i].name.text, b->items[i].name.text) &&
           a->items[i].value == b->items[i].value;
  return same;
}

bool tsr_peft_config_take(tsr_arena *arena, tsr_config *c, tsr_diags *diags) {
  tsr_config_lora from = c->lora, *l = &c->lora;
  tsr_location location = tsr_config_location(c, "lora_config.path");
  if (!tsr_peft_config_read(arena, l->path, location, &from, diags)) return false;
  const struct {
    const char *key;
    bool same;
  } keys[] = {
      {"lora_config.r", l->r == from.r},
      {"lora_config.lora_alpha", l->alpha == from.alpha},
      {"lora_config.use_rslora", l->use_rslora == from.use_rslora},
      {"lora_config.use_dora", l->use_dora == from.use_dora},
      {"lora_config.rank_pattern", have_same_numbers(&l->rank_pattern, &from.rank_pattern)},
      {"lora_config.alpha_pattern", have_same_numbers(&l->alpha_pattern, &from.alpha_pattern)},
      {"lora_config.bias", l->bias == from.bias},
      {"lora_config.target_modules", have_same_names(&l->target_modules, &from.target_modules)},
      {"lora_config.exclude_modules", have_same_names(&l->exclude_modules, &from.exclude_modules)},
      {"lora_config.modules_to_save", have_same_names(&l->modules_to_save, &from.modules_to_save)}};
  bool ok = true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (is_given(c, keys[i].key) && !keys[i].same)
      ok = tsr_diag_error(
          diags, tsr_config_location(c, keys[i].key), "'%s' is another one in '%s/%s'",
          strchr(keys[i].key, '.') + 1, l->path, TSR_PEFT_CONFIG_NAME);
  if (is_given(c, "lora_config.lora_dropout")) from.dropout = l->dropout;
  *l = from;
  return ok;
}

/* ---- writing ---- */

static void add_names(tsr_text *text, const char *key, const char *const *names, int count) {
  tsr_text_add(text, "  \"%s\": %s", key, count ? "[" : "null");
  for (int i = 0; i < count; i++) {
    tsr_text_add(text, "%s\n    ", i ? "," : "");
    tsr_json_add_text(text, names[i], strlen(names[i]));
  }
  tsr_text_add(text, "%s,\n", count ? "\n  ]" : "");
}

static void add_numbers(tsr_text *text, const char *key, const tsr_config_numbers *numbers) {
  tsr_text_add(text, "  \"%s\": {", key);
  for (int i = 0; i < numbers->count; i++) {
    const char *name = numbers->items[i].name.text;
    tsr_text_add(text, "%s\n    ", i ? "," : "");
    tsr_json_add_text(text, name, strlen(name));
    tsr_text_add(text, ": %.17g", numbers->items[i].value);
  }
  tsr_text_add(text, "%s},\n", numbers->count ? "\n  " : "");
}

static const char *flag(bool on) { return on ? "true" : "false"; }

void tsr_peft_config_print(const tsr_peft_config *c, tsr_text *text) {
  static const char *const biases[] = {
      [TSR_LORA_BIAS_NONE] = "none",
      [TSR_LORA_BIAS_ALL] = "all",
      [TSR_LORA_BIAS_LORA_ONLY] = "lora_only"};
  const tsr_config_lora *l = c->lora;
  tsr_text_add(text, "{\n  \"base_model_name_or_path\": ");
  if (c->base) tsr_json_add_text(text, c->base, strlen(c->base));
  else tsr_text_add(text, "null");
  tsr_text_add(text, ",\n  \"bias\": \"%s\",\n", biases[l->bias]);
  tsr_text_add(text, "  \"fan_in_fan_out\": %s,\n", flag(c->fan_in_fan_out));
  tsr_text_add(text, "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n");
  add_numbers(text, "alpha_pattern", &c->alphas);
  tsr_text_add(text, "  \"lora_alpha\": %.17g,\n", l->alpha);
  tsr_text_add(text, "  \"lora_dropout\": %.17g,\n", l->dropout);
  add_names(text, "modules_to_save", c->saved, c->saved_count);
  tsr_text_add(text, "  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n", (long long)l->r);
  add_numbers(text, "rank_pattern", &c->ranks);
  add_names(text, "target_modules", c->targets, c->targets_count);
  tsr_text_add(
      text, "  \"task_type\": %s,\n  \"use_dora\": %s,\n",
      !c->tells_classes  ? "\"CAUSAL_LM\""
      : c->trains_scores ? "\"SEQ_CLS\""
                         : "null",
      flag(l->use_dora));
  tsr_text_add(text, "  \"use_rslora\": %s\n}\n", flag(l->use_rslora));
}
