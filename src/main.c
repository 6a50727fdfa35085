/* The way of the data, as straight-line calls: configuration, mesh, parallelism context, graph,
 * program, then a report or a run. Only this file prints diagnostics and decides the exit code. */
#include "base/file.h"
#include "base/tree.h"
#include "cli.h"
#include "config/manual.h"
#include "config/print.h"
#include "config/schema.h"
#include "mesh/choose.h"
#include "plan/report.h"
#include "report/lowering.h"
#include "train/calibrate.h"
#include "train/plan_command.h"
#include "train/profile.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_cli cli;
  const char *share; /* the folder that holds configs/ and mesh_descriptors/ */
  tsr_config *config;
  tsr_mesh *mesh;
  const char *mesh_why;
  tsr_parallel *parallel;
  const tsr_kernels *kernels;
  tsr_cpu_context device;
  int64_t batch_units, tp_units;
  tsr_source source;
  bool has_source, has_read_model;
  tsr_compiled training, evaluation, generation;
  tsr_machine *machine; /* that a plan is for */
  const char *machine_why;
} app;

static volatile sig_atomic_t stop;
static void on_signal(int number) { stop = number; }

/* ---- where the shipped files are: beside the build folder, or installed ---- */

static const char *find_share(tsr_arena *arena) {
  const char *named = getenv("TESSERA_SHARE");
  if (named) return named;
  char exe[4096];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n < 0) return ".";
  exe[n] = 0;
  const char *folder = tsr_path_folder(arena, exe);
  for (int i = 0; i < 2; i++) {
    char path[4200];
    snprintf(path, sizeof path, i ? "%s/../share/tessera-train" : "%s/..", folder);
    const char *probe = tsr_arena_printf(arena, "%s/configs/graphs", path);
    if (tsr_file_exists(probe)) return tsr_arena_strdup(arena, path);
  }
  return ".";
}

static void print_text(tsr_text *text) {
  if (text->data) fputs(text->data, stdout);
  tsr_text_free(text);
}

/* ---- stages ---- */

static bool load_config(app *a) {
  return tsr_config_load(
      a->arena, a->cli.config, a->cli.sets, a->cli.sets_count, &a->config, a->diags);
}

static bool open_mesh(app *a) {
  const tsr_config_device *d = &a->config->device;
  tsr_mesh_wish wish = {.option = a->cli.mesh, .config_value = d->mesh_graph_descriptor};
  wish.config_file = a->config->file;
  wish.config_place = tsr_config_place(a->config, "device_config.mesh_graph_descriptor");
  wish.environment = getenv("TT_MESH_GRAPH_DESC_PATH");
  wish.tt_metal_home = getenv("TT_METAL_HOME");
  wish.shipped_folder = tsr_arena_printf(a->arena, "%s/mesh_descriptors", a->share);
  wish.ndim = d->mesh_ndim;
  wish.devices = d->mesh_ndim || d->devices < 1 ? 1 : d->devices;
  for (int i = 0; i < d->mesh_ndim; i++) {
    wish.dims[i] = d->mesh_shape[i];
    wish.devices *= d->mesh_shape[i];
  }
  wish.arch = TSR_ARCH_CPU;
  return tsr_mesh_choose(a->arena, &wish, &a->mesh, &a->mesh_why, a->diags);
}

static bool build_context(app *a) {
  return tsr_parallel_make(a->arena, a->config, a->mesh, &a->parallel, a->diags) &&
         tsr_parallelism_context_open(a->parallel, a->diags);
}

static bool fix_recipe(app *a) {
  return tsr_parallel_trainable(a->parallel, a->config, a->diags) &&
         tsr_parallel_units(a->parallel, a->config, &a->batch_units, &a->tp_units, a->diags);
}

static bool choose_device(app *a) {
  const char *isa = a->config && a->config->numerics.isa[0] ? a->config->numerics.isa : NULL;
  a->kernels = tsr_kernels_get(isa);
  if (!a->kernels) {
    int count = 0;
    const char *const *levels = tsr_kernels_levels();
    while (levels[count]) count++;
    tsr_diag_error(
        a->diags, tsr_config_place(a->config, "numerics.isa"),
        "this machine does not run the level '%s'", isa);
    tsr_diag_nearest(a->diags, isa, levels, count);
    return false;
  }
  tsr_gemm_select(a->kernels);
  int64_t threads = a->config ? a->config->numerics.threads : 0;
  a->device = (tsr_cpu_context){a->kernels, threads > 0 ? (int)threads : tsr_pool_cores()};
  return true;
}

/* tt-train's vocabulary when a plan must do without the text that characters are counted in. */
enum { CHARACTERS_UNSEEN = 96 };

/* Checks and traces make do without data. */
static bool open_data(app *a, const tsr_source_needs *needs) {
  const tsr_config *c = a->config;
  bool trains = a->cli.command == TSR_COMMAND_TRAIN || a->cli.command == TSR_COMMAND_PROFILE;
  if (!trains && !tsr_source_exists(a->arena, c)) {
    if (c->training.data_path[0])
      tsr_diag_warning(
          a->diags, tsr_config_place(c, "training_config.data_path"),
          "'%s' is not there: planned without it", c->training.data_path);
    return true;
  }
  a->has_source = tsr_source_open(a->arena, c, needs, &a->source, a->diags);
  return a->has_source;
}

/* A text is read before the model, whose vocabulary may come from it. */
static bool open_text(app *a) {
  tsr_source_needs text = {.text = true};
  return strcmp(a->config->model.kind, "transformer") || open_data(a, &text);
}

static const char *graphs_folder(const app *a) {
  return tsr_arena_printf(a->arena, "%s/configs/graphs", a->share);
}

/* The same model for another purpose; what was said of it is not said again. */
static bool compile_other(
    app *a, const tsr_compile_options *o, tsr_compile_purpose purpose, tsr_compiled *ret) {
  return tsr_compile(a->arena, o, purpose, ret, tsr_diags_new(a->arena)) ||
         tsr_compile(a->arena, o, purpose, ret, a->diags);
}

static bool compile(app *a) {
  tsr_compile_options o = {.config = a->config, .parallel = a->parallel};
  o.batch_units = a->batch_units;
  o.tp_units = a->tp_units;
  o.vocab_detected = a->has_source ? a->source.dataset.tokenizer.vocab_size : 0;
  o.vocab_assumed = a->config->training.tokenizer_type == TSR_TOKENS_CHAR ? CHARACTERS_UNSEEN : 0;
  o.graphs_folder = graphs_folder(a);
  a->has_read_model = true;
  o.scratch = tsr_cpu_scratch;
  o.scratch_context = &a->device;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_TRAIN, &a->training, a->diags)) return false;
  if (a->training.graph->loss < 0) return true;
  o.cut = &a->training.cut;
  o.order_of_training = a->training.programs.order;
  const tsr_config_training *t = &a->config->training;
  bool evaluates = t->eval_every && t->validation_fraction > 0;
  bool trains = a->cli.command == TSR_COMMAND_TRAIN || a->cli.command == TSR_COMMAND_PROFILE;
  bool samples = (a->has_source || !trains) && t->sample_tokens && a->training.has_logits;
  return (!evaluates || compile_other(a, &o, TSR_COMPILE_EVALUATE, &a->evaluation)) &&
         (!samples || compile_other(a, &o, TSR_COMPILE_GENERATE, &a->generation));
}

/* Other data are read when the graph says what it takes. */
static bool check_source(app *a) {
  tsr_source_needs needs;
  if (a->training.graph->loss < 0) return true;
  if (!tsr_source_needs_of(a->training.graph, &needs, a->diags)) return false;
  bool is_read = !strcmp(a->config->model.kind, "transformer");
  if (!is_read && !open_data(a, &needs)) return false;
  if (!a->has_source) return true;
  a->source.sequence = needs.sequence;
  return tsr_source_check(&a->source, &needs, a->diags) &&
         tsr_source_check_prompt(a->arena, &a->source, a->diags);
}

/* ---- what is printed ---- */

static void print_dumps(const app *a) {
  tsr_text text = {0};
  if (tsr_cli_dumps(&a->cli, "mesh")) tsr_mesh_print(a->mesh, &text);
  if (tsr_cli_dumps(&a->cli, "groups")) tsr_parallel_print(a->parallel, &text);
  if (tsr_cli_dumps(&a->cli, "graph")) tsr_graph_print(a->training.graph, false, &text);
  if (tsr_cli_dumps(&a->cli, "placement")) tsr_graph_print(a->training.placed, true, &text);
  const tsr_programs *p = &a->training.programs;
  for (int s = 0; tsr_cli_dumps(&a->cli, "program") && s < p->order->stages; s++)
    tsr_program_print(p->of_stage[s], &text);
  for (int s = 0; tsr_cli_dumps(&a->cli, "memory") && s < p->order->stages; s++)
    tsr_program_print_memory(p->of_stage[s], &text);
  print_text(&text);
}

/* The units of which sums are made. By default a mesh may add them in an order that no other mesh
 * has. */
static void add_units(const app *a, tsr_text *text) {
  int64_t dp = a->parallel->size[TSR_DP], step = a->batch_units / dp;
  int64_t microbatch = step / a->parallel->microbatches;
  bool common =
      tsr_tree_is_subtree(a->batch_units, step) && tsr_tree_is_subtree(a->batch_units, microbatch);
  int64_t sequence = a->training.graph ? a->training.graph->units.sequence : 1;
  tsr_text_add(
      text, "units.batch %lld%s", (long long)a->batch_units,
      common ? "" : " in this mesh's own order");
  if (sequence > 1) tsr_text_add(text, ", units.sequence %lld", (long long)sequence);
  tsr_text_add(text, ", units.tp %lld", (long long)a->tp_units);
}

static void print_start(const app *a) {
  tsr_text text = {0};
  tsr_parallel_startup(a->parallel, a->config, a->mesh, a->mesh_why, &text);
  tsr_text_add(
      &text, "recipe: seed %llu, %s, ", (unsigned long long)a->config->training.seed,
      a->config->numerics.policy == TSR_NUMERICS_FAST ? "fast" : "deterministic");
  add_units(a, &text);
  tsr_text_add(
      &text, "; cpu %s, %d thread%s\n", a->kernels->isa, a->device.threads,
      a->device.threads == 1 ? "" : "s");
  print_text(&text);
}

static void print_plan(const app *a) {
  tsr_programs programs[3];
  tsr_text text = {0};
  int count = tsr_plan_programs(&a->training, &a->evaluation, &a->generation, programs);
  tsr_plan_print(programs, count, a->parallel, &text);
  print_text(&text);
}

static int finish(app *a) {
  if (fflush(stdout) || ferror(stdout))
    tsr_diag_failure(
        a->diags, TSR_NOWHERE, "cannot write to the standard output: %s", strerror(errno));
  tsr_diags_print(a->diags, stderr);
  return tsr_diags_exit_code(a->diags);
}

/* ---- commands ---- */

static int run_inspect_mesh(app *a) {
  tsr_text text = {0};
  if (tsr_mesh_read(a->arena, a->cli.mesh, (tsr_place){0}, &a->mesh, a->diags))
    tsr_mesh_print(a->mesh, &text);
  print_text(&text);
  return finish(a);
}

static int run_inspect(app *a) {
  if (!a->cli.config) return run_inspect_mesh(a);
  tsr_text text = {0};
  if (load_config(a) && open_mesh(a) && build_context(a)) {
    tsr_text_add(&text, "%s\n", a->mesh_why);
    tsr_parallel_print(a->parallel, &text);
  }
  print_text(&text);
  return finish(a);
}

/* Whether the configuration's mistakes leave the model's section as the user wrote it. */
static bool has_sound_model(const tsr_config_model *m) {
  const tsr_yaml *type = tsr_yaml_get(m->map, "model_type");
  bool own_graph = tsr_yaml_get(m->map, "graph") != NULL;
  return m->kind && m->model_type && m->model_type[0] &&
         (!type || !strcmp(type->text, m->model_type)) && own_graph == (m->graph_file != NULL);
}

/* When an earlier stage has failed: the model's own mistakes, so that one run shows them too. */
static void explain_model(app *a) {
  if (!a->config || a->has_read_model || !has_sound_model(&a->config->model)) return;
  tsr_model_options o = {
      .batch = 1, .sequence = a->config->training.sequence_length, .training = true, .loss = true};
  o.vocab_detected = 1;
  o.units = (tsr_units){1, 1, 1};
  o.graphs_folder = graphs_folder(a);
  tsr_model *model = NULL;
  tsr_model_read(a->arena, a->config, &o, &model, a->diags);
}

/* Where a plan is for other devices, what tasks need does not depend on this machine's. */
static bool choose_machine(app *a) {
  if (a->cli.command != TSR_COMMAND_PLAN) return true;
  if (!tsr_machine_choose(
          a->arena, a->share, a->cli.machine, a->mesh->shape.arch, &a->machine, &a->machine_why,
          a->diags))
    return false;
  if (!a->machine->threads) a->device = tsr_plan_device();
  return true;
}

/* Everything that is decided before the first step, from a loaded configuration. What does not
 * depend on a stage that failed is looked at all the same, so that one run shows as many mistakes
 * as it can. */
static bool prepare(app *a) {
  bool ok = choose_device(a) & (open_mesh(a) && build_context(a));
  if (a->parallel) ok &= fix_recipe(a);
  if (!tsr_config_require_model(a->config, a->diags)) return false;
  ok &= open_text(a);
  return ok && choose_machine(a) && compile(a) && check_source(a);
}

/* A file without a model (a device_config alone, say) is checked as far as it goes. */
static int check_without_model(app *a) {
  if (open_mesh(a) && build_context(a) && choose_device(a) && fix_recipe(a)) {
    tsr_diag_warning(
        a->diags, (tsr_place){.file = a->config->file}, "no model: there is nothing to plan");
    if (!a->cli.quiet) print_start(a);
  }
  return finish(a);
}

static int run_check(app *a) {
  bool ok = load_config(a);
  if (ok && !a->config->model.kind) return check_without_model(a);
  ok = ok && prepare(a);
  if (!ok) explain_model(a);
  if (ok) tsr_plan_lint(a->config, a->parallel, a->training.graph, a->diags);
  if (ok && !a->cli.quiet && !a->cli.dump) {
    print_start(a);
    print_plan(a);
  }
  if (ok) print_dumps(a);
  return finish(a);
}

/* With --config the plan is then for what was measured. */
static bool calibrate(app *a) {
  const char *file = a->cli.machine = a->cli.calibration;
  if (!choose_device(a) ||
      !tsr_calibrate_to_file(a->arena, a->share, a->device, file, a->diags))
    return false;
  return printf("measured this machine into %s\n", file) > 0;
}

static int run_plan(app *a) {
  tsr_text text = {0};
  bool ok = !a->cli.config || load_config(a);
  ok = ok && (!a->cli.calibration || calibrate(a));
  if (!a->cli.config) return finish(a);
  ok = ok && prepare(a);
  if (!ok) explain_model(a);
  if (ok) tsr_plan_lint(a->config, a->parallel, a->training.graph, a->diags);
  tsr_plan_request r = {
      a->arena,     a->config,      a->parallel,    a->machine,       a->machine_why,
      &a->training, &a->evaluation, &a->generation, a->device.threads};
  ok = ok && tsr_plan_command(&r, a->cli.gantt, a->cli.svg, &text, a->diags);
  a->cli.quiet ? tsr_text_free(&text) : print_text(&text);
  return finish(a);
}

static int run_trace(app *a) {
  tsr_text text = {0};
  bool ok = load_config(a) && prepare(a);
  if (!ok) explain_model(a);
  const tsr_compiled *c = &a->training;
  tsr_lowering_request r = {c->graph, c->placed, &c->programs, a->parallel, a->cli.rank};
  r.graphs = tsr_cli_emits(&a->cli, "graph-ir");
  r.program = tsr_cli_emits(&a->cli, "schedule-ir");
  if (ok) tsr_lowering_print(&r, &text, a->diags);
  print_text(&text);
  return finish(a);
}

/* --metrics empties its file, so that must not be one that the run reads. */
static bool check_metrics(app *a, const char *metrics) {
  struct stat out, in;
  const char *const inputs[] = {
      a->cli.config, a->cli.mesh, a->config->training.data_path, a->config->model.file};
  if (!metrics || stat(metrics, &out) || !S_ISREG(out.st_mode)) return true;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (inputs[i] && !stat(inputs[i], &in) && in.st_ino == out.st_ino && in.st_dev == out.st_dev)
      return tsr_diag_error(
          a->diags, TSR_NOWHERE, "--metrics '%s' would overwrite what the run reads", metrics);
  return true;
}

static bool open_out(app *a, const char **ret_metrics) {
  *ret_metrics = a->cli.metrics;
  if (!a->cli.out) return true;
  if (mkdir(a->cli.out, 0777) && !tsr_file_exists(a->cli.out))
    return tsr_diag(
        a->diags, errno == ENOSPC || errno == EROFS || errno == EIO ? TSR_FAILURE : TSR_ERROR,
        TSR_NOWHERE, "cannot make the folder '%s' of --out", a->cli.out);
  if (!a->cli.metrics) *ret_metrics = tsr_arena_printf(a->arena, "%s/metrics.jsonl", a->cli.out);
  tsr_text text = {0};
  tsr_config_print(a->config, &text);
  bool ok = tsr_file_write(
      tsr_arena_printf(a->arena, "%s/config.yaml", a->cli.out), text.data, text.length, a->diags);
  tsr_text_free(&text);
  return ok;
}

static const char *mesh_text(app *a) {
  tsr_text text = {0};
  for (int i = 0; i < TSR_AXES; i++)
    if (a->parallel->size[i] > 1)
      tsr_text_add(
          &text, "%s%s=%d", text.length ? " " : "", tsr_axis_name(i), a->parallel->size[i]);
  const char *copy = tsr_arena_strdup(a->arena, text.data ? text.data : "1 rank");
  tsr_text_free(&text);
  return copy;
}

static bool train(app *a, int *ret_signal) {
  const char *metrics;
  tsr_trainer_options o = {
      .arena = a->arena, .config = a->config, .parallel = a->parallel, .source = &a->source};
  o.kernels = a->kernels;
  o.threads = a->device.threads;
  o.quiet = a->cli.quiet;
  o.out_folder = a->cli.out;
  o.mesh_text = mesh_text(a);
  const char *comm_trace = getenv("TESSERA_COMM_TRACE");
  o.comm_trace = comm_trace && *comm_trace && strcmp(comm_trace, "0");
  o.stop = &stop;
  if (!open_out(a, &metrics) || !check_metrics(a, metrics) ||
      !tsr_metrics_open(a->arena, metrics, false, &o.metrics, a->diags))
    return false;
  const tsr_compiled *evaluation = a->evaluation.placed ? &a->evaluation : NULL;
  const tsr_compiled *generation = a->generation.placed ? &a->generation : NULL;
  bool ok = a->cli.command == TSR_COMMAND_PROFILE
                ? tsr_profile_run(&o, &a->training, a->cli.steps, ret_signal, a->diags)
            : a->training.graph->loss < 0
                ? tsr_run_graph(&o, &a->training, a->diags)
                : tsr_train(&o, &a->training, evaluation, generation, ret_signal, a->diags);
  tsr_metrics_close(o.metrics);
  return ok;
}

static int run_train(app *a) {
  int ended_by = 0;
  bool ok = load_config(a) && prepare(a);
  if (!ok) explain_model(a);
  tsr_diags_print(a->diags, stderr); /* warnings and notes before the run, not after it */
  if (!ok) return finish(a);
  print_dumps(a);
  if (!a->cli.quiet) print_start(a);
  fflush(stdout);
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  signal(SIGPIPE, SIG_IGN);
  train(a, &ended_by);
  int code = finish(a);
  return code ? code : ended_by ? 128 + ended_by : 0;
}

static int print_config(app *a) {
  tsr_text text = {0};
  if (load_config(a)) tsr_config_print(a->config, &text);
  print_text(&text);
  return finish(a);
}

static int run(app *a) {
  tsr_text text = {0};
  if (a->cli.help) return fputs(tsr_cli_help, stdout), finish(a);
  if (a->cli.version) return printf("tessera-train %s\n", TSR_VERSION), finish(a);
  if (a->cli.print_schema) return tsr_config_schema(&text), print_text(&text), finish(a);
  if (a->cli.print_manual) return tsr_config_manual(&text), print_text(&text), finish(a);
  if (a->cli.print_config) return print_config(a);
  if (a->cli.command == TSR_COMMAND_INSPECT) return run_inspect(a);
  if (a->cli.command == TSR_COMMAND_TRACE) return run_trace(a);
  if (a->cli.command == TSR_COMMAND_PLAN) return run_plan(a);
  return a->cli.command == TSR_COMMAND_CHECK ? run_check(a) : run_train(a);
}

int main(int argc, char **argv) {
  app a = {.arena = tsr_arena_new()};
  a.diags = tsr_diags_new(a.arena);
  a.share = find_share(a.arena);
  int code = tsr_cli_parse(argc, argv, &a.cli, a.diags) ? run(&a) : finish(&a);
  tsr_arena_free(a.arena);
  return code;
}
