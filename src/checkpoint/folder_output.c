// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_output.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/folder_lock.h"
#include "checkpoint/folder_writer.h"
#include "checkpoint/owned_files.h"
#include <errno.h>

static bool cannot(tsr_folder_output *o, const char *file, int error) {
  if (o->fd >= 0) tsr_disk_close(o->fd);
  o->fd = -1;
  const char *path = file ? tsr_path_join(o->arena, o->out, file) : o->out;
  return tsr_file_cannot("write", path, error, TSR_NOWHERE, o->diags);
}

bool tsr_folder_output_begin(tsr_folder_output *o, const char *name) {
  o->file = name;
  o->fd = tsr_disk_create(tsr_arena_printf(o->arena, "%s/%s", o->partial, name));
  return o->fd >= 0 || cannot(o, name, errno);
}

bool tsr_folder_output_put(tsr_folder_output *o, const void *bytes, int64_t length) {
  return tsr_disk_write(o->fd, bytes, (size_t)length) || cannot(o, o->file, errno);
}

bool tsr_folder_output_end(tsr_folder_output *o) {
  int fd = o->fd;
  if (!tsr_disk_sync(fd)) return cannot(o, o->file, errno);
  o->fd = -1;
  return tsr_disk_close(fd) || cannot(o, o->file, errno);
}

bool tsr_folder_output_file(
    tsr_folder_output *o, const char *name, const void *bytes, size_t length) {
  return tsr_folder_output_begin(o, name) && tsr_folder_output_put(o, bytes, (int64_t)length) &&
         tsr_folder_output_end(o);
}

static bool commit(tsr_folder_output *o) {
  return (tsr_disk_sync_folder(o->partial) && tsr_disk_rename(o->partial, o->out) &&
          tsr_disk_sync_folder(tsr_path_folder(o->arena, o->out))) ||
         cannot(o, NULL, errno);
}

bool tsr_folder_output_write(
    tsr_arena *arena, const char *out, bool (*write)(void *, tsr_folder_output *), void *context,
    tsr_diags *diags) {
  tsr_folder_output o = {.arena = arena, .out = out, .fd = -1, .diags = diags};
  tsr_folder_lock lock;
  if (!tsr_output_lock_take(arena, out, out, &lock, diags)) return false;
  o.partial = tsr_arena_printf(arena, "%s.partial", out);
  bool prepared = tsr_checkpoint_writer_prepare(arena, out, lock.was_left, diags);
  bool ok = prepared && write(context, &o) && commit(&o);
  if (prepared && !ok) {
    if (o.fd >= 0) tsr_disk_close(o.fd);
    const char *left;
    tsr_own_files_remove(arena, o.partial, true, &left);
  }
  tsr_folder_lock_release(&lock);
  return ok;
}
