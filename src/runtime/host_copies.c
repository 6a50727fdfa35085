// SPDX-License-Identifier: Apache-2.0
/* What the host does in a step with tensors of a device that has memory of its own: it runs tasks
 * that the device has no kernel for, and moves messages that no communicator of devices moves. Both
 * have copies in memory of the host, which is allocated before the first step. */
#include "runtime/executable_internal.h"
#include <assert.h>

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static void begin_copies(tsr_executable *b, int count) {
  const tsr_device *d = b->process->device;
  if (count) d->copy(d->state, b->copies, count);
}

static void wait_for_device(const tsr_executable *b) {
  const tsr_device *d = b->process->device;
  d->wait(d->state);
}

bool tsr_executable_messages_by_host(const tsr_executable *b) {
  return !tsr_executable_is_alone(b) && !tsr_device_is_host(b->process->device) &&
         !tsr_executable_rank_map(b)->communicators;
}

/* ---- tasks (schedule/host_tasks.h) ---- */

static char *host_address(const tsr_executable *b, int rank, int64_t offset) {
  return b->process->host_work[rank] + offset;
}

/* An operand of all ranks that run the task. */
static void
copy_operand(tsr_executable *b, const tsr_launch *l, const tsr_host_copy *copy, bool to_host) {
  for (int i = 0; i < l->ranks_count; i++) {
    tsr_task_call call = l->call;
    call.rank = &l->memory[l->ranks[i]];
    char *device = tsr_operand_address(&call, &copy->tensor);
    char *host = host_address(b, l->ranks[i], copy->offset);
    b->copies[i] = (tsr_device_copy){
        .to = to_host ? host : device, .from = to_host ? device : host, .bytes = copy->bytes};
  }
  begin_copies(b, l->ranks_count);
}

void tsr_executable_run_on_host(tsr_executable *b, const tsr_launch *launch) {
  const tsr_host_task *h = launch->call.task->host;
  const tsr_device *host = b->process->host;
  tsr_launch on_host = *launch;
  on_host.call.task = &h->task;
  on_host.memory = b->on_host;
  for (int i = 0; i < h->copies_count; i++)
    if (h->copies[i].in) copy_operand(b, launch, &h->copies[i], true);
  wait_for_device(b); /* also for the copies back of the task before, whose bytes are these */
  host->run(host->state, &on_host);
  for (int i = 0; i < h->copies_count; i++)
    if (h->copies[i].out) copy_operand(b, launch, &h->copies[i], false);
}

/* ---- collectives with members in other processes ---- */

/* A member's two buffers; of a collective in place one. */
typedef struct {
  char *in, *out; /* on the device */
  int64_t in_bytes, out_bytes, out_offset;
} member_buffers;

static member_buffers buffers_of(const tsr_executable *b, const tsr_task_at *at, int rank) {
  const tsr_program *p = tsr_executable_program(b, rank);
  int in = at->task->inputs[0].value, out = at->task->outputs[0].value;
  member_buffers m = {
      .in = tsr_executable_address(b, in, rank, at->at.microbatch),
      .out = tsr_executable_address(b, out, rank, at->at.microbatch),
      .in_bytes = tsr_tensor_bytes(&p->tensors[in]),
      .out_bytes = tsr_tensor_bytes(&p->tensors[out])};
  if (m.in != m.out) m.out_offset = aligned(m.in_bytes);
  return m;
}

static int member_of(const tsr_task_at *at, int first, int m) {
  return tsr_parallel_member(at->executable->process->options.parallel, first, at->task->axis, m);
}

void tsr_collective_to_host(const tsr_task_at *at, const tsr_collective *c, int first) {
  tsr_executable *b = at->executable;
  for (int m = 0; m < c->members; m++) {
    int rank = member_of(at, first, m);
    if (!tsr_executable_is_here(b, rank)) continue;
    member_buffers of = buffers_of(b, at, rank);
    char *in = host_address(b, rank, 0), *out = host_address(b, rank, of.out_offset);
    b->copies[0] = (tsr_device_copy){.to = in, .from = of.in, .bytes = of.in_bytes};
    begin_copies(b, 1);
    b->copies[0] = (tsr_device_copy){.to = out, .from = of.out, .bytes = of.out_bytes};
    begin_copies(b, of.out_offset || of.out_bytes > of.in_bytes);
    b->process->in[m] = (float *)(void *)in;
    b->process->out[m] = (float *)(void *)out;
  }
  wait_for_device(b);
}

void tsr_collective_from_host(const tsr_task_at *at, int first) {
  tsr_executable *b = at->executable;
  for (int m = 0; m < b->process->options.parallel->size[at->task->axis]; m++) {
    int rank = member_of(at, first, m);
    if (!tsr_executable_is_here(b, rank)) continue;
    member_buffers of = buffers_of(b, at, rank);
    b->copies[0] = (tsr_device_copy){
        .to = of.out, .from = host_address(b, rank, of.out_offset), .bytes = of.out_bytes};
    begin_copies(b, 1);
  }
}

/* ---- what they need ---- */

static int64_t collective_bytes(const tsr_executable *b, const tsr_program *p, int rank) {
  int64_t most = 0;
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task_at at = {.executable = (tsr_executable *)b, .program = p, .task = &p->tasks[i]};
    if (!tsr_op_is_collective(at.task->op)) continue;
    member_buffers of = buffers_of(b, &at, rank);
    int64_t bytes = of.out_offset + aligned(of.out_bytes);
    if (bytes < of.in_bytes) bytes = of.in_bytes;
    if (bytes > most) most = bytes;
  }
  return most;
}

int64_t tsr_executable_host_bytes(const tsr_executable *b, int rank) {
  const tsr_program *p = tsr_executable_program(b, rank);
  int64_t messages = tsr_executable_messages_by_host(b) ? collective_bytes(b, p, rank) : 0;
  return messages > p->host_bytes ? messages : p->host_bytes;
}
