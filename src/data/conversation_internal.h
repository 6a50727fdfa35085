// SPDX-License-Identifier: Apache-2.0
/* What the files of conversations share. */
#ifndef TSR_DATA_CONVERSATION_INTERNAL_H
#define TSR_DATA_CONVERSATION_INTERNAL_H
#include "data/conversation.h"

/* A line, read. */
typedef struct {
  bool is_plain; /* prompt and completion are texts, and there is no conversation */
  tsr_jinja_string prompt, completion;
  tsr_chat chat;
  int prompt_count; /* messages of the prompt; 0: the line is no prompt with a completion */
} tsr_conversation_line;

/* Where a conversation stands, for errors. The location is computed with the first one, because
 * that takes the time of counting the lines before it. */
typedef struct {
  const tsr_text_file *file;
  size_t offset;
  tsr_diags *diags;
  tsr_location location; /* line 0: not computed yet */
} tsr_conversation_place;

/* ---- conversation_place.c ---- */

/* Adds an error at the place; returns false. */
bool tsr_conversation_fail(tsr_conversation_place *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- conversation_shapes.c ---- */

/* The keys of all shapes; a line's other keys are ignored. Ends with NULL. */
extern const char *const tsr_conversation_keys[];
/* Reads a line of any shape. All mistakes of a line are reported. */
bool tsr_conversation_parse(
    tsr_arena *arena, tsr_jinja_value line, tsr_conversation_place *at,
    tsr_conversation_line *ret_line);
/* Whether a message has that role. */
bool tsr_conversation_has_role(tsr_jinja_value message, const char *role);

/* ---- conversation_spans.c ---- */

/* Renders a conversation and finds the trained spans of its text, in ascending order. */
bool tsr_conversation_spans(
    tsr_arena *arena, const tsr_conversation_format *format, const tsr_conversation_line *line,
    tsr_conversation_place *at, tsr_jinja_string *ret_text, tsr_jinja_span **ret_spans,
    int *ret_count);

#endif
