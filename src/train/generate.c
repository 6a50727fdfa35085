/* Text from a model: the whole window forward for every token, the next one drawn from its last
 * logits. */
#include "train/sampling.h"
#include "train/trainer.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  const int32_t *tokens; /* the window */
  int64_t count, T;
} window;

static void fill_window(void *context, const char *input, int64_t sample, void *row) {
  const window *w = context;
  (void)input, (void)sample;
  memset(row, 0, sizeof(int32_t) * (size_t)w->T);
  memcpy(row, w->tokens, sizeof(int32_t) * (size_t)w->count);
}

static tsr_sampling sampling_of(const tsr_config_eval *e) {
  return (tsr_sampling){e->repetition_penalty, e->temperature, e->top_k, e->top_p, e->seed};
}

/* The prompt's tokens at the front of `tokens`; without a prompt the first token of the text's
 * vocabulary that ends a line, or token 0. */
static bool
start_tokens(const tsr_trainer_options *o, int32_t *tokens, int64_t *ret_count, tsr_diags *diags) {
  const char *prompt = o->config->eval.prompt;
  const tsr_tokenizer *tokenizer = &o->source->dataset.tokenizer;
  if (!prompt[0]) {
    int32_t newline = tokenizer->kind == TSR_TOKENIZER_CHAR ? tokenizer->ascii['\n'] : '\n';
    tokens[0] = newline < 0 ? 0 : newline;
    *ret_count = 1;
    return true;
  }
  tsr_text_file file = {"eval_config.prompt", prompt, strlen(prompt)};
  return tsr_tokenizer_encode(tokenizer, &file, tokens, ret_count, diags);
}

bool tsr_generate(
    const tsr_trainer_options *o, const tsr_compiled *generation, tsr_bound *bound, int64_t count,
    tsr_text *text, tsr_diags *diags) {
  const tsr_tokenizer *tokenizer = &o->source->dataset.tokenizer;
  int64_t T = generation->model->sequence, V = generation->model->vocab_padded, at = 0;
  int64_t vocab = tokenizer->vocab_size;
  int logits = tsr_graph_find_output(generation->placed, "logits");
  int32_t *tokens = calloc(strlen(o->config->eval.prompt) + (size_t)count + 1, sizeof *tokens);
  float *row = calloc((size_t)V, sizeof *row);
  void *scratch = malloc(tsr_sampling_scratch_bytes(vocab));
  tsr_sampling sampling = sampling_of(&o->config->eval);
  bool ok = tokens && row && scratch;
  if (!ok)
    tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory for a sample of %lld tokens", (long long)count);
  ok = ok && start_tokens(o, tokens, &at, diags);
  bool blank = !o->config->eval.prompt[0];
  for (int64_t i = 0; ok && i < count && !*o->stop; i++) {
    int64_t n = at < T ? at : T;
    window w = {tokens + at - n, n, T};
    tsr_bound_run(bound, 0, fill_window, &w);
    tsr_bound_read_row(bound, logits, n - 1, row);
    int32_t next = tsr_sample_token(&sampling, row, vocab, tokens, at, (uint64_t)at, scratch);
    if (next < 0)
      ok = tsr_diag_failure(
          diags, TSR_NOWHERE, "token %lld: no finite logit to draw from", (long long)at);
    tokens[at++] = next < 0 ? 0 : next;
  }
  if (ok) tsr_tokenizer_decode(tokenizer, tokens + blank, at - blank, text);
  free(tokens);
  free(row);
  free(scratch);
  return ok;
}
