// SPDX-License-Identifier: Apache-2.0
#include "serve/logprobs_json.h"
#include "base/json.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

/* None are kept where they are not wanted. */
static int64_t prompt_records(const tsr_text_choice *c) {
  return c->records_count > c->drawn ? c->records_count - c->drawn : 0;
}

int64_t tsr_text_choice_records(const tsr_text_choice *c) {
  int64_t count = c->records_count, least = prompt_records(c);
  if (c->stream.is_stopped)
    while (count > least && c->records[count - 1].begin >= c->stream.text.length) count--;
  return count;
}

/* A token's own bytes; of special ones, too. */
static void token_bytes(const tsr_text_choice *c, int32_t token, tsr_text *ret_bytes) {
  tsr_tokenizer_token_text(c->job->model->tokenizer, token, ret_bytes);
}

static size_t valid_utf8(const tsr_text *bytes) {
  return tsr_utf8_valid(bytes->data ? bytes->data : "", bytes->length);
}

/* The key of a token: its text, or "bytes:\xe2\x80" of a part of a character, by which parts can be
 * told apart. */
static void add_key(const tsr_text_choice *c, int32_t token, tsr_text *text) {
  tsr_text bytes = {0}, shown = {0};
  token_bytes(c, token, &bytes);
  if (!valid_utf8(&bytes)) {
    tsr_text_add(&shown, "bytes:");
    for (size_t i = 0; i < bytes.length; i++)
      tsr_text_add(&shown, "\\x%02x", (unsigned char)bytes.data[i]);
  }
  const tsr_text *use = shown.length ? &shown : &bytes;
  tsr_json_add_text(text, use->data ? use->data : "", use->length);
  tsr_text_free(&bytes);
  tsr_text_free(&shown);
}

/* JSON has no infinity. */
static void add_number(double log_probability, tsr_text *text) {
  tsr_text_add(text, "%.17g", isfinite(log_probability) ? log_probability : -9999.0);
}

/* ---- completions ---- */

/* The likeliest tokens and the token itself. */
static void add_dictionary(const tsr_text_choice *c, int64_t record, tsr_text *text) {
  int count = c->job->request.top_logprobs;
  const tsr_token_record *r = &c->records[record];
  const tsr_token_logprob *top_logprobs = c->top_logprobs + record * count;
  bool has_token = false, any = false;
  tsr_text_add(text, "{");
  for (int i = 0; i < count; i++) {
    if (i && top_logprobs[i].token == top_logprobs[i - 1].token) break; /* a small vocabulary */
    has_token |= top_logprobs[i].token == r->token;
    if (any) tsr_text_add(text, ",");
    add_key(c, top_logprobs[i].token, text);
    tsr_text_add(text, ":");
    add_number(top_logprobs[i].log_probability, text);
    any = true;
  }
  if (!has_token) {
    if (any) tsr_text_add(text, ",");
    add_key(c, r->token, text);
    tsr_text_add(text, ":");
    add_number(r->log_probability, text);
  }
  tsr_text_add(text, "}");
}

typedef enum { KEYS, NUMBERS, TOP_LOGPROBS, OFFSETS } column;

/* Where a token begins in the text, in characters. */
static int64_t offset_of(const tsr_text_choice *c, int64_t record) {
  const tsr_token_record *r = &c->records[record];
  if (record < prompt_records(c)) return c->prompt_offsets[record + 1];
  const tsr_text *text = &c->stream.text, *before = &c->prompt_text;
  int64_t offset = tsr_text_characters(before->data, before->length);
  if (r->begin >= text->length) return offset + tsr_text_characters(text->data, text->length);
  return offset + tsr_text_characters(text->data, r->begin) + r->held;
}

static void add_column(
    const tsr_text_choice *c, column which, bool prompt, int64_t first, int64_t count,
    tsr_text *text) {
  const char *between = "";
  if (prompt) {
    if (which == KEYS) add_key(c, c->job->request.prompts[c->prompt].tokens[0], text);
    else tsr_text_add(text, which == OFFSETS ? "0" : "null");
    between = ",";
  }
  for (int64_t i = first; i < count; i++, between = ",") {
    const tsr_token_record *r = &c->records[i];
    tsr_text_add(text, "%s", between);
    if (which == KEYS) add_key(c, r->token, text);
    else if (which == NUMBERS) add_number(r->log_probability, text);
    else if (which == TOP_LOGPROBS) add_dictionary(c, i, text);
    else tsr_text_add(text, "%lld", (long long)offset_of(c, i));
  }
}

static void add_completion(
    const tsr_text_choice *c, bool prompt, int64_t first, int64_t count, tsr_text *text) {
  static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
  for (int i = 0; i < 4; i++) {
    tsr_text_add(text, "%s\"%s\":[", i ? "," : "{", names[i]);
    add_column(c, (column)i, prompt, first, count, text);
    tsr_text_add(text, "]");
  }
  tsr_text_add(text, "}");
}

/* ---- chats ---- */

static void
add_entry(const tsr_text_choice *c, int32_t token, double log_probability, tsr_text *text) {
  tsr_text bytes = {0};
  tsr_text_add(text, "{\"token\":");
  add_key(c, token, text);
  tsr_text_add(text, ",\"logprob\":");
  add_number(log_probability, text);
  tsr_text_add(text, ",\"bytes\":[");
  token_bytes(c, token, &bytes);
  for (size_t i = 0; i < bytes.length; i++)
    tsr_text_add(text, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes.data[i]);
  tsr_text_add(text, "]");
  tsr_text_free(&bytes);
}

static void add_chat(const tsr_text_choice *c, int64_t first, int64_t count, tsr_text *text) {
  int top_logprobs = c->job->request.top_logprobs;
  tsr_text_add(text, "{\"content\":[");
  for (int64_t i = first; i < count; i++) {
    const tsr_token_record *r = &c->records[i];
    if (i > first) tsr_text_add(text, ",");
    add_entry(c, r->token, r->log_probability, text);
    tsr_text_add(text, ",\"top_logprobs\":[");
    for (int k = 0; k < top_logprobs; k++) {
      const tsr_token_logprob *logprob = &c->top_logprobs[i * top_logprobs + k];
      if (k && logprob->token == logprob[-1].token) break;
      if (k) tsr_text_add(text, ",");
      add_entry(c, logprob->token, logprob->log_probability, text);
      tsr_text_add(text, "}");
    }
    tsr_text_add(text, "]}");
  }
  tsr_text_add(text, "],\"refusal\":null}");
}

void tsr_logprobs_add(
    const tsr_text_choice *c, bool prompt, int64_t first, int64_t count, tsr_text *text) {
  if (c->job->request.is_chat) add_chat(c, first, count, text);
  else add_completion(c, prompt, first, count, text);
}

void tsr_text_choice_add_ids(
    const tsr_text_choice *c, int64_t first, int64_t count, tsr_text *text) {
  int64_t of_prompt = prompt_records(c);
  const char *between = "";
  tsr_text_add(text, "[");
  for (int64_t i = first < of_prompt ? of_prompt : first; i < count; i++, between = ",")
    tsr_text_add(text, "%s%d", between, c->records[i].token);
  tsr_text_add(text, "]");
}
