// SPDX-License-Identifier: Apache-2.0
#include "serve/job.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Whether the token is a part of a character, but not the first one. */
static bool is_later_part(const tsr_tokenizer *tokenizer, int32_t token) {
  tsr_text bytes = {0};
  tsr_tokenizer_token_text(tokenizer, token, &bytes);
  bool is_part = bytes.length && !tsr_text_characters(bytes.data, 1);
  tsr_text_free(&bytes);
  return is_part;
}

/* An echo begins with the prompt as it was given: its tokens may stand for another text, as without
 * a blank at its begin, or without special tokens. All bytes of a character may begin where it
 * does, and the first of them counts as a character. */
static void echo_text(tsr_text_choice *c, const tsr_prompt_text *given, const tsr_prompt *prompt) {
  const tsr_tokenizer *tokenizer = c->job->model->tokenizer;
  c->prompt_text.length = 0;
  tsr_text_add_bytes(&c->prompt_text, given->bytes, strlen(given->bytes));
  for (int64_t i = 0; c->prompt_offsets && i < prompt->count; i++) {
    const char *at = given->bytes + given->begins[i];
    bool is_behind =
        *at && tsr_text_characters(at, 1) && is_later_part(tokenizer, prompt->tokens[i]);
    c->prompt_offsets[i] = tsr_text_characters(given->bytes, (size_t)given->begins[i]) + is_behind;
  }
}

tsr_serve_job *
tsr_serve_job_new(tsr_arena *arena, const tsr_served_model *model, const tsr_request *request) {
  tsr_serve_job *job = tsr_arena_alloc(arena, sizeof *job);
  pthread_condattr_t monotonic;
  job->arena = arena;
  job->model = model;
  job->request = *request;
  job->choices_count = request->prompts_count * request->n;
  job->choices = tsr_arena_array(arena, tsr_text_choice, job->choices_count);
  for (int i = 0; i < job->choices_count; i++) {
    tsr_text_choice *c = &job->choices[i];
    c->job = job;
    c->prompt = i / request->n;
    c->number = i % request->n;
    const tsr_prompt *prompt = &request->prompts[c->prompt];
    if (request->echoes && request->wants_logprobs)
      c->prompt_offsets = tsr_arena_array(arena, int64_t, prompt->count + 1);
    c->stream = tsr_text_stream_new(
        arena, model->tokenizer, prompt->tokens, prompt->count, &c->prompt_text, c->prompt_offsets);
    if (!request->echoes) tsr_text_free(&c->prompt_text);
    else if (request->texts && request->texts[c->prompt].bytes)
      echo_text(c, &request->texts[c->prompt], prompt);
  }
  pthread_mutex_init(&job->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&job->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return job;
}

void tsr_serve_job_free(tsr_serve_job *job) {
  for (int i = 0; i < job->choices_count; i++) {
    tsr_text_free(&job->choices[i].prompt_text);
    tsr_text_stream_free(&job->choices[i].stream);
    free(job->choices[i].records);
    free(job->choices[i].top_logprobs);
  }
  pthread_cond_destroy(&job->changed);
  pthread_mutex_destroy(&job->lock);
  tsr_arena_free(job->arena);
}

static void add_record(tsr_text_choice *c, const tsr_text_token *t) {
  const tsr_request *r = &c->job->request;
  if (c->records_count == c->records_capacity) {
    c->records_capacity = c->records_capacity ? 2 * c->records_capacity : 32;
    size_t count = (size_t)c->records_capacity;
    c->records = tsr_memory_grow(c->records, count * sizeof *c->records);
    if (r->top_logprobs)
      c->top_logprobs = tsr_memory_grow(
          c->top_logprobs, count * (size_t)r->top_logprobs * sizeof *c->top_logprobs);
  }
  tsr_token_record *to = &c->records[c->records_count];
  *to = (tsr_token_record){
      t->logprob.token, t->logprob.log_probability, c->stream.text.length,
      tsr_text_characters(c->stream.held.data, c->stream.held.length)};
  if (r->top_logprobs) {
    tsr_token_logprob *top_logprobs = c->top_logprobs + c->records_count * r->top_logprobs;
    for (int i = 0; i < r->top_logprobs; i++) /* a vocabulary may have fewer */
      top_logprobs[i] = t->top_logprobs[i < t->top_logprobs_count ? i : t->top_logprobs_count - 1];
  }
  c->records_count++;
}

void tsr_text_choice_add_token(tsr_text_choice *c, const tsr_text_token *t) {
  const tsr_request *r = &c->job->request;
  pthread_mutex_lock(&c->job->lock);
  if (r->wants_logprobs || r->returns_ids) add_record(c, t);
  if (t->is_drawn) {
    c->drawn++;
    if (!t->is_end)
      tsr_text_stream_add(
          &c->stream, c->job->model->tokenizer, t->logprob.token, r->stops, r->stops_count);
    pthread_cond_broadcast(&c->job->changed);
  }
  pthread_mutex_unlock(&c->job->lock);
}

void tsr_text_choice_finish(tsr_text_choice *c, tsr_finish finish) {
  pthread_mutex_lock(&c->job->lock);
  c->finish = finish;
  tsr_text_stream_end(&c->stream, c->job->request.stops, c->job->request.stops_count);
  if (c->stream.is_stopped && finish == TSR_FINISH_LENGTH) c->finish = TSR_FINISH_STOP;
  c->job->finished++;
  pthread_cond_broadcast(&c->job->changed);
  pthread_mutex_unlock(&c->job->lock);
}
