// SPDX-License-Identifier: Apache-2.0
/* The text files of a data set, by path or by pattern. */
#ifndef TSR_DATA_TEXT_FILES_H
#define TSR_DATA_TEXT_FILES_H
#include "base/diag.h"

/* A text and the name that diagnostics give it: a file's path, or "--prompt", say. */
typedef struct {
  const char *path, *text;
  size_t length;
} tsr_text_file;

/* Whether it is worth reading: a character device such as /dev/zero has no end. Says so at `place`;
 * what does not exist is left to the reader. */
bool tsr_text_file_check(const char *path, tsr_location location, tsr_diags *diags);

/* The paths that a pattern means: the path of a file as it is, or the matches of a glob(3) pattern
 * sorted by byte value. A pattern without a match is an error at `place`. */
bool tsr_text_files_find(
    tsr_arena *arena, const char *pattern, tsr_location location, const char ***ret_paths,
    int *ret_count, tsr_diags *diags);

/* Reads files in the order of `patterns`: each is the path of a file, or a glob(3) pattern whose
 * matches are taken sorted by byte value. Errors stand at `place` (where the user named them): each
 * file that cannot be read, a character device, a pattern without a match; the others are read all
 * the same. The texts live in `arena`. */
bool tsr_text_files_read(
    tsr_arena *arena, const char *const *patterns, int count, tsr_location location,
    tsr_text_file **ret_files, int *ret_count, tsr_diags *diags);

/* The place of the byte at `offset`, with `length` bytes to underline. Makes the file's lines known
 * to `diags`, so call it only to report an error. */
tsr_location
tsr_text_file_place(const tsr_text_file *file, size_t offset, int length, tsr_diags *diags);

#endif
