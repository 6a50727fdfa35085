// SPDX-License-Identifier: Apache-2.0
/* The command `generate`. */
#include "cli/text_ends.h"
#include "base/file_read.h"
#include "data/conversation.h"
#include "data/text_check.h"
#include "train/generate.h"
#include <string.h>

typedef struct {
  trained_model m;
  tsr_compiled compiled;
  tsr_prompt *prompts;
  const char **texts;
  int count;
  int32_t stops[TEXT_ENDS_MAX]; /* tokens that end a text */
  int stops_count;
  tsr_token_stream *stream; /* of the text that is shown as it grows; NULL: none yet */
} generation;

static bool add_prompt(generation *g, const char *name, const char *text, size_t length) {
  app *a = g->m.a;
  const tsr_tokenizer *tokenizer = &g->m.data.dataset.tokenizer;
  const int32_t *before = NULL;
  int64_t count = 0, first = 0;
  if (tokenizer->kind == TSR_TOKENIZER_SUBWORD)
    first = tsr_subword_before(tokenizer->subword, &before);
  int64_t room = tsr_tokenizer_room(tokenizer, text, length) + first + 1;
  int32_t *tokens = tsr_arena_array(a->arena, int32_t, room);
  if (first) memcpy(tokens, before, sizeof *tokens * (size_t)first);
  tsr_text_file file = {name, text, length};
  if (!tsr_tokenizer_encode(tokenizer, &file, tokens + first, &count, a->diags)) return false;
  if (!(count + first))
    return tsr_diag_error(a->diags, TSR_NOWHERE, "%s is empty: it has nothing to continue", name);
  g->texts[g->count] = text;
  g->prompts[g->count++] = (tsr_prompt){tokens, count + first};
  return true;
}

enum { CHAT_BYTES_MAX = 1 << 26 };

/* A conversation, rendered up to the assistant's answer, is a prompt whose text is not shown. */
static bool add_chat(generation *g) {
  app *a = g->m.a;
  char *text;
  tsr_text_file file = {.path = a->options.chat};
  tsr_chat chat;
  const tsr_chat_template *template;
  tsr_jinja_output out;
  const tsr_tokenizer *tokenizer = &g->m.data.dataset.tokenizer;
  if (!tsr_file_read(
          a->arena, file.path, CHAT_BYTES_MAX, TSR_NOWHERE, &text, &file.length, a->diags))
    return false;
  file.text = text;
  if (!tsr_conversation_chat(a->arena, &file, &chat, a->diags) ||
      !tsr_chat_template_open(
          a->arena, g->m.weights.folder, NULL, tokenizer, TSR_NOWHERE, &template, a->diags) ||
      !tsr_chat_template_render(
          a->arena, template, &chat, chat.messages.list->count, true, &out, a->diags))
    return false;
  tsr_text_file rendered = {"the chat", out.text.data ? out.text.data : "", out.text.length};
  int64_t room = tsr_tokenizer_room(tokenizer, rendered.text, rendered.length), count;
  int32_t *tokens = tsr_arena_array(a->arena, int32_t, room + 1);
  bool ok = tsr_tokenizer_encode(tokenizer, &rendered, tokens, &count, a->diags);
  tsr_text_free(&out.text);
  if (ok && !count) ok = tsr_diag_error(a->diags, TSR_NOWHERE, "the chat template renders no text");
  g->texts[g->count] = "";
  g->prompts[g->count++] = (tsr_prompt){tokens, count};
  return ok;
}

enum { PROMPT_FILE_BYTES_MAX = 1 << 24 };

/* A prompt a line; a line without text is none. A byte order mark, and the \r of a line's end in
 * files of Windows, are no part of them. */
static bool add_lines(generation *g, char *text, size_t bytes) {
  static const char mark[] = "\xef\xbb\xbf";
  const tsr_text_file file = {g->m.a->options.prompt_file, text, bytes};
  bool ok = tsr_content_check_bytes(&file, g->m.a->diags);
  int number = 1;
  if (!strncmp(text, mark, sizeof mark - 1)) text += sizeof mark - 1;
  for (char *line = text; ok && *line; number++) {
    size_t length = strcspn(line, "\n"), next = length + (line[length] != 0);
    if (length && line[length - 1] == '\r') length--;
    line[length] = 0;
    const char *name =
        tsr_arena_printf(g->m.a->arena, "%s, line %d", g->m.a->options.prompt_file, number);
    if (length) ok = add_prompt(g, name, line, length);
    line += next;
  }
  return ok;
}

static void hash_prompts(generation *g) {
  tsr_text all = {0};
  tsr_text_add_bytes(&all, g->stops, sizeof *g->stops * (size_t)g->stops_count);
  for (int i = 0; i < g->count; i++) {
    tsr_text_add_bytes(&all, &g->prompts[i].count, sizeof g->prompts[i].count);
    tsr_text_add_bytes(
        &all, g->prompts[i].tokens, sizeof *g->prompts[i].tokens * (size_t)g->prompts[i].count);
  }
  if (all.data) tsr_hash_text(all.data, all.length, g->m.prompts_hash);
  tsr_text_free(&all);
}

static bool read_prompts(generation *g) {
  app *a = g->m.a;
  char *text = NULL;
  size_t length = 0;
  int most = a->options.prompts.count;
  if (a->options.prompt_file && !tsr_file_read(
                                    a->arena, a->options.prompt_file, PROMPT_FILE_BYTES_MAX,
                                    TSR_NOWHERE, &text, &length, a->diags))
    return false;
  for (size_t i = 0; i < length; i++) most += text[i] == '\n';
  g->prompts = tsr_arena_array(a->arena, tsr_prompt, most + 2);
  g->texts = tsr_arena_array(a->arena, const char *, most + 2);
  bool ok = !a->options.chat || add_chat(g);
  for (int i = 0; i < a->options.prompts.count; i++) {
    const char *prompt = a->options.prompts.items[i];
    tsr_text_file file = {tsr_arena_printf(a->arena, "--prompt %d", i + 1), prompt, strlen(prompt)};
    ok &= tsr_content_check_bytes(&file, a->diags) && add_prompt(g, file.path, prompt, file.length);
  }
  if (ok && text) ok = add_lines(g, text, length);
  const char *own = g->m.setup.config->eval.prompt;
  if (ok && !g->count && *own) ok = add_prompt(g, "eval_config.prompt", own, strlen(own));
  if (ok && g->count) {
    ok = text_ends_find(&g->m, g->stops, &g->stops_count);
    hash_prompts(g);
  }
  if (!ok || g->count) return ok;
  return tsr_diag_error(
      a->diags, TSR_NOWHERE, "nothing to resume from: --prompt, --prompt-file or --chat is needed");
}

enum { ROWS = 16 };

/* A window for the longest text that there will be, so that the cache is no larger than it must. */
static bool compile_generation(generation *g) {
  app *a = g->m.a;
  tsr_compile_options o = prepare_compile_options(a, &g->m.setup, &g->m.data);
  int64_t longest = 0, most = trained_model_positions(&g->m);
  for (int i = 0; i < g->count; i++)
    if (g->prompts[i].count > longest) longest = g->prompts[i].count;
  o.window = longest + g->m.setup.config->eval.max_new_tokens;
  if (!most) o.window = 0;
  else if (o.window > most) o.window = most;
  int64_t rows = a->options.max_batch ? a->options.max_batch : ROWS;
  o.rows = g->count < rows ? g->count : rows;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_GENERATE, &g->compiled, a->diags)) return false;
  tsr_run_data_needs needs = {.text = true, .vocab = g->compiled.model->vocab_size};
  if (!tsr_run_data_check_end_of_text(g->m.setup.config, &needs, a->diags)) return false;
  if (!trained_model_check_generates(&g->m, &g->compiled)) return false;
  if (!g->compiled.decode)
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "no key/value cache, so each token takes the whole window: %s",
        g->compiled.why_no_cache);
  console_print_dumps(a, &g->m.setup, &g->compiled);
  tsr_programs programs[TSR_GENERATION_PROGRAMS_MAX];
  int count = tsr_generation_programs(&g->compiled, programs);
  return trained_model_load(&g->m, &g->compiled, programs, count);
}

/* A text alone is shown as it grows; of several each is shown when all are done. */
static void show_token(void *context, int prompt, int32_t token) {
  generation *g = context;
  if (g->count > 1 || prompt || g->m.a->job.is_silent) return;
  const tsr_tokenizer *tokenizer = &g->m.data.dataset.tokenizer;
  if (!g->stream) g->stream = tsr_token_stream_new(g->m.a->arena, tokenizer, true);
  tsr_text text = {0};
  tsr_token_stream_add(g->stream, token, &text);
  if (text.length) fwrite(text.data, 1, text.length, stdout);
  fflush(stdout);
  tsr_text_free(&text);
}

/* What follows a prompt. */
static void add_continuation(generation *g, const tsr_continuation *made, tsr_text *text) {
  const tsr_tokenizer *tokenizer = &g->m.data.dataset.tokenizer;
  tsr_token_stream *stream = tsr_token_stream_new(g->m.a->arena, tokenizer, true);
  for (int64_t i = 0; i < made->count; i++) tsr_token_stream_add(stream, made->tokens[i], text);
  tsr_token_stream_end(stream, text);
}

static void show_all(generation *g, const tsr_continuation *texts) {
  for (int i = 0; i < g->count && g->count > 1; i++) {
    tsr_text text = {0};
    add_continuation(g, &texts[i], &text);
    printf("--- %d\n%s", i + 1, g->texts[i]);
    if (text.data) fwrite(text.data, 1, text.length, stdout);
    printf("\n");
    tsr_text_free(&text);
  }
  if (g->count > 1) return;
  tsr_text rest = {0};
  tsr_token_stream_end(g->stream, &rest);
  g->stream = NULL;
  if (rest.length) fwrite(rest.data, 1, rest.length, stdout);
  tsr_text_free(&rest);
  printf("\n");
}

static bool generate(generation *g) {
  app *a = g->m.a;
  const tsr_config_eval *e = &g->m.setup.config->eval;
  tsr_generating how = {
      .sampling = {e->repetition_penalty, e->temperature, e->top_k, e->top_p, e->seed},
      .max_new_tokens = e->max_new_tokens,
      .stops = g->stops,
      .stops_count = g->stops_count,
      .drawn = show_token,
      .context = g,
      .interrupt = trained_model_interrupt(&g->m)};
  tsr_generating_speed speed;
  tsr_continuation *texts = tsr_arena_array(a->arena, tsr_continuation, g->count);
  tsr_generator generator =
      tsr_generator_of(&g->compiled, g->m.executable, g->m.data.dataset.tokenizer.vocab_size);
  if (g->count == 1 && !a->job.is_silent) fputs(g->texts[0], stdout);
  if (!tsr_generate_texts(
          a->arena, &generator, g->prompts, g->count, &how, texts, &speed, a->diags))
    return false;
  if (!a->job.is_silent) show_all(g, texts);
  if (!a->options.quiet && speed.decode_seconds > 0)
    fprintf(
        stderr, "prompt: %lld tokens, %.0f/s; new: %lld tokens, %.2f/s\n",
        (long long)speed.prefill_tokens,
        speed.prefill_seconds > 0 ? (double)speed.prefill_tokens / speed.prefill_seconds : 0.0,
        (long long)speed.decode_tokens, (double)speed.decode_tokens / speed.decode_seconds);
  return true;
}

int app_run_generate(app *a) {
  generation g = {.m = {.a = a}};
  bool ok = trained_model_open(&g.m);
  ok = ok &&
       tsr_job_all_succeeded(
           &a->job, tsr_run_data_open_tokenizer(a->arena, g.m.setup.config, &g.m.data, a->diags) &&
                        read_prompts(&g));
  ok = ok && compile_generation(&g);
  if (ok && !a->job.is_silent) tsr_diags_print(a->diags, stderr);
  ok = ok && generate(&g);
  tsr_text unsaid = {0}; /* of a text that was not finished */
  tsr_token_stream_end(g.stream, &unsaid);
  tsr_text_free(&unsaid);
  return trained_model_finish(&g.m, ok);
}
