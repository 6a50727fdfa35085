// SPDX-License-Identifier: Apache-2.0
#include "graph/call_attrs.h"
#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct {
  const tsr_graph *g;
  const tsr_call *call;
  const tsr_attr_set *set;
  tsr_diags *diags;
} reader;

const tsr_call_attr *tsr_call_find_attr(const tsr_call *call, const char *name) {
  for (int i = 0; i < call->attrs_count; i++)
    if (call->attrs[i].name && !strcmp(call->attrs[i].name, name)) return &call->attrs[i];
  return NULL;
}

static const tsr_attr_field *find_field(const tsr_attr_set *set, const char *name) {
  for (int i = 0; i < set->count; i++)
    if (!set->fields[i].internal && *set->fields[i].name == *name &&
        !strcmp(set->fields[i].name, name))
      return &set->fields[i];
  return NULL;
}

static bool is_whole(tsr_attr_type type) {
  return type == TSR_ATTR_dim || type == TSR_ATTR_i64 || type == TSR_ATTR_flag ||
         type == TSR_ATTR_positions;
}

/* An axis or a transport is a word, which is looked up later, sizes are a list, all else is a
 * number. */
static bool check_type(const reader *r, const tsr_attr_field *f, const tsr_call_attr *a) {
  if (tsr_attr_type_is_word(f->type)) return true;
  if (f->type == TSR_ATTR_numbers)
    return a->numbers.number ||
           tsr_diag_error(
               r->diags, a->location, "%s: '%s' must be a list of numbers", r->call->op, a->name);
  bool list = f->type == TSR_ATTR_sizes;
  if (list ? !a->list_count : a->word || a->list_count)
    return tsr_diag_error(
        r->diags, a->location, "%s: '%s' must be a %s", r->call->op, a->name,
        list ? "list of sizes" : "number");
  if (f->type == TSR_ATTR_nonneg && a->value < 0)
    return tsr_diag_error(
        r->diags, a->location, "%s: '%s' must not be negative, found %g", r->call->op, a->name,
        a->value);
  if (f->type == TSR_ATTR_positive && !(a->value > 0))
    return tsr_diag_error(
        r->diags, a->location, "%s: '%s' must be above 0, found %g", r->call->op, a->name,
        a->value);
  if (f->type == TSR_ATTR_flag && a->value != 0 && a->value != 1)
    return tsr_diag_error(
        r->diags, a->location, "%s: '%s' must be true or false, not %g", r->call->op, a->name,
        a->value);
  if (!is_whole(f->type) || a->value == floor(a->value)) return true;
  return tsr_diag_error(
      r->diags, a->location, "%s: '%s' must be a whole number, not %g", r->call->op, a->name,
      a->value);
}

static bool fail_unknown(const reader *r, const tsr_call_attr *a) {
  const char *names[TSR_CALL_ATTRS_MAX];
  int count = 0;
  for (int i = 0; i < r->set->count && count < TSR_CALL_ATTRS_MAX; i++)
    if (!r->set->fields[i].internal) names[count++] = r->set->fields[i].name;
  tsr_diag_error(r->diags, a->location, "%s has no attribute '%s'", r->call->op, a->name);
  tsr_diag_nearest(r->diags, a->name, names, count);
  return false;
}

/* Every attribute is a field and of its type, and the required ones are present. */
static bool check_attrs(const reader *r) {
  bool ok = true;
  for (int i = 0; i < r->call->attrs_count; i++) {
    const tsr_call_attr *a = &r->call->attrs[i];
    const tsr_attr_field *f = find_field(r->set, a->name);
    ok &= f ? check_type(r, f, a) : fail_unknown(r, a);
  }
  for (int i = 0; ok && i < r->set->count; i++) { /* one of another name may be meant */
    const tsr_attr_field *f = &r->set->fields[i];
    if (f->required && !tsr_call_find_attr(r->call, f->name))
      ok = tsr_diag_error(
          r->diags, r->call->op_place, "%s needs the attribute '%s'", r->call->op, f->name);
  }
  return ok;
}

static bool read_axis(const reader *r, const tsr_call_attr *a, double *ret_axis) {
  static const char *const names[] = {"dp", "pp", "ep", "cp", "tp"};
  for (int i = 0; a->word && i < TSR_AXES; i++)
    if (!strcmp(a->word, names[i])) return *ret_axis = i, true;
  if (!a->word)
    return tsr_diag_error(
        r->diags, a->location, "%s: '%s' must be an axis's name", r->call->op, a->name);
  tsr_diag_error(r->diags, a->location, "'%s' is not an axis", a->word);
  tsr_diag_nearest(r->diags, a->word, names, TSR_AXES);
  return false;
}

static bool read_transport(const reader *r, const tsr_call_attr *a, double *ret_transport) {
  static const char *const names[] = {"auto", "nccl"}, *const experts[] = {"nvshmem", "deepep"};
  for (int i = 0; a->word && i < 2; i++)
    if (!strcmp(a->word, names[i])) return *ret_transport = i, true;
  for (int i = 0; a->word && i < 2; i++)
    if (!strcmp(a->word, experts[i])) {
      tsr_diag_error(
          r->diags, a->location, "%s: the transport %s is for the all-to-all of experts alone",
          r->call->op, experts[i]);
      tsr_diag_hint(r->diags, "valid: auto, nccl");
      return false;
    }
  if (!a->word)
    return tsr_diag_error(
        r->diags, a->location, "%s: '%s' must be auto or nccl", r->call->op, a->name);
  tsr_diag_error(r->diags, a->location, "%s: there is no transport '%s'", r->call->op, a->word);
  tsr_diag_nearest(r->diags, a->word, names, 2);
  return false;
}

static bool read_balance(const reader *r, const tsr_call_attr *a, double *ret_balance) {
  static const char *const names[] = {"sequence", "step", "forward"};
  for (int i = 0; a->word && i < 3; i++)
    if (!strcmp(a->word, names[i])) return *ret_balance = i, true;
  const char *format =
      a->word && !strcmp(a->word, "microbatch")
          ? "%s: '%s' cannot be a microbatch: the loss, and with it the bits, would "
            "depend on the number of microbatches"
          : "%s: '%s' must be sequence, step or forward";
  return tsr_diag_error(r->diags, a->location, format, r->call->op, a->name);
}

static bool
read_attr(const reader *r, const tsr_attr_field *f, const tsr_call_attr *a, tsr_attrs *ret_attrs) {
  double number = a->value, ndim = r->g->values[r->call->inputs[0]].ndim;
  if (f->type == TSR_ATTR_numbers) {
    memcpy((char *)ret_attrs + f->offset, &a->numbers, sizeof a->numbers);
    return true;
  }
  if (f->type == TSR_ATTR_sizes) {
    tsr_size_list list = {.count = a->list_count};
    memcpy(list.size, a->list, sizeof list.size);
    memcpy((char *)ret_attrs + f->offset, &list, sizeof list);
    return true;
  }
  if (f->type == TSR_ATTR_axis && !read_axis(r, a, &number)) return false;
  if (f->type == TSR_ATTR_transport && !read_transport(r, a, &number)) return false;
  if (f->type == TSR_ATTR_balance && !read_balance(r, a, &number)) return false;
  if (f->type == TSR_ATTR_dim && number < 0 && number >= -ndim) number += ndim;
  tsr_attr_set_number(f, ret_attrs, number);
  return true;
}

static bool check_range(const reader *r, const tsr_attr_field *f, double number) {
  if (f->type == TSR_ATTR_fraction && !(number >= 0 && number < 1))
    return tsr_diag_error(
        r->diags, r->call->op_place, "%s: %s %g is not in [0, 1)", r->call->op, f->name, number);
  if (f->type == TSR_ATTR_dim && fabs(number) > INT_MAX)
    return tsr_diag_error(
        r->diags, r->call->op_place, "%s: there is no dimension %.15g", r->call->op, number);
  if (f->type == TSR_ATTR_positions && !(number >= 0 && number < 0x1p53))
    return tsr_diag_error(
        r->diags, r->call->op_place, "%s: %s %g is no number of positions", r->call->op, f->name,
        number);
  return true;
}

bool tsr_call_read_attrs(
    const tsr_graph *g, const tsr_call *call, const tsr_attr_set *set, tsr_attrs *ret_attrs,
    tsr_diags *diags) {
  reader r = {g, call, set, diags};
  if (!check_attrs(&r)) return false;
  *ret_attrs = *set->defaults;
  bool ok = true;
  for (int i = 0; i < set->count; i++) {
    const tsr_call_attr *a = tsr_call_find_attr(call, set->fields[i].name);
    if (a) ok &= read_attr(&r, &set->fields[i], a, ret_attrs);
  }
  for (int i = 0; ok && i < set->count; i++) {
    const tsr_call_attr *a = tsr_call_find_attr(call, set->fields[i].name);
    if (a) ok = check_range(&r, &set->fields[i], a->value);
  }
  return ok;
}
