// SPDX-License-Identifier: Apache-2.0
/* Split patterns: written for Oniguruma, run by PCRE2.
 *
 * The two agree on what tokenizers use once white space, word characters and hexadecimal digits are
 * spelled out; what they read differently is refused. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/text.h"
#include "data/bpe_internal.h"
#include <pcre2.h>
#include <string.h>

/* Unicode's White_Space, which is Oniguruma's \s; PCRE2's has U+180E too. */
#define SPACES                                                                                     \
  "\\t-\\r "                                                                                       \
  "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* Its \w in a class; alone it has Latin-1's raised digits and fractions too. */
#define WORD_CHARS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_CHARS_ALONE WORD_CHARS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define HEX_DIGITS "0-9a-fA-F"

struct tsr_bpe_pattern {
  pcre2_code *code;
  bool has_jit;
};

struct tsr_bpe_match {
  pcre2_match_context *context;
  pcre2_match_data *data;
};

/* Of the interpreter: some 30,000 repetitions of a group in one match. PCRE2's own limit is 20 GB.
 */
enum { HEAP_KIB_MAX = 4096 };

static void *alloc_in_arena(PCRE2_SIZE size, void *arena) { return tsr_arena_alloc(arena, size); }
static void free_nothing(void *memory, void *arena) { (void)memory, (void)arena; }

/* ---- from Oniguruma's syntax to PCRE2's ---- */

typedef struct {
  const char *file, *whole, *at;
  bool in_class;
  tsr_text *out;
  tsr_diags *diags;
} translation;

static bool refuse(const translation *t, const char *construct, int length) {
  tsr_diag_error(
      t->diags, (tsr_place){.file = t->file}, "the pattern '%s' has '%.*s', which is not supported",
      t->whole, length, construct);
  tsr_diag_hint(t->diags, "PCRE2 may read it otherwise than the tokenizers package does");
  return false;
}

/* A set of characters, or those outside of it, in a class or alone. */
static bool add_set(translation *t, const char *set, bool is_negated) {
  if (t->in_class && is_negated) return refuse(t, t->at, 2);
  if (t->in_class) tsr_text_add(t->out, "%s", set);
  else tsr_text_add(t->out, "[%s%s]", is_negated ? "^" : "", set);
  t->at += 2;
  return true;
}

/* General categories have names of one or two letters; a longer name is a script. Of a script,
 * PCRE2 would take Script_Extensions when not told "sc:". */
static bool add_property(translation *t) {
  const char *name = t->at + 3, *end = t->at[2] == '{' ? strchr(name, '}') : NULL;
  if (!end) return refuse(t, t->at, 2);
  bool is_negated = *name == '^';
  name += is_negated;
  int length = (int)(end - name);
  tsr_text_add(
      t->out, "\\%c{%s%s%.*s}", t->at[1], is_negated ? "^" : "", length > 2 ? "sc:" : "", length,
      name);
  t->at = end + 1;
  return true;
}

static int hex_digits(const char *text) { return (int)strspn(text, "0123456789abcdefABCDEF"); }

static bool add_code(translation *t) {
  const char *digits = t->at + 2;
  int length = t->at[1] == 'u' ? 4 : 2;
  if (t->at[1] == 'x' && *digits == '{') {
    length = hex_digits(digits + 1);
    if (!length || digits[1 + length] != '}') return refuse(t, t->at, 3);
    tsr_text_add(t->out, "\\x{%.*s}", length, digits + 1);
    t->at = digits + length + 2;
    return true;
  }
  /* \x80 and above are single bytes to Oniguruma. */
  if (hex_digits(digits) < length || (length == 2 && *digits > '7')) return refuse(t, t->at, 2);
  tsr_text_add(t->out, "\\x{%.*s}", length, digits);
  t->at = digits + length;
  return true;
}

static bool add_escape(translation *t) {
  char c = t->at[1];
  bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  switch (c) {
  case 's':
  case 'S':
    return add_set(t, SPACES, c == 'S');
  case 'w':
  case 'W':
    return add_set(t, t->in_class ? WORD_CHARS : WORD_CHARS_ALONE, c == 'W');
  case 'h':
  case 'H':
    return add_set(t, HEX_DIGITS, c == 'H');
  case 'v':
    return add_set(t, "\\x0b", false);
  case 'p':
  case 'P':
    return add_property(t);
  case 'x':
  case 'u':
    return add_code(t);
  }
  bool is_known = strchr("nrtfaedD", c) || (!t->in_class && strchr("AzZ", c));
  if (!c || (is_letter && !is_known)) return refuse(t, t->at, c ? 2 : 1);
  tsr_text_add_bytes(t->out, t->at, 2);
  t->at += 2;
  return true;
}

/* Oniguruma has sets inside sets, and their intersection. */
static bool add_in_class(translation *t) {
  if (t->at[0] == '[') return refuse(t, t->at, t->at[1] == ':' ? 2 : 1);
  if (t->at[0] == '&' && t->at[1] == '&') return refuse(t, t->at, 2);
  if (t->at[0] == ']') t->in_class = false;
  tsr_text_add_bytes(t->out, t->at++, 1);
  return true;
}

/* Groups with names, conditions, verbs and other options mean different things, if any. Options
 * without a group hold for what follows them, which is the same only at the very start. */
static bool add_group(translation *t) {
  static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"};
  if (t->at[1] == '*') return refuse(t, t->at, 2);
  if (t->at[1] != '?') {
    tsr_text_add_bytes(t->out, t->at++, 1);
    return true;
  }
  size_t length = t->at == t->whole && !strncmp(t->at, "(?i)", 4) ? 4 : 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strncmp(t->at, known[i], strlen(known[i]))) length = strlen(known[i]);
  if (!length) return refuse(t, t->at, t->at[2] ? 3 : 2);
  tsr_text_add_bytes(t->out, t->at, length);
  t->at += length;
  return true;
}

/* {1,3}+ is possessive to PCRE2 and a repeated repetition to Oniguruma, {2}? optional or lazy,
 * {,3} literal or not. */
static bool add_repetition(translation *t) {
  size_t low = strspn(t->at + 1, "0123456789");
  const char *end = t->at + 1 + low;
  bool has_comma = *end == ',';
  if (has_comma) end += 1 + strspn(end + 1, "0123456789");
  if (!low || *end != '}') return refuse(t, t->at, 1);
  end++;
  if (*end == '+' || (*end == '?' && !has_comma)) return refuse(t, t->at, (int)(end + 1 - t->at));
  tsr_text_add_bytes(t->out, t->at, (size_t)(end - t->at));
  t->at = end;
  return true;
}

static bool add_next(translation *t) {
  if (t->at[0] == '\\') return add_escape(t);
  if (t->in_class) return add_in_class(t);
  if (t->at[0] == '(') return add_group(t);
  if (t->at[0] == '{') return add_repetition(t);
  size_t length = 1;
  if (t->at[0] == '[') {
    length += t->at[1] == '^';
    if (t->at[length] == ']') return refuse(t, t->at, (int)length + 1);
    t->in_class = true;
  }
  tsr_text_add_bytes(t->out, t->at, length);
  t->at += length;
  return true;
}

/* ---- compiling and matching ---- */

static bool compile(
    tsr_arena *arena, const char *pattern, const char *shown, uint32_t options, const char *file,
    tsr_bpe_pattern **ret, tsr_diags *diags) {
  pcre2_general_context *memory = pcre2_general_context_create(alloc_in_arena, free_nothing, arena);
  pcre2_compile_context *context = pcre2_compile_context_create(memory);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error;
  PCRE2_SIZE offset;
  pcre2_code *code =
      pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), options, &error, &offset, context);
  if (!code) {
    PCRE2_UCHAR reason[128];
    pcre2_get_error_message(error, reason, sizeof reason);
    return tsr_diag_error(
        diags, (tsr_place){.file = file}, "the pattern '%s' is not right: %s", shown,
        (const char *)reason);
  }
  *ret = tsr_arena_array(arena, tsr_bpe_pattern, 1);
  /* Where there is no just-in-time compiler, PCRE2 interprets. */
  **ret = (tsr_bpe_pattern){code, pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0};
  return true;
}

bool tsr_bpe_pattern_compile(
    tsr_arena *arena, const char *text, bool is_plain, const char *file, tsr_bpe_pattern **ret,
    tsr_diags *diags) {
  if (is_plain) return compile(arena, text, text, PCRE2_UTF | PCRE2_LITERAL, file, ret, diags);
  tsr_text out = {0};
  translation t = {.file = file, .whole = text, .at = text, .out = &out, .diags = diags};
  bool ok = true;
  while (ok && *t.at) ok = add_next(&t);
  /* Oniguruma's ^ and $ are those of lines. */
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
  ok = ok && compile(arena, out.data ? out.data : "", text, options, file, ret, diags);
  tsr_text_free(&out);
  return ok;
}

bool tsr_bpe_pattern_word_char(
    tsr_arena *arena, const char *file, tsr_bpe_pattern **ret, tsr_diags *diags) {
  static const char text[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";
  return compile(arena, text, text, PCRE2_UTF | PCRE2_UCP, file, ret, diags);
}

void tsr_bpe_pattern_free(tsr_bpe_pattern *pattern) {
  if (pattern) pcre2_code_free(pattern->code);
}

tsr_bpe_match *tsr_bpe_match_new(tsr_arena *arena) {
  tsr_bpe_match *match = tsr_arena_array(arena, tsr_bpe_match, 1);
  pcre2_general_context *memory = pcre2_general_context_create(alloc_in_arena, free_nothing, arena);
  match->context = pcre2_match_context_create(memory);
  pcre2_set_heap_limit(match->context, HEAP_KIB_MAX);
  match->data = pcre2_match_data_create(1, memory);
  return match;
}

void tsr_bpe_match_free(tsr_bpe_match *match) { pcre2_match_data_free(match->data); }

int tsr_bpe_pattern_find(
    const tsr_bpe_pattern *pattern, tsr_bpe_match *match, const char *text, size_t length,
    size_t at, size_t *ret_begin, size_t *ret_end) {
  PCRE2_SPTR subject = (PCRE2_SPTR)text;
  int status = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pattern->has_jit)
    status = pcre2_jit_match(pattern->code, subject, length, at, 0, match->data, NULL);
  /* The interpreter has more memory than the compiled pattern's stack. */
  if (status == PCRE2_ERROR_JIT_STACKLIMIT)
    status = pcre2_match(
        pattern->code, subject, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match->data,
        match->context);
  if (status == PCRE2_ERROR_NOMATCH) return 0;
  if (status < 0) return -1;
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(match->data);
  *ret_begin = ends[0];
  *ret_end = ends[1];
  return 1;
}
