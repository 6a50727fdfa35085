// SPDX-License-Identifier: Apache-2.0
/* The command `inspect`. */
#include "cli/console.h"
#include "mesh/choose.h"
#include "report/tensor_report.h"
#include <stdlib.h>

/* A descriptor alone: a path or a name, found as that of a run. */
static int inspect_mesh(app *a) {
  tsr_text text = {0};
  tsr_mesh *mesh;
  const char *why;
  tsr_mesh_request request = {.option = a->options.mesh, .devices = 1};
  request.tt_metal_home = getenv("TT_METAL_HOME");
  request.shipped_folder = tsr_arena_printf(a->arena, "%s/mesh_descriptors", a->share);
  bool ok = tsr_mesh_choose(a->arena, &request, &mesh, &why, a->diags);
  if (ok) tsr_mesh_print(mesh, &text);
  console_print(&text);
  return console_finish(a, ok);
}

static bool report_placement(app *a, setup *s, tsr_text *text) {
  prepared p = {0};
  bool ok = prepare(a, s, &p);
  if (!ok) prepare_explain_model(a, s, &p);
  return ok && tsr_tensor_report_print(
                   &p.training.programs, s->parallel, a->options.tensor, text, a->diags);
}

static int inspect_tensor(app *a) {
  tsr_text text = {0};
  setup s = {0};
  bool ok = setup_load_config(a, &s) && report_placement(a, &s, &text);
  console_print(&text);
  return console_finish(a, ok);
}

int app_run_inspect(app *a) {
  if (!a->options.config) return inspect_mesh(a);
  if (a->options.tensor) return inspect_tensor(a);
  tsr_text text = {0};
  setup s = {0};
  bool ok = setup_load_config(a, &s) && setup_open_mesh(a, &s) && setup_build_context(a, &s);
  if (ok) {
    tsr_text_add(&text, "%s%s\n", s.detected ? s.detected : "", s.mesh_why);
    tsr_parallel_print(s.parallel, &text);
  }
  console_print(&text);
  return console_finish(a, ok);
}
