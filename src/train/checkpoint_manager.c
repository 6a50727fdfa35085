// SPDX-License-Identifier: Apache-2.0
#include "train/adapter_magnitudes.h"
#include "train/checkpoint_manager.h"
#include "base/file_read.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/hf_side_files.h"
#include "checkpoint/load.h"
#include "checkpoint/peft.h"
#include "config/print.h"
#include "train/data_paths.h"
#include "train/resume_recipe.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tsr_checkpoint_manager {
  tsr_arena *arena;
  tsr_checkpoint_manager_options options;
  tsr_checkpoint_manager_run run;
  tsr_saver *saver;
  tsr_folder_lock lock; /* of the checkpoints, on process 0 */
  float *loss, *norm;   /* of steps 1 … */
  int64_t capacity;
  int64_t taken;         /* the step of the newest checkpoint that was taken; -1 */
  double begin, slowest; /* the run's begin; seconds of its slowest step */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- where the run begins ---- */

/* The recipe has the samples of a step, so the position follows from the step. */
static bool
check_position(const tsr_checkpoint_manager_run *r, const tsr_manifest *m, tsr_diags *diags) {
  if (m->state.samples == m->state.step * r->samples_per_step) return true;
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "'%s' is after %lld samples, and %lld steps of this run have %lld",
      m->folder, (long long)m->state.samples, (long long)m->state.step,
      (long long)(m->state.step * r->samples_per_step));
}

static bool
load(tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_manifest *m, tsr_diags *diags) {
  bool verify = k->run.config->checkpoint.verify;
  bool ok = tsr_checkpoint_load(arena, m, k->run.executable, TSR_LOAD_RUN, verify, diags) &&
            tsr_checkpoint_history(arena, m, k->loss, k->norm, diags);
  if (!tsr_executable_agree(k->run.executable, !ok)) return true;
  if (ok) tsr_diag_failure(diags, TSR_NOWHERE, "another process cannot read '%s'", m->folder);
  return false;
}

/* Whether all processes have the same number: some bit of a larger one is not in a smaller one. */
static bool have_same(const tsr_checkpoint_manager *k, int64_t number) {
  uint64_t bits = (uint64_t)number, set = tsr_executable_agree(k->run.executable, bits),
           clear = tsr_executable_agree(k->run.executable, ~bits);
  return !(set & clear);
}

/* Of the run's folder, the newest that is older and that all processes have; NULL: there is none.
 * */
static const tsr_manifest *
before(tsr_arena *arena, const tsr_checkpoint_manager *k, const tsr_manifest *m, tsr_diags *diags) {
  tsr_manifest *older = tsr_arena_alloc(arena, sizeof *older);
  bool found = tsr_checkpoints_newest(arena, k->options.folder, m->state.step, older, diags);
  if (!have_same(k, found ? older->state.step : -1)) return NULL;
  return found ? older : NULL;
}

bool tsr_checkpoint_manager_none_whole(const char *folder, tsr_diags *diags) {
  tsr_diag_failure(diags, TSR_NOWHERE, "'%s' has checkpoints, and none can be read", folder);
  tsr_diag_hint(
      diags,
      "--overwrite without --resume discards them; `checkpoint verify` reports what is damaged");
  return false;
}

/* Whether the run is the one that a checkpoint is of. */
static bool check_same(
    const tsr_checkpoint_manager *k, const tsr_manifest *m, const tsr_recipe_entry *recipe,
    int count, tsr_diags *diags) {
  if (!m->has_state)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' holds weights alone: training_config.model_path begins with them",
        m->folder);
  return tsr_resume_recipe_check(&k->run, m, recipe, count, diags) &&
         check_position(&k->run, m, diags);
}

/* A run whose steps are all made is done again, for scripts that ask for it; one that has made more
 * is another run than the user thinks. */
static void report_excess(const tsr_checkpoint_manager *k, int64_t step, tsr_diags *diags) {
  int64_t last = k->run.total_steps;
  if (step < last) return;
  if (!k->run.quiet) printf("nothing is left to train: the run has %lld steps\n", (long long)last);
  if (step == last) return;
  const char *key = "training_config.max_steps";
  if (last < k->run.config->training.max_steps) key = "training_config.num_epochs";
  tsr_diag_warning(
      diags, tsr_config_location(k->run.config, key),
      "the checkpoint is after step %lld, behind the run's last step, %lld", (long long)step,
      (long long)last);
}

static bool go_on(
    tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_recipe_entry *recipe, int count,
    tsr_run_state *state, tsr_diags *diags) {
  const tsr_manifest *m = k->options.resume;
  for (;;) {
    tsr_diags *errors = k->options.named ? diags : tsr_diags_new(arena);
    if (load(arena, k, m, errors)) break;
    if (errors == diags) return false;
    tsr_checkpoint_pass_over(m->folder, errors, diags);
    m = k->options.resume = before(arena, k, m, diags);
    if (!m) return tsr_checkpoint_manager_none_whole(k->options.folder, diags);
    if (!check_same(k, m, recipe, count, diags)) return false;
  }
  *state = m->state;
  if (!k->run.quiet)
    printf("resumes from '%s', after step %lld\n", m->folder, (long long)state->step);
  report_excess(k, state->step, diags);
  return true;
}

static bool load_adapter(tsr_arena *arena, tsr_checkpoint_manager *k, tsr_diags *diags) {
  const char *folder = k->options.adapter;
  tsr_location location = tsr_config_location(k->run.config, "lora_config.path");
  tsr_trained_values values = tsr_trained_values_new(arena, k->run.training->graph);
  if (!tsr_peft_read(arena, folder, location, &values, diags)) return false;
  tsr_trained_values_load(arena, &values, k->run.executable);
  if (!k->run.quiet) printf("adapters: '%s'\n", folder);
  return true;
}

static bool begin(
    tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_recipe_entry *recipe, int count,
    tsr_run_state *state, tsr_diags *diags) {
  const tsr_manifest *weights = k->options.weights;
  bool verify = k->run.config->checkpoint.verify;
  tsr_load_kind kind = k->options.resume ? TSR_LOAD_BASE : TSR_LOAD_MODEL;
  if (weights && !tsr_checkpoint_load(arena, weights, k->run.executable, kind, verify, diags))
    return false;
  if (weights && !k->run.quiet) printf("weights: '%s'\n", weights->folder);
  if (!k->options.resume) tsr_magnitudes_begin(k->run.executable, k->run.training->graph);
  if (k->options.adapter && !load_adapter(arena, k, diags)) return false;
  return !k->options.resume || go_on(arena, k, recipe, count, state, diags);
}

/* ---- the folder ---- */

/* A new run leaves another one's checkpoints alone. */
static bool check_empty(tsr_arena *arena, const tsr_checkpoint_manager *k, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  const char *folder = k->options.folder;
  if (!tsr_checkpoints_list(arena, folder, &entries, &count, diags)) return false;
  if (!count) return true;
  tsr_diag_error(
      diags, tsr_config_location(k->run.config, "training_config.checkpoint_dir"),
      "'%s' has the checkpoints of a run, up to step %lld", folder,
      (long long)entries[count - 1].step);
  return tsr_out_folder_suggest(k->options.purpose, "another checkpoint_dir", diags);
}

/* Of a run's --out folder or of a checkpoint, others expect other things than checkpoints. */
static bool check_place(tsr_arena *arena, const tsr_checkpoint_manager *k, tsr_diags *diags) {
  const char *folder = k->options.folder, *out = k->options.out;
  tsr_location location = tsr_config_location(k->run.config, "training_config.checkpoint_dir");
  if (tsr_file_exists(tsr_path_join(arena, folder, TSR_MANIFEST_NAME)))
    return tsr_diag_error(diags, location, "'%s' is a checkpoint, not a folder of them", folder);
  const char *others[][2] = {
      {k->options.gradients, "--dump-grads"}, {k->options.routing, "--record-routing"}};
  for (int i = 0; i < 2; i++)
    if (others[i][0] && tsr_file_is_same(folder, others[i][0]))
      return tsr_diag_error(
          diags, location, "'%s' is the %s folder of this run", folder, others[i][1]);
  bool own = out && tsr_file_is_same(folder, out);
  if (!own && !tsr_out_folder_has_run(arena, folder)) return true;
  tsr_diag_error(
      diags, location, "'%s' is the --out folder of %s run", folder, own ? "this" : "another");
  tsr_diag_hint(diags, "the checkpoints of that run are in '%s/checkpoints' by default", folder);
  return false;
}

static bool agree_on_folder(const tsr_checkpoint_manager *k, bool ok, tsr_diags *diags) {
  if (!tsr_executable_agree(k->run.executable, !ok)) return true;
  return ok && tsr_diag_failure(
                   diags, TSR_NOWHERE, "another process cannot keep checkpoints in '%s'",
                   k->options.folder);
}

/* Every process writes its own shards, all into the folder that process 0 has taken. */
static bool sees_folder(tsr_arena *arena, const tsr_checkpoint_manager *k, tsr_diags *diags) {
  const char *folder = k->options.folder;
  char here[PATH_MAX] = "";
  if (tsr_folder_lock_is_of(arena, folder, k->options.owner)) return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "process %d does not see the folder '%s' that process 0 has made",
      k->run.process, folder);
  if (*folder != '/' && getcwd(here, sizeof here))
    tsr_diag_hint(
        diags, "it was looked for in '%s'; an absolute path is the same everywhere", here);
  else tsr_diag_hint(diags, "checkpoints of many hosts need a file system that they share");
  return false;
}

/* Under the lock, so that nothing comes between. */
static bool take_folder(tsr_arena *arena, tsr_checkpoint_manager *k, tsr_diags *diags) {
  const tsr_checkpoint_manager_options *o = &k->options;
  tsr_location location = tsr_config_location(k->run.config, "training_config.checkpoint_dir");
  bool is_new = o->purpose == TSR_OUT_NEW || o->purpose == TSR_OUT_ONCE;
  bool ok = k->run.process > 0 ||
            (check_place(arena, k, diags) &&
             tsr_checkpoints_take_folder(arena, o->folder, location, &k->lock, diags) &&
             (!is_new || check_empty(arena, k, diags)));
  return agree_on_folder(k, ok, diags) &&
         agree_on_folder(k, k->run.process == 0 || sees_folder(arena, k, diags), diags);
}

/* Until this process had the folder, another run may have written checkpoints there: the newest is
 * looked for again. */
static bool find_newest(
    tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_recipe_entry *recipe, int count,
    tsr_diags *diags) {
  const tsr_manifest *resume = k->options.resume;
  if (!k->options.resumes || k->options.named) return true;
  tsr_manifest *m = tsr_arena_alloc(arena, sizeof *m);
  bool found = tsr_checkpoints_newest(arena, k->options.folder, INT64_MAX, m, tsr_diags_new(arena));
  if (!have_same(k, found ? m->state.step : -1))
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "the processes see different checkpoints in '%s'", k->options.folder);
  if (!found || (resume && resume->state.step == m->state.step)) return true;
  tsr_diag_note(
      diags, TSR_NOWHERE, "'%s' was written by a run that ended while this one began", m->folder);
  k->options.resume = m;
  return check_same(k, m, recipe, count, diags);
}

/* ---- the files beside the tensors ---- */

static const char *config_text(tsr_arena *arena, const tsr_config *config) {
  tsr_text text = {0};
  tsr_config_print(config, &text);
  const char *copy = tsr_arena_strndup(arena, text.data, text.length);
  tsr_text_free(&text);
  return copy;
}

/* Of characters, decoding them all gives the text that makes the vocabulary again. */
static void
add_tokenizer(tsr_arena *arena, const tsr_checkpoint_manager_run *r, tsr_saver_options *o) {
  const tsr_dataset *d = &r->data->dataset;
  if (d->kind != TSR_DATASET_TEXT) return;
  if (d->tokenizer.kind == TSR_TOKENIZER_BPE) {
    o->tokenizer = "tokenizer.json";
    o->tokenizer_from = r->data->tokenizer_file;
  }
  if (d->tokenizer.kind != TSR_TOKENIZER_CHAR) return;
  int32_t vocab = d->tokenizer.vocab_size;
  int32_t *all = tsr_arena_array(arena, int32_t, vocab + 1);
  for (int32_t i = 0; i < vocab; i++) all[i] = i;
  tsr_text text = {0};
  tsr_tokenizer_decode(&d->tokenizer, all, vocab, &text);
  o->tokenizer = "vocabulary.txt";
  o->tokenizer_length = text.length;
  o->tokenizer_bytes = tsr_arena_strndup(arena, text.data ? text.data : "", text.length);
  tsr_text_free(&text);
}

/* Where a file beside the weights is copied from; NULL: there is none. Of conversations it is what
 * they were rendered with: the file of data.template, and those beside the tokenizer. */
static const char *
find_side(tsr_arena *arena, const tsr_checkpoint_manager *k, const char *name, bool *ret_follows) {
  const tsr_config *c = k->run.config;
  const tsr_manifest *from = k->options.resume ? k->options.resume : k->options.weights;
  const char *tokenizer = k->run.data->tokenizer_file, *path;
  bool chat = c->data.format == TSR_FILES_CHAT;
  *ret_follows = true;
  if (chat && strcmp(c->data.template_path, "tokenizer") && !strcmp(name, "chat_template.jinja"))
    return tsr_data_path(arena, c, c->data.template_path);
  if (chat && tokenizer) {
    path = tsr_path_join(arena, tsr_path_folder(arena, tokenizer), name);
    if (tsr_file_exists(path)) return path;
  }
  *ret_follows = false;
  path = from ? tsr_path_join(arena, from->folder, name) : NULL;
  return path && tsr_file_exists(path) ? path : NULL;
}

/* What an imported model has beside its weights is handed on, so that an export has it too. Read
 * now: a checkpoint that a run resumed from may be removed during the run. */
static bool add_sides(
    tsr_arena *arena, const tsr_checkpoint_manager *k, tsr_saver_options *o, tsr_diags *diags) {
  enum { BYTES_MAX = 1 << 26, SIDES_MAX = 16 };
  const tsr_manifest *from = k->options.resume ? k->options.resume : k->options.weights;
  const tsr_config_data *data = &k->run.config->data;
  const char *tokenizer = k->run.data->tokenizer_file;
  if (tokenizer && data->format == TSR_FILES_CHAT && !strcmp(data->template_path, "tokenizer"))
    tsr_hf_warn_of_templates(arena, tsr_path_folder(arena, tokenizer), diags);
  tsr_side_file *sides = tsr_arena_array(arena, tsr_side_file, SIDES_MAX);
  o->sides = sides;
  if (from && !tsr_checkpoint_reader_check_sides(arena, from, diags)) return false;
  for (int i = 0; tsr_hf_side_files[i] && i < SIDES_MAX; i++) {
    const char *name = tsr_hf_side_files[i];
    bool follows;
    const char *path = find_side(arena, k, name, &follows);
    if (!path || (o->tokenizer && !strcmp(name, o->tokenizer))) continue;
    tsr_side_file *s = &sides[o->sides_count++];
    s->name = name;
    char *bytes;
    bool ok = follows
                  ? tsr_file_read(arena, path, BYTES_MAX, TSR_NOWHERE, &bytes, &s->length, diags)
                  : tsr_file_read_nofollow(
                        arena, path, BYTES_MAX, TSR_NOWHERE, &bytes, &s->length, diags);
    if (!ok) return false;
    s->bytes = bytes;
  }
  return true;
}

static bool open_saver(
    tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_recipe_entry *recipe, int count,
    tsr_diags *diags) {
  const tsr_config_checkpoint *c = &k->run.config->checkpoint;
  tsr_saver_options o = {
      .folder = k->options.folder,
      .keep_last = c->keep_last,
      .keep_every = c->keep_every,
      .tag = c->tag[0] ? c->tag : NULL,
      .optimizer = c->optimizer,
      .background = c->background,
      .process = k->run.process,
      .processes = k->run.processes,
      .timeout_s = k->run.config->collectives.timeout_s,
      .mesh = k->options.mesh_text,
      .isa = k->run.isa,
      .version = k->options.version,
      .recipe = recipe,
      .recipe_count = count,
      .config = config_text(arena, k->run.config)};
  add_tokenizer(arena, &k->run, &o);
  if (!add_sides(arena, k, &o, diags)) return false;
  bool all = k->options.purpose == TSR_OUT_OVERWRITES;
  bool clean = k->run.process > 0 || tsr_checkpoints_clean(arena, o.folder, all, diags);
  if (!agree_on_folder(k, clean, diags)) return false;
  bool opened = tsr_saver_open(arena, k->run.executable, &o, &k->saver, diags);
  if (!agree_on_folder(k, opened, diags)) return false;
  if (k->run.quiet) return true;
  int64_t every = k->run.config->training.model_save_interval;
  printf(
      "checkpoints: %s each into '%s'", tsr_text_bytes(tsr_saver_bytes(k->saver)).text, o.folder);
  if (every) printf(", every %lld steps and at the end\n", (long long)every);
  else printf(", at the end\n");
  return true;
}

static bool make_room(tsr_checkpoint_manager *k, int64_t steps, tsr_diags *diags) {
  if (steps <= k->capacity) return true;
  int64_t capacity = k->capacity * 2 > steps ? k->capacity * 2 : steps + 1024;
  float *loss = tsr_memory_try_grow(k->loss, sizeof(float) * (size_t)capacity);
  if (loss) k->loss = loss;
  float *norm = tsr_memory_try_grow(k->norm, sizeof(float) * (size_t)capacity);
  if (norm) k->norm = norm;
  if (!loss || !norm)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory for the losses of %lld steps", (long long)steps);
  k->capacity = capacity;
  return true;
}

bool tsr_checkpoint_manager_open(
    tsr_arena *arena, const tsr_checkpoint_manager_options *options,
    const tsr_checkpoint_manager_run *run, tsr_run_state *state, tsr_checkpoint_manager **ret,
    tsr_diags *diags) {
  tsr_checkpoint_manager *k = *ret = tsr_arena_alloc(arena, sizeof *k);
  *k = (tsr_checkpoint_manager){
      .arena = arena, .options = *options, .run = *run, .taken = -1, .begin = now()};
  k->lock = TSR_FOLDER_LOCK_NONE;
  tsr_recipe_entry *recipe;
  int count;
  const tsr_manifest *resume = options->resume;
  tsr_resume_recipe(arena, run, resume, &recipe, &count);
  bool ok = (!resume || check_same(k, resume, recipe, count, diags)) &&
            (!options->folder ||
             (take_folder(arena, k, diags) && find_newest(arena, k, recipe, count, diags))) &&
            make_room(k, k->options.resume ? k->options.resume->state.step + 1 : 1, diags) &&
            begin(arena, k, recipe, count, state, diags);
  resume = k->options.resume;
  tsr_resume_recipe(arena, run, resume, &recipe, &count);
  ok = ok && (!options->folder || open_saver(arena, k, recipe, count, diags));
  bool there = ok && resume && options->folder &&
               !strcmp(tsr_checkpoint_path(arena, options->folder, state->step), resume->folder);
  if (there) k->taken = state->step;
  if (!ok) tsr_checkpoint_manager_close(k);
  return ok;
}

const tsr_manifest *tsr_checkpoint_manager_resumed(const tsr_checkpoint_manager *k) {
  return k->options.resume;
}

/* ---- during the run ---- */

static bool is_due(const tsr_checkpoint_manager *k, int64_t step) {
  int64_t every = k->run.config->training.model_save_interval;
  return every && step % every == 0;
}

static void take(tsr_checkpoint_manager *k, const tsr_run_state *state, tsr_diags *diags) {
  tsr_saver_history history = {k->loss, k->norm};
  if (tsr_saver_take(k->saver, state, history, diags)) k->taken = state->step;
}

void tsr_checkpoint_manager_step(
    tsr_checkpoint_manager *k, const tsr_run_state *state, double loss, double norm, double seconds,
    bool wanted, tsr_diags *diags) {
  if (!make_room(k, state->step, diags)) return;
  k->loss[state->step - 1] = (float)loss;
  k->norm[state->step - 1] = (float)norm;
  if (seconds > k->slowest) k->slowest = seconds;
  if (!k->saver) return;
  tsr_saver_report(k->saver, diags);
  if (wanted || is_due(k, state->step)) take(k, state, diags);
}

bool tsr_checkpoint_manager_is_writing(const tsr_checkpoint_manager *k) {
  return k && k->saver && tsr_saver_is_busy(k->saver);
}

enum { MARGIN_S = 1 };

static bool ends_late(const tsr_checkpoint_manager *k, double work_s, bool saves) {
  if (!k->options.limit_s) return false;
  double save_s = saves && k->saver ? 2 * tsr_saver_seconds(k->saver) : 0;
  return now() - k->begin + work_s + save_s + MARGIN_S > k->options.limit_s;
}

bool tsr_checkpoint_manager_is_late(const tsr_checkpoint_manager *k) {
  return ends_late(k, 2 * k->slowest, true);
}

bool tsr_checkpoint_manager_is_out_of_time(const tsr_checkpoint_manager *k, int64_t step) {
  return ends_late(k, 0, k->taken != step);
}

/* Waits for the newest; whether it is of this state and on the disk, for all processes. */
static bool is_kept(tsr_checkpoint_manager *k, const tsr_run_state *state, tsr_diags *diags) {
  bool ok = tsr_saver_wait(k->saver, diags) && k->taken == state->step;
  return !tsr_executable_agree(k->run.executable, !ok);
}

/* A write that fails is tried once more: what made it fail may have been the one before it. */
bool tsr_checkpoint_manager_finish(
    tsr_checkpoint_manager *k, const tsr_run_state *state, tsr_diags *diags) {
  if (!k->saver || !state->step) return true;
  bool ok = is_kept(k, state, diags);
  for (int i = 0; i < 2 && !ok; i++) {
    take(k, state, diags);
    ok = is_kept(k, state, diags);
  }
  const char *reason = tsr_saver_reason(k->saver);
  return ok ||
         tsr_diag_failure(
             diags, TSR_NOWHERE, "the state after step %lld, the last, is not on the disk%s%s",
             (long long)state->step, *reason ? ": " : "", reason);
}

void tsr_checkpoint_manager_close(tsr_checkpoint_manager *k) {
  if (!k) return;
  tsr_saver_close(k->saver);
  tsr_checkpoints_give_back(k->arena, &k->lock);
  free(k->loss);
  free(k->norm);
  k->saver = NULL;
  k->loss = k->norm = NULL;
}
