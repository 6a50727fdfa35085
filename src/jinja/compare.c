// SPDX-License-Identifier: Apache-2.0
/* Equality and order of values, and dicts, whose keys are compared: entries in the order of
 * insertion, and for many of them a hash table of their indices. */
#include "base/hash.h"
#include "jinja/value.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- comparisons ---- */

/* Exactly: a double has no value for every integer. */
static int compare_to_double(int64_t x, double y) {
  if (y >= 0x1p63) return -1;
  if (y < -0x1p63) return 1;
  int64_t whole = (int64_t)floor(y);
  if (x != whole) return x < whole ? -1 : 1;
  return -(y > floor(y));
}

/* Neither is NaN. */
static int compare_numbers(tsr_jinja_value a, tsr_jinja_value b) {
  int64_t x = a.kind == TSR_JINJA_BOOL ? a.truth : a.integer,
          y = b.kind == TSR_JINJA_BOOL ? b.truth : b.integer;
  bool a_is_float = a.kind == TSR_JINJA_FLOAT, b_is_float = b.kind == TSR_JINJA_FLOAT;
  if (a_is_float && b_is_float) return (a.number > b.number) - (a.number < b.number);
  if (a_is_float) return -compare_to_double(y, a.number);
  return b_is_float ? compare_to_double(x, b.number) : (x > y) - (x < y);
}

static bool equal_lists(const tsr_jinja_list *a, const tsr_jinja_list *b, int64_t *left) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++)
    same = --*left >= 0 && tsr_jinja_equal(a->items[i], b->items[i], left);
  return same;
}

static bool equal_dicts(const tsr_jinja_dict *a, const tsr_jinja_dict *b, int64_t *left) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++) {
    const tsr_jinja_value *other = tsr_jinja_get(b, a->entries[i].key, left);
    same = *left >= 0 && other && tsr_jinja_equal(a->entries[i].value, *other, left);
  }
  return same;
}

bool tsr_jinja_equal(tsr_jinja_value a, tsr_jinja_value b, int64_t *left) {
  if (tsr_jinja_is_number(a) && tsr_jinja_is_number(b)) {
    bool nan = tsr_jinja_as_double(a) != tsr_jinja_as_double(a) ||
               tsr_jinja_as_double(b) != tsr_jinja_as_double(b);
    return !nan && compare_numbers(a, b) == 0;
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case TSR_JINJA_STRING:
    if (a.string.length != b.string.length) return false;
    *left -= a.string.length / TSR_JINJA_STEP_BYTES;
    return (!a.string.length || !memcmp(a.string.bytes, b.string.bytes, (size_t)a.string.length));
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
  case TSR_JINJA_VIEW:
    return equal_lists(a.list, b.list, left);
  case TSR_JINJA_ITERATOR:
    return a.list == b.list;
  case TSR_JINJA_DICT:
    return equal_dicts(a.dict, b.dict, left);
  case TSR_JINJA_NAMESPACE:
    return a.dict == b.dict;
  case TSR_JINJA_FUNCTION:
    return a.function == b.function;
  case TSR_JINJA_LOOP:
    return a.loop == b.loop;
  default:
    return true;
  }
}

static int compare_strings(tsr_jinja_string a, tsr_jinja_string b, int64_t *left) {
  size_t shorter = (size_t)(a.length < b.length ? a.length : b.length);
  *left -= (int64_t)shorter / TSR_JINJA_STEP_BYTES;
  int order = shorter ? memcmp(a.bytes, b.bytes, shorter)
                      : 0; /* the order of UTF-8 is that of code points */
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

bool tsr_jinja_order(tsr_jinja_value a, tsr_jinja_value b, int64_t *left, int *ret_order) {
  if (tsr_jinja_is_number(a) && tsr_jinja_is_number(b))
    return *ret_order = compare_numbers(a, b), true;
  if (a.kind != b.kind) return false;
  if (a.kind == TSR_JINJA_STRING)
    return *ret_order = compare_strings(a.string, b.string, left), true;
  if (a.kind != TSR_JINJA_LIST && a.kind != TSR_JINJA_TUPLE) return false;
  for (int i = 0; i < a.list->count && i < b.list->count && --*left >= 0; i++)
    if (!tsr_jinja_equal(a.list->items[i], b.list->items[i], left))
      return tsr_jinja_order(a.list->items[i], b.list->items[i], left, ret_order);
  *ret_order = (a.list->count > b.list->count) - (a.list->count < b.list->count);
  return true;
}

/* ---- dicts ---- */

enum { SEARCHED_MAX = 8 }; /* entries that are searched without a table */

struct tsr_jinja_slot {
  uint64_t hash;
  int entry; /* its index + 1; 0: the slot is free */
};

/* Equal values have equal hashes: numbers of all kinds hash as the integer that they equal. */
static uint64_t hash_of(tsr_jinja_value v, int64_t *left) {
  int64_t integer;
  uint64_t hash = (uint64_t)v.kind;
  switch (v.kind) {
  case TSR_JINJA_STRING:
    *left -= v.string.length / TSR_JINJA_STEP_BYTES;
    return tsr_hash_number(v.string.bytes, (size_t)v.string.length);
  case TSR_JINJA_FLOAT:
    if (!(v.number >= -0x1p63 && v.number < 0x1p63 && floor(v.number) == v.number))
      return tsr_hash_number(&v.number, sizeof v.number);
    integer = (int64_t)v.number;
    return tsr_hash_number(&integer, sizeof integer);
  case TSR_JINJA_BOOL:
  case TSR_JINJA_INT:
    integer = v.kind == TSR_JINJA_BOOL ? v.truth : v.integer;
    return tsr_hash_number(&integer, sizeof integer);
  case TSR_JINJA_TUPLE:
    for (int i = 0; i < v.list->count && --*left >= 0; i++) {
      uint64_t parts[] = {hash, hash_of(v.list->items[i], left)};
      hash = tsr_hash_number(parts, sizeof parts);
    }
    return hash;
  default: /* compared one by one */
    return hash;
  }
}

static void insert(tsr_jinja_dict *d, uint64_t hash, int entry) {
  int at = (int)(hash & (uint64_t)(d->slots_count - 1));
  while (d->slots[at].entry) at = (at + 1) & (d->slots_count - 1);
  d->slots[at] = (tsr_jinja_slot){hash, entry + 1};
}

/* A table that is at most half full, with the entries of the last one. */
static void grow(tsr_arena *arena, tsr_jinja_dict *d) {
  tsr_jinja_slot *last = d->slots;
  int count = d->slots_count;
  d->slots_count = count ? 2 * count : 4 * SEARCHED_MAX;
  while (d->slots_count < 2 * d->count) d->slots_count *= 2;
  d->slots = tsr_arena_array(arena, tsr_jinja_slot, d->slots_count);
  for (int i = 0; i < count; i++)
    if (last[i].entry) insert(d, last[i].hash, last[i].entry - 1);
}

void tsr_jinja_add(
    tsr_arena *arena, tsr_jinja_dict *d, tsr_jinja_value key, tsr_jinja_value value,
    int64_t *left) {
  tsr_arena_grow(arena, (void **)&d->entries, sizeof *d->entries, d->count, &d->capacity);
  d->entries[d->count++] = (tsr_jinja_entry){key, value};
  for (int i = 0; i < 2; i++) {
    int depth = tsr_jinja_depth(i ? value : key);
    if (depth >= d->depth) d->depth = depth + 1;
  }
  if (d->count <= SEARCHED_MAX) return;
  int first = d->slots ? d->count - 1 : 0;
  if (2 * d->count > d->slots_count) grow(arena, d);
  for (int i = first; i < d->count; i++) insert(d, hash_of(d->entries[i].key, left), i);
}

const tsr_jinja_value *tsr_jinja_get(const tsr_jinja_dict *d, tsr_jinja_value key, int64_t *left) {
  --*left;
  if (!d->slots) {
    for (int i = 0; i < d->count; i++)
      if (tsr_jinja_equal(d->entries[i].key, key, left)) return &d->entries[i].value;
    return NULL;
  }
  uint64_t hash = hash_of(key, left);
  int at = (int)(hash & (uint64_t)(d->slots_count - 1));
  for (; d->slots[at].entry && *left >= 0; at = (at + 1) & (d->slots_count - 1)) {
    tsr_jinja_entry *e = &d->entries[d->slots[at].entry - 1];
    if (d->slots[at].hash == hash && tsr_jinja_equal(e->key, key, left)) return &e->value;
    --*left;
  }
  return NULL;
}

const tsr_jinja_value *tsr_jinja_get_text(const tsr_jinja_dict *dict, const char *key) {
  int64_t left = INT64_MAX;
  return tsr_jinja_get(dict, tsr_jinja_text(key), &left);
}

void tsr_jinja_put(
    tsr_arena *arena, tsr_jinja_dict *dict, tsr_jinja_value key, tsr_jinja_value value,
    int64_t *left) {
  tsr_jinja_value *there = (tsr_jinja_value *)tsr_jinja_get(dict, key, left);
  if (!there) {
    tsr_jinja_add(arena, dict, key, value, left);
    return;
  }
  *there = value;
  if (tsr_jinja_depth(value) >= dict->depth) dict->depth = tsr_jinja_depth(value) + 1;
}

void tsr_jinja_set(
    tsr_arena *arena, tsr_jinja_dict *dict, tsr_jinja_value key, tsr_jinja_value value) {
  int64_t left = INT64_MAX;
  tsr_jinja_put(arena, dict, key, value, &left);
}
