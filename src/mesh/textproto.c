// SPDX-License-Identifier: Apache-2.0
#include "mesh/textproto_internal.h"
#include <string.h>

static tsr_read
read_fields(tsr_textproto *in, tsr_record *record, char closing, tsr_location opened);

/* ---- storing --------------------------------------------------------------------------------- */

static size_t value_bytes(ProtobufCType type) {
  switch (type) {
  case PROTOBUF_C_TYPE_INT64:
  case PROTOBUF_C_TYPE_SINT64:
  case PROTOBUF_C_TYPE_SFIXED64:
  case PROTOBUF_C_TYPE_UINT64:
  case PROTOBUF_C_TYPE_FIXED64:
    return sizeof(int64_t);
  case PROTOBUF_C_TYPE_DOUBLE:
    return sizeof(double);
  case PROTOBUF_C_TYPE_BOOL:
    return sizeof(protobuf_c_boolean);
  case PROTOBUF_C_TYPE_STRING:
    return sizeof(char *);
  case PROTOBUF_C_TYPE_BYTES:
    return sizeof(ProtobufCBinaryData);
  case PROTOBUF_C_TYPE_MESSAGE:
    return sizeof(ProtobufCMessage *);
  default:
    return sizeof(int32_t); /* the 32-bit numbers, float and enums */
  }
}

static tsr_field_record *
field_values(const tsr_record *record, const ProtobufCFieldDescriptor *field) {
  return &record->fields[field - record->message->descriptor->fields];
}

/* Puts the value into the message. The caller has checked that the field may take one more. */
static void store(
    tsr_textproto *in, tsr_record *record, const ProtobufCFieldDescriptor *field,
    const tsr_textproto_value *value) {
  char *base = (char *)record->message;
  void *member = base + field->offset, *quantifier = base + field->quantifier_offset;
  size_t bytes = value_bytes(field->type);
  if (field->label == PROTOBUF_C_LABEL_REPEATED) {
    size_t count;
    void *items;
    memcpy(&count, quantifier, sizeof count);
    memcpy(&items, member, sizeof items);
    tsr_field_record *values = field_values(record, field);
    tsr_arena_grow(in->arena, &items, bytes, (int)count, &values->values_capacity);
    memcpy((char *)items + count * bytes, value, bytes);
    count++;
    memcpy(quantifier, &count, sizeof count);
    memcpy(member, &items, sizeof items);
    return;
  }
  memcpy(member, value, bytes);
  if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
    int which = (int)field->id;
    memcpy(quantifier, &which, sizeof which);
  } else if (
      field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
      field->type != PROTOBUF_C_TYPE_MESSAGE) {
    protobuf_c_boolean has = 1;
    memcpy(quantifier, &has, sizeof has);
  }
}

/* Notes that the field has a value at `place`, also when that value was refused. */
static void remember(
    tsr_textproto *in, tsr_record *record, const ProtobufCFieldDescriptor *field,
    tsr_location location) {
  tsr_field_record *values = field_values(record, field);
  void *places = values->places;
  tsr_arena_grow(in->arena, &places, sizeof(tsr_location), values->count, &values->places_capacity);
  values->places = places;
  values->places[values->count++] = location;
}

/* A field that is not repeated takes one value, and a oneof one field. */
static bool check_single(
    tsr_textproto *in, const tsr_record *record, const ProtobufCFieldDescriptor *field,
    tsr_location location) {
  if (field->label == PROTOBUF_C_LABEL_REPEATED) return true;
  const tsr_field_record *values = field_values(record, field);
  if (values->count) {
    tsr_diag_error(
        in->diags, location, "field '%s' is given twice in '%s'", field->name,
        tsr_record_path(in->arena, record));
    tsr_diag_hint(
        in->diags, "first given at line %d, column %d", values->places[0].line,
        values->places[0].col);
    return false;
  }
  if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) return true;
  const ProtobufCMessageDescriptor *d = record->message->descriptor;
  for (unsigned i = 0; i < d->n_fields; i++) {
    const ProtobufCFieldDescriptor *other = &d->fields[i];
    if (!(other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || !record->fields[i].count ||
        other->quantifier_offset != field->quantifier_offset)
      continue;
    tsr_diag_error(
        in->diags, location, "'%s' and '%s' exclude each other in '%s'", other->name, field->name,
        tsr_record_path(in->arena, record));
    tsr_diag_hint(
        in->diags, "'%s' is given at line %d, column %d", other->name,
        record->fields[i].places[0].line, record->fields[i].places[0].col);
    return false;
  }
  return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Counts one field or value against the limit. */
static bool spend(tsr_textproto *in) {
  if (in->is_stopped) return false;
  if (++in->fields_count <= TSR_TEXTPROTO_FIELDS_MAX) return true;
  in->is_stopped = in->is_lost = true;
  return tsr_diag_error(
      in->diags, in->token.location, "more than %d fields and values", TSR_TEXTPROTO_FIELDS_MAX);
}

static tsr_record *message_new(
    tsr_textproto *in, const ProtobufCMessageDescriptor *descriptor, tsr_location location) {
  ProtobufCMessage *message = tsr_arena_alloc(in->arena, descriptor->sizeof_message);
  protobuf_c_message_init(descriptor, message);
  tsr_record *record = tsr_places_add(in->places, message, (int)descriptor->n_fields);
  record->location = location;
  return record;
}

/* From the opening bracket on; `record` NULL only skips. */
static tsr_read read_message(tsr_textproto *in, tsr_record *record) {
  if (in->depth == TSR_TEXTPROTO_DEPTH_MAX) {
    tsr_diag_error(
        in->diags, in->token.location, "messages nest more than %d deep", TSR_TEXTPROTO_DEPTH_MAX);
    in->is_stopped = in->is_lost = true;
    return TSR_READ_LOST;
  }
  char closing = tsr_token_is(&in->token, '{') ? '}' : '>';
  tsr_location opened = in->token.location;
  tsr_textproto_advance(in);
  in->depth++;
  tsr_read read = read_fields(in, record, closing, opened);
  in->depth--;
  return read;
}

static bool is_open(const tsr_token *token) {
  return tsr_token_is(token, '{') || tsr_token_is(token, '<');
}

/* One message or scalar for the field of the record; with field NULL it is only skipped. `name`:
 * where the field's name stands, which is the place of messages. */
static tsr_read read_value(
    tsr_textproto *in, tsr_record *record, const ProtobufCFieldDescriptor *field,
    tsr_location name) {
  if (!spend(in)) return TSR_READ_LOST;
  tsr_location location = in->token.location;
  if (is_open(&in->token)) {
    if (!field) return read_message(in, NULL);
    if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
      tsr_diag_error(
          in->diags, location, "field '%s' takes a plain value, not a message", field->name);
      record->is_damaged = true;
      remember(in, record, field, location);
      return read_message(in, NULL);
    }
    bool ok = check_single(in, record, field, name);
    tsr_record *child = message_new(in, field->descriptor, name);
    child->parent = record;
    child->field = field;
    child->index = field_values(record, field)->count;
    if (!ok) {
      record->is_damaged = true;
      return read_message(in, child); /* its own mistakes are told, its values dropped */
    }
    remember(in, record, field, name);
    store(in, record, field, &(tsr_textproto_value){.message = (ProtobufCMessage *)child->message});
    return read_message(in, child);
  }
  tsr_textproto_value value = {0};
  tsr_read read = tsr_textproto_scalar(in, field, &value);
  if (!field || read == TSR_READ_LOST) return read;
  bool ok = check_single(in, record, field, name);
  remember(in, record, field, location);
  if (ok && read == TSR_READ_OK) store(in, record, field, &value);
  else record->is_damaged = true;
  return read;
}

static tsr_read read_list(
    tsr_textproto *in, tsr_record *record, const ProtobufCFieldDescriptor *field, tsr_location name,
    bool has_colon) {
  if (field && field->label != PROTOBUF_C_LABEL_REPEATED) {
    tsr_diag_error(
        in->diags, in->token.location, "field '%s' takes one value, not a list", field->name);
    record->is_damaged = true;
    remember(in, record, field, in->token.location);
    field = NULL;
  }
  tsr_textproto_advance(in);
  if (tsr_token_is(&in->token, ']')) {
    tsr_textproto_advance(in);
    return TSR_READ_OK;
  }
  for (;;) {
    if (!is_open(&in->token) && !has_colon)
      return tsr_textproto_unexpected(in, "a message (a list of plain values needs ':' before it)");
    /* Of a list of messages each has the place of its own bracket. */
    tsr_location location = is_open(&in->token) ? in->token.location : name;
    if (read_value(in, record, field, location) == TSR_READ_LOST) return TSR_READ_LOST;
    if (tsr_token_is(&in->token, ']')) break;
    if (!tsr_token_is(&in->token, ',')) return tsr_textproto_unexpected(in, "',' or ']'");
    tsr_textproto_advance(in);
    if (tsr_token_is(&in->token, ']'))
      return tsr_textproto_unexpected(in, "another value after ','");
  }
  tsr_textproto_advance(in);
  return TSR_READ_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* [pkg.extension] or [domain/pkg.Type]: recognised, refused, its value skipped. */
static tsr_read read_bracket_name(tsr_textproto *in, tsr_record *record) {
  tsr_location location = in->token.location;
  const char *start = in->token.start;
  bool is_any = false, wants_ident = true;
  for (;;) {
    tsr_textproto_advance(in);
    if (wants_ident ? in->token.kind != TSR_TOKEN_IDENT : in->token.kind != TSR_TOKEN_PUNCT)
      return tsr_textproto_unexpected(in, wants_ident ? "a name" : "'.', '/' or ']'");
    if (!wants_ident && tsr_token_is(&in->token, ']')) break;
    if (!wants_ident && !tsr_token_is(&in->token, '.') && !tsr_token_is(&in->token, '/'))
      return tsr_textproto_unexpected(in, "'.', '/' or ']'");
    is_any |= tsr_token_is(&in->token, '/');
    wants_ident = !wants_ident;
  }
  int length = (int)(in->token.start + 1 - start);
  if (in->token.location.line == location.line) location.length = length;
  tsr_textproto_advance(in);
  if (record) {
    record->is_damaged = true;
    tsr_diag_error(
        in->diags, location, "%s '%.*s' in '%s': this format has no %s",
        is_any ? "Any type" : "extension", length > 80 ? 80 : length, start,
        tsr_record_path(in->arena, record), is_any ? "Any values" : "extensions");
  }
  return TSR_READ_OK;
}

static const ProtobufCFieldDescriptor *
find_field(const ProtobufCMessageDescriptor *d, const tsr_token *name) {
  for (unsigned i = 0; i < d->n_fields; i++)
    if (strlen(d->fields[i].name) == name->length &&
        !memcmp(d->fields[i].name, name->start, name->length))
      return &d->fields[i];
  return NULL;
}

static void unknown_field(tsr_textproto *in, tsr_record *record, const tsr_token *name) {
  const ProtobufCMessageDescriptor *d = record->message->descriptor;
  const char *word = tsr_arena_strndup(in->arena, name->start, name->length);
  record->is_damaged = true;
  tsr_diag_error(
      in->diags, name->location, "unknown field '%s' in '%s'", word,
      tsr_record_path(in->arena, record));
  for (const tsr_record *outer = record->parent; outer; outer = outer->parent)
    if (find_field(outer->message->descriptor, name)) {
      tsr_diag_hint(
          in->diags, "'%s' belongs to '%s': is a closing bracket missing before it?", word,
          tsr_record_path(in->arena, outer));
      return;
    }
  const char **names = tsr_arena_array(in->arena, const char *, d->n_fields + 1);
  for (unsigned i = 0; i < d->n_fields; i++) names[i] = d->fields[i].name;
  tsr_diag_nearest(in->diags, word, names, (int)d->n_fields);
}

/* The name; *ret_field NULL when it is none of the record's (reported) or there is no record. */
static tsr_read
read_name(tsr_textproto *in, tsr_record *record, const ProtobufCFieldDescriptor **ret_field) {
  *ret_field = NULL;
  if (tsr_token_is(&in->token, '[')) return read_bracket_name(in, record);
  tsr_token name = in->token;
  bool is_number =
      name.kind == TSR_TOKEN_DEC || name.kind == TSR_TOKEN_OCT || name.kind == TSR_TOKEN_HEX;
  if (is_number) {
    if (record) {
      record->is_damaged = true;
      tsr_diag_error(
          in->diags, name.location, "field number '%.*s' in '%s': fields are written by name",
          name.length > 40 ? 40 : (int)name.length, name.start, tsr_record_path(in->arena, record));
    }
  } else if (name.kind != TSR_TOKEN_IDENT) {
    return tsr_textproto_unexpected(in, "a field name");
  } else if (record) {
    *ret_field = find_field(record->message->descriptor, &name);
    if (!*ret_field) unknown_field(in, record, &name);
  }
  tsr_textproto_advance(in);
  return TSR_READ_OK;
}

static tsr_read read_field(tsr_textproto *in, tsr_record *record) {
  if (!spend(in)) return TSR_READ_LOST;
  const ProtobufCFieldDescriptor *field;
  tsr_location name = in->token.location;
  if (read_name(in, record, &field) == TSR_READ_LOST) return TSR_READ_LOST;
  bool has_colon = tsr_token_is(&in->token, ':');
  if (has_colon) tsr_textproto_advance(in);
  if (!has_colon && !is_open(&in->token) && !tsr_token_is(&in->token, '['))
    return tsr_textproto_unexpected(
        in, !field                                   ? "':' or a message"
            : field->type == PROTOBUF_C_TYPE_MESSAGE ? "'{'"
                                                     : "':'");
  tsr_read read = tsr_token_is(&in->token, '[') ? read_list(in, record, field, name, has_colon)
                                                : read_value(in, record, field, name);
  if (read == TSR_READ_LOST) return read;
  if (tsr_token_is(&in->token, ',') || tsr_token_is(&in->token, ';')) tsr_textproto_advance(in);
  return TSR_READ_OK;
}

/* After a syntax error: on to the next line that starts with a name at this depth, to the bracket
 * that closes this message, or to the end. */
static void recover(tsr_textproto *in, char closing) {
  int depth = 0;
  while (in->token.kind != TSR_TOKEN_END) {
    if (depth == 0 && closing && tsr_token_is(&in->token, closing)) return;
    if (depth == 0 && in->token.is_first_of_line && in->token.kind == TSR_TOKEN_IDENT) return;
    if (is_open(&in->token)) depth++;
    if (depth > 0 && (tsr_token_is(&in->token, '}') || tsr_token_is(&in->token, '>'))) depth--;
    tsr_textproto_advance(in);
  }
}

static void check_required(tsr_textproto *in, const tsr_record *record) {
  const ProtobufCMessageDescriptor *d = record->message->descriptor;
  for (unsigned i = 0; i < d->n_fields; i++)
    if (d->fields[i].label == PROTOBUF_C_LABEL_REQUIRED && !record->fields[i].count)
      tsr_diag_error(
          in->diags, record->location, "required field '%s' is missing in '%s'", d->fields[i].name,
          tsr_record_path(in->arena, record));
}

/* Told only where nothing before explains it. */
static void unclosed(tsr_textproto *in, char closing, tsr_location opened) {
  if (!in->is_lost) {
    tsr_diag_error(
        in->diags, in->token.location, "expected '%c' before the end of the file", closing);
    tsr_diag_hint(in->diags, "opened at line %d, column %d", opened.line, opened.col);
  }
  in->is_stopped = in->is_lost = true;
}

static tsr_read unexpected_closer(tsr_textproto *in, char closing, tsr_location opened) {
  if (!closing) {
    tsr_textproto_unexpected(in, "a field name");
    tsr_diag_hint(in->diags, "no message is open here");
  } else {
    tsr_textproto_unexpected(in, closing == '}' ? "a field name or '}'" : "a field name or '>'");
    tsr_diag_hint(in->diags, "opened at line %d, column %d", opened.line, opened.col);
  }
  tsr_textproto_advance(in);
  return TSR_READ_LOST;
}

/* Fields up to and with the closing bracket (0: the end of the file). */
static tsr_read
read_fields(tsr_textproto *in, tsr_record *record, char closing, tsr_location opened) {
  while (!in->is_stopped) {
    if (closing && tsr_token_is(&in->token, closing)) {
      tsr_textproto_advance(in);
      break;
    }
    if (in->token.kind == TSR_TOKEN_END) {
      if (closing) unclosed(in, closing, opened);
      break;
    }
    bool is_closer = tsr_token_is(&in->token, '}') || tsr_token_is(&in->token, '>');
    tsr_read read = is_closer ? unexpected_closer(in, closing, opened) : read_field(in, record);
    if (read == TSR_READ_LOST && !in->is_stopped) recover(in, closing);
  }
  if (record && !in->is_lost) check_required(in, record);
  return in->is_stopped ? TSR_READ_LOST : TSR_READ_OK;
}

bool tsr_textproto_read(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **ret_message,
    tsr_places *places, tsr_diags *diags) {
  tsr_textproto in = {.arena = arena, .places = places, .diags = diags};
  int errors = tsr_diags_errors(diags);
  *ret_message = NULL;
  if (!tsr_lexer_start(&in.lexer, file, text, length, diags)) return false;
  tsr_textproto_advance(&in);
  tsr_record *root = message_new(&in, descriptor, (tsr_location){.file = file});
  read_fields(&in, root, 0, in.token.location);
  if (!in.is_lost) *ret_message = (ProtobufCMessage *)root->message;
  return tsr_diags_errors(diags) == errors;
}
