// SPDX-License-Identifier: Apache-2.0
#include "comm/chunk_ops.h"
#include "base/reduction_tree.h"
#include <assert.h>
#include <string.h>

enum { BLOCK = 1024, DEPTH_MAX = 20 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- addresses ---- */

/* Element i of a place of a round. */
static char *
round_address(const tsr_step_buffers *b, const tsr_chunk *c, int round, int place, int64_t i) {
  const tsr_step_list *l = b->list;
  int64_t before = (int64_t)(round % TSR_ROUNDS_IN_FLIGHT) * l->places + place;
  return b->staging + before * l->place_bytes + (i - c->begin) * l->element;
}

static char *place_address(const tsr_step_buffers *b, const tsr_chunk *c, int place, int64_t i) {
  return round_address(b, c, c->round, place, i);
}

static const tsr_view *view_of(const tsr_step_buffers *b, const tsr_chunk *c, bool receives) {
  return &b->list->views[receives ? c->step->to_view : c->step->from_view];
}

void *tsr_chunk_address(
    const tsr_step_buffers *b, const tsr_chunk *c, const tsr_operand *o, bool receives, int64_t i) {
  if (o->buffer == TSR_BUFFER_STAGING)
    return round_address(b, c, c->round - o->rounds_before, o->index, i);
  int64_t at = receives ? c->step->to_at : c->step->from_at;
  float *tensor = (o->buffer == TSR_BUFFER_IN ? b->in : b->out)[o->index];
  return (char *)tensor + (at + tsr_view_place(view_of(b, c, receives), i)) * b->list->element;
}

bool tsr_chunk_is_staged(
    const tsr_step_buffers *b, const tsr_chunk *c, const tsr_operand *o, bool receives) {
  return o->via >= 0 && !tsr_view_joins(view_of(b, c, receives), c->begin, c->end);
}

const tsr_operand *tsr_chunk_message(const tsr_step_buffers *b, const tsr_chunk *c) {
  bool receives = c->step->kind == TSR_STEP_RECEIVE;
  return &b->list->operands[receives ? c->step->to : c->step->from];
}

void *tsr_chunk_message_address(const tsr_step_buffers *b, const tsr_chunk *c) {
  bool receives = c->step->kind == TSR_STEP_RECEIVE;
  const tsr_operand *o = tsr_chunk_message(b, c);
  if (tsr_chunk_is_staged(b, c, o, receives)) return place_address(b, c, o->via, c->begin);
  return tsr_chunk_address(b, c, o, receives, c->begin);
}

/* ---- on the CPU ---- */

/* Elements from i on, below `end`, that lie one after the other on both sides. */
static int64_t count_joined(
    const tsr_step_buffers *b, const tsr_chunk *c, bool staged_from, bool staged_to, int64_t i,
    int64_t end) {
  int64_t n = end - i;
  if (!staged_from) n = smaller(n, tsr_view_left(view_of(b, c, false), i));
  if (!staged_to) n = smaller(n, tsr_view_left(view_of(b, c, true), i));
  return n;
}

/* out[0..n) = x + y in f32, rounded to half precision. */
static void add_half(
    const tsr_kernels *k, tsr_dtype dtype, void *out, const void *x, const void *y, int64_t n) {
  float a[BLOCK], b[BLOCK];
  if (dtype == TSR_BF16) {
    k->bf16_to_f32(a, x, 0, n);
    k->bf16_to_f32(b, y, 0, n);
    k->add(a, a, b, 0, n);
    k->f32_to_bf16(out, a, 0, n);
  } else {
    k->fp16_to_f32(a, x, 0, n);
    k->fp16_to_f32(b, y, 0, n);
    k->add(a, a, b, 0, n);
    k->f32_to_fp16(out, a, 0, n);
  }
}

/* out[0..n) = the operands' sum of elements [i, i + n), n <= BLOCK. Sums are where the stack is,
 * but for the last, so that `out` may be an operand. */
static void add_block(
    const tsr_kernels *k, const tsr_step_buffers *b, const tsr_chunk *c, int64_t i, void *out,
    int64_t n) {
  float sums[DEPTH_MAX][BLOCK];
  const void *stack[DEPTH_MAX];
  const tsr_operand *operands = b->list->operands + c->step->from;
  tsr_tree_stack tree = {0};
  if (c->step->onto) stack[tsr_tree_push(&tree, 0)] = out;
  int count = c->step->from_count;
  int64_t place = c->step->from_at + tsr_view_place(view_of(b, c, false), i);
  place *= b->list->element;
  const char *staged = place_address(b, c, 0, i);
  for (int o = 0; o < count; o++) {
    const tsr_operand *operand = &operands[o];
    assert(tree.entries < DEPTH_MAX);
    int at = tsr_tree_push(&tree, operand->merges);
    const void *tensor = (operand->buffer == TSR_BUFFER_IN ? b->in : b->out)[operand->index];
    if (operand->buffer == TSR_BUFFER_STAGING)
      stack[at] = staged + operand->index * b->list->place_bytes;
    else stack[at] = (const char *)tensor + place;
    for (int low; tsr_tree_merge(&tree, &low);) {
      void *sum = o == count - 1 && low == 0 ? out : sums[low];
      if (b->list->dtype == TSR_F32) k->add(sum, stack[low], stack[low + 1], 0, n);
      else add_half(k, b->list->dtype, sum, stack[low], stack[low + 1], n);
      stack[low] = sum;
    }
  }
  assert(tree.entries == 1);
  if (stack[0] != out) memcpy(out, stack[0], (size_t)(n * b->list->element));
}

static void copy_to(
    const tsr_step_buffers *b, const tsr_chunk *c, const void *from, int first, int64_t i,
    int64_t n) {
  const tsr_operand *targets = b->list->operands + c->step->to;
  for (int t = first; t < c->step->to_count; t++) {
    void *to = tsr_chunk_address(b, c, &targets[t], true, i);
    if (to != from) memcpy(to, from, (size_t)(n * b->list->element));
  }
}

static void reduce(
    const tsr_kernels *k, const tsr_step_buffers *b, const tsr_chunk *c, int64_t begin,
    int64_t end) {
  const tsr_operand *target = b->list->operands + c->step->to;
  bool staged = target->buffer == TSR_BUFFER_STAGING;
  for (int64_t i = begin, n; i < end; i += n) {
    n = smaller(count_joined(b, c, false, staged, i, end), BLOCK);
    void *out = tsr_chunk_address(b, c, target, true, i);
    add_block(k, b, c, i, out, n);
    copy_to(b, c, out, 1, i, n);
  }
}

static void copy(const tsr_step_buffers *b, const tsr_chunk *c, int64_t begin, int64_t end) {
  const tsr_operand *from = b->list->operands + c->step->from;
  bool via = tsr_chunk_is_staged(b, c, from, false);
  bool staged_from = via || from->buffer == TSR_BUFFER_STAGING;
  for (int64_t i = begin, n; i < end; i += n) {
    n = count_joined(b, c, staged_from, false, i, end);
    const void *x =
        via ? place_address(b, c, from->via, i) : tsr_chunk_address(b, c, from, false, i);
    copy_to(b, c, x, 0, i, n);
  }
}

void tsr_chunk_run(
    const tsr_kernels *k, const tsr_step_buffers *b, const tsr_chunk *c, int64_t begin,
    int64_t end) {
  if (c->step->kind == TSR_STEP_REDUCE) reduce(k, b, c, begin, end);
  else copy(b, c, begin, end);
}

void tsr_chunk_pack(const tsr_step_buffers *b, const tsr_chunk *c, int64_t begin, int64_t end) {
  const tsr_operand *from = b->list->operands + c->step->from;
  for (int64_t i = begin, n; i < end; i += n) {
    n = count_joined(b, c, false, true, i, end);
    memcpy(
        place_address(b, c, from->via, i), tsr_chunk_address(b, c, from, false, i),
        (size_t)(n * b->list->element));
  }
}

/* ---- on a device ---- */

/* One side of a copy; `place`: element 0 of its buffer's slice, or of the chunk in staging. */
typedef struct {
  char *base;
  tsr_view view;
} side;

static side
side_of(const tsr_step_buffers *b, const tsr_chunk *c, const tsr_operand *o, bool receives) {
  if (o->buffer != TSR_BUFFER_STAGING)
    return (side){tsr_chunk_address(b, c, o, receives, 0), *view_of(b, c, receives)};
  return (side){place_address(b, c, o->index, 0), tsr_view_contiguous(c->end)};
}

static side side_of_place(const tsr_step_buffers *b, const tsr_chunk *c, int place) {
  return (side){place_address(b, c, place, 0), tsr_view_contiguous(c->end)};
}

/* A slice of (several big pieces, runs of each, elements of a run): where both sides have the runs
 * of `rows`, and the other one's are these or several of them. */
typedef struct {
  int64_t big; /* elements */
  int64_t shape[3];
} slice;

static slice find_slice(const tsr_view *rows, const tsr_view *other, int64_t i, int64_t end) {
  int64_t left = end - i, big = rows->inner > 1 ? rows->run * rows->inner : other->run;
  if (i % big == 0 && left >= big && big % rows->run == 0)
    return (slice){big, {left / big, big / rows->run, rows->run}};
  int64_t joined = smaller(left, tsr_view_left(other, i));
  if (rows->inner > 1 || i % rows->run || joined < rows->run) return (slice){0};
  return (slice){joined / rows->run * rows->run, {1, joined / rows->run, rows->run}};
}

static void find_strides(const tsr_view *v, const slice *x, int64_t *ret) {
  bool runs = v->run == x->shape[2], rows = runs && v->inner > 1;
  ret[0] = rows ? v->outer_step : x->shape[1] * (runs ? v->outer_step : x->shape[2]);
  if (!runs && v->run == x->big) ret[0] = v->outer_step;
  ret[1] = rows ? v->inner_step : runs ? v->outer_step : x->shape[2];
  ret[2] = 1;
}

/* As few pieces of work as the two views allow. */
static void
move_range(const tsr_device *d, int64_t element, side to, side from, int64_t begin, int64_t end) {
  bool by_from = from.view.run < to.view.run;
  const tsr_view *rows = by_from ? &from.view : &to.view, *other = by_from ? &to.view : &from.view;
  for (int64_t i = begin, n; i < end; i += n) {
    char *y = to.base + tsr_view_place(&to.view, i) * element;
    const char *x = from.base + tsr_view_place(&from.view, i) * element;
    n = smaller(smaller(end - i, tsr_view_left(other, i)), tsr_view_left(rows, i));
    slice whole = find_slice(rows, other, i, end);
    if (whole.shape[0] * whole.shape[1] > 1) {
      int64_t x_step[3], y_step[3];
      find_strides(&from.view, &whole, x_step);
      find_strides(&to.view, &whole, y_step);
      d->move(d->state, y, y_step, x, x_step, (int)element, 3, whole.shape);
      n = whole.shape[0] * whole.big;
    } else if (x != y) {
      d->copy(d->state, &(tsr_device_copy){y, x, n * element}, 1);
    }
  }
}

static void copy_on(const tsr_device *d, const tsr_step_buffers *b, const tsr_chunk *c) {
  const tsr_operand *from = b->list->operands + c->step->from;
  bool via = tsr_chunk_is_staged(b, c, from, false);
  side x = via ? side_of_place(b, c, from->via) : side_of(b, c, from, false);
  for (int t = 0; t < c->step->to_count; t++) {
    side y = side_of(b, c, &b->list->operands[c->step->to + t], true);
    if (x.base != y.base) move_range(d, b->list->element, y, x, c->begin, c->end);
  }
}

void tsr_chunk_pack_on(const tsr_device *d, const tsr_step_buffers *b, const tsr_chunk *c) {
  const tsr_operand *from = b->list->operands + c->step->from;
  move_range(
      d, b->list->element, side_of_place(b, c, from->via), side_of(b, c, from, false), c->begin,
      c->end);
}

/* Whether all operands have the layout of the step's view; otherwise all are in one piece. */
static bool have_view(const tsr_step_buffers *b, const tsr_chunk *c) {
  bool all = true;
  for (int o = 0; o < c->step->from_count; o++) {
    const tsr_operand *operand = &b->list->operands[c->step->from + o];
    all = all && operand->buffer != TSR_BUFFER_STAGING && operand->via < 0;
  }
  return all;
}

/* Where the operand's element 0 is, or would be if all were in one piece as the chunk is. */
static char *find_addend(
    const tsr_device *d, const tsr_step_buffers *b, const tsr_chunk *c, const tsr_operand *o,
    bool viewed) {
  if (viewed) return tsr_chunk_address(b, c, o, false, 0);
  if (!tsr_chunk_is_staged(b, c, o, false))
    return (char *)tsr_chunk_address(b, c, o, false, c->begin) - c->begin * b->list->element;
  side packed = side_of_place(b, c, o->via);
  move_range(d, b->list->element, packed, side_of(b, c, o, false), c->begin, c->end);
  return packed.base;
}

static void reduce_on(const tsr_device *d, const tsr_step_buffers *b, const tsr_chunk *c) {
  const void *in[TSR_DEVICE_MEMBERS_MAX];
  char *out[TSR_DEVICE_MEMBERS_MAX];
  void *first[TSR_DEVICE_MEMBERS_MAX];
  uint8_t merges[TSR_DEVICE_MEMBERS_MAX];
  int ins = c->step->from_count, outs = c->step->to_count;
  assert(ins <= TSR_DEVICE_MEMBERS_MAX && outs <= TSR_DEVICE_MEMBERS_MAX);
  bool viewed = have_view(b, c);
  for (int o = 0; o < ins; o++) {
    const tsr_operand *operand = &b->list->operands[c->step->from + o];
    in[o] = find_addend(d, b, c, operand, viewed);
    merges[o] = operand->merges;
  }
  for (int t = 0; t < outs; t++)
    out[t] = tsr_chunk_address(b, c, &b->list->operands[c->step->to + t], true, 0);
  tsr_view view = viewed ? *view_of(b, c, false) : tsr_view_contiguous(c->end);
  assert(view.inner == 1);
  tsr_members_sum sum = {.out = first, .in = in, .merges = merges, .outs = outs, .members = ins};
  sum.type = b->list->dtype == TSR_BF16  ? TSR_SUM_BF16
             : b->list->dtype == TSR_F16 ? TSR_SUM_F16
                                         : TSR_SUM_F32;
  sum.onto = c->step->onto;
  sum.step = view.outer_step;
  for (int64_t i = c->begin, n; i < c->end; i += n) {
    int64_t rows = i % view.run ? 0 : (c->end - i) / view.run;
    int64_t part = rows ? view.run : smaller(c->end - i, tsr_view_left(&view, i));
    n = rows ? rows * view.run : part;
    for (int t = 0; t < outs; t++) first[t] = out[t] + i * b->list->element;
    sum.outer = rows ? rows : 1;
    sum.part = part;
    sum.start = tsr_view_place(&view, i);
    d->sum_members(d->state, &sum);
  }
}

void tsr_chunk_run_on(const tsr_device *d, const tsr_step_buffers *b, const tsr_chunk *c) {
  if (c->step->kind == TSR_STEP_REDUCE) reduce_on(d, b, c);
  else copy_on(d, b, c);
}
