// SPDX-License-Identifier: Apache-2.0
#include "data/eval_requests.h"
#include "base/utf8.h"
#include "data/sample_order.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_eval_set *set;
  const tsr_eval_prompting *how;
  tsr_subword_scratch *scratch;
  tsr_diags *diags;
  tsr_eval_request *requests;
  int count, capacity;
  const char *name; /* of the item's texts, in errors of the tokenizer */
  /* of the text that is encoded; grown as needed */
  int32_t *tokens;
  int64_t *begins, room;
} maker;

static bool fail(const maker *m, const tsr_eval_item *item, const char *message) {
  tsr_location location = tsr_text_file_place(&m->set->file, item->offset, 1, m->diags);
  return tsr_diag_error(m->diags, location, "%s", message);
}

/* ---- texts ---- */

/* The length without the white space at the end, as Python's str.rstrip. */
static size_t stripped_length(const char *text, size_t length) {
  size_t kept = 0;
  for (size_t at = 0; at < length;) {
    uint32_t code = (unsigned char)text[at];
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    at += bytes ? (size_t)bytes : 1;
    if (!tsr_utf8_is_space(code) && !(code >= 0x1C && code <= 0x1F)) kept = at;
  }
  return kept;
}

static bool is_same_item(const tsr_eval_item *a, const tsr_eval_item *b) {
  return !strcmp(a->context, b->context) && !strcmp(a->choices[a->answer], b->choices[b->answer]);
}

/* The numbers of an item's examples, ascending; false: there are too few. */
static bool choose_examples(const maker *m, int number, int *ret_examples) {
  const tsr_eval_set *examples = m->how->examples;
  const tsr_eval_item *item = &m->set->items[number];
  int count = 0;
  for (int i = 0; i < examples->count && count < m->how->shots; i++) {
    int64_t position = (int64_t)number * examples->count + i;
    int at = count, drawn = (int)tsr_sample_order_at(m->how->seed, examples->count, position);
    if (is_same_item(&examples->items[drawn], item)) continue;
    for (; at > 0 && ret_examples[at - 1] > drawn; at--) ret_examples[at] = ret_examples[at - 1];
    ret_examples[at] = drawn;
    count++;
  }
  return count == m->how->shots;
}

static bool add_examples(const maker *m, int number, tsr_text *text) {
  const tsr_eval_prompting *how = m->how;
  const char *delimiter = m->set->kind == TSR_EVAL_CHOICE ? how->delimiter : "";
  if (!how->shots) return true;
  int *chosen = tsr_arena_array(m->arena, int, how->shots);
  if (!choose_examples(m, number, chosen))
    return fail(
        m, &m->set->items[number],
        tsr_arena_printf(
            m->arena, "'%s' has fewer than %d examples beside this line", how->examples->file.path,
            how->shots));
  for (int i = 0; i < how->shots; i++) {
    const tsr_eval_item *e = &how->examples->items[chosen[i]];
    tsr_text_add(
        text, "%s%s%s%s", e->context, delimiter, e->choices[e->answer], how->shots_delimiter);
  }
  return true;
}

/* The text becomes one message of the user, rendered up to the answer. */
static bool render_chat(const maker *m, const tsr_eval_item *item, tsr_text *text) {
  tsr_arena *arena = m->arena;
  tsr_jinja_value messages = tsr_jinja_new_list(arena, TSR_JINJA_LIST);
  tsr_jinja_value message = tsr_jinja_new_dict(arena, TSR_JINJA_DICT);
  tsr_jinja_output out;
  tsr_jinja_set(arena, message.dict, tsr_jinja_text("role"), tsr_jinja_text("user"));
  tsr_jinja_set(arena, message.dict, tsr_jinja_text("content"), tsr_jinja_take(arena, text));
  tsr_jinja_append(arena, messages.list, message);
  const tsr_chat chat = {.messages = messages};
  *text = (tsr_text){0};
  if (!tsr_chat_template_render(arena, m->how->chat, &chat, 1, true, &out, m->diags))
    return fail(m, item, "the chat template cannot be rendered with this context");
  *text = out.text;
  return true;
}

/* ---- tokens ---- */

/* Whether the text begins with the prefix token's text, which its template would repeat. */
static bool begins_with_prefix(const tsr_eval_prompting *how, const char *text, size_t length) {
  tsr_text prefix = {0};
  if (how->prefix >= 0) tsr_tokenizer_decode(&how->tokenizer, &how->prefix, 1, &prefix);
  bool begins =
      prefix.length && prefix.length <= length && !memcmp(text, prefix.data, prefix.length);
  tsr_text_free(&prefix);
  return begins;
}

/* The text's tokens, behind those of the tokenizer's template if `special`: in m->tokens. */
static bool encode(maker *m, const char *text, size_t length, bool special, int64_t *ret_count) {
  const tsr_tokenizer *tokenizer = &m->how->tokenizer;
  const tsr_text_file file = {m->name, text, length};
  const int32_t *before = NULL;
  int64_t first = 0;
  if (special && tokenizer->kind == TSR_TOKENIZER_SUBWORD &&
      !begins_with_prefix(m->how, text, length))
    first = tsr_subword_before(tokenizer->subword, &before);
  int64_t room = tsr_tokenizer_room(tokenizer, text, length) + first + 1;
  if (room > m->room) {
    m->room = 2 * room;
    m->tokens = tsr_arena_array(m->arena, int32_t, m->room);
    m->begins = tsr_arena_array(m->arena, int64_t, m->room);
  }
  if (first) memcpy(m->tokens, before, sizeof *before * (size_t)first);
  if (!tsr_tokenizer_encode_begins(
          tokenizer, m->scratch, &file, m->tokens + first, m->begins, ret_count, m->diags))
    return false;
  *ret_count += first;
  return true;
}

/* The tokens that were encoded, behind the prefix token if `prefixed`. */
static int32_t *keep_tokens(const maker *m, int64_t count, bool prefixed) {
  int32_t *kept = tsr_arena_array(m->arena, int32_t, count + 1);
  if (prefixed) kept[0] = m->how->prefix;
  memcpy(kept + prefixed, m->tokens, sizeof *kept * (size_t)count);
  return kept;
}

/* `tokens`: with what is scored at their end, and at least one token before it. */
static void add_request(maker *m, tsr_eval_request request) {
  int64_t most = m->how->window + 1;
  if (request.count > most) {
    request.tokens += request.count - most;
    request.count = most;
  }
  tsr_arena_grow(m->arena, (void **)&m->requests, sizeof *m->requests, m->count, &m->capacity);
  m->requests[m->count++] = request;
}

static bool check_scored(const maker *m, const tsr_eval_item *item, int choice, int64_t scored) {
  if (scored >= 1 && scored <= m->how->window) return true;
  return fail(
      m, item,
      scored < 1 ? tsr_arena_printf(
                       m->arena, "choice %d makes no token of its own behind the context", choice)
                 : tsr_arena_printf(
                       m->arena, "choice %d has %lld tokens, and the model reads %lld at most",
                       choice, (long long)scored, (long long)m->how->window));
}

static bool check_prefix(const maker *m, const tsr_eval_item *item) {
  if (m->how->prefix >= 0) return true;
  return fail(
      m, item,
      "nothing stands before the first token, and the tokenizer has no token that begins "
      "or ends a text");
}

/* A choice behind a context of `before` tokens, which may be none; `text` is both. The context's
 * tokens are those that it has alone, also where its end and the choice make a token together. An
 * equal first token stands for the prefix token. */
static bool add_choice(
    maker *m, int number, int choice, const tsr_text *text, const int32_t *context,
    int64_t before) {
  const tsr_eval_item *item = &m->set->items[number];
  tsr_eval_request request = {.item = number, .choice = choice};
  if (!encode(m, text->data, text->length, before > 0, &request.count)) return false;
  bool prefixed = !before && !(request.count && m->tokens[0] == m->how->prefix);
  if (prefixed && !check_prefix(m, item)) return false;
  int32_t *tokens = keep_tokens(m, request.count, prefixed);
  request.tokens = tokens;
  request.count += prefixed;
  request.scored = request.count - (before ? before : 1);
  if (!check_scored(m, item, choice, request.scored)) return false;
  if (before) memcpy(tokens, context, sizeof *tokens * (size_t)before);
  add_request(m, request);
  return true;
}

static bool add_choices(maker *m, int number) {
  const tsr_eval_item *item = &m->set->items[number];
  bool delimits = m->set->kind == TSR_EVAL_CHOICE && !m->how->chat;
  int64_t before = 0;
  tsr_text text = {0};
  bool ok = add_examples(m, number, &text);
  tsr_text_add_bytes(&text, item->context, strlen(item->context));
  if (ok && m->how->chat) ok = render_chat(m, item, &text);
  size_t length = text.length;
  if (ok && length) ok = encode(m, text.data, stripped_length(text.data, length), true, &before);
  const int32_t *context = before ? keep_tokens(m, before, false) : NULL;
  for (int c = 0; ok && c < item->choices_count; c++) {
    text.length = length;
    tsr_text_add(&text, "%s%s", delimits ? m->how->delimiter : "", item->choices[c]);
    ok = add_choice(m, number, c, &text, context, before);
  }
  tsr_text_free(&text);
  return ok;
}

/* Windows of the tokens behind the prefix token: the last begins where it is whole. */
static bool add_windows(maker *m, int number) {
  const tsr_eval_item *item = &m->set->items[number];
  int64_t window = m->how->window, count;
  const char *text = item->choices[0];
  if (!check_prefix(m, item) || !encode(m, text, strlen(text), true, &count)) return false;
  if (!count) return fail(m, item, "the text has no token");
  const int32_t *tokens = keep_tokens(m, count, true);
  for (int64_t done = 0; done < count;) {
    int64_t scored = count - done < window ? count - done : window, end = done + scored;
    int64_t begin = end > window ? end - window : 0;
    add_request(m, (tsr_eval_request){number, 0, tokens + begin, end - begin + 1, scored});
    done = end;
  }
  return true;
}

static bool add_item(maker *m, int number) {
  m->name =
      tsr_arena_printf(m->arena, "%s, line %d", m->set->file.path, m->set->items[number].line);
  return m->set->kind == TSR_EVAL_TEXT ? add_windows(m, number) : add_choices(m, number);
}

bool tsr_eval_requests(
    tsr_arena *arena, const tsr_eval_set *set, const tsr_eval_prompting *how,
    tsr_eval_request **ret_requests, int *ret_count, tsr_diags *diags) {
  maker m = {
      .arena = arena, .set = set, .how = how, .scratch = tsr_subword_scratch_new(), .diags = diags};
  bool ok = true;
  for (int i = 0; i < set->count; i++) ok &= add_item(&m, i);
  tsr_subword_scratch_free(m.scratch);
  *ret_requests = m.requests;
  *ret_count = m.count;
  return ok;
}
