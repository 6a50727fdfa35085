// SPDX-License-Identifier: Apache-2.0
/* Reads the protobuf text format into protobuf-c messages, driven by their descriptors.
 *
 * By the Text Format Language Specification (protobuf.dev), with these decisions of ours:
 * - unknown fields, unknown enum names and unknown enum numbers are errors;
 * - extension and Any names ([pkg.name], [domain/pkg.Type]) are recognised and refused, as are
 * field numbers in place of names;
 * - a `string` may not contain NUL (protobuf-c keeps it as char *); \u and \U may not name
 * surrogates, paired or not; octal escapes above \377 are errors;
 * - reserved names, which the specification requires to skip, are not in protobuf-c's descriptors:
 *   they are unknown fields;
 * - a missing required field is an error;
 * - messages nest at most TSR_TEXTPROTO_DEPTH_MAX deep, and a file has at most
 * TSR_TEXTPROTO_FIELDS_MAX fields and values. */
#ifndef TSR_MESH_TEXTPROTO_H
#define TSR_MESH_TEXTPROTO_H
#include "base/arena.h"
#include "base/diag.h"
#include <protobuf-c/protobuf-c.h>

enum { TSR_TEXTPROTO_DEPTH_MAX = 64, TSR_TEXTPROTO_FIELDS_MAX = 1000000 };

/* Where every message and field value stood in the text. Lives in the arena. */
typedef struct tsr_places tsr_places;

tsr_places *tsr_places_new(tsr_arena *arena);

/* The place of value `index` (0 unless repeated) of a field; of the message itself (where its name
 * stands in its parent; the file without a line for the outermost) when `field` is NULL or has no
 * such value. `message` is one that tsr_textproto_read made. */
tsr_location
tsr_places_find(const tsr_places *places, const void *message, const char *field, size_t index);
/* Whether something inside this very message was refused, so that what seems to be missing in it
 * may only be misspelt. */
bool tsr_places_is_damaged(const tsr_places *places, const void *message);

/* `text` need not end in NUL. Reports as many mistakes as one run can tell apart. Returns false
 * after any of them. *ret_message is then NULL when the text cannot be followed, else what could be
 * read, so that further checks may run. The message lives in the arena (never free it); `file`
 * must outlive the places. The caller gives the text to tsr_diags_source if lines shall be quoted.
 */
bool tsr_textproto_read(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **ret_message,
    tsr_places *places, tsr_diags *diags);

#endif
