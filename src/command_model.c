/* Commands that use trained weights: evaluate and generate. */
#include "app.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/hf_sides.h"
#include "checkpoint/load.h"
#include "data/content.h"
#include "data/sources.h"
#include "train/chat_template.h"
#include "train/evaluate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  app *a;
  tsr_manifest weights;
  bool keeps_units; /* the user has said which */
  tsr_worker *worker;
  tsr_bound *bound[2];
} model;

/* ---- the model of a checkpoint ---- */

/* Whether a --set is of that section, or of what begins so. */
static bool has_set(const app *a, const char *section) {
  for (int i = 0; i < a->cli.sets_count; i++)
    if (!a->cli.sets[i].key && !strncmp(a->cli.sets[i].text, section, strlen(section))) return true;
  return false;
}

/* Whether a --set lays out ranks: the whole section, or a key that names axes or devices. */
static bool sets_layout(const app *a) {
  static const char *const keys[] = {
      "device_config=", "device_config.enable_", "device_config.mesh_", "device_config.device"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (has_set(a, keys[k])) return true;
  return false;
}

/* A configuration that stands in a checkpoint says how training was spread; using the weights needs
 * no more than a rank, unless a --set says where it is to be. */
static void use_one_rank(app *a) {
  if (sets_layout(a) || has_set(a, "mesh") || has_set(a, "pipeline") || has_set(a, "zero")) return;
  tsr_config *c = a->config;
  const tsr_config_device *d = &c->device;
  c->device = (tsr_config_device){
      .mesh_graph_descriptor = "", .memory_limit = d->memory_limit, .kind = d->kind};
  c->pipeline.workers = c->pipeline.virtual_stages = 0;
  c->pipeline.stages_count = c->pipeline.blocks_count = 0;
  c->zero = (tsr_config_zero){.offload_path = ""};
}

static void forget_sections(app *a, const char *const *sections, int count) {
  tsr_cli *c = &a->cli;
  memmove(c->sets + count, c->sets, sizeof *c->sets * (size_t)c->sets_count);
  for (int i = 0; i < count; i++) c->sets[i] = (tsr_set){"{}", "--checkpoint", sections[i], false};
  c->sets_count += count;
}

/* Of a checkpoint's own configuration: what it says of the mesh that the weights were trained on
 * gives way to the other way of saying it that an option has, and the options of its parts stand
 * behind that. */
static void forget_mesh(app *a) {
  static const char *const by_switches[] = {"device_config", "pipeline", "zero"}, *by_name = "mesh";
  if (has_set(a, "mesh")) forget_sections(a, by_switches, 3);
  else if (sets_layout(a)) forget_sections(a, &by_name, 1);
}

/* --data stands in place of all that the configuration says of data. */
static void take_data(app *a) {
  tsr_cli *c = &a->cli;
  if (!c->data) return;
  c->sets[c->sets_count++] = (tsr_set){"[]", "--data", "training_config.data_sources", false};
  c->sets[c->sets_count++] = (tsr_set){c->data, "--data", "training_config.data_path", true};
}

/* What training's memory and batches need is not asked of a model that only runs forward. */
static void forget_training(tsr_config *c) {
  c->training.gradient_accumulation_steps = 1;
  c->training.batch_size_per_rank = 1; /* any mesh divides it */
  c->training.batch_size_given = false;
  c->schedule.pipeline_microbatches = 0;
  c->schedule.recompute = TSR_RECOMPUTE_NONE;
  c->numerics.units_batch = 0;
}

/* The tokenizer that the weights were trained with is the one that the checkpoint holds. */
static void use_tokenizer(app *a, const tsr_manifest *m) {
  tsr_config_training *t = &a->config->training;
  if (!m->tokenizer) return;
  t->tokenizer_path = tsr_path_join(a->arena, m->folder, m->tokenizer);
  bool json = strstr(m->tokenizer, ".json") != NULL;
  t->tokenizer_type = json ? TSR_TOKENS_BPE : TSR_TOKENS_CHAR;
}

static bool load_config(model *m) {
  app *a = m->a;
  const tsr_manifest *weights = &m->weights;
  bool own = a->cli.config != NULL;
  if (!own && !weights->config)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "'%s' has no configuration: --config FILE is needed",
        weights->folder);
  if (!own) {
    a->cli.config = tsr_path_join(a->arena, weights->folder, weights->config);
    forget_mesh(a);
  }
  take_data(a);
  if (!app_load_config(a)) return false;
  const char *layout = tsr_recipe_value(weights, "device_config.cp_layout");
  bool zigzag = layout && !strcmp(layout, "zigzag") && !own && !has_set(a, "device_config");
  m->keeps_units = own || has_set(a, "numerics");
  tsr_recipe_fill(a->arena, a->config, weights);
  if (!own) use_one_rank(a);
  if (zigzag) a->config->device.cp_layout = TSR_CP_ZIGZAG;
  forget_training(a->config);
  use_tokenizer(a, weights);
  return true;
}

/* Units of the checkpoint's recipe that the mesh cannot share out give way to the mesh's own: the
 * numbers are right, but not to the last bit those of training. */
static void fit_units(model *m) {
  const int *size = m->a->parallel->size;
  tsr_config_numerics *n = &m->a->config->numerics;
  int cuts = size[TSR_CP] * (m->a->config->device.enable_sp ? size[TSR_TP] : 1);
  bool tp = n->units_tp % size[TSR_TP], sequence = n->units_sequence % cuts;
  if (m->keeps_units) return;
  if (tp) n->units_tp = 0;
  if (sequence) n->units_sequence = 0;
  if (tp || sequence)
    tsr_diag_note(
        m->a->diags, TSR_NOWHERE,
        "the checkpoint's units of %s do not fit this mesh: results differ in their last bits",
        tp ? "tp" : "the sequence");
}

/* --checkpoint, or of a configuration where its run keeps them. */
static bool find_weights(model *m) {
  app *a = m->a;
  const char *path = a->cli.checkpoint;
  if (!path) {
    if (!app_load_config(a)) return false;
    path = *a->config->training.model_path ? a->config->training.model_path
                                           : a->config->training.checkpoint_dir;
  }
  return tsr_checkpoint_find(a->arena, path, TSR_NOWHERE, &m->weights, a->diags);
}

static bool open_context(model *m) {
  app *a = m->a;
  app_catch_signals();
  bool ok = app_join(a);
  ok = app_all_well(a, ok && find_weights(m) && load_config(m));
  ok = ok && app_choose_device(a) && app_open_mesh(a) && app_build_context(a);
  if (ok) fit_units(m);
  ok = ok && app_fix_recipe(a) && app_lay_ranks(a) && app_open_device(a) &&
       tsr_config_require_model(a->config, a->diags);
  return app_all_well(a, ok);
}

/* Memory for the programs, with the checkpoint's parameters in it. */
static bool open_worker(model *m, const tsr_programs *programs, int count) {
  app *a = m->a;
  tsr_worker_options o = {
      a->parallel, a->kernels, a->cpu.threads, a->config->training.seed,
      a->config->device.memory_limit};
  o.device = a->device;
  o.fast = a->config->numerics.policy == TSR_NUMERICS_FAST;
  o.hosting = a->hosting;
  o.timeout_s = a->config->collectives.timeout_s;
  o.lost = app_lost;
  o.lost_context = a;
  bool ok = app_agree(a) &&
            tsr_worker_open(a->arena, &o, programs, count, &m->worker, m->bound, a->diags) &&
            tsr_checkpoint_load(
                a->arena, &m->weights, m->bound[0], false, a->config->checkpoint.verify, a->diags);
  return app_all_well(a, ok);
}

/* Workers do not end at different moments: of several a signal is left to the launcher. */
static const volatile sig_atomic_t *interrupt_of(const app *a) {
  return a->transport.workers > 1 ? NULL : a->stop;
}

static int finish(model *m, bool ok) {
  if (!m->a->muted) tsr_diags_print(m->a->diags, stderr);
  tsr_worker_close(m->worker);
  app_close_device(m->a);
  int code = app_finish(m->a, ok);
  return *m->a->stop ? 128 + (int)*m->a->stop : code;
}

/* ---- evaluate ---- */

/* --data is all of it; else what the configuration keeps for validation. */
static bool open_data(model *m, tsr_split *ret_split) {
  app *a = m->a;
  tsr_config_training *t = &a->config->training;
  tsr_source_needs needs = {.text = true};
  *ret_split = a->cli.data ? TSR_SPLIT_TRAIN : TSR_SPLIT_VALIDATION;
  if (a->cli.data) {
    t->validation_path = "";
    t->validation_fraction = 0;
  } else if (!t->validation_path[0] && t->validation_fraction <= 0) {
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "the configuration keeps no data for validation: --data FILE is needed");
  }
  a->has_source = tsr_source_open(a->arena, a->config, &needs, &a->source, a->diags);
  /* characters that were counted in this text are not the model's */
  bool counted = a->source.dataset.tokenizer.kind == TSR_TOKENIZER_CHAR && !*t->tokenizer_path;
  if (a->has_source) tsr_dataset_fingerprint(&a->source.dataset, a->input);
  if (!a->has_source || !counted) return a->has_source;
  tsr_diag_error(
      a->diags, TSR_NOWHERE, "the checkpoint has no tokenizer, and '%s' is a text",
      a->source.dataset.name);
  tsr_diag_hint(
      a->diags,
      "--set training_config.tokenizer_type=byte, or training_config.tokenizer_path=FILE");
  return a->has_source = false;
}

static bool compile_evaluation(model *m) {
  app *a = m->a;
  tsr_compile_options o = app_compile_options(a);
  tsr_source_needs needs;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_EVALUATE, &a->evaluation, a->diags) ||
      !tsr_source_needs_of(a->evaluation.graph, &needs, a->diags) ||
      !tsr_source_check_end_of_text(a->config, &needs, a->diags))
    return false;
  if (!needs.text)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "evaluate is for models of text, and this one is none");
  a->source.sequence = needs.sequence;
  return open_worker(m, &a->evaluation.programs, 1);
}

static void print_evaluation(const model *m, const tsr_evaluation *e) {
  printf("checkpoint: %s, step %lld\n", m->weights.folder, (long long)m->weights.state.step);
  printf("data: %s, %s tokens", m->a->source.dataset.name, tsr_text_count(e->tokens));
  if (e->bytes) printf(" of %s bytes", tsr_text_count(e->bytes));
  printf("\nloss: %.6f\nperplexity: %.4f\n", e->loss, exp(e->loss));
  if (e->bytes)
    printf("bits per byte: %.6f\n", e->loss * (double)e->tokens / (log(2) * (double)e->bytes));
}

int app_run_evaluate(app *a) {
  model m = {.a = a};
  tsr_split split;
  tsr_evaluation e;
  bool ok = open_context(&m) && app_all_well(a, open_data(&m, &split)) && compile_evaluation(&m) &&
            tsr_evaluate(
                a->arena, &a->source, split, &a->evaluation, m.bound[0],
                a->config->training.validation_batch_size, interrupt_of(a), &e, a->diags);
  if (ok && *a->stop)
    tsr_diag_warning(
        a->diags, TSR_NOWHERE, "ended by a signal: the numbers are those of the tokens before it");
  if (ok && !a->muted) print_evaluation(&m, &e);
  if (ok && !isfinite(e.loss))
    tsr_diag_failure(
        a->diags, TSR_NOWHERE, "the loss is %s: the weights are damaged, or have diverged",
        isnan(e.loss) ? "nan" : "infinite");
  if (ok && !a->cli.quiet)
    printf("speed: %.0f tokens/s\n", (double)e.tokens / e.seconds);
  return finish(&m, ok);
}

/* ---- generate ---- */

typedef struct {
  model m;
  tsr_prompt *prompts;
  const char **texts;
  int count;
  tsr_text waiting; /* bytes of it that are no whole character yet */
} generation;

static bool add_prompt(generation *g, const char *name, const char *text, size_t length) {
  app *a = g->m.a;
  const tsr_tokenizer *tokenizer = &a->source.dataset.tokenizer;
  const int32_t *before = NULL;
  int64_t count = 0, first = 0;
  if (tokenizer->kind == TSR_TOKENIZER_BPE) first = tsr_bpe_before(tokenizer->bpe, &before);
  int64_t room = tsr_tokenizer_room(tokenizer, text, length) + first + 1;
  int32_t *tokens = tsr_arena_array(a->arena, int32_t, room);
  if (first) memcpy(tokens, before, sizeof *tokens * (size_t)first);
  tsr_text_file file = {name, text, length};
  if (!tsr_tokenizer_encode(tokenizer, &file, tokens + first, &count, a->diags)) return false;
  if (!(count + first))
    return tsr_diag_error(a->diags, TSR_NOWHERE, "%s is empty: nothing goes on from there", name);
  g->texts[g->count] = text;
  g->prompts[g->count++] = (tsr_prompt){tokens, count + first};
  return true;
}

/* A conversation is a prompt whose text is not shown. */
static bool add_chat(generation *g) {
  app *a = g->m.a;
  tsr_chat chat;
  tsr_prompt prompt;
  const tsr_tokenizer *tokenizer = &a->source.dataset.tokenizer;
  if (!tsr_chat_read(a->arena, a->cli.chat, TSR_NOWHERE, &chat, a->diags) ||
      !tsr_chat_template_check(
          a->arena, g->m.weights.folder, &chat, tsr_chat_format_of(tokenizer), a->diags) ||
      !tsr_chat_tokens(a->arena, &chat, tokenizer, &prompt.tokens, &prompt.count, a->diags))
    return false;
  g->texts[g->count] = "";
  g->prompts[g->count++] = prompt;
  return true;
}

enum { PROMPT_FILE_BYTES_MAX = 1 << 24 };

/* A prompt a line; a line without text is none. A byte order mark, and the \r of a line's end in
 * files of Windows, are no part of them. */
static bool add_lines(generation *g, char *text, size_t bytes) {
  static const char mark[] = "\xef\xbb\xbf";
  const tsr_text_file file = {g->m.a->cli.prompt_file, text, bytes};
  bool ok = tsr_content_check_bytes(&file, g->m.a->diags);
  int number = 1;
  if (!strncmp(text, mark, sizeof mark - 1)) text += sizeof mark - 1;
  for (char *line = text; ok && *line; number++) {
    size_t length = strcspn(line, "\n"), next = length + (line[length] != 0);
    if (length && line[length - 1] == '\r') length--;
    line[length] = 0;
    const char *name = tsr_arena_printf(
        g->m.a->arena, "%s, line %d", g->m.a->cli.prompt_file, number);
    if (length) ok = add_prompt(g, name, line, length);
    line += next;
  }
  return ok;
}

static void hash_prompts(generation *g) {
  tsr_text all = {0};
  for (int i = 0; i < g->count; i++) {
    tsr_text_add_bytes(&all, &g->prompts[i].count, sizeof g->prompts[i].count);
    tsr_text_add_bytes(
        &all, g->prompts[i].tokens, sizeof *g->prompts[i].tokens * (size_t)g->prompts[i].count);
  }
  if (all.data) tsr_hash_text(all.data, all.length, g->m.a->input);
  tsr_text_free(&all);
}

static bool read_prompts(generation *g) {
  app *a = g->m.a;
  char *text = NULL;
  size_t length = 0;
  int most = a->cli.prompts.count;
  if (a->cli.prompt_file &&
      !tsr_file_read(
          a->arena, a->cli.prompt_file, PROMPT_FILE_BYTES_MAX, TSR_NOWHERE, &text, &length,
          a->diags))
    return false;
  for (size_t i = 0; i < length; i++) most += text[i] == '\n';
  g->prompts = tsr_arena_array(a->arena, tsr_prompt, most + 2);
  g->texts = tsr_arena_array(a->arena, const char *, most + 2);
  bool ok = !a->cli.chat || add_chat(g);
  for (int i = 0; i < a->cli.prompts.count; i++) {
    const char *prompt = a->cli.prompts.items[i];
    tsr_text_file file = {tsr_arena_printf(a->arena, "--prompt %d", i + 1), prompt, strlen(prompt)};
    ok &= tsr_content_check_bytes(&file, a->diags) && add_prompt(g, file.path, prompt, file.length);
  }
  if (ok && text) ok = add_lines(g, text, length);
  const char *own = a->config->eval.prompt;
  if (ok && !g->count && *own) ok = add_prompt(g, "eval_config.prompt", own, strlen(own));
  if (ok) hash_prompts(g);
  if (!ok || g->count) return ok;
  return tsr_diag_error(
      a->diags, TSR_NOWHERE, "nothing to go on from: --prompt, --prompt-file or --chat is needed");
}

/* Only the tokenizer of the data is needed. */
static bool open_tokenizer(model *m) {
  app *a = m->a;
  a->has_source = tsr_source_open_tokenizer(a->arena, a->config, &a->source, a->diags);
  return a->has_source;
}

static int64_t size_of(const tsr_config *c, const char *key) {
  int64_t value = 0;
  const tsr_yaml *node = c->model.map ? tsr_yaml_get(c->model.map, key) : NULL;
  return node && tsr_yaml_int(node, &value) && value > 0 ? value : 0;
}

enum { ROWS_MAX = 16 };

/* A window for the longest text that there will be, so that the cache is no larger than it must. */
static bool compile_generation(generation *g) {
  app *a = g->m.a;
  tsr_compile_options o = app_compile_options(a);
  int64_t longest = 0, most = size_of(a->config, "max_sequence_length");
  for (int i = 0; i < g->count; i++)
    if (g->prompts[i].count > longest) longest = g->prompts[i].count;
  o.window = longest + a->config->eval.max_new_tokens;
  if (!most) o.window = 0;
  else if (o.window > most) o.window = most;
  o.rows = g->count < ROWS_MAX ? g->count : ROWS_MAX;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_GENERATE, &a->generation, a->diags)) return false;
  tsr_source_needs needs = {.text = true, .vocab = a->generation.model->vocab_size};
  if (!tsr_source_check_end_of_text(a->config, &needs, a->diags)) return false;
  if (!a->generation.has_logits)
    return tsr_diag_error(a->diags, TSR_NOWHERE, "this model has no output 'logits' to draw from");
  if (!a->generation.decode)
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "no key/value cache, so each token takes the whole window: %s",
        a->generation.why_no_cache);
  tsr_programs programs[2];
  int count = tsr_generation_programs(&a->generation, programs);
  return open_worker(&g->m, programs, count);
}

/* A text alone is shown as it grows; of several each is shown when all are done. */
static void show_token(void *context, int prompt, int32_t token) {
  generation *g = context;
  if (g->count > 1 || prompt || g->m.a->muted) return;
  if (g->m.a->source.dataset.tokenizer.kind == TSR_TOKENIZER_IDS) putchar(' ');
  tsr_tokenizer_decode(&g->m.a->source.dataset.tokenizer, &token, 1, &g->waiting);
  size_t whole = tsr_tokenizer_whole(g->waiting.data ? g->waiting.data : "", g->waiting.length);
  fwrite(g->waiting.data, 1, whole, stdout);
  fflush(stdout);
  memmove(g->waiting.data, g->waiting.data + whole, g->waiting.length - whole);
  g->waiting.length -= whole;
}

static void show_all(const generation *g, const tsr_continuation *texts) {
  for (int i = 0; i < g->count && g->count > 1; i++) {
    tsr_text text = {0};
    tsr_tokenizer_decode(
        &g->m.a->source.dataset.tokenizer, texts[i].tokens, texts[i].count, &text);
    bool ids = g->m.a->source.dataset.tokenizer.kind == TSR_TOKENIZER_IDS;
    printf("--- %d\n%s%s", i + 1, g->texts[i], ids ? " " : "");
    if (text.data) fwrite(text.data, 1, text.length, stdout);
    printf("\n");
    tsr_text_free(&text);
  }
  if (g->count > 1) return;
  if (g->waiting.length) fwrite(g->waiting.data, 1, g->waiting.length, stdout);
  printf("\n");
}

static bool generate(generation *g) {
  app *a = g->m.a;
  const tsr_config_eval *e = &a->config->eval;
  enum { ENDS_MAX = 64 };
  int32_t stops[TSR_CHAT_STOPS_MAX + ENDS_MAX];
  int chat = tsr_chat_stops(&a->source.dataset.tokenizer, stops), ends;
  if (!tsr_hf_ends(
          a->arena, g->m.weights.folder, a->source.dataset.tokenizer.vocab_size, ENDS_MAX,
          stops + chat, &ends, a->diags))
    return false;
  tsr_generating how = {
      .sampling = {e->repetition_penalty, e->temperature, e->top_k, e->top_p, e->seed},
      .max_new_tokens = e->max_new_tokens,
      .stops = stops,
      .stops_count = chat + ends,
      .drawn = show_token,
      .context = g,
      .interrupt = interrupt_of(a)};
  tsr_generating_speed speed;
  tsr_continuation *texts = tsr_arena_array(a->arena, tsr_continuation, g->count);
  tsr_generator generator = tsr_generator_of(
      &a->generation, g->m.bound, a->source.dataset.tokenizer.vocab_size);
  if (g->count == 1 && !a->muted) fputs(g->texts[0], stdout);
  if (!tsr_generate_texts(
          a->arena, &generator, g->prompts, g->count, &how, texts, &speed, a->diags))
    return false;
  if (!a->muted) show_all(g, texts);
  if (!a->cli.quiet && speed.decode_seconds > 0)
    fprintf(
        stderr, "prompt: %lld tokens, %.0f/s; new: %lld tokens, %.0f/s\n",
        (long long)speed.prefill_tokens,
        speed.prefill_seconds > 0 ? (double)speed.prefill_tokens / speed.prefill_seconds : 0.0,
        (long long)speed.decode_tokens, (double)speed.decode_tokens / speed.decode_seconds);
  return true;
}

int app_run_generate(app *a) {
  generation g = {.m = {.a = a}};
  bool ok =
      open_context(&g.m) && open_tokenizer(&g.m) && read_prompts(&g) && compile_generation(&g);
  if (ok && !a->muted) tsr_diags_print(a->diags, stderr);
  ok = ok && generate(&g);
  tsr_text_free(&g.waiting);
  return finish(&g.m, ok);
}
