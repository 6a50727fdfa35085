// SPDX-License-Identifier: Apache-2.0
#include "train/step_files.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "tensorboard/event_file.h"
#include <errno.h>
#include <string.h>

const tsr_step_files tsr_gradient_files = {
    "gradients", "--dump-grads", "step-", ".safetensors", NULL};
const tsr_step_files tsr_routing_files = {
    "recorded routing", "--record-routing", "routing-", ".safetensors", NULL};
const tsr_step_files tsr_tensorboard_files = {
    "event files", "--tensorboard", TSR_EVENT_FILE_PREFIX, "", tsr_event_file_is_own};

void tsr_step_file_path(
    const tsr_step_files *files, const char *folder, int64_t step, char *ret_path) {
  snprintf(
      ret_path, strlen(folder) + TSR_STEP_FILE_BYTES, "%s/%s%08lld%s", folder, files->prefix,
      (long long)step, files->ending);
}

/* Of a step, whole or not. */
static bool is_of_step(const tsr_step_files *files, const char *name) {
  return !strncmp(name, files->prefix, strlen(files->prefix)) && strstr(name, files->ending);
}

typedef bool file_act(
    tsr_arena *arena, const tsr_step_files *files, const char *folder, const char *path,
    tsr_diags *diags);

/* Calls for every file of such, until one fails. */
static bool for_each_file(
    tsr_arena *arena, const tsr_step_files *files, const char *folder, file_act *act,
    int *ret_count, tsr_diags *diags) {
  DIR *opened = tsr_disk_open_folder(folder);
  bool ok = true;
  *ret_count = 0;
  if (!opened) return tsr_file_cannot("read the folder", folder, errno, TSR_NOWHERE, diags);
  for (const struct dirent *e; ok && (e = readdir(opened));) {
    if (!is_of_step(files, e->d_name)) continue;
    ++*ret_count;
    ok = act(arena, files, folder, tsr_path_join(arena, folder, e->d_name), diags);
  }
  closedir(opened);
  return ok;
}

static bool remove_file(
    tsr_arena *arena, const tsr_step_files *files, const char *folder, const char *path,
    tsr_diags *diags) {
  (void)arena, (void)files, (void)folder;
  return tsr_disk_remove(path) || tsr_file_cannot("remove", path, errno, TSR_NOWHERE, diags);
}

/* In a folder of this program a file that says nothing of its writer is one of its own. */
static bool check_own(
    tsr_arena *arena, const tsr_step_files *files, const char *folder, const char *path,
    tsr_diags *diags) {
  if (!files->is_own || files->is_own(path, tsr_out_folder_has_run(arena, folder))) return true;
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' was not written by tessera-train", path);
  tsr_diag_hint(diags, "%s names another folder", files->option);
  return false;
}

/* What is in a folder that is not that of --out. */
static bool check_others(
    tsr_arena *arena, const tsr_step_files *files, const char *path, const tsr_step_files_run *run,
    tsr_diags *diags) {
  const char *config = tsr_path_join(arena, path, "config.yaml");
  bool results;
  if (!tsr_out_folder_has_results(arena, path, run->metrics, &results, diags)) return false;
  if (results) tsr_diag_error(diags, TSR_NOWHERE, "'%s' has the results of a run", path);
  else if (!tsr_file_exists(config) || tsr_out_folder_has_run(arena, path)) return true;
  else
    tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' is there, and no run of tessera-train has written it", config);
  tsr_diag_hint(diags, "%s names another folder", files->option);
  return false;
}

static bool check_files(
    tsr_arena *arena, const tsr_step_files *files, const char *path, const tsr_step_files_run *run,
    tsr_diags *diags) {
  int count;
  if (!for_each_file(arena, files, path, check_own, &count, diags)) return false;
  if (!count || run->overwrites) return true;
  if (run->resumes && tsr_out_folder_is_of(arena, path, run->config)) return true;
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' has %s of another run", path, files->what);
  if (run->resumes) return tsr_out_folder_explain(arena, path, run->config, diags);
  tsr_diag_hint(diags, "--overwrite replaces them, or name another folder by %s", files->option);
  return false;
}

bool tsr_step_folder_take(
    tsr_arena *arena, const tsr_step_files *files, const char *path, const tsr_step_files_run *run,
    tsr_out_folder *ret, tsr_diags *diags) {
  bool same = false, ok = true;
  for (int i = 0; i < TSR_STEP_FOLDERS; i++)
    same |= run->taken[i] && run->taken[i]->path && tsr_file_is_same(path, run->taken[i]->path);
  if (same) *ret = (tsr_out_folder){.path = path, .lock = TSR_FOLDER_LOCK_NONE};
  else
    ok = tsr_out_folder_lock(arena, path, ret, diags) &&
         check_others(arena, files, path, run, diags);
  if (ok && check_files(arena, files, path, run, diags)) return true;
  tsr_out_folder_close(ret);
  return false;
}

bool tsr_step_folder_begin(
    tsr_arena *arena, const tsr_step_files *files, tsr_out_folder *folder, bool overwrites,
    const tsr_config *config, tsr_diags *diags) {
  int count;
  return (!overwrites || for_each_file(arena, files, folder->path, remove_file, &count, diags)) &&
         tsr_out_folder_begin(arena, folder, config, diags);
}
