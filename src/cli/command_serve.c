// SPDX-License-Identifier: Apache-2.0
/* The command `serve`. */
#include "cli/listen_at.h"
#include "cli/text_ends.h"
#include "data/chat_template.h"
#include "plan/plan.h"
#include "http/host.h"
#include "serve/http_server.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  trained_model m;
  tsr_compiled compiled;
  tsr_served_model model;
  int32_t ends[TEXT_ENDS_MAX];
  tsr_http_settings http;
  int port;
  int64_t queue;
} serving;

/* The port is taken first, so that a second server ends before it reads its weights. */
static bool take_settings(serving *s) {
  enum { PORT = 8000, BODY = 1 << 20, QUEUE = 256, OTHERS = 64 };
  const double timeout = 600, sending = 30;
  app *a = s->m.a;
  const tsr_options *o = &a->options;
  const char *token = o->token;
  if (!token) token = getenv("TESSERA_SERVE_TOKEN");
  s->queue = o->max_queue ? o->max_queue : QUEUE;
  s->http.token = token && *token ? token : NULL;
  s->http.daemon.max_body = o->max_body ? o->max_body : BODY;
  s->http.timeout_s = o->timeout_text ? o->timeout_s : timeout;
  s->http.daemon.sending_s = s->http.timeout_s < sending ? s->http.timeout_s : sending;
  s->http.daemon.connections = (int)(s->queue < 1 << 16 ? s->queue : 1 << 16) + OTHERS;
  if (!tsr_host_is_loopback(listen_at_host(a)) && !s->http.token)
    tsr_diag_warning(
        a->diags, TSR_NOWHERE,
        "--host: other machines may reach the server, and without --token it answers all of them");
  return listen_at_open(a, PORT, &s->http.daemon.socket, &s->port);
}

/* The last part of a path. */
static const char *model_name(tsr_arena *arena, const char *folder) {
  size_t length = strlen(folder), begin;
  while (length > 1 && folder[length - 1] == '/') length--;
  for (begin = length; begin > 0 && folder[begin - 1] != '/';) begin--;
  return tsr_arena_strndup(arena, folder + begin, length - begin);
}

static bool open_model(serving *s) {
  app *a = s->m.a;
  if (!trained_model_open(&s->m)) return false;
  const tsr_tokenizer *tokenizer = &s->m.data.dataset.tokenizer;
  const char *folder = a->options.checkpoint, *name = a->options.model_name;
  if (!folder) folder = s->m.weights.folder;
  s->model = (tsr_served_model){
      .name = name ? name : model_name(a->arena, folder),
      .created = (int64_t)time(NULL),
      .tokenizer = tokenizer,
      .ends = s->ends,
      .texts_most = s->queue < TSR_REQUEST_CHOICES_MAX ? s->queue : TSR_REQUEST_CHOICES_MAX};
  return tsr_run_data_open_tokenizer(a->arena, s->m.setup.config, &s->m.data, a->diags) &&
         text_ends_find(&s->m, s->ends, &s->model.ends_count) &&
         tsr_chat_template_open(
             a->arena, s->m.weights.folder, NULL, tokenizer, TSR_NOWHERE, &s->model.template,
             a->diags);
}

/* Every text may be as long as the context. */
static bool compile(serving *s) {
  enum { ROWS = 16 };
  app *a = s->m.a;
  tsr_compile_options o = prepare_compile_options(a, &s->m.setup, &s->m.data);
  int64_t most = trained_model_positions(&s->m), context = a->options.context;
  o.window = most && context && context < most ? context : most;
  o.rows = a->options.max_batch ? a->options.max_batch : ROWS;
  o.scores = true;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_GENERATE, &s->compiled, a->diags)) return false;
  tsr_run_data_needs needs = {.text = true, .vocab = s->compiled.model->vocab_size};
  if (!tsr_run_data_check_end_of_text(s->m.setup.config, &needs, a->diags)) return false;
  if (!trained_model_check_generates(&s->m, &s->compiled)) return false;
  int64_t window = s->compiled.model->sequence;
  if (context > (most ? most : window))
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "--context: the model has %lld positions, not %lld",
        (long long)(most ? most : window), (long long)context);
  s->model.context = context ? context : window;
  if (!s->compiled.decode)
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "no key/value cache, so each token takes the whole window: %s",
        s->compiled.why_no_cache);
  console_print_dumps(a, &s->m.setup, &s->compiled);
  return true;
}

/* What the server takes, before it is taken. */
static void print_plan(const serving *s, const tsr_programs *programs, int count) {
  int64_t parameters = 0, cache = 0, work = 0, sources = 0, total = 0;
  for (int stage = 0; stage < s->m.setup.parallel->size[TSR_PP]; stage++) {
    tsr_memory memory;
    int ranks = s->m.setup.parallel->ranks / s->m.setup.parallel->size[TSR_PP];
    tsr_memory_of(programs, count, stage, &memory);
    parameters += memory.parameters * ranks;
    cache += memory.cache * ranks;
    work += memory.work * ranks;
    sources += (memory.sources + memory.state) * ranks;
    total += memory.total * ranks;
  }
  printf(
      "model: %s, %lld tokens of vocabulary, context %lld\n", s->model.name,
      (long long)s->compiled.model->vocab_size, (long long)s->model.context);
  printf("texts: %lld at once, %lld waiting\n", (long long)s->compiled.batch, (long long)s->queue);
  printf(
      "memory: %s: weights %s, key/value cache %s, activations %s, inputs and constants %s\n",
      tsr_text_bytes(total).text, tsr_text_bytes(parameters).text, tsr_text_bytes(cache).text,
      tsr_text_bytes(work).text, tsr_text_bytes(sources).text);
}

static bool load(serving *s) {
  app *a = s->m.a;
  tsr_programs programs[TSR_GENERATION_PROGRAMS_MAX];
  int count = tsr_generation_programs(&s->compiled, programs);
  if (!a->options.quiet) print_plan(s, programs, count);
  fflush(stdout);
  tsr_diags_print(a->diags, stderr);
  return trained_model_load(&s->m, &s->compiled, programs, count);
}

static void refuse(void *server) { tsr_http_server_refuse(server); }

static bool run(serving *s) {
  const double grace = 5;
  app *a = s->m.a;
  tsr_http_server *server;
  tsr_generator generator =
      tsr_generator_of(&s->compiled, s->m.executable, s->model.tokenizer->vocab_size);
  s->model.vocab_size = generator.vocab_size;
  tsr_text_batch *batch = tsr_text_batch_new(a->arena, &generator);
  tsr_text_batch_reserve(batch, s->model.context + 1);
  tsr_metrics *metrics = tsr_metrics_new(a->arena);
  tsr_scheduler *scheduler = tsr_scheduler_new(a->arena, batch, s->queue, metrics);
  bool ok =
      tsr_http_server_open(a->arena, &s->http, &s->model, scheduler, metrics, &server, a->diags);
  s->http.daemon.socket = -1; /* the server's */
  if (ok) {
    listen_at_print(a, s->port);
    tsr_scheduler_run(scheduler, a->stop, grace, refuse, server);
  }
  tsr_http_server_close(server);
  return ok;
}

int app_run_serve(app *a) {
  serving s = {.m = {.a = a}, .http = {.daemon.socket = -1}};
  bool ok = take_settings(&s) && open_model(&s) && compile(&s) && load(&s);
  if (ok && !*a->stop) ok = run(&s);
  if (s.http.daemon.socket >= 0) close(s.http.daemon.socket);
  return trained_model_finish(&s.m, ok);
}
