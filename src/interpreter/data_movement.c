// SPDX-License-Identifier: Apache-2.0
/* What moves elements and changes none: each element of the result is one of the input's. */
#include "interpreter/rule.h"

/* The same order of elements in another shape. Written-out collectives are this too: on whole
 * tensors they are the identity. */
static void forward_same(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) n->out[i] = n->in[0][i];
}
static void vjp_same(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) n->d_in[0][i] += n->d_out[i];
}
const tsr_interpreter_rule tsr_interpret_reshape = {.forward = forward_same, .vjp = vjp_same};
const tsr_interpreter_rule tsr_interpret_identity = {.forward = forward_same, .vjp = vjp_same};

static void indices_of(const tsr_value *v, int64_t at, int64_t ret_index[TSR_DIMS_MAX]) {
  for (int d = v->ndim - 1; d >= 0; d--) {
    ret_index[d] = at % v->shape[d];
    at /= v->shape[d];
  }
}
static int64_t at_indices(const tsr_value *v, const int64_t *index) {
  int64_t at = 0;
  for (int d = 0; d < v->ndim; d++) at = at * v->shape[d] + index[d];
  return at;
}

/* Which element of the input element `at` of the result is. */
static int64_t transposed(const tsr_interpreted *n, int64_t at) {
  int64_t index[TSR_DIMS_MAX];
  indices_of(n->out_type, at, index);
  int a = n->node->attr.transpose.dim0, b = n->node->attr.transpose.dim1;
  int64_t swap = index[a];
  index[a] = index[b];
  index[b] = swap;
  return at_indices(n->type[0], index);
}
static void forward_transpose(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++)
    n->out[i] = n->in[0][transposed(n, i)];
}
static void vjp_transpose(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++)
    n->d_in[0][transposed(n, i)] += n->d_out[i];
}
const tsr_interpreter_rule tsr_interpret_transpose = {
    .forward = forward_transpose, .vjp = vjp_transpose};

static int64_t sliced(const tsr_interpreted *n, int64_t at) {
  int64_t index[TSR_DIMS_MAX];
  indices_of(n->out_type, at, index);
  index[n->node->attr.slice.dim] += n->node->attr.slice.begin;
  return at_indices(n->type[0], index);
}
static void forward_slice(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++) n->out[i] = n->in[0][sliced(n, i)];
}
static void vjp_slice(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++)
    n->d_in[0][sliced(n, i)] += n->d_out[i];
}
const tsr_interpreter_rule tsr_interpret_slice = {.forward = forward_slice, .vjp = vjp_slice};

/* Where the i-th input element is in the output, which is zero elsewhere. */
static int64_t unsliced(const tsr_interpreted *n, int64_t at) {
  int64_t index[TSR_DIMS_MAX];
  indices_of(n->type[0], at, index);
  index[n->node->attr.unslice.dim] += n->node->attr.unslice.begin;
  return at_indices(n->out_type, index);
}
static void forward_unslice(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++) n->out[i] = 0;
  for (int64_t i = 0; i < tsr_value_elements(n->type[0]); i++) n->out[unsliced(n, i)] = n->in[0][i];
}
static void vjp_unslice(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->type[0]); i++)
    n->d_in[0][i] += n->d_out[unsliced(n, i)];
}
const tsr_interpreter_rule tsr_interpret_unslice = {.forward = forward_unslice, .vjp = vjp_unslice};

/* Where the i-th element of that input is in the output. */
static int64_t joined(const tsr_interpreted *n, int input, int64_t i) {
  int64_t index[TSR_DIMS_MAX];
  int dim = n->node->attr.concat.dim;
  indices_of(n->type[input], i, index);
  for (int k = 0; k < input; k++) index[dim] += n->type[k]->shape[dim];
  return at_indices(n->out_type, index);
}
static void forward_concat(const tsr_interpreted *n) {
  for (int k = 0; k < n->node->inputs_count; k++)
    for (int64_t i = 0; i < tsr_interpreted_size(n, k); i++) n->out[joined(n, k, i)] = n->in[k][i];
}
static void vjp_concat(const tsr_interpreted *n) {
  for (int k = 0; k < n->node->inputs_count; k++)
    for (int64_t i = 0; i < tsr_interpreted_size(n, k); i++)
      n->d_in[k][i] += n->d_out[joined(n, k, i)];
}
const tsr_interpreter_rule tsr_interpret_concat = {.forward = forward_concat, .vjp = vjp_concat};

/* Which element of the input the i-th of the result is. */
static int64_t of_one_head(const tsr_interpreted *n, int64_t i) {
  int64_t D = tsr_interpreted_columns(n, 0), heads = n->node->attr.expand_heads.heads;
  return i / (heads * D) * D + i % D;
}
static void forward_expand_heads(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++)
    n->out[i] = n->in[0][of_one_head(n, i)];
}
static void vjp_expand_heads(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++)
    n->d_in[0][of_one_head(n, i)] += n->d_out[i];
}
const tsr_interpreter_rule tsr_interpret_expand_heads = {
    .forward = forward_expand_heads, .vjp = vjp_expand_heads};
