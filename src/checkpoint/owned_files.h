// SPDX-License-Identifier: Apache-2.0
/* The files that this program writes into folders of checkpoints and models. What else is in such a
 * folder belongs to its user, and is never removed. */
#ifndef TSR_CHECKPOINT_OWNED_FILES_H
#define TSR_CHECKPOINT_OWNED_FILES_H
#include "base/arena.h"
#include <stdbool.h>

/* Names of the files that are copied where they are, NULL-terminated. The first is tokenizer.json.
 */
extern const char *const tsr_hf_side_files[];

/* Whether this program has written the folder, complete or not: it has a manifest or tensors, or
 * nothing at all. `path` may be a symbolic link to one. */
bool tsr_own_folder(const char *path);

/* Removes the files that this program has written into the folder, a manifest and tensors last, and
 * then the folder. A folder without these is not this program's, unless the caller has made it
 * (`made`): nothing of it is removed. Returns
 * whether the folder is gone; else *ret_left is what remains in it that was not written by this
 * program ("" where `path` is not a folder), or NULL where something cannot be removed (errno). */
bool tsr_own_files_remove(tsr_arena *arena, const char *path, bool made, const char **ret_left);

/* "stays: … was not written by this program", for messages about *ret_left. */
const char *tsr_own_files_reason(tsr_arena *arena, const char *left);

#endif
