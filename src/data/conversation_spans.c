// SPDX-License-Identifier: Apache-2.0
/* The trained spans of a rendered conversation.
 *
 * Without {% generation %} marks, turn i of the assistant is found with two further renderings: the
 * prompt P of messages[:i] with a generation prompt, and the turn's own end Q of messages[:i + 1].
 * If Q begins with P and the whole text begins with Q, the turn is what Q has more than P.
 *
 * Else later messages have changed the text before them. Then anchors are used: a text of a message
 * that the template writes unchanged and once (its content, or the name of its last tool call). An
 * anchor is found in a rendering by replacing it: nothing but its own bytes may differ then. The
 * turn ends with what Q has behind its anchor, if the whole text has the same there. It begins
 * behind the prompt, whose place is that of the message before it.
 *
 * What the whole text has behind Q, up to what the loop over the messages writes of the next one,
 * is neither the next message's nor a part of the turn as rendered alone. White space there
 * separates, end-of-turn tokens belong to the turn (a template may write them behind all turns but
 * the last), and with any other text the line is refused. */
#include "data/chat_template_builtin.h"
#include "data/conversation_internal.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_conversation_format *format;
  const tsr_chat *chat;
  tsr_conversation_place *at;
  tsr_jinja_string text;            /* of the whole conversation */
  const tsr_jinja_written *written; /* where loops over the messages have written the text */
  int written_count;
  const tsr_jinja_string *ends; /* the texts of tokens that end a turn */
  int ends_count;
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
    f->written = out->written;
    f->written_count = out->written_count;
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

/* The renderings that turn i is found with. */
typedef struct {
  int i;
  tsr_jinja_string before;     /* messages[:i] without a generation prompt; no bytes: refused */
  tsr_jinja_string prompts[3]; /* with one; as given, and with and without reasoning */
  int prompts_count;
  tsr_jinja_string turn; /* messages[:i + 1] */
} renderings;

/* The conversation with the variables that switch reasoning, unless they are given. */
static tsr_chat with_thinking(finder *f, bool thinks) {
  static const char *const names[] = {"enable_thinking", "thinking"};
  tsr_chat chat = *f->chat;
  chat.extra = tsr_jinja_new_dict(f->arena, TSR_JINJA_DICT);
  for (int k = 0; k < 2; k++)
    tsr_jinja_set(f->arena, chat.extra.dict, tsr_jinja_text(names[k]), tsr_jinja_bool(thinks));
  for (int k = 0; f->chat->extra.kind == TSR_JINJA_DICT && k < f->chat->extra.dict->count; k++)
    tsr_jinja_set(
        f->arena, chat.extra.dict, f->chat->extra.dict->entries[k].key,
        f->chat->extra.dict->entries[k].value);
  return chat;
}

/* Some templates end a text, and no turn, with the end-of-sequence token: without it. */
static bool cut_eos(const finder *f, tsr_jinja_string *text) {
  const char *eos = tsr_chat_template_eos(f->format->template);
  int64_t length = eos ? (int64_t)strlen(eos) : 0;
  if (!length || !has_at(*text, text->length - length, (tsr_jinja_string){eos, length}))
    return false;
  text->length -= length;
  return true;
}

/* messages[:i] as the prompt begins. */
static bool render_before(finder *f, int i, tsr_jinja_string prompt, tsr_jinja_string *ret) {
  tsr_jinja_string cut;
  if (!try_render(f, f->chat, i, false, ret)) return false;
  cut = *ret;
  if (!tsr_jinja_starts(prompt, *ret) && cut_eos(f, &cut) && tsr_jinja_starts(prompt, cut))
    *ret = cut;
  return true;
}

static bool render_around(finder *f, int i, renderings *r) {
  const tsr_chat chats[] = {*f->chat, with_thinking(f, false), with_thinking(f, true)};
  *r = (renderings){.i = i};
  for (int k = 0; k < 3; k++)
    r->prompts_count += try_render(f, &chats[k], i, true, &r->prompts[r->prompts_count]);
  if (!render_before(f, i, r->prompts[0], &r->before)) r->before = (tsr_jinja_string){"", 0};
  if (i + 1 == f->chat->messages.list->count) r->turn = f->text;
  else if (!try_render(f, f->chat, i + 1, false, &r->turn)) return false;
  return r->prompts_count > 0;
}

/* Where messages[:i] end in a text that begins with them, or that has the end of the last one of
 * them behind its anchor. -1: that is not known. */
static int64_t find_begin(finder *f, const renderings *r, int count, tsr_jinja_string text) {
  tsr_jinja_span in_before, in_text;
  tsr_jinja_string before = r->before;
  if (tsr_jinja_starts(text, before)) return before.length;
  anchor a = {0};
  if (before.length && r->i) a = find_anchor(f->chat->messages.list->items[r->i - 1]);
  if (!a.value || !locate_anchor(f, a, r->i, before, &in_before) ||
      !locate_anchor(f, a, count, text, &in_text))
    return -1;
  tsr_jinja_string end = part_of(before, in_before.end, before.length);
  return has_at(text, in_text.end, end) ? in_text.end + end.length : -1;
}

/* Where the assistant's text begins in a text that has messages[:i] up to `begin` and the anchor at
 * `most`: behind a generation prompt; or at the anchor, if nothing but the beginning of a prompt is
 * in front of it, because the turn has not what the prompt opens (<think>). -1: neither. */
static int64_t
end_of_prompt(const renderings *r, tsr_jinja_string text, int64_t begin, int64_t most) {
  if (begin < 0 || begin > most) return -1;
  for (int k = 0; k < r->prompts_count; k++) {
    if (!tsr_jinja_starts(r->prompts[k], r->before)) continue;
    tsr_jinja_string prompt = part_of(r->prompts[k], r->before.length, r->prompts[k].length);
    if (prompt.length <= most - begin && has_at(text, begin, prompt)) return begin + prompt.length;
  }
  for (int k = 0; k < r->prompts_count; k++)
    if (tsr_jinja_starts(r->prompts[k], r->before) &&
        has_at(r->prompts[k], r->before.length, part_of(text, begin, most)))
      return most;
  return -1;
}

/* A prompt that the text begins with, and that ends at `most` or before. */
static int64_t whole_prompt(const renderings *r, tsr_jinja_string text, int64_t most) {
  for (int k = 0; k < r->prompts_count; k++)
    if (r->prompts[k].length <= most && tsr_jinja_starts(text, r->prompts[k]))
      return r->prompts[k].length;
  return -1;
}

/* The turn around its anchor in the whole text. */
static bool align(finder *f, const renderings *r, tsr_jinja_span *ret) {
  anchor a = find_anchor(f->chat->messages.list->items[r->i]);
  tsr_jinja_span in_turn = {0}, in_text = {0};
  int count = f->chat->messages.list->count;
  if (!a.value || !locate_anchor(f, a, r->i + 1, r->turn, &in_turn) ||
      !locate_anchor(f, a, count, f->text, &in_text))
    return false;
  tsr_jinja_string end = part_of(r->turn, in_turn.end, r->turn.length);
  if (!has_at(f->text, in_text.end, end)) return false;
  ret->end = in_text.end + end.length;
  ret->begin = whole_prompt(r, f->text, in_text.begin);
  if (ret->begin < 0)
    ret->begin = end_of_prompt(r, f->text, find_begin(f, r, count, f->text), in_text.begin);
  return ret->begin >= 0;
}

static bool locate_turn(finder *f, const renderings *r, tsr_jinja_span *ret) {
  int64_t begin = whole_prompt(r, r->turn, r->turn.length);
  if (begin < 0 || !tsr_jinja_starts(f->text, r->turn)) return false;
  *ret = (tsr_jinja_span){begin, r->turn.length};
  return true;
}

/* ---- behind a turn ---- */

/* The texts of the end-of-sequence token and of the tokenizer's tokens that end a turn. */
static void find_ends(finder *f) {
  int32_t stops[TSR_CHAT_STOPS_MAX];
  int count = tsr_chat_stops(&f->format->tokenizer, stops);
  const char *eos = tsr_chat_template_eos(f->format->template);
  tsr_jinja_string *ends = tsr_arena_array(f->arena, tsr_jinja_string, count + 1);
  if (eos && *eos) ends[f->ends_count++] = tsr_jinja_text(eos).string;
  for (int i = 0; i < count; i++) {
    size_t length;
    const char *text = tsr_subword_token(f->format->tokenizer.subword, stops[i], &length);
    ends[f->ends_count++] = (tsr_jinja_string){text, (int64_t)length};
  }
  f->ends = ends;
}

/* The length of a token that ends a turn: one that begins at `at`, or with `before` ends there.
 * 0: there is none. */
static int64_t end_token(const finder *f, int64_t at, bool before) {
  for (int k = 0; k < f->ends_count; k++)
    if (has_at(f->text, before ? at - f->ends[k].length : at, f->ends[k])) return f->ends[k].length;
  return 0;
}

static bool is_blank(const finder *f, int64_t at) {
  if (at < 0 || at >= f->text.length) return false;
  char c = f->text.bytes[at];
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Where the loops over the messages begin to write what they have of messages behind message i, at
 * `end` or before if they do not stop there. -1: no loop writes them. */
static int64_t find_next(const finder *f, int i, int64_t end) {
  int64_t next = -1;
  for (int k = 0; k < f->written_count; k++) {
    const tsr_jinja_written *w = &f->written[k];
    if (w->label > i + 1 && w->end > end && (next < 0 || w->begin < next)) next = w->begin;
  }
  return next;
}

/* Adds the end of message i that the whole text alone has. */
static bool take_end(const finder *f, int i, tsr_jinja_span *turn) {
  int64_t at = turn->end, last = turn->end, next = find_next(f, i, turn->end);
  if (at == f->text.length) return true;
  if (next < 0) return false;
  while (last > turn->begin && is_blank(f, last - 1)) last--;
  bool has_end = end_token(f, last, true) > 0;
  for (int64_t length; at < next || !has_end; at += length) {
    length = is_blank(f, at) ? 1 : end_token(f, at, false);
    if (!length) return at >= next;
    if (is_blank(f, at)) continue;
    turn->end = at + length;
    has_end = true;
  }
  return true;
}

static bool find_turn(finder *f, int i) {
  renderings r;
  tsr_jinja_span span;
  bool ok = render_around(f, i, &r) &&
            (locate_turn(f, &r, &span) || align(f, &r, &span) ||
             (cut_eos(f, &r.turn) && locate_turn(f, &r, &span))) &&
            (i + 1 == f->chat->messages.list->count || take_end(f, i, &span));
  if (!ok)
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

/* Adds the marked spans that messages[:first] do not have. A mark may begin in what these end with,
 * a closing tag, but not in one of their own marks. */
static bool add_later_marks(finder *f, const tsr_jinja_output *out, int first) {
  renderings r = {.i = first};
  tsr_jinja_output before;
  if (!render(f, f->chat, first, false, tsr_diags_new(f->arena), &before)) return false;
  tsr_text_free(&before.text);
  if (!try_render(f, f->chat, first, true, &r.prompts[0])) r.prompts[0] = (tsr_jinja_string){"", 0};
  if (!render_before(f, first, r.prompts[0], &r.before)) return false;
  int64_t begin = find_begin(f, &r, f->chat->messages.list->count, f->text);
  int64_t own = tsr_jinja_starts(f->text, r.before) ? 0 : begin; /* where marks may begin */
  for (int i = 0; i < before.spans_count && own < begin; i++) own = before.spans[i].end;
  for (int i = 0; i < out->spans_count; i++) {
    if (out->spans[i].end <= begin) continue;
    if (out->spans[i].begin < own) return false;
    add_span(f, out->spans[i].begin, out->spans[i].end);
  }
  return begin >= 0 && f->count;
}

/* The marked spans of messages from `first` on. */
static bool take_marked(finder *f, const tsr_jinja_output *out, int first) {
  if (first)
    return add_later_marks(f, out, first) ||
           tsr_conversation_fail(
               f->at,
               "message %d: what the chat template marks in this and later messages cannot be "
               "determined",
               first + 1);
  for (int i = 0; i < out->spans_count; i++) add_span(f, out->spans[i].begin, out->spans[i].end);
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
  find_ends(&f);
  int last = last_assistant(f.chat);
  if (format->train_on == TSR_TRAIN_ON_ALL) ok = true;
  else if (last < line->prompt_count)
    ok = tsr_conversation_fail(at, "there is no message of the assistant to train on");
  else if (tsr_chat_template_has_generation(format->template, f.chat))
    ok = take_marked(&f, &out, last_alone ? last : line->prompt_count);
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
