// SPDX-License-Identifier: Apache-2.0
/* Numbers, enum names and truth values of protobuf's text format. */
#include "mesh/textproto_internal.h"
#include <locale.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <strings.h>

static bool token_equals(const tsr_token *token, const char *word) {
  return token->length == strlen(word) && !memcmp(token->start, word, token->length);
}

static bool token_equals_any_case(const tsr_token *token, const char *word) {
  return token->length == strlen(word) && !strncasecmp(token->start, word, token->length);
}

tsr_read tsr_textproto_unexpected(tsr_textproto *in, const char *wanted) {
  in->is_lost = true;
  const tsr_token *t = &in->token;
  if (t->kind == TSR_TOKEN_BAD) return TSR_READ_LOST; /* reported by the lexer */
  if (t->kind == TSR_TOKEN_END)
    tsr_diag_error(in->diags, t->location, "expected %s, found the end of the file", wanted);
  else
    tsr_diag_error(
        in->diags, t->location, "expected %s, found '%.*s'", wanted,
        t->length > 40 ? 40 : (int)t->length, t->start);
  return TSR_READ_LOST;
}

/* A scalar as it is written: an optional minus and one token, or string literals. */
typedef struct {
  bool is_negative;
  tsr_token token;
  tsr_location location; /* minus included where both stand on one line */
  const char *field;
} literal;

static tsr_read bad(tsr_textproto *in, const literal *l, const char *wanted) {
  tsr_diag_error(
      in->diags, l->location, "field '%s' takes %s, not '%s%.*s'", l->field, wanted,
      l->is_negative ? "-" : "", l->token.length > 40 ? 40 : (int)l->token.length, l->token.start);
  return TSR_READ_BAD;
}

static bool is_integer(tsr_token_kind kind) {
  return kind == TSR_TOKEN_DEC || kind == TSR_TOKEN_OCT || kind == TSR_TOKEN_HEX;
}

/* False when it does not fit 64 bits. */
static bool magnitude(const tsr_token *token, uint64_t *ret_value) {
  unsigned base = token->kind == TSR_TOKEN_HEX ? 16 : token->kind == TSR_TOKEN_OCT ? 8 : 10;
  uint64_t value = 0;
  for (size_t i = base == 16 ? 2 : 0; i < token->length; i++) {
    int c = token->start[i];
    unsigned digit = (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    if (value > (UINT64_MAX - digit) / base) return false;
    value = value * base + digit;
  }
  *ret_value = value;
  return true;
}

static tsr_read
read_signed(tsr_textproto *in, const literal *l, int bits, tsr_textproto_value *ret_value) {
  if (!is_integer(l->token.kind)) return bad(in, l, "an integer");
  uint64_t value, limit = (uint64_t)1 << (bits - 1);
  if (!magnitude(&l->token, &value) || value > limit - !l->is_negative)
    return bad(
        in, l,
        bits == 32 ? "an integer from -2147483648 to 2147483647"
                   : "an integer from -9223372036854775808 to 9223372036854775807");
  int64_t result = l->is_negative ? -(int64_t)(value - (value > 0)) - (value > 0) : (int64_t)value;
  if (bits == 32) ret_value->i32 = (int32_t)result;
  else ret_value->i64 = result;
  return TSR_READ_OK;
}

static tsr_read
read_unsigned(tsr_textproto *in, const literal *l, int bits, tsr_textproto_value *ret_value) {
  if (!is_integer(l->token.kind)) return bad(in, l, "an integer");
  uint64_t value;
  if (l->is_negative || !magnitude(&l->token, &value) || (bits == 32 && value > UINT32_MAX))
    return bad(
        in, l,
        bits == 32 ? "an integer from 0 to 4294967295"
                   : "an integer from 0 to 18446744073709551615");
  if (bits == 32) ret_value->u32 = (uint32_t)value;
  else ret_value->u64 = value;
  return TSR_READ_OK;
}

/* The C locale's strtod, independent of the decimal point of the program's locale. */
static double to_double(tsr_arena *arena, const tsr_token *token) {
  size_t length = token->length;
  if (token->kind == TSR_TOKEN_FLOAT && strchr("fF", token->start[length - 1])) length--;
  const char *text = tsr_arena_strndup(arena, token->start, length);
  static locale_t c_locale; /* newlocale gives the one static object for "C" */
  if (!c_locale) c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return strtod_l(text, NULL, c_locale);
}

static tsr_read
read_real(tsr_textproto *in, const literal *l, bool is_double, tsr_textproto_value *ret_value) {
  double value;
  const tsr_token *t = &l->token;
  if (t->kind == TSR_TOKEN_DEC || t->kind == TSR_TOKEN_FLOAT) value = to_double(in->arena, t);
  else if (
      t->kind == TSR_TOKEN_IDENT &&
      (token_equals_any_case(t, "inf") || token_equals_any_case(t, "infinity")))
    value = INFINITY;
  else if (t->kind == TSR_TOKEN_IDENT && token_equals_any_case(t, "nan")) value = NAN;
  else return bad(in, l, "a decimal number, inf or nan");
  if (l->is_negative) value = -value;
  if (is_double) ret_value->f64 = value;
  else ret_value->f32 = (float)value;
  return TSR_READ_OK;
}

static tsr_read read_bool(tsr_textproto *in, const literal *l, tsr_textproto_value *ret_value) {
  static const char *const yes[] = {"true", "True", "t"}, *const no[] = {"false", "False", "f"};
  const tsr_token *t = &l->token;
  uint64_t value = 2;
  if (is_integer(t->kind) && !magnitude(t, &value)) value = 2;
  for (int i = 0; t->kind == TSR_TOKEN_IDENT && i < 3; i++) {
    if (token_equals(t, yes[i])) value = 1;
    if (token_equals(t, no[i])) value = 0;
  }
  if (value > 1 || l->is_negative) return bad(in, l, "true or false");
  ret_value->boolean = (protobuf_c_boolean)value;
  return TSR_READ_OK;
}

static tsr_read
bad_enum_name(tsr_textproto *in, const literal *l, const ProtobufCEnumDescriptor *e) {
  const char *word = tsr_arena_strndup(in->arena, l->token.start, l->token.length);
  tsr_diag_error(
      in->diags, l->location, "unknown %s '%s' in field '%s'", e->short_name, word, l->field);
  const char **names = tsr_arena_array(in->arena, const char *, e->n_value_names);
  int count = 0;
  for (unsigned i = 0; i < e->n_values; i++)
    if (strncmp(e->values[i].name, "INVALID_", 8)) names[count++] = e->values[i].name;
  tsr_diag_nearest(in->diags, word, names, count);
  return TSR_READ_BAD;
}

static tsr_read read_enum(
    tsr_textproto *in, const literal *l, const ProtobufCEnumDescriptor *e,
    tsr_textproto_value *ret_value) {
  if (l->token.kind == TSR_TOKEN_IDENT && !l->is_negative) {
    for (unsigned i = 0; i < e->n_value_names; i++)
      if (token_equals(&l->token, e->values_by_name[i].name)) {
        ret_value->i32 = e->values[e->values_by_name[i].index].value;
        return TSR_READ_OK;
      }
    return bad_enum_name(in, l, e);
  }
  if (!is_integer(l->token.kind)) return bad(in, l, "a name");
  tsr_textproto_value number;
  tsr_read read = read_signed(in, l, 32, &number);
  if (read != TSR_READ_OK) return read;
  if (!protobuf_c_enum_descriptor_get_value(e, number.i32)) {
    tsr_diag_error(
        in->diags, l->location, "%d is the number of no %s in field '%s'", number.i32,
        e->short_name, l->field);
    return TSR_READ_BAD;
  }
  ret_value->i32 = number.i32;
  return TSR_READ_OK;
}

static tsr_read read_text(
    tsr_textproto *in, const ProtobufCFieldDescriptor *field, tsr_textproto_value *ret_value) {
  char *text;
  size_t length;
  bool is_bytes = field->type == PROTOBUF_C_TYPE_BYTES;
  tsr_read read = tsr_textproto_string(in, is_bytes, field->name, &text, &length);
  if (is_bytes) ret_value->bytes = (ProtobufCBinaryData){length, (uint8_t *)text};
  else ret_value->string = text;
  return read;
}

static tsr_read read_plain(
    tsr_textproto *in, const ProtobufCFieldDescriptor *field, const literal *l,
    tsr_textproto_value *ret_value) {
  switch (field->type) {
  case PROTOBUF_C_TYPE_INT32:
  case PROTOBUF_C_TYPE_SINT32:
  case PROTOBUF_C_TYPE_SFIXED32:
    return read_signed(in, l, 32, ret_value);
  case PROTOBUF_C_TYPE_INT64:
  case PROTOBUF_C_TYPE_SINT64:
  case PROTOBUF_C_TYPE_SFIXED64:
    return read_signed(in, l, 64, ret_value);
  case PROTOBUF_C_TYPE_UINT32:
  case PROTOBUF_C_TYPE_FIXED32:
    return read_unsigned(in, l, 32, ret_value);
  case PROTOBUF_C_TYPE_UINT64:
  case PROTOBUF_C_TYPE_FIXED64:
    return read_unsigned(in, l, 64, ret_value);
  case PROTOBUF_C_TYPE_FLOAT:
    return read_real(in, l, false, ret_value);
  case PROTOBUF_C_TYPE_DOUBLE:
    return read_real(in, l, true, ret_value);
  case PROTOBUF_C_TYPE_BOOL:
    return read_bool(in, l, ret_value);
  case PROTOBUF_C_TYPE_ENUM:
    return read_enum(in, l, field->descriptor, ret_value);
  case PROTOBUF_C_TYPE_STRING:
  case PROTOBUF_C_TYPE_BYTES:
    return bad(in, l, "a string in quotes");
  case PROTOBUF_C_TYPE_MESSAGE:
    break; /* textproto.c reads those */
  }
  return bad(in, l, "a message in braces");
}

/* Past string literals where none belong, or where none is asked for. */
static tsr_read
skip_strings(tsr_textproto *in, const ProtobufCFieldDescriptor *field, const literal *l) {
  const char *wanted = "a number";
  if (field && field->type == PROTOBUF_C_TYPE_BOOL) wanted = "true or false";
  if (field && field->type == PROTOBUF_C_TYPE_ENUM) wanted = "a name without quotes";
  if (field && field->type == PROTOBUF_C_TYPE_MESSAGE) wanted = "a message in braces";
  tsr_read read = field ? bad(in, l, wanted) : TSR_READ_OK;
  while (in->token.kind == TSR_TOKEN_STRING) tsr_textproto_advance(in);
  return read;
}

tsr_read tsr_textproto_scalar(
    tsr_textproto *in, const ProtobufCFieldDescriptor *field, tsr_textproto_value *ret_value) {
  literal l = {
      .token = in->token, .location = in->token.location, .field = field ? field->name : ""};
  if (in->token.kind == TSR_TOKEN_STRING) {
    bool is_text =
        field && (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES);
    return is_text ? read_text(in, field, ret_value) : skip_strings(in, field, &l);
  }
  if (tsr_token_is(&in->token, '-')) {
    l.is_negative = true;
    tsr_textproto_advance(in);
    l.token = in->token;
    if (l.token.location.line == l.location.line)
      l.location.length = l.token.location.col - l.location.col + l.token.location.length;
    if (l.token.kind == TSR_TOKEN_STRING) return tsr_textproto_unexpected(in, "a number after '-'");
  }
  if (l.token.kind != TSR_TOKEN_IDENT && l.token.kind != TSR_TOKEN_FLOAT &&
      !is_integer(l.token.kind))
    return tsr_textproto_unexpected(in, l.is_negative ? "a number after '-'" : "a value");
  tsr_textproto_advance(in);
  return field ? read_plain(in, field, &l, ret_value) : TSR_READ_OK;
}
