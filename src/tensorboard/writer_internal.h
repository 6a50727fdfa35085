// SPDX-License-Identifier: Apache-2.0
/* Inside this folder: the writer, and how its parts add events. */
#ifndef TSR_TENSORBOARD_WRITER_INTERNAL_H
#define TSR_TENSORBOARD_WRITER_INTERNAL_H
#include "event.pb-c.h"
#include "tensorboard/writer.h"

struct tsr_tensorboard {
  tsr_event_file *file;
  tsr_text event, part; /* room for a packed event, and for a message packed inside it */
};

double tsr_tensorboard_now(void); /* seconds since 1970 */
/* Packs the message into a text, in place of what that has. */
void tsr_tensorboard_pack(const ProtobufCMessage *message, tsr_text *text);
/* Sets the event's time and step. */
void tsr_tensorboard_add_event(tsr_tensorboard *writer, Tensorboard__Event *event, int64_t step);
/* An event with one value of a summary. */
void tsr_tensorboard_add_value(
    tsr_tensorboard *writer, int64_t step, Tensorboard__Summary__Value *value);

#endif
