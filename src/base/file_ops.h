// SPDX-License-Identifier: Apache-2.0
/* The file operations, each of which can be made to fail (base/fault.h), so that tests can stop a
 * run inside every one of them. All return with errno set where they fail. May be called from any
 * thread. */
#ifndef TSR_BASE_FILE_OPS_H
#define TSR_BASE_FILE_OPS_H
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TSR_DISK_BLOCK = 4096 };

int tsr_disk_open(const char *path, int flags); /* for reading; the descriptor, or -1 */
ptrdiff_t tsr_disk_read(int fd, void *bytes, size_t length); /* as read(2) and pread(2) */
ptrdiff_t tsr_disk_read_at(int fd, void *bytes, size_t length, int64_t at);
DIR *tsr_disk_open_folder(const char *path); /* for readdir(3); NULL: failed */
void *tsr_disk_map(int fd, size_t length);   /* for reading; NULL: failed */
void *tsr_disk_map_to_write(int fd, size_t length);
int tsr_disk_create(const char *path); /* for writing, empty; the descriptor, or -1 */
/* A new file; an existing file or link is EEXIST. */
int tsr_disk_create_new(const char *path);
/* To be locked, for reading and writing: made where it is missing; never through a link. */
int tsr_disk_open_lock(const char *path);
/* To add lines to, and to read: made where it is missing. */
int tsr_disk_open_append(const char *path);
/* A pipe or a device to write to, which then does not wait: ENXIO for a pipe without a reader. */
int tsr_disk_open_pipe(const char *path);
/* Of a pipe: as many bytes as there is room for, as write(2). */
ptrdiff_t tsr_disk_write_some(int fd, const void *bytes, size_t length);
/* A file of zeros without a name in a folder, whose bytes the disk has set aside. */
int tsr_disk_create_unnamed(const char *folder, size_t length);
/* Locks the file for this process (flock), without waiting: EWOULDBLOCK where another has it. */
bool tsr_disk_lock(int fd);
/* The same beside others that share it: EWOULDBLOCK where one has it alone. */
bool tsr_disk_lock_shared(int fd);
/* Whether this errno means that the file system has no locks. */
bool tsr_disk_has_no_locks(int error);
bool tsr_disk_truncate(int fd, int64_t length);
bool tsr_disk_write(int fd, const void *bytes, size_t length);
/* Past the page cache where the file system can, which costs a fortieth of the processor's time:
 * the address, the length and the place in the file are multiples of TSR_DISK_BLOCK. */
bool tsr_disk_write_direct(int fd, const void *bytes, size_t length);
bool tsr_disk_sync(int fd);
bool tsr_disk_sync_folder(const char *path);
bool tsr_disk_close(int fd);
bool tsr_disk_rename(const char *from, const char *to);
/* A second name of a file; an existing name is EEXIST. Not all file systems can. */
bool tsr_disk_link(const char *file, const char *name);
/* An existing folder is fine. ENOLINK: a dangling link exists; ENOTDIR: another object. */
bool tsr_disk_make_folder(const char *path);
/* A new folder of this user's alone, whose name's last six letters, XXXXXX, are replaced. */
bool tsr_disk_make_temporary(char *path);
bool tsr_disk_remove(const char *path);       /* a file; never a folder, nor what is in one */
bool tsr_disk_remove_empty(const char *path); /* a folder without files; ENOTEMPTY */
/* From now on reading and writing fail with EINTR as soon as *number is not 0: for commands that
 * give up what they write when a signal comes, and remove it. */
void tsr_disk_stop_on(const volatile sig_atomic_t *number);
/* How many of these the process has begun: while the number grows, the disk does something. */
long tsr_disk_operations(void);

#endif
