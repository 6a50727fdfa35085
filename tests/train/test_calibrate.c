// SPDX-License-Identifier: Apache-2.0
/* Measuring a machine: what comes out is a machine that plans can be made with, whatever the times
 * are; folders that cannot be measured with are refused by name. */
#include "train/calibrate.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* As small as can be, with tasks over two ranks. */
static const char small[] =
    "training_config: {batch_size: 8, optimizer: {type: SGD}}\n"
    "device_config: {enable_ddp: true, mesh_shape: [2]}\n"
    "inputs: {features: {shape: [batch, 8], dtype: f32}, values: {shape: [batch, 4], dtype: f32}}\n"
    "parameters: {weight: {shape: [4, 8], init: normal(0.1)}}\n"
    "graph:\n"
    "- y: tanh(linear(features, weight))\n"
    "- loss: mse(y, values)\n"
    "outputs: {loss: loss}\n";

/* Of two stages with two ranks each, the second of which waits for the first. */
static const char staged[] =
    "training_config: {batch_size: 8, optimizer: {type: SGD}}\n"
    "device_config: {enable_ddp: true, enable_pp: true, mesh_shape: [2, 2]}\n"
    "schedule: {pipeline_microbatches: 4}\n"
    "inputs: {features: {shape: [batch, 8], dtype: f32}, values: {shape: [batch, 4], dtype: f32}}\n"
    "parameters: {first: {shape: [8, 8], init: normal(0.1)}, second: {shape: [4, 8], init: "
    "normal(0.1)}}\n"
    "graph:\n"
    "- h: tanh(linear(features, first))\n"
    "- sent: send(h, axis=pp, to=1)\n"
    "- received: receive(sent, axis=pp, from=0)\n"
    "- y: linear(received, second)\n"
    "- loss: mse(y, values)\n"
    "outputs: {loss: loss}\n";

/* A folder of shipped files with this one case, or without any. */
static const char *make_share(tsr_arena *arena, const char *text, tsr_diags *diags) {
  char *share = tsr_arena_strdup(arena, "/tmp/tessera-calibrate-XXXXXX");
  CHECK(mkdtemp(share) != NULL);
  const char *configs = tsr_path_join(arena, share, "configs");
  const char *folder = tsr_path_join(arena, configs, "calibration");
  CHECK(!mkdir(configs, 0777) && !mkdir(folder, 0777));
  if (text)
    CHECK(tsr_file_write(tsr_path_join(arena, folder, "case.yaml"), text, strlen(text), diags));
  return share;
}

static void remove_share(tsr_arena *arena, const char *share) {
  static const char *const names[] = {
      "configs/calibration/case.yaml", "configs/calibration", "configs", "machine.yaml", ""};
  for (int i = 0; i < 5; i++) remove(tsr_path_join(arena, share, names[i]));
}

static const tsr_machine_rate *rate_of(const tsr_machine *m, const char *op) {
  for (int i = 0; i < m->rates_count; i++)
    if (!strcmp(m->rates[i].op, op)) return &m->rates[i];
  return NULL;
}

static void test_machine(tsr_arena *arena, tsr_diags *diags) {
  static const char *const ops[] = {"linear", "linear_dw",     "tanh",      "unary_dx",
                                    "sgd",    "squared_error", "all_reduce"};
  const char *share = make_share(arena, small, diags);
  const char *file = tsr_path_join(arena, share, "machine.yaml");
  tsr_cpu_context device = {tsr_kernels_get(NULL), 2};
  tsr_machine *m = NULL;
  bool ok = tsr_calibrate_to_file(arena, share, device, file, diags) &&
            tsr_machine_read(arena, file, TSR_NOWHERE, &m, diags);
  CHECK_AT(ok, "%s", printed_diags(arena, diags));
  if (!ok) return;
  CHECK_INT(m->threads, 2);
  CHECK_STR(m->name, "measured");
  CHECK(m->memory > 1 << 20 && m->links_count == 1 && m->overhead > 0 && m->overhead < 1);
  CHECK(m->flops[TSR_MACHINE_F32] > 1e3 && m->memory_bandwidth > 1e3);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    CHECK_AT(rate_of(m, ops[i]) != NULL, "'%s' was not measured", ops[i]);
    double seconds =
        tsr_machine_task_seconds(m, ops[i], TSR_MACHINE_F32, (tsr_machine_work){1e3, 1e3, 1});
    CHECK_AT(seconds > 0 && seconds < 10, "%s: %g s", ops[i], seconds);
  }
  CHECK(!rate_of(m, "gelu") && !rate_of(m, "send"));
  remove_share(arena, share);
}

/* Each rank's wait is an event of its own, which is no time of the task. */
static void test_stages(tsr_arena *arena, tsr_diags *diags) {
  const char *share = make_share(arena, staged, diags);
  tsr_cpu_context device = {tsr_kernels_get(NULL), 1};
  tsr_machine *m = NULL;
  bool ok = tsr_calibrate(arena, share, device, &m, diags);
  CHECK_AT(ok, "%s", printed_diags(arena, diags));
  remove_share(arena, share);
  if (!ok) return;
  CHECK(rate_of(m, "linear") && rate_of(m, "linear_dx") && rate_of(m, "receive"));
  CHECK(!rate_of(m, "send") && !rate_of(m, "wait"));
}

static void test_mistakes(tsr_arena *arena, tsr_diags *diags) {
  tsr_cpu_context device = {tsr_kernels_get(NULL), 1};
  tsr_machine *m = NULL;
  const char *share = make_share(arena, NULL, diags);
  CHECK(!tsr_calibrate(arena, share, device, &m, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      tsr_arena_printf(
          arena, "error: '%s/configs/calibration' has nothing to measure this machine with\n",
          share));
  remove_share(arena, share);
  share = make_share(arena, "training_config: {batch_sice: 8}\n", diags);
  CHECK(!tsr_calibrate(arena, share, device, &m, diags));
  CHECK(strstr(printed_diags(arena, diags), "/case.yaml:1:19: error: unknown key 'batch_sice'"));
  remove_share(arena, share);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_machine(arena, diags);
  test_stages(arena, diags);
  test_mistakes(arena, diags);
  tsr_arena_free(arena);
  return check_done("train.calibrate");
}
