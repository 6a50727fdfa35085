/* The collectives of local.c for buffers on a device: the same sums in the same order, and the same
 * moves, each as a few pieces of work that the device begins. */
#include "base/sequence.h"
#include "comm/collective.h"
#include <assert.h>
#include <string.h>

static void all_reduce(const tsr_device *d, const tsr_collective *c) {
  int64_t n = tsr_collective_elements(c, 0, c->ndim);
  d->sum_members(d->state, c->out, c->members, c->in, c->members, 1, n, n, 0);
}

static void reduce_scatter(const tsr_device *d, const tsr_collective *c) {
  int64_t blocks = c->members / c->groups, outer = tsr_collective_elements(c, 0, c->to),
          whole = tsr_collective_elements(c, c->to, c->ndim), part = whole / blocks;
  for (int64_t b = 0; b < blocks; b++) {
    float *out[TSR_DEVICE_MEMBERS_MAX];
    for (int g = 0; g < c->groups; g++) out[g] = c->out[g * blocks + b];
    d->sum_members(d->state, out, c->groups, c->in, c->members, outer, part, whole, b * part);
  }
}

/* (outer, run) elements, rows a step apart on either side. */
static void move_rows(
    const tsr_device *d, const tsr_collective *c, void *out, int64_t to, int64_t out_step,
    const void *x, int64_t from, int64_t x_step, int64_t outer, int64_t run) {
  d->move(
      d->state, (char *)out + to * c->element, (int64_t[]){out_step, 1},
      (const char *)x + from * c->element, (int64_t[]){x_step, 1}, (int)c->element, 2,
      (int64_t[]){outer, run});
}

static void all_gather(const tsr_device *d, const tsr_collective *c) {
  int64_t blocks = c->members / c->groups, outer = tsr_collective_elements(c, 0, c->from),
          whole = tsr_collective_elements(c, c->from, c->ndim), part = whole / blocks;
  int64_t runs = c->zigzag ? 2 : 1, run = part / runs;
  for (int64_t member = 0; member < c->members; member++)
    for (int64_t r = 0; r < runs; r++) {
      int64_t first = member / blocks * blocks;
      int64_t at =
          tsr_sequence_position(c->zigzag, (int)blocks, (int)(member % blocks), part, r * run);
      for (int64_t m = first; m < first + blocks; m++)
        if (c->in[member] && c->out[m])
          move_rows(d, c, c->out[m], at, whole, c->in[member], r * run, part, outer, run);
    }
}

static void ring_shift(const tsr_device *d, const tsr_collective *c) {
  int64_t bytes = tsr_collective_elements(c, 0, c->ndim) * c->element;
  for (int m = 0; m < c->members; m++) {
    const float *in = c->in[tsr_collective_source(c, m)];
    if (in && c->out[m]) d->copy(d->state, c->out[m], in, bytes);
  }
}

/* Steps of a part whose dimension `dim` is one of `members`. */
static void steps_of(const tsr_collective *c, int dim, int64_t step[TSR_DIMS_MAX]) {
  int64_t stride = 1;
  for (int i = c->ndim - 1; i >= 0; i--) {
    step[i] = stride;
    stride *= i == dim ? c->shape[i] / c->members : c->shape[i];
  }
}

/* Of a piece alone, and its shape. */
static void piece_of(const tsr_collective *c, int64_t *shape, int64_t *step) {
  memcpy(shape, c->shape, sizeof *shape * TSR_DIMS_MAX);
  shape[c->from] /= c->members;
  shape[c->to] /= c->members;
  int64_t stride = 1;
  for (int i = c->ndim - 1; i >= 0; i--) {
    step[i] = stride;
    stride *= shape[i];
  }
}

void tsr_collective_pack(
    const tsr_device *d, const tsr_collective *c, int from, int to, void *piece) {
  int64_t in_step[TSR_DIMS_MAX], step[TSR_DIMS_MAX], shape[TSR_DIMS_MAX];
  steps_of(c, c->from, in_step);
  piece_of(c, shape, step);
  d->move(
      d->state, piece, step,
      (const char *)c->in[from] + to * shape[c->to] * in_step[c->to] * c->element, in_step,
      (int)c->element, c->ndim, shape);
}

void tsr_collective_unpack(
    const tsr_device *d, const tsr_collective *c, int from, int to, const void *piece) {
  int64_t out_step[TSR_DIMS_MAX], step[TSR_DIMS_MAX], shape[TSR_DIMS_MAX];
  steps_of(c, c->to, out_step);
  piece_of(c, shape, step);
  d->move(
      d->state, (char *)c->out[to] + from * shape[c->from] * out_step[c->from] * c->element,
      out_step, piece, step, (int)c->element, c->ndim, shape);
}

static void all_to_all(const tsr_device *d, const tsr_collective *c) {
  int64_t in_step[TSR_DIMS_MAX], out_step[TSR_DIMS_MAX], shape[TSR_DIMS_MAX];
  steps_of(c, c->from, in_step);
  steps_of(c, c->to, out_step);
  memcpy(shape, c->shape, sizeof shape);
  shape[c->from] /= c->members;
  shape[c->to] /= c->members;
  for (int s = 0; s < c->members; s++)
    for (int t = 0; t < c->members; t++)
      if (c->in[s] && c->out[t])
        d->move(
            d->state, (char *)c->out[t] + s * shape[c->from] * out_step[c->from] * c->element,
            out_step, (const char *)c->in[s] + t * shape[c->to] * in_step[c->to] * c->element,
            in_step, (int)c->element, c->ndim, shape);
}

void tsr_collective_run_on(const tsr_device *device, const tsr_collective *c) {
  assert(c->members <= TSR_DEVICE_MEMBERS_MAX);
  switch ((int)c->op) {
  case TSR_OP_ALL_REDUCE:
    all_reduce(device, c);
    return;
  case TSR_OP_REDUCE_SCATTER:
    reduce_scatter(device, c);
    return;
  case TSR_OP_ALL_GATHER:
    all_gather(device, c);
    return;
  case TSR_OP_RING_SHIFT:
    ring_shift(device, c);
    return;
  default:
    assert(c->op == TSR_OP_ALL_TO_ALL);
    all_to_all(device, c);
  }
}
