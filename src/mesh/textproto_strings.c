// SPDX-License-Identifier: Apache-2.0
/* Strings of protobuf's text format: quotes and escapes. */
#include "mesh/textproto_internal.h"
#include <string.h>

typedef struct {
  tsr_textproto *in;
  const char *at, *end;  /* what is between the quotes */
  tsr_location location; /* of the literal */
  const char *start;     /* its opening quote */
  char *out;
  size_t length;
} unescaper;

static tsr_location place_at(const unescaper *u, const char *at, int length) {
  tsr_location location = u->location;
  location.col += (int)(at - u->start);
  location.length = length;
  return location;
}

static int hex_value(int c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* At most `count` hexadecimal digits; returns how many there were. */
static int read_hex(unescaper *u, int count, uint32_t *ret_value) {
  int got = 0;
  *ret_value = 0;
  while (got < count && u->at < u->end && hex_value(*u->at) >= 0) {
    *ret_value = *ret_value * 16 + (uint32_t)hex_value(*u->at++);
    got++;
  }
  return got;
}

static void put_utf8(unescaper *u, uint32_t code) {
  char *out = u->out + u->length;
  if (code < 0x80) {
    out[0] = (char)code;
    u->length += 1;
  } else if (code < 0x800) {
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    u->length += 2;
  } else if (code < 0x10000) {
    out[0] = (char)(0xe0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 0x3f));
    out[2] = (char)(0x80 | (code & 0x3f));
    u->length += 3;
  } else {
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    u->length += 4;
  }
}

static bool bad_escape(unescaper *u, const char *start, const char *why) {
  int length = (int)(u->at - start);
  return tsr_diag_error(
      u->in->diags, place_at(u, start, length), "malformed escape '%.*s': %s", length, start, why);
}

/* \u and \U, behind that letter. */
static bool read_unicode(unescaper *u, const char *start, int digits) {
  uint32_t code;
  if (read_hex(u, digits, &code) != digits)
    return bad_escape(
        u, start,
        digits == 4 ? "\\u needs 4 hexadecimal digits" : "\\U needs 8 hexadecimal digits");
  if (code > 0x10ffff) return bad_escape(u, start, "the last code point is 10ffff");
  if (code >= 0xd800 && code <= 0xdfff)
    return bad_escape(u, start, "surrogates are not characters; write \\U and the code point");
  put_utf8(u, code);
  return true;
}

static bool read_octal(unescaper *u, const char *start) {
  int value = 0;
  for (int i = 0; i < 3 && u->at < u->end && *u->at >= '0' && *u->at <= '7'; i++)
    value = value * 8 + (*u->at++ - '0');
  if (value > 0xff) return bad_escape(u, start, "the last byte is \\377");
  u->out[u->length++] = (char)value;
  return true;
}

/* One escape, from its backslash on. No escape yields more bytes than it is long. */
static bool read_escape(unescaper *u) {
  static const char letters[] = "abfnrtv?\\'\"", values[] = "\a\b\f\n\r\t\v?\\'\"";
  const char *start = u->at++;
  int c = (unsigned char)*u->at;
  if (c >= '0' && c <= '7') return read_octal(u, start);
  const char *simple = strchr(letters, c);
  u->at += tsr_utf8_length(u->at, u->end);
  if (simple) {
    u->out[u->length++] = values[simple - letters];
    return true;
  }
  uint32_t value;
  switch (c) {
  case 'x':
    if (!read_hex(u, 2, &value)) return bad_escape(u, start, "\\x needs a hexadecimal digit");
    u->out[u->length++] = (char)value;
    return true;
  case 'u':
    return read_unicode(u, start, 4);
  case 'U':
    return read_unicode(u, start, 8);
  default:
    bad_escape(u, start, "there is no such escape");
    tsr_diag_hint(
        u->in->diags, "valid: \\a \\b \\f \\n \\r \\t \\v \\? \\\\ \\' \\\" \\101 \\x41 \\u0041 "
                      "\\U00000041");
    return false;
  }
}

static bool read_literal(unescaper *u) {
  bool ok = true;
  while (u->at < u->end) {
    if (*u->at == '\\') ok &= read_escape(u);
    else u->out[u->length++] = *u->at++;
  }
  return ok;
}

/* What protobuf-c's char * and the type `string` cannot hold. */
static bool check_string(const unescaper *u, tsr_location location, const char *field) {
  if (memchr(u->out, 0, u->length))
    return tsr_diag_error(u->in->diags, location, "field '%s' must not contain a NUL byte", field);
  for (const char *at = u->out, *end = at + u->length; at < end;) {
    int bytes = tsr_utf8_length(at, end);
    if (!bytes)
      return tsr_diag_error(
          u->in->diags, location, "field '%s' is not valid UTF-8 (byte 0x%02x)", field,
          (unsigned char)*at);
    at += bytes;
  }
  return true;
}

tsr_read tsr_textproto_string(
    tsr_textproto *in, bool is_bytes, const char *field, char **ret_text, size_t *ret_length) {
  tsr_location location = in->token.location;
  unescaper u = {.in = in};
  size_t capacity = 0;
  bool ok = true;
  while (in->token.kind == TSR_TOKEN_STRING) {
    u.at = in->token.start + 1;
    u.end = in->token.start + in->token.length - 1;
    u.location = in->token.location;
    u.start = in->token.start;
    size_t need = u.length + (size_t)(u.end - u.at) + 1;
    if (need > capacity) {
      capacity = need * 2;
      char *more = tsr_arena_alloc(in->arena, capacity);
      if (u.length) memcpy(more, u.out, u.length);
      u.out = more;
    }
    ok &= read_literal(&u);
    tsr_textproto_advance(in);
  }
  u.out[u.length] = 0;
  if (ok && !is_bytes) ok = check_string(&u, location, field);
  *ret_text = u.out;
  *ret_length = u.length;
  return ok ? TSR_READ_OK : TSR_READ_BAD;
}
