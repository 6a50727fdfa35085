// SPDX-License-Identifier: Apache-2.0
/* What the command `checkpoint` prints. All texts are appended. */
#ifndef TSR_CHECKPOINT_CHECKPOINT_COMMANDS_H
#define TSR_CHECKPOINT_CHECKPOINT_COMMANDS_H
#include "checkpoint/reader.h"

/* One line for each committed checkpoint of a run's folder, or of `checkpoints` in it. */
bool tsr_checkpoint_ls(tsr_arena *arena, const char *folder, tsr_text *text, tsr_diags *diags);
/* The run's state, recipe, files and tensors. */
void tsr_checkpoint_show(const tsr_manifest *manifest, tsr_text *text);
/* Every byte against its hash. */
bool tsr_checkpoint_verify(
    tsr_arena *arena, const tsr_manifest *manifest, tsr_text *text, tsr_diags *diags);
/* Keys of the recipe and tensors that differ, of each the largest difference of two elements; how
 * many there are. Errors: a file that is damaged. */
bool tsr_checkpoint_diff(
    tsr_arena *arena, const tsr_kernels *kernels, const tsr_manifest *a, const tsr_manifest *b,
    int *ret_differences, tsr_text *text, tsr_diags *diags);

/* Writes the same checkpoint as `shards` files of tensors, each tensor split along its first
 * dimension (one file: whole tensors), or as *ret_files, fewer: as many as the most rows of a
 * tensor. All is verified on the way. In constant memory but for the manifest. */
bool tsr_checkpoint_reshard(
    tsr_arena *arena, const tsr_manifest *m, int64_t shards, const char *out_folder,
    int64_t *ret_files, tsr_diags *diags);

#endif
