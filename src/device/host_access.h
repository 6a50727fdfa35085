// SPDX-License-Identifier: Apache-2.0
/* The host's access to ranges of a device's memory. Where that is the host's, a range is used where
 * it is and nothing is copied. Elsewhere its bytes go in pieces through the device's staging
 * buffers, which bound the memory that this needs: the copy of a piece runs while the host uses the
 * one before.
 *
 * What is read is what all work of the tasks' stream that was begun before leaves; work that is
 * begun later sees what was written. Other streams must be idle (`wait`). None of these functions
 * may be called while a capture is under way. */
#ifndef TSR_DEVICE_HOST_ACCESS_H
#define TSR_DEVICE_HOST_ACCESS_H
#include "device/device.h"

/* Whether the device's memory is the host's. */
static inline bool tsr_device_is_host(const tsr_device *device) { return !device->staging_bytes; }

/* Copies bytes to the host; returns when `to` has them. */
void tsr_device_read(const tsr_device *device, void *to, const void *from, int64_t bytes);
/* Copies bytes from the host; returns when `from` may change. */
void tsr_device_write(const tsr_device *device, void *to, const void *from, int64_t bytes);

/* ---- a range, one piece after the other ---- */

typedef struct {
  const tsr_device *device;
  const char *from;
  int64_t bytes, piece_bytes;
  int64_t begun, ended; /* pieces whose copies have begun; which the host has had */
} tsr_device_pieces;

void tsr_device_pieces_begin(
    tsr_device_pieces *pieces, const tsr_device *device, const void *from, int64_t bytes);
/* The next bytes of the range, which stay there until the next call; NULL: there are no more. */
const void *tsr_device_pieces_next(tsr_device_pieces *pieces, int64_t *ret_bytes);
/* Also before the last piece. */
void tsr_device_pieces_end(tsr_device_pieces *pieces);

/* ---- a whole range ---- */

/* WRITE alone: what is not written must be zero on the device, as it is in a copy. */
enum {
  TSR_VIEW_READ = 1,
  TSR_VIEW_WRITE = 2,
  TSR_VIEW_INLINE_BYTES = 256,
  TSR_VIEW_ALIGNMENT = 64
};

/* A range in memory of the host: its own, or a copy, which is allocated unless it is small. */
typedef struct {
  const tsr_device *device;
  void *memory; /* of the device */
  int64_t bytes;
  int access;
  void *data, *copy; /* copy: to be freed; NULL: there is none */
  char few[TSR_VIEW_INLINE_BYTES + TSR_VIEW_ALIGNMENT];
} tsr_device_view;

/* Where the host has the bytes, aligned as the device's memory up to 64, until the view is closed:
 * then they are written back, with TSR_VIEW_WRITE. The view must not move. */
void *tsr_device_view_open(
    tsr_device_view *view, const tsr_device *device, const void *memory, int64_t bytes, int access);
void tsr_device_view_close(tsr_device_view *view);

#endif
