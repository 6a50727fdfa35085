// SPDX-License-Identifier: Apache-2.0
#include "mesh/textproto_lexer.h"
#include <string.h>

static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static bool is_octal(int c) { return c >= '0' && c <= '7'; }
static bool is_hex(int c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
static bool is_letter(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_ident(int c) { return is_letter(c) || is_digit(c); }

/* The byte `ahead` of the current one, 0 beyond the end (the text itself has no NUL). */
static int peek(const tsr_lexer *lexer, int ahead) {
  return lexer->end - lexer->at > ahead ? (unsigned char)lexer->at[ahead] : 0;
}

static tsr_location place_here(const tsr_lexer *lexer) {
  return (tsr_location){
      .file = lexer->file,
      .line = lexer->line,
      .col = (int)(lexer->at - lexer->line_start) + 1,
      .length = 1};
}

int tsr_utf8_length(const char *at, const char *end) {
  const unsigned char *p = (const unsigned char *)at;
  if (p[0] < 0x80) return 1;
  int length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || end - at < length) return 0;
  for (int i = 1; i < length; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
  if (p[0] == 0xed && p[1] > 0x9f) return 0; /* surrogates */
  if (p[0] == 0xf0 && p[1] < 0x90) return 0;
  if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
  return length;
}

static void newline(tsr_lexer *lexer) {
  lexer->line++;
  lexer->line_start = lexer->at + 1;
}

bool tsr_lexer_start(
    tsr_lexer *lexer, const char *file, const char *text, size_t length, tsr_diags *diags) {
  tsr_lexer scan = {
      .file = file,
      .at = text,
      .end = text + length,
      .line_start = text,
      .line = 1,
      .diags = diags};
  *lexer = scan;
  if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
    return tsr_diag_error(
        diags, place_here(&scan), "the file starts with a byte order mark; save it without one");
  while (scan.at < scan.end) {
    int bytes = tsr_utf8_length(scan.at, scan.end);
    if (*scan.at == 0)
      return tsr_diag_error(diags, place_here(&scan), "a NUL byte; a descriptor is a text file");
    if (bytes == 0)
      return tsr_diag_error(
          diags, place_here(&scan), "byte 0x%02x is not valid UTF-8", (unsigned char)*scan.at);
    if (*scan.at == '\n') newline(&scan);
    scan.at += bytes;
  }
  return true;
}

/* Whitespace and comments. Returns whether a line began. */
static bool skip_space(tsr_lexer *lexer) {
  bool first = lexer->at == lexer->line_start && lexer->line == 1;
  for (;; lexer->at++) {
    int c = peek(lexer, 0);
    if (c == '#')
      while (peek(lexer, 0) && peek(lexer, 0) != '\n') lexer->at++;
    if (peek(lexer, 0) == '\n') {
      newline(lexer);
      first = true;
      continue;
    }
    c = peek(lexer, 0);
    if (c != ' ' && c != '\t' && c != '\v' && c != '\f' && c != '\r') return first;
  }
}

static tsr_token token_end(tsr_lexer *lexer, tsr_token token, tsr_token_kind kind) {
  token.kind = kind;
  token.length = (size_t)(lexer->at - token.start);
  token.location.length = (int)token.length;
  return token;
}

static tsr_token bad_number(tsr_lexer *lexer, tsr_token token, const char *why) {
  while (is_ident(peek(lexer, 0)) || peek(lexer, 0) == '.') lexer->at++;
  token = token_end(lexer, token, TSR_TOKEN_BAD);
  tsr_diag_error(
      lexer->diags, token.location, "malformed number '%.*s': %s", (int)token.length, token.start,
      why);
  return token;
}

static void digits(tsr_lexer *lexer) {
  while (is_digit(peek(lexer, 0))) lexer->at++;
}

static tsr_token lex_number(tsr_lexer *lexer, tsr_token token) {
  tsr_token_kind kind = TSR_TOKEN_DEC;
  if (peek(lexer, 0) == '0' && (peek(lexer, 1) == 'x' || peek(lexer, 1) == 'X')) {
    kind = TSR_TOKEN_HEX;
    lexer->at += 2;
    if (!is_hex(peek(lexer, 0))) return bad_number(lexer, token, "no hexadecimal digit after 0x");
    while (is_hex(peek(lexer, 0))) lexer->at++;
  } else if (peek(lexer, 0) == '0' && is_digit(peek(lexer, 1))) {
    kind = TSR_TOKEN_OCT;
    while (is_octal(peek(lexer, 0))) lexer->at++;
    if (is_digit(peek(lexer, 0)))
      return bad_number(lexer, token, "a leading 0 means octal, whose digits are 0 to 7");
  } else {
    digits(lexer);
    if (peek(lexer, 0) == '.') {
      kind = TSR_TOKEN_FLOAT;
      lexer->at++;
      digits(lexer);
    }
    if (peek(lexer, 0) == 'e' || peek(lexer, 0) == 'E') {
      kind = TSR_TOKEN_FLOAT;
      lexer->at++;
      if (peek(lexer, 0) == '+' || peek(lexer, 0) == '-') lexer->at++;
      if (!is_digit(peek(lexer, 0))) return bad_number(lexer, token, "no digit in its exponent");
      digits(lexer);
    }
    if (peek(lexer, 0) == 'f' || peek(lexer, 0) == 'F') {
      kind = TSR_TOKEN_FLOAT;
      lexer->at++;
    }
  }
  if (peek(lexer, 0) == '.')
    return bad_number(
        lexer, token,
        kind == TSR_TOKEN_FLOAT ? "a second decimal point" : "only a decimal number has a point");
  if (is_ident(peek(lexer, 0))) return bad_number(lexer, token, "a space must follow a number");
  return token_end(lexer, token, kind);
}

/* Quotes and escapes matter here only as far as they decide where the literal ends. */
static tsr_token lex_string(tsr_lexer *lexer, tsr_token token) {
  int quote = peek(lexer, 0);
  for (lexer->at++; peek(lexer, 0) != quote; lexer->at++) {
    if (peek(lexer, 0) == '\\' && peek(lexer, 1) && peek(lexer, 1) != '\n') lexer->at++;
    if (peek(lexer, 0) && peek(lexer, 0) != '\n') continue;
    token = token_end(lexer, token, TSR_TOKEN_BAD);
    tsr_diag_error(
        lexer->diags, token.location, "this string has no closing %c on its line", quote);
    return token;
  }
  lexer->at++;
  return token_end(lexer, token, TSR_TOKEN_STRING);
}

static tsr_token lex_stray(tsr_lexer *lexer, tsr_token token) {
  int c = peek(lexer, 0);
  bool comment = c == '/' && (peek(lexer, 1) == '/' || peek(lexer, 1) == '*');
  lexer->at += tsr_utf8_length(lexer->at, lexer->end);
  token = token_end(lexer, token, TSR_TOKEN_BAD);
  if (c < 0x20 || c == 0x7f)
    tsr_diag_error(lexer->diags, token.location, "control character 0x%02x outside a string", c);
  else
    tsr_diag_error(
        lexer->diags, token.location, "unexpected character '%.*s'", (int)token.length,
        token.start);
  if (!comment) return token;
  tsr_diag_hint(lexer->diags, "comments start with #");
  while (peek(lexer, 0) && peek(lexer, 0) != '\n') lexer->at++;
  return token;
}

tsr_token tsr_lexer_next(tsr_lexer *lexer) {
  bool first = skip_space(lexer);
  tsr_token token = {.start = lexer->at, .location = place_here(lexer), .is_first_of_line = first};
  int c = peek(lexer, 0);
  if (!c) {
    token.kind = TSR_TOKEN_END;
    return token;
  }
  if (is_letter(c)) {
    while (is_ident(peek(lexer, 0))) lexer->at++;
    return token_end(lexer, token, TSR_TOKEN_IDENT);
  }
  if (is_digit(c) || (c == '.' && is_digit(peek(lexer, 1)))) return lex_number(lexer, token);
  if (c == '"' || c == '\'') return lex_string(lexer, token);
  if (!strchr("{}<>[]:,;-./", c) || (c == '/' && (peek(lexer, 1) == '/' || peek(lexer, 1) == '*')))
    return lex_stray(lexer, token);
  lexer->at++;
  return token_end(lexer, token, TSR_TOKEN_PUNCT);
}
