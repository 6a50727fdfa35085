// SPDX-License-Identifier: Apache-2.0
/* The values that templates compute with. They behave as Python's do wherever a template can see a
 * difference.
 *
 * Values live in an arena and are never freed singly. Strings are valid UTF-8; their indices and
 * lengths count code points, as Python's do. */
#ifndef TSR_JINJA_VALUE_H
#define TSR_JINJA_VALUE_H
#include "base/arena.h"
#include "base/text.h"

typedef enum {
  TSR_JINJA_UNDEFINED,
  TSR_JINJA_NONE,
  TSR_JINJA_BOOL,
  TSR_JINJA_INT,
  TSR_JINJA_FLOAT,
  TSR_JINJA_STRING,
  TSR_JINJA_LIST,
  TSR_JINJA_TUPLE,
  TSR_JINJA_VIEW,     /* a dict's keys, values or items, or a range: has a length */
  TSR_JINJA_ITERATOR, /* what a generator yields: has no length, and is consumed by iteration */
  TSR_JINJA_DICT,
  TSR_JINJA_NAMESPACE,
  TSR_JINJA_FUNCTION, /* a macro, a global function, or a method of an object */
  TSR_JINJA_LOOP      /* the variable `loop` */
} tsr_jinja_kind;

typedef struct tsr_jinja_value tsr_jinja_value;
typedef struct tsr_jinja_list tsr_jinja_list;
typedef struct tsr_jinja_dict tsr_jinja_dict;
typedef struct tsr_jinja_function tsr_jinja_function;
typedef struct tsr_jinja_loop tsr_jinja_loop;

typedef struct {
  const char *bytes; /* without a NUL at its end */
  int64_t length;
} tsr_jinja_string;

struct tsr_jinja_value {
  tsr_jinja_kind kind;
  bool is_markup; /* of STRING: passed through 'safe' or 'escape' (markupsafe.Markup) */
  union {
    const char *undefined; /* the name that was not found, or NULL: for messages */
    bool truth;
    int64_t integer;
    double number;
    tsr_jinja_string string;
    tsr_jinja_list *list; /* of LIST, TUPLE, VIEW and ITERATOR */
    tsr_jinja_dict *dict; /* of DICT and NAMESPACE */
    const tsr_jinja_function *function;
    const tsr_jinja_loop *loop;
  };
};

struct tsr_jinja_list {
  tsr_jinja_value *items;
  int count, capacity;
  int depth;     /* of nesting: 1 more than its items */
  bool is_range; /* of VIEW: items have indices */
};

typedef struct {
  tsr_jinja_value key, value;
} tsr_jinja_entry;

typedef struct tsr_jinja_slot tsr_jinja_slot;

/* In the order in which keys were first set. */
struct tsr_jinja_dict {
  tsr_jinja_entry *entries;
  int count, capacity;
  int depth;             /* of nesting: 1 more than its keys and values */
  tsr_jinja_slot *slots; /* of many entries: their hash table */
  int slots_count;
  int label; /* of the caller; 0: none. A rendering records where loops write of labelled dicts */
};

tsr_jinja_value tsr_jinja_none(void);
tsr_jinja_value tsr_jinja_bool(bool truth);
tsr_jinja_value tsr_jinja_int(int64_t integer);
tsr_jinja_value tsr_jinja_float(double number);
tsr_jinja_value tsr_jinja_text(const char *text);                   /* not copied */
tsr_jinja_value tsr_jinja_bytes(const char *bytes, int64_t length); /* not copied */
tsr_jinja_value tsr_jinja_missing(const char *name);
tsr_jinja_value tsr_jinja_new_list(tsr_arena *arena, tsr_jinja_kind kind);
tsr_jinja_value tsr_jinja_new_dict(tsr_arena *arena, tsr_jinja_kind kind);
/* Copies the text to the arena and frees it. */
tsr_jinja_value tsr_jinja_take(tsr_arena *arena, tsr_text *text);

void tsr_jinja_append(tsr_arena *arena, tsr_jinja_list *list, tsr_jinja_value value);
void tsr_jinja_set(
    tsr_arena *arena, tsr_jinja_dict *dict, tsr_jinja_value key, tsr_jinja_value value);
/* NULL: the key is missing. */
const tsr_jinja_value *tsr_jinja_get_text(const tsr_jinja_dict *dict, const char *key);

/* Work that data determines is taken from `left`, in steps: a step for each item that is compared
 * or each entry that is looked at, and for so many bytes of a string. Below 0 the functions stop
 * with any result, and the rendering has failed. */
enum { TSR_JINJA_STEP_BYTES = 64 };
/* NULL: the key is missing. */
const tsr_jinja_value *
tsr_jinja_get(const tsr_jinja_dict *dict, tsr_jinja_value key, int64_t *left);
void tsr_jinja_put(
    tsr_arena *arena, tsr_jinja_dict *dict, tsr_jinja_value key, tsr_jinja_value value,
    int64_t *left);
/* The same for a key that the dict does not have. */
void tsr_jinja_add(
    tsr_arena *arena, tsr_jinja_dict *dict, tsr_jinja_value key, tsr_jinja_value value,
    int64_t *left);
/* Python's ==. */
bool tsr_jinja_equal(tsr_jinja_value a, tsr_jinja_value b, int64_t *left);
/* Negative, 0 or positive, of two numbers, strings or sequences. False: they have no order. */
bool tsr_jinja_order(tsr_jinja_value a, tsr_jinja_value b, int64_t *left, int *ret_order);

int tsr_jinja_depth(tsr_jinja_value v);      /* of nesting; 0: no container */
bool tsr_jinja_is_number(tsr_jinja_value v); /* booleans are numbers, as in Python */
double tsr_jinja_as_double(tsr_jinja_value v);
bool tsr_jinja_is_true(tsr_jinja_value v);

/* Python's str() and repr(). False: nested deeper than TSR_JINJA_DEPTH_MAX, or a value whose text
 * is not defined, such as an iterator. */
enum { TSR_JINJA_DEPTH_MAX = 200 };
bool tsr_jinja_print(tsr_jinja_value v, tsr_text *text);
bool tsr_jinja_repr(tsr_jinja_value v, int depth, tsr_text *text);
void tsr_jinja_print_float(double number, tsr_text *text); /* Python's repr of a float */
/* For messages, with its article: "a string". */
const char *tsr_jinja_kind_name(tsr_jinja_kind kind);

/* ---- strings ---- */

int64_t tsr_jinja_length(tsr_jinja_string s); /* code points */
/* The offset in bytes of code point `index`, which may be the length. */
int64_t tsr_jinja_offset(tsr_jinja_string s, int64_t index);
bool tsr_jinja_is_text(tsr_jinja_value v, const char *text);
bool tsr_jinja_starts(tsr_jinja_string s, tsr_jinja_string prefix);
/* The offset in bytes of the first `part` in s at or behind byte `from`; -1: there is none. */
int64_t tsr_jinja_find_text(tsr_jinja_string s, tsr_jinja_string part, int64_t from);

#endif
