// SPDX-License-Identifier: Apache-2.0
#include "train/generate.h"
#include "train/score_check.h"
#include "train/trainer.h"
#include <string.h>
#include <time.h>

/* A row of the batch: the text that it has, if any. */
typedef struct {
  int prompt;      /* -1: none */
  int32_t *tokens; /* all of the text */
  int64_t count, prompt_count, capacity;
  int64_t begin;  /* of what the model sees */
  int64_t cached; /* of these, how many the cache has */
  int64_t taken;  /* by the run that is under way */
} row;

typedef struct {
  tsr_arena *arena;
  const tsr_generator *generator;
  const tsr_prompt *prompts;
  const tsr_generating *how;
  tsr_continuation *texts;
  tsr_generating_speed speed;
  tsr_diags *diags;
  row *rows;
  int64_t rows_count, window;
  int prompts_count, next_prompt;
  int64_t width; /* of the run that is under way: tokens of each row */
  float *logits; /* of one row */
  void *scratch;
} generating;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int tsr_generation_programs(const tsr_compiled *g, tsr_programs ret_programs[2]) {
  ret_programs[0] = g->programs;
  if (g->decode) ret_programs[1] = g->decode->programs;
  return g->decode ? 2 : 1;
}

tsr_generator
tsr_generator_of(const tsr_compiled *g, tsr_executable *const *executable, int64_t vocab_size) {
  int64_t known = g->model->vocab_size;
  if (known && known < vocab_size) vocab_size = known;
  return (tsr_generator){g, executable[0], g->decode ? executable[1] : NULL, vocab_size};
}

static bool has_cache(const generating *g) { return g->generator->decode != NULL; }

/* ---- the rows ---- */

static int64_t waiting(const row *r) { return r->count - r->begin - r->cached; }

/* What the model sees of a text that has become too long are its last `kept` tokens. */
static void slide(generating *g, row *r, int64_t kept) {
  if (r->count - r->begin <= g->window) return;
  r->begin = r->count - kept;
  r->cached = 0;
}

/* Half a window makes room for a cache to be worth while, so it is that without one, too: whether
 * there is one must not change the text. */
static int64_t kept_of(const generating *g) { return g->window > 1 ? g->window / 2 : 1; }

/* Room for a token more. A text may end long before max_new_tokens, so its memory grows with it. */
static void make_room(generating *g, row *r, const int32_t *tokens) {
  enum { NEW_TOKENS = 1024 };
  if (r->count < r->capacity) return;
  r->capacity = r->count + (r->count > NEW_TOKENS ? r->count : NEW_TOKENS);
  r->tokens = tsr_arena_array(g->arena, int32_t, r->capacity);
  memcpy(r->tokens, tokens, sizeof *tokens * (size_t)r->count);
}

static void take_prompt(generating *g, row *r) {
  const tsr_prompt *p = &g->prompts[g->next_prompt];
  *r = (row){.prompt = g->next_prompt++, .count = p->count, .prompt_count = p->count};
  make_room(g, r, p->tokens);
  slide(g, r, g->window);
}

static void end_text(generating *g, row *r, tsr_text_end end) {
  g->texts[r->prompt] =
      (tsr_continuation){r->tokens + r->prompt_count, r->count - r->prompt_count, end};
  r->prompt = -1;
}

/* Gives every row that is free a prompt; whether there is something to do. */
static bool fill_rows(generating *g) {
  bool any = false;
  bool interrupted = (g->how->interrupt && *g->how->interrupt) ||
                     (g->how->is_over && g->how->is_over(g->how->over_context));
  for (int64_t i = 0; i < g->rows_count; i++) {
    row *r = &g->rows[i];
    if (interrupted && r->prompt >= 0) end_text(g, r, TSR_TEXT_INTERRUPTED);
    while (r->prompt < 0 && g->next_prompt < g->prompts_count) {
      take_prompt(g, r);
      if (interrupted) end_text(g, r, TSR_TEXT_INTERRUPTED);
      else if (!g->how->max_new_tokens) end_text(g, r, TSR_TEXT_FULL);
    }
    any |= r->prompt >= 0;
  }
  return any;
}

/* ---- a run ---- */

/* What is not filled must be tokens all the same. */
static void fill(void *context, const char *input, int64_t sample, void *to) {
  const generating *g = context;
  const row *r = &g->rows[sample];
  bool positions = !strcmp(input, TSR_CACHE_POSITIONS), counts = !strcmp(input, TSR_CACHE_COUNTS);
  if (positions || counts) {
    *(int32_t *)to = (int32_t)(positions ? r->cached : r->taken);
    return;
  }
  memset(to, 0, sizeof(int32_t) * (size_t)g->width);
  if (!r->taken) return;
  memcpy(to, r->tokens + r->begin + r->cached, sizeof(int32_t) * (size_t)r->taken);
}

/* Every row gives as much as it has waiting; whether a text's tokens are read, so that the longer
 * program is needed. */
static bool take_tokens(generating *g) {
  bool reads = false;
  for (int64_t i = 0; i < g->rows_count; i++)
    reads |= g->rows[i].prompt >= 0 && waiting(&g->rows[i]) > 1;
  g->width = !has_cache(g) ? g->window : reads ? g->generator->generation->new_tokens : 1;
  for (int64_t i = 0; i < g->rows_count; i++) {
    row *r = &g->rows[i];
    int64_t have = r->prompt < 0 ? 0 : waiting(r);
    if (r->prompt < 0) r->cached = 0;
    r->taken = have < g->width ? have : g->width;
  }
  return reads && has_cache(g);
}

static bool draw(generating *g, row *r) {
  const tsr_generating *how = g->how;
  tsr_sampling sampling = how->sampling;
  sampling.stream += (uint64_t)r->prompt;
  int32_t token = tsr_sample_token(
      &sampling, g->logits, g->generator->vocab_size, r->tokens, r->count, (uint64_t)r->count,
      g->scratch);
  if (token < 0)
    return tsr_diag_failure(
        g->diags, TSR_NOWHERE, "prompt %d, token %lld: no finite logit to draw from", r->prompt + 1,
        (long long)r->count);
  for (int i = 0; i < how->stops_count; i++)
    if (token == how->stops[i]) return end_text(g, r, TSR_TEXT_STOPPED), true;
  make_room(g, r, r->tokens);
  r->tokens[r->count++] = token;
  if (how->drawn) how->drawn(how->context, r->prompt, token);
  if (r->count - r->prompt_count == how->max_new_tokens) end_text(g, r, TSR_TEXT_FULL);
  else slide(g, r, kept_of(g));
  return true;
}

/* After a run: a token for every row that has none waiting. */
static bool draw_tokens(generating *g, const tsr_executable *executable, int logits) {
  for (int64_t i = 0; i < g->rows_count; i++) {
    row *r = &g->rows[i];
    if (r->prompt < 0) continue;
    if (has_cache(g)) r->cached += r->taken;
    if (has_cache(g) && waiting(r)) continue;
    tsr_executable_read_row(
        executable, logits, has_cache(g) ? i : i * g->window + r->taken - 1, g->logits);
    if (!draw(g, r)) return false;
  }
  return true;
}

static bool run(generating *g) {
  double start = now();
  const tsr_generator *generator = g->generator;
  bool reads = take_tokens(g), whole = !has_cache(g);
  bool first = whole || g->width > 1;
  tsr_executable *executable = first ? generator->executable : generator->decode;
  const tsr_compiled *c = first ? generator->generation : generator->generation->decode;
  int64_t tokens = 0;
  for (int64_t i = 0; i < g->rows_count; i++)
    tokens += whole ? g->rows[i].prompt >= 0 : g->rows[i].taken;
  tsr_executable_run(executable, 0, fill, g);
  bool ok = tsr_check_scores(executable, "the generation", g->diags) &&
            draw_tokens(g, executable, tsr_graph_find_output(c->placed, "logits"));
  *(reads ? &g->speed.prefill_tokens : &g->speed.decode_tokens) += tokens;
  *(reads ? &g->speed.prefill_seconds : &g->speed.decode_seconds) += now() - start;
  return ok;
}

static void open_rows(generating *g) {
  const tsr_compiled *c = g->generator->generation;
  g->rows_count = c->batch;
  g->window = c->model->sequence;
  g->rows = tsr_arena_array(g->arena, row, g->rows_count);
  for (int64_t i = 0; i < g->rows_count; i++) g->rows[i].prompt = -1;
  g->logits = tsr_arena_array(g->arena, float, c->model->vocab_padded);
  g->scratch = tsr_arena_alloc(g->arena, tsr_sampling_scratch_bytes(g->generator->vocab_size));
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

bool tsr_generate_texts(
    tsr_arena *arena, const tsr_generator *generator, const tsr_prompt *prompts, int count,
    const tsr_generating *how, tsr_continuation *ret_texts, tsr_generating_speed *ret_speed,
    tsr_diags *diags) {
  generating g = {
      .arena = arena,
      .generator = generator,
      .prompts = prompts,
      .prompts_count = count,
      .how = how,
      .texts = ret_texts,
      .diags = diags};
  bool ok = true;
  for (int i = 0; i < count; i++) ok &= check_prompt(generator, &prompts[i], i, diags);
  if (!ok) return false;
  open_rows(&g);
  while (ok && fill_rows(&g)) ok = run(&g);
  *ret_speed = g.speed;
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
    int64_t *ret_count, tsr_text *text, tsr_diags *diags) {
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
  tsr_arena_free(arena);
  return ok;
}
