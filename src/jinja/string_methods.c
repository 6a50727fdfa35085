// SPDX-License-Identifier: Apache-2.0
/* Methods of strings. */
#include "jinja/run.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- splitting ---- */

/* A part of a string, marked as the whole is. */
static void
add_part(tsr_jinja_run *r, tsr_jinja_list *to, tsr_jinja_value whole, int64_t begin, int64_t end) {
  whole.string = (tsr_jinja_string){whole.string.bytes + begin, end - begin};
  tsr_jinja_append(r->arena, to, whole);
}

static int64_t skip(tsr_jinja_string s, int64_t at, bool spaces) {
  for (int64_t end; at < s.length; at = end)
    if (tsr_jinja_is_space(tsr_jinja_code_point(s, at, &end)) != spaces) break;
  return at;
}

static void
split_at_space(tsr_jinja_run *r, tsr_jinja_value whole, int64_t most, tsr_jinja_list *to) {
  tsr_jinja_string s = whole.string;
  for (int64_t at = skip(s, 0, true); at < s.length; at = skip(s, at, true)) {
    int64_t begin = at;
    bool rest = most >= 0 && to->count == most;
    at = rest ? s.length : skip(s, at, false);
    add_part(r, to, whole, begin, at);
    if (rest) break;
  }
}

static bool split_arguments(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_string *ret_by, bool *ret_space,
    int64_t *ret_most) {
  const tsr_jinja_value *by = tsr_jinja_argument(a, 0, "sep"),
                        *most = tsr_jinja_argument(a, 1, "maxsplit");
  if (!tsr_jinja_check_arguments(r, a, 2, (const char *const[]){"sep", "maxsplit", NULL}))
    return false;
  *ret_space = !by || by->kind == TSR_JINJA_NONE;
  *ret_most = -1;
  if (most && most->kind != TSR_JINJA_INT)
    return tsr_jinja_fail(r, a->location, "'maxsplit' should be an integer");
  if (most) *ret_most = most->integer;
  if (*ret_space) return true;
  if (!tsr_jinja_argument_text(r, a, 0, "sep", ret_by)) return false;
  return ret_by->length ? true : tsr_jinja_fail(r, a->location, "the separator is empty");
}

static bool text_split(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string s = a->self.string, by;
  int64_t most, begin = 0;
  bool space;
  if (!split_arguments(r, a, &by, &space, &most) ||
      !tsr_jinja_count_steps(r, a->location, s.length / 16))
    return false;
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_LIST);
  if (space) return split_at_space(r, a->self, most, ret->list), true;
  for (int64_t at;
       (most < 0 || ret->list->count < most) && (at = tsr_jinja_find_text(s, by, begin)) >= 0;
       begin = at + by.length)
    add_part(r, ret->list, a->self, begin, at);
  add_part(r, ret->list, a->self, begin, s.length);
  return true;
}

static bool text_rsplit(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string s = a->self.string, by;
  int64_t most, total = 0, begin = 0;
  bool space;
  if (!split_arguments(r, a, &by, &space, &most) ||
      !tsr_jinja_count_steps(r, a->location, s.length / 16))
    return false;
  if (space && most >= 0)
    return tsr_jinja_fail(
        r, a->location, "'rsplit' at white space with 'maxsplit' is not supported");
  if (most < 0 || space) return text_split(r, a, ret);
  for (int64_t at = 0; (at = tsr_jinja_find_text(s, by, at)) >= 0; at += by.length) total++;
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_LIST);
  int64_t skipped = total > most ? total - most : 0;
  for (int64_t at = 0; (at = tsr_jinja_find_text(s, by, at)) >= 0; at += by.length) {
    if (skipped-- > 0) continue;
    add_part(r, ret->list, a->self, begin, at);
    begin = at + by.length;
  }
  add_part(r, ret->list, a->self, begin, s.length);
  return true;
}

static bool text_splitlines(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *keep = tsr_jinja_argument(a, 0, "keepends");
  tsr_jinja_string s = a->self.string;
  if (!tsr_jinja_check_arguments(r, a, 1, (const char *const[]){"keepends", NULL})) return false;
  bool keeps = keep && tsr_jinja_is_true(*keep);
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_LIST);
  for (int64_t at = 0, begin = 0, end; at < s.length;) {
    uint32_t c = tsr_jinja_code_point(s, at, &end);
    if (c == '\r' && end < s.length && s.bytes[end] == '\n') end++;
    bool ends = tsr_jinja_ends_line(c);
    if (ends || end == s.length) {
      add_part(r, ret->list, a->self, begin, ends && !keeps ? at : end);
      begin = end;
    }
    at = end;
  }
  return tsr_jinja_count_steps(r, a->location, s.length / 16);
}

/* The first or the last occurrence; -1: none. Each one on the way to the last is compared. */
static bool find_part(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_string part, bool last,
    int64_t *ret_at) {
  tsr_jinja_string s = a->self.string;
  int64_t next = tsr_jinja_find_text(s, part, 0);
  for (*ret_at = next; last && next >= 0; next = tsr_jinja_find_text(s, part, next + 1)) {
    *ret_at = next;
    if (!tsr_jinja_count_steps(r, a->location, part.length / TSR_JINJA_STEP_BYTES)) return false;
  }
  return tsr_jinja_count_steps(r, a->location, s.length / 16);
}

/* str.partition and str.rpartition: in front of the separator, it, and behind it. */
static bool
partition(tsr_jinja_run *r, const tsr_jinja_arguments *a, bool last, tsr_jinja_value *ret) {
  tsr_jinja_string by, s = a->self.string;
  int64_t at, absent = last ? 0 : s.length;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL) || !tsr_jinja_argument_text(r, a, 0, NULL, &by))
    return false;
  if (!by.length) return tsr_jinja_fail(r, a->location, "the separator is empty");
  if (!find_part(r, a, by, last, &at)) return false;
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_TUPLE);
  add_part(r, ret->list, a->self, 0, at < 0 ? absent : at);
  add_part(r, ret->list, a->self, at < 0 ? absent : at, at < 0 ? absent : at + by.length);
  add_part(r, ret->list, a->self, at < 0 ? absent : at + by.length, s.length);
  return true;
}
static bool text_partition(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return partition(r, a, false, ret);
}
static bool text_rpartition(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return partition(r, a, true, ret);
}

/* ---- searching ---- */

static bool has_affix(tsr_jinja_string s, tsr_jinja_string affix, bool at_end) {
  if (affix.length > s.length) return false;
  if (at_end) s = (tsr_jinja_string){s.bytes + s.length - affix.length, affix.length};
  return tsr_jinja_starts(s, affix);
}

/* With a string, or with one of a tuple of them. */
static bool
any_affix(tsr_jinja_run *r, const tsr_jinja_arguments *a, bool at_end, tsr_jinja_value *ret) {
  const tsr_jinja_value *given = tsr_jinja_argument(a, 0, NULL);
  tsr_jinja_string affix;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL)) return false;
  tsr_jinja_arguments one = *a;
  bool is_tuple = given && given->kind == TSR_JINJA_TUPLE, found = false;
  if (is_tuple) one.items = given->list->items, one.count = given->list->count;
  for (int i = 0; i < (is_tuple ? one.count : 1); i++) {
    if (!tsr_jinja_argument_text(r, &one, i, NULL, &affix)) return false;
    found |= has_affix(a->self.string, affix, at_end);
  }
  return *ret = tsr_jinja_bool(found), true;
}
static bool text_startswith(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return any_affix(r, a, false, ret);
}
static bool text_endswith(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return any_affix(r, a, true, ret);
}

/* The index of the first or of the last occurrence, -1: none. */
static bool find(tsr_jinja_run *r, const tsr_jinja_arguments *a, bool last, tsr_jinja_value *ret) {
  tsr_jinja_string part, s = a->self.string;
  int64_t at;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL) || !tsr_jinja_argument_text(r, a, 0, NULL, &part) ||
      !find_part(r, a, part, last, &at))
    return false;
  if (at > 0) at = tsr_jinja_length((tsr_jinja_string){s.bytes, at});
  return *ret = tsr_jinja_int(at), true;
}
static bool text_find(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return find(r, a, false, ret);
}
static bool text_rfind(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return find(r, a, true, ret);
}
static bool text_index(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (!find(r, a, false, ret)) return false;
  return ret->integer >= 0 ||
         tsr_jinja_fail(r, a->location, "'index' does not find this part of the string");
}

static bool text_count(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string part, s = a->self.string;
  int64_t count = 0;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL) || !tsr_jinja_argument_text(r, a, 0, NULL, &part))
    return false;
  if (!part.length) count = tsr_jinja_length(s) + 1;
  else
    for (int64_t at = 0; (at = tsr_jinja_find_text(s, part, at)) >= 0; at += part.length) count++;
  return *ret = tsr_jinja_int(count), tsr_jinja_count_steps(r, a->location, s.length / 16);
}

/* ---- classes of characters ---- */

/* Whether all characters are of a class, and there is one. */
static bool
all_are(tsr_jinja_run *r, const tsr_jinja_arguments *a, int is(int c), tsr_jinja_value *ret) {
  tsr_jinja_string s = a->self.string;
  bool all = s.length > 0;
  if (!tsr_jinja_check_arguments(r, a, 0, NULL)) return false;
  for (int64_t i = 0; all && i < s.length; i++) {
    if ((unsigned char)s.bytes[i] > 127)
      return tsr_jinja_fail(
          r, a->location, "'%.*s' of characters outside ASCII is not supported",
          (int)a->name.length, a->name.bytes);
    all = is((unsigned char)s.bytes[i]);
  }
  return *ret = tsr_jinja_bool(all), true;
}
static bool text_isdigit(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return all_are(r, a, isdigit, ret);
}
static bool text_isalpha(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return all_are(r, a, isalpha, ret);
}
static bool text_isalnum(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return all_are(r, a, isalnum, ret);
}
static bool text_isspace(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string s = a->self.string;
  return tsr_jinja_check_arguments(r, a, 0, NULL) &&
         (*ret = tsr_jinja_bool(s.length && skip(s, 0, true) == s.length), true);
}

/* ---- making strings ---- */

/* A letter that follows no letter is capital: "it's" becomes "It'S". */
static bool text_title(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_text text = {0};
  bool ok = tsr_jinja_check_arguments(r, a, 0, NULL), follows = false;
  for (int64_t at = 0, end; ok && at < a->self.string.length; at = end) {
    uint32_t c = tsr_jinja_code_point(a->self.string, at, &end);
    ok = tsr_jinja_add_case(r, a, c, follows ? TSR_JINJA_LOWER : TSR_JINJA_TITLE, &text);
    int category = utf8proc_category((int32_t)c);
    follows = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
              category == UTF8PROC_CATEGORY_LT;
  }
  *ret = tsr_jinja_take(r->arena, &text);
  ret->is_markup = a->self.is_markup;
  return ok && tsr_jinja_count_bytes(r, a->location, ret->string.length);
}

/* These escape their arguments where 'safe' has marked the string. */
static bool is_plain(tsr_jinja_run *r, const tsr_jinja_arguments *a) {
  return !a->self.is_markup ||
         tsr_jinja_fail(
             r, a->location, "the method '%.*s' of a string behind 'safe' is not supported",
             (int)a->name.length, a->name.bytes);
}

/* For methods whose filter has named arguments. */
static bool is_positional(tsr_jinja_run *r, const tsr_jinja_arguments *a) {
  return !a->named_count || tsr_jinja_fail(
                                r, a->location, "the method '%.*s' has no named arguments",
                                (int)a->name.length, a->name.bytes);
}

static bool text_strip(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return is_positional(r, a) && tsr_jinja_strip(r, a, ret);
}
static bool text_lstrip(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return is_positional(r, a) && tsr_jinja_lstrip(r, a, ret);
}
static bool text_rstrip(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return is_positional(r, a) && tsr_jinja_rstrip(r, a, ret);
}

static bool text_replace(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return is_positional(r, a) && is_plain(r, a) && tsr_jinja_replace(r, a, ret);
}

/* The separator is the object. */
static bool text_join(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_list items;
  if (!is_plain(r, a) || !tsr_jinja_check_arguments(r, a, 1, NULL)) return false;
  if (!a->count) return tsr_jinja_fail(r, a->location, "'join' needs a list");
  if (!tsr_jinja_iterate(r, a->location, a->items[0], &items)) return false;
  for (int i = 0; i < items.count; i++)
    if (items.items[i].kind != TSR_JINJA_STRING)
      return tsr_jinja_fail(
          r, a->location, "'join' needs strings, not %s", tsr_jinja_kind_name(items.items[i].kind));
  return tsr_jinja_join(r, a->location, &items, a->self, ret);
}

/* {} in turn, {0} and {name}. Conversions and formats are not supported. */
static bool text_format(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string s = a->self.string;
  tsr_text text = {0};
  int next = 0;
  bool ok = is_plain(r, a);
  for (int64_t at = 0; ok && at < s.length; at++) {
    char c = s.bytes[at];
    bool brace = c == '{' || c == '}';
    if (brace && at + 1 < s.length && s.bytes[at + 1] == c) {
      at++;
    } else if (brace) {
      int64_t end = at;
      while (end < s.length && s.bytes[end] != '}') end++;
      char *name =
          tsr_arena_strndup(r->arena, s.bytes + at + 1, end > at ? (size_t)(end - at - 1) : 0);
      bool number = *name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 4;
      const tsr_jinja_value *v = number  ? tsr_jinja_argument(a, atoi(name), NULL)
                                 : *name ? tsr_jinja_argument(a, a->count, name)
                                         : tsr_jinja_argument(a, next++, NULL);
      ok = c == '{' && end < s.length && v && tsr_jinja_print(*v, &text);
      at = end;
      continue;
    }
    tsr_text_add_bytes(&text, &c, 1);
  }
  *ret = tsr_jinja_take(r->arena, &text);
  if (ok) return tsr_jinja_count_bytes(r, a->location, ret->string.length);
  return tsr_jinja_fail(
      r, a->location, "a field of 'format' has no value, or a form that is not supported");
}

static bool
without_affix(tsr_jinja_run *r, const tsr_jinja_arguments *a, bool at_end, tsr_jinja_value *ret) {
  tsr_jinja_string part;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL) || !tsr_jinja_argument_text(r, a, 0, NULL, &part))
    return false;
  *ret = a->self;
  if (!has_affix(a->self.string, part, at_end)) return true;
  ret->string.bytes += at_end ? 0 : part.length;
  ret->string.length -= part.length;
  return true;
}
static bool
text_removeprefix(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return without_affix(r, a, false, ret);
}
static bool
text_removesuffix(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return without_affix(r, a, true, ret);
}

/* clang-format off */
static const tsr_jinja_named methods[] = {
    {"capitalize", tsr_jinja_capitalize},
    {"count", text_count},
    {"endswith", text_endswith},
    {"find", text_find},
    {"format", text_format},
    {"index", text_index},
    {"isalnum", text_isalnum},
    {"isalpha", text_isalpha},
    {"isdigit", text_isdigit},
    {"isspace", text_isspace},
    {"join", text_join},
    {"lower", tsr_jinja_lower},
    {"lstrip", text_lstrip},
    {"partition", text_partition},
    {"removeprefix", text_removeprefix},
    {"removesuffix", text_removesuffix},
    {"replace", text_replace},
    {"rfind", text_rfind},
    {"rpartition", text_rpartition},
    {"rsplit", text_rsplit},
    {"rstrip", text_rstrip},
    {"split", text_split},
    {"splitlines", text_splitlines},
    {"startswith", text_startswith},
    {"strip", text_strip},
    {"title", text_title},
    {"upper", tsr_jinja_upper}};
/* clang-format on */

tsr_jinja_native *tsr_jinja_find_string_method(tsr_jinja_string name) {
  return tsr_jinja_find_named(methods, sizeof methods / sizeof *methods, name);
}
