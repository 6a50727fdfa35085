// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_vocabulary.h"
#include "base/file_read.h"
#include "checkpoint/gguf_pre_tokenizer.h"
#include "checkpoint/gguf_special_tokens.h"
#include "checkpoint/gguf_tokenizer_warnings.h"
#include "checkpoint/gguf_tokens.h"
#include <string.h>

enum { BYTES_MAX = 1 << 28 };

/* How a tokenizer is written. */
typedef enum {
  NUMBERS,       /* there is none */
  BYTE_LEVEL,    /* BPE on bytes */
  PIECES,        /* a tokenizer.model */
  BYTE_FALLBACK, /* BPE on characters with tokens of bytes, as SentencePiece's without scores */
} written_as;

typedef struct {
  tsr_arena *arena;
  const char *folder, *path; /* of tokenizer.json */
  const tsr_gguf_mapping *mapping;
  int64_t vocab_size;
  cJSON *json, *config, *generation; /* NULL where a file does not exist */
  tsr_gguf_tokens tokens;
  tsr_gguf_special_tokens special;
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

/* ---- merges ---- */

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

/* And what lies behind it. */
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
  tsr_gguf_special_tokens_add_normalizer(&v->special, v->to);
  return true;
}

/* ---- all of it ---- */

static bool check_ends(vocabulary *v) {
  for (int i = 0; i < v->special.ids_count; i++)
    if (!strcmp(v->special.ids[i].kind, "eos")) return true;
  tsr_diag_warning(
      v->diags, TSR_NOWHERE,
      "'%s': neither tokenizer_config.json nor generation_config.json names a token that ends a "
      "text: llama.cpp takes token %d",
      v->folder, v->tokens.has_scores ? 2 : 11);
  return true;
}

static bool check_byte_level(const vocabulary *v, const tsr_subword *subword) {
  if (tsr_subword_is_byte_level(subword)) return true;
  bool takes_pieces = tsr_gguf_mapping_tokenizer(v->mapping, "sentencepiece") != NULL;
  tsr_diag_error(
      v->diags, TSR_NOWHERE, "'%s': this tokenizer is %s, the only kind%s exported to GGUF%s",
      v->path,
      takes_pieces ? "neither byte-level BPE nor SentencePiece's BPE" : "no byte-level BPE",
      takes_pieces ? "s that are" : " that is", takes_pieces ? "" : " with this architecture");
  if (takes_pieces)
    tsr_diag_hint(v->diags, "one that was made of a tokenizer.model needs that file beside it");
  else
    tsr_diag_hint(
        v->diags, "convert_hf_to_gguf.py of llama.cpp may convert what --format hf exports");
  return false;
}

static bool read_special(vocabulary *v, bool writes_flags, int64_t ids_end) {
  return tsr_gguf_special_tokens_read(
      v->arena, v->mapping, v->json, v->config, v->generation, writes_flags, ids_end, &v->special,
      v->diags);
}

/* `bos`: whether llama.cpp puts a token before texts where the file says nothing. */
static void warn_of_template(const vocabulary *v, const tsr_subword *subword, bool bos) {
  tsr_gguf_tokenizer_warn(v->path, v->json, subword, &v->tokens, v->diags);
  tsr_gguf_tokenizer_warn_of_ends(
      v->path, subword, tsr_gguf_special_tokens_flag(&v->special, "bos", bos),
      tsr_gguf_special_tokens_flag(&v->special, "eos", false), v->diags);
}

static void add_model(vocabulary *v, const char *model, const char *pre) {
  tsr_gguf_special_tokens_add_prefix(&v->special, v->to);
  tsr_gguf_add_text(v->to, "tokenizer.ggml.model", model);
  tsr_gguf_add_text(v->to, "tokenizer.ggml.pre", pre);
  tsr_gguf_tokens_add(&v->tokens, v->to);
}

static bool add_byte_level(vocabulary *v, const char *table) {
  tsr_subword *bpe;
  tsr_gguf_pre_tokenizer pre;
  const int32_t *before;
  if (!tsr_subword_read(v->arena, v->path, TSR_NOWHERE, &bpe, v->diags) ||
      !check_byte_level(v, bpe) ||
      !tsr_gguf_pre_tokenizer_find(v->arena, table, bpe, v->json, v->path, &pre, v->diags) ||
      !read_special(v, !pre.is_known, 0) ||
      !tsr_gguf_tokens_bpe(v->arena, v->path, v->json, v->vocab_size, &v->tokens, v->diags))
    return false;
  add_model(v, "gpt2", pre.name);
  add_merges(v);
  warn_of_template(v, bpe, tsr_subword_before(bpe, &before) > 0);
  tsr_gguf_special_tokens_add(v->arena, &v->special, v->to);
  return add_chat_template(v) && check_ends(v);
}

/* ---- SentencePiece ---- */

static const char *pieces_path(const vocabulary *v) {
  return tsr_path_join(v->arena, v->folder, "tokenizer.model");
}

static bool read_pieces(vocabulary *v) {
  const char *path = pieces_path(v);
  tsr_sentencepiece_model model;
  bool added = tsr_gguf_mapping_tokenizer(v->mapping, "added_tokens") != NULL;
  if (!tsr_sentencepiece_read(v->arena, path, &model, v->diags)) return false;
  if (!model.is_bpe)
    return tsr_diag_error(
        v->diags, TSR_NOWHERE,
        "'%s' is no BPE, the only kind of SentencePiece's models that llama.cpp's tokenizer "
        "'llama' divides texts with",
        path);
  return tsr_gguf_tokens_pieces(
      v->arena, path, &model, v->json, v->config,
      added ? tsr_json_get(v->json, "added_tokens") : NULL, !added, v->vocab_size, &v->tokens,
      v->diags);
}

static bool read_byte_fallback(vocabulary *v) {
  if (!tsr_gguf_tokens_byte_fallback(
          v->arena, v->path, v->json, v->config, v->vocab_size, &v->tokens, v->diags))
    return false;
  tsr_diag_warning(
      v->diags, TSR_NOWHERE,
      "'%s' has no tokenizer.model beside it: its tokens have no scores in the GGUF file, and "
      "llama.cpp divides texts into other tokens than this tokenizer",
      v->path);
  return true;
}

/* A tokenizer.json that cannot be read here is none to compare with. */
static void warn_of_sentencepiece(const vocabulary *v, bool no_prefix) {
  tsr_subword *subword;
  bool prefix = !no_prefix && (!v->special.has_prefix || v->special.prefix);
  if (!v->json ||
      !tsr_subword_read(v->arena, v->path, TSR_NOWHERE, &subword, tsr_diags_new(v->arena)))
    return;
  warn_of_template(v, subword, true);
  tsr_gguf_tokenizer_warn_of_prefix(v->arena, v->path, v->json, subword, prefix, v->diags);
}

static bool add_sentencepiece(vocabulary *v, written_as kind) {
  bool no_prefix = tsr_gguf_mapping_tokenizer(v->mapping, "no_space_prefix") != NULL;
  if (!read_special(v, false, v->vocab_size) ||
      !(kind == PIECES ? read_pieces(v) : read_byte_fallback(v)))
    return false;
  add_model(v, "llama", "default");
  tsr_gguf_special_tokens_add(v->arena, &v->special, v->to);
  if (!add_chat_template(v)) return false;
  if (no_prefix) tsr_gguf_add_bool(v->to, "tokenizer.ggml.add_space_prefix", false);
  tsr_gguf_tokenizer_warn_of_bytes(kind == PIECES ? pieces_path(v) : v->path, &v->tokens, v->diags);
  warn_of_sentencepiece(v, no_prefix);
  return check_ends(v);
}

static bool is_byte_level(const vocabulary *v) {
  tsr_subword *subword;
  return tsr_subword_read(v->arena, v->path, TSR_NOWHERE, &subword, tsr_diags_new(v->arena)) &&
         tsr_subword_is_byte_level(subword);
}

static bool has_byte_fallback(const vocabulary *v) {
  const cJSON *model = tsr_json_get(v->json, "model");
  const cJSON *type = tsr_json_get(model, "type");
  const cJSON *decoder = tsr_json_get(tsr_json_get(v->json, "decoder"), "type");
  return cJSON_IsString(type) && !strcmp(type->valuestring, "BPE") &&
         cJSON_IsTrue(tsr_json_get(model, "byte_fallback")) && cJSON_IsString(decoder) &&
         !strcmp(decoder->valuestring, "Sequence");
}

/* As the converter's class of the architecture finds it. */
static written_as find_kind(const vocabulary *v) {
  const tsr_yaml *takes = tsr_gguf_mapping_tokenizer(v->mapping, "sentencepiece");
  written_as without = v->json ? BYTE_LEVEL : NUMBERS;
  if (!takes || (v->json && is_byte_level(v))) return without;
  if (tsr_file_exists(pieces_path(v))) return PIECES;
  return !strcmp(takes->text, "any") && has_byte_fallback(v) ? BYTE_FALLBACK : without;
}

bool tsr_gguf_vocabulary_add(
    tsr_arena *arena, const char *folder, const char *name, const char *table,
    const tsr_gguf_mapping *mapping, tsr_gguf_metadata *metadata, tsr_diags *diags) {
  vocabulary v = {
      .arena = arena, .folder = folder, .mapping = mapping, .to = metadata, .diags = diags};
  v.path = tsr_path_join(arena, folder, "tokenizer.json");
  tsr_gguf_mapped_size(mapping, "vocab_size", &v.vocab_size);
  if (!read_json(&v, "tokenizer.json", &v.json) ||
      !read_json(&v, "tokenizer_config.json", &v.config) ||
      !read_json(&v, "generation_config.json", &v.generation))
    return false;
  written_as kind = find_kind(&v);
  if (kind != NUMBERS) {
    bool ok = kind == BYTE_LEVEL ? add_byte_level(&v, table) : add_sentencepiece(&v, kind);
    if (ok) tsr_gguf_tokenizer_warn_of_name(name, &v.tokens, diags);
    return ok;
  }
  if (!tsr_gguf_mapping_has_key(mapping, "vocab_size"))
    tsr_gguf_add_u32(
        metadata, tsr_arena_printf(arena, "%s.vocab_size", tsr_gguf_architecture(mapping)),
        (uint32_t)v.vocab_size);
  tsr_gguf_add_text(metadata, "tokenizer.ggml.model", "none");
  return true;
}
