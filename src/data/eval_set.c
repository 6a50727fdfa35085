// SPDX-License-Identifier: Apache-2.0
#include "data/eval_set.h"
#include "data/jsonl.h"
#include "data/text_check.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const tsr_eval_kind_names[] = {"choice", "completion", "text"};

static const char *const context_keys[] = {"context", "question", "prompt", "ctx", "goal"};
static const char *const choices_keys[] = {"choices", "endings"};
static const char *const answer_keys[] = {"answer", "label", "answerKey"};
static const char *const all_keys[] = {"context", "question",  "prompt", "ctx",        "goal",
                                       "choices", "endings",   "sol1",   "sol2",       "answer",
                                       "label",   "answerKey", "text",   "completion", NULL};
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* A line that is being read. */
typedef struct {
  tsr_arena *arena;
  const tsr_text_file *file;
  const tsr_eval_format *format;
  tsr_diags *diags;
  size_t offset, length; /* of the line */
  const tsr_jinja_dict *members;
  const tsr_jinja_list *labels; /* of choices that have labels; NULL: they have none */
} reader;

static bool fail_at(const reader *r, size_t at, const char *text) {
  return tsr_diag_error(
      r->diags, tsr_text_file_place(r->file, r->offset + at, 1, r->diags), "%s", text);
}

/* An error at the value of a key, or at an item of its list; `key` NULL: at the line's begin. */
static bool fail(const reader *r, const char *key, int item, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool fail(const reader *r, const char *key, int item, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return fail_at(r, key ? tsr_jsonl_find(r->file->text + r->offset, key, item) : 0, text);
}

/* A key's value; NULL: it is missing or null. */
static const tsr_jinja_value *get(const reader *r, const char *key) {
  const tsr_jinja_value *v = tsr_jinja_get_text(r->members, key);
  return v && v->kind != TSR_JINJA_NONE ? v : NULL;
}

static bool
take_text(const reader *r, const char *key, int item, const tsr_jinja_value *v, const char **ret) {
  if (v->kind != TSR_JINJA_STRING)
    return fail(
        r, key, item, "%s '%s' should be a string, not %s", item < 0 ? "key" : "an item of", key,
        tsr_jinja_kind_name(v->kind));
  *ret = tsr_arena_strndup(r->arena, v->string.bytes, (size_t)v->string.length);
  return true;
}

/* The one key of a list that the line has. Errors: none (`what` is missing), or two. */
static bool
find_key(const reader *r, const char *const *keys, int count, const char *what, const char **ret) {
  *ret = NULL;
  for (int i = 0; i < count; i++) {
    if (!get(r, keys[i])) continue;
    if (*ret)
      return fail(r, keys[i], -1, "the line has %s twice: '%s' and '%s'", what, *ret, keys[i]);
    *ret = keys[i];
  }
  if (*ret) return true;
  tsr_text list = {0};
  for (int i = 0; i < count; i++) tsr_text_add(&list, "%s'%s'", i ? ", " : "", keys[i]);
  fail(r, NULL, -1, "the line has no %s: it should be under one of %s", what, list.data);
  tsr_text_free(&list);
  return false;
}

/* ---- context ---- */

static bool render_context(const reader *r, const char **ret) {
  tsr_jinja_output out;
  if (!tsr_jinja_render(r->arena, r->format->context, r->members, NULL, &out, r->diags)) {
    tsr_text_file_place(r->file, r->offset, 1, r->diags);
    return fail(r, NULL, -1, "the template of the context cannot be rendered for this line");
  }
  *ret = tsr_arena_strndup(r->arena, out.text.data ? out.text.data : "", out.text.length);
  tsr_text_free(&out.text);
  return true;
}

static bool read_context(const reader *r, const char **ret) {
  const char *key;
  if (r->format->context) return render_context(r, ret);
  if (!find_key(r, context_keys, COUNT(context_keys), "context", &key)) {
    if (key) tsr_diag_hint(r->diags, "--context-template TEXT makes the context of several keys");
    return false;
  }
  return take_text(r, key, -1, get(r, key), ret);
}

/* ---- choices ---- */

static bool take_choice(
    const reader *r, const char *key, int number, const tsr_jinja_value *v, tsr_eval_item *item) {
  const char **choice = &item->choices[item->choices_count++];
  if (!take_text(r, key, number, v, choice)) return false;
  return **choice || fail(r, key, number, "the choice is empty");
}

static int compare_labels(const void *a, const void *b) {
  const tsr_jinja_value *const *p = a, *const *q = b;
  const tsr_jinja_string *s = &(*p)->string, *t = &(*q)->string;
  int64_t shorter = s->length < t->length ? s->length : t->length;
  int order = memcmp(s->bytes, t->bytes, (size_t)shorter);
  if (!order) order = (s->length > t->length) - (s->length < t->length);
  return order ? order : (*p > *q) - (*p < *q);
}

/* An answer names a label: it would be the first of two. */
static bool check_labels(const reader *r, const char *key) {
  const tsr_jinja_list *labels = r->labels;
  const tsr_jinja_value **sorted =
      tsr_arena_array(r->arena, const tsr_jinja_value *, labels->count);
  int count = 0, again = -1;
  for (int i = 0; i < labels->count; i++)
    if (labels->items[i].kind == TSR_JINJA_STRING) sorted[count++] = &labels->items[i];
  qsort(sorted, (size_t)count, sizeof *sorted, compare_labels);
  for (int i = 1; i < count; i++) {
    const tsr_jinja_string *s = &sorted[i - 1]->string, *t = &sorted[i]->string;
    int at = (int)(sorted[i] - labels->items);
    bool same = s->length == t->length && !memcmp(s->bytes, t->bytes, (size_t)s->length);
    if (same && (again < 0 || at < again)) again = at;
  }
  if (again < 0) return true;
  const char *line = r->file->text + r->offset;
  const tsr_jinja_string *label = &labels->items[again].string;
  size_t object = tsr_jsonl_find(line, key, -1);
  return fail_at(
      r, object + tsr_jsonl_find(line + object, "label", again),
      tsr_arena_printf(
          r->arena, "two choices have the label '%.*s'",
          label->length < 80 ? (int)label->length : 80, label->bytes));
}

/* ARC: {"text": [...], "label": [...]} */
static bool split_labels(reader *r, const char *key, const tsr_jinja_value **choices) {
  const tsr_jinja_dict *both = (*choices)->dict;
  const tsr_jinja_value *labels = tsr_jinja_get_text(both, "label");
  *choices = tsr_jinja_get_text(both, "text");
  bool lists = *choices && (*choices)->kind == TSR_JINJA_LIST && labels &&
               labels->kind == TSR_JINJA_LIST && labels->list->count == (*choices)->list->count;
  if (!lists)
    return fail(
        r, key, -1, "an object '%s' should have two lists of one length, 'text' and 'label'", key);
  r->labels = labels->list;
  return check_labels(r, key);
}

static bool read_choices(reader *r, tsr_eval_item *item) {
  static const char *const pair[] = {"sol1", "sol2"};
  const tsr_jinja_value *choices;
  const char *key;
  bool ok = true;
  r->labels = NULL;
  if (get(r, pair[0]) && get(r, pair[1])) {
    item->choices = tsr_arena_array(r->arena, const char *, 2);
    for (int i = 0; i < 2; i++) ok &= take_choice(r, pair[i], -1, get(r, pair[i]), item);
    return ok;
  }
  if (!find_key(r, choices_keys, COUNT(choices_keys), "choices", &key)) return false;
  choices = get(r, key);
  if (choices->kind == TSR_JINJA_DICT && !split_labels(r, key, &choices)) return false;
  if (choices->kind != TSR_JINJA_LIST || choices->list->count < 2)
    return fail(r, key, -1, "'%s' should be a list of at least two strings", key);
  item->choices = tsr_arena_array(r->arena, const char *, choices->list->count);
  for (int i = 0; i < choices->list->count && ok; i++)
    ok = take_choice(r, key, r->labels ? -1 : i, &choices->list->items[i], item);
  return ok;
}

/* ---- answer ---- */

enum { NO_CHOICE = -1, TWO_CHOICES = -2 };

/* The first of these that the answer is: a choice's label, its text, its letter, its number. */
static int find_answer(const reader *r, const tsr_eval_item *item, const char *answer) {
  int number = 0, found = NO_CHOICE;
  for (int i = 0; r->labels && i < r->labels->count; i++)
    if (tsr_jinja_is_text(r->labels->items[i], answer)) return i;
  for (int i = 0; i < item->choices_count; i++)
    if (!strcmp(item->choices[i], answer)) found = found == NO_CHOICE ? i : TWO_CHOICES;
  if (found != NO_CHOICE) return found;
  if (answer[0] >= 'A' && answer[0] <= 'Z' && !answer[1])
    return answer[0] - 'A' < item->choices_count ? answer[0] - 'A' : NO_CHOICE;
  if (!*answer) return NO_CHOICE;
  for (const char *at = answer; *at; at++) {
    if (*at < '0' || *at > '9' || number >= item->choices_count) return NO_CHOICE;
    number = 10 * number + (*at - '0');
  }
  return number < item->choices_count ? number : NO_CHOICE;
}

static bool read_answer(const reader *r, tsr_eval_item *item) {
  const char *key, *text;
  if (!find_key(r, answer_keys, COUNT(answer_keys), "answer", &key)) return false;
  const tsr_jinja_value *v = get(r, key);
  if (v->kind == TSR_JINJA_INT) {
    if (v->integer < 0 || v->integer >= item->choices_count)
      return fail(
          r, key, -1, "answer %lld is none of the %d choices, which are counted from 0",
          (long long)v->integer, item->choices_count);
    item->answer = (int)v->integer;
    return true;
  }
  if (v->kind != TSR_JINJA_STRING)
    return fail(
        r, key, -1, "key '%s' should be the number, letter or text of a choice, not %s", key,
        tsr_jinja_kind_name(v->kind));
  if (!take_text(r, key, -1, v, &text)) return false;
  item->answer = find_answer(r, item, text);
  if (item->answer == TWO_CHOICES) return fail(r, key, -1, "two choices are '%.80s'", text);
  return item->answer >= 0 ||
         fail(
             r, key, -1, "'%.80s' is neither the number, the letter nor the text of a choice",
             text);
}

/* ---- lines ---- */

static bool split_last_word(const reader *r, tsr_eval_item *item) {
  const char *text = item->choices[0], *space = strrchr(text, ' ');
  if (!space || !space[1])
    return fail(r, "text", -1, "the text %s", space ? "ends with a space" : "is a single word");
  item->context = tsr_arena_strndup(r->arena, text, (size_t)(space - text));
  item->choices[0] = space;
  return true;
}

static bool read_item(reader *r, tsr_eval_item *item, tsr_eval_kind *ret_kind) {
  const char *key = "completion";
  if (get(r, "choices") || get(r, "endings") || get(r, "sol1")) {
    *ret_kind = TSR_EVAL_CHOICE;
    bool ok = read_context(r, &item->context);
    return read_choices(r, item) && read_answer(r, item) && ok;
  }
  *ret_kind = get(r, key) ? TSR_EVAL_COMPLETION : TSR_EVAL_TEXT;
  if (*ret_kind == TSR_EVAL_TEXT) key = "text";
  if (!get(r, key)) {
    fail(r, NULL, -1, "the line has neither choices, a completion nor a text");
    tsr_diag_hint(
        r->diags, "{\"question\": …, \"choices\": […], \"answer\": …}, {\"prompt\": …, "
                  "\"completion\": …} or {\"text\": …}");
    return false;
  }
  item->context = "";
  if (*ret_kind == TSR_EVAL_COMPLETION && !read_context(r, &item->context)) return false;
  item->choices = tsr_arena_array(r->arena, const char *, 1);
  if (!take_choice(r, key, -1, get(r, key), item)) return false;
  if (*ret_kind == TSR_EVAL_COMPLETION || !r->format->last_word) return true;
  *ret_kind = TSR_EVAL_COMPLETION;
  return split_last_word(r, item);
}

static bool read_line(reader *r, tsr_eval_item *item, tsr_eval_kind *ret_kind) {
  tsr_json_fault fault;
  tsr_jinja_value line;
  const char *text = r->file->text + r->offset;
  bool right = r->format->context
                   ? tsr_jinja_read_json(r->arena, text, r->length, &line, &fault)
                   : tsr_jinja_read_members(r->arena, text, r->length, all_keys, &line, &fault);
  if (!right)
    return tsr_diag_error(
        r->diags, tsr_text_file_place(r->file, r->offset + fault.offset, 1, r->diags), "%s",
        fault.message);
  if (line.kind != TSR_JINJA_DICT)
    return fail(r, NULL, -1, "a line should be an object, not %s", tsr_jinja_kind_name(line.kind));
  r->members = line.dict;
  return read_item(r, item, ret_kind);
}

static bool is_blank(const char *text, size_t length) { return strspn(text, " \t\r") >= length; }

static bool add_line(reader *r, int number, tsr_eval_set *set, int *capacity) {
  tsr_eval_kind kind;
  tsr_eval_item item = {.offset = r->offset, .line = number};
  if (!read_line(r, &item, &kind)) return false;
  if (!set->count) set->kind = kind;
  if (kind != set->kind)
    return fail(
        r, NULL, -1, "the line is a %s, and those before it are %ss", tsr_eval_kind_names[kind],
        tsr_eval_kind_names[set->kind]);
  tsr_arena_grow(r->arena, (void **)&set->items, sizeof item, set->count, capacity);
  set->items[set->count++] = item;
  return true;
}

bool tsr_eval_set_read(
    tsr_arena *arena, const tsr_text_file *file, const tsr_eval_format *format,
    tsr_eval_set *ret_set, tsr_diags *diags) {
  static const char mark[] = "\xef\xbb\xbf";
  reader r = {.arena = arena, .file = file, .format = format, .diags = diags};
  bool ok = tsr_content_check_lines(file, TSR_NOWHERE, diags);
  int number = 1, capacity = 0;
  *ret_set = (tsr_eval_set){.file = *file};
  if (!ok) return false;
  if (file->length >= sizeof mark - 1 && !memcmp(file->text, mark, sizeof mark - 1))
    r.offset = sizeof mark - 1;
  for (; r.offset < file->length; number++) {
    const char *text = file->text + r.offset, *end = memchr(text, '\n', file->length - r.offset);
    size_t whole = end ? (size_t)(end - text) : file->length - r.offset;
    r.length = whole;
    while (r.length && text[r.length - 1] == '\r') r.length--;
    if (!is_blank(text, r.length)) ok &= add_line(&r, number, ret_set, &capacity);
    r.offset += whole + (end != NULL);
  }
  if (ok && !ret_set->count)
    return tsr_diag_error(diags, (tsr_location){.file = file->path}, "the file has no line");
  return ok;
}
