// SPDX-License-Identifier: Apache-2.0
#include "cli/console.h"
#include "base/command_progress.h"
#include "base/file_read.h"
#include "device/memory_report.h"
#include "plan/report.h"
#include "runtime/device_communicators.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void console_print(tsr_text *text) {
  tsr_command_progress_clear();
  if (text->data) fputs(text->data, stdout);
  tsr_text_free(text);
}

void console_print_dumps(const app *a, const setup *s, const tsr_compiled *c) {
  const tsr_options *o = &a->options;
  tsr_text text = {0};
  if (a->job.is_silent) return;
  if (tsr_options_dump(o, "mesh")) tsr_mesh_print(s->mesh, &text);
  if (tsr_options_dump(o, "groups")) tsr_parallel_print(s->parallel, &text);
  if (tsr_options_dump(o, "graph")) tsr_graph_print(c->graph, false, &text);
  if (tsr_options_dump(o, "placement")) tsr_graph_print(c->placed, true, &text);
  const tsr_programs *programs = &c->programs;
  for (int i = 0; tsr_options_dump(o, "program") && i < programs->pipeline->stages; i++)
    tsr_program_print(programs->of_stage[i], &text);
  for (int i = 0; tsr_options_dump(o, "memory") && i < programs->pipeline->stages; i++)
    tsr_program_print_memory(programs->of_stage[i], &text);
  console_print(&text);
}

/* The units of which sums are made. By default a mesh may add them in an order that no other mesh
 * has. */
static void add_units(const app *a, const setup *s, const prepared *p, tsr_text *text) {
  const char *own = tsr_parallel_own_order(a->arena, s->parallel, s->config, s->batch_units);
  int64_t sequence = p->training.graph ? p->training.graph->units.sequence : 1;
  tsr_text_add(
      text, "units.batch %lld%s", (long long)s->batch_units,
      *own ? " in this mesh's own order" : "");
  if (sequence > 1) tsr_text_add(text, ", units.sequence %lld", (long long)sequence);
  tsr_text_add(text, ", units.tp %lld", (long long)s->tp_units);
  int64_t expert = p->training.graph ? p->training.graph->units.expert : 0;
  if (expert) tsr_text_add(text, ", units.expert %lld", (long long)expert);
  if (s->parallel->tree == TSR_TREE_FLAT) tsr_text_add(text, ", reduce_tree flat");
  if (tsr_config_sums_tp_in_half(s->config)) tsr_text_add(text, ", tp_reductions half");
}

static void add_precision(const tsr_config *c, tsr_text *text) {
  static const char *const names[] = {
      [TSR_PRECISION_F32] = "",
      [TSR_PRECISION_BF16] = "bf16",
      [TSR_PRECISION_FP16] = "fp16",
      [TSR_PRECISION_FP8] = "fp8"};
  tsr_precision p = c->training.precision;
  if (p == TSR_PRECISION_F32) return;
  const char *stored = p != TSR_PRECISION_BF16            ? ""
                       : c->optimizer.stochastic_rounding ? " with stochastic rounding"
                       : c->optimizer.kahan_summation     ? " with Kahan summation"
                                                          : "";
  tsr_text_add(text, "%s%s, ", names[p], stored);
}

void console_print_start(const app *a, const setup *s, const prepared *p) {
  tsr_text text = {0};
  const tsr_compute *c = &s->compute;
  if (s->detected) tsr_text_add(&text, "%s", s->detected);
  tsr_parallel_startup(s->parallel, s->config, s->mesh, s->mesh_why, &text);
  tsr_text_add(
      &text, "recipe: seed %llu, %s, ", (unsigned long long)s->config->training.seed,
      s->config->numerics.policy == TSR_NUMERICS_FAST ? "fast" : "deterministic");
  add_precision(s->config, &text);
  add_units(a, s, p, &text);
  tsr_text_add(
      &text, "; %s%scpu %s, %d thread%s\n", c->device ? c->device->text : "", c->device ? "; " : "",
      c->kernels->isa, c->cpu.threads, c->cpu.threads == 1 ? "" : "s");
  tsr_numerics_describe(s->config, &text);
  if (c->device && c->device->memory) {
    tsr_text_add(&text, "memory: ");
    tsr_device_print_memory(c->device, &text);
    tsr_text_add(&text, "\n");
  }
  tsr_rank_map_print(&s->ranks, s->parallel->ranks, &text);
  if (s->ranks.communicators)
    tsr_text_add(&text, "links: by NCCL, %d groups\n", s->ranks.communicators->count);
  console_print(&text);
}

void console_print_plan(const setup *s, const prepared *p) {
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  tsr_text text = {0};
  int count = tsr_plan_programs(&p->training, &p->evaluation, &p->generation, programs);
  tsr_plan_print(programs, count, s->parallel, &text);
  console_print(&text);
}

/* In one write, because a launcher may put the output of other processes between two. */
static void print_diags(app *a) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(a->diags, stream ? stream : stderr);
  if (stream) fclose(stream);
  if (text) fwrite(text, 1, length, stderr);
  free(text);
}

/* No failure without a diagnostic: another process, or a signal, may be the reason. */
static void check_reported(app *a, bool ok, const char *function) {
  bool elsewhere = a->job.state == TSR_JOB_FAILURE_AGREED ||
                   a->job.state == TSR_JOB_PEERS_UNRESPONSIVE || *a->stop;
  if (ok || elsewhere || tsr_diags_errors(a->diags)) return;
  tsr_diag_failure(
      a->diags, TSR_NOWHERE, "internal error: a step of %s failed and has not said why", function);
}

bool console_is_secondary(const tsr_options *o) {
  bool prints = o->help || o->version || o->print_config || o->print_schema || o->print_manual;
  return !prints && (o->command == TSR_COMMAND_TRAIN || o->out);
}

static void check_output(app *a) {
  static const char message[] = "cannot write to the standard output: %s";
  if (!fflush(stdout) && !ferror(stdout)) return;
  const char *why = strerror(errno);
  if (console_is_secondary(&a->options)) tsr_diag_warning(a->diags, TSR_NOWHERE, message, why);
  else tsr_diag_failure(a->diags, TSR_NOWHERE, message, why);
}

int console_finish_in(app *a, bool ok, const char *function) {
  check_reported(a, ok, function);
  tsr_command_progress_clear();
  check_output(a);
  tsr_file_maps_check(a->diags);
  int code = tsr_diags_exit_code(a->diags);
  if (code) tsr_job_share_failure(&a->job, code);
  if (!a->job.is_silent) print_diags(a);
  return a->job.exit_code ? a->job.exit_code : code;
}

int console_finish_stoppable(app *a, bool ok) {
  int code = console_finish(a, ok);
  return ok || !*a->stop ? code : 128 + (int)*a->stop;
}

void console_note_tokenizer(app *a) {
  static const char name[] = "tokenizer.json";
  if (!tsr_file_exists(tsr_path_join(a->arena, a->options.out, name)))
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "'%s' has no %s: it is a model of token numbers, not of texts",
        a->options.out, name);
}

bool console_require_out(app *a) {
  return a->options.out ||
         tsr_diag_error(a->diags, TSR_NOWHERE, "no folder to write: --out is needed");
}
