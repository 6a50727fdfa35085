// SPDX-License-Identifier: Apache-2.0
/* Text from models with random weights: a text is a function of its prompt, its index and the
 * sampling, not of chunks, mesh, threads, nor of what else is in the batch; and with a cache it is
 * the text of whole windows. */
#include "plan/plan.h"
#include "tests/check.h"
#include "text_model.h"

static const char *const models[] = {
    "transformer_config: {model_type: gpt2, vocab_size: 61, embedding_dim: 32, num_blocks: 2, "
    "num_heads: 4, max_sequence_length: 32, dropout_prob: 0.1, weight_tying: enabled}\n",
    "transformer_config: {model_type: llama, vocab_size: 61, embedding_dim: 64, num_blocks: 2, "
    "num_heads: 8, num_groups: 4, intermediate_dim: 64, max_sequence_length: 32, theta: 10000}\n",
    "transformer_config: {model_type: qwen3, vocab_size: 61, embedding_dim: 64, num_blocks: 2, "
    "num_heads: 8, num_groups: 4, intermediate_dim: 64, max_sequence_length: 32, "
    "weight_tying: enabled}\n",
    "transformer_config: {model_type: gemma2, vocab_size: 61, embedding_dim: 64, num_blocks: 2, "
    "num_heads: 8, num_groups: 4, intermediate_dim: 64, max_sequence_length: 32, "
    "attention_soft_cap: 1.5, logits_soft_cap: 2.5, sliding_window: 9}\n",
    "transformer_config: {model_type: gemma3, vocab_size: 61, embedding_dim: 64, num_blocks: 2, "
    "num_heads: 8, num_groups: 4, intermediate_dim: 64, max_sequence_length: 32, "
    "full_attention_blocks: [0], sliding_window: 9}\n",
    "transformer_config: {model_type: phi3, vocab_size: 61, embedding_dim: 64, num_blocks: 2, "
    "num_heads: 8, num_groups: 4, intermediate_dim: 64, max_sequence_length: 32, rotary_dim: 6, "
    "rope_scaling: {short_factors: [1, 1, 1], long_factors: [1, 2.5, 6], "
    "original_context_length: 16}}\n",
    "transformer_config: {model_type: gpt_neox, vocab_size: 61, embedding_dim: 32, num_blocks: 2, "
    "num_heads: 8, intermediate_dim: 64, max_sequence_length: 32, rotary_dim: 2}\n"};
enum { MODELS = 7, WINDOW = 32, PROMPTS = 7, NEW = 12 };

typedef struct {
  tsr_arena *arena;
  tsr_prompt prompts[PROMPTS];
  tsr_generating how;
} task;

static task task_new(double temperature) {
  static const int64_t lengths[PROMPTS] = {1, 5, 20, 2, 9, 13, 3};
  task t = {.arena = tsr_arena_new()};
  for (int p = 0; p < PROMPTS; p++) {
    int32_t *tokens = tsr_arena_array(t.arena, int32_t, lengths[p]);
    for (int64_t i = 0; i < lengths[p]; i++) tokens[i] = (int32_t)((p * 13 + i * 7 + i * i) % 61);
    t.prompts[p] = (tsr_prompt){tokens, lengths[p]};
  }
  t.how.max_new_tokens = NEW;
  t.how.sampling = (tsr_sampling){1.1, temperature, 0, 0.95, 77, 0};
  return t;
}

/* The texts of prompts [first, first + count), drawn as those. */
static void
draw(const task *t, const text_model *m, int first, int count, tsr_continuation *ret_texts) {
  tsr_diags *diags = tsr_diags_new(t->arena);
  tsr_generating how = t->how;
  tsr_generating_speed speed;
  how.sampling.stream += (uint64_t)first;
  bool ok = tsr_generate_texts(
      t->arena, &m->generator, t->prompts + first, count, &how, ret_texts, &speed, diags);
  if (!ok) text_fail(diags);
  CHECK((speed.prefill_tokens + speed.decode_tokens > 0) == (how.max_new_tokens > 0));
}

static bool same_text(const tsr_continuation *a, const tsr_continuation *b) {
  return a->end == b->end && a->count == b->count &&
         !memcmp(a->tokens, b->tokens, sizeof *a->tokens * (size_t)a->count);
}

static void check_same(
    const tsr_continuation *got, const tsr_continuation *want, int count, const char *what,
    int model) {
  for (int i = 0; i < count; i++) {
    int64_t at = 0;
    while (at < got[i].count && at < want[i].count && got[i].tokens[at] == want[i].tokens[at]) at++;
    CHECK_AT(
        same_text(&got[i], &want[i]), "model %d, %s: prompt %d differs at its token %lld", model,
        what, i, (long long)at);
  }
}

/* ---- what does not matter ---- */

/* What is planned for the ranks is what is allocated; keys and values of all blocks are a part of
 * it: (pages, page, groups of a rank * head_dim), twice. */
static void
check_memory(const text_model *m, const text_options *o, int64_t blocks, int64_t features) {
  tsr_programs programs[TSR_GENERATION_PROGRAMS_MAX];
  int count = tsr_generation_programs(&m->compiled, programs), stages = m->parallel.size[TSR_PP];
  int64_t total = 0, cache = 0, ranks = m->parallel.ranks / stages;
  for (int s = 0; s < stages; s++) {
    tsr_memory memory;
    tsr_memory_of(programs, count, s, &memory);
    total += memory.total * ranks;
    cache += memory.cache * ranks;
  }
  int64_t page = o->page ? o->page : 16, rows = m->compiled.batch;
  int64_t positions = rows * ((WINDOW + page - 1) / page * page), copies = m->parallel.size[TSR_CP];
  if (o->pages) positions = o->pages * page;
  CHECK_INT(total, tsr_process_bytes(m->process));
  CHECK_INT(cache, m->compiled.decode ? 2 * blocks * positions * features * 4 * copies : 0);
}

static void check_options(const task *t, int model, const tsr_continuation *want) {
  static const struct {
    const char *what;
    text_options o;
  } cases[] = {
      {"whole windows", {.chunk = -1, .rows = 3}},
      {"chunks of 1", {.chunk = 1, .rows = PROMPTS}},
      {"chunks of 3", {.chunk = 3, .rows = 2}},
      {"chunks of 64", {.chunk = 64, .rows = 4}},
      {"three threads", {.threads = 3, .rows = 5}},
      {"dp 2", {.dp = 2, .rows = 3}},
      {"tp 2", {.tp = 2, .rows = PROMPTS}},
      {"pp 2", {.pp = 2, .rows = 2, .chunk = 7}},
      {"cp 2", {.cp = 2, .rows = 2}},
      {"pages of 48", {.rows = 4, .page = 48}},
      {"2 pages", {.rows = 5, .pages = 2}},
      {"9 pages, chunks of 5", {.rows = PROMPTS, .pages = 9, .chunk = 5}},
      {"6 pages, dp 2", {.dp = 2, .rows = 6, .pages = 6}},
      {"6 pages, pp 2 tp 2", {.pp = 2, .tp = 2, .rows = 4, .pages = 6}},
      {"dp 2 tp 2", {.dp = 2, .tp = 2, .rows = 4}},
      {"pp 2 dp 2 tp 4", {.pp = 2, .dp = 2, .tp = 4, .threads = 2}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_continuation got[PROMPTS];
    text_model *m = text_model_open(models[model], cases[i].o);
    CHECK((cases[i].o.chunk < 0) == (m->compiled.decode == NULL));
    CHECK_INT(m->compiled.batch % m->parallel.size[TSR_DP], 0);
    if (m->compiled.decode) { /* one text alone does not take the time of all */
      const tsr_generator *g = &m->generator;
      CHECK_INT(g->read[g->read_count - 1].compiled->batch, m->parallel.size[TSR_DP]);
      CHECK_INT(g->decode[g->decode_count - 1].compiled->batch, m->parallel.size[TSR_DP]);
    }
    check_memory(m, &cases[i].o, 2, 32);
    draw(t, m, 0, PROMPTS, got);
    check_same(got, want, PROMPTS, cases[i].what, model);
    text_model_close(m);
  }
}

static void check_model(int model, double temperature) {
  task t = task_new(temperature);
  tsr_continuation alone[PROMPTS];
  text_model *m = text_model_open(models[model], (text_options){.rows = 1});
  for (int p = 0; p < PROMPTS; p++) draw(&t, m, p, 1, &alone[p]);
  for (int p = 0; p < PROMPTS; p++) {
    CHECK_INT(alone[p].count, NEW);
    CHECK_INT(alone[p].end, TSR_TEXT_FULL);
  }
  text_model_close(m);
  check_options(&t, model, alone);
  tsr_arena_free(t.arena);
}

/* ---- ends ---- */

typedef struct {
  int32_t tokens[PROMPTS][4 * WINDOW];
  int64_t count[PROMPTS];
  sig_atomic_t stop_after, *flag;
} listener;

static void hear(void *context, int prompt, int32_t token) {
  listener *l = context;
  l->tokens[prompt][l->count[prompt]++] = token;
  if (l->flag && !--l->stop_after) *l->flag = 1;
}

/* A text ends before a stop's token, which nobody hears. */
static void test_stops(void) {
  task t = task_new(0.9);
  tsr_continuation free_texts[PROMPTS], stopped[PROMPTS];
  listener l = {.flag = NULL};
  text_model *m = text_model_open(models[1], (text_options){.rows = 4});
  draw(&t, m, 0, PROMPTS, free_texts);
  int32_t stops[] = {60, free_texts[2].tokens[4]};
  t.how.stops = stops;
  t.how.stops_count = 2;
  t.how.drawn = hear;
  t.how.context = &l;
  draw(&t, m, 0, PROMPTS, stopped);
  for (int p = 0; p < PROMPTS; p++) {
    const tsr_continuation *x = &free_texts[p], *y = &stopped[p];
    int64_t n = 0;
    while (n < x->count && x->tokens[n] != stops[0] && x->tokens[n] != stops[1]) n++;
    CHECK_INT(y->count, n);
    CHECK_INT(y->end, n < x->count ? TSR_TEXT_STOPPED : TSR_TEXT_FULL);
    CHECK(!memcmp(y->tokens, x->tokens, sizeof *x->tokens * (size_t)n));
    CHECK_INT(l.count[p], n);
    CHECK(!memcmp(l.tokens[p], x->tokens, sizeof *x->tokens * (size_t)n));
  }
  CHECK_INT(stopped[2].end, TSR_TEXT_STOPPED);
  text_model_close(m);
  tsr_arena_free(t.arena);
}

static void test_interrupt(void) {
  task t = task_new(0.9);
  tsr_continuation got[PROMPTS];
  sig_atomic_t flag = 0;
  listener l = {.flag = &flag, .stop_after = 5};
  text_model *m = text_model_open(models[0], (text_options){.rows = 2});
  t.how.interrupt = &flag;
  t.how.drawn = hear;
  t.how.context = &l;
  draw(&t, m, 0, PROMPTS, got);
  int64_t all = 0;
  for (int p = 0; p < PROMPTS; p++) {
    CHECK_INT(got[p].end, TSR_TEXT_INTERRUPTED);
    CHECK_INT(got[p].count, l.count[p]);
    all += got[p].count;
  }
  CHECK(all >= 5 && all <= 6);
  t.how.max_new_tokens = 0;
  flag = 0;
  draw(&t, m, 0, PROMPTS, got);
  for (int p = 0; p < PROMPTS; p++) CHECK(got[p].end == TSR_TEXT_FULL && got[p].count == 0);
  text_model_close(m);
  tsr_arena_free(t.arena);
}

/* ---- longer than the window ---- */

/* What a text that has filled its window goes on with is its last half, as a prompt of its own
 * would be; so from there on a text is that prompt's. */
static void test_sliding(int model) {
  enum { LONG = 3 * WINDOW };
  task t = task_new(0); /* greedy: draws do not count tokens */
  tsr_continuation got, again;
  t.how.max_new_tokens = LONG;
  t.how.sampling.repetition_penalty = 1;
  text_model *m = text_model_open(models[model], (text_options){.rows = 2});
  draw(&t, m, 2, 1, &got);
  CHECK_INT(got.count, LONG);
  int64_t filled = WINDOW - t.prompts[2].count + 1; /* tokens drawn when the text is too long */
  tsr_prompt half = {got.tokens + filled - WINDOW / 2, WINDOW / 2};
  CHECK(filled >= 0);
  int32_t tokens[WINDOW];
  for (int64_t i = 0; i < WINDOW / 2; i++) {
    int64_t at = filled - WINDOW / 2 + i; /* of the drawn ones */
    tokens[i] = at < 0 ? t.prompts[2].tokens[t.prompts[2].count + at] : got.tokens[at];
  }
  half.tokens = tokens;
  t.prompts[2] = half;
  t.how.max_new_tokens = WINDOW / 2 + 1; /* until it is too long itself */
  draw(&t, m, 2, 1, &again);
  CHECK(!memcmp(again.tokens, got.tokens + filled, sizeof *got.tokens * (size_t)again.count));
  text_model_close(m);
  tsr_arena_free(t.arena);
}

/* A window that cp and its layout could not split. */
static void test_any_window(void) {
  task t = task_new(0.5);
  tsr_continuation got[PROMPTS], want[PROMPTS];
  text_model *m = text_model_open(models[1], (text_options){.window = 31});
  draw(&t, m, 0, PROMPTS, want);
  text_model_close(m);
  m = text_model_open(models[1], (text_options){.cp = 4, .window = 31, .rows = 2});
  CHECK_INT(m->compiled.model->sequence, 31);
  draw(&t, m, 0, PROMPTS, got);
  check_same(got, want, PROMPTS, "window 31", 1);
  text_model_close(m);
  tsr_arena_free(t.arena);
}

/* Of a prompt that is longer than the window the last tokens count. */
static void test_long_prompt(void) {
  task t = task_new(0);
  tsr_continuation got[2];
  int32_t *tokens = tsr_arena_array(t.arena, int32_t, 3 * WINDOW);
  for (int i = 0; i < 3 * WINDOW; i++) tokens[i] = (i * 11 + i * i) % 61;
  t.prompts[0] = (tsr_prompt){tokens, 3 * WINDOW};
  t.prompts[1] = (tsr_prompt){tokens + 2 * WINDOW, WINDOW};
  t.how.sampling.repetition_penalty = 1;
  for (int chunk = -1; chunk <= 5; chunk += 6) {
    text_model *m = text_model_open(models[1], (text_options){.rows = 1, .chunk = chunk});
    draw(&t, m, 0, 2, got);
    CHECK(same_text(&got[0], &got[1]));
    text_model_close(m);
  }
  tsr_arena_free(t.arena);
}

/* ---- log-probabilities ---- */

typedef struct {
  double logprob[2 * WINDOW];
  tsr_token_logprob top_logprobs[2 * WINDOW][3];
  int32_t tokens[2 * WINDOW];
  int64_t first, next;
  bool stops_early;
} scores;

static bool keep_score(void *context, const tsr_text_token *t) {
  scores *s = context;
  if (!s->next) s->first = t->index;
  else CHECK_INT(t->index, s->next);
  s->next = t->index + 1;
  s->tokens[t->index] = t->logprob.token;
  s->logprob[t->index] = t->logprob.log_probability;
  CHECK_INT(t->top_logprobs_count, 3);
  memcpy(s->top_logprobs[t->index], t->top_logprobs, sizeof s->top_logprobs[0]);
  CHECK(t->top_logprobs[0].log_probability >= t->top_logprobs[2].log_probability);
  CHECK(t->logprob.log_probability <= t->top_logprobs[0].log_probability);
  return !s->stops_early || !t->is_drawn;
}

static void ignore_end(void *context, const int32_t *tokens, int64_t count, tsr_text_end end) {
  (void)context, (void)tokens, (void)count, (void)end;
}

/* Prompts scored together with others; each prompt's text is continued by NEW tokens. */
static void score_all(const task *t, text_model *m, int first, int count, scores *ret) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text_batch *batch = tsr_text_batch_new(arena, &m->generator);
  for (int next = 0; next < count || tsr_text_batch_texts(batch);) {
    tsr_text_request q = {.wants_logprobs = true, .top_logprobs = 3, .scores_prompt = true};
    q.max_new_tokens = NEW;
    q.sampling = (tsr_sampling){1, 0, 0, 1, 0, 0};
    q.token = keep_score;
    q.ended = ignore_end;
    for (; next < count && tsr_text_batch_has_room(batch, &q); next++) {
      q.tokens = t->prompts[first + next].tokens;
      q.count = t->prompts[first + next].count;
      q.context = &ret[next];
      tsr_text_batch_add(batch, &q);
    }
    if (!tsr_text_batch_step(batch, diags)) text_fail(diags);
  }
  tsr_arena_free(arena);
}

static void check_scores(const scores *got, const scores *want, const tsr_prompt *prompt) {
  CHECK_INT(got->first, prompt->count > 1 ? 1 : prompt->count);
  CHECK_INT(got->next, prompt->count + NEW);
  for (int64_t i = got->first; i < got->next; i++) {
    if (i < prompt->count) CHECK_INT(got->tokens[i], prompt->tokens[i]);
    else CHECK_INT(got->tokens[i], got->top_logprobs[i][0].token); /* greedy */
    CHECK(!memcmp(&got->logprob[i], &want->logprob[i], sizeof(double)));
    CHECK(!memcmp(got->top_logprobs[i], want->top_logprobs[i], sizeof want->top_logprobs[i]));
  }
}

/* Scores do not depend on other texts, on chunks, nor on the cache; and a place's probability is
 * that with which its token would be drawn there. */
static void test_scores(int model) {
  task t = task_new(0);
  scores alone[PROMPTS] = {0};
  text_model *m = text_model_open(models[model], (text_options){.rows = 1, .scores = true});
  for (int p = 0; p < PROMPTS; p++) score_all(&t, m, p, 1, &alone[p]);
  text_model_close(m);
  for (int chunk = -1; chunk <= 5; chunk += 3) {
    scores got[PROMPTS] = {0};
    m = text_model_open(
        models[model], (text_options){.rows = 3, .chunk = chunk ? chunk : 1, .scores = true});
    score_all(&t, m, 0, PROMPTS, got);
    for (int p = 0; p < PROMPTS; p++) check_scores(&got[p], &alone[p], &t.prompts[p]);
    text_model_close(m);
  }
  scores again = {0};
  m = text_model_open(models[model], (text_options){.rows = 2, .scores = true});
  int64_t length = alone[2].next;
  t.prompts[2] = (tsr_prompt){alone[2].tokens, length};
  alone[2].tokens[0] = 26; /* prompt 2 begins with it, and it is not reported */
  score_all(&t, m, 2, 1, &again);
  for (int64_t i = 1; i < length && length <= WINDOW; i++)
    CHECK(!memcmp(&again.logprob[i], &alone[2].logprob[i], sizeof(double)));
  text_model_close(m);
  tsr_arena_free(t.arena);
}

/* A text that is removed, or that its listener ends, leaves its row to the next one. */
static void test_removal(void) {
  task t = task_new(0);
  scores kept = {0}, removed = {0}, stopped = {.stops_early = true}, alone = {0};
  text_model *m = text_model_open(models[1], (text_options){.rows = 2, .scores = true});
  score_all(&t, m, 4, 1, &alone);
  tsr_diags *diags = tsr_diags_new(t.arena);
  tsr_text_batch *batch = tsr_text_batch_new(t.arena, &m->generator);
  tsr_text_request q = {.wants_logprobs = true, .top_logprobs = 3, .scores_prompt = true};
  q.max_new_tokens = NEW;
  q.sampling = (tsr_sampling){1, 0, 0, 1, 0, 0};
  q.token = keep_score;
  q.ended = ignore_end;
  scores *listeners[] = {&removed, &stopped, &kept};
  int numbers[3], places[] = {1, 5, 4};
  for (int i = 0; i < 3; i++) {
    if (i == 2) {
      CHECK(!tsr_text_batch_has_room(batch, &q));
      tsr_text_batch_remove(batch, numbers[0]);
    }
    q.tokens = t.prompts[places[i]].tokens;
    q.count = t.prompts[places[i]].count;
    q.context = listeners[i];
    CHECK(tsr_text_batch_has_room(batch, &q));
    numbers[i] = tsr_text_batch_add(batch, &q);
  }
  while (tsr_text_batch_texts(batch))
    if (!tsr_text_batch_step(batch, diags)) text_fail(diags);
  CHECK_INT(removed.next, 0);
  CHECK_INT(stopped.next, t.prompts[5].count + 1);
  check_scores(&kept, &alone, &t.prompts[4]);
  text_model_close(m);
  tsr_arena_free(t.arena);
}

static void test_errors(void) {
  task t = task_new(0);
  tsr_diags *diags = tsr_diags_new(t.arena);
  tsr_continuation got[2];
  tsr_generating_speed speed;
  text_model *m = text_model_open(models[0], (text_options){.rows = 1});
  t.prompts[1].count = 0;
  CHECK(!tsr_generate_texts(t.arena, &m->generator, t.prompts, 2, &t.how, got, &speed, diags));
  CHECK(tsr_diags_exit_code(diags) == 2);
  t.prompts[1] = (tsr_prompt){(const int32_t[]){3, 61}, 2};
  CHECK(!tsr_generate_texts(t.arena, &m->generator, t.prompts, 2, &t.how, got, &speed, diags));
  text_model_close(m);
  tsr_arena_free(t.arena);
}

int main(void) {
  for (int m = 0; m < MODELS; m++) {
    check_model(m, 0);
    check_model(m, 0.8);
    test_sliding(m);
  }
  test_stops();
  test_interrupt();
  test_long_prompt();
  test_any_window();
  for (int m = 0; m < MODELS; m++) test_scores(m);
  test_removal();
  test_errors();
  return check_done("generate");
}
