// SPDX-License-Identifier: Apache-2.0
/* How fast the GEMMs of experts are beside one GEMM of a dense layer:
 *   bench_experts [THREADS [ROUNDS [ROWS [TYPE]]]]
 * E experts have equally many rows (ROWS of each; without: 64, 128 and 512), in f32 and in bf16
 * (TYPE: one of them), H = 768 and F = 3072 features, up and down. Both sides run whole forward and
 * backward passes of a program, in turns; only the time of their GEMM tasks counts. The dense side
 * computes as many multiplications over the same K: for y and dx one matrix and E * rows rows; for
 * dw one matrix of E * F features and an expert's rows. Prints a line for each shape and task: the
 * rates in GFLOP/s by the medians of the rounds, and the median and the middle half of the rounds'
 * ratios. Above 1 the experts are faster. */
#include "harness.h"
#include "runtime/recorder.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { E = 8, WIDTH = 768, HIDDEN = 3072, WARM_UP = 2 };
enum { FORWARD, DX, DW, KINDS };
enum { EXPERTS, TALL, WIDE, SIDES }; /* WIDE: E * features of as few rows as an expert has */

static const char *const kind_names[KINDS] = {"y", "dx", "dw"};
static const tsr_op ops[2][KINDS] = {
    {TSR_OP_LINEAR, TSR_OP_LINEAR_DX, TSR_OP_LINEAR_DW},
    {TSR_OP_EXPERT_LINEAR, TSR_OP_EXPERT_LINEAR_DX, TSR_OP_EXPERT_LINEAR_DW}};

typedef struct {
  int64_t rows, K, N; /* of an expert; y (rows, N) = x (rows, K) w^T */
  tsr_dtype dtype;
  int threads, rounds;
} bench;

typedef struct {
  const bench *of;
  int kind;
  harness h;
  tsr_recorder *recorder;
} side;

/* ---- graphs ---- */

static tsr_graph *experts_graph(tsr_arena *arena, const bench *b) {
  tsr_graph *g = tsr_graph_new(arena, "experts", (tsr_units){.batch = 1, .tp = 1});
  int rows = (int)(E * b->rows), K = (int)b->K, N = (int)b->N;
  harness_inputs(
      g, tsr_arena_printf(
             arena, "in %d,%d; goal %d,%d; s %d,%d; v %d,1", rows, K, rows, N, rows, E, rows));
  harness_params(g, tsr_arena_printf(arena, "b %d; w %d,%d,%d experts", K, E, N, K));
  harness_calls(
      g, "x: add(in, b); c: choose_experts(s, k: 1); plan: expert_plan(c, w); a: "
         "permute_experts(x, plan)\n"
         "y: expert_linear(a, w, plan); f: combine_experts(y, v, plan); loss: mse(f, goal)");
  return g;
}

static tsr_graph *dense_graph(tsr_arena *arena, const bench *b, bool wide) {
  tsr_graph *g = tsr_graph_new(arena, "dense", (tsr_units){.batch = 1, .tp = 1});
  int rows = (int)(wide ? b->rows : E * b->rows), K = (int)b->K, N = (int)(wide ? E * b->N : b->N);
  harness_inputs(g, tsr_arena_printf(arena, "in %d,%d; goal %d,%d", rows, K, rows, N));
  harness_params(g, tsr_arena_printf(arena, "b %d; w %d,%d", K, N, K));
  harness_calls(g, "x: add(in, b); y: linear(x, w); loss: mse(y, goal)");
  return g;
}

static void fill(void *context, const char *input, int64_t sample, void *row) {
  const bench *b = context;
  int64_t count = !strcmp(input, "goal") ? b->N : b->K;
  float *x = row;
  if (!strcmp(input, "v")) x[0] = 1;
  else if (!strcmp(input, "s"))
    for (int e = 0; e < E; e++) x[e] = e == sample * 5 % E;
  else
    for (int64_t i = 0; i < count; i++) x[i] = (float)((sample * 7 + i * 13) % 31) * 0.0625f - 1;
}

static side side_open(tsr_arena *arena, const bench *b, int kind) {
  side s = {.of = b, .kind = kind};
  tsr_graph *g = kind == EXPERTS ? experts_graph(arena, b) : dense_graph(arena, b, kind == WIDE);
  g->loss = harness_find(g, "loss");
  harness_options o = {.dp = 1, .tp = 1, .threads = b->threads, .precision = b->dtype};
  o.microbatches = o.batch_units = o.tp_units = 1;
  s.h = harness_open(arena, g, &o);
  int64_t events = tsr_recorder_events_of_step(&s.h.programs, &s.h.parallel);
  s.recorder = tsr_executable_record(arena, s.h.executable, WARM_UP, b->rounds, events * b->rounds);
  return s;
}

static void side_step(side *s, int64_t step) {
  float step_scalars[TSR_SCALARS];
  harness_step_scalars(&s->h, step, step_scalars);
  tsr_executable_set_step_scalars(s->h.executable, step_scalars);
  tsr_executable_run(s->h.executable, step, fill, (void *)s->of);
}

/* The seconds of its tasks of a kind in every round. */
static double *side_seconds(tsr_arena *arena, const side *s, int kind) {
  double *seconds = tsr_arena_array(arena, double, s->of->rounds);
  tsr_record record = tsr_recorder_read(arena, s->recorder);
  for (int64_t i = 0; i < record.events_count; i++) {
    const tsr_event *e = &record.events[i];
    if (e->task < 0 ||
        s->h.programs.of_stage[0]->tasks[e->task].op != ops[s->kind == EXPERTS][kind])
      continue;
    seconds[e->step] += 1e-9 * (double)(e->end - e->begin);
  }
  return seconds;
}

/* ---- rounds ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(double *values, int count, double q) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[(int)(q * (count - 1) + 0.5)];
}

static void print_ratio(tsr_arena *arena, const side *sides, int kind, int dense) {
  const bench *b = sides->of;
  double *ours = side_seconds(arena, &sides[EXPERTS], kind),
         *theirs = side_seconds(arena, &sides[dense], kind),
         *ratios = tsr_arena_array(arena, double, b->rounds),
         work = 2e-9 * (double)(E * b->rows * b->K * b->N);
  for (int i = 0; i < b->rounds; i++) ratios[i] = theirs[i] / ours[i];
  printf(
      "%-5s %5" PRId64 " rows  %4" PRId64 " -> %4" PRId64
      "  %-2s  %7.1f  %7.1f   %.2f (%.2f to %.2f)\n",
      tsr_dtype_name(b->dtype), b->rows, b->K, b->N, kind_names[kind],
      work / quantile(ours, b->rounds, 0.5), work / quantile(theirs, b->rounds, 0.5),
      quantile(ratios, b->rounds, 0.5), quantile(ratios, b->rounds, 0.25),
      quantile(ratios, b->rounds, 0.75));
  fflush(stdout);
}

static void measure(const bench *b) {
  tsr_arena *arena = tsr_arena_new();
  side sides[SIDES];
  for (int i = 0; i < SIDES; i++) sides[i] = side_open(arena, b, i);
  for (int64_t step = 0; step < WARM_UP + b->rounds; step++)
    for (int i = 0; i < SIDES; i++) side_step(&sides[step % 2 ? SIDES - 1 - i : i], step);
  print_ratio(arena, sides, FORWARD, TALL);
  print_ratio(arena, sides, DX, TALL);
  print_ratio(arena, sides, DW, WIDE);
  for (int i = 0; i < SIDES; i++) harness_close(&sides[i].h);
  tsr_arena_free(arena);
}

static int usage(void) {
  fprintf(stderr, "usage: bench_experts [THREADS [ROUNDS [64|128|512 [f32|bf16]]]]\n");
  return 2;
}

int main(int argc, char **argv) {
  static const int64_t rows[] = {64, 128, 512};
  static const tsr_dtype types[] = {TSR_F32, TSR_BF16};
  const char *only_rows = argc > 3 ? argv[3] : NULL, *only_type = argc > 4 ? argv[4] : NULL;
  int threads = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 15;
  if (threads < 1 || rounds < 1 || argc > 5) return usage();
  if (only_rows && strcmp(only_rows, "64") && strcmp(only_rows, "128") && strcmp(only_rows, "512"))
    return usage();
  if (only_type && strcmp(only_type, "f32") && strcmp(only_type, "bf16")) return usage();
  printf(
      "%s, %d threads, %d experts\n                              experts    dense  ratio\n",
      tsr_kernels_get(NULL)->isa, threads, E);
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
      if (only_rows && atoi(only_rows) != rows[r]) continue;
      if (only_type && strcmp(only_type, tsr_dtype_name(types[t])) != 0) continue;
      measure(&(bench){rows[r], WIDTH, HIDDEN, types[t], threads, rounds});
      measure(&(bench){rows[r], HIDDEN, WIDTH, types[t], threads, rounds});
    }
  return 0;
}
