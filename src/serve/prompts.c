// SPDX-License-Identifier: Apache-2.0
#include "serve/prompts.h"
#include <string.h>

bool tsr_prompt_of_text(
    const tsr_fields *f, const tsr_served_model *model, const char *text, bool adds_special,
    tsr_prompt *ret_prompt, tsr_prompt_text *ret_text) {
  const tsr_tokenizer *tokenizer = model->tokenizer;
  tsr_diags *diags = tsr_diags_new(f->arena);
  tsr_text_file file = {"the text", text, strlen(text)};
  const int32_t *before = NULL;
  int64_t first = 0, count = 0;
  if (adds_special && tokenizer->kind == TSR_TOKENIZER_SUBWORD)
    first = tsr_subword_before(tokenizer->subword, &before);
  int64_t room = tsr_tokenizer_room(tokenizer, text, file.length);
  int32_t *tokens = tsr_arena_array(f->arena, int32_t, first + room + 1);
  int64_t *begins = tsr_arena_array(f->arena, int64_t, first + room + 1); /* 0 of the first ones */
  if (first) memcpy(tokens, before, sizeof *tokens * (size_t)first);
  if (!tsr_tokenizer_encode_begins(
          tokenizer, NULL, &file, tokens + first, begins + first, &count, diags))
    return tsr_api_fail(
        f->error, f->arena, 400, "prompt", NULL, "The text cannot be tokenized: %s",
        tsr_diags_first_error(diags));
  *ret_prompt = (tsr_prompt){tokens, first + count};
  if (ret_text) *ret_text = (tsr_prompt_text){tsr_arena_strdup(f->arena, text), begins};
  for (int64_t i = 0; i < ret_prompt->count; i++)
    if (tokens[i] >= model->vocab_size)
      return tsr_api_fail(
          f->error, f->arena, 400, "prompt", NULL,
          "The text has the token %d, which the model does not have", tokens[i]);
  return true;
}

bool tsr_prompt_of_list(
    const tsr_fields *f, const tsr_served_model *model, const char *key, const cJSON *list,
    tsr_prompt *ret_prompt) {
  int64_t count = 0;
  int32_t *tokens = tsr_arena_array(f->arena, int32_t, cJSON_GetArraySize(list) + 1);
  const cJSON *item;
  cJSON_ArrayForEach(item, list) {
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(number >= 0 && number < (double)model->vocab_size) || number != (double)(int32_t)number)
      return tsr_api_fail(
          f->error, f->arena, 400, key, NULL,
          "'%s': item %lld is no token, which is a whole number below %lld", key, (long long)count,
          (long long)model->vocab_size);
    tokens[count++] = (int32_t)number;
  }
  *ret_prompt = (tsr_prompt){tokens, count};
  return true;
}

bool tsr_prompts_read(
    const tsr_fields *f, const tsr_served_model *model, bool adds_special, tsr_request *r) {
  static const char wanted[] =
      "a string, a list of strings, a list of tokens or a list of lists of tokens";
  const cJSON *prompt = tsr_field(f, "prompt"), *item;
  if (!prompt)
    return tsr_api_fail(
        f->error, f->arena, 400, "prompt", "missing_required_parameter", "'prompt' is missing");
  bool is_list = cJSON_IsArray(prompt) && !cJSON_IsNumber(prompt->child);
  int count = is_list ? cJSON_GetArraySize(prompt) : 1;
  if (!count) return tsr_field_wrong(f, "prompt", "no empty list");
  if (count > model->texts_most)
    return tsr_api_fail(
        f->error, f->arena, 400, "prompt", NULL,
        "'prompt' has %d prompts, more than the %lld of one request", count,
        (long long)model->texts_most);
  r->prompts = tsr_arena_array(f->arena, tsr_prompt, count);
  r->texts = tsr_arena_array(f->arena, tsr_prompt_text, count);
  if (cJSON_IsString(prompt))
    return r->prompts_count = 1,
           tsr_prompt_of_text(f, model, prompt->valuestring, adds_special, r->prompts, r->texts);
  if (!cJSON_IsArray(prompt)) return tsr_field_wrong(f, "prompt", wanted);
  if (!is_list)
    return r->prompts_count = 1, tsr_prompt_of_list(f, model, "prompt", prompt, r->prompts);
  cJSON_ArrayForEach(item, prompt) {
    tsr_prompt_text *as_given = &r->texts[r->prompts_count];
    tsr_prompt *to = &r->prompts[r->prompts_count++];
    if (cJSON_IsString(item)) {
      if (!tsr_prompt_of_text(f, model, item->valuestring, adds_special, to, as_given))
        return false;
    } else if (cJSON_IsArray(item)) {
      if (!tsr_prompt_of_list(f, model, "prompt", item, to)) return false;
    } else {
      return tsr_field_wrong(f, "prompt", wanted);
    }
  }
  return true;
}

/* ---- conversations ---- */

static bool is_text(const tsr_jinja_value *value, const char *text) {
  return value && value->kind == TSR_JINJA_STRING && (size_t)value->string.length == strlen(text) &&
         !memcmp(value->string.bytes, text, strlen(text));
}

/* Content in parts, [{"type": "text", "text": …}], becomes one text, which every template reads. */
static bool join_parts(const tsr_fields *f, int message, tsr_jinja_value *content) {
  tsr_text text = {0};
  const tsr_jinja_list *parts = content->list;
  for (int i = 0; i < parts->count; i++) {
    const tsr_jinja_value *part = &parts->items[i];
    bool is_dict = part->kind == TSR_JINJA_DICT;
    const tsr_jinja_value *type = is_dict ? tsr_jinja_get_text(part->dict, "type") : NULL;
    const tsr_jinja_value *words = is_dict ? tsr_jinja_get_text(part->dict, "text") : NULL;
    if (!is_text(type, "text") || !words || words->kind != TSR_JINJA_STRING) {
      tsr_text_free(&text);
      return tsr_api_fail(
          f->error, f->arena, 400, "messages", NULL,
          "'messages': message %d has content of another type than text, which this model does "
          "not read",
          message);
    }
    if (i) tsr_text_add(&text, "\n");
    tsr_text_add_bytes(&text, words->string.bytes, (size_t)words->string.length);
  }
  *content = tsr_jinja_take(f->arena, &text);
  return true;
}

static bool check_messages(const tsr_fields *f, const tsr_jinja_value *messages) {
  if (!messages || messages->kind != TSR_JINJA_LIST || !messages->list->count)
    return tsr_api_fail(
        f->error, f->arena, 400, "messages", "missing_required_parameter",
        "'messages' should be a list of messages, [{\"role\": \"user\", \"content\": \"…\"}]");
  for (int i = 0; i < messages->list->count; i++) {
    tsr_jinja_value *message = &messages->list->items[i];
    const tsr_jinja_value *role = NULL, *content = NULL;
    if (message->kind == TSR_JINJA_DICT) {
      role = tsr_jinja_get_text(message->dict, "role");
      content = tsr_jinja_get_text(message->dict, "content");
    }
    if (!role || role->kind != TSR_JINJA_STRING)
      return tsr_api_fail(
          f->error, f->arena, 400, "messages", NULL,
          "'messages': message %d should be an object with a 'role'", i);
    if (content && content->kind == TSR_JINJA_LIST) {
      tsr_jinja_value joined = *content;
      if (!join_parts(f, i, &joined)) return false;
      tsr_jinja_set(f->arena, message->dict, tsr_jinja_text("content"), joined);
    } else if (content && content->kind != TSR_JINJA_STRING && content->kind != TSR_JINJA_NONE) {
      return tsr_api_fail(
          f->error, f->arena, 400, "messages", NULL,
          "'messages': the 'content' of message %d should be a string or a list of parts", i);
    }
  }
  return true;
}

static bool tokenize_chat(
    const tsr_fields *f, const tsr_served_model *model, const tsr_jinja_output *out,
    tsr_prompt *ret_prompt) {
  const char *text = tsr_arena_strndup(
      f->arena, out->text.data ? out->text.data : "", out->text.data ? out->text.length : 0);
  return tsr_prompt_of_text(f, model, text, false, ret_prompt, NULL);
}

bool tsr_prompt_of_chat(
    const tsr_fields *f, const tsr_served_model *model, const char *body, size_t length,
    bool has_tools, bool adds_generation_prompt, tsr_prompt *ret_prompt) {
  static const char *const keys[] = {"messages", "tools", "chat_template_kwargs", NULL};
  tsr_jinja_value object;
  tsr_json_fault fault;
  tsr_jinja_output out = {0};
  tsr_diags *diags = tsr_diags_new(f->arena);
  if (!tsr_jinja_read_members(f->arena, body, length, keys, &object, &fault))
    return tsr_api_fail(f->error, f->arena, 400, NULL, NULL, "%s", fault.message);
  const tsr_jinja_value *messages = tsr_jinja_get_text(object.dict, "messages");
  const tsr_jinja_value *tools = tsr_jinja_get_text(object.dict, "tools");
  const tsr_jinja_value *extra = tsr_jinja_get_text(object.dict, "chat_template_kwargs");
  if (!check_messages(f, messages)) return false;
  if (tools && tools->kind != TSR_JINJA_LIST && tools->kind != TSR_JINJA_NONE)
    return tsr_field_wrong(f, "tools", "a list");
  if (extra && extra->kind != TSR_JINJA_DICT && extra->kind != TSR_JINJA_NONE)
    return tsr_field_wrong(f, "chat_template_kwargs", "an object");
  tsr_chat chat = {.messages = *messages};
  if (tools && has_tools && tools->kind == TSR_JINJA_LIST && tools->list->count)
    chat.tools = *tools;
  if (extra) chat.extra = *extra;
  bool ok = tsr_chat_template_render(
      f->arena, model->template, &chat, messages->list->count, adds_generation_prompt, &out, diags);
  if (ok) ok = tokenize_chat(f, model, &out, ret_prompt);
  else
    tsr_api_fail(
        f->error, f->arena, 400, "messages", NULL, "The chat template refuses the messages: %s",
        tsr_diags_first_error(diags));
  tsr_text_free(&out.text);
  return ok;
}
