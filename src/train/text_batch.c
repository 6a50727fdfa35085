// SPDX-License-Identifier: Apache-2.0
#include "train/text_batch.h"
#include "base/memory.h"
#include "train/page_pool.h"
#include "train/score_check.h"
#include "train/token_logprobs.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A row of the batch: the text that it has, if any. */
typedef struct {
  bool is_used;
  tsr_text_request request;
  int32_t *tokens; /* all of the text; of the heap, and kept for the row's next text */
  int64_t count, capacity;
  int64_t begin;       /* of what the model sees */
  int64_t cached;      /* of these, how many the cache has */
  int64_t taken;       /* by the run that is under way */
  int64_t slot;        /* of the program; -1: it is not in the run */
  int64_t scored;      /* tokens of the prompt that need no report any more */
  tsr_page_pool *pool; /* NULL: there is no cache */
  int32_t *pages;      /* of the text, from its first token to its end */
  int64_t pages_count;
} row;

struct tsr_text_batch {
  const tsr_generator *generator;
  tsr_generating_speed speed;
  row *rows;
  int64_t rows_count, window;
  tsr_page_pool *pools; /* of the cache's pages */
  /* Of the run that is under way: tokens of each text, and the row of each slot; -1: none. */
  int64_t width;
  int64_t *row_at;
  bool *wanted;  /* per row: it takes part in the run */
  float *logits; /* of one place */
  void *scratch;
  tsr_token_logprob top_logprobs[TSR_TOP_LOGPROBS_MAX];
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int tsr_generation_programs(
    const tsr_compiled *g, tsr_programs ret_programs[TSR_GENERATION_PROGRAMS_MAX]) {
  int count = 0;
  for (const tsr_compiled *c = g; c; c = c->fewer) ret_programs[count++] = c->programs;
  for (const tsr_compiled *c = g->decode; c; c = c->fewer) ret_programs[count++] = c->programs;
  if (g->score) ret_programs[count++] = g->score->programs;
  return count;
}

tsr_generator
tsr_generator_of(const tsr_compiled *g, tsr_executable *const *executable, int64_t vocab_size) {
  int64_t known = g->model->vocab_size, rows = known ? known : vocab_size;
  if (rows < vocab_size) vocab_size = rows;
  tsr_generator made = {.generation = g, .vocab_size = vocab_size, .vocab_rows = rows};
  for (const tsr_compiled *c = g; c; c = c->fewer)
    made.read[made.read_count++] = (tsr_text_program){c, *executable++};
  for (const tsr_compiled *c = g->decode; c; c = c->fewer)
    made.decode[made.decode_count++] = (tsr_text_program){c, *executable++};
  if (g->score) made.score = (tsr_text_program){g->score, *executable++};
  return made;
}

static bool has_cache(const tsr_text_batch *b) { return b->generator->decode_count > 0; }

/* ---- the rows ---- */

static int64_t waiting(const row *r) { return r->count - r->begin - r->cached; }

/* What the model sees of a text that has become too long are its last `kept` tokens. */
static void slide(tsr_text_batch *b, row *r, int64_t kept) {
  if (r->count - r->begin <= b->window) return;
  r->begin = r->count - kept;
  r->cached = 0;
}

/* Half a window makes room for a cache to be worth while, so it is that without one, too: whether
 * there is one must not change the text. */
static int64_t kept_of(const tsr_text_batch *b) { return b->window > 1 ? b->window / 2 : 1; }

static void make_room(row *r, int64_t tokens) {
  if (tokens <= r->capacity) return;
  r->capacity = tokens;
  r->tokens = tsr_memory_grow(r->tokens, sizeof *r->tokens * (size_t)tokens);
}

/* A text has all pages that it may need from the beginning, so that it can be continued to its end
 * whatever other texts do. A text that has filled the window begins anew in the same ones. */
static int64_t pages_of(const tsr_text_batch *b, const tsr_text_request *q) {
  int64_t room = b->window - q->count, longest = b->window;
  if (!has_cache(b)) return 0;
  if (room > 0 && q->max_new_tokens < room) longest = q->count + q->max_new_tokens;
  return tsr_cache_plan_pages(&b->generator->generation->cache, longest);
}

static void free_row(row *r) {
  r->is_used = false;
  if (r->pages_count) tsr_page_pool_give_back(r->pool, r->pages_count, r->pages);
  r->pages_count = 0;
}

static void end_text(row *r, tsr_text_end end) {
  int64_t prompt = r->request.count;
  free_row(r);
  r->request.ended(r->request.context, r->tokens + prompt, r->count - prompt, end);
}

/* Nothing is left to draw or to report. */
static bool is_done(const row *r) {
  bool reads = r->request.scores_prompt && r->scored < r->request.count;
  return !reads && r->count - r->request.count >= r->request.max_new_tokens;
}

static void free_rows(void *batch) {
  tsr_text_batch *b = batch;
  for (int64_t i = 0; i < b->rows_count; i++) free(b->rows[i].tokens);
}

static void open_pools(tsr_arena *arena, tsr_text_batch *b) {
  const tsr_cache_plan *plan = &b->generator->generation->cache;
  b->pools = tsr_arena_array(arena, tsr_page_pool, plan->pools);
  for (int64_t i = 0; i < plan->pools; i++) b->pools[i] = tsr_page_pool_new(arena, plan->pages);
  for (int64_t i = 0; i < b->rows_count; i++) {
    b->rows[i].pool = &b->pools[i * plan->pools / b->rows_count];
    b->rows[i].pages = tsr_arena_array(arena, int32_t, plan->pages_max);
  }
}

tsr_text_batch *tsr_text_batch_new(tsr_arena *arena, const tsr_generator *generator) {
  const tsr_compiled *c = generator->generation;
  tsr_text_batch *b = tsr_arena_alloc(arena, sizeof *b);
  b->generator = generator;
  b->rows_count = c->batch;
  b->window = c->model->sequence;
  b->rows = tsr_arena_array(arena, row, b->rows_count);
  b->row_at = tsr_arena_array(arena, int64_t, b->rows_count);
  b->wanted = tsr_arena_array(arena, bool, b->rows_count);
  if (has_cache(b)) open_pools(arena, b);
  b->logits = tsr_arena_array(arena, float, c->logits_width);
  b->scratch = tsr_arena_alloc(arena, tsr_sampling_scratch_bytes(generator->vocab_size));
  tsr_arena_on_free(arena, free_rows, b);
  return b;
}

void tsr_text_batch_reserve(tsr_text_batch *b, int64_t tokens) {
  for (int64_t i = 0; i < b->rows_count; i++) make_room(&b->rows[i], tokens);
}

int64_t tsr_text_batch_rows(const tsr_text_batch *b) { return b->rows_count; }
int64_t tsr_text_batch_window(const tsr_text_batch *b) { return b->window; }
tsr_generating_speed tsr_text_batch_speed(const tsr_text_batch *b) { return b->speed; }

int64_t tsr_text_batch_pages(const tsr_text_batch *b) {
  const tsr_cache_plan *plan = &b->generator->generation->cache;
  return has_cache(b) ? plan->pools * plan->pages : 0;
}

int64_t tsr_text_batch_pages_used(const tsr_text_batch *b) {
  int64_t used = 0;
  for (int64_t i = 0; i < b->rows_count; i++) used += b->rows[i].pages_count;
  return used;
}

int64_t tsr_text_batch_texts(const tsr_text_batch *b) {
  int64_t count = 0;
  for (int64_t i = 0; i < b->rows_count; i++) count += b->rows[i].is_used;
  return count;
}

/* The first free row whose pool has as many free pages; rows_count: there is none. */
static int64_t find_row(const tsr_text_batch *b, int64_t pages) {
  int64_t at = 0;
  for (; at < b->rows_count; at++)
    if (!b->rows[at].is_used && (!pages || b->rows[at].pool->count >= pages)) break;
  return at;
}

bool tsr_text_batch_has_room(const tsr_text_batch *b, const tsr_text_request *q) {
  return find_row(b, pages_of(b, q)) < b->rows_count;
}

int tsr_text_batch_add(tsr_text_batch *b, const tsr_text_request *q) {
  int64_t pages = pages_of(b, q), at = find_row(b, pages);
  assert(at < b->rows_count && q->count > 0 && q->top_logprobs <= TSR_TOP_LOGPROBS_MAX);
  assert(
      !q->scores_prompt ||
      (q->count <= b->window && (b->generator->score.executable || !has_cache(b))));
  row *r = &b->rows[at];
  make_room(r, q->count);
  memcpy(r->tokens, q->tokens, sizeof *q->tokens * (size_t)q->count);
  *r = (row){
      .is_used = true,
      .request = *q,
      .tokens = r->tokens,
      .count = q->count,
      .capacity = r->capacity,
      .scored = 1,
      .slot = -1,
      .pool = r->pool,
      .pages = r->pages,
      .pages_count = pages};
  if (pages) tsr_page_pool_take(r->pool, pages, r->pages);
  slide(b, r, b->window);
  return (int)at;
}

void tsr_text_batch_remove(tsr_text_batch *b, int text) {
  assert(b->rows[text].is_used);
  free_row(&b->rows[text]);
}

void tsr_text_batch_interrupt(tsr_text_batch *b) {
  for (int64_t i = 0; i < b->rows_count; i++)
    if (b->rows[i].is_used) end_text(&b->rows[i], TSR_TEXT_INTERRUPTED);
}

/* ---- a run ---- */

/* Entries that the text does not need are pages all the same. */
static void fill_pages(const tsr_text_batch *b, const row *r, int32_t *to) {
  int64_t each = b->generator->generation->cache.pages_each;
  for (int64_t i = 0; i < each; i++) to[i] = r->pages_count ? r->pages[i % r->pages_count] : 0;
}

/* What is not filled must be tokens all the same. */
static void fill(void *context, const char *input, int64_t sample, void *to) {
  static const row none = {0};
  const tsr_text_batch *b = context;
  const row *r = b->row_at[sample] < 0 ? &none : &b->rows[b->row_at[sample]];
  bool positions = !strcmp(input, TSR_CACHE_POSITIONS), counts = !strcmp(input, TSR_CACHE_COUNTS);
  if (positions || counts) {
    *(int32_t *)to = (int32_t)(positions ? r->cached : r->taken);
    return;
  }
  if (!strcmp(input, TSR_CACHE_PAGES)) {
    fill_pages(b, r, to);
    return;
  }
  memset(to, 0, sizeof(int32_t) * (size_t)b->width);
  if (!r->taken) return;
  memcpy(to, r->tokens + r->begin + r->cached, sizeof(int32_t) * (size_t)r->taken);
}

/* The program of a run, and what is read from it. */
typedef struct {
  tsr_executable *executable;
  int logits;    /* the value */
  int64_t every; /* rows of the logits for each text: one, or one for each of its tokens */
  bool is_prefill;
} run;

static bool is_scored(const row *r) {
  return r->request.scores_prompt && r->scored < r->request.count;
}

/* The pool of which a program's slot has its pages, as a row of the batch does. */
static int64_t pool_of_slot(const tsr_text_batch *b, int64_t slot, int64_t slots) {
  return has_cache(b) ? slot * b->generator->generation->cache.pools / slots : 0;
}

/* Assigns the rows that are `wanted` to the slots of a program; false where a pool has more of them
 * than slots. */
static bool assign_slots(tsr_text_batch *b, int64_t slots, const bool *wanted) {
  int64_t next = 0; /* slots, like rows, are in the order of pools */
  for (int64_t i = 0; i < slots; i++) b->row_at[i] = -1;
  for (int64_t i = 0; i < b->rows_count; i++) {
    row *r = &b->rows[i];
    int64_t pool = pool_of_slot(b, i, b->rows_count);
    r->slot = -1;
    if (!wanted[i]) continue;
    while (next < slots && pool_of_slot(b, next, slots) < pool) next++;
    if (next == slots || pool_of_slot(b, next, slots) > pool) return false;
    b->row_at[next] = i;
    r->slot = next++;
  }
  return true;
}
/* The program of the fewest slots in which all `wanted` rows have one. */
static const tsr_text_program *
choose_program(tsr_text_batch *b, const tsr_text_program *programs, int count, const bool *wanted) {
  int at = count - 1;
  while (!assign_slots(b, programs[at].compiled->batch, wanted)) at--;
  return &programs[at];
}

/* With a choice of programs one that reads chunks is for texts that have more than a token waiting,
 * and the others are decoded behind it; else it takes them all. */
static bool is_wanted(const tsr_text_batch *b, const row *r, bool scores, bool reads) {
  if (!r->is_used) return false;
  return !has_cache(b) || scores || !reads || b->generator->read_count == 1 || waiting(r) > 1;
}

static run choose_run(tsr_text_batch *b, bool scores, bool reads) {
  const tsr_generator *g = b->generator;
  bool decodes = has_cache(b) && !scores && !reads;
  const tsr_text_program *of = has_cache(b) && scores ? &g->score : decodes ? g->decode : g->read;
  int count = of == &g->score ? 1 : decodes ? g->decode_count : g->read_count;
  of = choose_program(b, of, count, b->wanted);
  run made = {of->executable, .every = 1, .is_prefill = reads && has_cache(b)};
  b->width = has_cache(b) ? of->compiled->new_tokens : b->window;
  if (!has_cache(b) || scores) made.every = b->width;
  made.logits = tsr_graph_find_output(of->compiled->placed, "logits");
  return made;
}

/* Every row of the run gives as much as it has waiting; how many tokens the model reads. */
static int64_t take_tokens(tsr_text_batch *b) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < b->rows_count; i++) {
    row *r = &b->rows[i];
    int64_t have = r->slot >= 0 ? waiting(r) : 0;
    r->taken = have < b->width ? have : b->width;
    tokens += has_cache(b) ? r->taken : r->slot >= 0;
  }
  return tokens;
}

/* False: the text ends with this token. */
static bool report(tsr_text_batch *b, row *r, tsr_text_token t) {
  const tsr_text_request *q = &r->request;
  if (!q->token) return true;
  if (q->wants_logprobs) {
    t.logprob.log_probability = tsr_token_logprobs(
        b->logits, b->generator->vocab_rows, b->generator->vocab_size, t.logprob.token,
        q->top_logprobs, b->top_logprobs, &t.top_logprobs_count);
    t.top_logprobs = b->top_logprobs;
  }
  return q->token(q->context, &t);
}

/* As where a token is drawn: of logits none of which is finite nothing follows. */
static bool has_finite_logit(const tsr_text_batch *b) {
  for (int64_t i = 0; i < b->generator->vocab_rows; i++)
    if (isfinite(b->logits[i])) return true;
  return false;
}

/* Reports what the run says of the prompt's tokens; false where the text has ended. */
static bool score_prompt(tsr_text_batch *b, row *r, const run *made, int64_t first_row) {
  int64_t begin = has_cache(b) ? r->begin + r->cached : r->begin; /* of what the run has read */
  for (int64_t k = 0; k < r->taken && r->scored < r->request.count; k++) {
    int64_t index = begin + k + 1;
    if (index < r->scored || index >= r->request.count) continue;
    r->scored = index + 1;
    tsr_executable_read_row(made->executable, made->logits, first_row + k, b->logits);
    if (!has_finite_logit(b)) return end_text(r, TSR_TEXT_NO_TOKEN), false;
    tsr_text_token t = {.index = index, .logprob = {.token = r->tokens[index]}};
    if (!report(b, r, t)) return end_text(r, TSR_TEXT_STOPPED), false;
  }
  return true;
}

/* The logits are those of the text's last token. */
static void draw(tsr_text_batch *b, row *r) {
  enum { NEW_TOKENS = 1024 };
  const tsr_text_request *q = &r->request;
  tsr_sampling sampling = q->sampling;
  sampling.drawn_from = q->count;
  int32_t token = tsr_sample_token(
      &sampling, b->logits, b->generator->vocab_size, r->tokens, r->count, (uint64_t)r->count,
      b->scratch);
  if (token < 0) {
    end_text(r, TSR_TEXT_NO_TOKEN);
    return;
  }
  tsr_text_token t = {.index = r->count, .is_drawn = true, .logprob = {.token = token}};
  for (int i = 0; i < q->stops_count; i++) t.is_end |= token == q->stops[i];
  if (t.is_end) {
    report(b, r, t);
    end_text(r, TSR_TEXT_STOPPED);
    return;
  }
  if (r->count == r->capacity)
    make_room(r, r->count + (r->count > NEW_TOKENS ? r->count : NEW_TOKENS));
  r->tokens[r->count++] = token;
  if (!report(b, r, t)) end_text(r, TSR_TEXT_STOPPED);
  else if (is_done(r)) end_text(r, TSR_TEXT_FULL);
  else slide(b, r, kept_of(b));
}

/* After a run: a token for every row that has none waiting. */
static void draw_tokens(tsr_text_batch *b, const run *made) {
  for (int64_t i = 0; i < b->rows_count; i++) {
    row *r = &b->rows[i];
    if (!r->is_used || r->slot < 0) continue;
    int64_t first = r->slot * made->every;
    if (is_scored(r) && !score_prompt(b, r, made, first)) continue;
    if (has_cache(b)) r->cached += r->taken;
    if (has_cache(b) && waiting(r)) continue;
    if (is_done(r)) {
      end_text(r, TSR_TEXT_FULL);
      continue;
    }
    int64_t last = made->every > 1 ? r->taken - 1 : 0;
    tsr_executable_read_row(made->executable, made->logits, first + last, b->logits);
    draw(b, r);
  }
}

/* A text of which nothing is wanted needs no run. */
static void end_idle(tsr_text_batch *b) {
  for (int64_t i = 0; i < b->rows_count; i++)
    if (b->rows[i].is_used && is_done(&b->rows[i])) end_text(&b->rows[i], TSR_TEXT_FULL);
}

/* One run for the rows that are `wanted`. */
static bool run_wanted(tsr_text_batch *b, bool scores, bool reads, tsr_diags *diags) {
  double start = now();
  run made = choose_run(b, scores, reads);
  int64_t tokens = take_tokens(b);
  tsr_executable_run(made.executable, 0, fill, b);
  bool ok = tsr_check_scores(made.executable, "the generation", diags);
  if (ok) draw_tokens(b, &made);
  *(made.is_prefill ? &b->speed.prefill_tokens : &b->speed.decode_tokens) += tokens;
  *(made.is_prefill ? &b->speed.prefill_seconds : &b->speed.decode_seconds) += now() - start;
  return ok;
}

/* The rows that the first run has not had; whether there are any. */
static bool want_others(tsr_text_batch *b) {
  bool any = false;
  for (int64_t i = 0; i < b->rows_count; i++) {
    const row *r = &b->rows[i];
    b->wanted[i] = r->is_used && r->slot < 0 && waiting(r) == 1;
    any |= b->wanted[i];
  }
  return any;
}

bool tsr_text_batch_step(tsr_text_batch *b, tsr_diags *diags) {
  bool reads = false, scores = false;
  end_idle(b);
  if (!tsr_text_batch_texts(b)) return true;
  for (int64_t i = 0; i < b->rows_count; i++) {
    const row *r = &b->rows[i];
    reads |= r->is_used && waiting(r) > 1;
    scores |= r->is_used && is_scored(r);
  }
  for (int64_t i = 0; i < b->rows_count; i++)
    b->wanted[i] = is_wanted(b, &b->rows[i], scores, reads);
  if (!run_wanted(b, scores, reads, diags)) return false;
  return !has_cache(b) || !want_others(b) || run_wanted(b, false, false, diags);
}
