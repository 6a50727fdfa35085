// SPDX-License-Identifier: Apache-2.0
/* Methods of strings, dicts and lists. Letters outside ASCII keep their case. */
#include "jinja/run.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings: what they are made of ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 28 && c <= 31); }

static bool is_one_of(jinja_string s, int64_t begin, int64_t end, const jinja_string *set) {
  if (!set) return end == begin + 1 && is_space(s.bytes[begin]);
  return jinja_find(*set, (jinja_string){s.bytes + begin, end - begin}, 0) >= 0;
}

static int64_t code_end(jinja_string s, int64_t at) {
  do at++;
  while (at < s.length && ((unsigned char)s.bytes[at] & 0xC0) == 0x80);
  return at;
}
static int64_t code_begin(jinja_string s, int64_t at) {
  do at--;
  while (at > 0 && ((unsigned char)s.bytes[at] & 0xC0) == 0x80);
  return at;
}

static jinja_string stripped(jinja_string s, const jinja_string *set, bool left, bool right) {
  int64_t begin = 0, end = s.length;
  while (left && begin < end && is_one_of(s, begin, code_end(s, begin), set))
    begin = code_end(s, begin);
  while (right && end > begin && is_one_of(s, code_begin(s, end), end, set))
    end = code_begin(s, end);
  return (jinja_string){s.bytes + begin, end - begin};
}

static bool strip(jinja_run *r, const jinja_arguments *a, bool left, bool right, jinja_value *ret) {
  jinja_string set;
  const jinja_value *chars = argument(a, 0, "chars");
  if (!arguments_are(r, a, 1, (const char *const[]){"chars", NULL})) return false;
  bool all = !chars || chars->kind == JINJA_NONE;
  if (!all && !argument_text(r, a, 0, "chars", &set)) return false;
  jinja_string s = stripped(a->self.string, all ? NULL : &set, left, right);
  return *ret = jinja_bytes(s.bytes, s.length), run_count(r, a->location, a->self.string.length / 64);
}
static bool text_strip(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return strip(r, a, true, true, ret);
}
static bool text_lstrip(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return strip(r, a, true, false, ret);
}
static bool text_rstrip(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return strip(r, a, false, true, ret);
}

/* ---- strings: splitting ---- */

static void add_part(jinja_run *r, jinja_list *to, jinja_string s, int64_t begin, int64_t end) {
  jinja_append(r->arena, to, jinja_bytes(s.bytes + begin, end - begin));
}

static void split_at_space(jinja_run *r, jinja_string s, int64_t most, jinja_list *to) {
  int64_t at = 0;
  while (at < s.length) {
    while (at < s.length && is_space(s.bytes[at])) at++;
    int64_t begin = at;
    while (at < s.length && !is_space(s.bytes[at])) at++;
    if (begin == s.length) break;
    if (most >= 0 && to->count == most) at = stripped(s, NULL, false, true).length;
    add_part(r, to, s, begin, at);
    if (most >= 0 && to->count > most) break;
  }
}

static bool split_arguments(
    jinja_run *r, const jinja_arguments *a, jinja_string *ret_by, bool *ret_space, int64_t *ret_most) {
  const jinja_value *by = argument(a, 0, "sep"), *most = argument(a, 1, "maxsplit");
  if (!arguments_are(r, a, 2, (const char *const[]){"sep", "maxsplit", NULL})) return false;
  *ret_space = !by || by->kind == JINJA_NONE;
  *ret_most = -1;
  if (most && most->kind != JINJA_INT) return run_fail(r, a->location, "'maxsplit' is no integer");
  if (most) *ret_most = most->integer;
  if (*ret_space) return true;
  if (!argument_text(r, a, 0, "sep", ret_by)) return false;
  return ret_by->length ? true : run_fail(r, a->location, "the separator is empty");
}

static bool text_split(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s = a->self.string, by;
  int64_t most, begin = 0;
  bool space;
  if (!split_arguments(r, a, &by, &space, &most) || !run_count(r, a->location, s.length / 16))
    return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  if (space) return split_at_space(r, s, most, ret->list), true;
  for (int64_t at; (most < 0 || ret->list->count < most) && (at = jinja_find(s, by, begin)) >= 0;
       begin = at + by.length)
    add_part(r, ret->list, s, begin, at);
  add_part(r, ret->list, s, begin, s.length);
  return true;
}

static bool text_rsplit(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s = a->self.string, by;
  int64_t most, total = 0, begin = 0;
  bool space;
  if (!split_arguments(r, a, &by, &space, &most) || !run_count(r, a->location, s.length / 16))
    return false;
  if (space && most >= 0)
    return run_fail(r, a->location, "'rsplit' by whitespace with 'maxsplit' is not supported");
  if (most < 0 || space) return text_split(r, a, ret);
  for (int64_t at = 0; (at = jinja_find(s, by, at)) >= 0; at += by.length) total++;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  int64_t skipped = total > most ? total - most : 0;
  for (int64_t at = 0; (at = jinja_find(s, by, at)) >= 0; at += by.length) {
    if (skipped-- > 0) continue;
    add_part(r, ret->list, s, begin, at);
    begin = at + by.length;
  }
  add_part(r, ret->list, s, begin, s.length);
  return true;
}

static bool text_splitlines(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s = a->self.string;
  if (!arguments_are(r, a, 0, NULL)) return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int64_t at = 0, begin = 0; at < s.length; begin = at) {
    while (at < s.length && s.bytes[at] != '\n' && s.bytes[at] != '\r') at++;
    add_part(r, ret->list, s, begin, at);
    if (at < s.length) at += 1 + (s.bytes[at] == '\r' && at + 1 < s.length && s.bytes[at + 1] == '\n');
  }
  return run_count(r, a->location, s.length / 16);
}

/* ---- strings: looking ---- */

/* A string, or one of a tuple of them. */
static bool has_edge(jinja_run *r, const jinja_arguments *a, bool at_end, jinja_value *ret) {
  const jinja_value *given = argument(a, 0, NULL);
  jinja_string s = a->self.string;
  if (!arguments_are(r, a, 1, NULL)) return false;
  jinja_list one = {.items = (jinja_value *)given, .count = given ? 1 : 0};
  const jinja_list *all = given && given->kind == JINJA_TUPLE ? given->list : &one;
  bool found = false;
  for (int i = 0; i < all->count; i++) {
    jinja_string edge = all->items[i].string;
    if (all->items[i].kind != JINJA_STRING) break;
    found |= edge.length <= s.length &&
             jinja_starts(at_end ? (jinja_string){s.bytes + s.length - edge.length, edge.length} : s, edge);
  }
  for (int i = 0; i < all->count; i++)
    if (all->items[i].kind != JINJA_STRING) all = NULL, i = -1;
    else if (!all) break;
  if (!all || !given) return run_fail(r, a->location, "'%.*s' needs a string", (int)a->name.length, a->name.bytes);
  return *ret = jinja_bool(found), true;
}
static bool text_startswith(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return has_edge(r, a, false, ret);
}
static bool text_endswith(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return has_edge(r, a, true, ret);
}

static bool text_find(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string part;
  if (!arguments_are(r, a, 1, NULL) || !argument_text(r, a, 0, NULL, &part)) return false;
  int64_t at = jinja_find(a->self.string, part, 0);
  if (at > 0) at = jinja_length((jinja_string){a->self.string.bytes, at});
  return *ret = jinja_int(at), run_count(r, a->location, a->self.string.length / 16);
}
static bool text_count(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string part;
  int64_t count = 0;
  if (!arguments_are(r, a, 1, NULL) || !argument_text(r, a, 0, NULL, &part)) return false;
  if (!part.length) count = jinja_length(a->self.string) + 1;
  else
    for (int64_t at = 0; (at = jinja_find(a->self.string, part, at)) >= 0; at += part.length) count++;
  return *ret = jinja_int(count), run_count(r, a->location, a->self.string.length / 16);
}

static bool all_are(jinja_run *r, const jinja_arguments *a, int is(int c), jinja_value *ret) {
  jinja_string s = a->self.string;
  bool all = s.length > 0;
  if (!arguments_are(r, a, 0, NULL)) return false;
  for (int64_t i = 0; all && i < s.length; i++) {
    if ((unsigned char)s.bytes[i] > 127)
      return run_fail(
          r, a->location, "'%.*s' of letters outside ASCII is not supported", (int)a->name.length,
          a->name.bytes);
    all = is((unsigned char)s.bytes[i]);
  }
  return *ret = jinja_bool(all), true;
}
static bool text_isdigit(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return all_are(r, a, isdigit, ret);
}
static bool text_isalpha(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return all_are(r, a, isalpha, ret);
}
static bool text_isalnum(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return all_are(r, a, isalnum, ret);
}
static bool text_isspace(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return all_are(r, a, isspace, ret);
}

/* ---- methods that are filters, too ---- */

#define AS_FILTER(method)                                                                          \
  static bool text_##method(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {            \
    return jinja_find_filter((jinja_string){#method, sizeof #method - 1})(r, a, ret);              \
  }
AS_FILTER(upper)
AS_FILTER(lower)
AS_FILTER(title)
AS_FILTER(capitalize)
AS_FILTER(replace)

/* The separator is the object. */
static bool text_join(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  if (!arguments_are(r, a, 1, NULL)) return false;
  if (!a->count) return run_fail(r, a->location, "'join' needs what is to be joined");
  jinja_arguments turned = *a;
  jinja_value separator = a->self;
  turned.self = a->items[0];
  turned.items = &separator;
  return jinja_find_filter((jinja_string){"join", 4})(r, &turned, ret);
}

/* {} in turn, {0}, {name}; conversions and widths are not supported. */
static bool text_format(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s = a->self.string;
  tsr_text text = {0};
  int next = 0;
  bool ok = true;
  for (int64_t at = 0; ok && at < s.length; at++) {
    char c = s.bytes[at];
    if ((c == '{' || c == '}') && at + 1 < s.length && s.bytes[at + 1] == c) at++;
    else if (c == '{') {
      int64_t end = at;
      while (end < s.length && s.bytes[end] != '}') end++;
      char *name = tsr_arena_strndup(r->arena, s.bytes + at + 1, (size_t)(end - at - 1));
      bool number = *name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 4;
      const jinja_value *v = number          ? argument(a, atoi(name), NULL)
                             : *name == '\0' ? argument(a, next++, NULL)
                                             : argument(a, a->count, name);
      ok = end < s.length && v && jinja_print(*v, &text);
      at = end;
      continue;
    }
    if (ok) tsr_text_add_bytes(&text, &c, 1);
  }
  ok = ok ? run_made(r, a->location, (int64_t)text.length)
          : run_fail(r, a->location, "'format' has a field without a value, or of a form that is not supported");
  *ret = jinja_take(r->arena, &text);
  return ok;
}

static bool text_removeprefix(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s = a->self.string, part;
  if (!arguments_are(r, a, 1, NULL) || !argument_text(r, a, 0, NULL, &part)) return false;
  int64_t n = jinja_starts(s, part) ? part.length : 0;
  return *ret = jinja_bytes(s.bytes + n, s.length - n), true;
}
static bool text_removesuffix(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s = a->self.string, part;
  if (!arguments_are(r, a, 1, NULL) || !argument_text(r, a, 0, NULL, &part)) return false;
  bool there = part.length <= s.length &&
               jinja_starts((jinja_string){s.bytes + s.length - part.length, part.length}, part);
  return *ret = jinja_bytes(s.bytes, s.length - (there ? part.length : 0)), true;
}

/* ---- dicts ---- */

static jinja_value pair(jinja_run *r, const jinja_entry *e) {
  jinja_value v = jinja_new_list(r->arena, JINJA_TUPLE);
  jinja_append(r->arena, v.list, e->key);
  jinja_append(r->arena, v.list, e->value);
  return v;
}

static bool dict_part(jinja_run *r, const jinja_arguments *a, int part, jinja_value *ret) {
  const jinja_dict *d = a->self.dict;
  if (!arguments_are(r, a, 0, NULL) || !run_count(r, a->location, d->count)) return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int i = 0; i < d->count; i++)
    jinja_append(
        r->arena, ret->list,
        part == 0 ? d->entries[i].key : part == 1 ? d->entries[i].value : pair(r, &d->entries[i]));
  return true;
}
static bool dict_keys(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return dict_part(r, a, 0, ret);
}
static bool dict_values(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return dict_part(r, a, 1, ret);
}
static bool dict_items(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return dict_part(r, a, 2, ret);
}
static bool dict_get(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  if (!arguments_are(r, a, 2, NULL)) return false;
  if (!a->count) return run_fail(r, a->location, "'get' needs a key");
  const jinja_value *v = jinja_get(a->self.dict, a->items[0]);
  *ret = v ? *v : a->count > 1 ? a->items[1] : jinja_none();
  return run_count(r, a->location, a->self.dict->count / 8);
}
static bool dict_copy(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  if (!arguments_are(r, a, 0, NULL)) return false;
  *ret = jinja_new_dict(r->arena, JINJA_DICT);
  for (int i = 0; i < a->self.dict->count; i++)
    jinja_set(r->arena, ret->dict, a->self.dict->entries[i].key, a->self.dict->entries[i].value);
  return run_count(r, a->location, a->self.dict->count);
}

/* ---- lists, loops ---- */

static bool list_index(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_list *l = a->self.list;
  int at = 0;
  if (!arguments_are(r, a, 1, NULL)) return false;
  if (!a->count) return run_fail(r, a->location, "'index' needs a value");
  while (at < l->count && !jinja_equal(l->items[at], a->items[0])) at++;
  if (at == l->count) return run_fail(r, a->location, "'index': the value is not in the list");
  return *ret = jinja_int(at), run_count(r, a->location, at);
}
static bool list_count(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_list *l = a->self.list;
  int64_t count = 0;
  if (!arguments_are(r, a, 1, NULL)) return false;
  if (!a->count) return run_fail(r, a->location, "'count' needs a value");
  for (int i = 0; i < l->count; i++) count += jinja_equal(l->items[i], a->items[0]);
  return *ret = jinja_int(count), run_count(r, a->location, l->count);
}

static bool loop_cycle(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  if (!a->count) return run_fail(r, a->location, "'cycle' needs values");
  return *ret = a->items[a->self.loop->index % a->count], true;
}
static bool loop_changed(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_list now = {a->items, a->count, a->count}, *last = a->self.loop->changed;
  bool same = last->capacity && last->count == now.count;
  for (int i = 0; same && i < now.count; i++) same = jinja_equal(last->items[i], now.items[i]);
  *last = (jinja_list){now.items, now.count, now.count + 1};
  return *ret = jinja_bool(!same), run_count(r, a->location, now.count);
}

/* ---- tables ---- */

static const jinja_named texts[] = {
    {"strip", text_strip},         {"lstrip", text_lstrip},
    {"rstrip", text_rstrip},       {"split", text_split},
    {"rsplit", text_rsplit},       {"splitlines", text_splitlines},
    {"startswith", text_startswith}, {"endswith", text_endswith},
    {"find", text_find},           {"count", text_count},
    {"isdigit", text_isdigit},     {"isalpha", text_isalpha},
    {"isalnum", text_isalnum},     {"isspace", text_isspace},
    {"upper", text_upper},         {"lower", text_lower},
    {"title", text_title},         {"capitalize", text_capitalize},
    {"replace", text_replace},     {"join", text_join},
    {"format", text_format},       {"removeprefix", text_removeprefix},
    {"removesuffix", text_removesuffix}};
static const jinja_named dicts[] = {
    {"keys", dict_keys}, {"values", dict_values}, {"items", dict_items},
    {"get", dict_get},   {"copy", dict_copy}};
static const jinja_named lists[] = {{"index", list_index}, {"count", list_count}};
static const jinja_named loops[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
static const char *const changing[] = {"pop", "popitem", "update", "setdefault", "clear", "append",
                                       "extend", "insert", "remove", "reverse", "sort"};

jinja_native *jinja_find_method(jinja_kind kind, jinja_string name, bool *ret_forbidden) {
  *ret_forbidden = false;
  bool is_list = kind == JINJA_LIST;
  for (size_t i = 0; (kind == JINJA_DICT || is_list) && i < sizeof changing / sizeof *changing; i++)
    if (jinja_is_text(jinja_bytes(name.bytes, name.length), changing[i]))
      *ret_forbidden = is_list ? i >= 4 || i == 0 : i <= 4;
  if (kind == JINJA_STRING) return jinja_find_in(texts, sizeof texts / sizeof *texts, name);
  if (kind == JINJA_DICT) return jinja_find_in(dicts, sizeof dicts / sizeof *dicts, name);
  if (kind == JINJA_LIST || kind == JINJA_TUPLE)
    return jinja_find_in(lists, sizeof lists / sizeof *lists, name);
  if (kind == JINJA_LOOP) return jinja_find_in(loops, sizeof loops / sizeof *loops, name);
  return NULL;
}
