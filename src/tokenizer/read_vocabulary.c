// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the model's vocabulary, an object of ids or, of Unigram, a list of scores. */
#include "tokenizer/internal.h"
#include <math.h>
#include <string.h>

static bool
check_id(const tsr_subword_reader *r, const cJSON *item, const char *where, const char *text) {
  bool ok = cJSON_IsNumber(item) && item->valuedouble >= 0 &&
            item->valuedouble < TSR_SUBWORD_TOKENS_MAX &&
            item->valuedouble == (double)(int32_t)item->valuedouble;
  if (ok) return true;
  return tsr_diag_error(
      r->diags, r->location, "%s: the id of '%s' should be a whole number in [0, %d)", where, text,
      TSR_SUBWORD_TOKENS_MAX);
}

static bool count_ids(const tsr_subword_reader *r, const cJSON *vocab, const cJSON *added) {
  bool is_list = cJSON_IsArray(vocab);
  int32_t largest = is_list ? cJSON_GetArraySize(vocab) - 1 : -1;
  const cJSON *item;
  if (largest >= TSR_SUBWORD_TOKENS_MAX)
    return tsr_diag_error(
        r->diags, r->location, "model.vocab has %d tokens; %d at most", largest + 1,
        TSR_SUBWORD_TOKENS_MAX);
  const cJSON *ids = is_list ? NULL : vocab;
  cJSON_ArrayForEach(item, ids) {
    if (!check_id(r, item, "model.vocab", item->string)) return false;
    if (item->valueint > largest) largest = item->valueint;
  }
  cJSON_ArrayForEach(item, added) {
    const cJSON *id = tsr_json_get(item, "id"), *content = tsr_json_get(item, "content");
    if (!cJSON_IsString(content) || !content->valuestring[0])
      return tsr_diag_error(r->diags, r->location, "added_tokens: a token has no 'content'");
    if (!check_id(r, id, "added_tokens", content->valuestring)) return false;
    if (id->valueint > largest) largest = id->valueint;
  }
  r->subword->vocab_size = largest + 1;
  return true;
}

/* Whether each byte that UTF-8 has is written as a token of one letter. */
static bool has_all_bytes(const cJSON *vocab) {
  bool has[256] = {0}, all = true;
  tsr_text bytes = {0};
  const cJSON *item;
  cJSON_ArrayForEach(item, vocab) {
    bool is_byte = strlen(item->string) <= 2 && tsr_byte_letters_unmap(item->string, &bytes);
    if (is_byte && bytes.length == 1) has[(unsigned char)bytes.data[0]] = true;
  }
  tsr_text_free(&bytes);
  for (int byte = 0; byte < 256; byte++)
    all &= has[byte] || byte == 0xc0 || byte == 0xc1 || byte > 0xf4;
  return all;
}

/* Words may stay bytes where letters for them are made by the last step and by no other, and the
 * decoder does nothing but turn them back. Then that step is left out. */
static void choose_bytes(tsr_subword *s, const cJSON *vocab) {
  tsr_steps *steps = &s->pre_tokenizer;
  int mapping = 0;
  for (int i = 0; i < s->normalizer.count; i++)
    mapping += s->normalizer.steps[i].kind == TSR_STEP_BYTE_LETTERS;
  for (int i = 0; i < steps->count; i++) mapping += steps->steps[i].kind == TSR_STEP_BYTE_LETTERS;
  bool is_last = steps->count && steps->steps[steps->count - 1].kind == TSR_STEP_BYTE_LETTERS;
  bool decodes = s->decoder_count == 1 && s->decoder[0].kind == TSR_DECODE_BYTE_LEVEL;
  bool is_plain = !s->falls_back && !s->prefix_length && !s->suffix_length;
  if (mapping != 1 || !is_last || !decodes || !is_plain || !has_all_bytes(vocab)) return;
  s->model = TSR_MODEL_BPE_BYTES;
  steps->count--;
  const tsr_step *only = &steps->steps[0];
  if (steps->count != 1 || only->kind != TSR_STEP_SPLIT || !only->pattern) return;
  const tsr_known_pattern *known = tsr_pattern_known(only->pattern);
  bool cuts = known && tsr_known_pattern_covers(known) && only->behavior != TSR_SPLIT_CONTIGUOUS &&
              only->behavior != TSR_SPLIT_REMOVED;
  /* Without gaps between matches none is merged with another. */
  if (cuts && !only->inverts) s->known_words = known;
}

static bool
add_token(const tsr_subword_reader *r, const char *text, int32_t token, tsr_text *unmapped) {
  tsr_subword *s = r->subword;
  if (s->texts[token])
    return tsr_diag_error(
        r->diags, r->location, "model.vocab: '%s' has the id %d, which another token has too", text,
        token);
  bool of_bytes = s->model == TSR_MODEL_BPE_BYTES;
  bool is_word = !of_bytes || tsr_byte_letters_unmap(text, unmapped);
  /* What no bytes are written as can never be in a word: such a token is decoded only. */
  const char *bytes = of_bytes && is_word ? unmapped->data : text;
  size_t length = of_bytes && is_word ? unmapped->length : strlen(text);
  s->texts[token] = tsr_arena_strndup(r->arena, bytes, length);
  s->lengths[token] = (uint32_t)length;
  if (!is_word || !length) return true;
  *tsr_vocabulary_slot(s, bytes, length) = token;
  if (length > s->longest) s->longest = (uint32_t)length;
  if (of_bytes && length == 1) s->byte_tokens[(unsigned char)bytes[0]] = token;
  return true;
}

static bool read_scores(const tsr_subword_reader *r, const cJSON *vocab) {
  tsr_subword *s = r->subword;
  s->scores = tsr_arena_array(r->arena, double, s->vocab_size);
  double lowest = INFINITY;
  int32_t token = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, vocab) {
    const cJSON *text = cJSON_GetArrayItem(item, 0), *score = cJSON_GetArrayItem(item, 1);
    if (!cJSON_IsArray(item) || !cJSON_IsString(text) || !cJSON_IsNumber(score) || score->next)
      return tsr_diag_error(
          r->diags, r->location, "model.vocab: token %d should be [text, score]", token);
    if (!add_token(r, text->valuestring, token, NULL)) return false;
    s->scores[token++] = score->valuedouble;
    if (score->valuedouble < lowest) lowest = score->valuedouble;
  }
  s->unknown_score = lowest - 10; /* sentencepiece's kUnkPenalty */
  tsr_unigram_make_trie(r->arena, s);
  return true;
}

static bool read_words(const tsr_subword_reader *r, const cJSON *vocab) {
  tsr_text unmapped = {0};
  bool ok = true;
  const cJSON *item;
  cJSON_ArrayForEach(item, vocab) {
    ok = add_token(r, item->string, item->valueint, &unmapped);
    if (!ok) break;
  }
  tsr_text_free(&unmapped);
  return ok;
}

bool tsr_vocabulary_read(const tsr_subword_reader *r, const cJSON *vocab, const cJSON *added) {
  tsr_subword *s = r->subword;
  bool is_unigram = s->model == TSR_MODEL_UNIGRAM;
  if (is_unigram ? !cJSON_IsArray(vocab) : !cJSON_IsObject(vocab))
    return tsr_diag_error(
        r->diags, r->location, "model.vocab should be %s",
        is_unigram ? "a list of tokens and scores" : "an object of tokens and ids");
  if (!count_ids(r, vocab, added)) return false;
  if (s->model == TSR_MODEL_BPE) choose_bytes(s, vocab);
  s->texts = tsr_arena_array(r->arena, const char *, s->vocab_size);
  s->lengths = tsr_arena_array(r->arena, uint32_t, s->vocab_size);
  s->flags = tsr_arena_array(r->arena, uint8_t, s->vocab_size);
  uint32_t size = 16;
  while (size < 2 * (uint32_t)s->vocab_size) size *= 2;
  s->words = tsr_arena_array(r->arena, int32_t, size);
  s->words_mask = size - 1;
  memset(s->words, -1, size * sizeof *s->words);
  memset(s->byte_tokens, -1, sizeof s->byte_tokens);
  if (is_unigram ? !read_scores(r, vocab) : !read_words(r, vocab)) return false;
  for (int byte = 0; s->falls_back && byte < 256; byte++) {
    char text[8];
    int length = snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
    s->byte_tokens[byte] = tsr_vocabulary_find(s, text, (size_t)length);
  }
  if (s->unknown_text)
    s->unknown = tsr_vocabulary_find(s, s->unknown_text, strlen(s->unknown_text));
  return true;
}
