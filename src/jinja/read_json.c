// SPDX-License-Identifier: Apache-2.0
#include "jinja/render.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The text was checked by tsr_json_scan, so each value is complete. */
typedef struct {
  tsr_arena *arena;
  const char *at;
  const char *wrong;       /* the first number that is too large; NULL: none */
  const char *const *keys; /* of the outermost object, until it is read; NULL: all */
} reader;

static tsr_jinja_value read_value(reader *p);

static void skip_blanks(reader *p) {
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n') p->at++;
}

static tsr_jinja_value read_string(reader *p) {
  size_t written = 1, length;
  while (p->at[written] != '"') written += p->at[written] == '\\' ? 2 : 1;
  char *bytes = tsr_arena_alloc(p->arena, written);
  p->at = tsr_json_unescape(p->at, bytes, &length);
  return tsr_jinja_bytes(bytes, (int64_t)length);
}

static tsr_jinja_value read_number(reader *p) {
  size_t length = strspn(p->at, "+-.0123456789eE");
  const char *begin = p->at;
  char *text = tsr_arena_strndup(p->arena, begin, length);
  p->at += length;
  if (strcspn(text, ".eE") < length) return tsr_jinja_float(strtod(text, NULL));
  errno = 0;
  tsr_jinja_value v = tsr_jinja_int(strtoll(text, NULL, 10));
  if (errno && !p->wrong) p->wrong = begin;
  return v;
}

static tsr_jinja_value read_word(reader *p) {
  char c = *p->at;
  p->at += c == 'f' ? 5 : 4;
  return c == 'n' ? tsr_jinja_none() : tsr_jinja_bool(c == 't');
}

static tsr_jinja_value read_list(reader *p) {
  tsr_jinja_value list = tsr_jinja_new_list(p->arena, TSR_JINJA_LIST);
  p->keys = NULL;
  for (p->at++, skip_blanks(p); *p->at != ']'; skip_blanks(p)) {
    tsr_jinja_append(p->arena, list.list, read_value(p));
    skip_blanks(p);
    if (*p->at == ',') p->at++;
  }
  p->at++;
  return list;
}

static bool is_wanted(const char *const *keys, tsr_jinja_value key) {
  for (int i = 0; keys && keys[i]; i++)
    if (tsr_jinja_is_text(key, keys[i])) return true;
  return !keys;
}

/* The keys differ, so none is searched for. */
static tsr_jinja_value read_dict(reader *p) {
  tsr_jinja_value v = tsr_jinja_new_dict(p->arena, TSR_JINJA_DICT);
  const char *const *keys = p->keys;
  int64_t left = INT64_MAX;
  p->keys = NULL;
  for (p->at++, skip_blanks(p); *p->at != '}'; skip_blanks(p)) {
    tsr_jinja_value key = read_string(p);
    skip_blanks(p);
    p->at++; /* the colon */
    const char *wrong = p->wrong;
    tsr_jinja_value value = read_value(p);
    if (is_wanted(keys, key)) tsr_jinja_add(p->arena, v.dict, key, value, &left);
    else p->wrong = wrong;
    skip_blanks(p);
    if (*p->at == ',') p->at++;
  }
  p->at++;
  return v;
}

static tsr_jinja_value read_value(reader *p) {
  skip_blanks(p);
  switch (*p->at) {
  case '"':
    return read_string(p);
  case '[':
    return read_list(p);
  case '{':
    return read_dict(p);
  case 't':
  case 'f':
  case 'n':
    return read_word(p);
  default:
    return read_number(p);
  }
}

bool tsr_jinja_read_members(
    tsr_arena *arena, const char *text, size_t length, const char *const *keys,
    tsr_jinja_value *ret_value, tsr_json_fault *ret_fault) {
  if (!tsr_json_scan(arena, text, length, ret_fault)) return false;
  reader p = {.arena = arena, .at = tsr_arena_strndup(arena, text, length), .keys = keys};
  const char *begin = p.at;
  *ret_value = read_value(&p);
  if (!p.wrong) return true;
  *ret_fault = (tsr_json_fault){
      .offset = (size_t)(p.wrong - begin), .message = "an integer should be in [-2^63, 2^63)"};
  return false;
}

bool tsr_jinja_read_json(
    tsr_arena *arena, const char *text, size_t length, tsr_jinja_value *ret_value,
    tsr_json_fault *ret_fault) {
  return tsr_jinja_read_members(arena, text, length, NULL, ret_value, ret_fault);
}
