/* Commands that train: train and profile. */
#include "app.h"
#include "checkpoint/folder.h"
#include "train/profile.h"
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

/* A run that goes on where nothing was saved yet, or from a folder elsewhere, goes on in --out if
 * that has the results of the same run. */
static tsr_out_purpose out_purpose_of(const app *a, const tsr_keeper_options *keep) {
  const char *out = a->cli.out;
  if (a->cli.overwrite) return TSR_OUT_OVERWRITES;
  bool own = keep->resume && is_in(keep->resume->folder, out);
  bool same = own || (keep->resumes && tsr_out_folder_is_of(a->arena, out, a->config));
  return same ? TSR_OUT_RESUMES : TSR_OUT_NEW;
}

/* Where results go, which the first worker takes for all. */
static bool take_results(
    app *a, const tsr_keeper_options *keep, tsr_out_folder *ret_out, tsr_metrics **ret_metrics) {
  bool first = a->transport.worker == 0;
  const char *metrics = first ? a->cli.metrics : NULL;
  *ret_out = (tsr_out_folder){.lock = TSR_FOLDER_LOCK_NONE};
  *ret_metrics = NULL;
  bool ok = !first || !a->cli.out ||
            tsr_out_folder_take(a->arena, a->cli.out, out_purpose_of(a, keep), ret_out, a->diags);
  if (ret_out->path && !metrics)
    metrics = tsr_arena_printf(a->arena, "%s/metrics.jsonl", a->cli.out);
  ok = ok && tsr_metrics_open(a->arena, metrics, ret_metrics, a->diags) &&
       (!metrics || tsr_out_folder_check_metrics(a->arena, metrics, a->cli.out, a->diags));
  ok = app_all_well(a, ok);
  if (!ok && *ret_metrics) tsr_metrics_close(*ret_metrics);
  if (!ok) tsr_out_folder_close(ret_out);
  return ok;
}

static bool train(app *a, const tsr_keeper_options *keep, int *ret_signal) {
  tsr_out_folder out;
  tsr_trainer_options o = {
      .arena = a->arena, .config = a->config, .parallel = a->parallel, .source = &a->source};
  o.kernels = a->kernels;
  o.threads = a->cpu.threads;
  o.device = a->device;
  o.quiet = a->cli.quiet;
  o.out_folder = a->cli.out;
  o.mesh_text = app_mesh_text(a);
  const char *comm_trace = getenv("TESSERA_COMM_TRACE");
  o.comm_trace = comm_trace && *comm_trace && strcmp(comm_trace, "0");
  o.stop = a->stop;
  o.save = a->save_now;
  o.hosting = a->hosting;
  o.timeout_s = a->config->collectives.timeout_s;
  o.lost = app_lost;
  o.lost_context = a;
  o.keep = *keep;
  o.keep.mesh_text = o.mesh_text;
  o.keep.owner = a->first_owner;
  if (!take_results(a, keep, &out, &o.metrics)) return false;
  if (out.path) o.out = &out;
  const tsr_compiled *evaluation = a->evaluation.placed ? &a->evaluation : NULL;
  const tsr_compiled *generation = a->generation.placed ? &a->generation : NULL;
  bool ok = a->cli.command == TSR_COMMAND_PROFILE
                ? tsr_profile_run(&o, &a->training, a->cli.steps, ret_signal, a->diags)
            : a->training.graph->loss < 0
                ? tsr_run_graph(&o, &a->training, a->diags)
                : tsr_train(&o, &a->training, evaluation, generation, ret_signal, a->diags);
  tsr_metrics_close(o.metrics);
  tsr_out_folder_close(&out);
  return ok;
}

/* ---- where it begins, and what it leaves ---- */

static bool is_given(const app *a, const char *key) {
  return tsr_config_place(a->config, key).file != NULL;
}

/* NULL: nobody asked for checkpoints. */
static const char *checkpoint_folder(const app *a) {
  const char *dir = a->config->training.checkpoint_dir;
  if (a->cli.command != TSR_COMMAND_TRAIN) return NULL;
  if (is_given(a, "training_config.checkpoint_dir")) return dir;
  if (a->cli.out) return tsr_arena_printf(a->arena, "%s/checkpoints", a->cli.out);
  if (is_given(a, "training_config.model_save_interval")) return dir;
  return a->cli.resume && !*a->cli.resume ? dir : NULL;
}

/* A run that begins anew would replace checkpoints that only this process cannot read. */
static bool check_unread(app *a, const char *folder) {
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(a->arena, folder, &entries, &count, a->diags)) return false;
  if (!count) {
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "'%s' holds no checkpoint to go on from: the run begins anew",
        folder);
    return true;
  }
  return tsr_keeper_none_whole(folder, a->diags);
}

/* The newest checkpoint of the run's folder, or the one that --resume names. */
static bool find_resume(app *a, tsr_keeper_options *keep) {
  const char *named = a->cli.resume;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  bool automatic =
      a->config->checkpoint.resume == TSR_RESUME_AUTO && keep->folder && !a->cli.overwrite;
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

static tsr_out_purpose purpose_of(const app *a, const tsr_keeper_options *keep) {
  if (a->cli.overwrite) return TSR_OUT_OVERWRITES;
  bool elsewhere = keep->named && (!keep->folder || !is_in(keep->resume->folder, keep->folder));
  return keep->resumes && !elsewhere ? TSR_OUT_RESUMES : TSR_OUT_NEW;
}

static bool find_weights(app *a, tsr_keeper_options *keep) {
  const char *path = a->config->training.model_path;
  if (!*path || keep->resume) return true;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  keep->weights = m;
  return tsr_checkpoint_find(
      a->arena, path, tsr_config_place(a->config, "training_config.model_path"), m, a->diags);
}

/* A job that comes back goes on from its checkpoints. */
static void warn_of_no_folder(app *a, const tsr_keeper_options *keep) {
  if (!a->config->elastic.rejoin || keep->folder || a->cli.command != TSR_COMMAND_TRAIN) return;
  tsr_diag_warning(
      a->diags, tsr_config_place(a->config, "elastic.rejoin"),
      "no checkpoints are kept, so a job that comes back begins anew");
  tsr_diag_hint(a->diags, "training_config.checkpoint_dir or --out says where they are kept");
}

/* Before the programs are made: units that the configuration leaves open are those of the
 * checkpoint. */
static bool find_begin(app *a, tsr_keeper_options *keep) {
  keep->folder = checkpoint_folder(a);
  keep->version = TSR_VERSION;
  keep->limit_s = a->cli.time_limit_s ? a->cli.time_limit_s : a->config->checkpoint.time_limit_s;
  warn_of_no_folder(a, keep);
  if (!find_resume(a, keep) || !find_weights(a, keep)) return false;
  keep->purpose = purpose_of(a, keep);
  if (keep->resume) tsr_recipe_fill(a->arena, a->config, keep->resume);
  return true;
}

/* Scripts that ask for it can tell a run that its time limit has stopped from one that is done. Of
 * many workers the first one says it, behind the others' end: launchers end all when one ends so.
 */
static int limit_status(app *a) {
  const char *wanted = getenv("TESSERA_TIME_LIMIT_STATUS");
  long status = wanted ? strtol(wanted, NULL, 10) : 0;
  if (status < 1 || status > 127 || a->transport.worker) return 0;
  a->ends_last = true;
  return (int)status;
}

static int ending_code(app *a, bool ok, int ended_by) {
  int code = app_finish(a, ok);
  if (code || !ended_by) return code;
  return ended_by == TSR_ENDED_BY_LIMIT ? limit_status(a) : 128 + ended_by;
}

int app_run_train(app *a) {
  int ended_by = 0;
  tsr_keeper_options keep = {0};
  bool ok = app_join(a);
  ok = app_all_well(a, ok && app_load_config(a) && find_begin(a, &keep)) && app_prepare(a);
  if (ok && a->has_source) tsr_dataset_fingerprint(&a->source.dataset, a->input);
  ok = app_all_well(a, ok) && app_agree(a);
  if (!ok) app_explain_model(a);
  if (!ok) return app_finish(a, false);
  tsr_diags_print(a->diags, stderr); /* warnings and notes before the run, not after it */
  app_print_dumps(a);
  if (!a->cli.quiet) app_print_start(a);
  fflush(stdout);
  app_catch_signals();
  ok = train(a, &keep, &ended_by);
  app_close_device(a);
  return ending_code(a, ok, ended_by);
}
