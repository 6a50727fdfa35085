// SPDX-License-Identifier: Apache-2.0
/* The CPU as a device: memory, copies, and the dispatch of a task's ranks to the pool's threads. */
#include "base/memory.h"
#include "device/cpu/ops.h"
#include "device/cpu/part_hash.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
  tsr_device device;
  tsr_cpu_context context;
  tsr_pool *pool;
} cpu_device;

/* ---- memory ---- */

static bool allocate(void *state, int64_t bytes, void **ret_memory, char *why) {
  (void)state;
  void *memory = tsr_memory_map((size_t)bytes);
  if (!memory) return snprintf(why, TSR_DEVICE_WHY_BYTES, "%s", strerror(errno)), false;
  madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
  *ret_memory = memory;
  return true;
}

static void release(void *state, void *memory, int64_t bytes) {
  (void)state;
  munmap(memory, (size_t)bytes);
}

static int64_t available(void *state) {
  (void)state;
  return tsr_memory_available();
}

/* ---- tasks ---- */

typedef struct {
  const cpu_device *device;
  const tsr_launch *launch;
  const cpu_op *op;
  int ranges; /* a rank's items are split into */
  int round;
  int64_t items;
  bool stores_half;
  cpu_half_operands half;
} task_run;

static cpu_call call_for(const task_run *t, int rank) {
  cpu_call call = {
      .call = t->launch->call,
      .k = t->device->context.k,
      .threads = t->device->context.threads,
      .round = t->round,
      .stores_half = t->stores_half,
      .half = t->half,
      .losses = t->launch->losses,
      .nan_scores = t->launch->nan_scores,
      .hashes = t->launch->hashes};
  call.call.rank = &t->launch->memory[rank];
  return call;
}

static void run_range(void *context, int job) {
  const task_run *t = context;
  cpu_call call = call_for(t, t->launch->ranks[job / t->ranges]);
  int range = job % t->ranges;
  int64_t begin = tsr_pool_range_begin(t->items, range, t->ranges),
          end = tsr_pool_range_begin(t->items, range + 1, t->ranges);
  if (begin < end) t->op->run(&call, begin, end, range);
}

static void run_before(void *context, int job) {
  const task_run *t = context;
  cpu_call call = call_for(t, t->launch->ranks[job / t->ranges]);
  t->op->before(&call, job % t->ranges, t->ranges);
}

static void run_after(void *context, int job) {
  const task_run *t = context;
  cpu_call call = call_for(t, t->launch->ranks[job]);
  t->op->after(&call);
}

static void cast_inputs(void *context, int job) {
  const task_run *t = context;
  cpu_call call = call_for(t, t->launch->ranks[job / t->ranges]);
  cpu_cast_inputs(&call, job % t->ranges, t->ranges);
}

static void cast_outputs(void *context, int job) {
  const task_run *t = context;
  cpu_call call = call_for(t, t->launch->ranks[job / t->ranges]);
  cpu_cast_outputs(&call, job % t->ranges, t->ranges);
}

/* Jobs of which `each` are for a rank. */
static void run_jobs(task_run *t, tsr_pool_job *job, int each) {
  const tsr_launch *l = t->launch;
  const tsr_task_timer *timer = l->timer;
  int jobs = l->ranks_count * each;
  if (timer) timer->loop(timer->context, t->device->pool, job, t, jobs, l->ranks, each);
  else tsr_pool_run(t->device->pool, job, t, jobs);
}

static void run(void *state, const tsr_launch *launch) {
  const cpu_device *d = state;
  const tsr_task *task = launch->call.task;
  task_run t = {.device = d, .launch = launch, .op = cpu_op_of(task)};
  tsr_cpu_partition p = tsr_cpu_partition_of(task, launch->ranks_count, d->context.threads);
  t.items = p.items;
  t.ranges = p.ranges;
  if (t.op->stores_half && !launch->losses) {
    cpu_call call = call_for(&t, launch->ranks[0]);
    t.stores_half = t.op->stores_half(&call);
  }
  if (t.op->half) {
    cpu_call call = call_for(&t, launch->ranks[0]);
    t.half = t.op->half(&call);
  }
  if (task->cast_bytes) run_jobs(&t, cast_inputs, t.ranges);
  for (t.round = 0; t.round < p.rounds; t.round++) {
    if (t.op->round_items) t.items = t.op->round_items(task, t.round);
    if (t.op->before) run_jobs(&t, run_before, t.ranges);
    run_jobs(&t, run_range, t.ranges);
  }
  if (t.op->after) run_jobs(&t, run_after, 1);
  if (task->cast_bytes && !t.stores_half) run_jobs(&t, cast_outputs, t.ranges);
}

int tsr_cpu_jobs_max(int ranks, int threads) { return ranks * threads * CPU_RANGES_MAX; }

/* ---- other work; all of it is done when a function returns ---- */

static void begin_step(void *state, const tsr_graph *graph, const tsr_step_context *step) {
  (void)state, (void)graph, (void)step;
}

static void copy_one(void *context, int job) {
  const tsr_device_copy *c = (const tsr_device_copy *)context + job;
  memcpy(c->to, c->from, (size_t)c->bytes);
}

static void copy(void *state, const tsr_device_copy *copies, int count) {
  tsr_pool_run(((cpu_device *)state)->pool, copy_one, (void *)copies, count);
}

static void hash(void *state, const tsr_hash_part *part, uint64_t *sum) {
  const cpu_device *d = state;
  *sum += tsr_cpu_hash_part(d->context.k, d->pool, part);
}

static void loop(void *state, tsr_pool_job *job, void *context, int jobs) {
  tsr_pool_run(((cpu_device *)state)->pool, job, context, jobs);
}

static void wait(void *state) { (void)state; }

/* ---- opening ---- */

bool tsr_cpu_device_open(
    tsr_arena *arena, const tsr_cpu_context *context, const tsr_device **ret_device,
    tsr_diags *diags) {
  cpu_device *d = tsr_arena_alloc(arena, sizeof *d);
  *d = (cpu_device){.context = *context};
  if (!tsr_pool_open(arena, context->threads, &d->pool, diags)) return false;
  d->device = (tsr_device){
      .name = "cpu",
      .arch = context->k->isa,
      .text = "cpu",
      .threads = context->threads,
      .counts_f16_losses = true,
      .state = d};
  d->device.allocate = allocate;
  d->device.release = release;
  d->device.available = available;
  d->device.begin_step = begin_step;
  d->device.run = run;
  d->device.copy = copy;
  d->device.hash = hash;
  d->device.loop = loop;
  d->device.wait = wait;
  *ret_device = &d->device;
  return true;
}

void tsr_cpu_device_close(const tsr_device *device) {
  if (device) tsr_pool_close(((cpu_device *)device->state)->pool);
}

tsr_pool *tsr_cpu_device_pool(const tsr_device *device) {
  return ((cpu_device *)device->state)->pool;
}
