// SPDX-License-Identifier: Apache-2.0
#include "data/conversation.h"
#include "data/conversation_internal.h"
#include <string.h>

const char *const tsr_train_on_names[] = {"assistant", "last_assistant", "all", NULL};

/* ---- reading ---- */

static bool read_json(
    tsr_arena *arena, const tsr_text_file *file, size_t offset, size_t length, tsr_jinja_value *ret,
    tsr_diags *diags) {
  tsr_json_fault fault;
  if (tsr_jinja_read_members(
          arena, file->text + offset, length, tsr_conversation_keys, ret, &fault))
    return true;
  return tsr_diag_error(
      diags, tsr_text_file_place(file, offset + fault.offset, 1, diags), "%s", fault.message);
}

bool tsr_conversation_chat(
    tsr_arena *arena, const tsr_text_file *file, tsr_chat *ret_chat, tsr_diags *diags) {
  tsr_conversation_place at = {.file = file, .diags = diags};
  tsr_jinja_value value;
  tsr_conversation_line line;
  if (!read_json(arena, file, 0, file->length, &value, diags)) return false;
  if (value.kind == TSR_JINJA_LIST) {
    tsr_jinja_value object = tsr_jinja_new_dict(arena, TSR_JINJA_DICT);
    tsr_jinja_set(arena, object.dict, tsr_jinja_text("messages"), value);
    value = object;
  } else if (value.kind != TSR_JINJA_DICT || !tsr_jinja_get_text(value.dict, "messages")) {
    return tsr_conversation_fail(
        &at,
        "a chat should be a list of messages, [{\"role\": \"user\", \"content\": \"…\"}], or an "
        "object with 'messages' and 'tools'");
  }
  if (!tsr_conversation_parse(arena, value, &at, &line)) return false;
  *ret_chat = line.chat;
  const tsr_jinja_list *messages = line.chat.messages.list;
  return !tsr_conversation_has_role(messages->items[messages->count - 1], "assistant") ||
         tsr_conversation_fail(
             &at, "the last message is the assistant's: there is nothing to answer");
}

/* ---- tokens ---- */

/* Tokens of one character (byte fallback, ligatures) begin at the same byte, and all end where the
 * next token begins. */
static int64_t token_end(const tsr_conversation *c, int64_t token) {
  int64_t next = token + 1;
  while (next < c->count && c->begins[next] == c->begins[token]) next++;
  return c->begins[next];
}

static bool is_space(const char *text, int64_t begin, int64_t end) {
  while (begin < end && strchr(" \t\n\v\f\r", text[begin])) begin++;
  return begin == end;
}

/* Whether the token, which begins `before` bytes before a span, ends in white space of it. */
static bool has_space_of(const tsr_tokenizer *tokenizer, int32_t token, int64_t before) {
  tsr_text text = {0};
  tsr_tokenizer_token_text(tokenizer, token, &text);
  int64_t length = (int64_t)text.length;
  bool has_space = length > before && is_space(text.data, length - 1, length);
  tsr_text_free(&text);
  return has_space;
}

/* Whether each token overlaps one of the spans. White space that the tokenizer leaves out belongs
 * to the token before it, which does not overlap a span for that alone. */
static void mark_trained(
    const tsr_tokenizer *tokenizer, const tsr_jinja_span *spans, int count, tsr_conversation *c) {
  int at = 0;
  for (int64_t i = 0; i < c->count; i++) {
    int64_t end = token_end(c, i);
    while (at < count && spans[at].end <= c->begins[i]) at++;
    c->trained[i] = at < count && spans[at].begin < end;
    if (!c->trained[i] || c->begins[i] >= spans[at].begin) continue;
    int64_t begin = spans[at].begin, last = end < spans[at].end ? end : spans[at].end;
    c->trained[i] = !is_space(c->text, begin, last) ||
                    has_space_of(tokenizer, c->tokens[i], begin - c->begins[i]);
  }
}

static bool tokenize(
    tsr_arena *arena, const tsr_conversation_format *format, tsr_subword_scratch *scratch,
    const char *name, tsr_conversation *c, tsr_diags *diags) {
  const tsr_text_file file = {name, c->text, (size_t)c->length};
  int64_t room = tsr_tokenizer_room(&format->tokenizer, file.text, file.length);
  c->tokens = tsr_arena_array(arena, int32_t, room + 1);
  c->begins = tsr_arena_array(arena, int64_t, room + 1);
  if (!tsr_tokenizer_encode_begins(
          &format->tokenizer, scratch, &file, c->tokens, c->begins, &c->count, diags))
    return false;
  c->trained = tsr_arena_array(arena, uint8_t, c->count + 1);
  return true;
}

/* A prompt, its completion, and the end-of-sequence token. */
static tsr_jinja_span join_plain(
    tsr_arena *arena, const tsr_conversation_format *format, const tsr_conversation_line *line,
    tsr_jinja_string *ret_text) {
  const char *eos = tsr_chat_template_eos(format->template);
  tsr_jinja_string end = {eos ? eos : "", eos ? (int64_t)strlen(eos) : 0};
  tsr_jinja_string completion = line->completion;
  bool has_end =
      end.length && completion.length >= end.length &&
      !memcmp(completion.bytes + completion.length - end.length, end.bytes, (size_t)end.length);
  tsr_text text = {0};
  tsr_text_add_bytes(&text, line->prompt.bytes, (size_t)line->prompt.length);
  tsr_text_add_bytes(&text, completion.bytes, (size_t)completion.length);
  if (!has_end) tsr_text_add_bytes(&text, end.bytes, (size_t)end.length);
  *ret_text = tsr_jinja_take(arena, &text).string;
  return (tsr_jinja_span){line->prompt.length, ret_text->length};
}

bool tsr_conversation_read(
    tsr_arena *arena, const tsr_conversation_format *format, tsr_subword_scratch *scratch,
    const tsr_text_file *file, size_t offset, size_t length, tsr_conversation *ret_conversation,
    tsr_diags *diags) {
  tsr_jinja_value value;
  tsr_conversation_line line;
  tsr_jinja_string text;
  tsr_jinja_span *spans, plain;
  int count = 1;
  tsr_conversation_place at = {.file = file, .offset = offset, .diags = diags};
  *ret_conversation = (tsr_conversation){0};
  if (!read_json(arena, file, offset, length, &value, diags) ||
      !tsr_conversation_parse(arena, value, &at, &line))
    return false;
  if (line.is_plain) {
    plain = join_plain(arena, format, &line, &text);
    spans = &plain;
  } else if (!tsr_conversation_spans(arena, format, &line, &at, &text, &spans, &count)) {
    return false;
  }
  if (format->train_on == TSR_TRAIN_ON_ALL) {
    plain = (tsr_jinja_span){0, text.length};
    spans = &plain;
    count = 1;
  }
  ret_conversation->text = text.bytes;
  ret_conversation->length = text.length;
  if (!tokenize(arena, format, scratch, file->path, ret_conversation, diags)) return false;
  mark_trained(&format->tokenizer, spans, count, ret_conversation);
  return true;
}
