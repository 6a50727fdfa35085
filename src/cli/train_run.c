// SPDX-License-Identifier: Apache-2.0
#include "cli/train_run.h"
#include "cli/job_consistency.h"
#include "cli/run_begin.h"
#include "base/file_read.h"
#include "base/folder_lock.h"
#include "comm/transport.h"
#include "train/determinism.h"
#include "train/epochs.h"
#include "train/plan_run.h"
#include "train/profile_run.h"
#include "train/step_files.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a run leaves, on the process that writes it. */
typedef struct {
  tsr_out_folder out, gradients, routing, events;
  tsr_metrics *metrics;
  tsr_run_lock_writer *lock;
} results;

static void close_results(results *r) {
  if (r->metrics) tsr_metrics_close(r->metrics);
  if (r->lock) tsr_run_lock_close(r->lock);
  tsr_out_folder_close(&r->events);
  tsr_out_folder_close(&r->routing); /* which may be in the others */
  tsr_out_folder_close(&r->gradients);
  tsr_out_folder_close(&r->out);
}

/* The folders of files of each step. */
static bool take_step_folders(
    app *a, const setup *s, const tsr_checkpoint_manager_options *keep, const char *metrics,
    results *r) {
  const char *gradients = a->options.dump_grads, *routing = a->options.record_routing;
  const char *events = a->options.tensorboard;
  tsr_step_files_run run = {
      .config = s->config,
      .metrics = metrics,
      .taken = {&r->out, &r->gradients, &r->routing},
      .resumes = keep->resumes,
      .overwrites = a->options.overwrite};
  return (!gradients ||
          tsr_step_folder_take(
              a->arena, &tsr_gradient_files, gradients, &run, &r->gradients, a->diags)) &&
         (!routing || tsr_step_folder_take(
                          a->arena, &tsr_routing_files, routing, &run, &r->routing, a->diags)) &&
         (!events || tsr_step_folder_take(
                         a->arena, &tsr_tensorboard_files, events, &run, &r->events, a->diags));
}

static bool open_metrics(app *a, const char *metrics, results *r) {
  const char *own = a->options.out;
  const char *others[] = {a->options.dump_grads, a->options.record_routing, a->options.tensorboard};
  if (!tsr_metrics_open(a->arena, metrics, a->stop, &r->metrics, a->diags)) return false;
  if (!metrics) return true;
  for (int i = 0; i < 3; i++)
    if (others[i] && tsr_file_is_same(tsr_path_folder(a->arena, metrics), others[i]))
      own = others[i];
  return tsr_out_folder_check_metrics(a->arena, metrics, own, a->diags);
}

static bool open_lock(app *a, results *r) {
  const char *path = tsr_arena_printf(a->arena, "%s/" TSR_RUN_LOCK_NAME, a->options.out);
  bool trains = a->options.command == TSR_COMMAND_TRAIN;
  return !trains || !r->out.path || tsr_run_lock_open(a->arena, path, &r->lock, a->diags);
}

/* Where results go, which the first process takes for all. */
static bool
open_results(app *a, const setup *s, const tsr_checkpoint_manager_options *keep, results *r) {
  bool first = a->job.transport.process == 0;
  const char *metrics = first ? a->options.metrics : NULL;
  *r = (results){.out.lock = TSR_FOLDER_LOCK_NONE, .gradients.lock = TSR_FOLDER_LOCK_NONE};
  r->routing.lock = r->events.lock = TSR_FOLDER_LOCK_NONE;
  bool ok = !first || !a->options.out ||
            tsr_out_folder_take(
                a->arena, a->options.out, run_begin_out_purpose(a, s, keep), s->config, &r->out,
                a->diags);
  ok = ok && (!first || take_step_folders(a, s, keep, metrics, r));
  if (r->out.path && !metrics)
    metrics = tsr_arena_printf(a->arena, "%s/metrics.jsonl", a->options.out);
  ok = tsr_job_all_succeeded(&a->job, ok && open_metrics(a, metrics, r) && open_lock(a, r));
  if (!ok) close_results(r);
  return ok;
}

/* Process 0 marks its folders; the others check that they see the mark. */
static bool share_owner(app *a, tsr_checkpoint_manager_options *keep) {
  char mine[TSR_FOLDER_OWNER_BYTES];
  if (tsr_job_is_alone(&a->job)) return true;
  tsr_folder_lock_owner(mine);
  return tsr_job_share_text(
      &a->job, tsr_arena_strdup(a->arena, mine), "processes cannot share a folder", &keep->owner);
}

static bool check_determinism(
    app *a, const tsr_trainer_options *o, const tsr_compiled *training, int *ret_signal) {
  const char *text = NULL;
  bool ok = tsr_determinism_check(o, training, a->options.determinism, ret_signal, &text, a->diags);
  if (text) ok = tsr_job_all_succeeded(&a->job, ok); /* both runs are done: none has been lost */
  if (ok && text && !o->quiet) printf("%s\n", text);
  return ok;
}

/* A step's time at the peak of the machine that `plan` would take; 0 without one. */
static double ideal_step(const app *a, const setup *s, const prepared *p) {
  const char *why;
  tsr_machine *machine;
  if (!tsr_machine_choose(
          a->arena, a->share, NULL, s->mesh, &machine, &why, tsr_diags_new(a->arena)))
    return 0;
  return tsr_plan_ideal_step(a->arena, s->config, s->parallel, &p->training, machine);
}

static bool choose_tensorboard(
    app *a, const setup *s, const prepared *p, tsr_tensorboard_run *ret, tsr_trainer_options *o) {
  enum { EVERY = 100 };
  const char *wanted = a->options.histograms;
  *ret = (tsr_tensorboard_run){.every = EVERY};
  if (!a->options.tensorboard) return true;
  o->tensorboard = ret;
  if (a->options.histograms_every) ret->every = a->options.histograms_every;
  ret->ideal_step_s = ideal_step(a, s, p);
  return !wanted || tsr_tensorboard_choose(a->arena, p->training.graph, wanted, ret, a->diags);
}

/* A launcher ends its processes before they can give the terminal back, and may give them one
 * stream alone that is a terminal: Open MPI's mpirun does. */
static bool can_draw(app *a) {
  bool several = a->job.transport.processes > 1;
  bool passed = tsr_transport_has_launcher() && !(isatty(STDOUT_FILENO) && isatty(STDERR_FILENO));
  if (!several && !passed) return true;
  tsr_diag_note(
      a->diags, TSR_NOWHERE,
      "--tui draws nothing in a run whose output a launcher of processes passes on");
  tsr_diag_hint(
      a->diags, "'tessera-train watch %s --tui' in another terminal shows the run",
      a->options.out ? a->options.out : "OUT");
  tsr_diags_print(a->diags, stderr);
  return false;
}

/* Of a process that has the terminal: "run.yaml, gpt2, dp=2". */
static tsr_dashboard_run *open_dashboard(app *a, const setup *s, const prepared *p) {
  if (!a->options.tui || a->job.transport.process || p->training.graph->loss < 0) return NULL;
  if (!can_draw(a)) return NULL;
  const char *name = a->options.out ? a->options.out : s->config->file;
  const char *title = tsr_arena_printf(
      a->arena, "%s, %s, %s", name, p->training.graph->name, setup_mesh_text(s, a->arena));
  return tsr_dashboard_run_open(a->arena, title, ideal_step(a, s, p), a->stop);
}

static bool train(
    app *a, setup *s, prepared *p, const tsr_checkpoint_manager_options *keep,
    tsr_routing_replay *replay, tsr_locked_run *locked, int *ret_signal) {
  results r;
  tsr_trainer_options o = {
      .arena = a->arena, .config = s->config, .parallel = s->parallel, .data = &p->data};
  o.kernels = s->compute.kernels;
  o.threads = s->compute.cpu.threads;
  o.device = s->compute.device;
  o.quiet = a->options.quiet;
  o.out_folder = a->options.out;
  o.gradients = a->options.dump_grads;
  o.routing = a->options.record_routing;
  o.replay = replay;
  o.locked = locked;
  o.mesh_text = setup_mesh_text(s, a->arena);
  setup_traces_communication(a->diags, &o.comm_trace);
  o.stop = a->stop;
  o.stop_at = a->options.stop_at;
  o.save = a->save_now;
  o.rank_map = s->ranks;
  o.timeout_s = s->config->collectives.timeout_s;
  o.lost = tsr_job_abort;
  o.lost_context = &a->job;
  o.keep = *keep;
  o.keep.mesh_text = o.mesh_text;
  tsr_tensorboard_run tensorboard;
  bool chosen = tsr_job_all_succeeded(&a->job, choose_tensorboard(a, s, p, &tensorboard, &o));
  if (!chosen || !share_owner(a, &o.keep) || !open_results(a, s, keep, &r)) {
    *ret_signal = (int)*a->stop;
    return false;
  }
  o.metrics = r.metrics;
  o.hashes = a->options.command == TSR_COMMAND_TRAIN && a->options.out;
  o.lock = r.lock;
  if (r.out.path) o.out = &r.out;
  if (r.gradients.path) o.gradient_folder = &r.gradients;
  if (r.routing.path) o.routing_folder = &r.routing;
  if (r.events.path) tensorboard.folder = &r.events;
  const tsr_compiled *evaluation = p->evaluation.placed ? &p->evaluation : NULL;
  const tsr_compiled *generation = p->generation.placed ? &p->generation : NULL;
  o.dashboard = open_dashboard(a, s, p);
  bool ok =
      a->options.command == TSR_COMMAND_PROFILE
          ? tsr_profile_command(&o, &p->training, &a->job, a->options.steps, ret_signal, a->diags)
      : p->training.graph->loss < 0 ? tsr_run_graph(&o, &p->training, a->diags)
      : a->options.determinism
          ? check_determinism(a, &o, &p->training, ret_signal)
          : tsr_train(&o, &p->training, evaluation, generation, ret_signal, a->diags);
  tsr_dashboard_run_close(o.dashboard);
  if (tensorboard.writer) tsr_tensorboard_close(tensorboard.writer);
  close_results(&r);
  return ok;
}

/* ---- how it ends ---- */

/* 2 would be a user error's code, and 0 that of a run that is done. */
static bool read_limit_status(tsr_diags *diags, int *ret_status) {
  const char *wanted = getenv("TESSERA_TIME_LIMIT_STATUS");
  char *end;
  *ret_status = 0;
  if (!wanted || !*wanted) return true;
  long status = strtol(wanted, &end, 10);
  if (end == wanted || *end || status < 1 || status == 2 || status > 127)
    return tsr_diag_error(
        diags, TSR_NOWHERE,
        "TESSERA_TIME_LIMIT_STATUS is '%s', which is neither 1 nor an integer from 3 to 127",
        wanted);
  *ret_status = (int)status;
  return true;
}

/* Scripts that ask for it can tell a run that its time limit has stopped from one that is done. Of
 * many processes the first one says it, behind the others' end: launchers end all when one ends so.
 */
static int limit_status(app *a) {
  int status;
  if (!read_limit_status(a->diags, &status) || !status || a->job.transport.process) return 0;
  a->job.exits_last = true;
  return status;
}

static int ending_code(app *a, bool ok, int ended_by) {
  int code = console_finish(a, ok);
  if (code || !ended_by || ended_by == TSR_ENDED_BY_STEP) return code;
  return ended_by == TSR_ENDED_BY_LIMIT ? limit_status(a) : 128 + ended_by;
}

/* What is to be replayed, of all steps of the run. */
static bool open_replay(app *a, const setup *s, const prepared *p, tsr_routing_replay **ret) {
  const char *folder = a->options.replay_routing, *record = a->options.record_routing;
  if (!folder || p->training.graph->loss < 0) return true;
  if (record && tsr_file_is_same(record, folder)) {
    tsr_diag_error(
        a->diags, TSR_NOWHERE, "'%s' is the folder of --record-routing and of --replay-routing",
        folder);
    tsr_diag_hint(
        a->diags, "the run would write what it reads; --record-routing names another folder");
    return false;
  }
  int64_t samples = p->training.batch * p->training.programs.pipeline->microbatches;
  int64_t steps = tsr_epochs_steps(s->config, &p->data, samples);
  return tsr_routing_replay_open(a->arena, folder, p->training.graph, steps, ret, a->diags);
}

bool train_run_check_variables(tsr_diags *diags) {
  int status;
  bool traces, known = setup_traces_communication(diags, &traces);
  return read_limit_status(diags, &status) && known;
}

int train_run(
    app *a, setup *s, tsr_checkpoint_manager_options *keep, tsr_locked_run *locked, bool ok) {
  int ended_by = 0;
  prepared p = {0};
  tsr_routing_replay *replay = NULL;
  ok = tsr_job_all_succeeded(&a->job, ok) && prepare(a, s, &p) && open_replay(a, s, &p, &replay);
  consistency_inputs inputs = {keep->resume ? keep->resume : keep->weights};
  if (keep->resume) inputs.base = keep->weights;
  inputs.adapter_hash = keep->adapter_hash;
  if (locked && ok) {
    inputs.lock = locked->lock;
    inputs.locked_last = locked->last ? locked->last : tsr_run_lock_last(locked->lock);
  }
  if (replay) inputs.routing_hash = tsr_routing_replay_hash(replay);
  if (p.has_data) inputs.data = &p.data;
  ok = tsr_job_all_succeeded(&a->job, ok) && consistency_check(a, s, &p.training, &inputs);
  if (!ok) prepare_explain_model(a, s, &p);
  if (!ok) return console_finish(a, false);
  tsr_diags_print(a->diags, stderr); /* warnings and notes before the run, not after it */
  console_print_dumps(a, s, &p.training);
  if (!a->options.quiet) console_print_start(a, s, &p);
  fflush(stdout);
  app_catch_signals();
  ok = train(a, s, &p, keep, replay, locked, &ended_by);
  tsr_compute_close(&s->compute);
  return ending_code(a, ok, ended_by);
}
