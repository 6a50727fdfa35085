// SPDX-License-Identifier: Apache-2.0
/* The command `sweep`: many runs of one configuration, and the table of them. */
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "cli/console.h"
#include "cli/sweep_check.h"
#include "cli/sweep_leftovers.h"
#include "cli/sweep_runs.h"
#include "sweep/halving.h"
#include "train/out_folder.h"
#include <math.h>
#include <string.h>

/* ---- the folder ---- */

static bool take_folder(app *a, tsr_out_folder *folder) {
  const char *path = a->options.out;
  if (!tsr_out_folder_lock(a->arena, path, folder, a->diags)) return false;
  if (!tsr_out_folder_has_run(a->arena, path)) return true;
  return tsr_diag_error(
      a->diags, TSR_NOWHERE, "'%s' is the folder of a run: --out names another one", path);
}

/* Of a sweep that was killed: also in folders of runs that go no further. */
static void remove_leftovers(const sweep_runs *s) {
  for (int i = 0; i < s->prefixes.tree.count; i++)
    sweep_leftovers_remove(s->folder, tsr_prefix_folder(s->a->arena, i));
  for (int i = 0; i < s->request->count; i++)
    sweep_leftovers_remove(s->folder, tsr_sweep_run_folder(s->a->arena, i + 1));
}

/* ---- decisions ---- */

/* Of the runs at a rung, which go on. */
static bool decide(sweep_runs *s) {
  tsr_arena *arena = s->a->arena;
  const sweep_request *r = s->request;
  int count = 0, *ranking = tsr_arena_array(arena, int, r->count);
  tsr_sweep_score *scores = tsr_arena_array(arena, tsr_sweep_score, r->count);
  for (int i = 0; i < r->count; i++) {
    const tsr_sweep_result *result = &s->results[i];
    bool failed = result->state == TSR_SWEEP_FAILED;
    if (result->rung != s->journal->rung) continue;
    scores[count++] = (tsr_sweep_score){i + 1, failed ? NAN : result->objective};
  }
  tsr_sweep_rank(scores, count);
  int kept = tsr_halving_kept(scores, count, r->sweep.eta);
  for (int i = 0; i < count; i++) {
    tsr_sweep_result *result = &s->results[scores[i].run - 1];
    ranking[i] = scores[i].run;
    if (i < kept) result->state = TSR_SWEEP_WAITS;
    else if (result->state == TSR_SWEEP_DONE) result->state = TSR_SWEEP_STOPPED;
  }
  if (!s->a->options.quiet)
    printf(
        "step %lld: %d of %d runs go on\n", (long long)r->sweep.rungs[s->journal->rung], kept,
        count);
  return tsr_sweep_journal_decision(s->journal, ranking, count, kept, s->a->diags);
}

/* Nothing is known of the runs at the rung then: the next sweep tries them again. */
static bool have_all_failed(const sweep_runs *s) {
  bool all = true;
  for (int i = 0; i < s->request->count; i++)
    all &= s->results[i].rung != s->journal->rung || s->results[i].state == TSR_SWEEP_FAILED;
  return all;
}

/* Every rung behind those that are decided; without halving there is one. */
static bool train(sweep_runs *s) {
  const tsr_sweep *sweep = &s->request->sweep;
  for (;;) {
    if (!sweep_runs_train(s)) return false;
    if (s->journal->rung + 1 >= sweep->rungs_count || have_all_failed(s)) return true;
    if (!decide(s)) return false;
  }
}

/* ---- what is left ---- */

typedef void table_writer(tsr_arena *, const tsr_sweep_table *, tsr_text *);

static bool write_table(app *a, const tsr_sweep_table *t, const char *name, table_writer *print) {
  tsr_text text = {0};
  print(a->arena, t, &text);
  bool ok =
      tsr_file_write(tsr_path_join(a->arena, t->folder, name), text.data, text.length, a->diags);
  tsr_text_free(&text);
  return ok;
}

/* As `report` of the runs' folders makes it, if one of them has metrics. */
static bool write_report(app *a, const tsr_sweep_table *t) {
  app own = *a;
  tsr_options *o = &own.options;
  const char *path = tsr_path_join(a->arena, t->folder, "report.html");
  int *order = tsr_arena_array(a->arena, int, t->count + 1);
  *o = (tsr_options){.command = TSR_COMMAND_REPORT, .html = path, .quiet = true};
  tsr_sweep_order(t, order);
  for (int i = 0; i < t->count && o->arguments.count < TSR_WORDS_MAX; i++) {
    const char *folder =
        tsr_path_join(a->arena, t->folder, tsr_sweep_run_folder(a->arena, order[i] + 1));
    if (tsr_file_exists(tsr_path_join(a->arena, folder, "metrics.jsonl")))
      o->arguments.items[o->arguments.count++] = folder;
  }
  if (!o->arguments.count) return true;
  bool ok = app_run_report(&own) == 0;
  if (ok && !a->options.quiet) printf("report: %s\n", path);
  return ok;
}

static bool write_results(app *a, const tsr_sweep_table *t) {
  if (!a->options.quiet) {
    tsr_text text = {0};
    tsr_sweep_table_text(a->arena, t, &text);
    console_print(&text);
  }
  return write_table(a, t, "sweep.csv", tsr_sweep_table_csv) &&
         write_table(a, t, "sweep.json", tsr_sweep_table_json) && write_report(a, t);
}

/* A sweep some of whose runs have failed is not what was asked for. */
static bool check_failed(app *a, const tsr_sweep_table *t) {
  int failed = 0;
  for (int i = 0; i < t->count; i++) failed += t->results[i].state == TSR_SWEEP_FAILED;
  return !failed || tsr_diag_failure(
                        a->diags, TSR_NOWHERE,
                        "%d of %d runs failed: log.txt in their folders has "
                        "the reasons",
                        failed, t->count);
}

/* ---- the whole ---- */

static bool run(app *a, const sweep_request *request, const char *data, sweep_runs *s) {
  tsr_sweep_entry *definition;
  int entries, rungs = request->sweep.rungs_count;
  sweep_request_definition(a->arena, request, data, &definition, &entries);
  if (!tsr_sweep_journal_open(
          a->arena, s->folder, definition, entries, rungs ? rungs - 1 : 0, s->results,
          request->count, s->journal, a->diags))
    return false;
  sweep_runs_block_signals();
  remove_leftovers(s);
  if (!train(s)) return false;
  tsr_sweep_table table = {&request->sweep, request->runs,  s->results,
                           request->count,  a->options.out, a->options.config};
  return write_results(a, &table) && check_failed(a, &table);
}

static bool check_input(app *a) {
  if (!console_require_out(a)) return false;
  return strcmp(a->options.config, "/dev/stdin") ||
         tsr_diag_error(
             a->diags, TSR_NOWHERE,
             "every run reads the configuration: it cannot come from a pipe");
}

int app_run_sweep(app *a) {
  sweep_request request;
  tsr_sweep_journal journal = {.fd = -1};
  tsr_out_folder folder = {.lock = TSR_FOLDER_LOCK_NONE};
  if (!check_input(a) || !sweep_request_read(a, &request)) return console_finish(a, false);
  sweep_checked checked;
  int code = sweep_check(a, &request, &checked);
  if (code) return code;
  bool ok = take_folder(a, &folder);
  sweep_runs s = {
      .a = a,
      .request = &request,
      .folder = a->options.out,
      .steps = checked.steps,
      .journal = &journal};
  s.jobs = a->options.jobs ? (int)a->options.jobs : 1;
  if (s.jobs > request.count) s.jobs = request.count;
  s.results = tsr_arena_array(a->arena, tsr_sweep_result, request.count);
  folder.has_begun = ok;
  if (ok)
    sweep_prefixes_begin(
        a->arena, s.folder, tsr_prefix_tree_make(a->arena, checked.shared, request.count),
        &s.prefixes);
  ok = ok && run(a, &request, checked.data, &s);
  tsr_sweep_journal_close(&journal);
  tsr_out_folder_close(&folder);
  bool stopped = !ok && *a->stop && !tsr_diags_errors(a->diags);
  if (stopped && !a->options.quiet) printf("stopped: the same command continues the sweep\n");
  code = console_finish(a, ok || stopped);
  return stopped ? 128 + (int)*a->stop : code;
}
