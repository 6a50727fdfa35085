// SPDX-License-Identifier: Apache-2.0
/* The command `plan`. */
#include "cli/console.h"
#include "plan/report.h"
#include "train/calibrate.h"

/* With --config the plan is then for the machine that was measured. */
static bool calibrate(app *a, setup *s) {
  const char *file = a->options.machine = a->options.calibration;
  if (!setup_choose_cpu(a, s) ||
      !tsr_calibrate_to_file(a->arena, a->share, s->compute.cpu, file, a->diags))
    return false;
  return printf("measured this machine into %s\n", file) > 0;
}

int app_run_plan(app *a) {
  const tsr_options *o = &a->options;
  tsr_text text = {0};
  setup s = {0};
  prepared p = {0};
  bool ok = !o->config || setup_load_config(a, &s);
  ok = ok && (!o->calibration || calibrate(a, &s));
  if (!o->config) return console_finish(a, ok);
  ok = ok && prepare(a, &s, &p);
  if (!ok) prepare_explain_model(a, &s, &p);
  if (ok) tsr_plan_lint(s.config, s.parallel, p.training.graph, a->diags);
  tsr_plan_request r = prepare_plan_request(a, &s, &p);
  ok = ok && tsr_plan_command(&r, o->gantt, o->svg, &text, a->diags);
  if (ok) console_print_dumps(a, &s, &p.training);
  o->quiet ? tsr_text_free(&text) : console_print(&text);
  return console_finish(a, ok);
}
