// SPDX-License-Identifier: Apache-2.0
#include "train/chat_prompt.h"
#include "base/file_read.h"
#include "base/json.h"
#include <ctype.h>
#include <string.h>

static const char *const role_names[] = {"system", "user", "assistant"};
enum { ROLES = 3, CHAT_BYTES_MAX = 1 << 26 };

/* ---- reading ---- */

static tsr_location place_of(const char *file) { return (tsr_location){.file = file}; }

/* Keys that mean something elsewhere (name, tool_calls) would be lost without a word. */
static bool check_keys(const cJSON *message, int number, const char *file, tsr_diags *diags) {
  bool ok = true;
  const cJSON *item;
  cJSON_ArrayForEach(item, message) {
    if (!strcmp(item->string, "role") || !strcmp(item->string, "content")) continue;
    ok = tsr_diag_error(
        diags, place_of(file), "message %d: there is no key '%s', only 'role' and 'content'",
        number, item->string);
  }
  return ok;
}

static bool text_of(
    const cJSON *message, const char *key, int number, const char *file, const char **ret_text,
    tsr_diags *diags) {
  const cJSON *item = tsr_json_get(message, key);
  if (cJSON_IsString(item)) return *ret_text = item->valuestring, true;
  return tsr_diag_error(
      diags, place_of(file), "message %d: '%s' %s", number, key,
      item ? "should be a string" : "is missing");
}

static bool read_message(
    const cJSON *json, int number, const char *file, tsr_chat_message *ret, tsr_diags *diags) {
  const char *role = NULL;
  if (!cJSON_IsObject(json))
    return tsr_diag_error(
        diags, place_of(file), "message %d should be an object with 'role' and 'content'", number);
  bool ok = check_keys(json, number, file, diags);
  ok &= text_of(json, "content", number, file, &ret->content, diags);
  if (!text_of(json, "role", number, file, &role, diags)) return false;
  for (int r = 0; r < ROLES; r++)
    if (!strcmp(role, role_names[r])) return ret->role = (tsr_chat_role)r, ok;
  tsr_diag_error(
      diags, place_of(file), "message %d: there is no role '%s', only system, user and assistant",
      number, role);
  tsr_diag_nearest(diags, role, role_names, ROLES);
  return false;
}

/* Whose turn a message is: the system's only at the beginning. */
static bool check_turns(const tsr_chat *c, const char *file, tsr_diags *diags) {
  bool ok = true;
  int turn = 0;
  for (int i = 0; i < c->count; i++) {
    tsr_chat_role role = c->messages[i].role;
    tsr_chat_role wanted = turn % 2 ? TSR_ROLE_ASSISTANT : TSR_ROLE_USER;
    if (i == 0 && role == TSR_ROLE_SYSTEM) continue;
    turn++;
    if (role == wanted) continue;
    return tsr_diag_error(
        diags, place_of(file), "message %d is the %s's, but it is the %s's turn", i + 1,
        role_names[role], role_names[wanted]);
  }
  if (!c->count || c->messages[c->count - 1].role != TSR_ROLE_USER)
    ok = tsr_diag_error(
        diags, place_of(file), "%s: there is nothing for the assistant to answer",
        c->count ? "the user does not have the last word" : "no messages");
  return ok;
}

bool tsr_chat_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_chat *ret,
    tsr_diags *diags) {
  cJSON *json;
  if (!tsr_json_parse(arena, file, text, length, &json, diags)) return false;
  if (!cJSON_IsArray(json))
    return tsr_diag_error(
        diags, place_of(file),
        "a chat should be a list of messages: [{\"role\": \"user\", "
        "\"content\": \"…\"}]");
  int count = cJSON_GetArraySize(json);
  tsr_chat_message *messages = tsr_arena_array(arena, tsr_chat_message, count + 1);
  *ret = (tsr_chat){messages, 0};
  bool ok = true;
  const cJSON *item;
  cJSON_ArrayForEach(item, json) {
    ok &= read_message(item, ret->count + 1, file, &messages[ret->count], diags);
    ret->count++;
  }
  return ok && check_turns(ret, file, diags);
}

bool tsr_chat_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_chat *ret, tsr_diags *diags) {
  char *text;
  size_t length;
  return tsr_file_read(arena, path, CHAT_BYTES_MAX, location, &text, &length, diags) &&
         tsr_chat_parse(arena, path, text, length, ret, diags);
}

/* ---- rendering ---- */

static int32_t find_special(const tsr_tokenizer *t, const char *text) {
  if (t->kind != TSR_TOKENIZER_BPE) return -1;
  int32_t id = tsr_bpe_find(t->bpe, text);
  return id >= 0 && tsr_bpe_is_special(t->bpe, id) ? id : -1;
}

tsr_chat_format tsr_chat_format_of(const tsr_tokenizer *t) {
  if (find_special(t, "<|im_start|>") >= 0) return TSR_CHAT_ML;
  if (find_special(t, "<|start_header_id|>") >= 0) return TSR_CHAT_LLAMA3;
  return find_special(t, "[INST]") >= 0 ? TSR_CHAT_MISTRAL : TSR_CHAT_NONE;
}

static void render_ml(const tsr_chat *c, tsr_text *text) {
  for (int i = 0; i < c->count; i++)
    tsr_text_add(
        text, "<|im_start|>%s\n%s<|im_end|>\n", role_names[c->messages[i].role],
        c->messages[i].content);
  tsr_text_add(text, "<|im_start|>assistant\n");
}

/* Without the white space around it. */
static void add_trimmed(tsr_text *text, const char *content) {
  size_t end = strlen(content);
  while (end && isspace((unsigned char)content[end - 1])) end--;
  while (end && isspace((unsigned char)*content)) content++, end--;
  tsr_text_add_bytes(text, content, end);
}

static void render_llama3(const tsr_chat *c, tsr_text *text) {
  static const char header[] = "<|start_header_id|>%s<|end_header_id|>\n\n";
  tsr_text_add(text, "<|begin_of_text|>");
  for (int i = 0; i < c->count; i++) {
    tsr_text_add(text, header, role_names[c->messages[i].role]);
    add_trimmed(text, c->messages[i].content);
    tsr_text_add(text, "<|eot_id|>");
  }
  tsr_text_add(text, header, role_names[TSR_ROLE_ASSISTANT]);
}

/* The system message stands before the user's last message. */
static void render_mistral(const tsr_chat *c, tsr_text *text) {
  bool system = c->count && c->messages[0].role == TSR_ROLE_SYSTEM;
  tsr_text_add(text, "<s>");
  for (int i = system; i < c->count; i++) {
    const tsr_chat_message *m = &c->messages[i];
    if (m->role == TSR_ROLE_ASSISTANT) {
      tsr_text_add(text, "%s</s>", m->content);
      continue;
    }
    tsr_text_add(text, "[INST]");
    if (system && i == c->count - 1) tsr_text_add(text, "%s\n\n", c->messages[0].content);
    tsr_text_add(text, "%s[/INST]", m->content);
  }
}

bool tsr_chat_render(
    const tsr_chat *chat, tsr_chat_format format, tsr_text *text, tsr_diags *diags) {
  switch (format) {
  case TSR_CHAT_ML:
    return render_ml(chat, text), true;
  case TSR_CHAT_LLAMA3:
    return render_llama3(chat, text), true;
  case TSR_CHAT_MISTRAL:
    return render_mistral(chat, text), true;
  default:
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "the tokenizer has no special tokens for a chat: neither <|im_start|> (ChatML) nor "
        "<|start_header_id|> (Llama 3) nor [INST] (Mistral)");
    tsr_diag_hint(diags, "a model that was not trained on chats needs --prompt");
    return false;
  }
}

bool tsr_chat_tokens(
    tsr_arena *arena, const tsr_chat *chat, const tsr_tokenizer *tokenizer,
    const int32_t **ret_tokens, int64_t *ret_count, tsr_diags *diags) {
  tsr_text text = {0};
  bool ok = tsr_chat_render(chat, tsr_chat_format_of(tokenizer), &text, diags);
  if (ok) {
    int64_t room = tsr_tokenizer_room(tokenizer, text.data, text.length);
    int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
    tsr_text_file file = {"the chat", text.data, text.length};
    ok = tsr_tokenizer_encode(tokenizer, &file, tokens, ret_count, diags);
    *ret_tokens = tokens;
  }
  tsr_text_free(&text);
  return ok;
}

int tsr_chat_stops(const tsr_tokenizer *tokenizer, int32_t ret_stops[TSR_CHAT_STOPS_MAX]) {
  static const char *const texts[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                      "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>"};
  int count = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int32_t id = find_special(tokenizer, texts[i]);
    if (id >= 0) ret_stops[count++] = id;
  }
  return count;
}
