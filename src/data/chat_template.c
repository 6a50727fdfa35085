// SPDX-License-Identifier: Apache-2.0
#include "data/chat_template.h"
#include "base/file_read.h"
#include "base/json.h"
#include "data/chat_template_builtin.h"
#include <string.h>

enum { BYTES_MAX = 1 << 24 };

typedef struct {
  const char *file, *text; /* `file`: what messages name; NULL: there is none */
  size_t length;
} source;

struct tsr_chat_template {
  tsr_jinja_template *plain, *with_tools; /* NULL: none */
  tsr_jinja_dict *special;                /* bos_token, eos_token, … */
  const char *eos;
  tsr_location location;
  tsr_jinja_limits limits;
};

typedef struct {
  tsr_arena *arena;
  const char *folder;
  tsr_diags *diags;
  source plain, with_tools;
  tsr_chat_template *out;
} opener;

/* ---- files ---- */

/* True without a text where the file is missing. Files may be links, as in Hugging Face's cache. */
static bool read_file(opener *o, const char *name, source *ret) {
  char *text;
  *ret = (source){tsr_path_join(o->arena, o->folder, name), NULL, 0};
  if (!tsr_file_exists(ret->file)) return true;
  if (!tsr_file_read_regular(
          o->arena, ret->file, BYTES_MAX, TSR_NOWHERE, &text, &ret->length, o->diags))
    return false;
  ret->text = text;
  return true;
}

/* NULL where the file is missing. */
static bool read_object(opener *o, const char *name, const char **ret_path, cJSON **ret) {
  source file;
  *ret = NULL;
  if (!read_file(o, name, &file)) return false;
  *ret_path = file.file;
  if (!file.text) return true;
  if (!tsr_json_parse(o->arena, file.file, file.text, file.length, ret, o->diags)) return false;
  return cJSON_IsObject(*ret) ||
         tsr_diag_error(
             o->diags, (tsr_location){.file = file.file}, "the file should have a JSON object");
}

/* ---- templates ---- */

static source source_of(opener *o, const char *path, const char *name, const cJSON *text) {
  const char *file = name ? tsr_arena_printf(o->arena, "%s (chat_template '%s')", path, name)
                          : tsr_arena_printf(o->arena, "%s (chat_template)", path);
  return (source){file, text->valuestring, strlen(text->valuestring)};
}

/* The key "chat_template": a text, or a list of {"name": …, "template": …}. */
static bool take_key(opener *o, const char *path, const cJSON *config) {
  const cJSON *item = tsr_json_get(config, "chat_template"), *one;
  const tsr_location location = {.file = path};
  if (!item || cJSON_IsNull(item)) return true;
  if (cJSON_IsString(item)) return o->plain = source_of(o, path, NULL, item), true;
  if (!cJSON_IsArray(item))
    return tsr_diag_error(
        o->diags, location, "key 'chat_template' should be a string or a list of templates");
  cJSON_ArrayForEach(one, item) {
    const cJSON *name = tsr_json_get(one, "name"), *text = tsr_json_get(one, "template");
    if (!cJSON_IsString(name) || !cJSON_IsString(text))
      return tsr_diag_error(
          o->diags, location,
          "an item of 'chat_template' should have the strings 'name' and 'template'");
    bool has_tools = !strcmp(name->valuestring, "tool_use");
    if (has_tools || !strcmp(name->valuestring, "default"))
      *(has_tools ? &o->with_tools : &o->plain) = source_of(o, path, name->valuestring, text);
  }
  if (o->plain.text || o->with_tools.text) return true;
  return tsr_diag_error(o->diags, location, "no item of 'chat_template' is named 'default'");
}

static bool find_templates(opener *o, const char *config_path, const cJSON *config) {
  if (!read_file(o, "chat_template.jinja", &o->plain) ||
      !read_file(o, "additional_chat_templates/tool_use.jinja", &o->with_tools))
    return false;
  if (o->plain.text || o->with_tools.text) return true;
  if (config && !take_key(o, config_path, config)) return false;
  if (o->plain.text || o->with_tools.text) return true;
  cJSON *other;
  return read_object(o, "chat_template.json", &config_path, &other) &&
         (!other || take_key(o, config_path, other));
}

static bool parse(opener *o, const source *from, tsr_jinja_template **ret) {
  return !from->text ||
         tsr_jinja_parse(o->arena, from->file, from->text, from->length, ret, o->diags);
}

/* ---- special tokens ---- */

static void set_special(opener *o, const char *name, const char *text) {
  if (!tsr_jinja_get_text(o->out->special, name))
    tsr_jinja_set(o->arena, o->out->special, tsr_jinja_text(name), tsr_jinja_text(text));
}

static const char *const standard[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

static bool is_standard(const char *name) {
  for (size_t i = 0; i < sizeof standard / sizeof *standard; i++)
    if (!strcmp(standard[i], name)) return true;
  return false;
}

/* A token is a string, or an object whose "content" is one. */
static void take_token(opener *o, const char *name, const cJSON *item) {
  if (cJSON_IsObject(item)) item = tsr_json_get(item, "content");
  if (cJSON_IsString(item)) set_special(o, name, item->valuestring);
}

/* A list there names no tokens. */
static void take_named(opener *o, const cJSON *file, const char *key) {
  const cJSON *all = tsr_json_get(file, key), *item;
  if (!cJSON_IsObject(all)) return;
  cJSON_ArrayForEach(item, all) take_token(o, item->string, item);
}

/* The model's own tokens among the keys of a file: image_token, … */
static void take_own(opener *o, const cJSON *file) {
  static const char end[] = "_token";
  const cJSON *item;
  cJSON_ArrayForEach(item, file) {
    size_t length = strlen(item->string);
    if (length >= strlen(end) && !strcmp(item->string + length - strlen(end), end) &&
        !is_standard(item->string))
      take_token(o, item->string, item);
  }
}

/* As transformers 5 has it; what is taken first stays. special_tokens_map.json overrides
 * tokenizer_config.json, also with null, unless that has the key added_tokens_decoder; tokens with
 * names of the model's own are taken from both, and override the others. */
static void take_special(opener *o, const cJSON *config, const cJSON *map) {
  if (tsr_json_get(config, "added_tokens_decoder")) map = NULL;
  take_named(o, map, "extra_special_tokens");
  take_named(o, config, "extra_special_tokens");
  take_own(o, config);
  take_named(o, config, "model_specific_special_tokens");
  take_own(o, map);
  for (size_t i = 0; i < sizeof standard / sizeof *standard; i++) {
    const cJSON *item = tsr_json_get(map, standard[i]);
    take_token(o, standard[i], item ? item : tsr_json_get(config, standard[i]));
  }
}

/* What a folder without tokenizer_config.json leaves open. */
static void guess_special(opener *o, const tsr_tokenizer *tokenizer) {
  const int32_t *before;
  size_t length;
  int64_t end = tsr_tokenizer_end_of_text(tokenizer);
  if (tokenizer->kind != TSR_TOKENIZER_SUBWORD) return;
  if (tsr_subword_before(tokenizer->subword, &before) == 1) {
    const char *text = tsr_subword_token(tokenizer->subword, before[0], &length);
    set_special(o, "bos_token", tsr_arena_strndup(o->arena, text, length));
  }
  if (end < 0) return;
  const char *text = tsr_subword_token(tokenizer->subword, (int32_t)end, &length);
  set_special(o, "eos_token", tsr_arena_strndup(o->arena, text, length));
}

static const char *special_text(const opener *o, const char *name) {
  const tsr_jinja_value *v = tsr_jinja_get_text(o->out->special, name);
  return v ? tsr_arena_strndup(o->arena, v->string.bytes, (size_t)v->string.length) : NULL;
}

static bool read_special(opener *o, const cJSON *config, const tsr_tokenizer *tokenizer) {
  const char *path;
  cJSON *map = NULL;
  if (o->folder && !read_object(o, "special_tokens_map.json", &path, &map)) return false;
  take_special(o, config, map);
  if (!config) guess_special(o, tokenizer);
  o->out->eos = special_text(o, "eos_token");
  return true;
}

/* ---- opening ---- */

static bool read_named_file(opener *o, const char *file, tsr_location location) {
  char *text;
  o->plain = (source){.file = file};
  if (!tsr_file_read(o->arena, file, BYTES_MAX, location, &text, &o->plain.length, o->diags))
    return false;
  o->plain.text = text;
  return true;
}

bool tsr_chat_template_open(
    tsr_arena *arena, const char *folder, const char *file, const tsr_tokenizer *tokenizer,
    tsr_location location, const tsr_chat_template **ret_template, tsr_diags *diags) {
  tsr_chat_template *t = tsr_arena_alloc(arena, sizeof *t);
  opener o = {.arena = arena, .folder = folder, .diags = diags, .out = t};
  t->special = tsr_jinja_new_dict(arena, TSR_JINJA_DICT).dict;
  t->location = location;
  const char *path = NULL;
  cJSON *config = NULL;
  if (folder && !read_object(&o, "tokenizer_config.json", &path, &config)) return false;
  if (!read_special(&o, config, tokenizer)) return false;
  if (file ? !read_named_file(&o, file, location) : folder && !find_templates(&o, path, config))
    return false;
  if (!o.plain.text && !o.with_tools.text) {
    const char *text = tsr_chat_template_builtin(tokenizer);
    o.plain = (source){"(built-in chat template)", text, text ? strlen(text) : 0};
  }
  *ret_template = t;
  return parse(&o, &o.plain, &t->plain) && parse(&o, &o.with_tools, &t->with_tools);
}

bool tsr_chat_template_special(
    tsr_arena *arena, const char *folder, const tsr_tokenizer *tokenizer, const char *name,
    const char **ret_text, tsr_diags *diags) {
  tsr_chat_template t = {.special = tsr_jinja_new_dict(arena, TSR_JINJA_DICT).dict};
  opener o = {.arena = arena, .folder = folder, .diags = diags, .out = &t};
  const char *path;
  cJSON *config;
  if (!read_object(&o, "tokenizer_config.json", &path, &config) ||
      !read_special(&o, config, tokenizer))
    return false;
  *ret_text = special_text(&o, name);
  return true;
}

const tsr_chat_template *
tsr_chat_template_at(tsr_arena *arena, const tsr_chat_template *of, int64_t now) {
  tsr_chat_template *t = tsr_arena_alloc(arena, sizeof *t);
  *t = *of;
  t->limits.now = now;
  return t;
}

const char *tsr_chat_template_eos(const tsr_chat_template *of) { return of->eos; }

/* ---- rendering ---- */

static const tsr_jinja_template *template_for(const tsr_chat_template *of, const tsr_chat *chat) {
  bool has_tools = chat->tools.kind == TSR_JINJA_LIST;
  return has_tools && of->with_tools ? of->with_tools : of->plain;
}

bool tsr_chat_template_has_generation(const tsr_chat_template *of, const tsr_chat *chat) {
  const tsr_jinja_template *t = template_for(of, chat);
  return t && tsr_jinja_has_generation(t);
}

/* Without null values; the reasoning under the names that templates read it by. */
static tsr_jinja_value plain_message(tsr_arena *arena, const tsr_jinja_dict *message) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  tsr_jinja_value out = tsr_jinja_new_dict(arena, TSR_JINJA_DICT);
  const tsr_jinja_value *reasoning = NULL;
  for (int i = 0; i < 3 && !reasoning; i++) {
    reasoning = tsr_jinja_get_text(message, names[i]);
    if (reasoning && reasoning->kind == TSR_JINJA_NONE) reasoning = NULL;
  }
  if (reasoning) tsr_jinja_set(arena, out.dict, tsr_jinja_text("thinking"), *reasoning);
  for (int i = 0; i < message->count; i++)
    if (message->entries[i].value.kind != TSR_JINJA_NONE)
      tsr_jinja_set(arena, out.dict, message->entries[i].key, message->entries[i].value);
  if (reasoning) tsr_jinja_set(arena, out.dict, tsr_jinja_text("reasoning_content"), *reasoning);
  return out;
}

static void add_entries(tsr_arena *arena, tsr_jinja_dict *to, const tsr_jinja_dict *from) {
  for (int i = 0; i < from->count; i++)
    tsr_jinja_set(arena, to, from->entries[i].key, from->entries[i].value);
}

bool tsr_chat_template_render(
    tsr_arena *arena, const tsr_chat_template *of, const tsr_chat *chat, int count,
    bool add_generation_prompt, tsr_jinja_output *ret_output, tsr_diags *diags) {
  const tsr_jinja_template *t = template_for(of, chat);
  if (!t) {
    if (of->with_tools)
      return tsr_diag_error(
          diags, of->location, "the model has a chat template for conversations with tools only");
    return tsr_diag_error(
        diags, of->location,
        "the model has no chat template, and its tokenizer has no special tokens of a format "
        "that is known: <|im_start|> (ChatML), <|start_header_id|> (Llama 3) or [INST] (Mistral)");
  }
  tsr_jinja_dict variables = {0};
  tsr_jinja_value messages = tsr_jinja_new_list(arena, TSR_JINJA_LIST), none = tsr_jinja_none();
  for (int i = 0; i < count; i++) {
    tsr_jinja_value message = plain_message(arena, chat->messages.list->items[i].dict);
    message.dict->label = i + 1;
    tsr_jinja_append(arena, messages.list, message);
  }
  tsr_jinja_set(arena, &variables, tsr_jinja_text("documents"), none);
  add_entries(arena, &variables, of->special);
  if (chat->extra.kind == TSR_JINJA_DICT) add_entries(arena, &variables, chat->extra.dict);
  tsr_jinja_set(arena, &variables, tsr_jinja_text("messages"), messages);
  tsr_jinja_set(
      arena, &variables, tsr_jinja_text("tools"),
      chat->tools.kind == TSR_JINJA_LIST ? chat->tools : none);
  tsr_jinja_set(
      arena, &variables, tsr_jinja_text("add_generation_prompt"),
      tsr_jinja_bool(add_generation_prompt));
  return tsr_jinja_render(arena, t, &variables, &of->limits, ret_output, diags);
}
