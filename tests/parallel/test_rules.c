// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/bench.h"

/* A row of the table: a configuration, a descriptor's dims, and words of what must be said of it.
 */
typedef struct {
  const char *yaml;
  int devices[5];
  const char *said;
} rule_case;

static const char count_text[] = "error: The number of parallelization axes must be equal to the "
                                 "number of mesh shape dimensions";

static const rule_case cases[] = {
    /* axes and shapes that fit */
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [4, 8]") TRAINING("batch_size: 4"),
     {4, 8},
     NULL},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [4, 8]") TRAINING("batch_size: 4"),
     {1, 32},
     NULL},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [4, 8]") TRAINING("batch_size: 4"),
     {32},
     NULL},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [8, 4]") TRAINING("batch_size: 8"),
     {32, 1},
     NULL},
    {DEVICE("enable_tp: true, mesh_shape: [1, 32]"), {1, 32}, NULL},
    {DEVICE("enable_ddp: true, mesh_shape: [32, 1]") TRAINING("batch_size: 32"), {1, 32}, NULL},
    {DEVICE("mesh_shape: [1, 1]"), {1}, NULL},
    {DEVICE("enable_tp: true, mesh_shape: [1, 1]"), {1, 1}, NULL},
    {"device_config: {}\n", {1}, NULL},
    /* the number of axes */
    {DEVICE("enable_ddp: true, mesh_shape: [4, 8]"), {4, 8}, count_text},
    {DEVICE("enable_ddp: true, mesh_shape: [4, 8]"),
     {4, 8},
     "enabled: ddp (1); mesh_shape [4, 8] has 2 dimensions"},
    {DEVICE("mesh_shape: [2, 2]"), {2, 2}, "enabled: none (0)"},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [8]"), {8}, count_text},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [2, 2, 2]"),
     {8},
     "enabled: ddp, tp (2)"},
    /* the descriptor */
    {DEVICE("enable_tp: true, mesh_shape: [1, 32]"),
     {4, 8},
     "mesh_shape [1, 32] (32 devices) is not the descriptor's mesh [4, 8] (32 devices)|"
     "the shape that fits: [4, 8]"},
    {DEVICE("enable_ddp: true, mesh_shape: [32, 1]") TRAINING("batch_size: 32"),
     {4, 8},
     "mesh_shape [32, 1]|[4, 8]"},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [8, 4]") TRAINING("batch_size: 8"),
     {4, 8},
     "mesh_shape [8, 4]|the shape that fits: [4, 8]"},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [2, 4]"),
     {4, 8},
     "[2, 4] (8 devices)|device_ids"},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [2, 4]"),
     {1, 32},
     "mesh_shape [2, 4] needs 8 devices, but the descriptor's mesh [1, 32] has 32|"
     "shapes that fit: [1, 32], [2, 16], [4, 8], [8, 4], [16, 2], [32, 1]; or name"},
    {DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [4, 8]") TRAINING("batch_size: 4"),
     {1, 8},
     "needs 32 devices, but|[1, 8] has 8|shapes that fit: [1, 8], [2, 4], [4, 2], [8, 1]"},
    {DEVICE("enable_tp: true, mesh_shape: [4]"), {8}, "shapes that fit: [8]"},
    /* device ids */
    {DEVICE("enable_tp: true, mesh_shape: [4], device_ids: [4, 5, 6, 7]"),
     {4, 8},
     "warning: the mesh uses 4 of the descriptor's 32 devices"},
    {DEVICE("enable_tp: true, mesh_shape: [4], device_ids: [3, 1, 2, 0]"), {4}, NULL},
    {DEVICE("enable_tp: true, mesh_shape: [2], device_ids: [1, 1]"),
     {4},
     "'device_ids' names device 1 twice"},
    {DEVICE("enable_tp: true, mesh_shape: [2], device_ids: [0, 16]"),
     {4},
     "run.yaml:1:67: error: Physical chip id 16 not found in control plane chip mapping.|devices 0 "
     "to 3"},
    {DEVICE("enable_tp: true, mesh_shape: [2], device_ids: [0, 1, 2]"),
     {4},
     "device_ids names 3 devices, but mesh_shape [2] needs 2"},
    {"device_config: {}\n", {8}, "warning: the mesh uses 1 of the descriptor's 8 devices"},
    /* the batch */
    {DEVICE("enable_ddp: true, mesh_shape: [4]") TRAINING("batch_size: 6"),
     {4},
     "error: batch_size 6 does not divide over dp = 4|4 or 8 would"},
    {DEVICE("enable_ddp: true, mesh_shape: [4]") TRAINING("batch_size: 3"), {4}, "= 4 would"},
    {DEVICE("enable_ddp: true, mesh_shape: [4]") TRAINING("batch_size: 8, batch_size_per_rank: 4"),
     {4},
     "batch_size_per_rank 4 over dp = 4 makes 16, but batch_size is 8"},
    {DEVICE("enable_ep: true, mesh_shape: [4]") TRAINING("batch_size: 6"),
     {4},
     "error: batch_size 6 does not divide over ep = 4|4 or 8 would"},
    {DEVICE("enable_ddp: true, enable_ep: true, mesh_shape: [2, 2]") TRAINING("batch_size: 6"),
     {4},
     "error: batch_size 6 does not divide over dp × ep = 4|4 or 8 would"},
    {DEVICE("enable_ddp: true, enable_ep: true, mesh_shape: [2, 2]")
         TRAINING("batch_size: 8, batch_size_per_rank: 4"),
     {4},
     "batch_size_per_rank 4 over dp × ep = 4 makes 16, but batch_size is 8"},
    {DEVICE("enable_ddp: true, mesh_shape: [4]") TRAINING("batch_size: 16, batch_size_per_rank: 4"),
     {4},
     NULL},
    /* several mistakes at once */
    {DEVICE("enable_ddp: true, mesh_shape: [4, 4], device_ids: [0, 99]"),
     {4, 8},
     "chip id 99|device_ids names 2|The number of parallelization axes"},
    /* axes named outright */
    {"mesh: {axes: [dp, pp, tp], shape: [2, 2, 2]}\n" TRAINING("batch_size: 2"), {8}, NULL},
    {"mesh: {axes: [tp, tp], shape: [2, 2]}\n", {4}, "axis 'tp' is named twice"},
    {"mesh: {axes: [dp], shape: [2]}\n" DEVICE("enable_tp: true"),
     {2},
     "'enable_tp' is on, but 'mesh.axes' does not name 'tp'"},
};

static void table_test(void) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bench b = bench_make(cases[i].yaml, cases[i].devices);
    bench_expect(&b, cases[i].yaml, cases[i].said);
    bench_free(&b);
  }
}

/* What an axis error looks like in full. */
static void text_test(void) {
  bench b = bench_make("device_config:\n  enable_ddp: true\n  mesh_shape: [4, 8]\n", MESH(4, 8));
  char *said = bench_said(&b);
  CHECK_STR(
      said, "run.yaml:3:15: error: The number of parallelization axes must be equal to the number "
            "of mesh "
            "shape dimensions\n"
            "    3 |   mesh_shape: [4, 8]\n"
            "      |               ^\n"
            "      = enabled: ddp (1); mesh_shape [4, 8] has 2 dimensions\n");
  free(said);
  bench_free(&b);
}

static void warned_expect(const char *yaml, const int *devices, const char *words) {
  bench b = bench_make(yaml, devices);
  CHECK_AT(b.good, "%s", yaml);
  if (b.good) tsr_parallel_warn(b.parallel, b.config, b.diags);
  bench_expect(&b, yaml, words);
  bench_free(&b);
}

static void warned_test(void) {
  warned_expect(
      DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [2, 2]") TRAINING("batch_size: 4"),
      MESH(4), NULL);
  warned_expect(DEVICE("enable_pp: true, mesh_shape: [4]"), MESH(4), NULL);
  warned_expect(DEVICE("enable_pp: true, mesh_shape: [1]"), MESH(1), NULL);
  warned_expect(DEVICE("enable_cp: true, mesh_shape: [4]"), MESH(4), NULL);
  warned_expect(
      DEVICE("enable_ep: true, mesh_shape: [4]") TRAINING("batch_size: 4"), MESH(4), NULL);
  warned_expect(DEVICE("enable_ep: true, mesh_shape: [1]"), MESH(1), NULL);
  warned_expect(
      DEVICE("enable_fsdp: true, mesh_shape: [2]") TRAINING("batch_size: 4"), MESH(2), NULL);
  warned_expect(DEVICE("enable_tp: true, enable_sp: true, mesh_shape: [2]"), MESH(2), NULL);
  warned_expect(
      DEVICE("enable_ddp: true, enable_sp: true, mesh_shape: [2]") TRAINING("batch_size: 4"),
      MESH(2), "warning|'enable_sp' has no effect");
}

int main(void) {
  table_test();
  text_test();
  warned_test();
  return check_done("parallel.rules");
}
