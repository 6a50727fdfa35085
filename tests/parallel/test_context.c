// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/bench.h"

static void axes_expect(
    const char *yaml, const int *devices, const char *topology, int dp, int tp, int pp, int ep,
    int cp) {
  bench b = bench_make(yaml, devices);
  CHECK_AT(b.good, "%s", yaml);
  if (b.good) {
    tsr_text text = {0};
    tsr_parallel_topology(b.parallel, &text);
    CHECK_STR(text.data, topology);
    tsr_text_free(&text);
    const int want[TSR_AXES] = {dp, pp, ep, cp, tp};
    for (int axis = 0; axis < TSR_AXES; axis++) CHECK_INT(b.parallel->size[axis], want[axis]);
  }
  bench_free(&b);
}

static void axes_test(void) {
  axes_expect(
      DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [4, 8]") TRAINING("batch_size: 4"),
      MESH(1, 32), "dp × tp mesh, 4 × 8", 4, 8, 1, 1, 1);
  axes_expect(
      DEVICE("enable_tp: true, mesh_shape: [1, 32]"), MESH(1, 32), "tp mesh, 32", 1, 32, 1, 1, 1);
  axes_expect(
      DEVICE("enable_ddp: true, mesh_shape: [32, 1]") TRAINING("batch_size: 32"), MESH(32),
      "dp mesh, 32", 32, 1, 1, 1, 1);
  axes_expect("device_config: {}\n", MESH(1), "single rank", 1, 1, 1, 1, 1);
  axes_expect(
      DEVICE("enable_ddp: true, enable_tp: true, enable_pp: true, mesh_shape: [2, 3, 4]")
          TRAINING("batch_size: 4"),
      MESH(24), "dp × tp × pp mesh, 2 × 3 × 4", 2, 3, 4, 1, 1);
  axes_expect(
      DEVICE("enable_ddp: true, enable_cp: true, enable_ep: true, mesh_shape: [2, 3, 4]")
          TRAINING("batch_size: 8"),
      MESH(24), "dp × cp × ep mesh, 2 × 3 × 4", 2, 1, 1, 4, 3);
  axes_expect(
      "mesh: {axes: [tp, dp], shape: [4, 4]}\n" TRAINING("batch_size: 4"), MESH(4, 4),
      "tp × dp mesh, 4 × 4", 4, 4, 1, 1, 1);
  /* a count of devices, or only the descriptor's */
  axes_expect(
      "mesh: {axes: [tp, pp, dp], devices: 72}\n" TRAINING("batch_size: 3"), MESH(72),
      "tp × pp × dp mesh, 6 × 4 × 3", 3, 6, 4, 1, 1);
  axes_expect(
      DEVICE("enable_ddp: true, enable_tp: true") TRAINING("batch_size: 4"), MESH(1, 8),
      "dp × tp mesh, 4 × 2", 4, 2, 1, 1, 1);
  axes_expect(
      DEVICE("enable_ddp: true, enable_tp: true") TRAINING("batch_size: 2"), MESH(2, 4),
      "dp × tp mesh, 2 × 4", 2, 4, 1, 1, 1);
}

/* tp outer, dp inner: the groups of 2 × 4. */
static void groups_test(void) {
  bench b =
      bench_make("mesh: {axes: [tp, dp], shape: [2, 4]}\n" TRAINING("batch_size: 8"), MESH(8));
  CHECK(b.good);
  if (b.good) {
    const tsr_parallel *p = b.parallel;
    CHECK_INT(tsr_parallel_coord(p, 6, TSR_TP), 1);
    CHECK_INT(tsr_parallel_coord(p, 6, TSR_DP), 2);
    CHECK_INT(tsr_parallel_coord(p, 6, TSR_PP), 0);
    CHECK_INT(tsr_parallel_member(p, 6, TSR_TP, 0), 2);
    CHECK_INT(tsr_parallel_member(p, 6, TSR_DP, 0), 4);
    CHECK_INT(tsr_parallel_member(p, 6, TSR_PP, 0), 6);
    CHECK_INT(p->batch_size_local, 2);
    tsr_text text = {0};
    tsr_parallel_print(p, &text);
    CHECK_STR(
        text.data,
        "tp × dp mesh, 2 × 4\nranks: 8\naxes:\n"
        "  tp: size 2, axis 0, 4 groups\n  dp: size 4, axis 1, 2 groups\ncoordinates:\n"
        "  rank 0: tp 0, dp 0\n  rank 1: tp 0, dp 1\n  rank 2: tp 0, dp 2\n  rank 3: tp 0, dp 3\n"
        "  rank 4: tp 1, dp 0\n  rank 5: tp 1, dp 1\n  rank 6: tp 1, dp 2\n  rank 7: tp 1, dp 3\n"
        "tp groups: 4 of 2\n  [0, 4]\n  [1, 5]\n  [2, 6]\n  [3, 7]\n"
        "dp groups: 2 of 4\n  [0, 1, 2, 3]\n  [4, 5, 6, 7]\n");
    tsr_text_free(&text);
  }
  bench_free(&b);
}

/* Every rank is in exactly one group of every axis, and finds itself there. */
static void members_test(void) {
  bench b = bench_make(
      DEVICE("enable_ddp: true, enable_tp: true, enable_pp: true, mesh_shape: [3, 2, 4]")
          TRAINING("batch_size: 3"),
      MESH(24));
  CHECK(b.good);
  for (int rank = 0; b.good && rank < 24; rank++) {
    for (int axis = 0; axis < TSR_AXES; axis++) {
      for (int i = 0; i < b.parallel->size[axis]; i++) {
        int member = tsr_parallel_member(b.parallel, rank, axis, i);
        CHECK_INT(tsr_parallel_coord(b.parallel, member, axis), i);
        CHECK_INT(
            tsr_parallel_member(
                b.parallel, member, axis, tsr_parallel_coord(b.parallel, rank, axis)),
            rank);
        for (int other = 0; other < TSR_AXES; other++) {
          if (other == axis) continue;
          CHECK_INT(
              tsr_parallel_coord(b.parallel, member, other),
              tsr_parallel_coord(b.parallel, rank, other));
        }
      }
    }
  }
  bench_free(&b);
}

/* Hybrid sharding: replicas of shard groups, both on dp. */
static void hybrid_test(void) {
  bench b = bench_make(
      DEVICE("enable_ddp: true, enable_fsdp: true, mesh_shape: [2, 4]") TRAINING("batch_size: 8"),
      MESH(2, 4));
  CHECK(b.good);
  if (b.good) {
    CHECK_INT(b.parallel->ndim, 1);
    CHECK_INT(b.parallel->size[TSR_DP], 8);
    CHECK_INT(b.parallel->fsdp_size, 4);
    CHECK_INT(b.parallel->stride[TSR_DP], 1);
    CHECK(b.parallel->fsdp);
  }
  bench_free(&b);
}

static void factorize_test(void) {
  static const struct {
    int devices, ndim, want[4];
  } rows[] = {{8, 2, {4, 2}},        {8, 3, {2, 2, 2}},     {16, 2, {4, 4}},
              {16, 3, {4, 2, 2}},    {48, 2, {8, 6}},       {48, 3, {4, 4, 3}},
              {72, 2, {9, 8}},       {72, 3, {6, 4, 3}},    {1024, 2, {32, 32}},
              {1024, 3, {16, 8, 8}}, {7, 2, {7, 1}},        {1, 3, {1, 1, 1}},
              {64, 2, {8, 8}},       {100000, 1, {100000}}, {2147483647, 3, {2147483647, 1, 1}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int shape[TSR_AXES];
    tsr_parallel_factorize(rows[i].devices, rows[i].ndim, shape);
    for (int dim = 0; dim < rows[i].ndim; dim++) CHECK_INT(shape[dim], rows[i].want[dim]);
  }
}

static void process_wide_test(void) {
  bench b = bench_make(
      DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [2, 4]") TRAINING("batch_size: 2"),
      MESH(8));
  const tsr_parallel *got = NULL;
  int size = 0;
  CHECK(b.good);
  CHECK(!tsr_parallelism_context_open(b.parallel, b.diags));
  CHECK(tsr_parallelism_device_open(b.diags));
  CHECK(!tsr_parallelism_device_open(b.diags));
  CHECK(!tsr_parallelism_context_get(&got, b.diags));
  CHECK(!tsr_parallelism_context_size(TSR_TP, &size, b.diags));
  CHECK(tsr_parallelism_context_open(b.parallel, b.diags));
  CHECK(!tsr_parallelism_context_open(b.parallel, b.diags));
  CHECK(tsr_parallelism_context_get(&got, b.diags) && got == b.parallel);
  CHECK(tsr_parallelism_context_size(TSR_TP, &size, b.diags));
  CHECK_INT(size, 4);
  tsr_parallelism_context_close();
  CHECK(!tsr_parallelism_context_get(&got, b.diags));
  char *said = bench_said(&b);
  CHECK_STR(
      said, "error: The device is not initialized.\n"
            "error: The device is already initialized.\n"
            "error: ParallelismContext is not initialized.\n"
            "error: ParallelismContext is not initialized.\n"
            "error: ParallelismContext is already initialized.\n"
            "error: ParallelismContext is not initialized.\n");
  free(said);
  bench_free(&b);
}

static void startup_test(void) {
  bench b = bench_make(
      DEVICE("enable_ddp: true, enable_tp: true, mesh_shape: [4, 8]") TRAINING("batch_size: 8"),
      MESH(1, 32));
  tsr_text text = {0};
  CHECK(b.good);
  if (b.good)
    tsr_parallel_startup(b.parallel, b.config, b.mesh, "line.textproto, by --mesh", &text);
  CHECK_STR(
      text.data, "mesh_shape: [4, 8], 32 ranks\n"
                 "devices: 32 of 32\n"
                 "descriptor: mesh [1, 32] fits; line.textproto, by --mesh\n"
                 "ParallelismContext: DP axis 0 (size 4), TP axis 1 (size 8)\n"
                 "parameters: sharded over tp = 8, replicated over dp = 4\n"
                 "batches: 8 samples over dp = 4, 2 a rank\n");
  tsr_text_free(&text);
  bench_free(&b);
}

static void per_rank_batch_test(void) {
  bench b = bench_make(
      DEVICE("enable_ddp: true, mesh_shape: [4]") TRAINING("batch_size_per_rank: 3"), MESH(4));
  CHECK(b.good);
  if (b.good) CHECK_INT(b.parallel->batch_size, 12);
  bench_free(&b);
}

int main(void) {
  axes_test();
  groups_test();
  members_test();
  hybrid_test();
  factorize_test();
  process_wide_test();
  startup_test();
  per_rank_batch_test();
  return check_done("parallel.context");
}
