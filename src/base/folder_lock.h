// SPDX-License-Identifier: Apache-2.0
/* One process at a time in a folder, or that writes an output: a file with the process's host and
 * number, which is locked (flock) for as long as the process lives, however it ends. */
#ifndef TSR_BASE_FOLDER_LOCK_H
#define TSR_BASE_FOLDER_LOCK_H
#include "base/diag.h"

#define TSR_FOLDER_LOCK_NAME ".tessera-train.lock"

typedef struct {
  const char *path; /* of the file */
  int fd;           /* -1: nothing is held */
  const char *made; /* the outermost folder that was made for it; NULL: all existed */
  bool was_left;    /* by a process that has ended without giving it back */
} tsr_folder_lock;

#define TSR_FOLDER_LOCK_NONE ((tsr_folder_lock){.fd = -1})

/* Takes the folder, which exists. A process that was killed may hold it until the kernel has
 * taken its memory back, so this waits 2 s. The file of a process that has ended without giving it
 * back is taken over. Errors: another process holds it, which is named; what exists is no file;
 * the file cannot be made. A file system without locks is a warning. */
bool tsr_folder_lock_take(
    tsr_arena *arena, const char *folder, tsr_folder_lock *ret_lock, tsr_diags *diags);

/* The same for what a command writes as a whole, a file or folder that need not be there yet: the
 * lock is .NAME.tessera-train.lock beside it. A path whose folder is missing cannot be written.
 * Messages call it `shown`. */
bool tsr_output_lock_take(
    tsr_arena *arena, const char *path, const char *shown, tsr_folder_lock *ret_lock,
    tsr_diags *diags);

/* The file's text about this process. */
enum { TSR_FOLDER_OWNER_BYTES = 320 };
void tsr_folder_lock_owner(char ret_owner[TSR_FOLDER_OWNER_BYTES]);

/* Whether a folder that the process of `owner` has taken is this one, seen from another host
 * perhaps: waits 5 s for a file system that is late. */
bool tsr_folder_lock_is_of(tsr_arena *arena, const char *folder, const char *owner);

/* Whether a process has taken the folder, seen without taking it. Where the file system has no
 * locks, or the file cannot be read, that is unknown. */
typedef enum { TSR_FOLDER_FREE, TSR_FOLDER_IN_USE, TSR_FOLDER_USE_UNKNOWN } tsr_folder_use;
/* `ret_owner`: "process 123 on host", as its file has it; "" where there is no file. */
tsr_folder_use tsr_folder_lock_look(const char *folder, char ret_owner[TSR_FOLDER_OWNER_BYTES]);

/* Removes the file. Fine where nothing is held. */
void tsr_folder_lock_release(tsr_folder_lock *lock);

#endif
