// SPDX-License-Identifier: Apache-2.0
#include "graph/attrs.h"
#include <assert.h>
#include <limits.h>
#include <string.h>

#define F(name, type, value) .name = value,
#define REQUIRED(name, type)
#define INTERNAL(name, type, value) .name = value,
#define HIDDEN(name, type, value) .name = value,
#define ATTRS(set, ...) static const tsr_attrs set##_defaults = {.set = {__VA_ARGS__}};
#include "graph/attrs.def"
#undef ATTRS
#undef F
#undef REQUIRED
#undef INTERNAL
#undef HIDDEN

/* A field knows its struct by the name that its set's block gives it. */
#define FIELD(name, type, required, internal, hidden)                                              \
  {#name, TSR_ATTR_##type, offsetof(struct_of_set, name), required, internal, hidden},
#define F(name, type, value) FIELD(name, type, false, false, false)
#define REQUIRED(name, type) FIELD(name, type, true, false, false)
#define INTERNAL(name, type, value) FIELD(name, type, false, true, false)
#define HIDDEN(name, type, value) FIELD(name, type, false, true, true)
#define ATTRS(set, ...)                                                                            \
  case TSR_ATTRS_##set: {                                                                          \
    typedef tsr_##set##_attrs struct_of_set;                                                       \
    static const tsr_attr_field fields[] = {__VA_ARGS__};                                          \
    static const tsr_attr_set all = {                                                              \
        (int)(sizeof fields / sizeof *fields), fields, &set##_defaults};                           \
    return &all;                                                                                   \
  }

const tsr_attr_set *tsr_attr_set_of(tsr_attr_set_id id) {
  static const tsr_attrs nothing;
  static const tsr_attr_set none = {0, NULL, &nothing};
  switch (id) {
#include "graph/attrs.def"
  case TSR_ATTRS_none:
  case TSR_ATTR_SETS:
    break;
  }
  return &none;
}

static bool has_type(const char *name, bool is_of(tsr_attr_type type)) {
  for (int id = 0; id < TSR_ATTR_SETS; id++) {
    const tsr_attr_set *set = tsr_attr_set_of((tsr_attr_set_id)id);
    for (int i = 0; i < set->count; i++)
      if (*set->fields[i].name == *name && is_of(set->fields[i].type) &&
          !strcmp(set->fields[i].name, name))
        return true;
  }
  return false;
}

bool tsr_attr_is_word(const char *name) { return has_type(name, tsr_attr_type_is_word); }

static bool is_numbers(tsr_attr_type type) { return type == TSR_ATTR_numbers; }
bool tsr_attr_is_numbers(const char *name) { return has_type(name, is_numbers); }

const tsr_attr_set *tsr_op_attrs(tsr_op op) {
  static const tsr_attr_set_id sets[] = {
#define OP(id, name, min, max, outputs, attrs, ...) TSR_ATTRS_##attrs,
#include "graph/ops.def"
#undef OP
  };
  return tsr_attr_set_of(sets[op]);
}

double tsr_attr_number(const tsr_attr_field *field, const tsr_attrs *attrs) {
  const void *at = (const char *)attrs + field->offset;
#define TSR_ATTR_CASE(name, c)                                                                     \
  case TSR_ATTR_##name:                                                                            \
    return (double)*(const c *)at;
  switch (field->type) {
    TSR_ATTR_CASE(axis, tsr_axis)
    TSR_ATTR_CASE(transport, tsr_op_transport)
    TSR_ATTR_CASE(balance, tsr_balance_tokens)
    TSR_ATTR_CASE(dim, int)
    TSR_ATTR_CASE(i64, int64_t)
    TSR_ATTR_CASE(flag, bool)
    TSR_ATTR_CASE(positions, int64_t)
    TSR_ATTR_CASE(f64, double)
    TSR_ATTR_CASE(nonneg, double)
    TSR_ATTR_CASE(positive, double)
    TSR_ATTR_CASE(fraction, double)
    TSR_ATTR_CASE(op, tsr_op)
    TSR_ATTR_CASE(store, tsr_param_store)
    TSR_ATTR_CASE(fp8, tsr_fp8_recipe)
  case TSR_ATTR_sizes:
  case TSR_ATTR_numbers:
    break;
  }
  assert(!"a list is no number");
  return 0;
}

static int64_t whole(double number, int64_t min, int64_t max) {
  return number <= (double)min ? min : number >= (double)max ? max : (int64_t)number;
}

void tsr_attr_set_number(const tsr_attr_field *field, tsr_attrs *attrs, double number) {
  void *at = (char *)attrs + field->offset;
  switch (field->type) {
  case TSR_ATTR_dim:
    *(int *)at = (int)whole(number, INT_MIN, INT_MAX);
    return;
  case TSR_ATTR_i64:
  case TSR_ATTR_positions:
    *(int64_t *)at = whole(number, INT64_MIN, INT64_MAX);
    return;
  case TSR_ATTR_flag:
    *(bool *)at = number != 0;
    return;
  case TSR_ATTR_f64:
  case TSR_ATTR_nonneg:
  case TSR_ATTR_positive:
  case TSR_ATTR_fraction:
    *(double *)at = number;
    return;
  case TSR_ATTR_axis:
    *(tsr_axis *)at = (tsr_axis)number;
    return;
  case TSR_ATTR_transport:
    *(tsr_op_transport *)at = (tsr_op_transport)number;
    return;
  case TSR_ATTR_balance:
    *(tsr_balance_tokens *)at = (tsr_balance_tokens)number;
    return;
  case TSR_ATTR_op:
  case TSR_ATTR_store:
  case TSR_ATTR_fp8:
  case TSR_ATTR_sizes:
  case TSR_ATTR_numbers:
    break;
  }
  assert(!"a call gives no such attribute");
}

bool tsr_attrs_equal(tsr_op op, const tsr_attrs *a, const tsr_attrs *b) {
  const tsr_attr_set *set = tsr_op_attrs(op);
  for (int i = 0; i < set->count; i++)
    if (tsr_attr_number(&set->fields[i], a) != tsr_attr_number(&set->fields[i], b)) return false;
  return true;
}
