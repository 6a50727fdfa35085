// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint_start.h"
#include "base/file_read.h"
#include "base/memory.h"
#include "checkpoint/hf_side_files.h"
#include "checkpoint/reader.h"
#include "config/print.h"
#include "train/data_paths.h"
#include "train/resume_recipe.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
  if (!tsr_checkpoint_start_has_same(k, found ? m->state.step : -1))
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "the processes see different checkpoints in '%s'", k->options.folder);
  if (!found || (resume && resume->state.step == m->state.step)) return true;
  tsr_diag_note(
      diags, TSR_NOWHERE, "'%s' was written by a run that ended while this one began", m->folder);
  k->options.resume = m;
  return tsr_checkpoint_start_check(k, m, recipe, count, diags);
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
  if (d->tokenizer.kind == TSR_TOKENIZER_SUBWORD) {
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

/* Where a file beside the weights is copied from; NULL: there is none. A tokenizer.model goes with
 * the tokenizer. Of conversations it is what they were rendered with: the file of data.template,
 * and those beside the tokenizer, which name the padding of labelled texts, too. */
static const char *
find_side(tsr_arena *arena, const tsr_checkpoint_manager *k, const char *name, bool *ret_follows) {
  const tsr_config *c = k->run.config;
  const tsr_manifest *from = k->options.resume ? k->options.resume : k->options.weights;
  const char *tokenizer = k->run.data->tokenizer_file, *path;
  bool chat = c->data.format == TSR_FILES_CHAT;
  *ret_follows = true;
  if (chat && strcmp(c->data.template_path, "tokenizer") && !strcmp(name, "chat_template.jinja"))
    return tsr_data_path(arena, c, c->data.template_path);
  bool is_pieces = !strcmp(name, "tokenizer.model");
  if (tokenizer && (chat || c->data.format == TSR_FILES_LABELS || is_pieces)) {
    path = tsr_path_join(arena, tsr_path_folder(arena, tokenizer), name);
    if (tsr_file_exists(path)) return path;
    if (is_pieces) return NULL;
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

/* What a run has left that was resumed from before it is none of this run's. */
static bool
find_foreign(tsr_arena *arena, tsr_checkpoint_manager *k, int64_t begin, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(arena, k->options.folder, &entries, &count, diags)) return false;
  k->foreign = tsr_arena_array(arena, int64_t, count + 1);
  for (int i = 0; i < count; i++)
    if (entries[i].step > begin) k->foreign[k->foreign_count++] = entries[i].step;
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
  bool ok = (!resume || tsr_checkpoint_start_check(k, resume, recipe, count, diags)) &&
            (!options->folder ||
             (take_folder(arena, k, diags) && find_newest(arena, k, recipe, count, diags))) &&
            make_room(k, k->options.resume ? k->options.resume->state.step + 1 : 1, diags) &&
            tsr_checkpoint_start_load(arena, k, recipe, count, state, diags);
  resume = k->options.resume;
  tsr_resume_recipe(arena, run, resume, &recipe, &count);
  ok = ok && (!options->folder || (open_saver(arena, k, recipe, count, diags) &&
                                   find_foreign(arena, k, state->step, diags)));
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

bool tsr_checkpoint_manager_is_due(const tsr_checkpoint_manager *k, int64_t step) {
  int64_t every = k ? k->run.config->training.model_save_interval : 0;
  return every && k->saver && step % every == 0;
}

static void take(tsr_checkpoint_manager *k, const tsr_run_state *state, tsr_diags *diags) {
  tsr_saver_history history = {k->loss, k->norm};
  if (!tsr_saver_take(k->saver, state, history, diags)) return;
  k->taken = state->step;
  for (int i = 0; i < k->foreign_count; i++)
    if (k->foreign[i] == state->step) k->foreign[i] = -1;
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
  if (wanted || tsr_checkpoint_manager_is_due(k, state->step)) take(k, state, diags);
}

bool tsr_checkpoint_manager_is_writing(const tsr_checkpoint_manager *k) {
  return k && k->saver && tsr_saver_is_busy(k->saver);
}

int64_t tsr_checkpoint_manager_taken(const tsr_checkpoint_manager *k) {
  return k && k->saver ? k->taken : -1;
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

bool tsr_checkpoint_manager_is_past_half(const tsr_checkpoint_manager *k) {
  return k->options.limit_s && now() - k->begin > k->options.limit_s / 2;
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
