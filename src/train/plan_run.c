// SPDX-License-Identifier: Apache-2.0
#include "train/plan_run.h"
#include "pictures/pictures.h"
#include "plan/report.h"
#include "train/text_batch.h"

enum { CHART_COLUMNS = 100 };

int tsr_plan_programs(
    const tsr_compiled *training, const tsr_compiled *evaluation, const tsr_compiled *generation,
    tsr_programs ret_programs[TSR_COMPILED_PROGRAMS_MAX]) {
  int count = 0;
  ret_programs[count++] = training->programs;
  if (evaluation->placed) ret_programs[count++] = evaluation->programs;
  if (generation->placed) count += tsr_generation_programs(generation, ret_programs + count);
  return count;
}

tsr_cpu_context tsr_plan_device(void) {
  const char *const *level = tsr_kernels_levels();
  while (level[1]) level++;
  return (tsr_cpu_context){.k = tsr_kernels_get(*level), .threads = 1};
}

static void warn_of_threads(const tsr_plan_request *r, tsr_diags *diags) {
  int threads = r->machine->threads;
  if (threads && threads != r->threads)
    tsr_diag_note(
        diags, tsr_config_location(r->config, "numerics.threads"),
        "the machine's figures are those of %d thread%s, the run would have %d", threads,
        threads == 1 ? "" : "s", r->threads);
}

/* Links that cover less than the mesh determine nothing about its collectives. */
static bool check_links(const tsr_plan_request *r, tsr_diags *diags) {
  const tsr_machine *m = r->machine;
  int64_t joined = m->links_count ? m->links[m->links_count - 1].devices : 1;
  if (m->threads || !joined || r->parallel->ranks <= joined) return true;
  tsr_diag_error(
      diags, tsr_config_location(r->config, "device_config.mesh_shape"),
      "the links of machine '%s' join %lld device%s, but the mesh has %d ranks", m->name,
      (long long)joined, joined == 1 ? "" : "s", r->parallel->ranks);
  tsr_diag_hint(
      diags, "a copy of its description (configs/machines/) with one more level of links, named by "
             "--machine, would show how far apart they are");
  return false;
}

void tsr_plan_estimate(
    tsr_arena *arena, const tsr_config *config, const tsr_parallel *parallel,
    const tsr_compiled *training, const tsr_machine *machine, tsr_estimate *ret) {
  tsr_estimate_options o = {&training->programs, training->graph, parallel, machine, false};
  o.tf32 = config->numerics.policy == TSR_NUMERICS_FAST;
  o.all_reduce = tsr_config_all_reduce(config);
  tsr_estimate_make(arena, &o, ret);
}

double tsr_plan_ideal_step(
    tsr_arena *arena, const tsr_config *config, const tsr_parallel *parallel,
    const tsr_compiled *training, const tsr_machine *machine) {
  tsr_estimate e;
  tsr_plan_estimate(arena, config, parallel, training, machine, &e);
  return e.utilization * e.step;
}

bool tsr_plan_make_report(
    const tsr_plan_request *r, tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX],
    tsr_estimate *estimate, tsr_report *ret, tsr_diags *diags) {
  if (!check_links(r, diags)) return false;
  *ret = (tsr_report){.config = r->config, .parallel = r->parallel, .machine = r->machine};
  ret->machine_why = r->machine_why;
  ret->programs_count = tsr_plan_programs(r->training, r->evaluation, r->generation, programs);
  ret->programs = programs;
  ret->graph = r->training->graph;
  int64_t samples = r->training->batch * programs[0].pipeline->microbatches;
  ret->has_positions = r->training->model->sequence > 0;
  ret->tokens = samples * (ret->has_positions ? r->training->model->sequence : 1);
  tsr_plan_estimate(r->arena, r->config, r->parallel, r->training, r->machine, estimate);
  ret->estimate = estimate;
  return true;
}

bool tsr_plan_command(
    const tsr_plan_request *r, bool gantt, const char *svg, tsr_text *text, tsr_diags *diags) {
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  tsr_estimate estimate;
  tsr_report report;
  if (!tsr_plan_make_report(r, programs, &estimate, &report, diags)) return false;
  warn_of_threads(r, diags);
  tsr_report_print(&report, text);
  if (gantt) tsr_report_gantt(r->arena, &report, CHART_COLUMNS, text);
  return !svg || tsr_pictures_write(r->arena, &report, svg, diags);
}

bool tsr_plan_write_pictures(const tsr_plan_request *r, const char *folder, tsr_diags *diags) {
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  tsr_estimate estimate;
  tsr_report report;
  return tsr_plan_make_report(r, programs, &estimate, &report, diags) &&
         tsr_pictures_write(r->arena, &report, folder, diags);
}
