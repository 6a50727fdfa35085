// SPDX-License-Identifier: Apache-2.0
#include "comm/engine_device.h"
#include "comm/chunk_ops.h"

static void
begin_library_sum(const tsr_device_exchange *x, const tsr_step_buffers *b, const tsr_chunk *c) {
  const tsr_device *d = x->device;
  const void *in = tsr_chunk_address(b, c, &b->list->operands[c->step->from], false, 0);
  void *out = tsr_chunk_address(b, c, &b->list->operands[c->step->to], true, 0);
  bool slices = c->step->kind == TSR_STEP_VENDOR_SUM_SLICES;
  (slices ? d->sum_slices : d->sum)(d->state, x->group, b->list->dtype, in, out, c->end);
}

static void add_message(
    const tsr_device_exchange *x, const tsr_step_buffers *b, const tsr_chunk *c,
    tsr_device_message *ret) {
  bool receives = c->step->kind == TSR_STEP_RECEIVE;
  if (!receives && tsr_chunk_is_staged(b, c, tsr_chunk_message(b, c), false))
    tsr_chunk_pack_on(x->device, b, c);
  *ret = (tsr_device_message){
      x->layout->ascending[c->step->peer], receives, tsr_chunk_message_address(b, c),
      (c->end - c->begin) * b->list->element};
}

void tsr_device_exchange_begin(
    const tsr_device_exchange *x, void *staging, tsr_device_message *messages) {
  const tsr_device *d = x->device;
  tsr_step_buffers b = {x->list, x->collective->in, x->collective->out, staging};
  tsr_sequence sequence;
  int phase, round;
  tsr_sequence_begin(&sequence, x->list);
  while (tsr_sequence_next(&sequence, &phase, &round)) {
    tsr_chunk c = {.round = round};
    int at = 0, count = 0;
    while ((c.step = tsr_sequence_step(&sequence, phase, round, &at, &c.begin, &c.end))) {
      if (c.step->kind == TSR_STEP_SEND || c.step->kind == TSR_STEP_RECEIVE)
        add_message(x, &b, &c, &messages[count++]);
      else if (c.step->kind == TSR_STEP_REDUCE || c.step->kind == TSR_STEP_COPY)
        tsr_chunk_run_on(d, &b, &c);
      else begin_library_sum(x, &b, &c);
    }
    if (count) d->exchange(d->state, x->group, messages, count);
  }
}
