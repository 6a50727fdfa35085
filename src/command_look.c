/* Commands that compute nothing: inspect, check, plan, trace. */
#include "app.h"
#include "plan/report.h"
#include "prove/prove.h"
#include "report/lowering.h"
#include "train/calibrate.h"
#include "train/plan_command.h"

static int run_inspect_mesh(app *a) {
  tsr_text text = {0};
  bool ok = tsr_mesh_read(a->arena, a->cli.mesh, (tsr_place){0}, &a->mesh, a->diags);
  if (ok) tsr_mesh_print(a->mesh, &text);
  app_print(&text);
  return app_finish(a, ok);
}

int app_run_inspect(app *a) {
  if (!a->cli.config) return run_inspect_mesh(a);
  tsr_text text = {0};
  bool ok = app_load_config(a) && app_open_mesh(a) && app_build_context(a);
  if (ok) {
    tsr_text_add(&text, "%s\n", a->mesh_why);
    tsr_parallel_print(a->parallel, &text);
  }
  app_print(&text);
  return app_finish(a, ok);
}

/* A file without a model (a device_config alone, say) is checked as far as it goes. */
static int check_without_model(app *a) {
  bool ok = (!a->cli.prove || tsr_config_require_model(a->config, a->diags)) && app_open_mesh(a) &&
            app_build_context(a) && app_lay_ranks(a) && app_choose_device(a) && app_fix_recipe(a);
  if (ok)
    tsr_diag_warning(
        a->diags, (tsr_place){.file = a->config->file}, "no model: there is nothing to plan");
  if (ok && !a->cli.quiet) app_print_start(a);
  return app_finish(a, ok);
}

/* Tasks of a reduced model are too small for more. */
enum { PROVE_THREADS_MAX = 2 };

/* The proof runs on the CPU, whatever the device of the configuration is. */
static bool prove(app *a) {
  tsr_text text = {0};
  tsr_prove_request r = {
      .arena = a->arena, .config = a->config, .parallel = a->parallel, .training = &a->training};
  r.batch_units = a->batch_units;
  r.tp_units = a->tp_units;
  r.graphs_folder = app_graphs_folder(a);
  r.cpu = a->cpu;
  if (r.cpu.threads > PROVE_THREADS_MAX) r.cpu.threads = PROVE_THREADS_MAX;
  r.full_mesh = a->cli.full_mesh;
  bool ok = tsr_prove(&r, &text, a->diags);
  a->cli.quiet ? tsr_text_free(&text) : app_print(&text);
  return ok;
}

int app_run_check(app *a) {
  bool ok = app_load_config(a);
  if (ok && !a->config->model.kind) return check_without_model(a);
  ok = ok && app_prepare(a);
  if (!ok) app_explain_model(a);
  if (ok) tsr_plan_lint(a->config, a->parallel, a->training.graph, a->diags);
  if (ok && !a->cli.quiet && !a->cli.dump) {
    app_print_start(a);
    app_print_plan(a);
  }
  if (ok) app_print_dumps(a);
  ok = ok && (!a->cli.prove || prove(a));
  return app_finish(a, ok);
}

/* With --config the plan is then for what was measured. */
static bool calibrate(app *a) {
  const char *file = a->cli.machine = a->cli.calibration;
  if (!app_choose_device(a) || !tsr_calibrate_to_file(a->arena, a->share, a->cpu, file, a->diags))
    return false;
  return printf("measured this machine into %s\n", file) > 0;
}

int app_run_plan(app *a) {
  tsr_text text = {0};
  bool ok = !a->cli.config || app_load_config(a);
  ok = ok && (!a->cli.calibration || calibrate(a));
  if (!a->cli.config) return app_finish(a, ok);
  ok = ok && app_prepare(a);
  if (!ok) app_explain_model(a);
  if (ok) tsr_plan_lint(a->config, a->parallel, a->training.graph, a->diags);
  tsr_plan_request r = {a->arena,     a->config,      a->parallel,    a->machine,    a->machine_why,
                        &a->training, &a->evaluation, &a->generation, a->cpu.threads};
  ok = ok && tsr_plan_command(&r, a->cli.gantt, a->cli.svg, &text, a->diags);
  a->cli.quiet ? tsr_text_free(&text) : app_print(&text);
  return app_finish(a, ok);
}

int app_run_trace(app *a) {
  tsr_text text = {0};
  bool ok = app_load_config(a) && app_prepare(a);
  if (!ok) app_explain_model(a);
  const tsr_compiled *c = &a->training;
  tsr_lowering_request r = {c->graph, c->placed, &c->programs, a->parallel, a->cli.rank};
  r.graphs = tsr_cli_emits(&a->cli, "graph-ir");
  r.program = tsr_cli_emits(&a->cli, "schedule-ir");
  ok = ok && tsr_lowering_print(&r, &text, a->diags);
  app_print(&text);
  return app_finish(a, ok);
}
