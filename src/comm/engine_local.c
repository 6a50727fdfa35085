// SPDX-License-Identifier: Apache-2.0
#include "comm/engine_local.h"
#include <assert.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t tsr_in_process_items(const tsr_step_list *l) {
  int64_t items = 0;
  assert(l->phases_count == 1 && l->phases[0].local && !l->places);
  for (int i = l->phases[0].begin; i < l->phases[0].end; i++) items += l->steps[i].end;
  return items;
}

static tsr_step_buffers buffers_of(const tsr_step_list *l, const tsr_collective *c) {
  return (tsr_step_buffers){.list = l, .in = c->in, .out = c->out};
}

void tsr_in_process_run_range(
    const tsr_step_list *l, const tsr_collective *c, int64_t begin, int64_t end) {
  tsr_step_buffers b = buffers_of(l, c);
  int64_t at = 0;
  for (int i = l->phases[0].begin; i < l->phases[0].end && at < end; i++) {
    const tsr_step *s = &l->steps[i];
    int64_t from = begin > at ? begin - at : 0, to = smaller(end - at, s->end);
    tsr_chunk chunk = {.step = s, .end = s->end};
    if (from < to) tsr_chunk_run(c->k, &b, &chunk, from, to);
    at += s->end;
  }
}

typedef struct {
  const tsr_step_list *list;
  const tsr_collective *collective;
  int ranges;
  int64_t items;
} host_loop;

static void run_range(void *context, int job) {
  const host_loop *l = context;
  int64_t begin = tsr_pool_range_begin(l->items, job, l->ranges),
          end = tsr_pool_range_begin(l->items, job + 1, l->ranges);
  if (begin < end) tsr_in_process_run_range(l->list, l->collective, begin, end);
}

void tsr_in_process_run(const tsr_device *d, const tsr_step_list *l, const tsr_collective *c) {
  if (d->loop) {
    host_loop loop = {l, c, d->threads, tsr_in_process_items(l)};
    d->loop(d->state, run_range, &loop, d->threads);
    return;
  }
  tsr_step_buffers b = buffers_of(l, c);
  for (int i = l->phases[0].begin; i < l->phases[0].end; i++)
    tsr_chunk_run_on(d, &b, &(tsr_chunk){.step = &l->steps[i], .end = l->steps[i].end});
}
