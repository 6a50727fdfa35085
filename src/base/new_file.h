// SPDX-License-Identifier: Apache-2.0
/* A file that takes its name when it is whole: it is written beside that, flushed to the disk, and
 * renamed. A process that dies before leaves the old file, and NAME.partial-NUMBER.tmp, which the
 * next one that writes NAME removes: files of living processes are locked (flock). A file system
 * without locks keeps them. */
#ifndef TSR_BASE_NEW_FILE_H
#define TSR_BASE_NEW_FILE_H
#include "base/diag.h"
#include <limits.h>

typedef struct {
  const char *path; /* the caller's */
  char temporary[PATH_MAX];
  int fd;   /* -1: it is not open */
  int lock; /* of the file, until it has its name; -1: none */
} tsr_new_file;

/* Errors: a file that this process reads would be replaced; it cannot be made. */
bool tsr_new_file_open(const char *path, tsr_new_file *ret_file, tsr_diags *diags);
/* Both are failures that name the file, which is then dropped. */
bool tsr_new_file_write(tsr_new_file *file, const void *bytes, size_t length, tsr_diags *diags);
bool tsr_new_file_commit(tsr_new_file *file, tsr_diags *diags);
/* Nothing is left of it. Fine behind any of the others. */
void tsr_new_file_drop(tsr_new_file *file);

/* Removes what dead processes have left of the name, where nobody writes it again. */
void tsr_new_file_remove_left(const char *path);

/* Several files that mean nothing without each other: the first and those beside it. A failure
 * changes nothing: all names have the files that they had before. A process that dies meanwhile
 * leaves the old files, or the new ones, or the first one (old or new) without those beside it,
 * never files of both kinds together; the old ones are then NAME.NUMBER.old. So a reader needs all
 * of them, and no format a mark. All files are dropped by a failure. */
enum { TSR_NEW_FILES_MAX = 4 };
bool tsr_new_files_commit(tsr_new_file *const *files, int count, tsr_diags *diags);

/* All of a file at once: the name is the old file's, or the whole new one's. */
bool tsr_file_write(const char *path, const void *bytes, size_t length, tsr_diags *diags);

/* Makes a folder whose name survives a power cut; an existing one is fine. errno. */
bool tsr_new_folder(const char *path);

/* Whether a file of that name would be one that this process reads; then an error. */
bool tsr_file_check_output(const char *path, tsr_diags *diags);

/* Whether the existing file, if there is one, begins with these bytes, as one that the command has
 * written before; else an error, by which it stays. */
bool tsr_file_check_replaced(
    const char *path, const char *begin, const char *what, tsr_diags *diags);

#endif
