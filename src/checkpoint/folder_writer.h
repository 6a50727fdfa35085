// SPDX-License-Identifier: Apache-2.0
/* Writing one checkpoint folder: files, flush, manifest, flush, rename, flush of the folder around
 * it. Nothing of it can be seen under its name before all of it is on the disk; a failure leaves
 * nothing behind. Not bound to a run: imports and reshards write with it too. May be used from any
 * thread, with an arena and diagnostics of that thread. */
#ifndef TSR_CHECKPOINT_FOLDER_WRITER_H
#define TSR_CHECKPOINT_FOLDER_WRITER_H
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

typedef struct tsr_checkpoint_writer tsr_checkpoint_writer;

/* Called behind every megabyte or so: the writer may wait in it. */
typedef void tsr_checkpoint_writer_pace(void *context);

/* Begins the folder `path` as path.partial, of which what a killed command has left is removed.
 * Until it is committed or abandoned no other command can write `path` (tsr_output_lock_take).
 * Errors: another process writes it; the folder exists already, or cannot be made; path.partial
 * is something else. `pace` may be NULL. */
bool tsr_checkpoint_writer_begin(
    tsr_arena *arena, const char *path, tsr_checkpoint_writer_pace *pace, void *context,
    tsr_checkpoint_writer **ret_output, tsr_diags *diags);

/* Makes path.partial anew. One that a killed command has left is known by its manifest or tensors,
 * or, before it had any, by the lock beside it (`was_left`, folder_lock.h). */
bool tsr_checkpoint_writer_prepare(
    tsr_arena *arena, const char *path, bool was_left, tsr_diags *diags);
/* The same for a checkpoint of a run, of which one of several writers makes the folder, and which
 * a folder with a user's files does not stop: they stay in it, beside what is written. */
bool tsr_checkpoint_writer_prepare_beside(tsr_arena *arena, const char *path, tsr_diags *diags);
void tsr_checkpoint_writer_join(
    tsr_arena *arena, const char *path, tsr_checkpoint_writer_pace *pace, void *context,
    tsr_checkpoint_writer **ret_output);
/* Of all but one: leaves word of what was written, under the number of the writer. */
bool tsr_checkpoint_writer_leave_part(tsr_checkpoint_writer *output, int writer, tsr_diags *diags);
/* That there will be none. */
void tsr_checkpoint_writer_leave_failure(tsr_checkpoint_writer *output, int writer);
/* Of the one that commits: waits for what a writer leaves word of, and takes it. A part may be
 * large and its writer in no hurry; fails when the writer has failed, or when not a byte more has
 * come into the folder for `timeout_s` (0: never). */
bool tsr_checkpoint_writer_wait_part(
    tsr_checkpoint_writer *output, int writer, double timeout_s, tsr_diags *diags);

/* A file of bytes as they are. */
bool tsr_checkpoint_writer_bytes(
    tsr_checkpoint_writer *output, const char *name, const void *bytes, size_t length,
    tsr_diags *diags);
/* A file that is a copy of another one. */
bool tsr_checkpoint_writer_copy(
    tsr_checkpoint_writer *output, const char *name, const char *from, unsigned how,
    tsr_diags *diags);

/* A piece of a tensor: `name`, dtype, ndim and shape are the whole tensor's. */
typedef struct {
  const char *name;
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  int64_t begin[TSR_DIMS_MAX], piece[TSR_DIMS_MAX];
} tsr_checkpoint_writer_piece;

/* A safetensors file of pieces, whose data then come in their order by tsr_checkpoint_writer_data,
 * in portions of any size, exactly as many bytes as they have together. A piece of a whole tensor
 * is called by the tensor's name in the file, another one by name and begin: "wq@128,0". */
bool tsr_checkpoint_writer_tensors(
    tsr_checkpoint_writer *output, const char *file, const tsr_checkpoint_writer_piece *pieces,
    int count, tsr_diags *diags);
bool tsr_checkpoint_writer_data(
    tsr_checkpoint_writer *output, const void *bytes, size_t length, tsr_diags *diags);
bool tsr_checkpoint_writer_end_tensors(tsr_checkpoint_writer *output, tsr_diags *diags);

/* Writes the manifest: of `about` everything but files and tensors is taken; and gives the folder
 * its name. */
bool tsr_checkpoint_writer_commit(
    tsr_checkpoint_writer *output, const tsr_manifest *about, tsr_diags *diags);
/* Instead: removes what was written. After a failure of any function above, too. */
void tsr_checkpoint_writer_abandon(tsr_checkpoint_writer *output);

#endif
