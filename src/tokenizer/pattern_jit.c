// SPDX-License-Identifier: Apache-2.0
/* The split patterns that most models have, compiled to machine code by PCRE2. With Oniguruma,
 * which interprets, all of `tokenize` takes 2.5 to 3.6 times as long: hence these, by their exact
 * text. That PCRE2 finds the same is tested (tests/data/test_bpe_pattern.c). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pattern.h"
#include "base/text.h"
#include <pcre2.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"

static const char *const known[] = {
    /* GPT-2; ByteLevel has it in itself */
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    /* Llama 3, cl100k */
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
    /* Qwen 2 and 3 */
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
    /* o200k, Llama 4 */
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" CONTRACTIONS "?|"
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER "]*" CONTRACTIONS "?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
    /* Digits of SmolLM, each by itself and not; the first of DeepSeek's */
    "\\p{N}",
    "\\p{N}+",
    "\\p{N}{1,3}",
};

struct tsr_pattern_jit {
  pcre2_code *code;
};

struct tsr_pattern_jit_match {
  pcre2_match_data *data;
};

static void *alloc_in_arena(PCRE2_SIZE size, void *arena) { return tsr_arena_alloc(arena, size); }
static void free_nothing(void *memory, void *arena) { (void)memory, (void)arena; }

/* Spells \s and \S out: Oniguruma's are Unicode's White_Space, PCRE2's have U+180E too. */
static void spell_spaces(const char *text, tsr_text *out) {
  static const char spaces[] =
      "\\t-\\r "
      "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
  bool in_class = false;
  for (; *text; text++) {
    bool is_space = text[0] == '\\' && (text[1] == 's' || text[1] == 'S');
    if (*text == '[' || *text == ']') in_class = *text == '[';
    if (!is_space) {
      tsr_text_add_bytes(out, text, 1);
      continue;
    }
    text++;
    if (in_class) tsr_text_add(out, "%s", spaces);
    else tsr_text_add(out, "[%s%s]", *text == 'S' ? "^" : "", spaces);
  }
}

static bool is_known(const char *text) {
  bool found = false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= !strcmp(text, known[i]);
  return found;
}

tsr_pattern_jit *tsr_pattern_jit_compile(tsr_arena *arena, const char *text) {
  if (!is_known(text)) return NULL;
  tsr_text pattern = {0};
  spell_spaces(text, &pattern);
  pcre2_general_context *memory = pcre2_general_context_create(alloc_in_arena, free_nothing, arena);
  pcre2_compile_context *context = pcre2_compile_context_create(memory);
  int error;
  PCRE2_SIZE offset;
  tsr_pattern_jit *jit = tsr_arena_array(arena, tsr_pattern_jit, 1);
  jit->code = pcre2_compile(
      (PCRE2_SPTR)pattern.data, pattern.length, PCRE2_UTF | PCRE2_UCP, &error, &offset, context);
  tsr_text_free(&pattern);
  /* Without machine code there is no reason for it. */
  bool ok = jit->code && !pcre2_jit_compile(jit->code, PCRE2_JIT_COMPLETE);
  if (!ok) pcre2_code_free(jit->code);
  return ok ? jit : NULL;
}

void tsr_pattern_jit_free(tsr_pattern_jit *jit) {
  if (jit) pcre2_code_free(jit->code);
}

tsr_pattern_jit_match *tsr_pattern_jit_match_new(tsr_arena *arena) {
  tsr_pattern_jit_match *match = tsr_arena_array(arena, tsr_pattern_jit_match, 1);
  pcre2_general_context *memory = pcre2_general_context_create(alloc_in_arena, free_nothing, arena);
  match->data = pcre2_match_data_create(1, memory);
  return match;
}

void tsr_pattern_jit_match_free(tsr_pattern_jit_match *match) {
  pcre2_match_data_free(match->data);
}

int tsr_pattern_jit_find(
    const tsr_pattern_jit *jit, tsr_pattern_jit_match *match, const char *text, size_t length,
    size_t at, size_t *ret_begin, size_t *ret_end) {
  int status = pcre2_jit_match(jit->code, (PCRE2_SPTR)text, length, at, 0, match->data, NULL);
  if (status < 0) return status == PCRE2_ERROR_NOMATCH ? 0 : -1;
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(match->data);
  *ret_begin = ends[0];
  *ret_end = ends[1];
  return 1;
}
