// SPDX-License-Identifier: Apache-2.0
/* What the files of the text format reader share: textproto.c (structure), textproto_values.c
 * (numbers, names, truth), textproto_strings.c (escapes) and textproto_locations.c. */
#ifndef TSR_MESH_TEXTPROTO_INTERNAL_H
#define TSR_MESH_TEXTPROTO_INTERNAL_H
#include "mesh/textproto.h"
#include "mesh/textproto_lexer.h"

/* All values that one field of one message was given. */
typedef struct {
  tsr_location *places;
  int count, places_capacity, values_capacity;
} tsr_field_record;

/* A message that was made, with its way from the outermost one. */
typedef struct tsr_record {
  const ProtobufCMessage *message;
  const struct tsr_record *parent;
  const ProtobufCFieldDescriptor *field; /* of the parent; NULL: outermost */
  int index;                             /* in a repeated field */
  tsr_location location;
  bool is_damaged;
  tsr_field_record *fields; /* by the descriptor's order */
} tsr_record;

typedef struct {
  tsr_arena *arena;
  tsr_lexer lexer;
  tsr_token token; /* the one to be read next */
  tsr_places *places;
  tsr_diags *diags;
  int depth, fields_count;
  bool is_lost;    /* a syntax error: the rest is read only to find more mistakes */
  bool is_stopped; /* a limit was met: nothing more is read */
} tsr_textproto;

tsr_record *tsr_places_add(tsr_places *places, const ProtobufCMessage *message, int fields);
/* "mesh_descriptors[0].device_topology", or the message's type for the outermost one. */
const char *tsr_record_path(tsr_arena *arena, const tsr_record *record);

static inline void tsr_textproto_advance(tsr_textproto *in) {
  in->token = tsr_lexer_next(&in->lexer);
  if (in->token.kind == TSR_TOKEN_BAD) in->is_lost = true;
}

typedef union {
  int32_t i32;
  uint32_t u32;
  int64_t i64;
  uint64_t u64;
  float f32;
  double f64;
  protobuf_c_boolean boolean;
  char *string;
  ProtobufCBinaryData bytes;
  ProtobufCMessage *message;
} tsr_textproto_value;

/* `TSR_READ_BAD`: reported, the value is consumed, continue after it. `TSR_READ_LOST`: the text
 * cannot be followed from here (reported too). */
typedef enum { TSR_READ_OK, TSR_READ_BAD, TSR_READ_LOST } tsr_read;

/* One scalar value of the field; with field NULL any scalar, only to get past it. */
tsr_read tsr_textproto_scalar(
    tsr_textproto *in, const ProtobufCFieldDescriptor *field, tsr_textproto_value *ret_value);
/* All adjacent string literals from the current token on, unescaped, NUL-terminated, in the arena.
 */
tsr_read tsr_textproto_string(
    tsr_textproto *in, bool is_bytes, const char *field, char **ret_text, size_t *ret_length);
/* Reports that `wanted` should stand where the current token is. */
tsr_read tsr_textproto_unexpected(tsr_textproto *in, const char *wanted);

#endif
