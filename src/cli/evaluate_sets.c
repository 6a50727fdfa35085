// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate_sets.h"
#include "base/command_progress.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "train/sequence_reduction_units.h"
#include <string.h>
#include <time.h>

typedef struct {
  trained_model *m;
  evaluated_sets results;
  tsr_eval_set examples; /* of --shots-file */
  tsr_eval_prompting how;
  int programs; /* 1 or 2: for requests of at most so many tokens each, rising */
  int64_t sequences[2];
  tsr_compiled compiled[2];
  int64_t model_length; /* tokens that the model can read */
  int64_t vocab_size;
  bool finds_greedy; /* some set has completions */
} evaluation;

/* ---- reading ---- */

static bool parse_format(app *a, tsr_eval_format *ret) {
  const char *text = a->options.context_template;
  tsr_jinja_template *context = NULL;
  if (text &&
      !tsr_jinja_parse(a->arena, "--context-template", text, strlen(text), &context, a->diags))
    return false;
  *ret = (tsr_eval_format){context, a->options.last_word};
  return true;
}

static bool read_sets(evaluation *e) {
  app *a = e->m->a;
  const tsr_options *o = &a->options;
  tsr_eval_format format;
  tsr_text_file *files, *shots;
  int count, shots_count = 0;
  bool has_format = parse_format(a, &format);
  bool ok = tsr_text_files_read(
      a->arena, o->eval_sets.items, o->eval_sets.count, TSR_NOWHERE, &files, &count, a->diags);
  if (o->shots)
    ok &= tsr_text_files_read(
        a->arena, &o->shots_file, 1, TSR_NOWHERE, &shots, &shots_count, a->diags);
  if (!has_format) return false;
  e->results.count = count;
  e->results.sets = tsr_arena_array(a->arena, evaluated_set, count);
  for (int i = 0; i < count; i++) {
    tsr_eval_set *set = &e->results.sets[i].set;
    ok &= tsr_eval_set_read(a->arena, &files[i], &format, set, a->diags);
    e->finds_greedy |= set->kind == TSR_EVAL_COMPLETION;
  }
  if (shots_count) ok &= tsr_eval_set_read(a->arena, shots, &format, &e->examples, a->diags);
  return ok;
}

/* Every set has lines of the examples' kind, and texts have no examples. */
static bool check_examples(const evaluation *e) {
  app *a = e->m->a;
  bool ok = true;
  for (int i = 0; i < e->results.count && a->options.shots; i++) {
    const tsr_eval_set *set = &e->results.sets[i].set;
    if (set->kind == TSR_EVAL_TEXT)
      ok = tsr_diag_error(
          a->diags, TSR_NOWHERE, "--shots goes with choices and completions, and '%s' has texts",
          set->file.path);
    else if (set->kind != e->examples.kind)
      ok = tsr_diag_error(
          a->diags, TSR_NOWHERE, "'%s' has lines of the kind %s, and '%s' of the kind %s",
          set->file.path, tsr_eval_kind_names[set->kind], e->examples.file.path,
          tsr_eval_kind_names[e->examples.kind]);
  }
  return ok;
}

/* ---- requests ---- */

/* What stands before a text without a context: the token that begins texts, else the one that ends
 * them; of characters and bytes, the one that ends a line. */
static bool find_prefix(evaluation *e) {
  app *a = e->m->a;
  const tsr_tokenizer *tokenizer = &e->how.tokenizer;
  static const char *const names[] = {"bos_token", "eos_token"};
  e->how.prefix = -1;
  for (int i = 0; i < 2 && tokenizer->kind == TSR_TOKENIZER_SUBWORD && e->how.prefix < 0; i++) {
    const char *text;
    if (!tsr_chat_template_special(
            a->arena, e->m->weights.folder, tokenizer, names[i], &text, a->diags))
      return false;
    if (text) e->how.prefix = tsr_subword_find(tokenizer->subword, text);
  }
  if (e->how.prefix < 0) e->how.prefix = (int32_t)tsr_tokenizer_end_of_text(tokenizer);
  if (e->how.prefix < 0) e->how.prefix = tsr_tokenizer_newline(tokenizer);
  return true;
}

static bool find_max_length(evaluation *e) {
  app *a = e->m->a;
  const tsr_config *c = e->m->setup.config;
  const tsr_yaml *node = c->model.map ? tsr_yaml_get(c->model.map, "max_sequence_length") : NULL;
  int64_t most = 0, wanted = a->options.max_length;
  if (!node || !tsr_yaml_int(node, &most) || most < 1) most = c->training.sequence_length;
  e->model_length = most;
  e->how.window = e->results.max_length = wanted ? wanted : most;
  if (most && wanted > most)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "--max-length is %lld, and the model reads %lld tokens at most",
        (long long)wanted, (long long)most);
  return most ||
         tsr_diag_error(
             a->diags, TSR_NOWHERE,
             "the model has no max_sequence_length: --set training_config.sequence_length=N "
             "is needed");
}

static bool prepare_prompting(evaluation *e) {
  app *a = e->m->a;
  const tsr_options *o = &a->options;
  tsr_eval_prompting *how = &e->how;
  how->tokenizer = e->m->data.dataset.tokenizer;
  if (how->tokenizer.kind == TSR_TOKENIZER_IDS)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "the checkpoint has no tokenizer, and --eval-set has texts");
  how->delimiter = o->delimiter ? o->delimiter : " ";
  how->shots = (int)o->shots;
  how->examples = &e->examples;
  how->shots_delimiter = o->shots_delimiter ? o->shots_delimiter : "\n\n";
  how->seed = (uint64_t)e->m->setup.config->eval.seed;
  return find_max_length(e) && find_prefix(e) &&
         (!o->apply_chat_template || tsr_chat_template_open(
                                         a->arena, e->m->weights.folder, NULL, &how->tokenizer,
                                         TSR_NOWHERE, &how->chat, a->diags));
}

static bool make_requests(evaluation *e) {
  app *a = e->m->a;
  bool ok = true;
  tsr_text all = {0};
  for (int i = 0; i < e->results.count; i++) {
    evaluated_set *s = &e->results.sets[i];
    ok &= tsr_eval_requests(a->arena, &s->set, &e->how, &s->requests, &s->requests_count, a->diags);
    for (int r = 0; r < s->requests_count; r++) {
      const tsr_eval_request *request = &s->requests[r];
      tsr_text_add_bytes(&all, &s->set.items[request->item].answer, sizeof(int));
      tsr_text_add_bytes(&all, &request->scored, sizeof request->scored);
      tsr_text_add_bytes(&all, request->tokens, sizeof *request->tokens * (size_t)request->count);
      e->results.tokens += request->count - 1;
    }
  }
  if (all.data) tsr_hash_text(all.data, all.length, e->m->prompts_hash);
  tsr_text_free(&all);
  return ok;
}

/* ---- programs ---- */

static int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/* How many requests read at most so many multiples of tokens: (most + 1) numbers. */
static int64_t *count_requests(const evaluation *e, int64_t multiple, int64_t *ret_most) {
  int64_t longest = 1;
  for (int i = 0; i < e->results.count; i++)
    for (int r = 0; r < e->results.sets[i].requests_count; r++) {
      int64_t read = e->results.sets[i].requests[r].count - 1;
      if (read > longest) longest = read;
    }
  int64_t most = *ret_most = round_up(longest, multiple) / multiple;
  int64_t *counts = tsr_arena_array(e->m->a->arena, int64_t, most + 1);
  for (int i = 0; i < e->results.count; i++)
    for (int r = 0; r < e->results.sets[i].requests_count; r++)
      counts[round_up(e->results.sets[i].requests[r].count - 1, multiple) / multiple]++;
  for (int64_t k = 1; k <= most; k++) counts[k] += counts[k - 1];
  return counts;
}

/* The sequences of one program or two: a short one where that leaves out a quarter or more of all
 * tokens. They depend on the requests and on the units of the sequence, which divide them, and for
 * most units not on these. */
static void choose_sequences(evaluation *e) {
  const setup *s = &e->m->setup;
  int64_t units = tsr_sequence_units_count(s->config, s->parallel), multiple = 64, most, best = 0;
  while (multiple % units) multiple += 64;
  const int64_t *counts = count_requests(e, multiple, &most);
  for (int64_t k = 1; k < most; k++)
    if (counts[k] * (most - k) > counts[best] * (most - best)) best = k;
  e->sequences[0] = best * multiple;
  e->sequences[1] = most * multiple < e->model_length ? most * multiple : e->model_length;
  e->programs = counts[best] * (most - best) * 4 >= counts[most] * most ? 2 : 1;
  if (e->programs == 1) e->sequences[0] = e->sequences[1];
}

/* All programs have the stages of the first. */
static bool compile_for(evaluation *e, int64_t samples) {
  app *a = e->m->a;
  tsr_config_training *t = &e->m->setup.config->training;
  tsr_compile_options o = prepare_compile_options(a, &e->m->setup, &e->m->data);
  o.keeps_logits = e->finds_greedy;
  t->validation_batch_size = samples;
  for (int i = 0; i < e->programs; i++) {
    t->sequence_length = e->sequences[i];
    if (!tsr_compile(a->arena, &o, TSR_COMPILE_EVALUATE, &e->compiled[i], a->diags)) return false;
    o.split = &e->compiled[0].split;
    o.split_of = e->compiled[0].split.of;
  }
  return true;
}

static bool check_model(evaluation *e) {
  app *a = e->m->a;
  const tsr_compiled *c = &e->compiled[e->programs - 1];
  tsr_run_data_needs needs;
  if (!tsr_run_data_needs_of(c->graph, &needs, a->diags)) return false;
  if (!needs.text || c->placed->loss < 0)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "evaluate is for models of text, and this one is none");
  if (!trained_model_check_tokens(e->m, c)) return false;
  if (tsr_graph_find_loss(c->placed, c->placed->loss) < 0)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE,
        "the loss of this model is more than the cross entropy of its tokens: it has no "
        "log-probabilities of texts");
  if (e->finds_greedy && !c->has_logits)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "this model has no output 'logits' to find the likeliest token in");
  e->vocab_size = needs.vocab;
  return tsr_run_data_check_sequence(e->m->setup.config, &needs, a->diags);
}

/* One sample at once where the program has no number for each. */
static bool compile_evaluation(evaluation *e) {
  app *a = e->m->a;
  int64_t samples = e->m->setup.config->training.validation_batch_size;
  tsr_programs programs[2];
  choose_sequences(e);
  if (!compile_for(e, samples) || (e->compiled[0].samples != samples && !compile_for(e, 1)) ||
      !check_model(e))
    return false;
  for (int i = 0; i < e->programs; i++) {
    console_print_dumps(a, &e->m->setup, &e->compiled[i]);
    programs[i] = e->compiled[i].programs;
  }
  return trained_model_load(e->m, &e->compiled[0], programs, e->programs);
}

/* ---- scores ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool score_sets(evaluation *e) {
  app *a = e->m->a;
  for (int i = 0; i < e->results.count; i++) {
    evaluated_set *s = &e->results.sets[i];
    tsr_eval_scoring how = {
        .vocab_size = e->vocab_size, .finds_greedy = s->set.kind == TSR_EVAL_COMPLETION};
    how.stop = trained_model_interrupt(e->m);
    tsr_eval_score *scores = tsr_arena_array(a->arena, tsr_eval_score, s->requests_count);
    for (int p = 0; p < e->programs; p++) {
      how.above = p ? e->sequences[0] : 0;
      if (!tsr_eval_score_requests(
              a->arena, &e->compiled[p], e->m->executable[p], s->requests, s->requests_count, &how,
              scores, a->diags))
        return false;
    }
    s->outcomes = tsr_eval_outcomes(a->arena, &s->set, s->requests, s->requests_count, scores);
    s->metrics_count = tsr_eval_metrics(&s->set, s->outcomes, s->metrics);
  }
  return true;
}

static bool score(evaluation *e) {
  double begin = now();
  int64_t requests = 0;
  for (int i = 0; i < e->results.count; i++) requests += e->results.sets[i].requests_count;
  tsr_command_progress_begin("evaluating", requests, "requests");
  bool ok = score_sets(e);
  tsr_command_progress_end();
  e->results.seconds = now() - begin;
  return ok;
}

bool evaluate_check_output(const app *a, const char *path) {
  if (!path) return true;
  const char *folder = tsr_path_folder(a->arena, path);
  if (!tsr_file_is_folder(folder))
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "cannot write '%s': '%s' is no folder", path, folder);
  return tsr_file_check_output(path, a->diags);
}

bool evaluate_sets(trained_model *m) {
  app *a = m->a;
  evaluation e = {.m = m};
  bool ok = tsr_run_data_open_tokenizer(a->arena, m->setup.config, &m->data, a->diags) &&
            read_sets(&e) && check_examples(&e) && prepare_prompting(&e) && make_requests(&e);
  ok &= evaluate_check_output(a, a->options.out);
  ok &= evaluate_check_output(a, a->options.log_samples);
  return tsr_job_all_succeeded(&a->job, ok) && compile_evaluation(&e) && score(&e) &&
         evaluate_sets_report(m, &e.results);
}
