// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"
#include "base/file_read.h"
#include "base/text.h"
#include "base/uri.h"
#include "cli/command_mask.h"
#include "cli/option_pairs.h"
#include "cli/option_values.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const commands[TSR_COMMANDS] = {
    "train",      "check",   "inspect", "trace",    "profile", "plan",    "evaluate", "generate",
    "checkpoint", "import",  "export",  "tokenize", "data",    "kernels", "doctor",   "verify",
    "lock",       "compare", "serve",   "report",   "watch",   "sweep"};

/* check takes what train takes. */
#define WRITES                                                                                     \
  (ONLY(TRAIN) | ONLY(PROFILE) | ONLY(CHECK) | ONLY(CHECKPOINT) | ONLY(IMPORT) | ONLY(EXPORT) |    \
   ONLY(TOKENIZE) | ONLY(EVALUATE) | ONLY(SWEEP))

/* TEXT: a value that may be empty. */
typedef enum { FLAG, VALUE, TEXT, PATH, VALUES, OPTIONAL, KEY } option_kind;
typedef struct {
  const char *word;
  option_kind kind;
  size_t at;             /* in tsr_options */
  unsigned owners;       /* commands; 0: all */
  const char *otherwise; /* OPTIONAL, a path: the value without one; KEY: the configuration's key,
                            NULL of --set */
} option;

#define AT(member) offsetof(tsr_options, member)
static const option options[] = {
    {"--config", PATH, AT(config), CONFIGURED | ONLY(KERNELS)},
    {"--mesh", PATH, AT(mesh), CONFIGURED | ONLY(VERIFY)},
    {"--set", KEY, 0, CONFIGURED | ONLY(VERIFY) | ONLY(COMPARE) | ONLY(KERNELS)}, /* numerics.isa */
    {"--metrics", PATH, AT(metrics), ONLY(TRAIN) | ONLY(PROFILE) | ONLY(CHECK)},
    {"--out", PATH, AT(out), WRITES},
    {"--overwrite", FLAG, AT(overwrite), ONLY(TRAIN) | ONLY(PROFILE) | ONLY(TOKENIZE)},
    {"--prove", FLAG, AT(prove), ONLY(CHECK)},
    {"--full-mesh", FLAG, AT(full_mesh), ONLY(CHECK)},
    {"--machine", PATH, AT(machine), ONLY(PLAN) | ONLY(REPORT) | ONLY(WATCH) | ONLY(CHECK)},
    {"--html", PATH, AT(html), ONLY(REPORT)},
    {"--gantt", FLAG, AT(gantt), ONLY(PLAN)},
    {"--svg", PATH, AT(svg), ONLY(PLAN) | ONLY(CHECK)},
    {"--calibrate", OPTIONAL, AT(calibration), ONLY(PLAN), "machine.yaml"},
    {"--dump", VALUE, AT(dump), COMPILED},
    {"--tensor", VALUE, AT(tensor), ONLY(INSPECT)},
    {"--rank", VALUE, AT(rank_text), ONLY(TRACE)},
    {"--emit", VALUE, AT(emit), ONLY(TRACE)},
    {"--steps", VALUE, AT(steps_text), ONLY(PROFILE) | ONLY(VERIFY) | ONLY(COMPARE) | ONLY(TRACE)},
    {"--save", PATH, AT(save), ONLY(TRACE)},
    {"--tensors", VALUE, AT(tensors), ONLY(TRACE)},
    {"--tensorboard", PATH, AT(tensorboard), ONLY(TRAIN)},
    {"--tensorboard-histograms", VALUE, AT(histograms), ONLY(TRAIN)},
    {"--tensorboard-every", VALUE, AT(histograms_every_text), ONLY(TRAIN)},
    {"--tui", FLAG, AT(tui), ONLY(TRAIN) | ONLY(WATCH)},
    {"--locked", PATH, AT(locked), ONLY(TRAIN)},
    {"--resume", OPTIONAL, AT(resume), ONLY(TRAIN), ""},
    {"--fork", PATH, AT(fork), ONLY(TRAIN)},
    {"--check-determinism", VALUE, AT(determinism_text), ONLY(TRAIN)},
    {"--dump-grads", PATH, AT(dump_grads), ONLY(TRAIN)},
    {"--record-routing", PATH, AT(record_routing), ONLY(TRAIN)},
    {"--replay-routing", PATH, AT(replay_routing), ONLY(TRAIN)},
    {"--time-limit", VALUE, AT(time_limit_text), ONLY(TRAIN)},
    {"--stop-at", VALUE, AT(stop_at_text), ONLY(TRAIN)},
    {"--checkpoint", PATH, AT(checkpoint), TEXTS | ONLY(EVALUATE)},
    {"--adapter", PATH, AT(adapter), ONLY(EVALUATE) | ONLY(GENERATE) | ONLY(EXPORT) | ONLY(SERVE)},
    {"--host", VALUE, AT(host), ONLY(SERVE) | ONLY(WATCH)},
    {"--port", VALUE, AT(port_text), ONLY(SERVE) | ONLY(WATCH)},
    {"--token", VALUE, AT(token), ONLY(SERVE)},
    {"--model-name", VALUE, AT(model_name), ONLY(SERVE)},
    {"--context", VALUE, AT(context_text), ONLY(SERVE)},
    {"--max-batch", VALUE, AT(max_batch_text), TEXTS},
    {"--weights", VALUE, AT(weights), TEXTS | ONLY(EVALUATE)},
    {"--cache-pages", VALUE, AT(cache_pages_text), TEXTS},
    {"--max-queue", VALUE, AT(max_queue_text), ONLY(SERVE)},
    {"--max-body", VALUE, AT(max_body_text), ONLY(SERVE)},
    {"--timeout", VALUE, AT(timeout_text), ONLY(SERVE)},
    {"--data", VALUE, AT(data), ONLY(EVALUATE)},
    {"--eval-set", VALUES, AT(eval_sets), ONLY(EVALUATE)},
    {"--last-word", FLAG, AT(last_word), ONLY(EVALUATE)},
    {"--context-template", TEXT, AT(context_template), ONLY(EVALUATE)},
    {"--delimiter", TEXT, AT(delimiter), ONLY(EVALUATE)},
    {"--shots", VALUE, AT(shots_text), ONLY(EVALUATE)},
    {"--shots-file", PATH, AT(shots_file), ONLY(EVALUATE)},
    {"--shots-delimiter", TEXT, AT(shots_delimiter), ONLY(EVALUATE)},
    {"--apply-chat-template", FLAG, AT(apply_chat_template), ONLY(EVALUATE)},
    {"--max-length", VALUE, AT(max_length_text), ONLY(EVALUATE)},
    {"--log-samples", PATH, AT(log_samples), ONLY(EVALUATE)},
    {"--prompt", VALUES, AT(prompts), ONLY(GENERATE)},
    {"--prompt-file", PATH, AT(prompt_file), ONLY(GENERATE)},
    {"--chat", PATH, AT(chat), ONLY(GENERATE)},
    {"--max-new-tokens", KEY, 0, ONLY(GENERATE), "eval_config.max_new_tokens"},
    {"--temperature", KEY, 0, ONLY(GENERATE), "eval_config.temperature"},
    {"--top-k", KEY, 0, ONLY(GENERATE), "eval_config.top_k"},
    {"--top-p", KEY, 0, ONLY(GENERATE), "eval_config.top_p"},
    {"--repetition-penalty", KEY, 0, ONLY(GENERATE), "eval_config.repetition_penalty"},
    {"--seed", KEY, 0, ONLY(GENERATE) | ONLY(EVALUATE), "eval_config.seed"},
    {"--jobs", VALUE, AT(jobs_text), ONLY(SWEEP)},
    {"--random", VALUE, AT(random_text), ONLY(SWEEP)},
    {"--sweep-seed", VALUE, AT(sweep_seed_text), ONLY(SWEEP)},
    {"--launcher", VALUE, AT(launcher), ONLY(SWEEP)},
    {"--sample", VALUE, AT(sample_text), ONLY(DATA)},
    {"--split", VALUE, AT(split), ONLY(DATA)},
    {"--shards", VALUE, AT(shards_text), ONLY(CHECKPOINT)},
    {"--dtype", VALUE, AT(dtype), ONLY(EXPORT)},
    {"--merge", FLAG, AT(merge), ONLY(EXPORT)},
    {"--tokenizer", PATH, AT(tokenizer), ONLY(TOKENIZE)},
    {"--format", VALUE, AT(format), ONLY(TOKENIZE) | ONLY(EXPORT)},
    {"--skip-bad-lines", FLAG, AT(skip_bad_lines), ONLY(TOKENIZE)},
    {"--jsonl-key", VALUE, AT(jsonl_key), ONLY(TOKENIZE)},
    {"--threads", VALUE, AT(threads_text), ONLY(TOKENIZE) | ONLY(KERNELS)},
    {"--bench", FLAG, AT(bench), ONLY(KERNELS)},
    {"--filter", VALUE, AT(filter), ONLY(KERNELS)},
    {"--topology", FLAG, AT(topology), ONLY(DOCTOR)},
    {"--strict", FLAG, AT(strict), CONFIGURED},
    {"--progress", VALUE, AT(progress_text)},
    {"--quiet", FLAG, AT(quiet)},
    {"--print-config", FLAG, AT(print_config)},
    {"--print-schema", FLAG, AT(print_schema)},
    {"--print-manual", FLAG, AT(print_manual)},
    {"--version", FLAG, AT(version)},
    {"--help", FLAG, AT(help)}};
enum { OPTIONS = sizeof options / sizeof *options };

static const char *const dumps[] = {"mesh", "groups", "graph", "placement", "program", "memory"};
static const char *const splits[] = {"train", "validation"};
static const char *const emits[] = {"graph-ir", "schedule-ir", "tile-ir"};

typedef struct {
  tsr_arena *arena;
  tsr_options *result;
  tsr_diags *diags;
  bool given[OPTIONS];
} parser;

/* ---- words ---- */

static const option *find_option(const char *name) {
  if (!strcmp(name, "-c")) name = "--config";
  if (!strcmp(name, "-h")) name = "--help";
  for (int i = 0; i < OPTIONS; i++)
    if (!strcmp(options[i].word, name)) return &options[i];
  return NULL;
}

static void unknown_option(const parser *p, const char *name) {
  const char *words[OPTIONS];
  for (int i = 0; i < OPTIONS; i++) words[i] = options[i].word;
  tsr_diag_error(p->diags, TSR_NOWHERE, "there is no option '%s'", name);
  tsr_diag_nearest(p->diags, name, words, OPTIONS);
}

static void add_word(const parser *p, tsr_words *words, const char *what, const char *word) {
  if (words->count < TSR_WORDS_MAX) words->items[words->count++] = word;
  else tsr_diag_error(p->diags, TSR_NOWHERE, "more than %d %s", TSR_WORDS_MAX, what);
}

static void add_set(const parser *p, tsr_set set) {
  if (p->result->sets_count < TSR_WORDS_MAX) p->result->sets[p->result->sets_count++] = set;
  else
    tsr_diag_error(
        p->diags, TSR_NOWHERE, "more than %d options for the configuration", TSR_WORDS_MAX);
}

/* Variables are replaced in a configuration, and on the command line by a shell. */
static void store_path(const parser *p, const char *word, const char **ret_path) {
  *ret_path = word;
  if (!strncmp(word, "${", 2))
    tsr_diag_error(
        p->diags, TSR_NOWHERE,
        "'%s' begins with a variable, which is not replaced on the command line", word);
  else tsr_uri_path(p->arena, word, TSR_NOWHERE, ret_path, p->diags);
}

static void store(parser *p, const option *o, const char *value) {
  char *at = (char *)p->result + o->at;
  if (o->kind == VALUES) add_word(p, (tsr_words *)at, o->word, value);
  else if (o->kind == KEY)
    add_set(p, (tsr_set){value, o->otherwise ? o->word : NULL, o->otherwise});
  else if ((o->kind == PATH || o->kind == VALUE) && !*value)
    tsr_diag_error(p->diags, TSR_NOWHERE, "%s needs a value", o->word);
  else if (o->kind == VALUE || o->kind == TEXT) *(const char **)at = value;
  else if ((o->at == AT(config) || o->at == AT(prompt_file)) && !strcmp(value, "-"))
    *(const char **)at = "/dev/stdin";
  else if (o->kind == PATH && !strcmp(value, "-"))
    tsr_diag_error(
        p->diags, TSR_NOWHERE, "%s: '-' is not the name of a file; one of that name is ./-",
        o->word);
  else store_path(p, value, (const char **)at);
}

/* One option (with the value after it or behind "="); advances *at. */
static void parse_option(parser *p, int argc, char **argv, int *at) {
  char name[64];
  const char *word = argv[*at], *equals = strchr(word, '=');
  size_t length = equals ? (size_t)(equals - word) : strlen(word);
  snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), word);
  const option *o = find_option(name);
  bool more = *at + 1 < argc, plain = more && argv[*at + 1][0] != '-';
  bool *given = o ? &p->given[o - options] : NULL, again = given && *given;
  if (given) *given = true;
  if (!o) {
    unknown_option(p, name);
    if (!equals && plain) ++*at; /* what seems to be its value */
  } else if (o->kind == FLAG && !equals) {
    *(bool *)((char *)p->result + o->at) = true;
  } else if (o->kind == FLAG) {
    tsr_diag_error(p->diags, TSR_NOWHERE, "%s takes no value", name);
  } else if (again && o->kind != VALUES && strcmp(o->word, "--set") != 0) {
    tsr_diag_error(p->diags, TSR_NOWHERE, "%s is given twice", name);
    *at += !equals;
  } else if (equals) {
    store(p, o, equals + 1);
  } else if (o->kind == OPTIONAL && !plain) {
    store(p, o, o->otherwise);
  } else if (more) {
    store(p, o, argv[++*at]);
  } else {
    if (o->kind != PATH && o->kind != VALUE)
      tsr_diag_error(p->diags, TSR_NOWHERE, "%s needs a value", name);
    store(p, o, "");
  }
}

/* `tessera-train run.yaml`, `tessera-train check run.yaml` */
static bool is_configuration(const char *word) {
  return tsr_path_ends(word, ".yaml") || tsr_path_ends(word, ".yml");
}

static void take_config(parser *p, const char *path) {
  p->result->config = path;
  p->given[find_option("--config") - options] = true;
}

/* False for `help`, behind which a command may follow. */
static bool parse_command(parser *p, const char *word) {
  if (!strcmp(word, "help") && !p->result->help) {
    p->result->help = true;
    return false;
  }
  for (int i = 0; i < TSR_COMMANDS; i++)
    if (!strcmp(word, commands[i])) {
      p->result->command = (tsr_command)i;
      p->result->names_command = true;
      return true;
    }
  tsr_diag_error(p->diags, TSR_NOWHERE, "there is no command '%s'", word);
  tsr_diag_nearest(p->diags, word, commands, TSR_COMMANDS);
  if (!tsr_nearest(word, commands, TSR_COMMANDS))
    tsr_diag_hint(p->diags, "tessera-train --help lists all commands");
  return true;
}

static void add_argument(const parser *p, const char *word) {
  const char *path;
  store_path(p, word, &path);
  add_word(p, &p->result->arguments, "arguments", path);
}

/* ---- checks ---- */

/* Of verify and trace: "990-1000", or one step. */
static void check_steps(tsr_options *c, tsr_diags *diags) {
  const char *text = c->steps_text;
  int used = 0;
  if (!text || !*text) return;
  int found =
      sscanf(text, "%" SCNd64 "%n-%" SCNd64 "%n", &c->first_step, &used, &c->last_step, &used);
  if (found == 1) c->last_step = c->first_step;
  if (found > 0 && !text[used] && c->first_step > 0 && c->first_step <= c->last_step) return;
  tsr_diag_error(diags, TSR_NOWHERE, "--steps: '%s' is no range of steps, such as 991-1000", text);
}

static void check_weights(const tsr_options *c, tsr_diags *diags) {
  static const char *const types[] = {"int8", "nf4"};
  if (!c->weights || !*c->weights || !strcmp(c->weights, types[0]) || !strcmp(c->weights, types[1]))
    return;
  tsr_diag_error(diags, TSR_NOWHERE, "--weights: '%s' is neither 'int8' nor 'nf4'", c->weights);
  tsr_diag_nearest(diags, c->weights, types, 2);
}

static void check_serve(tsr_options *c, tsr_diags *diags) {
  option_check_number("--port", c->port_text, 0, &c->port, diags);
  option_check_number("--context", c->context_text, 2, &c->context, diags);
  option_check_number("--max-batch", c->max_batch_text, 1, &c->max_batch, diags);
  option_check_number("--cache-pages", c->cache_pages_text, 1, &c->cache_pages, diags);
  option_check_number("--max-queue", c->max_queue_text, 1, &c->max_queue, diags);
  option_check_number("--max-body", c->max_body_text, 1, &c->max_body, diags);
  option_check_duration("--timeout", c->timeout_text, &c->timeout_s, diags);
}

/* Options that only some commands have. */
static void check_owned(const parser *p) {
  unsigned command = 1u << p->result->command;
  for (int i = 0; i < OPTIONS; i++) {
    const option *o = &options[i];
    if (!p->given[i] || !o->owners || o->owners & command) continue;
    tsr_text owners = {0};
    int count = 0, all = __builtin_popcount(o->owners);
    for (int k = 0; k < TSR_COMMANDS; k++)
      if (o->owners & 1u << k) {
        const char *between = !count ? "" : count == all - 1 ? " and " : ", ";
        tsr_text_add(&owners, "%s'%s'", between, commands[k]);
        count++;
      }
    tsr_diag_error(
        p->diags, TSR_NOWHERE, "%s belongs to the command%s %s", o->word, count > 1 ? "s" : "",
        owners.data);
    tsr_text_free(&owners);
  }
}

/* Positional arguments, of commands that require them. */
static void check_arguments(const tsr_options *c, tsr_diags *diags) {
  static const struct {
    tsr_command command;
    int least, most;
    const char *what;
  } wants[] = {
      {TSR_COMMAND_CHECKPOINT, 2, 3,
       "what to do (ls, show, verify, diff, merge, reshard), and a folder"},
      {TSR_COMMAND_DATA, 1, 1, "what to do: show"},
      {TSR_COMMAND_VERIFY, 1, 1, "a run.lock, or the folder of a run"},
      {TSR_COMMAND_COMPARE, 2, 2,
       "two of a kind: recipes or runs, checkpoints, files of tensors (.safetensors)"},
      {TSR_COMMAND_REPORT, 1, TSR_WORDS_MAX, "a folder of --out, or a file of --metrics"},
      {TSR_COMMAND_WATCH, 1, TSR_WORDS_MAX,
       "a folder of --out, a folder of such folders, or a file of --metrics"},
      {TSR_COMMAND_LOCK, 3, 3, "what to do: diff, and two files run.lock"},
      {TSR_COMMAND_IMPORT, 1, 1, "a folder of Hugging Face"},
      {TSR_COMMAND_EXPORT, 1, 1, "a checkpoint"},
      {TSR_COMMAND_TOKENIZE, 1, TSR_WORDS_MAX, "a file of text or JSONL"}};
  int most = 0;
  for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
    if (wants[i].command != c->command) continue;
    most = wants[i].most;
    if (c->arguments.count < wants[i].least)
      tsr_diag_error(diags, TSR_NOWHERE, "%s needs %s", commands[c->command], wants[i].what);
  }
  for (int i = most; i < c->arguments.count; i++)
    tsr_diag_error(diags, TSR_NOWHERE, "unexpected argument '%s'", c->arguments.items[i]);
}

/* Whether the command reads a configuration and none was given. */
static bool lacks_config(const tsr_options *c) {
  if (c->config || c->help || c->version || c->print_schema || c->print_manual) return false;
  switch (c->command) {
  case TSR_COMMAND_INSPECT:
    return !c->mesh;
  case TSR_COMMAND_PLAN:
    return !c->calibration;
  case TSR_COMMAND_EVALUATE:
  case TSR_COMMAND_GENERATE:
  case TSR_COMMAND_SERVE:
    return !c->checkpoint;
  case TSR_COMMAND_CHECKPOINT:
  case TSR_COMMAND_IMPORT:
  case TSR_COMMAND_EXPORT:
  case TSR_COMMAND_TOKENIZE:
  case TSR_COMMAND_KERNELS:
  case TSR_COMMAND_DOCTOR:
  case TSR_COMMAND_VERIFY:
  case TSR_COMMAND_LOCK:
  case TSR_COMMAND_COMPARE:
  case TSR_COMMAND_REPORT:
  case TSR_COMMAND_WATCH:
    return false;
  default:
    return true;
  }
}

/* A number of seconds, auto or never. */
static void check_progress(tsr_options *c, tsr_diags *diags) {
  enum { DAY = 86400 };
  char *end;
  c->progress_s = -1;
  if (!c->progress_text || !strcmp(c->progress_text, "auto")) return;
  double seconds = strtod(c->progress_text, &end);
  c->no_progress = !strcmp(c->progress_text, "never");
  if (c->no_progress) return;
  if (end != c->progress_text && !*end && seconds >= 0 && seconds <= DAY) c->progress_s = seconds;
  else
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "--progress: '%s' is neither auto, never nor a number of seconds up to %d",
        c->progress_text, DAY);
}

static void check_needs(const tsr_options *c, tsr_diags *diags) {
  bool text = c->command == TSR_COMMAND_EVALUATE || c->command == TSR_COMMAND_GENERATE ||
              c->command == TSR_COMMAND_SERVE;
  if (!lacks_config(c)) return;
  if (text) tsr_diag_error(diags, TSR_NOWHERE, "no weights: --checkpoint DIR is needed");
  else
    tsr_diag_error(
        diags, TSR_NOWHERE, "no configuration: --config FILE%s is needed",
        c->command == TSR_COMMAND_INSPECT ? " or --mesh FILE"
        : c->command == TSR_COMMAND_PLAN  ? " or --calibrate"
                                          : "");
  tsr_diag_hint(diags, "tessera-train --help lists all options");
}

bool tsr_options_parse(tsr_arena *arena, int argc, char **argv, tsr_options *c, tsr_diags *diags) {
  parser p = {.arena = arena, .result = c, .diags = diags};
  *c = (tsr_options){.command = TSR_COMMAND_TRAIN};
  bool command = false;
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-' && argv[i][1]) parse_option(&p, argc, argv, &i);
    else if (is_configuration(argv[i]) && lacks_config(c)) command = true, take_config(&p, argv[i]);
    else if (!command) command = parse_command(&p, argv[i]);
    else add_argument(&p, argv[i]);
  }
  option_check_list("--dump", c->dump, dumps, sizeof dumps / sizeof *dumps, diags);
  option_check_list("--emit", c->emit, emits, sizeof emits / sizeof *emits, diags);
  option_check_list("--split", c->split, splits, sizeof splits / sizeof *splits, diags);
  option_check_number("--stop-at", c->stop_at_text, 1, &c->stop_at, diags);
  option_check_number("--sample", c->sample_text, 0, &c->sample, diags);
  option_check_number("--rank", c->rank_text, 0, &c->rank, diags);
  if (c->command == TSR_COMMAND_VERIFY || c->command == TSR_COMMAND_TRACE) check_steps(c, diags);
  else option_check_number("--steps", c->steps_text, 1, &c->steps, diags);
  option_check_number("--check-determinism", c->determinism_text, 1, &c->determinism, diags);
  if (c->determinism_text && c->dump_grads)
    tsr_diag_error(diags, TSR_NOWHERE, "--check-determinism writes nothing, not even --dump-grads");
  option_check_number(
      "--tensorboard-every", c->histograms_every_text, 1, &c->histograms_every, diags);
  option_check_number("--shards", c->shards_text, 1, &c->shards, diags);
  option_check_number("--shots", c->shots_text, 1, &c->shots, diags);
  option_check_number("--max-length", c->max_length_text, 1, &c->max_length, diags);
  option_check_number("--threads", c->threads_text, 1, &c->threads, diags);
  check_progress(c, diags);
  option_check_duration("--time-limit", c->time_limit_text, &c->time_limit_s, diags);
  check_weights(c, diags);
  check_serve(c, diags);
  option_check_number("--jobs", c->jobs_text, 1, &c->jobs, diags);
  option_check_number("--random", c->random_text, 1, &c->random_runs, diags);
  option_check_number("--sweep-seed", c->sweep_seed_text, 0, &c->sweep_seed, diags);
  check_owned(&p);
  tsr_options_check_pairs(c, diags);
  if (!c->help && !c->version) check_arguments(c, diags);
  if (c->adapter && c->merge)
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "--adapter merges the adapters of a folder, --merge those of a run: use one of the two");
  if (c->machine && c->calibration)
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "--machine and --calibrate both select the machine: use one of the two");
  if (c->resume && c->overwrite)
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "--resume continues a run, --overwrite discards it: use one of the two");
  if (!tsr_diags_errors(diags)) check_needs(c, diags);
  return !tsr_diags_errors(diags);
}

/* What it names is compared by its content, or it changes what is shown alone. */
static bool may_differ(const option *o) {
  static const char *const words[] = {
      "--config",     "--mesh",    "--data",        "--checkpoint", "--chat",
      "--dump",       "--adapter", "--prompt-file", "--quiet",      "--replay-routing",
      "--shots-file", "--tui",     "--progress"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(o->word, words[i])) return true;
  return o->kind == KEY || o->kind == VALUES;
}

void tsr_options_print_shared(const tsr_options *c, tsr_text *text) {
  for (int i = 0; i < OPTIONS; i++) {
    const option *o = &options[i];
    const char *at = (const char *)c + o->at;
    if (may_differ(o) || (o->owners && !(o->owners & 1u << c->command))) continue;
    bool flag = o->kind == FLAG, given = flag ? *(const bool *)at : *(char *const *)at != NULL;
    const char *value = given && !flag ? *(char *const *)at : "";
    tsr_text_add(text, "%s%s%s%s\n", given ? "" : "no ", o->word, *value ? " " : "", value);
  }
}

const char *tsr_command_name(tsr_command command) { return commands[command]; }

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (!strncmp(at, word, n) && (at[n] == ',' || !at[n])) return true;
  return false;
}

bool tsr_options_dump(const tsr_options *c, const char *what) { return has_word(c->dump, what); }

bool tsr_options_emit(const tsr_options *c, const char *what) {
  return !c->emit || has_word(c->emit, what);
}
