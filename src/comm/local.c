#include "base/sequence.h"
#include "base/tree.h"
#include "comm/collective.h"
#include <assert.h>
#include <string.h>

enum { BLOCK = 1024, STACK_MAX = 20 };

/* out[0..n) = the members' sum of in[at..at+n), n <= BLOCK. */
static void sum_block(const tsr_collective *c, float *out, int64_t at, int64_t n) {
  float stack[STACK_MAX][BLOCK];
  int top = 0;
  for (int m = 0; m < c->members; m++) {
    int merges = tsr_tree_merges(c->members, m);
    assert(top < STACK_MAX);
    if (merges) {
      c->k->add(stack[top - 1], stack[top - 1], c->in[m] + at, 0, n);
      top--, merges--;
    } else {
      memcpy(stack[top], c->in[m] + at, sizeof(float) * (size_t)n);
    }
    top++;
    for (; merges; merges--, top--) c->k->add(stack[top - 2], stack[top - 2], stack[top - 1], 0, n);
  }
  memcpy(out, stack[0], sizeof(float) * (size_t)n);
}

static void all_reduce(const tsr_collective *c, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    sum_block(c, c->out[0] + at, at, n);
    for (int m = 1; m < c->members; m++)
      memcpy(c->out[m] + at, c->out[0] + at, sizeof(float) * (size_t)n);
  }
}

/* Items are (outer, member): the member's slice of one outer row. */
static void reduce_scatter(const tsr_collective *c, int64_t begin, int64_t end) {
  int64_t blocks = c->members / c->groups;
  int64_t whole = tsr_collective_elements(c, c->to, c->ndim), part = whole / blocks;
  for (int64_t i = begin; i < end; i++) {
    int64_t outer = i / c->members, member = i % c->members;
    for (int64_t at = 0; at < part; at += BLOCK)
      sum_block(
          c, c->out[member] + outer * part + at, outer * whole + member % blocks * part + at,
          part - at < BLOCK ? part - at : BLOCK);
  }
}

static void all_gather(const tsr_collective *c, int64_t begin, int64_t end) {
  int64_t blocks = c->members / c->groups;
  int64_t whole = tsr_collective_elements(c, c->from, c->ndim), part = whole / blocks;
  for (int64_t i = begin; i < end; i++) {
    int64_t outer = i / c->members, member = i % c->members, first = member / blocks * blocks;
    const char *slice = (const char *)c->in[member] + outer * part * c->element;
    int64_t runs = c->zigzag ? 2 : 1, run = part / runs;
    for (int64_t r = 0; r < runs; r++) {
      int64_t at =
          tsr_sequence_position(c->zigzag, (int)blocks, (int)(member % blocks), part, r * run);
      for (int64_t m = first; m < first + blocks; m++)
        memcpy(
            (char *)c->out[m] + (outer * whole + at) * c->element, slice + r * run * c->element,
            (size_t)(run * c->element));
    }
  }
}

static void ring_shift(const tsr_collective *c, int64_t begin, int64_t end) {
  for (int m = 0; m < c->members; m++) {
    int from = tsr_collective_source(c, m);
    memcpy(
        (char *)c->out[m] + begin * c->element, (const char *)c->in[from] + begin * c->element,
        (size_t)((end - begin) * c->element));
  }
}

/* Where an element of the whole tensor lies in its owner's part when dimension `dim` is split. */
static int64_t locate(const tsr_collective *c, const int64_t *index, int dim, int *ret_member) {
  int64_t part = c->shape[dim] / c->members, at = 0;
  *ret_member = (int)(index[dim] / part);
  for (int d = 0; d < c->ndim; d++)
    at = at * (d == dim ? part : c->shape[d]) + (d == dim ? index[d] % part : index[d]);
  return at;
}

static void all_to_all(const tsr_collective *c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    int64_t index[TSR_DIMS_MAX], rest = i;
    for (int d = c->ndim - 1; d >= 0; d--) {
      index[d] = rest % c->shape[d];
      rest /= c->shape[d];
    }
    int source, target;
    int64_t at = locate(c, index, c->from, &source), to = locate(c, index, c->to, &target);
    if (c->element == 4) c->out[target][to] = c->in[source][at];
    else
      memcpy(
          (char *)c->out[target] + to * c->element, (const char *)c->in[source] + at * c->element,
          (size_t)c->element);
  }
}

int64_t tsr_collective_items(const tsr_collective *c) {
  if (c->op == TSR_OP_REDUCE_SCATTER) return tsr_collective_elements(c, 0, c->to) * c->members;
  if (c->op == TSR_OP_ALL_GATHER) return tsr_collective_elements(c, 0, c->from) * c->members;
  return tsr_collective_elements(c, 0, c->ndim);
}

void tsr_collective_run(const tsr_collective *c, int64_t begin, int64_t end) {
  bool adds = c->op == TSR_OP_ALL_REDUCE || c->op == TSR_OP_REDUCE_SCATTER;
  assert(c->element == sizeof(float) || !adds);
  switch ((int)c->op) {
  case TSR_OP_ALL_REDUCE:
    all_reduce(c, begin, end);
    return;
  case TSR_OP_REDUCE_SCATTER:
    reduce_scatter(c, begin, end);
    return;
  case TSR_OP_ALL_GATHER:
    all_gather(c, begin, end);
    return;
  case TSR_OP_RING_SHIFT:
    ring_shift(c, begin, end);
    return;
  default:
    assert(c->op == TSR_OP_ALL_TO_ALL);
    all_to_all(c, begin, end);
  }
}
