// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_check.h"
#include "base/command_progress.h"
#include "base/hash.h"
#include "base/terminal_line.h"
#include "cli/console.h"
#include "config/print.h"
#include "plan/report.h"
#include "train/epochs.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool check_data(app *a, const setup *s, const prepared *p) {
  if (p->training.graph->loss < 0)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "the graph has no loss: there is nothing to train");
  return p->has_data || tsr_diag_error(
                            a->diags, tsr_config_location(s->config, "training_config.data_path"),
                            "the run has no data");
}

static bool check_metric(app *a, const tsr_sweep *sweep, const prepared *p) {
  if (strcmp(sweep->metric, TSR_SWEEP_LOSS_VALIDATION) || p->evaluation.placed) return true;
  tsr_diag_error(a->diags, sweep->metric_place, "the run has no validation loss to compare");
  tsr_diag_hint(
      a->diags, "training_config.eval_every and validation_fraction above 0 evaluate; "
                "sweep.metric: loss/train compares the last step's loss");
  return false;
}

/* A rung is compared by the evaluation of that step. */
static bool check_rungs(app *a, const tsr_sweep *sweep, const setup *s, int64_t steps) {
  const tsr_config_training *t = &s->config->training;
  bool evaluates = !strcmp(sweep->metric, TSR_SWEEP_LOSS_VALIDATION);
  for (int i = 0; i < sweep->rungs_count; i++) {
    int64_t rung = sweep->rungs[i];
    if (rung > steps)
      return tsr_diag_error(
          a->diags, sweep->halving,
          "halving: a rung is at step %" PRId64 ", behind the run's last step, %" PRId64, rung,
          steps);
    if (!evaluates || rung == steps || rung % t->eval_every == 0) continue;
    tsr_diag_error(
        a->diags, tsr_config_location(s->config, "training_config.eval_every"),
        "step %" PRId64 ", a rung of the halving, has no evaluation: eval_every is %" PRId64, rung,
        t->eval_every);
    tsr_diag_hint(a->diags, "an eval_every that divides %" PRId64 " would do", sweep->rungs[0]);
    return false;
  }
  return true;
}

/* ---- what runs may share ---- */

/* What the process of a check tells. */
typedef struct {
  bool shares;
  int64_t steps, last; /* shared ones are before `steps`; its last step */
  tsr_lr_curve curve;
  char group[TSR_HASH_TEXT], data[TSR_HASH_TEXT], validation[TSR_HASH_TEXT];
} facts;

/* A state that is not kept whole, bits that no other run has, checkpoints that are kept for what
 * they are, or an end before the last step keep a run apart from others. */
static bool may_share(const tsr_config *c) {
  return !c->training.early_stop_patience && c->checkpoint.optimizer && !c->checkpoint.keep_best &&
         !c->checkpoint.keep_every && c->numerics.policy != TSR_NUMERICS_FAST;
}

/* All values but those of the learning rates and of the number of steps. */
static void hash_others(const tsr_config *c, char ret[TSR_HASH_TEXT]) {
  tsr_text text = {0};
  tsr_config others = *c;
  others.scheduler = (tsr_config_scheduler){0};
  others.optimizer.lr = 0;
  others.training.max_steps = others.training.num_epochs = 0;
  tsr_config_print(&others, &text);
  tsr_hash_text(text.data, text.length, ret);
  tsr_text_free(&text);
}

static void
tell(const sweep_request *r, const tsr_config *c, const tsr_dataset *data, int64_t steps, int to) {
  facts f = {
      .shares = may_share(c), .steps = steps, .last = steps, .curve = tsr_lr_curve_of(c, steps)};
  if (r->sweep.rungs_count && r->sweep.rungs[0] < steps) f.steps = r->sweep.rungs[0];
  hash_others(c, f.group);
  tsr_dataset_fingerprint(data, f.data);
  tsr_dataset_validation_fingerprint(data, f.validation);
  if (write(to, &f, sizeof f) != sizeof f) _exit(1);
}

/* ---- a run ---- */

static int check_run(app *a, const sweep_request *r, int run, int to) {
  bool is_line_shown = tsr_command_progress_is_shown(); /* the parent's */
  setup s = {0};
  prepared p = {0};
  a->options.command = TSR_COMMAND_CHECK;
  tsr_command_progress_disable();
  bool ok = setup_load_config(a, &s) && prepare(a, &s, &p);
  if (!ok) prepare_explain_model(a, &s, &p);
  if (ok) tsr_plan_lint(s.config, s.parallel, p.training.graph, a->diags);
  ok = ok && check_data(a, &s, &p);
  if (ok) {
    int64_t samples = p.training.batch * p.training.programs.pipeline->microbatches;
    int64_t steps = tsr_epochs_steps(s.config, &p.data, samples);
    ok = check_metric(a, &r->sweep, &p) && check_rungs(a, &r->sweep, &s, steps);
    if (ok) tell(r, s.config, &p.data.dataset, steps, to);
  }
  tsr_text name = {0};
  tsr_sweep_run_print(&r->sweep, &r->runs[run], &name);
  if (!ok && is_line_shown) fputs(TSR_TERMINAL_LINE_CLEAR, stderr);
  if (!ok) fprintf(stderr, "run %d (%s):\n", run + 1, name.data);
  return console_finish(a, ok);
}

/* In a process of its own, which takes with it what it has opened. */
static int check_in_child(app *a, const sweep_request *r, int run, facts *ret) {
  tsr_set sets[TSR_SETS_MAX];
  int status, count, ends[2] = {-1, -1};
  sweep_request_sets(a, r, run, sets, &count);
  pid_t child = pipe(ends) ? -1 : fork();
  if (child < 0) {
    tsr_diag_failure(a->diags, TSR_NOWHERE, "cannot start a process: %s", strerror(errno));
    return console_finish(a, false);
  }
  if (!child) {
    a->diags = a->job.diags = tsr_diags_new(a->arena);
    if (run || a->options.quiet) tsr_diags_quiet(a->diags);
    if (a->options.strict) tsr_diags_strict(a->diags);
    memcpy(a->options.sets, sets, sizeof *sets * (size_t)count);
    a->options.sets_count = count;
    _exit(check_run(a, r, run, ends[1]));
  }
  close(ends[1]);
  bool told = read(ends[0], ret, sizeof *ret) == sizeof *ret; /* less than a pipe holds */
  close(ends[0]);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && (told || WEXITSTATUS(status))) return WEXITSTATUS(status);
  if (WIFEXITED(status)) status = SIGKILL; /* it cannot write to its pipe */
  tsr_diag_failure(
      a->diags, TSR_NOWHERE, "the check of run %d has ended by a signal: %s", run + 1,
      strsignal(WTERMSIG(status)));
  return console_finish(a, false);
}

int sweep_check(app *a, const sweep_request *r, sweep_checked *ret) {
  tsr_text data = {0};
  char hash[TSR_HASH_TEXT];
  int code = 0;
  ret->shared = tsr_arena_array(a->arena, tsr_prefix_run, r->count);
  ret->steps = tsr_arena_array(a->arena, int64_t, r->count);
  fflush(stdout);
  tsr_command_progress_begin("checking", r->count, "runs");
  for (int run = 0; run < r->count && !code; run++) {
    facts f = {0};
    code = check_in_child(a, r, run, &f);
    if (!code) tsr_command_progress_add(1);
    ret->shared[run] = (tsr_prefix_run){.curve = f.curve, .steps = f.steps};
    ret->steps[run] = f.last;
    if (f.shares) ret->shared[run].group = tsr_arena_strdup(a->arena, f.group);
    tsr_text_add(&data, "%s %s\n", f.data, f.validation);
  }
  tsr_command_progress_end();
  tsr_hash_text(data.data, data.length, hash);
  tsr_text_free(&data);
  ret->data = tsr_arena_strdup(a->arena, hash);
  return code;
}
