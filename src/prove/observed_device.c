// SPDX-License-Identifier: Apache-2.0
#include "prove/observed_device.h"

static const tsr_device *cpu_of(void *state) { return ((tsr_observed_device *)state)->cpu; }

static bool allocate(void *state, int64_t bytes, void **ret_memory, char *why) {
  const tsr_device *cpu = cpu_of(state);
  return cpu->allocate(cpu->state, bytes, ret_memory, why);
}

static void release(void *state, void *memory, int64_t bytes) {
  const tsr_device *cpu = cpu_of(state);
  cpu->release(cpu->state, memory, bytes);
}

static int64_t available(void *state) {
  const tsr_device *cpu = cpu_of(state);
  return cpu->available(cpu->state);
}

static void begin_step(void *state, const tsr_graph *graph, const tsr_step_context *step) {
  const tsr_device *cpu = cpu_of(state);
  cpu->begin_step(cpu->state, graph, step);
}

static void run(void *state, const tsr_launch *launch) {
  const tsr_observed_device *d = state;
  d->observe(d->context, launch);
  d->cpu->run(d->cpu->state, launch);
}

static void copy(void *state, const tsr_device_copy *copies, int count) {
  const tsr_device *cpu = cpu_of(state);
  cpu->copy(cpu->state, copies, count);
}

static void loop(void *state, tsr_pool_job *job, void *context, int jobs) {
  const tsr_device *cpu = cpu_of(state);
  cpu->loop(cpu->state, job, context, jobs);
}

static void wait(void *state) {
  const tsr_device *cpu = cpu_of(state);
  cpu->wait(cpu->state);
}

bool tsr_observed_device_open(
    tsr_arena *arena, const tsr_cpu_context *cpu, tsr_task_observer *observe, void *context,
    tsr_observed_device **ret_device, tsr_diags *diags) {
  tsr_observed_device *d = tsr_arena_alloc(arena, sizeof *d);
  *d = (tsr_observed_device){.observe = observe, .context = context};
  if (!tsr_cpu_device_open(arena, cpu, &d->cpu, diags)) return false;
  d->device = (tsr_device){
      .name = d->cpu->name,
      .arch = d->cpu->arch,
      .text = d->cpu->text,
      .threads = d->cpu->threads,
      .counts_f16_losses = d->cpu->counts_f16_losses,
      .state = d};
  d->device.allocate = allocate;
  d->device.release = release;
  d->device.available = available;
  d->device.begin_step = begin_step;
  d->device.run = run;
  d->device.copy = copy;
  d->device.loop = loop;
  d->device.wait = wait;
  *ret_device = d;
  return true;
}

void tsr_observed_device_close(tsr_observed_device *device) {
  if (device) tsr_cpu_device_close(device->cpu);
}
