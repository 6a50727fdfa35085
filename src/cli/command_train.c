// SPDX-License-Identifier: Apache-2.0
/* Commands that train: train and profile. */
#include "cli/job_consistency.h"
#include "cli/trained_model.h"
#include "base/file_read.h"
#include "base/folder_lock.h"
#include "checkpoint/folder.h"
#include "checkpoint/peft.h"
#include "train/determinism.h"
#include "train/epochs.h"
#include "train/profile_run.h"
#include "train/resume_recipe.h"
#include "train/step_files.h"
#include "train/trainer.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A checkpoint of another folder is none of this one's results. */
static bool is_in(const char *checkpoint, const char *folder) {
  char there[PATH_MAX], here[PATH_MAX];
  if (!realpath(checkpoint, there) || !realpath(folder, here)) return false;
  size_t length = strlen(here);
  return !strncmp(there, here, length) && there[length] == '/';
}

static tsr_out_purpose new_results(const app *a) {
  return a->options.command == TSR_COMMAND_PROFILE ? TSR_OUT_ONCE : TSR_OUT_NEW;
}

/* A run that resumes where nothing was saved yet, or from a folder elsewhere, continues in --out if
 * that has the results of the same run. */
static tsr_out_purpose
out_purpose_of(const app *a, const setup *s, const tsr_checkpoint_manager_options *keep) {
  const char *out = a->options.out;
  if (a->options.overwrite) return TSR_OUT_OVERWRITES;
  bool own = keep->resume && is_in(keep->resume->folder, out);
  if (own || (keep->resumes && tsr_out_folder_is_of(a->arena, out, s->config)))
    return TSR_OUT_RESUMES;
  return keep->resumes ? TSR_OUT_ANOTHER : new_results(a);
}

/* What a run leaves, on the process that writes it. */
typedef struct {
  tsr_out_folder out, gradients, routing;
  tsr_metrics *metrics;
  tsr_run_lock_writer *lock;
} results;

static void close_results(results *r) {
  if (r->metrics) tsr_metrics_close(r->metrics);
  if (r->lock) tsr_run_lock_close(r->lock);
  tsr_out_folder_close(&r->routing); /* which may be in the others */
  tsr_out_folder_close(&r->gradients);
  tsr_out_folder_close(&r->out);
}

/* The folders of files of each step. */
static bool take_step_folders(
    app *a, const setup *s, const tsr_checkpoint_manager_options *keep, const char *metrics,
    results *r) {
  const char *gradients = a->options.dump_grads, *routing = a->options.record_routing;
  tsr_step_files_run run = {
      .config = s->config,
      .metrics = metrics,
      .taken = {&r->out, &r->gradients},
      .resumes = keep->resumes,
      .overwrites = a->options.overwrite};
  return (!gradients ||
          tsr_step_folder_take(
              a->arena, &tsr_gradient_files, gradients, &run, &r->gradients, a->diags)) &&
         (!routing ||
          tsr_step_folder_take(a->arena, &tsr_routing_files, routing, &run, &r->routing, a->diags));
}

static bool open_metrics(app *a, const char *metrics, results *r) {
  const char *others[] = {a->options.dump_grads, a->options.record_routing}, *own = a->options.out;
  if (!tsr_metrics_open(a->arena, metrics, a->stop, &r->metrics, a->diags)) return false;
  if (!metrics) return true;
  for (int i = 0; i < 2; i++)
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
  r->routing.lock = TSR_FOLDER_LOCK_NONE;
  bool ok = !first || !a->options.out ||
            tsr_out_folder_take(
                a->arena, a->options.out, out_purpose_of(a, s, keep), s->config, &r->out, a->diags);
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

static bool train(
    app *a, setup *s, prepared *p, const tsr_checkpoint_manager_options *keep,
    tsr_routing_replay *replay, int *ret_signal) {
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
  o.mesh_text = setup_mesh_text(s, a->arena);
  setup_traces_communication(a->diags, &o.comm_trace);
  o.stop = a->stop;
  o.save = a->save_now;
  o.rank_map = s->ranks;
  o.timeout_s = s->config->collectives.timeout_s;
  o.lost = tsr_job_abort;
  o.lost_context = &a->job;
  o.keep = *keep;
  o.keep.mesh_text = o.mesh_text;
  if (!share_owner(a, &o.keep) || !open_results(a, s, keep, &r)) {
    *ret_signal = (int)*a->stop;
    return false;
  }
  o.metrics = r.metrics;
  o.hashes = a->options.command == TSR_COMMAND_TRAIN && a->options.out;
  o.lock = r.lock;
  if (r.out.path) o.out = &r.out;
  if (r.gradients.path) o.gradient_folder = &r.gradients;
  if (r.routing.path) o.routing_folder = &r.routing;
  const tsr_compiled *evaluation = p->evaluation.placed ? &p->evaluation : NULL;
  const tsr_compiled *generation = p->generation.placed ? &p->generation : NULL;
  bool ok =
      a->options.command == TSR_COMMAND_PROFILE
          ? tsr_profile_command(&o, &p->training, &a->job, a->options.steps, ret_signal, a->diags)
      : p->training.graph->loss < 0 ? tsr_run_graph(&o, &p->training, a->diags)
      : a->options.determinism
          ? check_determinism(a, &o, &p->training, ret_signal)
          : tsr_train(&o, &p->training, evaluation, generation, ret_signal, a->diags);
  close_results(&r);
  return ok;
}

/* ---- where it begins, and what it leaves ---- */

static bool is_given(const tsr_config *config, const char *key) {
  return tsr_config_location(config, key).file != NULL;
}

/* NULL: no checkpoints were requested. */
static const char *checkpoint_folder(const app *a, const tsr_config *config) {
  const char *dir = config->training.checkpoint_dir;
  if (a->options.command != TSR_COMMAND_TRAIN) return NULL;
  if (is_given(config, "training_config.checkpoint_dir")) return dir;
  if (a->options.out) return tsr_arena_printf(a->arena, "%s/checkpoints", a->options.out);
  if (is_given(config, "training_config.model_save_interval")) return dir;
  return a->options.resume && !*a->options.resume ? dir : NULL;
}

/* A run that begins anew would replace checkpoints that only this process cannot read. */
static bool check_unread(app *a, const char *folder) {
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(a->arena, folder, &entries, &count, a->diags)) return false;
  if (!count) {
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "'%s' holds no checkpoint to resume from: the run begins at step 0",
        folder);
    return true;
  }
  return tsr_checkpoint_manager_none_whole(folder, a->diags);
}

/* The newest checkpoint of the run's folder, or the one that --resume names. */
static bool find_resume(app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep) {
  const char *named = a->options.resume;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  bool automatic =
      config->checkpoint.resume == TSR_RESUME_AUTO && keep->folder && !a->options.overwrite;
  keep->resumes = named || automatic;
  if (named && *named) {
    keep->resume = m;
    keep->named = true;
    return tsr_checkpoint_find(a->arena, named, TSR_NOWHERE, m, a->diags);
  }
  int before = tsr_diags_errors(a->diags);
  if (!keep->resumes) return true;
  bool found = tsr_checkpoints_newest(a->arena, keep->folder, INT64_MAX, m, a->diags);
  if (found) keep->resume = m;
  if (found || tsr_diags_errors(a->diags) > before) return found;
  return check_unread(a, keep->folder);
}

static tsr_out_purpose purpose_of(const app *a, const tsr_checkpoint_manager_options *keep) {
  if (a->options.overwrite) return TSR_OUT_OVERWRITES;
  bool elsewhere = keep->named && (!keep->folder || !is_in(keep->resume->folder, keep->folder));
  return keep->resumes && !elsewhere ? TSR_OUT_RESUMES : new_results(a);
}

/* Adapters to start from; those of a run that resumes are in its checkpoints. */
static bool find_adapter(app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep) {
  const char *path = config->lora.path;
  if (!config->lora.enabled || !*path || keep->resume) return true;
  tsr_location location = tsr_config_location(config, "lora_config.path");
  keep->adapter = path;
  return tsr_peft_hash(a->arena, path, location, &keep->adapter_hash, a->diags);
}

/* A run with adapters reads its frozen parameters at every start. */
static bool find_weights(app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep) {
  static const char key[] = "training_config.model_path";
  const char *path = config->training.model_path;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  if (config->lora.enabled && !*path)
    tsr_diag_warning(
        a->diags, tsr_config_location(config, "lora_config"),
        "the adapters are trained on random weights: %s names no model", key);
  if (!*path || (keep->resume && !config->lora.enabled)) return true;
  keep->weights = m;
  tsr_location location = tsr_config_location(config, key);
  return tsr_checkpoint_find(a->arena, path, location, m, a->diags) &&
         trained_model_check_whole(a, m, location);
}

/* Keys about checkpoints, other than their defaults, of a run that keeps none. */
static bool
check_idle_keys(app *a, const tsr_config *config, const tsr_checkpoint_manager_options *keep) {
  static const char where[] = "training_config.checkpoint_dir or --out sets where they are kept";
  const tsr_config_checkpoint *c = &config->checkpoint;
  const struct {
    const char *key;
    bool differs;
  } keys[] = {
      {"checkpoint.keep_last", c->keep_last != 3},
      {"checkpoint.keep_every", c->keep_every},
      {"checkpoint.keep_best", c->keep_best},
      {"checkpoint.resume", c->resume == TSR_RESUME_AUTO && !config->elastic.rejoin},
      {"checkpoint.tag", *c->tag},
      {"checkpoint.optimizer", !c->optimizer},
      {"checkpoint.background", !c->background}};
  int errors = tsr_diags_errors(a->diags);
  if (keep->folder || a->options.command != TSR_COMMAND_TRAIN) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(config, keys[i].key);
    if (!keys[i].differs || !location.file) continue;
    tsr_diag(
        a->diags, tsr_diag_normative(a->diags, TSR_WARNING), location,
        "%s has no effect: no checkpoints are kept", keys[i].key);
    tsr_diag_hint(a->diags, where);
  }
  if (config->elastic.rejoin) {
    tsr_diag_warning(
        a->diags, tsr_config_location(config, "elastic.rejoin"),
        "no checkpoints are kept, so a job that comes back begins at step 0");
    tsr_diag_hint(a->diags, where);
  }
  return tsr_diags_errors(a->diags) == errors;
}

/* What the configuration leaves out of the recipe is the checkpoint's. */
static bool take_recipe(app *a, tsr_config *config, const tsr_manifest *m) {
  const char *file = tsr_path_join(a->arena, m->folder, TSR_MANIFEST_NAME);
  tsr_resume_recipe_fill(a->arena, config, m);
  tsr_config_fill(a->arena, config, m->recipe, m->recipe_count, file);
  return setup_override_policy(a, config);
}

/* Before the programs are made. */
static bool find_begin(app *a, tsr_config *config, tsr_checkpoint_manager_options *keep) {
  keep->folder = checkpoint_folder(a, config);
  keep->out = a->options.out;
  keep->gradients = a->options.dump_grads;
  keep->routing = a->options.record_routing;
  keep->version = TSR_VERSION;
  keep->limit_s =
      a->options.time_limit_s ? a->options.time_limit_s : config->checkpoint.time_limit_s;
  if (!check_idle_keys(a, config, keep) || !find_resume(a, config, keep) ||
      !find_weights(a, config, keep) || !find_adapter(a, config, keep))
    return false;
  keep->purpose = purpose_of(a, keep);
  return !keep->resume || take_recipe(a, config, keep->resume);
}

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

/* Before the run begins, so that a mistake in them leaves nothing. */
static bool check_variables(tsr_diags *diags) {
  int status;
  bool traces, known = setup_traces_communication(diags, &traces);
  return read_limit_status(diags, &status) && known;
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
  if (code || !ended_by) return code;
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

int app_run_train(app *a) {
  int ended_by = 0;
  setup s = {0};
  prepared p = {0};
  tsr_checkpoint_manager_options keep = {0};
  bool ok = app_join(a, true) && check_variables(a->diags) && setup_load_config(a, &s) &&
            find_begin(a, s.config, &keep);
  tsr_routing_replay *replay = NULL;
  ok = tsr_job_all_succeeded(&a->job, ok) && prepare(a, &s, &p) && open_replay(a, &s, &p, &replay);
  consistency_inputs inputs = {keep.resume ? keep.resume : keep.weights};
  if (keep.resume) inputs.base = keep.weights;
  inputs.adapter_hash = keep.adapter_hash;
  if (replay) inputs.routing_hash = tsr_routing_replay_hash(replay);
  if (p.has_data) inputs.data = &p.data;
  ok = tsr_job_all_succeeded(&a->job, ok) && consistency_check(a, &s, &p.training, &inputs);
  if (!ok) prepare_explain_model(a, &s, &p);
  if (!ok) return console_finish(a, false);
  tsr_diags_print(a->diags, stderr); /* warnings and notes before the run, not after it */
  console_print_dumps(a, &s, &p.training);
  if (!a->options.quiet) console_print_start(a, &s, &p);
  fflush(stdout);
  app_catch_signals();
  ok = train(a, &s, &p, &keep, replay, &ended_by);
  tsr_compute_close(&s.compute);
  return ending_code(a, ok, ended_by);
}
