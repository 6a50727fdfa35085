/* Checked file input and output. */
#ifndef TSR_BASE_FILE_H
#define TSR_BASE_FILE_H
#include "base/diag.h"

/* Reads a whole file into the arena, NUL-terminated. Fails with "cannot read 'path': reason" at
 * `place` (the user's mistake when it does not exist or is a directory, the world's otherwise), or
 * when it is longer than `bytes_max`. */
bool tsr_file_read(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_place place, char **ret_text,
    size_t *ret_length, tsr_diags *diags);

/* Writes path.tmp, flushes it to disk and renames it over `path`; on failure nothing is left
 * behind. */
bool tsr_file_write(const char *path, const void *bytes, size_t length, tsr_diags *diags);

/* Writes all bytes to an open file, going on after interruptions; false with errno set. */
bool tsr_file_write_all(int fd, const void *data, size_t length);

bool tsr_file_exists(const char *path);
/* The folder of a path ("." for a bare name), and folder/name joined ("name" if it is absolute). */
char *tsr_path_folder(tsr_arena *arena, const char *path);
char *tsr_path_join(tsr_arena *arena, const char *folder, const char *name);

#endif
