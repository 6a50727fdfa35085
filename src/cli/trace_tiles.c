// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_tiles.h"
#include "comm/algorithm.h"
#include "comm/engine_local.h"
#include "comm/task_collective.h"
#include "device/cuda/task_launches.h"

/* ---- what connects ranks. One process has them all here; between processes messages and NCCL's
 * kernels are added, whose geometry is the library's ---- */

static const tsr_step_list *steps_of(const trace_tiles *of, const tsr_collective *c) {
  tsr_collective_request request = {.collective = c};
  request.layout = tsr_layout_alone(of->arena, c->members);
  return tsr_algorithm_in_process(of->arena, &request);
}

/* As the executor runs it: the algorithm's steps on the device, or a loop of the threads. */
static void add_collective(
    const trace_tiles *of, const tsr_program *p, const tsr_task *t, tsr_task_tiles *ret) {
  tsr_collective c = tsr_collective_of(p, t);
  if (of->cuda && c.members > TSR_DEVICE_MEMBERS_MAX) {
    ret->note = "more ranks than one process takes: NCCL's kernels";
    return;
  }
  const tsr_step_list *steps = steps_of(of, &c);
  const tsr_tensor *x = &t->inputs[0], *y = &t->outputs[0];
  bool in_place = x->segment == y->segment && x->offset == y->offset;
  if (!of->cuda) {
    *ret = (tsr_task_tiles){.on_cpu = true, .ranges = of->cpu->threads, .rounds = 1};
    ret->items = tsr_in_process_items(steps);
    return;
  }
  float **in = tsr_arena_array(of->arena, float *, 2 * c.members), **out = in + c.members;
  for (int m = 0; m < c.members; m++) {
    in[m] = tsr_cuda_address(2 * m);
    out[m] = tsr_cuda_address(2 * m + !in_place);
  }
  c.in = in;
  c.out = out;
  tsr_device device = tsr_cuda_recording_device(&ret->launches);
  tsr_in_process_run(&device, steps, &c);
}

/* A message between two stages of the process is a copy, which the receive begins. */
static void add_receive(const trace_tiles *of, tsr_task_tiles *ret) {
  tsr_device device = tsr_cuda_recording_device(&ret->launches);
  if (of->cuda) device.copy(device.state, &(tsr_device_copy){0}, 1);
  else ret->note = "a copy by one thread";
}

static bool add_communication(
    const trace_tiles *of, const tsr_program *p, const tsr_task *t, tsr_task_tiles *ret) {
  if (t->op == TSR_OP_WAIT) ret->note = "launches nothing: it waits";
  else if (t->op == TSR_OP_SEND) ret->note = "launches nothing: the receive copies";
  else if (t->op == TSR_OP_RECEIVE) add_receive(of, ret);
  else if (tsr_op_is_collective(t->op)) add_collective(of, p, t, ret);
  else return false;
  return true;
}

/* ---- tasks ---- */

static void partition_on_cpu(
    const trace_tiles *of, const tsr_program *program, const tsr_task *t, tsr_task_tiles *ret) {
  int ranks = of->ranks / (int)tsr_task_ranks_apart(program, t);
  tsr_cpu_partition p = tsr_cpu_partition_of(t, ranks, of->cpu->threads);
  ret->on_cpu = true;
  ret->items = p.items;
  ret->ranges = p.ranges;
  ret->rounds = p.rounds;
  if (p.strips)
    ret->tile =
        tsr_arena_printf(of->arena, "%d×%d×%d", TSR_GEMM_ROWS, TSR_GEMM_COLUMNS, TSR_GEMM_DEPTH);
}

static void find(void *context, const tsr_program *p, const tsr_task *t, tsr_task_tiles *ret) {
  const trace_tiles *of = context;
  *ret = (tsr_task_tiles){.launches = {.arena = of->arena}};
  if (!tsr_task_runs_on(p, t, of->coord)) {
    ret->note = "another rank owns its result";
    return;
  }
  if (add_communication(of, p, t, ret)) return;
  if (of->cuda && !t->on_host) tsr_cuda_task_launches(p, t, of->coord, 0, of->fast, &ret->launches);
  else partition_on_cpu(of, p, t, ret);
}

tsr_tile_source trace_tiles_of(app *a, const setup *s, int64_t rank, trace_tiles *ret) {
  const tsr_config *config = s->config;
  *ret = (trace_tiles){.arena = a->arena, .cpu = &s->compute.cpu};
  ret->cuda = s->compute.cuda || config->device.kind == TSR_DEVICE_CUDA;
  ret->fast = config->numerics.policy == TSR_NUMERICS_FAST;
  ret->ranks = s->parallel->ranks / s->parallel->size[TSR_PP];
  for (int axis = 0; axis < TSR_AXES && rank < s->parallel->ranks; axis++)
    ret->coord[axis] = tsr_parallel_coord(s->parallel, (int)rank, axis);
  return (tsr_tile_source){
      .find = find,
      .context = ret,
      .device = ret->cuda ? "a CUDA device, of one process with all ranks" : "the CPU",
      .on_cpu = !ret->cuda};
}
