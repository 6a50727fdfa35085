// SPDX-License-Identifier: Apache-2.0
/* Files that are read, whole or mapped; base/new_file.h writes them. The process remembers what it
 * reads, so that no output replaces it. */
#ifndef TSR_BASE_FILE_READ_H
#define TSR_BASE_FILE_READ_H
#include "base/diag.h"

/* ---- reading ---- */

enum {
  TSR_FILE_PIPES = 1,   /* a pipe or a terminal will do, too */
  TSR_FILE_NOFOLLOW = 2 /* no symbolic link: of folders that another one may have written */
};

/* A descriptor for reading, or -1 with errno: EISDIR for a folder, ENXIO for a pipe, a socket or a
 * device where none will do, EMLINK for a link (as FreeBSD says it: a loop of links is
 * another error). */
int tsr_file_open(const char *path, unsigned how);

/* Reads a whole file, or what comes through a pipe, into the arena, NUL-terminated. Fails with
 * "cannot read 'path': reason" at `place`, or when it is longer than `bytes_max`, or when nothing
 * comes for 10 s. */
bool tsr_file_read(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_location location, char **ret_text,
    size_t *ret_length, tsr_diags *diags);
/* The same of a regular file. */
bool tsr_file_read_regular(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_location location, char **ret_text,
    size_t *ret_length, tsr_diags *diags);
/* The same, not through a symbolic link. */
bool tsr_file_read_nofollow(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_location location, char **ret_text,
    size_t *ret_length, tsr_diags *diags);

/* A regular file in memory, read only; "" and 0 of an empty one. */
typedef struct {
  const void *bytes;
  size_t length;
} tsr_file_map;
/* Fails as tsr_file_read. */
bool tsr_file_map_open(
    const char *path, unsigned how, tsr_location location, tsr_file_map *ret_map, tsr_diags *diags);
void tsr_file_map_close(tsr_file_map *map);
/* A failure that names the file when one that was mapped has become shorter and was read where its
 * bytes are gone: zeros were read there. To be asked before what was made of them lasts. */
bool tsr_file_maps_check(tsr_diags *diags);

/* While the files of another process's run are read: its pipes are not opened either way. Of one
 * thread. */
void tsr_file_refuse_pipes(bool refuses);

/* Whether there is a file, not a link, whose first bytes are these (at most 127). */
bool tsr_file_begins(const char *path, const char *bytes);
/* Whether this process has opened the file of that name for reading. */
bool tsr_file_is_read(const char *path);
/* A process that does what several would: nothing was read yet. */
void tsr_file_forget(void);

/* The pipe that is being waited for, for handlers of signals; NULL: none. */
const char *tsr_file_waited_for(void);

/* Why a file could not be opened or read: strerror, but for what tsr_file_open refuses. */
const char *tsr_file_reason(int error);
/* "cannot WHAT 'path': reason": the user's mistake where it does not exist, may not be used, or is
 * of another type, else a failure (TSR_FAILURE). Returns false. */
bool tsr_file_cannot(
    const char *what, const char *path, int error, tsr_location location, tsr_diags *diags);

/* ---- paths ---- */

bool tsr_file_exists(const char *path);
bool tsr_file_is_folder(const char *path);
/* Whether both exist and are one file or folder. */
bool tsr_file_is_same(const char *path, const char *other);
/* Whether the name ends with this, such as ".bin", upper and lower case alike. */
bool tsr_path_ends(const char *path, const char *end);
/* The folder of a path ("." for a bare name), and folder/name joined ("name" if it is absolute). */
char *tsr_path_folder(tsr_arena *arena, const char *path);
char *tsr_path_join(tsr_arena *arena, const char *folder, const char *name);
/* The folder above a folder: without its last part, or with ".." where it has none. */
char *tsr_path_parent(tsr_arena *arena, const char *folder);

#endif
