// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_vocabulary.h"
#include "base/file_read.h"
#include "checkpoint/gguf_pre_tokenizer.h"
#include "checkpoint/gguf_special_tokens.h"
#include <inttypes.h>
#include <string.h>

enum { BYTES_MAX = 1 << 28 };
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 }; /* types of tokens */

typedef struct {
  const char *text;
  int type;
} token;

typedef struct {
  tsr_arena *arena;
  const char *folder, *path; /* of tokenizer.json */
  const tsr_gguf_mapping *mapping;
  int64_t vocab_size;
  cJSON *json, *config, *generation; /* NULL where a file does not exist */
  token *tokens;                     /* (vocab_size) */
  tsr_gguf_metadata *to;
  tsr_diags *diags;
} vocabulary;

static bool read_file(vocabulary *v, const char *name, char **ret_text, size_t *ret_length) {
  const char *path = tsr_path_join(v->arena, v->folder, name);
  *ret_text = NULL;
  return !tsr_file_exists(path) ||
         tsr_file_read_nofollow(
             v->arena, path, BYTES_MAX, TSR_NOWHERE, ret_text, ret_length, v->diags);
}

static bool read_json(vocabulary *v, const char *name, cJSON **ret_json) {
  char *text;
  size_t length;
  *ret_json = NULL;
  if (!read_file(v, name, &text, &length)) return false;
  return !text ||
         tsr_json_parse(
             v->arena, tsr_path_join(v->arena, v->folder, name), text, length, ret_json, v->diags);
}

/* ---- tokens ---- */

static bool set_token(vocabulary *v, const char *text, const cJSON *id, int type) {
  if (!cJSON_IsNumber(id) || id->valuedouble < 0 || id->valuedouble >= (double)v->vocab_size)
    return tsr_diag_error(
        v->diags, TSR_NOWHERE, "'%s': token '%s' is outside the model's %" PRId64 " tokens",
        v->path, text, v->vocab_size);
  v->tokens[id->valueint] = (token){text, type};
  return true;
}

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

static bool read_tokens(vocabulary *v) {
  const cJSON *item;
  cJSON_ArrayForEach(item, tsr_json_get(tsr_json_get(v->json, "model"), "vocab")) {
    if (!set_token(v, item->string, item, NORMAL)) return false;
  }
  cJSON_ArrayForEach(item, tsr_json_get(v->json, "added_tokens")) {
    const cJSON *content = tsr_json_get(item, "content");
    const char *text = cJSON_IsString(content) ? content->valuestring : "";
    bool control = cJSON_IsTrue(tsr_json_get(item, "special")) || looks_special(text);
    if (!control) text = with_spaces(v->arena, text);
    if (!set_token(v, text, tsr_json_get(item, "id"), control ? CONTROL : USER_DEFINED))
      return false;
  }
  for (int64_t i = 0; i < v->vocab_size; i++)
    if (!v->tokens[i].text)
      v->tokens[i] = (token){tsr_arena_printf(v->arena, "[PAD%" PRId64 "]", i), UNUSED};
  return true;
}

static void add_tokens(vocabulary *v) {
  uint64_t count = (uint64_t)v->vocab_size;
  tsr_gguf_add_array(v->to, "tokenizer.ggml.tokens", TSR_GGUF_ARRAY_TEXT, count);
  for (int64_t i = 0; i < v->vocab_size; i++)
    tsr_gguf_put_text(v->to, v->tokens[i].text, strlen(v->tokens[i].text));
  tsr_gguf_add_array(v->to, "tokenizer.ggml.token_type", TSR_GGUF_ARRAY_I32, count);
  for (int64_t i = 0; i < v->vocab_size; i++) tsr_gguf_put_u32(v->to, (uint32_t)v->tokens[i].type);
}

/* "a b"; a space inside a part is the letter that byte-level vocabularies have for it. */
static void add_part(tsr_text *text, const char *part) {
  for (; *part; part++)
    if (*part == ' ') tsr_text_add(text, "Ġ");
    else tsr_text_add_bytes(text, part, 1);
}

static void add_merges(vocabulary *v) {
  const cJSON *merges = tsr_json_get(tsr_json_get(v->json, "model"), "merges"), *item;
  int count = cJSON_GetArraySize(merges);
  if (!count) return;
  tsr_gguf_add_array(v->to, "tokenizer.ggml.merges", TSR_GGUF_ARRAY_TEXT, (uint64_t)count);
  tsr_text text = {0};
  cJSON_ArrayForEach(item, merges) {
    text.length = 0;
    if (cJSON_IsString(item)) {
      tsr_text_add(&text, "%s", item->valuestring);
    } else if (item->child && item->child->next) {
      add_part(&text, item->child->valuestring);
      tsr_text_add(&text, " ");
      add_part(&text, item->child->next->valuestring);
    }
    tsr_gguf_put_text(v->to, text.data, text.length);
  }
  tsr_text_free(&text);
}

/* ---- chat templates ---- */

static void add_named_template(vocabulary *v, const char *name, const char *template) {
  char *key = tsr_arena_printf(v->arena, "tokenizer.chat_template.%s", name);
  for (char *c = key + strlen("tokenizer.chat_template."); *c; c++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *c)) *c = '_';
  tsr_gguf_add_text(v->to, key, template);
}

/* A list of {name, template}; that of the name default is the chat template. */
static const char *add_templates(vocabulary *v, const cJSON *list) {
  const char *whole = NULL;
  const cJSON *item;
  cJSON_ArrayForEach(item, list) {
    const cJSON *name = tsr_json_get(item, "name"), *template = tsr_json_get(item, "template");
    if (!cJSON_IsString(name) || !cJSON_IsString(template)) continue;
    if (!strcmp(name->valuestring, "default")) whole = template->valuestring;
    else add_named_template(v, name->valuestring, template->valuestring);
  }
  return whole;
}

static bool add_chat_template(vocabulary *v) {
  const cJSON *own = tsr_json_get(v->config, "chat_template");
  const char *template = cJSON_IsString(own) ? own->valuestring : NULL;
  char *text;
  size_t length;
  cJSON *json;
  if (cJSON_IsArray(own)) template = add_templates(v, own);
  if (!own) {
    if (!read_file(v, "chat_template.jinja", &text, &length) ||
        !read_json(v, "chat_template.json", &json))
      return false;
    const cJSON *inner = tsr_json_get(json, "chat_template");
    template = text ? text : cJSON_IsString(inner) ? inner->valuestring : NULL;
  }
  if (template && *template) tsr_gguf_add_text(v->to, "tokenizer.chat_template", template);
  return true;
}

/* ---- all of it ---- */

static bool check_ends(vocabulary *v, const tsr_gguf_special_tokens *special) {
  for (int i = 0; i < special->ids_count; i++)
    if (!strcmp(special->ids[i].kind, "eos")) return true;
  tsr_diag_warning(
      v->diags, TSR_NOWHERE,
      "'%s': neither tokenizer_config.json nor generation_config.json names a token that ends a "
      "text: llama.cpp takes token 11",
      v->folder);
  return true;
}

static bool check_byte_level(const vocabulary *v, const tsr_subword *subword) {
  if (tsr_subword_is_byte_level(subword)) return true;
  tsr_diag_error(
      v->diags, TSR_NOWHERE,
      "'%s': this tokenizer is no byte-level BPE, the only kind that is exported to GGUF", v->path);
  tsr_diag_hint(
      v->diags, "convert_hf_to_gguf.py of llama.cpp may convert what --format hf exports");
  return false;
}

static bool add_bpe(vocabulary *v, const char *table) {
  tsr_subword *bpe;
  tsr_gguf_pre_tokenizer pre;
  tsr_gguf_special_tokens special;
  if (!tsr_subword_read(v->arena, v->path, TSR_NOWHERE, &bpe, v->diags) ||
      !check_byte_level(v, bpe) ||
      !tsr_gguf_pre_tokenizer_find(v->arena, table, bpe, v->json, v->path, &pre, v->diags) ||
      !tsr_gguf_special_tokens_read(
          v->arena, v->mapping, v->json, v->config, v->generation, !pre.is_known, &special,
          v->diags) ||
      !read_tokens(v))
    return false;
  tsr_gguf_special_tokens_add_prefix(&special, v->to);
  tsr_gguf_add_text(v->to, "tokenizer.ggml.model", "gpt2");
  tsr_gguf_add_text(v->to, "tokenizer.ggml.pre", pre.name);
  add_tokens(v);
  add_merges(v);
  tsr_gguf_special_tokens_add(v->arena, &special, v->to);
  return add_chat_template(v) && check_ends(v, &special);
}

bool tsr_gguf_vocabulary_add(
    tsr_arena *arena, const char *folder, const char *table, const tsr_gguf_mapping *mapping,
    tsr_gguf_metadata *metadata, tsr_diags *diags) {
  vocabulary v = {
      .arena = arena, .folder = folder, .mapping = mapping, .to = metadata, .diags = diags};
  v.path = tsr_path_join(arena, folder, "tokenizer.json");
  tsr_gguf_mapped_size(mapping, "vocab_size", &v.vocab_size);
  v.tokens = tsr_arena_array(arena, token, v.vocab_size + 1);
  memset(v.tokens, 0, sizeof *v.tokens * (size_t)(v.vocab_size + 1));
  if (!read_json(&v, "tokenizer.json", &v.json) ||
      !read_json(&v, "tokenizer_config.json", &v.config) ||
      !read_json(&v, "generation_config.json", &v.generation))
    return false;
  if (v.json) return add_bpe(&v, table);
  if (!tsr_gguf_mapping_has_key(mapping, "vocab_size"))
    tsr_gguf_add_u32(
        metadata, tsr_arena_printf(arena, "%s.vocab_size", tsr_gguf_architecture(mapping)),
        (uint32_t)v.vocab_size);
  tsr_gguf_add_text(metadata, "tokenizer.ggml.model", "none");
  return true;
}
