// SPDX-License-Identifier: Apache-2.0
#include "train/locked_checkpoint.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"

bool tsr_locked_checkpoint_find(
    tsr_arena *arena, const tsr_run_lock *lock, const char *folder, int64_t before,
    tsr_manifest *ret, tsr_diags *diags) {
  const char *beside = tsr_path_join(arena, tsr_path_folder(arena, lock->path), "checkpoints");
  return tsr_checkpoints_newest(arena, beside, before, ret, diags) ||
         tsr_checkpoints_newest(arena, folder, before, ret, diags);
}
