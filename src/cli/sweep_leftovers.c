// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_leftovers.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "checkpoint/folder.h"

/* A run that was killed has left its lock there. */
static void clean_checkpoints(tsr_arena *arena, const char *folder) {
  char owner[TSR_FOLDER_OWNER_BYTES];
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_folder_lock lock;
  tsr_folder_lock_look(folder, owner);
  if (!owner[0]) return;
  if (!tsr_file_is_folder(folder) || !tsr_folder_lock_take(arena, folder, &lock, diags)) return;
  tsr_checkpoints_clean(arena, folder, false, diags);
  tsr_folder_lock_release(&lock);
}

void sweep_leftovers_remove(const char *sweep_folder, const char *name) {
  tsr_arena *arena = tsr_arena_new();
  const char *folder = tsr_path_join(arena, sweep_folder, name);
  tsr_folder_lock lock;
  if (tsr_file_is_folder(folder) &&
      tsr_folder_lock_take(arena, folder, &lock, tsr_diags_new(arena))) {
    tsr_new_file_remove_left(tsr_path_join(arena, folder, "config.yaml"));
    clean_checkpoints(arena, tsr_path_join(arena, folder, "checkpoints"));
    tsr_folder_lock_release(&lock);
  }
  tsr_arena_free(arena);
}
