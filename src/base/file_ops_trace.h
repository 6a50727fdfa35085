// SPDX-License-Identifier: Apache-2.0
/* A record of all that the process does to files, for tests that play it back up to any moment
 * (tests/faults/test_crash_images.py): TESSERA_DISK_LOG=FILE. Like the faults of base/fault.h it is
 * in test builds alone. */
#ifndef TSR_BASE_FILE_OPS_TRACE_H
#define TSR_BASE_FILE_OPS_TRACE_H
#include <stddef.h>

#ifdef TSR_FAULT_INJECTION
/* Adds a line "WORD FD LENGTH TEXT", and behind it `length` bytes. Without the variable nothing
 * happens; errno stays. May be called from any thread. */
void tsr_disk_log(const char *word, int fd, const char *text, const void *bytes, size_t length);
#else
static inline void
tsr_disk_log(const char *word, int fd, const char *text, const void *bytes, size_t length) {
  (void)word, (void)fd, (void)text, (void)bytes, (void)length;
}
#endif

#endif
