// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_special_tokens.h"
#include <string.h>

static const char *const kinds[] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask", "eot"};
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, EOT, KINDS };

typedef struct {
  tsr_arena *arena;
  const cJSON *added; /* tokenizer.json's added_tokens */
  const char *texts[KINDS];
  int64_t ids_end; /* 0: any */
  tsr_gguf_special_tokens *to;
} reader;

static void set_flag(reader *r, const char *kind, bool added, bool replaces) {
  tsr_gguf_special_tokens *s = r->to;
  for (int i = 0; i < s->flags_count; i++) {
    if (strcmp(s->flags[i].kind, kind)) continue;
    if (replaces) s->flags[i].added = added;
    return;
  }
  if (s->flags_count == TSR_GGUF_SPECIAL_MAX) return;
  s->flags[s->flags_count].kind = kind;
  s->flags[s->flags_count++].added = added;
}

static void set_id(reader *r, const char *kind, const cJSON *id) {
  tsr_gguf_special_tokens *s = r->to;
  if (!cJSON_IsNumber(id) || id->valuedouble < 0 || id->valuedouble != id->valueint ||
      (r->ids_end && id->valueint >= r->ids_end))
    return;
  for (int i = 0; i < s->ids_count; i++)
    if (!strcmp(s->ids[i].kind, kind)) return;
  if (s->ids_count == TSR_GGUF_SPECIAL_MAX) return;
  s->ids[s->ids_count].kind = kind;
  s->ids[s->ids_count++].id = (uint32_t)id->valueint;
}

static const cJSON *id_of(const reader *r, const char *text) {
  const cJSON *item;
  cJSON_ArrayForEach(item, r->added) {
    const cJSON *content = tsr_json_get(item, "content");
    if (cJSON_IsString(content) && !strcmp(content->valuestring, text))
      return tsr_json_get(item, "id");
  }
  return NULL;
}

/* ---- the template ---- */

static const char *name_in(const cJSON *piece, const char *kind) {
  const cJSON *id = tsr_json_get(tsr_json_get(piece, kind), "id");
  return cJSON_IsString(id) ? id->valuestring : NULL;
}

static bool same(const char *a, const char *b) { return a && b && !strcmp(a, b); }

static void read_first(reader *r, const char *first) {
  if (!first) return;
  if (!same(first, r->texts[BOS]) && !same(first, r->texts[CLS])) {
    if (!r->texts[BOS]) r->texts[BOS] = first;
    if (!r->texts[CLS]) r->texts[CLS] = first;
  }
  set_flag(r, "bos", same(first, r->texts[BOS]) || same(first, r->texts[CLS]), true);
}

static void read_last(reader *r, const char *last) {
  if (!last) return;
  if (!same(last, r->texts[EOS])) {
    r->texts[EOT] = r->texts[EOS];
    r->texts[EOS] = last;
  }
  set_flag(r, "eos", true, true);
}

/* Of a pair "A separators B" whether there are separators. */
static void read_pair(reader *r, const cJSON *pair, const char *first, const char *last) {
  int begin = 0, end = cJSON_GetArraySize(pair);
  if (first && same(name_in(cJSON_GetArrayItem(pair, 0), "SpecialToken"), first)) begin++;
  if (last && end && same(name_in(cJSON_GetArrayItem(pair, end - 1), "SpecialToken"), last)) end--;
  if (end - begin < 3 || !same(name_in(cJSON_GetArrayItem(pair, begin), "Sequence"), "A") ||
      !same(name_in(cJSON_GetArrayItem(pair, end - 1), "Sequence"), "B"))
    return;
  bool adds = false;
  for (int i = begin + 1; i < end - 1; i++) {
    const char *name = name_in(cJSON_GetArrayItem(pair, i), "SpecialToken");
    bool separates = same(name, r->texts[SEP]) || same(name, r->texts[EOS]);
    if (i == begin + 1) adds = separates && !last;
    else if (end - begin == 4) adds |= separates;
  }
  set_flag(r, "sep", adds, true);
  if (adds && !r->texts[SEP]) r->texts[SEP] = r->texts[EOS];
}

static const char *first_in(const cJSON *list) {
  const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

static void read_roberta(reader *r, const cJSON *processor) {
  set_flag(r, "bos", true, true);
  set_flag(r, "eos", true, true);
  set_flag(r, "sep", true, true);
  if (!r->texts[CLS]) r->texts[CLS] = first_in(tsr_json_get(processor, "cls"));
  if (!r->texts[SEP]) r->texts[SEP] = first_in(tsr_json_get(processor, "sep"));
}

static void read_processor(reader *r, const cJSON *processor) {
  const cJSON *type = tsr_json_get(processor, "type"), *single = tsr_json_get(processor, "single");
  const char *kind = cJSON_IsString(type) ? type->valuestring : "";
  if (!strcmp(kind, "ByteLevel")) {
    set_flag(r, "bos", false, false);
    set_flag(r, "eos", false, false);
  }
  if (!strcmp(kind, "RobertaProcessing")) read_roberta(r, processor);
  if (strcmp(kind, "TemplateProcessing")) return;
  int count = cJSON_GetArraySize(single);
  const char *first = count > 1 ? name_in(cJSON_GetArrayItem(single, 0), "SpecialToken") : NULL;
  const char *last =
      count > 1 ? name_in(cJSON_GetArrayItem(single, count - 1), "SpecialToken") : NULL;
  read_first(r, first);
  read_last(r, last);
  read_pair(r, tsr_json_get(processor, "pair"), first, last);
}

static void read_post_processor(reader *r, const cJSON *json) {
  const cJSON *processor = tsr_json_get(json, "post_processor"), *inner;
  const cJSON *list = tsr_json_get(processor, "processors");
  if (!list) {
    read_processor(r, processor);
    return;
  }
  cJSON_ArrayForEach(inner, list) read_processor(r, inner);
}

/* ---- the normalizer ---- */

static void read_normalizer(reader *r, const cJSON *normalizer) {
  const cJSON *type = tsr_json_get(normalizer, "type"), *inner;
  const char *kind = cJSON_IsString(type) ? type->valuestring : "";
  if (!strcmp(kind, "Lowercase")) r->to->lowercase.has = r->to->lowercase.value = true;
  if (!strcmp(kind, "StripAccents")) r->to->strip_accents.has = r->to->strip_accents.value = true;
  if (!strcmp(kind, "BertNormalizer")) {
    const cJSON *lowercase = tsr_json_get(normalizer, "lowercase");
    const cJSON *strip = tsr_json_get(normalizer, "strip_accents");
    if (cJSON_IsBool(lowercase))
      r->to->lowercase.has = true, r->to->lowercase.value = cJSON_IsTrue(lowercase);
    if (cJSON_IsBool(strip))
      r->to->strip_accents.has = true, r->to->strip_accents.value = cJSON_IsTrue(strip);
  }
  if (strcmp(kind, "Sequence")) return;
  cJSON_ArrayForEach(inner, tsr_json_get(normalizer, "normalizers")) read_normalizer(r, inner);
}

/* ---- ids ---- */

static const char *text_in(const cJSON *config, const char *key) {
  const cJSON *entry = tsr_json_get(config, key);
  if (cJSON_IsObject(entry)) entry = tsr_json_get(entry, "content");
  return cJSON_IsString(entry) && *entry->valuestring ? entry->valuestring : NULL;
}

static void read_config(reader *r, const cJSON *config) {
  for (int k = 0; k < KINDS; k++) {
    const cJSON *adds = tsr_json_get(config, tsr_arena_printf(r->arena, "add_%s_token", kinds[k]));
    if (cJSON_IsBool(adds)) set_flag(r, kinds[k], cJSON_IsTrue(adds), false);
    if (r->texts[k]) set_id(r, kinds[k], id_of(r, r->texts[k]));
  }
}

static void read_generation(reader *r, const tsr_gguf_mapping *mapping, const cJSON *generation) {
  static const int named[] = {BOS, EOS, PAD};
  int64_t pad;
  bool has_pad = tsr_gguf_mapped_size(mapping, "pad_token", &pad); /* as config.json has it */
  for (int i = 0; i < 3; i++) {
    int k = named[i];
    if (k == PAD && has_pad) continue;
    set_id(
        r, kinds[k], tsr_json_get(generation, tsr_arena_printf(r->arena, "%s_token_id", kinds[k])));
  }
  if (!has_pad || pad < 0) return;
  cJSON number = {.type = cJSON_Number, .valuedouble = (double)pad, .valueint = (int)pad};
  set_id(r, "pad", &number);
}

/* Where an architecture's files name further ones: `special: {eot: "<|user|>"}`. */
static bool read_own(reader *r, const tsr_gguf_mapping *mapping, tsr_diags *diags) {
  const tsr_yaml *special = tsr_gguf_mapping_tokenizer(mapping, "special");
  for (int i = 0; special && i < special->count; i++) {
    const cJSON *id = id_of(r, special->items[i]->text);
    if (!id)
      return tsr_diag_error(
          diags, TSR_NOWHERE, "the tokenizer has no token '%s', which llama.cpp's %s needs",
          special->items[i]->text, tsr_gguf_architecture(mapping));
    set_id(r, special->keys[i]->text, id);
  }
  return true;
}

bool tsr_gguf_special_tokens_read(
    tsr_arena *arena, const tsr_gguf_mapping *mapping, const cJSON *json, const cJSON *config,
    const cJSON *generation, bool writes_flags, int64_t ids_end, tsr_gguf_special_tokens *ret,
    tsr_diags *diags) {
  reader r = {
      .arena = arena, .added = tsr_json_get(json, "added_tokens"), .ids_end = ids_end, .to = ret};
  *ret = (tsr_gguf_special_tokens){0};
  const cJSON *prefix = tsr_json_get(config, "add_prefix_space");
  ret->has_prefix = cJSON_IsBool(prefix) && tsr_gguf_mapping_tokenizer(mapping, "space_prefix");
  ret->prefix = cJSON_IsTrue(prefix);
  for (int k = 0; k < EOT; k++)
    r.texts[k] = text_in(config, tsr_arena_printf(arena, "%s_token", kinds[k]));
  if (!r.texts[BOS]) r.texts[BOS] = r.texts[CLS];
  if (!r.texts[EOS]) r.texts[EOS] = r.texts[SEP];
  read_normalizer(&r, tsr_json_get(json, "normalizer"));
  read_post_processor(&r, json);
  read_config(&r, config);
  read_generation(&r, mapping, generation);
  bool no_bos;
  if (!read_own(&r, mapping, diags)) return false;
  if (writes_flags) {
    set_flag(&r, "bos", false, false);
    set_flag(&r, "eos", false, false);
  }
  if (!tsr_gguf_mapping_condition(mapping, "tokenizer", "no_bos", &no_bos, diags)) return false;
  if (no_bos) set_flag(&r, "bos", false, true);
  return true;
}

bool tsr_gguf_special_tokens_flag(
    const tsr_gguf_special_tokens *s, const char *kind, bool otherwise) {
  for (int i = 0; i < s->flags_count; i++)
    if (!strcmp(s->flags[i].kind, kind)) return s->flags[i].added;
  return otherwise;
}

/* ---- metadata ---- */

void tsr_gguf_special_tokens_add_prefix(
    const tsr_gguf_special_tokens *s, tsr_gguf_metadata *metadata) {
  if (s->has_prefix) tsr_gguf_add_bool(metadata, "tokenizer.ggml.add_space_prefix", s->prefix);
}

void tsr_gguf_special_tokens_add(
    tsr_arena *arena, const tsr_gguf_special_tokens *s, tsr_gguf_metadata *metadata) {
  static const struct {
    const char *kind, *key;
  } keys[] = {{"bos", "bos_token_id"},     {"eos", "eos_token_id"},
              {"unk", "unknown_token_id"}, {"sep", "seperator_token_id"},
              {"pad", "padding_token_id"}, {"mask", "mask_token_id"},
              {"eot", "eot_token_id"},     {"eom", "eom_token_id"}};
  for (int i = 0; i < s->ids_count; i++)
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
      if (!strcmp(keys[k].kind, s->ids[i].kind))
        tsr_gguf_add_u32(
            metadata, tsr_arena_printf(arena, "tokenizer.ggml.%s", keys[k].key), s->ids[i].id);
  for (int i = 0; i < s->flags_count; i++) {
    const char *kind = s->flags[i].kind;
    if (strcmp(kind, "bos") && strcmp(kind, "eos") && strcmp(kind, "sep")) continue;
    tsr_gguf_add_bool(
        metadata, tsr_arena_printf(arena, "tokenizer.ggml.add_%s_token", kind), s->flags[i].added);
  }
}

void tsr_gguf_special_tokens_add_normalizer(
    const tsr_gguf_special_tokens *s, tsr_gguf_metadata *metadata) {
  if (s->lowercase.has)
    tsr_gguf_add_bool(metadata, "tokenizer.ggml.normalizer.lowercase", s->lowercase.value);
  if (s->strip_accents.has)
    tsr_gguf_add_bool(metadata, "tokenizer.ggml.normalizer.strip_accents", s->strip_accents.value);
}
