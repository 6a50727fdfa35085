// SPDX-License-Identifier: Apache-2.0
#include "train/calibrate.h"
#include "base/command_progress.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "plan/estimate.h"
#include "plan/machine_regression.h"
#include "runtime/recorder.h"
#include "train/compile.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double seconds_to_spend = 25;
enum { CASES_MAX = 64, WARM_UP = 2, STEPS_MIN = 5, STEPS_MAX = 200 };

typedef struct {
  tsr_arena *arena;
  const char *share;
  tsr_cpu_context device;
  tsr_diags *diags;
  double seconds; /* for one case */
  tsr_fit_sample *samples;
  int count, capacity;
} calibrator;

/* One model. */
typedef struct {
  tsr_arena *arena; /* for as long as it is measured */
  tsr_config *config;
  tsr_parallel *parallel;
  tsr_compiled compiled;
} calibration_case;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a case, compiled ---- */

static bool open_case(const calibrator *x, const char *file, calibration_case *c) {
  tsr_compile_options o = {0};
  if (!tsr_config_load(x->arena, file, NULL, 0, &c->config, x->diags)) return false;
  const tsr_config_device *d = &c->config->device;
  static const int one = 1;
  tsr_mesh *mesh = tsr_mesh_make_cpu(
      x->arena, d->mesh_ndim ? d->mesh_shape : &one, d->mesh_ndim ? d->mesh_ndim : 1);
  if (!tsr_parallel_make(x->arena, c->config, mesh, &c->parallel, x->diags) ||
      !tsr_parallel_units(c->parallel, c->config, &o.batch_units, &o.tp_units, x->diags))
    return false;
  o.config = c->config;
  o.parallel = c->parallel;
  o.graphs_folder = tsr_arena_printf(x->arena, "%s/configs/graphs", x->share);
  o.target = tsr_cpu_target(&x->device);
  return tsr_compile(x->arena, &o, TSR_COMPILE_TRAIN, &c->compiled, x->diags);
}

/* ---- its inputs ---- */

static uint32_t mixed(uint64_t key) {
  key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdu;
  return (uint32_t)(key >> 32);
}

/* Whole numbers below the vocabulary or the classes; others from -1 to 1. */
static void fill_row(void *context, const char *input, int64_t sample, void *row) {
  const calibration_case *c = context;
  const tsr_graph *g = c->compiled.graph;
  const tsr_model *m = c->compiled.model;
  int64_t below = m->vocab_size > 0 ? m->vocab_size : m->classes > 0 ? m->classes : 2;
  const tsr_value *v = NULL;
  for (int i = 0; i < g->values_count && !v; i++)
    if (g->values[i].kind == TSR_VALUE_INPUT && !strcmp(g->values[i].name, input))
      v = &g->values[i];
  int64_t count = v ? tsr_value_elements(v) / v->shape[0] : 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = mixed((uint64_t)(sample * count + i + 1));
    if (v->dtype == TSR_I32) ((int32_t *)row)[i] = (int32_t)(bits % (uint32_t)below);
    else ((float *)row)[i] = (float)bits / 2147483648.0f - 1;
  }
}

static void set_step_scalars(const calibration_case *c, tsr_executable *executable) {
  int64_t samples = c->compiled.batch * c->compiled.programs.pipeline->microbatches;
  int64_t each = c->compiled.model->sequence > 0 ? c->compiled.model->sequence : 1;
  float step_scalars[TSR_SCALARS] = {0};
  step_scalars[TSR_SCALAR_LR] = 1e-5f;
  step_scalars[TSR_SCALAR_CORRECTION1] = step_scalars[TSR_SCALAR_CORRECTION2] = 1;
  step_scalars[TSR_SCALAR_INV_COUNT] = (float)(1 / (double)(samples * each));
  tsr_executable_set_step_scalars(executable, step_scalars);
}

/* ---- from events to samples ---- */

/* The times that a task of a stage took: one for each step and microbatch. */
typedef struct {
  double *seconds;
  int count, capacity;
} task_times;

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median: on a machine that has other things to do, a step waits for them in several of its
 * tasks, other ones in each step, for ten times as long as such a task takes. */
static double typical(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare_doubles);
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static bool is_measured(const tsr_task *t) {
  bool waits_in = t->axis == TSR_PP && tsr_op_is_collective(t->op); /* waits for others */
  return !waits_in && t->op != TSR_OP_SEND && t->op != TSR_OP_WAIT;
}

static void add_time(task_times *t, double seconds) {
  assert(t->count < t->capacity);
  t->seconds[t->count++] = seconds;
}

/* Stages take turns on one thread, and the ranks of a stage end a task together: so what passes
 * from one task's end to the next one's is the next one's time. A rank that waited has an event for
 * that too, in front of its own. */
static void collect_times(const tsr_record *record, task_times **times) {
  int64_t before = 0;
  int step = -1;
  for (int64_t i = 0; i < record->events_count;) {
    const tsr_event *e = &record->events[i];
    if (e->step != step) {
      step = e->step;
      before = record->steps[step].begin;
    }
    int stage = tsr_parallel_coord(record->parallel, e->rank, TSR_PP);
    int64_t end = before;
    bool has_run = false;
    for (; i < record->events_count; i++) {
      const tsr_event *next = &record->events[i];
      bool same = next->step == e->step && next->task == e->task &&
                  next->microbatch == e->microbatch &&
                  tsr_parallel_coord(record->parallel, next->rank, TSR_PP) == stage;
      if (!same) break;
      if (next->kind == TSR_EVENT_WAIT) continue;
      has_run |= next->kind != TSR_EVENT_INPUT;
      if (next->end > end) end = next->end;
    }
    if (has_run) add_time(&times[stage][e->task], 1e-9 * (double)(end - before));
    before = end;
  }
}

static void add_sample(calibrator *x, const calibration_case *c, int stage, int task, double time) {
  const tsr_program *p = c->compiled.programs.of_stage[stage];
  const tsr_task *t = &p->tasks[task];
  if (!is_measured(t) || time <= 0) return;
  tsr_arena_grow(x->arena, (void **)&x->samples, sizeof *x->samples, x->count, &x->capacity);
  int64_t ranks = c->parallel->ranks / c->compiled.programs.pipeline->stages;
  x->samples[x->count++] = (tsr_fit_sample){
      t->op, tsr_task_dtype(t, false), tsr_host_work(p, t, ranks, x->device.threads), time};
}

/* `factor`: how long steps take that are not recorded, of those that are recorded. */
static void
add_samples(calibrator *x, const calibration_case *c, const tsr_record *record, double factor) {
  const tsr_programs *programs = &c->compiled.programs;
  int stages = programs->pipeline->stages,
      most = record->steps_count * programs->pipeline->microbatches;
  task_times **times = tsr_arena_array(c->arena, task_times *, stages);
  for (int s = 0; s < stages; s++) {
    int tasks = programs->of_stage[s]->tasks_count;
    times[s] = tsr_arena_array(c->arena, task_times, tasks);
    for (int t = 0; t < tasks; t++)
      times[s][t] =
          (task_times){.seconds = tsr_arena_array(c->arena, double, most), .capacity = most};
  }
  collect_times(record, times);
  for (int s = 0; s < stages; s++)
    for (int t = 0; t < programs->of_stage[s]->tasks_count; t++)
      if (times[s][t].count)
        add_sample(x, c, s, t, factor * typical(times[s][t].seconds, times[s][t].count));
}

/* ---- steps ---- */

static double run_steps(calibration_case *c, tsr_executable *executable, int64_t first, int steps) {
  double *seconds = tsr_arena_array(c->arena, double, steps);
  for (int i = 0; i < steps; i++) {
    double begin = now();
    tsr_executable_run(executable, first + i, fill_row, c);
    seconds[i] = now() - begin;
  }
  return typical(seconds, steps);
}

static bool measure_case(calibrator *x, calibration_case *c) {
  tsr_process_options o = {
      .parallel = c->parallel, .kernels = x->device.k, .threads = x->device.threads, .seed = 1};
  tsr_process *process = NULL;
  tsr_executable *executable = NULL;
  if (!tsr_process_open(c->arena, &o, &c->compiled.programs, 1, &process, &executable, x->diags))
    return false;
  set_step_scalars(c, executable);
  double step = run_steps(c, executable, 0, WARM_UP + 1);
  double wanted = x->seconds / 2 / step;
  int steps = (int)fmin(fmax(wanted, STEPS_MIN), STEPS_MAX);
  int64_t events = steps * tsr_recorder_events_of_step(&c->compiled.programs, c->parallel);
  int64_t first = WARM_UP + 1;
  tsr_recorder *recorder =
      tsr_executable_record(c->arena, executable, first + steps, steps, events);
  double plain = run_steps(c, executable, first, steps);
  double recorded = run_steps(c, executable, first + steps, steps);
  tsr_record record = tsr_recorder_read(c->arena, recorder);
  add_samples(x, c, &record, fmin(1, plain / recorded));
  tsr_process_close(process);
  return true;
}

/* ---- all cases ---- */

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_cases(tsr_arena *arena, const char *folder, const char *names[CASES_MAX]) {
  DIR *dir = tsr_disk_open_folder(folder);
  int count = 0;
  for (struct dirent *e; dir && count < CASES_MAX && (e = readdir(dir));) {
    size_t length = strlen(e->d_name);
    if (length > 5 && !strcmp(e->d_name + length - 5, ".yaml"))
      names[count++] = tsr_arena_printf(arena, "%s/%s", folder, e->d_name);
  }
  if (dir) closedir(dir);
  qsort(names, (size_t)count, sizeof *names, compare_names);
  return count;
}

static bool measure(calibrator *x) {
  const char *files[CASES_MAX];
  const char *folder = tsr_path_join(x->arena, x->share, "configs/calibration");
  int count = list_cases(x->arena, folder, files);
  if (!count)
    return tsr_diag_error(
        x->diags, TSR_NOWHERE, "'%s' has nothing to measure this machine with", folder);
  x->seconds = seconds_to_spend / count;
  bool ok = true;
  tsr_command_progress_begin("measuring", count, "models");
  for (int i = 0; ok && i < count; i++) {
    calibration_case c = {.arena = tsr_arena_new()};
    ok = open_case(x, files[i], &c) && measure_case(x, &c);
    tsr_arena_free(c.arena);
    tsr_command_progress_add(1);
  }
  tsr_command_progress_end();
  return ok;
}

/* ---- the machine ---- */

static int64_t memory_bytes(void) {
  int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), limit = 0;
  FILE *f = fopen("/sys/fs/cgroup/memory.max", "r");
  if (f && fscanf(f, "%ld", &limit) == 1 && limit > 0 && limit < bytes) bytes = limit;
  if (f) fclose(f);
  return bytes >> 20 << 20; /* whole MiB */
}

/* Ranks of one host copy through its memory. */
static void set_link(tsr_machine *m) {
  tsr_machine_link link = {.name = "shm", .bandwidth = m->memory_bandwidth, .efficiency = 1};
  link.latency = m->overhead;
  for (int i = 0; i < m->rates_count; i++)
    if (!strcmp(m->rates[i].op, tsr_op_name(TSR_OP_ALL_REDUCE)) && m->rates[i].bytes > 0)
      link.bandwidth = m->rates[i].bytes;
  m->links[m->links_count++] = link;
}

bool tsr_calibrate(
    tsr_arena *arena, const char *share_folder, tsr_cpu_context device, tsr_machine **ret_machine,
    tsr_diags *diags) {
  calibrator x = {.arena = arena, .share = share_folder, .device = device, .diags = diags};
  if (!measure(&x)) return false;
  tsr_machine *m = tsr_arena_alloc(arena, sizeof *m);
  m->name = "measured";
  m->doc = tsr_arena_printf(
      arena, "this host, %d thread%s, %s", device.threads, device.threads == 1 ? "" : "s",
      device.k->isa);
  m->memory = memory_bytes();
  m->threads = device.threads;
  tsr_machine_fit(arena, m, x.samples, x.count);
  set_link(m);
  *ret_machine = m;
  return true;
}

bool tsr_calibrate_to_file(
    tsr_arena *arena, const char *share_folder, tsr_cpu_context device, const char *file,
    tsr_diags *diags) {
  static const char first_line[] = "# Measured by tessera-train plan --calibrate\n";
  tsr_machine *m;
  tsr_text yaml = {0};
  tsr_new_file probe; /* measuring takes long */
  if (!tsr_file_check_replaced(
          file, first_line, "description of a machine that tessera-train has measured", diags) ||
      !tsr_new_file_open(file, &probe, diags))
    return false;
  tsr_new_file_drop(&probe);
  if (!tsr_calibrate(arena, share_folder, device, &m, diags)) return false;
  tsr_text_add(&yaml, "%s", first_line);
  tsr_machine_write(m, &yaml);
  bool ok = tsr_file_write(file, yaml.data, yaml.length, diags);
  tsr_text_free(&yaml);
  return ok;
}
