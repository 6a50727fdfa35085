// SPDX-License-Identifier: Apache-2.0
/* The trained spans of a rendered conversation.
 *
 * Without {% generation %} marks, turn i of the assistant is found with two further renderings: the
 * prompt P of messages[:i] with a generation prompt, and the turn's own end Q of messages[:i + 1].
 * If Q begins with P and the whole text begins with Q, the turn is what Q has more than P.
 *
 * Else later messages have changed the text before them. Then an anchor is used: a text of the turn
 * that the template writes unchanged and once (its content, or the name of its last tool call). The
 * anchor is found in Q and in the whole text by replacing it: both renderings may differ in the
 * replaced bytes only. What Q has behind the anchor is the end of a turn, and what it has between P
 * and the anchor is its beginning; the whole text must have the same around its anchor. */
#include "data/conversation_internal.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_conversation_format *format;
  const tsr_chat *chat;
  tsr_conversation_place *at;
  tsr_jinja_string text; /* of the whole conversation */
  tsr_jinja_span *spans;
  int count, capacity;
} finder;

/* ---- rendering ---- */

static bool render(
    finder *f, const tsr_chat *chat, int count, bool prompts, tsr_diags *diags,
    tsr_jinja_output *out) {
  return tsr_chat_template_render(f->arena, f->format->template, chat, count, prompts, out, diags);
}

/* A rendering that is compared with the whole text; a template may refuse it, as one that needs a
 * user's message first. */
static bool
try_render(finder *f, const tsr_chat *chat, int count, bool prompts, tsr_jinja_string *ret) {
  tsr_jinja_output out;
  tsr_diags *unused = tsr_diags_new(f->arena);
  if (!render(f, chat, count, prompts, unused, &out)) return false;
  *ret = tsr_jinja_take(f->arena, &out.text).string;
  return true;
}

static bool render_whole(finder *f, tsr_jinja_output *out) {
  tsr_diags *diags = f->at->diags;
  int count = f->chat->messages.list->count, line = 1;
  if (render(f, f->chat, count, false, diags, out)) {
    f->text = tsr_jinja_take(f->arena, &out->text).string;
    return true;
  }
  for (size_t i = 0; i < f->at->offset; i++) line += f->at->file->text[i] == '\n';
  tsr_diag_hint(diags, "the conversation is at %s:%d", f->at->file->path, line);
  return false;
}

static void add_span(finder *f, int64_t begin, int64_t end) {
  tsr_arena_grow(f->arena, (void **)&f->spans, sizeof *f->spans, f->count, &f->capacity);
  f->spans[f->count++] = (tsr_jinja_span){begin, end};
}

/* ---- anchors ---- */

/* The text of a message that marks its place. */
typedef struct {
  tsr_jinja_value *value; /* NULL: there is none */
  int64_t kept;           /* bytes at its beginning that are not replaced */
} anchor;

static tsr_jinja_value *text_in(tsr_jinja_value dict, const char *key) {
  const tsr_jinja_value *v =
      dict.kind == TSR_JINJA_DICT ? tsr_jinja_get_text(dict.dict, key) : NULL;
  return v && v->kind == TSR_JINJA_STRING && v->string.length ? (tsr_jinja_value *)v : NULL;
}

static tsr_jinja_value *content_of(tsr_jinja_value message) {
  const tsr_jinja_value *content = tsr_jinja_get_text(message.dict, "content");
  bool is_part = content && content->kind == TSR_JINJA_LIST && content->list->count == 1;
  return is_part ? text_in(content->list->items[0], "text") : text_in(message, "content");
}

static tsr_jinja_value *name_of_last_call(tsr_jinja_value message) {
  const tsr_jinja_value *calls = tsr_jinja_get_text(message.dict, "tool_calls"), *function;
  if (!calls || calls->kind != TSR_JINJA_LIST || !calls->list->count) return NULL;
  tsr_jinja_value last = calls->list->items[calls->list->count - 1];
  if (last.kind != TSR_JINJA_DICT) return NULL;
  function = tsr_jinja_get_text(last.dict, "function");
  return text_in(function ? *function : last, "name");
}

/* Behind reasoning in the text itself, which templates may cut off. */
static int64_t behind_reasoning(tsr_jinja_string s) {
  static const tsr_jinja_string end = {"</think>", 8};
  int64_t at = 0;
  for (int64_t next = 0; (next = tsr_jinja_find_text(s, end, next)) >= 0;) at = next += end.length;
  while (at && at < s.length && s.bytes[at] == '\n') at++;
  return at;
}

static anchor find_anchor(tsr_jinja_value message) {
  tsr_jinja_value *content = content_of(message);
  if (!content) return (anchor){name_of_last_call(message), 0};
  int64_t kept = behind_reasoning(content->string);
  return (anchor){content, kept < content->string.length ? kept : 0};
}

/* The bytes of a rendering that the anchor makes: the only ones that change with it, and exactly
 * the replacement when it is replaced. */
static bool
locate_anchor(finder *f, anchor a, int count, tsr_jinja_string text, tsr_jinja_span *ret) {
  static const char *const replacements[] = {"\x01tsr\x02", "\x03TSR\x04"};
  const tsr_jinja_value original = *a.value;
  for (int i = 0; i < 2; i++) {
    tsr_jinja_string other;
    tsr_text replaced = {0};
    int64_t begin = 0, behind = 0, length = (int64_t)strlen(replacements[i]);
    tsr_text_add_bytes(&replaced, original.string.bytes, (size_t)a.kept);
    tsr_text_add(&replaced, "%s", replacements[i]);
    *a.value = tsr_jinja_take(f->arena, &replaced);
    bool ok = try_render(f, f->chat, count, false, &other);
    *a.value = original;
    if (!ok) return false;
    int64_t least = text.length < other.length ? text.length : other.length;
    while (begin < least && text.bytes[begin] == other.bytes[begin]) begin++;
    while (behind < least - begin &&
           text.bytes[text.length - 1 - behind] == other.bytes[other.length - 1 - behind])
      behind++;
    tsr_jinja_span found = {begin, text.length - behind};
    if (other.length - behind - begin != length ||
        memcmp(other.bytes + begin, replacements[i], (size_t)length) != 0 ||
        (i && (found.begin != ret->begin || found.end != ret->end)))
      return false;
    *ret = found;
  }
  return true;
}

/* ---- a turn ---- */

static bool has_at(tsr_jinja_string text, int64_t at, tsr_jinja_string part) {
  return at >= 0 && at + part.length <= text.length &&
         (!part.length || !memcmp(text.bytes + at, part.bytes, (size_t)part.length));
}

static tsr_jinja_string part_of(tsr_jinja_string text, int64_t begin, int64_t end) {
  return (tsr_jinja_string){text.bytes + begin, end - begin};
}

/* Where the turn of Q begins whose anchor is at `anchor`: behind the prompt. A prompt that says more
 * than the turn does (an opened <think>) ends where the anchor begins, if the rest of it is what
 * stands in front of the anchor. */
static int64_t own_begin(
    finder *f, int i, tsr_jinja_string prompt, tsr_jinja_string turn, tsr_jinja_span in_turn) {
  tsr_jinja_string before;
  if (tsr_jinja_starts(turn, prompt)) return prompt.length <= in_turn.begin ? prompt.length : -1;
  if (!try_render(f, f->chat, i, false, &before) || !tsr_jinja_starts(turn, before) ||
      !tsr_jinja_starts(prompt, before) || before.length > in_turn.begin)
    return -1;
  return has_at(prompt, before.length, part_of(turn, before.length, in_turn.begin)) ? in_turn.begin
                                                                                    : -1;
}

/* The turn around its anchor in the whole text. */
static bool
align(finder *f, int i, tsr_jinja_string prompt, tsr_jinja_string turn, tsr_jinja_span *ret) {
  anchor a = find_anchor(f->chat->messages.list->items[i]);
  tsr_jinja_span in_turn = {0}, in_text = {0};
  int all = f->chat->messages.list->count;
  if (!a.value || !locate_anchor(f, a, i + 1, turn, &in_turn) ||
      !locate_anchor(f, a, all, f->text, &in_text))
    return false;
  tsr_jinja_string end = part_of(turn, in_turn.end, turn.length);
  if (!has_at(f->text, in_text.end, end)) return false;
  ret->end = in_text.end + end.length;
  if (tsr_jinja_starts(f->text, prompt) && prompt.length <= in_text.begin)
    return ret->begin = prompt.length, true;
  int64_t begin = own_begin(f, i, prompt, turn, in_turn);
  if (begin < 0) return false;
  tsr_jinja_string lead = part_of(turn, begin, in_turn.begin);
  ret->begin = in_text.begin - lead.length;
  return has_at(f->text, ret->begin, lead);
}

static bool find_turn(finder *f, int i) {
  tsr_jinja_string prompt, turn;
  tsr_jinja_span span;
  int all = f->chat->messages.list->count;
  bool prompts = try_render(f, f->chat, i, true, &prompt);
  bool ends = i + 1 == all || try_render(f, f->chat, i + 1, false, &turn);
  if (i + 1 == all) turn = f->text;
  if (prompts && ends && tsr_jinja_starts(turn, prompt) && tsr_jinja_starts(f->text, turn))
    span = (tsr_jinja_span){prompt.length, turn.length};
  else if (!prompts || !ends || !align(f, i, prompt, turn, &span))
    return tsr_conversation_fail(
        f->at,
        "message %d: the chat template changes the assistant's text in a longer conversation, "
        "and what is trained cannot be determined",
        i + 1);
  if (f->count && span.begin < f->spans[f->count - 1].end)
    return tsr_conversation_fail(
        f->at, "message %d: the chat template does not render the turns in their order", i + 1);
  return add_span(f, span.begin, span.end), true;
}

/* ---- conversations ---- */

static int last_assistant(const tsr_chat *chat) {
  int i = chat->messages.list->count - 1;
  while (i >= 0 && !tsr_conversation_has_role(chat->messages.list->items[i], "assistant")) i--;
  return i;
}

/* Marked spans; of the last turn alone, those that the messages before it do not have. */
static bool take_marked(finder *f, const tsr_jinja_output *out) {
  int first = 0;
  if (f->format->train_on == TSR_TRAIN_ON_LAST_ASSISTANT) {
    tsr_jinja_output before;
    tsr_diags *unused = tsr_diags_new(f->arena);
    int last = last_assistant(f->chat);
    bool ok = last >= 0 && (!last || render(f, f->chat, last, false, unused, &before));
    if (ok && last) tsr_text_free(&before.text);
    first = ok && last ? before.spans_count : 0;
    if (!ok || first >= out->spans_count)
      return tsr_conversation_fail(
          f->at, "the chat template marks no text of the last message of the assistant");
  }
  for (int i = first; i < out->spans_count; i++)
    add_span(f, out->spans[i].begin, out->spans[i].end);
  return true;
}

/* All behind the prompt. */
static bool take_completion(finder *f, int prompt_count) {
  tsr_jinja_string prompt;
  bool answers =
      !tsr_conversation_has_role(f->chat->messages.list->items[prompt_count - 1], "assistant");
  if (!try_render(f, f->chat, prompt_count, answers, &prompt) || !tsr_jinja_starts(f->text, prompt))
    return tsr_conversation_fail(
        f->at, "the rendered prompt is not a prefix of the rendered prompt and completion");
  return add_span(f, prompt.length, f->text.length), true;
}

bool tsr_conversation_spans(
    tsr_arena *arena, const tsr_conversation_format *format, const tsr_conversation_line *line,
    tsr_conversation_place *at, tsr_jinja_string *ret_text, tsr_jinja_span **ret_spans,
    int *ret_count) {
  finder f = {.arena = arena, .format = format, .chat = &line->chat, .at = at};
  tsr_jinja_output out;
  bool last_alone = format->train_on == TSR_TRAIN_ON_LAST_ASSISTANT, ok = true;
  if (!render_whole(&f, &out)) return false;
  int last = last_assistant(f.chat);
  if (format->train_on == TSR_TRAIN_ON_ALL) ok = true;
  else if (last < line->prompt_count)
    ok = tsr_conversation_fail(at, "there is no message of the assistant to train on");
  else if (tsr_chat_template_has_generation(format->template, f.chat)) ok = take_marked(&f, &out);
  else if (line->prompt_count && !last_alone) ok = take_completion(&f, line->prompt_count);
  else
    for (int i = last_alone ? last : 0; ok && i <= last; i++)
      if (tsr_conversation_has_role(f.chat->messages.list->items[i], "assistant"))
        ok = find_turn(&f, i);
  *ret_text = f.text;
  *ret_spans = f.spans;
  *ret_count = f.count;
  return ok;
}
