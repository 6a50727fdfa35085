#include "train/out_folder.h"
#include "base/file.h"
#include "base/new_file.h"
#include "checkpoint/folder.h"
#include "config/print.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first line of config.yaml. */
static const char mark[] = "# The configuration of a run of tessera-train, with all defaults\n";

static bool has_bytes(const char *path) {
  struct stat info;
  return !stat(path, &info) && info.st_size > 0;
}

/* What is in the folder: a run's results, or a file of somebody else's. */
static bool
check_content(tsr_arena *arena, const char *folder, tsr_out_purpose purpose, tsr_diags *diags) {
  const char *config = tsr_path_join(arena, folder, "config.yaml");
  const char *metrics = tsr_path_join(arena, folder, "metrics.jsonl");
  const char *below = tsr_path_join(arena, folder, "checkpoints");
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(arena, below, &entries, &count, diags)) return false;
  struct stat info;
  if (!lstat(metrics, &info) && S_ISLNK(info.st_mode)) /* it would be written through */
    return tsr_file_cannot("write", metrics, EMLINK, TSR_NOWHERE, diags);
  bool results = count || has_bytes(metrics) || tsr_file_begins(config, mark);
  if (!results && tsr_file_exists(config)) {
    tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' is there, and no run of tessera-train has written it", config);
    tsr_diag_hint(
        diags, "--out writes the run's resolved configuration there: name another folder");
    return false;
  }
  if (!results || purpose != TSR_OUT_NEW) return true;
  if (count)
    tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' has the results of a run, with checkpoints up to step %lld",
        folder, (long long)entries[count - 1].step);
  else tsr_diag_error(diags, TSR_NOWHERE, "'%s' has the results of a run", folder);
  tsr_diag_hint(
      diags, "--resume goes on with it, --overwrite gives it up, another folder keeps it");
  return false;
}

bool tsr_out_folder_check_metrics(
    tsr_arena *arena, const char *metrics, const char *out, tsr_diags *diags) {
  const char *folder = tsr_path_folder(arena, metrics);
  struct stat theirs, ours;
  bool same = out && !stat(folder, &theirs) && !stat(out, &ours) && theirs.st_ino == ours.st_ino &&
              theirs.st_dev == ours.st_dev;
  if (same || !has_bytes(metrics) ||
      !tsr_file_begins(tsr_path_join(arena, folder, "config.yaml"), mark))
    return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' is of another run, whose results '%s' has", metrics, folder);
  tsr_diag_hint(diags, "--metrics of a file elsewhere keeps them");
  return false;
}

bool tsr_out_folder_take(
    tsr_arena *arena, const char *path, tsr_out_purpose purpose, tsr_out_folder *ret,
    tsr_diags *diags) {
  *ret = (tsr_out_folder){.path = path, .lock = TSR_FOLDER_LOCK_NONE};
  ret->is_made = !tsr_file_exists(path);
  if (!tsr_new_folder(path))
    return tsr_file_cannot("make the folder", path, errno, TSR_NOWHERE, diags);
  if (tsr_folder_lock_take(arena, path, &ret->lock, diags) &&
      check_content(arena, path, purpose, diags))
    return true;
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
  if (folder->is_made && !folder->has_begun) rmdir(folder->path);
  folder->path = NULL;
}
