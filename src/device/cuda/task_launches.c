// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/task_launches.h"
#include "device/cuda/launch_recorder.h"
#include "device/cuda/ops.h"
#include "device/cuda/wgmma.h"
#include <string.h>

/* Far from each other, so that no two buffers touch. */
void *tsr_cuda_address(int number) { return (void *)((uintptr_t)(number + 1) << 40); }

void tsr_cuda_task_launches(
    const tsr_program *p, const tsr_task *t, const int coord[TSR_AXES], int64_t microbatch,
    bool fast, tsr_kernel_launches *launches) {
  tsr_rank_memory rank = {.rank = 0};
  memcpy(rank.coord, coord, sizeof rank.coord);
  for (int s = 0; s < TSR_SEGMENTS; s++) rank.base[s] = tsr_cuda_address(s);
  cuda_state state = {
      .stream = (tsr_cuda_stream)(void *)launches, .fast = fast, .wgmma = cuda_wgmma_is_wanted()};
  cuda_call c = {.state = &state, .key = (uint64_t *)tsr_cuda_address(TSR_SEGMENTS) + t->node};
  c.call = (tsr_task_call){.program = p, .task = t, .rank = &rank};
  c.call.at.microbatch = microbatch;
  if (tsr_op_copies_to_or_from_host(t->op)) record_library(state.stream, "cudaMemcpy", "");
  else cuda_run_task(&c);
}

/* ---- what collectives are made of ---- */

static void copy(void *state, const tsr_device_copy *copies, int count) {
  (void)copies;
  for (int i = 0; i < count; i++) record_library(state, "cudaMemcpy", "");
}

static void sum_members(void *state, const tsr_members_sum *sum) {
  tsr_cuda_sum_members(state, sum);
}

static void move(
    void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  tsr_cuda_move(state, out, out_step, x, x_step, bytes, ndim, shape);
}

tsr_device tsr_cuda_recording_device(tsr_kernel_launches *launches) {
  tsr_device d = {.name = "cuda", .arch = "", .text = "", .threads = 1, .state = launches};
  d.copy = copy;
  d.sum_members = sum_members;
  d.move = move;
  return d;
}
