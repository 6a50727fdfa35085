// SPDX-License-Identifier: Apache-2.0
/* The command `trace`: of the program, or with --save of the tensors that it computes. */
#include "cli/console.h"
#include "cli/replay.h"
#include "cli/trace_tiles.h"
#include "compare/tensor_dump.h"
#include "tokenizer/pattern.h"
#include "report/trace_report.h"
#include <inttypes.h>
#include <string.h>

/* ---- --save ---- */

typedef struct {
  tsr_pattern *pattern; /* NULL: all tensors */
  tsr_match *match;
} name_filter;

static int wants(void *context, const char *name) {
  const name_filter *f = context;
  size_t begin, end;
  if (!f->pattern) return 1;
  return tsr_pattern_find(f->pattern, f->match, name, strlen(name), 0, &begin, &end);
}

/* Steps of the recipe, from its begin. */
static bool save_tensors(app *a, tsr_text *text) {
  const tsr_options *o = &a->options;
  name_filter filter = {.match = tsr_match_new(a->arena)};
  int64_t first = o->first_step ? o->first_step : 1, last = o->last_step ? o->last_step : 1, bytes;
  replay r;
  bool ok = !o->tensors || tsr_pattern_compile(
                               a->arena, o->tensors, false, "--tensors", &filter.pattern, a->diags);
  if (!ok || !replay_open(a, o->config, &r)) return tsr_match_free(filter.match), false;
  if (last > r.steps)
    ok = tsr_diag_error(
        a->diags, TSR_NOWHERE, "--steps: the run has %" PRId64 " steps, not %" PRId64, r.steps,
        last);
  tsr_tensor_dump *d =
      tsr_tensor_dump_new(a->arena, r.setup.config, r.steps, o->save, first, last, wants, &filter);
  ok = ok && replay_run(&r, first, tsr_tensor_dump_observer(d));
  int count = tsr_tensor_dump_count(d, &bytes);
  if (ok)
    tsr_text_add(
        text, "%s: %d tensors of steps %" PRId64 " to %" PRId64 ", %s each\n", o->save, count,
        first, last, tsr_text_bytes(bytes).text);
  tsr_tensor_dump_free(d);
  replay_close(&r);
  tsr_match_free(filter.match);
  return ok;
}

static int save(app *a) {
  tsr_text text = {0};
  app_catch_signals();
  bool ok = save_tensors(a, &text);
  a->options.quiet ? tsr_text_free(&text) : console_print(&text);
  return console_finish_stoppable(a, ok);
}

int app_run_trace(app *a) {
  if (a->options.save) return save(a);
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
