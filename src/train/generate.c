// SPDX-License-Identifier: Apache-2.0
#include "train/generate.h"
#include "train/trainer.h"
#include <string.h>

struct generating;
/* A prompt as the batch reports of it. */
typedef struct {
  struct generating *of;
  int index;
} listed_text;

typedef struct generating {
  tsr_arena *arena;
  const tsr_generating *how;
  tsr_continuation *texts;
} generating;

static bool hear(void *context, const tsr_text_token *token) {
  const listed_text *t = context;
  const tsr_generating *how = t->of->how;
  if (how->drawn && !token->is_end) how->drawn(how->context, t->index, token->logprob.token);
  return true;
}

static void keep(void *context, const int32_t *tokens, int64_t count, tsr_text_end end) {
  const listed_text *t = context;
  int32_t *copy = tsr_arena_array(t->of->arena, int32_t, count);
  memcpy(copy, tokens, sizeof *tokens * (size_t)count);
  t->of->texts[t->index] = (tsr_continuation){copy, count, end};
}

static tsr_text_request
request_of(const tsr_generating *how, const tsr_prompt *prompt, listed_text *t) {
  tsr_text_request q = {
      .tokens = prompt->tokens,
      .count = prompt->count,
      .sampling = how->sampling,
      .max_new_tokens = how->max_new_tokens,
      .stops = how->stops,
      .stops_count = how->stops_count,
      .token = hear,
      .ended = keep,
      .context = t};
  q.sampling.stream += (uint64_t)t->index;
  return q;
}

static bool is_interrupted(const tsr_generating *how) {
  return (how->interrupt && *how->interrupt) || (how->is_over && how->is_over(how->over_context));
}

static bool
check_prompt(const tsr_generator *g, const tsr_prompt *p, int number, tsr_diags *diags) {
  if (p->count < 1)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "prompt %d is empty: it has nothing to continue", number + 1);
  for (int64_t i = 0; i < p->count; i++)
    if (p->tokens[i] < 0 || p->tokens[i] >= g->vocab_size)
      return tsr_diag_error(
          diags, TSR_NOWHERE, "prompt %d: token %d is none of the model's %lld", number + 1,
          p->tokens[i], (long long)g->vocab_size);
  return true;
}

/* Whether every prompt had a token wherever one was to be drawn. */
static bool
check_texts(const tsr_prompt *prompts, const tsr_continuation *texts, int count, tsr_diags *diags) {
  for (int i = 0; i < count; i++)
    if (texts[i].end == TSR_TEXT_NO_TOKEN)
      return tsr_diag_failure(
          diags, TSR_NOWHERE, "prompt %d, token %lld: no finite logit to draw from", i + 1,
          (long long)(prompts[i].count + texts[i].count));
  return true;
}

bool tsr_generate_texts(
    tsr_arena *arena, const tsr_generator *generator, const tsr_prompt *prompts, int count,
    const tsr_generating *how, tsr_continuation *ret_texts, tsr_generating_speed *ret_speed,
    tsr_diags *diags) {
  generating g = {arena, how, ret_texts};
  bool ok = true;
  for (int i = 0; i < count; i++) ok &= check_prompt(generator, &prompts[i], i, diags);
  if (!ok) return false;
  tsr_text_batch *batch = tsr_text_batch_new(arena, generator);
  listed_text *texts = tsr_arena_array(arena, listed_text, count);
  for (int next = 0; ok;) {
    bool over = is_interrupted(how);
    if (over) tsr_text_batch_interrupt(batch);
    for (; next < count; next++) {
      texts[next] = (listed_text){&g, next};
      tsr_text_request q = request_of(how, &prompts[next], &texts[next]);
      ret_texts[next] = (tsr_continuation){.end = TSR_TEXT_INTERRUPTED};
      if (over) continue;
      if (!tsr_text_batch_has_room(batch, &q)) break;
      tsr_text_batch_add(batch, &q);
    }
    if (!tsr_text_batch_texts(batch)) break;
    ok = tsr_text_batch_step(batch, diags) && check_texts(prompts, ret_texts, next, diags);
  }
  *ret_speed = tsr_text_batch_speed(batch);
  return ok;
}

/* ---- the samples of a training run ---- */

static tsr_sampling sampling_of(const tsr_config_eval *e) {
  return (tsr_sampling){e->repetition_penalty, e->temperature, e->top_k, e->top_p, e->seed};
}

/* The prompt's tokens; without a prompt the token of the text's vocabulary that ends a line, or
 * token 0, which is left out of what is shown. */
static bool start_tokens(
    const tsr_trainer_options *o, tsr_arena *arena, tsr_prompt *ret_prompt, tsr_diags *diags) {
  const char *prompt = o->config->eval.prompt;
  const tsr_tokenizer *tokenizer = &o->data->dataset.tokenizer;
  int64_t room = tsr_tokenizer_room(tokenizer, prompt, strlen(prompt));
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  *ret_prompt = (tsr_prompt){tokens, 1};
  if (!prompt[0]) {
    int32_t newline = tsr_tokenizer_newline(tokenizer);
    tokens[0] = newline < 0 ? 0 : newline;
    return true;
  }
  tsr_text_file file = {"eval_config.prompt", prompt, strlen(prompt)};
  return tsr_tokenizer_encode(tokenizer, &file, tokens, &ret_prompt->count, diags);
}

/* The text of a prompt (NULL: none) and of what follows it. */
static void add_text(
    tsr_arena *arena, const tsr_tokenizer *tokenizer, const tsr_prompt *prompt,
    const tsr_continuation *made, tsr_text *text) {
  tsr_token_stream *stream = tsr_token_stream_new(arena, tokenizer, false);
  for (int64_t i = 0; prompt && i < prompt->count; i++)
    tsr_token_stream_add(stream, prompt->tokens[i], text);
  for (int64_t i = 0; i < made->count; i++) tsr_token_stream_add(stream, made->tokens[i], text);
  tsr_token_stream_end(stream, text);
}

bool tsr_generate(
    const tsr_trainer_options *o, const tsr_generator *generator, tsr_generating how,
    int64_t *ret_count, bool *ret_is_whole, tsr_text *text, tsr_diags *diags) {
  const tsr_tokenizer *tokenizer = &o->data->dataset.tokenizer;
  tsr_arena *arena = tsr_arena_new(); /* samples are many */
  how.sampling = sampling_of(&o->config->eval);
  tsr_prompt prompt;
  tsr_continuation made;
  tsr_generating_speed speed;
  bool ok = start_tokens(o, arena, &prompt, diags) &&
            tsr_generate_texts(arena, generator, &prompt, 1, &how, &made, &speed, diags);
  if (ok) add_text(arena, tokenizer, o->config->eval.prompt[0] ? &prompt : NULL, &made, text);
  *ret_count = ok ? made.count : 0;
  *ret_is_whole = ok && made.end != TSR_TEXT_INTERRUPTED;
  tsr_arena_free(arena);
  return ok;
}
