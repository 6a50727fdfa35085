// SPDX-License-Identifier: Apache-2.0
#include "train/out_folder.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "checkpoint/folder.h"
#include "config/print.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first line of config.yaml. */
static const char mark[] = "# The configuration of a run of tessera-train, with all defaults\n";

bool tsr_out_folder_has_run(tsr_arena *arena, const char *path) {
  return tsr_file_begins(tsr_path_join(arena, path, "config.yaml"), mark);
}

static bool has_bytes(const char *path) {
  struct stat info;
  return !stat(path, &info) && info.st_size > 0;
}

/* What may differ when a run resumes, as in config/recipe_keys.c: where the work is done, how
 * far it goes, and what is shown of it. */
static bool may_change(const char *section, const char *key, int length) {
  static const char *const sections[] = {"device_config", "mesh",        "eval_config",
                                         "schedule",      "pipeline",    "zero",
                                         "checkpoint",    "collectives", "elastic"};
  static const char *const keys[] = {
      "project_name",
      "batch_size",
      "batch_size_per_rank",
      "gradient_accumulation_steps",
      "max_steps",
      "num_epochs",
      "validation_batch_size",
      "eval_every",
      "log_every",
      "checkpoint_dir",
      "model_save_interval",
      "sample_every",
      "sample_tokens",
      "runner",
      "model_path",
      "threads",
      "isa",
      "batch",
      "sequence",
      "expert",
      "tp"};
  size_t section_length = strcspn(section, ":");
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    if (strlen(sections[i]) == section_length && !strncmp(section, sections[i], section_length))
      return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if ((int)strlen(keys[i]) == length && !strncmp(key, keys[i], (size_t)length)) return true;
  return false;
}

/* The lines that a run keeps, without the comments about the values' origins. */
static const char *values_of(tsr_arena *arena, const char *text) {
  tsr_text values = {0};
  const char *section = "";
  for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    const char *key = line + strspn(line, " "), *comment = strstr(line, "# ");
    int bytes = (int)strcspn(line, "\n");
    if (comment && comment < line + bytes) bytes = (int)(comment - line);
    while (bytes && line[bytes - 1] == ' ') bytes--;
    if (key == line && bytes) section = line;
    if (!bytes || may_change(section, key, (int)strcspn(key, ":\n"))) continue;
    tsr_text_add(&values, "%.*s\n", bytes, line);
  }
  const char *copy = tsr_arena_strdup(arena, values.data ? values.data : "");
  tsr_text_free(&values);
  return copy;
}

/* The values of the run that the folder's config.yaml is of; false: it has none that can be read.
 * It may be cut by a power cut, also where a line ends: whole lines that are left count. */
static bool read_values(tsr_arena *arena, const char *path, const char **ret_values) {
  enum { BYTES_MAX = 1 << 24 };
  const char *file = tsr_path_join(arena, path, "config.yaml");
  char *text;
  size_t length;
  if (!tsr_file_begins(file, mark) ||
      !tsr_file_read_nofollow(
          arena, file, BYTES_MAX, TSR_NOWHERE, &text, &length, tsr_diags_new(arena)))
    return false;
  strrchr(text, '\n')[1] = 0;
  *ret_values = values_of(arena, text);
  return true;
}

static const char *values_of_run(tsr_arena *arena, const tsr_config *config) {
  tsr_text text = {0};
  tsr_config_print(config, &text);
  const char *values = values_of(arena, text.data);
  tsr_text_free(&text);
  return values;
}

bool tsr_out_folder_is_of(tsr_arena *arena, const char *path, const tsr_config *config) {
  const char *values;
  return read_values(arena, path, &values) &&
         !strncmp(values, values_of_run(arena, config), strlen(values));
}

/* ---- what differs ---- */

typedef struct {
  const char *key, *value; /* "training_config.seed", "1"; a map has no value */
} setting;

enum { LEVELS_MAX = 16 };

/* The key with those that it is in: maps are two spaces further in. */
static const char *
whole_key(tsr_arena *arena, const char *keys[LEVELS_MAX], const char *line, int key_bytes) {
  size_t level = strspn(line, " ") / 2;
  if (level >= LEVELS_MAX) level = LEVELS_MAX - 1;
  const char *key = tsr_arena_strndup(arena, line + strspn(line, " "), (size_t)key_bytes);
  if (level && keys[level - 1]) key = tsr_arena_printf(arena, "%s.%s", keys[level - 1], key);
  for (size_t i = level; i < LEVELS_MAX; i++) keys[i] = key;
  return key;
}

static setting *read_settings(tsr_arena *arena, const char *values, int *ret_count) {
  setting *list = NULL;
  int capacity = 0;
  const char *keys[LEVELS_MAX] = {0};
  *ret_count = 0;
  for (const char *line = values; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    const char *key = line + strspn(line, " ");
    size_t bytes = strcspn(key, ":\n"), length = strcspn(key, "\n");
    const char *value = key[bytes] == ':' ? key + bytes + 1 : key + length;
    value += strspn(value, " ");
    tsr_arena_grow(arena, (void **)&list, sizeof *list, *ret_count, &capacity);
    list[(*ret_count)++] = (setting){
        whole_key(arena, keys, line, (int)bytes),
        tsr_arena_strndup(arena, value, strcspn(value, "\n"))};
  }
  return list;
}

static const char *find_setting(const setting *list, int count, const char *key) {
  for (int i = 0; i < count; i++)
    if (!strcmp(list[i].key, key)) return list[i].value;
  return "not given";
}

bool tsr_out_folder_explain(
    tsr_arena *arena, const char *folder, const tsr_config *config, tsr_diags *diags) {
  enum { SHOWN_MAX = 5 };
  const char *values;
  int here_count, there_count, shown = 0;
  if (read_values(arena, folder, &values)) {
    setting *there = read_settings(arena, values, &there_count);
    setting *here = read_settings(arena, values_of_run(arena, config), &here_count);
    for (int i = 0; i < there_count; i++) {
      const char *value = find_setting(here, here_count, there[i].key);
      if (!strcmp(value, there[i].value) || ++shown > SHOWN_MAX) continue;
      tsr_diag_hint(
          diags, "'%s' is %s in this run, and %s in that one", there[i].key, value, there[i].value);
    }
  }
  if (shown > SHOWN_MAX) tsr_diag_hint(diags, "%d more keys differ", shown - SHOWN_MAX);
  tsr_diag_hint(
      diags,
      "a run continues with the recipe that it began with; --overwrite without --resume discards "
      "the results, another folder keeps them");
  return false;
}

bool tsr_out_folder_suggest(tsr_out_purpose purpose, const char *other, tsr_diags *diags) {
  tsr_diag_hint(
      diags, "%s--overwrite discards it, %s keeps it",
      purpose == TSR_OUT_NEW ? "--resume continues it, " : "", other);
  return false;
}

/* A run's folder is no checkpoint, and holds none but its own: they would be read in place of those
 * in its folder `checkpoints`. */
static bool check_checkpoints(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  if (tsr_file_exists(tsr_path_join(arena, folder, TSR_MANIFEST_NAME)))
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' is a checkpoint: --out names another folder", folder);
  if (!tsr_checkpoints_list(arena, folder, &entries, &count, diags)) return false;
  if (!count) return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' is a folder of checkpoints, up to step %lld: --out names another",
      folder, (long long)entries[count - 1].step);
}

/* What is in the folder: a run's results, or a file of somebody else's. */
static bool check_content(
    tsr_arena *arena, const char *folder, tsr_out_purpose purpose, const tsr_config *run,
    tsr_diags *diags) {
  const char *config = tsr_path_join(arena, folder, "config.yaml");
  const char *metrics = tsr_path_join(arena, folder, "metrics.jsonl");
  const char *below = tsr_path_join(arena, folder, "checkpoints");
  tsr_checkpoint_entry *entries;
  int count;
  if (!check_checkpoints(arena, folder, diags) ||
      !tsr_checkpoints_list(arena, below, &entries, &count, diags))
    return false;
  if (tsr_file_begins(
          tsr_path_join(arena, folder, TSR_SWEEP_JOURNAL_NAME), TSR_SWEEP_JOURNAL_BEGIN))
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' is the folder of a sweep: --out names another one", folder);
  struct stat info;
  if (!lstat(metrics, &info) && S_ISLNK(info.st_mode)) /* it would be written through */
    return tsr_file_cannot("write", metrics, EMLINK, TSR_NOWHERE, diags);
  bool results = count || has_bytes(metrics) || tsr_out_folder_has_run(arena, folder);
  if (!results && tsr_file_exists(config)) {
    tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' is there, and no run of tessera-train has written it", config);
    tsr_diag_hint(
        diags, "--out writes the run's resolved configuration there: name another folder");
    return false;
  }
  if (!results || purpose == TSR_OUT_RESUMES || purpose == TSR_OUT_OVERWRITES) return true;
  if (count)
    tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' has the results of a run, with checkpoints up to step %lld",
        folder, (long long)entries[count - 1].step);
  else tsr_diag_error(diags, TSR_NOWHERE, "'%s' has the results of a run", folder);
  if (purpose == TSR_OUT_ANOTHER) return tsr_out_folder_explain(arena, folder, run, diags);
  return tsr_out_folder_suggest(purpose, "another folder", diags);
}

bool tsr_out_folder_check_metrics(
    tsr_arena *arena, const char *metrics, const char *out, tsr_diags *diags) {
  const char *folder = tsr_path_folder(arena, metrics);
  if ((out && tsr_file_is_same(folder, out)) || !has_bytes(metrics) ||
      !tsr_out_folder_has_run(arena, folder))
    return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' is of another run, whose results '%s' has", metrics, folder);
  tsr_diag_hint(diags, "--metrics of a file elsewhere keeps them");
  return false;
}

bool tsr_out_folder_has_results(
    tsr_arena *arena, const char *path, const char *own_metrics, bool *ret, tsr_diags *diags) {
  const char *metrics = tsr_path_join(arena, path, "metrics.jsonl");
  const char *below = tsr_path_join(arena, path, "checkpoints");
  tsr_checkpoint_entry *entries;
  int here, there;
  bool own = own_metrics && tsr_file_is_same(metrics, own_metrics);
  if (!tsr_checkpoints_list(arena, path, &entries, &here, diags) ||
      !tsr_checkpoints_list(arena, below, &entries, &there, diags))
    return false;
  *ret = here || there || tsr_file_exists(tsr_path_join(arena, path, TSR_MANIFEST_NAME)) ||
         (!own && has_bytes(metrics));
  return true;
}

bool tsr_out_folder_lock(
    tsr_arena *arena, const char *path, tsr_out_folder *ret, tsr_diags *diags) {
  *ret = (tsr_out_folder){.path = path, .lock = TSR_FOLDER_LOCK_NONE};
  ret->is_made = !tsr_file_exists(path);
  if (!tsr_new_folder(path)) {
    ret->path = NULL;
    return tsr_file_cannot("make the folder", path, errno, TSR_NOWHERE, diags);
  }
  if (tsr_folder_lock_take(arena, path, &ret->lock, diags)) return true;
  tsr_out_folder_close(ret);
  return false;
}

bool tsr_out_folder_take(
    tsr_arena *arena, const char *path, tsr_out_purpose purpose, const tsr_config *config,
    tsr_out_folder *ret, tsr_diags *diags) {
  if (!tsr_out_folder_lock(arena, path, ret, diags)) return false;
  if (check_content(arena, path, purpose, config, diags)) {
    ret->is_used = tsr_out_folder_has_run(arena, path);
    return true;
  }
  tsr_out_folder_close(ret);
  return false;
}

bool tsr_out_folder_begin(
    tsr_arena *arena, tsr_out_folder *folder, const tsr_config *config, tsr_diags *diags) {
  const char *path = tsr_path_join(arena, folder->path, "config.yaml");
  tsr_text text = {0};
  folder->has_begun = true;
  if (tsr_file_is_read(path)) return true; /* it is the run's own: an earlier part's */
  tsr_text_add(&text, "%s", mark);
  tsr_config_print(config, &text);
  bool ok = tsr_file_write(path, text.data, text.length, diags);
  tsr_text_free(&text);
  return ok;
}

void tsr_out_folder_close(tsr_out_folder *folder) {
  if (!folder->path) return;
  tsr_folder_lock_release(&folder->lock);
  if (folder->is_made && !folder->has_begun) tsr_disk_remove_empty(folder->path);
  folder->path = NULL;
}
