// SPDX-License-Identifier: Apache-2.0
#include "jinja/lexer.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const char *file;
  const char *text; /* line ends are \n */
  int64_t length, at;
  int64_t line_start; /* of the line of `counted` */
  int64_t counted;    /* lines before it are counted */
  int line;
  bool starts_line; /* the data so far ends with a newline, or there is none */
  tsr_jinja_token *tokens;
  int count, capacity;
} lexer;

/* ---- locations ---- */

/* Offsets never decrease from call to call, except within a line that has been counted. */
static tsr_location location_of(lexer *l, int64_t at, int64_t length) {
  for (; l->counted < at; l->counted++)
    if (l->text[l->counted] == '\n') l->line++, l->line_start = l->counted + 1;
  int64_t col = at >= l->line_start ? at - l->line_start + 1 : 1;
  return (tsr_location){l->file, l->line, (int)col, (int)length};
}

static bool fail(lexer *l, int64_t at, int64_t length, const char *what) {
  return tsr_diag_error(l->diags, location_of(l, at, length), "%s", what);
}

static tsr_jinja_token *add(lexer *l, tsr_jinja_token_kind kind, int64_t begin, int64_t end) {
  tsr_arena_grow(l->arena, (void **)&l->tokens, sizeof *l->tokens, l->count, &l->capacity);
  tsr_jinja_token *t = &l->tokens[l->count++];
  *t = (tsr_jinja_token){
      kind, {l->text + begin, end - begin}, {0}, location_of(l, begin, end - begin)};
  return t;
}

/* ---- expressions ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_name(char c) {
  return isalnum((unsigned char)c) || c == '_' || (unsigned char)c > 127;
}

/* The digits of \xHH, \uHHHH and \UHHHHHHHH. False: too few, or no code point. */
static bool add_numbered(lexer *l, int64_t *at, int digits, tsr_text *to) {
  uint32_t c = 0;
  for (int i = 0; i < digits; i++, ++*at) {
    char digit = *at < l->length ? l->text[*at] : 0;
    if (!isxdigit((unsigned char)digit)) return false;
    c = c << 4 | (uint32_t)(isdigit((unsigned char)digit) ? digit - '0' : (digit | 32) - 'a' + 10);
  }
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
  tsr_text_add_code_point(to, c);
  return true;
}

/* What follows a backslash, at *at, as in Python's string literals. */
static bool add_escape(lexer *l, int64_t *at, tsr_text *to) {
  static const char letters[] = "abfnrtv0\\'\"", codes[] = "\a\b\f\n\r\t\v\0\\'\"";
  char c = l->text[(*at)++];
  const char *simple = c ? memchr(letters, c, sizeof letters - 1) : NULL;
  if (c == 'x') return add_numbered(l, at, 2, to);
  if (c == 'u') return add_numbered(l, at, 4, to);
  if (c == 'U') return add_numbered(l, at, 8, to);
  if (simple) tsr_text_add_bytes(to, &codes[simple - letters], 1);
  else if (c != '\n') tsr_text_add(to, "\\%c", c);
  return true;
}

static bool read_string(lexer *l) {
  int64_t begin = l->at, at = begin + 1;
  char quote = l->text[begin];
  tsr_text content = {0};
  bool ok = true;
  while (ok && at < l->length && l->text[at] != quote)
    if (l->text[at] != '\\') tsr_text_add_bytes(&content, &l->text[at++], 1);
    else if (++at < l->length) ok = add_escape(l, &at, &content);
  if (!ok || at >= l->length) {
    tsr_text_free(&content);
    return fail(
        l, begin, 1, ok ? "this string has no closing quote" : "this string has an invalid escape");
  }
  tsr_jinja_token *t = add(l, TSR_JINJA_TOKEN_STRING, begin, at + 1);
  t->text = tsr_jinja_take(l->arena, &content).string;
  l->at = at + 1;
  return true;
}

/* Behind digits with single underscores between them. */
static int64_t skip_digits(const lexer *l, int64_t at) {
  int64_t begin = at;
  while (at < l->length && (isdigit((unsigned char)l->text[at]) ||
                            (l->text[at] == '_' && at > begin && at + 1 < l->length &&
                             isdigit((unsigned char)l->text[at + 1]))))
    at++;
  return at;
}

static bool read_number(lexer *l) {
  int64_t begin = l->at, at = skip_digits(l, begin);
  bool is_float = false;
  if (at + 1 < l->length && l->text[at] == '.' && isdigit((unsigned char)l->text[at + 1]))
    is_float = true, at = skip_digits(l, at + 1);
  if (at < l->length && (l->text[at] | 32) == 'e') {
    int64_t digits = at + 1;
    if (digits < l->length && (l->text[digits] == '+' || l->text[digits] == '-')) digits++;
    if (skip_digits(l, digits) > digits) is_float = true, at = skip_digits(l, digits);
  }
  char plain[64];
  size_t n = 0;
  for (int64_t i = begin; i < at && n + 1 < sizeof plain; i++)
    if (l->text[i] != '_') plain[n++] = l->text[i];
  plain[n] = 0;
  errno = 0;
  tsr_jinja_value value =
      is_float ? tsr_jinja_float(strtod(plain, NULL)) : tsr_jinja_int(strtoll(plain, NULL, 10));
  if (n + 1 == sizeof plain || (!is_float && errno))
    return fail(l, begin, at - begin, "this number has more than 64 bits");
  add(l, is_float ? TSR_JINJA_TOKEN_FLOAT : TSR_JINJA_TOKEN_INT, begin, at)->value = value;
  l->at = at;
  return true;
}

static bool read_operator(lexer *l) {
  static const char *const operators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                          "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                          "]",  "{",  "}",  ",",  ".",  ":",  "|"};
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    int64_t n = (int64_t)strlen(operators[i]);
    if (l->at + n > l->length || memcmp(l->text + l->at, operators[i], (size_t)n)) continue;
    add(l, TSR_JINJA_TOKEN_OPERATOR, l->at, l->at + n);
    l->at += n;
    return true;
  }
  return fail(l, l->at, 1, "unexpected character in an expression");
}

static bool read_token(lexer *l) {
  char c = l->text[l->at];
  if (c == '\'' || c == '"') return read_string(l);
  if (isdigit((unsigned char)c)) return read_number(l);
  if (!is_name(c)) return read_operator(l);
  int64_t begin = l->at;
  while (l->at < l->length && is_name(l->text[l->at])) l->at++;
  add(l, TSR_JINJA_TOKEN_NAME, begin, l->at);
  return true;
}

/* ---- between delimiters ---- */

static bool has(const lexer *l, int64_t at, const char *text) {
  size_t n = strlen(text);
  return at >= 0 && at + (int64_t)n <= l->length && !memcmp(l->text + at, text, n);
}

/* Passes `end` with its sign and the white space that this removes. */
static bool pass_end(lexer *l, const char *end, bool drops_newline) {
  bool minus = has(l, l->at, "-") && has(l, l->at + 1, end),
       plus = drops_newline && has(l, l->at, "+") && has(l, l->at + 1, end);
  if (!minus && !plus && !has(l, l->at, end)) return false;
  l->at += (int64_t)strlen(end) + (minus || plus);
  if (minus)
    while (l->at < l->length && is_space(l->text[l->at])) l->at++;
  else if (drops_newline && !plus && has(l, l->at, "\n")) l->at++;
  l->starts_line = l->text[l->at - 1] == '\n';
  return true;
}

/* Tokens up to `end`, which does not count inside of brackets. */
static bool read_expression(lexer *l, const char *end, tsr_jinja_token_kind kind) {
  int depth = 0;
  for (;;) {
    while (l->at < l->length && is_space(l->text[l->at])) l->at++;
    int64_t begin = l->at;
    if (begin == l->length) return fail(l, begin, 1, "the template ends inside of an expression");
    if (!depth && pass_end(l, end, kind == TSR_JINJA_TOKEN_BLOCK_END)) {
      add(l, kind, begin, begin + (int64_t)strlen(end));
      return true;
    }
    if (!read_token(l)) return false;
    tsr_jinja_string t = l->tokens[l->count - 1].text;
    if (l->tokens[l->count - 1].kind != TSR_JINJA_TOKEN_OPERATOR || t.length != 1) continue;
    depth += strchr("([{", *t.bytes) != NULL;
    depth -= strchr(")]}", *t.bytes) && depth > 0;
  }
}

/* ---- data ---- */

/* Adds the data [begin, end) in front of a delimiter with that sign. */
static void add_data(lexer *l, int64_t begin, int64_t end, char sign, bool is_print) {
  int64_t line = end;
  if (sign == '-')
    while (end > begin && is_space(l->text[end - 1])) end--;
  else if (sign != '+' && !is_print) {
    while (line > begin && (l->text[line - 1] == ' ' || l->text[line - 1] == '\t' ||
                            l->text[line - 1] == '\v' || l->text[line - 1] == '\f'))
      line--;
    bool at_start = line > begin ? l->text[line - 1] == '\n' : l->starts_line;
    if (at_start) end = line;
  }
  if (end > begin) add(l, TSR_JINJA_TOKEN_DATA, begin, end);
}

/* Passes `raw %}` or `endraw %}`, from behind `{%` on. False: it is another block. */
static bool pass_word(lexer *l, const char *word, bool drops_newline) {
  int64_t before = l->at;
  while (l->at < l->length && is_space(l->text[l->at])) l->at++;
  if (has(l, l->at, word)) {
    l->at += (int64_t)strlen(word);
    while (l->at < l->length && is_space(l->text[l->at])) l->at++;
    if (pass_end(l, "%}", drops_newline)) return true;
  }
  l->at = before;
  return false;
}

static bool read_raw(lexer *l, int64_t opened) {
  int64_t begin = l->at;
  for (int64_t at = begin; at < l->length; at++) {
    if (!has(l, at, "{%")) continue;
    char sign = at + 2 < l->length ? l->text[at + 2] : 0;
    l->at = at + 2 + (sign == '-' || sign == '+');
    if (!pass_word(l, "endraw", true)) continue;
    bool starts_line = l->starts_line;
    l->starts_line = false;
    add_data(l, begin, at, sign, false);
    l->starts_line = starts_line;
    return true;
  }
  return fail(l, opened, 2, "this 'raw' has no 'endraw'");
}

static bool read_comment(lexer *l, int64_t opened) {
  for (; l->at < l->length; l->at++)
    if (pass_end(l, "#}", true)) return true;
  return fail(l, opened, 2, "this comment has no '#}'");
}

/* A comment, a block or a print, whose delimiter is at l->at. */
static bool read_delimited(lexer *l) {
  int64_t opened = l->at;
  char what = l->text[opened + 1];
  l->at += 2;
  if (has(l, l->at, "-") || (what != '{' && has(l, l->at, "+"))) l->at++;
  if (what == '#') return read_comment(l, opened);
  if (what == '%' && pass_word(l, "raw", false)) return read_raw(l, opened);
  add(l, what == '%' ? TSR_JINJA_TOKEN_BLOCK_BEGIN : TSR_JINJA_TOKEN_PRINT_BEGIN, opened,
      opened + 2);
  return what == '%' ? read_expression(l, "%}", TSR_JINJA_TOKEN_BLOCK_END)
                     : read_expression(l, "}}", TSR_JINJA_TOKEN_PRINT_END);
}

static bool read_all(lexer *l) {
  while (l->at < l->length) {
    int64_t begin = l->at, at = begin;
    while (at < l->length && !has(l, at, "{%") && !has(l, at, "{{") && !has(l, at, "{#")) at++;
    if (at == l->length) {
      add(l, TSR_JINJA_TOKEN_DATA, begin, at);
      break;
    }
    add_data(l, begin, at, at + 2 < l->length ? l->text[at + 2] : 0, l->text[at + 1] == '{');
    l->at = at;
    if (!read_delimited(l)) return false;
  }
  add(l, TSR_JINJA_TOKEN_EOF, l->length, l->length);
  return true;
}

/* Copies the text with \n for \r\n and \r, without the last newline. */
static void copy_text(lexer *l, const char *text, size_t length) {
  char *to = tsr_arena_alloc(l->arena, length + 1);
  for (size_t i = 0; i < length; i++) {
    bool pair = text[i] == '\r' && i + 1 < length && text[i + 1] == '\n';
    if (!pair) to[l->length++] = text[i] == '\r' ? '\n' : text[i];
  }
  if (l->length && to[l->length - 1] == '\n') l->length--;
  l->text = to;
}

bool tsr_jinja_tokenize(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    tsr_jinja_token **ret_tokens, int *ret_count, tsr_diags *diags) {
  lexer l = {.arena = arena, .diags = diags, .file = file, .line = 1, .starts_line = true};
  copy_text(&l, text, length);
  if (!read_all(&l)) return false;
  *ret_tokens = l.tokens;
  *ret_count = l.count;
  return true;
}
