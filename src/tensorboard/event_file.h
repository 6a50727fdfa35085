// SPDX-License-Identifier: Apache-2.0
/* TensorBoard's event files of a run: TFRecord files, which a run appends records to and resumes
 * behind a step.
 *
 * A record is: its length (u64, little-endian), the masked CRC-32C of these 8 bytes, the bytes, the
 * masked CRC-32C of the bytes. What is added is written by one write at each flush. A crash may
 * leave a part of the last record, which readers take for the end of the file; the next start cuts
 * it off. A folder has one file for each start of the run, whose names sort in the order of the
 * starts; TensorBoard reads them in this order. */
#ifndef TSR_TENSORBOARD_EVENT_FILE_H
#define TSR_TENSORBOARD_EVENT_FILE_H
#include "base/diag.h"
#include "base/text.h"
#include <stdint.h>

#define TSR_EVENT_FILE_PREFIX "events.out.tfevents."
#define TSR_EVENT_FILE_WRITER "tessera-train" /* in the first record */
/* The tag of the record that the run has ended, the last one of its start's file. */
#define TSR_EVENT_FILE_END "_hparams_/session_end_info"

typedef struct tsr_event_file tsr_event_file;

tsr_event_file *tsr_event_file_new(tsr_arena *arena, const char *folder);
/* Whether this program has written the file, by its first record; `otherwise`: where that is not
 * whole. */
bool tsr_event_file_is_own(const char *path, bool otherwise);
/* The run begins behind step `step`, or returns to it. Of the files that the folder has, records
 * behind the step are cut off, and what follows them; the record that the run has ended at the step
 * as well. Step 0: the files are removed. Then a new file is opened. What is damaged before the
 * step is cut off, too, with a warning.
 * `ret_kept`: whether any record but those about files was kept. */
bool tsr_event_file_begin(tsr_event_file *file, int64_t step, bool *ret_kept, tsr_diags *diags);
/* Adds a record of the packed event, behind those that are not written yet. */
void tsr_event_file_add(tsr_event_file *file, const tsr_text *event);
/* Writes all records that are not written. A run does not end because they cannot be: the first
 * failure is a warning with the step, and they are written with the next ones. A file that
 * was removed is a warning as well, once. */
void tsr_event_file_flush(tsr_event_file *file, int64_t step, tsr_diags *diags);
/* At the end: a failure where records are still not written. */
bool tsr_event_file_finish(tsr_event_file *file, tsr_diags *diags);
void tsr_event_file_close(tsr_event_file *file);

#endif
