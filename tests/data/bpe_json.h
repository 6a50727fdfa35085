// SPDX-License-Identifier: Apache-2.0
/* Small tokenizer.json files: the 256 bytes, and what a test adds or puts in the place of. */
#ifndef TSR_TESTS_DATA_BPE_JSON_H
#define TSR_TESTS_DATA_BPE_JSON_H
#include "base/text.h"
#include "tokenizer/subword.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

/* NULL takes what stands behind each. */
typedef struct {
  const char *vocab;          /* more of it: ",\"ab\":256" */
  const char *merges;         /* "" */
  const char *model;          /* more keys: ",\"dropout\":0.1" */
  const char *normalizer;     /* null */
  const char *pre_tokenizer;  /* ByteLevel with GPT-2's pattern */
  const char *post_processor; /* null */
  const char *decoder;        /* ByteLevel */
  const char *added;          /* "" */
  const char *more;           /* more keys of the whole */
} bpe_json;

/* The letter of a byte. */
static inline uint32_t bpe_letter(int byte) {
  int others = 0;
  for (int b = 0; b <= byte; b++) {
    bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (b == byte) return itself ? (uint32_t)byte : 256 + (uint32_t)others;
    others += !itself;
  }
  return 0;
}

static inline const char *bpe_or(const char *text, const char *otherwise) {
  return text ? text : otherwise;
}

static inline const char *bpe_json_make(tsr_arena *arena, const bpe_json *j) {
  tsr_text t = {0};
  tsr_text_add(&t, "{\"version\":\"1.0\",\"added_tokens\":[%s],", bpe_or(j->added, ""));
  tsr_text_add(&t, "\"normalizer\":%s,", bpe_or(j->normalizer, "null"));
  tsr_text_add(
      &t, "\"pre_tokenizer\":%s,",
      bpe_or(
          j->pre_tokenizer,
          "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"));
  tsr_text_add(&t, "\"post_processor\":%s,", bpe_or(j->post_processor, "null"));
  tsr_text_add(&t, "\"decoder\":%s,", bpe_or(j->decoder, "{\"type\":\"ByteLevel\"}"));
  tsr_text_add(&t, "\"model\":{\"type\":\"BPE\",\"vocab\":{");
  for (int byte = 0; byte < 256; byte++) {
    char letter[5] = "";
    tsr_utf8_put(bpe_letter(byte), letter);
    bool escaped = byte == '"' || byte == '\\';
    tsr_text_add(&t, "%s\"%s%s\":%d", byte ? "," : "", escaped ? "\\" : "", letter, byte);
  }
  tsr_text_add(
      &t, "%s},\"merges\":[%s]%s}%s}", bpe_or(j->vocab, ""), bpe_or(j->merges, ""),
      bpe_or(j->model, ""), bpe_or(j->more, ""));
  const char *copy = tsr_arena_strdup(arena, t.data);
  tsr_text_free(&t);
  return copy;
}

static inline bool
bpe_json_parse(tsr_arena *arena, const bpe_json *j, tsr_subword **ret, tsr_diags *diags) {
  const char *text = bpe_json_make(arena, j);
  return tsr_subword_parse(arena, "t.json", text, strlen(text), ret, diags);
}

#endif
