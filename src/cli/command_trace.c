// SPDX-License-Identifier: Apache-2.0
/* The command `trace`. */
#include "cli/console.h"
#include "cli/trace_tiles.h"
#include "report/trace_report.h"

int app_run_trace(app *a) {
  tsr_text text = {0};
  setup s = {0};
  prepared p = {0};
  bool ok = setup_load_config(a, &s) && prepare(a, &s, &p);
  if (!ok) prepare_explain_model(a, &s, &p);
  const tsr_compiled *c = &p.training;
  tsr_lowering_request r = {c->graph, c->placed, &c->programs, s.parallel};
  r.rank = a->options.rank;
  if (ok) r.all_reduce = tsr_config_all_reduce(s.config);
  tsr_machine *machine;
  const char *why;
  if (ok &&
      tsr_machine_choose(a->arena, a->share, NULL, s.mesh, &machine, &why, tsr_diags_new(a->arena)))
    r.machine = machine;
  r.graphs = tsr_options_emit(&a->options, "graph-ir");
  r.program = tsr_options_emit(&a->options, "schedule-ir");
  trace_tiles tiles;
  tsr_tile_source source;
  if (ok && tsr_options_emit(&a->options, "tile-ir")) {
    source = trace_tiles_of(a, &s, a->options.rank, &tiles);
    r.tiles = &source;
  }
  ok = ok && tsr_lowering_print(&r, &text, a->diags);
  console_print(&text);
  return console_finish(a, ok);
}
