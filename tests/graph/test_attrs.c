// SPDX-License-Identifier: Apache-2.0
/* Typed attributes: the tables of fields agree with the structs, and what passes alone set stays
 * theirs. */
#include "graph/graph.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>

static const tsr_attr_field *find(const tsr_attr_set *set, const char *name) {
  for (int i = 0; i < set->count; i++)
    if (!strcmp(set->fields[i].name, name)) return &set->fields[i];
  abort();
}

/* Fields lie inside the union, one behind the other, and have each other's names at most once. */
static void check_set(const tsr_attr_set *set) {
  for (int i = 0; i < set->count; i++) {
    const tsr_attr_field *f = &set->fields[i];
    CHECK(f->offset < sizeof(tsr_attrs) && find(set, f->name) == f);
    CHECK(i == 0 || f->offset > set->fields[i - 1].offset);
    CHECK(!(f->required && f->hidden));
  }
}

static void test_defaults(void) {
  const tsr_attr_set *attention = tsr_op_attrs(TSR_OP_ATTENTION);
  const tsr_attention_attrs *a = &attention->defaults->attention;
  CHECK(attention->count == 7 && a->causal && a->window == 0 && a->scale == 0);
  CHECK(tsr_op_attrs(TSR_OP_ALL_GATHER)->defaults->all_gather.dim == -1);
  CHECK(tsr_op_attrs(TSR_OP_ROPE)->defaults->rope.sign == 1);
  CHECK(tsr_op_attrs(TSR_OP_RMSNORM)->defaults->rmsnorm.eps == 1e-5);
  CHECK(tsr_op_attrs(TSR_OP_ADD)->count == 0);
  CHECK(find(tsr_op_attrs(TSR_OP_LINEAR), "fp8")->internal);
  CHECK(find(attention, "head_dim")->required && !find(attention, "causal")->required);
  CHECK(find(tsr_op_attrs(TSR_OP_RING_OUT), "window")->hidden);
}

/* Numbers that do not fit become the nearest that do. */
static void test_numbers(void) {
  tsr_attrs attrs = *tsr_op_attrs(TSR_OP_SLICE)->defaults;
  const tsr_attr_set *slice = tsr_op_attrs(TSR_OP_SLICE);
  tsr_attr_set_number(find(slice, "dim"), &attrs, -1e300);
  tsr_attr_set_number(find(slice, "begin"), &attrs, INFINITY);
  tsr_attr_set_number(find(slice, "end"), &attrs, 0x1p53);
  CHECK(attrs.slice.dim == INT32_MIN && attrs.slice.begin == INT64_MAX);
  CHECK(attrs.slice.end == (int64_t)1 << 53);
  CHECK(tsr_attr_number(find(slice, "end"), &attrs) == 0x1p53);
  const tsr_attr_set *matmul = tsr_op_attrs(TSR_OP_MATMUL);
  tsr_attr_set_number(find(matmul, "transpose_b"), &attrs, 2);
  CHECK(attrs.matmul.transpose_b && tsr_attr_number(find(matmul, "transpose_b"), &attrs) == 1);
}

/* Only fields count: what lies between them or behind them in the union does not. */
static void test_equal(void) {
  tsr_attrs a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0xff, sizeof b);
  a.slice = b.slice = (tsr_slice_attrs){1, 2, 3};
  CHECK(tsr_attrs_equal(TSR_OP_SLICE, &a, &b) && tsr_attrs_equal(TSR_OP_LINEAR, &a, &b));
  b.slice.end = 4;
  CHECK(!tsr_attrs_equal(TSR_OP_SLICE, &a, &b));
}

int main(void) {
  for (int op = 0; op < TSR_OPS; op++) check_set(tsr_op_attrs((tsr_op)op));
  for (int set = 0; set < TSR_ATTR_SETS; set++) check_set(tsr_attr_set_of((tsr_attr_set_id)set));
  test_defaults();
  test_numbers();
  test_equal();
  CHECK(tsr_attr_is_word("axis") && tsr_attr_is_word("transport") && !tsr_attr_is_word("dim"));
  return check_done("graph.attrs");
}
