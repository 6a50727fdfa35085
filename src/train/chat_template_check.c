// SPDX-License-Identifier: Apache-2.0
#include "train/chat_template_check.h"
#include "base/file_read.h"
#include "base/json.h"
#include <ctype.h>
#include <string.h>

#define ML_TURNS                                                                                   \
  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "  \
  "+ '<|im_end|>' + '\\n'}}{% endfor %}"
#define ML_PROMPT "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define NO_PROMPT                                                                                  \
  "{% if not add_generation_prompt is defined %}"                                                  \
  "{% set add_generation_prompt = false %}{% endif %}"

enum { BYTES_MAX = 1 << 24 };

static const struct {
  tsr_chat_format format;
  bool has_system; /* it writes a system message where the conversation has none */
  const char *text;
} known[] = {
    {TSR_CHAT_ML, false, ML_TURNS ML_PROMPT},
    {TSR_CHAT_ML, false, NO_PROMPT ML_TURNS ML_PROMPT},
    /* SmolLM2 */
    {TSR_CHAT_ML, true,
     "{% for message in messages %}"
     "{% if loop.first and messages[0]['role'] != 'system' %}"
     "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
     "Face<|im_end|>\\n' }}{% endif %}"
     "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
     "{% endfor %}" ML_PROMPT},
    /* Llama 3 */
    {TSR_CHAT_LLAMA3, false,
     "{% set loop_messages = messages %}{% for message in loop_messages %}"
     "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
     "+ message['content'] | trim + '<|eot_id|>' %}"
     "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
     "{{ content }}{% endfor %}"
     "{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
};

/* Blanks and line ends are no part of what tells templates apart; those that a template writes
 * stand as \n in its quotes. */
static bool same_text(const char *a, const char *b) {
  for (;;) {
    while (isspace((unsigned char)*a)) a++;
    while (isspace((unsigned char)*b)) b++;
    if (*a != *b) return false;
    if (!*a) return true;
    a++, b++;
  }
}

/* Of several the one called default. */
static const char *template_of(const cJSON *config) {
  const cJSON *item = tsr_json_get(config, "chat_template"), *one;
  if (cJSON_IsString(item)) return item->valuestring;
  if (!item || cJSON_IsNull(item)) return NULL;
  cJSON_ArrayForEach(one, item) {
    const cJSON *name = tsr_json_get(one, "name"), *text = tsr_json_get(one, "template");
    bool is_default = cJSON_IsString(name) && !strcmp(name->valuestring, "default");
    if (is_default && cJSON_IsString(text)) return text->valuestring;
  }
  return ""; /* none that is known */
}

/* The template of a file of JSON, NULL where it has none. */
static bool read_json(tsr_arena *arena, const char *path, const char **ret_text, tsr_diags *diags) {
  char *text;
  size_t length;
  cJSON *config;
  if (!tsr_file_exists(path)) return true;
  if (!tsr_file_read_nofollow(arena, path, BYTES_MAX, TSR_NOWHERE, &text, &length, diags) ||
      !tsr_json_parse(arena, path, text, length, &config, diags))
    return false;
  if (!cJSON_IsObject(config))
    return tsr_diag_error(diags, TSR_NOWHERE, "'%s' holds no JSON object", path);
  *ret_text = template_of(config);
  return true;
}

/* NULL: there is none. */
static bool read_template(
    tsr_arena *arena, const char *folder, const char **ret_path, const char **ret_text,
    tsr_diags *diags) {
  char *text;
  size_t length;
  *ret_text = NULL;
  *ret_path = tsr_path_join(arena, folder, "chat_template.jinja");
  if (tsr_file_exists(*ret_path)) {
    if (!tsr_file_read_nofollow(arena, *ret_path, BYTES_MAX, TSR_NOWHERE, &text, &length, diags))
      return false;
    *ret_text = text;
    return true;
  }
  const char *const names[] = {"tokenizer_config.json", "chat_template.json"};
  for (int i = 0; i < 2 && !*ret_text; i++) {
    *ret_path = tsr_path_join(arena, folder, names[i]);
    if (!read_json(arena, *ret_path, ret_text, diags)) return false;
  }
  return true;
}

bool tsr_chat_template_check(
    tsr_arena *arena, const char *folder, const tsr_chat *chat, tsr_chat_format format,
    tsr_diags *diags) {
  const char *path, *text;
  if (!read_template(arena, folder, &path, &text, diags)) return false;
  if (!text) return true;
  bool begins = chat->count && chat->messages[0].role == TSR_ROLE_SYSTEM;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].format != format || !same_text(known[i].text, text)) continue;
    return begins || !known[i].has_system ||
           tsr_diag_error(
               diags, TSR_NOWHERE,
               "'%s' has a system message of its own: the conversation must begin with one", path);
  }
  tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' holds a chat template that this program does not know", path);
  tsr_diag_hint(
      diags, "--prompt-file takes what the template makes of a conversation; known are ChatML's, "
             "SmolLM2's and Llama 3's");
  return false;
}
