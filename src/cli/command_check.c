// SPDX-License-Identifier: Apache-2.0
/* The command `check`. */
#include "cli/console.h"
#include "plan/report.h"
#include "prove/prove.h"

/* A file without a model (a device_config alone, say) is checked as far as possible. */
static int check_without_model(app *a, setup *s) {
  const prepared none = {0};
  bool needs_model = a->options.prove || a->options.svg;
  bool ok = (!needs_model || tsr_config_require_model(s->config, a->diags)) &&
            setup_open_mesh(a, s) && setup_build_context(a, s) && setup_map_ranks(a, s) &&
            setup_choose_cpu(a, s) && setup_fix_recipe(a, s);
  if (ok)
    tsr_diag_warning(
        a->diags, (tsr_location){.file = s->config->file}, "no model: there is nothing to plan");
  if (ok && !a->options.quiet) console_print_start(a, s, &none);
  return console_finish(a, ok);
}

/* Tasks of a reduced model are too small for more. */
enum { PROVE_THREADS_MAX = 2 };

/* The proof runs on the CPU, whatever the device of the configuration is. */
static bool prove(app *a, const setup *s, const prepared *p) {
  tsr_text text = {0};
  tsr_prove_request r = {
      .arena = a->arena, .config = s->config, .parallel = s->parallel, .training = &p->training};
  r.batch_units = s->batch_units;
  r.tp_units = s->tp_units;
  r.graphs_folder = app_graphs_folder(a);
  r.cpu = s->compute.cpu;
  if (r.cpu.threads > PROVE_THREADS_MAX) r.cpu.threads = PROVE_THREADS_MAX;
  r.full_mesh = a->options.full_mesh;
  bool ok = tsr_prove(&r, &text, a->diags);
  a->options.quiet ? tsr_text_free(&text) : console_print(&text);
  return ok;
}

/* With the times of the machine that plan takes, which changes nothing of the programs. */
static bool write_pictures(app *a, setup *s, prepared *p) {
  if (!tsr_machine_choose(
          a->arena, a->share, a->options.machine, s->mesh, &p->machine, &p->machine_why, a->diags))
    return false;
  tsr_plan_request r = prepare_plan_request(a, s, p);
  return tsr_plan_write_pictures(&r, a->options.svg, a->diags);
}

int app_run_check(app *a) {
  setup s = {0};
  prepared p = {0};
  bool ok = setup_load_config(a, &s);
  if (ok && !s.config->model.kind) return check_without_model(a, &s);
  ok = ok && prepare(a, &s, &p);
  if (!ok) prepare_explain_model(a, &s, &p);
  if (ok) tsr_plan_lint(s.config, s.parallel, p.training.graph, a->diags);
  if (ok && !a->options.quiet && !a->options.dump) {
    console_print_start(a, &s, &p);
    console_print_plan(&s, &p);
  }
  if (ok) console_print_dumps(a, &s, &p.training);
  ok = ok && (!a->options.svg || write_pictures(a, &s, &p));
  ok = ok && (!a->options.prove || prove(a, &s, &p));
  return console_finish(a, ok);
}
