// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_values.h"
#include "checkpoint/hf_labels.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double WHOLE_MAX = 9007199254740992.0; /* 2^53 */

/* ---- from JSON ---- */

bool tsr_hf_is_below(const tsr_hf_key *k, double number) {
  return k->above ? number <= k->least : number < k->least;
}

static bool wrong(const tsr_hf_item *s, const cJSON *item, const char *wanted) {
  return tsr_json_wrong(item, s->name, s->path, wanted, s->diags);
}

static bool is_whole(const cJSON *item) {
  return cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble) &&
         fabs(item->valuedouble) <= WHOLE_MAX;
}

static bool read_number(
    const tsr_hf_item *s, const tsr_hf_key *k, const cJSON *item, bool whole, const char *wanted,
    double *ret) {
  if (!(whole ? is_whole(item) : cJSON_IsNumber(item))) return wrong(s, item, wanted);
  *ret = item->valuedouble;
  if (k->values_count || !tsr_hf_is_below(k, *ret)) return true;
  return tsr_diag_error(
      s->diags, TSR_NOWHERE, "'%s': key '%s' should be %s %.15g, not %.15g", s->path, s->name,
      k->above ? "above" : "at least", k->least, *ret);
}

/* nn.Embedding's padding_idx. */
static bool read_token(const tsr_hf_item *s, const tsr_hf_key *k, const cJSON *item, double *ret) {
  const tsr_name *vocab = tsr_scope_find(s->keys, "vocab_size");
  if (!is_whole(item)) return wrong(s, item, "a whole number");
  double token = item->valuedouble, count = vocab ? vocab->value.number : 0;
  if (vocab && vocab->bad) return false;
  *ret = token < 0 ? token + count : token;
  if (*ret >= 0 && *ret < count) return true;
  return tsr_diag_error(
      s->diags, TSR_NOWHERE, "'%s': %s %.15g is none of the %.15g tokens", s->path, k->name, token,
      count);
}

static bool read_list(const tsr_hf_item *s, const tsr_hf_key *k, const cJSON *list, tsr_eval *ret) {
  static const char *const wanted[] = {
      [TSR_HF_WORDS] = "a list of words",
      [TSR_HF_INTEGERS] = "a list of whole numbers",
      [TSR_HF_REALS] = "a list of numbers"};
  const cJSON *item;
  if (!cJSON_IsArray(list)) return wrong(s, list, wanted[k->kind]);
  int most = cJSON_GetArraySize(list);
  double *numbers = tsr_arena_array(s->arena, double, most + 1);
  const char **words = tsr_arena_array(s->arena, const char *, most + 1);
  *ret = (tsr_eval){.kind = TSR_EVAL_LIST, .list = numbers};
  cJSON_ArrayForEach(item, list) {
    if (k->kind != TSR_HF_WORDS) {
      bool whole = k->kind == TSR_HF_INTEGERS;
      if (!read_number(s, k, item, whole, wanted[k->kind], &numbers[ret->count])) return false;
    } else if (cJSON_IsString(item)) {
      words[ret->count] = item->valuestring;
    } else {
      return wrong(s, item, wanted[k->kind]);
    }
    ret->count++;
  }
  if (k->kind == TSR_HF_WORDS && ret->count) ret->words = words, ret->list = NULL;
  return true;
}

/* What is compared with values needs no other kind. */
static bool read_value(const cJSON *item, tsr_eval *ret) {
  if (cJSON_IsString(item)) *ret = (tsr_eval){.kind = TSR_EVAL_WORD, .word = item->valuestring};
  else *ret = (tsr_eval){.number = cJSON_IsBool(item) ? cJSON_IsTrue(item) : item->valuedouble};
  return true;
}

/* The names are read by those who need them. */
static bool read_labels(const tsr_hf_item *s, const cJSON *item, double *ret) {
  tsr_hf_labels labels;
  if (!tsr_hf_labels_read(s->arena, s->path, s->name, item, &labels, s->diags)) return false;
  *ret = labels.count;
  return true;
}

bool tsr_hf_item_read(const tsr_hf_item *s, const tsr_hf_key *k, const cJSON *item, tsr_eval *ret) {
  *ret = (tsr_eval){.kind = TSR_EVAL_NUMBER};
  switch (k->kind) {
  case TSR_HF_INTEGER:
    return read_number(s, k, item, true, "a whole number", &ret->number);
  case TSR_HF_MEMBERS:
    if (!cJSON_IsObject(item) && !cJSON_IsArray(item))
      return read_number(s, k, item, true, "a whole number", &ret->number);
    return read_number(
        s, k, &(cJSON){.type = cJSON_Number, .valuedouble = cJSON_GetArraySize(item)}, true, "",
        &ret->number);
  case TSR_HF_LABELS:
    return read_labels(s, item, &ret->number);
  case TSR_HF_LABEL_IDS:
    if (!cJSON_IsObject(item)) return wrong(s, item, "an object");
    ret->number = cJSON_GetArraySize(item);
    return true;
  case TSR_HF_REAL:
    return read_number(s, k, item, false, "a number", &ret->number);
  case TSR_HF_BOOLEAN:
    if (!cJSON_IsBool(item)) return wrong(s, item, "true or false");
    return read_value(item, ret);
  case TSR_HF_WORD:
    if (!cJSON_IsString(item)) return wrong(s, item, "a string");
    return read_value(item, ret);
  case TSR_HF_TOKEN:
    return read_token(s, k, item, &ret->number);
  default:
    return read_list(s, k, item, ret);
  }
}

/* ---- as text ---- */

const char *tsr_hf_real_text(tsr_arena *arena, double value) {
  char *text = NULL;
  for (int digits = 15; digits <= 17; digits++) {
    text = tsr_arena_printf(arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return strpbrk(text, ".en") ? text : tsr_arena_printf(arena, "%s.0", text);
}

const char *tsr_hf_eval_text(tsr_arena *arena, tsr_hf_kind kind, const tsr_eval *v) {
  if (v->kind == TSR_EVAL_WORD)
    return strcmp(v->word, "null") ? tsr_arena_printf(arena, "'%s'", v->word) : "null";
  if (v->kind != TSR_EVAL_NUMBER) return tsr_eval_text(arena, v);
  if (kind == TSR_HF_BOOLEAN) return v->number != 0 ? "true" : "false";
  return tsr_arena_printf(arena, "%.15g", v->number);
}

const char *tsr_hf_values_text(tsr_arena *arena, const tsr_hf_key *k) {
  const char *text = "";
  for (int i = 0; i < k->values_count; i++) {
    tsr_eval v = tsr_hf_yaml_value(k->values[i].json);
    text = tsr_arena_printf(
        arena, "%s%s%s", text, i ? ", " : "", tsr_hf_eval_text(arena, k->kind, &v));
  }
  return text;
}

tsr_eval tsr_hf_yaml_value(const tsr_yaml *node) {
  bool truth;
  int64_t whole;
  double real;
  if (tsr_yaml_bool(node, &truth)) return (tsr_eval){.number = truth};
  if (tsr_yaml_int(node, &whole)) return (tsr_eval){.number = (double)whole};
  if (tsr_yaml_float(node, &real)) return (tsr_eval){.number = real};
  const char *word = node->kind == TSR_YAML_NULL ? "null" : node->text;
  return (tsr_eval){.kind = TSR_EVAL_WORD, .word = word};
}
