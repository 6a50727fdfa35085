// SPDX-License-Identifier: Apache-2.0
/* A folder of files that has its name when it is whole: it is written as NAME.partial, flushed and
 * renamed. */
#ifndef TSR_CHECKPOINT_FOLDER_OUTPUT_H
#define TSR_CHECKPOINT_FOLDER_OUTPUT_H
#include "base/diag.h"
#include <stdint.h>

typedef struct {
  tsr_arena *arena;
  const char *out, *partial;
  int fd;
  const char *file; /* that is written */
  tsr_diags *diags;
} tsr_folder_output;

/* `out` must not be there; after an error it is not. `write` writes the files. One process at a
 * time. */
bool tsr_folder_output_write(
    tsr_arena *arena, const char *out, bool (*write)(void *context, tsr_folder_output *output),
    void *context, tsr_diags *diags);

/* A file in portions. Errors name the file. */
bool tsr_folder_output_begin(tsr_folder_output *output, const char *name);
bool tsr_folder_output_put(tsr_folder_output *output, const void *bytes, int64_t length);
bool tsr_folder_output_end(tsr_folder_output *output);
/* A whole file. */
bool tsr_folder_output_file(
    tsr_folder_output *output, const char *name, const void *bytes, size_t length);

#endif
