// SPDX-License-Identifier: Apache-2.0
/* The values of a template: what Python has for them, where templates can tell the difference.
 *
 * Values live in the arena of a rendering and are never freed singly. Strings are UTF-8; their
 * indices and lengths count code points, as Python's do. */
#ifndef TSR_JINJA_VALUE_H
#define TSR_JINJA_VALUE_H
#include "base/arena.h"
#include "base/text.h"

typedef enum {
  JINJA_UNDEFINED,
  JINJA_NONE,
  JINJA_BOOL,
  JINJA_INT,
  JINJA_FLOAT,
  JINJA_STRING,
  JINJA_LIST,
  JINJA_TUPLE,
  JINJA_DICT,
  JINJA_NAMESPACE,
  JINJA_FUNCTION, /* a macro, a global function, or a method with its object */
  JINJA_LOOP      /* the variable `loop` */
} jinja_kind;

typedef struct jinja_value jinja_value;
typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_function jinja_function;
typedef struct jinja_loop jinja_loop;

typedef struct {
  const char *bytes; /* without a NUL at its end */
  int64_t length;
} jinja_string;

struct jinja_value {
  jinja_kind kind;
  union {
    const char *undefined; /* the name that was not found, for messages; or NULL */
    bool truth;
    int64_t integer;
    double number;
    jinja_string string;
    jinja_list *list; /* of LIST and TUPLE */
    jinja_dict *dict; /* of DICT and NAMESPACE */
    const jinja_function *function;
    const jinja_loop *loop;
  };
};

struct jinja_list {
  jinja_value *items;
  int count, capacity;
};

typedef struct {
  jinja_value key, value;
} jinja_entry;

/* In the order in which keys were first set. */
struct jinja_dict {
  jinja_entry *entries;
  int count, capacity;
};

jinja_value jinja_none(void);
jinja_value jinja_bool(bool truth);
jinja_value jinja_int(int64_t integer);
jinja_value jinja_float(double number);
jinja_value jinja_text(const char *text); /* which must stay */
jinja_value jinja_bytes(const char *bytes, int64_t length);
jinja_value jinja_missing(const char *name);
jinja_value jinja_new_list(tsr_arena *arena, jinja_kind kind);
jinja_value jinja_new_dict(tsr_arena *arena, jinja_kind kind);
/* The text's bytes move to the arena. */
jinja_value jinja_take(tsr_arena *arena, tsr_text *text);

void jinja_append(tsr_arena *arena, jinja_list *list, jinja_value value);
void jinja_set(tsr_arena *arena, jinja_dict *dict, jinja_value key, jinja_value value);
/* NULL: there is none. */
const jinja_value *jinja_get(const jinja_dict *dict, jinja_value key);
const jinja_value *jinja_get_text(const jinja_dict *dict, const char *key);

bool jinja_is_number(jinja_value v); /* booleans are numbers, as in Python */
double jinja_as_double(jinja_value v);
bool jinja_is_true(jinja_value v);
/* Python's ==. */
bool jinja_equal(jinja_value a, jinja_value b);
/* Negative, 0 or positive of numbers, strings and sequences; false: they have no order. */
bool jinja_compare(jinja_value a, jinja_value b, int *ret_order);

/* What str() gives, and repr(): of strings in containers. False: deeper than JINJA_DEPTH_MAX. */
enum { JINJA_DEPTH_MAX = 200 };
bool jinja_print(jinja_value v, tsr_text *text);
bool jinja_repr(jinja_value v, int depth, tsr_text *text);
void jinja_print_float(double number, tsr_text *text); /* Python's repr of a float */
/* "a string": for messages. */
const char *jinja_kind_name(jinja_kind kind);

/* ---- strings ---- */

int64_t jinja_length(jinja_string s); /* code points */
/* Bytes in front of code point `index`, which may be the length. */
int64_t jinja_offset(jinja_string s, int64_t index);
bool jinja_is_text(jinja_value v, const char *text);
bool jinja_starts(jinja_string s, jinja_string prefix);
/* Where `part` begins in s at or behind byte `from`; -1: nowhere. */
int64_t jinja_find(jinja_string s, jinja_string part, int64_t from);

#endif
