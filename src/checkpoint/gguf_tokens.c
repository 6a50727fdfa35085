// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_tokens.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
  NORMAL = 1,
  UNKNOWN,
  CONTROL,
  USER_DEFINED,
  UNUSED,
  BYTE
} token_type; /* llama.cpp's */

struct tsr_gguf_token {
  const char *text;
  token_type type;
  float score;
};

/* The converter's scores of what is no piece. */
static const float added_score = -1000, unused_score = -10000;

typedef struct {
  tsr_arena *arena;
  const char *path; /* what errors name */
  tsr_gguf_tokens *to;
  tsr_diags *diags;
} lister;

static void begin(lister *l, int64_t vocab_size, bool has_scores) {
  *l->to = (tsr_gguf_tokens){.count = vocab_size, .has_scores = has_scores};
  l->to->items = tsr_arena_array(l->arena, tsr_gguf_token, vocab_size + 1);
  for (int64_t i = 0; i < vocab_size; i++)
    l->to->items[i] = (tsr_gguf_token){NULL, UNUSED, unused_score};
}

static bool set(lister *l, const char *text, const cJSON *id, token_type type) {
  if (!cJSON_IsNumber(id) || id->valuedouble < 0 || id->valuedouble >= (double)l->to->count)
    return tsr_diag_error(
        l->diags, TSR_NOWHERE, "'%s': token '%s' is outside the model's %" PRId64 " tokens",
        l->path, text, l->to->count);
  l->to->items[id->valueint] = (tsr_gguf_token){text, type, added_score};
  return true;
}

static void fill(lister *l) {
  for (int64_t i = 0; i < l->to->count; i++)
    if (!l->to->items[i].text)
      l->to->items[i].text = tsr_arena_printf(l->arena, "[PAD%" PRId64 "]", i);
}

static const char *content_of(const cJSON *token) {
  const cJSON *content = tsr_json_get(token, "content");
  return cJSON_IsString(content) ? content->valuestring : "";
}

static bool is_special(const cJSON *token) { return cJSON_IsTrue(tsr_json_get(token, "special")); }

static bool is_between(const char *text, const char *begin, const char *end) {
  size_t length = strlen(text), front = strlen(begin), back = strlen(end);
  return length >= front + back && !strncmp(text, begin, front) &&
         !strcmp(text + length - back, end);
}

/* Some files have control tokens that are not marked as such. */
static bool looks_special(const char *text) {
  static const char *const words[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(text, words[i])) return true;
  return is_between(text, "<|", "|>") || is_between(text, "<｜", "｜>") ||
         is_between(text, "<unused", ">");
}

/* What SentencePiece writes for a space is one. */
static const char *with_spaces(tsr_arena *arena, const char *text) {
  static const char mark[] = "▁";
  const char *at = strstr(text, mark);
  if (!at) return text;
  return tsr_arena_printf(
      arena, "%.*s %s", (int)(at - text), text, with_spaces(arena, at + strlen(mark)));
}

static bool set_added(lister *l, const cJSON *token, const cJSON *id, bool looks) {
  const char *text = content_of(token);
  bool control = is_special(token) || (looks && looks_special(text));
  if (looks && !control) text = with_spaces(l->arena, text);
  return set(l, text, id, control ? CONTROL : USER_DEFINED);
}

bool tsr_gguf_tokens_bpe(
    tsr_arena *arena, const char *path, const cJSON *json, int64_t vocab_size, tsr_gguf_tokens *ret,
    tsr_diags *diags) {
  lister l = {arena, path, ret, diags};
  const cJSON *item;
  begin(&l, vocab_size, false);
  cJSON_ArrayForEach(item, tsr_json_get(tsr_json_get(json, "model"), "vocab")) {
    if (!set(&l, item->string, item, NORMAL)) return false;
  }
  cJSON_ArrayForEach(item, tsr_json_get(json, "added_tokens")) {
    if (!set_added(&l, item, tsr_json_get(item, "id"), true)) return false;
  }
  fill(&l);
  return true;
}

/* ---- a tokenizer.model ---- */

static bool set_pieces(lister *l, const tsr_sentencepiece_model *model) {
  static const token_type types[] = {
      [TSR_PIECE_NORMAL] = NORMAL,   [TSR_PIECE_UNKNOWN] = UNKNOWN,
      [TSR_PIECE_CONTROL] = CONTROL, [TSR_PIECE_USER_DEFINED] = NORMAL,
      [TSR_PIECE_UNUSED] = UNUSED,   [TSR_PIECE_BYTE] = BYTE};
  if (model->count > l->to->count)
    return tsr_diag_error(
        l->diags, TSR_NOWHERE, "'%s' has %d tokens, the model %" PRId64, l->path, model->count,
        l->to->count);
  for (int i = 0; i < model->count; i++) {
    const tsr_sentencepiece *p = &model->pieces[i];
    l->to->items[i] = (tsr_gguf_token){p->text, types[p->type], p->score};
  }
  return true;
}

static bool is_added(const cJSON *json, int id) {
  const cJSON *item;
  cJSON_ArrayForEach(item, tsr_json_get(json, "added_tokens")) {
    const cJSON *own = tsr_json_get(item, "id");
    if (cJSON_IsNumber(own) && own->valueint == id) return true;
  }
  return false;
}

/* A tokenizer.model may lie beside another tokenizer's tokenizer.json. */
static bool check_same(const lister *l, const tsr_sentencepiece_model *model, const cJSON *json) {
  const cJSON *item;
  cJSON_ArrayForEach(item, tsr_json_get(tsr_json_get(json, "model"), "vocab")) {
    int id = item->valueint;
    if (id < 0 || id >= model->count || !strcmp(model->pieces[id].text, item->string) ||
        is_added(json, id))
      continue;
    return tsr_diag_error(
        l->diags, TSR_NOWHERE,
        "'%s' is another tokenizer's than tokenizer.json beside it: token %d is '%s' there, '%s' "
        "here",
        l->path, id, item->string, model->pieces[id].text);
  }
  return true;
}

static bool set_decoder(lister *l, const cJSON *config, bool looks) {
  const cJSON *item;
  cJSON_ArrayForEach(item, tsr_json_get(config, "added_tokens_decoder")) {
    char *end;
    long long number = strtoll(item->string, &end, 10);
    cJSON id = {.type = cJSON_Number, .valuedouble = (double)number, .valueint = (int)number};
    if (*end || end == item->string || number < 0)
      return tsr_diag_error(
          l->diags, TSR_NOWHERE,
          "tokenizer_config.json beside '%s': '%s' in added_tokens_decoder is no token", l->path,
          item->string);
    if (number < l->to->count && !set_added(l, item, &id, looks)) return false;
  }
  return true;
}

bool tsr_gguf_tokens_pieces(
    tsr_arena *arena, const char *path, const tsr_sentencepiece_model *model, const cJSON *json,
    const cJSON *config, const cJSON *added, bool looks, int64_t vocab_size, tsr_gguf_tokens *ret,
    tsr_diags *diags) {
  lister l = {arena, path, ret, diags};
  const cJSON *item;
  begin(&l, vocab_size, true);
  if (!set_pieces(&l, model) || !check_same(&l, model, json) || !set_decoder(&l, config, looks))
    return false;
  cJSON_ArrayForEach(item, added) {
    if (!set_added(&l, item, tsr_json_get(item, "id"), looks)) return false;
  }
  fill(&l);
  return true;
}

/* ---- byte fallback ---- */

static bool is_byte(const char *text) {
  return strlen(text) == 6 && !strncmp(text, "<0x", 3) && isxdigit((unsigned char)text[3]) &&
         isxdigit((unsigned char)text[4]) && text[5] == '>';
}

static bool holds(const cJSON *entry, const char *text) {
  const cJSON *item;
  if (cJSON_IsString(entry)) return !strcmp(entry->valuestring, text);
  if (!strcmp(content_of(entry), text)) return true;
  cJSON_ArrayForEach(item, entry) {
    if (holds(item, text)) return true;
  }
  return false;
}

/* As transformers lists special tokens: those of the configuration, and those of a class. */
static bool is_named(const cJSON *config, const char *text) {
  static const char *const keys[] = {
      "bos_token",           "eos_token", "unk_token",  "sep_token",
      "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
      "extra_special_tokens"};
  static const char *const llama[] = {"<s>", "</s>", "<unk>"}; /* bos, eos, unk */
  const cJSON *class = tsr_json_get(config, "tokenizer_class");
  bool of_llama = cJSON_IsString(class) && !strncmp(class->valuestring, "LlamaTokenizer", 14);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const cJSON *entry = tsr_json_get(config, keys[i]);
    if (entry ? holds(entry, text) : of_llama && i < 3 && !strcmp(llama[i], text)) return true;
  }
  return false;
}

bool tsr_gguf_tokens_byte_fallback(
    tsr_arena *arena, const char *path, const cJSON *json, const cJSON *config, int64_t vocab_size,
    tsr_gguf_tokens *ret, tsr_diags *diags) {
  lister l = {arena, path, ret, diags};
  const cJSON *item;
  begin(&l, vocab_size, true);
  cJSON_ArrayForEach(item, tsr_json_get(json, "added_tokens")) {
    const char *text = content_of(item);
    token_type type = is_named(config, text) ? CONTROL : USER_DEFINED;
    if (!set(&l, text, tsr_json_get(item, "id"), type)) return false;
  }
  cJSON_ArrayForEach(item, tsr_json_get(tsr_json_get(json, "model"), "vocab")) {
    token_type type = is_byte(item->string)            ? BYTE
                      : is_named(config, item->string) ? CONTROL
                                                       : NORMAL;
    if (!set(&l, item->string, item, type)) return false;
  }
  fill(&l);
  return true;
}

bool tsr_gguf_tokens_is_normal(const tsr_gguf_tokens *t, int64_t id) {
  return id >= 0 && id < t->count && t->items[id].type == NORMAL;
}

bool tsr_gguf_tokens_has(const tsr_gguf_tokens *t, const char *text) {
  for (int64_t i = 0; i < t->count; i++)
    if (!strcmp(t->items[i].text, text)) return true;
  return false;
}

int tsr_gguf_tokens_bytes(const tsr_gguf_tokens *t) {
  int count = 0;
  for (int64_t i = 0; i < t->count; i++) count += t->items[i].type == BYTE;
  return count;
}

void tsr_gguf_tokens_add(const tsr_gguf_tokens *t, tsr_gguf_metadata *to) {
  uint64_t count = (uint64_t)t->count;
  tsr_gguf_add_array(to, "tokenizer.ggml.tokens", TSR_GGUF_ARRAY_TEXT, count);
  for (int64_t i = 0; i < t->count; i++)
    tsr_gguf_put_text(to, t->items[i].text, strlen(t->items[i].text));
  if (t->has_scores) {
    tsr_gguf_add_array(to, "tokenizer.ggml.scores", TSR_GGUF_ARRAY_F32, count);
    for (int64_t i = 0; i < t->count; i++) tsr_gguf_put_f32(to, t->items[i].score);
  }
  tsr_gguf_add_array(to, "tokenizer.ggml.token_type", TSR_GGUF_ARRAY_I32, count);
  for (int64_t i = 0; i < t->count; i++) tsr_gguf_put_u32(to, (uint32_t)t->items[i].type);
}
