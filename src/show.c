#include "app.h"
#include "base/file.h"
#include "base/tree.h"
#include "run/links.h"
#include "plan/report.h"
#include "train/plan_command.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void app_print(tsr_text *text) {
  if (text->data) fputs(text->data, stdout);
  tsr_text_free(text);
}

void app_print_dumps(const app *a) {
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
  app_print(&text);
}

/* The units of which sums are made. By default a mesh may add them in an order that no other mesh
 * has. */
static void add_units(const app *a, tsr_text *text) {
  const char *own = tsr_parallel_own_order(a->arena, a->parallel, a->config, a->batch_units);
  int64_t sequence = a->training.graph ? a->training.graph->units.sequence : 1;
  tsr_text_add(
      text, "units.batch %lld%s", (long long)a->batch_units,
      *own ? " in this mesh's own order" : "");
  if (sequence > 1) tsr_text_add(text, ", units.sequence %lld", (long long)sequence);
  tsr_text_add(text, ", units.tp %lld", (long long)a->tp_units);
}

static void add_precision(const tsr_config *c, tsr_text *text) {
  static const char *const names[] = {
      [TSR_PRECISION_F32] = "", [TSR_PRECISION_BF16] = "bf16", [TSR_PRECISION_FP16] = "fp16"};
  tsr_precision p = c->training.precision;
  if (p == TSR_PRECISION_F32) return;
  const char *stored = p != TSR_PRECISION_BF16            ? ""
                       : c->optimizer.stochastic_rounding ? " with stochastic rounding"
                       : c->optimizer.kahan_summation     ? " with Kahan summation"
                                                          : "";
  tsr_text_add(text, "%s%s, ", names[p], stored);
}

void app_print_start(const app *a) {
  tsr_text text = {0};
  tsr_parallel_startup(a->parallel, a->config, a->mesh, a->mesh_why, &text);
  tsr_text_add(
      &text, "recipe: seed %llu, %s, ", (unsigned long long)a->config->training.seed,
      a->config->numerics.policy == TSR_NUMERICS_FAST ? "fast" : "deterministic");
  add_precision(a->config, &text);
  add_units(a, &text);
  tsr_text_add(
      &text, "; %s%scpu %s, %d thread%s\n", a->device ? a->device->text : "",
      a->device ? "; " : "", a->kernels->isa, a->cpu.threads, a->cpu.threads == 1 ? "" : "s");
  tsr_hosting_print(&a->hosting, a->parallel->ranks, &text);
  if (a->hosting.links) tsr_text_add(&text, "links: by NCCL, %d groups\n", a->hosting.links->count);
  app_print(&text);
}

void app_print_plan(const app *a) {
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  tsr_text text = {0};
  int count = tsr_plan_programs(&a->training, &a->evaluation, &a->generation, programs);
  tsr_plan_print(programs, count, a->parallel, &text);
  app_print(&text);
}

/* In one piece: a launcher may put what others say between two. */
static void print_diags(app *a) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(a->diags, stream ? stream : stderr);
  if (stream) fclose(stream);
  if (text) fwrite(text, 1, length, stderr);
  free(text);
}

/* Nothing fails in silence: another worker, or a signal, may be the reason. */
static void check_said(app *a, bool ok, const char *function) {
  bool elsewhere = a->others_failed || a->has_agreed || a->others_silent || *a->stop;
  if (ok || elsewhere || tsr_diags_errors(a->diags)) return;
  tsr_diag_failure(
      a->diags, TSR_NOWHERE, "internal error: a step of %s failed and has not said why", function);
}

bool app_writes_files(const app *a) {
  const tsr_cli *c = &a->cli;
  bool prints = c->help || c->version || c->print_config || c->print_schema || c->print_manual;
  return !prints && (c->command == TSR_COMMAND_TRAIN || c->out);
}

static void check_output(app *a) {
  static const char message[] = "cannot write to the standard output: %s";
  if (!fflush(stdout) && !ferror(stdout)) return;
  if (app_writes_files(a)) tsr_diag_warning(a->diags, TSR_NOWHERE, message, strerror(errno));
  else tsr_diag_failure(a->diags, TSR_NOWHERE, message, strerror(errno));
}

int app_finish_in(app *a, bool ok, const char *function) {
  check_said(a, ok, function);
  check_output(a);
  tsr_file_maps_check(a->diags);
  int code = tsr_diags_exit_code(a->diags);
  if (code) app_hear_failures(a, code);
  if (!a->muted) print_diags(a);
  return a->job_code ? a->job_code : code ? code : a->others_failed ? 1 : 0;
}

const char *app_mesh_text(app *a) {
  tsr_text text = {0};
  for (int i = 0; i < TSR_AXES; i++)
    if (a->parallel->size[i] > 1)
      tsr_text_add(
          &text, "%s%s=%d", text.length ? " " : "", tsr_axis_name(i), a->parallel->size[i]);
  const char *copy = tsr_arena_strdup(a->arena, text.data ? text.data : "1 rank");
  tsr_text_free(&text);
  return copy;
}

